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

static bool enforced(const struct weir__hit *hit)
{
    return !hit->shadow && !hit->replaced;
}

void weir__strict_mark(struct weir__trial *trial)
{
    trial->strict = 0;
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        hit->strict = hit->quota && !hit->replaced &&
                      weir__consistency_of(trial->engine, trial->loaded, hit->rule, &hit->quota->limit) == WEIR__STRICT;
        hit->told = NULL;
        hit->unasked = hit->refused = hit->kept = false;
        trial->strict += hit->strict;
    }
}

/* ---- What is known without the store ---- */

/* Denials that every further request prolongs are not over when they say, and of requests in flight nobody knows when
 * one ends: each of these is asked for. */
static bool remembers(const weir_limit *limit)
{
    return !limit->count_rejected && limit->algorithm != WEIR_CONCURRENCY;
}

/* True if the hit is denied already: blocked, beyond what the limit could ever hold, or by a remembered denial. */
static bool denied_here(const struct weir__trial *trial, struct weir__hit *hit)
{
    const weir_segment *segment = trial->engine->segment;
    weir_request request = {&hit->quota->limit, hit->key, hit->key_len, hit->cost, 0, {0}};
    weir_decision made;
    if (hit->cost <= 0)
        return false;
    if ((hit->cost > request.limit->cap || weir__blocks_any(segment, trial->now)) &&
        weir_peek(segment, request.limit, hit->key, hit->key_len, hit->cost, trial->now, &made) == 0 &&
        (made.verdict == WEIR_NEVER_FITS || made.verdict == WEIR_BLOCKED)) {
        hit->decision = made;
        return true;
    }
    int64_t left =
        remembers(request.limit) ? weir__denial_left(segment, &trial->engine->denials, &request, trial->now) : 0;
    if (left > 0)
        hit->decision = (weir_decision){
            .verdict = WEIR_DENY, .limit = request.limit->hard, .retry_after_ns = left, .reset_after_ns = left};
    return left > 0;
}

