/* Blocks and resets of keys on all hosts, with a real server. */
#include "../../engine.h"
#include "../../redis.h"

#include "sync/sync.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <weir/store.h>

static const char rules[] =
    "rules:\n"
    "  - { name: near, match: { path: /near }, key: \"user:${header:x-user}\", limit: 2, window: 1h, consistency: "
    "local }\n"
    "  - { name: exact, match: { path: /exact }, key: \"user:${header:x-user}\", limit: 2, window: 1h,\n"
    "      algorithm: fixed_window, consistency: strict }\n";

static char url[200];
static struct weir__config config;
static struct weir__logger quiet;

struct host {
    weir *engine;
    struct weir__key_exchange *keys;
};

static void host_start_agent(struct host *host)
{
    host->keys = weir__key_exchange_new(&config, &quiet, host->engine);
    CHECK(host->keys != NULL);
}

static struct host host_open(void)
{
    struct host host = {0};
    weir_options how = {.segment = {.size = 4 << 20}, .rules_text = rules, .store = url, .key_commands = ""};
    CHECK_EQ(weir_open(&how, &host.engine), 0);
    host_start_agent(&host);
    return host;
}

static void host_close(struct host *host)
{
    weir__key_exchange_free(host->keys);
    weir_close(host->engine);
}

static bool begin(void)
{
    if (!server_begin())
        return false;
    snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s&deadline=30s&retry_max=50ms", server.socket);
    config.store.url = url;
    config.segment_path = "test";
    quiet.file = open("/dev/null", O_WRONLY);
    CHECK_EQ(weir_store_use(), 0);
    server_do("FLUSHALL");
    return true;
}

/* A round succeeds in the end, even on a machine that stalls. */
static void round_of(struct host *host)
{
    int error = -1;
    for (int i = 0; i < 200 && error; i++)
        error = weir__key_exchange_round(host->keys);
    CHECK_EQ(error, 0);
}

static void rounds(struct host *first, struct host *second)
{
    round_of(first);
    round_of(second);
}

static bool passes(struct host *host, const char *path, const char *user)
{
    char line[128];
    struct test_request request;
    weir_result result;
    snprintf(line, sizeof line, "GET %s @x-user=%s", path, user);
    test_request(&request, line);
    CHECK_EQ(weir_check(host->engine, &request.query, &result), 0);
    return weir_passes(&result.decided_by.decision);
}

static bool is_blocked(struct host *host, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(host->engine, rule, key, strlen(key), (weir_time){0, 0}, &outcome), 0);
    return outcome.decision.verdict == WEIR_BLOCKED;
}

static uint64_t block(struct host *host, const char *rule, const char *key, int64_t for_ns)
{
    struct weir__key_author author = {WEIR__TEXT("alice"), WEIR__TEXT("scraping")};
    uint64_t ticket = 0;
    CHECK_EQ(weir__key_block_by(host->engine, rule, weir__text_of(key), for_ns, &author, &ticket), 0);
    return ticket;
}

static size_t seen_blocks;
static char seen_text[512];

static void see(void *context, const struct weir__shared_key *entry, int64_t left_ms)
{
    (void)context;
    seen_blocks++;
    snprintf(seen_text, sizeof seen_text, "%s|%.*s|%s|%s|%d", entry->rule, (int)entry->key_len, entry->key, entry->by,
             entry->reason, left_ms > 3500000 && left_ms <= 3600000);
}

static size_t blocks_of(struct host *host)
{
    seen_blocks = 0;
    weir__key_exchange_each(host->keys, see, NULL);
    return seen_blocks;
}

/* ---- What the server has and does ---- */

#define KEYS "2 weir::{keys} weir::{keys}:order"

static int64_t server_script(const char *script, int from, int to)
{
    redisReply *reply = redisCommand(server.context, "EVAL %s " KEYS " %d %d", script, from, to);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    int64_t number = reply ? reply->integer : -1;
    freeReplyObject(reply);
    return number;
}

