/*
 * The usual case of a token bucket, short enough to be inlined into a decision: units come back one at a time
 * (limit->usual), the clock has not gone back, and the request passes without soft. bucket.c decides the same.
 */
#ifndef WEIR_ALGO_USUAL_H
#define WEIR_ALGO_USUAL_H

#include "algo/arith.h"

#include <weir/weir.h>

struct weir__usual_state {
    uint64_t elapsed_us; /* since the anchor */
    int64_t used;
    int64_t whole_us; /* from the anchor until it equals an unused one */
};

/* Gives back what has dripped in. used <= 0: it has recovered. */
static inline void weir__usual_drip(const weir_limit *limit, struct weir__usual_state *state)
{
    uint64_t period = (uint64_t)limit->period_us;
    if (state->elapsed_us < period)
        return;
    /* A division by a multiplication: limit->inverse is 2^64 / period, rounded down, so this is one short at most. */
    uint64_t periods = (uint64_t)((weir__u128)state->elapsed_us * limit->inverse >> 64);
    state->elapsed_us -= periods * period;
    if (state->elapsed_us >= period) {
        state->elapsed_us -= period;
        periods++;
    }
    state->used -= (int64_t)periods;
}

/* Takes `cost`; false, with the state spoiled, if it does not fit. */
static inline bool weir__usual_add(const weir_limit *limit, struct weir__usual_state *state, int64_t cost)
{
    if (state->used <= 0) { /* begins anew */
        state->used = 0;
        state->elapsed_us = 0;
    }
    state->used += cost;
    if (state->used > limit->hard)
        return false;
    state->whole_us = state->used * limit->period_us; /* at most 400 days: limit.c has seen to it */
    return true;
}

#endif
