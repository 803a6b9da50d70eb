/*
 * Metrics and status of the agent: its exchange of the delta ledger with the store, and the lines about deferred
 * requests and hosts that it writes every second or two into sidecar files of the segment.
 */
#include "ngx_http_weir.h"
#include "engine/mapped_file.h"

#include <weir/store.h>

#define SIDECAR_BYTES_MAX (1024 * 1024)
#define QUEUE_STALE       5  /* seconds after which the agent's queue metrics are outdated: it delivers nothing */
#define HOSTS_STALE       15 /* seconds after which the agent's count of hosts is outdated */

/* ---- The delta ledger ---- */

/* One value of weir_ledger_stats: its name in weir_status, and its metric. */
typedef struct {
    const char *status, *metric, *kind, *help;
    uint64_t value;
} ngx_http_weir_sync_stat_t;

enum { SYNC_STATS = 12 };

static void ngx_http_weir_sync_stats(const weir_ledger_stats *stats, ngx_http_weir_sync_stat_t stat[SYNC_STATS])
{
    const ngx_http_weir_sync_stat_t all[SYNC_STATS] = {
        {"requests", "weir_sync_requests_total", "counter", "Requests of the agent to the store.", stats->requests},
        {"failures", "weir_sync_failures_total", "counter", "Requests of the agent to the store without a reply.",
         stats->failures},
        {"ops", "weir_sync_ops_total", "counter", "Operations on counters in the agent's requests.", stats->ops},
        {"units_sent", "weir_sync_units_sent_total", "counter",
         "Units that this host admitted and the store acknowledged.", stats->units_sent},
        {"units_received", "weir_sync_units_received_total", "counter",
         "Units that other hosts admitted and this host charged to its counters.", stats->units_received},
        {"units_refunded", "weir_sync_units_refunded_total", "counter",
         "Units refunded to this host's counters, which had counted more than the store.", stats->units_refunded},
        {"units_dropped", "weir_sync_units_dropped_total", "counter",
         "Units not sent because their window had ended or their rule was removed.", stats->units_dropped},
        {"full", "weir_ledger_full_total", "counter", "Amounts kept local because the ledger was full.", stats->full},
        {"bytes_out", "weir_sync_sent_bytes_total", "counter", "Bytes that the agent sent to the store.",
         stats->bytes_out},
        {"bytes_in", "weir_sync_received_bytes_total", "counter", "Bytes that the agent received from the store.",
         stats->bytes_in},
        {"entries", "weir_ledger_entries", "gauge", "Capacity of the ledger in keys.", stats->entries},
        {"used", "weir_ledger_used_entries", "gauge", "Keys in the ledger at the agent's last scan.", stats->used},
    };
    ngx_memcpy(stat, all, sizeof(all));
}

void ngx_http_weir_ledger_status(ngx_http_weir_text_t *text, weir *engine)
{
    static const char *const states[] = {"unknown", "up", "down"};
    ngx_http_weir_sync_stat_t stat[SYNC_STATS];
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_sync_stats(&stats, stat);
    ngx_http_weir_text_add(text, ",\n\"ledger\":{\"agent\":%s,\"store\":\"%s\",\"lag_ms\":%L",
                           stats.agent ? "true" : "false", states[stats.store], (int64_t)(stats.lag_ns / 1000000));
    if (stats.last_error)
        ngx_http_weir_text_add(text, ",\"last_error\":\"%s\"", weir_error_name(stats.last_error));
    for (ngx_uint_t i = 0; i < SYNC_STATS; i++)
        ngx_http_weir_text_add(text, ",\"%s\":%uL", stat[i].status, stat[i].value);
    ngx_http_weir_text_add(text, "}");
}

void ngx_http_weir_ledger_metrics(ngx_http_weir_text_t *text, weir *engine)
{
    static const char up[] = "weir_agent_up", lag[] = "weir_sync_lag_seconds";
    ngx_http_weir_sync_stat_t stat[SYNC_STATS];
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_sync_stats(&stats, stat);
    ngx_http_weir_text_add(text,
                           "# HELP %s 1 if an agent runs and reaches the store, else 0.\n# TYPE %s gauge\n%s %d\n", up,
                           up, up, stats.agent && stats.store == WEIR_STORE_UP);
    ngx_http_weir_text_add(
        text, "# HELP %s Age of the oldest amount that the store has not acknowledged.\n# TYPE %s gauge\n%s %.3f\n",
        lag, lag, lag, (double)stats.lag_ns / 1e9);
    for (ngx_uint_t i = 0; i < SYNC_STATS; i++)
        ngx_http_weir_text_add(text, "# HELP %s %s\n# TYPE %s %s\n%s %uL\n", stat[i].metric, stat[i].help,
                               stat[i].metric, stat[i].kind, stat[i].metric, stat[i].value);
}

/* ---- Sidecar files ---- */

/* Opens a sidecar file; refuses one that another user owns, whose lines would pass for the agent's. */
static ngx_fd_t ngx_http_weir_sidecar_open(const ngx_http_weir_main_conf_t *mcf, const char *ending)
{
    char path[NGX_MAX_PATH];
    if (mcf->segment == NULL || mcf->segment_path.len + ngx_strlen(ending) + 1 > sizeof(path))
        return NGX_INVALID_FILE;
    (void)ngx_sprintf((u_char *)path, "%V%s%Z", &mcf->segment_path, ending);
    ngx_fd_t file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file == NGX_INVALID_FILE || weir__file_is_trusted(file, path, weir__segment_owner(mcf->segment)))
        return file;
    (void)ngx_close_file(file);
    return NGX_INVALID_FILE;
}

/* Copies the lines of a sidecar file; `fallback` if the agent has not written it for stale_s seconds. */
static void ngx_http_weir_sidecar_copy(ngx_http_weir_text_t *text, const ngx_http_weir_main_conf_t *mcf,
                                       const char *ending, time_t stale_s, const char *fallback)
{
    u_char part[1000]; /* the most that ngx_http_weir_text_add formats at once */
    ngx_file_info_t info;
    ssize_t len;
    ngx_fd_t file = ngx_http_weir_sidecar_open(mcf, ending);
    if (file == NGX_INVALID_FILE)
        return;
    if (ngx_fd_info(file, &info) == 0 && ngx_is_file(&info) && ngx_file_size(&info) <= SIDECAR_BYTES_MAX) {
        if (ngx_time() - ngx_file_mtime(&info) > stale_s)
            ngx_http_weir_text_add(text, "%s", fallback);
        else
            while ((len = read(file, part, sizeof(part))) > 0)
                ngx_http_weir_text_add(text, "%*s", (size_t)len, part);
    }
    (void)ngx_close_file(file);
}

void ngx_http_weir_agent_metrics(ngx_http_weir_text_t *text, const ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_sidecar_copy(
        text, mcf, ".queue", QUEUE_STALE,
        "# HELP weir_queue_dispatching 1 if this host's agent delivers deferred requests, else 0.\n"
        "# TYPE weir_queue_dispatching gauge\nweir_queue_dispatching 0\n");
    ngx_http_weir_sidecar_copy(text, mcf, ".hosts.lines", HOSTS_STALE, "");
}
