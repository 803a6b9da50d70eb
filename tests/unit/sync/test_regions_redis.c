/*
 * The exchange of regions with a real server: each region has a database of it. What counts in all regions, and that it
 * counts once whatever is killed, repeated, or set back.
 */
#include "redis_hosts.h"

#include "../../awake.h"

#include "sync/regions.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <weir/store.h>

#define GLOBAL(more) "rules: [{name: a, key: \"${client_ip}\", scope: global, consistency: eventual, " more "}]\n"
#define REGIONS      3
#define TO           "weir::{regions}:to:"

static const char *const names[] = {"eu-west", "us-east", "ap-south"};
static const struct weir__logger no_log = {.file = -1};

static struct region {
    struct weir__store_options store;
    struct weir__blocking_client *link;
    struct host host;
    struct weir__regions *agent;
} regions[REGIONS];

/* ---- The server's databases ---- */

static char *in_region(int region, const char *command)
{
    static char text[4096];
    char select[32];
    snprintf(select, sizeof select, "SELECT %d", region);
    server_do(select);
    redisReply *reply = server_reply(command);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    snprintf(text, sizeof text, "%s", reply && reply->str ? reply->str : "");
    if (reply && reply->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", reply->integer);
    freeReplyObject(reply);
    return text;
}

/* Counters that wait in the ledger for another region, and the units of the first. */
static int waiting(int region, int other)
{
    char command[64];
    snprintf(command, sizeof command, "HLEN " TO "%s", names[other]);
    return atoi(in_region(region, command));
}

static int64_t waiting_units(int region, int other)
{
    char command[64];
    snprintf(command, sizeof command, "HVALS " TO "%s", names[other]);
    (void)in_region(region, "PING");
    redisReply *reply = server_reply(command);
    int64_t units = reply && reply->elements ? strtoll(reply->element[0]->str, NULL, 10) : 0;
    freeReplyObject(reply);
    return units;
}

/* Units used of the fixed window of a region's store: its value ends with them. */
static int64_t used_in(int region)
{
    const char *value = in_region(region, "GET weir:a:" KEY);
    return strlen(value) == 19 ? atoi(value + 15) : -1;
}

static void put_in(int region, const char *key, const char *value)
{
    (void)in_region(region, "PING");
    redisReply *reply = redisCommand(server.context, "SET %s %s", key, value);
    CHECK(reply && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
}

/* ---- Regions ---- */

static struct weir__regions *agent_with(int region, const char *name, int others)
{
    struct weir__regions_options options = {.engine = regions[region].host.engine,
                                            .log = &no_log,
                                            .region = name,
                                            .host = "host",
                                            .own = &regions[region].store,
                                            .interval_us = 1000000};
    for (int other = 0; other < others; other++)
        if (other != region)
            options.others[options.other_count++] =
                (struct weir__other_region){.name = names[other], .store = &regions[other].store};
    struct weir__regions *agent = weir__regions_new(&options);
    CHECK(agent != NULL);
    return agent;
}

static struct weir__regions *agent_make(int region, const char *name)
{
    return agent_with(region, name, REGIONS);
}

static size_t index_of(int region, int other)
{
    return (size_t)(other < region ? other : other - 1);
}

static bool more_waits; /* after exchange() */

static int exchange(int region, int other, bool all)
{
    return weir__regions_exchange(regions[region].agent, index_of(region, other), all, &more_waits);
}

/* False: there is no server. */
static bool regions_begin(const char *rules, int hot_percent)
{
    if (!server_begin())
        return false;
    server_do("FLUSHALL");
    hosts_of_regions = true;
    hosts_hot_percent = hot_percent;
    hosts_timeout_us = PATIENCE_US;
    for (int i = 0; i < REGIONS; i++) {
        char url[160], why[256];
        snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s&deadline=30s&database=%d", server.socket, i);
        CHECK_EQ(weir__store_parse(url, &regions[i].store, why, sizeof why), 0);
    }
    for (int i = 0; i < REGIONS; i++) {
        regions[i].link = weir__blocking_client_new(&regions[i].store);
        host_make(&regions[i].host, rules, send_request, regions[i].link, weir_clock);
        regions[i].agent = agent_make(i, names[i]);
        CHECK_EQ(weir__regions_elect(regions[i].agent), 1);
    }
    return true;
}

static void regions_end(void)
{
    for (int i = 0; i < REGIONS; i++) {
        weir__regions_free(regions[i].agent);
        host_free(&regions[i].host);
        weir__blocking_client_free(regions[i].link);
    }
}

/* The agent was killed, and another one is elected. */
static void replace_agent(int region)
{
    weir__regions_free(regions[region].agent);
    in_region(region, "DEL weir::{regions}:leader");
    regions[region].agent = agent_make(region, names[region]);
    CHECK_EQ(weir__regions_elect(regions[region].agent), 1);
}

static void sync_hosts(void)
{
    for (int i = 0; i < REGIONS; i++) {
        CHECK_EQ(weir__regions_elect(regions[i].agent), 1);
        CHECK_EQ(host_round(&regions[i].host), 0);
    }
}

/* All regions send what their hosts have used, and all hosts learn it. */
static void sync_regions(void)
{
    sync_hosts();
    for (int i = 0; i < REGIONS; i++)
        for (int other = 0; other < REGIONS; other++)
            if (other != i)
                CHECK(exchange(i, other, true) >= 0);
    for (int round = 0; round < 2; round++) {
        weir__sync_schedule_all(regions[0].host.sync);
        weir__sync_schedule_all(regions[1].host.sync);
        weir__sync_schedule_all(regions[2].host.sync);
        sync_hosts();
    }
}

static int64_t left_in(int region)
{
    return host_left(&regions[region].host, "a", KEY);
}

static void use(int region, int units)
{
    CHECK_EQ(host_check(&regions[region].host, REQUEST, units), units);
}

/* ---- Counting ---- */

static const char *const rules_of_all[] = {
    GLOBAL("limit: 30, window: 1h"),
    GLOBAL("limit: 30, window: 1h, refill: interval"),
    GLOBAL("limit: 30, window: 1h, algorithm: leaky_bucket"),
    GLOBAL("limit: 30, window: 365d, algorithm: fixed_window"),
    GLOBAL("limit: 30, window: 1y, algorithm: fixed_window, timezone: UTC"),
    GLOBAL("limit: 30, window: 1h, algorithm: fixed_window, align: first_request"),
    GLOBAL("limit: 30, window: 100d, algorithm: sliding_window_counter"),
    GLOBAL("limit: 30, window: 100d, algorithm: sliding_window_counter, buckets: 6"),
    GLOBAL("limit: 30, window: 1h, algorithm: sliding_window_log"),
};

TEST(regions_agree_under_every_algorithm)
{
    for (size_t k = 0; k < sizeof rules_of_all / sizeof *rules_of_all; k++) {
        int before = test_failures;
        if (!regions_begin(rules_of_all[k], 0))
            return;
        for (int i = 0; i < REGIONS; i++)
            use(i, i + 1);
        sync_regions();
        for (int i = 0; i < REGIONS; i++)
            CHECK_EQ(left_in(i), 24);
        /* Beyond the limit, by all at once: no region admits more. */
        for (int i = 0; i < REGIONS; i++)
            use(i, 24);
        sync_regions();
        for (int i = 0; i < REGIONS; i++)
            CHECK_EQ(host_check(&regions[i].host, REQUEST, 5), 0);
        if (test_failures != before)
            printf("  with %s", rules_of_all[k]);
        regions_end();
    }
}

TEST(rules_of_one_region_do_not_cross)
{
    if (!regions_begin("rules: [{name: a, key: \"${client_ip}\", consistency: eventual, limit: 30, window: 1h}]\n", 0))
        return;
    use(0, 20);
    sync_regions();
    CHECK_EQ(left_in(0), 10);
    CHECK_EQ(waiting(0, 1), 0);
    use(1, 30);
    regions_end();
}

TEST(refunds_cross)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 20);
    sync_regions();
    struct test_request r;
    weir_result result;
    test_request(&r, REQUEST);
    r.query.has_cost = true;
    r.query.cost = -5;
    r.query.now = weir_clock(regions[0].host.engine->segment);
    CHECK_EQ(weir_check(regions[0].host.engine, &r.query, &result), 0);
    use(1, 1);
    sync_regions();
    for (int i = 0; i < REGIONS; i++)
        CHECK_EQ(used_in(i), 16);
    regions_end();
}

