/*
 * The exchange with the store: what rules of `consistency: eventual` let pass on this host is told, and what the others
 * let pass is taken off the host's own counters. docs/store.md, "Eventual".
 *
 * For each counter that was used, the store is told the amount that it does not know of, and answers with what is left
 * for all. The host's counter is then moved to that: so hosts agree up to what has not been told yet, and what went
 * wrong once is right again after the next exchange.
 *
 * The amount stays in the ledger until the store has acknowledged it. The batch that is on its way is noted in the
 * ledger, too, with its number: whoever comes after a killed agent sends the same again, and the server knows it.
 */
#ifndef WEIR_SYNC_SYNC_H
#define WEIR_SYNC_SYNC_H

#include "engine/ledger.h"
#include "remote/counter_name.h"
#include "remote/request.h"

/* Brings a request to the store and waits for its answer: request->error, which is also returned. */
typedef int weir__sync_send(void *context, struct weir__store_request *request);

#define WEIR__SYNC_TIMEOUT_US 500000 /* nobody waits for an exchange: it may take longer than a request's request */

struct weir__sync_options {
    weir *engine; /* opened with the ledger that the data plane writes to */
    struct weir__naming naming;
    uint64_t interval_ms; /* from round to round: for what is counted in them */
    int64_t timeout_us;   /* kind long an exchange may take before it is tried again; 0: as above */
    bool cluster;         /* the store: it does not know senders, nor which of their batches it has */
    weir__sync_send *send_request;
    void *send_context;
    weir_time (*now)(const weir_segment *segment); /* weir_clock */
};

struct weir__sync;

/* NULL: no memory, or the engine has no ledger. */
struct weir__sync *weir__sync_new(const struct weir__sync_options *options);
void weir__sync_free(struct weir__sync *sync);

/*
 * One exchange of everything that was used since the last, and of what others may have used. 0: all of it was told; or
 * why not, and then it is still there.
 */
int weir__sync_round(struct weir__sync *sync);
/*
 * The same in slices of the ledger, so that neither the store nor this host has all of it to do at once: the next
 * `count` slices of the round (at least 1; not more than are left of it). How many there are, weir__sync_slices says
 * after each step: the next is due when an interval divided by that has passed since this one was. It is one part as
 * long as there is little to tell, and after a failure, which ends the round. No entry waits for longer than an
 * interval.
 */
int weir__sync_step(struct weir__sync *sync, unsigned count);
unsigned weir__sync_slices(const struct weir__sync *sync);
/* The agent's life sign for the data plane; rounds give it, too. */
void weir__sync_beat(struct weir__sync *sync);
/* What went over the wire so far, for the figures. */
void weir__sync_bytes(struct weir__sync *sync, uint64_t out, uint64_t in);

#endif
