/*
 * A request to the store: operations (ops) on counters, in groups; each group is taken as a whole or not at all. Also
 * the names of counters, and the interface to the library that sends requests.
 *
 * The caller owns the request and must not move or free it until the client has completed it (`done`) or it was
 * cancelled.
 */
#ifndef WEIR_ENGINE_STORE_REQUEST_H
#define WEIR_ENGINE_STORE_REQUEST_H

#include "engine/store_options.h"

#include <sys/queue.h>
#include <weir/weir.h>

#define WEIR__STORE_NAME_MAX 383 /* bytes of a counter's name */

#define WEIR__MISSED_ALL (INT64_C(1) << 40)

enum weir__store_op_kind {
    WEIR__OP_TAKE,     /* takes `cost` (>= 0) if it fits; 0: reads the counter */
    WEIR__OP_PEEK,     /* the decision of a TAKE, without taking */
    WEIR__OP_REFUND,   /* refunds `cost`, which was taken at `at_us` */
    WEIR__OP_CHARGE,   /* takes `cost` whether it fits or not */
    WEIR__OP_EXCHANGE, /* sync: adds the delta `cost` (of either sign); see `level` */
    WEIR__OP_RESET,    /* deletes the counter */
    WEIR__OP_RENEW,    /* permits: extends `lease` by its full duration; with a cost, takes it again if it expired and
                          there is room. Passes, or the lease is over */
    WEIR__OP_COUNT,    /* takes `cost` even if its group does not fit; decides as TAKE */
    WEIR__OP_LEASE /* sync: reports and refills this host's lease of units: see `units`; at most `cost` are granted */
};

/* How long a lease of units lasts at most: lua/leases.lua. */
#define WEIR__UNITS_LIFE_US INT64_C(5000000)

/* LEASE: docs/internals/leases.md. */
struct weir__units_lease {
    uint64_t sequence; /* rises with each op of a host on a counter */
    uint64_t previous; /* number of the batch that was acknowledged last, modulo 2^23; 0: none */
    uint64_t host;     /* 52 bits, not 0 */
    int64_t unspent;   /* units that the host has */
    int64_t returned;  /* units that it had, and returns */
    /* The reply. */
    int64_t granted;
    int64_t life_us; /* how long the lease lasts, from when the server executed the op */
    bool known;      /* the unspent units are on record; else they must not be spent any more */
};

/* One operation on one counter, and its reply. */
struct weir__store_op {
    weir_limit limit; /* a copy, since the rules may be replaced while the request is in flight; `zone` is not used */
    enum weir__store_op_kind kind;
    int64_t cost;
    /*
     * Fixed windows aligned to the calendar: the starts of the previous, the current, the next window and the one
     * after, in microseconds since 1970 by the host's clock. The server selects among them by its own clock.
     */
    int64_t bounds_us[4];
    /* EXCHANGE: what remains according to the host, after `cost`; negative: in debt. */
    int64_t level;
    /*
     * EXCHANGE, fixed windows: what is left of the host's window; negative: it is over; 0: none has begun (aligned to
     * the first request). Other algorithms: over how long a time `cost` accumulated because the store was unavailable;
     * 0: since the previous exchange.
     */
    int64_t left_us;
    /* EXCHANGE: the store may have lost acknowledged deltas: it keeps the minimum of its own and the host's level. */
    bool reseed;
    /*
     * EXCHANGE, without reseed: the store lost deltas that each host re-sends itself; if it does not know the counter,
     * it starts with `cost` alone, not with the host's level.
     */
    bool own_delta;
    /*
     * REFUND: the server's time of the take, or, negative, the age of the take by the host's clock. Other kinds, out:
     * the server's time, for a later refund.
     */
    int64_t at_us;
    struct weir__units_lease units;
    /* Permits: the identity, 52 bits each. REFUND: `taken` returns whether the permit was held until now. */
    uint64_t lease[2];

    /* The reply. EXCHANGE: decision.remaining is what remains for all hosts. */
    weir_decision decision;
    bool taken; /* units were taken, and can be refunded */
    bool keep;  /* not to be refunded: the request was allowed, or weir__store_request_abandon has set it */
    /*
     * EXCHANGE of fixed windows: by the server's clock the host's window is over (-1) or has not begun (1); nothing was
     * taken.
     */
    int8_t other_window;
    /*
     * EXCHANGE with a sender, first command of a batch: how many batches before this one were acknowledged but are
     * unknown to the server (store reset). WEIR__MISSED_ALL: it does not know the sender.
     */
    int64_t missed;
    /* EXCHANGE: how long before the reply arrived the server carried it out, estimated. */
    int64_t ago_us;
    /*
     * Of this counter alone, e.g. WEIR_ESTOREWRONGTYPE, or in a cluster the error of its server. Its group took
     * nothing; an EXCHANGE is not acknowledged.
     */
    int error;

    uint64_t tag; /* for the caller, as `read` */
    bool read;    /* the reply was used for a check */
    uint32_t row; /* for the client: where the command has the parameters of `limit` */
    uint16_t name_len;
    char name[WEIR__STORE_NAME_MAX + 1];
};

