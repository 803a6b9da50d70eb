/* Shedding: by priority class, and the response to a shed request. */
#include "overloaded.h"

/* ---- Shedding by class ---- */

static const char classes[] =
    "rules:\n"
    "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n"
    "  - { name: buy, match: { path: /buy }, limit: unlimited, priority: high }\n"
    "  - { name: bulk, match: { path: [/bulk, /pay] }, limit: 1000000, window: 1d, priority: low }\n"
    "  - { name: any, match: { path: [/x, /bulk] }, limit: 1000000, window: 1d }\n"
    "  - { name: ghost, match: { path: /x }, limit: 5, window: 1d, shadow: true, priority: critical }\n";

/* Checks that of n requests shed with probability p the number is within five standard deviations. */
static void check_share(int64_t shed, int64_t n, double p)
{
    double expected = (double)n * p, deviation = 5 * __builtin_sqrt((double)n * p * (1 - p));
    if ((double)shed < expected - deviation || (double)shed > expected + deviation)
        printf("  %lld of %lld, expected about %.0f\n", (long long)shed, (long long)n, expected);
    CHECK((double)shed >= expected - deviation && (double)shed <= expected + deviation);
}

TEST(share_of_a_class_is_shed)
{
    weir *engine = overloaded_engine(classes);
    static const struct {
        const char *line;
        double share;
        enum weir_priority priority;
    } cases[] = {{"GET /pay", 0, WEIR_CRITICAL},
                 {"GET /buy", 0.05, WEIR_HIGH},
                 {"GET /x", 0.3, WEIR_NORMAL},
                 {"GET /bulk", 0.9, WEIR_LOW},
                 {"GET /elsewhere", 0, WEIR_NORMAL}};
    const int64_t n = test_scaled(20000, 2000);
    shed_is(engine, 0, 50, 300, 900);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t shed = 0, odd = 0;
        for (int64_t j = 0; j < n; j++) {
            double s = (double)j * 1e-5 * (double)(i % 2); /* at one moment, and at many */
            weir_result checked = test_check(engine, cases[i].line, s);
            bool passes = weir_passes(&checked.decision);
            shed += !passes;
            odd += checked.priority != cases[i].priority;
            odd += !passes && (checked.decided_by.reason != WEIR_BY_SHED || checked.status != 503 ||
                               checked.decision.verdict != WEIR_DENY || checked.decision.retry_after_ns < WEIR_SECOND ||
                               checked.decision.retry_after_ns > 5 * WEIR_SECOND);
        }
        CHECK_EQ(odd, 0);
        check_share(shed, n, cases[i].share);
    }
    /* Counted separately, under the rule that set their priority. */
    weir_rule_stats any = stats_of(engine, "any"), bulk = stats_of(engine, "bulk"), pay = stats_of(engine, "pay");
    CHECK_EQ(any.denied + bulk.denied + pay.denied + pay.shed, 0);
    CHECK_EQ(pay.allowed, (uint64_t)n);
    CHECK_EQ((int64_t)(bulk.shed + bulk.allowed), 2 * n);
    CHECK(any.shed > 0 && bulk.shed > any.shed);
    /* And by their class: each rule here sets one, whatever else it lets pass. */
    weir_rule_stats buy = stats_of(engine, "buy");
    CHECK_EQ(any.shed_of[WEIR_NORMAL], any.shed);
    CHECK_EQ(bulk.shed_of[WEIR_LOW], bulk.shed);
    CHECK_EQ(buy.shed_of[WEIR_HIGH], buy.shed);
    CHECK(buy.shed > 0);
    CHECK_EQ(any.shed_of[WEIR_CRITICAL] + bulk.shed_of[WEIR_CRITICAL] + buy.shed_of[WEIR_CRITICAL], 0);
    CHECK_EQ(buy.denied, 0);
    weir_close(engine);
}

