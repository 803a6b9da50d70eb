/* The circuit breaker: when it opens, how it probes, and when it closes. */
#include "../../test.h"
#include "remote/client_internal.h"

static struct weir__breaker breaker;

static void open_it(uint64_t seed)
{
    weir__breaker_init(&breaker, 5, 50000, 1000000, seed);
    for (int i = 0; i < 5; i++)
        weir__breaker_failed(&breaker, 1000);
}

TEST(opens_after_failures_in_a_row_only)
{
    weir__breaker_init(&breaker, 5, 50000, 1000000, 1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            CHECK(!weir__breaker_failed(&breaker, 0));
        CHECK(weir__breaker_allows(&breaker));
        CHECK(!weir__breaker_succeeded(&breaker));
    }
    for (int i = 0; i < 4; i++)
        CHECK(!weir__breaker_failed(&breaker, 0));
    CHECK(weir__breaker_failed(&breaker, 0));
    CHECK(!weir__breaker_allows(&breaker));
    CHECK(!weir__breaker_failed(&breaker, 0)); /* it is open already */
    CHECK(!weir__breaker_succeeded(&breaker)); /* a late reply does not close it */
    CHECK(!weir__breaker_allows(&breaker));
}

TEST(one_probe_then_one_request_closes_it)
{
    open_it(2);
    int64_t due = breaker.retry_us;
    CHECK(due >= 1000 + 25000 && due <= 1000 + 50000);
    CHECK(!weir__breaker_probe(&breaker, due - 1));
    CHECK(weir__breaker_probe(&breaker, due));
    CHECK(!weir__breaker_probe(&breaker, due));
    CHECK_EQ(breaker.retry_us, INT64_MAX);
    CHECK(!weir__breaker_allows(&breaker));
    weir__breaker_probed(&breaker);
    CHECK(weir__breaker_allows(&breaker));
    CHECK(!weir__breaker_allows(&breaker)); /* one request is let through */
    weir__breaker_release(&breaker);
    CHECK(weir__breaker_allows(&breaker));
    CHECK(!weir__breaker_allows(&breaker));
    CHECK(weir__breaker_succeeded(&breaker));
    CHECK(weir__breaker_allows(&breaker) && weir__breaker_allows(&breaker));
    CHECK_EQ(breaker.failures, 0);
}

TEST(probes_back_off_with_jitter_up_to_a_bound)
{
    int64_t lowest = INT64_MAX, highest = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        open_it(seed);
        int64_t now = 1000;
        for (int look = 0; look < 100; look++) {
            int64_t wait = breaker.retry_us - now, full_wait = look < 5 ? INT64_C(50000) << look : 1000000;
            CHECK(wait >= full_wait / 2 && wait <= full_wait);
            if (look == 10) {
                lowest = wait < lowest ? wait : lowest;
                highest = wait > highest ? wait : highest;
            }
            now += wait;
            CHECK(weir__breaker_probe(&breaker, now));
            /* Some probes succeed, but the request after them fails: probing does not become more frequent. */
            if (look % 3 == 0) {
                weir__breaker_probed(&breaker);
                CHECK(weir__breaker_allows(&breaker));
            }
            CHECK(!weir__breaker_failed(&breaker, now));
            CHECK(!weir__breaker_allows(&breaker));
        }
    }
    /* 200 hosts do not probe at the same time. */
    CHECK(highest - lowest > 400000);
}

TEST_MAIN
