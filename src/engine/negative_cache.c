/*
 * The negative cache: denials of the store, kept in the segment until they end, so that a client that retries does not
 * cause store requests.
 *
 * Each is an entry of its own, a leaky bucket that drains one unit in UNIT_US: its level is the time left. The anchor
 * is moved back by the part of a unit that the denial does not fill, so that it ends to the microsecond. Not
 * implemented as a block, since every take checks for blocks while there are any. Entries are separate by cost, since a
 * smaller cost may fit, and by limit, since a changed limit must be decided anew.
 */
#include "engine/strict.h"
#include "base/hash.h"
#include "table/hash.h"

#define UNIT_US (INT64_C(1) << 14)

/* 2.2 years: more than two of the longest windows, and less than the oldest anchor of a slot, 3.9 years. */
#define LONGEST_US (WEIR__USED_MAX * UNIT_US)

int weir__negative_cache_init(weir_limit *negative_cache)
{
    weir_params params = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 1, .window_ns = UNIT_US * WEIR_MICROSECOND};
    return weir_limit_init(negative_cache, &params);
}

/* The entry of a denial: the counter's salt, varied by cost and limit. */
static weir_limit entry_of(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_limit entry = ctx->engine->negative_cache;
    const int64_t facts[] = {eval->cost, limit->cap, limit->limit, limit->window_us};
    entry.salt ^= weir__hash_text((weir_text){(const char *)facts, sizeof facts}, limit->salt);
    return entry;
}

int64_t weir__negative_cache_left(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_limit entry = entry_of(ctx, eval);
    weir_decision left;
    if (weir_peek(ctx->engine->segment, &entry, eval->key, eval->key_len, 0, ctx->now, &left) != 0)
        return 0; /* the store decides */
    return left.reset_after_ns;
}

void weir__negative_cache_add(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, int64_t for_ns)
{
    weir_segment *segment = ctx->engine->segment;
    int64_t for_us = for_ns / 1000 < LONGEST_US ? for_ns / 1000 : LONGEST_US;
    int64_t units = (for_us + UNIT_US - 1) / UNIT_US;
    if (segment->mapped.read_only || for_us * 1000 <= weir__negative_cache_left(ctx, eval))
        return;
    /* A bucket of just this size: of concurrent additions one is denied, so that they do not add up. */
    weir_limit entry = entry_of(ctx, eval);
    entry.hard = entry.cap = units;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), ctx->now);
    struct weir__key_location where;
    weir_decision unused;
    weir__key_locate(op.table, &entry, eval->key, eval->key_len, &where);
    op.mono_us -= units * UNIT_US - for_us;
    /* A shorter denial, or one that has just ended, is replaced. On an error the next request goes to the store. */
    if (weir__table_reset(&op, &entry, &where) == 0)
        (void)weir__table_take(&op, &entry, &where, units, WEIR__TAKE, &unused);
}

int weir__negative_cache_remove(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_limit entry = entry_of(ctx, eval);
    return weir_reset(ctx->engine->segment, &entry, eval->key, eval->key_len, ctx->now);
}
