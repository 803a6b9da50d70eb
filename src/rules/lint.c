/* Warnings that need all rules at once: rules that say the same, and rules that others leave nothing to do. */
#include "algo/algo.h"
#include "algo/arith.h"
#include "base/hash.h"
#include "rules/set.h"

#include <stdlib.h>

#define PEERS_MAX 16 /* earlier rules that one is compared with: enough for people, and linear for generators */

/* Rules by what they are for: the same requests, keys and costs. */
struct groups {
    const weir_rules *set;
    size_t size;        /* of `last`; a power of two */
    uint32_t *last;     /* a hash table of groups: index + 1 of a group's latest rule */
    uint32_t *previous; /* by rule: index + 1 of the one before it in its group */
};

static bool same_purpose(const struct weir__rule *a, const struct weir__rule *b)
{
    return a->match->written == b->match->written && a->cost.written == b->cost.written && a->shadow == b->shadow &&
           a->on_missing == b->on_missing && weir__text_equal(a->key.source, b->key.source);
}

/* A list makes exceptions of its own, and so does the load. */
static bool is_plain(const struct weir__rule *rule)
{
    const struct weir__overload_policy *policy = &rule->overload;
    return !weir__overload_is_scaled(policy) && !policy->reserve && !policy->has_class && !rule->allow.networks &&
           !rule->allow.key_count && !rule->allow.glob_count && !rule->block.networks && !rule->block.key_count &&
           !rule->block.glob_count;
}

/* Puts a rule into its group; returns index + 1 of the rule before it there, or 0. */
static uint32_t group_put(struct groups *groups, uint32_t index)
{
    const struct weir__rule *rule = groups->set->rules[index];
    uint64_t hash = weir__hash_text(rule->key.source, rule->match->written ^ rule->cost.written);
    for (size_t at = hash & (groups->size - 1);; at = (at + 1) & (groups->size - 1)) {
        uint32_t last = groups->last[at];
        if (last && !same_purpose(groups->set->rules[last - 1], rule))
            continue;
        groups->last[at] = index + 1;
        groups->previous[index] = last;
        return last;
    }
}

/* ---- The same ---- */

static bool same_kind(const weir_limit *a, const weir_limit *b)
{
    return a->algorithm == b->algorithm && a->refill == b->refill && a->align == b->align &&
           a->calendar == b->calendar && a->round_up == b->round_up && a->count_rejected == b->count_rejected &&
           a->delay == b->delay && a->buckets == b->buckets && a->window_us == b->window_us && a->zone == b->zone;
}

static bool same_quota(const struct weir__quota *a, const struct weir__quota *b)
{
    if (a->kind != b->kind || !weir__text_equal(a->tier, b->tier))
        return false;
    return a->kind != WEIR__LIMITED ||
           (same_kind(&a->limit, &b->limit) && a->limit.limit == b->limit.limit && a->limit.hard == b->limit.hard &&
            a->limit.cap == b->limit.cap && a->limit.max_delay_us == b->limit.max_delay_us);
}

static bool same_limits(const struct weir__rule *a, const struct weir__rule *b)
{
    if (a->quota_count != b->quota_count || a->tier != b->tier)
        return false;
    for (size_t i = 0; i < a->quota_count; i++)
        if (!same_quota(&a->quotas[i], &b->quotas[i]))
            return false;
    return true;
}

/* ---- Nothing left to do ---- */

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

/*
 * What a limit admits in any stretch of time t is at most at_once + rate × t: the bucket, or what windows that the
 * stretch only touches add to those that it covers.
 */
static weir__u128 at_once(const weir_limit *limit)
{
    weir__u128 cap = (weir__u128)(uint64_t)limit->cap;
    if (is_bucket(limit))
        return limit->refill == WEIR_REFILL_INTERVAL ? cap + (weir__u128)(uint64_t)limit->limit : cap;
    return limit->algorithm == WEIR_SLIDING_WINDOW_LOG ? cap : 2 * cap;
}

static weir__u128 per_window(const weir_limit *limit)
{
    return (weir__u128)(uint64_t)(is_bucket(limit) ? limit->limit : limit->cap);
}

/* The bound above for a stretch of t_us, rounded up. Sharper where windows nest. */
static weir__u128 admits(const weir_limit *limit, int64_t t_us, bool nested)
{
    weir__u128 t = (weir__u128)(uint64_t)t_us, window = (weir__u128)(uint64_t)limit->window_us;
    if (nested)
        return t / window * (weir__u128)(uint64_t)limit->cap;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return (t + window - 1) / window * (weir__u128)(uint64_t)limit->cap;
    return at_once(limit) + (per_window(limit) * t + window - 1) / window;
}

/* How long a window is at the most; calendars have days of 25 hours. */
static int64_t longest_us(const weir_limit *limit)
{
    static const int64_t hours[] = {25, 7 * 24 + 1, 31 * 24 + 1, 366 * 24 + 1};
    return limit->align == WEIR_ALIGN_CALENDAR ? hours[limit->calendar] * 3600000000 : limit->window_us;
}

