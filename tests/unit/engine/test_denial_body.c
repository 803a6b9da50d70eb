/* Headers and bodies of responses, byte by byte. */
#include "../../test.h"

#include <weir/weir.h>

struct seen {
    char text[4096];
};

static void see(void *context, enum weir_header header, const char *value, size_t len)
{
    CHECK_EQ(strlen(value), len);
    struct seen *seen = context;
    size_t used = strlen(seen->text);
    snprintf(seen->text + used, sizeof seen->text - used, "%s: %s\n", weir_header_name(header), value);
}

static weir_result result_of(enum weir_verdict verdict)
{
    weir_result a = {
        .decision = {.verdict = verdict, .limit = 100, .remaining = 50, .reset_after_ns = 29 * WEIR_SECOND + 1},
        .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER,
        .now = {.wall_ns = 1700000000 * WEIR_SECOND},
        .decided_by = {.rule = "burst",
                       .quota = 100,
                       .effective_limit = 100,
                       .window_ns = 60 * WEIR_SECOND,
                       .capacity = 100,
                       .policy_window_ns = 60 * WEIR_SECOND,
                       .effective_window_ns = 29 * WEIR_SECOND + 1},
    };
    if (verdict == WEIR_DENY) {
        a.status = 429;
        a.decision.remaining = 0;
        a.decision.retry_after_ns = WEIR_SECOND / 2;
    }
    a.decided_by.decision = a.decision;
    return a;
}

#define HEADERS(a, outcomes, expected)                                                                                 \
    do {                                                                                                               \
        struct seen seen_ = {""};                                                                                      \
        weir_result_headers(&(a), (outcomes), see, &seen_);                                                            \
        CHECK(strcmp(seen_.text, (expected)) == 0);                                                                    \
        if (strcmp(seen_.text, (expected)) != 0)                                                                       \
            printf("%s", seen_.text);                                                                                  \
    } while (0)

TEST(headers_of_an_allowed_request)
{
    weir_result a = result_of(WEIR_ALLOW);
    HEADERS(a, NULL,
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 50\nX-RateLimit-Reset: 1700000030\n"
            "RateLimit-Policy: \"burst\";q=100;w=60\nRateLimit: \"burst\";r=50;t=30\n");
    a.headers |= WEIR_HEADERS_RESET_DELTA;
    a.headers &= ~(unsigned)WEIR_HEADERS_DRAFT;
    HEADERS(a, NULL, "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 50\nX-RateLimit-Reset: 30\n");
    a.headers = 0;
    HEADERS(a, NULL, "");
}

TEST(headers_of_a_denied_request)
{
    weir_result a = result_of(WEIR_DENY);
    HEADERS(
        a, NULL,
        "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000030\nX-RateLimit-Retry-After: 1\n"
        "RateLimit-Policy: \"burst\";q=100;w=60\nRateLimit: \"burst\";r=0;t=1\nRetry-After: 1\nCache-Control: "
        "no-store\n");
    a.decided_by.decision.retry_after_ns = a.decision.retry_after_ns = -1; /* waiting never helps */
    a.decided_by.decision.verdict = a.decision.verdict = WEIR_NEVER_FITS;
    a.headers = WEIR_HEADERS_RETRY_AFTER | WEIR_HEADERS_X_RATELIMIT;
    HEADERS(
        a, NULL,
        "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000030\nCache-Control: no-store\n");
}

TEST(every_policy_is_listed)
{
    weir_result a = result_of(WEIR_ALLOW);
    weir_outcome outcomes[3] = {a.decided_by, a.decided_by, a.decided_by};
    strcpy(outcomes[1].rule, "daily \"x\" \xc3\xa9");
    outcomes[1].decision.limit = outcomes[1].capacity = 1000;
    outcomes[1].policy_window_ns = WEIR_DAY;
    outcomes[2].shadow = true;
    a.outcomes = 3;
    a.headers = WEIR_HEADERS_DRAFT;
    HEADERS(a, outcomes,
            "RateLimit-Policy: \"burst\";q=100;w=60,\"daily \\\"x\\\" ??\";q=1000;w=86400\nRateLimit: "
            "\"burst\";r=50;t=30\n");
}

/* The caller may have had room for only a few of many rules: the one that RateLimit names is listed nevertheless,
 * once. */
