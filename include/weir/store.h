/*
 * Rules of `consistency: strict` are decided by a store that all hosts share. A program that gives weir_options.store
 * need not read on: weir_check queries the store and waits, at most for the deadline. This interface is for programs
 * with an event loop, such as nginx: they obtain the request that a check needs, send it to the store themselves, and
 * then check.
 *
 *     weir_async *async;
 *     weir_async_new(w, &async);
 *     query.async = async;
 *     if (weir_check_begin(w, &query) == 1) {
 *         ... send weir_async_request(async) to the store and continue when the reply is there ...
 *     }
 *     weir_check(w, &query, &result);
 *     if (weir_async_rollback(async))
 *         ... send the rollback to the store, without waiting for it ...
 *     weir_async_free(async);
 *
 * One weir_async may serve several checks, e.g. those of a batch: begin all, send once, check all in the same order.
 * They go to the store as one request; two requests of a batch for the last unit of a key get it in their order.
 *
 * The engine was opened with weir_options.store and the flag WEIR_NO_CONNECT: it knows that there is a store, and the
 * names of counters there. A strict rule without a reply (nothing was sent; the request failed; the rule is new since
 * the rules were replaced) is decided by its on_store_failure, with an error such as WEIR_ESTOREBREAKER.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include <weir/check.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/*
 * In libweir-store (pkg-config weir-store), which links hiredis and OpenSSL; libweir itself does not. To be called
 * before weir_open with weir_options.store; not needed with WEIR_NO_CONNECT. 0, or WEIR_ESTORELIB: libweir is of
 * another version.
 */
WEIR_MUST_CHECK int weir_store_use(void);

WEIR_MUST_CHECK int weir_async_new(weir *engine, weir_async **async);
/* NULL is allowed. Before weir_close, if a check was begun and not made: its leased units are put back. */
void weir_async_free(weir_async *async);
/* Prepares it for another request and keeps its memory. Its requests must be complete. */
void weir_async_clear(weir_async *async);

/*
 * Adds the ops that weir_check needs from the store for this query (query->async must be set). Takes
 * nothing from the store or from local counters; leased units may be spent, which weir_check uses, and
 * weir_async_clear or weir_async_free puts back. 1: the request must be sent; 0: it need not, since no strict rule
 * matches, leased units suffice, or the query is denied already, by a local rule or by a cached denial. Negative: an
 * error, as of weir_check.
 */
WEIR_MUST_CHECK int weir_check_begin(weir *engine, const weir_query *query);
WEIR_MUST_CHECK int weir_check_descriptors_begin(weir *engine, const weir_descriptor_query *query);

/*
 * The asynchronous forms of weir_key_state, weir_key_reset and weir_key_settle, which send requests by themselves only
 * with an engine that has connections: begin (1: the request must be sent), send, finish with the replies. Without
 * replies a state is that of the host alone (with outcome->error), and the others fail with the store's error. Finish
 * without an async is the synchronous form. Blocks are local to each host and need no store.
 */
WEIR_MUST_CHECK int weir_key_state_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now,
                                         weir_async *async);
WEIR_MUST_CHECK int weir_key_state_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now,
                                          weir_async *async, weir_outcome *outcome);
WEIR_MUST_CHECK int weir_key_reset_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now,
                                         weir_async *async);
WEIR_MUST_CHECK int weir_key_reset_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now,
                                          weir_async *async);
WEIR_MUST_CHECK int weir_key_settle_begin(weir *engine, const weir_taken *taken, int64_t amount, weir_time now,
                                          weir_async *async);
WEIR_MUST_CHECK int weir_key_settle_finish(weir *engine, const weir_taken *taken, int64_t amount, weir_time now,
                                           weir_async *async, weir_decision *decision);

/*
 * The asynchronous forms of weir_permits_release and weir_permits_renew, for permits->names_len other than 0.
 * `in_flight`: the request certainly still runs, so a permit that the store does not know any more is taken again if
 * there is room; if there is none, it stays in `permits` and WEIR_ELEASE is returned. Otherwise permits that have ended
 * are removed from `permits`. Finish without an async is the synchronous form, for requests that are in flight.
 */
WEIR_MUST_CHECK int weir_permits_release_begin(weir *engine, const weir_permits *permits, weir_async *async);
WEIR_MUST_CHECK int weir_permits_release_finish(weir *engine, weir_permits *permits, weir_async *async);
WEIR_MUST_CHECK int weir_permits_renew_begin(weir *engine, const weir_permits *permits, bool in_flight,
                                             weir_async *async);
WEIR_MUST_CHECK int weir_permits_renew_finish(weir *engine, weir_permits *permits, bool in_flight, weir_async *async);
/*
 * Releases without waiting: the permits of this host at once, those in the store with weir_async_rollback, which must
 * be called next. As weir_permits_release; permits in the store do not count.
 */
int weir_permits_release_detached(weir *engine, weir_permits *permits, weir_async *async);

/* The request to send, for the client in src/remote. */
struct weir__store_request;
struct weir__store_request *weir_async_request(weir_async *async);
/*
 * After the checks: a completed request with the ops that took in the store and are not kept, or NULL. For
 * weir__client_refund, which copies what it needs; it must not be sent.
 */
struct weir__store_request *weir_async_rollback(weir_async *async);

/* ---- Eventual: between this host and the store ---- */

enum weir_store_state { WEIR_STORE_UNKNOWN = 0, WEIR_STORE_UP, WEIR_STORE_DOWN };

/* Totals since the ledger was made, of all agents. Amounts are units of limits. */
typedef struct weir_ledger_stats {
    bool agent;                   /* one runs: its last heartbeat is at most 2 s old */
    enum weir_store_state store;  /* as the last agent saw it */
    int64_t since_ns;             /* time in that state */
    int last_error;               /* of the last time it was unavailable; 0: it never was */
    int64_t lag_ns;               /* age of the oldest amount that the store has not acknowledged; 0: none */
    uint64_t requests, failures;  /* to the store; those without a reply */
    uint64_t ops;                 /* operations on counters in the requests */
    uint64_t units_sent;          /* admitted by this host, acknowledged by the store */
    uint64_t units_received;      /* admitted by other hosts, charged to this host's counters */
    uint64_t units_refunded;      /* refunded to this host's counters, which had counted more than the store */
    uint64_t units_dropped;       /* not sent: their window had ended or their rule was removed */
    uint64_t full;                /* times an amount stayed local because the ledger was full */
    uint64_t bytes_out, bytes_in; /* of the current agent */
    uint64_t entries, used;       /* capacity, and keys in it */
    /* Units of rules of `consistency: leased`: leased from the store, spent, returned, and lost as the lease ended. */
    uint64_t units_leased, units_spent, units_returned, units_expired;
    uint64_t lease_waits; /* allowed requests under such rules that waited for the store */
} weir_ledger_stats;

/* WEIR_ENOENT: the engine has no ledger, or no rule needs one. */
WEIR_MUST_CHECK int weir_ledger_stats_read(weir *engine, weir_ledger_stats *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
