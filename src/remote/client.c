/* The client: its public functions (client.h). */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 65536 /* not complete at once, at most */
#define OUT_MOVED    65536 /* bytes: above it, the unsent rest of a buffer is moved to the front */

/* ---- Entering and leaving the client ---- */

static void enter(struct weir__client *client, int64_t now_us)
{
    client->inside++;
    if (now_us > client->now_us)
        client->now_us = now_us;
}

/*
 * Completes the requests that are finished now. Requests that `done` submits and that finish at once are completed by
 * the next call, which bounds this loop.
 */
static void call_done(struct weir__client *client)
{
    uint32_t count = 0;

    for (const struct weir__store_request *request = client->finished.first; request; request = request->next)
        count++;
    for (struct weir__store_request *request; count > 0 && (request = client->finished.first); count--) {
        weir__request_list_remove(request);
        request->state = 0;
        client->driver.done(client->driver.context, request);
    }
}

static void flush_channels(struct weir__client *client)
{
    for (unsigned i = 0; i < client->nodes_end; i++)
        if (client->channels[i].waiting.first)
            weir__channel_flush(&client->channels[i]);
}

static void leave(struct weir__client *client, bool flush)
{
    if (client->inside == 1) {
        call_done(client);
        if (flush)
            flush_channels(client);
        int64_t wake_us = weir__client_next_time(client);
        if (wake_us != client->wake_us) {
            client->wake_us = wake_us;
            client->driver.wake(client->driver.context, wake_us);
        }
    }
    client->inside--;
}

/* ---- Creation ---- */

struct weir__client *weir__client_new(const struct weir__store_options *options, const struct weir__driver *driver,
                                      uint64_t seed, int64_t now_us)
{
    struct weir__client *client = calloc(1, sizeof(*client));

    if (!client)
        return NULL;
    client->options = options;
    client->driver = *driver;
    client->random = seed;
    client->now_us = now_us;
    client->wake_us = INT64_MAX;
    TAILQ_INIT(&client->timers);
    client->seed = (unsigned)(weir__next_random(&client->random) % WEIR__STORE_SEEDS);
    for (unsigned i = 0; i < WEIR__CLUSTER_SLOTS; i++)
        client->owner[i] = WEIR__SLOT_NOBODY;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        struct weir__channel *channel = &client->channels[i];
        channel->client = client;
        channel->number = i;
        channel->waiting.channel = channel;
        STAILQ_INIT(&channel->commands);
        weir__breaker_init(&channel->breaker, options->breaker_failures, options->retry_min_us, options->retry_max_us,
                           weir__next_random(&client->random));
    }
    weir__topology_channel(client)->used = options->kind != WEIR__SINGLE;
    if (options->kind != WEIR__CLUSTER)
        (void)weir__route_host(client, &options->seeds[0]);
    return client;
}

static void forget_list(struct weir__client *client, struct weir__request_list *list)
{
    for (struct weir__store_request *request; (request = weir__request_list_take(list));) {
        if (request->state & (WEIR__REQUEST_ORPHAN | WEIR__REQUEST_REFUND))
            weir__native_free(client, request);
        else
            request->state = 0;
    }
}

static void free_channel(struct weir__channel *channel)
{
    struct weir__client *client = channel->client;

    forget_list(client, &channel->waiting);
    for (struct weir__command *command; (command = STAILQ_FIRST(&channel->commands));) {
        STAILQ_REMOVE_HEAD(&channel->commands, next);
        forget_list(client, &command->requests);
        free(command);
    }
    if (channel->state > WEIR__CHANNEL_RESOLVING)
        client->driver.close(client->driver.context, channel->number);
    if (channel->reader)
        redisReaderFree(channel->reader);
    weir__buffer_free(&channel->out);
}

