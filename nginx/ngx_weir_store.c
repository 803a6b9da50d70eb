/* The store's client in a worker: its driver, its timer, and the requests that wait for it; the directive weir_store.
 */
#include "ngx_weir_store.h"

#include "base/clock.h"
#include "ngx_weir.h"

#define REFUND_US  2000000 /* timeout of a refund */
#define KEEP_WAITS 1024    /* waits that are kept for reuse, */
#define KEEP_OPS   64      /* if they have at most so many ops */

const char *ngx_weir_store_names(const ngx_weir_store_t *store, char url[NGX_WEIR_STORE_NAMES_MAX])
{
    u_char *at =
        ngx_sprintf((u_char *)url, "redis://store?hash_keys=%s&prefix=", store->options.hash_keys ? "true" : "false");
    for (const char *c = store->options.prefix; *c; c++)
        at = ngx_sprintf(at, "%%%02Xd", (unsigned)(u_char)*c);
    *at = '\0';
    return url;
}

/* ---- Timer ---- */

void ngx_weir_store_update_cancelable(ngx_weir_store_t *store)
{
    store->wake.cancelable = store->waiting == 0 && !weir__client_owes_refunds(store->client);
}

/* ngx_add_timer keeps a timer that would move by less than 300 ms; this one must be exact. */
static void ngx_weir_store_arm(ngx_weir_store_t *store)
{
    ngx_event_t *event = &store->wake;
    if (event->timer_set) {
        if (store->wake_at >= store->timer_at)
            return; /* waking up earlier is allowed, and saves re-arming it for each request */
        ngx_del_timer(event);
    }
    if (store->wake_at == INT64_MAX)
        return;
    int64_t left = store->wake_at - weir__monotonic_us();
    store->timer_at = store->wake_at;
    ngx_add_timer(event, left <= 0 ? 0 : (ngx_msec_t)((left + 999) / 1000));
}

static void ngx_weir_store_wake(void *context, int64_t at_us)
{
    ngx_weir_store_t *store = context;
    store->wake_at = at_us;
    ngx_weir_store_arm(store);
}

static void ngx_weir_store_tick(ngx_event_t *event)
{
    ngx_weir_store_t *store = event->data;
    weir__client_tick(store->client, weir__monotonic_us());
    ngx_weir_store_update_cancelable(store);
    ngx_weir_store_stats_publish(store);
    if (!event->timer_set)
        ngx_weir_store_arm(store);
}

/* Sends once for all requests of an iteration of the event loop: few commands, one system call. */
static void ngx_weir_store_flush(ngx_event_t *event)
{
    ngx_weir_store_t *store = event->data;
    weir__client_flush(store->client, weir__monotonic_us());
    ngx_weir_store_stats_publish(store);
}

static void ngx_weir_store_flush_later(ngx_weir_store_t *store)
{
    if (!store->flush.posted) {
        ngx_post_event(&store->flush, &ngx_posted_events);
    }
}

/* ---- Changes of the store's state ---- */

/*
 * Keeps what nginx would log about a connection ("… [error] 17#17: connect() failed (111: Connection refused)") for
 * the next message.
 */
static void ngx_weir_store_log(ngx_log_t *log, ngx_uint_t level, u_char *text, size_t len)
{
    ngx_weir_store_t *store = log->wdata;
    u_char *last = text + len, *at = ngx_strlchr(text, last, '#');
    (void)level;
    at = at ? ngx_strlchr(at, last, ' ') : NULL;
    at = at ? at + 1 : text;
    while (last > at && (last[-1] == LF || last[-1] == ' '))
        last--;
    ngx_cpystrn((u_char *)store->detail, at, ngx_min((size_t)(last - at) + 1, sizeof(store->detail)));
}

static void ngx_weir_store_changed(void *context, bool up, int error, const char *where)
{
    ngx_weir_store_t *store = context;
    if (!ngx_weir_store_stats_changed(store, up, error))
        return;
    if (up) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0, "weir: store %s available again", store->shown);
    } else {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "weir: store %s unavailable: %s (%s)%s%s%s%s; on_store_failure applies", store->shown,
                      weir_strerror(error), weir_error_name(error), where && *where ? "; " : "", where ? where : "",
                      *store->detail ? ": " : "", store->detail);
    }
    *store->detail = '\0';
}

