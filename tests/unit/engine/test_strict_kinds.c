/* Strict rules: descriptors, the calendar, and refused configurations. The store is simulated. */
#include "strict_requests.h"

#include "engine/engine.h"

/* ---- Descriptors ---- */

static const char domain[] = "domain: d\n"
                             "descriptors:\n"
                             "  - key: plain\n"
                             "    rate_limit: { unit: hour, requests_per_unit: 3 }\n"
                             "  - key: q1\n"
                             "    quota_mode: true\n"
                             "    rate_limit: { unit: hour, requests_per_unit: 2 }\n"
                             "  - key: q2\n"
                             "    quota_mode: true\n"
                             "    rate_limit: { unit: hour, requests_per_unit: 4 }\n";

struct descriptor_result {
    bool passes;
    int prepared;
    uint32_t back;
    weir_outcome outcomes[4];
};

static struct descriptor_result describe(weir *engine, const char *const *keys, size_t count, int64_t own)
{
    struct descriptor_result described = {0};
    weir_descriptor_entry entries[4];
    weir_descriptor descriptors[4] = {0};
    weir_result checked;
    weir_async *a = NULL;
    for (size_t i = 0; i < count; i++) {
        entries[i] = (weir_descriptor_entry){{keys[i], strlen(keys[i])}, {"v", 1}};
        descriptors[i] = (weir_descriptor){.entries = &entries[i], .entry_count = 1};
        if (own) {
            descriptors[i].override_limit = own;
            descriptors[i].override_window_ns = 3600 * WEIR_SECOND;
        }
    }
    CHECK_EQ(weir_async_new(engine, &a), 0);
    weir_descriptor_query query = {.domain = {"d", 1},
                                   .descriptors = descriptors,
                                   .descriptor_count = count,
                                   .now = test_seconds(0),
                                   .async = a,
                                   .outcomes = described.outcomes};
    described.prepared = weir_check_descriptors_begin(engine, &query);
    if (described.prepared == 1)
        test_store_execute(&store, weir_async_request(a));
    CHECK_EQ(weir_check_descriptors(engine, &query, &checked), 0);
    described.passes = weir_passes(&checked.decision);
    struct weir__store_request *back = weir_async_rollback(a);
    described.back = back ? back->op_count : 0;
    if (back)
        test_store_refund(&store, back);
    weir_async_free(a);
    return described;
}

TEST(descriptors_follow_the_default)
{
    static const char *const plain[] = {"plain"};
    test_store_open(&store);
    weir *engine = test_strict_engine(domain, WEIR_LOCAL);
    CHECK_EQ(describe(engine, plain, 1, 0).prepared, 0);
    weir_close(engine);
    engine = test_strict_engine(domain, WEIR_EVENTUAL);
    CHECK_EQ(describe(engine, plain, 1, 0).prepared, 0);
    /* A limit that the request specifies cannot be eventual. */
    CHECK_EQ(describe(engine, (const char *const[]){"own"}, 1, 2).prepared, 1);
    weir_close(engine);
    engine = test_strict_engine(domain, WEIR_STRICT);
    weir *other = test_strict_engine(domain, WEIR_PER_ALGORITHM);
    int passed = 0;
    for (int i = 0; i < 4; i++) {
        struct descriptor_result described = describe(i % 2 ? other : engine, plain, 1, 0);
        CHECK_EQ(described.prepared, 1);
        passed += described.passes;
    }
    CHECK_EQ(passed, 3);
    /* Limits that the request specifies are shared, too. */
    for (int i = 0; i < 4; i++)
        passed += describe(i % 2 ? other : engine, plain, 1, 2).passes;
    CHECK_EQ(passed, 5);
    weir_close(engine);
    weir_close(other);
    weir_segment_close(store.segment);
}

