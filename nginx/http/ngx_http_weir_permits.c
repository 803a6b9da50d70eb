/*
 * Permits of rules that limit requests in flight. A pool cleanup releases them when the request ends, however it ends;
 * a timer renews them meanwhile, so that a lease can be shorter than the longest request. Neither waits for the store.
 */
#include "ngx_http_weir.h"

#define RENEWALS 3 /* in the time of a lease: two of them may fail before it expires */

typedef struct {
    ngx_event_t timer;
    weir *engine;
    ngx_weir_store_t *store; /* NULL: it has none of the permits */
    ngx_weir_wait_t *wait;   /* a renewal that the store has not acknowledged */
    weir_permits permits;    /* last: allocated with weir_permits_size bytes */
} ngx_http_weir_holder_t;

static ngx_msec_t ngx_http_weir_permits_interval(const ngx_http_weir_holder_t *holder)
{
    ngx_msec_t every = (ngx_msec_t)(holder->permits.lease_ns / RENEWALS / 1000000);
    return ngx_max(every, 1);
}

/* Finishes a renewal and sets the timer for the next one. */
static void ngx_http_weir_permits_renewed(ngx_http_weir_holder_t *holder, weir_async *async)
{
    uint32_t before = holder->permits.count;
    int error = weir_permits_renew_finish(holder->engine, &holder->permits, true, async);
    if (error || holder->permits.count < before)
        ngx_weir_log_limited(ngx_cycle->log, error ? error : WEIR_ELEASE, "cannot renew a permit", "");
    if (holder->permits.count)
        ngx_add_timer(&holder->timer, ngx_http_weir_permits_interval(holder));
}

static void ngx_http_weir_permits_renew_done(ngx_weir_wait_t *wait)
{
    ngx_http_weir_holder_t *holder = wait->data;
    holder->wait = NULL;
    ngx_http_weir_permits_renewed(holder, wait->async);
    ngx_weir_wait_end(wait);
}

static void ngx_http_weir_permits_renew(ngx_event_t *event)
{
    ngx_http_weir_holder_t *holder = event->data;
    ngx_weir_wait_t *wait = ngx_weir_wait_new(holder->store);
    if (wait == NULL || weir_permits_renew_begin(holder->engine, &holder->permits, true, wait->async) != 1) {
        ngx_http_weir_permits_renewed(holder, NULL);
        ngx_weir_wait_end(wait);
        return;
    }
    holder->wait = wait;
    wait->data = holder;
    ngx_weir_wait_begin(wait, ngx_http_weir_permits_interval(holder), ngx_http_weir_permits_renew_done);
}

static void ngx_http_weir_permits_return(weir *engine, ngx_weir_store_t *store, weir_permits *permits)
{
    ngx_weir_wait_t *wait = ngx_weir_wait_new(store);
    int error =
        wait ? weir_permits_release_detached(engine, permits, wait->async) : weir_permits_release(engine, permits);
    ngx_weir_wait_end(wait);
    if (error < 0)
        ngx_weir_log_limited(ngx_cycle->log, error, "cannot release a permit", "");
}

static void ngx_http_weir_permits_release(void *data)
{
    ngx_http_weir_holder_t *holder = data;
    if (holder->timer.timer_set)
        ngx_del_timer(&holder->timer);
    ngx_weir_wait_end(holder->wait); /* the store gets the renewal, if it was sent, before the release */
    ngx_http_weir_permits_return(holder->engine, holder->store, &holder->permits);
}

ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_permits *permits)
{
    ngx_weir_store_t *store = permits->names_len ? mcf->store : NULL;
    ngx_pool_cleanup_t *cleanup =
        ngx_pool_cleanup_add(r->pool, offsetof(ngx_http_weir_holder_t, permits) + weir_permits_size(permits));
    if (cleanup == NULL) {
        ngx_http_weir_permits_return(mcf->engine, store, permits);
        return NGX_ERROR;
    }
    ngx_http_weir_holder_t *holder = cleanup->data;
    cleanup->handler = ngx_http_weir_permits_release;
    ngx_memzero(holder, offsetof(ngx_http_weir_holder_t, permits));
    holder->engine = mcf->engine;
    holder->store = store;
    ngx_memcpy(&holder->permits, permits, weir_permits_size(permits));
    ngx_weir_start_timer(&holder->timer, ngx_http_weir_permits_renew, holder, ngx_http_weir_permits_interval(holder));
    return NGX_OK;
}
