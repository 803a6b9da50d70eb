/* The script in a real server: groups, stored values, and foreign values. */
#include "ops.h"

#include "base/text.h"

TEST(group_is_all_or_nothing)
{
    if (!begin())
        return;
    weir_limit many = slow(10), few = slow(2);
    struct weir__group groups[] = {{0, 2, false}, {2, 2, false}, {4, 2, false}};
    struct weir__store_op ops[6];
    for (int i = 0; i < 6; i++)
        ops[i] = make_op(i % 2 ? few : many, i % 2 ? "few" : "many", WEIR__OP_TAKE, 1);
    struct weir__store_request request = {.ops = ops, .op_count = 6, .groups = groups, .group_count = 3};
    CHECK_EQ(server_run(&request), 0);
    CHECK(ops[0].taken && ops[1].taken && ops[2].taken && ops[3].taken);
    CHECK_EQ(ops[5].decision.verdict, WEIR_DENY);
    CHECK_EQ(ops[4].decision.verdict, WEIR_ALLOW);
    CHECK(!ops[4].taken && !ops[5].taken);
    CHECK_EQ(left(many, "many"), 8);
    CHECK_EQ(left(few, "few"), 0);
    CHECK(ops[0].at_us == ops[5].at_us && ops[0].at_us > 0);

    /* And in the other order: the counters checked before the denial are not taken from, either. */
    struct weir__store_op turned[2] = {ops[5], ops[4]};
    request = (struct weir__store_request){.ops = turned, .op_count = 2, .groups = groups, .group_count = 1};
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(left(many, "many"), 8);
}

TEST(two_counters_of_one_name_in_a_group_add_up)
{
    if (!begin())
        return;
    weir_limit limits[] = {
        slow(3), logged(3, false), logged(60000, false),
        made((weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 3, .window_ns = 3600 * WEIR_SECOND, .buckets = 6})};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct weir__group group = {0, 2, false};
        int64_t each = limits[i].cap / 3, most = limits[i].cap;
        char name[16];
        snprintf(name, sizeof name, "twice%zu", i);
        struct weir__store_op ops[2] = {make_op(limits[i], name, WEIR__OP_TAKE, 2 * each),
                                        make_op(limits[i], name, WEIR__OP_TAKE, 2 * each)};
        struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = &group, .group_count = 1};
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(ops[0].decision.verdict, WEIR_ALLOW);
        CHECK_EQ(ops[1].decision.verdict, WEIR_DENY);
        CHECK_EQ(left(limits[i], name), most);
        ops[0].cost = ops[1].cost = each;
        CHECK_EQ(server_run(&request), 0);
        CHECK(ops[0].taken && ops[1].taken);
        CHECK_EQ(ops[1].decision.remaining, most - 2 * each);
        CHECK_EQ(left(limits[i], name), most - 2 * each);
        /* Again on the stored values: a long log is in the server only. */
        ops[0].cost = each;
        ops[1].cost = 1;
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(ops[1].decision.verdict, WEIR_DENY);
        CHECK_EQ(left(limits[i], name), most - 2 * each);
    }
}

TEST(denied_requests_are_logged_with_count_rejected)
{
    if (!begin())
        return;
    weir_limit strict = logged(2, true), other = slow(5);
    struct weir__group group = {0, 2, false};
    struct weir__store_op ops[2] = {make_op(other, "other", WEIR__OP_TAKE, 1),
                                    make_op(strict, "log", WEIR__OP_TAKE, 2)};
    struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = &group, .group_count = 1};
    CHECK_EQ(server_run(&request), 0);
    CHECK(ops[0].taken && ops[1].taken);
    server_do("PEXPIRE log 600000"); /* as if most of its hour were over */
    ops[1].cost = 1;
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(ops[1].decision.verdict, WEIR_DENY);
    CHECK(!ops[0].taken && !ops[1].taken);
    CHECK_EQ(left(other, "other"), 4);
    CHECK(number_of("PTTL log") > 1800000); /* the expiry was renewed */
    /* A log that would pass is not written when another counter denies. */
    weir_limit none = slow(1);
    struct weir__store_op more[2] = {make_op(none, "none", WEIR__OP_TAKE, 1),
                                     make_op(strict, "log2", WEIR__OP_TAKE, 1)};
    request.ops = more;
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(more[0].decision.verdict, WEIR_DENY);
    CHECK_EQ(left(strict, "log2"), 1);
}

