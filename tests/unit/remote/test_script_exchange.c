/* The script in a real server: the exchange with hosts, and repeated batches. */
#include "ops.h"

#include "algo/algo.h"

static struct weir__store_op exchange(weir_limit limit, const char *name, int64_t delta, int64_t level)
{
    struct weir__store_op op = make_op(limit, name, WEIR__OP_EXCHANGE, delta);
    op.level = level;
    return op;
}

/* The worked example "four a second on three hosts, spread", by its amounts. */
TEST(three_hosts_agree)
{
    if (!begin())
        return;
    weir_limit four = made((weir_params){.limit = 4, .window_ns = 3600 * WEIR_SECOND, .burst = 4});
    static const int64_t consumed[] = {1, 1, 2};
    int64_t expected = 4;
    for (int host = 0; host < 3; host++) {
        struct weir__store_op op = exchange(four, "spread", consumed[host], 4 - consumed[host]);
        CHECK_EQ(server_one(&op), 0);
        expected -= consumed[host];
        CHECK_EQ(op.decision.remaining, expected);
        CHECK_EQ(op.decision.verdict, WEIR_ALLOW);
    }
    for (int host = 0; host < 3; host++) {
        struct weir__store_op op = exchange(four, "spread", 0, 4 - consumed[host]);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 0);
    }
}

/* The worked example "twelve at once, then repaid", ten times as fast: 4 in 100 ms. */
TEST(excess_admissions_are_repaid)
{
    if (!begin())
        return;
    weir_limit four = made((weir_params){.limit = 4, .window_ns = WEIR_SECOND / 10, .burst = 4});
    struct weir__store_op ops[3], take = make_op(four, "twelve", WEIR__OP_TAKE, 1);
    struct weir__group groups[3] = {{0, 1, false}, {1, 1, false}, {2, 1, false}};
    for (int host = 0; host < 3; host++)
        ops[host] = exchange(four, "twelve", 4, 0);
    struct weir__store_request request = {.ops = ops, .op_count = 3, .groups = groups, .group_count = 3};
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(ops[0].decision.remaining, 0);
    CHECK_EQ(ops[1].decision.remaining, -4);
    CHECK_EQ(ops[2].decision.remaining, -8);
    int64_t start = ops[2].at_us;
    /* Nine must be refilled before one passes: 225 ms. */
    CHECK_EQ(server_one(&take), 0);
    if (take.at_us - start < 225000) { /* or this machine is very busy */
        CHECK_EQ(take.decision.verdict, WEIR_DENY);
        CHECK_EQ(take.at_us + take.decision.retry_after_ns / 1000, start + 225000);
    }
    usleep(190000);
    CHECK_EQ(server_one(&take), 0);
    CHECK(take.at_us - start >= 225000 || take.decision.verdict == WEIR_DENY);
    usleep(40000);
    CHECK_EQ(server_one(&take), 0);
    CHECK_EQ(take.decision.verdict, WEIR_ALLOW);
}

/* Three hosts use 3 each of 5; each host's own bucket is full again when it exchanges, and the server has no counter
 * yet. */
TEST(usage_recovered_at_the_host_still_counts)
{
    if (!begin())
        return;
    weir_limit five = made((weir_params){.limit = 5, .window_ns = 3600 * WEIR_SECOND, .burst = 5});
    for (int host = 1; host <= 3; host++) {
        struct weir__store_op op = exchange(five, "recovered", 3, 5);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 5 - 3 * host);
    }
    struct weir__store_op debt = exchange(five, "in debt", 3, -4), back = exchange(five, "refunded", -2, 5);
    CHECK_EQ(server_one(&debt), 0);
    CHECK_EQ(debt.decision.remaining, -4);
    CHECK_EQ(server_one(&back), 0);
    CHECK_EQ(back.decision.remaining, 5);
}

