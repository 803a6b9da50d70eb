/* warn_at: one warning per key and window, of every algorithm, and by any number of threads. */
#include "../../engine.h"

#include "engine/denial_recorder.h"
#include "engine/fast_result.h"

#include <pthread.h>
#include <sched.h>

#define RULE(fields) "rules:\n  - { name: api, key: 'user:${user_id}', " fields " }\n"

static weir *opened(const char *rules, int flags)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = rules,
                        .diagnose = test_print_diagnostic,
                        .denial_ring = "",
                        .flags = flags};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

/* The number of rules that a request of this cost warns of; 0: the rules' cost. */
static int warned_by(weir *engine, const char *line, double s, int64_t cost)
{
    struct test_request r;
    weir_result result;
    weir_outcome outcomes[8];
    int count = 0;
    test_request(&r, line);
    r.query.now = test_seconds(s);
    r.query.outcomes = outcomes;
    r.query.outcomes_max = 8;
    r.query.has_cost = cost != 0;
    r.query.cost = cost;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    for (size_t i = 0; i < result.outcomes; i++)
        count += (outcomes[i].decision.flags & WEIR_WARNED) != 0;
    return count;
}

static uint64_t warnings_of(weir *engine, const char *rule, bool shadow)
{
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(engine, rule, shadow, &stats), 0);
    return stats.warnings;
}

/* The ordinal numbers, from 1 on, of the requests that warn, of `count` at the same time, as digits. */
static const char *warning_requests(weir *engine, const char *line, double s, int count)
{
    static char digits[64];
    size_t len = 0;
    for (int i = 1; i <= count; i++)
        if (warned_by(engine, line, s, 0) && len < sizeof digits - 8)
            len += (size_t)snprintf(digits + len, sizeof digits - len, "%s%d", len ? "," : "", i);
    digits[len] = 0;
    return digits;
}

TEST(the_request_that_reaches_the_threshold_warns)
{
    static const struct {
        const char *rule, *warns; /* of 12 requests at once */
    } limits[] = {
        {RULE("limit: 10, window: 1m, algorithm: fixed_window, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, algorithm: fixed_window, align: first_request, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1d, algorithm: fixed_window, timezone: UTC, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, warn_at: 80%"), "8"},
        {RULE("limit: 5, window: 1m, burst: 10, warn_at: 75%"), "8"}, /* 7.5, rounded up */
        {RULE("limit: 10, window: 1m, refill: interval, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, algorithm: leaky_bucket, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, algorithm: sliding_window_log, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, algorithm: sliding_window_counter, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, algorithm: sliding_window_counter, buckets: 6, warn_at: 80%"), "8"},
        {RULE("limit: 10, algorithm: concurrency, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, soft: 20%, warn_at: 80%"), "8"},
        {RULE("limit: 10, window: 1m, cost: 3, warn_at: 50%"), "2"},
        {RULE("limit: 10, window: 1m, cost: 3, warn_at: 95%"), ""}, /* 9 pass, and the rest is denied */
        {RULE("limit: 10, window: 1m, warn_at: 1%"), "1"},
        {RULE("limit: 1, window: 1m, warn_at: 80%"), "1"},
        {RULE("limit: 10, window: 1m, warn_at: 80%, shadow: true"), "8"},
        {RULE("limit: 10, window: 1m"), ""},
        {RULE("limits: [{ limit: 10, window: 1m }, { limit: 5, window: 1s }], warn_at: 80%"), "4"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        weir *engine = opened(limits[i].rule, 0);
        const char *warns = warning_requests(engine, "GET / user_id=1", 0, 12);
        if (strcmp(warns, limits[i].warns) != 0)
            printf("  %s: %s\n", limits[i].rule, warns);
        CHECK(strcmp(warns, limits[i].warns) == 0);
        CHECK(strcmp(warning_requests(engine, "GET / user_id=2", 0, 12), limits[i].warns) == 0);
        weir_close(engine);
    }
}

TEST(each_fixed_window_warns_once)
{
    static const char *const rules[] = {
        RULE("limit: 10, window: 1m, algorithm: fixed_window, warn_at: 80%"),
        RULE("limit: 10, window: 1m, algorithm: fixed_window, align: first_request, warn_at: 80%")};
    for (size_t i = 0; i < 2; i++) {
        weir *engine = opened(rules[i], 0);
        for (int window = 0; window < 3; window++) {
            double start = window * 60;
            CHECK(strcmp(warning_requests(engine, "GET / user_id=1", start, 7), "") == 0);
            /* A refund below the threshold, and the request that reaches it again. */
            CHECK_EQ(warned_by(engine, "GET / user_id=1", start + 50, 0), 1);
            CHECK_EQ(warned_by(engine, "GET / user_id=1", start + 50, -3), 0);
            CHECK(strcmp(warning_requests(engine, "GET / user_id=1", start + 59.999999, 9), "") == 0);
        }
        CHECK_EQ(warnings_of(engine, "api", false), 3);
        weir_close(engine);
    }
}

TEST(a_bucket_at_its_threshold_warns_once_a_window)
{
    weir *engine = opened(RULE("limit: 60, window: 1m, warn_at: 80%"), 0);
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 0, 50), 1);
    int warnings = 0;
    for (int second = 1; second < 600; second++) /* a unit returns, and is taken again */
        warnings += warned_by(engine, "GET / user_id=1", second, 0);
    CHECK_EQ(warnings, 9);
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 1000, 0), 0); /* it has recovered */
    CHECK_EQ(warnings_of(engine, "api", false), 10);
    weir_close(engine);
}

