/* The Redis storage: calls of its scripts through the store's client, puts, open and close. */
#include "queue/redis.h"
#include "base/clock.h"
#include "queue/queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS 64

/* ---- Commands ---- */

void weir__rq_text(struct weir__rq_call *call, weir_text text)
{
    weir__redis_add_text(&call->command, text.data, text.len);
}

void weir__rq_numbers(struct weir__rq_call *call, const int64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        weir__redis_add_int(&call->command, numbers[i]);
}

void weir__rq_begin(struct weir__rq *q, struct weir__rq_call *call, enum weir__rq_which which, size_t arguments)
{
    const struct weir__rq_script *script = &weir__rq_scripts[which];
    *call = (struct weir__rq_call){.raw = {.slot = q->base, .script = script->text}};
    weir__redis_add_length(&call->command, '*', arguments + 4);
    weir__rq_text(call, weir__text_of("EVALSHA"));
    weir__rq_text(call, weir__text_of(script->sha));
    weir__rq_text(call, weir__text_of("1"));
    weir__rq_text(call, weir__text_of(q->base));
}

/* ---- Replies ---- */

static int error_of(struct weir__rq *q, const struct weir__rq_call *call)
{
    int error = call->request.error;
    weir__queue_set_why(&q->queue, call->raw.why[0] ? call->raw.why : weir_strerror(error));
    switch (error) {
    case WEIR_ENOMEM:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_MEMORY;
    case WEIR_ESTOREOOM:
        return WEIR__QUEUE_SPACE;
    case WEIR_ESTOREREADONLY:
    case WEIR_ESTOREDISK:
        return WEIR__QUEUE_READONLY;
    case WEIR_ESTOREWRONGTYPE:
        return WEIR__QUEUE_BROKEN;
    case WEIR_ESTOREERROR:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_BROKEN;
    default:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_UNAVAILABLE;
    }
}

void weir__rq_call_scripts(struct weir__rq *q, struct weir__rq_call *calls, int *errors, size_t count,
                           weir__rq_read *read)
{
    struct weir__store_request *requests[CALLS];
    for (size_t at = 0, some; at < count; at += some) {
        size_t sent = 0;
        some = count - at < CALLS ? count - at : CALLS;
        for (size_t i = at; i < at + some; i++) {
            struct weir__rq_call *call = &calls[i];
            call->raw.command = call->command.data;
            call->raw.command_len = call->command.len;
            call->raw.read = read;
            call->request = (struct weir__store_request){
                .raw = &call->raw, .owner = call, .deadline_us = weir__monotonic_us() + q->store.deadline_us};
            if (call->command.failed)
                call->request.error = WEIR_ENOMEM;
            else
                requests[sent++] = &call->request;
        }
        (void)weir__blocking_client_request_all(q->link, requests, sent);
        for (size_t i = at; i < at + some; i++)
            errors[i] = calls[i].request.error ? error_of(q, &calls[i]) : 0;
    }
    for (size_t i = 0; i < count; i++)
        weir__buffer_free(&calls[i].command);
}

int weir__rq_call_script(struct weir__rq *q, struct weir__rq_call *call, weir__rq_read *read, void *context)
{
    int error;
    call->context = context;
    weir__rq_call_scripts(q, call, &error, 1, read);
    return error;
}

/* ---- In-doubt puts ---- */

static void remove_at(struct weir__in_doubt *all, size_t at)
{
    all->open -= all->list[at].until_ms == 0;
    all->count--;
    memmove(&all->list[at], &all->list[at + 1], (all->count - at) * sizeof all->list[0]);
}

/* Removes expired entries; if there are none, the oldest. */
static void make_room(struct weir__in_doubt *all, int64_t now_ms)
{
    for (size_t i = all->count; i-- > 0;)
        if (all->list[i].until_ms && all->list[i].until_ms <= now_ms)
            remove_at(all, i);
    if (all->count == WEIR__IN_DOUBT_MAX)
        remove_at(all, 0);
}

static struct weir__in_doubt_put *find(struct weir__in_doubt *all, const char *ticket)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i].ticket, ticket) == 0)
            return &all->list[i];
    return NULL;
}

void weir__in_doubt_add(struct weir__in_doubt *all, const char *ticket, int64_t now_ms)
{
    pthread_mutex_lock(&all->lock);
    if (all->count == WEIR__IN_DOUBT_MAX)
        make_room(all, now_ms);
    struct weir__in_doubt_put *one = &all->list[all->count++];
    memcpy(one->ticket, ticket, sizeof one->ticket);
    one->until_ms = 0;
    all->open++;
    pthread_mutex_unlock(&all->lock);
}

bool weir__in_doubt_has(struct weir__in_doubt *all, const char *ticket)
{
    pthread_mutex_lock(&all->lock);
    bool has = find(all, ticket) != NULL;
    pthread_mutex_unlock(&all->lock);
    return has;
}

