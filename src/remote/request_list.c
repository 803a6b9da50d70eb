/* Lists of requests, and the heap of their deadlines, earliest first. */
#include "remote/client_internal.h"

#include <stdlib.h>

void weir__request_list_add(struct weir__request_list *list, struct weir__store_request *request)
{
    request->list = list;
    request->next = NULL;
    request->previous = list->last;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
    if (list->channel)
        list->channel->in_flight++;
}

void weir__request_list_remove(struct weir__store_request *request)
{
    struct weir__request_list *list = request->list;

    if (request->previous)
        request->previous->next = request->next;
    else
        list->first = request->next;
    if (request->next)
        request->next->previous = request->previous;
    else
        list->last = request->previous;
    if (list->channel)
        list->channel->in_flight--;
    request->list = NULL;
    request->next = request->previous = NULL;
}

void weir__request_list_replace(struct weir__store_request *request, struct weir__store_request *with)
{
    struct weir__request_list *list = request->list;

    with->list = list;
    with->next = request->next;
    with->previous = request->previous;
    if (with->previous)
        with->previous->next = with;
    else
        list->first = with;
    if (with->next)
        with->next->previous = with;
    else
        list->last = with;
    request->list = NULL;
    request->next = request->previous = NULL;
}

/* request->timer is its index in the heap plus one; 0: not in the heap. */
static void put(struct weir__client *client, uint32_t place, struct weir__store_request *request)
{
    client->timers[place] = request;
    request->timer = place + 1;
}

static void sift_up(struct weir__client *client, uint32_t place)
{
    struct weir__store_request *request = client->timers[place];

    while (place > 0) {
        uint32_t above = (place - 1) / 2;
        if (client->timers[above]->deadline_us <= request->deadline_us)
            break;
        put(client, place, client->timers[above]);
        place = above;
    }
    put(client, place, request);
}

static void sift_down(struct weir__client *client, uint32_t place)
{
    struct weir__store_request *request = client->timers[place];

    for (;;) {
        uint32_t below = place * 2 + 1;
        if (below >= client->timer_count)
            break;
        if (below + 1 < client->timer_count &&
            client->timers[below + 1]->deadline_us < client->timers[below]->deadline_us)
            below++;
        if (client->timers[below]->deadline_us >= request->deadline_us)
            break;
        put(client, place, client->timers[below]);
        place = below;
    }
    put(client, place, request);
}

bool weir__timer_add(struct weir__client *client, struct weir__store_request *request)
{
    if (client->timer_count == client->timer_size) {
        uint32_t size = client->timer_size ? client->timer_size * 2 : 64;
        struct weir__store_request **timers =
            (struct weir__store_request **)realloc((void *)client->timers, size * sizeof(struct weir__store_request *));
        if (!timers)
            return false;
        client->timers = timers;
        client->timer_size = size;
    }
    put(client, client->timer_count++, request);
    sift_up(client, client->timer_count - 1);
    return true;
}

void weir__timer_remove(struct weir__client *client, struct weir__store_request *request)
{
    if (request->timer == 0)
        return;
    uint32_t place = request->timer - 1;
    struct weir__store_request *last = client->timers[--client->timer_count];

    request->timer = 0;
    if (last == request)
        return;
    put(client, place, last);
    sift_up(client, place);
    sift_down(client, last->timer - 1);
}
