/*
 * Blocks and resets of keys on all hosts: see key_exchange.h.
 *
 * The agent keeps all entries of the store in memory. Every 200 ms it sends the commands of its queue, in their order,
 * and reads the entries with a later sequence number than the last one it has seen. Every 10 s, at its start, after a
 * failed round, and when the store's last number is lower than that (it lost data), it reads all entries, blocks the
 * keys again, which repairs a replaced segment and rules that came later, and restores those that the store lacks or
 * has in an older state: every host does so with its own copies, and the highest number wins.
 */
#include "sync/key_exchange.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/hash.h"
#include "base/number.h"
#include "engine/hot_key_sampler.h"
#include "remote/client.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_US   INT64_C(500000)
#define PASS_MS       10000 /* between two reads of all entries */
#define KEPT_MS       60000 /* an entry without a block that could last longer */
#define RECENT_MS     10000 /* resets that a starting agent applies: its predecessor may have missed them */
#define STUCK_MS      1000  /* a command whose writer does not complete it */
#define RESET_WAIT_MS 150   /* so that the refund of an eventual rule reaches the store first */
#define SEND_MS       1000  /* of a round, for the queue: entries of other hosts do not wait for all of it */
#define READ_MS       15000 /* of a round, for reading: a store that takes longer fails the round */
#define RESTORE_MS    5000  /* of a round, for restoring: the next read of all entries goes on */
#define PAGE          256   /* entries in a reply */
#define PAGES_MAX     (2 * WEIR__SHARED_KEYS_MAX / PAGE) /* twice what a store has: entries move while they are read */
#define FIELDS        9                                  /* of an entry in a reply */
#define ARGUMENTS     18
#define OWN_RESETS    64
#define SEEN_QUERIES  (2 * WEIR__OPEN_QUERIES_MAX) /* a query is open for less time than as many others take */
#define HEAD          3                            /* elements of a reply before its entries */

struct weir__key_exchange {
    const struct weir__config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__store_options options;
    struct weir__blocking_client *client;
    char entries_key[96], order_key[96], sender_key[128], queries_key[96];
    char host[65];

    bool (*ending)(void *context); /* NULL: a round ends by itself */
    void *ending_context;

    bool (*take)(void *context, const struct weir__open_query *query); /* NULL: queries are ignored */
    void *take_context;
    char seen_queries[SEEN_QUERIES][17]; /* that were taken */
    size_t seen_count;

    pthread_mutex_t lock; /* of the list, which only the round changes */
    struct weir__shared_key *list;
    size_t count, capacity; /* the capacity is a power of 2 */
    uint32_t *slots;        /* twice the capacity, a hash table by identity: index of an entry plus 1; 0: free */
    int64_t last;           /* highest sequence number that was read */
    int64_t pass_due_ms;
    bool began;                     /* all entries were read once */
    int64_t applied;                /* of the agent before: struct weir__key_header */
    bool failed;                    /* in the last round: the store may have lost entries meanwhile */
    int64_t own_resets[OWN_RESETS]; /* sequence numbers: applied when they were made */
    size_t own_count;
    int64_t stuck_ms;                /* since when the first command is incomplete; 0: it is not */
    bool refused;                    /* it was logged that the store refuses the script */
    char why[WEIR__RAW_COMMAND_WHY]; /* the store's last error */
};

/* One call of the script. */
struct key_call {
    struct weir__key_exchange *exchange;
    struct weir__store_request request;
    struct weir__raw_command raw;
    const char *arguments[ARGUMENTS];
    size_t lengths[ARGUMENTS];
    int count;
    char numbers[8][24]; /* arguments that are numbers */
    int number_count;
    /* Replies. */
    int64_t sequence;     /* of a put */
    int64_t newest, next; /* of a read */
    bool passes;          /* of a read: all entries are read, and live blocks are applied again */
};

/* ---- Opening ---- */

