/* The Redis storage. */
#include "queue/parts.h"

#include <stdio.h>

int weir__queue_redis(const char *url, const struct weir__store_options *store, const struct weir__queue *made,
                      struct weir__queue **queue, char *why)
{
    (void)url, (void)store, (void)made, (void)queue;
    snprintf(why, WEIR__QUEUE_SOURCE_TEXT, "not there yet");
    return WEIR__QUEUE_URL;
}
