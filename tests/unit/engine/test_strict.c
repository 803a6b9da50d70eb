/* Rules that a store decides: what is asked, what the answers mean, and what is given back. The store is played. */
#include "rules_folder.h"
#include "strict_asking.h"

/* ---- The simple case ---- */

TEST(the_store_decides)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL), *other = test_strict_engine(one, WEIR_LOCAL);
    struct result result = async(engine, "GET /api user_id=1", 0);
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(result.answer.decision.remaining, 4);
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_LIMIT);
    CHECK_EQ(result.outcomes[0].error, 0);
    CHECK_EQ(result.back, 0);
    /* Two hosts have one limit together. */
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 2) + passing(other, "GET /api user_id=1", 0, 9), 4);
    CHECK_EQ(passing(engine, "GET /api user_id=2", 0, 9), 5);
    weir_close(engine);
    weir_close(other);
    weir_segment_close(store.segment);
}

TEST(what_no_store_decides_asks_none)
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

TEST(denials_are_remembered_until_they_end)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 5), 5);
    struct result result = async(engine, "GET /api user_id=1", 0);
    CHECK_EQ(result.prepared, 1);
    CHECK(!result.passes);
    CHECK_EQ(result.answer.decision.retry_after_ns, 12 * WEIR_SECOND);
    int requests = store.requests;
    result = async(engine, "GET /api user_id=1", 4);
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(result.answer.decision.verdict, WEIR_DENY);
    CHECK_EQ(result.answer.decision.retry_after_ns, 8 * WEIR_SECOND);
    CHECK_EQ(result.answer.decision.limit, 5);
    CHECK_EQ(result.answer.decision.remaining, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 11.999, 100), 0);
    CHECK_EQ(store.requests, requests);
    CHECK_EQ(async(engine, "GET /api user_id=2", 4).passes, true); /* nobody else's */
    /* Another cost may fit, and is asked for. */
    CHECK_EQ(run(engine, "GET /api user_id=1", 4, (struct moment){.cost = 2}).prepared, 1);
    /* It is over when it said it would be. */
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

TEST(what_never_fits_or_is_blocked_needs_no_store)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    struct result result = run(engine, "GET /api user_id=1", 0, (struct moment){.cost = 6});
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.answer.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(weir_key_block(engine, "api", "u:1", 3, 10 * WEIR_SECOND, test_seconds(0)), 0);
    result = async(engine, "GET /api user_id=1", 1);
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.answer.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(result.answer.decision.retry_after_ns, 9 * WEIR_SECOND);
    CHECK(async(engine, "GET /api user_id=2", 1).passes);
    CHECK_EQ(store.requests, 1);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(looks_take_nothing)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    struct result result = run(engine, "GET /api user_id=1", 0, (struct moment){.dry_run = true});
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(result.answer.decision.remaining, 4);
    result = run(engine, "GET /api user_id=1", 0, (struct moment){.look = true});
    CHECK_EQ(result.answer.decision.remaining, 5);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 3), 3);
    /* A negative cost gives back. */
    result = run(engine, "GET /api user_id=1", 0, (struct moment){.cost = -2});
    CHECK(result.passes);
    CHECK_EQ(result.answer.decision.remaining, 4);
    CHECK_EQ(result.back, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 9), 4);
    /* A look at a denial is not remembered. */
    result = run(engine, "GET /api user_id=3", 0, (struct moment){.cost = 5});
    int requests = store.requests;
    CHECK(!run(engine, "GET /api user_id=3", 0, (struct moment){.dry_run = true}).passes);
    CHECK(!run(engine, "GET /api user_id=3", 0, (struct moment){.dry_run = true}).passes);
    CHECK_EQ(store.requests, requests + 2);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The store does not know the host's clock: it hears kind long ago it was, and rather too long than too short. */
TEST(who_gives_back_tells_how_long_ago_it_was_taken)
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
            const struct weir__store_op *asked = &weir_async_request(r.query.async)->ops[0];
            int64_t least = ago_us[k] > 0 ? ago_us[k] + kinds[i].longer_us : 1;
            CHECK_EQ(asked->kind, WEIR__OP_REFUND);
            CHECK_EQ(asked->cost, 3);
            CHECK(asked->at_us <= -least && asked->at_us > -least - 5000000);
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

/* What each has left, by its name's letter. */
static int64_t left_of(const struct result *result, char name)
{
    for (size_t i = 0; i < result->answer.outcomes; i++)
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

TEST(all_or_nothing_whoever_denies)
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
        CHECK_EQ(result.answer.decided_by.rule[0], 'a');
        CHECK_EQ(result.back, 0);
        CHECK_ALL(result, 1, 3, 2);
        result = run(engine, "GET /all", 0, look);
        CHECK_ALL(result, 1, 3, 2);
        /* The last of a; the shadows would deny it. */
        result = async(engine, "GET /all", 0);
        CHECK(result.passes);
        CHECK(result.answer.shadow_denied);
        CHECK_EQ(passing(engine, "GET /all", 0, 9), 0);
        result = run(engine, "GET /all", 0, look);
        CHECK_ALL(result, 0, 2, 1);
        weir_close(engine);
        weir_segment_close(store.segment);
    }
}

/* Takes what the local rule has left, as somebody else would. */
static void rush(weir *engine)
{
    struct test_request r;
    weir_result answer;
    test_request(&r, "GET /rush");
    r.query.now = test_seconds(0);
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK(weir_passes(&answer.decision));
}

