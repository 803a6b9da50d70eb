/* Recording of denials: see denial_recorder.h. */
#include "engine/denial_recorder.h"
#include "engine/hot_key_sampler.h"
#include "engine/store_request.h"

#include <inttypes.h>
#include <stdio.h>

#define NOTIFIER_SILENT_MS 15000 /* since its heartbeat, which comes once a second and takes up to 5 s */

enum { KEY_SHOWN = 128, TIER_SHOWN = 32, REQUEST_SHOWN = 64, PATH_SHOWN = 128 };

int weir__denial_recorder_open(const struct weir__file_spec *where, struct weir__denial_recorder *recorder)
{
    struct weir__file_spec spec = *where;
    spec.bytes = where->bytes ? where->bytes : WEIR__DENIAL_BYTES;
    spec.format = weir__row_file_format;
    spec.check = weir__row_file_check;
    spec.plan = &weir__denial_format;
    spec.disabled = "denials are not recorded (.denials)";
    int error = spec.bytes > INT64_MAX ? WEIR_ESIZE : weir__mapped_open(&spec, &recorder->mapped);
    if (error || weir__denial_attach(recorder->mapped.memory, recorder->mapped.bytes, &recorder->ring))
        return error;
    weir__mapped_close(&recorder->mapped);
    return WEIR_EDAMAGED;
}

/* The request whose denial is recorded. */
struct denied {
    const struct weir__request_ctx *ctx;
    struct weir__values *values; /* NULL: none */
    weir_text client, id;        /* empty: unknown */
    struct weir__denied_request hashes;
    char client_text[WEIR__ADDRESS_TEXT];
};

/* 0: no text. */
static uint64_t hash_of(const struct weir__request_ctx *ctx, weir_text text)
{
    return text.len ? weir__hot_sampler_hash(ctx->engine->segment, text.data, text.len) : 0;
}

static void read_client(struct denied *denied)
{
    const struct weir__address *client = denied->values ? weir__value_client(denied->values) : NULL;
    if (!client)
        return;
    denied->client = (weir_text){denied->client_text, weir__address_text(client, 128, denied->client_text)};
    denied->hashes.client = hash_of(denied->ctx, denied->client);
}

static void put_others(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                       struct weir__denial *entry)
{
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval == by || !eval->rule || eval->replaced || eval->skipped)
            continue;
        struct weir__denial_other other = {.capacity = eval->decision.limit,
                                           .remaining = eval->decision.remaining,
                                           .verdict = (uint8_t)eval->decision.verdict,
                                           .reason = (uint8_t)eval->reason,
                                           .shadow = eval->shadow};
        weir__denial_put_other(entry, &other, eval->rule->name.data, eval->rule->name.len);
    }
}

/*
 * Adds a key or a client. If they are hidden, and the store knows keys by hashes, this hash, by which other hosts find
 * the entry. True: the text was cut.
 */
static bool put_secret(const struct denied *denied, struct weir__denial *entry, enum weir__denial_text which,
                       weir_text text, size_t max)
{
    const weir *engine = denied->ctx->engine;
    char digest[1 + WEIR__NAME_DIGITS] = "~";
    if (!engine->denial_recorder.hide)
        return weir__denial_put(entry, which, text.data, text.len, max) < text.len;
    if (text.len && engine->store && engine->store->hash_keys) {
        weir__store_digits(text, digest + 1);
        weir__denial_put(entry, which, digest, sizeof digest, sizeof digest);
    }
    return false;
}

static __attribute__((noinline)) void add_entry(struct denied *denied, const struct weir__rule_eval *eval,
                                                uint64_t identity, uint64_t key, uint64_t now_ms)
{
    const struct weir__denial_recorder *recorder = &denied->ctx->engine->denial_recorder;
    if (!denied->client.len)
        read_client(denied);
    const struct weir__quota *quota = eval->quota;
    weir_text path = denied->values ? weir__value_path(denied->values) : (weir_text){0};
    struct weir__denial entry = {
        .identity = identity,
        .first_ms = now_ms,
        .recent[0] = denied->hashes,
        .rule = eval->rule ? eval->rule->id : 0,
        .key = key,
        .limit = quota                         ? quota->limit.limit
                 : eval->reason == WEIR_BY_BAN ? 0
                                               : -1,
        .window_ns = quota ? quota->window_ns : 0,
        .capacity = eval->decision.limit,
        .remaining = eval->decision.remaining,
        .cost = eval->cost,
        .retry_after_ns = eval->decision.retry_after_ns,
        .error = eval->error ? eval->error : eval->store_error,
        .reason = (uint8_t)eval->reason,
        .verdict = (uint8_t)eval->decision.verdict,
        .flags = (uint8_t)((eval->shadow ? WEIR__DENIAL_SHADOW : 0) | (recorder->hide ? WEIR__DENIAL_HIDDEN : 0))};
    if (quota && quota->limit.algorithm == WEIR_CONCURRENCY)
        entry.flags |= WEIR__DENIAL_CONCURRENCY;
    if (eval->rule && eval->decision.flags & WEIR_WARNED) {
        entry.flags |= WEIR__DENIAL_WARNING;
        entry.warn_at = eval->rule->warn_at;
    }
    if (eval->rule)
        weir__denial_put(&entry, WEIR__DENIAL_RULE, eval->rule->name.data, eval->rule->name.len, WEIR_NAME_MAX);
    if (put_secret(denied, &entry, WEIR__DENIAL_KEY, (weir_text){eval->key, eval->key_len}, KEY_SHOWN))
        entry.flags |= WEIR__DENIAL_KEY_CUT;
    if (quota)
        weir__denial_put(&entry, WEIR__DENIAL_TIER, quota->tier.data, quota->tier.len, TIER_SHOWN);
    (void)put_secret(denied, &entry, WEIR__DENIAL_CLIENT, denied->client, WEIR__ADDRESS_TEXT);
    weir__denial_put(&entry, WEIR__DENIAL_REQUEST, denied->id.data, denied->id.len, REQUEST_SHOWN);
    if (eval->reason == WEIR_BY_MISSING_KEY && denied->values) {
        char missing[WEIR_MISSING_MAX + 1];
        weir__rule_missing(eval->rule, denied->values, missing);
        weir__denial_put(&entry, WEIR__DENIAL_MISSING, missing, strlen(missing), WEIR_MISSING_MAX);
    }
    weir__denial_put(&entry, WEIR__DENIAL_PATH, path.data, path.len, PATH_SHOWN);
    put_others(denied->ctx, eval, &entry);
    weir__denial_add(&recorder->ring, &entry);
}

