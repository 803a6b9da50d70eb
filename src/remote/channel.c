/*
 * A channel: one connection, from opening and handshake to closing. It buffers commands and matches replies to them in
 * order.
 */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>
#include <stdio.h>

/* ---- Commands ---- */

struct weir__command *weir__command_new(struct weir__channel *channel, enum weir__command_kind kind)
{
    struct weir__command *command = malloc(sizeof(*command));

    if (!command) {
        weir__channel_close(channel, WEIR_ENOMEM, false);
        return NULL;
    }
    *command = (struct weir__command){.kind = kind};
    command->requests.command = command;
    return command;
}

/* ---- Bounds on replies, which hiredis does not have ---- */

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* hiredis 1.x has no bound on nesting, and frees a reply recursively. */
static bool too_deep(const redisReadTask *task)
{
    unsigned depth = 0;

    for (; task && depth <= WEIR__DEPTH_MAX; task = task->parent)
        depth++;
    return depth > WEIR__DEPTH_MAX;
}

static void *create_array(const redisReadTask *task, element_count elements)
{
    struct weir__channel *channel = task->privdata;

    if (too_deep(task) || (elements > 0 && (size_t)elements > channel->elements_left))
        return NULL;
    channel->elements_left -= elements > 0 ? (size_t)elements : 0;
    return channel->default_functions->createArray(task, elements);
}

static bool reader_new(struct weir__channel *channel)
{
    redisReader *reader = redisReaderCreate();

    if (!reader)
        return false;
    channel->default_functions = reader->fn;
    channel->functions = *reader->fn;
    channel->functions.createArray = create_array;
    reader->fn = &channel->functions;
    reader->privdata = channel;
    channel->reader = reader;
    channel->elements_left = WEIR__ELEMENTS_MAX;
    channel->bytes_pending = 0;
    return true;
}

/* ---- Opening and closing ---- */

void weir__channel_open(struct weir__channel *channel)
{
    struct weir__client *client = channel->client;

    if (channel->state != WEIR__CHANNEL_CLOSED && channel->state != WEIR__CHANNEL_RESOLVING)
        return;
    channel->generation++;
    channel->since_us = client->now_us;
    channel->state = WEIR__CHANNEL_CONNECTING;
    if (!reader_new(channel)) {
        weir__channel_close(channel, WEIR_ENOMEM, true);
        return;
    }
    channel->out_at = channel->out.len = 0;
    channel->out.failed = false;
    channel->sending = false;
    channel->loading = NULL;
    channel->load_error = 0;
    channel->out_total = channel->sent_total = 0;
    client->stats.connects++;
    client->driver.open(client->driver.context, channel->number, channel->host.name, channel->host.port);
}

void weir__channel_close(struct weir__channel *channel, int error, bool driver_closed)
{
    struct weir__client *client = channel->client;
    enum weir__channel_state was = channel->state;
    STAILQ_HEAD(, weir__command) commands = STAILQ_HEAD_INITIALIZER(commands);
    bool had_requests = false, topology = channel->number == WEIR__TOPOLOGY_CHANNEL;

    if (was == WEIR__CHANNEL_CLOSED)
        return;
    channel->state = WEIR__CHANNEL_CLOSED;
    channel->active_us = client->now_us;
    STAILQ_CONCAT(&commands, &channel->commands);
    channel->generation++;
    if (was != WEIR__CHANNEL_RESOLVING) {
        if (!driver_closed)
            client->driver.close(client->driver.context, channel->number);
        client->stats.disconnects++;
    }
    if (channel->reader)
        redisReaderFree(channel->reader);
    channel->reader = NULL;
    weir__buffer_free(&channel->out);
    channel->out_at = 0;
    for (struct weir__command *command; (command = STAILQ_FIRST(&commands));) {
        STAILQ_REMOVE_HEAD(&commands, next);
        had_requests |= command->kind == WEIR__COMMAND_REQUESTS || command->kind == WEIR__COMMAND_PROBE ||
                        command->kind == WEIR__COMMAND_HEARTBEAT;
        weir__command_complete(client, command, error, command->begin >= channel->sent_total);
    }
    if (topology) {
        weir__topology_lost(client, error);
        return;
    }
    /* A server may close an idle connection at any time: that is no failure. */
    bool failed = had_requests || was < WEIR__CHANNEL_READY || error == WEIR_ESTOREGARBAGE ||
                  channel->breaker.state == WEIR__BREAKER_PROBING ||
                  channel->breaker.state == WEIR__BREAKER_HALF_OPEN_BUSY;
    if (failed)
        weir__route_failed(channel, error);
    struct weir__request_list left = {0};
    weir__request_list_move(&channel->waiting, &left);
    for (struct weir__store_request *request; (request = weir__request_list_take(&left));) {
        if (was >= WEIR__CHANNEL_READY && channel->breaker.state == WEIR__BREAKER_CLOSED)
            weir__route(client, request);
        else
            weir__request_end(client, request, error, true);
    }
}

