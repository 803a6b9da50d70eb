/* What the files of this folder share. */
#ifndef WEIR_SERVICES_RLS_RLS_INTERNAL_H
#define WEIR_SERVICES_RLS_RLS_INTERNAL_H

#include "services/rls/rls.h"

#include <jansson.h>
#include <rls.pb-c.h>

/* A request on its way to an answer. */
struct weir__rls_evaluation {
    const Rls__RateLimitRequest *request;
    weir_descriptor *descriptors;
    weir_descriptor_match *matches; /* one a descriptor; of those without a rule all zeros */
    weir_outcome *outcomes;
    weir_result answer;
    struct weir__rls_memory *memory;
};

/* Says what is wrong. Always false. */
bool weir__rls_fail(struct weir__rls_reply *reply, enum weir__grpc_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* That there is no memory, or that the request wants more of it than it may have. */
bool weir__rls_fail_memory(struct weir__rls_reply *reply);

/* Finds the one message in the body of a unary call. */
bool weir__rls_unframe(const uint8_t *bytes, size_t len, weir_text *message, struct weir__rls_reply *reply);
/* Room for a message of this length, after its prefix. NULL: no memory. */
uint8_t *weir__rls_frame(struct weir__rls_memory *memory, size_t len, struct weir__rls_reply *reply);

/* Asks the library. False: the reply says why not. */
bool weir__rls_decide(const struct weir__rls *service, const Rls__RateLimitRequest *request,
                      struct weir__rls_evaluation *evaluation, struct weir__rls_reply *reply);
/* The length of a unit; 0: there is no such unit. */
int64_t weir__rls_unit_ns(Rls__Unit unit);
/* The unit of this length; UNKNOWN: none has it. */
Rls__Unit weir__rls_unit(int64_t window_ns);

/* The answer as a message. NULL: no memory. */
Rls__RateLimitResponse *weir__rls_response(const struct weir__rls *service,
                                           const struct weir__rls_evaluation *evaluation);
bool weir__rls_add_metadata(const struct weir__rls_evaluation *evaluation, Rls__RateLimitResponse *response);

/* Messages from JSON and to it. The texts of the request stay the JSON's own. */
Rls__RateLimitRequest *weir__rls_read_json(struct weir__rls_memory *memory, const json_t *json,
                                           struct weir__rls_reply *reply);
json_t *weir__rls_write_json(const Rls__RateLimitResponse *response);

#endif
