/* Limits that change while their counters stand. See scaled_limit.h. */
#include "algo/scaled_limit.h"
#include "algo/arith.h"

#define SHORT_US 1000 /* a period of so much is rounded up by a thousandth at most */

static int64_t at_least_one(int64_t units)
{
    return units < 1 ? 1 : units;
}

/*
 * As short a period as can be: one unit, or as many as come in a millisecond. Rounded up, so that never more comes back
 * than the limit says.
 */
static void shorten(weir_limit *limit)
{
    int64_t units = at_least_one(weir__mul_div_up(SHORT_US, limit->limit, limit->window_us));
    limit->period_units = units < limit->limit ? units : limit->limit;
    limit->period_us = weir__mul_div_up(limit->period_units, limit->window_us, limit->limit);
    weir__limit_init_fast_path(limit);
}

/* A sliding counter that is too large for one slot at its largest has two at any size. */
static void keep_form(weir_limit *limit, const weir_limit *largest)
{
    limit->wide = limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && !weir__is_packed(largest);
}

void weir__limit_init_scaled(weir_limit *limit, const weir_limit *ceiling)
{
    limit->most = ceiling->most;
    limit->back_us = ceiling->back_us; /* at what rate the units came back that are given back now nobody knows */
    limit->back_units = ceiling->back_units;
    if (limit->algorithm <= WEIR_LEAKY_BUCKET)
        shorten(limit);
    limit->spread = ceiling->spread; /* which form it has is part of where its counters are */
    keep_form(limit, ceiling);
}

void weir__limit_scale(const weir_limit *base, int64_t scale, weir_limit *scaled)
{
    *scaled = *base;
    scaled->limit = at_least_one(weir__mul_div(base->limit, scale, WEIR__SCALE_ONE));
    scaled->hard = at_least_one(weir__mul_div(base->hard, scale, WEIR__SCALE_ONE));
    scaled->cap = weir__mul_div(scaled->hard, base->cap, base->hard);
    if (base->algorithm <= WEIR_LEAKY_BUCKET)
        shorten(scaled);
}

void weir__limit_without_reserve(weir_limit *limit, int percent)
{
    keep_form(limit, limit);
    limit->limit = at_least_one(weir__mul_div(limit->limit, 100 - percent, 100));
    limit->hard = at_least_one(weir__mul_div(limit->hard, 100 - percent, 100));
    limit->cap = at_least_one(weir__mul_div(limit->cap, 100 - percent, 100));
}
