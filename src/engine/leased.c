/* Leased rules in an evaluation: see leased.h. */
#include "engine/leased.h"
#include "engine/fast_result.h"
#include "engine/ledger.h"
#include "engine/strict.h"
#include "table/hash.h"
#include "table/leased.h"

#include <stdlib.h>

#define SWAP_TRIES 8
/* Costs that a slot has at least if a request relies on it without spending: one for each process that may come first.
 */
#define PLENTY 64

static bool is_leased(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return eval->rule && eval->quota && ctx->ruleset->consistency[eval->rule->index] == WEIR__LEASED;
}

/* Whether units of a lease may pay for the eval; all else is for the store. */
static bool may_spend(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return is_leased(ctx, eval) && eval->cost > 0 && eval->cost <= WEIR__LEASED_MAX && !eval->replaced &&
           !ctx->dry_run && !weir__eval_counts_denied(ctx, eval) && !ctx->engine->segment->mapped.read_only;
}

static struct weir__op operation(const struct weir__request_ctx *ctx)
{
    const weir_segment *segment = ctx->engine->segment;
    return weir__operation(segment, &segment->table.stats[ctx->cpu % WEIR__STATS_SHARDS], ctx->now);
}

/* Of the leased units: tiers of a rule share a counter, but each has its own limit, and leases of its own. */
static uint64_t hash_of(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return weir__counter_hash(ctx->engine->segment, &eval->quota->limit, eval->key, eval->key_len) ^
           weir__delta_ledger_tier(eval->quota);
}

static struct weir__spend *spend_of(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return &ctx->scratch->spends[eval - ctx->evals];
}

/* ---- Decisions ---- */

/*
 * When all units will have recovered, if no host takes more: at the latest. The store knows better; its reply is the
 * agent's.
 */
static int64_t reset_us(const weir_limit *limit, int64_t used, weir_time now)
{
    int64_t start, end, wall_us = now.wall_ns / 1000;
    if (used <= 0)
        return 0;
    if (limit->algorithm <= WEIR_LEAKY_BUCKET)
        return limit->refill == WEIR_REFILL_CONTINUOUS ? weir__mul_div_up(used, limit->period_us, limit->period_units)
                                                       : (used + limit->limit - 1) / limit->limit * limit->window_us;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER)
        return limit->buckets == 2 ? 2 * limit->window_us - wall_us % limit->window_us : limit->window_us;
    if (limit->align == WEIR_ALIGN_FIRST_REQUEST)
        return limit->window_us;
    if (limit->align == WEIR_ALIGN_CLOCK)
        return limit->window_us - wall_us % limit->window_us;
    weir__calendar_window(limit->zone, (enum weir_calendar)limit->calendar, wall_us, &start, &end);
    return end - wall_us;
}

static struct weir__spend spend_with(const struct weir__leased *after)
{
    return (struct weir__spend){.end_us = after->end_us, .remaining = after->units + after->pool};
}

static void fill_decision(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                          const struct weir__spend *spend, weir_decision *decision)
{
    const weir_limit *limit = &eval->quota->limit;
    int64_t remaining = spend->remaining < limit->hard - eval->cost ? spend->remaining : limit->hard - eval->cost;
    remaining = remaining > 0 ? remaining : 0;
    *decision = (weir_decision){.verdict = WEIR_ALLOW,
                                .limit = limit->hard,
                                .remaining = remaining,
                                .reset_after_ns = weir__us_to_ns(reset_us(limit, limit->hard - remaining, ctx->now))};
}

/* ---- One eval ---- */

/* A block is kept with the rule's own counter. */
static bool is_blocked(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const weir_segment *segment = ctx->engine->segment;
    weir_decision made;
    return weir__any_blocked(&segment->table, ctx->now.mono_ns / 1000) &&
           (weir_peek(segment, &eval->quota->limit, eval->key, eval->key_len, 0, ctx->now, &made) != 0 ||
            made.verdict == WEIR_BLOCKED);
}

bool weir__lease_spend(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    struct weir__key_location where;
    struct weir__leased after;
    bool spent = false;
    eval->lease = WEIR__LEASE_UNUSED;
    if (!may_spend(ctx, eval) || is_blocked(ctx, eval))
        return false;
    struct weir__op op = operation(ctx);
    weir__leased_locate(&op, hash_of(ctx, eval), &where);
    if (weir__leased_spend(&op, &where, eval->cost, &spent, &after) != 0 || !spent || weir__lost(ctx->engine->segment))
        return false;
    *spend_of(ctx, eval) = spend_with(&after);
    eval->lease = WEIR__LEASE_SPENT;
    return true;
}

static int put_back(const struct weir__op *op, uint64_t hash, int64_t cost, int64_t end_us)
{
    struct weir__key_location where;
    struct weir__leased unused;
    weir__leased_locate(op, hash, &where);
    return weir__leased_roll_back(op, &where, cost, end_us, &unused);
}

