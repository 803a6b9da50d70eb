/*
 * Token bucket and leaky bucket.
 *
 * Both count `used` units since `anchor_us`, of which `period_units` return in every `period_us`. That ratio is
 * window : limit in lowest terms, so the anchor moves by whole periods exactly, and no rounding error accumulates
 * however long a key stays busy. Consumption is kept in units, not in time, so it stays consumed when the limit
 * changes.
 *
 * Interval refill: `limit` units return at once, at each whole window after the request that found the bucket full. The
 * period is the window then, and nothing returns within it. Functions with the parameter `interval` are inlined for
 * either case.
 */
#include "algo/algo.h"

/* Moves the anchor by whole periods. Returns the units that have returned since the new anchor. */
static inline int64_t advance(const weir_limit *limit, bool interval, struct weir__state *state, int64_t now_us)
{
    int64_t elapsed = weir__elapsed(now_us, state->anchor_us);
    int64_t period_us = interval ? limit->window_us : limit->period_us;
    int64_t period_units = interval ? limit->limit : limit->period_units;

    if (state->used && elapsed >= period_us) {
        int64_t periods = elapsed / period_us;
        /* By division: periods * period_units could overflow after years of idleness. */
        if (periods > state->used / period_units) {
            state->used = 0;
        } else {
            state->used -= periods * period_units;
            state->anchor_us += periods * period_us;
            elapsed -= periods * period_us;
        }
    }
    if (state->used && !interval && period_units > 1) {
        int64_t returned = weir__mul_div(elapsed, period_units, period_us);
        if (returned < state->used)
            return returned;
        state->used = 0;
    }
    if (!state->used)
        state->anchor_us = now_us;
    return 0;
}

/* The time at which `units` have returned since the anchor; clamped, as a debt may take centuries. */
static inline int64_t returned_at(const weir_limit *limit, bool interval, const struct weir__state *state,
                                  int64_t units)
{
    int64_t wait;
    if (interval) {
        int64_t refills = (units + limit->limit - 1) / limit->limit;
        wait = refills > WEIR__DEBT_MAX / limit->window_us ? WEIR__DEBT_MAX : refills * limit->window_us;
    } else {
        wait = weir__mul_div_up(units, limit->period_us, limit->period_units);
    }
    return state->anchor_us + (wait > WEIR__DEBT_MAX ? WEIR__DEBT_MAX : wait);
}

/*
 * The part of a refund (a negative cost) of units taken `since_us` before the anchor that has not returned by itself:
 * units have returned since, maybe the very same, and the bucket may have been full in between. Refunding them again
 * would admit too much. Rounded down: if the take found the bucket full, its units return one by one from then on; if
 * not, the first to return was an earlier one. Rounded up for intervals: the first refill may have returned all.
 */
static inline int64_t unreturned(const weir_limit *limit, bool interval, int64_t since_us, int64_t cost)
{
    int64_t returned;
    if (interval) {
        int64_t refills = (since_us - 1) / limit->back_us + 1, units = limit->back_units;
        returned = refills > WEIR__USED_MAX / units ? WEIR__USED_MAX : refills * units;
    } else {
        returned = weir__mul_div(since_us, limit->back_units, limit->back_us);
    }
    return cost + returned < 0 ? cost + returned : 0;
}

__attribute__((always_inline)) static inline bool take(const weir_limit *limit, bool interval,
                                                       struct weir__state *state, int64_t now_us, int64_t cost,
                                                       enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state;
    if (cost < 0) {
        mode = WEIR__CHARGE; /* a refund is never denied, even if nothing of it is left */
        if (next.used && now_us < next.anchor_us)
            cost = unreturned(limit, interval, next.anchor_us - now_us, cost);
    }
    int64_t returned = advance(limit, interval, &next, now_us);
    int64_t in_use = next.used - returned;
    bool taken = weir__decide(limit, in_use, cost, mode, decision);

    if (decision->verdict == WEIR_DENY)
        decision->retry_after_ns =
            weir__us_to_ns(returned_at(limit, interval, &next, returned + in_use + cost - limit->cap) - now_us);
    if (taken) {
        next.used += cost;
        next.used = next.used <= returned ? 0 : next.used > WEIR__USED_MAX ? WEIR__USED_MAX : next.used;
        decision->remaining = limit->hard - (next.used ? next.used - returned : 0);
    }
    int64_t full_us = returned_at(limit, interval, &next, next.used);
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
static bool take_queued(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                        enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state, queue = *state;
    bool taken = take(limit, false, &next, now_us, cost, mode, decision);

    if (limit->delay && mode == WEIR__TAKE && cost >= 0) {
        advance(limit, false, &queue, now_us);
        int64_t wait = weir__elapsed(returned_at(limit, false, &queue, queue.used), now_us);
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

bool weir__bucket_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision)
{
    if (limit->algorithm == WEIR_LEAKY_BUCKET)
        return take_queued(limit, state, now_us, cost, mode, decision);
    return limit->refill == WEIR_REFILL_CONTINUOUS ? take(limit, false, state, now_us, cost, mode, decision)
                                                   : take(limit, true, state, now_us, cost, mode, decision);
}
