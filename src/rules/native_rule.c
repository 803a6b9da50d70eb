/* The native dialect: rules and their limits. */
#include "base/number.h"
#include "rules/set.h"
#include "rules/native.h"

#include <stdio.h>
#include <stdlib.h>

/* A rule under construction: what its limits share. */
struct rule_reader {
    struct weir__builder *builder;
    const struct weir__node *node;
    struct weir__rule rule;
    bool unknown;    /* it has unknown fields: a missing one is probably misspelt */
    bool shared_bad; /* the parameters that its limits share have an error */
};

#define WINDOW_MISSING "window is missing: how long is the limit for?"

/* ---- Fields ---- */

static bool read_key(void *context, const struct weir__node *node, const char *what, void *to)
{
    struct weir__builder *builder = context;
    weir_rules *set = builder->set;
    struct weir__template *key = to;
    weir_text text;
    if (!weir__field_text(node, what, &text))
        return false;
    if (!text.len)
        return weir__node_error(node, "the key is empty; without one there is one bucket for all");
    if (!weir__template_compile(key, &set->attributes, &set->arena, node->report, node->place, text))
        return false;
    void **shared = weir__label_insert(&builder->keys, &set->arena, set->attributes.form, key->source);
    if (!shared)
        return false;
    if (!*shared)
        *shared = (void *)key->pieces;
    key->pieces = *shared;
    weir__lint_key(&set->attributes, node, key);
    return true;
}

static const char *const missing[] = {"skip", "deny", "share", NULL};
static const char *const on_limit[] = {"reject", "delay", "queue", NULL};
static const char *const consistency[] = {"local", "eventual", "strict", "leased", NULL};
static const char *const failure[] = {"local", "open", "closed", NULL};

#define RULE(member) WEIR__IN(struct weir__rule, member)

/* The fields of a rule. The first may also be those of one of its `limits`. */
enum { OF_LIMITS = 14, OWN_PARAMETERS = 4 };
static const struct weir__field fields[] = {
    {.name = "limit"},
    {.name = "window"},
    {.name = "name"},
    {.name = "max_delay"},
    {.name = "algorithm"}, /* this and the rest of a limit: algorithm.c */
    {.name = "burst"},
    {.name = "refill"},
    {.name = "align"},
    {.name = "timezone"},
    {.name = "buckets"},
    {.name = "round"},
    {.name = "count_rejected"},
    {.name = "soft"},
    {.name = "lease"},
    {.name = "match"}, /* read before the others, which depend on its normal form of paths */
    {.name = "limits"},
    {.name = "tier"},
    {.name = "priority"}, /* this, elastic, adaptive and reserve: weir__native_overload */
    {.name = "elastic"},
    {.name = "adaptive"},
    {.name = "reserve"},
    {"report_priority", WEIR__FIELD_INT, RULE(report_priority), .min = INT32_MIN, .max = INT32_MAX},
    {"shadow", WEIR__FIELD_BOOL, RULE(shadow)},
    {"on_missing_key", WEIR__FIELD_CHOICE, RULE(on_missing), .choices = missing},
    {"on_limit", WEIR__FIELD_CHOICE, RULE(on_limit), .choices = on_limit},
    {"consistency", WEIR__FIELD_CHOICE, RULE(consistency), .choices = consistency,
     .place = offsetof(struct weir__rule, consistency_place)},
    {"on_store_failure", WEIR__FIELD_CHOICE, RULE(on_failure), .choices = failure},
    {"queue", WEIR__FIELD_READ, RULE(queue), .read = weir__native_queue},
    {"warn_at", WEIR__FIELD_READ, RULE(warn_at), .read = weir__native_warn_at},
    {"key", WEIR__FIELD_READ, RULE(key), .read = read_key},
    {"allow", WEIR__FIELD_READ, RULE(allow), .read = weir__native_list},
    {"block", WEIR__FIELD_READ, RULE(block), .read = weir__native_list},
    {"cost", WEIR__FIELD_READ, RULE(cost), .read = weir__native_cost},
    {"response", WEIR__FIELD_READ, RULE(response), .read = weir__native_response},
};

