/*
 * weir: rate limiting with counters in shared memory.
 *
 * libweir keeps one counter per key in a shared-memory segment of fixed size and decides in about one cache
 * miss. Every process that maps the segment shares the counters; nothing in here takes a lock.
 *
 *     weir_segment *seg;
 *     weir_limit limit;
 *     weir_segment_options how = {.path = "/dev/shm/demo", .size = 64 << 20, .flags = WEIR_OPEN_CREATE};
 *     weir_params five_a_minute = {.limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 1};
 *     weir_decision d;
 *
 *     if (weir_segment_open(&how, &seg) == 0 && weir_limit_init(&limit, &five_a_minute) == 0 &&
 *         weir_take(seg, &limit, "user:42", 7, 1, weir_clock(seg), &d) == 0 && weir_passes(&d))
 *         serve();
 *
 * Conventions
 * - A function that can fail returns 0 or a negative code from WEIR_ERRORS; on failure its outputs are untouched.
 *   A denied request is not a failure: it is a weir_decision.
 * - Every function may be called from any thread and, on a shared segment, from any process at the same time,
 *   except weir_segment_close, which must be the last call on its handle.
 * - After weir_segment_open nothing allocates. No thread-local state is needed. fork() is fine.
 * - `now` is always an argument: from weir_clock, or from a clock of your own that all users of the segment share.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define WEIR_VERSION "0.1.0"

#if defined(__GNUC__)
#define WEIR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define WEIR_MUST_CHECK
#endif

/* ---- Errors: code, name and text from one list, so that they cannot drift apart ---- */

