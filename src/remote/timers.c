/* Timers: deadlines, connections that hang, probes, heartbeats, retries. */
#include "remote/client_internal.h"

#define STALL_US 1000000 /* without a reply for so long, or for ten deadlines: the connection is closed */
#define JITTER   1024    /* steps of a heartbeat's jitter, which is half of its interval */

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
    const struct weir__request_list *list = request->list;
    struct weir__channel *channel = !list                       ? NULL
                                    : list == &client->unrouted ? weir__topology_channel(client)
                                                                : list->channel;

    if (!channel)
        return;
    /* A late reply is one failure, however many requests wait for it. */
    bool *counted = list->command ? &list->command->late : &channel->lost_time;
    if (!*counted && list == &client->unrouted)
        weir__topology_failed(client, WEIR_ESTORESLOW);
    else if (!*counted)
        weir__route_failed(channel, WEIR_ESTORESLOW);
    *counted = true;
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
        return STAILQ_EMPTY(&channel->commands) ? INT64_MAX : STAILQ_FIRST(&channel->commands)->sent_us + stall_us;
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

/*
 * When the server is to be checked although no request asks for it: after heartbeat_us without a reply, and sooner
 * (retry_max) while the connection is lost or failures count, so that the breaker opens and closes in seconds. While it
 * is open, probes check.
 */
static int64_t heartbeat_due(const struct weir__channel *channel)
{
    const struct weir__client *client = channel->client;
    const struct weir__breaker *breaker = &channel->breaker;
    int64_t wait_us = client->driver.heartbeat_us;
    bool ready = channel->state == WEIR__CHANNEL_READY && STAILQ_EMPTY(&channel->commands);

    if (wait_us == 0 || !(ready || channel->state == WEIR__CHANNEL_CLOSED) ||
        (client->options->kind == WEIR__CLUSTER && !channel->listed) ||
        (breaker->state != WEIR__BREAKER_CLOSED && breaker->state != WEIR__BREAKER_HALF_OPEN))
        return INT64_MAX;
    if ((!ready || (breaker->failures > 0 && !channel->rejects)) && client->options->retry_max_us < wait_us)
        wait_us = client->options->retry_max_us;
    return channel->active_us + wait_us / 2 + wait_us / 2 * channel->jitter / JITTER;
}

static void heartbeat(struct weir__channel *channel)
{
    struct weir__client *client = channel->client;

    if (client->now_us < heartbeat_due(channel))
        return;
    channel->active_us = client->now_us;
    channel->jitter = (unsigned)(weir__next_random(&client->random) % JITTER);
    if (channel->state == WEIR__CHANNEL_READY)
        weir__channel_send(channel, WEIR__COMMAND_HEARTBEAT, "PING", NULL, NULL);
    else
        weir__route_connect(channel);
}

static void pass_channels(struct weir__client *client)
{
    for (unsigned i = 0; i < client->nodes_end; i++) {
        if (!client->channels[i].used)
            continue;
        close_if_stalled(&client->channels[i]);
        weir__route_probe(&client->channels[i]);
        heartbeat(&client->channels[i]);
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
    for (struct weir__store_request *request; (request = weir__request_list_take(&all));)
        weir__route(client, request);
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
        earlier(&at_us, heartbeat_due(&client->channels[i]));
    }
    earlier(&at_us, channel_limit(&client->channels[WEIR__TOPOLOGY_CHANNEL]));
    earlier(&at_us, weir__topology_due(client));
    return at_us;
}
