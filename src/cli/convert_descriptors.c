/*
 * weir convert: the descriptors of envoyproxy/ratelimit. There, the caller sends descriptors and the most specific
 * entry counts; here, every rule that matches counts. So an entry without a value excludes the values of its siblings.
 */
#include "cli/convert.h"
#include "cli/diagnose.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { DEPTH = 32 };

/* One entry on the way down to a limit. */
struct descriptor_step {
    yaml_node_t *entry, *siblings;
    const char *key, *value; /* value "": any */
    bool share;              /* share_threshold: all values of the pattern share a counter */
    int number;              /* which of the entries with this key on the way, from 1 */
};

struct descriptor_walk {
    struct weir__convert *convert;
    yaml_document_t document;
    const char *domain;
    struct descriptor_step steps[DEPTH];
    int depth;
};

static yaml_node_t *get(struct descriptor_walk *walk, yaml_node_t *map, const char *name)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&walk->document, pair->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, name) == 0)
            return yaml_document_get_node(&walk->document, pair->value);
    }
    return NULL;
}

/* The text of a member; "" if it has none. */
static const char *text(struct descriptor_walk *walk, yaml_node_t *map, const char *name)
{
    const yaml_node_t *node = get(walk, map, name);
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
}

static bool is_true(struct descriptor_walk *walk, yaml_node_t *map, const char *name)
{
    return strcmp(text(walk, map, name), "true") == 0;
}

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

/* ---- Steps as match and key ---- */

/* False if no text can match both patterns: they begin differently. */
static bool may_meet(const char *a, const char *b)
{
    while (*a && *a != '*' && *a == *b) {
        a++;
        b++;
    }
    return *a == '*' || *b == '*' || *a == *b;
}

/*
 * The values of siblings that have precedence: for a bare key all, for a pattern the exact and earlier ones. Returns
 * how many there are.
 */
static size_t find_rivals(struct descriptor_walk *walk, const struct descriptor_step *step, const char **rivals)
{
    bool earlier = true;
    size_t count = 0;
    yaml_node_item_t *end = step->siblings->data.sequence.items.top;
    for (yaml_node_item_t *item = step->siblings->data.sequence.items.start; item < end; item++) {
        yaml_node_t *entry = yaml_document_get_node(&walk->document, *item);
        const char *value = text(walk, entry, "value");
        if (entry == step->entry)
            earlier = false;
        else if (*value && strcmp(text(walk, entry, "key"), step->key) == 0 &&
                 (!*step->value || ((earlier || !strchr(value, '*')) && may_meet(value, step->value))))
            rivals[count++] = value;
    }
    return count;
}

/* False if a rule cannot express it. */
static bool add_step(struct descriptor_walk *walk, struct weir__new_rule *rule, const struct descriptor_step *step)
{
    const char *attribute = weir__attribute_for_key(step->key, step->number);
    bool any = strchr(step->value, '*') || !*step->value;
    size_t siblings = (size_t)(step->siblings->data.sequence.items.top - step->siblings->data.sequence.items.start);
    const char **rivals = weir__must(calloc(siblings, sizeof *rivals));
    if (weir__attribute_is_named(attribute))
        weir__convert_identity(walk->convert, attribute);
    bool expressed =
        weir__put_condition(&rule->match, attribute, step->value, rivals, any ? find_rivals(walk, step, rivals) : 0);
    free(rivals);
    if (!expressed)
        weir__convert_warn(walk->convert, rule, line_of(step->entry),
                           "not converted: '%s: %s' is not a network, and addresses are matched by network only",
                           step->key, step->value);
    if (any && !step->share)
        weir__buffer_printf(&rule->key, "%s${%s}", rule->key.len > 0 ? ":" : "", attribute);
    return expressed;
}

/* ---- Limits ---- */

static void put_window(struct descriptor_walk *walk, struct weir__new_rule *rule, yaml_node_t *limit)
{
    /* Weeks, months and years are numbers of days from 1970 on; with a timezone they are the calendar's. */
    static const struct descriptor_unit {
        const char *name;
        long count;
        const char *letter, *calendar;
    } units[] = {{"second", 1, "s", "s"}, {"minute", 1, "m", "m"},  {"hour", 1, "h", "h"},  {"day", 1, "d", "d"},
                 {"week", 7, "d", "w"},   {"month", 30, "d", "mo"}, {"year", 365, "d", "y"}};
    const char *unit = text(walk, limit, "unit");
    const char *times = text(walk, limit, "unit_multiplier");
    bool calendar = get(walk, limit, "timezone");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(unit, units[i].name) == 0)
            weir__buffer_printf(&rule->more, "window: %ld%s\n",
                                (calendar ? 1 : units[i].count) * (*times ? strtol(times, NULL, 10) : 1),
                                calendar ? units[i].calendar : units[i].letter);
}

/* Copies `algorithm` and its parameters, extensions of weir. */
static void put_parameters(struct descriptor_walk *walk, struct weir__new_rule *rule, yaml_node_t *limit)
{
    static const char *const theirs[] = {"unit", "requests_per_unit", "unit_multiplier", "unlimited",
                                         "name", "replaces"};
    if (!get(walk, limit, "algorithm"))
        weir__buffer_printf(&rule->more, "algorithm: fixed_window\n");
    for (yaml_node_pair_t *pair = limit->data.mapping.pairs.start; pair < limit->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&walk->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&walk->document, pair->value);
        const char *name = key->type == YAML_SCALAR_NODE ? (const char *)key->data.scalar.value : "";
        bool own = value->type == YAML_SCALAR_NODE && *name;
        for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
            own &= strcmp(name, theirs[i]) != 0;
        if (own)
            weir__buffer_printf(&rule->more, "%s: %s\n", name, (const char *)value->data.scalar.value);
    }
}

