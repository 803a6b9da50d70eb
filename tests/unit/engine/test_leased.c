/* Leased rules in an evaluation: what slots pay for, what the store decides, and what is put back. The store is
 * simulated. */
#include "strict_requests.h"

#include "engine/fast_result.h"
#include "engine/leased.h"
#include "table/leased.h"

static const char rules[] =
    "rules:\n"
    "  - { name: api, match: { path: [/api, /both, /also] }, key: \"u:${user_id}\", limit: 500, window: 1h,\n"
    "      consistency: leased }\n"
    "  - { name: quota, match: { path: /both }, key: \"q:${user_id}\", limit: 5, window: 1d, algorithm: fixed_window,\n"
    "      consistency: strict }\n"
    "  - { name: near, match: { path: /also }, limit: 2, window: 1h, consistency: local }\n"
    "  - { name: seen, match: { path: /seen }, key: \"u:${user_id}\", limit: 500, window: 1h, shadow: true,\n"
    "      consistency: leased }\n";

/* Without a strict rule: the fast path may decide. */
static const char leased_only[] =
    "rules:\n"
    "  - { name: api, match: { path: [/api, /also] }, key: \"u:${user_id}\", limit: 500, window: 1h,\n"
    "      consistency: leased }\n"
    "  - { name: near, match: { path: /also }, limit: 2, window: 1h, consistency: local }\n";

static weir *open_engine(const char *text)
{
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_text = text,
                         .diagnose = test_print_diagnostic,
                         .flags = WEIR_NO_CONNECT,
                         .store = "redis://127.0.0.1:1",
                         .ledger = "",
                         .ledger_bytes = 1 << 20};
    weir *engine = NULL;
    test_store_open(&store);
    CHECK_EQ(weir_open(&kind, &engine), 0);
    return engine;
}

static void close_engine(weir *engine)
{
    weir_close(engine);
    weir_segment_close(store.segment);
}

static bool real_time; /* the lease ends a minute from now; else at 100 s of the tests' time */

/* Puts a lease of the first user into the slot, or, with `count` < 0, reads it. */
static int64_t units(weir *engine, const char *name, int64_t count, int64_t pool)
{
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const struct weir__rule *rule = weir__rule_named(ruleset->rules, name, false);
    rule = rule ? rule : weir__rule_named(ruleset->rules, name, true);
    weir_segment *segment = engine->segment;
    weir_time now = real_time ? weir_clock(segment) : test_seconds(1);
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), now);
    struct weir__key_location where;
    struct weir__leased leased, grant = {count, pool, now.mono_ns / 1000 + (real_time ? 60000000 : 99000000)};
    weir__leased_locate(&op, weir__counter_hash(segment, &rule->quotas[0].limit, "u:1", 3), &where);
    CHECK_EQ(
        count < 0 ? weir__leased_read(&op, &where, &leased) : weir__leased_put(&op, &where, &grant, false, &leased), 0);
    weir__hazard_release(&engine->hazards, at);
    return leased.units;
}

static int64_t left(weir *engine, const char *name)
{
    return units(engine, name, -1, 0);
}

TEST(slot_pays_without_the_store)
{
    static const char *const texts[] = {rules, leased_only};
    for (int i = 0; i < 2; i++) {
        weir *engine = open_engine(texts[i]);
        units(engine, "api", 200, 50);
        struct result result = async(engine, "GET /api user_id=1", 1);
        CHECK_EQ(result.prepared, 0);
        CHECK(result.passes);
        CHECK_EQ(result.checked.decision.limit, 500);
        CHECK_EQ(result.checked.decision.remaining, 249);
        CHECK_EQ(left(engine, "api"), 199);
        CHECK_EQ(passing(engine, "GET /api user_id=1", 1, 199), 199); /* also the last ones */
        CHECK_EQ(left(engine, "api"), 0);
        CHECK_EQ(store.requests, 0);
        result = async(engine, "GET /api user_id=1", 1);
        CHECK_EQ(result.prepared, 1); /* the store decides */
        CHECK(result.passes);
        weir_rule_stats stats;
        CHECK_EQ(weir_rule_stats_read(engine, "api", false, &stats), 0);
        CHECK_EQ(stats.allowed, 201);
        weir_ledger_stats ledger;
        CHECK_EQ(weir_ledger_stats_read(engine, &ledger), 0);
        CHECK_EQ(ledger.lease_waits, 1);
        close_engine(engine);
    }
}