TEST(what_is_denied_in_the_last_moment_is_given_back)
{
    static const char rules[] =
        "rules:\n"
        "  - { name: near, match: { path: [/both, /rush] }, limit: 1, window: 1h }\n"
        "  - { name: far, match: { path: /both }, limit: 5, window: 1h, consistency: strict }\n"
        "  - { name: seen, match: { path: /both }, limit: 5, window: 1h, consistency: strict, shadow: true }\n";
    test_store_open(&store);
    weir *engine = test_strict_engine(rules, WEIR_LOCAL);
    struct result result = run(engine, "GET /both", 0, (struct moment){.asked = rush});
    CHECK_EQ(result.prepared, 1);
    CHECK(!result.passes);
    CHECK_EQ(result.answer.decided_by.rule[0], 'n');
    CHECK_EQ(result.back, 2);
    CHECK_EQ(result.outcomes[1].decision.remaining, 5);
    result = run(engine, "GET /both", 0, (struct moment){.look = true});
    CHECK_EQ(result.outcomes[1].decision.remaining, 5);
    CHECK_EQ(result.outcomes[2].decision.remaining, 5);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(engine, "far", false, &stats), 0);
    CHECK_EQ(stats.rolled_back, 1);
    CHECK_EQ(stats.allowed + stats.denied, 0);
    /* What a local rule denies at once costs the store nothing. */
    int requests = store.requests;
    result = async(engine, "GET /both", 0);
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(store.requests, requests);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The local rule had nothing left when the store might have been asked, and has now. */
static void relieve(weir *engine)
{
    CHECK_EQ(weir_key_reset(engine, "near", "*", 1, test_seconds(0)), 0);
}

TEST(what_was_not_asked_for_is_not_admitted)
{
    static const char rules[] =
        "rules:\n"
        "  - { name: near, match: { path: /both }, limit: 1, window: 1h }\n"
        "  - { name: far, match: { path: /both }, limit: 5, window: 1h, consistency: strict }\n";
    test_store_open(&store);
    weir *engine = test_strict_engine(rules, WEIR_LOCAL);
    CHECK(async(engine, "GET /both", 0).passes);
    struct result result = run(engine, "GET /both", 0, (struct moment){.asked = relieve});
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(result.answer.decided_by.rule[0], 'f');
    CHECK(result.answer.decision.retry_after_ns > 0 && result.answer.decision.retry_after_ns <= WEIR_SECOND);
    CHECK(async(engine, "GET /both", 0).passes);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(a_shadow_stands_in_the_place_of_its_own_rule)
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

TEST(the_policy_decides_when_the_store_does_not)
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
    CHECK_EQ(result.answer.decided_by.reason, WEIR_BY_FAILURE);
    CHECK_EQ(result.answer.decided_by.error, WEIR_ESTORESLOW);
    /* The host holds the limit alone. */
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
    /* It is back. */
    store.error = 0;
    CHECK_EQ(passing(engine, "GET /shut", 0, 9), 2);
    CHECK_EQ(passing(engine, "GET /here", 0, 9), 2);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(one_counter_that_fails_fails_its_group)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(policies, WEIR_LOCAL);
    store.failing = "far:*";
    store.ask_error = WEIR_ESTOREWRONGTYPE;
    struct result result = async(engine, "GET /mixed", 0);
    CHECK(result.passes);
    CHECK_EQ(result.outcomes[0].error, WEIR_ESTOREWRONGTYPE); /* by the host's own counter */
    CHECK_EQ(result.outcomes[0].reason, WEIR_BY_LIMIT);
    CHECK_EQ(result.outcomes[1].reason, WEIR_BY_FAILURE);
    CHECK_EQ(passing(engine, "GET /mixed", 0, 9), 1);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(without_an_answer_the_policy_decides)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(policies, WEIR_LOCAL);
    /* Nobody asked: as if the store were away. */
    weir_result answer = test_ask(engine, "GET /shut", 0);
    CHECK(!weir_passes(&answer.decision));
    CHECK_EQ(answer.decided_by.error, WEIR_ESTOREBREAKER);
    CHECK_EQ(test_passing(engine, "GET /here", 0, 9), 2);
    CHECK_EQ(test_passing(engine, "GET /open", 0, 9), 9);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* ---- Batches, and rules that change ---- */

TEST(equal_requests_of_a_batch_use_their_own_answers)
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
    test_store_answer(&store, weir_async_request(a));
    for (int i = 0; i < COUNT; i++) {
        weir_result answer;
        if (i == 1)
            continue; /* its client has gone */
        CHECK_EQ(weir_check(engine, &r[i].query, &answer), 0);
        CHECK_EQ(weir_passes(&answer.decision), i < 6);
    }
    CHECK(weir_async_rollback(a) && weir_async_rollback(a)->op_count == 1);
    weir_async_clear(a);
    CHECK_EQ(weir_async_request(a)->op_count, 0);
    CHECK_EQ(weir_check_begin(engine, &r[3].query), 1);
    test_store_answer(&store, weir_async_request(a));
    /* Nobody checks: all of it goes back. */
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

TEST(rules_may_change_while_the_store_is_asked)
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
    struct result result = run(engine, "GET /x", 0, (struct moment){.asked = replace_rules});
    CHECK(result.passes);
    CHECK_EQ(result.answer.outcomes, 2);
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
