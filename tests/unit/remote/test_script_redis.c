/*
 * The script in a real server against the library: the same random operations go through both, the library at the
 * server's time, and every number of every result must be equal. There is no tolerance.
 */
#include "server.h"
#include "engine/rule_files.h"

#include "algo/algo.h"

#include <time.h>

#define KEYS         12
#define OPS_PER_CALL 48

struct kind {
    const char *name;
    weir_params params;
    int64_t most; /* the largest typical cost */
};

#define MS (INT64_C(1000000))

static const struct kind kinds[] = {
    {"one at a time", {.limit = 10, .window_ns = 10 * MS}, 3},
    {"one at a time, burst", {.limit = 5, .window_ns = 20 * MS, .burst = 30, .soft_percent = 20}, 9},
    {"several at a time", {.limit = 7, .window_ns = 5 * MS, .burst = 10}, 4},
    {"one a microsecond", {.limit = 9000, .window_ns = 9 * MS}, 5000},
    {"uneven", {.limit = 1234567, .window_ns = 86399999999000, .burst = 50}, 20},
    {"beyond doubles", {.limit = 4290000001, .window_ns = 34559999999999000, .burst = 900000}, 400000},
    {"interval", {.limit = 6, .window_ns = 4 * MS, .burst = 20, .refill = WEIR_REFILL_INTERVAL}, 5},
    {"interval, small burst",
     {.limit = 60, .window_ns = 3 * MS, .burst = 20, .refill = WEIR_REFILL_INTERVAL, .soft_percent = 50},
     9},
    {"leaky meter", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = 10 * MS, .burst = 4}, 2},
    {"leaky delay", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = 10 * MS, .burst = 9, .delay = true}, 2},
    {"leaky delay, bounded",
     {.algorithm = WEIR_LEAKY_BUCKET,
      .limit = 7,
      .window_ns = 5 * MS,
      .burst = 9,
      .delay = true,
      .max_delay_ns = 2 * MS},
     2},
    {"first request", {.algorithm = WEIR_FIXED_WINDOW, .limit = 9, .window_ns = 6 * MS, .align = 1}, 3},
    {"clock", {.algorithm = WEIR_FIXED_WINDOW, .limit = 9, .window_ns = 6 * MS, .soft_percent = 30}, 3},
    {"clock, large", {.algorithm = WEIR_FIXED_WINDOW, .limit = 4000000000, .window_ns = 5 * MS}, 700000000},
    {"calendar", {.algorithm = WEIR_FIXED_WINDOW, .limit = 70, .align = WEIR_ALIGN_CALENDAR, .calendar = 1}, 5},
    {"counter", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 20, .window_ns = 5 * MS}, 3},
    {"counter, up", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 20, .window_ns = 5001000, .round = 1}, 3},
    {"counter, large", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 90000, .window_ns = 4 * MS}, 9000},
    {"counter, slow",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 2147483647, .window_ns = 34559999999999000},
     90000000},
    {"counter of 3", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 20, .window_ns = 9 * MS, .buckets = 3}, 3},
    {"counter of 60", {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 99, .window_ns = 30 * MS, .buckets = 60}, 5},
    {"log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 12, .window_ns = 5 * MS}, 3},
    {"log that counts all",
     {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 12, .window_ns = 4 * MS, .count_rejected = true},
     3},
    {"long log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 2000, .window_ns = 60 * MS}, 60},
    {"longest log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 65535, .window_ns = 90 * MS}, 6000},
    {"coarse log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 300, .window_ns = 86400 * WEIR_SECOND}, 9},
    {"slow debt", {.limit = 1, .window_ns = 86400 * WEIR_SECOND, .burst = 3}, 3},
};

struct last {
    int64_t at_us, cost; /* of the last take that can be refunded */
};

static int64_t pick_cost(const struct kind *kind, uint64_t *seed)
{
    uint64_t dice = test_random(seed) % 40;
    if (dice == 0)
        return 0;
    if (dice == 1)
        return kind->most < WEIR__USED_MAX / 11 ? 10 * kind->most + 7 : WEIR__USED_MAX;
    if (dice == 2)
        return (int64_t)(test_random(seed) % 4294967296U);
    return 1 + (int64_t)(test_random(seed) % (uint64_t)kind->most);
}

/* As a host fills them, by its own clock. */
static void set_bounds(struct weir__store_op *op)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t at = (int64_t)now.tv_sec * 1000000, *b = op->bounds_us;
    enum weir_calendar unit = (enum weir_calendar)op->limit.calendar;
    weir__calendar_window(op->limit.zone, unit, at, &b[1], &b[2]);
    weir__calendar_window(op->limit.zone, unit, b[1] - 1, &b[0], &b[1]);
    weir__calendar_window(op->limit.zone, unit, b[2], &b[2], &b[3]);
}

static void pick_op(const struct kind *kind, const weir_limit *limit, struct weir__store_op *op, struct last *last,
                    uint64_t *seed)
{
    uint64_t dice = test_random(seed) % 200, key = test_random(seed) % KEYS;
    char name[64];
    *op = (struct weir__store_op){.limit = *limit, .tag = key, .cost = pick_cost(kind, seed)};
    op->kind = dice < 130   ? WEIR__OP_TAKE
               : dice < 150 ? WEIR__OP_PEEK
               : dice < 185 ? WEIR__OP_REFUND
               : dice < 196 ? WEIR__OP_CHARGE
                            : WEIR__OP_RESET;
    if (op->kind == WEIR__OP_CHARGE && op->cost > 5 * kind->most && dice < 195)
        op->cost = kind->most;
    if (op->kind == WEIR__OP_REFUND) {
        op->at_us = last[key].at_us;
        op->cost = last[key].cost;
        last[key].cost = 0;
        if (!op->cost)
            op->kind = WEIR__OP_PEEK;
    }
    if (limit->align == WEIR_ALIGN_CALENDAR)
        set_bounds(op);
    snprintf(name, sizeof name, "weir:%s:%d", kind->name, (int)key);
    op_set_name(op, name);
}

/* The library's decision for the same op. */
static int model(weir_segment *segment, const struct weir__store_op *op, weir_decision *decision)
{
    int64_t at = op->at_us * 1000;
    weir_time now = {at, at};
    const weir_limit *limit = &op->limit;
    *decision = (weir_decision){.limit = limit->hard, .remaining = limit->hard};
    switch (op->kind) {
    case WEIR__OP_TAKE:
        return weir_take(segment, limit, op->name, op->name_len, op->cost, now, decision);
    case WEIR__OP_PEEK:
        return weir_peek(segment, limit, op->name, op->name_len, op->cost, now, decision);
    case WEIR__OP_REFUND:
        return weir_refund(segment, limit, op->name, op->name_len, op->cost, now, decision);
    case WEIR__OP_CHARGE:
        return weir_charge(segment, limit, op->name, op->name_len, op->cost, now, decision);
    default:
        return weir_reset(segment, limit, op->name, op->name_len, now);
    }
}

/*
 * A refund is decided as of the take. What has recovered since then has expired in the store, while the library still
 * has it: the one result that may differ, without consequences.
 */
static bool gone(const struct weir__store_op *op, const weir_decision *want, int64_t now_us)
{
    return op->kind == WEIR__OP_REFUND && op->at_us + want->reset_after_ns / 1000 <= now_us &&
           op->decision.verdict == WEIR_ALLOW && op->decision.remaining == op->limit.hard &&
           !op->decision.reset_after_ns;
}

static bool same(const struct weir__store_op *op, const weir_decision *want)
{
    const weir_decision *got = &op->decision;
    bool taken = weir_passes(want) && op->cost > 0 && (op->kind == WEIR__OP_TAKE || op->kind == WEIR__OP_CHARGE);
    return got->verdict == want->verdict && got->flags == want->flags && got->limit == want->limit &&
           got->remaining == want->remaining && got->delay_ns == want->delay_ns &&
           got->retry_after_ns == want->retry_after_ns && got->reset_after_ns == want->reset_after_ns &&
           op->taken == taken && !op->error && !op->other_window;
}

static void show(const char *who, const weir_decision *d)
{
    printf("    %s: verdict %d flags %u remaining %" PRId64 " delay %" PRId64 " retry %" PRId64 " reset %" PRId64 "\n",
           who, (int)d->verdict, d->flags, d->remaining, d->delay_ns, d->retry_after_ns, d->reset_after_ns);
}

/* With `varies` each request has a limit of its own, from a quarter of the configured one on, as overload may scale
 * it. */
static bool run_kind(const struct kind *kind, bool varies, int64_t operations, uint64_t *seed, int64_t *refused)
{
    static struct weir__store_op ops[OPS_PER_CALL];
    struct weir__group groups[OPS_PER_CALL];
    struct last last[KEYS] = {{0}};
    weir_limit limit;
    weir_segment *segment;
    weir_params params = kind->params;
    params.id = 1;
    weir_segment_options options = {.size = 64 << 20, .slab_bytes = 32 << 20};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    if (varies)
        weir__limit_init_scaled(&limit, &limit);
    int64_t passed = 0, denied = 0, others = 0;
    int before = test_failures;
    for (int64_t done = 0; done < operations && test_failures == before; done += OPS_PER_CALL) {
        for (uint32_t i = 0; i < OPS_PER_CALL; i++) {
            pick_op(kind, &limit, &ops[i], last, seed);
            if (varies && test_random(seed) % 2)
                weir__limit_scale(&limit, WEIR__SCALE_ONE / 4 + (int64_t)(test_random(seed) % 750000000),
                                  &ops[i].limit);
            groups[i] = (struct weir__group){i, 1, false};
        }
        struct weir__store_request request = {
            .ops = ops, .op_count = OPS_PER_CALL, .groups = groups, .group_count = OPS_PER_CALL};
        CHECK_EQ(server_run(&request), 0);
        int64_t now_us = 0;
        for (uint32_t i = 0; i < OPS_PER_CALL; i++)
            now_us = ops[i].kind == WEIR__OP_REFUND ? now_us : ops[i].at_us;
        for (uint32_t i = 0; i < OPS_PER_CALL && test_failures == before; i++) {
            weir_decision want;
            int error = model(segment, &ops[i], &want);
            CHECK_EQ(error, 0);
            CHECK(same(&ops[i], &want) || gone(&ops[i], &want, now_us));
            if (test_failures != before) {
                printf("    %s: kind %d cost %" PRId64 " at %" PRId64 " error %d\n", ops[i].name, (int)ops[i].kind,
                       ops[i].cost, ops[i].at_us, ops[i].error);
                show("script ", &ops[i].decision);
                show("library", &want);
            }
            if (ops[i].kind == WEIR__OP_TAKE && ops[i].taken)
                last[ops[i].tag] = (struct last){ops[i].at_us, ops[i].cost};
            passed += want.verdict == WEIR_ALLOW;
            denied += want.verdict == WEIR_DENY;
            others += want.verdict == WEIR_DELAY;
        }
    }
    CHECK(passed > operations / 20);
    *refused += denied + others;
    weir_segment_close(segment);
    return test_failures == before;
}

TEST(script_agrees_with_the_library)
{
    uint64_t seed = 20261115;
    size_t count = sizeof kinds / sizeof kinds[0];
    int64_t operations = test_scaled(6000, 960), refused = 0;
    if (!server_start())
        return;
    for (size_t i = 0; i < count; i++) {
        if (!run_kind(&kinds[i], false, operations, &seed, &refused))
            printf("  in: %s\n", kinds[i].name);
    }
    /* Random operations that reach no limit prove nothing; how many do depends on the speed of the server. */
    CHECK(refused > operations * (int64_t)count / 20);
}

/*
 * Scaled limits. Not buckets: how long a bucket written under a larger limit is kept differs between store and
 * segment; what holds for both is in docs/reference/overload.md.
 */
TEST(script_agrees_with_the_library_under_scaled_limits)
{
    uint64_t seed = 8;
    int64_t operations = test_scaled(4000, 960), refused = 0;
    if (!server_start())
        return;
    freeReplyObject(redisCommand(server.context, "FLUSHALL"));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].params.algorithm < WEIR_FIXED_WINDOW)
            continue;
        if (!run_kind(&kinds[i], true, operations, &seed, &refused))
            printf("  in: %s\n", kinds[i].name);
    }
    CHECK(refused > operations / 2);
}

