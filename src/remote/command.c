/* Questions put together into commands, and what the replies to these mean. */
#include "remote/client_internal.h"

#include <stdio.h>
#include <string.h>

#define LOOKED_THROUGH 64   /* questions of other slots, for those of one */
#define DRIFT          1024 /* clocks do not drift apart by more than one part in so many */

/* ---- The server's clock ---- */

void weir__ahead_learn(struct weir__ahead *ahead, int64_t clock_us, int64_t sent_us, int64_t now_us)
{
    int64_t least = clock_us - now_us, most = clock_us - sent_us, drift = (now_us - ahead->at_us) / DRIFT;
    if (ahead->at_us && least <= ahead->most_us + drift && most >= ahead->least_us - drift) {
        least = least > ahead->least_us - drift ? least : ahead->least_us - drift;
        most = most < ahead->most_us + drift ? most : ahead->most_us + drift;
    } /* else one of the clocks was stepped, or it is another server */
    *ahead = (struct weir__ahead){least, most, now_us};
}

static void learn_clock(struct weir__channel *channel, const struct weir__command *command,
                        const struct weir__batch_part *parts, size_t count)
{
    int64_t now_us = channel->client->now_us;
    for (size_t p = 0; p < count; p++) {
        const struct weir__group *group = &parts[p].question->groups[parts[p].group];
        for (uint32_t i = 0; i < group->count; i++) {
            struct weir__ask *ask = &parts[p].question->asks[group->first + i];
            if (p + i == 0 && ask->how != WEIR__ASK_REFUND)
                weir__ahead_learn(&channel->ahead, ask->at_us, command->sent_us, now_us);
            if (ask->how != WEIR__ASK_EXCHANGE)
                return;
            int64_t middle = channel->ahead.least_us + (channel->ahead.most_us - channel->ahead.least_us) / 2;
            int64_t ago = now_us - (ask->at_us - middle), most = now_us - command->sent_us;
            ask->ago_us = ago < 0 ? 0 : ago < most ? ago : most;
        }
    }
}

/* ---- Sending ---- */

/* A piece's first group is its question's, which it only looks at. */
static uint32_t first_asked(const struct weir__question *question)
{
    return weir__split_is_run(question) ? 1 : 0;
}

static uint32_t groups_asked(const struct weir__question *question)
{
    return question->group_count - first_asked(question);
}

static size_t fill_parts(const struct weir__command *command, struct weir__batch_part parts[WEIR__BATCH_GROUPS])
{
    size_t count = 0;

    for (struct weir__question *question = command->questions.first; question; question = question->next)
        for (uint32_t group = first_asked(question); group < question->group_count; group++)
            parts[count++] = (struct weir__batch_part){question, group};
    return count;
}

/* Can it go with the command? `groups` are in it. */
static bool fits(const struct weir__client *client, const struct weir__command *command,
                 const struct weir__question *question, uint32_t groups)
{
    const struct weir__question *first = command->questions.first;

    if (!first)
        return true;
    if (groups + groups_asked(question) > WEIR__BATCH_GROUPS || first->sender || question->sender || first->plain ||
        question->plain)
        return false;
    if ((first->state | question->state) & WEIR__Q_ASKING)
        return false;
    /* Of a slot that moves, one key is answered where it is, or there is an ASK; several that are not all at one place
     * are put off (TRYAGAIN) as long as it moves. So who is asked for again goes alone. */
    return client->options->kind != WEIR__CLUSTER ||
           (first->slot == question->slot && first->tries == 0 && question->tries == 0);
}

/*
 * Moves what goes together from those that wait into the command. In a cluster that is what is in the same slot: the
 * next ones are looked through for it, as a key that many want is among others.
 */
static void gather(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;
    unsigned passed_over = 0, most = client->options->kind == WEIR__CLUSTER ? LOOKED_THROUGH : 0;
    uint32_t groups = 0;

    for (struct weir__question *question = channel->waiting.first, *next; question && passed_over <= most;
         question = next) {
        next = question->next;
        if (!fits(client, command, question, groups)) {
            passed_over++;
            continue;
        }
        weir__list_remove(question);
        weir__list_add(&command->questions, question);
        groups += groups_asked(question);
    }
}

/* Writes the command into the channel's buffer, and after it there is only the answer to wait for. */
static bool send_command(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;
    struct weir__batch_part parts[WEIR__BATCH_GROUPS];
    size_t count = fill_parts(command, parts);
    const struct weir__question *first = command->questions.first;
    uint64_t begin = channel->out_total;
    /* In a cluster the sender's key would be in another slot; docs/store.md says what follows. */
    if (first->plain) {
        weir__buffer_add(&channel->out, first->plain->command, first->plain->command_len);
    } else if (first->sender && first->sender[0]) {
        char key[WEIR__STORE_NAME_MAX + 1];
        snprintf(key, sizeof(key), "%s::%s:%u", client->options->prefix, first->sender, (unsigned)first->slot);
        const struct weir__ahead *ahead = &channel->ahead;
        weir__script_call(&channel->out, parts, count,
                          &(struct weir__sending){.key = client->options->kind == WEIR__CLUSTER ? NULL : key,
                                                  .batch = first->batch,
                                                  /* By the later bound: what was fast never looks late. */
                                                  .clock_us = ahead->at_us ? client->now_us + ahead->most_us : 0});
    } else {
        weir__script_call(&channel->out, parts, count, NULL);
    }
    return weir__channel_sent(channel, command, begin);
}

