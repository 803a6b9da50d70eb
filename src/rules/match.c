/* Finds the rules of a request, and the quota and cost of a rule. Runs for every request: nothing here allocates. */
#include "rules/set.h"

#include <stdlib.h>

const char *const weir__methods[WEIR__METHODS] = {"GET",    "HEAD",    "POST",  "PUT",    "PATCH",
                                                  "DELETE", "OPTIONS", "TRACE", "CONNECT"};

/* ---- Which rules ---- */

unsigned weir__method_bit(weir_text method)
{
    for (unsigned i = 0; i < WEIR__METHODS; i++)
        if (weir__lower(method.data[0]) == weir__lower(weir__methods[i][0]) &&
            weir__text_equal_nocase(method, weir__text_of(weir__methods[i])))
            return (unsigned)WEIR__METHOD_KNOWN << i;
    return WEIR__METHOD_OTHER;
}

static bool any_matches(const struct weir__pattern *patterns, size_t count, weir_text text, bool cut,
                        struct weir__matching *matching)
{
    bool any = false;
    for (size_t i = 0; text.len && !any && i < count; i++)
        any = weir__pattern_match(&patterns[i], text, cut, matching);
    return any;
}

/*
 * An expression that reached its bound, and a value that was cut, count as matching, also under `not`: a client cannot
 * evade a rule that way.
 */
static bool holds_for(const struct weir__condition *condition, const struct weir__pattern *patterns, weir_text text,
                      bool cut, struct weir__matching *matching)
{
    uint64_t limited = matching->limited;
    bool any = any_matches(patterns, condition->pattern_count, text, cut, matching);
    return any != condition->negate || matching->limited != limited || (cut && condition->negate);
}

/* Evaluates a condition for the normal forms of the path. */
static __attribute__((noinline)) bool holds_for_normal(const struct weir__condition *condition, unsigned form,
                                                       struct weir__values *values, struct weir__matching *matching)
{
    struct weir__spelling spelling;
    for (int i = 0; i < WEIR__SPELLINGS; i++)
        if (weir__value_spelling(values, form, i, &spelling) &&
            holds_for(condition, condition->normal, spelling.text, spelling.cut, matching))
            return true;
    return false;
}

/* Evaluates a condition for several cookies or arguments of one name: the upstream may take any of them. */
static __attribute__((noinline)) bool holds_for_several(const struct weir__condition *condition,
                                                        struct weir__values *values, struct weir__matching *matching)
{
    struct weir__several several;
    weir__value_several(values, condition->attribute, &several);
    bool any = several.more, cut;
    for (size_t i = 0; i < several.count && !any; i++) {
        weir_text text = weir__several_value(&several, i, &cut);
        any = condition->absent || !text.len ? !text.len && (condition->absent || condition->negate)
                                             : holds_for(condition, condition->patterns, text, cut, matching);
    }
    return any;
}

static bool holds(const struct weir__match *match, const struct weir__condition *condition, struct weir__values *values,
                  struct weir__matching *matching)
{
    weir_text text;
    bool present = weir__value(values, condition->attribute, &text);
    if (weir__value_is_several(values, condition->attribute))
        return holds_for_several(condition, values, matching);
    bool cut = weir__value_is_cut(values, condition->attribute);
    if (condition->absent || !present)
        return !present && (cut || condition->absent || condition->negate);
    return holds_for(condition, condition->patterns, text, cut, matching) ||
           (condition->normal && (condition->normal_differs || weir__value_is_spelled(values, match->form)) &&
            holds_for_normal(condition, match->form, values, matching));
}

/* The context of verifying a candidate. */
struct verdict {
    const weir_rules *set;
    struct weir__values *values;
    struct weir__matching *matching;
    unsigned method; /* 0: not known yet */
    unsigned form;   /* only rules with this normal form; 0: all */
};

/* Verifies a candidate: methods, conditions, networks. */
static bool verify(void *context, uint32_t rule)
{
    struct verdict *v = context;
    const struct weir__gate *gate = &v->set->gates[rule];
    if (v->form && gate->form != v->form)
        return false;
    if (gate->methods != WEIR__METHOD_ANY) {
        weir_text method;
        if (!v->method)
            v->method = weir__value(v->values, WEIR__AT_METHOD, &method) ? weir__method_bit(method) : WEIR__METHOD_NONE;
        if (!(gate->methods & v->method))
            return false;
    }
    if (!gate->more)
        return true;
    const struct weir__match *match = v->set->rules[rule]->match;
    for (size_t i = 0; i < match->condition_count; i++)
        if (!holds(match, &match->conditions[i], v->values, v->matching))
            return false;
    if (!match->networks)
        return true;
    const struct weir__address *client = weir__value_client(v->values);
    return (client && weir__networks_contain(match->networks, client)) != match->networks_negate;
}

/* Adds rules that a path may match with the part that was cut off. */
static void find_beyond(const weir_rules *set, weir_text host, weir_text path, struct weir__found *found)
{
    for (size_t i = 0; i < set->open_end_count; i++) {
        const struct weir__path_entry *entry = &set->open_ends[i];
        if ((!entry->host || weir__pattern_match(entry->host, host, false, NULL)) &&
            weir__pattern_match(entry->path, path, true, NULL))
            weir__found_add(found, entry->rule);
    }
}

