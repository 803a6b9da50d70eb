/*
 * The fast path of a take, inlined: a token bucket whose entry is in its slot, and a request that is allowed (fast path
 * of algo/algo.h). Everything else, collisions included, takes the slow path, weir__table_take, which decides the same.
 */
#ifndef WEIR_TABLE_FAST_PATH_H
#define WEIR_TABLE_FAST_PATH_H

#include "algo/algo.h"
#include "table/table.h"

/* weir__expiry_decode of every code: one load instead of a dozen instructions; few cache lines of it are used. */
#define WEIR__EXPIRY_PLAIN(code)                                                                                       \
    ((code) < WEIR__EXPIRY_DENIED ? (code) : (code)-WEIR__EXPIRY_DENIED + WEIR__EXPIRY_MARKED)
#define WEIR__EXPIRY_POWER(code) ((code) < 8 ? 0 : (code) / 4 - 1)
#define WEIR__EXPIRY_OF(code)                                                                                          \
    ((code) <= 4 ? INT64_C(1) * (code) : (INT64_C(4) + (code) % 4) << WEIR__EXPIRY_POWER(code))
#define WEIR__EXPIRY_1(code) WEIR__EXPIRY_OF(WEIR__EXPIRY_PLAIN(code))
#define WEIR__EXPIRY_4(code)                                                                                           \
    WEIR__EXPIRY_1(code), WEIR__EXPIRY_1((code) + 1), WEIR__EXPIRY_1((code) + 2), WEIR__EXPIRY_1((code) + 3)
#define WEIR__EXPIRY_16(code)                                                                                          \
    WEIR__EXPIRY_4(code), WEIR__EXPIRY_4((code) + 4), WEIR__EXPIRY_4((code) + 8), WEIR__EXPIRY_4((code) + 12)
#define WEIR__EXPIRY_64(code)                                                                                          \
    WEIR__EXPIRY_16(code), WEIR__EXPIRY_16((code) + 16), WEIR__EXPIRY_16((code) + 32), WEIR__EXPIRY_16((code) + 48)

static const int64_t weir__expiry_table[256] = {WEIR__EXPIRY_64(0), WEIR__EXPIRY_64(64), WEIR__EXPIRY_64(128),
                                                WEIR__EXPIRY_64(192)};

/* True if the fast path applies to this limit and cost. */
static inline bool weir__may_take_fast(const weir_limit *limit, int64_t cost)
{
    return limit->has_fast_path && cost > 0;
}

/* The part of a decision that is the same for all allowed requests. */
static inline void weir__fast_decision_init(const weir_limit *limit, weir_decision *decision)
{
    decision->verdict = WEIR_ALLOW;
    decision->flags = 0;
    decision->limit = limit->hard;
    decision->delay_ns = 0;
    decision->retry_after_ns = 0;
}

/* The part that depends on the entry. A swap waits for all earlier stores, so this is best called after it. */
static inline void weir__fast_decision_fill(const struct weir__step *step, weir_decision *decision)
{
    decision->remaining = step->remaining;
    decision->reset_after_ns = step->reset_after_ns;
}

/*
 * Decides on the fast path by the content `seen` of a slot; false if the slow path must. It may be that of any slot;
 * `wanted` is the tag at its position in an entry (weir__tag_bits_of). Nothing is taken before the caller's swap of
 * step->seen succeeds.
 */
__attribute__((always_inline)) static inline bool weir__fast_step(int64_t mono_us, const weir_limit *limit,
                                                                  weir__cell seen, uint64_t wanted, int64_t cost,
                                                                  struct weir__step *step)
{
    /*
     * hi is anchor << 17 | low bits of the count: with all low bits set, the subtraction does not borrow from the time.
     */
    int64_t since = (int64_t)(((uint64_t)mono_us << 17 | 0x1ffff) - seen.hi);

    /*
     * A NORMAL entry of this tag, of any version, on the monotonic clock; neither in the future nor older than two
     * years.
     */
    if (since < 0 || (seen.lo ^ wanted) & ~UINT64_C(0x077fffff))
        return false;
    struct weir__fast_state state = {.elapsed_us = (int64_t)((uint64_t)since >> 17),
                                     .used = (int64_t)((seen.lo & 0x7fff) << 17 | (seen.hi & 0x1ffff)),
                                     .expiry_us = weir__expiry_table[seen.lo >> 15 & 0xff]};
    if (!weir__fast_add(limit, &state, cost))
        return false;

    uint64_t used = (uint64_t)state.used;
    step->seen = seen;
    step->next = (weir__cell){(seen.lo & ~UINT64_C(0x7fffff)) |
                                  ((uint64_t)weir__expiry_encode_long(state.expiry_us) << 32 | used) >> 17,
                              (uint64_t)(mono_us - state.elapsed_us) << 17 | (used & 0x1ffff)};
    step->remaining = limit->hard - state.used;
    step->reset_after_ns = (state.expiry_us - state.elapsed_us) * 1000;
    return true;
}

/* Decides by the present content of a slot. */
__attribute__((always_inline)) static inline bool weir__fast_look(int64_t mono_us, const weir_limit *limit,
                                                                  const weir__cell *slot, uint64_t wanted, int64_t cost,
                                                                  struct weir__step *step)
{
    return weir__fast_step(mono_us, limit, weir__cell_peek(slot), wanted, cost, step);
}

/* Decides and takes; false also if the entry was changed meanwhile: then nothing was taken. */
__attribute__((always_inline)) static inline bool weir__fast_take(int64_t mono_us, const weir_limit *limit,
                                                                  weir__cell *slot, uint64_t tag, int64_t cost,
                                                                  weir_decision *decision)
{
    struct weir__step step;
    if (!weir__fast_look(mono_us, limit, slot, weir__tag_bits_of(tag), cost, &step) ||
        !weir__cell_cas(slot, &step.seen, step.next))
        return false;
    weir__fast_decision_init(limit, decision);
    weir__fast_decision_fill(&step, decision);
    return true;
}

#endif
