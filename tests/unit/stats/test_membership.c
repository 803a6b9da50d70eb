/* Which hosts there are: what a host tells of itself and what becomes of it, hostile texts among it; a real store. */
#define _GNU_SOURCE /* memmem */
#include "base/clock.h"
#include "../../engine.h"
#include "../../own.h"
#include "../../redis.h"

#include "stats/stats_json.h"
#include "stats/membership_internal.h"
#include "stats/subscribers.h"
#include "stats/top.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

static struct weir__told some(const char *name, unsigned number)
{
    struct weir__told told = {.rates = {.allowed = 12.5, .delayed = 1, .denied = 2.25, .shed = 0.5, .known = true},
                              .version = "0.1.0",
                              .level = 62.5,
                              .store = WEIR__FLEET_STORE_UP,
                              .rules = UINT64_C(0xfedcba9876543210),
                              .rule_count = 12,
                              .every_ms = 2000};
    snprintf(told.id, sizeof told.id, "%016x", number);
    snprintf(told.name, sizeof told.name, "%s", name);
    return told;
}

static bool same(const struct weir__told *a, const struct weir__told *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->name, b->name) == 0 && strcmp(a->version, b->version) == 0 &&
           a->rates.known == b->rates.known && fabs(a->rates.allowed - b->rates.allowed) < 0.01 &&
           fabs(a->rates.delayed - b->rates.delayed) < 0.01 && fabs(a->rates.denied - b->rates.denied) < 0.01 &&
           fabs(a->rates.shed - b->rates.shed) < 0.01 && fabs(a->level - b->level) < 0.01 && a->store == b->store &&
           a->rules == b->rules && a->rule_count == b->rule_count && a->every_ms == b->every_ms;
}

/* ---- What a host tells ---- */

TEST(what_a_host_tells_comes_back_as_it_was)
{
    char text[WEIR__FLEET_TEXT_MAX + 1];
    struct weir__told told = some("gate-1", 7), back;
    size_t len = weir__told_write(&told, text, sizeof text);
    CHECK(len > 0 && len == strlen(text));
    CHECK(weir__told_read(text, len, &back) && same(&told, &back));
    /* Unknown things stay unknown. */
    told.rates = (struct weir__rates){0};
    told.level = -1;
    told.rules = 0;
    told.store = WEIR__FLEET_NO_STORE;
    len = weir__told_write(&told, text, sizeof text);
    CHECK(weir__told_read(text, len, &back) && same(&told, &back) && !back.rates.known && back.level < 0);
    /* The longest there can be fits, of whatever characters. */
    told = some("", UINT32_MAX);
    for (size_t i = 0; i + 2 < sizeof told.name; i += 2)
        memcpy(told.name + i, "\xc2\x9b", 3);
    memset(told.version, '"', sizeof told.version - 1);
    told.rates = (struct weir__rates){1e12, 1e12, 1e12, 1e12, true};
    told.rule_count = 1000000000;
    told.every_ms = 86400000;
    len = weir__told_write(&told, text, sizeof text);
    CHECK(len > 0 && weir__told_read(text, len, &back) && same(&told, &back));
    for (size_t i = 0; i < len; i++) /* it goes into a header, too */
        CHECK(text[i] >= ' ' && text[i] <= '~');
    CHECK_EQ(weir__told_write(&told, text, 100), 0);
}

