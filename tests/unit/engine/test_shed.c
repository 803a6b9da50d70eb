/* Requests that are shed: by class, and what they are told. */
#include "overloaded.h"

/* ---- Shedding by class ---- */

static const char classes[] =
    "rules:\n"
    "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n"
    "  - { name: buy, match: { path: /buy }, limit: unlimited, priority: high }\n"
    "  - { name: bulk, match: { path: [/bulk, /pay] }, limit: 1000000, window: 1d, priority: low }\n"
    "  - { name: any, match: { path: [/x, /bulk] }, limit: 1000000, window: 1d }\n"
    "  - { name: ghost, match: { path: /x }, limit: 5, window: 1d, shadow: true, priority: critical }\n";

/* Of n that are shed with probability p, within five standard deviations. */
static void check_share(int64_t shed, int64_t n, double p)
{
    double expected = (double)n * p, deviation = 5 * __builtin_sqrt((double)n * p * (1 - p));
    if ((double)shed < expected - deviation || (double)shed > expected + deviation)
        printf("  %lld of %lld, expected about %.0f\n", (long long)shed, (long long)n, expected);
    CHECK((double)shed >= expected - deviation && (double)shed <= expected + deviation);
}

TEST(a_share_of_a_class_is_shed)
{
    weir *engine = pressed_engine(classes);
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
            weir_result answer = test_ask(engine, cases[i].line, s);
            bool passes = weir_passes(&answer.decision);
            shed += !passes;
            odd += answer.priority != cases[i].priority;
            odd += !passes && (answer.decided_by.reason != WEIR_BY_SHED || answer.status != 503 ||
                               answer.decision.verdict != WEIR_DENY || answer.decision.retry_after_ns < WEIR_SECOND ||
                               answer.decision.retry_after_ns > 5 * WEIR_SECOND);
        }
        CHECK_EQ(odd, 0);
        check_share(shed, n, cases[i].share);
    }
    /* Counted apart, under the rule that said how important they are. */
    weir_rule_stats any = stats_of(engine, "any"), bulk = stats_of(engine, "bulk"), pay = stats_of(engine, "pay");
    CHECK_EQ(any.denied + bulk.denied + pay.denied + pay.shed, 0);
    CHECK_EQ(pay.allowed, (uint64_t)n);
    CHECK_EQ((int64_t)(bulk.shed + bulk.allowed), 2 * n);
    CHECK(any.shed > 0 && bulk.shed > any.shed);
    /* And by their class: each rule here speaks for one, whatever else it lets pass. */
    weir_rule_stats buy = stats_of(engine, "buy");
    CHECK_EQ(any.shed_of[WEIR_NORMAL], any.shed);
    CHECK_EQ(bulk.shed_of[WEIR_LOW], bulk.shed);
    CHECK_EQ(buy.shed_of[WEIR_HIGH], buy.shed);
    CHECK(buy.shed > 0);
    CHECK_EQ(any.shed_of[WEIR_CRITICAL] + bulk.shed_of[WEIR_CRITICAL] + buy.shed_of[WEIR_CRITICAL], 0);
    CHECK_EQ(buy.denied, 0);
    weir_close(engine);
}