TEST(exchanges_of_every_algorithm)
{
    if (!begin())
        return;
    static const weir_params params[] = {
        {.limit = 10, .window_ns = 3600 * WEIR_SECOND},
        {.limit = 10, .window_ns = 3600 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = 3600 * WEIR_SECOND, .delay = true},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 400 * WEIR_DAY},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 3600 * WEIR_SECOND, .align = 1},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = 3600 * WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 400 * WEIR_DAY},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 400 * WEIR_DAY, .buckets = 4},
    };
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        weir_limit limit = made(params[i]);
        bool log = limit.algorithm == WEIR_SLIDING_WINDOW_LOG;
        char name[16];
        snprintf(name, sizeof name, "x%zu", i);
        /* No counter in the store: it is created with the host's level, whatever the delta. */
        struct weir__store_op op = exchange(limit, name, 3, 2);
        struct weir__store_op look = make_op(limit, name, WEIR__OP_PEEK, 0);
        CHECK_EQ(server_one(&look), 0);
        int64_t window = limit.window_us;
        bool fixed = limit.algorithm == WEIR_FIXED_WINDOW;
        op.left_us = fixed ? window - look.at_us % window : 0;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.other_window, 0);
        CHECK_EQ(op.decision.remaining, 2);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, log ? 0 : -1); /* a log has no more entries than its limit */
        op.cost = -4;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, log ? 4 : 3);
        CHECK_EQ(left(limit, name), op.decision.remaining);
        /* An excessive debt is cut off. */
        op.cost = INT64_MAX;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(server_one(&op), 0);
        CHECK(op.decision.remaining >= -WEIR__USED_MAX && op.decision.remaining <= 0);
        op.cost = INT64_MIN;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 10);
        /* Above the capacity counts as full. */
        op = exchange(limit, name, 0, INT64_MAX);
        op.left_us = fixed ? window - look.at_us % window : INT64_MAX;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 10);
    }
}

TEST(windows_other_than_the_servers_are_not_compared)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 400 * WEIR_DAY});
    int64_t w = limit.window_us;
    struct weir__store_op op = exchange(limit, "w", 3, 7), look = make_op(limit, "w", WEIR__OP_PEEK, 0);
    CHECK_EQ(server_one(&look), 0);
    int64_t server_left = w - look.at_us % w;
    op.left_us = server_left + w / 2 + SECOND * 60;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.other_window, 1);
    CHECK(!op.taken);
    op.left_us = server_left - w / 2 - SECOND * 60;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.other_window, -1);
    /* A delta recorded in a window that has ended meanwhile is sent after it, however late. */
    for (int i = 0; i < 6; i++) {
        op.left_us = -w * i / 4 + server_left - w;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.other_window, -1);
        CHECK(!op.taken);
    }
    op.left_us = server_left + SECOND * 30;
    server_do("DEL w");
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.other_window, 0);
    CHECK_EQ(op.decision.remaining, 7);
}

/* The server's window ends with that of the host whose requests began it, not an exchange later. */
TEST(request_started_window_begins_at_the_host)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.algorithm = WEIR_FIXED_WINDOW,
                                          .align = WEIR_ALIGN_FIRST_REQUEST,
                                          .limit = 10,
                                          .window_ns = 3600 * WEIR_SECOND});
    struct weir__store_op op = exchange(limit, "f", 3, 7);
    op.left_us = 600 * SECOND;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.decision.reset_after_ns, 600 * WEIR_SECOND);
    op.left_us = 3000 * SECOND; /* another host's delta does not move it */
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.decision.remaining, 4);
    CHECK(op.decision.reset_after_ns <= 600 * WEIR_SECOND && op.decision.reset_after_ns > 500 * WEIR_SECOND);
    static const int64_t odd[] = {0, -5 * SECOND, INT64_MIN, INT64_MAX, 3600 * SECOND};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        server_do("DEL f");
        op.left_us = odd[i];
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.other_window, odd[i] < 0 ? -1 : 0); /* the window is over, and so is its usage */
        CHECK_EQ(op.decision.reset_after_ns, odd[i] < 0 ? 0 : 3600 * WEIR_SECOND);
    }
}

TEST(a_batch_counts_once)
{
    if (!begin())
        return;
    weir_limit ten = slow(10);
    struct weir__store_op op = exchange(ten, "k", 3, 7);
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = &op, .op_count = 1, .groups = &group, .group_count = 1};
    request.sender = "weir:sender";
    request.batch = UINT64_MAX - 1;
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(op.decision.remaining, 7);
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(op.decision.remaining, 7);
    request.batch++; /* differs in bits that a double cannot represent */
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(op.decision.remaining, 4);
    request.sender = "weir:other";
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(op.decision.remaining, 1);
    CHECK(number_of("PTTL weir:sender") > 3590000);
    server_do("LPUSH weir:list 1");
    request.sender = "weir:list";
    CHECK_EQ(server_run(&request), WEIR_ESTOREWRONGTYPE);
}

