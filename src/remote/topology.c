/*
 * The guide: one more channel that asks where the others should go. With Sentinel: which server is the master. In a
 * cluster: who owns which slots.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_US 200000  /* between looks in a cluster that changes */
#define CHECK_US 3000000 /* Sentinel: how long a master that was replaced behind a partition may be taken for one */

static unsigned places(const struct weir__client *client)
{
    unsigned count = (unsigned)client->options->seed_count;

    if (client->options->kind == WEIR__CLUSTER)
        for (unsigned i = 0; i < client->nodes_end; i++)
            count += client->channels[i].used && client->channels[i].listed;
    return count;
}

/* The seeds, then the servers that are known. */
static const struct weir__store_host *place(const struct weir__client *client, unsigned number)
{
    unsigned count = (unsigned)client->options->seed_count;

    if (number < count)
        return &client->options->seeds[number];
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].used && client->channels[i].listed && count++ == number)
            return &client->channels[i].host;
    return &client->options->seeds[0];
}

static void try_place(struct weir__client *client)
{
    struct weir__channel *guide = weir__guide(client);

    guide->host = *place(client, client->seed % places(client));
    weir__channel_open(guide);
}

void weir__guide_look(struct weir__client *client)
{
    struct weir__channel *guide = weir__guide(client);

    if (client->looking)
        return;
    client->looking = true;
    client->wanted = false;
    client->tried = 0;
    client->look_us = client->now_us + AGAIN_US + (int64_t)weir__client_random(client, AGAIN_US);
    if (guide->state == WEIR__READY)
        weir__guide_ready(guide);
    else
        try_place(client);
}

void weir__guide_want(struct weir__client *client)
{
    if (client->options->kind == WEIR__SINGLE || client->looking)
        return;
    client->wanted = true;
    if (client->options->kind == WEIR__CLUSTER)
        weir__guide_tick(client);
}

void weir__guide_ready(struct weir__channel *guide)
{
    const struct weir__store_options *options = guide->client->options;
    const char *master[] = {"SENTINEL", "get-master-addr-by-name", options->master}, *slots[] = {"CLUSTER", "SLOTS"};

    if (!guide->client->looking)
        return;
    guide->since_us = guide->client->now_us;
    if (options->kind == WEIR__SENTINEL)
        (void)weir__channel_say(guide, WEIR__SAY_WHERE, master, 3);
    else
        (void)weir__channel_say(guide, WEIR__SAY_WHERE, slots, 2);
}

/* ---- What it found ---- */

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

    client->looking = false;
    client->look_us = client->now_us + CHECK_US + (int64_t)weir__client_random(client, CHECK_US / 4);
    if (channel->state == WEIR__LOOKING) {
        channel->host = *host;
        weir__channel_open(channel);
    } else if (!same && channel->state == WEIR__READY) {
        weir__channel_drain(channel); /* the next question asks again for the master */
    } else if (!same && channel->state != WEIR__SHUT && channel->state != WEIR__DRAINING) {
        weir__channel_shut(channel, WEIR_ESTOREDOWN, false);
    }
}

/* Whoever waits for a server, and has not been sent, is asked for anew. */
static void route_all_again(struct weir__client *client)
{
    struct weir__list all = {0};

    for (unsigned i = 0; i < client->nodes_end; i++)
        for (struct weir__question *question; (question = client->channels[i].waiting.first);) {
            if (question->state & WEIR__Q_TRIAL)
                weir__breaker_untried(&client->channels[i].breaker);
            weir__list_remove(question);
            weir__list_add(&all, question);
        }
    for (struct weir__question *question; (question = client->homeless.first);) {
        weir__list_remove(question);
        weir__list_add(&all, question);
    }
    for (struct weir__question *question; (question = all.first);) {
        weir__list_remove(question);
        if (question->state & WEIR__Q_BACK && client->now_us >= question->deadline_us)
            weir__question_end(client, question, WEIR_ESTORESLOW, true);
        else if (!weir__route_slot(client, question->slot))
            weir__list_add(&client->homeless, question); /* until the next map, or its deadline */
        else
            weir__route(client, question);
    }
    for (unsigned i = 0; i < client->nodes_end; i++)
        weir__channel_flush(&client->channels[i]);
}

