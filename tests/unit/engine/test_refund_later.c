/* Settling an earlier take, and the secret of tickets. */
#include "../../engine.h"

static const char rules[] =
    "identity: { user_id: header:X-User, tier: header:X-Plan }\n"
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 10, window: 1m }\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 20, window: 1m, shadow: true }\n"
    "  - { name: open, match: { path: /open }, limit: unlimited }\n"
    "  - name: tiers\n"
    "    match: { path: /tiers }\n"
    "    key: \"user:${user_id}\"\n"
    "    limit: { gold: 40, default: 4 }\n"
    "    window: 1h\n";

#define MINUTE (60 * WEIR_SECOND)

static weir_decision settle(weir *engine, weir_taken taken, int64_t amount, double s)
{
    weir_decision decision = {.remaining = -77};
    CHECK_EQ(weir_key_settle(engine, &taken, amount, test_seconds(s), &decision), 0);
    return decision;
}

TEST(settling_refunds_or_charges)
{
    weir *engine = test_engine(rules);
    weir_taken taken = {.rule = "api", .key = "user:7", .key_len = 6, .quota = 10, .window_ns = MINUTE};
    CHECK_EQ(test_passing(engine, "GET /api/x @x-user=7", 0, 8), 8);
    CHECK_EQ(settle(engine, taken, -3, 0).remaining, 5);
    CHECK_EQ(settle(engine, taken, 4, 0).remaining, 1);
    CHECK_EQ(settle(engine, taken, 4, 0).remaining, -3);
    CHECK_EQ(settle(engine, taken, 0, 0).remaining, -3);
    CHECK_EQ(settle(engine, taken, -1000, 0).remaining, 10);
    /* The shadow rule of the same name counts separately. */
    taken.shadow = true;
    taken.quota = 20;
    CHECK_EQ(settle(engine, taken, 0, 0).remaining, 12);
    weir_close(engine);
}

TEST(settling_uses_the_tier_of_the_take)
{
    weir *engine = test_engine(rules);
    weir_taken taken = {.rule = "tiers", .key = "user:7", .key_len = 6, .quota = 40, .window_ns = 60 * MINUTE};
    CHECK_EQ(settle(engine, taken, 5, 0).limit, 40);
    taken.quota = 4;
    CHECK_EQ(settle(engine, taken, 0, 0).limit, 4);
    taken.quota = 5; /* changed meanwhile: the first */
    CHECK_EQ(settle(engine, taken, 0, 0).limit, 4);
    weir_close(engine);
}

TEST(invalid_arguments_are_refused)
{
    weir *engine = test_engine(rules);
    weir_taken taken = {.rule = "gone", .key = "user:7", .key_len = 6};
    weir_decision decision;
    weir_time now = test_seconds(0);
    CHECK_EQ(weir_key_settle(engine, &taken, -1, now, &decision), WEIR_ENORULE);
    taken.rule = "open";
    CHECK_EQ(weir_key_settle(engine, &taken, -1, now, &decision), WEIR_ENORULE);
    taken.rule = "api";
    CHECK_EQ(weir_key_settle(engine, &taken, INT64_MIN, now, &decision), WEIR_ECOST);
    CHECK_EQ(weir_key_settle(engine, &taken, -1, now, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_key_settle(engine, NULL, -1, now, &decision), WEIR_EINVAL);
    taken.key_len = 0;
    CHECK_EQ(weir_key_settle(engine, &taken, -1, now, &decision), WEIR_EKEYEMPTY);
    weir_close(engine);
}

TEST(secrets_differ_by_purpose_and_by_segment)
{
    weir *one = test_engine(rules), *other = test_engine(rules);
    uint8_t a[WEIR_SECRET_BYTES], b[WEIR_SECRET_BYTES];
    CHECK_EQ(weir_segment_secret(weir_engine_segment(one), "tickets", a), 0);
    CHECK_EQ(weir_segment_secret(weir_engine_segment(one), "tickets", b), 0);
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK(memcmp(a, a + 8, 8) != 0 && memcmp(a, a + 16, 8) != 0);
    CHECK_EQ(weir_segment_secret(weir_engine_segment(one), "ticket", b), 0);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK_EQ(weir_segment_secret(weir_engine_segment(other), "tickets", b), 0);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK_EQ(weir_segment_secret(weir_engine_segment(one), "", b), WEIR_EINVAL);
    CHECK_EQ(weir_segment_secret(NULL, "tickets", b), WEIR_EINVAL);
    weir_close(one);
    weir_close(other);
}

TEST_MAIN
