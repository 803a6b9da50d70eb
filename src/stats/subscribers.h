/* Hosts that take their rules from this one: what each has told with its last request for them. For any thread. */
#ifndef WEIR_STATS_SUBSCRIBERS_H
#define WEIR_STATS_SUBSCRIBERS_H

#include "stats/membership.h"

struct weir__subscribers;

/* NULL: no memory. */
struct weir__subscribers *weir__subscribers_new(void);
/* NULL is allowed. */
void weir__subscribers_free(struct weir__subscribers *subscribers);
/* What one told. Without room the one that has been silent for longest gives way, if it is silent. */
void weir__subscribers_record(struct weir__subscribers *subscribers, const struct weir__heartbeat *heartbeat,
                              int64_t now_ms);
/* Adds them to a list that has room for WEIR__HOSTS_MAX; of a host that is in it already, what is newer. */
void weir__subscribers_append(struct weir__subscribers *subscribers, struct weir__host_list *list, int64_t now_ms);

#endif
