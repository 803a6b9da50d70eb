/* Formats the compact result of an allowed request (fast_result.h); the takes of the fast path are in take_all_fast.c.
 */
#include "engine/fast_result.h"
#include "base/number.h"
#include "engine/permits.h"

/* ---- Plans, made when the rules are loaded: precomputed header texts, and whether the fast path applies ---- */

/* The end of RateLimit's value if both numbers are 0. */
#define NUMBERS "0;t=0"

static struct weir__rule_plan *make(struct weir__arena *memory, const struct weir__rule *rule)
{
    const struct weir__quota *quota = rule->quotas;
    const struct weir__rule_eval eval = {
        .rule = rule, .quota = quota, .decision = {.verdict = WEIR_ALLOW, .limit = quota->limit.hard}};
    weir_result result = {.decision = eval.decision, .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT};
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT];
    weir__eval_outcome(&eval, &result.decided_by);
    result.decided_by.effective_window_ns = 0;
    (void)weir_result_header_values(&result, NULL, values, lens);
    size_t fields_len = (size_t)lens[WEIR_HEADER_POLICY] + lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1);
    size_t len = rule->name.len + lens[WEIR_HEADER_LIMIT] + fields_len;
    struct weir__rule_plan *plan = weir__arena_take(memory, sizeof *plan + len + WEIR__PLAN_TEXT_STEP);
    if (!plan)
        return NULL;
    const char *policy = values + lens[WEIR_HEADER_LIMIT] + lens[WEIR_HEADER_REMAINING] + lens[WEIR_HEADER_RESET];
    *plan = (struct weir__rule_plan){.limit = quota->limit.hard,
                                     .headers = rule->response.headers,
                                     .name_len = (uint8_t)rule->name.len,
                                     .limit_len = (uint8_t)lens[WEIR_HEADER_LIMIT],
                                     .policy_len = lens[WEIR_HEADER_POLICY],
                                     .ratelimit_len = (uint16_t)(lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1))};
    char *to = plan->text;
    to = (char *)memcpy(to, rule->name.data, rule->name.len) + rule->name.len;
    to = (char *)memcpy(to, values, plan->limit_len) + plan->limit_len;
    memcpy(to, policy, fields_len);
    return plan;
}

/* The flags of the plan of a rule. */
static unsigned flags_of(const struct weir__ruleset *ruleset, const weir_rules *rules, const struct weir__rule *rule,
                         bool read_only)
{
    const bool leased = ruleset->consistency[rule->index] == WEIR__LEASED;
    bool local = !read_only && !rules->load_aware && (!ruleset->strict || ruleset->leased_only) &&
                 ruleset->consistency[rule->index] != WEIR__STRICT;
    unsigned flags = 0;
    if (local && (leased || weir__is_one_slot(&rule->quotas[0].limit)) && rule->cost.fallback > 0)
        flags |= leased ? WEIR__PLAN_LEASED : WEIR__PLAN_FAST;
    return weir__template_is_address(&rule->key, &rules->attributes) ? flags | WEIR__PLAN_ADDRESS : flags;
}

bool weir__rule_plans_make(struct weir__ruleset *ruleset, const weir_rules *rules, bool read_only)
{
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (!rules->gates[i].plain)
            continue;
        struct weir__rule_plan *plan = ruleset->plan[i] = make(&ruleset->arena, rule);
        if (!plan)
            return false;
        plan->flags = flags_of(ruleset, rules, rule, read_only);
        plan->cost = weir__units_of(rule->quotas, rule->cost.fallback);
    }
    return true;
}

/* ---- Results ---- */

/* The text between the numbers of RateLimit. */
#define BETWEEN ";t="

/* Without `qu`: such rules do not have the fast path. */
#define POLICY_MAX   (2 * WEIR_NAME_MAX + 2 + 2 * WEIR__DIGITS_MAX + 16)
#define TEMPLATE_MAX (WEIR_NAME_MAX + WEIR__FAST_MAX * POLICY_MAX + POLICY_MAX + 4 * WEIR__DIGITS_MAX)
_Static_assert(TEMPLATE_MAX + WEIR__KEY_MAX + 2 * WEIR__PLAN_TEXT_STEP <= WEIR__FAST_RESULT_BYTES, "all of it fits");

/* ---- Headers ---- */

/*
 * Copies in 16-byte blocks. Both buffers are padded, so reading and writing past `len` is safe, and one inlined copy
 * usually suffices.
 */
