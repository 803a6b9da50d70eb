/*
 * Slots of requests in flight. They are given back when the request's pool goes, which is when the request ends,
 * however it does: answered, failed, left by its client, or upgraded and closed much later. While it runs they are
 * renewed, so that a lease need not be as long as the longest request. Nobody waits for the store in either case.
 */
#include "ngx_http_weir.h"

#define RENEWALS 3 /* a lease: two may come late before it ends */

typedef struct {
    ngx_event_t timer;
    weir *engine;
    ngx_weir_store_t *store; /* NULL: nothing is held there */
    ngx_weir_wait_t *wait;   /* a renewal that is on its way to it */
    weir_permits held;       /* last: it has no more room than it needs */
} ngx_http_weir_holder_t;

static ngx_msec_t ngx_http_weir_held_every(const ngx_http_weir_holder_t *holder)
{
    ngx_msec_t every = (ngx_msec_t)(holder->held.lease_ns / RENEWALS / 1000000);
    return ngx_max(every, 1);
}

/* What became of a renewal, and when the next one is due. */
static void ngx_http_weir_held_renewed(ngx_http_weir_holder_t *holder, weir_async *ask)
{
    uint32_t before = holder->held.count;
    int error = ask ? weir_permits_renew_finish(holder->engine, &holder->held, true, ask)
                    : weir_permits_renew(holder->engine, &holder->held);
    if (error || holder->held.count < before)
        ngx_weir_complain(ngx_cycle->log, error ? error : WEIR_ELEASE, "a slot could not be kept", "");
    if (holder->held.count)
        ngx_add_timer(&holder->timer, ngx_http_weir_held_every(holder));
}

static void ngx_http_weir_held_answered(ngx_weir_wait_t *wait)
{
    ngx_http_weir_holder_t *holder = wait->data;
    holder->wait = NULL;
    ngx_http_weir_held_renewed(holder, wait->ask);
    ngx_weir_wait_end(wait);
}

static void ngx_http_weir_held_renew(ngx_event_t *event)
{
    ngx_http_weir_holder_t *holder = event->data;
    ngx_weir_wait_t *wait = holder->store ? ngx_weir_wait_new(holder->store) : NULL;
    if (wait == NULL || weir_permits_renew_begin(holder->engine, &holder->held, true, wait->ask) != 1) {
        ngx_http_weir_held_renewed(holder, NULL);
        if (wait)
            ngx_weir_wait_end(wait);
        return;
    }
    holder->wait = wait;
    wait->data = holder;
    if (ngx_weir_wait_begin_for(wait, ngx_http_weir_held_every(holder), ngx_http_weir_held_answered) == NGX_OK)
        ngx_http_weir_held_answered(wait);
}

static void ngx_http_weir_held_give_back(weir *engine, ngx_weir_store_t *store, weir_permits *held)
{
    ngx_weir_wait_t *wait = store ? ngx_weir_wait_new(store) : NULL;
    int error = wait ? weir_permits_release_detached(engine, held, wait->ask) : weir_permits_release(engine, held);
    if (wait)
        ngx_weir_wait_end(wait);
    if (error < 0)
        ngx_weir_complain(ngx_cycle->log, error, "a slot could not be given back", "");
}

static void ngx_http_weir_held_release(void *data)
{
    ngx_http_weir_holder_t *holder = data;
    if (holder->timer.timer_set)
        ngx_del_timer(&holder->timer);
    if (holder->wait) /* what it asked comes before what is given back, if it was sent at all */
        ngx_weir_wait_end(holder->wait);
    ngx_http_weir_held_give_back(holder->engine, holder->store, &holder->held);
}

ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_permits *held)
{
    ngx_weir_store_t *store = held->names_len ? mcf->store : NULL;
    ngx_pool_cleanup_t *cleanup =
        ngx_pool_cleanup_add(r->pool, offsetof(ngx_http_weir_holder_t, held) + weir_permits_size(held));
    if (cleanup == NULL) {
        ngx_http_weir_held_give_back(mcf->engine, store, held);
        return NGX_ERROR;
    }
    ngx_http_weir_holder_t *holder = cleanup->data;
    cleanup->handler = ngx_http_weir_held_release;
    ngx_memzero(holder, offsetof(ngx_http_weir_holder_t, held));
    holder->timer.handler = ngx_http_weir_held_renew;
    holder->timer.data = holder;
    holder->timer.log = ngx_cycle->log;
    holder->timer.cancelable = 1; /* a worker that is to go does not stay for this alone */
    holder->engine = mcf->engine;
    holder->store = store;
    ngx_memcpy(&holder->held, held, weir_permits_size(held));
    ngx_add_timer(&holder->timer, ngx_http_weir_held_every(holder));
    return NGX_OK;
}
