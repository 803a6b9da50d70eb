/* What the files of the fleet share. */
#ifndef WEIR_STATS_MEMBERSHIP_INTERNAL_H
#define WEIR_STATS_MEMBERSHIP_INTERNAL_H

#include "stats/membership.h"
#include "remote/options.h"

#include <jansson.h>

/* lua/hosts.lua, and its SHA-1 as servers know it. */
extern const char weir__fleet_script[];
extern const char weir__fleet_script_sha[41];

/* NULL: no memory. */
json_t *weir__told_json(const struct weir__told *told);
/* False: it is no such object. */
bool weir__told_from(const json_t *object, struct weir__told *told);
/* UTF-8 of any length, cut between characters. */
void weir__fleet_cut(const char *text, char *to, size_t size);

/* ---- The store ---- */

struct weir__fleet_link;

/* NULL: no memory. `patience_us`: how long an answer may take. */
struct weir__fleet_link *weir__fleet_link_new(const struct weir__store_options *options, int64_t patience_us);
void weir__fleet_link_free(struct weir__fleet_link *link);
/*
 * Tells, and hears who else is there into `list`, in which the store's own are replaced; if `list` is NULL, only how
 * many there are. 0, or an error, and why (WEIR__FLEET_WHY bytes). *count: all that are there.
 */
int weir__fleet_link_tell(struct weir__fleet_link *link, const struct weir__told *told, struct weir__fleet_list *list,
                          int64_t *count, char *why);
/* It ends. Waits a moment at the most. */
void weir__fleet_link_leave(struct weir__fleet_link *link, const char *id);

#endif