/* The gateway's first try of a request: 1 if it is decided. */
static int here(weir *engine, const char *line, weir_result *result)
{
    static struct weir__second reset;
    static char text[WEIR__FAST_RESULT_BYTES];
    struct weir__fast_result fast = {.reset = &reset, .text = text};
    struct test_request r;
    test_request(&r, line);
    r.query.now = test_seconds(1);
    int decided = weir__check_here(engine, &r.query, result, &fast);
    if (fast.filled)
        *result = (weir_result){.decision = {.verdict = WEIR_ALLOW, .remaining = fast.remaining}};
    return decided;
}

TEST(without_a_wait_only_slots_decide)
{
    weir *engine = open_engine(leased_only);
    weir_result result;
    weir_rule_stats stats;
    CHECK_EQ(here(engine, "GET /api user_id=1", &result), 0);
    units(engine, "api", 10, 50);
    CHECK_EQ(here(engine, "GET /api user_id=1", &result), 1);
    CHECK(weir_passes(&result.decision));
    CHECK_EQ(result.decision.remaining, 59);
    CHECK_EQ(here(engine, "GET /also user_id=1", &result), 0); /* the local rule's counter is not in its slot yet */
    CHECK_EQ(passing(engine, "GET /also user_id=1", 1, 1), 1);
    CHECK_EQ(here(engine, "GET /also user_id=1", &result), 1);
    CHECK_EQ(left(engine, "api"), 7);
    CHECK_EQ(here(engine, "GET /also user_id=1", &result), 0); /* denied by the local rule: not here */
    CHECK_EQ(left(engine, "api"), 7);
    CHECK_EQ(weir_rule_stats_read(engine, "api", false, &stats), 0);
    CHECK_EQ(stats.allowed, 3);
    CHECK_EQ(stats.denied, 0);
    CHECK_EQ(store.requests, 0);
    close_engine(engine);

    engine = open_engine(rules); /* any request may need the store */
    units(engine, "api", 10, 50);
    CHECK_EQ(here(engine, "GET /api user_id=1", &result), 0);
    CHECK_EQ(left(engine, "api"), 10);
    close_engine(engine);

    engine = test_engine(leased_only); /* no store */
    for (int i = 0; i < 2; i++)
        CHECK(here(engine, "GET /also user_id=1", &result) == 1 && weir_passes(&result.decision));
    CHECK(here(engine, "GET /also user_id=1", &result) == 1 && !weir_passes(&result.decision));
    weir_close(engine);
}

/* Tiers have one counter in the store, but each has its own limit: none spends what another has leased. */
TEST(tiers_have_leases_of_their_own)
{
    weir *engine = open_engine("identity: { tier: header:X-Plan }\n"
                               "rules: [{ name: api, match: { path: /api }, key: \"u:${user_id}\", window: 1h,\n"
                               "  limit: { default: 500, gold: 900 }, consistency: leased }]\n");
    units(engine, "api", 20, 0);
    CHECK_EQ(async(engine, "GET /api user_id=1 @x-plan=gold", 1).prepared, 1);
    CHECK_EQ(left(engine, "api"), 20);
    CHECK_EQ(async(engine, "GET /api user_id=1", 1).prepared, 0);
    CHECK_EQ(left(engine, "api"), 19);
    close_engine(engine);
}

TEST(lease_that_has_ended_pays_nothing)
{
    weir *engine = open_engine(leased_only);
    units(engine, "api", 200, 50);
    CHECK_EQ(async(engine, "GET /api user_id=1", 99.9).prepared, 0);
    CHECK_EQ(async(engine, "GET /api user_id=1", 100).prepared, 1);
    close_engine(engine);
}

TEST(cost_that_does_not_fit_is_for_the_store)
{
    weir *engine = open_engine(leased_only);
    units(engine, "api", 10, 50);
    CHECK_EQ(run(engine, "GET /api user_id=1", 1, (struct moment){.cost = 11}).prepared, 1);
    CHECK_EQ(left(engine, "api"), 10);
    CHECK_EQ(run(engine, "GET /api user_id=1", 1, (struct moment){.cost = 10}).prepared, 0);
    CHECK_EQ(left(engine, "api"), 0);
    close_engine(engine);
}

TEST(looks_refunds_and_dry_runs_do_not_spend)
{
    weir *engine = open_engine(leased_only);
    units(engine, "api", 200, 50);
    CHECK_EQ(run(engine, "GET /api user_id=1", 1, (struct moment){.look = true}).prepared, 1);
    CHECK_EQ(run(engine, "GET /api user_id=1", 1, (struct moment){.cost = -3}).prepared, 1);
    CHECK_EQ(run(engine, "GET /api user_id=1", 1, (struct moment){.dry_run = true}).prepared, 1);
    CHECK_EQ(left(engine, "api"), 200);
    close_engine(engine);
}

