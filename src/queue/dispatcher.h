/*
 * The dispatcher of deferred requests: a thread that takes what waits in the queue, asks the engine for the same
 * counter as any request would, and delivers it. docs/queue.md says what that promises. In reading order:
 *
 *   drain_law       what an answer means, when to try again
 *   drain_request   which headers go along
 *   drain_send      one request on its way
 *   drain_figures   what is told of it
 *   drain_turn      one request after the other; dispatcher_internal.h: what the files share
 *   drain_clock     what time it is
 *   dispatcher           the thread
 */
#ifndef WEIR_QUEUE_DISPATCHER_H
#define WEIR_QUEUE_DISPATCHER_H

#include "config/config.h"
#include "base/log.h"

struct weir__dispatcher;

/*
 * Starts it, for a configuration that has a queue. NULL: no memory. A queue that cannot be opened is told once and
 * tried again. All three must stay.
 */
struct weir__dispatcher *weir__dispatcher_start(const struct weir__config *config, weir *engine,
                                                const struct weir__logger *log);
/* Something has been put into the queue. From any thread. NULL is allowed. */
void weir__dispatcher_wake(struct weir__dispatcher *dispatcher);
/* How many were put into it and how many were refused since the agent began: told with the other stats. */
void weir__dispatcher_set_ingested(struct weir__dispatcher *dispatcher, uint64_t accepted, uint64_t refused);
/* Gives what is under way two seconds to end; the rest waits in the queue again. NULL is allowed. */
void weir__dispatcher_finish(struct weir__dispatcher *dispatcher);
/* The same, and nobody may wake it any more. */
void weir__dispatcher_stop(struct weir__dispatcher *dispatcher);

#endif
