/* Permits that a request holds, in the segment or in the store. */
#ifndef WEIR_ENGINE_PERMITS_H
#define WEIR_ENGINE_PERMITS_H

#include "engine/strict.h"

/* Takes a permit for an eval, and adds it to ctx->permits. */
int weir__eval_hold(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision);
/* Releases it, since the request is denied after all; `decision` is what remains then. */
int weir__eval_let_go(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision);
/* Adds a permit; there must be room. */
void weir__permits_add(weir_permits *permits, const weir_lease *lease);

/* ---- In the store: permits_remote.c ---- */

/*
 * In a lease of the store, `primary` and `tag` are its identity, `word` is the limit that it was taken under, `record`
 * is this constant, and `place` refers to the name of its counter in weir_permits.names.
 */
#define WEIR__REMOTE_PERMIT UINT32_MAX

static inline bool weir__is_remote_permit(const weir_lease *lease)
{
    return lease->record == WEIR__REMOTE_PERMIT;
}

static inline bool weir__is_flight(const struct weir__quota *quota)
{
    return quota->kind == WEIR__LIMITED && quota->limit.algorithm == WEIR_CONCURRENCY;
}

/* The units that a request of that cost takes: one permit of a concurrency limit. */
static inline int64_t weir__units_of(const struct weir__quota *quota, int64_t cost)
{
    return cost > 1 && weir__is_flight(quota) ? 1 : cost;
}

/* Sets a random identity, which cannot be guessed. 0 or WEIR_ESYS. */
int weir__remote_permit_identify(struct weir__store_op *op);
/* Adds a permit that the store took; there must be room. */
void weir__remote_permit_add(weir_permits *permits, const struct weir__store_op *taken);
/*
 * Validates a lease that a client hands back. Its text is not authenticated, so the client may have changed duration
 * and limit: both are bounded by those of the rule. False if no rule of this engine has the lease.
 */
bool weir__remote_permit_accept(weir *engine, const weir_permits *permits, weir_lease *lease);
/* Adds an op for each permit in the store. 1: there are some; 0: none; or an error. */
int weir__remote_permit_ops(const weir_permits *permits, enum weir__store_op_kind kind, int64_t cost,
                            weir_async *async);
/* The reply to that op. WEIR_ELEASE: the lease has ended; WEIR_ESTOREBREAKER, also if `async` is NULL: no reply. */
int weir__remote_permit_reply(const weir_permits *permits, const weir_lease *lease, enum weir__store_op_kind kind,
                              int64_t cost, weir_async *async);

#endif
