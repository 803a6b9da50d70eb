/* The agent's part of the fleet: it tells of this host, hears of others, and writes down who there is. */
#ifndef WEIR_STATS_HEARTBEAT_SENDER_H
#define WEIR_STATS_HEARTBEAT_SENDER_H

#include "serve/admin_host.h"

struct weir__fleet_teller;

/* True if there is anybody to hear of: a store that others share, or those who follow this host's rules. */
bool weir__fleet_wanted(const struct weir__config *config);
/* NULL: no memory. All of them must stay. */
struct weir__fleet_teller *weir__fleet_teller_new(const struct weir__config *config, struct weir__host *host,
                                                  const struct weir__logger *log);
/* One turn, every WEIR__FLEET_EVERY_MS. Waits for the store, but not for long. */
void weir__fleet_teller_turn(struct weir__fleet_teller *teller);
/* Says that this host ends. NULL is allowed. */
void weir__fleet_teller_free(struct weir__fleet_teller *teller);

#endif
