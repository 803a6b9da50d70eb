/* Derives advice from a rule's statistics. docs/reference/statistics.md documents the thresholds. */
#include "stats/advise.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Minimum evidence before any advice is given, besides that of advise.h. */
#define DENIED_SHARE_MIN   0.02
#define KEYS_MIN           5    /* denied keys; fewer are the clients that the rule is meant for */
#define KEYS_SHARE_MIN     0.05 /* of all keys */
#define FEW                3
#define FEW_SHARE_MAX      0.8  /* largest share of denials that the FEW heaviest keys may have */
#define KIND_SHARE_MIN     0.6  /* of the denied cost: by keys below the limit on average, or by keys above it */
#define EDGE_SHARE_MIN     0.3  /* of the passed requests, in the first tenth of the windows */
#define EDGE_LATE_MIN      0.5  /* of the denied ones, in the last half */
#define LOOSE_BUSY_HOURS   24   /* of these, with requests */
#define LOOSE_MOST         500  /* per mille of its limit that any key used */
#define LOOSE_REQUESTS_MIN 1000 /* in all of them */

/* Adds pairs of a name and a double, until NULL. */
static void add_numbers(struct weir__advice *advice, const char *name, ...)
{
    va_list pairs;
    va_start(pairs, name);
    for (; name && advice->number_count < WEIR__ADVICE_NUMBERS; name = va_arg(pairs, const char *)) {
        advice->numbers[advice->number_count].name = name;
        advice->numbers[advice->number_count++].value = va_arg(pairs, double);
    }
    va_end(pairs);
}

/* Rounds up to two significant digits: 1037 becomes 1100. */
static int64_t round_up(double value)
{
    double unit = 1;
    while (value / unit > 100)
        unit *= 10;
    return (int64_t)(ceil(value / unit - 1e-9) * unit);
}

/* ---- Recent denials ---- */

struct recent {
    uint64_t passed, denied;
    double denied_share; /* of the requests */
    double keys_share;   /* of the keys */
    double few_share;    /* of the denied cost, by the FEW heaviest keys */
    /* Shares of the denied cost: of keys below the limit on average, and of keys whose mean demand exceeds it. */
    double burst_share, steady_share;
    double demand_90;  /* 90th percentile of the denied keys' demand, in units a window */
    double over_burst; /* demand of bursting keys divided by their granted cost */
};

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void sum_keys(const struct weir__evidence *e, struct recent *r)
{
    double demand[WEIR__EVIDENCE_KEYS], heaviest = 0, known = 0, burst = 0, steady = 0, wanted = 0, got = 0;
    for (size_t i = 0; i < e->key_count; i++) {
        const struct weir__denied_key *key = &e->key[i];
        heaviest += i < FEW ? (double)key->denied : 0;
        known += (double)key->denied;
        demand[i] = e->stands_for_s ? (double)(key->denied + key->admitted) / (double)e->stands_for_s * e->window_s : 0;
        if (demand[i] <= 0.9 * (double)e->limit) {
            burst += (double)key->denied;
            wanted += (double)(key->denied + key->admitted);
            got += (double)key->admitted;
        } else if (demand[i] >= 1.1 * (double)e->limit) {
            steady += (double)key->denied;
        }
    }
    if (known <= 0)
        return;
    r->few_share = heaviest / known;
    r->burst_share = burst / known;
    r->steady_share = steady / known;
    r->over_burst = got > 0 ? wanted / got : 2;
    qsort(demand, e->key_count, sizeof *demand, by_value);
    r->demand_90 = demand[e->key_count * 9 / 10 < e->key_count ? e->key_count * 9 / 10 : e->key_count - 1];
}

static struct recent sum_recent(const struct weir__evidence *e)
{
    struct recent r = {0};
    for (size_t i = 0; i < e->second_count; i++) {
        r.passed += e->second[i].allowed + e->second[i].delayed;
        r.denied += e->second[i].denied;
    }
    r.denied_share = r.denied ? (double)r.denied / (double)(r.passed + r.denied) : 0;
    r.keys_share = e->keys ? (double)e->key_count / (double)e->keys : 0;
    r.keys_share = r.keys_share > 1 ? 1 : r.keys_share;
    sum_keys(e, &r);
    return r;
}

