/*
 * weir convert: the descriptors of envoyproxy/ratelimit. There, the caller sends descriptors and the most specific
 * entry counts; here, every rule that matches counts. So an entry without a value excludes the values of its siblings.
 */
#include "cli/convert.h"
#include "cli/diagnose.h"
#include "rules/set.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TREE_BYTES ((size_t)256 << 20)

/* One entry on the way down to a limit. */
struct descriptor_step {
    const struct weir__node *entry, *siblings;
    const char *key, *value; /* value "": any */
    bool share;              /* share_threshold: all values of the pattern share a counter */
    int number;              /* which of the entries with this key on the way, from 1 */
};

struct descriptor_walk {
    struct weir__convert *convert;
    const char *domain;
    struct descriptor_step steps[WEIR__YAML_DEPTH];
    int depth;
};

/* The text of a member; "" if it has none. */
static const char *text(const struct weir__node *map, const char *name)
{
    const struct weir__node *node = weir__node_get(map, name);
    return node && node->kind == WEIR__SCALAR ? node->text.data : "";
}

static bool is_true(const struct weir__node *map, const char *name)
{
    return strcmp(text(map, name), "true") == 0;
}

static int line_of(const struct weir__node *node)
{
    return (int)node->place.line;
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
static size_t find_rivals(const struct descriptor_step *step, const char **rivals)
{
    bool earlier = true;
    size_t count = 0;
    for (const struct weir__node *entry = step->siblings->first; entry; entry = entry->next) {
        const char *value = text(entry, "value");
        if (entry == step->entry)
            earlier = false;
        else if (*value && strcmp(text(entry, "key"), step->key) == 0 &&
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
    const char **rivals = weir__must(calloc(step->siblings->count, sizeof *rivals));
    if (weir__attribute_is_named(attribute))
        weir__convert_identity(walk->convert, attribute);
    bool expressed =
        weir__put_condition(&rule->match, attribute, step->value, rivals, any ? find_rivals(step, rivals) : 0);
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

static void put_window(struct weir__new_rule *rule, const struct weir__node *limit)
{
    /* Weeks, months and years are numbers of days from 1970 on; with a timezone they are the calendar's. */
    static const struct descriptor_unit {
        const char *name;
        long count;
        const char *letter, *calendar;
    } units[] = {{"second", 1, "s", "s"}, {"minute", 1, "m", "m"},  {"hour", 1, "h", "h"},  {"day", 1, "d", "d"},
                 {"week", 7, "d", "w"},   {"month", 30, "d", "mo"}, {"year", 365, "d", "y"}};
    const char *unit = text(limit, "unit");
    const char *times = text(limit, "unit_multiplier");
    bool calendar = weir__node_get(limit, "timezone");
    for (size_t i = 0; i < WEIR__COUNT(units); i++)
        if (strcasecmp(unit, units[i].name) == 0)
            weir__buffer_printf(&rule->more, "window: %ld%s\n",
                                (calendar ? 1 : units[i].count) * (*times ? strtol(times, NULL, 10) : 1),
                                calendar ? units[i].calendar : units[i].letter);
}

/* Copies `algorithm` and its parameters, extensions of weir. */
static void put_parameters(struct weir__new_rule *rule, const struct weir__node *limit)
{
    static const char *const theirs[] = {"unit", "requests_per_unit", "unit_multiplier", "unlimited",
                                         "name", "replaces"};
    if (!weir__node_get(limit, "algorithm"))
        weir__buffer_printf(&rule->more, "algorithm: fixed_window\n");
    for (const struct weir__node *value = limit->first; value; value = value->next) {
        bool own = value->kind == WEIR__SCALAR;
        for (size_t i = 0; i < WEIR__COUNT(theirs); i++)
            own &= !weir__text_is(value->name->text, theirs[i]);
        if (own)
            weir__buffer_printf(&rule->more, "%s: %s\n", value->name->text.data, value->text.data);
    }
}

/* Warns of fields without a counterpart. */
static void add_notes(struct weir__convert *convert, struct weir__new_rule *rule, const struct weir__node *entry,
                      const struct weir__node *limit)
{
    const struct weir__node *replaces = weir__node_get(limit, "replaces");
    if (replaces && replaces->kind == WEIR__LIST) {
        struct weir__buffer names = {0};
        for (const struct weir__node *item = replaces->first; item; item = item->next)
            weir__buffer_printf(&names, "%s%s", names.len ? ", " : "", text(item, "name"));
        weir__convert_warn(convert, rule, line_of(replaces),
                           "replaces has no counterpart: here the limits it replaces (%s) count, too, unless their "
                           "match leaves these requests out",
                           weir__buffer_keep(&names));
    }
    if (is_true(entry, "quota_mode"))
        weir__convert_warn(
            convert, rule, line_of(entry),
            "quota_mode has no counterpart: there such limits deny only if all of them are used up, here "
            "each denies by itself");
    if (weir__node_get(entry, "metadata") || is_true(entry, "detailed_metric") || is_true(entry, "value_to_metric"))
        weir__buffer_printf(&rule->notes,
                            "metadata, detailed_metric and value_to_metric are left out: they decide nothing\n");
}

static void put_name(struct descriptor_walk *walk, struct weir__new_rule *rule, const struct weir__node *limit)
{
    const char *name = text(limit, "name");
    if (*name) {
        weir__buffer_printf(&rule->name, "%s", name);
        return;
    }
    weir__buffer_printf(&rule->name, "%s", walk->domain);
    for (int i = 0; i < walk->depth; i++)
        weir__buffer_printf(&rule->name, "/%s%s%s", walk->steps[i].key, *walk->steps[i].value ? "=" : "",
                            walk->steps[i].value);
}

static void make_rule(struct descriptor_walk *walk, const struct weir__node *entry, const struct weir__node *limit)
{
    struct weir__new_rule rule = {0};
    bool expressed = true;
    put_name(walk, &rule, limit);
    weir__buffer_printf(&rule.notes, "%s:%d\n", walk->convert->file, line_of(entry));
    for (int i = 0; i < walk->depth; i++)
        expressed &= add_step(walk, &rule, &walk->steps[i]);
    if (is_true(limit, "unlimited")) {
        weir__buffer_printf(&rule.notes, "%s is unlimited: no rule; those of the values beside it leave it out\n",
                            weir__buffer_text(&rule.name));
        expressed = false;
    } else {
        weir__buffer_printf(&rule.more, "limit: %s\n", text(limit, "requests_per_unit"));
        put_window(&rule, limit);
        put_parameters(&rule, limit);
    }
    if (is_true(entry, "shadow_mode"))
        weir__buffer_printf(&rule.more, "shadow: true\n");
    add_notes(walk->convert, &rule, entry, limit);
    weir__convert_rule(walk->convert, &rule, expressed);
}

/* Goes down the tree, whose depth is bounded by the reader of YAML. */
static void visit(struct descriptor_walk *walk, const struct weir__node *list)
{
    if (!list || list->kind != WEIR__LIST)
        return;
    for (const struct weir__node *entry = list->first; entry; entry = entry->next) {
        struct descriptor_step *step = &walk->steps[walk->depth];
        *step = (struct descriptor_step){.entry = entry,
                                         .siblings = list,
                                         .key = text(entry, "key"),
                                         .value = text(entry, "value"),
                                         .share = is_true(entry, "share_threshold"),
                                         .number = 1};
        for (int i = 0; i < walk->depth; i++)
            step->number += strcmp(walk->steps[i].key, step->key) == 0;
        walk->depth++;
        const struct weir__node *limit = weir__node_get(entry, "rate_limit");
        if (limit && limit->kind == WEIR__MAP)
            make_rule(walk, entry, limit);
        visit(walk, weir__node_get(entry, "descriptors"));
        walk->depth--;
    }
}

void weir__convert_descriptors(struct weir__convert *convert, const char *source, size_t len)
{
    struct weir__source file = {convert->file, {source, len}};
    struct weir__diagnostics silent = {.sources = &file, .source_count = 1};
    struct weir__arena arena = {.bytes_max = TREE_BYTES};
    /* The library checks the file first, and reports its errors as everywhere. */
    bool good = weir__convert_check(convert->file, source, len, false);
    const struct weir__node *root = good ? weir__yaml_read(0, &arena, &silent) : NULL;
    if (root) {
        struct descriptor_walk walk = {.convert = convert, .domain = text(root, "domain")};
        weir__convert_head(convert,
                           "From descriptors of envoyproxy/ratelimit, by weir convert. There the caller chooses the\n"
                           "descriptors it sends; here a rule counts every request that has its attributes.\n");
        visit(&walk, weir__node_get(root, "descriptors"));
    }
    convert->failed |= !root;
    weir__arena_free(&arena);
}
