/*
 * How questions end, and the client's own: copies of those whose owner waits no longer, and those that give back. What
 * may have been carried out is never asked again, neither takes nor what is given back: it would count twice. Leases of
 * requests in flight have names of their own, so these are given back as often as it takes, and also if it is not known
 * whether they were taken.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define BACK_US   (INT64_C(5) * 1000000) /* how long something is tried to be given back */
#define LATER_US  100000                 /* between the tries */
#define OWN_MAX   65536                  /* so many at once: beyond it, what was taken stays taken */
#define LEAVES(q) ((q)->state &= (uint8_t) ~(WEIR__Q_ASKING | WEIR__Q_TRIAL))

/* One piece of memory: the question, its asks, its groups. */
static struct weir__question *own_new(struct weir__client *client, uint32_t asks, uint32_t groups, uint8_t state)
{
    struct weir__own {
        struct weir__question question;
        struct weir__ask asks[];
    } * own;

    if (client->own_count >= OWN_MAX)
        return NULL;
    own = malloc(sizeof(*own) + asks * sizeof(struct weir__ask) + groups * sizeof(struct weir__group));
    if (!own)
        return NULL;
    client->own_count++;
    own->question = (struct weir__question){.asks = own->asks,
                                            .ask_count = asks,
                                            .groups = (struct weir__group *)(void *)(own->asks + asks),
                                            .group_count = groups,
                                            .state = state};
    return &own->question;
}

void weir__own_free(struct weir__client *client, struct weir__question *question)
{
    client->own_count--;
    free(question);
}

/* ---- Giving back ---- */

static bool is_lease(const struct weir__ask *ask)
{
    return ask->limit.algorithm == WEIR_CONCURRENCY;
}

static bool was_taken(const struct weir__ask *ask)
{
    return ask->taken && !ask->stays && ask->cost > 0 && (ask->how == WEIR__ASK_TAKE || ask->how == WEIR__ASK_CHARGE);
}

static bool may_be_taken(const struct weir__ask *ask)
{
    return is_lease(ask) && ask->cost > 0 && ask->how == WEIR__ASK_TAKE;
}

static void try_later(struct weir__client *client, struct weir__question *back)
{
    if (!client->later.first)
        client->later_us = client->now_us + LATER_US;
    back->tries = 0;
    weir__list_add(&client->later, back);
}

/* A question that gives back those of asks[from …] that are to be, as many as go with one command; NULL: none, or no
 * memory. *end is where to go on. */
static struct weir__question *back_for(struct weir__client *client, const struct weir__ask *asks, uint32_t from,
                                       uint32_t count, bool (*which)(const struct weir__ask *ask), uint32_t *end)
{
    uint32_t most = client->options->kind == WEIR__CLUSTER ? 1 : WEIR__BATCH_GROUPS, some = 0;

    for (*end = from; *end < count && some < most; ++*end)
        some += which(&asks[*end]);
    struct weir__question *back = some > 0 ? own_new(client, some, some, WEIR__Q_BACK) : NULL;
    if (!back)
        return NULL;
    for (uint32_t i = from, to = 0; i < *end; i++) {
        if (!which(&asks[i]))
            continue;
        back->asks[to] = asks[i];
        back->asks[to].how = WEIR__ASK_REFUND;
        back->groups[to] = (struct weir__group){.first = to, .count = 1};
        to++;
    }
    back->deadline_us = client->now_us + BACK_US;
    if (client->options->kind == WEIR__CLUSTER)
        back->slot = (uint16_t)weir__slot(back->asks[0].name, back->asks[0].name_len);
    return back;
}

void weir__give_back(struct weir__client *client, const struct weir__ask *asks, uint32_t count)
{
    for (uint32_t at = 0; at < count;) {
        struct weir__question *back = back_for(client, asks, at, count, was_taken, &at);
        if (back)
            weir__route(client, back);
    }
}

void weir__give_back_asks(struct weir__client *client, struct weir__ask *asks, uint32_t count)
{
    weir__give_back(client, asks, count);
    for (uint32_t i = 0; i < count; i++)
        asks[i].taken = asks[i].taken && !was_taken(&asks[i]);
}

