/* The cuckoo hash table: the two buckets of a key, lookup, and claiming a slot. cuckoo.c has the protocol. */
#ifndef WEIR_TABLE_CUCKOO_H
#define WEIR_TABLE_CUCKOO_H

#include "table/slot.h"
#include "table/layout.h"

#include <weir/weir.h>

#include <stddef.h>

/* Context of one table operation. */
struct weir__op {
    const struct weir__table *table;
    struct weir__stats_shard *stats; /* NULL: read-only, nothing may be written */
    int64_t mono_us, wall_us;
};

/* An entry that counts nothing yet; it expires after a second if its process dies. */
static inline weir__cell weir__cell_tentative(const struct weir__op *op, uint64_t tag)
{
    return weir__cell_pack((struct weir__slot_fields){.tag = tag,
                                                      .state = WEIR__TENTATIVE,
                                                      .expiry = weir__expiry_encode(1000000),
                                                      .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK});
}

/* Marks the entry `seen` in `slot` as one of a denied key. False: it was changed meanwhile. */
static inline bool weir__slot_mark(weir__cell *slot, weir__cell seen)
{
    weir__cell marked = weir__is_normal(seen.lo) ? weir__cell_denied(seen) : seen;
    return weir__cell_equal(marked, seen) ? weir__cell_equal(weir__cell_peek(slot), seen)
                                          : weir__cell_cas(slot, &seen, marked);
}

/* True if a denial marks its entry: the key has used more than half of its limit. */
static inline bool weir__marks(const weir_decision *decision)
{
    return decision->verdict == WEIR_DENY && decision->remaining < (decision->limit + 1) / 2;
}

/* Retries of an operation before it returns WEIR_EBUSY. */
#define WEIR__ROUNDS 4096

/* The two candidate buckets of a key. */
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

/* The other candidate bucket of an entry in bucket `at`. The function is its own inverse. */
static inline uint64_t weir__alternate_bucket(uint64_t tag, uint64_t at, uint64_t buckets)
{
    uint64_t sum = weir__scale(tag * UINT64_C(0xd6e8feb86659fd93), buckets);
    return sum >= at ? sum - at : sum + buckets - at;
}

/* ---- Regions: see resize.h ---- */

/* False for a damaged geometry, which must not lead out of the segment. */
static inline bool weir__geometry_is_valid(uint64_t geometry)
{
    return !geometry || (geometry << 16) * UINT64_C(0x9e3779b97f4a7c15) >> 48 == geometry >> 48;
}

/* The number of doublings of a geometry, and of the one that it replaces; they differ while entries are moved. */
static inline unsigned weir__doublings(uint64_t geometry)
{
    return weir__geometry_is_valid(geometry) ? geometry & 15 : 0;
}

static inline unsigned weir__doublings_before(uint64_t geometry)
{
    return weir__geometry_is_valid(geometry) ? geometry >> 4 & 15 : 0;
}

/* The size of a segment; its file may be longer. */
static inline uint64_t weir__table_bytes(const struct weir__table *table)
{
    return table->bytes << weir__doublings(weir__load64(&table->header->geometry));
}

/* The region of a tag after so many doublings. The last bit of a tag does not count: pairs of slots stay together. */
static inline uint64_t weir__region(const struct weir__table *table, uint64_t tag, unsigned doublings)
{
    unsigned mapped = doublings < table->doublings_max ? doublings : table->doublings_max;
    return tag >> 1 & ((UINT64_C(1) << mapped) - 1);
}

/* True if an entry in bucket `at` has to leave its region, mapped or not, for this geometry. */
static inline bool weir__has_to_leave(const struct weir__table *table, uint64_t tag, uint64_t at, uint64_t geometry)
{
    return (tag >> 1 & ((UINT64_C(1) << weir__doublings(geometry)) - 1)) != at / table->stride;
}

/* The bucket's index in its region: for all geometries the same for a key. */
static inline uint64_t weir__bucket_in_region(const struct weir__table *table, uint64_t at)
{
    return at < table->buckets ? at : at % table->stride;
}

/* The other candidate bucket, in the same region, of an entry in bucket `at`. */
static inline uint64_t weir__alternate_of(const struct weir__table *table, uint64_t tag, uint64_t at)
{
    if (at < table->buckets)
        return weir__alternate_bucket(tag, at, table->buckets);
    uint64_t within = at % table->stride;
    return at - within + weir__alternate_bucket(tag, within, table->buckets);
}

