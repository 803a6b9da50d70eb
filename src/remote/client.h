/*
 * The Redis client, without I/O: it decides where to connect and what to send, parses replies and completes requests.
 * A driver (nginx's event loop, or the blocking client below) owns sockets, TLS and timers.
 *
 * One thread at a time. The client calls the driver's functions from within its own; they must not call the client,
 * except `done`, which may submit new requests and free the completed one.
 *
 * The client does: login and SELECT, pipelining, loading the script on NOSCRIPT, finding and following the master
 * through Sentinel, slots of a cluster with MOVED and ASK, splitting a request by slots and refunding what a denied
 * part took, deadlines, a circuit breaker with half-open probes, heartbeats, reconnecting with exponential back-off and
 * jitter. What a host decides while the store is unavailable is the caller's policy.
 */
#ifndef WEIR_REMOTE_CLIENT_H
#define WEIR_REMOTE_CLIENT_H

#include "engine/store_request.h"

struct weir__client;

#define WEIR__CHANNELS 64 /* connections of a client at most */

struct weir__driver {
    void *context;
    /* Connect channel `channel`; the outcome is reported with weir__client_opened or weir__client_closed. */
    void (*open)(void *context, unsigned channel, const char *host, uint16_t port);
    /* Close it without calling weir__client_closed. The client may open the same number again at once. */
    void (*close)(void *context, unsigned channel);
    /* weir__client_output has bytes to send. Called once until all of them are sent. */
    void (*send)(void *context, unsigned channel);
    /* Call weir__client_tick at this time or earlier; replaces the previous time. INT64_MAX: no timer. */
    void (*wake)(void *context, int64_t at_us);
    /* The request is complete: request->error, or its ops have their replies. */
    void (*done)(void *context, struct weir__store_request *request);
    /* A server became available (`up`, error 0) or unavailable (why): for the log. `where` is its address. */
    void (*changed)(void *context, bool up, int error, const char *where);
    /*
     * An idle connection is checked by a PING after this time at most, and one that was lost is made again, so that
     * `changed` is called without requests, too. 0: never, for a driver that polls only during calls.
     */
    int64_t heartbeat_us;
};

/* `seed`: of the jitter. NULL: no memory. `options` must outlive the client. */
struct weir__client *weir__client_new(const struct weir__store_options *options, const struct weir__driver *driver,
                                      uint64_t seed, int64_t now_us);
/* Closes all channels. Requests that are not complete are dropped without calling `done`. */
void weir__client_free(struct weir__client *client);

/* Connects ahead of the first request. */
void weir__client_start(struct weir__client *client, int64_t now_us);
/*
 * Queues a request, which is sent with the next weir__client_flush. `done` may be called before this returns (the
 * breaker is open). request->deadline_us 0: now plus the deadline of the options.
 */
void weir__client_submit(struct weir__client *client, struct weir__store_request *request, int64_t now_us);
void weir__client_flush(struct weir__client *client, int64_t now_us);
/*
 * The caller no longer waits (its own client has disconnected) and may free the request at once. A request that was not
 * sent yet is dropped. One that was sent stays charged: a refund would let clients that disconnect cost the store two
 * scripts each. Permits of requests in flight are released all the same, and a split request is refunded, since one of
 * its parts may deny.
 */
void weir__client_cancel(struct weir__client *client, struct weir__store_request *request);
/* Marks a complete request the same way: a refund of it then releases its permits only. */
void weir__store_request_abandon(struct weir__store_request *request);
/*
 * Refunds all that a complete request took, without anything to wait for; sent with the next flush. Retried for at most
 * 5 s, but not after a try that may have been carried out, which would refund twice; permits are released until it
 * succeeds, since that is idempotent.
 */
void weir__client_refund(struct weir__client *client, const struct weir__store_request *request, int64_t now_us);

/* Events of the driver. */
void weir__client_opened(struct weir__client *client, unsigned channel, int64_t now_us);
void weir__client_closed(struct weir__client *client, unsigned channel, int error, int64_t now_us);
const char *weir__client_output(const struct weir__client *client, unsigned channel, size_t *len);
void weir__client_sent(struct weir__client *client, unsigned channel, size_t len, int64_t now_us);
void weir__client_received(struct weir__client *client, unsigned channel, const char *data, size_t len, int64_t now_us);
void weir__client_tick(struct weir__client *client, int64_t now_us);

/* For a driver that polls only during calls: the channel was not polled for so long, which does not count against its
 * connect timeout. */
void weir__client_paused(struct weir__client *client, unsigned channel, int64_t for_us);
/* Whether the request would be refused now while a probe, which may change that, is in flight. */
bool weir__client_probing(struct weir__client *client, const struct weir__store_request *request);

/* Whether refunds are not acknowledged yet, or replies may come that cause some. */
bool weir__client_owes_refunds(const struct weir__client *client);

void weir__client_stats_read(const struct weir__client *client, struct weir__client_stats *stats);

/* ---- The blocking client (blocking_client.c) ---- */

/*
 * Drives a client with its own sockets, TLS and poll, for callers without an event loop (applications that use libweir,
 * the agent, tests). One thread at a time. After a fork the child makes its own connections and leaves the parent's
 * alone. Host names are resolved by getaddrinfo, which may block for longer than any deadline: use addresses where that
 * matters.
 */

struct weir__blocking_client;

/* NULL: no memory. `options` must outlive the client. Connects with the first request. */
struct weir__blocking_client *weir__blocking_client_new(const struct weir__store_options *options);
void weir__blocking_client_free(struct weir__blocking_client *blocking);

/* `changed` is called when the store becomes available or unavailable, from within the functions below. */
void weir__blocking_client_on_change(struct weir__blocking_client *blocking,
                                     void (*changed)(void *context, bool up, int error, const char *where),
                                     void *context);

/* Sends the request and waits until it is complete, at most until its deadline. Returns request->error. */
int weir__blocking_client_request(struct weir__blocking_client *blocking, struct weir__store_request *request);
/* Several requests, in flight together. All are complete when it returns: 0, or the first error. */
int weir__blocking_client_request_all(struct weir__blocking_client *blocking,
                                      struct weir__store_request *const *requests, size_t count);
/* Refunds what a complete request took. Sent without waiting, or with the next call. */
void weir__blocking_client_refund(struct weir__blocking_client *blocking, const struct weir__store_request *request);
/* Handles late replies, refunds and probes for at most this long. */
void weir__blocking_client_work(struct weir__blocking_client *blocking, int64_t for_us);
/* Before weir__blocking_client_free: waits for outstanding refunds, at most this long. */
void weir__blocking_client_flush_refunds(struct weir__blocking_client *blocking, int64_t most_us);
void weir__blocking_client_stats(struct weir__blocking_client *blocking, struct weir__client_stats *stats);

#endif
