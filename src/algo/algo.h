/*
 * The rate limiting algorithms as pure arithmetic: (limit, state, now, cost) -> (new state, decision).
 *
 * Nothing here reads a clock, allocates, uses atomics or does I/O. Times are in microseconds, on the clock that the
 * limit uses. A state that was never used, or has expired, is {.used = 0}.
 *
 * Each function changes *state only if it returns true; the caller must then store the new state for the decision to
 * count. If it returns false the decision is final and there is nothing to store.
 */
#ifndef WEIR_ALGO_ALGO_H
#define WEIR_ALGO_ALGO_H

#include <stdint.h>

#include <weir/weir.h>

/* ---- Integer helpers: elapsed time, and products of 128 bits ---- */

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

/* ---- Calendar windows: the day, week, month or year that contains a time, in a time zone ---- */

/* From `at_s` on (seconds since 1970, UTC), local time is UTC plus offset_s. */
struct weir__zone_transition {
    int64_t at_s;
    int32_t offset_s;
};

/* A time zone: all transitions, far enough into the future. Immutable. */
struct weir_zone {
    int32_t offset_s; /* before the first transition */
    int32_t count;
    struct weir__zone_transition transition[]; /* by at_s, rising */
};

/*
 * The window that contains now_us: *start_us <= now_us < *end_us, both in microseconds since 1970, UTC. A NULL zone is
 * UTC. A local midnight that a transition skips is the first moment after the gap; one that occurs twice is the first.
 */
void weir__calendar_window(const weir_zone *zone, enum weir_calendar unit, int64_t now_us, int64_t *start_us,
                           int64_t *end_us);

#define WEIR__USED_MAX    INT64_C(0xffffffff)          /* units of a state */
#define WEIR__WINDOW_MAX  (INT64_C(400) * 86400000000) /* microseconds */
#define WEIR__LOG_MAX     INT64_C(65535)               /* units of a log */
#define WEIR__LEASE_MAX   INT64_C(86400000000)         /* microseconds */
#define WEIR__BUCKETS_MAX 60
#define WEIR__LIMIT_MADE  UINT32_C(0x7765690a) /* weir_limit.made */

/* The state of a bucket or a fixed window. */
struct weir__state {
    int64_t anchor_us; /* time from which `used` counts */
    int64_t used;      /* 0 to WEIR__USED_MAX */
    int64_t expiry_us; /* out: time from the anchor until the state expires, that is, equals an unused one */
};

/* What happens to a cost that does not fit. */
enum weir__mode {
    WEIR__TAKE,  /* denied; a negative cost is a refund */
    WEIR__CHARGE /* counted all the same */
};

/* True if the limit uses the wall clock, not the monotonic one. */
static inline bool weir__on_wall(const weir_limit *limit)
{
    return limit->algorithm == WEIR_FIXED_WINDOW && limit->align != WEIR_ALIGN_FIRST_REQUEST;
}

/*
 * Decides whether `cost` fits on top of `in_use`, and sets everything but the times. Returns true if the units are to
 * be taken or refunded.
 */
static inline bool weir__decide(const weir_limit *limit, int64_t in_use, int64_t cost, enum weir__mode mode,
                                weir_decision *decision)
{
    bool fits = in_use + cost <= limit->cap || cost < 0;
    bool taken = fits || mode == WEIR__CHARGE;
    int64_t after = taken ? in_use + cost : in_use;

    if (after < 0)
        after = 0;
    decision->verdict = taken ? WEIR_ALLOW : cost > limit->cap ? WEIR_NEVER_FITS : WEIR_DENY;
    decision->flags = taken && cost > 0 && after > limit->hard ? WEIR_OVER_SOFT : 0;
    decision->limit = limit->hard;
    decision->remaining = limit->hard - after;
    decision->delay_ns = 0;
    decision->retry_after_ns = decision->verdict == WEIR_NEVER_FITS ? -1 : 0;
    decision->reset_after_ns = 0;
    return taken;
}

/* Token bucket and leaky bucket. */
bool weir__bucket_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision);
bool weir__window_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision);

/* Derives from the period what the fast path of token buckets needs. */
static inline void weir__limit_init_fast_path(weir_limit *limit)
{
    limit->has_fast_path = limit->algorithm == WEIR_TOKEN_BUCKET && limit->refill == WEIR_REFILL_CONTINUOUS &&
                           limit->period_units == 1 &&
                           limit->period_us > 4; /* the least that table/fast_path.h encodes */
    /* floor(2^64 / period), with 64-bit arithmetic. */
    uint64_t period = (uint64_t)limit->period_us;
    limit->inverse = period > 1 ? UINT64_MAX / period + ((period & (period - 1)) == 0) : 0;
}

/*
 * A sliding window counter with two buckets whose counts fit into one state: `used` has the current window's count in
 * its low 16 bits and the previous one's above. Larger limits keep two states (weir__counter2_take).
 */
#define WEIR__PACKED_MAX 0x7fff

static inline bool weir__is_packed(const weir_limit *limit)
{
    return limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets == 2 && limit->cap <= WEIR__PACKED_MAX &&
           !limit->wide;
}

/* True if a key has a single state; then weir__state_take decides. */
static inline bool weir__is_one_slot(const weir_limit *limit)
{
    return limit->algorithm <= WEIR_FIXED_WINDOW || weir__is_packed(limit);
}

/* True if the counter is a log or has more than two buckets: it needs a record in the slab. */
static inline bool weir__is_record(const weir_limit *limit)
{
    return limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
           (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 2);
}

bool weir__packed_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision);

