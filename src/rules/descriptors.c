/* Reads files of descriptors. Depth first over the lists, with a stack of those that are not finished. */
#include "rules/descriptors.h"
#include "rules/set.h"
#include "rules/yaml.h"

/* ---- rate_limit ---- */

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define WINDOW_MAX   (400 * WEIR_DAY)

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

_Static_assert(COUNT(units) == COUNT(windows), "one window for each unit");

static bool read_window(struct weir__diagnostics *report, const struct weir__node *map,
                        struct weir__parsed_window *window)
{
    const struct weir__node *unit = weir__node_get(map, "unit"), *multiplier = weir__node_get(map, "unit_multiplier");
    weir_text word;
    if (!unit || weir__node_is_null(unit))
        return weir__report_error(report, map->place, "a rate_limit needs a unit (second to year), or unlimited: true");
    if (!weir__field_text(report, unit, "unit", &word))
        return false;
    size_t i = 0;
    while (i < COUNT(units) && !weir__text_equal_nocase(word, (weir_text){units[i], strlen(units[i])}))
        i++;
    if (i == COUNT(units)) {
        char shown[WEIR__SHOWN];
        return weir__report_unknown(report, unit->place, word, units, COUNT(units),
                                    "unit must be second, minute, hour, day, week, month or year, not \"%s\"",
                                    weir__printable(word, shown, sizeof shown));
    }
    *window = windows[i];

    int64_t times = 1, most = WINDOW_MAX / window->ns;
    if (multiplier && !weir__field_int(report, multiplier, "unit_multiplier", 1, most, &times))
        return false;
    window->ns *= times;
    window->calendar &= times == 1;
    return true;
}

/* An unlimited rate_limit has no parameters. */
static bool read_unlimited(struct weir__diagnostics *report, const struct weir__node *map, struct weir__quota *quota)
{
    static const char *const contradict[] = {"unit", "unit_multiplier", WEIR__ALGORITHM_FIELDS};
    const struct weir__node *node;
    bool good = true;
    for (size_t i = 0; i < COUNT(contradict); i++)
        if ((node = weir__node_get(map, contradict[i])))
            good = weir__report_error(report, node->name->place, "%s contradicts unlimited: true", contradict[i]);
    if ((node = weir__node_get(map, "requests_per_unit")))
        weir__report_warning(report, node->name->place, "requests_per_unit has no effect with unlimited: true");
    quota->kind = WEIR__UNLIMITED;
    return good;
}

static bool read_limited(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule,
                         struct weir__quota *quota)
{
    struct weir__diagnostics *report = builder->report;
    struct weir__limit_nodes nodes = {.map = map, .limit = weir__node_get(map, "requests_per_unit")};
    struct weir__parsed_window window;
    weir_params params = {.id = weir__rule_id(rule->name, rule->shadow)};

