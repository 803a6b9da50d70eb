/* One key under one rule, for an operator: what it has consumed, forgetting that, blocking it. */
#include "engine/ledger.h"
#include "engine/negative_cache.h"
#include "engine/connection_pool.h"
#include "engine/overload.h"
#include "engine/strict.h"
#include "rules/key.h"

/* What is to be done to a key under each rule that is meant. */
struct job {
    weir *engine;
    const struct weir__ruleset *ruleset;
    weir_time now;
    weir_text key; /* as rules count it */
    char key_text[WEIR__KEY_MAX];
    int64_t block_ns;
    weir_async *async; /* what the store said; NULL: nobody asked it */
    bool preparing;    /* nothing is done yet: only finds out what to ask */
    bool done;         /* there was a counter, or something to tell */
    weir_outcome outcome;
    int (*run)(struct job *job, const struct weir__rule *rule);
};

/* True for a key that was cut before: it is one already, and not to be cut again. */
static bool is_cut(weir_text key)
{
    if (key.len != WEIR__KEY_MAX || key.data[WEIR__KEY_KEPT] != '#')
        return false;
    for (size_t i = WEIR__KEY_KEPT + 1; i < WEIR__KEY_MAX; i++)
        if (!(key.data[i] >= '0' && key.data[i] <= '9') && !(key.data[i] >= 'a' && key.data[i] <= 'f'))
            return false;
    return true;
}

weir_text weir__key_counted(weir_text key, char text[WEIR__KEY_MAX])
{
    struct weir__key cut;
    if (is_cut(key))
        return key;
    weir__key_begin(&cut, text);
    weir__key_add(&cut, key);
    return (weir_text){text, (size_t)weir__key_end(&cut)};
}

/*
 * Runs the job for the rules that the name means: one, or all whose name begins with it because its author listed
 * several limits. An enforced rule comes before a shadow one of the same name.
 */
static int for_rules_named(struct job *job, const char *name)
{
    const weir_rules *rules = job->ruleset->rules;
    for (int pass = 0; pass < 4; pass++) {
        bool shadow = pass >= 2, by_base = pass % 2 == 1, found = false;
        for (size_t i = 0; i < rules->count; i++) {
            const struct weir__rule *rule = rules->rules[i];
            if (rule->shadow != shadow || !weir__text_is(by_base ? rule->base : rule->name, name))
                continue;
            found = true;
            int error = job->run(job, rule);
            if (error)
                return error;
        }
        if (found)
            return 0;
    }
    return WEIR_ENORULE;
}

static int run(weir *engine, const char *rule, const void *key, size_t len, weir_time now, struct job *job)
{
    if (!engine || !rule || (!key && len))
        return WEIR_EINVAL;
    if (!len)
        return WEIR_EKEYEMPTY;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    job->engine = engine;
    job->now = now.mono_ns || now.wall_ns ? now : weir_clock(engine->segment);
    job->key = weir__key_counted((weir_text){key, len}, job->key_text);
    weir__watch(engine);
    int at;
    job->ruleset = weir__hazard_acquire(&engine->hazards, &at);
    int error = for_rules_named(job, rule);
    weir__hazard_release(&engine->hazards, at);
    return error;
}

/* Only finds out what the store is to be asked. 1: something. */
static int prepare(weir *engine, const char *rule, const void *key, size_t len, weir_time now, struct job *job)
{
    if (!engine || !job->async || job->async->engine != engine)
        return WEIR_EINVAL;
    uint32_t before = job->async->request.op_count;
    job->preparing = true;
    int error = run(engine, rule, key, len, now, job);
    job->preparing = false;
    return error ? error : job->async->request.op_count > before;
}

/* All of it, for a caller who waits; the store is asked in between if the engine can, and a rule needs it. */
static int run_waiting(weir *engine, const char *rule, const void *key, size_t len, weir_time now, struct job *job)
{
    int unused, error = 0;
    struct weir__pooled_connection *pooled =
        engine && weir__needs_store_reply(engine) ? weir__connection_pool_acquire(engine, &unused) : NULL;
    if (pooled) {
        job->async = pooled->async;
        error = prepare(engine, rule, key, len, now, job);
        if (error == 1)
            weir__connection_pool_request(pooled);
    }
    if (error >= 0)
        error = run(engine, rule, key, len, now, job);
    if (pooled)
        weir__connection_pool_release(pooled);
    return error;
}

