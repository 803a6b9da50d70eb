/* What a denied client gets depends on the reason: status, message, body and headers of each. */
#include "../../engine.h"
#include "../../private_dir.h"

#define TOP                                                                                                            \
    "identity: { api_key: 'header:X-API-Key', tenant: 'cookie:tenant', user_id: 'header:Authorization' }\n"            \
    "block: { networks: [198.51.100.0/24] }\n"
#define MISSING(name, key, rest)                                                                                       \
    "  - { name: " name ", match: { path: /" name " }, key: '" key                                                     \
    "', limit: 5, window: 1m, on_missing_key: deny" rest " }\n"

struct denied_response {
    weir_result result;
    char headers[1024], body[1024];
};

static void see(void *context, enum weir_header header, const char *value, size_t len)
{
    struct denied_response *to = context;
    size_t used = strlen(to->headers);
    (void)len;
    snprintf(to->headers + used, sizeof to->headers - used, "%s: %s\n", weir_header_name(header), value);
}

static void check_denied(weir *w, const char *line, bool problem, struct denied_response *to)
{
    struct test_request r;
    char text[4096];
    const char *type;
    test_request(&r, line);
    r.query.now = test_seconds(0);
    r.query.text = text;
    r.query.text_size = sizeof text;
    memset(to, 0, sizeof *to);
    CHECK_EQ(weir_check(w, &r.query, &to->result), 0);
    CHECK(!weir_passes(&to->result.decision));
    weir_result_headers(&to->result, NULL, see, to);
    weir_result_body(&to->result, problem, to->body, sizeof to->body, &type);
}

#define RESPONSE(w, line, status_, headers_, body_)                                                                    \
    do {                                                                                                               \
        struct denied_response response_;                                                                              \
        check_denied((w), (line), false, &response_);                                                                  \
        CHECK_EQ(response_.result.status, (status_));                                                                  \
        CHECK(strcmp(response_.headers, (headers_)) == 0 && strcmp(response_.body, (body_)) == 0);                     \
        if (strcmp(response_.headers, (headers_)) != 0 || strcmp(response_.body, (body_)) != 0)                        \
            printf("  %s: %s%s", (line), response_.headers, response_.body);                                           \
    } while (0)
#define ONLY "Cache-Control: no-store\n"

TEST(blocked_clients_get_403_without_headers_of_a_limit)
{
    weir *w = test_engine(TOP "response: { status: 420, message: slow down, body: { text: slower } }\n"
                              "rules:\n"
                              "  - { name: api, match: { path: /api }, key: 'ip:${client_ip}', limit: 10, window: 1m,\n"
                              "      block: { keys: ['ip:192.0.2.66'] } }\n"
                              "  - { name: none, match: { path: /none }, limit: 0 }\n"
                              "  - { name: gone, match: { path: /gone }, limit: 0, response: { status: 410, message: "
                              "It is gone., body: json } }\n");
    struct denied_response got;
    RESPONSE(w, "GET /api ip=192.0.2.66", 403, ONLY,
             "{\"error\":\"blocked\",\"message\":\"Access is blocked.\",\"rule\":\"api\"}\n");
    RESPONSE(w, "GET /api ip=198.51.100.1", 403, ONLY, "{\"error\":\"blocked\",\"message\":\"Access is blocked.\"}\n");
    CHECK_EQ(weir_key_block(w, "api", "ip:192.0.2.7", 12, 90 * WEIR_SECOND + 1, test_seconds(0)), 0);
    RESPONSE(w, "GET /api ip=192.0.2.7", 403, "Retry-After: 91\n" ONLY,
             "{\"error\":\"blocked\",\"message\":\"Access is blocked until 2024-10-04T00:01:31Z.\",\"rule\":\"api\","
             "\"until\":\"2024-10-04T00:01:31Z\",\"retry_after\":91}\n");
    check_denied(w, "GET /api ip=192.0.2.7", true, &got);
    got.result.body = WEIR_BODY_PROBLEM;
    const char *type;
    weir_result_body(&got.result, true, got.body, sizeof got.body, &type);
    CHECK(strcmp(got.body, "{\"type\":\"urn:problem-type:weir:blocked\",\"title\":\"Blocked\",\"status\":403,"
                           "\"detail\":\"Access is blocked until 2024-10-04T00:01:31Z.\","
                           "\"until\":\"2024-10-04T00:01:31Z\"}\n") == 0);
    CHECK(strcmp(weir_outcome_reason(&got.result.decided_by), "blocked") == 0);
    /* The status and texts of a rule with a limit of 0 are its own, those of other rules are not for it. */
    check_denied(w, "GET /none", false, &got);
    CHECK_EQ(got.result.status, 403);
    CHECK(strstr(got.body, "\"error\":\"blocked\",\"message\":\"Requests of this kind are not allowed.\""));
    check_denied(w, "GET /gone", false, &got);
    CHECK_EQ(got.result.status, 410);
    CHECK(strstr(got.body, "\"message\":\"It is gone.\""));
    CHECK(strcmp(weir_outcome_reason(&got.result.decided_by), "ban") == 0);
    weir_close(w);
}