/* Adds the rules that match normal forms of the path. */
static __attribute__((noinline)) void find_normal(struct verdict *verdict, weir_text host, struct weir__found *found)
{
    const weir_rules *set = verdict->set;
    struct weir__spelling spelling;
    found->gates = NULL; /* which form a rule has counts even if nothing else does */
    for (verdict->form = 1; verdict->form < WEIR__FORMS; verdict->form++) {
        for (int i = 0; set->forms >> verdict->form & 1 && i < WEIR__SPELLINGS; i++) {
            if (!weir__value_spelling(verdict->values, verdict->form, i, &spelling))
                continue;
            weir__paths_find(set->paths, host, spelling.text, found);
            if (spelling.cut)
                find_beyond(set, host, spelling.text, found);
        }
    }
}

void weir__rules_match(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                       struct weir__found *found)
{
    struct verdict verdict = {.set = set, .values = values, .matching = matching};
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
    if (set->by_path && values->path_cut)
        find_beyond(set, host, path, found);
    if (set->forms && (values->path_cut || values->two_readings || weir__path_may_be_spelled(path, set->odd)))
        find_normal(&verdict, host, found);
    found->accept = NULL;
    found->context = NULL;
}

void weir__rules_filter(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                        struct weir__found *found)
{
    struct verdict verdict = {.set = set, .values = values, .matching = matching};
    size_t count = 0;
    for (size_t i = 0; i < found->count; i++)
        if (set->gates[found->rules[i]].open || verify(&verdict, found->rules[i]))
            found->rules[count++] = found->rules[i];
    found->count = count;
}

/* ---- Under a rule ---- */

const struct weir__quota *weir__rule_quota_of(const struct weir__rule *rule, weir_text tier)
{
    const struct weir__quota *listed =
        bsearch(&tier, rule->quotas, rule->quota_count, sizeof *rule->quotas, weir__text_compare);
    return listed ? listed : rule->has_default ? &rule->quotas[0] : NULL;
}

/* The value of an attribute that the values in a key determine: one of them, or what its map has for one. */
static bool in_key(const struct weir__attributes *all, const struct weir__template *tmpl,
                   const weir_text values[WEIR__TEMPLATE_PIECES], int attribute, weir_text *value)
{
    const struct weir__attribute *wanted = &all->list[attribute];
    for (int i = 0; i < tmpl->piece_count && tmpl->pieces[i].attribute >= 0; i++)
        if (tmpl->pieces[i].attribute == attribute) {
            *value = values[i];
            return value->len > 0 && !memchr(value->data, '%', value->len); /* with an escape it differs */
        }
    if (wanted->kind != WEIR__ATTR_NAMED || wanted->source < 0 || !in_key(all, tmpl, values, wanted->source, value))
        return false;
    if (wanted->mapping) {
        weir_text found = weir__map_find(wanted->mapping->map, *value);
        *value = found.len ? found : wanted->mapping->fallback;
    }
    return true;
}

bool weir__rule_quota_of_key(const weir_rules *set, const struct weir__rule *rule, weir_text key,
                             const struct weir__quota **quota)
{
    weir_text values[WEIR__TEMPLATE_PIECES] = {{NULL, 0}}, tier = {"", 0};
    if (rule->tier < 0 || key.len >= WEIR__KEY_MAX || !weir__template_matches(&rule->key, key, values) ||
        !in_key(&set->attributes, &rule->key, values, rule->tier, &tier))
        return false;
    *quota = weir__rule_quota_of(rule, tier);
    return true;
}

/* The stricter of two quotas of a rule, which differ in their units only; NULL: none. */
static const struct weir__quota *stricter(const struct weir__quota *a, const struct weir__quota *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->kind != b->kind)
        return a->kind == WEIR__BANNED || b->kind == WEIR__UNLIMITED ? a : b;
    return a->units <= b->units ? a : b;
}

/* Of several values, such as two arguments of one name, the one with the strictest quota decides. */
static __attribute__((noinline)) const struct weir__quota *quota_of_several(const struct weir__rule *rule,
                                                                            struct weir__values *values)
{
    const struct weir__quota *strictest = NULL;
    struct weir__several several;
    weir__value_several(values, rule->tier, &several);
    for (size_t i = 0; i < several.count && !several.more; i++) {
        bool cut;
        weir_text tier = weir__several_value(&several, i, &cut);
        strictest = stricter(strictest, weir__rule_quota_of(rule, cut ? (weir_text){"", 0} : tier));
    }
    for (size_t i = 0; i < rule->quota_count && several.more; i++)
        strictest = stricter(strictest, &rule->quotas[i]);
    return strictest;
}

const struct weir__quota *weir__rule_quota(const struct weir__rule *rule, struct weir__values *values)
{
    weir_text tier = {"", 0};
    bool found = rule->tier >= 0 && weir__value(values, rule->tier, &tier);
    if (rule->tier >= 0 && weir__value_is_several(values, rule->tier)) /* also if the first of them has no tier */
        return quota_of_several(rule, values);
    if (!found || weir__value_is_cut(values, rule->tier))
        return rule->has_default ? &rule->quotas[0] : NULL;
    return weir__rule_quota_of(rule, tier);
}

