/* What is told of the store: in weir_status, and in the metrics. Everything is the sum over all workers. */
#include "ngx_http_weir.h"

/* In the order of struct weir__client_stats. */
static const struct {
    const char *status, *metric, *help;
} ngx_http_weir_store_totals[NGX_WEIR_STORE_TOTALS] = {
    {"questions", "weir_store_questions_total", "Questions to the store."},
    {"answered", "weir_store_answered_total", "Questions that got their answer."},
    {"failed", NULL, NULL}, /* the metrics have them by reason */
    {"slow", NULL, NULL},
    {"refused", NULL, NULL},
    {"commands", "weir_store_commands_total", "Commands sent to the store; one carries many questions."},
    {"bytes_out", "weir_store_sent_bytes_total", "Bytes sent to the store."},
    {"bytes_in", "weir_store_received_bytes_total", "Bytes received from the store."},
    {"connects", "weir_store_connects_total", "Connections to servers of the store that came about."},
    {"disconnects", "weir_store_disconnects_total", "Connections to servers of the store that ended."},
    {"script_loads", "weir_store_script_loads_total", "Times a server did not know the script and was told."},
    {"redirects", "weir_store_redirects_total", "Questions that a cluster sent on to another server."},
    {"gave_back", "weir_store_gave_back_total", "Counters of the store that got back what was taken and not used."},
    {"breaker_opened", "weir_store_breaker_opened_total", "Times a worker took the store for away."},
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
    for (ngx_uint_t i = 0, told = 0; i < NGX_WEIR_STORE_REASONS; i++)
        if (sum.failures[i])
            ngx_http_weir_text_add(text, "%s\"%s\":%uL", told++ ? "," : "", ngx_weir_store_reason(i, reason),
                                   sum.failures[i]);
    ngx_http_weir_text_add(text, "}}");
}

void ngx_http_weir_store_metrics(ngx_http_weir_text_t *text, const ngx_weir_store_t *store)
{
    static const char up[] = "weir_store_up", failures[] = "weir_store_failures_total";
    ngx_weir_store_sum_t sum;
    char reason[32];
    ngx_weir_store_sum(store, &sum);
    ngx_http_weir_text_add(text, "# HELP %s No worker takes the store for away.\n# TYPE %s gauge\n%s %d\n", up, up, up,
                           sum.down == 0);
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_TOTALS; i++) {
        const char *name = ngx_http_weir_store_totals[i].metric;
        if (name)
            ngx_http_weir_text_add(text, "# HELP %s %s\n# TYPE %s counter\n%s %uL\n", name,
                                   ngx_http_weir_store_totals[i].help, name, name, sum.totals[i]);
    }
    ngx_http_weir_text_add(text, "# HELP %s Questions without an answer, by reason.\n# TYPE %s counter\n", failures,
                           failures);
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_REASONS; i++)
        ngx_http_weir_text_add(text, "%s{reason=\"%s\"} %uL\n", failures, ngx_weir_store_reason(i, reason),
                               sum.failures[i]);
}
