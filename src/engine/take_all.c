/* Deciding a request under all the rules that it has hit. See evaluation.h. */
#include "engine/ledger.h"
#include "engine/permits.h"
#include "engine/connection_pool.h"
#include "engine/hot_key_sampler.h"
#include "engine/overload.h"
#include "engine/strict.h"

/* A decision that no counter made. */
static weir_decision settled(enum weir_verdict verdict)
{
    bool passes = verdict == WEIR_ALLOW;
    return (weir_decision){
        .verdict = verdict, .limit = passes ? -1 : 0, .remaining = passes ? -1 : 0, .retry_after_ns = passes ? 0 : -1};
}

bool weir__hit_denies(const struct weir__hit *hit)
{
    return !weir_passes(&hit->decision);
}

static bool enforced(const struct weir__hit *hit)
{
    return !hit->shadow && !hit->replaced;
}

void weir__hit_fail(struct weir__hit *hit, int error)
{
    bool closed = hit->rule && hit->rule->on_failure == WEIR__FAIL_CLOSED;
    hit->decision = settled(closed ? WEIR_DENY : WEIR_ALLOW);
    hit->reason = WEIR_BY_FAILURE;
    hit->error = error;
}

void weir__hit_look_full(const struct weir__trial *trial, struct weir__hit *hit)
{
    const weir_limit *limit = &hit->quota->limit;
    if (!trial->charge_denied || hit->cost || limit->algorithm != WEIR_SLIDING_WINDOW_LOG || weir__hit_denies(hit) ||
        hit->decision.remaining > limit->hard - limit->cap)
        return;
    hit->decision.verdict = WEIR_DENY;
    hit->decision.retry_after_ns = hit->decision.reset_after_ns;
}

#define BACK_TRIES 8

enum asking { PEEK, TAKE, GIVE_BACK, CHARGE };

/* What an eventual rule's counter has taken or given back is written down. `before`: what was left. */
static void write_down(const struct weir__trial *trial, const struct weir__hit *hit, enum asking how, int64_t before,
                       const weir_decision *made)
{
    const struct weir__book *book = weir__book_of(trial->loaded, hit->rule);
    const weir_segment *segment = trial->engine->segment;
    weir_text key = {hit->key, hit->key_len};
    if (!book || how == PEEK)
        return;
    if (how == TAKE && hit->cost < 0)
        weir__book_gave_back(book, segment, hit->rule, hit->quota, key, -hit->cost, before, made->remaining);
    else if (how == GIVE_BACK)
        weir__book_add(book, segment, hit->rule, hit->quota, key, -hit->cost);
    else if (how == CHARGE || weir_passes(made) || hit->quota->limit.count_rejected)
        weir__book_add(book, segment, hit->rule, hit->quota, key, hit->cost);
}

static int take(const struct weir__trial *trial, struct weir__hit *hit, const weir_limit *limit, weir_decision *made)
{
    weir_segment *segment = trial->engine->segment;
    if (limit->algorithm == WEIR_CONCURRENCY && hit->cost > 0)
        return weir__hit_hold(trial, hit, made);
    return segment->read_only
               ? WEIR_EREADONLY
               : weir__take_on(trial->cpu, segment, limit, hit->key, hit->key_len, hit->cost, trial->now, made);
}

static void ask(const struct weir__trial *trial, struct weir__hit *hit, enum asking how)
{
    const weir_limit *limit = &hit->quota->limit;
    weir_segment *segment = trial->engine->segment;
    weir_decision made;
    int64_t before = 0;
    int error = WEIR_EBUSY;
    if (hit->cost < 0 && how == TAKE && weir__book_of(trial->loaded, hit->rule))
        before = weir__book_before(segment, hit->quota, (weir_text){hit->key, hit->key_len}, trial->now);
    /* A take that finds no way is the rule's failure policy; what was taken must get back if it possibly can. */
    for (int left = how == GIVE_BACK ? BACK_TRIES : 1; left > 0 && error == WEIR_EBUSY; left--)
        error = how == PEEK   ? weir_peek(segment, limit, hit->key, hit->key_len, hit->cost, trial->now, &made)
                : how == TAKE ? take(trial, hit, limit, &made)
                : hit->held   ? weir__hit_let_go(trial, hit, &made)
                              : weir__hit_refund(trial, hit, &made);
    if (error == WEIR_EFULL && how == TAKE)
        error = weir__hit_take_without_room(trial, hit, &made);
    if (error) {
        weir__hit_fail(hit, error);
        return;
    }
    write_down(trial, hit, how, before, &made);
    hit->decision = made;
    weir__hit_look_full(trial, hit);
}