static bool open_store(struct weir__key_exchange *x)
{
    char url[8192], why[256] = "";
    if (!weir__store_url(&x->config->store, url, sizeof url, why, sizeof why) ||
        weir__store_parse(url, &x->options, why, sizeof why) != 0) {
        weir__logf(x->log, WEIR__LOG_ERROR, "store: %s", why);
        return false;
    }
    x->options.deadline_us = PATIENCE_US; /* not the deadline of a client's request */
    snprintf(x->entries_key, sizeof x->entries_key, "%s::{keys}", x->options.prefix);
    snprintf(x->order_key, sizeof x->order_key, "%s::{keys}:order", x->options.prefix);
    const struct weir__key_header *header = x->engine ? x->engine->key_commands.header : NULL;
    snprintf(x->sender_key, sizeof x->sender_key, "%s::{keys}:%016" PRIx64, x->options.prefix,
             header ? header->sender : 0);
    x->applied = header ? (int64_t)weir__load64(&header->applied) : 0;
    snprintf(x->queries_key, sizeof x->queries_key, "%s::{keys}:queries", x->options.prefix);
    x->client = weir__blocking_client_new(&x->options);
    return x->client != NULL;
}

struct weir__key_exchange *weir__key_exchange_new(const struct weir__config *config, const struct weir__logger *log,
                                                  weir *engine)
{
    struct weir__key_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct weir__key_exchange){.config = config, .log = log, .engine = engine};
    pthread_mutex_init(&x->lock, NULL);
    if (config->host_name)
        snprintf(x->host, sizeof x->host, "%s", config->host_name);
    else if (gethostname(x->host, sizeof x->host - 1) != 0)
        x->host[0] = 0;
    if (open_store(x))
        return x;
    weir__key_exchange_free(x);
    return NULL;
}

void weir__key_exchange_free(struct weir__key_exchange *x)
{
    if (!x)
        return;
    if (x->client)
        weir__blocking_client_free(x->client);
    pthread_mutex_destroy(&x->lock);
    free(x->list);
    free(x->slots);
    free(x);
}

void weir__key_exchange_until(struct weir__key_exchange *x, bool (*ending)(void *context), void *context)
{
    x->ending = ending;
    x->ending_context = context;
}

void weir__key_exchange_queries(struct weir__key_exchange *x,
                                bool (*take)(void *context, const struct weir__open_query *query), void *context)
{
    x->take = take;
    x->take_context = context;
}

/* True if the time for a part of the round is over, or the caller wants the round to end. */
static bool is_over(const struct weir__key_exchange *x, int64_t until_ms)
{
    return weir__monotonic_ms() >= until_ms || (x->ending && x->ending(x->ending_context));
}

/* ---- Calls ---- */

static void add_text(struct key_call *call, weir_text text)
{
    call->arguments[call->count] = text.data ? text.data : "";
    call->lengths[call->count++] = text.len;
}

static void add_number(struct key_call *call, int64_t number)
{
    char *digits = call->numbers[call->number_count++];
    snprintf(digits, sizeof call->numbers[0], "%" PRId64, number);
    add_text(call, weir__text_of(digits));
}

static void begin_call(struct key_call *call, struct weir__key_exchange *x, const char *what)
{
    *call = (struct key_call){.exchange = x};
    const char *const head[] = {"EVALSHA",     weir__keys_script_sha, "4", x->entries_key, x->order_key,
                                x->sender_key, x->queries_key,        what};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        add_text(call, weir__text_of(head[i]));
}

/* Logs, once, that the store refuses the script, and that it accepts it again; sync logs that it is unavailable. */
static void log_refusal(struct weir__key_exchange *x, int error)
{
    char text[WEIR__RAW_COMMAND_WHY];
    bool refused = error == WEIR_ESTOREAUTH || error == WEIR_ESTOREERROR || error == WEIR_ESTOREWRONGTYPE ||
                   error == WEIR_ESTOREGARBAGE;
    if (refused && !x->refused)
        weir__logf(x->log, WEIR__LOG_WARNING,
                   "the store refuses blocks and resets of keys, which hold on this host alone: %s",
                   *x->why ? weir__printable(weir__text_of(x->why), text, sizeof text) : weir_strerror(error));
    if (!error && x->refused)
        weir__logf(x->log, WEIR__LOG_INFO, "the store accepts blocks and resets of keys again");
    x->refused = error ? refused || x->refused : false;
}