/* Not at once: whoever calls is just shutting the channel. */
void weir__give_back_doubtful(struct weir__client *client, const struct weir__question *question)
{
    for (uint32_t i = weir__split_is_run(question) ? 1 : 0; i < question->group_count; i++) {
        const struct weir__group *group = &question->groups[i];
        for (uint32_t at = 0; at < group->count;) {
            struct weir__question *back =
                back_for(client, question->asks + group->first, at, group->count, may_be_taken, &at);
            if (back)
                try_later(client, back);
        }
    }
}

/* ---- Ends ---- */

static bool may_repeat(const struct weir__question *question)
{
    for (uint32_t i = 0; i < question->ask_count; i++)
        if (!is_lease(&question->asks[i]))
            return false;
    return true;
}

static void back_ended(struct weir__client *client, struct weir__question *question, int error, bool sure)
{
    if (!error) {
        client->stats.gave_back += question->ask_count;
        weir__own_free(client, question);
    } else if ((sure || may_repeat(question)) && client->now_us < question->deadline_us) {
        try_later(client, question);
    } else {
        weir__own_free(client, question);
    }
}

void weir__question_end(struct weir__client *client, struct weir__question *question, int error, bool sure)
{
    LEAVES(question);
    if (question->state & WEIR__Q_BACK) {
        back_ended(client, question, error, sure);
        return;
    }
    if (question->state & WEIR__Q_GHOST) {
        if (!error)
            weir__give_back_asks(client, question->asks, question->ask_count);
        weir__own_free(client, question);
        return;
    }
    if (question->state & WEIR__Q_PIECE) {
        weir__split_piece_ended(client, question, error);
        return;
    }
    weir__timer_remove(client, question);
    if (question->plain)
        question->plain->unsure = error && !sure;
    question->error = error;
    question->state = WEIR__Q_DONE;
    if (error) {
        client->stats.failed++;
        client->stats.slow += error == WEIR_ESTORESLOW;
    } else {
        client->stats.answered++;
    }
    weir__list_add(&client->finished, question);
}

/* ---- Ghosts ---- */

static int read_nothing(struct weir__question *question, const redisReply *reply)
{
    (void)question;
    (void)reply;
    return 0;
}

/* What is left of a plain question: its reply comes, and nobody wants it. Nothing of it is ever written to. */
static struct weir__plain unwanted = {.read = read_nothing};

bool weir__question_ghost(struct weir__client *client, struct weir__question *question)
{
    /* Of a run only its own asks: the first group belongs to others. */
    uint32_t from = weir__split_is_run(question) ? 1 : 0, asks = 0, at = 0;

    for (uint32_t i = from; i < question->group_count; i++)
        asks += question->groups[i].count;
    struct weir__question *ghost = own_new(client, asks, question->group_count - from, WEIR__Q_GHOST);
    if (!ghost)
        return false;
    for (uint32_t i = from; i < question->group_count; i++) {
        const struct weir__group *group = &question->groups[i];
        ghost->groups[i - from] = (struct weir__group){.first = at, .count = group->count};
        memcpy(ghost->asks + at, question->asks + group->first, group->count * sizeof(struct weir__ask));
        at += group->count;
    }
    ghost->plain = question->plain ? &unwanted : NULL;
    ghost->slot = question->slot;
    ghost->tries = question->tries;
    weir__list_replace(question, ghost);
    return true;
}

void weir__question_drop(struct weir__client *client, struct weir__question *question)
{
    struct weir__list *list = question->list;

    if (!list)
        return;
    if (list->command) {
        struct weir__channel *channel = list->channel;
        if (weir__question_ghost(client, question))
            return;
        /* No memory for the copy that the answer would be read into: then nothing is read. */
        weir__list_remove(question);
        weir__channel_shut(channel, WEIR_ENOMEM, false);
        return;
    }
    if (question->state & WEIR__Q_TRIAL && list->channel)
        weir__breaker_untried(&list->channel->breaker);
    LEAVES(question);
    weir__list_remove(question);
}
