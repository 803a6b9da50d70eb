/* Check, refund, batches and keys: JSON in, JSON out. */
#include "base/json_writer.h"
#include "api.h"

static const char rules[] =
    "identity: { user_id: header:X-User }\n"
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"user:${user_id}\", limit: 5, window: 1h }\n"
    "  - { name: api-all, match: { path: /api/* }, limit: 100, window: 1h }\n"
    "  - { name: odd/name, match: { path: /odd }, key: \"${user_id}\", limit: 2, window: 1h }\n"
    "  - { name: closed, match: { path: /closed }, limit: 0, window: 1h }\n"
    "  - { name: by-ip, match: { path: /ip, method: POST, host: a.example }, key: "
    "\"${client_ip}\", limit: 2, window: 1h }\n";

static const char descriptor_rules[] = "domain: d\n"
                                       "descriptors:\n"
                                       "  - { key: k, rate_limit: { unit: hour, requests_per_unit: 2 } }\n";

TEST(rules_decide_by_attributes)
{
    struct test_api *t = test_api_open(rules);
    for (int i = 4; i >= 0; i--) {
        test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":\"7\"}}");
        CHECK_EQ(t->status, 200);
        BODY_HAS(t, "{\"decision\":\"allow\",\"allowed\":true,\"reason\":\"limit\",\"rule\":\"api\",\"key\":\"user:7\","
                    "\"limit\":5");
        CHECK_EQ(test_number(t, "remaining"), i);
    }
    test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":7}}");
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "{\"decision\":\"deny\",\"allowed\":false,\"reason\":\"limit\",\"rule\":\"api\",\"key\":\"user:7\"");
    BODY_HAS(t, "\"rule\":\"api-all\"");
    test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":\"7\"},\"http\":true}");
    CHECK_EQ(t->status, 429);
    test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"headers\":{\"x-USER\":\"8\"}},\"cost\":3}");
    CHECK_EQ(test_number(t, "remaining"), 2);
    test_post(t, "check",
              "{\"attributes\":{\"target\":\"/a/../api/%78?q\",\"headers\":{\"x-user\":\"8\"}},\"dry_run\":true}");
    CHECK_EQ(test_number(t, "remaining"), 1);
    test_post(t, "check", "{\"attributes\":{\"path\":\"/elsewhere\"}}");
    BODY_HAS(t, "\"reason\":\"no_rule\",\"rule\":null,\"key\":null,\"limit\":null,\"remaining\":null,\"reset_s\":null,"
                "\"retry_after_s\":null,\"delay_s\":0,\"rules\":[]}\n");
    test_post(t, "check", "{\"attributes\":{\"path\":\"/closed\"},\"http\":true}");
    BODY_HAS(t, "\"reason\":\"ban\"");
    CHECK_EQ(t->status, 403);
    test_api_close(t);
}

TEST(every_attribute_reaches_the_engine)
{
    struct test_api *t = test_api_open(rules);
    test_post(t, "check",
              "{\"attributes\":{\"path\":\"/ip\",\"method\":\"POST\",\"host\":\"a.example:80\",\"ip\":\"192.0.2.7\"}}");
    BODY_HAS(t, "\"rule\":\"by-ip\",\"key\":\"192.0.2.7\"");
    test_post(t, "check",
              "{\"attributes\":{\"path\":\"/ip\",\"method\":\"POST\",\"host\":\"a.example\",\"ip\":\"2001:db8::7\"}}");
    BODY_HAS(t, "\"rule\":\"by-ip\",\"key\":\"2001:db8::/64\"");
    test_post(t, "check",
              "{\"attributes\":{\"path\":\"/ip\",\"method\":\"GET\",\"host\":\"a.example\",\"ip\":\"192.0.2.7\"}}");
    BODY_HAS(t, "no_rule");
    test_api_close(t);
}

