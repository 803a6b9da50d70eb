/* What the files of the queue share: the interface of a storage, the list of in-doubt puts, opening by configuration.
 */
#ifndef WEIR_QUEUE_QUEUE_INTERNAL_H
#define WEIR_QUEUE_QUEUE_INTERNAL_H

#include "config/config.h"
#include "base/log.h"
#include "queue/queue.h"

#include <pthread.h>

#define WEIR__QUEUE_NAME_MAX 255
#define WEIR__QUEUE_GROUPS   128 /* groups set aside of which one claim returns one request each */

/* ---- The interface of a storage ---- */

/* A parameter of an SQL statement, or an argument of a Redis script: a number, bytes or NULL. */
struct weir__queue_value {
    enum { WEIR__IS_NULL, WEIR__IS_NUMBER, WEIR__IS_BYTES } kind;
    int64_t number;
    weir_text bytes;
};

static inline struct weir__queue_value weir__of_number(int64_t number)
{
    return (struct weir__queue_value){.kind = WEIR__IS_NUMBER, .number = number};
}

static inline struct weir__queue_value weir__of_bytes(weir_text bytes)
{
    return (struct weir__queue_value){.kind = WEIR__IS_BYTES, .bytes = bytes};
}

/* The value of an integer or a weir_text. */
#define WEIR__V(x) _Generic((x), weir_text : weir__of_bytes, default : weir__of_number)(x)
/* An array of values and their number: two arguments of a function. */
#define WEIR__VALUES(...)                                                                                              \
    (const struct weir__queue_value[]){__VA_ARGS__},                                                                   \
        sizeof((const struct weir__queue_value[]){__VA_ARGS__}) / sizeof(struct weir__queue_value)

/* Arguments are checked and tickets made by the caller, queue.c. */
struct weir__queue_calls {
    /* At least one. The result is an error of all; else each has 0 or FULL. */
    int (*put)(struct weir__queue *queue, struct weir__queue_put **puts, size_t count);
    int (*claim)(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                 void *context);
    /* At least one ending. The result is an error of all. */
    int (*change)(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count, int64_t now_ms);
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
/* ending->why, cut to WEIR__QUEUE_WHY_MAX; empty: NULL. */
static inline weir_text weir__ending_why(const struct weir__queue_ending *ending)
{
    return (weir_text){ending->why, ending->why ? strnlen(ending->why, WEIR__QUEUE_WHY_MAX) : 0};
}
/* True if one more request of `more` bytes fits the bounds, given the present `count` and `bytes`. */
bool weir__queue_fits(const struct weir__queue_bounds *bounds, int64_t count, int64_t bytes, int64_t more);

/* Open a storage. `made` has options, name and session. */
int weir__queue_sqlite(const char *path, const struct weir__queue *made, struct weir__queue **queue, char *why);
int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why);

/* The scripts of the Redis storage, lua/queue_*.lua, in the order of the Makefile's QUEUE_LUA. */
enum weir__rq_which { WEIR__RQ_PUT, WEIR__RQ_CLAIM, WEIR__RQ_CHANGE, WEIR__RQ_EXPIRE, WEIR__RQ_LIST };

struct weir__rq_script {
    const char *text;
    char sha[41];
};

extern const struct weir__rq_script weir__rq_scripts[];

/*
 * Opens the queue of a weir.yaml. `name` as in struct weir__queue_options; the log must outlive the handle. 0, or an
 * error with details in `why` (WEIR__QUEUE_SOURCE_TEXT bytes).
 */
int weir__queue_open_configured(const struct weir__config *config, const char *name, const struct weir__logger *log,
                                struct weir__queue **queue, char *why);

/* A time for JSON; NULL: it is 0, and json_pack leaves it out ("o*") or writes null ("o?"). */
struct json_t *weir__time_json(int64_t ms);

/* ---- In-doubt puts (in_doubt.c) ---- */

/*
 * Tickets of puts whose reply from Redis was lost. Their clients were denied, so the requests must be cancelled, and
 * not delivered meanwhile, by no handle of the process. Thread-safe. Times are monotonic.
 */
#define WEIR__IN_DOUBT_MAX     2048             /* a further one replaces the oldest */
#define WEIR__IN_DOUBT_LATE_MS (20 * 60 * 1000) /* a put may still arrive at the server so late */

struct weir__in_doubt_put {
    char ticket[WEIR__TICKET_LEN + 1];
    int64_t until_ms; /* 0: to be cancelled. Else resolved; not delivered until then, in case that it arrives late */
};

struct weir__in_doubt {
    pthread_mutex_t lock;
    size_t count;
    struct weir__in_doubt_put list[WEIR__IN_DOUBT_MAX];
};

extern struct weir__in_doubt weir__in_doubt_puts; /* of all handles */

void weir__in_doubt_add(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
bool weir__in_doubt_has(struct weir__in_doubt *all, const char *ticket);
/* The put was cancelled, or had not arrived. */
void weir__in_doubt_resolve(struct weir__in_doubt *all, const char *ticket, int64_t now_ms);
/* Copies up to `max` tickets to be cancelled, after the first `skip`; returns their number. */
size_t weir__in_doubt_pending(struct weir__in_doubt *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                              size_t max);

#endif
