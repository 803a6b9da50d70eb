/* docs/reference/headers.md: what the headers state, for every algorithm, and which rule they report. */
#include "../../engine.h"

#define OUTCOMES 64

/* The headers of a response, and their numbers; -1: not sent. */
struct reply {
    weir_result result;
    weir_outcome outcomes[OUTCOMES];
    char values[WEIR_HEADER_COUNT][WEIR_HEADER_ROOM + 1];
    int64_t limit, remaining, retry, q, w, r, t;
};

static void keep(void *context, enum weir_header header, const char *value, size_t len)
{
    struct reply *reply = context;
    memcpy(reply->values[header], value, len + 1);
}

static int64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

/* A request with a cost, or with that of the rules: 0. */
static void check_at(weir *w, const char *line, weir_time now, int64_t cost, struct reply *reply)
{
    struct test_request request;
    test_request(&request, line);
    memset(reply, 0, sizeof *reply);
    request.query.now = now;
    request.query.has_cost = cost > 0;
    request.query.cost = cost;
    request.query.outcomes = reply->outcomes;
    request.query.outcomes_max = OUTCOMES;
    CHECK_EQ(weir_check(w, &request.query, &reply->result), 0);
    weir_result_headers(&reply->result, reply->outcomes, keep, reply);
    const char *policy = reply->values[WEIR_HEADER_POLICY], *ratelimit = reply->values[WEIR_HEADER_RATELIMIT];
    reply->limit = number_after(reply->values[WEIR_HEADER_LIMIT], "");
    reply->remaining = number_after(reply->values[WEIR_HEADER_REMAINING], "");
    reply->retry =
        reply->values[WEIR_HEADER_RETRY_AFTER][0] ? number_after(reply->values[WEIR_HEADER_RETRY_AFTER], "") : -1;
    reply->q = number_after(policy, ";q=");
    reply->w = number_after(policy, ";w=");
    reply->r = number_after(ratelimit, ";r=");
    reply->t = number_after(ratelimit, ";t=");
}

static void check(weir *w, const char *line, double s, struct reply *reply)
{
    check_at(w, line, test_seconds(s), 0, reply);
}

static bool is(const struct reply *reply, enum weir_header header, const char *text)
{
    bool same = strcmp(reply->values[header], text) == 0;
    if (!same)
        printf("  %s: %s\n", weir_header_name(header), reply->values[header]);
    return same;
}

static weir *engine_of(const char *fields)
{
    char rules[512];
    snprintf(rules, sizeof rules, "rules:\n  - { name: a, %s }\n", fields);
    return test_engine(rules);
}

/* ---- By algorithm ---- */

