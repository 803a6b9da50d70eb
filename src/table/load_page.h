/*
 * The load page: a small file next to the segment through which the agent publishes the load level, the throttle and
 * the shed shares ten times a second, and nginx workers report what they see of upstreams.
 *
 * Level, throttle and shares are packed in one word, so that a reader sees those of one moment. A page that the agent
 * has not written for WEIR__LOAD_STALE_NS reads as neutral.
 *
 * Each worker owns a shard while it runs, and refreshes its heartbeat. The totals in a shard only grow, and stay when
 * the shard changes its owner; requests in flight count only while the heartbeat is fresh, so that those of a killed
 * worker vanish with it.
 */
#ifndef WEIR_TABLE_LOAD_PAGE_H
#define WEIR_TABLE_LOAD_PAGE_H

#include "base/atomic.h"
#include "table/row_file.h"

#include <stddef.h>

#define WEIR__LOAD_STALE_NS (2 * INT64_C(1000000000)) /* older pages and heartbeats are those of a dead process */
#define WEIR__LOAD_SHARDS   128
#define WEIR__LOAD_FULL     1000 /* per mille */
#define WEIR__LOAD_CLASSES  4    /* of priority: critical, high, normal, low */
#define WEIR__LOAD_NO_SHARD UINT32_MAX

enum weir__signal {
    WEIR__SIGNAL_CPU,
    WEIR__SIGNAL_MEMORY,
    WEIR__SIGNAL_RUN_QUEUE,
    WEIR__SIGNAL_LATENCY,
    WEIR__SIGNAL_ERRORS,
    WEIR__SIGNAL_IN_FLIGHT,
    WEIR__SIGNALS
};

#define WEIR__SIGNAL_NONE UINT32_MAX

/* What the agent publishes, in per mille, 0 to 1000. */
struct weir__load_view {
    uint32_t level;                    /* smoothed, with hysteresis */
    uint32_t elastic_level;            /* for elastic limits: at least `level`, falls slowly */
    uint32_t throttle;                 /* position of adaptive limits between min (0) and max (1000) */
    uint32_t shed[WEIR__LOAD_CLASSES]; /* share of each class that is shed; 0 for critical */
    uint32_t signal[WEIR__SIGNALS];    /* WEIR__SIGNAL_NONE: not configured or not available */
    bool known;                        /* false: the page is stale, and the rest is neutral */
};

/* What one worker reports. */
struct weir__load_shard {
    uint64_t owner;     /* id of the worker; 0: free */
    uint64_t beat;      /* time of the last heartbeat, in ns */
    uint64_t in_flight; /* requests at an upstream now */
    uint64_t done;      /* responses of upstreams, errors included */
    uint64_t took_us;   /* total latency of responses without error */
    uint64_t errors;    /* 5xx, and responses that did not come */
    uint64_t failed_us; /* total latency of errors */
    uint64_t pad;
} __attribute__((aligned(64)));

struct weir__load_page {
    struct weir__row_header file;
    uint64_t pad[5];
    uint64_t state;       /* packed: level, throttle, shed shares */
    uint64_t signals;     /* packed, in the order of enum weir__signal */
    uint64_t written;     /* time of the last write, in ns; 0: never */
    uint64_t baseline_us; /* latency of upstreams without load; 0: unknown */
    uint64_t elastic_level;
    uint64_t rest[4096 / 8 - 13];
    struct weir__load_shard shard[WEIR__LOAD_SHARDS];
};

_Static_assert(offsetof(struct weir__load_page, shard) == 4096,
               "the words that requests read have a page of their own");

/* Only the header is checked: the rest of a damaged page is numbers, which are clamped when they are read. */
extern const struct weir__row_format weir__load_format;

/* `mono_ns` is weir_time.mono_ns, one clock for all processes. Wait-free. */
void weir__load_page_read(const struct weir__load_page *load, int64_t mono_ns, struct weir__load_view *view);
void weir__load_page_write(struct weir__load_page *load, int64_t mono_ns, const struct weir__load_view *view);
/*
 * The latency baseline, for the next agent: without it that agent would learn the baseline from what may be an
 * overload. 0: unknown, or the page was not written for WEIR__LOAD_BASELINE_NS.
 */
#define WEIR__LOAD_BASELINE_NS (60 * INT64_C(1000000000))
uint64_t weir__load_page_baseline(const struct weir__load_page *load, int64_t mono_ns);
void weir__load_page_set_baseline(struct weir__load_page *load, uint64_t baseline_us);
/* The values of a stale page: level 0, throttle full, nothing shed, no signals. */
struct weir__load_view weir__load_view_neutral(void);

/*
 * Acquires a shard for a worker, with 0 requests in flight. `owner` is unique and not 0. WEIR__LOAD_NO_SHARD: all are
 * owned by live workers; this worker's reports are ignored.
 */
unsigned weir__load_page_join(struct weir__load_page *load, uint64_t owner, int64_t mono_ns);
/*
 * Heartbeat, at least once a second; also corrects the number of requests in flight. False: another worker has acquired
 * the shard after this one was silent for too long; join again.
 */
bool weir__load_page_heartbeat(struct weir__load_page *load, unsigned shard, uint64_t owner, int64_t mono_ns,
                               uint64_t in_flight);
void weir__load_page_leave(struct weir__load_page *load, unsigned shard, uint64_t owner);

/* Reports a response of an upstream, or its failure to respond. */
void weir__load_page_upstream(struct weir__load_page *load, unsigned shard, int64_t took_us, bool error);
/* A request starts (1) or ends (-1): updates the number in flight between two heartbeats. */
void weir__load_page_in_flight(struct weir__load_page *load, unsigned shard, int more);

/* Totals of all shards, since the page was created. */
struct weir__upstream_sums {
    uint64_t done, took_us, errors, failed_us;
    uint64_t in_flight; /* now, of live workers */
    unsigned workers;   /* live ones */
};

void weir__load_page_sum(const struct weir__load_page *load, int64_t mono_ns, struct weir__upstream_sums *sums);

#endif
