/* This host as the rules service sees it: keys, statistics, queue. Implements base/host_calls.h. */
#ifndef WEIR_SERVE_ADMIN_HOST_H
#define WEIR_SERVE_ADMIN_HOST_H

#include "config/config.h"
#include "base/log.h"
#include "stats/membership.h"
#include "base/host_calls.h"

struct weir__host;

/* Opens the segment and the active rules. NULL after a logged error. */
struct weir__host *weir__host_open(const struct weir__config *config, const struct weir__logger *log);
void weir__host_close(struct weir__host *host);
/* Its engine, for the agent's other threads. */
weir *weir__host_engine(struct weir__host *host);
const struct weir__control_host *weir__host_calls(struct weir__host *host);
/* Fills in this host's heartbeat. */
void weir__host_heartbeat(struct weir__host *host, struct weir__heartbeat *heartbeat);
/* The hosts that poll their rules from this one. */
struct weir__subscribers *weir__host_subscribers(struct weir__host *host);
/* Writes the history. To be called several times a second. */
void weir__host_look(struct weir__host *host);

#endif
