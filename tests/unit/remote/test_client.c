/* The client with one server that replies, rightly or wrongly: pipelines, the script, errors, groups. */
#include "client_request.h"

#include "remote/client_internal.h"

static struct request_storage many[200];

TEST(request_is_replied_to)
{
    fake_begin("redis://f:1/7");
    CHECK_EQ(fake_stats().state, WEIR__STORE_NEW);
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(take_one("k", 1), 0);
        CHECK_EQ(weir_passes(&one.ops[0].decision), i < 10);
        CHECK_EQ(one.ops[0].taken, i < 10);
    }
    CHECK_EQ(fake_servers[0].connects, 1);
    CHECK_EQ(fake_servers[0].selects, 7);
    CHECK_EQ(fake_done_count, 12);
    CHECK_EQ(fake_stats().state, WEIR__STORE_UP);
    CHECK_EQ(fake_stats().replied, 12);
    fake_end();
}

TEST(concurrent_requests_are_batched)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    int before = fake_servers[0].evals;
    for (int i = 0; i < 200; i++) {
        request_take(&many[i], "m", 1, limit());
        submit(&many[i]);
    }
    fake_run();
    CHECK_EQ(fake_done_count, 201);
    CHECK_EQ(fake_servers[0].evals - before, 4); /* 64 + 64 + 64 + 8 */
    int passed = 0;
    for (int i = 0; i < 200; i++)
        passed += weir_passes(&many[i].ops[0].decision);
    CHECK_EQ(passed, FAKE_LIMIT);
    fake_end();
}

TEST(reply_in_pieces_is_assembled)
{
    fake_begin("redis://f:1");
    fake_piece = 1;
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(take_one("k", 1), 0);
        CHECK_EQ(one.ops[0].taken, i < 10);
    }
    fake_end();
}

TEST(flushed_script_is_sent_once_and_requests_are_repeated)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    for (int round = 1; round <= 3; round++) {
        fake_servers[0].script = false; /* SCRIPT FLUSH */
        for (int i = 0; i < 200; i++) {
            request_take(&many[i], "k", 0, limit());
            submit(&many[i]);
        }
        fake_run();
        CHECK_EQ(fake_servers[0].loads, round);
        CHECK_EQ(fake_done_count, 1 + 200 * round);
        for (int i = 0; i < 200; i++)
            CHECK_EQ(many[i].request.error, 0);
    }
    CHECK_EQ(fake_stats().script_loads, 3);
    fake_end();
}

TEST(failure_to_load_the_script_is_an_error)
{
    fake_begin("redis://f:1");
    fake_servers[0].canned_reply = "-NOSCRIPT never\r\n";
    fake_servers[0].canned_times = 1000;
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREERROR);
    CHECK(fake_servers[0].evals < 20);
    fake_end();
}

TEST(server_errors_are_mapped)
{
    static const struct {
        const char *canned_reply;
        int error;
    } known[] = {{"-LOADING x\r\n", WEIR_ESTORELOADING},
                 {"-READONLY x\r\n", WEIR_ESTOREREADONLY},
                 {"-OOM x\r\n", WEIR_ESTOREOOM},
                 {"-MISCONF x\r\n", WEIR_ESTOREDISK},
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
        take_one("k", 1);
        fake_servers[0].canned_reply = known[i].canned_reply;
        fake_servers[0].canned_times = 1;
        CHECK_EQ(take_one("k", 1), known[i].error);
        CHECK_EQ(fake_stats().last_error, known[i].error);
        /* The connection stays usable. */
        CHECK_EQ(take_one("k", 1), 0);
        CHECK_EQ(fake_done_count, 3);
        fake_end();
    }
}

TEST(wide_nested_arrays_use_bounded_memory)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    char *canned_reply = malloc(64 + 100 * 16);
    strcpy(canned_reply, "*100\r\n");
    for (int i = 0; i < 100; i++)
        strcat(canned_reply, "*100000\r\n");
    fake_servers[0].canned_reply = canned_reply;
    fake_servers[0].canned_times = 1;
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
    free(canned_reply);
}

