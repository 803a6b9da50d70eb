/*
 * The script in a real server: leases of units. What the store replies and refuses, and random runs of two hosts whose
 * admitted units, at the server's times, are compared with the algorithms' own rules.
 */
#include "ops.h"

#include "algo/algo.h"

#define BATCH 4096 /* sequence numbers of a batch */

static struct weir__store_op lease(weir_limit limit, const char *name, uint64_t host, uint64_t batch, uint64_t previous,
                                   int64_t unspent, int64_t give, int64_t want)
{
    struct weir__store_op op = make_op(limit, name, WEIR__OP_LEASE, want);
    op.units = (struct weir__units_lease){
        .sequence = batch * BATCH, .previous = previous, .host = host, .unspent = unspent, .returned = give};
    return op;
}

static void run(struct weir__store_op *op)
{
    CHECK_EQ(server_one(op), 0);
    CHECK_EQ(op->error, 0);
}

static int64_t granted(weir_limit limit, const char *name, uint64_t host, uint64_t batch, uint64_t previous,
                       int64_t unspent, int64_t give, int64_t want)
{
    struct weir__store_op op = lease(limit, name, host, batch, previous, unspent, give, want);
    run(&op);
    return op.units.granted;
}

static int64_t server_time(weir_limit limit)
{
    struct weir__store_op op = make_op(limit, "clock", WEIR__OP_PEEK, 0);
    run(&op);
    return op.at_us;
}

static weir_limit fixed(int64_t limit)
{
    return made(
        (weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = limit, .window_ns = INT64_C(300) * 86400 * WEIR_SECOND});
}

TEST(share_of_a_host_is_half_of_what_is_left_by_hosts)
{
    if (!begin())
        return;
    weir_limit limit = fixed(100);
    CHECK_EQ(granted(limit, "k", 1, 1, 0, 0, 0, 1000), 50);
    CHECK_EQ(granted(limit, "k", 2, 1, 0, 0, 0, 1000), 12); /* 50 left, two hosts */
    CHECK_EQ(granted(limit, "k", 1, 2, 1, 50, 0, 5), 5);
    CHECK_EQ(left(limit, "k"), 33);
    CHECK_EQ(granted(limit, "k", 1, 3, 2, 0, 0, 1000), 8);
    CHECK_EQ(left(limit, "k"), 25);
}

TEST(repeated_op_gets_the_same_grant)
{
    if (!begin())
        return;
    weir_limit limit = fixed(100);
    struct weir__store_op op = lease(limit, "k", 1, 1, 0, 0, 0, 10);
    for (int i = 0; i < 3; i++) {
        run(&op);
        CHECK_EQ(op.units.granted, 10);
        CHECK(!op.units.known);
        CHECK_EQ(left(limit, "k"), 90);
    }
    op = lease(limit, "k", 1, 2, 1, 10, 4, 10);
    for (int i = 0; i < 3; i++) {
        run(&op);
        CHECK_EQ(op.units.granted, 10);
        CHECK(op.units.known);
        CHECK_EQ(left(limit, "k"), 84); /* 4 were returned once */
    }
    op = lease(limit, "k", 1, 1, 0, 0, 0, 10); /* an old one arrives late */
    run(&op);
    CHECK_EQ(op.units.granted, 0);
    CHECK_EQ(left(limit, "k"), 84);
}

TEST(units_of_an_unknown_predecessor_are_not_refunded)
{
    if (!begin())
        return;
    weir_limit limit = slow(100);
    CHECK_EQ(granted(limit, "k", 1, 1, 0, 0, 0, 20), 20);
    struct weir__store_op op = lease(limit, "k", 1, 9, 7, 20, 20, 10);
    run(&op);
    CHECK(!op.units.known);
    CHECK_EQ(op.units.granted, 10);
    CHECK_EQ(left(limit, "k"), 70);
    op = lease(limit, "k", 1, 10, 9, 0, 10, 0); /* those of the new one are */
    run(&op);
    CHECK(op.units.known);
    CHECK_EQ(left(limit, "k"), 80);
}