void weir__channel_flush(struct weir__channel *channel)
{
    static const char *const asking[] = {"ASKING"};
    struct weir__client *client = channel->client;
    uint64_t generation = channel->generation;

    while (channel->state == WEIR__READY && channel->waiting.first && channel->generation == generation) {
        bool ask = channel->waiting.first->state & WEIR__Q_ASKING;
        if (ask && !weir__channel_say(channel, WEIR__SAY_ASKING, asking, 1))
            return;
        struct weir__command *command = weir__command_new(client, WEIR__SAY_ASK);
        if (!command) {
            weir__channel_shut(channel, WEIR_ENOMEM, false);
            return;
        }
        command->questions.channel = channel;
        gather(channel, command);
        (void)send_command(channel, command);
    }
}

/* ---- Answers ---- */

void weir__command_fail(struct weir__client *client, struct weir__command *command, int error, bool sure)
{
    for (struct weir__question *question; (question = command->questions.first);) {
        weir__list_remove(question);
        if (error && !sure)
            weir__give_back_doubtful(client, question);
        weir__question_end(client, question, error, sure);
    }
}

/* The server does not know the script: it is loaded once, and every command that came before it is sent again. */
static void load_and_repeat(struct weir__channel *channel, struct weir__command *command)
{
    struct weir__client *client = channel->client;

    for (struct weir__question *question = command->questions.first, *next; question; question = next) {
        next = question->next;
        bool tired = ++question->tries > WEIR__TRIES;
        /* Nobody waits for a ghost's answer, and nothing was taken. */
        if (!tired && !(question->state & WEIR__Q_GHOST))
            continue;
        int error = channel->load_error ? channel->load_error : WEIR_ESTOREERROR;
        weir__list_remove(question);
        weir__question_end(client, question, error, true);
        if (tired)
            weir__route_failed(channel, error);
    }
    if (!command->questions.first || channel->state != WEIR__READY) {
        /* If that was the one that tried whether the server is back, it has not tried: another must. */
        weir__breaker_untried(&channel->breaker);
        weir__command_fail(client, command, WEIR_ESTOREDOWN, true);
        weir__command_free(client, command);
        return;
    }
    const struct weir__plain *plain = command->questions.first->plain;
    const char *const load[] = {"SCRIPT", "LOAD", plain ? plain->script : weir__script};
    if (channel->loading != load[2]) {
        channel->loading = load[2];
        client->stats.script_loads++;
        if (!weir__channel_say(channel, WEIR__SAY_LOAD, load, 3)) {
            weir__command_fail(client, command, WEIR_ESTOREDOWN, true);
            weir__command_free(client, command);
            return;
        }
    }
    (void)send_command(channel, command);
}

/* Elsewhere, or here a little later: nothing has been carried out. */
static void ask_again(struct weir__client *client, struct weir__command *command, struct weir__channel *to, bool asking,
                      int error)
{
    for (struct weir__question *question; (question = command->questions.first);) {
        weir__list_remove(question);
        question->state &= (uint8_t) ~(WEIR__Q_ASKING | WEIR__Q_TRIAL);
        if (question->state & WEIR__Q_GHOST || ++question->tries > WEIR__TRIES) {
            weir__question_end(client, question, error, true);
        } else if (to) {
            question->state |= asking ? WEIR__Q_ASKING : 0;
            weir__route_to(to, question);
        } else {
            weir__route_soon(client, question);
        }
    }
    weir__command_free(client, command);
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
    bool asking = begins(reply, "ASK ");
    struct weir__store_host host;
    unsigned slot;
    struct weir__channel *to = NULL;

    if (weir__slots_redirect(reply->str + (asking ? 4 : 6), channel->host.name, &slot, &host))
        to = weir__route_host(client, &host);
    client->stats.redirects++;
    weir__route_succeeded(channel);
    if (!asking) {
        if (to)
            client->owner[slot] = (uint8_t)to->number;
        weir__guide_want(client);
    }
    ask_again(client, command, to, asking, WEIR_ESTORECROSSSLOT);
}

static void tell_why(struct weir__question *question, const char *text)
{
    if (question && question->plain && !(question->state & WEIR__Q_GHOST))
        snprintf(question->plain->why, sizeof(question->plain->why), "%s", text);
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
        ask_again(client, command, NULL, false, WEIR_ESTOREDOWN);
        return;
    }
    int error = weir__store_error(reply->str, (size_t)reply->len);
    tell_why(command->questions.first, reply->str);
    weir__route_failed(channel, error);
    if (cluster && begins(reply, "CLUSTERDOWN")) {
        weir__guide_want(client);
        ask_again(client, command, NULL, false, error);
        return;
    }
    /* What has a name was said before the script wrote anything. */
    weir__command_fail(client, command, error, error != WEIR_ESTOREERROR);
    weir__command_free(client, command);
    /* Whoever is no master any more must not be asked again; another may have its address by now. */
    if (error == WEIR_ESTOREREADONLY)
        weir__channel_drain(channel);
}

void weir__command_reply(struct weir__channel *channel, struct weir__command *command, const redisReply *reply)
{
    struct weir__client *client = channel->client;
    struct weir__batch_part parts[WEIR__BATCH_GROUPS];

    if (reply->type == REDIS_REPLY_ERROR) {
        error_reply(channel, command, reply);
        return;
    }
    struct weir__question *first = command->questions.first;
    size_t count = first && first->plain ? 0 : fill_parts(command, parts);
    int error = first && first->plain ? first->plain->read(first, reply) : weir__script_read(reply, parts, count);
    if (!error)
        learn_clock(channel, command, parts, count);
    if (error) {
        weir__command_fail(client, command, error, false);
        weir__command_free(client, command);
        weir__channel_shut(channel, error, false);
        return;
    }
    if (!command->late)
        weir__route_succeeded(channel);
    weir__command_fail(client, command, 0, true);
    weir__command_free(client, command);
}
