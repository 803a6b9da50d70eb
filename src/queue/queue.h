/*
 * The deferred-request queue: requests over their limit, kept until the limit admits them, then delivered. Kept in
 * SQLite on the host, or in Redis where a store is configured. docs/reference/queue.md states the guarantees.
 *
 * The life of a request, and the file that moves it on:
 *
 *   nginx defers a denied request   nginx/http/ngx_http_weir_queue.c
 *        |  POST STATE/queue.sock   ingest.c (listener), ingest_request.c (parsing)
 *        v
 *     WAITING      group commit     ingest_commit.c -> weir__queue_put; the client gets 202 and a ticket
 *        |  claim: due, head of its rule and key    dispatcher.c -> dispatch_round.c -> weir__queue_claim
 *        v
 *     UNDER_WAY    takes its cost from the rules, is sent to the upstream    dispatch_round.c, delivery.c
 *        |-- final status (retry_policy.c)          -> DELIVERED
 *        |-- over limit, no reply, 5xx, 408, 429    -> WAITING (requeued; exponential back-off after a failed attempt)
 *        |-- retries used up, rule gone             -> DEAD (dead letter)
 *        '-- agent died, claim expired              -> WAITING
 *     WAITING too long (weir__queue_expire)         -> DEAD;   DEAD -> WAITING by an operator (weir__queue_change)
 *     WAITING or DEAD, by client or operator        -> CANCELLED
 *     DELIVERED, CANCELLED, DEAD: removed by weir__queue_expire after keep_ms or dead_ms
 *
 * Storage: queue.c checks arguments and calls sqlite*.c or redis*.c (scripts: lua/queue*.lua). queue_admin.c serves
 * operators. The agent starts ingest and dispatcher, at the end of this header.
 *
 * A handle is used by one thread at a time. Any number of handles, in any number of processes, may be open at once.
 * Functions return 0 or an error of the list below. A call that failed changed nothing, except after UNKNOWN.
 */
#ifndef WEIR_QUEUE_QUEUE_H
#define WEIR_QUEUE_QUEUE_H

#include "base/text.h"

struct weir__config;
struct weir__logger;
struct weir__control_queue;

/* Name, code, text for the log and for clients. */
#define WEIR__QUEUE_ERRORS(X)                                                                                          \
    X(FULL, 1, "the queue is full")                                                                                    \
    X(TOO_LARGE, 2, "the request is larger than the queue takes")                                                      \
    X(INVALID, 3, "invalid request: no rule, no method or no target")                                                  \
    X(GONE, 4, "no such ticket")                                                                                       \
    X(STATE, 5, "the request's state does not allow that")                                                             \
    X(LOST, 6, "the claim has expired; another agent may have the request")                                            \
    X(STANDBY, 7, "another agent dispatches the queue")                                                                \
    X(BUSY, 8, "the queue is locked by another process; nothing was changed")                                          \
    X(UNAVAILABLE, 9, "the queue is unavailable; nothing was changed")                                                 \
    X(SPACE, 10, "the queue's disk or memory is full; nothing was changed")                                            \
    X(READONLY, 11, "the queue cannot be written to; nothing was changed")                                             \
    X(BROKEN, 12, "the queue is damaged or of another kind; nothing was changed")                                      \
    X(NEWER, 13, "the queue was made by a later version of weir; use that one")                                        \
    X(URL, 14, "the queue's address is wrong; use sqlite:PATH or a store's URL")                                       \
    X(MEMORY, 15, "out of memory; nothing was changed")                                                                \
    X(UNKNOWN, 16, "the connection broke before the reply: the change may or may not have been made")                  \
    X(REMOVED, 17, "the queue's file was removed or replaced, and the requests in it with it")

enum weir__queue_error {
    WEIR__QUEUE_OK = 0,
#define WEIR__QUEUE_ENUM(name, number, text) WEIR__QUEUE_##name = -(number),
    WEIR__QUEUE_ERRORS(WEIR__QUEUE_ENUM)
#undef WEIR__QUEUE_ENUM
};

