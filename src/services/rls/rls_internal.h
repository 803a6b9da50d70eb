/* Shared by the files of this folder: call.c, request.c, reply.c, json.c. */
#ifndef WEIR_SERVICES_RLS_RLS_INTERNAL_H
#define WEIR_SERVICES_RLS_RLS_INTERNAL_H

#include "services/rls/rls.h"

#include <jansson.h>
#include <rls.pb-c.h>

/* A request under evaluation. */
struct weir__rls_evaluation {
    const Rls__RateLimitRequest *request;
    weir_descriptor *descriptors;
    weir_descriptor_match *matches; /* one a descriptor; zeros without a rule */
    weir_outcome *outcomes;
    weir_result result;
    struct weir__arena *arena;
};

/* Sets code and message of the reply. Always false. */
bool weir__rls_fail(struct weir__rls_reply *reply, enum weir__grpc_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* RESOURCE_EXHAUSTED: out of memory, or beyond the call's bound. */
bool weir__rls_fail_memory(struct weir__rls_reply *reply);

/* Decides the request. False: the reply has the error, or needs_store. */
bool weir__rls_decide(const struct weir__rls *service, const Rls__RateLimitRequest *request,
                      struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply);
/* 0: no such unit. */
int64_t weir__rls_unit_ns(Rls__Unit unit);
/* UNKNOWN: no unit has this length. */
Rls__Unit weir__rls_unit(int64_t window_ns);

/* The response without its metadata. NULL: out of memory. */
Rls__RateLimitResponse *weir__rls_response(const struct weir__rls *service,
                                           const struct weir__rls_evaluation *evaluation);
/* The value of dynamic_metadata. NULL: out of memory. */
json_t *weir__rls_metadata(const struct weir__rls_evaluation *evaluation);
/*
 * A JSON object, which is itself a value at this depth, as a message, whose texts stay in the JSON. NULL: out of
 * memory, or nested too deeply.
 */
Google__Protobuf__Struct *weir__rls_struct(struct weir__arena *arena, const json_t *json, int depth);

/* The texts of the request stay in the JSON tree. */
Rls__RateLimitRequest *weir__rls_read_json(struct weir__arena *arena, const json_t *json,
                                           struct weir__rls_reply *reply);
json_t *weir__rls_write_json(const ProtobufCMessage *message);
/* The JSON that was made; frees it and returns NULL if a part of it failed. */
json_t *weir__rls_made(json_t *made, int failed);

#endif
