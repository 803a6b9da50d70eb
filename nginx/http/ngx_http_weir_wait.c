/*
 * Requests that wait, for a time or for the store. When the reply of the store arrives, the handler runs again and
 * finds it: only the wait is kept meanwhile, not the state of the decision.
 */
#include "ngx_http_weir.h"
#include "engine/fast_result.h"

/* Detects a client that disconnects. */
static ngx_int_t ngx_http_weir_watch(ngx_http_request_t *r)
{
    ngx_connection_t *c = r->connection;
    if (r != r->main || r->discard_body)
        return NGX_OK;
    r->read_event_handler = ngx_http_test_reading;
    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
        return NGX_OK;
    }
    return ngx_handle_read_event(c->read, 0);
}

/*
 * The timer is that of the connection's write event, as in limit_req: nothing else uses it before the reply, a waiting
 * request needs no memory for it, and nginx removes it with the request.
 */
ngx_int_t ngx_http_weir_pause(ngx_http_request_t *r, ngx_msec_t ms, ngx_http_event_handler_pt later)
{
    ngx_event_t *write = r->connection->write;
    if (ngx_http_weir_watch(r) != NGX_OK)
        return NGX_ERROR;
    r->write_event_handler = later;
    ngx_time_update(); /* timers count from nginx's cached time, the beginning of this iteration of the event loop */
    write->delayed = 1;
    ngx_add_timer(write, ms);
    return NGX_OK;
}

ngx_uint_t ngx_http_weir_is_paused(ngx_http_request_t *r)
{
    ngx_event_t *write = r->connection->write;
    ngx_int_t rc = write->delayed ? ngx_handle_write_event(write, 0) : ngx_handle_read_event(r->connection->read, 0);
    if (rc != NGX_OK)
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    if (rc != NGX_OK || write->delayed)
        return 1;
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;
    return 0;
}

/* ---- For the store ---- */

/* The data of a cleanup, by which the wait is found again and ended with the request. */
typedef struct {
    ngx_http_request_t *r;
    ngx_weir_wait_t *wait; /* NULL: over */
    ngx_http_weir_go_on_pt *go_on;
    ngx_str_t body;
} ngx_http_weir_pending_t;

static void ngx_http_weir_pending_cleanup(void *data)
{
    ngx_http_weir_pending_t *pending = data;
    ngx_weir_wait_end(pending->wait);
    pending->wait = NULL;
}

static ngx_http_weir_pending_t *ngx_http_weir_pending(ngx_http_request_t *r)
{
    for (ngx_http_cleanup_t *each = r->main->cleanup; each; each = each->next) {
        ngx_http_weir_pending_t *pending = each->data;
        if (each->handler == ngx_http_weir_pending_cleanup && pending->r == r && pending->wait)
            return pending;
    }
    return NULL;
}

ngx_uint_t ngx_http_weir_is_pending(ngx_http_request_t *r)
{
    return ngx_http_weir_pending(r) != NULL;
}

ngx_weir_wait_t *ngx_http_weir_wait(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, ngx_uint_t *replied)
{
    ngx_http_weir_pending_t *pending = mcf->store ? ngx_http_weir_pending(r) : NULL;
    *replied = pending != NULL;
    if (pending)
        return pending->wait;
    ngx_weir_wait_t *wait = ngx_weir_wait_new(mcf->store);
    if (wait)
        wait->data = NULL;
    return wait;
}

__attribute__((hot)) void ngx_http_weir_wait_over(ngx_weir_wait_t *wait)
{
    if (wait == NULL)
        return;
    ngx_http_weir_pending_t *pending = wait->data;
    if (pending)
        pending->wait = NULL;
    ngx_weir_wait_end(wait);
}

static void ngx_http_weir_store_replied(ngx_weir_wait_t *wait)
{
    ngx_http_weir_pending_t *pending = wait->data;
    ngx_http_request_t *r = pending->r;
    ngx_connection_t *c = r->connection;
    ngx_http_set_log_request(c->log, r);
    if (r == r->main && r->read_event_handler == ngx_http_test_reading)
        r->read_event_handler = ngx_http_block_reading;
    pending->go_on(r, &pending->body);
    ngx_http_run_posted_requests(c);
}

ngx_int_t ngx_http_weir_wait_begin(ngx_http_request_t *r, ngx_weir_wait_t *wait, ngx_http_weir_go_on_pt *go_on,
                                   const ngx_str_t *body)
{
    ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, sizeof(ngx_http_weir_pending_t));
    if (cleanup == NULL) {
        ngx_weir_wait_end(wait);
        return NGX_ERROR;
    }
    ngx_http_weir_pending_t *pending = cleanup->data;
    *pending = (ngx_http_weir_pending_t){r, wait, go_on, body ? *body : (ngx_str_t)ngx_null_string};
    cleanup->handler = ngx_http_weir_pending_cleanup;
    wait->data = pending;
    ngx_weir_wait_begin(wait, 0, ngx_http_weir_store_replied);
    if (ngx_http_weir_watch(r) == NGX_OK)
        return NGX_AGAIN;
    ngx_http_weir_wait_over(wait);
    return NGX_ERROR;
}

static void ngx_http_weir_phase_again(ngx_http_request_t *r, ngx_str_t *body)
{
    (void)body;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

ngx_int_t ngx_http_weir_store_request(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_query *query,
                                      ngx_http_weir_go_on_pt *go_on, ngx_weir_wait_t **sent)
{
    ngx_uint_t replied;
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &replied);
    *sent = wait;
    if (wait == NULL)
        return NGX_OK;
    query->async = wait->async;
    if (replied || weir_check_begin(mcf->engine, query) != 1)
        return NGX_OK; /* the check reports the error */
    ngx_int_t rc = ngx_http_weir_wait_begin(r, wait, go_on ? go_on : ngx_http_weir_phase_again, NULL);
    if (rc == NGX_AGAIN && go_on == NULL)
        r->write_event_handler = ngx_http_request_empty_handler;
    return rc;
}

int ngx_http_weir_check_detached(ngx_http_weir_main_conf_t *mcf, weir_query *query, weir_result *result)
{
    ngx_weir_wait_t *wait = ngx_weir_wait_new(mcf->store);
    query->async = wait ? wait->async : NULL;
    ngx_uint_t ops = wait && weir_check_begin(mcf->engine, query) == 1;
    /* The decision does not depend on the reply, and does not poll for new rules. */
    static struct weir__second reset; /* a worker has one thread */
    char text[WEIR__FAST_RESULT_BYTES];
    struct weir__fast_result fast = {.reset = &reset, .text = text};
    int error = weir__check_fast(mcf->engine, query, result, &fast);
    if (ops)
        ngx_weir_wait_detached(wait);
    else
        ngx_weir_wait_end(wait);
    return error;
}
