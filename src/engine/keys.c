/* Operations on one key under one rule: its state, reset and block for an operator, and corrections of earlier takes.
 */
#include "base/clock.h"
#include "engine/ledger.h"
#include "engine/leased.h"
#include "engine/strict.h"

/* An operation on a key, under each rule that is named, in the segment, in the store or in both. */
struct job {
    struct weir__request_ctx ctx; /* engine, now, async (the replies of the store; NULL: nothing was sent), ruleset */
    int (*run_rule)(struct job *job, const struct weir__rule *rule);
    bool preparing; /* only adds ops to ctx.async */
    bool done;      /* some rule had a counter */

    /* State, reset and block. */
    const char *name; /* of the rule */
    weir_text key;    /* as it was given, then as rules count it */
    int64_t block_ns;
    bool here;            /* of a command of another host: in this host's segment alone */
    weir_outcome outcome; /* out: the tightest state */

    /* Settling. */
    const weir_taken *taken;
    int64_t amount;
    weir_decision *decision; /* out */
};

/* ---- Rules by name ---- */

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
static int run_named(struct job *job)
{
    const weir_rules *rules = job->ctx.ruleset->rules;
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

static int fault(const struct job *job)
{
    if (job->taken) {
        bool fits = job->amount <= WEIR__USED_MAX && job->amount >= -WEIR__USED_MAX;
        return !job->ctx.engine || !job->taken->rule ? WEIR_EINVAL : fits ? 0 : WEIR_ECOST;
    }
    if (!job->ctx.engine || !job->name || (!job->key.data && job->key.len))
        return WEIR_EINVAL;
    return !job->key.len ? WEIR_EKEYEMPTY : weir__time_valid(job->ctx.now) ? 0 : WEIR_ETIME;
}

static int run(struct job *job)
{
    weir *engine = job->ctx.engine;
    const weir_text given = job->key;
    char text[WEIR__KEY_MAX];
    int at, error = fault(job);
    if (error)
        return error;
    if (!job->taken) {
        if (!job->ctx.now.mono_ns && !job->ctx.now.wall_ns)
            job->ctx.now = weir_clock(engine->segment);
        job->key = weir__key_counted(given, text);
        weir__watch(engine);
    }
    job->ctx.ruleset = weir__hazard_acquire(&engine->hazards, &at);
    if (job->taken) {
        const struct weir__rule *rule = weir__rule_named(job->ctx.ruleset->rules, job->taken->rule, job->taken->shadow);
        error = rule ? job->run_rule(job, rule) : WEIR_ENORULE;
    } else {
        error = run_named(job);
    }
    weir__hazard_release(&engine->hazards, at);
    job->key = given;
    return error;
}

/* Adds the ops of the job to its async. 1: there are some; 0: none; or an error. */
static int begin(struct job *job)
{
    const weir_async *async = job->ctx.async;
    if (!job->ctx.engine || !async || async->engine != job->ctx.engine)
        return WEIR_EINVAL;
    uint32_t before = async->request.op_count;
    job->preparing = true;
    int error = run(job);
    job->preparing = false;
    return error ? error : async->request.op_count > before;
}

/* Without an async, sends the job's ops if it has any and the engine has connections, and waits. */
static int finish(struct job *job)
{
    int unused, error = 0;
    weir *engine = job->ctx.engine;
    if (job->ctx.async)
        return run(job);
    struct weir__pooled_connection *pooled =
        engine && weir__load64(&engine->connection_pool) && weir__ruleset_is_strict(engine)
            ? weir__connection_pool_acquire(engine, &unused)
            : NULL;
    if (pooled) {
        job->ctx.async = pooled->async;
        error = begin(job);
        if (error == 1)
            weir__connection_pool_request(pooled);
    }
    if (error >= 0)
        error = run(job);
    weir__connection_pool_release(pooled);
    return error;
}

static bool is_strict(const struct job *job, const struct weir__rule *rule)
{
    uint8_t consistency = job->ctx.ruleset->consistency[rule->index];
    return consistency == WEIR__STRICT || consistency == WEIR__LEASED;
}

/* Adds the op of an eval, or reads its reply. */
static int exchange(const struct job *job, const struct weir__rule_eval *eval, enum weir__store_op_kind kind,
                    weir_decision *decision)
{
    return job->preparing ? weir__strict_add(&job->ctx, job->ctx.async, eval, kind)
                          : weir__strict_reply(&job->ctx, job->ctx.async, eval, kind, decision);
}

/* ---- State ---- */

/*
 * Peeks in the segment or in the store, for one unit and for none: the verdict is that of the former, what remains that
 * of the latter.
 */
static int peek(const struct job *job, struct weir__rule_eval *eval, bool remote)
{
    weir_decision decision[2];
    int error = 0;
    for (eval->cost = 1; eval->cost >= 0 && !error; eval->cost--)
        error = remote ? exchange(job, eval, WEIR__OP_PEEK, &decision[eval->cost])
                       : weir__eval_operate(&job->ctx, eval, WEIR__PEEK, &decision[eval->cost]);
    eval->cost = 0;
    if (error || (remote && job->preparing))
        return error;
    eval->decision = decision[1];
    if (weir_passes(&decision[1])) {
        eval->decision.remaining = decision[0].remaining;
        eval->decision.reset_after_ns = decision[0].reset_after_ns;
    }
    return 0;
}

/* Blocks are in this host's segment. Without a reply of the store, reports the host's own counter. */
static int peek_strict(const struct job *job, struct weir__rule_eval *eval)
{
    int error = peek(job, eval, false);
    if (error || eval->decision.verdict == WEIR_BLOCKED)
        return error;
    error = peek(job, eval, true);
    if (job->preparing)
        return error;
    eval->store_error = error;
    return 0;
}

static bool is_tighter(const weir_decision *a, const weir_decision *b)
{
    if (weir_passes(a) != weir_passes(b))
        return !weir_passes(a);
    bool a_counts = a->limit >= 0, b_counts = b->limit >= 0;
    return a_counts == b_counts ? weir__smaller_share(a, b) : a_counts;
}

static int report_state(struct job *job, const struct weir__rule *rule)
{
    struct weir__rule_eval eval = {.rule = rule,
                                   .quota = rule->quota_count ? rule->quotas : NULL,
                                   .key = job->key.data,
                                   .key_len = (uint32_t)job->key.len,
                                   .shadow = rule->shadow,
                                   .reason = weir__key_listed(job->ctx.ruleset->rules, rule, job->key)};
    struct weir__quota scaled;
    weir_outcome outcome;
    (void)weir__rule_quota_of_key(job->ctx.ruleset->rules, rule, job->key, &eval.quota);
    if (eval.reason != WEIR_BY_LIMIT)
        eval.quota = NULL;
    weir__eval_settle(&eval);
    eval.quota = weir__quota_effective(job->ctx.engine, rule, eval.quota, job->ctx.now, &scaled);
    int error = !eval.quota ? 0 : is_strict(job, rule) ? peek_strict(job, &eval) : peek(job, &eval, false);
    if (error || job->preparing)
        return error;
    weir__eval_outcome(&eval, &outcome);
    if (!job->done || is_tighter(&outcome.decision, &job->outcome.decision))
        job->outcome = outcome;
    job->done = true;
    return 0;
}

/* ---- Reset ---- */

/* Denials are cached by cost: removes those of the costs that the rule names, and of the first few. Others expire. */
static int clear_negative_cache(const struct job *job, struct weir__rule_eval eval)
{
    enum { FIRST = 16 };
    const struct weir__cost *cost = &eval.rule->cost;
    int error = 0;
    for (size_t i = 0; i < FIRST + 1 + cost->path_count && !error; i++) {
        eval.cost = i < FIRST ? (int64_t)i + 1 : i == FIRST ? cost->fallback : cost->paths[i - FIRST - 1].cost;
        error = weir__negative_cache_remove(&job->ctx, &eval);
    }
    return error;
}

/*
 * Resets all tiers: those of a sliding counter have counters of their own where their windows differ. In the store they
 * share one counter. Under an eventual rule the units are recorded as refunded, for all hosts.
 */
static int reset(struct job *job, const struct weir__rule *rule)
{
    struct weir__rule_eval eval = {.rule = rule, .key = job->key.data, .key_len = (uint32_t)job->key.len};
    const struct weir__quota *first = NULL;
    weir_decision unused;
    int error = 0;
    for (size_t i = 0; i < rule->quota_count && !error; i++) {
        struct weir__quota scaled;
        if (rule->quotas[i].kind != WEIR__LIMITED)
            continue;
        first = first ? first : &rule->quotas[i];
        if (job->preparing)
            break;
        eval.quota = weir__quota_effective(job->ctx.engine, rule, &rule->quotas[i], job->ctx.now, &scaled);
        error = job->here
                    ? weir_reset(job->ctx.engine->segment, &eval.quota->limit, eval.key, eval.key_len, job->ctx.now)
                    : weir__eval_operate(&job->ctx, &eval, WEIR__RESET, &unused);
        if (!error && is_strict(job, rule))
            error = clear_negative_cache(job, eval);
        if (!error && job->ctx.ruleset->consistency[rule->index] == WEIR__LEASED)
            error = weir__lease_reset(&job->ctx, &eval);
    }
    eval.quota = first;
    return error || !first || job->here || !is_strict(job, rule) ? error
                                                                 : exchange(job, &eval, WEIR__OP_RESET, &unused);
}

/* ---- Block ---- */

static int block(struct job *job, const struct weir__rule *rule)
{
    int error = 0;
    for (size_t i = 0; i < rule->quota_count && !error; i++)
        if (rule->quotas[i].kind == WEIR__LIMITED) {
            error = weir_block(job->ctx.engine->segment, &rule->quotas[i].limit, job->key.data, job->key.len,
                               job->block_ns, job->ctx.now);
            job->done = true;
        }
    return error;
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

static int settle(struct job *job, const struct weir__rule *rule)
{
    const weir_taken *taken = job->taken;
    const weir *engine = job->ctx.engine;
    const struct weir__quota *quota = weir__quota_taken(rule, taken);
    struct weir__quota scaled;
    if (!quota)
        return WEIR_ENORULE;
    struct weir__rule_eval eval = {
        .rule = rule,
        .quota = weir__quota_effective(engine, rule, quota, weir__clock_fast(engine->segment), &scaled),
        .key = taken->key,
        .key_len = (uint32_t)taken->key_len,
        .cost = job->amount};
    if (!is_strict(job, rule) && taken->key_len > WEIR__KEY_BYTES_MAX)
        return WEIR_EKEYLONG;
    if (!is_strict(job, rule))
        return job->preparing ? 0 : weir__eval_operate(&job->ctx, &eval, WEIR__SETTLE, job->decision);
    if (!taken->key || !taken->key_len || taken->key_len > WEIR__KEY_MAX)
        return WEIR_EINVAL;
    return exchange(job, &eval, job->amount < 0 ? WEIR__OP_REFUND : WEIR__OP_CHARGE, job->decision);
}

/* ---- The public calls: waiting for the store, or in two steps ---- */

static struct job job_for(int (*run_rule)(struct job *job, const struct weir__rule *rule), weir *engine,
                          const char *name, const void *key, size_t len, weir_time now, weir_async *async)
{
    return (struct job){
        .ctx = {.engine = engine, .now = now, .async = async}, .run_rule = run_rule, .name = name, .key = {key, len}};
}

int weir_key_state(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_outcome *outcome)
{
    return weir_key_state_finish(engine, rule, key, len, now, NULL, outcome);
}

int weir_key_state_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(report_state, engine, rule, key, len, now, async);
    return begin(&job);
}

int weir_key_state_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async,
                          weir_outcome *outcome)
{
    struct job job = job_for(report_state, engine, rule, key, len, now, async);
    int error = outcome ? finish(&job) : WEIR_EINVAL;
    if (!error)
        *outcome = job.outcome;
    return error;
}

