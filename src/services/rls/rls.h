/*
 * Envoy's rate-limit service v3 over gRPC and as JSON, and gRPC health checking, without HTTP: bytes in, bytes out.
 * docs/reference/grpc.md describes it for its users. The way of a call:
 *
 *   nginx/http/ngx_http_weir_rls.c      reads the request
 *     weir__rls_call, weir__rls_json    call.c: gRPC frame or JSON to a RateLimitRequest; json.c: the JSON mapping
 *       weir__rls_decide                request.c: validates, builds the library's descriptor query, decides
 *       weir__rls_response              reply.c: statuses, headers and dynamic_metadata
 *     call.c                            packs the RateLimitResponse
 *   ngx_http_weir_rls.c                 sends it, with grpc-status as a trailer
 *
 * Strict rules: if the store must reply first, the call only collects the requests in service->async and sets
 * reply->needs_store. nginx sends them and makes the same call again when the replies are there (store_replied).
 */
#ifndef WEIR_SERVICES_RLS_RLS_H
#define WEIR_SERVICES_RLS_RLS_H

#include "base/arena.h"

#include <weir/store.h>

/* Bytes of the arena of one call (bytes_max): several times the largest sensible call. */
#define WEIR__RLS_MEMORY_MAX ((size_t)4 << 20)

#define WEIR__RLS_MESSAGE_MAX ((size_t)1 << 20) /* bytes of a message */
#define WEIR__RLS_FRAME_MAX   (WEIR__RLS_MESSAGE_MAX + 5)
#define WEIR__RLS_JSON_MAX    ((size_t)256 << 10) /* bytes of JSON: its tree takes about 50 times as much */

/* gRPC status codes. */
enum weir__grpc_code {
    WEIR__GRPC_OK = 0,
    WEIR__GRPC_UNKNOWN = 2,
    WEIR__GRPC_INVALID_ARGUMENT = 3,
    WEIR__GRPC_NOT_FOUND = 5,
    WEIR__GRPC_PERMISSION_DENIED = 7,
    WEIR__GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR__GRPC_UNIMPLEMENTED = 12,
    WEIR__GRPC_INTERNAL = 13,
    WEIR__GRPC_UNAVAILABLE = 14,
    WEIR__GRPC_UNAUTHENTICATED = 16
};

struct weir__rls {
    weir *engine;
    bool headers;       /* response_headers_to_add */
    bool metadata;      /* dynamic_metadata */
    bool charge_denied; /* see weir_descriptor_query */
    bool leaving;       /* shutting down: the health check reports NOT_SERVING */
    weir_async *async;  /* requests to the store, for strict rules; or NULL */
    bool store_replied; /* their replies are in `async` */
};

struct weir__rls_reply {
    enum weir__grpc_code code;
    char message[160];   /* of an error; else empty */
    bool compressed;     /* the error: the message was compressed */
    bool over_limit;     /* overall_code is OVER_LIMIT */
    bool needs_store;    /* nothing was decided: send service->async to the store, then call again */
    const uint8_t *body; /* in the call's arena: a gRPC frame, or JSON */
    size_t len;
    int error;        /* of the library, for the log: of `rule`, or of the call; 0: none */
    const char *rule; /* in the call's arena; "": the call */
};

/* A gRPC call: `method` is the request's path, `bytes` its body. */
void weir__rls_call(const struct weir__rls *service, struct weir__arena *arena, weir_text method, const uint8_t *bytes,
                    size_t len, struct weir__rls_reply *reply);
/* A call with JSON on both sides. An error has a body, too. */
void weir__rls_json(const struct weir__rls *service, struct weir__arena *arena, const uint8_t *bytes, size_t len,
                    struct weir__rls_reply *reply);

#endif
