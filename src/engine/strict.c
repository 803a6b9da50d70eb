/* Rules that a store decides. See strict.h. */
#include "engine/strict.h"
#include "engine/negative_cache.h"
#include "engine/permits.h"
#include "engine/connection_pool.h"
#include "engine/overload.h"
#include "remote/counter_name.h"

#include "algo/calendar.h"

#include <stdio.h>

/* A request whose denial ended between the two looks was not asked for: it may try again at once. */
#define AGAIN_NS (1000 * WEIR_MICROSECOND)

/* So long ago is now: who gives back without saying when it was taken. */
#define PRESENT_US 1000

static bool enforced(const struct weir__rule_eval *eval)
{
    return !eval->shadow && !eval->replaced;
}

void weir__strict_mark(struct weir__request_ctx *ctx)
{
    ctx->strict = 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        eval->strict = eval->quota && !eval->replaced &&
                       weir__consistency_of(ctx->engine, ctx->ruleset, eval->rule, &eval->quota->limit) == WEIR__STRICT;
        eval->told = NULL;
        eval->unasked = eval->refused = eval->kept = false;
        ctx->strict += eval->strict;
    }
}

/* ---- What is known without the store ---- */

/* Denials that every further request prolongs are not over when they say, and of requests in flight nobody knows when
 * one ends: each of these is asked for. */
static bool remembers(const weir_limit *limit)
{
    return !limit->count_rejected && limit->algorithm != WEIR_CONCURRENCY;
}

/* True if the eval is denied already: blocked, beyond what the limit could ever hold, or by a remembered denial. */
static bool denied_here(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    const weir_segment *segment = ctx->engine->segment;
    weir_request request = {&eval->quota->limit, eval->key, eval->key_len, eval->cost, 0, {0}};
    weir_decision made;
    if (eval->cost <= 0)
        return false;
    if ((eval->cost > request.limit->cap || weir__blocks_any(segment, ctx->now)) &&
        weir_peek(segment, request.limit, eval->key, eval->key_len, eval->cost, ctx->now, &made) == 0 &&
        (made.verdict == WEIR_NEVER_FITS || made.verdict == WEIR_BLOCKED)) {
        eval->decision = made;
        return true;
    }
    int64_t left = remembers(request.limit)
                       ? weir__negative_cache_left(segment, &ctx->engine->negative_cache, &request, ctx->now)
                       : 0;
    if (left > 0)
        eval->decision = (weir_decision){
            .verdict = WEIR_DENY, .limit = request.limit->hard, .retry_after_ns = left, .reset_after_ns = left};
    return left > 0;
}

static void remember(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_request request = {&eval->quota->limit, eval->key, eval->key_len, eval->cost, 0, {0}};
    if (eval->decision.verdict == WEIR_DENY && eval->decision.retry_after_ns > 0 && eval->cost > 0 && !ctx->dry_run &&
        remembers(request.limit))
        weir__negative_cache_add(ctx->engine->segment, &ctx->engine->negative_cache, &request,
                                 eval->decision.retry_after_ns, ctx->now);
}

/* ---- Asking ---- */

/* The windows around the host's present one, by the calendar: the server has no zones. */
static void set_bounds(const weir_limit *limit, weir_time now, int64_t bounds_us[4])
{
    int64_t unused;
    weir__calendar_window(limit->zone, limit->calendar, now.wall_ns / 1000, &bounds_us[1], &bounds_us[2]);
    weir__calendar_window(limit->zone, limit->calendar, bounds_us[1] - 1, &bounds_us[0], &unused);
    weir__calendar_window(limit->zone, limit->calendar, bounds_us[2], &unused, &bounds_us[3]);
}

/*
 * Who gives back says when it was taken, by the host's clock, and the store hears kind long ago that is. The store took
 * it before its answer came, and hears this a moment later: so it is made longer by what these can have taken. What is
 * given back must not come off a window that has begun since, nor once more off what has dripped back already. Where
 * the window or the log began with the take itself, that would be before it, and nothing would ever be given back.
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

/* What a eval is in the store; only kind, cost and name are needed to find it again. */
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
    /* A limit of the request's own: no rule's name has quotes. */
    char name[48];
    int len = snprintf(name, sizeof name, "\"request\"/%lldus", (long long)(eval->quota->window_ns / 1000));
    to->name_len = (uint16_t)weir__store_name(&naming, (weir_text){name, (size_t)len}, false, key, to->name);
}

