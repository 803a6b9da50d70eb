/*
 * Requests that wait for their turn. The timer is the one of the connection's write event, which nothing else uses
 * before there is an answer, as limit_req does: a waiting request needs no memory for it, and nginx removes it with the
 * request. The order is the order of the departure times that the segment handed out, across all workers.
 */
#include "ngx_http_weir.h"

static void ngx_http_weir_go_on(ngx_http_request_t *r)
{
    ngx_event_t *write = r->connection->write;
    if (write->delayed) {
        if (ngx_handle_write_event(write, 0) != NGX_OK)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (ctx) {
        ctx->waiting = 0;
        ngx_http_weir_load_begin(ngx_http_get_module_main_conf(r, ngx_http_weir_module), ctx);
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

/* Tells one set of rules from those before and after it, in this worker. */
static uint32_t ngx_http_weir_metrics_active_rules(ngx_http_request_t *r)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    weir_engine_stats stats;
    return weir_engine_stats_read(mcf->engine, &stats) == 0 ? (uint32_t)stats.reloads : 0;
}

/*
 * The request ends. If it is still waiting, others may have its place: but not where the rules have changed meanwhile.
 * What would match now is not what it took from: a rule, or a key, that gave nothing would let one too many pass.
 */
static void ngx_http_weir_leave(void *data)
{
    ngx_http_request_t *r = data;
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (ctx == NULL || !ctx->waiting || ctx->give_back <= 0)
        return;
    ctx->waiting = 0;
    if (ctx->rules != ngx_http_weir_metrics_active_rules(r))
        return;
    weir_query query = {.has_cost = true, .cost = -ctx->give_back, .now = ctx->taken};
    weir_result result;
    if (ctx->not_taken) {
        query.not_taken = ctx->not_taken->id;
        query.not_taken_count = ctx->not_taken->count;
    }
    ngx_http_weir_describe(r, &query);
    int error = ngx_http_weir_check_detached(mcf, &query, &result);
    if (error)
        ngx_weir_log_limited(r->connection->log, error, "a place could not be given back", "");
}

ngx_int_t ngx_http_weir_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx, int64_t delay_ns)
{
    ngx_connection_t *c = r->connection;
    ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
    if (cleanup == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    cleanup->handler = ngx_http_weir_leave;
    cleanup->data = r;

    /* A client that goes away is noticed. */
    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    ctx->waiting = 1;
    ctx->rules = ngx_http_weir_metrics_active_rules(r);
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_weir_go_on;

    /* The timer counts from nginx's idea of now, which is as old as this turn of its loop. */
    ngx_time_update();
    c->write->delayed = 1;
    ngx_add_timer(c->write, (ngx_msec_t)(delay_ns / 1000000 + (delay_ns % 1000000 > 0)));
    return NGX_AGAIN;
}
