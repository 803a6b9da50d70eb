/* Reads files of descriptors. Depth first over the lists, with a stack of those that are not finished. */
#include "rules/descriptors.h"
#include "rules/native.h"
#include "rules/set.h"
#include "rules/yaml.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rate_limit ---- */

#define WINDOW_MAX (400 * WEIR_DAY)

static const char *const units[] = {"second", "minute", "hour", "day", "week", "month", "year"};

static const struct weir__parsed_window windows[] = {
    {.ns = WEIR_SECOND},
    {.ns = 60 * WEIR_SECOND},
    {.ns = 3600 * WEIR_SECOND},
    {.ns = WEIR_DAY, .calendar = true, .unit = WEIR_CALENDAR_DAY},
    {.ns = 7 * WEIR_DAY, .calendar = true, .unit = WEIR_CALENDAR_WEEK},
    {.ns = 30 * WEIR_DAY, .calendar = true, .unit = WEIR_CALENDAR_MONTH},
    {.ns = 365 * WEIR_DAY, .calendar = true, .unit = WEIR_CALENDAR_YEAR},
};

_Static_assert(WEIR__COUNT(units) == WEIR__COUNT(windows), "one window for each unit");

static bool read_window(const struct weir__node *map, struct weir__parsed_window *window)
{
    const struct weir__node *unit = weir__node_get(map, "unit"), *multiplier = weir__node_get(map, "unit_multiplier");
    char shown[WEIR__SHOWN];
    weir_text word;
    if (!unit || weir__node_is_null(unit))
        return weir__node_error(map, "a rate_limit needs a unit (second to year), or unlimited: true");
    if (!weir__field_text(unit, "unit", &word))
        return false;
    size_t i = 0;
    while (i < WEIR__COUNT(units) && !weir__text_equal_nocase(word, weir__text_of(units[i])))
        i++;
    if (i == WEIR__COUNT(units))
        return weir__node_unknown(unit, word, units, WEIR__COUNT(units),
                                  "unit must be second, minute, hour, day, week, month or year, not \"%s\"",
                                  weir__printable(word, shown, sizeof shown));
    *window = windows[i];

    int64_t times = 1, most = WINDOW_MAX / window->ns;
    if (multiplier && !weir__field_int(multiplier, "unit_multiplier", 1, most, &times))
        return false;
    window->ns *= times;
    window->calendar &= times == 1;
    return true;
}

/* An unlimited rate_limit has no parameters. */
static bool read_unlimited(const struct weir__node *map, struct weir__quota *quota)
{
    static const char *const contradict[] = {"unit", "unit_multiplier", WEIR__ALGORITHM_FIELDS};
    const struct weir__node *node;
    bool good = true;
    for (size_t i = 0; i < WEIR__COUNT(contradict); i++)
        if ((node = weir__node_get(map, contradict[i])))
            good = weir__node_error(node->name, "%s contradicts unlimited: true", contradict[i]);
    if ((node = weir__node_get(map, "requests_per_unit")))
        weir__node_warning(node->name, "requests_per_unit has no effect with unlimited: true");
    quota->kind = WEIR__UNLIMITED;
    return good;
}

static bool read_limited(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule,
                         struct weir__quota *quota)
{
    struct weir__limit_nodes nodes = {.map = map, .limit = weir__node_get(map, "requests_per_unit")};
    struct weir__parsed_window window;
    weir_params params = {.id = weir__rule_id(rule->name, rule->shadow)};

    bool good = read_window(map, &window);
    if (!nodes.limit || weir__node_is_null(nodes.limit)) {
        good = weir__node_error(map, "a rate_limit needs requests_per_unit, or unlimited: true");
    } else if (!weir__field_int(nodes.limit, "requests_per_unit", 0, UINT32_MAX, &params.limit)) {
        good = false;
    }
    if (!good)
        return false;
    nodes.window = weir__node_get(map, weir__node_get(map, "unit_multiplier") ? "unit_multiplier" : "unit");
    if (!weir__algorithm_read(builder, &nodes, &window, WEIR__DESCRIPTORS, &params))
        return false;
    quota->kind = params.limit ? WEIR__LIMITED : WEIR__BANNED;
    quota->units = params.limit;
    quota->window_ns = weir__algorithm_window_ns(&params);
    rule->count_rejected = params.count_rejected;
    return params.limit == 0 || weir__algorithm_make(&nodes, &params, &quota->limit);
}

/* One of `replaces`: { name: … }. */
static bool read_replaced(const struct weir__node *entry, const struct weir__rule *rule, weir_text *replaced)
{
    static const struct weir__field fields[] = {{"name", WEIR__FIELD_TEXT, .or_null = true}};
    const struct weir__node *name = weir__node_get(entry, "name");
    bool good = weir__fields_read(entry, "an entry of replaces", WEIR__LIST_OF(fields), replaced, NULL);
    if (entry->kind == WEIR__MAP && !replaced->len && (!name || name->kind == WEIR__SCALAR))
        return weir__node_error(entry, "an entry of replaces needs the name of a rate_limit");
    if (good && weir__text_equal(*replaced, rule->limit_name))
        return weir__node_error(name, "a rate_limit cannot replace itself");
    return good;
}

