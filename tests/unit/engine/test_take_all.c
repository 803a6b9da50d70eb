/*
 * All or nothing in hard cases: costs of all signs in one request, one counter twice, counters that fail in the
 * middle, and concurrent requests between peek and take. The linker wraps the functions below, so that such moments
 * can be chosen.
 */
#include "../../engine.h"

#include "engine/evaluation.h"

/* ---- Moments ---- */

static struct {
    int peeks, takes, refunds; /* so far */
    int stale_peek;            /* this peek (from 1) returns the opposite, as with a concurrent request */
    int failing_take, failing_peek;
    int failing_refunds; /* the first ones */
    int error;
} moment;

int __real_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d);
int __wrap_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d);
int __wrap_weir_peek(const weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                     weir_decision *d)
{
    if (++moment.peeks == moment.failing_peek)
        return moment.error;
    int error = __real_weir_peek(s, l, k, n, c, t, d);
    if (!error && moment.peeks == moment.stale_peek)
        d->verdict = weir_passes(d) ? WEIR_DENY : WEIR_ALLOW;
    return error;
}

bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx);

/* These tests cover the slow path. */
bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx)
{
    (void)ctx;
    return false;
}

int __real_weir__take_on(unsigned cpu, weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c,
                         weir_time t, weir_decision *d);
int __wrap_weir__take_on(unsigned cpu, weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c,
                         weir_time t, weir_decision *d);
int __wrap_weir__take_on(unsigned cpu, weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c,
                         weir_time t, weir_decision *d)
{
    return ++moment.takes == moment.failing_take ? moment.error : __real_weir__take_on(cpu, s, l, k, n, c, t, d);
}

int __real_weir_refund(weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                       weir_decision *d);
int __wrap_weir_refund(weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                       weir_decision *d);
int __wrap_weir_refund(weir_segment *s, const weir_limit *l, const void *k, size_t n, int64_t c, weir_time t,
                       weir_decision *d)
{
    return ++moment.refunds <= moment.failing_refunds ? WEIR_EBUSY : __real_weir_refund(s, l, k, n, c, t, d);
}

static void quiet(void)
{
    memset(&moment, 0, sizeof moment);
}

/* ---- Requests ---- */

enum { OUTCOMES = 4 };

/* The remaining units of each rule, by a peek. */
static void left(weir *w, const char *line, int64_t remaining[OUTCOMES])
{
    struct test_request r;
    weir_result result;
    weir_outcome outcomes[OUTCOMES];
    quiet();
    test_request(&r, line);
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.outcomes = outcomes;
    r.query.outcomes_max = OUTCOMES;
    CHECK_EQ(weir_check(w, &r.query, &result), 0);
    for (size_t i = 0; i < result.outcomes; i++)
        remaining[i] = outcomes[i].decision.remaining;
}

#define CHECK_LEFT(w, line, ...)                                                                                       \
    do {                                                                                                               \
        int64_t expected_left[] = {__VA_ARGS__}, seen_left[OUTCOMES] = {-9, -9, -9, -9};                               \
        left(w, line, seen_left);                                                                                      \
        for (size_t i_ = 0; i_ < sizeof expected_left / sizeof *expected_left; i_++)                                   \
            CHECK_EQ(seen_left[i_], expected_left[i_]);                                                                \
    } while (0)

/* One request with two descriptors, "a" and "b", with their own hits. */
struct two {
    weir_descriptor_entry entries[2];
    weir_descriptor descriptors[2];
    weir_outcome outcomes[2];
    weir_result result;
};

static bool two_pass(weir *w, struct two *t, const char *first, int64_t first_hits, const char *second,
                     int64_t second_hits)
{
    const char *keys[] = {first, second};
    const int64_t hits[] = {first_hits, second_hits};
    for (int i = 0; i < 2; i++) {
        t->entries[i] = (weir_descriptor_entry){{keys[i], strlen(keys[i])}, {"1", 1}};
        t->descriptors[i] =
            (weir_descriptor){.entries = &t->entries[i], .entry_count = 1, .has_hits = true, .hits = hits[i]};
    }
    weir_descriptor_query query = {.domain = {"d", 1},
                                   .descriptors = t->descriptors,
                                   .descriptor_count = 2,
                                   .now = test_seconds(0),
                                   .outcomes = t->outcomes};
    CHECK_EQ(weir_check_descriptors(w, &query, &t->result), 0);
    return weir_passes(&t->result.decision);
}

static const char two_descriptors[] = "domain: d\n"
                                      "descriptors:\n"
                                      "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 3 } }\n"
                                      "  - { key: b, rate_limit: { unit: hour, requests_per_unit: 3 } }\n"
                                      "  - { key: banned, rate_limit: { unit: hour, requests_per_unit: 0 } }\n"
                                      "  - { key: free, rate_limit: { unlimited: true } }\n";

/* ---- Costs ---- */

