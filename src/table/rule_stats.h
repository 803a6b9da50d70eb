/* Counters of each rule, shared by all processes, in the segment. */
#ifndef WEIR_TABLE_RULE_STATS_H
#define WEIR_TABLE_RULE_STATS_H

#include "table/layout.h"

/*
 * The counters of the rule with this id, claimed on first use. NULL: all are taken. Never freed: a rule that returns
 * continues its counters.
 */
struct weir__rule_stats *weir__rule_stats_find(const struct weir__table *table, uint64_t id);
/* For read-only access: NULL if the rule has none. */
const struct weir__rule_stats *weir__rule_stats_lookup(const struct weir__table *table, uint64_t id);

#define WEIR__RULE_STATS_CLASSES 4 /* priority classes: critical, high, normal, low */
_Static_assert(WEIR__RULE_STATS_CLASSES <= WEIR__RULE_STATS_SHARDS, "a word for each class that may be shed");

/*
 * Shed requests of a priority class. Few rules shed, so these counters have no fields of their own: they are in `word`
 * of the shards after the first, whose `word` is the rule's id. There is one for each class but critical, which is
 * never shed; an invalid class must not reach the id.
 */
static inline uint64_t *weir__rule_stats_shed(struct weir__rule_stats *entry, int priority)
{
    return &entry->shard[priority > 0 && priority < WEIR__RULE_STATS_CLASSES ? priority : WEIR__RULE_STATS_CLASSES - 1]
                .word;
}

/* Adds a duration to the histogram; `stripe` chooses the shard, usually the processor. */
void weir__times_add(const struct weir__table *table, unsigned shard, int64_t ns);

#endif
