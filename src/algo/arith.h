/* Integer helpers of the algorithms: elapsed time, and products of 128 bits. */
#ifndef WEIR_ALGO_ARITH_H
#define WEIR_ALGO_ARITH_H

#include <stdint.h>

__extension__ typedef unsigned __int128 weir__u128;

/*
 * Waits are clamped to this number of microseconds, about nine years; only a debt takes so long. Times are at most
 * INT64_MAX / 1000 microseconds, so that their sum does not overflow.
 */
#define WEIR__DEBT_MAX (INT64_C(1) << 48)

/* Microseconds to nanoseconds, clamped to 0 and INT64_MAX. */
static inline int64_t weir__us_to_ns(int64_t us)
{
    return us < 0 ? 0 : us > INT64_MAX / 1000 ? INT64_MAX : us * 1000;
}

/* Time from `then` to `now`; 0 if `now` is earlier, as threads read their clocks at different moments. */
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