/* On an error the units are lost: under-use, which ends with the lease. */
static void roll_back(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    struct weir__op op = operation(ctx);
    (void)put_back(&op, hash_of(ctx, eval), eval->cost, spend_of(ctx, eval)->end_us);
    eval->lease = WEIR__LEASE_BACK;
}

int weir__lease_operate(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what,
                        weir_decision *made)
{
    if (eval->lease == WEIR__LEASE_BACK) /* a concurrent request could have it by now */
        return WEIR_EBUSY;
    fill_decision(ctx, eval, spend_of(ctx, eval), made);
    if (what == WEIR__ADMIT) {
        eval->lease = WEIR__LEASE_TAKEN;
        eval->decision = *made;
        weir__eval_count_verdict(ctx, eval);
        weir__delta_ledger_record(ctx, eval, eval->cost);
    } else if (what == WEIR__ROLL_BACK) {
        weir__delta_ledger_record(ctx, eval, -eval->cost);
        roll_back(ctx, eval);
        made->remaining += eval->cost;
    }
    return 0;
}

void weir__lease_put_back(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++)
        if (ctx->evals[i].lease == WEIR__LEASE_SPENT)
            roll_back(ctx, &ctx->evals[i]);
}

void weir__lease_record_wait(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const struct weir__delta_ledger *deltas = weir__demand_ledger_of(ctx->ruleset, eval->rule);
    if (deltas)
        weir__count(&deltas->ledger.header->lease_waits, 1);
    if (eval->cost <= WEIR__LEASED_MAX) /* no slot can pay for more */
        weir__delta_ledger_record(ctx, eval, eval->cost);
}

int weir__lease_reset(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    struct weir__op op = operation(ctx);
    struct weir__key_location where;
    weir__leased_locate(&op, hash_of(ctx, eval), &where);
    return weir__slot_drop(&op, &where);
}

/* ---- All evals: the fast path ---- */

struct leased_take {
    weir__cell *slot;
    uint64_t tag;
    struct weir__step step;
    struct weir__spend spend;
};

/* Whether slots alone decide: every rule is enforced with one limit and one slot, here or leased. */
static bool is_eligible(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const struct weir__rule_plan *plan = eval->rule ? ctx->ruleset->plan[eval->rule->index] : NULL;
    return plan && plan->flags & (WEIR__PLAN_FAST | WEIR__PLAN_LEASED) && eval->reason == WEIR_BY_LIMIT &&
           eval->quota && eval->cost > 0 && eval->cost <= WEIR__LEASED_MAX;
}

static bool look(const struct weir__request_ctx *ctx, const struct weir__op *op, const struct weir__rule_eval *eval,
                 int64_t least, struct leased_take *take)
{
    struct weir__leased after;
    if (!is_leased(ctx, eval))
        return weir__slot_look(op, &eval->quota->limit, take->slot, take->tag, eval->cost, &take->step);
    if (!weir__leased_look(op, take->slot, take->tag, eval->cost, &take->step, &after) || after.units < least)
        return false;
    take->spend = spend_with(&after);
    return true;
}

/* Looks at the slots of all evals. `plenty`: at slots of leases that have PLENTY times the cost. */
static bool look_at_all(const struct weir__request_ctx *ctx, const struct weir__op *op, bool plenty,
                        struct leased_take takes[WEIR__FAST_MAX])
{
    if (ctx->count - 1 >= WEIR__FAST_MAX || ctx->dry_run || ctx->charge_denied || ctx->load_aware ||
        weir__any_blocked(op->table, op->mono_us) || weir__lost(ctx->engine->segment))
        return false;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        struct weir__key_location where;
        if (!is_eligible(ctx, eval))
            return false;
        uint64_t hash = hash_of(ctx, eval);
        weir__locate_primary(op->table, is_leased(ctx, eval) ? weir__leased_hash(op->table, hash) : hash, &where);
        takes[i].tag = where.tag;
        takes[i].slot = weir__slot_at(&op->table->bucket[where.primary], where.tag);
        if (!look(ctx, op, eval, plenty ? PLENTY * eval->cost : 0, &takes[i]))
            return false;
    }
    return true;
}

static bool keep(weir_async *async, uint64_t hash, int64_t cost, struct weir__spend spend)
{
    if (async->spent_count == async->spent_capacity) {
        uint32_t capacity = async->spent_capacity ? 2 * async->spent_capacity : 4;
        struct weir__lease_kept *larger = realloc(async->spent, capacity * sizeof *larger);
        if (!larger)
            return false;
        async->spent = larger;
        async->spent_capacity = capacity;
    }
    async->spent[async->spent_count++] = (struct weir__lease_kept){hash, cost, false, spend};
    return true;
}

