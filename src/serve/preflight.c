/* Preflight checks of what weir.yaml names. See deployment.h. */
#include "serve/deployment.h"
#include "base/buffer.h"
#include "engine/rule_files.h"
#include "engine/hot_key_sampler.h"
#include "engine/ledger.h"
#include "engine/mapped_file.h"
#include "rules/set.h"
#include "serve/agent.h"
#include "services/http/api.h"
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HELPER_MS = 20000 };   /* deadline of a helper process that reads or compiles rules, or opens the segment */
enum { HELPER_SHRUNK = 128 }; /* exit code, plus the halvings of the segment: it is good. Errors are smaller */

struct preflight {
    const struct weir__config *config;
    struct weir__diagnostics *report;
    struct weir__facts *facts;
};

/* ---- Files ---- */

enum { READABLE = 1, WRITABLE = 2, SECRET = 4 };

/* Checks a file that weir.yaml names; `path` NULL: it names none. */
static void check_file(struct preflight *preflight, struct weir__place place, const char *what, const char *path,
                       unsigned checks)
{
    struct weir__diagnostics *report = preflight->report;
    char folder[4096];
    struct stat at = {0};
    if (!path)
        return;
    bool exists = stat(path, &at) == 0;
    if (checks & READABLE) {
        int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0)
            weir__report_error(report, place, "%s %s cannot be read: %s", what, path, strerror(errno));
        else if (fstat(file, &at) != 0 || !S_ISREG(at.st_mode)) /* nginx would block on a FIFO */
            weir__report_error(report, place, "%s %s is not a file", what, path);
        if (file >= 0)
            close(file);
    }
    weir__folder_of(path, folder, sizeof folder);
    if (checks & WRITABLE && exists && S_ISDIR(at.st_mode))
        weir__report_error(report, place, "%s %s is a directory; name a file in it", what, path);
    else if (checks & WRITABLE &&
             (access(path, F_OK) == 0 ? access(path, W_OK) != 0 : access(folder, W_OK | X_OK) != 0))
        weir__report_error(report, place, "%s %s cannot be written: %s", what, path, strerror(errno));
    if (checks & SECRET && exists && S_ISREG(at.st_mode) && (at.st_mode & (S_IROTH | S_IWOTH)))
        weir__report_warning(report, place, "%s %s: every user of this host may %s it (mode %04o); chmod o= %s", what,
                             path, at.st_mode & S_IROTH ? "read" : "change", at.st_mode & 07777u, path);
}

/* ---- Secrets ---- */

/* True for scheme://user:password@host and ?password=… */
static bool has_password(const char *url)
{
    const char *at = url ? strstr(url, "://") : NULL, *end = at ? strchr(at, '@') : NULL;
    const char *colon = end ? memchr(at + 3, ':', (size_t)(end - at - 3)) : NULL;
    return colon || (at && strstr(at, "password="));
}

static void check_secrets(struct preflight *preflight)
{
    const struct weir__config *config = preflight->config;
    const struct weir__access *access = &config->access;
    struct weir__place top = {0, 1, 1};
    bool inside = access->token_count || access->password || access->operator_password || config->origin.token ||
                  has_password(config->store.url) || has_password(config->admin.database) ||
                  has_password(config->origin.url) || has_password(config->notify.url);
    for (size_t i = 0; i < config->store.setting_count; i++) {
        const struct weir__store_setting *setting = &config->store.settings[i];
        if (strcmp(setting->name, "password_file") == 0)
            check_file(preflight, setting->place, "password_file", setting->value, SECRET);
        else if (strcmp(setting->name, "key") == 0)
            check_file(preflight, setting->place, "the key", setting->value, SECRET);
        inside |= strcmp(setting->name, "password") == 0 || strcmp(setting->name, "sentinel_password") == 0;
    }
    check_file(preflight, config->origin.place, "token_file", config->origin.token_file, SECRET);
    check_file(preflight, config->notify.place, "secret_file", config->notify.secret_file, READABLE | SECRET);
    check_file(preflight, config->notify.place, "the CA file", config->notify.ca, READABLE);
    if (inside)
        check_file(preflight, top, "it has secrets:", config->file, SECRET);
}