/* Ops ops[first] to ops[first + count - 1] of a request. */
struct weir__group {
    uint32_t first, count;
    bool after_first; /* taken only if the request's first group passed, else peeked at (shadow rules) */
};

struct redisReply;
struct weir__store_request;

#define WEIR__RAW_COMMAND_WHY 160

/*
 * A call of another script (queue, membership) instead of ops. Sent alone; the caller parses the reply. Never refunded.
 */
struct weir__raw_command {
    const char *slot; /* one of its keys, which selects the server in a cluster */
    const char *command;
    size_t command_len; /* EVALSHA, in the Redis protocol */
    const char *script; /* loaded on NOSCRIPT */
    /* Parses a reply that is no error. Not 0: it is malformed, and the connection is closed. */
    int (*read)(struct weir__store_request *request, const struct redisReply *reply);
    /* Out, with an error: whether it may have been carried out; the beginning of the server's error text, or "". */
    bool in_doubt;
    char why[WEIR__RAW_COMMAND_WHY];
};

struct weir__store_request {
    struct weir__raw_command *raw; /* instead of ops and groups, or NULL */
    struct weir__store_op *ops;
    uint32_t op_count;
    struct weir__group *groups; /* in the order of their ops; at least one */
    uint32_t group_count;
    int64_t deadline_us; /* monotonic; then it completes with WEIR_ESTORESLOW */
    /*
     * EXCHANGE only: the server carries out each batch number of a sender once; numbers rise. Empty: no numbering. At
     * most one request of a sender may be in flight.
     */
    const char *sender;
    uint64_t batch;

    int error; /* out: 0, or why there is no reply: then it is unknown what was taken */
    void *owner;

    /* For the client. */
    struct weir__store_request *next, *previous;
    void *list; /* which contains it */
    TAILQ_ENTRY(weir__store_request) timer;
    uint16_t slot;
    uint8_t state, tries;
};

/* ---- Names of counters: prefix:rule:key. docs/reference/store.md lists them ---- */

#define WEIR__NAME_KEY_MAX 80 /* bytes of a key that is used unchanged; of a longer one */
#define WEIR__NAME_KEY_CUT 40 /* its first bytes */
#define WEIR__NAME_DIGITS  32 /* and hexadecimal digits of its hash are used */

struct weir__naming {
    const char *prefix; /* "weir"; at most 64 bytes */
    bool hash_keys;
};

/* Writes the name with its zero byte to `to` (WEIR__STORE_NAME_MAX + 1 bytes); returns its length. */
size_t weir__store_name(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, char *to);

/* For a long key of which only the first WEIR__NAME_KEY_CUT bytes and the digits of its hash are known. */
size_t weir__store_name_cut(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text cut,
                            const char *digits, char *to);
/* WEIR__NAME_DIGITS digits of the key's SHA-256, without a zero byte. Cryptographic, as keys may be secrets. */
void weir__store_digits(weir_text key, char *digits);

/*
 * ---- The interface to the store library (libweir-store, src/remote) ----
 *
 * The engine calls the blocking client through a table of functions, so that libweir references neither hiredis nor
 * OpenSSL. weir_store_use (<weir/store.h>), in the store library, registers the table; weir_open refuses
 * weir_options.store without it (WEIR_ESTORELIB).
 */

enum weir__store_state { WEIR__STORE_NEW, WEIR__STORE_UP, WEIR__STORE_DOWN, WEIR__STORE_PROBING };

/* Totals of a client. */
struct weir__client_stats {
    uint64_t requests, replied, failed; /* submitted; completed without and with an error */
    uint64_t slow;                      /* of the failed: missed their deadline */
    uint64_t refused;                   /* of the failed: refused by the open breaker, not sent */
    uint64_t commands, bytes_out, bytes_in;
    uint64_t connects, disconnects;
    uint64_t script_loads, redirects, refunds;
    uint64_t opened; /* times a breaker opened */
    enum weir__store_state state;
    int last_error; /* of the last failure of a server */
};

struct weir__blocking_client;

/* Functions of remote/client.h, which documents them. */
struct weir__store_ops {
    const char *version; /* WEIR_VERSION: the two libraries share structures, so they must be of the same version */
    struct weir__blocking_client *(*open)(const struct weir__store_options *options);
    void (*close)(struct weir__blocking_client *client);
    int (*request)(struct weir__blocking_client *client, struct weir__store_request *request);
    void (*refund)(struct weir__blocking_client *client, const struct weir__store_request *request);
    void (*flush_refunds)(struct weir__blocking_client *client, int64_t most_us);
    void (*stats)(struct weir__blocking_client *client, struct weir__client_stats *stats);
};

/* NULL: none is registered. */
const struct weir__store_ops *weir__store_ops(void);

/* Exported, for libweir-store only. `ops` must stay. 0, or WEIR_ESTORELIB: the versions differ. */
__attribute__((visibility("default"))) int weir_store_register(const struct weir__store_ops *ops);

#endif