/* The first request of each at a window's start; then what the denied one gets, after `denied` have passed. */
static const struct {
    const char *fields, *policy, *ratelimit;
    int denied;
    const char *over;
} tables[] = {
    {"limit: 10, window: 1s, burst: 20", "\"a\";q=20;w=2", "\"a\";r=19;t=2", 20, "\"a\";r=0;t=1"},
    {"limit: 10, window: 1s", "\"a\";q=10;w=1", "\"a\";r=9;t=1", 10, "\"a\";r=0;t=1"},
    {"limit: 1000, window: 1h", "\"a\";q=1000;w=3600", "\"a\";r=999;t=3597", 1000, "\"a\";r=0;t=4"},
    {"limit: 100, window: 1m, burst: 10", "\"a\";q=10;w=6", "\"a\";r=9;t=6", 10, "\"a\";r=0;t=1"},
    {"limit: 100, window: 1m, burst: 1", "\"a\";q=1;w=1", "\"a\";r=0;t=1", 1, "\"a\";r=0;t=1"},
    {"limit: 5, window: 500ms", "\"a\";q=5;w=1", "\"a\";r=4;t=1", 5, "\"a\";r=0;t=1"},
    {"limit: 3, window: 10s, burst: 7", "\"a\";q=7;w=24", "\"a\";r=6;t=20", 7, "\"a\";r=0;t=4"},
    {"limit: 4, window: 60s, refill: interval", "\"a\";q=4;w=60", "\"a\";r=3;t=60", 4, "\"a\";r=0;t=60"},
    {"limit: 4, window: 60s, refill: interval, burst: 8", "\"a\";q=8;w=120", "\"a\";r=7;t=60", 8, "\"a\";r=0;t=60"},
    {"limit: 10, window: 1s, burst: 20, algorithm: leaky_bucket", "\"a\";q=20;w=2", "\"a\";r=19;t=2", 20,
     "\"a\";r=0;t=1"},
    {"limit: 2, window: 1s, burst: 6, algorithm: leaky_bucket, on_limit: delay", "\"a\";q=6;w=3", "\"a\";r=5;t=3", 6,
     "\"a\";r=0;t=1"},
    {"limit: 7, window: 1m, algorithm: fixed_window", "\"a\";q=7;w=60", "\"a\";r=6;t=60", 7, "\"a\";r=0;t=60"},
    {"limit: 7, window: 1m, algorithm: fixed_window, align: first_request", "\"a\";q=7;w=60", "\"a\";r=6;t=60", 7,
     "\"a\";r=0;t=60"},
    {"limit: 7, window: 1mo, algorithm: fixed_window, timezone: UTC", "\"a\";q=7;w=2678400", "\"a\";r=6;t=2419200", 7,
     "\"a\";r=0;t=2419200"},
    {"limit: 7, window: 1y, algorithm: fixed_window, timezone: UTC", "\"a\";q=7;w=31622400", "\"a\";r=6;t=7689600", 0,
     NULL},
    {"limit: 7, window: 1m, algorithm: sliding_window_log", "\"a\";q=7;w=60", "\"a\";r=6;t=60", 7, "\"a\";r=0;t=60"},
    {"limit: 7, window: 1m, algorithm: sliding_window_counter, buckets: 6", "\"a\";q=7;w=60", "\"a\";r=6;t=60", 7,
     "\"a\";r=0;t=60"},
    {"limit: 2, algorithm: concurrency", "\"a\";q=2;qu=\"concurrent-requests\"", "\"a\";r=1", 2, "\"a\";r=0;t=1"},
    {"limit: 100, window: 1m, cost: header:Content-Length", "\"a\";q=100;qu=\"content-bytes\";w=60", "\"a\";r=99;t=60",
     0, NULL},
    {"limit: 100, window: 1m, cost: { from: header:content-length, default: 5 }",
     "\"a\";q=100;qu=\"content-bytes\";w=60", "\"a\";r=95;t=57", 0, NULL},
    {"limit: 100, window: 1m, cost: header:X-Cost", "\"a\";q=100;w=60", "\"a\";r=99;t=60", 0, NULL},
    {"limit: 100, window: 1m, cost: 7", "\"a\";q=100;w=60", "\"a\";r=93;t=56", 14, "\"a\";r=2;t=3"},
    {"limit: 10, window: 10s, soft: 50%", "\"a\";q=10;w=10", "\"a\";r=9;t=9", 15, "\"a\";r=0;t=1"},
    {"limit: { pro: 50, default: 5 }, window: 10s, burst: 20", "\"a\";q=20;w=40", "\"a\";r=19;t=38", 20,
     "\"a\";r=0;t=2"},
    {"limit: 0", "", "", 0, "\"a\";r=0"},
};

TEST(headers_by_algorithm)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        weir *w = engine_of(tables[i].fields);
        struct reply reply;
        int before = test_failures;
        for (int k = 0; k < tables[i].denied; k++) {
            check(w, "GET /x", 0, &reply);
            CHECK(weir_passes(&reply.result.decision));
            if (k == 0)
                CHECK(is(&reply, WEIR_HEADER_POLICY, tables[i].policy) &&
                      is(&reply, WEIR_HEADER_RATELIMIT, tables[i].ratelimit));
        }
        check(w, "GET /x", 0, &reply);
        if (tables[i].over) {
            CHECK(!weir_passes(&reply.result.decision));
            CHECK(is(&reply, WEIR_HEADER_RATELIMIT, tables[i].over));
        } else {
            CHECK(is(&reply, WEIR_HEADER_POLICY, tables[i].policy) &&
                  is(&reply, WEIR_HEADER_RATELIMIT, tables[i].ratelimit));
        }
        CHECK_EQ(reply.q, reply.limit);
        if (test_failures != before)
            printf("  in { %s }\n", tables[i].fields);
        weir_close(w);
    }
}