TEST(rule_without_cost_does_not_disable_others)
{
    quiet();
    weir *w = test_engine("rules:\n"
                          "  - { name: exports, limit: 9, window: 1h, cost: { '/health': 0, default: 1 } }\n"
                          "  - { name: all, limit: 2, window: 1h }\n");
    CHECK_EQ(test_passing(w, "GET /health", 0, 5), 2);
    CHECK_LEFT(w, "GET /health", 9, 0);
    weir_close(w);
}

TEST(costs_of_all_signs_in_one_request)
{
    quiet();
    weir *w = test_engine(two_descriptors);
    struct two t;
    CHECK(two_pass(w, &t, "a", 0, "b", 1));
    CHECK_EQ(t.outcomes[0].decision.remaining, 3);
    CHECK_EQ(t.outcomes[1].decision.remaining, 2);
    CHECK(two_pass(w, &t, "a", 2, "b", -1));
    CHECK_EQ(t.outcomes[0].decision.remaining, 1);
    CHECK_EQ(t.outcomes[1].decision.remaining, 3);
    CHECK(two_pass(w, &t, "a", 0, "b", 2));
    /* Denied by one: the other is not refunded either. */
    CHECK(!two_pass(w, &t, "a", 2, "b", -2));
    CHECK_EQ(t.outcomes[0].decision.remaining, 1);
    CHECK_EQ(t.outcomes[1].decision.remaining, 1);
    CHECK(two_pass(w, &t, "a", 0, "b", 0));
    CHECK_EQ(t.outcomes[1].decision.remaining, 1);
    /* A request that takes nothing gets its refund even if another rule denies everything. */
    two_pass(w, &t, "banned", -1, "b", -2);
    CHECK(two_pass(w, &t, "a", -9, "b", 0));
    CHECK_EQ(t.outcomes[0].decision.remaining, 3);
    CHECK_EQ(t.outcomes[1].decision.remaining, 3);
    weir_close(w);
}

TEST(one_counter_twice_in_a_request)
{
    quiet();
    weir *w = test_engine(two_descriptors);
    struct two t;
    CHECK(two_pass(w, &t, "a", 1, "a", 1));
    CHECK_EQ(t.outcomes[1].decision.remaining, 1);
    CHECK(!two_pass(w, &t, "a", 1, "a", 1)); /* each alone would fit */
    CHECK(two_pass(w, &t, "a", 0, "b", 0));
    CHECK_EQ(t.outcomes[0].decision.remaining, 1);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(w, "d.a", false, &stats), 0);
    CHECK_EQ(stats.rolled_back, 1);
    CHECK_EQ(stats.denied, 1);
    CHECK_EQ(stats.allowed, 2);
    weir_close(w);
}

TEST(unmatched_descriptor_does_not_hide_a_match)
{
    quiet();
    weir *w = test_engine(two_descriptors);
    struct two t;
    CHECK(two_pass(w, &t, "unknown", 1, "free", 1));
    CHECK_EQ(t.result.decided_by.reason, WEIR_BY_UNLIMITED);
    CHECK_EQ(t.result.matched, 1);
    weir_close(w);
}

/* ---- Dry runs ---- */

TEST(dry_run_has_the_resulting_units)
{
    quiet();
    weir *w = test_engine("rules: [ { name: a, limit: 9, window: 1h }, { name: b, limit: 1, window: 1h } ]\n");
    CHECK(test_passes(w, "GET /", 0));
    for (int dry = 1; dry >= 0; dry--) {
        struct test_request r;
        weir_result result;
        weir_outcome outcomes[2];
        test_request(&r, "GET /");
        r.query.now = test_seconds(0);
        r.query.dry_run = dry;
        r.query.outcomes = outcomes;
        r.query.outcomes_max = 2;
        CHECK_EQ(weir_check(w, &r.query, &result), 0);
        CHECK(!weir_passes(&result.decision));
        CHECK_EQ(outcomes[0].decision.remaining, 8);
    }
    weir_close(w);
}

/* ---- Concurrent requests ---- */

static const char three_rules[] = "rules:\n"
                                  "  - { name: a, limit: 5, window: 1h, on_store_failure: %s }\n"
                                  "  - { name: b, limit: 5, window: 1h, algorithm: fixed_window, "
                                  "on_store_failure: %s }\n"
                                  "  - { name: c, limit: 2, window: 1h, algorithm: leaky_bucket, on_limit: delay, "
                                  "on_store_failure: %s }\n";

static weir *three(const char *policy)
{
    char text[512];
    snprintf(text, sizeof text, three_rules, policy, policy, policy);
    quiet();
    return test_engine(text);
}

TEST(rolled_back_when_the_last_rule_denies_late)
{
    weir *w = three("local");
    CHECK_EQ(test_passing(w, "GET /", 0, 5), 2);
    quiet();
    moment.stale_peek = 3; /* c seems to have room */
    moment.failing_refunds = 3;
    CHECK(!test_passes(w, "GET /", 0));
    CHECK_EQ(moment.refunds, 5); /* of two, one of them at the fourth try */
    CHECK_LEFT(w, "GET /", 3, 3, 0);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(w, "a", false, &stats), 0);
    CHECK_EQ(stats.rolled_back, 1);
    CHECK_EQ(stats.allowed, 2);
    CHECK_EQ(stats.failures, 0);
    weir_close(w);
}

