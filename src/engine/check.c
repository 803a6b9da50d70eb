/* weir_check: matches the rules of a request, evaluates it under all of them, and reports the result. */
#include "engine/denial_recorder.h"
#include "engine/fast_result.h"
#include "engine/permits.h"
#include "engine/response.h"

#include <stdlib.h>

#define TIMED_ONE_IN 64  /* checks whose duration is measured */
#define SHARED_KEY   "*" /* the counter of a rule without a key template */

static bool on_network(const struct weir__access_list *list, struct weir__values *values)
{
    if (!list->networks)
        return false;
    const struct weir__address *client = weir__value_client(values);
    return client && weir__networks_contain(list->networks, client);
}

/* The request's attributes, which are set up on first use: an address in a key does not need them. */
static inline struct weir__values *values_of(const struct weir__request_ctx *ctx, const weir_query *query)
{
    struct weir__scratch *scratch = ctx->scratch;
    if (!scratch->has_values)
        weir__values_begin(&scratch->values, &ctx->ruleset->rules->attributes, query);
    scratch->has_values = true;
    return &scratch->values;
}

/* True if two rules with WEIR__PLAN_ADDRESS have the same key for every request. */
static inline bool has_same_key(const struct weir__rule *a, const struct weir__rule *b)
{
    return weir__text_equal(a->key.pieces[0].literal, b->key.pieces[0].literal);
}

/* Fills in the key. False: an attribute is missing. */
static inline bool fill_key(const struct weir__request_ctx *ctx, const weir_query *query, unsigned plan_flags,
                            struct weir__rule_eval *eval)
{
    const struct weir__rule *rule = eval->rule;
    char *to = ctx->scratch->keys + ctx->scratch->keys_used;
    int len;
    static const char shared[WEIR__PLAN_TEXT_STEP] = SHARED_KEY; /* keys are copied in such steps */
    eval->key = shared;
    eval->key_len = sizeof SHARED_KEY - 1;
    if (!rule->key.piece_count)
        return true;
    if (plan_flags & WEIR__PLAN_ADDRESS && query->peer && query->peer_len == 4) {
        if (eval > ctx->evals && eval[-1].by_address && has_same_key(rule, eval[-1].rule)) {
            eval->key = eval[-1].key; /* one hash for both */
            eval->key_len = eval[-1].key_len;
            eval->by_address = true;
            return true;
        }
        len = (int)weir__template_dotted(&rule->key, query->peer, to);
        eval->by_address = true;
    } else {
        len = weir__template_fill(&rule->key, values_of(ctx, query), rule->on_missing == WEIR__MISSING_SHARE, to);
    }
    if (len < 0)
        return false;
    eval->key = to;
    eval->key_len = (uint32_t)len;
    ctx->scratch->keys_used += (size_t)len;
    return true;
}

enum weir_reason weir__key_listed(const weir_rules *rules, const struct weir__rule *rule, weir_text key)
{
    if (weir__list_has_key(&rule->block, key, false) || weir__list_has_key(&rules->block, key, false))
        return WEIR_BY_BLOCK_LIST;
    bool allowed = weir__list_has_key(&rule->allow, key, true) || weir__list_has_key(&rules->allow, key, true);
    return allowed ? WEIR_BY_ALLOW_LIST : WEIR_BY_LIMIT;
}

/*
 * Checks the lists for a key with several values, such as cookies or arguments of one name: blocked if any of them may
 * be, and never allowed.
 */
static __attribute__((noinline)) enum weir_reason any_listed(const weir_rules *rules, const struct weir__rule *rule,
                                                             struct weir__values *values, size_t count)
{
    const struct weir__access_list *own = &rule->block, *all = &rules->block;
    char text[WEIR__KEY_MAX];
    if (!own->key_count && !own->glob_count && !all->key_count && !all->glob_count)
        return WEIR_BY_LIMIT;
    for (size_t i = 0; i < count && count <= WEIR__KEYS_MAX; i++) {
        int len = weir__template_fill_one(&rule->key, values, rule->on_missing == WEIR__MISSING_SHARE, i, text);
        weir_text key = {text, len > 0 ? (size_t)len : 0};
        if (len > 0 && (weir__list_has_key(own, key, false) || weir__list_has_key(all, key, false)))
            return WEIR_BY_BLOCK_LIST;
    }
    return count > WEIR__KEYS_MAX ? WEIR_BY_BLOCK_LIST : WEIR_BY_LIMIT;
}

