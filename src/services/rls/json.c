/* The call with JSON on both sides. */
#include "services/rls/rls_internal.h"

#include <string.h>

/* Takes the JSON. Without memory there is no body. */
static void write_body(struct weir__rls_memory *memory, json_t *json, struct weir__rls_reply *reply)
{
    size_t len = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    char *body = len ? weir__rls_take(memory, len) : NULL;
    if (body && json_dumpb(json, body, len, JSON_COMPACT) == len) {
        reply->body = (const uint8_t *)body;
        reply->len = len;
    }
    json_decref(json);
}

static bool answer(const struct weir__rls *service, struct weir__rls_memory *memory, const json_t *json,
                   struct weir__rls_reply *reply)
{
    struct weir__rls_evaluation evaluation = {.memory = memory};
    const Rls__RateLimitRequest *request = weir__rls_read_json(memory, json, reply);
    if (!request || !weir__rls_decide(service, request, &evaluation, reply))
        return false;
    const Rls__RateLimitResponse *response = weir__rls_response(service, &evaluation);
    if (response)
        write_body(memory, weir__rls_write_json(response), reply);
    return reply->body || weir__rls_fail_memory(reply);
}

void weir__rls_json(const struct weir__rls *service, struct weir__rls_memory *memory, const uint8_t *bytes, size_t len,
                    struct weir__rls_reply *reply)
{
    json_error_t problem;
    *reply = (struct weir__rls_reply){.rule = ""};
    json_t *json = json_loadb(len ? (const char *)bytes : "", len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!json)
        weir__rls_fail(reply, WEIR__GRPC_INVALID_ARGUMENT, "line %d, column %d: %.100s", problem.line, problem.column,
                       problem.text);
    if (!json || (!answer(service, memory, json, reply) && !reply->needs_store))
        write_body(memory,
                   json_pack("{s:i,s:s%}", "code", (int)reply->code, "message", reply->message, strlen(reply->message)),
                   reply);
    json_decref(json);
}