void weir__in_doubt_resolve(struct weir__in_doubt *all, const char *ticket, int64_t now_ms)
{
    pthread_mutex_lock(&all->lock);
    struct weir__in_doubt_put *one = find(all, ticket);
    if (one && !one->until_ms) {
        one->until_ms = now_ms + WEIR__IN_DOUBT_LATE_MS;
        all->open--;
    }
    pthread_mutex_unlock(&all->lock);
}

size_t weir__in_doubt_pending(struct weir__in_doubt *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                              size_t max)
{
    size_t found = 0;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count && all->open > 0 && found < max; i++) {
        if (all->list[i].until_ms)
            continue;
        if (skip > 0)
            skip--;
        else
            memcpy(tickets[found++], all->list[i].ticket, sizeof all->list[i].ticket);
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

/* ---- Put ---- */

#define CHUNK_ITEMS    64        /* of one script call, which blocks the server; larger ones are no faster */
#define CHUNK_BYTES    (1 << 20) /* of one script call with more than one request */
#define ITEM_ARGUMENTS 13
#define PUT_CALLS      16        /* pipelined */
#define FLIGHT_MAX     (6 << 20) /* bytes pipelined: the client's buffer is bounded */

struct chunk {
    struct weir__deferred *items;
    int *errors;
    size_t count; /* items, including those with an error */
};

/* Payload: length of the headers (4 bytes, big endian), headers, body. */
static void add_payload(struct weir__rq_call *call, const struct weir__deferred *item)
{
    char bytes[4];
    size_t headers = item->headers.len;
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(headers >> (24 - 8 * i));
    weir__redis_add_length(&call->command, '$', sizeof bytes + headers + item->body.len);
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
    weir__rq_text(call, weir__text_of(item->ticket));
    weir__rq_text(call, item->rule);
    weir__rq_text(call, item->key);
    WEIR__RQ_NUMBERS(call, item->cost);
    weir__rq_text(call, item->method);
    weir__rq_text(call, item->target);
    add_payload(call, item);
    WEIR__RQ_NUMBERS(call, item->accepted_ms, item->due_ms, item->expires_ms, weir__deferred_bytes(item), bounds->max,
                     bounds->max_bytes);
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
    struct weir__rq_call calls[PUT_CALLS];
    struct chunk chunks[PUT_CALLS];
    int results[PUT_CALLS];
    size_t made = 0, at = 0;
    int64_t flight = 0;
    while (at < count && made < PUT_CALLS) {
        int64_t bytes;
        size_t good, taken = chunk_of(items + at, errors + at, count - at, &bytes, &good);
        if (made > 0 && flight + bytes > FLIGHT_MAX)
            break;
        flight += bytes;
        if (good > 0) {
            chunks[made] = (struct chunk){items + at, errors + at, taken};
            weir__rq_begin(q, &calls[made], WEIR__RQ_PUT, 2 + good * ITEM_ARGUMENTS);
            WEIR__RQ_NUMBERS(&calls[made], q->queue.options.bounds.max, q->queue.options.bounds.max_bytes);
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

static int put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
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

/* ---- Open and close ---- */

static void close_handle(struct weir__queue *queue)
{
    struct weir__rq *q = weir__rq_of(queue);
    if (q->has_lease)
        weir__rq_release_lease(q);
    weir__blocking_client_free(q->link);
    pthread_mutex_destroy(&q->own.lock);
    free(q);
}

static const struct weir__queue_calls calls = {.put = put,
                                               .claim = weir__rq_claim,
                                               .change = weir__rq_change,
                                               .find = weir__rq_find,
                                               .list = weir__rq_list,
                                               .expire = weir__rq_expire,
                                               .cancel_in_doubt = weir__rq_cancel_in_doubt,
                                               .stats = weir__rq_stats,
                                               .close = close_handle};

int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why)
{
    struct weir__rq *q = calloc(1, sizeof *q);
    if (!q)
        return WEIR__QUEUE_MEMORY;
    q->queue = *made;
    q->queue.calls = &calls;
    pthread_mutex_init(&q->own.lock, NULL);
    q->in_doubt = made->options.in_doubt ? made->options.in_doubt : &q->own;
    int error = weir__store_parse(url, &q->store, why, WEIR__QUEUE_SOURCE_TEXT) ? WEIR__QUEUE_URL : 0;
    if (!error) {
        /* The store's deadline is for gateway requests; the client drops a connection after ten times this. */
        q->store.deadline_us = made->options.wait_ms * 1000;
        snprintf(q->base, sizeof q->base, "{%s:queue}", q->store.prefix);
        q->link = weir__blocking_client_new(&q->store);
        error = q->link ? 0 : WEIR__QUEUE_MEMORY;
    }
    if (error) {
        pthread_mutex_destroy(&q->own.lock);
        free(q);
        return error;
    }
    *queue = &q->queue;
    return 0;
}
