/*
 * Every algorithm against a naive model of it, over millions of random operations through the public API.
 *
 * A failure prints a seed and a step. WEIR_TEST_SEED=<seed> with the test's name as the argument repeats that one
 * run and prints every step of it; WEIR_TEST_SCALE makes everything shorter.
 */
#include "models_driver.h"

static weir_zone *berlin;

TEST(token_bucket)
{
    run_all(&(weir_params){.algorithm = WEIR_TOKEN_BUCKET}, 1600000, 1);
}

TEST(token_bucket_interval)
{
    run_all(&(weir_params){.algorithm = WEIR_TOKEN_BUCKET, .refill = WEIR_REFILL_INTERVAL}, 1200000, 1);
}

TEST(leaky_bucket)
{
    run_all(&(weir_params){.algorithm = WEIR_LEAKY_BUCKET}, 1600000, 1);
}

TEST(fixed_window)
{
    run_all(&(weir_params){.algorithm = WEIR_FIXED_WINDOW}, 1000000, 1);
}

TEST(fixed_window_first_request)
{
    run_all(&(weir_params){.algorithm = WEIR_FIXED_WINDOW, .align = WEIR_ALIGN_FIRST_REQUEST}, 800000, 1);
}

TEST(fixed_window_calendar)
{
    for (int unit = WEIR_CALENDAR_DAY; unit <= WEIR_CALENDAR_YEAR; unit++)
        run_all(&(weir_params){.algorithm = WEIR_FIXED_WINDOW,
                               .align = WEIR_ALIGN_CALENDAR,
                               .calendar = (enum weir_calendar)unit},
                100000, 1);
}

TEST(fixed_window_calendar_zone)
{
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    CHECK_EQ(weir_zone_open("Europe/Berlin", &berlin), 0);
    for (int unit = WEIR_CALENDAR_DAY; unit <= WEIR_CALENDAR_YEAR && berlin; unit++)
        run_all(&(weir_params){.algorithm = WEIR_FIXED_WINDOW,
                               .align = WEIR_ALIGN_CALENDAR,
                               .calendar = (enum weir_calendar)unit,
                               .zone = berlin},
                100000, 1);
    weir_zone_close(berlin);
}

TEST(sliding_window_log)
{
    run_all(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG}, 1000000, 1);
}

TEST(sliding_window_counter)
{
    run_all(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 2}, 1200000, 1);
}

TEST(sliding_window_counter_wide)
{
    run_all(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER}, 800000, 1);
}

/* One of each kind. */
static const weir_params kinds[] = {
    {.algorithm = WEIR_TOKEN_BUCKET},
    {.algorithm = WEIR_TOKEN_BUCKET, .refill = WEIR_REFILL_INTERVAL},
    {.algorithm = WEIR_LEAKY_BUCKET},
    {.algorithm = WEIR_FIXED_WINDOW},
    {.algorithm = WEIR_FIXED_WINDOW, .align = WEIR_ALIGN_FIRST_REQUEST},
    {.algorithm = WEIR_FIXED_WINDOW, .align = WEIR_ALIGN_CALENDAR, .calendar = WEIR_CALENDAR_WEEK},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 2},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .buckets = 10},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* Two keys under two ids: four independent models. */
TEST(keys_and_ids_are_independent)
{
    for (int i = 0; i < KINDS; i++)
        run_all(&kinds[i], 60000, 4);
}

/* The definition itself, without a model: sums over the admitted requests, at their times. */
TEST(log_never_admits_more_in_any_window)
{
    enum { REQUESTS = 2000 };
    static struct logged admitted[REQUESTS];
    int64_t runs = test_scaled(100, 2);
    uint64_t random = 42;

    for (int64_t run = 0; run < runs; run++) {
        struct run r = {0};
        uint64_t seed = test_random(&random);
        begin(&r, &(weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG}, seed, 1);
        const struct subject *s = &r.subject[0];
        int64_t window = s->model.window_us, sum = 0;
        int first = 0, count = 0;
        for (r.step = 0; r.step < REQUESTS && r.now_ns < TIME_MAX_NS; r.step++) {
            weir_decision d;
            int64_t cost = 1 + below(&r, one_in(&r, 2) ? 2 : s->model.cap);
            r.now_ns += one_in(&r, 3) ? 0 : 1000 * below(&r, one_in(&r, 20) ? window : window / s->model.cap + 3);
            CHECK_EQ(weir_take(r.segment, &s->limit, s->key, strlen(s->key), cost, (weir_time){r.now_ns, 0}, &d), 0);
            if (!weir_passes(&d))
                continue;
            admitted[count++] = (struct logged){r.now_ns / 1000, cost};
            sum += cost;
            while (admitted[first].at_us <= r.now_ns / 1000 - window)
                sum -= admitted[first++].units;
            if (sum > s->model.cap)
                report_difference(&r, s, "take", cost, "sum of the window", sum, s->model.cap);
        }
        end(&r, false);
    }
}

