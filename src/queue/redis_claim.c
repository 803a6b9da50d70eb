/* The dispatcher's calls in Redis: claims, transitions, cancelling in-doubt puts, expiry. */
#include "base/clock.h"
#include "queue/redis.h"

#define CLAIM_CHUNK  128       /* requests of one script call, which blocks the server */
#define CLAIM_BYTES  (3 << 20) /* of one reply with more than one request */
#define EXPIRE_CHUNK 100

struct claim {
    weir__deferred_visit *visit;
    void *context;
    int found; /* or an error */
    struct weir__in_doubt *in_doubt;
    char (*taken)[WEIR__TICKET_LEN + 1]; /* claimed, but in doubt */
    size_t taken_count;
};

static int read_claim(struct weir__store_request *request, const redisReply *reply)
{
    struct claim *claim = weir__rq_context(request);
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
        if (claim->taken_count < CLAIM_CHUNK && weir__in_doubt_has(claim->in_doubt, item.ticket)) {
            memcpy(claim->taken[claim->taken_count++], item.ticket, sizeof item.ticket);
            continue;
        }
        (void)claim->visit(claim->context, &item);
        claim->found++;
    }
    return 0;
}

/* `groups`: how many groups set aside return one request each. */
static int claim_some(struct weir__rq *q, const struct weir__claim_request *wanted, size_t max, int64_t groups,
                      struct claim *claim)
{
    struct weir__rq_call call;
    weir__rq_begin(q, &call, WEIR__RQ_CLAIM, 11 + 2 * wanted->room.in_flight_count);
    WEIR__RQ_NUMBERS(&call, wanted->now_ms, wanted->claim_ms, (int64_t)max, CLAIM_BYTES);
    weir__rq_text(&call, weir__text_of(q->queue.name));
    WEIR__RQ_NUMBERS(&call, (int64_t)q->queue.session, q->queue.options.lease_ms, !q->claimed, wanted->ahead_ms,
                     wanted->room.fair, groups);
    for (size_t i = 0; i < wanted->room.in_flight_count; i++) {
        weir__rq_text(&call, wanted->room.in_flight[i].rule);
        WEIR__RQ_NUMBERS(&call, (int64_t)wanted->room.in_flight[i].count);
    }
    claim->found = 0;
    claim->taken_count = 0;
    int error = weir__rq_call_script(q, &call, read_claim, claim);
    q->has_lease = !error && claim->found >= 0;
    q->claimed |= q->has_lease;
    return error ? error : claim->found;
}

/* Cancels claimed requests that are in doubt. If that fails, their claims expire. */
static void cancel_taken(struct weir__rq *q, const struct claim *claim)
{
    for (size_t i = 0; i < claim->taken_count; i++) {
        const char *ticket = claim->taken[i];
        struct weir__transition changes[2] = {{.kind = WEIR__TRANSITION_RETRY, .ticket = ticket},
                                              {.kind = WEIR__TRANSITION_CANCEL, .ticket = ticket}};
        changes[1].now_ms = weir__queue_now(&q->queue);
        if (weir__rq_change(&q->queue, changes, 2))
            return;
        weir__in_doubt_resolve(q->in_doubt, ticket, weir__monotonic_us() / 1000);
    }
}

int weir__rq_claim(struct weir__queue *queue, const struct weir__claim_request *wanted, weir__deferred_visit *visit,
                   void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    char taken[CLAIM_CHUNK][WEIR__TICKET_LEN + 1];
    struct claim claim = {.visit = visit, .context = context, .in_doubt = q->in_doubt, .taken = taken};
    int all = 0;
    bool first = true;
    for (size_t left = wanted->room.free; left > 0;) {
        int found =
            claim_some(q, wanted, left < CLAIM_CHUNK ? left : CLAIM_CHUNK, first ? WEIR__QUEUE_GROUPS : 0, &claim);
        first = false;
        cancel_taken(q, &claim);
        if (found < 0)
            return all > 0 ? all : found; /* those visited are claimed */
        all += found;
        if (found == 0 || wanted->room.fair)
            break; /* the counts by rule have changed: the caller must claim again */
        left -= (size_t)found < left ? (size_t)found : left;
    }
    return all;
}