/* With `reseed`, at most the host's remaining units are left; without, the stored value counts. */
TEST(reseed_takes_the_minimum)
{
    if (!begin())
        return;
    static const weir_params params[] = {
        {.limit = 10, .window_ns = 3600 * WEIR_SECOND},
        {.limit = 10, .window_ns = 3600 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 3600 * WEIR_SECOND, .align = 1},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = 3600 * WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 400 * WEIR_DAY},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 400 * WEIR_DAY, .buckets = 4},
    };
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        weir_limit limit = made(params[i]);
        char name[16];
        snprintf(name, sizeof name, "d%zu", i);
        struct weir__store_op op = exchange(limit, name, 1, 9);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 9);
        op = exchange(limit, name, 2, 4);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 7);
        op = exchange(limit, name, 2, 4);
        op.reseed = true;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 4);
        CHECK_EQ(left(limit, name), 4);
        op = exchange(limit, name, 1, 8); /* knows less than the others */
        op.reseed = true;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 3);
        op = exchange(limit, name, -2, 3); /* refunds, and knows of more usage */
        op.reseed = true;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.remaining, 3);
        CHECK_EQ(left(limit, name), 3);
    }
}

/* A missing counter: restored by the host that knows it, but not if each host re-sends its own delta. */
TEST(resent_delta_does_not_restore_the_counter)
{
    if (!begin())
        return;
    struct weir__store_op op = exchange(slow(10), "o1", 1, 4);
    op.own_delta = true;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.decision.remaining, 9);
    op = exchange(slow(10), "o2", -3, 4); /* no counter to refund */
    op.own_delta = true;
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.decision.remaining, 10);
    CHECK_EQ(number_of("EXISTS o2"), 0);
    op = exchange(slow(10), "o3", 1, 4);
    op.own_delta = op.reseed = true; /* the missing usage is unknown */
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.decision.remaining, 4);

    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {
        .ops = &op, .op_count = 1, .groups = &group, .group_count = 1, .sender = "weir:own"};
    static const struct {
        uint64_t batch;
        int64_t remaining;
    } each[] = {
        {1, 4}, {2, 4}, {5, 9}, {6, 4}}; /* an unknown sender, one in sequence, one that is not, one that is again */
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%zu", i);
        op = exchange(slow(10), name, 1, 4);
        request.batch = each[i].batch;
        CHECK_EQ(server_run(&request), 0);
        CHECK_EQ(op.decision.remaining, each[i].remaining);
    }
}

static int64_t missed(const char *sender, uint64_t batch)
{
    struct weir__store_op op = exchange(slow(10), "m", 1, 9);
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {
        .ops = &op, .op_count = 1, .groups = &group, .group_count = 1, .sender = sender, .batch = batch};
    CHECK_EQ(server_run(&request), 0);
    return op.missed;
}

TEST(sender_learns_the_number_of_missed_batches)
{
    if (!begin())
        return;
    CHECK_EQ(missed("weir:s", 1), WEIR__MISSED_ALL);
    CHECK_EQ(missed("weir:s", 2), 0);
    CHECK_EQ(missed("weir:s", 2), 0); /* repeated */
    CHECK_EQ(missed("weir:s", 3), 0);
    CHECK_EQ(missed("weir:s", 7), 3);
    CHECK_EQ(missed("weir:s", 8), 0);
    CHECK_EQ(missed("weir:s", 5), WEIR__MISSED_ALL); /* another host of that name is ahead */
    server_do("SET weir:s nonsense");
    CHECK_EQ(missed("weir:s", 6), WEIR__MISSED_ALL);
    server_do("DEL weir:s");
    CHECK_EQ(missed("weir:s", 7), WEIR__MISSED_ALL);
    CHECK_EQ(missed("weir:s", UINT64_MAX), WEIR__MISSED_ALL); /* implausibly far */
    /* For the later commands of a batch nothing is reported: the previous batch may have had none. */
    struct weir__store_op op = exchange(slow(10), "m", 1, 9);
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = &op, .op_count = 1, .groups = &group, .group_count = 1};
    request.sender = "weir:later";
    request.batch = 9;
    request.slot = 1;
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(op.missed, 0);
}

static int64_t exchange_late(weir_limit limit, const char *name, int64_t amount, int64_t level, int64_t seconds)
{
    struct weir__store_op op = exchange(limit, name, amount, level);
    op.left_us = seconds * SECOND;
    CHECK_EQ(server_one(&op), 0);
    return op.decision.remaining;
}

/*
 * Three hosts without the store for 4000 s, at one unit in ten seconds: 400 were refilled meanwhile, of which the
 * bucket itself may have needed 100.
 */
