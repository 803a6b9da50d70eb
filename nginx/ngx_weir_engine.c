/*
 * The rules and the segment.
 *
 * The engine is opened when the configuration is read, by the master, so that `nginx -t` tells of everything that is
 * wrong with either; and the workers inherit it by fork. They need no permission for the segment, and one that is
 * started again later has rules even when those on the disk are broken by then. Each reads the rules anew when they
 * change, by itself. With `weir_rules PATH workers` only they read them: for rules that a user writes whom the master,
 * which is root, must not trust.
 */
#include "ngx_weir.h"
#include "engine/mapped_file.h"
#include "ngx_weir_store.h"

#define LOOK_MS           250 /* the engine looks once a second: with as much here, a look just missed takes two */
#define LOG_LIMIT_SECONDS 60
#define NGX_WEIR_PATH_MAX 4096

/* ---- Telling ---- */

void ngx_weir_log_limited(ngx_log_t *log, int error, const char *what, const char *rule)
{
    enum { KINDS = 64 };
    static time_t logged[KINDS];
    static ngx_uint_t unsaid[KINDS];
    ngx_uint_t kind = (ngx_uint_t)(error < 0 ? -error : error) % KINDS;
    if (logged[kind] && ngx_time() - logged[kind] < LOG_LIMIT_SECONDS) {
        unsaid[kind]++;
        return;
    }
    ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s%s%s: %s (%s); %ui more since the last line like this", what,
                  *rule ? " " : "", rule, weir_strerror(error), weir_error_name(error), unsaid[kind]);
    logged[kind] = ngx_time();
    unsaid[kind] = 0;
}

/* What is wrong with the rules, with its place. While nginx runs all workers read the same rules: one tells. */
static void ngx_weir_diagnose(void *context, const weir_diagnostic *logged)
{
    const ngx_weir_engine_t *conf = context;
    ngx_log_t *log = conf->open_log;
    ngx_uint_t level = logged->severity == WEIR_IS_WARNING ? NGX_LOG_WARN : NGX_LOG_EMERG;
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

/* What to do about a segment, in the words of this configuration rather than the library's. */
static const char *ngx_weir_advice(int error, const char *path, char *room, size_t size)
{
    switch (error) {
    case WEIR_EVERSION:
        return "the segment was made by another version of weir; run the matching version, or remove the file or add "
               "\"rebuild\" to weir_segment: the counters in it are lost then";
    case WEIR_EDAMAGED:
    case WEIR_ETRUNCATED:
        return "the segment is damaged; remove the file or add \"rebuild\" to weir_segment: the counters in it are "
               "lost "
               "then";
    case WEIR_ENOENT:
        return "the folder for the segment does not exist; make it or choose another path";
    case WEIR_ESIZE:
        return "the segment's size is out of range; use at least 64k";
    default:
        return weir__mapped_why(path, error, room, size);
    }
}

/* ---- Opening ---- */

static void ngx_weir_engine_close(void *data)
{
    weir_close(data);
}

static void ngx_weir_segment_close(void *data)
{
    weir_segment_close(data);
}

/* Closed with the configuration. */
static ngx_int_t ngx_weir_close_later(ngx_conf_t *cf, void (*close)(void *), void *data)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (cleanup == NULL) {
        close(data);
        return NGX_ERROR;
    }
    cleanup->handler = close;
    cleanup->data = data;
    return NGX_OK;
}

static weir_segment *ngx_weir_segment_open(ngx_conf_t *cf, ngx_weir_engine_t *conf)
{
    weir_segment_options options = {.path = (const char *)conf->segment_path.data,
                                    .size = (uint64_t)conf->segment_size,
                                    .flags =
                                        WEIR_OPEN_CREATE | WEIR_OPEN_TRUSTED | (conf->rebuild ? WEIR_OPEN_REBUILD : 0),
                                    .mode = conf->segment_mode};
    weir_segment *segment;
    weir_stats stats;
    char why[256];
    ngx_set_errno(0);
    int error = weir_segment_open(&options, &segment);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, error == WEIR_ESYS ? ngx_errno : 0, "weir_segment \"%V\": %s (%s)",
                      &conf->segment_path, ngx_weir_advice(error, options.path, why, sizeof(why)),
                      weir_error_name(error));
        return NULL;
    }
    if (ngx_weir_close_later(cf, ngx_weir_segment_close, segment) != NGX_OK)
        return NULL;
    error = weir_segment_guard(segment);
    if (error)
        ngx_log_error(NGX_LOG_WARN, cf->log, error == WEIR_ESYS ? ngx_errno : 0,
                      "weir_segment \"%V\" is not guarded against being cut short: %s (%s)", &conf->segment_path,
                      weir_strerror(error), weir_error_name(error));
    if (weir_stats_read(segment, &stats) == 0 && stats.bytes != (uint64_t)conf->segment_size)
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "weir_segment \"%V\" exists and keeps its size of %uL bytes; remove the file for %O bytes: the "
                      "counters in it are lost then",
                      &conf->segment_path, stats.bytes, conf->segment_size);
    return segment;
}

