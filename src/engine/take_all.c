/* Evaluation of a request under all rules that match it: see evaluation.h. */
#include "engine/hot_key_sampler.h"
#include "engine/ledger.h"
#include "engine/leased.h"
#include "engine/permits.h"

#define ROLLBACK_TRIES 8

/* A decision without a counter. */
static weir_decision settled(enum weir_verdict verdict)
{
    bool passes = verdict == WEIR_ALLOW;
    return (weir_decision){
        .verdict = verdict, .limit = passes ? -1 : 0, .remaining = passes ? -1 : 0, .retry_after_ns = passes ? 0 : -1};
}

void weir__eval_fail(struct weir__rule_eval *eval, int error)
{
    bool closed = eval->rule && eval->rule->on_failure == WEIR__FAIL_CLOSED;
    eval->decision = settled(closed ? WEIR_DENY : WEIR_ALLOW);
    eval->reason = WEIR_BY_FAILURE;
    eval->error = error;
}

void weir__eval_look_full(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval)
{
    const weir_limit *limit = &eval->quota->limit;
    if (!ctx->charge_denied || eval->cost || limit->algorithm != WEIR_SLIDING_WINDOW_LOG || weir__eval_denies(eval) ||
        eval->decision.remaining > limit->hard - limit->cap)
        return;
    eval->decision.verdict = WEIR_DENY;
    eval->decision.retry_after_ns = eval->decision.reset_after_ns;
}

/*
 * ---- A full slab ----
 *
 * A log or wide counter for which the slab has no room. With on_store_failure `local` the host still enforces the
 * limit, by a stand-in that needs no record: a sliding counter of two buckets in slots. It counts only the requests
 * that find no room. A record of the key that cannot grow continues for the units that fit into it, and its units are
 * subtracted from the limit of the stand-in: both together admit no more than the limit, as exactly as a sliding
 * counter of two buckets does.
 */

#define STAND_IN_SALT UINT64_C(0x5ca1ab1e0ddba11) /* any number: separates the stand-in from the counter */

static weir_limit stand_in(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_limit made = *limit;
    weir_decision looked;
    made.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    made.buckets = 2;
    made.part_us = made.window_us;
    made.count_rejected = false;
    made.salt ^= STAND_IN_SALT;
    made.wide = !weir__is_packed(&made); /* of the full limit: the representation must not depend on the units below */
    if (weir_peek(ctx->engine->segment, limit, eval->key, eval->key_len, 0, ctx->now, &looked) == 0) {
        int64_t logged = limit->hard - looked.remaining;
        made.hard -= logged;
        made.cap -= logged;
    }
    return made;
}