TEST(a_denied_request_does_not_warn)
{
    weir *engine = opened("rules:\n"
                          "  - { name: a, key: 'u:${user_id}', limit: 10, window: 1h, warn_at: 80% }\n"
                          "  - { name: b, key: 'u:${user_id}', limit: 7, window: 1h }\n"
                          "  - { name: b, key: 'u:${user_id}', limit: 9, window: 1h, warn_at: 80%, shadow: true }\n",
                          0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=1", 0, 7), "") == 0);
    /* b denies; its shadow would replace it and counts on. */
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 0, 0), 1);
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 0, 0), 0);
    CHECK(warnings_of(engine, "a", false) == 0 && warnings_of(engine, "b", false) == 0);
    CHECK_EQ(warnings_of(engine, "b", true), 1);
    /* A request that does not fit at once is denied below the threshold. */
    CHECK_EQ(warned_by(engine, "GET / user_id=2", 0, 6), 0);
    CHECK_EQ(warned_by(engine, "GET / user_id=2", 0, 5), 0);
    weir_close(engine);
}

TEST(dry_runs_peeks_and_refunds_do_not_warn)
{
    weir *engine = opened(RULE("limit: 10, window: 1h, warn_at: 50%"), 0);
    struct test_request r;
    weir_result result;
    test_request(&r, "GET / user_id=1");
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.cost = 9;
    r.query.dry_run = true;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    r.query.dry_run = false;
    r.query.cost = 4;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    r.query.cost = 0;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    r.query.cost = -1;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK_EQ(warnings_of(engine, "api", false), 0);
    r.query.cost = 2;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK(result.decision.flags & WEIR_WARNED && warnings_of(engine, "api", false) == 1);
    weir_close(engine);
}

TEST(tiers_have_their_own_thresholds)
{
    weir *engine = opened("identity: { tier: header:x-plan }\n" RULE(
                              "limit: { free: 5, pro: 20, never: 0, all: unlimited, default: 10 }, window: 1h, "
                              "warn_at: 80%"),
                          0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=1 @x-plan=free", 0, 20), "4") == 0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=2 @x-plan=pro", 0, 20), "16") == 0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=3", 0, 20), "8") == 0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=4 @x-plan=never", 0, 20), "") == 0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=5 @x-plan=all", 0, 20), "") == 0);
    CHECK_EQ(warnings_of(engine, "api", false), 3);
    weir_close(engine);
}

TEST(a_reserve_lowers_the_threshold_for_requests_that_may_not_use_it)
{
    weir *engine = opened("rules:\n"
                          "  - { name: api, key: 'u:${user_id}', limit: 20, window: 1h, algorithm: fixed_window, "
                          "reserve: 50%, warn_at: 80% }\n"
                          "  - { name: first, match: { path: /first }, limit: unlimited, priority: critical }\n",
                          0);
    CHECK(strcmp(warning_requests(engine, "GET / user_id=1", 0, 20), "8") == 0);
    CHECK(strcmp(warning_requests(engine, "GET /first user_id=2", 0, 20), "16") == 0);
    weir_close(engine);
}

