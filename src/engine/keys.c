/* Operations on one key under one rule: its state, reset and block for an operator, and corrections of earlier takes.
 */
#include "engine/ledger.h"
#include "engine/strict.h"
#include "rules/key.h"

/* An operation on a key, under each rule that is named, in the segment, in the store or in both. */
struct job {
    int (*run)(struct job *job);
    weir *engine;
    weir_time now;
    weir_async *async; /* the replies of the store; NULL: nothing was sent */
    bool preparing;    /* only adds ops to `async` */
    const struct weir__ruleset *ruleset;

    /* State, reset and block. */
    const char *name; /* of the rule */
    const void *key_given;
    size_t key_given_len;
    int (*run_rule)(struct job *job, const struct weir__rule *rule);
    weir_text key; /* as rules count it */
    char key_text[WEIR__KEY_MAX];
    int64_t block_ns;
    bool done; /* some rule had a counter */
    weir_outcome outcome;

    /* Settling. */
    const weir_taken *taken;
    int64_t amount;
    weir_decision *decision;
};

/* Adds the ops of the job to job->async. 1: there are some; 0: none; or an error. */
static int prepare(struct job *job)
{
    if (!job->engine || !job->async || job->async->engine != job->engine)
        return WEIR_EINVAL;
    uint32_t before = job->async->request.op_count;
    job->preparing = true;
    int error = job->run(job);
    job->preparing = false;
    return error ? error : job->async->request.op_count > before;
}

/* Runs the job for a caller that waits; sends its ops if it has any and the engine has connections. */
static int run_waiting(struct job *job)
{
    int unused, error = 0;
    weir *engine = job->engine;
    struct weir__pooled_connection *pooled =
        engine && weir__load64(&engine->connection_pool) && weir__ruleset_is_strict(engine)
            ? weir__connection_pool_acquire(engine, &unused)
            : NULL;
    if (pooled) {
        job->async = pooled->async;
        error = prepare(job);
        if (error == 1)
            weir__connection_pool_request(pooled);
    }
    if (error >= 0)
        error = job->run(job);
    weir__connection_pool_release(pooled);
    return error;
}

/* The context of an op of this job. */
static struct weir__request_ctx context_of(const struct job *job)
{
    return (struct weir__request_ctx){.engine = job->engine, .ruleset = job->ruleset, .now = job->now};
}

static bool is_strict(const struct job *job, const struct weir__rule *rule)
{
    return job->ruleset->consistency[rule->index] == WEIR__STRICT;
}

/* ---- State, reset and block: rules by name ---- */

/* True for a key that was cut before: it must not be cut again. */
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
 * Runs the job for the rules of its name: one, or all limits of a rule whose author listed several. An enforced rule
 * comes before a shadow rule of the same name.
 */
static int run_rules(struct job *job)
{
    const weir_rules *rules = job->ruleset->rules;
    for (int pass = 0; pass < 4; pass++) {
        bool shadow = pass >= 2, by_base = pass % 2 == 1, found = false;
        for (size_t i = 0; i < rules->count; i++) {
            const struct weir__rule *rule = rules->rules[i];
            if (rule->shadow != shadow || !weir__text_is(by_base ? rule->base : rule->name, job->name))
                continue;
            found = true;
            int error = job->run_rule(job, rule);
            if (error)
                return error;
        }
        if (found)
            return 0;
    }
    return WEIR_ENORULE;
}

static int run_by_name(struct job *job)
{
    weir *engine = job->engine;
    if (!engine || !job->name || (!job->key_given && job->key_given_len))
        return WEIR_EINVAL;
    if (!job->key_given_len)
        return WEIR_EKEYEMPTY;
    if (!weir__time_valid(job->now))
        return WEIR_ETIME;
    if (!job->now.mono_ns && !job->now.wall_ns)
        job->now = weir_clock(engine->segment);
    job->key = weir__key_counted((weir_text){job->key_given, job->key_given_len}, job->key_text);
    weir__watch(engine);
    int at;
    job->ruleset = weir__hazard_acquire(&engine->hazards, &at);
    int error = run_rules(job);
    weir__hazard_release(&engine->hazards, at);
    return error;
}

static struct job job_for(int (*run_rule)(struct job *job, const struct weir__rule *rule), weir *engine,
                          const char *name, const void *key, size_t len, weir_time now, weir_async *async)
{
    return (struct job){.run = run_by_name,
                        .run_rule = run_rule,
                        .engine = engine,
                        .name = name,
                        .key_given = key,
                        .key_given_len = len,
                        .now = now,
                        .async = async};
}