TEST(units_on_record_do_not_recover)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 1000, .burst = 100, .window_ns = WEIR_SECOND});
    CHECK_EQ(granted(limit, "k", 1, 1, 0, 0, 0, 30), 30);
    usleep(100000);
    CHECK_EQ(left(limit, "k"), 70);
    struct weir__store_op take = make_op(limit, "k", WEIR__OP_TAKE, 70);
    run(&take);
    CHECK_EQ(take.decision.verdict, WEIR_ALLOW);
    usleep(150000);
    CHECK_EQ(left(limit, "k"), 70);
    CHECK_EQ(granted(limit, "k", 1, 2, 1, 10, 0, 0), 0); /* 20 were spent */
    usleep(100000);
    CHECK_EQ(left(limit, "k"), 90);
    CHECK_EQ(granted(limit, "k", 1, 3, 2, 0, 10, 0), 0);
    CHECK_EQ(left(limit, "k"), 100);
}

/* Loads the script with texts of it replaced: each is followed by its replacement. Fills in its digest. */
static void load_changed(const char *const *texts, char sha[41])
{
    static char script[256 << 10], before[sizeof script];
    CHECK(strlen(weir__script) < sizeof script - 256);
    snprintf(script, sizeof script, "%s", weir__script);
    for (; *texts; texts += 2) {
        memcpy(before, script, sizeof before);
        const char *at = strstr(before, texts[0]);
        CHECK(at != NULL);
        if (at)
            snprintf(script, sizeof script, "%.*s%s%s", (int)(at - before), before, texts[1], at + strlen(texts[0]));
    }
    redisReply *reply = redisCommand(server.context, "SCRIPT LOAD %s", script);
    CHECK(reply && reply->type == REDIS_REPLY_STRING && reply->len == 40);
    snprintf(sha, 41, "%s", reply && reply->str ? reply->str : "");
    freeReplyObject(reply);
}

/* Runs an op by another script than this version's. */
static void run_by(const char sha[41], struct weir__store_op *op)
{
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = op, .op_count = 1, .groups = &group, .group_count = 1};
    struct weir__group_ref ref = {&request, 0};
    struct weir__buffer buffer = {0};
    void *got = NULL;
    weir__script_call(&buffer, &ref, 1, NULL);
    char *digits = memmem(buffer.data, buffer.len, weir__script_sha, 40);
    CHECK(digits != NULL);
    memcpy(digits, sha, 40);
    CHECK_EQ(redisAppendFormattedCommand(server.context, buffer.data, buffer.len), REDIS_OK);
    CHECK_EQ(redisGetReply(server.context, &got), REDIS_OK);
    CHECK_EQ(weir__script_read(got, &ref, 1), 0);
    freeReplyObject(got);
    free(buffer.data);
}

/* Runs an op at a time of the server that the test sets. */
static void run_at(struct weir__store_op *op, int64_t now_us)
{
    static const char *const texts[] = {"local clock = call('TIME')",
                                        "local clock = {string.match(call('GET', 'time'), '(%d+) (%d+)')}", NULL};
    static char sha[41];
    char clock[64];
    if (!*sha)
        load_changed(texts, sha);
    snprintf(clock, sizeof clock, "%lld %lld", (long long)(now_us / SECOND), (long long)(now_us % SECOND));
    freeReplyObject(redisCommand(server.context, "SET time %s", clock));
    run_by(sha, op);
    CHECK_EQ(op->error, 0);
}

/* What a host may spend until its lease ends has not recovered by then, nor just then. */
TEST(units_on_record_do_not_recover_until_the_lease_has_ended)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 100, .window_ns = 5 * WEIR_SECOND});
    int64_t now = server_time(limit);
    for (int64_t after = 5 * SECOND - 1; after <= 5 * SECOND + 1; after++) {
        struct weir__store_op leased = lease(limit, "k", 7, 1, 0, 0, 0, 50),
                              take = make_op(limit, "k", WEIR__OP_TAKE, 1);
        server_do("FLUSHALL");
        run_at(&leased, now);
        CHECK_EQ(leased.units.granted, 50);
        CHECK_EQ(leased.units.life_us, 5 * SECOND);
        run_at(&take, now + after);
        CHECK_EQ(take.decision.verdict, WEIR_ALLOW);
        CHECK_EQ(take.decision.remaining, 49);
    }
}

TEST(reset_keeps_what_is_on_record_as_used)
{
    if (!begin())
        return;
    weir_limit limit = fixed(100);
    CHECK_EQ(granted(limit, "k", 1, 1, 0, 0, 0, 30), 30);
    struct weir__store_op take = make_op(limit, "k", WEIR__OP_TAKE, 40), reset = make_op(limit, "k", WEIR__OP_RESET, 0);
    run(&take);
    CHECK_EQ(left(limit, "k"), 30);
    run(&reset);
    CHECK_EQ(left(limit, "k"), 70);
}

