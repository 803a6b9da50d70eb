/*
 * A question that needs several commands: in a cluster its counters are in several slots, and on one server it may have
 * more groups than go with one command. Each group is cut into runs of asks that can be asked together. When one of a
 * group's runs denies or fails, what the others took is given back. The groups that come after the first wait for it.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

struct weir__piece {
    struct weir__question question;
    struct weir__group groups[2]; /* a run: the question's first group, and the run itself */
    struct weir__split *split;
    struct weir__piece *next, *previous;
};

static struct weir__piece *piece_of(struct weir__question *question)
{
    return (struct weir__piece *)(void *)((char *)question - offsetof(struct weir__piece, question));
}

bool weir__split_is_run(const struct weir__question *question)
{
    if (!(question->state & WEIR__Q_PIECE))
        return false;
    const struct weir__piece *piece =
        (const struct weir__piece *)(const void *)((const char *)question - offsetof(struct weir__piece, question));
    return question->groups == piece->groups;
}

static unsigned slot_of(const struct weir__client *client, const struct weir__ask *ask)
{
    return client->options->kind == WEIR__CLUSTER ? weir__slot(ask->name, ask->name_len) : 0;
}

bool weir__split_needed(const struct weir__client *client, const struct weir__question *question)
{
    if (question->group_count > WEIR__BATCH_GROUPS)
        return true;
    if (client->options->kind != WEIR__CLUSTER || question->plain)
        return false;
    unsigned slot = slot_of(client, &question->asks[0]);
    for (uint32_t i = 1; i < question->ask_count; i++)
        if (slot_of(client, &question->asks[i]) != slot)
            return true;
    return false;
}

/* ---- Memory ---- */

static struct weir__piece *piece_new(struct weir__client *client, struct weir__split *split)
{
    struct weir__piece *piece = client->free_pieces;

    if (piece)
        client->free_pieces = piece->next;
    else
        piece = malloc(sizeof(*piece));
    if (!piece)
        return NULL;
    memset(piece, 0, sizeof(*piece));
    piece->split = split;
    piece->next = split->pieces;
    if (piece->next)
        piece->next->previous = piece;
    split->pieces = piece;
    split->made++;
    const struct weir__question *parent = split->parent;
    piece->question = (struct weir__question){.asks = parent->asks,
                                              .ask_count = parent->ask_count,
                                              .deadline_us = parent->deadline_us,
                                              .sender = parent->sender,
                                              .batch = parent->batch,
                                              .state = WEIR__Q_PIECE};
    return piece;
}

static void piece_free(struct weir__client *client, struct weir__piece *piece)
{
    if (piece->next)
        piece->next->previous = piece->previous;
    if (piece->previous)
        piece->previous->next = piece->next;
    else
        piece->split->pieces = piece->next;
    piece->next = client->free_pieces;
    client->free_pieces = piece;
}

static struct weir__split *split_new(struct weir__client *client, struct weir__question *parent)
{
    struct weir__split *split = client->free_splits;

    if (split)
        client->free_splits = split->next;
    else
        split = malloc(sizeof(*split));
    if (!split)
        return NULL;
    *split = (struct weir__split){.parent = parent, .next = client->splits};
    if (split->next)
        split->next->previous = split;
    client->splits = split;
    parent->list = split;
    parent->state |= WEIR__Q_SPLIT;
    return split;
}

static void split_free(struct weir__client *client, struct weir__split *split)
{
    if (split->next)
        split->next->previous = split->previous;
    if (split->previous)
        split->previous->next = split->next;
    else
        client->splits = split->next;
    split->parent->list = NULL;
    split->parent->state &= (uint8_t)~WEIR__Q_SPLIT;
    split->next = client->free_splits;
    client->free_splits = split;
}

void weir__split_free_all(struct weir__client *client)
{
    for (struct weir__split *split; (split = client->splits);) {
        while (split->pieces)
            piece_free(client, split->pieces);
        split_free(client, split);
    }
    for (struct weir__split *split; (split = client->free_splits);) {
        client->free_splits = split->next;
        free(split);
    }
    for (struct weir__piece *piece; (piece = client->free_pieces);) {
        client->free_pieces = piece->next;
        free(piece);
    }
}

/* ---- Asking ---- */

static void group_fails(struct weir__split *split, const struct weir__group *group, int error)
{
    for (uint32_t i = 0; i < group->count; i++)
        split->parent->asks[group->first + i].error = error;
    split->made++;
    split->failed++;
    if (!split->error)
        split->error = error;
}

/* Is every server that the group needs let through? Otherwise none is asked. */
static bool group_open(struct weir__client *client, const struct weir__question *parent,
                       const struct weir__group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (!weir__route_open(client, slot_of(client, &parent->asks[group->first + i])))
            return false;
    return true;
}

static void ask_group(struct weir__client *client, struct weir__split *split, const struct weir__group *group)
{
    struct weir__question *parent = split->parent;
    uint32_t end = group->first + group->count;

    if (!group_open(client, parent, group)) {
        group_fails(split, group, WEIR_ESTOREAWAY);
        return;
    }
    for (uint32_t at = group->first, run; at < end; at += run) {
        unsigned slot = slot_of(client, &parent->asks[at]);
        for (run = 1; at + run < end && slot_of(client, &parent->asks[at + run]) == slot;)
            run++;
        struct weir__group own = {.first = at, .count = run, .after_first = group->after_first};
        struct weir__piece *piece = piece_new(client, split);
        if (!piece) {
            group_fails(split, &own, WEIR_ENOMEM);
            continue;
        }
        piece->groups[0] = parent->groups[0];
        piece->groups[1] = own;
        piece->question.groups = piece->groups;
        piece->question.group_count = 2;
        piece->question.slot = (uint16_t)slot;
        weir__route(client, &piece->question);
    }
}

