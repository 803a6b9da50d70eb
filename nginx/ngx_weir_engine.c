/*
 * The rules and the segment, and the login throttle.
 *
 * The master opens the engine when it reads the configuration, so that `nginx -t` reports every error; the workers
 * inherit it by fork. They need no permission for the segment, and a worker that is restarted later has rules even if
 * those on disk are broken by then. Each worker reloads changed rules itself. With `weir_rules PATH workers` only
 * workers read the rules: for rules written by a user whom the master, which is root, must not trust.
 */
#include "ngx_weir.h"
#include "engine/denial_recorder.h"
#include "ngx_weir_store.h"
#include "table/denial_ring.h"

/* ---- Directives ---- */

char *ngx_weir_invalid(ngx_conf_t *cf, ngx_command_t *cmd, const char *what, const ngx_str_t *value, const char *use)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid %s \"%V\" in \"%V\"; use %s", what, value, &cmd->name, use);
    return NGX_CONF_ERROR;
}

/* `weir_segment PATH SIZE [mode=0660] [rebuild]` */
char *ngx_weir_segment(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->segment_path.data)
        return "is duplicate";
    engine->segment_path = value[1];
    if (ngx_conf_full_name(cf->cycle, &engine->segment_path, 0) != NGX_OK)
        return NGX_CONF_ERROR;
    engine->segment_size = ngx_parse_offset(&value[2]);
    if (engine->segment_size <= 0)
        return ngx_weir_invalid(cf, cmd, "size", &value[2], "a number with k, m or g");
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        if (ngx_strcmp(value[i].data, "rebuild") == 0) {
            engine->rebuild = 1;
            continue;
        }
        const char *mode = (const char *)value[i].data + 5;
        if (ngx_strncmp(value[i].data, "mode=", 5) != 0 || value[i].len > 9 || mode[strspn(mode, "01234567")] != '\0' ||
            (engine->segment_mode = (unsigned)strtoul(mode, NULL, 8)) == 0 || engine->segment_mode > 0777)
            return ngx_weir_invalid(cf, cmd, "parameter", &value[i], "mode=0660 or rebuild");
    }
    return NGX_CONF_OK;
}

/* `SIZE [hash]`; the size is from `least` to `most`. */
static char *ngx_weir_size_or_hash(ngx_conf_t *cf, ngx_command_t *cmd, ngx_weir_engine_t *engine, off_t least,
                                   off_t most, off_t *size, const char *use)
{
    ngx_str_t *value = cf->args->elts;
    bool hash = cf->args->nelts == 3;
    *size = ngx_parse_offset(&value[1]);
    engine->hash_keys |= hash;
    bool wrong = *size < least || *size > most;
    if (wrong || (hash && ngx_strcmp(value[2].data, "hash") != 0))
        return ngx_weir_invalid(cf, cmd, "parameter", &value[wrong ? 1 : 2], use);
    return NGX_CONF_OK;
}

/* `weir_hot_keys off`, `weir_hot_keys SIZE [hash]` */
char *ngx_weir_hot_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->hot_logged)
        return "is duplicate";
    engine->hot_logged = 1;
    if (ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2)
        return NGX_CONF_OK;
    return ngx_weir_size_or_hash(cf, cmd, engine, 128 * 1024, NGX_MAX_OFF_T_VALUE, &engine->hot_size,
                                 "off, or a size from 128k (one rule) on with k, m or g and then, to hide keys, hash");
}

/* `weir_denials off`, `weir_denials SIZE [hash]` */
char *ngx_weir_denial_ring(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->denial_size || engine->denial_off)
        return "is duplicate";
    engine->denial_off = ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2;
    return engine->denial_off
               ? NGX_CONF_OK
               : ngx_weir_size_or_hash(cf, cmd, engine, 64 * 1024, WEIR__DENIAL_BYTES_MAX, &engine->denial_size,
                                       "off, or a size from 64k to 64m and then, to hide keys, hash");
}