void weir__hit_settle(struct weir__hit *hit)
{
    if (hit->reason == WEIR_BY_LIMIT && hit->quota && hit->quota->kind != WEIR__LIMITED) {
        hit->reason = hit->quota->kind == WEIR__BANNED ? WEIR_BY_BAN : WEIR_BY_UNLIMITED;
        hit->quota = NULL;
    }
    switch (hit->reason) {
    case WEIR_BY_BAN:
        hit->decision = settled(WEIR_NEVER_FITS);
        break;
    case WEIR_BY_BLOCK_LIST:
        hit->decision = settled(WEIR_BLOCKED);
        break;
    case WEIR_BY_MISSING_KEY:
        hit->decision = settled(hit->rule->on_missing == WEIR__MISSING_DENY ? WEIR_DENY : WEIR_ALLOW);
        break;
    default:
        hit->decision = settled(WEIR_ALLOW);
    }
}

bool weir__trial_denied(const struct weir__trial *trial)
{
    size_t quota_hits = 0, quota_denials = 0;
    for (size_t i = 0; i < trial->count; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!enforced(hit))
            continue;
        bool denies = weir__hit_denies(hit);
        if (!hit->quota_mode && denies)
            return true;
        quota_hits += hit->quota_mode;
        quota_denials += hit->quota_mode && denies;
    }
    return quota_hits && quota_hits == quota_denials;
}

static bool has_counter(const struct weir__hit *hit)
{
    return hit->quota && !hit->replaced;
}

/* The counter is in the segment. */
static bool counts_here(const struct weir__hit *hit)
{
    return has_counter(hit) && !hit->strict;
}

/* The request is to take from this counter, and it could be reached so far. */
static bool takes(const struct weir__hit *hit)
{
    return enforced(hit) && counts_here(hit) && hit->cost > 0 && !hit->error;
}

static bool counts_rejected(const struct weir__hit *hit)
{
    return hit->rule && hit->rule->count_rejected;
}

/* Gives back what hits [0, end) took, because the request is denied after all. One that denied (quota mode) took
 * nothing. */
static void give_back(const struct weir__trial *trial, size_t end)
{
    for (size_t i = 0; i < end; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!takes(hit) || weir__hit_denies(hit) || counts_rejected(hit))
            continue;
        ask(trial, hit, GIVE_BACK);
        if (hit->rule && !hit->error)
            weir__count(&weir__rule_tally_on(trial->loaded, hit->rule, trial->cpu)->gave_back, 1);
    }
    if (trial->held)
        trial->held->count = 0; /* so far only these had any: shadows come later */
}

void weir__hit_count_verdict(const struct weir__trial *trial, const struct weir__hit *hit)
{
    struct weir__stats_shard *stats = &trial->engine->segment->table.stats[trial->cpu % WEIR__STATS_SHARDS];
    weir__count(&stats->verdict[hit->decision.verdict], 1);
    if (hit->decision.flags & WEIR_OVER_SOFT)
        weir__count(&stats->soft, 1);
}

/* A denial that was only looked at. */
static void count_looked_at(const struct weir__trial *trial, const struct weir__hit *hit)
{
    weir_segment *segment = trial->engine->segment;
    weir__hit_count_verdict(trial, hit);
    if (weir__marks(&hit->decision) && !segment->read_only)
        weir__deny_on(trial->cpu, segment, &hit->quota->limit, hit->key, hit->key_len, trial->now);
}

