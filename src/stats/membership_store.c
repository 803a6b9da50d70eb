/* Exchanges heartbeats with the store by lua/hosts.lua. See membership.h. */
#include "base/clock.h"
#include "stats/membership.h"
#include "remote/client.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_US  INT64_C(200000) /* time for reconnecting after an error */
#define KEY_MAX   96
#define ARGUMENTS 9

struct weir__heartbeat_store {
    struct weir__store_options options;
    struct weir__blocking_client *link;
    int64_t patience_us;
    char key[KEY_MAX]; /* cannot collide with a counter: those have a non-empty rule name */
};

/* One call of the script, and where its reply goes. */
struct host_exchange {
    struct weir__store_request request;
    struct weir__raw_command raw;
    struct weir__host_list *list; /* NULL: nowhere */
    int64_t count;
};

struct weir__heartbeat_store *weir__heartbeat_store_new(const struct weir__store_options *options, int64_t patience_us)
{
    struct weir__heartbeat_store *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->options = *options;
    link->options.deadline_us = link->patience_us = patience_us; /* not the deadline of a client's request */
    snprintf(link->key, sizeof link->key, "%s::hosts", options->prefix);
    link->link = weir__blocking_client_new(&link->options);
    if (link->link)
        return link;
    free(link);
    return NULL;
}

void weir__heartbeat_store_free(struct weir__heartbeat_store *link)
{
    if (!link)
        return;
    weir__blocking_client_free(link->link);
    free(link);
}

/* ---- Replies ---- */

static void read_host(struct weir__host_list *list, const redisReply *id, const redisReply *ago, const redisReply *text)
{
    struct weir__host_status *received = &list->hosts[list->count];
    if (id->type != REDIS_REPLY_STRING || ago->type != REDIS_REPLY_INTEGER || ago->integer < 0 ||
        text->type != REDIS_REPLY_STRING || !weir__heartbeat_parse(text->str, text->len, &received->heartbeat) ||
        id->len != WEIR__HOST_ID || memcmp(id->str, received->heartbeat.id, WEIR__HOST_ID) != 0)
        return; /* not a heartbeat, or one of a newer version */
    received->ago_ms = ago->integer;
    received->via = WEIR__HOST_VIA_STORE;
    list->count++;
}

static int read_reply(struct weir__store_request *request, const redisReply *reply)
{
    struct host_exchange *exchange = request->owner;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 || reply->element[0]->type != REDIS_REPLY_INTEGER)
        return WEIR_ESTOREGARBAGE;
    exchange->count = reply->element[0]->integer;
    if (!exchange->list)
        return 0;
    exchange->list->count = 0;
    for (size_t i = 1; i + 2 < reply->elements && exchange->list->count < WEIR__HOSTS_MAX; i += 3)
        read_host(exchange->list, reply->element[i], reply->element[i + 1], reply->element[i + 2]);
    return 0;
}

/* ---- Requests ---- */

static int run_script(struct weir__heartbeat_store *link, struct host_exchange *exchange, const char *id,
                      const char *text, int64_t for_us)
{
    char forget[24], most[24], *command = NULL;
    snprintf(forget, sizeof forget, "%d", WEIR__HOSTS_FORGET_MS);
    snprintf(most, sizeof most, "%d", WEIR__HOSTS_MAX);
    const char *arguments[ARGUMENTS] = {"EVALSHA", weir__hosts_script_sha,    "1", link->key, id, text, forget,
                                        most,      exchange->list ? "1" : "0"};
    long long len = redisFormatCommandArgv(&command, ARGUMENTS, arguments, NULL);
    if (len <= 0)
        return WEIR_ENOMEM;
    exchange->raw = (struct weir__raw_command){.slot = link->key,
                                               .command = command,
                                               .command_len = (size_t)len,
                                               .script = weir__hosts_script,
                                               .read = read_reply};
    exchange->request = (struct weir__store_request){
        .raw = &exchange->raw, .owner = exchange, .deadline_us = weir__monotonic_us() + for_us};
    int error = weir__blocking_client_request(link->link, &exchange->request);
    redisFreeCommand(command);
    return error;
}

int weir__heartbeat_store_exchange(struct weir__heartbeat_store *link, const struct weir__heartbeat *heartbeat,
                                   struct weir__host_list *list, int64_t *count, char *why)
{
    struct host_exchange exchange = {.list = list};
    char text[WEIR__HEARTBEAT_MAX + 1];
    *why = 0;
    if (!weir__heartbeat_format(heartbeat, text, sizeof text))
        return WEIR_ENOMEM;
    int error = run_script(link, &exchange, heartbeat->id, text, link->patience_us);
    *count = exchange.count;
    if (error) /* the server's message may have any bytes */
        weir__printable((weir_text){exchange.raw.why, strlen(exchange.raw.why)}, why, WEIR__HOSTS_WHY);
    if (error && !*why)
        snprintf(why, WEIR__HOSTS_WHY, "%s", weir_strerror(error));
    if (error) /* exchanges are too rare for the client to reconnect between two of them */
        weir__blocking_client_work(link->link, PROBE_US);
    return error;
}

void weir__heartbeat_store_leave(struct weir__heartbeat_store *link, const char *id)
{
    struct host_exchange exchange = {0};
    (void)!run_script(link, &exchange, id, "", link->patience_us / 2);
}
