/* A request whose rule and key are known already: kept earlier, or named by whoever asks. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/cpu.h"
#include "engine/held.h"
#include "engine/pressure.h"

/* By its whole name, or as its author wrote it: that of several limits. */
static const struct weir__rule *enforced_named(const weir_rules *rules, const char *name)
{
    const struct weir__rule *by_base = NULL;
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (rule->shadow)
            continue;
        if (weir__text_is(rule->name, name))
            return rule;
        if (!by_base && weir__text_is(rule->base, name))
            by_base = rule;
    }
    return by_base;
}

static struct weir__hit hit_of(const weir_rules *rules, const struct weir__rule *rule, const weir_taken *what,
                               weir_text key, int64_t cost)
{
    const struct weir__quota *quota = weir__quota_taken(rule, what);
    struct weir__hit hit = {.rule = rule,
                            .quota = quota || !rule->quota_count ? quota : rule->quotas,
                            .key = key.data,
                            .key_len = (uint32_t)key.len,
                            .cost = cost,
                            .reason = weir__key_listed(rules, rule, key)};
    if (hit.reason != WEIR_BY_LIMIT)
        hit.quota = NULL;
    if (hit.quota)
        hit.cost = weir__units_of(hit.quota, cost);
    return hit;
}

/* The rule, and the other limits that its author gave it. 0: there are more than a rule can have. */
static size_t find_hits(const weir_rules *rules, const struct weir__rule *named, const weir_taken *what, weir_text key,
                        int64_t cost, struct weir__hit hits[WEIR__HITS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (rule != named && (rule->shadow || !weir__text_equal(rule->base, named->base) ||
                              !weir__text_equal(rule->domain, named->domain)))
            continue;
        if (count == WEIR__HITS_MAX)
            return 0;
        hits[count++] = hit_of(rules, rule, what, key, cost);
    }
    return count;
}

static int fault(const weir *engine, const weir_taken *what, int64_t cost, weir_time now)
{
    if (!engine || !what || !what->rule || (!what->key && what->key_len))
        return WEIR_EINVAL;
    if (!what->key_len)
        return WEIR_EKEYEMPTY;
    if (cost < 0 || cost > WEIR__USED_MAX)
        return WEIR_ECOST;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    return engine->segment->read_only ? WEIR_EREADONLY : 0;
}

int weir_key_take(weir *engine, const weir_taken *what, int64_t cost, weir_time now, weir_held *held,
                  weir_outcome *outcome)
{
    struct weir__hit hits[WEIR__HITS_MAX];
    struct weir__quota in_force[WEIR__HITS_MAX];
    weir_held unheld;
    char text[WEIR__KEY_MAX];
    int at, error = outcome ? fault(engine, what, cost, now) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);
    weir_text key = weir__key_counted((weir_text){what->key, what->key_len}, text);
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    const struct weir__rule *named = enforced_named(loaded->rules, what->rule);
    struct weir__trial trial = {.engine = engine,
                                .loaded = loaded,
                                .now = now.mono_ns || now.wall_ns ? now : weir_clock(engine->segment),
                                .cpu = weir__cpu(),
                                .hits = hits,
                                .held = held ? held : &unheld,
                                .priority = WEIR_NORMAL};
    trial.held->count = trial.held->names_len = 0;
    error = named ? 0 : WEIR_ENORULE;
    if (named && (trial.count = find_hits(loaded->rules, named, what, key, cost, hits)) == 0)
        error = WEIR_ETOOMANY;
    if (!error && loaded->rules->pressed)
        weir__pressure_apply(&trial, in_force);
    if (!error) {
        const struct weir__hit *by = weir__trial_decide(&trial);
        weir__hit_tell(by ? by : hits, outcome);
    }
    weir__unpin(&engine->pins, at);
    return error;
}
