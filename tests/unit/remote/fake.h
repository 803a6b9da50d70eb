/*
 * Simulated servers for the client, without sockets: they parse commands, keep counters of LIMIT units each, and
 * misbehave as a test wants. The script's call and reply are replaced by raw text (the linker's --wrap); test_script.c
 * and the end-to-end tests use the real ones.
 */
#ifndef WEIR_TEST_FAKE_H
#define WEIR_TEST_FAKE_H

#include "test_request.h"
#include "remote/client.h"
#include "remote/script.h"
#include "remote/client_internal.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdlib.h>

#define FAKE_SERVERS 6
#define FAKE_LIMIT   10
#define FAKE_KEYS    600

struct fake_server {
    bool down;   /* refuses connections */
    bool black;  /* neither accepts nor refuses */
    bool paused; /* accepts, and never replies */
    bool script; /* has the script */
    bool replica;
    const char *password, *user;
    const char *canned_reply; /* reply to EVALSHA, `canned_times` times; the raw bytes */
    int canned_times;
    const char *greets; /* reply to PING */
    int first_slot, last_slot, migrating_slot, importing_port, moved_port;
    bool apart;      /* a slot is migrating: commands with several of its keys get TRYAGAIN */
    int master_port; /* the master that this sentinel names; 0: none */
    bool slots_empty;
    int evals, loads, pings, selects, redirected_evals, connects;
    bool redirected;
    struct {
        char name[64];
        int64_t used;
    } keys[FAKE_KEYS];
    int key_count;
};

struct fake_channel {
    bool open, opening, output;
    int server;
    redisReader *commands;
    char *replies;
    size_t replied, delivered;
    unsigned serial;
};

static struct fake_server fake_servers[FAKE_SERVERS];
static struct fake_channel fake_channels[WEIR__CHANNELS];
static struct weir__store_options fake_options;
static struct weir__client *fake_client;
static int64_t fake_now, fake_wake;
static int fake_done_count, fake_ups, fake_downs, fake_last_error;
static size_t fake_piece; /* replies are delivered in pieces of this many bytes; 0: complete */
static void (*fake_done_hook)(struct weir__store_request *request);

/* ---- The script, as raw words ---- */

void __wrap_weir__script_call(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count,
                              const struct weir__exchange_sender *sending);
int __wrap_weir__script_read(const struct redisReply *reply, const struct weir__group_ref *refs, size_t count);

static void fake_word(struct weir__buffer *to, const char *format, ...)
{
    char text[600], head[32];
    va_list list;
    va_start(list, format);
    int len = vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    weir__buffer_add(to, head, (size_t)snprintf(head, sizeof(head), "$%d\r\n", len));
    weir__buffer_add(to, text, (size_t)len);
    weir__buffer_add(to, "\r\n", 2);
}

/* EVALSHA; one word per group: "(", or "(+" for one after the first, or "(-" for one whose first is not in the call;
 * one word per op. */
void __wrap_weir__script_call(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count,
                              const struct weir__exchange_sender *sending)
{
    char head[32];
    const char *sender_key = sending ? sending->key : NULL;
    size_t word_count = 2 + (sender_key != NULL);
    for (size_t i = 0; i < count; i++)
        word_count += 1 + refs[i].request->groups[refs[i].group].count;
    weir__buffer_add(to, head, (size_t)snprintf(head, sizeof(head), "*%zu\r\n", word_count));
    fake_word(to, "EVALSHA");
    if (sender_key)
        fake_word(to, "@%s %llu", sender_key, (unsigned long long)sending->batch);
    fake_word(to, "#");
    for (size_t i = 0; i < count; i++) {
        const struct weir__store_request *request = refs[i].request;
        const struct weir__group *group = &request->groups[refs[i].group];
        bool inside = false;
        for (size_t j = 0; j < i; j++)
            inside |= refs[j].request == request && refs[j].group == 0;
        fake_word(to, !group->after_first ? "(" : inside ? "(+" : "(-");
        for (uint32_t j = 0; j < group->count; j++) {
            const struct weir__store_op *op = &request->ops[group->first + j];
            fake_word(to, "%d %lld %s", (int)op->kind, (long long)op->cost, op->name);
        }
    }
}