static void check_certificate(struct preflight *preflight, const struct weir__tls *tls)
{
    check_file(preflight, tls->client_ca_place, "the CA file", tls->client_ca, READABLE);
    check_file(preflight, tls->certificate_place, "the certificate", tls->certificate, READABLE);
    check_file(preflight, tls->key_place, "the key", tls->certificate ? tls->key : NULL, READABLE | SECRET);
}

static void check_tls(struct preflight *preflight)
{
    const struct weir__config *config = preflight->config;
    for (size_t i = 0; i < config->listener_count; i++) {
        const struct weir__tls *tls = &config->listeners[i].tls;
        if (i == 0 || tls->certificate != config->listeners[i - 1].tls.certificate)
            check_certificate(preflight, tls);
    }
    if (config->admin.listener)
        check_certificate(preflight, &config->admin.listener->tls);
}

static void check_upstream_ca(struct preflight *preflight)
{
    static const char *const defaults[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                           "/etc/ssl/cert.pem"};
    const struct weir__config *config = preflight->config;
    const struct weir__server *https = NULL;
    for (size_t i = 0; i < config->route_count && !https; i++)
        https = config->routes[i].servers[0].https ? &config->routes[i].servers[0] : NULL;
    if (!https || !config->upstream_verify)
        return;
    preflight->facts->upstream_ca = config->upstream_ca;
    if (config->upstream_ca) {
        check_file(preflight, config->upstream_ca_place, "the CA file", config->upstream_ca, READABLE);
        return;
    }
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && !preflight->facts->upstream_ca; i++)
        preflight->facts->upstream_ca = access(defaults[i], R_OK) == 0 ? defaults[i] : NULL;
    if (!preflight->facts->upstream_ca)
        weir__report_error(preflight->report, https->place,
                           "this host has no CA certificates to verify this server with; install "
                           "ca-certificates, set upstream_tls.ca, or set verify: false there");
}

/* ---- The segment ---- */

static void check_segment(struct preflight *preflight)
{
    const struct weir__config *config = preflight->config;
    struct weir__place place = config->segment_place;
    struct stat at;
    char folder[4096];
    if (stat(config->segment_path, &at) == 0) {
        char why[256];
        if (config->segment_is_ours && at.st_uid != geteuid()) {
            weir__report_error(preflight->report, place, "the segment %s belongs to another user; choose another path",
                               config->segment_path);
            return;
        }
        int code = weir__helper_fork(HELPER_MS, 0, 0);
        if (code == WEIR__IN_HELPER) { /* the agent can truncate the segment, which raises SIGBUS */
            weir_segment_options how = {.path = config->segment_path, .flags = WEIR_OPEN_READONLY | WEIR_OPEN_TRUSTED};
            weir_segment *segment;
            weir_stats stats = {0};
            int failed = weir_segment_open(&how, &segment), shrunk = 0;
            failed = failed ? failed : weir_stats_read(segment, &stats);
            while (!failed && (uint64_t)at.st_size >> shrunk > stats.bytes)
                shrunk++;
            _exit(failed ? -failed : HELPER_SHRUNK + shrunk);
        }
        if (code >= HELPER_SHRUNK)
            at.st_size >>= code - HELPER_SHRUNK; /* a segment that has shrunk keeps the length of its file */
        int error = code < 0 ? WEIR_EDAMAGED : code >= HELPER_SHRUNK ? 0 : -code;
        if (error)
            weir__report_error(preflight->report, place, "the segment %s: %s", config->segment_path,
                               error == WEIR_EOWNER ? weir__mapped_why(config->segment_path, error, why, sizeof why)
                                                    : weir__segment_advice(error));
        else if (config->segment_bytes != WEIR__SEGMENT_DEFAULT && at.st_size != config->segment_bytes)
            weir__report_warning(preflight->report, place,
                                 "the segment %s has %lld KiB and keeps them: size is for a new file; 'weir segment "
                                 "resize' changes it, and keeps the counters",
                                 config->segment_path, (long long)(at.st_size >> 10));
        return;
    }
    int error = errno;
    weir__folder_of(config->segment_path, folder, sizeof folder);
    if (error != ENOENT && error != ENOTDIR)
        weir__report_error(preflight->report, place, "the segment %s cannot be reached: %s", config->segment_path,
                           strerror(error));
    else if (access(folder, W_OK | X_OK) != 0)
        weir__report_error(preflight->report, place, "the segment cannot be made in %s: %s", folder, strerror(errno));
}

