/* Tallies: what happened under each rule, shared by all processes, in the segment. */
#ifndef WEIR_TABLE_RULE_STATS_H
#define WEIR_TABLE_RULE_STATS_H

#include "table/layout.h"

/*
 * The tally of the rule with this id, claimed if it has none yet. NULL: all are taken. A tally is never given back: a
 * rule that comes again goes on counting where it was.
 */
struct weir__rule_stats *weir__rule_stats_find(const struct weir__table *table, uint64_t id);
/* For those who may not write: NULL if the rule has none. */
const struct weir__rule_stats *weir__rule_stats_lookup(const struct weir__table *table, uint64_t id);

#define WEIR__RULE_STATS_CLASSES 4 /* of priority: critical, high, normal, low */
_Static_assert(WEIR__RULE_STATS_CLASSES <= WEIR__RULE_STATS_SHARDS, "a word for each class that may be shed");

/*
 * Requests of a class that were shed. Most rules shed nothing, ever: the sums have no words of their own, but those of
 * the stripes in whose place the first has the rule's id. There is one for every class but the critical, which never
 * is shed; whatever comes here as such must not touch the id.
 */
static inline uint64_t *weir__rule_stats_shed(struct weir__rule_stats *tally, int priority)
{
    return &tally->shard[priority > 0 && priority < WEIR__RULE_STATS_CLASSES ? priority : WEIR__RULE_STATS_CLASSES - 1]
                .word;
}

/* Notes that a check took so long; `stripe` is any number, best the processor's. */
void weir__times_add(const struct weir__table *table, unsigned stripe, int64_t ns);

#endif
