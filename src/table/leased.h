/*
 * Leased units: what this host may spend of a counter that the store keeps (docs/internals/leases.md). One slot of the
 * table, in which the anchor is the end of the lease, the expiry is 0, and `used` has two numbers: the units left, and
 * what the store had left in the pool, rounded down. No entry means no units: an eviction loses units, and never makes
 * any.
 */
#ifndef WEIR_TABLE_LEASED_H
#define WEIR_TABLE_LEASED_H

#include "table/table.h"

#define WEIR__LEASED_BITS 20
#define WEIR__LEASED_MAX  ((INT64_C(1) << WEIR__LEASED_BITS) - 1) /* units of a slot */

/* The location of leased units: by the counter's hash, and the tier's. */
#define WEIR__LEASED_SALT UINT64_C(0x6c65617365642131) /* any number: separates them from the counter */

/* Also by the boot: after a reboot segment time may be earlier, and a lease that has ended would be valid again. */
static inline uint64_t weir__leased_hash(const struct weir__table *table, uint64_t hash)
{
    return hash ^ WEIR__LEASED_SALT ^ weir__load64(&table->header->boot[0]);
}

struct weir__leased {
    int64_t units;  /* left to spend */
    int64_t pool;   /* what the store had left in the pool */
    int64_t end_us; /* monotonic; 0: there is no lease */
};

/* Locates leased units: of a counter by its hash (weir__counter_hash), exclusive or that of the tier. */
void weir__leased_locate(const struct weir__op *op, uint64_t hash, struct weir__key_location *where);

/*
 * Looks at `slot`, which may be that of any entry: true if it has at least `cost` units of this tag. Nothing is spent
 * before the caller's swap of step->seen succeeds. *after: what is left then.
 */
bool weir__leased_look(const struct weir__op *op, const weir__cell *slot, uint64_t tag, int64_t cost,
                       struct weir__step *step, struct weir__leased *after);

/*
 * The following return 0 or a negative error. *leased: afterwards; all zeros: there is no lease.
 */
int weir__leased_read(const struct weir__op *op, const struct weir__key_location *where, struct weir__leased *leased);
/* Spends `cost` > 0; *spent: whether there was enough. */
int weir__leased_spend(const struct weir__op *op, const struct weir__key_location *where, int64_t cost, bool *spent,
                       struct weir__leased *leased);
/*
 * Puts back `cost` units that were spent of the lease with this end. If that has changed, the agent may have reported
 * the lease without them: they are lost.
 */
int weir__leased_roll_back(const struct weir__op *op, const struct weir__key_location *where, int64_t cost,
                           int64_t end_us, struct weir__leased *leased);
/*
 * For the agent: removes what exceeds `most` units, *given, and changes the end, so that earlier spends are not rolled
 * back any more.
 */
int weir__leased_report(const struct weir__op *op, const struct weir__key_location *where, int64_t most, int64_t *given,
                        struct weir__leased *leased);
/* For the agent: adds `grant` to the units left, or, unless `known`, replaces them. */
int weir__leased_put(const struct weir__op *op, const struct weir__key_location *where,
                     const struct weir__leased *grant, bool known, struct weir__leased *leased);

#endif
