/*
 * The slab: records of one or more chunks, for keys that need more than a slot. See docs/internals/table.md.
 *
 * There is no free list that a crash could corrupt. Each chunk has a lease word; a record owns its chunks until the
 * leases end, and any process may take chunks whose lease has ended. A process that dies between taking chunks and
 * publishing them loses them for at most one lease.
 *
 * A record begins with its head, a cell that is replaced by one compare-and-swap. The top bits of the head are part of
 * the owner's tag and a sequence number that grows with each change of ownership: a write by a process that has lost
 * the record fails, even if the same key owns it again.
 */
#ifndef WEIR_TABLE_SLAB_H
#define WEIR_TABLE_SLAB_H

#include "table/table.h"

/* A reference to a record: its first chunk and its size class. Fits the 32 bits of a slot's `used`. */
struct weir__record {
    uint32_t chunk;
    unsigned size_class;
    uint32_t lease; /* of the first chunk, as last read or written; not packed */
};

#define WEIR__CLASSES             64
#define WEIR__OWNER_BITS          22
#define WEIR__OWNER_SEQUENCE_BITS 4 /* below the owner */
#define WEIR__HEAD_SHIFT          (64 - WEIR__OWNER_BITS - WEIR__OWNER_SEQUENCE_BITS)
#define WEIR__USE_SHIFT           36 /* below the sequence number; lower bits belong to the algorithm */
#define WEIR__USE_MASK            (UINT64_C(3) << WEIR__USE_SHIFT)
#define WEIR__LEASE_FIRST         UINT32_C(0x80000000) /* in a chunk's lease: a record begins here */
#define WEIR__CHUNKS_MAX          (UINT64_C(1) << 26)

/* In a head: how much of its limit the key had used, which decides what is evicted first. Replaced with the head. */
enum weir__use {
    WEIR__USE_LOW,    /* at most half of the limit was used when the head was written */
    WEIR__USE_HIGH,   /* more than half */
    WEIR__USE_DENIED, /* more than half, and a request was denied since */
    WEIR__USE_PERMITS /* a record of permits (permits.h): its map has the count */
};

static inline uint64_t weir__record_pack(struct weir__record r)
{
    return (uint64_t)r.size_class << 26 | r.chunk;
}

static inline struct weir__record weir__record_unpack(uint64_t used)
{
    return (struct weir__record){(uint32_t)(used & (WEIR__CHUNKS_MAX - 1)), (unsigned)(used >> 26), 0};
}

/* Chunks of a size class: 1 to 8 one by one, then four classes to each doubling. */
static inline uint32_t weir__class_chunks(unsigned size_class)
{
    if (size_class < 8)
        return size_class + 1;
    return (4 + size_class % 4) << (size_class / 4 - 1);
}

/* The smallest size class of at least `bytes`, or WEIR__CLASSES if none is large enough. */
unsigned weir__class_for(uint64_t bytes);

static inline weir__cell *weir__record_head(const struct weir__op *op, struct weir__record r)
{
    return (weir__cell *)(void *)(op->table->chunk + (uint64_t)r.chunk * WEIR__CHUNK);
}

/* The bytes after the head. */
static inline void *weir__record_body(const struct weir__op *op, struct weir__record r)
{
    return op->table->chunk + (uint64_t)r.chunk * WEIR__CHUNK + sizeof(weir__cell);
}

static inline uint64_t weir__record_body_bytes(struct weir__record r)
{
    return (uint64_t)weir__class_chunks(r.size_class) * WEIR__CHUNK - sizeof(weir__cell);
}

static inline uint64_t weir__owner(const struct weir__key_location *where)
{
    return (where->tag + where->salt * UINT64_C(0x9e3779b1)) & ((UINT64_C(1) << WEIR__OWNER_BITS) - 1);
}

/* The location of a key's record in the slab. Limits whose counts are not comparable do not share a record. */
static inline struct weir__key_location weir__record_location(const weir_limit *limit,
                                                              const struct weir__key_location *where)
{
    struct weir__key_location w = *where;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        w.salt = (uint64_t)limit->quantum_us; /* times in other quanta */
    else if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER)
        w.salt = (uint64_t)limit->part_us * WEIR__CLASSES + limit->buckets; /* parts of another length */
    return w;
}

/* The owner and sequence number of a head. */
static inline uint64_t weir__head_mark(weir__cell head)
{
    return head.lo >> WEIR__HEAD_SHIFT << WEIR__HEAD_SHIFT;
}

static inline enum weir__use weir__head_use(weir__cell head)
{
    return (enum weir__use)(head.lo >> WEIR__USE_SHIFT & 3);
}

/* The `use` bits of a head whose key has used `used` of `cap` units. A denial is kept while more than half is used. */
static inline uint64_t weir__use_bits(int64_t used, int64_t cap, bool denied)
{
    enum weir__use use = used <= cap / 2 ? WEIR__USE_LOW : denied ? WEIR__USE_DENIED : WEIR__USE_HIGH;
    return (uint64_t)use << WEIR__USE_SHIFT;
}

/*
 * Takes chunks for a record for at least for_us. Head and body keep their old content. Returns 0, or WEIR_EFULL
 * (counted in slab_full) if only protected records could be evicted. With `stand_in` the caller can count the key
 * without a record (engine/take_all.c), so records of keys that have used more than half of their limit are protected.
 * Evictions of live records are counted; `keep` (may be NULL) is never evicted.
 */
int weir__record_take(const struct weir__op *op, unsigned size_class, int64_t for_us, const struct weir__record *keep,
                      bool stand_in, struct weir__record *record);

/* Frees a record that is not, or no longer, referenced by a slot. */
void weir__record_release(const struct weir__op *op, struct weir__record record);

/* True if the record has not changed hands since its lease was read. */
static inline bool weir__record_is_current(const struct weir__op *op, struct weir__record record)
{
    return weir__load32(&op->table->lease[record.chunk]) == record.lease;
}

/*
 * Writes `head` into a record just taken, with the owner and the next sequence number in its top bits, despite late
 * writers of the previous owner; then ends the TAKING state. False: another process took the record meanwhile.
 */
bool weir__record_publish(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__record *record, weir__cell head);

/* The slot and record of a key as they were read. If no record was found, the caller takes, fills and links one. */
struct weir__key_record {
    weir__cell *slot;
    weir__cell seen;            /* content of the slot */
    struct weir__record record; /* valid if found */
    weir__cell head;            /* of the record; valid if found */
    bool found;
};

int weir__key_record_find(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__key_record *key);

/* Renews the leases if they end before now + for_us. False: a concurrent change, retry. */
bool weir__key_record_renew(const struct weir__op *op, struct weir__key_record *key, int64_t for_us);

/*
 * Links a record that the caller has filled, and releases the one that `key` found. Returns 1, or 0 (a concurrent
 * change) or an error: then the new record was released instead.
 */
int weir__key_record_link(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__key_record *key, struct weir__record record, int64_t for_us);

/* Ends a decision that leaves the record unchanged; a denial marks it. False: a concurrent change, retry. */
bool weir__key_record_leave(const struct weir__op *op, const struct weir__key_record *key, bool denied);

/* Marks the record of a denied key, if it has one. */
void weir__key_record_deny(const struct weir__op *op, const struct weir__key_location *where);

/* Empties the key's slot and frees its record. */
int weir__key_record_drop(const struct weir__op *op, const struct weir__key_location *where);

#endif
