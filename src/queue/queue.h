/*
 * Requests that wait until their limit lets them: kept in SQLite on the host, or in Redis where a store is configured.
 * docs/queue.md says what always holds.
 *
 * A handle is used by one thread at a time. Any number of handles, in any number of processes, may be open at once.
 * Functions return 0 or an error of the list below; what they did not acknowledge has not happened, but for
 * WEIR__QUEUE_UNKNOWN.
 */
#ifndef WEIR_QUEUE_QUEUE_H
#define WEIR_QUEUE_QUEUE_H

#include "base/text.h"

/* Code, and what to tell who asked. */
#define WEIR__QUEUE_ERRORS(X)                                                                                          \
    X(FULL, 1, "the queue is full")                                                                                    \
    X(TOO_LARGE, 2, "the request is larger than the queue takes")                                                      \
    X(INVALID, 3, "the request cannot be kept: no rule, no method or no target")                                       \
    X(GONE, 4, "there is no such ticket")                                                                              \
    X(STATE, 5, "the request's state does not allow that")                                                             \
    X(LOST, 6, "the claim has ended, and somebody else may have the request by now")                                   \
    X(STANDBY, 7, "another agent drains the queue")                                                                    \
    X(BUSY, 8, "the queue is locked by somebody else; nothing was changed")                                            \
    X(UNAVAILABLE, 9, "the queue cannot be reached; nothing was changed")                                              \
    X(SPACE, 10, "the queue's disk or memory is full; nothing was changed")                                            \
    X(READONLY, 11, "the queue cannot be written to; nothing was changed")                                             \
    X(BROKEN, 12, "the queue is damaged or of another kind; nothing was changed")                                      \
    X(NEWER, 13, "the queue was made by a later version of weir; use that one")                                        \
    X(URL, 14, "the queue's address is wrong; use sqlite:PATH or a store's URL")                                       \
    X(MEMORY, 15, "out of memory; nothing was changed")                                                                \
    X(UNKNOWN, 16, "the connection broke in the middle; it is not known whether that was carried out")                 \
    X(REMOVED, 17, "the queue's file was removed or replaced, and with it what was in it")

enum weir__queue_error {
    WEIR__QUEUE_OK = 0,
#define WEIR__QUEUE_ENUM(name, number, text) WEIR__QUEUE_##name = -(number),
    WEIR__QUEUE_ERRORS(WEIR__QUEUE_ENUM)
#undef WEIR__QUEUE_ENUM
};

const char *weir__queue_strerror(int error);

#define WEIR__TICKET_LEN        32               /* lower-case hexadecimal digits */
#define WEIR__QUEUE_ITEM_MAX    (4u << 20)       /* weir__deferred_bytes at most */
#define WEIR__QUEUE_OVERHEAD    512              /* what a request costs besides its texts: columns, indexes, pages */
#define WEIR__QUEUE_WHY_MAX     255              /* bytes of a reason; the rest is cut off */
#define WEIR__QUEUE_CLAIM_MAX   1024             /* heads of one claim */
#define WEIR__QUEUE_EXPIRE_MAX  1000             /* what one call of weir__queue_expire changes, each of its kinds */
#define WEIR__QUEUE_KEEP_MS     (3600 * 1000ll)  /* default of keep_ms */
#define WEIR__QUEUE_KEEP_MAX    100000           /* default of keep_max */
#define WEIR__QUEUE_DEAD_MS     (7 * 86400000ll) /* default of dead_ms */
#define WEIR__QUEUE_DEAD_MAX    10000            /* default of dead_max */
#define WEIR__QUEUE_LEASE_MS    5000             /* default of lease_ms */
#define WEIR__QUEUE_WAIT_MS     3000             /* default of wait_ms */
#define WEIR__QUEUE_AHEAD_MS    (6 * 60000ll)    /* how far ahead a request is due at most */
#define WEIR__QUEUE_SOURCE_TEXT 256

enum weir__deferred_state { WEIR__WAITING, WEIR__UNDER_WAY, WEIR__DELIVERED, WEIR__DEAD, WEIR__CANCELLED };
#define WEIR__DEFERRED_STATES 5

/* "waiting", "under_way", "delivered", "dead", "cancelled". */
const char *weir__deferred_state_name(enum weir__deferred_state state);

