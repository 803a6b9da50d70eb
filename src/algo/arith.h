/* Integer helpers that every algorithm needs: time that goes backward, products that need 128 bits. */
#ifndef WEIR_ALGO_ARITH_H
#define WEIR_ALGO_ARITH_H

#include <stdint.h>

__extension__ typedef unsigned __int128 weir__u128;

/*
 * The longest wait that is told apart, about nine years: only a debt takes so long to repay. Times are at most
 * INT64_MAX / 1000 microseconds, so sums of the two are far from overflow.
 */
#define WEIR__DEBT_MAX (INT64_C(1) << 48)

/* How a duration in microseconds is told to the caller, in nanoseconds, without overflow; never less than none. */
static inline int64_t weir__us_to_ns(int64_t us)
{
    return us < 0 ? 0 : us > INT64_MAX / 1000 ? INT64_MAX : us * 1000;
}

/*
 * Time passed from `then` to `now`. Threads read their clocks at different moments, so `now` may lie before a
 * state that another one wrote: then no time has passed. The one place where this is decided.
 */
static inline int64_t weir__elapsed(int64_t now, int64_t then)
{
    return now > then ? now - then : 0;
}

/* a * b / c rounded down, for a, b >= 0 and c > 0; saturates at INT64_MAX. */
static inline int64_t weir__mul_div(int64_t a, int64_t b, int64_t c)
{
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product))
        return product / c;
    weir__u128 q = (weir__u128)(uint64_t)a * (uint64_t)b / (uint64_t)c;
    return q > INT64_MAX ? INT64_MAX : (int64_t)q;
}

/* a * b / c rounded up, for a, b >= 0 and c > 0; saturates at INT64_MAX. */
static inline int64_t weir__mul_div_up(int64_t a, int64_t b, int64_t c)
{
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product))
        return c == 1 ? product : product / c + (product % c != 0);
    weir__u128 q = ((weir__u128)(uint64_t)a * (uint64_t)b + (uint64_t)c - 1) / (uint64_t)c;
    return q > INT64_MAX ? INT64_MAX : (int64_t)q;
}

#endif