/* Dispatches by limit->algorithm. */
static inline bool weir__state_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                                    enum weir__mode mode, weir_decision *decision)
{
    if (limit->algorithm <= WEIR_LEAKY_BUCKET)
        return weir__bucket_take(limit, state, now_us, cost, mode, decision);
    return limit->algorithm == WEIR_FIXED_WINDOW ? weir__window_take(limit, state, now_us, cost, mode, decision)
                                                 : weir__packed_take(limit, state, now_us, cost, mode, decision);
}

/*
 * Sliding window counter. Sub-windows have the length part_us (the window for 2 buckets, window / n otherwise) and
 * start at multiples of it. `current` is the count of the current one, `before` that of the earlier ones that still
 * matter.
 */
struct weir__sliding {
    int64_t start_us; /* of the current sub-window */
    int64_t current;
    int64_t before;
};

/* Start of the sub-window that contains now_us. */
static inline int64_t weir__part_start(const weir_limit *limit, int64_t now_us)
{
    return now_us - now_us % limit->part_us;
}

/* Two buckets: `before` is the count of the previous window, weighted by the share of it that the window still covers.
 */
bool weir__counter2_take(const weir_limit *limit, struct weir__sliding *state, int64_t now_us, int64_t cost,
                         enum weir__mode mode, weir_decision *decision);

/*
 * More than two buckets: `before` is the sum of the buckets - 1 sub-windows before the current one. `sub_windows` has
 * their counts, newest first, and is read only to compute waiting times.
 */
bool weir__counterN_take(const weir_limit *limit, struct weir__sliding *state, const uint32_t *sub_windows,
                         int64_t now_us, int64_t cost, enum weir__mode mode, weir_decision *decision);

/*
 * Sliding window log. `time_of` returns the time at which unit i of the `live` ones was logged, 0 being the oldest;
 * times rise. Live units are those later than now - window.
 */
struct weir__log {
    int64_t live;
    int64_t least_us; /* nothing is logged before this */
    int64_t (*time_of)(const void *context, int64_t unit);
    const void *context;
};

/*
 * Change of a log: units to append, or units to remove from either end. A refund removes the newest units if they were
 * logged at exactly its `now`. If others were logged since, it removes the oldest instead, which expire earlier than
 * the units that it refunds.
 */
struct weir__log_change {
    int64_t logged;
    int64_t newest, oldest;
};

struct weir__log_change weir__log_take(const weir_limit *limit, const struct weir__log *log, int64_t now_us,
                                       int64_t cost, enum weir__mode mode, weir_decision *decision);

/* Rounds a time up to the log's resolution: a unit may expire late, never early. */
static inline int64_t weir__log_round(const weir_limit *limit, int64_t us)
{
    int64_t rest = us % limit->quantum_us;
    return rest ? us + limit->quantum_us - rest : us;
}

/* ---- Fast path of token buckets ---- */

/*
 * Fast path of the token bucket, short enough to be inlined: units return one at a time (limit->has_fast_path), the
 * clock has not gone back, and the request passes without soft. bucket.c decides the same.
 *
 * Branches only for what hardly ever happens: whether a key has expired, and how much has returned, is unpredictable,
 * and a misprediction costs more than the arithmetic.
 */

struct weir__fast_state {
    int64_t elapsed_us; /* since the anchor */
    int64_t used;
    int64_t expiry_us; /* from the anchor until the state expires; in and out */
};

/* Returns the units of the elapsed periods and takes `cost`, which is positive. False, with an undefined state, if it
 * does not fit. */
static inline bool weir__fast_add(const weir_limit *limit, struct weir__fast_state *state, int64_t cost)
{
    int64_t period = limit->period_us;
    /* Division by multiplication: limit->inverse is floor(2^64 / period), so the quotient is at most 1 too small. */
    int64_t periods = (int64_t)((weir__u128)(uint64_t)state->elapsed_us * limit->inverse >> 64);
    int64_t rest = state->elapsed_us - periods * period;
    if (__builtin_expect(rest >= period, 0)) {
        rest -= period;
        periods++;
    }
    int64_t used = state->used - periods;
    /* All ones if the state has neither expired nor returned all units; else 0, and the state starts anew. */
    int64_t live = ((state->elapsed_us - state->expiry_us) & -used) >> 63;

    state->elapsed_us = rest & live;
    state->used = (used & live) + cost;
    if (state->used > limit->hard)
        return false;
    state->expiry_us = state->used * period; /* at most 400 days, as limit.c checks */
    return true;
}

/* ---- Scaled limits ---- */

/*
 * Scaled limits: limits that the load of the host changes while their counters persist (docs/reference/overload.md).
 *
 * Counters hold units, not shares, so a scaled limit can use the state that another scale has left. The units that have
 * returned to a bucket since its anchor are counted at the rate of the limit that reads it next. A scaled limit
 * therefore keeps its anchor within 1 ms, or one unit if that is longer, of the present: no more time than that is
 * counted at another rate. A sliding window counter keeps its representation at every scale.
 */

/* The scale 1: the limit as written. */
#define WEIR__SCALE_ONE INT64_C(1000000000)

/* Prepares a limit for scaling up to `ceiling`, the same limit at its largest scale; `ceiling` may be `limit` itself.
 */
void weir__limit_init_scaled(weir_limit *limit, const weir_limit *ceiling);

/* Scales the units, burst and soft of a prepared limit; rounded down, at least 1. At most the ceiling's scale. */
void weir__limit_scale(const weir_limit *base, int64_t scale, weir_limit *scaled);

/* Removes a reserve of `percent` from the limit: rounded down, at least 1. Not for buckets. */
void weir__limit_without_reserve(weir_limit *limit, int percent);

#endif