/* Reports an unknown field of a rule or of one of its limits (`what`). */
static void report_unknown(const struct weir__node *name, const char *what)
{
    /* Fields of a field of a rule. */
    static const char *const inner[][2] = {{"match", "path,method,host,header,query,network,normalize"},
                                           {"response", "status,headers,reset,report,body,message,blocked,missing"}};
    const char *names[WEIR__COUNT(fields)];
    char shown[WEIR__SHOWN];
    bool rule = strcmp(what, "a rule") == 0;
    const char *inside = rule ? weir__report_meant(name->text, WEIR__LIST_OF(inner)) : NULL;
    for (size_t i = 0; i < WEIR__COUNT(fields); i++)
        names[i] = fields[i].name;
    weir__printable(name->text, shown, sizeof shown);
    if (inside)
        weir__node_error(name, "a rule has no field \"%s\"; it belongs in %s: { %s: … }", shown, inside, shown);
    else
        weir__field_unknown(name, what, names, WEIR__COUNT(names));
}

/* Checks the names of the fields of a rule, or of one of its limits. */
static bool check_fields(const struct weir__node *map, const char *what, bool listed)
{
    int errors = map->report->errors;
    if (map->kind != WEIR__MAP)
        return weir__field_names(map, what, NULL, 0);
    for (const struct weir__node *member = map->first; member; member = member->next) {
        size_t i = 0;
        while (i < WEIR__COUNT(fields) && !weir__text_is(member->name->text, fields[i].name))
            i++;
        if (i == WEIR__COUNT(fields))
            report_unknown(member->name, what);
        else if (listed && i >= OF_LIMITS)
            weir__node_error(member->name, "%s belongs to the rule, not to one of its limits", fields[i].name);
    }
    return map->report->errors == errors;
}

/* ---- Names ---- */

/* Names go into headers, logs and metrics. */
static bool check_name(const struct weir__node *node, weir_text name)
{
    if (!name.len || name.len > WEIR_NAME_MAX)
        return weir__node_error(node, "a name has 1 to %d bytes, not %zu", WEIR_NAME_MAX, name.len);
    if (!weir__text_sound(name) || memchr(name.data, '"', name.len) || memchr(name.data, '\\', name.len))
        return weir__node_error(node, "a name has no control characters, quotes or backslashes");
    return true;
}

/* "rule/1h": the rule's name and that of one of its limits. Empty after an error. */
static weir_text make_name(struct rule_reader *reader, const struct weir__node *from)
{
    char text[2 * WEIR_NAME_MAX + 4];
    weir_text base = reader->rule.base, none = {"", 0};
    if (!base.len || !from || from->kind != WEIR__SCALAR)
        return none; /* was reported */
    if (!from->text.len) {
        weir__node_error(from, "the name is empty");
        return none;
    }
    weir_text name = {text, base.len + 1 + from->text.len};
    snprintf(text, sizeof text, "%s/%s", base.data, from->text.data);
    return check_name(from, name) ? weir__arena_copy(&reader->builder->set->arena, name) : none;
}

/* ---- Quotas ---- */

/* The parameters of one limit. */
struct numbers {
    struct weir__limit_nodes nodes;
    struct weir__parsed_window window;
    weir_params params;
};