TEST(descriptors)
{
    struct test_api *t = test_api_open(descriptor_rules);
    const char *one = "{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\",\"value\":\"v\"}],[{\"key\":\"other\"}]]}";
    test_post(t, "check", one);
    CHECK_EQ(test_number(t, "remaining"), 1);
    BODY_HAS(t, "\"reason\":\"no_rule\"");
    test_post(t, "check", "{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\",\"value\":\"v\"}]],\"hits\":0}");
    CHECK_EQ(test_number(t, "remaining"), 1);
    test_post(t, "check", "{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\",\"value\":\"v\"}]],\"hits\":2}");
    BODY_HAS(t, "\"decision\":\"deny\"");
    test_post(t, "refund", "{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\",\"value\":\"v\"}]]}");
    CHECK_EQ(test_number(t, "remaining"), 2);
    test_api_close(t);
}

TEST(key_and_limit)
{
    struct test_api *t = test_api_open(rules);
    const char *one = "{\"key\":\"k\",\"limit\":2,\"window\":\"1h\"}";
    test_post(t, "check", one);
    test_post(t, "check", one);
    CHECK_EQ(test_number(t, "remaining"), 0);
    test_post(t, "check", one);
    BODY_HAS(t, "\"decision\":\"deny\",\"allowed\":false,\"reason\":\"limit\",\"rule\":null,\"key\":\"k\"");
    /* Another limit over the same window uses the same counter; another window or algorithm uses another. */
    test_post(t, "check", "{\"key\":\"k\",\"limit\":1000,\"window\":3600,\"dry_run\":true}");
    CHECK_EQ(test_number(t, "remaining"), 997);
    test_post(t, "check", "{\"key\":\"k\",\"limit\":2,\"window\":\"30m\"}");
    CHECK_EQ(test_number(t, "remaining"), 1);
    test_post(t, "check", "{\"key\":\"k\",\"limit\":2,\"window\":\"1h\",\"algorithm\":\"sliding_window_log\"}");
    CHECK_EQ(test_number(t, "remaining"), 1);
    test_post(t, "check", "{\"key\":\"k\",\"limit\":2,\"window\":\"1h\",\"burst\":5,\"cost\":6}");
    BODY_HAS(t, "\"reason\":\"never_fits\"");
    test_post(t, "refund", "{\"key\":\"k\",\"limit\":2,\"window\":\"1h\",\"cost\":2}");
    CHECK_EQ(test_number(t, "remaining"), 2);
    test_api_close(t);
}

TEST(batches_keep_their_order)
{
    struct test_api *t = test_api_open(rules);
    test_post(t, "check",
              "{\"batch\":[{\"key\":\"a\",\"limit\":1,\"window\":60},{\"key\":\"a\",\"limit\":1,\"window\":60},"
              "{\"attributes\":{\"path\":\"/api/"
              "x\",\"user_id\":\"1\"}},{\"key\":\"b\",\"limit\":1,\"window\":60,\"dry_run\":true},"
              "{\"key\":\"b\",\"limit\":1,\"window\":60}]}");
    CHECK_EQ(t->status, 200);
    json_t *root = json_loads(t->response, 0, NULL), *results = json_object_get(root, "results");
    const char *expected[] = {"allow", "deny", "allow", "allow", "allow"};
    CHECK_EQ(json_array_size(results), 5);
    for (size_t i = 0; i < 5; i++)
        CHECK(strcmp(json_string_value(json_object_get(json_array_get(results, i), "decision")), expected[i]) == 0);
    json_decref(root);

    /* One invalid item: the batch is refused and nothing is taken. */
    test_post(t, "check",
              "{\"batch\":[{\"key\":\"c\",\"limit\":1,\"window\":60},{\"key\":\"c\",\"limit\":1,\"window\":60,\"cost\":"
              "-1}]}");
    CHECK_EQ(t->status, 400);
    BODY_HAS(t, "\"field\":\"batch[1].cost\"");
    test_post(t, "check", "{\"key\":\"c\",\"limit\":1,\"window\":60}");
    BODY_HAS(t, "allow");
    test_api_close(t);
}

