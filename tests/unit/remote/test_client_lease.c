/* Leases of concurrency limits: a take in doubt is released, with as many retries as needed. */
#include "../../test.h"

#include "fake.h"

static struct request_storage one;

static weir_limit slots(void)
{
    weir_limit limit;
    weir_params params = {.algorithm = WEIR_CONCURRENCY, .limit = FAKE_LIMIT, .window_ns = WEIR_SECOND};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static void take(weir_limit limit)
{
    request_take(&one, "k", 1, limit);
    weir__client_submit(fake_client, &one.request, fake_now);
}

/* The request was sent, and its outcome is unknown. */
static void lose(void)
{
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    fake_lose(0);
}

TEST(take_in_doubt_is_released)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    CHECK_EQ(one.request.error, 0);
    take(slots());
    lose();
    CHECK_EQ(one.request.error, WEIR_ESTOREDOWN);
    fake_pass(500000);
    CHECK_EQ(fake_servers[0].evals, 2);
    CHECK_EQ(fake_stats().refunds, 1);
    /* Not for other counters: those might be refunded twice. */
    take(token_bucket(10, 60));
    lose();
    fake_pass(500000);
    CHECK_EQ(fake_servers[0].evals, 2);
    fake_end();
}

TEST(cancelled_take_is_released)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    take(slots());
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_cancel(fake_client, &one.request);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 3);
    CHECK_EQ(fake_stats().refunds, 1);
    take(slots());
    fake_run();
    weir__store_request_abandon(&one.request);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_run();
    CHECK_EQ(fake_stats().refunds, 2);
    fake_end();
}

TEST(take_that_was_never_sent_is_not_released)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    take(slots());
    weir__client_flush(fake_client, fake_now); /* queued, but no byte of it was sent */
    fake_lose(0);
    fake_pass(500000);
    CHECK_EQ(fake_stats().refunds, 0);
    fake_end();
}

TEST(release_is_retried)
{
    for (int lease = 0; lease < 2; lease++) {
        fake_begin("redis://f:1");
        take(lease ? slots() : token_bucket(10, 60));
        fake_run();
        CHECK(one.ops[0].taken);
        weir__client_refund(fake_client, &one.request, fake_now);
        lose();
        CHECK_EQ(weir__client_owes_refunds(fake_client), lease != 0);
        fake_pass(500000);
        CHECK_EQ(fake_stats().refunds, lease);
        CHECK_EQ(*fake_used(&fake_servers[0], "k"), !lease);
        CHECK(!weir__client_owes_refunds(fake_client));
        fake_end();
    }
}

TEST(release_is_not_retried_after_the_lease)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    fake_servers[0].down = true;
    fake_lose(0);
    weir__client_refund(fake_client, &one.request, fake_now);
    CHECK(weir__client_owes_refunds(fake_client));
    fake_pass(7000000);
    CHECK(!weir__client_owes_refunds(fake_client)); /* the lease has expired */
    fake_end();
}

TEST_MAIN
