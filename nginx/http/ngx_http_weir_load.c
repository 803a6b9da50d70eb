/*
 * Reports to the agent, which computes the load level: requests in flight, and the responses of upstreams.
 *
 * A request is in flight from its admission (after its delay, if any) until nginx logs it, however it ends. Each worker
 * keeps its own count, so a killed worker leaves none behind.
 */
#include "ngx_http_weir.h"

#include <weir/load.h>

#define HEARTBEAT_MS 500

static weir_load_worker ngx_http_weir_load_worker;
static ngx_event_t ngx_http_weir_load_event;

__attribute__((hot)) void ngx_http_weir_load_begin(ngx_http_weir_main_conf_t *mcf, ngx_http_weir_ctx_t *ctx)
{
    if (!mcf->load || ctx->in_flight)
        return;
    ctx->in_flight = 1;
    weir_load_begin(mcf->engine, &ngx_http_weir_load_worker);
}

/*
 * Reports the response of one server. Its latency ends with the headers: the body also depends on the client. Upgraded
 * connections are no responses, and neither are those whose client has left.
 */
static void ngx_http_weir_load_response(ngx_http_request_t *r, weir *engine, const ngx_http_upstream_state_t *state)
{
    ngx_msec_t none = (ngx_msec_t)-1, took = state->header_time != none ? state->header_time : state->response_time;
    ngx_uint_t left = r->headers_out.status == NGX_HTTP_CLIENT_CLOSED_REQUEST;
    ngx_uint_t failed = state->status == 0 ? !left : state->status >= NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (state->peer == NULL || state->status == NGX_HTTP_SWITCHING_PROTOCOLS || took == none)
        return;
    weir_load_upstream(engine, &ngx_http_weir_load_worker, (int64_t)took * 1000000, failed);
}

ngx_int_t ngx_http_weir_load_log(ngx_http_request_t *r)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (r != r->main || ctx == NULL || !ctx->in_flight)
        return NGX_OK;
    ctx->in_flight = 0;
    weir_load_end(mcf->engine, &ngx_http_weir_load_worker);
    if (r->upstream_states == NULL)
        return NGX_OK;
    const ngx_http_upstream_state_t *state = r->upstream_states->elts;
    for (ngx_uint_t i = 0; i < r->upstream_states->nelts; i++)
        ngx_http_weir_load_response(r, mcf->engine, &state[i]);
    return NGX_OK;
}

/* A worker that shuts down keeps its heartbeat while it has requests. */
static void ngx_http_weir_load_heartbeat(ngx_event_t *event)
{
    weir_load_heartbeat(event->data, &ngx_http_weir_load_worker);
    ngx_add_timer(event, HEARTBEAT_MS);
}

void ngx_http_weir_load_start(ngx_http_weir_main_conf_t *mcf)
{
    if (!mcf->load)
        return;
    weir_load_join(mcf->engine, &ngx_http_weir_load_worker);
    ngx_weir_start_timer(&ngx_http_weir_load_event, ngx_http_weir_load_heartbeat, mcf->engine, HEARTBEAT_MS);
}

void ngx_http_weir_load_stop(ngx_http_weir_main_conf_t *mcf)
{
    if (mcf->load && mcf->engine)
        weir_load_leave(mcf->engine, &ngx_http_weir_load_worker);
}
