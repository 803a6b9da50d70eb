/* Permits in a real server: leases that are taken, released, renewed and expired, by the script alone. */
#include "ops.h"

#define LEASE_MS 40

static weir_limit slots(int64_t limit, int soft, int64_t lease_ms)
{
    return made((weir_params){
        .algorithm = WEIR_CONCURRENCY, .limit = limit, .soft_percent = soft, .window_ns = lease_ms * 1000000});
}

/* One op of lease `id`. */
static struct weir__store_op flight(weir_limit limit, const char *name, enum weir__store_op_kind kind, int64_t cost,
                                    uint64_t id)
{
    struct weir__store_op op = make_op(limit, name, kind, cost);
    op.lease[0] = id;
    op.lease[1] = UINT64_C(0xfffffffffffff) - id;
    CHECK_EQ(server_one(&op), 0);
    return op;
}

static bool take(weir_limit limit, const char *name, uint64_t id)
{
    struct weir__store_op op = flight(limit, name, WEIR__OP_TAKE, 1, id);
    CHECK_EQ(op.error, 0);
    CHECK_EQ(op.taken, weir_passes(&op.decision));
    return op.taken;
}

static bool release(weir_limit limit, const char *name, uint64_t id)
{
    struct weir__store_op op = flight(limit, name, WEIR__OP_REFUND, 1, id);
    CHECK(weir_passes(&op.decision));
    return op.taken;
}

static bool renew(weir_limit limit, const char *name, uint64_t id, bool again)
{
    struct weir__store_op op = flight(limit, name, WEIR__OP_RENEW, again, id);
    CHECK_EQ(op.taken, weir_passes(&op.decision));
    return op.taken;
}

TEST(slots_are_counted)
{
    if (!begin())
        return;
    weir_limit three = slots(3, 0, 60000);
    for (uint64_t id = 1; id <= 3; id++) {
        struct weir__store_op op = flight(three, "f", WEIR__OP_TAKE, 1, id);
        CHECK(op.taken);
        CHECK_EQ(op.decision.remaining, 3 - (int64_t)id);
        CHECK_EQ(op.decision.limit, 3);
        CHECK_EQ(op.decision.reset_after_ns, -1);
        CHECK_EQ(op.decision.retry_after_ns, 0);
    }
    struct weir__store_op denied = flight(three, "f", WEIR__OP_TAKE, 1, 4);
    CHECK_EQ(denied.decision.verdict, WEIR_DENY);
    CHECK_EQ(denied.decision.remaining, 0);
    CHECK_EQ(denied.decision.retry_after_ns, WEIR_SECOND);
    CHECK(!denied.taken);
    CHECK_EQ(number_of("ZCARD f"), 3);
    CHECK(release(three, "f", 2));
    CHECK(!release(three, "f", 2)); /* twice */
    CHECK(!release(three, "f", 4)); /* never taken */
    CHECK_EQ(left(three, "f"), 1);
    CHECK(take(three, "f", 4));
    CHECK(!take(three, "f", 5));
    CHECK(release(three, "f", 1));
    CHECK(release(three, "f", 3));
    CHECK(release(three, "f", 4));
    CHECK_EQ(number_of("EXISTS f"), 0);
}

TEST(limits_may_change_between_calls)
{
    if (!begin())
        return;
    for (uint64_t id = 0; id < 6; id++)
        CHECK(take(slots(6, 0, 60000), "f", id));
    CHECK(!take(slots(2, 0, 60000), "f", 10));
    CHECK_EQ(left(slots(2, 0, 60000), "f"), -4);
    CHECK_EQ(left(slots(9, 0, 60000), "f"), 3);
    for (uint64_t id = 0; id < 4; id++) {
        CHECK(release(slots(2, 0, 60000), "f", id));
        CHECK(!take(slots(2, 0, 60000), "f", 10));
    }
    CHECK(release(slots(2, 0, 60000), "f", 4));
    CHECK(take(slots(2, 0, 60000), "f", 10));
    struct weir__store_op soft = flight(slots(2, 50, 60000), "f", WEIR__OP_TAKE, 1, 11);
    CHECK(soft.taken);
    CHECK_EQ(soft.decision.flags, WEIR_OVER_SOFT);
    CHECK_EQ(soft.decision.remaining, -1);
    CHECK(!take(slots(2, 50, 60000), "f", 12));
}

