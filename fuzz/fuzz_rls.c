/*
 * Envoy's rate-limit service: any bytes as a gRPC call or as JSON yield a reply that can be parsed, or an error with a
 * message. The first byte selects the protocol and the service's options.
 */
#include "services/rls/rls_internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char rules[] =
    "domain: d\n"
    "descriptors:\n"
    "  - { key: a, metadata: { x: [1, { y: z }] }, rate_limit: { unit: hour, requests_per_unit: 1000, name: n } }\n"
    "  - { key: b, value: '*', rate_limit: { unit: second, requests_per_unit: 0 } }\n"
    "  - { key: c, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 2, algorithm: token_bucket } }\n"
    "  - { key: e, rate_limit: { unlimited: true, replaces: [ { name: n } ] } }\n";

static weir *engine_of_all(void)
{
    static weir *engine;
    weir_options how = {.segment = {.size = 1 << 20}, .rules_text = rules, .flags = WEIR_NO_WATCH};
    if (!engine && weir_open(&how, &engine) != 0)
        abort();
    return engine;
}

static void check_message(const struct weir__rls_reply *reply)
{
    if (reply->len < 5 || reply->body[0] != 0)
        abort();
    Rls__RateLimitResponse *answer = rls__rate_limit_response__unpack(NULL, reply->len - 5, reply->body + 5);
    if (!answer || !answer->n_statuses ||
        (answer->overall_code == RLS__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT) != reply->over_limit)
        abort();
    rls__rate_limit_response__free_unpacked(answer, NULL);
}

static void check_json(const struct weir__rls_reply *reply)
{
    json_t *json = json_loadb((const char *)reply->body, reply->len, JSON_ALLOW_NUL, NULL);
    if (!json || !json_is_object(json) || !json_object_get(json, reply->message[0] ? "message" : "overallCode"))
        abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char method[] = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    struct weir__arena arena = {.bytes_max = WEIR__RLS_MEMORY_MAX};
    struct weir__rls_reply reply;
    char first[4096];
    if (!size)
        return 0;
    uint8_t how = data[0];
    struct weir__rls service = {
        .engine = engine_of_all(), .headers = how & 2, .metadata = how & 4, .charge_denied = how & 8};
    weir__arena_borrow(&arena, first, sizeof first);
    if (how & 1)
        weir__rls_json(&service, &arena, data + 1, size - 1, &reply);
    else
        weir__rls_call(&service, &arena, (weir_text){method, sizeof method - 1}, data + 1, size - 1, &reply);
    if ((reply.code == WEIR__GRPC_OK) != (reply.message[0] == 0) ||
        memchr(reply.message, 0, sizeof reply.message) == NULL)
        abort();
    if (reply.body)
        (how & 1 ? check_json : check_message)(&reply);
    else if (reply.code == WEIR__GRPC_OK)
        abort();
    weir__arena_free(&arena);
    return 0;
}
