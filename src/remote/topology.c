/*
 * The topology: which server is the master (Sentinel) or owns which slots (Cluster). One more channel, the topology
 * channel, queries it. Also the slot of a key, and parsing of CLUSTER SLOTS, MOVED and ASK.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_US  200000  /* between two queries while a cluster is unhealthy, plus up to as much jitter */
#define CHECK_US  3000000 /* Sentinel: between two checks, which bounds how long a partitioned old master is used */
#define HOSTS_MAX (WEIR__STORE_SEEDS + WEIR__NODES)

static int64_t jitter_us(struct weir__client *client, uint64_t bound_us)
{
    return (int64_t)(weir__next_random(&client->random) % bound_us);
}

/* Lists the hosts to query: the seeds, then the known servers of a cluster. Returns their number. */
static unsigned list_hosts(const struct weir__client *client, const struct weir__store_host *hosts[HOSTS_MAX])
{
    unsigned count = 0;

    for (size_t i = 0; i < client->options->seed_count; i++)
        hosts[count++] = &client->options->seeds[i];
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].used && client->channels[i].listed)
            hosts[count++] = &client->channels[i].host;
    return count;
}

static void try_next_host(struct weir__client *client)
{
    const struct weir__store_host *hosts[HOSTS_MAX];
    unsigned count = list_hosts(client, hosts);

    weir__topology_channel(client)->host = *hosts[client->seed % count];
    weir__channel_open(weir__topology_channel(client));
}

void weir__topology_refresh(struct weir__client *client)
{
    struct weir__channel *topology = weir__topology_channel(client);

    if (client->refreshing)
        return;
    client->refreshing = true;
    client->refresh_wanted = false;
    client->tried = 0;
    client->refresh_us = client->now_us + AGAIN_US + jitter_us(client, AGAIN_US);
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

    if (!topology->client->refreshing)
        return;
    topology->since_us = topology->client->now_us;
    if (options->kind == WEIR__SENTINEL)
        weir__channel_send(topology, WEIR__COMMAND_TOPOLOGY, "SENTINEL", "get-master-addr-by-name", options->master);
    else
        weir__channel_send(topology, WEIR__COMMAND_TOPOLOGY, "CLUSTER", "SLOTS", NULL);
}

/* ---- Results ---- */

/* False: invalid. */
static bool set_host(struct weir__store_host *host, const char *name, size_t len, long long port)
{
    /* A path would be one of a Unix socket: only the configuration names those. */
    if (len == 0 || len >= sizeof(host->name) || memchr(name, '\0', len) || name[0] == '/' || port < 1 || port > 65535)
        return false;
    memcpy(host->name, name, len);
    host->name[len] = '\0';
    host->port = (uint16_t)port;
    return true;
}

static bool read_master(const redisReply *reply, struct weir__store_host *host)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return false;
    return set_host(host, reply->element[0]->str, (size_t)reply->element[0]->len,
                    strtol(reply->element[1]->str, NULL, 10));
}

static void found_master(struct weir__client *client, const struct weir__store_host *host)
{
    struct weir__channel *channel = &client->channels[0];
    bool same = weir__same_host(&channel->host, host);

    client->refreshing = false;
    client->refresh_us = client->now_us + CHECK_US + jitter_us(client, CHECK_US / 4);
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
        for (struct weir__store_request *request; (request = weir__request_list_take(&client->channels[i].waiting));) {
            if (request->state & WEIR__REQUEST_HALF_OPEN)
                weir__breaker_release(&client->channels[i].breaker);
            weir__request_list_add(&all, request);
        }
    weir__request_list_move(&client->unrouted, &all);
    for (struct weir__store_request *request; (request = weir__request_list_take(&all));) {
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
    weir__route_report(topology, true, 0);
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
    if (map && weir__slots_read(reply, topology->host.name, map)) {
        found_map(client, map);
        client->refreshing = false;
        client->seed++;
    }
    free(map);
    /* Each refresh has a connection of its own. If it failed, weir__topology_lost, which this calls, tries the next
     * host. */
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
    weir__route_report(topology, false, error);
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
    struct weir__request_list all = {0};
    weir__request_list_move(&client->unrouted, &all);
    for (struct weir__store_request *request; (request = weir__request_list_take(&all));)
        weir__request_end(client, request, error, true);
}

void weir__topology_lost(struct weir__client *client, int error)
{
    if (!client->refreshing)
        return;
    const struct weir__store_host *hosts[HOSTS_MAX];

    client->seed++;
    if (++client->tried < list_hosts(client, hosts))
        try_next_host(client);
    else
        found_nothing(client, error);
}

static bool is_unhealthy(const struct weir__client *client)
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
    int64_t probe_us = client->channels[WEIR__TOPOLOGY_CHANNEL].breaker.retry_us;

    if (client->options->kind == WEIR__SINGLE || client->refreshing)
        return INT64_MAX;
    if (client->options->kind == WEIR__SENTINEL)
        return client->channels[0].state == WEIR__CHANNEL_READY ? client->refresh_us : INT64_MAX;
    if (!client->refresh_wanted && !is_unhealthy(client))
        return INT64_MAX;
    return probe_us < INT64_MAX && probe_us > client->refresh_us ? probe_us : client->refresh_us;
}

