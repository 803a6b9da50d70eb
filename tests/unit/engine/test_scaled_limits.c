/*
 * Limits that change while their counters stay, as overload control does it: never more passes than the larger of the
 * limits allows, and a lower limit is effective immediately.
 *
 * The state of windows, logs and counters does not depend on the limit: they are compared with the models of the
 * largest limit, step by step. Buckets are compared with the most that any bucket of these sizes lets pass in any time.
 */
#include "algo/algo.h"

#include "../../test.h"
#include "models.h"

#define STEPS 20000

static weir_segment *open_segment(void)
{
    weir_segment_options how = {.size = 4 << 20, .slab_bytes = 2 << 20};
    weir_segment *segment;
    if (weir_segment_open(&how, &segment) != 0)
        exit(1);
    return segment;
}

/* A limit that varies: as configured, and its ceiling. */
struct varying {
    weir_params params; /* of the ceiling */
    weir_limit base, ceiling;
    int64_t most; /* the scale of the ceiling */
};

static struct varying varying_limit(weir_params params, int percent)
{
    struct varying v = {.params = params, .most = WEIR__SCALE_ONE / 100 * percent};
    if (weir_limit_init(&v.base, &params) != 0)
        exit(1);
    v.params.limit = params.limit * percent / 100;
    v.params.burst = params.burst * percent / 100;
    if (weir_limit_init(&v.ceiling, &v.params) != 0)
        exit(1);
    weir__limit_init_scaled(&v.ceiling, &v.ceiling);
    weir__limit_init_scaled(&v.base, &v.ceiling);
    return v;
}

static int64_t below(uint64_t *random, int64_t bound)
{
    return (int64_t)(test_random(random) % (uint64_t)bound);
}

/* A random scale from a twentieth of the ceiling up to it; often one of the two. */
static weir_limit some_scale(const struct varying *v, uint64_t *random)
{
    weir_limit at;
    int64_t kind = below(random, 4), least = v->most / 20;
    int64_t scale = kind == 0 ? v->most : kind == 1 ? least : least + below(random, v->most - least + 1);
    weir__limit_scale(&v->base, scale, &at);
    CHECK(at.limit <= v->ceiling.limit && at.hard <= v->ceiling.hard && at.cap <= v->ceiling.cap);
    return at;
}

/* Time steps of all sizes, some of them longer than the window. */
static int64_t some_time(const weir_limit *limit, uint64_t *random)
{
    switch (below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return below(random, limit->window_us);
    case 2:
        return below(random, 3 * limit->window_us);
    default:
        return below(random, limit->window_us / limit->hard + 2);
    }
}

/* ---- State that does not depend on the limit ---- */

static void play_counts(weir_params params, int percent, uint64_t seed)
{
    struct varying v = varying_limit(params, percent);
    weir_segment *segment = open_segment();
    uint64_t random = seed;
    struct model model;
    int64_t now_us = 40 * DAY_US, wrong = 0;
    weir_limit limit = v.base;
    model_init(&model, &v.params, &v.ceiling);
    for (int64_t step = 0; step < test_scaled(STEPS, 500); step++) {
        now_us += some_time(&v.ceiling, &random);
        if (below(&random, 5) == 0)
            limit = some_scale(&v, &random);
        weir_time now = {now_us * 1000, now_us * 1000};
        int64_t cost = 1 + below(&random, below(&random, 9) ? 2 : limit.cap);
        int64_t model_units = model_level(&model, now_us);
        weir_decision d;
        if (weir_take(segment, &limit, "k", 1, cost, now, &d) != 0)
            exit(1);
        wrong += weir_passes(&d) != (model_units + cost <= limit.cap);
        wrong += d.limit != limit.hard || (weir_passes(&d) && d.remaining != limit.hard - model_units - cost);
        if (weir_passes(&d))
            model_add(&model, now_us, cost);
    }
    CHECK_EQ(wrong, 0);
    model_free(&model);
    weir_segment_close(segment);
}

TEST(fixed_windows_under_changing_limits)
{
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW, .limit = 40, .window_ns = WEIR_SECOND};
    play_counts(params, 200, 1);
    params.align = WEIR_ALIGN_FIRST_REQUEST;
    play_counts(params, 100, 2);
    params.soft_percent = 25;
    play_counts(params, 300, 3);
}

TEST(logs_under_changing_limits)
{
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 40, .window_ns = WEIR_SECOND};
    play_counts(params, 200, 4);
    play_counts(params, 100, 5);
    params.soft_percent = 50;
    play_counts(params, 150, 6);
}

TEST(sliding_counters_under_changing_limits)
{
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40, .window_ns = WEIR_SECOND};
    play_counts(params, 200, 7);
    params.buckets = 7;
    play_counts(params, 200, 8);
}

