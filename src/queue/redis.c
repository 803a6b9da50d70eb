/*
 * The Redis storage: each call is a script (lua/queue_*.lua; lua/queue.lua describes the keys), sent through the
 * store's client. The scripts decide and count; this file packs their arguments and parses their replies.
 */
#include "base/clock.h"
#include "queue/queue_internal.h"
#include "remote/client.h"
#include "remote/script.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 64 /* pipelined */

struct weir__rq {
    struct weir__queue queue;
    struct weir__store_options store;
    struct weir__blocking_client *link;
    char base[96];  /* KEYS[1]: what all keys begin with */
    bool claimed;   /* this handle has claimed: earlier claims under its name have ended */
    bool has_lease; /* it has the lease, as far as it knows */
};

static struct weir__rq *rq_of(struct weir__queue *queue)
{
    return (struct weir__rq *)(void *)queue;
}

/* ---- Calls of scripts ---- */

struct call {
    struct weir__raw_command raw;
    struct weir__store_request request;
    struct weir__buffer command;
    void *context; /* for raw.read */
    int error;     /* out */
};

/* Parses the reply of a call. 0, or WEIR_ESTOREGARBAGE: malformed. */
typedef int reply_reader(struct weir__store_request *request, const redisReply *reply);

static void *context_of(const struct weir__store_request *request)
{
    return ((const struct call *)request->owner)->context;
}

static void add_arguments(struct call *call, const struct weir__queue_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i].kind == WEIR__IS_NUMBER)
            weir__redis_add_int(&call->command, values[i].number);
        else
            weir__redis_add_text(&call->command, values[i].bytes.data, values[i].bytes.len);
    }
}

/* Begins a call with so many arguments, which the caller adds next. */
static void begin_call(struct weir__rq *q, struct call *call, enum weir__rq_which which, size_t arguments,
                       reply_reader *read, void *context)
{
    const struct weir__rq_script *script = &weir__rq_scripts[which];
    *call = (struct call){.raw = {.slot = q->base, .script = script->text, .read = read}, .context = context};
    weir__redis_add_length(&call->command, '*', arguments + 4);
    add_arguments(call, WEIR__VALUES(WEIR__V(WEIR__TEXT("EVALSHA")), WEIR__V(weir__text_of(script->sha)), WEIR__V(1),
                                     WEIR__V(weir__text_of(q->base))));
}

static int error_of(struct weir__rq *q, const struct call *call)
{
    int error = call->request.error;
    weir__queue_set_why(&q->queue, call->raw.why[0] ? call->raw.why : weir_strerror(error));
    switch (error) {
    case WEIR_ESTOREOOM:
        return WEIR__QUEUE_SPACE;
    case WEIR_ESTOREREADONLY:
    case WEIR_ESTOREDISK:
        return WEIR__QUEUE_READONLY;
    case WEIR_ESTOREWRONGTYPE:
        return WEIR__QUEUE_BROKEN;
    default:
        return call->raw.in_doubt          ? WEIR__QUEUE_UNKNOWN
               : error == WEIR_ENOMEM      ? WEIR__QUEUE_MEMORY
               : error == WEIR_ESTOREERROR ? WEIR__QUEUE_BROKEN
                                           : WEIR__QUEUE_UNAVAILABLE;
    }
}

/* Sends at most CALLS calls in one pipeline and waits for the replies. Returns the first error. */
static int send_calls(struct weir__rq *q, struct call *calls, size_t count)
{
    struct weir__store_request *requests[CALLS] = {0};
    size_t sent = 0;
    int first = 0;
    for (struct call *call = calls; call < calls + count; call++) {
        call->raw.command = call->command.data;
        call->raw.command_len = call->command.len;
        call->request = (struct weir__store_request){
            .raw = &call->raw, .owner = call, .deadline_us = weir__monotonic_us() + q->store.deadline_us};
        if (call->command.failed)
            call->request.error = WEIR_ENOMEM;
        else
            requests[sent++] = &call->request;
    }
    (void)weir__blocking_client_request_all(q->link, requests, sent);
    for (struct call *call = calls; call < calls + count; call++) {
        call->error = call->request.error ? error_of(q, call) : 0;
        first = first ? first : call->error;
        weir__buffer_free(&call->command);
    }
    return first;
}

