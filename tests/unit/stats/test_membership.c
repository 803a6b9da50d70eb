/* Membership: heartbeats, how they are parsed and stored, hostile ones among them; and a real store. */
#include "base/clock.h"
#include "../../engine.h"
#include "../../private_dir.h"
#include "../../redis.h"

#include "remote/client.h"
#include "stats/host_queries.h"
#include "stats/top.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sys/resource.h>

static struct weir__heartbeat some(const char *name, unsigned number)
{
    struct weir__heartbeat heartbeat = {
        .rates = {.allowed = 12.5, .delayed = 1, .denied = 2.25, .shed = 0.5, .known = true},
        .version = "0.1.0",
        .level = 62.5,
        .store = WEIR__HOST_STORE_UP,
        .rules = UINT64_C(0xfedcba9876543210),
        .rule_count = 12,
        .every_ms = 2000};
    snprintf(heartbeat.id, sizeof heartbeat.id, "%016x", number);
    snprintf(heartbeat.name, sizeof heartbeat.name, "%s", name);
    return heartbeat;
}

static bool same(const struct weir__heartbeat *a, const struct weir__heartbeat *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->name, b->name) == 0 && strcmp(a->version, b->version) == 0 &&
           a->rates.known == b->rates.known && fabs(a->rates.allowed - b->rates.allowed) < 0.01 &&
           fabs(a->rates.delayed - b->rates.delayed) < 0.01 && fabs(a->rates.denied - b->rates.denied) < 0.01 &&
           fabs(a->rates.shed - b->rates.shed) < 0.01 && fabs(a->level - b->level) < 0.01 && a->store == b->store &&
           a->rules == b->rules && a->rule_count == b->rule_count && a->every_ms == b->every_ms;
}

/* ---- Heartbeats ---- */

TEST(heartbeat_round_trips)
{
    char text[WEIR__HEARTBEAT_MAX + 1];
    struct weir__heartbeat heartbeat = some("gate-1", 7), back;
    size_t len = weir__heartbeat_format(&heartbeat, text, sizeof text);
    CHECK(len > 0 && len == strlen(text));
    CHECK(weir__heartbeat_parse(text, len, &back) && same(&heartbeat, &back));
    /* Unknown values stay unknown. */
    heartbeat.rates = (struct weir__rates){0};
    heartbeat.level = -1;
    heartbeat.rules = 0;
    heartbeat.store = WEIR__HOST_STORE_NONE;
    len = weir__heartbeat_format(&heartbeat, text, sizeof text);
    CHECK(weir__heartbeat_parse(text, len, &back) && same(&heartbeat, &back) && !back.rates.known && back.level < 0);
    /* The longest possible heartbeat fits, with any characters. */
    heartbeat = some("", UINT32_MAX);
    for (size_t i = 0; i + 2 < sizeof heartbeat.name; i += 2)
        memcpy(heartbeat.name + i, "\xc2\x9b", 3);
    memset(heartbeat.version, '"', sizeof heartbeat.version - 1);
    heartbeat.rates = (struct weir__rates){.of = {1e12, 1e12, 1e12, 1e12}, .known = true};
    heartbeat.rule_count = 1000000000;
    heartbeat.every_ms = 86400000;
    len = weir__heartbeat_format(&heartbeat, text, sizeof text);
    CHECK(len > 0 && weir__heartbeat_parse(text, len, &back) && same(&heartbeat, &back));
    for (size_t i = 0; i < len; i++) /* it is sent in a header, too */
        CHECK(text[i] >= ' ' && text[i] <= '~');
    CHECK_EQ(weir__heartbeat_format(&heartbeat, text, 100), 0);
}