TEST(delay_is_refunded)
{
    weir *w = test_engine("rules:\n"
                          "  - { name: c, limit: 3, window: 1h, algorithm: leaky_bucket, on_limit: delay }\n"
                          "  - { name: d, limit: 1, window: 1h }\n");
    quiet();
    CHECK(test_passes(w, "GET /", 0));
    moment.stale_peek = moment.peeks + 2;
    CHECK(!test_passes(w, "GET /", 0));
    CHECK_EQ(moment.refunds, 1);
    CHECK_LEFT(w, "GET /", 2, 0);
    weir_close(w);
}

TEST(denial_stays_when_room_appears_while_it_is_logged)
{
    weir *w =
        test_engine("rules:\n"
                    "  - { name: log, limit: 3, window: 1h, algorithm: sliding_window_log, count_rejected: true }\n"
                    "  - { name: other, limit: 3, window: 1h }\n");
    quiet();
    moment.stale_peek = 1; /* the log seems full, and is not when the rejected request is logged */
    CHECK(!test_passes(w, "GET /", 0));
    CHECK_LEFT(w, "GET /", 2, 3);
    weir_close(w);
}

/* ---- Counters that fail ---- */

TEST(nth_take_fails)
{
    static const char *const policies[] = {"open", "local", "closed"};
    static const int errors[] = {WEIR_EFULL, WEIR_EBUSY};
    for (int i = 0; i < 3 * 3 * 2; i++) {
        int nth = i % 3;
        bool closed = i / 3 % 3 == 2;
        weir *w = three(policies[i / 3 % 3]);
        quiet();
        moment.failing_take = nth + 1;
        moment.error = errors[i / 9];
        weir_result result = test_check(w, "GET /", 0);
        CHECK_EQ(weir_passes(&result.decision), !closed);
        CHECK_EQ(result.decided_by.reason, closed ? WEIR_BY_FAILURE : WEIR_BY_LIMIT);
        CHECK_EQ(result.decided_by.error, closed ? moment.error : 0);
        CHECK_EQ(moment.refunds, closed ? nth : 0);
        int64_t all[] = {5, 5, 2};
        for (int k = 0; k < 3 && !closed; k++)
            all[k] -= k != nth;
        CHECK_LEFT(w, "GET /", all[0], all[1], all[2]);
        weir_rule_stats stats;
        CHECK_EQ(weir_rule_stats_read(w, (const char *[]){"a", "b", "c"}[nth], false, &stats), 0);
        CHECK_EQ(stats.failures, 1);
        CHECK_EQ(stats.denied, closed);
        weir_close(w);
    }
}

/* A log without room is counted by a substitute counter, which is refunded when another rule denies the request. */
TEST(substitute_counter_is_refunded)
{
    weir *w = test_engine("rules:\n"
                          "  - { name: log, limit: 3, window: 1h, algorithm: sliding_window_log }\n"
                          "  - { name: other, match: { path: /both }, limit: 1, window: 1h }\n");
    quiet();
    CHECK(test_passes(w, "GET /both", 0));
    for (int i = 0; i < 5; i++) {
        quiet();
        moment.stale_peek = 2; /* the other seems to have room */
        moment.failing_take = 1;
        moment.error = WEIR_EFULL;
        CHECK(!test_passes(w, "GET /both", 0));
        CHECK_EQ(moment.refunds, 1);
    }
    /* One unit is in the log, and the substitute counter has the rest. */
    for (int i = 0; i < 4; i++) {
        quiet();
        moment.failing_take = 1;
        moment.error = WEIR_EFULL;
        weir_result result = test_check(w, "GET /", 0);
        CHECK_EQ(weir_passes(&result.decision), i < 2);
        CHECK_EQ(result.decided_by.reason, WEIR_BY_LIMIT);
        CHECK_EQ(result.decided_by.error, WEIR_EFULL);
        CHECK_EQ(result.decision.limit, 3);
        CHECK_EQ(result.decision.remaining, i < 2 ? 1 - i : 0);
    }
    weir_close(w);
}

TEST(nth_peek_fails)
{
    for (int i = 0; i < 6; i++) {
        int nth = i % 3;
        bool closed = i / 3;
        weir *w = three(closed ? "closed" : "open");
        quiet();
        moment.failing_peek = nth + 1;
        moment.error = WEIR_EBUSY;
        weir_result result = test_check(w, "GET /", 0);
        CHECK_EQ(weir_passes(&result.decision), !closed);
        CHECK_EQ(moment.takes, closed ? 0 : 2); /* a counter that could not be read is not taken from */
        CHECK_EQ(moment.refunds, 0);
        weir_close(w);
    }
}

TEST_MAIN