/* ---- To all hosts ---- */

static uint16_t copy(char *to, size_t max, weir_text text)
{
    size_t len = text.len < max ? text.len : max;
    memcpy(to, text.data ? text.data : "", len);
    return (uint16_t)len;
}

/* True if commands are sent to other hosts. */
static bool is_shared(const weir *engine)
{
    return engine->key_commands.rows && !engine->store->hash_keys;
}

/* Queues a command that was applied here for all hosts. Returns its ticket; 0: it stays on this host. */
static uint64_t send_to_all(weir *engine, const char *rule, weir_text key, enum weir__key_action action, int64_t for_ns,
                            const struct weir__key_author *author)
{
    struct weir__key_command command = {
        .action = (uint8_t)action, .made_ns = weir_clock(engine->segment).mono_ns, .for_ns = for_ns};
    char text[WEIR__KEY_MAX];
    uint64_t ticket = 0;
    if (!is_shared(engine))
        return 0;
    command.rule_len = copy(command.rule, WEIR_NAME_MAX, weir__text_of(rule));
    command.key_len = copy(command.key, sizeof command.key, weir__key_counted(key, text));
    command.by_len = copy(command.by, WEIR__KEY_BY_MAX, author->by);
    command.reason_len = copy(command.reason, WEIR__KEY_REASON_MAX, author->reason);
    return weir__key_commands_add(&engine->key_commands, &command, &ticket) == 0 ? ticket : 0;
}