#define WEIR_ERRORS(X)                                                                                                 \
    X(EINVAL, 1, "an argument is missing or contradicts another; see the function's comment in weir.h")                \
    X(ELIMIT, 2,                                                                                                       \
      "limit out of range; use 1 to 4294967295 (sliding_window_log and concurrency: 65535, "                           \
      "sliding_window_counter: 2147483647)")                                                                           \
    X(EWINDOW, 3, "window out of range; use whole microseconds, from 1 microsecond to 400 days (a lease: a day)")      \
    X(EBURST, 4, "burst out of range; use 1 to 4294967295, or 0 for the same as limit")                                \
    X(EOVERFLOW, 5,                                                                                                    \
      "limit, burst, soft and window together overflow the counter or take over 400 days to recover; "                 \
      "use smaller numbers")                                                                                           \
    X(EBUCKETS, 6, "buckets out of range; use 2 to 60, and a window of at least one microsecond a bucket")             \
    X(ESOFT, 7, "soft out of range; use 0 to 1000 per cent")                                                           \
    X(EZONE, 8, "unknown or unreadable time zone; use a name such as Europe/Berlin and install tzdata")                \
    X(EKEYEMPTY, 9, "the key is empty; a request without a key needs a key of its own, such as a constant")            \
    X(EKEYLONG, 10, "the key is longer than 65535 bytes; hash it or cut it first")                                     \
    X(ECOST, 11, "cost out of range; use -4294967295 to 4294967295")                                                   \
    X(ETIME, 12, "now is negative; pass what weir_clock returns")                                                      \
    X(EFULL, 13, "the segment's slab has no room for this log or counter; make the segment or its slab larger")        \
    X(EBUSY, 14, "gave up after too many collisions with other writers; nothing was taken, try again")                 \
    X(ENOTSEG, 15, "the file is not a weir segment; choose another path or remove the file")                           \
    X(ETRUNCATED, 16, "the segment file is shorter than its header says; rebuild it (WEIR_OPEN_REBUILD)")              \
    X(EDAMAGED, 17, "the segment is damaged; rebuild it (WEIR_OPEN_REBUILD)")                                          \
    X(EVERSION, 18, "the segment has another layout version; rebuild it (WEIR_OPEN_REBUILD) or use the matching weir") \
    X(ENOSPC, 19, "no space left for the segment; use a smaller size or free space on its file system")                \
    X(EPERM, 20,                                                                                                       \
      "no permission for the segment's path; check its owner and mode, and whether its file system is read-only")      \
    X(EREADONLY, 21, "the segment is mapped read-only; open it without WEIR_OPEN_READONLY to change it")               \
    X(ENOENT, 22, "no segment at this path: its folder is missing, or weir (weir serve, nginx) has not run here yet")  \
    X(EEXIST, 23, "something exists at this path already; attach to it, or choose another path")                       \
    X(ENOMEM, 24, "out of memory; free some, allow the process more, or use a smaller segment")                        \
    X(ESIZE, 25, "segment size out of range; use at least 64 KiB, with a slab of at most half of it")                  \
    X(ESYS, 26, "a system call failed; errno has the reason")                                                          \
    X(ECPU, 27, "this processor has no 16-byte compare-and-swap; weir needs cmpxchg16b or arm64")                      \
    X(ERULES, 28, "the rules have errors; each was reported with its place, and weir lint shows them")                 \
    X(ERULESPATH, 29, "the rules cannot be read; check the path and its permissions")                                  \
    X(ERULESBUSY, 30, "the rules are being written or loaded right now; they are read again later")                    \
    X(ETOOMANY, 31, "more than 256 rules match one request; make them fewer or narrower")                              \
    X(ENORULE, 32, "no rule of this name")                                                                             \
    X(ENOSTATS, 33, "the segment has no room for this rule's figures; make the segment larger")                        \
    X(ESTOREURL, 34, "the store's URL or one of its options is wrong; see docs/reference/store.md")                    \
    X(ESTOREDOWN, 35, "the store cannot be reached; is it running, and is its address right?")                         \
    X(ESTORESLOW, 36, "the store did not answer within the deadline")                                                  \
    X(ESTOREBREAKER, 37, "the store has failed several times in a row; no request is sent until a probe succeeds")     \
    X(ESTOREGARBAGE, 38, "invalid reply of the store; is it a Redis or Valkey, of version 5 or later?")                \
    X(ESTORELOADING, 39, "the store is loading its data (LOADING)")                                                    \
    X(ESTOREREADONLY, 40, "the store is a replica and takes no writes (READONLY); a failover may be under way")        \
    X(ESTOREOOM, 41, "the store is out of memory (OOM); raise its maxmemory")                                          \
    X(ESTORECROSSSLOT, 42, "the store is a cluster (CROSSSLOT or MOVED); use redis+cluster:// in its URL")             \
    X(ESTOREWRONGTYPE, 43, "something else has a counter's name in the store (WRONGTYPE); choose another prefix")      \
    X(ESTOREAUTH, 44, "the store refuses user, password or certificate (NOAUTH, WRONGPASS, NOPERM)")                   \
    X(ESTOREERROR, 45, "the store answered with an error that weir does not know; its log may say more")               \
    X(ESTORECLOCK, 46, "the store's clock and this host's are more than a window apart; set them")                     \
    X(ESTORELIMIT, 47, "limit and window are too large to be exact in the store; use smaller numbers, or local")       \
    X(ELOST, 48, "the segment's file was cut short while it was in use; remove it and open a new one")                 \
    X(EGUARDS, 49, "more than 16 segments are guarded in this process, or 256 files beside segments open")             \
    X(ELEASE, 50, "the lease has ended: its permit was released, or has expired and may be another request's")         \
    X(ELEDGER, 51, "the file of the ledger (by custom the segment's with .ledger) is something else; remove that one") \
    X(ESTOREDISK, 52,                                                                                                  \
      "the store takes no writes, as it cannot write to its disk (MISCONF); give it room, or see its log")             \
    X(ESTORECLIENTS, 53,                                                                                               \
      "the store accepts no more clients; raise its maxclients, or look for leaks with CLIENT LIST")                   \
    X(EOWNER, 54,                                                                                                      \
      "another user has put the file where everybody may make files; remove it, or use a folder of its own")           \
    X(ESTORELIB, 55,                                                                                                   \
      "weir_options.store needs the store library; link libweir-store (pkg-config weir-store) and call "               \
      "weir_store_use() first")                                                                                        \
    X(EBLOCKS, 56, "the store has 10000 blocks of keys already, the most that hosts share; unblock some")              \
    X(EHASHKEYS, 57, "the store gets no texts of keys (hash_keys), so other hosts cannot get this block or reset")     \
    X(EAGENT, 58, "no agent runs on this host that would send it to the others; start weir serve or weir agent")       \
    X(ERESIZED, 59,                                                                                                    \
      "the segment has grown, and this process has not enough address space to map it; raise its limit (ulimit -v) "   \
      "and restart it")                                                                                                \
    X(ERESIZING, 60, "another process is resizing the segment")

