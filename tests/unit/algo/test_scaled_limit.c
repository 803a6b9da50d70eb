/* Scaled limits: integers, rounded down, at least one; and the shortest possible periods. */
#include "algo/algo.h"

#include "../../test.h"

static weir_limit made(weir_params params)
{
    weir_limit limit = {0};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

TEST(scaled_limit_is_rounded_down_and_at_least_one)
{
    weir_limit base = made((weir_params){.limit = 10, .window_ns = WEIR_SECOND, .burst = 7, .soft_percent = 50}), at;
    weir__limit_init_scaled(&base, &base);
    weir__limit_scale(&base, WEIR__SCALE_ONE, &at);
    CHECK(at.limit == base.limit && at.hard == base.hard && at.cap == base.cap && at.period_us == base.period_us &&
          at.period_units == base.period_units && at.salt == base.salt && at.inverse == base.inverse);
    weir__limit_scale(&base, WEIR__SCALE_ONE - 1, &at);
    CHECK_EQ(at.limit, 9);
    CHECK_EQ(at.hard, 6);
    CHECK_EQ(at.cap, 8); /* 6 × 10 / 7 */
    CHECK_EQ(at.most, 10);
    weir__limit_scale(&base, 1, &at);
    CHECK_EQ(at.limit, 1);
    CHECK_EQ(at.hard, 1);
    CHECK_EQ(at.cap, 1);
    weir__limit_scale(&base, 0, &at);
    CHECK_EQ(at.limit, 1);
    /* The largest possible numbers. */
    base = made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 4294967295, .window_ns = WEIR_SECOND});
    weir__limit_scale(&base, WEIR__SCALE_ONE / 2, &at);
    CHECK_EQ(at.limit, 2147483647);
    weir__limit_scale(&base, 100 * WEIR__SCALE_ONE, &at);
    CHECK_EQ(at.limit, 429496729500);
}

TEST(limit_without_its_reserve)
{
    weir_limit limit = made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 11, .window_ns = WEIR_SECOND});
    weir__limit_without_reserve(&limit, 20);
    CHECK_EQ(limit.hard, 8);
    CHECK_EQ(limit.cap, 8);
    CHECK_EQ(limit.limit, 8);
    CHECK_EQ(limit.most, 11);
    limit = made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .window_ns = WEIR_SECOND});
    weir__limit_without_reserve(&limit, 99);
    CHECK_EQ(limit.cap, 1);
}

/* Never faster than the limit, and at most a thousandth slower; the period is about a millisecond or one unit. */
TEST(scaled_period_is_short_and_never_faster)
{
    uint64_t random = 1;
    for (int i = 0; i < 200000; i++) {
        int64_t window_us = 1 + (int64_t)(test_random(&random) % (UINT64_C(1) << test_random(&random) % 40));
        int64_t units = 1 + (int64_t)(test_random(&random) % (UINT64_C(1) << test_random(&random) % 32));
        weir_params params = {.limit = units, .window_ns = window_us * 1000, .burst = 1};
        weir_limit limit;
        if (weir_limit_init(&limit, &params) != 0)
            continue;
        weir__limit_init_scaled(&limit, &limit);
        __extension__ typedef __int128 wide;
        wide made_of = (wide)limit.period_units * window_us, allowed = (wide)limit.period_us * units;
        CHECK(made_of <= allowed);
        CHECK(allowed - made_of <= allowed / 1000 + 1);
        CHECK(limit.period_units >= 1 && limit.period_units <= units);
        CHECK(limit.period_units == 1 || limit.period_us <= 2001 || limit.period_us <= window_us);
        CHECK(limit.has_fast_path == (limit.period_units == 1 && limit.period_us > 4));
    }
}

/* 2^64 / period, by the definition. */
TEST(inverse_of_a_period)
{
    uint64_t random = 2;
    __extension__ typedef unsigned __int128 wide;
    for (int i = 0; i < 200000; i++) {
        weir_limit limit = {.period_us = 2 + (int64_t)(test_random(&random) >> (2 + test_random(&random) % 60)),
                            .period_units = 1};
        weir__limit_init_fast_path(&limit);
        CHECK(limit.inverse == (uint64_t)(((wide)1 << 64) / (uint64_t)limit.period_us));
    }
    for (int power = 1; power < 62; power++) {
        weir_limit limit = {.period_us = INT64_C(1) << power};
        weir__limit_init_fast_path(&limit);
        CHECK(limit.inverse == UINT64_C(1) << (64 - power));
    }
}

TEST_MAIN
