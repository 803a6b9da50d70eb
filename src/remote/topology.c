/*
 * The topology: which server is the master (Sentinel) or owns which slots (Cluster). One more channel, the topology
 * channel, queries it.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_US 200000  /* between two queries while a cluster is unhealthy, plus up to as much jitter */
#define CHECK_US 3000000 /* Sentinel: between two checks, which bounds how long a partitioned old master is used */

static unsigned host_count(const struct weir__client *client)
{
    unsigned count = (unsigned)client->options->seed_count;

    if (client->options->kind == WEIR__CLUSTER)
        for (unsigned i = 0; i < client->nodes_end; i++)
            count += client->channels[i].used && client->channels[i].listed;
    return count;
}

/* Hosts to query: the seeds, then the known servers. */
static const struct weir__store_host *host_at(const struct weir__client *client, unsigned number)
{
    unsigned count = (unsigned)client->options->seed_count;

    if (number < count)
        return &client->options->seeds[number];
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].used && client->channels[i].listed && count++ == number)
            return &client->channels[i].host;
    return &client->options->seeds[0];
}

static void try_next_host(struct weir__client *client)
{
    struct weir__channel *topology = weir__topology_channel(client);

    topology->host = *host_at(client, client->seed % host_count(client));
    weir__channel_open(topology);
}

void weir__topology_refresh(struct weir__client *client)
{
    struct weir__channel *topology = weir__topology_channel(client);

    if (client->refreshing)
        return;
    client->refreshing = true;
    client->refresh_wanted = false;
    client->tried = 0;
    client->refresh_us = client->now_us + AGAIN_US + (int64_t)weir__client_random(client, AGAIN_US);
    if (topology->state == WEIR__CHANNEL_READY)
        weir__topology_query(topology);
    else
        try_next_host(client);
}

void weir__topology_want_refresh(struct weir__client *client)
{
    if (client->options->kind == WEIR__SINGLE || client->refreshing)
        return;
    client->refresh_wanted = true;
    if (client->options->kind == WEIR__CLUSTER)
        weir__topology_tick(client);
}

void weir__topology_query(struct weir__channel *topology)
{
    const struct weir__store_options *options = topology->client->options;
    const char *master[] = {"SENTINEL", "get-master-addr-by-name", options->master}, *slots[] = {"CLUSTER", "SLOTS"};

    if (!topology->client->refreshing)
        return;
    topology->since_us = topology->client->now_us;
    if (options->kind == WEIR__SENTINEL)
        (void)weir__channel_send(topology, WEIR__COMMAND_TOPOLOGY, master, 3);
    else
        (void)weir__channel_send(topology, WEIR__COMMAND_TOPOLOGY, slots, 2);
}

/* ---- Results ---- */

static bool read_master(const redisReply *reply, struct weir__store_host *host)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return false;
    const redisReply *name = reply->element[0];
    long port = strtol(reply->element[1]->str, NULL, 10);
    if (name->len == 0 || (size_t)name->len >= sizeof(host->name) || memchr(name->str, '\0', (size_t)name->len) ||
        port < 1 || port > 65535)
        return false;
    memcpy(host->name, name->str, (size_t)name->len + 1);
    host->port = (uint16_t)port;
    return true;
}

static void found_master(struct weir__client *client, const struct weir__store_host *host)
{
    struct weir__channel *channel = &client->channels[0];
    bool same = channel->host.port == host->port && strcmp(channel->host.name, host->name) == 0;

    client->refreshing = false;
    client->refresh_us = client->now_us + CHECK_US + (int64_t)weir__client_random(client, CHECK_US / 4);
    if (channel->state == WEIR__CHANNEL_RESOLVING) {
        channel->host = *host;
        weir__channel_open(channel);
    } else if (!same && channel->state == WEIR__CHANNEL_READY) {
        weir__channel_finish(channel); /* the next request resolves the master again */
    } else if (!same && channel->state != WEIR__CHANNEL_CLOSED && channel->state != WEIR__CHANNEL_DRAINING) {
        weir__channel_close(channel, WEIR_ESTOREDOWN, false);
    }
}

/* Routes all requests anew that wait for a server and have not been sent. */
static void route_all_again(struct weir__client *client)
{
    struct weir__request_list all = {0};

    for (unsigned i = 0; i < client->nodes_end; i++)
        for (struct weir__store_request *request; (request = client->channels[i].waiting.first);) {
            if (request->state & WEIR__REQUEST_HALF_OPEN)
                weir__breaker_release(&client->channels[i].breaker);
            weir__request_list_remove(request);
            weir__request_list_add(&all, request);
        }
    for (struct weir__store_request *request; (request = client->unrouted.first);) {
        weir__request_list_remove(request);
        weir__request_list_add(&all, request);
    }
    for (struct weir__store_request *request; (request = all.first);) {
        weir__request_list_remove(request);
        if (request->state & WEIR__REQUEST_REFUND && client->now_us >= request->deadline_us)
            weir__request_end(client, request, WEIR_ESTORESLOW, true);
        else if (!weir__route_slot(client, request->slot))
            weir__request_list_add(&client->unrouted, request); /* until the next slot map, or its deadline */
        else
            weir__route(client, request);
    }
    for (unsigned i = 0; i < client->nodes_end; i++)
        weir__channel_flush(&client->channels[i]);
}