TEST(deciding_rule_is_listed)
{
    weir_result a = result_of(WEIR_ALLOW);
    weir_outcome outcomes[2] = {a.decided_by, a.decided_by};
    strcpy(outcomes[0].rule, "daily");
    outcomes[1].shadow = true;
    a.outcomes = 2;
    a.headers = WEIR_HEADERS_DRAFT;
    a.matched = 3;
    HEADERS(a, outcomes,
            "RateLimit-Policy: \"daily\";q=100;w=60,\"burst\";q=100;w=60\nRateLimit: \"burst\";r=50;t=30\n");
    outcomes[1].shadow = false;
    HEADERS(a, outcomes,
            "RateLimit-Policy: \"daily\";q=100;w=60,\"burst\";q=100;w=60\nRateLimit: \"burst\";r=50;t=30\n");
}

static void keep_policy(void *context, enum weir_header header, const char *value, size_t len)
{
    if (header == WEIR_HEADER_POLICY)
        memcpy(context, value, len + 1);
}

/* More policies than fit into a header line: as many as fit, each complete. */
TEST(no_policy_is_cut)
{
    enum { MANY = 40 };
    weir_result a = result_of(WEIR_ALLOW);
    weir_outcome outcomes[MANY];
    a.outcomes = MANY;
    a.headers = WEIR_HEADERS_DRAFT;
    for (int i = 0; i < MANY; i++) {
        outcomes[i] = a.decided_by;
        memset(outcomes[i].rule, '"', WEIR_NAME_MAX); /* each is escaped as two */
        outcomes[i].rule[WEIR_NAME_MAX] = 0;
    }
    memset(a.decided_by.rule, '\\', WEIR_NAME_MAX);
    a.decided_by.rule[WEIR_NAME_MAX] = 0;
    for (int first = WEIR_NAME_MAX; first > 0; first--) { /* so that every policy is the last one once */
        char text[4096] = "";
        outcomes[0].rule[first] = 0;
        weir_result_headers(&a, outcomes, keep_policy, text);
        CHECK(strlen(text) > 1000 && strcmp(text + strlen(text) - 11, ";q=100;w=60") == 0);
        CHECK(strlen(text) <= 2048 && strstr(text, "\\\\\\\\"));
    }
}

TEST(no_headers_without_a_rule)
{
    weir_result a = {.decided_by.reason = WEIR_BY_NOTHING, .headers = 7};
    HEADERS(a, NULL, "");
}

TEST(numbers_of_every_length)
{
    weir_result a = result_of(WEIR_ALLOW);
    a.headers = WEIR_HEADERS_DRAFT;
    for (int64_t n = 1; n > 0 && n < INT64_MAX / 11; n = n * 11 / (n % 7 ? 3 : 1)) {
        char expected[200];
        a.decided_by.decision.limit = a.decided_by.decision.remaining = n;
        snprintf(expected, sizeof expected,
                 "RateLimit-Policy: \"burst\";q=%" PRId64 ";w=60\nRateLimit: \"burst\";r=%" PRId64 ";t=30\n", n, n);
        HEADERS(a, NULL, expected);
    }
    CHECK(weir_header_name((enum weir_header)99) == NULL);
}

TEST(numbers_around_powers_of_ten)
{
    weir_result a = result_of(WEIR_ALLOW);
    a.headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_RESET_DELTA;
    a.decision.reset_after_ns = 0;
    for (int64_t power = 1; power > 0 && power <= INT64_MAX / 10; power *= 10) {
        for (int64_t by = -1; by <= 1; by++) {
            char expected[200];
            a.decision.limit = power + by;
            a.decision.remaining = -power;
            snprintf(expected, sizeof expected,
                     "X-RateLimit-Limit: %" PRId64 "\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0\n", power + by);
            HEADERS(a, NULL, expected);
        }
    }
    a.decision.limit = a.decision.remaining = INT64_MAX;
    HEADERS(a, NULL,
            "X-RateLimit-Limit: 9223372036854775807\nX-RateLimit-Remaining: 9223372036854775807\n"
            "X-RateLimit-Reset: 0\n");
}

static void join(void *context, enum weir_header header, const char *value, size_t len)
{
    struct seen *seen = context;
    size_t used = strlen(seen->text);
    (void)len;
    snprintf(seen->text + used, sizeof seen->text - used, "%d=%s;", (int)header, value);
}