TEST(batch_is_limited_to_a_thousand_items)
{
    struct test_api *t = test_api_open(rules);
    static char body[200000];
    for (int count = 1000; count <= 1001; count++) {
        size_t len = (size_t)sprintf(body, "{\"batch\":[");
        for (int i = 0; i < count; i++)
            len += (size_t)sprintf(body + len, "%s{\"key\":\"k%d\",\"limit\":9,\"window\":60}", i ? "," : "", i % 100);
        sprintf(body + len, "]}");
        test_post(t, "check", body);
        CHECK_EQ(t->status, count == 1000 ? 200 : 400);
    }
    BODY_HAS(t, "\"field\":\"batch\"");
    test_post(t, "check", "{\"key\":\"k42\",\"limit\":9,\"window\":60,\"cost\":0}");
    CHECK_EQ(test_number(t, "remaining"), 0);
    test_api_close(t);
}

TEST(errors_name_their_field)
{
    static const char *const wrong[][2] = {
        {"", "\"field\":null"},
        {"[]", "\"field\":null"},
        {"{", "\"code\":\"bad_json\""},
        {"{\"key\":\"a\",\"key\":\"b\"}", "duplicate"},
        {"{\"key\":\"a\\u0000\"}", "\"code\":\"bad_json\""},
        {"{\"key\":\"\xff\"}", "\"code\":\"bad_json\""},
        {"{}", "\"field\":\"attributes\""},
        {"{\"batch\":[]}", "\"field\":\"batch\""},
        {"{\"batch\":[1]}", "\"field\":\"batch[0]\""},
        {"{\"batch\":[{\"batch\":[]}]}", "\"field\":\"batch[0].attributes\""},
        {"{\"batch\":[{\"attributes\":{},\"http\":true}]}", "\"field\":\"batch[0].http\""},
        {"{\"batch\":[{\"attributes\":{}}],\"cost\":1}", "\"field\":\"cost\""},
        {"{\"attributes\":1}", "\"field\":\"attributes\""},
        {"{\"attributes\":{\"ip\":\"1.2.3\"}}", "\"field\":\"attributes.ip\""},
        {"{\"attributes\":{\"ip\":7}}", "\"field\":\"attributes.ip\""},
        {"{\"attributes\":{\"path\":null}}", "\"field\":\"attributes.path\""},
        {"{\"attributes\":{\"headers\":{\"X-Key\":\"a\",\"x-key\":\"b\"}}}", "\"field\":\"attributes.headers.x-key\""},
        {"{\"attributes\":{\"headers\":{\"x-key\":\"a\",\"X-KEY\":\"a\"}}}", "is given twice"},
        {"{\"attributes\":{\"client_ip\":\"1.2.3.4\"}}", "\"field\":\"attributes.client_ip\""},
        {"{\"attributes\":{\"headers\":[]}}", "\"field\":\"attributes.headers\""},
        {"{\"attributes\":{\"headers\":{\"a\":[]}}}", "\"field\":\"attributes.headers.a\""},
        {"{\"attributes\":{},\"kost\":1}", "\"field\":\"kost\""},
        {"{\"attributes\":{},\"cost\":1.5}", "\"field\":\"cost\""},
        {"{\"attributes\":{},\"cost\":4294967296}", "\"field\":\"cost\""},
        {"{\"attributes\":{},\"cost\":99999999999999999999999}", "\"code\":\"bad_json\""},
        {"{\"attributes\":{},\"dry_run\":1}", "\"field\":\"dry_run\""},
        {"{\"key\":\"\",\"limit\":1,\"window\":1}", "\"field\":\"key\""},
        {"{\"key\":7,\"limit\":1,\"window\":1}", "\"field\":\"key\""},
        {"{\"key\":\"k\",\"window\":1}", "\"field\":\"limit\""},
        {"{\"key\":\"k\",\"limit\":1}", "\"field\":\"window\""},
        {"{\"key\":\"k\",\"limit\":0,\"window\":1}", "\"field\":\"limit\""},
        {"{\"key\":\"k\",\"limit\":1,\"window\":\"1x\"}", "\"field\":\"window\""},
        {"{\"key\":\"k\",\"limit\":1,\"window\":-1}", "\"field\":\"window\""},
        {"{\"key\":\"k\",\"limit\":1,\"window\":40000000}", "\"field\":\"window\""},
        {"{\"key\":\"k\",\"limit\":1,\"window\":1,\"algorithm\":\"x\"}", "\"field\":\"algorithm\""},
        {"{\"key\":\"k\",\"limit\":1,\"window\":1,\"algorithm\":\"fixed_window\",\"burst\":2}", "\"field\":\"burst\""},
        {"{\"domain\":\"\",\"descriptors\":[[{\"key\":\"k\"}]]}", "\"field\":\"domain\""},
        {"{\"domain\":\"d\"}", "\"field\":\"descriptors\""},
        {"{\"domain\":\"d\",\"descriptors\":[]}", "\"field\":\"descriptors\""},
        {"{\"domain\":\"d\",\"descriptors\":[[]]}", "\"field\":\"descriptors[0]\""},
        {"{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\"}],[{\"value\":\"k\"}]]}", "\"field\":\"descriptors[1]\""},
        {"{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\",\"x\":1}]]}", "\"field\":\"descriptors[0]\""},
        {"{\"domain\":\"d\",\"descriptors\":[[{\"key\":\"k\"}]],\"cost\":1}", "\"field\":\"cost\""},
    };
    struct test_api *t = test_api_open(rules);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        test_post(t, "check", wrong[i][0]);
        CHECK_EQ(t->status, 400);
        BODY_HAS(t, "{\"error\":{\"code\":\"bad_");
        BODY_HAS(t, wrong[i][1]);
    }
    test_post(t, "refund", "{\"attributes\":{},\"dry_run\":true}");
    BODY_HAS(t, "\"field\":\"dry_run\"");
    test_api_close(t);
}