TEST(quota_mode_denies_only_together)
{
    static const char *const both[] = {"q1", "q2"}, *const all[] = {"q1", "plain", "q2"};
    test_store_open(&store);
    weir *engine = test_strict_engine(domain, WEIR_STRICT);
    for (int i = 0; i < 3; i++)
        CHECK(describe(engine, both, 2, 0).passes); /* the third by q2 alone */
    struct descriptor_result described = describe(engine, all, 3, 0);
    CHECK(described.passes);
    CHECK_EQ(described.outcomes[0].decision.verdict, WEIR_DENY);
    CHECK_EQ(described.outcomes[1].decision.remaining, 2);
    CHECK_EQ(described.outcomes[2].decision.remaining, 0);
    described = describe(engine, all, 3, 0); /* both deny: nothing of plain stays taken */
    CHECK(!described.passes);
    CHECK_EQ(described.back, 1);
    described = describe(engine, (const char *const[]){"plain"}, 1, 0);
    CHECK_EQ(described.outcomes[0].decision.remaining, 1);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* ---- Store requests, and refused configurations ---- */

TEST(calendar_window_is_sent)
{
    test_store_open(&store);
    weir *engine = test_strict_engine("rules:\n"
                                      "  - { name: m, limit: 5, window: 1mo, algorithm: fixed_window,\n"
                                      "      timezone: UTC, consistency: strict }\n",
                                      WEIR_LOCAL);
    struct test_request r;
    weir_async *a = NULL;
    CHECK_EQ(weir_async_new(engine, &a), 0);
    test_request(&r, "GET /");
    r.query.async = a;
    r.query.now = (weir_time){.mono_ns = WEIR_DAY, .wall_ns = INT64_C(1709251200) * WEIR_SECOND}; /* 1 March 2024 */
    CHECK_EQ(weir_check_begin(engine, &r.query), 1);
    const struct weir__store_op *requested = weir_async_request(a)->ops;
    CHECK_EQ(requested->bounds_us[0], INT64_C(1706745600000000));
    CHECK_EQ(requested->bounds_us[1], INT64_C(1709251200000000));
    CHECK_EQ(requested->bounds_us[2], INT64_C(1711929600000000));
    CHECK_EQ(requested->bounds_us[3], INT64_C(1714521600000000));
    CHECK(requested->limit.zone == NULL);
    CHECK_EQ(strcmp(requested->name, "weir:m:*"), 0);
    weir_async_free(a);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* Where the first rule of a set with these fields is decided. */
static enum weir__consistency consistency(const char *fields, enum weir_consistency default_consistency,
                                          const char *ledger)
{
    char text[256];
    snprintf(text, sizeof text, "rules: [{ name: a, limit: 5, %s }]\n", fields);
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_text = text,
                         .flags = WEIR_NO_CONNECT,
                         .store = "redis://127.0.0.1:1",
                         .default_consistency = default_consistency,
                         .ledger = ledger};
    weir *engine = NULL;
    int at;
    CHECK_EQ(weir_open(&kind, &engine), 0);
    if (!engine)
        return WEIR__LOCAL;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    enum weir__consistency found = (enum weir__consistency)ruleset->consistency[0];
    CHECK_EQ(ruleset->strict, found == WEIR__STRICT);
    CHECK_EQ(ruleset->deltas != NULL, ledger && found == WEIR__EVENTUAL);
    weir__hazard_release(&engine->hazards, at);
    weir_close(engine);
    return found;
}

TEST(unset_consistency_follows_the_algorithm)
{
    CHECK_EQ(consistency("window: 1h", WEIR_PER_ALGORITHM, ""), WEIR__EVENTUAL);
    CHECK_EQ(consistency("window: 1h", WEIR_PER_ALGORITHM, NULL), WEIR__STRICT); /* no agent can exchange it */
    CHECK_EQ(consistency("window: 1h, algorithm: fixed_window", WEIR_PER_ALGORITHM, ""), WEIR__STRICT);
    CHECK_EQ(consistency("window: 1h, algorithm: fixed_window, consistency: local", WEIR_PER_ALGORITHM, ""),
             WEIR__LOCAL);
    CHECK_EQ(consistency("window: 1h, consistency: local", WEIR_PER_ALGORITHM, NULL), WEIR__LOCAL);
    CHECK_EQ(consistency("window: 1h, consistency: eventual", WEIR_PER_ALGORITHM, NULL), WEIR__EVENTUAL);
    CHECK_EQ(consistency("algorithm: concurrency", WEIR_PER_ALGORITHM, ""), WEIR__STRICT);
    CHECK_EQ(consistency("algorithm: concurrency", WEIR_EVENTUAL, ""), WEIR__STRICT);
    CHECK_EQ(consistency("algorithm: concurrency", WEIR_LOCAL, ""), WEIR__LOCAL);
}

/* ---- Keys, for an operator ---- */

TEST(key_state_is_that_of_the_store)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    weir_time now = test_seconds(0);
    weir_async *a = NULL;
    weir_outcome outcome;
    weir_decision decision;
    CHECK_EQ(weir_async_new(engine, &a), 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 3), 3);
    CHECK_EQ(weir_key_state_begin(engine, "api", "u:1", 3, now, a), 1);
    test_store_execute(&store, weir_async_request(a));
    CHECK_EQ(weir_key_state_finish(engine, "api", "u:1", 3, now, a, &outcome), 0);
    CHECK_EQ(outcome.decision.remaining, 2);
    CHECK_EQ(outcome.error, 0);
    CHECK(weir_async_rollback(a) == NULL);
    /* Settles the real cost, higher or lower. */
    weir_taken taken = {.rule = "api", .key = "u:1", .key_len = 3, .quota = 5, .window_ns = 60 * WEIR_SECOND};
    weir_async_clear(a);
    CHECK_EQ(weir_key_settle_begin(engine, &taken, -2, now, a), 1);
    test_store_execute(&store, weir_async_request(a));
    CHECK_EQ(weir_key_settle_finish(engine, &taken, -2, now, a, &decision), 0);
    CHECK_EQ(decision.remaining, 4);
    weir_async_clear(a);
    CHECK_EQ(weir_key_settle_begin(engine, &taken, 7, now, a), 1);
    test_store_execute(&store, weir_async_request(a));
    CHECK_EQ(weir_key_settle_finish(engine, &taken, 7, now, a, &decision), 0);
    CHECK_EQ(decision.remaining, -3);
    CHECK(weir_async_rollback(a) == NULL);
    /* Without a store request: the host's own state, marked as such. */
    CHECK_EQ(weir_key_state(engine, "api", "u:1", 3, now, &outcome), 0);
    CHECK_EQ(outcome.error, WEIR_ESTOREBREAKER);
    CHECK_EQ(outcome.decision.remaining, 5);
    CHECK_EQ(weir_key_settle(engine, &taken, 1, now, &decision), WEIR_ESTOREBREAKER);
    CHECK_EQ(weir_key_reset(engine, "api", "u:1", 3, now), WEIR_ESTOREBREAKER);
    /* A block needs no store. */
    CHECK_EQ(weir_key_block(engine, "api", "u:1", 3, WEIR_SECOND, now), 0);
    weir_async_clear(a);
    CHECK_EQ(weir_key_state_begin(engine, "api", "u:1", 3, now, a), 0);
    CHECK_EQ(weir_key_state_finish(engine, "api", "u:1", 3, now, a, &outcome), 0);
    CHECK_EQ(outcome.decision.verdict, WEIR_BLOCKED);
    /* Nor does a local rule. */
    CHECK_EQ(weir_key_state_begin(engine, "near", "*", 1, now, a), 0);
    CHECK_EQ(weir_key_reset_begin(engine, "near", "*", 1, now, a), 0);
    CHECK_EQ(weir_key_state_begin(engine, "gone", "*", 1, now, a), WEIR_ENORULE);
    CHECK_EQ(weir_key_settle_begin(engine, &taken, INT64_MAX, now, a), WEIR_ECOST);
    CHECK_EQ(weir_key_state_begin(engine, "api", "u:1", 3, now, NULL), WEIR_EINVAL);
    weir_async_free(a);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(reset_clears_the_negative_cache)
{
    test_store_open(&store);
    weir *engine = test_strict_engine(one, WEIR_LOCAL);
    weir_async *a = NULL;
    CHECK_EQ(weir_async_new(engine, &a), 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 6), 5);
    CHECK_EQ(async(engine, "GET /api user_id=1", 0).prepared, 0);
    CHECK_EQ(weir_key_reset_begin(engine, "api", "u:1", 3, test_seconds(0), a), 1);
    CHECK_EQ(async(engine, "GET /api user_id=1", 0).prepared, 0);
    test_store_execute(&store, weir_async_request(a));
    CHECK_EQ(weir_key_reset_finish(engine, "api", "u:1", 3, test_seconds(0), a), 0);
    CHECK_EQ(passing(engine, "GET /api user_id=1", 0, 6), 5);
    weir_async_free(a);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* ---- Refused configurations ---- */