/* Checks all lists of the set and the rule, networks included; a block wins. */
static enum weir_reason listed(const weir_rules *rules, const struct weir__rule *rule, struct weir__values *values,
                               weir_text key)
{
    size_t several = weir__template_keys(&rule->key, values);
    enum weir_reason reason = several ? any_listed(rules, rule, values, several) : weir__key_listed(rules, rule, key);
    if (reason == WEIR_BY_BLOCK_LIST || on_network(&rule->block, values))
        return WEIR_BY_BLOCK_LIST;
    return on_network(&rule->allow, values) ? WEIR_BY_ALLOW_LIST : reason;
}

/* Fills in cost, lists and tier of an eval whose rule has no plan for them. */
static __attribute__((noinline)) void make_eval_slow(struct weir__request_ctx *ctx, const struct weir__rule_plan *plan,
                                                     const weir_query *query, bool has_key,
                                                     struct weir__rule_eval *eval)
{
    const struct weir__rule *rule = eval->rule;
    struct weir__values *values = values_of(ctx, query);
    eval->cost = query->has_cost ? query->cost : weir__rule_cost(rule, values, &ctx->scratch->matching);
    if (!has_key) {
        eval->key_len = 0;
        eval->reason = WEIR_BY_MISSING_KEY;
        ctx->fast = false;
        return;
    }
    if (!plan)
        eval->reason = listed(ctx->ruleset->rules, rule, values, (weir_text){eval->key, eval->key_len});
    if (eval->reason != WEIR_BY_LIMIT)
        return;
    eval->quota = plan ? rule->quotas : weir__rule_quota(rule, values);
    if (!eval->quota) /* the rule does not know the tier */
        eval->reason = WEIR_BY_MISSING_KEY;
    else
        eval->cost = weir__units_of(eval->quota, eval->cost);
}

/* Fills in the eval of a rule that matches: its key, its cost, lists, and tier. */
static inline void make_eval(struct weir__request_ctx *ctx, const struct weir__rule *rule,
                             const struct weir__rule_plan *plan, const weir_query *query, struct weir__rule_eval *eval)
{
    *eval = (struct weir__rule_eval){.rule = rule, .shadow = rule->shadow, .reason = WEIR_BY_LIMIT};
    __builtin_prefetch(rule->quotas);
    __builtin_prefetch(&rule->quotas->limit.inverse);
    bool has_key = fill_key(ctx, query, plan ? plan->flags : 0, eval);
    if (!has_key || !plan || query->has_cost) {
        make_eval_slow(ctx, plan, query, has_key, eval);
        return;
    }
    eval->quota = rule->quotas;
    eval->cost = plan->cost;
}

/* Removes the rules that are not refunded, as they took nothing. */
static void remove_not_taken(const weir_rules *rules, const weir_query *query, struct weir__found *found)
{
    size_t count = 0;
    for (size_t i = 0; i < found->count; i++) {
        size_t at = 0;
        while (at < query->not_taken_count && query->not_taken[at] != rules->rules[found->rules[i]]->id)
            at++;
        if (at == query->not_taken_count)
            found->rules[count++] = found->rules[i];
    }
    found->count = count;
}

/* Finds the rules that match: by one lookup of the path if they are few, then by their other conditions if any. */
static inline void find_rules(const struct weir__request_ctx *ctx, const weir_query *query, struct weir__found *found)
{
    const weir_rules *rules = ctx->ruleset->rules;
    bool open = true;
    if (rules->own_count && query->path.len <= WEIR__PATH_MAX)
        found->count = weir__paths_few(rules->paths, query->path, found->rules, WEIR__FAST_MAX);
    for (size_t i = 0; i < found->count; i++)
        open &= rules->gates[found->rules[i]].open;
    if (!found->count)
        weir__rules_match(rules, values_of(ctx, query), &ctx->scratch->matching, found);
    else if (!open)
        weir__rules_filter(rules, values_of(ctx, query), &ctx->scratch->matching, found);
}

/*
 * Prefetches what the evaluation of a rule reads: under 10,000 rules these are cache misses, which overlap in this way
 * with each other and with building the key.
 */
static inline void prefetch_rule(const struct weir__ruleset *ruleset, uint32_t index, unsigned cpu)
{
    const struct weir__rule *rule = ruleset->rules->rules[index];
    __builtin_prefetch(rule);
    __builtin_prefetch(&rule->response);
    __builtin_prefetch(ruleset->plan[index]);
    __builtin_prefetch(&ruleset->rule_stats[index]->shard[cpu % WEIR__RULE_STATS_SHARDS]);
}

