/*
 * Late refunds. A request has taken at some moment, others have taken since, and then the first is refunded, with the
 * `now` of its take, as happens when a later limit of the same request denies. Afterwards nothing may pass that would
 * not have passed without the first request.
 */
#include "segments.h"

#define WINDOW (100 * WEIR_SECOND)

static weir_time at(int64_t seconds)
{
    return (weir_time){NOW.mono_ns + seconds * WEIR_SECOND, NOW.wall_ns + seconds * WEIR_SECOND};
}

static weir_decision take(weir_segment *segment, const weir_limit *limit, int64_t cost, int64_t seconds)
{
    weir_decision d = {.verdict = WEIR_NEVER_FITS, .remaining = INT64_MIN};
    CHECK_EQ(weir_take(segment, limit, "k", 1, cost, at(seconds), &d), 0);
    return d;
}

static weir_decision refund(weir_segment *segment, const weir_limit *limit, int64_t amount, int64_t seconds)
{
    weir_decision d = {.remaining = INT64_MIN};
    CHECK_EQ(weir_refund(segment, limit, "k", 1, amount, at(seconds), &d), 0);
    CHECK_EQ(d.verdict, WEIR_ALLOW);
    return d;
}

static int64_t remaining(weir_segment *segment, const weir_limit *limit, int64_t seconds)
{
    weir_decision d = {.remaining = INT64_MIN};
    CHECK_EQ(weir_peek(segment, limit, "k", 1, 0, at(seconds), &d), 0);
    return d.remaining;
}

/* One limit of each algorithm: ten units per hundred seconds, and a thousand times as many where one slot cannot hold
 * it. */
static const weir_params kinds[] = {
    {.limit = 10, .window_ns = WINDOW},
    {.limit = 3, .window_ns = WINDOW, .burst = 10},
    {.limit = 10, .window_ns = WINDOW, .refill = WEIR_REFILL_INTERVAL},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WINDOW},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WINDOW},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WINDOW, .align = WEIR_ALIGN_FIRST_REQUEST},
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = WINDOW},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WINDOW},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100000, .window_ns = WINDOW},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WINDOW, .buckets = 10},
};

/* At once, without a request in between, a refund undoes the take. */
TEST(immediate_refund_undoes_the_take)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_segment *s = make();
        weir_limit limit = limit_of(kinds[i]);
        take(s, &limit, 2, 10);
        weir_decision before = take(s, &limit, 0, 13);
        take(s, &limit, 3, 13);
        weir_decision after = refund(s, &limit, 3, 13);
        CHECK_EQ(after.remaining, before.remaining);
        CHECK_EQ(after.reset_after_ns, before.reset_after_ns);
        weir_segment_close(s);
    }
}

/*
 * Three units at the end of a window have expired or were refilled when, much later, another request takes everything:
 * refunding those three must not make room.
 */
TEST(refilled_units_are_not_refunded)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_segment *s = make();
        weir_limit limit = limit_of(kinds[i]);
        int failures = test_failures;
        take(s, &limit, limit.hard / 3, 99);
        CHECK_EQ(take(s, &limit, limit.hard, 500).verdict, WEIR_ALLOW);
        refund(s, &limit, limit.hard / 3, 99);
        CHECK_EQ(remaining(s, &limit, 500), 0);
        CHECK_EQ(take(s, &limit, 1, 500).verdict, WEIR_DENY);
        if (test_failures != failures)
            printf("  with algorithm %d, %d buckets\n", (int)kinds[i].algorithm, kinds[i].buckets);
        weir_segment_close(s);
    }
}

/* The window has advanced by one only, and is full of units that others took. */
TEST(window_refunds_only_units_taken_in_it)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_limit limit = limit_of(kinds[i]);
        if (limit.algorithm < WEIR_FIXED_WINDOW || limit.algorithm == WEIR_SLIDING_WINDOW_LOG ||
            limit.align == WEIR_ALIGN_FIRST_REQUEST)
            continue;
        weir_segment *s = make();
        int failures = test_failures;
        take(s, &limit, 3, 99);
        take(s, &limit, limit.hard - 3, 101);
        int64_t left = remaining(s, &limit, 101);
        CHECK_EQ(refund(s, &limit, 3, 99).verdict, WEIR_ALLOW);
        CHECK_EQ(remaining(s, &limit, 101), left);
        if (test_failures != failures)
            printf("  with algorithm %d, %d buckets\n", (int)kinds[i].algorithm, kinds[i].buckets);
        weir_segment_close(s);
    }
}

/* A refund without effect must not lose units for a request whose clock is behind, either. */
TEST(refund_without_effect_drops_no_window)
{
    weir_segment *s = make();
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WINDOW});
    take(s, &limit, 10, 99);
    refund(s, &limit, 3, 101);
    CHECK_EQ(take(s, &limit, 1, 99).verdict, WEIR_DENY);
    weir_segment_close(s);
}

/* Partly refilled, continuously: only the rest is refunded. */
TEST(bucket_refunds_units_not_yet_refilled)
{
    weir_segment *s = make();
    weir_limit limit = limit_of((weir_params){.limit = 10, .window_ns = WINDOW}); /* one in ten seconds */
    take(s, &limit, 5, 0);
    take(s, &limit, 1, 20); /* the level is 4 now */
    CHECK_EQ(refund(s, &limit, 5, 0).remaining,
             9); /* 2 of the 5 were refilled: without the take the level would be 1 */
    weir_segment_close(s);
}

/* A rolling window never has fewer units than were taken in it and not refunded. */
TEST(log_drops_no_later_unit)
{
    weir_segment *s = make();
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 4, .window_ns = WINDOW});
    take(s, &limit, 2, 0);
    take(s, &limit, 2, 50);
    CHECK_EQ(refund(s, &limit, 2, 0).remaining, 2);
    CHECK_EQ(remaining(s, &limit, 99), 2);
    CHECK_EQ(remaining(s, &limit, 101), 2); /* the two of 50 are still in the window */
    CHECK_EQ(take(s, &limit, 3, 149).verdict, WEIR_DENY);
    CHECK_EQ(remaining(s, &limit, 150), 4);

    /* Without a request in between: exactly those, and earlier ones stay. */
    take(s, &limit, 1, 200);
    take(s, &limit, 3, 250);
    CHECK_EQ(refund(s, &limit, 3, 250).reset_after_ns, 50 * WEIR_SECOND);
    CHECK_EQ(remaining(s, &limit, 299), 3);
    CHECK_EQ(remaining(s, &limit, 300), 4);
    weir_segment_close(s);
}

TEST_MAIN