const char *weir__queue_strerror(int error);

#define WEIR__TICKET_LEN        32            /* lower-case hexadecimal digits */
#define WEIR__QUEUE_ITEM_MAX    (4u << 20)    /* maximum of weir__deferred_bytes */
#define WEIR__QUEUE_OVERHEAD    512           /* bytes charged for a request besides its texts */
#define WEIR__QUEUE_PUT_MAX     1024          /* requests of one put */
#define WEIR__QUEUE_WHY_MAX     255           /* bytes of a reason; longer ones are cut */
#define WEIR__QUEUE_CLAIM_MAX   128           /* requests of one claim, which blocks a Redis server */
#define WEIR__QUEUE_EXPIRE_MAX  1000          /* changes of each kind in one weir__queue_expire */
#define WEIR__QUEUE_AHEAD_MS    (6 * 60000ll) /* a request is due at most this far in the future */
#define WEIR__QUEUE_SOURCE_TEXT 256

enum weir__deferred_state { WEIR__WAITING, WEIR__UNDER_WAY, WEIR__DELIVERED, WEIR__DEAD, WEIR__CANCELLED };
#define WEIR__DEFERRED_STATES 5

bool weir__is_ticket(const char *text);

/* "waiting", "under_way", "delivered", "dead", "cancelled". */
const char *weir__deferred_state_name(enum weir__deferred_state state);

/* A deferred request. Texts may hold any bytes, also zeros. */
struct weir__deferred {
    char ticket[WEIR__TICKET_LEN + 1];
    weir_text rule, key;
    int64_t cost;
    weir_text method, target;
    weir_text headers; /* "Name: value\r\n"... */
    weir_text body;
    int64_t accepted_ms; /* wall clock; put: 0 is now */
    int64_t due_ms;      /* not claimed before; put: 0 is now, clamped to WEIR__QUEUE_AHEAD_MS from now */
    int64_t expires_ms;  /* set by put, from max_age_ms of the rule and of the queue */
    int64_t ended_ms;    /* when it became delivered, dead or cancelled; else 0 */
    int attempts;
    enum weir__deferred_state state;
    weir_text why;     /* reason of the last failure */
    int last_status;   /* HTTP status of the last attempt; 0: no reply yet */
    uint64_t sequence; /* order of acceptance in the whole queue */
};

/* Bytes charged against max_bytes: the texts and WEIR__QUEUE_OVERHEAD. */
int64_t weir__deferred_bytes(const struct weir__deferred *item);

/* Bounds on waiting and under-way requests; 0: none. */
struct weir__queue_bounds {
    int64_t max, max_bytes, max_age_ms;
};

struct weir__queue_options {
    const char *url; /* sqlite:PATH, or a store's URL (weir__store_parse) */
    /* SQLite: fsync at most once a second, by the next put or weir__queue_expire; false: before each put returns. */
    bool sync_second;
    struct weir__queue_bounds bounds; /* of all rules together */
    /*
     * Retention. Delivered and cancelled requests are kept without headers and body for keep_ms, at most keep_max.
     * Dead ones are kept whole for dead_ms, at most dead_max and bounds.max_bytes. 0: the default, in queue.c.
     */
    int64_t keep_ms, keep_max, dead_ms, dead_max;
    /*
     * The claimer's name, stable across restarts. The first claim of a handle ends all earlier claims under this name,
     * so that a restarted agent continues at once; so no two live agents may share one. NULL or "": "agent".
     */
    const char *name;
    int64_t lease_ms;          /* Redis: the dispatching agent's lease, renewed by each claim; 0: the default */
    int64_t wait_ms;           /* Redis: reply timeout, which must cover an fsync of the server; 0: the default */
    int64_t (*clock_ms)(void); /* wall clock; NULL: the system's */
    /* SQLite: for a warning when close could not checkpoint the WAL of a removed file and kept it. May be NULL. */
    const struct weir__logger *log;
};

struct weir__queue;

