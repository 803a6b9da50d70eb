/*
 * The algorithms as pure arithmetic: (limit, state, now, cost) -> (new state, decision).
 *
 * Nothing here reads a clock, allocates, knows about atomics or does I/O. Times are microseconds on the clock the
 * limit runs on. A state that was never used, or has recovered, is {.used = 0}.
 *
 * Each function changes *state only when it returns true: then the new state must be stored for the decision to
 * count. When it returns false, the decision stands as it is and nothing need be written.
 */
#ifndef WEIR_ALGO_ALGO_H
#define WEIR_ALGO_ALGO_H

#include <weir/weir.h>

#define WEIR__USED_MAX    INT64_C(0xffffffff)          /* units a state can hold */
#define WEIR__WINDOW_MAX  (INT64_C(400) * 86400000000) /* microseconds */
#define WEIR__LOG_MAX     INT64_C(65535)               /* units a log can hold */
#define WEIR__LEASE_MAX   INT64_C(86400000000)         /* microseconds */
#define WEIR__BUCKETS_MAX 60
#define WEIR__LIMIT_MADE  UINT32_C(0x7765690a) /* weir_limit.made */

/* What a bucket or a fixed window remembers. */
struct weir__state {
    int64_t anchor_us; /* since when `used` counts */
    int64_t used;      /* 0 to WEIR__USED_MAX */
    int64_t expiry_us; /* out: from the anchor until the state equals an unused one */
};

/* How a request wants to be counted. */
enum weir__mode {
    WEIR__TAKE,  /* if it fits; negative costs give back */
    WEIR__CHARGE /* whether it fits or not */
};

/* True if limits of this kind follow the wall clock. */
static inline bool weir__on_wall(const weir_limit *limit)
{
    return limit->algorithm == WEIR_FIXED_WINDOW && limit->align != WEIR_ALIGN_FIRST_REQUEST;
}

bool weir__token_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                      enum weir__mode mode, weir_decision *decision);
bool weir__interval_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                         enum weir__mode mode, weir_decision *decision);
bool weir__leaky_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                      enum weir__mode mode, weir_decision *decision);
bool weir__window_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision);

/* Sets what makes the usual case of a token bucket quick, from its period. */
static inline void weir__limit_init_fast_path(weir_limit *limit)
{
    limit->usual = limit->algorithm == WEIR_TOKEN_BUCKET && limit->refill == WEIR_REFILL_CONTINUOUS &&
                   limit->period_units == 1 && limit->period_us > 4; /* table/usual.h encodes no less */
    /* 2^64 / period, rounded down, in 64 bits. */
    uint64_t period = (uint64_t)limit->period_us;
    limit->inverse = period > 1 ? UINT64_MAX / period + ((period & (period - 1)) == 0) : 0;
}

/*
 * The sliding window counter with two buckets, when both counts fit into one state: `used` holds the present window's
 * count and, 16 bits up, the one before it. Larger limits keep them apart (weir__counter2_take).
 */
#define WEIR__PACKED_MAX 0x7fff

static inline bool weir__is_packed(const weir_limit *limit)
{
    return limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets == 2 && limit->cap <= WEIR__PACKED_MAX &&
           !limit->wide;
}

/* True if one state is all that there is of a key; then weir__state_take decides. */
static inline bool weir__is_one_slot(const weir_limit *limit)
{
    return limit->algorithm <= WEIR_FIXED_WINDOW || weir__is_packed(limit);
}

bool weir__packed_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                       enum weir__mode mode, weir_decision *decision);

/* Those above by limit->algorithm. */
static inline bool weir__state_take(const weir_limit *limit, struct weir__state *state, int64_t now_us, int64_t cost,
                                    enum weir__mode mode, weir_decision *decision)
{
    switch (limit->algorithm) {
    case WEIR_TOKEN_BUCKET:
        return limit->refill == WEIR_REFILL_CONTINUOUS
                   ? weir__token_take(limit, state, now_us, cost, mode, decision)
                   : weir__interval_take(limit, state, now_us, cost, mode, decision);
    case WEIR_LEAKY_BUCKET:
        return weir__leaky_take(limit, state, now_us, cost, mode, decision);
    case WEIR_SLIDING_WINDOW_COUNTER:
        return weir__packed_take(limit, state, now_us, cost, mode, decision);
    default:
        return weir__window_take(limit, state, now_us, cost, mode, decision);
    }
}

/*
 * Sliding window counter. Windows (of length part_us: the whole window for 2 buckets, window / n otherwise) are
 * counted from time 0. `current` is what the present one holds, `before` what the others that still matter hold.
 */
struct weir__sliding {
    int64_t start_us; /* of the present part */
    int64_t current;
    int64_t before;
};

/* The start of the part that holds now_us. */
static inline int64_t weir__part_start(const weir_limit *limit, int64_t now_us)
{
    return now_us - now_us % limit->part_us;
}

/* Two buckets: `before` is the whole previous window, weighted by how much of it is still covered. */
bool weir__counter2_take(const weir_limit *limit, struct weir__sliding *state, int64_t now_us, int64_t cost,
                         enum weir__mode mode, weir_decision *decision);

/*
 * More than two: `before` is the sum of the buckets - 1 parts before the present one; `sub_windows` holds them, newest
 * first, and is only read to tell how long to wait.
 */
bool weir__counterN_take(const weir_limit *limit, struct weir__sliding *state, const uint32_t *sub_windows,
                         int64_t now_us, int64_t cost, enum weir__mode mode, weir_decision *decision);

/*
 * Sliding window log. The log itself is behind `time_of`, which tells when unit i of the `live` ones was logged,
 * 0 the oldest, times rising; live ones are those later than now - window.
 */
struct weir__log {
    int64_t live;
    int64_t least_us; /* nothing is logged before this */
    int64_t (*time_of)(const void *context, int64_t unit);
    const void *context;
};

/*
 * What becomes of a log: so many are logged now, or so many of the newest and of the oldest are given back. The newest
 * as far as they were logged at exactly the refund's `now`; when somebody has logged since, the oldest instead, which
 * leave before those that were meant.
 */
struct weir__log_change {
    int64_t logged;
    int64_t newest, oldest;
};

struct weir__log_change weir__log_take(const weir_limit *limit, const struct weir__log *log, int64_t now_us,
                                       int64_t cost, enum weir__mode mode, weir_decision *decision);

/* A logged time, rounded up to the log's resolution: a unit may leave late, never early. */
static inline int64_t weir__log_round(const weir_limit *limit, int64_t us)
{
    int64_t rest = us % limit->quantum_us;
    return rest ? us + limit->quantum_us - rest : us;
}

#endif