/* Shed at a stroke: nothing is asked, nothing is taken, no slot is held. */
TEST(what_is_shed_takes_nothing)
{
    weir *engine = pressed_engine(
        "rules:\n"
        "  - { name: rate, limit: 100, window: 1d, priority: low }\n"
        "  - { name: quota, limit: 100, window: 1d, algorithm: sliding_window_log, count_rejected: true }\n"
        "  - { name: flight, limit: 5, algorithm: concurrency }\n"
        "  - { name: seen, limit: 100, window: 1d, shadow: true }\n");
    struct test_request r;
    weir_result answer;
    weir_outcome outcomes[4];
    weir_permits held;
    shed_is(engine, 0, 0, 0, 1000);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.permits = &held;
    r.query.outcomes = outcomes;
    r.query.outcomes_max = 4;
    for (int i = 0; i < 500; i++) {
        CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
        CHECK_EQ(answer.decided_by.reason, WEIR_BY_SHED);
        CHECK_EQ(held.count, 0);
    }
    CHECK_EQ(strcmp(answer.decided_by.rule, "rate"), 0);
    CHECK_EQ(answer.outcomes, 4);
    r.query.dry_run = true; /* what only looks is not shed */
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK(weir_passes(&answer.decision));
    CHECK_EQ(outcomes[0].decision.remaining, 99);
    CHECK_EQ(outcomes[1].decision.remaining, 99);
    CHECK_EQ(outcomes[2].decision.remaining, 4);
    CHECK_EQ(outcomes[3].decision.remaining, 99);
    r.query.dry_run = false;
    r.query.has_cost = true; /* nor who takes nothing or gives back */
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK(weir_passes(&answer.decision));
    r.query.cost = -1;
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK(weir_passes(&answer.decision));
    CHECK_EQ(stats_of(engine, "rate").shed, 500);
    CHECK_EQ(stats_of(engine, "rate").denied, 0);
    CHECK_EQ(stats_of(engine, "quota").shed, 0);
    weir_close(engine);
}

TEST(who_is_denied_anyway_is_not_shed_but_denied)
{
    weir *engine = pressed_engine("rules:\n"
                                  "  - { name: ban, match: { path: /no }, limit: 0, priority: low }\n"
                                  "  - { name: bad, match: { path: /x }, key: \"u:${user_id}\", limit: 5, window: 1m,\n"
                                  "      priority: low, block: { keys: [\"u:6\"] } }\n");
    shed_is(engine, 0, 0, 0, 1000);
    CHECK_EQ(test_ask(engine, "GET /no", 0).decided_by.reason, WEIR_BY_BAN);
    CHECK_EQ(test_ask(engine, "GET /x user_id=6", 0).decided_by.reason, WEIR_BY_BLOCK_LIST);
    CHECK_EQ(test_ask(engine, "GET /x user_id=7", 0).decided_by.reason, WEIR_BY_SHED);
    CHECK(test_passes(engine, "GET /x", 0)); /* the rule does not apply without its key */
    weir_close(engine);
}

TEST(a_page_of_a_dead_agent_sheds_nothing)
{
    weir *engine = pressed_engine(classes);
    shed_is(engine, 0, 1000, 1000, 1000);
    CHECK_EQ(test_passing(engine, "GET /bulk", 1.9, 10), 0);
    CHECK_EQ(test_passing(engine, "GET /bulk", 2.1, 10), 10);
    weir_close(engine);
    engine = test_engine(classes); /* nor one that is not there */
    CHECK_EQ(test_passing(engine, "GET /bulk", 0, 10), 10);
    CHECK_EQ(test_ask(engine, "GET /bulk", 0).priority, WEIR_LOW);
    weir_close(engine);
}

/* Without a word about importance in the whole set, nobody comes before anybody. */
TEST(a_set_without_classes_sheds_nothing)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: 5, window: 1m, priority: 7 }\n");
    shed_is(engine, 0, 1000, 1000, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 10), 5);
    weir_close(engine);
}

TEST(descriptors_are_normal)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: unlimited, priority: critical }\n"
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
    weir_result answer;
    shed_is(engine, 0, 0, 1000, 1000);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weir_check_descriptors(engine, &query, &answer), 0);
        CHECK_EQ(answer.decided_by.reason, WEIR_BY_SHED);
        CHECK_EQ(outcomes[0].reason, WEIR_BY_NOTHING);
        CHECK(!weir_passes(&outcomes[1].decision));
    }
    query.descriptor_count = 1; /* no rule: nothing to say */
    CHECK_EQ(weir_check_descriptors(engine, &query, &answer), 0);
    CHECK(weir_passes(&answer.decision));
    query.descriptor_count = 2;
    shed_is(engine, 0, 0, 0, 1000);
    CHECK_EQ(weir_check_descriptors(engine, &query, &answer), 0);
    CHECK_EQ(answer.decision.remaining, 9); /* also what is denied counts, but not what was shed */
    weir_close(engine);
}