TEST(shadow_groups_follow_the_first)
{
    if (!begin())
        return;
    weir_limit one = slow(1), five = slow(5);
    struct weir__group groups[] = {{0, 1, false}, {1, 1, true}};
    struct weir__store_op ops[2] = {make_op(one, "one", WEIR__OP_TAKE, 1), make_op(five, "shadow", WEIR__OP_TAKE, 1)};
    struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = groups, .group_count = 2};
    CHECK_EQ(server_run(&request), 0);
    CHECK(ops[0].taken && ops[1].taken);
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(ops[0].decision.verdict, WEIR_DENY);
    CHECK_EQ(ops[1].decision.verdict, WEIR_ALLOW);
    CHECK(!ops[1].taken);
    CHECK_EQ(left(five, "shadow"), 4);

    /* In a call of its own it is only peeked at. */
    struct weir__group_ref alone = {&request, 1};
    CHECK_EQ(server_run_groups(&alone, 1, NULL, 0), 0);
    CHECK(!ops[1].taken);
    CHECK_EQ(left(five, "shadow"), 4);

    /* Between the groups of other requests. */
    struct weir__store_op passing[2] = {make_op(five, "p", WEIR__OP_TAKE, 1), make_op(five, "q", WEIR__OP_TAKE, 1)};
    struct weir__store_request second = {.ops = passing, .op_count = 2, .groups = groups, .group_count = 2};
    struct weir__group_ref mixed[] = {{&request, 0}, {&second, 0}, {&second, 1}, {&request, 1}};
    CHECK_EQ(server_run_groups(mixed, 4, NULL, 0), 0);
    CHECK(passing[0].taken && passing[1].taken && !ops[0].taken && !ops[1].taken);
}

TEST(foreign_values_are_left_alone)
{
    if (!begin())
        return;
    weir_limit limits[] = {
        slow(10),
        made((weir_params){.limit = 10, .window_ns = WEIR_DAY, .refill = WEIR_REFILL_INTERVAL}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WEIR_DAY}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY, .buckets = 9}),
        logged(10, true)};
    const weir_text foreign[] = {
        WEIR__TEXT("hello"),
        WEIR__TEXT("session"),
        WEIR__TEXT("null"),
        WEIR__TEXT("large, but not a log, at all"),
        WEIR__TEXT("1"),
        WEIR__TEXT("0000000000000000000"),
        WEIR__TEXT("9000000000000000000"),
        WEIR__TEXT("1-00000000000000042"),
        WEIR__TEXT("100000000000000nan "),
        WEIR__TEXT("1           inf  1 "),
        WEIR__TEXT("11.5e300.2........."),
        WEIR__TEXT("1000000000000001e99"),
        WEIR__TEXT("100000000000000 1.5"),
        WEIR__TEXT("40000000000001e9999"),
        WEIR__TEXT("300000000000x 10000"),
        WEIR__TEXT("b12:34:56"),
        WEIR__TEXT("b99999999999999999999:1"),
        WEIR__TEXT("s1:2"),
        WEIR__TEXT("n"),
        WEIR__TEXT("nabc"),
        WEIR__TEXT("n\x94\x01\x02\x03\x04"),
        WEIR__TEXT("l"),
        WEIR__TEXT("l2345678901234567890123456789"),
        WEIR__TEXT("b9007199254740991:1"),
        WEIR__TEXT("b1:9999999999"),
        WEIR__TEXT("w9007199254740991:1"),
        WEIR__TEXT("s9007199254740991:1:1"),
        WEIR__TEXT("s1:9999999999:9999999999"),
        WEIR__TEXT("n\x9c\xcf\x00\x00\x00\x02\x3c\x34\x60\x00\x09\xcf\x00\x20\x00\x00\x00\x00\x00\x00\x01\x01\x01\x01"
                   "\x01\x01\x01\x01\x01"),
        WEIR__TEXT("l1\x01\x01\x01\x01\x20\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"),
        WEIR__TEXT("q1:1"),
        WEIR__TEXT("{}"),
        WEIR__TEXT("\xff\xff\xff\xff")};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct weir__group group = {0, 2, false};
        struct weir__store_op ops[2] = {make_op(limits[i], "good", WEIR__OP_TAKE, 1),
                                        make_op(limits[i], "bad", WEIR__OP_TAKE, 1)};
        struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = &group, .group_count = 1};
        server_do("FLUSHALL");
        server_do("LPUSH bad 1");
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(ops[0].error, 0);
        CHECK_EQ(ops[1].error, WEIR_ESTOREWRONGTYPE);
        CHECK(!ops[0].taken && !ops[1].taken);
        CHECK_EQ(number_of("EXISTS good"), 0);
        CHECK_EQ(number_of("LLEN bad"), 1);
        ops[1].kind = WEIR__OP_RESET;
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(ops[1].error, WEIR_ESTOREWRONGTYPE);
        CHECK_EQ(number_of("LLEN bad"), 1);
        /* Any text is an error, or counts as at most a valid state: the script never fails. */
        for (size_t f = 0; f < sizeof foreign / sizeof foreign[0]; f++) {
            freeReplyObject(redisCommand(server.context, "SET bad %b", foreign[f].data, foreign[f].len));
            struct weir__store_op op = make_op(limits[i], "bad", WEIR__OP_TAKE, 1);
            CHECK_EQ(server_one(&op), 0);
            CHECK(op.error == WEIR_ESTOREWRONGTYPE || !op.error);
            CHECK(f > 5 || op.error == WEIR_ESTOREWRONGTYPE);
        }
    }
}

