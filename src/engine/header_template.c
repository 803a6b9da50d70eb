/* The plans of the rules, compiled at load time. See fast_result.h. */
#include "engine/fast_result.h"
#include "engine/permits.h"

/* What RateLimit's value ends in when both numbers are 0. */
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

/* What the plan of a rule with one limit and one cost allows. */
static unsigned flags_of(const struct weir__ruleset *ruleset, const struct weir__rule *rule, bool read_only)
{
    const weir_rules *rules = ruleset->rules;
    bool local =
        !read_only && !rules->load_aware && !ruleset->strict && ruleset->consistency[rule->index] != WEIR__STRICT;
    unsigned flags = 0;
    if (local && weir__is_one_slot(&rule->quotas[0].limit) && rule->cost.fallback > 0)
        flags |= WEIR__PLAN_FAST;
    return weir__template_is_address(&rule->key, &rules->attributes) ? flags | WEIR__PLAN_ADDRESS : flags;
}

void weir__rule_plans_make(struct weir__ruleset *ruleset, bool read_only)
{
    const weir_rules *rules = ruleset->rules;
    struct weir__arena *memory = &ruleset->plans_arena;
    ruleset->plan = weir__arena_array(memory, rules->count, sizeof(struct weir__rule_plan *));
    for (size_t i = 0; i < rules->count && ruleset->plan; i++) {
        const struct weir__rule *rule = rules->rules[i];
        struct weir__rule_plan *plan = ruleset->plan[i] = rules->gates[i].plain ? make(memory, rule) : NULL;
        if (!plan)
            continue;
        plan->flags = flags_of(ruleset, rule, read_only);
        plan->cost = weir__units_of(rule->quotas, rule->cost.fallback);
    }
}
