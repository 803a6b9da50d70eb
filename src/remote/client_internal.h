/*
 * What the files of the client share. State machines:
 *
 * Channel (one connection; channel.c):
 *     CLOSED -> [RESOLVING: Sentinel, the topology is queried] -> CONNECTING -> HANDSHAKE -> READY -> [DRAINING]
 *     -> CLOSED
 * Requests wait in channel->waiting until READY; weir__channel_flush packs them into commands. Replies arrive in the
 * order of commands. DRAINING sends nothing more and closes after the last reply (the server is no longer the master).
 * On an error the channel closes: commands that were not sent fail as certainly not carried out, others in doubt;
 * waiting requests are routed again or fail. Each channel has a circuit breaker.
 *
 * Request (state: a set of WEIR__REQUEST_ flags):
 *     submit -> LIVE: waiting in a channel, unrouted (no known owner of its slot), or SPLIT into subrequests (SUB)
 *            -> in flight: in a command's list; NOSCRIPT, MOVED, ASK, TRYAGAIN send it again, at most WEIR__TRIES times
 *            -> DONE: in client->finished until `done` is called
 * At its deadline, or when cancelled, a request that is in flight is replaced by an ORPHAN, an internal copy, so that
 * the reply can be read; what an orphan took is refunded (of a cancelled one only permits). Internal REFUND requests
 * are retried for some seconds.
 *
 * Topology (Sentinel: the master; Cluster: the slot map; topology.c), on the channel WEIR__TOPOLOGY_CHANNEL:
 *     idle -> refreshing: query the seeds and known servers, one after the other, until one replies -> idle
 * A refresh is wanted after a failure, MOVED, CLUSTERDOWN or a request without route; at most one in 200 to 400 ms.
 * With Sentinel it is also repeated every 3 s. A reply reroutes all waiting requests.
 *
 * Files, in reading order: client.c (functions of client.h), route.c (channel and breaker of a request), channel.c
 * (one connection, with its handshake), command.c (requests to commands, replies), script.c (the command's text),
 * requests.c (lists, completion, orphans, refunds), split.c (requests of several commands), topology.c, timers.c.
 */
#ifndef WEIR_REMOTE_CLIENT_INTERNAL_H
#define WEIR_REMOTE_CLIENT_INTERNAL_H

#include "remote/client.h"
#include "remote/script.h"

#include <hiredis/hiredis.h>
#include <string.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- topology.c: the slot of a key, and the slot map ---- */

#define WEIR__CLUSTER_SLOTS 16384
#define WEIR__SLOT_NODES    62 /* masters at most; each needs a channel */
#define WEIR__SLOT_NOBODY   0xff

/* CRC16 of the key's hash tag, or of the whole key. */
unsigned weir__slot(const char *name, size_t len);

struct weir__slot_map {
    struct weir__store_host nodes[WEIR__SLOT_NODES];
    size_t count;
    uint8_t owner[WEIR__CLUSTER_SLOTS]; /* index into `nodes`, or WEIR__SLOT_NOBODY */
};

/*
 * Parses the reply to CLUSTER SLOTS. `queried`: the host that sent it, for a node that does not know its own address.
 * False: malformed, too many masters, or no slot has an owner.
 */
bool weir__slots_read(const struct redisReply *reply, const char *queried, struct weir__slot_map *map);

/* Parses "slot host:port" of a MOVED or ASK error, after that word. An empty host stands for `queried`. */
bool weir__slots_redirect(const char *text, const char *queried, unsigned *slot, struct weir__store_host *to);

/* ---- circuit_breaker.c ---- */

/*
 * The circuit breaker of one server. Closed: requests pass. After failures_max failures in a row it opens, and requests
 * are refused; at intervals with exponential back-off and 50 % jitter a probe (PING) is sent. When the probe succeeds,
 * the breaker is half open: one request passes, and only its success closes the breaker. So a server that replies to
 * PING but fails requests costs one request a probe. Without requests, heartbeats (timers.c) open and close it.
 */

enum weir__breaker_state {
    WEIR__BREAKER_CLOSED,
    WEIR__BREAKER_OPEN,          /* refuses; a probe is due at retry_us */
    WEIR__BREAKER_PROBING,       /* refuses; a probe is in flight */
    WEIR__BREAKER_HALF_OPEN,     /* the probe succeeded: the next request passes */
    WEIR__BREAKER_HALF_OPEN_BUSY /* that request is in flight; refuses others */
};