TEST(what_makes_no_sense_is_refused_or_unknown)
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
    struct weir__told told;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (weir__told_read(refused[i], strlen(refused[i]), &told)) {
            printf("  taken: %s\n", refused[i]);
            CHECK(false);
        }
    static const char odd[] = "{\"id\":\"0000000000000007\",\"name\":[1],\"version\":{},\"store\":\"burning\","
                              "\"rules\":\"xyz\",\"level\":1e300,"
                              "\"rule_count\":-5,\"every_ms\":1e99,\"rates\":{\"allowed\":-1,\"denied\":\"many\","
                              "\"delayed\":1e200},\"more\":true}";
    CHECK(weir__told_read(odd, sizeof odd - 1, &told));
    CHECK(!*told.name && !*told.version && told.store == WEIR__FLEET_STORE_UNKNOWN && told.rules == 0);
    CHECK(told.level >= 0 && told.level <= 100);
    CHECK_EQ(told.rule_count, 0);
    CHECK_EQ(told.every_ms, 86400000);
    CHECK(told.rates.known && told.rates.allowed < 0.01 && told.rates.denied < 0.01 && told.rates.delayed <= 1e12);
    /* A name is cut between characters. */
    char text[WEIR__FLEET_TEXT_MAX + 64];
    int len = snprintf(text, sizeof text, "{\"id\":\"0000000000000007\",\"every_ms\":0,\"name\":\"");
    for (int i = 0; i < 40; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "\xe2\x82\xac");
    len += snprintf(text + len, sizeof text - (size_t)len, "\"}");
    CHECK(weir__told_read(text, (size_t)len, &told));
    CHECK_EQ(strlen(told.name), 63);
    CHECK_EQ(told.every_ms, 100);
    /* More than anybody tells. */
    memset(text, ' ', sizeof text);
    static const char short_one[] = "{\"id\":\"0000000000000007\"}";
    memcpy(text, short_one, sizeof short_one - 1);
    CHECK(weir__told_read(text, WEIR__FLEET_TEXT_MAX, &told));
    CHECK(!weir__told_read(text, WEIR__FLEET_TEXT_MAX + 1, &told));
}

/* ---- The file ---- */