void weir__channel_finish(struct weir__channel *channel)
{
    if (channel->state == WEIR__CHANNEL_READY)
        channel->state = WEIR__CHANNEL_DRAINING;
    if (channel->state == WEIR__CHANNEL_DRAINING && STAILQ_EMPTY(&channel->commands))
        weir__channel_close(channel, WEIR_ESTOREDOWN, false);
}

/* ---- Sending ---- */

bool weir__channel_queued(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;

    command->begin = channel->out_total;
    command->sent_us = client->now_us;
    STAILQ_INSERT_TAIL(&channel->commands, command, next);
    client->stats.commands++;
    if (channel->out.failed || channel->out.len > WEIR__CHANNEL_OUT_MAX) {
        weir__channel_close(channel, channel->out.failed ? WEIR_ENOMEM : WEIR_ESTORESLOW, false);
        return false;
    }
    channel->out_total = channel->sent_total + (channel->out.len - channel->out_at);
    if (!channel->sending) {
        channel->sending = true;
        client->driver.send(client->driver.context, channel->number);
    }
    return true;
}

bool weir__channel_send(struct weir__channel *channel, enum weir__command_kind kind, const char *name,
                        const char *first, const char *second)
{
    struct weir__command *command = NULL;
    const char *const arguments[] = {name, first, second};
    size_t count = first ? second ? 3 : 2 : 1;

    if (channel->state >= WEIR__CHANNEL_HANDSHAKE)
        command = weir__command_new(channel, kind);
    if (!command)
        return false;
    weir__redis_add_length(&channel->out, '*', count);
    for (size_t i = 0; i < count; i++)
        weir__redis_add_text(&channel->out, arguments[i], strlen(arguments[i]));
    return weir__channel_queued(channel, command);
}

/* ---- The handshake ---- */

/* AUTH, SELECT, with Sentinel ROLE; then PING, since a server that is loading accepts connections, too. */

void weir__handshake_begin(struct weir__channel *channel)
{
    const struct weir__store_options *options = channel->client->options;
    bool sentinel = options->kind == WEIR__SENTINEL && channel->number == WEIR__TOPOLOGY_CHANNEL;
    const char *user = sentinel ? options->sentinel_user : options->user;
    const char *password = sentinel ? options->sentinel_password : options->password;
    char number[16];

    channel->state = WEIR__CHANNEL_HANDSHAKE;
    if (password[0])
        weir__channel_send(channel, WEIR__COMMAND_LOGIN, "AUTH", user[0] ? user : password, user[0] ? password : NULL);
    snprintf(number, sizeof(number), "%d", options->database);
    if (options->database > 0 && !sentinel)
        weir__channel_send(channel, WEIR__COMMAND_LOGIN, "SELECT", number, NULL);
    if (options->kind == WEIR__SENTINEL && !sentinel)
        weir__channel_send(channel, WEIR__COMMAND_ROLE, "ROLE", NULL, NULL);
    weir__channel_send(channel, WEIR__COMMAND_PING, "PING", NULL, NULL);
}

static bool is_master(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "master") == 0;
}

/*
 * Redis before 6 replies "ERR invalid password", or that 'auth' has the wrong number of arguments if a user is given.
 */
static int login_error(const redisReply *reply)
{
    int error = weir__store_error(reply->str, (size_t)reply->len);
    bool login = strstr(reply->str, "password") || strstr(reply->str, "'auth'");

    return error == WEIR_ESTOREERROR && login ? WEIR_ESTOREAUTH : error;
}

static bool is_pong(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0;
}