TEST(deeply_nested_arrays_use_bounded_stack)
{
    enum { DEEP = 390000 };
    fake_begin("redis://f:1");
    take_one("k", 1);
    char *canned_reply = malloc(DEEP * 4 + 8), *at = canned_reply;
    for (int i = 0; i < DEEP; i++, at += 4)
        memcpy(at, "*1\r\n", 4);
    strcpy(at, ":1\r\n");
    fake_servers[0].canned_reply = canned_reply;
    fake_servers[0].canned_times = 1;
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
    free(canned_reply);
}

TEST(endless_reply_closes_the_connection)
{
    fake_begin("redis://f:1");
    request_take(&one, "k", 1, limit());
    one.request.deadline_us = fake_now + 3600 * INT64_C(1000000);
    submit(&one);
    char *bytes = malloc(1 << 20);
    memset(bytes, 'x', 1 << 20);
    fake_run();
    fake_servers[0].paused = true;
    one.request.deadline_us = fake_now + 3600 * INT64_C(1000000);
    submit(&one);
    fake_run();
    weir__client_received(fake_client, 0, "$500000000\r\n", 12, fake_now);
    int fed = 0;
    for (; fed < 100 && fake_channels[0].open; fed++)
        weir__client_received(fake_client, 0, bytes, 1 << 20, fake_now);
    CHECK(fed < 10);
    CHECK_EQ(one.request.error, WEIR_ESTOREGARBAGE);
    free(bytes);
    fake_end();
}

TEST(unexpected_reply_closes_the_connection)
{
    fake_begin("redis://f:1");
    take_one("k", 1);
    weir__client_received(fake_client, 0, "+OK\r\n", 5, fake_now);
    CHECK(!fake_channels[0].open);
    CHECK_EQ(take_one("k", 1), 0);
    CHECK_EQ(fake_servers[0].connects, 2);
    fake_end();
}

TEST(authentication)
{
    fake_begin("redis://al:pw@f:1");
    fake_servers[0].user = "al";
    fake_servers[0].password = "pw";
    CHECK_EQ(take_one("k", 1), 0);
    fake_end();
    fake_begin("redis://:no@f:1");
    fake_servers[0].password = "pw";
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREAUTH);
    CHECK_EQ(fake_servers[0].evals, 0);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "-NOAUTH Authentication required.\r\n";
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREAUTH);
    fake_end();
    fake_begin("redis://f:1"); /* reply of a server before version 6 to AUTH with a user name */
    fake_servers[0].greets = "-ERR wrong number of arguments for 'auth' command\r\n";
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREAUTH);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "-LOADING Redis is loading the dataset in memory\r\n";
    CHECK_EQ(take_one("k", 1), WEIR_ESTORELOADING);
    fake_servers[0].greets = NULL;
    CHECK_EQ(take_one("k", 1), 0);
    fake_end();
    fake_begin("redis://f:1");
    fake_servers[0].greets = "$5\r\nHELLO\r\n";
    CHECK_EQ(take_one("k", 1), WEIR_ESTOREGARBAGE);
    fake_end();
}

static int resubmitted;

static void resubmit(struct weir__store_request *request)
{
    if (resubmitted++ < 100000)
        weir__client_submit(fake_client, request, fake_now);
}

TEST(submitting_from_the_callback_does_not_recurse)
{
    fake_begin("redis://f:1?breaker_failures=1");
    fake_servers[0].down = true;
    take_one("k", 0);
    fake_done_hook = resubmit;
    resubmitted = 0;
    take_one("k", 0); /* the breaker is open: done immediately, a hundred thousand times */
    CHECK_EQ(resubmitted, 100001);
    fake_end();
}

