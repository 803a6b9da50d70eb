/* Rule files: see rule_files.h. A file that is replaced or written during the read differs in its state afterwards. */
#include "engine/rule_files.h"
#include "algo/algo.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SOURCE_BYTES_MAX (16 << 20) /* of one file */
#define SOURCES_MAX      4096
#define TICK_MAX_NS      (20 * 1000 * WEIR_MICROSECOND) /* the longest tick of the kernel is 10 ms */

/* The files to read, in order: the path itself, or the files of a directory. */
struct names {
    char **list;
    size_t count;
};

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct names){0};
}

static bool ends_in(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

static int is_rule_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && (ends_in(entry->d_name, ".yaml") || ends_in(entry->d_name, ".yml"));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* 0, or an errno. */
static int names_find(const char *path, struct names *names)
{
    struct stat at;
    struct dirent **entries = NULL;
    if (stat(path, &at) != 0)
        return errno;
    bool folder = S_ISDIR(at.st_mode);
    int count = folder ? scandir(path, &entries, is_rule_file, by_name) : 1;
    if (count < 0)
        return errno;
    const char *slash = path[0] && path[strlen(path) - 1] != '/' ? "/" : "";
    names->list = calloc((size_t)count + 1, sizeof *names->list);
    int error = !names->list ? ENOMEM : count > SOURCES_MAX ? E2BIG : 0;
    for (int i = 0; i < count && !error; i++) {
        if (asprintf(&names->list[i], "%s%s%s", path, folder ? slash : "", folder ? entries[i]->d_name : "") < 0)
            error = ENOMEM;
        else
            names->count++;
    }
    for (int i = 0; i < count && folder; i++)
        free(entries[i]);
    free(entries);
    return error;
}

static int64_t nanoseconds(struct timespec at)
{
    return (int64_t)at.tv_sec * WEIR_SECOND + at.tv_nsec;
}

static void add_state(struct weir__fingerprint *print, const char *name, const struct stat *at, int64_t now_ns)
{
    int64_t changed = nanoseconds(at->st_ctim), age = now_ns - changed;
    const uint64_t facts[] = {at->st_dev, at->st_ino, (uint64_t)at->st_size, (uint64_t)nanoseconds(at->st_mtim),
                              (uint64_t)changed};
    print->sum = weir__hash_text(weir__text_of(name), print->sum);
    print->sum = weir__hash_text((weir_text){(const char *)facts, sizeof facts}, print->sum);
    print->age_ns = age < print->age_ns ? age : print->age_ns;
    /*
     * File times have the resolution of the kernel's tick, or of a second on simpler or remote file systems. A file
     * changed within the current step may change again and keep its time.
     */
    print->young |= age >= 0 && age < (changed % WEIR_SECOND ? TICK_MAX_NS : WEIR_SECOND);
}

static struct weir__fingerprint fingerprint(const struct names *names)
{
    struct weir__fingerprint print = {.sum = names->count + 1, .age_ns = INT64_MAX};
    int64_t now_ns = weir__clock_ns(CLOCK_REALTIME);
    struct stat at;
    for (size_t i = 0; i < names->count && !print.error; i++) {
        if (stat(names->list[i], &at) == 0)
            add_state(&print, names->list[i], &at, now_ns);
        else
            print.error = errno;
    }
    return print;
}

struct weir__fingerprint weir__sources_look(const char *path)
{
    struct names names = {0};
    int error = names_find(path, &names);
    struct weir__fingerprint print = error ? (struct weir__fingerprint){.error = error} : fingerprint(&names);
    names_free(&names);
    return print;
}

/* Receives diagnostics of the files. */
struct reading {
    weir_diagnose *diagnose;
    void *context;
    size_t bytes_max; /* of a file; 0: SOURCE_BYTES_MAX */
    bool passing;     /* as in struct weir__sources */
};

static int report(const struct reading *r, const char *path, const char *format, const char *detail)
{
    char message[256];
    snprintf(message, sizeof message, format, detail);
    if (r->diagnose)
        r->diagnose(r->context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = path, .message = message});
    return WEIR_ERULESPATH;
}