void weir__client_free(struct weir__client *client)
{
    if (!client)
        return;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        free_channel(&client->channels[i]);
    forget_list(client, &client->finished);
    forget_list(client, &client->soon);
    forget_list(client, &client->later);
    forget_list(client, &client->unrouted);
    for (struct weir__store_request *request; (request = TAILQ_FIRST(&client->timers));) {
        weir__timer_remove(client, request);
        if (request->state & WEIR__REQUEST_SPLIT)
            free(request->list);
        request->state = 0;
    }
    free(client);
}

void weir__client_start(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    if (client->options->kind == WEIR__CLUSTER)
        weir__topology_want_refresh(client);
    else if (client->channels[0].breaker.state == WEIR__BREAKER_CLOSED)
        weir__route_connect(&client->channels[0]);
    leave(client, true);
}

/* ---- Requests ---- */

static bool is_valid(const struct weir__store_request *request)
{
    if (request->raw)
        return request->op_count == 0 && request->group_count == 0;
    if (request->group_count == 0 || request->op_count == 0 || request->groups[0].after_first)
        return false;
    for (uint32_t i = 0; i < request->group_count; i++) {
        const struct weir__group *group = &request->groups[i];
        if (group->count == 0 || group->first >= request->op_count || group->count > request->op_count - group->first)
            return false;
    }
    return true;
}

static uint16_t slot_of(const struct weir__store_request *request)
{
    if (request->raw)
        return (uint16_t)weir__slot(request->raw->slot, strlen(request->raw->slot));
    return (uint16_t)weir__slot(request->ops[0].name, request->ops[0].name_len);
}

void weir__client_submit(struct weir__client *client, struct weir__store_request *request, int64_t now_us)
{
    int error = 0;

    enter(client, now_us);
    client->stats.requests++;
    request->error = 0;
    request->next = request->previous = NULL;
    request->list = NULL;
    request->timer.tqe_prev = NULL;
    request->slot = 0;
    request->tries = 0;
    request->state = WEIR__REQUEST_LIVE;
    if (request->deadline_us == 0)
        request->deadline_us = client->now_us + client->options->deadline_us;
    if (!is_valid(request))
        error = WEIR_EINVAL;
    else if (client->timer_count >= REQUESTS_MAX)
        error = WEIR_ESTOREBREAKER;
    else
        weir__timer_add(client, request);
    if (error) {
        weir__request_end(client, request, error, true);
    } else if (weir__split_needed(client, request)) {
        weir__split_begin(client, request);
    } else {
        if (client->options->kind == WEIR__CLUSTER)
            request->slot = slot_of(request);
        weir__route(client, request);
    }
    leave(client, false);
}

void weir__client_flush(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    leave(client, true);
}

void weir__store_request_abandon(struct weir__store_request *request)
{
    for (uint32_t i = 0; i < request->op_count; i++)
        request->ops[i].keep = request->ops[i].limit.algorithm != WEIR_CONCURRENCY;
}

void weir__client_cancel(struct weir__client *client, struct weir__store_request *request)
{
    if (!(request->state & (WEIR__REQUEST_LIVE | WEIR__REQUEST_DONE)))
        return;
    enter(client, client->now_us);
    weir__timer_remove(client, request);
    if (!(request->state & WEIR__REQUEST_SPLIT))
        weir__store_request_abandon(request);
    if (request->state & WEIR__REQUEST_DONE) {
        weir__request_list_remove(request);
        if (!request->error)
            weir__internal_refund(client, request->ops, request->op_count);
    } else if (request->state & WEIR__REQUEST_SPLIT) {
        weir__split_drop(client, request, false);
    } else {
        weir__request_detach(client, request);
    }
    request->state = 0;
    leave(client, false);
}

void weir__client_refund(struct weir__client *client, const struct weir__store_request *request, int64_t now_us)
{
    enter(client, now_us);
    weir__internal_refund(client, request->ops, request->op_count);
    leave(client, false);
}

/* ---- Events of the driver ---- */

void weir__client_opened(struct weir__client *client, unsigned channel, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state == WEIR__CHANNEL_CONNECTING)
        weir__handshake_begin(&client->channels[channel]);
    leave(client, true);
}