static struct weir__store_op *add(const struct weir__request_ctx *ctx, weir_ask *ask,
                                  const struct weir__rule_eval *eval, bool new_group, bool after_first)
{
    struct weir__store_op *to = weir__async_add(ask, new_group, after_first);
    describe(ctx, eval, to);
    to->limit = eval->quota->limit;
    if (to->kind == WEIR__OP_REFUND)
        to->at_us = -taken_ago(ctx, &to->limit);
    if (to->limit.algorithm == WEIR_FIXED_WINDOW && to->limit.align == WEIR_ALIGN_CALENDAR)
        set_bounds(&to->limit, ctx->now, to->bounds_us);
    to->limit.zone = NULL; /* the rules may be gone before the answer comes */
    return to;
}

/* The same for a eval of a request. */
static int add_hit(const struct weir__request_ctx *ctx, weir_ask *ask, const struct weir__rule_eval *eval,
                   bool new_group, bool after_first)
{
    struct weir__store_op *added = add(ctx, ask, eval, new_group, after_first);
    return weir__is_flight(eval->quota) && added->kind == WEIR__OP_TAKE ? weir__remote_permit_identify(added) : 0;
}

int weir__strict_add(const struct weir__request_ctx *ctx, weir_ask *ask, const struct weir__rule_eval *eval,
                     enum weir__store_op_kind kind)
{
    int error = weir__async_reserve(ask, 1);
    if (!error)
        add(ctx, ask, eval, true, false)->kind = kind;
    return error;
}

int weir__strict_reply(const struct weir__request_ctx *ctx, weir_ask *ask, const struct weir__rule_eval *eval,
                       enum weir__store_op_kind kind, weir_decision *decision)
{
    struct weir__store_op like;
    if (!ask)
        return WEIR_ESTOREAWAY;
    describe(ctx, eval, &like);
    like.kind = kind;
    const struct weir__store_op *told = weir__async_find(ask, &like);
    if (!told)
        return WEIR_ESTOREAWAY;
    weir__async_keep(ask, told);
    int error = weir__async_error(ask, told);
    if (!error)
        *decision = told->decision;
    return error;
}

/* The enforced rule of a shadow's own name does not stand in its way. */
static bool has_twin(const struct weir__request_ctx *ctx, const struct weir__rule_eval *shadow)
{
    for (size_t i = 0; i < ctx->count; i++)
        if (enforced(&ctx->evals[i]) && ctx->evals[i].rule && shadow->rule &&
            weir__text_equal(ctx->evals[i].rule->name, shadow->rule->name))
            return true;
    return false;
}

/*
 * What the request takes together is one group. Shadows, and descriptors in quota mode, which may deny alone without
 * denying the request, are each their own: after the group where there is one, or given back if it denies.
 */
static int add_all(const struct weir__request_ctx *ctx, weir_ask *ask)
{
    int error = weir__async_reserve(ask, ctx->strict);
    if (error)
        return error;
    bool first = ask->request.group_count == 0, grouped = false;
    for (size_t i = 0; i < ctx->count && !error; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict || eval->unasked || !enforced(eval) || eval->quota_mode)
            continue;
        error = add_hit(ctx, ask, eval, !grouped, false);
        grouped = true;
    }
    for (size_t i = 0; i < ctx->count && !error; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict || eval->unasked || (enforced(eval) && !eval->quota_mode))
            continue;
        error =
            add_hit(ctx, ask, eval, true,
                    first && grouped && !(eval->shadow && has_twin(ctx, eval)) && !weir__eval_counts_denied(ctx, eval));
    }
    return error;
}

/* A report is consumed whatever is decided, so the store must hear of it: no denial that is known here stands for it.
 */
static bool is_counted_report(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return eval->strict && eval->report && weir__eval_counts_denied(ctx, eval);
}

/* Counters that the store must be asked for; 0: none, or the request is denied without. */
static uint32_t look(struct weir__request_ctx *ctx)
{
    uint32_t open = 0;
    bool reports = false;
    for (size_t i = 0; i < ctx->count; i++)
        weir__eval_settle(&ctx->evals[i]);
    weir__strict_mark(ctx);
    if (ctx->load_aware && weir__overload_must_shed(ctx))
        ctx->strict = 0;
    if (!ctx->strict)
        return 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        bool report = is_counted_report(ctx, eval);
        eval->unasked = eval->strict && !report && denied_here(ctx, eval);
        open += eval->strict && !eval->unasked;
        reports |= report;
    }
    weir__request_peek(ctx);
    return weir__request_takes(ctx) && weir__request_denied(ctx) && !reports ? 0 : open;
}

int weir__strict_prepare(struct weir__request_ctx *ctx, weir_ask *ask)
{
    uint32_t open = look(ctx);
    ask->refused += (uint32_t)ctx->strict - open;
    int error = open ? add_all(ctx, ask) : 0;
    return error ? error : open != 0;
}