/* Integers: 1 passed, 2 passed and taken, 0 denied. */
int __wrap_weir__script_read(const struct redisReply *reply, const struct weir__group_ref *refs, size_t count)
{
    size_t at = 0;
    if (reply->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < count; i++) {
        const struct weir__group *group = &refs[i].request->groups[refs[i].group];
        for (uint32_t j = 0; j < group->count; j++, at++) {
            struct weir__store_op *op = &refs[i].request->ops[group->first + j];
            if (at >= reply->elements || reply->element[at]->type != REDIS_REPLY_INTEGER)
                return WEIR_ESTOREGARBAGE;
            op->error = 0;
            op->taken = reply->element[at]->integer == 2;
            op->decision = (weir_decision){.verdict = reply->element[at]->integer > 0 ? WEIR_ALLOW : WEIR_DENY};
        }
    }
    return at == reply->elements ? 0 : WEIR_ESTOREGARBAGE;
}

/* ---- Servers ---- */

static int64_t *fake_used(struct fake_server *server, const char *name)
{
    for (int i = 0; i < server->key_count; i++)
        if (strcmp(server->keys[i].name, name) == 0)
            return &server->keys[i].used;
    if (server->key_count == FAKE_KEYS)
        abort();
    snprintf(server->keys[server->key_count].name, sizeof(server->keys[0].name), "%s", name);
    server->keys[server->key_count].used = 0;
    return &server->keys[server->key_count++].used;
}

static void fake_reply(struct fake_channel *channel, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int len = vsnprintf(NULL, 0, format, list);
    va_end(list);
    channel->replies = realloc(channel->replies, channel->replied + (size_t)len + 1);
    vsnprintf(channel->replies + channel->replied, (size_t)len + 1, format, again);
    va_end(again);
    channel->replied += (size_t)len;
}

static unsigned fake_slot(const redisReply *command)
{
    for (size_t i = 2; i < command->elements; i++) {
        const char *word = command->element[i]->str;
        if (word[0] != '(' && word[0] != '#' && word[0] != '@') {
            const char *name = strchr(strchr(word, ' ') + 1, ' ') + 1;
            return weir__slot(name, strlen(name));
        }
    }
    return 0;
}

/* Executes one group: words from `at` on. Returns where it ends. */
static size_t fake_group(struct fake_server *server, const redisReply *command, size_t at, bool *first_passed,
                         char *reply_text)
{
    const char *mark = command->element[at]->str;
    bool look = mark[1] == '-' || (mark[1] == '+' && !*first_passed), passes = true;
    size_t end = at + 1;
    while (end < command->elements && command->element[end]->str[0] != '(') {
        char *rest;
        long kind = strtol(command->element[end]->str, &rest, 10);
        long long cost = strtoll(rest, &rest, 10);
        passes &= (kind != WEIR__OP_TAKE && kind != WEIR__OP_PEEK) || *fake_used(server, rest + 1) + cost <= FAKE_LIMIT;
        end++;
    }
    for (size_t i = at + 1; i < end; i++) {
        char *rest;
        long kind = strtol(command->element[i]->str, &rest, 10);
        long long cost = strtoll(rest, &rest, 10);
        int64_t *used = fake_used(server, rest + 1);
        bool fits = (kind != WEIR__OP_TAKE && kind != WEIR__OP_PEEK) || *used + cost <= FAKE_LIMIT;
        bool taken = passes && !look && kind == WEIR__OP_TAKE && cost > 0;
        if (taken || kind == WEIR__OP_CHARGE || kind == WEIR__OP_EXCHANGE)
            *used += cost;
        if (kind == WEIR__OP_REFUND)
            *used -= cost;
        sprintf(reply_text + strlen(reply_text), ":%d\r\n", taken ? 2 : fits ? 1 : 0);
    }
    if (mark[1] == '\0')
        *first_passed = passes;
    return end;
}

