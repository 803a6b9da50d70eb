/*
 * The control plane's slow part, in threads of its own beside the exchange: the rules service and its listener, rules
 * that another host publishes, and the figures that are written down every second.
 */
#ifndef WEIR_SERVE_AGENT_THREADS_H
#define WEIR_SERVE_AGENT_THREADS_H

#include "sync/exchange.h"

struct weir__agent_threads;

/* True if the configuration has anything for it to do. */
bool weir__agent_needed(const struct weir__config *config);
/*
 * Starts it. NULL after it was told why not. Signals must be blocked already: they are not for these threads. What the
 * configuration and the log say must stay.
 */
struct weir__agent_threads *weir__agent_threads_start(const struct weir__config *config,
                                                      const struct weir__logger *log);
void weir__agent_threads_stop(struct weir__agent_threads *threads);

/* Runs until told to end, as weir__exchange_run does. For configurations that weir__agent_needed is true of. */
enum weir__exchange_end weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals,
                                        const struct weir__exchange_watch *watch);

#endif
