/* Packs requests into commands, and interprets the replies. */
#include "remote/client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED_MAX 64   /* in a cluster: waiting requests that are searched for one of the same slot */
#define DRIFT       1024 /* bound on the relative drift of two clocks: 1/1024 */

/* ---- The offset of the server's clock ---- */

void weir__clock_offset_update(struct weir__clock_offset *clock_offset, int64_t clock_us, int64_t sent_us,
                               int64_t now_us)
{
    int64_t least = clock_us - now_us, most = clock_us - sent_us, drift = (now_us - clock_offset->at_us) / DRIFT;
    if (clock_offset->at_us && least <= clock_offset->most_us + drift && most >= clock_offset->least_us - drift) {
        least = least > clock_offset->least_us - drift ? least : clock_offset->least_us - drift;
        most = most < clock_offset->most_us + drift ? most : clock_offset->most_us + drift;
    } /* else one of the clocks was stepped, or this is another server */
    *clock_offset = (struct weir__clock_offset){least, most, now_us};
}

static void learn_clock(struct weir__channel *channel, const struct weir__command *command,
                        const struct weir__group_ref *refs, size_t count)
{
    int64_t now_us = channel->client->now_us;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = &refs[p].request->groups[refs[p].group];
        for (uint32_t i = 0; i < group->count; i++) {
            struct weir__store_op *op = &refs[p].request->ops[group->first + i];
            if (p + i == 0 && op->kind != WEIR__OP_REFUND)
                weir__clock_offset_update(&channel->clock_offset, op->at_us, command->sent_us, now_us);
            if (op->kind == WEIR__OP_LEASE)
                continue;
            if (op->kind != WEIR__OP_EXCHANGE)
                return;
            int64_t middle =
                channel->clock_offset.least_us + (channel->clock_offset.most_us - channel->clock_offset.least_us) / 2;
            int64_t ago = now_us - (op->at_us - middle), most = now_us - command->sent_us;
            op->ago_us = ago < 0 ? 0 : ago < most ? ago : most;
        }
    }
}

/* ---- Sending ---- */

static size_t list_groups(const struct weir__command *command, struct weir__group_ref refs[WEIR__BATCH_GROUPS])
{
    size_t count = 0;

    for (struct weir__store_request *request = command->requests.first; request; request = request->next)
        for (uint32_t group = 0; group < request->group_count; group++)
            refs[count++] = (struct weir__group_ref){request, group};
    return count;
}

/* Whether the request can be part of the command, which has `groups` groups. */
static bool fits(const struct weir__client *client, const struct weir__command *command,
                 const struct weir__store_request *request, uint32_t groups)
{
    const struct weir__store_request *first = command->requests.first;

    if (!first)
        return true;
    if (groups + request->group_count > WEIR__BATCH_GROUPS || first->sender || request->sender || first->raw ||
        request->raw)
        return false;
    if ((first->state | request->state) & WEIR__REQUEST_IMPORTING)
        return false;
    /*
     * While a slot migrates, a command with one key gets a reply or ASK, but one with several keys at both places gets
     * TRYAGAIN. So a request that is sent again is sent alone.
     */
    return client->options->kind != WEIR__CLUSTER ||
           (first->slot == request->slot && first->tries == 0 && request->tries == 0);
}

/*
 * Moves requests that can share a command from the waiting list into it. In a cluster these must have the same slot: up
 * to SKIPPED_MAX requests of other slots are skipped, since requests for a hot key are interleaved with others.
 */
static void gather(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;
    unsigned skipped = 0, most = client->options->kind == WEIR__CLUSTER ? SKIPPED_MAX : 0;
    uint32_t groups = 0;

    for (struct weir__store_request *request = channel->waiting.first, *next; request && skipped <= most;
         request = next) {
        next = request->next;
        if (!fits(client, command, request, groups)) {
            skipped++;
            continue;
        }
        weir__request_list_remove(request);
        weir__request_list_add(&command->requests, request);
        groups += request->group_count;
    }
}