static int run_call(struct key_call *call, int (*read)(struct weir__store_request *request, const redisReply *reply))
{
    struct weir__key_exchange *x = call->exchange;
    char *command = NULL;
    long long len = redisFormatCommandArgv(&command, call->count, call->arguments, call->lengths);
    if (len <= 0)
        return WEIR_ENOMEM;
    call->raw = (struct weir__raw_command){.slot = x->entries_key,
                                           .command = command,
                                           .command_len = (size_t)len,
                                           .script = weir__keys_script,
                                           .read = read};
    call->request = (struct weir__store_request){
        .raw = &call->raw, .owner = call, .deadline_us = weir__monotonic_us() + PATIENCE_US};
    int error = weir__blocking_client_request(x->client, &call->request);
    redisFreeCommand(command);
    snprintf(x->why, sizeof x->why, "%s", error ? call->raw.why : "");
    return error;
}

/* ---- The list ---- */

static uint64_t identity_of(bool reset, const char *rule, weir_text key)
{
    return weir__hash_text(key, weir__hash_text(weir__text_of(rule), reset));
}

/* The first slot of the identity; next_slot goes on from one that has another entry. */
static size_t first_slot(const struct weir__key_exchange *x, uint64_t identity)
{
    return (size_t)identity & (2 * x->capacity - 1);
}

static size_t next_slot(const struct weir__key_exchange *x, size_t slot)
{
    return (slot + 1) & (2 * x->capacity - 1);
}

static struct weir__shared_key *find(struct weir__key_exchange *x, const struct weir__shared_key *like)
{
    for (size_t slot = first_slot(x, like->identity); x->count && x->slots[slot]; slot = next_slot(x, slot)) {
        struct weir__shared_key *entry = &x->list[x->slots[slot] - 1];
        if (entry->identity == like->identity && entry->reset == like->reset && strcmp(entry->rule, like->rule) == 0 &&
            entry->key_len == like->key_len && memcmp(entry->key, like->key, like->key_len) == 0)
            return entry;
    }
    return NULL;
}

static void fill_slot(struct weir__key_exchange *x, size_t index)
{
    size_t slot = first_slot(x, x->list[index].identity);
    while (x->slots[slot])
        slot = next_slot(x, slot);
    x->slots[slot] = (uint32_t)index + 1;
}

static void fill_slots(struct weir__key_exchange *x)
{
    if (x->capacity)
        memset(x->slots, 0, 2 * x->capacity * sizeof *x->slots);
    for (size_t i = 0; i < x->count; i++)
        fill_slot(x, i);
}

/* False: no memory, or there are more entries than any store has. */
static bool grow(struct weir__key_exchange *x)
{
    size_t capacity = x->capacity ? 2 * x->capacity : 16;
    if (capacity > 4 * WEIR__SHARED_KEYS_MAX)
        return false;
    struct weir__shared_key *larger = realloc(x->list, capacity * sizeof *larger);
    x->list = larger ? larger : x->list;
    uint32_t *slots = larger ? realloc(x->slots, 2 * capacity * sizeof *slots) : NULL;
    if (!slots)
        return false;
    x->slots = slots;
    x->capacity = capacity;
    fill_slots(x);
    return true;
}

/* Adds an entry that is not in the list; NULL: there is no room. */
static struct weir__shared_key *add(struct weir__key_exchange *x, const struct weir__shared_key *entry)
{
    if (x->count == x->capacity && !grow(x))
        return NULL;
    x->list[x->count] = *entry;
    fill_slot(x, x->count);
    return &x->list[x->count++];
}

static void drop_ended(struct weir__key_exchange *x, int64_t now_ms)
{
    size_t kept = 0;
    for (size_t i = 0; i < x->count; i++)
        if (x->list[i].keep_ms > now_ms)
            x->list[kept++] = x->list[i];
    x->count = kept;
    fill_slots(x);
}

/* ---- Applying ---- */