/* Takes from the stand-in, and sets store_error. WEIR_EFULL: there is none, so on_store_failure decides. */
static int take_stand_in(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *made)
{
    const weir_limit *full = &eval->quota->limit;
    if (!weir__is_record(full) || eval->cost <= 0 || (eval->rule && eval->rule->on_failure != WEIR__FAIL_LOCAL))
        return WEIR_EFULL;
    weir_limit limit = stand_in(ctx, eval);
    int error =
        weir__take_on(ctx->cpu, ctx->engine->segment, &limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
    if (error)
        return error;
    made->limit = full->hard;
    eval->store_error = WEIR_EFULL;
    return 0;
}

/* ---- Operations on one counter ---- */

static int take(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *made)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_segment *segment = ctx->engine->segment;
    if (limit->algorithm == WEIR_CONCURRENCY && eval->cost > 0)
        return weir__eval_hold(ctx, eval, made);
    int error = segment->mapped.read_only
                    ? WEIR_EREADONLY
                    : weir__take_on(ctx->cpu, segment, limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
    return error == WEIR_EFULL ? take_stand_in(ctx, eval, made) : error;
}

__attribute__((noinline)) int weir__eval_roll_back(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval,
                                                   weir_decision *made)
{
    int error = WEIR_EBUSY;
    weir_limit limit = eval->store_error == WEIR_EFULL ? stand_in(ctx, eval) : eval->quota->limit;
    for (int left = ROLLBACK_TRIES; left > 0 && error == WEIR_EBUSY; left--)
        error = eval->permit_number
                    ? weir__eval_let_go(ctx, eval, made)
                    : weir_refund(ctx->engine->segment, &limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
    return error;
}

int weir__eval_operate(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what,
                       weir_decision *made)
{
    if (eval->lease)
        return weir__lease_operate(ctx, eval, what, made);
    const weir_limit *limit = &eval->quota->limit;
    weir_segment *segment = ctx->engine->segment;
    bool refunds = what == WEIR__RESET || (eval->cost < 0 && what != WEIR__PEEK);
    int64_t before = refunds ? weir__delta_ledger_before(ctx, eval) : 0;
    int error = what == WEIR__PEEK    ? weir_peek(segment, limit, eval->key, eval->key_len, eval->cost, ctx->now, made)
                : what == WEIR__ADMIT ? take(ctx, eval, made)
                : what == WEIR__ROLL_BACK ? weir__eval_roll_back(ctx, eval, made)
                : what == WEIR__RESET     ? weir_reset(segment, limit, eval->key, eval->key_len, ctx->now)
                : eval->cost < 0 ? weir_refund(segment, limit, eval->key, eval->key_len, -eval->cost, ctx->now, made)
                                 : weir_charge(segment, limit, eval->key, eval->key_len, eval->cost, ctx->now, made);
    if (error || what == WEIR__PEEK || !ctx->ruleset->deltas)
        return error;
    if (what == WEIR__RESET)
        weir__delta_ledger_record_refund(ctx, eval, INT64_MAX, before, limit->hard);
    else if (refunds)
        weir__delta_ledger_record_refund(ctx, eval, -eval->cost, before, made->remaining);
    else if (what == WEIR__ROLL_BACK)
        weir__delta_ledger_record(ctx, eval, -eval->cost);
    else if (what == WEIR__SETTLE || weir_passes(made) || limit->count_rejected)
        weir__delta_ledger_record(ctx, eval, eval->cost);
    return 0;
}

void weir__eval_decide(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, enum weir__operation what)
{
    weir_decision made;
    int error = weir__eval_operate(ctx, eval, what, &made);
    if (error) {
        weir__eval_fail(eval, error);
        return;
    }
    eval->decision = made;
    weir__eval_look_full(ctx, eval);
}

/* ---- All counters of a request ---- */

void weir__eval_settle(struct weir__rule_eval *eval)
{
    if (eval->reason == WEIR_BY_LIMIT && eval->quota && eval->quota->kind != WEIR__LIMITED) {
        eval->reason = eval->quota->kind == WEIR__BANNED ? WEIR_BY_BAN : WEIR_BY_UNLIMITED;
        eval->quota = NULL;
    }
    switch (eval->reason) {
    case WEIR_BY_BAN:
        eval->decision = settled(WEIR_NEVER_FITS);
        break;
    case WEIR_BY_BLOCK_LIST:
        eval->decision = settled(WEIR_BLOCKED);
        break;
    case WEIR_BY_MISSING_KEY:
        eval->decision = settled(eval->rule->on_missing == WEIR__MISSING_DENY ? WEIR_DENY : WEIR_ALLOW);
        break;
    default:
        eval->decision = settled(WEIR_ALLOW);
    }
}

bool weir__request_denied(const struct weir__request_ctx *ctx)
{
    size_t quota_hits = 0, quota_denied = 0;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!weir__eval_enforced(eval))
            continue;
        bool denies = weir__eval_denies(eval);
        if (!eval->quota_mode && denies)
            return true;
        quota_hits += eval->quota_mode;
        quota_denied += eval->quota_mode && denies;
    }
    return quota_hits && quota_hits == quota_denied;
}

static bool has_counter(const struct weir__rule_eval *eval)
{
    return eval->quota && !eval->replaced;
}

