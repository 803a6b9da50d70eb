/* The store's client in a worker: its driver, its timer, and the requests that wait for it. */
#include "ngx_weir_store.h"
#include "base/clock.h"

#define GIVE_BACK_US 2000000
#define KEEP_WAITS   1024 /* waits that are kept for reuse, */
#define KEEP_OPS     64   /* if they have at most so many ops */

const char *ngx_weir_store_names(const ngx_weir_store_t *store, char url[NGX_WEIR_STORE_NAMES_MAX])
{
    u_char *at =
        ngx_sprintf((u_char *)url, "redis://store?hash_keys=%s&prefix=", store->options.hash_keys ? "true" : "false");
    for (const char *c = store->options.prefix; *c; c++)
        at = ngx_sprintf(at, "%%%02Xd", (unsigned)(u_char)*c);
    *at = '\0';
    return url;
}

const char *ngx_weir_store_shown(const ngx_weir_store_t *store)
{
    return store->shown;
}

/* ---- Timer ---- */

void ngx_weir_store_stay(ngx_weir_store_t *store)
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
    ngx_weir_store_stay(store);
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

/* ---- Changes of the store's state ---- */

/*
 * Stores what nginx would log about a connection ("… [error] 17#17: connect() failed (111: Connection refused)") for
 * the next message.
 */
static void ngx_weir_store_hear(ngx_log_t *log, ngx_uint_t level, u_char *text, size_t len)
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
        /* the same level as the outage, so that its end is logged wherever that was */
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "weir: store %s available again", store->shown);
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
    ngx_weir_wait_t *wait = store->idle;
    if (wait) {
        store->idle = wait->next;
        store->idle_count--;
        return wait;
    }
    wait = ngx_calloc(sizeof(ngx_weir_wait_t), ngx_cycle->log);
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
    wait->on_its_way = 0;
    store->waiting--;
    ngx_weir_store_stay(store);
    if (request->error)
        ngx_weir_store_stats_failed(store, request->error);
    if (wait->on_reply) {
        ngx_post_event(&wait->event, &ngx_posted_events);
    }
}

ngx_int_t ngx_weir_wait_begin(ngx_weir_wait_t *wait, void (*on_reply)(ngx_weir_wait_t *wait))
{
    ngx_weir_store_t *store = wait->store;
    struct weir__store_request *request = weir_async_request(wait->async);
    request->owner = wait;
    wait->on_reply = NULL; /* a reply at once is reported by the return value */
    wait->on_its_way = 1;
    store->waiting++;
    ngx_weir_store_stay(store);
    weir__client_submit(store->client, request, weir__monotonic_us());
    if (!wait->on_its_way)
        return NGX_OK;
    wait->on_reply = on_reply;
    if (!store->flush.posted) {
        ngx_post_event(&store->flush, &ngx_posted_events);
    }
    return NGX_AGAIN;
}

ngx_int_t ngx_weir_wait_begin_for(ngx_weir_wait_t *wait, ngx_msec_t ms, void (*on_reply)(ngx_weir_wait_t *wait))
{
    weir_async_request(wait->async)->deadline_us = weir__monotonic_us() + ngx_min((int64_t)ms * 1000, GIVE_BACK_US);
    return ngx_weir_wait_begin(wait, on_reply);
}

void ngx_weir_wait_detached(ngx_weir_wait_t *wait)
{
    if (ngx_weir_wait_begin_for(wait, GIVE_BACK_US / 1000, ngx_weir_wait_end) == NGX_OK)
        ngx_weir_wait_end(wait);
}

void ngx_weir_wait_end(ngx_weir_wait_t *wait)
{
    ngx_weir_store_t *store = wait->store;
    uint32_t ops = weir_async_request(wait->async)->op_count;
    if (wait->event.posted) { /* the caller leaves just before on_reply */
        ngx_delete_posted_event(&wait->event);
        weir__store_request_abandon(weir_async_request(wait->async));
    }
    if (wait->on_its_way) {
        wait->on_its_way = 0;
        store->waiting--;
        weir__client_cancel(store->client, weir_async_request(wait->async));
    } else {
        struct weir__store_request *back = weir_async_rollback(wait->async);
        if (back) {
            weir__client_refund(store->client, back, weir__monotonic_us());
            if (!store->flush.posted) {
                ngx_post_event(&store->flush, &ngx_posted_events);
            }
        }
    }
    ngx_weir_store_stay(store);
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
                                          .changed = ngx_weir_store_changed};
    store->engine = engine;
    store->quiet = (ngx_log_t){.log_level = NGX_LOG_ERR, .writer = ngx_weir_store_hear, .wdata = store};
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
    if (store->client == NULL)
        return;
    ngx_weir_store_stats_publish(store);
    weir__client_free(store->client);
    store->client = NULL;
}