static void log_entry(const struct weir__key_exchange *x, const struct weir__shared_key *entry, int64_t left_ms)
{
    char key[WEIR__KEY_MAX * 4 + 1], rule[4 * WEIR_NAME_MAX + 1], by[4 * WEIR__KEY_BY_MAX + 1], host[300],
        reason[4 * WEIR__KEY_REASON_MAX + 1], span[WEIR__DURATION_TEXT] = "";
    const weir_segment *segment = x->engine->segment;
    weir_text text = {entry->key, entry->key_len};
    if (x->config->hot_hash || x->config->denied_hash || x->config->denial_hash)
        snprintf(key, sizeof key, "~%016" PRIx64,
                 weir__pseudonym(segment, weir__hot_sampler_hash(segment, text.data, text.len)));
    else
        weir__printable(text, key, sizeof key);
    if (left_ms)
        weir__window_text((left_ms + 999) / 1000 * WEIR_SECOND, span);
    weir__logf(x->log, WEIR__LOG_INFO, "key %s under rule %s: %s%s%s by %s on %s%s%s", key,
               weir__printable(weir__text_of(entry->rule), rule, sizeof rule),
               entry->reset ? "reset"
               : left_ms    ? "blocked"
                            : "unblocked",
               left_ms ? " for " : "", span,
               *entry->by ? weir__printable(weir__text_of(entry->by), by, sizeof by) : "an operator",
               weir__printable(weir__text_of(entry->host), host, sizeof host), *entry->reason ? ": " : "",
               weir__printable(weir__text_of(entry->reason), reason, sizeof reason));
}

static void apply(struct weir__key_exchange *x, const struct weir__shared_key *entry, int64_t now_ms)
{
    int64_t left_ms = entry->end_ms > now_ms ? entry->end_ms - now_ms : 0;
    enum weir__key_action action = entry->reset ? WEIR__KEY_RESET : left_ms ? WEIR__KEY_BLOCK : WEIR__KEY_UNBLOCK;
    /* A rule that this host does not have, or not yet: the next read of all entries tries again. */
    (void)!weir__key_apply(x->engine, entry->rule, (weir_text){entry->key, entry->key_len}, action, left_ms * 1000000);
}

static bool is_own_reset(const struct weir__key_exchange *x, int64_t sequence)
{
    for (size_t i = 0; i < OWN_RESETS; i++)
        if (x->own_resets[i] == sequence)
            return true;
    return false;
}

/* Takes over an entry of the store; `passes`: in a read of all entries. */
static void take_over(struct weir__key_exchange *x, const struct weir__shared_key *received, bool passes,
                      int64_t now_ms)
{
    struct weir__shared_key *known = find(x, received);
    bool is_new = !known || known->sequence < received->sequence;
    if (known && !is_new) {
        known->seen = true;
        known->behind = known->sequence > received->sequence;
        if (x->engine && passes && !known->reset && known->end_ms > now_ms)
            apply(x, known, now_ms);
        return;
    }
    if (known)
        *known = *received;
    else
        known = add(x, received);
    if (!known)
        return;
    known->seen = true;
    /* At the start: resets that are old, or that the agent before has applied. */
    bool skipped =
        !x->began && known->reset && (known->keep_ms - now_ms < KEPT_MS - RECENT_MS || known->sequence <= x->applied);
    if (!x->engine || skipped || (known->reset && is_own_reset(x, known->sequence)))
        return;
    apply(x, known, now_ms);
    if (x->began)
        log_entry(x, known, known->end_ms > now_ms ? known->end_ms - now_ms : 0);
}

/* ---- Reading ---- */

static bool read_digits(const redisReply *reply, int64_t *number)
{
    weir_text text = {reply->str, reply->len};
    return reply->type == REDIS_REPLY_STRING && weir__parse_int(text, number) && *number >= 0;
}

/* Copies a text without zero bytes. False: it is longer, or none. */
static bool read_text(const redisReply *reply, char *to, size_t max)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len > max || memchr(reply->str, 0, reply->len))
        return false;
    memcpy(to, reply->str, reply->len);
    to[reply->len] = 0;
    return true;
}