/* One call with all its arguments. */
static int call_script(struct weir__rq *q, enum weir__rq_which which, reply_reader *read, void *context,
                       const struct weir__queue_value *values, size_t count)
{
    struct call call;
    begin_call(q, &call, which, count, read, context);
    add_arguments(&call, values, count);
    return send_calls(q, &call, 1);
}

/* ---- Replies ---- */

static weir_text text_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? (weir_text){reply->str, (size_t)reply->len} : (weir_text){"", 0};
}

/* nil is 0. False: not a number. */
static bool number_of(const redisReply *reply, int64_t *number)
{
    char *end;
    *number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    if (reply->type != REDIS_REPLY_STRING || reply->len == 0)
        return reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_NIL;
    *number = strtoll(reply->str, &end, 10);
    return end == reply->str + reply->len;
}

/* An array of texts, then numbers. */
static bool read_array(const redisReply *reply, weir_text *texts, size_t text_count, int64_t *numbers,
                       size_t number_count)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != text_count + number_count)
        return false;
    for (size_t i = 0; i < text_count; i++)
        texts[i] = text_of(reply->element[i]);
    for (size_t i = 0; i < number_count; i++)
        if (!number_of(reply->element[text_count + i], &numbers[i]))
            return false;
    return true;
}

/* A request: item_of in lua/queue.lua. */
static bool read_item(const redisReply *reply, struct weir__deferred *item)
{
    enum { TICKET, HEADERS, BODY, RULE, KEY, METHOD, TARGET, WHY, TEXTS };
    enum { SEQUENCE, COST, ACCEPTED, DUE, EXPIRES, ENDED, ATTEMPTS, STATE, STATUS, NUMBERS };
    weir_text text[TEXTS];
    int64_t number[NUMBERS];
    if (!read_array(reply, text, TEXTS, number, NUMBERS) || text[TICKET].len != WEIR__TICKET_LEN ||
        number[SEQUENCE] <= 0 || number[STATE] < 0 || number[STATE] >= WEIR__DEFERRED_STATES)
        return false;
    *item = (struct weir__deferred){.rule = text[RULE],
                                    .key = text[KEY],
                                    .cost = number[COST],
                                    .method = text[METHOD],
                                    .target = text[TARGET],
                                    .headers = text[HEADERS],
                                    .body = text[BODY],
                                    .accepted_ms = number[ACCEPTED],
                                    .due_ms = number[DUE],
                                    .expires_ms = number[EXPIRES],
                                    .ended_ms = number[ENDED],
                                    .attempts = (int)number[ATTEMPTS],
                                    .state = (enum weir__deferred_state)number[STATE],
                                    .why = text[WHY],
                                    .last_status = (int)number[STATUS],
                                    .sequence = (uint64_t)number[SEQUENCE]};
    memcpy(item->ticket, text[TICKET].data, WEIR__TICKET_LEN);
    return true;
}

static int read_number(struct weir__store_request *request, const redisReply *reply)
{
    int *number = context_of(request);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < INT32_MIN || reply->integer > INT32_MAX)
        return WEIR_ESTOREGARBAGE;
    *number = (int)reply->integer;
    return 0;
}

/* ---- Find and list ---- */

#define LIST_BYTES (2 << 20) /* of one reply with more than one request */

struct item_reader {
    weir__deferred_visit *visit;
    void *context;
    int result;     /* the visit's, or an error */
    size_t left;    /* of a list */
    uint64_t after; /* sequence up to which the script has scanned; a call scans a bounded number */
    bool more;
};