TEST(late_deltas_are_paid_by_the_refill_of_that_time)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 360, .window_ns = 3600 * WEIR_SECOND, .burst = 100});
    CHECK_EQ(exchange_late(limit, "late", 150, 95, 4000),
             95); /* no more than the host has itself: 155 units of refill remain unused */
    CHECK_EQ(exchange_late(limit, "late", 10, 85, 0), 85); /* current usage is not paid by past refill */
    CHECK_EQ(exchange_late(limit, "late", 150, 99, 4000), 85);
    CHECK_EQ(exchange_late(limit, "late", 200, 99, 4000), 85 - 195);
    CHECK_EQ(exchange_late(limit, "late", 10, 99, 4000), -120); /* all is spent */
    CHECK_EQ(exchange_late(limit, "late", -5, 99, 4000), -115);
    CHECK_EQ(left(limit, "late"), -115);
    CHECK(number_of("PTTL late") > 1000000);

    /* A host that was disconnected alone, while others used the refill, owes its usage. */
    CHECK_EQ(exchange_late(limit, "alone", 100, 0, 0), 0);
    CHECK_EQ(exchange_late(limit, "alone", 150, 60, 4000), -150);
    /* The unused refill expires. */
    CHECK_EQ(exchange_late(limit, "ends", 1, 99, 4000), 99);
    CHECK(number_of("PTTL ends") > 4000);
    server_do("SET ends b1700000000000000:0:500:1700000000000001");
    CHECK_EQ(exchange_late(limit, "ends", 150, 100, 100), 100 - 140);
    server_do("SET ends b1700000000000000:0:500:9999999999999999");
    CHECK_EQ(exchange_late(limit, "ends", 150, 100, 100), 100 - 140);
    /* A debt beyond the possible refill remains one; and a bucket of one unit a period. */
    CHECK_EQ(exchange_late(limit, "debt", 1000, 40, 4000), 100 - 700);
    weir_limit drip = made((weir_params){.limit = 1, .window_ns = 3600 * WEIR_SECOND, .burst = 2});
    CHECK_EQ(exchange_late(drip, "drip", 9, 2, 9 * 3600), 2 - 2);
}

static int64_t server_clock(void)
{
    struct weir__store_op look = make_op(slow(10), "looks", WEIR__OP_PEEK, 0);
    CHECK_EQ(server_one(&look), 0);
    return look.at_us;
}

/* The result of an exchange that was in transit for so long. */
static struct weir__store_op in_transit(weir_limit limit, const char *name, int64_t amount, int64_t level,
                                        int64_t left_us, int64_t us)
{
    struct weir__store_op op = exchange(limit, name, amount, level);
    op.left_us = left_us;
    server_sent_us = server_clock() - us;
    CHECK_EQ(server_one(&op), 0);
    server_sent_us = 0;
    return op;
}

/* The exchange is in the socket buffer of a server that stalls for 4000 s: the refill of that time, 400, pays for it.
 */
TEST(delta_long_in_transit_is_paid_by_earlier_refill)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 360, .window_ns = 3600 * WEIR_SECOND, .burst = 100});
    CHECK_EQ(in_transit(limit, "way", 150, 20, 0, 4000 * SECOND).decision.remaining, 100); /* nor is `level` that old */
    CHECK_EQ(exchange_late(limit, "way", 150, 99, 4000), 99);
    CHECK_EQ(exchange_late(limit, "way", 50, 99, 4000), 99 - 49);
    /* It was late already, and in transit for as long again. */
    CHECK_EQ(in_transit(limit, "both", 600, 100, 4000 * SECOND, 4000 * SECOND).decision.remaining, 100);
    /* It was fast; the server's clock was set back; unknown. */
    CHECK_EQ(in_transit(limit, "fast", 150, 95, 0, SECOND / 20).decision.remaining, -50);
    CHECK_EQ(in_transit(limit, "back", 150, 95, 0, -4000 * SECOND).decision.remaining, -50);
    CHECK_EQ(exchange(limit, "unknown", 0, 0).left_us, 0);
    CHECK_EQ(exchange_late(limit, "unknown", 150, 95, 0), -50);
    /* The server's clock was set forward by a day: one batch of each host is taken for late, and no more. */
    CHECK_EQ(in_transit(limit, "ahead", 50, 50, 0, 86400 * SECOND).decision.remaining, 100);
    CHECK_EQ(exchange_late(limit, "ahead", 50, 50, 0), 50);

    limit = made((weir_params){.limit = 100, .window_ns = 3600 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL});
    CHECK_EQ(in_transit(limit, "interval", 250, 80, 0, 7 * 1800 * SECOND).decision.remaining, 100);
    CHECK_EQ(in_transit(limit, "interval", 200, 90, 0, 7 * 1800 * SECOND).decision.remaining, 100 - 150);
}