/* False: no entry, or one of a newer version: ignored. */
static bool read_entry(redisReply *const *field, int64_t now_ms, struct weir__shared_key *entry)
{
    char kind[16];
    const redisReply *key = field[3], *left = field[7], *keep = field[8];
    *entry = (struct weir__shared_key){0};
    if (!read_digits(field[0], &entry->sequence) || !read_text(field[1], kind, sizeof kind - 1) ||
        !read_text(field[2], entry->rule, WEIR_NAME_MAX) || !read_text(field[4], entry->by, WEIR__KEY_BY_MAX) ||
        !read_text(field[5], entry->reason, WEIR__KEY_REASON_MAX) ||
        !read_text(field[6], entry->host, sizeof entry->host - 1) || key->type != REDIS_REPLY_STRING || !key->len ||
        key->len > WEIR__KEY_MAX || left->type != REDIS_REPLY_INTEGER || left->integer < 0 ||
        keep->type != REDIS_REPLY_INTEGER || keep->integer < 0 || left->integer > INT64_C(400) * 86400000 ||
        keep->integer > INT64_C(400) * 86400000)
        return false;
    entry->reset = strcmp(kind, "reset") == 0;
    if (!entry->reset && strcmp(kind, "block") != 0)
        return false;
    entry->key_len = (uint16_t)key->len;
    memcpy(entry->key, key->str, key->len);
    entry->identity = identity_of(entry->reset, entry->rule, (weir_text){entry->key, entry->key_len});
    entry->end_ms = now_ms + left->integer;
    entry->keep_ms = now_ms + keep->integer;
    return true;
}

/* Hands over the queries that were not taken yet, while there is room. */
static void read_queries(struct weir__key_exchange *x, const redisReply *list)
{
    for (size_t i = 0; i + 1 < list->elements; i += 2) {
        const redisReply *id = list->element[i], *text = list->element[i + 1];
        struct weir__open_query query = {.id = ""};
        if (!read_text(id, query.id, sizeof query.id - 1) || text->type != REDIS_REPLY_STRING ||
            text->len > sizeof query.text)
            continue;
        bool seen = false;
        for (size_t k = 0; k < SEEN_QUERIES && !seen; k++)
            seen = strcmp(x->seen_queries[k], query.id) == 0;
        if (seen)
            continue;
        query.len = text->len;
        memcpy(query.text, text->str, text->len);
        if (!x->take(x->take_context, &query))
            return;
        memcpy(x->seen_queries[x->seen_count++ % SEEN_QUERIES], query.id, sizeof query.id);
    }
}

static int read_page(struct weir__store_request *request, const redisReply *reply)
{
    struct key_call *call = request->owner;
    struct weir__key_exchange *x = call->exchange;
    struct weir__shared_key entry;
    int64_t now_ms = weir__monotonic_ms();
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < HEAD || (reply->elements - HEAD) % FIELDS ||
        reply->elements > HEAD + PAGE * FIELDS || !read_digits(reply->element[0], &call->newest) ||
        !read_digits(reply->element[1], &call->next) || reply->element[2]->type != REDIS_REPLY_ARRAY)
        return WEIR_ESTOREGARBAGE;
    if (x->take)
        read_queries(x, reply->element[2]);
    pthread_mutex_lock(&x->lock);
    for (size_t i = HEAD; i < reply->elements; i += FIELDS)
        if (read_entry(reply->element + i, now_ms, &entry))
            take_over(x, &entry, call->passes, now_ms);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

/* Reads the entries after `after`, page by page; *newest is the last number of the store. */
static int read_after(struct weir__key_exchange *x, int64_t after, bool passes, int64_t *newest)
{
    int64_t until_ms = weir__monotonic_ms() + READ_MS;
    int pages = 0;
    struct key_call call;
    do {
        if (is_over(x, until_ms))
            return WEIR_ESTORESLOW;
        begin_call(&call, x, "read");
        call.passes = passes;
        add_number(&call, after);
        add_number(&call, PAGE);
        int error = run_call(&call, read_page);
        if (error)
            return error;
        if (call.next < call.newest && (call.next <= after || ++pages == PAGES_MAX)) /* no progress, or no end */
            return WEIR_ESTOREGARBAGE;
        after = call.next;
    } while (call.next < call.newest);
    *newest = call.newest;
    return 0;
}