TEST(ban_has_a_quota_of_nothing)
{
    weir *w = engine_of("limit: 0");
    struct reply reply;
    check(w, "GET /x", 0, &reply);
    CHECK(is(&reply, WEIR_HEADER_LIMIT, "0") && is(&reply, WEIR_HEADER_REMAINING, "0"));
    CHECK(is(&reply, WEIR_HEADER_POLICY, "\"a\";q=0") && is(&reply, WEIR_HEADER_RATELIMIT, "\"a\";r=0"));
    CHECK_EQ(reply.retry, -1);
    weir_close(w);
}

TEST(unused_key_has_a_full_window)
{
    static const char *const fields[] = {"limit: 5, window: 1m, cost: 0",
                                         "limit: 5, window: 1m, refill: interval, cost: 0",
                                         "limit: 5, window: 1m, algorithm: fixed_window, cost: 0",
                                         "limit: 5, window: 1m, algorithm: sliding_window_log, cost: 0"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        weir *w = engine_of(fields[i]);
        struct reply reply;
        check(w, "GET /x", 7, &reply);
        CHECK(is(&reply, WEIR_HEADER_POLICY, "\"a\";q=5;w=60") && is(&reply, WEIR_HEADER_RATELIMIT, "\"a\";r=5;t=60"));
        weir_close(w);
    }
}

/* ---- Random sequences ---- */

struct kind {
    const char *fields;
    bool bucket, flight;
};

static const struct kind kinds[] = {
    {"", true, false},
    {", refill: interval", true, false},
    {", algorithm: leaky_bucket", true, false},
    {", algorithm: leaky_bucket, on_limit: delay", true, false},
    {", algorithm: fixed_window", false, false},
    {", algorithm: fixed_window, align: first_request", false, false},
    {", algorithm: sliding_window_log", false, false},
    {", algorithm: sliding_window_counter", false, false},
    {", algorithm: sliding_window_counter, round: up", false, false},
    {", algorithm: sliding_window_counter, buckets: 7", false, false},
};

/* A rule, its rate, and where its requests are. */
struct sequence {
    weir *engine;
    const struct kind *kind;
    int64_t limit, window_ms, burst;
    weir_time now;
    char fields[256];
};

static void begin(struct sequence *of, uint64_t *seed)
{
    static const int64_t windows_ms[] = {500, 1000, 1500, 2000, 7000, 60000, 3600000, 86400000};
    of->kind = &kinds[test_random(seed) % (sizeof kinds / sizeof *kinds)];
    of->limit = 1 + (int64_t)(test_random(seed) % (test_random(seed) % 4 ? 30 : 2000));
    of->window_ms = windows_ms[test_random(seed) % (sizeof windows_ms / sizeof *windows_ms)];
    of->burst = of->limit;
    int len = snprintf(of->fields, sizeof of->fields, "limit: %" PRId64 ", window: %" PRId64 "ms%s", of->limit,
                       of->window_ms, of->kind->fields);
    if (of->kind->bucket && test_random(seed) % 2) {
        of->burst = 1 + (int64_t)(test_random(seed) % 60);
        len += snprintf(of->fields + len, sizeof of->fields - (size_t)len, ", burst: %" PRId64, of->burst);
    }
    if (test_random(seed) % 4 == 0)
        snprintf(of->fields + len, sizeof of->fields - (size_t)len, ", soft: %d%%", (int)(test_random(seed) % 200));
    of->engine = engine_of(of->fields);
    of->now = test_seconds((double)(test_random(seed) % 100000) / 7);
}

static void pass_time(struct sequence *of, int64_t ns)
{
    of->now.mono_ns += ns;
    of->now.wall_ns += ns;
}

/* What holds for every response. */
static void check_reply(const struct sequence *of, const struct reply *reply)
{
    __extension__ typedef __int128 wide;
    const weir_decision *decision = &reply->result.decision;
    CHECK_EQ(reply->q, of->burst);
    CHECK_EQ(reply->limit, reply->q);
    CHECK_EQ(reply->remaining, reply->r);
    CHECK(reply->r >= 0 && reply->r <= reply->q);
    CHECK(reply->w >= 1 && reply->t >= 0);
    /* q / w is at most the rate, and would be more than it with a second less. */
    CHECK((wide)reply->q * of->window_ms <= (wide)of->limit * reply->w * 1000);
    CHECK((wide)reply->q * of->window_ms > (wide)of->limit * (reply->w - 1) * 1000);
    if (weir_passes(decision)) {
        CHECK_EQ(reply->retry, -1);
        if (of->kind->bucket && !strstr(of->kind->fields, "interval")) /* r / t is at most the rate */
            CHECK((wide)reply->r * of->window_ms <= (wide)of->limit * reply->t * 1000);
    } else if (reply->retry >= 0) {
        CHECK(reply->t >= 1 && reply->t <= reply->retry);
    }
}