/* ---- Consumed units stay consumed when the limit changes ---- */

TEST(changed_limit_keeps_consumed_units)
{
    const weir_time now = {20000 * WEIR_DAY, 20000 * WEIR_DAY};

    for (int kind = 0; kind < KINDS; kind++) {
        weir_segment_options options = {.size = 8 << 20};
        weir_segment *segment;
        weir_params p = kinds[kind];
        weir_limit before, more, less;
        weir_decision d;

        p.window_ns = p.align == WEIR_ALIGN_CALENDAR ? 0 : 60 * WEIR_SECOND;
        p.id = 7;
        CHECK_EQ(weir_segment_open(&options, &segment), 0);
        p.limit = 100;
        CHECK_EQ(weir_limit_init(&before, &p), 0);
        p.limit = 200;
        CHECK_EQ(weir_limit_init(&more, &p), 0);
        p.limit = 50;
        CHECK_EQ(weir_limit_init(&less, &p), 0);

        CHECK_EQ(weir_take(segment, &before, "k", 1, 60, now, &d), 0);
        CHECK_EQ(d.remaining, 40);
        CHECK_EQ(weir_peek(segment, &more, "k", 1, 0, now, &d), 0);
        CHECK_EQ(d.remaining, 140);
        CHECK_EQ(weir_take(segment, &less, "k", 1, 1, now, &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
        CHECK_EQ(d.remaining, -10);
        CHECK_EQ(weir_take(segment, &more, "k", 1, 141, now, &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
        CHECK_EQ(weir_take(segment, &more, "k", 1, 140, now, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        CHECK_EQ(d.remaining, 0);
        CHECK_EQ(weir_peek(segment, &before, "k", 1, 0, now, &d), 0);
        CHECK_EQ(d.remaining, -100);
        weir_segment_close(segment);
    }
}

/* ---- Debt saturates, and a decision has the actual state of the key ---- */

TEST(debt_saturates)
{
    const weir_time now = {20000 * WEIR_DAY + 5, 20000 * WEIR_DAY + 5};

    for (int kind = 0; kind < KINDS; kind++) {
        weir_segment_options options = {.size = 8 << 20};
        weir_segment *segment;
        weir_params p = kinds[kind];
        weir_limit limit;
        weir_decision d, look;
        int64_t remaining = 10;

        p.limit = 10;
        p.window_ns = p.align == WEIR_ALIGN_CALENDAR ? 0 : 400 * WEIR_DAY;
        CHECK_EQ(weir_segment_open(&options, &segment), 0);
        CHECK_EQ(weir_limit_init(&limit, &p), 0);
        for (int i = 0; i < 20; i++) {
            CHECK_EQ(weir_charge(segment, &limit, "k", 1, UNITS_MAX, now, &d), 0);
            CHECK_EQ(weir_peek(segment, &limit, "k", 1, 0, now, &look), 0);
            CHECK_EQ(d.remaining, look.remaining);
            CHECK(look.remaining <= remaining && look.remaining <= 0);
            CHECK(look.reset_after_ns > 0);
            remaining = look.remaining;
            CHECK_EQ(weir_take(segment, &limit, "k", 1, 1, now, &d), 0);
            CHECK_EQ(d.verdict, WEIR_DENY);
            CHECK(d.retry_after_ns > 0);
        }
        CHECK_EQ(weir_reset(segment, &limit, "k", 1, now), 0);
        CHECK_EQ(weir_take(segment, &limit, "k", 1, 10, now, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        weir_segment_close(segment);
    }
}

TEST_MAIN