void weir__client_closed(struct weir__client *client, unsigned channel, int error, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state > WEIR__CHANNEL_RESOLVING)
        weir__channel_close(&client->channels[channel], error ? error : WEIR_ESTOREDOWN, true);
    leave(client, true);
}

const char *weir__client_output(const struct weir__client *client, unsigned channel, size_t *len)
{
    const struct weir__channel *from = &client->channels[channel];

    *len = from->out.len - from->out_at;
    return from->out.data ? from->out.data + from->out_at : NULL;
}

void weir__client_sent(struct weir__client *client, unsigned channel, size_t len, int64_t now_us)
{
    struct weir__channel *from = &client->channels[channel];

    enter(client, now_us);
    if (len > from->out.len - from->out_at)
        len = from->out.len - from->out_at;
    from->out_at += len;
    from->sent_total += len;
    client->stats.bytes_out += len;
    if (from->out_at == from->out.len) {
        from->out_at = from->out.len = 0;
        from->sending = false;
    } else if (from->out_at > OUT_MOVED && from->out_at > from->out.len / 2) {
        /* Bounds the buffer when the server is permanently slower than the client. */
        memmove(from->out.data, from->out.data + from->out_at, from->out.len - from->out_at);
        from->out.len -= from->out_at;
        from->out_at = 0;
    }
    leave(client, false);
}

void weir__client_received(struct weir__client *client, unsigned channel, const char *data, size_t len, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state > WEIR__CHANNEL_CONNECTING)
        weir__channel_received(&client->channels[channel], data, len);
    leave(client, true);
}

void weir__client_tick(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    weir__client_pass_time(client);
    client->wake_us = -1; /* forces leave() to call driver.wake */
    leave(client, true);
}

/* ---- Drivers that poll only during calls ---- */

void weir__client_paused(struct weir__client *client, unsigned channel, int64_t for_us)
{
    client->channels[channel].since_us += for_us;
}

static bool probed(struct weir__client *client, unsigned slot)
{
    const struct weir__channel *channel = weir__route_slot(client, slot);

    if (!channel)
        channel = weir__topology_channel(client);
    return channel->breaker.state == WEIR__BREAKER_PROBING;
}

bool weir__client_probing(struct weir__client *client, const struct weir__store_request *request)
{
    bool probing = request->raw && probed(client, slot_of(request));
    uint32_t most = client->options->kind == WEIR__CLUSTER ? request->op_count
                                                           : 1; /* without a cluster, all go to the same server */

    for (uint32_t i = 0; i < most && i < request->op_count && !probing; i++)
        probing = probed(client, weir__slot(request->ops[i].name, request->ops[i].name_len));
    return probing;
}

/* ---- Statistics ---- */

static enum weir__store_state state_of(const struct weir__breaker *breaker)
{
    return breaker->state == WEIR__BREAKER_CLOSED ? WEIR__STORE_UP
           : breaker->state == WEIR__BREAKER_OPEN ? WEIR__STORE_DOWN
                                                  : WEIR__STORE_PROBING;
}

/* A cluster is available while one of its servers is: requests for the slots of the others fail by themselves. */
static enum weir__store_state store_state(const struct weir__client *client)
{
    enum weir__store_state state = WEIR__STORE_DOWN;

    if (client->options->kind != WEIR__CLUSTER)
        state = state_of(&client->channels[0].breaker);
    else if (!client->have_map)
        state = state_of(&client->channels[WEIR__TOPOLOGY_CHANNEL].breaker);
    else
        for (unsigned i = 0; i < client->nodes_end; i++) {
            enum weir__store_state one = state_of(&client->channels[i].breaker);
            if (client->channels[i].listed && state != WEIR__STORE_UP && one != WEIR__STORE_DOWN)
                state = one;
        }
    return state == WEIR__STORE_UP ? client->stats.state : state;
}

bool weir__client_owes_refunds(const struct weir__client *client)
{
    return client->internal_count > 0;
}

void weir__client_stats_read(const struct weir__client *client, struct weir__client_stats *stats)
{
    *stats = client->stats;
    stats->state = store_state(client);
}
