/* The native dialect: rules and their limits. */
#include "base/number.h"
#include "rules/set.h"
#include "rules/native.h"

#include <stdio.h>
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
    const struct weir__node *node;
    const struct weir__node *at[FIELDS];
    struct weir__overload_nodes overload;
    struct weir__rule rule;
    bool delay;
    bool unknown;    /* it has unknown fields: a missing one is probably misspelt */
    bool shared_bad; /* the parameters that its limits share have an error */
};

#define WINDOW_MISSING "window is missing: how long is the limit for?"

/* ---- Fields ---- */

/* Reports an unknown field of a rule or of one of its limits (`what`). */
static void report_unknown(const struct weir__node *name, const char *what)
{
    /* Fields of a field of a rule. */
    static const char *const inner[][2] = {{"match", "path,method,host,header,query,network,normalize"},
                                           {"response", "status,headers,reset,body,message"}};
    /* What other products call a field. */
    static const char *const elsewhere[][2] = {{"limit", "rate,requests,max,quota"},
                                               {"window", "per,period,interval,duration"},
                                               {"shadow", "dry_run,log_only"},
                                               {"key", "by"},
                                               {"match", "paths"},
                                               {"algorithm", "strategy,type"},
                                               {"burst", "capacity"},
                                               {"cost", "weight"}};
    char shown[WEIR__SHOWN];
    bool rule = strcmp(what, "a rule") == 0;
    const char *inside = rule ? weir__report_meant(name->text, WEIR__LIST_OF(inner)) : NULL;
    const char *meant = rule ? weir__report_meant(name->text, WEIR__LIST_OF(elsewhere)) : NULL;
    weir__printable(name->text, shown, sizeof shown);
    if (inside)
        weir__node_error(name, "a rule has no field \"%s\"; it belongs in %s: { %s: … }", shown, inside, shown);
    else
        weir__node_unknown(name, meant ? weir__text_of(meant) : name->text, names, FIELDS, "%s has no field \"%s\"",
                           what, shown);
}

/* Sets nodes[i] to the member names[i] of the map, or NULL. False: not a map, or unknown members. */
static bool pick(const struct weir__node *map, const char *what, const struct weir__node **nodes)
{
    memset(nodes, 0, FIELDS * sizeof(struct weir__node *));
    if (map->kind != WEIR__MAP)
        return weir__field_names(map, what, names, FIELDS);
    bool known = true;
    for (const struct weir__node *member = map->first; member; member = member->next) {
        size_t i = 0;
        while (i < FIELDS && !weir__text_is(member->name->text, names[i]))
            i++;
        if (i < FIELDS)
            nodes[i] = member;
        else
            report_unknown(member->name, what);
        known &= i < FIELDS;
    }
    return known;
}

/* ---- Names ---- */

/* Names go into headers, logs and metrics. */
static bool check_name(const struct weir__node *node, weir_text name)
{
    if (!name.len || name.len > WEIR_NAME_MAX)
        return weir__node_error(node, "a name has 1 to %d bytes, not %zu", WEIR_NAME_MAX, name.len);
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\')
            return weir__node_error(node, "a name has no control characters, quotes or backslashes");
    }
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
    if (!read_units(node, quotas))
        return NULL;
    if (quotas->kind == WEIR__UNLIMITED && !reader->rule.overload.has_class) /* else it is there for that */
        weir__node_warning(node, "unlimited: the rule limits nothing");
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
            return weir__node_error(numbers->nodes.map, WINDOW_MISSING);
        numbers->nodes.limit = at;
        numbers->params.limit = quota->units;
        good &= weir__algorithm_make(&numbers->nodes, &numbers->params, &quota->limit) &&
                weir__native_scaled_limit(reader->builder, &reader->overload, &reader->rule, &numbers->params, quota);
        if (good && !looked)
            weir__lint_limit(numbers->nodes.map, &quota->limit);
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
        return weir__node_error(reader->at[ON_LIMIT],
                                "on_limit: delay needs algorithm: leaky_bucket, which knows when a request may leave");
    if (max_delay && !reader->delay)
        return weir__node_error(max_delay->name, "max_delay goes with on_limit: delay");
    params->delay = reader->delay;
    if (!max_delay)
        return true;
    if (!weir__field_window(max_delay, "max_delay", &longest))
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
        weir__node_error(reader->at[COST]->name, "cost is not for concurrency: a request in flight takes one slot");
    if (later)
        weir__node_error(
            reader->at[CONSISTENCY],
            "concurrency cannot be eventual: what others hold now must be known now; use strict, or local");
    return !reader->at[COST] && !later;
}

