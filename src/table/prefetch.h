/*
 * What a decision touches beyond the line its key is at home in, asked for ahead of it (../engine/batch.c). Nothing is
 * decided here: what is read may be torn, damaged or out of date a moment later, and only what lies within the segment
 * is asked for.
 */
#ifndef WEIR_TABLE_PREFETCH_H
#define WEIR_TABLE_PREFETCH_H

#include "table/slab.h"

/* What there is beyond a key's slot: nothing, another slot (slot_pair.c), or a record in the slab. */
enum weir__beyond { WEIR__NOTHING, WEIR__SIBLING, WEIR__RECORD };

static inline enum weir__beyond weir__beyond(const weir_limit *limit)
{
    if (weir__is_one_slot(limit))
        return WEIR__NOTHING;
    return limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets == 2 ? WEIR__SIBLING : WEIR__RECORD;
}

/* Asks for the record that `slot` leads to, if it is the key's: its lease and its head. */
static inline void weir__record_ahead(const struct weir__table *table, const weir__cell *slot, uint64_t tag)
{
    weir__cell seen = weir__cell_peek(slot);
    struct weir__record record = weir__record_unpack(weir__cell_unpack(seen).used);
    if (!weir__is_entry_of(seen.lo, tag) || record.chunk >= table->chunks)
        return;
    weir__prefetch_read(&table->lease[record.chunk]);
    weir__prefetch(&table->chunk[(uint64_t)record.chunk * WEIR__CHUNK]);
}

#endif