/* ---- Users ---- */

bool weir__agent_user_find(const struct weir__config *config, struct weir__agent_user *user, char *why, size_t size)
{
    static const char own[] = "weir";
    struct weir__workers workers;
    *user = (struct weir__agent_user){0};
    if (geteuid() != 0)
        return true;
    if (!weir__workers_of(config, &workers)) {
        snprintf(why, size, "there is no user \"%s\" with a group on this machine", workers.name);
        return false;
    }
    const char *name = config->agent_user ? config->agent_user : getpwnam(own) ? own : workers.user;
    const struct passwd *found = getpwnam(name);
    if (!found || strlen(name) >= sizeof user->name) {
        snprintf(why, size, "there is no user \"%s\" on this machine for the agent", name);
        return false;
    }
    if (found->pw_uid == 0 || found->pw_gid == 0) {
        snprintf(why, size, "the agent must not run as %s, which is root or in root's group; name another agent_user",
                 name);
        return false;
    }
    *user = (struct weir__agent_user){
        .drops = true, .user = found->pw_uid, .group = found->pw_gid, .workers = (gid_t)workers.group_id};
    snprintf(user->name, sizeof user->name, "%s", name);
    return true;
}

static void check_user(struct preflight *preflight)
{
    const struct weir__config *config = preflight->config;
    struct weir__workers *workers = &preflight->facts->workers;
    if (geteuid() != 0) {
        if (config->user)
            weir__report_warning(preflight->report, config->user_place,
                                 "user has an effect only when root starts weir serve");
        if (config->agent_user)
            weir__report_warning(preflight->report, config->agent_user_place,
                                 "agent_user has an effect only when root starts weir serve");
        return;
    }
    if (!weir__workers_of(config, workers)) {
        weir__report_error(preflight->report, config->user_place,
                           "there is no user \"%s\" with a group on this machine", workers->name);
        return;
    }
    struct weir__agent_user agent;
    char why[256];
    if (!weir__agent_user_find(config, &agent, why, sizeof why))
        weir__report_error(preflight->report, config->agent_user_place, "%s", why);
}

bool weir__workers_can_read(const struct weir__facts *facts, const char *path)
{
    struct weir__sources sources;
    struct stat at;
    if (!*facts->workers.user)
        return true;
    int code = weir__helper_fork(HELPER_MS, 0, 0);
    if (code == WEIR__IN_HELPER) {
        const struct passwd *user = getpwnam(facts->workers.user);
        bool known = user && initgroups(user->pw_name, user->pw_gid) == 0 && setgid(user->pw_gid) == 0 &&
                     setuid(user->pw_uid) == 0; /* otherwise no warning */
        bool folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
        bool good =
            folder ? weir__sources_read(path, NULL, NULL, &sources) != WEIR_ERULESPATH : access(path, R_OK) == 0;
        _exit(known && !good ? 1 : 0);
    }
    return code <= 0;
}

/* ---- Rules ---- */

