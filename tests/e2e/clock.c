/* Preloaded into a server: its time of day is CLOCK_AHEAD seconds ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*real)(struct timeval *, void *);
    static long ahead;
    if (!real) {
        const char *seconds = getenv("CLOCK_AHEAD");
        ahead = seconds ? atol(seconds) : 0;
        real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    }
    int error = real(now, zone);
    now->tv_sec += ahead;
    return error;
}