/* 0, a number, or unlimited. */
static bool read_units(const struct weir__node *node, struct weir__quota *quota)
{
    static const char *const choices[] = {"unlimited"};
    int64_t units;

    if (node->kind == WEIR__SCALAR && weir__text_is(node->text, choices[0])) {
        quota->kind = WEIR__UNLIMITED;
        return true;
    }
    if (node->kind == WEIR__SCALAR && !node->quoted && !weir__parse_int(node->text, &units))
        return weir__node_unknown(
            node, node->text, choices, 1, "limit is a number of 0 or more, unlimited, or a map of tiers, not \"%s\"%s",
            node->text.data, memchr(node->text.data, '/', node->text.len) ? ": the time goes in window" : "");
    if (!weir__field_int(node, "limit", 0, INT64_C(0xffffffff), &units))
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
        return weir__node_error(node, "limit is an empty map: give at least a default");
    for (const struct weir__node *tier = node->first; tier; tier = tier->next) {
        struct weir__quota *quota = &quotas[rule->quota_count++];
        bool is_default = weir__text_is(tier->name->text, "default");
        if (!tier->name->text.len)
            good = weir__node_error(tier->name, "a tier has a name");
        quota->tier = is_default ? (weir_text){"", 0} : tier->name->text;
        rule->has_default |= is_default;
        good &= read_units(tier, quota);
        limits_something |= quota->kind != WEIR__UNLIMITED;
    }
    if (!rule->has_default)
        weir__node_warning(node->name, "no default: requests of other tiers, or of none, are not limited by this rule");
    if (good && !limits_something && !reader->rule.overload.has_class)
        weir__node_warning(node->name, "every tier is unlimited: the rule limits nothing");
    return good;
}

/* Reads the units of a limit or of its tiers. NULL after an error. */
static struct weir__quota *read_quotas(struct rule_reader *reader, const struct weir__node *node,
                                       struct weir__rule *rule)
{
    bool by_tier = node->kind == WEIR__MAP;
    struct weir__quota *quotas =
        weir__arena_lines(&reader->builder->set->arena, (by_tier ? node->count + 1 : 1) * sizeof *quotas);
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
    if (!read_units(node, quotas))
        return NULL;
    if (quotas->kind == WEIR__UNLIMITED && !reader->rule.overload.has_class) /* else it is there for that */
        weir__node_warning(node, "unlimited: the rule limits nothing");
    return quotas;
}

/* Completes the quotas, which are in file order, and sorts them: the default has the empty name and comes first. */
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
            return weir__node_error(numbers->nodes.map, WINDOW_MISSING);
        numbers->nodes.limit = at;
        numbers->params.limit = quota->units;
        good &= weir__algorithm_make(&numbers->nodes, &numbers->params, &quota->limit) &&
                weir__native_scaled_limit(reader->builder, reader->node, &reader->rule, &numbers->params, quota);
        if (good && !looked)
            weir__lint_limit(numbers->nodes.map, &quota->limit);
        looked = true; /* the other tiers differ only in their units */
    }
    qsort(quotas, count, sizeof *quotas, weir__text_compare);
    return good;
}

/* ---- One limit: the rule's own, or one of a list ---- */

static const struct weir__node *field(const struct rule_reader *reader, const char *name)
{
    return weir__node_get(reader->node, name);
}

/* Reads max_delay; only the leaky bucket delays. */
static bool read_delay(struct rule_reader *reader, const struct weir__node *max_delay, weir_params *params)
{
    struct weir__parsed_window longest;
    params->delay = reader->rule.on_limit == WEIR_ON_LIMIT_DELAY;
    if (params->delay && params->algorithm != WEIR_LEAKY_BUCKET)
        return weir__node_error(field(reader, "on_limit"),
                                "on_limit: delay needs algorithm: leaky_bucket, which knows when a request may leave");
    if (max_delay && !params->delay)
        return weir__node_error(max_delay->name, "max_delay goes with on_limit: delay");
    if (!max_delay)
        return true;
    if (!weir__field_window(max_delay, "max_delay", &longest))
        return false;
    params->max_delay_ns = longest.ns;
    return true;
}

/* Reports fields that a limit by this algorithm cannot have. */
static bool check_algorithm(const struct rule_reader *reader, enum weir_algorithm algorithm)
{
    const struct weir__node *cost = field(reader, "cost"), *reserve = field(reader, "reserve");
    bool later = reader->rule.consistency_given && reader->rule.consistency == WEIR__EVENTUAL;
    bool bucket = algorithm == WEIR_TOKEN_BUCKET || algorithm == WEIR_LEAKY_BUCKET;
    if (algorithm == WEIR_CONCURRENCY && cost)
        weir__node_error(cost->name, "cost is not for concurrency: a request in flight takes one slot");
    if (algorithm == WEIR_CONCURRENCY && later)
        weir__node_error(field(reader, "consistency"), "concurrency cannot be eventual: what others hold now must be "
                                                       "known now; use strict, or local");
    if (bucket && reserve)
        weir__node_error(reserve->name,
                         "token and leaky buckets cannot have a reserve; use fixed_window, sliding_window_log, "
                         "sliding_window_counter or concurrency");
    return algorithm == WEIR_CONCURRENCY ? !cost && !later : !bucket || !reserve;
}

