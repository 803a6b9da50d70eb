/* The client with one server: pipelines, the script, deadlines, the breaker, and everything that servers do wrong. */
#include "client_asks.h"

static struct asked many[200];

TEST(a_question_is_answered)
{
    fake_begin("redis://f:1/7");
    CHECK_EQ(fake_stats().state, WEIR__STORE_NEW);
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(ask_one("k", 1), 0);
        CHECK_EQ(weir_passes(&one.asks[0].decision), i < 10);
        CHECK_EQ(one.asks[0].taken, i < 10);
    }
    CHECK_EQ(fake_servers[0].connects, 1);
    CHECK_EQ(fake_servers[0].selects, 7);
    CHECK_EQ(fake_done_count, 12);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    CHECK_EQ(fake_stats().answered, 12);
    fake_end();
}

TEST(what_is_asked_together_goes_together)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    int before = fake_servers[0].evals;
    for (int i = 0; i < 200; i++) {
        asked_one(&many[i], "m", 1, limit());
        ask(&many[i]);
    }
    fake_run();
    CHECK_EQ(fake_done_count, 201);
    CHECK_EQ(fake_servers[0].evals - before, 4); /* 64 + 64 + 64 + 8 */
    int passed = 0;
    for (int i = 0; i < 200; i++)
        passed += weir_passes(&many[i].asks[0].decision);
    CHECK_EQ(passed, FAKE_LIMIT);
    fake_end();
}

TEST(pieces_of_answers_are_put_together)
{
    fake_begin("redis://f:1");
    fake_piece = 1;
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(ask_one("k", 1), 0);
        CHECK_EQ(one.asks[0].taken, i < 10);
    }
    fake_end();
}

TEST(a_forgotten_script_is_loaded_once_and_nothing_is_lost)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    for (int round = 1; round <= 3; round++) {
        fake_servers[0].script = false; /* SCRIPT FLUSH */
        for (int i = 0; i < 200; i++) {
            asked_one(&many[i], "k", 0, limit());
            ask(&many[i]);
        }
        fake_run();
        CHECK_EQ(fake_servers[0].loads, round);
        CHECK_EQ(fake_done_count, 1 + 200 * round);
        for (int i = 0; i < 200; i++)
            CHECK_EQ(many[i].question.error, 0);
    }
    CHECK_EQ(fake_stats().script_loads, 3);
    fake_end();
}

TEST(a_script_that_cannot_be_loaded_is_an_error_in_the_end)
{
    fake_begin("redis://f:1");
    fake_servers[0].says = "-NOSCRIPT never\r\n";
    fake_servers[0].says_times = 1000;
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREERROR);
    CHECK(fake_servers[0].evals < 20);
    fake_end();
}

TEST(errors_have_their_names)
{
    static const struct {
        const char *says;
        int error;
    } known[] = {{"-LOADING x\r\n", WEIR_ESTORELOADING},
                 {"-READONLY x\r\n", WEIR_ESTOREREADONLY},
                 {"-OOM x\r\n", WEIR_ESTOREOOM},
                 {"-NOAUTH x\r\n", WEIR_ESTOREAUTH},
                 {"-NOPERM x\r\n", WEIR_ESTOREAUTH},
                 {"-MOVED 1 f:1\r\n", WEIR_ESTORECROSSSLOT},
                 {"-CROSSSLOT x\r\n", WEIR_ESTORECROSSSLOT},
                 {"-WHAT x\r\n", WEIR_ESTOREERROR},
                 {"+OK\r\n", WEIR_ESTOREGARBAGE},
                 {":1\r\n", WEIR_ESTOREGARBAGE},
                 {"*1\r\n$1\r\nx\r\n", WEIR_ESTOREGARBAGE},
                 {"HTTP/1.1 400 Bad Request\r\n", WEIR_ESTOREGARBAGE},
                 {"$999999999999999999999\r\n", WEIR_ESTOREGARBAGE},
                 {"*2147483647\r\n", WEIR_ESTOREGARBAGE},
                 {"*400001\r\n", WEIR_ESTOREGARBAGE},
                 {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", WEIR_ESTOREGARBAGE}};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        fake_begin("redis://f:1");
        ask_one("k", 1);
        fake_servers[0].says = known[i].says;
        fake_servers[0].says_times = 1;
        CHECK_EQ(ask_one("k", 1), known[i].error);
        CHECK_EQ(fake_stats().last_error, known[i].error);
        /* And it goes on. */
        CHECK_EQ(ask_one("k", 1), 0);
        CHECK_EQ(fake_done_count, 3);
        fake_end();
    }
}

TEST(arrays_of_arrays_do_not_eat_the_memory)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    char *says = malloc(64 + 100 * 16);
    strcpy(says, "*100\r\n");
    for (int i = 0; i < 100; i++)
        strcat(says, "*100000\r\n");
    fake_servers[0].says = says;
    fake_servers[0].says_times = 1;
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
    free(says);
}

