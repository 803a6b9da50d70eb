/* Recording of deltas. See ledger.h. */
#include "engine/ledger.h"
#include "base/clock.h"
#include "engine/evaluation.h"
#include "base/hash.h"
#include "engine/store_request.h"

#include <weir/store.h>

#define TIER_SEED 3

_Static_assert(WEIR__LEDGER_KEY >= WEIR__NAME_KEY_MAX, "a key that is shown whole in the store must fit");

/* ---- Opening ---- */

static int check(void *memory, uint64_t bytes, const void *sender)
{
    struct weir__ledger unused;
    (void)sender;
    return weir__ledger_attach(memory, bytes, &unused);
}

int weir__delta_ledger_open(const struct weir__file_spec *where, struct weir__delta_ledger *deltas)
{
    unsigned char random[WEIR__LEDGER_SENDER / 2];
    char sender[WEIR__LEDGER_SENDER + 1];
    struct weir__file_spec spec = *where;
    if (spec.bytes < WEIR__LEDGER_BYTES_MIN || spec.bytes > INT64_MAX)
        return WEIR_ESIZE;
    int error = weir__random_fill(random, sizeof random);
    if (error)
        return error;
    *weir__write_hex(sender, random, sizeof random) = 0;
    spec.format = weir__ledger_format;
    spec.plan = sender;
    spec.check = check;
    spec.disabled = "eventual rules act as if the store were unavailable (.ledger)";
    error = weir__mapped_open(&spec, &deltas->mapped);
    if (error)
        return error;
    deltas->opened_ms = weir__coarse_ms();
    error = weir__ledger_attach(deltas->mapped.memory, deltas->mapped.bytes, &deltas->ledger);
    if (error)
        weir__mapped_close(&deltas->mapped);
    return error;
}

/* ---- Recording ---- */

uint64_t weir__delta_ledger_tier(const struct weir__quota *quota)
{
    return quota->tier.len ? weir__hash_text(quota->tier, TIER_SEED) : 0;
}

/* A long key is stored as in the counter's name: its beginning and its hash. */
static void name_it(struct weir__ledger_text *text, weir_text key)
{
    if (key.len <= WEIR__LEDGER_KEY) {
        memcpy(text->key, key.data, key.len);
        text->key_len = (uint16_t)key.len;
        return;
    }
    memcpy(text->key, key.data, WEIR__NAME_KEY_CUT);
    weir__store_digits(key, text->key + WEIR__NAME_KEY_CUT);
    text->key_len = WEIR__NAME_KEY_CUT + WEIR__NAME_DIGITS;
    text->cut = 1;
}

void weir__delta_ledger_record(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, int64_t amount)
{
    const struct weir__delta_ledger *deltas = weir__demand_ledger_of(ctx->ruleset, eval->rule);
    if (!deltas || !amount)
        return;
    uint64_t tier = weir__delta_ledger_tier(eval->quota);
    uint64_t identity = weir__counter_hash(ctx->engine->segment, &eval->quota->limit, eval->key, eval->key_len) ^ tier;
    identity = identity ? identity : 1; /* 0 is free */
    if (weir__ledger_add(&deltas->ledger, identity, amount))
        return;
    struct weir__ledger_text text = {.rule = eval->rule->id, .tier = tier};
    name_it(&text, (weir_text){eval->key, eval->key_len});
    (void)weir__ledger_add_entry(&deltas->ledger, identity, &text, amount); /* counts what finds no room */
}

int64_t weir__delta_ledger_before(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_decision before;
    if (!weir__delta_ledger_of(ctx->ruleset, eval->rule) ||
        weir_peek(ctx->engine->segment, &eval->quota->limit, eval->key, eval->key_len, 0, ctx->now, &before) != 0)
        return INT64_MAX; /* then nothing is recorded as refunded */
    return before.remaining;
}

void weir__delta_ledger_record_refund(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                                      int64_t requested, int64_t before, int64_t after)
{
    int64_t given = after > before ? after - before : 0;
    weir__delta_ledger_record(ctx, eval, -(given < requested ? given : requested));
}

