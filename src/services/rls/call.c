/* One call: gRPC frame or JSON in, decision, gRPC frame or JSON out; gRPC health checking. */
#include "services/rls/rls_internal.h"
#include "base/text.h"

#include <health.pb-c.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RLS_SERVICE "envoy.service.ratelimit.v3.RateLimitService"
#define PREFIX      ((size_t)5) /* bytes of the gRPC frame before the message */

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

/* ---- The gRPC frame: compressed flag, length (4 bytes, big endian), message; a unary call has one ---- */

/* Finds the message in the body of a unary call. */
static bool read_frame(const uint8_t *bytes, size_t len, weir_text *message, struct weir__rls_reply *reply)
{
    if (len < PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the call has no message");
    size_t size = (size_t)bytes[1] << 24 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 8 | bytes[4];
    if (bytes[0] == 1) {
        reply->compressed = true;
        return weir__rls_fail(reply, WEIR__GRPC_UNIMPLEMENTED, "compressed messages are not supported; send identity");
    }
    if (bytes[0] != 0)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message's first byte must be 0 or 1, but is %d",
                              bytes[0]);
    if (size > WEIR__RLS_MESSAGE_MAX)
        return weir__rls_fail(reply, WEIR__GRPC_RESOURCE_EXHAUSTED, "the message has %zu bytes; at most %zu are read",
                              size, WEIR__RLS_MESSAGE_MAX);
    if (size > len - PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message ends after %zu of its %zu bytes",
                              len - PREFIX, size);
    if (size < len - PREFIX)
        return weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "%zu bytes follow the message; a call has one",
                              len - PREFIX - size);
    *message = (weir_text){(const char *)bytes + PREFIX, size};
    return true;
}

/* Packs the message of the reply. */
static bool write_frame(struct weir__arena *arena, const ProtobufCMessage *message, struct weir__rls_reply *reply)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *frame = weir__arena_take(arena, PREFIX + len);
    if (!frame)
        return weir__rls_fail_memory(reply);
    frame[0] = 0;
    for (size_t i = 1; i < PREFIX; i++)
        frame[i] = (uint8_t)(len >> 8 * (PREFIX - 1 - i));
    (void)protobuf_c_message_pack(message, frame + PREFIX);
    reply->body = frame;
    reply->len = PREFIX + len;
    return true;
}

/* ---- gRPC ---- */

static void *take_for_message(void *arena, size_t size)
{
    return weir__arena_take(arena, size);
}

static void leave(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

/* NULL: the reply has the error. */
static const void *unpack(struct weir__arena *arena, const ProtobufCMessageDescriptor *kind, weir_text message,
                          struct weir__rls_reply *reply)
{
    ProtobufCAllocator allocator = {take_for_message, leave, arena};
    const ProtobufCMessage *made =
        protobuf_c_message_unpack(kind, &allocator, message.len, (const uint8_t *)message.data);
    if (!made && arena->failed)
        weir__rls_fail_memory(reply);
    else if (!made)
        weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "the message is no %s", kind->short_name);
    return made;
}

static bool should_rate_limit(const struct weir__rls *service, struct weir__arena *arena, weir_text message,
                              struct weir__rls_reply *reply)
{
    struct weir__rls_evaluation evaluation = {.arena = arena};
    const Rls__RateLimitRequest *request = unpack(arena, &rls__rate_limit_request__descriptor, message, reply);
    if (!request || !weir__rls_decide(service, request, &evaluation, reply))
        return false;
    Rls__RateLimitResponse *response = weir__rls_response(service, &evaluation);
    json_t *metadata = response && service->metadata ? weir__rls_metadata(&evaluation) : NULL;
    if (metadata)
        response->dynamic_metadata = weir__rls_struct(arena, metadata, 0);
    bool made = response && (!service->metadata || response->dynamic_metadata);
    made = made ? write_frame(arena, &response->base, reply) : weir__rls_fail_memory(reply);
    json_decref(metadata);
    return made;
}

