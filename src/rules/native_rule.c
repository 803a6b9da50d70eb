/* The native dialect: rules and their limits. */
#include "base/number.h"
#include "rules/set.h"
#include "rules/native.h"

#include <stdlib.h>

/* The fields: up to LEASE those of a limit, in a rule or in one of its `limits`; then those of a rule. */
#define EACH_FIELD(X)                                                                                                  \
    X(LIMIT, "limit")                                                                                                  \
    X(WINDOW, "window")                                                                                                \
    X(NAME, "name")                                                                                                    \
    X(MAX_DELAY, "max_delay")                                                                                          \
    X(ALGORITHM, "algorithm")                                                                                          \
    X(BURST, "burst")                                                                                                  \
    X(REFILL, "refill")                                                                                                \
    X(ALIGN, "align")                                                                                                  \
    X(TIMEZONE, "timezone")                                                                                            \
    X(BUCKETS, "buckets")                                                                                              \
    X(ROUND, "round")                                                                                                  \
    X(COUNT_REJECTED, "count_rejected")                                                                                \
    X(SOFT, "soft")                                                                                                    \
    X(LEASE, "lease")                                                                                                  \
    X(MATCH, "match")                                                                                                  \
    X(KEY, "key")                                                                                                      \
    X(LIMITS, "limits")                                                                                                \
    X(TIER, "tier")                                                                                                    \
    X(COST, "cost")                                                                                                    \
    X(ON_MISSING_KEY, "on_missing_key")                                                                                \
    X(ON_LIMIT, "on_limit")                                                                                            \
    X(QUEUE, "queue")                                                                                                  \
    X(SHADOW, "shadow")                                                                                                \
    X(CONSISTENCY, "consistency")                                                                                      \
    X(ON_STORE_FAILURE, "on_store_failure")                                                                            \
    X(PRIORITY, "priority")                                                                                            \
    X(RESPONSE, "response")                                                                                            \
    X(ALLOW, "allow")                                                                                                  \
    X(BLOCK, "block")                                                                                                  \
    X(ELASTIC, "elastic")                                                                                              \
    X(ADAPTIVE, "adaptive")                                                                                            \
    X(RESERVE, "reserve")

#define FIELD_ENUM(field, name) field,
enum field { EACH_FIELD(FIELD_ENUM) FIELDS };

#define FIELD_NAME(field, name) name,
static const char *const names[FIELDS] = {EACH_FIELD(FIELD_NAME)};

/* A rule under construction: what its limits share, and its nodes. */
struct rule_reader {
    struct weir__builder *builder;
    struct weir__diagnostics *report;
    const struct weir__node *node;
    const struct weir__node *at[FIELDS];
    struct weir__overload_nodes overload;
    struct weir__rule rule;
    bool delay;
    bool unknown;    /* it has unknown fields: a missing one is probably misspelt */
    bool shared_bad; /* the parameters that its limits share have an error */
};

#define WINDOW_MISSING "window is missing: how long is the limit for?"

/* ---- Names ---- */

/* Names go into headers, logs and metrics. */
static bool check_name(struct weir__diagnostics *report, struct weir__place place, weir_text name)
{
    if (!name.len || name.len > WEIR_NAME_MAX)
        return weir__report_error(report, place, "a name has 1 to %d bytes, not %zu", WEIR_NAME_MAX, name.len);
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\')
            return weir__report_error(report, place, "a name has no control characters, quotes or backslashes");
    }
    return true;
}

/* "rule/1h": the rule's name and that of one of its limits. Empty after an error. */
static weir_text make_name(struct rule_reader *reader, const struct weir__node *entry_name,
                           const struct weir__node *window)
{
    weir_text base = reader->rule.base, none = {"", 0};
    const struct weir__node *from = entry_name ? entry_name : window;
    if (!base.len || !from || from->kind != WEIR__SCALAR)
        return none; /* was reported */
    size_t len = base.len + 1 + from->text.len;
    char *data = weir__arena_take(&reader->builder->set->arena, len + 1);
    if (!data)
        return none;
    memcpy(data, base.data, base.len);
    data[base.len] = '/';
    memcpy(data + base.len + 1, from->text.data, from->text.len);
    weir_text name = {data, len};
    if (!from->text.len) {
        weir__report_error(reader->report, from->place, "the name is empty");
        return none;
    }
    return check_name(reader->report, from->place, name) ? name : none;
}