/* ---- Hot keys ---- */

TEST(keys_cross_once_they_used_a_share_of_the_limit)
{
    static const char *const rules[] = {GLOBAL("limit: 100, window: 1d"),
                                        GLOBAL("limit: 100, window: 365d, algorithm: fixed_window")};
    for (size_t k = 0; k < 2; k++) {
        if (!regions_begin(rules[k], 10))
            return;
        use(0, 9);
        sync_hosts();
        CHECK_EQ(waiting(0, 1), 0);
        use(0, 1);
        sync_hosts();
        CHECK_EQ(waiting(0, 1), 1);
        CHECK_EQ(waiting_units(0, 1), 10);
        use(0, 2);
        sync_hosts();
        CHECK_EQ(waiting_units(0, 1), 12);
        CHECK_EQ(waiting_units(0, 2), 12);
        regions_end();
    }
}

/* The windows of a key are by the server's clock: an earlier one is written into its record. */
static void set_record(const char *hot, int windows_ago, int used)
{
    char text[128];
    int64_t number, current, before;
    int flag;
    snprintf(text, sizeof text, "%s", in_region(0, "GET weir::{regions}:u:weir:a:" KEY));
    CHECK_EQ(sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %d", &number, &current, &before, &flag), 4);
    const char *rest = text;
    for (int i = 0; i < 4; i++)
        rest = strchr(rest, ' ') + 1;
    char record[200];
    snprintf(record, sizeof record, "%" PRId64 " %d 0 %s %s", number - windows_ago, used, hot, rest);
    put_in(0, "weir::{regions}:u:weir:a:" KEY, record);
}

TEST(a_key_becomes_cold_again)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 1d"), 10))
        return;
    use(0, 1);
    sync_hosts();
    set_record("0", 1, 6); /* 6 in the window before: 9 of two windows are cold, 10 are hot */
    use(0, 3);
    sync_hosts();
    CHECK_EQ(waiting(0, 1), 0);
    use(0, 1);
    sync_hosts();
    CHECK_EQ(waiting_units(0, 1), 10);
    in_region(0, "DEL " TO "us-east");
    set_record("1", 1, 10); /* hot in the window before: it still is */
    use(0, 1);
    sync_hosts();
    CHECK_EQ(waiting_units(0, 1), 1);
    in_region(0, "DEL " TO "us-east");
    set_record("1", 1, 4); /* less than the share in two windows: cold, and nothing is sent twice */
    use(0, 9);
    sync_hosts();
    CHECK_EQ(waiting(0, 1), 0);
    use(0, 1);
    sync_hosts();
    CHECK_EQ(waiting_units(0, 1), 10);
    in_region(0, "DEL " TO "us-east");
    set_record("1", 2, 50); /* not used for a window */
    use(0, 9);
    sync_hosts();
    CHECK_EQ(waiting(0, 1), 0);
    regions_end();
}