/* ---- Writing ---- */

static int read_sequence(struct weir__store_request *request, const redisReply *reply)
{
    struct key_call *call = request->owner;
    return read_digits(reply, &call->sequence) ? 0 : WEIR_ESTOREGARBAGE;
}

/* The arguments that put and restore share, up to the entry's end. */
static void add_entry(struct key_call *call, bool reset, weir_text rule, weir_text key, weir_text by, weir_text reason,
                      const char *host, int64_t left_ms)
{
    add_text(call, weir__text_of(reset ? "reset" : "block"));
    add_text(call, rule);
    add_text(call, key);
    add_text(call, by);
    add_text(call, reason);
    add_text(call, weir__text_of(host));
    add_number(call, left_ms);
}

/* Publishes a command. 0: the store has it; WEIR_EBLOCKS: it has no room; or another error of the store. */
static int put(struct weir__key_exchange *x, const struct weir__key_command *command, uint64_t ticket, int64_t left_ms)
{
    struct key_call call;
    bool reset = command->action == WEIR__KEY_RESET;
    begin_call(&call, x, "put");
    add_entry(&call, reset, (weir_text){command->rule, command->rule_len}, (weir_text){command->key, command->key_len},
              (weir_text){command->by, command->by_len}, (weir_text){command->reason, command->reason_len}, x->host,
              left_ms);
    add_number(&call, (int64_t)ticket);
    add_number(&call, KEPT_MS);
    add_number(&call, WEIR__SHARED_KEYS_MAX);
    int error = run_call(&call, read_sequence);
    if (!error && reset)
        x->own_resets[x->own_count++ % OWN_RESETS] = call.sequence;
    return error ? error : call.sequence ? 0 : WEIR_EBLOCKS;
}

/* Sends the queue. 0: it is empty, its first command has to wait, or time is over; or an error of the store. */
static int send_queue(struct weir__key_exchange *x)
{
    const struct weir__key_commands *queue = &x->engine->key_commands;
    struct weir__key_command command;
    uint64_t ticket;
    int64_t until_ms = weir__monotonic_ms() + SEND_MS;
    for (int first; !is_over(x, until_ms) && (first = weir__key_commands_first(queue, &command, &ticket)) != 0;) {
        int64_t now_ms = weir__monotonic_ms(), now_ns = weir_clock(x->engine->segment).mono_ns;
        if (first == WEIR_EBUSY && (!x->stuck_ms || now_ms - x->stuck_ms < STUCK_MS)) {
            x->stuck_ms = x->stuck_ms ? x->stuck_ms : now_ms;
            return 0;
        }
        x->stuck_ms = 0;
        if (first < 0) {
            weir__logf(x->log, WEIR__LOG_WARNING, "%s.keys: an incomplete command was skipped; its process was killed",
                       x->config->segment_path);
            weir__key_commands_remove(queue, first);
            continue;
        }
        int64_t age_ns = now_ns > command.made_ns ? now_ns - command.made_ns : 0;
        bool ahead = command.made_ns > now_ns; /* the queue is of another boot: no time to wait for */
        if (command.action == WEIR__KEY_RESET && !ahead && age_ns / 1000000 < RESET_WAIT_MS)
            return 0;
        int64_t left_ms =
            command.action != WEIR__KEY_BLOCK || command.for_ns <= age_ns ? 0 : (command.for_ns - age_ns) / 1000000;
        int error = put(x, &command, ticket, left_ms);
        if (error && error != WEIR_EBLOCKS)
            return error;
        weir__key_commands_remove(queue, error);
    }
    return 0;
}