/* ---- Quotas ---- */

/* The parameters of one limit. */
struct numbers {
    struct weir__limit_nodes nodes;
    struct weir__parsed_window window;
    weir_params params;
};

/* 0, a number, or unlimited. */
static bool read_units(struct weir__diagnostics *report, const struct weir__node *node, struct weir__quota *quota)
{
    static const char *const choices[] = {"unlimited"};
    int64_t units;

    if (node->kind == WEIR__SCALAR && weir__text_is(node->text, choices[0])) {
        quota->kind = WEIR__UNLIMITED;
        return true;
    }
    if (node->kind == WEIR__SCALAR && !node->quoted && !weir__parse_int(node->text, &units))
        return weir__report_unknown(report, node->place, node->text, choices, 1,
                                    "limit is a number of 0 or more, unlimited, or a map of tiers, not \"%s\"%s",
                                    node->text.data,
                                    memchr(node->text.data, '/', node->text.len) ? ": the time goes in window" : "");
    if (!weir__field_int(report, node, "limit", 0, INT64_C(0xffffffff), &units))
        return false;
    quota->units = units;
    quota->kind = units ? WEIR__LIMITED : WEIR__BANNED;
    return true;
}

/* The units of every tier, in the order in which they were written. */
static bool read_tiers(struct rule_reader *reader, const struct weir__node *node, struct weir__rule *rule,
                       struct weir__quota *quotas)
{
    bool good = true, limits_something = false;
    if (!node->count)
        return weir__report_error(reader->report, node->place, "limit is an empty map: give at least a default");
    for (const struct weir__node *tier = node->first; tier; tier = tier->next) {
        struct weir__quota *quota = &quotas[rule->quota_count++];
        bool is_default = weir__text_is(tier->name->text, "default");
        if (!tier->name->text.len)
            good = weir__report_error(reader->report, tier->name->place, "a tier has a name");
        quota->tier = is_default ? (weir_text){"", 0} : tier->name->text;
        rule->has_default |= is_default;
        good &= read_units(reader->report, tier, quota);
        limits_something |= quota->kind != WEIR__UNLIMITED;
    }
    if (!rule->has_default)
        weir__report_warning(reader->report, node->name->place,
                             "no default: requests of other tiers, or of none, are not limited by this rule");
    if (good && !limits_something && !reader->rule.overload.has_class)
        weir__report_warning(reader->report, node->name->place, "every tier is unlimited: the rule limits nothing");
    return good;
}

/* Reads the units of a limit or of its tiers. NULL after an error. */
static struct weir__quota *read_quotas(struct rule_reader *reader, const struct weir__node *node,
                                       struct weir__rule *rule)
{
    bool by_tier = node->kind == WEIR__MAP;
    struct weir__quota *quotas =
        weir__arena_array(&reader->builder->set->arena, by_tier ? node->count + 1 : 1, sizeof *quotas);
    if (!quotas)
        return NULL;
    rule->quotas = quotas;
    if (by_tier) {
        if (!read_tiers(reader, node, rule, quotas))
            return NULL;
        if (rule->quota_count == 1 && rule->has_default)
            rule->tier = -1;
        return quotas;
    }
    rule->tier = -1;
    rule->quota_count = 1;
    rule->has_default = true;
    if (!read_units(reader->report, node, quotas))
        return NULL;
    if (quotas->kind == WEIR__UNLIMITED && !reader->rule.overload.has_class) /* else it is there for that */
        weir__report_warning(reader->report, node->place, "unlimited: the rule limits nothing");
    return quotas;
}

/* The default has the empty name and comes first. */
static int compare_tiers(const void *a, const void *b)
{
    return weir__text_order(((const struct weir__quota *)a)->tier, ((const struct weir__quota *)b)->tier);
}

