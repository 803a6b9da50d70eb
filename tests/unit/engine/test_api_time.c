/* The same requests, at the limits of time and where anchors wrap: all decisions must be the same. */
#include "table/slot.h"

#include "api.h"

#define START   (WEIR_DAY * 20000)
#define WRAP_NS ((INT64_C(1) << WEIR__TIME_BITS) * 1000)
#define STEPS   60

/* Further limits. */
static const weir_params others[] = {
    {.limit = 7, .window_ns = 100 * WEIR_SECOND, .burst = 20, .soft_percent = 30},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = 100 * WEIR_SECOND, .count_rejected = true},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 100 * WEIR_SECOND, .round = WEIR_ROUND_UP},
};

enum { ALL = COUNT(kinds) + COUNT(others) };

static const weir_params *params_of(size_t k)
{
    return k < COUNT(kinds) ? &kinds[k] : &others[k - COUNT(kinds)];
}

/* A sequence of requests from `base` on, with clocks that occasionally step back a little. */
static void play(const weir_params *params, int64_t base, weir_decision out[STEPS])
{
    weir_segment *s = make();
    weir_limit limit;
    /* A calendar day is longer than the other windows; both sequences go through two of them. */
    int64_t step = params->align == WEIR_ALIGN_CALENDAR ? 4000 * WEIR_SECOND : 5 * WEIR_SECOND, now = base;
    uint64_t seed = 1;
    CHECK_EQ(weir_limit_init(&limit, params), 0);
    for (int i = 0; i < STEPS; i++) {
        uint64_t bits = test_random(&seed);
        weir_time at = {now, now};
        memset(&out[i], 0, sizeof out[i]);
        switch (bits % 8) {
        case 0:
            CHECK_EQ(weir_refund(s, &limit, "k", 1, 1, at, &out[i]), 0);
            break;
        case 1:
            CHECK_EQ(weir_charge(s, &limit, "k", 1, 2, at, &out[i]), 0);
            break;
        default:
            CHECK_EQ(weir_take(s, &limit, "k", 1, (int64_t)(bits >> 8 & 3), at, &out[i]), 0);
        }
        now += i % 7 == 6 ? -step / 3 : step;
    }
    weir_segment_close(s);
}

static void check_same(int64_t base)
{
    for (size_t k = 0; k < ALL; k++) {
        weir_decision here[STEPS], there[STEPS];
        int failures = test_failures;
        /* All windows must begin alike: full days for the calendar, full hundreds of seconds for the others. */
        int64_t unit = params_of(k)->align == WEIR_ALIGN_CALENDAR ? WEIR_DAY : 100 * WEIR_SECOND;
        play(params_of(k), START, here);
        play(params_of(k), base - base % unit, there);
        for (int i = 0; i < STEPS; i++) {
            CHECK_EQ(there[i].verdict, here[i].verdict);
            CHECK_EQ(there[i].flags, here[i].flags);
            CHECK_EQ(there[i].remaining, here[i].remaining);
            CHECK_EQ(there[i].delay_ns, here[i].delay_ns);
            CHECK_EQ(there[i].retry_after_ns, here[i].retry_after_ns);
            CHECK_EQ(there[i].reset_after_ns, here[i].reset_after_ns);
        }
        if (test_failures != failures)
            printf("  for kind %zu from %" PRId64 "\n", k, base);
    }
}

TEST(from_time_zero)
{
    check_same(0);
    check_same(100 * WEIR_SECOND);
}

TEST(up_to_the_maximal_time)
{
    check_same(INT64_MAX - 4 * WEIR_DAY);
    check_same(INT64_MAX - 1000 * WEIR_DAY);
    /* The last possible moment is valid, too. */
    for (size_t k = 0; k < ALL; k++) {
        weir_segment *s = make();
        weir_limit limit;
        weir_decision d;
        int64_t passed = 0;
        CHECK_EQ(weir_limit_init(&limit, params_of(k)), 0);
        for (int i = 0; i < 40; i++) {
            CHECK_EQ(weir_take(s, &limit, "k", 1, 1, (weir_time){INT64_MAX, INT64_MAX}, &d), 0);
            passed += weir_passes(&d);
            CHECK(d.reset_after_ns > 0 && d.delay_ns >= 0 && d.retry_after_ns >= 0);
        }
        CHECK_EQ(passed, params_of(k)->burst ? 26 : 10);
        weir_segment_close(s);
    }
}