/* ---- Pushes ---- */

TEST(exhausted_keys_are_pushed)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 10))
        return;
    use(0, 60);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, false), 0); /* it waits for the interval */
    use(0, 40);
    sync_hosts();
    for (int other = 1; other < REGIONS; other++) {
        CHECK_EQ(exchange(0, other, false), 1);
        CHECK_EQ(waiting(0, other), 0);
    }
    CHECK_EQ(exchange(0, 1, false), 0);
    sync_hosts();
    for (int other = 1; other < REGIONS; other++) {
        CHECK(host_check(&regions[other].host, REQUEST, 1) <= 1); /* it follows the key from now on */
        sync_hosts();
        CHECK_EQ(host_check(&regions[other].host, REQUEST, 10), 0);
    }
    regions_end();
}

TEST(a_key_that_another_region_exhausts_is_pushed)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 10))
        return;
    use(0, 60);
    use(1, 60);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, false), 0);
    CHECK_EQ(exchange(1, 0, true), 1); /* 120 of 100 in region 0 now */
    CHECK_EQ(exchange(0, 1, false), 1);
    CHECK_EQ(exchange(0, 2, false), 1);
    for (int round = 0; round < 2; round++)
        sync_hosts();
    CHECK_EQ(host_check(&regions[0].host, REQUEST, 1), 0);
    CHECK_EQ(host_check(&regions[1].host, REQUEST, 1), 0);
    regions_end();
}

/* ---- Late deltas ---- */

static int64_t ahead_ns;

static weir_time clock_ahead(const weir_segment *segment)
{
    weir_time now = weir_clock(segment);
    now.mono_ns += ahead_ns;
    now.wall_ns += ahead_ns;
    return now;
}

/* A host that its store did not reach for minutes admits within the limit: no region denies for that afterwards. */
TEST(late_deltas_of_a_host_are_late_in_other_regions)
{
    enum { MINUTES = 5 };
    static const char *const rules[] = {GLOBAL("limit: 60, window: 1m"),
                                        GLOBAL("limit: 60, window: 1m, algorithm: sliding_window_counter"),
                                        GLOBAL("limit: 60, window: 1m, algorithm: sliding_window_log")};
    for (size_t k = 0; k < 3; k++) {
        int before = test_failures;
        if (!regions_begin(rules[k], 0))
            return;
        ahead_ns = 0;
        weir__sync_free(regions[0].host.sync);
        regions[0].host.now = clock_ahead;
        host_start_sync(&regions[0].host);
        use(0, 1);
        use(1, 1);
        sync_regions();
        for (int i = 0; i < MINUTES; i++) {
            ahead_ns += 61 * WEIR_SECOND;
            use(0, 30);
        }
        in_region(0, "DEL weir:a:" KEY); /* expired */
        struct weir__ledger_header *header = regions[0].host.engine->deltas.ledger.header;
        weir__store64(&header->acked_ms, weir__load64(&header->acked_ms) - MINUTES * 61000);
        sync_hosts();
        CHECK_EQ(waiting_units(0, 1), MINUTES * 30);
        /* What it uses now is punctual, and not the same counter of the ledger. */
        use(0, 1);
        sync_hosts();
        CHECK_EQ(waiting(0, 1), 2);
        in_region(1, "DEL weir:a:" KEY);
        CHECK_EQ(exchange(0, 1, true), 2);
        weir__sync_schedule_all(regions[1].host.sync);
        sync_hosts();
        CHECK(left_in(1) >= 10 && left_in(1) < 60);
        if (test_failures != before)
            printf("  %d left with %s", (int)left_in(1), rules[k]);
        regions_end();
    }
}

