/* weir_limit_init: checks parameters and derives an immutable limit. Everything that could overflow later is refused
 * here. */
#include "algo/algo.h"

#define LEASE_NS      (60 * WEIR_SECOND) /* default lease of a permit */
#define PERIOD_MIN_US 1000 /* rounding up a period of at least 1 ms slows the limit by at most a thousandth */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* `amount` plus `percent` of it, rounded down. */
static int64_t with_soft(int64_t amount, int percent)
{
    return amount + weir__mul_div(amount, percent, 100);
}

/*
 * Resolution of logged times: 32 bits must span four windows. 1, 2 or 5 times a power of ten, so that round times are
 * exact.
 */
static int64_t log_quantum(int64_t window_us)
{
    static const int64_t step[] = {1, 2, 5};
    for (int64_t power = 1;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (window_us / (step[i] * power) < INT64_C(1) << 29)
                return step[i] * power;
}

/*
 * The salt of the limit's keys: limits with different ids or algorithms must not share counters, as a state means
 * something else in each algorithm. All 64 bits must differ: some select the bucket, others are the tag.
 */
static uint64_t salt_of(const weir_limit *made, uint64_t id)
{
    uint64_t kind = made->algorithm;
    if (kind == WEIR_CONCURRENCY)
        kind = 8; /* 5 to 7 are the sliding window counter's */
    if (kind == WEIR_SLIDING_WINDOW_COUNTER)
        kind += made->buckets > 2 ? 1 : weir__is_packed(made) ? 2 : 3;
    /* Two states of windows of different lengths do not combine: a changed window starts new counters. */
    if (made->algorithm == WEIR_SLIDING_WINDOW_COUNTER && made->buckets == 2 && !weir__is_packed(made))
        id ^= (uint64_t)made->part_us << 16;
    uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15) + (kind + 1) * UINT64_C(0xd1b54a32d192ed03);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

static int check_enums(const weir_params *p)
{
    bool bad = p->algorithm < WEIR_TOKEN_BUCKET || p->algorithm > WEIR_CONCURRENCY ||
               p->refill < WEIR_REFILL_CONTINUOUS || p->refill > WEIR_REFILL_INTERVAL || p->align < WEIR_ALIGN_CLOCK ||
               p->align > WEIR_ALIGN_CALENDAR || p->calendar < WEIR_CALENDAR_DAY || p->calendar > WEIR_CALENDAR_YEAR ||
               p->round < WEIR_ROUND_DOWN || p->round > WEIR_ROUND_UP;
    /* Parameters that the algorithm does not have are refused rather than ignored. */
    bool bucket = p->algorithm == WEIR_TOKEN_BUCKET || p->algorithm == WEIR_LEAKY_BUCKET;
    bad |= p->burst && !bucket;
    bad |= p->refill && p->algorithm != WEIR_TOKEN_BUCKET;
    bad |= p->align && p->algorithm != WEIR_FIXED_WINDOW;
    bad |= p->count_rejected && p->algorithm != WEIR_SLIDING_WINDOW_LOG;
    bad |= (p->buckets || p->round) && p->algorithm != WEIR_SLIDING_WINDOW_COUNTER;
    bad |= (p->delay || p->max_delay_ns) && p->algorithm != WEIR_LEAKY_BUCKET;
    bad |= p->max_delay_ns < 0 || (p->max_delay_ns && !p->delay);
    bad |= (p->zone || p->calendar) && p->align != WEIR_ALIGN_CALENDAR;
    return bad ? WEIR_EINVAL : 0;
}

static int check_numbers(const weir_params *p)
{
    int64_t most = p->algorithm == WEIR_SLIDING_WINDOW_LOG       ? WEIR__LOG_MAX
                   : p->algorithm == WEIR_CONCURRENCY            ? WEIR__LOG_MAX
                   : p->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? INT32_MAX
                                                                 : WEIR__USED_MAX;
    if (p->limit < 1 || p->limit > most)
        return WEIR_ELIMIT;
    if (p->burst < 0 || p->burst > WEIR__USED_MAX)
        return WEIR_EBURST;
    if (p->soft_percent < 0 || p->soft_percent > 1000)
        return WEIR_ESOFT;
    if (p->align != WEIR_ALIGN_CALENDAR &&
        (p->window_ns < 1000 || p->window_ns % 1000 || p->window_ns / 1000 > WEIR__WINDOW_MAX))
        return WEIR_EWINDOW;
    if (p->algorithm == WEIR_CONCURRENCY && p->window_ns / 1000 > WEIR__LEASE_MAX)
        return WEIR_EWINDOW;
    if (p->buckets && (p->buckets < 2 || p->buckets > WEIR__BUCKETS_MAX))
        return WEIR_EBUCKETS;
    if (p->buckets > 2 && p->window_ns / 1000 < p->buckets)
        return WEIR_EBUCKETS;
    if (with_soft(p->limit, p->soft_percent) > most)
        return WEIR_EOVERFLOW;
    return 0;
}

int weir_limit_init(weir_limit *limit, const weir_params *params)
{
    if (!limit || !params)
        return WEIR_EINVAL;
    weir_params with_lease = *params;
    if (params->algorithm == WEIR_CONCURRENCY && !params->window_ns)
        with_lease.window_ns = LEASE_NS;
    const weir_params *p = &with_lease;
    int error = check_enums(p);
    if (!error)
        error = check_numbers(p);
    if (error)
        return error;

    weir_limit made = {.made = WEIR__LIMIT_MADE, .limit = p->limit, .zone = p->zone};
    made.algorithm = (uint8_t)p->algorithm;
    made.refill = (uint8_t)p->refill;
    made.align = (uint8_t)p->align;
    made.calendar = (uint8_t)p->calendar;
    made.round_up = p->round == WEIR_ROUND_UP;
    made.count_rejected = p->count_rejected;
    made.delay = p->delay;
    made.buckets = (uint8_t)(p->buckets ? p->buckets : 2);
    made.hard = p->burst ? p->burst : p->limit;
    made.cap = made.most = with_soft(made.hard, p->soft_percent);
    made.max_delay_us = p->max_delay_ns ? p->max_delay_ns / 1000 : INT64_MAX;
    made.window_us = p->align == WEIR_ALIGN_CALENDAR ? WEIR__WINDOW_MAX : p->window_ns / 1000;

    int64_t common = gcd(made.window_us, made.limit);
    made.period_us = made.window_us / common;
    made.period_units = made.limit / common;
    made.back_us = made.refill == WEIR_REFILL_INTERVAL ? made.window_us : made.period_us;
    made.back_units = made.refill == WEIR_REFILL_INTERVAL ? made.limit : made.period_units;
    /* Rounded up: a window that does not divide evenly becomes a few microseconds longer, never shorter. */
    made.part_us = made.buckets == 2 ? made.window_us : (made.window_us + made.buckets - 1) / made.buckets;
    made.quantum_us = log_quantum(made.window_us);

    /* A bucket holds at most `cap` units plus those of the current period. */
    if (made.cap + made.period_units > WEIR__USED_MAX + 1 && made.algorithm <= WEIR_LEAKY_BUCKET)
        return WEIR_EOVERFLOW;
    int64_t refills = (made.cap + made.limit - 1) / made.limit;
    bool slow = made.refill == WEIR_REFILL_INTERVAL
                    ? refills > WEIR__WINDOW_MAX / made.window_us
                    : weir__mul_div_up(made.cap, made.period_us, made.period_units) > WEIR__WINDOW_MAX;
    if (made.algorithm <= WEIR_LEAKY_BUCKET && slow)
        return WEIR_EOVERFLOW;
    weir__limit_init_fast_path(&made);
    made.salt = salt_of(&made, p->id);
    *limit = made;
    return 0;
}

/* ---- Scaled limits: see algo.h ---- */

static int64_t at_least_one(int64_t units)
{
    return units < 1 ? 1 : units;
}

/* Sets the shortest period: one unit, or as many as return in 1 ms. Rounded up, so that the rate never exceeds the
 * limit. */
static void shorten(weir_limit *limit)
{
    int64_t units = at_least_one(weir__mul_div_up(PERIOD_MIN_US, limit->limit, limit->window_us));
    limit->period_units = units < limit->limit ? units : limit->limit;
    limit->period_us = weir__mul_div_up(limit->period_units, limit->window_us, limit->limit);
    weir__limit_init_fast_path(limit);
}

/* A sliding window counter that needs two states at its largest scale has two at every scale. */
static void keep_representation(weir_limit *limit, const weir_limit *largest)
{
    limit->wide = limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && !weir__is_packed(largest);
}

void weir__limit_init_scaled(weir_limit *limit, const weir_limit *ceiling)
{
    limit->most = ceiling->most;
    limit->back_us =
        ceiling->back_us; /* refunds: the rate at which the units returned is unknown, so the highest is assumed */
    limit->back_units = ceiling->back_units;
    if (limit->algorithm <= WEIR_LEAKY_BUCKET)
        shorten(limit);
    limit->salt = ceiling->salt; /* the representation is part of the salt */
    keep_representation(limit, ceiling);
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
    keep_representation(limit, limit);
    limit->limit = at_least_one(weir__mul_div(limit->limit, 100 - percent, 100));
    limit->hard = at_least_one(weir__mul_div(limit->hard, 100 - percent, 100));
    limit->cap = at_least_one(weir__mul_div(limit->cap, 100 - percent, 100));
}
