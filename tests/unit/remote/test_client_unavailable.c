/* The client with one server that is late, slow or unavailable: deadlines, refunds, the breaker. */
#include "client_request.h"

static struct request_storage many[200];

TEST(deadline_is_kept_and_a_late_reply_refunded)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    fake_servers[0].paused = true;
    struct request_storage *gone = malloc(sizeof(*gone));
    request_take(gone, "k", 3, limit());
    submit(gone);
    fake_pass(19999);
    CHECK_EQ(fake_done_count, 1);
    fake_pass(1);
    CHECK_EQ(fake_done_count, 2);
    CHECK_EQ(gone->request.error, WEIR_ESTORESLOW);
    free(gone); /* the client must not access it any more */
    fake_servers[0].paused = false;
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 1);
    CHECK_EQ(fake_stats().refunds, 1);
    CHECK_EQ(fake_stats().slow, 1);
    fake_end();
}

/* A caller that submits and cancels pays for it: a refund would cost the store as much again. */
TEST(cancelled_request_stays_taken_or_is_never_sent)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    struct request_storage *gone = malloc(sizeof(*gone));
    request_take(gone, "k", 3, limit());
    submit(gone);
    weir__client_cancel(fake_client, &gone->request); /* not sent yet */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 1);
    gone = malloc(sizeof(*gone));
    request_take(gone, "k", 3, limit());
    submit(gone);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_cancel(fake_client, &gone->request); /* sent */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 2);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 4);
    CHECK_EQ(fake_done_count, 1);
    CHECK_EQ(fake_stats().refunds, 0);
    /* A request that is completed, but whose caller did not use the result. */
    take_one("k", 2);
    weir__store_request_abandon(&one.request);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 3);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 6);
    fake_end();
}

TEST(completed_take_can_be_refunded)
{
    fake_begin("redis://f:1");
    take_one("k", 4);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    /* Even if the server is unavailable for a while. */
    take_one("k", 4);
    fake_servers[0].down = true;
    fake_lose(0);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_pass(2000000);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 4);
    fake_servers[0].down = false;
    fake_pass(2000000);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    CHECK_EQ(fake_stats().refunds, 2);
    fake_end();
}

TEST(request_in_doubt_is_not_repeated)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    request_take(&one, "k", 1, limit());
    submit(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    fake_lose(0);
    CHECK_EQ(one.request.error, WEIR_ESTOREDOWN);
    fake_pass(100000);
    CHECK_EQ(fake_servers[0].evals, 1);
    fake_end();
}

TEST(closed_idle_connection_is_no_failure)
{
    fake_begin("redis://f:1?breaker_failures=1");
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(take_one("k", 0), 0);
        fake_lose(0);
    }
    CHECK_EQ(fake_stats().opened, 0);
    fake_end();
}

TEST(the_breaker_opens_and_closes)
{
    fake_begin("redis://f:1");
    take_one("k", 0);
    fake_servers[0].down = true;
    fake_lose(0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(take_one("k", 0), WEIR_ESTOREDOWN);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_last_error, WEIR_ESTOREDOWN);
    CHECK_EQ(fake_stats().state, WEIR__STORE_DOWN);
    int connects = fake_servers[0].connects;
    for (int i = 0; i < 100; i++)
        CHECK_EQ(take_one("k", 0), WEIR_ESTOREBREAKER);
    CHECK_EQ(fake_servers[0].connects, connects);
    CHECK_EQ(fake_stats().refused, 100);
    fake_pass(10 * 1000000);
    int looks = fake_servers[0].connects - connects;
    CHECK(looks >= 10 && looks <= 30);
    CHECK_EQ(fake_downs, 1);
    fake_servers[0].down = false;
    fake_pass(1000000);
    /* The first request is the trial; concurrent ones are refused until it has succeeded. */
    for (int i = 0; i < 3; i++) {
        request_take(&many[i], "k", 0, limit());
        submit(&many[i]);
    }
    CHECK_EQ(many[1].request.error, WEIR_ESTOREBREAKER);
    fake_run();
    CHECK_EQ(many[0].request.error, 0);
    CHECK_EQ(take_one("k", 0), 0);
    CHECK_EQ(fake_ups, 1);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    fake_end();
}

/* The caller of the trial request cancels, and the server was restarted: the request is not repeated, but others must
 * be let through. */
