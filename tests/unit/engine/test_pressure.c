/*
 * What the load makes of requests: limits in force, shedding by class, reserves. The test writes the load page itself,
 * as the agent would.
 */
#include "rules_folder.h"
#include "strict_asking.h"

#include "engine/weir.h"

static weir *pressed_engine(const char *rules)
{
    weir_options how = {
        .segment = {.size = 8 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic, .load = ""};
    weir *engine = NULL;
    if (weir_open(&how, &engine) != 0) {
        printf("  the test's rules are bad\n");
        exit(1);
    }
    CHECK(engine->load != NULL);
    return engine;
}

/* At `s` seconds the host is so loaded. */
static void load_is(weir *engine, double s, uint32_t level, uint32_t throttle)
{
    struct weir__load_view view = weir__load_neutral();
    view.level = level;
    view.throttle = throttle;
    weir__load_write(engine->load, test_seconds(s).mono_ns, &view);
}

static void shed_is(weir *engine, double s, uint32_t high, uint32_t normal, uint32_t low)
{
    struct weir__load_view view = weir__load_neutral();
    view.shed[WEIR_HIGH] = high;
    view.shed[WEIR_NORMAL] = normal;
    view.shed[WEIR_LOW] = low;
    weir__load_write(engine->load, test_seconds(s).mono_ns, &view);
}

/* The limit that a request is told. */
static int64_t limit_at(weir *engine, const char *line, double s)
{
    return test_ask(engine, line, s).decision.limit;
}

static weir_rule_stats stats_of(weir *engine, const char *rule)
{
    weir_rule_stats stats = {0};
    CHECK_EQ(weir_rule_stats_read(engine, rule, false, &stats), 0);
    return stats;
}

/* ---- Limits in force ---- */

TEST(elastic_limits_follow_the_level)
{
    weir *engine = pressed_engine(
        "rules:\n  - { name: a, key: \"u:${user_id}\", limit: 1000, window: 1m, algorithm: fixed_window,\n"
        "      elastic: { up_to: 200%, while: 70% } }\n");
    static const struct {
        uint32_t level;
        int64_t limit;
    } cases[] = {{0, 2000},   {500, 2000}, {600, 2000}, {601, 1990}, {650, 1500},
                 {699, 1010}, {700, 1000}, {701, 1000}, {1000, 1000}};
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 0), 1000); /* nobody has said anything yet: no room is known */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load_is(engine, (double)i, cases[i].level, 1000);
        CHECK_EQ(limit_at(engine, "GET / user_id=1", (double)i), cases[i].limit);
        CHECK_EQ(limit_at(engine, "GET / user_id=2", (double)i + 0.1), cases[i].limit); /* the same for every key */
    }
    load_is(engine, 20, 0, 1000);
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 21.9), 2000);
    CHECK_EQ(limit_at(engine, "GET / user_id=1", 22.1), 1000); /* the agent is gone: as it is written */
    weir_close(engine);
}

TEST(adaptive_limits_follow_the_throttle)
{
    weir *engine =
        pressed_engine("rules:\n  - { name: a, limit: 10, window: 1m, burst: 50, adaptive: { min: 20% } }\n");
    static const struct {
        uint32_t throttle;
        int64_t burst;
    } cases[] = {{1000, 50}, {999, 49}, {500, 30}, {250, 20}, {0, 10}};
    CHECK_EQ(limit_at(engine, "GET /", 0), 50);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load_is(engine, (double)i, 1000, cases[i].throttle);
        CHECK_EQ(limit_at(engine, "GET /", (double)i), cases[i].burst);
    }
    CHECK_EQ(limit_at(engine, "GET /", 9), 50); /* gone: full again */
    weir_close(engine);
}

TEST(elastic_comes_on_top_of_a_full_adaptive)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: 100, window: 1m, algorithm: sliding_window_log,\n"
                                  "      adaptive: { min: 10%, max: 80% }, elastic: { up_to: 150% } }\n");
    CHECK_EQ(limit_at(engine, "GET /", 0), 80);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(limit_at(engine, "GET /", 1), 120);
    load_is(engine, 2, 0, 999); /* something is taken away, so nothing is to be had */
    CHECK_EQ(limit_at(engine, "GET /", 2), 79);
    load_is(engine, 3, 800, 1000);
    CHECK_EQ(limit_at(engine, "GET /", 3), 80);
    load_is(engine, 4, 1000, 0);
    CHECK_EQ(limit_at(engine, "GET /", 4), 10);
    weir_close(engine);
}