TEST(invalid_heartbeats_are_refused_or_values_unknown)
{
    static const char *const refused[] = {"",
                                          "{}",
                                          "[]",
                                          "7",
                                          "null",
                                          "{",
                                          "\"0000000000000007\"",
                                          "{\"id\":7}",
                                          "{\"id\":\"\"}",
                                          "{\"id\":\"000000000000007\"}",
                                          "{\"id\":\"00000000000000071\"}",
                                          "{\"id\":\"000000000000000G\"}",
                                          "{\"id\":\"000000000000000A\"}",
                                          "{\"id\":\"0000000000000007\"} {}",
                                          "{\"id\":\"0000000000000007\",\"name\":\"\xff\"}",
                                          "{\"id\":\"0000000000000007\",\"name\":\"a\\u0000b\"}"};
    struct weir__heartbeat heartbeat;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (weir__heartbeat_parse(refused[i], strlen(refused[i]), &heartbeat)) {
            printf("  taken: %s\n", refused[i]);
            CHECK(false);
        }
    static const char odd[] = "{\"id\":\"0000000000000007\",\"name\":[1],\"version\":{},\"store\":\"burning\","
                              "\"rules\":\"xyz\",\"level\":1e300,"
                              "\"rule_count\":-5,\"every_ms\":1e99,\"rates\":{\"allowed\":-1,\"denied\":\"many\","
                              "\"delayed\":1e200},\"more\":true}";
    CHECK(weir__heartbeat_parse(odd, sizeof odd - 1, &heartbeat));
    CHECK(!*heartbeat.name && !*heartbeat.version && heartbeat.store == WEIR__HOST_STORE_UNKNOWN &&
          heartbeat.rules == 0);
    CHECK(heartbeat.level >= 0 && heartbeat.level <= 100);
    CHECK_EQ(heartbeat.rule_count, 0);
    CHECK_EQ(heartbeat.every_ms, 86400000);
    CHECK(heartbeat.rates.known && heartbeat.rates.allowed < 0.01 && heartbeat.rates.denied < 0.01 &&
          heartbeat.rates.delayed <= 1e12);
    /* A name is cut between characters. */
    char text[WEIR__HEARTBEAT_MAX + 64];
    int len = snprintf(text, sizeof text, "{\"id\":\"0000000000000007\",\"every_ms\":0,\"name\":\"");
    for (int i = 0; i < 40; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "\xe2\x82\xac");
    len += snprintf(text + len, sizeof text - (size_t)len, "\"}");
    CHECK(weir__heartbeat_parse(text, (size_t)len, &heartbeat));
    CHECK_EQ(strlen(heartbeat.name), 63);
    CHECK_EQ(heartbeat.every_ms, 100);
    /* Longer than any heartbeat. */
    memset(text, ' ', sizeof text);
    static const char short_one[] = "{\"id\":\"0000000000000007\"}";
    memcpy(text, short_one, sizeof short_one - 1);
    CHECK(weir__heartbeat_parse(text, WEIR__HEARTBEAT_MAX, &heartbeat));
    CHECK(!weir__heartbeat_parse(text, WEIR__HEARTBEAT_MAX + 1, &heartbeat));
}

/* ---- The file ---- */