/*
 * A refund of a take that was made while there was a lease, after the lease has expired: it refunds no more than the
 * take, and than what has refilled since, as docs/internals/leases.md says.
 */
TEST(refund_across_an_expired_record_is_bounded)
{
    if (!begin())
        return;
    enum { TAKEN = 20, PER_SECOND = 20 };
    const weir_limit limits[] = {
        made((weir_params){.limit = 100, .window_ns = 5 * WEIR_SECOND}),
        made((weir_params){.limit = 100, .window_ns = 5 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL}),
        made((weir_params){.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = 5 * WEIR_SECOND}), fixed(100)};
    const int64_t begun = INT64_C(20000) * 86400 * SECOND;
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
        for (int64_t after = SECOND; after <= 9 * SECOND; after += SECOND / 2) {
            int64_t remaining[3]; /* without the take, with it, and after its refund */
            for (int world = 0; world < 3; world++) {
                struct weir__store_op leased = lease(limits[k], "k", 1, 1, 0, 0, 0, 50),
                                      take = make_op(limits[k], "k", WEIR__OP_TAKE, TAKEN),
                                      refund = make_op(limits[k], "k", WEIR__OP_REFUND, TAKEN),
                                      look = make_op(limits[k], "k", WEIR__OP_PEEK, 0);
                server_do("FLUSHALL");
                run_at(&leased, begun);
                if (world)
                    run_at(&take, begun + SECOND / 2);
                refund.at_us = -after;
                if (world == 2)
                    run_at(&refund, begun + SECOND / 2 + after);
                run_at(&look, begun + SECOND / 2 + after);
                remaining[world] = look.decision.remaining;
            }
            int64_t refilled = k == 3 ? 0 : after * PER_SECOND / SECOND + (k == 1 ? 100 : 0);
            CHECK(remaining[2] >= remaining[1]);
            CHECK(remaining[2] <= remaining[1] + TAKEN);
            CHECK(remaining[2] <= remaining[0] + (refilled < TAKEN ? refilled : TAKEN));
        }
}

/*
 * A record of another version of the rule: hosts may spend what they have leased under it for some seconds, so the
 * counter of the new version has it as used, and what they return is refunded to it.
 */
TEST(units_of_another_version_of_the_rule_stay_used)
{
    if (!begin())
        return;
    const weir_limit limits[] = {
        slow(100),
        made((weir_params){.limit = 100, .window_ns = 7200 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL}),
        made((weir_params){.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = 7200 * WEIR_SECOND}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .window_ns = 3600 * WEIR_SECOND}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .window_ns = 86400 * WEIR_SECOND}),
        made((weir_params){.algorithm = WEIR_FIXED_WINDOW,
                           .limit = 100,
                           .window_ns = 86400 * WEIR_SECOND,
                           .align = WEIR_ALIGN_FIRST_REQUEST}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 3600 * WEIR_SECOND}),
        made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 9000 * WEIR_SECOND}),
        made((weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 3600 * WEIR_SECOND, .buckets = 6}),
        made((weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 7200 * WEIR_SECOND, .buckets = 6}),
    };
    const size_t count = sizeof limits / sizeof *limits;
    const int64_t now = INT64_C(20000) * 86400 * SECOND + 9 * 3600 * SECOND + 300 * SECOND;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            int before = test_failures;
            struct weir__store_op leased = lease(limits[i], "k", 1, 1, 0, 0, 0, 40),
                                  look = make_op(limits[k], "k", WEIR__OP_PEEK, 0),
                                  much = make_op(limits[k], "k", WEIR__OP_TAKE, 61),
                                  take = make_op(limits[k], "k", WEIR__OP_TAKE, 60),
                                  back = lease(limits[k], "k", 1, 2, 1, 0, 40, 0);
            server_do("FLUSHALL");
            run_at(&leased, now);
            CHECK_EQ(leased.units.granted, 40);
            run_at(&look, now);
            if (i == 6 && k == 7) {
                CHECK_EQ(look.decision.remaining, 20); /* its own units and those on record are not told apart */
                continue;
            }
            CHECK_EQ(look.decision.remaining, 60);
            run_at(&much, now);
            CHECK_EQ(much.decision.verdict, WEIR_DENY);
            run_at(&take, now);
            CHECK_EQ(take.decision.verdict, WEIR_ALLOW);
            run_at(&back, now + SECOND);
            CHECK_EQ(back.units.known, true);
            run_at(&look, now + SECOND);
            CHECK_EQ(look.decision.remaining, 40);
            if (test_failures != before)
                printf("  from limit %zu to %zu\n", i, k);
        }
}

