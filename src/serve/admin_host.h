/* What the rules service may ask about this host: keys and figures. Fills in control/host.h. */
#ifndef WEIR_SERVE_ADMIN_HOST_H
#define WEIR_SERVE_ADMIN_HOST_H

#include "config/config.h"
#include "base/log.h"
#include "stats/subscribers.h"
#include "control/host.h"

struct weir__host;

/* Opens the segment and the rules in force. NULL after it was told why not. */
struct weir__host *weir__host_open(const struct weir__config *config, const struct weir__logger *log);
void weir__host_close(struct weir__host *host);
/* What it opened, for its other threads. */
weir *weir__host_engine(struct weir__host *host);
const struct weir__control_host *weir__host_calls(struct weir__host *host);
/* What this host has to tell of itself, by the rules that are in force now. */
void weir__host_tell(struct weir__host *host, struct weir__heartbeat *told);
/* Who takes its rules from here. */
struct weir__subscribers *weir__host_followers(struct weir__host *host);
/* To be called several times a second: writes figures down. */
void weir__host_look(struct weir__host *host);

#endif
