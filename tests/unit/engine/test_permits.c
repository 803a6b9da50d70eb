/* Rules with concurrency limits: permits are acquired, released, and never leak. */
#include "../../engine.h"

#define SLOW                                                                                                           \
    "rules:\n"                                                                                                         \
    "  - { name: slow, match: { path: /slow* }, key: 'ip:${client_ip}', algorithm: concurrency, limit: 2, lease: 30s " \
    "}\n"

/* Checks at the current time, and keeps the permits. */
static bool hold(weir *engine, const char *line, weir_permits *permits, weir_result *result)
{
    struct test_request r;
    test_request(&r, line);
    r.query.permits = permits;
    CHECK_EQ(weir_check(engine, &r.query, result), 0);
    return weir_passes(&result->decision);
}

static int64_t left(weir *engine, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, rule, key, strlen(key), (weir_time){0, 0}, &outcome), 0);
    return outcome.decision.remaining;
}

TEST(permit_is_in_use_until_released)
{
    weir *w = test_engine(SLOW);
    weir_permits a, b, c;
    weir_result result;
    CHECK(hold(w, "GET /slow ip=192.0.2.1", &a, &result));
    CHECK_EQ(a.count, 1);
    CHECK_EQ(a.lease_ns, 30 * WEIR_SECOND);
    CHECK_EQ(result.decision.limit, 2);
    CHECK_EQ(result.decision.remaining, 1);
    CHECK(hold(w, "GET /slow ip=192.0.2.1", &b, &result));
    CHECK(!hold(w, "GET /slow ip=192.0.2.1", &c, &result));
    CHECK_EQ(c.count, 0);
    CHECK_EQ(result.decision.retry_after_ns, WEIR_SECOND);
    CHECK_EQ(result.status, 429);
    CHECK(hold(w, "GET /fast ip=192.0.2.1", &c, &result));
    CHECK_EQ(c.count, 0);
    CHECK_EQ(weir_permits_renew(w, &a), 0);
    CHECK_EQ(a.count, 1);
    weir_permits copy = a;
    CHECK_EQ(weir_permits_release(w, &a), 1);
    CHECK_EQ(a.count, 0);
    CHECK_EQ(weir_permits_release(w, &a), 0);
    CHECK(hold(w, "GET /slow ip=192.0.2.1", &c, &result));
    CHECK_EQ(weir_permits_release(w, &copy), 0); /* a second release frees no other permit */
    CHECK(!hold(w, "GET /slow ip=192.0.2.1", &a, &result));
    CHECK_EQ(weir_permits_renew(w, &copy), 0);
    CHECK_EQ(copy.count, 0);
    CHECK_EQ(weir_permits_release(w, &b), 1);
    CHECK_EQ(weir_permits_release(w, &c), 1);
    CHECK_EQ(left(w, "slow", "ip:192.0.2.1"), 2);
    copy.count = WEIR_PERMITS_MAX + 1;
    CHECK_EQ(weir_permits_release(w, &copy), WEIR_EINVAL);
    CHECK_EQ(weir_permits_renew(w, &copy), WEIR_EINVAL);
    CHECK_EQ(weir_permits_release(w, NULL), WEIR_EINVAL);
    weir_close(w);
}

TEST(permit_of_a_caller_that_keeps_none_is_released)
{
    weir *w = test_engine(SLOW);
    CHECK_EQ(test_passing(w, "GET /slow ip=192.0.2.1", 0, 5), 2);
    CHECK_EQ(test_passing(w, "GET /slow ip=192.0.2.1", 29.9, 5), 0);
    CHECK_EQ(test_passing(w, "GET /slow ip=192.0.2.1", 30, 5), 2);
    weir_close(w);
}

