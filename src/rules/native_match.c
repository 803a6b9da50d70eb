/* The native dialect: `match`. */
#include "rules/native.h"

#include <stdio.h>

#define ENTRIES_MAX 1024 /* hosts × paths in the index; with more, the hosts become a condition */

/* The kinds of fields with patterns. */
enum style { PATH, METHOD, HOST, VALUE };

/* The patterns of one field, as a condition. */
struct patterns {
    struct weir__condition condition; /* its attribute is not set */
    bool any;                         /* one of them is "*" */
    bool regex;                       /* one of them is a regular expression */
};

/* A match under construction. */
struct match_reader {
    struct weir__builder *builder;
    struct weir__match *match;
    struct weir__condition *conditions; /* has room for all */
};

/* ---- One pattern ---- */

bool weir__native_path(struct weir__builder *builder, const struct weir__node *node, struct weir__pattern *pattern)
{
    if (!node->text.len)
        return weir__node_error(node, "the path is empty");
    if (!weir__pattern_compile(pattern, node->text, true, false, &builder->set->arena))
        return false;
    if (pattern->kind != WEIR__PATTERN_ANY)
        weir__lint_path(node);
    return true;
}

bool weir__native_normal(struct weir__builder *builder, const struct weir__pattern *pattern,
                         struct weir__pattern *normal)
{
    unsigned form = builder->set->attributes.form;
    weir_text text = pattern->text;
    *normal = *pattern;
    if (pattern->kind == WEIR__PATTERN_REGEX || pattern->kind == WEIR__PATTERN_ANY || memchr(text.data, ';', text.len))
        return true;
    /* After a star it stays: a final star would match everything below. */
    if (form & WEIR__FORM_SLASH && text.len > 1 && text.data[text.len - 1] == '/' && text.data[text.len - 2] != '*')
        text.len--;
    normal->text = text;
    if (!(form & WEIR__FORM_CASE))
        return true;
    bool made = weir__pattern_compile(normal, text, true, true, &builder->set->arena);
    normal->nocase = false; /* it is in lower case, as the normal form is */
    return made;
}

static bool check_method(const struct weir__node *node)
{
    for (size_t i = 0; i < node->text.len; i++) {
        unsigned char c = weir__lower(node->text.data[i]);
        if (c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}*|", c))
            return weir__node_error(node, "\"%s\" is no method: expected one such as POST, a list, or \"*\"",
                                    node->text.data);
    }
    weir__lint_method(node);
    return true;
}

static bool make_regex(struct weir__builder *builder, const struct weir__node *node, bool nocase, const char *what,
                       struct weir__pattern *pattern)
{
    static const struct weir__field fields[] = {{"regex", WEIR__FIELD_TEXT, WEIR__IN(struct weir__pattern, text)}};
    *pattern = (struct weir__pattern){.kind = WEIR__PATTERN_REGEX, .nocase = nocase};
    if (!weir__fields_read(node, what, WEIR__LIST_OF(fields), pattern, NULL))
        return false;
    if (!node->first)
        return weir__node_error(node, "%s: expected a pattern or { regex: … }, not an empty map", what);
    pattern->regex = weir__builder_regex(builder, node->first, pattern->text, nocase);
    return pattern->regex != NULL;
}

/* Compiles one pattern of a field. Hosts and methods ignore case in any case. */
static bool make_pattern(struct weir__builder *builder, const struct weir__node *node, enum style style, bool nocase,
                         const char *what, struct weir__pattern *pattern)
{
    nocase |= style == HOST || style == METHOD;
    if (node->kind == WEIR__MAP)
        return make_regex(builder, node, nocase, what, pattern);
    if (node->kind != WEIR__SCALAR || !node->text.len)
        return weir__node_error(node, "%s: expected a pattern, not %s", what,
                                node->kind == WEIR__SCALAR ? "an empty text" : weir__node_is(node));
    if (style == PATH)
        return weir__native_path(builder, node, pattern);
    if (!weir__pattern_compile(pattern, node->text, false, nocase, &builder->set->arena))
        return false;
    if (style == HOST && pattern->kind != WEIR__PATTERN_ANY)
        weir__lint_host(node);
    if (style == VALUE && !node->quoted && weir__text_is(node->text, "present"))
        weir__node_warning(node, "%s: present is a literal text; \"*\" matches any value", what);
    return style != METHOD || pattern->kind == WEIR__PATTERN_ANY || check_method(node);
}