/* ---- Waits ---- */

static void ngx_weir_wait_event(ngx_event_t *event)
{
    ngx_weir_wait_t *wait = event->data;
    wait->on_reply(wait);
}

ngx_weir_wait_t *ngx_weir_wait_new(ngx_weir_store_t *store)
{
    ngx_weir_wait_t *wait = store ? store->idle : NULL;
    if (wait) {
        store->idle = wait->next;
        store->idle_count--;
        return wait;
    }
    wait = store ? ngx_calloc(sizeof(ngx_weir_wait_t), ngx_cycle->log) : NULL;
    if (wait == NULL)
        return NULL;
    if (weir_async_new(store->engine, &wait->async) != 0) {
        ngx_free(wait);
        return NULL;
    }
    wait->store = store;
    wait->event.handler = ngx_weir_wait_event;
    wait->event.data = wait;
    wait->event.log = ngx_cycle->log;
    return wait;
}

/* Called from within the client, so it only posts an event: what follows may end other waits, or the client. */
static void ngx_weir_store_done(void *context, struct weir__store_request *request)
{
    ngx_weir_store_t *store = context;
    ngx_weir_wait_t *wait = request->owner;
    wait->in_flight = 0;
    store->waiting--;
    ngx_weir_store_update_cancelable(store);
    if (request->error)
        ngx_weir_store_stats_failed(store, request->error);
    ngx_post_event(&wait->event, &ngx_posted_events);
}

void ngx_weir_wait_begin(ngx_weir_wait_t *wait, ngx_msec_t ms, void (*on_reply)(ngx_weir_wait_t *wait))
{
    ngx_weir_store_t *store = wait->store;
    struct weir__store_request *request = weir_async_request(wait->async);
    int64_t now = weir__monotonic_us();
    request->owner = wait;
    if (ms)
        request->deadline_us = now + ngx_min((int64_t)ms * 1000, REFUND_US);
    wait->on_reply = on_reply;
    wait->in_flight = 1;
    store->waiting++;
    ngx_weir_store_update_cancelable(store);
    weir__client_submit(store->client, request, now);
    ngx_weir_store_flush_later(store);
}

void ngx_weir_wait_detached(ngx_weir_wait_t *wait)
{
    if (wait && weir_async_request(wait->async)->op_count > 0)
        ngx_weir_wait_begin(wait, REFUND_US / 1000, ngx_weir_wait_end);
    else
        ngx_weir_wait_end(wait);
}

void ngx_weir_wait_end(ngx_weir_wait_t *wait)
{
    if (wait == NULL)
        return;
    ngx_weir_store_t *store = wait->store;
    uint32_t ops = weir_async_request(wait->async)->op_count;
    if (wait->event.posted) { /* the caller leaves just before on_reply */
        ngx_delete_posted_event(&wait->event);
        weir__store_request_abandon(weir_async_request(wait->async));
    }
    struct weir__store_request *refund = wait->in_flight ? NULL : weir_async_rollback(wait->async);
    if (wait->in_flight) {
        wait->in_flight = 0;
        store->waiting--;
        weir__client_cancel(store->client, weir_async_request(wait->async));
    } else if (refund) {
        weir__client_refund(store->client, refund, weir__monotonic_us());
        ngx_weir_store_flush_later(store);
    }
    ngx_weir_store_update_cancelable(store);
    if (ops > KEEP_OPS || store->idle_count >= KEEP_WAITS) {
        weir_async_free(wait->async);
        ngx_free(wait);
        return;
    }
    weir_async_clear(wait->async);
    wait->next = store->idle;
    store->idle = wait;
    store->idle_count++;
}

/* ---- Start and stop ---- */