/* True if `narrow` denies before `wide` ever could, for the same key and costs. */
static bool never_bites(const weir_limit *wide, const weir_limit *narrow)
{
    if (wide->count_rejected || wide->delay) /* counts what others deny; acts below its limit */
        return false;
    if (wide->algorithm == WEIR_CONCURRENCY || narrow->algorithm == WEIR_CONCURRENCY)
        return same_kind(wide, narrow) && narrow->cap <= wide->hard;
    if (same_kind(wide, narrow))
        return narrow->limit <= wide->limit && narrow->cap <= wide->hard;
    if (narrow->align == WEIR_ALIGN_CALENDAR || (is_bucket(wide) && wide->refill == WEIR_REFILL_INTERVAL))
        return false;
    if (is_bucket(wide)) /* as full and as fast at any time */
        return at_once(narrow) <= (weir__u128)(uint64_t)wide->hard &&
               per_window(narrow) * (weir__u128)(uint64_t)wide->window_us <=
                   per_window(wide) * (weir__u128)(uint64_t)narrow->window_us;

    bool nested = wide->algorithm == WEIR_FIXED_WINDOW && narrow->algorithm == WEIR_FIXED_WINDOW &&
                  wide->align == WEIR_ALIGN_CLOCK && narrow->align == WEIR_ALIGN_CLOCK &&
                  wide->window_us % narrow->window_us == 0;
    /* The sliding counter also weighs the window before. */
    int64_t t_us = longest_us(wide) * (wide->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? 2 : 1);
    return admits(narrow, t_us, nested) <= (weir__u128)(uint64_t)wide->hard;
}

/* ---- Comparing ---- */

static bool is_single(const struct weir__rule *rule)
{
    return rule->quota_count == 1 && rule->quotas->kind == WEIR__LIMITED && !rule->shadow && is_plain(rule);
}

static bool warn_if_idle(struct weir__diagnostics *report, const struct weir__rule *wide,
                         const struct weir__rule *narrow)
{
    char where[256];
    if (!is_single(wide) || !is_single(narrow) || !never_bites(&wide->quotas->limit, &narrow->quotas->limit))
        return false;
    weir__report_warning(report, wide->place, "\"%.*s\" never bites: \"%.*s\" (%s) is stricter for the same key",
                         (int)wide->name.len, wide->name.data, (int)narrow->name.len, narrow->name.data,
                         weir__place_text(report, narrow->place, where, sizeof where));
    return true;
}

/* One warning about a pair is enough. */
static bool compare(struct weir__diagnostics *report, const struct weir__rule *earlier, const struct weir__rule *later)
{
    char where[256];
    if (is_plain(earlier) && is_plain(later) && same_limits(earlier, later)) {
        weir__report_warning(report, later->place, "\"%.*s\" says the same as \"%.*s\" (%s)", (int)later->name.len,
                             later->name.data, (int)earlier->name.len, earlier->name.data,
                             weir__place_text(report, earlier->place, where, sizeof where));
        return true;
    }
    return warn_if_idle(report, later, earlier) || warn_if_idle(report, earlier, later);
}

/* ---- Reserves ---- */

/* A reserve that no request may use only lowers the limit. */
static void warn_of_reserves(const weir_rules *set, struct weir__diagnostics *report)
{
    bool critical = false;
    for (size_t i = 0; i < set->count && !critical; i++) {
        const struct weir__overload_policy *policy = &set->rules[i]->overload;
        critical = !set->rules[i]->shadow && policy->has_class && policy->class == WEIR_CRITICAL;
    }
    for (size_t i = 0; i < set->count && !critical; i++)
        if (set->rules[i]->overload.reserve)
            weir__report_warning(report, set->rules[i]->place,
                                 "\"%.*s\" keeps a reserve, but no rule says priority: critical: no request may use it",
                                 (int)set->rules[i]->name.len, set->rules[i]->name.data);
}

void weir__rules_lint(const weir_rules *set, struct weir__diagnostics *report)
{
    if (set->load_aware)
        warn_of_reserves(set, report);
    struct groups groups = {.set = set, .size = 16};
    while (groups.size < set->count * 2)
        groups.size *= 2;
    groups.last = calloc(groups.size, sizeof *groups.last);
    groups.previous = calloc(set->count + 1, sizeof *groups.previous);
    /* Without memory there are no warnings: the rules themselves are as good as they were. */
    for (uint32_t i = 0; groups.last && groups.previous && i < set->count; i++) {
        if (!set->rules[i]->match)
            continue;
        uint32_t peer = group_put(&groups, i);
        for (int n = 0; peer && n < PEERS_MAX; n++) {
            if (compare(report, set->rules[peer - 1], set->rules[i]))
                break;
            peer = groups.previous[peer - 1];
        }
    }
    free(groups.last);
    free(groups.previous);
}