TEST(a_list_comes_back_as_it_was)
{
    struct weir__heard hosts[3] = {{some("here", 1), 0, WEIR__FLEET_HERE},
                                   {some("a \"quoted\" \\ \x1b[2J one", 2), 1500, WEIR__FLEET_BY_STORE},
                                   {some("\xe2\x82\xac", 3), 99000, WEIR__FLEET_BY_RULES}};
    struct weir__fleet_list list = {.written_ms = 123456,
                                    .store = WEIR__FLEET_STORE_AWAY,
                                    .why = "gone",
                                    .left_out = 4,
                                    .count = 3,
                                    .hosts = hosts},
                            back;
    size_t len = 0;
    char *text = weir__fleet_text(&list, &len);
    CHECK(text && weir__fleet_parse(text, len, &back));
    CHECK_EQ(back.count, 3);
    CHECK_EQ(back.written_ms, 123456);
    CHECK_EQ(back.left_out, 4);
    CHECK(back.store == WEIR__FLEET_STORE_AWAY && strcmp(back.why, "gone") == 0);
    for (size_t i = 0; i < 3; i++)
        CHECK(same(&back.hosts[i].told, &hosts[i].told) && back.hosts[i].ago_ms == hosts[i].ago_ms &&
              back.hosts[i].via == hosts[i].via);
    weir__fleet_list_free(&back);
    /* Cut short anywhere, it is no list. */
    for (size_t cut = 0; cut < len; cut++)
        CHECK(!weir__fleet_parse(text, cut, &back) && !back.hosts);
    free(text);
    static const char *const odd[] = {"{}", "[]", "{\"hosts\":{}}", "{\"hosts\":null}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        CHECK(!weir__fleet_parse(odd[i], strlen(odd[i]), &back) && !back.hosts);
    static const char mixed[] =
        "{\"written_ms\":-5,\"left_out\":1e9,\"store\":7,\"why\":[],\"hosts\":[1,null,{},[],{\"id\":"
        "\"0000000000000009\",\"ago_ms\":-1,\"via\":\"pigeon\"}]}";
    CHECK(weir__fleet_parse(mixed, sizeof mixed - 1, &back));
    CHECK_EQ(back.count, 1);
    CHECK(back.written_ms == 0 && back.left_out == 0 && back.hosts[0].ago_ms == 0);
    weir__fleet_list_free(&back);
}

TEST(a_list_has_no_more_than_there_is_room_for)
{
    struct weir__fleet_list list = {.count = WEIR__FLEET_MAX + 50}, back;
    list.hosts = calloc(list.count, sizeof *list.hosts);
    for (unsigned i = 0; i < list.count; i++)
        list.hosts[i].told = some("many", i);
    size_t len = 0;
    char *text = weir__fleet_text(&list, &len);
    CHECK(text && weir__fleet_parse(text, len, &back));
    CHECK_EQ(back.count, WEIR__FLEET_MAX);
    CHECK(len < 4 << 20); /* what is read at most */
    weir__fleet_list_free(&back);
    weir__fleet_list_free(&list);
    free(text);
}

/* ---- Followers ---- */

TEST(followers_are_heard_and_forgotten)
{
    struct weir__followers *followers = weir__followers_new();
    struct weir__fleet_list list = {.hosts = calloc(WEIR__FLEET_MAX, sizeof *list.hosts)};
    struct weir__told told = some("one", 1);
    weir__followers_hear(followers, &told, 1000);
    told = some("two", 2);
    weir__followers_hear(followers, &told, 2000);
    told.rule_count = 99;
    weir__followers_hear(followers, &told, 3000);
    /* The store has told of the second later, and of the first earlier. */
    list.hosts[list.count++] = (struct weir__heard){some("two", 2), 100, WEIR__FLEET_BY_STORE};
    list.hosts[list.count++] = (struct weir__heard){some("one", 1), 50000, WEIR__FLEET_BY_STORE};
    weir__followers_add(followers, &list, 4000);
    CHECK_EQ(list.count, 2);
    CHECK(list.hosts[0].via == WEIR__FLEET_BY_STORE && list.hosts[0].told.rule_count == 12);
    CHECK(list.hosts[1].via == WEIR__FLEET_BY_RULES && list.hosts[1].ago_ms == 3000);
    list.count = 0;
    weir__followers_add(followers, &list, 2500 + WEIR__FLEET_FORGET_MS);
    CHECK_EQ(list.count, 1);
    CHECK_EQ(list.hosts[0].told.rule_count, 99);
    /* Without room those who still tell keep theirs. */
    for (unsigned i = 0; i < WEIR__FLEET_MAX; i++) {
        told = some("many", 100 + i);
        weir__followers_hear(followers, &told, 5000000);
    }
    told = some("late", 7);
    weir__followers_hear(followers, &told, 5000100);
    list.count = 0;
    weir__followers_add(followers, &list, 5000200);
    CHECK_EQ(list.count, WEIR__FLEET_MAX);
    for (size_t i = 0; i < list.count; i++)
        CHECK(strcmp(list.hosts[i].told.name, "many") == 0);
    weir__followers_hear(followers, &told, 5000000 + 11000);
    list.count = 0;
    weir__followers_add(followers, &list, 5000000 + 11000);
    size_t late = 0;
    for (size_t i = 0; i < list.count; i++)
        late += strcmp(list.hosts[i].told.name, "late") == 0;
    CHECK_EQ(late, 1);
    weir__fleet_list_free(&list);
    weir__followers_free(followers);
}

/* ---- Looking ---- */

static char segment[64], file[80];

__attribute__((constructor)) static void choose_paths(void)
{
    own_path(segment, sizeof segment, "segment");
    snprintf(file, sizeof file, "%s.hosts", segment);
}

static weir *opened(struct weir__sight *sight)
{
    weir_options how = {.segment = {.path = segment, .size = 1 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = "rules: [{ name: api, limit: 5, window: 1h }]",
                        .diagnose = test_print_diagnostic};
    weir *engine = NULL;
    unlink(segment);
    unlink(file);
    CHECK_EQ(weir_open(&how, &engine), 0);
    CHECK_EQ(weir__sight_open(sight, engine, segment), 0);
    return engine;
}

static void closed(weir *engine, struct weir__sight *sight)
{
    weir__sight_close(sight);
    weir_close(engine);
    unlink(segment);
    unlink(file);
}

static void put(const struct weir__fleet_list *list)
{
    size_t len = 0;
    char *text = weir__fleet_text(list, &len);
    FILE *to = fopen(file, "we");
    CHECK(to && fwrite(text, 1, len, to) == len);
    if (to)
        fclose(to);
    free(text);
}

TEST(this_host_is_always_there)
{
    struct weir__sight sight;
    struct weir__fleet fleet;
    weir *engine = opened(&sight);
    sight.host_name = "me";
    weir__fleet_open(&fleet, segment, false);
    weir__fleet_look(&fleet, &sight);
    CHECK_EQ(fleet.count, 1);
    CHECK(fleet.hosts[0].via == WEIR__FLEET_HERE && strcmp(fleet.hosts[0].told.name, "me") == 0);
    CHECK(fleet.store == WEIR__FLEET_NO_STORE && !fleet.agent && !fleet.hosts[0].silent);
    CHECK(fleet.hosts[0].told.rules != 0 && fleet.hosts[0].told.rule_count == 1);
    /* Whatever is in the file. */
    static const char *const odd[] = {"", "nonsense", "{\"hosts\":[]}", "{\"hosts\":[{\"id\":\"000000000000000a\"}]}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        FILE *to = fopen(file, "we");
        CHECK(to && fputs(odd[i], to) >= 0 && fclose(to) == 0);
        weir__fleet_look(&fleet, &sight);
        CHECK(fleet.count >= 1 && strcmp(fleet.hosts[0].told.name, "me") == 0);
    }
    weir__fleet_close(&fleet);
    closed(engine, &sight);
}

TEST(others_are_silent_then_gone_and_other_rules_are_seen)
{
    struct weir__sight sight;
    struct weir__fleet fleet;
    weir *engine = opened(&sight);
    weir__fleet_open(&fleet, segment, true);
    weir__fleet_look(&fleet, &sight);
    CHECK(fleet.store == WEIR__FLEET_STORE_UNKNOWN); /* no agent says */
    CHECK(*fleet.hosts[0].told.name);                /* the system's */
    struct weir__heard hosts[6] = {
        {fleet.hosts[0].told, 0, WEIR__FLEET_HERE},  {some("b", 2), 3000, WEIR__FLEET_BY_STORE},
        {some("c", 3), 11000, WEIR__FLEET_BY_STORE}, {some("d", 4), WEIR__FLEET_FORGET_MS + 1, WEIR__FLEET_BY_STORE},
        {some("e", 5), 0, WEIR__FLEET_BY_STORE},     {fleet.hosts[0].told, 500, WEIR__FLEET_BY_RULES}};
    hosts[4].told.rules = 77;
    hosts[0].told.rules = hosts[1].told.rules;
    struct weir__fleet_list list = {
        .written_ms = (int64_t)weir__coarse_ms(), .store = WEIR__FLEET_STORE_UP, .count = 6, .hosts = hosts};
    put(&list);
    weir__fleet_look(&fleet, &sight);
    CHECK(fleet.agent && fleet.store == WEIR__FLEET_STORE_UP);
    CHECK_EQ(fleet.count, 4); /* d is forgotten, and this host is there once */
    CHECK_EQ(fleet.silent, 1);
    CHECK_EQ(fleet.differ, 1);
    CHECK(fleet.hosts[2].silent && strcmp(fleet.hosts[2].told.name, "c") == 0);
    CHECK(fleet.hosts[3].differs && strcmp(fleet.hosts[3].told.name, "e") == 0);
    /* The agent ends: all others become silent, this host stays. */
    list.written_ms -= 20000;
    put(&list);
    weir__fleet_look(&fleet, &sight);
    CHECK(!fleet.agent && fleet.count == 4 && fleet.silent == 3 && !fleet.hosts[0].silent);
    /* A file of a machine that has started anew since. */
    list.written_ms = INT64_C(1) << 50;
    put(&list);
    weir__fleet_look(&fleet, &sight);
    CHECK_EQ(fleet.count, 1);
    weir__fleet_close(&fleet);
    closed(engine, &sight);
}

TEST(texts_of_others_are_harmless_where_they_are_shown)
{
    struct weir__sight sight;
    struct weir__fleet fleet;
    weir *engine = opened(&sight);
    sight.host_name = "me";
    weir__fleet_open(&fleet, segment, true);
    weir__fleet_look(&fleet, &sight);
    struct weir__heard hosts[2] = {{fleet.hosts[0].told, 0, WEIR__FLEET_HERE}, {some("", 2), 0, WEIR__FLEET_BY_STORE}};
    snprintf(hosts[1].told.name, sizeof hosts[1].told.name, "evil\x1b[2J\x07\xc2\x9b[2J\r\n");
    snprintf(hosts[1].told.version, sizeof hosts[1].told.version, "\x1b]0;x\x07");
    struct weir__fleet_list list = {.written_ms = (int64_t)weir__coarse_ms(),
                                    .store = WEIR__FLEET_STORE_AWAY,
                                    .why = "\x1b[31mred",
                                    .count = 2,
                                    .hosts = hosts};
    put(&list);
    weir__fleet_look(&fleet, &sight);
    char *text = NULL, *json = NULL;
    size_t len = 0;
    struct weir__top top = {.sight = &sight, .fleet = &fleet};
    struct weir__top_screen screen = {.to = open_memstream(&text, &len), .width = 80, .plain = true};
    weir__top_draw(&top, &screen);
    fclose(screen.to);
    CHECK(strstr(text, "evil") != NULL && strstr(text, "AWAY") != NULL);
    CHECK(memchr(text, '\x1b', len) == NULL && memchr(text, '\x07', len) == NULL && memchr(text, '\r', len) == NULL &&
          memmem(text, len, "\xc2\x9b", 2) == NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        CHECK(strlen(line) <= 80);
    free(text);
    CHECK_EQ(weir__figures_hosts(&fleet, &json), 0);
    json_t *root = json ? json_loads(json, 0, NULL) : NULL;
    json_t *other = json_array_get(json_object_get(root, "hosts"), 1);
    CHECK(strcmp(json_string_value(json_object_get(other, "name")), hosts[1].told.name) == 0);
    CHECK(json && strchr(json, '\x1b') == NULL);
    CHECK(strcmp(json_string_value(json_object_get(json_object_get(root, "fleet"), "store")), "away") == 0);
    json_decref(root);
    free(json);
    weir__fleet_close(&fleet);
    closed(engine, &sight);
}

/* ---- The store ---- */

static struct weir__store_options store;
static struct weir__fleet_list heard;
static char why[WEIR__FLEET_WHY];
static int64_t there;

static bool with_server(void)
{
    char url[160], wrong[256];
    if (!server_begin())
        return false;
    snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s", server.socket);
    CHECK_EQ(weir__store_parse(url, &store, wrong, sizeof wrong), 0);
    server_do("FLUSHALL");
    if (!heard.hosts)
        heard.hosts = calloc(WEIR__FLEET_MAX, sizeof *heard.hosts);
    heard.count = 0;
    return heard.hosts != NULL;
}

static const struct weir__heard *of(const char *name)
{
    for (size_t i = 0; i < heard.count; i++)
        if (strcmp(heard.hosts[i].told.name, name) == 0)
            return &heard.hosts[i];
    return NULL;
}

TEST(hosts_hear_of_each_other_through_the_store)
{
    if (!with_server())
        return;
    struct weir__fleet_link *link = weir__fleet_link_new(&store, INT64_C(20000000));
    struct weir__told a = some("a", 1), b = some("b", 2);
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    CHECK_EQ(heard.count, 1);
    CHECK_EQ(weir__fleet_link_tell(link, &b, NULL, &there, why), 0);
    CHECK_EQ(there, 2);
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    CHECK_EQ(heard.count, 2);
    CHECK(of("b") && same(&of("b")->told, &b) && of("b")->ago_ms >= 0 && of("b")->ago_ms < 60000);
    /* It is one key, which does not stay for ever. */
    redisReply *reply = server_reply("PTTL weir::hosts");
    CHECK(reply->integer > 0 && reply->integer <= WEIR__FLEET_FORGET_MS);
    freeReplyObject(reply);
    /* A host that has not told for long is gone, and one that leaves at once. */
    server_do("HSET weir::hosts 0000000000000002 1000");
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    CHECK(!of("b") && of("a"));
    CHECK_EQ(there, 1);
    CHECK_EQ(weir__fleet_link_tell(link, &b, &heard, &there, why), 0);
    CHECK_EQ(heard.count, 2);
    weir__fleet_link_leave(link, b.id);
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    CHECK_EQ(heard.count, 1);
    weir__fleet_link_free(link);
}

TEST(what_others_put_into_the_store_harms_nobody)
{
    if (!with_server())
        return;
    struct weir__fleet_link *link = weir__fleet_link_new(&store, INT64_C(20000000));
    struct weir__told a = some("a", 1);
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    redisReply *now = server_reply("TIME");
    long long ms = strtoll(now->element[0]->str, NULL, 10) * 1000;
    freeReplyObject(now);
    /* Of a time, but not what a host tells; another's id; a server whose clock was set back; too much. */
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
    large[head] = '['; /* in the place of the zero byte */
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000cc %b", large, (size_t)100000));
    free(large);
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000dd %s", "99999999999999999999999 {}"));
    freeReplyObject(redisCommand(server.context, "HSET weir::hosts 00000000000000ee %s", "-5 {}"));
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    CHECK_EQ(heard.count, 1);
    CHECK(of("a") != NULL);
    /* Something else has the name. */
    server_do("DEL weir::hosts");
    server_do("SET weir::hosts 5");
    CHECK(weir__fleet_link_tell(link, &a, &heard, &there, why) != 0 && *why);
    server_do("DEL weir::hosts");
    CHECK_EQ(weir__fleet_link_tell(link, &a, &heard, &there, why), 0);
    weir__fleet_link_free(link);
}

TEST(there_are_so_many_and_no_more)
{
    if (!with_server())
        return;
    struct weir__fleet_link *link = weir__fleet_link_new(&store, INT64_C(20000000));
    for (unsigned i = 0; i < WEIR__FLEET_MAX; i++) {
        struct weir__told told = some("many", i);
        CHECK_EQ(weir__fleet_link_tell(link, &told, NULL, &there, why), 0);
    }
    CHECK_EQ(there, WEIR__FLEET_MAX);
    struct weir__told late = some("late", WEIR__FLEET_MAX), known = some("many", 5);
    CHECK_EQ(weir__fleet_link_tell(link, &late, &heard, &there, why), 0);
    CHECK(heard.count == WEIR__FLEET_MAX && !of("late"));
    CHECK_EQ(weir__fleet_link_tell(link, &known, NULL, &there, why), 0);
    CHECK_EQ(there, WEIR__FLEET_MAX);
    /* One goes, and there is room. */
    weir__fleet_link_leave(link, "0000000000000007");
    CHECK_EQ(weir__fleet_link_tell(link, &late, &heard, &there, why), 0);
    CHECK(heard.count == WEIR__FLEET_MAX && of("late"));
    weir__fleet_link_free(link);
    weir__fleet_list_free(&heard);
}

TEST_MAIN