static void remember(const struct weir__trial *trial, const struct weir__hit *hit)
{
    weir_request request = {&hit->quota->limit, hit->key, hit->key_len, hit->cost, 0, {0}};
    if (hit->decision.verdict == WEIR_DENY && hit->decision.retry_after_ns > 0 && hit->cost > 0 && !trial->dry_run &&
        remembers(request.limit))
        weir__denial_remember(trial->engine->segment, &trial->engine->denials, &request, hit->decision.retry_after_ns,
                              trial->now);
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
 * Who gives back says when it was taken, by the host's clock, and the store hears how long ago that is. The store took
 * it before its answer came, and hears this a moment later: so it is made longer by what these can have taken. What is
 * given back must not come off a window that has begun since, nor once more off what has dripped back already. Where
 * the window or the log began with the take itself, that would be before it, and nothing would ever be given back.
 */
static int64_t taken_ago(const struct weir__trial *trial, const weir_limit *limit)
{
    bool begins = limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
                  (limit->algorithm == WEIR_FIXED_WINDOW && limit->align == WEIR_ALIGN_FIRST_REQUEST);
    int64_t passed_us = (weir_clock(trial->engine->segment).mono_ns - trial->now.mono_ns) / 1000;
    if (passed_us < PRESENT_US)
        return 1;
    return begins ? passed_us : passed_us + 2 * trial->engine->store->deadline_us;
}

/* What a hit is in the store; only how, cost and name are needed to find it again. */
static void describe(const struct weir__trial *trial, const struct weir__hit *hit, struct weir__ask *to)
{
    const struct weir__store_options *store = trial->engine->store;
    struct weir__naming naming = {store->prefix, store->hash_keys};
    weir_text key = {hit->key, hit->key_len};
    to->cost = hit->cost;
    to->how = trial->dry_run || !hit->cost ? WEIR__ASK_PEEK : hit->cost < 0 ? WEIR__ASK_REFUND : WEIR__ASK_TAKE;
    if (to->how == WEIR__ASK_REFUND)
        to->cost = -hit->cost;
    if (to->how == WEIR__ASK_TAKE && weir__hit_counts_denied(trial, hit))
        to->how = WEIR__ASK_COUNT;
    if (hit->rule) {
        to->name_len = (uint16_t)weir__store_name(&naming, hit->rule->name, hit->rule->shadow, key, to->name);
        return;
    }
    /* A limit of the request's own: no rule's name has quotes. */
    char name[48];
    int len = snprintf(name, sizeof name, "\"request\"/%lldus", (long long)(hit->quota->window_ns / 1000));
    to->name_len = (uint16_t)weir__store_name(&naming, (weir_text){name, (size_t)len}, false, key, to->name);
}

static struct weir__ask *add(const struct weir__trial *trial, weir_ask *ask, const struct weir__hit *hit,
                             bool new_group, bool after_first)
{
    struct weir__ask *to = weir__ask_add(ask, new_group, after_first);
    describe(trial, hit, to);
    to->limit = hit->quota->limit;
    if (to->how == WEIR__ASK_REFUND)
        to->at_us = -taken_ago(trial, &to->limit);
    if (to->limit.algorithm == WEIR_FIXED_WINDOW && to->limit.align == WEIR_ALIGN_CALENDAR)
        set_bounds(&to->limit, trial->now, to->bounds_us);
    to->limit.zone = NULL; /* the rules may be gone before the answer comes */
    return to;
}

/* The same for a hit of a request. */
static int add_hit(const struct weir__trial *trial, weir_ask *ask, const struct weir__hit *hit, bool new_group,
                   bool after_first)
{
    struct weir__ask *added = add(trial, ask, hit, new_group, after_first);
    return weir__is_flight(hit->quota) && added->how == WEIR__ASK_TAKE ? weir__far_identify(added) : 0;
}

int weir__strict_add(const struct weir__trial *trial, weir_ask *ask, const struct weir__hit *hit,
                     enum weir__ask_how how)
{
    int error = weir__ask_reserve(ask, 1);
    if (!error)
        add(trial, ask, hit, true, false)->how = how;
    return error;
}

int weir__strict_told(const struct weir__trial *trial, weir_ask *ask, const struct weir__hit *hit,
                      enum weir__ask_how how, weir_decision *decision)
{
    struct weir__ask like;
    if (!ask)
        return WEIR_ESTOREAWAY;
    describe(trial, hit, &like);
    like.how = how;
    const struct weir__ask *told = weir__ask_find(ask, &like);
    if (!told)
        return WEIR_ESTOREAWAY;
    weir__ask_keep(ask, told);
    int error = weir__ask_error(ask, told);
    if (!error)
        *decision = told->decision;
    return error;
}

/* The enforced rule of a shadow's own name does not stand in its way. */
static bool has_twin(const struct weir__trial *trial, const struct weir__hit *shadow)
{
    for (size_t i = 0; i < trial->count; i++)
        if (enforced(&trial->hits[i]) && trial->hits[i].rule && shadow->rule &&
            weir__text_equal(trial->hits[i].rule->name, shadow->rule->name))
            return true;
    return false;
}

/*
 * What the request takes together is one group. Shadows, and descriptors in quota mode, which may deny alone without
 * denying the request, are each their own: after the group where there is one, or given back if it denies.
 */
static int add_all(const struct weir__trial *trial, weir_ask *ask)
{
    int error = weir__ask_reserve(ask, trial->strict);
    if (error)
        return error;
    bool first = ask->question.group_count == 0, grouped = false;
    for (size_t i = 0; i < trial->count && !error; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!hit->strict || hit->unasked || !enforced(hit) || hit->quota_mode)
            continue;
        error = add_hit(trial, ask, hit, !grouped, false);
        grouped = true;
    }
    for (size_t i = 0; i < trial->count && !error; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!hit->strict || hit->unasked || (enforced(hit) && !hit->quota_mode))
            continue;
        error =
            add_hit(trial, ask, hit, true,
                    first && grouped && !(hit->shadow && has_twin(trial, hit)) && !weir__hit_counts_denied(trial, hit));
    }
    return error;
}

/* A report is consumed whatever is decided, so the store must hear of it: no denial that is known here stands for it.
 */
static bool is_counted_report(const struct weir__trial *trial, const struct weir__hit *hit)
{
    return hit->strict && hit->report && weir__hit_counts_denied(trial, hit);
}

/* Counters that the store must be asked for; 0: none, or the request is denied without. */
static uint32_t look(struct weir__trial *trial)
{
    uint32_t open = 0;
    bool reports = false;
    for (size_t i = 0; i < trial->count; i++)
        weir__hit_settle(&trial->hits[i]);
    weir__strict_mark(trial);
    if (trial->load_aware && weir__overload_must_shed(trial))
        trial->strict = 0;
    if (!trial->strict)
        return 0;
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        bool report = is_counted_report(trial, hit);
        hit->unasked = hit->strict && !report && denied_here(trial, hit);
        open += hit->strict && !hit->unasked;
        reports |= report;
    }
    weir__trial_peek(trial);
    return weir__trial_takes(trial) && weir__trial_denied(trial) && !reports ? 0 : open;
}

int weir__strict_prepare(struct weir__trial *trial, weir_ask *ask)
{
    uint32_t open = look(trial);
    ask->refused += (uint32_t)trial->strict - open;
    int error = open ? add_all(trial, ask) : 0;
    return error ? error : open != 0;
}

