/* Noting hot keys. See hot_key_sampler.h. */
#include "engine/hot_key_sampler.h"
#include "table/hash.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#define MINUTE_NS  (60 * WEIR_SECOND)
#define PER_MILLES 0xffff /* as many as a panel tells apart */

/* ---- Opening ---- */

static int format(void *memory, uint64_t bytes, const void *plan)
{
    (void)plan;
    return weir__hot_make(memory, bytes) ? 0 : WEIR_ESIZE;
}

static int check(void *memory, uint64_t bytes)
{
    struct weir__hot unused;
    return weir__hot_attach(memory, bytes, &unused) ? 0 : WEIR_EDAMAGED;
}

static int attach(int error, struct weir__noting *made, struct weir__noting **noting)
{
    if (!error && !weir__hot_attach(made->mapped.memory, made->mapped.bytes, &made->hot))
        error = WEIR_EDAMAGED;
    if (error)
        weir__noting_close(made);
    else
        *noting = made;
    return error;
}

int weir__noting_open(const struct weir__making *where, struct weir__noting **noting)
{
    struct weir__making making = *where;
    making.bytes = where->bytes ? where->bytes : WEIR__NOTING_BYTES;
    making.format = format;
    making.check = check;
    making.disabled = "hot keys are not sampled (.hot)";
    struct weir__noting *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR_ENOMEM;
    return attach(making.bytes > INT64_MAX ? WEIR_ESIZE : weir__mapped_open(&making, &made->mapped), made, noting);
}

int weir__noting_attach(const char *path, unsigned owner, struct weir__noting **noting)
{
    struct weir__making making = {.path = path, .owner = owner, .check = check};
    struct weir__noting *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR_ENOMEM;
    return attach(weir__mapped_open(&making, &made->mapped), made, noting);
}

void weir__noting_close(struct weir__noting *noting)
{
    if (!noting)
        return;
    weir__mapped_close(&noting->mapped);
    free(noting);
}

/* ---- Noting ---- */

uint64_t weir__noting_hash(const void *segment, const char *key, size_t len)
{
    return weir__hash(key, len, ((const weir_segment *)segment)->table.header->secret);
}

uint64_t weir__pseudonym(const weir_segment *segment, uint64_t hash)
{
    uint8_t key[WEIR_SECRET_BYTES], whole[EVP_MAX_MD_SIZE];
    uint64_t shown = 0;
    if (weir_segment_secret(segment, "pseudonyms of keys", key) == 0 &&
        HMAC(EVP_sha256(), key, sizeof key, (const uint8_t *)&hash, sizeof hash, whole, NULL))
        memcpy(&shown, whole, sizeof shown);
    OPENSSL_cleanse(key, sizeof key);
    return be64toh(shown); /* its digits are the first of the HMAC's */
}

/* How much of its limit the key has used. */
static uint32_t per_mille_of(const weir_decision *decision)
{
    int64_t used = decision->limit - decision->remaining;
    if (decision->limit <= 0 || used <= 0)
        return 0;
    if (used / decision->limit >= PER_MILLES / 1000)
        return PER_MILLES;
    return (uint32_t)(used * 1000 / decision->limit);
}

static uint32_t minute_of(weir_time now)
{
    return (uint32_t)(now.mono_ns / MINUTE_NS);
}

void weir__noting_seek(weir *engine, const struct weir__loaded *loaded)
{
    const struct weir__hot *hot = &engine->noting->hot;
    uint32_t minute = minute_of(weir_clock(engine->segment));
    for (size_t i = 0; i < loaded->rules->count; i++) {
        uint64_t id = loaded->rules->rules[i]->id, had = weir__load64(&loaded->hot[i]);
        /* By looking, as two who claimed at the same time may have two of them: the first is everybody's. */
        const struct weir__hot_rule *panel = weir__hot_lookup(hot, id);
        if (!panel)
            panel = weir__hot_find(hot, id, minute);
        if ((uint64_t)(uintptr_t)panel != had)
            weir__store64(&loaded->hot[i], (uint64_t)(uintptr_t)panel);
    }
}

void weir__noting_write(const struct weir__trial *trial, const struct weir__hit *hit, struct weir__hot_rule *panel,
                        uint64_t dice)
{
    bool hide = trial->engine->noting->hide;
    if (weir__load64(&panel->rule) != hit->rule->id)
        return; /* another's by now; weir__noting_seek will find one */
    struct weir__hot_sample note = {.hash = weir__noting_hash(trial->engine->segment, hit->key, hit->key_len),
                                    .key = hit->key,
                                    .key_len = hide ? 0 : hit->key_len,
                                    .weight = (uint64_t)hit->cost * WEIR__NOTING_ONE_IN,
                                    .kind = weir__hit_denies(hit) ? WEIR__HOT_DENIED : WEIR__HOT_ADMITTED,
                                    .dice = dice * UINT64_C(0x9e3779b97f4a7c15), /* the bits that chose it are spent */
                                    .per_mille = per_mille_of(&hit->decision),
                                    .minute = minute_of(trial->now)};
    weir__hot_sample(panel, &note);
}

/* ---- Telling ---- */

#define STATS_MINUTES 10

static void stats_of(const weir *engine, const struct weir__hot_rule *panel, weir_hot_stats *stats)
{
    uint64_t unused[WEIR__HOT_USES];
    struct weir__hot_key near[WEIR__HOT_NEAR];
    uint32_t minute = minute_of(weir_clock(engine->segment));
    *stats = (weir_hot_stats){.keys = weir__hot_uses(panel, minute, STATS_MINUTES, unused),
                              .near_limit = weir__hot_nearest(panel, minute, STATS_MINUTES, weir__noting_hash,
                                                              engine->segment, near, WEIR__HOT_NEAR),
                              .most_per_mille = weir__hot_peak(panel, minute)};
}

int weir_hot_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_hot_stats *stats),
                  void *context)
{
    if (!engine || !visit)
        return WEIR_EINVAL;
    int at, stop = 0;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    for (size_t i = 0; i < loaded->rules->count && loaded->hot && !stop; i++) {
        weir_rule_info info;
        weir_hot_stats stats;
        const struct weir__hot_rule *panel = (const struct weir__hot_rule *)(uintptr_t)weir__load64(&loaded->hot[i]);
        if (!panel || weir__load64(&panel->rule) != loaded->rules->rules[i]->id)
            continue;
        weir_rules_info(loaded->rules, i, &info);
        stats_of(engine, panel, &stats);
        stop = visit(context, &info, &stats);
    }
    weir__unpin(&engine->pins, at);
    return stop;
}
