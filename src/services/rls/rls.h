/*
 * Envoy's rate-limit service, version 3, its twin in JSON, and gRPC's health checking: the bytes of a request in, the
 * bytes of an answer out. Nothing here knows of HTTP: nginx does that (nginx/http/ngx_http_weir_rls.c), and tests and
 * fuzzers do without.
 *
 *   frame      gRPC's five bytes before a message
 *   call       one gRPC call: the method found, the message read, the answer written
 *   evaluation   from a request to the library's query, and asking it
 *   answer     from what the library says to a response; metadata: the part of it that rules and requests are copied
 * into json       the same call with JSON on both sides; json_read, json_write: the messages' mapping to it memory what
 * a call takes its memory from
 */
#ifndef WEIR_SERVICES_RLS_RLS_H
#define WEIR_SERVICES_RLS_RLS_H

#include "services/rls/memory.h"

#include <weir/store.h>

#define WEIR__RLS_MESSAGE_MAX ((size_t)1 << 20) /* bytes of a message */
#define WEIR__RLS_FRAME_MAX   (WEIR__RLS_MESSAGE_MAX + 5)
#define WEIR__RLS_JSON_MAX    ((size_t)256 << 10) /* bytes of JSON: in memory it is some fifty times larger */

/* gRPC's codes, those that are used. */
enum weir__grpc_code {
    WEIR__GRPC_OK = 0,
    WEIR__GRPC_UNKNOWN = 2,
    WEIR__GRPC_INVALID_ARGUMENT = 3,
    WEIR__GRPC_NOT_FOUND = 5,
    WEIR__GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR__GRPC_UNIMPLEMENTED = 12,
    WEIR__GRPC_INTERNAL = 13,
    WEIR__GRPC_UNAVAILABLE = 14,
    WEIR__GRPC_UNAUTHENTICATED = 16
};

/* What is asked, and how it is to answer. */
struct weir__rls {
    weir *engine;
    bool headers;       /* response_headers_to_add */
    bool metadata;      /* dynamic_metadata */
    bool charge_denied; /* see weir_descriptor_query */
    bool leaving;       /* about to end: the health check says so */
    weir_async *ask;    /* for strict rules: what the call asks the store; or NULL */
    bool answered;      /* what it says is known; else a call that needs it only adds to `ask` what it must know */
};

struct weir__rls_reply {
    enum weir__grpc_code code;
    char message[160];   /* what is wrong; empty if nothing is */
    bool compressed;     /* that was it: the message came compressed */
    bool over_limit;     /* the overall code */
    bool needs_store;    /* nothing was decided: the store is to be asked first, and then the call made again */
    const uint8_t *body; /* in the call's memory, with gRPC's prefix or as JSON */
    size_t len;
    int error;        /* of the library, for the log: the whole call's, or that of `rule`; 0: none */
    const char *rule; /* in the call's memory; "": the whole call */
};

/* A gRPC call: `method` is the request's path, `bytes` its whole body. */
void weir__rls_call(const struct weir__rls *service, struct weir__rls_memory *memory, weir_text method,
                    const uint8_t *bytes, size_t len, struct weir__rls_reply *reply);
/* The same with JSON, whatever the path. An error has a body, too. */
void weir__rls_json(const struct weir__rls *service, struct weir__rls_memory *memory, const uint8_t *bytes, size_t len,
                    struct weir__rls_reply *reply);

#endif
