/*
 * The handlers of weir_status (JSON) and weir_metrics (Prometheus' text format): segment, rules, decisions, store,
 * agent and load. Values from shared memory are sums over all processes; values that only the responding worker has
 * carry the label `worker`. Labels are names of rules, decisions and priorities, never keys, so that only the rules
 * determine the number of lines.
 */
#include "ngx_http_weir.h"
#include "engine/denial_recorder.h"

#include <inttypes.h>
#include <weir/load.h>
#include <weir/store.h>

#define SAMPLED_SLOTS     16384
#define SIDECAR_BYTES_MAX (1024 * 1024)
#define QUEUE_STALE       5  /* seconds after which the agent's queue metrics are outdated: it delivers nothing */
#define HOSTS_STALE       15 /* seconds after which the agent's count of hosts is outdated */

/* ---- Lines of metrics ---- */

/* Begins a metric. Counters, and only they, are called …_total. */
static void ngx_http_weir_family(struct weir__buffer *text, const char *name, const char *help)
{
    size_t len = ngx_strlen(name);
    const char *type = len > 6 && ngx_strcmp(name + len - 6, "_total") == 0 ? "counter" : "gauge";
    weir__buffer_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void ngx_http_weir_number(struct weir__buffer *text, const char *name, const char *help, uint64_t value)
{
    ngx_http_weir_family(text, name, help);
    weir__buffer_printf(text, "%s %" PRIu64 "\n", name, value);
}

static void ngx_http_weir_decimal(struct weir__buffer *text, const char *name, const char *help, int decimals,
                                  double value)
{
    ngx_http_weir_family(text, name, help);
    weir__buffer_printf(text, "%s %.*f\n", name, decimals, value);
}

/* A number of the statistics: its name in weir_status, where it is, and its metric; either name may be NULL. */
typedef struct {
    const char *status;
    size_t offset; /* of the uint64_t */
    const char *metric, *help;
} ngx_http_weir_stat_t;

/* Its name in weir_status is that of the field. */
#define STAT(type, name) #name, offsetof(type, name)

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static uint64_t ngx_http_weir_value_at(const void *stats, size_t offset)
{
    return *(const uint64_t *)((const char *)stats + offset);
}

/* Adds the members of a JSON object, each after a comma. */
static void ngx_http_weir_add_members(struct weir__buffer *text, const ngx_http_weir_stat_t *table, size_t count,
                                      const void *stats)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].status)
            weir__buffer_printf(text, ",\"%s\":%" PRIu64, table[i].status,
                                ngx_http_weir_value_at(stats, table[i].offset));
}

static void ngx_http_weir_add_metrics(struct weir__buffer *text, const ngx_http_weir_stat_t *table, size_t count,
                                      const void *stats)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].metric)
            ngx_http_weir_number(text, table[i].metric, table[i].help, ngx_http_weir_value_at(stats, table[i].offset));
}

/* ---- Segment ---- */

/* The share of slots with a key that has not expired, from a sample. False: unknown. */
static bool ngx_http_weir_fill(const weir_segment *segment, double *ratio)
{
    uint64_t sampled = 0, live = 0;
    bool known = weir_segment_sample(segment, weir_clock(segment), SAMPLED_SLOTS, &sampled, &live) == 0 && sampled;
    *ratio = known ? (double)live / (double)sampled : 0;
    return known;
}