int weir__key_reset_by(weir *engine, const char *rule, weir_text key, const struct weir__key_author *author,
                       uint64_t *ticket)
{
    struct job job = job_for(reset, engine, rule, key.data, key.len, (weir_time){0, 0}, NULL);
    int error = finish(&job);
    *ticket = error ? 0 : send_to_all(engine, rule, key, WEIR__KEY_RESET, 0, author);
    return error;
}

static int block_here(weir *engine, const char *rule, weir_text key, int64_t for_ns, weir_time now)
{
    struct job job = job_for(block, engine, rule, key.data, key.len, now, NULL);
    job.block_ns = for_ns;
    int error = run(&job);
    return error ? error : job.done ? 0 : WEIR_ELIMIT;
}

/* In the segment first: the agent applies the order of the store afterwards, so that this host agrees with the others.
 */
int weir__key_block_by(weir *engine, const char *rule, weir_text key, int64_t for_ns,
                       const struct weir__key_author *author, uint64_t *ticket)
{
    int error = block_here(engine, rule, key, for_ns, (weir_time){0, 0});
    *ticket = error ? 0 : send_to_all(engine, rule, key, for_ns ? WEIR__KEY_BLOCK : WEIR__KEY_UNBLOCK, for_ns, author);
    return error;
}

int weir__key_apply(weir *engine, const char *rule, weir_text key, enum weir__key_action action, int64_t for_ns)
{
    struct job job = job_for(reset, engine, rule, key.data, key.len, (weir_time){0, 0}, NULL);
    job.here = true;
    return action == WEIR__KEY_RESET
               ? run(&job)
               : block_here(engine, rule, key, action == WEIR__KEY_BLOCK ? for_ns : 0, job.ctx.now);
}

