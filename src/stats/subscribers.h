/* Hosts that take their rules from this one: what each has told with its last request for them. For any thread. */
#ifndef WEIR_STATS_SUBSCRIBERS_H
#define WEIR_STATS_SUBSCRIBERS_H

#include "stats/membership.h"

struct weir__followers;

/* NULL: no memory. */
struct weir__followers *weir__followers_new(void);
/* NULL is allowed. */
void weir__followers_free(struct weir__followers *followers);
/* What one told. Without room the one that has been silent for longest gives way, if it is silent. */
void weir__followers_hear(struct weir__followers *followers, const struct weir__told *told, int64_t now_ms);
/* Adds them to a list that has room for WEIR__FLEET_MAX; of a host that is in it already, what is newer. */
void weir__followers_add(struct weir__followers *followers, struct weir__fleet_list *list, int64_t now_ms);

#endif
