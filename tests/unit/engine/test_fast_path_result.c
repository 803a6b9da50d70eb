/* The fast-path result in edge cases: lengths, numbers, ties, and scaled limits. */
#include "overloaded.h"

#include "engine/evaluation.h"
#include "engine/fast_result.h"
#include "rules/attribute.h"

#include <unistd.h>

static struct {
    weir_outcome outcomes[8];
    weir_result result;
    struct weir__second reset;
    char text[WEIR__FAST_RESULT_BYTES];
} got;

static weir_query query_of(weir_text path, double seconds)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    return (weir_query){.lookup = test_no_attributes,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = path,
                        .now = test_seconds(seconds),
                        .outcomes = got.outcomes,
                        .outcomes_max = 8};
}

static struct weir__fast_result check_fast(weir *engine, const weir_query *query)
{
    struct weir__fast_result fast = {.reset = &got.reset, .text = got.text, .headers = true};
    CHECK_EQ(weir__check_fast(engine, query, &got.result, &fast), 0);
    return fast;
}

static struct weir__fast_result check_root(weir *engine, double seconds)
{
    weir_query query = query_of((weir_text){"/", 1}, seconds);
    return check_fast(engine, &query);
}

/* Whether a header has this value. */
static bool header_is(const struct weir__fast_result *fast, enum weir_header header, const char *value)
{
    const char *at = fast->text + fast->rule_len + fast->key_len;
    for (unsigned i = 0; i < header; i++)
        at += fast->lens[i];
    return fast->lens[header] == strlen(value) && memcmp(at, value, strlen(value)) == 0;
}

/* Before any other number was formatted: the counter is empty, so the reset is in 0 seconds. */
TEST(first_reset_is_zero_seconds)
{
    weir *engine = test_engine("rules:\n  - { name: a, key: k, limit: 9, window: 1m, response: { reset: delta } }\n");
    weir_query query = query_of((weir_text){"/", 1}, 1);
    query.has_cost = true;
    got.reset = (struct weir__second){0};
    struct weir__fast_result fast = check_fast(engine, &query);
    CHECK(fast.filled);
    CHECK(header_is(&fast, WEIR_HEADER_LIMIT, "9"));
    CHECK(header_is(&fast, WEIR_HEADER_REMAINING, "9"));
    CHECK(header_is(&fast, WEIR_HEADER_RESET, "0"));
    weir_close(engine);
}

/* A key is shown completely or the slow path is taken, for the first request and for later ones. */
TEST(longest_key_on_the_fast_path)
{
    for (int len = WEIR_KEY_SHOWN_MAX - 1; len <= WEIR_KEY_SHOWN_MAX + 2; len++) {
        char rules[512], key[WEIR_KEY_SHOWN_MAX + 8];
        memset(key, 'k', sizeof key);
        snprintf(rules, sizeof rules, "rules:\n  - { name: a, key: '%.*s', limit: 9, window: 1m }\n", len, key);
        weir *engine = test_engine(rules);
        for (int i = 0; i < 2; i++) {
            struct weir__fast_result fast = check_root(engine, 1);
            CHECK_EQ(fast.filled, len <= WEIR_KEY_SHOWN_MAX);
            CHECK_EQ(fast.filled ? fast.remaining : got.result.decision.remaining, 8 - i);
            if (fast.filled)
                CHECK(fast.key_len == len && memcmp(got.text + fast.rule_len, key, (size_t)len) == 0);
            else
                CHECK_EQ(got.result.decided_by.key_len, WEIR_KEY_SHOWN_MAX);
        }
        weir_close(engine);
    }
}

/* Rules "r0" and so on, all alike. */
static weir *engine_of(int count)
{
    char rules[2048];
    int len = snprintf(rules, sizeof rules, "rules:\n");
    for (int i = 0; i < count; i++)
        len += snprintf(rules + len, sizeof rules - (size_t)len,
                        "  - { name: r%d, key: 'k:%d:${client_ip}', limit: 9, window: 1m }\n", i, i);
    return test_engine(rules);
}

/* As many as the fast path supports, and one more. All are equally tight: the first one is reported. */
TEST(most_rules_on_the_fast_path)
{
    for (int count = 1; count <= WEIR__FAST_MAX + 1; count++) {
        weir *engine = engine_of(count);
        for (int i = 0; i < 2; i++) {
            struct weir__fast_result fast = check_root(engine, 1);
            CHECK_EQ(fast.filled, count <= WEIR__FAST_MAX);
            if (fast.filled)
                CHECK(fast.rule_len == 2 && memcmp(got.text, "r0", 2) == 0);
            else
                CHECK(strcmp(got.result.decided_by.rule, "r0") == 0);
            CHECK_EQ(fast.filled ? fast.remaining : got.result.decision.remaining, 8 - i);
        }
        weir_close(engine);
    }
}

