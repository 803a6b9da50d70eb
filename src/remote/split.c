/*
 * Requests that need several commands: in a cluster because their counters are in several slots, on one server because
 * they have more groups than fit into one command. Each group is cut into runs, sequences of ops that fit into one
 * command; a subrequest sends one run. If a run of a group denies or fails, the others are refunded. Groups with
 * after_first are sent when the first group has its replies.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

struct weir__subrequest {
    struct weir__store_request request; /* first: sub_of casts it back */
    struct weir__group groups[2];       /* of a run: the parent's first group, and the run */
    struct weir__split *split;
    struct weir__subrequest *next, *previous;
};

static struct weir__subrequest *sub_of(const struct weir__store_request *request)
{
    return (struct weir__subrequest *)(uintptr_t)request;
}

uint32_t weir__split_first_group(const struct weir__store_request *request)
{
    return request->state & WEIR__REQUEST_SUB && request->groups == sub_of(request)->groups;
}

static unsigned slot_of(const struct weir__client *client, const struct weir__store_op *op)
{
    return client->options->kind == WEIR__CLUSTER ? weir__slot(op->name, op->name_len) : 0;
}

bool weir__split_needed(const struct weir__client *client, const struct weir__store_request *request)
{
    if (request->group_count > WEIR__BATCH_GROUPS)
        return true;
    if (client->options->kind != WEIR__CLUSTER || request->raw)
        return false;
    unsigned slot = slot_of(client, &request->ops[0]);
    for (uint32_t i = 1; i < request->op_count; i++)
        if (slot_of(client, &request->ops[i]) != slot)
            return true;
    return false;
}

/* ---- Memory ---- */

static struct weir__subrequest *sub_new(struct weir__split *split)
{
    struct weir__subrequest *sub = calloc(1, sizeof(*sub));

    if (!sub)
        return NULL;
    sub->split = split;
    sub->next = split->subs;
    if (sub->next)
        sub->next->previous = sub;
    split->subs = sub;
    split->made++;
    const struct weir__store_request *parent = split->parent;
    sub->request = (struct weir__store_request){.ops = parent->ops,
                                                .op_count = parent->op_count,
                                                .deadline_us = parent->deadline_us,
                                                .sender = parent->sender,
                                                .batch = parent->batch,
                                                .state = WEIR__REQUEST_SUB};
    return sub;
}

static void sub_free(struct weir__split *split, struct weir__subrequest *sub)
{
    if (sub->next)
        sub->next->previous = sub->previous;
    if (split->subs == sub)
        split->subs = sub->next;
    else
        sub->previous->next = sub->next;
    free(sub);
}

static struct weir__split *split_new(struct weir__client *client, struct weir__store_request *parent)
{
    struct weir__split *split = malloc(sizeof(*split));

    if (!split)
        return NULL;
    *split = (struct weir__split){.parent = parent, .next = client->splits};
    if (split->next)
        split->next->previous = split;
    client->splits = split;
    parent->list = split;
    parent->state |= WEIR__REQUEST_SPLIT;
    return split;
}

static void split_free(struct weir__client *client, struct weir__split *split)
{
    if (split->next)
        split->next->previous = split->previous;
    if (client->splits == split)
        client->splits = split->next;
    else
        split->previous->next = split->next;
    split->parent->list = NULL;
    split->parent->state &= (uint8_t)~WEIR__REQUEST_SPLIT;
    free(split);
}

void weir__split_free_all(struct weir__client *client)
{
    for (struct weir__split *split; (split = client->splits);) {
        while (split->subs)
            sub_free(split, split->subs);
        split_free(client, split);
    }
}

/* ---- Sending ---- */

static void group_fails(struct weir__split *split, const struct weir__group *group, int error)
{
    for (uint32_t i = 0; i < group->count; i++)
        split->parent->ops[group->first + i].error = error;
    split->made++;
    split->failed++;
    if (!split->error)
        split->error = error;
}

/* Whether the breakers of all servers of the group admit requests; otherwise no part of it is sent. */
static bool group_open(struct weir__client *client, const struct weir__store_request *parent,
                       const struct weir__group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (!weir__route_open(client, slot_of(client, &parent->ops[group->first + i])))
            return false;
    return true;
}

static void send_group(struct weir__client *client, struct weir__split *split, const struct weir__group *group)
{
    struct weir__store_request *parent = split->parent;
    uint32_t end = group->first + group->count;

    if (!group_open(client, parent, group)) {
        group_fails(split, group, WEIR_ESTOREBREAKER);
        return;
    }
    for (uint32_t at = group->first, run; at < end; at += run) {
        unsigned slot = slot_of(client, &parent->ops[at]);
        for (run = 1; at + run < end && slot_of(client, &parent->ops[at + run]) == slot;)
            run++;
        struct weir__group own = {.first = at, .count = run, .after_first = group->after_first};
        struct weir__subrequest *sub = sub_new(split);
        if (!sub) {
            group_fails(split, &own, WEIR_ENOMEM);
            continue;
        }
        sub->groups[0] = parent->groups[0];
        sub->groups[1] = own;
        sub->request.groups = sub->groups;
        sub->request.group_count = 2;
        sub->request.slot = (uint16_t)slot;
        weir__route(client, &sub->request);
    }
}

