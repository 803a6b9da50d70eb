/*
 * Measures elapsed time for tests with an upper bound. A busy machine, or one that stalls for a second, must not fail
 * them: so a thread of the program counts short steps, and a step counts the same however long it really took.
 */
#ifndef WEIR_TESTS_AWAKE_H
#define WEIR_TESTS_AWAKE_H

#include "test.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define AWAKE_STEP_MS 10

static uint64_t awake_steps;

static void *awake_count(void *unused)
{
    (void)unused;
    for (;;) {
        nanosleep(&(struct timespec){0, AWAKE_STEP_MS * 1000000}, NULL);
        __atomic_fetch_add(&awake_steps, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void awake_begin(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, awake_count, NULL), 0);
    pthread_detach(thread);
}

/* Seconds since the first call, without those in which the machine stalled. Not in a forked process. */
static inline double awake_seconds(void)
{
    static pthread_once_t begun = PTHREAD_ONCE_INIT;
    pthread_once(&begun, awake_begin);
    return (double)__atomic_load_n(&awake_steps, __ATOMIC_RELAXED) * AWAKE_STEP_MS / 1000;
}

#endif