/* ---- One field: a pattern, a list of them, or { not: either } ---- */

static bool is_absent(const struct weir__node *node)
{
    return node->kind == WEIR__SCALAR && !node->quoted && weir__text_is(node->text, "absent");
}

/* The value of { not: … }, or the node itself; NULL after an error. */
static const struct weir__node *unwrap(const struct weir__node *node, const char *what, bool *negate)
{
    static const char *const names[] = {"not", "regex"};
    const struct weir__node *inner = weir__node_get(node, "not"), *regex = weir__node_get(node, "regex");
    int errors = node->report->errors;
    *negate = inner != NULL;
    if (node->kind == WEIR__MAP)
        weir__field_names(node, what, WEIR__LIST_OF(names));
    if (inner && regex && node->report->errors == errors)
        weir__node_error(regex->name, "%s: regex belongs inside not: { not: { regex: … } }", what);
    if (node->report->errors > errors)
        return NULL;
    return inner ? inner : node;
}

static bool is_same(const struct weir__pattern *a, const struct weir__pattern *b)
{
    return a->kind == b->kind && weir__text_equal(a->text, b->text);
}

static bool read_patterns(struct weir__builder *builder, const struct weir__node *node, enum style style, bool nocase,
                          const char *what, struct patterns *made)
{
    static const struct weir__pattern present = {.kind = WEIR__PATTERN_ANY};
    struct weir__arena *arena = &builder->set->arena;
    struct weir__condition *condition = &made->condition;
    *made = (struct patterns){.any = false};
    const struct weir__node *inner = unwrap(node, what, &condition->negate);
    if (!inner)
        return false;
    if (style == VALUE && is_absent(inner)) {
        *condition = condition->negate ? (struct weir__condition){.patterns = &present, .pattern_count = 1}
                                       /* not absent */
                                       : (struct weir__condition){.absent = true};
        return true;
    }
    bool is_list = inner->kind == WEIR__LIST, good = true;
    if (is_list && !inner->count)
        return weir__node_error(inner, "%s: the list is empty, so that no request would match", what);
    unsigned form = style == PATH ? builder->set->attributes.form : 0;
    struct weir__pattern *pattern = weir__arena_array(arena, weir__item_count(inner), sizeof *pattern);
    struct weir__pattern *normal = form ? weir__arena_array(arena, weir__item_count(inner), sizeof *normal) : NULL;
    condition->patterns = pattern;
    condition->normal = normal;
    if (!pattern || (form && !normal))
        return false;
    nocase |= form & WEIR__FORM_CASE && !condition->negate; /* a `not` must not exclude more than its pattern */
    WEIR__EACH_ITEM (one, inner) {
        if (style == VALUE && is_list && is_absent(one))
            good = weir__node_error(one, "%s: absent cannot be in a list; in quotes it is a literal text", what);
        else
            good &= make_pattern(builder, one, style, nocase, what, pattern);
        if (good && style == PATH && !condition->negate)
            weir__lint_spellings(one, pattern, form);
        if (good && form) {
            good = weir__native_normal(builder, pattern, normal);
            condition->normal_differs |= !is_same(pattern, normal++);
        }
        made->any |= pattern->kind == WEIR__PATTERN_ANY;
        made->regex |= pattern->kind == WEIR__PATTERN_REGEX;
        pattern++;
        condition->pattern_count++;
    }
    if (good && style != VALUE && made->any && condition->negate)
        weir__node_warning(inner, "%s: none of all, so that only requests without one match", what);
    return good;
}

static void add_condition(struct match_reader *reader, int attribute, const struct patterns *from)
{
    struct weir__condition *condition = &reader->conditions[reader->match->condition_count++];
    *condition = from->condition;
    condition->attribute = (int16_t)attribute;
}

static bool has_condition(const struct match_reader *reader, int attribute)
{
    for (size_t i = 0; i < reader->match->condition_count; i++)
        if (reader->conditions[i].attribute == attribute)
            return true;
    return false;
}

/* ---- The fields ---- */

