/*
 * The usual case of a decision, short enough to be inlined where it matters: a token bucket whose entry is in place,
 * and a request that passes (algo/usual.h). Everything else, and everything that collides, goes the long way
 * (weir__table_take), which decides the same.
 */
#ifndef WEIR_TABLE_FAST_PATH_H
#define WEIR_TABLE_FAST_PATH_H

#include "algo/algo.h"
#include "table/table.h"

/* weir__expiry_decode of every code: one load for a dozen instructions, and few of its lines are ever touched. */
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

/* True if a request of this limit and cost may have the usual case at all. */
static inline bool weir__may_take_fast(const weir_limit *limit, int64_t cost)
{
    return limit->has_fast_path && cost > 0;
}

/* What is told alike to all that pass; the rest comes from weir__fast_swap. */
static inline void weir__fast_decision_init(const weir_limit *limit, weir_decision *decision)
{
    decision->verdict = WEIR_ALLOW;
    decision->flags = 0;
    decision->limit = limit->hard;
    decision->delay_ns = 0;
    decision->retry_after_ns = 0;
}

/*
 * Decides, given that it may be usual; false if it is not. `slot` may be any; `wanted` is the tag as it stands in an
 * entry (weir__tag_bits_of). Nothing is taken before the step's swap succeeds.
 */
__attribute__((always_inline)) static inline bool weir__fast_look(int64_t mono_us, const weir_limit *limit,
                                                                  const weir__cell *slot, uint64_t wanted, int64_t cost,
                                                                  struct weir__step *step)
{
    weir__cell seen = weir__cell_peek(slot);
    /* The count below the anchor is no more than what is added here below the time: no borrow. */
    int64_t since = (int64_t)(((uint64_t)mono_us << 17 | 0x1ffff) - seen.hi);

    /* The tag in the normal state of any version, on the monotonic clock; neither of the future nor two years old. */
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

/*
 * The same, and takes; false also if the entry was changed meanwhile: then nothing was done. Of the decision only that
 * is told which depends on the entry, and that last: a swap waits until all that was written before it has left the
 * processor.
 */
__attribute__((always_inline)) static inline bool weir__fast_swap(int64_t mono_us, const weir_limit *limit,
                                                                  weir__cell *slot, uint64_t wanted, int64_t cost,
                                                                  weir_decision *decision)
{
    struct weir__step step;
    if (!weir__fast_look(mono_us, limit, slot, wanted, cost, &step) || !weir__cell_cas(slot, &step.seen, step.next))
        return false;
    decision->remaining = step.remaining;
    decision->reset_after_ns = step.reset_after_ns;
    return true;
}

/* The same for one alone, with all of its decision. */
__attribute__((always_inline)) static inline bool weir__fast_take(int64_t mono_us, const weir_limit *limit,
                                                                  weir__cell *slot, uint64_t tag, int64_t cost,
                                                                  weir_decision *decision)
{
    if (!weir__fast_swap(mono_us, limit, slot, weir__tag_bits_of(tag), cost, decision))
        return false;
    weir__fast_decision_init(limit, decision);
    return true;
}

#endif
