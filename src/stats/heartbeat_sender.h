/* The agent's part of the fleet: it tells of this host, hears of others, and writes down who there is. */
#ifndef WEIR_STATS_HEARTBEAT_SENDER_H
#define WEIR_STATS_HEARTBEAT_SENDER_H

#include "serve/admin_host.h"

struct weir__heartbeat_sender;

/* True if there is anybody to hear of: a store that others share, or those who follow this host's rules. */
bool weir__heartbeat_sender_wanted(const struct weir__config *config);
/* NULL: no memory. All of them must stay. */
struct weir__heartbeat_sender *weir__heartbeat_sender_new(const struct weir__config *config, struct weir__host *host,
                                                          const struct weir__logger *log);
/* One turn, every WEIR__HEARTBEAT_EVERY_MS. Waits for the store, but not for long. */
void weir__heartbeat_sender_run(struct weir__heartbeat_sender *sender);
/* Says that this host ends. NULL is allowed. */
void weir__heartbeat_sender_free(struct weir__heartbeat_sender *sender);

#endif