/* Adds blocks of a rule that no host has. */
static void fill(int from, int to)
{
    server_script("local ends = (redis.call('TIME')[1] + 3600) * 1000\n"
                  "for i = ARGV[1], ARGV[2] do\n"
                  "    redis.call('HSET', KEYS[1], 'f' .. i,\n"
                  "        cmsgpack.pack({i, 'block', 'other', 'k' .. i, '', '', 'h', ends, ends}))\n"
                  "    redis.call('ZADD', KEYS[2], i, 'f' .. i)\n"
                  "end",
                  from, to);
}

static int64_t entries(void)
{
    return server_script("return redis.call('ZCARD', KEYS[2])", 0, 0);
}

/* Runs of a command since CONFIG RESETSTAT. */
static long runs_of(const char *command)
{
    char line[64];
    snprintf(line, sizeof line, "cmdstat_%s:calls=", command);
    redisReply *reply = server_reply("INFO commandstats");
    const char *at = strstr(reply->str, line);
    long runs = at ? strtol(at + strlen(line), NULL, 10) : 0;
    freeReplyObject(reply);
    return runs;
}

/* The next round reads all entries, as one has failed. */
static void pass_of(struct host *host)
{
    server_do("RENAME weir::{keys}:order saved{keys}");
    server_do("SET weir::{keys}:order 1");
    CHECK(weir__key_exchange_round(host->keys) != 0);
    server_do("RENAME saved{keys} weir::{keys}:order");
    round_of(host);
}

/* From here on the log is a file; the times that it has the text. */
static void log_begin(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", server.folder);
    close(quiet.file);
    quiet.file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(quiet.file >= 0);
}

static int logged(const char *text)
{
    struct stat state;
    CHECK_EQ(fstat(quiet.file, &state), 0);
    char *all = calloc(1, (size_t)state.st_size + 1);
    CHECK(all && pread(quiet.file, all, (size_t)state.st_size, 0) == state.st_size);
    int times = 0;
    for (const char *at = all; at && (at = strstr(at, text)); at++)
        times++;
    free(all);
    return times;
}

TEST(block_holds_on_all_hosts_and_on_one_that_starts_later)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    int why;
    rounds(&a, &b);
    uint64_t ticket = block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    block(&a, "exact", "user:7", 3600 * WEIR_SECOND);
    CHECK(is_blocked(&a, "near", "user:7") && !is_blocked(&b, "near", "user:7"));
    rounds(&a, &b);
    CHECK_EQ(weir__key_reach(a.engine, ticket, 0, &why), WEIR_ALL_HOSTS);
    CHECK(is_blocked(&b, "near", "user:7") && is_blocked(&b, "exact", "user:7"));
    CHECK(!passes(&b, "/near", "7") && !passes(&b, "/exact", "7") && passes(&b, "/near", "8"));
    CHECK_EQ(blocks_of(&b), 2);
    struct host late = host_open();
    CHECK(!is_blocked(&late, "near", "user:7"));
    round_of(&late);
    CHECK(is_blocked(&late, "near", "user:7"));
    CHECK_EQ(blocks_of(&late), 2);
    CHECK(strstr(seen_text, "|user:7|alice|scraping|1") != NULL);
    /* Any host unblocks. */
    block(&late, "near", "user:7", 0);
    CHECK(!is_blocked(&late, "near", "user:7"));
    round_of(&late);
    rounds(&a, &b);
    CHECK(!is_blocked(&a, "near", "user:7") && !is_blocked(&b, "near", "user:7"));
    CHECK(is_blocked(&a, "exact", "user:7"));
    CHECK_EQ(blocks_of(&a), 1);
    host_close(&a);
    host_close(&b);
    host_close(&late);
}

TEST(block_ends_on_all_hosts_by_its_duration)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    block(&a, "near", "user:7", 300 * 1000000);
    rounds(&a, &b);
    CHECK(is_blocked(&b, "near", "user:7"));
    usleep(350000);
    rounds(&a, &b);
    CHECK(!is_blocked(&a, "near", "user:7") && !is_blocked(&b, "near", "user:7"));
    CHECK_EQ(blocks_of(&b), 0);
    host_close(&a);
    host_close(&b);
}