ngx_int_t ngx_weir_store_start(ngx_cycle_t *cycle, ngx_weir_store_t *store, weir *engine)
{
    store->driver = (struct weir__driver){.context = store,
                                          .open = ngx_weir_channel_open,
                                          .close = ngx_weir_channel_close,
                                          .send = ngx_weir_channel_send,
                                          .wake = ngx_weir_store_wake,
                                          .done = ngx_weir_store_done,
                                          .changed = ngx_weir_store_changed,
                                          .heartbeat_us = store->options.heartbeat_us};
    store->engine = engine;
    store->quiet = (ngx_log_t){.log_level = NGX_LOG_ERR, .writer = ngx_weir_store_log, .wdata = store};
    store->wake = (ngx_event_t){.handler = ngx_weir_store_tick, .data = store, .log = cycle->log, .cancelable = 1};
    store->flush = (ngx_event_t){.handler = ngx_weir_store_flush, .data = store, .log = cycle->log};
    store->wake_at = INT64_MAX;
    ngx_weir_store_stats_begin(store);
    if (ngx_weir_channels_make(store, cycle) != NGX_OK)
        return NGX_ERROR;
    int64_t now = weir__monotonic_us();
    uint64_t seed = (uint64_t)now ^ (uint64_t)ngx_pid << 32 ^ (uint64_t)ngx_random();
    store->client = weir__client_new(&store->options, &store->driver, seed, now);
    if (store->client == NULL)
        return NGX_ERROR;
    weir__client_start(store->client, now);
    ngx_post_event(&store->flush, &ngx_posted_events);
    return NGX_OK;
}

void ngx_weir_store_stop(ngx_weir_store_t *store)
{
    if (store == NULL || store->client == NULL)
        return;
    ngx_weir_store_stats_publish(store);
    weir__client_free(store->client);
    store->client = NULL;
}

/* ---- The directive `weir_store URL [name=value …]` ---- */

#define VERIFY_DEPTH 5
#define WHY_MAX      256

static char *ngx_weir_store_wrong(ngx_conf_t *cf, const char *why)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_store\": %s", why);
    return NGX_CONF_ERROR;
}

/* Reads the password from the first line of a file, as nginx.conf is often readable by more users. */
static char *ngx_weir_store_password(ngx_conf_t *cf, ngx_weir_store_t *store, ngx_str_t path)
{
    char why[WHY_MAX] = "", room[sizeof(store->options.password) + 2];
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK)
        return NGX_CONF_ERROR;
    FILE *file = fopen((const char *)path.data, "re");
    const char *line = file ? fgets(room, sizeof(room), file) : NULL;
    ngx_err_t error = ngx_errno;
    if (file)
        (void)fclose(file);
    if (line == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, file ? 0 : error, "password_file \"%V\" in \"weir_store\" %s", &path,
                           file ? "is empty" : "cannot be read");
        return NGX_CONF_ERROR;
    }
    room[strcspn(room, "\r\n")] = '\0';
    int bad = weir__store_option(&store->options, "password", room, why, sizeof(why));
    ngx_memzero(room, sizeof(room));
    if (bad == 0)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "password_file \"%V\" in \"weir_store\": %s", &path, why);
    return NGX_CONF_ERROR;
}

/* The default consistency of rules. */
static char *ngx_weir_store_consistency(ngx_conf_t *cf, ngx_weir_store_t *store, const u_char *word)
{
    static const char *const names[] = {
        [WEIR_LOCAL] = "local", [WEIR_EVENTUAL] = "eventual", [WEIR_STRICT] = "strict", [WEIR_LEASED] = "leased"};
    for (store->consistency = WEIR_LOCAL; store->consistency <= WEIR_LEASED; store->consistency++)
        if (ngx_strcmp(word, names[store->consistency]) == 0)
            return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "consistency \"%s\" in \"weir_store\" is none of local, eventual, strict, leased", word);
    return NGX_CONF_ERROR;
}

