/*
 * The handler of weir_metrics: Prometheus' text format. Labels are names of rules, decisions and priorities, never
 * keys, so that only the rules determine the number of lines. Values from the segment are sums over all processes;
 * values that only the responding worker has carry the label `worker`.
 */
#include "ngx_http_weir.h"

#define SAMPLED_SLOTS 16384

/* ---- Lines ---- */

static void ngx_http_weir_family(ngx_http_weir_text_t *text, const char *name, const char *type, const char *help)
{
    ngx_http_weir_text_add(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void ngx_http_weir_number(ngx_http_weir_text_t *text, const char *name, const char *type, const char *help,
                                 uint64_t value)
{
    ngx_http_weir_family(text, name, type, help);
    ngx_http_weir_text_add(text, "%s %uL\n", name, value);
}

/* Escapes a label's value: backslash, double quote and line feed. */
static void ngx_http_weir_label(const char *value, u_char to[2 * WEIR_NAME_MAX + 1])
{
    u_char *last = to + 2 * WEIR_NAME_MAX;
    for (; *value && last - to >= 2; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            *to++ = '\\';
        *to++ = *value == '\n' ? 'n' : (u_char)*value;
    }
    *to = '\0';
}

/* ---- Rules ---- */

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
    {"weir_rollbacks_total", "Units taken and rolled back because another rule denied the request.", "",
     offsetof(weir_rule_stats, rolled_back)},
};

enum { FAMILIES = sizeof(ngx_http_weir_families) / sizeof(*ngx_http_weir_families) };

typedef struct {
    ngx_http_weir_text_t *text;
    ngx_uint_t family; /* the first entry with this name */
} ngx_http_weir_walk_t;

static int ngx_http_weir_metrics_rule(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    const ngx_http_weir_walk_t *walk = context;
    const char *name = ngx_http_weir_families[walk->family].name;
    u_char rule[2 * WEIR_NAME_MAX + 1];
    ngx_http_weir_label(info->name, rule);
    for (ngx_uint_t i = walk->family; i < FAMILIES && ngx_strcmp(ngx_http_weir_families[i].name, name) == 0; i++) {
        uint64_t value = *(const uint64_t *)((const char *)stats + ngx_http_weir_families[i].offset);
        ngx_http_weir_text_add(walk->text, "%s{rule=\"%s\"%s,shadow=\"%s\"} %uL\n", name, rule,
                               ngx_http_weir_families[i].more, info->shadow ? "true" : "false", value);
    }
    return walk->text->failed != 0;
}

static void ngx_http_weir_metrics_rules(ngx_http_weir_text_t *text, weir *engine)
{
    for (ngx_uint_t i = 0; i < FAMILIES; i++) {
        ngx_http_weir_walk_t walk = {text, i};
        if (ngx_http_weir_families[i].help == NULL)
            continue;
        ngx_http_weir_family(text, ngx_http_weir_families[i].name, "counter", ngx_http_weir_families[i].help);
        (void)weir_rules_each(engine, ngx_http_weir_metrics_rule, &walk);
    }
}

/* ---- Rules: limits and keys ---- */

enum { LIMIT, WINDOW, KEYS, NEAR_LIMIT, PEAK_USAGE, GAUGES };

static const struct {
    const char *name, *help;
} ngx_http_weir_gauges[GAUGES] = {
    {"weir_rule_limit", "Limit of the rule's default tier, in units a window."},
    {"weir_rule_window_seconds", "Length of the window of weir_rule_limit; absent for calendar windows."},
    {"weir_rule_keys", "Estimated number of keys in the last ten minutes, where hot keys are sampled."},
    {"weir_rule_keys_near_limit", "Sampled keys that used 80 % of their limit or more; at most 64."},
    {"weir_rule_peak_usage_ratio", "Highest usage of a key in the last one to two minutes, as a ratio of its limit."},
};

typedef struct {
    ngx_http_weir_text_t *text;
    ngx_uint_t gauge;
    ngx_flag_t begun; /* HELP and TYPE are written before the first line */
} ngx_http_weir_gauge_walk_t;

static int ngx_http_weir_gauge(ngx_http_weir_gauge_walk_t *walk, const weir_rule_info *info, double value)
{
    const char *name = ngx_http_weir_gauges[walk->gauge].name;
    u_char rule[2 * WEIR_NAME_MAX + 1];
    if (!walk->begun)
        ngx_http_weir_family(walk->text, name, "gauge", ngx_http_weir_gauges[walk->gauge].help);
    walk->begun = 1;
    ngx_http_weir_label(info->name, rule);
    ngx_http_weir_text_add(walk->text, "%s{rule=\"%s\",shadow=\"%s\"} %.6f\n", name, rule,
                           info->shadow ? "true" : "false", value);
    return walk->text->failed != 0;
}

static int ngx_http_weir_metrics_limit(void *context, const weir_rule_info *info, const weir_rule_stats *unused)
{
    ngx_http_weir_gauge_walk_t *walk = context;
    double value = walk->gauge == LIMIT ? (double)info->limit : (double)info->window_ns / 1e9;
    (void)unused;
    return info->bytes_per_key > 0 && value > 0 ? ngx_http_weir_gauge(walk, info, value) : 0;
}

static int ngx_http_weir_metrics_hot(void *context, const weir_rule_info *info, const weir_hot_stats *hot)
{
    ngx_http_weir_gauge_walk_t *walk = context;
    double value = walk->gauge == KEYS         ? (double)hot->keys
                   : walk->gauge == NEAR_LIMIT ? (double)hot->near_limit
                                               : (double)hot->peak_per_mille / 1000;
    return ngx_http_weir_gauge(walk, info, value);
}

static void ngx_http_weir_metrics_gauges(ngx_http_weir_text_t *text, weir *engine)
{
    for (ngx_uint_t i = 0; i < GAUGES; i++) {
        ngx_http_weir_gauge_walk_t walk = {text, i, 0};
        if (i < KEYS)
            (void)weir_rules_each(engine, ngx_http_weir_metrics_limit, &walk);
        else
            (void)weir_hot_each(engine, ngx_http_weir_metrics_hot, &walk);
    }
}

/* ---- Segment, rules and time of decisions ---- */

static void ngx_http_weir_metrics_segment(ngx_http_weir_text_t *text, weir *engine)
{
    const weir_segment *segment = weir_engine_segment(engine);
    uint64_t sampled = 0, live = 0;
    weir_stats stats;
    if (weir_stats_read(segment, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_segment_bytes", "gauge", "Size of the segment.", stats.bytes);
    ngx_http_weir_number(text, "weir_segment_slots", "gauge", "Keys that the segment has room for.", stats.slots);
    if (weir_segment_sample(segment, weir_clock(segment), SAMPLED_SLOTS, &sampled, &live) == 0 && sampled) {
        ngx_http_weir_family(text, "weir_segment_fill_ratio", "gauge",
                             "Ratio of slots with a key that has not expired, from a sample.");
        ngx_http_weir_text_add(text, "weir_segment_fill_ratio %.4f\n", (double)live / (double)sampled);
    }
    ngx_http_weir_number(text, "weir_segment_lost", "gauge",
                         "1 if the segment's file was truncated while the responding worker had it mapped.",
                         weir_segment_lost(segment) ? 1 : 0);
    ngx_http_weir_number(text, "weir_keys_created_total", "counter", "Keys that got a slot.", stats.created);
    ngx_http_weir_number(text, "weir_evicted_live_total", "counter",
                         "Keys evicted before they expired: the segment is too small.", stats.evicted_live);
    ngx_http_weir_number(text, "weir_evicted_denied_total", "counter",
                         "Evicted keys that were denied or blocked: their limits were reset.", stats.evicted_denied);
    ngx_http_weir_number(text, "weir_slab_full_total", "counter",
                         "Requests for a log or wide counter that found the slab full.", stats.slab_full);
    ngx_http_weir_number(text, "weir_soft_total", "counter", "Requests over the limit that `soft` allowed.",
                         stats.soft);
    ngx_http_weir_number(text, "weir_blocked_total", "counter", "Requests of keys that an operator blocked.",
                         stats.blocked);
    ngx_http_weir_number(text, "weir_never_fits_total", "counter", "Requests whose cost exceeds the limit's capacity.",
                         stats.never_fits);
    ngx_http_weir_number(text, "weir_auth_failures_total", "counter", "Requests with a wrong password or token.",
                         stats.auth_failures);
    ngx_http_weir_number(text, "weir_errors_total", "counter", "Operations on counters that failed.", stats.errors);
}

static void ngx_http_weir_metrics_engine(ngx_http_weir_text_t *text, weir *engine)
{
    weir_engine_stats stats;
    if (weir_engine_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_rules", "gauge", "Active rules in the responding worker.", stats.rules);
    ngx_http_weir_number(text, "weir_rules_bytes", "gauge", "Memory used by the active rules.", stats.rule_bytes);
    ngx_http_weir_family(text, "weir_rules_reloads_total", "counter",
                         "Reloads of the rules in this worker, by result.");
    ngx_http_weir_text_add(text, "weir_rules_reloads_total{result=\"ok\",worker=\"%ui\"} %uL\n", ngx_worker,
                           stats.reloads);
    ngx_http_weir_text_add(text, "weir_rules_reloads_total{result=\"failed\",worker=\"%ui\"} %uL\n", ngx_worker,
                           stats.reload_failures);
    ngx_http_weir_family(text, "weir_regex_limited_total", "counter",
                         "Regular expressions that exceeded their match limit in this worker and counted as matching.");
    ngx_http_weir_text_add(text, "weir_regex_limited_total{worker=\"%ui\"} %uL\n", ngx_worker, stats.regex_limited);
}

static void ngx_http_weir_metrics_times(ngx_http_weir_text_t *text, weir *engine)
{
    static const char name[] = "weir_check_seconds";
    weir_times times;
    uint64_t count = 0;
    double sum = 0;
    int64_t from = 0;
    if (weir_times_read(engine, &times) != 0)
        return;
    ngx_http_weir_family(text, name, "histogram",
                         "Duration of a decision; about 1 in 64 is timed, and the sum is estimated from the buckets.");
    for (ngx_uint_t i = 0; i < WEIR_TIMES; i++) {
        count += times.count[i];
        if (i + 1 < WEIR_TIMES) {
            ngx_http_weir_text_add(text, "%s_bucket{le=\"%.9f\"} %uL\n", name, (double)times.below_ns[i] / 1e9, count);
            sum += (double)times.count[i] * (double)(from + times.below_ns[i]) / 2e9;
            from = times.below_ns[i];
        } else {
            ngx_http_weir_text_add(text, "%s_bucket{le=\"+Inf\"} %uL\n", name, count);
            sum += (double)times.count[i] * (double)from / 1e9;
        }
    }
    ngx_http_weir_text_add(text, "%s_sum %.9f\n%s_count %uL\n", name, sum, name, count);
}

static void ngx_http_weir_metrics_write(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_family(text, "weir_info", "gauge", "Version of weir.");
    ngx_http_weir_text_add(text, "weir_info{version=\"%s\"} 1\n", weir_version());
    ngx_http_weir_metrics_rules(text, mcf->engine);
    ngx_http_weir_metrics_gauges(text, mcf->engine);
    ngx_http_weir_metrics_segment(text, mcf->engine);
    ngx_http_weir_metrics_engine(text, mcf->engine);
    ngx_http_weir_metrics_times(text, mcf->engine);
    if (mcf->store)
        ngx_http_weir_store_metrics(text, mcf->store);
    ngx_http_weir_ledger_metrics(text, mcf->engine);
    ngx_http_weir_load_metrics(text, mcf->engine);
    ngx_http_weir_agent_metrics(text, mcf);
    ngx_http_weir_log_metrics(text);
}

ngx_int_t ngx_http_weir_metrics_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_text_send(r, (ngx_str_t)ngx_string("text/plain; version=0.0.4; charset=utf-8"),
                                   ngx_http_weir_metrics_write);
}
