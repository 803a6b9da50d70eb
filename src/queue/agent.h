/* What the agent runs of the queue: ingest and dispatcher, each with a thread of its own, and the operators' view. */
#ifndef WEIR_QUEUE_AGENT_H
#define WEIR_QUEUE_AGENT_H

#include "config/config.h"
#include "base/log.h"
#include "base/host_calls.h"

/* In all of these, configuration, engine and log must outlive the object, and the configuration must have a queue. */

/* ---- Ingest (ingest*.c): accepts requests that nginx defers, on STATE/queue.sock ---- */

struct weir__ingest;

struct weir__ingest_counts {
    uint64_t accepted;
    uint64_t refused; /* queue full or unavailable, request too large or invalid: the gateway denied them */
    uint64_t commits; /* transactions of the accepted ones */
};

/* `put` (may be NULL) is called after each commit, in ingest's thread. NULL on failure, with the reason in `why`. */
struct weir__ingest *weir__ingest_start(const struct weir__config *config, const struct weir__logger *log,
                                        void (*put)(void *context), void *context, char *why, size_t why_size);
/* Replies to the requests in progress first. NULL is allowed. */
void weir__ingest_stop(struct weir__ingest *ingest);
void weir__ingest_counts(struct weir__ingest *ingest, struct weir__ingest_counts *counts);

/* ---- Dispatcher (dispatcher.c, dispatch.c, delivery.c): delivers deferred requests as their limits admit them ---- */

struct weir__dispatcher;

/* NULL: out of memory. A queue that cannot be opened is logged once and retried. */
struct weir__dispatcher *weir__dispatcher_start(const struct weir__config *config, weir *engine,
                                                const struct weir__logger *log);
/* The queue has new requests. From any thread. NULL is allowed. */
void weir__dispatcher_wake(struct weir__dispatcher *dispatcher);
/* Counts since the agent's start, to be published with the dispatcher's own. */
void weir__dispatcher_set_ingested(struct weir__dispatcher *dispatcher, uint64_t accepted, uint64_t refused);
/* Ends the thread: waits 2 s for deliveries in progress and requeues the rest. NULL is allowed. */
void weir__dispatcher_finish(struct weir__dispatcher *dispatcher);
/* Finishes and frees. No thread may wake it afterwards. NULL is allowed. */
void weir__dispatcher_stop(struct weir__dispatcher *dispatcher);

/* ---- Queue admin (queue_admin.c): stats, lists and changes as JSON, for the admin REST service and weir queue ---- */

struct weir__queue_admin;

/* Opens the queue at the first call. NULL: out of memory. */
struct weir__queue_admin *weir__queue_admin_open(const struct weir__config *config, const struct weir__logger *log);
/* NULL is allowed. */
void weir__queue_admin_close(struct weir__queue_admin *admin);
const struct weir__control_queue *weir__queue_admin_calls(const struct weir__queue_admin *admin);

#endif