enum weir_error {
#define WEIR_ERROR_ENUM(name, number, text) WEIR_##name = -(number),
    WEIR_ERRORS(WEIR_ERROR_ENUM)
#undef WEIR_ERROR_ENUM
};

/* The text of an error, e.g. for a log line; never NULL. 0 is "success". */
const char *weir_strerror(int error);
/* The name of an error, e.g. "WEIR_EKEYLONG"; never NULL. */
const char *weir_error_name(int error);
/* The version of the library that is loaded, as WEIR_VERSION is the one compiled against. */
const char *weir_version(void);

/* ---- Time ---- */

#define WEIR_MICROSECOND INT64_C(1000)
#define WEIR_SECOND      INT64_C(1000000000)
#define WEIR_DAY         (86400 * WEIR_SECOND)

/*
 * A point in time on two clocks. Buckets and sliding windows run on mono_ns, which is never stepped; fixed windows
 * aligned to the clock or the calendar follow wall_ns (nanoseconds since 1970, UTC). Both are used in whole
 * microseconds, rounded so that never more is admitted.
 */
typedef struct weir_time {
    int64_t mono_ns;
    int64_t wall_ns;
} weir_time;

/* ---- A limit: params in, a checked and immutable weir_limit out ---- */

enum weir_algorithm {
    WEIR_TOKEN_BUCKET = 0,
    WEIR_LEAKY_BUCKET,
    WEIR_FIXED_WINDOW,
    WEIR_SLIDING_WINDOW_LOG,
    WEIR_SLIDING_WINDOW_COUNTER,
    WEIR_CONCURRENCY /* requests in flight: weir_acquire and weir_release */
};

enum weir_refill { WEIR_REFILL_CONTINUOUS = 0, WEIR_REFILL_INTERVAL };
enum weir_align { WEIR_ALIGN_CLOCK = 0, WEIR_ALIGN_FIRST_REQUEST, WEIR_ALIGN_CALENDAR };
enum weir_calendar { WEIR_CALENDAR_DAY = 0, WEIR_CALENDAR_WEEK, WEIR_CALENDAR_MONTH, WEIR_CALENDAR_YEAR };
enum weir_round { WEIR_ROUND_DOWN = 0, WEIR_ROUND_UP };

/* A time zone, loaded once and shared by any number of limits, which must not outlive it. */
typedef struct weir_zone weir_zone;
/* Loads the zone `name` (e.g. "Europe/Berlin", "UTC") from the system's time zone database. */
WEIR_MUST_CHECK int weir_zone_open(const char *name, weir_zone **zone);
void weir_zone_close(weir_zone *zone);