/* `weir_rules PATH` */
char *ngx_weir_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    (void)cmd;
    if (engine->rules_path.data)
        return "is duplicate";
    if (cf->args->nelts > 2 && ngx_strcmp(value[2].data, "workers") != 0)
        return "takes a path, and \"workers\" if only they are to read it";
    engine->rules_by_workers = cf->args->nelts > 2;
    engine->rules_path = value[1];
    return ngx_conf_full_name(cf->cycle, &engine->rules_path, 1) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

#define POLL_MS           250 /* the engine itself polls at most once a second; a longer period would add to that */
#define LOG_LIMIT_SECONDS 60
#define AGENTLESS_POLLS   20 /* polls without an agent that are logged: 5 s, in which one may start */

/* ---- Logging ---- */

void ngx_weir_log_limited(ngx_log_t *log, int error, const char *what, const char *rule)
{
    enum { KINDS = 64 };
    static time_t logged[KINDS];
    static ngx_uint_t suppressed[KINDS];
    ngx_uint_t kind = (ngx_uint_t)(error < 0 ? -error : error) % KINDS;
    if (logged[kind] && ngx_time() - logged[kind] < LOG_LIMIT_SECONDS) {
        suppressed[kind]++;
        return;
    }
    ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s%s%s: %s (%s); %ui more since the last line like this", what,
                  *rule ? " " : "", rule, weir_strerror(error), weir_error_name(error), suppressed[kind]);
    logged[kind] = ngx_time();
    suppressed[kind] = 0;
}

/* The http block's engine, of the other module if this one is the stream module. NULL: there is none. */
static const ngx_weir_engine_t *ngx_weir_http_engine(const ngx_cycle_t *cycle)
{
    const ngx_module_t *http = NULL, *weir = NULL;
    for (ngx_uint_t i = 0; cycle->modules[i]; i++) {
        if (ngx_strcmp(cycle->modules[i]->name, "ngx_http_module") == 0)
            http = cycle->modules[i];
        else if (ngx_strcmp(cycle->modules[i]->name, "ngx_http_weir_module") == 0)
            weir = cycle->modules[i];
    }
    void **block = http && weir ? (void **)cycle->conf_ctx[http->index] : NULL;
    return block ? ((void **)block[0])[weir->ctx_index] : NULL; /* of ngx_http_conf_ctx_t, main_conf is the first */
}

static void ngx_weir_find_quiet(const ngx_cycle_t *cycle, ngx_weir_engine_t *conf)
{
    const ngx_weir_engine_t *http = ngx_weir_http_engine(cycle);
    conf->quiet = http && http != conf && http->engine && http->rules_path.len == conf->rules_path.len &&
                  ngx_strncmp(http->rules_path.data, conf->rules_path.data, conf->rules_path.len) == 0;
}

/*
 * Logs a diagnostic of the rules with its line. All workers read the same rules, so only the first one logs, and of its
 * two blocks the http one.
 */
static void ngx_weir_diagnose(void *context, const weir_diagnostic *logged)
{
    const ngx_weir_engine_t *conf = context;
    ngx_log_t *log = conf->open_log;
    ngx_uint_t level = logged->severity == WEIR_IS_WARNING ? NGX_LOG_WARN : NGX_LOG_EMERG;
    if (conf->quiet && (log == NULL || level == NGX_LOG_WARN))
        return;
    if (log == NULL) {
        if (ngx_worker != 0)
            return;
        log = ngx_cycle->log;
        level = logged->severity == WEIR_IS_WARNING ? NGX_LOG_WARN : NGX_LOG_ERR;
    }
    u_char place[2 * NGX_INT32_LEN + 3] = "";
    if (logged->line > 0)
        ngx_sprintf(place, ":%d:%d%Z", logged->line, logged->column);
    ngx_log_error(level, log, 0, "%s%s: %s%s%s%s", logged->file ? logged->file : "", place, logged->message,
                  logged->suggestion ? "; did you mean \"" : "", logged->suggestion ? logged->suggestion : "",
                  logged->suggestion ? "\"?" : "");
}

