/* Reads the rate_limit of a descriptor: unit and number, or unlimited; its name and what it replaces. */
#include "rules/descriptor_tree.h"

#include "rules/algorithm.h"

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

bool weir__node_is_nothing(const struct weir__node *node)
{
    return node->kind == WEIR__SCALAR && !node->quoted &&
           (node->text.len == 0 || weir__text_is(node->text, "~") || weir__text_is(node->text, "null"));
}

static bool read_window(struct weir__diagnostics *report, const struct weir__node *map,
                        struct weir__parsed_window *window)
{
    const struct weir__node *unit = weir__node_get(map, "unit"), *multiplier = weir__node_get(map, "unit_multiplier");
    weir_text word;
    if (!unit || weir__node_is_nothing(unit)) {
        weir__report_error(report, map->place, "a rate_limit needs a unit (second to year), or unlimited: true");
        return false;
    }
    if (!weir__field_text(report, unit, "unit", &word))
        return false;
    size_t i = 0;
    while (i < COUNT(units) && !weir__text_equal_nocase(word, (weir_text){units[i], strlen(units[i])}))
        i++;
    if (i == COUNT(units)) {
        char shown[WEIR__SHOWN];
        weir__report_unknown(report, unit->place, word, units, COUNT(units),
                             "unit must be second, minute, hour, day, week, month or year, not \"%s\"",
                             weir__printable(word, shown, sizeof shown));
        return false;
    }
    *window = windows[i];

    int64_t times = 1, most = WINDOW_MAX / window->ns;
    if (multiplier && !weir__field_int(report, multiplier, "unit_multiplier", 1, most, &times))
        return false;
    window->ns *= times;
    window->calendar &= times == 1;
    return true;
}

/* Nothing may be said about what does not exist. */
static bool read_unlimited(struct weir__diagnostics *report, const struct weir__node *map, struct weir__quota *quota)
{
    static const char *const contradict[] = {"unit", "unit_multiplier", WEIR__ALGORITHM_FIELDS};
    const struct weir__node *node;
    bool good = true;
    for (size_t i = 0; i < COUNT(contradict); i++)
        if ((node = weir__node_get(map, contradict[i]))) {
            weir__report_error(report, node->name->place, "%s contradicts unlimited: true", contradict[i]);
            good = false;
        }
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
    if (!nodes.limit || weir__node_is_nothing(nodes.limit)) {
        weir__report_error(report, map->place, "a rate_limit needs requests_per_unit, or unlimited: true");
        good = false;
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
    if (!node || weir__node_is_nothing(node))
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
    if (node && !weir__node_is_nothing(node) && !weir__field_text(report, node, "name", &name))
        return false;
    if (name.len == 0) {
        weir__report_error(report, entry->place, "an entry of replaces needs the name of a rate_limit");
        return false;
    }
    if (weir__text_equal(name, rule->limit_name)) {
        weir__report_error(report, node->place, "a rate_limit cannot replace itself");
        return false;
    }
    *replaced = weir__arena_copy(&builder->set->arena, name);
    return replaced->data != NULL;
}

static bool read_replaces(struct weir__builder *builder, const struct weir__node *list, struct weir__rule *rule)
{
    if (!list || weir__node_is_nothing(list))
        return true;
    if (list->kind != WEIR__LIST) {
        weir__report_error(builder->report, list->place, "replaces must be a list such as [{ name: … }], but is %s",
                           weir__node_is(list));
        return false;
    }
    weir_text *names = weir__arena_array(&builder->set->arena, list->count, sizeof *names);
    if (!names)
        return list->count == 0;
    bool good = true;
    for (const struct weir__node *entry = list->first; entry; entry = entry->next)
        good &= read_replaced(builder, entry, rule, &names[rule->replaces_count++]);
    rule->replaces = names;
    return good;
}

bool weir__descriptor_limit_read(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule)
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