/*
 * Denied requests count where the rule says so; under the others that would have passed, nothing was taken after all.
 * What denied stays a denial, even if others made room meanwhile: the rest of the counters have not been taken from.
 */
static void take_rejected(const struct weir__trial *trial, size_t from)
{
    for (size_t i = from; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!enforced(hit) || !counts_here(hit) || hit->error)
            continue;
        weir_decision looked = hit->decision;
        if (takes(hit) && counts_rejected(hit) && !trial->dry_run)
            ask(trial, hit, TAKE);
        else if (!weir__hit_denies(hit))
            hit->decision.remaining += hit->cost;
        else if (!trial->dry_run && hit->reason == WEIR_BY_LIMIT)
            count_looked_at(trial, hit);
        if (!weir_passes(&looked) && !weir__hit_denies(hit))
            hit->decision = looked;
    }
}

/* Takes what is to be taken, all or nothing. False: the request is denied after all. */
static bool take_all(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!takes(hit))
            continue;
        bool passed = !weir__hit_denies(hit);
        ask(trial, hit, TAKE);
        if (!passed || !weir__hit_denies(hit) || !weir__trial_denied(trial))
            continue;
        give_back(trial, i);
        take_rejected(trial, i + 1);
        return false;
    }
    return true;
}

/* Negative costs. They come last, as nobody could take them back. */
static void refund_all(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (enforced(hit) && counts_here(hit) && hit->cost < 0 && !hit->error)
            ask(trial, hit, TAKE);
    }
}

bool weir__trial_takes(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++)
        if (enforced(&trial->hits[i]) && has_counter(&trial->hits[i]) && trial->hits[i].cost > 0)
            return true;
    return false;
}

void weir__hit_peek(const struct weir__trial *trial, struct weir__hit *hit)
{
    ask(trial, hit, PEEK);
}

void weir__trial_peek(const struct weir__trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (enforced(hit) && counts_here(hit))
            ask(trial, hit, PEEK);
    }
}

static void decide_enforced(struct weir__trial *trial, struct weir__hit *only)
{
    bool taking = weir__trial_takes(trial);
    if (only && taking && !trial->dry_run && !weir__trial_denied(trial)) {
        ask(trial, only, TAKE);
        return;
    }
    weir__trial_peek(trial);
    /* Who only gives back is not asking for anything, so nothing is denied. */
    if (trial->strict && !(taking && weir__trial_denied(trial)))
        weir__strict_resolve(trial);
    if (taking && weir__trial_denied(trial))
        take_rejected(trial, 0);
    else if (!trial->dry_run && take_all(trial))
        refund_all(trial);
}

/* The one rule that denies, if all other enforced ones pass; *several if there are more. */
static const struct weir__rule *only_denier(const struct weir__trial *trial, bool *several)
{
    const struct weir__rule *denier = NULL;
    bool found = false;
    *several = false;
    for (size_t i = 0; i < trial->count; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!enforced(hit) || hit->quota_mode || !weir__hit_denies(hit))
            continue;
        *several |= found;
        found = true;
        denier = hit->rule;
    }
    return denier;
}

/*
 * A shadow rule sees what it would see if it were in force: requests that the others let pass. The enforced rule of
 * its own name is no other: the shadow stands in its place.
 */
static void decide_shadows(struct weir__trial *trial)
{
    bool several, was_denied = weir__trial_denied(trial);
    const struct weir__rule *denier = only_denier(trial, &several);
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        if (!hit->shadow || !has_counter(hit))
            continue;
        bool passes =
            !was_denied || (!several && denier && hit->rule && weir__text_equal(denier->name, hit->rule->name));
        if (hit->strict)
            weir__strict_shadow(trial, hit, passes);
        if (counts_here(hit))
            ask(trial, hit, passes && !trial->dry_run && hit->cost != 0 ? TAKE : PEEK);
    }
}

bool weir__hit_counts_denied(const struct weir__trial *trial, const struct weir__hit *hit)
{
    return trial->charge_denied && !trial->dry_run && has_counter(hit) && hit->cost > 0 &&
           !hit->quota->limit.count_rejected && hit->quota->limit.algorithm != WEIR_CONCURRENCY &&
           (hit->report || hit->quota->limit.algorithm == WEIR_FIXED_WINDOW);
}

