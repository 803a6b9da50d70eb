/*
 * A request to the store: operations (ops) on counters, in groups; each group is taken as a whole or not at all.
 *
 * The caller owns the request and must not move or free it until the client has completed it (`done`) or it was
 * cancelled.
 */
#ifndef WEIR_ENGINE_STORE_REQUEST_H
#define WEIR_ENGINE_STORE_REQUEST_H

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
    WEIR__OP_COUNT     /* takes `cost` even if its group does not fit; decides as TAKE */
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
    /* Permits: the identity, 52 bits each. REFUND: `taken` returns whether the permit was held until now. */
    uint64_t lease[2];

    /* The reply. EXCHANGE: decision.remaining is what remains for all hosts. */
    weir_decision decision;
    bool taken; /* units were taken, and can be refunded */
    bool keep;  /* in: not to be refunded; see weir__store_request_abandon */
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

    uint64_t tag; /* for the caller */
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
    void *list;     /* which contains it */
    uint32_t timer; /* index in the heap of deadlines plus one */
    uint16_t slot;
    uint8_t state, tries;
};

#endif