TEST(depth_is_bounded)
{
    struct test_api *t = test_api_open(rules);
    static char deep[20001];
    for (size_t i = 0; i < 10000; i++) {
        deep[i] = '[';
        deep[10000 + i] = ']';
    }
    test_post(t, "check", deep);
    CHECK_EQ(t->status, 400);
    BODY_HAS(t, "depth");
    test_api_close(t);
}

TEST(operators_read_and_change_the_state_of_a_key)
{
    struct test_api *t = test_api_open(rules);
    for (int i = 0; i < 3; i++)
        test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":\"a/b c\"}}");
    test_call(t, WEIR__GET, "keys/api/user:a/b%20c", "");
    CHECK_EQ(t->status, 200);
    CHECK_EQ(test_number(t, "remaining"), 2);
    BODY_HAS(t, "\"key\":\"user:a/b c\"");
    test_call(t, WEIR__DELETE, "keys/api/user%3Aa%2fb%20c", "");
    BODY_HAS(t, "{\"rule\":\"api\",\"key\":\"user:a/b c\",\"reset\":true,\"hosts\":\"this\"}");
    test_call(t, WEIR__GET, "keys/api/user:a/b%20c", "");
    CHECK_EQ(test_number(t, "remaining"), 5);
    test_call(t, WEIR__PUT, "keys/api/user:7/block", "{\"for\":\"10m\"}");
    BODY_HAS(t, "{\"rule\":\"api\",\"key\":\"user:7\",\"blocked_for_s\":600,\"hosts\":\"this\"}");
    test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":\"7\"}}");
    BODY_HAS(t, "\"reason\":\"blocked\"");
    test_call(t, WEIR__DELETE, "keys/api/user:7/block", "");
    test_post(t, "check", "{\"attributes\":{\"path\":\"/api/x\",\"user_id\":\"7\"}}");
    BODY_HAS(t, "\"decision\":\"allow\"");
    /* A rule name with a slash, and a key that ends like an action. */
    test_call(t, WEIR__GET, "keys/odd%2Fname/x%2Fblock", "");
    BODY_HAS(t, "\"rule\":\"odd/name\",\"key\":\"x/block\"");
    test_call(t, WEIR__GET, "keys/none/x", "");
    CHECK_EQ(t->status, 404);
    BODY_HAS(t, "\"code\":\"no_rule\"");
    test_call(t, WEIR__PUT, "keys/closed/*/block", "{\"for\":10}");
    CHECK_EQ(t->status, 409);
    test_call(t, WEIR__PUT, "keys/api/user:7/block", "{}");
    CHECK_EQ(t->status, 400);
    BODY_HAS(t, "\"field\":\"for\"");
    test_call(t, WEIR__PUT, "keys/api/user:7/block", "{\"for\":\"401d\"}");
    BODY_HAS(t, "\"field\":\"for\"");
    test_api_close(t);
}

