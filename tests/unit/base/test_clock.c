/* Clock readings and deadlines. */
#include "base/clock.h"
#include "../../test.h"

TEST(clocks_advance_in_their_units)
{
    int64_t ns = weir__clock_ns(CLOCK_MONOTONIC), us = weir__monotonic_us(), ms = weir__monotonic_ms();
    CHECK(us >= ns / 1000 && us - ns / 1000 < 1000000);
    CHECK(ms >= us / 1000 && ms - us / 1000 < 1000);
    CHECK((int64_t)weir__coarse_ms() - ms < 1000 && ms - (int64_t)weir__coarse_ms() < 1000);
    CHECK(weir__wall_ms() / 1000 - time(NULL) <= 1);
}

TEST(deadline_is_relative_to_now)
{
    int64_t before = weir__monotonic_us();
    struct timespec until = weir__deadline(2500000);
    int64_t at = (int64_t)until.tv_sec * 1000000 + until.tv_nsec / 1000;
    CHECK(at >= before + 2500000 && at < before + 3500000);
    CHECK(until.tv_nsec >= 0 && until.tv_nsec < 1000000000);
}

TEST(condition_times_out_at_its_deadline)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    weir__deadline_cond(&condition);
    int64_t before = weir__monotonic_us();
    struct timespec until = weir__deadline(20000);
    pthread_mutex_lock(&lock);
    int error;
    while ((error = pthread_cond_timedwait(&condition, &lock, &until)) == 0)
        ;
    pthread_mutex_unlock(&lock);
    CHECK(error && weir__monotonic_us() - before >= 20000);
    pthread_cond_destroy(&condition);
}

TEST_MAIN
