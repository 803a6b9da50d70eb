/* The hot-key sampler: see hot_key_sampler.h. */
#include "engine/hot_key_sampler.h"
#include "base/sha256.h"
#include "table/hash.h"

#include <endian.h>

#define MINUTE_NS  (60 * WEIR_SECOND)
#define PER_MILLES 0xffff /* the largest share that a sketch stores */

/* ---- Opening ---- */

static int open_mapped(struct weir__file_spec *spec, struct weir__hot_sampler *sampler)
{
    spec->check = weir__row_file_check;
    spec->plan = &weir__hot_format;
    int error = spec->bytes > INT64_MAX ? WEIR_ESIZE : weir__mapped_open(spec, &sampler->mapped);
    if (error || weir__hot_attach(sampler->mapped.memory, sampler->mapped.bytes, &sampler->hot))
        return error;
    weir__mapped_close(&sampler->mapped);
    return WEIR_EDAMAGED;
}

int weir__hot_sampler_open(const struct weir__file_spec *where, struct weir__hot_sampler *sampler)
{
    struct weir__file_spec spec = *where;
    spec.bytes = where->bytes ? where->bytes : WEIR__HOT_SAMPLER_BYTES;
    spec.format = weir__row_file_format;
    spec.disabled = "hot keys are not sampled (.hot)";
    return open_mapped(&spec, sampler);
}

int weir__hot_sampler_attach(const char *path, unsigned owner, struct weir__hot_sampler *sampler)
{
    return open_mapped(&(struct weir__file_spec){.path = path, .owner = owner}, sampler);
}

/* ---- Sampling ---- */

uint64_t weir__hot_sampler_hash(const void *segment, const char *key, size_t len)
{
    return weir__hash(key, len, ((const weir_segment *)segment)->table.header->secret);
}

uint64_t weir__pseudonym(const weir_segment *segment, uint64_t hash)
{
    uint8_t key[WEIR_SECRET_BYTES], complete[WEIR__SHA256_BYTES];
    uint64_t shown = 0;
    if (weir_segment_secret(segment, "pseudonyms of keys", key) == 0) {
        weir__hmac_sha256(key, sizeof key, &hash, sizeof hash, complete);
        memcpy(&shown, complete, sizeof shown);
    }
    explicit_bzero(key, sizeof key);
    return be64toh(shown); /* so that its hexadecimal digits are the first of the HMAC */
}

/* The share of its limit that the key has used. */
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

void weir__hot_sampler_seek(weir *engine, const struct weir__ruleset *ruleset)
{
    const struct weir__hot *hot = &engine->hot_sampler.hot;
    uint32_t minute = minute_of(weir_clock(engine->segment));
    for (size_t i = 0; i < ruleset->rules->count; i++) {
        uint64_t id = ruleset->rules->rules[i]->id, had = weir__load64(&ruleset->hot[i]);
        const struct weir__hot_rule *rule_slot = weir__hot_find(hot, id, minute);
        if ((uint64_t)(uintptr_t)rule_slot != had)
            weir__store64(&ruleset->hot[i], (uint64_t)(uintptr_t)rule_slot);
    }
}

void weir__hot_sampler_write(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                             struct weir__hot_rule *rule_slot, uint64_t dice)
{
    bool hide = ctx->engine->hot_sampler.hide;
    if (weir__load64(&rule_slot->rule) != eval->rule->id)
        return; /* taken over by another rule; weir__hot_sampler_seek finds another slot */
    struct weir__hot_sample sample = {
        .hash = weir__hot_sampler_hash(ctx->engine->segment, eval->key, eval->key_len),
        .key = eval->key,
        .key_len = hide ? 0 : eval->key_len,
        .weight = (uint64_t)eval->cost * WEIR__HOT_SAMPLER_ONE_IN,
        .kind = weir__eval_denies(eval) ? WEIR__HOT_DENIED : WEIR__HOT_ADMITTED,
        .random = dice * UINT64_C(0x9e3779b97f4a7c15), /* the bits that selected it are not random any more */
        .per_mille = per_mille_of(&eval->decision),
        .minute = minute_of(ctx->now)};
    weir__hot_sample(rule_slot, &sample);
}

/* ---- Reading ---- */

#define STATS_MINUTES 10

static void stats_of(const weir *engine, const struct weir__hot_rule *rule_slot, weir_hot_stats *stats)
{
    uint64_t unused[WEIR__HOT_USES];
    struct weir__hot_key near[WEIR__HOT_NEAR];
    uint32_t minute = minute_of(weir_clock(engine->segment));
    *stats = (weir_hot_stats){.keys = weir__hot_uses(rule_slot, minute, STATS_MINUTES, unused),
                              .near_limit = weir__hot_nearest(rule_slot, minute, STATS_MINUTES, weir__hot_sampler_hash,
                                                              engine->segment, near, WEIR__HOT_NEAR),
                              .peak_per_mille = weir__hot_peak(rule_slot, minute)};
}

int weir_hot_each(weir *engine, int (*visit)(void *context, const weir_rule_info *info, const weir_hot_stats *stats),
                  void *context)
{
    if (!engine || !visit)
        return WEIR_EINVAL;
    int at, stop = 0;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    for (size_t i = 0; i < ruleset->rules->count && ruleset->hot && !stop; i++) {
        weir_rule_info info;
        weir_hot_stats stats;
        const struct weir__hot_rule *rule_slot =
            (const struct weir__hot_rule *)(uintptr_t)weir__load64(&ruleset->hot[i]);
        if (!rule_slot || weir__load64(&rule_slot->rule) != ruleset->rules->rules[i]->id)
            continue;
        weir_rules_info(ruleset->rules, i, &info);
        stats_of(engine, rule_slot, &stats);
        stop = visit(context, &info, &stats);
    }
    weir__hazard_release(&engine->hazards, at);
    return stop;
}
