/*
 * Several rules on the fast path, when another request comes between reading their counters and taking: all or
 * nothing. The linker makes the read interruptible, so the rules have fixed windows: a token bucket's read is inlined.
 */
#include "../../engine.h"

#include "engine/fast_result.h"
#include "engine/engine.h"

#define RULES                                                                                                          \
    "rules:\n"                                                                                                         \
    "  - { name: a, key: 'a:${client_ip}', limit: 10, window: 1d, algorithm: fixed_window }\n"                         \
    "  - { name: b, key: 'b:${client_ip}', limit: 5, window: 1d, algorithm: fixed_window }\n"                          \
    "  - { name: c, key: 'c:${client_ip}', limit: 10, window: 1d, algorithm: fixed_window }\n"

/* One rule, and two with high limits. */
#define RULE        "rules:\n  - { name: a, key: 'a:${client_ip}', limit: 100, window: 1d, algorithm: fixed_window }\n"
#define ROOMY_RULES RULE "  - { name: b, key: 'b:${client_ip}', limit: 100, window: 1d, algorithm: fixed_window }\n"

/* ---- Between reading and taking ---- */

static struct {
    weir_segment *segment;
    int look;     /* after this read, from 1 on; 0: never */
    bool always;  /* and after all later reads of the same rule */
    int64_t cost; /* of the request that comes between */
    int looks;
    const weir_limit *its; /* the limit of the last read that was interrupted */
} between;

bool __real_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step);
bool __wrap_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step);

bool __wrap_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step)
{
    bool on_fast_path = __real_weir__slot_look(op, limit, slot, tag, cost, step);
    between.looks++;
    if (between.looks == between.look || (between.always && limit == between.its)) {
        between.its = limit;
        static const char *const keys[] = {"a:10.0.0.1", "b:10.0.0.1", "c:10.0.0.1"};
        const char *key = keys[(between.look - 1) % 3];
        weir_decision made;
        CHECK_EQ(weir_take(between.segment, limit, key, strlen(key), between.cost, test_seconds(1), &made), 0);
        CHECK_EQ(made.verdict, WEIR_ALLOW);
    }
    return on_fast_path;
}

/* ---- Requests ---- */

struct request {
    weir *engine;
    struct weir__fast_result fast;
    struct weir__second reset;
    weir_result result;
    weir_outcome outcomes[3];
    char text[WEIR__FAST_RESULT_BYTES];
};

static void async(struct request *request, size_t outcomes_max)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    weir_query query = {.lookup = test_no_attributes,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = {"/x", 2},
                        .now = test_seconds(1),
                        .outcomes = request->outcomes,
                        .outcomes_max = outcomes_max};
    request->fast = (struct weir__fast_result){.reset = &request->reset, .text = request->text, .headers = true};
    between.looks = 0;
    CHECK_EQ(weir__check_fast(request->engine, &query, &request->result, &request->fast), 0);
}

/* The first request of a key creates its entries, on the slow path. */
static void first_request(struct request *request)
{
    request->engine = test_engine(RULES);
    request->reset = (struct weir__second){0};
    between.segment = request->engine->segment;
    between.look = 0;
    between.always = false;
    async(request, 3);
    CHECK_EQ(between.looks, 1); /* there is no entry: not on the fast path */
    CHECK(request->fast.filled);
    CHECK_EQ(request->fast.remaining, 4);
}

/* Checks the remaining units of the three rules. */
static void check_left(struct request *request, int64_t a, int64_t b, int64_t c)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    weir_query query = {.lookup = test_no_attributes,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = {"/x", 2},
                        .now = test_seconds(1),
                        .outcomes = request->outcomes,
                        .outcomes_max = 3,
                        .has_cost = true};
    CHECK_EQ(weir_check(request->engine, &query, &request->result), 0);
    CHECK_EQ(request->outcomes[0].decision.remaining, a);
    CHECK_EQ(request->outcomes[1].decision.remaining, b);
    if (request->result.outcomes > 2)
        CHECK_EQ(request->outcomes[2].decision.remaining, c);
}

static int add_rolled_back(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    (void)info;
    *(uint64_t *)context += stats->rolled_back;
    return 0;
}

