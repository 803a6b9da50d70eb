/* A set in use, and what is counted under its rules: in the segment, where all processes add to the same. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/weir.h"

#include <sched.h>
#include <stdlib.h>

struct weir__tally_stripe *weir__rule_tally(const struct weir__loaded *loaded, const struct weir__rule *rule)
{
    int cpu = sched_getcpu();
    return &loaded->tally[rule->index]->stripe[(cpu < 0 ? 0 : (unsigned)cpu) % WEIR__TALLY_STRIPES];
}

struct weir__loaded *weir__loaded_make(weir *engine, weir_rules *rules)
{
    struct weir__loaded *loaded = calloc(1, sizeof *loaded);
    struct weir__tally **tally = calloc(rules->count + 1, sizeof(struct weir__tally *));
    if (!loaded || !tally) {
        free(loaded);
        free(tally);
        return NULL;
    }
    for (size_t i = 0; i < rules->count; i++) {
        bool writable = !engine->segment->read_only;
        tally[i] = writable ? weir__tally_find(&engine->segment->table, rules->rules[i]->id) : NULL;
        tally[i] = tally[i] ? tally[i] : &engine->untold;
    }
    loaded->rules = rules;
    loaded->tally = tally;
    return loaded;
}

void weir__loaded_free(struct weir__loaded *loaded)
{
    if (!loaded)
        return;
    free(loaded->tally);
    weir_rules_free(loaded->rules);
    free(loaded);
}

static weir_rule_stats sum(const struct weir__tally *tally)
{
    weir_rule_stats stats = {0};
    for (int i = 0; i < WEIR__TALLY_STRIPES; i++) {
        const struct weir__tally_stripe *from = &tally->stripe[i];
        stats.allowed += weir__load64(&from->allowed);
        stats.delayed += weir__load64(&from->delayed);
        stats.denied += weir__load64(&from->denied);
        stats.listed += weir__load64(&from->listed);
        stats.missing_key += weir__load64(&from->missing_key);
        stats.failures += weir__load64(&from->failures);
        stats.gave_back += weir__load64(&from->gave_back);
    }
    return stats;
}

static int rule_stats(const weir *engine, const struct weir__rule *rule, weir_rule_stats *stats)
{
    const struct weir__tally *tally = weir__tally_look(&engine->segment->table, rule->id);
    if (!tally && !engine->segment->read_only)
        return WEIR_ENOTALLY;
    *stats = tally ? sum(tally) : (weir_rule_stats){0};
    return 0;
}

int weir_rule_stats_read(weir *engine, const char *rule, bool shadow, weir_rule_stats *stats)
{
    if (!engine || !rule || !stats)
        return WEIR_EINVAL;
    int at, error = WEIR_ENORULE;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    for (size_t i = 0; i < loaded->rules->count && error == WEIR_ENORULE; i++) {
        const struct weir__rule *r = loaded->rules->rules[i];
        if (r->shadow == shadow && weir__text_is(r->name, rule))
            error = rule_stats(engine, r, stats);
    }
    weir__unpin(&engine->pins, at);
    return error;
}

int weir_rules_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_rule_stats *stats),
                    void *context)
{
    if (!engine || !visit)
        return WEIR_EINVAL;
    int at, stop = 0;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    for (size_t i = 0; i < loaded->rules->count && !stop; i++) {
        weir_rule_info info;
        weir_rule_stats stats = {0};
        weir_rules_info(loaded->rules, i, &info);
        (void)rule_stats(engine, loaded->rules->rules[i], &stats); /* without a tally: zeros */
        stop = visit(context, &info, &stats);
    }
    weir__unpin(&engine->pins, at);
    return stop;
}

int weir_times_read(weir *engine, weir_times *times)
{
    if (!engine || !times)
        return WEIR_EINVAL;
    weir_times sum_of = {0};
    for (int i = 0; i < WEIR_TIMES; i++) {
        sum_of.below_ns[i] = i < WEIR_TIMES - 1 ? INT64_C(64) << i : INT64_MAX;
        for (int stripe = 0; stripe < WEIR__TIME_STRIPES; stripe++)
            sum_of.count[i] += weir__load64(&engine->segment->table.times[stripe].count[i]);
    }
    *times = sum_of;
    return 0;
}