struct weir__breaker {
    enum weir__breaker_state state;
    unsigned failures; /* in a row */
    unsigned failures_max;
    int64_t min_us, max_us; /* between two probes */
    int64_t wait_us;        /* the last interval; 0: none since it closed */
    int64_t retry_us;       /* when the next probe is due; INT64_MAX: not open */
    uint64_t random;
};

void weir__breaker_init(struct weir__breaker *breaker, unsigned failures_max, int64_t min_us, int64_t max_us,
                        uint64_t seed);
/* Whether a request may be sent. If half open, the first one may. */
bool weir__breaker_allows(struct weir__breaker *breaker);
/* Starts the probe if one is due. */
bool weir__breaker_probe(struct weir__breaker *breaker, int64_t now_us);
/* The probe succeeded. */
void weir__breaker_probed(struct weir__breaker *breaker);
/* The request of the half-open breaker is not sent after all: another one may be. */
void weir__breaker_release(struct weir__breaker *breaker);
/* A reply arrived. True: that closed the breaker. */
bool weir__breaker_succeeded(struct weir__breaker *breaker);
/* A request or a probe failed. True: that opened the closed breaker. */
bool weir__breaker_failed(struct weir__breaker *breaker, int64_t now_us);

/* ---- Bounds ---- */

#define WEIR__TOPOLOGY_CHANNEL (WEIR__CHANNELS - 1) /* queries the topology */
#define WEIR__NODES            WEIR__SLOT_NODES     /* channels of servers, before it */
#define WEIR__IN_FLIGHT        16384                /* requests of a channel, waiting and in flight */
#define WEIR__CHANNEL_OUT_MAX  ((size_t)16 << 20)   /* bytes of output that are not sent */
#define WEIR__REPLY_MAX        ((size_t)8 << 20)    /* bytes of one reply; the longest is CLUSTER SLOTS */
#define WEIR__ELEMENTS_MAX     (400 * 1000)         /* elements of one reply, all levels together */
#define WEIR__DEPTH_MAX        7                    /* nesting of arrays; CLUSTER SLOTS has four levels */
#define WEIR__TRIES            8                    /* redirections and reloads of one request */

/* Flags of weir__store_request.state. */
enum {
    WEIR__REQUEST_LIVE = 1,       /* submitted and not complete */
    WEIR__REQUEST_ORPHAN = 2,     /* internal copy of a request whose caller no longer waits */
    WEIR__REQUEST_REFUND = 4,     /* internal: refunds */
    WEIR__REQUEST_SUB = 8,        /* part of a split request */
    WEIR__REQUEST_SPLIT = 16,     /* `list` is the struct weir__split */
    WEIR__REQUEST_DONE = 32,      /* complete; in client->finished */
    WEIR__REQUEST_HALF_OPEN = 64, /* the request that a half-open breaker admitted */
    WEIR__REQUEST_IMPORTING = 128 /* its receiver is importing the slot, as an ASK redirection said */
};

struct weir__channel;
struct weir__command;

/* A list of requests. Each is in at most one. */
struct weir__request_list {
    struct weir__store_request *first, *last;
    struct weir__channel *channel; /* whose in_flight counts them; or NULL */
    struct weir__command *command; /* they were sent with it; NULL: not sent */
};

enum weir__command_kind {
    WEIR__COMMAND_LOGIN, /* AUTH, SELECT */
    WEIR__COMMAND_ROLE,
    WEIR__COMMAND_PING, /* ends the handshake */
    WEIR__COMMAND_PROBE,
    WEIR__COMMAND_HEARTBEAT,
    WEIR__COMMAND_LOAD,
    WEIR__COMMAND_IMPORTING,
    WEIR__COMMAND_TOPOLOGY, /* SENTINEL get-master-addr-by-name, CLUSTER SLOTS */
    WEIR__COMMAND_REQUESTS
};

struct weir__command {
    struct weir__request_list requests;
    STAILQ_ENTRY(weir__command) next;
    enum weir__command_kind kind;
    bool late; /* a deadline passed, and was counted as a failure */
    int64_t sent_us;
    uint64_t begin; /* its offset in all that the channel has sent */
};

/*
 * Bounds on how far the server's clock is ahead of the client's: the server read its clock between the sending of a
 * command and the arrival of its reply. An EXCHANGE carries the estimate, from which the script computes how long it
 * was delayed. Kept when the connection is lost.
 */
struct weir__clock_offset {
    int64_t least_us, most_us;
    int64_t at_us; /* when it was updated; 0: unknown */
};