static void fake_eval(struct fake_server *server, struct fake_channel *channel, const redisReply *command)
{
    unsigned slot = fake_slot(command);
    bool redirected = server->redirected, first_passed = true;
    char reply_text[16384] = "";
    size_t ops = 0, at = 1;
    server->redirected = false;
    server->evals++;
    if (server->canned_reply && server->canned_times-- > 0) {
        fake_reply(channel, "%s", server->canned_reply);
        return;
    }
    if (!server->script) {
        fake_reply(channel, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
        return;
    }
    if (fake_options.kind == WEIR__CLUSTER && (int)slot == server->migrating_slot && !redirected) {
        fake_reply(channel, "-ASK %u f:%d\r\n", slot, server->importing_port);
        return;
    }
    if (fake_options.kind == WEIR__CLUSTER && !redirected &&
        ((int)slot < server->first_slot || (int)slot > server->last_slot)) {
        fake_reply(channel, "-MOVED %u f:%d\r\n", slot, server->moved_port);
        return;
    }
    server->redirected_evals += redirected;
    while (command->element[at]->str[0] != '(')
        at++;
    for (size_t i = at; i < command->elements; i++)
        ops += command->element[i]->str[0] != '(';
    if (server->apart && ops > 1) {
        fake_reply(channel, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
        return;
    }
    while (at < command->elements)
        at = fake_group(server, command, at, &first_passed, reply_text);
    fake_reply(channel, "*%zu\r\n%s", ops, reply_text);
}

static void fake_slots(struct fake_channel *channel)
{
    int count = 0;
    for (int i = 0; i < FAKE_SERVERS; i++)
        count += fake_servers[i].last_slot > 0;
    fake_reply(channel, "*%d\r\n", count);
    for (int i = 0; i < FAKE_SERVERS; i++)
        if (fake_servers[i].last_slot > 0)
            fake_reply(channel, "*3\r\n:%d\r\n:%d\r\n*2\r\n$1\r\nf\r\n:%d\r\n", fake_servers[i].first_slot,
                       fake_servers[i].last_slot, i + 1);
}

static void fake_command(struct fake_channel *channel, const redisReply *command)
{
    struct fake_server *server = &fake_servers[channel->server];
    const char *word = command->element[0]->str;
    if (strcmp(word, "PING") == 0) {
        server->pings++;
        fake_reply(channel, "%s", server->greets ? server->greets : "+PONG\r\n");
    } else if (strcmp(word, "AUTH") == 0) {
        bool good = server->password && strcmp(command->element[command->elements - 1]->str, server->password) == 0 &&
                    (command->elements == 2 || (server->user && strcmp(command->element[1]->str, server->user) == 0));
        fake_reply(channel, good ? "+OK\r\n" : "-WRONGPASS invalid username-password pair\r\n");
    } else if (strcmp(word, "SELECT") == 0) {
        server->selects = atoi(command->element[1]->str);
        fake_reply(channel, "+OK\r\n");
    } else if (strcmp(word, "ROLE") == 0) {
        fake_reply(channel, server->replica ? "*1\r\n$5\r\nslave\r\n" : "*1\r\n$6\r\nmaster\r\n");
    } else if (strcmp(word, "SCRIPT") == 0) {
        server->script = true;
        server->loads++;
        fake_reply(channel, "$3\r\nsha\r\n");
    } else if (strcmp(word, "ASKING") == 0) {
        server->redirected = true;
        fake_reply(channel, "+OK\r\n");
    } else if (strcmp(word, "CLUSTER") == 0) {
        if (server->slots_empty)
            fake_reply(channel, "*0\r\n");
        else
            fake_slots(channel);
    } else if (strcmp(word, "SENTINEL") == 0) {
        if (server->master_port)
            fake_reply(channel, "*2\r\n$1\r\nf\r\n$1\r\n%d\r\n", server->master_port);
        else
            fake_reply(channel, "*-1\r\n");
    } else if (strcmp(word, "EVALSHA") == 0) {
        fake_eval(server, channel, command);
    } else {
        fake_reply(channel, "-ERR unknown command\r\n");
    }
}

/* ---- The driver ---- */

static void fake_shut(struct fake_channel *channel)
{
    if (channel->commands)
        redisReaderFree(channel->commands);
    free(channel->replies);
    *channel = (struct fake_channel){.serial = channel->serial + 1};
}

/* The server has closed the connection. */
static inline void fake_lose(unsigned number)
{
    fake_shut(&fake_channels[number]);
    weir__client_closed(fake_client, number, 0, fake_now);
}

static void fake_open(void *context, unsigned number, const char *host, uint16_t port)
{
    struct fake_channel *channel = &fake_channels[number];
    (void)context;
    (void)host;
    if (channel->opening || channel->open)
        abort();
    channel->serial++;
    channel->opening = true;
    channel->server = port - 1;
    fake_servers[channel->server].connects++;
}

static void fake_close(void *context, unsigned number)
{
    (void)context;
    if (!fake_channels[number].opening && !fake_channels[number].open)
        abort();
    fake_shut(&fake_channels[number]);
}

static void fake_send(void *context, unsigned number)
{
    (void)context;
    if (fake_channels[number].output)
        abort(); /* must not be called again before everything is sent */
    fake_channels[number].output = true;
}

static void fake_set_wake(void *context, int64_t at_us)
{
    (void)context;
    fake_wake = at_us;
}

static void fake_done(void *context, struct weir__store_request *request)
{
    (void)context;
    if (request->owner)
        ++*(int *)request->owner;
    fake_done_count++;
    if (fake_done_hook)
        fake_done_hook(request);
}

static void fake_changed(void *context, bool up, int error, const char *where)
{
    (void)context;
    (void)where;
    fake_ups += up;
    fake_downs += !up;
    fake_last_error = error;
}

static const struct weir__driver fake_driver = {.open = fake_open,
                                                .close = fake_close,
                                                .send = fake_send,
                                                .wake = fake_set_wake,
                                                .done = fake_done,
                                                .changed = fake_changed};

/* Delivers the bytes that were sent to the server. */
static void fake_transmit(unsigned number)
{
    struct fake_channel *channel = &fake_channels[number];
    size_t len;
    const char *data = weir__client_output(fake_client, number, &len);
    if (len > 0)
        redisReaderFeed(channel->commands, data, len);
    channel->output = false;
    weir__client_sent(fake_client, number, len, fake_now);
}

static bool fake_move(unsigned number)
{
    struct fake_channel *channel = &fake_channels[number];
    bool moved = false;
    if (channel->opening) {
        struct fake_server *server = &fake_servers[channel->server];
        if (server->black)
            return false;
        if (server->down) {
            fake_lose(number);
            return true;
        }
        channel->opening = false;
        channel->open = true;
        channel->commands = redisReaderCreate();
        weir__client_opened(fake_client, number, fake_now);
        moved = true;
    }
    if (!channel->open)
        return moved;
    if (channel->output) {
        fake_transmit(number);
        moved = true;
    }
    void *command = NULL;
    while (!fake_servers[channel->server].paused && redisReaderGetReply(channel->commands, &command) == REDIS_OK &&
           command) {
        fake_command(channel, command);
        freeReplyObject(command);
        moved = true;
    }
    unsigned serial = channel->serial;
    while (channel->serial == serial && channel->delivered < channel->replied) {
        size_t left = channel->replied - channel->delivered,
               piece = fake_piece && fake_piece < left ? fake_piece : left;
        channel->delivered += piece;
        char *copy = malloc(piece);
        memcpy(copy, channel->replies + channel->delivered - piece, piece);
        weir__client_received(fake_client, number, copy, piece, fake_now);
        free(copy);
        moved = true;
    }
    return moved;
}

/* Runs everything that can happen without time passing. */
static void fake_run(void)
{
    weir__client_flush(fake_client, fake_now);
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned i = 0; i < WEIR__CHANNELS; i++)
            moved |= fake_move(i);
        if (fake_wake <= fake_now) {
            weir__client_tick(fake_client, fake_now);
            moved = true;
        }
    }
}

