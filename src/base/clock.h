/* Reading the system's clocks, and deadlines for condition variables by the monotonic clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds by the given clock; since boot or since 1970. */
static inline int64_t weir__clock_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t weir__monotonic_us(void)
{
    return weir__clock_ns(CLOCK_MONOTONIC) / 1000;
}

static inline int64_t weir__monotonic_ms(void)
{
    return weir__clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* Since 1970. */
static inline int64_t weir__wall_ms(void)
{
    return weir__clock_ns(CLOCK_REALTIME) / 1000000;
}

/* Monotonic, at the resolution of the kernel's tick (1 to 10 ms); cheaper to read than the others. */
static inline uint64_t weir__coarse_ms(void)
{
    return (uint64_t)weir__clock_ns(CLOCK_MONOTONIC_COARSE) / 1000000;
}

/* ---- Deadlines ---- */

/* Initializes a condition variable whose pthread_cond_timedwait takes a weir__deadline. */
static inline void weir__deadline_cond(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* `us` microseconds from now, by the monotonic clock. */
static inline struct timespec weir__deadline(int64_t us)
{
    int64_t until = weir__clock_ns(CLOCK_MONOTONIC) + us * 1000;
    return (struct timespec){(time_t)(until / 1000000000), (long)(until % 1000000000)};
}

#endif
