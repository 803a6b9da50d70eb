/*
 * Rules of `scope: global`: the exchange of one region with the stores of the others (docs/internals/regions.md).
 *
 * The script adds what this region's hosts report to a ledger for each other region, in the region's own store. One
 * elected agent takes batches out of the ledgers and sends them as ops EXCHANGE, with a sender and a number, as a host
 * sends its own. A batch is recorded in the own store before it is sent, and its successor repeats it unchanged.
 */
#ifndef WEIR_SYNC_REGIONS_H
#define WEIR_SYNC_REGIONS_H

#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/store_options.h"

#define WEIR__REGION_ELECT_MS  250  /* between two rounds of the election */
#define WEIR__REGION_BATCH_MAX 1024 /* counters of a batch */

/* The script lua/regions.lua and its SHA-1 for EVALSHA. */
extern const char weir__regions_script[];
extern const char weir__regions_script_sha[41];

/* All must outlive the exchange. */
struct weir__regions_options {
    weir *engine; /* its rules, and the ledger whose header gets the statistics */
    const struct weir__logger *log;
    const char *region, *host; /* names of this region and this host */
    const struct weir__store_options *own;
    int64_t interval_us;
    struct weir__other_region {
        const char *name;
        const struct weir__store_options *store;
    } others[WEIR__REGIONS_MAX];
    size_t other_count;
};

struct weir__regions;

/* NULL: no memory. */
struct weir__regions *weir__regions_new(const struct weir__regions_options *options);
void weir__regions_free(struct weir__regions *regions);

/* Removes the statistics of regions from the ledger's header. */
void weir__regions_clear(weir *engine);

/* One round of the election. 1: this agent is elected; 0: another one is; or an error. */
int weir__regions_elect(struct weir__regions *regions);
/* Another thread may call it: all calls but weir__regions_leave end within so long from now, also those under way. */
void weir__regions_end(struct weir__regions *regions, int64_t within_us);
/* Gives the election up, so that another agent is elected at once. */
void weir__regions_leave(struct weir__regions *regions);
/*
 * Sends one batch to the other region of this index: of all counters, or only of exhausted ones. Returns how many
 * counters it had, without those that return to the ledger, 0 also without an election; or an error: the batch is
 * repeated by the next call. *more: the next call should follow at once, as not all counters that were asked for fit in
 * the batch; never if all of a batch return.
 */
int weir__regions_exchange(struct weir__regions *regions, size_t index, bool all, bool *more);

/* ---- Rules that are unknown ---- */

#define WEIR__UNKNOWN_RULES     32
#define WEIR__UNKNOWN_DROP_MS   60000  /* units of a rule that has been unknown for so long are dropped */
#define WEIR__UNKNOWN_FORGET_MS 300000 /* without units, such as in a partition; five times the longest interval */

/* The rules that counters of a ledger have and weir.yaml has not. If there are more, the one that was seen least
 * recently begins anew. */
struct weir__unknown_rules {
    struct weir__unknown_rule {
        uint64_t rule;
        int64_t since_ms, seen_ms; /* unknown since, and at the last look; seen_ms 0: free */
    } rules[WEIR__UNKNOWN_RULES];
};

/* Notes whether the rule of a counter is known. True: it has been unknown for so long that its units are dropped. */
bool weir__unknown_rules_look(struct weir__unknown_rules *unknown, uint64_t rule, bool known, int64_t now_ms);

/* ---- The agent's threads ---- */

struct weir__region_threads;

/* Starts them for the regions of weir.yaml, if there are some. NULL with *failed: no memory, no thread left, or wrong
 * options, which was logged. */
struct weir__region_threads *weir__region_threads_start(const struct weir__config *config,
                                                        const struct weir__logger *log, weir *engine, bool *failed);
/* Each does a last exchange, and ends: after one second at most. NULL is allowed. */
void weir__region_threads_end(struct weir__region_threads *threads);
/* The same, waits for them, and frees all. NULL is allowed. */
void weir__region_threads_stop(struct weir__region_threads *threads);

#endif