/*
 * SQLite: creates the file if there is none. Redis: connects lazily; later calls return WEIR__QUEUE_UNAVAILABLE.
 * `why` (WEIR__QUEUE_SOURCE_TEXT bytes, may be NULL): details of an error.
 */
int weir__queue_open(const struct weir__queue_options *options, struct weir__queue **queue, char *why);
/*
 * After WEIR__QUEUE_REMOVED: close, then open the queue that now has the path, or a new one. A file that was only moved
 * holds every acknowledged request.
 */
void weir__queue_close(struct weir__queue *queue);
/* The storage's own text for the last error: for the log, not for clients. */
const char *weir__queue_why(const struct weir__queue *queue);

struct weir__queue_put {
    struct weir__deferred item;       /* out: ticket, sequence, expires_ms */
    struct weir__queue_bounds bounds; /* of the item's rule */
    int error;                        /* out */
};

/*
 * Enqueues requests in one transaction (Redis: in pipelined script calls of bounded size). 0: each has its ticket, or
 * its own error (FULL, TOO_LARGE, INVALID). Otherwise none was enqueued, and all that are valid have the error that is
 * returned. `count` is at most WEIR__QUEUE_PUT_MAX.
 */
int weir__queue_put(struct weir__queue *queue, struct weir__queue_put *const *puts, size_t count);

/*
 * Cancels puts that returned WEIR__QUEUE_UNKNOWN. Returns how many are still in doubt, because the storage is
 * unavailable or they are under way: call again soon. Each put does this too, and no handle of the process delivers
 * them.
 */
size_t weir__queue_cancel_in_doubt(struct weir__queue *queue);

/* The request is valid during the call only. Must not call the queue. Non-zero ends a list and becomes its result. */
typedef int weir__deferred_visit(void *context, const struct weir__deferred *deferred);

struct weir__claim_request {
    int64_t now_ms, claim_ms;
    size_t free; /* at most so many, and WEIR__QUEUE_CLAIM_MAX */
    /* A rule gets another one only while the handle has fewer of it under way than are free: no rule can take all. */
    bool fair;
    int64_t ahead_ms; /* set by the call. A later due_ms counts as due: it was set before the clock was set back */
};

/*
 * Claims due requests. Only the head of each rule and key is eligible: its oldest waiting request that is not set
 * aside, while no other of the key is under way. Heads of the rule of which the handle has the fewest under way come
 * first, then by age. `visit` gets each claimed request, complete, in order of acceptance; its result is ignored. A
 * due_ms beyond WEIR__QUEUE_AHEAD_MS counts as due: the clock was set back. A claim expires after claim_ms and the
 * request waits again, as its agent has died; so claim_ms must exceed the longest delivery and be equal for all agents.
 * Redis: STANDBY while another agent holds the lease; call at least twice in lease_ms to keep it. Returns the number
 * claimed (call again until 0), or an error.
 */
int weir__queue_claim(struct weir__queue *queue, const struct weir__claim_request *wanted, weir__deferred_visit *visit,
                      void *context);

/* The number is that of the state that it leads to, except REQUEUED. */
enum weir__queue_end_kind {
    /* Waits again until due_ms: the attempt failed (attempt_counts), or the limit denied it. */
    WEIR__ENDED_RETRY = WEIR__WAITING,
    WEIR__ENDED_DELIVERED = WEIR__DELIVERED,
    WEIR__ENDED_DEAD = WEIR__DEAD,
    /* Not deliveries: weir__queue_change. */
    WEIR__ENDED_CANCELLED = WEIR__CANCELLED, /* WAITING or DEAD to CANCELLED; else STATE */
    /*
     * DEAD to WAITING: due now, attempts reset, expiry restarted, in its old place among the waiting requests of its
     * key. FULL: the queue's bounds are reached.
     */
    WEIR__ENDED_REQUEUED = WEIR__CANCELLED + 1
};

