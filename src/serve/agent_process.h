/* The agent under weir serve: a process beside nginx for the exchange with the store and for the rules service. Started
 * again when it ends. */
#ifndef WEIR_SERVE_AGENT_PROCESS_H
#define WEIR_SERVE_AGENT_PROCESS_H

#include "base/sidecar.h"
#include "serve/privilege.h"

#include <sys/types.h>

struct weir__agent_process {
    pid_t pid;              /* 0: does not run */
    int64_t started_ms;     /* the last time */
    int64_t due_ms;         /* when to start it again */
    int64_t pause_ms;       /* after the next failure; doubles */
    bool renewing;          /* it was asked to end, for a new one */
    int64_t renew_due_ms;   /* with renewing: when it is killed */
    int64_t history_due_ms; /* before that, requests for a history are ignored */
    int channel; /* with a pid: what the agent, as another user, asks for (sidecar.h); 0: it is the same user */
    struct weir__sidecar_inbox inbox;
    int output;      /* with a channel: what the agent logs; 0: it writes to the log itself */
    char line[4096]; /* the beginning of a line that it logs */
    size_t line_len;
    struct weir__agent_user user;
    int64_t shared_ms;   /* when the state folder was looked at last */
    bool foreign;        /* it holds files of root's, and that was logged */
    bool portless;       /* it was started while the admin port, which only root can bind, was taken */
    int64_t port_due_ms; /* when to look whether it is free */
    char *nginx_conf;    /* NULL: none. A text of the parent's with secrets, which the agent overwrites in its memory */
    int death;           /* the signal that ends it when this process is killed; 0: SIGTERM, for a last exchange */
};

/* This process becomes the agent: as another user if it is root. False after it was logged; it must end then. */
bool weir__agent_become(struct weir__config *config, const struct weir__logger *log);

/*
 * weir__bootstrap, as the agent's user: it reads from the network and from databases. False after it was logged
 * that weir serve cannot start.
 */
bool weir__agent_prepare(const struct weir__config *config, const struct weir__logger *log);

/* Starts it if it is due, and if there is anything for it to do. Called several times a second. */
void weir__agent_start_if_due(struct weir__agent_process *agent, const struct weir__config *config,
                              const struct weir__logger *log, int64_t now_ms);
/* Does what the agent asks for, and logs files of root's in the state folder. */
void weir__agent_poll(struct weir__agent_process *agent, const struct weir__config *config,
                      const struct weir__logger *log, int64_t now_ms);
/* There is another configuration: it ends after a last exchange, and weir__agent_start_if_due starts another. */
void weir__agent_restart(struct weir__agent_process *agent, int64_t now_ms);
/* A child has ended. False: it was not this one. */
bool weir__agent_reaped(struct weir__agent_process *agent, pid_t child, int status, const struct weir__logger *log,
                        int64_t now_ms);
/* Ends it, with a last exchange, and waits for that a few seconds. */
void weir__agent_stop(struct weir__agent_process *agent, const struct weir__logger *log);

#endif
