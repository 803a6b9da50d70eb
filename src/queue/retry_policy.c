/* The retry policy of deliveries: see retry_policy.h. */
#include "queue/retry_policy.h"
#include "base/hash.h"

#include <openssl/sha.h>

bool weir__retry_is_final(int status)
{
    return status >= 200 && status < 500 && status != 408 && status != 425 && status != 429;
}

bool weir__retry_is_unavailable(int status)
{
    return status == 0 || (status >= 502 && status <= 504);
}

/* 1 s, doubled after each try but the first, at most `max_ms`. */
static int64_t doubled_ms(unsigned tries, int64_t max_ms)
{
    int64_t ms = WEIR__RETRY_FIRST_MS;
    for (unsigned i = 1; i < tries && ms < max_ms; i++)
        ms *= 2;
    return ms < max_ms ? ms : max_ms;
}

int64_t weir__retry_backoff_ms(int attempts, uint64_t random)
{
    return (int64_t)(random % (uint64_t)(doubled_ms((unsigned)attempts, WEIR__RETRY_MAX_MS) + 1));
}

/* ---- Groups set aside ---- */

/* SHA-256, because clients choose keys: with a weaker hash they could join the groups of others. */
uint64_t weir__retry_aside_group(weir_text rule, weir_text key, weir_text others)
{
    unsigned char text[2 * SHA256_DIGEST_LENGTH + WEIR_OTHERS_BYTES], digest[SHA256_DIGEST_LENGTH];
    size_t len = sizeof digest + sizeof digest;
    uint64_t group;
    int dots = 0;
    if (!others.len || others.len > WEIR_OTHERS_BYTES)
        return 0;
    SHA256((const unsigned char *)rule.data, rule.len, text);
    SHA256((const unsigned char *)key.data, key.len, text + sizeof digest);
    /* others is RULE.KEY.TIER.COST;…: the first two of each */
    for (size_t i = 0; i < others.len; i++) {
        dots = others.data[i] == ';' ? 0 : dots + (others.data[i] == '.');
        if (dots < 2)
            text[len++] = (unsigned char)others.data[i];
    }
    SHA256(text, len, digest);
    memcpy(&group, digest, sizeof group);
    return group | 1;
}

/* ---- Circuit breaker by rule ---- */

static struct weir__rule_breaker *find(struct weir__rule_breakers *breakers, weir_text rule, bool make)
{
    uint64_t hash = weir__hash_text(rule, 0) | 1;
    struct weir__rule_breaker *oldest = breakers->list;
    for (size_t i = 0; i < WEIR__RULE_BREAKERS; i++) {
        struct weir__rule_breaker *at = &breakers->list[i];
        if (at->rule == hash)
            return at;
        if (!at->rule || (oldest->rule && at->until_ms < oldest->until_ms))
            oldest = at;
    }
    if (!make)
        return NULL;
    *oldest = (struct weir__rule_breaker){.rule = hash};
    return oldest;
}

int64_t weir__rule_breaker_until(struct weir__rule_breakers *breakers, weir_text rule, int64_t now_ms)
{
    struct weir__rule_breaker *breaker = find(breakers, rule, false);
    if (!breaker || !breaker->probes)
        return 0;
    if (now_ms < breaker->until_ms &&
        breaker->until_ms - now_ms <= WEIR__RULE_BREAKER_MAX_MS) /* else the clock was set back */
        return breaker->until_ms;
    /* If the probe's result is never recorded (for example because its limit denied it), the next one may probe. */
    breaker->probing = true;
    breaker->until_ms = now_ms + doubled_ms(breaker->probes, WEIR__RULE_BREAKER_MAX_MS);
    return 0;
}

void weir__rule_breaker_record(struct weir__rule_breakers *breakers, weir_text rule, bool unavailable, int64_t now_ms)
{
    struct weir__rule_breaker *breaker = find(breakers, rule, unavailable);
    if (!breaker)
        return;
    if (!unavailable) {
        *breaker = (struct weir__rule_breaker){0};
        return;
    }
    if (breaker->probes && !breaker->probing)
        return; /* sent before the breaker opened */
    if (!breaker->probes && ++breaker->failures < WEIR__RULE_BREAKER_FAILURES) {
        breaker->until_ms = now_ms;
        return;
    }
    breaker->probes++;
    breaker->probing = false;
    breaker->until_ms = now_ms + doubled_ms(breaker->probes, WEIR__RULE_BREAKER_MAX_MS);
}