/*
 * Charges the counters of a denied request: all of them if the request is denied, else (quota mode, shadows) those that
 * denied. The verdicts stay, also where a counter cannot be reached now; one that let it pass tells what is left. What
 * the store decides is counted there: WEIR__ASK_COUNT.
 */
static void charge_denied(const struct weir__trial *trial)
{
    bool all = weir__trial_denied(trial);
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        weir_decision made;
        bool denies = weir__hit_denies(hit);
        if (hit->strict || hit->error || !(all || denies) || !weir__hit_counts_denied(trial, hit))
            continue;
        int error = weir_charge(trial->engine->segment, &hit->quota->limit, hit->key, hit->key_len, hit->cost,
                                trial->now, &made);
        if (!error)
            write_down(trial, hit, CHARGE, 0, &made);
        if (!error && !denies)
            hit->decision = made;
    }
}

/* Of two hits that deny, the one that should speak: what the client did itself, by priority, then the longest wait. */
static bool speaks_before(const struct weir__hit *a, const struct weir__hit *b)
{
    if ((a->reason == WEIR_BY_SHED) != (b->reason == WEIR_BY_SHED))
        return b->reason == WEIR_BY_SHED;
    int left = a->rule ? a->rule->priority : 0, right = b->rule ? b->rule->priority : 0;
    if (left != right)
        return left > right;
    uint64_t a_wait = (uint64_t)a->decision.retry_after_ns, b_wait = (uint64_t)b->decision.retry_after_ns;
    return a_wait > b_wait; /* -1, for ever, is the longest */
}

static int weight(const struct weir__hit *hit)
{
    return hit->reason == WEIR_BY_LIMIT ? 2 : hit->reason != WEIR_BY_NOTHING;
}

/* Of two that pass, the tighter one: a counter before none, any rule before no rule, then what has least left. */
static bool is_tighter(const struct weir__hit *a, const struct weir__hit *b)
{
    if (weight(a) != weight(b))
        return weight(a) > weight(b);
    if (a->decision.remaining != b->decision.remaining)
        return a->decision.remaining < b->decision.remaining;
    return a->decision.reset_after_ns > b->decision.reset_after_ns;
}

static const struct weir__hit *choose(const struct weir__trial *trial)
{
    const struct weir__hit *best = NULL;
    bool deny = weir__trial_denied(trial);
    for (size_t i = 0; i < trial->count; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        if (!enforced(hit) || weir__hit_denies(hit) != deny)
            continue;
        if (!best || (deny ? speaks_before(hit, best) : is_tighter(hit, best)))
            best = hit;
    }
    return best;
}

/* Counts one hit of a request that was denied, or not, as a whole. */
static void count_hit(const struct weir__trial *trial, const struct weir__hit *hit, bool denied)
{
    if (!hit->rule || hit->replaced || hit->cost <= 0 || hit->unasked)
        return;
    struct weir__rule_stats_shard *to = weir__rule_tally_on(trial->loaded, hit->rule, trial->cpu);
    bool denies = weir__hit_denies(hit);
    if (hit->reason == WEIR_BY_MISSING_KEY) {
        weir__count(&to->missing_key, 1);
        if (!denies)
            return; /* the rule was skipped: it let nothing pass */
    }
    if (hit->reason == WEIR_BY_FAILURE || hit->store_error)
        weir__count(&to->failures, 1);
    if (hit->reason == WEIR_BY_ALLOW_LIST || hit->reason == WEIR_BY_BLOCK_LIST)
        weir__count(&to->listed, 1);
    if (denies && hit->reason == WEIR_BY_SHED) {
        weir__count(weir__rule_stats_shed(trial->loaded->tally[hit->rule->index], (int)trial->priority), 1);
        return;
    }
    /* What another rule denied is not this one's: it neither let it pass nor held it up. */
    if (denied && !denies && !hit->shadow)
        return;
    uint64_t *sum = denies ? &to->denied : hit->decision.verdict == WEIR_DELAY ? &to->delayed : &to->allowed;
    weir__count(sum, 1);
    weir__noting_hit(trial, hit, weir__load64(sum));
}