enum weir__channel_state {
    WEIR__CHANNEL_CLOSED,
    WEIR__CHANNEL_RESOLVING, /* the master's address is queried: Sentinel */
    WEIR__CHANNEL_CONNECTING,
    WEIR__CHANNEL_HANDSHAKE,
    WEIR__CHANNEL_READY,
    WEIR__CHANNEL_DRAINING /* closes after the last reply */
};

struct weir__channel {
    struct weir__client *client;
    unsigned number;
    bool used;   /* assigned to a server, or the topology channel */
    bool listed; /* in the newest slot map */
    struct weir__store_host host;
    enum weir__channel_state state;
    struct weir__breaker breaker;
    bool down;                         /* last reported state */
    bool rejects;                      /* the last reply to a request was an error, so that a PONG proves nothing */
    int64_t active_us;                 /* last reply, heartbeat or end of the connection */
    unsigned jitter;                   /* of the next heartbeat */
    struct weir__request_list waiting; /* to be sent with the next flush in state READY */
    uint32_t in_flight;                /* requests waiting and sent */

    int64_t since_us;                      /* when connecting began */
    STAILQ_HEAD(, weir__command) commands; /* without a reply yet */
    struct weir__buffer out;
    size_t out_at; /* bytes of it that are sent */
    bool sending;  /* driver.send was called */
    uint64_t out_total, sent_total;
    const char *loading; /* the script whose SCRIPT LOAD is in flight */
    int load_error;
    bool lost_time; /* a waiting request missed its deadline in this tick, which was counted as a failure */
    struct weir__clock_offset clock_offset;

    redisReader *reader;
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *default_functions;
    size_t elements_left, bytes_pending;
    uint64_t generation; /* incremented when the connection changes */
};

struct weir__client {
    const struct weir__store_options *options;
    struct weir__driver driver;
    uint64_t random;
    int64_t now_us;
    unsigned inside; /* nesting of calls: `done` may call the client */

    struct weir__channel channels[WEIR__CHANNELS];
    unsigned nodes_end;                                   /* end of the channels of servers */
    struct weir__request_list finished;                   /* complete, `done` not yet called */
    TAILQ_HEAD(weir__timers, weir__store_request) timers; /* requests that are not complete, by deadline */
    uint32_t timer_count;

    struct weir__request_list soon, later; /* to be routed again at these times */
    int64_t soon_us, later_us;
    struct weir__request_list unrouted; /* no known owner of their slot */

    /* The topology. */
    bool refreshing;
    unsigned seed, tried; /* index of the host to query, among seeds and known servers; hosts tried in this refresh */
    bool refresh_wanted;  /* not before refresh_us */
    int64_t refresh_us;
    bool have_map;
    uint8_t owner[WEIR__CLUSTER_SLOTS]; /* channel, or WEIR__SLOT_NOBODY */

    uint32_t internal_count;

    struct weir__client_stats stats;
    int64_t wake_us;
};

/* requests.c */
void weir__request_list_add(struct weir__request_list *list, struct weir__store_request *request);
void weir__request_list_remove(struct weir__store_request *request);
/* Removes the first request; NULL: there is none. */
struct weir__store_request *weir__request_list_take(struct weir__request_list *list);
/* Moves all requests of a list to the end of another one. */
void weir__request_list_move(struct weir__request_list *from, struct weir__request_list *to);
/* Completes a request that is in no list: error 0, it has its reply. `sure`: it was certainly not carried out. */
void weir__request_end(struct weir__client *client, struct weir__store_request *request, int error, bool sure);
/* Removes it from all lists, so that the caller may free it. A half-open breaker admits another one instead. */
void weir__request_detach(struct weir__client *client, struct weir__store_request *request);
/* Refunds what ops[0 … count - 1] took. _clear also clears their `taken`. */
void weir__internal_refund(struct weir__client *client, const struct weir__store_op *ops, uint32_t count);
void weir__internal_refund_clear(struct weir__client *client, struct weir__store_op *ops, uint32_t count);
/* It is unknown whether the request was carried out: releases the permits that it may have taken. */
void weir__internal_release_permits(struct weir__client *client, const struct weir__store_request *request);
void weir__native_free(struct weir__client *client, struct weir__store_request *request);

