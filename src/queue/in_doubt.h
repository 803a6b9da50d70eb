/*
 * Tickets of puts that Redis may have carried out without an answer: their clients were denied, so they are to be
 * cancelled, and not delivered meanwhile. Handles of one process share such a list, from any thread.
 */
#ifndef WEIR_QUEUE_IN_DOUBT_H
#define WEIR_QUEUE_IN_DOUBT_H

#include "queue/queue.h"

#include <pthread.h>

#define WEIR__WITHDRAWN_MAX 2048             /* of more, the oldest are forgotten */
#define WEIR__WITHDRAWN_MS  (20 * 60 * 1000) /* for how long a network may still bring what was sent */

struct weir__withdrawn_one {
    char ticket[WEIR__TICKET_LEN + 1];
    /* 0: to be cancelled. Else it was, or was not there, and may come late: it is not delivered until then. */
    int64_t until_ms;
};

struct weir__withdrawn {
    pthread_mutex_t lock;
    size_t count, open; /* of all; of those that are to be cancelled */
    struct weir__withdrawn_one list[WEIR__WITHDRAWN_MAX];
};

#define WEIR__WITHDRAWN_INIT                                                                                           \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                                              \
    }

/* Times are the monotonic clock's. */
void weir__withdrawn_add(struct weir__withdrawn *all, const char *ticket, int64_t now_ms);
bool weir__withdrawn_has(struct weir__withdrawn *all, const char *ticket);
/* It is cancelled, or was not there. */
void weir__withdrawn_done(struct weir__withdrawn *all, const char *ticket, int64_t now_ms);
/* Copies up to `max` of those that are to be cancelled, but for the first `skip`; how many. */
size_t weir__withdrawn_open(struct weir__withdrawn *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                            size_t max);

#endif