/* Makes an eval of each rule that matches. */
__attribute__((hot)) static int match(struct weir__request_ctx *ctx, const weir_query *query)
{
    const struct weir__ruleset *ruleset = ctx->ruleset;
    struct weir__scratch *scratch = ctx->scratch;
    struct weir__found found = {.rules = scratch->found, .max = WEIR__MATCHES_MAX};
    find_rules(ctx, query, &found);
    if (found.overflow)
        return WEIR_ETOOMANY;
    if (query->not_taken_count && query->has_cost && query->cost < 0)
        remove_not_taken(ruleset->rules, query, &found);
    for (size_t i = 0; i < found.count; i++)
        prefetch_rule(ruleset, found.rules[i], ctx->cpu);
    ctx->fast = found.count - 1 < WEIR__FAST_MAX && !query->dry_run && !query->has_cost;
    for (size_t i = 0; i < found.count; i++) {
        const struct weir__rule_plan *plan = ruleset->plan[found.rules[i]];
        ctx->fast &= plan && plan->flags & WEIR__PLAN_FAST;
        make_eval(ctx, ruleset->rules->rules[found.rules[i]], plan, query, &ctx->evals[i]);
    }
    ctx->count = found.count;
    if (ruleset->rules->load_aware)
        weir__overload_apply(ctx, scratch->quotas);
    return 0;
}

/* Copies a text to the caller's buffer, if there is room for it. */
static weir_text report_text(const weir_query *query, size_t *used, weir_text text)
{
    if (!query->text || !text.len || text.len > query->text_size - *used)
        return (weir_text){NULL, 0};
    char *to = query->text + *used;
    memcpy(to, text.data, text.len);
    *used += text.len;
    return (weir_text){to, text.len};
}

/* Decides by the networks of the whole set, without a rule. False: they do not apply. */
static __attribute__((noinline)) bool decide_by_network(const weir_rules *rules, struct weir__values *values,
                                                        const weir_query *query, weir_time now, weir_result *result)
{
    bool block = on_network(&rules->block, values);
    if (!block && !on_network(&rules->allow, values))
        return false;
    *result = (weir_result){.now = now, .priority = WEIR_NORMAL};
    result->decided_by = (weir_outcome){.reason = block ? WEIR_BY_BLOCK_LIST : WEIR_BY_ALLOW_LIST,
                                        .decision = {.verdict = block ? WEIR_BLOCKED : WEIR_ALLOW,
                                                     .limit = -1,
                                                     .remaining = -1,
                                                     .retry_after_ns = block ? -1 : 0},
                                        .quota = -1,
                                        .effective_limit = -1};
    result->decision = result->decided_by.decision;
    result->headers = rules->response.headers;
    if (block) {
        size_t used = 0;
        result->status = rules->response.blocked.status;
        result->body = rules->response.body == WEIR_BODY_TEXT ? WEIR_BODY_AUTO : rules->response.body;
        result->message = report_text(query, &used, rules->response.blocked.message);
    }
    return true;
}

static void fill_outcomes(const struct weir__request_ctx *ctx, const weir_query *query, weir_result *result)
{
    for (size_t i = 0; i < ctx->count && result->outcomes < query->outcomes_max; i++)
        weir__eval_outcome(&ctx->evals[i], &query->outcomes[result->outcomes++]);
}

/* The message of the rule for a denial of this kind; empty: none. */
static weir_text message_of(const struct weir__response *response, const struct weir__rule_eval *by)
{
    switch (weir__denial_kind_of(by->reason, by->decision.verdict)) {
    case WEIR__DENIED_BY_LIMIT:
        return response->message;
    case WEIR__DENIED_BY_BLOCK:
        return by->reason == WEIR_BY_BAN && response->own_message ? response->message : response->blocked.message;
    case WEIR__DENIED_MISSING:
        return response->missing.message;
    default:
        return (weir_text){NULL, 0};
    }
}

/* Copies the rule's texts for the client: the ruleset may be freed before the caller reads them. */
static void report_texts(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, const weir_query *query,
                         weir_result *result)
{
    size_t used = 0;
    if (!by->rule)
        return;
    if (by->quota)
        result->tier = report_text(query, &used, by->quota->tier);
    if (result->on_limit == WEIR_ON_LIMIT_QUEUE && by->quota) {
        weir_deferral *deferral = &result->deferral;
        deferral->tier = result->tier;
        if (deferral->tier.len == by->quota->tier.len && query->text &&
            weir__others_write(ctx, by, query->text + used, query->text_size - used, &deferral->others)) {
            used += deferral->others.len;
            deferral->key = report_text(query, &used, (weir_text){by->key, by->key_len});
        }
    }
    result->message = report_text(query, &used, message_of(&by->rule->response, by));
    if (result->body == WEIR_BODY_TEXT)
        result->body_text = report_text(query, &used, by->rule->response.body_text);
}