/* ---- State ---- */

/* Combines the decisions for one unit and for none: the verdict of the former, the remaining units of the latter. */
static void join(const weir_decision *without, weir_decision *with)
{
    if (!weir_passes(with))
        return;
    with->remaining = without->remaining;
    with->reset_after_ns = without->reset_after_ns;
}

static int peek_here(const struct job *job, struct weir__rule_eval *eval)
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

/* Blocks are local to this host. Without a reply of the store, reports the host's own counter. */
static int peek_remote(const struct job *job, struct weir__rule_eval *eval)
{
    struct weir__request_ctx ctx = context_of(job);
    weir_decision decision[2];
    int error = peek_here(job, eval);
    if (error || eval->decision.verdict == WEIR_BLOCKED)
        return error;
    for (int cost = 1; cost >= 0 && !error && !eval->store_error; cost--) {
        eval->cost = cost;
        if (job->preparing)
            error = weir__strict_add(&ctx, job->async, eval, WEIR__OP_PEEK);
        else
            eval->store_error = weir__strict_reply(&ctx, job->async, eval, WEIR__OP_PEEK, &decision[cost]);
    }
    eval->cost = 0;
    if (error || job->preparing || eval->store_error)
        return error;
    join(&decision[0], &decision[1]);
    eval->decision = decision[1];
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
    int error = !eval.quota ? 0 : is_strict(job, rule) ? peek_remote(job, &eval) : peek_here(job, &eval);
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
    struct job job = job_for(report_state, engine, rule, key, len, now, NULL);
    int error = outcome ? run_waiting(&job) : WEIR_EINVAL;
    if (!error)
        *outcome = job.outcome;
    return error;
}

int weir_key_state_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(report_state, engine, rule, key, len, now, async);
    return prepare(&job);
}

int weir_key_state_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async,
                          weir_outcome *outcome)
{
    struct job job = job_for(report_state, engine, rule, key, len, now, async);
    int error = async && outcome ? run_by_name(&job) : WEIR_EINVAL;
    if (!error)
        *outcome = job.outcome;
    return error;
}

/* ---- Reset ---- */

/* Denials are cached by cost: removes those of the costs that the rule names, and of the first few. Others expire. */
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

/* Resets the counter; under an eventual rule, records the units as refunded, for all hosts. */
static int reset_counter(const struct job *job, const struct weir__rule *rule, const struct weir__quota *quota)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(job->ruleset, rule);
    weir_segment *segment = job->engine->segment;
    int64_t before = deltas ? weir__delta_ledger_before(segment, quota, job->key, job->now) : 0;
    int error = weir_reset(segment, &quota->limit, job->key.data, job->key.len, job->now);
    if (!error && deltas)
        weir__delta_ledger_record_refund(deltas, segment, rule, quota, job->key, INT64_MAX, before, quota->limit.hard);
    return error;
}

/* Resets all tiers: those of a sliding counter have counters of their own where their windows differ. */
static int reset_here(const struct job *job, const struct weir__rule *rule)
{
    int error = 0;
    for (size_t i = 0; i < rule->quota_count && !error; i++) {
        struct weir__quota room;
        const struct weir__quota *quota = weir__quota_effective(job->engine, rule, &rule->quotas[i], job->now, &room);
        if (quota->kind != WEIR__LIMITED)
            continue;
        error = reset_counter(job, rule, quota);
        if (!error && is_strict(job, rule))
            error = clear_negative_cache(job, rule, &quota->limit);
    }
    return error;
}

/* In the store all tiers share one counter. */
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
    struct job job = job_for(reset, engine, rule, key, len, now, NULL);
    return run_waiting(&job);
}

int weir_key_reset_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(reset, engine, rule, key, len, now, async);
    return prepare(&job);
}

int weir_key_reset_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(reset, engine, rule, key, len, now, async);
    return async ? run_by_name(&job) : WEIR_EINVAL;
}

/* ---- Block ---- */

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
    struct job job = job_for(block, engine, rule, key, len, now, NULL);
    job.block_ns = for_ns;
    int error = run_by_name(&job);
    return error ? error : job.done ? 0 : WEIR_ELIMIT;
}

/* ---- Settling: charging or refunding the difference to an earlier take ---- */