/* As a request under this rule alone would be, but for its cost. */
static struct weir__request_ctx context_of(const struct job *job)
{
    return (struct weir__request_ctx){.engine = job->engine, .ruleset = job->ruleset, .now = job->now};
}

static bool is_strict(const struct job *job, const struct weir__rule *rule)
{
    return job->ruleset->consistency[rule->index] == WEIR__STRICT;
}

/* ---- State ---- */

/* What one unit would meet; what remains is told as it is without it. */
static void join(const weir_decision *without, weir_decision *with)
{
    if (!weir_passes(with))
        return;
    with->remaining = without->remaining;
    with->reset_after_ns = without->reset_after_ns;
}

static int look_here(const struct job *job, struct weir__rule_eval *eval)
{
    const weir_segment *segment = job->engine->segment;
    const weir_limit *limit = &eval->quota->limit;
    weir_decision without;
    int error = weir_peek(segment, limit, eval->key, eval->key_len, 1, job->now, &eval->decision);
    if (!error)
        error = weir_peek(segment, limit, eval->key, eval->key_len, 0, job->now, &without);
    if (!error)
        join(&without, &eval->decision);
    return error;
}

/* A block is this host's own; the rest the store knows. Without its answer, what the host has counted alone. */
static int peek_remote(const struct job *job, struct weir__rule_eval *eval)
{
    struct weir__request_ctx ctx = context_of(job);
    weir_decision with, without;
    int error = look_here(job, eval);
    if (error || eval->decision.verdict == WEIR_BLOCKED)
        return error;
    eval->cost = 1;
    if (job->preparing)
        error = weir__strict_add(&ctx, job->async, eval, WEIR__OP_PEEK);
    else
        eval->store_error = weir__strict_reply(&ctx, job->async, eval, WEIR__OP_PEEK, &with);
    eval->cost = 0;
    if (job->preparing)
        return error ? error : weir__strict_add(&ctx, job->async, eval, WEIR__OP_PEEK);
    if (!eval->store_error)
        eval->store_error = weir__strict_reply(&ctx, job->async, eval, WEIR__OP_PEEK, &without);
    if (eval->store_error)
        return 0;
    join(&without, &with);
    eval->decision = with;
    return 0;
}

static bool is_tighter(const weir_decision *a, const weir_decision *b)
{
    if (weir_passes(a) != weir_passes(b))
        return !weir_passes(a);
    bool a_counts = a->limit >= 0, b_counts = b->limit >= 0;
    return a_counts == b_counts ? a->remaining < b->remaining : a_counts;
}

static int report_state(struct job *job, const struct weir__rule *rule)
{
    struct weir__rule_eval eval = {.rule = rule,
                                   .quota = rule->quota_count ? rule->quotas : NULL,
                                   .key = job->key.data,
                                   .key_len = (uint32_t)job->key.len,
                                   .shadow = rule->shadow,
                                   .reason = weir__key_listed(job->ruleset->rules, rule, job->key)};
    struct weir__quota room;
    weir_outcome outcome;
    if (eval.reason != WEIR_BY_LIMIT)
        eval.quota = NULL;
    weir__eval_settle(&eval);
    eval.quota = weir__quota_effective(job->engine, rule, eval.quota, job->now, &room);
    int error = !eval.quota ? 0 : is_strict(job, rule) ? peek_remote(job, &eval) : look_here(job, &eval);
    if (error || job->preparing)
        return error;
    weir__eval_outcome(&eval, &outcome);
    if (!job->done || is_tighter(&outcome.decision, &job->outcome.decision))
        job->outcome = outcome;
    job->done = true;
    return 0;
}

int weir_key_state(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_outcome *outcome)
{
    struct job job = {.run = report_state};
    int error = outcome ? run_waiting(engine, rule, key, len, now, &job) : WEIR_EINVAL;
    if (!error)
        *outcome = job.outcome;
    return error;
}

int weir_key_state_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = {.run = report_state, .async = async};
    return prepare(engine, rule, key, len, now, &job);
}

int weir_key_state_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async,
                          weir_outcome *outcome)
{
    struct job job = {.run = report_state, .async = async};
    int error = async && outcome ? run(engine, rule, key, len, now, &job) : WEIR_EINVAL;
    if (!error)
        *outcome = job.outcome;
    return error;
}