/* A request of a sender, on one server: each repetition has the same groups in the same commands. */
static void send_in_order(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;

    for (uint32_t at = 0, part = 0; at < parent->group_count; at += WEIR__BATCH_GROUPS, part++) {
        uint32_t left = parent->group_count - at, count = left < WEIR__BATCH_GROUPS ? left : WEIR__BATCH_GROUPS;
        struct weir__subrequest *sub = sub_new(split);
        if (!sub) {
            for (uint32_t i = 0; i < count; i++)
                group_fails(split, &parent->groups[at + i], WEIR_ENOMEM);
            continue;
        }
        sub->request.groups = parent->groups + at;
        sub->request.group_count = count;
        sub->request.slot = (uint16_t)part;
        weir__route(client, &sub->request);
    }
}

/* ---- Completion ---- */

static bool passed(const struct weir__store_request *parent, const struct weir__group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct weir__store_op *op = &parent->ops[group->first + i];
        if (op->error || !weir_passes(&op->decision))
            return false;
    }
    return true;
}

/* All or nothing: refunds the groups that did not pass as a whole. */
static void settle_groups(struct weir__client *client, struct weir__store_request *parent, bool after_first)
{
    for (uint32_t i = 0; i < parent->group_count; i++) {
        const struct weir__group *group = &parent->groups[i];
        if (group->after_first == after_first && group->count > 1 && !passed(parent, group))
            weir__internal_refund_clear(client, parent->ops + group->first, group->count);
    }
}

static void end_split(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;
    bool repeated = parent->sender && client->options->kind != WEIR__CLUSTER;
    /* The sender repeats all of it, and the server recognizes the parts that it has carried out. */
    int error = split->failed == split->made || (repeated && split->failed > 0) ? split->error : 0;

    split_free(client, split);
    weir__request_end(client, parent, error, false);
}

static bool has_more(const struct weir__store_request *parent)
{
    for (uint32_t i = 0; i < parent->group_count; i++)
        if (parent->groups[i].after_first)
            return true;
    return false;
}

/* Continues when no subrequest is in flight: at most twice, for the first group and for those after it. */
static void advance(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;

    if (split->starting || split->subs)
        return;
    settle_groups(client, parent, split->second);
    if (!split->second && has_more(parent)) {
        split->second = true;
        split->starting = true;
        for (uint32_t i = 0; i < parent->group_count; i++)
            if (parent->groups[i].after_first)
                send_group(client, split, &parent->groups[i]);
        split->starting = false;
        if (split->subs)
            return;
        settle_groups(client, parent, true);
    }
    end_split(client, split);
}

void weir__split_begin(struct weir__client *client, struct weir__store_request *parent)
{
    struct weir__split *split = split_new(client, parent);

    if (!split) {
        weir__request_end(client, parent, WEIR_ENOMEM, true);
        return;
    }
    for (uint32_t i = 0; i < parent->op_count; i++) {
        parent->ops[i].error = 0;
        parent->ops[i].taken = false;
        parent->ops[i].decision = (weir_decision){0};
    }
    split->starting = true;
    if (parent->sender && parent->sender[0] && client->options->kind != WEIR__CLUSTER)
        send_in_order(client, split);
    else
        for (uint32_t i = 0; i < parent->group_count; i++)
            if (!parent->groups[i].after_first)
                send_group(client, split, &parent->groups[i]);
    split->starting = false;
    advance(client, split);
}

void weir__split_sub_ended(struct weir__client *client, struct weir__store_request *request, int error)
{
    struct weir__subrequest *sub = sub_of(request);
    struct weir__split *split = sub->split;

    if (error) {
        for (uint32_t i = weir__split_first_group(request); i < request->group_count; i++) {
            const struct weir__group *group = &request->groups[i];
            for (uint32_t j = 0; j < group->count; j++) {
                struct weir__store_op *op = &request->ops[group->first + j];
                op->error = error;
                op->taken = false; /* a malformed reply may have set it */
            }
        }
        split->failed++;
        if (!split->error)
            split->error = error;
    }
    sub_free(split, sub);
    advance(client, split);
}

void weir__split_drop(struct weir__client *client, struct weir__store_request *parent, bool late)
{
    struct weir__split *split = parent->list;

    split->starting = true; /* subrequests that end meanwhile must not advance it */
    for (struct weir__subrequest *sub; (sub = split->subs);) {
        if (late)
            weir__request_timed_out(client, &sub->request);
        weir__request_detach(client, &sub->request);
        if (split->subs == sub)
            sub_free(split, sub);
    }
    weir__internal_refund_clear(client, parent->ops, parent->op_count);
    split_free(client, split);
}
