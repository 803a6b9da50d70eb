/* Strict rules: the store requests, the meaning of the replies, and rollbacks. The store is simulated. */
#include "rules_folder.h"
#include "strict_requests.h"

/* ---- The simple case ---- */

TEST(store_decides)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL), *other = test_strict_engine(one, WEIR_LOCAL);
    struct result result = async(engine, "GET /api user_id=1", 0);
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(result.checked.decision.remaining, 4);
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_LIMIT);
    CHECK_EQ(result.outcomes[0].error, 0);
    CHECK_EQ(result.back, 0);
    /* Two hosts share one limit. */
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 2) + passing(other, "GET /api user_id=1", 0, 9), 4);
    CHECK_EQ(passing(engine, "GET /api user_id=2", 0, 9), 5);
    weir_close(engine);
    weir_close(other);
    weir_segment_close(store.segment);
}

TEST(local_rules_send_no_store_request)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    CHECK_EQ(async(engine, "GET /near", 0).prepared, 0);
    CHECK_EQ(async(engine, "GET /elsewhere", 0).prepared, 0);
    CHECK_EQ(passing(engine, "GET /near", 0, 9), 4);
    CHECK_EQ(store.requests, 0);
    weir_close(engine);
    /* Nor does an engine without a store. */
    engine = test_engine(one);
    CHECK_EQ(async(engine, "GET /api user_id=1", 0).prepared, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 9), 4);
    CHECK_EQ(store.requests, 0);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(denial_is_cached_until_it_ends)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 5), 5);
    struct result result = async(engine, "GET /api user_id=1", 0);
    CHECK_EQ(result.prepared, 1);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decision.retry_after_ns, 12 * WEIR_SECOND);
    int requests = store.requests;
    result = async(engine, "GET /api user_id=1", 4);
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decision.verdict, WEIR_DENY);
    CHECK_EQ(result.checked.decision.retry_after_ns, 8 * WEIR_SECOND);
    CHECK_EQ(result.checked.decision.limit, 5);
    CHECK_EQ(result.checked.decision.remaining, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 11.999, 100), 0);
    CHECK_EQ(store.requests, requests);
    CHECK_EQ(async(engine, "GET /api user_id=2", 4).passes, true); /* not for another key */
    /* Another cost may fit, and is requested. */
    CHECK_EQ(run(engine, "GET /api user_id=1", 4, (struct moment){.cost = 2}).prepared, 1);
    /* It is over after its retry time. */
    store.s += 12;
    result = async(engine, "GET /api user_id=1", 12);
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(engine, "api", false, &stats), 0);
    CHECK_EQ(stats.allowed, 7);
    CHECK_EQ(stats.denied, 103);
    CHECK_EQ(stats.failures, 0);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(impossible_cost_and_blocked_key_need_no_store)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    struct result result = run(engine, "GET /api user_id=1", 0, (struct moment){.cost = 6});
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.checked.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(weir_key_block(engine, "api", "u:1", 3, 10 * WEIR_SECOND, test_seconds(0)), 0);
    result = async(engine, "GET /api user_id=1", 1);
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.checked.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(result.checked.decision.retry_after_ns, 9 * WEIR_SECOND);
    CHECK(async(engine, "GET /api user_id=2", 1).passes);
    CHECK_EQ(store.requests, 1);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(peeks_take_nothing)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    struct result result = run(engine, "GET /api user_id=1", 0, (struct moment){.dry_run = true});
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(result.checked.decision.remaining, 4);
    result = run(engine, "GET /api user_id=1", 0, (struct moment){.look = true});
    CHECK_EQ(result.checked.decision.remaining, 5);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 3), 3);
    /* A negative cost refunds. */
    result = run(engine, "GET /api user_id=1", 0, (struct moment){.cost = -2});
    CHECK(result.passes);
    CHECK_EQ(result.checked.decision.remaining, 4);
    CHECK_EQ(result.back, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 9), 4);
    /* A denied peek is not cached. */
    result = run(engine, "GET /api user_id=3", 0, (struct moment){.cost = 5});
    int requests = store.requests;
    CHECK(!run(engine, "GET /api user_id=3", 0, (struct moment){.dry_run = true}).passes);
    CHECK(!run(engine, "GET /api user_id=3", 0, (struct moment){.dry_run = true}).passes);
    CHECK_EQ(store.requests, requests + 2);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The store does not know the host's clock: it gets the age of the take, rounded up rather than down. */
