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
    remember(of("b", 1), 400 * WEIR_DAY, 0);
    CHECK(left(of("b", 1), 0) > 4290 * WEIR_SECOND && left(of("b", 1), 0) < 4300 * WEIR_SECOND);
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