/* The segment of a host whose agent did not run still has a block that was ended meanwhile, or made shorter. */
TEST(host_that_missed_an_unblock_learns_it)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    block(&a, "near", "user:8", 3600 * WEIR_SECOND);
    rounds(&a, &b);
    weir__key_exchange_free(b.keys);
    block(&a, "near", "user:7", 0);
    block(&a, "near", "user:8", 100 * 1000000);
    round_of(&a);
    CHECK(is_blocked(&b, "near", "user:7") && is_blocked(&b, "near", "user:8"));
    usleep(150000);
    host_start_agent(&b);
    round_of(&b);
    CHECK(!is_blocked(&b, "near", "user:7") && !is_blocked(&b, "near", "user:8"));
    host_close(&a);
    host_close(&b);
}

/* Both change the key at the same time: all hosts end in the state of the store. */
TEST(last_writer_by_the_order_of_the_store_wins)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    block(&b, "near", "user:7", 0);
    rounds(&a, &b); /* first a's, then b's */
    rounds(&a, &b);
    CHECK(!is_blocked(&a, "near", "user:7") && !is_blocked(&b, "near", "user:7"));
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    block(&b, "near", "user:7", 0);
    rounds(&b, &a);
    rounds(&b, &a);
    CHECK(is_blocked(&a, "near", "user:7") && is_blocked(&b, "near", "user:7"));
    host_close(&a);
    host_close(&b);
}

TEST(hosts_restore_what_the_store_has_lost)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    block(&a, "near", "user:8", 3600 * WEIR_SECOND);
    rounds(&a, &b);
    weir__key_exchange_free(b.keys); /* b misses that user:8 is unblocked */
    b.keys = NULL;
    block(&a, "near", "user:8", 0);
    round_of(&a);
    server_kill();
    CHECK(weir__key_exchange_round(a.keys) != 0);
    CHECK_EQ(weir_key_reach(a.engine), WEIR_ALL_HOSTS_LATER);
    block(&a, "near", "user:9", 3600 * WEIR_SECOND); /* waits in the queue */
    CHECK(server_begin());
    round_of(&a);
    round_of(&a);
    struct host late = host_open();
    host_start_agent(&b);
    round_of(&b);
    round_of(&late);
    CHECK(is_blocked(&late, "near", "user:7") && !is_blocked(&late, "near", "user:8"));
    CHECK(is_blocked(&late, "near", "user:9"));
    CHECK(!is_blocked(&b, "near", "user:8") && is_blocked(&b, "near", "user:9"));
    host_close(&a);
    host_close(&b);
    host_close(&late);
}

/* A full store drops ended entries. Hosts that remember them neither fill it again nor ask for ever. */
TEST(hosts_forget_ended_entries_that_a_full_store_dropped)
{
    if (!begin())
        return;
    static const char remove_7[] = "local field = table.concat({'block', 'near', 'user:7'}, '\\0')\n"
                                   "return redis.call('HDEL', KEYS[1], field) + redis.call('ZREM', KEYS[2], field)";
    struct host a = host_open();
    log_begin();
    round_of(&a);
    for (int i = 0; i < 6; i++)
        block(&a, "near", i % 3 == 0 ? "user:1" : i % 3 == 1 ? "user:2" : "user:3", i < 3 ? 3600 * WEIR_SECOND : 0);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    round_of(&a);
    CHECK_EQ(entries(), 4);
    fill(1, WEIR__SHARED_KEYS_MAX - 4);
    block(&a, "near", "user:9", 3600 * WEIR_SECOND);
    round_of(&a);
    CHECK_EQ(entries(), WEIR__SHARED_KEYS_MAX - 2);
    pass_of(&a);
    CHECK_EQ(entries(), WEIR__SHARED_KEYS_MAX - 2);
    CHECK_EQ(blocks_of(&a), WEIR__SHARED_KEYS_MAX - 2);
    server_do("CONFIG RESETSTAT");
    pass_of(&a);
    CHECK_EQ(runs_of("zcard"), 0); /* nothing to restore */
    CHECK_EQ(logged("restored"), 0);
    /* A block that is lost is restored as soon as there is room. */
    CHECK_EQ(server_script(remove_7, 0, 0), 2);
    fill(WEIR__SHARED_KEYS_MAX, WEIR__SHARED_KEYS_MAX + 2);
    CHECK_EQ(entries(), WEIR__SHARED_KEYS_MAX);
    pass_of(&a);
    CHECK_EQ(entries(), WEIR__SHARED_KEYS_MAX);
    CHECK_EQ(logged("restored"), 0);
    CHECK(is_blocked(&a, "near", "user:7"));
    CHECK_EQ(server_script("return redis.call('HDEL', KEYS[1], 'f1') + redis.call('ZREM', KEYS[2], 'f1')", 0, 0), 2);
    pass_of(&a);
    CHECK_EQ(entries(), WEIR__SHARED_KEYS_MAX); /* f1 found no room */
    CHECK_EQ(server_script(remove_7, 0, 0), 2);
    host_close(&a);
}

