/* One key under one rule: state, reset, block. */
#include "../../engine.h"

static const char rules[] =
    "identity: { user_id: header:X-User, tier: header:X-Plan }\n"
    "block: { keys: [\"user:bad\"] }\n"
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 5, window: 1m }\n"
    "  - { name: one, match: { path: /one }, limit: 3, window: 10s }\n"
    "  - name: two\n"
    "    match: { path: /two }\n"
    "    key: \"user:${user_id}\"\n"
    "    limits: [ { limit: 3, window: 1s }, { limit: 5, window: 1h } ]\n"
    "  - name: tiers\n"
    "    match: { path: /tiers }\n"
    "    key: \"user:${user_id}\"\n"
    "    limit: { gold: 4, lead: 0, free: unlimited, default: 2 }\n"
    "    window: 1h\n"
    "    algorithm: sliding_window_counter\n"
    "  - { name: closed, match: { path: /closed }, key: \"${user_id}\", limit: 0, window: 1m }\n"
    "  - { name: open, match: { path: /open }, key: \"${user_id}\", limit: unlimited }\n"
    "  - { name: both, match: { path: /both }, key: \"${user_id}\", limit: 2, window: 1m }\n"
    "  - { name: both, match: { path: /both }, key: \"${user_id}\", limit: 1, window: 1m,"
    " shadow: true }\n"
    "  - { name: ghost, match: { path: /both }, key: \"${user_id}\", limit: 7, window: 1m,"
    " shadow: true }\n"
    "  - name: paced\n"
    "    match: { path: /paced }\n"
    "    limit: 1\n"
    "    window: 1s\n"
    "    burst: 5\n"
    "    algorithm: leaky_bucket\n"
    "    on_limit: delay\n";

#define KEY(text) (text), sizeof(text) - 1

static weir_outcome state(weir *engine, const char *rule, const char *key, double s)
{
    weir_outcome outcome = {.error = 77};
    CHECK_EQ(weir_key_state(engine, rule, key, strlen(key), test_seconds(s), &outcome), 0);
    return outcome;
}

TEST(state_has_the_remaining_units_and_takes_nothing)
{
    weir *engine = test_engine(rules);
    weir_outcome fresh = state(engine, "api", "user:7", 0);
    CHECK_EQ(fresh.decision.verdict, WEIR_ALLOW);
    CHECK_EQ(fresh.decision.limit, 5);
    CHECK_EQ(fresh.decision.remaining, 5);
    CHECK_EQ(fresh.decision.reset_after_ns, 0);
    CHECK_EQ(fresh.quota, 5);
    CHECK(strcmp(fresh.rule, "api") == 0 && strcmp(fresh.key, "user:7") == 0);

    CHECK_EQ(test_passing(engine, "GET /api/x @x-user=7", 0, 3), 3);
    weir_outcome used = state(engine, "api", "user:7", 0);
    CHECK_EQ(used.decision.remaining, 2);
    CHECK_EQ(used.decision.reset_after_ns, 36 * WEIR_SECOND);
    CHECK_EQ(state(engine, "api", "user:8", 0).decision.remaining, 5);
    CHECK_EQ(test_passing(engine, "GET /api/x @x-user=7", 0, 9), 2);
    weir_outcome drained = state(engine, "api", "user:7", 0);
    CHECK_EQ(drained.decision.verdict, WEIR_DENY);
    CHECK_EQ(drained.decision.remaining, 0);
    CHECK_EQ(drained.decision.retry_after_ns, 12 * WEIR_SECOND);
    weir_close(engine);
}

TEST(rule_without_a_key_is_addressed_by_a_star)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /one", 0, 9), 3);
    CHECK_EQ(state(engine, "one", "*", 0).decision.remaining, 0);
    CHECK_EQ(weir_key_reset(engine, "one", KEY("*"), test_seconds(0)), 0);
    CHECK_EQ(test_passing(engine, "GET /one", 0, 9), 3);
    weir_close(engine);
}