static bool check_reserve(const struct rule_reader *reader, enum weir_algorithm algorithm)
{
    if (!reader->at[RESERVE] || (algorithm != WEIR_TOKEN_BUCKET && algorithm != WEIR_LEAKY_BUCKET))
        return true;
    return weir__node_error(reader->at[RESERVE]->name,
                            "token and leaky buckets cannot have a reserve; use fixed_window, sliding_window_log, "
                            "sliding_window_counter or concurrency");
}

/* The window, and the algorithm with its parameters. */
static bool read_numbers(struct rule_reader *reader, const struct weir__node *const *at, struct numbers *numbers)
{
    bool listed = numbers->nodes.outer, own = false;
    bool flight = weir__algorithm_is_concurrency(&numbers->nodes);
    if (listed && !at[WINDOW] && !at[NAME])
        return weir__node_error(numbers->nodes.map,
                                flight ? "name is missing: what is this limit called?" : WINDOW_MISSING);
    if (at[WINDOW] && !weir__field_window(at[WINDOW], names[WINDOW], &numbers->window))
        return false;
    for (int field = ALGORITHM; field <= LEASE; field++)
        own |= at[field] != NULL;
    if (listed && !own && reader->shared_bad)
        return false; /* has only the rule's parameters, whose errors were reported */
    const struct weir__node *max_delay = at[MAX_DELAY] ? at[MAX_DELAY] : reader->at[MAX_DELAY];
    bool good =
        weir__algorithm_read(reader->builder, &numbers->nodes, &numbers->window, WEIR__NATIVE, &numbers->params) &&
        read_delay(reader, max_delay, &numbers->params) && check_flight(reader, &numbers->params) &&
        check_reserve(reader, numbers->params.algorithm);
    reader->shared_bad |= !good && !own;
    return good;
}

/* Makes a rule of one limit, and adds it. `entry` has the limit's fields in at[]. */
static void add_limit(struct rule_reader *reader, const struct weir__node *entry, const struct weir__node *const *at)
{
    bool listed = entry != reader->node;
    struct weir__rule rule = reader->rule;
    struct numbers numbers = {
        .nodes = {.map = entry, .outer = listed ? reader->node : NULL, .window = at[WINDOW], .limit = at[LIMIT]}};

    rule.place = entry->place;
    rule.name = listed ? make_name(reader, at[NAME] ? at[NAME] : at[WINDOW]) : rule.base;
    bool good = read_numbers(reader, at, &numbers);
    if (!at[LIMIT]) {
        if (!reader->unknown)
            weir__node_error(entry, "limit is missing");
        return;
    }
    struct weir__quota *quotas = read_quotas(reader, at[LIMIT], &rule);
    numbers.params.id = weir__rule_id(rule.name, rule.shadow);
    rule.count_rejected = numbers.params.count_rejected;
    if (!good || !quotas || !make_limits(reader, &numbers, at[LIMIT], quotas, rule.quota_count) || !rule.name.len ||
        !rule.match)
        return;
    if (reader->at[COST])
        weir__lint_cost(reader->at[COST], &rule);
    weir__builder_add(reader->builder, &rule);
}

static void add_listed(struct rule_reader *reader)
{
    const struct weir__node *list = reader->at[LIMITS];
    for (int field = LIMIT; field <= WINDOW; field++)
        if (reader->at[field])
            weir__node_error(reader->at[field]->name, "%s and limits: a rule has one or the other", names[field]);
    if (list->kind != WEIR__LIST || !list->count) {
        weir__node_error(list, "limits is a list of { limit, window }, not %s",
                         list->kind == WEIR__LIST ? "an empty one" : weir__node_is(list));
        return;
    }
    for (const struct weir__node *entry = list->first; entry; entry = entry->next) {
        const struct weir__node *at[FIELDS];
        bool good = pick(entry, "limits", at);
        for (int field = MATCH; field < FIELDS; field++)
            if (at[field])
                good =
                    weir__node_error(at[field]->name, "%s belongs to the rule, not to one of its limits", names[field]);
        if (good)
            add_limit(reader, entry, at);
    }
}

/* ---- The rest of a rule ---- */

