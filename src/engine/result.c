/* From the evaluated rules to the result for the caller. */
#include "engine/evaluation.h"
#include "engine/response.h"

#define UNAVAILABLE_STATUS 503 /* of requests that are shed, or whose counter failed */

/* Copies as much of a text as fits, and a zero byte. Returns the length. */
static size_t show(char *to, size_t size, weir_text text)
{
    size_t len = text.len < size - 1 ? text.len : size - 1;
    if (len)
        memcpy(to, text.data, len);
    to[len] = 0;
    return len;
}

int64_t weir__window_left_ns(const weir_limit *limit, int64_t window_ns, const weir_decision *decision)
{
    int64_t reset_ns = decision->reset_after_ns, left = decision->remaining;
    int64_t used = limit->hard - left, wanted = left > 0 ? 1 : 1 - left;
    if (reset_ns <= 0)
        return window_ns;                      /* nothing is in use */
    if (limit->algorithm == WEIR_TOKEN_BUCKET) /* until the refill that makes a unit available */
        reset_ns -= ((used - 1) / limit->limit - (wanted - 1) / limit->limit) * window_ns;
    return reset_ns;
}

void weir_outcome_set_policy(weir_outcome *outcome, const weir_limit *limit)
{
    bool flight = limit->algorithm == WEIR_CONCURRENCY;
    int64_t window = outcome->window_ns;
    if (limit->hard != limit->limit)
        window = weir__mul_div_up(limit->hard, window, limit->limit);
    outcome->unit = flight ? WEIR_UNIT_CONCURRENT_REQUESTS : WEIR_UNIT_REQUESTS;
    outcome->capacity = limit->hard;
    outcome->policy_window_ns = flight ? 0 : window;
    outcome->effective_window_ns =
        flight ? -1 : weir__effective_window_ns(limit, outcome->window_ns, &outcome->decision);
}

void weir__eval_outcome(const struct weir__rule_eval *eval, weir_outcome *outcome)
{
    outcome->decision = eval->decision;
    outcome->reason = eval->reason;
    outcome->error = eval->error ? eval->error : eval->store_error;
    outcome->shadow = eval->shadow;
    outcome->cost = eval->cost;
    if (eval->quota) {
        outcome->quota = eval->quota->units;
        outcome->effective_limit = eval->quota->limit.limit;
        outcome->window_ns = eval->quota->window_ns;
        weir_outcome_set_policy(outcome, &eval->quota->limit);
        if (eval->rule && eval->rule->counts_bytes && outcome->unit == WEIR_UNIT_REQUESTS)
            outcome->unit = WEIR_UNIT_CONTENT_BYTES;
    } else {
        outcome->quota = outcome->effective_limit = outcome->capacity = eval->reason == WEIR_BY_BAN ? 0 : -1;
        outcome->window_ns = outcome->policy_window_ns = 0;
        outcome->effective_window_ns = -1;
        outcome->unit = WEIR_UNIT_REQUESTS;
    }
    weir_text none = eval->reason == WEIR_BY_NOTHING ? WEIR__TEXT("") : WEIR__TEXT("request");
    show(outcome->rule, sizeof outcome->rule, eval->rule ? eval->rule->name : none);
    outcome->key_len = (uint16_t)show(outcome->key, sizeof outcome->key, (weir_text){eval->key, eval->key_len});
    outcome->key_cut = outcome->key_len < eval->key_len;
}

const char *weir__reason_name(enum weir_reason reason, enum weir_verdict verdict, bool in_flight)
{
    static const char *const names[] = {
        [WEIR_BY_NOTHING] = "no_rule",       [WEIR_BY_ALLOW_LIST] = "allow_list",
        [WEIR_BY_BLOCK_LIST] = "block_list", [WEIR_BY_BAN] = "ban",
        [WEIR_BY_UNLIMITED] = "unlimited",   [WEIR_BY_MISSING_KEY] = "missing_key",
        [WEIR_BY_FAILURE] = "store_failure", [WEIR_BY_SHED] = "shed",
    };
    if (reason != WEIR_BY_LIMIT)
        return names[reason];
    return verdict == WEIR_NEVER_FITS          ? "never_fits"
           : verdict == WEIR_BLOCKED           ? "blocked"
           : verdict == WEIR_DENY && in_flight ? "concurrency"
                                               : "limit";
}

const char *weir_outcome_reason(const weir_outcome *outcome)
{
    const weir_decision *decision = &outcome->decision;
    if (outcome->reason == WEIR_BY_LIMIT && weir_passes(decision) && decision->flags & WEIR_OVER_SOFT)
        return "soft";
    /* the counter of requests in flight has no time of recovery */
    return weir__reason_name(outcome->reason, decision->verdict, decision->reset_after_ns < 0);
}

uint64_t weir_outcome_id(const weir_outcome *outcome)
{
    size_t len = strnlen(outcome->rule, sizeof outcome->rule);
    return weir__rule_id((weir_text){outcome->rule, len}, outcome->shadow);
}

/* True if every rule that denies has on_limit: queue, and waiting helps. */
static bool may_wait(const struct weir__request_ctx *ctx)
{
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!weir__eval_enforced(eval) || !weir__eval_denies(eval))
            continue;
        if (!eval->rule || eval->rule->on_limit != WEIR_ON_LIMIT_QUEUE || eval->reason != WEIR_BY_LIMIT ||
            eval->decision.verdict != WEIR_DENY || eval->decision.retry_after_ns < 0)
            return false;
    }
    return true;
}

