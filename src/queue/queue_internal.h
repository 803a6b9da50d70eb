/* What the files of the queue share: the interface of a storage, the list of in-doubt puts, opening by configuration.
 */
#ifndef WEIR_QUEUE_QUEUE_INTERNAL_H
#define WEIR_QUEUE_QUEUE_INTERNAL_H

#include "config/config.h"
#include "base/log.h"
#include "queue/queue.h"

#include <pthread.h>

#define WEIR__QUEUE_NAME_MAX 255
#define WEIR__QUEUE_CHANGES  64  /* transitions of one call */
#define WEIR__QUEUE_GROUPS   128 /* groups set aside of which one claim returns one request each */

/* ---- The interface of a storage ---- */

/* The first three are enum weir__queue_end_kind. Redis: an argument of lua/queue_change.lua. */
enum weir__transition_kind {
    WEIR__TRANSITION_DELIVERED = WEIR__ENDED_DELIVERED,
    WEIR__TRANSITION_RETRY = WEIR__ENDED_RETRY,
    WEIR__TRANSITION_DEAD = WEIR__ENDED_DEAD,
    WEIR__TRANSITION_CANCEL,
    WEIR__TRANSITION_REQUEUE
};

struct weir__transition {
    enum weir__transition_kind kind;
    const char *ticket;
    int64_t now_ms, due_ms;
    weir_text why;
    int status;
    bool counts;    /* as an attempt */
    uint64_t aside; /* as in struct weir__queue_ending */
    int error;      /* out: its own */
};

struct weir__claim_request {
    int64_t now_ms, claim_ms;
    int64_t ahead_ms; /* a later due_ms counts as due: it was set before the clock was set back */
    struct weir__claim_budget room;
};

/* Arguments are checked and tickets made by the caller, queue.c. */
struct weir__queue_calls {
    /* Skips items whose error is set. */
    int (*put)(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
               int *errors, size_t count);
    int (*claim)(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                 void *context);
    /* At most WEIR__QUEUE_CHANGES. The result is an error of all. */
    int (*change)(struct weir__queue *queue, struct weir__transition *changes, size_t count);
    int (*find)(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);
    int (*list)(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                void *context);
    int (*expire)(struct weir__queue *queue, int64_t now_ms);
    size_t (*cancel_in_doubt)(struct weir__queue *queue); /* NULL: no put is ever in doubt */
    int (*stats)(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);
    void (*close)(struct weir__queue *queue);
};

/* The common part of a handle. */
struct weir__queue {
    const struct weir__queue_calls *calls;
    struct weir__queue_options options; /* with the defaults; without `url` */
    char name[WEIR__QUEUE_NAME_MAX + 1];
    uint64_t session; /* random, of this handle: identifies its claims */
    char why[WEIR__QUEUE_SOURCE_TEXT];
};

void weir__queue_set_why(struct weir__queue *queue, const char *why);
int64_t weir__queue_now(const struct weir__queue *queue);
/* The ticket of 16 random bytes. */
void weir__ticket_format(weir_text bits, char ticket[WEIR__TICKET_LEN + 1]);
/* True if one more request of `more` bytes fits the bounds, given the present `count` and `bytes`. */
bool weir__queue_fits(const struct weir__queue_bounds *bounds, int64_t count, int64_t bytes, int64_t more);

/* Open a storage. `made` has options, name and session. */
int weir__queue_sqlite(const char *path, const struct weir__queue *made, struct weir__queue **queue, char *why);
int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why);

/*
 * Opens the queue of a weir.yaml. `name` as in struct weir__queue_options; the log must outlive the handle. 0, or an
 * error with details in `why` (WEIR__QUEUE_SOURCE_TEXT bytes).
 */
int weir__queue_open_configured(const struct weir__config *config, const char *name, const struct weir__logger *log,
                                struct weir__queue **queue, char *why);

/* ---- In-doubt puts (redis.c) ---- */

/*
 * Tickets of puts whose reply from Redis was lost. Their clients were denied, so the requests must be cancelled, and
 * not delivered meanwhile. Shared by the handles of a process; thread-safe. Times are monotonic.
 */
#define WEIR__IN_DOUBT_MAX     2048             /* a further one replaces the oldest */
#define WEIR__IN_DOUBT_LATE_MS (20 * 60 * 1000) /* a put may still arrive at the server so late */

struct weir__in_doubt_put {
    char ticket[WEIR__TICKET_LEN + 1];
    int64_t until_ms; /* 0: to be cancelled. Else resolved; not delivered until then, in case that it arrives late */
};

struct weir__in_doubt {
    pthread_mutex_t lock;
    size_t count, open; /* all; those to be cancelled */
    struct weir__in_doubt_put list[WEIR__IN_DOUBT_MAX];
};

void weir__in_doubt_add(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
bool weir__in_doubt_has(struct weir__in_doubt *all, const char *ticket);
/* The put was cancelled, or had not arrived. */
void weir__in_doubt_resolve(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
/* Copies up to `max` tickets to be cancelled, after the first `skip`; returns their number. */
size_t weir__in_doubt_pending(struct weir__in_doubt *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                              size_t max);

#endif
