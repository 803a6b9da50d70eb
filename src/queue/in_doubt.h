/*
 * Tickets of puts that Redis may have carried out without an answer: their clients were denied, so they are to be
 * cancelled, and not delivered meanwhile. Handles of one process share such a list, from any thread.
 */
#ifndef WEIR_QUEUE_IN_DOUBT_H
#define WEIR_QUEUE_IN_DOUBT_H

#include "queue/queue.h"

#include <pthread.h>

#define WEIR__IN_DOUBT_MAX     2048             /* of more, the oldest are forgotten */
#define WEIR__IN_DOUBT_LATE_MS (20 * 60 * 1000) /* for how long a network may still bring what was sent */

struct weir__in_doubt_put {
    char ticket[WEIR__TICKET_LEN + 1];
    /* 0: to be cancelled. Else it was, or was not there, and may come late: it is not delivered until then. */
    int64_t until_ms;
};

struct weir__in_doubt {
    pthread_mutex_t lock;
    size_t count, open; /* of all; of those that are to be cancelled */
    struct weir__in_doubt_put list[WEIR__IN_DOUBT_MAX];
};

#define WEIR__IN_DOUBT_INIT                                                                                            \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                                              \
    }

/* Times are the monotonic clock's. */
void weir__in_doubt_add(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
bool weir__in_doubt_has(struct weir__in_doubt *all, const char *ticket);
/* It is cancelled, or was not there. */
void weir__in_doubt_resolve(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
/* Copies up to `max` of those that are to be cancelled, but for the first `skip`; how many. */
size_t weir__in_doubt_pending(struct weir__in_doubt *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                              size_t max);

#endif
