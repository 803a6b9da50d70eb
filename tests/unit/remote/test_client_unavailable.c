/* The client with one server that is late, slow or away: deadlines, giving back, the breaker. */
#include "client_request.h"

static struct asked many[200];

TEST(a_deadline_is_kept_and_the_late_answer_given_back)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    fake_servers[0].paused = true;
    struct asked *gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    op(gone);
    fake_pass(19999);
    CHECK_EQ(fake_done_count, 1);
    fake_pass(1);
    CHECK_EQ(fake_done_count, 2);
    CHECK_EQ(gone->request.error, WEIR_ESTORESLOW);
    free(gone); /* nothing may touch it */
    fake_servers[0].paused = false;
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 1);
    CHECK_EQ(fake_stats().refunds, 1);
    CHECK_EQ(fake_stats().slow, 1);
    fake_end();
}

/* Who ops and leaves pays for it: to give it back would cost the store as much again. */
TEST(forgotten_questions_stay_taken_or_are_never_sent)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    struct asked *gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    op(gone);
    weir__client_cancel(fake_client, &gone->request); /* not sent yet */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 1);
    gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    op(gone);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_cancel(fake_client, &gone->request); /* on its way */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 2);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 4);
    CHECK_EQ(fake_done_count, 1);
    CHECK_EQ(fake_stats().refunds, 0);
    /* One that is done, and whose owner never heard it. */
    ask_one("k", 2);
    weir__store_request_abandon(&one.request);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 3);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 6);
    fake_end();
}

TEST(what_was_taken_can_be_given_back)
{
    fake_begin("redis://f:1");
    ask_one("k", 4);
    weir__client_refund(fake_client, &one.request, fake_now);
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    /* Even if the server is away for a while. */
    ask_one("k", 4);
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

TEST(what_may_have_been_carried_out_is_not_repeated)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    asked_one(&one, "k", 1, limit());
    op(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    fake_lose(0);
    CHECK_EQ(one.request.error, WEIR_ESTOREDOWN);
    fake_pass(100000);
    CHECK_EQ(fake_servers[0].evals, 1);
    fake_end();
}

TEST(an_idle_connection_that_was_closed_is_no_failure)
{
    fake_begin("redis://f:1?breaker_failures=1");
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(ask_one("k", 0), 0);
        fake_lose(0);
    }
    CHECK_EQ(fake_stats().opened, 0);
    fake_end();
}

TEST(the_breaker_opens_and_closes)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].down = true;
    fake_lose(0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(ask_one("k", 0), WEIR_ESTOREDOWN);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_last_told, WEIR_ESTOREDOWN);
    CHECK_EQ(fake_stats().state, WEIR__STORE_DOWN);
    int connects = fake_servers[0].connects;
    for (int i = 0; i < 100; i++)
        CHECK_EQ(ask_one("k", 0), WEIR_ESTOREBREAKER);
    CHECK_EQ(fake_servers[0].connects, connects);
    CHECK_EQ(fake_stats().refused, 100);
    fake_pass(10 * 1000000);
    int looks = fake_servers[0].connects - connects;
    CHECK(looks >= 10 && looks <= 30);
    CHECK_EQ(fake_downs, 1);
    fake_servers[0].down = false;
    fake_pass(1000000);
    /* The first is the trial; those beside it are refused until it has succeeded. */
    for (int i = 0; i < 3; i++) {
        asked_one(&many[i], "k", 0, limit());
        op(&many[i]);
    }
    CHECK_EQ(many[1].request.error, WEIR_ESTOREBREAKER);
    fake_run();
    CHECK_EQ(many[0].request.error, 0);
    CHECK_EQ(ask_one("k", 0), 0);
    CHECK_EQ(fake_ups, 1);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    fake_end();
}

/* Whoever tries goes away, and the server was restarted: nothing is repeated for nobody, but others must get in. */
TEST(the_breaker_closes_though_who_tried_has_left)
{
    fake_begin("redis://f:1?breaker_failures=1");
    ask_one("k", 0);
    fake_servers[0].down = true;
    fake_lose(0);
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREDOWN);
    fake_servers[0].down = fake_servers[0].script = false;
    fake_pass(2000000);
    asked_one(&one, "k", 1, limit());
    op(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_cancel(fake_client, &one.request);
    fake_pass(2000000);
    CHECK_EQ(ask_one("k", 0), 0);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
}

TEST(a_paused_server_costs_a_few_deadlines)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].paused = true;
    int slow = 0, away = 0;
    for (int i = 0; i < 5000; i++) {
        fake_pass(ask_one("k", 0) == 1 ? 20000 : 1000);
        slow += one.request.error == WEIR_ESTORESLOW;
        away += one.request.error == WEIR_ESTOREBREAKER;
    }
    CHECK_EQ(slow, 5);
    CHECK_EQ(away, 4995);
    CHECK_EQ(fake_downs, 1);
    fake_servers[0].paused = false;
    fake_pass(2000000);
    CHECK_EQ(ask_one("k", 0), 0);
    CHECK_EQ(fake_ups, 1);
    fake_end();
}