TEST(breaker_closes_though_its_first_request_was_cancelled)
{
    fake_begin("redis://f:1?breaker_failures=1");
    take_one("k", 0);
    fake_servers[0].down = true;
    fake_lose(0);
    CHECK_EQ(take_one("k", 0), WEIR_ESTOREDOWN);
    fake_servers[0].down = fake_servers[0].script = false;
    fake_pass(2000000);
    request_take(&one, "k", 1, limit());
    submit(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_cancel(fake_client, &one.request);
    fake_pass(2000000);
    CHECK_EQ(take_one("k", 0), 0);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
}

TEST(unresponsive_server_costs_few_deadlines)
{
    fake_begin("redis://f:1");
    take_one("k", 0);
    fake_servers[0].paused = true;
    int slow = 0, unavailable = 0;
    for (int i = 0; i < 5000; i++) {
        fake_pass(take_one("k", 0) == 1 ? 20000 : 1000);
        slow += one.request.error == WEIR_ESTORESLOW;
        unavailable += one.request.error == WEIR_ESTOREBREAKER;
    }
    CHECK_EQ(slow, 5);
    CHECK_EQ(unavailable, 4995);
    CHECK_EQ(fake_downs, 1);
    fake_servers[0].paused = false;
    fake_pass(2000000);
    CHECK_EQ(take_one("k", 0), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
}

TEST(late_replies_of_one_command_are_one_failure)
{
    fake_begin("redis://f:1");
    take_one("k", 0);
    fake_servers[0].paused = true;
    for (int i = 0; i < 60; i++) {
        request_take(&many[i], "k", 0, limit());
        submit(&many[i]);
    }
    fake_pass(30000);
    CHECK_EQ(fake_done_count, 61);
    CHECK_EQ(fake_stats().opened, 0);
    fake_servers[0].paused = false;
    CHECK_EQ(take_one("k", 0), 0);
    fake_end();
}

TEST(server_that_replies_only_to_ping_stays_unavailable)
{
    fake_begin("redis://f:1");
    take_one("k", 0);
    fake_servers[0].canned_reply = "-OOM command not allowed\r\n";
    fake_servers[0].canned_times = 1 << 30;
    int evals = fake_servers[0].evals;
    for (int i = 0; i < 10000; i++) {
        take_one("k", 0);
        fake_pass(1000);
    }
    /* Five, and then one a probe: ten seconds of probes. */
    CHECK(fake_servers[0].evals - evals <= 5 + 30);
    CHECK(fake_servers[0].evals - evals >= 5 + 8);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_ups, 0);
    fake_end();
}

TEST(unreachable_server_costs_few_deadlines)
{
    fake_begin("redis://f:1");
    fake_servers[0].black = true;
    for (int i = 0; i < 5; i++) {
        take_one("k", 0);
        fake_pass(20000);
        CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
    }
    CHECK_EQ(take_one("k", 0), WEIR_ESTOREBREAKER);
    fake_servers[0].black = false;
    fake_pass(2500000);
    CHECK_EQ(take_one("k", 0), 0);
    fake_end();
}

TEST(reply_of_one_byte_a_second_times_out)
{
    fake_begin("redis://f:1");
    take_one("k", 0);
    fake_servers[0].paused = true;
    request_take(&one, "k", 0, limit());
    submit(&one);
    fake_run();
    static const char raw_reply[] = "*1\r\n:1\r\n";
    for (int i = 0; i < 3 && fake_channels[0].open; i++) {
        weir__client_received(fake_client, 0, raw_reply + i, 1, fake_now);
        fake_pass(1000000);
    }
    CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
    CHECK_EQ(fake_stats().disconnects, 1);
    fake_end();
}

/* A driver that runs only while requests are submitted: the time in which it did not poll does not count. */
TEST(time_without_polling_does_not_count)
{
    for (int rested = 0; rested <= 1; rested++) {
        fake_begin("redis://f:1");
        fake_servers[0].paused = true;
        take_one("k", 0);
        fake_pass(20000);
        CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
        fake_servers[0].paused = false;
        fake_now += 5000000;
        if (rested)
            weir__client_paused(fake_client, 0, 5000000);
        weir__client_tick(fake_client, fake_now);
        CHECK_EQ(take_one("k", 0), 0);
        CHECK_EQ(fake_servers[0].connects, rested ? 1 : 2);
        fake_end();
    }
}

TEST(caller_learns_whether_a_probe_is_running)
{
    fake_begin("redis://f:1");
    CHECK_EQ(take_one("k", 0), 0);
    CHECK(!weir__client_probing(fake_client, &one.request));
    fake_servers[0].paused = true;
    for (int i = 0; i < 5; i++) {
        take_one("k", 0);
        fake_pass(20000);
    }
    CHECK_EQ(take_one("k", 0), WEIR_ESTOREBREAKER);
    CHECK(!weir__client_probing(fake_client, &one.request)); /* none is due yet */
    fake_pass(60000);
    CHECK(weir__client_probing(fake_client, &one.request));
    fake_servers[0].paused = false;
    fake_run();
    CHECK(!weir__client_probing(fake_client, &one.request));
    CHECK_EQ(take_one("k", 0), 0);
    fake_end();
}

/* ---- Heartbeats: a driver with timers checks a server that no request asks ---- */

#define SECONDS INT64_C(1000000)

static void begin_with_heartbeats(const char *url)
{
    fake_begin(url);
    fake_client->driver.heartbeat_us = fake_options.heartbeat_us;
    weir__client_start(fake_client, fake_now);
    fake_run();
}

TEST(idle_server_is_checked_and_a_busy_one_is_not)
{
    begin_with_heartbeats("redis://f:1");
    int pings = fake_servers[0].pings;
    for (int i = 0; i < 60; i++) {
        CHECK_EQ(take_one("k", 0), 0);
        fake_pass(SECONDS);
    }
    CHECK_EQ(fake_servers[0].pings, pings);
    fake_pass(60 * SECONDS); /* every 2.5 to 5 s */
    CHECK(fake_servers[0].pings - pings >= 12 && fake_servers[0].pings - pings <= 24);
    CHECK_EQ(fake_servers[0].connects, 1);
    CHECK_EQ(fake_downs, 0);
    fake_end();
}

/* The server of an idle host is gone, hangs, is unreachable, or refuses; then it is available again. No request is
 * sent. */
TEST(idle_client_notices_that_the_server_is_unavailable_and_available_again)
{
    for (int fault = 0; fault < 4; fault++) {
        struct fake_server *server = &fake_servers[0];
        begin_with_heartbeats("redis://f:1");
        fake_pass(20 * SECONDS);
        CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
        server->down = fault == 0;
        server->paused = fault == 1;
        server->black = fault == 2;
        server->greets = fault == 3 ? "-MISCONF x\r\n" : NULL;
        if (fault == 0 || fault == 2)
            fake_lose(0);
        fake_pass(20 * SECONDS);
        CHECK_EQ(fake_downs, 1);
        CHECK_EQ(fake_ups, 0);
        CHECK(fake_stats().state != WEIR__STORE_UP);
        CHECK_EQ(fake_last_error, fault == 1 ? WEIR_ESTORESLOW : fault == 3 ? WEIR_ESTOREDISK : WEIR_ESTOREDOWN);
        int connects = server->connects;
        fake_pass(20 * SECONDS);
        CHECK(server->connects - connects <= 40); /* a probe in 0.5 to 1 s */
        server->down = server->paused = server->black = false;
        server->greets = NULL;
        fake_pass(4 * SECONDS);
        CHECK_EQ(fake_ups, 1);
        CHECK_EQ(fake_downs, 1);
        CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
        for (int i = 0; i < 3; i++) { /* the breaker is closed, so that none waits for the first */
            request_take(&many[i], "k", 0, limit());
            submit(&many[i]);
        }
        fake_run();
        for (int i = 0; i < 3; i++)
            CHECK_EQ(many[i].request.error, 0);
        fake_end();
    }
}

/* A server that is not there from the start: `changed` is called without a request. */
TEST(idle_client_notices_that_there_is_no_server)
{
    fake_begin("redis://f:1");
    fake_servers[0].down = true;
    fake_client->driver.heartbeat_us = fake_options.heartbeat_us;
    weir__client_start(fake_client, fake_now);
    fake_pass(10 * SECONDS);
    CHECK_EQ(fake_downs, 1);
    fake_end();
}

TEST(closed_idle_connection_is_made_again)
{
    begin_with_heartbeats("redis://f:1?breaker_failures=1");
    for (int i = 0; i < 5; i++) {
        fake_lose(0);
        fake_pass(SECONDS);
        CHECK(fake_channels[0].open);
    }
    CHECK_EQ(fake_servers[0].connects, 6);
    CHECK_EQ(fake_stats().opened, 0);
    fake_end();
}

/* A PONG does not say that requests succeed: only a request closes a breaker that error replies have opened. */
TEST(server_that_rejects_requests_is_not_available_by_its_pong)
{
    begin_with_heartbeats("redis://f:1");
    fake_servers[0].canned_reply = "-OOM command not allowed\r\n";
    fake_servers[0].canned_times = 1 << 30;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(take_one("k", 0), WEIR_ESTOREOOM);
    CHECK_EQ(fake_downs, 1);
    fake_pass(60 * SECONDS);
    CHECK_EQ(fake_ups, 0);
    fake_servers[0].canned_reply = NULL;
    CHECK_EQ(take_one("k", 0), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
}

TEST(number_of_waiting_requests_is_bounded)
{
    fake_begin("redis://f:1");
    fake_servers[0].black = true;
    struct request_storage *pending = calloc(1, sizeof(*pending));
    struct weir__store_request *requests = calloc(20000, sizeof(*requests));
    request_take(pending, "k", 0, limit());
    int refused = 0;
    for (int i = 0; i < 20000; i++) {
        requests[i] = pending->request;
        weir__client_submit(fake_client, &requests[i], fake_now);
        refused += requests[i].error == WEIR_ESTOREBREAKER;
    }
    CHECK_EQ(refused, 20000 - 16384);
    fake_pass(20000);
    CHECK_EQ(fake_done_count, 20000);
    fake_end();
    free(requests);
    free(pending);
}

/* Random faults: every request is completed once, and the units taken are those that passed. */
TEST(random_faults)
{
    uint64_t random = 7;
    for (int64_t round = test_scaled(60, 10); round > 0; round--) {
        static struct request_storage pending[64];
        static int done[64];
        int64_t passed = 0, unknown = 0;
        fake_begin("redis://f:1?retry_min=1ms&retry_max=10ms");
        for (int step = 0; step < 400; step++) {
            int i = step % 64, before = done[i] = 0;
            if (step >= 64)
                fake_pass((int64_t)(test_random(&random) % 2000));
            struct fake_server *server = &fake_servers[0];
            switch (test_random(&random) % 40) {
            case 0:
                server->paused = true;
                break;
            case 1:
                server->script = false;
                break;
            case 2:
                if (fake_channels[0].open)
                    fake_lose(0);
                break;
            case 3:
                server->down = true;
                break;
            case 4:
                server->canned_reply = "-OOM x\r\n";
                server->canned_times = 3;
                break;
            case 5:
                fake_piece = test_random(&random) % 5;
                break;
            default:
                if (test_random(&random) % 4 == 0)
                    server->paused = server->down = false;
            }
            request_take(&pending[i], "k", 1, limit());
            pending[i].request.owner = &done[i];
            submit(&pending[i]);
            fake_pass(25000);
            CHECK_EQ(done[i], before + 1);
            passed += !pending[i].request.error && pending[i].ops[0].taken;
            unknown += pending[i].request.error == WEIR_ESTOREDOWN || pending[i].request.error == WEIR_ESTORESLOW;
        }
        fake_servers[0].paused = fake_servers[0].down = false;
        fake_pass(10 * 1000000);
        int64_t used = fake_servers[0].key_count ? fake_servers[0].keys[0].used : 0;
        /* Never less than what passed: nothing is refunded twice. */
        CHECK(used >= passed);
        CHECK(used <= passed + unknown);
        fake_end();
    }
}

/* Each deadline is kept, whatever the order in which the requests were submitted. */
TEST(deadlines_in_any_order)
{
    static const int64_t after_us[] = {8000, 2000, 6000, 2000, 9000, 1000, 7000};
    enum { COUNT = sizeof after_us / sizeof after_us[0] };
    static struct request_storage requests[COUNT];
    fake_begin("redis://f:1");
    CHECK_EQ(take_one("k", 1), 0);
    fake_servers[0].paused = true;
    int64_t begun = fake_now;
    for (int i = 0; i < COUNT; i++) {
        request_take(&requests[i], "k", 1, limit());
        requests[i].request.deadline_us = begun + after_us[i];
        submit(&requests[i]);
    }
    weir__client_cancel(fake_client, &requests[2].request);
    for (int64_t passed_us = 500; passed_us < 10000; passed_us += 1000) {
        int before = fake_done_count, due = 0;
        fake_pass(begun + passed_us - fake_now);
        for (int i = 0; i < COUNT; i++)
            due += i != 2 && after_us[i] <= passed_us && after_us[i] > passed_us - 1000;
        CHECK_EQ(fake_done_count - before, due);
    }
    fake_servers[0].paused = false;
    fake_run();
    fake_end();
}

TEST_MAIN