/* The counter is in the segment. */
static bool counts_here(const struct weir__rule_eval *eval)
{
    return has_counter(eval) && !eval->strict;
}

/* The request takes from this counter, which did not fail so far. */
static bool takes(const struct weir__rule_eval *eval)
{
    return weir__eval_enforced(eval) && counts_here(eval) && eval->cost > 0 && !eval->error;
}

static bool counts_rejected(const struct weir__rule_eval *eval)
{
    return eval->rule && eval->rule->count_rejected;
}

/* Rolls back the takes of evals [0, end), because the request is denied. One that denied (quota mode) took nothing. */
static void roll_back_all(const struct weir__request_ctx *ctx, size_t end)
{
    for (size_t i = 0; i < end; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!takes(eval) || weir__eval_denies(eval) || counts_rejected(eval))
            continue;
        weir__eval_decide(ctx, eval, WEIR__ROLL_BACK);
        if (eval->rule && !eval->error)
            weir__count(&weir__rule_stats_on(ctx->ruleset, eval->rule, ctx->cpu)->rolled_back, 1);
    }
    if (ctx->permits)
        ctx->permits->count = 0; /* only these evals have permits: shadows come later */
}

void weir__eval_count_verdict(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    struct weir__stats_shard *stats = &ctx->engine->segment->table.stats[ctx->cpu % WEIR__STATS_SHARDS];
    weir__count(&stats->verdict[eval->decision.verdict], 1);
    if (eval->decision.flags & WEIR_OVER_SOFT)
        weir__count(&stats->soft, 1);
}

/* Counts a denial that resulted from a peek. */
static void count_peeked(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    weir_segment *segment = ctx->engine->segment;
    weir__eval_count_verdict(ctx, eval);
    if (weir__marks(&eval->decision) && !segment->mapped.read_only)
        weir__deny_on(ctx->cpu, segment, &eval->quota->limit, eval->key, eval->key_len, ctx->now);
}

/*
 * The request is denied: takes from the counters of rules with count_rejected, and corrects what remains under the
 * others. An eval that denied stays a denial, even if its counter has room by now: the other counters are unchanged.
 */
static void take_rejected(const struct weir__request_ctx *ctx, size_t from)
{
    for (size_t i = from; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!weir__eval_enforced(eval) || !counts_here(eval) || eval->error)
            continue;
        weir_decision looked = eval->decision;
        if (takes(eval) && counts_rejected(eval) && !ctx->dry_run)
            weir__eval_decide(ctx, eval, WEIR__ADMIT);
        else if (!weir__eval_denies(eval))
            eval->decision.remaining += eval->cost;
        else if (!ctx->dry_run && eval->reason == WEIR_BY_LIMIT)
            count_peeked(ctx, eval);
        if (!weir_passes(&looked) && !weir__eval_denies(eval))
            eval->decision = looked;
    }
}

/* Takes from all counters or none. False: a concurrent request has made one of them deny. */
static bool take_all(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!takes(eval))
            continue;
        bool passed = !weir__eval_denies(eval);
        weir__eval_decide(ctx, eval, WEIR__ADMIT);
        if (!passed || !weir__eval_denies(eval) || !weir__request_denied(ctx))
            continue;
        roll_back_all(ctx, i);
        take_rejected(ctx, i + 1);
        return false;
    }
    return true;
}

/* Negative costs. They come last, since they cannot be rolled back. */
static void refund_all(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (weir__eval_enforced(eval) && counts_here(eval) && eval->cost < 0 && !eval->error)
            weir__eval_decide(ctx, eval, WEIR__ADMIT);
    }
}

bool weir__request_takes(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++)
        if (weir__eval_enforced(&ctx->evals[i]) && has_counter(&ctx->evals[i]) && ctx->evals[i].cost > 0)
            return true;
    return false;
}

void weir__request_peek(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (weir__eval_enforced(eval) && counts_here(eval))
            weir__eval_decide(ctx, eval, WEIR__PEEK);
    }
}