/* ---- Many keys ---- */

/* Adds a unit of each of many keys to the ledger of region 0 for region 1; the first ones are exhausted. `field`: of a
 * key of the same rule. */
static void use_keys(const char *field, int count, int pushed)
{
    char number[2][16];
    (void)in_region(0, "PING");
    snprintf(number[0], sizeof number[0], "%d", count);
    snprintf(number[1], sizeof number[1], "%d", pushed);
    redisReply *reply =
        redisCommand(server.context, "EVAL %s 0 %b %s %s",
                     "local root = 'weir::{regions}:'\n"
                     "for i = 1, ARGV[2] do\n"
                     "local field = ARGV[1] .. 'weir:a:k' .. i\n"
                     "redis.call('HINCRBY', root .. 'to:us-east', field, 1)\n"
                     "if i <= tonumber(ARGV[3]) then redis.call('SADD', root .. 'push:us-east', field) end\n"
                     "end\n"
                     "return 1",
                     field, (size_t)42, number[0], number[1]);
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
}

static int keys_in(int region)
{
    (void)in_region(region, "PING");
    redisReply *reply = server_reply("KEYS weir:a:k*");
    int count = (int)reply->elements;
    freeReplyObject(reply);
    return count;
}

/* The first field of the ledger of region 0 for region 1. */
static void first_field(char field[256])
{
    (void)in_region(0, "PING");
    redisReply *reply = server_reply("HKEYS " TO "us-east");
    CHECK(reply && reply->elements >= 1);
    snprintf(field, 256, "%s", reply && reply->elements ? reply->element[0]->str : "");
    freeReplyObject(reply);
}

TEST(more_keys_than_a_batch_has_all_arrive_under_load)
{
    enum { KEYS = 3000, PUSHED = 1000 };
    char field[256];
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 1);
    sync_hosts();
    first_field(field);
    for (int i = 0; i < 4; i++) {
        use_keys(field, KEYS, 0);
        CHECK(exchange(0, 1, true) > 0);
        CHECK(more_waits || i >= 2);
    }
    CHECK_EQ(keys_in(1), KEYS);
    /* Exhausted keys go first, and do not hold up the others. */
    in_region(1, "FLUSHDB");
    CHECK_EQ(weir__regions_elect(regions[1].agent), 1);
    for (int i = 0; i < 9; i++) {
        use_keys(field, KEYS, PUSHED);
        CHECK(exchange(0, 1, true) > 0);
        if (i == 1)
            CHECK(keys_in(1) > PUSHED);
    }
    CHECK_EQ(keys_in(1), KEYS);
    for (int i = 0; i < 9 && (exchange(0, 1, true) > 0 || more_waits); i++)
        continue;
    CHECK_EQ(waiting(0, 1), 0);
    regions_end();
}

/* How long ago the time in a field of the state of region 0 was, in seconds of its server. */
static double ago(const char *name)
{
    char command[64];
    snprintf(command, sizeof command, "HGET weir::{regions} %s", name);
    double then = atof(in_region(0, command)) / 1e6;
    redisReply *reply = server_reply("TIME");
    double now = atof(reply->element[0]->str) + atof(reply->element[1]->str) / 1e6;
    freeReplyObject(reply);
    return now - then;
}

TEST(ages_are_bounded_under_load)
{
    enum { KEYS = 3000 };
    char field[256], begun[64], since[64];
    struct weir_region_stats stats;
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 1);
    sync_hosts();
    first_field(field);
    /* Cut off from the start for an hour. */
    double start = ago("begun:us-east");
    CHECK(start >= 0 && start < 60);
    redisReply *reply = redisCommand(server.context, "HINCRBY weir::{regions} begun:us-east -3600000000");
    freeReplyObject(reply);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    CHECK_EQ(weir_region_stats_read(regions[0].host.engine, 0, &stats), 0);
    CHECK(stats.lag_ns > 3500 * WEIR_SECOND);
    /* The first scan has what waited an hour; then another one begins, though keys wait all the time. */
    int scans = 0;
    for (int i = 0; i < 12 && scans < 3; i++) {
        use_keys(field, KEYS, 0);
        snprintf(begun, sizeof begun, "%s", in_region(0, "HGET weir::{regions} begun:us-east"));
        CHECK(exchange(0, 1, true) > 0);
        snprintf(since, sizeof since, "%s", in_region(0, "HGET weir::{regions} since:us-east"));
        bool begins = strcmp(begun, in_region(0, "HGET weir::{regions} begun:us-east")) != 0;
        CHECK(!begins || strcmp(begun, since) == 0);
        scans += begins;
        CHECK(scans > 1 ? ago("since:us-east") < 60 : ago("since:us-east") > 3500);
    }
    CHECK_EQ(scans, 3);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    CHECK_EQ(weir_region_stats_read(regions[0].host.engine, 0, &stats), 0);
    CHECK(stats.lag_ns < 60 * WEIR_SECOND);
    regions_end();
}