/* A client that uses r units within t is not denied, and has one more after t. */
static void use_all(struct sequence *of, uint64_t *seed, const struct reply *from)
{
    struct reply reply;
    int64_t window = from->t * WEIR_SECOND, wait = (int64_t)(test_random(seed) % (uint64_t)(window + 1));
    pass_time(of, wait);
    if (from->r > 0) {
        check_at(of->engine, "GET /x", of->now, from->r, &reply);
        CHECK(weir_passes(&reply.result.decision));
        check_reply(of, &reply);
    }
    pass_time(of, window - wait);
    check_at(of->engine, "GET /x", of->now, 1, &reply);
    CHECK(weir_passes(&reply.result.decision));
    check_reply(of, &reply);
}

TEST(numbers_agree_over_random_sequences)
{
    uint64_t seed = 11;
    for (int64_t round = test_scaled(300, 20); round > 0; round--) {
        struct sequence of;
        int before = test_failures;
        begin(&of, &seed);
        for (int i = 0; i < 120; i++) {
            struct reply reply;
            int64_t cost = test_random(&seed) % 3 ? 1 : 1 + (int64_t)(test_random(&seed) % (uint64_t)(2 * of.burst));
            if (test_random(&seed) % 3 == 0)
                pass_time(&of, (int64_t)(test_random(&seed) % (uint64_t)(of.window_ms * 1000000 / 2)));
            check_at(of.engine, "GET /x", of.now, cost, &reply);
            check_reply(&of, &reply);
            if (test_random(&seed) % 8 == 0 && weir_passes(&reply.result.decision))
                use_all(&of, &seed, &reply);
        }
        if (test_failures != before)
            printf("  in { %s }\n", of.fields);
        weir_close(of.engine);
    }
}

/* ---- Which rule is reported ---- */

#define TWO                                                                                                            \
    "rules:\n"                                                                                                         \
    "  - { name: day, limit: 1000, window: 1d, algorithm: fixed_window%s }\n"                                          \
    "  - { name: spike, match: { path: '/*' }, limit: 20, window: 1s, algorithm: fixed_window%s }\n"

static weir *two(const char *top, const char *day, const char *spike)
{
    char text[1024];
    int len = snprintf(text, sizeof text, "%s", top);
    snprintf(text + len, sizeof text - (size_t)len, TWO, day, spike);
    return test_engine(text);
}

static const char *reported(weir *w, double s)
{
    static struct reply reply;
    check(w, "GET /x", s, &reply);
    return reply.result.decided_by.rule;
}

/* By share, not by number: 999 of 1000 is more than 19 of 20, but 9 of 1000 is less than 10 of 20. */
TEST(smallest_share_is_reported)
{
    weir *w = two("", "", "");
    CHECK(strcmp(reported(w, 0), "spike") == 0);
    for (int s = 1; s <= 94; s++)
        for (int i = 0; i < 10; i++)
            (void)reported(w, s);
    CHECK(strcmp(reported(w, 100), "day") == 0); /* 58 of 1000 are less than 19 of 20 */
    weir_close(w);
    w = test_engine("rules:\n  - { name: b, limit: 4, window: 1h, algorithm: fixed_window }\n"
                    "  - { name: a, limit: 4, window: 1d, algorithm: fixed_window }\n");
    for (int i = 0; i < 4; i++)
        CHECK(strcmp(reported(w, i), "b") == 0); /* of equals the first */
    weir_close(w);
    /* The largest numbers: their products need more than 64 bits. */
    w = test_engine("rules:\n  - { name: large, limit: 4294967295, window: 1d, algorithm: fixed_window }\n"
                    "  - { name: larger, limit: 4294967295, window: 1d, algorithm: fixed_window, cost: 2 }\n"
                    "  - { name: small, limit: 3000000000, window: 1d, algorithm: fixed_window }\n");
    CHECK(strcmp(reported(w, 0), "larger") == 0);
    weir_close(w);
    w = test_engine("rules:\n  - { name: large, limit: 4294967295, window: 1d, algorithm: fixed_window }\n"
                    "  - { name: half, limit: 3000000000, window: 1d, algorithm: fixed_window, cost: 1500000000 }\n");
    CHECK(strcmp(reported(w, 0), "half") == 0);
    weir_close(w);
}

