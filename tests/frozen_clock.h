/*
 * The clocks that the library reads stand still, and advance when the test advances them: the linker replaces
 * clock_gettime, by a line in the Makefile.
 */
#ifndef WEIR_TESTS_FROZEN_CLOCK_H
#define WEIR_TESTS_FROZEN_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static int64_t frozen_ns; /* how far the clocks have advanced */

int __wrap_clock_gettime(clockid_t clock, struct timespec *at);
int __real_clock_gettime(clockid_t clock, struct timespec *at);

int __wrap_clock_gettime(clockid_t clock, struct timespec *at)
{
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!wall && clock != CLOCK_BOOTTIME)
        return __real_clock_gettime(clock, at);
    /* Not at a boundary of any unit, and different parts of a second for the two clocks. */
    int64_t ns = (wall ? INT64_C(1700000000400000000) : INT64_C(5000700000000)) + frozen_ns;
    *at = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

#endif
