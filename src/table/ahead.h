/*
 * What a decision touches beyond the line its key is at home in, asked for ahead of it (../engine/batch.c). Nothing is
 * decided here: what is read may be torn, damaged or out of date a moment later, and only what lies within the segment
 * is asked for.
 */
#ifndef WEIR_TABLE_AHEAD_H
#define WEIR_TABLE_AHEAD_H

#include "table/slab.h"

/* What there is beyond a key's slot: nothing, another slot (pair.c), or a record in the slab. */
enum weir__beyond { WEIR__NOTHING, WEIR__SIBLING, WEIR__RECORD };

static inline enum weir__beyond weir__beyond(const weir_limit *limit)
{
    if (weir__is_one_slot(limit))
        return WEIR__NOTHING;
    return limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets == 2 ? WEIR__SIBLING : WEIR__RECORD;
}

/*
 * Asks for the other lines of a pair: they are two. A slot that is at home is found there, and its other line is not
 * touched, unless it has to be taken over for the present window: for that both its lines are looked through.
 */
static inline void weir__pair_ahead(const struct weir__op *op, const weir_limit *limit, uint64_t home, uint64_t tag)
{
    const struct weir__table *table = op->table;
    const int64_t begin_us = weir__part_start(limit, op->mono_us);
    const unsigned present = (uint64_t)(begin_us / limit->part_us) & 1;
    for (unsigned parity = 0; parity < 2; parity++) {
        const uint64_t its = (tag & ~UINT64_C(1)) | parity;
        const weir__cell *slot = weir__slot_of(table, home, its);
        if (!slot || (parity == present &&
                      weir__anchor_expand(weir__cell_unpack(weir__cell_peek(slot)).anchor, op->mono_us) < begin_us))
            weir__prefetch(&table->line[weir__other_line(its, home, table->lines)]);
    }
}

/* Asks for the record that `slot` leads to, if it is the key's: its lease and its head. */
static inline void weir__record_ahead(const struct weir__table *table, const weir__cell *slot, uint64_t tag)
{
    weir__cell seen = weir__cell_peek(slot);
    struct weir__record record = weir__record_unpack(weir__cell_unpack(seen).used);
    if (!weir__counts(seen.lo, tag) || record.grain >= table->grains)
        return;
    weir__prefetch_read(&table->lease[record.grain]);
    weir__prefetch(&table->grain[(uint64_t)record.grain * WEIR__GRAIN]);
}

#endif