/* Parameters of a limit. Zero means the default everywhere; limit and a window are required. */
typedef struct weir_params {
    enum weir_algorithm algorithm; /* default: token bucket */
    int64_t limit;                 /* units a window */
    int64_t window_ns;           /* its length; not used with WEIR_ALIGN_CALENDAR. Concurrency: how long a slot is held
                                    at most, unless it is renewed; 0: a minute */
    int64_t burst;               /* bucket or queue size; token and leaky bucket only; 0: same as limit */
    enum weir_refill refill;     /* token bucket */
    enum weir_align align;       /* fixed window */
    enum weir_calendar calendar; /* fixed window with WEIR_ALIGN_CALENDAR; weeks start on Monday */
    const weir_zone *zone;       /* of `calendar`; NULL is UTC */
    bool count_rejected;         /* sliding window log: a denied request is logged, too */
    int buckets;                 /* sliding window counter: 2 (default) to 60 */
    enum weir_round round;       /* sliding window counter with 2 buckets */
    int soft_percent;            /* lets limit + soft_percent % pass, marked WEIR_OVER_SOFT */
    bool delay;                  /* leaky bucket: decisions have a delay */
    int64_t max_delay_ns;        /* leaky bucket with delay: longer delays are denied; 0: no bound */
    uint64_t id;                 /* limits with different ids do not share counters */
} weir_params;

/*
 * Opaque storage: these structs live in the caller's memory, their sizes are part of the ABI, and their contents are
 * private to the library.
 */
#define WEIR_LIMIT_BYTES       192
#define WEIR_LEASE_BYTES       48
#define WEIR_LOAD_WORKER_BYTES 32

#ifdef WEIR__BUILD
#include "base/opaque.h"
#else
/* A checked limit: made by weir_limit_init, read-only from then on. Copy it freely within the process. */
typedef struct weir_limit {
    union {
        unsigned char bytes[WEIR_LIMIT_BYTES];
        uint64_t align;
    } opaque;
} weir_limit;
/* A permit of a limit of WEIR_CONCURRENCY. Copy it freely, to other processes and hosts, too. */
typedef struct weir_lease {
    union {
        unsigned char bytes[WEIR_LEASE_BYTES];
        uint64_t align;
    } opaque;
} weir_lease;
/* The state of a process that reports its load, see load.h. */
typedef struct weir_load_worker {
    union {
        unsigned char bytes[WEIR_LOAD_WORKER_BYTES];
        uint64_t align;
    } opaque;
} weir_load_worker;
#endif

/* Checks `params` and makes a limit of them. */
WEIR_MUST_CHECK int weir_limit_init(weir_limit *limit, const weir_params *params);

/* ---- The segment ---- */

typedef struct weir_segment weir_segment;

enum {
    WEIR_OPEN_CREATE = 1,    /* make the segment if there is none; otherwise attach to it */
    WEIR_OPEN_EXCLUSIVE = 2, /* with CREATE: fail with WEIR_EEXIST if there is one */
    WEIR_OPEN_READONLY = 4,  /* map it read-only: peek, stats, validate and dump work, nothing else */
    WEIR_OPEN_REBUILD = 8,   /* with CREATE: replace a damaged one or one of another version by an empty one */
    /* Fail with WEIR_EOWNER where everybody may make files (/dev/shm) and one is neither this user's nor root's nor the
     * folder's owner's, or has several hard links. Follows no symbolic link. Files beside the segment (weir_options)
     * are always checked like this; the segment's owner may own them, too. */
    WEIR_OPEN_TRUSTED = 16
};

typedef struct weir_segment_options {
    const char *path;    /* NULL: anonymous memory, for this process and those it forks */
    uint64_t size;       /* bytes, all in; used when it is made, ignored when it exists */
    uint64_t slab_bytes; /* of these, for logs and counters of more than 2 buckets; 0: a sixteenth */
    bool no_slab;        /* none of it: such limits get WEIR_EFULL, and every other key a bit more room */
    int flags;           /* WEIR_OPEN_… */
    unsigned mode;       /* of a new file; 0: 0600 */
} weir_segment_options;

/* Opens, creates or attaches. All of a file's space is reserved here: it cannot run out later. */
WEIR_MUST_CHECK int weir_segment_open(const weir_segment_options *options, weir_segment **segment);
/* Unmaps; the counters stay in the file. NULL is allowed. */
void weir_segment_close(weir_segment *segment);

