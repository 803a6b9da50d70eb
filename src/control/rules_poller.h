/*
 * The rules retriever: another host's published rules, looked at again and again, and the last good set kept on disk.
 *
 * The gateway reads that file and nothing else, so it starts and runs without the other host. What comes is checked
 * as weir lint does before it replaces anything.
 */
#ifndef WEIR_CONTROL_RULES_POLLER_H
#define WEIR_CONTROL_RULES_POLLER_H

#include "config/config.h"
#include "base/log.h"

struct weir__rules_poller;

/* NULL: no memory. The configuration and the log must stay. */
struct weir__rules_poller *weir__rules_poller_new(const struct weir__config *config, const struct weir__logger *log);
/*
 * Looks once; waits for the answer, some seconds at most. 1: new rules are on disk; 0: nothing has changed; -1: there
 * was no answer or none that is good, and the rules are as they were. Told once for each change of that.
 */
int weir__rules_poller_poll(struct weir__rules_poller *poller);
/* How long to wait until the next look: the poll's time with jitter, longer after failures. */
int64_t weir__rules_poller_wait_ms(struct weir__rules_poller *poller);
/* What is to go along with each request, about this host, is asked for there: a line without its end, or 0. */
void weir__rules_poller_set_heartbeat(struct weir__rules_poller *poller,
                                      size_t (*format_heartbeat)(void *context, char *to, size_t size), void *context);
void weir__rules_poller_free(struct weir__rules_poller *poller);

#endif