/* All or nothing with a strict and with a local rule. */
TEST(denied_request_puts_back)
{
    weir *engine = open_engine(rules);
    units(engine, "api", 200, 0);
    struct result result = async(engine, "GET /both user_id=1", 1);
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(left(engine, "api"), 199);
    CHECK_EQ(passing(engine, "GET /both user_id=1", 1, 10), 4);
    CHECK_EQ(left(engine, "api"), 195);
    CHECK_EQ(passing(engine, "GET /also user_id=1", 1, 10), 2);
    CHECK_EQ(left(engine, "api"), 193);
    close_engine(engine);
    engine = open_engine(leased_only);
    units(engine, "api", 5, 0);
    CHECK_EQ(passing(engine, "GET /also user_id=1", 1, 10), 2);
    CHECK_EQ(left(engine, "api"), 3);
    CHECK_EQ(store.requests, 0);
    close_engine(engine);
}

TEST(check_that_is_given_up_puts_back)
{
    weir *engine = open_engine(rules);
    struct test_request r;
    weir_async *async = NULL;
    real_time = true;
    units(engine, "api", 10, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weir_async_new(engine, &async), 0);
        test_request(&r, "GET /both user_id=1");
        r.query.async = async;
        CHECK_EQ(weir_check_begin(engine, &r.query), 1);
        CHECK_EQ(left(engine, "api"), 9);
        if (i)
            weir_async_clear(async);
        weir_async_free(async);
        CHECK_EQ(left(engine, "api"), 10);
    }
    real_time = false;
    close_engine(engine);
}

static void empty_slot(weir *engine)
{
    units(engine, "api", 0, 0);
}

/* Another process empties the slot between preparation and check. */
TEST(emptied_slot_never_admits)
{
    weir *engine = open_engine(leased_only);
    units(engine, "api", 400, 0);
    struct result result = run(engine, "GET /api user_id=1", 1, (struct moment){.before_check = empty_slot});
    CHECK_EQ(result.prepared, 0);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decision.retry_after_ns, WEIR_SECOND / 1000);
    units(engine, "api", 3, 0); /* with few units the request has spent them before */
    result = run(engine, "GET /api user_id=1", 1, (struct moment){.before_check = empty_slot});
    CHECK(result.passes);
    close_engine(engine);
}

/* Checks of one async, as of a batch or a pipeline: begun together, and made in the same order. Returns how many pass.
 */
static int together(weir *engine, const char *const *lines, int count, int *begun)
{
    static struct test_request r[200];
    weir_async *async = NULL;
    int passed = 0;
    *begun = 0;
    CHECK_EQ(weir_async_new(engine, &async), 0);
    for (int i = 0; i < count; i++) {
        test_request(&r[i], lines[lines[1] ? i : 0]);
        r[i].query.now = test_seconds(1);
        r[i].query.async = async;
        *begun += weir_check_begin(engine, &r[i].query) == 1;
    }
    if (*begun)
        test_store_execute(&store, weir_async_request(async));
    for (int i = 0; i < count; i++) {
        weir_result result;
        CHECK_EQ(weir_check(engine, &r[i].query, &result), 0);
        passed += weir_passes(&result.decision);
    }
    CHECK(!weir_async_rollback(async));
    weir_async_free(async);
    return passed;
}

/* One check spends, one sends an op, and a third one's slot has plenty: each passes, and spends at most once. */
TEST(checks_of_one_request_do_not_deny_each_other)
{
    static const char *const lines[][3] = {
        {"GET /api user_id=2", "GET /api user_id=3", "GET /api user_id=1"},
        {"GET /api user_id=1", "GET /api user_id=2", "GET /api user_id=3"},
        {"GET /api user_id=2", "GET /api user_id=1", "GET /api user_id=1"},
    };
    static const int spent[] = {1, 1, 2}, sent[] = {2, 2, 1};
    for (int i = 0; i < 3; i++)
        for (int64_t units_there = 10; units_there <= 400; units_there += 390) {
            int begun;
            weir *engine = open_engine(leased_only);
            units(engine, "api", units_there, 50);
            CHECK_EQ(together(engine, lines[i], 3, &begun), 3);
            CHECK_EQ(begun, sent[i]);
            CHECK_EQ(left(engine, "api"), units_there - spent[i]);
            close_engine(engine);
        }
}

/* What exceeds the slot is for the store, which has units. */
TEST(checks_of_one_key_begun_together_all_pass)
{
    static const char *const line[] = {"GET /api user_id=1", NULL};
    static const int64_t there[] = {3, 63, 65, 100, 199, 200, 264, 300};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        int begun;
        weir *engine = open_engine(leased_only);
        units(engine, "api", there[i], 350);
        CHECK_EQ(together(engine, line, 200, &begun), 200);
        CHECK_EQ(begun, there[i] < 200 ? 200 - there[i] : 0);
        CHECK_EQ(left(engine, "api"), there[i] < 200 ? 0 : there[i] - 200);
        close_engine(engine);
    }
}