/* A gateway's compact result has no room for a warning: that request is reported in full, the others are not. */
TEST(the_fast_path_warns_of_the_same_request)
{
    weir *engine =
        opened("rules:\n  - { name: api, match: { path: /a }, key: 'ip:${client_ip}', limit: 10, window: 1h, "
               "warn_at: 80% }\n",
               0);
    static const uint8_t peer[] = {192, 0, 2, 1};
    char text[WEIR__FAST_RESULT_BYTES];
    struct weir__second second = {0};
    for (int i = 1; i <= 10; i++) {
        struct weir__fast_result fast = {.reset = &second, .text = text};
        weir_query query = {.lookup = test_no_attributes, .peer = peer, .peer_len = 4, .path = {"/a", 2}};
        weir_result result;
        query.now = test_seconds(0);
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
        CHECK_EQ(fast.filled, i != 8);
        if (i == 8)
            CHECK(result.decision.flags & WEIR_WARNED && result.decision.remaining == 2);
    }
    CHECK_EQ(warnings_of(engine, "api", false), 1);
    weir_close(engine);
}

static void check_entry(weir *engine, bool hidden)
{
    const struct weir__denial_ring *ring = &engine->denial_recorder.ring;
    struct weir__warning_cursor cursor = {.next = 1};
    struct weir__denial entry;
    CHECK(weir__warning_next(ring, &cursor, &entry));
    CHECK_EQ(entry.flags, WEIR__DENIAL_WARNING | (hidden ? WEIR__DENIAL_HIDDEN : 0));
    CHECK(entry.warn_at == 80 && entry.capacity == 10 && entry.remaining == 2 && entry.cost == 1 && entry.count == 1);
    CHECK(entry.reason == WEIR_BY_LIMIT && entry.verdict == WEIR_ALLOW && entry.window_ns == 3600 * WEIR_SECOND);
    CHECK(weir__text_is(weir__denial_text(&entry, WEIR__DENIAL_PATH), "/x"));
    CHECK(!weir__warning_next(ring, &cursor, &entry));
}

TEST(a_warning_is_recorded_and_logged_once)
{
    char line[WEIR__WARNING_LINE];
    struct weir__warning_cursor cursor = {0}, another = {0};
    weir *engine = opened(RULE("limit: 10, window: 1h, warn_at: 80%"), 0);
    CHECK(!weir__warning_line(engine, &cursor, line));
    CHECK(strcmp(warning_requests(engine, "GET /x ip=192.0.2.7 user_id=42", 0, 10), "8") == 0);
    check_entry(engine, false);
    CHECK(weir__warning_line(engine, &cursor, line));
    CHECK(strcmp(line, "rule api: user:42 has used 8 of 10, warn_at is 80%") == 0);
    CHECK(!weir__warning_line(engine, &cursor, line) && !weir__warning_line(engine, &another, line));
    weir_close(engine);

    engine = opened(RULE("limit: 10, window: 1h, warn_at: 80%"), WEIR_HIDE_KEYS);
    CHECK(!weir__warning_line(engine, &cursor, line));
    CHECK(strcmp(warning_requests(engine, "GET /x ip=192.0.2.7 user_id=42", 0, 10), "8") == 0);
    check_entry(engine, true);
    CHECK(weir__warning_line(engine, &cursor, line) && strncmp(line, "rule api: ~", 11) == 0 &&
          !strstr(line, "42 has"));
    weir_close(engine);
}

TEST(a_rule_that_warns_from_now_on_warns_keys_that_are_above)
{
    weir_options how = {.segment = {.size = 8 << 20}};
    weir_segment *segment;
    CHECK_EQ(weir_segment_open(&how.segment, &segment), 0);
    how.attached = segment;
    how.rules_text = RULE("limit: 10, window: 1h");
    weir *engine = NULL, *later = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 0, 8), 0);
    how.rules_text = RULE("limit: 10, window: 1h, warn_at: 50%");
    CHECK_EQ(weir_open(&how, &later), 0);
    CHECK(warned_by(later, "GET / user_id=1", 0, 0) == 1 && warned_by(later, "GET / user_id=1", 0, 0) == 0);
    weir_close(later);
    weir_close(engine);
    weir_segment_close(segment);
}

/* Counts of warnings are in entries of their own, which readers without the rules must not take for a rule. */
TEST(the_count_is_no_rule)
{
    weir *engine = opened(RULE("limit: 10, window: 1h, warn_at: 50%"), 0);
    const struct weir__table *table = &engine->segment->table;
    size_t entries = 0, warnings = 0;
    CHECK_EQ(warned_by(engine, "GET / user_id=1", 0, 5), 1);
    for (uint64_t i = 0; i < table->rule_stats_count; i++) {
        entries += table->rule_stats[i].shard[0].rule_id != 0;
        warnings += weir__rule_stats_is_warnings(&table->rule_stats[i]);
    }
    CHECK(entries == 2 && warnings == 1);
    weir_close(engine);
}

