/* Tallies: what happened under each rule, shared by all processes, in the segment. */
#ifndef WEIR_TABLE_TALLY_H
#define WEIR_TABLE_TALLY_H

#include "table/layout.h"

/*
 * The tally of the rule with this id, claimed if it has none yet. NULL: all are taken. A tally is never given back: a
 * rule that comes again goes on counting where it was.
 */
struct weir__tally *weir__tally_find(const struct weir__table *table, uint64_t id);
/* For those who may not write: NULL if the rule has none. */
const struct weir__tally *weir__tally_look(const struct weir__table *table, uint64_t id);

/*
 * Requests that were shed. Most rules shed nothing, ever: the sum has no word of its own, but those of the other
 * stripes in whose place the first has the rule's id.
 */
static inline uint64_t *weir__tally_shed(struct weir__tally *tally, unsigned cpu)
{
    return &tally->stripe[1 + cpu % (WEIR__TALLY_STRIPES - 1)].word;
}

/* Notes that a check took so long; `stripe` is any number, best the processor's. */
void weir__times_add(const struct weir__table *table, unsigned stripe, int64_t ns);

#endif
