/*
 * Limits that change while their counters stand: scaled by what the load of the host allows (docs/pressure.md).
 *
 * Counters hold units, not shares, so a scaled limit may be used on the state that another scale left behind. What
 * needs care is time: a bucket's state has an anchor in the past, and what has dripped back since then is counted by
 * whatever limit looks at it next. A limit that varies therefore moves its anchor as far as it can, to less than a
 * millisecond or one unit from the present, whichever is longer: no more time than that is ever counted at another
 * rate than it passed at. And a sliding counter is kept in the same form at every scale.
 */
#ifndef WEIR_ALGO_SCALED_LIMIT_H
#define WEIR_ALGO_SCALED_LIMIT_H

#include "algo/algo.h"

/* A scale of 1: as it is written. */
#define WEIR__SCALE_ONE INT64_C(1000000000)

/*
 * Makes a limit one that varies, between itself and `ceiling`, the same limit at its largest, which may be itself:
 * then it becomes fit to be one.
 */
void weir__limit_init_scaled(weir_limit *limit, const weir_limit *ceiling);

/*
 * The limit at a scale, of a base that varies: units, burst and soft, rounded down, at least 1. It must not be more
 * than the ceiling.
 */
void weir__limit_scale(const weir_limit *base, int64_t scale, weir_limit *scaled);

/* The part of a limit that is left when `percent` of it is kept for others: rounded down, at least 1. No buckets. */
void weir__limit_without_reserve(weir_limit *limit, int percent);

#endif
