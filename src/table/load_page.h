/*
 * The load page: how loaded this host is, and what that means for its limits. One small file beside the segment. The
 * agent writes the level ten times a second; whoever decides reads it; nginx workers add what they see of the upstream.
 *
 * What deciders read is in two words, each written and read whole: level, throttle and shares of one moment belong
 * together. An agent that has not written for WEIR__LOAD_STALE_NS says nothing, and the page is neutral.
 *
 * A worker has a shard of its own while it runs, with a beat. The sums in it only grow and stay when the shard goes
 * to another; its requests in flight count only while it beats: those of one that was killed are gone with it.
 */
#ifndef WEIR_TABLE_LOAD_PAGE_H
#define WEIR_TABLE_LOAD_PAGE_H

#include "base/atomic.h"

#include <stddef.h>

#define WEIR__LOAD_LAYOUT 1
#define WEIR__LOAD_MAGIC  UINT64_C(0x0a44414f4c5245f7)
#define WEIR__LOAD_STALE_NS                                                                                            \
    (2 * INT64_C(1000000000)) /* an agent, or a worker, that has been silent for so long is gone */
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

/* All in per mille, 0 to 1000. */
struct weir__load_view {
    uint32_t level;                    /* smoothed, with hysteresis; shown as 0 to 100 */
    uint32_t elastic_level;            /* the level for elastic limits: at least that, and comes down slowly */
    uint32_t throttle;                 /* of adaptive limits: 1000 is their max, 0 their min */
    uint32_t shed[WEIR__LOAD_CLASSES]; /* which share of the requests of a class is shed; critical is 0 */
    uint32_t signal[WEIR__SIGNALS];    /* each one's own level; WEIR__SIGNAL_NONE: not configured, or not to be had */
    bool known;                        /* false: nobody says, and all of this is neutral */
};

/* What a worker saw. */
struct weir__load_shard {
    uint64_t owner;     /* whose it is; 0: free */
    uint64_t beat;      /* when it was last known to be alive */
    uint64_t in_flight; /* its requests with an upstream */
    uint64_t done;      /* answers of upstreams; errors: those of 5xx, and those that did not come */
    uint64_t took_us;   /* by those that were no errors: what fails at once is not fast */
    uint64_t errors;
    uint64_t failed_us; /* by errors */
    uint64_t pad;
} __attribute__((aligned(64)));

struct weir__load_page {
    uint64_t magic;
    uint32_t layout;
    uint32_t shards;
    uint64_t bytes;
    uint64_t pad[5];
    uint64_t state;       /* level, throttle, shares */
    uint64_t signals;     /* in their order */
    uint64_t written;     /* when; 0: never */
    uint64_t baseline_us; /* microseconds that upstreams usually take; 0: nobody knows */
    uint64_t elastic_level;
    uint64_t rest[4096 / 8 - 13];
    struct weir__load_shard shard[WEIR__LOAD_SHARDS];
};

_Static_assert(offsetof(struct weir__load_page, shard) == 4096, "the words of deciders have a page of their own");

/* Makes an empty page of zeroed memory. False: it does not fit. */
bool weir__load_page_init(void *memory, size_t bytes);
/* True if there is a sound one: all else of a damaged file is numbers, none of which can lead astray. */
bool weir__load_page_valid(const void *memory, size_t bytes);

/* By a clock that the agent shares with all who ask: weir_time.mono_ns. Reading is three loads, and never waits. */
void weir__load_page_read(const struct weir__load_page *load, int64_t mono_ns, struct weir__load_view *view);
void weir__load_page_write(struct weir__load_page *load, int64_t mono_ns, const struct weir__load_view *view);
/*
 * How long upstreams usually take, in microseconds: for the agent that comes next, which would have to take what it
 * sees first for the baseline. 0: nobody knows, or nobody has written anything for WEIR__LOAD_BASELINE_NS.
 */
#define WEIR__LOAD_BASELINE_NS (60 * INT64_C(1000000000))
uint64_t weir__load_page_baseline(const struct weir__load_page *load, int64_t mono_ns);
void weir__load_page_set_baseline(struct weir__load_page *load, uint64_t baseline_us);
/* What there is when nobody says. */
struct weir__load_view weir__load_view_neutral(void);

/*
 * Takes a shard for a worker: `owner` is any number of its own but 0. Its in-flight begins at 0. WEIR__LOAD_NO_SHARD:
 * all are taken by the living, and the worker goes without.
 */
unsigned weir__load_page_join(struct weir__load_page *load, uint64_t owner, int64_t mono_ns);
/*
 * Says that the worker lives, and how many requests it has in flight: so what went wrong meanwhile is put right. False:
 * the shard is another's by now (it was silent for too long), and it has to join again. At least once a second.
 */
bool weir__load_page_heartbeat(struct weir__load_page *load, unsigned shard, uint64_t owner, int64_t mono_ns,
                               uint64_t in_flight);
void weir__load_page_leave(struct weir__load_page *load, unsigned shard, uint64_t owner);

/* An upstream has answered, or failed to. */
void weir__load_page_upstream(struct weir__load_page *load, unsigned shard, int64_t took_us, bool error);
/* A request goes to an upstream; it is over. Between two beats these keep the number right. */
void weir__load_page_begin(struct weir__load_page *load, unsigned shard);
void weir__load_page_end(struct weir__load_page *load, unsigned shard);

/* Over all shards; the first four since the page was made. */
struct weir__upstream_sums {
    uint64_t done, took_us, errors, failed_us;
    uint64_t in_flight; /* of those who beat */
    unsigned workers;   /* the same */
};

void weir__load_page_sum(const struct weir__load_page *load, int64_t mono_ns, struct weir__upstream_sums *sums);

#endif