/* What to do about a segment that cannot be opened, in terms of nginx.conf. */
static const char *ngx_weir_advice(int error, const char *path, char *room, size_t size)
{
    switch (error) {
    case WEIR_EVERSION:
        return "the segment was made by another version of weir; stop nginx and run \"weir segment convert\", or "
               "remove the file or add \"rebuild\" to weir_segment: the counters in it are lost then";
    case WEIR_EDAMAGED:
    case WEIR_ETRUNCATED:
        return "the segment is damaged; remove the file or add \"rebuild\" to weir_segment: the counters in it are "
               "lost then";
    case WEIR_ENOENT:
        return "the folder for the segment does not exist; make it or choose another path";
    case WEIR_ESIZE:
        return "the segment's size is out of range; use at least 64k";
    default:
        return weir__mapped_why(path, error, room, size);
    }
}

/* ---- Opening ---- */

/* When the configuration is freed. */
static void ngx_weir_engine_close(void *data)
{
    ngx_weir_engine_t *conf = data;
    if (conf->engine)
        weir_close(conf->engine);
    if (conf->segment)
        weir_segment_close(conf->segment);
}

static ngx_int_t ngx_weir_segment_open(ngx_conf_t *cf, ngx_weir_engine_t *conf)
{
    weir_segment_options options = {.path = (const char *)conf->segment_path.data,
                                    .size = (uint64_t)conf->segment_size,
                                    .flags =
                                        WEIR_OPEN_CREATE | WEIR_OPEN_TRUSTED | (conf->rebuild ? WEIR_OPEN_REBUILD : 0),
                                    .mode = conf->segment_mode};
    weir_stats stats;
    char why[256];
    ngx_set_errno(0);
    int error = weir_segment_open(&options, &conf->segment);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, error == WEIR_ESYS ? ngx_errno : 0, "weir_segment \"%V\": %s (%s)",
                      &conf->segment_path, ngx_weir_advice(error, options.path, why, sizeof(why)),
                      weir_error_name(error));
        conf->segment = NULL;
        return NGX_ERROR;
    }
    error = weir_segment_guard(conf->segment);
    if (error)
        ngx_log_error(NGX_LOG_WARN, cf->log, error == WEIR_ESYS ? ngx_errno : 0,
                      "weir_segment \"%V\" is not guarded against truncation: %s (%s)", &conf->segment_path,
                      weir_strerror(error), weir_error_name(error));
    if (weir_stats_read(conf->segment, &stats) == 0 && stats.bytes != (uint64_t)conf->segment_size)
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "weir_segment \"%V\" exists and keeps its size of %uL bytes, not %O; \"weir segment resize\" "
                      "changes it, and keeps the counters",
                      &conf->segment_path, stats.bytes, conf->segment_size);
    return NGX_OK;
}

const char *ngx_weir_sidecar(const ngx_weir_engine_t *conf, const char *ending, char path[NGX_WEIR_PATH_MAX])
{
    (void)snprintf(path, NGX_WEIR_PATH_MAX, "%s%s", (const char *)conf->segment_path.data, ending);
    return path;
}

