/*
 * Records what rules of `consistency: eventual` admit, and the demand of leased ones, in the delta ledger
 * (table/ledger.h), from which the agent synchronizes with the store. Never blocks; errors do not affect requests.
 */
#ifndef WEIR_ENGINE_LEDGER_H
#define WEIR_ENGINE_LEDGER_H

#include "engine/engine.h"

#include <weir/store.h>

#define WEIR__DELTA_LEDGER_BYTES_MIN (UINT64_C(1) << 20) /* default size */
/* The agent updates its heartbeat several times a second: after this time without one it counts as dead. */
#define WEIR__DELTA_LEDGER_SILENT_MS 2000

struct weir__request_ctx;
struct weir__rule_eval;

/* The default size of a ledger for a segment of so many bytes. */
static inline uint64_t weir__delta_ledger_bytes(uint64_t segment)
{
    return segment / 4 < WEIR__DELTA_LEDGER_BYTES_MIN ? WEIR__DELTA_LEDGER_BYTES_MIN : segment / 4;
}

int weir__delta_ledger_open(const struct weir__file_spec *where, struct weir__delta_ledger *deltas);

/* The ledger that records a rule's deltas, or, of a leased rule, its demand; NULL: none. */
static inline struct weir__delta_ledger *weir__demand_ledger_of(const struct weir__ruleset *ruleset,
                                                                const struct weir__rule *rule)
{
    bool written =
        ruleset->deltas && rule &&
        (ruleset->consistency[rule->index] == WEIR__EVENTUAL || ruleset->consistency[rule->index] == WEIR__LEASED);
    return written && !weir__load32(&ruleset->deltas->mapped.lost) ? ruleset->deltas : NULL;
}

/* The ledger that records a rule's deltas, or NULL. */
static inline struct weir__delta_ledger *weir__delta_ledger_of(const struct weir__ruleset *ruleset,
                                                               const struct weir__rule *rule)
{
    bool written = ruleset->deltas && rule && ruleset->consistency[rule->index] == WEIR__EVENTUAL;
    return written && !weir__load32(&ruleset->deltas->mapped.lost) ? ruleset->deltas : NULL;
}

/*
 * Records that `amount` was taken from the eval's counter; negative: refunded. Nothing if the rule is neither eventual
 * nor leased.
 */
void weir__delta_ledger_record(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, int64_t amount);
/*
 * A refund may be less than requested, so it is recorded from what remains before and after it. Concurrent takes make
 * it seem less, which denies more.
 */
int64_t weir__delta_ledger_before(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
void weir__delta_ledger_record_refund(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                                      int64_t requested, int64_t before, int64_t after);

/* Slow path of weir__delta_ledger_unavailable. */
bool weir__delta_ledger_silent(const struct weir__delta_ledger *deltas);

/* Whether the rule's on_store_failure applies: it is not `local`, and the store is unavailable or no agent runs. */
static inline bool weir__delta_ledger_unavailable(const struct weir__ruleset *ruleset, const struct weir__rule *rule)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(ruleset, rule);
    return deltas && rule->on_failure != WEIR__FAIL_LOCAL && weir__delta_ledger_silent(deltas);
}

/* See weir_ledger_stats_read. */
void weir__delta_ledger_stats(const struct weir__delta_ledger *deltas, weir_ledger_stats *stats);

/* Hash of the tier's name, 0 for the default: separates tiers in the ledger. */
uint64_t weir__delta_ledger_tier(const struct weir__quota *quota);

#endif