/* Formats the command into the channel's output buffer. */
static bool send_command(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;
    struct weir__group_ref refs[WEIR__BATCH_GROUPS];
    size_t count = list_groups(command, refs);
    const struct weir__store_request *first = command->requests.first;
    /* In a cluster the sender's key would be in another slot, so batches are not numbered there
     * (docs/internals/sync.md). */
    if (first->raw) {
        weir__buffer_add(&channel->out, first->raw->command, first->raw->command_len);
    } else if (first->sender && first->sender[0]) {
        char key[WEIR__STORE_NAME_MAX + 1];
        snprintf(key, sizeof(key), "%s::%s:%u", client->options->prefix, first->sender, (unsigned)first->slot);
        const struct weir__clock_offset *clock_offset = &channel->clock_offset;
        weir__script_call(&channel->out, refs, count,
                          &(struct weir__exchange_sender){
                              .key = client->options->kind == WEIR__CLUSTER ? NULL : key,
                              .batch = first->batch,
                              /* the upper bound, so that a fast command never seems late */
                              .clock_us = clock_offset->at_us ? client->now_us + clock_offset->most_us : 0});
    } else {
        weir__script_call(&channel->out, refs, count, NULL);
    }
    return weir__channel_queued(channel, command);
}

void weir__channel_flush(struct weir__channel *channel)
{
    uint64_t generation = channel->generation;

    while (channel->state == WEIR__CHANNEL_READY && channel->waiting.first && channel->generation == generation) {
        bool importing = channel->waiting.first->state & WEIR__REQUEST_IMPORTING;
        if (importing && !weir__channel_send(channel, WEIR__COMMAND_IMPORTING, "ASKING", NULL, NULL))
            return;
        struct weir__command *command = weir__command_new(channel, WEIR__COMMAND_REQUESTS);
        if (!command)
            return;
        command->requests.channel = channel;
        gather(channel, command);
        (void)send_command(channel, command);
    }
}

/* ---- Replies ---- */

void weir__command_complete(struct weir__client *client, struct weir__command *command, int error, bool sure)
{
    for (struct weir__store_request *request; (request = weir__request_list_take(&command->requests));) {
        if (error && !sure)
            weir__internal_release_permits(client, request);
        weir__request_end(client, request, error, sure);
    }
    free(command);
}

/* The server does not know the script (NOSCRIPT): loads it once and sends the command again. */
static void load_and_repeat(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;

    for (struct weir__store_request *request = command->requests.first, *next; request; request = next) {
        next = request->next;
        bool exhausted = ++request->tries > WEIR__TRIES;
        /* An orphan is not sent again: no caller waits for it, and it took nothing. */
        if (!exhausted && !(request->state & WEIR__REQUEST_ORPHAN))
            continue;
        int error = channel->load_error ? channel->load_error : WEIR_ESTOREERROR;
        weir__request_list_remove(request);
        weir__request_end(client, request, error, true);
        channel->rejects |= exhausted;
        if (exhausted)
            weir__route_failed(channel, error);
    }
    if (!command->requests.first || channel->state != WEIR__CHANNEL_READY) {
        /* If this was the request of a half-open breaker, it decided nothing: another one must try. */
        weir__breaker_release(&channel->breaker);
        weir__command_complete(client, command, WEIR_ESTOREDOWN, true);
        return;
    }
    const struct weir__raw_command *raw = command->requests.first->raw;
    const char *script = raw ? raw->script : weir__script;
    if (channel->loading != script) {
        channel->loading = script;
        client->stats.script_loads++;
        if (!weir__channel_send(channel, WEIR__COMMAND_LOAD, "SCRIPT", "LOAD", script)) {
            weir__command_complete(client, command, WEIR_ESTOREDOWN, true);
            return;
        }
    }
    (void)send_command(channel, command);
}