static const ngx_http_weir_stat_t ngx_http_weir_key_stats[] = {
    {STAT(weir_stats, bytes), "weir_segment_bytes", "Size of the segment."},
    {STAT(weir_stats, slots), "weir_segment_slots", "Keys that the segment has room for."},
    {STAT(weir_stats, created), "weir_keys_created_total", "Keys that got a slot."},
    {STAT(weir_stats, evicted_live), "weir_evicted_live_total",
     "Keys evicted before they expired: the segment is too small."},
    {STAT(weir_stats, evicted_denied), "weir_evicted_denied_total",
     "Evicted keys that were denied or blocked: their limits were reset."},
    {STAT(weir_stats, slab_full), "weir_slab_full_total",
     "Requests for a log or wide counter that found the slab full."},
    {STAT(weir_stats, displaced), NULL, NULL},
    {STAT(weir_stats, retries), NULL, NULL},
};
static const ngx_http_weir_stat_t ngx_http_weir_decision_stats[] = {
    {STAT(weir_stats, delayed), NULL, NULL},
    {STAT(weir_stats, denied), NULL, NULL},
    {STAT(weir_stats, never_fits), "weir_never_fits_total", "Requests whose cost exceeds the limit's capacity."},
    {STAT(weir_stats, blocked), "weir_blocked_total", "Requests of keys that an operator blocked."},
    {STAT(weir_stats, soft), "weir_soft_total", "Requests over the limit that `soft` allowed."},
    {STAT(weir_stats, errors), "weir_errors_total", "Operations on counters that failed."},
    {NULL, offsetof(weir_stats, auth_failures), "weir_auth_failures_total", "Requests with a wrong password or token."},
};

static void ngx_http_weir_status_segment(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf)
{
    double ratio;
    weir_stats stats;
    weir__buffer_add_literal(text, "\"segment\":{\"path\":");
    weir__json_add_string(text, weir__text_of((const char *)mcf->segment_path.data));
    if (weir_stats_read(mcf->segment, &stats) == 0) {
        if (ngx_http_weir_fill(mcf->segment, &ratio))
            weir__buffer_printf(text, ",\"fill\":%.6f", ratio);
        if (weir_segment_lost(mcf->segment))
            weir__buffer_add_literal(text, ",\"lost\":true");
        ngx_http_weir_add_members(text, ngx_http_weir_key_stats, COUNT(ngx_http_weir_key_stats), &stats);
        weir__buffer_printf(text, "},\"decisions\":{\"allowed\":%" PRIu64, stats.allowed);
        ngx_http_weir_add_members(text, ngx_http_weir_decision_stats, COUNT(ngx_http_weir_decision_stats), &stats);
    }
    weir__buffer_add_literal(text, "}");
}

static void ngx_http_weir_metrics_segment(struct weir__buffer *text, const weir_segment *segment)
{
    double ratio;
    weir_stats stats;
    if (weir_stats_read(segment, &stats) != 0)
        return;
    if (ngx_http_weir_fill(segment, &ratio))
        ngx_http_weir_decimal(text, "weir_segment_fill_ratio",
                              "Ratio of slots with a key that has not expired, from a sample.", 4, ratio);
    ngx_http_weir_number(text, "weir_segment_lost",
                         "1 if the segment's file was truncated while the responding worker had it mapped.",
                         weir_segment_lost(segment) ? 1 : 0);
    ngx_http_weir_add_metrics(text, ngx_http_weir_key_stats, COUNT(ngx_http_weir_key_stats), &stats);
    ngx_http_weir_add_metrics(text, ngx_http_weir_decision_stats, COUNT(ngx_http_weir_decision_stats), &stats);
}

/* ---- Decisions by rule ---- */

static int ngx_http_weir_status_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    static const ngx_http_weir_stat_t table[] = {
        {STAT(weir_rule_stats, allowed), NULL, NULL},     {STAT(weir_rule_stats, delayed), NULL, NULL},
        {STAT(weir_rule_stats, denied), NULL, NULL},      {STAT(weir_rule_stats, listed), NULL, NULL},
        {STAT(weir_rule_stats, missing_key), NULL, NULL}, {STAT(weir_rule_stats, failures), NULL, NULL},
        {STAT(weir_rule_stats, rolled_back), NULL, NULL}, {STAT(weir_rule_stats, shed), NULL, NULL},
        {STAT(weir_rule_stats, warnings), NULL, NULL}};
    struct weir__buffer *text = context;
    if (text->failed)
        return 1;
    weir__buffer_printf(text, "%s{\"name\":", text->data[text->len - 1] == '[' ? "" : ",\n");
    weir__json_add_string(text, weir__text_of(info->name));
    if (info->domain) {
        weir__buffer_add_literal(text, ",\"domain\":");
        weir__json_add_string(text, weir__text_of(info->domain));
    }
    if (info->shadow)
        weir__buffer_add_literal(text, ",\"shadow\":true");
    ngx_http_weir_add_members(text, table, COUNT(table), stats);
    weir__buffer_add_literal(text, "}");
    return 0;
}