/* Warns of rules with on_limit: queue if there is no queue. */
static void check_queue(struct preflight *preflight, const weir_rules *rules)
{
    if (preflight->config->queue.wanted)
        return;
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (rule->on_limit != WEIR_ON_LIMIT_QUEUE || rule->shadow)
            continue;
        weir__report_warning(preflight->report, preflight->config->rules_place,
                             "rule \"%.*s\" has on_limit: queue, and there is no queue: it rejects, as long as %s has "
                             "no queue: section",
                             (int)rule->base.len, rule->base.data, preflight->config->file);
        return;
    }
}

static void warn_of_unreadable(struct preflight *preflight, const char *path)
{
    weir__report_warning(preflight->report, preflight->config->rules_place,
                         "the workers run as %s, which cannot read %s: they would not notice changes; let it read "
                         "them, or choose another user",
                         preflight->facts->workers.user, path);
}

/* Sets over which hosts the rules count. */
static void find_hosts(struct preflight *preflight, const weir_rules *rules)
{
    enum { NAMES_MAX = 500 }; /* of three lines, each with one name of at most 380 bytes more: less than `hosts` has */
    const struct weir__store *store = &preflight->config->store;
    struct weir__buffer lines = {0};
    if (store->url)
        weir__rules_hosts(rules, (enum weir__consistency)store->consistency, store->sync_interval_us, NAMES_MAX,
                          &lines);
    else if (rules->count)
        weir__buffer_printf(&lines, WEIR__NO_STORE_TEXT "\n");
    if (!lines.failed && lines.len)
        snprintf(preflight->facts->hosts, sizeof preflight->facts->hosts, "%s", lines.data);
    weir__buffer_free(&lines);
}

/* Compiles the rules at `path`; NULL: those in `text`. */
static void rules_compile(struct preflight *preflight, const char *path, weir_text text)
{
    const struct weir__config *config = preflight->config;
    struct weir__diagnostics *report = preflight->report;
    weir_rules *rules = NULL;
    struct weir__rules_host host = weir__config_host(config);
    struct weir__diagnostic_sink sink = {
        .diagnose = report->diagnose, .context = report->context, .storeless = !config->store.url, .host = &host};
    struct weir__source inside = {.name = config->file, .text = text};
    struct weir__map_files files = {0};
    int error = path ? weir__load_path(path, &sink, &files, NULL, &rules)
                     : weir__load_sources(&inside, 1, &sink, &files, &rules);
    for (size_t i = 0; !error && i < files.count; i++)
        if (!weir__workers_can_read(preflight->facts, files.list[i].path))
            warn_of_unreadable(preflight, files.list[i].path);
    weir__map_files_free(&files);
    if (error == WEIR_ERULES || error == WEIR_ERULESPATH)
        report->errors++; /* reported already */
    else if (error)
        weir__report_error(report, config->rules_place, "the rules: %s", weir_strerror(error));
    if (error)
        return;
    preflight->facts->rules = weir_rules_count(rules);
    find_hosts(preflight, rules);
    check_queue(preflight, rules);
    weir_rules_free(rules);
}

/* Warns of rule files that the agent cannot read. `path` is one, or a folder of them. */
static void check_agent_reads(struct preflight *preflight, const char *path)
{
    static const struct weir__logger terminal = {.file = STDERR_FILENO, .plain = true};
    const struct weir__config *config = preflight->config;
    struct weir__agent_user user;
    struct weir__sources sources;
    char why[256];
    if (!config->admin.listener || !weir__agent_user_find(config, &user, why, sizeof why) || !user.drops)
        return;
    int code = weir__helper_fork(HELPER_MS, 0, 0);
    if (code == WEIR__IN_HELPER) {
        weir__secrets_wipe();
        weir__wipe_inherited_memory();
        bool good = !weir__privilege_drop(&user, &terminal) ||
                    weir__sources_read(path, NULL, NULL, &sources) != WEIR_ERULESPATH;
        _exit(good ? 0 : 1);
    }
    if (code > 0)
        weir__report_warning(preflight->report, config->rules_place,
                             "the agent runs as %s, which cannot read %s: the dashboard would not show the rules; let "
                             "it read them, or choose another agent_user",
                             user.name, path);
}

