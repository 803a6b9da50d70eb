/*
 * What the files of the client share. Read them in this order:
 *
 *   request_list.c      lists of requests, and their deadlines
 *   channel.c   a connection: bytes out, replies in
 *   handshake.c     what is said first on it
 *   command.c   requests put together into commands; what the replies mean
 *   route.c     which channel a request goes to, and whether its breaker lets it
 *   internal_requests.c       requests of the client's own: late answers, and what is given back
 *   split.c     a request that needs several commands
 *   topology.c     who is the master (Sentinel), who owns which slots (Cluster)
 *   timers.c      deadlines, connections that hang, probes
 *   client.c           the functions of client.h
 */
#ifndef WEIR_REMOTE_CLIENT_INTERNAL_H
#define WEIR_REMOTE_CLIENT_INTERNAL_H

#include "remote/circuit_breaker.h"
#include "remote/client.h"
#include "remote/script.h"
#include "remote/cluster_slots.h"

#include <hiredis/hiredis.h>

#define WEIR__TOPOLOGY_CHANNEL (WEIR__CHANNELS - 1) /* the channel that ops where the others should go */
#define WEIR__NODES            WEIR__SLOT_NODES     /* the channels before it that are servers */
#define WEIR__IN_FLIGHT        16384                /* requests of a channel that wait at once, at most */
#define WEIR__CHANNEL_OUT_MAX  ((size_t)16 << 20)   /* bytes that wait to be sent */
#define WEIR__REPLY_MAX        ((size_t)8 << 20) /* bytes of one reply: CLUSTER SLOTS of the worst cluster is the longest */
#define WEIR__ELEMENTS_MAX     (400 * 1000)      /* elements of one reply, all levels together */
#define WEIR__DEPTH_MAX        7                 /* arrays in arrays; CLUSTER SLOTS has four */
#define WEIR__TRIES            8                 /* redirections and reloads of one request */

/* What a request is to the client: weir__store_request.state. */
enum {
    WEIR__REQUEST_LIVE = 1,   /* asked and not called done */
    WEIR__REQUEST_ORPHAN = 2, /* the client's own copy of one whose owner waits no longer: its answer is given back */
    WEIR__REQUEST_REFUND = 4, /* the client's own: gives back */
    WEIR__REQUEST_SUB = 8,    /* of a split request */
    WEIR__REQUEST_SPLIT = 16, /* split: `list` is the struct weir__split */
    WEIR__REQUEST_DONE = 32,  /* in the list of those to be called done */
    WEIR__REQUEST_HALF_OPEN = 64, /* the one that a breaker lets try */
    WEIR__REQUEST_REDIRECTED = 128
};

struct weir__channel;
struct weir__command;

/* A list of requests. Each is in one at most. */
struct weir__request_list {
    struct weir__store_request *first, *last;
    struct weir__channel *channel; /* they are counted there; or NULL */
    struct weir__command *command; /* they have been sent with it; NULL: they wait */
};

enum weir__command_kind {
    WEIR__COMMAND_LOGIN, /* AUTH, SELECT: +OK */
    WEIR__COMMAND_ROLE,
    WEIR__COMMAND_PING, /* ends the greeting */
    WEIR__COMMAND_PROBE,
    WEIR__COMMAND_LOAD,
    WEIR__COMMAND_REDIRECT,
    WEIR__COMMAND_TOPOLOGY, /* the topology's request */
    WEIR__COMMAND_REQUESTS
};

struct weir__command {
    struct weir__request_list requests;
    struct weir__command *next;
    enum weir__command_kind kind;
    bool late; /* a deadline was missed, and counted */
    int64_t sent_us;
    uint64_t begin; /* where it begins in all that the channel ever sent */
};

/*
 * How much the server's clock is clock_offset of the client's, as the replies so far bound it: the server read its
 * clock after a command was sent and before the reply came. Amounts travel with it to that server only; it tells how
 * long a command was on its way. Kept when the connection is lost.
 */
struct weir__clock_offset {
    int64_t least_us, most_us;
    int64_t at_us; /* when that was; 0: nothing is known */
};

enum weir__channel_state {
    WEIR__CHANNEL_CLOSED,
    WEIR__CHANNEL_RESOLVING, /* for its address: Sentinel */
    WEIR__CHANNEL_CONNECTING,
    WEIR__CHANNEL_HANDSHAKE,
    WEIR__CHANNEL_READY,
    WEIR__CHANNEL_DRAINING /* nothing new is sent; shut when all answers are here */
};