TEST(refund_has_the_age_of_the_take)
{
    static const struct {
        const char *more;
        int64_t longer_us; /* by two deadlines */
    } kinds[] = {{"", 40000},
                 {", algorithm: fixed_window", 40000},
                 {", algorithm: fixed_window, align: first_request", 0},
                 {", algorithm: sliding_window_log", 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char rules[256];
        snprintf(rules, sizeof rules, "rules: [{ name: a, limit: 5, window: 1h, consistency: strict%s }]\n",
                 kinds[i].more);
        weir *engine = test_strict_engine(rules, WEIR_LOCAL);
        static const int64_t ago_us[] = {-5000000, 0, 30000000};
        for (int k = 0; k < 3; k++) {
            struct test_request r;
            test_request(&r, "GET /");
            r.query.now = weir_clock(weir_engine_segment(engine));
            r.query.now.mono_ns -= ago_us[k] * 1000;
            r.query.has_cost = true;
            r.query.cost = -3;
            CHECK_EQ(weir_async_new(engine, &r.query.async), 0);
            CHECK_EQ(weir_check_begin(engine, &r.query), 1);
            const struct weir__store_op *requested = &weir_async_request(r.query.async)->ops[0];
            int64_t least = ago_us[k] > 0 ? ago_us[k] + kinds[i].longer_us : 1;
            CHECK_EQ(requested->kind, WEIR__OP_REFUND);
            CHECK_EQ(requested->cost, 3);
            CHECK(requested->at_us <= -least && requested->at_us > -least - 5000000);
            weir_async_free(r.query.async);
        }
        weir_close(engine);
    }
}

/* ---- Several rules ---- */

/* Two strict rules, a local one and two shadows, in all orders. */
#define A "  - { name: a, match: { path: /all }, limit: 4, window: 1h, consistency: strict }\n"
#define B "  - { name: b, match: { path: /all }, limit: 6, window: 1h, consistency: strict, algorithm: fixed_window }\n"
#define L "  - { name: l, match: { path: /all }, limit: 5, window: 1h }\n"
#define S "  - { name: s, match: { path: /all }, limit: 3, window: 1h, consistency: strict, shadow: true }\n"
#define T "  - { name: t, match: { path: /all }, limit: 3, window: 1h, shadow: true }\n"

static const char *const orders[] = {"rules:\n" A B L S T, "rules:\n" T S L B A, "rules:\n" L S A T B,
                                     "rules:\n" S A L B T, "rules:\n" B T A S L};

/* The remaining units of each, by the letter of its name. */
static int64_t left_of(const struct result *result, char name)
{
    for (size_t i = 0; i < result->checked.outcomes; i++)
        if (result->outcomes[i].rule[0] == name)
            return result->outcomes[i].decision.remaining;
    return -1000;
}

#define CHECK_ALL(result, a, b, l)                                                                                     \
    do {                                                                                                               \
        CHECK_EQ(left_of(&(result), 'a'), a);                                                                          \
        CHECK_EQ(left_of(&(result), 'b'), b);                                                                          \
        CHECK_EQ(left_of(&(result), 'l'), l);                                                                          \
    } while (0)

TEST(all_or_nothing_whichever_rule_denies)
{
    for (size_t order = 0; order < sizeof orders / sizeof *orders; order++) {
        test_store_open(&store);
        weir *engine = test_strict_engine(orders[order], WEIR_LOCAL);
        struct moment look = {.look = true};
        CHECK_EQ(passing(engine, "GET /all", 0, 3), 3);
        struct result result = run(engine, "GET /all", 0, look);
        CHECK_ALL(result, 1, 3, 2);
        CHECK_EQ(left_of(&result, 's'), 0);
        CHECK_EQ(left_of(&result, 't'), 0);
        /* Too much for a, not for b and l: nothing is taken anywhere. */
        result = run(engine, "GET /all", 0, (struct moment){.cost = 2});
        CHECK(!result.passes);
        CHECK_EQ(result.checked.decided_by.rule[0], 'a');
        CHECK_EQ(result.back, 0);
        CHECK_ALL(result, 1, 3, 2);
        result = run(engine, "GET /all", 0, look);
        CHECK_ALL(result, 1, 3, 2);
        /* The last of a; the shadow rules would deny it. */
        result = async(engine, "GET /all", 0);
        CHECK(result.passes);
        CHECK(result.checked.shadow_denied);
        CHECK_EQ(passing(engine, "GET /all", 0, 9), 0);
        result = run(engine, "GET /all", 0, look);
        CHECK_ALL(result, 0, 2, 1);
        weir_close(engine);
        weir_segment_close(store.segment);
    }
}

/* Takes the remaining units of the local rule, as a concurrent request would. */
static void exhaust_local(weir *engine)
{
    struct test_request r;
    weir_result checked;
    test_request(&r, "GET /rush");
    r.query.now = test_seconds(0);
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK(weir_passes(&checked.decision));
}

TEST(late_local_denial_is_rolled_back)
{
    static const char rules[] =
        "rules:\n"
        "  - { name: near, match: { path: [/both, /rush] }, limit: 1, window: 1h }\n"
        "  - { name: far, match: { path: /both }, limit: 5, window: 1h, consistency: strict }\n"
        "  - { name: seen, match: { path: /both }, limit: 5, window: 1h, consistency: strict, shadow: true }\n";
    test_store_open(&store);
    weir *engine = test_strict_engine(rules, WEIR_LOCAL);
    struct result result = run(engine, "GET /both", 0, (struct moment){.before_check = exhaust_local});
    CHECK_EQ(result.prepared, 1);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decided_by.rule[0], 'n');
    CHECK_EQ(result.back, 2);
    CHECK_EQ(result.outcomes[1].decision.remaining, 5);
    result = run(engine, "GET /both", 0, (struct moment){.look = true});
    CHECK_EQ(result.outcomes[1].decision.remaining, 5);
    CHECK_EQ(result.outcomes[2].decision.remaining, 5);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(engine, "far", false, &stats), 0);
    CHECK_EQ(stats.rolled_back, 1);
    CHECK_EQ(stats.allowed + stats.denied, 0);
    /* A request that a local rule denies at once sends no store request. */
    int requests = store.requests;
    result = async(engine, "GET /both", 0);
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(store.requests, requests);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The local rule had no units left when the store request could have been sent, and has now. */
static void reset_local(weir *engine)
{
    CHECK_EQ(weir_key_reset(engine, "near", "*", 1, test_seconds(0)), 0);
}

