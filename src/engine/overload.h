/*
 * What the load of the host does to a request under decision: limits in force, shedding, reserves. See
 * docs/pressure.md. A set of rules that has none of it never comes here.
 */
#ifndef WEIR_ENGINE_OVERLOAD_H
#define WEIR_ENGINE_OVERLOAD_H

#include "engine/evaluation.h"

/*
 * Replaces the quotas of evals whose rules are elastic or adaptive, or keep a reserve from this request, by copies in
 * `room`, one a eval: what follows need not know. Finds out how important the request is, and throws its dice.
 */
void weir__overload_apply(struct weir__request_ctx *ctx, struct weir__quota *room);

/* True if the settled evals do not deny it and it is to be shed before any counter is asked. */
bool weir__overload_must_shed(const struct weir__request_ctx *ctx);
/* Then: every eval gets its decision, and the one that speaks is returned. */
const struct weir__rule_eval *weir__overload_shed(struct weir__request_ctx *ctx);
/* It is decided: what was denied for the sake of a reserve alone was shed. */
void weir__overload_mark_reserved(const struct weir__request_ctx *ctx);

/* A quota as the load has it now, for those who come with a rule and a key: itself, or a copy in `room`. */
const struct weir__quota *weir__quota_effective(const weir *engine, const struct weir__rule *rule,
                                                const struct weir__quota *quota, weir_time now,
                                                struct weir__quota *room);

#endif