TEST(several_limits_by_the_name_of_their_rule)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /two @x-user=7", 0, 9), 3);
    weir_outcome tightest = state(engine, "two", "user:7", 0);
    CHECK(strcmp(tightest.rule, "two/1s") == 0);
    CHECK_EQ(tightest.decision.verdict, WEIR_DENY);
    CHECK_EQ(state(engine, "two/1h", "user:7", 0).decision.remaining, 2);
    CHECK(strcmp(state(engine, "two", "user:7", 2).rule, "two/1h") == 0);

    CHECK_EQ(weir_key_reset(engine, "two/1h", KEY("user:7"), test_seconds(0)), 0);
    CHECK_EQ(test_passing(engine, "GET /two @x-user=7", 0, 9), 0);
    CHECK_EQ(weir_key_reset(engine, "two", KEY("user:7"), test_seconds(0)), 0);
    CHECK_EQ(test_passing(engine, "GET /two @x-user=7", 0, 9), 3);
    weir_close(engine);
}

TEST(reset_and_block_apply_to_all_tiers)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /tiers @x-user=7 @x-plan=gold", 0, 9), 4);
    CHECK_EQ(weir_key_reset(engine, "tiers", KEY("user:7"), test_seconds(0)), 0);
    CHECK_EQ(test_passing(engine, "GET /tiers @x-user=7 @x-plan=gold", 0, 9), 4);
    CHECK_EQ(weir_key_reset(engine, "tiers", KEY("user:7"), test_seconds(0)), 0);
    CHECK_EQ(state(engine, "tiers", "user:7", 0).decision.limit, 2);

    CHECK_EQ(weir_key_block(engine, "tiers", KEY("user:7"), 60 * WEIR_SECOND, test_seconds(0)), 0);
    CHECK(!test_passes(engine, "GET /tiers @x-user=7 @x-plan=gold", 1));
    CHECK(!test_passes(engine, "GET /tiers @x-user=7", 1));
    CHECK(test_passes(engine, "GET /tiers @x-user=7 @x-plan=free", 1)); /* has no limit, so no counter to block */
    weir_close(engine);
}

TEST(block_and_unblock)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(weir_key_block(engine, "api", KEY("user:7"), 60 * WEIR_SECOND, test_seconds(0)), 0);
    weir_outcome blocked = state(engine, "api", "user:7", 10);
    CHECK_EQ(blocked.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(blocked.decision.retry_after_ns, 50 * WEIR_SECOND);
    CHECK_EQ(blocked.decision.remaining, 5);
    CHECK(!test_passes(engine, "GET /api/x @x-user=7", 10));
    CHECK(test_passes(engine, "GET /api/x @x-user=8", 10));
    CHECK_EQ(weir_key_reset(engine, "api", KEY("user:7"), test_seconds(10)), 0);
    CHECK(!test_passes(engine, "GET /api/x @x-user=7", 10)); /* a reset leaves the block */
    CHECK_EQ(weir_key_block(engine, "api", KEY("user:7"), 0, test_seconds(10)), 0);
    CHECK(test_passes(engine, "GET /api/x @x-user=7", 10));
    weir_close(engine);
}

TEST(state_without_a_counter)
{
    weir *engine = test_engine(rules);
    weir_outcome banned = state(engine, "closed", "7", 0);
    CHECK_EQ(banned.reason, WEIR_BY_BAN);
    CHECK_EQ(banned.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(state(engine, "open", "7", 0).reason, WEIR_BY_UNLIMITED);
    CHECK_EQ(weir_key_reset(engine, "closed", KEY("7"), test_seconds(0)), 0);
    CHECK_EQ(weir_key_block(engine, "open", KEY("7"), WEIR_SECOND, test_seconds(0)), WEIR_ELIMIT);
    CHECK_EQ(weir_key_block(engine, "closed", KEY("7"), WEIR_SECOND, test_seconds(0)), WEIR_ELIMIT);
    weir_outcome bad = state(engine, "api", "user:bad", 0);
    CHECK_EQ(bad.reason, WEIR_BY_BLOCK_LIST);
    CHECK_EQ(bad.decision.verdict, WEIR_BLOCKED);
    weir_close(engine);
}

TEST(enforced_rule_is_preferred_to_its_shadow)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(state(engine, "both", "7", 0).decision.limit, 2);
    CHECK(!state(engine, "both", "7", 0).shadow);
    CHECK_EQ(state(engine, "ghost", "7", 0).decision.limit, 7);
    CHECK(state(engine, "ghost", "7", 0).shadow);
    weir_close(engine);
}

