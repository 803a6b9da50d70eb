/* One delivery: a copy of the claimed request, and its HTTP transfer to the upstream by libcurl. */
#ifndef WEIR_QUEUE_DELIVERY_H
#define WEIR_QUEUE_DELIVERY_H

#include "queue/queue.h"

#include <curl/curl.h>

enum weir__delivery_state {
    WEIR__DELIVERY_FREE = 0,
    WEIR__DELIVERY_CLAIMED, /* the rules have not been evaluated yet */
    WEIR__DELIVERY_DELAYED, /* admitted, to be sent at begins_ms */
    WEIR__DELIVERY_SENT,
    WEIR__DELIVERY_ENDED /* `end` is to be committed to the queue */
};

struct weir__delivery {
    enum weir__delivery_state state;
    struct weir__deferred item; /* its texts are in `text` */
    char *text;
    int64_t begins_ms, renew_ms;
    weir_permits permits; /* of concurrency rules */
    CURL *curl;           /* kept for the next delivery */
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];

    /* The outcome. */
    enum weir__queue_end_kind end;
    bool counts; /* as an attempt */
    int status;
    int64_t retry_after_ms; /* the reply's Retry-After; 0: none */
    int64_t due_ms;         /* of a retry */
    uint64_t aside;         /* of a retry: its group, as in struct weir__queue_ending */
    char why[WEIR__QUEUE_WHY_MAX + 1];
};

struct weir__delivery_target {
    const char *url;    /* "http://host:port", without a path; NULL: none is configured */
    const char *socket; /* Unix socket of an HTTP server, or NULL */
    const char *ca;     /* NULL: the system's */
    bool unverified;    /* accept any certificate */
    int64_t timeout_ms; /* of the complete transfer */
};

/* Copies the request. False: out of memory. */
bool weir__delivery_copy(struct weir__delivery *delivery, const struct weir__deferred *item);
/* Starts the transfer. False, with the reason in `why`: it cannot be sent. */
bool weir__delivery_send(struct weir__delivery *delivery, const struct weir__delivery_target *target, CURLM *multi);
/* Ends the transfer: sets status (0: no reply), retry_after_ms and why. */
void weir__delivery_received(struct weir__delivery *delivery, CURLM *multi, CURLcode code);
/* Frees all but the curl handle; the state is FREE. */
void weir__delivery_clear(struct weir__delivery *delivery);

/* ---- The request as it is sent ---- */

/* True if method and target are valid in a request line. */
bool weir__delivery_is_sendable(const struct weir__deferred *item);
/*
 * The headers for libcurl. Left out: hop-by-hop headers (RFC 9110, 7.6.1, and those that Connection names),
 * Content-Length and Expect, which libcurl sets itself, and malformed lines. Added: X-Weir-Attempt, Idempotency-Key
 * with the ticket unless the request has one, and entries that keep libcurl from adding headers of its own. NULL: out
 * of memory.
 */
struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt);

#endif
