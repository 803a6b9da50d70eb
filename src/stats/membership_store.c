/* Telling the store, and hearing from it who else is there. See membership_internal.h. */
#include "base/clock.h"
#include "stats/membership_internal.h"
#include "remote/blocking_client.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_US  INT64_C(200000) /* in which a connection can be made again */
#define KEY_MAX   96
#define ARGUMENTS 9

struct weir__fleet_link {
    struct weir__store_options options;
    struct weir__blocking_client *link;
    int64_t patience_us;
    char key[KEY_MAX]; /* not a counter's: none has a rule without a name */
};

/* What is asked, and where the answer goes. */
struct asking {
    struct weir__store_request request;
    struct weir__raw_command raw;
    struct weir__fleet_list *list; /* NULL: nowhere */
    int64_t count;
};

struct weir__fleet_link *weir__fleet_link_new(const struct weir__store_options *options, int64_t patience_us)
{
    struct weir__fleet_link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->options = *options;
    link->options.deadline_us = link->patience_us = patience_us; /* a request's is not ours */
    snprintf(link->key, sizeof link->key, "%s::hosts", options->prefix);
    link->link = weir__blocking_client_new(&link->options);
    if (link->link)
        return link;
    free(link);
    return NULL;
}

void weir__fleet_link_free(struct weir__fleet_link *link)
{
    if (!link)
        return;
    weir__blocking_client_free(link->link);
    free(link);
}

/* ---- Answers ---- */

static void hear(struct weir__fleet_list *list, const redisReply *id, const redisReply *ago, const redisReply *text)
{
    struct weir__heard *heard = &list->hosts[list->count];
    if (id->type != REDIS_REPLY_STRING || ago->type != REDIS_REPLY_INTEGER || ago->integer < 0 ||
        text->type != REDIS_REPLY_STRING || !weir__told_read(text->str, text->len, &heard->told) ||
        id->len != WEIR__FLEET_ID || memcmp(id->str, heard->told.id, WEIR__FLEET_ID) != 0)
        return; /* somebody else's, or of a weir to come */
    heard->ago_ms = ago->integer;
    heard->via = WEIR__FLEET_BY_STORE;
    list->count++;
}

static int read_answer(struct weir__store_request *request, const redisReply *reply)
{
    struct asking *asking = request->owner;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 || reply->element[0]->type != REDIS_REPLY_INTEGER)
        return WEIR_ESTOREGARBAGE;
    asking->count = reply->element[0]->integer;
    if (!asking->list)
        return 0;
    asking->list->count = 0;
    for (size_t i = 1; i + 2 < reply->elements && asking->list->count < WEIR__FLEET_MAX; i += 3)
        hear(asking->list, reply->element[i], reply->element[i + 1], reply->element[i + 2]);
    return 0;
}

/* ---- Asking ---- */

static int ask(struct weir__fleet_link *link, struct asking *asking, const char *id, const char *text, int64_t for_us)
{
    char forget[24], most[24], *command = NULL;
    snprintf(forget, sizeof forget, "%d", WEIR__FLEET_FORGET_MS);
    snprintf(most, sizeof most, "%d", WEIR__FLEET_MAX);
    const char *words[ARGUMENTS] = {"EVALSHA", weir__fleet_script_sha,  "1", link->key, id, text, forget,
                                    most,      asking->list ? "1" : "0"};
    long long len = redisFormatCommandArgv(&command, ARGUMENTS, words, NULL);
    if (len <= 0)
        return WEIR_ENOMEM;
    asking->raw = (struct weir__raw_command){.slot = link->key,
                                             .command = command,
                                             .command_len = (size_t)len,
                                             .script = weir__fleet_script,
                                             .read = read_answer};
    asking->request = (struct weir__store_request){
        .raw = &asking->raw, .owner = asking, .deadline_us = weir__monotonic_us() + for_us};
    int error = weir__blocking_client_request(link->link, &asking->request);
    redisFreeCommand(command);
    return error;
}

int weir__fleet_link_tell(struct weir__fleet_link *link, const struct weir__told *told, struct weir__fleet_list *list,
                          int64_t *count, char *why)
{
    struct asking asking = {.list = list};
    char text[WEIR__FLEET_TEXT_MAX + 1];
    *why = 0;
    if (!weir__told_write(told, text, sizeof text))
        return WEIR_ENOMEM;
    int error = ask(link, &asking, told->id, text, link->patience_us);
    *count = asking.count;
    if (error) /* what the server says is of any bytes */
        weir__printable((weir_text){asking.raw.why, strlen(asking.raw.why)}, why, WEIR__FLEET_WHY);
    if (error && !*why)
        snprintf(why, WEIR__FLEET_WHY, "%s", weir_strerror(error));
    if (error) /* it is asked so rarely that nothing would come of it between two questions */
        weir__blocking_client_work(link->link, PROBE_US);
    return error;
}

void weir__fleet_link_leave(struct weir__fleet_link *link, const char *id)
{
    struct asking asking = {0};
    (void)!ask(link, &asking, id, "", link->patience_us / 2);
}