/* Completes the quotas, which are in file order, and sorts them. */
static bool make_limits(struct rule_reader *reader, struct numbers *numbers, const struct weir__node *node,
                        struct weir__quota *quotas, size_t count)
{
    const struct weir__node *at = node->kind == WEIR__MAP ? node->first : node;
    bool good = true, looked = false;
    for (size_t i = 0; i < count; i++, at = at->next) {
        struct weir__quota *quota = &quotas[i];
        quota->window_ns = weir__algorithm_window_ns(&numbers->params);
        if (quota->kind != WEIR__LIMITED)
            continue;
        if (!numbers->nodes.window && numbers->params.algorithm != WEIR_CONCURRENCY)
            return weir__report_error(reader->report, numbers->nodes.map->place, WINDOW_MISSING);
        numbers->nodes.limit = at;
        numbers->params.limit = quota->units;
        good &= weir__algorithm_make(reader->builder, &numbers->nodes, &numbers->params, &quota->limit) &&
                weir__native_scaled_limit(reader->builder, &reader->overload, &reader->rule, &numbers->params, quota);
        if (good && !looked)
            weir__lint_limit(reader->report, numbers->nodes.map->place, &quota->limit);
        looked = true; /* the other tiers differ only in their units */
    }
    qsort(quotas, count, sizeof *quotas, compare_tiers);
    return good;
}

/* ---- One limit: the rule's own, or one of a list ---- */

/* Reads max_delay; only the leaky bucket delays. */
static bool read_delay(struct rule_reader *reader, const struct weir__node *max_delay, weir_params *params)
{
    struct weir__parsed_window longest;
    if (reader->delay && params->algorithm != WEIR_LEAKY_BUCKET)
        return weir__report_error(
            reader->report, reader->at[ON_LIMIT]->place,
            "on_limit: delay needs algorithm: leaky_bucket, which knows when a request may leave");
    if (max_delay && !reader->delay)
        return weir__report_error(reader->report, max_delay->name->place, "max_delay goes with on_limit: delay");
    params->delay = reader->delay;
    if (!max_delay)
        return true;
    if (!weir__field_window(reader->report, max_delay, "max_delay", &longest))
        return false;
    params->max_delay_ns = longest.ns;
    return true;
}

/* Reports fields that a limit of requests in flight cannot have. */
static bool check_flight(const struct rule_reader *reader, const weir_params *params)
{
    bool later = reader->rule.consistency_given && reader->rule.consistency == WEIR__EVENTUAL;
    if (params->algorithm != WEIR_CONCURRENCY)
        return true;
    if (reader->at[COST])
        weir__report_error(reader->report, reader->at[COST]->name->place,
                           "cost is not for concurrency: a request in flight takes one slot");
    if (later)
        weir__report_error(
            reader->report, reader->at[CONSISTENCY]->place,
            "concurrency cannot be eventual: what others hold now must be known now; use strict, or local");
    return !reader->at[COST] && !later;
}

/* The window, and the algorithm with its parameters. */
static bool read_numbers(struct rule_reader *reader, const struct weir__node *const *at, struct numbers *numbers)
{
    bool listed = numbers->nodes.outer, own = false;
    bool flight = weir__algorithm_is_concurrency(&numbers->nodes);
    if (listed && !at[WINDOW] && !at[NAME])
        return weir__report_error(reader->report, numbers->nodes.map->place,
                                  flight ? "name is missing: what is this limit called?" : WINDOW_MISSING);
    if (at[WINDOW] && !weir__field_window(reader->report, at[WINDOW], names[WINDOW], &numbers->window))
        return false;
    for (int field = ALGORITHM; field <= LEASE; field++)
        own |= at[field] != NULL;
    if (listed && !own && reader->shared_bad)
        return false; /* has only the rule's parameters, whose errors were reported */
    const struct weir__node *max_delay = at[MAX_DELAY] ? at[MAX_DELAY] : reader->at[MAX_DELAY];
    bool good =
        weir__algorithm_read(reader->builder, &numbers->nodes, &numbers->window, WEIR__NATIVE, &numbers->params) &&
        read_delay(reader, max_delay, &numbers->params) && check_flight(reader, &numbers->params) &&
        weir__native_reserve(reader->report, &reader->overload, numbers->params.algorithm);
    reader->shared_bad |= !good && !own;
    return good;
}

