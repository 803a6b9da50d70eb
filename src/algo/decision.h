/* How an algorithm's arithmetic becomes a decision: the part that is the same for all of them. */
#ifndef WEIR_ALGO_DECISION_H
#define WEIR_ALGO_DECISION_H

#include "algo/algo.h"
#include "algo/arith.h"

/*
 * Decides whether `cost` more fits on top of `in_use`, and fills everything but the times. Returns true if the
 * units are to be taken (or given back).
 */
static inline bool weir__decide(const weir_limit *limit, int64_t in_use, int64_t cost, enum weir__mode mode,
                                weir_decision *decision)
{
    bool fits = in_use + cost <= limit->cap || cost < 0;
    bool taken = fits || mode == WEIR__CHARGE;
    int64_t after = taken ? in_use + cost : in_use;

    if (after < 0)
        after = 0;
    decision->verdict = taken ? WEIR_ALLOW : cost > limit->cap ? WEIR_NEVER_FITS : WEIR_DENY;
    decision->flags = taken && cost > 0 && after > limit->hard ? WEIR_OVER_SOFT : 0;
    decision->limit = limit->hard;
    decision->remaining = limit->hard - after;
    decision->delay_ns = 0;
    decision->retry_after_ns = decision->verdict == WEIR_NEVER_FITS ? -1 : 0;
    decision->reset_after_ns = 0;
    return taken;
}

#endif