/* channel.c */
void weir__channel_open(struct weir__channel *channel);
/* `driver_closed`: do not call driver.close. Commands in flight fail with `error`. */
void weir__channel_close(struct weir__channel *channel, int error, bool driver_closed);
/* Closes it after the last reply. */
void weir__channel_finish(struct weir__channel *channel);
/* The command was appended to the output buffer. False: the channel was closed, no memory. */
bool weir__channel_queued(struct weir__channel *channel, struct weir__command *command);
/* Sends a command without requests. It has up to two arguments; the others are NULL. False: the channel is closed. */
bool weir__channel_send(struct weir__channel *channel, enum weir__command_kind kind, const char *name,
                        const char *first, const char *second);
void weir__channel_received(struct weir__channel *channel, const char *data, size_t len);
/* To be freed. NULL: no memory, and the channel was closed. */
struct weir__command *weir__command_new(struct weir__channel *channel, enum weir__command_kind kind);
void weir__handshake_begin(struct weir__channel *channel);

/* command.c */
/* The server's clock was `clock_us` at a moment between sent_us and now_us of the client's. */
void weir__clock_offset_update(struct weir__clock_offset *clock_offset, int64_t clock_us, int64_t sent_us,
                               int64_t now_us);
void weir__channel_flush(struct weir__channel *channel);
/* Completes the command's requests, or sends them again. */
void weir__command_reply(struct weir__channel *channel, struct weir__command *command, const redisReply *reply);
/*
 * Completes the requests of a command, and frees it; error 0: they succeeded. `sure`: after an error, they were not
 * carried out.
 */
void weir__command_complete(struct weir__client *client, struct weir__command *command, int error, bool sure);

/* route.c */
/* The channel of a server, existing or new. NULL: too many servers. */
struct weir__channel *weir__route_host(struct weir__client *client, const struct weir__store_host *host);
/* The channel of a slot's owner. NULL: unknown. */
struct weir__channel *weir__route_slot(struct weir__client *client, unsigned slot);
/* Whether the breaker would admit a request. */
bool weir__route_open(struct weir__client *client, unsigned slot);
/* Queues the request in its channel, or completes it with an error. */
void weir__route(struct weir__client *client, struct weir__store_request *request);
void weir__route_to(struct weir__channel *channel, struct weir__store_request *request);
/* Routes it again after some milliseconds. */
void weir__route_retry(struct weir__client *client, struct weir__store_request *request);
/* Updates the breaker. */
void weir__route_failed(struct weir__channel *channel, int error);
/* Calls driver.changed if the state differs from the one reported last. */
void weir__route_report(struct weir__channel *channel, bool up, int error);
void weir__route_succeeded(struct weir__channel *channel);
void weir__route_connect(struct weir__channel *channel);
/* Starts a probe if one is due. */
void weir__route_probe(struct weir__channel *channel);

/* split.c */
bool weir__split_needed(const struct weir__client *client, const struct weir__store_request *request);
void weir__split_begin(struct weir__client *client, struct weir__store_request *request);
void weir__split_sub_ended(struct weir__client *client, struct weir__store_request *piece, int error);
/* The caller no longer waits: detaches the subrequests and refunds what was taken. */
void weir__split_drop(struct weir__client *client, struct weir__store_request *parent, bool late);

/* topology.c */
void weir__topology_refresh(struct weir__client *client);
/* Rate limited. */
void weir__topology_want_refresh(struct weir__client *client);
void weir__topology_query(struct weir__channel *topology);
void weir__topology_reply(struct weir__channel *topology, const redisReply *reply);
/* The topology channel was closed while refreshing. */
void weir__topology_lost(struct weir__client *client, int error);
/* There is no slot map, and requests failed because of that. */
void weir__topology_failed(struct weir__client *client, int error);
void weir__topology_tick(struct weir__client *client);
/* When weir__topology_tick has work to do. */
int64_t weir__topology_due(const struct weir__client *client);

/* timers.c */
void weir__timer_add(struct weir__client *client, struct weir__store_request *request);
void weir__timer_remove(struct weir__client *client, struct weir__store_request *request);
/* Its deadline passed: a failure of its server, unless that was counted. */
void weir__request_timed_out(struct weir__client *client, struct weir__store_request *request);
/* Handles timers that have expired; when the next one does. */
void weir__client_pass_time(struct weir__client *client);
int64_t weir__client_next_time(const struct weir__client *client);

static inline struct weir__channel *weir__topology_channel(struct weir__client *client)
{
    return &client->channels[WEIR__TOPOLOGY_CHANNEL];
}

static inline bool weir__same_host(const struct weir__store_host *a, const struct weir__store_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

/* Splitmix64, for jitter. */
static inline uint64_t weir__next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