/* Warns of fields without a counterpart. */
static void add_notes(struct descriptor_walk *walk, struct weir__new_rule *rule, yaml_node_t *entry, yaml_node_t *limit)
{
    struct weir__convert *convert = walk->convert;
    yaml_node_t *replaces = get(walk, limit, "replaces");
    if (replaces && replaces->type == YAML_SEQUENCE_NODE) {
        struct weir__buffer names = {0};
        for (yaml_node_item_t *item = replaces->data.sequence.items.start; item < replaces->data.sequence.items.top;
             item++)
            weir__buffer_printf(&names, "%s%s", names.len ? ", " : "",
                                text(walk, yaml_document_get_node(&walk->document, *item), "name"));
        weir__convert_warn(convert, rule, line_of(replaces),
                           "replaces has no counterpart: here the limits it replaces (%s) count, too, unless their "
                           "match leaves these requests out",
                           weir__buffer_keep(&names));
    }
    if (is_true(walk, entry, "quota_mode"))
        weir__convert_warn(
            convert, rule, line_of(entry),
            "quota_mode has no counterpart: there such limits deny only if all of them are used up, here "
            "each denies by itself");
    if (get(walk, entry, "metadata") || is_true(walk, entry, "detailed_metric") ||
        is_true(walk, entry, "value_to_metric"))
        weir__buffer_printf(&rule->notes,
                            "metadata, detailed_metric and value_to_metric are left out: they decide nothing\n");
}

static void put_name(struct descriptor_walk *walk, struct weir__new_rule *rule, yaml_node_t *limit)
{
    const char *name = text(walk, limit, "name");
    if (*name) {
        weir__buffer_printf(&rule->name, "%s", name);
        return;
    }
    weir__buffer_printf(&rule->name, "%s", walk->domain);
    for (int i = 0; i < walk->depth; i++)
        weir__buffer_printf(&rule->name, "/%s%s%s", walk->steps[i].key, *walk->steps[i].value ? "=" : "",
                            walk->steps[i].value);
}

static void make_rule(struct descriptor_walk *walk, yaml_node_t *entry, yaml_node_t *limit)
{
    struct weir__new_rule rule = {0};
    bool expressed = true;
    put_name(walk, &rule, limit);
    weir__buffer_printf(&rule.notes, "%s:%d\n", walk->convert->file, line_of(entry));
    for (int i = 0; i < walk->depth; i++)
        expressed &= add_step(walk, &rule, &walk->steps[i]);
    if (is_true(walk, limit, "unlimited")) {
        weir__buffer_printf(&rule.notes, "%s is unlimited: no rule; those of the values beside it leave it out\n",
                            weir__buffer_text(&rule.name));
        expressed = false;
    } else {
        weir__buffer_printf(&rule.more, "limit: %s\n", text(walk, limit, "requests_per_unit"));
        put_window(walk, &rule, limit);
        put_parameters(walk, &rule, limit);
    }
    if (is_true(walk, entry, "shadow_mode"))
        weir__buffer_printf(&rule.more, "shadow: true\n");
    add_notes(walk, &rule, entry, limit);
    weir__convert_rule(walk->convert, &rule, expressed);
}

/* Goes down the tree; the library has made sure that it is at most DEPTH deep. */
static void visit(struct descriptor_walk *walk, yaml_node_t *list)
{
    if (!list || list->type != YAML_SEQUENCE_NODE || walk->depth == DEPTH)
        return;
    for (yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top; item++) {
        yaml_node_t *entry = yaml_document_get_node(&walk->document, *item);
        struct descriptor_step *step = &walk->steps[walk->depth];
        *step = (struct descriptor_step){.entry = entry,
                                         .siblings = list,
                                         .key = text(walk, entry, "key"),
                                         .value = text(walk, entry, "value"),
                                         .share = is_true(walk, entry, "share_threshold"),
                                         .number = 1};
        for (int i = 0; i < walk->depth; i++)
            step->number += strcmp(walk->steps[i].key, step->key) == 0;
        walk->depth++;
        yaml_node_t *limit = get(walk, entry, "rate_limit");
        if (limit && limit->type == YAML_MAPPING_NODE)
            make_rule(walk, entry, limit);
        visit(walk, get(walk, entry, "descriptors"));
        walk->depth--;
    }
}

void weir__convert_descriptors(struct weir__convert *convert, const char *source, size_t len)
{
    struct descriptor_walk walk = {.convert = convert};
    yaml_parser_t parser;
    /* The library checks the file first, and reports its errors as everywhere. */
    if (!weir__convert_check(convert->file, source, len, weir__add_finding) || !yaml_parser_initialize(&parser)) {
        convert->failed = true;
        return;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)source, len);
    if (yaml_parser_load(&parser, &walk.document)) {
        yaml_node_t *root = yaml_document_get_root_node(&walk.document);
        walk.domain = text(&walk, root, "domain");
        weir__convert_head(convert,
                           "From descriptors of envoyproxy/ratelimit, by weir convert. There the caller chooses the\n"
                           "descriptors it sends; here a rule counts every request that has its attributes.\n");
        visit(&walk, get(&walk, root, "descriptors"));
        yaml_document_delete(&walk.document);
    } else {
        convert->failed = true;
    }
    yaml_parser_delete(&parser);
}