/* Sends the command's requests again, to another channel or to the same one later: they were not carried out. */
static void resend(struct weir__client *client, struct weir__command *command, struct weir__channel *to, bool importing,
                   int error)
{
    for (struct weir__store_request *request; (request = weir__request_list_take(&command->requests));) {
        request->state &= (uint8_t) ~(WEIR__REQUEST_IMPORTING | WEIR__REQUEST_HALF_OPEN);
        if (request->state & WEIR__REQUEST_ORPHAN || ++request->tries > WEIR__TRIES) {
            weir__request_end(client, request, error, true);
        } else if (to) {
            request->state |= importing ? WEIR__REQUEST_IMPORTING : 0;
            weir__route_to(to, request);
        } else {
            weir__route_retry(client, request);
        }
    }
    free(command);
    if (to)
        weir__channel_flush(to);
}

static bool begins(const redisReply *reply, const char *word)
{
    return strncmp(reply->str, word, strlen(word)) == 0;
}

/* MOVED and ASK in a cluster. */
static void redirect(struct weir__channel *channel, struct weir__command *command, const redisReply *reply)
{
    struct weir__client *client = channel->client;
    bool importing = begins(reply, "ASK "); /* otherwise MOVED */
    struct weir__store_host host;
    unsigned slot;
    struct weir__channel *to = NULL;

    if (weir__slots_redirect(reply->str + (importing ? 4 : 6), channel->host.name, &slot, &host))
        to = weir__route_host(client, &host);
    client->stats.redirects++;
    weir__route_succeeded(channel);
    if (!importing) {
        if (to)
            client->owner[slot] = (uint8_t)to->number;
        weir__topology_want_refresh(client);
    }
    resend(client, command, to, importing, WEIR_ESTORECROSSSLOT);
}

static void copy_error(struct weir__store_request *request, const char *text)
{
    if (request && request->raw && !(request->state & WEIR__REQUEST_ORPHAN))
        snprintf(request->raw->why, sizeof(request->raw->why), "%s", text);
}

static void error_reply(struct weir__channel *channel, struct weir__command *command, const redisReply *reply)
{
    struct weir__client *client = channel->client;
    bool cluster = client->options->kind == WEIR__CLUSTER;

    if (begins(reply, "NOSCRIPT")) {
        load_and_repeat(channel, command);
        return;
    }
    if (cluster && (begins(reply, "MOVED ") || begins(reply, "ASK "))) {
        redirect(channel, command, reply);
        return;
    }
    if (cluster && begins(reply, "TRYAGAIN")) {
        weir__route_succeeded(channel);
        resend(client, command, NULL, false, WEIR_ESTOREDOWN);
        return;
    }
    int error = weir__store_error(reply->str, (size_t)reply->len);
    copy_error(command->requests.first, reply->str);
    channel->rejects = true;
    weir__route_failed(channel, error);
    if (cluster && begins(reply, "CLUSTERDOWN")) {
        weir__topology_want_refresh(client);
        resend(client, command, NULL, false, error);
        return;
    }
    /* Errors with a code of their own are raised before the script writes anything. */
    weir__command_complete(client, command, error, error != WEIR_ESTOREERROR);
    /* A replica refuses writes: reconnect, since the address may belong to another server by now. */
    if (error == WEIR_ESTOREREADONLY)
        weir__channel_finish(channel);
}

void weir__command_reply(struct weir__channel *channel, struct weir__command *command, const redisReply *reply)
{
    struct weir__client *client = channel->client;
    struct weir__group_ref refs[WEIR__BATCH_GROUPS] = {{0}};
    struct weir__store_request *first = command->requests.first;
    int error;

    if (reply->type == REDIS_REPLY_ERROR) {
        error_reply(channel, command, reply);
        return;
    }
    if (first && first->raw) {
        error = first->raw->read(first, reply);
    } else {
        size_t count = list_groups(command, refs);
        error = weir__script_read(reply, refs, count);
        if (!error)
            learn_clock(channel, command, refs, count);
    }
    if (error) {
        channel->rejects = true;
        weir__command_complete(client, command, error, false);
        weir__channel_close(channel, error, false);
        return;
    }
    if (!command->late)
        weir__route_succeeded(channel);
    weir__command_complete(client, command, 0, true);
}
