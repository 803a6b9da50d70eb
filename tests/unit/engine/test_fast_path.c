/* Results of the fast path are those of weir_check: two engines with the same requests. */
#include "../../engine.h"
#include "../../private_dir.h"

#include "engine/fast_result.h"
#include "engine/engine.h"

#include <unistd.h>

static const char *const RULES[] = {
    /* Typical rules. */
    "rules:\n  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}', limit: 20, window: 1s }\n",
    /* Names that need quoting, other numbers, other headers. */
    "rules:\n"
    "  - { name: 'a b; c=d ü', match: { path: '/api/*' }, key: '${client_ip}', limit: 3000000000, window: 400d }\n"
    "  - { name: delta, match: { path: '/x' }, key: '${client_ip}', limit: 7, window: 1m, burst: 12, "
    "response: { reset: delta } }\n"
    "  - { name: none, match: { path: '/api', normalize: off }, key: '${client_ip}', limit: 7, window: 1m, response: { "
    "headers: [] } "
    "}\n"
    "  - { name: draft, match: { path: '/' }, key: '${client_ip}', limit: 9, window: 90s, cost: 2, "
    "response: { headers: [draft] } }\n"
    "  - { name: old, match: { path: '/y/*' }, limit: 9, window: 90s, response: { headers: [x-ratelimit] } }\n",
    /* Every algorithm. */
    "rules:\n"
    "  - { name: fixed, match: { path: '/api/*' }, key: '${client_ip}', limit: 9, window: 2s, algorithm: fixed_window "
    "}\n"
    "  - { name: sliding, match: { path: '/x' }, key: '${client_ip}', limit: 9, window: 2s, "
    "algorithm: sliding_window_counter }\n"
    "  - { name: log, match: { path: '/api', normalize: off }, key: '${client_ip}', limit: 9, window: 2s, "
    "algorithm: sliding_window_log }\n"
    "  - { name: leaky, match: { path: '/' }, key: '${client_ip}', limit: 9, window: 2s, algorithm: leaky_bucket, "
    "on_limit: delay }\n"
    "  - { name: flight, match: { path: '/y/*' }, key: '${client_ip}', limit: 9, algorithm: concurrency }\n",
    /* Several, shadows, conditions. */
    "rules:\n"
    "  - { name: all, match: { path: '/*' }, key: '${client_ip}', limit: 30, window: 1s }\n"
    "  - { name: some, match: { path: '/api/*', method: POST }, key: 'k:${client_ip}', limit: 9, window: 1s }\n"
    "  - { name: tried, match: { path: '/x' }, key: '${client_ip}', limit: 2, window: 1s, shadow: true }\n",
    "rules:\n"
    "  - { name: get, match: { path: '/api/*', method: GET }, key: '${client_ip}', limit: 5, window: 1s }\n"
    "  - { name: host, match: { path: '/x', host: h.example }, key: '${client_ip}', limit: 5, window: 1s }\n",
    /* Lists. */
    "rules:\n"
    "  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}', limit: 5, window: 1s, "
    "allow: { keys: ['ip:10.0.0.1'] }, block: { networks: [10.0.0.2/32] } }\n"
    "  - { name: y, match: { path: '/y/*' }, key: 'ip:${client_ip}', limit: 5, window: 1s }\n",
    "block: { networks: [10.0.0.3/32] }\n"
    "rules:\n  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}', limit: 5, window: 1s }\n",
    /* How the client is identified. */
    "identity: { client_ip: { trusted_proxies: [10.0.0.0/30] } }\n"
    "rules:\n  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}', limit: 5, window: 1s }\n",
    "identity: { client_ip: { ipv4_prefix: 31 } }\n"
    "rules:\n  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}', limit: 5, window: 1s }\n",
    "rules:\n  - { name: api, match: { path: '/api/*' }, key: 'ip:${client_ip}:${path}', limit: 5, window: 1s }\n"
    "  - { name: banned, match: { path: '/x' }, key: '${client_ip}', limit: 0, window: 1s }\n"
    "  - { name: tier, match: { path: '/y/*' }, key: '${client_ip}', limit: { a: 3, default: 4 }, "
    "window: 1s }\n",
};

static bool lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    (void)context;
    (void)name;
    if (kind != WEIR_ATTR_METHOD && kind != WEIR_ATTR_HOST)
        return false;
    *value = kind == WEIR_ATTR_METHOD ? (weir_text){"GET", 3} : (weir_text){"h.example", 9};
    return true;
}

/* Compares one of several texts that are stored one after the other. */
static bool is_text(const char *at, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(at, text, len) == 0;
}