    bool good = read_window(report, map, &window);
    if (!nodes.limit || weir__node_is_null(nodes.limit)) {
        good = weir__report_error(report, map->place, "a rate_limit needs requests_per_unit, or unlimited: true");
    } else if (!weir__field_int(report, nodes.limit, "requests_per_unit", 0, UINT32_MAX, &params.limit)) {
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
    return params.limit == 0 || weir__algorithm_make(builder, &nodes, &params, &quota->limit);
}

static bool read_name(struct weir__builder *builder, const struct weir__node *node, struct weir__rule *rule)
{
    weir_text name;
    if (!node || weir__node_is_null(node))
        return true;
    if (!weir__field_text(builder->report, node, "name", &name))
        return false;
    rule->limit_name = weir__arena_copy(&builder->set->arena, name);
    return rule->limit_name.data != NULL;
}

/* One of `replaces`: { name: … }. */
static bool read_replaced(struct weir__builder *builder, const struct weir__node *entry, const struct weir__rule *rule,
                          weir_text *replaced)
{
    static const char *const names[] = {"name"};
    struct weir__diagnostics *report = builder->report;
    if (!weir__field_names(report, entry, "an entry of replaces", names, COUNT(names)))
        return false;
    const struct weir__node *node = weir__node_get(entry, "name");
    weir_text name = {NULL, 0};
    if (node && !weir__node_is_null(node) && !weir__field_text(report, node, "name", &name))
        return false;
    if (name.len == 0)
        return weir__report_error(report, entry->place, "an entry of replaces needs the name of a rate_limit");
    if (weir__text_equal(name, rule->limit_name))
        return weir__report_error(report, node->place, "a rate_limit cannot replace itself");
    *replaced = weir__arena_copy(&builder->set->arena, name);
    return replaced->data != NULL;
}

static bool read_replaces(struct weir__builder *builder, const struct weir__node *list, struct weir__rule *rule)
{
    if (!list || weir__node_is_null(list))
        return true;
    if (list->kind != WEIR__LIST)
        return weir__report_error(builder->report, list->place,
                                  "replaces must be a list such as [{ name: … }], but is %s", weir__node_is(list));
    weir_text *names = weir__arena_array(&builder->set->arena, list->count, sizeof *names);
    if (!names)
        return list->count == 0;
    bool good = true;
    for (const struct weir__node *entry = list->first; entry; entry = entry->next)
        good &= read_replaced(builder, entry, rule, &names[rule->replaces_count++]);
    rule->replaces = names;
    return good;
}

static bool read_limit(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule)
{
    static const char *const names[] = {"unit", "requests_per_unit", "unit_multiplier",     "unlimited",
                                        "name", "replaces",          WEIR__ALGORITHM_FIELDS};
    struct weir__diagnostics *report = builder->report;
    if (!weir__field_names(report, map, "rate_limit", names, COUNT(names)))
        return false;
    struct weir__quota *quota = weir__arena_take(&builder->set->arena, sizeof *quota);
    if (!quota)
        return false;
    rule->quotas = quota;
    rule->quota_count = 1;
    rule->has_default = true;

    const struct weir__node *node = weir__node_get(map, "unlimited");
    bool unlimited = false;
    if (node && !weir__field_bool(report, node, "unlimited", &unlimited))
        return false;
    bool good = unlimited ? read_unlimited(report, map, quota) : read_limited(builder, map, rule, quota);
    good &= read_name(builder, weir__node_get(map, "name"), rule);
    good &= read_replaces(builder, weir__node_get(map, "replaces"), rule);
    return good;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- names ---- */

#define NAME_HASH_DIGITS 16

/* "domain.key_value.key", as in the statistics of envoyproxy/ratelimit. */
struct name {
    char text[WEIR_NAME_MAX];
    size_t len;
    bool cut;
};

static void name_put(struct name *name, weir_text text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len && !name->cut; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool control = c < 0x20 || c == 0x7f;
        if (name->len + (control ? 3 : 1) > sizeof name->text) {
            name->cut = true;
        } else if (control) {
            name->text[name->len++] = '%';
            name->text[name->len++] = digits[c >> 4];
            name->text[name->len++] = digits[c & 15];
        } else {
            name->text[name->len++] = (char)c;
        }
    }
}

/*
 * Appends a hash of the path to a name that is too long, or equal to that of another path ("a.b", "c" and "a", "b.c").
 */
static void name_hash(struct name *name, uint64_t hash)
{
    size_t most = sizeof name->text - 1 - NAME_HASH_DIGITS;
    if (name->len > most) {
        name->len = most;
        while (name->len > 0 && ((unsigned char)name->text[name->len] & 0xc0) == 0x80)
            name->len--; /* not in the middle of a character */
    }
    name->text[name->len++] = '#';
    for (int shift = 60; shift >= 0; shift -= 4)
        name->text[name->len++] = "0123456789abcdef"[hash >> shift & 15];
}

static weir_text make_name(weir_rules *set, const struct weir__descriptor_node *node)
{
    enum { STEPS_MAX = WEIR__DESCRIPTOR_DEPTH + 1 };
    const struct weir__descriptor_node *way[STEPS_MAX];
    size_t steps = 0;
    for (const struct weir__descriptor_node *at = node; at && steps < STEPS_MAX; at = at->parent)
        way[steps++] = at;

    struct name name = {.len = 0};
    while (steps-- > 0) {
        name_put(&name, way[steps]->key);
        if (way[steps]->value.len) {
            name_put(&name, WEIR__TEXT("_"));
            name_put(&name, way[steps]->value);
        }
        if (steps)
            name_put(&name, WEIR__TEXT("."));
    }
    if (name.cut ||
        !weir__hashes_add(&set->domains->names, &set->arena, weir__hash_text((weir_text){name.text, name.len}, 0)))
        name_hash(&name, node->hash);
    return weir__arena_copy(&set->arena, (weir_text){name.text, name.len});
}

/* ---- one descriptor ---- */

struct descriptors_reader {
    struct weir__builder *builder;
    const struct weir__descriptor_node *domain;
    struct weir__hashes limit_names; /* names that `replaces` may have */
};

/* A field of a descriptor that is true or false; absent is false. */
static bool read_flag(struct descriptors_reader *reader, const struct weir__node *map, const char *name)
{
    const struct weir__node *node = weir__node_get(map, name);
    bool value = false;
    if (node && !weir__node_is_null(node) && !weir__field_bool(reader->builder->report, node, name, &value))
        return false;
    return value;
}

static weir_text read_metadata(struct descriptors_reader *reader, const struct weir__node *map)
{
    const struct weir__node *node = weir__node_get(map, "metadata");
    if (!node || weir__node_is_null(node) || (node->kind == WEIR__MAP && node->count == 0))
        return (weir_text){NULL, 0};
    if (node->kind != WEIR__MAP) {
        weir__report_error(reader->builder->report, node->place, "metadata must be a map, but is %s",
                           weir__node_is(node));
        return (weir_text){NULL, 0};
    }
    return weir__node_json(&reader->builder->set->arena, node);
}

/* Warns of fields of a limit in a descriptor without one. */
static void warn_without_limit(struct descriptors_reader *reader, const struct weir__node *map,
                               const struct weir__rule *rule)
{
    const struct {
        const char *name;
        bool given;
    } idle[] = {{"shadow_mode", rule->shadow},
                {"quota_mode", rule->quota_mode},
                {"detailed_metric", rule->detailed_metric},
                {"metadata", rule->metadata.len > 0}};
    for (size_t i = 0; i < COUNT(idle); i++)
        if (idle[i].given)
            weir__report_warning(reader->builder->report, weir__node_get(map, idle[i].name)->name->place,
                                 "%s has no effect in a descriptor without rate_limit", idle[i].name);
}

/* False below a descriptor with an error: checked, but not added. */
static bool is_in_tree(const struct weir__descriptor_node *node)
{
    while (node && node->declared)
        node = node->parent;
    return node == NULL;
}

static void read_rule(struct descriptors_reader *reader, const struct weir__node *map,
                      struct weir__descriptor_node *node)
{
    struct weir__builder *builder = reader->builder;
    weir_rules *set = builder->set;
    struct weir__rule rule = {
        .domain = reader->domain->key,
        .place = map->place,
        .shadow = read_flag(reader, map, "shadow_mode"),
        .tier = -1,
        .cost = {.fallback = 1, .attribute = -1},
        .response = {.status = 429,
                     .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER},
        .quota_mode = read_flag(reader, map, "quota_mode"),
        .detailed_metric = read_flag(reader, map, "detailed_metric"),
        .value_to_metric = node->value_to_metric,
        .metadata = read_metadata(reader, map),
    };
    const struct weir__node *limit = weir__node_get(map, "rate_limit");
    if (!limit || weir__node_is_null(limit)) {
        if (limit)
            weir__report_warning(builder->report, limit->name->place, "rate_limit is empty: nothing is limited here");
        warn_without_limit(reader, map, &rule);
        return;
    }
    rule.name = rule.base = make_name(set, node);
    if (!rule.name.data || !read_limit(builder, limit, &rule))
        return;
    if (is_in_tree(node) && weir__builder_add(builder, &rule))
        node->rule = set->rules[set->count - 1];
    if (rule.limit_name.len)
        weir__hashes_add(&reader->limit_names, &set->arena, weir__hash_text(rule.limit_name, 0));
}

/* Key and value. False after an error, which was reported. */
static bool read_entry(struct descriptors_reader *reader, const struct weir__node *map, weir_text *key,
                       weir_text *value)
{
    struct weir__diagnostics *report = reader->builder->report;
    const struct weir__node *node = weir__node_get(map, "key");
    bool good;
    *key = *value = (weir_text){NULL, 0};
    if (!node || weir__node_is_null(node) || (node->kind == WEIR__SCALAR && node->text.len == 0))
        good = weir__report_error(report, node ? node->place : map->place, "a descriptor needs a key");
    else
        good = weir__field_text(report, node, "key", key);
    if (key->len > 0 && memchr(key->data, '*', key->len))
        weir__report_warning(report, node->place, "'*' is a wildcard in values only; in a key it is literal");
    if ((node = weir__node_get(map, "value")) && !weir__node_is_null(node))
        good &= weir__field_text(report, node, "value", value);
    return good;
}

/*
 * The node of a descriptor. After an error it is outside of the tree (not declared), so that its fields and the
 * descriptors below it are checked as well.
 */
static struct weir__descriptor_node *place_node(struct descriptors_reader *reader, const struct weir__node *map,
                                                const struct weir__descriptor_node *parent)
{
    struct weir__diagnostics *report = reader->builder->report;
    weir_rules *set = reader->builder->set;
    weir_text key, value;
    bool twice = false;
    struct weir__descriptor_node *node = NULL;
    if (read_entry(reader, map, &key, &value)) {
        node = weir__descriptor_add(set, parent, key, value, &twice);
        if (!node)
            return NULL;
    }
    if (twice) {
        char first[256];
        weir__report_error(report, map->place, "the same key and value as in the descriptor at %s",
                           weir__place_text(report, node->place, first, sizeof first));
    }
    if (!node || twice) {
        if (!(node = weir__arena_take(&set->arena, sizeof *node)))
            return NULL;
        node->parent = parent;
        node->key = key;
        node->value = value;
        node->hash = weir__descriptor_value_hash(weir__descriptor_key_hash(parent, key), value);
    }
    node->place = map->place;
    return node;
}

static struct weir__descriptor_node *read_descriptor(struct descriptors_reader *reader, const struct weir__node *map,
                                                     const struct weir__descriptor_node *parent)
{
    static const char *const names[] = {"key",         "value",          "rate_limit",      "descriptors",
                                        "shadow_mode", "quota_mode",     "detailed_metric", "value_to_metric",
                                        "metadata",    "share_threshold"};
    struct weir__diagnostics *report = reader->builder->report;
    if (!weir__field_names(report, map, "a descriptor", names, COUNT(names)))
        return NULL;
    struct weir__descriptor_node *node = place_node(reader, map, parent);
    if (!node)
        return NULL;
    node->value_to_metric = read_flag(reader, map, "value_to_metric") || parent->value_to_metric;
    node->share = read_flag(reader, map, "share_threshold");
    if (node->share && (node->value.len == 0 || !memchr(node->value.data, '*', node->value.len)))
        weir__report_error(report, weir__node_get(map, "share_threshold")->name->place,
                           "share_threshold needs a value with '*', whose matches then share one counter");
    read_rule(reader, map, node);
    return node;
}

/* ---- all of them ---- */

/* The first of a map's `descriptors`; NULL: there are none. */
static const struct weir__node *first_descriptor(struct descriptors_reader *reader, const struct weir__node *map)
{
    const struct weir__node *list = weir__node_get(map, "descriptors");
    if (!list || weir__node_is_null(list))
        return NULL;
    if (list->kind != WEIR__LIST) {
        weir__report_error(reader->builder->report, list->place, "descriptors must be a list, but is %s",
                           weir__node_is(list));
        return NULL;
    }
    return list->first;
}

static void read_all(struct descriptors_reader *reader, const struct weir__node *root)
{
    struct level {
        const struct weir__node *next;
        const struct weir__descriptor_node *parent;
    } levels[WEIR__DESCRIPTOR_DEPTH] = {{first_descriptor(reader, root), reader->domain}};
    size_t depth = 1;

    while (depth > 0) {
        struct level *level = &levels[depth - 1];
        const struct weir__node *map = level->next;
        if (!map) {
            depth--;
            continue;
        }
        level->next = map->next;
        const struct weir__descriptor_node *node = read_descriptor(reader, map, level->parent);
        const struct weir__node *below = node ? first_descriptor(reader, map) : NULL;
        if (below && depth == COUNT(levels))
            weir__report_error(reader->builder->report, below->place, "descriptors are nested deeper than %d levels",
                               WEIR__DESCRIPTOR_DEPTH);
        else if (below)
            levels[depth++] = (struct level){below, node};
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
            if (!weir__hashes_have(&reader->limit_names, weir__hash_text(name, 0)))
                weir__report_warning(reader->builder->report, rule->place,
                                     "this replaces \"%s\", but no rate_limit of the domain has that name",
                                     weir__printable(name, shown, sizeof shown));
        }
    }
}