/* True if denials are many and spread over many keys, so that they do not only hit the abusers the rule is for. */
static bool denies_many(const struct weir__evidence *e, const struct recent *r)
{
    return e->second_count >= WEIR__ADVICE_SECONDS && r->passed + r->denied >= WEIR__ADVICE_REQUESTS &&
           r->denied >= WEIR__ADVICE_DENIED && r->denied_share >= DENIED_SHARE_MIN && e->key_count >= KEYS_MIN &&
           r->keys_share >= KEYS_SHARE_MIN && r->few_share <= FEW_SHARE_MAX &&
           e->stands_for_s >= WEIR__ADVICE_SECONDS / 2 && e->window_s > 0;
}

static void add_recent_numbers(const struct weir__evidence *e, const struct recent *r, struct weir__advice *advice)
{
    add_numbers(advice, "minutes", (double)e->second_count / 60, "denied", (double)r->denied, "denied_percent",
                100 * r->denied_share, "denied_keys", (double)e->key_count, "keys", (double)e->keys, NULL);
}

static const char *at_least(const struct weir__evidence *e)
{
    return e->key_count == WEIR__EVIDENCE_KEYS ? "at least " : "";
}

/* Most denials hit keys whose mean demand exceeds the limit: the limit is too low. */
static bool too_strict(const struct weir__evidence *e, const struct recent *r, struct weir__advice *advice)
{
    if (!denies_many(e, r) || r->steady_share < KIND_SHARE_MIN || r->demand_90 <= (double)e->limit)
        return false;
    *advice = (struct weir__advice){.kind = WEIR__TOO_STRICT};
    advice->change.limit = round_up(r->demand_90 * 1.1);
    advice->change.limit_factor = (double)advice->change.limit / (double)e->limit;
    if (e->hard < e->limit && (e->algorithm == WEIR_TOKEN_BUCKET || e->algorithm == WEIR_LEAKY_BUCKET))
        advice->change.burst = round_up((double)e->hard * advice->change.limit_factor);
    add_recent_numbers(e, r, advice);
    add_numbers(advice, "steady_percent", 100 * r->steady_share, "demand_90", r->demand_90, NULL);
    snprintf(
        advice->message, sizeof advice->message,
        "too strict: %.1f %% of the requests were denied in the last %zu minutes, to %s%zu of about %llu keys, and "
        "%.0f %% of it to keys that steadily ask for more than the limit; nine of ten of the denied keys would do "
        "with %.0f instead of %lld",
        100 * r->denied_share, e->second_count / 60, at_least(e), e->key_count, (unsigned long long)e->keys,
        100 * r->steady_share, ceil(r->demand_90), (long long)e->limit);
    return true;
}

/* Most denials hit keys below the limit on average: they come in bursts that a larger bucket would absorb. */
static bool bursts(const struct weir__evidence *e, const struct recent *r, struct weir__advice *advice)
{
    if (!denies_many(e, r) || r->burst_share < KIND_SHARE_MIN)
        return false;
    bool bucket = e->algorithm == WEIR_TOKEN_BUCKET || e->algorithm == WEIR_LEAKY_BUCKET;
    *advice = (struct weir__advice){.kind = WEIR__BURSTS};
    advice->change.burst = round_up((double)e->hard * r->over_burst * 1.25);
    advice->change.algorithm = bucket ? NULL : "token_bucket";
    add_recent_numbers(e, r, advice);
    add_numbers(advice, "burst_percent", 100 * r->burst_share, "wanted_of_got", r->over_burst, NULL);
    snprintf(
        advice->message, sizeof advice->message,
        "short bursts are denied: %.1f %% of the requests in the last %zu minutes, to %s%zu of about %llu keys, and "
        "%.0f %% of it to keys that stay below %lld on average; a bucket of %lld instead of %lld would carry them",
        100 * r->denied_share, e->second_count / 60, at_least(e), e->key_count, (unsigned long long)e->keys,
        100 * r->burst_share, (long long)e->limit, (long long)advice->change.burst, (long long)e->hard);
    return true;
}

