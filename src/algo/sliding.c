/* Sliding window counter and sliding window log. */
#include "algo/algo.h"

/* The weighted count of `before`, x microseconds into the current window. */
static int64_t weigh(const weir_limit *limit, int64_t before, int64_t x)
{
    if (x >= limit->part_us)
        return 0;
    return limit->round_up ? weir__mul_div_up(before, limit->part_us - x, limit->part_us)
                           : weir__mul_div(before, limit->part_us - x, limit->part_us);
}

/* The smallest x at which weigh(before, x) <= room, for room >= 0. */
static int64_t room_at(const weir_limit *limit, int64_t before, int64_t room)
{
    int64_t w = limit->part_us;
    if (before < 1 || before <= room)
        return 0;
    /* Rounded up: before * (w - x) <= room * w. Rounded down: before * (w - x) < (room + 1) * w. */
    if (limit->round_up)
        return w - weir__mul_div(room, w, before);
    return w - weir__mul_div_up(room + 1, w, before) + 1;
}

/*
 * Decides, and takes or refunds the cost; `before` is the weight of the earlier counts. A refund counts only in the
 * sub-window it was taken in, and only while that is the current one; a debt is clamped to what the state can hold.
 * True: the state has changed.
 */
static inline bool take(const weir_limit *limit, struct weir__sliding *state, int64_t before, int64_t now_us,
                        int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    int64_t most = weir__is_packed(limit) ? 0xffff : INT32_MAX;
    if (cost < 0) {
        mode = WEIR__CHARGE; /* a refund is never denied */
        cost = weir__part_start(limit, now_us) == state->start_us ? cost : 0;
    }
    if (!weir__decide(limit, state->current + before, cost, mode, decision))
        return false;
    state->current += cost;
    state->current = state->current < 0 ? 0 : state->current > most ? most : state->current;
    decision->remaining = limit->hard - state->current - before;
    return cost;
}

/* The time since the start of the state's sub-window, which another thread may have moved beyond `now`; less than
 * part_us. */
static int64_t enter(const weir_limit *limit, const struct weir__sliding *state, int64_t now_us)
{
    int64_t x = weir__elapsed(now_us, state->start_us);
    return x < limit->part_us ? x : limit->part_us - 1;
}

bool weir__counter2_take(const weir_limit *limit, struct weir__sliding *state, int64_t now_us, int64_t cost,
                         enum weir__mode mode, weir_decision *decision)
{
    int64_t w = limit->part_us, x = enter(limit, state, now_us);
    bool changed = take(limit, state, weigh(limit, state->before, x), now_us, cost, mode, decision);

    if (decision->verdict == WEIR_DENY) {
        int64_t room = limit->cap - cost - state->current;
        int64_t at =
            room >= 0 ? room_at(limit, state->before, room) : w + room_at(limit, state->current, limit->cap - cost);
        decision->retry_after_ns = weir__us_to_ns(state->start_us + at - now_us);
    }
    if (state->current || state->before) {
        /* The state expires when its weight is 0; rounding down makes that earlier. */
        int64_t at = state->current ? w + room_at(limit, state->current, 0) : room_at(limit, state->before, 0);
        decision->reset_after_ns = weir__us_to_ns(state->start_us + at - now_us);
    }
    return changed;
}

bool weir__packed_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision)
{
    struct weir__sliding both = {weir__part_start(limit, now_us), 0, 0};
    int64_t start = state->anchor_us;

    bool entered = state->used && start >= both.start_us; /* this window, or a later one */
    if (entered) {
        both = (struct weir__sliding){start, state->used & 0xffff, state->used >> 16};
    } else if (state->used && start == both.start_us - limit->part_us) {
        both.before = state->used & 0xffff;
    }
    if (!weir__counter2_take(limit, &both, now_us, cost, mode, decision) || (cost < 0 && !entered))
        return false;
    state->anchor_us = both.start_us;
    state->used = both.current | both.before << 16;
    state->expiry_us = (both.current ? 2 : both.before ? 1 : 0) * limit->part_us;
    return true;
}

bool weir__counterN_take(const weir_limit *limit, struct weir__sliding *state, const uint32_t *sub_windows,
                         int64_t now_us, int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    int64_t w = limit->part_us, n = limit->buckets;
    bool changed = take(limit, state, state->before, now_us, cost, mode, decision);

    if (decision->verdict == WEIR_DENY) {
        /* The oldest sub-window expires first: i expires n - 1 - i sub-windows after the start of the current one. */
        int64_t missing = state->current + state->before + cost - limit->cap, i = n - 1;
        while (i > 0 && missing > 0)
            missing -= sub_windows[--i];
        int64_t at = missing > 0 ? n * w : (n - 1 - i) * w;
        decision->retry_after_ns = weir__us_to_ns(state->start_us + at - now_us);
    }
    if (state->current) {
        decision->reset_after_ns = weir__us_to_ns(state->start_us + n * w - now_us);
    } else if (state->before) {
        int64_t i = 0;
        while (i < n - 2 && !sub_windows[i])
            i++;
        decision->reset_after_ns = weir__us_to_ns(state->start_us + (n - 1 - i) * w - now_us);
    }
    return changed;
}

/*
 * The units that a refund of `most` units taken at `at_us` removes. They were logged at that time or, if the clock was
 * behind the log, later. No unit that was logged later is removed in their place: it would expire too early.
 */
static struct weir__log_change refund(const struct weir__log *log, int64_t at_us, int64_t most)
{
    struct weir__log_change change = {0};
    while (change.newest < most && change.newest < log->live &&
           log->time_of(log->context, log->live - 1 - change.newest) == at_us)
        change.newest++;
    most -= change.newest;
    while (change.oldest < most && change.newest + change.oldest < log->live &&
           log->time_of(log->context, change.oldest) <= at_us)
        change.oldest++;
    return change;
}

struct weir__log_change weir__log_take(const weir_limit *limit, const struct weir__log *log, int64_t now_us,
                                       int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    bool taken = weir__decide(limit, log->live, cost, mode, decision);
    int64_t units = taken ? cost : 0;
    struct weir__log_change change = {0};

    if (!taken && limit->count_rejected && cost > 0) {
        /* Only the newest `most` units matter. */
        units = cost < limit->most ? cost : limit->most;
    }
    /* The time under which units are logged now. */
    int64_t stamp = weir__log_round(limit, log->least_us > now_us ? log->least_us : now_us);
    if (units < 0) {
        change = refund(log, weir__log_round(limit, now_us), -units);
        units = -change.newest - change.oldest;
    } else {
        change.logged = units;
    }
    if (decision->verdict == WEIR_DENY) {
        /* `missing` of the oldest units must expire first, the units of a denied request that was logged included. */
        int64_t missing = log->live + units + cost - limit->cap;
        int64_t leaves = missing <= log->live ? log->time_of(log->context, missing - 1) : stamp;
        decision->retry_after_ns = weir__us_to_ns(leaves + limit->window_us - now_us);
    }

    int64_t left = log->live + units;
    if (units > 0 && left > limit->most)
        left = limit->most; /* only the newest matter */
    if (units || cost < 0)
        decision->remaining = limit->hard - left;
    if (left > 0) {
        int64_t newest = units > 0 ? stamp : log->time_of(log->context, log->live - 1 - change.newest);
        decision->reset_after_ns = weir__us_to_ns(newest + limit->window_us - now_us);
    }
    return change;
}