/* Compares a fast-path result with a result and its one outcome. */
static void compare(const struct weir__fast_result *fast, const weir_result *result, const weir_outcome *outcomes)
{
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT];
    size_t len = weir_result_header_values(result, outcomes, values, lens);
    CHECK_EQ(result->decision.verdict, WEIR_ALLOW);
    CHECK_EQ(result->matched, 1);
    CHECK_EQ(result->decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(fast->limit, result->decision.limit);
    CHECK_EQ(fast->remaining, result->decision.remaining);
    CHECK(is_text(fast->text, fast->rule_len, result->decided_by.rule));
    CHECK(is_text(fast->text + fast->rule_len, fast->key_len, result->decided_by.key));
    if (!fast->headers) {
        CHECK_EQ(fast->values_len, 0);
        return;
    }
    CHECK_EQ(fast->values_len, len);
    CHECK(memcmp(fast->lens, lens, sizeof lens) == 0);
    CHECK(memcmp(fast->text + fast->rule_len + fast->key_len, values, len) == 0);
}

/* Statistics, which must not depend on the path. */
struct sums {
    uint64_t sum[64][6];
    size_t count;
};

static int add_sums(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    struct sums *sums = context;
    (void)info;
    uint64_t *to = sums->sum[sums->count++];
    to[0] = stats->allowed;
    to[1] = stats->delayed;
    to[2] = stats->denied;
    to[3] = stats->listed;
    to[4] = stats->missing_key;
    to[5] = stats->failures;
    return 0;
}

static void compare_sums(weir *a, weir *b)
{
    struct sums left = {.count = 0}, right = {.count = 0};
    weir_stats of_a, of_b;
    CHECK_EQ(weir_rules_each(a, add_sums, &left), 0);
    CHECK_EQ(weir_rules_each(b, add_sums, &right), 0);
    CHECK_EQ(left.count, right.count);
    CHECK(memcmp(&left, &right, sizeof left) == 0);
    CHECK_EQ(weir_stats_read(a->segment, &of_a), 0);
    CHECK_EQ(weir_stats_read(b->segment, &of_b), 0);
    CHECK_EQ(of_a.allowed, of_b.allowed);
    CHECK_EQ(of_a.denied, of_b.denied);
}

/* Sends both the same requests. Returns how many took the fast path. */
static int64_t contest(const char *rules, int64_t times, uint64_t *seed)
{
    static const char *const paths[] = {"/api/items", "/api/", "/api", "/x", "/", "/y/1/2", "*", "/apix", "/api/x/y"};
    weir *engine = test_engine(rules), *model = test_engine(rules);
    struct weir__second reset = {0};
    int64_t fast_count = 0;
    double now = 0;
    for (int64_t i = 0; i < times; i++) {
        static char text[WEIR__FAST_RESULT_BYTES];
        uint8_t peer[16] = {10, 0, 0, (uint8_t)(test_random(seed) % 5), 7};
        const char *path = paths[test_random(seed) % (sizeof paths / sizeof *paths)];
        weir_outcome outcomes[8];
        weir_permits permits, its;
        weir_result result, expected;
        struct weir__fast_result fast = {.reset = &reset, .text = text, .headers = test_random(seed) % 8 != 0};
        now += (double)(test_random(seed) % 100000) / 1e6;
        weir_query query = {.lookup = lookup,
                            .peer = peer,
                            .peer_len = test_random(seed) % 8 ? 4 : 16,
                            .path = {path, strlen(path)},
                            .now = test_seconds(now),
                            .permits = &its,
                            .outcomes = outcomes,
                            .outcomes_max = 8};
        query.has_cost = test_random(seed) % 16 == 0;
        query.cost = (int64_t)(test_random(seed) % 4) - 1;
        query.dry_run = test_random(seed) % 32 == 0;
        CHECK_EQ(weir_check(model, &query, &expected), 0);
        query.permits = &permits;
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
        if (fast.filled)
            compare(&fast, &expected, outcomes);
        else
            CHECK(memcmp(&result.decision, &expected.decision, sizeof result.decision) == 0 &&
                  result.decided_by.reason == expected.decided_by.reason &&
                  strcmp(result.decided_by.rule, expected.decided_by.rule) == 0 &&
                  strcmp(result.decided_by.key, expected.decided_by.key) == 0 && result.status == expected.status);
        fast_count += fast.filled;
        if (test_random(seed) % 2) { /* some permits are released */
            CHECK(weir_permits_release(model, &its) >= 0);
            if (!fast.filled)
                CHECK(weir_permits_release(engine, &permits) >= 0);
        }
    }
    compare_sums(engine, model);
    weir_close(engine);
    weir_close(model);
    return fast_count;
}

TEST(fast_path_agrees_with_check)
{
    uint64_t seed = 5;
    int64_t times = test_scaled(20000, 1000);
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        int64_t fast_count = contest(RULES[i], times, &seed);
        CHECK((fast_count > 0) == (i != 6)); /* with lists for all rules, no request takes the fast path */
        if (i == 0)
            CHECK(fast_count > times / 5);
    }
}