/* Makes a rule of one limit, and adds it. `entry` has the limit's fields in at[]. */
static void add_limit(struct rule_reader *reader, const struct weir__node *entry, const struct weir__node *const *at)
{
    struct weir__diagnostics *report = reader->report;
    bool listed = entry != reader->node;
    struct weir__rule rule = reader->rule;
    struct numbers numbers = {
        .nodes = {.map = entry, .outer = listed ? reader->node : NULL, .window = at[WINDOW], .limit = at[LIMIT]}};

    rule.place = entry->place;
    rule.name = listed ? make_name(reader, at[NAME], at[WINDOW]) : rule.base;
    bool good = read_numbers(reader, at, &numbers);
    if (!at[LIMIT]) {
        if (!reader->unknown)
            weir__report_error(report, entry->place, "limit is missing");
        return;
    }
    struct weir__quota *quotas = read_quotas(reader, at[LIMIT], &rule);
    numbers.params.id = weir__rule_id(rule.name, rule.shadow);
    rule.count_rejected = numbers.params.count_rejected;
    if (!good || !quotas || !make_limits(reader, &numbers, at[LIMIT], quotas, rule.quota_count) || !rule.name.len ||
        !rule.match)
        return;
    if (reader->at[COST])
        weir__lint_cost(report, reader->at[COST]->place, &rule, weir__node_get(reader->at[COST], "max") != NULL);
    weir__builder_add(reader->builder, &rule);
}

static void add_listed(struct rule_reader *reader)
{
    const struct weir__node *list = reader->at[LIMITS];
    for (int field = LIMIT; field <= WINDOW; field++)
        if (reader->at[field])
            weir__report_error(reader->report, reader->at[field]->name->place,
                               "%s and limits: a rule has one or the other", names[field]);
    if (list->kind != WEIR__LIST || !list->count) {
        weir__report_error(reader->report, list->place, "limits is a list of { limit, window }, not %s",
                           list->kind == WEIR__LIST ? "an empty one" : weir__node_is(list));
        return;
    }
    for (const struct weir__node *entry = list->first; entry; entry = entry->next) {
        const struct weir__node *at[FIELDS];
        bool good = weir__native_pick(reader->report, entry, "limits", names, FIELDS, at);
        for (int field = MATCH; field < FIELDS; field++)
            if (at[field])
                good = weir__report_error(reader->report, at[field]->name->place,
                                          "%s belongs to the rule, not to one of its limits", names[field]);
        if (good)
            add_limit(reader, entry, at);
    }
}

/* ---- The rest of a rule ---- */

/* The index of the field's word; 0, the default, if it is missing. */
static int read_word(const struct rule_reader *reader, enum field field, const char *const *choices, size_t count)
{
    int word = 0;
    if (reader->at[field])
        weir__field_choice(reader->report, reader->at[field], names[field], choices, count, &word);
    return word;
}

static bool read_bool(const struct rule_reader *reader, enum field field)
{
    bool value = false;
    if (reader->at[field])
        weir__field_bool(reader->report, reader->at[field], names[field], &value);
    return value;
}

static void read_policy(struct rule_reader *reader)
{
    static const char *const missing[] = {"skip", "deny", "share"};
    static const char *const on_limit[] = {"reject", "delay", "queue"};
    static const char *const consistency[] = {"local", "eventual", "strict"};
    static const char *const failure[] = {"local", "open", "closed"};
    struct weir__rule *rule = &reader->rule;

    rule->on_missing = (enum weir__on_missing)read_word(reader, ON_MISSING_KEY, missing, WEIR__COUNT(missing));
    rule->on_limit = (enum weir_on_limit)read_word(reader, ON_LIMIT, on_limit, WEIR__COUNT(on_limit));
    rule->consistency = (enum weir__consistency)read_word(reader, CONSISTENCY, consistency, WEIR__COUNT(consistency));
    rule->consistency_given = reader->at[CONSISTENCY] != NULL;
    if (rule->consistency_given)
        rule->consistency_place = reader->at[CONSISTENCY]->place;
    rule->on_failure = (enum weir__on_failure)read_word(reader, ON_STORE_FAILURE, failure, WEIR__COUNT(failure));
    reader->delay = rule->on_limit == WEIR_ON_LIMIT_DELAY;

    if (reader->at[QUEUE] && rule->on_limit != WEIR_ON_LIMIT_QUEUE)
        weir__report_error(reader->report, reader->at[QUEUE]->name->place, "queue goes with on_limit: queue");
    else if (reader->at[QUEUE])
        weir__native_queue(reader->report, reader->at[QUEUE], &rule->queue);
    if (rule->shadow && rule->on_limit == WEIR_ON_LIMIT_QUEUE)
        weir__report_warning(reader->report, reader->at[ON_LIMIT]->place,
                             "a shadow rule denies nothing: none of its requests comes into a queue");
    if (rule->shadow && reader->at[RESPONSE])
        weir__report_warning(reader->report, reader->at[RESPONSE]->name->place,
                             "a shadow rule never answers: its response has no effect");
}

