/* weir_check: from a request's attributes to an answer. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/fast_path.h"
#include "engine/cpu.h"
#include "engine/permits.h"
#include "engine/overload.h"
#include "engine/strict.h"

#define TIMED_ONE_IN 64

/* Everything a check needs, on its stack; what is large is touched only as far as it is used. */
struct work {
    size_t keys_used;
    struct weir__matching matching;
    uint32_t found[WEIR__MATCHES_MAX];
    struct weir__values values;
    weir_permits held; /* for a caller who does not give any back */
    struct weir__rule_eval evals[WEIR__MATCHES_MAX];
    struct weir__quota effective[WEIR__MATCHES_MAX]; /* see overload.h */
    char keys[WEIR__MATCHES_MAX * WEIR__KEY_MAX];
};

static bool on_network(const struct weir__access_list *list, struct weir__values *values)
{
    if (!list->networks)
        return false;
    const struct weir__address *client = weir__value_client(values);
    return client && weir__networks_contain(list->networks, client);
}

static bool allows(const struct weir__access_list *list, weir_text key)
{
    return (list->key_count || list->glob_count) && weir__list_has_key(list, key);
}

static bool blocks(const struct weir__access_list *list, weir_text key)
{
    return (list->key_count || list->glob_count) && weir__list_may_have_key(list, key);
}

/* Fills in the key. False: an attribute is missing. */
static bool fill_key(struct work *work, const struct weir__rule *rule, struct weir__rule_eval *eval)
{
    eval->key = WEIR__SHARED_KEY;
    eval->key_len = sizeof WEIR__SHARED_KEY - 1;
    if (!rule->key.piece_count)
        return true;
    char *to = work->keys + work->keys_used;
    int len =
        weir__template_fill(&rule->key, &work->values, rule->on_missing == WEIR__MISSING_SHARE, to, WEIR__KEY_MAX);
    if (len < 0)
        return false;
    eval->key = to;
    eval->key_len = (uint32_t)len;
    work->keys_used += (size_t)len;
    return true;
}

enum weir_reason weir__key_listed(const weir_rules *rules, const struct weir__rule *rule, weir_text key)
{
    if (blocks(&rule->block, key) || blocks(&rules->block, key))
        return WEIR_BY_BLOCK_LIST;
    return allows(&rule->allow, key) || allows(&rules->allow, key) ? WEIR_BY_ALLOW_LIST : WEIR_BY_LIMIT;
}

/*
 * The same of a key that stands for several, as cookies or arguments of one name differ: blocked if any of them may
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
        if (len > 0 && (blocks(own, key) || blocks(all, key)))
            return WEIR_BY_BLOCK_LIST;
    }
    return count > WEIR__KEYS_MAX ? WEIR_BY_BLOCK_LIST : WEIR_BY_LIMIT;
}

/* The same with the rule's networks; what is blocked in any way stays so. */
static enum weir_reason listed(const weir_rules *rules, const struct weir__rule *rule, struct weir__values *values,
                               weir_text key)
{
    size_t several = weir__template_keys(&rule->key, values);
    enum weir_reason reason = several ? any_listed(rules, rule, values, several) : weir__key_listed(rules, rule, key);
    if (reason == WEIR_BY_BLOCK_LIST || on_network(&rule->block, values))
        return WEIR_BY_BLOCK_LIST;
    return on_network(&rule->allow, values) ? WEIR_BY_ALLOW_LIST : reason;
}

static void make_hit(struct work *work, const weir_rules *rules, const struct weir__rule *rule, const weir_query *query,
                     struct weir__rule_eval *eval)
{
    bool plain = rules->gates[rule->index].plain;
    eval->rule = rule;
    eval->quota = NULL;
    eval->shadow = rule->shadow;
    eval->quota_mode = eval->replaced = eval->report = false;
    eval->strict = eval->skipped = eval->reserved = false;
    eval->held = 0;
    eval->error = eval->store_error = 0;
    eval->cost = query->has_cost ? query->cost
                 : plain         ? rule->cost.fallback
                                 : weir__rule_cost(rule, &work->values, &work->matching);
    if (!fill_key(work, rule, eval)) {
        eval->key_len = 0;
        eval->reason = WEIR_BY_MISSING_KEY;
        return;
    }
    eval->reason = plain ? WEIR_BY_LIMIT : listed(rules, rule, &work->values, (weir_text){eval->key, eval->key_len});
    if (eval->reason != WEIR_BY_LIMIT)
        return;
    eval->quota = plain ? rule->quotas : weir__rule_quota(rule, &work->values);
    if (!eval->quota) /* of no tier that the rule knows */
        eval->reason = WEIR_BY_MISSING_KEY;
    else
        eval->cost = weir__units_of(eval->quota, eval->cost);
}