/* Blocked by an operator, or in a lost segment: not on the fast path. */
TEST(blocked_key_or_lost_segment_takes_the_slow_path)
{
    weir *engine = test_engine(RULES[0]);
    static char text[WEIR__FAST_RESULT_BYTES];
    const uint8_t peer[4] = {10, 0, 0, 1};
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .text = text, .headers = true};
    weir_query query = {.lookup = lookup, .peer = peer, .peer_len = 4, .path = {"/api/a", 6}, .now = test_seconds(1)};
    weir_result result;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
        CHECK(fast.filled);
        CHECK_EQ(fast.remaining, 19 - i);
    }
    CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
    CHECK(!fast.filled);
    CHECK_EQ(result.decision.verdict, WEIR_DENY);
    query.now = test_seconds(2);
    query.peer = NULL;
    CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
    CHECK(!fast.filled);
    CHECK_EQ(result.decided_by.reason, WEIR_BY_MISSING_KEY);
    weir_close(engine);
}

/* In a read-only segment nothing is taken, and durations of checks are not written. */
TEST(read_only_segment_is_not_changed)
{
    static char text[WEIR__FAST_RESULT_BYTES];
    char path[64];
    const uint8_t peer[4] = {10, 0, 0, 1};
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .text = text, .headers = true};
    weir_query query = {.lookup = lookup, .peer = peer, .peer_len = 4, .path = {"/api/a", 6}};
    weir_result result;
    weir *engine = NULL;
    private_path(path, sizeof path, "segment");
    weir_options how = {.segment = {.path = path, .size = 1 << 20, .flags = WEIR_OPEN_CREATE}, .rules_text = RULES[0]};
    CHECK_EQ(weir_open(&how, &engine), 0);
    weir_close(engine);
    how.segment.flags = WEIR_OPEN_READONLY;
    CHECK_EQ(weir_open(&how, &engine), 0);
    unlink(path);
    for (int i = 0; i < 5000; i++) { /* by the real clock: some checks are timed */
        query.dry_run = i % 2;
        fast.filled = true;
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), query.dry_run ? 0 : WEIR_EREADONLY);
        CHECK(query.dry_run || !fast.filled);
    }
    weir_close(engine);
}

static bool lookup_zero(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    (void)context;
    (void)name;
    *value = (weir_text){"q=a%00b", 7};
    return kind == WEIR_ATTR_QUERY;
}

/* A client may send a zero byte: the displayed key does not end there, on either path. */
TEST(key_with_a_zero_byte)
{
    weir *engine = test_engine("rules:\n  - { name: q, key: 'q:${query:q}', limit: 9, window: 1s }\n");
    static char text[WEIR__FAST_RESULT_BYTES];
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .text = text, .headers = true};
    weir_query query = {.lookup = lookup_zero, .path = {"/", 1}, .now = test_seconds(1)};
    weir_result result;
    CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
    CHECK(fast.filled);
    CHECK_EQ(weir_check(engine, &query, &result), 0);
    CHECK(result.decided_by.key_len == 5 && memcmp(result.decided_by.key, "q:a\0b", 6) == 0 &&
          !result.decided_by.key_cut);
    CHECK(fast.key_len == 5 && memcmp(text + fast.rule_len, "q:a\0b", 5) == 0);
    CHECK(is_text(text + fast.rule_len + fast.key_len, fast.lens[WEIR_HEADER_LIMIT], "9"));
    weir_close(engine);
}

static int add_keys(void *context, const weir_rule_info *info, const weir_hot_stats *stats)
{
    (void)info;
    *(double *)context += (double)stats->keys;
    return 0;
}

/* Hot keys are sampled on this path, too. */
TEST(hot_keys_are_sampled_on_the_fast_path)
{
    weir_options how = {.segment = {.size = 8 << 20}, .rules_text = RULES[1], .hot = ""};
    weir *engine = NULL;
    static char text[WEIR__FAST_RESULT_BYTES];
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .text = text};
    double keys = 0;
    CHECK_EQ(weir_open(&how, &engine), 0);
    for (int i = 0; i < 4096; i++) {
        const uint8_t peer[4] = {10, 0, 0, (uint8_t)(i % 8)};
        weir_query query = {.lookup = lookup, .peer = peer, .peer_len = 4, .path = {"/api/a", 6}};
        weir_result result;
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
        CHECK(fast.filled);
    }
    CHECK_EQ(weir_hot_each(engine, add_keys, &keys), 0);
    CHECK(keys > 4 && keys < 16); /* about 8: two keys of one part are taken for one, see
                                     table/hot_keys_are_sampled_on_the_fast_path.h */
    weir_close(engine);
}

TEST_MAIN