void weir__descriptors_read(struct weir__builder *builder, const struct weir__node *root)
{
    /* Fields of the native dialect are listed, too: the caller has reported that the two do not mix. */
    static const char *const names[] = {"domain", "descriptors", "rules",     "identity", "allow",
                                        "block",  "response",    "normalize", "domains"};
    struct descriptors_reader reader = {.builder = builder};
    struct weir__diagnostics *report = builder->report;
    size_t first_rule = builder->set->count;
    int errors = report->errors;
    weir_text domain = {NULL, 0};
    bool twice;

    if (!weir__field_names(report, root, "a file of descriptors", names, COUNT(names)))
        return;
    const struct weir__node *node = weir__node_get(root, "domain");
    if (node && !weir__node_is_null(node) && !weir__field_text(report, node, "domain", &domain))
        return;
    if (domain.len == 0) {
        weir__report_error(report, node ? node->place : root->place, "a file of descriptors needs a domain");
        return;
    }
    struct weir__descriptor_node *top = weir__descriptor_add(builder->set, NULL, domain, (weir_text){NULL, 0}, &twice);
    if (!top)
        return;
    if (twice) {
        char first[256], shown[WEIR__SHOWN];
        weir__report_error(report, node->place, "the domain \"%s\" is taken by the file of %s",
                           weir__printable(domain, shown, sizeof shown),
                           weir__place_text(report, top->place, first, sizeof first));
        return;
    }
    top->place = node->place;
    reader.domain = top;
    read_all(&reader, root);
    if (report->errors == errors)
        warn_of_replaces(&reader, first_rule);
}
