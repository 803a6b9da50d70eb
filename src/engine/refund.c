/* Settling what was taken earlier, and the secret that proves who took it. */
#include "engine/ledger.h"
#include "engine/connection_pool.h"
#include "engine/overload.h"
#include "engine/strict.h"
#include "base/hash.h"

static const struct weir__rule *rule_named(const weir_rules *rules, const char *name, bool shadow)
{
    for (size_t i = 0; i < rules->count; i++)
        if (rules->rules[i]->shadow == shadow && weir__text_is(rules->rules[i]->name, name))
            return rules->rules[i];
    return NULL;
}

/* A changed limit keeps its counters. */
const struct weir__quota *weir__quota_taken(const struct weir__rule *rule, const weir_taken *taken)
{
    const struct weir__quota *first = NULL;
    for (size_t i = 0; i < rule->quota_count; i++) {
        const struct weir__quota *quota = &rule->quotas[i];
        if (quota->kind != WEIR__LIMITED)
            continue;
        if (taken->tier.len ? weir__text_equal(quota->tier, taken->tier)
                            : quota->units == taken->quota && quota->window_ns == taken->window_ns)
            return quota;
        first = first ? first : quota;
    }
    return first;
}

/* What is to be corrected, and the store's part in it. */
struct settling {
    const weir_taken *taken;
    int64_t amount;
    weir_time now;
    weir_async *async; /* what the store said; NULL: nobody asked it */
    bool preparing;    /* nothing is done yet: only finds out what to ask */
};

/* In the segment; written down for an eventual rule. */
static int settle_here(const struct weir__request_ctx *ctx, const struct weir__rule *rule,
                       const struct weir__quota *quota, const struct settling *what, weir_decision *decision)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(ctx->ruleset, rule);
    weir_segment *segment = ctx->engine->segment;
    weir_text key = {what->taken->key, what->taken->key_len};
    if (what->amount >= 0) {
        int error = weir_charge(segment, &quota->limit, key.data, key.len, what->amount, what->now, decision);
        if (!error && deltas)
            weir__delta_ledger_record(deltas, segment, rule, quota, key, what->amount);
        return error;
    }
    int64_t before = deltas ? weir__delta_ledger_before(segment, quota, key, what->now) : 0;
    int error = weir_refund(segment, &quota->limit, key.data, key.len, -what->amount, what->now, decision);
    if (!error && deltas)
        weir__delta_ledger_record_refund(deltas, segment, rule, quota, key, -what->amount, before, decision->remaining);
    return error;
}

static int settle_remote(const struct weir__request_ctx *ctx, const struct weir__rule *rule,
                         const struct weir__quota *quota, const struct settling *what, weir_decision *decision)
{
    struct weir__rule_eval eval = {.rule = rule,
                                   .quota = quota,
                                   .key = what->taken->key,
                                   .key_len = (uint32_t)what->taken->key_len,
                                   .cost = what->amount};
    if (!what->taken->key || !what->taken->key_len || what->taken->key_len > WEIR__KEY_MAX)
        return WEIR_EINVAL;
    enum weir__store_op_kind kind = what->amount < 0 ? WEIR__OP_REFUND : WEIR__OP_CHARGE;
    if (what->preparing)
        return weir__strict_add(ctx, what->async, &eval, kind);
    return weir__strict_reply(ctx, what->async, &eval, kind, decision);
}

static int settle(weir *engine, const struct settling *what, weir_decision *decision)
{
    if (!what->taken || !what->taken->rule || !decision)
        return WEIR_EINVAL;
    if (what->amount > WEIR__USED_MAX || what->amount < -WEIR__USED_MAX)
        return WEIR_ECOST;
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const struct weir__rule *rule = rule_named(ruleset->rules, what->taken->rule, what->taken->shadow);
    const struct weir__quota *quota = rule ? weir__quota_taken(rule, what->taken) : NULL;
    struct weir__request_ctx ctx = {.engine = engine, .ruleset = ruleset, .now = what->now};
    struct weir__quota room;
    int error = WEIR_ENORULE;
    if (quota)
        quota = weir__quota_effective(engine, rule, quota, weir__clock_fast(engine->segment), &room);
    if (quota && ruleset->consistency[rule->index] == WEIR__STRICT)
        error = settle_remote(&ctx, rule, quota, what, decision);
    else if (quota)
        error = what->preparing ? 0 : settle_here(&ctx, rule, quota, what, decision);
    weir__hazard_release(&engine->hazards, at);
    return error;
}

int weir_key_settle_begin(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async)
{
    struct settling what = {taken, amount, now, async, true};
    weir_decision unused;
    if (!engine || !async || async->engine != engine)
        return WEIR_EINVAL;
    uint32_t before = async->request.op_count;
    int error = settle(engine, &what, &unused);
    return error ? error : async->request.op_count > before;
}

int weir_key_settle_finish(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async,
                           weir_decision *decision)
{
    struct settling what = {taken, amount, now, async, false};
    return engine && async ? settle(engine, &what, decision) : WEIR_EINVAL;
}

int weir_key_settle(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_decision *decision)
{
    struct settling what = {taken, amount, now, NULL, false};
    int unused;
    if (!engine)
        return WEIR_EINVAL;
    struct weir__pooled_connection *pooled =
        weir__needs_store_reply(engine) ? weir__connection_pool_acquire(engine, &unused) : NULL;
    if (pooled && weir_key_settle_begin(engine, taken, amount, now, pooled->async) == 1)
        weir__connection_pool_request(pooled);
    what.async = pooled ? pooled->async : NULL;
    int error = settle(engine, &what, decision);
    if (pooled)
        weir__connection_pool_release(pooled);
    return error;
}

/*
 * XXH3 is no cryptographic hash, but nobody ever sees what it makes here: it only spreads the 192 secret bytes, with
 * the purpose, over the key of something that is one.
 */
int weir_segment_secret(const weir_segment *segment, const char *purpose, uint8_t secret[WEIR_SECRET_BYTES])
{
    char text[WEIR__SECRET_BYTES + 64];
    size_t len = purpose ? strlen(purpose) : 0;
    if (!segment || !len || !secret || len > sizeof text - WEIR__SECRET_BYTES)
        return WEIR_EINVAL;
    memcpy(text, segment->table.header->secret, WEIR__SECRET_BYTES);
    if (weir__lost(segment)) /* what everybody knows is no secret */
        return WEIR_ELOST;
    for (size_t i = 0; i < len; i++) /* a text without its end */
        text[WEIR__SECRET_BYTES + i] = purpose[i];
    for (uint64_t i = 0; i < WEIR_SECRET_BYTES / 8; i++) {
        uint64_t part = weir__hash_text((weir_text){text, WEIR__SECRET_BYTES + len}, i + 1);
        memcpy(secret + 8 * i, &part, 8);
    }
    return 0;
}