void weir__topology_tick(struct weir__client *client)
{
    if (client->now_us < weir__topology_due(client))
        return;
    (void)weir__breaker_probe(&weir__topology_channel(client)->breaker, client->now_us);
    weir__topology_refresh(client);
}

/* ---- Slots of a cluster ---- */

/* CRC-16/XMODEM, polynomial 0x1021, four bits at a time. */
static uint16_t crc16(const char *data, size_t len)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
                                       0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned byte = (unsigned char)data[i];
        crc = (crc << 4 & 0xffff) ^ table[(crc >> 12) ^ (byte >> 4)];
        crc = (crc << 4 & 0xffff) ^ table[(crc >> 12) ^ (byte & 15)];
    }
    return (uint16_t)crc;
}

unsigned weir__slot(const char *name, size_t len)
{
    const char *open = memchr(name, '{', len);

    if (open) {
        const char *tag = open + 1, *close = memchr(tag, '}', len - (size_t)(tag - name));
        if (close && close > tag)
            return crc16(tag, (size_t)(close - tag)) % WEIR__CLUSTER_SLOTS;
    }
    return crc16(name, len) % WEIR__CLUSTER_SLOTS;
}

static bool read_host(const redisReply *node, const char *queried, struct weir__store_host *host)
{
    if (node->type != REDIS_REPLY_ARRAY || node->elements < 2)
        return false;
    const redisReply *name = node->element[0], *port = node->element[1];
    if (port->type != REDIS_REPLY_INTEGER)
        return false;
    /* Nil and "" stand for the host that was queried; "?" is unknown. */
    if (name->type == REDIS_REPLY_NIL || (name->type == REDIS_REPLY_STRING && name->len == 0))
        return set_host(host, queried, strlen(queried), port->integer);
    return name->type == REDIS_REPLY_STRING && strcmp(name->str, "?") != 0 &&
           set_host(host, name->str, (size_t)name->len, port->integer);
}

static bool read_range(const redisReply *range, const char *queried, struct weir__slot_map *map)
{
    struct weir__store_host host = {0};

    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    long long first = range->element[0]->integer, last = range->element[1]->integer;
    if (first < 0 || last < first || last >= WEIR__CLUSTER_SLOTS || !read_host(range->element[2], queried, &host))
        return false;
    size_t node = 0;
    while (node < map->count && !weir__same_host(&map->nodes[node], &host))
        node++;
    if (node == WEIR__SLOT_NODES)
        return false;
    if (node == map->count)
        map->nodes[map->count++] = host;
    memset(map->owner + first, (int)node, (size_t)(last - first + 1));
    return true;
}

bool weir__slots_read(const struct redisReply *reply, const char *queried, struct weir__slot_map *map)
{
    map->count = 0;
    memset(map->owner, WEIR__SLOT_NOBODY, sizeof(map->owner));
    if (reply->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!read_range(reply->element[i], queried, map))
            return false;
    return map->count > 0;
}

bool weir__slots_redirect(const char *text, const char *queried, unsigned *slot, struct weir__store_host *to)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (end == text || *end != ' ' || number >= WEIR__CLUSTER_SLOTS)
        return false;
    const char *host = end + 1, *colon = strrchr(host, ':');
    if (!colon)
        return false;
    size_t len = (size_t)(colon - host);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || port > 65535 || memchr(host, ' ', len))
        return false;
    *slot = (unsigned)number;
    return set_host(to, len ? host : queried, len ? len : strlen(queried), (long long)port);
}