static void decide_enforced(struct weir__request_ctx *ctx, struct weir__rule_eval *only)
{
    bool taking = weir__request_takes(ctx);
    if (only && taking && !ctx->dry_run && !weir__request_denied(ctx)) {
        weir__eval_decide(ctx, only, WEIR__ADMIT);
        return;
    }
    weir__request_peek(ctx);
    /* A request that only refunds is never denied. */
    if (ctx->strict && !(taking && weir__request_denied(ctx)))
        weir__strict_resolve(ctx);
    if (taking && weir__request_denied(ctx))
        take_rejected(ctx, 0);
    else if (!ctx->dry_run && take_all(ctx))
        refund_all(ctx);
}

/* The one rule that denies, if all other enforced ones pass; NULL: there is none, or there are more. */
static const struct weir__rule *only_denier(const struct weir__request_ctx *ctx)
{
    const struct weir__rule_eval *denier = NULL;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!weir__eval_enforced(eval) || eval->quota_mode || !weir__eval_denies(eval))
            continue;
        if (denier)
            return NULL;
        denier = eval;
    }
    return denier ? denier->rule : NULL;
}

/*
 * A shadow rule counts the requests that it would count if it were enforced: those that the other rules allow. The
 * enforced rule of the same name is not one of them: the shadow would replace it.
 */
static void decide_shadows(struct weir__request_ctx *ctx)
{
    bool was_denied = weir__request_denied(ctx);
    const struct weir__rule *denier = only_denier(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->shadow || !has_counter(eval))
            continue;
        bool passes = !was_denied || (denier && eval->rule && weir__text_equal(denier->name, eval->rule->name));
        eval->keeps_units = passes;
        if (eval->strict)
            weir__strict_shadow(ctx, eval);
        if (counts_here(eval))
            weir__eval_decide(ctx, eval, passes && !ctx->dry_run && eval->cost != 0 ? WEIR__ADMIT : WEIR__PEEK);
    }
}

bool weir__eval_counts_denied(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval)
{
    return ctx->charge_denied && !ctx->dry_run && has_counter(eval) && eval->cost > 0 &&
           !eval->quota->limit.count_rejected && eval->quota->limit.algorithm != WEIR_CONCURRENCY &&
           (eval->report || eval->quota->limit.algorithm == WEIR_FIXED_WINDOW);
}

/*
 * Charges the counters of a denied request: all of them if the request is denied, otherwise (quota mode, shadows) those
 * that denied. The verdicts stay, also if a charge fails; an eval that allowed reports what remains. The store charges
 * the counters of strict rules itself: WEIR__OP_COUNT.
 */
static void charge_denied(const struct weir__request_ctx *ctx)
{
    bool all = weir__request_denied(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        weir_decision made;
        bool denies = weir__eval_denies(eval);
        if (eval->strict || eval->error || !(all || denies) || !weir__eval_counts_denied(ctx, eval))
            continue;
        if (weir__eval_operate(ctx, eval, WEIR__SETTLE, &made) == 0 && !denies)
            eval->decision = made;
    }
}

/* Which of two denials is reported: limits before shedding, then by report_priority, then the longest wait. */
static bool is_reported_before(const struct weir__rule_eval *a, const struct weir__rule_eval *b)
{
    if ((a->reason == WEIR_BY_SHED) != (b->reason == WEIR_BY_SHED))
        return b->reason == WEIR_BY_SHED;
    int left = a->rule ? a->rule->report_priority : 0, right = b->rule ? b->rule->report_priority : 0;
    if (left != right)
        return left > right;
    uint64_t a_wait = (uint64_t)a->decision.retry_after_ns, b_wait = (uint64_t)b->decision.retry_after_ns;
    return a_wait > b_wait; /* -1, never, is the longest */
}

