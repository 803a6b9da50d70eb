/* Requests in flight: slots that are taken, given back, and free by themselves when their lease ends. */
#ifndef WEIR_TABLE_PERMITS_H
#define WEIR_TABLE_PERMITS_H

#include "table/slab.h"

/* When others give back, nobody knows: what a denied one is told to wait. */
#define WEIR__PERMIT_RETRY_NS WEIR_SECOND

/* Takes a slot until now + the limit's window, if one is free; *lease is what gives it back. */
int weir__permit_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      weir_lease *lease, weir_decision *decision);
/* What would be said to somebody who takes one (`cost` > 0) or looks; writes nothing. */
int weir__permit_peek(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      int64_t cost, weir_decision *decision);
/* WEIR_ELEASE: it was given back before, or has ended and the slot is another's. */
int weir__permit_release(const struct weir__op *op, const weir_lease *lease);
/* Holds it for the same time from now on. WEIR_ELEASE: it has ended. */
int weir__permit_renew(const struct weir__op *op, weir_lease *lease);

#endif
