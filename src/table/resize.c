/* Resizing: see resize.h. cuckoo.c moves single entries. */
#include "table/resize.h"

#define PASSES 64 /* over all buckets; two suffice unless entries escape to another bucket */

/* The geometry after `seen`. */
static uint64_t geometry_after(uint64_t seen, unsigned before, unsigned now)
{
    uint64_t next = ((seen << 16 >> 24) + 1) << 24 | (uint64_t)before << 20 | (uint64_t)now << 16;
    return next >> 16 | next * UINT64_C(0x9e3779b97f4a7c15) >> 48 << 48;
}

int weir__resize_begin(const struct weir__table *table, unsigned doublings)
{
    uint64_t *word = &table->header->geometry, seen = weir__load64(word);
    if (weir__doublings(seen) != weir__doublings_before(seen))
        return WEIR_EBUSY;
    uint64_t next = geometry_after(seen, weir__doublings(seen), doublings);
    /* First: a program that does not know `geometry` must not attach from now on. */
    weir__store32(&table->header->layout, WEIR__LAYOUT_RESIZED);
    return weir__cas64(word, &seen, next) ? 0 : WEIR_EBUSY;
}

/* Moves what does not belong into the bucket. Returns how many slots that were. */
static uint64_t sweep_bucket(const struct weir__op *op, uint64_t at, uint64_t geometry)
{
    uint64_t found = 0;
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
        weir__cell *slot = &op->table->bucket[at].slot[i];
        uint64_t tag = weir__cell_tag(weir__load64(&slot->lo));
        if (!tag || !weir__has_to_leave(op->table, tag, at, geometry))
            continue;
        weir__cell seen = weir__cell_read(slot);
        /*
         * A reservation is no entry, and must stay: if it went while its displacement goes on, another one in its place
         * would be taken for it. Its displacement is counted when it ends.
         */
        if (weir__cell_state(seen.lo) == WEIR__RESERVED && !weir__is_leaving(seen.lo))
            continue;
        if (weir__cell_tag(seen.lo) == tag)
            weir__entry_move(op, at, slot, seen, geometry);
        found++;
    }
    return found;
}

int weir__resize_finish(const struct weir__op *op, uint64_t *moved)
{
    const struct weir__table *table = op->table;
    uint64_t *word = &table->header->geometry, *escaped = &table->header->leaving_displaced;
    uint64_t geometry = weir__load64(word);
    unsigned now = weir__doublings(geometry), before = weir__doublings_before(geometry);
    *moved = 0;
    if (now > table->doublings_max || before > table->doublings_max)
        return WEIR_ERESIZED;
    for (int pass = 0; pass < PASSES && now != before; pass++) {
        /*
         * The geometry was swapped before the slots are read. Pairs with the fence after an insertion, and with
         * weir__add64 in finish_displacement: either the pass sees an entry, or its process sees the geometry.
         */
        weir__fence();
        uint64_t found = 0, displaced = weir__load64(escaped);
        /* Not to the end if another process has ended it, or if the segment is lost, which has geometry 0. */
        for (uint64_t region = 0; region < UINT64_C(1) << before; region++)
            for (uint64_t i = 0; i < table->buckets && weir__load64(word) == geometry; i++)
                found += sweep_bucket(op, region * table->stride + i, geometry);
        *moved += pass ? 0 : found;
        weir__fence();
        if (weir__load64(word) != geometry)
            return 0;
        if (found || weir__load64(escaped) != displaced)
            continue;
        /* Nothing is left, and nothing can arrive: lookups need only the new geometry. */
        weir__cas64(word, &geometry, geometry_after(geometry, now, now));
        return 0;
    }
    return now == before ? 0 : WEIR_EBUSY;
}