/* A weir that does not know leases: its script has none of their code, and refuses the value whatever it is to do. */
TEST(older_versions_refuse_the_value_and_leave_it)
{
    if (!begin())
        return;
    static const enum weir__store_op_kind kinds[] = {WEIR__OP_PEEK,     WEIR__OP_TAKE,   WEIR__OP_REFUND,
                                                     WEIR__OP_EXCHANGE, WEIR__OP_CHARGE, WEIR__OP_COUNT};
    static const char *const texts[] = {" or first == 76 and (second or 0) > 143 and second < 222", "",
                                        "byte(value) == 76 and decide ~= log or how == 8", "false", NULL};
    char older[41];
    load_changed(texts, older);
    weir_limit limits[] = {slow(100), fixed(100),
                           made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                                              .limit = 100,
                                              .window_ns = INT64_C(300) * 86400 * WEIR_SECOND})};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        server_do("DEL k");
        CHECK_EQ(granted(limits[i], "k", 1, 1, 0, 0, 0, 30), 30);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            struct weir__store_op op = make_op(limits[i], "k", kinds[k], 5);
            run_by(older, &op);
            CHECK_EQ(op.error, WEIR_ESTOREWRONGTYPE);
        }
        CHECK_EQ(left(limits[i], "k"), 70);
    }
}

TEST(foreign_values_are_left_alone)
{
    if (!begin())
        return;
    /* The last two: an array of this form without the window, and with a negative number. */
    static const char *const values[] = {"Lx", "L", "hello", "L123", "L\x91\xa0", "L\x93\xa0\xff\x01"};
    weir_limit limits[] = {slow(100), fixed(100)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int k = 0; k < 2; k++) {
            char command[64];
            snprintf(command, sizeof command, "SET k %s", values[i]);
            server_do(command);
            struct weir__store_op ops[2] = {lease(limits[k], "k", 1, 1, 0, 0, 0, 30),
                                            make_op(limits[k], "k", WEIR__OP_TAKE, 1)};
            struct weir__group groups[2] = {{0, 1, false}, {1, 1, false}};
            struct weir__store_request request = {.ops = ops, .op_count = 2, .groups = groups, .group_count = 2};
            CHECK_EQ(server_run(&request), 0);
            CHECK_EQ(ops[0].error, WEIR_ESTOREWRONGTYPE);
            CHECK_EQ(ops[1].error, WEIR_ESTOREWRONGTYPE);
        }
    server_do("DEL k");
    struct weir__store_op log_op = make_op(logged(10, false), "k", WEIR__OP_TAKE, 1);
    server_do("SET k Lorem");
    CHECK_EQ(server_one(&log_op), 0);
    CHECK_EQ(log_op.error, WEIR_ESTOREWRONGTYPE);
    CHECK_EQ(number_of("STRLEN k"), 5);
    server_do("DEL k");
    CHECK_EQ(granted(limits[1], "k", 1, 1, 0, 0, 0, 30), 30);
    run(&log_op); /* the rule has another algorithm now: another counter */
    CHECK_EQ(log_op.decision.remaining, 9);
}

TEST(at_most_so_many_hosts)
{
    if (!begin())
        return;
    weir_limit limit = fixed(100000);
    for (uint64_t host = 1; host <= 70; host++)
        CHECK_EQ(granted(limit, "k", host, 1, 0, 0, 0, 2), host <= 64 ? 2 : 0);
    CHECK_EQ(left(limit, "k"), 100000 - 128);
}

/* ---- Random runs ---- */

enum { RUN_HOSTS = 3 };

/* A host: what its slot has, and its batches. */
struct simulated {
    int64_t units, end_us;
    uint64_t batch, acked;
    bool killed;
};

/* What the algorithm allows, fed with what was admitted. */
struct ideal {
    weir_limit limit;
    struct weir__state state;     /* bucket, fixed window */
    struct weir__sliding sliding; /* sliding window counter */
    int64_t window;
    int64_t admitted;
};

