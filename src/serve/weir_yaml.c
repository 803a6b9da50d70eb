/* What commands find through a weir.yaml: its rules and counters, the database of its rules service, its queue. */
#include "base/file.h"
#include "config/config.h"
#include "queue/queue.h"
#include "rules/set.h"
#include "serve/agent.h"
#include "serve/privilege.h"
#include "serve/serve.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weir/store.h>

struct opened {
    struct weir__file file; /* must be first: the caller's pointer */
    struct weir__config config;
};

bool weir__is_weir_yaml(const char *path)
{
    struct stat at;
    struct weir__sources sources;
    if (stat(path, &at) != 0 || !S_ISREG(at.st_mode) || weir__sources_read(path, NULL, NULL, &sources) != 0)
        return false;
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    struct weir__diagnostics report = {.sources = sources.list, .source_count = sources.count};
    const struct weir__node *root = sources.count == 1 ? weir__yaml_read(0, &arena, &report) : NULL;
    bool is = root && weir__rules_weir_yaml(root);
    weir__arena_free(&arena);
    weir__sources_free(&sources);
    return is;
}

/* The published rules; before the first publication, those that the file names. NULL, or what is missing. */
static const char *find_rules(struct opened *opened)
{
    const struct weir__config *config = &opened->config;
    struct weir__file *file = &opened->file;
    bool first = config->published && access(config->rules_path, F_OK) != 0;
    weir_text text = first ? config->import_text : config->rules_text;
    file->rules_path = first ? config->import_path : config->rules_path;
    if (config->published && !first)
        file->rules_owner = weir__file_owner(config->rules_path);
    file->rules_text = file->rules_path ? (weir_text){NULL, 0} : text;
    return file->rules_path || text.len > 0 ? NULL
                                            : "nothing was published yet in the rules service that it takes its rules "
                                              "from: weir rules get published";
}

static const char *find_database(struct opened *opened)
{
    const struct weir__config *config = &opened->config;
    if (!config->admin.database)
        return "it has no rules service; the field admin adds one";
    opened->file.rules_in_files = !config->published;
    opened->file.session_ms = config->admin.session_ms;
    opened->file.rules_path = config->published ? config->import_path : config->rules_path;
    opened->file.rules_text = config->published ? config->import_text : config->rules_text;
    const struct weir__listener *listener = config->admin.listener;
    if (listener && weir__config_is_loopback(listener->host)) {
        char url[300];
        snprintf(url, sizeof url, "http%s://%s", listener->tls.certificate ? "s" : "", listener->address);
        opened->file.dashboard = weir__config_text(&opened->config, weir__text_of(url));
    }
    /* `weir token create` may run before weir serve ever did. If this fails, opening the database reports why. */
    char inside[4200];
    snprintf(inside, sizeof inside, "%s/x", opened->config.state_path);
    (void)weir__file_make_folder(inside);
    return NULL;
}

/* False: `why` is why the store cannot be used. */
static bool find_store(struct opened *opened, char *why, size_t why_size)
{
    static const char patience[] =
        "deadline=2s"; /* that of requests is too short for connecting, too; the last counts */
    char url[8192];
    struct weir__config *config = &opened->config;
    if (!config->store.url)
        return true;
    weir__store_take_files(config); /* rules of another user may be read as that user, who may not read these */
    snprintf(why, why_size, "the store library is missing");
    if (!weir__store_url(&config->store, url, sizeof url - sizeof patience, why, why_size) || weir_store_use() != 0)
        return false;
    size_t len = strlen(url);
    snprintf(url + len, sizeof url - len, "%c%s", strchr(url, '?') ? '&' : '?', patience);
    opened->file.store_url = weir__config_text(config, weir__text_of(url));
    return opened->file.store_url;
}

