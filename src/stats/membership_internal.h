/* Shared by the files of membership: JSON of heartbeats, and the exchange with the store. */
#ifndef WEIR_STATS_MEMBERSHIP_INTERNAL_H
#define WEIR_STATS_MEMBERSHIP_INTERNAL_H

#include "stats/membership.h"
#include "engine/store_options.h"

#include <jansson.h>

/* The script lua/hosts.lua and its SHA-1 for EVALSHA. */
extern const char weir__hosts_script[];
extern const char weir__hosts_script_sha[41];

/* NULL: no memory. */
json_t *weir__heartbeat_to_json(const struct weir__heartbeat *heartbeat);
/* False: it is no such object. */
bool weir__heartbeat_from_json(const json_t *object, struct weir__heartbeat *heartbeat);
/* Copies UTF-8, truncated between characters. */
void weir__heartbeat_truncate(const char *text, char *to, size_t size);

/* ---- The store ---- */

struct weir__heartbeat_store;

/* NULL: no memory. `patience_us`: time-out of a reply. */
struct weir__heartbeat_store *weir__heartbeat_store_new(const struct weir__store_options *options, int64_t patience_us);
void weir__heartbeat_store_free(struct weir__heartbeat_store *link);
/*
 * Sends the heartbeat and reads the other hosts' into `list`, replacing those that came from the store; with `list`
 * NULL only counts them. 0, or an error and its reason (WEIR__HOSTS_WHY bytes). *count: hosts in the store.
 */
int weir__heartbeat_store_exchange(struct weir__heartbeat_store *link, const struct weir__heartbeat *heartbeat,
                                   struct weir__host_list *list, int64_t *count, char *why);
/* Removes this host from the store; waits for half the time-out at most. */
void weir__heartbeat_store_leave(struct weir__heartbeat_store *link, const char *id);

#endif
