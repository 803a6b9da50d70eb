/* The retry policy: the meaning of a response, back-off, pauses of a rule. */
#include "../../test.h"
#include "queue/retry_policy.h"
#include "base/text.h"

TEST(which_responses_end_a_delivery)
{
    static const int ends[] = {200, 201, 204, 301, 302, 307, 400, 401, 403, 404, 409, 410, 422, 499};
    static const int again[] = {0, 100, 101, 408, 425, 429, 500, 501, 502, 503, 504, 599, 600, 999, -1};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        CHECK(weir__retry_is_final(ends[i]));
    for (size_t i = 0; i < sizeof again / sizeof *again; i++)
        CHECK(!weir__retry_is_final(again[i]));
    CHECK(weir__retry_is_unavailable(0) && weir__retry_is_unavailable(502) && weir__retry_is_unavailable(503) &&
          weir__retry_is_unavailable(504));
    CHECK(!weir__retry_is_unavailable(500) && !weir__retry_is_unavailable(429) && !weir__retry_is_unavailable(200));
}

TEST(back_off_doubles_up_to_five_minutes)
{
    static const int64_t most[] = {1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000, 300000};
    for (int attempts = 1; attempts <= 11; attempts++) {
        int64_t bound = most[attempts - 1];
        CHECK_EQ(weir__retry_backoff_ms(attempts, 0), 0);
        CHECK_EQ(weir__retry_backoff_ms(attempts, (uint64_t)bound), bound);
        CHECK_EQ(weir__retry_backoff_ms(attempts, (uint64_t)bound + 1), 0);
    }
    CHECK_EQ(weir__retry_backoff_ms(INT32_MAX, 300000), 300000);
    CHECK(weir__retry_backoff_ms(0, UINT64_MAX) <= 1000 && weir__retry_backoff_ms(-5, 77) == 77);
}

TEST(back_off_jitter_is_uniform)
{
    enum { BINS = 8, DRAWS = 80000 };
    int count[BINS] = {0};
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < DRAWS; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        int64_t ms = weir__retry_backoff_ms(4, random);
        CHECK(ms >= 0 && ms <= 8000);
        count[ms * BINS / 8001]++;
    }
    for (int i = 0; i < BINS; i++)
        CHECK(count[i] > DRAWS / BINS * 9 / 10 && count[i] < DRAWS / BINS * 11 / 10);
}

#define RULE WEIR__TEXT("api")

static void record_failures(struct weir__rule_breakers *pauses, int times, int64_t now)
{
    for (int i = 0; i < times; i++)
        weir__rule_breaker_record(pauses, RULE, true, now);
}

TEST(three_failures_in_a_row_pause_a_rule)
{
    struct weir__rule_breakers pauses = {0};
    record_failures(&pauses, 2, 1000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1000), 0);
    weir__rule_breaker_record(&pauses, RULE, false, 1000); /* a response in between */
    record_failures(&pauses, 2, 1000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1000), 0);
    record_failures(&pauses, 1, 1000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1000), 2000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1999), 2000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, WEIR__TEXT("other"), 1000), 0);
}

TEST(one_probe_after_a_pause)
{
    struct weir__rule_breakers pauses = {0};
    record_failures(&pauses, 30, 0); /* all that were in flight: they do not make the pause longer */
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 10), 1000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1000), 0);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1000), 2000);
    record_failures(&pauses, 1, 1100);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 1100), 3100);
    /* A probe without a result does not block the rule forever. */
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 3100), 0);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 3200), 5100);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 5100), 0);
    weir__rule_breaker_record(&pauses, RULE, false, 5200);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 5200), 0);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 5200), 0);
}

TEST(pause_is_bounded)
{
    struct weir__rule_breakers pauses = {0};
    int64_t now = 0, wait = 0;
    record_failures(&pauses, 3, now);
    for (int i = 0; i < 40; i++) {
        int64_t until = weir__rule_breaker_until(&pauses, RULE, now);
        CHECK(until > now && until - now <= WEIR__RULE_BREAKER_MAX_MS && until - now >= wait);
        wait = until - now;
        now = until;
        CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, now), 0);
        record_failures(&pauses, 1, now);
    }
    CHECK_EQ(wait, WEIR__RULE_BREAKER_MAX_MS);
}

TEST(clock_set_back_makes_no_pause_longer)
{
    struct weir__rule_breakers pauses = {0};
    record_failures(&pauses, 3, INT64_C(3600000));
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 3600000), 3601000);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 0), 0);
    CHECK_EQ(weir__rule_breaker_until(&pauses, RULE, 10), 1000);
}

TEST(number_of_remembered_rules_is_bounded)
{
    struct weir__rule_breakers pauses = {0};
    char name[32];
    for (int i = 0; i < 2 * WEIR__RULE_BREAKERS; i++)
        for (int row = 0; row < WEIR__RULE_BREAKER_FAILURES; row++) {
            int len = snprintf(name, sizeof name, "rule-%d", i);
            weir__rule_breaker_record(&pauses, (weir_text){name, (size_t)len}, true, i);
        }
    int len = snprintf(name, sizeof name, "rule-%d", 2 * WEIR__RULE_BREAKERS - 1);
    CHECK(weir__rule_breaker_until(&pauses, (weir_text){name, (size_t)len}, 0) > 0);
    CHECK_EQ(weir__rule_breaker_until(&pauses, WEIR__TEXT("rule-0"), 0), 0);
}

TEST_MAIN
