/* What the files of the queue share: a storage is one set of calls. */
#ifndef WEIR_QUEUE_QUEUE_INTERNAL_H
#define WEIR_QUEUE_QUEUE_INTERNAL_H

#include "queue/queue.h"

#define WEIR__QUEUE_NAME_MAX 255

/* A change of one request. */
enum weir__transition_kind {
    WEIR__TRANSITION_DELIVERED,
    WEIR__TRANSITION_RETRY,
    WEIR__TRANSITION_DEAD,
    WEIR__TRANSITION_CANCEL,
    WEIR__TRANSITION_REQUEUE
};

struct weir__transition {
    enum weir__transition_kind kind;
    const char *ticket;
    int64_t now_ms, due_ms;
    weir_text why;
    int status;
    bool counts;
    uint64_t aside; /* as in struct weir__queue_ending */
    int error;      /* out: its own */
};

#define WEIR__QUEUE_CHANGES 64  /* at once */
#define WEIR__QUEUE_GROUPS  128 /* of requests aside, of which one claim brings back one each */

struct weir__slot_claim {
    int64_t now_ms, claim_ms;
    int64_t ahead_ms; /* what is due after this was meant by a clock that has been set back since */
    struct weir__claim_budget room;
};

/* The arguments are checked already, tickets made. */
struct weir__queue_calls {
    /* Items whose error is not 0 yet are left out. */
    int (*put)(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
               int *errors, size_t count);
    int (*claim)(struct weir__queue *queue, const struct weir__slot_claim *claim, weir__deferred_visit *visit,
                 void *context);
    /* WEIR__QUEUE_CHANGES at most. An error is that of all. */
    int (*change)(struct weir__queue *queue, struct weir__transition *changes, size_t count);
    int (*find)(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);
    int (*list)(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                void *context);
    int (*expire)(struct weir__queue *queue, int64_t now_ms);
    size_t (*cancel_in_doubt)(struct weir__queue *queue); /* NULL: each put is answered */
    int (*stats)(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);
    void (*close)(struct weir__queue *queue);
};

struct weir__queue {
    const struct weir__queue_calls *calls;
    struct weir__queue_options options; /* with the defaults; without `url` */
    char name[WEIR__QUEUE_NAME_MAX + 1];
    uint64_t session; /* of this handle: claims are its own */
    char why[WEIR__QUEUE_SOURCE_TEXT];
};

void weir__queue_set_why(struct weir__queue *queue, const char *why);
int64_t weir__queue_now(const struct weir__queue *queue);

/* `made` has options, name and session; these set the calls, and the rest that is theirs. */
int weir__queue_sqlite(const char *path, const struct weir__queue *made, struct weir__queue **queue, char *why);
int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why);

#endif