/* Both writers produce the same for any result; and the longest fits. */
TEST(header_values_agree_with_the_formatting_calls)
{
    for (unsigned bits = 0; bits < 64; bits++) {
        weir_result a = result_of(bits & 16 ? WEIR_DENY : WEIR_ALLOW);
        char *values = malloc(WEIR_HEADER_ROOM);
        uint16_t lens[WEIR_HEADER_COUNT];
        struct seen called = {""}, written = {""};
        size_t total = 0;
        a.headers = bits & 15;
        if (bits & 32) {
            memset(a.decided_by.rule, '\\', WEIR_NAME_MAX);
            a.decision.limit = a.decision.remaining = a.decision.reset_after_ns = INT64_MAX;
            a.decision.retry_after_ns = a.decided_by.policy_window_ns = INT64_MAX;
            a.decided_by.decision = a.decision;
            a.decided_by.unit = WEIR_UNIT_CONCURRENT_REQUESTS;
            a.now.wall_ns = 0;
        }
        size_t len = weir_result_header_values(&a, NULL, values, lens);
        weir_result_headers(&a, NULL, join, &called);
        for (int i = 0; i < WEIR_HEADER_COUNT; i++) {
            char value[WEIR_HEADER_ROOM + 1];
            memcpy(value, values + total, lens[i]);
            value[lens[i]] = 0;
            if (lens[i])
                join(&written, (enum weir_header)i, value, lens[i]);
            total += lens[i];
        }
        CHECK_EQ(total, len);
        CHECK(strcmp(called.text, written.text) == 0);
        free(values);
    }
}

TEST(bodies)
{
    char body[2048];
    const char *type;
    weir_result a = result_of(WEIR_DENY);
    a.decision.retry_after_ns = 30 * WEIR_SECOND;
    size_t len = weir_result_body(&a, false, body, sizeof body, &type);
    CHECK_EQ(len, strlen(body));
    CHECK(strcmp(type, "application/json") == 0);
    CHECK(strcmp(body,
                 "{\"error\":\"rate_limit_exceeded\",\"message\":\"Too many requests. Please retry after 30 seconds.\","
                 "\"rule\":\"burst\",\"limit\":100,\"remaining\":0,\"retry_after\":30}\n") == 0);
    weir_result_body(&a, true, body, sizeof body, &type);
    CHECK(strcmp(type, "application/problem+json") == 0);
    CHECK(strstr(body, "http-problem-types#quota-exceeded") && strstr(body, "\"violated-policies\":[\"burst\"]") &&
          strstr(body, "\"status\":429"));
    a.body = WEIR_BODY_JSON;
    a.message = (weir_text){"say \"when\"\n", 11};
    weir_result_body(&a, true, body, sizeof body, &type);
    CHECK(strstr(body, "\"message\":\"say \\\"when\\\"\\u000a\""));
    a.body = WEIR_BODY_NONE;
    CHECK_EQ(weir_result_body(&a, true, body, sizeof body, &type), 0);
    a.body = WEIR_BODY_TEXT;
    a.body_text = (weir_text){"no", 2};
    CHECK_EQ(weir_result_body(&a, true, body, sizeof body, &type), 2);
    CHECK(strcmp(type, "text/plain; charset=utf-8") == 0);
}

TEST(message_depends_on_the_reason)
{
    static const struct {
        enum weir_reason reason;
        const char *message;
    } cases[] = {{WEIR_BY_LIMIT, "Too many requests. Please retry after 1 second."},
                 {WEIR_BY_MISSING_KEY, "The request lacks a header or something else that is needed here."},
                 {WEIR_BY_BAN, "Requests of this kind are not allowed."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[2048];
        const char *type;
        weir_result a = result_of(WEIR_DENY);
        a.decided_by.reason = cases[i].reason;
        if (cases[i].reason != WEIR_BY_LIMIT) /* waiting does not help */
            a.decision.retry_after_ns = a.decided_by.decision.retry_after_ns = -1;
        weir_result_body(&a, false, body, sizeof body, &type);
        CHECK(strstr(body, cases[i].message) != NULL);
        a.message = (weir_text){"ours", 4};
        weir_result_body(&a, false, body, sizeof body, &type);
        CHECK(strstr(body, "\"message\":\"ours\"") != NULL);
    }
}

TEST(short_buffer_is_not_overrun)
{
    weir_result a = result_of(WEIR_DENY);
    const char *type;
    for (size_t size = 0; size < 200; size++) {
        char *body = malloc(size + 1);
        body[size] = 'x';
        size_t len = weir_result_body(&a, size & 1, body, size, &type);
        CHECK(len <= size);
        CHECK_EQ(body[size], 'x');
        free(body);
    }
}

TEST_MAIN