static void record_eval(struct denied *denied, const struct weir__rule_eval *eval)
{
    const struct weir__request_ctx *ctx = denied->ctx;
    bool has_key = eval->rule || eval->key_len;
    uint64_t key = hash_of(ctx, has_key ? (weir_text){eval->key, eval->key_len} : denied->client);
    uint64_t now_ms = (uint64_t)ctx->now.wall_ns / 1000000, counted = key;
    uint64_t why = (uint64_t)eval->reason << 8 | (uint64_t)eval->decision.verdict;
    struct weir__address group;
    /* A denial by the networks of the whole set has no key: each client, by its network, has an entry of its own. */
    if (!has_key && denied->values && weir__value_client_group(denied->values, &group))
        counted = hash_of(ctx, (weir_text){(const char *)group.bytes, sizeof group.bytes});
    uint64_t identity = (counted ^ (eval->rule ? eval->rule->id : 0)) + why * UINT64_C(0x9e3779b97f4a7c15);
    if (!weir__denial_repeat(&ctx->engine->denial_recorder.ring, identity, now_ms, &denied->hashes))
        add_entry(denied, eval, identity, key, now_ms);
}

__attribute__((noinline)) void weir__denial_record(const struct weir__request_ctx *ctx,
                                                   const struct weir__rule_eval *by, struct weir__values *values)
{
    struct denied denied = {.ctx = ctx, .values = values};
    bool enforced = by && weir__eval_denies(by);
    /* Where the key has the client's address, the clients of repeated denials need not be recorded. */
    if (!enforced || !by->by_address || ctx->count > 1 || ctx->engine->denial_recorder.hide)
        read_client(&denied);
    if (values) /* the headers of a request that passes are left as they are */
        denied.id = weir__value_request_id(values, enforced);
    denied.hashes.id = hash_of(ctx, denied.id);
    if (enforced && by->cost > 0)
        record_eval(&denied, by);
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval->shadow && eval != by && !eval->replaced && !eval->skipped && eval->cost > 0 &&
            weir__eval_denies(eval))
            record_eval(&denied, eval);
        else if (eval->decision.flags & WEIR_WARNED)
            record_eval(&denied, eval);
    }
}

/* ---- Warnings in a log ---- */

const char *weir__denial_key(const weir_segment *segment, const struct weir__denial *entry, char *text, size_t size)
{
    weir_text key = weir__denial_text(entry, WEIR__DENIAL_KEY);
    if (key.len && !(entry->flags & WEIR__DENIAL_HIDDEN))
        return weir__printable(key, text, size);
    snprintf(text, size, "~%016" PRIx64, weir__pseudonym(segment, entry->key));
    return text;
}

bool weir__warning_line(const weir *engine, struct weir__warning_cursor *cursor, char line[WEIR__WARNING_LINE])
{
    const struct weir__denial_ring *ring = &engine->denial_recorder.ring;
    struct weir__denial entry;
    char rule[WEIR_NAME_MAX + 8], key[512], more[64] = "";
    if (!ring->rows)
        return false;
    weir__warning_resume(ring, &ring->header->to_log, cursor);
    bool found = weir__warning_next(ring, cursor, &entry);
    weir__store64(&ring->header->to_log, cursor->next);
    if (!found)
        return false;
    if (cursor->missed)
        snprintf(more, sizeof more, "; %" PRIu64 " others were not logged", cursor->missed);
    cursor->missed = 0;
    snprintf(line, WEIR__WARNING_LINE, "rule %s%s: %s has used %" PRId64 " of %" PRId64 ", warn_at is %d%%%s",
             weir__printable(weir__denial_text(&entry, WEIR__DENIAL_RULE), rule, sizeof rule),
             entry.flags & WEIR__DENIAL_SHADOW ? " (shadow)" : "",
             weir__denial_key(engine->segment, &entry, key, sizeof key), entry.capacity - entry.remaining,
             entry.capacity, entry.warn_at, more);
    return true;
}

bool weir__warnings_pending(const weir *engine, uint64_t *count)
{
    const struct weir__denial_ring *ring = &engine->denial_recorder.ring;
    uint64_t now_ms = (uint64_t)weir_clock(engine->segment).wall_ns / 1000000;
    if (!ring->rows || weir__load64(&ring->header->notifier_ms) + NOTIFIER_SILENT_MS < now_ms)
        return false;
    uint64_t last = weir__load64(&ring->header->warnings), next = weir__load64(&ring->header->to_notify);
    *count = next && last >= next ? last + 1 - next : 0;
    return true;
}
