/* The client of a store: the functions of client.h. */
#include "remote/client_internal.h"

#include <stdlib.h>
#include <string.h>

#define QUESTIONS_MAX 65536 /* that wait at once */
#define OUT_MOVED     65536 /* bytes: from then on what is left to send moves to the front */

uint64_t weir__client_random(struct weir__client *client, uint64_t bound)
{
    uint64_t z = (client->random += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
}

/* ---- In and out of the client ---- */

static void enter(struct weir__client *client, int64_t now_us)
{
    client->inside++;
    if (now_us > client->now_us)
        client->now_us = now_us;
}

/* Those that are there now: what `done` ends at once waits for the next time, so that this ends. */
static void call_done(struct weir__client *client)
{
    uint32_t count = 0;

    for (const struct weir__question *question = client->finished.first; question; question = question->next)
        count++;
    for (struct weir__question *question; count > 0 && (question = client->finished.first); count--) {
        weir__list_remove(question);
        question->state = 0;
        client->driver.done(client->driver.context, question);
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

/* ---- Beginning and end ---- */

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
    client->seed = (unsigned)weir__client_random(client, WEIR__STORE_SEEDS);
    for (unsigned i = 0; i < WEIR__SLOTS; i++)
        client->owner[i] = WEIR__SLOT_NOBODY;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        struct weir__channel *channel = &client->channels[i];
        channel->client = client;
        channel->number = i;
        channel->waiting.channel = channel;
        weir__breaker_init(&channel->breaker, options->breaker_failures, options->retry_min_us, options->retry_max_us,
                           weir__client_random(client, UINT64_MAX));
    }
    weir__guide(client)->used = options->kind != WEIR__SINGLE;
    if (options->kind != WEIR__CLUSTER) {
        client->nodes_end = 1;
        client->channels[0].used = true;
        client->channels[0].host = options->seeds[0];
    }
    return client;
}

static void forget_list(struct weir__client *client, struct weir__list *list)
{
    for (struct weir__question *question; (question = list->first);) {
        weir__list_remove(question);
        if (question->state & (WEIR__Q_GHOST | WEIR__Q_BACK))
            weir__own_free(client, question);
        else if (!(question->state & WEIR__Q_PIECE))
            question->state = 0;
    }
}

static void free_channel(struct weir__channel *channel)
{
    struct weir__client *client = channel->client;

    forget_list(client, &channel->waiting);
    for (struct weir__command *command; (command = channel->first);) {
        channel->first = command->next;
        forget_list(client, &command->questions);
        free(command);
    }
    if (channel->state > WEIR__LOOKING)
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
    forget_list(client, &client->homeless);
    weir__split_free_all(client);
    for (struct weir__command *command; (command = client->free_commands);) {
        client->free_commands = command->next;
        free(command);
    }
    free((void *)client->timers);
    free(client);
}

void weir__client_start(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    if (client->options->kind == WEIR__CLUSTER)
        weir__guide_want(client);
    else if (client->channels[0].breaker.state == WEIR__BREAKER_CLOSED)
        weir__route_connect(&client->channels[0]);
    leave(client, true);
}

/* ---- Questions ---- */

static bool makes_sense(const struct weir__question *question)
{
    if (question->plain)
        return question->ask_count == 0 && question->group_count == 0;
    if (question->group_count == 0 || question->ask_count == 0 || question->groups[0].after_first)
        return false;
    for (uint32_t i = 0; i < question->group_count; i++) {
        const struct weir__group *group = &question->groups[i];
        if (group->count == 0 || group->first >= question->ask_count ||
            group->count > question->ask_count - group->first)
            return false;
    }
    return true;
}

static uint16_t slot_of(const struct weir__question *question)
{
    if (question->plain)
        return (uint16_t)weir__slot(question->plain->slot, strlen(question->plain->slot));
    return (uint16_t)weir__slot(question->asks[0].name, question->asks[0].name_len);
}

void weir__client_ask(struct weir__client *client, struct weir__question *question, int64_t now_us)
{
    int error = 0;

    enter(client, now_us);
    client->stats.questions++;
    question->error = 0;
    question->next = question->previous = NULL;
    question->list = NULL;
    question->timer = 0;
    question->slot = 0;
    question->tries = 0;
    question->state = WEIR__Q_LIVE;
    if (question->deadline_us == 0)
        question->deadline_us = client->now_us + client->options->deadline_us;
    if (!makes_sense(question))
        error = WEIR_EINVAL;
    else if (client->timer_count >= QUESTIONS_MAX)
        error = WEIR_ESTOREAWAY;
    else if (!weir__timer_add(client, question))
        error = WEIR_ENOMEM;
    if (error) {
        weir__question_end(client, question, error, true);
    } else if (weir__split_needed(client, question)) {
        weir__split_begin(client, question);
    } else {
        if (client->options->kind == WEIR__CLUSTER)
            question->slot = slot_of(question);
        weir__route(client, question);
    }
    leave(client, false);
}

void weir__client_flush(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    leave(client, true);
}

void weir__question_abandon(struct weir__question *question)
{
    for (uint32_t i = 0; i < question->ask_count; i++)
        question->asks[i].stays = question->asks[i].limit.algorithm != WEIR_CONCURRENCY;
}

void weir__client_forget(struct weir__client *client, struct weir__question *question)
{
    if (!(question->state & (WEIR__Q_LIVE | WEIR__Q_DONE)))
        return;
    enter(client, client->now_us);
    weir__timer_remove(client, question);
    if (!(question->state & WEIR__Q_SPLIT))
        weir__question_abandon(question);
    if (question->state & WEIR__Q_DONE) {
        weir__list_remove(question);
        if (!question->error)
            weir__give_back(client, question->asks, question->ask_count);
    } else if (question->state & WEIR__Q_SPLIT) {
        weir__split_drop(client, question, false);
    } else {
        weir__question_drop(client, question);
    }
    question->state = 0;
    leave(client, false);
}

void weir__client_give_back(struct weir__client *client, const struct weir__question *question, int64_t now_us)
{
    enter(client, now_us);
    weir__give_back(client, question->asks, question->ask_count);
    leave(client, false);
}

/* ---- What the driver tells ---- */

void weir__client_opened(struct weir__client *client, unsigned channel, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state == WEIR__CONNECTING)
        weir__greet(&client->channels[channel]);
    leave(client, true);
}