static void admit(struct ideal *ideal, int64_t now_us, int64_t cost)
{
    weir_decision decision;
    const weir_limit *limit = &ideal->limit;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER) {
        int64_t start = weir__part_start(limit, now_us);
        if (start != ideal->sliding.start_us) {
            ideal->sliding.before = start == ideal->sliding.start_us + limit->part_us ? ideal->sliding.current : 0;
            ideal->sliding.current = 0;
            ideal->sliding.start_us = start;
        }
        weir__counter2_take(limit, &ideal->sliding, now_us, cost, WEIR__TAKE, &decision);
    } else {
        weir__state_take(limit, &ideal->state, now_us, cost, WEIR__TAKE, &decision);
    }
    CHECK_EQ(decision.verdict, WEIR_ALLOW);
    ideal->admitted += cost;
}

static void exchange(struct simulated *host, weir_limit limit, uint64_t id, uint64_t *random)
{
    int64_t now = server_time(limit);
    int64_t live = now < host->end_us && host->acked ? host->units : 0;
    int64_t give = live ? (int64_t)(test_random(random) % (uint64_t)(live + 1)) * (test_random(random) % 3 == 0) : 0;
    struct weir__store_op op =
        lease(limit, "k", id, ++host->batch, host->acked, live - give, give, (int64_t)(test_random(random) % 40));
    host->units = live - give;
    run(&op);
    if (test_random(random) % 6 == 0) /* the reply is lost, and it is sent again */
        run(&op);
    if (test_random(random) % 10 == 0) /* or given up */
        return;
    host->units = (op.units.known ? host->units : 0) + op.units.granted;
    host->end_us = now + op.units.life_us;
    host->acked = host->batch;
}

static void random_run(weir_limit limit, double for_s, uint64_t seed)
{
    struct simulated hosts[RUN_HOSTS] = {0};
    struct ideal ideal = {.limit = limit};
    uint64_t random = seed, id = 1;
    int64_t begun = server_time(limit), now = begun;
    while (now < begun + (int64_t)(for_s * 1e6)) {
        struct simulated *host = &hosts[test_random(&random) % RUN_HOSTS];
        switch (test_random(&random) % 8) {
        case 0:
            exchange(host, limit, id + (uint64_t)(host - hosts), &random);
            break;
        case 1: {
            struct weir__store_op take = make_op(limit, "k", WEIR__OP_TAKE, 1 + (int64_t)(test_random(&random) % 3));
            run(&take);
            if (take.decision.verdict == WEIR_ALLOW)
                admit(&ideal, take.at_us, take.cost);
            break;
        }
        case 2:
            if (test_random(&random) % 64 == 0) { /* a host dies, and another one comes */
                *host = (struct simulated){0};
                id += 100;
                memset(hosts, 0, sizeof hosts);
            } else if (test_random(&random) % 8 == 0) {
                usleep(20000);
            }
            break;
        default:
            now = server_time(limit);
            if (now < host->end_us && host->units > 0) {
                int64_t cost = 1 + (int64_t)(test_random(&random) % (uint64_t)(host->units < 4 ? host->units : 4));
                host->units -= cost;
                admit(&ideal, now, cost);
            }
        }
        now = server_time(limit);
    }
    CHECK(ideal.admitted > limit.hard);
}

TEST(random_leases_of_a_bucket_are_exact_over_every_interval)
{
    if (!begin())
        return;
    random_run(made((weir_params){.limit = 400, .burst = 60, .window_ns = WEIR_SECOND}), 3, 1);
    server_do("FLUSHALL");
    random_run(made((weir_params){.limit = 7, .burst = 5, .window_ns = WEIR_SECOND / 100}), 1, 2);
    server_do("FLUSHALL");
    random_run(made((weir_params){.limit = 3000, .burst = 100, .window_ns = 7 * WEIR_SECOND}), 8, 3);
}

TEST(random_leases_of_windows_are_exact)
{
    if (!begin())
        return;
    random_run(made((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 60, .window_ns = WEIR_SECOND / 4}), 3, 4);
    server_do("FLUSHALL");
    random_run(made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 60, .window_ns = WEIR_SECOND / 4}),
               3, 5);
}

/* ---- A server whose clock is stepped; the hosts' monotonic clocks are not ---- */

struct stepped {
    struct simulated hosts[RUN_HOSTS];
    int64_t true_us, offset_us; /* of the server */
    int64_t admitted, outstanding;
    uint64_t random;
};

