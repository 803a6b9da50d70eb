/* The dispatcher's lines for /metrics. */
#define _GNU_SOURCE /* open_memstream */
#include "queue/dispatcher_internal.h"
#include "base/sidecar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAITING, UNDER_WAY, DEAD, BYTES, OLDEST, GAUGES };

static const struct {
    const char *name, *help;
} gauges[GAUGES] = {
    {"weir_queue_waiting", "Deferred requests waiting."},
    {"weir_queue_under_way", "Deferred requests being delivered."},
    {"weir_queue_dead", "Deferred requests in the dead-letter state."},
    {"weir_queue_bytes", "Bytes of waiting and under-way requests."},
    {"weir_queue_oldest_seconds", "Age of the oldest waiting or under-way request."},
};

/* The lines of a metric must be adjacent, so each gauge is collected in its own buffer. */
struct gauge_text {
    FILE *to[GAUGES];
    int64_t now_ms, waiting;
};

static void label(FILE *to, weir_text rule)
{
    for (size_t i = 0; i < rule.len; i++) {
        char c = rule.data[i];
        if (c == '\\' || c == '"')
            fputc('\\', to);
        if (c == '\n')
            fputs("\\n", to);
        else if (c)
            fputc(c, to);
    }
}

static int write_rule(void *context, const struct weir__queue_stats *stats)
{
    struct gauge_text *gauge_text = context;
    int64_t oldest = stats->oldest_ms ? gauge_text->now_ms - stats->oldest_ms : 0;
    const int64_t values[GAUGES] = {stats->waiting, stats->under_way, stats->dead, stats->bytes,
                                    oldest < 0 ? 0 : oldest / 1000};
    for (int i = 0; i < GAUGES; i++) {
        fprintf(gauge_text->to[i], "%s{rule=\"", gauges[i].name);
        label(gauge_text->to[i], stats->rule);
        fprintf(gauge_text->to[i], "\"} %" PRId64 "\n", values[i]);
    }
    gauge_text->waiting += stats->waiting;
    return 0;
}

static void counters(FILE *to, const struct weir__dispatcher_counts *counts)
{
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } lines[] = {
        {"weir_queue_dispatching", "gauge",
         "1: this host's agent delivers; 0: it is on standby, or the queue is unavailable.", counts->active},
        {"weir_queue_standby", "gauge", "1: another host's agent delivers.", counts->standby},
        {"weir_queue_accepted_total", "counter", "Requests enqueued.", counts->accepted},
        {"weir_queue_refused_total", "counter",
         "Requests denied instead of enqueued: queue full or unavailable, or request not accepted.", counts->refused},
        {"weir_queue_delivered_total", "counter", "Deferred requests delivered.", counts->delivered},
        {"weir_queue_attempts_total", "counter", "Delivery attempts.", counts->attempts},
        {"weir_queue_failed_attempts_total", "counter", "Delivery attempts without a final status.", counts->failed},
        {"weir_queue_dead_letters_total", "counter", "Deferred requests dead-lettered after a delivery attempt.",
         counts->dead},
        {"weir_queue_requeued_total", "counter", "Claimed requests requeued because a rule denied them.",
         counts->requeued},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        fprintf(to, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", lines[i].name, lines[i].help, lines[i].name,
                lines[i].type, lines[i].name, lines[i].value);
}

int weir__dispatcher_write_stats(struct weir__queue *queue, const struct weir__dispatcher_counts *counts,
                                 int64_t now_ms, const char *path, int64_t *waiting)
{
    struct gauge_text gauge_text = {.now_ms = now_ms};
    char *part[GAUGES] = {0}, *all = NULL;
    size_t len[GAUGES], all_len = 0;
    bool good = true;
    int error = 0;
    for (int i = 0; i < GAUGES; i++)
        good = (gauge_text.to[i] = open_memstream(&part[i], &len[i])) != NULL && good;
    if (good)
        error = weir__queue_stats(queue, write_rule, &gauge_text);
    for (int i = 0; i < GAUGES; i++)
        good = gauge_text.to[i] && fclose(gauge_text.to[i]) == 0 && good;
    FILE *to = good && !error && path ? open_memstream(&all, &all_len) : NULL;
    for (int i = 0; to && i < GAUGES; i++)
        if (len[i])
            fprintf(to, "# HELP %s %s\n# TYPE %s gauge\n%s", gauges[i].name, gauges[i].help, gauges[i].name, part[i]);
    if (to) {
        counters(to, counts);
        good = fclose(to) == 0 && weir__sidecar_write(path, all, all_len);
    }
    *waiting = gauge_text.waiting;
    free(all);
    for (int i = 0; i < GAUGES; i++)
        free(part[i]);
    return error ? error : good ? 0 : 1;
}
