/* weir_check_descriptors: the descriptor dialect's way to a decision. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/cpu.h"
#include "engine/overload.h"
#include "engine/strict.h"
#include "rules/descriptors.h"

#define OWN_LIMITS_MAX 64 /* limits that a request brings itself */

struct work {
    struct weir__hit hits[WEIR__HITS_MAX];
    char keys[WEIR__HITS_MAX * WEIR__KEY_MAX];
    size_t keys_used;
    struct weir__quota own[OWN_LIMITS_MAX];
    size_t own_count;
};

/* Counters of requests' own limits are apart from those of rules, and by window: another window, another count. */
static uint64_t own_id(int64_t window_ns)
{
    return weir__rule_id(WEIR__TEXT("a limit of the request's own"), false) ^ (uint64_t)window_ns;
}

static int own_limit(struct work *work, weir_text domain, const weir_descriptor *descriptor, struct weir__hit *hit)
{
    if (work->own_count == OWN_LIMITS_MAX)
        return WEIR_ETOOMANY;
    struct weir__quota *quota = &work->own[work->own_count];
    weir_params params = {.algorithm = WEIR_FIXED_WINDOW,
                          .limit = descriptor->own_limit,
                          .window_ns = descriptor->own_window_ns,
                          .id = own_id(descriptor->own_window_ns)};
    *quota = (struct weir__quota){.kind = descriptor->own_limit ? WEIR__LIMITED : WEIR__BANNED,
                                  .units = descriptor->own_limit,
                                  .window_ns = descriptor->own_window_ns};
    int error = quota->kind == WEIR__LIMITED ? weir_limit_init(&quota->limit, &params) : 0;
    if (error)
        return error;
    work->own_count++;
    hit->key = work->keys + work->keys_used;
    hit->key_len = (uint32_t)weir__descriptor_key(domain, descriptor, work->keys + work->keys_used, WEIR__KEY_MAX);
    work->keys_used += hit->key_len;
    hit->quota = quota;
    hit->reason = WEIR_BY_LIMIT;
    return 0;
}

static int make_hit(struct work *work, const weir_rules *rules, const weir_descriptor_query *query, size_t i)
{
    const weir_descriptor *descriptor = &query->descriptors[i];
    struct weir__hit *hit = &work->hits[i];
    int64_t usual = query->hits ? query->hits : 1;
    if (descriptor->entry_count && !descriptor->entries)
        return WEIR_EINVAL;
    if (descriptor->own_window_ns < 0)
        return WEIR_EWINDOW;
    *hit = (struct weir__hit){.reason = WEIR_BY_NOTHING,
                              .cost = descriptor->has_hits ? descriptor->hits : usual,
                              .report = descriptor->has_hits || usual > 1};
    if (hit->cost > WEIR__USED_MAX || hit->cost < -WEIR__USED_MAX)
        return WEIR_ECOST;
    if (descriptor->own_window_ns)
        return weir__domain_known(rules, query->domain) ? own_limit(work, query->domain, descriptor, hit) : 0;

    struct weir__descriptor_hit found;
    char *key = work->keys + work->keys_used;
    weir__descriptor_find(rules, query->domain, descriptor, key, WEIR__KEY_MAX, &found);
    if (!found.rule)
        return 0;
    hit->rule = found.rule;
    hit->quota = found.quota;
    hit->reason = WEIR_BY_LIMIT;
    hit->shadow = found.rule->shadow;
    hit->quota_mode = found.rule->quota_mode && found.quota->kind != WEIR__UNLIMITED;
    hit->key = key;
    hit->key_len = (uint32_t)found.key_len;
    work->keys_used += hit->key_len;
    return 0;
}

static bool named_in(const struct weir__rule *rule, weir_text name)
{
    for (size_t i = 0; i < rule->replaces_count; i++)
        if (weir__text_equal(rule->replaces[i], name))
            return true;
    return false;
}