/* Writes an entry that the store lacks, or has in an older state. *reply: 2: written; 1: not needed; 0: no room. */
static int restore_entry(struct weir__key_exchange *x, const struct weir__shared_key *entry, int64_t now_ms,
                         int64_t *reply)
{
    struct key_call call;
    bool ended = entry->end_ms <= now_ms;
    begin_call(&call, x, "restore");
    add_entry(&call, false, weir__text_of(entry->rule), (weir_text){entry->key, entry->key_len},
              weir__text_of(entry->by), weir__text_of(entry->reason), entry->host, ended ? 0 : entry->end_ms - now_ms);
    add_number(&call, entry->keep_ms - now_ms);
    add_number(&call, entry->sequence);
    /* A full store drops ended entries: those must not fill it again. */
    add_number(&call, ended ? WEIR__SHARED_KEYS_MAX / 2 : WEIR__SHARED_KEYS_MAX);
    int error = run_call(&call, read_sequence);
    *reply = call.sequence;
    return error;
}

/* Restores the entries that the store lacks, or has in an older state. Ended ones that find no room are forgotten. */
static int restore(struct weir__key_exchange *x)
{
    int64_t now_ms = weir__monotonic_ms(), until_ms = now_ms + RESTORE_MS, reply;
    size_t restored = 0;
    bool full[2] = {false, false}; /* for blocks; for ended ones */
    int error = 0;
    for (size_t i = 0; i < x->count && !error; i++) { /* without the lock: only this thread changes the list */
        struct weir__shared_key *entry = &x->list[i];
        bool ended = entry->end_ms <= now_ms;
        if (entry->reset || (entry->seen && !entry->behind) || entry->keep_ms <= now_ms)
            continue;
        if (entry->seen || !full[ended]) { /* one that the store has needs no room */
            if (is_over(x, until_ms))
                break;
            error = restore_entry(x, entry, now_ms, &reply);
            if (error)
                break;
            restored += reply == 2;
            full[ended] = full[ended] || reply == 0;
        }
        if (!entry->seen && ended && full[ended])
            entry->keep_ms = 0; /* the next read of all entries drops it */
    }
    if (restored)
        weir__logf(x->log, WEIR__LOG_WARNING, "the store had lost %zu blocks of keys; this host restored them",
                   restored);
    return error;
}

/* Reads all entries, and restores those that the store has lost. */
static int pass(struct weir__key_exchange *x)
{
    int64_t newest = 0;
    pthread_mutex_lock(&x->lock);
    drop_ended(x, weir__monotonic_ms());
    for (size_t i = 0; i < x->count; i++)
        x->list[i].seen = x->list[i].behind = false;
    pthread_mutex_unlock(&x->lock);
    int error = read_after(x, 0, true, &newest);
    if (!error && x->began)
        error = restore(x);
    if (error)
        return error;
    x->last = newest;
    x->began = true;
    x->pass_due_ms = weir__monotonic_ms() + PASS_MS;
    return 0;
}

int weir__key_exchange_round(struct weir__key_exchange *x)
{
    bool queue = x->engine && x->engine->key_commands.rows && !weir__load32(&x->engine->key_commands.mapped.lost);
    int64_t newest = x->last;
    int error = queue ? send_queue(x) : 0;
    bool all = !x->began || x->failed || weir__monotonic_ms() >= x->pass_due_ms;
    if (!error && !all)
        error = read_after(x, x->last, false, &newest);
    if (!error && (all || newest < x->last))
        error = pass(x);
    else if (!error)
        x->last = newest;
    log_refusal(x, error);
    x->failed = error != 0;
    if (error) /* rounds are too short for the client to reconnect between two of them */
        weir__blocking_client_work(x->client, WEIR__KEY_EXCHANGE_MS * 1000);
    if (queue && !is_over(x, INT64_MAX)) /* a round that was ended says nothing about the store */
        weir__key_commands_beat(&x->engine->key_commands, error);
    if (queue && !error)
        weir__store64(&x->engine->key_commands.header->applied, (uint64_t)x->last);
    return error;
}

void weir__key_exchange_each(struct weir__key_exchange *x,
                             void (*visit)(void *context, const struct weir__shared_key *entry, int64_t left_ms),
                             void *context)
{
    int64_t now_ms = weir__monotonic_ms();
    pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < x->count; i++)
        if (!x->list[i].reset && x->list[i].end_ms > now_ms)
            visit(context, &x->list[i], x->list[i].end_ms - now_ms);
    pthread_mutex_unlock(&x->lock);
}