/* Takes six units at some moment, by a server whose clock may have been ahead: in the library. */
static void use_in_segment(const weir_limit *limit, weir_segment *segment, const char *name, int64_t then_us)
{
    weir_decision decision;
    weir_time then = {then_us * 1000, then_us * 1000};
    CHECK_EQ(weir_take(segment, limit, name, strlen(name), 6, then, &decision), 0);
}

/* Takes six units at some moment in the store. */
static void use_in_store(const weir_limit *limit, const char *name, int64_t then_us)
{
    int64_t since = then_us;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER || weir__on_wall(limit))
        since -= since % limit->window_us;
    const char *format = limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? "SET %s s%lld:6:0"
                         : limit->algorithm == WEIR_FIXED_WINDOW         ? "SET %s w%lld:6"
                                                                         : "SET %s b%lld:6";
    freeReplyObject(redisCommand(server.context, format, name, (long long)since));
}

/* Buckets, and windows that begin with a request: usage in the future counts as usage now. Other windows stay where
 * they are, as in the library. */
static bool continues_in_the_past(const weir_limit *limit)
{
    return limit->algorithm != WEIR_SLIDING_WINDOW_COUNTER && !weir__on_wall(limit);
}

TEST(clock_set_back_refunds_nothing)
{
    static const weir_params params[] = {
        {.limit = 10, .window_ns = WEIR_SECOND / 5},
        {.limit = 7, .window_ns = WEIR_SECOND / 5, .burst = 10},
        {.limit = 10, .window_ns = WEIR_SECOND / 5, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WEIR_SECOND / 5, .delay = true},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WEIR_SECOND / 5, .align = WEIR_ALIGN_FIRST_REQUEST},
        {.algorithm = WEIR_FIXED_WINDOW,
         .limit = 10,
         .window_ns = WEIR_SECOND / 5}, /* so far back that it starts anew */
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = 2 * WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_SECOND / 5},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 2 * WEIR_SECOND},
    };
    if (!server_start())
        return;
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        weir_limit limit;
        weir_segment *segment;
        weir_params p = params[i];
        weir_segment_options kind = {.size = 1 << 20};
        p.id = 1;
        CHECK_EQ(weir_limit_init(&limit, &p), 0);
        CHECK_EQ(weir_segment_open(&kind, &segment), 0);
        struct weir__store_op op = {.limit = limit, .kind = WEIR__OP_PEEK};
        op_set_name(&op, "ahead");
        server_do("DEL ahead");
        CHECK_EQ(server_one(&op), 0);
        int64_t taken = op.at_us + 1000000;
        use_in_store(&limit, "ahead", taken);
        if (!continues_in_the_past(&limit))
            use_in_segment(&limit, segment, "ahead", taken);
        static const enum weir__store_op_kind hows[] = {WEIR__OP_PEEK, WEIR__OP_TAKE, WEIR__OP_TAKE,   WEIR__OP_REFUND,
                                                        WEIR__OP_TAKE, WEIR__OP_TAKE, WEIR__OP_CHARGE, WEIR__OP_PEEK};
        for (size_t j = 0; j < sizeof hows / sizeof hows[0]; j++) {
            weir_decision want;
            op.kind = hows[j];
            op.cost = 3;
            CHECK_EQ(server_one(&op), 0);
            if (continues_in_the_past(&limit) &&
                j < 2) { /* a peek, which changes nothing; and the first operation that does */
                weir_time then = {op.at_us * 1000, op.at_us * 1000};
                CHECK_EQ(weir_reset(segment, &limit, op.name, op.name_len, then), 0);
                use_in_segment(&limit, segment, "ahead", op.at_us);
            }
            CHECK_EQ(model(segment, &op, &want), 0);
            CHECK(same(&op, &want));
            if (!same(&op, &want)) {
                printf("    limit %zu, step %zu\n", i, j);
                show("script ", &op.decision);
                show("library", &want);
            }
        }
        weir_segment_close(segment);
    }
}