void weir__client_closed(struct weir__client *client, unsigned channel, int error, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state > WEIR__LOOKING)
        weir__channel_shut(&client->channels[channel], error ? error : WEIR_ESTOREDOWN, true);
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
        /* A server that is always a bit behind must not make the buffer grow. */
        memmove(from->out.data, from->out.data + from->out_at, from->out.len - from->out_at);
        from->out.len -= from->out_at;
        from->out_at = 0;
    }
    leave(client, false);
}

void weir__client_received(struct weir__client *client, unsigned channel, const char *data, size_t len, int64_t now_us)
{
    enter(client, now_us);
    if (client->channels[channel].state > WEIR__CONNECTING)
        weir__channel_received(&client->channels[channel], data, len);
    leave(client, true);
}

void weir__client_tick(struct weir__client *client, int64_t now_us)
{
    enter(client, now_us);
    weir__client_pass_time(client);
    client->wake_us = -1; /* the time that was set has passed, or may have */
    leave(client, true);
}

/* ---- Drivers that rest between questions ---- */

void weir__client_rested(struct weir__client *client, unsigned channel, int64_t for_us)
{
    client->channels[channel].since_us += for_us;
}

static bool probed(struct weir__client *client, unsigned slot)
{
    const struct weir__channel *channel = weir__route_slot(client, slot);

    if (!channel)
        channel = weir__guide(client);
    return channel->breaker.state == WEIR__BREAKER_PROBING;
}

bool weir__client_looks(struct weir__client *client, const struct weir__question *question)
{
    bool looks = question->plain && probed(client, slot_of(question));
    uint32_t most = client->options->kind == WEIR__CLUSTER ? question->ask_count : 1; /* all go the same way */

    for (uint32_t i = 0; i < most && i < question->ask_count && !looks; i++)
        looks = probed(client, weir__slot(question->asks[i].name, question->asks[i].name_len));
    return looks;
}

/* ---- Figures ---- */

static enum weir__store_state state_of(const struct weir__breaker *breaker)
{
    return breaker->state == WEIR__BREAKER_CLOSED ? WEIR__STORE_UP
           : breaker->state == WEIR__BREAKER_OPEN ? WEIR__STORE_DOWN
                                                  : WEIR__STORE_PROBING;
}

/* A cluster is up as long as one of its servers is: the others' slots fail by themselves. */
static enum weir__store_state store_state(const struct weir__client *client)
{
    enum weir__store_state state = WEIR__STORE_DOWN;

    if (client->options->kind != WEIR__CLUSTER)
        state = state_of(&client->channels[0].breaker);
    else if (!client->have_map)
        state = state_of(&client->channels[WEIR__GUIDE].breaker);
    else
        for (unsigned i = 0; i < client->nodes_end; i++) {
            enum weir__store_state one = state_of(&client->channels[i].breaker);
            if (client->channels[i].listed && state != WEIR__STORE_UP && one != WEIR__STORE_DOWN)
                state = one;
        }
    return state == WEIR__STORE_UP ? client->stats.state : state;
}

bool weir__client_owes(const struct weir__client *client)
{
    return client->own_count > 0;
}

void weir__client_stats_read(const struct weir__client *client, struct weir__client_stats *stats)
{
    *stats = client->stats;
    stats->state = store_state(client);
}
