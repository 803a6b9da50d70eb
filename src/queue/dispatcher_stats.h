/* What is told of the dispatcher: lines for /metrics, in a file beside the segment that nginx's workers pass on. */
#ifndef WEIR_QUEUE_DISPATCHER_STATS_H
#define WEIR_QUEUE_DISPATCHER_STATS_H

#include "queue/queue.h"

/* Since the agent began. */
struct weir__dispatcher_counts {
    uint64_t accepted, refused;           /* by who accepts */
    uint64_t delivered, attempts, failed; /* of the attempts, those that are made again or were the last */
    uint64_t dead;                        /* given up; those over their age are the queue's, and not among them */
    uint64_t requeued;                    /* claimed, but the rule had nothing left */
    bool active, standby;                 /* this agent does; another does */
};

/* Replaces the file. 0, an error of the queue's, or 1: it could not be written. *waiting: all that does. */
int weir__dispatcher_write_stats(struct weir__queue *queue, const struct weir__dispatcher_counts *counts,
                                 int64_t now_ms, const char *path, int64_t *waiting);

#endif