TEST(descriptors_and_deferred_requests_warn)
{
    weir *engine = opened("domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, "
                          "requests_per_unit: 4, warn_at: 50% }\n",
                          0);
    weir_descriptor_entry entry = {{"user", 4}, {"42", 2}};
    weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    weir_outcome outcome;
    weir_descriptor_query query = {.domain = {"edge", 4},
                                   .descriptors = &descriptor,
                                   .descriptor_count = 1,
                                   .outcomes = &outcome,
                                   .now = test_seconds(0)};
    weir_result result;
    for (int i = 1; i <= 4; i++) {
        CHECK_EQ(weir_check_descriptors(engine, &query, &result), 0);
        CHECK_EQ((outcome.decision.flags & WEIR_WARNED) != 0, i == 2);
    }
    struct weir__warning_cursor cursor = {.next = 1};
    struct weir__denial found;
    CHECK(weir__warning_next(&engine->denial_recorder.ring, &cursor, &found));
    weir_close(engine);

    engine = opened(RULE("limit: 4, window: 1h, warn_at: 50%"), 0);
    weir_taken what = {.rule = "api", .key = "user:1", .key_len = 6};
    for (int i = 1; i <= 4; i++) {
        CHECK_EQ(weir_key_take(engine, &what, 1, test_seconds(0), NULL, &outcome), 0);
        CHECK_EQ((outcome.decision.flags & WEIR_WARNED) != 0, i == 2);
    }
    cursor = (struct weir__warning_cursor){.next = 1};
    CHECK(weir__warning_next(&engine->denial_recorder.ring, &cursor, &found));
    weir_close(engine);
}

/* ---- Threads ---- */

enum { THREADS_MAX = 8, LIMIT = 40 };

struct racing {
    weir *engine;
    uint64_t threads, rounds, requests; /* in each round, of a thread */
    uint64_t arrived;
};

/* Waits for all threads without sleeping, so that they go on at the same moment. */
static void meet(struct racing *racing, uint64_t round)
{
    weir__fetch_add64(&racing->arrived, 1);
    while (weir__load64(&racing->arrived) < racing->threads * (round + 1))
        sched_yield();
}

static void *race(void *context)
{
    struct racing *racing = context;
    uint64_t warnings = 0;
    for (uint64_t round = 0; round < racing->rounds; round++) {
        meet(racing, round);
        for (uint64_t i = 0; i < racing->requests; i++)
            warnings += (uint64_t)warned_by(racing->engine, "GET / user_id=1", (double)round * 60 + 1, 0);
    }
    return (void *)(uintptr_t)warnings;
}

/* The number of warnings, of which there must be one in each round. */
static uint64_t race_all(const char *rules, uint64_t threads, uint64_t rounds, uint64_t requests)
{
    struct racing racing = {.engine = opened(rules, 0), .threads = threads, .rounds = rounds, .requests = requests};
    pthread_t list[THREADS_MAX];
    uint64_t warnings = 0;
    for (uint64_t i = 0; i < threads; i++)
        CHECK_EQ(pthread_create(&list[i], NULL, race, &racing), 0);
    for (uint64_t i = 0; i < threads; i++) {
        void *each;
        CHECK_EQ(pthread_join(list[i], &each), 0);
        warnings += (uint64_t)(uintptr_t)each;
    }
    CHECK_EQ(warnings_of(racing.engine, "api", false), warnings);
    weir_close(racing.engine);
    return warnings;
}

TEST(of_all_threads_one_warns)
{
    /* A second rule that denies makes requests roll back. */
    static const char two[] =
        "rules:\n"
        "  - { name: api, key: 'user:${user_id}', limit: 40, window: 1m, algorithm: fixed_window, warn_at: 80% }\n"
        "  - { name: b, limit: 36, window: 1m, algorithm: fixed_window }\n";
    const uint64_t threads = THREADS_MAX, requests = LIMIT / THREADS_MAX + 2, rounds = 200;
    CHECK_EQ(race_all(RULE("limit: 40, window: 1m, algorithm: fixed_window, warn_at: 80%"), threads, rounds, requests),
             rounds);
    CHECK_EQ(race_all(RULE("limit: 40, window: 1m, warn_at: 80%"), threads, rounds, requests), rounds);
    CHECK_EQ(
        race_all(RULE("limit: 40, window: 1m, algorithm: sliding_window_log, warn_at: 80%"), threads, rounds, requests),
        rounds);
    CHECK_EQ(race_all(two, threads, rounds, requests), rounds);
    /* The first requests of two threads, which both find the key without a mark. */
    CHECK_EQ(race_all(RULE("limit: 40, window: 1m, algorithm: fixed_window, warn_at: 1%"), 2, 20000, 1), 20000);
}

TEST_MAIN
