/* What rules say each time, written when they are read. See fast_path.h. */
#include "engine/fast_path.h"
#include "engine/evaluation.h"

/* What RateLimit's value ends in when both numbers are 0. */
#define NUMBERS "0;t=0"

static struct weir__rule_plan *make(struct weir__arena *memory, const struct weir__rule *rule)
{
    const struct weir__quota *quota = rule->quotas;
    const struct weir__rule_eval eval = {
        .rule = rule, .quota = quota, .decision = {.verdict = WEIR_ALLOW, .limit = quota->limit.hard}};
    weir_result answer = {.decision = eval.decision, .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT};
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT];
    weir__eval_outcome(&eval, &answer.decided_by);
    (void)weir_result_header_values(&answer, NULL, values, lens);
    size_t said = (size_t)lens[WEIR_HEADER_POLICY] + lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1);
    size_t len = rule->name.len + lens[WEIR_HEADER_LIMIT] + said;
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
    memcpy(to, policy, said);
    return plan;
}

/* True if nothing but the rule's own counter in the segment has a say. */
static bool is_quick(const struct weir__ruleset *ruleset, const struct weir__rule *rule)
{
    const weir_rules *rules = ruleset->rules;
    return rules->gates[rule->index].open && !rules->load_aware && !ruleset->strict &&
           ruleset->consistency[rule->index] != WEIR__STRICT && weir__is_one_slot(&rule->quotas[0].limit) &&
           rule->cost.fallback > 0;
}

void weir__rule_plans_make(struct weir__ruleset *ruleset, bool read_only)
{
    const weir_rules *rules = ruleset->rules;
    struct weir__arena *memory = &ruleset->plans_arena;
    ruleset->plan = weir__arena_array(memory, rules->count, sizeof(struct weir__rule_plan *));
    for (size_t i = 0; i < rules->count && ruleset->plan; i++) {
        const struct weir__rule *rule = rules->rules[i];
        struct weir__rule_plan *plan = ruleset->plan[i] = rules->gates[i].plain ? make(memory, rule) : NULL;
        if (!plan || read_only || !is_quick(ruleset, rule))
            continue;
        plan->quick = &rule->quotas[0].limit;
        plan->key = &rule->key;
        plan->address = weir__template_is_address(&rule->key, &rules->attributes) &&
                        rule->key.pieces[0].literal.len + WEIR__ADDRESS4_ROOM <= WEIR_KEY_SHOWN_MAX;
        plan->share = rule->on_missing == WEIR__MISSING_SHARE;
        plan->rule_stats = ruleset->rule_stats[i];
        plan->cost = rule->cost.fallback;
        plan->written = ruleset->consistency[i] == WEIR__EVENTUAL;
    }
}
