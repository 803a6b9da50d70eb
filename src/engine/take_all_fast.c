/*
 * The fast path of a decision: counters of one slot each, in place and with enough left. Everything else is left
 * untouched, and takes the slow path (take_all.c).
 *
 * check.c finds out whether a request is eligible (the plans of its rules), weir__evaluate in take_all.c tries this
 * path first, table/fast_path.h decides one token bucket, and fast_result.c formats the result.
 */
#include "engine/evaluation.h"
#include "table/hash.h"
#include "table/fast_path.h"

#define SWAP_TRIES 8 /* of an entry that other requests keep changing */

struct fast_take {
    weir__cell *slot;
    uint64_t tag;
    struct weir__step step;
};

static __attribute__((noinline)) bool look_any(const struct weir__op *op, const struct weir__rule_eval *eval,
                                               struct fast_take *take)
{
    return weir__slot_look(op, &eval->quota->limit, take->slot, take->tag, eval->cost, &take->step);
}

/* Token buckets are decided inline, other limits of one slot by a call. */
__attribute__((always_inline)) static inline bool look(const struct weir__op *op, const struct weir__rule_eval *eval,
                                                       struct fast_take *take)
{
    const weir_limit *limit = &eval->quota->limit;
    return limit->has_fast_path
               ? weir__fast_look(op->mono_us, limit, take->slot, weir__tag_bits_of(take->tag), eval->cost, &take->step)
               : look_any(op, eval, take);
}

/* Another request may change the entry between look and swap: as long as it has enough, that is tried again. */
__attribute__((noinline)) static bool swap_again(const struct weir__op *op, const struct weir__rule_eval *eval,
                                                 struct fast_take *take)
{
    for (int i = 1; i < SWAP_TRIES; i++)
        if (!look(op, eval, take))
            return false;
        else if (weir__cell_cas(take->slot, &take->step.seen, take->step.next))
            return true;
    return false;
}

/* The first `count` evals have taken, and another one cannot. */
static __attribute__((noinline)) void roll_back(const struct weir__request_ctx *ctx, size_t count)
{
    weir_decision unused;
    for (size_t i = 0; i < count; i++) {
        (void)weir__eval_roll_back(ctx, &ctx->evals[i], &unused);
        weir__count(&weir__rule_stats_on(ctx->ruleset, ctx->evals[i].rule, ctx->cpu)->rolled_back, 1);
    }
}

__attribute__((hot)) bool weir__take_all_fast(const struct weir__request_ctx *ctx)
{
    const weir_segment *segment = ctx->engine->segment;
    struct weir__stats_shard *stats = &segment->table.stats[ctx->cpu % WEIR__STATS_SHARDS];
    const struct weir__op op = weir__operation(segment, stats, ctx->now);
    struct fast_take takes[WEIR__FAST_MAX];
    uint64_t hash = 0;
    if (weir__any_blocked(op.table, op.mono_us) || weir__lost(segment))
        return false;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        struct weir__key_location where;
        if (i == 0 || eval->key != eval[-1].key)
            hash = weir__hash(eval->key, eval->key_len, op.table->header->secret);
        weir__locate_primary(op.table, hash ^ eval->quota->limit.salt, &where);
        takes[i].tag = where.tag;
        takes[i].slot = weir__slot_at(&op.table->bucket[where.primary], where.tag);
        if (!look(&op, eval, &takes[i]))
            return false;
    }
    for (size_t i = 0; i < ctx->count; i++) {
        if (weir__cell_cas(takes[i].slot, &takes[i].step.seen, takes[i].step.next) ||
            swap_again(&op, &ctx->evals[i], &takes[i]))
            continue;
        roll_back(ctx, i);
        return false;
    }
    for (size_t i = 0; i < ctx->count; i++) {
        weir_decision *decision = &ctx->evals[i].decision;
        weir__fast_decision_init(&ctx->evals[i].quota->limit, decision);
        weir__fast_decision_fill(&takes[i].step, decision);
    }
    weir__count(&stats->verdict[WEIR_ALLOW], ctx->count);
    return true;
}
