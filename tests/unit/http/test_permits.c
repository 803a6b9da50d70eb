/* Concurrency limits over the API: a lease in the response, and its release. */
#include "api.h"

static const char rules[] = "rules:\n"
                            "  - { name: slow, match: { path: /slow }, algorithm: concurrency, limit: 2, lease: 20s }\n"
                            "  - { name: rate, match: { path: /slow }, limit: 100, window: 1h }\n";

#define CHECK_BODY "{\"attributes\":{\"path\":\"/slow\"}}"

/* The lease in the last response, as a body for release or renew; "" if there is none. */
static const char *body_of(const struct test_api *t, char *body, size_t size)
{
    static const char name[] = "\"lease\":\"";
    const char *at = strstr(t->response, name);
    body[0] = 0;
    if (at)
        snprintf(body, size, "{\"lease\":\"%.*s\"}", (int)strcspn(at + sizeof name - 1, "\""), at + sizeof name - 1);
    return body;
}

TEST(permit_is_acquired_and_released)
{
    struct test_api *t = test_api_open(rules);
    char first[1024], second[1024], none[1024];
    test_post(t, "check", CHECK_BODY);
    BODY_HAS(t, "\"lease_s\":20");
    CHECK(*body_of(t, first, sizeof first));
    test_post(t, "check", CHECK_BODY);
    CHECK(*body_of(t, second, sizeof second));
    test_post(t, "check", CHECK_BODY);
    BODY_HAS(t, "\"decision\":\"deny\"");
    BODY_HAS(t, "\"reset_s\":null,\"retry_after_s\":1,");
    CHECK(!*body_of(t, none, sizeof none));
    test_post(t, "check", "{\"attributes\":{\"path\":\"/other\"}}");
    CHECK(!*body_of(t, none, sizeof none));

    test_post(t, "renew", first);
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "{\"renewed\":true,\"lease\":\"");
    char renewed[1024];
    body_of(t, renewed, sizeof renewed);
    test_post(t, "release", renewed);
    CHECK(strcmp(t->response, "{\"released\":true}\n") == 0);
    test_post(t, "release", renewed);
    CHECK(strcmp(t->response, "{\"released\":false}\n") == 0);
    test_post(t, "renew", renewed);
    CHECK_EQ(t->status, 410);
    test_post(t, "release", second);
    BODY_HAS(t, "true");
    test_call(t, WEIR__GET, "keys/slow/*", "");
    CHECK_EQ(test_number(t, "remaining"), 2);
    test_api_close(t);
}

TEST(batches_and_reservations)
{
    struct test_api *t = test_api_open(rules);
    char body[1024];
    test_post(t, "check", "{\"batch\":[" CHECK_BODY ",{\"key\":\"k\",\"limit\":2,\"window\":\"1h\"}]}");
    const char *lease = strstr(t->response, "\"lease\":");
    CHECK(lease && !strstr(lease + 1, "\"lease\":")); /* only the first item's */
    test_post(t, "release", body_of(t, body, sizeof body));
    BODY_HAS(t, "true");
    test_post(t, "reserve", "{\"attributes\":{\"path\":\"/slow\"},\"cost\":5}");
    CHECK(*body_of(t, body, sizeof body));
    test_post(t, "release", body);
    BODY_HAS(t, "true");
    test_post(t, "check", "{\"attributes\":{\"path\":\"/slow\"},\"dry_run\":true}");
    CHECK(!*body_of(t, body, sizeof body));
    CHECK_EQ(test_number(t, "remaining"), 1);
    test_api_close(t);
}

TEST(invalid_leases_are_refused)
{
    struct test_api *t = test_api_open(rules);
    static const char *const bad[] = {"{\"lease\":\"\"}", "{\"lease\":\"AAAA\"}", "{\"lease\":\"a b\"}",
                                      "{\"lease\":\"AQFB-_\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_post(t, i % 2 ? "renew" : "release", bad[i]);
        CHECK_EQ(t->status, 400);
        BODY_HAS(t, "\"code\":\"bad_lease\"");
    }
    test_post(t, "release", "{}");
    CHECK_EQ(t->status, 400);
    BODY_HAS(t, "lease");
    test_post(t, "release", "{\"lease\":3}");
    CHECK_EQ(t->status, 400);
    test_post(t, "release", "{\"lease\":\"x\",\"more\":1}");
    CHECK_EQ(t->status, 400);
    test_post(t, "release", "[");
    CHECK_EQ(t->status, 400);
    test_call(t, WEIR__GET, "release", "");
    CHECK_EQ(t->status, 405);
    test_api_close(t);
}

TEST_MAIN
