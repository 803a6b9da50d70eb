/*
 * The slab: records of one to many grains for keys that need more than a slot. See docs/table.md.
 *
 * There is no free list, so nothing can be lost from one. Each grain has a lease word; a record holds its grains as
 * long as the leases run, and whoever finds lapsed ones may take them. A process that dies between taking grains and
 * publishing them loses nothing for longer than a lease.
 *
 * A record begins with its head, a cell that is compared-and-swapped as a whole. Its topmost bits are part of the
 * owner's tag and a number that grows each time the grains get another owner: a change made by someone who has lost
 * the record meanwhile fails, even if the same key has taken it again.
 */
#ifndef WEIR_TABLE_SLAB_H
#define WEIR_TABLE_SLAB_H

#include "table/table.h"

/* A record: its first grain, and its size as a class. Fits the 32 bits of a slot's `used`. */
struct weir__record {
    uint32_t chunk;
    unsigned size_class;
    uint32_t lease; /* of the first grain, as last seen or written; not packed */
};

#define WEIR__CLASSES             64
#define WEIR__OWNER_BITS          22
#define WEIR__OWNER_SEQUENCE_BITS 4 /* below the owner */
#define WEIR__HEAD_SHIFT          (64 - WEIR__OWNER_BITS - WEIR__OWNER_SEQUENCE_BITS)
#define WEIR__USE_SHIFT           36 /* below the turn; what is below it is the record's users' own */
#define WEIR__USE_MASK            (UINT64_C(3) << WEIR__USE_SHIFT)
#define WEIR__CHUNKS_MAX          (UINT64_C(1) << 26)

/* In a head: how much an eviction of the record would forgive its key. It changes with the head, by the same swap. */
enum weir__use {
    WEIR__USE_LOW,    /* at most half of the limit was used when the head was written */
    WEIR__USE_HIGH,   /* more than half */
    WEIR__USE_DENIED, /* more than half, and a request was denied since */
    WEIR__USE_PERMITS /* places that can be held (permit_slots.h): its map tells */
};

static inline uint64_t weir__record_pack(struct weir__record r)
{
    return (uint64_t)r.size_class << 26 | r.chunk;
}

static inline struct weir__record weir__record_unpack(uint64_t used)
{
    return (struct weir__record){(uint32_t)(used & (WEIR__CHUNKS_MAX - 1)), (unsigned)(used >> 26), 0};
}

/* Grains of a class: 1 to 8 one by one, then four sizes to each doubling. */
static inline uint32_t weir__class_chunks(unsigned size_class)
{
    if (size_class < 8)
        return size_class + 1;
    return (4 + size_class % 4) << (size_class / 4 - 1);
}

/* The smallest class for so many bytes, or WEIR__CLASSES if none is large enough. */
unsigned weir__class_for(uint64_t bytes);

static inline weir__cell *weir__record_head(const struct weir__op *op, struct weir__record r)
{
    return (weir__cell *)(void *)(op->table->chunk + (uint64_t)r.chunk * WEIR__CHUNK);
}

/* What follows the head. */
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

/* The owner and turn of a head. */
static inline uint64_t weir__head_mark(weir__cell head)
{
    return head.lo >> WEIR__HEAD_SHIFT << WEIR__HEAD_SHIFT;
}

static inline enum weir__use weir__head_use(weir__cell head)
{
    return (enum weir__use)(head.lo >> WEIR__USE_SHIFT & 3);
}

/* The bits of a head whose key has used `used` of `cap` units. A denial is remembered while more than half is used. */
static inline uint64_t weir__use_bits(int64_t used, int64_t cap, bool denied)
{
    enum weir__use use = used <= cap / 2 ? WEIR__USE_LOW : denied ? WEIR__USE_DENIED : WEIR__USE_HIGH;
    return (uint64_t)use << WEIR__USE_SHIFT;
}

/*
 * Takes grains for a record until at least for_us from now. The head and body hold whatever was there.
 * Returns 0, or WEIR_EFULL if only records that are kept could make room, and counts that. `stand_in`: without a record
 * the key can still be counted (engine/slab_full.c), so records of keys that have used more than half of their limits
 * are kept. Counts a record that had to be taken from a live key; never takes `keep` (may be NULL).
 */
int weir__record_take(const struct weir__op *op, unsigned size_class, int64_t for_us, const struct weir__record *keep,
                      bool stand_in, struct weir__record *record);

/* Gives a record back: it must have been unlinked from its slot by the caller, or never linked. */
void weir__record_release(const struct weir__op *op, struct weir__record record);

/* True if nobody has taken the record since its lease was read. */
static inline bool weir__record_is_current(const struct weir__op *op, struct weir__record record)
{
    return weir__load32(&op->table->lease[record.chunk]) == record.lease;
}

/*
 * Puts `head` into a record just taken, with the owner and the next turn on top, whatever stale writers of its last
 * owner still try, and lets others see it. False: somebody took the record meanwhile.
 */
bool weir__record_publish(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__record *record, weir__cell head);

/* The slot and record of a key, as they were seen. If none was found, the caller takes, fills and links one. */
struct weir__key_record {
    weir__cell *slot;
    weir__cell seen;            /* the slot's */
    struct weir__record record; /* if found */
    weir__cell head;            /* the record's, if found */
    bool found;
};

int weir__key_record_find(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__key_record *key);

/* Renews the leases if they end before now + for_us. False: lost the race, look again. */
bool weir__key_record_renew(const struct weir__op *op, struct weir__key_record *key, int64_t for_us);

/*
 * Links a record the caller has filled to the key in place of what `key` found. True if that worked; if not, or on
 * error, the record was released and the caller looks again.
 */
bool weir__key_record_link(const struct weir__op *op, const struct weir__key_location *where,
                           struct weir__key_record *key, struct weir__record record, int64_t for_us, int *error);

/*
 * Ends a decision that leaves the key's record as it is; a denial marks it. False: it was changed meanwhile, look
 * again.
 */
bool weir__key_record_leave(const struct weir__op *op, const struct weir__key_record *key, bool denied);

/* Marks the record of a key that another call found to be denied, if it has one. */
void weir__key_record_deny(const struct weir__op *op, const struct weir__key_location *where);

/* Empties the key's slot and gives its record back. */
int weir__key_record_drop(const struct weir__op *op, const struct weir__key_location *where);

#endif
