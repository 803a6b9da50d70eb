/*
 * Slots of requests in flight. They are given back when the request's pool goes, which is when the request ends,
 * however it does: answered, failed, left by its client, or upgraded and closed much later. While it runs they are
 * renewed, so that a lease need not be as long as the longest request.
 */
#include "ngx_http_weir.h"

#define RENEWALS 3 /* a lease: two may come late before it ends */

typedef struct {
    ngx_event_t timer;
    weir *engine;
    weir_held held;
} ngx_http_weir_holder_t;

static void ngx_http_weir_held_timer(ngx_http_weir_holder_t *holder)
{
    ngx_msec_t every = (ngx_msec_t)(holder->held.lease_ns / RENEWALS / 1000000);
    if (holder->held.count)
        ngx_add_timer(&holder->timer, ngx_max(every, 1));
}

static void ngx_http_weir_held_renew(ngx_event_t *event)
{
    ngx_http_weir_holder_t *holder = event->data;
    uint32_t before = holder->held.count;
    int error = weir_held_renew(holder->engine, &holder->held);
    if (error || holder->held.count < before)
        ngx_weir_complain(event->log, error ? error : WEIR_ELEASE, "a slot could not be kept", "");
    ngx_http_weir_held_timer(holder);
}

static void ngx_http_weir_held_release(void *data)
{
    ngx_http_weir_holder_t *holder = data;
    if (holder->timer.timer_set)
        ngx_del_timer(&holder->timer);
    int error = weir_held_release(holder->engine, &holder->held);
    if (error < 0)
        ngx_weir_complain(ngx_cycle->log, error, "a slot could not be given back", "");
}

ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_held *held)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_holder_t));
    if (cleanup == NULL) {
        (void)weir_held_release(mcf->engine, held);
        return NGX_ERROR;
    }
    ngx_http_weir_holder_t *holder = cleanup->data;
    cleanup->handler = ngx_http_weir_held_release;
    ngx_memzero(&holder->timer, sizeof(ngx_event_t));
    holder->timer.handler = ngx_http_weir_held_renew;
    holder->timer.data = holder;
    holder->timer.log = ngx_cycle->log;
    holder->timer.cancelable = 1; /* a worker that is to go does not stay for this alone */
    holder->engine = mcf->engine;
    holder->held.count = held->count;
    holder->held.lease_ns = held->lease_ns;
    ngx_memcpy(holder->held.lease, held->lease, held->count * sizeof(weir_lease));
    ngx_http_weir_held_timer(holder);
    return NGX_OK;
}