/* Acts as the owner of the segment, or as the agent, while it opens it. NULL after a logged error. */
static struct weir__control_host *open_keys(struct opened *opened, const struct weir__logger *log)
{
    struct weir__config *config = &opened->config;
    bool published = config->published && opened->file.rules_path == config->rules_path;
    config->rules_path = opened->file.rules_path;
    config->rules_text = opened->file.rules_text;
    struct weir__file_owner owner;
    char why[256];
    if (!weir__segment_file_owner(config, published, &owner, why, sizeof why)) {
        weir__logf(log, WEIR__LOG_ERROR, "%s", why);
        return NULL;
    }
    if (!weir__act_as_owner(&owner))
        return NULL;
    struct weir__control_host *keys = weir__key_host_open(config, log);
    weir__act_as_self(&owner);
    return keys;
}

struct weir__file *weir__file_open(const char *path, enum weir__file_part needed, weir_diagnose *diagnose,
                                   void *context)
{
    static const struct weir__logger terminal = {.file = 2, .plain = true};
    struct opened *opened = calloc(1, sizeof *opened);
    if (!opened || weir__config_load(&opened->config, path, diagnose, context) != 0)
        goto failed;
    struct weir__config *config = &opened->config;
    opened->file = (struct weir__file){.segment = config->segment_path,
                                       .segment_bytes = config->segment_bytes,
                                       .store = config->store.url != NULL,
                                       .consistency = config->store.consistency,
                                       .sync_interval_us = config->store.sync_interval_us,
                                       .database = config->admin.database,
                                       .queue_database = config->queue.database};
    bool rules = needed == WEIR__FILE_RULES || needed == WEIR__FILE_COUNTERS || needed == WEIR__FILE_KEYS;
    const char *missing = rules                           ? find_rules(opened)
                          : needed == WEIR__FILE_DATABASE ? find_database(opened)
                          : config->queue.wanted          ? NULL
                                                          : "there is no queue in it: nothing is deferred here";
    char why[256];
    if (!missing && needed == WEIR__FILE_COUNTERS && !find_store(opened, why, sizeof why))
        missing = why;
    if (missing) {
        weir__config_report(path, missing, diagnose, context);
        goto failed;
    }
    if (needed != WEIR__FILE_QUEUE && needed != WEIR__FILE_KEYS)
        return &opened->file;
    weir__store_take_files(config); /* another user may not read its files: see weir__act_as_owner */
    if (needed == WEIR__FILE_QUEUE)
        opened->file.queue = weir__queue_admin_open(config, &terminal);
    else
        opened->file.keys = open_keys(opened, &terminal);
    if (opened->file.queue || opened->file.keys)
        return &opened->file;
failed:
    weir__file_close(opened ? &opened->file : NULL);
    return NULL;
}

int weir__file_load(const struct weir__file *file, const char *path, const struct weir__source *text,
                    weir_diagnose *diagnose, void *context, weir_rules **rules)
{
    const struct opened *opened = (const struct opened *)file;
    struct weir__rules_host host = {.segment_bytes = WEIR__SEGMENT_DEFAULT};
    if (opened)
        host = weir__config_host(&opened->config);
    struct weir__diagnostic_sink sink = {
        .diagnose = diagnose, .context = context, .storeless = opened && !opened->config.store.url, .host = &host};
    struct weir__map_files files = {.text = !path};
    struct weir__file_owner owner = file ? file->rules_owner : (struct weir__file_owner){0, 0};
    int error = !weir__act_as_owner(&owner) ? WEIR_ERULESPATH
                : path                      ? weir__load_path(path, &sink, &files, NULL, rules)
                                            : weir__load_sources(text, 1, &sink, &files, rules);
    weir__act_as_self(&owner);
    weir__map_files_free(&files);
    return error;
}

void weir__file_close(struct weir__file *file)
{
    struct opened *opened = (struct opened *)file;
    if (!opened)
        return;
    weir__queue_admin_close(opened->file.queue);
    weir__key_host_close(opened->file.keys);
    weir__config_free(&opened->config);
    free(opened);
}
