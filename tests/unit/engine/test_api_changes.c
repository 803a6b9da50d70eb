/* Changes of a counter without a check: blocks, resets, refunds, charges. */
#include "api.h"

TEST_OF_EACH_KIND(blocks)
{
    weir_decision d;
    take(s, limit, "k", 3, NOW);
    CHECK_EQ(weir_block(s, limit, "k", 1, 5 * WEIR_SECOND, NOW), 0);
    for (int64_t at = 0; at < 5; at++) {
        int64_t left = (5 - at) * WEIR_SECOND;
        d = take(s, limit, "k", 1, later(at * WEIR_SECOND));
        CHECK_EQ(d.verdict, WEIR_BLOCKED);
        CHECK(!weir_passes(&d));
        /* Exact to the resolution of blocks, and never too short. */
        CHECK(d.retry_after_ns >= left && d.retry_after_ns <= left + 10 * 1000 * WEIR_MICROSECOND);
        CHECK_EQ(d.remaining, 7);
        CHECK_EQ(d.delay_ns, 0);
        CHECK(!passes(s, limit, "k", 0, later(at * WEIR_SECOND)));
        CHECK(passes(s, limit, "other", 1, later(at * WEIR_SECOND)));
    }
    /* A reset clears the count, not the block. */
    CHECK_EQ(weir_reset(s, limit, "k", 1, later(WEIR_SECOND)), 0);
    d = take(s, limit, "k", 1, later(WEIR_SECOND));
    CHECK_EQ(d.verdict, WEIR_BLOCKED);
    CHECK_EQ(d.remaining, 10);
    /* The block expires. */
    CHECK_EQ(take(s, limit, "k", 10, later(5 * WEIR_SECOND + WEIR_SECOND / 50)).verdict, WEIR_ALLOW);
    /* A longer one, a shorter one, none. */
    CHECK_EQ(weir_block(s, limit, "k", 1, 400 * WEIR_DAY, later(6 * WEIR_SECOND)), 0);
    CHECK_EQ(take(s, limit, "k", 1, later(399 * WEIR_DAY)).verdict, WEIR_BLOCKED);
    CHECK_EQ(weir_block(s, limit, "k", 1, 1, later(399 * WEIR_DAY)), 0);
    CHECK_EQ(take(s, limit, "k", 1, later(399 * WEIR_DAY)).verdict, WEIR_BLOCKED);
    CHECK_EQ(take(s, limit, "k", 1, later(399 * WEIR_DAY + WEIR_SECOND)).verdict, WEIR_ALLOW);
    CHECK_EQ(weir_block(s, limit, "k", 1, WEIR_DAY, later(399 * WEIR_DAY + WEIR_SECOND)), 0);
    CHECK_EQ(weir_block(s, limit, "k", 1, 0, later(399 * WEIR_DAY + WEIR_SECOND)), 0);
    CHECK(passes(s, limit, "k", 1, later(399 * WEIR_DAY + WEIR_SECOND)));
}

TEST_OF_EACH_KIND(reset_and_refund)
{
    weir_decision d;
    take(s, limit, "k", 6, NOW);
    take(s, limit, "other", 2, NOW);
    CHECK_EQ(weir_refund(s, limit, "k", 1, 2, NOW, &d), 0);
    CHECK_EQ(d.remaining, 6);
    CHECK_EQ(remaining(s, limit, "k", NOW), 6);
    CHECK_EQ(take(s, limit, "k", -1, NOW).remaining, 7); /* equivalent to a refund */
    CHECK_EQ(weir_refund(s, limit, "k", 1, 0, NOW, &d), 0);
    CHECK_EQ(d.remaining, 7);
    /* Never above the initial state, for this key or one that was never seen. */
    CHECK_EQ(weir_refund(s, limit, "k", 1, COST_MAX, NOW, &d), 0);
    CHECK_EQ(d.remaining, 10);
    CHECK_EQ(remaining(s, limit, "k", NOW), 10);
    CHECK_EQ(weir_refund(s, limit, "new", 3, 5, NOW, &d), 0);
    CHECK_EQ(remaining(s, limit, "new", NOW), 10);
    CHECK_EQ(take(s, limit, "k", 11, NOW).verdict, WEIR_NEVER_FITS);

    take(s, limit, "k", 10, NOW);
    CHECK_EQ(weir_reset(s, limit, "k", 1, NOW), 0);
    CHECK_EQ(remaining(s, limit, "k", NOW), 10);
    CHECK_EQ(remaining(s, limit, "other", NOW), 8);
    CHECK_EQ(weir_reset(s, limit, "never", 5, NOW), 0);
}

/* The remaining units in a decision are those that a peek right after it finds, also where less could be refunded. */
TEST_OF_EACH_KIND(refund_reports_the_resulting_state)
{
    for (int64_t at = 0; at < 200; at += 7) {
        weir_decision d;
        take(s, limit, "k", 4, later(at * WEIR_SECOND));
        CHECK_EQ(weir_refund(s, limit, "k", 1, 6, later((at + 3) * WEIR_SECOND), &d), 0);
        CHECK_EQ(d.remaining, remaining(s, limit, "k", later((at + 3) * WEIR_SECOND)));
    }
}

TEST_OF_EACH_KIND(charge_into_debt_and_out_again)
{
    weir_decision d;
    bool log = limit->algorithm == WEIR_SLIDING_WINDOW_LOG; /* a log holds at most its limit, so it has no debt */
    take(s, limit, "k", 4, NOW);
    CHECK_EQ(weir_charge(s, limit, "k", 1, 16, NOW, &d), 0);
    CHECK_EQ(d.verdict, WEIR_ALLOW);
    CHECK_EQ(remaining(s, limit, "k", NOW), log ? 0 : -10);
    CHECK_EQ(take(s, limit, "k", 1, NOW).verdict, WEIR_DENY);
    CHECK_EQ(take(s, limit, "other", 10, NOW).verdict, WEIR_ALLOW);
    /* By a refund. */
    if (!log) {
        CHECK_EQ(weir_refund(s, limit, "k", 1, 15, NOW, &d), 0);
        CHECK_EQ(d.remaining, 5);
        CHECK_EQ(weir_charge(s, limit, "k", 1, 15, NOW, &d), 0);
    }
    /* By waiting: exactly as long as reported. */
    d = take(s, limit, "k", 10, NOW);
    CHECK_EQ(d.verdict, WEIR_DENY);
    CHECK(d.retry_after_ns > 0 && d.retry_after_ns <= WEIR_DAY);
    CHECK(!passes(s, limit, "k", 10, later(d.retry_after_ns - 1000)));
    CHECK(passes(s, limit, "k", 10, later(d.retry_after_ns)));
}

TEST_OF_EACH_KIND(charges_saturate)
{
    weir_decision d;
    int64_t before = 10;
    for (int n = 0; n < 5; n++) {
        CHECK_EQ(weir_charge(s, limit, "k", 1, COST_MAX, NOW, &d), 0);
        CHECK(d.remaining <= 0);
        int64_t now = remaining(s, limit, "k", NOW);
        CHECK(now <= before && now <= 0);
        before = now;
        d = take(s, limit, "k", 1, NOW);
        CHECK_EQ(d.verdict, WEIR_DENY);
        CHECK(d.retry_after_ns > 0);
    }
}

TEST_MAIN
