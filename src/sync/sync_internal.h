/* What the files of the synchronization share. */
#ifndef WEIR_SYNC_SYNC_INTERNAL_H
#define WEIR_SYNC_SYNC_INTERNAL_H

#include "sync/sync.h"
#include "remote/script.h"

#define WEIR__SYNC_PREFETCH  16     /* entries that are prefetched before the first of them is read */
#define WEIR__SYNC_REPOLLS   4      /* polls of a counter after it moved, after 1, 2, 4 and 8 rounds */
#define WEIR__SYNC_ACKED_MAX 131072 /* acknowledged deltas that are remembered (4 MiB) */
#define WEIR__SYNC_LATE_MS   100    /* above the jitter of a busy machine: later than that is late */

/* The agent's volatile state of an entry. */
struct weir__sync_entry {
    uint32_t epoch;     /* sync->epoch at its last exchange */
    uint32_t due;       /* round of the next poll, if scheduled */
    uint32_t failed_ms; /* since when its server does not reply, modulo 2^32; 0: it does */
    uint8_t repolls;    /* polls left without news */
    bool idle;          /* it was idle in the previous sweep */
    uint8_t orphan;     /* sweeps that found its counter unknown */

    /* Leases of units: leases.c. Times are milliseconds of the segment's clock, modulo 2^32. */
    uint8_t empty;      /* grants of nothing in a row, bounded */
    uint32_t demand;    /* units a second, times 256 */
    int64_t counted;    /* of the entry's amount, in the demand */
    uint32_t units;     /* in the slot after the last exchange */
    uint32_t looked_ms; /* when the demand was computed; 0: never */
    uint32_t used_ms;   /* when there was demand */
    uint32_t leased_ms; /* when it was exchanged */
    uint32_t rules;     /* sync->reloads at that time */
};

/* A delta that the store has acknowledged. */
struct weir__acknowledged {
    uint64_t identity;
    int64_t amount;
    int64_t window_end_us; /* of the entry in flight */
    uint64_t batch;
};

/* The counter of an entry, while the ruleset is acquired. */
struct weir__sync_counter {
    const struct weir__rule *rule;   /* NULL: unknown */
    const struct weir__quota *quota; /* as in the rule, not scaled */
    uint64_t hash;                   /* of the counter in the segment */
    uint64_t leased;                 /* of its leased units */
};

struct weir__sync {
    struct weir__sync_options with;
    const struct weir__ledger *ledger;
    weir_segment *segment;
    struct weir__sync_entry *tracked; /* by entry */
    uint64_t *scheduled;              /* bitmap by entry: it is polled when due */
    uint64_t swept;                   /* position of the sweep */
    uint64_t filled;                  /* entries in use so far in this pass */
    uint32_t round;
    unsigned slices;   /* of the round */
    unsigned slice;    /* next slice; 0: a round begins with it */
    uint64_t from;     /* word of the bitmap at which the previous exchange failed */
    uint64_t round_ms; /* when the round began */
    uint64_t counters; /* exchanged in the round */
    int64_t busy_us;   /* duration of its slices so far */
    unsigned failed;   /* rounds in a row */
    uint64_t contact_ms;
    uint64_t begun_ms; /* when this agent started */
    int64_t late_us;   /* over how long a time the present deltas accumulated; 0: since the previous round */
    bool behind;       /* the slices of the last round took longer than an interval */

    uint64_t batch_max; /* entries of the next batch, at most */
    int64_t timeout_us; /* of the batch in flight */

    struct weir__acknowledged *acked; /* ring buffer */
    uint64_t acked_count;
    uint64_t evicted_batch; /* the last batch that is not remembered completely */
    uint32_t epoch;         /* number of store resets */
    uint32_t reseed_epoch; /* epoch of the last reset with unknown losses: counters exchanged before it are re-seeded */
    uint32_t in_step;      /* consecutive batches without a gap, bounded; a reset costs IN_STEP_MIN */
    bool store_reset;      /* the current batch detected one */
    int64_t sent_us;       /* when the batch was sent, by the segment's monotonic clock */
    bool returning;        /* all leases are returned */
    uint64_t machine;      /* of this boot and host name: distinguishes hosts with copies of one ledger */

    struct weir__store_request request;
    struct weir__store_op *ops;
    struct weir__sync_counter *targets; /* counters of the ops */
    struct weir__group *groups;
    weir_time now; /* read once for several counters: reading two clocks costs more than a counter */

    /* The ruleset, during a round; and its eventual rules by id. */
    const struct weir__ruleset *ruleset;
    uint64_t reloads;
    const struct weir__rule **by_id;
    size_t by_id_count;
};

/* Acquires the ruleset by hazard pointer *at, which the caller releases. False: no memory. */
bool weir__sync_acquire_rules(struct weir__sync *sync, int *at);
/* Reads the clocks and updates late_us. */
void weir__sync_clock(struct weir__sync *sync);
/* Finds the counter of an entry. False: its rule or its text is gone; counter->rule is NULL. */
bool weir__sync_find_counter(const struct weir__sync *sync, const struct weir__ledger_entry *entry,
                             struct weir__sync_counter *counter);
/*
 * Fills entry `place` of the batch from an entry of the ledger, and the op, whose counter is known. False: nothing to
 * send.
 */
bool weir__sync_fill(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                     const struct weir__sync_counter *counter, uint64_t place);
/*
 * Fills op `place` of a batch of an earlier round or agent. An op whose counter is unknown is filled without effect, so
 * that the batch keeps its shape.
 */
void weir__sync_fill_again(struct weir__sync *sync, uint64_t place);
/* An op without effect. */
void weir__sync_fill_nothing(const struct weir__sync *sync, struct weir__store_op *op);
/* Applies the reply to op `place`. `took_us`: duration of the exchange. */
void weir__sync_apply(struct weir__sync *sync, uint64_t place, int64_t took_us);
/* Clears the op, and fills in the counter: its limit and its name. */
void weir__sync_fill_op(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                        const struct weir__ledger_text *text, struct weir__store_op *op);

/* ---- Leases of units (leases.c): as the functions above, for entries of leased rules ---- */

bool weir__sync_is_leased(const struct weir__sync *sync, const struct weir__sync_counter *counter);
bool weir__sync_fill_lease(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                           const struct weir__sync_counter *counter, uint64_t place);
/* False: the slot could not be read. */
uint64_t weir__sync_machine(void);
bool weir__sync_fill_lease_again(struct weir__sync *sync, uint64_t place, const struct weir__ledger_entry *entry);
void weir__sync_apply_lease(struct weir__sync *sync, uint64_t place);

/* Remembers an acknowledged delta. */
void weir__sync_remember(struct weir__sync *sync, const struct weir__ledger_in_flight *note);
/* Detects a store reset by the reply to a batch, and records the lost deltas again. */
void weir__sync_detect_reset(struct weir__sync *sync, uint64_t count);
/* The store may have lost deltas of this entry's counter. */
void weir__sync_reseed(struct weir__sync *sync, uint64_t index);

/* Schedules every entry of the ledger for one exchange. */
void weir__sync_schedule_all(struct weir__sync *sync);
void weir__sync_schedule(struct weir__sync *sync, uint64_t index, uint32_t rounds);
void weir__sync_unschedule(struct weir__sync *sync, uint64_t index);

#endif