int64_t weir__eval_base_cost(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by)
{
    int64_t cost = by->cost;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!eval->shadow && eval->rule && weir__text_equal(eval->rule->base, by->rule->base) && eval->cost > cost)
            cost = eval->cost;
    }
    return cost;
}

/* check.c copies key, tier and the other rules into the caller's buffer. */
static void fill_deferral(const struct weir__request_ctx *ctx, const struct weir__rule_eval *eval, weir_deferral *to)
{
    const struct weir__rule *rule = eval->rule;
    show(to->rule, sizeof to->rule, rule->base);
    to->key = to->tier = to->others = (weir_text){NULL, 0};
    to->cost = weir__eval_base_cost(ctx, eval);
    to->max = rule->queue.max;
    to->max_bytes = rule->queue.max_bytes;
    to->max_age_ms = rule->queue.max_age_ms;
}

bool weir__rule_missing(const struct weir__rule *rule, struct weir__values *values, char text[WEIR_MISSING_MAX + 1])
{
    int attribute = weir__template_missing(&rule->key, values);
    return weir__value_missing_text(values, attribute >= 0 ? attribute : rule->tier, text, WEIR_MISSING_MAX + 1);
}

/* Status and text body of the rule are for requests over its limit. */
static void fill_denied(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, weir_result *result)
{
    const struct weir__response *response = &by->rule->response;
    bool banned = by->reason == WEIR_BY_BAN;
    if (result->on_limit == WEIR_ON_LIMIT_QUEUE) {
        result->on_limit = may_wait(ctx) ? WEIR_ON_LIMIT_QUEUE : WEIR_ON_LIMIT_REJECT;
        fill_deferral(ctx, by, &result->deferral);
    }
    enum weir__denial_kind kind = weir__denial_kind_of(by->reason, by->decision.verdict);
    switch (kind) {
    case WEIR__DENIED_BY_LIMIT:
        result->status = response->status;
        return;
    case WEIR__DENIED_BY_BLOCK:
        result->status = banned && response->own_status ? response->status : response->blocked.status;
        break;
    case WEIR__DENIED_MISSING:
        result->status = weir__rule_missing(by->rule, &ctx->scratch->values, result->missing) ? 401 : 400;
        if (response->missing.status)
            result->status = response->missing.status;
        break;
    case WEIR__DENIED_FAILURE:
    case WEIR__DENIED_SHED:
        result->status = UNAVAILABLE_STATUS;
    }
    if (result->body == WEIR_BODY_TEXT && !(banned && response->own_body))
        result->body = WEIR_BODY_AUTO;
}

/*
 * The longest wait of all rules that deny: a client that waits that long is not denied by another one. -1, never, is
 * the longest. Not of rules in quota mode, where one that allows suffices. If none denies, the longest delay.
 */
static void report_longest(const struct weir__request_ctx *ctx, bool passes, weir_result *result)
{
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        weir_decision *to = &result->decision;
        bool denies = weir__eval_denies(eval), enforced = weir__eval_enforced(eval);
        result->shadow_denied |= passes && eval->shadow && denies;
        if (!passes && enforced && denies && !eval->quota_mode &&
            (uint64_t)eval->decision.retry_after_ns > (uint64_t)to->retry_after_ns)
            to->retry_after_ns = eval->decision.retry_after_ns;
        if (passes && enforced && eval->decision.verdict == WEIR_DELAY) {
            bool longer = to->verdict != WEIR_DELAY || eval->decision.delay_ns > to->delay_ns;
            to->verdict = WEIR_DELAY;
            to->delay_ns = longer ? eval->decision.delay_ns : to->delay_ns;
        }
    }
}

void weir__request_result(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, weir_result *result)
{
    static const struct weir__rule_eval none = {.reason = WEIR_BY_NOTHING, .decision = {.limit = -1, .remaining = -1}};
    /* Field by field: most of a result is buffers for names, and clearing all of it costs as much as a decision. */
    result->now = ctx->now;
    result->matched = ctx->count;
    result->outcomes = 0;
    result->shadow_denied = false;
    result->message = result->body_text = result->tier = (weir_text){NULL, 0};
    result->missing[0] = 0;
    result->status = 0;
    result->headers = 0;
    result->body = WEIR_BODY_AUTO;
    result->on_limit = WEIR_ON_LIMIT_REJECT;
    result->priority = ctx->priority;
    if (!by || by->reason == WEIR_BY_NOTHING) {
        by = NULL;
        weir__eval_outcome(&none, &result->decided_by);
        result->decision = none.decision;
    } else {
        weir__eval_outcome(by, &result->decided_by);
        result->decision = by->decision;
    }
    bool passes = weir_passes(&result->decision);
    if (by && by->rule) {
        const struct weir__response *response = &by->rule->response;
        result->headers = response->headers;
        result->body = response->body;
        result->on_limit = by->rule->on_limit;
        if (!passes)
            fill_denied(ctx, by, result);
    } else if (by) {
        result->headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER;
        result->status = passes ? 0 : by->reason == WEIR_BY_SHED ? UNAVAILABLE_STATUS : 429;
    }
    report_longest(ctx, passes, result);
}