static void found_map(struct weir__client *client, const struct weir__slot_map *map)
{
    struct weir__channel *of[WEIR__SLOT_NODES], *topology = weir__topology_channel(client);

    for (unsigned i = 0; i < client->nodes_end; i++)
        client->channels[i].listed = false;
    /* Known servers first, so that they keep their channels. */
    for (size_t i = 0; i < map->count; i++) {
        of[i] = weir__route_host(client, &map->nodes[i]);
        if (of[i])
            of[i]->listed = true;
    }
    for (unsigned slot = 0; slot < WEIR__CLUSTER_SLOTS; slot++) {
        uint8_t node = map->owner[slot];
        client->owner[slot] = node == WEIR__SLOT_NOBODY || !of[node] ? WEIR__SLOT_NOBODY : (uint8_t)of[node]->number;
    }
    client->have_map = true;
    client->refreshing = false;
    weir__breaker_probed(&topology->breaker);
    (void)weir__breaker_succeeded(&topology->breaker);
    if (topology->down)
        client->driver.changed(client->driver.context, true, 0, topology->host.name);
    topology->down = false;
    route_all_again(client);
    for (unsigned i = 0; i < client->nodes_end; i++) {
        struct weir__channel *channel = &client->channels[i];
        if (!channel->used || channel->listed || channel->in_flight > 0)
            continue;
        weir__channel_close(channel, WEIR_ESTOREDOWN, false);
        channel->used = false;
        weir__route_report(channel, true, 0); /* its slots have other owners now, so that nothing is unavailable */
    }
}

void weir__topology_reply(struct weir__channel *topology, const redisReply *reply)
{
    struct weir__client *client = topology->client;
    struct weir__store_host host = {0};
    struct weir__slot_map *map;

    if (client->options->kind == WEIR__SENTINEL) {
        if (read_master(reply, &host))
            found_master(client, &host);
        else
            weir__channel_close(topology, WEIR_ESTOREDOWN,
                                false); /* this sentinel does not know the master: query the next one */
        return;
    }
    map = malloc(sizeof(*map));
    bool good = map && weir__slots_read(reply, topology->host.name, map);
    if (good)
        found_map(client, map);
    free(map);
    if (good) {
        client->refreshing = false;
        client->seed++;
    }
    weir__channel_close(topology,
                        reply->type == REDIS_REPLY_ERROR ? weir__store_error(reply->str, (size_t)reply->len)
                                                         : WEIR_ESTOREGARBAGE,
                        false);
}

/* ---- Failures ---- */

void weir__topology_failed(struct weir__client *client, int error)
{
    struct weir__channel *topology = weir__topology_channel(client);

    client->stats.last_error = error;
    if (!weir__breaker_failed(&topology->breaker, client->now_us) || client->have_map)
        return;
    client->stats.opened++;
    topology->down = true;
    client->driver.changed(client->driver.context, false, error, topology->host.name);
}

static void found_nothing(struct weir__client *client, int error)
{
    struct weir__channel *master = &client->channels[0];

    client->refreshing = false;
    client->refresh_wanted = true;
    if (client->options->kind == WEIR__SENTINEL) {
        if (master->state == WEIR__CHANNEL_RESOLVING)
            weir__channel_close(master, error, false);
        return;
    }
    weir__topology_failed(client, error);
    if (client->have_map)
        return;
    struct weir__request_list all = client->unrouted;
    client->unrouted.first = client->unrouted.last = NULL;
    for (struct weir__store_request *request = all.first, *next; request; request = next) {
        next = request->next;
        request->list = NULL;
        weir__request_end(client, request, error, true);
    }
}

void weir__topology_lost(struct weir__client *client, int error)
{
    if (!client->refreshing)
        return;
    client->seed++;
    if (++client->tried < host_count(client))
        try_next_host(client);
    else
        found_nothing(client, error);
}

static bool cluster_ails(const struct weir__client *client)
{
    if (client->unrouted.first || !client->have_map)
        return true;
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].listed && client->channels[i].breaker.state != WEIR__BREAKER_CLOSED)
            return true;
    return false;
}

int64_t weir__topology_due(const struct weir__client *client)
{
    const struct weir__breaker *breaker = &client->channels[WEIR__TOPOLOGY_CHANNEL].breaker;
    int64_t probe_us = weir__breaker_due(breaker);

    if (client->options->kind == WEIR__SINGLE || client->refreshing)
        return INT64_MAX;
    if (client->options->kind == WEIR__SENTINEL)
        return client->channels[0].state == WEIR__CHANNEL_READY ? client->refresh_us : INT64_MAX;
    if (!client->refresh_wanted && !cluster_ails(client))
        return INT64_MAX;
    return breaker->state == WEIR__BREAKER_OPEN && probe_us > client->refresh_us ? probe_us : client->refresh_us;
}

void weir__topology_tick(struct weir__client *client)
{
    if (client->now_us < weir__topology_due(client))
        return;
    (void)weir__breaker_probe(&weir__topology_channel(client)->breaker, client->now_us);
    weir__topology_refresh(client);
}
