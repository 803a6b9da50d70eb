/* Overload control of a request under evaluation: see evaluation.h. */

#include "engine/hot_key_sampler.h"
#include "engine/strict.h"

/* Retry-After of shed requests is random, so that they do not return at the same moment. */
#define RETRY_MIN_NS   WEIR_SECOND
#define RETRY_JITTER_S 4

/* True if the rule is enforced and applies to the request. */
static bool applies(const struct weir__rule_eval *eval)
{
    return weir__eval_enforced(eval) && eval->reason != WEIR_BY_NOTHING && eval->reason != WEIR_BY_MISSING_KEY;
}

/* ---- Effective limits ---- */

static void read_load(const weir *engine, weir_time now, struct weir__load_view *view)
{
    *view = weir__load_view_neutral();
    if (engine->load && !weir__load32(&engine->level.lost))
        weir__load_page_read(engine->load, now.mono_ns, view);
    /* Without a known level elastic limits are not stretched. */
    if (!view->known)
        view->elastic_level = WEIR__LOAD_FULL;
}

static void scale(const struct weir__rule *rule, const struct weir__load_view *view, const struct weir__quota *quota,
                  struct weir__quota *to)
{
    int64_t at = weir__overload_scale(&rule->overload, view->elastic_level, view->throttle);
    *to = *quota;
    if (at != WEIR__SCALE_ONE)
        weir__limit_scale(&quota->limit, at, &to->limit);
}

static bool is_scaled(const struct weir__quota *quota)
{
    return quota && quota->kind == WEIR__LIMITED && quota->ceiling;
}

const struct weir__quota *weir__quota_effective(const weir *engine, const struct weir__rule *rule,
                                                const struct weir__quota *quota, weir_time now,
                                                struct weir__quota *scaled)
{
    struct weir__load_view view;
    if (!is_scaled(quota))
        return quota;
    read_load(engine, now, &view);
    scale(rule, &view, quota, scaled);
    return scaled;
}

/* ---- A request ---- */

/* The highest priority of the enforced rules that apply; normal if none has one. */
static enum weir_priority class_of(const struct weir__request_ctx *ctx)
{
    int best = WEIR__LOAD_CLASSES;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (applies(eval) && eval->rule && eval->rule->overload.has_class && (int)eval->rule->overload.class < best)
            best = (int)eval->rule->overload.class;
    }
    return best < WEIR__LOAD_CLASSES ? (enum weir_priority)best : WEIR_NORMAL;
}

static bool keeps_reserve(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return eval->rule && eval->rule->overload.reserve && ctx->priority != WEIR_CRITICAL && eval->quota &&
           eval->quota->kind == WEIR__LIMITED && eval->cost > 0;
}

/* Sets the share of such requests that is shed, and the random number of this one. */
static void draw(struct weir__request_ctx *ctx, const struct weir__load_view *view)
{
    const struct weir__rule_eval *first = ctx->evals;
    uint64_t counted = 0;
    if (first->rule) {
        const struct weir__rule_stats_shard *shard = weir__rule_stats_on(ctx->ruleset, first->rule, ctx->cpu);
        counted = weir__load64(&shard->allowed) + weir__load64(&shard->denied) +
                  weir__load64(weir__rule_stats_shed(ctx->ruleset->rule_stats[first->rule->index], (int)ctx->priority));
    }
    ctx->shed = view->shed[ctx->priority];
    ctx->dice = weir__hot_sampler_random(ctx->now, counted);
    weir_async *async = ctx->async;
    if (!async || !ctx->ruleset->strict)
        return;
    if (!async->dice) { /* drawn once: the later phases of the request must come to the same decision */
        async->dice = ctx->dice | 1;
        memcpy(async->shed, view->shed, sizeof async->shed);
    }
    ctx->shed = async->shed[ctx->priority];
    ctx->dice = async->dice;
    if (first->key_len)
        ctx->dice ^= weir__hot_sampler_hash(ctx->engine->segment, first->key, first->key_len);
}

void weir__overload_apply(struct weir__request_ctx *ctx, struct weir__quota *scaled)
{
    struct weir__load_view view;
    read_load(ctx->engine, ctx->now, &view);
    ctx->priority = class_of(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        bool scales = is_scaled(eval->quota);
        eval->without_reserve = keeps_reserve(ctx, eval);
        if (!scales && !eval->without_reserve)
            continue;
        if (scales)
            scale(eval->rule, &view, eval->quota, &scaled[i]);
        else
            scaled[i] = *eval->quota;
        if (eval->without_reserve) {
            scaled[i].full_cap = scaled[i].limit.cap;
            weir__limit_without_reserve(&scaled[i].limit, eval->rule->overload.reserve);
        }
        eval->quota = &scaled[i];
        ctx->load_aware |= eval->without_reserve;
    }
    if (ctx->count && !ctx->dry_run)
        draw(ctx, &view);
    ctx->load_aware |= ctx->shed > 0;
}

/* ---- Shedding by utilisation ---- */

/* The rule that gives the request its priority, or the first that applies; NULL: the request costs nothing. */
static struct weir__rule_eval *reported_eval(const struct weir__request_ctx *ctx)
{
    struct weir__rule_eval *first = NULL;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!applies(eval) || eval->cost <= 0)
            continue;
        if (eval->rule && eval->rule->overload.has_class && eval->rule->overload.class == ctx->priority)
            return eval;
        first = first ? first : eval;
    }
    return first;
}

bool weir__overload_must_shed(const struct weir__request_ctx *ctx)
{
    return ctx->shed && !ctx->dry_run && (ctx->dice >> 32) * WEIR__LOAD_FULL >> 32 < ctx->shed && reported_eval(ctx) &&
           !weir__request_denied(ctx);
}

const struct weir__rule_eval *weir__overload_shed(struct weir__request_ctx *ctx)
{
    struct weir__rule_eval *by = reported_eval(ctx);
    int64_t wait = RETRY_MIN_NS + (int64_t)(ctx->dice & 0xffff) * (RETRY_JITTER_S * WEIR_SECOND) / 0x10000;
    for (size_t i = 0; i < ctx->count; i++) {
        ctx->evals[i].strict = false;
        ctx->evals[i].skipped = true;
    }
    by->skipped = false;
    by->reason = WEIR_BY_SHED;
    by->decision = (weir_decision){
        .verdict = WEIR_DENY, .limit = -1, .remaining = -1, .retry_after_ns = wait, .reset_after_ns = -1};
    return by;
}

/* ---- Shedding by a reserve ---- */

/* True if the request would pass without the reserve. */
static bool passes_full(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_limit full = eval->quota->limit;
    weir_decision looked;
    full.cap = eval->quota->full_cap;
    if (eval->strict) /* the store's denial has the used units */
        return eval->decision.limit - eval->decision.remaining + eval->cost <= full.cap;
    return weir_peek(ctx->engine->segment, &full, eval->key, eval->key_len, eval->cost, ctx->now, &looked) == 0 &&
           weir_passes(&looked);
}

void weir__overload_mark_shed(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval->without_reserve && eval->quota && eval->reason == WEIR_BY_LIMIT &&
            eval->decision.verdict == WEIR_DENY && passes_full(ctx, eval))
            eval->reason = WEIR_BY_SHED;
    }
}