/* Spends what the first check relies on, before further checks spend it. */
static void keep_promises(const struct weir__op *op, weir_async *async)
{
    for (uint32_t i = 0; i < async->promised_count; i++) {
        const struct weir__lease_promise *promise = &async->promised[i];
        struct weir__key_location where;
        struct weir__leased after;
        bool spent;
        weir__leased_locate(op, promise->hash, &where);
        if (weir__leased_spend(op, &where, promise->cost, &spent, &after) == 0 && spent &&
            !keep(async, promise->hash, promise->cost, spend_with(&after)))
            (void)put_back(op, promise->hash, promise->cost, after.end_us);
    }
    async->promised_count = 0;
}

bool weir__leases_suffice(const struct weir__request_ctx *ctx, weir_async *async)
{
    struct leased_take takes[WEIR__FAST_MAX];
    struct weir__op op = operation(ctx);
    bool first = !async->promised_count && !async->spent_count && !async->request.op_count;
    keep_promises(&op, async);
    if (!first || !look_at_all(ctx, &op, true, takes))
        return false;
    for (size_t i = 0; i < ctx->count; i++)
        if (is_leased(ctx, &ctx->evals[i]))
            async->promised[async->promised_count++] =
                (struct weir__lease_promise){hash_of(ctx, &ctx->evals[i]), ctx->evals[i].cost};
    return true;
}

static bool swap(const struct weir__request_ctx *ctx, const struct weir__op *op, const struct weir__rule_eval *eval,
                 struct leased_take *take)
{
    for (int i = 0; i < SWAP_TRIES; i++) {
        if (weir__cell_cas(take->slot, &take->step.seen, take->step.next))
            return true;
        if (!look(ctx, op, eval, 0, take))
            return false;
    }
    return false;
}

/* The first `count` evals have taken, and another one cannot. */
static void undo(const struct weir__request_ctx *ctx, const struct weir__op *op, const struct leased_take *takes,
                 size_t count)
{
    weir_decision unused;
    for (size_t i = 0; i < count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (is_leased(ctx, eval))
            (void)put_back(op, hash_of(ctx, eval), eval->cost, takes[i].spend.end_us);
        else
            (void)weir__eval_roll_back(ctx, eval, &unused);
        weir__count(&weir__rule_stats_on(ctx->ruleset, eval->rule, ctx->cpu)->rolled_back, 1);
    }
}

bool weir__take_all_leased(const struct weir__request_ctx *ctx)
{
    struct leased_take takes[WEIR__FAST_MAX];
    struct weir__op op = operation(ctx);
    weir_async *async = ctx->async;
    /* Of several checks some may have spent already, or sent an op. */
    if ((async && (async->spent_count || async->request.op_count)) || !look_at_all(ctx, &op, false, takes))
        return false;
    for (size_t i = 0; i < ctx->count; i++)
        if (!swap(ctx, &op, &ctx->evals[i], &takes[i])) {
            undo(ctx, &op, takes, i);
            return false;
        }
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (is_leased(ctx, eval)) {
            fill_decision(ctx, eval, &takes[i].spend, &eval->decision);
            continue;
        }
        eval->decision = (weir_decision){.verdict = WEIR_ALLOW,
                                         .limit = eval->quota->limit.hard,
                                         .remaining = takes[i].step.remaining,
                                         .reset_after_ns = takes[i].step.reset_after_ns};
    }
    if (async)
        async->promised_count = 0;
    weir__count(&op.stats->verdict[WEIR_ALLOW], ctx->count);
    return true;
}

/* ---- Asynchronous checks ---- */

int weir__async_keep_spends(weir_async *async, const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval->lease != WEIR__LEASE_SPENT)
            continue;
        if (!keep(async, hash_of(ctx, eval), eval->cost, *spend_of(ctx, eval))) {
            weir__lease_put_back(ctx);
            return WEIR_ENOMEM;
        }
        eval->lease = WEIR__LEASE_UNUSED;
    }
    return 0;
}

bool weir__async_take_spend(weir_async *async, const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    if (!is_leased(ctx, eval) || !async->spent_count)
        return false;
    uint64_t hash = hash_of(ctx, eval);
    while (async->spent_next < async->spent_count && async->spent[async->spent_next].used)
        async->spent_next++;
    for (uint32_t i = async->spent_next; i < async->spent_count; i++) {
        struct weir__lease_kept *kept = &async->spent[i];
        if (kept->used || kept->hash != hash || kept->cost != eval->cost)
            continue;
        *spend_of(ctx, eval) = kept->spend;
        eval->lease = WEIR__LEASE_SPENT;
        kept->used = true;
        return true;
    }
    return false;
}

void weir__async_drop_spends(weir_async *async)
{
    if (!async->spent_count) /* the engine may be closed already */
        return;
    weir_segment *segment = async->engine->segment;
    for (uint32_t i = 0; i < async->spent_count; i++) {
        const struct weir__lease_kept *kept = &async->spent[i];
        struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), weir_clock(segment));
        if (!kept->used)
            (void)put_back(&op, kept->hash, kept->cost, kept->spend.end_us);
    }
    async->spent_count = async->spent_next = 0;
}
