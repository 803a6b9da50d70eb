/*
 * A log or wide counter that the segment's slab has no room for. With on_store_failure `local` the host still holds the
 * limit, by a counter that needs no record: a sliding counter of two buckets, in the lines. It counts only what finds
 * no room; a record that the key has but that cannot grow goes on for what fits into it, and what it holds is taken off
 * the stand-in's limit. So both together let no more pass than the limit, as exactly as a sliding counter of two
 * buckets is.
 */
#include "engine/evaluation.h"

#define APART UINT64_C(0x5ca1ab1e0ddba11) /* any number: a stand-in is not counted where the counter is */

static weir_limit stand_in(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_limit made = *limit;
    weir_decision looked;
    made.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    made.buckets = 2;
    made.part_us = made.window_us;
    made.count_rejected = false;
    made.salt ^= APART;
    made.wide = !weir__is_packed(&made); /* by the whole limit: its form must not depend on what is taken off */
    if (weir_peek(ctx->engine->segment, limit, eval->key, eval->key_len, 0, ctx->now, &looked) == 0) {
        int64_t logged = limit->hard - looked.remaining;
        made.hard -= logged;
        made.cap -= logged;
    }
    return made;
}

static bool has_stand_in(const struct weir__rule_eval *eval)
{
    const weir_limit *limit = &eval->quota->limit;
    bool in_slab = limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
                   (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 2);
    return in_slab && eval->cost > 0 && (!eval->rule || eval->rule->on_failure == WEIR__FAIL_LOCAL);
}

int weir__eval_take_without_room(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *made)
{
    if (!has_stand_in(eval))
        return WEIR_EFULL;
    weir_limit limit = stand_in(ctx, eval);
    int error =
        weir__take_on(ctx->cpu, ctx->engine->segment, &limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
    if (error)
        return error;
    made->limit = eval->quota->limit.hard;
    eval->store_error = WEIR_EFULL;
    return 0;
}

int weir__eval_refund(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, weir_decision *made)
{
    weir_limit limit = eval->store_error == WEIR_EFULL ? stand_in(ctx, eval) : eval->quota->limit;
    return weir_refund(ctx->engine->segment, &limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
}
