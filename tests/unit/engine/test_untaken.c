/* Refunding a complete request: only rules that took something are refunded. */
#include "../../engine.h"

static const char rules[] = "rules:\n"
                            "  - { name: all, limit: 10, window: 1h, algorithm: fixed_window }\n"
                            "  - { name: all, limit: 2, window: 1h, algorithm: fixed_window, shadow: true }\n"
                            "  - { name: wide, limit: 20, window: 1h, algorithm: fixed_window, shadow: true }\n"
                            "  - { name: free, limit: unlimited }\n";

enum { RULES = 4 };

static weir_result check(weir *engine, int64_t cost, const uint64_t *not_taken, size_t count, weir_outcome *outcomes)
{
    struct test_request r;
    weir_result result;
    test_request(&r, "GET /x");
    r.query.now = test_seconds(1);
    r.query.has_cost = true;
    r.query.cost = cost;
    r.query.not_taken = not_taken;
    r.query.not_taken_count = count;
    r.query.outcomes = outcomes;
    r.query.outcomes_max = RULES;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    return result;
}

TEST(units_not_taken_are_not_refunded)
{
    weir *engine = test_engine(rules);
    weir_outcome outcomes[RULES];
    uint64_t not_taken[RULES];
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        check(engine, 1, NULL, 0, outcomes);
    for (int i = 0; i < RULES; i++)
        if (!weir_outcome_took(&outcomes[i]))
            not_taken[count++] = weir_outcome_id(&outcomes[i]);
    CHECK_EQ(count, 2); /* the full shadow rule, and the rule that counts nothing */
    CHECK(weir_outcome_took(&outcomes[0]) && !weir_outcome_took(&outcomes[1]) && weir_outcome_took(&outcomes[2]));

    CHECK_EQ(check(engine, -1, not_taken, count, outcomes).matched, 2);
    CHECK_EQ(check(engine, 0, not_taken, count, outcomes).matched,
             RULES); /* a request that refunds nothing matches all rules */
    CHECK_EQ(outcomes[0].decision.remaining, 8);
    CHECK_EQ(outcomes[1].decision.remaining, 0);
    CHECK_EQ(outcomes[2].decision.remaining, 18);
    check(engine, 1, not_taken, count, outcomes); /* takes: no rule is left out */
    CHECK(!weir_passes(&outcomes[1].decision));
    CHECK_EQ(outcomes[2].decision.remaining, 17);

    check(engine, -1, NULL, 0, outcomes); /* without it every rule is refunded */
    check(engine, 0, NULL, 0, outcomes);
    CHECK_EQ(outcomes[1].decision.remaining, 1);
    weir_close(engine);
}

TEST(rule_is_identified_by_name_and_kind)
{
    weir *engine = test_engine(rules);
    weir_outcome outcomes[RULES], again[RULES];
    check(engine, 1, NULL, 0, outcomes);
    check(engine, 1, NULL, 0, again);
    for (int i = 0; i < RULES; i++)
        for (int k = 0; k < RULES; k++)
            CHECK_EQ(weir_outcome_id(&outcomes[i]) == weir_outcome_id(&again[k]), i == k);
    weir_close(engine);
}

TEST(no_outcomes)
{
    weir *engine = test_engine(rules);
    struct test_request r;
    weir_result result;
    test_request(&r, "GET /x");
    r.query.not_taken_count = 1;
    CHECK_EQ(weir_check(engine, &r.query, &result), WEIR_EINVAL);
    weir_close(engine);
}

/* A counter that could not be reached has taken nothing, and neither has a cost of 0. */
TEST(which_outcomes_took)
{
    weir_outcome one = {.reason = WEIR_BY_LIMIT, .cost = 1, .decision = {.verdict = WEIR_DELAY}};
    CHECK(weir_outcome_took(&one));
    one.cost = 0;
    CHECK(!weir_outcome_took(&one));
    one.cost = 1;
    one.error = WEIR_EBUSY;
    CHECK(!weir_outcome_took(&one));
    one.error = 0;
    one.reason = WEIR_BY_FAILURE;
    CHECK(!weir_outcome_took(&one));
}

TEST_MAIN