/* Compiles rules that the agent wrote, in a helper process as the agent's user: root neither follows links in the
 * agent's folder nor parses its files. */
static void rules_compile_as_agent(struct preflight *preflight, const char *path)
{
    static const struct weir__logger terminal = {.file = STDERR_FILENO, .plain = true};
    struct weir__diagnostics *report = preflight->report;
    const struct weir__logger *log = report->diagnose == weir__log_diagnostic ? report->context : NULL;
    struct weir__agent_user user;
    struct {
        int errors;
        size_t rules;
        char hosts[sizeof preflight->facts->hosts];
    } found = {0};
    _Static_assert(sizeof found <= PIPE_BUF, "a pipe takes it whole");
    char why[256];
    int ends[2] = {-1, -1}, code = -1;
    if (!weir__agent_user_find(preflight->config, &user, why, sizeof why))
        return; /* reported already */
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0)
        code = weir__helper_fork(HELPER_MS, ends[1], log ? log->file : 0);
    if (code == WEIR__IN_HELPER) {
        weir__secrets_wipe();
        weir__wipe_inherited_memory();
        if (!weir__privilege_drop(&user, &terminal))
            _exit(1);
        rules_compile(preflight, path, (weir_text){"", 0});
        found.errors = report->errors;
        found.rules = preflight->facts->rules;
        memcpy(found.hosts, preflight->facts->hosts, sizeof found.hosts);
        _exit(write(ends[1], &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
    }
    if (code == 0 && read(ends[0], &found, sizeof found) == (ssize_t)sizeof found) {
        report->errors = found.errors;
        preflight->facts->rules = found.rules;
        for (size_t i = 0; i + 1 < sizeof found.hosts; i++) { /* a helper that was taken over may send anything */
            char c = found.hosts[i];
            preflight->facts->hosts[i] = c == 0x7f || ((unsigned char)c < 0x20 && c != '\n' && c) ? '?' : c;
        }
    } else {
        weir__report_error(report, preflight->config->rules_place, "the rules %s cannot be checked as user %s", path,
                           user.name);
    }
    for (int i = 0; i < 2 && ends[i] >= 0; i++)
        close(ends[i]);
}

static void check_rules(struct preflight *preflight)
{
    const struct weir__config *config = preflight->config;
    const char *path = config->rules_path;
    weir_text text = config->rules_text;
    if (config->published && access(path, F_OK) != 0) { /* before the first publication */
        path = config->import_path;
        text = config->import_text;
        if (!path && !text.len)
            return;
    }
    if (config->published && path == config->rules_path && geteuid() == 0) {
        rules_compile_as_agent(preflight, path);
        return;
    }
    if (path && access(path, R_OK) != 0) {
        weir__report_error(preflight->report, config->rules_place, "the rules %s cannot be read: %s", path,
                           strerror(errno));
        return;
    }
    int before = preflight->report->errors;
    rules_compile(preflight, path, text);
    if (!path || path != config->rules_path || preflight->report->errors != before)
        return;
    if (!weir__workers_can_read(preflight->facts, path))
        warn_of_unreadable(preflight, path);
    check_agent_reads(preflight, path);
}

/* ---- Ports ---- */

static void check_port(struct preflight *preflight, const struct weir__listener *listener,
                       const struct weir__listening *ours)
{
    char why[512];
    int error = weir__listening_try(ours, listener, why, sizeof why);
    if (error < 0)
        weir__report_error(preflight->report, listener->place, "%s", why);
    else if (error == EADDRINUSE)
        weir__report_error(preflight->report, listener->place,
                           "%s is in use already; ss -ltnp 'sport = :%s' shows by which process", listener->address,
                           listener->port);
    else if (error == EACCES)
        weir__report_error(preflight->report, listener->place,
                           "no permission to listen on %s; ports below 1024 are for root: choose another",
                           listener->address);
    else if (error == EADDRNOTAVAIL)
        weir__report_error(preflight->report, listener->place, "this machine has no address %s", listener->host);
    else if (error)
        weir__report_error(preflight->report, listener->place, "cannot listen on %s: %s", listener->address,
                           strerror(error));
}

static void check_ports(struct preflight *preflight, const struct weir__listening *ours)
{
    const struct weir__config *config = preflight->config;
    for (size_t i = 0; i < config->listener_count && ours; i++)
        check_port(preflight, &config->listeners[i], ours);
    if (config->metrics && ours)
        check_port(preflight, config->metrics, ours);
}

/* ---- Free space ---- */

/* A file that is created at the start unless it exists. */
struct wanted {
    const char *ending;
    const char *field; /* of weir.yaml, that determines the file's size */
    uint64_t bytes;    /* 0: not needed */
};

static void check_space(const struct weir__config *config, const struct weir__facts *facts,
                        struct weir__diagnostics *report)
{
    const uint64_t segment = (uint64_t)config->segment_bytes;
    const struct wanted files[] = {
        {"", "segment", segment},
        {".hot", "hot_keys", (uint64_t)config->hot_bytes},
        {".denials", "denials", (uint64_t)config->denial_bytes},
        {".load", "load", config->load.on ? sizeof(struct weir__load_page) : 0},
        {".ledger", "segment", config->store.url ? weir__delta_ledger_bytes(segment) : 0},
        {".keys", "segment", config->store.url ? WEIR__KEY_COMMANDS_BYTES : 0},
        {".reservations", "service",
         weir__has_listener(config, WEIR__HTTP_API) ? weir__reservations_bytes(WEIR__RESERVATIONS_DEFAULT) : 0},
        {".history", "rules", weir__agent_needed(config) ? weir__history_writer_bytes(facts->rules) : 0},
    };
    char path[4200], folder[4096];
    uint64_t left;
    if (!weir__free_bytes(config->segment_path, &left))
        return;
    weir__folder_of(config->segment_path, folder, sizeof folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct stat at;
        uint64_t bytes = files[i].bytes;
        snprintf(path, sizeof path, "%s%s", config->segment_path, files[i].ending);
        if (!bytes || lstat(path, &at) == 0)
            continue;
        if (bytes > left) {
            weir__report_error(
                report, config->segment_place,
                "%s does not fit: it needs %llu KiB, and %s has %llu KiB left for it; free %llu KiB, make "
                "%s smaller, or choose another folder",
                path, (unsigned long long)(bytes + 1023) >> 10, folder, (unsigned long long)left >> 10,
                (unsigned long long)(bytes - left + 1023) >> 10, files[i].field);
            return;
        }
        left -= bytes;
    }
}

/* ---- All checks ---- */

bool weir__preflight(const struct weir__config *config, const struct weir__listening *ours, weir_diagnose *diagnose,
                     void *context, struct weir__facts *facts)
{
    struct weir__diagnostics report = {.diagnose = diagnose,
                                       .context = context,
                                       .sources = config->sources.list,
                                       .source_count = config->sources.count};
    struct preflight preflight = {config, &report, facts};
    *facts = (struct weir__facts){0};
    check_user(&preflight);
    check_rules(&preflight);
    check_tls(&preflight);
    check_secrets(&preflight);
    check_upstream_ca(&preflight);
    check_segment(&preflight);
    if (!report.errors)
        check_space(config, facts, &report);
    check_file(&preflight, config->log_place, "the log", config->log_path, WRITABLE);
    check_file(&preflight, config->access_place, "the access log", config->access_path, WRITABLE);
    check_file(&preflight, config->denied_place, "the log of denied requests", config->denied_path, WRITABLE);
    check_ports(&preflight, ours);
    return report.errors == 0;
}
