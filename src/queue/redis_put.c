/* Puts in Redis: pipelined script calls of bounded size. */
#include "base/clock.h"
#include "queue/redis.h"

#include <stdlib.h>

#define CHUNK_ITEMS    64        /* of one script call, which blocks the server; larger ones are no faster */
#define CHUNK_BYTES    (1 << 20) /* of one script call with more than one request */
#define ITEM_ARGUMENTS 13
#define CALLS          16        /* pipelined */
#define FLIGHT_MAX     (6 << 20) /* bytes pipelined: the client's buffer is bounded */

struct chunk {
    struct weir__deferred *items;
    int *errors;
    size_t count; /* items, including those with an error */
};

/* Payload: length of the headers (4 bytes, big endian), headers, body. */
static void add_payload(struct weir__rq_call *call, const struct weir__deferred *item)
{
    char length[32], bytes[4];
    size_t headers = item->headers.len;
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(headers >> (24 - 8 * i));
    int len = snprintf(length, sizeof length, "$%zu\r\n", sizeof bytes + headers + item->body.len);
    weir__buffer_add(&call->command, length, (size_t)len);
    weir__buffer_add(&call->command, bytes, sizeof bytes);
    if (headers > 0)
        weir__buffer_add(&call->command, item->headers.data, headers);
    if (item->body.len > 0)
        weir__buffer_add(&call->command, item->body.data, item->body.len);
    weir__buffer_add(&call->command, "\r\n", 2);
}

static void add_item(struct weir__rq_call *call, const struct weir__deferred *item,
                     const struct weir__queue_bounds *bounds)
{
    weir__rq_word(call, item->ticket);
    weir__rq_text(call, item->rule);
    weir__rq_text(call, item->key);
    weir__rq_number(call, item->cost);
    weir__rq_text(call, item->method);
    weir__rq_text(call, item->target);
    add_payload(call, item);
    weir__rq_number(call, item->accepted_ms);
    weir__rq_number(call, item->due_ms);
    weir__rq_number(call, item->expires_ms);
    weir__rq_number(call, weir__deferred_bytes(item));
    weir__rq_number(call, bounds->max);
    weir__rq_number(call, bounds->max_bytes);
}

/* How many of the items go into one call; *bytes and *good: size and number of those without an error. */
static size_t chunk_of(const struct weir__deferred *items, const int *errors, size_t count, int64_t *bytes,
                       size_t *good)
{
    size_t taken = 0;
    *bytes = 0;
    *good = 0;
    for (; taken < count && *good < CHUNK_ITEMS; taken++) {
        int64_t more = errors[taken] ? 0 : weir__deferred_bytes(&items[taken]);
        if (*good > 0 && *bytes + more > CHUNK_BYTES)
            break;
        *bytes += more;
        *good += errors[taken] == 0;
    }
    return taken;
}

static int read_put(struct weir__store_request *request, const redisReply *reply)
{
    struct chunk *chunk = weir__rq_context(request);
    size_t at = 0;
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->errors[i])
            continue;
        if (at == reply->elements || reply->element[at]->type != REDIS_REPLY_INTEGER || reply->element[at]->integer < 0)
            return WEIR_ESTOREGARBAGE;
        chunk->items[i].sequence = (uint64_t)reply->element[at++]->integer;
    }
    return at == reply->elements ? 0 : WEIR_ESTOREGARBAGE;
}

static void end_chunk(struct weir__rq *q, const struct chunk *chunk, int error)
{
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->errors[i])
            continue;
        /* The client is denied, so the request must not be delivered: it is in doubt until it is cancelled. */
        if (error == WEIR__QUEUE_UNKNOWN)
            weir__in_doubt_add(q->in_doubt, chunk->items[i].ticket, weir__monotonic_us() / 1000);
        chunk->errors[i] = error ? error : chunk->items[i].sequence ? 0 : WEIR__QUEUE_FULL;
    }
}

/* One pipeline of calls; returns how many items it covered. */
static size_t put_some(struct weir__rq *q, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                       int *errors, size_t count)
{
    struct weir__rq_call calls[CALLS];
    struct chunk chunks[CALLS];
    int results[CALLS];
    size_t made = 0, at = 0;
    int64_t flight = 0;
    while (at < count && made < CALLS) {
        int64_t bytes;
        size_t good, taken = chunk_of(items + at, errors + at, count - at, &bytes, &good);
        if (made > 0 && flight + bytes > FLIGHT_MAX)
            break;
        flight += bytes;
        if (good > 0) {
            chunks[made] = (struct chunk){items + at, errors + at, taken};
            weir__rq_begin(q, &calls[made], WEIR__RQ_PUT, 2 + good * ITEM_ARGUMENTS);
            weir__rq_number(&calls[made], q->queue.options.bounds.max);
            weir__rq_number(&calls[made], q->queue.options.bounds.max_bytes);
            for (size_t i = at; i < at + taken; i++)
                if (!errors[i])
                    add_item(&calls[made], &items[i], &bounds[i]);
            calls[made].context = &chunks[made];
            made++;
        }
        at += taken;
    }
    weir__rq_call_scripts(q, calls, results, made, read_put);
    for (size_t i = 0; i < made; i++)
        end_chunk(q, &chunks[i], results[i]);
    return at;
}

int weir__rq_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                 int *errors, size_t count)
{
    struct weir__rq *q = weir__rq_of(queue);
    int failed = 0;
    bool any = false;
    (void)weir__rq_cancel_in_doubt(queue);
    for (size_t at = 0; at < count;)
        at += put_some(q, items + at, bounds + at, errors + at, count - at);
    for (size_t i = 0; i < count; i++) {
        bool own = errors[i] == 0 || errors[i] == WEIR__QUEUE_FULL || errors[i] == WEIR__QUEUE_TOO_LARGE ||
                   errors[i] == WEIR__QUEUE_INVALID;
        any |= own;
        failed = own || failed ? failed : errors[i];
    }
    return any ? 0 : failed;
}
