/* The effect of load on limits: elastic, adaptive, reserves. */
#include "overloaded.h"

/* The limit in the decision about a request. */
static int64_t limit_at(weir *engine, const char *line, double s)
{
    return test_check(engine, line, s).decision.limit;
}

/* ---- Effective limits ---- */

TEST(elastic_limits_follow_the_level)
{
    weir *engine = overloaded_engine(
        "rules:\n  - { name: a, key: \"u:${user_id}\", limit: 1000, window: 1m, algorithm: fixed_window,\n"
        "      elastic: { up_to: 200%, while: 70% } }\n");
    static const struct {
        uint32_t level;
        int64_t limit;
    } cases[] = {{0, 2000},   {500, 2000}, {600, 2000}, {601, 1990}, {650, 1500},
                 {699, 1010}, {700, 1000}, {701, 1000}, {1000, 1000}};
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 0), 1000); /* nothing was published yet: no spare capacity is known */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load_is(engine, (double)i, cases[i].level, 1000);
        CHECK_EQ(limit_at(engine, "GET / user_id=1", (double)i), cases[i].limit);
        CHECK_EQ(limit_at(engine, "GET / user_id=2", (double)i + 0.1), cases[i].limit); /* the same for every key */
    }
    load_is(engine, 20, 0, 1000);
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 21.9), 2000);
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 22.1), 1000); /* the agent is gone: as configured */
    weir_close(engine);
}

TEST(adaptive_limits_follow_the_throttle)
{
    weir *engine =
        overloaded_engine("rules:\n  - { name: a, limit: 10, window: 1m, burst: 50, adaptive: { min: 20% } }\n");
    static const struct {
        uint32_t throttle;
        int64_t burst;
    } cases[] = {{1000, 50}, {999, 49}, {500, 30}, {250, 20}, {0, 10}};
    CHECK_EQ(limit_at(engine, "GET /", 0), 50);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load_is(engine, (double)i, 1000, cases[i].throttle);
        CHECK_EQ(limit_at(engine, "GET /", (double)i), cases[i].burst);
    }
    CHECK_EQ(limit_at(engine, "GET /", 9), 50); /* gone: full again */
    weir_close(engine);
}

TEST(elastic_comes_on_top_of_a_full_adaptive)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: 100, window: 1m, algorithm: sliding_window_log,\n"
                                     "      adaptive: { min: 10%, max: 80% }, elastic: { up_to: 150% } }\n");
    CHECK_EQ(limit_at(engine, "GET /", 0), 80);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(limit_at(engine, "GET /", 1), 120);
    load_is(engine, 2, 0, 999); /* throttled, so there is no spare capacity */
    CHECK_EQ(limit_at(engine, "GET /", 2), 79);
    load_is(engine, 3, 800, 1000);
    CHECK_EQ(limit_at(engine, "GET /", 3), 80);
    load_is(engine, 4, 1000, 0);
    CHECK_EQ(limit_at(engine, "GET /", 4), 10);
    weir_close(engine);
}

TEST(decisions_and_key_states_have_the_effective_limit)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: { pro: 100, default: 10 }, window: 1m,\n"
                                     "      algorithm: fixed_window, elastic: { up_to: 300% } }\n");
    struct test_request r;
    weir_result checked;
    weir_outcome outcome;
    char values[WEIR_HEADER_ROOM + 1];
    uint16_t lens[WEIR_HEADER_COUNT];
    load_is(engine, 0, 0, 1000);
    test_request(&r, "GET / tier=pro");
    r.query.now = test_seconds(0);
    r.query.outcomes = &outcome;
    r.query.outcomes_max = 1;
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK_EQ(checked.decision.limit, 300);
    CHECK_EQ(checked.decision.remaining, 299);
    CHECK_EQ(outcome.quota, 100);
    CHECK_EQ(outcome.effective_limit, 300);
    values[weir_result_header_values(&checked, &outcome, values, lens)] = 0;
    CHECK(strstr(values, "\"a\";q=300;w=60") != NULL);
    CHECK_EQ(weir_key_state(engine, "a", "*", 1, test_seconds(0), &outcome), 0);
    CHECK_EQ(outcome.decision.limit, 30); /* of the default tier */
    CHECK_EQ(outcome.decision.remaining, 29);
    weir_close(engine);
}