TEST(arrays_within_arrays_do_not_eat_the_stack)
{
    enum { DEEP = 390000 };
    fake_begin("redis://f:1");
    ask_one("k", 1);
    char *says = malloc(DEEP * 4 + 8), *at = says;
    for (int i = 0; i < DEEP; i++, at += 4)
        memcpy(at, "*1\r\n", 4);
    strcpy(at, ":1\r\n");
    fake_servers[0].says = says;
    fake_servers[0].says_times = 1;
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
    free(says);
}

TEST(an_endless_answer_is_cut)
{
    fake_begin("redis://f:1");
    asked_one(&one, "k", 1, limit());
    one.question.deadline_us = fake_now + 3600 * INT64_C(1000000);
    ask(&one);
    char *bytes = malloc(1 << 20);
    memset(bytes, 'x', 1 << 20);
    fake_run();
    fake_servers[0].paused = true;
    one.question.deadline_us = fake_now + 3600 * INT64_C(1000000);
    ask(&one);
    fake_run();
    weir__client_received(fake_client, 0, "$500000000\r\n", 12, fake_now);
    int fed = 0;
    for (; fed < 100 && fake_channels[0].open; fed++)
        weir__client_received(fake_client, 0, bytes, 1 << 20, fake_now);
    CHECK(fed < 10);
    CHECK_EQ(one.question.error, WEIR_ESTOREGARBAGE);
    free(bytes);
    fake_end();
}

TEST(an_answer_that_nobody_asked_for_shuts)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    weir__client_received(fake_client, 0, "+OK\r\n", 5, fake_now);
    CHECK(!fake_channels[0].open);
    CHECK_EQ(ask_one("k", 1), 0);
    CHECK_EQ(fake_servers[0].connects, 2);
    fake_end();
}

TEST(logging_in)
{
    fake_begin("redis://al:pw@f:1");
    fake_servers[0].user = "al";
    fake_servers[0].password = "pw";
    CHECK_EQ(ask_one("k", 1), 0);
    fake_end();
    fake_begin("redis://:no@f:1");
    fake_servers[0].password = "pw";
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREAUTH);
    CHECK_EQ(fake_servers[0].evals, 0);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "-NOAUTH Authentication required.\r\n";
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREAUTH);
    fake_end();
    fake_begin("redis://f:1"); /* what a server before version 6 says of a user's name */
    fake_servers[0].greets = "-ERR wrong number of arguments for 'auth' command\r\n";
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREAUTH);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "-LOADING Redis is loading the dataset in memory\r\n";
    CHECK_EQ(ask_one("k", 1), WEIR_ESTORELOADING);
    fake_servers[0].greets = NULL;
    CHECK_EQ(ask_one("k", 1), 0);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "$5\r\nHELLO\r\n";
    CHECK_EQ(ask_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
}

TEST(a_deadline_is_kept_and_the_late_answer_given_back)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    fake_servers[0].paused = true;
    struct asked *gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    ask(gone);
    fake_pass(19999);
    CHECK_EQ(fake_done_count, 1);
    fake_pass(1);
    CHECK_EQ(fake_done_count, 2);
    CHECK_EQ(gone->question.error, WEIR_ESTORESLOW);
    free(gone); /* nothing may touch it */
    fake_servers[0].paused = false;
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 1);
    CHECK_EQ(fake_stats().gave_back, 1);
    CHECK_EQ(fake_stats().slow, 1);
    fake_end();
}

TEST(forgotten_questions_are_given_back_or_never_sent)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    struct asked *gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    ask(gone);
    weir__client_forget(fake_client, &gone->question); /* not sent yet */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 1);
    gone = malloc(sizeof(*gone));
    asked_one(gone, "k", 3, limit());
    ask(gone);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_forget(fake_client, &gone->question); /* on its way */
    free(gone);
    fake_run();
    CHECK_EQ(fake_servers[0].evals, 3);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 1);
    CHECK_EQ(fake_done_count, 1);
    CHECK_EQ(fake_stats().gave_back, 1);
    fake_end();
}