enum weir_reach weir_key_reach(weir *engine)
{
    const struct weir__key_commands *queue = &engine->key_commands;
    if (!is_shared(engine))
        return WEIR_THIS_HOST;
    uint64_t now = weir__coarse_ms(), beat = weir__load64(&queue->header->agent_ms);
    bool alive = beat && now <= beat + WEIR__DELTA_LEDGER_SILENT_MS && beat <= now + WEIR__DELTA_LEDGER_SILENT_MS;
    return alive && !weir__load64(&queue->header->error) ? WEIR_ALL_HOSTS : WEIR_ALL_HOSTS_LATER;
}

int weir__key_store_error(weir *engine)
{
    return is_shared(engine) ? -(int)(weir__load64(&engine->key_commands.header->error) & 0xffff) : 0;
}

/* Why the agent has not sent a command yet: the store's last error, or no agent runs, or the store is slow. */
static int store_error(weir *engine)
{
    int last = weir__key_store_error(engine);
    return last ? last : weir_key_reach(engine) == WEIR_ALL_HOSTS ? WEIR_ESTORESLOW : WEIR_EAGENT;
}

enum weir_reach weir__key_reach(weir *engine, uint64_t ticket, int64_t wait_ms, int *error)
{
    enum { STEP_MS = 5 };
    const struct weir__key_commands *queue = &engine->key_commands;
    *error = 0;
    if (!ticket) {
        int full = is_shared(engine) ? store_error(engine) : WEIR_EAGENT;
        *error = !engine->store ? 0 : engine->store->hash_keys ? WEIR_EHASHKEYS : full;
        return WEIR_THIS_HOST;
    }
    for (int64_t waited = 0; !weir__key_commands_done(queue, ticket, error); waited += STEP_MS) {
        if (waited >= wait_ms) {
            *error = store_error(engine);
            return WEIR_ALL_HOSTS_LATER;
        }
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    return *error ? WEIR_THIS_HOST : WEIR_ALL_HOSTS;
}

int weir_key_reset(weir *engine, const char *rule, const void *key, size_t len, weir_time now)
{
    return weir_key_reset_finish(engine, rule, key, len, now, NULL);
}

int weir_key_reset_begin(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(reset, engine, rule, key, len, now, async);
    return begin(&job);
}

int weir_key_reset_finish(weir *engine, const char *rule, const void *key, size_t len, weir_time now, weir_async *async)
{
    struct job job = job_for(reset, engine, rule, key, len, now, async);
    int error = finish(&job);
    if (error)
        return error;
    return !send_to_all(engine, rule, (weir_text){key, len}, WEIR__KEY_RESET, 0, &(struct weir__key_author){0}) &&
           is_shared(engine);
}

int weir_key_block(weir *engine, const char *rule, const void *key, size_t len, int64_t for_ns, weir_time now)
{
    int error = block_here(engine, rule, (weir_text){key, len}, for_ns, now);
    if (error)
        return error;
    return !send_to_all(engine, rule, (weir_text){key, len}, for_ns ? WEIR__KEY_BLOCK : WEIR__KEY_UNBLOCK, for_ns,
                        &(struct weir__key_author){0}) &&
           is_shared(engine);
}

static struct job settling(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async,
                           weir_decision *decision)
{
    return (struct job){.ctx = {.engine = engine, .now = now, .async = async},
                        .run_rule = settle,
                        .taken = taken,
                        .amount = amount,
                        .decision = decision};
}

int weir_key_settle(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_decision *decision)
{
    return weir_key_settle_finish(engine, taken, amount, now, NULL, decision);
}

int weir_key_settle_begin(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async)
{
    struct job job = settling(engine, taken, amount, now, async, NULL);
    return taken ? begin(&job) : WEIR_EINVAL;
}

int weir_key_settle_finish(weir *engine, const weir_taken *taken, int64_t amount, weir_time now, weir_async *async,
                           weir_decision *decision)
{
    struct job job = settling(engine, taken, amount, now, async, decision);
    return taken && decision ? finish(&job) : WEIR_EINVAL;
}
