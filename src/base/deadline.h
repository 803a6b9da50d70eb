/* Waiting with a condition variable until a deadline, by the monotonic clock: one that is set changes no wait. */
#ifndef WEIR_BASE_DEADLINE_H
#define WEIR_BASE_DEADLINE_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* A condition whose pthread_cond_timedwait takes a weir__deadline. */
static inline void weir__deadline_cond(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* So many microseconds from now. */
static inline struct timespec weir__deadline(int64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + us % 1000000 * 1000;
    until.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    return until;
}

#endif
