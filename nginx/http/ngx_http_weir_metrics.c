/*
 * /metrics in Prometheus' text format. Labels are names of rules, decisions and classes, never keys, so there are as
 * many lines as the rules make. Everything in the segment is the sum over all who use it; what only the worker that
 * answers knows bears its number.
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

/* A label's value: three characters have a meaning in it. */
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

/* What is told of each rule. All lines of one name must stand together, so the rules are walked once for each. */
static const struct {
    const char *name, *help;
    const char *more; /* a label besides rule and shadow, or nothing */
    size_t offset;
} ngx_http_weir_families[] = {
    {"weir_decisions_total", "Requests under each rule; those of a shadow rule are what it would have said.",
     ",decision=\"allow\"", offsetof(weir_rule_stats, allowed)},
    {"weir_decisions_total", NULL, ",decision=\"delay\"", offsetof(weir_rule_stats, delayed)},
    {"weir_decisions_total", NULL, ",decision=\"deny\"", offsetof(weir_rule_stats, denied)},
    {"weir_shed_total", "Requests denied for the sake of more important ones; not among weir_decisions_total.",
     ",class=\"critical\"", offsetof(weir_rule_stats, shed_of[WEIR_CRITICAL])},
    {"weir_shed_total", NULL, ",class=\"high\"", offsetof(weir_rule_stats, shed_of[WEIR_HIGH])},
    {"weir_shed_total", NULL, ",class=\"normal\"", offsetof(weir_rule_stats, shed_of[WEIR_NORMAL])},
    {"weir_shed_total", NULL, ",class=\"low\"", offsetof(weir_rule_stats, shed_of[WEIR_LOW])},
    {"weir_listed_total", "Requests that an allow- or block-list decided.", "", offsetof(weir_rule_stats, listed)},
    {"weir_missing_key_total", "Requests without one of the attributes of the rule's key.", "",
     offsetof(weir_rule_stats, missing_key)},
    {"weir_failures_total", "Requests that the rule's failure policy decided.", "",
     offsetof(weir_rule_stats, failures)},
    {"weir_given_back_total", "Requests taken and given back, as another rule denied them at the same moment.", "",
     offsetof(weir_rule_stats, rolled_back)},
};

enum { FAMILIES = sizeof(ngx_http_weir_families) / sizeof(*ngx_http_weir_families) };

typedef struct {
    ngx_http_weir_text_t *text;
    ngx_uint_t family; /* the first of those that have its name */
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

/* ---- Rules: what they say, and what their keys do ---- */

enum { LIMIT, WINDOW, KEYS, NEAR_LIMIT, MOST, GAUGES };

static const struct {
    const char *name, *help;
} ngx_http_weir_gauges[GAUGES] = {
    {"weir_rule_limit", "Units a window that the rule lets a key have, in its default tier."},
    {"weir_rule_window_seconds", "Length of that window; calendar windows have none."},
    {"weir_rule_keys", "About how many keys asked in the last ten minutes, where hot keys are noted."},
    {"weir_rule_keys_near_limit", "Of these, those that had used 80 % of their limit or more; at most 64."},
    {"weir_rule_most_used_ratio", "The most of its limit that any key had used in the last one or two minutes."},
};

typedef struct {
    ngx_http_weir_text_t *text;
    ngx_uint_t gauge;
    ngx_flag_t begun; /* the family's head is written with its first line */
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

/* ---- The rest ---- */

static void ngx_http_weir_metrics_segment(ngx_http_weir_text_t *text, weir *engine)
{
    const weir_segment *segment = weir_engine_segment(engine);
    uint64_t looked = 0, live = 0;
    weir_stats stats;
    if (weir_stats_read(segment, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_segment_bytes", "gauge", "Size of the segment.", stats.bytes);
    ngx_http_weir_number(text, "weir_segment_slots", "gauge", "Keys that the segment has room for.", stats.slots);
    if (weir_segment_sample(segment, weir_clock(segment), SAMPLED_SLOTS, &looked, &live) == 0 && looked) {
        ngx_http_weir_family(text, "weir_segment_fill_ratio", "gauge",
                             "Part of the slots whose key has not recovered yet, from a sample.");
        ngx_http_weir_text_add(text, "weir_segment_fill_ratio %.4f\n", (double)live / (double)looked);
    }
    ngx_http_weir_number(text, "weir_segment_lost", "gauge",
                         "1: the segment's file was cut short under the worker that answers.",
                         weir_segment_lost(segment) ? 1 : 0);
    ngx_http_weir_number(text, "weir_keys_created_total", "counter", "Keys that got a slot.", stats.created);
    ngx_http_weir_number(text, "weir_evicted_live_total", "counter",
                         "Keys that lost their slot before they had recovered: the segment is too small.",
                         stats.evicted_live);
    ngx_http_weir_number(text, "weir_evicted_denied_total", "counter",
                         "Of these, keys that were denied: their limits began anew.", stats.evicted_denied);
    ngx_http_weir_number(text, "weir_slab_full_total", "counter",
                         "Requests for a log or wide counter that the segment had no room for.", stats.slab_full);
    ngx_http_weir_number(text, "weir_soft_total", "counter", "Requests let through over the limit by soft.",
                         stats.soft);
    ngx_http_weir_number(text, "weir_blocked_total", "counter", "Requests of keys that an operator blocked.",
                         stats.blocked);
    ngx_http_weir_number(text, "weir_never_fits_total", "counter",
                         "Requests that cost more than their limit ever holds.", stats.never_fits);
    ngx_http_weir_number(text, "weir_wrong_secrets_total", "counter",
                         "Wrong passwords and tokens that the services answered.", stats.auth_failures);
    ngx_http_weir_number(text, "weir_errors_total", "counter", "Counters that could not be reached.", stats.errors);
}

static void ngx_http_weir_metrics_engine(ngx_http_weir_text_t *text, weir *engine)
{
    weir_engine_stats stats;
    if (weir_engine_stats_read(engine, &stats) != 0)
        return;
    ngx_http_weir_number(text, "weir_rules", "gauge", "Rules in force in the worker that answers.", stats.rules);
    ngx_http_weir_number(text, "weir_rules_bytes", "gauge", "Memory of these rules.", stats.rule_bytes);
    ngx_http_weir_family(text, "weir_rules_reloads_total", "counter",
                         "Changes of the rules that this worker has taken up, or has found broken and kept out.");
    ngx_http_weir_text_add(text, "weir_rules_reloads_total{result=\"ok\",worker=\"%ui\"} %uL\n", ngx_worker,
                           stats.reloads);
    ngx_http_weir_text_add(text, "weir_rules_reloads_total{result=\"failed\",worker=\"%ui\"} %uL\n", ngx_worker,
                           stats.reload_failures);
    ngx_http_weir_family(text, "weir_regex_limited_total", "counter",
                         "Regular expressions that reached their bound in this worker and counted as matching.");
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
    ngx_http_weir_family(
        text, name, "histogram",
        "How long a decision takes; about 1 in 64 is timed, and the sum is estimated from the buckets.");
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
    ngx_http_weir_family(text, "weir_info", "gauge", "Which weir this is.");
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
    return ngx_http_weir_text_answer(r, (ngx_str_t)ngx_string("text/plain; version=0.0.4; charset=utf-8"),
                                     ngx_http_weir_metrics_write);
}
