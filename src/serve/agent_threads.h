/*
 * The control plane's slow part, in threads of its own beside the exchange: the rules service and its listener, rules
 * that another host publishes, and the figures that are written down every second.
 */
#ifndef WEIR_SERVE_AGENT_THREADS_H
#define WEIR_SERVE_AGENT_THREADS_H

#include "config/config.h"
#include "base/log.h"

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

/*
 * Before anything runs: sees to it that there is a file with the rules in force. They are asked for once; without an
 * answer the last good ones stay, and without any there are none, until another start finds some. False after it was
 * told that not even that is possible.
 */
bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log);

#endif