/* ---- Changing it ---- */

/* Denials are remembered by cost: all that the rule names, and the first few. Others end when they said they would. */
static int clear_negative_cache(const struct job *job, const struct weir__rule *rule, const weir_limit *limit)
{
    enum { FIRST = 16 };
    weir_request request = {limit, job->key.data, job->key.len, 0, 0, {0}};
    int64_t costs = FIRST + 1 + (int64_t)rule->cost.path_count;
    int error = 0;
    for (int64_t i = 0; i < costs && !error; i++) {
        request.cost = i < FIRST ? i + 1 : i == FIRST ? rule->cost.fallback : rule->cost.paths[i - FIRST - 1].cost;
        error = weir__negative_cache_remove(job->engine->segment, &job->engine->negative_cache, &request, job->now);
    }
    return error;
}

/* Forgets what was consumed; under an eventual rule that is given back to all hosts. */
static int reset_one(const struct job *job, const struct weir__rule *rule, const struct weir__quota *quota)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(job->ruleset, rule);
    weir_segment *segment = job->engine->segment;
    int64_t before = deltas ? weir__delta_ledger_before(segment, quota, job->key, job->now) : 0;
    int error = weir_reset(segment, &quota->limit, job->key.data, job->key.len, job->now);
    if (!error && deltas)
        weir__delta_ledger_record_refund(deltas, segment, rule, quota, job->key, INT64_MAX, before, quota->limit.hard);
    return error;
}

/* All tiers: those of a sliding counter have counters of their own where their windows differ. */
static int reset_here(const struct job *job, const struct weir__rule *rule)
{
    int error = 0;
    for (size_t i = 0; i < rule->quota_count && !error; i++) {
        struct weir__quota room;
        const struct weir__quota *quota = weir__quota_effective(job->engine, rule, &rule->quotas[i], job->now, &room);
        if (quota->kind != WEIR__LIMITED)
            continue;
        error = reset_one(job, rule, quota);
        if (!error && is_strict(job, rule))
            error = clear_negative_cache(job, rule, &quota->limit);
    }
    return error;
}

/* In the store one counter is that of all tiers. */
static int reset(struct job *job, const struct weir__rule *rule)
{
    struct weir__request_ctx ctx = context_of(job);
    struct weir__rule_eval eval = {.rule = rule, .key = job->key.data, .key_len = (uint32_t)job->key.len};
    weir_decision unused;
    for (size_t i = 0; i < rule->quota_count && !eval.quota && is_strict(job, rule); i++)
        if (rule->quotas[i].kind == WEIR__LIMITED)
            eval.quota = &rule->quotas[i];
    if (job->preparing)
        return eval.quota ? weir__strict_add(&ctx, job->async, &eval, WEIR__OP_RESET) : 0;
    int error = reset_here(job, rule);
    return error || !eval.quota ? error : weir__strict_reply(&ctx, job->async, &eval, WEIR__OP_RESET, &unused);
}

int weir_key_reset(weir *engine, const char *rule, const void *key, size_t len, weir_time now)
{
    struct job job = {.run = reset};
    return run_waiting(engine, rule, key, len, now, &job);
}

int weir_key_reset_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = {.run = reset, .async = async};
    return prepare(engine, rule, key, len, now, &job);
}

int weir_key_reset_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = {.run = reset, .async = async};
    return async ? run(engine, rule, key, len, now, &job) : WEIR_EINVAL;
}

static int block(struct job *job, const struct weir__rule *rule)
{
    int error = 0;
    for (size_t i = 0; i < rule->quota_count && !error; i++)
        if (rule->quotas[i].kind == WEIR__LIMITED) {
            error = weir_block(job->engine->segment, &rule->quotas[i].limit, job->key.data, job->key.len, job->block_ns,
                               job->now);
            job->done = true;
        }
    return error;
}

int weir_key_block(weir *engine, const char *rule, const void *key, size_t len, int64_t for_ns, weir_time now)
{
    struct job job = {.run = block, .block_ns = for_ns};
    int error = run(engine, rule, key, len, now, &job);
    return error ? error : job.done ? 0 : WEIR_ELIMIT;
}