static void report(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, const weir_query *query,
                   weir_result *result)
{
    weir__request_result(ctx, by, result);
    fill_outcomes(ctx, query, result);
    if (weir__denial_recorded(ctx, result))
        weir__denial_record(ctx, by, values_of(ctx, query));
    if (by && weir__eval_denies(by))
        report_texts(ctx, by, query, result);
}

/* Records a denial by the networks of the whole set. */
static __attribute__((noinline)) void record_network(const struct weir__request_ctx *ctx, const weir_query *query,
                                                     const weir_result *result)
{
    const struct weir__rule_eval eval = {
        .reason = WEIR_BY_BLOCK_LIST, .cost = query->has_cost ? query->cost : 1, .decision = result->decision};
    if (weir__denial_recorded(ctx, result))
        weir__denial_record(ctx, &eval, values_of(ctx, query));
}

/* The steps of a check are inlined: a call costs as much as a step. */
#define STEP __attribute__((always_inline)) static inline

STEP int acquire(struct weir__request_ctx *ctx, weir *engine, weir_time now)
{
    unsigned cpu = weir__cpu();
    int hazard;
    const struct weir__ruleset *ruleset = weir__hazard_acquire_on(&engine->hazards, cpu, &hazard);
    struct weir__scratch *scratch = hazard >= 0 ? &engine->scratch[hazard] : malloc(sizeof *scratch);
    if (!scratch) {
        weir__hazard_release(&engine->hazards, hazard);
        return WEIR_ENOMEM;
    }
    scratch->keys_used = 0;
    scratch->has_values = false;
    *ctx = (struct weir__request_ctx){.engine = engine,
                                      .ruleset = ruleset,
                                      .now = now.mono_ns || now.wall_ns ? now : weir__clock_fast(engine->segment),
                                      .cpu = cpu,
                                      .evals = scratch->evals,
                                      .priority = WEIR_NORMAL,
                                      .scratch = scratch,
                                      .hazard = hazard};
    return 0;
}

int weir__ctx_begin(struct weir__request_ctx *ctx, weir *engine, weir_time now)
{
    return acquire(ctx, engine, now);
}

void weir__ctx_end(const struct weir__request_ctx *ctx)
{
    if (ctx->hazard < 0)
        free(ctx->scratch);
    weir__hazard_release(&ctx->engine->hazards, ctx->hazard);
}

/* From the query to the rules that match. 1: a network list has decided already, in `result`. */
STEP int begin(struct weir__request_ctx *ctx, const weir_query *query, weir_result *result)
{
    struct weir__scratch *scratch = ctx->scratch;
    const weir_rules *rules = ctx->ruleset->rules;
    ctx->dry_run = query->dry_run;
    ctx->async = query->async;
    ctx->permits = query->permits ? query->permits : &scratch->permits;
    ctx->permits->count = ctx->permits->names_len = 0;
    /* Made before the first ruleset with expressions is published. */
    scratch->matching = (struct weir__matching){0};
    if (ctx->hazard >= 0 && rules->has_regex)
        scratch->matching.regex_scratch = ctx->engine->regex_scratch[ctx->hazard];
    if ((rules->block.networks || rules->allow.networks) &&
        decide_by_network(rules, values_of(ctx, query), query, ctx->now, result))
        return 1;
    return match(ctx, query);
}

/* Reading the clock twice more costs as much as a decision, so only a sample of the checks is timed. */
static bool is_timed(weir_time now)
{
    return now.mono_ns / 32 % TIMED_ONE_IN == 0;
}

static __attribute__((noinline)) void record_time(const weir *engine, weir_time start)
{
    weir__times_add(&engine->segment->table, weir__cpu(), weir_clock(engine->segment).mono_ns - start.mono_ns);
}

/* `error` of `begin`. Returns it, or 0. */
STEP int end(const struct weir__request_ctx *ctx, const weir_query *query, const weir_result *result, int error,
             bool decided)
{
    if (error == 1)
        record_network(ctx, query, result);
    if (decided && ctx->scratch->matching.limited)
        weir__count(&ctx->engine->regex_limited, ctx->scratch->matching.limited);
    weir__ctx_end(ctx);
    if (decided && !query->now.mono_ns && !query->now.wall_ns && is_timed(ctx->now) && !query->dry_run)
        record_time(ctx->engine, ctx->now);
    return error < 0 ? error : 0;
}