static struct weir__api_route route_of(enum weir__api_method method, const char *path)
{
    struct weir__api_route route;
    weir__api_find_route(method, (weir_text){path, strlen(path)}, &route);
    return route;
}

TEST(routes_by_path_and_method)
{
    static const char *const nowhere[] = {"",         "x",         "checks",     "check/",     "/check",
                                          "keys",     "keys/",     "keys/a",     "keys/a/",    "keys//a",
                                          "keys/a/%", "keys/a/%1", "keys/a/%zz", "keys/%00/a", "keys/a/block"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        if (strcmp(nowhere[i], "keys/a/block") != 0)
            CHECK_EQ(route_of(WEIR__GET, nowhere[i]).action, WEIR__API_NO_PATH);
    CHECK_EQ(route_of(WEIR__GET, "keys/a/block").action, WEIR__API_NO_PATH);
    CHECK_EQ(route_of(WEIR__GET, "check").action, WEIR__API_NO_METHOD);
    CHECK_EQ(route_of(WEIR__POST, "openapi.json").action, WEIR__API_NO_METHOD);
    CHECK_EQ(route_of(WEIR__POST, "keys/a/b").allowed, WEIR__GET | WEIR__DELETE);
    CHECK_EQ(route_of(WEIR__GET, "keys/a/b/block").allowed, WEIR__PUT | WEIR__DELETE);
    CHECK(route_of(WEIR__DELETE, "keys/a/b").operator_only);
    CHECK(route_of(WEIR__PUT, "keys/a/b/block").operator_only);
    CHECK(route_of(WEIR__DELETE, "keys/a/b/block").operator_only);
    CHECK(!route_of(WEIR__GET, "keys/a/b").operator_only && !route_of(WEIR__POST, "check").operator_only);
    CHECK_EQ(route_of(WEIR__GET, "keys/a/b%00c").key_len, 3);

    char longest[4000] = "keys/a/";
    memset(longest + 7, 'k', 1025);
    CHECK_EQ(route_of(WEIR__GET, longest).action, WEIR__API_NO_PATH);
    longest[7 + 1024] = 0;
    CHECK_EQ(route_of(WEIR__GET, longest).key_len, 1024);
}

TEST(openapi_is_served)
{
    struct test_api *t = test_api_open(rules);
    test_call(t, WEIR__GET, "openapi.json", "");
    json_t *root = json_loads(t->response, JSON_REJECT_DUPLICATES, NULL);
    CHECK(strcmp(json_string_value(json_object_get(root, "openapi")), "3.1.0") == 0);
    json_decref(root);
    test_api_close(t);
}

TEST_MAIN