typedef struct weir_resize {
    uint64_t size_before;
    uint64_t size;  /* now; for WEIR_ESIZE the nearest that is possible, for WEIR_EFULL the smallest that would fit */
    uint64_t first; /* with which it was made; possible are 1, 2, 4, 8 and 16 times that */
    uint64_t live;  /* keys that are counted in it */
    uint64_t moved; /* entries that this call moved */
} weir_resize;

/*
 * Changes the size of a segment, in use or not: all processes that have it open decide meanwhile, keep their counters
 * and use the new size at once. Programs built with a version before this call must be ended first. The slab keeps its
 * size. A process that dies in here leaves the segment in order, at either size; the next call ends what it began, and
 * so it does after WEIR_EBUSY. result->size == result->size_before: it had that size already. A file that is truncated
 * meanwhile is WEIR_ELOST: while the call runs, the segment is guarded as by weir_segment_guard.
 */
WEIR_MUST_CHECK int weir_segment_resize(const char *path, uint64_t size, weir_resize *result);
/*
 * Converts a segment of an older layout, which no process may have open: those would go on with the old one. All of it
 * is kept. *layout is the number that was found. Returns 1 if it was converted, 0 if it is the present one already.
 * WEIR_EVERSION: a layout that cannot be converted; a new segment begins with empty counters. WEIR_ELOST: the file was
 * truncated meanwhile, and is not converted; the call guards it as weir_segment_resize does.
 */
WEIR_MUST_CHECK int weir_segment_convert(const char *path, unsigned *layout);

/*
 * A process with write access to the segment's file can truncate it; every process that has it mapped then gets SIGBUS
 * at its next decision, which ends it. With a guard, the process continues with private empty memory in place of the
 * segment: calls that would decide return WEIR_ELOST, and weir_check applies each rule's on_store_failure. The only way
 * back is to open another segment.
 *
 * Installs a handler for SIGBUS, one for the whole process, kept across fork; a library must not do that unasked, hence
 * this call. Faults in other memory and signals sent by processes go to the previous handler. The handler is removed
 * with the last guarded segment. WEIR_EGUARDS: 16 segments are guarded already.
 */
WEIR_MUST_CHECK int weir_segment_guard(weir_segment *segment);
/* True once the segment was lost in this process. */
bool weir_segment_lost(const weir_segment *segment);

/*
 * Reads the clocks: CLOCK_BOOTTIME, continued across reboots on the segment's own scale, and CLOCK_REALTIME. The
 * segment must not be NULL.
 */
weir_time weir_clock(const weir_segment *segment);

/* ---- Decisions ---- */

enum weir_verdict {
    WEIR_ALLOW = 0,
    WEIR_DELAY,      /* allowed, after delay_ns */
    WEIR_DENY,       /* over the limit; retry_after_ns says when it fits */
    WEIR_NEVER_FITS, /* the cost is more than the limit could ever hold: waiting does not help */
    WEIR_BLOCKED     /* an operator blocked the key; retry_after_ns says until when */
};

enum {
    WEIR_OVER_SOFT = 1, /* allowed, but only thanks to soft */
    WEIR_WARNED = 2     /* weir_check: the first request of its window at or above the rule's warn_at */
};

typedef struct weir_decision {
    enum weir_verdict verdict;
    uint32_t flags;
    int64_t limit;          /* what the key may hold at once, without soft */
    int64_t remaining;      /* of it, after this decision; negative while in soft or in debt */
    int64_t delay_ns;       /* 0 unless WEIR_DELAY */
    int64_t retry_after_ns; /* 0 if it passed, -1 if waiting never helps */
    int64_t reset_after_ns; /* until the key has fully recovered; -1: unknown (concurrency) */
} weir_decision;