static int read_list(struct weir__store_request *request, const redisReply *reply)
{
    struct item_reader *reader = context_of(request);
    struct weir__deferred item;
    int64_t next;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !number_of(reply->element[0], &next))
        return WEIR_ESTOREGARBAGE;
    if (next && (next < 0 || (uint64_t)next <= reader->after))
        return WEIR_ESTOREGARBAGE; /* no progress: it would never end */
    for (size_t i = 1; i < reply->elements && !reader->result && reader->left > 0; i++, reader->left--) {
        if (!read_item(reply->element[i], &item))
            return WEIR_ESTOREGARBAGE;
        reader->result = reader->visit(reader->context, &item);
    }
    reader->more = next > 0;
    reader->after = (uint64_t)next;
    return 0;
}

static int find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct item_reader reader = {.visit = visit, .context = context, .left = 1};
    int error = call_script(rq_of(queue), WEIR__RQ_LIST, read_list, &reader,
                            WEIR__VALUES(WEIR__V(WEIR__TEXT("find")), WEIR__V(weir__text_of(ticket))));
    return error ? error : reader.left ? WEIR__QUEUE_GONE : reader.result;
}

static int list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                void *context)
{
    struct item_reader reader = {
        .visit = visit, .context = context, .left = filter->limit, .after = filter->after, .more = true};
    while (reader.more && reader.left > 0 && !reader.result) {
        int error = call_script(rq_of(queue), WEIR__RQ_LIST, read_list, &reader,
                                WEIR__VALUES(WEIR__V(WEIR__TEXT("list")), WEIR__V(filter->state), WEIR__V(filter->rule),
                                             WEIR__V((int64_t)reader.after), WEIR__V((int64_t)reader.left),
                                             WEIR__V(LIST_BYTES)));
        if (error)
            return error;
    }
    return reader.result;
}

/* ---- Stats ---- */

/* Calls for one result: each skips some of the dead requests before the oldest waiting one. */
#define STATS_CALLS 10000

struct stats_reader {
    weir__queue_stats_visit *visit;
    void *context;
    int result;
    bool more; /* another call is needed */
};

static int read_stats(struct weir__store_request *request, const redisReply *reply)
{
    enum { WAITING, UNDER_WAY, DEAD, BYTES, OLDEST, NUMBERS };
    struct stats_reader *reader = context_of(request);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || reply->element[0]->type != REDIS_REPLY_INTEGER)
        return WEIR_ESTOREGARBAGE;
    reader->more = reader->more && reply->element[0]->integer != 0;
    for (size_t i = 1; i < reply->elements && !reader->result && !reader->more; i++) {
        int64_t n[NUMBERS];
        weir_text rule;
        if (!read_array(reply->element[i], &rule, 1, n, NUMBERS))
            return WEIR_ESTOREGARBAGE;
        if (n[WAITING] + n[UNDER_WAY] + n[DEAD] > 0)
            reader->result = reader->visit(reader->context, &(struct weir__queue_stats){rule, n[WAITING], n[UNDER_WAY],
                                                                                        n[DEAD], n[BYTES], n[OLDEST]});
    }
    return 0;
}

static int stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    struct stats_reader reader = {.visit = visit, .context = context, .more = true};
    int error = 0;
    for (int calls = 1; reader.more && !error; calls++) {
        reader.more = calls < STATS_CALLS; /* give up: the age of some rules stays unknown */
        error =
            call_script(rq_of(queue), WEIR__RQ_LIST, read_stats, &reader, WEIR__VALUES(WEIR__V(WEIR__TEXT("stats"))));
    }
    return error ? error : reader.result;
}

/* ---- Changes ---- */