/* Shed first: no store request is sent, nothing is taken, no permit is acquired. */
TEST(shed_request_takes_nothing)
{
    weir *engine = overloaded_engine(
        "rules:\n"
        "  - { name: rate, limit: 100, window: 1d, priority: low }\n"
        "  - { name: quota, limit: 100, window: 1d, algorithm: sliding_window_log, count_rejected: true }\n"
        "  - { name: flight, limit: 5, algorithm: concurrency }\n"
        "  - { name: seen, limit: 100, window: 1d, shadow: true }\n");
    struct test_request r;
    weir_result checked;
    weir_outcome outcomes[4];
    weir_permits permit;
    shed_is(engine, 0, 0, 0, 1000);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.permits = &permit;
    r.query.outcomes = outcomes;
    r.query.outcomes_max = 4;
    for (int i = 0; i < 500; i++) {
        CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
        CHECK_EQ(checked.decided_by.reason, WEIR_BY_SHED);
        CHECK_EQ(permit.count, 0);
    }
    CHECK_EQ(strcmp(checked.decided_by.rule, "rate"), 0);
    CHECK_EQ(checked.outcomes, 4);
    r.query.dry_run = true; /* a dry run is not shed */
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK(weir_passes(&checked.decision));
    CHECK_EQ(outcomes[0].decision.remaining, 99);
    CHECK_EQ(outcomes[1].decision.remaining, 99);
    CHECK_EQ(outcomes[2].decision.remaining, 4);
    CHECK_EQ(outcomes[3].decision.remaining, 99);
    r.query.dry_run = false;
    r.query.has_cost = true; /* nor is a request that takes nothing or refunds */
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK(weir_passes(&checked.decision));
    r.query.cost = -1;
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    CHECK(weir_passes(&checked.decision));
    CHECK_EQ(stats_of(engine, "rate").shed, 500);
    CHECK_EQ(stats_of(engine, "rate").denied, 0);
    CHECK_EQ(stats_of(engine, "quota").shed, 0);
    weir_close(engine);
}

TEST(request_denied_by_a_limit_is_not_counted_as_shed)
{
    weir *engine =
        overloaded_engine("rules:\n"
                          "  - { name: ban, match: { path: /no }, limit: 0, priority: low }\n"
                          "  - { name: bad, match: { path: /x }, key: \"u:${user_id}\", limit: 5, window: 1m,\n"
                          "      priority: low, block: { keys: [\"u:6\"] } }\n");
    shed_is(engine, 0, 0, 0, 1000);
    CHECK_EQ(test_check(engine, "GET /no", 0).decided_by.reason, WEIR_BY_BAN);
    CHECK_EQ(test_check(engine, "GET /x user_id=6", 0).decided_by.reason, WEIR_BY_BLOCK_LIST);
    CHECK_EQ(test_check(engine, "GET /x user_id=7", 0).decided_by.reason, WEIR_BY_SHED);
    CHECK(test_passes(engine, "GET /x", 0)); /* the rule does not apply without its key */
    weir_close(engine);
}

TEST(load_page_of_a_dead_agent_sheds_nothing)
{
    weir *engine = overloaded_engine(classes);
    shed_is(engine, 0, 1000, 1000, 1000);
    CHECK_EQ(test_passing(engine, "GET /bulk", 1.9, 10), 0);
    CHECK_EQ(test_passing(engine, "GET /bulk", 2.1, 10), 10);
    weir_close(engine);
    engine = test_engine(classes); /* nor does a missing one */
    CHECK_EQ(test_passing(engine, "GET /bulk", 0, 10), 10);
    CHECK_EQ(test_check(engine, "GET /bulk", 0).priority, WEIR_LOW);
    weir_close(engine);
}

/* Without any priority in the set, no class is shed before another. */
TEST(rules_without_priorities_shed_nothing)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: 5, window: 1m, report_priority: 7 }\n");
    shed_is(engine, 0, 1000, 1000, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 10), 5);
    weir_close(engine);
}

TEST(descriptors_have_normal_priority)
{
    weir *engine = overloaded_engine("rules:\n  - { name: a, limit: unlimited, priority: critical }\n"
                                     "domains:\n  - domain: d\n    descriptors:\n"
                                     "      - { key: k, rate_limit: { unit: day, requests_per_unit: 10 } }\n");
    weir_descriptor_entry entry = {{"k", 1}, {"v", 1}}, other = {{"z", 1}, {"v", 1}};
    weir_descriptor descriptors[2] = {{.entries = &other, .entry_count = 1}, {.entries = &entry, .entry_count = 1}};
    weir_outcome outcomes[2];
    weir_descriptor_query query = {.domain = {"d", 1},
                                   .descriptors = descriptors,
                                   .descriptor_count = 2,
                                   .charge_denied = true,
                                   .now = test_seconds(0),
                                   .outcomes = outcomes};
    weir_result checked;
    shed_is(engine, 0, 0, 1000, 1000);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weir_check_descriptors(engine, &query, &checked), 0);
        CHECK_EQ(checked.decided_by.reason, WEIR_BY_SHED);
        CHECK_EQ(outcomes[0].reason, WEIR_BY_NOTHING);
        CHECK(!weir_passes(&outcomes[1].decision));
    }
    query.descriptor_count = 1; /* no rule: nothing to report */
    CHECK_EQ(weir_check_descriptors(engine, &query, &checked), 0);
    CHECK(weir_passes(&checked.decision));
    query.descriptor_count = 2;
    shed_is(engine, 0, 0, 0, 1000);
    CHECK_EQ(weir_check_descriptors(engine, &query, &checked), 0);
    CHECK_EQ(checked.decision.remaining, 9); /* denied requests count, too, but not those shed */
    weir_close(engine);
}

