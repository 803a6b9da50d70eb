/* What rules say each time, written when they are read. See fast_path.h. */
#include "engine/fast_path.h"
#include "engine/evaluation.h"

/* What RateLimit's value ends in when both numbers are 0. */
#define NUMBERS "0;t=0"

static struct weir__spoken *make(struct weir__arena *memory, const struct weir__rule *rule)
{
    const struct weir__quota *quota = rule->quotas;
    const struct weir__hit hit = {
        .rule = rule, .quota = quota, .decision = {.verdict = WEIR_ALLOW, .limit = quota->limit.hard}};
    weir_answer answer = {.decision = hit.decision, .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT};
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT];
    weir__hit_tell(&hit, &answer.by);
    (void)weir_answer_values(&answer, NULL, values, lens);
    size_t said = (size_t)lens[WEIR_HEADER_POLICY] + lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1);
    size_t len = rule->name.len + lens[WEIR_HEADER_LIMIT] + said;
    struct weir__spoken *spoken = weir__arena_take(memory, sizeof *spoken + len + WEIR__SPOKEN_STEP);
    if (!spoken)
        return NULL;
    const char *policy = values + lens[WEIR_HEADER_LIMIT] + lens[WEIR_HEADER_REMAINING] + lens[WEIR_HEADER_RESET];
    *spoken = (struct weir__spoken){.limit = quota->limit.hard,
                                    .headers = rule->response.headers,
                                    .name_len = (uint8_t)rule->name.len,
                                    .limit_len = (uint8_t)lens[WEIR_HEADER_LIMIT],
                                    .policy_len = lens[WEIR_HEADER_POLICY],
                                    .ratelimit_len = (uint16_t)(lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1))};
    char *to = spoken->text;
    to = (char *)memcpy(to, rule->name.data, rule->name.len) + rule->name.len;
    to = (char *)memcpy(to, values, spoken->limit_len) + spoken->limit_len;
    memcpy(to, policy, said);
    return spoken;
}

/* True if nothing but the rule's own counter in the segment has a say. */
static bool is_quick(const struct weir__loaded *loaded, const struct weir__rule *rule)
{
    const weir_rules *rules = loaded->rules;
    return rules->gates[rule->index].open && !rules->load_aware && !loaded->strict &&
           loaded->consistency[rule->index] != WEIR__STRICT && weir__is_one_slot(&rule->quotas[0].limit) &&
           rule->cost.usual > 0;
}

void weir__spoken_prepare(struct weir__loaded *loaded, bool read_only)
{
    const weir_rules *rules = loaded->rules;
    struct weir__arena *memory = &loaded->spoken_memory;
    loaded->spoken = weir__arena_array(memory, rules->count, sizeof(struct weir__spoken *));
    for (size_t i = 0; i < rules->count && loaded->spoken; i++) {
        const struct weir__rule *rule = rules->rules[i];
        struct weir__spoken *spoken = loaded->spoken[i] = rules->gates[i].plain ? make(memory, rule) : NULL;
        if (!spoken || read_only || !is_quick(loaded, rule))
            continue;
        spoken->quick = &rule->quotas[0].limit;
        spoken->key = &rule->key;
        spoken->address = weir__template_is_address(&rule->key, &rules->attributes) &&
                          rule->key.parts[0].literal.len + WEIR__ADDRESS4_ROOM <= WEIR_SHOWN_MAX;
        spoken->share = rule->on_missing == WEIR__MISSING_SHARE;
        spoken->tally = loaded->tally[i];
        spoken->cost = rule->cost.usual;
        spoken->written = loaded->consistency[i] == WEIR__EVENTUAL;
    }
}
