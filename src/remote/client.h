/*
 * The client of a store, without sockets: it says what to connect to and what to send, is told what has come, and calls
 * requests done. nginx and the blocking link (engine/link.h) bring the sockets, TLS and the clock.
 *
 * One thread at a time. The driver's functions are called from within the client's, and must not call back into it,
 * except `done`, which may op new requests and free the one that is done.
 *
 * What it takes care of: logging in and choosing the database, pipelines, loading the script when the server does not
 * know it, finding the master through Sentinel and following it, the slots of a cluster with MOVED and ASK, splitting a
 * request by slots and giving back what must not stay, deadlines, the circuit breaker with half-open probes, and
 * reconnecting with jitter. What a host's policy is when the store is away is not its business.
 */
#ifndef WEIR_REMOTE_CLIENT_H
#define WEIR_REMOTE_CLIENT_H

#include "remote/options.h"
#include "remote/request.h"

struct weir__client;

#define WEIR__CHANNELS 64 /* connections of a client at most */

struct weir__driver {
    void *context;
    /* Begin to connect channel `channel`; then call weir__client_opened or weir__client_closed. */
    void (*open)(void *context, unsigned channel, const char *host, uint16_t port);
    /* Close it without a word; its number may be opened again at once. */
    void (*close)(void *context, unsigned channel);
    /* There is something to send: weir__client_output says what. Called once until all of it is sent. */
    void (*send)(void *context, unsigned channel);
    /* Call weir__client_tick at this time, or earlier; replaces the time before. INT64_MAX: not needed. */
    void (*wake)(void *context, int64_t at_us);
    /* The request has its answer, or its error. */
    void (*done)(void *context, struct weir__store_request *request);
    /* The store's state has changed: for the log. `error` is why it is away, 0: it is back. `where` names the server.
     */
    void (*changed)(void *context, bool up, int error, const char *where);
};

enum weir__store_state { WEIR__STORE_NEW, WEIR__STORE_UP, WEIR__STORE_DOWN, WEIR__STORE_PROBING };

/* Since the client was made. */
struct weir__client_stats {
    uint64_t requests, replied, failed; /* failed: requests that got an error */
    uint64_t slow;                      /* of these, those that met their deadline */
    uint64_t refused;                   /* of these, those that the open breaker refused at once */
    uint64_t commands, bytes_out, bytes_in;
    uint64_t connects, disconnects;
    uint64_t script_loads, redirects, refunds;
    uint64_t opened; /* times the breaker did */
    enum weir__store_state state;
    int last_error; /* why it is or was away */
};

/* `seed` makes the jitter. NULL: no memory. The options must stay as they are. */
struct weir__client *weir__client_new(const struct weir__store_options *options, const struct weir__driver *driver,
                                      uint64_t seed, int64_t now_us);
/* All requests that are not done are forgotten: their owners hear nothing more. Closes all channels. */
void weir__client_free(struct weir__client *client);

/* Connects ahead of the first request. */
void weir__client_start(struct weir__client *client, int64_t now_us);
/*
 * Asks. It may be done before this returns (the breaker is open). request->deadline_us 0: now and the options'
 * deadline. What is asked is sent at weir__client_flush.
 */
void weir__client_submit(struct weir__client *client, struct weir__store_request *request, int64_t now_us);
void weir__client_flush(struct weir__client *client, int64_t now_us);
/*
 * The client of this request has disconnected. A request that was not sent yet is dropped. One that was sent keep
 * charged: a refund would let clients that disconnect cost the store two scripts each. Permits of requests in flight
 * are released all the same, and a request in several parts is refunded, since one part may deny. The caller may free
 * the request at once.
 */
void weir__client_cancel(struct weir__client *client, struct weir__store_request *request);
/* The same for one that is done: weir_ask_back and weir__client_refund then find its leases only. */
void weir__store_request_abandon(struct weir__store_request *request);
/*
 * Gives back what a request that is done has taken, all of it, without anybody waiting for it; sent at the next flush.
 * As often as it needs, for at most some seconds; but never again when it may have been carried out, since that would
 * let more pass; unless it is a lease, which can be given back once only.
 */
void weir__client_refund(struct weir__client *client, const struct weir__store_request *request, int64_t now_us);

void weir__client_opened(struct weir__client *client, unsigned channel, int64_t now_us);
void weir__client_closed(struct weir__client *client, unsigned channel, int error, int64_t now_us);
/* What is to be sent; and how much of it was. */
const char *weir__client_output(const struct weir__client *client, unsigned channel, size_t *len);
void weir__client_sent(struct weir__client *client, unsigned channel, size_t len, int64_t now_us);
void weir__client_received(struct weir__client *client, unsigned channel, const char *data, size_t len, int64_t now_us);
void weir__client_tick(struct weir__client *client, int64_t now_us);

/*
 * For drivers that work only while somebody ops. The channel has news, and nobody looked for so long: that time does
 * not count against a connection that is being made.
 */
void weir__client_paused(struct weir__client *client, unsigned channel, int64_t for_us);
/* Would the request be refused now, while a probe is on its way that may change that? */
bool weir__client_probing(struct weir__client *client, const struct weir__store_request *request);

/* Something that must not stay taken is not back yet, or a late answer may bring such. */
bool weir__client_owes_refunds(const struct weir__client *client);

void weir__client_stats_read(const struct weir__client *client, struct weir__client_stats *stats);

#endif
