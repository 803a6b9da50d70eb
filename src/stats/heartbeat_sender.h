/*
 * The agent's heartbeat sender: sends this host's heartbeat to the store, receives the other hosts' and writes the list
 * of hosts to the .hosts file.
 */
#ifndef WEIR_STATS_HEARTBEAT_SENDER_H
#define WEIR_STATS_HEARTBEAT_SENDER_H

#include "serve/admin_host.h"

struct weir__heartbeat_sender;

/* True if other hosts can exist: a shared store, or an admin listener that hosts poll rules from. */
bool weir__heartbeat_sender_wanted(const struct weir__config *config);
/* NULL: no memory. The arguments must outlive the sender. */
struct weir__heartbeat_sender *weir__heartbeat_sender_new(const struct weir__config *config, struct weir__host *host,
                                                          const struct weir__logger *log);
/* Sends and receives once; call it every WEIR__HEARTBEAT_EVERY_MS. Blocks for at most about a second. */
void weir__heartbeat_sender_run(struct weir__heartbeat_sender *sender);
/* Removes this host from the store and frees the sender. NULL is allowed. */
void weir__heartbeat_sender_free(struct weir__heartbeat_sender *sender);

#endif