/* Counters of a rule. All lines of one name must be adjacent, so the rules are visited once for each name. */
static const struct {
    const char *name, *help;
    const char *more; /* one more label, or "" */
    size_t offset;
} ngx_http_weir_families[] = {
    {"weir_decisions_total", "Decisions by rule; those of a shadow rule are not enforced.", ",decision=\"allow\"",
     offsetof(weir_rule_stats, allowed)},
    {"weir_decisions_total", NULL, ",decision=\"delay\"", offsetof(weir_rule_stats, delayed)},
    {"weir_decisions_total", NULL, ",decision=\"deny\"", offsetof(weir_rule_stats, denied)},
    {"weir_shed_total", "Requests shed under overload, by priority; not among weir_decisions_total.",
     ",class=\"critical\"", offsetof(weir_rule_stats, shed_of[WEIR_CRITICAL])},
    {"weir_shed_total", NULL, ",class=\"high\"", offsetof(weir_rule_stats, shed_of[WEIR_HIGH])},
    {"weir_shed_total", NULL, ",class=\"normal\"", offsetof(weir_rule_stats, shed_of[WEIR_NORMAL])},
    {"weir_shed_total", NULL, ",class=\"low\"", offsetof(weir_rule_stats, shed_of[WEIR_LOW])},
    {"weir_listed_total", "Requests decided by an allow- or block-list.", "", offsetof(weir_rule_stats, listed)},
    {"weir_missing_key_total", "Requests without one of the attributes of the rule's key.", "",
     offsetof(weir_rule_stats, missing_key)},
    {"weir_failures_total", "Requests decided by the rule's on_store_failure.", "",
     offsetof(weir_rule_stats, failures)},
    {"weir_warnings_total", "Keys that reached the rule's warn_at, once a window each; exact.", "",
     offsetof(weir_rule_stats, warnings)},
    {"weir_rollbacks_total", "Units taken and rolled back because another rule denied the request.", "",
     offsetof(weir_rule_stats, rolled_back)},
};

enum { FAMILIES = COUNT(ngx_http_weir_families) };

enum { LIMIT, WINDOW, KEYS, NEAR_LIMIT, PEAK_USAGE, GAUGES };

static const struct {
    const char *name, *help;
} ngx_http_weir_gauges[GAUGES] = {
    {"weir_rule_limit", "Limit of the rule's default tier, in units a window."},
    {"weir_rule_window_seconds", "Length of the window of weir_rule_limit; absent for calendar windows."},
    {"weir_rule_keys", "Estimated number of keys in the last ten minutes, where hot keys are sampled."},
    {"weir_rule_keys_near_limit",
     "Sampled keys that used 80 % of their limit or more; at most 64. Of limits below 250 many are "
     "missed: weir_warnings_total is exact."},
    {"weir_rule_peak_usage_ratio", "Highest usage of a key in the last one to two minutes, as a ratio of its limit."},
};

/* A visit of all rules for one name. */
typedef struct {
    struct weir__buffer *text;
    ngx_uint_t index; /* the first entry with this name in the table of families, or the gauge's */
    ngx_flag_t begun; /* of a gauge: HELP and TYPE are written before the first line */
} ngx_http_weir_walk_t;

static int ngx_http_weir_metrics_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    const ngx_http_weir_walk_t *walk = context;
    const char *name = ngx_http_weir_families[walk->index].name;
    char rule[2 * WEIR_NAME_MAX + 1];
    weir__escape_label(weir__text_of(info->name), rule, sizeof rule);
    for (ngx_uint_t i = walk->index; i < FAMILIES && ngx_strcmp(ngx_http_weir_families[i].name, name) == 0; i++)
        weir__buffer_printf(walk->text, "%s{rule=\"%s\"%s,shadow=\"%s\"} %" PRIu64 "\n", name, rule,
                            ngx_http_weir_families[i].more, info->shadow ? "true" : "false",
                            ngx_http_weir_value_at(stats, ngx_http_weir_families[i].offset));
    return walk->text->failed;
}