bool weir__rule_is_plain(const weir_rules *set, const struct weir__rule *rule)
{
    return rule->match && !rule->shadow && rule->tier < 0 && rule->has_default &&
           rule->quotas[0].kind == WEIR__LIMITED && rule->cost.attribute < 0 && !rule->cost.path_count &&
           weir__list_is_empty(&rule->allow) && weir__list_is_empty(&rule->block) && weir__list_is_empty(&set->allow) &&
           weir__list_is_empty(&set->block);
}

/* Parses the cost in an attribute, from 1 to `max`. False: it is not a number. */
static bool cost_from(weir_text text, int64_t max, int64_t *cost)
{
    *cost = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!weir__is_digit(text.data[i]))
            return false;
        if (*cost < max) /* of 32 bits, so that this does not overflow */
            *cost = *cost * 10 + (text.data[i] - '0');
    }
    *cost = *cost < 1 ? 1 : *cost > max ? max : *cost;
    return text.len > 0;
}

/* The cost of a path: by the first pattern that matches; of a cut path, the highest that may match. */
static int64_t cost_of_path(const struct weir__cost *cost, bool normal, weir_text path, bool cut,
                            struct weir__matching *matching)
{
    int64_t most = -1;
    for (size_t i = 0; i < cost->path_count; i++) {
        const struct weir__pattern *pattern = normal ? &cost->paths[i].normal : &cost->paths[i].path;
        if (!any_matches(pattern, 1, path, cut, matching))
            continue;
        if (!cut)
            return cost->paths[i].cost;
        most = cost->paths[i].cost > most ? cost->paths[i].cost : most;
    }
    return cut && most > cost->fallback ? most : cost->fallback;
}

/* The highest of the costs of the normal forms and `most`. */
static __attribute__((noinline)) int64_t cost_of_normal(const struct weir__rule *rule, struct weir__values *values,
                                                        int64_t most, struct weir__matching *matching)
{
    struct weir__spelling spelling;
    for (int i = 0; i < WEIR__SPELLINGS; i++) {
        if (!weir__value_spelling(values, rule->match->form, i, &spelling))
            continue;
        int64_t cost = cost_of_path(&rule->cost, true, spelling.text, spelling.cut, matching);
        most = cost > most ? cost : most;
    }
    return most;
}

static int64_t cost_without_attribute(const struct weir__rule *rule, struct weir__values *values,
                                      struct weir__matching *matching)
{
    const struct weir__cost *cost = &rule->cost;
    weir_text text;
    if (!cost->path_count || !weir__value(values, WEIR__AT_PATH, &text))
        return cost->fallback;
    int64_t sent = cost_of_path(cost, false, text, values->path_cut, matching);
    unsigned form = rule->match ? rule->match->form : 0;
    return form && (cost->normal_differs || weir__value_is_spelled(values, form))
               ? cost_of_normal(rule, values, sent, matching)
               : sent;
}

/* The highest by any of several cookies or arguments of one name. */
static __attribute__((noinline)) int64_t cost_of_several(const struct weir__rule *rule, struct weir__values *values,
                                                         struct weir__matching *matching)
{
    struct weir__several several;
    weir__value_several(values, rule->cost.attribute, &several);
    int64_t most = several.more ? rule->cost.max : 0, cost_given;
    for (size_t i = 0; i < several.count; i++) {
        bool cut;
        if (!cost_from(weir__several_value(&several, i, &cut), rule->cost.max, &cost_given))
            cost_given = cost_without_attribute(rule, values, matching);
        most = cost_given > most ? cost_given : most;
    }
    return most;
}

int64_t weir__rule_cost(const struct weir__rule *rule, struct weir__values *values, struct weir__matching *matching)
{
    const struct weir__cost *cost = &rule->cost;
    weir_text text;
    int64_t cost_given;
    if (cost->attribute >= 0) {
        bool given = weir__value(values, cost->attribute, &text);
        if (weir__value_is_several(values, cost->attribute))
            return cost_of_several(rule, values, matching);
        if (given && cost_from(text, cost->max, &cost_given))
            return cost_given;
    }
    return cost_without_attribute(rule, values, matching);
}

bool weir__list_has_key(const struct weir__access_list *list, weir_text key, bool surely)
{
    bool cut = key.len == WEIR__KEY_MAX;
    if (list->key_count && bsearch(&key, list->keys, list->key_count, sizeof *list->keys, weir__text_compare))
        return true;
    if (cut)
        key.len = WEIR__KEY_KEPT; /* the rest is a hash */
    for (size_t i = 0; i < list->glob_count; i++) {
        weir_text glob = list->globs[i].text;
        if (cut && !surely ? weir__glob_may_match(glob, key, false, false)
                           : (!cut || glob.data[glob.len - 1] == '*') && weir__glob_match(glob, key, false, false))
            return true;
    }
    return false;
}
