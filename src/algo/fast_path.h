/*
 * The usual case of a token bucket, short enough to be inlined into a decision: units come back one at a time
 * (limit->usual), the clock has not gone back, and the request passes without soft. bucket.c decides the same.
 *
 * Branches are for what hardly ever happens. Which keys have recovered, or how much has dripped in, no processor can
 * foresee, and a wrong guess costs more than all of this.
 */
#ifndef WEIR_ALGO_FAST_PATH_H
#define WEIR_ALGO_FAST_PATH_H

#include "algo/arith.h"

#include <weir/weir.h>

struct weir__fast_state {
    int64_t elapsed_us; /* since the anchor */
    int64_t used;
    int64_t expiry_us; /* in: after which it is no state any more; out: from the anchor until it equals an unused one */
};

/* Gives back what has dripped in and takes `cost`, which is positive; false, with the state spoiled, if it does not
 * fit. */
static inline bool weir__fast_add(const weir_limit *limit, struct weir__fast_state *state, int64_t cost)
{
    int64_t period = limit->period_us;
    /* A division by a multiplication: limit->inverse is 2^64 / period, rounded down, so this is one short at most. */
    int64_t periods = (int64_t)((weir__u128)(uint64_t)state->elapsed_us * limit->inverse >> 64);
    int64_t rest = state->elapsed_us - periods * period;
    if (__builtin_expect(rest >= period, 0)) {
        rest -= period;
        periods++;
    }
    int64_t used = state->used - periods;
    /* All ones if there is something left, by both measures; what has recovered begins anew. */
    int64_t live = ((state->elapsed_us - state->expiry_us) & -used) >> 63;

    state->elapsed_us = rest & live;
    state->used = (used & live) + cost;
    if (state->used > limit->hard)
        return false;
    state->expiry_us = state->used * period; /* at most 400 days: limit.c has seen to it */
    return true;
}

#endif
