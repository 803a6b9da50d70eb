/* The laws of delivery: see retry_policy.h. */
#include "queue/retry_policy.h"
#include "base/hash.h"

#include <openssl/sha.h>

bool weir__drain_is_answer(int status)
{
    return status >= 200 && status < 500 && status != 408 && status != 425 && status != 429;
}

bool weir__drain_is_away(int status)
{
    return status == 0 || (status >= 502 && status <= 504);
}

int64_t weir__drain_backoff_ms(int attempts, uint64_t dice)
{
    int64_t most = WEIR__DRAIN_FIRST_MS;
    for (int i = 1; i < attempts && most < WEIR__DRAIN_MOST_MS; i++)
        most *= 2;
    if (most > WEIR__DRAIN_MOST_MS)
        most = WEIR__DRAIN_MOST_MS;
    return (int64_t)(dice % (uint64_t)(most + 1));
}

bool weir__drain_is_over(int attempts, int64_t retries)
{
    return attempts > retries;
}

/* ---- What waits aside ---- */

/* Clients choose keys: with a hash that they can make equal they would get into the groups of others. */
uint64_t weir__drain_group(weir_text rule, weir_text key, weir_text others)
{
    unsigned char text[2 * SHA256_DIGEST_LENGTH + WEIR_OTHERS_BYTES], digest[SHA256_DIGEST_LENGTH];
    size_t len = sizeof digest + sizeof digest;
    uint64_t group;
    int dots = 0;
    if (!others.len || others.len > WEIR_OTHERS_BYTES)
        return 0;
    SHA256((const unsigned char *)rule.data, rule.len, text);
    SHA256((const unsigned char *)key.data, key.len, text + sizeof digest);
    /* RULE.KEY.TIER.COST;…: the first two of each. */
    for (size_t i = 0; i < others.len; i++) {
        dots = others.data[i] == ';' ? 0 : dots + (others.data[i] == '.');
        if (dots < 2)
            text[len++] = (unsigned char)others.data[i];
    }
    SHA256(text, len, digest);
    memcpy(&group, digest, sizeof group);
    return group | 1;
}

/* ---- Pauses ---- */

static struct weir__pause *find(struct weir__pauses *pauses, weir_text rule, bool make)
{
    uint64_t hash = weir__hash_text(rule, 0) | 1;
    struct weir__pause *oldest = pauses->list;
    for (size_t i = 0; i < WEIR__PAUSES; i++) {
        struct weir__pause *at = &pauses->list[i];
        if (at->rule == hash)
            return at;
        if (!at->rule || (oldest->rule && at->until_ms < oldest->until_ms))
            oldest = at;
    }
    if (!make)
        return NULL;
    *oldest = (struct weir__pause){.rule = hash};
    return oldest;
}

static int64_t pause_ms(unsigned tries)
{
    int64_t ms = WEIR__DRAIN_FIRST_MS;
    for (unsigned i = 1; i < tries && ms < WEIR__PAUSE_MOST_MS; i++)
        ms *= 2;
    return ms < WEIR__PAUSE_MOST_MS ? ms : WEIR__PAUSE_MOST_MS;
}

int64_t weir__pause_until(struct weir__pauses *pauses, weir_text rule, int64_t now_ms)
{
    struct weir__pause *pause = find(pauses, rule, false);
    if (!pause || !pause->tries)
        return 0;
    if (now_ms < pause->until_ms && pause->until_ms - now_ms <= WEIR__PAUSE_MOST_MS) /* else the clock was set back */
        return pause->until_ms;
    /* If it is never heard of again (no tokens for it, say), the next one may try. */
    pause->trying = true;
    pause->until_ms = now_ms + pause_ms(pause->tries);
    return 0;
}

void weir__pause_note(struct weir__pauses *pauses, weir_text rule, bool away, int64_t now_ms)
{
    struct weir__pause *pause = find(pauses, rule, away);
    if (!pause)
        return;
    if (!away) {
        *pause = (struct weir__pause){0};
        return;
    }
    if (pause->tries && !pause->trying)
        return; /* was on its way when the pause began */
    if (!pause->tries && ++pause->row < WEIR__PAUSE_AFTER) {
        pause->until_ms = now_ms;
        return;
    }
    pause->tries++;
    pause->trying = false;
    pause->until_ms = now_ms + pause_ms(pause->tries);
}
