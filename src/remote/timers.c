/* Timers: deadlines, connections that hang, probes, retries. */
#include "remote/client_internal.h"

#define STALL_US 1000000 /* without a reply for so long, or for ten deadlines: the connection is closed */

/* ---- Deadlines: a list, earliest first ---- */

void weir__timer_add(struct weir__client *client, struct weir__store_request *request)
{
    struct weir__store_request *before;

    /* From the end: nearly all requests of a client have the same timeout. */
    TAILQ_FOREACH_REVERSE(before, &client->timers, weir__timers, timer)
    if (before->deadline_us <= request->deadline_us)
        break;
    if (before)
        TAILQ_INSERT_AFTER(&client->timers, before, request, timer);
    else
        TAILQ_INSERT_HEAD(&client->timers, request, timer);
    client->timer_count++;
}

void weir__timer_remove(struct weir__client *client, struct weir__store_request *request)
{
    if (!request->timer.tqe_prev)
        return;
    TAILQ_REMOVE(&client->timers, request, timer);
    request->timer.tqe_prev = NULL;
    client->timer_count--;
}

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
    for (struct weir__store_request *request;
         (request = TAILQ_FIRST(&client->timers)) && request->deadline_us <= client->now_us;) {
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
        earlier(&at_us, TAILQ_FIRST(&client->timers)->deadline_us);
    if (client->soon.first)
        earlier(&at_us, client->soon_us);
    if (client->later.first)
        earlier(&at_us, client->later_us);
    for (unsigned i = 0; i < client->nodes_end; i++) {
        if (!client->channels[i].used)
            continue;
        earlier(&at_us, channel_limit(&client->channels[i]));
        earlier(&at_us, client->channels[i].breaker.retry_us);
    }
    earlier(&at_us, channel_limit(&client->channels[WEIR__TOPOLOGY_CHANNEL]));
    earlier(&at_us, weir__topology_due(client));
    return at_us;
}