struct weir__queue_ending {
    const char *ticket;
    enum weir__queue_end_kind kind;
    int64_t due_ms; /* RETRY; clamped by the call */
    const char *why;
    int status;
    bool attempt_counts; /* RETRY; set by the call for the others: DELIVERED and DEAD always count */
    /*
     * RETRY: 0, or the group in which the request is set aside, so that it does not block the others of its rule and
     * key. From the due_ms of the group's last request on, each claim first returns the group's oldest to its lane.
     */
    uint64_t aside;
    int error; /* out: 0, LOST, GONE, or the error of the whole call */
};

/*
 * Reports how deliveries ended, through the handle that claimed them, in one transaction or round trip. LOST: the claim
 * has expired. Status 0 and a NULL `why` keep the values of the attempt before, except that a delivered request has no
 * `why`. After an error the call may be repeated; LOST then means that the first call was carried out.
 */
int weir__queue_end(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count);

/* Changes a request that is not under way: WEIR__ENDED_CANCELLED or WEIR__ENDED_REQUEUED. */
int weir__queue_change(struct weir__queue *queue, const char *ticket, enum weir__queue_end_kind kind);

/* One complete request; GONE if there is none. */
int weir__queue_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);

struct weir__queue_filter {
    int state;      /* enum weir__deferred_state; -1: any */
    weir_text rule; /* empty: any */
    uint64_t after; /* sequence */
    size_t limit;   /* 1 to 1000 */
};

/* In order of acceptance, without headers and body. Returns the last visit's result, 0, or an error. */
int weir__queue_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                     void *context);

/*
 * Makes waiting requests past their expires_ms dead ("expired") and removes ended ones past their retention. Returns
 * how many (WEIR__QUEUE_EXPIRE_MAX or more: call again), or an error. Call about once a second.
 */
int weir__queue_expire(struct weir__queue *queue, int64_t now_ms);

struct weir__queue_stats {
    weir_text rule;
    int64_t waiting, under_way, dead;
    int64_t bytes;     /* of waiting and under-way requests */
    int64_t oldest_ms; /* accepted_ms of the oldest of these; 0: there is none */
};

typedef int weir__queue_stats_visit(void *context, const struct weir__queue_stats *stats);
/* Visits each rule that has requests, ordered by name. */
int weir__queue_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);

/* ---- What the agent runs ---- */

/* In all of these, configuration, engine and log must outlive the object, and the configuration must have a queue. */

/* Dispatcher: delivers deferred requests as their limits admit them. */

struct weir__dispatcher;

/* NULL: out of memory. A queue that cannot be opened is logged once and retried. */
struct weir__dispatcher *weir__dispatcher_start(const struct weir__config *config, weir *engine,
                                                const struct weir__logger *log);
/* The queue has new requests; others were refused, and the gateway denied them. From any thread. NULL is allowed. */
void weir__dispatcher_ingested(struct weir__dispatcher *dispatcher, uint64_t accepted, uint64_t refused);
/* Ends the thread: waits 2 s for deliveries in progress and requeues the rest. NULL is allowed. */
void weir__dispatcher_finish(struct weir__dispatcher *dispatcher);
/* Finishes and frees. No thread may report to it afterwards. NULL is allowed. */
void weir__dispatcher_stop(struct weir__dispatcher *dispatcher);

/* Ingest: accepts requests that nginx defers, on STATE/queue.sock. */

struct weir__ingest;

/* Reports what it accepted and refused to the dispatcher. NULL on failure, with the reason in `why`. */
struct weir__ingest *weir__ingest_start(const struct weir__config *config, const struct weir__logger *log,
                                        struct weir__dispatcher *dispatcher, char *why, size_t why_size);
/* Replies to the requests in progress first. NULL is allowed. */
void weir__ingest_stop(struct weir__ingest *ingest);

/* Queue admin: stats, lists and changes as JSON, for the admin REST service and weir queue. */

/* Opens the queue at the first call. NULL: out of memory. */
struct weir__control_queue *weir__queue_admin_open(const struct weir__config *config, const struct weir__logger *log);
/* NULL is allowed. */
void weir__queue_admin_close(struct weir__control_queue *calls);

#endif
