/*
 * The usual case of a decision, short enough to be inlined where it matters: a token bucket whose entry is in place,
 * and a request that passes (algo/usual.h). Everything else, and everything that collides, goes the long way
 * (weir__table_take), which decides the same.
 */
#ifndef WEIR_TABLE_USUAL_H
#define WEIR_TABLE_USUAL_H

#include "algo/usual.h"
#include "table/table.h"

/* Decides and takes; false if this is not the usual case, or the entry was changed meanwhile: then nothing was done. */
static inline bool weir__usual_take(const struct weir__op *op, const weir_limit *limit, weir__cell *slot, uint64_t tag,
                                    int64_t cost, weir_decision *decision)
{
    weir__cell seen = weir__cell_peek(slot);
    struct weir__usual_state state = {.elapsed_us = ((uint64_t)op->mono_us - (seen.hi >> 17)) & WEIR__TIME_MASK,
                                      .used = (int64_t)((seen.lo & 0x7fff) << 17 | (seen.hi & 0x1ffff))};

    /* The tag in the normal state of any version, on the monotonic clock and not from the future. */
    uint64_t elapsed_us = state.elapsed_us;
    if ((seen.lo >> 23 & ~UINT64_C(14)) != tag << 7 || elapsed_us >= UINT64_C(7) << (WEIR__TIME_BITS - 3) ||
        !limit->usual || cost <= 0)
        return false;
    weir__usual_drip(limit, &state);
    /* What had recovered under the limit it was written by is no entry, also for another limit. */
    if (state.used > 0 && (int64_t)elapsed_us >= weir__whole_decode(seen.lo >> 15 & 0xff))
        state.used = 0;
    if (!weir__usual_add(limit, &state, cost))
        return false;

    weir__cell next = {(seen.lo & ~UINT64_C(0x7fffff)) | (uint64_t)weir__whole_encode(state.whole_us) << 15 |
                           (uint64_t)state.used >> 17,
                       ((uint64_t)op->mono_us - state.elapsed_us) << 17 | (state.used & 0x1ffff)};
    if (!weir__cell_cas(slot, &seen, next))
        return false;
    *decision = (weir_decision){.verdict = WEIR_ALLOW,
                                .limit = limit->hard,
                                .remaining = limit->hard - state.used,
                                .reset_after_ns = (state.whole_us - (int64_t)state.elapsed_us) * 1000};
    return true;
}

#endif