/* Takes those out that get nothing back, as they took nothing. */
static void leave_out(const weir_rules *rules, const weir_query *query, struct weir__found *found)
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

/* `asked` has the rules that match, if that is known already. */
static int find_hits(struct work *work, const weir_rules *rules, const weir_query *query,
                     const struct weir__asked *asked, struct weir__request_ctx *ctx)
{
    struct weir__found found = {.rules = work->found, .max = WEIR__MATCHES_MAX, .count = asked->count};
    for (uint32_t i = 0; i < asked->count; i++)
        work->found[i] = asked->rules[i];
    if (!asked->count)
        weir__rules_match(rules, &work->values, &work->matching, &found);
    if (found.overflow)
        return WEIR_ETOOMANY;
    if (query->not_taken_count && query->has_cost && query->cost < 0)
        leave_out(rules, query, &found);
    for (size_t i = 0; i < found.count; i++)
        make_hit(work, rules, rules->rules[found.rules[i]], query, &work->evals[i]);
    ctx->count = found.count;
    if (rules->load_aware)
        weir__overload_apply(ctx, work->effective);
    return 0;
}

/* Copies a text to the caller's room, if there is any left for it. */
static weir_text tell_text(const weir_query *query, size_t *used, weir_text text)
{
    if (!query->text || !text.len || text.len > query->text_size - *used)
        return (weir_text){NULL, 0};
    char *to = query->text + *used;
    memcpy(to, text.data, text.len);
    *used += text.len;
    return (weir_text){to, text.len};
}

/* The lists of the whole set, which need no rule. */
static bool whole_list(const weir_rules *rules, struct weir__values *values, const weir_query *query, weir_time now,
                       weir_result *answer)
{
    bool block = on_network(&rules->block, values);
    if (!block && !on_network(&rules->allow, values))
        return false;
    *answer = (weir_result){.now = now, .priority = WEIR_NORMAL};
    answer->decided_by = (weir_outcome){.reason = block ? WEIR_BY_BLOCK_LIST : WEIR_BY_ALLOW_LIST,
                                        .decision = {.verdict = block ? WEIR_BLOCKED : WEIR_ALLOW,
                                                     .limit = -1,
                                                     .remaining = -1,
                                                     .retry_after_ns = block ? -1 : 0},
                                        .quota = -1,
                                        .effective_limit = -1};
    answer->decision = answer->decided_by.decision;
    answer->headers = rules->response.headers;
    if (block) {
        size_t used = 0;
        answer->status = rules->response.status;
        answer->body = rules->response.body;
        answer->message = tell_text(query, &used, rules->response.message);
        answer->body_text = tell_text(query, &used, rules->response.body_text);
    }
    return true;
}

static void tell_outcomes(const struct weir__request_ctx *ctx, const weir_query *query, weir_result *answer)
{
    for (size_t i = 0; i < ctx->count && answer->outcomes < query->outcomes_max; i++) {
        weir_outcome *to = &query->outcomes[answer->outcomes++];
        weir__eval_outcome(&ctx->evals[i], to);
    }
}

/* Copies what the rule says to the client: the set may be gone when the caller reads it. */
static void tell_texts(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, const weir_query *query,
                       weir_result *answer)
{
    size_t used = 0;
    if (!by->rule)
        return;
    if (answer->on_limit == WEIR_ON_LIMIT_QUEUE) {
        weir_deferral *deferral = &answer->deferral;
        deferral->tier = tell_text(query, &used, by->quota->tier);
        if (deferral->tier.len == by->quota->tier.len && query->text &&
            weir__others_write(ctx, by, query->text + used, query->text_size - used, &deferral->others)) {
            used += deferral->others.len;
            deferral->key = tell_text(query, &used, (weir_text){by->key, by->key_len});
        }
    }
    answer->message = tell_text(query, &used, by->rule->response.message);
    answer->body_text = tell_text(query, &used, by->rule->response.body_text);
}

static void tell(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, const weir_query *query,
                 weir_result *answer)
{
    weir__request_result(ctx, by, answer);
    tell_outcomes(ctx, query, answer);
    if (by && weir__eval_denies(by) && by->reason != WEIR_BY_SHED)
        tell_texts(ctx, by, query, answer);
}

/* A request that has found its set of rules. */
struct request {
    struct weir__asked asked;
    struct weir__regex_room *room;
    int hazard;
};