void weir__rq_release_lease(struct weir__rq *q)
{
    struct claim claim = {0};
    (void)claim_some(q, &(struct weir__claim_request){0}, 0, 0, &claim);
}

/* ---- Transitions ---- */

static int read_number(struct weir__store_request *request, const redisReply *reply)
{
    int *number = weir__rq_context(request);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < INT32_MIN || reply->integer > INT32_MAX)
        return WEIR_ESTOREGARBAGE;
    *number = (int)reply->integer;
    return 0;
}

static void add_change(struct weir__rq *q, struct weir__rq_call *call, struct weir__transition *change)
{
    weir__rq_begin(q, call, WEIR__RQ_CHANGE, 11);
    WEIR__RQ_NUMBERS(call, (int64_t)change->kind);
    weir__rq_text(call, weir__text_of(change->ticket));
    WEIR__RQ_NUMBERS(call, change->now_ms, change->due_ms);
    weir__rq_text(call, change->why);
    WEIR__RQ_NUMBERS(call, change->status, change->counts, (int64_t)q->queue.session, q->queue.options.bounds.max,
                     q->queue.options.bounds.max_bytes, (int64_t)change->aside);
    call->context = &change->error;
}

int weir__rq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call calls[WEIR__QUEUE_CHANGES];
    int errors[WEIR__QUEUE_CHANGES];
    for (size_t i = 0; i < count; i++)
        add_change(q, &calls[i], &changes[i]);
    weir__rq_call_scripts(q, calls, errors, count, read_number);
    for (size_t i = 0; i < count; i++)
        if (errors[i])
            return errors[i];
    return 0;
}

/* ---- In-doubt puts ---- */

static int copy_state(void *context, const struct weir__deferred *item)
{
    *(enum weir__deferred_state *)context = item->state;
    return 0;
}

/* True if the request is under way: it may wait again soon. */
static bool may_wait_again(struct weir__queue *queue, const char *ticket)
{
    enum weir__deferred_state state = WEIR__UNDER_WAY;
    int error = weir__rq_find(queue, ticket, copy_state, &state);
    return error != WEIR__QUEUE_GONE && state == WEIR__UNDER_WAY;
}

size_t weir__rq_cancel_in_doubt(struct weir__queue *queue)
{
    struct weir__rq *q = weir__rq_of(queue);
    char tickets[WEIR__QUEUE_CHANGES][WEIR__TICKET_LEN + 1];
    struct weir__transition changes[WEIR__QUEUE_CHANGES];
    size_t left = 0, count;
    while ((count = weir__in_doubt_pending(q->in_doubt, left, tickets, WEIR__QUEUE_CHANGES)) > 0) {
        for (size_t i = 0; i < count; i++)
            changes[i] = (struct weir__transition){
                .kind = WEIR__TRANSITION_CANCEL, .ticket = tickets[i], .now_ms = weir__queue_now(queue)};
        if (weir__rq_change(queue, changes, count))
            return left + count;
        for (size_t i = 0; i < count; i++) {
            if (changes[i].error == WEIR__QUEUE_STATE && may_wait_again(queue, tickets[i]))
                left++;
            else
                weir__in_doubt_resolve(q->in_doubt, tickets[i], weir__monotonic_us() / 1000);
        }
    }
    return left;
}

/* ---- Expiry ---- */

static int expire_some(struct weir__rq *q, int64_t now_ms)
{
    const struct weir__queue_options *options = &q->queue.options;
    struct weir__rq_call call;
    int done = 0;
    weir__rq_begin(q, &call, WEIR__RQ_EXPIRE, 7);
    WEIR__RQ_NUMBERS(&call, now_ms, EXPIRE_CHUNK, now_ms - options->keep_ms, now_ms - options->dead_ms,
                     options->keep_max, options->dead_max, options->bounds.max_bytes);
    int error = weir__rq_call_script(q, &call, read_number, &done);
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
