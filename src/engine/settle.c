/* Settling what was taken earlier, and the secret that proves who took it. */
#include "engine/weir.h"
#include "rules/hash.h"
#include "rules/set.h"

static const struct weir__rule *rule_named(const weir_rules *rules, const char *name, bool shadow)
{
    for (size_t i = 0; i < rules->count; i++)
        if (rules->rules[i]->shadow == shadow && weir__text_is(rules->rules[i]->name, name))
            return rules->rules[i];
    return NULL;
}

/* The tier that was taken from, or the first that counts: a changed limit keeps its counters. */
static const struct weir__quota *quota_of(const struct weir__rule *rule, const weir_taken *taken)
{
    const struct weir__quota *first = NULL;
    for (size_t i = 0; i < rule->quota_count; i++) {
        const struct weir__quota *quota = &rule->quotas[i];
        if (quota->kind != WEIR__LIMITED)
            continue;
        if (quota->units == taken->quota && quota->window_ns == taken->window_ns)
            return quota;
        first = first ? first : quota;
    }
    return first;
}

int weir_key_settle(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_decision *decision)
{
    if (!engine || !taken || !taken->rule || !decision)
        return WEIR_EINVAL;
    if (amount > WEIR__USED_MAX || amount < -WEIR__USED_MAX)
        return WEIR_ECOST;
    int at;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    const struct weir__rule *rule = rule_named(loaded->rules, taken->rule, taken->shadow);
    const struct weir__quota *quota = rule ? quota_of(rule, taken) : NULL;
    int error = WEIR_ENORULE;
    if (quota && amount < 0)
        error = weir_refund(engine->segment, &quota->limit, taken->key, taken->key_len, -amount, now, decision);
    else if (quota)
        error = weir_charge(engine->segment, &quota->limit, taken->key, taken->key_len, amount, now, decision);
    weir__unpin(&engine->pins, at);
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
    for (size_t i = 0; i < len; i++) /* a text without its end */
        text[WEIR__SECRET_BYTES + i] = purpose[i];
    for (uint64_t i = 0; i < WEIR_SECRET_BYTES / 8; i++) {
        uint64_t part = weir__hash((weir_text){text, WEIR__SECRET_BYTES + len}, i + 1);
        memcpy(secret + 8 * i, &part, 8);
    }
    return 0;
}
