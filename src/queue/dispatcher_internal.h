/* Between the files of the dispatcher: what it is made of. */
#ifndef WEIR_QUEUE_DISPATCHER_INTERNAL_H
#define WEIR_QUEUE_DISPATCHER_INTERNAL_H

#include "queue/dispatcher.h"
#include "queue/dispatcher_stats.h"
#include "queue/retry_policy.h"
#include "queue/delivery.h"

#include <pthread.h>

enum {
    /* Deliveries, each on a connection of its own. One rule has half of them at most: docs/queue.md, Delivery. */
    WEIR__DISPATCHER_DELIVERIES = 64,
    WEIR__DISPATCHER_IDLE_MS = 500,    /* between two looks at an empty queue; who puts something in wakes the thread */
    WEIR__DISPATCHER_BUSY_MS = 100,    /* the same while something waits */
    WEIR__DISPATCHER_SECOND_MS = 1000, /* stats, ages; and another attempt at what failed here */
    WEIR__DISPATCHER_STANDBY_MS = 1000, /* between two looks whether another agent still active */
    WEIR__DISPATCHER_PATH_MAX = 4200,
    WEIR__DISPATCHER_ASIDE_GROUPS =
        256 /* groups that are remembered at once; another in the same place takes it over */
};

/* Requests of one rule and key that the same other rules limit under the same keys, as one of those denied the first.
 */
struct weir__aside_group {
    uint64_t group;
    int64_t until_ms; /* all of them wait until then, so that none overtakes another */
};

struct weir__dispatcher {
    const struct weir__config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__delivery_target to;
    char name[WEIR__QUEUE_SOURCE_TEXT]; /* whose claims these are */
    char stats_path[WEIR__DISPATCHER_PATH_MAX];
    int lock_fd;               /* a locked file: who has it active what is on this host. -1: another has it */
    struct weir__queue *queue; /* NULL: could not be opened yet */
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows */
    bool ending, woken;
    bool joined; /* its thread was; for who stops it */
    uint64_t accepted, refused;

    /* The thread's own. */
    struct weir__delivery delivery[WEIR__DISPATCHER_DELIVERIES];
    bool ended; /* some of them, since the queue was told last */
    struct weir__rule_breakers breakers;
    struct weir__aside_group aside_groups[WEIR__DISPATCHER_ASIDE_GROUPS];
    struct weir__dispatcher_counts counts;
    int64_t claim_ms_next;  /* when to look at the queue next */
    int64_t second_ms_next; /* the same for what cannot be done every round */
    int64_t waiting;
    int last_error;         /* of the queue: the last that was told */
    bool removed;           /* its file was: another is to be opened */
    uint64_t dead_unlogged; /* since the last line about them */
    char dead_why[WEIR__QUEUE_WHY_MAX + 1];
};

int64_t weir__dispatcher_clock_ms(void);
/* What is wrong with the queue, or 0; told once for each change. */
void weir__dispatcher_report(struct weir__dispatcher *dispatcher, int error, const char *why);

/* Takes as much as there is room for out of the queue, and asks for each whether it may go. */
void weir__dispatcher_claim(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Sends what may go by now, and renews slots of requests in flight. Returns when there is more to do. */
int64_t weir__dispatcher_poll_timers(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Goes on with all transfers, and sees to those that are over. */
void weir__dispatcher_receive(struct weir__dispatcher *dispatcher);
/* Tells the queue what could not be told before. */
void weir__dispatcher_commit(struct weir__dispatcher *dispatcher);
/* Everything that is still under way waits in the queue again. */
void weir__dispatcher_requeue_all(struct weir__dispatcher *dispatcher);
/* Lets go of the connections and the queue. */
void weir__dispatcher_close(struct weir__dispatcher *dispatcher);

#endif
