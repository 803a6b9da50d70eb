/* The drain's clock, by itself: a test has one of its own, and a minute of it need not last a minute. */
#include "queue/dispatcher_internal.h"

#include <time.h>

int64_t weir__drain_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
