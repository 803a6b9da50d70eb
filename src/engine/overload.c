/* What the load of the host does to a request under decision. See overload.h. */
#include "engine/overload.h"

#include "algo/scaled_limit.h"
#include "engine/hot_key_sampler.h"
#include "engine/strict.h"

#define RETRY_LEAST_NS WEIR_SECOND
#define RETRY_MORE_S   4 /* who was shed at the same moment must not come back at the same moment */

/* An enforced rule has something to say about the request. */
static bool applies(const struct weir__hit *hit)
{
    return !hit->shadow && !hit->replaced && hit->reason != WEIR_BY_NOTHING && hit->reason != WEIR_BY_MISSING_KEY;
}

/* ---- Limits in force ---- */

static void look(const weir *engine, weir_time now, struct weir__load_view *view)
{
    *view = weir__load_view_neutral();
    if (engine->load && !weir__load32(&engine->level.lost))
        weir__load_page_read(engine->load, now.mono_ns, view);
    /* A level that nobody knows is no reason to let more pass. */
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

static bool is_varied(const struct weir__quota *quota)
{
    return quota && quota->kind == WEIR__LIMITED && quota->ceiling;
}

const struct weir__quota *weir__quota_effective(const weir *engine, const struct weir__rule *rule,
                                                const struct weir__quota *quota, weir_time now,
                                                struct weir__quota *room)
{
    struct weir__load_view view;
    if (!is_varied(quota))
        return quota;
    look(engine, now, &view);
    scale(rule, &view, quota, room);
    return room;
}

/* ---- A request ---- */

/* The most important class that an enforced rule says which applies. */
static enum weir_priority class_of(const struct weir__trial *trial)
{
    bool said = false;
    enum weir_priority best = WEIR_NORMAL;
    for (size_t i = 0; i < trial->count; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!applies(hit) || !hit->rule || !hit->rule->overload.has_class)
            continue;
        best = said && best < hit->rule->overload.class ? best : hit->rule->overload.class;
        said = true;
    }
    return best;
}

static bool keeps_reserve(const struct weir__trial *trial, const struct weir__hit *hit)
{
    return hit->rule && hit->rule->overload.reserve && trial->priority != WEIR_CRITICAL && hit->quota &&
           hit->quota->kind == WEIR__LIMITED && hit->cost > 0;
}

/* One for the whole question: what comes to decide later must come to the same. */
static void throw_for(weir_ask *ask, const struct weir__load_view *view, uint64_t dice)
{
    if (ask->dice)
        return;
    ask->dice = dice | 1;
    memcpy(ask->shed, view->shed, sizeof ask->shed);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0xd6e8feb86659fd93);
    return (a ^ a >> 32) * UINT64_C(0xd6e8feb86659fd93);
}

/* Which share of requests like it is shed, and a number for this one. */
static void throw_dice(struct weir__trial *trial, const struct weir__load_view *view)
{
    const struct weir__hit *first = trial->hits;
    uint64_t counted = 0;
    if (first->rule) {
        const struct weir__rule_stats_shard *stripe = weir__rule_tally_on(trial->loaded, first->rule, trial->cpu);
        counted = weir__load64(&stripe->allowed) + weir__load64(&stripe->denied) +
                  weir__load64(weir__rule_stats_shed(trial->loaded->tally[first->rule->index], (int)trial->priority));
    }
    trial->shed = view->shed[trial->priority];
    trial->dice = weir__noting_dice(trial->now, counted);
    if (!trial->ask || !trial->loaded->strict)
        return;
    throw_for(trial->ask, view, trial->dice);
    trial->shed = trial->ask->shed[trial->priority];
    trial->dice = trial->ask->dice;
    if (first->key_len)
        trial->dice = mix(trial->dice, weir__noting_hash(trial->engine->segment, first->key, first->key_len));
}

void weir__overload_apply(struct weir__trial *trial, struct weir__quota *room)
{
    struct weir__load_view view;
    look(trial->engine, trial->now, &view);
    trial->priority = class_of(trial);
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        bool varied = is_varied(hit->quota);
        hit->rest = keeps_reserve(trial, hit);
        if (!varied && !hit->rest)
            continue;
        if (varied)
            scale(hit->rule, &view, hit->quota, &room[i]);
        else
            room[i] = *hit->quota;
        if (hit->rest) {
            room[i].full_cap = room[i].limit.cap;
            weir__limit_without_reserve(&room[i].limit, hit->rule->overload.reserve);
        }
        hit->quota = &room[i];
        trial->load_aware |= hit->rest;
    }
    if (trial->count && !trial->dry_run)
        throw_dice(trial, &view);
    trial->load_aware |= trial->shed > 0;
}

/* ---- Shedding by utilisation ---- */

static bool asks_for_something(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++)
        if (applies(&trial->hits[i]) && trial->hits[i].cost > 0)
            return true;
    return false;
}

bool weir__overload_must_shed(const struct weir__trial *trial)
{
    return trial->shed && !trial->dry_run && (trial->dice >> 32) * WEIR__LOAD_FULL >> 32 < trial->shed &&
           asks_for_something(trial) && !weir__trial_denied(trial);
}

/* The rule that says how important it is, or the first. */
static struct weir__hit *speaker(const struct weir__trial *trial)
{
    struct weir__hit *first = NULL;
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!applies(hit) || hit->cost <= 0)
            continue;
        if (hit->rule && hit->rule->overload.has_class && hit->rule->overload.class == trial->priority)
            return hit;
        first = first ? first : hit;
    }
    return first;
}

const struct weir__hit *weir__overload_shed(struct weir__trial *trial)
{
    struct weir__hit *by = speaker(trial);
    int64_t wait = RETRY_LEAST_NS + (int64_t)(trial->dice & 0xffff) * (RETRY_MORE_S * WEIR_SECOND) / 0x10000;
    for (size_t i = 0; i < trial->count; i++) {
        trial->hits[i].strict = false;
        trial->hits[i].unasked = true;
    }
    by->unasked = false;
    by->reason = WEIR_BY_SHED;
    by->decision = (weir_decision){
        .verdict = WEIR_DENY, .limit = -1, .remaining = -1, .retry_after_ns = wait, .reset_after_ns = -1};
    return by;
}

/* ---- Shedding by a reserve ---- */

/* True if the whole limit would have let it pass. */
static bool whole_passes(const struct weir__trial *trial, const struct weir__hit *hit)
{
    weir_limit whole = hit->quota->limit;
    weir_decision looked;
    whole.cap = hit->quota->full_cap;
    if (hit->strict) /* what is used was told with the denial */
        return hit->decision.limit - hit->decision.remaining + hit->cost <= whole.cap;
    return weir_peek(trial->engine->segment, &whole, hit->key, hit->key_len, hit->cost, trial->now, &looked) == 0 &&
           weir_passes(&looked);
}

void weir__overload_mark_reserved(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (hit->rest && hit->quota && hit->reason == WEIR_BY_LIMIT && hit->decision.verdict == WEIR_DENY &&
            whole_passes(trial, hit))
            hit->reason = WEIR_BY_SHED;
    }
}
