/* Params -> a checked, immutable limit. Everything that could overflow later is refused here. */
#include "algo/algo.h"
#include "algo/arith.h"

#define LEASE_NS (60 * WEIR_SECOND) /* how long a slot is held, if nobody says */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What `amount` becomes with `percent` on top, rounded down. */
static int64_t with_soft(int64_t amount, int percent)
{
    return amount + weir__mul_div(amount, percent, 100);
}

/*
 * The resolution of logged times: 32 bits must span four windows. 1, 2 or 5 times a power of ten, so that times
 * people write down fall on it.
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
 * What sets the keys of this limit apart from those of others. States of different algorithms mean different things, so
 * an algorithm's keys are its own. All 64 bits must differ, as some of them choose the place and others are the tag.
 */
static uint64_t spread(const weir_limit *made, uint64_t id)
{
    uint64_t kind = made->algorithm;
    if (kind == WEIR_CONCURRENCY)
        kind = 8; /* the numbers before are those of the sliding window counter */
    if (kind == WEIR_SLIDING_WINDOW_COUNTER)
        kind += made->buckets > 2 ? 1 : weir__is_packed(made) ? 2 : 3;
    /* Two slots with windows of another length would not fit together: a changed window is a new count there. */
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
    /* What an algorithm does not have is refused rather than ignored: the caller meant something by it. */
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
    /* Rounded up: a window that does not divide evenly is a few microseconds longer, never shorter. */
    made.part_us = made.buckets == 2 ? made.window_us : (made.window_us + made.buckets - 1) / made.buckets;
    made.quantum_us = log_quantum(made.window_us);

    /* A bucket holds at most cap units plus the ones of a period that has not ended yet. */
    if (made.cap + made.period_units > WEIR__USED_MAX + 1 && made.algorithm <= WEIR_LEAKY_BUCKET)
        return WEIR_EOVERFLOW;
    int64_t refills = (made.cap + made.limit - 1) / made.limit;
    bool slow = made.refill == WEIR_REFILL_INTERVAL
                    ? refills > WEIR__WINDOW_MAX / made.window_us
                    : weir__mul_div_up(made.cap, made.period_us, made.period_units) > WEIR__WINDOW_MAX;
    if (made.algorithm <= WEIR_LEAKY_BUCKET && slow)
        return WEIR_EOVERFLOW;
    weir__limit_init_fast_path(&made);
    made.spread = spread(&made, p->id);
    *limit = made;
    return 0;
}
