/*
 * Rules that a store decides: what is asked, and what its answers mean for a request under decision (evaluation.h).
 *
 * A request is looked at twice. Before the store is asked: what local rules, blocks and remembered negative_cache deny
 * needs no request. And with the answers: local counters are taken after the store's, and what they deny in the last
 * moment is given back to it.
 */
#ifndef WEIR_ENGINE_STRICT_H
#define WEIR_ENGINE_STRICT_H

#include "engine/async.h"
#include "engine/evaluation.h"

/* Settles the evals, finds the strict ones and adds to `ask` what they need. 1: something; 0: nothing; or an error. */
int weir__strict_prepare(struct weir__request_ctx *ctx, weir_ask *ask);
/*
 * The same for an engine with connections of its own, and waits for the answer, which is in ctx->ask then. To be
 * handed back with weir__connection_pool_release when the request is decided; NULL: nothing was asked.
 */
struct weir__pooled_connection *weir__strict_request(struct weir__request_ctx *ctx);

/* Marks the strict evals among settled ones; ctx->strict says kind many there are. */
void weir__strict_mark(struct weir__request_ctx *ctx);
/* Gives each strict eval what ctx->ask has for it, or what is known without. */
void weir__strict_apply(struct weir__request_ctx *ctx);
/* Nothing denies so far: what of the enforced evals has no answer gets what its policy says. */
void weir__strict_resolve(struct weir__request_ctx *ctx);
/* A shadow eval. `passes`: it counts as let pass by the others. */
void weir__strict_shadow(struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool passes);
/* The request is decided: keeps what the store took for it, or leaves it to be given back. */
void weir__strict_keep(struct weir__request_ctx *ctx);

/* One counter that is asked for by itself, not for a request: of the eval's rule, quota, key and cost. */
int weir__strict_add(const struct weir__request_ctx *ctx, weir_ask *ask, const struct weir__rule_eval *eval,
                     enum weir__store_op_kind kind);
/* What the store said to that. An error: it did not; WEIR_ESTOREAWAY if it was never asked. */
int weir__strict_reply(const struct weir__request_ctx *ctx, weir_ask *ask, const struct weir__rule_eval *eval,
                       enum weir__store_op_kind kind, weir_decision *decision);

#endif
