/*
 * The agent: as a child process of the supervisor, its threads, and its view of this host. serve.h lists the processes.
 */
#ifndef WEIR_SERVE_AGENT_H
#define WEIR_SERVE_AGENT_H

#include "base/host_calls.h"
#include "base/sidecar.h"
#include "serve/listening.h"
#include "serve/privilege.h"
#include "stats/membership.h"
#include "sync/sync.h"

#include <pthread.h>

/* ---- The process (agent_process.c): starting, restarting, serving its requests, stopping ---- */

struct weir__agent_process {
    const struct weir__config *config; /* set by the supervisor, also when it changes */
    const struct weir__logger *log;
    pid_t pid;              /* 0: not running */
    int64_t started_ms;     /* time of the last start */
    int64_t due_ms;         /* not started again before this time */
    int64_t pause_ms;       /* exponential back-off: the last pause before a restart */
    bool renewing;          /* SIGTERM was sent, to replace it by a new one */
    int64_t renew_due_ms;   /* while renewing: time of SIGKILL */
    int64_t history_due_ms; /* requests for a history are ignored before this time */
    int channel; /* receives requests of an agent of another user (base/sidecar.h); 0: same user, no channel */
    struct weir__sidecar_inbox inbox;
    int output;      /* pipe that an agent of another user logs to; 0: it writes to the log itself */
    char line[4096]; /* an incomplete line read from `output` */
    size_t line_len;
    struct weir__agent_user user;
    int64_t shared_ms;   /* time of the last check for root's files in the state folder */
    bool foreign;        /* there are some, and that was logged */
    bool portless;       /* it runs without the admin port, which only root can bind: the port was taken */
    int64_t port_due_ms; /* time of the next attempt to bind the port */
    int death;           /* its parent-death signal; 0: SIGTERM, for a last exchange with the store */
    struct weir__listening *listening; /* has the admin listener's socket for all agents; NULL: each binds its own */
};

/* Turns this process into the agent; drops root's privileges. False after a logged error: the process must exit. */
bool weir__agent_become(struct weir__config *config, const struct weir__logger *log);

/* Runs weir__bootstrap in a helper process as the agent would run it, since it reads from the network and from
 * databases; call weir__config_publish afterwards. False after a logged error. */
bool weir__agent_prepare(const struct weir__config *config, const struct weir__logger *log);

/* Starts the agent unless it runs, waits for its back-off, or has nothing to do. To be called several times a second.
 */
void weir__agent_start_if_due(struct weir__agent_process *agent);
/* Serves requests of the agent, copies its log lines, enforces the deadline of a restart, and warns of root's files in
 * the state folder. To be called several times a second. */
void weir__agent_poll(struct weir__agent_process *agent);
/* Sends SIGTERM, as the configuration has changed; weir__agent_start_if_due starts the next agent. */
void weir__agent_restart(struct weir__agent_process *agent);
/* Handles the exit of a child, which need not be the agent. */
void weir__agent_reaped(struct weir__agent_process *agent, pid_t child, int status);
/* Sends SIGTERM, waits 3 s for the last exchange with the store, then kills the agent. */
void weir__agent_stop(struct weir__agent_process *agent);

/* ---- The threads (agent_threads.c) ---- */

/* True if the configuration needs an agent. */
bool weir__agent_needed(const struct weir__config *config);
/*
 * Runs the agent until a signal stops it: the exchange with the store in this thread; in others the rules service and
 * its listener, the poller of another host's rules, the history, the load sampler, heartbeats, the notifier, and the
 * queue's listener and dispatcher. The caller has blocked signals. False: it failed to start, which was logged.
 */
bool weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals);

/* ---- Keys as the rules service sees them (key_host.c) ---- */

struct weir__key_host {
    weir *engine;
    struct weir__key_exchange *exchange; /* NULL: no store */
    bool reads;                          /* the store is read for each call: no thread does so */
};

/* Sets the functions for keys, and their context. */
void weir__key_host_calls(struct weir__key_host *host, struct weir__control_host *calls);

/* For a command: opens segment, rules and store, which must exist. NULL after a logged error. */
struct weir__control_host *weir__key_host_open(const struct weir__config *config, const struct weir__logger *log);
/* NULL is allowed. */
void weir__key_host_close(struct weir__control_host *calls);

/* ---- This host as the rules service sees it: keys, statistics, queue (admin_host.c) ---- */

struct weir__host {
    struct weir__key_host key_host; /* must be first: the context of all calls */
    const struct weir__config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__history_writer *observer; /* NULL: another process writes the history, or it cannot be opened */
    pthread_mutex_t lock;                  /* for the snapshot and the membership, which requests share */
    struct weir__snapshot snapshot;
    struct weir__membership membership;
    struct weir__subscribers subscribers; /* hosts that poll their rules from this one */
    uint64_t shown; /* rules in files: checksum of the set that these get, which is not that of the files; 0: none */
    struct weir__control_host calls;
    struct weir__sidecar_log sidecar_log;
    struct weir__key_exchange *keys;    /* NULL: no store */
    struct weir__host_queries *queries; /* NULL: no store */
    struct weir__host_queries
        *replies;   /* the connection for replies, which must not wait for queries; NULL: no store */
    bool refused;   /* it was logged that the store refuses replies to other hosts */
    int tick_error; /* the last error of the history that was logged */
    bool lost;      /* the segment's file was truncated, and that was logged */
};

/* Opens the segment and the active rules. NULL after a logged error. */
struct weir__host *weir__host_open(const struct weir__config *config, const struct weir__logger *log);
void weir__host_close(struct weir__host *host);
/* Fills in this host's heartbeat. */
void weir__host_heartbeat(struct weir__host *host, struct weir__heartbeat *heartbeat);
/* Replies to a query of another host; for one thread. */
void weir__host_reply(void *host, const struct weir__open_query *query);
/* Writes the history. To be called several times a second. */
void weir__host_tick(struct weir__host *host);

#endif
