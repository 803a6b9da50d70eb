/* Shared by tests of the public calls: a limit of each algorithm, and calls that must not fail. */
#ifndef WEIR_TEST_API_H
#define WEIR_TEST_API_H

#include "segments.h"

#define COST_MAX INT64_C(4294967295)

/* One limit of each algorithm: ten units per hundred seconds. */
static const weir_params kinds[] = {
    {.limit = 10, .window_ns = 100 * WEIR_SECOND},
    {.limit = 10, .window_ns = 100 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = 100 * WEIR_SECOND},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = 100 * WEIR_SECOND, .delay = true},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 100 * WEIR_SECOND},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .align = WEIR_ALIGN_CALENDAR},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 100 * WEIR_SECOND, .align = WEIR_ALIGN_FIRST_REQUEST},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = 100 * WEIR_SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 100 * WEIR_SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 100 * WEIR_SECOND, .buckets = 10},
};

/* A test that runs once for each of them, with a segment of its own; a failure prints which. */
#define TEST_OF_EACH_KIND(name)                                                                                        \
    static void name##_of(weir_segment *s, const weir_limit *limit);                                                   \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        with_each_kind(name##_of);                                                                                     \
    }                                                                                                                  \
    static void name##_of(weir_segment *s, const weir_limit *limit)

static inline void with_each_kind(void (*check)(weir_segment *s, const weir_limit *limit))
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_segment *s = make();
        weir_limit limit = limit_of(kinds[i]);
        int failures = test_failures;
        check(s, &limit);
        if (test_failures != failures)
            printf("  with algorithm %d, %d buckets\n", (int)kinds[i].algorithm, kinds[i].buckets);
        weir_segment_close(s);
    }
}

static inline weir_time later(int64_t ns)
{
    return (weir_time){NOW.mono_ns + ns, NOW.wall_ns + ns};
}

/* Decision of a take that must not fail. */
static inline weir_decision take(weir_segment *segment, const weir_limit *limit, const char *key, int64_t cost,
                                 weir_time now)
{
    weir_decision d = {.verdict = WEIR_NEVER_FITS, .remaining = INT64_MIN};
    CHECK_EQ(weir_take(segment, limit, key, strlen(key), cost, now, &d), 0);
    return d;
}

static inline bool passes(weir_segment *segment, const weir_limit *limit, const char *key, int64_t cost, weir_time now)
{
    weir_decision d = take(segment, limit, key, cost, now);
    return weir_passes(&d);
}

static inline int64_t remaining(weir_segment *segment, const weir_limit *limit, const char *key, weir_time now)
{
    weir_decision d = {.remaining = INT64_MIN};
    CHECK_EQ(weir_peek(segment, limit, key, strlen(key), 0, now, &d), 0);
    return d.remaining;
}

#endif
