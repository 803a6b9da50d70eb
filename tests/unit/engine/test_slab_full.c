/* Rules in segments that are too small: on_store_failure decides where the slab has no room; denied keys stay denied.
 */
#include "../../engine.h"

static weir *engine_of(const char *rules, weir_segment_options segment)
{
    weir_options how = {.segment = segment, .rules_text = rules, .diagnose = test_print_diagnostic};
    weir *w = NULL;
    CHECK_EQ(weir_open(&how, &w), 0);
    return w;
}

/* A rule "r" per user, in a segment without a slab. */
static weir *without_slab(const char *kind, const char *policy)
{
    char text[256];
    snprintf(text, sizeof text, "rules:\n  - { name: r, key: \"${user_id}\", limit: 5, window: 1m, %s%s%s }\n", kind,
             *policy ? ", on_store_failure: " : "", policy);
    return engine_of(text, (weir_segment_options){.size = 1 << 20, .no_slab = true});
}

static uint64_t failures_of(weir *w, const char *rule)
{
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(w, rule, false, &stats), 0);
    return stats.failures;
}

static weir_stats stats_of(weir *w)
{
    weir_stats stats;
    CHECK_EQ(weir_stats_read(weir_engine_segment(w), &stats), 0);
    return stats;
}

static const char *const kinds[] = {"algorithm: sliding_window_log", "algorithm: sliding_window_counter, buckets: 6",
                                    "algorithm: sliding_window_log, count_rejected: true"};

TEST(local_policy_uses_a_substitute_counter)
{
    for (int i = 0; i < 6; i++) {
        weir *w = without_slab(kinds[i / 2], i % 2 ? "local" : "");
        CHECK_EQ(test_passing(w, "GET / user_id=a", 0, 20), 5);
        CHECK_EQ(test_passing(w, "GET / user_id=b", 0, 3), 3);
        weir_result result = test_check(w, "GET / user_id=a", 1);
        CHECK_EQ(result.decision.verdict, WEIR_DENY);
        CHECK_EQ(result.decided_by.reason, WEIR_BY_LIMIT);
        CHECK_EQ(result.decided_by.error, WEIR_EFULL);
        CHECK_EQ(result.decision.limit, 5);
        CHECK(result.decision.retry_after_ns > 0);
        CHECK_EQ(test_passing(w, "GET / user_id=a", 125, 20), 5);
        CHECK_EQ(failures_of(w, "r"), 44);
        CHECK_EQ(stats_of(w).slab_full, 44);
        weir_close(w);
    }
}

TEST(policy_open_passes_and_closed_denies)
{
    for (int i = 0; i < 6; i++) {
        bool closed = i % 2;
        weir *w = without_slab(kinds[i / 2], closed ? "closed" : "open");
        weir_result result = test_check(w, "GET / user_id=a", 0);
        CHECK_EQ(weir_passes(&result.decision), !closed);
        CHECK_EQ(result.decided_by.reason, WEIR_BY_FAILURE);
        CHECK_EQ(result.decided_by.error, WEIR_EFULL);
        CHECK_EQ(test_passing(w, "GET / user_id=a", 0, 19), closed ? 0 : 19);
        CHECK_EQ(failures_of(w, "r"), 20);
        weir_close(w);
    }
}

/* The size of a segment by bytes_per_key, which weir lint prints, holds the keys at their limits. */
TEST(segment_of_the_printed_size_is_large_enough)
{
    static const struct {
        const char *rule;
        int64_t limit;
    } cases[] = {{"limit: 1, window: 1h", 1},
                 {"limit: 4, window: 1h, algorithm: sliding_window_log", 4},
                 {"limit: 100, window: 1h, algorithm: sliding_window_log", 100},
                 {"limit: 1000, window: 1h, algorithm: sliding_window_log", 1000},
                 {"limit: 3, window: 1h, algorithm: sliding_window_counter, buckets: 10", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256], user[64];
        weir_rules *rules = NULL;
        weir_rule_info info = {.bytes_per_key = 1};
        snprintf(text, sizeof text, "rules:\n  - { name: r, key: \"${user_id}\", %s }\n", cases[i].rule);
        CHECK_EQ(weir_rules_parse("f", text, strlen(text), NULL, NULL, &rules), 0);
        if (rules)
            weir_rules_info(rules, 0, &info);
        weir_rules_free(rules);
        const uint64_t size = 2 << 20;
        int64_t keys = (int64_t)size / info.bytes_per_key;
        weir *w = engine_of(text, (weir_segment_options){.size = size});
        /* All keys grow together, which fragments the slab most. */
        for (int64_t n = 0; n < cases[i].limit; n++)
            for (int64_t key = 0; key < keys; key++) {
                snprintf(user, sizeof user, "GET / user_id=%lld", (long long)key);
                CHECK_EQ(test_passing(w, user, 0, 1), 1);
            }
        weir_stats stats = stats_of(w);
        CHECK_EQ(stats.slab_full, 0);
        CHECK_EQ(stats.evicted_live, 0);
        weir_close(w);
    }
}