/* header and query: a map of names to patterns. */
static bool read_map(struct match_reader *reader, const struct weir__node *node, const char *kind)
{
    struct weir__builder *builder = reader->builder;
    bool good = true;
    if (node->kind != WEIR__MAP || !node->first)
        return weir__node_error(node, "%s: expected a map of names to patterns, not %s", kind,
                                node->kind == WEIR__MAP ? "an empty one" : weir__node_is(node));
    for (const struct weir__node *member = node->first; member; member = member->next) {
        char text[256];
        struct patterns patterns;
        weir_text name = member->name->text;
        size_t before = (size_t)snprintf(text, sizeof text, "%s:", kind);
        if (before + name.len >= sizeof text) {
            good = weir__node_error(member->name, "%s: the name is too long", kind);
            continue;
        }
        memcpy(text + before, name.data, name.len);
        text[before + name.len] = 0;
        int attribute = weir__attribute_parse(&builder->set->attributes, &builder->set->arena, builder->report,
                                              member->name->place, (weir_text){text, before + name.len});
        if (attribute >= 0 && has_condition(reader, attribute)) {
            good = weir__node_error(member->name,
                                    "%s is here a second time: names of headers differ in more than their case", text);
        } else if (!read_patterns(builder, member, VALUE, false, text, &patterns) || attribute < 0) {
            good = false;
        } else {
            add_condition(reader, attribute, &patterns);
        }
    }
    return good;
}

/* True if the source is a part of the path in lower case. */
static bool ignores_case(const struct weir__attributes *all, int attribute)
{
    int source = all->list[attribute].mapping ? -1 : all->list[attribute].source;
    return source >= 0 && all->list[source].form & WEIR__FORM_CASE;
}

/* A named attribute: of `identity`, or a well-known one. */
static bool read_named(struct match_reader *reader, const struct weir__node *node)
{
    enum { FIXED = 10 };
    const char *known[FIXED + WEIR__ATTRIBUTES_MAX] = {"path",    "method",    "host",    "header",  "query",
                                                       "network", "normalize", "user_id", "api_key", "tier"};
    struct weir__builder *builder = reader->builder;
    struct weir__attributes *all = &builder->set->attributes;
    weir_text name = node->name->text;
    struct patterns patterns;

    if (weir__text_is(name, "client_ip") || weir__text_is(name, "ip") || weir__text_is(name, "cidr"))
        return weir__node_error(node->name, "match has no %s: network matches the client's address", name.data);
    if (!weir__attribute_is_known(all, name)) {
        size_t count = FIXED;
        for (int i = 0; i < all->count; i++)
            if (all->list[i].kind == WEIR__ATTR_NAMED && all->list[i].source >= 0)
                known[count++] = all->list[i].name.data;
        return weir__node_unknown(node->name, name, known, count, "match has no \"%s\", and identity does not name it",
                                  name.data);
    }
    int attribute = weir__attribute_parse(all, &builder->set->arena, builder->report, node->name->place, name);
    bool nocase = attribute >= 0 && ignores_case(all, attribute);
    if (!read_patterns(builder, node, VALUE, nocase, name.data, &patterns) || attribute < 0)
        return false;
    add_condition(reader, attribute, &patterns);
    return true;
}

static bool read_method(struct match_reader *reader, const struct weir__node *node)
{
    struct patterns patterns;
    unsigned mask = 0;
    if (!read_patterns(reader->builder, node, METHOD, true, "method", &patterns))
        return false;
    if (patterns.any) {
        reader->match->methods = patterns.condition.negate ? WEIR__METHOD_NONE : WEIR__METHOD_ANY;
        return true;
    }
    for (size_t i = 0; i < patterns.condition.pattern_count; i++) {
        const struct weir__pattern *pattern = &patterns.condition.patterns[i];
        unsigned bit = weir__method_bit(pattern->text);
        if (pattern->kind != WEIR__PATTERN_EXACT || bit == WEIR__METHOD_OTHER) {
            add_condition(reader, WEIR__AT_METHOD, &patterns);
            return true;
        }
        mask |= bit;
    }
    reader->match->methods = patterns.condition.negate ? WEIR__METHOD_ANY & ~mask : mask;
    return true;
}

static bool read_network(struct match_reader *reader, const struct weir__node *node)
{
    struct weir__match *match = reader->match;
    const struct weir__node *inner = unwrap(node, "network", &match->networks_negate);
    if (!inner)
        return false;
    if (inner->kind == WEIR__LIST && !inner->count)
        return weir__node_error(inner, "network: the list is empty, so that no request would match");
    return weir__native_networks(reader->builder, inner, "network", &match->networks);
}

/*
 * Hosts and paths go into the index, unless one of them is a regular expression or they are negated: then the field is
 * a condition. `indexed` becomes empty if any value matches.
 */