TEST(exhausted_soft_limit_is_the_tightest)
{
    weir *w = test_engine("rules:\n  - { name: a, limit: 3, window: 1h, algorithm: fixed_window }\n"
                          "  - { name: b, limit: 1, window: 1h, algorithm: fixed_window, soft: 1000% }\n");
    CHECK(strcmp(reported(w, 0), "b") == 0); /* 0 of 1 */
    CHECK(strcmp(reported(w, 0), "b") == 0);
    CHECK(strcmp(reported(w, 0), "b") == 0); /* -2 of 1, beside 0 of 3 */
    weir_close(w);
}

static const struct {
    const char *top, *day, *spike, *reported, *ratelimit;
} reports[] = {
    {"", "", "", "spike", "\"spike\";r=19;t=1"},
    {"response: { report: tightest }\n", "", "", "spike", "\"spike\";r=19;t=1"},
    {"response: { report: day }\n", "", "", "day", "\"day\";r=999;t=86400"},
    {"response: { report: spike }\n", "", "", "spike", "\"spike\";r=19;t=1"},
    {"", ", response: { report: day }", "", "day", "\"day\";r=999;t=86400"},
    {"", "", ", response: { report: day }", "day", "\"day\";r=999;t=86400"},
    /* Of two that set one, the first counts; and what a rule sets replaces the whole of the top's. */
    {"", ", response: { report: spike }", ", response: { report: day }", "spike", "\"spike\";r=19;t=1"},
    {"response: { report: day }\n", ", response: { report: spike }", "", "spike", "\"spike\";r=19;t=1"},
    {"response: { report: all }\n", "", "", "spike", "\"day\";r=999;t=86400,\"spike\";r=19;t=1"},
    {"response: { report: { rule: day, list: all } }\n", "", "", "day", "\"day\";r=999;t=86400,\"spike\";r=19;t=1"},
    {"response: { report: { rule: day, list: one } }\n", "", "", "day", "\"day\";r=999;t=86400"},
    {"response: { report: { list: all }, headers: [draft] }\n", "", "", "spike",
     "\"day\";r=999;t=86400,\"spike\";r=19;t=1"},
    {"response: { report: all }\n", "", ", response: { report: tightest }", "spike", "\"spike\";r=19;t=1"},
};

TEST(report_chooses_the_rule)
{
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        weir *w = two(reports[i].top, reports[i].day, reports[i].spike);
        struct reply reply;
        check(w, "GET /x", 0, &reply);
        CHECK(strcmp(reply.result.decided_by.rule, reports[i].reported) == 0);
        CHECK(is(&reply, WEIR_HEADER_RATELIMIT, reports[i].ratelimit));
        CHECK(is(&reply, WEIR_HEADER_POLICY, "\"day\";q=1000;w=86400,\"spike\";q=20;w=1"));
        for (int k = 1; k < 20; k++)
            check(w, "GET /x", 0, &reply);
        check(w, "GET /x", 0, &reply); /* denied: by the rule that denies, whatever is to be reported */
        CHECK(strcmp(reply.result.decided_by.rule, "spike") == 0);
        CHECK(is(&reply, WEIR_HEADER_RETRY_AFTER, reply.result.headers & WEIR_HEADERS_RETRY_AFTER ? "1" : ""));
        CHECK(strstr(reply.values[WEIR_HEADER_RATELIMIT], "\"spike\";r=0;t=1"));
        weir_close(w);
    }
}

/* The rule is reported only where it limits the request. */
TEST(report_of_a_rule_that_does_not_limit)
{
    weir *w = test_engine(
        "identity: { tier: header:X-Plan }\nresponse: { report: plan }\n"
        "rules:\n"
        "  - { name: plan, match: { path: '/api/*' }, limit: { pro: unlimited, default: 10 }, window: 1d }\n"
        "  - { name: spike, limit: 20, window: 1s }\n"
        "  - { name: tight, limit: 5, window: 1s, algorithm: fixed_window }\n"
        "  - { name: plan, limit: 1, window: 1d, shadow: true }\n");
    struct reply reply;
    check(w, "GET /api/x", 0, &reply);
    CHECK(strcmp(reply.result.decided_by.rule, "plan") == 0 && reply.limit == 10);
    check(w, "GET /other", 0, &reply);
    CHECK(strcmp(reply.result.decided_by.rule, "tight") == 0);
    check(w, "GET /api/x @X-Plan=pro", 0, &reply);
    CHECK(strcmp(reply.result.decided_by.rule, "tight") == 0);
    weir_close(w);
}