TEST(what_was_taken_can_be_given_back)
{
    fake_begin("redis://f:1");
    ask_one("k", 4);
    weir__client_give_back(fake_client, &one.question, fake_now);
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    /* Even if the server is away for a while. */
    ask_one("k", 4);
    fake_servers[0].down = true;
    fake_shut(&fake_channels[0]);
    weir__client_closed(fake_client, 0, 0, fake_now);
    weir__client_give_back(fake_client, &one.question, fake_now);
    fake_pass(2000000);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 4);
    fake_servers[0].down = false;
    fake_pass(2000000);
    CHECK_EQ(*fake_used(&fake_servers[0], "k"), 0);
    CHECK_EQ(fake_stats().gave_back, 2);
    fake_end();
}

TEST(what_may_have_been_carried_out_is_not_repeated)
{
    fake_begin("redis://f:1");
    ask_one("k", 1);
    asked_one(&one, "k", 1, limit());
    ask(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    fake_shut(&fake_channels[0]);
    weir__client_closed(fake_client, 0, 0, fake_now);
    CHECK_EQ(one.question.error, WEIR_ESTOREDOWN);
    fake_pass(100000);
    CHECK_EQ(fake_servers[0].evals, 1);
    fake_end();
}

TEST(an_idle_connection_that_was_closed_is_no_failure)
{
    fake_begin("redis://f:1?breaker_failures=1");
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(ask_one("k", 0), 0);
        fake_shut(&fake_channels[0]);
        weir__client_closed(fake_client, 0, 0, fake_now);
    }
    CHECK_EQ(fake_stats().opened, 0);
    fake_end();
}

TEST(the_breaker_opens_and_closes)
{
    fake_begin("redis://f:1");
    ask_one("k", 0);
    fake_servers[0].down = true;
    fake_shut(&fake_channels[0]);
    weir__client_closed(fake_client, 0, 0, fake_now);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(ask_one("k", 0), WEIR_ESTOREDOWN);
    CHECK_EQ(fake_downs, 1);
    CHECK_EQ(fake_last_told, WEIR_ESTOREDOWN);
    CHECK_EQ(fake_stats().state, WEIR__STORE_DOWN);
    int connects = fake_servers[0].connects;
    for (int i = 0; i < 100; i++)
        CHECK_EQ(ask_one("k", 0), WEIR_ESTOREAWAY);
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
        ask(&many[i]);
    }
    CHECK_EQ(many[1].question.error, WEIR_ESTOREAWAY);
    fake_run();
    CHECK_EQ(many[0].question.error, 0);
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
    fake_shut(&fake_channels[0]);
    weir__client_closed(fake_client, 0, 0, fake_now);
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREDOWN);
    fake_servers[0].down = fake_servers[0].script = false;
    fake_pass(2000000);
    asked_one(&one, "k", 1, limit());
    ask(&one);
    weir__client_flush(fake_client, fake_now);
    fake_transmit(0);
    weir__client_forget(fake_client, &one.question);
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
        slow += one.question.error == WEIR_ESTORESLOW;
        away += one.question.error == WEIR_ESTOREAWAY;
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
        ask(&many[i]);
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
        CHECK_EQ(one.question.error, WEIR_ESTORESLOW);
    }
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREAWAY);
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
    ask(&one);
    fake_run();
    static const char answer[] = "*1\r\n:1\r\n";
    for (int i = 0; i < 3 && fake_channels[0].open; i++) {
        weir__client_received(fake_client, 0, answer + i, 1, fake_now);
        fake_pass(1000000);
    }
    CHECK_EQ(one.question.error, WEIR_ESTORESLOW);
    CHECK_EQ(fake_stats().disconnects, 1);
    fake_end();
}

