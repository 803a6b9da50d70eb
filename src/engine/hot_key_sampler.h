/*
 * The hot-key sampler: a sample of the decisions under each rule goes into the sketches of the rule (table/hot_keys.h),
 * in a sidecar file of the segment. It never waits, and its errors do not affect requests.
 */
#ifndef WEIR_ENGINE_HOT_KEY_SAMPLER_H
#define WEIR_ENGINE_HOT_KEY_SAMPLER_H

#include "engine/evaluation.h"

#define WEIR__HOT_SAMPLER_BYTES  (UINT64_C(8) << 20) /* default size of a new file: 75 rules */
#define WEIR__HOT_SAMPLER_ONE_IN 16                  /* decisions; a power of two */

/* Opens or makes the file at `where` (path, bytes, mode, owner); path NULL: anonymous memory. */
int weir__hot_sampler_open(const struct weir__file_spec *where, struct weir__hot_sampler *sampler);
/* Attaches to an existing file: WEIR_ENOENT, WEIR_EDAMAGED … `owner` is the segment's. */
int weir__hot_sampler_attach(const char *path, unsigned owner, struct weir__hot_sampler *sampler);

/* The hash of a key in the sketches of a segment; a weir__hot_hash whose context is the segment. */
uint64_t weir__hot_sampler_hash(const void *segment, const char *key, size_t len);

/*
 * The hash that stands for a key whose text is not shown: weir__hot_sampler_hash's, through HMAC-SHA-256 with a key of
 * the segment's secret. The table's own hash can be inverted by a client that knows one key and its hash, and gives
 * away the key's buckets; it must not leave the host. 0 on an error. Not for the fast path.
 */
uint64_t weir__pseudonym(const weir_segment *segment, uint64_t hash);

/*
 * Finds slots for the rules of a ruleset that have none or have lost theirs: when the ruleset is made, and from time to
 * time after that. One call at a time.
 */
void weir__hot_sampler_seek(weir *engine, const struct weir__ruleset *ruleset);

/* The rest of weir__hot_sampler_add, for decisions in the sample. */
void weir__hot_sampler_write(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                             struct weir__hot_rule *rule_slot, uint64_t dice);

/* A random number, independent of the key and the client: from the clock, and the number of decisions before. */
static inline uint64_t weir__hot_sampler_random(weir_time now, uint64_t counted)
{
    uint64_t x = ((uint64_t)now.mono_ns ^ counted << 40) + counted;
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
}

/* Adds a decision if it is in the sample. `counted`: the number of decisions of its kind so far. */
static inline void weir__hot_sampler_add(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                                         uint64_t counted)
{
    const uint64_t *slots = ctx->ruleset->hot;
    uint64_t rule_slot = eval->quota && slots ? weir__load64(&slots[eval->rule->index]) : 0;
    if (!rule_slot)
        return;
    uint64_t dice = weir__hot_sampler_random(ctx->now, counted);
    if ((dice >> 32 & (WEIR__HOT_SAMPLER_ONE_IN - 1)) == 0)
        weir__hot_sampler_write(ctx, eval, (struct weir__hot_rule *)(uintptr_t)rule_slot, dice);
}

#endif