/* The rule that an allowed request reports: `response: { report }` of the first rule that has it. Empty: none. */
static weir_text report_of(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; ctx->ruleset->rules->has_report && i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (eval->rule && eval->rule->response.report.len && weir__eval_enforced(eval))
            return eval->rule->response.report;
    }
    return (weir_text){NULL, 0};
}

/* The named rule before others with a counter, these before rules without one, and any rule before none. */
static int weight(const struct weir__rule_eval *eval, weir_text report)
{
    if (eval->reason != WEIR_BY_LIMIT)
        return eval->reason != WEIR_BY_NOTHING;
    return report.len && eval->rule && weir__rule_is_called(eval->rule, report) ? 3 : 2;
}

/* Which of two evals that allow is reported: by weight, then the smaller share left. */
static bool is_tighter(const struct weir__rule_eval *a, const struct weir__rule_eval *b, weir_text report)
{
    if (report.len || a->reason != b->reason) { /* else their weights are equal */
        int left = weight(a, report), right = weight(b, report);
        if (left != right)
            return left > right;
    }
    return weir__smaller_share(&a->decision, &b->decision);
}

/* Of equals the first, so that what a client sees does not alternate between them. */
static const struct weir__rule_eval *choose(const struct weir__request_ctx *ctx, bool deny)
{
    const struct weir__rule_eval *best = NULL;
    const weir_text report = deny ? (weir_text){NULL, 0} : report_of(ctx);
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!weir__eval_enforced(eval) || weir__eval_denies(eval) != deny)
            continue;
        if (!best || (deny ? is_reported_before(eval, best) : is_tighter(eval, best, report)))
            best = eval;
    }
    return best;
}

/* Counts one eval in the statistics of its rule; `denied`: the request as a whole. */
__attribute__((hot)) static void count_eval(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval,
                                            bool denied)
{
    if (!eval->rule || eval->replaced || eval->cost <= 0 || eval->skipped)
        return;
    struct weir__rule_stats_shard *to = weir__rule_stats_on(ctx->ruleset, eval->rule, ctx->cpu);
    bool denies = weir__eval_denies(eval);
    if (eval->reason == WEIR_BY_MISSING_KEY) {
        weir__count(&to->missing_key, 1);
        if (!denies)
            return; /* the rule did not apply */
    }
    if (eval->reason == WEIR_BY_FAILURE || eval->store_error)
        weir__count(&to->failures, 1);
    if (eval->reason == WEIR_BY_ALLOW_LIST || eval->reason == WEIR_BY_BLOCK_LIST)
        weir__count(&to->listed, 1);
    if (denies && eval->reason == WEIR_BY_SHED) {
        weir__count(weir__rule_stats_shed(ctx->ruleset->rule_stats[eval->rule->index], (int)ctx->priority), 1);
        return;
    }
    /* Denied by another rule: this one neither allowed nor denied it. */
    if (denied && !denies && !eval->shadow)
        return;
    uint64_t *sum = denies ? &to->denied : eval->decision.verdict == WEIR_DELAY ? &to->delayed : &to->allowed;
    weir__count(sum, 1);
    weir__hot_sampler_add(ctx, eval, weir__load64(sum));
}

static void count(const struct weir__request_ctx *ctx, bool denied)
{
    for (size_t i = 0; i < ctx->count; i++)
        count_eval(ctx, &ctx->evals[i], denied);
}

/* Marks the strict evals; sends their ops if the caller has not and the engine has connections. */
static struct weir__pooled_connection *prepare(struct weir__request_ctx *ctx)
{
    struct weir__pooled_connection *pooled = NULL;
    if (!ctx->async && ctx->engine->connection_pool) {
        pooled = weir__strict_request(ctx);
        for (size_t i = 0; i < ctx->count; i++)
            weir__eval_settle(&ctx->evals[i]); /* again: the peeks have changed them */
    }
    weir__strict_mark(ctx);
    return pooled;
}