static void count(const struct weir__trial *trial)
{
    bool denied = weir__trial_denied(trial);
    for (size_t i = 0; i < trial->count; i++)
        count_hit(trial, &trial->hits[i], denied);
}

/* Finds the strict hits, and asks the store if nobody else did and the engine can. */
static struct weir__borrowed *prepare(struct weir__trial *trial)
{
    struct weir__borrowed *borrowed = NULL;
    if (!trial->ask && trial->engine->links) {
        borrowed = weir__strict_ask(trial);
        for (size_t i = 0; i < trial->count; i++)
            weir__hit_settle(&trial->hits[i]); /* anew: the looks have left their traces */
    }
    weir__strict_mark(trial);
    return borrowed;
}

/* All of it, as far as it is known what the store says. */
static void decide(struct weir__trial *trial, struct weir__hit *only, bool shadows)
{
    if (trial->strict)
        weir__strict_answer(trial);
    decide_enforced(trial, trial->strict ? NULL : only);
    if (shadows)
        decide_shadows(trial);
    if (trial->charge_denied)
        charge_denied(trial);
    if (trial->strict)
        weir__strict_keep(trial);
}

/* By far most requests: one rule, which has a counter here. What follows from it for others need not be asked. */
static bool is_simple(const struct weir__trial *trial)
{
    const struct weir__hit *hit = trial->hits;
    return trial->count == 1 && enforced(hit) && hit->quota && hit->quota->kind == WEIR__LIMITED && hit->cost > 0 &&
           !hit->quota_mode && !trial->dry_run && !trial->loaded->strict && !trial->load_aware &&
           !trial->engine->segment->read_only && !weir__book_away(trial->loaded, hit->rule);
}

static const struct weir__hit *decide_simple(const struct weir__trial *trial)
{
    struct weir__hit *hit = trial->hits;
    const weir_limit *limit = &hit->quota->limit;
    if (limit->algorithm == WEIR_CONCURRENCY || weir__book_of(trial->loaded, hit->rule)) {
        ask(trial, hit, TAKE);
    } else {
        int error = weir__take_on(trial->cpu, trial->engine->segment, limit, hit->key, hit->key_len, hit->cost,
                                  trial->now, &hit->decision);
        if (error == WEIR_EFULL)
            error = weir__hit_take_without_room(trial, hit, &hit->decision);
        if (error)
            weir__hit_fail(hit, error);
    }
    if (trial->charge_denied && weir__hit_denies(hit))
        charge_denied(trial);
    count_hit(trial, hit, weir__hit_denies(hit));
    return hit;
}

const struct weir__hit *weir__trial_decide(struct weir__trial *trial)
{
    if (is_simple(trial))
        return decide_simple(trial);
    struct weir__hit *only = NULL;
    size_t counters = 0;
    bool shadows = false;
    for (size_t i = 0; i < trial->count; i++) {
        struct weir__hit *hit = &trial->hits[i];
        weir__hit_settle(hit);
        if (has_counter(hit) && weir__book_away(trial->loaded, hit->rule)) {
            weir__hit_fail(hit, WEIR_ESTOREAWAY);
            hit->quota = NULL;
        }
        if (enforced(hit) && has_counter(hit)) {
            counters++;
            only = hit;
        }
        shadows |= hit->shadow;
    }
    if (trial->load_aware && weir__overload_must_shed(trial)) {
        const struct weir__hit *by = weir__overload_shed(trial);
        count(trial);
        return by;
    }
    struct weir__borrowed *borrowed = NULL;
    if (trial->loaded->strict)
        borrowed = prepare(trial);
    decide(trial, counters == 1 ? only : NULL, shadows);
    if (borrowed)
        weir__links_return(borrowed);
    if (trial->load_aware)
        weir__overload_mark_reserved(trial);
    if (!trial->dry_run)
        count(trial);
    return choose(trial);
}