static void stepped_exchange(struct stepped *run, weir_limit limit, int which)
{
    struct simulated *host = &run->hosts[which];
    int64_t live = run->true_us < host->end_us ? host->units : 0;
    struct weir__store_op op = lease(limit, "k", 1 + (uint64_t)which, host->batch + 1, host->acked, live, 0,
                                     (int64_t)(test_random(&run->random) % 40));
    host->batch++;
    run_at(&op, run->true_us + run->offset_us);
    host->units = (op.units.known ? live : 0) + op.units.granted;
    host->end_us = run->true_us + op.units.life_us;
    host->acked = host->batch;
}

/* Steps the clock at half of the time. `ideal` NULL: only the sum is counted. */
static void stepped_run(struct stepped *run, weir_limit limit, int64_t step_us, struct ideal *ideal)
{
    for (int i = 0; i < 3000; i++) {
        int which = (int)(test_random(&run->random) % RUN_HOSTS);
        struct simulated *host = &run->hosts[which];
        int64_t taken = 0;
        run->true_us += (int64_t)(test_random(&run->random) % 20000);
        if (i == 1500) {
            run->offset_us = step_us;
            for (int k = 0; k < RUN_HOSTS; k++)
                run->outstanding += run->true_us < run->hosts[k].end_us ? run->hosts[k].units : 0;
        }
        if (test_random(&run->random) % 8 == 0) {
            stepped_exchange(run, limit, which);
        } else if (test_random(&run->random) % 8 == 0) {
            struct weir__store_op take = make_op(limit, "k", WEIR__OP_TAKE, 1);
            run_at(&take, run->true_us + run->offset_us);
            taken = take.decision.verdict == WEIR_ALLOW;
        } else if (run->true_us < host->end_us && host->units > 0 && test_random(&run->random) % 3 == 0) {
            taken = host->units < 3 ? host->units : 3;
            host->units -= taken;
        }
        run->admitted += taken;
        if (taken && ideal)
            admit(ideal, run->true_us, taken);
    }
}

static struct stepped stepped_new(uint64_t seed)
{
    server_do("FLUSHALL");
    return (struct stepped){.true_us = INT64_C(20000) * 86400 * SECOND + SECOND / 3, .random = seed};
}

/* A clock that is stepped back gives no host units: a bucket stays exact over every interval. */
TEST(server_clock_stepped_back_admits_no_more)
{
    if (!begin())
        return;
    static const int64_t steps[] = {-SECOND / 2, -4 * SECOND, -3600 * SECOND};
    for (size_t i = 0; i < 3; i++) {
        struct ideal ideal = {.limit = made((weir_params){.limit = 100, .burst = 60, .window_ns = WEIR_SECOND})};
        struct stepped run = stepped_new(3 + i);
        stepped_run(&run, ideal.limit, steps[i], &ideal);
        CHECK(run.admitted > 1000); /* of 3,000 at the most */
    }
}

/* Forward: time that did not pass refills a bucket, as under strict; what was leased before is spent besides. */
TEST(server_clock_stepped_forward_admits_what_seems_to_have_refilled)
{
    if (!begin())
        return;
    weir_limit limit = made((weir_params){.limit = 100, .burst = 60, .window_ns = WEIR_SECOND});
    struct stepped run = stepped_new(7);
    int64_t begun = run.true_us;
    stepped_run(&run, limit, 3600 * SECOND, NULL);
    CHECK(run.outstanding > 0);
    CHECK(run.admitted <= 2 * 60 + run.outstanding + (run.true_us - begun) / 10000);
}

TEST(stepped_server_clock_within_a_window_admits_the_limit)
{
    if (!begin())
        return;
    static const int64_t steps[] = {-7200 * SECOND, -SECOND, SECOND, 7200 * SECOND};
    for (size_t i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            weir_limit limit = made((weir_params){.algorithm = k ? WEIR_SLIDING_WINDOW_COUNTER : WEIR_FIXED_WINDOW,
                                                  .limit = 700,
                                                  .window_ns = INT64_C(300) * 86400 * WEIR_SECOND});
            struct stepped run = stepped_new(20 + i);
            stepped_run(&run, limit, steps[i], NULL);
            CHECK(run.admitted <= 700);
            CHECK(run.admitted >= 600);
        }
}

TEST_MAIN
