/*
 * The handshake: AUTH, SELECT, with Sentinel ROLE; then PING, since a server that is loading accepts connections, too.
 */
#include "remote/client_internal.h"

#include <stdio.h>
#include <string.h>

static bool login(struct weir__channel *channel, const char *user, const char *password)
{
    const char *with_user[] = {"AUTH", user, password}, *without[] = {"AUTH", password};

    if (!password[0])
        return true;
    return user[0] ? weir__channel_send(channel, WEIR__COMMAND_LOGIN, with_user, 3)
                   : weir__channel_send(channel, WEIR__COMMAND_LOGIN, without, 2);
}

void weir__handshake_begin(struct weir__channel *channel)
{
    const struct weir__store_options *options = channel->client->options;
    bool sentinel = options->kind == WEIR__SENTINEL && channel->number == WEIR__TOPOLOGY_CHANNEL;
    char number[16];
    const char *database[] = {"SELECT", number}, *role[] = {"ROLE"}, *ping[] = {"PING"};

    channel->state = WEIR__CHANNEL_HANDSHAKE;
    if (!login(channel, sentinel ? options->sentinel_user : options->user,
               sentinel ? options->sentinel_password : options->password))
        return;
    snprintf(number, sizeof(number), "%d", options->database);
    if (options->database > 0 && !sentinel && !weir__channel_send(channel, WEIR__COMMAND_LOGIN, database, 2))
        return;
    if (options->kind == WEIR__SENTINEL && !sentinel && !weir__channel_send(channel, WEIR__COMMAND_ROLE, role, 1))
        return;
    (void)weir__channel_send(channel, WEIR__COMMAND_PING, ping, 1);
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

int weir__handshake_reply(struct weir__channel *channel, const struct weir__command *command, const redisReply *reply)
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
    if (reply->type != REDIS_REPLY_STATUS || strcmp(reply->str, "PONG") != 0)
        return WEIR_ESTOREGARBAGE;
    if (command->kind == WEIR__COMMAND_PING) {
        channel->state = WEIR__CHANNEL_READY;
        if (channel->number == WEIR__TOPOLOGY_CHANNEL) {
            weir__topology_query(channel);
            return 0;
        }
    }
    weir__route_probed(channel);
    if (channel->state == WEIR__CHANNEL_READY)
        weir__channel_flush(channel);
    return 0;
}