static int change(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count, int64_t now_ms)
{
    struct weir__rq *q = rq_of(queue);
    const struct weir__queue_bounds *bounds = &queue->options.bounds;
    struct call calls[CALLS];
    int error = 0;
    for (size_t done = 0, some; done < count && !error; done += some) {
        some = count - done < CALLS ? count - done : CALLS;
        for (size_t i = 0; i < some; i++) {
            struct weir__queue_ending *ending = &endings[done + i];
            begin_call(q, &calls[i], WEIR__RQ_CHANGE, 11, read_number, &ending->error);
            add_arguments(&calls[i],
                          WEIR__VALUES(WEIR__V(ending->kind), WEIR__V(weir__text_of(ending->ticket)), WEIR__V(now_ms),
                                       WEIR__V(ending->due_ms), WEIR__V(weir__ending_why(ending)),
                                       WEIR__V(ending->status), WEIR__V(ending->attempt_counts),
                                       WEIR__V((int64_t)queue->session), WEIR__V(bounds->max),
                                       WEIR__V(bounds->max_bytes), WEIR__V((int64_t)ending->aside)));
        }
        error = send_calls(q, calls, some);
    }
    return error;
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
    int error = find(queue, ticket, copy_state, &state);
    return error != WEIR__QUEUE_GONE && state == WEIR__UNDER_WAY;
}

static size_t cancel_in_doubt(struct weir__queue *queue)
{
    char tickets[CALLS][WEIR__TICKET_LEN + 1];
    struct weir__queue_ending endings[CALLS];
    size_t left = 0, count;
    while ((count = weir__in_doubt_pending(&weir__in_doubt_puts, left, tickets, CALLS)) > 0) {
        for (size_t i = 0; i < count; i++)
            endings[i] = (struct weir__queue_ending){.kind = WEIR__ENDED_CANCELLED, .ticket = tickets[i]};
        if (change(queue, endings, count, weir__queue_now(queue)))
            return left + count;
        for (size_t i = 0; i < count; i++) {
            if (endings[i].error == WEIR__QUEUE_STATE && may_wait_again(queue, tickets[i]))
                left++;
            else
                weir__in_doubt_resolve(&weir__in_doubt_puts, tickets[i], weir__monotonic_ms());
        }
    }
    return left;
}

/* ---- Put ---- */

#define CHUNK_ITEMS    64        /* of one script call, which blocks the server; larger ones are no faster */
#define CHUNK_BYTES    (1 << 20) /* of one script call with more than one request */
#define ITEM_ARGUMENTS 14
#define PUT_CALLS      16        /* pipelined */
#define FLIGHT_MAX     (6 << 20) /* bytes pipelined: the client's buffer is bounded */

/* The requests of one call. */
struct chunk {
    struct weir__queue_put **puts;
    size_t count;
    int64_t bytes;
};

static struct chunk next_chunk(struct weir__queue_put **puts, size_t count)
{
    struct chunk chunk = {.puts = puts};
    for (; chunk.count < count && chunk.count < CHUNK_ITEMS; chunk.count++) {
        int64_t more = weir__deferred_bytes(&puts[chunk.count]->item);
        if (chunk.count > 0 && chunk.bytes + more > CHUNK_BYTES)
            break;
        chunk.bytes += more;
    }
    return chunk;
}

static int read_put(struct weir__store_request *request, const redisReply *reply)
{
    const struct chunk *chunk = context_of(request);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != chunk->count)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < chunk->count; i++) {
        const redisReply *sequence = reply->element[i];
        if (sequence->type != REDIS_REPLY_INTEGER || sequence->integer < 0)
            return WEIR_ESTOREGARBAGE;
        chunk->puts[i]->item.sequence = (uint64_t)sequence->integer;
    }
    return 0;
}

static void begin_put(struct weir__rq *q, struct call *call, struct chunk *chunk)
{
    const struct weir__queue_bounds *all = &q->queue.options.bounds;
    begin_call(q, call, WEIR__RQ_PUT, 2 + chunk->count * ITEM_ARGUMENTS, read_put, chunk);
    add_arguments(call, WEIR__VALUES(WEIR__V(all->max), WEIR__V(all->max_bytes)));
    for (size_t i = 0; i < chunk->count; i++) {
        const struct weir__deferred *item = &chunk->puts[i]->item;
        const struct weir__queue_bounds *bounds = &chunk->puts[i]->bounds;
        add_arguments(call, WEIR__VALUES(WEIR__V(weir__text_of(item->ticket)), WEIR__V(item->rule), WEIR__V(item->key),
                                         WEIR__V(item->cost), WEIR__V(item->method), WEIR__V(item->target),
                                         WEIR__V(item->headers), WEIR__V(item->body), WEIR__V(item->accepted_ms),
                                         WEIR__V(item->due_ms), WEIR__V(item->expires_ms),
                                         WEIR__V(weir__deferred_bytes(item)), WEIR__V(bounds->max),
                                         WEIR__V(bounds->max_bytes)));
    }
}

