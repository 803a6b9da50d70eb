/*
 * Rules of `consistency: leased` in an evaluation: a request spends units that the agent has leased from the store
 * (table/leased.h), or the store decides as under strict. docs/internals/leases.md.
 *
 * If a request needs the store, what its slots have is spent before the request is sent. In between, an asynchronous
 * check keeps the spends (weir_async.spent); they are put back if the check does not use them. A single check that
 * slots with plenty decide spends nothing until it is made (weir_async.promised); with a second one, all spend.
 */
#ifndef WEIR_ENGINE_LEASED_H
#define WEIR_ENGINE_LEASED_H

#include "engine/evaluation.h"

/* weir__rule_eval.lease */
enum weir__lease_use {
    WEIR__LEASE_UNUSED, /* another rule, or too little in the slot */
    WEIR__LEASE_SPENT,  /* spent, and put back unless the request takes it */
    WEIR__LEASE_TAKEN,  /* by the request */
    WEIR__LEASE_BACK    /* put back */
};

/* A spend that an asynchronous check keeps. */
struct weir__lease_kept {
    uint64_t hash; /* of the leased units */
    int64_t cost;
    bool used;
    struct weir__spend spend;
};

/* Spends the cost of an eval of a leased rule. False: the slot has too little, or the operation is for the store. */
bool weir__lease_spend(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval);
/* weir__eval_operate for an eval with a spend. */
int weir__lease_operate(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what,
                        weir_decision *made);
/* Puts back what the evals have spent and the request has not taken. */
void weir__lease_put_back(const struct weir__request_ctx *ctx);

/*
 * True if slots decide the request without the store, and have so much that no other process empties them meanwhile.
 * Only for the first check of the asynchronous ones: further ones spend, and so does the first then.
 */
bool weir__leases_suffice(const struct weir__request_ctx *ctx, weir_async *async);
/* The fast path of a request with leased rules: as weir__take_all_fast. */
bool weir__take_all_leased(const struct weir__request_ctx *ctx);

/* Hands the spends of the evals over to the asynchronous check. WEIR_ENOMEM: they are put back. */
int weir__async_keep_spends(weir_async *async, const struct weir__request_ctx *ctx);
/* The eval takes over its spend. False: there is none. */
bool weir__async_take_spend(weir_async *async, const struct weir__request_ctx *ctx, struct weir__rule_eval *eval);
/* Puts back all spends that are left. */
void weir__async_drop_spends(weir_async *async);

/* Records a take that the store has decided: the agent leases by demand. */
void weir__lease_record_wait(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);
/* Resets the leased units of a counter on this host. */
int weir__lease_reset(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval);

#endif
