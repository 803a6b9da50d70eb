/* What an engine is: a segment, the rules in force, and those that were. */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include "engine/segment.h"
#include "engine/load_page.h"
#include "engine/compile_rules.h"
#include "engine/hazard_pointers.h"
#include "base/arena.h"
#include "engine/store_options.h"
#include "table/rule_stats.h"

/* A ruleset snapshot: a compiled set of rules with its runtime state. Hazard pointers protect it. */
struct weir__ruleset {
    weir_rules *rules;
    struct weir__rule_stats *
        *rule_stats;                   /* by rule index; of a rule for which the segment has none: the engine's own */
    uint64_t *hot;                     /* struct weir__hot_rule * by rule index, 0: none yet; NULL: nothing is noted */
    struct weir__rule_plan **plan;     /* by rule index, see fast_result.h; NULL for rules whose headers vary */
    struct weir__arena plans_arena;    /* theirs and the list's: with a malloc each, many rules would scatter it */
    uint8_t *consistency;              /* by rule index, enum weir__consistency: as it is with this engine's store */
    bool strict;                       /* some request may have to ask the store */
    struct weir__delta_ledger *deltas; /* the engine's, if a rule needs it; see ledger.h */
    struct weir__ruleset *older;       /* in the list of those that were replaced */
    uint64_t checksum;                 /* what its texts say, as a number: see weir__sources_checksum */
};

struct weir {
    struct weir__hazard_pointers hazards; /* the current struct weir__ruleset */
    struct weir__regex_room
        *room[WEIR__HAZARD_SLOTS]; /* regex scratch, one a hazard slot; made with the first set that has regexes */

    struct weir__scratch *scratch; /* one a hazard slot */
    weir_segment *segment;
    bool own_segment;
    struct weir__rule_stats untold;    /* where rules count for which the segment has no room; nobody reads it */
    struct weir__store_options *store; /* NULL: none, and all rules are local */
    uint64_t connection_pool; /* struct weir__connection_pool *, which a forked process replaces; 0: the store is not
                                 ours to ask */
    enum weir__consistency default_consistency;
    weir_limit negative_cache;         /* see negative_cache.h */
    struct weir__delta_ledger *deltas; /* NULL: no rule needed one so far */
    char *ledger;                      /* where it is to be made; NULL: nowhere */
    uint64_t ledger_bytes;
    unsigned ledger_mode;
    struct weir__hot_sampler *hot_sampler; /* NULL: hot keys are not noted; see hot_key_sampler.h */
    struct weir__load_page *load;          /* NULL: there is no load level; see table/load.h */
    struct weir__mapped level;             /* what it is mapped by */
    bool watch;
    bool later; /* WEIR_RULES_LATER, and the rules were not read yet */
    char *path; /* NULL: the rules came as text and stay */
    weir_diagnose *diagnose;
    void *diagnose_context;

    _Alignas(64) uint64_t next_look_ns; /* on CLOCK_MONOTONIC_COARSE */
    uint64_t looks, reloads, reload_failures, regex_limited;

    /* The reloader's alone: who has set `reloading` to its process id, so that a fork in mid-way leaves nobody stuck.
     */
    uint64_t reloading;
    struct weir__fingerprint seen;  /* what the current set was made of, or the last one that was no good */
    int busy;                       /* looks in a row that found somebody writing */
    bool unreadable;                /* the last look failed for a reason that may pass, and it was told */
    struct weir__ruleset *replaced; /* not yet free */
};

/* Looks at the disk if a second has passed since anybody did. */
void weir__watch(weir *engine);

/* What the texts of the rules in force say, as a number: see weir__sources_checksum. */
uint64_t weir__rules_checksum(weir *engine);

/* What is counted under a rule, for this processor. */
struct weir__rule_stats_shard *weir__rule_stats_here(const struct weir__ruleset *ruleset,
                                                     const struct weir__rule *rule);
/* The same for those who know which it is. */
static inline struct weir__rule_stats_shard *weir__rule_stats_on(const struct weir__ruleset *ruleset,
                                                                 const struct weir__rule *rule, unsigned cpu)
{
    return &ruleset->rule_stats[rule->index]->shard[cpu % WEIR__RULE_STATS_SHARDS];
}

/* A rule's figures, over all processors. */
void weir__rule_stats_sum(const struct weir__rule_stats *stats_of_rule, weir_rule_stats *stats);

/* How the counters of a rule agree with those of other hosts; NULL: of a limit of the request's own. */
enum weir__consistency weir__consistency_of(const weir *engine, const struct weir__ruleset *ruleset,
                                            const struct weir__rule *rule, const weir_limit *limit);

/* True if some rule of the published ruleset is decided by the store. */
bool weir__ruleset_is_strict(weir *engine);
/* True if some rule may need the store, and it is the engine that asks it. */
bool weir__needs_store_reply(weir *engine);

/* Makes what goes with a set, which it then owns. NULL: no memory. */
struct weir__ruleset *weir__ruleset_make(weir *engine, weir_rules *rules);
void weir__ruleset_free(struct weir__ruleset *ruleset);

#endif
