/*
 * The agent's threads beside the exchange with the store: the rules service and its listener, the poller of another
 * host's rules, the history, the load sampler, heartbeats, and the queue's listener and dispatcher.
 */
#ifndef WEIR_SERVE_AGENT_THREADS_H
#define WEIR_SERVE_AGENT_THREADS_H

#include "sync/sync.h"

struct weir__agent_threads;

/* True if the configuration needs an agent. */
bool weir__agent_needed(const struct weir__config *config);
/* Starts the threads. NULL after a logged error. The caller has blocked signals, and keeps `config` and `log`. */
struct weir__agent_threads *weir__agent_threads_start(const struct weir__config *config,
                                                      const struct weir__logger *log);
void weir__agent_threads_stop(struct weir__agent_threads *threads);

/* Runs the agent: its threads, and the exchange in this thread, until a signal stops it or `watch` reports a change. */
enum weir__exchange_end weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals,
                                        const struct weir__exchange_watch *watch);

#endif
