/* The negative cache: how long denials are cached, for which keys, and concurrent insertions. */
#include "../../engine.h"
#include "engine/strict.h"

static bool stale; /* the next lookup misses: a concurrent insertion */

int __real_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d);
int __wrap_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d);
int __wrap_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d)
{
    int error = __real_weir_peek(s, l, k, n, c, t, d);
    if (stale)
        d->reset_after_ns = 0;
    stale = false;
    return error;
}

static weir engine;
static struct weir__quota quota;

static void begin(void)
{
    weir_segment_options how = {.size = 1 << 20};
    weir_params params = {.limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 7};
    CHECK_EQ(weir_segment_open(&how, &engine.segment), 0);
    CHECK_EQ(weir__negative_cache_init(&engine.negative_cache), 0);
    CHECK_EQ(weir_limit_init(&quota.limit, &params), 0);
}

static struct weir__rule_eval of(const char *key, int64_t cost)
{
    return (struct weir__rule_eval){.quota = &quota, .key = key, .key_len = (uint32_t)strlen(key), .cost = cost};
}

static struct weir__request_ctx at(double s)
{
    return (struct weir__request_ctx){.engine = &engine, .now = test_seconds(s)};
}

static void remember(struct weir__rule_eval eval, int64_t for_ns, double s)
{
    struct weir__request_ctx ctx = at(s);
    weir__negative_cache_add(&ctx, &eval, for_ns);
}

static int64_t left(struct weir__rule_eval eval, double s)
{
    struct weir__request_ctx ctx = at(s);
    return weir__negative_cache_left(&ctx, &eval);
}

TEST(denial_is_cached_until_its_retry_time)
{
    begin();
    CHECK_EQ(left(of("a", 1), 0), 0);
    remember(of("a", 1), 3 * WEIR_SECOND + 999, 0);
    CHECK_EQ(left(of("a", 1), 0), 3 * WEIR_SECOND);
    CHECK_EQ(left(of("a", 1), 2), WEIR_SECOND);
    CHECK_EQ(left(of("a", 1), 2.999999), 1000);
    CHECK_EQ(left(of("a", 1), 3), 0);
    /* Neither for another key, nor for another cost, nor for another limit. */
    CHECK_EQ(left(of("b", 1), 0), 0);
    CHECK_EQ(left(of("a", 2), 0), 0);
    weir_params larger = {.limit = 6, .window_ns = 60 * WEIR_SECOND, .id = 7};
    CHECK_EQ(weir_limit_init(&quota.limit, &larger), 0);
    CHECK_EQ(left(of("a", 1), 0), 0);
    /* Nor does it change the counter itself. */
    weir_decision decision;
    CHECK_EQ(weir_peek(engine.segment, &quota.limit, "a", 1, 0, test_seconds(0), &decision), 0);
    CHECK_EQ(decision.remaining, 6);
    weir_segment_close(engine.segment);
}

TEST(longest_denial_counts)
{
    begin();
    remember(of("a", 1), 2 * WEIR_SECOND, 0);
    remember(of("a", 1), 5 * WEIR_SECOND, 1);
    CHECK_EQ(left(of("a", 1), 1), 5 * WEIR_SECOND);
    remember(of("a", 1), 3 * WEIR_SECOND, 1);
    CHECK_EQ(left(of("a", 1), 1), 5 * WEIR_SECOND);
    remember(of("a", 1), 0, 1);
    remember(of("a", 1), 999, 1);
    CHECK_EQ(left(of("a", 1), 1), 5 * WEIR_SECOND);
    weir_segment_close(engine.segment);
}

/* The end is exact, however far: around 2^32 us, and up to two of the longest windows. */
TEST(long_denial_ends_to_the_microsecond)
{
    static const int64_t us[] = {1,
                                 16383,
                                 16384,
                                 16385,
                                 INT64_C(0xffffffff),
                                 INT64_C(0x100000000),
                                 INT64_C(0x100000001),
                                 WEIR_DAY / 1000,
                                 30 * (WEIR_DAY / 1000) + 1,
                                 WEIR__WINDOW_MAX,
                                 2 * WEIR__WINDOW_MAX};
    begin();
    for (int cost = 1; cost <= (int)(sizeof us / sizeof *us); cost++) {
        int64_t for_us = us[cost - 1];
        struct weir__rule_eval eval = of("a", cost);
        struct weir__request_ctx ctx = at(1000);
        weir__negative_cache_add(&ctx, &eval, for_us * 1000);
        CHECK_EQ(weir__negative_cache_left(&ctx, &eval), for_us * 1000);
        ctx.now.mono_ns += for_us / 3 * 1000;
        CHECK_EQ(weir__negative_cache_left(&ctx, &eval), (for_us - for_us / 3) * 1000);
        ctx.now.mono_ns += (for_us - for_us / 3 - 1) * 1000;
        CHECK_EQ(weir__negative_cache_left(&ctx, &eval), 1000);
        ctx.now.mono_ns += 1000;
        CHECK_EQ(weir__negative_cache_left(&ctx, &eval), 0);
    }
    /* A debt of centuries. */
    remember(of("b", 1), INT64_MAX, 0);
    CHECK_EQ(left(of("b", 1), 0), WEIR__USED_MAX * 16384 * 1000);
    weir_segment_close(engine.segment);
}

TEST(denial_right_after_another_has_ended_is_cached)
{
    begin();
    remember(of("a", 1), 2 * WEIR_SECOND, 0);
    remember(of("a", 1), WEIR_SECOND, 2.000001);
    CHECK_EQ(left(of("a", 1), 2.000001), WEIR_SECOND);
    weir_segment_close(engine.segment);
}

TEST(concurrent_insertions_do_not_add_up)
{
    begin();
    remember(of("a", 1), 2 * WEIR_SECOND, 0);
    stale = true;
    remember(of("a", 1), 2 * WEIR_SECOND, 0);
    CHECK_EQ(left(of("a", 1), 0), 2 * WEIR_SECOND);
    stale = true;
    remember(of("a", 1), 3 * WEIR_SECOND, 0);
    CHECK(left(of("a", 1), 0) <= 3 * WEIR_SECOND);
    weir_segment_close(engine.segment);
}

TEST(cached_denial_can_be_removed)
{
    begin();
    struct weir__rule_eval one = of("a", 1), two = of("a", 2);
    struct weir__request_ctx ctx = at(0);
    remember(one, 2 * WEIR_SECOND, 0);
    remember(two, 2 * WEIR_SECOND, 0);
    CHECK_EQ(weir__negative_cache_remove(&ctx, &one), 0);
    CHECK_EQ(left(one, 0), 0);
    CHECK_EQ(left(two, 0), 2 * WEIR_SECOND);
    weir_segment_close(engine.segment);
}

TEST_MAIN
