/*
 * warn_at: warnings before a limit is reached; docs/reference/denials.md, "Warnings".
 *
 * A key whose request leaves it at or above the threshold is marked in the segment, by an entry of its own: a bucket
 * whose level is the time in which it is not warned again. The request that fills the empty bucket is the one that
 * warns, so of any number of concurrent requests exactly one does. A mark lasts until the end of a fixed window; with
 * the other algorithms, one window.
 *
 * In the store, takes of all hosts follow each other, and the reply to the one that reaches the threshold shows that it
 * is the first: only its host warns.
 */
#include "engine/evaluation.h"
#include "table/hash.h"

/* True if this request marks the key; `reached`: it is the one that reached the threshold, for keys without a mark. */
static bool mark(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, bool reached)
{
    const weir_segment *segment = ctx->engine->segment;
    const weir_limit *limit = &eval->quota->limit;
    weir_limit warned = *eval->quota->warned;
    weir_decision made;
    int64_t time_us = limit->algorithm == WEIR_FIXED_WINDOW ? eval->decision.reset_after_ns / 1000 : limit->window_us;
    int64_t units = (time_us + warned.period_us - 1) / warned.period_us; /* rounded up: never two warnings a window */
    warned.hard = warned.cap = warned.most = units > 0 ? units : 1;
    int error = weir_peek(segment, &warned, eval->key, eval->key_len, 0, ctx->now, &made);
    if (!error && made.remaining < warned.hard)
        return false;
    struct weir__op op = weir__operation(segment, &segment->table.stats[ctx->cpu % WEIR__STATS_SHARDS], ctx->now);
    struct weir__key_location where;
    weir__key_locate(op.table, &warned, eval->key, eval->key_len, &where);
    if (!error)
        error = weir__table_take(&op, &warned, &where, warned.hard, WEIR__TAKE, &made);
    return error ? reached : weir_passes(&made);
}

/* True if the eval has taken. */
static bool has_taken(const struct weir__rule_eval *eval, bool denied)
{
    return eval->rule && eval->quota && eval->quota->warned && eval->cost > 0 && eval->reason == WEIR_BY_LIMIT &&
           !eval->replaced && !eval->skipped && !weir__eval_denies(eval) &&
           (eval->shadow ? eval->keeps_units : !denied);
}

static bool warns(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, bool denied)
{
    if (!has_taken(eval, denied))
        return false;
    const weir_decision *decision = &eval->decision;
    int64_t used = decision->limit - decision->remaining;
    int64_t threshold = weir__mul_div_up(decision->limit, eval->rule->warn_at, 100);
    bool reached = used - eval->cost < threshold;
    return used >= threshold && (reached || !eval->strict) && mark(ctx, eval, reached);
}

void weir__eval_warn(struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool denied)
{
    if (!ctx->ruleset->warnings || !warns(ctx, eval, denied))
        return;
    eval->decision.flags |= WEIR_WARNED;
    ctx->warned = true;
    ctx->fast = false;
    if (ctx->ruleset->warnings[eval->rule->index])
        weir__count(ctx->ruleset->warnings[eval->rule->index], 1);
}