static int query_fault(const weir *engine, const weir_query *query)
{
    if (!engine || !query || (query->attribute_count && !query->attributes && !query->lookup) ||
        (query->outcomes_max && !query->outcomes) || (query->not_taken_count && !query->not_taken) ||
        (query->peer && query->peer_len != 4 && query->peer_len != 16) ||
        (query->async && query->async->engine != engine))
        return WEIR_EINVAL;
    if (query->has_cost && (query->cost > WEIR__USED_MAX || query->cost < -WEIR__USED_MAX))
        return WEIR_ECOST;
    if (query->now.mono_ns < 0 || query->now.wall_ns < 0)
        return WEIR_ETIME;
    return engine->segment->mapped.read_only && !query->dry_run ? WEIR_EREADONLY : 0;
}

__attribute__((hot)) static int check(weir *engine, const weir_query *query, weir_result *result,
                                      struct weir__fast_result *fast)
{
    struct weir__request_ctx ctx;
    int error = acquire(&ctx, engine, query->now);
    if (error)
        return error;
    error = begin(&ctx, query, result);
    if (error == 0) {
        const struct weir__rule_eval *by = weir__evaluate(&ctx);
        if (!fast || !weir__fast_result_fill(&ctx, by, query, fast))
            report(&ctx, by, query, result);
    }
    return end(&ctx, query, result, error, true);
}

int weir_check(weir *engine, const weir_query *query, weir_result *result)
{
    int error = result ? query_fault(engine, query) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);
    return check(engine, query, result, NULL);
}

__attribute__((hot)) int weir__check_fast(weir *engine, const weir_query *query, weir_result *result,
                                          struct weir__fast_result *fast)
{
    fast->filled = false;
    /* A read-only segment has no counters for statistics either. */
    if (__builtin_expect(engine->segment->mapped.read_only, 0) && !query->dry_run)
        return WEIR_EREADONLY;
    return check(engine, query, result, fast);
}

int weir__check_here(weir *engine, const weir_query *query, weir_result *result, struct weir__fast_result *fast)
{
    fast->filled = false;
    if (__builtin_expect(engine->segment->mapped.read_only, 0))
        return 0;
    struct weir__request_ctx ctx;
    int error = acquire(&ctx, engine, query->now);
    if (error)
        return error;
    const bool leased_only = ctx.ruleset->leased_only;
    if (ctx.ruleset->strict && !leased_only) {
        weir__ctx_end(&ctx);
        return 0;
    }
    bool here = true;
    error = begin(&ctx, query, result);
    if (error == 0) {
        const struct weir__rule_eval *by = leased_only ? weir__evaluate_fast(&ctx) : weir__evaluate(&ctx);
        here = by || !leased_only;
        if (here && !weir__fast_result_fill(&ctx, by, query, fast))
            report(&ctx, by, query, result);
    }
    error = end(&ctx, query, result, error, here);
    return error ? error : here;
}

int weir_check_begin(weir *engine, const weir_query *query)
{
    int error = query_fault(engine, query);
    if (error || !query->async)
        return error ? error : WEIR_EINVAL;
    if (!weir__ruleset_is_strict(engine)) /* before the clock is read: most are not */
        return 0;
    struct weir__request_ctx ctx;
    weir_result unused;
    error = weir__ctx_begin(&ctx, engine, query->now);
    if (error)
        return error;
    error = begin(&ctx, query, &unused);
    error = error == 0 ? weir__strict_prepare(&ctx, query->async) : error < 0 ? error : 0;
    weir__ctx_end(&ctx);
    return error;
}

/* The address of a request's client, for logs. */
int weir_client(weir *engine, const weir_query *query, uint8_t address[16])
{
    if (!engine || !query || !address || (query->attribute_count && !query->attributes && !query->lookup) ||
        (query->peer && query->peer_len != 4 && query->peer_len != 16))
        return WEIR_EINVAL;
    struct weir__request_ctx ctx;
    int len = weir__ctx_begin(&ctx, engine, query->now);
    if (len)
        return len;
    const struct weir__address *client = weir__value_client(values_of(&ctx, query));
    if (client) {
        len = weir__address_is4(client) ? 4 : 16;
        memcpy(address, client->bytes + sizeof client->bytes - (size_t)len, (size_t)len);
    }
    weir__ctx_end(&ctx);
    return len;
}