/* The window, and the algorithm with its parameters. */
static bool read_numbers(struct rule_reader *reader, struct numbers *numbers)
{
    const struct weir__node *map = numbers->nodes.map, *window = numbers->nodes.window;
    bool listed = numbers->nodes.outer, own = false;
    bool flight = weir__algorithm_is_concurrency(&numbers->nodes);
    if (listed && !window && !weir__node_get(map, "name"))
        return weir__node_error(map, flight ? "name is missing: what is this limit called?" : WINDOW_MISSING);
    if (window && !weir__field_window(window, "window", &numbers->window))
        return false;
    for (int i = OWN_PARAMETERS; i < OF_LIMITS; i++)
        own |= weir__node_get(map, fields[i].name) != NULL;
    if (listed && !own && reader->shared_bad)
        return false; /* has only the rule's parameters, whose errors were reported */
    const struct weir__node *max_delay = weir__node_get(map, "max_delay");
    bool good =
        weir__algorithm_read(reader->builder, &numbers->nodes, &numbers->window, WEIR__NATIVE, &numbers->params) &&
        read_delay(reader, max_delay ? max_delay : field(reader, "max_delay"), &numbers->params) &&
        check_algorithm(reader, numbers->params.algorithm);
    reader->shared_bad |= !good && !own;
    return good;
}

/* Makes a rule of one limit, and adds it. `entry` is the rule or one of its `limits`. */
static void add_limit(struct rule_reader *reader, const struct weir__node *entry)
{
    bool listed = entry != reader->node;
    const struct weir__node *limit = weir__node_get(entry, "limit"), *window = weir__node_get(entry, "window");
    const struct weir__node *name = weir__node_get(entry, "name"), *cost = field(reader, "cost");
    struct weir__rule rule = reader->rule;
    struct numbers numbers = {
        .nodes = {.map = entry, .outer = listed ? reader->node : NULL, .window = window, .limit = limit}};

    rule.place = entry->place;
    rule.name = listed ? make_name(reader, name ? name : window) : rule.base;
    bool good = read_numbers(reader, &numbers);
    if (!limit) {
        if (!reader->unknown)
            weir__node_error(entry, "limit is missing");
        return;
    }
    struct weir__quota *quotas = read_quotas(reader, limit, &rule);
    numbers.params.id = weir__rule_id(rule.name, rule.shadow);
    rule.count_rejected = numbers.params.count_rejected;
    rule.counts_bytes = weir__attribute_is_length(&reader->builder->set->attributes, rule.cost.attribute);
    if (!good || !quotas || !make_limits(reader, &numbers, limit, quotas, rule.quota_count) || !rule.name.len ||
        !rule.match)
        return;
    const char *obstacle =
        rule.consistency_given && rule.consistency == WEIR__LEASED ? weir__rule_lease_obstacle(&rule) : NULL;
    if (obstacle) {
        weir__node_error(field(reader, "consistency"), "%s", obstacle);
        return;
    }
    if (rule.warn_at &&
        !weir__native_warned(reader->builder, field(reader, "warn_at"), &rule, quotas, rule.quota_count))
        return;
    if (cost)
        weir__lint_cost(cost, &rule);
    weir__builder_add(reader->builder, &rule);
}

static void add_listed(struct rule_reader *reader, const struct weir__node *list)
{
    const struct weir__node *limit = field(reader, "limit"), *window = field(reader, "window");
    if (limit)
        weir__node_error(limit->name, "limit and limits: a rule has one or the other");
    if (window)
        weir__node_error(window->name, "window and limits: a rule has one or the other");
    if (list->kind != WEIR__LIST || !list->count) {
        weir__node_error(list, "limits is a list of { limit, window }, not %s",
                         list->kind == WEIR__LIST ? "an empty one" : weir__node_is(list));
        return;
    }
    for (const struct weir__node *entry = list->first; entry; entry = entry->next)
        if (check_fields(entry, "limits", true))
            add_limit(reader, entry);
}

