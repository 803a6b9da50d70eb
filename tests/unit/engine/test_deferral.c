/* The deferral in a denial: which denials are for a queue, and what is to be checked later. */
#include "../../test.h"

#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOW ((weir_time){.mono_ns = 1000 * WEIR_SECOND, .wall_ns = 1700000000 * WEIR_SECOND})

static weir *engine;
static weir_result result;
static char text[8448];

static bool test_text_is(weir_text got, const char *want)
{
    return got.len == strlen(want) && memcmp(got.data, want, got.len) == 0;
}

static void begin(const char *rules)
{
    weir_options how = {.segment = {.size = 1 << 20, .flags = WEIR_OPEN_CREATE}, .rules_text = rules};
    int error = weir_open(&how, &engine);
    CHECK_EQ(error, 0);
    if (error)
        exit(1);
}

static void check_with(const char *path, const char *user, char *room, size_t size)
{
    weir_attribute about[] = {{WEIR_ATTR_PATH, "", path}, {WEIR_ATTR_NAMED, "user_id", user}};
    weir_query query = {.attributes = about, .attribute_count = 2, .now = NOW, .text = room, .text_size = size};
    memset(&result, 0xa5, sizeof result);
    CHECK_EQ(weir_check(engine, &query, &result), 0);
}

static void async(const char *path, const char *user)
{
    check_with(path, user, text, sizeof text);
}

#define QUEUE "limit: 1, window: 1h, on_limit: queue"

TEST(deferral_has_rule_key_and_cost)
{
    begin(
        "rules:\n"
        "  - { name: a, key: 'u:${user_id}', cost: 2, limit: 3, window: 1h, on_limit: queue,\n"
        "      queue: { max: 5, max_bytes: 1MiB, max_age: 90s }, response: { message: No, body: { text: Sorry } } }\n");
    async("/", "7");
    CHECK(weir_passes(&result.decision));
    async("/", "7");
    CHECK_EQ(result.decision.verdict, WEIR_DENY);
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK(strcmp(result.deferral.rule, "a") == 0);
    CHECK(result.deferral.key.len == 3 && memcmp(result.deferral.key.data, "u:7", 3) == 0);
    CHECK_EQ(result.deferral.cost, 2);
    CHECK_EQ(result.deferral.max, 5);
    CHECK_EQ(result.deferral.max_bytes, 1 << 20);
    CHECK_EQ(result.deferral.max_age_ms, 90000);
    CHECK(result.message.len == 2 && memcmp(result.message.data, "No", 2) == 0);
    CHECK(result.body_text.len == 5 && memcmp(result.body_text.data, "Sorry", 5) == 0);
    weir_close(engine);
}

/* A concurrency limit counts each request as one, whatever its cost; its rule's other limits are checked with the full
 * cost later. */
TEST(deferral_has_the_full_cost)
{
    weir_permits permits;
    weir_attribute about[] = {{WEIR_ATTR_PATH, "", "/"}};
    weir_query query = {.attributes = about, .attribute_count = 1, .now = NOW, .text = text, .text_size = sizeof text};
    query.permits = &permits;
    query.has_cost = true;
    query.cost = 5;
    begin("rules:\n"
          "  - name: a\n"
          "    on_limit: queue\n"
          "    limits: [ { name: few, limit: 1, algorithm: concurrency }, { limit: 100, window: 1h } ]\n");
    CHECK_EQ(weir_check(engine, &query, &result), 0);
    CHECK(weir_passes(&result.decision));
    CHECK_EQ(weir_check(engine, &query, &result), 0);
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK_EQ(result.deferral.cost, 5);
    weir_close(engine);
}