TEST(across_the_wrap_of_anchors)
{
    for (int64_t n = 1; n <= 64; n = n * 2 + (n == 1)) {
        /* At every step of the sequence once. */
        for (int64_t before = 0; before < 300; before += 25)
            check_same(n * WRAP_NS - before * WEIR_SECOND);
        check_same(n * WRAP_NS - WEIR_DAY);
    }
}

TEST(idle_for_three_years)
{
    for (size_t k = 0; k < ALL; k++) {
        for (int days = 0; days <= 400; days += 400) {
            weir_params params = *params_of(k);
            if (days && params.window_ns)
                params.window_ns = days * WEIR_DAY;
            params.burst = 0;
            params.soft_percent = 0;
            weir_segment *s = make();
            weir_limit limit;
            weir_decision d;
            CHECK_EQ(weir_limit_init(&limit, &params), 0);
            weir_time now = {START, START}, then = {START + 3 * 365 * WEIR_DAY, START + 3 * 365 * WEIR_DAY};
            CHECK_EQ(weir_take(s, &limit, "k", 1, limit.limit, now, &d), 0);
            CHECK_EQ(weir_take(s, &limit, "k", 1, 1, now, &d), 0);
            CHECK_EQ(d.verdict, WEIR_DENY);
            CHECK_EQ(weir_peek(s, &limit, "k", 1, 0, then, &d), 0);
            CHECK_EQ(d.remaining, limit.limit);
            CHECK_EQ(d.reset_after_ns, 0);
            CHECK_EQ(weir_take(s, &limit, "k", 1, limit.limit, then, &d), 0);
            CHECK_EQ(d.verdict, WEIR_ALLOW);
            weir_segment_close(s);
        }
    }
}

/* From 3.9 years on an anchor may look like a later one. The decision is then unspecified, but there is one. */
TEST(idle_until_anchors_wrap)
{
    for (size_t k = 0; k <= ALL; k++) {
        weir_params pair = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40000}; /* in two slots */
        weir_params params = k < ALL ? *params_of(k) : pair;
        if (params.align != WEIR_ALIGN_CALENDAR)
            params.window_ns = 400 * WEIR_DAY;
        params.burst = 0;
        params.soft_percent = 0;
        weir_limit limit;
        CHECK_EQ(weir_limit_init(&limit, &params), 0);
        for (int64_t days = 1000; days <= 2200; days += 25) {
            weir_segment *s = make();
            weir_decision d;
            for (int i = 0; i < 2; i++) {
                int64_t window = START + i * 400 * WEIR_DAY;
                CHECK_EQ(weir_take(s, &limit, "k", 1, 1, (weir_time){window, window}, &d), 0);
            }
            int64_t then = START + days * WEIR_DAY;
            CHECK_EQ(weir_take(s, &limit, "k", 1, 1, (weir_time){then, then}, &d), 0);
            weir_segment_close(s);
        }
    }
}

TEST(clocks_may_go_back)
{
    /* A request with a clock reading before that of another one already counted: nothing is refunded. */
    for (size_t k = 0; k < ALL; k++) {
        weir_segment *s = make();
        weir_limit limit;
        weir_decision d;
        CHECK_EQ(weir_limit_init(&limit, params_of(k)), 0);
        int64_t passed = 0;
        for (int64_t i = 0; i < 1000; i++) {
            int64_t now = START + 50 * WEIR_SECOND - i * 10 * 1000 * WEIR_MICROSECOND;
            CHECK_EQ(weir_take(s, &limit, "k", 1, 1, (weir_time){now, now}, &d), 0);
            passed += weir_passes(&d);
        }
        CHECK_EQ(passed, params_of(k)->burst ? 26 : 10);
        weir_segment_close(s);
    }
}

TEST_MAIN
