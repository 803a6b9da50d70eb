/* Find, list and stats in Redis, and parsing the requests that scripts return. */
#include "queue/redis.h"

#include <stdlib.h>

#define LIST_BYTES  (2 << 20) /* of one reply with more than one request */
#define ITEM_FIELDS 14
/* Calls for one result: each skips some of the dead requests before the oldest waiting one. */
#define STATS_CALLS  10000
#define LENGTH_BYTES 4

/* ---- Requests ---- */

static weir_text text_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? (weir_text){reply->str, (size_t)reply->len} : (weir_text){"", 0};
}

/* nil is 0. False: not a number. */
static bool number_of(const redisReply *reply, int64_t *number)
{
    char *end;
    *number = 0;
    if (reply->type == REDIS_REPLY_NIL)
        return true;
    if (reply->type == REDIS_REPLY_INTEGER) {
        *number = reply->integer;
        return true;
    }
    if (reply->type != REDIS_REPLY_STRING || reply->len == 0)
        return false;
    *number = strtoll(reply->str, &end, 10);
    return end == reply->str + reply->len;
}

static bool read_payload(weir_text payload, struct weir__deferred *item)
{
    item->headers = item->body = (weir_text){"", 0};
    if (payload.len == 0)
        return true;
    if (payload.len < LENGTH_BYTES)
        return false;
    size_t headers = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        headers = headers << 8 | (unsigned char)payload.data[i];
    if (headers > payload.len - LENGTH_BYTES)
        return false;
    item->headers = (weir_text){payload.data + LENGTH_BYTES, headers};
    item->body = (weir_text){payload.data + LENGTH_BYTES + headers, payload.len - LENGTH_BYTES - headers};
    return true;
}

bool weir__rq_item(const redisReply *reply, struct weir__deferred *item)
{
    int64_t sequence, attempts, state, status;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || reply->element[2]->type != REDIS_REPLY_ARRAY ||
        reply->element[2]->elements != ITEM_FIELDS)
        return false;
    weir_text ticket = text_of(reply->element[0]);
    struct redisReply *const *values = reply->element[2]->element;
    if (ticket.len != WEIR__TICKET_LEN || values[0]->type == REDIS_REPLY_NIL)
        return false;
    *item = (struct weir__deferred){.rule = text_of(values[1]),
                                    .key = text_of(values[2]),
                                    .method = text_of(values[4]),
                                    .target = text_of(values[5]),
                                    .why = text_of(values[12])};
    memcpy(item->ticket, ticket.data, WEIR__TICKET_LEN);
    if (!number_of(values[0], &sequence) || !number_of(values[3], &item->cost) ||
        !number_of(values[6], &item->accepted_ms) || !number_of(values[7], &item->due_ms) ||
        !number_of(values[8], &item->expires_ms) || !number_of(values[9], &item->ended_ms) ||
        !number_of(values[10], &attempts) || !number_of(values[11], &state) || !number_of(values[13], &status) ||
        state < 0 || state >= WEIR__DEFERRED_STATES)
        return false;
    item->sequence = (uint64_t)sequence;
    item->attempts = (int)attempts;
    item->state = (enum weir__deferred_state)state;
    item->last_status = (int)status;
    return read_payload(text_of(reply->element[1]), item);
}

/* ---- Find and list ---- */

struct item_reader {
    weir__deferred_visit *visit;
    void *context;
    int result;     /* the visit's, or an error */
    size_t left;    /* of a list */
    uint64_t after; /* sequence up to which the script has scanned; a call scans a bounded number */
    bool more;
};

static int read_find(struct weir__store_request *request, const redisReply *reply)
{
    struct item_reader *reader = weir__rq_context(request);
    struct weir__deferred item;
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    if (reply->elements == 0) {
        reader->result = WEIR__QUEUE_GONE;
        return 0;
    }
    if (!weir__rq_item(reply, &item))
        return WEIR_ESTOREGARBAGE;
    reader->result = reader->visit(reader->context, &item);
    return 0;
}

int weir__rq_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call call;
    struct item_reader reader = {.visit = visit, .context = context};
    weir__rq_begin(q, &call, WEIR__RQ_LIST, 2);
    weir__rq_text(&call, weir__text_of("find"));
    weir__rq_text(&call, weir__text_of(ticket));
    int error = weir__rq_call_script(q, &call, read_find, &reader);
    return error ? error : reader.result;
}

static int read_list(struct weir__store_request *request, const redisReply *reply)
{
    struct item_reader *reader = weir__rq_context(request);
    struct weir__deferred item;
    int64_t next;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !number_of(reply->element[0], &next))
        return WEIR_ESTOREGARBAGE;
    if (next && (next < 0 || (uint64_t)next <= reader->after))
        return WEIR_ESTOREGARBAGE; /* no progress: it would never end */
    for (size_t i = 1; i < reply->elements && !reader->result && reader->left > 0; i++, reader->left--) {
        if (!weir__rq_item(reply->element[i], &item))
            return WEIR_ESTOREGARBAGE;
        reader->result = reader->visit(reader->context, &item);
    }
    reader->more = next > 0;
    reader->after = (uint64_t)next;
    return 0;
}

int weir__rq_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                  void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct item_reader reader = {
        .visit = visit, .context = context, .left = filter->limit, .after = filter->after, .more = true};
    while (reader.more && reader.left > 0 && !reader.result) {
        struct weir__rq_call call;
        weir__rq_begin(q, &call, WEIR__RQ_LIST, 6);
        weir__rq_text(&call, weir__text_of("list"));
        WEIR__RQ_NUMBERS(&call, filter->state);
        weir__rq_text(&call, filter->rule);
        WEIR__RQ_NUMBERS(&call, (int64_t)reader.after, (int64_t)reader.left, LIST_BYTES);
        int error = weir__rq_call_script(q, &call, read_list, &reader);
        if (error)
            return error;
    }
    return reader.result;
}

/* ---- Stats ---- */

struct stats {
    weir__queue_stats_visit *visit;
    void *context;
    int result;
    bool more; /* another call is needed */
};

static int read_stats(struct weir__store_request *request, const redisReply *reply)
{
    struct stats *all = weir__rq_context(request);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || reply->element[0]->type != REDIS_REPLY_INTEGER)
        return WEIR_ESTOREGARBAGE;
    all->more = all->more && reply->element[0]->integer != 0;
    for (size_t i = 1; i < reply->elements && !all->result && !all->more; i++) {
        const redisReply *one = reply->element[i];
        struct weir__queue_stats stats;
        if (one->type != REDIS_REPLY_ARRAY || one->elements != 6 || !number_of(one->element[1], &stats.waiting) ||
            !number_of(one->element[2], &stats.under_way) || !number_of(one->element[3], &stats.dead) ||
            !number_of(one->element[4], &stats.bytes) || !number_of(one->element[5], &stats.oldest_ms))
            return WEIR_ESTOREGARBAGE;
        stats.rule = text_of(one->element[0]);
        if (stats.waiting + stats.under_way + stats.dead > 0)
            all->result = all->visit(all->context, &stats);
    }
    return 0;
}

int weir__rq_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call call;
    struct stats all = {.visit = visit, .context = context, .more = true};
    int error = 0;
    for (int calls = 1; all.more && !error; calls++) {
        all.more = calls < STATS_CALLS; /* give up: the age of some rules stays unknown */
        weir__rq_begin(q, &call, WEIR__RQ_LIST, 1);
        weir__rq_text(&call, weir__text_of("stats"));
        error = weir__rq_call_script(q, &call, read_stats, &all);
    }
    return error ? error : all.result;
}
