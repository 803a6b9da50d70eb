/* weir_check_descriptors: evaluates a request that consists of descriptors (Envoy's rate limit protocol). */
#include "engine/denial_recorder.h"
#include "engine/strict.h"
#include "rules/descriptors.h"

#define OVERRIDES_MAX 64 /* limits that the descriptors of one request may bring */

/* Counters of limits that requests bring are separate from those of rules, and one for each window. */
static uint64_t own_id(int64_t window_ns)
{
    return weir__rule_id(WEIR__TEXT("a limit of the request's own"), false) ^ (uint64_t)window_ns;
}

static int override_limit(struct weir__request_ctx *ctx, weir_text domain, const weir_descriptor *descriptor,
                          struct weir__rule_eval *eval)
{
    struct weir__scratch *scratch = ctx->scratch;
    if (scratch->quotas_used == OVERRIDES_MAX)
        return WEIR_ETOOMANY;
    struct weir__quota *quota = &scratch->quotas[scratch->quotas_used];
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW,
                          .limit = descriptor->override_limit,
                          .window_ns = descriptor->override_window_ns,
                          .id = own_id(descriptor->override_window_ns)};
    *quota = (struct weir__quota){.kind = descriptor->override_limit ? WEIR__LIMITED : WEIR__BANNED,
                                  .units = descriptor->override_limit,
                                  .window_ns = descriptor->override_window_ns};
    int error = quota->kind == WEIR__LIMITED ? weir_limit_init(&quota->limit, &params) : 0;
    if (error)
        return error;
    scratch->quotas_used++;
    eval->key = scratch->keys + scratch->keys_used;
    eval->key_len = (uint32_t)weir__descriptor_key(domain, descriptor, scratch->keys + scratch->keys_used);
    scratch->keys_used += eval->key_len;
    eval->quota = quota;
    eval->reason = WEIR_BY_LIMIT;
    return 0;
}

static int make_eval(struct weir__request_ctx *ctx, const weir_descriptor_query *query, size_t i)
{
    const weir_rules *rules = ctx->ruleset->rules;
    struct weir__scratch *scratch = ctx->scratch;
    const weir_descriptor *descriptor = &query->descriptors[i];
    struct weir__rule_eval *eval = &ctx->evals[i];
    int64_t default_hits = query->hits ? query->hits : 1;
    if (descriptor->entry_count && !descriptor->entries)
        return WEIR_EINVAL;
    if (descriptor->override_window_ns < 0)
        return WEIR_EWINDOW;
    *eval = (struct weir__rule_eval){.reason = WEIR_BY_NOTHING,
                                     .cost = descriptor->has_hits ? descriptor->hits : default_hits,
                                     .report = descriptor->has_hits || default_hits > 1};
    if (eval->cost > WEIR__USED_MAX || eval->cost < -WEIR__USED_MAX)
        return WEIR_ECOST;
    if (descriptor->override_window_ns)
        return weir__domain_known(rules, query->domain) ? override_limit(ctx, query->domain, descriptor, eval) : 0;

    int key_len;
    char *key = scratch->keys + scratch->keys_used;
    const struct weir__rule *rule = weir__descriptor_find(rules, query->domain, descriptor, key, &key_len);
    if (!rule)
        return 0;
    eval->rule = rule;
    eval->quota = rule->quotas;
    eval->reason = WEIR_BY_LIMIT;
    eval->shadow = rule->shadow;
    eval->quota_mode = rule->quota_mode && rule->quotas->kind != WEIR__UNLIMITED;
    eval->key = key;
    eval->key_len = (uint32_t)key_len;
    scratch->keys_used += eval->key_len;
    return 0;
}

static bool named_in(const struct weir__rule *rule, weir_text name)
{
    for (size_t i = 0; i < rule->replaces_count; i++)
        if (weir__text_equal(rule->replaces[i], name))
            return true;
    return false;
}

/* A rule that another rule of the request replaces counts as not matched. Unlimited rules cannot be replaced. */
static void replace(struct weir__rule_eval *evals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct weir__rule *rule = evals[i].rule;
        if (!rule || !rule->limit_name.len || evals[i].quota->kind == WEIR__UNLIMITED)
            continue;
        for (size_t by = 0; by < count && !evals[i].replaced; by++)
            evals[i].replaced = evals[by].rule && named_in(evals[by].rule, rule->limit_name);
    }
}