/* The clock was set back by an hour: a request denied now passes once as much has recovered from now on. */
TEST(clock_set_back_delays_no_recovery)
{
    static const struct {
        weir_params params;
        const char *stored;
    } cases[] = {
        {{.limit = 10, .window_ns = WEIR_SECOND}, "SET %s b%lld:10"},
        {{.limit = 10, .window_ns = WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL}, "SET %s b%lld:10"},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WEIR_SECOND}, "SET %s b%lld:10"},
        {{.algorithm = WEIR_LEAKY_BUCKET,
          .limit = 10,
          .burst = 20,
          .window_ns = WEIR_SECOND,
          .delay = true,
          .max_delay_ns = WEIR_SECOND / 2},
         "SET %s b%lld:10"},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WEIR_SECOND, .align = WEIR_ALIGN_FIRST_REQUEST},
         "SET %s w%lld:10"},
    };
    if (!server_start())
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir__store_op op = {.kind = WEIR__OP_PEEK, .cost = 1};
        CHECK_EQ(weir_limit_init(&op.limit, &cases[i].params), 0);
        op_set_name(&op, "later");
        server_do("DEL later");
        CHECK_EQ(server_one(&op), 0);
        freeReplyObject(
            redisCommand(server.context, cases[i].stored, "later", (long long)op.at_us + INT64_C(3600000000)));
        op.kind = WEIR__OP_TAKE;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(op.decision.verdict, WEIR_DENY);
        CHECK(op.decision.retry_after_ns > 0 && op.decision.retry_after_ns <= WEIR_SECOND);
        if (op.decision.retry_after_ns > WEIR_SECOND)
            continue; /* too long to wait */
        int64_t until_us = op.at_us + op.decision.retry_after_ns / 1000;
        /* Denied again on the way there, which must not restart the wait. */
        usleep((unsigned)(op.decision.retry_after_ns / 2000));
        CHECK_EQ(server_one(&op), 0);
        if (weir_passes(&op.decision)) { /* the process was held up for so long; it has taken what had recovered */
            CHECK(op.at_us >= until_us);
            continue;
        }
        CHECK_EQ(op.at_us + op.decision.retry_after_ns / 1000, until_us);
        usleep((unsigned)(until_us - op.at_us));
        CHECK_EQ(server_one(&op), 0);
        CHECK(weir_passes(&op.decision));
        if (!weir_passes(&op.decision))
            printf("    limit %zu\n", i);
    }
}