/* ---- Fixed windows: requests pass at their beginning and are denied in the rest ---- */

static bool edge_bursts(const struct weir__evidence *e, const struct recent *r, struct weir__advice *advice)
{
    enum { TENTHS = 10 };
    double passed[TENTHS] = {0}, denied[TENTHS] = {0}, late = 0;
    uint64_t window = (uint64_t)e->window_s;
    if (e->algorithm != WEIR_FIXED_WINDOW || !e->by_clock || window < TENTHS || e->second_count < 3 * window ||
        e->second_count < WEIR__ADVICE_SECONDS || r->passed + r->denied < WEIR__ADVICE_REQUESTS ||
        r->denied < WEIR__ADVICE_DENIED || r->denied_share < DENIED_SHARE_MIN)
        return false;
    for (size_t i = 0; i < e->second_count; i++) {
        uint64_t wall = e->newest_wall - (e->second_count - 1 - i);
        size_t part = (size_t)(wall % window * TENTHS / window);
        passed[part] += e->second[i].allowed;
        denied[part] += e->second[i].denied;
    }
    for (int i = TENTHS / 2; i < TENTHS; i++)
        late += denied[i];
    double first_share = r->passed ? passed[0] / (double)r->passed : 0, late_share = late / (double)r->denied;
    if (first_share < EDGE_SHARE_MIN || late_share < EDGE_LATE_MIN)
        return false;
    *advice = (struct weir__advice){.kind = WEIR__EDGE_BURSTS, .change = {.algorithm = "sliding_window_counter"}};
    add_numbers(advice, "minutes", (double)e->second_count / 60, "first_tenth_percent", 100 * first_share, "denied",
                (double)r->denied, "denied_late_percent", 100 * late_share, NULL);
    snprintf(
        advice->message, sizeof advice->message,
        "bursts pass at the edge of the windows: %.0f %% of what passes comes in the first tenth of them, and %.0f %% "
        "of what is denied in the last half; a sliding window spreads it, and lets no key have twice its limit "
        "around an edge",
        100 * first_share, 100 * late_share);
    return true;
}

/* ---- A week without a key near the limit ---- */

static bool too_loose(const struct weir__evidence *e, struct weir__advice *advice)
{
    uint64_t passed = 0, denied = 0, busy = 0;
    uint32_t most = 0;
    if (e->hour_count < WEIR__ADVICE_HOURS)
        return false;
    for (size_t i = e->hour_count - WEIR__ADVICE_HOURS; i < e->hour_count; i++) {
        const struct weir__history_hour *hour = &e->hour[i];
        if (hour->most == WEIR__HISTORY_UNSEEN)
            return false; /* hot keys were not sampled in this hour: peak use is unknown */
        passed += hour->allowed;
        denied += hour->denied;
        busy += hour->allowed > 0;
        most = hour->most > most ? hour->most : most;
    }
    bool week =
        e->hour[e->hour_count - 1].hour - e->hour[e->hour_count - WEIR__ADVICE_HOURS].hour < WEIR__HISTORY_HOURS;
    int64_t needed = round_up((double)e->limit * most / 1000 * 2);
    if (!week || denied || busy < LOOSE_BUSY_HOURS || passed < LOOSE_REQUESTS_MIN || !most || most >= LOOSE_MOST ||
        needed < 1 || needed >= e->limit)
        return false;
    *advice = (struct weir__advice){.kind = WEIR__TOO_LOOSE};
    advice->change.limit = needed;
    advice->change.limit_factor = (double)needed / (double)e->limit;
    if (e->hard != e->limit)
        advice->change.burst = round_up((double)e->hard * most / 1000 * 2);
    add_numbers(advice, "days", WEIR__ADVICE_HOURS / 24.0, "passed", (double)passed, "most_percent", (double)most / 10,
                NULL);
    snprintf(
        advice->message, sizeof advice->message,
        "too loose: in the last 7 days %llu requests passed, none was denied, and no key used more than %.1f %% of the "
        "limit; %lld would still be twice the largest use",
        (unsigned long long)passed, (double)most / 10, (long long)needed);
    return true;
}

