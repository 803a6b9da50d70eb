/* The circuit breaker: see client_internal.h. */
#include "remote/client_internal.h"

void weir__breaker_init(struct weir__breaker *breaker, unsigned failures_max, int64_t min_us, int64_t max_us,
                        uint64_t seed)
{
    *breaker = (struct weir__breaker){
        .failures_max = failures_max, .min_us = min_us, .max_us = max_us, .retry_us = INT64_MAX, .random = seed};
}

/* Exponential back-off with 50 % jitter: hosts that lost the store together must not reconnect together. */
static void open_again(struct weir__breaker *breaker, int64_t now_us)
{
    int64_t wait_us = breaker->wait_us ? 2 * breaker->wait_us : breaker->min_us;

    if (wait_us > breaker->max_us)
        wait_us = breaker->max_us;
    breaker->wait_us = wait_us;
    breaker->state = WEIR__BREAKER_OPEN;
    breaker->retry_us =
        now_us + wait_us / 2 + (int64_t)(weir__next_random(&breaker->random) % (uint64_t)(wait_us / 2 + 1));
}

bool weir__breaker_allows(struct weir__breaker *breaker)
{
    if (breaker->state == WEIR__BREAKER_HALF_OPEN) {
        breaker->state = WEIR__BREAKER_HALF_OPEN_BUSY;
        return true;
    }
    return breaker->state == WEIR__BREAKER_CLOSED;
}

bool weir__breaker_probe(struct weir__breaker *breaker, int64_t now_us)
{
    if (now_us < breaker->retry_us)
        return false;
    breaker->state = WEIR__BREAKER_PROBING;
    breaker->retry_us = INT64_MAX;
    return true;
}

void weir__breaker_probed(struct weir__breaker *breaker)
{
    if (breaker->state == WEIR__BREAKER_PROBING || breaker->state == WEIR__BREAKER_OPEN) {
        breaker->state = WEIR__BREAKER_HALF_OPEN;
        breaker->retry_us = INT64_MAX;
    }
}

void weir__breaker_release(struct weir__breaker *breaker)
{
    if (breaker->state == WEIR__BREAKER_HALF_OPEN_BUSY)
        breaker->state = WEIR__BREAKER_HALF_OPEN;
}

bool weir__breaker_succeeded(struct weir__breaker *breaker)
{
    bool was_closed = breaker->state == WEIR__BREAKER_CLOSED;

    /* A reply to a request from before the breaker opened. */
    if (breaker->state == WEIR__BREAKER_OPEN || breaker->state == WEIR__BREAKER_PROBING)
        return false;
    breaker->state = WEIR__BREAKER_CLOSED;
    breaker->failures = 0;
    breaker->wait_us = 0;
    breaker->retry_us = INT64_MAX;
    return !was_closed;
}

bool weir__breaker_failed(struct weir__breaker *breaker, int64_t now_us)
{
    bool was_closed = breaker->state == WEIR__BREAKER_CLOSED;

    /* Open: this is a request that was in flight when it opened. */
    if (breaker->state == WEIR__BREAKER_OPEN || (was_closed && ++breaker->failures < breaker->failures_max))
        return false;
    open_again(breaker, now_us);
    return was_closed;
}