TEST(another_algorithm_is_another_counter)
{
    if (!begin())
        return;
    weir_limit limits[] = {
        slow(10),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 400 * WEIR_DAY}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 20 * WEIR_DAY}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY, .buckets = 9}),
        logged(10, false),
        slow(3000000),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 3000000, .window_ns = 400 * WEIR_DAY}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 3000000, .window_ns = 20 * WEIR_DAY})};
    enum { COUNT = sizeof limits / sizeof limits[0] };
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++) {
            if (limits[i].algorithm == limits[j].algorithm)
                continue;
            server_do("DEL c");
            struct weir__store_op op = make_op(limits[i], "c", WEIR__OP_TAKE, limits[i].cap / 2);
            CHECK_EQ(server_one(&op), 0);
            CHECK(op.taken);
            op = make_op(limits[j], "c", WEIR__OP_TAKE, 1);
            CHECK_EQ(server_one(&op), 0);
            CHECK_EQ(op.error, 0);
            CHECK_EQ(op.decision.remaining, limits[j].cap - 1);
        }
}

TEST(changed_limit_keeps_consumed_units)
{
    if (!begin())
        return;
    struct weir__store_op op = make_op(slow(100), "c", WEIR__OP_TAKE, 60);
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(left(slow(200), "c"), 140);
    CHECK_EQ(left(slow(70), "c"), 10);
    CHECK_EQ(left(made((weir_params){.limit = 7, .window_ns = WEIR_DAY, .burst = 80}), "c"), 20);
}