static void report_matched(const struct weir__rule *rule, const weir_descriptor_query *query, size_t index)
{
    const struct weir__quota *quota = rule->quotas;
    weir_descriptor_match match = {.limit_name = rule->limit_name,
                                   .metadata = rule->metadata,
                                   .limit = quota->kind == WEIR__UNLIMITED ? -1 : quota->units,
                                   .window_ns = quota->window_ns,
                                   .quota_mode = rule->quota_mode};
    match.by_clock =
        quota->kind == WEIR__BANNED || (quota->kind == WEIR__LIMITED && quota->limit.algorithm == WEIR_FIXED_WINDOW &&
                                        quota->limit.align == WEIR_ALIGN_CLOCK);
    query->matched(query->matched_context, index, &match);
}

static void report(const struct weir__request_ctx *ctx, const weir_descriptor_query *query)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval->replaced)
            *eval = (struct weir__rule_eval){
                .reason = WEIR_BY_NOTHING, .cost = eval->cost, .decision = {.limit = -1, .remaining = -1}};
        weir__eval_outcome(eval, &query->outcomes[i]);
        if (query->matched && eval->rule)
            report_matched(eval->rule, query, i);
    }
}

/* Acquires the ruleset, and makes an eval of each descriptor. Must be paired with weir__ctx_end unless it fails. */
static int begin(struct weir__request_ctx *ctx, weir *engine, const weir_descriptor_query *query)
{
    int error = weir__ctx_begin(ctx, engine, query->now);
    if (error)
        return error;
    ctx->dry_run = query->dry_run;
    ctx->charge_denied = query->charge_denied;
    ctx->async = query->async;
    ctx->count = query->descriptor_count;
    ctx->scratch->quotas_used = 0;
    for (size_t i = 0; i < query->descriptor_count && !error; i++)
        error = make_eval(ctx, query, i);
    if (error) {
        weir__ctx_end(ctx);
        return error;
    }
    replace(ctx->evals, ctx->count);
    if (ctx->ruleset->rules->load_aware)
        weir__overload_apply(ctx, NULL); /* limits of descriptors are not scaled */
    return 0;
}

static int query_fault(const weir *engine, const weir_descriptor_query *query)
{
    if (!engine || !query || !query->domain.len || !query->domain.data || !query->descriptor_count ||
        !query->descriptors || (query->async && query->async->engine != engine))
        return WEIR_EINVAL;
    if (query->descriptor_count > WEIR__MATCHES_MAX)
        return WEIR_ETOOMANY;
    if (query->now.mono_ns < 0 || query->now.wall_ns < 0)
        return WEIR_ETIME;
    return engine->segment->mapped.read_only && !query->dry_run ? WEIR_EREADONLY : 0;
}

int weir_check_descriptors(weir *engine, const weir_descriptor_query *query, weir_result *result)
{
    int error = result && query && query->outcomes ? query_fault(engine, query) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);
    struct weir__request_ctx ctx;
    error = begin(&ctx, engine, query);
    if (error)
        return error;
    const struct weir__rule_eval *by = weir__evaluate(&ctx);
    weir__request_result(&ctx, by, result);
    if (weir__denial_recorded(&ctx, result))
        weir__denial_record(&ctx, by, NULL);
    report(&ctx, query);
    result->outcomes = ctx.count;
    result->matched = 0;
    for (size_t i = 0; i < ctx.count; i++)
        result->matched += ctx.evals[i].reason != WEIR_BY_NOTHING;
    weir__ctx_end(&ctx);
    return 0;
}

int weir_check_descriptors_begin(weir *engine, const weir_descriptor_query *query)
{
    int error = query_fault(engine, query);
    if (error || !query->async)
        return error ? error : WEIR_EINVAL;
    if (!weir__ruleset_is_strict(engine))
        return 0;
    struct weir__request_ctx ctx;
    error = begin(&ctx, engine, query);
    if (error)
        return error;
    error = weir__strict_prepare(&ctx, query->async);
    weir__ctx_end(&ctx);
    return error;
}