/* Lets so many seconds pass for all leases of "f". Waiting would make the test depend on the speed of the machine. */
static void pass(int seconds)
{
    redisReply *reply =
        redisCommand(server.context, "EVAL %s 1 f %d",
                     "for _, lease in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do\n"
                     "redis.call('ZINCRBY', KEYS[1], -ARGV[1] * 1000000, lease)\n"
                     "end\n"
                     "return redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) - ARGV[1] * 1000)",
                     seconds);
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
    freeReplyObject(reply);
}

TEST(leases_expire)
{
    if (!begin())
        return;
    weir_limit two = slots(2, 0, 150000), longer = slots(2, 0, 6000000);
    CHECK(take(two, "f", 1));
    CHECK(take(two, "f", 2));
    int64_t ttl = number_of("PTTL f");
    CHECK(ttl > 50000 && ttl <= 150002);
    pass(80);
    CHECK(renew(two, "f", 1, false));
    pass(75); /* 2 has expired, 1 has not */
    CHECK_EQ(left(two, "f"), 1);
    CHECK(!release(two, "f", 2));
    CHECK(!renew(two, "f", 2, false));
    CHECK(take(longer, "f", 3));
    CHECK_EQ(number_of("ZCARD f"), 2); /* expired ones are removed */
    CHECK(!renew(two, "f", 2, true));  /* no room */
    CHECK(release(two, "f", 1));
    CHECK(renew(two, "f", 2, true)); /* taken again */
    CHECK_EQ(left(two, "f"), 0);
    CHECK(number_of("PTTL f") > 5000000); /* a short one does not shorten the expiry of the others */
    CHECK(release(two, "f", 2));
    CHECK(release(two, "f", 3));
    CHECK(take(slots(2, 0, 100), "f", 4));
    usleep(110000);
    CHECK_EQ(number_of("EXISTS f"), 0);
}

TEST(peeks_resets_and_charges)
{
    if (!begin())
        return;
    weir_limit two = slots(2, 0, 60000);
    CHECK_EQ(flight(two, "f", WEIR__OP_PEEK, 1, 0).decision.remaining, 1);
    CHECK(!flight(two, "f", WEIR__OP_PEEK, 1, 0).taken);
    CHECK_EQ(number_of("EXISTS f"), 0);
    CHECK(take(two, "f", 1));
    struct weir__store_op charge = flight(two, "f", WEIR__OP_CHARGE, 5, 2);
    CHECK(!charge.taken);
    CHECK_EQ(charge.decision.remaining, 1);
    CHECK(take(two, "f", 2));
    CHECK_EQ(flight(two, "f", WEIR__OP_PEEK, 1, 0).decision.verdict, WEIR_DENY);
    CHECK_EQ(flight(two, "f", WEIR__OP_PEEK, 0, 0).decision.verdict, WEIR_ALLOW);
    CHECK_EQ(flight(two, "f", WEIR__OP_TAKE, 0, 9).decision.remaining, 0);
    CHECK(!flight(two, "f", WEIR__OP_REFUND, 1, 0).taken);
    CHECK_EQ(flight(two, "f", WEIR__OP_RESET, 0, 0).decision.remaining, 2);
    CHECK_EQ(number_of("EXISTS f"), 0);
    CHECK(!release(two, "f", 1));
}

/* ---- With other counters ---- */

