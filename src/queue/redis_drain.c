/* Draining the queue in Redis: claims, what becomes of them, and what time does. */
#include "queue/redis.h"

#define CLAIM_CHUNK  128       /* heads of one script: the server does nothing else meanwhile */
#define CLAIM_BYTES  (3 << 20) /* of one answer, if there is more than one request in it */
#define EXPIRE_CHUNK 100

struct claim {
    weir__deferred_visit *visit;
    void *context;
    int found; /* or an error */
};

static int read_claim(struct weir__question *question, const redisReply *reply)
{
    struct claim *claim = weir__rq_context(question);
    struct weir__deferred item;
    if (reply->type == REDIS_REPLY_INTEGER) {
        claim->found = WEIR__QUEUE_STANDBY;
        return 0;
    }
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < reply->elements; i++) {
        if (!weir__rq_item(reply->element[i], &item))
            return WEIR_ESTOREGARBAGE;
        (void)claim->visit(claim->context, &item);
        claim->found++;
    }
    return 0;
}

static int claim_some(struct weir__rq *q, int64_t now_ms, int64_t claim_ms, size_t max, struct claim *claim)
{
    struct weir__rq_call call;
    char session[24];
    snprintf(session, sizeof session, "%llu", (unsigned long long)q->queue.session);
    weir__rq_begin(q, &call, WEIR__RQ_CLAIM, 8);
    weir__rq_number(&call, now_ms);
    weir__rq_number(&call, claim_ms);
    weir__rq_number(&call, (int64_t)max);
    weir__rq_number(&call, CLAIM_BYTES);
    weir__rq_word(&call, q->queue.name);
    weir__rq_word(&call, session);
    weir__rq_number(&call, q->queue.options.lease_ms);
    weir__rq_word(&call, q->claimed ? "0" : "1");
    claim->found = 0;
    int error = weir__rq_ask(q, &call, read_claim, claim);
    q->drains = !error && claim->found >= 0;
    q->claimed |= q->drains;
    return error ? error : claim->found;
}

int weir__rq_claim(struct weir__queue *queue, int64_t now_ms, int64_t claim_ms, size_t max, weir__deferred_visit *visit,
                   void *context)
{
    struct claim claim = {.visit = visit, .context = context};
    int all = 0;
    for (size_t left = max; left > 0;) {
        int found = claim_some(weir__rq_of(queue), now_ms, claim_ms, left < CLAIM_CHUNK ? left : CLAIM_CHUNK, &claim);
        if (found < 0)
            return all > 0 ? all : found; /* those that were visited are claimed */
        if (found == 0)
            break;
        all += found;
        left -= (size_t)found < left ? (size_t)found : left;
    }
    return all;
}

void weir__rq_resign(struct weir__rq *q)
{
    struct claim claim = {0};
    (void)claim_some(q, 0, 0, 0, &claim);
}

/* ---- Changes ---- */

static int read_number(struct weir__question *question, const redisReply *reply)
{
    int *number = weir__rq_context(question);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < INT32_MIN || reply->integer > INT32_MAX)
        return WEIR_ESTOREGARBAGE;
    *number = (int)reply->integer;
    return 0;
}

static void add_change(struct weir__rq *q, struct weir__rq_call *call, struct weir__change *change)
{
    weir__rq_begin(q, call, WEIR__RQ_CHANGE, 10);
    weir__rq_number(call, (int64_t)change->kind);
    weir__rq_word(call, change->ticket);
    weir__rq_number(call, change->now_ms);
    weir__rq_number(call, change->due_ms);
    weir__rq_text(call, change->why);
    weir__rq_number(call, change->status);
    weir__rq_number(call, change->counts);
    weir__rq_number(call, (int64_t)q->queue.session);
    weir__rq_number(call, q->queue.options.bounds.max);
    weir__rq_number(call, q->queue.options.bounds.max_bytes);
    call->context = &change->error;
}

int weir__rq_change(struct weir__queue *queue, struct weir__change *changes, size_t count)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call calls[WEIR__QUEUE_CHANGES];
    int errors[WEIR__QUEUE_CHANGES];
    for (size_t i = 0; i < count; i++)
        add_change(q, &calls[i], &changes[i]);
    weir__rq_ask_all(q, calls, errors, count, read_number);
    for (size_t i = 0; i < count; i++)
        if (errors[i])
            return errors[i];
    return 0;
}

/* ---- Age ---- */

static int expire_some(struct weir__rq *q, int64_t now_ms)
{
    const struct weir__queue_options *options = &q->queue.options;
    struct weir__rq_call call;
    int done = 0;
    weir__rq_begin(q, &call, WEIR__RQ_EXPIRE, 7);
    weir__rq_number(&call, now_ms);
    weir__rq_number(&call, EXPIRE_CHUNK);
    weir__rq_number(&call, now_ms - options->keep_ms);
    weir__rq_number(&call, now_ms - options->dead_ms);
    weir__rq_number(&call, options->keep_max);
    weir__rq_number(&call, options->dead_max);
    weir__rq_number(&call, options->bounds.max_bytes);
    int error = weir__rq_ask(q, &call, read_number, &done);
    return error ? error : done;
}

int weir__rq_expire(struct weir__queue *queue, int64_t now_ms)
{
    int all = 0, done = EXPIRE_CHUNK;
    while (done >= EXPIRE_CHUNK && all < WEIR__QUEUE_EXPIRE_MAX) {
        done = expire_some(weir__rq_of(queue), now_ms);
        if (done < 0)
            return done;
        all += done;
    }
    return all;
}
