/*
 * Several rules on the quick way, when another request comes between the look at their counters and the take: all or
 * nothing. The look is the linker's to interrupt, so the rules have fixed windows: a token bucket's is inlined.
 */
#include "../../engine.h"

#include "engine/fast_result.h"
#include "engine/engine.h"

#define RULES                                                                                                          \
    "rules:\n"                                                                                                         \
    "  - { name: a, key: 'a:${client_ip}', limit: 10, window: 1d, algorithm: fixed_window }\n"                         \
    "  - { name: b, key: 'b:${client_ip}', limit: 5, window: 1d, algorithm: fixed_window }\n"                          \
    "  - { name: c, key: 'c:${client_ip}', limit: 10, window: 1d, algorithm: fixed_window }\n"

/* One alone, and two with room for many. */
#define RULE        "rules:\n  - { name: a, key: 'a:${client_ip}', limit: 100, window: 1d, algorithm: fixed_window }\n"
#define ROOMY_RULES RULE "  - { name: b, key: 'b:${client_ip}', limit: 100, window: 1d, algorithm: fixed_window }\n"

/* ---- Between the look and the take ---- */

static struct {
    weir_segment *segment;
    int look;     /* after this one, from 1 on; 0: never */
    bool always;  /* and after all that follow of the same rule */
    int64_t cost; /* of who comes between */
    int looks;
    const weir_limit *its; /* of whom somebody came between at last */
} between;

bool __real_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step);
bool __wrap_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step);

bool __wrap_weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                            int64_t cost, struct weir__step *step)
{
    bool usual = __real_weir__slot_look(op, limit, slot, tag, cost, step);
    between.looks++;
    if (between.looks == between.look || (between.always && limit == between.its)) {
        between.its = limit;
        static const char *const keys[] = {"a:10.0.0.1", "b:10.0.0.1", "c:10.0.0.1"};
        const char *key = keys[(between.look - 1) % 3];
        weir_decision made;
        CHECK_EQ(weir_take(between.segment, limit, key, strlen(key), between.cost, test_seconds(1), &made), 0);
        CHECK_EQ(made.verdict, WEIR_ALLOW);
    }
    return usual;
}

/* ---- Requests ---- */

struct asked {
    weir *engine;
    struct weir__fast_result fast;
    struct weir__second reset;
    weir_result answer;
    weir_outcome outcomes[3];
    char text[WEIR__FAST_RESULT_BYTES];
};

static void async(struct asked *asked, size_t outcomes_max)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    weir_query query = {.lookup = test_no_attributes,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = {"/x", 2},
                        .now = test_seconds(1),
                        .outcomes = asked->outcomes,
                        .outcomes_max = outcomes_max};
    asked->fast = (struct weir__fast_result){.reset = &asked->reset, .text = asked->text, .headers = true};
    between.looks = 0;
    CHECK_EQ(weir__check_fast(asked->engine, &query, &asked->answer, &asked->fast), 0);
}

/* The first request of a key makes its entries, on the long way. */
static void begin(struct asked *asked)
{
    asked->engine = test_engine(RULES);
    asked->reset = (struct weir__second){0};
    between.segment = asked->engine->segment;
    between.look = 0;
    between.always = false;
    async(asked, 3);
    CHECK_EQ(between.looks, 1); /* there is no entry: that is not usual */
    CHECK(asked->fast.filled);
    CHECK_EQ(asked->fast.remaining, 4);
}

/* What is left under each of the three. */
static void check_left(struct asked *asked, int64_t a, int64_t b, int64_t c)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    weir_query query = {.lookup = test_no_attributes,
                        .peer = peer,
                        .peer_len = sizeof peer,
                        .path = {"/x", 2},
                        .now = test_seconds(1),
                        .outcomes = asked->outcomes,
                        .outcomes_max = 3,
                        .has_cost = true};
    CHECK_EQ(weir_check(asked->engine, &query, &asked->answer), 0);
    CHECK_EQ(asked->outcomes[0].decision.remaining, a);
    CHECK_EQ(asked->outcomes[1].decision.remaining, b);
    if (asked->answer.outcomes > 2)
        CHECK_EQ(asked->outcomes[2].decision.remaining, c);
}

static int add_back(void *context, const weir_rule_info *info, const weir_rule_stats *stats)
{
    (void)info;
    *(uint64_t *)context += stats->rolled_back;
    return 0;
}