/* ---- What the client is told ---- */

static weir_result shed_answer(const char *response, char *text, size_t size)
{
    char rules[512];
    struct test_request r;
    weir_result answer;
    snprintf(rules, sizeof rules, "rules:\n  - { name: a, limit: 5, window: 1m, priority: low, on_limit: queue%s }\n",
             response);
    weir *engine = pressed_engine(rules);
    shed_is(engine, 0, 0, 0, 1000);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.text = text;
    r.query.text_size = size;
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    weir_close(engine);
    return answer;
}

TEST(the_answer_to_what_was_shed)
{
    char text[256], body[512];
    const char *type;
    uint16_t lens[WEIR_HEADER_COUNT];
    char values[WEIR_HEADER_ROOM];
    weir_result answer = shed_answer(", response: { message: Slow down }", text, sizeof text);
    CHECK_EQ(answer.status, 503);
    CHECK_EQ(answer.on_limit, WEIR_ON_LIMIT_REJECT);
    CHECK_EQ(answer.message.len, 0);
    answer.decision.retry_after_ns = 3 * WEIR_SECOND;
    weir_result_body(&answer, false, body, sizeof body, &type);
    CHECK_EQ(strcmp(body, "{\"error\":\"overloaded\",\"message\":\"The service is busy with more important requests. "
                          "Please retry after 3 seconds.\",\"rule\":\"a\",\"retry_after\":3}\n"),
             0);
    weir_result_body(&answer, true, body, sizeof body, &type);
    CHECK_EQ(strcmp(type, "application/problem+json"), 0);
    CHECK_EQ(strcmp(body,
                    "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\","
                    "\"title\":\"Temporary reduced capacity\",\"status\":503,\"detail\":\"The service is busy with "
                    "more important requests. Please retry after 3 seconds.\"}\n"),
             0);
    weir_result_header_values(&answer, NULL, values, lens);
    CHECK_EQ(lens[WEIR_HEADER_RETRY_AFTER], 1);
    CHECK_EQ(lens[WEIR_HEADER_LIMIT], 0);
    CHECK_EQ(lens[WEIR_HEADER_POLICY], 0);
    answer = shed_answer(", response: { status: 420, body: { text: Sorry } }", text, sizeof text);
    CHECK_EQ(answer.status, 503);
    CHECK_EQ(answer.body, WEIR_BODY_AUTO);
    CHECK_EQ(answer.body_text.len, 0);
    answer = shed_answer(", response: { body: none }", text, sizeof text);
    CHECK_EQ(weir_result_body(&answer, false, body, sizeof body, &type), 0);
}

/* ---- With a store ---- */

/* The same dice decide when the store is asked and when the request is: nothing is asked for what is shed. */
TEST(what_is_shed_does_not_ask_the_store)
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
        odd += !result.passes && result.answer.decided_by.reason != WEIR_BY_SHED;
    }
    CHECK_EQ(odd, 0);
    check_share(shed, n, 0.5);
    CHECK_EQ(store.requests, n - shed);
    CHECK_EQ((int64_t)stats_of(engine, "a").shed, shed);
    weir_close(engine);
    weir_segment_close(store.segment);
}

/* The load may change between the two looks: what was asked for is what holds. */
static void calms_down(weir *engine)
{
    shed_is(engine, 0, 0, 0, 0);
}

TEST(a_load_that_changes_in_mid_way)
{
    test_store_open(&store);
    weir *engine =
        strict_engine("rules:\n  - { name: a, limit: 100, window: 1d, priority: low, consistency: strict }\n");
    shed_is(engine, 0, 0, 0, 1000);
    struct result result = run(engine, "GET /", 0, (struct moment){.asked = calms_down});
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.answer.decided_by.reason, WEIR_BY_SHED);
    CHECK(async(engine, "GET /", 0).passes);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
