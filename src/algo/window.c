/*
 * Fixed window: one count per window. Windows start at multiples of their length since 1970, at calendar boundaries, or
 * with the first request. The anchor is the start.
 */
#include "algo/algo.h"

/* The window that contains now_us, by the clock or the calendar. */
static void window_around(const weir_limit *limit, int64_t now_us, int64_t *start_us, int64_t *end_us)
{
    if (limit->align == WEIR_ALIGN_CALENDAR) {
        weir__calendar_window(limit->zone, (enum weir_calendar)limit->calendar, now_us, start_us, end_us);
    } else {
        *start_us = now_us - now_us % limit->window_us;
        *end_us = *start_us + limit->window_us;
    }
}

/*
 * Selects the window to count in and returns its end; sets state->anchor_us to its start, and resets the count if it is
 * a new one. After the wall clock was stepped back by at most one window, the later window stays current, so that a
 * step across a boundary does not reset the count. After a longer step the current window starts anew, so that no key
 * is locked out for more than two windows.
 */
static int64_t enter(const weir_limit *limit, struct weir__state *state, int64_t now_us)
{
    int64_t start, end;

    if (limit->align == WEIR_ALIGN_FIRST_REQUEST) {
        if (!state->used || weir__elapsed(now_us, state->anchor_us) >= limit->window_us) {
            state->anchor_us = now_us;
            state->used = 0;
        }
        return state->anchor_us + limit->window_us;
    }

    window_around(limit, now_us, &start, &end);
    if (state->used && state->anchor_us >= end && state->anchor_us - now_us <= end - start)
        window_around(limit, state->anchor_us, &start, &end);
    if (state->anchor_us < start || state->anchor_us >= end)
        state->used = 0;
    state->anchor_us = start;
    return end;
}

bool weir__window_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision)
{
    struct weir__state next = *state;
    int64_t end = enter(limit, &next, now_us);
    if (cost < 0) {
        mode = WEIR__CHARGE; /* a refund is never denied */
        /* Taken in another window: there is nothing to refund, and the state must not change. */
        if (!next.used || now_us < next.anchor_us)
            cost = 0;
    }
    bool taken = weir__decide(limit, next.used, cost, mode, decision);

    if (taken) {
        next.used += cost;
        next.used = next.used < 0 ? 0 : next.used > WEIR__USED_MAX ? WEIR__USED_MAX : next.used;
        decision->remaining = limit->hard - next.used;
    }
    next.expiry_us = next.used ? end - next.anchor_us : 0;
    if (next.used)
        decision->reset_after_ns = weir__us_to_ns(end - now_us);
    if (decision->verdict == WEIR_DENY)
        decision->retry_after_ns = weir__us_to_ns(end - now_us);
    if (!taken || !cost)
        return false;
    *state = next;
    return true;
}