TEST(windows_end_while_an_exchange_is_in_transit)
{
    if (!begin())
        return;
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 3600 * WEIR_SECOND};
    weir_limit clock = made(params);
    CHECK_EQ(in_transit(clock, "clock", 3, 7, 10 * SECOND, 3700 * SECOND).other_window, -1);
    CHECK_EQ(number_of("EXISTS clock"), 0);
    params.align = WEIR_ALIGN_FIRST_REQUEST;
    weir_limit first = made(params);
    CHECK_EQ(in_transit(first, "first", 3, 7, 600 * SECOND, 700 * SECOND).other_window, -1);
    CHECK_EQ(number_of("EXISTS first"), 0);
    struct weir__store_op op = in_transit(first, "first", 3, 7, 600 * SECOND, 100 * SECOND);
    CHECK_EQ(op.decision.remaining, 7);
    CHECK(op.decision.reset_after_ns <= 500 * WEIR_SECOND && op.decision.reset_after_ns > 400 * WEIR_SECOND);
}

/* 400 units in four windows are 100 in the last one; the host's own remaining units are never exceeded. */
TEST(late_deltas_count_in_their_own_sliding_window)
{
    if (!begin())
        return;
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 1000, .window_ns = 3600 * WEIR_SECOND};
    int64_t late = INT64_C(4) * 3600;
    weir_limit log = made(params);
    CHECK_EQ(exchange_late(log, "log", 5, 995, 0), 995);
    CHECK_EQ(exchange_late(log, "log", 400, 900, late), 1000 - 105);
    CHECK_EQ(exchange_late(log, "log", 400, 900, late), 1000 - 205);
    CHECK_EQ(left(log, "log"), 1000 - 205);
    CHECK_EQ(exchange_late(log, "log", 1, 700, 0), 1000 - 206);
    CHECK_EQ(exchange_late(log, "log", 4, 500, late), 500);
    struct weir__store_op take =
        make_op(log, "log", WEIR__OP_TAKE, 501); /* some entries expire at once, some in a moment */
    CHECK_EQ(server_one(&take), 0);
    CHECK_EQ(take.decision.verdict, WEIR_DENY);
    CHECK(take.decision.retry_after_ns < 100 * WEIR_SECOND);
    CHECK_EQ(exchange_late(log, "log", 100000, 500, late), 0); /* no more entries than a log holds */

    params.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    for (int buckets = 2; buckets <= 6; buckets += 4) {
        params.buckets = buckets;
        weir_limit counter = made(params);
        char name[16];
        snprintf(name, sizeof name, "c%d", buckets);
        int64_t once = exchange_late(counter, name, 400, 900, late);
        CHECK(once <= 900 && once >= 895);
        int64_t twice = exchange_late(counter, name, 400, 900, late);
        CHECK(twice <= 1000 - 160 && twice >= 1000 - 205);
        CHECK_EQ(exchange_late(counter, name, 4, 500, late), 500);
        CHECK_EQ(left(counter, name), 500);
    }
}

/* However many hosts were disconnected, and whatever they send meanwhile: each refilled unit pays for one. */
TEST(no_refill_pays_twice_and_none_is_lost)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 360, .window_ns = 3600 * WEIR_SECOND, .burst = 10});
    int64_t left_over = 0;
    for (int host = 0; host < 5; host++) { /* 200 in 1000 s, in which 100 were refilled */
        left_over = exchange_late(limit, "five", 40, 10, 1000);
        CHECK_EQ(exchange_late(limit, "five", 0, 10, 0), left_over);
    }
    CHECK_EQ(left_over, 100 - 200);
    /* The refill between the exchanges of two hosts is not lost when the first is in time. */
    limit = made((weir_params){.limit = 100, .window_ns = WEIR_SECOND, .burst = 10});
    int64_t now = server_clock();
    char command[128];
    snprintf(command, sizeof command, "SET between b%" PRId64 ":5:50:%" PRId64, now - 2 * SECOND, now + 4 * SECOND);
    server_do(command);
    CHECK(exchange_late(limit, "between", 1, 9, 0) >= 9);
    CHECK(exchange_late(limit, "between", 200, 10, 3) >= 9);
    /* It is bounded, too: five seconds of it are kept. */
    snprintf(command, sizeof command, "SET bound b%" PRId64 ":0:50:%" PRId64, now - 60 * SECOND, now + 4 * SECOND);
    server_do(command);
    CHECK(exchange_late(limit, "bound", 1000, 10, 60) <= 10 - 400);
}

TEST_MAIN
