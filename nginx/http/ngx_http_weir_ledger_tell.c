/* What is told of the agent and of the ledger that it tells the store from: in weir_status, and in the metrics. */
#include "ngx_http_weir.h"

#include <weir/store.h>

/* Names and values at once: the values are those of `stats`. */
typedef struct {
    const char *status, *metric, *kind, *help;
    uint64_t value;
} ngx_http_weir_ledger_figure_t;

enum { FIGURES = 12 };

static void ngx_http_weir_ledger_figures(const weir_ledger_stats *stats, ngx_http_weir_ledger_figure_t figure[FIGURES])
{
    const ngx_http_weir_ledger_figure_t all[FIGURES] = {
        {"exchanges", "weir_ledger_exchanges_total", "counter", "Questions of the agent to the store.",
         stats->exchanges},
        {"failures", "weir_ledger_failures_total", "counter", "Those without an answer.", stats->failures},
        {"asks", "weir_ledger_asks_total", "counter", "Counters that the agent asked for.", stats->asks},
        {"told", "weir_ledger_told_total", "counter", "Units that this host let pass and the store knows.",
         stats->told},
        {"applied", "weir_ledger_applied_total", "counter", "Units that others let pass and this host knows.",
         stats->applied},
        {"given_back", "weir_ledger_gave_back_total", "counter", "Units by which this host was behind the store.",
         stats->given_back},
        {"dropped", "weir_ledger_dropped_total", "counter",
         "Units of windows that were over, or of rules that are gone.", stats->dropped},
        {"full", "weir_ledger_full_total", "counter", "Amounts that found no room in the ledger and stayed here.",
         stats->full},
        {"bytes_out", "weir_ledger_sent_bytes_total", "counter", "Bytes that the agent sent.", stats->bytes_out},
        {"bytes_in", "weir_ledger_received_bytes_total", "counter", "Bytes that the agent received.", stats->bytes_in},
        {"entries", "weir_ledger_entries", "gauge", "Keys that fit into the ledger.", stats->entries},
        {"used", "weir_ledger_used_entries", "gauge", "Keys in the ledger, as of the agent's last look.", stats->used},
    };
    ngx_memcpy(figure, all, sizeof(all));
}

void ngx_http_weir_ledger_status(ngx_http_weir_text_t *text, weir *engine)
{
    static const char *const states[] = {"unknown", "up", "down"};
    ngx_http_weir_ledger_figure_t figure[FIGURES];
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_ledger_figures(&stats, figure);
    ngx_http_weir_text_add(text, ",\n\"ledger\":{\"agent\":%s,\"store\":\"%s\",\"lag_ms\":%L",
                           stats.agent ? "true" : "false", states[stats.store], (int64_t)(stats.lag_ns / 1000000));
    if (stats.last_error)
        ngx_http_weir_text_add(text, ",\"last_error\":\"%s\"", weir_error_name(stats.last_error));
    for (ngx_uint_t i = 0; i < FIGURES; i++)
        ngx_http_weir_text_add(text, ",\"%s\":%uL", figure[i].status, figure[i].value);
    ngx_http_weir_text_add(text, "}");
}

void ngx_http_weir_ledger_metrics(ngx_http_weir_text_t *text, weir *engine)
{
    static const char up[] = "weir_agent_up", lag[] = "weir_ledger_lag_seconds";
    ngx_http_weir_ledger_figure_t figure[FIGURES];
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_ledger_figures(&stats, figure);
    ngx_http_weir_text_add(text, "# HELP %s An agent runs, and reaches the store.\n# TYPE %s gauge\n%s %d\n", up, up,
                           up, stats.agent && stats.store == WEIR_STORE_UP);
    ngx_http_weir_text_add(text,
                           "# HELP %s For how long the oldest amount has not been told.\n# TYPE %s gauge\n%s %.3f\n",
                           lag, lag, lag, (double)stats.lag_ns / 1e9);
    for (ngx_uint_t i = 0; i < FIGURES; i++)
        ngx_http_weir_text_add(text, "# HELP %s %s\n# TYPE %s %s\n%s %uL\n", figure[i].metric, figure[i].help,
                               figure[i].metric, figure[i].kind, figure[i].metric, figure[i].value);
}
