/* Strict rules. See strict.h. */
#include "engine/ledger.h"
#include "engine/leased.h"
#include "engine/permits.h"

#include <stdio.h>

/* retry_after of a request whose cached denial expired between preparation and check: its op was not sent */
#define AGAIN_NS (1000 * WEIR_MICROSECOND)

/* A refund of a take less than this ago is treated as immediate. */
#define PRESENT_US 1000

/*
 * Whether leased units pay for the eval. An op that was sent for it comes first: where any were sent,
 * weir__strict_apply looks for it before it spends.
 */
static bool is_paid(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool preparing)
{
    if (preparing) /* what the async keeps belongs to other checks */
        return weir__lease_spend(ctx, eval);
    if (eval->lease == WEIR__LEASE_SPENT || (ctx->async && weir__async_take_spend(ctx->async, ctx, eval)))
        return true;
    return !(ctx->async && ctx->async->request.op_count) && weir__lease_spend(ctx, eval);
}

static void mark(struct weir__request_ctx *ctx, bool preparing)
{
    ctx->strict = 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        enum weir__consistency consistency =
            eval->quota && !eval->replaced ? weir__consistency_of(ctx->engine, ctx->ruleset, eval->rule) : WEIR__LOCAL;
        eval->strict = consistency == WEIR__STRICT || (consistency == WEIR__LEASED && !is_paid(ctx, eval, preparing));
        eval->reply = NULL;
        eval->skipped = eval->skipped_in_prepare = eval->keeps_units = false;
        ctx->strict += eval->strict;
    }
}

void weir__strict_mark(struct weir__request_ctx *ctx)
{
    mark(ctx, false);
}

static bool is_leased(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return weir__consistency_of(ctx->engine, ctx->ruleset, eval->rule) == WEIR__LEASED;
}

/* ---- Decided without the store ---- */

/* Not cached: denials that further requests prolong, and permits, whose release cannot be predicted. */
static bool remembers(const weir_limit *limit)
{
    return !limit->count_rejected && limit->algorithm != WEIR_CONCURRENCY;
}

/* Whether the eval is denied already: blocked, above the limit's capacity, or by the negative cache. */
static bool denied_here(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    const weir_segment *segment = ctx->engine->segment;
    const weir_limit *limit = &eval->quota->limit;
    weir_decision made;
    if (eval->cost <= 0)
        return false;
    if ((eval->cost > limit->cap || weir__any_blocked(&segment->table, ctx->now.mono_ns / 1000)) &&
        weir_peek(segment, limit, eval->key, eval->key_len, eval->cost, ctx->now, &made) == 0 &&
        (made.verdict == WEIR_NEVER_FITS || made.verdict == WEIR_BLOCKED)) {
        eval->decision = made;
        return true;
    }
    int64_t left = remembers(limit) ? weir__negative_cache_left(ctx, eval) : 0;
    if (left > 0)
        eval->decision =
            (weir_decision){.verdict = WEIR_DENY, .limit = limit->hard, .retry_after_ns = left, .reset_after_ns = left};
    return left > 0;
}

static void remember(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    if (eval->decision.verdict == WEIR_DENY && eval->decision.retry_after_ns > 0 && eval->cost > 0 && !ctx->dry_run &&
        remembers(&eval->quota->limit))
        weir__negative_cache_add(ctx, eval, eval->decision.retry_after_ns);
}

/* ---- Building ops ---- */

/* The calendar windows around the host's current one: the server has no time zones. */
static void set_bounds(const weir_limit *limit, weir_time now, int64_t bounds_us[4])
{
    int64_t unused;
    weir__calendar_window(limit->zone, limit->calendar, now.wall_ns / 1000, &bounds_us[1], &bounds_us[2]);
    weir__calendar_window(limit->zone, limit->calendar, bounds_us[1] - 1, &bounds_us[0], &unused);
    weir__calendar_window(limit->zone, limit->calendar, bounds_us[2], &unused, &bounds_us[3]);
}

/*
 * The age of the take that a refund refers to. The caller knows the time of the take by the host's clock; the store
 * took it up to a deadline earlier or later, and gets the refund up to a deadline later, so the age is extended by
 * both: a refund must not reduce a window that began since, nor units that have refilled. Not where the window or log
 * began with the take itself: the extended age would be before it, and nothing would be refunded.
 */