static inline char *put(char *to, const char *from, size_t len)
{
    memcpy(to, from, WEIR__PLAN_TEXT_STEP);
    for (size_t i = WEIR__PLAN_TEXT_STEP; i < len; i += WEIR__PLAN_TEXT_STEP)
        memcpy(to + i, from + i, WEIR__PLAN_TEXT_STEP);
    return to + len;
}

static inline char *put_second(char *to, uint64_t number, struct weir__second *last)
{
    if (last->number != number || last->len == 0) {
        last->number = number;
        last->len = (uint64_t)(weir__write_digits(last->text, number) - last->text);
    }
    return put(to, last->text, last->len);
}

static inline const char *limit_of(const struct weir__rule_plan *plan)
{
    return plan->text + plan->name_len;
}

static inline const char *policy_of(const struct weir__rule_plan *plan)
{
    return limit_of(plan) + plan->limit_len;
}

/* The policies of all rules that allowed the request. */
static inline char *put_policies(char *to, const struct weir__rule_plan *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to = put(to, policy_of(all[i]), all[i]->policy_len);
        *to++ = ',';
    }
    return to - 1;
}

/* True if the rule allows by its own limit, in the segment or in the store, and there is nothing else to report. */
static bool is_fast(const struct weir__rule_eval *eval, const struct weir__rule_plan *plan)
{
    const weir_decision *decision = &eval->decision;
    return eval->quota == eval->rule->quotas && eval->reason == WEIR_BY_LIMIT && decision->verdict == WEIR_ALLOW &&
           decision->limit == plan->limit && decision->remaining >= 0 && decision->reset_after_ns >= 0 &&
           !eval->permit_number && !eval->store_error && !(decision->flags & WEIR_WARNED);
}

__attribute__((hot)) bool weir__fast_result_fill(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                                                 const weir_query *query, struct weir__fast_result *fast)
{
    const struct weir__rule_plan *all[WEIR__FAST_MAX];
    if (!by || by->decision.verdict != WEIR_ALLOW || ctx->count - 1 >= WEIR__FAST_MAX ||
        (ctx->count > 1 && query->outcomes_max < ctx->count)) /* the caller does not list all rules */
        return false;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        all[i] = eval->rule ? ctx->ruleset->plan[eval->rule->index] : NULL;
        if (!all[i] || eval->key_len > WEIR_KEY_SHOWN_MAX || (!ctx->fast && !is_fast(eval, all[i])))
            return false;
    }
    const struct weir__rule_plan *plan = all[by - ctx->evals];
    if (plan->headers & WEIR_HEADERS_LIST_ALL && ctx->count > 1)
        return false;
    const weir_decision *decision = &by->decision;
    char remaining[WEIR__DIGITS_MAX + WEIR__PLAN_TEXT_STEP], *from;
    char *values = put(put(fast->text, plan->text, plan->name_len), by->key, by->key_len), *to = values;
    unsigned headers = fast->headers ? plan->headers : 0;
    size_t digits = 0;

    memset(fast->lens, 0, sizeof fast->lens);
    if (headers & (WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT))
        digits = (size_t)(weir__write_digits(remaining, (uint64_t)decision->remaining) - remaining);
#define VALUE(header, put) (from = to, to = (put), fast->lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns + (headers & WEIR_HEADERS_RESET_DELTA ? 0 : ctx->now.wall_ns);
        VALUE(LIMIT, put(to, limit_of(plan), plan->limit_len));
        VALUE(REMAINING, put(to, remaining, digits));
        VALUE(RESET, put_second(to, (uint64_t)weir__seconds_up(reset), fast->reset));
    }
    if (headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put_policies(to, all, ctx->count));
        from = to;
        to = put(to, policy_of(plan) + plan->policy_len, plan->ratelimit_len);
        to = put(to, remaining, digits);
        to = (char *)memcpy(to, BETWEEN, sizeof BETWEEN - 1) + sizeof BETWEEN - 1;
        int64_t window = weir__effective_window_ns(&by->quota->limit, by->quota->window_ns, decision);
        to = weir__write_digits(to, (uint64_t)weir__seconds_up(window));
        fast->lens[WEIR_HEADER_RATELIMIT] = (uint16_t)(to - from);
    }
#undef VALUE
    fast->rule_len = plan->name_len;
    fast->key_len = (uint8_t)by->key_len;
    fast->values_len = (uint16_t)(to - values);
    fast->limit = decision->limit;
    fast->remaining = decision->remaining;
    fast->filled = true;
    return true;
}