TEST(many_late_answers_in_one_command_are_one_failure)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].paused = true;
    for (int i = 0; i < 60; i++) {
        asked_one(&many[i], "k", 0, limit());
        op(&many[i]);
    }
    fake_pass(30000);
    CHECK_EQ(fake_done_count, 61);
    CHECK_EQ(fake_stats().opened, 0);
    fake_servers[0].paused = false;
    CHECK_EQ(ask_one("k", 0), 0);
    fake_end();
}

TEST(a_server_that_greets_but_fails_stays_away)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].says = "-OOM command not allowed\r\n";
    fake_servers[0].says_times = 1 << 30;
    int evals = fake_servers[0].evals;
    for (int i = 0; i < 10000; i++) {
        ask_one("k", 0);
        fake_pass(1000);
    }
    /* Five, and then one a look: ten seconds of looks. */
    CHECK(fake_servers[0].evals - evals <= 5 + 30);
    CHECK(fake_servers[0].evals - evals >= 5 + 8);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_ups, 0);
    fake_end();
}

TEST(a_black_hole_costs_a_few_deadlines)
{
    fake_begin("redis://f:1");
    fake_servers[0].black = true;
    for (int i = 0; i < 5; i++) {
        ask_one("k", 0);
        fake_pass(20000);
        CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
    }
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREBREAKER);
    fake_servers[0].black = false;
    fake_pass(2500000);
    CHECK_EQ(ask_one("k", 0), 0);
    fake_end();
}

TEST(one_byte_a_second_is_too_slow)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].paused = true;
    asked_one(&one, "k", 0, limit());
    op(&one);
    fake_run();
    static const char answer[] = "*1\r\n:1\r\n";
    for (int i = 0; i < 3 && fake_channels[0].open; i++) {
        weir__client_received(fake_client, 0, answer + i, 1, fake_now);
        fake_pass(1000000);
    }
    CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
    CHECK_EQ(fake_stats().disconnects, 1);
    fake_end();
}

/* A driver that works only while somebody ops: what it did not look at meanwhile is not late. */
TEST(time_in_which_nobody_looked_does_not_count)
{
    for (int rested = 0; rested <= 1; rested++) {
        fake_begin("redis://f:1");
        fake_servers[0].paused = true;
        ask_one("k", 0);
        fake_pass(20000);
        CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
        fake_servers[0].paused = false;
        fake_now += 5000000;
        if (rested)
            weir__client_paused(fake_client, 0, 5000000);
        weir__client_tick(fake_client, fake_now);
        CHECK_EQ(ask_one("k", 0), 0);
        CHECK_EQ(fake_servers[0].connects, rested ? 1 : 2);
        fake_end();
    }
}

TEST(who_may_wait_for_a_probe_is_told)
{
    fake_begin("redis://f:1");
    CHECK_EQ(ask_one("k", 0), 0);
    CHECK(!weir__client_probing(fake_client, &one.request));
    fake_servers[0].paused = true;
    for (int i = 0; i < 5; i++) {
        ask_one("k", 0);
        fake_pass(20000);
    }
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREBREAKER);
    CHECK(!weir__client_probing(fake_client, &one.request)); /* none is due yet */
    fake_pass(60000);
    CHECK(weir__client_probing(fake_client, &one.request));
    fake_servers[0].paused = false;
    fake_run();
    CHECK(!weir__client_probing(fake_client, &one.request));
    CHECK_EQ(ask_one("k", 0), 0);
    fake_end();
}

TEST(no_more_wait_than_there_is_room_for)
{
    fake_begin("redis://f:1");
    fake_servers[0].black = true;
    struct asked *crowd = calloc(1, sizeof(*crowd));
    struct weir__store_request *requests = calloc(20000, sizeof(*requests));
    asked_one(crowd, "k", 0, limit());
    int refused = 0;
    for (int i = 0; i < 20000; i++) {
        requests[i] = crowd->request;
        weir__client_submit(fake_client, &requests[i], fake_now);
        refused += requests[i].error == WEIR_ESTOREBREAKER;
    }
    CHECK_EQ(refused, 20000 - 16384);
    fake_pass(20000);
    CHECK_EQ(fake_done_count, 20000);
    fake_end();
    free(requests);
    free(crowd);
}

/* Random faults: every request is done once, and what keep taken is what passed. */
TEST(random_faults)
{
    uint64_t random = 7;
    for (int64_t round = test_scaled(60, 10); round > 0; round--) {
        static struct asked crowd[64];
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
                server->says = "-OOM x\r\n";
                server->says_times = 3;
                break;
            case 5:
                fake_piece = test_random(&random) % 5;
                break;
            default:
                if (test_random(&random) % 4 == 0)
                    server->paused = server->down = false;
            }
            asked_one(&crowd[i], "k", 1, limit());
            crowd[i].request.owner = &done[i];
            op(&crowd[i]);
            fake_pass(25000);
            CHECK_EQ(done[i], before + 1);
            passed += !crowd[i].request.error && crowd[i].ops[0].taken;
            unknown += crowd[i].request.error == WEIR_ESTOREDOWN || crowd[i].request.error == WEIR_ESTORESLOW;
        }
        fake_servers[0].paused = fake_servers[0].down = false;
        fake_pass(10 * 1000000);
        int64_t used = fake_servers[0].key_count ? fake_servers[0].keys[0].used : 0;
        /* Never less than what passed: nothing is given back twice. */
        CHECK(used >= passed);
        CHECK(used <= passed + unknown);
        fake_end();
    }
}

TEST_MAIN
