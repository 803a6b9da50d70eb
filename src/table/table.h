/* The interface of the table to the engine: takes on a mapped segment, and inspection. */
#ifndef WEIR_TABLE_TABLE_H
#define WEIR_TABLE_TABLE_H

#include "algo/algo.h"
#include "table/cuckoo.h"

/*
 * Decides one request, blocks included, and takes its cost. Returns 0 or a negative error; on error nothing was taken.
 * On a read-only op (stats == NULL) it computes the decision only.
 */
int weir__table_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                     int64_t cost, enum weir__mode mode, weir_decision *decision);

/* The change of an entry by a request, and the part of the decision that depends on the entry. */
struct weir__step {
    weir__cell seen, next;
    int64_t remaining, reset_after_ns;
};

/*
 * Decides for a limit whose state fits one slot (weir__is_one_slot): true if the slot has the entry and the request is
 * allowed without delay. Nothing is taken before the caller's swap of step->seen succeeds, and a torn read makes that
 * swap fail.
 */
bool weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                     int64_t cost, struct weir__step *step);

/* Takes a permit of a concurrency limit; if the request is allowed, *lease releases it (permits.h). */
int weir__table_acquire(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                        weir_lease *lease, weir_decision *decision);

/* Marks the entry of a denied key, so that it is evicted last. */
void weir__table_deny(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* Resets the key's counter. */
int weir__table_reset(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where);

/* Blocks the key for for_us from now; 0 ends a block. */
int weir__table_block(const struct weir__op *op, const struct weir__key_location *where, int64_t for_us);

/* True if some key may be blocked at mono_us: only then takes look up blocks, and the fast path does not apply. */
static inline bool weir__any_blocked(const struct weir__table *table, int64_t mono_us)
{
    return mono_us < (int64_t)weir__load64(&table->header->blocked_until_us);
}

/* ---- Storage of counters, with permits.h; weir__table_take chooses ---- */

int weir__slot_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision);
int weir__pair_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision);
/* Limits with a record in the slab: one attempt. Returns 1 when decided, 0 to retry, or a negative error. */
int weir__ring_attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *record,
                       int64_t cost, enum weir__mode mode, weir_decision *decision);
int weir__log_attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *record,
                      int64_t cost, enum weir__mode mode, weir_decision *decision);

/* Removes the entry of this tag. */
int weir__slot_drop(const struct weir__op *op, const struct weir__key_location *where);
int weir__pair_drop(const struct weir__op *op, const struct weir__key_location *where);

/* ---- The segment ---- */

/* Parameters of a new segment. */
struct weir__segment_spec {
    uint64_t bytes, slab_bytes;
    int64_t wall_ns, boot_ns; /* both clocks at creation */
    uint64_t boot[2];
    uint8_t secret[WEIR__SECRET_BYTES];
};

/* Formats zeroed memory of plan->bytes. Returns 0 or WEIR_ESIZE. */
int weir__segment_format(void *memory, const struct weir__segment_spec *plan);

/* Verifies a mapped segment of `bytes` bytes. Returns 0 and fills *table, or an error. */
int weir__segment_attach(void *memory, uint64_t bytes, struct weir__table *table);

/* True for layouts that weir__segment_convert knows. */
bool weir__layout_is_older(unsigned layout);
/* Converts a copy of a segment of such a layout, which no process uses. Returns 0 or an error. */
int weir__segment_convert(void *memory, uint64_t bytes);

void weir__segment_stats(const struct weir__table *table, weir_stats *stats);
int weir__segment_each(const struct weir__op *op, int (*visit)(void *context, const weir_entry *entry), void *context);
/* Samples up to `buckets` buckets, evenly distributed. Returns the number of slots; *live of them have not expired. */
uint64_t weir__segment_sample(const struct weir__op *op, uint64_t buckets, uint64_t *live);
int weir__segment_validate(const struct weir__op *op, weir_report *report);

/* ---- Counters of each rule, shared by all processes ---- */

/*
 * The counters of the rule with this id. NULL: it has none, or, with `claim`, which gives it some, all are taken. Never
 * freed: a rule that returns continues its counters.
 */
struct weir__rule_stats *weir__rule_stats_find(const struct weir__table *table, uint64_t id, bool claim);

#define WEIR__RULE_STATS_CLASSES 4 /* priority classes: critical, high, normal, low */
_Static_assert(WEIR__RULE_STATS_CLASSES <= WEIR__RULE_STATS_SHARDS, "a shard for each class");

/*
 * The number of shed requests of a priority class: `shed` of the shard with the number of the class. Class 0, critical,
 * is never shed, and shard 0 has the rule's id in that place; an invalid class counts as the last one.
 */
static inline uint64_t *weir__rule_stats_shed(struct weir__rule_stats *entry, int priority)
{
    return &entry->shard[priority > 0 && priority < WEIR__RULE_STATS_CLASSES ? priority : WEIR__RULE_STATS_CLASSES - 1]
                .shed;
}

/*
 * The number of warnings of a rule, one word of all processors: warnings are rare. It is in an entry of its own, which
 * versions without warnings take for that of a rule without a name. NULL: as weir__rule_stats_find.
 */
uint64_t *weir__rule_warnings_find(const struct weir__table *table, uint64_t rule_id, bool claim);
/* True for such an entry, which has the id of no rule. */
bool weir__rule_stats_is_warnings(const struct weir__rule_stats *entry);

/* Adds a duration to the histogram; `shard` is the processor, or any number. */
void weir__times_add(const struct weir__table *table, unsigned shard, int64_t ns);

#endif