/* A changed limit keeps its counters. */
const struct weir__quota *weir__quota_taken(const struct weir__rule *rule, const weir_taken *taken)
{
    const struct weir__quota *first = NULL;
    for (size_t i = 0; i < rule->quota_count; i++) {
        const struct weir__quota *quota = &rule->quotas[i];
        if (quota->kind != WEIR__LIMITED)
            continue;
        if (taken->tier.len ? weir__text_equal(quota->tier, taken->tier)
                            : quota->units == taken->quota && quota->window_ns == taken->window_ns)
            return quota;
        first = first ? first : quota;
    }
    return first;
}

/* Settles in the segment, and records it for an eventual rule. */
static int settle_here(const struct job *job, const struct weir__rule *rule, const struct weir__quota *quota)
{
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(job->ruleset, rule);
    weir_segment *segment = job->engine->segment;
    weir_text key = {job->taken->key, job->taken->key_len};
    if (job->amount >= 0) {
        int error = weir_charge(segment, &quota->limit, key.data, key.len, job->amount, job->now, job->decision);
        if (!error && deltas)
            weir__delta_ledger_record(deltas, segment, rule, quota, key, job->amount);
        return error;
    }
    int64_t before = deltas ? weir__delta_ledger_before(segment, quota, key, job->now) : 0;
    int error = weir_refund(segment, &quota->limit, key.data, key.len, -job->amount, job->now, job->decision);
    if (!error && deltas)
        weir__delta_ledger_record_refund(deltas, segment, rule, quota, key, -job->amount, before,
                                         job->decision->remaining);
    return error;
}

static int settle_remote(const struct job *job, const struct weir__rule *rule, const struct weir__quota *quota)
{
    struct weir__request_ctx ctx = context_of(job);
    struct weir__rule_eval eval = {.rule = rule,
                                   .quota = quota,
                                   .key = job->taken->key,
                                   .key_len = (uint32_t)job->taken->key_len,
                                   .cost = job->amount};
    if (!job->taken->key || !job->taken->key_len || job->taken->key_len > WEIR__KEY_MAX)
        return WEIR_EINVAL;
    enum weir__store_op_kind kind = job->amount < 0 ? WEIR__OP_REFUND : WEIR__OP_CHARGE;
    if (job->preparing)
        return weir__strict_add(&ctx, job->async, &eval, kind);
    return weir__strict_reply(&ctx, job->async, &eval, kind, job->decision);
}

static int settle_rule(const struct job *job)
{
    const weir_rules *rules = job->ruleset->rules;
    const struct weir__rule *rule = NULL;
    for (size_t i = 0; i < rules->count && !rule; i++)
        if (rules->rules[i]->shadow == job->taken->shadow && weir__text_is(rules->rules[i]->name, job->taken->rule))
            rule = rules->rules[i];
    const struct weir__quota *quota = rule ? weir__quota_taken(rule, job->taken) : NULL;
    struct weir__quota room;
    if (!quota)
        return WEIR_ENORULE;
    quota = weir__quota_effective(job->engine, rule, quota, weir__clock_fast(job->engine->segment), &room);
    if (is_strict(job, rule))
        return settle_remote(job, rule, quota);
    return job->preparing ? 0 : settle_here(job, rule, quota);
}

static int settle(struct job *job)
{
    if (!job->engine || !job->taken || !job->taken->rule || !job->decision)
        return WEIR_EINVAL;
    if (job->amount > WEIR__USED_MAX || job->amount < -WEIR__USED_MAX)
        return WEIR_ECOST;
    int at;
    job->ruleset = weir__hazard_acquire(&job->engine->hazards, &at);
    int error = settle_rule(job);
    weir__hazard_release(&job->engine->hazards, at);
    return error;
}

int weir_key_settle(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_decision *decision)
{
    struct job job = {settle, engine, now, .taken = taken, .amount = amount, .decision = decision};
    return run_waiting(&job);
}

int weir_key_settle_begin(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async)
{
    weir_decision unused;
    struct job job = {settle, engine, now, async, .taken = taken, .amount = amount, .decision = &unused};
    return prepare(&job);
}

int weir_key_settle_finish(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async,
                           weir_decision *decision)
{
    struct job job = {settle, engine, now, async, .taken = taken, .amount = amount, .decision = decision};
    return async ? settle(&job) : WEIR_EINVAL;
}
