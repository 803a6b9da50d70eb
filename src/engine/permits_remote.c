/* Permits that the store holds. See permits.h and docs/internals/concurrency.md. */
#include "engine/permits.h"

#include <string.h>

#define IDENTITY_BITS 52 /* of each half: exact in the script's doubles */
#define NAME_BITS     16 /* of `place`: length of the name; above it, its offset */

_Static_assert(WEIR_PERMITS_MAX *WEIR__STORE_NAME_MAX <= WEIR_PERMITS_NAMES_MAX, "every name has room");

int weir__remote_permit_identify(struct weir__store_op *op)
{
    int error = weir__random_fill(op->lease, sizeof op->lease);
    for (int i = 0; i < 2; i++)
        op->lease[i] >>= 64 - IDENTITY_BITS;
    return error;
}

void weir__remote_permit_add(weir_permits *permits, const struct weir__store_op *taken)
{
    weir_lease lease = {.primary = taken->lease[0],
                        .tag = taken->lease[1],
                        .word = (uint64_t)taken->limit.cap,
                        .for_us = taken->limit.window_us,
                        .record = WEIR__REMOTE_PERMIT,
                        .place = permits->names_len << NAME_BITS | taken->name_len};
    memcpy(permits->names + permits->names_len, taken->name, taken->name_len);
    permits->names_len += taken->name_len;
    weir__permits_add(permits, &lease);
}

static weir_text name_of(const weir_permits *permits, const weir_lease *lease)
{
    return (weir_text){permits->names + (lease->place >> NAME_BITS), lease->place & ((1U << NAME_BITS) - 1)};
}

/* Whether all references are in bounds. */
static bool is_in_bounds(const weir_permits *permits, const weir_lease *lease)
{
    uint64_t begin = lease->place >> NAME_BITS, len = lease->place & ((1U << NAME_BITS) - 1);
    return len > 0 && len <= WEIR__STORE_NAME_MAX && begin + len <= permits->names_len &&
           permits->names_len <= WEIR_PERMITS_NAMES_MAX && lease->primary >> IDENTITY_BITS == 0 &&
           lease->tag >> IDENTITY_BITS == 0 && lease->for_us > 0 && lease->for_us <= WEIR__LEASE_MAX &&
           lease->word <= WEIR__USED_MAX;
}

/* Whether a counter's name is one of the rule's. */
static bool is_of(const weir *engine, const struct weir__rule *rule, weir_text name)
{
    char begins[WEIR__STORE_NAME_MAX + 1];
    struct weir__naming naming = {.prefix = engine->store->prefix};
    size_t len = weir__store_name(&naming, rule->name, rule->shadow, WEIR__TEXT(""), begins);
    return name.len >= len && memcmp(name.data, begins, len) == 0;
}

/* The longest lease and the largest limit of a rule. */
static void find_most(const struct weir__rule *rule, int64_t *for_us, int64_t *cap)
{
    for (size_t i = 0; i < rule->quota_count; i++) {
        const weir_limit *limit = &rule->quotas[i].limit;
        if (!weir__is_flight(&rule->quotas[i]))
            continue;
        *for_us = limit->window_us > *for_us ? limit->window_us : *for_us;
        *cap = limit->cap > *cap ? limit->cap : *cap;
    }
}

bool weir__remote_permit_accept(weir *engine, const weir_permits *permits, weir_lease *lease)
{
    if (!engine->store || !is_in_bounds(permits, lease))
        return false;
    int at;
    int64_t for_us = 0, cap = 0;
    weir_text name = name_of(permits, lease);
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    const weir_rules *rules = ruleset->rules;
    for (size_t i = 0; i < rules->count; i++)
        if (is_of(engine, rules->rules[i], name))
            find_most(rules->rules[i], &for_us, &cap);
    weir__hazard_release(&engine->hazards, at);
    lease->for_us = lease->for_us < for_us ? lease->for_us : for_us;
    lease->word = lease->word < (uint64_t)cap ? lease->word : (uint64_t)cap;
    return for_us > 0;
}

static void describe(const weir_permits *permits, const weir_lease *lease, enum weir__store_op_kind kind, int64_t cost,
                     struct weir__store_op *to)
{
    weir_text name = name_of(permits, lease);
    to->kind = kind;
    to->cost = cost;
    to->limit = (weir_limit){.made = WEIR__LIMIT_MADE,
                             .algorithm = WEIR_CONCURRENCY,
                             .limit = (int64_t)lease->word,
                             .hard = (int64_t)lease->word,
                             .cap = (int64_t)lease->word,
                             .window_us = lease->for_us};
    to->lease[0] = lease->primary;
    to->lease[1] = lease->tag;
    to->name_len = (uint16_t)name.len;
    memcpy(to->name, name.data, name.len);
    to->name[name.len] = 0;
}

int weir__remote_permit_ops(const weir_permits *permits, enum weir__store_op_kind kind, int64_t cost, weir_async *async)
{
    int error = weir__async_reserve(async, permits->count), some = 0;
    for (uint32_t i = 0; i < permits->count && !error; i++) {
        if (!weir__is_remote_permit(&permits->lease[i]) || !is_in_bounds(permits, &permits->lease[i]))
            continue;
        struct weir__store_op *added = weir__async_add(async, true, false);
        describe(permits, &permits->lease[i], kind, cost, added);
        added->taken = kind == WEIR__OP_TAKE; /* it was taken earlier */
        some = 1;
    }
    return error ? error : some;
}

int weir__remote_permit_reply(const weir_permits *permits, const weir_lease *lease, enum weir__store_op_kind kind,
                              int64_t cost, weir_async *async)
{
    struct weir__store_op like;
    if (!async)
        return WEIR_ESTOREBREAKER;
    if (!is_in_bounds(permits, lease))
        return WEIR_ELEASE;
    describe(permits, lease, kind, cost, &like);
    const struct weir__store_op *reply = weir__async_find(async, &like);
    if (!reply)
        return WEIR_ESTOREBREAKER;
    int error = weir__async_error(async, reply);
    if (error)
        return error;
    bool was_taken = kind == WEIR__OP_REFUND ? reply->taken : weir_passes(&reply->decision);
    return was_taken ? 0 : WEIR_ELEASE;
}
