/* The agent under weir serve: a process beside nginx for the exchange with the store and for the rules service. Started
 * again when it ends. */
#ifndef WEIR_SERVE_AGENT_PROCESS_H
#define WEIR_SERVE_AGENT_PROCESS_H

#include "base/sidecar.h"
#include "serve/privilege.h"

#include <sys/types.h>

struct weir__companion {
    pid_t pid;          /* 0: does not run */
    int64_t started_ms; /* the last time */
    int64_t due_ms;     /* when to start it again */
    int64_t pause_ms;   /* after the next failure; doubles */
    bool renewing;      /* it was asked to end, for a new one */
    int channel;        /* with a pid: what the agent, as another user, asks for (sidecar.h); 0: it is the same user */
    struct weir__sidecar_inbox inbox;
    struct weir__agent_user user;
    int64_t shared_ms;   /* when the state folder was looked at last */
    bool foreign;        /* it holds files of root's, and that was logged */
    bool portless;       /* it was started while the admin port, which only root can bind, was taken */
    int64_t port_due_ms; /* when to look whether it is free */
    int death;           /* the signal that ends it when this process is killed; 0: SIGTERM, for a last exchange */
};

/* This process becomes the agent: as another user if it is root. False after it was logged; it must end then. */
bool weir__companion_become(struct weir__config *config, const struct weir__logger *log);

/*
 * weir__keeper_prepare, as the agent's user: it reads from the network and from databases. False after it was logged
 * that weir serve cannot start.
 */
bool weir__companion_prepare(const struct weir__config *config, const struct weir__logger *log);

/* Starts it if it is due, and if there is anything for it to do. Called several times a second. */
void weir__companion_tend(struct weir__companion *companion, const struct weir__config *config,
                          const struct weir__logger *log, int64_t now_ms);
/* Does what the agent asks for, and logs files of root's in the state folder. */
void weir__companion_serve(struct weir__companion *companion, const struct weir__config *config,
                           const struct weir__logger *log, int64_t now_ms);
/* There is another configuration: it ends after a last exchange, and weir__companion_tend starts another. */
void weir__companion_renew(struct weir__companion *companion);
/* A child has ended. False: it was not this one. */
bool weir__companion_ended(struct weir__companion *companion, pid_t child, int status, const struct weir__logger *log,
                           int64_t now_ms);
/* Ends it, with a last exchange, and waits for that a few seconds. */
void weir__companion_stop(struct weir__companion *companion);

#endif