static inline bool weir_passes(const weir_decision *decision)
{
    return decision->verdict == WEIR_ALLOW || decision->verdict == WEIR_DELAY;
}

/*
 * Takes `cost` units for `key`, or nothing if they do not fit. Cost 0 is a peek; a negative cost is a refund, at most
 * up to an unused key.
 */
WEIR_MUST_CHECK int weir_take(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                              int64_t cost, weir_time now, weir_decision *decision);

typedef struct weir_request {
    const weir_limit *limit;
    const void *key;
    size_t key_len;
    int64_t cost;
    int error;              /* out: 0 or why this one could not be decided */
    weir_decision decision; /* out, when error is 0 */
} weir_request;

/*
 * Decides `count` requests in order, each on its own as weir_take does, with prefetching. Returns the number of
 * requests whose error is not 0, or a negative error if none was decided (WEIR_EINVAL, also for more than INT32_MAX at
 * once; WEIR_EREADONLY) or the decisions are void (WEIR_ELOST). A concurrent block takes effect some thousand requests
 * later at the latest.
 */
WEIR_MUST_CHECK int weir_take_batch(weir_segment *segment, weir_request *requests, size_t count, weir_time now);

/* The decision of a weir_take with this cost now; writes nothing, so it works on a read-only mapping. */
WEIR_MUST_CHECK int weir_peek(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                              int64_t cost, weir_time now, weir_decision *decision);
/*
 * Refunds `amount` units that were taken at `now`, the time of the take, however long ago. Refunds less if units have
 * recovered meanwhile, never so much that more is admitted than without the take (docs/reference/algorithms.md).
 */
WEIR_MUST_CHECK int weir_refund(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                                int64_t amount, weir_time now, weir_decision *decision);
/* Takes `amount` units whether they fit or not (they were consumed elsewhere); may leave the key in debt. */
WEIR_MUST_CHECK int weir_charge(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                                int64_t amount, weir_time now, weir_decision *decision);
/* Resets the counter of the key. A block stays. */
WEIR_MUST_CHECK int weir_reset(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                               weir_time now);
/*
 * Denies every request of the key until now + for_ns (at most 400 days; rounded up to hundredths of a second); its
 * counter goes on as it was. 0 unblocks.
 */
WEIR_MUST_CHECK int weir_block(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                               int64_t for_ns, weir_time now);

/* ---- Requests in flight ---- */

/*
 * Takes one permit of the key under a limit of WEIR_CONCURRENCY, if one is free: *lease is written if the decision
 * passes. The permit is free again when it is released, or when its lease (the limit's window) expires; renew it for
 * longer requests. At most as many permits as the limit are held at once. weir_take does the same without a lease: such
 * a permit cannot be released. weir_refund and weir_charge have no effect on such limits.
 */
WEIR_MUST_CHECK int weir_acquire(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                                 weir_time now, weir_lease *lease, weir_decision *decision);
/*
 * Releases a permit. WEIR_ELEASE: it was released before, or has expired and may be another request's, which keeps it;
 * this is harmless.
 */
int weir_release(weir_segment *segment, const weir_lease *lease, weir_time now);
/* Extends the lease by a full window from now; `lease` is changed, and copies of the old one are void. WEIR_ELEASE: it
 * has ended. */
WEIR_MUST_CHECK int weir_renew(weir_segment *segment, weir_lease *lease, weir_time now);

/*
 * Counts a wrong password or token, and returns the delay of its reply in nanoseconds: 100 ms, doubled for each further
 * one of the same `peer` (an address, or its network) that is not forgotten yet, at most 5 s; one is forgotten every
 * 10 s. Many of all peers together raise the delay, up to the same bound. The reply to a right one must not be delayed.
 * Without a segment, or if it cannot be written to: 5 s.
 */
int64_t weir_auth_failure(weir_segment *segment, const void *peer, size_t peer_len, weir_time now);