static void end_put(const struct chunk *chunk, int error)
{
    for (size_t i = 0; i < chunk->count; i++) {
        struct weir__queue_put *put = chunk->puts[i];
        /* The client is denied, so the request must not be delivered: it is in doubt until it is cancelled. */
        if (error == WEIR__QUEUE_UNKNOWN)
            weir__in_doubt_add(&weir__in_doubt_puts, put->item.ticket, weir__monotonic_ms());
        put->error = error ? error : put->item.sequence ? 0 : WEIR__QUEUE_FULL;
    }
}

/* One pipeline of calls; returns how many requests it covered. */
static size_t put_some(struct weir__rq *q, struct weir__queue_put **puts, size_t count)
{
    struct call calls[PUT_CALLS];
    struct chunk chunks[PUT_CALLS];
    size_t made = 0, at = 0;
    int64_t flight = 0;
    for (; at < count && made < PUT_CALLS; made++) {
        chunks[made] = next_chunk(puts + at, count - at);
        flight += chunks[made].bytes;
        if (made > 0 && flight > FLIGHT_MAX)
            break;
        begin_put(q, &calls[made], &chunks[made]);
        at += chunks[made].count;
    }
    (void)send_calls(q, calls, made);
    for (size_t i = 0; i < made; i++)
        end_put(&chunks[i], calls[i].error);
    return at;
}

static int put(struct weir__queue *queue, struct weir__queue_put **puts, size_t count)
{
    (void)cancel_in_doubt(queue);
    for (size_t at = 0; at < count;)
        at += put_some(rq_of(queue), puts + at, count - at);
    for (size_t i = 0; i < count; i++)
        if (!puts[i]->error || puts[i]->error == WEIR__QUEUE_FULL)
            return 0;
    return puts[0]->error;
}

/* ---- Claims ---- */

#define CLAIM_BYTES (3 << 20) /* of one reply with more than one request */

struct claim {
    weir__deferred_visit *visit;
    void *context;
    int found;                                               /* or an error */
    char taken[WEIR__QUEUE_CLAIM_MAX][WEIR__TICKET_LEN + 1]; /* claimed, but in doubt */
    size_t taken_count;
};

static int read_claim(struct weir__store_request *request, const redisReply *reply)
{
    struct claim *claim = context_of(request);
    struct weir__deferred item;
    if (reply->type == REDIS_REPLY_INTEGER) {
        claim->found = WEIR__QUEUE_STANDBY;
        return 0;
    }
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < reply->elements; i++) {
        if (!claim->visit || !read_item(reply->element[i], &item)) /* none was wanted, or no item */
            return WEIR_ESTOREGARBAGE;
        if (claim->taken_count < WEIR__QUEUE_CLAIM_MAX && weir__in_doubt_has(&weir__in_doubt_puts, item.ticket)) {
            memcpy(claim->taken[claim->taken_count++], item.ticket, sizeof item.ticket);
            continue;
        }
        (void)claim->visit(claim->context, &item);
        claim->found++;
    }
    return 0;
}

