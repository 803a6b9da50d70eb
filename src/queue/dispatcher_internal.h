/* What the files of the dispatcher share: dispatcher.c (thread, metrics), dispatch_round.c (one round), delivery.c. */
#ifndef WEIR_QUEUE_DISPATCHER_INTERNAL_H
#define WEIR_QUEUE_DISPATCHER_INTERNAL_H

#include "base/log.h"
#include "config/config.h"
#include "queue/queue.h"
#include "queue/retry_policy.h"

#include <curl/curl.h>
#include <pthread.h>

/* ---- One delivery (delivery.c): a copy of the claimed request, and its HTTP transfer to the upstream by libcurl ----
 */

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
    struct weir__queue_ending end;
    char why[WEIR__QUEUE_WHY_MAX + 1]; /* of `end` */
    int64_t retry_after_ms;            /* the reply's Retry-After; 0: none */
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
/* Starts the transfer. False: it cannot be sent. */
bool weir__delivery_send(struct weir__delivery *delivery, const struct weir__delivery_target *target, CURLM *multi);
/* Ends the transfer: sets end.status (0: no reply), retry_after_ms and why. */
void weir__delivery_received(struct weir__delivery *delivery, CURLM *multi, CURLcode code);
/* Frees all but the curl handle; the state is FREE. */
void weir__delivery_clear(struct weir__delivery *delivery);

/* True if method and target are valid in a request line. */
bool weir__delivery_is_sendable(const struct weir__deferred *item);
/*
 * The headers for libcurl. Left out: weir__is_hop_header, those that Connection names, and malformed lines. Added:
 * X-Weir-Attempt, Idempotency-Key with the ticket unless the request has one, and entries that keep libcurl from adding
 * headers of its own. NULL: out of memory.
 */
struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt);

/* ---- The dispatcher ---- */

enum {
    /* Concurrent deliveries, each on its own connection. One rule gets at most half: docs/internals/queue.md, Delivery.
     */
    WEIR__DISPATCHER_DELIVERIES = 64,
    WEIR__DISPATCHER_IDLE_MS = 500,     /* claim interval while the queue is empty; a put wakes the thread */
    WEIR__DISPATCHER_BUSY_MS = 100,     /* claim interval while requests wait */
    WEIR__DISPATCHER_SECOND_MS = 1000,  /* interval of stats, expiry and retries of failed queue calls */
    WEIR__DISPATCHER_STANDBY_MS = 1000, /* claim interval on standby, or while the queue is unavailable */
    WEIR__DISPATCHER_PATH_MAX = 4200,
    WEIR__DISPATCHER_ASIDE_GROUPS = 256 /* direct-mapped: a new group replaces the one in its place */
};

/* A group of requests set aside because a rule other than the one they wait for denied the first of them. */
struct weir__aside_group {
    uint64_t group;
    int64_t until_ms; /* none of the group is evaluated before, so that none overtakes another */
};

/* Since the agent's start. */
struct weir__dispatcher_counts {
    uint64_t delivered, attempts;
    uint64_t failed;   /* attempts without a final status */
    uint64_t dead;     /* dead-lettered after an attempt; expired requests do not count */
    uint64_t requeued; /* claimed, but denied by a rule */
    bool active;       /* this agent dispatches */
    bool standby;      /* another agent does */
};

struct weir__dispatcher {
    const struct weir__config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__delivery_target to;
    char name[WEIR__QUEUE_SOURCE_TEXT]; /* of its claims */
    char stats_path[WEIR__DISPATCHER_PATH_MAX];
    int lock_fd;               /* locked file: one dispatcher a host and state folder; -1: another one has it */
    struct weir__queue *queue; /* NULL: not open */
    CURLM *multi;
    pthread_t thread;
    bool joined;
    /* Written by other threads, atomically. */
    uint64_t ending, woken;     /* flags */
    uint64_t accepted, refused; /* by ingest, since the agent's start */

    /* The thread's own. */
    struct weir__delivery delivery[WEIR__DISPATCHER_DELIVERIES];
    bool ended; /* some delivery has ended since the last commit */
    struct weir__rule_breakers breakers;
    struct weir__aside_group aside_groups[WEIR__DISPATCHER_ASIDE_GROUPS];
    struct weir__dispatcher_counts counts;
    int64_t next_claim_ms;
    int64_t next_second_ms; /* of the work that is done once a second */
    int64_t waiting;
    int last_error;         /* of the queue, logged */
    bool removed;           /* the queue's file was removed: reopen */
    uint64_t dead_unlogged; /* dead letters since the last log line */
    char dead_why[WEIR__QUEUE_WHY_MAX + 1];
};

/* Wall clock; a test defines its own (the definition in dispatcher.c is weak). */
int64_t weir__dispatcher_clock_ms(void);
/* Logs a change of the queue's error; 0: it works. */
void weir__dispatcher_report(struct weir__dispatcher *dispatcher, int error, const char *why);

/* Claims requests into the free deliveries and evaluates their rules. */
void weir__dispatcher_claim(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Sends delayed deliveries that are due and renews permits. Returns the time of the next timer. */
int64_t weir__dispatcher_poll_timers(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Drives all transfers and handles those that ended. */
void weir__dispatcher_receive(struct weir__dispatcher *dispatcher);
/* Commits the outcomes of ended deliveries to the queue. */
void weir__dispatcher_commit(struct weir__dispatcher *dispatcher);
/* Aborts all deliveries; their requests wait again. */
void weir__dispatcher_requeue_all(struct weir__dispatcher *dispatcher);
/* Closes connections and queue. */
void weir__dispatcher_close(struct weir__dispatcher *dispatcher);

#endif