static bool read_replaces(void *builder, const struct weir__node *list, const char *what, void *to)
{
    struct weir__rule *rule = to;
    if (list->kind != WEIR__LIST)
        return weir__node_error(list, "%s must be a list such as [{ name: … }], but is %s", what, weir__node_is(list));
    weir_text *names =
        weir__arena_array(&((struct weir__builder *)builder)->set->arena, list->count + 1, sizeof *names);
    bool good = names != NULL;
    for (const struct weir__node *entry = list->first; names && entry; entry = entry->next)
        good &= read_replaced(entry, rule, &names[rule->replaces_count++]);
    rule->replaces = names;
    return good;
}

static bool read_limit(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule)
{
    static const char *const names[] = {"unit", "requests_per_unit", "unit_multiplier", "unlimited",
                                        "name", "replaces",          "warn_at",         WEIR__ALGORITHM_FIELDS};
    static const struct weir__field fields[] = {
        {"name", WEIR__FIELD_TEXT, WEIR__IN(struct weir__rule, limit_name), .or_null = true},
        {"replaces", WEIR__FIELD_READ, .or_null = true, .read = read_replaces},
        {"warn_at", WEIR__FIELD_READ, WEIR__IN(struct weir__rule, warn_at), .read = weir__native_warn_at},
    };
    if (!weir__field_names(map, "rate_limit", WEIR__LIST_OF(names)))
        return false;
    struct weir__quota *quota = weir__arena_take(&builder->set->arena, sizeof *quota);
    if (!quota)
        return false;
    rule->quotas = quota;
    rule->quota_count = 1;
    rule->has_default = true;

    const struct weir__node *node = weir__node_get(map, "unlimited");
    bool unlimited = false;
    if (node && !weir__field_bool(node, "unlimited", &unlimited))
        return false;
    bool good = unlimited ? read_unlimited(map, quota) : read_limited(builder, map, rule, quota);
    good &= weir__fields_given(map, WEIR__LIST_OF(fields), rule, builder);
    return good && (!rule->warn_at ||
                    weir__native_warned(builder, weir__node_get(map, "warn_at"), rule, quota, rule->quota_count));
}

/* ---- names ---- */

#define HASHED_MAX (WEIR_NAME_MAX - 17) /* bytes of a name before '#' and the 16 digits of a hash */

/* Adds a text to a name. Control characters become %XX. */
static void put(FILE *name, weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        fprintf(name, c < 0x20 || c == 0x7f ? "%%%02X" : "%c", c);
    }
}

/* Writes "domain.key_value.key", as in the statistics of envoyproxy/ratelimit. */
static void put_path(FILE *name, const struct weir__descriptor_node *node)
{
    if (node->parent) {
        put_path(name, node->parent); /* at most WEIR__DESCRIPTOR_DEPTH steps */
        fputc('.', name);
    }
    put(name, node->key);
    if (node->value.len) {
        fputc('_', name);
        put(name, node->value);
    }
}

/* Adds a copy of a text to a tree. False: it was there already, or there is no memory. */
static bool add_text(void **tree, struct weir__arena *arena, weir_text text)
{
    weir_text *copy = weir__arena_take(arena, sizeof *copy);
    if (!copy || !(*copy = weir__arena_copy(arena, text)).data)
        return false;
    weir_text *const *known = tsearch(copy, tree, weir__text_compare);
    arena->failed |= !known;
    return known && *known == copy;
}

/*
 * The name of a descriptor's rule. One that is too long, or equal to that of another path ("a.b", "c" and "a", "b.c"),
 * ends in a hash of the path.
 */
static weir_text make_name(struct weir__builder *builder, const struct weir__descriptor_node *node)
{
    struct weir__arena *arena = &builder->set->arena;
    char *text = NULL, hashed[WEIR_NAME_MAX + 1];
    weir_text name = {NULL, 0};
    FILE *to = open_memstream(&text, &name.len);
    if (to)
        put_path(to, node);
    if (!to || fclose(to) != 0) {
        arena->failed = true;
        free(text);
        return (weir_text){NULL, 0};
    }
    name.data = text;
    if (name.len > WEIR_NAME_MAX || !add_text(&builder->descriptor_names, arena, name)) {
        size_t len = name.len < HASHED_MAX ? name.len : HASHED_MAX;
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
            len--; /* not in the middle of a character */
        snprintf(hashed, sizeof hashed, "%.*s#%016" PRIx64, (int)len, text, node->hash);
        name = weir__text_of(hashed);
    }
    name = weir__arena_copy(arena, name);
    free(text);
    return name;
}