/* A claim of none gives up the lease. */
static int run_claim(struct weir__rq *q, const struct weir__claim_request *wanted, struct claim *claim)
{
    int error = call_script(
        q, WEIR__RQ_CLAIM, read_claim, claim,
        WEIR__VALUES(WEIR__V(wanted->now_ms), WEIR__V(wanted->claim_ms), WEIR__V((int64_t)wanted->free),
                     WEIR__V(CLAIM_BYTES), WEIR__V(weir__text_of(q->queue.name)), WEIR__V((int64_t)q->queue.session),
                     WEIR__V(q->queue.options.lease_ms), WEIR__V(!q->claimed), WEIR__V(wanted->ahead_ms),
                     WEIR__V(wanted->fair), WEIR__V(WEIR__QUEUE_GROUPS)));
    q->has_lease = !error && claim->found >= 0;
    q->claimed |= q->has_lease;
    return error ? error : claim->found;
}

/* Cancels claimed requests that are in doubt. If that fails, their claims expire. */
static void cancel_taken(struct weir__rq *q, const struct claim *claim)
{
    for (size_t i = 0; i < claim->taken_count; i++) {
        const char *ticket = claim->taken[i];
        struct weir__queue_ending endings[2] = {{.kind = WEIR__ENDED_RETRY, .ticket = ticket},
                                                {.kind = WEIR__ENDED_CANCELLED, .ticket = ticket}};
        if (change(&q->queue, endings, 2, weir__queue_now(&q->queue)))
            return;
        weir__in_doubt_resolve(&weir__in_doubt_puts, ticket, weir__monotonic_ms());
    }
}

static int claim_heads(struct weir__queue *queue, const struct weir__claim_request *wanted, weir__deferred_visit *visit,
                       void *context)
{
    struct claim claim = {.visit = visit, .context = context};
    int found = run_claim(rq_of(queue), wanted, &claim);
    cancel_taken(rq_of(queue), &claim);
    return found;
}

/* ---- Expiry ---- */

#define EXPIRE_CHUNK 100

static int expire(struct weir__queue *queue, int64_t now_ms)
{
    const struct weir__queue_options *options = &queue->options;
    int all = 0, done = EXPIRE_CHUNK;
    while (done >= EXPIRE_CHUNK && all < WEIR__QUEUE_EXPIRE_MAX) {
        int error = call_script(rq_of(queue), WEIR__RQ_EXPIRE, read_number, &done,
                                WEIR__VALUES(WEIR__V(now_ms), WEIR__V(EXPIRE_CHUNK), WEIR__V(now_ms - options->keep_ms),
                                             WEIR__V(now_ms - options->dead_ms), WEIR__V(options->keep_max),
                                             WEIR__V(options->dead_max), WEIR__V(options->bounds.max_bytes)));
        if (error)
            return error;
        all += done;
    }
    return all;
}

/* ---- Open and close ---- */

static void close_handle(struct weir__queue *queue)
{
    struct weir__rq *q = rq_of(queue);
    struct claim claim = {0};
    if (q->has_lease)
        (void)run_claim(q, &(struct weir__claim_request){0}, &claim);
    weir__blocking_client_free(q->link);
    free(q);
}

static const struct weir__queue_calls redis_calls = {.put = put,
                                                     .claim = claim_heads,
                                                     .change = change,
                                                     .find = find,
                                                     .list = list,
                                                     .expire = expire,
                                                     .cancel_in_doubt = cancel_in_doubt,
                                                     .stats = stats,
                                                     .close = close_handle};

int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why)
{
    struct weir__rq *q = calloc(1, sizeof *q);
    if (!q)
        return WEIR__QUEUE_MEMORY;
    q->queue = *made;
    q->queue.calls = &redis_calls;
    int error = weir__store_parse(url, &q->store, why, WEIR__QUEUE_SOURCE_TEXT) ? WEIR__QUEUE_URL : 0;
    if (!error) {
        /* The store's deadline is for gateway requests; the client drops a connection after ten times this. */
        q->store.deadline_us = made->options.wait_ms * 1000;
        snprintf(q->base, sizeof q->base, "{%s:queue}", q->store.prefix);
        q->link = weir__blocking_client_new(&q->store);
        error = q->link ? 0 : WEIR__QUEUE_MEMORY;
    }
    if (error)
        close_handle(&q->queue);
    else
        *queue = &q->queue;
    return error;
}
