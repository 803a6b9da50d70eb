/* The queue as people ask about it: stats, lists and changes as JSON. Fills in struct weir__control_queue. */
#ifndef WEIR_QUEUE_QUEUE_ADMIN_H
#define WEIR_QUEUE_QUEUE_ADMIN_H

#include "config/config.h"
#include "base/log.h"
#include "control/host.h"

struct weir__queue_admin;

/*
 * For a configuration that has a queue; it and the log must stay. The queue is opened when it is first asked. NULL:
 * no memory.
 */
struct weir__queue_admin *weir__queue_admin_open(const struct weir__config *config, const struct weir__logger *log);
/* NULL is allowed. */
void weir__queue_admin_close(struct weir__queue_admin *admin);
const struct weir__control_queue *weir__queue_admin_calls(const struct weir__queue_admin *admin);

#endif
