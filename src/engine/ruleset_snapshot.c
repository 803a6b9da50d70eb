/*
 * The ruleset snapshot in use: the consistency of its rules, and their statistics, which all processes share in the
 * segment.
 */
#include "engine/fast_result.h"
#include "engine/hot_key_sampler.h"

#include <stdlib.h>

/* ---- Consistency ---- */

static enum weir__consistency consistency_of(const weir *engine, const struct weir__rule *rule)
{
    enum weir__consistency default_consistency = engine->default_consistency;
    if (!engine->store)
        return WEIR__LOCAL;
    if (default_consistency == WEIR__PER_ALGORITHM && !engine->ledger)
        default_consistency = WEIR__STRICT; /* without a ledger, eventual would be local */
    enum weir__consistency consistency = weir__rule_consistency(rule, default_consistency);
    return consistency == WEIR__LEASED && !engine->ledger ? WEIR__STRICT : consistency; /* no agent leases units */
}

/* Limits that requests bring have no rule by which the agent could exchange them: they are never eventual. */
static enum weir__consistency consistency_of_requests(const weir *engine)
{
    return engine->store && engine->default_consistency != WEIR__LOCAL ? WEIR__STRICT : WEIR__LOCAL;
}

enum weir__consistency weir__consistency_of(const weir *engine, const struct weir__ruleset *ruleset,
                                            const struct weir__rule *rule)
{
    return rule ? (enum weir__consistency)ruleset->consistency[rule->index] : consistency_of_requests(engine);
}

bool weir__ruleset_is_strict(weir *engine)
{
    int at;
    bool strict = ((const struct weir__ruleset *)weir__hazard_acquire(&engine->hazards, &at))->strict;
    weir__hazard_release(&engine->hazards, at);
    return strict;
}

uint64_t weir__rules_checksum(weir *engine)
{
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    uint64_t checksum = ruleset->checksum;
    weir__hazard_release(&engine->hazards, at);
    return checksum;
}

const struct weir__rule *weir__rule_named(const weir_rules *rules, const char *name, bool shadow)
{
    for (size_t i = 0; i < rules->count; i++)
        if (rules->rules[i]->shadow == shadow && weir__text_is(rules->rules[i]->name, name))
            return rules->rules[i];
    return NULL;
}

struct weir__ruleset *weir__ruleset_make(weir *engine, weir_rules *rules)
{
    struct weir__ruleset *ruleset = calloc(1, sizeof *ruleset);
    if (!ruleset)
        return NULL;
    struct weir__arena *memory = &ruleset->arena;
    ruleset->rule_stats = weir__arena_array(memory, rules->count, sizeof(struct weir__rule_stats *));
    ruleset->consistency = weir__arena_array(memory, rules->count, sizeof *ruleset->consistency);
    ruleset->plan = weir__arena_array(memory, rules->count, sizeof(struct weir__rule_plan *));
    if (rules->warns)
        ruleset->warnings = weir__arena_array(memory, rules->count, sizeof(uint64_t *));
    ruleset->observed = rules->warns;
    if (engine->hot_sampler.mapped.memory)
        ruleset->hot = weir__arena_array(memory, rules->count, sizeof *ruleset->hot);
    if (memory->failed) {
        weir__ruleset_free(ruleset);
        return NULL;
    }
    ruleset->strict = rules->domains && consistency_of_requests(engine) == WEIR__STRICT;
    bool strict = ruleset->strict;
    for (size_t i = 0; i < rules->count; i++) {
        bool writable = !engine->segment->mapped.read_only;
        struct weir__rule_stats *stats_of_rule =
            writable ? weir__rule_stats_find(&engine->segment->table, rules->rules[i]->id, true) : NULL;
        ruleset->rule_stats[i] = stats_of_rule ? stats_of_rule : &engine->unread_stats;
        ruleset->consistency[i] = (uint8_t)consistency_of(engine, rules->rules[i]);
        strict |= ruleset->consistency[i] == WEIR__STRICT;
        ruleset->leased |= ruleset->consistency[i] == WEIR__LEASED;
    }
    ruleset->strict = strict || ruleset->leased;
    ruleset->leased_only = ruleset->leased && !strict;
    /* After the statistics of all rules, which need the room more. */
    for (size_t i = 0; i < rules->count && !engine->segment->mapped.read_only; i++)
        if (rules->rules[i]->warn_at)
            ruleset->warnings[i] = weir__rule_warnings_find(&engine->segment->table, rules->rules[i]->id, true);
    if (!weir__rule_plans_make(ruleset, rules, engine->segment->mapped.read_only)) {
        weir__ruleset_free(ruleset);
        return NULL;
    }
    ruleset->rules = rules; /* last: until here they belong to the caller */
    if (ruleset->hot)
        weir__hot_sampler_seek(engine, ruleset);
    return ruleset;
}

