/* From a request to its rules, and from a rule to its quota and cost. Runs for every request: nothing here allocates.
 */
#include "rules/set.h"

const char *const weir__methods[] = {"GET",    "HEAD",    "POST",  "PUT",     "PATCH",
                                     "DELETE", "OPTIONS", "TRACE", "CONNECT", NULL};

/* ---- Which rules ---- */

static unsigned method_bit(struct weir__values *values)
{
    weir_text method;
    if (!weir__value(values, WEIR__AT_METHOD, &method))
        return WEIR__METHOD_NONE;
    for (unsigned i = 0; weir__methods[i]; i++) {
        weir_text usual = {weir__methods[i], strlen(weir__methods[i])};
        if (weir__lower(method.data[0]) == weir__lower(usual.data[0]) && weir__text_equal_nocase(method, usual))
            return (unsigned)WEIR__METHOD_USUAL << i;
    }
    return WEIR__METHOD_OTHER;
}

static bool holds(const struct weir__condition *condition, struct weir__values *values, struct weir__matching *matching)
{
    weir_text text;
    bool present = weir__value(values, condition->attribute, &text);
    if (condition->absent)
        return !present;
    uint64_t limited = matching->limited;
    bool any = false;
    for (size_t i = 0; present && !any && i < condition->pattern_count; i++)
        any = weir__pattern_match(&condition->patterns[i], text, matching);
    /* An expression that reached its bound says "matches" without knowing: nobody escapes a `not` that way either. */
    return any != condition->negate || matching->limited != limited;
}

/* What the last word on a rule needs. */
struct verdict {
    const weir_rules *set;
    struct weir__values *values;
    struct weir__matching *matching;
    unsigned method; /* 0: not looked at yet */
};

/* What the index does not decide. */
static bool verify(void *context, uint32_t rule)
{
    struct verdict *v = context;
    const struct weir__gate *gate = &v->set->gates[rule];
    if (gate->methods != WEIR__METHOD_ANY) {
        if (!v->method)
            v->method = method_bit(v->values);
        if (!(gate->methods & v->method))
            return false;
    }
    if (!gate->more)
        return true;
    const struct weir__match *match = v->set->rules[rule]->match;
    for (size_t i = 0; i < match->condition_count; i++)
        if (!holds(&match->conditions[i], v->values, v->matching))
            return false;
    if (!match->networks)
        return true;
    const struct weir__address *client = weir__value_client(v->values);
    return (client && weir__networks_contain(match->networks, client)) != match->networks_negate;
}

void weir__rules_match(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                       struct weir__found *found)
{
    struct verdict verdict = {set, values, matching, 0};
    weir_text host = {"", 0}, path = {"", 0};
    found->count = 0;
    found->overflow = false;
    if (!set->own_count)
        return;
    if (set->by_host && !weir__value(values, WEIR__AT_HOST, &host))
        host.len = 0;
    if (set->by_path)
        path = weir__value_path(values);
    found->accept = verify;
    found->context = &verdict;
    found->gates = set->gates;
    weir__paths_find(set->paths, host, path, found);
    found->accept = NULL;
    found->context = NULL;
}

/* ---- Under a rule ---- */

const struct weir__quota *weir__rule_quota(const struct weir__rule *rule, struct weir__values *values)
{
    const struct weir__quota *usual = rule->has_default ? &rule->quotas[0] : NULL;
    weir_text tier;
    if (rule->tier < 0 || !weir__value(values, rule->tier, &tier))
        return usual;
    /* The default, whose name is empty, is first. */
    size_t low = rule->has_default ? 1 : 0, high = rule->quota_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = weir__text_order(rule->quotas[middle].tier, tier);
        if (order == 0)
            return &rule->quotas[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return usual;
}

static bool is_empty(const struct weir__list *list)
{
    return !list->networks && !list->glob_count && !list->key_count;
}

bool weir__rule_is_plain(const weir_rules *set, const struct weir__rule *rule)
{
    return rule->match && !rule->shadow && rule->tier < 0 && rule->has_default &&
           rule->quotas[0].kind == WEIR__LIMITED && rule->cost.attribute < 0 && !rule->cost.path_count &&
           is_empty(&rule->allow) && is_empty(&rule->block) && is_empty(&set->allow) && is_empty(&set->block);
}

/* What an attribute says a request costs: at least 1, at most `max`. False: it says nothing that makes sense. */
static bool cost_from(weir_text text, int64_t max, int64_t *cost)
{
    while (text.len > 1 && text.data[0] == '0') {
        text.data++;
        text.len--;
    }
    if (!weir__parse_int(text, cost)) {
        /* So many digits that they are no number any more are still a lot. */
        for (size_t i = 0; i < text.len; i++)
            if (text.data[i] < '0' || text.data[i] > '9')
                return false;
        *cost = max;
        return text.len > 0;
    }
    if (*cost < 0)
        return false;
    *cost = *cost < 1 ? 1 : *cost > max ? max : *cost;
    return true;
}

int64_t weir__rule_cost(const struct weir__rule *rule, struct weir__values *values, struct weir__matching *matching)
{
    const struct weir__cost *cost = &rule->cost;
    weir_text text;
    int64_t said;
    if (cost->attribute >= 0 && weir__value(values, cost->attribute, &text) && cost_from(text, cost->max, &said))
        return said;
    if (!cost->path_count || !weir__value(values, WEIR__AT_PATH, &text))
        return cost->usual;
    for (size_t i = 0; i < cost->path_count; i++)
        if (weir__pattern_match(&cost->paths[i].path, text, matching))
            return cost->paths[i].cost;
    return cost->usual;
}

bool weir__list_has_key(const struct weir__list *list, weir_text key)
{
    size_t low = 0, high = list->key_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = weir__text_order(list->keys[middle], key);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = 0; i < list->glob_count; i++)
        if (weir__glob_match(list->globs[i].text, key, false, false))
            return true;
    return false;
}