TEST(values_are_small_and_expire)
{
    if (!begin())
        return;
    struct weir__store_op op = make_op(made((weir_params){.limit = 10, .window_ns = 1000 * WEIR_SECOND}), "c", 0, 4);
    CHECK_EQ(server_one(&op), 0);
    /* Valkey 9 stores a value set by a script as a string. */
    redisReply *reply = server_reply("INFO server");
    const char *encoding = strstr(reply->str, "valkey_version:9.") ? "embstr" : "int";
    freeReplyObject(reply);
    reply = server_reply("OBJECT ENCODING c");
    CHECK(reply && reply->str && strcmp(reply->str, encoding) == 0);
    freeReplyObject(reply);
    int64_t ttl = number_of("PTTL c");
    CHECK(ttl > 200000 && ttl <= 400002);
    op.kind = WEIR__OP_REFUND;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(number_of("EXISTS c"), 0);
    /* A long log is bounded and expires. */
    weir_limit log =
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 3000, .window_ns = WEIR_SECOND / 20});
    op = make_op(log, "l", WEIR__OP_TAKE, 500);
    int64_t longest = 0, passed = 0;
    for (int i = 0; i < 400; i++) {
        CHECK_EQ(server_one(&op), 0);
        passed += op.taken;
        int64_t len = number_of("STRLEN l");
        longest = len > longest ? len : longest;
        usleep(500);
    }
    CHECK(passed > 12);
    CHECK(longest <= 22 + 4 * 2 * 3500);
    usleep(60000);
    CHECK_EQ(number_of("EXISTS l"), 0);
}

TEST(calendar_window_other_than_the_servers_is_an_error)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .align = WEIR_ALIGN_CALENDAR});
    struct weir__store_op look = make_op(slow(1), "x", WEIR__OP_PEEK, 0), op = make_op(limit, "c", WEIR__OP_TAKE, 1);
    CHECK_EQ(server_one(&look), 0);
    int64_t day = 86400 * SECOND, present = look.at_us - SECOND * 3600;
    for (int shift = -3; shift <= 3; shift++) {
        server_do("DEL c");
        for (int i = 0; i < 4; i++)
            op.bounds_us[i] = present + (shift + i - 1) * day;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.error, shift >= -1 && shift <= 1 ? 0 : WEIR_ESTORECLOCK);
        if (!op.error)
            CHECK_EQ(op.at_us + op.decision.reset_after_ns / 1000, present + day);
    }
}

/* Of thousands in an hour, one would be refilled every few seconds. */
static weir_limit slower(int64_t limit)
{
    return made((weir_params){.limit = limit, .window_ns = 400 * WEIR_DAY});
}

TEST(many_counters_in_one_group)
{
    if (!begin())
        return;
    enum { MANY = 1500 };
    static struct weir__store_op ops[MANY];
    struct weir__group group = {0, MANY, false};
    struct weir__store_request request = {.ops = ops, .op_count = MANY, .groups = &group, .group_count = 1};
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        ops[i] = make_op(slower(10 + i), name, WEIR__OP_TAKE, 1);
    }
    for (int round = 1; round < 12; round++) {
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(ops[MANY - 1].taken, round < 11);
        CHECK_EQ(ops[0].decision.verdict, round < 11 ? WEIR_ALLOW : WEIR_DENY);
    }
    CHECK_EQ(left(slower(10 + MANY - 1), "m1499"), MANY - 1);
}

/* A host that does not know the server's time of a take sends its age. */
TEST(late_refund_does_not_reduce_newer_usage)
{
    if (!begin())
        return;
    weir_limit limits[] = {
        made((weir_params){.limit = 100, .window_ns = 10 * WEIR_SECOND, .burst = 100}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .window_ns = 3600 * WEIR_SECOND}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 3600 * WEIR_SECOND}),
        made((weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 3600 * WEIR_SECOND, .buckets = 6}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW,
                           .align = WEIR_ALIGN_FIRST_REQUEST,
                           .limit = 100,
                           .window_ns = 3600 * WEIR_SECOND})};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        static const int64_t ago[] = {INT64_MIN, -7200 * SECOND, -1};
        for (int k = 0; k < 3; k++) {
            char name[32];
            snprintf(name, sizeof name, "ago%zu/%d", i, k);
            struct weir__store_op take = make_op(limits[i], name, WEIR__OP_TAKE, 90), back = take;
            CHECK_EQ(server_one(&take), 0);
            CHECK(take.taken);
            back.kind = WEIR__OP_REFUND;
            back.at_us = ago[k];
            CHECK_EQ(server_one(&back), 0);
            CHECK_EQ(back.error, 0);
            if (ago[k] < -1)
                CHECK(left(limits[i], name) < 100);
            else if (i > 0)
                CHECK_EQ(left(limits[i], name), 100);
        }
    }
}

TEST_MAIN
