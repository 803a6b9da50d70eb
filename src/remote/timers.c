/* Timers: deadlines, connections that hang, probes, retries. */
#include "remote/client_internal.h"

#include <stdlib.h>

#define STALL_US 1000000 /* without a reply for so long, or for ten deadlines: the connection is closed */

/* ---- The heap of deadlines, earliest first ---- */

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

/* ---- Deadlines ---- */

void weir__request_timed_out(struct weir__client *client, struct weir__store_request *request)
{
    struct weir__request_list *list = request->list;

    if (!list)
        return;
    if (list == &client->unrouted) {
        if (!weir__topology_channel(client)->lost_time)
            weir__topology_failed(client, WEIR_ESTORESLOW);
        weir__topology_channel(client)->lost_time = true;
    } else if (list->command) {
        /* A late reply is one failure, however many requests wait for it. */
        if (!list->command->late)
            weir__route_failed(list->channel, WEIR_ESTORESLOW);
        list->command->late = true;
    } else if (list->channel) {
        if (!list->channel->lost_time)
            weir__route_failed(list->channel, WEIR_ESTORESLOW);
        list->channel->lost_time = true;
    }
}

static void pass_deadlines(struct weir__client *client)
{
    for (unsigned i = 0; i < client->nodes_end; i++)
        client->channels[i].lost_time = false;
    weir__topology_channel(client)->lost_time = false;
    while (client->timer_count > 0 && client->timers[0]->deadline_us <= client->now_us) {
        struct weir__store_request *request = client->timers[0];
        weir__timer_remove(client, request);
        if (request->state & WEIR__REQUEST_SPLIT) {
            weir__split_drop(client, request, true);
        } else {
            weir__request_timed_out(client, request);
            weir__request_detach(client, request);
        }
        weir__request_end(client, request, WEIR_ESTORESLOW, false);
    }
}

/* ---- Channels ---- */

/* When the channel exceeds the time for its present state. */
static int64_t channel_limit(const struct weir__channel *channel)
{
    const struct weir__store_options *options = channel->client->options;
    int64_t connect_us = options->connect_us,
            stall_us = options->deadline_us > STALL_US / 10 ? options->deadline_us * 10 : STALL_US;

    /* The topology can be queried elsewhere, so its timeout is shorter. */
    if (channel->number == WEIR__TOPOLOGY_CHANNEL)
        connect_us = stall_us = connect_us / 4 + 50000;
    switch (channel->state) {
    case WEIR__CHANNEL_CONNECTING:
    case WEIR__CHANNEL_HANDSHAKE:
        return channel->since_us + connect_us;
    case WEIR__CHANNEL_READY:
    case WEIR__CHANNEL_DRAINING:
        return channel->first ? channel->first->sent_us + stall_us : INT64_MAX;
    default:
        return INT64_MAX;
    }
}

static void close_if_stalled(struct weir__channel *channel)
{
    if (channel_limit(channel) <= channel->client->now_us)
        weir__channel_close(channel, channel->state == WEIR__CHANNEL_CONNECTING ? WEIR_ESTOREDOWN : WEIR_ESTORESLOW,
                            false);
}

static void pass_channels(struct weir__client *client)
{
    for (unsigned i = 0; i < client->nodes_end; i++) {
        if (!client->channels[i].used)
            continue;
        close_if_stalled(&client->channels[i]);
        weir__route_probe(&client->channels[i]);
    }
    close_if_stalled(weir__topology_channel(client));
}

/* ---- Retries ---- */

static void route_list(struct weir__client *client, struct weir__request_list *list, int64_t at_us)
{
    struct weir__request_list all = {0};

    if (!list->first || client->now_us < at_us)
        return;
    /* Requests that are added meanwhile wait for the next time. */
    weir__request_list_move(list, &all);
    for (struct weir__store_request *request; (request = all.first);) {
        weir__request_list_remove(request);
        weir__route(client, request);
    }
}

void weir__client_pass_time(struct weir__client *client)
{
    pass_deadlines(client);
    pass_channels(client);
    weir__topology_tick(client);
    route_list(client, &client->soon, client->soon_us);
    route_list(client, &client->later, client->later_us);
}

static void earlier(int64_t *at_us, int64_t than_us)
{
    if (than_us < *at_us)
        *at_us = than_us;
}

int64_t weir__client_next_time(const struct weir__client *client)
{
    int64_t at_us = INT64_MAX;

    if (client->finished.first)
        return client->now_us;
    if (client->timer_count > 0)
        earlier(&at_us, client->timers[0]->deadline_us);
    if (client->soon.first)
        earlier(&at_us, client->soon_us);
    if (client->later.first)
        earlier(&at_us, client->later_us);
    for (unsigned i = 0; i < client->nodes_end; i++) {
        if (!client->channels[i].used)
            continue;
        earlier(&at_us, channel_limit(&client->channels[i]));
        earlier(&at_us, weir__breaker_due(&client->channels[i].breaker));
    }
    earlier(&at_us, channel_limit(&client->channels[WEIR__TOPOLOGY_CHANNEL]));
    earlier(&at_us, weir__topology_due(client));
    return at_us;
}