struct weir__borrowed *weir__strict_ask(struct weir__trial *trial)
{
    uint32_t open = look(trial);
    /* A counter that could not be looked at now may be reached when it is taken from. */
    for (size_t i = 0; i < trial->count; i++)
        if (trial->hits[i].error) {
            trial->hits[i].error = 0;
            trial->hits[i].reason = WEIR_BY_LIMIT;
        }
    trial->refused = !open;
    struct weir__borrowed *borrowed = open ? weir__links_borrow(trial->engine, &trial->away) : NULL;
    if (!borrowed)
        return NULL;
    borrowed->ask->refused = (uint32_t)trial->strict - open;
    trial->away = add_all(trial, borrowed->ask);
    if (!trial->away)
        weir__links_ask(borrowed);
    trial->ask = borrowed->ask;
    return borrowed;
}

/* ---- With the answers ---- */

/* There is no answer: the host's own counter stands in, or the policy speaks. */
static void failed(struct weir__hit *hit, int error)
{
    if (hit->rule && hit->rule->on_failure != WEIR__FAIL_LOCAL) {
        weir__hit_fail(hit, error);
        return;
    }
    hit->strict = false;
    hit->store_error = error;
}

/* Why what the store took cannot be held; 0: it can. */
static int reserve_slot(struct weir__trial *trial, const struct weir__hit *hit)
{
    if (!weir__is_flight(hit->quota) || hit->told->how != WEIR__ASK_TAKE || !hit->told->taken)
        return 0;
    if (!trial->held || trial->far == WEIR_HELD_MAX)
        return WEIR_ETOOMANY;
    trial->far++;
    return 0;
}

void weir__strict_answer(struct weir__trial *trial)
{
    weir_ask *ask = trial->ask;
    struct weir__ask like;
    trial->far = 0;
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!hit->strict)
            continue;
        if (ask) {
            describe(trial, hit, &like);
            hit->told = weir__ask_find(ask, &like);
        }
        int error = hit->told ? weir__ask_error(ask, hit->told) : 0;
        if (hit->told && !error)
            error = reserve_slot(trial, hit);
        if (error) {
            hit->told = NULL;
            failed(hit, error);
        } else if (hit->told) {
            hit->decision = hit->told->decision;
            weir__hit_look_full(trial, hit);
            remember(trial, hit);
        } else {
            hit->refused = trial->refused || (ask && ask->refused);
            if (ask && ask->refused)
                ask->refused--;
            hit->unasked = !denied_here(trial, hit);
        }
    }
}

void weir__strict_resolve(struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!hit->strict || !hit->unasked || !enforced(hit))
            continue;
        hit->unasked = false;
        if (hit->refused) {
            hit->decision = (weir_decision){.verdict = WEIR_DENY,
                                            .limit = hit->quota->limit.hard,
                                            .retry_after_ns = AGAIN_NS,
                                            .reset_after_ns = AGAIN_NS};
            continue;
        }
        failed(hit, trial->away ? trial->away : WEIR_ESTOREAWAY);
        if (!hit->strict)
            weir__hit_peek(trial, hit);
    }
}

void weir__strict_shadow(struct weir__trial *trial, struct weir__hit *hit, bool passes)
{
    hit->kept = passes;
    if (!hit->unasked || hit->refused || weir__trial_denied(trial))
        return;
    hit->unasked = false;
    failed(hit, trial->away ? trial->away : WEIR_ESTOREAWAY);
}

static void count_decision(const struct weir__trial *trial, const struct weir__hit *hit)
{
    if (trial->dry_run || !hit->strict || hit->unasked || hit->cost <= 0 || hit->reason != WEIR_BY_LIMIT ||
        !(weir__hit_denies(hit) || (hit->told && hit->told->taken)))
        return;
    weir__hit_count_verdict(trial, hit);
}

void weir__strict_keep(struct weir__trial *trial)
{
    bool denied = weir__trial_denied(trial);
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        count_decision(trial, hit);
        if (!hit->told || hit->told->how != WEIR__ASK_TAKE || weir__hit_denies(hit))
            continue;
        if (!hit->told->taken) { /* its group was denied; a look for a shadow tells what would be left */
            hit->decision.remaining += hit->shadow ? 0 : hit->cost;
            continue;
        }
        if (hit->shadow ? hit->kept : !denied) {
            weir__ask_keep(trial->ask, hit->told);
            if (weir__is_flight(hit->quota))
                weir__far_hold(trial->held, hit->told);
            continue;
        }
        hit->decision.remaining += hit->cost;
        if (hit->rule)
            weir__count(&weir__rule_tally(trial->loaded, hit->rule)->gave_back, 1);
    }
}
