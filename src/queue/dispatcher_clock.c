/* The dispatcher's wall clock, in a file of its own so that a test can link another one. */
#include "base/clock.h"
#include "queue/dispatcher_internal.h"

int64_t weir__dispatcher_clock_ms(void)
{
    return weir__wall_ms();
}
