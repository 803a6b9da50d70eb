/* Looking at the requests in Redis, and reading what the scripts tell of them. */
#include "queue/redis.h"

#include <stdlib.h>

#define LIST_BYTES    (2 << 20) /* of one answer, if there is more than one request in it */
#define TOLD          14
#define FIGURES_CALLS 10000 /* for one answer: what is dead before the oldest that waits is passed over once */
#define LENGTH_BYTES  4

/* ---- Requests ---- */

static weir_text text_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? (weir_text){reply->str, (size_t)reply->len} : (weir_text){"", 0};
}

/* What is not there is 0. False: it is no number. */
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
        reply->element[2]->elements != TOLD)
        return false;
    weir_text ticket = text_of(reply->element[0]);
    struct redisReply *const *told = reply->element[2]->element;
    if (ticket.len != WEIR__TICKET_LEN || told[0]->type == REDIS_REPLY_NIL)
        return false;
    *item = (struct weir__deferred){.rule = text_of(told[1]),
                                    .key = text_of(told[2]),
                                    .method = text_of(told[4]),
                                    .target = text_of(told[5]),
                                    .why = text_of(told[12])};
    memcpy(item->ticket, ticket.data, WEIR__TICKET_LEN);
    if (!number_of(told[0], &sequence) || !number_of(told[3], &item->cost) || !number_of(told[6], &item->accepted_ms) ||
        !number_of(told[7], &item->due_ms) || !number_of(told[8], &item->expires_ms) ||
        !number_of(told[9], &item->ended_ms) || !number_of(told[10], &attempts) || !number_of(told[11], &state) ||
        !number_of(told[13], &status) || state < 0 || state >= WEIR__DEFERRED_STATES)
        return false;
    item->sequence = (uint64_t)sequence;
    item->attempts = (int)attempts;
    item->state = (enum weir__deferred_state)state;
    item->last_status = (int)status;
    return read_payload(text_of(reply->element[1]), item);
}

/* ---- Finding and listing ---- */

struct look {
    weir__deferred_visit *visit;
    void *context;
    int result;     /* the visit's, or an error */
    size_t left;    /* of a list */
    uint64_t after; /* what was looked at; a script does not look at all at once */
    bool more;
};

static int read_find(struct weir__question *question, const redisReply *reply)
{
    struct look *look = weir__rq_context(question);
    struct weir__deferred item;
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    if (reply->elements == 0) {
        look->result = WEIR__QUEUE_GONE;
        return 0;
    }
    if (!weir__rq_item(reply, &item))
        return WEIR_ESTOREGARBAGE;
    look->result = look->visit(look->context, &item);
    return 0;
}

int weir__rq_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call call;
    struct look look = {.visit = visit, .context = context};
    weir__rq_begin(q, &call, WEIR__RQ_LOOK, 2);
    weir__rq_word(&call, "find");
    weir__rq_word(&call, ticket);
    int error = weir__rq_ask(q, &call, read_find, &look);
    return error ? error : look.result;
}

static int read_list(struct weir__question *question, const redisReply *reply)
{
    struct look *look = weir__rq_context(question);
    struct weir__deferred item;
    int64_t next;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !number_of(reply->element[0], &next))
        return WEIR_ESTOREGARBAGE;
    if (next && (next < 0 || (uint64_t)next <= look->after))
        return WEIR_ESTOREGARBAGE; /* it would never end */
    for (size_t i = 1; i < reply->elements && !look->result && look->left > 0; i++, look->left--) {
        if (!weir__rq_item(reply->element[i], &item))
            return WEIR_ESTOREGARBAGE;
        look->result = look->visit(look->context, &item);
    }
    look->more = next > 0;
    look->after = (uint64_t)next;
    return 0;
}

int weir__rq_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                  void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct look look = {
        .visit = visit, .context = context, .left = filter->limit, .after = filter->after, .more = true};
    while (look.more && look.left > 0 && !look.result) {
        struct weir__rq_call call;
        weir__rq_begin(q, &call, WEIR__RQ_LOOK, 6);
        weir__rq_word(&call, "list");
        weir__rq_number(&call, filter->state);
        weir__rq_text(&call, filter->rule);
        weir__rq_number(&call, (int64_t)look.after);
        weir__rq_number(&call, (int64_t)look.left);
        weir__rq_number(&call, LIST_BYTES);
        int error = weir__rq_ask(q, &call, read_list, &look);
        if (error)
            return error;
    }
    return look.result;
}

/* ---- Figures ---- */

struct figures {
    weir__queue_figures_visit *visit;
    void *context;
    int result;
    bool more; /* to look at before all is known */
};

static int read_figures(struct weir__question *question, const redisReply *reply)
{
    struct figures *all = weir__rq_context(question);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || reply->element[0]->type != REDIS_REPLY_INTEGER)
        return WEIR_ESTOREGARBAGE;
    all->more = all->more && reply->element[0]->integer != 0;
    for (size_t i = 1; i < reply->elements && !all->result && !all->more; i++) {
        const redisReply *one = reply->element[i];
        struct weir__queue_figures figures;
        if (one->type != REDIS_REPLY_ARRAY || one->elements != 6 || !number_of(one->element[1], &figures.waiting) ||
            !number_of(one->element[2], &figures.under_way) || !number_of(one->element[3], &figures.dead) ||
            !number_of(one->element[4], &figures.bytes) || !number_of(one->element[5], &figures.oldest_ms))
            return WEIR_ESTOREGARBAGE;
        figures.rule = text_of(one->element[0]);
        if (figures.waiting + figures.under_way + figures.dead > 0)
            all->result = all->visit(all->context, &figures);
    }
    return 0;
}

int weir__rq_figures(struct weir__queue *queue, weir__queue_figures_visit *visit, void *context)
{
    struct weir__rq *q = weir__rq_of(queue);
    struct weir__rq_call call;
    struct figures all = {.visit = visit, .context = context, .more = true};
    int error = 0;
    for (int calls = 1; all.more && !error; calls++) {
        all.more = calls < FIGURES_CALLS; /* then without the age of some */
        weir__rq_begin(q, &call, WEIR__RQ_LOOK, 1);
        weir__rq_word(&call, "figures");
        error = weir__rq_ask(q, &call, read_figures, &all);
    }
    return error ? error : all.result;
}