TEST(host_list_round_trips)
{
    struct weir__host_status hosts[3] = {{some("here", 1), 0, .via = WEIR__HOST_SELF},
                                         {some("a \"quoted\" \\ \x1b[2J one", 2), 1500, .via = WEIR__HOST_VIA_STORE},
                                         {some("\xe2\x82\xac", 3), 99000, .via = WEIR__HOST_VIA_RULES}};
    struct weir__host_list list = {.written_ms = 123456,
                                   .store = WEIR__HOST_STORE_UNAVAILABLE,
                                   .why = "gone",
                                   .left_out = 4,
                                   .count = 3,
                                   .hosts = hosts},
                           back;
    size_t len = 0;
    char *text = weir__host_list_format(&list, &len);
    CHECK(text && weir__host_list_parse(text, len, &back));
    CHECK_EQ(back.count, 3);
    CHECK_EQ(back.written_ms, 123456);
    CHECK_EQ(back.left_out, 4);
    CHECK(back.store == WEIR__HOST_STORE_UNAVAILABLE && strcmp(back.why, "gone") == 0);
    for (size_t i = 0; i < 3; i++)
        CHECK(same(&back.hosts[i].heartbeat, &hosts[i].heartbeat) && back.hosts[i].ago_ms == hosts[i].ago_ms &&
              back.hosts[i].via == hosts[i].via);
    weir__host_list_free(&back);
    /* Truncated anywhere, it is not a list. */
    for (size_t cut = 0; cut < len; cut++)
        CHECK(!weir__host_list_parse(text, cut, &back) && !back.hosts);
    free(text);
    static const char *const odd[] = {"{}", "[]", "{\"hosts\":{}}", "{\"hosts\":null}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        CHECK(!weir__host_list_parse(odd[i], strlen(odd[i]), &back) && !back.hosts);
    static const char mixed[] =
        "{\"written_ms\":-5,\"left_out\":1e9,\"store\":7,\"why\":[],\"hosts\":[1,null,{},[],{\"id\":"
        "\"0000000000000009\",\"ago_ms\":-1,\"via\":\"pigeon\"}]}";
    CHECK(weir__host_list_parse(mixed, sizeof mixed - 1, &back));
    CHECK_EQ(back.count, 1);
    CHECK(back.written_ms == 0 && back.left_out == 0 && back.hosts[0].ago_ms == 0);
    weir__host_list_free(&back);
}

TEST(host_list_is_bounded)
{
    struct weir__host_list list = {.count = WEIR__HOSTS_MAX + 50}, back;
    list.hosts = calloc(list.count, sizeof *list.hosts);
    for (unsigned i = 0; i < list.count; i++)
        list.hosts[i].heartbeat = some("many", i);
    size_t len = 0;
    char *text = weir__host_list_format(&list, &len);
    CHECK(text && weir__host_list_parse(text, len, &back));
    CHECK_EQ(back.count, WEIR__HOSTS_MAX);
    CHECK(len < 4 << 20); /* the most that is read */
    weir__host_list_free(&back);
    weir__host_list_free(&list);
    free(text);
}

/* ---- Subscribers ---- */

TEST(subscribers_are_listed_and_expire)
{
    static struct weir__subscribers table = {.lock = PTHREAD_MUTEX_INITIALIZER}, *subscribers = &table;
    struct weir__host_list list = {.hosts = calloc(WEIR__HOSTS_MAX, sizeof *list.hosts)};
    struct weir__heartbeat heartbeat = some("one", 1);
    weir__subscribers_record(subscribers, &heartbeat, 1000);
    heartbeat = some("two", 2);
    weir__subscribers_record(subscribers, &heartbeat, 2000);
    heartbeat.rule_count = 99;
    weir__subscribers_record(subscribers, &heartbeat, 3000);
    /* The store's heartbeat of the second host is newer, that of the first older. */
    list.hosts[list.count++] = (struct weir__host_status){some("two", 2), 100, .via = WEIR__HOST_VIA_STORE};
    list.hosts[list.count++] = (struct weir__host_status){some("one", 1), 50000, .via = WEIR__HOST_VIA_STORE};
    weir__subscribers_append(subscribers, &list, 4000);
    CHECK_EQ(list.count, 2);
    CHECK(list.hosts[0].via == WEIR__HOST_VIA_STORE && list.hosts[0].heartbeat.rule_count == 12);
    CHECK(list.hosts[1].via == WEIR__HOST_VIA_RULES && list.hosts[1].ago_ms == 3000);
    list.count = 0;
    weir__subscribers_append(subscribers, &list, 2500 + WEIR__HOSTS_FORGET_MS);
    CHECK_EQ(list.count, 1);
    CHECK_EQ(list.hosts[0].heartbeat.rule_count, 99);
    /* Without room, hosts that still send heartbeats keep their places. */
    for (unsigned i = 0; i < WEIR__HOSTS_MAX; i++) {
        heartbeat = some("many", 100 + i);
        weir__subscribers_record(subscribers, &heartbeat, 5000000);
    }
    heartbeat = some("late", 7);
    weir__subscribers_record(subscribers, &heartbeat, 5000100);
    list.count = 0;
    weir__subscribers_append(subscribers, &list, 5000200);
    CHECK_EQ(list.count, WEIR__HOSTS_MAX);
    for (size_t i = 0; i < list.count; i++)
        CHECK(strcmp(list.hosts[i].heartbeat.name, "many") == 0);
    weir__subscribers_record(subscribers, &heartbeat, 5000000 + 11000);
    list.count = 0;
    weir__subscribers_append(subscribers, &list, 5000000 + 11000);
    size_t late = 0;
    for (size_t i = 0; i < list.count; i++)
        late += strcmp(list.hosts[i].heartbeat.name, "late") == 0;
    CHECK_EQ(late, 1);
    weir__host_list_free(&list);
}

/* ---- Reading the file ---- */

static char segment[64], file[80];

__attribute__((constructor)) static void choose_paths(void)
{
    private_path(segment, sizeof segment, "segment");
    snprintf(file, sizeof file, "%s.hosts", segment);
}

static weir *opened(struct weir__snapshot *snapshot)
{
    weir_options how = {.segment = {.path = segment, .size = 1 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = "rules: [{ name: api, limit: 5, window: 1h }]",
                        .diagnose = test_print_diagnostic};
    weir *engine = NULL;
    unlink(segment);
    unlink(file);
    CHECK_EQ(weir_open(&how, &engine), 0);
    weir__snapshot_open(snapshot, engine, segment);
    return engine;
}

static void closed(weir *engine, struct weir__snapshot *snapshot)
{
    weir__snapshot_close(snapshot);
    weir_close(engine);
    unlink(segment);
    unlink(file);
}

static void put(const struct weir__host_list *list)
{
    size_t len = 0;
    char *text = weir__host_list_format(list, &len);
    FILE *to = fopen(file, "we");
    CHECK(to && fwrite(text, 1, len, to) == len);
    if (to)
        fclose(to);
    free(text);
}

TEST(this_host_is_always_listed)
{
    struct weir__snapshot snapshot;
    struct weir__membership membership;
    weir *engine = opened(&snapshot);
    snapshot.host_name = "me";
    weir__membership_open(&membership, segment, false);
    weir__membership_refresh(&membership, &snapshot);
    CHECK_EQ(membership.count, 1);
    CHECK(membership.hosts[0].via == WEIR__HOST_SELF && strcmp(membership.hosts[0].heartbeat.name, "me") == 0);
    CHECK(membership.store == WEIR__HOST_STORE_NONE && !membership.agent && !membership.hosts[0].silent);
    CHECK(membership.hosts[0].heartbeat.rules != 0 && membership.hosts[0].heartbeat.rule_count == 1);
    /* Whatever the file contains. */
    static const char *const odd[] = {"", "nonsense", "{\"hosts\":[]}", "{\"hosts\":[{\"id\":\"000000000000000a\"}]}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        FILE *to = fopen(file, "we");
        CHECK(to && fputs(odd[i], to) >= 0 && fclose(to) == 0);
        weir__membership_refresh(&membership, &snapshot);
        CHECK(membership.count >= 1 && strcmp(membership.hosts[0].heartbeat.name, "me") == 0);
    }
    weir__membership_close(&membership);
    closed(engine, &snapshot);
}

TEST(other_hosts_become_silent_then_expire)
{
    struct weir__snapshot snapshot;
    struct weir__membership membership;
    weir *engine = opened(&snapshot);
    weir__membership_open(&membership, segment, true);
    weir__membership_refresh(&membership, &snapshot);
    CHECK(membership.store == WEIR__HOST_STORE_UNKNOWN); /* no agent runs */
    CHECK(*membership.hosts[0].heartbeat.name);          /* the system's host name */
    struct weir__host_status hosts[6] = {{membership.hosts[0].heartbeat, 0, .via = WEIR__HOST_SELF},
                                         {some("b", 2), 3000, .via = WEIR__HOST_VIA_STORE},
                                         {some("c", 3), 11000, .via = WEIR__HOST_VIA_STORE},
                                         {some("d", 4), WEIR__HOSTS_FORGET_MS + 1, .via = WEIR__HOST_VIA_STORE},
                                         {some("e", 5), 0, .via = WEIR__HOST_VIA_STORE},
                                         {membership.hosts[0].heartbeat, 500, .via = WEIR__HOST_VIA_RULES}};
    hosts[4].heartbeat.rules = 77;
    hosts[0].heartbeat.rules = hosts[1].heartbeat.rules;
    struct weir__host_list list = {
        .written_ms = (int64_t)weir__coarse_ms(), .store = WEIR__HOST_STORE_UP, .count = 6, .hosts = hosts};
    put(&list);
    weir__membership_refresh(&membership, &snapshot);
    CHECK(membership.agent && membership.store == WEIR__HOST_STORE_UP);
    CHECK_EQ(membership.count, 4); /* d has expired, and this host is listed once */
    CHECK_EQ(membership.silent, 1);
    CHECK_EQ(membership.differ, 1);
    CHECK(membership.hosts[2].silent && strcmp(membership.hosts[2].heartbeat.name, "c") == 0);
    CHECK(membership.hosts[3].differs && strcmp(membership.hosts[3].heartbeat.name, "e") == 0);
    /* The agent ends: all others become silent, this host stays. */
    list.written_ms -= 20000;
    put(&list);
    weir__membership_refresh(&membership, &snapshot);
    CHECK(!membership.agent && membership.count == 4 && membership.silent == 3 && !membership.hosts[0].silent);
    /* A file from before the machine was rebooted. */
    list.written_ms = INT64_C(1) << 50;
    put(&list);
    weir__membership_refresh(&membership, &snapshot);
    CHECK_EQ(membership.count, 1);
    weir__membership_close(&membership);
    closed(engine, &snapshot);
}

TEST(texts_of_other_hosts_are_escaped)
{
    struct weir__snapshot snapshot;
    struct weir__membership membership;
    weir *engine = opened(&snapshot);
    snapshot.host_name = "me";
    weir__membership_open(&membership, segment, true);
    weir__membership_refresh(&membership, &snapshot);
    struct weir__host_status hosts[2] = {{membership.hosts[0].heartbeat, 0, .via = WEIR__HOST_SELF},
                                         {some("", 2), 0, .via = WEIR__HOST_VIA_STORE}};
    snprintf(hosts[1].heartbeat.name, sizeof hosts[1].heartbeat.name, "evil\x1b[2J\x07\xc2\x9b[2J\r\n");
    snprintf(hosts[1].heartbeat.version, sizeof hosts[1].heartbeat.version, "\x1b]0;x\x07");
    struct weir__host_list list = {.written_ms = (int64_t)weir__coarse_ms(),
                                   .store = WEIR__HOST_STORE_UNAVAILABLE,
                                   .why = "\x1b[31mred",
                                   .count = 2,
                                   .hosts = hosts};
    put(&list);
    weir__membership_refresh(&membership, &snapshot);
    char *text = NULL, *json = NULL;
    size_t len = 0;
    static const char reply[] =
        "{\"host\":{\"name\":\"evil\\u001b[2J\"},\"version\":\"\\u001b]0;x\",\"load\":{\"known\":true,"
        "\"level\":1e300,\"signals\":{\"\\u001b[2J\":-1e300,\"cpu\":5}},\"rules\":[{\"name\":\"\\u001b[2J"
        "\\n\",\"totals\":{\"denied\":1e300},\"hot\":{\"denied\":[{\"key\":\"\\u0007k\",\"count\":-5}],"
        "\"uses\":{\"keys\":1}}},{\"name\":\"\"}],\"store\":{\"lag_s\":1e300},\"segment\":{\"bytes\":1e300}}";
    json_t *given = json_loads(reply, 0, NULL), *stats = weir__reply_form(WEIR__QUERY_STATS, given, strlen(reply));
    json_object_set_new(stats, "coverage",
                        json_pack("{s:[s],s:[{s:s,s:s}],s:s}", "hosts", "\x1b[2J", "missing", "name", "\x1b[2J", "why",
                                  "\x1b", "why", "\r"));
    struct weir__top top = {
        .stats = stats, .membership = &membership, .to = open_memstream(&text, &len), .width = 80, .plain = true};
    weir__top_draw(&top);
    fclose(top.to);
    json_decref(given);
    json_decref(stats);
    CHECK(strstr(text, "evil") != NULL && strstr(text, "DOWN") != NULL);
    CHECK(memchr(text, '\x1b', len) == NULL && memchr(text, '\x07', len) == NULL && memchr(text, '\r', len) == NULL &&
          memmem(text, len, "\xc2\x9b", 2) == NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        CHECK(strlen(line) <= 80);
    free(text);
    CHECK_EQ(weir__stats_json_hosts(&membership, &json), 0);
    json_t *root = json ? json_loads(json, 0, NULL) : NULL;
    json_t *other = json_array_get(json_object_get(root, "hosts"), 1);
    CHECK(strcmp(json_string_value(json_object_get(other, "name")), hosts[1].heartbeat.name) == 0);
    CHECK(json && strchr(json, '\x1b') == NULL);
    CHECK(strcmp(json_string_value(json_object_get(json_object_get(root, "fleet"), "store")), "unavailable") == 0);
    json_decref(root);
    free(json);
    weir__membership_close(&membership);
    closed(engine, &snapshot);
}

/* ---- The store ---- */

static struct weir__store_options store;
static struct weir__host_list received;
static char why[WEIR__HOSTS_WHY];
static int64_t there;

static bool with_server(void)
{
    char url[160], wrong[256];
    if (!server_begin())
        return false;
    snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s", server.socket);
    CHECK_EQ(weir__store_parse(url, &store, wrong, sizeof wrong), 0);
    server_do("FLUSHALL");
    if (!received.hosts)
        received.hosts = calloc(WEIR__HOSTS_MAX, sizeof *received.hosts);
    received.count = 0;
    return received.hosts != NULL;
}

static const struct weir__host_status *of(const char *name)
{
    for (size_t i = 0; i < received.count; i++)
        if (strcmp(received.hosts[i].heartbeat.name, name) == 0)
            return &received.hosts[i];
    return NULL;
}

TEST(hosts_exchange_heartbeats_through_the_store)
{
    if (!with_server())
        return;
    struct weir__heartbeat_store *link = weir__heartbeat_store_new(&store, INT64_C(20000000));
    struct weir__heartbeat a = some("a", 1), b = some("b", 2);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK_EQ(received.count, 1);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &b, NULL, &there, why), 0);
    CHECK_EQ(there, 2);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK_EQ(received.count, 2);
    CHECK(of("b") && same(&of("b")->heartbeat, &b) && of("b")->ago_ms >= 0 && of("b")->ago_ms < 60000);
    /* It is one key, which expires. */
    redisReply *reply = server_reply("PTTL weir::hosts");
    CHECK(reply->integer > 0 && reply->integer <= WEIR__HOSTS_FORGET_MS);
    freeReplyObject(reply);
    /* A host without heartbeats for long is removed, and one that leaves is removed at once. */
    server_do("HSET weir::hosts 0000000000000002 1000");
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK(!of("b") && of("a"));
    CHECK_EQ(there, 1);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &b, &received, &there, why), 0);
    CHECK_EQ(received.count, 2);
    weir__heartbeat_store_leave(link, b.id);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK_EQ(received.count, 1);
    weir__heartbeat_store_free(link);
}