TEST(a_missing_attribute_is_named)
{
    static const struct {
        const char *path, *missing, *challenge;
        int status;
    } cases[] = {
        {"/key", "header x-api-key", "Key", 401},
        {"/user", "header authorization", "Bearer", 401},
        {"/raw", "header x-api-key", "Key", 401},
        {"/tenant", "cookie tenant", NULL, 400},
        {"/second", "argument b", NULL, 400},
        {"/app", "attribute job", NULL, 400},
        {"/part", "path segment 2", NULL, 400},
        {"/address", "client address", NULL, 400},
        {"/chosen", "header x-api-key", NULL, 422},
        {"/plan @x-plan=gold", "header x-plan with a known value", NULL, 400},
        {"/plan", "header x-plan", NULL, 400},
    };
    weir *w = test_engine(
        TOP "rules:\n" MISSING("key", "k:${api_key}", "") MISSING("user", "${user_id}",
                                                                  "") MISSING("raw", "${header:X-API-Key}", "")
            MISSING("tenant", "${tenant}", "") MISSING("second", "${path}:${query:b}", "") MISSING("app", "${job}", "")
                MISSING("part", "${path:2}", "") MISSING("address", "${client_ip}", "") MISSING(
                    "chosen", "${api_key}",
                    ", response: { missing: { status: 422, message: Ask us. } }") "  - { name: plan, match: { path: "
                                                                                  "/plan }, limit: { free: 1 }, tier: "
                                                                                  "'header:X-Plan', window: 1m,\n"
                                                                                  "      on_missing_key: deny }\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct denied_response got;
        char line[128], wanted[256];
        snprintf(line, sizeof line, "GET %s%s", cases[i].path, strncmp(cases[i].path, "/s", 2) == 0 ? "?a=1" : "");
        check_denied(w, line, false, &got);
        CHECK_EQ(got.result.status, cases[i].status);
        CHECK(strcmp(got.result.missing, cases[i].missing) == 0);
        CHECK(strcmp(got.headers, ONLY) == 0);
        snprintf(wanted, sizeof wanted, "{\"error\":\"missing_attribute\",\"message\":\"The request lacks the %s.\"",
                 cases[i].missing);
        CHECK(strncmp(got.body, wanted, strlen(wanted)) == 0 || cases[i].status == 422);
        const char *challenge = weir_result_challenge(&got.result);
        CHECK((!challenge && !cases[i].challenge) ||
              (challenge && cases[i].challenge && strcmp(challenge, cases[i].challenge) == 0));
    }
    struct denied_response got;
    check_denied(w, "GET /chosen", false, &got);
    CHECK(strstr(got.body, "\"message\":\"Ask us.\",\"rule\":\"chosen\",\"missing\":\"header x-api-key\""));
    check_denied(w, "GET /key", true, &got);
    CHECK(strcmp(got.body, "{\"type\":\"urn:problem-type:weir:missing-attribute\",\"title\":\"Missing attribute\","
                           "\"status\":401,\"detail\":\"The request lacks the header x-api-key.\","
                           "\"missing\":\"header x-api-key\"}\n") == 0);
    weir_close(w);
}

/* A key that the file of plans does not have is not missing, but unknown. */
TEST(an_unknown_key_is_named)
{
    char rules[1024], path[64];
    private_path(path, sizeof path, "plans.csv");
    FILE *file = fopen(path, "w");
    fputs("k-1,acme\n", file);
    fclose(file);
    snprintf(rules, sizeof rules,
             "identity: { api_key: 'header:X-API-Key', owner: { from: api_key, file: %s } }\n"
             "rules:\n" MISSING("owner", "${owner}", ""),
             path);
    weir *w = test_engine(rules);
    struct denied_response got;
    CHECK(test_passes(w, "GET /owner @x-api-key=k-1", 0));
    check_denied(w, "GET /owner @x-api-key=k-2", false, &got);
    CHECK(strcmp(got.result.missing, "header x-api-key with a known value") == 0);
    CHECK_EQ(got.result.status, 401);
    check_denied(w, "GET /owner", false, &got);
    CHECK(strcmp(got.result.missing, "header x-api-key") == 0);
    weir_close(w);
}

TEST(a_failed_counter_is_503)
{
    weir_result a = {.decision = {.verdict = WEIR_DENY, .retry_after_ns = -1},
                     .decided_by = {.reason = WEIR_BY_FAILURE, .rule = "api"},
                     .status = 503};
    char body[512];
    const char *type;
    a.decided_by.decision = a.decision;
    weir_result_body(&a, false, body, sizeof body, &type);
    CHECK(strcmp(body,
                 "{\"error\":\"unavailable\",\"message\":\"The limit of this request cannot be checked now. Please "
                 "retry later.\",\"rule\":\"api\"}\n") == 0);
    weir_result_body(&a, true, body, sizeof body, &type);
    CHECK(strstr(body, "#temporary-reduced-capacity") && !strstr(body, "violated"));
}

TEST_MAIN