TEST(all_or_nothing_with_other_rules)
{
    weir *w = test_engine(SLOW "  - { name: rate, match: { path: /slow* }, limit: 3, window: 1h }\n"
                               "  - { name: all, match: { path: /slow* }, algorithm: concurrency, limit: 100 }\n");
    weir_permits permits;
    weir_result result;
    for (int i = 0; i < 3; i++) {
        CHECK(hold(w, "GET /slow ip=192.0.2.1", &permits, &result));
        CHECK_EQ(permits.count, 2);
        CHECK_EQ(weir_permits_release(w, &permits), 2);
    }
    for (int i = 0; i < 300; i++) {
        CHECK(!hold(w, "GET /slow ip=192.0.2.1", &permits, &result));
        CHECK_EQ(permits.count, 0);
    }
    CHECK_EQ(left(w, "slow", "ip:192.0.2.1"), 2);
    CHECK_EQ(left(w, "all", "*"), 100);
    weir_close(w);

    /* The concurrency limit denies: the rate is not charged. */
    w = test_engine("rules:\n"
                    "  - { name: rate, limit: 10, window: 1h }\n"
                    "  - { name: one, algorithm: concurrency, limit: 1 }\n");
    CHECK(hold(w, "GET /", &permits, &result));
    for (int i = 0; i < 20; i++) {
        weir_permits none;
        CHECK(!hold(w, "GET /", &none, &result));
        CHECK_EQ(strcmp(result.decided_by.rule, "one"), 0);
    }
    CHECK_EQ(left(w, "rate", "*"), 9);
    CHECK_EQ(weir_permits_release(w, &permits), 1);
    CHECK(hold(w, "GET /", &permits, &result));
    weir_close(w);
}

TEST(shadow_rules_have_their_own_permits)
{
    weir *w = test_engine("rules:\n"
                          "  - { name: a, algorithm: concurrency, limit: 2 }\n"
                          "  - { name: b, algorithm: concurrency, limit: 1, shadow: true }\n");
    weir_permits first, second, third;
    weir_result result;
    CHECK(hold(w, "GET /", &first, &result));
    CHECK_EQ(first.count, 2);
    CHECK(hold(w, "GET /", &second, &result));
    CHECK_EQ(second.count, 1);
    CHECK(result.shadow_denied);
    CHECK(!hold(w, "GET /", &third, &result));
    CHECK_EQ(third.count, 0);
    CHECK_EQ(weir_permits_release(w, &first), 2);
    CHECK_EQ(left(w, "b", "*"), 1);
    weir_close(w);
}

TEST(peeks_and_refunds_without_a_lease)
{
    weir *w = test_engine(SLOW);
    struct test_request r;
    weir_result result;
    weir_permits permits;
    test_request(&r, "GET /slow ip=192.0.2.1");
    r.query.permits = &permits;
    for (int i = 0; i < 5; i++) {
        r.query.dry_run = true;
        CHECK_EQ(weir_check(w, &r.query, &result), 0);
        CHECK(weir_passes(&result.decision));
        CHECK_EQ(permits.count, 0);
        r.query.dry_run = false;
        r.query.has_cost = true;
        r.query.cost = i % 2 ? 0 : -1;
        CHECK_EQ(weir_check(w, &r.query, &result), 0);
        CHECK_EQ(permits.count, 0);
        r.query.has_cost = false;
    }
    CHECK_EQ(left(w, "slow", "ip:192.0.2.1"), 2);
    /* Whatever its cost, it is one request. */
    r.query.has_cost = true;
    r.query.cost = 50;
    CHECK_EQ(weir_check(w, &r.query, &result), 0);
    CHECK(weir_passes(&result.decision));
    CHECK_EQ(left(w, "slow", "ip:192.0.2.1"), 1);
    CHECK_EQ(weir_key_reset(w, "slow", "ip:192.0.2.1", 12, (weir_time){0, 0}), 0);
    CHECK_EQ(left(w, "slow", "ip:192.0.2.1"), 2);
    weir_close(w);
}

TEST(more_rules_than_permits_per_request)
{
    char rules[4096] = "rules:\n";
    for (int i = 0; i <= WEIR_PERMITS_MAX; i++)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules),
                 "  - { name: r%d, algorithm: concurrency, limit: 1, on_store_failure: closed }\n", i);
    weir *w = test_engine(rules);
    weir_permits permits;
    weir_result result;
    for (int i = 0; i < 3; i++) {
        CHECK(!hold(w, "GET /", &permits, &result));
        CHECK_EQ(result.decided_by.error, WEIR_ETOOMANY);
        CHECK_EQ(permits.count, 0);
    }
    CHECK_EQ(left(w, "r0", "*"), 1);
    weir_close(w);
}

