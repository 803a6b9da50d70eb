/*
 * Permits of concurrency limits: taken, released, and freed by their expiry. The record of a key has one word a permit
 * slot (docs/internals/concurrency.md):
 *
 *     head   mark 26 | use 2 | 19 | reach 17    32 | ABA tag 32
 *     body   maps: ABA tag 32 | 32 bits, one for each slot that is believed to be taken
 *            slots: expiry 47 | sequence 15 | taken 1 | frozen 1
 *
 * A slot is taken until its expiry, or until the holder releases it. There are as many slots as permits, so with one
 * limit no count is needed: one compare-and-swap of a word takes a permit, one releases it, and a crash at any
 * instruction leaves valid words. The word is the holder's proof of ownership: its expiry and sequence number never
 * repeat.
 *
 * Maps are hints: which slot to try first, and about how many are taken. The slots decide. Maps have the ABA tag of
 * their record, so that the swap of a late writer fails after the chunks have changed hands.
 *
 * The slots of a record that is too small are frozen one by one and copied into a larger record, which is linked in its
 * place. Any process that finds a frozen slot does the same.
 */
#ifndef WEIR_TABLE_PERMITS_H
#define WEIR_TABLE_PERMITS_H

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

/* The body of a record; the first `limit` slots are used. */
struct weir__permit_slots {
    uint64_t *map, *place;
    int64_t maps, capacity;
    uint32_t aba_tag;
};

static inline struct weir__permit_slots weir__permit_slots_of(const struct weir__op *op, struct weir__record record,
                                                              weir__cell head)
{
    uint64_t *word = weir__record_body(op, record);
    uint32_t word_count = (uint32_t)(weir__record_body_bytes(record) / sizeof *word);
    uint32_t maps = (word_count + WEIR__PERMIT_MAP_SLOTS) / (WEIR__PERMIT_MAP_SLOTS + 1);
    return (struct weir__permit_slots){word, word + maps, maps, word_count - maps, (uint32_t)head.hi};
}

/* The largest limit that the record was used with: permits.c has the reason. */
static inline int64_t weir__permit_reach(weir__cell head)
{
    return (int64_t)(head.lo & WEIR__PERMIT_REACH_MASK);
}

static inline bool weir__permit_is_taken(uint64_t word, int64_t now_us)
{
    return word & WEIR__PERMIT_TAKEN && weir__anchor_expand(word >> WEIR__PERMIT_EXPIRY_SHIFT, now_us) > now_us;
}

/* Marks a slot in its map. */
static inline void weir__permit_map_mark(const struct weir__permit_slots *body, int64_t place, bool taken)
{
    uint64_t at = (uint64_t)place, *map = &body->map[at / WEIR__PERMIT_MAP_SLOTS], seen = weir__load64(map);
    uint64_t bit = UINT64_C(1) << at % WEIR__PERMIT_MAP_SLOTS;
    for (int i = 0; i < WEIR__PERMIT_MAP_TRIES; i++) {
        uint64_t next = taken ? seen | bit : seen & ~bit;
        if (next == seen || seen >> 32 != body->aba_tag || weir__cas64(map, &seen, next))
            return;
    }
}

/* ---- Operations: permits.c ---- */

/* Takes a permit that expires after the limit's window, if one is free; *lease releases it. */
int weir__permit_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      weir_lease *lease, weir_decision *decision);
/* The decision of a take (`cost` > 0) or a peek; writes nothing. */
int weir__permit_peek(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      int64_t cost, weir_decision *decision);
/* WEIR_ELEASE: released before, or expired and taken by another request. */
int weir__permit_release(const struct weir__op *op, const weir_lease *lease);
/* Extends the lease by its duration from now. WEIR_ELEASE: expired. */
int weir__permit_renew(const struct weir__op *op, weir_lease *lease);

#endif