static int report_unreadable(struct reading *r, const char *path, int number)
{
    /* These last until a change on disk, which the fingerprint detects. */
    static const int lasting[] = {ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG, ENXIO, E2BIG};
    bool lasts = false;
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        lasts |= number == lasting[i];
    r->passing |= !lasts;
    return report(r, path, "cannot be read: %s",
                  number == E2BIG ? "the directory has more than 4096 files" : strerror(number));
}

static bool same_state(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && nanoseconds(a->st_mtim) == nanoseconds(b->st_mtim) &&
           nanoseconds(a->st_ctim) == nanoseconds(b->st_ctim);
}

/* Reads the open file into *source, which then owns both texts. */
static int read_open(int file, const char *name, struct reading *r, struct weir__source *source)
{
    struct stat before, after;
    if (fstat(file, &before) != 0)
        return report_unreadable(r, name, errno);
    if (!S_ISREG(before.st_mode))
        return report(r, name, "cannot be read: %s",
                      S_ISDIR(before.st_mode) ? "it is a directory" : "it is neither a file nor a directory");
    size_t bytes_max = r->bytes_max ? r->bytes_max : SOURCE_BYTES_MAX;
    if ((uintmax_t)before.st_size > bytes_max) {
        char why[64];
        snprintf(why, sizeof why, "it is longer than %zu MiB", bytes_max >> 20);
        return report(r, name, "cannot be read: %s", why);
    }
    size_t size = (size_t)before.st_size;
    char *text = malloc(size + 1), *copy = strdup(name);
    source->name = copy;
    source->text = (weir_text){text, size};
    if (!text || !copy)
        return WEIR_ENOMEM;
    ssize_t got = weir__read_fully(file, text, size);
    if (got < 0)
        return report_unreadable(r, name, errno);
    if ((size_t)got != size || fstat(file, &after) != 0 || !same_state(&before, &after))
        return WEIR_ERULESBUSY;
    text[size] = 0;
    return 0;
}

static int read_file(const char *name, struct reading *r, struct weir__source *source)
{
    /* Non-blocking: a FIFO in the directory must not block the process. */
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT)
        return WEIR_ERULESBUSY; /* it was there a moment ago */
    if (file < 0)
        return report_unreadable(r, name, errno);
    int error = read_open(file, name, r, source);
    close(file);
    return error;
}