/* A request. Texts may hold any bytes, also zeros. */
struct weir__deferred {
    char ticket[WEIR__TICKET_LEN + 1];
    weir_text rule, key;
    int64_t cost;
    weir_text method, target;
    weir_text headers; /* "Name: value\r\n"... */
    weir_text body;
    int64_t accepted_ms; /* wall clock; at a put 0: now */
    int64_t due_ms;      /* not before; at a put 0: at once; WEIR__QUEUE_AHEAD_MS from then at most */
    int64_t expires_ms;  /* set by the put: from the ages of the rule and of the queue */
    int64_t ended_ms;    /* delivered, dead or cancelled: since when; else 0 */
    int attempts;
    enum weir__deferred_state state;
    weir_text why;     /* of the last failure; dead: the reason */
    int last_status;   /* 0: no answer yet */
    uint64_t sequence; /* order of acceptance in the whole queue */
};

/* What it counts against the bounds: its texts and WEIR__QUEUE_OVERHEAD. */
int64_t weir__deferred_bytes(const struct weir__deferred *item);

/* 0: no bound. Requests that wait or are under way count. */
struct weir__queue_bounds {
    int64_t max, max_bytes, max_age_ms;
};

struct weir__queue_options {
    const char *url; /* sqlite:PATH, or a store's URL (weir__store_parse) */
    /* SQLite: what was put is on the disk at the next put or weir__queue_expire a second later; else before the put
     * returns. */
    bool sync_second;
    struct weir__queue_bounds bounds; /* of all rules together */
    /*
     * What is delivered or cancelled is remembered without headers and body for keep_ms, the newest keep_max of them;
     * what is dead as it is for dead_ms, the newest dead_max and at most bounds.max_bytes of them. 0: the default.
     */
    int64_t keep_ms, keep_max, dead_ms, dead_max;
    /*
     * Who claims: the host's or the agent's own name, the same after a restart. The first claim of a handle ends all
     * claims that were made under this name before, so that a restarted agent goes on at once: no two that live may
     * have the same. NULL or "": "agent".
     */
    const char *name;
    int64_t lease_ms; /* Redis: for how long after its last claim an agent stays the one that drains; 0: the default */
    int64_t wait_ms;  /* Redis: how long an answer may take, before which it writes to its disk; 0: the default */
    int64_t (*clock_ms)(void); /* the wall clock; NULL: the system's */
    /* Redis: shared by handles of which one delivers what another puts; must stay. NULL: the handle has its own. */
    struct weir__in_doubt *in_doubt;
    /* SQLite: closing a queue whose file was removed or moved has kept its log under this path. NULL: nobody hears it.
     */
    void (*set_aside)(const void *context, const char *path);
    const void *context;
};

struct weir__queue;

/*
 * SQLite: the file is made if there is none. Redis: succeeds although nothing answers (WEIR__QUEUE_UNAVAILABLE comes
 * later). `why` (WEIR__QUEUE_SOURCE_TEXT bytes, may be NULL): more about an error.
 */
int weir__queue_open(const struct weir__queue_options *options, struct weir__queue **queue, char *why);
/*
 * After WEIR__QUEUE_REMOVED it may be opened anew: what is there then is another queue, or a new one. If the file was
 * only moved away, all that was acknowledged is in it.
 */
void weir__queue_close(struct weir__queue *queue);
/* What the storage itself said of the last error: for the log, not for clients. */
const char *weir__queue_why(const struct weir__queue *queue);

/*
 * Puts all of them in one transaction; on Redis in as many as their bytes need, on their way together. 0: each has its
 * ticket, sequence, expires_ms and 0 in `errors`, or its own error there (FULL, TOO_LARGE, INVALID …) and is not kept.
 * Otherwise none is kept, and `errors` is the same for all. bounds[i] are those of the rule of items[i].
 */
int weir__queue_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                    int *errors, size_t count);

/*
 * Cancels what was put with WEIR__QUEUE_UNKNOWN. Returns how many are left, as the storage cannot be asked or they are
 * under way: call it again soon. A put does the same, and no handle that shares `in_doubt` delivers them.
 */
size_t weir__queue_cancel_in_doubt(struct weir__queue *queue);

