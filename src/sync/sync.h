/*
 * Synchronization of the delta ledger with the store: how the hosts of a cluster agree on counters of
 * `consistency: eventual` rules. docs/internals/sync.md.
 *
 * The data plane decides on the host's own counter and records what passed in the delta ledger (table/ledger.h): one
 * ENTRY per counter, with the unsent delta. The agent runs this protocol:
 *
 *   ROUND   once an interval (50 ms). Sends the delta of each entry that changed since the previous round, or that is
 *           scheduled for polling because another host used the counter recently. A round with many counters is cut
 *           into up to 16 slices of the ledger, spaced evenly over the interval, so that neither side works in bursts.
 *   BATCH   at most 4096 entries of a round, sent as one request. Its number, its entries and their deltas are written
 *           to the ledger before it is sent ("in flight"). At most one batch is in flight; a batch that failed is sent
 *           again, unchanged, before any new one, also by the agent that replaces a killed one.
 *   OP      one EXCHANGE of a batch: the script adds the delta to the store's counter and replies what remains for all
 *           hosts. The agent then moves the host's counter to that, less what the host has recorded since.
 *
 * Invariants:
 *   1. A delta leaves the ledger only when the store has acknowledged it (or its window is over, or its rule is gone
 *      for a minute). Removal is idempotent per batch number, so a crash at any instruction neither loses nor repeats
 *      it.
 *   2. The server stores the number of each sender's last batch with the counters and carries out each number once, so
 *      that a repeated batch counts once. In a cluster, where a sender's key and the counters are in different slots,
 *      it cannot: there a repeated batch may count twice, which denies more, never less.
 *   3. The host's counter is read before its entry: a take between the two makes the counter seem less used by one
 *      delta that is still unsent, and the next round corrects it.
 *   4. After an exchange, host and store differ by unsent deltas only; whatever went wrong is corrected by the next
 *      exchange of the counter. An entry is polled up to 4 more times, after 1, 2, 4 and 8 rounds, when its counter
 *      moved.
 *   5. Store reset (failover to a replica that lacks acknowledged batches, FLUSHALL): the reply to a batch counts
 *      the sender's batches that the server does not know. Each host then re-sends its own acknowledged deltas of
 *      those batches (the last 131072 are kept). If they are no longer known, every counter is re-seeded once: the
 *      script takes the minimum of server and host.
 */
#ifndef WEIR_SYNC_SYNC_H
#define WEIR_SYNC_SYNC_H

#include "engine/ledger.h"
#include "engine/store_request.h"
#include "sync/key_exchange.h"

/* Sends a request to the store and waits for the reply. Returns request->error. */
typedef int weir__sync_send(void *context, struct weir__store_request *request);

#define WEIR__SYNC_TIMEOUT_US 500000 /* no client waits for an exchange: longer than the deadline of a request */

struct weir__sync_options {
    weir *engine; /* opened with the data plane's ledger */
    struct weir__naming naming;
    uint64_t interval_ms; /* between rounds */
    int64_t timeout_us;   /* of an exchange; 0: WEIR__SYNC_TIMEOUT_US */
    bool cluster;         /* the store is a cluster: batches are not numbered */
    weir__sync_send *send_request;
    void *send_context;
    weir_time (*now)(const weir_segment *segment); /* NULL: weir_clock */
};

struct weir__sync;

/* NULL: no memory, or the engine has no ledger. */
struct weir__sync *weir__sync_new(const struct weir__sync_options *options);
void weir__sync_free(struct weir__sync *sync);

/* One round. 0: all deltas are acknowledged; or an error, and the rest is still in the ledger. */
int weir__sync_round(struct weir__sync *sync);
/*
 * A round in steps: the next `count` slices (at least 1; not more than are left). weir__sync_slices returns the number
 * of slices of the round after each step; the next step is due an interval divided by that after this one. A round has
 * one slice while few entries change, and after a failure, which ends the round. Each entry is exchanged once an
 * interval.
 */
int weir__sync_step(struct weir__sync *sync, unsigned count);
unsigned weir__sync_slices(const struct weir__sync *sync);
/* A round that returns all leases of units. For an agent that ends. */
int weir__sync_return_leases(struct weir__sync *sync);
/* Updates the agent's heartbeat for the data plane; rounds do so, too. */
void weir__sync_beat(struct weir__sync *sync);

/* ---- The sync thread (exchange.c): rounds at each sync interval, from weir.yaml until stopped ---- */

struct weir__config;
struct weir__logger;

/* Runs until `signals` (weir__signals_open) brings a stop, and then a last round. False: it failed to start, which was
 * logged. */
bool weir__exchange_run(const struct weir__config *config, const struct weir__logger *log, int signals);
/* Runs one round. 0, or an error, which was logged. */
int weir__exchange_once(const struct weir__config *config, const struct weir__logger *log);

/* ---- The engines of the agent ---- */

/* What an operator can do about a segment that cannot be opened, or weir_strerror. */
const char *weir__segment_advice(int error);
/* Where an engine logs errors of its segment's sidecar files; must outlive it. */
struct weir__sidecar_log {
    const char *segment;
    const struct weir__logger *log;
};
/*
 * Opens an engine on the segment and the active rules of a weir.yaml, with its store, ledger and load. Of the options,
 * the caller sets both flags; with WEIR_NO_CONNECT the load is left out. 0, or an error, which was logged.
 */
int weir__agent_engine_open(const struct weir__config *config, weir_options options, struct weir__sidecar_log *to,
                            weir **engine);

#endif