size_t weir__advise(const struct weir__evidence *evidence, struct weir__advice advice[WEIR__ADVICE_MAX])
{
    size_t count = 0;
    if (evidence->shadow || evidence->limit <= 0) /* a shadow rule is under test already */
        return 0;
    struct recent recent = sum_recent(evidence);
    bool edge = edge_bursts(evidence, &recent, &advice[count]);
    count += edge;
    if (too_strict(evidence, &recent, &advice[count]) || (!edge && bursts(evidence, &recent, &advice[count])))
        count++;
    count += too_loose(evidence, &advice[count]);
    return count;
}

/* ---- Gathering ---- */

static void gather_rule(const struct weir__snapshot *snapshot, uint64_t id, struct weir__evidence *e)
{
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&snapshot->engine->hazards, &at);
    for (size_t i = 0; i < ruleset->rules->count; i++) {
        const struct weir__rule *rule = ruleset->rules->rules[i];
        if (rule->id != id || !rule->quota_count || rule->quotas[0].kind != WEIR__LIMITED)
            continue;
        const weir_limit *limit = &rule->quotas[0].limit;
        bool calendar = limit->algorithm == WEIR_FIXED_WINDOW && limit->align == WEIR_ALIGN_CALENDAR;
        e->algorithm = (enum weir_algorithm)limit->algorithm;
        e->limit = limit->limit;
        e->hard = limit->hard;
        e->window_s = calendar ? 0 : (double)limit->window_us / 1e6;
        e->by_clock = limit->algorithm == WEIR_FIXED_WINDOW && limit->align == WEIR_ALIGN_CLOCK;
        e->shadow = rule->shadow;
        break;
    }
    weir__hazard_release(&snapshot->engine->hazards, at);
}

static void gather_keys(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                        struct weir__evidence *e)
{
    enum { MAX = WEIR__EVIDENCE_KEYS };
    uint64_t unused[WEIR__HOT_USES];
    struct weir__hot_key *keys = calloc(2 * MAX, sizeof *keys), *admitted = keys + MAX;
    if (!keys)
        return;
    e->key_count = weir__snapshot_keys(snapshot, rule_slot, WEIR__KEYS_DENIED, keys, MAX);
    size_t count = weir__snapshot_keys(snapshot, rule_slot, WEIR__KEYS_ADMITTED, admitted, MAX);
    for (size_t i = 0; i < e->key_count; i++) {
        e->key[i].denied = keys[i].weight;
        for (size_t j = 0; j < count; j++)
            if (admitted[j].hash == keys[i].hash)
                e->key[i].admitted = admitted[j].weight;
    }
    e->stands_for_s = weir__load64(&snapshot->hot.header->seconds);
    e->keys = weir__snapshot_uses(snapshot, rule_slot, unused);
    if (e->keys < e->key_count)
        e->keys = e->key_count;
    free(keys);
}

struct weir__evidence *weir__evidence_gather(const struct weir__snapshot *snapshot,
                                             const struct weir__rule_snapshot *rule)
{
    struct weir__evidence *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    gather_rule(snapshot, rule->id, e);
    if (snapshot->history.rows) {
        uint64_t last = weir__load64(&snapshot->history.header->last), now = weir__snapshot_second(snapshot->now);
        e->second_count = weir__history_read(&snapshot->history, rule->id, e->second, WEIR__HISTORY_SECONDS);
        e->hour_count = weir__history_hours(&snapshot->history, rule->id, e->hour);
        e->newest_wall = (uint64_t)(snapshot->now.wall_ns / WEIR_SECOND) - (now > last ? now - last : 0);
    }
    const struct weir__hot_rule *rule_slot = weir__snapshot_hot_keys(snapshot, rule->id);
    if (rule_slot)
        gather_keys(snapshot, rule_slot, e);
    return e;
}
