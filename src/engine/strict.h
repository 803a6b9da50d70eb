/*
 * Rules of `consistency: strict`, which the store decides: the ops that a check needs from it, the pool of connections
 * that sends them, and what the replies mean for the request (evaluation.h).
 *
 * A request is evaluated twice. Before the store: if local rules, blocks or the negative cache deny, nothing is sent.
 * With the replies: local counters are taken after the store's, and if they deny, the store is refunded.
 */
#ifndef WEIR_ENGINE_STRICT_H
#define WEIR_ENGINE_STRICT_H

#include "engine/evaluation.h"
#include "engine/store_request.h"

#include <weir/store.h>

/* ---- Asynchronous checks (async.c): the store ops of one or more checks in one request, see <weir/store.h> ---- */

struct weir_async {
    weir *engine;
    struct weir__store_request request;
    struct weir__store_request back; /* refunds, in the memory of the request, which is complete by then */
    uint32_t capacity;               /* of ops and of groups */
    uint32_t next; /* index at which the search for the next reply starts: checks come in the order of preparation */
    uint64_t dice; /* random number of the preparation, which also decides whether the check is shed; 0: not drawn */
    uint32_t shed[WEIR__LOAD_CLASSES]; /* the shares that go with `dice` */
    uint32_t skipped_in_prepare; /* ops of strict rules that were not added, since the request is denied without them */
    struct weir__lease_kept *spent; /* leased units that were spent for the checks: see leased.h */
    uint32_t spent_count, spent_capacity;
    uint32_t spent_next;     /* index before which all are used */
    uint32_t promised_count; /* leased units that the only check so far relies on without spending */
    struct weir__lease_promise promised[WEIR__FAST_MAX];
};

/* Ensures capacity for so many more ops. */
int weir__async_reserve(weir_async *async, size_t more);
/* The next op, zeroed, in the current group or in a new one. Capacity must have been reserved. */
struct weir__store_op *weir__async_add(weir_async *async, bool new_group, bool after_first);
/* The unread reply to an op of the same kind, cost and name, which is marked as read; NULL: none. */
struct weir__store_op *weir__async_find(weir_async *async, const struct weir__store_op *like);
/* The error of the op or of its group; 0: it has a reply. */
int weir__async_error(const weir_async *async, const struct weir__store_op *of);

/* ---- The connection pool (connection_pool.c), for callers that block instead of running an event loop ---- */

#define WEIR__POOL_CONNECTIONS 16 /* at once in a process; more callers wait for one */

struct weir__connection_pool;

/* One connection and its ops, for one caller at a time. */
struct weir__pooled_connection {
    struct weir__blocking_client *client;
    weir_async *async;
    struct weir__connection_pool *pool;
    struct weir__client_stats stats; /* as of the last release */
    bool taken;
};

/* Does not connect yet. NULL: no memory. */
struct weir__connection_pool *weir__connection_pool_new(void);
void weir__connection_pool_free(struct weir__connection_pool *pool);

/* A free connection, with no ops. NULL: *error: none became free within the store's deadline, or no memory. */
struct weir__pooled_connection *weir__connection_pool_acquire(weir *engine, int *error);
/* Sends the ops and waits for the replies, or the error. */
void weir__connection_pool_request(struct weir__pooled_connection *pooled);
/* Refunds units that were not kept, and returns the connection to the pool. NULL is allowed. */
void weir__connection_pool_release(struct weir__pooled_connection *pooled);

/* Sums over this process's connections, each as of its last release: takes no lock that a request holds. */
void weir__connection_pool_stats(weir *engine, weir_store_stats *stats);

/* ---- The negative cache (negative_cache.c): denials of the store, until they end ---- */

/* Makes the limit that the functions below use. */
int weir__negative_cache_init(weir_limit *negative_cache);
/* The remaining time of a cached denial of the eval's key, limit and cost, in nanoseconds; 0: none. */
int64_t weir__negative_cache_left(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/* Caches a denial for so long, at most 2.2 years, unless a longer one is cached. Of concurrent ones any one wins. */
void weir__negative_cache_add(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, int64_t for_ns);
int weir__negative_cache_remove(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);

/* ---- Strict rules in an evaluation (strict.c) ---- */

/* Settles the evals, selects the strict ones and adds their ops to `async`. 1: some; 0: none; or an error. */
int weir__strict_prepare(struct weir__request_ctx *ctx, weir_async *async);
/*
 * For an engine with a connection pool: sends the ops and waits; the replies are in ctx->async. The caller releases the
 * connection when the request is decided. NULL: nothing was sent.
 */
struct weir__pooled_connection *weir__strict_request(struct weir__request_ctx *ctx);

/*
 * Marks the strict ones among the settled evals and counts them in ctx->strict. Those of leased rules are strict unless
 * leased units pay for them, which are spent here.
 */
void weir__strict_mark(struct weir__request_ctx *ctx);
/* Applies the replies in ctx->async to the strict evals. */
void weir__strict_apply(struct weir__request_ctx *ctx);
/* No eval denies so far: applies on_store_failure to the enforced evals without a reply. */
void weir__strict_resolve(struct weir__request_ctx *ctx);
/* Resolves a shadow eval. */
void weir__strict_shadow(struct weir__request_ctx *ctx, struct weir__rule_eval *eval);
/* The request is decided: keeps the units that the store took, or leaves them to be refunded. */
void weir__strict_keep(struct weir__request_ctx *ctx);

/* Adds one op outside of a check, for the eval's rule, quota, key and cost. */
int weir__strict_add(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                     enum weir__store_op_kind kind);
/* The reply to that op, or its error; WEIR_ESTOREBREAKER if it was not sent. */
int weir__strict_reply(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                       enum weir__store_op_kind kind, weir_decision *decision);

#endif
