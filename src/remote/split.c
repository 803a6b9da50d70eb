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
    struct weir__store_request request; /* first: weir__split_sub_ended casts it back */
    struct weir__group run;
    struct weir__split *split;
};

/* The state of the parent, which refers to it by `list`. */
struct weir__split {
    struct weir__store_request *parent;
    uint32_t made;      /* subrequests, and groups that failed without one */
    uint32_t failed;    /* of these */
    uint32_t in_flight; /* subrequests */
    uint32_t used;      /* of `subs` */
    bool second;        /* the groups with after_first are in flight */
    bool busy;          /* subrequests that end now must not advance it */
    int error;
    struct weir__subrequest subs[];
};

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

/* ---- Sending ---- */

static bool passed(const struct weir__store_request *parent, const struct weir__group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct weir__store_op *op = &parent->ops[group->first + i];
        if (op->error || !weir_passes(&op->decision))
            return false;
    }
    return true;
}

static void fail_ops(struct weir__split *split, const struct weir__group *group, int error)
{
    for (uint32_t i = 0; i < group->count; i++) {
        struct weir__store_op *op = &split->parent->ops[group->first + i];
        op->error = error;
        op->taken = false; /* a malformed reply may have set it */
    }
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

static void send_sub(struct weir__client *client, struct weir__split *split, struct weir__group *groups, uint32_t count,
                     unsigned slot)
{
    const struct weir__store_request *parent = split->parent;
    struct weir__subrequest *sub = &split->subs[split->used++];

    sub->split = split;
    sub->request = (struct weir__store_request){.ops = parent->ops,
                                                .op_count = parent->op_count,
                                                .groups = groups ? groups : &sub->run,
                                                .group_count = count,
                                                .deadline_us = parent->deadline_us,
                                                .sender = parent->sender,
                                                .batch = parent->batch,
                                                .slot = (uint16_t)slot,
                                                .state = WEIR__REQUEST_SUB};
    split->made++;
    split->in_flight++;
    weir__route(client, &sub->request);
}

static void send_group(struct weir__client *client, struct weir__split *split, const struct weir__group *group)
{
    struct weir__store_request *parent = split->parent;
    uint32_t end = group->first + group->count;

    if (!group_open(client, parent, group)) {
        fail_ops(split, group, WEIR_ESTOREBREAKER);
        split->made++;
        split->failed++;
        return;
    }
    for (uint32_t at = group->first, run; at < end; at += run) {
        unsigned slot = slot_of(client, &parent->ops[at]);
        for (run = 1; at + run < end && slot_of(client, &parent->ops[at + run]) == slot;)
            run++;
        /* The first group has its replies: a run that must not be taken, as that did not pass, is peeked at. */
        split->subs[split->used].run = (struct weir__group){
            .first = at, .count = run, .after_first = group->after_first && !passed(parent, &parent->groups[0])};
        send_sub(client, split, NULL, 1, slot);
    }
}

/* A request of a sender, on one server: each repetition has the same groups in the same commands. */
static void send_in_order(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;

    for (uint32_t at = 0, part = 0; at < parent->group_count; at += WEIR__BATCH_GROUPS, part++) {
        uint32_t left = parent->group_count - at;
        send_sub(client, split, parent->groups + at, left < WEIR__BATCH_GROUPS ? left : WEIR__BATCH_GROUPS, part);
    }
}

/* ---- Completion ---- */

/* All or nothing: refunds the groups that did not pass as a whole. */
static void settle_groups(struct weir__client *client, struct weir__store_request *parent, bool after_first)
{
    for (uint32_t i = 0; i < parent->group_count; i++) {
        const struct weir__group *group = &parent->groups[i];
        if (group->after_first == after_first && group->count > 1 && !passed(parent, group))
            weir__internal_refund_clear(client, parent->ops + group->first, group->count);
    }
}

static void split_free(struct weir__split *split)
{
    split->parent->list = NULL;
    split->parent->state &= (uint8_t)~WEIR__REQUEST_SPLIT;
    free(split);
}

static void end_split(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;
    bool repeated = parent->sender && client->options->kind != WEIR__CLUSTER;
    /* The sender repeats all of it, and the server recognizes the parts that it has carried out. */
    int error = split->failed == split->made || (repeated && split->failed > 0) ? split->error : 0;

    split_free(split);
    weir__request_end(client, parent, error, false);
}

static void send_groups(struct weir__client *client, struct weir__split *split)
{
    struct weir__store_request *parent = split->parent;

    split->busy = true;
    if (parent->sender && parent->sender[0] && client->options->kind != WEIR__CLUSTER && !split->second)
        send_in_order(client, split);
    else
        for (uint32_t i = 0; i < parent->group_count; i++)
            if (parent->groups[i].after_first == split->second)
                send_group(client, split, &parent->groups[i]);
    split->busy = false;
}

/* Continues when no subrequest is in flight: first with the groups that have after_first, then it ends. */
static void advance(struct weir__client *client, struct weir__split *split)
{
    while (!split->busy && !split->in_flight) {
        settle_groups(client, split->parent, split->second);
        if (split->second) {
            end_split(client, split);
            return;
        }
        split->second = true;
        send_groups(client, split);
    }
}

void weir__split_begin(struct weir__client *client, struct weir__store_request *parent)
{
    size_t most = 0; /* subrequests */

    for (uint32_t i = 0; i < parent->group_count; i++)
        most += parent->groups[i].count;
    struct weir__split *split = calloc(1, sizeof(*split) + most * sizeof(split->subs[0]));
    if (!split) {
        weir__request_end(client, parent, WEIR_ENOMEM, true);
        return;
    }
    split->parent = parent;
    parent->list = split;
    parent->state |= WEIR__REQUEST_SPLIT;
    for (uint32_t i = 0; i < parent->op_count; i++) {
        parent->ops[i].error = 0;
        parent->ops[i].taken = false;
        parent->ops[i].decision = (weir_decision){0};
    }
    send_groups(client, split);
    advance(client, split);
}

void weir__split_sub_ended(struct weir__client *client, struct weir__store_request *request, int error)
{
    struct weir__split *split = ((struct weir__subrequest *)(void *)request)->split;

    for (uint32_t i = 0; error && i < request->group_count; i++)
        fail_ops(split, &request->groups[i], error);
    split->failed += error != 0;
    split->in_flight--;
    advance(client, split);
}

void weir__split_drop(struct weir__client *client, struct weir__store_request *parent, bool late)
{
    struct weir__split *split = parent->list;

    split->busy = true;
    for (uint32_t i = 0; i < split->used; i++) {
        if (late)
            weir__request_timed_out(client, &split->subs[i].request);
        weir__request_detach(client, &split->subs[i].request);
    }
    weir__internal_refund_clear(client, parent->ops, parent->op_count);
    split_free(split);
}