/* Only a prefix of a long path is matched: the rest hides it from no rule, on either path. */
TEST(path_longer_than_the_matched_prefix)
{
    static char path[WEIR__PATH_MAX + 2], rules[WEIR__PATH_MAX + 256];
    memset(path, 'p', sizeof path);
    path[0] = '/';
    snprintf(rules, sizeof rules,
             "rules:\n  - { name: all, match: { path: '/*' }, key: k, limit: 99, window: 1m }\n"
             "  - { name: long, match: { path: '%.*s' }, key: k, limit: 9, window: 1m }\n",
             WEIR__PATH_MAX, path);
    weir *engine = test_engine(rules);
    for (int i = 0; i < 4; i++) {
        weir_query query = query_of((weir_text){path, WEIR__PATH_MAX + (size_t)i / 2}, 1);
        struct weir__fast_result fast = check_fast(engine, &query);
        CHECK(fast.filled);
        CHECK(fast.rule_len == 4 && memcmp(got.text, "long", 4) == 0);
        CHECK_EQ(fast.remaining, 8 - i);
    }
    weir_close(engine);
}

/* Under load the limit is scaled, and so are the headers. */
TEST(scaled_limit_on_the_fast_path)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, key: k, limit: 10, window: 10m, "
                                     "adaptive: { min: 20%, max: 100% } }\n");
    struct weir__fast_result fast = check_root(engine, 1);
    CHECK(!fast.filled || header_is(&fast, WEIR_HEADER_LIMIT, "10"));
    CHECK_EQ(fast.filled ? fast.limit : got.result.decision.limit, 10);
    load_is(engine, 1, 0, 0);
    fast = check_root(engine, 1);
    CHECK(!fast.filled || header_is(&fast, WEIR_HEADER_LIMIT, "2"));
    CHECK_EQ(fast.filled ? fast.limit : got.result.decision.limit, 2);
    fast = check_root(engine, 1);
    CHECK(!fast.filled);
    CHECK_EQ(got.result.decision.verdict, WEIR_DENY);
    weir_close(engine);
}

/* A strict rule is decided by the store, although there is an entry from a time when the store was unavailable. */
TEST(strict_rule_is_not_on_the_fast_path)
{
    weir *engine = strict_engine("rules:\n  - { name: a, key: k, limit: 9, window: 10m, consistency: strict, "
                                 "on_store_failure: local }\n");
    for (uint64_t i = 1; i <= 3; i++) {
        struct weir__fast_result fast = check_root(engine, 1);
        CHECK(!fast.filled);
        CHECK_EQ(got.result.decision.remaining, 9 - (int64_t)i);
        CHECK_EQ(stats_of(engine, "a").failures, i);
    }
    weir_close(engine);
}

/* A rule under which requests cost nothing unless they specify a cost. */
TEST(request_without_cost_leaves_no_entry)
{
    weir *engine = test_engine("rules:\n  - { name: a, key: k, limit: 10, window: 1s, cost: 0 }\n");
    weir_query query = query_of((weir_text){"/", 1}, 1);
    query.has_cost = true;
    query.cost = 2;
    struct weir__fast_result fast = check_fast(engine, &query);
    CHECK_EQ(fast.remaining, 8);
    fast = check_root(engine, 100); /* all was refilled */
    CHECK_EQ(fast.remaining, 10);
    const struct weir__table *table = &engine->segment->table;
    int64_t now_us = test_seconds(100).mono_ns / 1000;
    for (uint64_t i = 0; i < table->buckets * WEIR__BUCKET_SLOTS; i++)
        CHECK(weir__cell_life(table->bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS], now_us, now_us) <= 0);
    weir_close(engine);
}

static weir *engine_at(const char *path, const char *on_missing)
{
    char rules[256];
    weir *engine = NULL;
    snprintf(rules, sizeof rules, "rules:\n  - { name: a, key: '${user_id}', limit: 9, window: 1m%s }\n", on_missing);
    weir_options how = {.segment = {.path = path, .size = 1 << 20, .flags = WEIR_OPEN_CREATE}, .rules_text = rules};
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

/* Requests without a user shared a counter, before the rule was changed. It still exists. */
TEST(missing_key_is_no_longer_shared_after_a_change)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/weir-told-%ld", (long)getpid());
    weir *engine = engine_at(path, ", on_missing_key: share");
    CHECK_EQ(check_root(engine, 1).remaining, 8);
    CHECK_EQ(check_root(engine, 1).remaining, 7);
    weir_close(engine);
    engine = engine_at(path, ", on_missing_key: deny");
    unlink(path);
    struct weir__fast_result fast = check_root(engine, 1);
    CHECK(!fast.filled);
    CHECK_EQ(got.result.decided_by.reason, WEIR_BY_MISSING_KEY);
    weir_close(engine);
}

TEST_MAIN