TEST(permits_as_text)
{
    weir *w =
        test_engine(SLOW "  - { name: all, match: { path: /slow* }, algorithm: concurrency, limit: 9, lease: 5s }\n");
    weir *other = test_engine(SLOW);
    char text[WEIR_PERMITS_TEXT_MAX + 1], wrong[WEIR_PERMITS_TEXT_MAX + 1];
    weir_permits permits = {0}, again;
    weir_result result;
    CHECK(hold(w, "GET /slow ip=192.0.2.1", &permits, &result));
    size_t len = weir_permits_to_text(w, &permits, text);
    CHECK(len > 0 && len == strlen(text) &&
          strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == len);
    CHECK_EQ(weir_permits_from_text(w, (weir_text){text, len}, &again), 0);
    CHECK_EQ(again.count, 2);
    CHECK_EQ(again.lease_ns, 5 * WEIR_SECOND);
    CHECK_EQ(weir_permits_from_text(other, (weir_text){text, len}, &again), WEIR_ELEASE);
    for (size_t i = 0; i < len; i++) { /* one changed character, and every length */
        memcpy(wrong, text, len + 1);
        wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
        CHECK(weir_permits_from_text(w, (weir_text){wrong, len}, &again) == WEIR_ELEASE || i == len - 1);
        CHECK_EQ(weir_permits_from_text(w, (weir_text){text, i}, &again), WEIR_ELEASE);
        wrong[i] = "+/= \n"[i % 5];
        CHECK_EQ(weir_permits_from_text(w, (weir_text){wrong, len}, &again), WEIR_ELEASE);
    }
    char longest[2000];
    memset(longest, 'A', sizeof longest);
    CHECK_EQ(weir_permits_from_text(w, (weir_text){longest, sizeof longest}, &again), WEIR_ELEASE);
    CHECK_EQ(weir_permits_from_text(w, (weir_text){text, len}, &again), 0);
    CHECK_EQ(weir_permits_release(w, &again), 2);
    CHECK_EQ(weir_permits_from_text(w, (weir_text){text, len}, &again), 0);
    CHECK_EQ(weir_permits_release(w, &again), 0);
    permits.count = 0;
    CHECK_EQ(weir_permits_to_text(w, &permits, text), 0);
    permits.count = WEIR_PERMITS_MAX;
    CHECK(weir_permits_to_text(w, &permits, text) <= WEIR_PERMITS_TEXT_MAX);
    weir_close(w);
    weir_close(other);
}

struct seen {
    char text[512];
};

static void see(void *context, enum weir_header header, const char *value, size_t len)
{
    struct seen *seen = context;
    size_t used = strlen(seen->text);
    snprintf(seen->text + used, sizeof seen->text - used, "%s: %.*s\n", weir_header_name(header), (int)len, value);
}

TEST(headers_have_the_number_of_permits)
{
    weir *w = test_engine(SLOW);
    weir_result result = test_check(w, "GET /slow ip=192.0.2.1", 0);
    struct seen seen = {""};
    weir_result_headers(&result, NULL, see, &seen);
    CHECK_EQ(strcmp(seen.text, "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nRateLimit-Policy: "
                               "\"slow\";q=2;qu=\"concurrent-requests\"\nRateLimit: \"slow\";r=1\n"),
             0);
    test_check(w, "GET /slow ip=192.0.2.1", 0);
    result = test_check(w, "GET /slow ip=192.0.2.1", 0);
    seen = (struct seen){""};
    weir_result_headers(&result, NULL, see, &seen);
    CHECK_EQ(
        strcmp(
            seen.text,
            "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-RateLimit-Retry-After: 1\n"
            "RateLimit-Policy: \"slow\";q=2;qu=\"concurrent-requests\"\nRateLimit: \"slow\";r=0;t=1\nRetry-After: 1\n"
            "Cache-Control: no-store\n"),
        0);
    weir_close(w);
}

TEST_MAIN