struct weir__pooled_connection *weir__strict_request(struct weir__request_ctx *ctx)
{
    uint32_t open = look(ctx);
    /* A counter that could not be looked at now may be reached when it is taken from. */
    for (size_t i = 0; i < ctx->count; i++)
        if (ctx->evals[i].error) {
            ctx->evals[i].error = 0;
            ctx->evals[i].reason = WEIR_BY_LIMIT;
        }
    ctx->refused = !open;
    struct weir__pooled_connection *pooled = open ? weir__connection_pool_acquire(ctx->engine, &ctx->away) : NULL;
    if (!pooled)
        return NULL;
    pooled->ask->refused = (uint32_t)ctx->strict - open;
    ctx->away = add_all(ctx, pooled->ask);
    if (!ctx->away)
        weir__connection_pool_request(pooled);
    ctx->ask = pooled->ask;
    return pooled;
}

/* ---- With the answers ---- */

/* There is no answer: the host's own counter stands in, or the policy speaks. */
static void failed(struct weir__rule_eval *eval, int error)
{
    if (eval->rule && eval->rule->on_failure != WEIR__FAIL_LOCAL) {
        weir__eval_fail(eval, error);
        return;
    }
    eval->strict = false;
    eval->store_error = error;
}

/* Why what the store took cannot be held; 0: it can. */
static int reserve_slot(struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    if (!weir__is_flight(eval->quota) || eval->told->kind != WEIR__OP_TAKE || !eval->told->taken)
        return 0;
    if (!ctx->held || ctx->far == WEIR_HELD_MAX)
        return WEIR_ETOOMANY;
    ctx->far++;
    return 0;
}

void weir__strict_apply(struct weir__request_ctx *ctx)
{
    weir_ask *ask = ctx->ask;
    struct weir__store_op like;
    ctx->far = 0;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict)
            continue;
        if (ask) {
            describe(ctx, eval, &like);
            eval->told = weir__async_find(ask, &like);
        }
        int error = eval->told ? weir__async_error(ask, eval->told) : 0;
        if (eval->told && !error)
            error = reserve_slot(ctx, eval);
        if (error) {
            eval->told = NULL;
            failed(eval, error);
        } else if (eval->told) {
            eval->decision = eval->told->decision;
            weir__eval_look_full(ctx, eval);
            remember(ctx, eval);
        } else {
            eval->refused = ctx->refused || (ask && ask->refused);
            if (ask && ask->refused)
                ask->refused--;
            eval->unasked = !denied_here(ctx, eval);
        }
    }
}

void weir__strict_resolve(struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->strict || !eval->unasked || !enforced(eval))
            continue;
        eval->unasked = false;
        if (eval->refused) {
            eval->decision = (weir_decision){.verdict = WEIR_DENY,
                                             .limit = eval->quota->limit.hard,
                                             .retry_after_ns = AGAIN_NS,
                                             .reset_after_ns = AGAIN_NS};
            continue;
        }
        failed(eval, ctx->away ? ctx->away : WEIR_ESTOREAWAY);
        if (!eval->strict)
            weir__eval_peek(ctx, eval);
    }
}

void weir__strict_shadow(struct weir__request_ctx *ctx, struct weir__rule_eval *eval, bool passes)
{
    eval->kept = passes;
    if (!eval->unasked || eval->refused || weir__request_denied(ctx))
        return;
    eval->unasked = false;
    failed(eval, ctx->away ? ctx->away : WEIR_ESTOREAWAY);
}

static void count_decision(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    if (ctx->dry_run || !eval->strict || eval->unasked || eval->cost <= 0 || eval->reason != WEIR_BY_LIMIT ||
        !(weir__eval_denies(eval) || (eval->told && eval->told->taken)))
        return;
    weir__eval_count_verdict(ctx, eval);
}

void weir__strict_keep(struct weir__request_ctx *ctx)
{
    bool denied = weir__request_denied(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        count_decision(ctx, eval);
        if (!eval->told || eval->told->kind != WEIR__OP_TAKE || weir__eval_denies(eval))
            continue;
        if (!eval->told->taken) { /* its group was denied; a look for a shadow tells what would be left */
            eval->decision.remaining += eval->shadow ? 0 : eval->cost;
            continue;
        }
        if (eval->shadow ? eval->kept : !denied) {
            weir__async_keep(ctx->ask, eval->told);
            if (weir__is_flight(eval->quota))
                weir__remote_permit_add(ctx->held, eval->told);
            continue;
        }
        eval->decision.remaining += eval->cost;
        if (eval->rule)
            weir__count(&weir__rule_tally(ctx->ruleset, eval->rule)->gave_back, 1);
    }
}