/* In the same representation at every scale: 20,000 fit into one slot, 40,000 do not. */
TEST(sliding_counters_that_outgrow_their_slot)
{
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 20000, .window_ns = WEIR_SECOND};
    play_counts(params, 200, 9);
    params.limit = 40000;
    play_counts(params, 100, 18);
    params.limit = 20000;
    struct varying v = varying_limit(params, 200);
    CHECK(v.base.wide && !weir__is_packed(&v.base));
    CHECK(v.base.salt == v.ceiling.salt);
    v = varying_limit(params, 160);
    CHECK(!v.base.wide && weir__is_packed(&v.base) && weir__is_packed(&v.ceiling));
}

/* Logged denials push no entry out of the log that a larger limit would still count. */
TEST(log_of_denied_requests_keeps_what_the_largest_limit_needs)
{
    struct varying v = varying_limit(
        (weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 100, .window_ns = 10 * WEIR_SECOND, .count_rejected = true},
        100);
    weir_segment *segment = open_segment();
    weir_limit low;
    weir_decision d;
    int passed = 0;
    weir__limit_scale(&v.base, WEIR__SCALE_ONE / 5, &low);
    CHECK_EQ(low.cap, 20);
    CHECK_EQ(low.most, 100);
    for (int i = 0; i < 80; i++)
        CHECK_EQ(weir_take(segment, &v.base, "k", 1, 1, (weir_time){WEIR_SECOND, 0}, &d), 0);
    CHECK_EQ(d.remaining, 20);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weir_take(segment, &low, "k", 1, 1, (weir_time){2 * WEIR_SECOND, 0}, &d), 0);
        CHECK(!weir_passes(&d));
    }
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weir_take(segment, &v.base, "k", 1, 1, (weir_time){3 * WEIR_SECOND, 0}, &d), 0);
        passed += weir_passes(&d);
    }
    CHECK_EQ(passed, 10); /* 80, and 10 that were denied */
    weir_segment_close(segment);
}

/* ---- Buckets ---- */

/* The maximal level of any bucket of a size and rate, fed with what passed. */
struct bound {
    double rate, cap; /* units a microsecond */
    double level;
    int64_t at_us;
};

static struct bound bound_of(const weir_limit *limit, int64_t now_us)
{
    return (struct bound){(double)limit->limit / (double)limit->window_us, (double)limit->cap, 0, now_us};
}

static double bound_level(const struct bound *bound, int64_t now_us)
{
    double level = bound->level - bound->rate * (double)(now_us - bound->at_us);
    return level < 0 ? 0 : level;
}

static void bound_add(struct bound *bound, int64_t now_us, int64_t units)
{
    bound->level = bound_level(bound, now_us) + (double)units;
    bound->at_us = now_us;
}

static void play_bucket(weir_params params, int percent, uint64_t seed)
{
    struct varying v = varying_limit(params, percent);
    weir_segment *segment = open_segment();
    uint64_t random = seed;
    int64_t now_us = 40 * DAY_US, too_many = 0, too_few = 0, late = 0;
    weir_limit limit = v.base, lowest;
    weir__limit_scale(&v.base, v.most / 20, &lowest);
    struct bound largest = bound_of(&v.ceiling, now_us), smallest = bound_of(&lowest, now_us), since = largest;
    /* The time of one period may be counted at another rate. */
    double slack = (double)lowest.period_us * largest.rate + 1;
    for (int64_t step = 0; step < test_scaled(4 * STEPS, 500); step++) {
        now_us += some_time(&v.ceiling, &random);
        if (below(&random, 40) == 0) {
            limit = below(&random, 2) ? lowest : some_scale(&v, &random);
            since = bound_of(&limit, now_us);
        }
        int64_t cost = 1 + below(&random, below(&random, 9) ? 2 : limit.cap);
        weir_decision d;
        if (weir_take(segment, &limit, "k", 1, cost, (weir_time){now_us * 1000, 0}, &d) != 0)
            exit(1);
        /* At least as slow as the slowest: a millisecond of rounding, a thousandth. */
        double model_units = bound_level(&smallest, now_us);
        too_few += !weir_passes(&d) && model_units * 1.002 + (double)cost + 1 <= smallest.cap;
        if (!weir_passes(&d))
            continue;
        bound_add(&largest, now_us, cost);
        bound_add(&smallest, now_us, cost);
        bound_add(&since, now_us, cost);
        too_many += largest.level > largest.cap + slack;
        late += since.level > since.cap + (double)limit.period_us * since.rate + 1;
    }
    CHECK_EQ(too_many, 0);
    CHECK_EQ(too_few, 0);
    CHECK_EQ(late, 0); /* withdrawn immediately: since the limit changed no more passed than it alone allows */
    weir_segment_close(segment);
}

