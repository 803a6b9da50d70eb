/* weir_key_take, for a request whose rule and key are known, takes from the same counters as a check. */
#include "../../engine.h"

static const char rules[] =
    "identity: { user_id: header:X-User, tier: header:X-Plan }\n"
    "block: { keys: [ \"user:13\" ] }\n"
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 10, window: 10s }\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 20, window: 1m, shadow: true }\n"
    "  - { name: tried, match: { path: /tried }, limit: 20, window: 1m, shadow: true }\n"
    "  - { name: open, match: { path: /open }, limit: unlimited }\n"
    "  - { name: shut, match: { path: /shut }, limit: 0 }\n"
    "  - { name: all, match: { path: /all }, limit: 3, window: 1m }\n"
    "  - name: both\n"
    "    match: { path: /both }\n"
    "    key: \"user:${user_id}\"\n"
    "    limits: [ { limit: 5, window: 1s }, { limit: 7, window: 1h } ]\n"
    "  - { name: few, match: { path: /few }, algorithm: concurrency, limit: 2, lease: 1m }\n"
    "  - name: tiers\n"
    "    match: { path: /tiers }\n"
    "    key: \"user:${user_id}\"\n"
    "    limit: { gold: 40, default: 4 }\n"
    "    window: 1h\n";

static weir_outcome take(weir *engine, const char *rule, const char *key, int64_t cost, double s)
{
    weir_taken what = {.rule = rule, .key = key, .key_len = strlen(key)};
    weir_outcome outcome = {.cost = -77};
    CHECK_EQ(weir_key_take(engine, &what, cost, test_seconds(s), NULL, &outcome), 0);
    return outcome;
}

static bool passes(weir *engine, const char *rule, const char *key, int64_t cost, double s)
{
    weir_outcome outcome = take(engine, rule, key, cost, s);
    return weir_passes(&outcome.decision);
}

TEST(key_take_shares_the_bucket_with_requests)
{
    weir *engine = test_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /api/x @x-user=7", 0, 8), 8);
    CHECK_EQ(take(engine, "api", "user:7", 1, 0).decision.remaining, 1);
    weir_outcome denied = take(engine, "api", "user:7", 2, 0);
    CHECK_EQ(denied.decision.verdict, WEIR_DENY);
    CHECK_EQ(denied.decision.retry_after_ns, WEIR_SECOND);
    CHECK(passes(engine, "api", "user:7", 1, 0));
    CHECK_EQ(test_passing(engine, "GET /api/x @x-user=7", 0, 5), 0);
    /* Its cost is refilled, for any request that comes first. */
    CHECK(passes(engine, "api", "user:7", 2, 2));
    CHECK(!test_passes(engine, "GET /api/x @x-user=7", 2));
    CHECK(passes(engine, "api", "user:8", 10, 0)); /* another key's */
    weir_close(engine);
}

TEST(key_take_is_counted_as_a_request)
{
    weir *engine = test_engine(rules);
    weir_rule_stats stats;
    for (int i = 0; i < 12; i++)
        (void)take(engine, "api", "user:7", 1, 0);
    CHECK_EQ(weir_rule_stats_read(engine, "api", false, &stats), 0);
    CHECK_EQ(stats.allowed, 10);
    CHECK_EQ(stats.denied, 2);
    CHECK_EQ(weir_rule_stats_read(engine, "api", true, &stats), 0);
    CHECK_EQ(stats.allowed + stats.denied, 0);
    weir_close(engine);
}

TEST(several_limits_are_one_decision)
{
    weir *engine = test_engine(rules);
    for (int i = 0; i < 5; i++)
        CHECK(passes(engine, i % 2 ? "both" : "both/1s", "user:7", 1, 0));
    CHECK(!passes(engine, "both", "user:7", 1, 0));
    CHECK(passes(engine, "both/1h", "user:7", 1, 10));
    CHECK(passes(engine, "both", "user:7", 1, 10));
    /* Seven in the hour: a denial by that limit takes nothing from the other. */
    weir_outcome denied = take(engine, "both/1s", "user:7", 1, 20);
    CHECK_EQ(denied.decision.verdict, WEIR_DENY);
    CHECK(strcmp(denied.rule, "both/1h") == 0);
    weir_close(engine);
}