/* The upper bits of the key's hash choose the primary bucket, the lower bits are the tag. */
static inline void weir__locate_primary(const struct weir__table *table, uint64_t hash, struct weir__key_location *w)
{
    /* A tag of 0 is an empty slot; 1, its sibling, is unused. */
    w->tag = (hash & (WEIR__TAG_MASK - 1) ? hash : hash | 2) & WEIR__TAG_MASK;
    w->primary = weir__scale(hash, table->buckets);
    uint64_t geometry = weir__load64(&table->header->geometry);
    if (__builtin_expect(geometry != 0, 0))
        w->primary += weir__region(table, w->tag, weir__doublings(geometry)) * table->stride;
}

/* Completes a location; an entry that is found in its primary bucket does not need it. */
static inline void weir__locate_alternate(const struct weir__table *table, struct weir__key_location *w)
{
    w->alternate = weir__alternate_of(table, w->tag, w->primary);
    w->salt = 0;
}

/* The part of a tag (or hash) that weir__bucket_match compares. The caller compares the rest when it reads the slot. */
static inline uint32_t weir__tag_high(uint64_t tag)
{
    return (uint32_t)(tag >> (WEIR__TAG_BITS - 32));
}

/* The only slot of the bucket in which `tag` may be without a displacement; the caller checks its content. */
static inline weir__cell *weir__slot_at(struct weir__bucket *bucket, uint64_t tag)
{
    return weir__bucket_first(bucket->slot, weir__bucket_match(bucket->slot, weir__tag_high(tag)));
}

/* The slot of bucket `at` with a NORMAL entry of `tag`, or NULL. Compares all four slots before the only branch. */
static inline weir__cell *weir__slot_of(const struct weir__table *table, uint64_t at, uint64_t tag)
{
    weir__cell *slot = table->bucket[at].slot;
    unsigned found = (unsigned)weir__is_entry_of(weir__load64(&slot[0].lo), tag) |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[1].lo), tag) << 1 |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[2].lo), tag) << 2 |
                     (unsigned)weir__is_entry_of(weir__load64(&slot[3].lo), tag) << 3;
    return found ? &slot[__builtin_ctz(found)] : NULL;
}

/* Lookup without helping: the slot of the key's NORMAL entry and its content, or NULL if weir__lookup_helping must
 * decide. */
static inline weir__cell *weir__lookup(const struct weir__table *table, const struct weir__key_location *w,
                                       weir__cell *seen)
{
    weir__cell *slot = weir__slot_of(table, w->primary, w->tag);
    if (!slot)
        slot = weir__slot_of(table, w->alternate, w->tag);
    if (!slot)
        return NULL;
    *seen = weir__cell_peek(slot);
    return weir__is_entry_of(seen->lo, w->tag) ? slot : NULL; /* displaced or evicted meanwhile */
}

/*
 * Lookup with helping: completes displacements that it meets and removes duplicate claims. *slot is NULL if the key has
 * no entry; otherwise *seen is NORMAL, or TENTATIVE and may be made NORMAL by a compare-and-swap. On a read-only table
 * it changes nothing. Returns 0; WEIR_EBUSY; WEIR_ERESIZED: this process has not mapped all regions; or WEIR_EDAMAGED:
 * the geometry is not valid.
 */
int weir__lookup_helping(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot,
                         weir__cell *seen);

/*
 * Lookup with helping that inserts `tentative` if the key has no entry: into a free slot, a slot freed by displacement,
 * or by evicting the entry that expires first. Entries of denied keys are evicted last, unless they fill more than half
 * of the two buckets. Returns what weir__lookup_helping does.
 */
int weir__slot_claim(const struct weir__op *op, const struct weir__key_location *w, weir__cell tentative,
                     weir__cell **slot, weir__cell *seen);

/*
 * One step of moving what was seen in slot `from` of bucket `at` to its region in the geometry that was read before. An
 * expired entry and one that counts nothing are removed. Lost races are left to the caller, who looks again.
 */
void weir__entry_move(const struct weir__op *op, uint64_t at, weir__cell *from, weir__cell seen, uint64_t geometry);

#endif
