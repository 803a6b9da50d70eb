/* The agent under weir serve: a process beside nginx for the exchange with the store and for the rules service. Started
 * again when it ends. */
#ifndef WEIR_AGENT_COMPANION_H
#define WEIR_AGENT_COMPANION_H

#include "agent/config.h"
#include "agent/journal.h"

#include <sys/types.h>

struct weir__companion {
    pid_t pid;          /* 0: does not run */
    int64_t started_ms; /* the last time */
    int64_t due_ms;     /* when to start it again */
    int64_t pause_ms;   /* after the next failure; doubles */
    bool renewing;      /* it was asked to end, for a new one */
};

/* Starts it if it is due, and if there is anything for it to do. Called several times a second. */
void weir__companion_tend(struct weir__companion *companion, const struct weir__config *config,
                          const struct weir__journal *journal, int64_t now_ms);
/* There is another configuration: it ends after a last exchange, and weir__companion_tend starts another. */
void weir__companion_renew(struct weir__companion *companion);
/* A child has ended. False: it was not this one. */
bool weir__companion_ended(struct weir__companion *companion, pid_t child, int status,
                           const struct weir__journal *journal, int64_t now_ms);
/* Ends it, with a last exchange, and waits for that a few seconds. */
void weir__companion_stop(struct weir__companion *companion);

#endif