/* 0, or why the channel must be closed. */
static int handshake_reply(struct weir__channel *channel, const struct weir__command *command, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        int error = login_error(reply);
        /* Without permission for ROLE, a replica is detected by its READONLY reply. */
        return command->kind == WEIR__COMMAND_ROLE && error == WEIR_ESTOREAUTH ? 0 : error;
    }
    switch (command->kind) {
    case WEIR__COMMAND_ROLE:
        return is_master(reply) ? 0 : WEIR_ESTOREREADONLY;
    case WEIR__COMMAND_LOGIN:
        return reply->type == REDIS_REPLY_STATUS ? 0 : WEIR_ESTOREGARBAGE;
    default:
        break;
    }
    if (!is_pong(reply))
        return WEIR_ESTOREGARBAGE;
    if (command->kind == WEIR__COMMAND_PING) {
        channel->state = WEIR__CHANNEL_READY;
        if (channel->number == WEIR__TOPOLOGY_CHANNEL) {
            weir__topology_query(channel);
            return 0;
        }
    }
    weir__breaker_probed(&channel->breaker);
    if (channel->state == WEIR__CHANNEL_READY)
        weir__channel_flush(channel);
    return 0;
}

/*
 * An idle server answers: that closes a half-open breaker, unless the answer is later than a request may wait, the last
 * request got an error (out of memory, say), or one is in flight that decides. 0, or why the channel must be closed.
 */
static int heartbeat_reply(struct weir__channel *channel, const struct weir__command *command, const redisReply *reply)
{
    const struct weir__client *client = channel->client;
    bool late = client->now_us - command->sent_us > client->options->deadline_us;
    if (reply->type == REDIS_REPLY_ERROR)
        weir__route_failed(channel, weir__store_error(reply->str, (size_t)reply->len));
    else if (!is_pong(reply))
        return WEIR_ESTOREGARBAGE;
    else if (!late && !channel->rejects && channel->breaker.state != WEIR__BREAKER_HALF_OPEN_BUSY)
        weir__route_succeeded(channel);
    return 0;
}

/* ---- Receiving ---- */

/* Handles one reply. 0, or why the channel must be closed: no command waits for a reply, or the reply is malformed. */
static int take_reply(struct weir__channel *channel, redisReply *reply)
{
    struct weir__command *command = STAILQ_FIRST(&channel->commands);
    int error = 0;

    if (!command)
        return WEIR_ESTOREGARBAGE;
    STAILQ_REMOVE_HEAD(&channel->commands, next);
    channel->active_us = channel->client->now_us;
    switch (command->kind) {
    case WEIR__COMMAND_REQUESTS:
        weir__command_reply(channel, command, reply);
        return 0; /* the command may have been sent again */
    case WEIR__COMMAND_TOPOLOGY:
        weir__topology_reply(channel, reply);
        break;
    case WEIR__COMMAND_HEARTBEAT:
        error = heartbeat_reply(channel, command, reply);
        break;
    case WEIR__COMMAND_IMPORTING:
        break; /* if ASKING was refused, so is the command that follows it */
    case WEIR__COMMAND_LOAD:
        channel->loading = NULL;
        channel->load_error = reply->type == REDIS_REPLY_ERROR    ? weir__store_error(reply->str, (size_t)reply->len)
                              : reply->type == REDIS_REPLY_STRING ? 0
                                                                  : WEIR_ESTOREGARBAGE;
        break;
    default:
        error = handshake_reply(channel, command, reply);
    }
    free(command);
    return error;
}

void weir__channel_received(struct weir__channel *channel, const char *data, size_t len)
{
    uint64_t generation = channel->generation;
    int error = 0;

    channel->client->stats.bytes_in += len;
    channel->bytes_pending += len;
    if (redisReaderFeed(channel->reader, data, len) != REDIS_OK)
        error = WEIR_ENOMEM;
    while (!error) {
        void *reply = NULL;
        if (redisReaderGetReply(channel->reader, &reply) != REDIS_OK)
            error = WEIR_ESTOREGARBAGE;
        if (!reply)
            break;
        channel->elements_left = WEIR__ELEMENTS_MAX;
        channel->bytes_pending = 0;
        error = take_reply(channel, reply);
        freeReplyObject(reply);
        if (channel->generation != generation)
            return;
    }
    if (!error && channel->bytes_pending > WEIR__REPLY_MAX)
        error = WEIR_ESTOREGARBAGE;
    if (error)
        weir__channel_close(channel, error, false);
    else if (channel->state == WEIR__CHANNEL_DRAINING)
        weir__channel_finish(channel);
}
