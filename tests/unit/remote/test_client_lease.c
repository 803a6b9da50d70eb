/* Leases of requests in flight: what may have been taken is given back, as often as it needs. */
#include "../../test.h"

#include "fake.h"

static struct asked one;

static weir_limit slots(void)
{
    weir_limit limit;
    weir_params params = {.algorithm = WEIR_CONCURRENCY, .limit = FAKE_LIMIT, .window_ns = WEIR_SECOND};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static void take(weir_limit limit)
{
    asked_one(&one, "k", 1, limit);
    weir__client_submit(fake_client, &one.request, fake_now);
}

/* It was sent, and nobody knows what became of it. */
static void lose(void)
{
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    fake_lose(0);
}

TEST(a_take_in_doubt_is_given_back)
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
    /* Not so other counters: they would be given back twice, perhaps. */
    take(asked_limit(10, 60));
    lose();
    fake_pass(500000);
    CHECK_EQ(fake_servers[0].evals, 2);
    fake_end();
}

TEST(a_forgotten_take_is_given_back)
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

TEST(one_that_was_never_sent_is_not)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    take(slots());
    weir__client_flush(fake_client, fake_now); /* made ready, and not a byte of it has left */
    fake_lose(0);
    fake_pass(500000);
    CHECK_EQ(fake_stats().refunds, 0);
    fake_end();
}

TEST(giving_back_is_repeated)
{
    for (int lease = 0; lease < 2; lease++) {
        fake_begin("redis://f:1");
        take(lease ? slots() : asked_limit(10, 60));
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

TEST(but_not_for_ever)
{
    fake_begin("redis://f:1");
    take(slots());
    fake_run();
    fake_servers[0].down = true;
    fake_lose(0);
    weir__client_refund(fake_client, &one.request, fake_now);
    CHECK(weir__client_owes_refunds(fake_client));
    fake_pass(7000000);
    CHECK(!weir__client_owes_refunds(fake_client)); /* the lease is over by itself */
    fake_end();
}

TEST_MAIN
