/*
 * Places that can be held: the record of a key's requests in flight, one word a place. See docs/concurrency.md.
 *
 *     head   mark 26 | use 2 | 19 | reach 17    32 | nonce 32
 *     body   maps: nonce 32 | places 32, a bit for each that is thought to be held
 *            places: until 47 | turn 15 | held 1 | frozen 1
 *
 * A place is held until the moment it names, or until whoever holds it swaps it back. Nobody can hold more places than
 * there are, so with one limit, whose places are the only ones that are used, no count need be kept: one
 * compare-and-swap of a word takes a slot, one gives it back, and a death at any instruction leaves words that mean
 * what they say. The word itself is the holder's proof: its time and turn never come back.
 *
 * Maps are hints: where to look first, and about how many are held. Places decide. Like places they carry what nobody
 * else's words do, so that a late writer finds something else and does no harm to the next owner of the grains.
 *
 * A record that is too small has its places frozen, one by one, for ever; they are copied into a larger one, which is
 * linked in its stead (permit_slots.c). Whoever finds a frozen place does the same.
 */
#ifndef WEIR_TABLE_PERMIT_SLOTS_H
#define WEIR_TABLE_PERMIT_SLOTS_H

#include "table/slab.h"

#define WEIR__PERMIT_FROZEN        UINT64_C(1)
#define WEIR__PERMIT_TAKEN         UINT64_C(2)
#define WEIR__PERMIT_SEQUENCE_ONE  UINT64_C(4)
#define WEIR__PERMIT_SEQUENCE_MASK UINT64_C(0x1fffc)
#define WEIR__PERMIT_EXPIRY_SHIFT  17
#define WEIR__PERMIT_REACH_MASK    ((UINT64_C(1) << 17) - 1)
#define WEIR__PERMIT_USE           ((uint64_t)WEIR__USE_PERMITS << WEIR__USE_SHIFT)
#define WEIR__PERMIT_MAP_SLOTS     32
#define WEIR__PERMIT_MAP_TRIES     4

/* A record's body: the first places are used, as many as the limit has. */
struct weir__permit_slots {
    uint64_t *map, *place;
    int64_t maps, capacity;
    uint32_t aba_tag;
};

static inline struct weir__permit_slots weir__permit_slots_of(const struct weir__op *op, struct weir__record record,
                                                              weir__cell head)
{
    uint64_t *word = weir__record_body(op, record);
    uint32_t words = (uint32_t)(weir__record_body_bytes(record) / sizeof *word);
    uint32_t maps = (words + WEIR__PERMIT_MAP_SLOTS) / (WEIR__PERMIT_MAP_SLOTS + 1);
    return (struct weir__permit_slots){word, word + maps, maps, words - maps, (uint32_t)head.hi};
}

/* The largest limit that the record was used with: see permits.c. */
static inline int64_t weir__permit_reach(weir__cell head)
{
    return (int64_t)(head.lo & WEIR__PERMIT_REACH_MASK);
}

static inline bool weir__permit_is_taken(uint64_t word, int64_t now_us)
{
    return word & WEIR__PERMIT_TAKEN && weir__anchor_expand(word >> WEIR__PERMIT_EXPIRY_SHIFT, now_us) > now_us;
}

/* In its map. */
static inline void weir__permit_map_mark(const struct weir__permit_slots *body, int64_t place, bool held)
{
    uint64_t at = (uint64_t)place, *map = &body->map[at / WEIR__PERMIT_MAP_SLOTS], seen = weir__load64(map);
    uint64_t bit = UINT64_C(1) << at % WEIR__PERMIT_MAP_SLOTS;
    for (int i = 0; i < WEIR__PERMIT_MAP_TRIES; i++) {
        uint64_t next = held ? seen | bit : seen & ~bit;
        if (next == seen || seen >> 32 != body->aba_tag || weir__cas64(map, &seen, next))
            return;
    }
}

/* Links a record for at least `room` places to the key, with those that it has. 0: look again; or an error. */
int weir__permit_slots_grow(const struct weir__op *op, const struct weir__key_location *where,
                            struct weir__key_record *key, int64_t room, int64_t reach, int64_t for_us);

#endif
