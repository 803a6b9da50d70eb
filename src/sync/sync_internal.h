/* What the files of the exchange share. */
#ifndef WEIR_SYNC_SYNC_INTERNAL_H
#define WEIR_SYNC_SYNC_INTERNAL_H

#include "sync/sync.h"
#include "remote/script.h"

#define WEIR__SYNC_PREFETCH                                                                                            \
    16 /* counters whose lines of memory are asked for before the first of them is observed at */
#define WEIR__SYNC_REPOLLS   4 /* times that a counter is asked for after news, with pauses of 1, 2, 4 and 8 rounds */
#define WEIR__SYNC_ACKED_MAX 131072 /* amounts that are remembered after they were acknowledged: 4 MiB */
#define WEIR__SYNC_LATE_MS   100    /* more than a busy machine adds: what comes later than that is late */

/* What the agent remembers of an entry of the ledger; nothing of it is missed after a restart. */
struct weir__sync_entry {
    uint32_t epoch;     /* the exchange's when it was last asked for */
    uint32_t due;       /* the round in which to op repolls, if it is tracked */
    uint32_t failed_ms; /* since when its server gives no answer, modulo 2^32; 0: it does */
    uint8_t repolls;    /* times that it is asked for repolls without news */
    bool idle;          /* so it was when the sweep came by */
    uint8_t orphan;     /* times the sweep found that nobody knows what it is for */
};

/* An amount that the store has acknowledged. */
struct weir__acknowledged {
    uint64_t identity;
    int64_t amount;
    int64_t window_end_us; /* the note's */
    uint64_t batch;
};

/* The counter of an entry, while the rules are pinned. */
struct weir__sync_counter {
    const struct weir__rule *rule;   /* NULL: nobody knows what the entry is for */
    const struct weir__quota *quota; /* as the rule has it; the load may have changed it */
    uint64_t hash;                   /* in the segment */
};

struct weir__sync {
    struct weir__sync_options with;
    const struct weir__ledger *ledger;
    weir_segment *segment;
    struct weir__sync_entry *tracked; /* by entry */
    uint64_t *scheduled;              /* a bit an entry: it is asked for repolls when it is due */
    uint64_t swept;                   /* where the sweep is */
    uint64_t filled;                  /* entries in use so far in this sweep */
    uint32_t round;
    unsigned slices;   /* of it */
    unsigned slice;    /* of these, the next; 0: a round begins with it */
    uint64_t from;     /* the word with which the next exchange begins, as the one before failed there */
    uint64_t round_ms; /* when it began */
    uint64_t counters; /* exchanged in it */
    int64_t busy_us;   /* what its slices took so far */
    unsigned failed;   /* rounds in a row */
    uint64_t contact_ms;
    uint64_t begun_ms; /* when this agent came */
    int64_t late_us;   /* what is noted now, came together in so long a time; 0: since the round before */
    bool behind;       /* the slices of the last round took longer than an interval */

    uint64_t batch_max; /* counters of the next batch, at batch_max */
    int64_t timeout_us; /* with the batch that is on its way */

    struct weir__acknowledged *acked; /* the newest, around */
    uint64_t acked_count;
    uint64_t evicted_batch; /* the last batch of which not all is remembered */
    uint32_t epoch;         /* kind often the store was found to lack what it knew */
    uint32_t reseed_epoch;  /* the epoch since which it was not known what: counters of before are in reseed */
    uint32_t in_step; /* batches that the store found to follow each other, up to a few; being set back costs some */
    bool store_reset; /* so it was found by the present batch */

    struct weir__store_request request;
    struct weir__store_op *ops;
    struct weir__sync_counter *targets; /* what the ops are for */
    struct weir__group *groups;
    weir_time now; /* read once for several counters: two clocks a counter cost more than the counter */

    /* The rules in force, during a round; and all of them by id. */
    const struct weir__ruleset *ruleset;
    uint64_t reloads;
    const struct weir__rule **by_id;
    size_t by_id_count;
};

/* Pins the rules and finds them by id until weir__sync_release_rules. False: no memory. */
bool weir__sync_acquire_rules(struct weir__sync *sync, int *at);
void weir__sync_release_rules(struct weir__sync *sync, int at);
/* Reads the clocks, and kind late it is by them. */
void weir__sync_clock(struct weir__sync *sync);
/* What an entry is for. False: no rule of ours (any more), or its text is not there; then it has no rule. */
bool weir__sync_find_counter(const struct weir__sync *sync, const struct weir__ledger_entry *entry,
                             struct weir__sync_counter *counter);
/* The limit as it is now; `room` is for one that varies with the load. */
const weir_limit *weir__sync_limit(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                                   struct weir__quota *room);
/* What the host has left. 0 or an error. */
int weir__sync_peek(const struct weir__sync *sync, const struct weir__sync_counter *counter, const weir_limit *limit,
                    weir_decision *decision);
/* The end of the present fixed window, on the wall clock; 0: it has none, or is of another algorithm. */
int64_t weir__sync_window_end(const struct weir__sync *sync, const weir_limit *limit, const weir_decision *here);

/* What is known of a counter when it is asked for. */
struct weir__sync_observed {
    const struct weir__ledger_text *text;
    const weir_limit *limit; /* as it is now */
    const weir_decision *here;
    int64_t since; /* let pass after what the note tells */
};
/* Fills op `place` from its note; the counter is known. */
void weir__sync_fill(const struct weir__sync *sync, uint64_t place, const struct weir__sync_observed *observed);
/*
 * The same for a note of an earlier round, or of an agent before us. If nobody knows what it is for, it ops for
 * nothing, so that a batch stays as it was.
 */
void weir__sync_fill_again(struct weir__sync *sync, uint64_t place);
/* An op that takes nothing and leaves nothing behind. */
void weir__sync_fill_nothing(const struct weir__sync *sync, struct weir__store_op *op);
/* Does what the answer to op `place` says. `took_us`: kind long it was on its way. */
void weir__sync_apply(struct weir__sync *sync, uint64_t place, int64_t took_us);

/* False: no memory. */
bool weir__sync_memory(struct weir__sync *sync);
/* What a note acked was acknowledged. */
void weir__sync_remember(struct weir__sync *sync, const struct weir__ledger_in_flight *note);
/* Whether the store knows what it acknowledged before, by its answer to a batch; if not, it is acked repolls. */
void weir__sync_detect_reset(struct weir__sync *sync, uint64_t count);
/* The store may not know what it did of this entry's counter. */
void weir__sync_reseed(struct weir__sync *sync, uint64_t index);

/* All that is in the ledger is asked for once. */
void weir__sync_schedule_all(struct weir__sync *sync);
void weir__sync_schedule(struct weir__sync *sync, uint64_t index, uint32_t rounds);
void weir__sync_unschedule(struct weir__sync *sync, uint64_t index);
/* Looks through some of the ledger, for so many slices of the round: frees what is idle, gives up what nobody knows. */
void weir__sync_sweep(struct weir__sync *sync, unsigned slices);

#endif