/* Reports names that exist but are dangling links or not accessible. A name that is gone is not reported. */
static int report_unreachable(const struct names *names, struct reading *r)
{
    int error = WEIR_ERULESBUSY;
    for (size_t i = 0; i < names->count; i++) {
        struct stat at;
        if (stat(names->list[i], &at) == 0)
            continue;
        int number = errno;
        if (number != ENOENT)
            error = report_unreadable(r, names->list[i], number);
        else if (lstat(names->list[i], &at) == 0)
            error = report(r, names->list[i], "cannot be read: %s", "the link leads nowhere");
    }
    return error;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Word by word, without lines that begin with '#'. */
static uint64_t text_checksum(weir_text text, uint64_t checksum)
{
    bool first = true; /* of its line */
    for (size_t i = 0; i < text.len;) {
        size_t from = i;
        if (is_blank(text.data[i])) {
            first |= text.data[i++] == '\n';
            continue;
        }
        bool comment = first && text.data[i] == '#';
        while (i < text.len && (comment ? text.data[i] != '\n' : !is_blank(text.data[i])))
            i++;
        if (!comment)
            checksum = weir__hash_text((weir_text){text.data + from, i - from}, checksum);
        first = false;
    }
    return checksum;
}

uint64_t weir__sources_checksum(const struct weir__source *list, size_t count)
{
    uint64_t checksum = count;
    for (size_t i = 0; i < count; i++)
        checksum = text_checksum(list[i].text, checksum + 1);
    return checksum ? checksum : 1;
}

static int read_names(const char *path, const struct names *names, struct reading *r, struct weir__sources *sources)
{
    sources->fingerprint = fingerprint(names);
    if (sources->fingerprint.error)
        return report_unreachable(names, r);
    if (!names->count)
        return report(r, path, "%s", "the directory has no *.yaml or *.yml file");
    sources->list = calloc(names->count, sizeof *sources->list);
    if (!sources->list)
        return WEIR_ENOMEM;
    int first = 0;
    for (size_t i = 0; i < names->count; i++) {
        /* All of them, so that every unreadable file is reported. */
        int error = read_file(names->list[i], r, &sources->list[sources->count++]);
        first = first ? first : error;
    }
    if (first)
        return first;
    for (size_t i = 0; i < sources->count; i++)
        sources->fingerprint.content = weir__hash_text(sources->list[i].text, sources->fingerprint.content + 1);
    sources->fingerprint.checksum = weir__sources_checksum(sources->list, sources->count);
    struct weir__fingerprint after = weir__sources_look(path);
    return after.error || after.sum != sources->fingerprint.sum ? WEIR_ERULESBUSY : 0;
}

int weir__sources_read(const char *path, weir_diagnose *diagnose, void *context, struct weir__sources *sources)
{
    struct names names = {0};
    struct reading r = {.diagnose = diagnose, .context = context};
    *sources = (struct weir__sources){0};
    int number = names_find(path, &names), error;
    if (number)
        error = number == ENOMEM ? WEIR_ENOMEM : report_unreadable(&r, path, number);
    else
        error = read_names(path, &names, &r, sources);
    names_free(&names);
    if (error)
        weir__sources_free(sources);
    sources->passing = r.passing;
    sources->fingerprint.error = number;
    return error;
}

void weir__sources_report_busy(const char *path, weir_diagnose *diagnose, void *context)
{
    struct names names = {0};
    struct reading r = {.diagnose = diagnose, .context = context};
    if (names_find(path, &names) != 0 || report_unreachable(&names, &r) == WEIR_ERULESBUSY)
        report(&r, path, "%s", "cannot be read: it changes whenever it is read");
    names_free(&names);
}

/* While a file is being written, it is tried so often. */
enum { TRIES = 50 };
static const struct timespec retry_pause = {.tv_nsec = 10000000};

int weir__sources_load(const char *path, weir_diagnose *diagnose, void *context, struct weir__sources *sources)
{
    int error = weir__sources_read(path, diagnose, context, sources);
    for (int try = 1; try < TRIES && error == WEIR_ERULESBUSY; try++) {
        nanosleep(&retry_pause, NULL);
        error = weir__sources_read(path, diagnose, context, sources);
    }
    if (error == WEIR_ERULESBUSY)
        weir__sources_report_busy(path, diagnose, context);
    return error;
}

static void source_free(struct weir__source *source)
{
    free((void *)(uintptr_t)source->name);
    free((void *)(uintptr_t)source->text.data);
    *source = (struct weir__source){0};
}

void weir__sources_free(struct weir__sources *sources)
{
    for (size_t i = 0; i < sources->count; i++)
        source_free(&sources->list[i]);
    free(sources->list);
    *sources = (struct weir__sources){0};
}

/* ---- Maps of attributes ---- */

void weir__map_files_free(struct weir__map_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->list[i].path);
        free(files->list[i].header);
        weir__map_release(files->list[i].map);
    }
    free(files->list);
    files->list = NULL;
    files->count = 0;
}

static uint64_t content_of(const struct weir__source *source)
{
    return weir__hash_text(source->text, 0) | 1;
}

/* True if the file, whose state is the same, may have changed within the resolution of its time, and has. */
static bool has_new_content(struct weir__map_file *file, bool young)
{
    struct weir__source source = {0};
    struct reading silent = {.bytes_max = WEIR__MAP_BYTES_MAX};
    if (!file->print.young)
        return false;
    bool changed = read_file(file->path, &silent, &source) == 0 && content_of(&source) != file->print.content;
    file->print.young = changed || young || silent.passing;
    source_free(&source);
    return changed;
}

bool weir__map_files_changed(struct weir__map_files *files, int64_t *age_ns)
{
    bool changed = false;
    *age_ns = INT64_MAX;
    for (size_t i = 0; i < files->count; i++) {
        struct weir__map_file *file = &files->list[i];
        struct weir__fingerprint now = fingerprint(&(struct names){&file->path, 1});
        if (now.sum == file->print.sum && now.error == file->print.error && !has_new_content(file, now.young))
            continue;
        changed = true;
        *age_ns = now.age_ns < *age_ns ? now.age_ns : *age_ns;
    }
    return changed;
}

