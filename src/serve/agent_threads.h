/*
 * The control plane's slow part, in threads of its own beside the exchange: the rules service and its listener, rules
 * that another host publishes, and the figures that are written down every second.
 */
#ifndef WEIR_SERVE_AGENT_THREADS_H
#define WEIR_SERVE_AGENT_THREADS_H

#include "config/config.h"
#include "base/log.h"

struct weir__keeper;

/* True if the configuration has anything for it to do. */
bool weir__keeper_needed(const struct weir__config *config);
/*
 * Starts it. NULL after it was told why not. Signals must be blocked already: they are not for these threads. What the
 * configuration and the log say must stay.
 */
struct weir__keeper *weir__keeper_start(const struct weir__config *config, const struct weir__logger *log);
void weir__keeper_stop(struct weir__keeper *keeper);

/*
 * Before anything runs: sees to it that there is a file with the rules in force. They are asked for once; without an
 * answer the last good ones stay, and without any there are none, until another start finds some. False after it was
 * told that not even that is possible.
 */
bool weir__keeper_prepare(const struct weir__config *config, const struct weir__logger *log);

#endif
