/* Lists of questions, and their deadlines: a heap, the earliest first. */
#include "remote/client_internal.h"

#include <stdlib.h>

void weir__list_add(struct weir__list *list, struct weir__question *question)
{
    question->list = list;
    question->next = NULL;
    question->previous = list->last;
    if (list->last)
        list->last->next = question;
    else
        list->first = question;
    list->last = question;
    if (list->channel)
        list->channel->in_flight++;
}

void weir__list_remove(struct weir__question *question)
{
    struct weir__list *list = question->list;

    if (question->previous)
        question->previous->next = question->next;
    else
        list->first = question->next;
    if (question->next)
        question->next->previous = question->previous;
    else
        list->last = question->previous;
    if (list->channel)
        list->channel->in_flight--;
    question->list = NULL;
    question->next = question->previous = NULL;
}

void weir__list_replace(struct weir__question *question, struct weir__question *with)
{
    struct weir__list *list = question->list;

    with->list = list;
    with->next = question->next;
    with->previous = question->previous;
    if (with->previous)
        with->previous->next = with;
    else
        list->first = with;
    if (with->next)
        with->next->previous = with;
    else
        list->last = with;
    question->list = NULL;
    question->next = question->previous = NULL;
}

/* A question's `timer` is its place in the heap plus one: 0 is none. */
static void put(struct weir__client *client, uint32_t place, struct weir__question *question)
{
    client->timers[place] = question;
    question->timer = place + 1;
}

static void sift_up(struct weir__client *client, uint32_t place)
{
    struct weir__question *question = client->timers[place];

    while (place > 0) {
        uint32_t above = (place - 1) / 2;
        if (client->timers[above]->deadline_us <= question->deadline_us)
            break;
        put(client, place, client->timers[above]);
        place = above;
    }
    put(client, place, question);
}

static void sift_down(struct weir__client *client, uint32_t place)
{
    struct weir__question *question = client->timers[place];

    for (;;) {
        uint32_t below = place * 2 + 1;
        if (below >= client->timer_count)
            break;
        if (below + 1 < client->timer_count &&
            client->timers[below + 1]->deadline_us < client->timers[below]->deadline_us)
            below++;
        if (client->timers[below]->deadline_us >= question->deadline_us)
            break;
        put(client, place, client->timers[below]);
        place = below;
    }
    put(client, place, question);
}

bool weir__timer_add(struct weir__client *client, struct weir__question *question)
{
    if (client->timer_count == client->timer_size) {
        uint32_t size = client->timer_size ? client->timer_size * 2 : 64;
        struct weir__question **timers =
            (struct weir__question **)realloc((void *)client->timers, size * sizeof(struct weir__question *));
        if (!timers)
            return false;
        client->timers = timers;
        client->timer_size = size;
    }
    put(client, client->timer_count++, question);
    sift_up(client, client->timer_count - 1);
    return true;
}

void weir__timer_remove(struct weir__client *client, struct weir__question *question)
{
    if (question->timer == 0)
        return;
    uint32_t place = question->timer - 1;
    struct weir__question *last = client->timers[--client->timer_count];

    question->timer = 0;
    if (last == question)
        return;
    put(client, place, last);
    sift_up(client, place);
    sift_down(client, last->timer - 1);
}