TEST(state_of_a_queue_has_the_wait)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /paced", 0, 2), 2);
    weir_outcome queue = state(engine, "paced", "*", 0);
    CHECK_EQ(queue.decision.verdict, WEIR_DELAY);
    CHECK_EQ(queue.decision.delay_ns, 2 * WEIR_SECOND);
    CHECK_EQ(queue.decision.remaining, 3);
    weir_close(engine);
}

TEST(long_keys_are_cut_as_templates_cut_them)
{
    weir *engine = test_engine(rules);
    char line[1024], key[700], user[600];
    for (size_t len = 245; len < 260; len++) {
        memset(user, 'a' + (int)(len % 26), len);
        user[len] = 0;
        snprintf(line, sizeof line, "GET /api/x @x-user=%s", user);
        snprintf(key, sizeof key, "user:%s", user);
        CHECK_EQ(test_passing(engine, line, 0, 9), 5);
        CHECK_EQ(state(engine, "api", key, 0).decision.remaining, 0);
        CHECK_EQ(weir_key_reset(engine, "api", key, strlen(key), test_seconds(0)), 0);
        CHECK_EQ(test_passing(engine, line, 0, 9), 5);
    }
    weir_close(engine);
}

TEST(descriptors_have_keys_too)
{
    weir *engine = test_engine("domain: shop\ndescriptors:\n"
                               "  - { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }\n");
    weir_descriptor_entry entry = {.key = {"user", 4}, .value = {"7", 1}};
    weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    weir_outcome outcome;
    weir_descriptor_query query = {.domain = {"shop", 4},
                                   .descriptors = &descriptor,
                                   .descriptor_count = 1,
                                   .now = test_seconds(0),
                                   .outcomes = &outcome};
    weir_result result;
    CHECK_EQ(weir_check_descriptors(engine, &query, &result), 0);
    CHECK_EQ(outcome.decision.remaining, 2);
    CHECK_EQ(state(engine, outcome.rule, outcome.key, 0).decision.remaining, 2);
    CHECK_EQ(weir_key_reset(engine, outcome.rule, outcome.key, strlen(outcome.key), test_seconds(0)), 0);
    CHECK_EQ(state(engine, outcome.rule, outcome.key, 0).decision.remaining, 3);
    weir_close(engine);
}

TEST(invalid_arguments_are_refused)
{
    weir *engine = test_engine(rules);
    weir_outcome untouched = {.cost = 77};
    weir_time now = test_seconds(0);
    CHECK_EQ(weir_key_state(engine, "nobody", KEY("x"), now, &untouched), WEIR_ENORULE);
    CHECK_EQ(weir_key_reset(engine, "ap", KEY("x"), now), WEIR_ENORULE);
    CHECK_EQ(weir_key_block(engine, "", KEY("x"), WEIR_SECOND, now), WEIR_ENORULE);
    CHECK_EQ(weir_key_state(engine, "api", "", 0, now, &untouched), WEIR_EKEYEMPTY);
    CHECK_EQ(weir_key_state(engine, "api", NULL, 5, now, &untouched), WEIR_EINVAL);
    CHECK_EQ(weir_key_state(NULL, "api", KEY("x"), now, &untouched), WEIR_EINVAL);
    CHECK_EQ(weir_key_state(engine, NULL, KEY("x"), now, &untouched), WEIR_EINVAL);
    CHECK_EQ(weir_key_state(engine, "api", KEY("x"), now, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_key_state(engine, "api", KEY("x"), (weir_time){-1, 0}, &untouched), WEIR_ETIME);
    CHECK_EQ(weir_key_block(engine, "api", KEY("x"), -1, now), WEIR_EINVAL);
    CHECK_EQ(weir_key_block(engine, "api", KEY("x"), INT64_MAX, now), WEIR_EWINDOW);
    CHECK_EQ(untouched.cost, 77);
    CHECK_EQ(weir_key_state(engine, "api", KEY("x"), (weir_time){0, 0}, &untouched), 0); /* reads the clock */
    weir_close(engine);
}

TEST_MAIN