static void read_policy(struct rule_reader *reader)
{
    static const char *const missing[] = {"skip", "deny", "share", NULL};
    static const char *const on_limit[] = {"reject", "delay", "queue", NULL};
    static const char *const consistency[] = {"local", "eventual", "strict", NULL};
    static const char *const failure[] = {"local", "open", "closed", NULL};
    static const struct weir__field fields[] = {
        {"shadow", WEIR__FIELD_BOOL, WEIR__IN(struct weir__rule, shadow)},
        {"on_missing_key", WEIR__FIELD_CHOICE, WEIR__IN(struct weir__rule, on_missing), .choices = missing},
        {"on_limit", WEIR__FIELD_CHOICE, WEIR__IN(struct weir__rule, on_limit), .choices = on_limit},
        {"consistency", WEIR__FIELD_CHOICE, WEIR__IN(struct weir__rule, consistency), .choices = consistency,
         .place = offsetof(struct weir__rule, consistency_place)},
        {"on_store_failure", WEIR__FIELD_CHOICE, WEIR__IN(struct weir__rule, on_failure), .choices = failure},
    };
    struct weir__rule *rule = &reader->rule;

    weir__fields_given(reader->node, WEIR__LIST_OF(fields), rule, NULL);
    rule->consistency_given = reader->at[CONSISTENCY] != NULL;
    reader->delay = rule->on_limit == WEIR_ON_LIMIT_DELAY;

    if (reader->at[QUEUE] && rule->on_limit != WEIR_ON_LIMIT_QUEUE)
        weir__node_error(reader->at[QUEUE]->name, "queue goes with on_limit: queue");
    else if (reader->at[QUEUE])
        weir__native_queue(reader->at[QUEUE], &rule->queue);
    if (rule->shadow && rule->on_limit == WEIR_ON_LIMIT_QUEUE)
        weir__node_warning(reader->at[ON_LIMIT],
                           "a shadow rule denies nothing: none of its requests comes into a queue");
    if (rule->shadow && reader->at[RESPONSE])
        weir__node_warning(reader->at[RESPONSE]->name, "a shadow rule never answers: its response has no effect");
}

/* Reads the key, and the lists of keys that are allowed or blocked. */
static void read_key(struct rule_reader *reader)
{
    weir_rules *set = reader->builder->set;
    struct weir__rule *rule = &reader->rule;
    const struct weir__node *node = reader->at[KEY], *allow = reader->at[ALLOW], *block = reader->at[BLOCK];
    weir_text text;
    if (node && weir__field_text(node, "key", &text)) {
        if (!text.len)
            weir__node_error(node, "the key is empty; without one there is one bucket for all");
        else if (weir__template_compile(&rule->key, &set->attributes, &set->arena, node->report, node->place, text))
            weir__lint_key(&set->attributes, node, &rule->key);
    }
    if (allow && weir__native_list(reader->builder, allow, "allow", &rule->allow))
        weir__lint_listed(&set->attributes, allow, &rule->key, &rule->allow);
    if (block && weir__native_list(reader->builder, block, "block", &rule->block))
        weir__lint_listed(&set->attributes, block, &rule->key, &rule->block);
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
    weir_rules *set = reader->builder->set;
    weir_text text = WEIR__TEXT("tier");
    reader->rule.tier = -1;
    if (node && !has_tiers(reader))
        weir__node_error(node->name, "tier goes with a limit that is a map of tiers");
    if (!has_tiers(reader) || (node && !weir__field_text(node, names[TIER], &text)))
        return;
    int attribute = weir__attribute_parse(&set->attributes, &set->arena, reader->node->report,
                                          node ? node->place : reader->node->place, text);
    reader->rule.tier = (int16_t)attribute;
    if (node && attribute >= 0)
        weir__lint_tier(&set->attributes, node, attribute);
}

void weir__native_rule(struct weir__builder *builder, const struct weir__node *node)
{
    struct rule_reader reader = {.builder = builder, .node = node};
    struct weir__rule *rule = &reader.rule;
    const struct weir__node *const *at = reader.at;
    weir_text name;

    reader.unknown = !pick(node, "a rule", reader.at);
    if (node->kind != WEIR__MAP)
        return;
    if (!at[NAME] && !reader.unknown)
        weir__node_error(node, "a rule has a name");
    else if (at[NAME] && weir__field_text(at[NAME], names[NAME], &name) && check_name(at[NAME], name))
        rule->base = name;
    rule->cost = (struct weir__cost){.fallback = 1, .attribute = -1};
    rule->response = builder->set->response;
    read_policy(&reader);
    reader.overload = (struct weir__overload_nodes){at[ELASTIC], at[ADAPTIVE], at[RESERVE], at[PRIORITY]};
    weir__native_overload(&reader.overload, rule);
    rule->match = weir__native_match(builder, at[MATCH]);
    read_key(&reader);
    if (at[COST])
        weir__native_cost(builder, at[COST], &rule->cost);
    if (at[RESPONSE])
        weir__native_response(at[RESPONSE], &rule->response);
    read_tier(&reader);
    if (at[LIMITS])
        add_listed(&reader);
    else
        add_limit(&reader, node, at);
    builder->set->attributes.form = builder->set->form; /* it was that of the rule */
}