/* From the query to the rules that it evals. 1: a list of the whole set decided already, in `answer`. */
static int begin(struct work *work, const struct request *request, const weir_query *query,
                 struct weir__request_ctx *ctx, weir_result *answer)
{
    const weir_rules *rules = request->asked.ruleset->rules;
    weir__values_begin(&work->values, &rules->attributes, query);
    work->matching = (struct weir__matching){.room = request->room};
    work->keys_used = 0;
    *ctx = (struct weir__request_ctx){.engine = request->asked.engine,
                                      .ruleset = request->asked.ruleset,
                                      .now = request->asked.now,
                                      .dry_run = query->dry_run,
                                      .cpu = request->asked.cpu,
                                      .evals = work->evals,
                                      .held = query->permits ? query->permits : &work->held,
                                      .priority = WEIR_NORMAL,
                                      .ask = query->async};
    ctx->held->count = ctx->held->names_len = 0;
    return whole_list(rules, &work->values, query, request->asked.now, answer)
               ? 1
               : find_hits(work, rules, query, &request->asked, ctx);
}

static int check_with(const struct request *request, const weir_query *query, weir_result *answer,
                      struct weir__fast_result *fast)
{
    struct work work;
    struct weir__request_ctx ctx;
    int begun = begin(&work, request, query, &ctx, answer);
    if (begun == 0) {
        const struct weir__rule_eval *by = weir__evaluate(&ctx);
        if (!fast || !weir__fast_result_fill(&ctx, by, query, fast))
            tell(&ctx, by, query, answer);
    }
    if (work.matching.limited)
        weir__count(&request->asked.engine->regex_limited, work.matching.limited);
    return begun < 0 ? begun : 0;
}

/* The same without deciding: what the store is to be asked. */
static int prepare_with(const struct request *request, const weir_query *query)
{
    struct work work;
    struct weir__request_ctx ctx;
    weir_result unused;
    int begun = begin(&work, request, query, &ctx, &unused);
    return begun == 0 ? weir__strict_prepare(&ctx, query->async) : begun < 0 ? begun : 0;
}

/* Two more looks at the clock would cost as much as a decision, so only some checks are timed: by the clock's own dice.
 */
static bool is_timed(weir_time now)
{
    return now.mono_ns / 32 % TIMED_ONE_IN == 0;
}

static void note_time(const weir *engine, weir_time start)
{
    weir__times_add(&engine->segment->table, weir__cpu(), weir_clock(engine->segment).mono_ns - start.mono_ns);
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
    return engine->segment->read_only && !query->dry_run ? WEIR_EREADONLY : 0;
}

/* Pins the rules in force; to be unpinned. */
static inline struct request begin_request(weir *engine, const weir_query *query)
{
    bool given = query->now.mono_ns || query->now.wall_ns;
    struct request request;
    request.asked.engine = engine;
    request.asked.cpu = weir__cpu();
    request.asked.count = 0;
    request.room = NULL;
    request.asked.ruleset = weir__hazard_acquire_on(&engine->hazards, request.asked.cpu, &request.hazard);
    request.asked.now = given ? query->now : weir__clock_fast(engine->segment);
    /* Only sets with expressions: the rooms were made before the first of them was put in force. */
    if (request.hazard >= 0 && request.asked.ruleset->rules->has_regex)
        request.room = engine->room[request.hazard];
    return request;
}

__attribute__((hot)) static int check(weir *engine, const weir_query *query, weir_result *answer,
                                      struct weir__fast_result *fast)
{
    struct request request = begin_request(engine, query);
    int error = 0;
    if (!fast || !weir__evaluate_fast(&request.asked, query, fast))
        error = check_with(&request, query, answer, fast);
    weir__hazard_release(&engine->hazards, request.hazard);
    if (!query->now.mono_ns && !query->now.wall_ns && is_timed(request.asked.now) && !query->dry_run)
        note_time(engine, request.asked.now);
    return error;
}

int weir_check(weir *engine, const weir_query *query, weir_result *answer)
{
    int error = answer ? query_fault(engine, query) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);
    return check(engine, query, answer, NULL);
}

__attribute__((hot)) int weir__check_fast(weir *engine, const weir_query *query, weir_result *answer,
                                          struct weir__fast_result *fast)
{
    fast->told = false;
    /* Makes sense or not: what is counted besides would be written into memory that cannot be. */
    if (__builtin_expect(engine->segment->read_only, 0) && !query->dry_run)
        return WEIR_EREADONLY;
    return check(engine, query, answer, fast);
}

int weir_check_begin(weir *engine, const weir_query *query)
{
    int error = query_fault(engine, query);
    if (error || !query->async)
        return error ? error : WEIR_EINVAL;
    int at;
    bool strict = ((const struct weir__ruleset *)weir__hazard_acquire(&engine->hazards, &at))->strict;
    weir__hazard_release(&engine->hazards, at);
    if (!strict) /* most never ask, and need not look at the clock for it */
        return 0;
    struct request request = begin_request(engine, query);
    error = prepare_with(&request, query);
    weir__hazard_release(&engine->hazards, request.hazard);
    return error;
}