static uint64_t rolled_back(weir *engine)
{
    uint64_t sum = 0;
    CHECK_EQ(weir_rules_each(engine, add_rolled_back, &sum), 0);
    return sum;
}

TEST(no_concurrent_request)
{
    struct request request;
    first_request(&request);
    async(&request, 3);
    CHECK_EQ(between.looks, 3);
    CHECK(request.fast.filled);
    CHECK_EQ(request.fast.limit, 5);
    CHECK_EQ(request.fast.remaining, 3);
    CHECK_EQ(request.fast.rule_len, 1);
    CHECK(request.fast.key_len == 10 && memcmp(request.text, "bb:10.0.0.1", 11) == 0);
    check_left(&request, 8, 3, 8);
    weir_close(request.engine);
}

/* There is enough for both: the counter is read again, and nothing is refunded. */
TEST(concurrent_request_with_room_for_both)
{
    for (int rule = 1; rule <= 3; rule++) {
        struct request request;
        first_request(&request);
        between.look = rule;
        between.cost = 2;
        async(&request, 3);
        CHECK_EQ(between.looks, 4);
        CHECK(request.fast.filled);
        CHECK_EQ(request.fast.remaining, rule == 1 ? 6 : rule == 2 ? 1 : 3); /* of equal shares the first */
        CHECK_EQ(rolled_back(request.engine), 0);
        check_left(&request, rule == 1 ? 6 : 8, rule == 2 ? 1 : 3, rule == 3 ? 6 : 8);
        weir_close(request.engine);
    }
}

/* The concurrent request takes the last unit: this one is denied, and the rules before it are rolled back. */
TEST(concurrent_request_takes_the_last_unit)
{
    for (int rule = 1; rule <= 3; rule++) {
        struct request request;
        first_request(&request);
        between.look = rule;
        between.cost = rule == 2 ? 4 : 9;
        async(&request, 3);
        CHECK_EQ(between.looks, 4);
        CHECK(!request.fast.filled);
        CHECK_EQ(request.result.decision.verdict, WEIR_DENY);
        CHECK_EQ(request.result.decided_by.rule[0], "abc"[rule - 1]);
        CHECK_EQ(request.result.outcomes, 3);
        CHECK_EQ(rolled_back(request.engine), (uint64_t)rule - 1);
        check_left(&request, rule == 1 ? 0 : 9, rule == 2 ? 0 : 4, rule == 3 ? 0 : 9);
        weir_close(request.engine);
    }
}

/* One rule: the concurrent request is not lost by an outdated read. */
TEST(concurrent_request_under_one_rule)
{
    struct request request = {.engine = test_engine(RULE)};
    between.segment = request.engine->segment;
    between.look = 0;
    between.always = false;
    for (int i = 0; i < 3; i++) {
        between.look = i == 2;
        between.cost = 2;
        async(&request, 1);
        CHECK(request.fast.filled);
        CHECK_EQ(request.fast.remaining, i == 2 ? 95 : 99 - i);
    }
    between.look = 0;
    async(&request, 1);
    CHECK_EQ(request.fast.remaining, 94);
    weir_close(request.engine);
}

/* A concurrent request comes every time: in the end the slow path decides, and takes once from each. */
TEST(concurrent_request_at_every_attempt)
{
    struct request request = {.engine = test_engine(ROOMY_RULES)};
    between.segment = request.engine->segment;
    between.look = 0;
    between.cost = 1;
    async(&request, 3);
    between.look = 1;
    between.always = true;
    async(&request, 3);
    between.always = false;
    CHECK(request.fast.filled);
    CHECK(between.looks > 3);
    int64_t others = between.looks - 1; /* all but the read of the second */
    CHECK_EQ(rolled_back(request.engine), 0);
    check_left(&request, 100 - 2 - others, 98, 0);
    weir_close(request.engine);
}

/* A caller with room for fewer outcomes than rules gets a normal result, as the headers would list more rules. */
TEST(room_for_fewer_outcomes_takes_the_slow_path)
{
    struct request request;
    first_request(&request);
    async(&request, 2);
    CHECK(!request.fast.filled);
    CHECK_EQ(request.result.decision.verdict, WEIR_ALLOW);
    CHECK_EQ(request.result.outcomes, 2);
    check_left(&request, 8, 3, 8);
    weir_close(request.engine);
}

TEST_MAIN
