/*
 * Overload control of a request under evaluation: effective limits of elastic and adaptive rules, shedding by priority
 * and reserves (docs/overload.md). Rule sets without any of these never come here.
 */
#ifndef WEIR_ENGINE_OVERLOAD_H
#define WEIR_ENGINE_OVERLOAD_H

#include "engine/evaluation.h"

/*
 * Sets the request's priority and its random number for shedding. Replaces each quota that the load scales, or a
 * reserve reduces, by a copy in `room`, which has one element per eval.
 */
void weir__overload_apply(struct weir__request_ctx *ctx, struct weir__quota *room);

/* True if no list or ban denies the request and it is to be shed, before any counter is used. */
bool weir__overload_must_shed(const struct weir__request_ctx *ctx);
/* Sheds it: decides all evals, and returns the one that is reported to the client. */
const struct weir__rule_eval *weir__overload_shed(struct weir__request_ctx *ctx);
/* After the decision: marks evals that were denied only because of a reserve as shed. */
void weir__overload_mark_reserved(const struct weir__request_ctx *ctx);

/* The effective quota now, for operations on one key of a rule: the quota itself, or a scaled copy in `room`. */
const struct weir__quota *weir__quota_effective(const weir *engine, const struct weir__rule *rule,
                                                const struct weir__quota *quota, weir_time now,
                                                struct weir__quota *room);

#endif
