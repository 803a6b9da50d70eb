/*
 * Lists of requests, their completion, and the client's internal requests: orphans (copies of sent requests whose
 * caller no longer waits) and refunds.
 *
 * A take or refund that may have been carried out is never sent again, since it would count twice. Releasing a permit
 * is idempotent (each permit has its own identity): it is retried, and also sent when it is unknown whether the permit
 * was taken.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define BACK_US        (INT64_C(5) * 1000000) /* how long a refund is retried */
#define LATER_US       100000                 /* between two tries */
#define INTERNAL_MAX   65536 /* internal requests at once; above it, a refund is dropped: the units stay taken */
#define CLEAR_ROUTE(q) ((q)->state &= (uint8_t) ~(WEIR__REQUEST_IMPORTING | WEIR__REQUEST_HALF_OPEN))

/* ---- Lists ---- */

/* Inserts before another request of the list, or at its end. */
static void insert(struct weir__request_list *list, struct weir__store_request *request,
                   struct weir__store_request *before)
{
    request->list = list;
    request->next = before;
    request->previous = before ? before->previous : list->last;
    *(request->previous ? &request->previous->next : &list->first) = request;
    *(before ? &before->previous : &list->last) = request;
    if (list->channel)
        list->channel->in_flight++;
}

void weir__request_list_add(struct weir__request_list *list, struct weir__store_request *request)
{
    insert(list, request, NULL);
}

void weir__request_list_remove(struct weir__store_request *request)
{
    struct weir__request_list *list = request->list;

    *(request->previous ? &request->previous->next : &list->first) = request->next;
    *(request->next ? &request->next->previous : &list->last) = request->previous;
    if (list->channel)
        list->channel->in_flight--;
    request->list = NULL;
    request->next = request->previous = NULL;
}

struct weir__store_request *weir__request_list_take(struct weir__request_list *list)
{
    struct weir__store_request *request = list->first;

    if (request)
        weir__request_list_remove(request);
    return request;
}

void weir__request_list_move(struct weir__request_list *from, struct weir__request_list *to)
{
    for (struct weir__store_request *request; (request = weir__request_list_take(from));)
        weir__request_list_add(to, request);
}

/* ---- Internal requests ---- */

/* One allocation: the request, its ops, its groups. */
static struct weir__store_request *internal_new(struct weir__client *client, uint32_t ops, uint32_t groups,
                                                uint8_t state)
{
    struct weir__internal_request {
        struct weir__store_request request;
        struct weir__store_op ops[];
    } * own;

    if (client->internal_count >= INTERNAL_MAX)
        return NULL;
    own = malloc(sizeof(*own) + ops * sizeof(struct weir__store_op) + groups * sizeof(struct weir__group));
    if (!own)
        return NULL;
    client->internal_count++;
    own->request = (struct weir__store_request){.ops = own->ops,
                                                .op_count = ops,
                                                .groups = (struct weir__group *)(void *)(own->ops + ops),
                                                .group_count = groups,
                                                .state = state};
    return &own->request;
}

void weir__native_free(struct weir__client *client, struct weir__store_request *request)
{
    client->internal_count--;
    free(request);
}

/* ---- Refunds ---- */

static bool is_lease(const struct weir__store_op *op)
{
    return op->limit.algorithm == WEIR_CONCURRENCY;
}

static bool was_taken(const struct weir__store_op *op)
{
    return op->taken && !op->keep && op->cost > 0 && (op->kind == WEIR__OP_TAKE || op->kind == WEIR__OP_CHARGE);
}

static bool may_be_taken(const struct weir__store_op *op)
{
    return is_lease(op) && op->cost > 0 && op->kind == WEIR__OP_TAKE;
}

static void try_later(struct weir__client *client, struct weir__store_request *back)
{
    if (!client->later.first)
        client->later_us = client->now_us + LATER_US;
    back->tries = 0;
    weir__request_list_add(&client->later, back);
}

/*
 * A refund of those of ops[from …] that `which` selects, as many as fit into one command; NULL: none, or no memory.
 * *end is where to continue.
 */
static struct weir__store_request *back_for(struct weir__client *client, const struct weir__store_op *ops,
                                            uint32_t from, uint32_t count,
                                            bool (*which)(const struct weir__store_op *op), uint32_t *end)
{
    uint32_t most = client->options->kind == WEIR__CLUSTER ? 1 : WEIR__BATCH_GROUPS, some = 0;

    for (*end = from; *end < count && some < most; ++*end)
        some += which(&ops[*end]);
    struct weir__store_request *back = some > 0 ? internal_new(client, some, some, WEIR__REQUEST_REFUND) : NULL;
    if (!back)
        return NULL;
    for (uint32_t i = from, to = 0; i < *end; i++) {
        if (!which(&ops[i]))
            continue;
        back->ops[to] = ops[i];
        back->ops[to].kind = WEIR__OP_REFUND;
        back->groups[to] = (struct weir__group){.first = to, .count = 1};
        to++;
    }
    back->deadline_us = client->now_us + BACK_US;
    if (client->options->kind == WEIR__CLUSTER)
        back->slot = (uint16_t)weir__slot(back->ops[0].name, back->ops[0].name_len);
    return back;
}