ngx_int_t ngx_weir_engine_open(ngx_conf_t *cf, ngx_weir_engine_t *conf)
{
    ngx_conf_init_value(conf->load, 0);
    if (conf->segment_path.data == NULL || (conf->rules_path.data == NULL && !conf->rules_optional)) {
        if (!conf->wanted && conf->segment_path.data == conf->rules_path.data)
            return NGX_OK;
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"%s\" is missing in %s; weir needs weir_segment%s",
                      conf->segment_path.data ? "weir_rules" : "weir_segment", conf->block,
                      conf->rules_optional ? "" : " and weir_rules");
        return NGX_ERROR;
    }
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (cleanup == NULL)
        return NGX_ERROR;
    cleanup->handler = ngx_weir_engine_close;
    cleanup->data = conf;
    if (ngx_weir_segment_open(cf, conf) != NGX_OK || conf->rules_path.data == NULL)
        return conf->segment ? NGX_OK : NGX_ERROR;

    char names[NGX_WEIR_STORE_NAMES_MAX], ledger[NGX_WEIR_PATH_MAX], hot[NGX_WEIR_PATH_MAX], load[NGX_WEIR_PATH_MAX],
        ring[NGX_WEIR_PATH_MAX], keys[NGX_WEIR_PATH_MAX];
    weir_options options = {.attached = conf->segment,
                            .rules_path = (const char *)conf->rules_path.data,
                            .diagnose = ngx_weir_diagnose,
                            .diagnose_context = conf,
                            .flags = conf->rules_by_workers ? WEIR_RULES_LATER : 0};
    if (conf->store) {
        options.flags |= WEIR_NO_CONNECT;
        options.store = ngx_weir_store_names(conf->store, names);
        options.default_consistency = conf->store->consistency;
        options.ledger = ngx_weir_sidecar(conf, ".ledger", ledger);
        options.key_commands = ngx_weir_sidecar(conf, ".keys", keys);
    }
    options.segment.mode = conf->segment_mode; /* of its sidecar files */
    if (conf->hot_size) {
        options.hot = ngx_weir_sidecar(conf, ".hot", hot);
        options.hot_bytes = (uint64_t)conf->hot_size;
    }
    if (!conf->denial_off) {
        options.denial_ring = ngx_weir_sidecar(conf, ".denials", ring);
        options.denial_bytes = (uint64_t)conf->denial_size;
    }
    if (conf->hash_keys || (conf->store && conf->store->options.hash_keys))
        options.flags |= WEIR_HIDE_KEYS;
    if (conf->load)
        options.load = ngx_weir_sidecar(conf, ".load", load);
    conf->open_log = cf->log;
    ngx_weir_find_quiet(cf->cycle, conf);
    int error = weir_open(&options, &conf->engine);
    conf->open_log = NULL;
    if (error) {
        /* The segment is open: an error that is not of the rules is of the ledger. */
        bool rules = error == WEIR_ERULES || error == WEIR_ERULESPATH || options.ledger == NULL;
        char why[256];
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "%s \"%s\": %s (%s)", rules ? "weir_rules" : "the ledger",
                      rules ? (const char *)conf->rules_path.data : ledger,
                      rules ? weir_strerror(error) : weir__mapped_why(ledger, error, why, sizeof(why)),
                      weir_error_name(error));
        conf->engine = NULL;
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* ---- While it runs ---- */

static ngx_event_t ngx_weir_poll_event;

void ngx_weir_start_timer(ngx_event_t *event, ngx_event_handler_pt handler, void *data, ngx_msec_t ms)
{
    event->handler = handler;
    event->data = data;
    event->log = ngx_cycle->log;
    event->cancelable = 1;
    ngx_add_timer(event, ms);
}

/* Once in each worker. */
static void ngx_weir_log_lost(ngx_log_t *log, ngx_weir_engine_t *conf)
{
    for (const char *disabled; (disabled = weir__sidecar_lost()) != NULL;)
        ngx_log_error(
            NGX_LOG_CRIT, log, 0,
            "weir: a sidecar file of weir_segment \"%V\" was truncated: %s until nginx is reloaded, which creates it "
            "again",
            &conf->segment_path, disabled);
    if (conf->lost || !weir_segment_lost(conf->segment))
        return;
    conf->lost = 1;
    ngx_log_error(
        NGX_LOG_CRIT, log, 0,
        "weir: the file of weir_segment \"%V\" was truncated; on_store_failure of each rule decides until the "
        "file is removed and nginx reloaded",
        &conf->segment_path);
}

