/* Subscribers: hosts that poll their rules from this one, each with the heartbeat of its last poll. Thread-safe. */
#ifndef WEIR_STATS_SUBSCRIBERS_H
#define WEIR_STATS_SUBSCRIBERS_H

#include "stats/membership.h"

struct weir__subscribers;

/* NULL: no memory. */
struct weir__subscribers *weir__subscribers_new(void);
/* NULL is allowed. */
void weir__subscribers_free(struct weir__subscribers *subscribers);
/* Records a heartbeat. If the table is full, it replaces the host that has been silent longest, if one is silent. */
void weir__subscribers_record(struct weir__subscribers *subscribers, const struct weir__heartbeat *heartbeat,
                              int64_t now_ms);
/* Appends them to a list with room for WEIR__HOSTS_MAX; of a host that is listed already, the newer heartbeat stays. */
void weir__subscribers_append(struct weir__subscribers *subscribers, struct weir__host_list *list, int64_t now_ms);

#endif