struct weir__channel {
    struct weir__client *client;
    unsigned number;
    bool used;   /* is a server of the store, or the topology */
    bool listed; /* in the newest map */
    struct weir__store_host host;
    enum weir__channel_state state;
    struct weir__breaker breaker;
    bool down;                         /* what was driver_closed last */
    struct weir__request_list waiting; /* to be sent at the next flush, or when the channel is ready */
    uint32_t in_flight;                /* requests waiting and sent */

    int64_t since_us; /* when connecting began */
    struct weir__command *first, *last;
    struct weir__buffer out;
    size_t out_at; /* of it, already sent */
    bool sending;  /* the driver knows */
    uint64_t out_total, sent_total;
    const char *loading; /* the newest script whose SCRIPT LOAD is on its way */
    int load_error;
    bool lost_time; /* a waiting request missed its deadline in this tick, and that was counted */
    struct weir__clock_offset clock_offset;

    redisReader *reader;
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *default_functions;
    size_t elements_left, bytes_pending;
    uint64_t generation; /* of the connection */
};

struct weir__subrequest;

/* A request whose groups need commands of their own. */
struct weir__split {
    struct weir__store_request *parent;
    struct weir__split *next, *previous;
    struct weir__subrequest *subs; /* on their way */
    uint32_t made, failed;
    bool second; /* the groups after the first are being asked */
    bool starting;
    int error;
};

struct weir__client {
    const struct weir__store_options *options;
    struct weir__driver driver;
    uint64_t random;
    int64_t now_us;
    unsigned inside; /* calls of ours that are under way: `done` may call again */

    struct weir__channel channels[WEIR__CHANNELS];
    unsigned nodes_end;                 /* channels from here on are no servers; the topology is far behind */
    struct weir__request_list finished; /* to be called done */
    struct weir__store_request **timers;
    uint32_t timer_count, timer_size;

    struct weir__request_list soon, later; /* asked again at these times */
    int64_t soon_us, later_us;
    struct weir__request_list unrouted; /* nobody owns their slot, as far as is known */

    /* The topology. */
    bool refreshing;
    unsigned seed, tried;
    bool refresh_wanted; /* another look, not before refresh_us */
    int64_t refresh_us;
    bool have_map;
    uint8_t owner[WEIR__CLUSTER_SLOTS]; /* channel, or WEIR__SLOT_NOBODY */

    struct weir__command *free_commands;
    struct weir__subrequest *free_subs;
    struct weir__split *free_splits, *splits;
    uint32_t internal_count;

    struct weir__client_stats stats;
    int64_t wake_us;
};

/* request_list.c */
void weir__request_list_add(struct weir__request_list *list, struct weir__store_request *request);
void weir__request_list_remove(struct weir__store_request *request);
/* `with` takes the place of `request`. */
void weir__request_list_replace(struct weir__store_request *request, struct weir__store_request *with);
bool weir__timer_add(struct weir__client *client, struct weir__store_request *request);
void weir__timer_remove(struct weir__client *client, struct weir__store_request *request);

/* channel.c */
void weir__channel_open(struct weir__channel *channel);
/* Shuts it. `driver_closed`: the driver has closed it already. Whatever is on its way fails with `error`. */
void weir__channel_close(struct weir__channel *channel, int error, bool driver_closed);
/* Shuts it when all answers are here. */
void weir__channel_finish(struct weir__channel *channel);
/* The command has just been put into the channel's buffer, from `begin` on. False: no memory, the channel was shut. */
bool weir__channel_queued(struct weir__channel *channel, struct weir__command *command, uint64_t begin);
/* Sends words as a command without requests. */
bool weir__channel_send(struct weir__channel *channel, enum weir__command_kind kind, const char *const *words,
                        size_t count);
void weir__channel_received(struct weir__channel *channel, const char *data, size_t len);
struct weir__command *weir__command_new(struct weir__client *client, enum weir__command_kind kind);
void weir__command_free(struct weir__client *client, struct weir__command *command);

/* handshake.c: the first words, and the replies to them. */
void weir__handshake_begin(struct weir__channel *channel);
/* 0, or why the channel must be shut. */
int weir__handshake_reply(struct weir__channel *channel, const struct weir__command *command, const redisReply *reply);

/* command.c */
/* A server's clock read `clock_us` between two moments of the client's clock. */
void weir__clock_offset_update(struct weir__clock_offset *clock_offset, int64_t clock_us, int64_t sent_us,
                               int64_t now_us);