struct diagnostics {
    int errors, warnings;
    char last[512];
};

static void collect_diagnostic(void *context, const weir_diagnostic *d)
{
    struct diagnostics *diagnostics = context;
    *(d->severity == WEIR_IS_ERROR ? &diagnostics->errors : &diagnostics->warnings) += 1;
    snprintf(diagnostics->last, sizeof diagnostics->last, "%d:%d: %s", d->line, d->column, d->message);
}

TEST(rules_that_a_store_cannot_enforce_are_refused)
{
    static const char strict[] = "rules:\n"
                                 "  - { name: a, limit: 5, window: 1h, consistency: strict }\n";
    struct diagnostics diagnostics = {0};
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_text = strict,
                         .diagnose = collect_diagnostic,
                         .diagnose_context = &diagnostics};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&kind, &engine), 0);
    CHECK_EQ(diagnostics.warnings, 1);
    CHECK_EQ(strcmp(diagnostics.last, "2:51: consistency: strict acts as local: there is no store"), 0);
    weir_close(engine);
    kind.store = "redis://127.0.0.1:1";
    kind.flags = WEIR_NO_CONNECT;
    CHECK_EQ(weir_open(&kind, &engine), 0);
    CHECK_EQ(diagnostics.warnings, 1);
    weir_close(engine);
    /* A parser of rules alone cannot know. */
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_parse("a", strict, sizeof strict - 1, collect_diagnostic, &diagnostics, &rules), 0);
    CHECK_EQ(diagnostics.warnings, 1);
    weir_rules_free(rules);
    kind.flags = 0; /* this program never calls weir_store_use */
    CHECK_EQ(weir_open(&kind, &engine), WEIR_ESTORELIB);
    CHECK_EQ(diagnostics.errors, 1);
    diagnostics.errors = 0;
    kind.flags = WEIR_NO_CONNECT;
    kind.store = "http://127.0.0.1";
    CHECK_EQ(weir_open(&kind, &engine), WEIR_ESTOREURL);
    CHECK_EQ(diagnostics.errors, 1);
    kind.store = NULL;
    kind.rules_text = "rules:\n"
                      "  - { name: a, limit: 4294967291, window: 399d, consistency: strict }\n";
    CHECK_EQ(weir_open(&kind, &engine), WEIR_ERULES);
    CHECK_EQ(diagnostics.errors, 2);
    kind.rules_text = strict;
    kind.default_consistency = (enum weir_consistency)9;
    CHECK_EQ(weir_open(&kind, &engine), WEIR_EINVAL);
}

TEST(invalid_arguments_are_refused)
{
    weir *engine = test_strict_engine(one, WEIR_LOCAL), *other = test_strict_engine(one, WEIR_LOCAL);
    weir_async *a = NULL;
    weir_result checked;
    weir_query query = {0};
    CHECK_EQ(weir_async_new(NULL, &a), WEIR_EINVAL);
    CHECK_EQ(weir_async_new(engine, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_async_new(engine, &a), 0);
    CHECK_EQ(weir_check_begin(engine, &query), WEIR_EINVAL);
    CHECK_EQ(weir_check_begin(engine, NULL), WEIR_EINVAL);
    query.async = a;
    CHECK_EQ(weir_check_begin(other, &query), WEIR_EINVAL); /* another engine's */
    CHECK_EQ(weir_check(other, &query, &checked), WEIR_EINVAL);
    query.has_cost = true;
    query.cost = INT64_MAX;
    CHECK_EQ(weir_check_begin(engine, &query), WEIR_ECOST);
    weir_async_free(a);
    weir_async_free(NULL);
    weir_close(engine);
    weir_close(other);
}

TEST_MAIN