/* ---- Election and take-over ---- */

TEST(one_agent_is_elected_and_another_takes_over)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    struct weir__regions *second = agent_make(0, names[0]);
    CHECK_EQ(weir__regions_elect(second), 0);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    double killed = awake_seconds();
    int elected = 0;
    while ((elected = weir__regions_elect(second)) == 0 && awake_seconds() < killed + 5)
        usleep(WEIR__REGION_ELECT_MS * 1000);
    CHECK_EQ(elected, 1);
    CHECK(awake_seconds() - killed < 2);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 0);
    weir__regions_leave(second);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    weir__regions_free(second);
    regions_end();
}

TEST(an_agent_that_was_stopped_changes_nothing)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_hosts();
    struct weir__regions *stopped = regions[0].agent;
    in_region(0, "DEL weir::{regions}:leader");
    regions[0].agent = agent_make(0, names[0]);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    CHECK_EQ(weir__regions_exchange(stopped, index_of(0, 1), true, &more_waits), 0);
    CHECK_EQ(waiting_units(0, 1), 10);
    sync_regions();
    CHECK_EQ(used_in(1), 10);
    weir__regions_free(stopped);
    regions_end();
}

/* The agent's next batch to region 1 is taken out of the ledger. */
static void take_batch(void)
{
    char leader[64], term[32], key[256];
    snprintf(leader, sizeof leader, "%s", in_region(0, "GET weir::{regions}:leader"));
    leader[strcspn(leader, " ")] = 0;
    snprintf(term, sizeof term, "%s", in_region(0, "HGET weir::{regions} term"));
    snprintf(key, sizeof key, "EVALSHA %s 1 weir::{regions} take %s %s us-east 1024 1 0", weir__regions_script_sha,
             leader, term);
    server_do(key);
    CHECK_EQ(waiting(0, 1), 0);
}

/* Puts a batch, and frees the reply of DUMP. */
static void restore_batch(redisReply *kept)
{
    (void)in_region(0, "PING");
    redisReply *put =
        redisCommand(server.context, "RESTORE weir::{regions}:sent:us-east 0 %b REPLACE", kept->str, kept->len);
    CHECK(put && put->type == REDIS_REPLY_STATUS);
    freeReplyObject(put);
    freeReplyObject(kept);
}

TEST(batches_count_once_wherever_an_agent_is_killed)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    int64_t used = 0;
    for (int batch = 0; batch < 4; batch++) {
        use(0, 10);
        used += 10;
        sync_hosts();
        /* Killed before it was sent. */
        take_batch();
        replace_agent(0);
        CHECK_EQ(exchange(0, 1, true), 1);
        /* Killed after it was sent, before it was done: it is found in flight again. */
        use(0, 1);
        used++;
        sync_hosts();
        take_batch();
        CHECK(*in_region(0, "EXISTS weir::{regions}:sent:us-east") == '1');
        redisReply *kept = server_reply("DUMP weir::{regions}:sent:us-east");
        CHECK_EQ(exchange(0, 1, true), 1);
        restore_batch(kept);
        if (batch % 2)
            replace_agent(0);
        CHECK_EQ(exchange(0, 1, true), 1);
        CHECK_EQ(exchange(0, 1, true), 0);
    }
    sync_regions();
    for (int i = 0; i < REGIONS; i++)
        CHECK_EQ(used_in(i), used);
    regions_end();
}

TEST(an_old_batch_that_arrives_late_counts_nothing)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_hosts();
    take_batch();
    redisReply *kept = server_reply("DUMP weir::{regions}:sent:us-east");
    for (int batch = 0; batch < 3; batch++) {
        CHECK_EQ(exchange(0, 1, true), 1);
        use(0, 10);
        sync_hosts();
    }
    restore_batch(kept);
    CHECK_EQ(exchange(0, 1, true), 1);
    CHECK_EQ(used_in(1), 30);
    CHECK_EQ(exchange(0, 1, true), 1);
    CHECK_EQ(used_in(1), 40);
    /* The number is known for as long as a partition may last. */
    (void)in_region(1, "PING");
    redisReply *keys = server_reply("KEYS weir::r*");
    CHECK_EQ(keys->elements, 1);
    char command[128];
    snprintf(command, sizeof command, "PTTL %s", keys->element[0]->str);
    CHECK(atoll(in_region(1, command)) > INT64_C(29) * 86400 * 1000);
    freeReplyObject(keys);
    regions_end();
}

/* ---- The end of an agent ---- */