ngx_int_t ngx_weir_engine_open(ngx_conf_t *cf, ngx_weir_engine_t *conf)
{
    if (conf->segment_path.data == NULL || (conf->rules_path.data == NULL && !conf->rules_optional)) {
        if (!conf->wanted && conf->segment_path.data == conf->rules_path.data)
            return NGX_OK;
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"%s\" is missing in %s; weir needs weir_segment%s",
                      conf->segment_path.data ? "weir_rules" : "weir_segment", conf->block,
                      conf->rules_optional ? "" : " and weir_rules");
        return NGX_ERROR;
    }
    conf->segment = ngx_weir_segment_open(cf, conf);
    if (conf->segment == NULL)
        return NGX_ERROR;
    if (conf->rules_path.data == NULL)
        return NGX_OK;

    char names[NGX_WEIR_STORE_NAMES_MAX], ledger[NGX_WEIR_PATH_MAX], hot[NGX_WEIR_PATH_MAX], load[NGX_WEIR_PATH_MAX];
    weir_options options = {.attached = conf->segment,
                            .rules_path = (const char *)conf->rules_path.data,
                            .diagnose = ngx_weir_diagnose,
                            .diagnose_context = conf,
                            .flags = conf->rules_by_workers ? WEIR_RULES_LATER : 0};
    if (conf->store) {
        options.flags |= WEIR_NO_CONNECT;
        options.store = ngx_weir_store_names(conf->store, names);
        options.default_consistency = conf->store->consistency;
        (void)snprintf(ledger, sizeof(ledger), "%s.ledger", (const char *)conf->segment_path.data);
        options.ledger = ledger;
    }
    options.segment.mode = conf->segment_mode; /* of what is beside it */
    if (conf->hot_size) {
        bool hide = conf->hot_hash || (conf->store && conf->store->options.hash_keys);
        (void)snprintf(hot, sizeof(hot), "%s.hot", (const char *)conf->segment_path.data);
        options.hot = hot;
        options.hot_bytes = (uint64_t)conf->hot_size;
        options.flags |= hide ? WEIR_HIDE_KEYS : 0;
    }
    if (conf->load) {
        (void)snprintf(load, sizeof(load), "%s.load", (const char *)conf->segment_path.data);
        options.load = load;
    }
    conf->open_log = cf->log;
    int error = weir_open(&options, &conf->engine);
    conf->open_log = NULL;
    if (error) {
        /* The segment is open: what is neither about the rules nor about memory is about the ledger, and was logged. */
        bool rules = error == WEIR_ERULES || error == WEIR_ERULESPATH || options.ledger == NULL;
        char why[256];
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "%s \"%s\": %s (%s)", rules ? "weir_rules" : "the ledger",
                      rules ? (const char *)conf->rules_path.data : ledger,
                      rules ? weir_strerror(error) : weir__mapped_why(ledger, error, why, sizeof(why)),
                      weir_error_name(error));
        return NGX_ERROR;
    }
    return ngx_weir_close_later(cf, ngx_weir_engine_close, conf->engine);
}

/* ---- While it runs ---- */

static ngx_event_t ngx_weir_look_event;

/* Once in each worker: the counters are each worker's loss. */
static void ngx_weir_log_lost(ngx_log_t *log, ngx_weir_engine_t *conf)
{
    for (const char *disabled; (disabled = weir__sidecar_lost()) != NULL;)
        ngx_log_error(
            NGX_LOG_CRIT, log, 0,
            "weir: a file beside weir_segment \"%V\" was cut short: %s until nginx is reloaded, which makes it "
            "anew",
            &conf->segment_path, disabled);
    if (conf->lost || !weir_segment_lost(conf->segment))
        return;
    conf->lost = 1;
    ngx_log_error(
        NGX_LOG_CRIT, log, 0,
        "weir: the file of weir_segment \"%V\" was cut short; on_store_failure of each rule decides until the "
        "file is removed and nginx reloaded",
        &conf->segment_path);
}

/*
 * weir_check looks at the disk if a second has passed; here one that takes nothing. Requests do not look: none has to
 * wait for that (weir__check_fast).
 */
static void ngx_weir_look(ngx_event_t *event)
{
    ngx_weir_engine_t *conf = event->data;
    weir_query nothing = {.dry_run = true};
    weir_result result;
    if (ngx_exiting)
        return;
    int error = weir_check(conf->engine, &nothing, &result);
    if (error)
        ngx_weir_log_limited(event->log, error, "looking at the rules", "");
    ngx_weir_log_lost(event->log, conf);
    ngx_add_timer(event, LOOK_MS);
}

/* Before the worker accepts a connection. A file that is being replaced is waited for. */
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
    ngx_event_t *event = &ngx_weir_look_event;
    if (conf->rules_by_workers)
        ngx_weir_rules_read(cycle, conf);
    event->handler = ngx_weir_look;
    event->data = conf;
    event->log = cycle->log;
    event->cancelable = 1;   /* a worker that is to end does not wait for it */
    ngx_add_timer(event, 1); /* what came since the master read the rules is in force from the first requests on */
    return conf->store ? ngx_weir_store_start(cycle, conf->store, conf->engine) : NGX_OK;
}

void ngx_weir_engine_stop(ngx_weir_engine_t *conf)
{
    if (conf->store)
        ngx_weir_store_stop(conf->store);
}

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
    weir_time now = {0, 0};
    if (segment)
        now = weir_clock(segment);
    int64_t delay_ns = weir_auth_failure(segment, peer, len, now);
    ngx_log_error(NGX_LOG_INFO, c->log, 0, "weir: wrong password or token; answered in %L ms", delay_ns / 1000000);
    return (ngx_msec_t)(delay_ns / 1000000);
}

/* ---- Checks that are held back ---- */

#define CHECKS_OF_PEER 64
#define CHECK_LISTS    256 /* by the hash of the address; what they hold is bounded by the worker's connections */

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
    weir_time now = {0, 0};
    if (segment)
        now = weir_clock(segment);
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