TEST(clients_and_operators_are_told_the_limit_in_force)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: { pro: 100, default: 10 }, window: 1m,\n"
                                  "      algorithm: fixed_window, elastic: { up_to: 300% } }\n");
    struct test_request r;
    weir_answer answer;
    weir_outcome outcome;
    char values[WEIR_HEADER_ROOM + 1];
    uint16_t lens[WEIR_HEADER_COUNT];
    load_is(engine, 0, 0, 1000);
    test_request(&r, "GET / tier=pro");
    r.query.now = test_seconds(0);
    r.query.outcomes = &outcome;
    r.query.outcomes_max = 1;
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK_EQ(answer.decision.limit, 300);
    CHECK_EQ(answer.decision.remaining, 299);
    CHECK_EQ(outcome.quota, 100);
    CHECK_EQ(outcome.in_force, 300);
    values[weir_answer_values(&answer, &outcome, values, lens)] = 0;
    CHECK(strstr(values, "\"a\";q=300;w=60") != NULL);
    CHECK_EQ(weir_key_state(engine, "a", "*", 1, test_seconds(0), &outcome), 0);
    CHECK_EQ(outcome.decision.limit, 30); /* of the default tier */
    CHECK_EQ(outcome.decision.remaining, 29);
    weir_close(engine);
}

/* 150 of 200 are used when the load rises: nothing passes before the key is back below what it may have. */
TEST(what_was_given_is_withdrawn_at_once)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: 100, window: 100s, elastic: { up_to: 200% } }\n");
    load_is(engine, 0, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 150), 150);
    load_is(engine, 0.1, 900, 1000);
    weir_answer answer = test_ask(engine, "GET /", 0.1);
    CHECK(!weir_passes(&answer.decision));
    CHECK_EQ(answer.decision.limit, 100);
    CHECK_EQ(answer.decision.remaining, -50);
    CHECK_EQ(answer.decision.retry_after_ns, 50900 * WEIR_SECOND / 1000);
    for (int s = 1; s < 51; s++) {
        load_is(engine, s, 900, 1000);
        CHECK(!test_passes(engine, "GET /", s - 0.05));
    }
    CHECK_EQ(test_passing(engine, "GET /", 51, 10), 1);
    weir_close(engine);
}

TEST(what_is_given_back_comes_back_under_another_limit)
{
    weir *engine = pressed_engine("rules:\n  - { name: a, limit: 100, window: 100s, adaptive: { min: 20% } }\n");
    struct test_request r;
    weir_answer answer;
    load_is(engine, 0, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /", 0, 50), 50);
    load_is(engine, 0.1, 1000, 0);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.cost = -40;
    CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
    CHECK_EQ(answer.decision.limit, 20);
    CHECK_EQ(answer.decision.remaining, 10);
    weir_taken taken = {.rule = "a", .key = "*", .key_len = 1, .quota = 100, .window_ns = 100 * WEIR_SECOND};
    weir_decision d;
    CHECK_EQ(weir_key_settle(engine, &taken, -4, test_seconds(0), &d), 0);
    CHECK_EQ(d.remaining - d.limit, -6); /* of which limit it is told is the present's */
    weir_close(engine);
}

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
            weir_answer answer = test_ask(engine, cases[i].line, s);
            bool passes = weir_passes(&answer.decision);
            shed += !passes;
            odd += answer.priority != cases[i].priority;
            odd += !passes &&
                   (answer.by.reason != WEIR_BY_SHED || answer.status != 503 || answer.decision.verdict != WEIR_DENY ||
                    answer.decision.retry_after_ns < WEIR_SECOND || answer.decision.retry_after_ns > 5 * WEIR_SECOND);
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
    CHECK_EQ(stats_of(engine, "buy").denied, 0);
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
    weir_answer answer;
    weir_outcome outcomes[4];
    weir_held held;
    shed_is(engine, 0, 0, 0, 1000);
    test_request(&r, "GET /");
    r.query.now = test_seconds(0);
    r.query.held = &held;
    r.query.outcomes = outcomes;
    r.query.outcomes_max = 4;
    for (int i = 0; i < 500; i++) {
        CHECK_EQ(weir_check(engine, &r.query, &answer), 0);
        CHECK_EQ(answer.by.reason, WEIR_BY_SHED);
        CHECK_EQ(held.count, 0);
    }
    CHECK_EQ(strcmp(answer.by.rule, "rate"), 0);
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
    CHECK_EQ(test_ask(engine, "GET /no", 0).by.reason, WEIR_BY_BAN);
    CHECK_EQ(test_ask(engine, "GET /x user_id=6", 0).by.reason, WEIR_BY_BLOCK_LIST);
    CHECK_EQ(test_ask(engine, "GET /x user_id=7", 0).by.reason, WEIR_BY_SHED);
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
    weir_answer answer;
    shed_is(engine, 0, 0, 1000, 1000);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weir_check_descriptors(engine, &query, &answer), 0);
        CHECK_EQ(answer.by.reason, WEIR_BY_SHED);
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