/* A rule with several limits: the tightest of them, or one by its whole name. */
TEST(report_of_a_rule_with_several_limits)
{
    static const char rules[] = "response: { report: %s }\nrules:\n"
                                "  - { name: tight, limit: 2, window: 1s }\n"
                                "  - { name: plan, limits: [{ limit: 10, window: 1m }, { limit: 100, window: 1h }] }\n";
    static const char *const names[][2] = {{"plan", "plan/1m"}, {"plan/1h", "plan/1h"}, {"{ rule: plan }", "plan/1m"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[512];
        snprintf(text, sizeof text, rules, names[i][0]);
        weir *w = test_engine(text);
        CHECK(strcmp(reported(w, 0), names[i][1]) == 0);
        weir_close(w);
    }
}

/* A rule may be called as the words are. */
TEST(report_of_a_rule_called_all)
{
    weir *w = test_engine("response: { report: { rule: all } }\nrules:\n  - { name: all, limit: 100, window: 1h }\n"
                          "  - { name: tightest, limit: 5, window: 1h }\n");
    struct reply reply;
    check(w, "GET /x", 0, &reply);
    CHECK(is(&reply, WEIR_HEADER_RATELIMIT, "\"all\";r=99;t=3564"));
    weir_close(w);
}

/* More rules than fit: whole items, and the reported one among them. */
TEST(lists_are_bounded)
{
    char text[16384] = "response: { report: { rule: wanted, list: all } }\nrules:\n";
    size_t len = strlen(text);
    for (int i = 0; i < 40; i++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "  - { name: '%02d-%085d', limit: %d, window: 1h, algorithm: fixed_window }\n", i, 0,
                                4294967 + i);
    snprintf(text + len, sizeof text - len, "  - { name: wanted, limit: 9, window: 1h, algorithm: fixed_window }\n");
    weir *w = test_engine(text);
    struct reply reply;
    check(w, "GET /x", 0, &reply);
    const char *policy = reply.values[WEIR_HEADER_POLICY], *ratelimit = reply.values[WEIR_HEADER_RATELIMIT];
    CHECK(strlen(policy) > 1400 && strlen(policy) <= 2048 && strlen(ratelimit) > 500 && strlen(ratelimit) <= 1024);
    CHECK(strstr(policy, ",\"wanted\";q=9;w=3600") && strstr(ratelimit, ",\"wanted\";r=8;t=3600"));
    CHECK(policy[0] == '"' && strncmp(policy + strlen(policy) - 7, ";w=3600", 7) == 0);
    CHECK(strncmp(ratelimit + strlen(ratelimit) - 7, ";t=3600", 7) == 0);
    weir_close(w);
}

/* A taken unit of a limit that no rule has, for programs that use weir_take. */
TEST(outcome_of_a_take)
{
    weir_params params = {.limit = 10, .window_ns = WEIR_SECOND, .burst = 20};
    weir_segment_options how = {.size = 1 << 20};
    weir_segment *segment;
    weir_limit limit;
    weir_result result = {.headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RESET_DELTA};
    struct reply reply = {.limit = 0};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    CHECK_EQ(weir_segment_open(&how, &segment), 0);
    CHECK_EQ(weir_take(segment, &limit, "k", 1, 5, test_seconds(0), &result.decision), 0);
    strcpy(result.decided_by.rule, "mine");
    result.decided_by.decision = result.decision;
    result.decided_by.window_ns = params.window_ns;
    weir_outcome_set_policy(&result.decided_by, &limit);
    weir_result_headers(&result, NULL, keep, &reply);
    CHECK(is(&reply, WEIR_HEADER_POLICY, "\"mine\";q=20;w=2") &&
          is(&reply, WEIR_HEADER_RATELIMIT, "\"mine\";r=15;t=2"));
    CHECK(is(&reply, WEIR_HEADER_LIMIT, "20") && is(&reply, WEIR_HEADER_RESET, "1"));
    weir_segment_close(segment);
}

TEST_MAIN
