/* One gRPC call. */
#include "services/rls/rls_internal.h"

#include <health.pb-c.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RLS_SERVICE "envoy.service.ratelimit.v3.RateLimitService"

static bool is(weir_text text, const char *literal)
{
    return text.len == strlen(literal) && memcmp(text.data, literal, text.len) == 0;
}

bool weir__rls_fail(struct weir__rls_reply *reply, enum weir__grpc_code code, const char *format, ...)
{
    va_list arguments;
    reply->code = code;
    va_start(arguments, format);
    (void)vsnprintf(reply->message, sizeof reply->message, format, arguments);
    va_end(arguments);
    return false;
}

bool weir__rls_fail_memory(struct weir__rls_reply *reply)
{
    return weir__rls_fail(reply, WEIR__GRPC_RESOURCE_EXHAUSTED, "the request takes more memory than one may have");
}

static bool should_rate_limit(const struct weir__rls *service, struct weir__rls_memory *memory, weir_text message,
                              struct weir__rls_reply *reply)
{
    struct weir__rls_evaluation evaluation = {.memory = memory};
    const Rls__RateLimitRequest *request =
        rls__rate_limit_request__unpack(&memory->for_messages, message.len, (const uint8_t *)message.data);
    if (!request)
        return memory->exhausted
                   ? weir__rls_fail_memory(reply)
                   : weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message is no RateLimitRequest");
    if (!weir__rls_decide(service, request, &evaluation, reply))
        return false;
    const Rls__RateLimitResponse *response = weir__rls_response(service, &evaluation);
    uint8_t *to = response ? weir__rls_frame(memory, rls__rate_limit_response__get_packed_size(response), reply) : NULL;
    if (!to)
        return weir__rls_fail_memory(reply);
    (void)rls__rate_limit_response__pack(response, to);
    return true;
}

/* The names that have a health: the process, the service, and the one envoyproxy/ratelimit gives it. */
static bool has_health(weir_text name)
{
    return name.len == 0 || is(name, RLS_SERVICE) || is(name, "ratelimit");
}

static bool check_health(const struct weir__rls *service, struct weir__rls_memory *memory, weir_text message,
                         struct weir__rls_reply *reply)
{
    const Health__HealthCheckRequest *request =
        health__health_check_request__unpack(&memory->for_messages, message.len, (const uint8_t *)message.data);
    if (!request)
        return memory->exhausted
                   ? weir__rls_fail_memory(reply)
                   : weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message is no HealthCheckRequest");
    if (!has_health((weir_text){(const char *)request->service.data, request->service.len}))
        return weir__rls_fail(reply, WEIR__GRPC_NOT_FOUND, "there is no service of this name");
    Health__HealthCheckResponse response = HEALTH__HEALTH_CHECK_RESPONSE__INIT;
    response.status = service->leaving ? HEALTH__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
                                       : HEALTH__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    uint8_t *to = weir__rls_frame(memory, health__health_check_response__get_packed_size(&response), reply);
    if (!to)
        return weir__rls_fail_memory(reply);
    (void)health__health_check_response__pack(&response, to);
    return true;
}

void weir__rls_call(const struct weir__rls *service, struct weir__rls_memory *memory, weir_text method,
                    const uint8_t *bytes, size_t len, struct weir__rls_reply *reply)
{
    weir_text message;
    *reply = (struct weir__rls_reply){.rule = ""};
    bool is_rate_limit = is(method, "/" RLS_SERVICE "/ShouldRateLimit");
    if (!is_rate_limit && !is(method, "/grpc.health.v1.Health/Check"))
        weir__rls_fail(reply, WEIR__GRPC_UNIMPLEMENTED, "there is no such method here");
    else if (weir__rls_unframe(bytes, len, &message, reply) &&
             !(is_rate_limit ? should_rate_limit : check_health)(service, memory, message, reply))
        reply->body = NULL;
}