/* A rule that another one of the request replaces is as if it had not matched. Unlimited ones cannot be. */
static void replace(struct weir__hit *hits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct weir__rule *rule = hits[i].rule;
        if (!rule || !rule->limit_name.len || hits[i].quota->kind == WEIR__UNLIMITED)
            continue;
        for (size_t by = 0; by < count && !hits[i].replaced; by++)
            hits[i].replaced = hits[by].rule && named_in(hits[by].rule, rule->limit_name);
    }
}

static void tell_matched(const struct weir__rule *rule, const weir_descriptor_query *query, size_t index)
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

static void tell(const struct weir__trial *trial, const weir_descriptor_query *query)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (hit->replaced)
            *hit = (struct weir__hit){
                .reason = WEIR_BY_NOTHING, .cost = hit->cost, .decision = {.limit = -1, .remaining = -1}};
        weir__hit_tell(hit, &query->outcomes[i]);
        if (query->matched && hit->rule)
            tell_matched(hit->rule, query, i);
    }
}

static int begin(struct work *work, weir *engine, const struct weir__loaded *loaded, const weir_descriptor_query *query,
                 struct weir__trial *trial)
{
    bool given = query->now.mono_ns || query->now.wall_ns;
    work->keys_used = work->own_count = 0;
    for (size_t i = 0; i < query->descriptor_count; i++) {
        int error = make_hit(work, loaded->rules, query, i);
        if (error)
            return error;
    }
    replace(work->hits, query->descriptor_count);
    *trial = (struct weir__trial){.engine = engine,
                                  .loaded = loaded,
                                  .now = given ? query->now : weir__clock_quick(engine->segment),
                                  .dry_run = query->dry_run,
                                  .charge_denied = query->charge_denied,
                                  .cpu = weir__cpu(),
                                  .hits = work->hits,
                                  .count = query->descriptor_count,
                                  .priority = WEIR_NORMAL,
                                  .ask = query->ask};
    if (loaded->rules->load_aware)
        weir__overload_apply(trial, NULL); /* descriptors have limits as they are written */
    return 0;
}

static int check_with(weir *engine, const struct weir__loaded *loaded, const weir_descriptor_query *query,
                      weir_answer *answer)
{
    struct work work;
    struct weir__trial trial;
    int error = begin(&work, engine, loaded, query, &trial);
    if (error)
        return error;
    const struct weir__hit *by = weir__trial_decide(&trial);
    weir__trial_answer(&trial, by, answer);
    tell(&trial, query);
    answer->outcomes = trial.count;
    answer->matched = 0;
    for (size_t i = 0; i < trial.count; i++)
        answer->matched += trial.hits[i].reason != WEIR_BY_NOTHING;
    return 0;
}

static int prepare_with(weir *engine, const struct weir__loaded *loaded, const weir_descriptor_query *query)
{
    struct work work;
    struct weir__trial trial;
    int error = begin(&work, engine, loaded, query, &trial);
    return error ? error : weir__strict_prepare(&trial, query->ask);
}

static int query_fault(const weir *engine, const weir_descriptor_query *query)
{
    if (!engine || !query || !query->domain.len || !query->domain.data || !query->descriptor_count ||
        !query->descriptors || (query->ask && query->ask->engine != engine))
        return WEIR_EINVAL;
    if (query->descriptor_count > WEIR__HITS_MAX)
        return WEIR_ETOOMANY;
    if (query->now.mono_ns < 0 || query->now.wall_ns < 0)
        return WEIR_ETIME;
    return engine->segment->read_only && !query->dry_run ? WEIR_EREADONLY : 0;
}

int weir_check_descriptors(weir *engine, const weir_descriptor_query *query, weir_answer *answer)
{
    int error = answer && query && query->outcomes ? query_fault(engine, query) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);

    int at;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    error = check_with(engine, loaded, query, answer);
    weir__unpin(&engine->pins, at);
    return error;
}

int weir_check_descriptors_prepare(weir *engine, const weir_descriptor_query *query)
{
    int error = query_fault(engine, query);
    if (error || !query->ask)
        return error ? error : WEIR_EINVAL;
    int at;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    error = loaded->strict ? prepare_with(engine, loaded, query) : 0;
    weir__unpin(&engine->pins, at);
    return error;
}
