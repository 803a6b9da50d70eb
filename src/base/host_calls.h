/*
 * Callbacks by which the rules service reads the host's statistics and keys; the agent provides them. Any pointer may
 * be NULL: the service then replies 501.
 */
#ifndef WEIR_BASE_HOST_CALLS_H
#define WEIR_BASE_HOST_CALLS_H

#include "base/log.h"

/* What is read. */
struct weir__host_query {
    const char *rule; /* NULL: all */
    /* Of a key; of denials: what they are about, with a zero byte. */
    weir_text key;
    /* Of a history; of denials: those of the last `seconds`, 0: all. */
    int64_t seconds, step;
    /* Of hot keys. */
    bool denied; /* by denied cost; else by admitted */
    bool near;   /* the keys near their limit instead, and how much of it keys use */
    bool hide;   /* hashes instead of the texts of keys */
    int64_t n;   /* 1 to 1000, also of denials */
    /* Of statistics and denials: which hosts; none of them: all. */
    const char *host; /* its name or id */
    bool this_host;
    /* For a store that gets no texts of keys (hash_keys). */
    bool digest;       /* of denials: the hash by which the store knows a key, instead of its text; no addresses */
    const char *about; /* of denials, instead of `key`: its hash */
};

/* What other hosts reply to. */
enum weir__query_kind {
    WEIR__QUERY_STATS,
    WEIR__QUERY_HISTORY,
    WEIR__QUERY_HOT_KEYS,
    WEIR__QUERY_DENIED,
    WEIR__QUERY_KINDS
};

/* Errors of queries of other hosts besides the library's. */
enum {
    WEIR__HOST_UNKNOWN = 5, /* 404: no host has this name */
    WEIR__HOST_NO_REPLY = 6 /* 503: it is silent, or did not reply */
};

/* Leaves a text from malloc in *json and returns 0, or a library error (WEIR_ENORULE: 404; others: 503). */
typedef int weir__host_read(void *context, const struct weir__host_query *query, char **json);

enum weir__host_key_action { WEIR__HOST_BLOCK, WEIR__HOST_RESET, WEIR__HOST_TAKE };

/* A change of one key under one rule. */
struct weir__host_key_change {
    enum weir__host_key_action action;
    const char *rule;
    weir_text key;
    int64_t for_ns; /* of a block; 0 unblocks */
    int64_t cost;   /* of a take */
    weir_text by, reason;
    /* Out: "all", "this" or "later", and why it is not "all", or NULL. */
    const char *hosts, *why;
    /* Out, of a take. */
    bool passes;
    int64_t remaining, retry_after_ns;
};

/* Filter of deferred requests; 0 and NULL: any. */
struct weir__host_deferred {
    const char *state, *rule;
    int64_t after;     /* a sequence */
    int64_t limit;     /* 1 to 1000 */
    bool full_tickets; /* show complete tickets, which allow cancelling */
};

/* Errors of the queue besides the library's. */
enum {
    WEIR__HOST_NO_TICKET = 1,        /* 404 */
    WEIR__HOST_OTHER_STATE = 2,      /* 409: cannot be cancelled or requeued in this state */
    WEIR__HOST_QUEUE_FULL = 3,       /* 409 */
    WEIR__HOST_QUEUE_UNAVAILABLE = 4 /* 503 */
};

enum weir__host_change { WEIR__HOST_UNCHANGED, WEIR__HOST_CANCEL, WEIR__HOST_REQUEUE };

/* The queue of deferred requests. `why` (WEIR__HOST_WHY bytes) gets the reason of an error. */
#define WEIR__HOST_WHY 256
struct weir__control_queue {
    void *context;
    int (*stats)(void *context, char **json, char *why);
    int (*list)(void *context, const struct weir__host_deferred *which, char **json, char *why);
    /* Changes one request, then reads it. */
    int (*ticket)(void *context, const char *ticket, enum weir__host_change change, char **json, char *why);
};

struct weir__control_host {
    void *context;
    weir__host_read *key_state, *stats, *history, *hot, *advice, *denied;
    weir__host_read *hosts;  /* which hosts there are */
    weir__host_read *keys;   /* the rules of query->key, with its state under each */
    weir__host_read *blocks; /* the keys that are blocked on all hosts */
    int (*key_change)(void *context, struct weir__host_key_change *change);
    /* Decides a request by the rules and takes nothing: `body` as of POST /v1/check; *json from malloc. 0 or WEIR_E….
     */
    int (*check)(void *context, weir_text body, int *status, char **json);
    uint64_t (*key_hash)(void *context, weir_text key);           /* shown in place of a hidden key */
    void (*record_heartbeat)(void *context, weir_text heartbeat); /* heartbeat of a host that polls the rules */
    void (*published)(void *context, int64_t revision);           /* called after the file was replaced */
    void (*shown)(void *context,
                  weir_text set); /* rules in files: the set that hosts which poll them get has changed */
    void (*log)(void *context, enum weir__log_level level, const char *message);
    struct weir__control_queue *queue; /* NULL: nothing is deferred here */
};

#endif