static bool is_third(void *context)
{
    int *times = context;
    return ++*times >= 3;
}

/* A stopping agent does not wait for a long read. Afterwards each of many entries is in the list once. */
TEST(round_ends_when_the_caller_ends)
{
    if (!begin())
        return;
    int times = 0;
    struct host a = host_open();
    round_of(&a);
    fill(1, WEIR__SHARED_KEYS_MAX);
    struct host late = host_open();
    server_do("CONFIG RESETSTAT");
    weir__key_exchange_until(late.keys, is_third, &times);
    CHECK(weir__key_exchange_round(late.keys) != 0);
    CHECK(times >= 3 && runs_of("evalsha") <= 3);
    weir__key_exchange_until(late.keys, NULL, NULL);
    round_of(&late);
    pass_of(&late);
    CHECK_EQ(blocks_of(&late), WEIR__SHARED_KEYS_MAX);
    host_close(&a);
    host_close(&late);
}

/* An agent that is killed after the store has its command sends it again: it counts once. */
TEST(repeated_command_is_carried_out_once)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    round_of(&a);
    round_of(&b);
    block(&b, "near", "user:7", 0);
    round_of(&b);
    a.engine->key_commands.header->head = 0; /* as if it had been killed before it removed the command */
    rounds(&a, &b);
    rounds(&a, &b);
    CHECK(!is_blocked(&a, "near", "user:7") && !is_blocked(&b, "near", "user:7"));
    host_close(&a);
    host_close(&b);
}

TEST(reset_holds_on_all_hosts)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    static const char *const paths[] = {"/near", "/exact"};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) {
            (void)passes(&a, paths[i], "7");
            (void)passes(&b, paths[i], "7"); /* remembers that the store denied */
        }
        CHECK(!passes(&a, paths[i], "7") && !passes(&b, paths[i], "7"));
        CHECK_EQ(weir_key_reset(a.engine, paths[i] + 1, "user:7", 6, (weir_time){0, 0}), 0);
        usleep(200000);
        rounds(&a, &b);
        CHECK(passes(&b, paths[i], "7") && passes(&a, paths[i], "7"));
    }
    /* Its own agent does not reset the counter again. */
    CHECK(!passes(&a, "/exact", "7"));
    CHECK(passes(&a, "/near", "7") && !passes(&a, "/near", "7"));
    round_of(&a);
    CHECK(!passes(&a, "/near", "7"));
    /* Neither do the agents that replace those of both hosts within seconds. */
    CHECK(!passes(&b, "/exact", "7") && passes(&b, "/near", "7") && !passes(&b, "/near", "7"));
    for (struct host *host = &a; host; host = host == &a ? &b : NULL) {
        weir__key_exchange_free(host->keys);
        host_start_agent(host);
        round_of(host);
        CHECK(!passes(host, "/near", "7"));
    }
    host_close(&a);
    host_close(&b);
}

/* The queue's file has outlived the boot by whose clock the command was made. */
TEST(reset_that_was_made_in_the_future_does_not_stop_the_queue)
{
    if (!begin())
        return;
    struct host a = host_open(), b = host_open();
    rounds(&a, &b);
    struct weir__key_command command = {.action = WEIR__KEY_RESET, .rule_len = 4, .key_len = 6};
    memcpy(command.rule, "near", 4);
    memcpy(command.key, "user:7", 6);
    command.made_ns = weir_clock(a.engine->segment).mono_ns + 3600 * WEIR_SECOND;
    uint64_t ticket;
    int error = -1;
    CHECK_EQ(weir__key_commands_add(&a.engine->key_commands, &command, &ticket), 0);
    block(&a, "near", "user:8", 3600 * WEIR_SECOND);
    rounds(&a, &b);
    CHECK(weir__key_commands_done(&a.engine->key_commands, ticket, &error) && error == 0);
    CHECK(is_blocked(&b, "near", "user:8"));
    host_close(&a);
    host_close(&b);
}