/* Another process empties the slot that the first check relies on, and the agent refills it before the check. */
TEST(check_spends_although_an_op_was_sent_for_another)
{
    static const char *const lines[] = {"GET /api user_id=1", "GET /api user_id=2"};
    struct test_request r[2];
    weir_async *async = NULL;
    weir *engine = open_engine(leased_only);
    CHECK_EQ(weir_async_new(engine, &async), 0);
    units(engine, "api", 400, 0);
    for (int i = 0; i < 2; i++) {
        test_request(&r[i], lines[i]);
        r[i].query.now = test_seconds(1);
        r[i].query.async = async;
        CHECK_EQ(weir_check_begin(engine, &r[i].query), i);
        units(engine, "api", 0, 0);
    }
    units(engine, "api", 20, 0);
    test_store_execute(&store, weir_async_request(async));
    for (int i = 0; i < 2; i++) {
        weir_result result;
        CHECK_EQ(weir_check(engine, &r[i].query, &result), 0);
        CHECK(weir_passes(&result.decision));
    }
    CHECK_EQ(left(engine, "api"), 19);
    weir_async_free(async);
    close_engine(engine);
}

static void fill_slot(weir *engine)
{
    units(engine, "api", 20, 0);
}

/* The agent refills the slot between the store's reply and the check: the reply decides, and nothing is refunded. */
TEST(check_uses_the_reply_to_its_op_before_the_slot)
{
    weir *engine = open_engine(leased_only);
    struct result result = run(engine, "GET /api user_id=1", 1, (struct moment){.before_check = fill_slot});
    CHECK_EQ(result.prepared, 1);
    CHECK(result.passes);
    CHECK_EQ(result.back, 0);
    CHECK_EQ(left(engine, "api"), 20);
    close_engine(engine);
}

/* An op of a strict rule that was not sent is still known as such if a leased check comes first. */
TEST(skipped_ops_of_other_checks_stay_known)
{
    static const char *const lines[] = {"GET /both user_id=1", "GET /both user_id=2", "GET /api user_id=1"};
    int begun;
    weir *engine = open_engine(rules);
    CHECK_EQ(passing(engine, "GET /both user_id=1", 1, 10), 5);
    CHECK_EQ(passing(engine, "GET /both user_id=2", 1, 10), 5); /* both are remembered as denied */
    units(engine, "api", 100, 0);
    CHECK_EQ(together(engine, lines, 3, &begun), 1);
    CHECK_EQ(begun, 0);
    CHECK_EQ(left(engine, "api"), 99);
    close_engine(engine);
}

TEST(shadow_rule_has_a_lease_of_its_own)
{
    weir *engine = open_engine(rules);
    units(engine, "seen", 100, 0);
    CHECK_EQ(passing(engine, "GET /seen user_id=1", 1, 30), 30);
    CHECK_EQ(left(engine, "seen"), 70);
    CHECK_EQ(store.requests, 0);
    close_engine(engine);
}

TEST(blocked_key_is_denied_and_spends_nothing)
{
    weir *engine = open_engine(leased_only);
    units(engine, "api", 100, 0);
    CHECK_EQ(weir_key_block(engine, "api", "u:1", 3, 60 * WEIR_SECOND, test_seconds(1)), 0);
    struct result result = async(engine, "GET /api user_id=1", 2);
    CHECK(!result.passes);
    CHECK_EQ(result.checked.decision.verdict, WEIR_BLOCKED);
    CHECK_EQ(left(engine, "api"), 100);
    CHECK_EQ(async(engine, "GET /api user_id=1", 70).passes, true);
    CHECK_EQ(left(engine, "api"), 99);
    close_engine(engine);
}

TEST(failing_store_decides_only_when_the_slot_is_empty)
{
    weir *engine =
        open_engine("rules: [{ name: api, match: { path: /api }, key: \"u:${user_id}\", limit: 500, window: 1h, "
                    "consistency: leased, on_store_failure: closed }]\n");
    store.error = WEIR_ESTOREDOWN;
    units(engine, "api", 20, 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 1, 30), 20);
    close_engine(engine);
}

/* Without a ledger no agent can lease: the rule is strict. */
TEST(without_a_ledger_it_is_strict)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(leased_only, WEIR_LOCAL);
    CHECK_EQ(async(engine, "GET /api user_id=1", 1).prepared, 1);
    weir_close(engine);
    engine = test_engine(leased_only);
    CHECK_EQ(async(engine, "GET /api user_id=1", 1).prepared, 0);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
