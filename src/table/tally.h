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

/* Notes that a check took so long; `stripe` is any number, best the processor's. */
void weir__times_add(const struct weir__table *table, unsigned stripe, int64_t ns);

#endif
