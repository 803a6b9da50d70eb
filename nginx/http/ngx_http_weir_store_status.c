/* The store in weir_status and in the metrics: sums over all workers. */
#include "ngx_http_weir.h"

/* In the order of struct weir__client_stats. */
static const struct {
    const char *status, *metric, *help;
} ngx_http_weir_store_totals[NGX_WEIR_STORE_TOTALS] = {
    {"requests", "weir_store_requests_total", "Requests to the store."},
    {"replies", "weir_store_replies_total", "Requests to the store that got a reply."},
    {"failed", NULL, NULL}, /* the metrics have failures by reason */
    {"slow", NULL, NULL},
    {"refused", NULL, NULL},
    {"commands", "weir_store_commands_total", "Commands sent to the store; one carries many requests."},
    {"bytes_out", "weir_store_sent_bytes_total", "Bytes sent to the store."},
    {"bytes_in", "weir_store_received_bytes_total", "Bytes received from the store."},
    {"connects", "weir_store_connects_total", "Connections opened to servers of the store."},
    {"disconnects", "weir_store_disconnects_total", "Connections to servers of the store that were closed."},
    {"script_loads", "weir_store_script_loads_total", "Times the script was loaded into a server."},
    {"redirects", "weir_store_redirects_total", "Requests that a cluster redirected to another server."},
    {"refunds", "weir_store_refunds_total", "Counters of the store that were refunded."},
    {"breaker_opened", "weir_store_breaker_opened_total", "Times the circuit breaker opened."},
};

void ngx_http_weir_store_status(ngx_http_weir_text_t *text, const ngx_weir_store_t *store)
{
    ngx_weir_store_sum_t sum;
    char reason[32];
    const char *shown = ngx_weir_store_shown(store);
    ngx_weir_store_sum(store, &sum);
    ngx_http_weir_text_add(text, ",\n\"store\":{\"url\":");
    ngx_http_weir_text_add_string(text, shown, ngx_strlen(shown));
    ngx_http_weir_text_add(text, ",\"up\":%s,\"workers\":%ui,\"workers_without\":%ui", sum.down ? "false" : "true",
                           sum.workers, sum.down);
    if (sum.down)
        ngx_http_weir_text_add(text, ",\"why\":\"%s\"", weir_error_name(sum.error));
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_TOTALS; i++)
        ngx_http_weir_text_add(text, ",\"%s\":%uL", ngx_http_weir_store_totals[i].status, sum.totals[i]);
    ngx_http_weir_text_add(text, ",\"failures\":{");
    for (ngx_uint_t i = 0, written = 0; i < NGX_WEIR_STORE_REASONS; i++)
        if (sum.failures[i])
            ngx_http_weir_text_add(text, "%s\"%s\":%uL", written++ ? "," : "", ngx_weir_store_reason(i, reason),
                                   sum.failures[i]);
    ngx_http_weir_text_add(text, "}}");
}

void ngx_http_weir_store_metrics(ngx_http_weir_text_t *text, const ngx_weir_store_t *store)
{
    static const char up[] = "weir_store_up", failures[] = "weir_store_failures_total";
    ngx_weir_store_sum_t sum;
    char reason[32];
    ngx_weir_store_sum(store, &sum);
    ngx_http_weir_text_add(text, "# HELP %s 1: no worker has an open circuit breaker.\n# TYPE %s gauge\n%s %d\n", up,
                           up, up, sum.down == 0);
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_TOTALS; i++) {
        const char *name = ngx_http_weir_store_totals[i].metric;
        if (name)
            ngx_http_weir_text_add(text, "# HELP %s %s\n# TYPE %s counter\n%s %uL\n", name,
                                   ngx_http_weir_store_totals[i].help, name, name, sum.totals[i]);
    }
    ngx_http_weir_text_add(text, "# HELP %s Requests to the store without a reply, by reason.\n# TYPE %s counter\n",
                           failures, failures);
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_REASONS; i++)
        ngx_http_weir_text_add(text, "%s{reason=\"%s\"} %uL\n", failures, ngx_weir_store_reason(i, reason),
                               sum.failures[i]);
}
