/* The drain's clock, by itself: a test has one of its own, and a minute of it need not last a minute. */
#include "base/clock.h"
#include "queue/dispatcher_internal.h"

int64_t weir__drain_clock_ms(void)
{
    return weir__wall_ms();
}
