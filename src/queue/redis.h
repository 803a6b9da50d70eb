/*
 * What the files of the Redis storage share: redis.c (open, script calls, put, in-doubt puts),
 * redis_claim.c (claims, transitions, expiry), redis_list.c. The scripts are lua/queue*.lua; lua/queue.lua describes
 * the keys.
 */
#ifndef WEIR_QUEUE_REDIS_H
#define WEIR_QUEUE_REDIS_H

#include "remote/client.h"
#include "queue/queue_internal.h"
#include "remote/script.h"

#include <hiredis/hiredis.h>

enum weir__rq_which { WEIR__RQ_PUT, WEIR__RQ_CLAIM, WEIR__RQ_CHANGE, WEIR__RQ_EXPIRE, WEIR__RQ_LIST };

struct weir__rq_script {
    const char *text;
    char sha[41];
};

extern const struct weir__rq_script weir__rq_scripts[];

struct weir__rq {
    struct weir__queue queue;
    struct weir__store_options store;
    struct weir__blocking_client *link;
    char base[96];
    bool claimed;                         /* this handle has claimed: earlier claims under its name have ended */
    bool has_lease;                       /* it has the lease, as far as it knows */
    struct weir__in_doubt own, *in_doubt; /* the options' or its own */
};

/* A call of a script. */
struct weir__rq_call {
    struct weir__raw_command raw;
    struct weir__store_request request;
    struct weir__buffer command;
    void *context; /* for `read` */
};

typedef int weir__rq_read(struct weir__store_request *request, const redisReply *reply);

/* Begins a call with so many arguments, which the caller adds next. */
void weir__rq_begin(struct weir__rq *q, struct weir__rq_call *call, enum weir__rq_which which, size_t arguments);
void weir__rq_text(struct weir__rq_call *call, weir_text text);
void weir__rq_numbers(struct weir__rq_call *call, const int64_t *numbers, size_t count);
#define WEIR__RQ_NUMBERS(call, ...)                                                                                    \
    weir__rq_numbers((call), (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
/* Sends the call and waits; `read` parses the reply, with call->context. 0, or an error. Frees the command. */
int weir__rq_call_script(struct weir__rq *q, struct weir__rq_call *call, weir__rq_read *read, void *context);
/* Pipelines several calls, each with its error in `errors`. */
void weir__rq_call_scripts(struct weir__rq *q, struct weir__rq_call *calls, int *errors, size_t count,
                           weir__rq_read *read);

static inline void *weir__rq_context(const struct weir__store_request *request)
{
    return ((const struct weir__rq_call *)request->owner)->context;
}

/* Parses a request {ticket, payload, fields}. False: malformed. */
bool weir__rq_item(const redisReply *reply, struct weir__deferred *item);

/* The calls. */
int weir__rq_claim(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                   void *context);
size_t weir__rq_cancel_in_doubt(struct weir__queue *queue);
/* Gives up the lease. */
void weir__rq_release_lease(struct weir__rq *q);
int weir__rq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count);
int weir__rq_expire(struct weir__queue *queue, int64_t now_ms);
int weir__rq_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);
int weir__rq_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                  void *context);
int weir__rq_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);

static inline struct weir__rq *weir__rq_of(struct weir__queue *queue)
{
    return (struct weir__rq *)(void *)queue;
}

#endif
