/*
 * What rules of `consistency: eventual` let pass is written down in a ledger (table/ledger.h), from which the agent
 * tells the store. Nothing here waits, and nothing that goes wrong with it disturbs a request.
 */
#ifndef WEIR_ENGINE_LEDGER_H
#define WEIR_ENGINE_LEDGER_H

#include "engine/mapped_file.h"
#include "engine/engine.h"
#include "table/ledger.h"

#include <weir/store.h>

#define WEIR__DELTA_LEDGER_BYTES_MIN (UINT64_C(1) << 20) /* of a new one, unless told */
/* The agent gives a life sign several times a second: one that is silent for longer is gone. */
#define WEIR__DELTA_LEDGER_SILENT_MS 2000

struct weir__delta_ledger {
    struct weir__mapped mapped;
    struct weir__ledger ledger;
    uint64_t opened_ms;
};

/*
 * Opens or makes the ledger at `path`; NULL: in anonymous memory, for this process and those it forks. One that is
 * damaged is replaced: it was beside a segment that may be whole, and what it had cannot be read.
 */
/* The size of a new ledger beside a segment of so many bytes, unless configured. */
static inline uint64_t weir__delta_ledger_bytes(uint64_t segment)
{
    return segment / 4 < WEIR__DELTA_LEDGER_BYTES_MIN ? WEIR__DELTA_LEDGER_BYTES_MIN : segment / 4;
}

int weir__delta_ledger_open(const struct weir__making *where, struct weir__delta_ledger **deltas);
void weir__delta_ledger_close(struct weir__delta_ledger *deltas);

/* The deltas in which a rule's counters are written down, or NULL. */
static inline struct weir__delta_ledger *weir__delta_ledger_of(const struct weir__ruleset *ruleset,
                                                               const struct weir__rule *rule)
{
    bool written = ruleset->deltas && rule && ruleset->consistency[rule->index] == WEIR__EVENTUAL;
    return written && !weir__load32(&ruleset->deltas->mapped.lost) ? ruleset->deltas : NULL;
}

/* Writes down that `amount` was taken, or with a negative one given back. */
void weir__delta_ledger_record(const struct weir__delta_ledger *deltas, const weir_segment *segment,
                               const struct weir__rule *rule, const struct weir__quota *quota, weir_text key,
                               int64_t amount);
/*
 * For those who give back, as it may be less than they ask for: what the counter has before, and after it the rest.
 * Others who take meanwhile make it look less: then less passes, not more.
 */
int64_t weir__delta_ledger_before(const weir_segment *segment, const struct weir__quota *quota, weir_text key,
                                  weir_time now);
void weir__delta_ledger_record_refund(const struct weir__delta_ledger *deltas, const weir_segment *segment,
                                      const struct weir__rule *rule, const struct weir__quota *quota, weir_text key,
                                      int64_t asked, int64_t before, int64_t after);

/* The slow way of weir__delta_ledger_unavailable, for rules that are written down and do not decide alone. */
bool weir__delta_ledger_silent(const struct weir__delta_ledger *deltas);

/* True if the rule's policy is not to decide alone, and the store is away or nobody speaks to it. */
static inline bool weir__delta_ledger_unavailable(const struct weir__ruleset *ruleset, const struct weir__rule *rule)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(ruleset, rule);
    return deltas && rule->on_failure != WEIR__FAIL_LOCAL && weir__delta_ledger_silent(deltas);
}

/* As weir_ledger_stats_read. */
void weir__delta_ledger_stats(const struct weir__delta_ledger *deltas, weir_ledger_stats *stats);

/* What sets tiers apart in the ledger: a hash of the tier's name, 0 for the default. */
uint64_t weir__delta_ledger_tier(const struct weir__quota *quota);

#endif