TEST(deferral_has_the_tier)
{
    weir_outcome outcome;
    begin("rules:\n"
          "  - { name: a, limit: { gold: 3, default: 1 }, tier: user_id, window: 1h, on_limit: queue }\n");
    for (int i = 0; i < 4; i++)
        async("/", "gold");
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK(result.deferral.tier.len == 4 && memcmp(result.deferral.tier.data, "gold", 4) == 0);
    CHECK(result.deferral.key.len == 1);
    /* A third of an hour later one unit is available for gold; the others have to wait longer. */
    weir_time later = {NOW.mono_ns + 1201 * WEIR_SECOND, NOW.wall_ns + 1201 * WEIR_SECOND};
    weir_taken what = {.rule = "a", .key = "*", .key_len = 1};
    CHECK_EQ(weir_key_take(engine, &what, 1, later, NULL, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_DENY);
    what.tier = (weir_text){"gold", 4};
    CHECK_EQ(weir_key_take(engine, &what, 1, later, NULL, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_ALLOW);
    async("/", "other");
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK_EQ(result.deferral.tier.len, 0);
    weir_close(engine);
}

static weir_taken later_of(const weir_result *of)
{
    return (weir_taken){.rule = of->deferral.rule,
                        .key = of->deferral.key.data,
                        .key_len = of->deferral.key.len,
                        .tier = of->deferral.tier,
                        .others = of->deferral.others};
}

/* Shadow rules, unlimited rules and other limits of the same rule are not among them. */
TEST(deferral_has_all_other_rules)
{
    weir_outcome outcome;
    weir_time later = {NOW.mono_ns + 3601 * WEIR_SECOND, NOW.wall_ns + 3601 * WEIR_SECOND};
    begin("rules:\n"
          "  - { name: a, limits: [{ limit: 1, window: 1h }, { limit: 100, window: 2h }], on_limit: queue }\n"
          "  - { name: day, key: 'd:${user_id}', limit: { gold: 2, default: 9 }, tier: user_id, window: 1d, cost: 1 }\n"
          "  - { name: day, limit: 1, window: 1d, shadow: true }\n"
          "  - { name: free, limit: unlimited }\n");
    async("/", "gold");
    async("/", "gold");
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK(test_text_is(result.deferral.others, "646179.643a676f6c64.676f6c64.1"));
    weir_taken what = later_of(&result);
    CHECK_EQ(weir_key_take(engine, &what, 1, later, NULL, &outcome), 0);
    CHECK(weir_passes(&outcome.decision));
    /* The quota is used up: an hour later nothing passes, and nothing is taken from the rule that denied. */
    later.mono_ns += 3600 * WEIR_SECOND;
    CHECK_EQ(weir_key_take(engine, &what, 1, later, NULL, &outcome), 0);
    CHECK(!weir_passes(&outcome.decision) && strcmp(outcome.rule, "day") == 0);
    what.others = (weir_text){NULL, 0};
    CHECK_EQ(weir_key_take(engine, &what, 1, later, NULL, &outcome), 0);
    CHECK(weir_passes(&outcome.decision));
    weir_close(engine);
}

/* Matches that are not charged do not hide others of their rule, whichever comes first. */
TEST(a_skipped_limit_hides_no_other)
{
#define DAY              "  - { name: day, key: 'd:${user_id}', limit: 9, window: 1d }\n"
#define SHADOW           "  - { name: day, limit: 1, window: 1d, shadow: true }\n"
#define LIMITS(one, two) "  - { name: day, key: 'd:${user_id}', tier: user_id, limits: [" one ", " two "] }\n"
#define GOLD             "{ limit: { gold: unlimited, default: 5 }, window: 1m }"
#define ALL              "{ limit: 9, window: 1d }"
    static const char *const others[] = {DAY SHADOW, SHADOW DAY, LIMITS(ALL, GOLD), LIMITS(GOLD, ALL)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char rules[1024];
        for (int last = 0; last < 2; last++) {
            static const char own[] = "  - { name: a, " QUEUE " }\n";
            snprintf(rules, sizeof rules, "rules:\n%s%s%s", last ? "" : own, others[i], last ? own : "");
            begin(rules);
            async("/", "gold");
            async("/", "gold");
            CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
            bool right = test_text_is(result.deferral.others, "646179.643a676f6c64..1");
            CHECK(right);
            if (!right)
                printf("  of: %s  others: %.*s\n", rules, (int)result.deferral.others.len, result.deferral.others.data);
            weir_close(engine);
        }
    }
}

TEST(request_with_too_many_other_rules_is_not_deferred)
{
    for (int count = WEIR_OTHERS_MAX; count <= WEIR_OTHERS_MAX + 1; count++) {
        char rules[4096] = "rules:\n  - { name: a, " QUEUE " }\n";
        for (int i = 0; i < count; i++) {
            size_t len = strlen(rules);
            snprintf(rules + len, sizeof rules - len, "  - { name: r%d, key: '${user_id}', limit: 9, window: 1h }\n",
                     i);
        }
        begin(rules);
        async("/", "7");
        async("/", "7");
        CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
        CHECK_EQ(result.deferral.key.len != 0, count == WEIR_OTHERS_MAX);
        check_with("/", "7", text, 64);
        CHECK_EQ(result.deferral.key.len, 0);
        weir_close(engine);
    }
}

TEST(key_without_room_is_omitted)
{
    char small[4];
    begin("rules:\n  - { name: a, key: 'u:${user_id}', " QUEUE " }\n");
    async("/", "1234");
    check_with("/", "1234", small, sizeof small);
    CHECK_EQ(result.on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK_EQ(result.deferral.key.len, 0);
    check_with("/", "1234", NULL, 0);
    CHECK_EQ(result.deferral.key.len, 0);
    weir_close(engine);
}

TEST(deferral_has_the_complete_key)
{
    char user[200 + 1], longer[600 + 1];
    begin("rules:\n  - { name: a, key: '${user_id}', " QUEUE " }\n");
    memset(user, 'x', sizeof user);
    memset(longer, 'y', sizeof longer);
    user[200] = longer[600] = 0;
    async("/", user);
    async("/", user);
    CHECK(result.decided_by.key_cut);
    CHECK(result.deferral.key.len == 200 && memcmp(result.deferral.key.data, user, 200) == 0);
    async("/", longer);
    async("/", longer);
    CHECK_EQ(result.deferral.key.len, 256); /* as it is counted */
    weir_close(engine);
}

TEST(rule_with_several_limits_has_its_own_name)
{
    begin("rules:\n  - { name: a, limits: [{ limit: 1, window: 1m }, { limit: 9, window: 1h }], on_limit: queue }\n");
    async("/", "1");
    async("/", "1");
    CHECK(strcmp(result.decided_by.rule, "a/1m") == 0 && strcmp(result.deferral.rule, "a") == 0);
    CHECK(result.deferral.key.len == 1 && result.deferral.key.data[0] == '*');
    weir_close(engine);
}

/* Each path has its own rules; the second request is denied, and may be deferred or not. */
static const struct {
    const char *rules;
    bool waits;
} cases[] = {
    {"rules:\n  - { name: q, " QUEUE " }\n  - { name: r, limit: 9, window: 1h }\n", true},
    {"rules:\n  - { name: q, " QUEUE " }\n  - { name: p, limit: 1, window: 2h, on_limit: queue }\n", true},
    {"rules:\n  - { name: q, report_priority: 5, " QUEUE " }\n  - { name: r, limit: 1, window: 1h }\n", false},
    {"rules:\n  - { name: q, " QUEUE " }\n  - { name: r, report_priority: 5, limit: 1, window: 1h }\n", false},
    {"rules:\n  - { name: q, " QUEUE " }\n  - { name: s, limit: 1, window: 1h, shadow: true }\n", true},
    {"rules:\n  - { name: q, limit: 1, window: 1h }\n  - { name: s, shadow: true, " QUEUE " }\n", false},
    {"rules:\n  - { name: q, cost: 2, " QUEUE " }\n", false}, /* can never be allowed */
    {"rules:\n  - { name: q, limit: 0, on_limit: queue }\n", false},
    {"rules:\n  - { name: q, key: '${user_id}', block: { keys: '1' }, " QUEUE " }\n", false},
    {"rules:\n  - { name: q, key: '${other}', on_missing_key: deny, " QUEUE " }\n", false},
};

TEST(which_denied_requests_are_for_a_queue)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(cases[i].rules);
        async("/", "1");
        async("/", "1");
        CHECK(!weir_passes(&result.decision));
        bool right = (result.on_limit == WEIR_ON_LIMIT_QUEUE) == cases[i].waits;
        CHECK(right);
        if (!right)
            printf("  of: %s", cases[i].rules);
        weir_close(engine);
    }
}

TEST_MAIN