/* The files of a load. */
struct map_loading {
    struct weir__map_files *known, fresh;
};

/* The diagnostics of reading a file are reported where the rules name it. */
static void report_at_node(void *context, const weir_diagnostic *diagnostic)
{
    const struct weir__node *node = context;
    weir__node_error(node, "%s %s", diagnostic->file, diagnostic->message);
}

/* The path that `node` gives, relative to its rule file, from malloc. NULL: it was reported, or there is no memory. */
static char *map_path(const struct map_loading *loading, const struct weir__node *node)
{
    const char *rules = node->report->sources[node->place.source].name, *slash = strrchr(rules, '/');
    bool absolute = node->text.data[0] == '/';
    char *path = NULL;
    if (!absolute && loading->known->text)
        weir__node_error(node, "%s is relative to a rule file, and these rules are not in one: write the whole path",
                         node->text.data);
    else if (asprintf(&path, "%.*s%s", absolute || !slash ? 0 : (int)(slash + 1 - rules), rules, node->text.data) < 0)
        path = NULL;
    return path;
}

/* A new entry of the list. NULL: it was reported, or there is no memory. */
static struct weir__map_file *map_file_add(struct map_loading *loading, const struct weir__node *node, weir_text from,
                                           weir_text to)
{
    struct weir__map_files *fresh = &loading->fresh;
    struct weir__map_file *list = realloc(fresh->list, (fresh->count + 1) * sizeof *list), *file;
    if (!list)
        return NULL;
    fresh->list = list;
    file = &list[fresh->count];
    *file = (struct weir__map_file){.path = map_path(loading, node)};
    if (!file->path)
        return NULL;
    fresh->count++;
    if (asprintf(&file->header, "%.*s,%.*s", (int)from.len, from.data, (int)to.len, to.data) < 0)
        file->header = NULL;
    return file->header ? file : NULL;
}

static const struct weir__map_file *map_file_known(const struct weir__map_files *files, const struct weir__map_file *as)
{
    for (size_t i = 0; i < files->count; i++) {
        const struct weir__map_file *file = &files->list[i];
        if (file->map && strcmp(file->path, as->path) == 0 && strcmp(file->header, as->header) == 0)
            return file;
    }
    return NULL;
}

/* Reads the file's text. False after an error, which was reported at `node`, or without memory. */
static bool map_file_read(struct weir__map_file *file, const struct weir__node *node, bool patient,
                          struct weir__source *source)
{
    struct reading r = {
        .diagnose = report_at_node, .context = (void *)(uintptr_t)node, .bytes_max = WEIR__MAP_BYTES_MAX};
    int error =
        file->print.error ? report_unreadable(&r, file->path, file->print.error) : read_file(file->path, &r, source);
    for (int try = 1; patient && try < TRIES && error == WEIR_ERULESBUSY; try++) {
        source_free(source);
        nanosleep(&retry_pause, NULL);
        file->print = fingerprint(&(struct names){&file->path, 1});
        error = read_file(file->path, &r, source);
    }
    if (error == WEIR_ERULESBUSY)
        report(&r, file->path, "cannot be read: %s", "it was written meanwhile");
    if (error) /* the next poll tries to read it if it may be readable by then */
        file->print.young = r.passing;
    else
        file->print.content = content_of(source);
    return !error;
}

/* As weir__surroundings.open_map. */
static struct weir__map *open_map(void *context, const struct weir__node *node, weir_text from, weir_text to)
{
    struct map_loading *loading = context;
    struct weir__source source = {0};
    if (loading->known->skip)
        return weir__map_none();
    struct weir__map_file *file = map_file_add(loading, node, from, to);
    if (!file)
        return NULL;
    file->print = fingerprint(&(struct names){&file->path, 1});
    const struct weir__map_file *known = map_file_known(loading->known, file);
    bool read = true;
    if (known && known->print.sum == file->print.sum && !known->print.young && !file->print.error)
        file->print = known->print;
    else
        read = map_file_read(file, node, loading->known->patient, &source);
    if (read && known && known->print.content == file->print.content) {
        file->map = weir__map_hold(known->map);
    } else if (read) {
        struct weir__diagnostics own = {.diagnose = node->report->diagnose,
                                        .context = node->report->context,
                                        .sources = &source,
                                        .source_count = 1};
        file->map = weir__map_read(&own, from, to);
        node->report->errors += own.errors;
    }
    source_free(&source);
    return file->map ? weir__map_hold(file->map) : NULL;
}