static int ngx_http_weir_gauge(ngx_http_weir_walk_t *walk, const weir_rule_info *info, double value)
{
    const char *name = ngx_http_weir_gauges[walk->index].name;
    char rule[2 * WEIR_NAME_MAX + 1];
    if (!walk->begun)
        ngx_http_weir_family(walk->text, name, ngx_http_weir_gauges[walk->index].help);
    walk->begun = 1;
    weir__escape_label(weir__text_of(info->name), rule, sizeof rule);
    weir__buffer_printf(walk->text, "%s{rule=\"%s\",shadow=\"%s\"} %.6f\n", name, rule, info->shadow ? "true" : "false",
                        value);
    return walk->text->failed;
}

static int ngx_http_weir_metrics_limit(void *context, const weir_rule_info *info, const weir_rule_stats *unused)
{
    ngx_http_weir_walk_t *walk = context;
    double value = walk->index == LIMIT ? (double)info->limit : (double)info->window_ns / 1e9;
    (void)unused;
    return info->bytes_per_key > 0 && value > 0 ? ngx_http_weir_gauge(walk, info, value) : 0;
}

static int ngx_http_weir_metrics_hot(void *context, const weir_rule_info *info, const weir_hot_stats *hot)
{
    ngx_http_weir_walk_t *walk = context;
    double value = walk->index == KEYS         ? (double)hot->keys
                   : walk->index == NEAR_LIMIT ? (double)hot->near_limit
                                               : (double)hot->peak_per_mille / 1000;
    return ngx_http_weir_gauge(walk, info, value);
}

static void ngx_http_weir_metrics_rules(struct weir__buffer *text, weir *engine)
{
    for (ngx_uint_t i = 0; i < FAMILIES; i++) {
        ngx_http_weir_walk_t walk = {text, i, 0};
        if (ngx_http_weir_families[i].help == NULL)
            continue;
        ngx_http_weir_family(text, ngx_http_weir_families[i].name, ngx_http_weir_families[i].help);
        (void)weir_rules_each(engine, ngx_http_weir_metrics_rule, &walk);
    }
    for (ngx_uint_t i = 0; i < GAUGES; i++) {
        ngx_http_weir_walk_t walk = {text, i, 0};
        if (i < KEYS)
            (void)weir_rules_each(engine, ngx_http_weir_metrics_limit, &walk);
        else
            (void)weir_hot_each(engine, ngx_http_weir_metrics_hot, &walk);
    }
}

static void ngx_http_weir_metrics_notify(struct weir__buffer *text, const weir *engine)
{
    uint64_t pending;
    if (weir__warnings_pending(engine, &pending))
        ngx_http_weir_number(text, "weir_notify_pending", "Warnings that the agent has not delivered to notify yet.",
                             pending);
}

/* ---- The rule set, and the duration of decisions ---- */

static void ngx_http_weir_status_rules(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf)
{
    weir_engine_stats stats;
    weir__buffer_add_literal(text, "\"rules\":{\"path\":");
    weir__json_add_string(text, weir__text_of((const char *)mcf->rules_path.data));
    if (weir_engine_stats_read(mcf->engine, &stats) == 0)
        weir__buffer_printf(text,
                            ",\"count\":%zu,\"bytes\":%zu,\"reloads\":%" PRIu64 ",\"reload_failures\":%" PRIu64
                            ",\"polls\":%" PRIu64 ",\"regex_limited\":%" PRIu64,
                            stats.rules, stats.rule_bytes, stats.reloads, stats.reload_failures, stats.polls,
                            stats.regex_limited);
    weir__buffer_add_literal(text, "}");
}