/* Services with a health status: the process (""), the service, and its name in envoyproxy/ratelimit. */
static bool has_health(weir_text name)
{
    return name.len == 0 || weir__text_is(name, RLS_SERVICE) || weir__text_is(name, "ratelimit");
}

static bool check_health(const struct weir__rls *service, struct weir__arena *arena, weir_text message,
                         struct weir__rls_reply *reply)
{
    const Health__HealthCheckRequest *request =
        unpack(arena, &health__health_check_request__descriptor, message, reply);
    if (!request)
        return false;
    if (!has_health((weir_text){(const char *)request->service.data, request->service.len}))
        return weir__rls_fail(reply, WEIR__GRPC_NOT_FOUND, "there is no service of this name");
    Health__HealthCheckResponse response = HEALTH__HEALTH_CHECK_RESPONSE__INIT;
    response.status = service->leaving ? HEALTH__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
                                       : HEALTH__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    return write_frame(arena, &response.base, reply);
}

void weir__rls_call(const struct weir__rls *service, struct weir__arena *arena, weir_text method, const uint8_t *bytes,
                    size_t len, struct weir__rls_reply *reply)
{
    weir_text message = {NULL, 0};
    *reply = (struct weir__rls_reply){.rule = ""};
    bool is_rate_limit = weir__text_is(method, "/" RLS_SERVICE "/ShouldRateLimit");
    if (!is_rate_limit && !weir__text_is(method, "/grpc.health.v1.Health/Check"))
        weir__rls_fail(reply, WEIR__GRPC_UNIMPLEMENTED, "there is no such method here");
    else if (read_frame(bytes, len, &message, reply) &&
             !(is_rate_limit ? should_rate_limit : check_health)(service, arena, message, reply))
        reply->body = NULL;
}

/* ---- JSON ---- */

/* Dumps and frees the JSON. Out of memory: no body. */
static void write_body(struct weir__arena *arena, json_t *json, struct weir__rls_reply *reply)
{
    size_t len = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    char *body = len ? weir__arena_take(arena, len) : NULL;
    if (body && json_dumpb(json, body, len, JSON_COMPACT) == len) {
        reply->body = (const uint8_t *)body;
        reply->len = len;
    }
    json_decref(json);
}

static bool decide_json(const struct weir__rls *service, struct weir__arena *arena, const json_t *json,
                        struct weir__rls_reply *reply)
{
    struct weir__rls_evaluation evaluation = {.arena = arena};
    const Rls__RateLimitRequest *request = weir__rls_read_json(arena, json, reply);
    if (!request || !weir__rls_decide(service, request, &evaluation, reply))
        return false;
    const Rls__RateLimitResponse *response = weir__rls_response(service, &evaluation);
    json_t *made = response ? weir__rls_write_json(&response->base) : NULL;
    if (service->metadata)
        made = weir__rls_made(made, json_object_set_new(made, "dynamicMetadata", weir__rls_metadata(&evaluation)));
    write_body(arena, made, reply);
    return reply->body || weir__rls_fail_memory(reply);
}

void weir__rls_json(const struct weir__rls *service, struct weir__arena *arena, const uint8_t *bytes, size_t len,
                    struct weir__rls_reply *reply)
{
    json_error_t problem;
    *reply = (struct weir__rls_reply){.rule = ""};
    json_t *json = json_loadb(len ? (const char *)bytes : "", len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!json)
        weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "line %d, column %d: %.100s", problem.line, problem.column,
                       problem.text);
    if (!json || (!decide_json(service, arena, json, reply) && !reply->needs_store)) {
        arena->failed = false; /* a request that is too large leaves room for its error */
        write_body(arena,
                   json_pack("{s:i,s:s%}", "code", (int)reply->code, "message", reply->message, strlen(reply->message)),
                   reply);
    }
    json_decref(json);
}