TEST(all_or_nothing_with_other_counters)
{
    if (!begin())
        return;
    struct weir__group group = {0, 3, false};
    struct weir__store_op ops[3];
    struct weir__store_request request = {.ops = ops, .op_count = 3, .groups = &group, .group_count = 1};
    for (uint64_t i = 0; i < 4; i++) {
        ops[0] = make_op(slow(10), "rate", WEIR__OP_TAKE, 1);
        ops[1] = make_op(slots(5, 0, 60000), "wide", WEIR__OP_TAKE, 1);
        ops[2] = make_op(slots(2, 0, 60000), "narrow", WEIR__OP_TAKE, 1);
        ops[1].lease[0] = ops[2].lease[0] = i + 1;
        CHECK_EQ(server_run(&request), 0);
        for (int j = 0; j < 3; j++)
            CHECK_EQ(ops[j].taken, i < 2);
        CHECK(weir_passes(&ops[1].decision));
    }
    CHECK_EQ(left(slow(10), "rate"), 8);
    CHECK_EQ(left(slots(5, 0, 60000), "wide"), 3);
    /* Twice under one name: the second sees the first. */
    for (int j = 0; j < 3; j++) {
        ops[j] = make_op(slots(2, 0, 60000), "same", WEIR__OP_TAKE, 1);
        ops[j].lease[0] = (uint64_t)j + 1;
    }
    CHECK_EQ(server_run(&request), 0);
    CHECK_EQ(ops[2].decision.verdict, WEIR_DENY);
    CHECK_EQ(number_of("EXISTS same"), 0);
    group.count = request.op_count = 2;
    CHECK_EQ(server_run(&request), 0);
    CHECK(ops[0].taken && ops[1].taken);
    CHECK_EQ(number_of("ZCARD same"), 2);
}

TEST(group_after_a_denied_first_takes_nothing)
{
    if (!begin())
        return;
    CHECK(take(slots(1, 0, 60000), "first", 1));
    struct weir__group groups[2] = {{0, 1, false}, {1, 1, true}};
    struct weir__store_op ops[2] = {make_op(slots(1, 0, 60000), "first", WEIR__OP_TAKE, 1),
                                    make_op(slots(1, 0, 60000), "second", WEIR__OP_TAKE, 1)};
    struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = groups, .group_count = 2};
    ops[0].lease[0] = ops[1].lease[0] = 2;
    CHECK_EQ(server_run(&request), 0);
    CHECK(!ops[0].taken && !ops[1].taken && weir_passes(&ops[1].decision));
    CHECK_EQ(number_of("EXISTS second"), 0);
}

TEST(foreign_values_under_the_name)
{
    if (!begin())
        return;
    weir_limit two = slots(2, 0, 60000);
    static const char *const foreign[] = {
        "SET f hello", "RPUSH f x", "HSET f a b", "ZADD f 1 one 2 two", "ZADD f 1 0123456789abcdef0123456789",
        "SADD f x"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        server_do("DEL f");
        server_do(foreign[i]);
        static const enum weir__store_op_kind hows[] = {WEIR__OP_TAKE, WEIR__OP_PEEK, WEIR__OP_REFUND, WEIR__OP_RENEW,
                                                        WEIR__OP_RESET};
        for (size_t j = 0; j < sizeof hows / sizeof hows[0] && i != 4; j++) {
            struct weir__store_op op = flight(two, "f", hows[j], 1, 1);
            CHECK_EQ(op.error, WEIR_ESTOREWRONGTYPE);
            CHECK(!op.taken);
        }
        CHECK_EQ(number_of("EXISTS f"), 1);
    }
    CHECK_EQ(number_of("ZCARD f"), -1000); /* the last is a set; and what looked like a lease had expired */
    /* Another algorithm's counter is replaced, in both directions. */
    weir_limit others[] = {
        slow(10), logged(10, false),
        made(
            (weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY, .buckets = 9})};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        server_do("DEL f");
        struct weir__store_op op = make_op(others[i], "f", WEIR__OP_TAKE, 4);
        CHECK_EQ(server_one(&op), 0);
        CHECK(op.taken);
        CHECK_EQ(left(two, "f"), 2);
        CHECK(take(two, "f", 1));
        CHECK(take(two, "f", 2));
        CHECK(!take(two, "f", 3));
        CHECK_EQ(left(others[i], "f"), 10);
        op = make_op(others[i], "f", WEIR__OP_TAKE, 4);
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.error, 0);
        CHECK_EQ(op.decision.remaining, 6);
        CHECK(!release(two, "f", 1));
    }
}

/* ---- Against a list of leases ---- */

enum { NAMES = 4, IDS = 24, STEPS = 40 };

struct lease {
    bool taken;
    int64_t ends_us;
};

static int64_t count_active(const struct lease *leases, int64_t now_us)
{
    int64_t active = 0;
    for (int i = 0; i < IDS; i++)
        active += leases[i].taken && leases[i].ends_us > now_us;
    return active;
}