/* ---- one descriptor ---- */

struct descriptors_reader {
    struct weir__builder *builder;
    const struct weir__descriptor_node *domain;
    void *limit_names; /* tree of the names that `replaces` may have */
};

/* The fields of a descriptor; null and absent are the same. */
struct descriptor_fields {
    weir_text key, value;
    bool share;
    const struct weir__node *limit;
    struct weir__rule rule;
};

static bool read_metadata(void *builder, const struct weir__node *node, const char *what, void *to)
{
    if (node->kind != WEIR__MAP)
        return weir__node_error(node, "%s must be a map, but is %s", what, weir__node_is(node));
    if (node->count > 0)
        *(weir_text *)to = weir__node_json(&((struct weir__builder *)builder)->set->arena, node);
    return true;
}

/* Warns of fields of a limit in a descriptor without one. */
static void warn_without_limit(const struct weir__node *map, const struct descriptor_fields *fields)
{
    const struct {
        const char *name;
        bool given;
    } idle[] = {{"shadow_mode", fields->rule.shadow},
                {"quota_mode", fields->rule.quota_mode},
                {"detailed_metric", fields->rule.detailed_metric},
                {"metadata", fields->rule.metadata.len > 0}};
    const struct weir__node *limit = weir__node_get(map, "rate_limit");
    if (limit)
        weir__node_warning(limit->name, "rate_limit is empty: nothing is limited here");
    for (size_t i = 0; i < WEIR__COUNT(idle); i++)
        if (idle[i].given)
            weir__node_warning(weir__node_get(map, idle[i].name)->name,
                               "%s has no effect in a descriptor without rate_limit", idle[i].name);
}

/* False below a descriptor with an error: checked, but not added. */
static bool is_in_tree(const struct weir__descriptor_node *node)
{
    while (node && node->declared)
        node = node->parent;
    return node == NULL;
}

/* Completes the rule of a descriptor with a limit, and adds it. */
static void read_rule(struct descriptors_reader *reader, const struct weir__node *limit, struct weir__rule *rule,
                      struct weir__descriptor_node *node)
{
    struct weir__builder *builder = reader->builder;
    weir_rules *set = builder->set;
    rule->domain = reader->domain->key;
    rule->place = node->place;
    rule->tier = -1;
    rule->cost = (struct weir__cost){.fallback = 1, .attribute = -1};
    rule->response = WEIR__RESPONSE_DEFAULT;
    rule->value_to_metric = node->value_to_metric;
    rule->name = rule->base = make_name(builder, node);
    if (!rule->name.data || !read_limit(builder, limit, rule))
        return;
    if (is_in_tree(node) && weir__builder_add(builder, rule))
        node->rule = set->rules[set->count - 1];
    if (rule->limit_name.len)
        add_text(&reader->limit_names, &set->arena, rule->limit_name);
}

/*
 * The node of a descriptor. After an error it is outside of the tree (not declared), so that its fields and the
 * descriptors below it are checked as well.
 */
static struct weir__descriptor_node *place_node(weir_rules *set, const struct weir__node *map,
                                                const struct descriptor_fields *fields, bool good,
                                                const struct weir__descriptor_node *parent)
{
    bool twice = false;
    struct weir__descriptor_node *node = NULL;
    if (good && !(node = weir__descriptor_add(set, parent, fields->key, fields->value, &twice)))
        return NULL;
    if (twice) {
        char first[256];
        weir__node_error(map, "the same key and value as in the descriptor at %s",
                         weir__place_text(map->report, node->place, first, sizeof first));
    }
    if (!node || twice) {
        if (!(node = weir__arena_take(&set->arena, sizeof *node)))
            return NULL;
        node->number = ++set->domains->count;
        node->parent = parent;
        node->key = fields->key;
        node->value = fields->value;
        node->hash = weir__descriptor_hash(parent, fields->key, fields->value);
    }
    node->place = map->place;
    return node;
}

static bool has_star(weir_text text)
{
    return text.len && memchr(text.data, '*', text.len);
}

#define IN(member) WEIR__IN(struct descriptor_fields, member), .or_null = true

