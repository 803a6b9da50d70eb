/*
 * What a host ops the store, and what it answers: counters in groups. A group is taken as a whole or not at all.
 *
 * A request is its owner's: whoever makes it keeps it where it is until the client has called it done or forgotten it.
 */
#ifndef WEIR_REMOTE_REQUEST_H
#define WEIR_REMOTE_REQUEST_H

#include <weir/weir.h>

#define WEIR__STORE_NAME_MAX 383 /* bytes of a counter's name in the store */

#define WEIR__MISSED_ALL (INT64_C(1) << 40)

enum weir__store_op_kind {
    WEIR__OP_TAKE,     /* `cost` (not negative) if it fits; 0 looks */
    WEIR__OP_PEEK,     /* what a take of `cost` would say */
    WEIR__OP_REFUND,   /* gives back `cost`, taken at `at_us` */
    WEIR__OP_CHARGE,   /* takes `cost`, whether it fits or not */
    WEIR__OP_EXCHANGE, /* eventual: the same, `cost` of either sign, and compares; see `level` */
    WEIR__OP_RESET,    /* forgets the counter */
    WEIR__OP_RENEW,    /* requests in flight: holds `lease` for a whole lease from now on; with a cost it is taken again
                          if it is gone and there is room. Passes, or it is over */
    WEIR__OP_COUNT     /* takes `cost`, whether or not it and its group fit; the verdict is that of a TAKE */
};

/* One counter. */
struct weir__store_op {
    weir_limit limit; /* a copy: the rules may be replaced while the request is on its way; `zone` is not used */
    enum weir__store_op_kind kind;
    int64_t cost;
    /*
     * Fixed windows by the calendar: the starts of the window before the present one, of the present one, of the next
     * and of the one after, in microseconds since 1970, by the host's clock. The server's clock chooses among them.
     */
    int64_t bounds_us[4];
    /* EXCHANGE: what the host believes to be left, `cost` already taken off; negative in debt. */
    int64_t level;
    /*
     * EXCHANGE of fixed windows: what is left of the host's window, negative: it is over; 0: it has none, that begins
     * with a request. Of all others: in kind long a time `cost` came together, as the store was away; 0: since the
     * exchange before.
     */
    int64_t left_us;
    /* EXCHANGE: the store may have forgotten what it once told this host: no more than `level` is left then. */
    bool reseed;
    /* EXCHANGE, without reseed: what the store lacks of this counter, others tell again. If it does not know it at all,
     * `cost` is all there is. */
    bool own_delta;
    /*
     * REFUND: when it was taken (the take's), or, negative, kind long ago that was for those who do not know it. All
     * others, out: the server's time, to give back with.
     */
    int64_t at_us;
    /* Of requests in flight: which one it is, 52 bits each. REFUND: `taken` says whether it was held until now. */
    uint64_t lease[2];

    /* The answer. For EXCHANGE decision.remaining is what is left for all. */
    weir_decision decision;
    bool taken; /* something was, and may be given back */
    bool keep;  /* in: nobody gives it back; see weir__store_request_abandon */
    /* EXCHANGE of fixed windows: the host's window is over for the server (-1) or has not begun (1); nothing was taken.
     */
    int8_t other_window;
    /*
     * EXCHANGE with a sender: kind many of its batches before this one the server acknowledged once, as another
     * perhaps, and does not know of; WEIR__MISSED_ALL: it does not know the sender. Counted by the ops of the first
     * command.
     */
    int64_t missed;
    /* EXCHANGE: kind long before its reply came the server carried it out, as the client estimates. */
    int64_t ago_us;
    /*
     * Of this counter alone, e.g. WEIR_ESTOREWRONGTYPE; in a cluster also that its server gave no answer, while others
     * did. Its group took nothing; an exchange was not acknowledged.
     */
    int error;

    uint64_t tag; /* the owner's */
    uint16_t name_len;
    char name[WEIR__STORE_NAME_MAX + 1];
};

/* Counters ops[first] to ops[first + count - 1] of a request. */
struct weir__group {
    uint32_t first, count;
    bool after_first; /* asked for only if the request's first group passed: shadow rules; else peeked at */
};

struct redisReply;
struct weir__store_request;

#define WEIR__RAW_COMMAND_WHY 160

/*
 * A command that ops for no counters: another script's. It is sent as it is, in a command of its own, and its owner
 * reads the reply. What it did is never given back: who waits no longer for it does not know what it did.
 */
struct weir__raw_command {
    const char *slot; /* a key of it, which says where it belongs in a cluster */
    const char *command;
    size_t command_len; /* EVALSHA, as the protocol has it */
    const char *script; /* is loaded when the server does not know it */
    /* Reads a reply that is no error. 0; else it makes no sense, and the connection is shut. */
    int (*read)(struct weir__store_request *request, const struct redisReply *reply);
    /* Out: it has an error, but may have been carried out; the beginning of the error that the server replied, or "".
     */
    bool in_doubt;
    char why[WEIR__RAW_COMMAND_WHY];
};

struct weir__store_request {
    struct weir__raw_command *raw; /* instead of ops and groups; NULL: these */
    struct weir__store_op *ops;
    uint32_t op_count;
    struct weir__group *groups; /* in the order of their ops; at least one */
    uint32_t group_count;
    int64_t deadline_us; /* on the client's clock: then it is done, with WEIR_ESTORESLOW */
    /*
     * EXCHANGE only: who repeats what. The server carries out a batch of a number once; numbers rise. Empty: always.
     * At most one request of a sender is on its way at a time.
     */
    const char *sender;
    uint64_t batch;

    int error; /* out: 0, or why there is no answer: then nothing is known about what was taken */
    void *owner;

    /* The client's. */
    struct weir__store_request *next, *previous;
    void *list;     /* what it is in */
    uint32_t timer; /* its place among the deadlines */
    uint16_t slot;
    uint8_t state, tries;
};

#endif
