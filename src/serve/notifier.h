/*
 * The notifier: sends warnings (warn_at) to the URL of `notify` in weir.yaml, as signed JSON;
 * docs/reference/denials.md, "Warnings". It runs in a thread of the agent, and reads the ring of recent denials: no
 * decision waits for it.
 *
 * One message at a time is in memory; the warnings behind it stay in the ring, and the oldest of them are overwritten
 * if the receiver is unavailable for long. A message is sent until the receiver accepts it, so at least once.
 */
#ifndef WEIR_SERVE_NOTIFIER_H
#define WEIR_SERVE_NOTIFIER_H

#include "config/config.h"

struct weir__logger;
struct weir__notifier;

/* `ending`: called at least once a second during a transfer, which is aborted if it returns true. NULL: no memory. */
struct weir__notifier *weir__notifier_new(const struct weir__config *config, const weir_segment *segment,
                                          const struct weir__logger *log, bool (*ending)(void *context), void *context);
void weir__notifier_free(struct weir__notifier *notifier);
#define WEIR__NOTIFIER_STEP_MS 1000
/* Sends a message if there is something to send and the time has come. To be called every WEIR__NOTIFIER_STEP_MS. */
void weir__notifier_step(struct weir__notifier *notifier);

#endif