TEST(rule_without_a_counter_still_decides)
{
    weir *engine = test_engine(rules);
    CHECK(passes(engine, "open", "*", 1000, 0));
    CHECK_EQ(take(engine, "shut", "*", 1, 0).decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(take(engine, "api", "user:13", 1, 0).decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(take(engine, "api", "user:7", 11, 0).decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(take(engine, "all", "*", 1, 0).decision.remaining, 2);
    weir_close(engine);
}

TEST(key_take_uses_the_tier)
{
    weir *engine = test_engine(rules);
    weir_taken what = {.rule = "tiers", .key = "user:7", .key_len = 6, .quota = 40, .window_ns = 3600 * WEIR_SECOND};
    weir_outcome outcome;
    CHECK_EQ(weir_key_take(engine, &what, 5, test_seconds(0), NULL, &outcome), 0);
    CHECK_EQ(outcome.decision.limit, 40);
    CHECK_EQ(take(engine, "tiers", "user:8", 1, 0).decision.limit, 4);
    weir_close(engine);
}

TEST(key_take_acquires_permits)
{
    weir *engine = test_engine(rules);
    weir_taken what = {.rule = "few", .key = "*", .key_len = 1};
    weir_permits one, other;
    weir_outcome outcome;
    CHECK_EQ(weir_key_take(engine, &what, 1, (weir_time){0, 0}, &one, &outcome), 0);
    CHECK_EQ(one.count, 1);
    CHECK_EQ(weir_key_take(engine, &what, 1, (weir_time){0, 0}, &other, &outcome), 0);
    CHECK_EQ(weir_key_take(engine, &what, 1, (weir_time){0, 0}, NULL, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_DENY);
    CHECK_EQ(weir_permits_release(engine, &one), 1);
    CHECK_EQ(weir_key_take(engine, &what, 1, (weir_time){0, 0}, NULL, &outcome), 0);
    CHECK(weir_passes(&outcome.decision));
    weir_close(engine);
}

TEST(invalid_arguments_are_refused)
{
    weir *engine = test_engine(rules);
    weir_taken what = {.rule = "gone", .key = "user:7", .key_len = 6};
    weir_outcome outcome;
    weir_time now = test_seconds(0);
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_ENORULE);
    what.rule = "tried"; /* a shadow rule decides nothing */
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_ENORULE);
    what.rule = "api";
    CHECK_EQ(weir_key_take(engine, &what, -1, now, NULL, &outcome), WEIR_ECOST);
    CHECK_EQ(weir_key_take(engine, &what, INT64_MAX, now, NULL, &outcome), WEIR_ECOST);
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_key_take(engine, NULL, 1, now, NULL, &outcome), WEIR_EINVAL);
    CHECK_EQ(weir_key_take(engine, &what, 1, (weir_time){-1, 0}, NULL, &outcome), WEIR_ETIME);
    what.key_len = 0;
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_EKEYEMPTY);
    weir_close(engine);
}

TEST(other_rules_are_all_or_nothing)
{
    weir *engine = test_engine(rules);
    weir_taken what = {.rule = "api", .key = "user:7", .key_len = 6};
    weir_outcome outcome;
    weir_time now = test_seconds(0);
    /* "all" of the shared key, "both" of user:7, and a removed rule. */
    const char *others = "616c6c.2a..1;626f7468.757365723a37..2;676f6e65.2a..1";
    what.others = (weir_text){others, strlen(others)};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), 0);
        CHECK(weir_passes(&outcome.decision));
    }
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), 0); /* 5 a second: it has taken 4 */
    CHECK(!weir_passes(&outcome.decision) && strncmp(outcome.rule, "both", 4) == 0);
    CHECK_EQ(take(engine, "api", "user:7", 0, 0).decision.remaining, 8);
    CHECK_EQ(take(engine, "all", "*", 0, 0).decision.remaining, 1);
    static const char *const bad[] = {"616c6c.2a..1;",
                                      ";616c6c.2a..1",
                                      "616c6c.2a.1",
                                      "616c6c.2a..",
                                      "616c6c.2a..0",
                                      "616c6c.2a..-1",
                                      "616c6c...1",
                                      ".2a..1",
                                      "616c6.2a..1",
                                      "616C6C.2a..1",
                                      "x",
                                      "616c6c.2a..1 ",
                                      "616c6c.2a..99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        what.others = (weir_text){bad[i], strlen(bad[i])};
        CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_EINVAL);
    }
    char many[WEIR_OTHERS_BYTES + 1];
    memset(many, '6', sizeof many);
    what.others = (weir_text){many, sizeof many};
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_EINVAL);
    for (size_t i = 0; i < WEIR_OTHERS_MAX + 1; i++)
        memcpy(many + 9 * i, "61.2a..1;", 9);
    what.others = (weir_text){many, 9 * (WEIR_OTHERS_MAX + 1) - 1};
    CHECK_EQ(weir_key_take(engine, &what, 1, now, NULL, &outcome), WEIR_EINVAL);
    CHECK_EQ(take(engine, "api", "user:7", 0, 0).decision.remaining, 8);
    weir_close(engine);
}

TEST(long_keys_are_cut_as_requests_cut_them)
{
    weir *engine = test_engine(rules);
    char key[400] = "user:", line[460];
    memset(key + 5, 'x', 300);
    key[305] = 0;
    snprintf(line, sizeof line, "GET /api/x @x-user=%s", key + 5);
    CHECK_EQ(test_passing(engine, line, 0, 9), 9);
    CHECK(passes(engine, "api", key, 1, 0));
    CHECK(!passes(engine, "api", key, 1, 0));
    weir_close(engine);
}

TEST_MAIN