void weir__channel_flush(struct weir__channel *channel);
/* What a reply to requests says. The command's requests are ended, or on their way again. */
void weir__command_reply(struct weir__channel *channel, struct weir__command *command, const redisReply *reply);
/* Ends the requests of a command that will get no answer. */
void weir__command_fail(struct weir__client *client, struct weir__command *command, int error, bool sure);

/* route.c */
/* The channel of a server: the one there is, or a new one, or NULL when there are too many. */
struct weir__channel *weir__route_host(struct weir__client *client, const struct weir__store_host *host);
/* The channel of a slot, or NULL: nobody owns it. */
struct weir__channel *weir__route_slot(struct weir__client *client, unsigned slot);
/* Would it be let through now? */
bool weir__route_open(struct weir__client *client, unsigned slot);
/* Gives a request to its channel; it may be ended at once. */
void weir__route(struct weir__client *client, struct weir__store_request *request);
void weir__route_to(struct weir__channel *channel, struct weir__store_request *request);
/* Again a little later. */
void weir__route_retry(struct weir__client *client, struct weir__store_request *request);
/* A server failed, or replied. */
void weir__route_failed(struct weir__channel *channel, int error);
/* Tells whoever keeps the log, if that is new. */
void weir__route_report(struct weir__channel *channel, bool up, int error);
void weir__route_probed(struct weir__channel *channel);
void weir__route_succeeded(struct weir__channel *channel);
void weir__route_connect(struct weir__channel *channel);
/* Begins a probe if one is due. */
void weir__route_probe(struct weir__channel *channel);

/* internal_requests.c */
/*
 * A request has its answer (error 0) or none. `sure`: it certainly was not carried out. It is in no list. An owner's
 * request comes into the list of those to be called done.
 */
void weir__request_end(struct weir__client *client, struct weir__store_request *request, int error, bool sure);
/* Its owner waits no longer for what has been sent: a orphan takes its place. False: no memory. */
bool weir__request_orphan(struct weir__client *client, struct weir__store_request *request);
/* Takes it from wherever it is, so that its owner may free it; a trial is given back. */
void weir__request_detach(struct weir__client *client, struct weir__store_request *request);
/* It has missed its deadline: its server has failed, if that was not counted yet. */
void weir__request_timed_out(struct weir__client *client, struct weir__store_request *request);
/* Gives back what ops[0 … count - 1] took; the second marks it. */
void weir__internal_refund(struct weir__client *client, const struct weir__store_op *ops, uint32_t count);
void weir__internal_refund_clear(struct weir__client *client, struct weir__store_op *ops, uint32_t count);
/* Nobody knows whether the request was carried out: gives back the leases that it may have taken. */
void weir__internal_release_permits(struct weir__client *client, const struct weir__store_request *request);
void weir__internal_free(struct weir__client *client, struct weir__store_request *request);

/* split.c */
/* Must it be split? */
bool weir__split_needed(const struct weir__client *client, const struct weir__store_request *request);
/* A piece that is one run of ops: it has two groups, the request's first to look at, and its own. */
bool weir__split_is_run(const struct weir__store_request *request);
void weir__split_begin(struct weir__client *client, struct weir__store_request *request);
void weir__split_sub_ended(struct weir__client *client, struct weir__store_request *piece, int error);
/* Its owner waits no longer: everything that was taken is given back. */
void weir__split_drop(struct weir__client *client, struct weir__store_request *parent, bool late);
void weir__split_free_all(struct weir__client *client);

/* topology.c */
void weir__topology_refresh(struct weir__client *client);
/* Soon, but not too often. */
void weir__topology_want_refresh(struct weir__client *client);
void weir__topology_query(struct weir__channel *topology);
void weir__topology_reply(struct weir__channel *topology, const redisReply *reply);
/* The topology's channel was shut while it was refreshing. */
void weir__topology_lost(struct weir__client *client, int error);
/* There is no map, and requests failed for want of it. */
void weir__topology_failed(struct weir__client *client, int error);
void weir__topology_tick(struct weir__client *client);
/* When weir__topology_tick has something to do. */
int64_t weir__topology_due(const struct weir__client *client);

/* timers.c: everything that time brings about, and when it must be looked at again. */
void weir__client_pass_time(struct weir__client *client);
int64_t weir__client_next_time(const struct weir__client *client);

static inline struct weir__channel *weir__topology_channel(struct weir__client *client)
{
    return &client->channels[WEIR__TOPOLOGY_CHANNEL];
}

/* A random number below `bound`, not 0: for jitter. */
uint64_t weir__client_random(struct weir__client *client, uint64_t bound);

#endif