TEST(token_buckets_under_changing_limits)
{
    weir_params params = {.limit = 97, .window_ns = 60 * WEIR_SECOND};
    play_bucket(params, 200, 10);
    play_bucket(params, 100, 11);
    play_bucket((weir_params){.limit = 100, .window_ns = WEIR_SECOND, .burst = 20}, 300, 12);
    play_bucket((weir_params){.limit = 700000, .window_ns = WEIR_SECOND, .burst = 5000}, 200, 13);
    play_bucket((weir_params){.limit = 97, .window_ns = 60 * WEIR_SECOND, .soft_percent = 50}, 150, 14);
}

TEST(leaky_buckets_under_changing_limits)
{
    play_bucket((weir_params){.algorithm = WEIR_LEAKY_BUCKET, .limit = 97, .window_ns = 60 * WEIR_SECOND, .burst = 30},
                200, 15);
}

/*
 * The case that fails if a bucket's anchor lags behind: a minute at a low limit, whose period is the minute, then the
 * high one. All of that time counted at the high rate would forgive recent takes.
 */
TEST(time_is_not_counted_again_at_another_rate)
{
    struct varying v = varying_limit((weir_params){.limit = 97, .window_ns = 60 * WEIR_SECOND}, 200);
    weir_segment *segment = open_segment();
    weir_decision d;
    int64_t start = WEIR_DAY, passed = 0;
    CHECK_EQ(v.base.period_units, 1);
    /* 97 at once, then one whenever there is one; unused units come at the end: */
    for (int i = 0; i < 97; i++)
        CHECK_EQ(weir_take(segment, &v.base, "k", 1, 1, (weir_time){start, 0}, &d), 0);
    for (int i = 1; i < 59; i++)
        CHECK_EQ(weir_take(segment, &v.base, "k", 1, 1, (weir_time){start + i * WEIR_SECOND / 2, 0}, &d), 0);
    weir_time end = {start + 59 * WEIR_SECOND, 0};
    for (int i = 0; i < 97; i++) {
        CHECK_EQ(weir_take(segment, &v.base, "k", 1, 1, end, &d), 0);
        passed += weir_passes(&d);
    }
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weir_take(segment, &v.ceiling, "k", 1, 1, end, &d), 0);
        passed += weir_passes(&d);
    }
    CHECK(passed > 97);
    CHECK(passed <= 194 + 2); /* the bucket's size at the high limit, and the time of one unit */
    weir_segment_close(segment);
}

/* Interval refill: the current limit at each full window, whatever it was before. */
TEST(interval_refill_under_changing_limits)
{
    struct varying v = varying_limit(
        (weir_params){.limit = 30, .window_ns = WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL, .burst = 60}, 200);
    weir_segment *segment = open_segment();
    uint64_t random = 16;
    int64_t now_us = 40 * DAY_US, too_many = 0;
    weir_limit limit = v.base;
    struct bound largest = bound_of(&v.ceiling, now_us);
    for (int64_t step = 0; step < test_scaled(4 * STEPS, 500); step++) {
        now_us += some_time(&v.ceiling, &random);
        if (below(&random, 20) == 0)
            limit = some_scale(&v, &random);
        int64_t cost = 1 + below(&random, 3);
        weir_decision d;
        if (weir_take(segment, &limit, "k", 1, cost, (weir_time){now_us * 1000, 0}, &d) != 0)
            exit(1);
        if (weir_passes(&d))
            bound_add(&largest, now_us, cost);
        too_many += largest.level > largest.cap + (double)v.ceiling.limit; /* the refill comes at once */
    }
    CHECK_EQ(too_many, 0);
    weir_segment_close(segment);
}

/* ---- Permits ---- */

TEST(permits_under_changing_limits)
{
    enum { MOST = 80 };
    struct varying v =
        varying_limit((weir_params){.algorithm = WEIR_CONCURRENCY, .limit = 40, .window_ns = 60 * WEIR_SECOND}, 200);
    weir_segment *segment = open_segment();
    weir_lease model_units[MOST];
    int64_t count = 0, wrong = 0;
    uint64_t random = 17;
    weir_limit limit = v.base;
    weir_time now = {WEIR_DAY, 0};
    for (int64_t step = 0; step < test_scaled(STEPS, 500); step++) {
        now.mono_ns += below(&random, 1000000);
        if (below(&random, 10) == 0)
            limit = some_scale(&v, &random);
        if (count && below(&random, 2)) {
            int64_t at = below(&random, count);
            wrong += weir_release(segment, &model_units[at], now) != 0;
            model_units[at] = model_units[--count];
            continue;
        }
        weir_lease lease;
        weir_decision d;
        if (weir_acquire(segment, &limit, "k", 1, now, &lease, &d) != 0)
            exit(1);
        wrong += weir_passes(&d) != (count < limit.cap);
        if (weir_passes(&d) && count < MOST)
            model_units[count++] = lease;
        for (int64_t i = 0; i < count; i++) /* none is ever released */
            if (below(&random, 20) == 0)
                wrong += weir_renew(segment, &model_units[i], now) != 0;
    }
    CHECK_EQ(wrong, 0);
    weir_segment_close(segment);
}

TEST_MAIN