/* A log that outgrows its slab: the log and its substitute counter together enforce the limit. */
TEST(log_that_cannot_grow_is_not_counted_twice)
{
    weir *w = engine_of("rules:\n  - { name: r, limit: 1200, window: 1m, algorithm: sliding_window_log }\n",
                        (weir_segment_options){.size = 1 << 16});
    CHECK_EQ(test_passing(w, "GET /", 3600, 3000), 1200);
    uint64_t failures = failures_of(w, "r");
    CHECK(failures > 1800 && failures < 3000);
    CHECK_EQ(test_passing(w, "GET /", 3601, 100), 0);
    int later = test_passing(w, "GET /", 3600 + 121, 3000);
    CHECK_EQ(later, 1200);
    weir_close(w);
}

/* Keys that use up their limits fill the slab: each is limited, by a log or by a substitute counter, and stays denied.
 */
TEST(keys_that_fill_the_slab_reset_no_other)
{
    for (int i = 0; i < 2; i++) {
        char text[256], line[64];
        snprintf(text, sizeof text, "rules:\n  - { name: r, key: \"${user_id}\", limit: 5, window: 1h, %s }\n",
                 kinds[i]);
        weir *w = engine_of(text, (weir_segment_options){.size = 1 << 18});
        for (int round = 0; round < 2; round++)
            for (int key = 0; key < 2000; key++) {
                snprintf(line, sizeof line, "GET / user_id=%d", key);
                CHECK_EQ(test_passing(w, line, 3600 + round * 10 + key * 1e-3, 8), round ? 0 : 5);
            }
        CHECK(stats_of(w).slab_full > 1000);
        CHECK_EQ(stats_of(w).evicted_denied, 0);
        weir_close(w);
    }
}

/*
 * A denial under several rules is found by a peek, which takes nothing: it counts as a denial nevertheless. The others
 * have used up their limits, too, but were not denied: permits, which have no substitute, get their room.
 */
TEST(key_denied_by_several_rules_survives_a_flood)
{
    weir *w = engine_of("rules:\n"
                        "  - { name: once, key: \"${user_id}\", limit: 1, window: 1m, algorithm: sliding_window_log }\n"
                        "  - { name: all, limit: 1000000, window: 1m }\n",
                        (weir_segment_options){.size = 1 << 18});
    CHECK_EQ(test_passing(w, "GET / user_id=victim", 0, 2), 1);
    for (int i = 0; i < 2000; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET / user_id=%d", i);
        CHECK(test_passes(w, line, 10 + i * 1e-3));
    }
    CHECK_EQ(stats_of(w).evicted_live, 0);
    weir_params flight = {.algorithm = WEIR_CONCURRENCY, .limit = 3, .window_ns = 3600 * WEIR_SECOND, .id = 99};
    weir_limit limit;
    CHECK_EQ(weir_limit_init(&limit, &flight), 0);
    for (int i = 0; i < 800; i++) {
        weir_lease lease;
        weir_decision d;
        int key = i / 2;
        CHECK_EQ(weir_acquire(weir_engine_segment(w), &limit, &key, sizeof key, test_seconds(13), &lease, &d), 0);
    }
    CHECK(stats_of(w).evicted_live > 400);
    CHECK_EQ(stats_of(w).evicted_denied, 0);
    CHECK(!test_passes(w, "GET / user_id=victim", 14));
    weir_close(w);
}

TEST(window_denied_by_several_rules_survives_a_flood)
{
    weir *w = engine_of("rules:\n"
                        "  - { name: few, key: \"${user_id}\", limit: 2, window: 1m, algorithm: fixed_window, "
                        "align: first_request }\n"
                        "  - { name: all, limit: 1000000, window: 1m }\n",
                        (weir_segment_options){.size = 1 << 16, .no_slab = true});
    CHECK_EQ(test_passing(w, "GET / user_id=victim", 0, 3), 2);
    for (int i = 0; i < 10000; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET / user_id=%d", i);
        CHECK(test_passes(w, line, i * 1e-3));
    }
    CHECK(stats_of(w).evicted_live > 5000);
    CHECK(!test_passes(w, "GET / user_id=victim", 11));
    weir_close(w);
}

TEST_MAIN
