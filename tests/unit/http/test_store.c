/* Calls that must ask the store first: what they ask, that nothing is done before, and what they do with its answers.
 */
#include "api.h"

#include "engine/store_request.h"

static const char rules[] =
    "rules:\n"
    "  - { name: far, match: { path: /llm }, key: \"${user_id}\", limit: 1000, window: 1d, consistency: strict }\n"
    "  - { name: near, match: { path: /llm }, key: \"${user_id}\", limit: 5000, window: 1d }\n";

#define ITEM(cost) "{\"attributes\":{\"path\":\"/llm\",\"user_id\":\"1\"},\"cost\":" #cost "}"

static struct test_api *open_with_store(void)
{
    struct test_api *t = calloc(1, sizeof *t);
    weir_options options = {
        .segment = {.size = 1 << 20}, .rules_text = rules, .store = "redis://x", .flags = WEIR_NO_CONNECT};
    CHECK_EQ(weir_open(&options, &t->engine), 0);
    own_path(t->path, sizeof t->path, "reservations");
    unlink(t->path);
    CHECK_EQ(test_reservations_open(t->path, TEST_RESERVATIONS, &t->reservations), 0);
    CHECK_EQ(weir__api_open(&t->api, t->engine, t->reservations), 0);
    CHECK_EQ(weir_async_new(t->engine, &t->api.async), 0);
    return t;
}

static void close_with_store(struct test_api *t)
{
    weir_async_free(t->api.async);
    test_api_close(t);
}

/* What the store is asked by a call that has not been store_replied. */
static const struct weir__store_request *asked(struct test_api *t, enum weir__api_method method, const char *path,
                                               const char *body)
{
    weir_async_clear(t->api.async);
    t->api.store_replied = false;
    test_call(t, method, path, body);
    return weir_async_request(t->api.async);
}

/* The store lets pass whatever it is asked, and has so much left; then the call again. */
static void answer(struct test_api *t, int error, enum weir__api_method method, const char *path, const char *body)
{
    struct weir__store_request *request = weir_async_request(t->api.async);
    request->error = error;
    for (uint32_t i = 0; i < request->op_count; i++) {
        struct weir__store_op *ask = &request->ops[i];
        ask->decision = (weir_decision){.verdict = WEIR_ALLOW, .limit = 1000, .remaining = 77};
        ask->taken = ask->kind == WEIR__OP_TAKE;
    }
    t->api.store_replied = true;
    test_call(t, method, path, body);
}

TEST(check)
{
    struct test_api *t = open_with_store();
    const struct weir__store_request *request = asked(t, WEIR__POST, "check", ITEM(3));
    CHECK_EQ(request->op_count, 1);
    CHECK_EQ(request->ops[0].cost, 3);
    CHECK_EQ(request->ops[0].kind, WEIR__OP_TAKE);
    CHECK_EQ(strlen(t->said), 0);
    answer(t, 0, WEIR__POST, "check", ITEM(3));
    SAYS(t, "\"remaining\":77");
    CHECK(weir_async_rollback(t->api.async) == NULL);
    close_with_store(t);
}

TEST(batch_asks_once)
{
    struct test_api *t = open_with_store();
    const char *body = "{\"batch\":[" ITEM(3) "," ITEM(4) ",{\"key\":\"k\",\"limit\":5,\"window\":\"1h\"}]}";
    const struct weir__store_request *request = asked(t, WEIR__POST, "check", body);
    CHECK_EQ(request->op_count, 2);
    CHECK_EQ(request->group_count, 2);
    answer(t, 0, WEIR__POST, "check", body);
    SAYS(t, "\"remaining\":77");
    SAYS(t, "\"remaining\":4");
    close_with_store(t);
}

/* The host's own counter stands in, and the log is told. */
TEST(no_answer)
{
    struct test_api *t = open_with_store();
    (void)asked(t, WEIR__POST, "check", ITEM(3));
    answer(t, WEIR_ESTORESLOW, WEIR__POST, "check", ITEM(3));
    SAYS(t, "\"remaining\":997");
    close_with_store(t);
}

TEST(what_is_wrong_asks_nothing)
{
    struct test_api *t = open_with_store();
    CHECK_EQ(asked(t, WEIR__POST, "check", "{\"attributes\":{\"path\":\"/llm\"},\"cost\":\"x\"}")->op_count, 0);
    CHECK_EQ(t->status, 400);
    CHECK_EQ(asked(t, WEIR__GET, "keys/none/1", "")->op_count, 0);
    CHECK_EQ(t->status, 404);
    CHECK_EQ(asked(t, WEIR__POST, "commit", "{\"reservation\":\"x\",\"cost\":1}")->op_count, 0);
    CHECK_EQ(t->status, 400);
    close_with_store(t);
}

TEST(settled_twice_asks_once)
{
    struct test_api *t = open_with_store();
    char token[1500] = "", body[1600];
    CHECK_EQ(asked(t, WEIR__POST, "reserve", ITEM(400))->op_count, 2); /* a look, and the take */
    answer(t, 0, WEIR__POST, "reserve", ITEM(400));
    const char *at = strstr(t->said, "\"reservation\":\"");
    CHECK(at != NULL);
    if (at)
        sscanf(at + 15, "%1399[^\"]", token);
    snprintf(body, sizeof body, "{\"reservation\":\"%s\",\"cost\":100}", token);
    const struct weir__store_request *request = asked(t, WEIR__POST, "commit", body);
    CHECK_EQ(request->op_count, 1);
    CHECK_EQ(request->ops[0].kind, WEIR__OP_REFUND);
    CHECK_EQ(request->ops[0].cost, 300);
    /* Another who settles the same while the store is being asked. */
    weir_async *first = t->api.async;
    CHECK_EQ(weir_async_new(t->engine, &t->api.async), 0);
    CHECK_EQ(asked(t, WEIR__POST, "commit", body)->op_count, 0);
    CHECK_EQ(t->status, 409);
    weir_async_free(t->api.async);
    t->api.async = first;
    answer(t, 0, WEIR__POST, "commit", body);
    CHECK_EQ(t->status, 200);
    SAYS(t, "\"settled\":true");
    SAYS(t, "\"remaining\":77");
    SAYS(t, "\"remaining\":4900");
    close_with_store(t);
}

TEST(operators)
{
    struct test_api *t = open_with_store();
    CHECK(asked(t, WEIR__GET, "keys/far/1", "")->op_count > 0);
    answer(t, 0, WEIR__GET, "keys/far/1", "");
    SAYS(t, "\"remaining\":77");
    CHECK(asked(t, WEIR__GET, "keys/far/1", "")->op_count > 0);
    answer(t, WEIR_ESTOREDOWN, WEIR__GET, "keys/far/1", "");
    CHECK_EQ(t->status, 503);
    CHECK_EQ(asked(t, WEIR__DELETE, "keys/far/1", "")->op_count, 1);
    answer(t, 0, WEIR__DELETE, "keys/far/1", "");
    CHECK_EQ(t->status, 200);
    CHECK_EQ(asked(t, WEIR__GET, "keys/near/1", "")->op_count, 0);
    CHECK_EQ(t->status, 200);
    close_with_store(t);
}

TEST_MAIN