/* poll(2) refuses more descriptors than the limit of open files, also unused ones. */
TEST(store_is_reached_with_few_open_files)
{
    struct rlimit before, few;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (!with_server())
        return;
    few = (struct rlimit){.rlim_cur = WEIR__CHANNELS / 2, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct weir__heartbeat_store *link = weir__heartbeat_store_new(&store, INT64_C(5000000));
    struct weir__heartbeat a = some("a", 1);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK_EQ(received.count, 1);
    weir__heartbeat_store_free(link);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(hostile_heartbeats_in_the_store_are_harmless)
{
    if (!with_server())
        return;
    struct weir__heartbeat_store *link = weir__heartbeat_store_new(&store, INT64_C(20000000));
    struct weir__heartbeat a = some("a", 1);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    redisReply *now = server_reply("TIME");
    long long ms = strtoll(now->element[0]->str, NULL, 10) * 1000;
    freeReplyObject(now);
    /* With a timestamp, but no valid heartbeat; another host's id; a server whose clock was set back; too long. */
    static const char *const texts[] = {"", "{", "[[[[", "\xff\xfe", "{\"id\":\"0000000000000001\"}", "{\"id\":\"x\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char field[32], value[128];
        snprintf(field, sizeof field, "00000000000000b%zu", i);
        int len = snprintf(value, sizeof value, "%lld %s", ms, texts[i]);
        freeReplyObject(redisCommand(server.context, "HSET weir::hosts %s %b", field, value, (size_t)len));
    }
    char *large = malloc(100000);
    memset(large, '[', 100000);
    int head = snprintf(large, 32, "%lld ", ms);
    large[head] = '['; /* overwrites the terminating zero byte */
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000cc %b", large, (size_t)100000));
    free(large);
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000dd %s", "99999999999999999999999 {}"));
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000ee %s", "-5 {}"));
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    CHECK_EQ(received.count, 1);
    CHECK(of("a") != NULL);
    /* The key has another type. */
    server_do("DEL weir::hosts");
    server_do("SET weir::hosts 5");
    CHECK(weir__heartbeat_store_exchange(link, &a, &received, &there, why) != 0 && *why);
    server_do("DEL weir::hosts");
    CHECK_EQ(weir__heartbeat_store_exchange(link, &a, &received, &there, why), 0);
    weir__heartbeat_store_free(link);
}

TEST(number_of_hosts_is_bounded)
{
    if (!with_server())
        return;
    struct weir__heartbeat_store *link = weir__heartbeat_store_new(&store, INT64_C(20000000));
    for (unsigned i = 0; i < WEIR__HOSTS_MAX; i++) {
        struct weir__heartbeat heartbeat = some("many", i);
        CHECK_EQ(weir__heartbeat_store_exchange(link, &heartbeat, NULL, &there, why), 0);
    }
    CHECK_EQ(there, WEIR__HOSTS_MAX);
    struct weir__heartbeat late = some("late", WEIR__HOSTS_MAX), known = some("many", 5);
    CHECK_EQ(weir__heartbeat_store_exchange(link, &late, &received, &there, why), 0);
    CHECK(received.count == WEIR__HOSTS_MAX && !of("late"));
    CHECK_EQ(weir__heartbeat_store_exchange(link, &known, NULL, &there, why), 0);
    CHECK_EQ(there, WEIR__HOSTS_MAX);
    /* One host leaves, and there is room. */
    weir__heartbeat_store_leave(link, "0000000000000007");
    CHECK_EQ(weir__heartbeat_store_exchange(link, &late, &received, &there, why), 0);
    CHECK(received.count == WEIR__HOSTS_MAX && of("late"));
    weir__heartbeat_store_free(link);
    weir__host_list_free(&received);
}

TEST_MAIN