static uint64_t rolled_back(weir *engine)
{
    uint64_t sum = 0;
    CHECK_EQ(weir_rules_each(engine, add_back, &sum), 0);
    return sum;
}

TEST(nobody_comes_between)
{
    struct asked asked;
    begin(&asked);
    async(&asked, 3);
    CHECK_EQ(between.looks, 3);
    CHECK(asked.fast.filled);
    CHECK_EQ(asked.fast.limit, 5);
    CHECK_EQ(asked.fast.remaining, 3);
    CHECK_EQ(asked.fast.rule_len, 1);
    CHECK(asked.fast.key_len == 10 && memcmp(asked.text, "bb:10.0.0.1", 11) == 0);
    check_left(&asked, 8, 3, 8);
    weir_close(asked.engine);
}

/* There is enough for both: it is looked at again, and nothing is given back. */
TEST(somebody_comes_between)
{
    for (int rule = 1; rule <= 3; rule++) {
        struct asked asked;
        begin(&asked);
        between.look = rule;
        between.cost = 2;
        async(&asked, 3);
        CHECK_EQ(between.looks, 4);
        CHECK(asked.fast.filled);
        CHECK_EQ(asked.fast.remaining, rule == 2 ? 1 : 3);
        CHECK_EQ(rolled_back(asked.engine), 0);
        check_left(&asked, rule == 1 ? 6 : 8, rule == 2 ? 1 : 3, rule == 3 ? 6 : 8);
        weir_close(asked.engine);
    }
}

/* Whoever comes between takes the last: the request is denied, and the rules before that have all back. */
TEST(somebody_takes_the_last)
{
    for (int rule = 1; rule <= 3; rule++) {
        struct asked asked;
        begin(&asked);
        between.look = rule;
        between.cost = rule == 2 ? 4 : 9;
        async(&asked, 3);
        CHECK_EQ(between.looks, 4);
        CHECK(!asked.fast.filled);
        CHECK_EQ(asked.answer.decision.verdict, WEIR_DENY);
        CHECK_EQ(asked.answer.decided_by.rule[0], "abc"[rule - 1]);
        CHECK_EQ(asked.answer.outcomes, 3);
        CHECK_EQ(rolled_back(asked.engine), (uint64_t)rule - 1);
        check_left(&asked, rule == 1 ? 0 : 9, rule == 2 ? 0 : 4, rule == 3 ? 0 : 9);
        weir_close(asked.engine);
    }
}

/* One rule alone: whoever comes between is not forgotten for what was seen before. */
TEST(somebody_comes_between_one)
{
    struct asked asked = {.engine = test_engine(RULE)};
    between.segment = asked.engine->segment;
    between.look = 0;
    between.always = false;
    for (int i = 0; i < 3; i++) {
        between.look = i == 2;
        between.cost = 2;
        async(&asked, 1);
        CHECK(asked.fast.filled);
        CHECK_EQ(asked.fast.remaining, i == 2 ? 95 : 99 - i);
    }
    between.look = 0;
    async(&asked, 1);
    CHECK_EQ(asked.fast.remaining, 94);
    weir_close(asked.engine);
}

/* Somebody comes between every time: in the end it goes the long way, and has taken once of each. */
TEST(somebody_always_comes_between)
{
    struct asked asked = {.engine = test_engine(ROOMY_RULES)};
    between.segment = asked.engine->segment;
    between.look = 0;
    between.cost = 1;
    async(&asked, 3);
    between.look = 1;
    between.always = true;
    async(&asked, 3);
    between.always = false;
    CHECK(asked.fast.filled);
    CHECK(between.looks > 3);
    int64_t others = between.looks - 1; /* all but the look at the second */
    CHECK_EQ(rolled_back(asked.engine), 0);
    check_left(&asked, 100 - 2 - others, 98, 0);
    weir_close(asked.engine);
}

/* Who does not list all rules is told by an answer, as the headers would list more than he does. */
TEST(a_shorter_list)
{
    struct asked asked;
    begin(&asked);
    async(&asked, 2);
    CHECK(!asked.fast.filled);
    CHECK_EQ(asked.answer.decision.verdict, WEIR_ALLOW);
    CHECK_EQ(asked.answer.outcomes, 2);
    check_left(&asked, 8, 3, 8);
    weir_close(asked.engine);
}

TEST_MAIN