/*
 * The delay of the check of a password or token, right or wrong, in nanoseconds, so that a client that does not wait
 * for the reply learns nothing. 0 while at most 5 wrong ones of `peer` are not forgotten; then 250 ms, doubled for each
 * further one, at most 2 s. Also 2 s if there is at least one, and more than 500 of all peers together. Without a
 * segment, or if it cannot be read: 2 s. Counts nothing.
 */
int64_t weir_auth_delay(const weir_segment *segment, const void *peer, size_t peer_len, weir_time now);

/* ---- Inspection ---- */

/* Totals since the segment was made; not a snapshot of one moment. */
typedef struct weir_stats {
    /* Decisions: of weir_take, one each; of a store; and of rules that denied before anything was taken. */
    uint64_t allowed, delayed, denied, never_fits, blocked;
    uint64_t soft;           /* of the allowed ones: above the limit without soft */
    uint64_t errors;         /* takes that failed with a code */
    uint64_t created;        /* keys that got a slot */
    uint64_t evicted_live;   /* keys that lost their slot before they had recovered: the segment is too small */
    uint64_t displaced;      /* cuckoo displacements: entries moved to their alternate bucket */
    uint64_t retries;        /* compare-and-swaps lost to another writer, except the first one on the fast path */
    uint64_t evicted_denied; /* of evicted_live: keys that were denied or blocked, whose counters started anew */
    uint64_t slab_full;      /* requests for a log or wide counter that the slab had no room for (WEIR_EFULL) */
    uint64_t auth_failures;  /* calls of weir_auth_failure */
    uint64_t slots;          /* in the segment */
    uint64_t chunks;         /* of slab in it, 32 bytes each */
    uint64_t bytes;          /* of the segment, all in */
} weir_stats;

WEIR_MUST_CHECK int weir_stats_read(const weir_segment *segment, weir_stats *stats);

enum weir_entry_kind { WEIR_ENTRY_COUNTER = 0, WEIR_ENTRY_TENTATIVE, WEIR_ENTRY_MOVING };

/* One occupied slot. Keys are stored as hashes only. */
typedef struct weir_entry {
    uint64_t bucket;
    int slot;
    enum weir_entry_kind kind;
    uint64_t tag;
    bool wall;             /* its times follow the wall clock */
    bool live;             /* has not recovered yet */
    int64_t anchor_us;     /* start of the bucket's run or of the window, on its clock */
    uint64_t used;         /* units counted since; for logs and wide counters, the reference to their record */
    int64_t expires_in_us; /* negative: expired */
} weir_entry;

/* Calls `visit` for each occupied slot until it returns non-zero, which is returned. Works while others write. */
WEIR_MUST_CHECK int weir_segment_each(const weir_segment *segment, weir_time now,
                                      int (*visit)(void *context, const weir_entry *entry), void *context);

/*
 * Fill level of the segment, from a sample of about `slots` slots: *live of the *looked have a key that has not
 * recovered. A few thousand slots give it within one or two per cent.
 */
WEIR_MUST_CHECK int weir_segment_sample(const weir_segment *segment, weir_time now, uint64_t slots, uint64_t *looked,
                                        uint64_t *live);

/* Result of a validation of every slot. Exact on a quiet segment, a lower bound under load. */
typedef struct weir_report {
    uint64_t live;       /* entries that have not recovered (information, not damage) */
    uint64_t tentative;  /* left by a process that died, or about to be completed (information) */
    uint64_t moving;     /* the same for moves (information) */
    uint64_t future;     /* over an hour ahead of their clock: it was stepped back (information) */
    uint64_t duplicates; /* one key counted in two places */
    uint64_t bad_state;  /* entries in a state that does not exist */
} weir_report;

/* 0 if sound, WEIR_EDAMAGED if any of the faults was found; fills `report` either way. */
WEIR_MUST_CHECK int weir_segment_validate(const weir_segment *segment, weir_time now, weir_report *report);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#include <weir/check.h>

#endif