/* ---- The response ---- */

static weir_result shed_result(const char *response, char *text, size_t size)
{
    char rules[512];
    struct test_request r;
    weir_result checked;
    snprintf(rules, sizeof rules, "rules:\n  - { name: a, limit: 5, window: 1m, priority: low, on_limit: queue%s }\n",
             response);
    weir *engine = overloaded_engine(rules);
    shed_is(engine, 0, 0, 0, 1000);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.text = text;
    r.query.text_size = size;
    CHECK_EQ(weir_check(engine, &r.query, &checked), 0);
    weir_close(engine);
    return checked;
}

TEST(response_to_a_shed_request)
{
    char text[256], body[512];
    const char *type;
    uint16_t lens[WEIR_HEADER_COUNT];
    char values[WEIR_HEADER_ROOM];
    weir_result checked = shed_result(", response: { message: Slow down }", text, sizeof text);
    CHECK_EQ(checked.status, 503);
    CHECK_EQ(checked.on_limit, WEIR_ON_LIMIT_REJECT);
    CHECK_EQ(checked.message.len, 0);
    checked.decision.retry_after_ns = 3 * WEIR_SECOND;
    weir_result_body(&checked, false, body, sizeof body, &type);
    CHECK_EQ(strcmp(body, "{\"error\":\"overloaded\",\"message\":\"The service is busy with more important requests. "
                          "Please retry after 3 seconds.\",\"rule\":\"a\",\"retry_after\":3}\n"),
             0);
    weir_result_body(&checked, true, body, sizeof body, &type);
    CHECK_EQ(strcmp(type, "application/problem+json"), 0);
    CHECK_EQ(strcmp(body,
                    "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\","
                    "\"title\":\"Temporary reduced capacity\",\"status\":503,\"detail\":\"The service is busy with "
                    "more important requests. Please retry after 3 seconds.\"}\n"),
             0);
    weir_result_header_values(&checked, NULL, values, lens);
    CHECK_EQ(lens[WEIR_HEADER_RETRY_AFTER], 1);
    CHECK_EQ(lens[WEIR_HEADER_LIMIT], 0);
    CHECK_EQ(lens[WEIR_HEADER_POLICY], 0);
    checked = shed_result(", response: { status: 420, body: { text: Sorry } }", text, sizeof text);
    CHECK_EQ(checked.status, 503);
    CHECK_EQ(checked.body, WEIR_BODY_AUTO);
    CHECK_EQ(checked.body_text.len, 0);
    checked = shed_result(", response: { body: none }", text, sizeof text);
    CHECK_EQ(weir_result_body(&checked, false, body, sizeof body, &type), 0);
}

/* ---- With a store ---- */

/* The store request and the check use the same random number: no store request is sent for a shed request. */
TEST(shed_request_sends_no_store_request)
{
    test_store_open(&store);
    weir *engine =
        strict_engine("rules:\n  - { name: a, key: \"u:${user_id}\", limit: 100000, window: 1d, priority: low,\n"
                      "      consistency: strict }\n");
    int64_t shed = 0, odd = 0, n = test_scaled(5000, 500);
    for (int64_t i = 0; i < n; i++) {
        double s = (double)i * 1e-4;
        shed_is(engine, s, 0, 0, i % 2 ? 400 : 600);
        struct result result = async(engine, "GET / user_id=1", s);
        shed += !result.passes;
        odd += result.passes != (result.prepared == 1) || result.back != 0;
        odd += !result.passes && result.checked.decided_by.reason != WEIR_BY_SHED;
    }
    CHECK_EQ(odd, 0);
    check_share(shed, n, 0.5);
    CHECK_EQ(store.requests, n - shed);
    CHECK_EQ((int64_t)stats_of(engine, "a").shed, shed);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The load may change between the two steps: the decision of the first holds. */
static void lower_load(weir *engine)
{
    shed_is(engine, 0, 0, 0, 0);
}

TEST(load_that_changes_between_begin_and_check)
{
    test_store_open(&store);
    weir *engine =
        strict_engine("rules:\n  - { name: a, limit: 100, window: 1d, priority: low, consistency: strict }\n");
    shed_is(engine, 0, 0, 0, 1000);
    struct result result = run(engine, "GET /", 0, (struct moment){.before_check = lower_load});
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.checked.decided_by.reason, WEIR_BY_SHED);
    CHECK(async(engine, "GET /", 0).passes);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
