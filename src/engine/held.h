/* Slots that a request under decision holds. */
#ifndef WEIR_ENGINE_HELD_H
#define WEIR_ENGINE_HELD_H

#include "engine/hits.h"

/* Takes a slot for a hit, and puts it into trial->held. */
int weir__hit_hold(const struct weir__trial *trial, struct weir__hit *hit, weir_decision *decision);
/* Gives it back, since the request is denied after all; tells what is left then. */
int weir__hit_let_go(const struct weir__trial *trial, struct weir__hit *hit, weir_decision *decision);

#endif