/* Compares the result of an op, executed at `now_us`, with the list. */
static void expect(struct lease *leases, const struct weir__store_op *op, int64_t now_us)
{
    struct lease *mine = &leases[op->lease[0]];
    int64_t active = count_active(leases, now_us), cap = op->limit.cap;
    bool is_active = mine->taken && mine->ends_us > now_us;
    bool passes = true, takes = false;
    switch (op->kind) {
    case WEIR__OP_TAKE:
        passes = takes = active < cap;
        break;
    case WEIR__OP_PEEK:
        passes = active < cap;
        break;
    case WEIR__OP_RENEW:
        passes = takes = is_active || (op->cost && active < cap);
        break;
    default:
        break;
    }
    CHECK_EQ(weir_passes(&op->decision), passes);
    CHECK_EQ(op->taken, takes || (op->kind == WEIR__OP_REFUND && is_active));
    if (takes)
        *mine = (struct lease){true, now_us + op->limit.window_us};
    if (op->kind == WEIR__OP_REFUND && is_active)
        mine->taken = false;
    int64_t after = count_active(leases, now_us) + (op->kind == WEIR__OP_PEEK && passes);
    CHECK_EQ(op->decision.remaining, op->limit.hard - after);
    CHECK(!takes || op->kind != WEIR__OP_TAKE || after <= cap);
}

TEST(random_steps_against_a_list)
{
    static const enum weir__store_op_kind hows[] = {WEIR__OP_TAKE,   WEIR__OP_TAKE,  WEIR__OP_TAKE,
                                                    WEIR__OP_REFUND, WEIR__OP_RENEW, WEIR__OP_PEEK};
    struct lease leases[NAMES][IDS] = {0};
    struct weir__store_op ops[STEPS];
    struct weir__group groups[STEPS];
    uint64_t seed = 8;
    int64_t rounds = test_scaled(1500, 60), denied = 0, over = 0;
    if (!begin())
        return;
    int before = test_failures;
    for (int64_t round = 0; round < rounds && test_failures == before; round++) {
        bool fresh[NAMES][IDS] = {0}; /* an id is used once; here: not while its lease is active */
        for (uint32_t i = 0; i < STEPS; i++) {
            char name[8];
            uint64_t at = test_random(&seed) % NAMES, id = test_random(&seed) % IDS;
            snprintf(name, sizeof name, "f%d", (int)at);
            enum weir__store_op_kind kind = hows[test_random(&seed) % 6];
            if (kind == WEIR__OP_TAKE && (leases[at][id].taken || fresh[at][id]))
                kind = WEIR__OP_REFUND;
            fresh[at][id] |= kind == WEIR__OP_TAKE || kind == WEIR__OP_RENEW;
            weir_limit limit = slots(1 + (int64_t)(test_random(&seed) % 12), 0, LEASE_MS);
            ops[i] = make_op(limit, name, kind, kind == WEIR__OP_RENEW ? (int64_t)(test_random(&seed) % 2) : 1);
            ops[i].lease[0] = id;
            ops[i].tag = at;
            groups[i] = (struct weir__group){i, 1, false};
        }
        struct weir__store_request request = {.ops = ops, .op_count = STEPS, .groups = groups, .group_count = STEPS};
        CHECK_EQ(server_run(&request), 0);
        int64_t now_us = 0;
        for (uint32_t i = 0; i < STEPS; i++)
            now_us = ops[i].kind == WEIR__OP_REFUND ? now_us : ops[i].at_us;
        for (uint32_t i = 0; i < STEPS && now_us; i++) {
            expect(leases[ops[i].tag], &ops[i], now_us);
            denied += !weir_passes(&ops[i].decision);
        }
        for (int at = 0; at < NAMES; at++)
            for (int id = 0; id < IDS; id++) {
                over += leases[at][id].taken && leases[at][id].ends_us <= now_us;
                leases[at][id].taken &= leases[at][id].ends_us > now_us;
            }
        if (round % 7 == 0)
            usleep(LEASE_MS * 300);
        if (round % 50 == 0)
            usleep(LEASE_MS * 1100);
    }
    CHECK(denied > rounds && over > rounds / 10);
}

TEST_MAIN