/* A driver that works only while somebody asks: what it did not look at meanwhile is not late. */
TEST(time_in_which_nobody_looked_does_not_count)
{
    for (int rested = 0; rested <= 1; rested++) {
        fake_begin("redis://f:1");
        fake_servers[0].paused = true;
        ask_one("k", 0);
        fake_pass(20000);
        CHECK_EQ(one.question.error, WEIR_ESTORESLOW);
        fake_servers[0].paused = false;
        fake_now += 5000000;
        if (rested)
            weir__client_rested(fake_client, 0, 5000000);
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
    CHECK(!weir__client_looks(fake_client, &one.question));
    fake_servers[0].paused = true;
    for (int i = 0; i < 5; i++) {
        ask_one("k", 0);
        fake_pass(20000);
    }
    CHECK_EQ(ask_one("k", 0), WEIR_ESTOREAWAY);
    CHECK(!weir__client_looks(fake_client, &one.question)); /* none is due yet */
    fake_pass(60000);
    CHECK(weir__client_looks(fake_client, &one.question));
    fake_servers[0].paused = false;
    fake_run();
    CHECK(!weir__client_looks(fake_client, &one.question));
    CHECK_EQ(ask_one("k", 0), 0);
    fake_end();
}

static int asked_again;

static void ask_again(struct weir__question *question)
{
    if (asked_again++ < 100000)
        weir__client_ask(fake_client, question, fake_now);
}

TEST(asking_again_when_done_does_not_go_deeper)
{
    fake_begin("redis://f:1?breaker_failures=1");
    fake_servers[0].down = true;
    ask_one("k", 0);
    fake_done_hook = ask_again;
    asked_again = 0;
    ask_one("k", 0); /* the breaker is open: done at once, a hundred thousand times */
    CHECK_EQ(asked_again, 100001);
    fake_end();
}

TEST(groups_after_the_first)
{
    fake_begin("redis://f:1");
    for (int i = 0; i < 12; i++) {
        asked_begin(&one);
        asked_group(&one, false);
        asked_add(&one, "a", WEIR__ASK_TAKE, 1, limit());
        asked_group(&one, true);
        asked_add(&one, "shadow", WEIR__ASK_TAKE, 1, limit());
        ask(&one);
        fake_run();
        CHECK_EQ(one.question.error, 0);
        CHECK_EQ(one.asks[1].taken, i < 10);
    }
    CHECK_EQ(*fake_used(&fake_servers[0], "shadow"), 10);
    fake_end();
}

TEST(more_groups_than_go_with_one_command)
{
    fake_begin("redis://f:1");
    for (int round = 0; round < 2; round++) {
        asked_begin(&one);
        for (int i = 0; i < 150; i++) {
            char name[16];
            snprintf(name, sizeof(name), "g%d", i);
            asked_group(&one, i > 0);
            asked_add(&one, name, WEIR__ASK_TAKE, round == 1 && i == 0 ? 10 : 1, limit());
        }
        ask(&one);
        fake_run();
        CHECK_EQ(one.question.error, 0);
        for (int i = 0; i < 150; i++) {
            CHECK_EQ(one.asks[i].taken, round == 0); /* the second time the first does not pass */
            CHECK_EQ(one.asks[i].how, WEIR__ASK_TAKE);
        }
    }
    CHECK_EQ(*fake_used(&fake_servers[0], "g149"), 1);
    CHECK_EQ(fake_done_count, 2);
    /* Missed deadlines: everything comes back. */
    fake_servers[0].paused = true;
    asked_begin(&one);
    for (int i = 0; i < 150; i++) {
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        asked_group(&one, false);
        asked_add(&one, name, WEIR__ASK_TAKE, 2, limit());
    }
    ask(&one);
    fake_pass(30000);
    CHECK_EQ(one.question.error, WEIR_ESTORESLOW);
    memset(&one, 0xee, sizeof(one));
    fake_servers[0].paused = false;
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "g0"), 1);
    CHECK_EQ(*fake_used(&fake_servers[0], "g149"), 1);
    fake_end();
}

TEST(nonsense_is_refused)
{
    fake_begin("redis://f:1");
    asked_begin(&one);
    ask(&one);
    CHECK_EQ(one.question.error, WEIR_EINVAL);
    asked_one(&one, "k", 1, limit());
    one.groups[0].count = 2;
    ask(&one);
    CHECK_EQ(one.question.error, WEIR_EINVAL);
    asked_one(&one, "k", 1, limit());
    one.groups[0].first = 4000000000;
    ask(&one);
    CHECK_EQ(one.question.error, WEIR_EINVAL);
    fake_end();
}

TEST(no_more_wait_than_there_is_room_for)
{
    fake_begin("redis://f:1");
    fake_servers[0].black = true;
    struct asked *crowd = calloc(1, sizeof(*crowd));
    struct weir__question *questions = calloc(20000, sizeof(*questions));
    asked_one(crowd, "k", 0, limit());
    int refused = 0;
    for (int i = 0; i < 20000; i++) {
        questions[i] = crowd->question;
        weir__client_ask(fake_client, &questions[i], fake_now);
        refused += questions[i].error == WEIR_ESTOREAWAY;
    }
    CHECK_EQ(refused, 20000 - 16384);
    fake_pass(20000);
    CHECK_EQ(fake_done_count, 20000);
    fake_end();
    free(questions);
    free(crowd);
}

/* Random faults: every question is done once, and what stays taken is what passed. */
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
                if (fake_channels[0].open) {
                    fake_shut(&fake_channels[0]);
                    weir__client_closed(fake_client, 0, 0, fake_now);
                }
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
            crowd[i].question.owner = &done[i];
            ask(&crowd[i]);
            fake_pass(25000);
            CHECK_EQ(done[i], before + 1);
            passed += !crowd[i].question.error && crowd[i].asks[0].taken;
            unknown += crowd[i].question.error == WEIR_ESTOREDOWN || crowd[i].question.error == WEIR_ESTORESLOW;
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