static int64_t taken_ago(const struct weir__request_ctx *ctx, const weir_limit *limit)
{
    bool begins = limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
                  (limit->algorithm == WEIR_FIXED_WINDOW && limit->align == WEIR_ALIGN_FIRST_REQUEST);
    int64_t passed_us = (weir_clock(ctx->engine->segment).mono_ns - ctx->now.mono_ns) / 1000;
    if (passed_us < PRESENT_US)
        return 1;
    return begins ? passed_us : passed_us + 2 * ctx->engine->store->deadline_us;
}

/* The op of an eval. Kind, cost and name identify it. */
static void describe(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, struct weir__store_op *to)
{
    const struct weir__store_options *store = ctx->engine->store;
    struct weir__naming naming = {store->prefix, store->hash_keys};
    weir_text key = {eval->key, eval->key_len};
    to->cost = eval->cost;
    to->kind = ctx->dry_run || !eval->cost ? WEIR__OP_PEEK : eval->cost < 0 ? WEIR__OP_REFUND : WEIR__OP_TAKE;
    if (to->kind == WEIR__OP_REFUND)
        to->cost = -eval->cost;
    if (to->kind == WEIR__OP_TAKE && weir__eval_counts_denied(ctx, eval))
        to->kind = WEIR__OP_COUNT;
    if (eval->rule) {
        to->name_len = (uint16_t)weir__store_name(&naming, eval->rule->name, eval->rule->shadow, key, to->name);
        return;
    }
    /* A limit passed with the request: quotes cannot be part of a rule's name. */
    char name[48];
    int len = snprintf(name, sizeof name, "\"request\"/%lldus", (long long)(eval->quota->window_ns / 1000));
    to->name_len = (uint16_t)weir__store_name(&naming, (weir_text){name, (size_t)len}, false, key, to->name);
}

static struct weir__store_op *add(const struct weir__request_ctx *ctx, weir_async *async,
                                  const struct weir__rule_eval *eval, bool new_group, bool after_first)
{
    struct weir__store_op *to = weir__async_add(async, new_group, after_first);
    describe(ctx, eval, to);
    to->limit = eval->quota->limit;
    if (to->kind == WEIR__OP_REFUND)
        to->at_us = -taken_ago(ctx, &to->limit);
    if (to->limit.algorithm == WEIR_FIXED_WINDOW && to->limit.align == WEIR_ALIGN_CALENDAR)
        set_bounds(&to->limit, ctx->now, to->bounds_us);
    to->limit.zone = NULL; /* the rules may be freed before the reply arrives */
    return to;
}

/* Adds the op of an eval of a request. */
static int add_hit(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                   bool new_group, bool after_first)
{
    struct weir__store_op *added = add(ctx, async, eval, new_group, after_first);
    return weir__is_flight(eval->quota) && added->kind == WEIR__OP_TAKE ? weir__remote_permit_identify(added) : 0;
}

int weir__strict_add(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                     enum weir__store_op_kind kind)
{
    int error = weir__async_reserve(async, 1);
    if (!error)
        add(ctx, async, eval, true, false)->kind = kind;
    return error;
}

int weir__strict_reply(const struct weir__request_ctx *ctx, weir_async *async, const struct weir__rule_eval *eval,
                       enum weir__store_op_kind kind, weir_decision *decision)
{
    struct weir__store_op like;
    if (!async)
        return WEIR_ESTOREBREAKER;
    describe(ctx, eval, &like);
    like.kind = kind;
    struct weir__store_op *reply = weir__async_find(async, &like);
    if (!reply)
        return WEIR_ESTOREBREAKER;
    reply->keep = true;
    int error = weir__async_error(async, reply);
    if (!error)
        *decision = reply->decision;
    return error;
}

/* Whether the shadow rule has an enforced rule of its name, which does not gate it. */
static bool has_enforced_rule(const struct weir__request_ctx *ctx, const struct weir__rule_eval *shadow)
{
    for (size_t i = 0; i < ctx->count; i++)
        if (weir__eval_enforced(&ctx->evals[i]) && ctx->evals[i].rule && shadow->rule &&
            weir__text_equal(ctx->evals[i].rule->name, shadow->rule->name))
            return true;
    return false;
}

