/* The login throttle for wrong passwords and tokens: how long checks and replies are delayed. */
#include "../../test.h"

#include <weir/weir.h>

#define MS 1000000

static weir_segment *opened(void)
{
    weir_segment_options how = {.size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment = NULL;
    CHECK_EQ(weir_segment_open(&how, &segment), 0);
    return segment;
}

static int64_t wait_ms(weir_segment *segment, const char *peer, int64_t s)
{
    weir_time now = {.mono_ns = (1000 + s) * WEIR_SECOND, .wall_ns = (1700000000 + s) * WEIR_SECOND};
    return weir_auth_failure(segment, peer, 4, now) / MS;
}

static int64_t check_ms(weir_segment *segment, const char *peer, int64_t s)
{
    weir_time now = {.mono_ns = (1000 + s) * WEIR_SECOND, .wall_ns = (1700000000 + s) * WEIR_SECOND};
    return weir_auth_delay(segment, peer, 4, now) / MS;
}

TEST(checks_are_delayed_after_five_failures)
{
    weir_segment *segment = opened();
    static const int64_t grows[] = {0, 0, 0, 0, 0, 0, 250, 500, 1000, 2000, 2000, 2000, 2000, 2000};
    for (size_t i = 0; i < sizeof grows / sizeof *grows; i++) {
        CHECK_EQ(check_ms(segment, "peer", 0), grows[i]);
        CHECK_EQ(check_ms(segment, "else", 0), 0);
        CHECK(wait_ms(segment, "peer", 0) > 0);
    }
    CHECK_EQ(check_ms(segment, "peer", 60), 250); /* 12 at most, of which 6 have expired */
    CHECK_EQ(check_ms(segment, "peer", 71), 0);
    CHECK_EQ(weir_auth_delay(NULL, "a", 1, (weir_time){0, 0}), 2 * WEIR_SECOND);
    CHECK_EQ(weir_auth_delay(segment, NULL, 1, (weir_time){0, 0}), 2 * WEIR_SECOND);
    CHECK_EQ(weir_auth_delay(segment, "a", 0, (weir_time){0, 0}), 2 * WEIR_SECOND);
    weir_segment_close(segment);
}

TEST(many_peers_are_delayed_but_not_one_without_failures)
{
    weir_segment *segment = opened();
    char peer[5] = "0000";
    for (int i = 0; i < 501; i++) {
        for (int digit = 3, left = i; digit >= 0; digit--, left /= 10)
            peer[digit] = (char)('0' + left % 10);
        CHECK_EQ(check_ms(segment, peer, 0), 0);
        CHECK(wait_ms(segment, peer, 0) > 0);
        CHECK_EQ(check_ms(segment, peer, 0), i < 500 ? 0 : 2000);
    }
    CHECK_EQ(check_ms(segment, "abcd", 0), 0);
    CHECK_EQ(check_ms(segment, peer, 5), 0); /* 50 of all have expired */
    weir_segment_close(segment);
}

TEST(delays_grow_and_end_after_two_minutes)
{
    weir_segment *segment = opened();
    static const int64_t grows[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    weir_stats stats;
    for (size_t i = 0; i < sizeof grows / sizeof *grows; i++)
        CHECK_EQ(wait_ms(segment, "peer", 0), grows[i]);
    CHECK_EQ(wait_ms(segment, "else", 0), 100); /* another peer without failures */
    /* Bounded, in length and in duration: two minutes later everything has expired. */
    for (int i = 0; i < 500; i++)
        CHECK_EQ(wait_ms(segment, "peer", 1), 5000);
    CHECK_EQ(wait_ms(segment, "peer", 70), 3200); /* 12 at most, of which 6 or 7 have expired */
    CHECK_EQ(wait_ms(segment, "peer", 300), 100);
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    CHECK_EQ(stats.auth_failures, 511);
    CHECK_EQ(stats.allowed + stats.denied, 0); /* they do not count as decisions */
    weir_segment_close(segment);
}

TEST(failures_of_many_peers_delay_longer)
{
    weir_segment *segment = opened();
    char peer[5] = "0000";
    int64_t last = 0;
    for (int i = 0; i < 1500; i++) {
        for (int digit = 3, left = i; digit >= 0; digit--, left /= 10)
            peer[digit] = (char)('0' + left % 10);
        int64_t wait = wait_ms(segment, peer, 0);
        CHECK(wait >= last && wait <= 5000);
        last = wait;
    }
    CHECK_EQ(last, 5000);
    CHECK_EQ(wait_ms(segment, "abcd", 200), 100);
    weir_segment_close(segment);
}

TEST(failure_to_count_delays_longest)
{
    weir_segment *segment = opened();
    CHECK_EQ(weir_auth_failure(NULL, "a", 1, (weir_time){0, 0}), 5 * WEIR_SECOND);
    CHECK_EQ(weir_auth_failure(segment, NULL, 1, (weir_time){0, 0}), 5 * WEIR_SECOND);
    CHECK_EQ(weir_auth_failure(segment, "a", 0, (weir_time){0, 0}), 5 * WEIR_SECOND);
    CHECK_EQ(weir_auth_failure(segment, "a", 1, (weir_time){-1, 0}), 5 * WEIR_SECOND);
    weir_segment_close(segment);
}

TEST_MAIN