void weir__ruleset_free(struct weir__ruleset *ruleset)
{
    if (!ruleset)
        return;
    weir__arena_free(&ruleset->arena);
    weir_rules_free(ruleset->rules);
    free(ruleset);
}

/* ---- Statistics ---- */

void weir__rule_stats_sum(const struct weir__rule_stats *stats_of_rule, weir_rule_stats *stats)
{
    *stats = (weir_rule_stats){0};
    for (int i = 0; i < WEIR__RULE_STATS_SHARDS; i++) {
        const struct weir__rule_stats_shard *from = &stats_of_rule->shard[i];
        stats->allowed += weir__load64(&from->allowed);
        stats->delayed += weir__load64(&from->delayed);
        stats->denied += weir__load64(&from->denied);
        stats->listed += weir__load64(&from->listed);
        stats->missing_key += weir__load64(&from->missing_key);
        stats->failures += weir__load64(&from->failures);
        stats->rolled_back += weir__load64(&from->rolled_back);
        if (i > 0 && i < WEIR__RULE_STATS_CLASSES) /* see weir__rule_stats_shed */
            stats->shed += stats->shed_of[i] = weir__load64(&from->shed);
    }
}

static int rule_stats(const weir *engine, const struct weir__rule *rule, weir_rule_stats *stats)
{
    const struct weir__rule_stats *stats_of_rule = weir__rule_stats_find(&engine->segment->table, rule->id, false);
    if (!stats_of_rule && !engine->segment->mapped.read_only)
        return WEIR_ENOSTATS;
    const uint64_t *warnings = weir__rule_warnings_find(&engine->segment->table, rule->id, false);
    *stats = (weir_rule_stats){0};
    if (stats_of_rule)
        weir__rule_stats_sum(stats_of_rule, stats);
    stats->warnings = warnings ? weir__load64(warnings) : 0;
    return 0;
}

int weir_rule_stats_read(weir *engine, const char *rule, bool shadow, weir_rule_stats *stats)
{
    if (!engine || !rule || !stats)
        return WEIR_EINVAL;
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const struct weir__rule *named = weir__rule_named(ruleset->rules, rule, shadow);
    int error = named ? rule_stats(engine, named, stats) : WEIR_ENORULE;
    weir__hazard_release(&engine->hazards, at);
    return error;
}

int weir_rules_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_rule_stats *stats),
                    void *context)
{
    if (!engine || !visit)
        return WEIR_EINVAL;
    int at, stop = 0;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    for (size_t i = 0; i < ruleset->rules->count && !stop; i++) {
        weir_rule_info info;
        weir_rule_stats stats = {0};
        weir_rules_info(ruleset->rules, i, &info);
        (void)rule_stats(engine, ruleset->rules->rules[i], &stats); /* zeros if the segment has none */
        stop = visit(context, &info, &stats);
    }
    weir__hazard_release(&engine->hazards, at);
    return stop;
}

int weir_times_read(weir *engine, weir_times *times)
{
    if (!engine || !times)
        return WEIR_EINVAL;
    weir_times sum_of = {0};
    for (int i = 0; i < WEIR_TIMES; i++) {
        sum_of.below_ns[i] = i < WEIR_TIMES - 1 ? INT64_C(64) << i : INT64_MAX;
        for (int shard = 0; shard < WEIR__TIME_SHARDS; shard++)
            sum_of.count[i] += weir__load64(&engine->segment->table.times[shard].count[i]);
    }
    *times = sum_of;
    return 0;
}