/* 150 of 200 are used when the load rises: nothing passes before the usage is below the effective limit. */
TEST(elastic_part_is_removed_at_once)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: 100, window: 100s, elastic: { up_to: 200% } }\n");
    load_is(engine, 0, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 150), 150);
    load_is(engine, 0.1, 900, 1000);
    weir_result checked = test_check(engine, "GET /", 0.1);
    CHECK(!weir_passes(&checked.decision));
    CHECK_EQ(checked.decision.limit, 100);
    CHECK_EQ(checked.decision.remaining, -50);
    CHECK_EQ(checked.decision.retry_after_ns, 50900 * WEIR_SECOND / 1000);
    for (int s = 1; s < 51; s++) {
        load_is(engine, s, 900, 1000);
        CHECK(!test_passes(engine, "GET /", s - 0.05));
    }
    CHECK_EQ(test_passing(engine, "GET /", 51, 10), 1);
    weir_close(engine);
}

/* A client that refunds a part of its take, as one that does not know its cost before, does not speed up the refill. */
static int64_t used_up(const char *refill, double every_s)
{
    char rules[300];
    snprintf(
        rules, sizeof rules,
        "rules:\n  - { name: a, key: \"u:${user_id}\", limit: 100, window: 1s, burst: 20, algorithm: token_bucket,\n"
        "      refill: %s, adaptive: { min: 20%% } }\n",
        refill);
    weir *engine = overloaded_engine(rules);
    int64_t used = 0;
    for (double s = 0; s < 10; s += every_s) {
        struct test_request r;
        weir_result checked;
        load_is(engine, s, 1000, 0); /* 20 a second, 4 at once */
        test_request(&r, "GET / user_id=1");
        r.query.now = test_seconds(s);
        r.query.has_cost = true;
        r.query.cost = 3;
        CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
        if (!weir_passes(&checked.decision))
            continue;
        r.query.cost = -1;
        CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
        used += 2;
    }
    weir_close(engine);
    return used;
}

TEST(refunds_do_not_speed_up_the_refill)
{
    static const double every_s[] = {0.013, 0.029, 0.031, 0.049, 0.3};
    for (size_t i = 0; i < sizeof every_s / sizeof *every_s; i++) {
        CHECK(used_up("continuous", every_s[i]) <= 4 + 20 * 10);
        CHECK(used_up("interval", every_s[i]) <= 4 + 20 * 10);
    }
}

TEST(refund_under_another_effective_limit)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: 100, window: 100s, adaptive: { min: 20% } }\n");
    struct test_request r;
    weir_result checked;
    load_is(engine, 0, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 50), 50);
    load_is(engine, 0.1, 1000, 0);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.cost = -40;
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK_EQ(checked.decision.limit, 20);
    CHECK_EQ(checked.decision.remaining, 10);
    weir_taken taken = {.rule = "a", .key = "*", .key_len = 1, .quota = 100, .window_ns = 100 * WEIR_SECOND};
    weir_decision d;
    CHECK_EQ(weir_key_settle(engine, &taken, -4, test_seconds(0), &d), 0);
    CHECK_EQ(d.remaining - d.limit, -6); /* reported relative to the current limit */
    weir_close(engine);
}

/* ---- Reserves ---- */

static void play_reserve(const char *algorithm)
{
    char rules[1024];
    snprintf(rules, sizeof rules,
             "rules:\n"
             "  - { name: all, limit: 10, %s, reserve: 20%% }\n"
             "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n"
             "  - { name: other, limit: 1000, window: 1d }\n",
             algorithm);
    weir *engine = overloaded_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /x", 0, 20), 8);
    weir_result checked = test_check(engine, "GET /x", 0);
    CHECK_EQ(checked.decided_by.reason, WEIR_BY_SHED);
    CHECK_EQ(checked.status, 503);
    CHECK_EQ(checked.decision.limit, 8);
    CHECK_EQ(checked.decision.remaining, 0);
    CHECK(checked.decision.retry_after_ns > 0);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 1), 1);
    CHECK_EQ(test_check(engine, "GET /x", 0).decided_by.reason, WEIR_BY_SHED);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 9), 1);
    checked = test_check(engine, "GET /x", 0); /* all of it is used up: denied by the limit */
    CHECK_EQ(checked.decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(checked.status, 429);
    checked = test_check(engine, "GET /pay", 0);
    CHECK_EQ(checked.decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(checked.decision.limit, 10);
    weir_rule_stats all = stats_of(engine, "all");
    CHECK_EQ(all.allowed, 10);
    CHECK_EQ(all.shed, 14);
    CHECK_EQ(all.shed_of[WEIR_NORMAL], 14);
    CHECK_EQ(all.denied, 10);
    /* Nothing leaked: the other rule has only what passed. */
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, "other", "*", 1, test_seconds(0), &outcome), 0);
    CHECK_EQ(outcome.decision.remaining, 990);
    weir_close(engine);
}

