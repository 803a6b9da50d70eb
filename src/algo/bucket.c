/*
 * Token bucket and leaky bucket.
 *
 * Both count `used` units since `anchor_us`, of which `period_units` return in every `period_us`. That ratio is
 * window : limit in lowest terms, so the anchor moves by whole periods exactly, and no rounding error accumulates
 * however long a key stays busy. Consumption is kept in units, not in time, so it stays consumed when the limit
 * changes.
 */
#include "algo/algo.h"

/* Moves the anchor by whole periods. Returns the units that have returned since the new anchor. */
static inline int64_t advance(const weir_limit *limit, struct weir__state *state, int64_t now_us)
{
    int64_t elapsed = weir__elapsed(now_us, state->anchor_us);

    if (state->used && elapsed >= limit->period_us) {
        int64_t periods = elapsed / limit->period_us;
        /* By division: periods * period_units could overflow after years of idleness. */
        if (periods > state->used / limit->period_units) {
            state->used = 0;
        } else {
            state->used -= periods * limit->period_units;
            state->anchor_us += periods * limit->period_us;
            elapsed -= periods * limit->period_us;
        }
    }
    if (state->used && limit->period_units > 1) {
        int64_t returned = weir__mul_div(elapsed, limit->period_units, limit->period_us);
        if (returned < state->used)
            return returned;
        state->used = 0;
    }
    if (!state->used)
        state->anchor_us = now_us;
    return 0;
}

/* The time at which `units` have returned since the anchor. */
static inline int64_t returned_at(const weir_limit *limit, const struct weir__state *state, int64_t units)
{
    int64_t wait = weir__mul_div_up(units, limit->period_us, limit->period_units);
    return state->anchor_us + (wait > WEIR__DEBT_MAX ? WEIR__DEBT_MAX : wait); /* as in refill_time */
}

/*
 * The part of a refund (a negative cost) of units taken at now_us that has not returned by itself: `returned` units
 * have since, maybe the very same, and the bucket may have been full in between. Refunding them again would admit too
 * much.
 */
static inline int64_t unreturned(int64_t cost, int64_t returned)
{
    return cost + returned < 0 ? cost + returned : 0;
}

bool weir__token_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                      enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state;
    if (cost < 0) {
        mode = WEIR__CHARGE; /* a refund is never denied, even if nothing of it is left */
        /*
         * Rounded down: if the take found the bucket full, its units return one by one from then on; if not, the first
         * to return was an earlier one.
         */
        if (next.used && now_us < next.anchor_us)
            cost = unreturned(cost, weir__mul_div(next.anchor_us - now_us, limit->back_units, limit->back_us));
    }
    int64_t returned = advance(limit, &next, now_us);
    int64_t in_use = next.used - returned;
    bool taken = weir__decide(limit, in_use, cost, mode, decision);

    if (decision->verdict == WEIR_DENY)
        decision->retry_after_ns =
            weir__us_to_ns(returned_at(limit, &next, returned + in_use + cost - limit->cap) - now_us);
    if (taken) {
        next.used += cost;
        next.used = next.used <= returned ? 0 : next.used > WEIR__USED_MAX ? WEIR__USED_MAX : next.used;
        decision->remaining = limit->hard - (next.used ? next.used - returned : 0);
    }
    int64_t full_us = returned_at(limit, &next, next.used);
    decision->reset_after_ns = next.used ? weir__us_to_ns(weir__elapsed(full_us, now_us)) : 0;
    if (!taken || !cost)
        return false;
    next.expiry_us = full_us - next.anchor_us;
    *state = next;
    return true;
}

/*
 * The queue is not stored: unit i since the anchor leaves at anchor + i periods, so a new one leaves after all before
 * it. `burst` is the capacity of the queue, including the unit that leaves now.
 */
bool weir__leaky_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                      enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state, queue = *state;
    bool taken = weir__token_take(limit, &next, now_us, cost, mode, decision);

    if (limit->delay && mode == WEIR__TAKE && cost >= 0) {
        advance(limit, &queue, now_us);
        int64_t wait = weir__elapsed(returned_at(limit, &queue, queue.used), now_us);
        if (wait > limit->max_delay_us && decision->verdict != WEIR_NEVER_FITS) {
            /* The wait exceeds max_delay, even if the queue has room. */
            int64_t shrink = weir__us_to_ns(wait - limit->max_delay_us);
            if (weir_passes(decision))
                decision->remaining += cost;
            decision->verdict = WEIR_DENY;
            decision->flags = 0;
            decision->retry_after_ns = decision->retry_after_ns > shrink ? decision->retry_after_ns : shrink;
            decision->reset_after_ns = weir__us_to_ns(wait);
            return false;
        }
        if (weir_passes(decision) && wait) {
            decision->verdict = WEIR_DELAY;
            decision->delay_ns = weir__us_to_ns(wait);
        }
    }
    if (taken)
        *state = next;
    return taken;
}

/* Time from the anchor until `units` have returned; clamped, as a debt may take centuries. */
static int64_t refill_time(const weir_limit *limit, int64_t units)
{
    int64_t refills = (units + limit->limit - 1) / limit->limit;
    return refills > WEIR__DEBT_MAX / limit->window_us ? WEIR__DEBT_MAX : refills * limit->window_us;
}

/* Interval refill: `limit` units return at once, at each whole window after the request that found the bucket full. */
bool weir__interval_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                         enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state;
    int64_t windows = weir__elapsed(now_us, next.anchor_us) / limit->window_us;
    if (cost < 0) {
        mode = WEIR__CHARGE; /* as in weir__token_take, but rounded up: the first refill may have returned all */
        if (next.used && now_us < next.anchor_us) {
            int64_t refills = (next.anchor_us - now_us - 1) / limit->back_us + 1, units = limit->back_units;
            cost = unreturned(cost, refills > WEIR__USED_MAX / units ? WEIR__USED_MAX : refills * units);
        }
    }

    if (windows >= (next.used + limit->limit - 1) / limit->limit) {
        next.used = 0;
        next.anchor_us = now_us;
    } else {
        next.used -= windows * limit->limit;
        next.anchor_us += windows * limit->window_us;
    }

    bool taken = weir__decide(limit, next.used, cost, mode, decision);
    if (decision->verdict == WEIR_DENY)
        decision->retry_after_ns =
            weir__us_to_ns(next.anchor_us + refill_time(limit, next.used + cost - limit->cap) - now_us);
    if (taken) {
        next.used += cost;
        next.used = next.used < 0 ? 0 : next.used > WEIR__USED_MAX ? WEIR__USED_MAX : next.used;
        decision->remaining = limit->hard - next.used;
    }
    next.expiry_us = refill_time(limit, next.used);
    if (next.used)
        decision->reset_after_ns = weir__us_to_ns(weir__elapsed(next.anchor_us + next.expiry_us, now_us));
    if (!taken || !cost)
        return false;
    *state = next;
    return true;
}