TEST(request_without_a_store_request_is_not_admitted)
{
    static const char rules[] =
        "rules:\n"
        "  - { name: near, match: { path: /both }, limit: 1, window: 1h }\n"
        "  - { name: far, match: { path: /both }, limit: 5, window: 1h, consistency: strict }\n";
    test_store_open(&store);
    weir *engine = test_strict_engine(rules, WEIR_LOCAL);
    CHECK(async(engine, "GET /both", 0).passes);
    struct result result = run(engine, "GET /both", 0, (struct moment){.before_check = reset_local});
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decided_by.rule[0], 'f');
    CHECK(result.checked.decision.retry_after_ns > 0 && result.checked.decision.retry_after_ns <= WEIR_SECOND);
    CHECK(async(engine, "GET /both", 0).passes);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(shadow_rule_does_not_affect_the_decision)
{
    static const char rules[] =
        "rules:\n"
        "  - { name: api, match: { path: /api }, limit: 2, window: 1h, consistency: strict }\n"
        "  - { name: api, match: { path: /api }, limit: 4, window: 1h, consistency: strict, shadow: true }\n";
    test_store_open(&store);
    weir *engine = test_strict_engine(rules, WEIR_LOCAL);
    CHECK_EQ(passing(engine, "GET /api", 0, 2), 2);
    struct result result = async(engine, "GET /api", 0);
    CHECK(!result.passes);
    CHECK_EQ(result.outcomes[1].decision.remaining, 1);
    CHECK_EQ(result.back, 0);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* ---- Failures ---- */

static const char policies[] =
    "rules:\n"
    "  - { name: open, match: { path: /open }, limit: 2, window: 1h, consistency: strict, on_store_failure: open }\n"
    "  - { name: shut, match: { path: /shut }, limit: 2, window: 1h, consistency: strict, on_store_failure: closed }\n"
    "  - { name: here, match: { path: [/here, /mixed] }, limit: 2, window: 1h, consistency: strict }\n"
    "  - { name: far, match: { path: /mixed }, limit: 3, window: 1h, consistency: strict, on_store_failure: open }\n";

TEST(policy_decides_when_the_store_fails)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(policies, WEIR_LOCAL);
    weir_rule_stats stats;
    store.error = WEIR_ESTORESLOW;
    struct result result = async(engine, "GET /open", 0);
    CHECK(result.passes);
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_FAILURE);
    CHECK_EQ(result.outcomes[0].error, WEIR_ESTORESLOW);
    CHECK_EQ(passing(engine, "GET /open", 0, 9), 9);
    result = async(engine, "GET /shut", 0);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decided_by.reason, WEIR_BY_FAILURE);
    CHECK_EQ(result.checked.decided_by.error, WEIR_ESTORESLOW);
    /* The host enforces the limit alone. */
    result = async(engine, "GET /here", 0);
    CHECK(result.passes);
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_LIMIT);
    CHECK_EQ(result.outcomes[0].error, WEIR_ESTORESLOW);
    CHECK_EQ(result.outcomes[0].decision.remaining, 1);
    CHECK_EQ(passing(engine, "GET /here", 0, 9), 1);
    CHECK_EQ(weir_rule_stats_read(engine, "here", false, &stats), 0);
    CHECK_EQ(stats.failures, 10);
    CHECK_EQ(stats.allowed, 2);
    CHECK_EQ(stats.denied, 8);
    CHECK_EQ(weir_rule_stats_read(engine, "shut", false, &stats), 0);
    CHECK_EQ(stats.failures, 1);
    /* The store is available again. */
    store.error = 0;
    CHECK_EQ(passing(engine, "GET /shut", 0, 9), 2);
    CHECK_EQ(passing(engine, "GET /here", 0, 9), 2);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(failing_counter_fails_its_group)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(policies, WEIR_LOCAL);
    store.failing = "far:*";
    store.op_error = WEIR_ESTOREWRONGTYPE;
    struct result result = async(engine, "GET /mixed", 0);
    CHECK(result.passes);
    CHECK_EQ(result.outcomes[0].error, WEIR_ESTOREWRONGTYPE); /* by the host's own counter */
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_LIMIT);
    CHECK_EQ(result.outcomes[1].reason, WEIR_BY_FAILURE);
    CHECK_EQ(passing(engine, "GET /mixed", 0, 9), 1);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(policy_decides_without_a_reply)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(policies, WEIR_LOCAL);
    /* No store request was sent: as if the store were unavailable. */
    weir_result checked = test_check(engine, "GET /shut", 0);
    CHECK(!weir_passes(&checked.decision));
    CHECK_EQ(checked.decided_by.error, WEIR_ESTOREBREAKER);
    CHECK_EQ(test_passing(engine, "GET /here", 0, 9), 2);
    CHECK_EQ(test_passing(engine, "GET /open", 0, 9), 9);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* ---- Batches, and changing rules ---- */