static void *exchange_with_silence(void *error)
{
    bool more;
    *(int *)error = weir__regions_exchange(regions[0].agent, index_of(0, 1), true, &more);
    return NULL;
}

/* It may wait for another region's reply, for as long as eight times the timeout. */
TEST(an_exchange_under_way_ends_with_the_agent)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    snprintf(address.sun_path, sizeof address.sun_path, "%s-silent", server.socket);
    int silent = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(bind(silent, (const struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(listen(silent, 8), 0);
    struct weir__store_options there = regions[1].store;
    strcat(regions[1].store.seeds[0].name, "-silent");
    replace_agent(0);
    pthread_t thread;
    int error = 0;
    CHECK_EQ(pthread_create(&thread, NULL, exchange_with_silence, &error), 0);
    usleep(100000); /* in flight, most of the time */
    double begun = awake_seconds();
    weir__regions_end(regions[0].agent, 300000);
    pthread_join(thread, NULL);
    CHECK_EQ(error, WEIR_ESTORESLOW);
    CHECK(awake_seconds() - begun < 2);
    weir__regions_leave(regions[0].agent);
    CHECK_EQ(atoi(in_region(0, "EXISTS weir::{regions}:leader")), 0);
    regions[1].store = there;
    close(silent);
    unlink(address.sun_path);
    replace_agent(0);
    regions_end();
}

TEST(a_password_that_cannot_be_read_stops_no_other_region)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    char urls[REGIONS][160];
    for (int i = 0; i < REGIONS; i++)
        snprintf(urls[i], sizeof urls[i], "redis+unix://%s?connect_timeout=30s&database=%d", server.socket, i);
    struct weir__config config = {.store = {.url = urls[0]},
                                  .region = {.name = names[0], .interval_ms = 50, .other_count = 2}};
    config.region.others[0].name = names[1];
    config.region.others[0].store =
        (struct weir__store){.url = urls[1], .settings = {{"password_file", "/none"}}, .setting_count = 1};
    config.region.others[1].name = names[2];
    config.region.others[1].store.url = urls[2];
    use(0, 10);
    sync_hosts();
    in_region(0, "DEL weir::{regions}:leader");
    bool failed = true;
    struct weir__region_threads *threads =
        weir__region_threads_start(&config, &no_log, regions[0].host.engine, &failed);
    CHECK(threads && !failed);
    double begun = awake_seconds();
    while (used_in(2) != 10 && awake_seconds() < begun + 8) {
        CHECK_EQ(weir__regions_elect(regions[2].agent), 1); /* its name there lasts 10 s */
        usleep(20000);
    }
    weir__region_threads_stop(threads);
    CHECK_EQ(used_in(2), 10);
    CHECK_EQ(waiting_units(0, 1), 10);
    CHECK_EQ(atoi(in_region(0, "EXISTS weir::{regions}:leader")), 0);
    regions_end();
}

/* ---- Stores that are set back ---- */

TEST(batches_that_another_store_lost_are_sent_again)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    char counter[64] = "", sender[128] = "", number[32] = "", command[256];
    for (int batch = 0; batch < 12; batch++) {
        use(0, 10);
        sync_hosts();
        CHECK_EQ(exchange(0, 1, true), 1);
        if (batch == 8) { /* what the replica has */
            snprintf(counter, sizeof counter, "%s", in_region(1, "GET weir:a:" KEY));
            redisReply *keys = server_reply("KEYS weir::r*");
            CHECK_EQ(keys->elements, 1);
            snprintf(sender, sizeof sender, "%s", keys->element[0]->str);
            freeReplyObject(keys);
            snprintf(command, sizeof command, "GET %s", sender);
            snprintf(number, sizeof number, "%s", in_region(1, command));
        }
    }
    snprintf(command, sizeof command, "SET weir:a:" KEY " %s", counter);
    in_region(1, command);
    snprintf(command, sizeof command, "SET %s %s", sender, number);
    in_region(1, command);
    use(0, 10);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, true), 1);
    CHECK_EQ(waiting_units(0, 1), 30); /* of batches 10 to 12 */
    sync_regions();
    for (int i = 0; i < REGIONS; i++)
        CHECK_EQ(used_in(i), 130);
    regions_end();
}

TEST(numbers_of_an_own_store_that_was_set_back_do_not_repeat)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    char before[64], command[128];
    for (int batch = 0; batch < 3; batch++) {
        use(0, 10);
        sync_hosts();
        if (batch == 1)
            snprintf(before, sizeof before, "%s", in_region(0, "HGET weir::{regions} batch:us-east"));
        CHECK_EQ(exchange(0, 1, true), 1);
    }
    redisReply *set = redisCommand(server.context, "HSET weir::{regions} batch:us-east %s", before);
    freeReplyObject(set);
    snprintf(command, sizeof command, "HGET weir::{regions} batch:us-east");
    CHECK(strcmp(in_region(0, command), before) == 0);
    use(0, 10);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, true), 0); /* it finds out, and begins a new term */
    sync_regions();
    for (int i = 0; i < REGIONS; i++)
        CHECK_EQ(used_in(i), 40);
    regions_end();
}

