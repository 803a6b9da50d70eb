/* Permits of concurrency limits: taken, released, and freed by their expiry. */
#ifndef WEIR_TABLE_PERMITS_H
#define WEIR_TABLE_PERMITS_H

#include "table/slab.h"

/* Retry-After of a denial: the time of the next release is unknown. */
#define WEIR__PERMIT_RETRY_NS WEIR_SECOND

/* Takes a permit that expires after the limit's window, if one is free; *lease releases it. */
int weir__permit_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      weir_lease *lease, weir_decision *decision);
/* The decision of a take (`cost` > 0) or a peek; writes nothing. */
int weir__permit_peek(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      int64_t cost, weir_decision *decision);
/* WEIR_ELEASE: released before, or expired and taken by another request. */
int weir__permit_release(const struct weir__op *op, const weir_lease *lease);
/* Extends the lease by its duration from now. WEIR_ELEASE: expired. */
int weir__permit_renew(const struct weir__op *op, weir_lease *lease);

#endif