TEST(equal_requests_of_a_batch_use_their_own_replies)
{
    enum { COUNT = 8 };
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    static struct test_request r[COUNT];
    weir_async *a = NULL;
    CHECK_EQ(weir_async_new(engine, &a), 0);
    for (int i = 0; i < COUNT; i++) {
        test_request(&r[i], i == 3 ? "GET /api user_id=2" : "GET /api user_id=1");
        r[i].query.now = test_seconds(0);
        r[i].query.async = a;
        CHECK_EQ(weir_check_begin(engine, &r[i].query), 1);
    }
    CHECK_EQ(weir_async_request(a)->op_count, COUNT);
    CHECK_EQ(weir_async_request(a)->group_count, COUNT);
    test_store_execute(&store, weir_async_request(a));
    for (int i = 0; i < COUNT; i++) {
        weir_result checked;
        if (i == 1)
            continue; /* its client has disconnected */
        CHECK_EQ(weir_check(engine, &r[i].query, &checked), 0);
        CHECK_EQ(weir_passes(&checked.decision), i < 6);
    }
    CHECK(weir_async_rollback(a) && weir_async_rollback(a)->op_count == 1);
    weir_async_clear(a);
    CHECK_EQ(weir_async_request(a)->op_count, 0);
    CHECK_EQ(weir_check_begin(engine, &r[3].query), 1);
    test_store_execute(&store, weir_async_request(a));
    /* Without a check everything is rolled back. */
    CHECK(weir_async_rollback(a) && weir_async_rollback(a)->op_count == 1);
    CHECK_EQ(weir_async_rollback(a)->ops[0].cost, 1);
    CHECK_EQ(weir_async_rollback(a)->ops[0].at_us, test_seconds(store.s).mono_ns / 1000);
    weir_async_free(a);
    weir_close(engine);
    weir_segment_close(store.segment);
}

static void replace_rules(weir *engine)
{
    put("a.yaml", "rules:\n"
                  "  - { name: stays, match: { path: /x }, limit: 7, window: 1h, consistency: strict }\n"
                  "  - { name: new, match: { path: /x }, limit: 7, window: 1h, consistency: strict }\n");
    CHECK_EQ(weir_reload(engine), 1);
}

TEST(rules_may_change_during_a_store_request)
{
    test_store_open(&store);
    start();
    put("a.yaml", "rules:\n"
                  "  - { name: stays, match: { path: /x }, limit: 5, window: 1h, consistency: strict }\n"
                  "  - { name: goes, match: { path: /x }, limit: 5, window: 1h, consistency: strict }\n");
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_path = folder,
                         .flags = WEIR_NO_CONNECT | WEIR_NO_WATCH,
                         .store = "redis://127.0.0.1:1"};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&kind, &engine), 0);
    struct result result = run(engine, "GET /x", 0, (struct moment){.before_check = replace_rules});
    CHECK(result.passes);
    CHECK_EQ(result.checked.outcomes, 2);
    CHECK_EQ(result.outcomes[0].error, 0);
    CHECK_EQ(result.outcomes[0].decision.remaining, 4);
    CHECK_EQ(result.outcomes[1].error, WEIR_ESTOREBREAKER);
    CHECK_EQ(result.outcomes[1].decision.remaining, 6);
    CHECK_EQ(result.back, 1);
    weir_close(engine);
    finish();
    weir_segment_close(store.segment);
}

TEST_MAIN
