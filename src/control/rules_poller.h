/*
 * The rules poller: fetches another host's published rules repeatedly and keeps the last good set on disk.
 *
 * The gateway reads only that file, so it starts and runs without the other host. New rules are checked as weir lint
 * does before they replace the file.
 */
#ifndef WEIR_CONTROL_RULES_POLLER_H
#define WEIR_CONTROL_RULES_POLLER_H

#include "config/config.h"
#include "base/log.h"

struct weir__rules_poller;

/* NULL: no memory. The configuration and the log must outlive it. */
struct weir__rules_poller *weir__rules_poller_new(const struct weir__config *config, const struct weir__logger *log);
/*
 * Polls once, for some seconds at most. 1: new rules are on disk; 0: unchanged; -1: no reply, or bad rules; the file is
 * unchanged. Logs each change of that state once.
 */
int weir__rules_poller_poll(struct weir__rules_poller *poller);
/* Milliseconds until the next poll: the interval with jitter, longer after failures. */
int64_t weir__rules_poller_wait_ms(struct weir__rules_poller *poller);
/* Sets the function that formats the heartbeat sent with each poll: one line, or length 0 for none. */
void weir__rules_poller_set_heartbeat(struct weir__rules_poller *poller,
                                      size_t (*format_heartbeat)(void *context, char *to, size_t size), void *context);
void weir__rules_poller_free(struct weir__rules_poller *poller);

#endif