/* Pages without an end are an error, which is logged once. */
TEST(hostile_number_of_entries_ends_a_round)
{
    if (!begin())
        return;
    struct host a = host_open();
    log_begin();
    server_script("for i = ARGV[1], ARGV[2] do redis.call('ZADD', KEYS[2], i, i) end", 1, 3 * WEIR__SHARED_KEYS_MAX);
    int error = WEIR_ESTORESLOW;
    for (int i = 0; i < 200 && error && error != WEIR_ESTOREGARBAGE; i++)
        error = weir__key_exchange_round(a.keys);
    CHECK_EQ(error, WEIR_ESTOREGARBAGE);
    CHECK(weir__key_exchange_round(a.keys) != 0);
    CHECK_EQ(logged("invalid reply of the store"), 1);
    server_do("FLUSHALL");
    round_of(&a);
    CHECK_EQ(logged("accepts blocks"), 1);
    host_close(&a);
}

/* Other values in the store, and what is no entry, are refused or ignored. */
TEST(hostile_entries_are_ignored)
{
    if (!begin())
        return;
    struct host a = host_open();
    round_of(&a);
    block(&a, "near", "user:7", 3600 * WEIR_SECOND);
    round_of(&a);
    server_do("HSET weir::{keys} x \x01");
    server_do("ZADD weir::{keys}:order 9007199254740000 x");
    CHECK_EQ(weir__key_exchange_round(a.keys), 0);
    /* A reply with a missing field would have no whole number of entries. */
    server_script(
        "local ends = (redis.call('TIME')[1] + 3600) * 1000\n"
        "redis.call('HSET', KEYS[1], 'y', cmsgpack.pack({9007199254740001, 'block', 'near', 'y', nil, '', 'h',"
        " ends, ends}))\n"
        "redis.call('ZADD', KEYS[2], '9007199254740001', 'y')",
        0, 0);
    round_of(&a);
    server_do("DEL weir::{keys}");
    server_do("SET weir::{keys} 1");
    block(&a, "near", "user:8", 3600 * WEIR_SECOND);
    CHECK_EQ(weir__key_exchange_round(a.keys), WEIR_ESTOREWRONGTYPE);
    CHECK(is_blocked(&a, "near", "user:7"));
    host_close(&a);
}

/* ---- Queries of other hosts ---- */

static size_t query_room, query_count;
static char queries_taken[64];

static bool take_query(void *context, const struct weir__open_query *query)
{
    CHECK(context == &query_room);
    if (!query_room)
        return false;
    query_room--;
    query_count++;
    strncat(queries_taken, query->id, sizeof queries_taken - strlen(queries_taken) - 1);
    return true;
}

TEST(queries_without_room_wait_for_the_next_round)
{
    if (!begin())
        return;
    struct host a = host_open();
    weir__key_exchange_queries(a.keys, take_query, &query_room);
    server_script("local ends = (redis.call('TIME')[1] + 3600) * 1000\n"
                  "for i = ARGV[1], ARGV[2] do\n"
                  "    redis.call('HSET', KEYS[1] .. ':queries', 'q' .. i, cmsgpack.pack({ends, 'text'}))\n"
                  "end",
                  1, 6);
    static const size_t rooms[] = {4, 1, 0, 9, 9}, counts[] = {4, 5, 5, 6, 6};
    for (size_t i = 0; i < WEIR__COUNT(rooms); i++) {
        query_room = rooms[i];
        round_of(&a);
        CHECK_EQ(query_count, counts[i]);
    }
    for (int i = 1; i <= 6; i++) { /* each once */
        const char id[] = {'q', (char)('0' + i), 0}, *found = strstr(queries_taken, id);
        CHECK(found && !strstr(found + 1, id));
    }
    host_close(&a);
}

TEST_MAIN