TEST(groups_after_the_first_depend_on_it)
{
    fake_begin("redis://f:1");
    for (int i = 0; i < 12; i++) {
        request_begin(&one);
        request_add_group(&one, false);
        request_add_op(&one, "a", WEIR__OP_TAKE, 1, limit());
        request_add_group(&one, true);
        request_add_op(&one, "shadow", WEIR__OP_TAKE, 1, limit());
        submit(&one);
        fake_run();
        CHECK_EQ(one.request.error, 0);
        CHECK_EQ(one.ops[1].taken, i < 10);
    }
    CHECK_EQ(*fake_used(&fake_servers[0], "shadow"), 10);
    fake_end();
}

TEST(more_groups_than_fit_one_command)
{
    fake_begin("redis://f:1");
    for (int round = 0; round < 2; round++) {
        request_begin(&one);
        for (int i = 0; i < 150; i++) {
            char name[16];
            snprintf(name, sizeof(name), "g%d", i);
            request_add_group(&one, i > 0);
            request_add_op(&one, name, WEIR__OP_TAKE, round == 1 && i == 0 ? 10 : 1, limit());
        }
        submit(&one);
        fake_run();
        CHECK_EQ(one.request.error, 0);
        for (int i = 0; i < 150; i++) {
            CHECK_EQ(one.ops[i].taken, round == 0); /* in the second round the first group does not pass */
            CHECK_EQ(one.ops[i].kind, WEIR__OP_TAKE);
        }
    }
    CHECK_EQ(*fake_used(&fake_servers[0], "g149"), 1);
    CHECK_EQ(fake_done_count, 2);
    /* After missed deadlines everything is refunded. */
    fake_servers[0].paused = true;
    request_begin(&one);
    for (int i = 0; i < 150; i++) {
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        request_add_group(&one, false);
        request_add_op(&one, name, WEIR__OP_TAKE, 2, limit());
    }
    submit(&one);
    fake_pass(30000);
    CHECK_EQ(one.request.error, WEIR_ESTORESLOW);
    memset(&one, 0xee, sizeof(one));
    fake_servers[0].paused = false;
    fake_run();
    CHECK_EQ(*fake_used(&fake_servers[0], "g0"), 1);
    CHECK_EQ(*fake_used(&fake_servers[0], "g149"), 1);
    fake_end();
}

TEST(garbage_replies_are_errors)
{
    fake_begin("redis://f:1");
    request_begin(&one);
    submit(&one);
    CHECK_EQ(one.request.error, WEIR_EINVAL);
    request_take(&one, "k", 1, limit());
    one.groups[0].count = 2;
    submit(&one);
    CHECK_EQ(one.request.error, WEIR_EINVAL);
    request_take(&one, "k", 1, limit());
    one.groups[0].first = 4000000000;
    submit(&one);
    CHECK_EQ(one.request.error, WEIR_EINVAL);
    fake_end();
}

/* From the replies: the server read its clock between sending and receiving. */
TEST(clock_offset_of_a_server)
{
    struct weir__clock_offset clock_offset = {0};
    static const struct {
        int64_t sent, received, clock, least, most;
    } replies[] = {
        {100, 200, 5150, 4950, 5050},              /* the first */
        {300, 310, 5310, 5000, 5010},              /* a fast reply narrows the bounds */
        {400, 9400, 5500, 4992, 5018},             /* a slow one does not; clocks drift */
        {10000, 10002, 5015000, 5004998, 5005000}, /* stepped by 5 s */
        {20000, 21000, 25500, 4500, 5500},         /* and back */
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        weir__clock_offset_update(&clock_offset, replies[i].clock, replies[i].sent, replies[i].received);
        CHECK_EQ(clock_offset.least_us, replies[i].least);
        CHECK_EQ(clock_offset.most_us, replies[i].most);
        CHECK_EQ(clock_offset.at_us, replies[i].received);
    }
}

TEST_MAIN