/* ---- Compiling ---- */

/* As weir_zone_open, but WEIR_ESYS for errors that are not about the zone and may pass. */
static int open_zone(const char *name, weir_zone **zone)
{
    errno = 0;
    int error = weir_zone_open(name, zone);
    bool passing = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO;
    return error == WEIR_EZONE && passing ? WEIR_ESYS : error;
}

/* Warns about what the compiler cannot know: that there is no store. */
static void warn_of_storeless(const weir_rules *rules, struct weir__diagnostics *report)
{
    static const char *const names[] = {"local", "eventual", "strict", "leased"};
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (rule->consistency_given && rule->consistency != WEIR__LOCAL)
            weir__report_warning(report, rule->consistency_place, "consistency: %s acts as local: there is no store",
                                 names[rule->consistency]);
    }
}

int weir__load_sources(const struct weir__source *sources, size_t count, const struct weir__diagnostic_sink *sink,
                       struct weir__map_files *files, weir_rules **rules)
{
    struct weir__diagnostics report = {.diagnose = sink->diagnose,
                                       .context = sink->context,
                                       .sources = sources,
                                       .source_count = count,
                                       .host = sink->host};
    struct map_loading loading = {.known = files};
    struct weir__surroundings around = {
        .open_zone = open_zone, .close_zone = weir_zone_close, .open_map = files ? open_map : NULL, .files = &loading};
    int error = weir__rules_compile(&report, &around, rules);
    if (!error && sink->storeless)
        warn_of_storeless(*rules, &report);
    if (files) {
        weir__map_files_free(files);
        files->list = loading.fresh.list;
        files->count = loading.fresh.count;
    }
    return error;
}

int weir__load_path(const char *path, const struct weir__diagnostic_sink *sink, struct weir__map_files *files,
                    struct weir__fingerprint *print, weir_rules **rules)
{
    struct weir__sources sources;
    struct weir__map_files own = {0}, *used = files ? files : &own;
    int error = weir__sources_load(path, sink->diagnose, sink->context, &sources);
    if (error)
        return error;
    used->patient = true;
    error = weir__load_sources(sources.list, sources.count, sink, used, rules);
    used->patient = false;
    if (print)
        *print = sources.fingerprint;
    weir__map_files_free(&own);
    weir__sources_free(&sources);
    return error;
}

int weir_rules_load(const char *path, weir_diagnose *diagnose, void *context, weir_rules **rules)
{
    if (!path || !rules)
        return WEIR_EINVAL;
    return weir__load_path(path, &(struct weir__diagnostic_sink){.diagnose = diagnose, .context = context}, NULL, NULL,
                           rules);
}

static int parse(const char *name, weir_text text, const struct weir__diagnostic_sink *sink,
                 struct weir__map_files *files, weir_rules **rules)
{
    if (!name || (!text.data && text.len) || !rules)
        return WEIR_EINVAL;
    struct weir__source source = {name, text};
    return weir__load_sources(&source, 1, sink, files, rules);
}

int weir_rules_parse(const char *name, const char *text, size_t len, weir_diagnose *diagnose, void *context,
                     weir_rules **rules)
{
    struct weir__map_files files = {.text = true};
    struct weir__diagnostic_sink sink = {.diagnose = diagnose, .context = context};
    int error = parse(name, (weir_text){text, len}, &sink, &files, rules);
    weir__map_files_free(&files);
    return error;
}

int weir__rules_parse_published(const char *name, const char *text, size_t len, weir_diagnose *diagnose, void *context,
                                weir_rules **rules)
{
    struct weir__diagnostic_sink sink = {.diagnose = diagnose, .context = context};
    return parse(name, (weir_text){text, len}, &sink, NULL, rules);
}