void weir__internal_refund(struct weir__client *client, const struct weir__store_op *ops, uint32_t count)
{
    for (uint32_t at = 0; at < count;) {
        struct weir__store_request *back = back_for(client, ops, at, count, was_taken, &at);
        if (back)
            weir__route(client, back);
    }
}

void weir__internal_refund_clear(struct weir__client *client, struct weir__store_op *ops, uint32_t count)
{
    weir__internal_refund(client, ops, count);
    for (uint32_t i = 0; i < count; i++)
        ops[i].taken = ops[i].taken && !was_taken(&ops[i]);
}

/* Not sent at once: the caller is closing the channel. */
void weir__internal_release_permits(struct weir__client *client, const struct weir__store_request *request)
{
    for (uint32_t i = 0; i < request->group_count; i++) {
        const struct weir__group *group = &request->groups[i];
        for (uint32_t at = 0; at < group->count;) {
            struct weir__store_request *back =
                back_for(client, request->ops + group->first, at, group->count, may_be_taken, &at);
            if (back)
                try_later(client, back);
        }
    }
}

/* ---- Completion ---- */

static bool may_repeat(const struct weir__store_request *request)
{
    for (uint32_t i = 0; i < request->op_count; i++)
        if (!is_lease(&request->ops[i]))
            return false;
    return true;
}

static void back_ended(struct weir__client *client, struct weir__store_request *request, int error, bool sure)
{
    if (error && (sure || may_repeat(request)) && client->now_us < request->deadline_us) {
        try_later(client, request);
        return;
    }
    client->stats.refunds += error ? 0 : request->op_count;
    weir__native_free(client, request);
}

void weir__request_end(struct weir__client *client, struct weir__store_request *request, int error, bool sure)
{
    CLEAR_ROUTE(request);
    if (request->state & WEIR__REQUEST_REFUND) {
        back_ended(client, request, error, sure);
        return;
    }
    if (request->state & WEIR__REQUEST_ORPHAN) {
        if (!error)
            weir__internal_refund(client, request->ops, request->op_count);
        weir__native_free(client, request);
        return;
    }
    if (request->state & WEIR__REQUEST_SUB) {
        weir__split_sub_ended(client, request, error);
        return;
    }
    weir__timer_remove(client, request);
    if (request->raw)
        request->raw->in_doubt = error && !sure;
    request->error = error;
    request->state = WEIR__REQUEST_DONE;
    if (error) {
        client->stats.failed++;
        client->stats.slow += error == WEIR_ESTORESLOW;
    } else {
        client->stats.replied++;
    }
    weir__request_list_add(&client->finished, request);
}

/* ---- Orphans ---- */

static int read_nothing(struct weir__store_request *request, const redisReply *reply)
{
    (void)request;
    (void)reply;
    return 0;
}

/* Stands for a raw command whose caller no longer waits: its reply is ignored. Never written to. */
static struct weir__raw_command unwanted = {.read = read_nothing};

/* Replaces a request that is in flight by an orphan. False: no memory. */
static bool make_orphan(struct weir__client *client, struct weir__store_request *request)
{
    uint32_t ops = 0, at = 0;

    for (uint32_t i = 0; i < request->group_count; i++)
        ops += request->groups[i].count;
    struct weir__store_request *orphan = internal_new(client, ops, request->group_count, WEIR__REQUEST_ORPHAN);
    if (!orphan)
        return false;
    for (uint32_t i = 0; i < request->group_count; i++) {
        const struct weir__group *group = &request->groups[i];
        orphan->groups[i] = (struct weir__group){.first = at, .count = group->count};
        memcpy(orphan->ops + at, request->ops + group->first, group->count * sizeof(struct weir__store_op));
        at += group->count;
    }
    orphan->raw = request->raw ? &unwanted : NULL;
    orphan->slot = request->slot;
    orphan->tries = request->tries;
    insert(request->list, orphan, request);
    weir__request_list_remove(request);
    return true;
}

void weir__request_detach(struct weir__client *client, struct weir__store_request *request)
{
    struct weir__request_list *list = request->list;

    if (!list)
        return;
    if (list->command) {
        struct weir__channel *channel = list->channel;
        if (make_orphan(client, request))
            return;
        /*
         * There is no memory for the copy that the reply would be read into, so the connection cannot be used any more.
         */
        weir__request_list_remove(request);
        weir__channel_close(channel, WEIR_ENOMEM, false);
        return;
    }
    if (request->state & WEIR__REQUEST_HALF_OPEN && list->channel)
        weir__breaker_release(&list->channel->breaker);
    CLEAR_ROUTE(request);
    weir__request_list_remove(request);
}