/* Reads the key, and the lists of keys that are allowed or blocked. */
static void read_key(struct rule_reader *reader)
{
    struct weir__builder *builder = reader->builder;
    struct weir__rule *rule = &reader->rule;
    const struct weir__node *node = reader->at[KEY];
    weir_text text;
    if (node && weir__field_text(reader->report, node, "key", &text)) {
        if (!text.len)
            weir__report_error(reader->report, node->place,
                               "the key is empty; without one there is one bucket for all");
        else if (weir__template_compile(&rule->key, &builder->set->attributes, &builder->set->arena, reader->report,
                                        node->place, text))
            weir__lint_key(builder, node->place, &rule->key);
    }
    if (reader->at[ALLOW] && weir__native_list(builder, reader->at[ALLOW], "allow", &rule->allow))
        weir__lint_listed(builder, reader->at[ALLOW]->place, &rule->key, &rule->allow);
    if (reader->at[BLOCK] && weir__native_list(builder, reader->at[BLOCK], "block", &rule->block))
        weir__lint_listed(builder, reader->at[BLOCK]->place, &rule->key, &rule->block);
}

static bool has_tiers(const struct rule_reader *reader)
{
    if (reader->at[LIMIT])
        return reader->at[LIMIT]->kind == WEIR__MAP;
    for (const struct weir__node *entry = reader->at[LIMITS] ? reader->at[LIMITS]->first : NULL; entry;
         entry = entry->next) {
        const struct weir__node *limit = entry->kind == WEIR__MAP ? weir__node_get(entry, names[LIMIT]) : NULL;
        if (limit && limit->kind == WEIR__MAP)
            return true;
    }
    return false;
}

/* The attribute that chooses the tier. */
static void read_tier(struct rule_reader *reader)
{
    const struct weir__node *node = reader->at[TIER];
    struct weir__builder *builder = reader->builder;
    weir_text text = WEIR__TEXT("tier");
    reader->rule.tier = -1;
    if (node && !has_tiers(reader)) {
        weir__report_error(reader->report, node->name->place, "tier goes with a limit that is a map of tiers");
        return;
    }
    if (!has_tiers(reader) || (node && !weir__field_text(reader->report, node, names[TIER], &text)))
        return;
    int attribute = weir__attribute_parse(&builder->set->attributes, &builder->set->arena, reader->report,
                                          node ? node->place : reader->node->place, text);
    reader->rule.tier = (int16_t)attribute;
    if (node && attribute >= 0)
        weir__lint_tier(builder, node->place, attribute);
}

void weir__native_rule(struct weir__builder *builder, const struct weir__node *node)
{
    struct rule_reader reader = {.builder = builder, .report = builder->report, .node = node};
    struct weir__rule *rule = &reader.rule;
    const struct weir__node *const *at = reader.at;
    weir_text name;

    reader.unknown = !weir__native_pick(reader.report, node, "a rule", names, FIELDS, reader.at);
    if (node->kind != WEIR__MAP)
        return;
    if (!at[NAME] && !reader.unknown)
        weir__report_error(reader.report, node->place, "a rule has a name");
    else if (at[NAME] && weir__field_text(reader.report, at[NAME], names[NAME], &name) &&
             check_name(reader.report, at[NAME]->place, name))
        rule->base = name;
    rule->cost = (struct weir__cost){.fallback = 1, .attribute = -1};
    rule->response = builder->set->response;
    rule->shadow = read_bool(&reader, SHADOW);
    read_policy(&reader);
    reader.overload = (struct weir__overload_nodes){at[ELASTIC], at[ADAPTIVE], at[RESERVE], at[PRIORITY]};
    weir__native_overload(builder, &reader.overload, rule);
    rule->match = weir__native_match(builder, at[MATCH]);
    read_key(&reader);
    if (at[COST])
        weir__native_cost(builder, at[COST], &rule->cost);
    if (at[RESPONSE])
        weir__native_response(builder, at[RESPONSE], &rule->response);
    read_tier(&reader);
    if (at[LIMITS])
        add_listed(&reader);
    else
        add_limit(&reader, node, at);
    builder->set->attributes.form = builder->set->form; /* it was that of the rule */
}
