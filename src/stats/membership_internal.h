/* What the files of the fleet share. */
#ifndef WEIR_STATS_MEMBERSHIP_INTERNAL_H
#define WEIR_STATS_MEMBERSHIP_INTERNAL_H

#include "stats/membership.h"
#include "engine/store_options.h"

#include <jansson.h>

/* lua/hosts.lua, and its SHA-1 as servers know it. */
extern const char weir__hosts_script[];
extern const char weir__hosts_script_sha[41];

/* NULL: no memory. */
json_t *weir__heartbeat_to_json(const struct weir__heartbeat *heartbeat);
/* False: it is no such object. */
bool weir__heartbeat_from_json(const json_t *object, struct weir__heartbeat *heartbeat);
/* UTF-8 of any length, cut between characters. */
void weir__heartbeat_truncate(const char *text, char *to, size_t size);

/* ---- The store ---- */

struct weir__heartbeat_store;

/* NULL: no memory. `patience_us`: how long an answer may take. */
struct weir__heartbeat_store *weir__heartbeat_store_new(const struct weir__store_options *options, int64_t patience_us);
void weir__heartbeat_store_free(struct weir__heartbeat_store *link);
/*
 * Tells, and hears who else is there into `list`, in which the store's own are replaced; if `list` is NULL, only how
 * many there are. 0, or an error, and why (WEIR__HOSTS_WHY bytes). *count: all that are there.
 */
int weir__heartbeat_store_exchange(struct weir__heartbeat_store *link, const struct weir__heartbeat *heartbeat,
                                   struct weir__host_list *list, int64_t *count, char *why);
/* It ends. Waits a moment at the most. */
void weir__heartbeat_store_leave(struct weir__heartbeat_store *link, const char *id);

#endif