static struct weir__descriptor_node *read_descriptor(struct descriptors_reader *reader, const struct weir__node *map,
                                                     const struct weir__descriptor_node *parent)
{
    static const struct weir__field table[] = {
        {"key", WEIR__FIELD_TEXT, IN(key)},
        {"value", WEIR__FIELD_TEXT, IN(value)},
        {"rate_limit", WEIR__FIELD_NODE, .offset = offsetof(struct descriptor_fields, limit), .or_null = true},
        {.name = "descriptors"},
        {"shadow_mode", WEIR__FIELD_BOOL, IN(rule.shadow)},
        {"quota_mode", WEIR__FIELD_BOOL, IN(rule.quota_mode)},
        {"detailed_metric", WEIR__FIELD_BOOL, IN(rule.detailed_metric)},
        {"value_to_metric", WEIR__FIELD_BOOL, IN(rule.value_to_metric)},
        {"metadata", WEIR__FIELD_READ, IN(rule.metadata), .read = read_metadata},
        {"share_threshold", WEIR__FIELD_BOOL, IN(share)},
    };
    struct descriptor_fields fields = {0};
    bool good = weir__fields_read(map, "a descriptor", WEIR__LIST_OF(table), &fields, reader->builder);
    if (map->kind != WEIR__MAP)
        return NULL;
    const struct weir__node *key = weir__node_get(map, "key");
    if (!fields.key.len && (!key || key->kind == WEIR__SCALAR))
        good = weir__node_error(key ? key : map, "a descriptor needs a key");
    if (has_star(fields.key))
        weir__node_warning(key ? key : map, "'*' is a wildcard in values only; in a key it is literal");
    struct weir__descriptor_node *node = place_node(reader->builder->set, map, &fields, good, parent);
    if (!node)
        return NULL;
    node->value_to_metric = fields.rule.value_to_metric || parent->value_to_metric;
    node->share = fields.share;
    if (node->share && !has_star(node->value))
        weir__node_error(weir__node_get(map, "share_threshold")->name,
                         "share_threshold needs a value with '*', whose matches then share one counter");
    if (fields.limit)
        read_rule(reader, fields.limit, &fields.rule, node);
    else
        warn_without_limit(map, &fields);
    return node;
}

/* ---- all of them ---- */

/* The first of a map's `descriptors`; NULL: there are none. */
static const struct weir__node *first_descriptor(const struct weir__node *map)
{
    const struct weir__node *list = weir__node_get(map, "descriptors");
    if (!list || weir__node_is_null(list))
        return NULL;
    if (list->kind != WEIR__LIST)
        weir__node_error(list, "descriptors must be a list, but is %s", weir__node_is(list));
    return list->kind == WEIR__LIST ? list->first : NULL;
}

/* Reads a list of descriptors and those below them. */
static void read_list(struct descriptors_reader *reader, const struct weir__node *first,
                      const struct weir__descriptor_node *parent, int depth)
{
    if (first && depth > WEIR__DESCRIPTOR_DEPTH) {
        weir__node_error(first, "descriptors are nested deeper than %d levels", WEIR__DESCRIPTOR_DEPTH);
        return;
    }
    for (const struct weir__node *map = first; map; map = map->next) {
        const struct weir__descriptor_node *node = read_descriptor(reader, map, parent);
        if (node)
            read_list(reader, first_descriptor(map), node, depth + 1);
    }
}

/* Warns of names in `replaces` that no limit has. */
static void warn_of_replaces(struct descriptors_reader *reader, size_t first_rule)
{
    const weir_rules *set = reader->builder->set;
    char shown[WEIR__SHOWN];
    for (size_t i = first_rule; i < set->count; i++) {
        const struct weir__rule *rule = set->rules[i];
        for (size_t j = 0; j < rule->replaces_count; j++) {
            weir_text name = rule->replaces[j];
            if (!tfind(&name, &reader->limit_names, weir__text_compare))
                weir__report_warning(reader->builder->report, rule->place,
                                     "this replaces \"%s\", but no rate_limit of the domain has that name",
                                     weir__printable(name, shown, sizeof shown));
        }
    }
}

void weir__descriptors_read(struct weir__builder *builder, const struct weir__node *root)
{
    struct descriptors_reader reader = {.builder = builder};
    size_t first_rule = builder->set->count;
    int errors = root->report->errors;
    weir_text domain = {NULL, 0};
    char first[256], shown[WEIR__SHOWN];
    bool twice;

    const struct weir__node *node = weir__node_get(root, "domain");
    if (node && !weir__node_is_null(node) && !weir__field_text(node, "domain", &domain))
        return;
    if (domain.len == 0) {
        weir__node_error(node ? node : root, "a file of descriptors needs a domain");
        return;
    }
    struct weir__descriptor_node *top = weir__descriptor_add(builder->set, NULL, domain, (weir_text){NULL, 0}, &twice);
    if (!top)
        return;
    if (twice) {
        weir__node_error(node, "the domain \"%s\" is taken by the file of %s",
                         weir__printable(domain, shown, sizeof shown),
                         weir__place_text(node->report, top->place, first, sizeof first));
        return;
    }
    top->place = node->place;
    reader.domain = top;
    read_list(&reader, first_descriptor(root), top, 1);
    if (root->report->errors == errors)
        warn_of_replaces(&reader, first_rule);
    weir__tree_free(reader.limit_names);
}