/* Lets time pass, with every wake-up on the way. */
static void fake_pass(int64_t us)
{
    int64_t until = fake_now + us;
    fake_run();
    while (fake_wake <= until) {
        fake_now = fake_wake > fake_now ? fake_wake : fake_now;
        weir__client_tick(fake_client, fake_now);
        fake_run();
    }
    fake_now = until;
}

static void fake_begin(const char *url)
{
    char why[256];
    memset(fake_servers, 0, sizeof(fake_servers));
    for (int i = 0; i < FAKE_SERVERS; i++) {
        fake_servers[i].script = true;
        fake_servers[i].migrating_slot = -1;
    }
    if (weir__store_parse(url, &fake_options, why, sizeof(why)))
        abort();
    fake_now = 1000000;
    fake_wake = INT64_MAX;
    fake_done_count = fake_ups = fake_downs = fake_last_error = 0;
    fake_piece = 0;
    fake_done_hook = NULL;
    fake_client = weir__client_new(&fake_options, &fake_driver, 1, fake_now);
}

static void fake_end(void)
{
    weir__client_free(fake_client);
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        if (fake_channels[i].open || fake_channels[i].opening)
            abort(); /* the client must close its connections */
        fake_channels[i] = (struct fake_channel){0};
    }
}

static inline struct weir__client_stats fake_stats(void)
{
    struct weir__client_stats stats;
    weir__client_stats_read(fake_client, &stats);
    return stats;
}

#endif
