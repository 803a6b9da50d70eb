/* The lines: where a key may be, finding it, claiming a slot for it. See cuckoo.c for the protocol. */
#ifndef WEIR_TABLE_CUCKOO_H
#define WEIR_TABLE_CUCKOO_H

#include "table/slot.h"
#include "table/layout.h"

#include <weir/weir.h>

#include <stddef.h>

/* What one operation works with. */
struct weir__op {
    const struct weir__table *table;
    struct weir__stats_shard *stats; /* NULL: read-only, nothing may be written */
    int64_t mono_us, wall_us;
};

/* An entry that counts nothing yet and is given up after a second if its maker dies. */
static inline weir__cell weir__cell_tentative(const struct weir__op *op, uint64_t tag)
{
    return weir__cell_pack((struct weir__slot_fields){.tag = tag,
                                                      .state = WEIR__TENTATIVE,
                                                      .expiry = weir__expiry_encode(1000000),
                                                      .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK});
}

/* Marks an entry that was seen in `slot`, as its key was denied. False: it was changed meanwhile. */
static inline bool weir__slot_mark(weir__cell *slot, weir__cell seen)
{
    weir__cell marked = weir__is_normal(seen.lo) ? weir__cell_denied(seen) : seen;
    return weir__cell_equal(marked, seen) ? weir__cell_equal(weir__cell_peek(slot), seen)
                                          : weir__cell_cas(slot, &seen, marked);
}

/* True if a decision is a denial that marks: of a key that has used more than half of its limit. */
static inline bool weir__marks(const weir_decision *decision)
{
    return decision->verdict == WEIR_DENY && decision->remaining < (decision->limit + 1) / 2;
}

/* How often an operation starts over before it reports WEIR_EBUSY. */
#define WEIR__ROUNDS 4096

/* The lines of a key. */
struct weir__key_location {
    uint64_t tag;
    uint64_t primary, alternate;
    uint64_t salt; /* of records in the slab: one written under another salt is not the key's */
};

static inline uint64_t weir__scale(uint64_t hash, uint64_t range)
{
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)((u128)hash * range >> 64);
}

/* The other line of an entry that is in `line`; its own inverse, so that nobody need know which one was first. */
static inline uint64_t weir__alternate_bucket(uint64_t tag, uint64_t line, uint64_t lines)
{
    uint64_t sum = weir__scale(tag * UINT64_C(0xd6e8feb86659fd93), lines);
    return sum >= line ? sum - line : sum + lines - line;
}

/* The tag is what a hash has in its lower bits; this one has the same upper bits, and a tag that may be used. */
static inline uint64_t weir__with_tag(uint64_t hash)
{
    return hash & (WEIR__TAG_MASK - 1) ? hash : hash | 2; /* 0 is empty, and so its sibling 1 is not used either */
}

/* For a hash of the key: its upper bits choose the home line, its lower ones are the tag. */
static inline void weir__locate_primary(const struct weir__table *table, uint64_t hash, struct weir__key_location *w)
{
    w->tag = weir__with_tag(hash) & WEIR__TAG_MASK;
    w->primary = weir__scale(hash, table->buckets);
}

/* The rest, which one that is found at home does not need. */
static inline void weir__locate_alternate(const struct weir__table *table, struct weir__key_location *w)
{
    w->alternate = weir__alternate_bucket(w->tag, w->primary, table->buckets);
    w->salt = 0;
}

/* For weir__bucket_match: what is compared of a tag, or of a hash. The rest is seen when the slot is read. */
static inline uint32_t weir__tag_high(uint64_t tag)
{
    return (uint32_t)(tag >> (WEIR__TAG_BITS - 32));
}

/* The only slot of `line` in which `tag` can be found by a glance; whether it is there, its content tells. */
static inline weir__cell *weir__slot_at(struct weir__bucket *line, uint64_t tag)
{
    return weir__bucket_first(line->slot, weir__bucket_match(line->slot, weir__tag_high(tag)));
}

/* The slot of `line` in which `tag` counts, or NULL. All four are compared before the one branch. */
static inline weir__cell *weir__slot_of(const struct weir__table *table, uint64_t line, uint64_t tag)
{
    weir__cell *slot = table->bucket[line].slot;
    unsigned found = (unsigned)weir__is_entry_of(weir__load64(&slot[0].lo), tag) |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[1].lo), tag) << 1 |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[2].lo), tag) << 2 |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[3].lo), tag) << 3;
    return found ? &slot[__builtin_ctz(found)] : NULL;
}

/* The slot in which the key counts, or NULL if a closer look is needed. *seen is what it held. */
static inline weir__cell *weir__lookup(const struct weir__table *table, const struct weir__key_location *w,
                                       weir__cell *seen)
{
    weir__cell *slot = weir__slot_of(table, w->primary, w->tag);
    if (!slot)
        slot = weir__slot_of(table, w->alternate, w->tag);
    if (!slot)
        return NULL;
    *seen = weir__cell_peek(slot);
    return weir__is_entry_of(seen->lo, w->tag) ? slot : NULL; /* it may have been moved or taken over since */
}

/*
 * Looks thoroughly: finishes moves it comes across, settles who of several claimants stays. *slot is NULL if the key
 * has no entry; otherwise *seen is NORMAL, or TENTATIVE and free to be made NORMAL by a compare-and-swap.
 * Returns 0 or WEIR_EBUSY. On a read-only table it only looks.
 */
int weir__lookup_helping(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot,
                         weir__cell *seen);

/*
 * Like weir__lookup_helping, but makes an entry if there is none: `tentative` goes into a free slot, one made free by
 * moving another entry, or the one of the entry nearest to its recovery; entries of keys that were denied come after
 * the others, unless they have more than half of the two lines. Returns 0 or WEIR_EBUSY.
 */
int weir__slot_claim(const struct weir__op *op, const struct weir__key_location *w, weir__cell tentative,
                     weir__cell **slot, weir__cell *seen);

#endif
