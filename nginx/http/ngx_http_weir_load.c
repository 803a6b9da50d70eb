/*
 * The load level: the worker reports its upstreams to the agent, and formats the level for the status page and the
 * metrics.
 *
 * A request is in flight from its admission (after its delay, if any) until nginx logs it, however it ends. Each worker
 * keeps its own count, so a killed worker leaves none behind.
 */
#include "ngx_http_weir.h"

#include <weir/load.h>

#define HEARTBEAT_MS 500

static weir_load_worker ngx_http_weir_load_worker;
static ngx_event_t ngx_http_weir_load_event;

/* ---- Reports to the agent ---- */

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

static ngx_int_t ngx_http_weir_load_log(ngx_http_request_t *r)
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

ngx_int_t ngx_http_weir_load_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    if (!mcf->load)
        return NGX_OK;
    ngx_http_handler_pt *handler = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (handler == NULL)
        return NGX_ERROR;
    *handler = ngx_http_weir_load_log;
    return NGX_OK;
}

/* A worker that shuts down keeps its heartbeat while it has requests. */
static void ngx_http_weir_load_heartbeat(ngx_event_t *event)
{
    weir_load_heartbeat(event->data, &ngx_http_weir_load_worker);
    ngx_add_timer(event, HEARTBEAT_MS);
}

void ngx_http_weir_load_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf)
{
    ngx_event_t *event = &ngx_http_weir_load_event;
    if (!mcf->load)
        return;
    weir_load_join(mcf->engine, &ngx_http_weir_load_worker);
    event->handler = ngx_http_weir_load_heartbeat;
    event->data = mcf->engine;
    event->log = cycle->log;
    event->cancelable = 1;
    ngx_add_timer(event, HEARTBEAT_MS);
}

void ngx_http_weir_load_stop(ngx_http_weir_main_conf_t *mcf)
{
    if (mcf->load && mcf->engine)
        weir_load_leave(mcf->engine, &ngx_http_weir_load_worker);
}

/* ---- Status and metrics ---- */

static double ngx_http_weir_percent(int per_mille)
{
    return (double)per_mille / 10;
}

void ngx_http_weir_load_metrics(ngx_http_weir_text_t *text, weir *engine)
{
    static const char up[] = "weir_load_known", level[] = "weir_load_level", throttle[] = "weir_load_throttle",
                      signal[] = "weir_load_signal", shed[] = "weir_load_shed", flight[] = "weir_load_in_flight";
    weir_load load;
    if (weir_load_read(engine, &load) != 0)
        return;
    ngx_http_weir_text_add(
        text, "# HELP %s 1 if the agent publishes the load level, 0 if it is unknown.\n# TYPE %s gauge\n%s %d\n", up,
        up, up, load.known);
    ngx_http_weir_text_add(text, "# HELP %s Load level of the host, 0 to 100.\n# TYPE %s gauge\n%s %.1f\n", level,
                           level, level, ngx_http_weir_percent(load.level));
    ngx_http_weir_text_add(text,
                           "# HELP %s Position of adaptive limits between their min (0) and their max (100).\n"
                           "# TYPE %s gauge\n%s %.1f\n",
                           throttle, throttle, throttle, ngx_http_weir_percent(load.throttle));
    ngx_http_weir_text_add(text, "# HELP %s Level of each signal, 0 to 100; the highest counts.\n# TYPE %s gauge\n",
                           signal, signal);
    for (int i = 0; weir_load_signal_name(i); i++)
        if (load.signal[i] >= 0)
            ngx_http_weir_text_add(text, "%s{signal=\"%s\"} %.1f\n", signal, weir_load_signal_name(i),
                                   ngx_http_weir_percent(load.signal[i]));
    ngx_http_weir_text_add(
        text, "# HELP %s Share of the requests of a class that is shed, in per cent.\n# TYPE %s gauge\n", shed, shed);
    for (int i = 0; weir_load_class_name(i); i++)
        ngx_http_weir_text_add(text, "%s{class=\"%s\"} %.1f\n", shed, weir_load_class_name(i),
                               ngx_http_weir_percent(load.shed[i]));
    ngx_http_weir_text_add(text, "# HELP %s Requests in flight.\n# TYPE %s gauge\n%s %uL\n", flight, flight, flight,
                           load.in_flight);
}

void ngx_http_weir_load_status(ngx_http_weir_text_t *text, weir *engine)
{
    weir_load load;
    if (weir_load_read(engine, &load) != 0)
        return;
    ngx_http_weir_text_add(text,
                           ",\n\"load\":{\"known\":%s,\"level\":%.1f,\"throttle\":%.1f,\"in_flight\":%uL,\"signals\":{",
                           load.known ? "true" : "false", ngx_http_weir_percent(load.level),
                           ngx_http_weir_percent(load.throttle), load.in_flight);
    const char *comma = "";
    for (int i = 0; weir_load_signal_name(i); i++) {
        if (load.signal[i] < 0)
            continue;
        ngx_http_weir_text_add(text, "%s\"%s\":%.1f", comma, weir_load_signal_name(i),
                               ngx_http_weir_percent(load.signal[i]));
        comma = ",";
    }
    ngx_http_weir_text_add(text, "},\"shed\":{");
    for (int i = 0; weir_load_class_name(i); i++)
        ngx_http_weir_text_add(text, "%s\"%s\":%.1f", i ? "," : "", weir_load_class_name(i),
                               ngx_http_weir_percent(load.shed[i]));
    ngx_http_weir_text_add(text, "}}");
}