TEST(regions_recover_after_an_own_store_was_emptied)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_regions();
    in_region(0, "FLUSHDB");
    in_region(1, "DEL weir::{regions}:from:eu-west"); /* the state has a new identity: known after 10 s */
    in_region(2, "DEL weir::{regions}:from:eu-west");
    use(0, 10);
    sync_regions();
    use(0, 10);
    sync_regions();
    CHECK(used_in(1) >= 30);
    CHECK_EQ(used_in(0), 30);
    regions_end();
}

/* ---- Regions that are not what weir.yaml says ---- */

TEST(nothing_is_sent_to_a_store_of_another_region)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_hosts();
    /* Two regions with one name. */
    in_region(1, "SET weir::{regions}:from:eu-west another PX 100000");
    CHECK_EQ(exchange(0, 1, true), 0);
    CHECK_EQ(waiting_units(0, 1), 10);
    in_region(1, "DEL weir::{regions}:from:eu-west");
    /* No agent runs there. */
    in_region(1, "RENAME weir::{regions}:name saved");
    CHECK_EQ(exchange(0, 1, true), 0);
    /* Its own store under another name. */
    put_in(1, "weir::{regions}:name", "eu-west x");
    CHECK_EQ(exchange(0, 1, true), 0);
    CHECK_EQ(waiting_units(0, 1), 10);
    in_region(1, "RENAME saved weir::{regions}:name");
    CHECK_EQ(exchange(0, 1, true), 1);
    /* Another region with the same own store. */
    struct weir__regions *other = agent_make(0, "sa-east");
    CHECK_EQ(weir__regions_elect(other), 0);
    in_region(0, "DEL weir::{regions}:leader");
    CHECK_EQ(weir__regions_elect(other), 0);
    weir__regions_free(other);
    regions_end();
}

TEST(foreign_values_lose_no_other_units)
{
    if (!regions_begin(GLOBAL("limit: 100, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_hosts();
    in_region(0, "SET weir::{regions}:sent:us-east nonsense");
    CHECK_EQ(exchange(0, 1, true), 1);
    in_region(0, "HSET weir::{regions}:to:us-east nonsense 5");
    in_region(0, "HSET weir::{regions}:to:us-east 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF 5");
    use(0, 1);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, true), 1);
    in_region(0, "LPUSH weir::{regions}:u:weir:a:192.0.2.1x nonsense");
    in_region(1, "DEL weir:a:" KEY);
    in_region(1, "LPUSH weir:a:" KEY " nonsense"); /* the counter there has a wrong type: the units wait */
    use(0, 1);
    sync_hosts();
    CHECK_EQ(exchange(0, 1, true), 0);
    CHECK_EQ(waiting_units(0, 1), 1);
    regions_end();
}

TEST(units_of_a_rule_are_dropped_once_it_was_unknown_for_a_minute)
{
    struct weir__unknown_rules unknown = {0};
    for (int64_t ms = 1000; ms < 61000; ms += 1000) {
        CHECK(!weir__unknown_rules_look(&unknown, 1, false, ms));
        CHECK(!weir__unknown_rules_look(&unknown, 2, ms < 30000, ms));
        CHECK(!weir__unknown_rules_look(&unknown, 3, true, ms)); /* batches of other rules go on */
    }
    CHECK(weir__unknown_rules_look(&unknown, 1, false, 61000));
    CHECK(weir__unknown_rules_look(&unknown, 1, false, 61050));
    CHECK(!weir__unknown_rules_look(&unknown, 2, false, 61000)); /* the time of each is its own */
    CHECK(!weir__unknown_rules_look(&unknown, 1, true, 62000));
    CHECK(!weir__unknown_rules_look(&unknown, 1, false, 63000));
    CHECK(weir__unknown_rules_look(&unknown, 1, false, 123000));
    /* After a partition it begins anew: the rule may have been known meanwhile. */
    CHECK(!weir__unknown_rules_look(&unknown, 1, false, 123001 + WEIR__UNKNOWN_FORGET_MS));
    /* More rules than there is room for. */
    for (uint64_t rule = 10; rule < 10 + 2 * WEIR__UNKNOWN_RULES; rule++)
        CHECK(!weir__unknown_rules_look(&unknown, rule, false, 500000));
    CHECK(weir__unknown_rules_look(&unknown, 9 + 2 * WEIR__UNKNOWN_RULES, false, 600000));
}

/* Without a pause, the agent would retry them as fast as the network allows. */
TEST(a_batch_whose_counters_all_return_is_followed_by_a_pause)
{
    enum { KEYS = 3000 };
    char field[256];
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 1);
    sync_hosts();
    first_field(field);
    CHECK_EQ(exchange(0, 1, true), 1);
    memset(field, 'f', 26); /* a rule that the agent does not have */
    use_keys(field, KEYS, KEYS);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(exchange(0, 1, i != 1), 0);
        CHECK(!more_waits);
    }
    CHECK_EQ(waiting(0, 1), KEYS);
    regions_end();
}

