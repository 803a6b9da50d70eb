/*
 * Resizing a segment while it is in use, by doublings of the size that it was made with. docs/internals/table.md has
 * the proof.
 *
 * Buckets are never renumbered: a doubling adds regions of as many buckets as there were, and one more bit of a tag
 * chooses between them. A key's index within its region stays. So half of the entries move, each to the same two
 * buckets of another region, and the slab and everything else stay where they are.
 *
 *     header->geometry    checksum 16 | number of changes 40 | doublings before 4 | doublings now 4
 *
 * While the two numbers differ, entries are being moved: by weir__resize_finish, and by every lookup that meets one.
 */
#ifndef WEIR_TABLE_RESIZE_H
#define WEIR_TABLE_RESIZE_H

#include "table/table.h"

/* True while entries are being moved. */
static inline bool weir__is_resizing(const struct weir__table *table)
{
    uint64_t geometry = weir__load64(&table->header->geometry);
    return weir__doublings(geometry) != weir__doublings_before(geometry);
}

/*
 * Changes the geometry. All buckets of both must be mapped by all processes. WEIR_EBUSY: entries are being moved, or
 * the geometry was changed meanwhile.
 */
int weir__resize_begin(const struct weir__table *table, unsigned doublings);

/*
 * Moves the remaining entries, counted in *moved, and ends the change. Any number of processes may do it at a time, and
 * all others decide meanwhile. WEIR_EBUSY: not all could be moved; repeat it.
 */
int weir__resize_finish(const struct weir__op *op, uint64_t *moved);

#endif
