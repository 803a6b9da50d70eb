/* The queue that a weir.yaml has: opened by who puts into it, and by who takes out of it. */
#ifndef WEIR_QUEUE_OPEN_H
#define WEIR_QUEUE_OPEN_H

#include "config/config.h"
#include "base/log.h"
#include "queue/queue.h"

/*
 * `name` as in weir__queue_options; the log must stay. An error of the queue's, and why (WEIR__QUEUE_SOURCE_TEXT
 * bytes).
 */
int weir__queue_open_configured(const struct weir__config *config, const char *name, const struct weir__logger *log,
                                struct weir__queue **queue, char *why);

#endif