/* Eventual rules need an agent, and nothing else would report that there is none. */
static void ngx_weir_log_agentless(ngx_log_t *log, ngx_weir_engine_t *conf)
{
    weir_ledger_stats stats;
    if (conf->store == NULL || ngx_worker != 0 || conf->quiet || weir_ledger_stats_read(conf->engine, &stats) != 0)
        return;
    conf->agentless = stats.agent ? 0 : conf->agentless + 1;
    if (conf->agentless == AGENTLESS_POLLS)
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "weir: no agent runs for weir_segment \"%V\": rules of consistency eventual count on each host, "
                      "leased ones act as strict; "
                      "start weir agent, or set consistency=strict in weir_store",
                      &conf->segment_path);
}

/* Logs, once a host, what has become of changed rules; the diagnostics are logged already. */
static void ngx_weir_log_reload(ngx_log_t *log, ngx_weir_engine_t *conf)
{
    weir_engine_stats stats;
    if (ngx_worker != 0 || conf->quiet || weir_engine_stats_read(conf->engine, &stats) != 0)
        return;
    if (stats.reload_failures != conf->reload_failures) {
        conf->broken = 1;
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: rules \"%V\" not loaded; the previous rules stay active",
                      &conf->rules_path);
    }
    if (stats.reloads != conf->reloads) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: rules \"%V\" %s: %uz rule%s active", &conf->rules_path,
                      conf->broken ? "good again and reloaded" : "reloaded", stats.rules,
                      stats.rules == 1 ? " is" : "s are");
        conf->broken = 0;
    }
    conf->reload_failures = stats.reload_failures;
    conf->reloads = stats.reloads;
}

/*
 * Logs warnings (warn_at) of all workers from the ring of recent denials, once a host; at most so many at once that a
 * flood of them does not keep the worker busy.
 */
static void ngx_weir_log_warnings(ngx_log_t *log, const ngx_weir_engine_t *conf)
{
    enum { LINES = 25 };
    static struct weir__warning_cursor cursor;
    char line[WEIR__WARNING_LINE];
    if (ngx_worker != 0 || conf->quiet)
        return;
    for (ngx_uint_t i = 0; i < LINES && weir__warning_line(conf->engine, &cursor, line); i++)
        ngx_log_error(NGX_LOG_WARN, log, 0, "weir: %s", line);
}

/*
 * Polls for new rules by a dry run of weir_check, which reads the disk at most once a second. Requests use
 * weir__check_fast, which does not poll, so none waits for the disk.
 */
static void ngx_weir_poll(ngx_event_t *event)
{
    ngx_weir_engine_t *conf = event->data;
    weir_query nothing = {.dry_run = true};
    weir_result result;
    if (ngx_exiting)
        return;
    int error = weir_check(conf->engine, &nothing, &result);
    if (error)
        ngx_weir_log_limited(event->log, error, "polling for new rules", "");
    ngx_weir_log_reload(event->log, conf);
    ngx_weir_log_lost(event->log, conf);
    ngx_weir_log_agentless(event->log, conf);
    ngx_weir_log_warnings(event->log, conf);
    ngx_add_timer(event, POLL_MS);
}

/* Before the worker accepts connections. Waits for a file that is being replaced. */
static void ngx_weir_rules_read(ngx_cycle_t *cycle, ngx_weir_engine_t *conf)
{
    enum { TRIES = 50, PAUSE_MS = 10 };
    int error = weir_reload(conf->engine);
    for (ngx_uint_t i = 0; i < TRIES && error == WEIR_ERULESBUSY; i++) {
        ngx_msleep(PAUSE_MS);
        error = weir_reload(conf->engine);
    }
    if (error < 0)
        ngx_log_error(NGX_LOG_CRIT, cycle->log, 0,
                      "weir_rules \"%V\": %s (%s); this worker has no rules until it can read them", &conf->rules_path,
                      weir_strerror(error), weir_error_name(error));
}

