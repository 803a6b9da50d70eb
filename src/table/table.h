/* What the table offers to the engine: decisions on a mapped segment, and a look inside. */
#ifndef WEIR_TABLE_TABLE_H
#define WEIR_TABLE_TABLE_H

#include "algo/algo.h"
#include "table/cuckoo.h"

/*
 * Decides one request, blocks included, and takes it. Returns 0 or a negative error; on error nothing was taken.
 * On a read-only op (stats == NULL) it only tells what would happen.
 */
int weir__table_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                     int64_t cost, enum weir__mode mode, weir_decision *decision);

/* What a request makes of an entry, if that is still as it was seen; and what depends on it of the decision. */
struct weir__step {
    weir__cell seen, next;
    int64_t remaining, reset_after_ns;
};

/*
 * Decides for a limit whose whole state is one slot (weir__is_one_slot): true if the entry is in that slot, and the
 * request passes without soft and without a delay. Nothing is taken before the step's swap succeeds, and what was never
 * there as a whole, no swap finds.
 */
bool weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                     int64_t cost, struct weir__step *step);

/* The same as the first for a slot under a limit of requests in flight; if it passes, *lease gives it back (permits.h).
 */
int weir__table_acquire(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                        weir_lease *lease, weir_decision *decision);

/* Marks a key that a look found to be denied, so that it does not lose its counter to keys that are not. */
void weir__table_deny(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* Forgets the key's counter. */
int weir__table_reset(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* Blocks the key for so long from now; 0 ends a block. */
int weir__table_block(const struct weir__op *op, const struct weir__key_location *where, int64_t for_us);

/* ---- The ways to keep a count, with permits.h; weir__table_take chooses ---- */

int weir__slot_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision);
int weir__pair_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision);
int weir__ring_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision);
int weir__log_store_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                         int64_t cost, enum weir__mode mode, weir_decision *decision);

void weir__ring_deny(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);
void weir__log_deny(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* Empties the slot of exactly this tag, if there is one; the others also give back what they have in the slab. */
int weir__slot_drop(const struct weir__op *op, const struct weir__key_location *where);
int weir__pair_drop(const struct weir__op *op, const struct weir__key_location *where);
int weir__ring_drop(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);
int weir__log_drop(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* ---- The segment as a whole ---- */

/* What a new segment should look like. */
struct weir__segment_spec {
    uint64_t bytes, slab_bytes;
    int64_t wall_ns, boot_ns; /* both clocks, now */
    uint64_t boot[2];
    uint8_t secret[WEIR__SECRET_BYTES];
};

/* Lays out an empty segment in zeroed memory of plan->bytes. Returns 0 or WEIR_ESIZE. */
int weir__segment_format(void *memory, const struct weir__segment_spec *plan);

/* Checks a mapped segment of `bytes` bytes. Returns 0 and fills *table, or says what is wrong with it. */
int weir__segment_attach(void *memory, uint64_t bytes, struct weir__table *table);

void weir__segment_stats(const struct weir__table *table, weir_stats *stats);
int weir__segment_each(const struct weir__op *op, int (*visit)(void *context, const weir_entry *entry), void *context);
/* Looks at up to `lines` lines, spread evenly. Returns the slots looked at; *live of them have not recovered. */
uint64_t weir__segment_sample(const struct weir__op *op, uint64_t lines, uint64_t *live);
int weir__segment_validate(const struct weir__op *op, weir_report *report);

#endif