/* A refund is limited to what can still be owed at the limit's fastest rate, whatever the effective limit; in both. */
TEST(refund_of_a_scaled_bucket)
{
    static const weir_params params[] = {
        {.limit = 10, .window_ns = 100 * WEIR_SECOND},
        {.limit = 7, .window_ns = 100 * WEIR_SECOND, .burst = 10},
        {.limit = 1, .window_ns = 10 * WEIR_SECOND, .burst = 10, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 7, .window_ns = 100 * WEIR_SECOND, .burst = 10, .delay = true},
    };
    if (!server_start())
        return;
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        weir_limit limit, ceiling;
        weir_segment *segment;
        weir_decision want;
        weir_params p = params[i];
        weir_segment_options kind = {.size = 1 << 20};
        p.id = 1;
        CHECK_EQ(weir_limit_init(&limit, &p), 0);
        p.limit *= p.refill ? 2 : 30;
        CHECK_EQ(weir_limit_init(&ceiling, &p), 0);
        weir__limit_init_scaled(&ceiling, &ceiling);
        weir__limit_init_scaled(&limit, &ceiling);
        CHECK_EQ(weir_segment_open(&kind, &segment), 0);
        struct weir__store_op op = {.limit = limit, .kind = WEIR__OP_PEEK};
        op_set_name(&op, "owed");
        server_do("DEL owed");
        CHECK_EQ(server_one(&op), 0);
        use_in_store(&limit, "owed", op.at_us);
        use_in_segment(&limit, segment, "owed", op.at_us);
        op.kind = WEIR__OP_REFUND; /* taken a second ago, and a second of it was refilled */
        op.at_us -= 1000000;
        op.cost = 5;
        CHECK_EQ(server_one(&op), 0);
        CHECK_EQ(model(segment, &op, &want), 0);
        CHECK(same(&op, &want));
        CHECK(want.remaining > 10 - 6 && want.remaining < 10 - 6 + 5); /* at the effective limit nothing was refilled */
        weir_segment_close(segment);
    }
}

TEST_MAIN