static void decide(struct weir__request_ctx *ctx, struct weir__rule_eval *only, bool shadows)
{
    if (ctx->strict)
        weir__strict_apply(ctx);
    decide_enforced(ctx, ctx->strict ? NULL : only);
    if (shadows)
        decide_shadows(ctx);
    if (ctx->charge_denied)
        charge_denied(ctx);
    if (ctx->strict)
        weir__strict_keep(ctx);
    if (ctx->ruleset->leased)
        weir__lease_put_back(ctx);
}

/* After a take on a fast path: the ledger, warnings and statistics. */
static inline void record_all(struct weir__request_ctx *ctx, bool observed)
{
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        if (observed) {
            weir__delta_ledger_record(ctx, eval, eval->cost);
            weir__eval_warn(ctx, eval, false);
        }
        count_eval(ctx, eval, false);
    }
}

/* The fast path: every rule allows the request, and each counter is in one slot. False: nothing is taken. */
static inline bool decide_fast(struct weir__request_ctx *ctx)
{
    const bool observed = ctx->ruleset->observed;
    for (size_t i = 0; observed && i < ctx->count; i++)
        if (weir__delta_ledger_unavailable(ctx->ruleset, ctx->evals[i].rule))
            return false;
    if (!weir__take_all_fast(ctx))
        return false;
    record_all(ctx, observed);
    return true;
}

/* The fast path of requests with leased rules. False: nothing is taken. */
static bool decide_leased(struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++)
        if (weir__delta_ledger_unavailable(ctx->ruleset, ctx->evals[i].rule))
            return false;
    if (!weir__take_all_leased(ctx))
        return false;
    record_all(ctx, ctx->ruleset->observed);
    return true;
}

static __attribute__((noinline)) const struct weir__rule_eval *decide_slow(struct weir__request_ctx *ctx)
{
    struct weir__rule_eval *only = NULL;
    size_t counters = 0;
    bool shadows = false;
    for (size_t i = 0; i < ctx->count; i++) {
        struct weir__rule_eval *eval = &ctx->evals[i];
        weir__eval_settle(eval);
        if (has_counter(eval) && weir__delta_ledger_unavailable(ctx->ruleset, eval->rule)) {
            weir__eval_fail(eval, WEIR_ESTOREBREAKER);
            eval->quota = NULL;
        }
        if (weir__eval_enforced(eval) && has_counter(eval)) {
            counters++;
            only = eval;
        }
        shadows |= eval->shadow;
    }
    if (ctx->load_aware && weir__overload_must_shed(ctx)) {
        const struct weir__rule_eval *by = weir__overload_shed(ctx);
        count(ctx, true);
        return by;
    }
    struct weir__pooled_connection *pooled = NULL;
    if (ctx->ruleset->strict)
        pooled = prepare(ctx);
    decide(ctx, counters == 1 ? only : NULL, shadows);
    weir__connection_pool_release(pooled);
    if (ctx->load_aware)
        weir__overload_mark_shed(ctx);
    bool denied = weir__request_denied(ctx);
    if (!ctx->dry_run)
        count(ctx, denied);
    for (size_t i = 0; i < ctx->count && ctx->ruleset->warnings && !ctx->dry_run; i++)
        weir__eval_warn(ctx, &ctx->evals[i], denied);
    return choose(ctx, denied);
}

__attribute__((always_inline)) static inline const struct weir__rule_eval *evaluate_fast(struct weir__request_ctx *ctx)
{
    if (ctx->fast && decide_fast(ctx))
        return ctx->count == 1 ? ctx->evals : choose(ctx, false);
    ctx->fast = false;
    return ctx->ruleset->leased && decide_leased(ctx) ? choose(ctx, false) : NULL;
}

const struct weir__rule_eval *weir__evaluate_fast(struct weir__request_ctx *ctx)
{
    return evaluate_fast(ctx);
}

__attribute__((hot)) const struct weir__rule_eval *weir__evaluate(struct weir__request_ctx *ctx)
{
    const struct weir__rule_eval *by = evaluate_fast(ctx);
    return by ? by : decide_slow(ctx);
}