/*
 * The enforced evals of a request form one group. Shadows, and descriptors in quota mode, which deny only themselves,
 * have a group each: after the first group if there is one, or refunded if that denies.
 */
static int add_all(const struct weir__request_ctx *ctx, weir_async *async)
{
    int error = weir__async_reserve(async, ctx->strict);
    if (error)
        return error;
    bool first = async->request.group_count == 0, grouped = false;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < ctx->count && !error; i++) {
            const struct weir__rule_eval *eval = &ctx->evals[i];
            bool alone = !weir__eval_enforced(eval) || eval->quota_mode;
            if (!eval->strict || eval->skipped || alone != (pass == 1))
                continue;
            bool after_first = alone && first && grouped && !(eval->shadow && has_enforced_rule(ctx, eval)) &&
                               !weir__eval_counts_denied(ctx, eval);
            error = add_hit(ctx, async, eval, alone || !grouped, after_first);
            grouped |= !alone;
        }
    }
    return error;
}

/* A report is consumed whatever the decision is, so the store must get it: no local denial replaces it. */
static bool is_counted_report(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return eval->strict && eval->report && weir__eval_counts_denied(ctx, eval);
}

/* Number of ops that must be sent; 0: none, or the request is denied without them. */
static uint32_t look(struct weir__request_ctx *ctx)
{
    uint32_t open = 0;
    bool reports = false;
    for (size_t i = 0; i < ctx->count; i++)
        weir__eval_settle(&ctx->evals[i]);
    mark(ctx, true);
    if (ctx->load_aware && weir__overload_must_shed(ctx))
        ctx->strict = 0;
    if (!ctx->strict)
        return 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        bool report = is_counted_report(ctx, eval);
        eval->skipped = eval->strict && !report && denied_here(ctx, eval);
        open += eval->strict && !eval->skipped;
        reports |= report;
    }
    weir__request_peek(ctx);
    bool denied = weir__request_takes(ctx) && weir__request_denied(ctx) && !reports;
    if (denied)
        weir__lease_put_back(ctx);
    return denied ? 0 : open;
}

/* Number of ops of strict rules that are not sent, after `look`. A leased rule without a reply needs none: see apply.
 */
static uint32_t skipped(const struct weir__request_ctx *ctx, uint32_t open)
{
    uint32_t count = 0;
    for (size_t i = 0; i < ctx->count && ctx->strict; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        count += eval->strict && (!open || eval->skipped) && !is_leased(ctx, eval);
    }
    return count;
}

int weir__strict_prepare(struct weir__request_ctx *ctx, weir_async *async)
{
    if (ctx->ruleset->leased && weir__leases_suffice(ctx, async))
        return 0;
    uint32_t open = look(ctx);
    async->skipped_in_prepare += skipped(ctx, open);
    int error = open ? add_all(ctx, async) : 0;
    if (error)
        weir__lease_put_back(ctx);
    else
        error = weir__async_keep_spends(async, ctx);
    return error ? error : open != 0;
}

struct weir__pooled_connection *weir__strict_request(struct weir__request_ctx *ctx)
{
    uint32_t open = look(ctx);
    /* a counter that could not be read now may be readable when it is taken */
    for (size_t i = 0; i < ctx->count; i++)
        if (ctx->evals[i].error) {
            ctx->evals[i].error = 0;
            ctx->evals[i].reason = WEIR_BY_LIMIT;
        }
    ctx->skipped_in_prepare = !open;
    struct weir__pooled_connection *pooled =
        open ? weir__connection_pool_acquire(ctx->engine, &ctx->request_error) : NULL;
    if (!pooled)
        return NULL;
    pooled->async->skipped_in_prepare = skipped(ctx, open);
    ctx->request_error = add_all(ctx, pooled->async);
    if (!ctx->request_error)
        weir__connection_pool_request(pooled);
    ctx->async = pooled->async;
    return pooled;
}

/* ---- Applying replies ---- */

