/*
 * Strict rules: which ops they need from the store, and what the replies mean for the request (evaluation.h).
 *
 * A request is evaluated twice. Before the store: if local rules, blocks or the negative cache deny, nothing is sent.
 * With the replies: local counters are taken after the store's, and if they deny, the store is refunded.
 */
#ifndef WEIR_ENGINE_STRICT_H
#define WEIR_ENGINE_STRICT_H

#include "engine/async.h"
#include "engine/evaluation.h"

/* Resolves the evals, selects the strict ones and adds their ops to `ask`. 1: some; 0: none; or an error. */
int weir__strict_prepare(struct weir__request_ctx *ctx, weir_async *async);
/*
 * For an engine with a connection pool: sends the ops and waits; the replies are in ctx->ask. The caller releases the
 * connection when the request is decided. NULL: nothing was sent.
 */
struct weir__pooled_connection *weir__strict_request(struct weir__request_ctx *ctx);

/* Marks the strict ones among the resolved evals and counts them in ctx->strict. */
void weir__strict_mark(struct weir__request_ctx *ctx);
/* Applies the replies in ctx->ask to the strict evals. */
void weir__strict_apply(struct weir__request_ctx *ctx);
/* No eval denies so far: applies on_store_failure to the enforced evals without a reply. */
void weir__strict_resolve(struct weir__request_ctx *ctx);
/* A shadow eval. `passes`: the enforced rules let the request pass. */
void weir__strict_shadow(struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool passes);
/* The request is decided: keeps what the store took, or leaves it to be refunded. */
void weir__strict_keep(struct weir__request_ctx *ctx);

/* Adds one op outside of a check, for the eval's rule, quota, key and cost. */
int weir__strict_add(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                     enum weir__store_op_kind kind);
/* The reply to that op, or its error; WEIR_ESTOREBREAKER if it was not sent. */
int weir__strict_reply(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                       enum weir__store_op_kind kind, weir_decision *decision);

#endif
