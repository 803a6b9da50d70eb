/* Selects the channel of a request, applies its circuit breaker and reports changes of the breaker. */
#include "remote/client_internal.h"

#include <stdio.h>
#include <string.h>

#define SOON_US 3000 /* before a request is sent again after TRYAGAIN */

/* ---- Servers ---- */

static void channel_use(struct weir__channel *channel, const struct weir__store_host *host)
{
    struct weir__client *client = channel->client;
    const struct weir__store_options *options = client->options;

    channel->used = true;
    if (client->nodes_end <= channel->number)
        client->nodes_end = channel->number + 1;
    channel->down = channel->rejects = false;
    channel->active_us = client->now_us;
    channel->host = *host;
    weir__breaker_init(&channel->breaker, options->breaker_failures, options->retry_min_us, options->retry_max_us,
                       weir__next_random(&client->random));
}

struct weir__channel *weir__route_host(struct weir__client *client, const struct weir__store_host *host)
{
    struct weir__channel *unused = NULL;

    for (unsigned i = 0; i < WEIR__NODES; i++) {
        struct weir__channel *channel = &client->channels[i];
        if (!channel->used)
            unused = unused ? unused : channel;
        else if (weir__same_host(&channel->host, host))
            return channel;
    }
    if (unused)
        channel_use(unused, host);
    return unused;
}

struct weir__channel *weir__route_slot(struct weir__client *client, unsigned slot)
{
    if (client->options->kind != WEIR__CLUSTER)
        return &client->channels[0];
    return client->owner[slot] == WEIR__SLOT_NOBODY ? NULL : &client->channels[client->owner[slot]];
}

/* ---- The breaker ---- */

void weir__route_report(struct weir__channel *channel, bool up, int error)
{
    struct weir__client *client = channel->client;
    char where[sizeof(channel->host.name) + 16];

    if (channel->down == !up)
        return;
    channel->down = !up;
    if (channel->host.port)
        snprintf(where, sizeof(where), "%s:%u", channel->host.name, (unsigned)channel->host.port);
    else
        snprintf(where, sizeof(where), "%s", channel->host.name);
    client->driver.changed(client->driver.context, up, error, where);
}

void weir__route_failed(struct weir__channel *channel, int error)
{
    struct weir__client *client = channel->client;

    client->stats.last_error = error;
    if (weir__breaker_failed(&channel->breaker, client->now_us)) {
        client->stats.opened++;
        weir__route_report(channel, false, error);
    }
    weir__topology_want_refresh(client);
}

void weir__route_succeeded(struct weir__channel *channel)
{
    channel->rejects = false;
    if (weir__breaker_succeeded(&channel->breaker))
        weir__route_report(channel, true, 0);
    if (channel->client->stats.state == WEIR__STORE_NEW)
        channel->client->stats.state = WEIR__STORE_UP;
}

/* Connects. With Sentinel the address of the master is resolved first, as it may have changed. */
void weir__route_connect(struct weir__channel *channel)
{
    struct weir__client *client = channel->client;

    if (channel->state != WEIR__CHANNEL_CLOSED)
        return;
    if (client->options->kind == WEIR__SENTINEL) {
        channel->state = WEIR__CHANNEL_RESOLVING;
        weir__topology_refresh(client);
        return;
    }
    weir__channel_open(channel);
}

void weir__route_probe(struct weir__channel *channel)
{
    if (!weir__breaker_probe(&channel->breaker, channel->client->now_us))
        return;
    if (channel->state == WEIR__CHANNEL_READY)
        weir__channel_send(channel, WEIR__COMMAND_PROBE, "PING", NULL, NULL);
    else
        weir__route_connect(channel);
}

/* ---- Requests ---- */

static void refuse(struct weir__client *client, struct weir__store_request *request)
{
    client->stats.refused += (request->state & (WEIR__REQUEST_ORPHAN | WEIR__REQUEST_REFUND | WEIR__REQUEST_SUB)) == 0;
    weir__request_end(client, request, WEIR_ESTOREBREAKER, true);
}

bool weir__route_open(struct weir__client *client, unsigned slot)
{
    const struct weir__channel *channel = weir__route_slot(client, slot);

    if (!channel)
        return client->refreshing || !client->have_map || client->refresh_wanted;
    return channel->breaker.state == WEIR__BREAKER_CLOSED || channel->breaker.state == WEIR__BREAKER_HALF_OPEN;
}

void weir__route_to(struct weir__channel *channel, struct weir__store_request *request)
{
    if (channel->in_flight >= WEIR__IN_FLIGHT || !weir__breaker_allows(&channel->breaker)) {
        refuse(channel->client, request);
        return;
    }
    if (channel->breaker.state == WEIR__BREAKER_HALF_OPEN_BUSY)
        request->state |= WEIR__REQUEST_HALF_OPEN;
    weir__request_list_add(&channel->waiting, request);
    weir__route_connect(channel);
}

void weir__route(struct weir__client *client, struct weir__store_request *request)
{
    struct weir__channel *channel = weir__route_slot(client, request->slot);

    request->state &= (uint8_t) ~(WEIR__REQUEST_IMPORTING | WEIR__REQUEST_HALF_OPEN);
    if (channel) {
        weir__route_to(channel, request);
        return;
    }
    /* While there is no slot map, the breaker of the topology channel is the store's. */
    struct weir__breaker *breaker = &weir__topology_channel(client)->breaker;
    if (breaker->state != WEIR__BREAKER_CLOSED && breaker->state != WEIR__BREAKER_HALF_OPEN) {
        refuse(client, request);
        return;
    }
    weir__request_list_add(&client->unrouted, request);
    weir__topology_want_refresh(client);
}

void weir__route_retry(struct weir__client *client, struct weir__store_request *request)
{
    if (!client->soon.first)
        client->soon_us = client->now_us + SOON_US;
    weir__request_list_add(&client->soon, request);
}