/* There is no reply: on_store_failure decides, or the host's counter (`local`). */
static void failed(struct weir__rule_eval *eval, int error)
{
    if (eval->rule && eval->rule->on_failure != WEIR__FAIL_LOCAL) {
        weir__eval_fail(eval, error);
        return;
    }
    eval->strict = false;
    eval->store_error = error;
}

/* Why the permit that the store took cannot be returned to the caller; 0: it can. */
static int reserve_slot(struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    if (!weir__is_flight(eval->quota) || eval->reply->kind != WEIR__OP_TAKE || !eval->reply->taken)
        return 0;
    if (!ctx->permits || ctx->remote_permits == WEIR_PERMITS_MAX)
        return WEIR_ETOOMANY;
    ctx->remote_permits++;
    return 0;
}

void weir__strict_apply(struct weir__request_ctx *ctx)
{
    weir_async *async = ctx->async;
    struct weir__store_op like;
    ctx->remote_permits = 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict)
            continue;
        if (async) {
            describe(ctx, eval, &like);
            eval->reply = weir__async_find(async, &like);
        }
        int error = eval->reply ? weir__async_error(async, eval->reply) : 0;
        if (eval->reply && !error)
            error = reserve_slot(ctx, eval);
        if (error) {
            eval->reply = NULL;
            failed(eval, error);
        } else if (eval->reply) {
            eval->decision = eval->reply->decision;
            weir__eval_look_full(ctx, eval);
            remember(ctx, eval);
        } else if (async && weir__lease_spend(ctx, eval)) {
            eval->strict = false; /* the ops were sent for other checks */
        } else {
            /* Leased units that another process spent between preparation and check: its op was not sent either. */
            bool dry = async && is_leased(ctx, eval);
            eval->skipped_in_prepare = ctx->skipped_in_prepare || dry || (async && async->skipped_in_prepare);
            if (async && async->skipped_in_prepare && !dry)
                async->skipped_in_prepare--;
            eval->skipped = !denied_here(ctx, eval);
        }
    }
}

void weir__strict_resolve(struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict || !eval->skipped || !weir__eval_enforced(eval))
            continue;
        eval->skipped = false;
        if (eval->skipped_in_prepare) {
            eval->decision = (weir_decision){.verdict = WEIR_DENY,
                                             .limit = eval->quota->limit.hard,
                                             .retry_after_ns = AGAIN_NS,
                                             .reset_after_ns = AGAIN_NS};
            continue;
        }
        failed(eval, ctx->request_error ? ctx->request_error : WEIR_ESTOREBREAKER);
        if (!eval->strict)
            weir__eval_decide(ctx, eval, WEIR__PEEK);
    }
}

void weir__strict_shadow(struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    if (!eval->skipped || eval->skipped_in_prepare || weir__request_denied(ctx))
        return;
    eval->skipped = false;
    failed(eval, ctx->request_error ? ctx->request_error : WEIR_ESTOREBREAKER);
}

static void count_decision(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    if (ctx->dry_run || !eval->strict || eval->skipped || eval->cost <= 0 || eval->reason != WEIR_BY_LIMIT ||
        !(weir__eval_denies(eval) || (eval->reply && eval->reply->taken)))
        return;
    weir__eval_count_verdict(ctx, eval);
}

void weir__strict_keep(struct weir__request_ctx *ctx)
{
    bool denied = weir__request_denied(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        count_decision(ctx, eval);
        if (!eval->reply || eval->reply->kind != WEIR__OP_TAKE || weir__eval_denies(eval))
            continue;
        if (!eval->reply->taken) { /* its group was denied; a peek for a shadow already excludes the cost */
            eval->decision.remaining += eval->shadow ? 0 : eval->cost;
            continue;
        }
        if (eval->shadow ? eval->keeps_units : !denied) {
            eval->reply->keep = true;
            if (weir__is_flight(eval->quota))
                weir__remote_permit_add(ctx->permits, eval->reply);
            if (eval->rule && ctx->ruleset->consistency[eval->rule->index] == WEIR__LEASED)
                weir__lease_record_wait(ctx, eval);
            continue;
        }
        eval->decision.remaining += eval->cost;
        if (eval->rule)
            weir__count(&weir__rule_stats_on(ctx->ruleset, eval->rule, ctx->cpu)->rolled_back, 1);
    }
}