/* ---- Reserves ---- */

static void play_reserve(const char *algorithm)
{
    char rules[1024];
    snprintf(rules, sizeof rules,
             "rules:\n"
             "  - { name: all, limit: 10, %s, reserve: 20%% }\n"
             "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n"
             "  - { name: other, limit: 1000, window: 1d }\n",
             algorithm);
    weir *engine = pressed_engine(rules);
    CHECK_EQ(test_passing(engine, "GET /x", 0, 20), 8);
    weir_answer answer = test_ask(engine, "GET /x", 0);
    CHECK_EQ(answer.by.reason, WEIR_BY_SHED);
    CHECK_EQ(answer.status, 503);
    CHECK_EQ(answer.decision.limit, 8);
    CHECK_EQ(answer.decision.remaining, 0);
    CHECK(answer.decision.retry_after_ns > 0);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 1), 1);
    CHECK_EQ(test_ask(engine, "GET /x", 0).by.reason, WEIR_BY_SHED);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 9), 1);
    answer = test_ask(engine, "GET /x", 0); /* all of it is gone: that is the limit */
    CHECK_EQ(answer.by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(answer.status, 429);
    answer = test_ask(engine, "GET /pay", 0);
    CHECK_EQ(answer.by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(answer.decision.limit, 10);
    weir_rule_stats all = stats_of(engine, "all");
    CHECK_EQ(all.allowed, 10);
    CHECK_EQ(all.shed, 14);
    CHECK_EQ(all.denied, 10);
    /* Nothing leaked: the other rule has what passed, and no more. */
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, "other", "*", 1, test_seconds(0), &outcome), 0);
    CHECK_EQ(outcome.decision.remaining, 990);
    weir_close(engine);
}

TEST(a_reserve_is_for_critical_requests)
{
    play_reserve("window: 1d, algorithm: fixed_window");
    play_reserve("window: 1d, algorithm: sliding_window_log");
    play_reserve("window: 1d, algorithm: sliding_window_counter");
    play_reserve("window: 1d, algorithm: sliding_window_counter, buckets: 5");
    play_reserve("algorithm: concurrency");
}