/* Readers use the state as an index, and show the name. */
TEST(statistics_in_a_file_that_others_wrote_are_bounded)
{
    struct weir_region_stats stats;
    if (!regions_begin(GLOBAL("limit: 100, window: 1h"), 0))
        return;
    sync_regions();
    weir *engine = regions[0].host.engine;
    struct weir__ledger_region *region = &engine->deltas.ledger.header->regions[0];
    CHECK_EQ(weir_region_stats_read(engine, 0, &stats), 0);
    CHECK(stats.leader && stats.state == WEIR_REGION_UP);
    weir__store64(&region->state, 1000);
    weir__store64(&region->lag_us, UINT64_MAX);
    CHECK_EQ(weir_region_stats_read(engine, 0, &stats), 0);
    CHECK(stats.state == WEIR_REGION_UNKNOWN && stats.lag_ns == 0);
    static const char *const bad[] = {"", "a\"b", "US", "a\n", "\xff"};
    for (size_t i = 0; i < WEIR__COUNT(bad); i++) {
        snprintf(region->name, sizeof region->name, "%s", bad[i]);
        CHECK_EQ(weir_region_stats_read(engine, 0, &stats), WEIR_ENOENT);
    }
    memset(region->name, 'a', sizeof region->name);
    CHECK_EQ(weir_region_stats_read(engine, 0, &stats), WEIR_ENOENT);
    regions_end();
}

/* weir.yaml of one host, or for a while, has fewer regions. */
TEST(a_region_that_is_left_out_keeps_its_ledger_for_a_day)
{
    static const char *const keys[] = {"to", "sent"};
    char command[64];
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    use(0, 10);
    sync_hosts();
    weir__regions_free(regions[0].agent);
    in_region(0, "DEL weir::{regions}:leader");
    in_region(0, "SET weir::{regions}:sent:ap-south nonsense");
    regions[0].agent = agent_with(0, names[0], 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
        for (size_t k = 0; k < WEIR__COUNT(keys); k++) {
            snprintf(command, sizeof command, "PTTL weir::{regions}:%s:ap-south", keys[k]);
            int64_t ttl_ms = atoll(in_region(0, command));
            CHECK(ttl_ms > 86000000 && ttl_ms <= 86400000);
        }
    }
    CHECK_EQ(atoi(in_region(0, "PTTL " TO "us-east")), -1);
    use(0, 5);
    sync_hosts();
    CHECK_EQ(waiting_units(0, 2), 10);
    /* It is listed again. */
    in_region(0, "DEL weir::{regions}:sent:ap-south");
    replace_agent(0);
    CHECK_EQ(atoi(in_region(0, "PTTL " TO "ap-south")), -1);
    sync_regions();
    CHECK_EQ(used_in(1), 15);
    CHECK_EQ(used_in(2), 10);
    regions_end();
}

/* ---- Partitions ---- */

TEST(a_partition_loses_nothing_and_counts_nothing_twice)
{
    if (!regions_begin(GLOBAL("limit: 1000, window: 365d, algorithm: fixed_window"), 0))
        return;
    struct weir__store_options there = regions[1].store;
    use(0, 10);
    use(1, 20);
    sync_regions();
    /* Cut off: another socket, without a server. */
    weir__regions_free(regions[0].agent);
    in_region(0, "DEL weir::{regions}:leader");
    strcat(regions[1].store.seeds[0].name, "-cut");
    regions[1].store.connect_us = regions[1].store.deadline_us = 100000;
    regions[0].agent = agent_make(0, names[0]);
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    for (int i = 0; i < 5; i++) {
        use(0, 10);
        use(1, 20);
        CHECK_EQ(host_round(&regions[0].host), 0);
        CHECK(exchange(0, 1, true) < 0);
        CHECK_EQ(exchange(0, 2, true), 1);
    }
    CHECK_EQ(waiting_units(0, 1), 50);
    struct weir_region_stats stats;
    CHECK_EQ(weir__regions_elect(regions[0].agent), 1);
    CHECK_EQ(weir_region_stats_read(regions[0].host.engine, 0, &stats), 0);
    CHECK(strcmp(stats.name, "us-east") == 0 && stats.state == WEIR_REGION_DOWN && stats.waiting == 1);
    CHECK(stats.lag_ns > 0 && stats.failures == 5);
    regions[1].store = there;
    replace_agent(0);
    sync_regions();
    for (int i = 0; i < REGIONS; i++)
        CHECK_EQ(used_in(i), 60 + 120);
    regions_end();
}

TEST_MAIN
