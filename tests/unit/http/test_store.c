/*
 * Calls that need the store first: the request they send, that nothing is done before the reply, and what they do with
 * it.
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
    private_path(t->path, sizeof t->path, "reservations");
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

/* The store request of a call whose reply has not come yet. */
static const struct weir__store_request *store_request_of(struct test_api *t, enum weir__api_method method,
                                                          const char *path, const char *body)
{
    weir_async_clear(t->api.async);
    t->api.store_replied = false;
    test_call(t, method, path, body);
    return weir_async_request(t->api.async);
}

/* Lets the store allow every op with 77 units remaining, and repeats the call with its reply. */
static void reply_and_repeat(struct test_api *t, int error, enum weir__api_method method, const char *path,
                             const char *body)
{
    struct weir__store_request *request = weir_async_request(t->api.async);
    request->error = error;
    for (uint32_t i = 0; i < request->op_count; i++) {
        struct weir__store_op *op = &request->ops[i];
        op->decision = (weir_decision){.verdict = WEIR_ALLOW, .limit = 1000, .remaining = 77};
        op->taken = op->kind == WEIR__OP_TAKE;
    }
    t->api.store_replied = true;
    test_call(t, method, path, body);
}

TEST(check_uses_the_reply_of_the_store)
{
    struct test_api *t = open_with_store();
    const struct weir__store_request *request = store_request_of(t, WEIR__POST, "check", ITEM(3));
    CHECK_EQ(request->op_count, 1);
    CHECK_EQ(request->ops[0].cost, 3);
    CHECK_EQ(request->ops[0].kind, WEIR__OP_TAKE);
    CHECK_EQ(strlen(t->response), 0);
    reply_and_repeat(t, 0, WEIR__POST, "check", ITEM(3));
    BODY_HAS(t, "\"remaining\":77");
    CHECK(weir_async_rollback(t->api.async) == NULL);
    close_with_store(t);
}

TEST(batch_sends_one_store_request)
{
    struct test_api *t = open_with_store();
    const char *body = "{\"batch\":[" ITEM(3) "," ITEM(4) ",{\"key\":\"k\",\"limit\":5,\"window\":\"1h\"}]}";
    const struct weir__store_request *request = store_request_of(t, WEIR__POST, "check", body);
    CHECK_EQ(request->op_count, 2);
    CHECK_EQ(request->group_count, 2);
    reply_and_repeat(t, 0, WEIR__POST, "check", body);
    BODY_HAS(t, "\"remaining\":77");
    BODY_HAS(t, "\"remaining\":4");
    close_with_store(t);
}

/* Without a reply the host's own counter decides, and the failure is logged. */
TEST(local_counter_decides_without_a_reply)
{
    struct test_api *t = open_with_store();
    (void)store_request_of(t, WEIR__POST, "check", ITEM(3));
    reply_and_repeat(t, WEIR_ESTORESLOW, WEIR__POST, "check", ITEM(3));
    BODY_HAS(t, "\"remaining\":997");
    close_with_store(t);
}

TEST(invalid_call_sends_no_store_request)
{
    struct test_api *t = open_with_store();
    CHECK_EQ(store_request_of(t, WEIR__POST, "check", "{\"attributes\":{\"path\":\"/llm\"},\"cost\":\"x\"}")->op_count,
             0);
    CHECK_EQ(t->status, 400);
    CHECK_EQ(store_request_of(t, WEIR__GET, "keys/none/1", "")->op_count, 0);
    CHECK_EQ(t->status, 404);
    CHECK_EQ(store_request_of(t, WEIR__POST, "commit", "{\"reservation\":\"x\",\"cost\":1}")->op_count, 0);
    CHECK_EQ(t->status, 400);
    close_with_store(t);
}

TEST(second_settlement_sends_no_store_request)
{
    struct test_api *t = open_with_store();
    char token[1500] = "", body[1600];
    CHECK_EQ(store_request_of(t, WEIR__POST, "reserve", ITEM(400))->op_count, 2); /* one peek and one take */
    reply_and_repeat(t, 0, WEIR__POST, "reserve", ITEM(400));
    const char *at = strstr(t->response, "\"reservation\":\"");
    CHECK(at != NULL);
    if (at)
        sscanf(at + 15, "%1399[^\"]", token);
    snprintf(body, sizeof body, "{\"reservation\":\"%s\",\"cost\":100}", token);
    const struct weir__store_request *request = store_request_of(t, WEIR__POST, "commit", body);
    CHECK_EQ(request->op_count, 1);
    CHECK_EQ(request->ops[0].kind, WEIR__OP_REFUND);
    CHECK_EQ(request->ops[0].cost, 300);
    /* Another call settles the same reservation while the store request is in flight. */
    weir_async *first = t->api.async;
    CHECK_EQ(weir_async_new(t->engine, &t->api.async), 0);
    CHECK_EQ(store_request_of(t, WEIR__POST, "commit", body)->op_count, 0);
    CHECK_EQ(t->status, 409);
    weir_async_free(t->api.async);
    t->api.async = first;
    reply_and_repeat(t, 0, WEIR__POST, "commit", body);
    CHECK_EQ(t->status, 200);
    BODY_HAS(t, "\"settled\":true");
    BODY_HAS(t, "\"remaining\":77");
    BODY_HAS(t, "\"remaining\":4900");
    close_with_store(t);
}

TEST(operators_change_keys_in_the_store)
{
    struct test_api *t = open_with_store();
    CHECK(store_request_of(t, WEIR__GET, "keys/far/1", "")->op_count > 0);
    reply_and_repeat(t, 0, WEIR__GET, "keys/far/1", "");
    BODY_HAS(t, "\"remaining\":77");
    CHECK(store_request_of(t, WEIR__GET, "keys/far/1", "")->op_count > 0);
    reply_and_repeat(t, WEIR_ESTOREDOWN, WEIR__GET, "keys/far/1", "");
    CHECK_EQ(t->status, 503);
    CHECK_EQ(store_request_of(t, WEIR__DELETE, "keys/far/1", "")->op_count, 1);
    reply_and_repeat(t, 0, WEIR__DELETE, "keys/far/1", "");
    CHECK_EQ(t->status, 200);
    CHECK_EQ(store_request_of(t, WEIR__GET, "keys/near/1", "")->op_count, 0);
    CHECK_EQ(t->status, 200);
    close_with_store(t);
}

TEST_MAIN