/* A limit that a slot holds, and one that does not; the reserve must not change in which form it is counted. */
TEST(a_reserve_of_a_large_counter)
{
    weir *engine =
        pressed_engine("rules:\n"
                       "  - { name: all, limit: 40000, window: 1d, algorithm: sliding_window_counter, reserve: 20%,\n"
                       "      cost: header:cost }\n"
                       "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    CHECK(test_passes(engine, "GET /x @cost=32000", 0));
    CHECK(!test_passes(engine, "GET /x @cost=1", 0));
    weir_answer answer = test_ask(engine, "GET /pay @cost=8000", 0);
    CHECK(weir_passes(&answer.decision));
    CHECK_EQ(answer.decision.remaining, 0);
    CHECK(!test_passes(engine, "GET /pay @cost=1", 0));
    weir_close(engine);
}

/* A cost that could never fit into the rest is told so, not to come again. */
TEST(a_cost_over_the_rest_never_fits)
{
    weir *engine = pressed_engine(
        "rules:\n  - { name: a, limit: 10, window: 1m, algorithm: fixed_window, reserve: 50%, cost: 6 }\n");
    weir_answer answer = test_ask(engine, "GET /", 0);
    CHECK_EQ(answer.decision.verdict, WEIR_NEVER_FITS);
    CHECK_EQ(answer.by.reason, WEIR_BY_LIMIT);
    weir_close(engine);
}

TEST(a_reserve_of_an_adaptive_limit)
{
    weir *engine = pressed_engine("rules:\n"
                                  "  - { name: all, limit: 100, window: 1d, algorithm: fixed_window, reserve: 20%,\n"
                                  "      adaptive: { min: 50% } }\n"
                                  "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    load_is(engine, 0, 1000, 0);
    CHECK_EQ(test_passing(engine, "GET /x", 0, 100), 40);
    CHECK_EQ(test_passing(engine, "GET /pay", 0, 100), 10);
    CHECK_EQ(test_ask(engine, "GET /x", 0).by.reason, WEIR_BY_LIMIT);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(test_passing(engine, "GET /x", 1, 100), 30);
    CHECK_EQ(test_ask(engine, "GET /x", 1).by.reason, WEIR_BY_SHED);
    weir_close(engine);
}

/* Who is over a limit of its own is told that, whoever else would have shed it. */
TEST(a_limit_speaks_before_a_reserve)
{
    weir *engine = pressed_engine("rules:\n"
                                  "  - { name: all, limit: 10, window: 1d, algorithm: fixed_window, reserve: 50% }\n"
                                  "  - { name: own, limit: 5, window: 1m, algorithm: fixed_window }\n");
    CHECK_EQ(test_passing(engine, "GET /", 0, 10), 5);
    weir_answer answer = test_ask(engine, "GET /", 0);
    CHECK_EQ(answer.by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(strcmp(answer.by.rule, "own"), 0);
    CHECK_EQ(answer.status, 429);
    weir_close(engine);
}

/* ---- What the client is told ---- */

static weir_answer shed_answer(const char *response, char *text, size_t size)
{
    char rules[512];
    struct test_request r;
    weir_answer answer;
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
    weir_answer answer = shed_answer(", response: { message: Slow down }", text, sizeof text);
    CHECK_EQ(answer.status, 503);
    CHECK_EQ(answer.on_limit, WEIR_ON_LIMIT_REJECT);
    CHECK_EQ(answer.message.len, 0);
    answer.decision.retry_after_ns = 3 * WEIR_SECOND;
    weir_answer_body(&answer, false, body, sizeof body, &type);
    CHECK_EQ(strcmp(body, "{\"error\":\"overloaded\",\"message\":\"The service is busy with more important requests. "
                          "Please retry after 3 seconds.\",\"rule\":\"a\",\"retry_after\":3}\n"),
             0);
    weir_answer_body(&answer, true, body, sizeof body, &type);
    CHECK_EQ(strcmp(type, "application/problem+json"), 0);
    CHECK_EQ(strcmp(body,
                    "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\","
                    "\"title\":\"Temporary reduced capacity\",\"status\":503,\"detail\":\"The service is busy with "
                    "more important requests. Please retry after 3 seconds.\"}\n"),
             0);
    weir_answer_values(&answer, NULL, values, lens);
    CHECK_EQ(lens[WEIR_HEADER_RETRY_AFTER], 1);
    CHECK_EQ(lens[WEIR_HEADER_LIMIT], 0);
    CHECK_EQ(lens[WEIR_HEADER_POLICY], 0);
    answer = shed_answer(", response: { status: 420, body: { text: Sorry } }", text, sizeof text);
    CHECK_EQ(answer.status, 503);
    CHECK_EQ(answer.body, WEIR_BODY_AUTO);
    CHECK_EQ(answer.body_text.len, 0);
    answer = shed_answer(", response: { body: none }", text, sizeof text);
    CHECK_EQ(weir_answer_body(&answer, false, body, sizeof body, &type), 0);
}

/* ---- With a store ---- */

static weir *strict_engine(const char *rules)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = rules,
                        .diagnose = test_print_diagnostic,
                        .flags = WEIR_NO_LINK,
                        .store = "redis://127.0.0.1:1",
                        .load = ""};
    weir *engine = NULL;
    if (weir_open(&how, &engine) != 0)
        exit(1);
    return engine;
}

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
        struct result result = ask(engine, "GET / user_id=1", s);
        shed += !result.passes;
        odd += result.passes != (result.prepared == 1) || result.back != 0;
        odd += !result.passes && result.answer.by.reason != WEIR_BY_SHED;
    }
    CHECK_EQ(odd, 0);
    check_share(shed, n, 0.5);
    CHECK_EQ(store.questions, n - shed);
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
    CHECK_EQ(result.answer.by.reason, WEIR_BY_SHED);
    CHECK(ask(engine, "GET /", 0).passes);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(limits_in_force_go_along_to_the_store)
{
    test_store_open(&store);
    weir *engine =
        strict_engine("rules:\n"
                      "  - { name: all, limit: 100, window: 1d, algorithm: fixed_window, consistency: strict,\n"
                      "      adaptive: { min: 20% }, reserve: 50% }\n"
                      "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n");
    load_is(engine, 0, 1000, 0);
    CHECK_EQ(passing(engine, "GET /", 0, 30), 10);
    struct result result = ask(engine, "GET /", 0); /* remembered, and told the same */
    CHECK_EQ(result.prepared, 0);
    CHECK_EQ(result.answer.by.reason, WEIR_BY_SHED);
    CHECK_EQ(passing(engine, "GET /pay", 0, 30), 10);
    load_is(engine, 1, 0, 1000);
    CHECK_EQ(passing(engine, "GET /", 1, 60), 30); /* a larger limit is asked for anew */
    CHECK_EQ(passing(engine, "GET /pay", 1, 60), 50);
    load_is(engine, 1, 1000, 0);
    result = run(engine, "GET /pay", 1, (struct moment){.cost = -95});
    CHECK_EQ(result.answer.decision.limit, 20);
    CHECK_EQ(result.answer.decision.remaining, 15);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