/* ---- The agent's heartbeat ---- */

static bool is_alive(const struct weir__ledger_header *header, uint64_t now)
{
    uint64_t beat = weir__load64(&header->heartbeat_ms);
    return beat <= now + WEIR__DELTA_LEDGER_SILENT_MS &&
           now <= beat + WEIR__DELTA_LEDGER_SILENT_MS; /* else of an earlier boot */
}

bool weir__delta_ledger_silent(const struct weir__delta_ledger *deltas)
{
    const struct weir__ledger_header *header = deltas->ledger.header;
    uint64_t now = weir__coarse_ms();
    if (is_alive(header, now))
        return weir__load64(&header->state) == WEIR__LEDGER_DOWN;
    return now > deltas->opened_ms + WEIR__DELTA_LEDGER_SILENT_MS; /* or the agent is still starting */
}

static int64_t ns_since(uint64_t then_ms, uint64_t now_ms)
{
    return now_ms > then_ms ? (int64_t)(now_ms - then_ms) * 1000000 : 0;
}

/* For how long deltas have been unsent; 0: all are acknowledged. */
static int64_t lag(const struct weir__delta_ledger *deltas, uint64_t now)
{
    const struct weir__ledger_header *header = deltas->ledger.header;
    bool unsent = weir__load64(&header->in_flight) != 0;
    for (uint64_t i = 0; i < deltas->ledger.entries / 64 && !unsent; i++)
        unsent = weir__load64(&deltas->ledger.dirty[i]) != 0;
    uint64_t acked = weir__load64(&header->acked_ms);
    return unsent ? ns_since(acked && acked <= now ? acked : deltas->opened_ms, now) : 0;
}

void weir__delta_ledger_stats(const struct weir__delta_ledger *deltas, weir_ledger_stats *stats)
{
    const struct weir__ledger_header *h = deltas->ledger.header;
    uint64_t now = weir__coarse_ms(), state = weir__load64(&h->state);
    *stats = (weir_ledger_stats){.agent = is_alive(h, now),
                                 .store = state == WEIR__LEDGER_UP     ? WEIR_STORE_UP
                                          : state == WEIR__LEDGER_DOWN ? WEIR_STORE_DOWN
                                                                       : WEIR_STORE_UNKNOWN,
                                 .since_ns = ns_since(weir__load64(&h->state_since_ms), now),
                                 .last_error = -(int)(weir__load64(&h->last_error) & 0xffff),
                                 .lag_ns = lag(deltas, now),
                                 .requests = weir__load64(&h->exchanges),
                                 .failures = weir__load64(&h->failures),
                                 .ops = weir__load64(&h->ops),
                                 .units_sent = weir__load64(&h->sent),
                                 .units_received = weir__load64(&h->applied),
                                 .units_refunded = weir__load64(&h->refunded),
                                 .units_dropped = weir__load64(&h->dropped),
                                 .full = weir__load64(&h->full),
                                 .bytes_out = weir__load64(&h->bytes_out),
                                 .bytes_in = weir__load64(&h->bytes_in),
                                 .entries = deltas->ledger.entries,
                                 .used = weir__load64(&h->filled),
                                 .units_leased = weir__load64(&h->lease_granted),
                                 .units_spent = weir__load64(&h->lease_spent),
                                 .units_returned = weir__load64(&h->lease_returned),
                                 .units_expired = weir__load64(&h->lease_expired),
                                 .lease_waits = weir__load64(&h->lease_waits)};
}

int weir_ledger_stats_read(weir *engine, weir_ledger_stats *stats)
{
    if (!engine || !stats)
        return WEIR_EINVAL;
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const struct weir__delta_ledger *deltas = ruleset->deltas; /* lives as long as the engine */
    weir__hazard_release(&engine->hazards, at);
    if (!deltas)
        return WEIR_ENOENT;
    weir__delta_ledger_stats(deltas, stats);
    return 0;
}