static char *ngx_weir_store_set(ngx_conf_t *cf, ngx_weir_store_t *store, ngx_str_t *given)
{
    static const char file[] = "password_file=";
    char why[WHY_MAX] = "";
    u_char *equals = ngx_strlchr(given->data, given->data + given->len, '=');
    if (ngx_strncmp(given->data, file, sizeof(file) - 1) == 0) {
        ngx_str_t path = {given->len - (sizeof(file) - 1), given->data + sizeof(file) - 1};
        return ngx_weir_store_password(cf, store, path);
    }
    if (ngx_strncmp(given->data, "consistency=", 12) == 0)
        return ngx_weir_store_consistency(cf, store, given->data + 12);
    if (equals == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" in \"weir_store\"; use name=value", given);
        return NGX_CONF_ERROR;
    }
    *equals = '\0'; /* nginx ends the words of a directive with a zero byte */
    int error =
        weir__store_option(&store->options, (const char *)given->data, (const char *)equals + 1, why, sizeof(why));
    *equals = '=';
    return error ? ngx_weir_store_wrong(cf, *why ? why : weir_strerror(error)) : NGX_CONF_OK;
}

/* ---- TLS ---- */

/* The path of a file, which nginx's functions make absolute. */
static ngx_str_t ngx_weir_store_file(char *path)
{
    return (ngx_str_t){ngx_strlen(path), (u_char *)path};
}

static ngx_int_t ngx_weir_store_authorities(ngx_conf_t *cf, ngx_weir_store_t *store)
{
    ngx_str_t ca = ngx_weir_store_file(store->options.ca);
    if (ca.len)
        return ngx_ssl_trusted_certificate(cf, store->ssl, &ca, VERIFY_DEPTH);
    if (SSL_CTX_set_default_verify_paths(store->ssl->ctx) == 1)
        return NGX_OK;
    ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0, "SSL_CTX_set_default_verify_paths() failed");
    return NGX_ERROR;
}

static ngx_int_t ngx_weir_store_tls(ngx_conf_t *cf, ngx_weir_store_t *store)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    ngx_str_t certificate = ngx_weir_store_file(store->options.certificate);
    ngx_str_t key = ngx_weir_store_file(store->options.key);
    store->ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (store->ssl == NULL || cleanup == NULL)
        return NGX_ERROR;
    store->ssl->log = cf->log;
    if (ngx_ssl_create(store->ssl, NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3, NULL) != NGX_OK)
        return NGX_ERROR;
    cleanup->handler = ngx_ssl_cleanup_ctx;
    cleanup->data = store->ssl;
    /* A retried write may have the bytes at another address, with more after them. */
    (void)SSL_CTX_set_mode(store->ssl->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!store->options.no_verify && ngx_weir_store_authorities(cf, store) != NGX_OK)
        return NGX_ERROR;
    if (certificate.len == 0)
        return NGX_OK;
    return ngx_ssl_certificate(cf, store->ssl, &certificate, &key, NULL);
}

/* ---- The directive ---- */

char *ngx_weir_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    char why[WHY_MAX] = "";
    (void)cmd;
    if (engine->store)
        return "is duplicate";
    ngx_weir_store_t *store = ngx_pcalloc(cf->pool, sizeof(ngx_weir_store_t));
    if (store == NULL)
        return NGX_CONF_ERROR;
    store->consistency = WEIR_PER_ALGORITHM;
    int error = weir__store_parse((const char *)value[1].data, &store->options, why, sizeof(why));
    if (error)
        return ngx_weir_store_wrong(cf, *why ? why : weir_strerror(error));
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++)
        if (ngx_weir_store_set(cf, store, &value[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    if (*store->options.key == '\0') /* one file may contain both */
        ngx_memcpy(store->options.key, store->options.certificate, sizeof(store->options.key));
    if (weir__store_fits(&store->options, why, sizeof(why)) != 0)
        return ngx_weir_store_wrong(cf, why);
    weir__store_shown(&store->options, store->shown, sizeof(store->shown));
    store->block = ngx_strcmp(engine->block, "stream") == 0;
    if (store->options.tls && ngx_weir_store_tls(cf, store) != NGX_OK)
        return ngx_weir_store_wrong(cf, "cannot set up TLS with these files");
    if (ngx_weir_store_stats_make(cf, store) != NGX_OK)
        return NGX_CONF_ERROR;
    engine->store = store;
    return NGX_CONF_OK;
}