static void found_map(struct weir__client *client, const struct weir__slot_map *map)
{
    struct weir__channel *of[WEIR__SLOT_NODES], *guide = weir__guide(client);

    for (unsigned i = 0; i < client->nodes_end; i++)
        client->channels[i].listed = false;
    /* Those that are known first, so that they keep their places. */
    for (size_t i = 0; i < map->count; i++) {
        of[i] = weir__route_host(client, &map->nodes[i]);
        if (of[i])
            of[i]->listed = true;
    }
    for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
        uint8_t node = map->owner[slot];
        client->owner[slot] = node == WEIR__SLOT_NOBODY || !of[node] ? WEIR__SLOT_NOBODY : (uint8_t)of[node]->number;
    }
    client->have_map = true;
    client->looking = false;
    weir__breaker_greeted(&guide->breaker);
    (void)weir__breaker_succeeded(&guide->breaker);
    if (guide->down)
        client->driver.changed(client->driver.context, true, 0, guide->host.name);
    guide->down = false;
    route_all_again(client);
    for (unsigned i = 0; i < client->nodes_end; i++) {
        struct weir__channel *channel = &client->channels[i];
        if (!channel->used || channel->listed || channel->in_flight > 0)
            continue;
        weir__channel_shut(channel, WEIR_ESTOREDOWN, false);
        channel->used = false;
        weir__route_tell(channel, true, 0); /* nothing is missing any more: others have its slots */
    }
}

void weir__guide_reply(struct weir__channel *guide, const redisReply *reply)
{
    struct weir__client *client = guide->client;
    struct weir__store_host host = {0};
    struct weir__slot_map *map;

    if (client->options->kind == WEIR__SENTINEL) {
        if (read_master(reply, &host))
            found_master(client, &host);
        else
            weir__channel_shut(guide, WEIR_ESTOREDOWN, false); /* this one knows no such master: the next */
        return;
    }
    map = malloc(sizeof(*map));
    bool good = map && weir__slots_read(reply, guide->host.name, map);
    if (good)
        found_map(client, map);
    free(map);
    if (good) {
        client->looking = false;
        client->seed++;
    }
    weir__channel_shut(guide,
                       reply->type == REDIS_REPLY_ERROR ? weir__store_error(reply->str, (size_t)reply->len)
                                                        : WEIR_ESTOREGARBAGE,
                       false);
}

/* ---- What it did not find ---- */

void weir__guide_failed(struct weir__client *client, int error)
{
    struct weir__channel *guide = weir__guide(client);

    client->stats.last_error = error;
    if (!weir__breaker_failed(&guide->breaker, client->now_us) || client->have_map)
        return;
    client->stats.opened++;
    guide->down = true;
    client->driver.changed(client->driver.context, false, error, guide->host.name);
}

static void found_nothing(struct weir__client *client, int error)
{
    struct weir__channel *master = &client->channels[0];

    client->looking = false;
    client->wanted = true;
    if (client->options->kind == WEIR__SENTINEL) {
        if (master->state == WEIR__LOOKING)
            weir__channel_shut(master, error, false);
        return;
    }
    weir__guide_failed(client, error);
    if (client->have_map)
        return;
    struct weir__list all = client->homeless;
    client->homeless.first = client->homeless.last = NULL;
    for (struct weir__question *question = all.first, *next; question; question = next) {
        next = question->next;
        question->list = NULL;
        weir__question_end(client, question, error, true);
    }
}

void weir__guide_lost(struct weir__client *client, int error)
{
    if (!client->looking)
        return;
    client->seed++;
    if (++client->tried < places(client))
        try_place(client);
    else
        found_nothing(client, error);
}

static bool cluster_ails(const struct weir__client *client)
{
    if (client->homeless.first || !client->have_map)
        return true;
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].listed && client->channels[i].breaker.state != WEIR__BREAKER_CLOSED)
            return true;
    return false;
}

int64_t weir__guide_due(const struct weir__client *client)
{
    const struct weir__breaker *breaker = &client->channels[WEIR__GUIDE].breaker;
    int64_t probe_us = weir__breaker_due(breaker);

    if (client->options->kind == WEIR__SINGLE || client->looking)
        return INT64_MAX;
    if (client->options->kind == WEIR__SENTINEL)
        return client->channels[0].state == WEIR__READY ? client->look_us : INT64_MAX;
    if (!client->wanted && !cluster_ails(client))
        return INT64_MAX;
    return breaker->state == WEIR__BREAKER_OPEN && probe_us > client->look_us ? probe_us : client->look_us;
}

void weir__guide_tick(struct weir__client *client)
{
    if (client->now_us < weir__guide_due(client))
        return;
    (void)weir__breaker_probe(&weir__guide(client)->breaker, client->now_us);
    weir__guide_look(client);
}