/* The request is there during the call only. Must not call the queue. Non-zero ends a list, and is returned by it. */
typedef int weir__deferred_visit(void *context, const struct weir__deferred *deferred);

/* How many of a rule who claims has under way already. */
struct weir__queue_in_flight {
    weir_text rule;
    size_t count;
};

/* What a claim has room for, and how that is shared out. */
struct weir__claim_budget {
    size_t free; /* heads at most, and WEIR__QUEUE_CLAIM_MAX */
    /* A rule gets one only while it has less than is still free: so some is left for rules that have nothing yet. */
    bool fair;
    const struct weir__queue_in_flight *in_flight;
    size_t in_flight_count;
};

/*
 * Claims heads: the oldest that waits of its rule and key, and not aside, due, and none of whose key is under way. Each
 * goes to the rule that has the least, among these to the oldest head; those that were claimed are visited in order of
 * acceptance, with all they have, whatever `visit` returns. What is due farther ahead than WEIR__QUEUE_AHEAD_MS is due
 * at once: the clock was set back. A claim ends after claim_ms, and the request waits again: for those of an agent that
 * died. claim_ms must be longer than a delivery may take, and the same for all agents. Redis: STANDBY as long as
 * another agent drains, which is asked anew with every call; call it at least twice in lease_ms to stay the one.
 * Returns the number of claimed ones, or an error. There may be more as long as that is not 0.
 */
int weir__queue_claim(struct weir__queue *queue, int64_t now_ms, int64_t claim_ms,
                      const struct weir__claim_budget *room, weir__deferred_visit *visit, void *context);

enum weir__queue_end_kind {
    WEIR__ENDED_DELIVERED,
    WEIR__ENDED_RETRY, /* it waits again, until due_ms: it failed (attempt_counts), or there are no tokens yet */
    WEIR__ENDED_DEAD
};

struct weir__queue_ending {
    const char *ticket;
    enum weir__queue_end_kind kind;
    int64_t due_ms; /* again */
    const char *why;
    int status;
    bool attempt_counts; /* again; the others do */
    /*
     * Again: 0, or a group in which it waits aside, so that it does not hold up the others of its rule and key. From
     * due_ms on, that of the group's last, each claim first brings back the oldest of the group, to its old place.
     */
    uint64_t aside;
    int error; /* out: 0, LOST, GONE, or what went wrong with all */
};

/*
 * What has become of those that are under way, with the handle that claimed them: in one transaction, or one round
 * trip. Of each, LOST: its claim has ended. Delivered and dead count as an attempt. Status 0 and no `why` leave those
 * of the attempt before; a delivered one has no `why` but its own. An error is that of all, and each may be told again:
 * LOST then says that it was carried out.
 */
int weir__queue_end(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count);

/* Waiting or dead → cancelled; STATE otherwise. */
int weir__queue_cancel(struct weir__queue *queue, const char *ticket);
/*
 * Dead → waiting: due at once, no attempts, its whole age before it, and in its old place among those of its key that
 * still wait. FULL: no room within the bounds of all.
 */
int weir__queue_requeue(struct weir__queue *queue, const char *ticket);

/* One request with all it has; GONE if there is none. */
int weir__queue_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);

struct weir__queue_filter {
    int state;      /* enum weir__deferred_state; -1: any */
    weir_text rule; /* empty: any */
    uint64_t after; /* sequence */
    size_t limit;   /* 1 to 1000 */
};

/* In order of acceptance, without headers and body. Returns what the last visit did, 0, or an error. */
int weir__queue_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                     void *context);

/*
 * What waits for longer than its age becomes dead ("expired"); what is over for longer than it is kept is forgotten.
 * Returns how many that were: WEIR__QUEUE_EXPIRE_MAX or more, then there may be more; or an error. To be called about
 * once a second.
 */
int weir__queue_expire(struct weir__queue *queue, int64_t now_ms);

struct weir__queue_stats {
    weir_text rule;
    int64_t waiting, under_way, dead;
    int64_t bytes;     /* of those that wait or are under way */
    int64_t oldest_ms; /* when the oldest of these was accepted; 0: there is none */
};

typedef int weir__queue_stats_visit(void *context, const struct weir__queue_stats *stats);
/* Each rule that has any of them, in the order of their names. */
int weir__queue_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);

#endif