static void ngx_http_weir_metrics_engine(struct weir__buffer *text, weir *engine)
{
    weir_engine_stats stats;
    if (weir_engine_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_rules", "Active rules in the responding worker.", stats.rules);
    ngx_http_weir_number(text, "weir_rules_bytes", "Memory used by the active rules.", stats.rule_bytes);
    ngx_http_weir_family(text, "weir_rules_reloads_total", "Reloads of the rules in this worker, by result.");
    weir__buffer_printf(text,
                        "weir_rules_reloads_total{result=\"ok\",worker=\"%lu\"} %" PRIu64 "\n"
                        "weir_rules_reloads_total{result=\"failed\",worker=\"%lu\"} %" PRIu64 "\n",
                        ngx_worker, stats.reloads, ngx_worker, stats.reload_failures);
    ngx_http_weir_family(text, "weir_regex_limited_total",
                         "Regular expressions that exceeded their match limit in this worker and counted as matching.");
    weir__buffer_printf(text, "weir_regex_limited_total{worker=\"%lu\"} %" PRIu64 "\n", ngx_worker,
                        stats.regex_limited);
}

static void ngx_http_weir_metrics_times(struct weir__buffer *text, weir *engine)
{
    static const char name[] = "weir_check_seconds";
    weir_times times;
    uint64_t count = 0;
    double sum = 0;
    int64_t from = 0;
    if (weir_times_read(engine, &times) != 0)
        return;
    weir__buffer_printf(text,
                        "# HELP %s Duration of a decision; about 1 in 64 is timed, and the sum is estimated from the "
                        "buckets.\n# TYPE %s histogram\n",
                        name, name);
    for (ngx_uint_t i = 0; i < WEIR_TIMES; i++) {
        count += times.count[i];
        if (i + 1 < WEIR_TIMES) {
            weir__buffer_printf(text, "%s_bucket{le=\"%.9f\"} %" PRIu64 "\n", name, (double)times.below_ns[i] / 1e9,
                                count);
            sum += (double)times.count[i] * (double)(from + times.below_ns[i]) / 2e9;
            from = times.below_ns[i];
        } else {
            weir__buffer_printf(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
            sum += (double)times.count[i] * (double)from / 1e9;
        }
    }
    weir__buffer_printf(text, "%s_sum %.9f\n%s_count %" PRIu64 "\n", name, sum, name, count);
}

/* ---- Store ---- */

/* In the order of struct weir__client_stats. The metrics have failures by reason. */
#define NTH(index) ((index) * sizeof(uint64_t))
static const ngx_http_weir_stat_t ngx_http_weir_store_totals[NGX_WEIR_STORE_TOTALS] = {
    {"requests", NTH(0), "weir_store_requests_total", "Requests to the store."},
    {"replies", NTH(1), "weir_store_replies_total", "Requests to the store that got a reply."},
    {"failed", NTH(2), NULL, NULL},
    {"slow", NTH(3), NULL, NULL},
    {"refused", NTH(4), NULL, NULL},
    {"commands", NTH(5), "weir_store_commands_total", "Commands sent to the store; one carries many requests."},
    {"bytes_out", NTH(6), "weir_store_sent_bytes_total", "Bytes sent to the store."},
    {"bytes_in", NTH(7), "weir_store_received_bytes_total", "Bytes received from the store."},
    {"connects", NTH(8), "weir_store_connects_total", "Connections opened to servers of the store."},
    {"disconnects", NTH(9), "weir_store_disconnects_total", "Connections to servers of the store that were closed."},
    {"script_loads", NTH(10), "weir_store_script_loads_total", "Times the script was loaded into a server."},
    {"redirects", NTH(11), "weir_store_redirects_total", "Requests that a cluster redirected to another server."},
    {"refunds", NTH(12), "weir_store_refunds_total", "Counters of the store that were refunded."},
    {"breaker_opened", NTH(13), "weir_store_breaker_opened_total", "Times the circuit breaker opened."},
};

static void ngx_http_weir_status_store(struct weir__buffer *text, const ngx_weir_store_t *store)
{
    ngx_weir_store_sum_t sum;
    ngx_weir_store_sum(store, &sum);
    weir__buffer_add_literal(text, ",\n\"store\":{\"url\":");
    weir__json_add_string(text, weir__text_of(store->shown));
    weir__buffer_printf(text, ",\"up\":%s,\"workers\":%lu,\"workers_without\":%lu", sum.down ? "false" : "true",
                        sum.workers, sum.down);
    if (sum.down)
        weir__buffer_printf(text, ",\"why\":\"%s\"", weir_error_name(sum.error));
    ngx_http_weir_add_members(text, ngx_http_weir_store_totals, NGX_WEIR_STORE_TOTALS, sum.totals);
    weir__buffer_add_literal(text, ",\"failures\":{");
    for (ngx_uint_t i = 0, written = 0; i < NGX_WEIR_STORE_REASONS; i++)
        if (sum.failures[i])
            weir__buffer_printf(text, "%s\"%s\":%" PRIu64, written++ ? "," : "", ngx_weir_store_reason(i),
                                sum.failures[i]);
    weir__buffer_add_literal(text, "}}");
}

static void ngx_http_weir_metrics_store(struct weir__buffer *text, const ngx_weir_store_t *store)
{
    static const char failures[] = "weir_store_failures_total";
    ngx_weir_store_sum_t sum;
    ngx_weir_store_sum(store, &sum);
    ngx_http_weir_number(text, "weir_store_up", "1: no worker has an open circuit breaker.", sum.down == 0);
    ngx_http_weir_add_metrics(text, ngx_http_weir_store_totals, NGX_WEIR_STORE_TOTALS, sum.totals);
    ngx_http_weir_family(text, failures, "Requests to the store without a reply, by reason.");
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_REASONS; i++)
        weir__buffer_printf(text, "%s{reason=\"%s\"} %" PRIu64 "\n", failures, ngx_weir_store_reason(i),
                            sum.failures[i]);
}

/* ---- The agent's exchange of the delta ledger with the store ---- */

static const ngx_http_weir_stat_t ngx_http_weir_sync_stats[] = {
    {STAT(weir_ledger_stats, requests), "weir_sync_requests_total", "Requests of the agent to the store."},
    {STAT(weir_ledger_stats, failures), "weir_sync_failures_total",
     "Requests of the agent to the store without a reply."},
    {STAT(weir_ledger_stats, ops), "weir_sync_ops_total", "Operations on counters in the agent's requests."},
    {STAT(weir_ledger_stats, units_sent), "weir_sync_units_sent_total",
     "Units that this host admitted and the store acknowledged."},
    {STAT(weir_ledger_stats, units_received), "weir_sync_units_received_total",
     "Units that other hosts admitted and this host charged to its counters."},
    {STAT(weir_ledger_stats, units_refunded), "weir_sync_units_refunded_total",
     "Units refunded to this host's counters, which had counted more than the store."},
    {STAT(weir_ledger_stats, units_dropped), "weir_sync_units_dropped_total",
     "Units not sent because their window had ended or their rule was removed."},
    {STAT(weir_ledger_stats, full), "weir_ledger_full_total", "Amounts kept local because the ledger was full."},
    {STAT(weir_ledger_stats, bytes_out), "weir_sync_sent_bytes_total", "Bytes that the agent sent to the store."},
    {STAT(weir_ledger_stats, bytes_in), "weir_sync_received_bytes_total",
     "Bytes that the agent received from the store."},
    {STAT(weir_ledger_stats, units_leased), "weir_lease_units_granted_total",
     "Units of leased rules that the store has granted to this host."},
    {STAT(weir_ledger_stats, units_spent), "weir_lease_units_spent_total", "Leased units that requests have spent."},
    {STAT(weir_ledger_stats, units_returned), "weir_lease_units_returned_total",
     "Leased units that were returned to the store unspent."},
    {STAT(weir_ledger_stats, units_expired), "weir_lease_units_expired_total",
     "Leased units that were spent or lost after the last exchange of a lease that has ended."},
    {STAT(weir_ledger_stats, lease_waits), "weir_lease_waits_total",
     "Allowed requests under leased rules that waited for the store, as too little was leased."},
    {STAT(weir_ledger_stats, entries), "weir_ledger_entries", "Capacity of the ledger in keys."},
    {STAT(weir_ledger_stats, used), "weir_ledger_used_entries", "Keys in the ledger at the agent's last scan."},
};

static void ngx_http_weir_status_ledger(struct weir__buffer *text, weir *engine)
{
    static const char *const states[] = {"unknown", "up", "down"};
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    weir__buffer_printf(text, ",\n\"ledger\":{\"agent\":%s,\"store\":\"%s\",\"lag_ms\":%" PRId64,
                        stats.agent ? "true" : "false", states[stats.store], stats.lag_ns / 1000000);
    if (stats.last_error)
        weir__buffer_printf(text, ",\"last_error\":\"%s\"", weir_error_name(stats.last_error));
    ngx_http_weir_add_members(text, ngx_http_weir_sync_stats, COUNT(ngx_http_weir_sync_stats), &stats);
    weir__buffer_add_literal(text, "}");
}

static void ngx_http_weir_metrics_ledger(struct weir__buffer *text, weir *engine)
{
    weir_ledger_stats stats;
    if (weir_ledger_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_agent_up", "1 if an agent runs and reaches the store, else 0.",
                         stats.agent && stats.store == WEIR_STORE_UP);
    ngx_http_weir_decimal(text, "weir_sync_lag_seconds",
                          "Age of the oldest amount that the store has not acknowledged.", 3,
                          (double)stats.lag_ns / 1e9);
    ngx_http_weir_add_metrics(text, ngx_http_weir_sync_stats, COUNT(ngx_http_weir_sync_stats), &stats);
}

/* ---- Load ---- */

static void ngx_http_weir_status_load(struct weir__buffer *text, weir *engine)
{
    weir_load load;
    const char *comma = "";
    if (weir_load_read(engine, &load) != 0)
        return;
    weir__buffer_printf(
        text, ",\n\"load\":{\"known\":%s,\"level\":%.1f,\"throttle\":%.1f,\"in_flight\":%" PRIu64 ",\"signals\":{",
        load.known ? "true" : "false", load.level / 10.0, load.throttle / 10.0, load.in_flight);
    for (int i = 0; weir_load_signal_name(i); i++) {
        if (load.signal[i] < 0)
            continue;
        weir__buffer_printf(text, "%s\"%s\":%.1f", comma, weir_load_signal_name(i), load.signal[i] / 10.0);
        comma = ",";
    }
    weir__buffer_add_literal(text, "},\"shed\":{");
    for (int i = 0; weir_load_class_name(i); i++)
        weir__buffer_printf(text, "%s\"%s\":%.1f", i ? "," : "", weir_load_class_name(i), load.shed[i] / 10.0);
    weir__buffer_add_literal(text, "}}");
}

static void ngx_http_weir_metrics_load(struct weir__buffer *text, weir *engine)
{
    weir_load load;
    if (weir_load_read(engine, &load) != 0)
        return;
    ngx_http_weir_number(text, "weir_load_known", "1 if the agent publishes the load level, 0 if it is unknown.",
                         load.known);
    ngx_http_weir_decimal(text, "weir_load_level", "Load level of the host, 0 to 100.", 1, load.level / 10.0);
    ngx_http_weir_decimal(text, "weir_load_throttle",
                          "Position of adaptive limits between their min (0) and their max (100).", 1,
                          load.throttle / 10.0);
    ngx_http_weir_family(text, "weir_load_signal", "Level of each signal, 0 to 100; the highest counts.");
    for (int i = 0; weir_load_signal_name(i); i++)
        if (load.signal[i] >= 0)
            weir__buffer_printf(text, "weir_load_signal{signal=\"%s\"} %.1f\n", weir_load_signal_name(i),
                                load.signal[i] / 10.0);
    ngx_http_weir_family(text, "weir_load_shed", "Share of the requests of a class that is shed, in per cent.");
    for (int i = 0; weir_load_class_name(i); i++)
        weir__buffer_printf(text, "weir_load_shed{class=\"%s\"} %.1f\n", weir_load_class_name(i), load.shed[i] / 10.0);
    ngx_http_weir_number(text, "weir_load_in_flight", "Requests in flight.", load.in_flight);
}

/* ---- Lines that the agent writes into sidecar files of the segment every second or two ---- */

/* Opens a sidecar file; refuses one that another user owns, whose lines would pass for the agent's. */
static ngx_fd_t ngx_http_weir_sidecar_open(const ngx_http_weir_main_conf_t *mcf, const char *ending)
{
    char path[NGX_WEIR_PATH_MAX];
    if (mcf->segment == NULL)
        return NGX_INVALID_FILE;
    ngx_fd_t file = open(ngx_weir_sidecar(mcf, ending, path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file == NGX_INVALID_FILE || weir__file_is_trusted(file, path, weir__segment_owner(mcf->segment)))
        return file;
    (void)ngx_close_file(file);
    return NGX_INVALID_FILE;
}

/* Copies the lines of a sidecar file; `fallback` if the agent has not written it for stale_s seconds. */
static void ngx_http_weir_sidecar_copy(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf,
                                       const char *ending, time_t stale_s, const char *fallback)
{
    char part[4096];
    ngx_file_info_t info;
    ssize_t len;
    ngx_fd_t file = ngx_http_weir_sidecar_open(mcf, ending);
    if (file == NGX_INVALID_FILE)
        return;
    if (ngx_fd_info(file, &info) == 0 && ngx_is_file(&info) && ngx_file_size(&info) <= SIDECAR_BYTES_MAX) {
        if (ngx_time() - ngx_file_mtime(&info) > stale_s)
            weir__buffer_add(text, fallback, ngx_strlen(fallback));
        else
            while ((len = read(file, part, sizeof(part))) > 0)
                weir__buffer_add(text, part, (size_t)len);
    }
    (void)ngx_close_file(file);
}

/* ---- Handlers ---- */

static void ngx_http_weir_status_write(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf)
{
    weir__buffer_printf(text, "{\"version\":\"%s\",\"worker\":%d,\n", weir_version(), ngx_pid);
    ngx_http_weir_status_segment(text, mcf);
    weir__buffer_add_literal(text, ",\n");
    ngx_http_weir_status_rules(text, mcf);
    if (mcf->store)
        ngx_http_weir_status_store(text, mcf->store);
    ngx_http_weir_status_ledger(text, mcf->engine);
    ngx_http_weir_status_load(text, mcf->engine);
    weir__buffer_add_literal(text, ",\n\"by_rule\":[");
    (void)weir_rules_each(mcf->engine, ngx_http_weir_status_rule, text);
    weir__buffer_add_literal(text, "]}\n");
}

static void ngx_http_weir_metrics_write(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_family(text, "weir_info", "Version of weir.");
    weir__buffer_printf(text, "weir_info{version=\"%s\"} 1\n", weir_version());
    ngx_http_weir_metrics_rules(text, mcf->engine);
    ngx_http_weir_metrics_notify(text, mcf->engine);
    ngx_http_weir_metrics_segment(text, mcf->segment);
    ngx_http_weir_metrics_engine(text, mcf->engine);
    ngx_http_weir_metrics_times(text, mcf->engine);
    if (mcf->store)
        ngx_http_weir_metrics_store(text, mcf->store);
    ngx_http_weir_metrics_ledger(text, mcf->engine);
    ngx_http_weir_metrics_load(text, mcf->engine);
    ngx_http_weir_sidecar_copy(
        text, mcf, ".queue", QUEUE_STALE,
        "# HELP weir_queue_dispatching 1 if this host's agent delivers deferred requests, else 0.\n"
        "# TYPE weir_queue_dispatching gauge\nweir_queue_dispatching 0\n");
    ngx_http_weir_sidecar_copy(text, mcf, ".hosts.lines", HOSTS_STALE, "");
    ngx_http_weir_log_metrics(text);
}

/* Replies to a GET or HEAD with the text that `write` adds. */
static ngx_int_t ngx_http_weir_send_text(ngx_http_request_t *r, const char *type,
                                         void (*write)(struct weir__buffer *text, const ngx_http_weir_main_conf_t *mcf))
{
    struct weir__buffer text = {.data = NULL};
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    write(&text, ngx_http_get_module_main_conf(r, ngx_http_weir_module));
    r->headers_out.status = NGX_HTTP_OK;
    if (text.failed || ngx_http_weir_push_text(r, "Cache-Control", "no-store") != NGX_OK)
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    else
        rc = ngx_http_weir_send(r, text.data, text.len, type);
    weir__buffer_free(&text);
    return rc;
}

ngx_int_t ngx_http_weir_status_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_send_text(r, "application/json", ngx_http_weir_status_write);
}

ngx_int_t ngx_http_weir_metrics_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_send_text(r, "text/plain; version=0.0.4; charset=utf-8", ngx_http_weir_metrics_write);
}