TEST(reserve_is_for_critical_requests)
{
    play_reserve("window: 1d, algorithm: fixed_window");
    play_reserve("window: 1d, algorithm: sliding_window_log");
    play_reserve("window: 1d, algorithm: sliding_window_counter");
    play_reserve("window: 1d, algorithm: sliding_window_counter, buckets: 5");
    play_reserve("algorithm: concurrency");
}

/* A limit that fits into one slot, and one that does not; the reserve must not change the representation. */
TEST(reserve_of_a_large_counter)
{
    weir *engine = overloaded_engine(
        "rules:\n"
        "  - { name: all, limit: 40000, window: 1d, algorithm: sliding_window_counter, reserve: 20%,\n"
        "      cost: header:cost }\n"
        "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    CHECK(test_passes(engine, "GET /x @cost=32000", 0));
    CHECK(!test_passes(engine, "GET /x @cost=1", 0));
    weir_result checked = test_check(engine, "GET /pay @cost=8000", 0);
    CHECK(weir_passes(&checked.decision));
    CHECK_EQ(checked.decision.remaining, 0);
    CHECK(!test_passes(engine, "GET /pay @cost=1", 0));
    weir_close(engine);
}

/* A cost above the limit without its reserve is reported as never fitting, not with a wait. */
TEST(cost_above_the_limit_without_its_reserve_never_fits)
{
    weir *engine = overloaded_engine(
        "rules:\n  - { name: a, limit: 10, window: 1m, algorithm: fixed_window, reserve: 50%, cost: 6 }\n");
    weir_result checked = test_check(engine, "GET /", 0);
    CHECK_EQ(checked.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(checked.decided_by.reason, WEIR_BY_LIMIT);
    weir_close(engine);
}

TEST(reserve_of_an_adaptive_limit)
{
    weir *engine =
        overloaded_engine("rules:\n"
                          "  - { name: all, limit: 100, window: 1d, algorithm: fixed_window, reserve: 20%,\n"
                          "      adaptive: { min: 50% } }\n"
                          "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    load_is(engine, 0, 1000, 0);
    CHECK_EQ(test_passing(engine, "GET /x", 0, 100), 40);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 100), 10);
    CHECK_EQ(test_check(engine, "GET /x", 0).decided_by.reason, WEIR_BY_LIMIT);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /x", 1, 100), 30);
    CHECK_EQ(test_check(engine, "GET /x", 1).decided_by.reason, WEIR_BY_SHED);
    weir_close(engine);
}

/* A request above a limit is denied by that limit, even if a reserve would also deny it. */
TEST(limit_is_reported_before_a_reserve)
{
    weir *engine = overloaded_engine("rules:\n"
                                     "  - { name: all, limit: 10, window: 1d, algorithm: fixed_window, reserve: 50% }\n"
                                     "  - { name: own, limit: 5, window: 1m, algorithm: fixed_window }\n");
    CHECK_EQ(test_passing(engine, "GET /", 0, 10), 5);
    weir_result checked = test_check(engine, "GET /", 0);
    CHECK_EQ(checked.decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(strcmp(checked.decided_by.rule, "own"), 0);
    CHECK_EQ(checked.status, 429);
    weir_close(engine);
}

/* ---- With a store ---- */

TEST(effective_limits_are_sent_to_the_store)
{
    test_store_open(&store);
    weir *engine =
        strict_engine("rules:\n"
                      "  - { name: all, limit: 100, window: 1d, algorithm: fixed_window, consistency: strict,\n"
                      "      adaptive: { min: 20% }, reserve: 50% }\n"
                      "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    load_is(engine, 0, 1000, 0);
    CHECK_EQ(passing(engine, "GET /", 0, 30), 10);
    struct result result = async(engine, "GET /", 0); /* cached, with the same result */
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.checked.decided_by.reason, WEIR_BY_SHED);
    CHECK_EQ(passing(engine, "GET /pay", 0, 30), 10);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(passing(engine, "GET /", 1, 60), 30); /* a larger limit is requested again */
    CHECK_EQ(passing(engine, "GET /pay", 1, 60), 50);
    load_is(engine, 1, 1000, 0);
    result = run(engine, "GET /pay", 1, (struct moment){.cost = -95});
    CHECK_EQ(result.checked.decision.limit, 20);
    CHECK_EQ(result.checked.decision.remaining, 15);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