/* A sender's question on one server: the same parts in the same commands each time it is repeated. */
static void ask_in_order(struct weir__client *client, struct weir__split *split)
{
    struct weir__question *parent = split->parent;

    for (uint32_t at = 0, part = 0; at < parent->group_count; at += WEIR__BATCH_GROUPS, part++) {
        uint32_t left = parent->group_count - at, count = left < WEIR__BATCH_GROUPS ? left : WEIR__BATCH_GROUPS;
        struct weir__piece *piece = piece_new(client, split);
        if (!piece) {
            for (uint32_t i = 0; i < count; i++)
                group_fails(split, &parent->groups[at + i], WEIR_ENOMEM);
            continue;
        }
        piece->question.groups = parent->groups + at;
        piece->question.group_count = count;
        piece->question.slot = (uint16_t)part;
        weir__route(client, &piece->question);
    }
}

/* ---- Ends ---- */

static bool passed(const struct weir__question *parent, const struct weir__group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct weir__ask *ask = &parent->asks[group->first + i];
        if (ask->error || !weir_passes(&ask->decision))
            return false;
    }
    return true;
}

/* A group is taken as a whole or not at all. */
static void settle_groups(struct weir__client *client, struct weir__question *parent, bool after_first)
{
    for (uint32_t i = 0; i < parent->group_count; i++) {
        const struct weir__group *group = &parent->groups[i];
        if (group->after_first == after_first && group->count > 1 && !passed(parent, group))
            weir__give_back_asks(client, parent->asks + group->first, group->count);
    }
}

static void end_split(struct weir__client *client, struct weir__split *split)
{
    struct weir__question *parent = split->parent;
    bool repeated = parent->sender && client->options->kind != WEIR__CLUSTER;
    /* A sender repeats all of it: what was carried out is known to the server. */
    int error = split->failed == split->made || (repeated && split->failed > 0) ? split->error : 0;

    split_free(client, split);
    weir__question_end(client, parent, error, false);
}

static bool has_more(const struct weir__question *parent)
{
    for (uint32_t i = 0; i < parent->group_count; i++)
        if (parent->groups[i].after_first)
            return true;
    return false;
}

/* Goes on when nothing is on its way: at most twice, as there are two halves. */
static void advance(struct weir__client *client, struct weir__split *split)
{
    struct weir__question *parent = split->parent;

    if (split->starting || split->pieces)
        return;
    settle_groups(client, parent, split->second);
    if (!split->second && has_more(parent)) {
        split->second = true;
        split->starting = true;
        for (uint32_t i = 0; i < parent->group_count; i++)
            if (parent->groups[i].after_first)
                ask_group(client, split, &parent->groups[i]);
        split->starting = false;
        if (split->pieces)
            return;
        settle_groups(client, parent, true);
    }
    end_split(client, split);
}

void weir__split_begin(struct weir__client *client, struct weir__question *parent)
{
    struct weir__split *split = split_new(client, parent);

    if (!split) {
        weir__question_end(client, parent, WEIR_ENOMEM, true);
        return;
    }
    for (uint32_t i = 0; i < parent->ask_count; i++) {
        parent->asks[i].error = 0;
        parent->asks[i].taken = false;
        parent->asks[i].decision = (weir_decision){0};
    }
    split->starting = true;
    if (parent->sender && parent->sender[0] && client->options->kind != WEIR__CLUSTER)
        ask_in_order(client, split);
    else
        for (uint32_t i = 0; i < parent->group_count; i++)
            if (!parent->groups[i].after_first)
                ask_group(client, split, &parent->groups[i]);
    split->starting = false;
    advance(client, split);
}

void weir__split_piece_ended(struct weir__client *client, struct weir__question *question, int error)
{
    struct weir__piece *piece = piece_of(question);
    struct weir__split *split = piece->split;

    if (error) {
        for (uint32_t i = weir__split_is_run(question) ? 1 : 0; i < question->group_count; i++) {
            const struct weir__group *group = &question->groups[i];
            for (uint32_t j = 0; j < group->count; j++) {
                struct weir__ask *ask = &question->asks[group->first + j];
                ask->error = error;
                ask->taken = false; /* of garbage that was read half */
            }
        }
        split->failed++;
        if (!split->error)
            split->error = error;
    }
    piece_free(client, piece);
    advance(client, split);
}

void weir__split_drop(struct weir__client *client, struct weir__question *parent, bool late)
{
    struct weir__split *split = parent->list;

    split->starting = true; /* pieces that end meanwhile do not make it go on */
    for (struct weir__piece *piece; (piece = split->pieces);) {
        if (late)
            weir__question_late(client, &piece->question);
        weir__question_drop(client, &piece->question);
        if (split->pieces == piece)
            piece_free(client, piece);
    }
    weir__give_back_asks(client, parent->asks, parent->ask_count);
    split_free(client, split);
}