/* ---- The rest of a rule ---- */

/* Fields that depend on each other. */
static void check_policy(struct rule_reader *reader)
{
    const struct weir__rule *rule = &reader->rule;
    const struct weir__attributes *all = &reader->builder->set->attributes;
    const struct weir__node *queue = field(reader, "queue"), *response = field(reader, "response");
    const struct weir__node *allow = field(reader, "allow"), *block = field(reader, "block");
    if (queue && rule->on_limit != WEIR_ON_LIMIT_QUEUE)
        weir__node_error(queue->name, "queue goes with on_limit: queue");
    if (rule->shadow && rule->on_limit == WEIR_ON_LIMIT_QUEUE)
        weir__node_warning(field(reader, "on_limit"),
                           "a shadow rule denies nothing: none of its requests comes into a queue");
    if (rule->shadow && response)
        weir__node_warning(response->name, "a shadow rule never answers: its response has no effect");
    if (allow)
        weir__lint_listed(all, allow, &rule->key, &rule->allow);
    if (block)
        weir__lint_listed(all, block, &rule->key, &rule->block);
}

static bool has_tiers(const struct rule_reader *reader)
{
    const struct weir__node *limit = field(reader, "limit"), *limits = field(reader, "limits");
    for (const struct weir__node *entry = limits && !limit ? limits->first : NULL; entry; entry = entry->next) {
        const struct weir__node *one = weir__node_get(entry, "limit");
        if (one && one->kind == WEIR__MAP)
            return true;
    }
    return limit && limit->kind == WEIR__MAP;
}

/* The attribute that chooses the tier. */
static void read_tier(struct rule_reader *reader)
{
    const struct weir__node *node = field(reader, "tier");
    weir_rules *set = reader->builder->set;
    weir_text text = WEIR__TEXT("tier");
    reader->rule.tier = -1;
    if (node && !has_tiers(reader))
        weir__node_error(node->name, "tier goes with a limit that is a map of tiers");
    if (!has_tiers(reader) || (node && !weir__field_text(node, "tier", &text)))
        return;
    int attribute = weir__attribute_parse(&set->attributes, &set->arena, reader->node->report,
                                          node ? node->place : reader->node->place, text);
    reader->rule.tier = (int16_t)attribute;
    if (node && attribute >= 0)
        weir__lint_tier(&set->attributes, node, attribute);
}

void weir__native_rule(struct weir__builder *builder, const struct weir__node *node)
{
    struct rule_reader reader = {.builder = builder, .node = node, .unknown = !check_fields(node, "a rule", false)};
    struct weir__rule *rule = &reader.rule;
    const struct weir__node *name = weir__node_get(node, "name"), *limits = weir__node_get(node, "limits");
    const struct weir__node *response = weir__node_get(node, "response");
    weir_text text;

    if (node->kind != WEIR__MAP)
        return;
    if (!name && !reader.unknown)
        weir__node_error(node, "a rule has a name");
    else if (name && weir__field_text(name, "name", &text) && check_name(name, text))
        rule->base = text;
    rule->cost = (struct weir__cost){.fallback = 1, .attribute = -1};
    rule->response = builder->set->response;
    rule->consistency_given = weir__node_get(node, "consistency") != NULL;
    rule->match = weir__native_match(builder, weir__node_get(node, "match"));
    weir__fields_given(node, WEIR__LIST_OF(fields), rule, builder);
    if (response) {
        rule->response.own_status = weir__node_get(response, "status") != NULL;
        rule->response.own_message = weir__node_get(response, "message") != NULL;
        rule->response.own_body = weir__node_get(response, "body") != NULL;
    }
    check_policy(&reader);
    weir__native_overload(node, rule);
    read_tier(&reader);
    if (limits)
        add_listed(&reader, limits);
    else
        add_limit(&reader, node);
    builder->set->attributes.form = builder->set->form; /* it was that of the rule */
}