ngx_int_t ngx_weir_engine_start(ngx_cycle_t *cycle, ngx_weir_engine_t *conf)
{
    weir_engine_stats stats;
    ngx_weir_find_quiet(cycle, conf);
    if (conf->rules_by_workers)
        ngx_weir_rules_read(cycle, conf);
    if (weir_engine_stats_read(conf->engine, &stats) == 0) {
        conf->reloads = stats.reloads;
        conf->reload_failures = stats.reload_failures;
    }
    ngx_weir_start_timer(&ngx_weir_poll_event, ngx_weir_poll, conf, 1); /* rules may have changed meanwhile */
    return conf->store ? ngx_weir_store_start(cycle, conf->store, conf->engine) : NGX_OK;
}

/* ---- Login throttle ---- */

/* The address of the client, of IPv6 the /64. */
static size_t ngx_weir_peer(const ngx_connection_t *c, u_char peer[9])
{
    size_t len = 1;
    peer[0] = '?';
    if (c->sockaddr->sa_family == AF_INET) {
        len += 4;
        ngx_memcpy(peer + 1, &((struct sockaddr_in *)c->sockaddr)->sin_addr, 4);
    } else if (c->sockaddr->sa_family == AF_INET6) {
        const struct in6_addr *address = &((struct sockaddr_in6 *)c->sockaddr)->sin6_addr;
        len += IN6_IS_ADDR_V4MAPPED(address) ? 4 : 8;
        ngx_memcpy(peer + 1, address->s6_addr + (len == 5 ? 12 : 0), len - 1);
    }
    return len;
}

ngx_msec_t ngx_weir_wrong_secret(weir_segment *segment, ngx_connection_t *c)
{
    u_char peer[9];
    size_t len = ngx_weir_peer(c, peer);
    weir_time now = segment ? weir_clock(segment) : (weir_time){0, 0};
    int64_t delay_ns = weir_auth_failure(segment, peer, len, now);
    ngx_log_error(NGX_LOG_INFO, c->log, 0, "weir: wrong password or token; replying in %L ms", delay_ns / 1000000);
    return (ngx_msec_t)(delay_ns / 1000000);
}

#define CHECKS_OF_PEER 64
#define CHECK_LISTS    256 /* by the hash of the address; their length is bounded by the worker's connections */

static ngx_queue_t ngx_weir_checks[CHECK_LISTS];

static ngx_queue_t *ngx_weir_check_list(const ngx_weir_check_t *check)
{
    ngx_queue_t *list = &ngx_weir_checks[ngx_murmur_hash2((u_char *)check->peer, check->peer_len) % CHECK_LISTS];
    if (list->next == NULL) {
        ngx_queue_init(list);
    }
    return list;
}

ngx_msec_t ngx_weir_check_hold(ngx_weir_check_t *check, weir_segment *segment, ngx_connection_t *c)
{
    size_t len = ngx_weir_peer(c, check->peer);
    weir_time now = segment ? weir_clock(segment) : (weir_time){0, 0};
    int64_t delay_ns = weir_auth_delay(segment, check->peer, len, now);
    check->peer_len = 0;
    if (delay_ns == 0)
        return 0;
    check->peer_len = (u_char)len;
    ngx_queue_t *list = ngx_weir_check_list(check);
    ngx_uint_t known = 0;
    for (ngx_queue_t *at = ngx_queue_head(list); at != ngx_queue_sentinel(list); at = ngx_queue_next(at)) {
        const ngx_weir_check_t *other = ngx_queue_data(at, ngx_weir_check_t, queue);
        known += other->peer_len == len && ngx_memcmp(other->peer, check->peer, len) == 0;
    }
    if (known >= CHECKS_OF_PEER) {
        check->peer_len = 0;
        ngx_log_error(NGX_LOG_INFO, c->log, 0, "weir: %ui passwords or tokens of this address wait for their check",
                      known);
        return NGX_WEIR_NO_PLACE;
    }
    ngx_queue_insert_tail(list, &check->queue);
    return (ngx_msec_t)(delay_ns / 1000000);
}

void ngx_weir_check_release(ngx_weir_check_t *check)
{
    if (check->peer_len) {
        ngx_queue_remove(&check->queue);
    }
    check->peer_len = 0;
}