static bool read_indexed(struct match_reader *reader, const struct weir__node *node, enum style style, const char *what,
                         struct patterns *indexed)
{
    *indexed = (struct patterns){.any = false};
    if (!node)
        return true;
    if (!read_patterns(reader->builder, node, style, false, what, indexed))
        return false;
    bool condition = indexed->condition.negate || (indexed->regex && !indexed->any);
    if (condition)
        add_condition(reader, style == PATH ? WEIR__AT_PATH : WEIR__AT_HOST, indexed);
    if (condition || indexed->any)
        indexed->condition.pattern_count = 0;
    return true;
}

/* Makes the entries of the index: each host with each path, and with each normal form of a path that differs. */
static bool make_entries(struct match_reader *reader, const struct patterns *hosts, const struct patterns *paths)
{
    const struct weir__condition *host = &hosts->condition, *path = &paths->condition;
    size_t host_count = host->pattern_count, path_count = path->pattern_count, all_paths = path_count, at = 0;
    for (size_t p = 0; path->normal && p < path_count; p++)
        all_paths += !is_same(&path->patterns[p], &path->normal[p]);
    if (host_count && all_paths > ENTRIES_MAX / host_count) {
        add_condition(reader, WEIR__AT_HOST, hosts);
        host_count = 0;
    }
    size_t most = (host_count ? host_count : 1) * (all_paths ? all_paths : 1);
    struct weir__path_entry *entries = weir__arena_array(&reader->builder->set->arena, most, sizeof *entries);
    if (!entries)
        return false;
    for (size_t h = 0; h == 0 || h < host_count; h++) {
        const struct weir__pattern *its = host_count ? &host->patterns[h] : NULL;
        for (size_t p = 0; p == 0 || p < path_count; p++)
            entries[at++] = (struct weir__path_entry){.host = its, .path = path_count ? &path->patterns[p] : NULL};
        for (size_t p = 0; path->normal && p < path_count; p++)
            if (!is_same(&path->patterns[p], &path->normal[p]))
                entries[at++] = (struct weir__path_entry){.host = its, .path = &path->normal[p]};
    }
    reader->match->entries = entries;
    reader->match->entry_count = at;
    return true;
}

static bool read_match(struct match_reader *reader, const struct weir__node *node)
{
    const struct weir__node *host = NULL, *path = NULL;
    struct patterns hosts, paths;
    bool good = true;
    for (const struct weir__node *member = node ? node->first : NULL; member; member = member->next) {
        weir_text name = member->name->text;
        if (weir__text_is(name, "path"))
            path = member;
        else if (weir__text_is(name, "host"))
            host = member;
        else if (weir__text_is(name, "method"))
            good &= read_method(reader, member);
        else if (weir__text_is(name, "header") || weir__text_is(name, "query"))
            good &= read_map(reader, member, name.data);
        else if (weir__text_is(name, "network"))
            good &= read_network(reader, member);
        else if (!weir__text_is(name, "normalize"))
            good &= read_named(reader, member);
    }
    good &= read_indexed(reader, host, HOST, "host", &hosts);
    good &= read_indexed(reader, path, PATH, "path", &paths);
    return good && make_entries(reader, &hosts, &paths);
}

const struct weir__match *weir__native_match(struct weir__builder *builder, const struct weir__node *node)
{
    struct weir__arena *arena = &builder->set->arena;
    struct match_reader reader = {.builder = builder, .match = weir__arena_take(arena, sizeof *reader.match)};
    size_t room = 2; /* host, path */
    if (node && node->kind != WEIR__MAP) {
        weir__node_error(node, "match is a map such as { path: /api/*, method: POST }, not %s", weir__node_is(node));
        return NULL;
    }
    for (const struct weir__node *member = node ? node->first : NULL; member; member = member->next)
        room += 1 + (member->kind == WEIR__MAP ? member->count : 0); /* headers, arguments */
    reader.conditions = weir__arena_array(arena, room, sizeof *reader.conditions);
    if (!reader.match || !reader.conditions)
        return NULL;
    const struct weir__node *normalize = node ? weir__node_get(node, "normalize") : NULL;
    reader.match->form = builder->set->form;
    if (normalize)
        weir__native_normalize(normalize, &reader.match->form);
    builder->set->attributes.form = reader.match->form; /* until the rule is complete */
    reader.match->methods = WEIR__METHOD_ANY;
    reader.match->conditions = reader.conditions;
    reader.match->written = weir__native_written(node);
    return read_match(&reader, node) ? reader.match : NULL;
}
