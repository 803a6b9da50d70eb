/* The native dialect: the document, identity, allow, block, normalize, and the default response. */
#include "rules/native.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Fields ---- */

/* The field of a rule in which this one belongs, or NULL. */
static const char *belongs_in(weir_text name)
{
    static const char *const fields[][2] = {{"path", "match"},      {"method", "match"},    {"host", "match"},
                                            {"header", "match"},    {"query", "match"},     {"network", "match"},
                                            {"normalize", "match"}, {"status", "response"}, {"headers", "response"},
                                            {"reset", "response"},  {"body", "response"},   {"message", "response"}};
    for (size_t i = 0; i < WEIR__COUNT(fields); i++)
        if (weir__text_is(name, fields[i][0]))
            return fields[i][1];
    return NULL;
}

/* The field that another product calls `name`, or `name` itself. */
static weir_text called_here(weir_text name)
{
    static const char *const fields[][2] = {
        {"rate", "limit"},         {"requests", "limit"},  {"max", "limit"},       {"quota", "limit"},
        {"per", "window"},         {"period", "window"},   {"interval", "window"}, {"duration", "window"},
        {"dry_run", "shadow"},     {"log_only", "shadow"}, {"by", "key"},          {"paths", "match"},
        {"strategy", "algorithm"}, {"type", "algorithm"},  {"capacity", "burst"},  {"weight", "cost"}};
    for (size_t i = 0; i < WEIR__COUNT(fields); i++)
        if (weir__text_is(name, fields[i][0]))
            return (weir_text){fields[i][1], strlen(fields[i][1])};
    return name;
}

static void report_unknown(struct weir__diagnostics *report, const struct weir__node *member, const char *what,
                           const char *const *names, size_t count)
{
    char shown[WEIR__SHOWN];
    weir_text name = member->name->text;
    bool rule = strcmp(what, "a rule") == 0;
    const char *inside = rule ? belongs_in(name) : NULL;
    weir__printable(name, shown, sizeof shown);
    if (inside)
        weir__report_error(report, member->name->place, "a rule has no field \"%s\"; it belongs in %s: { %s: … }",
                           shown, inside, shown);
    else
        weir__report_unknown(report, member->name->place, rule ? called_here(name) : name, names, count,
                             "%s has no field \"%s\"", what, shown);
}

bool weir__native_pick(struct weir__diagnostics *report, const struct weir__node *map, const char *what,
                       const char *const *names, size_t count, const struct weir__node **nodes)
{
    memset(nodes, 0, count * sizeof(struct weir__node *));
    if (map->kind != WEIR__MAP)
        return weir__field_names(report, map, what, names, count);
    bool known = true;
    for (const struct weir__node *member = map->first; member; member = member->next) {
        size_t i = 0;
        while (i < count && !weir__text_is(member->name->text, names[i]))
            i++;
        if (i < count) {
            nodes[i] = member;
        } else {
            report_unknown(report, member, what, names, count);
            known = false;
        }
    }
    return known;
}

uint64_t weir__native_written(const struct weir__node *node)
{
    if (!node)
        return 0;
    uint64_t hash = weir__hash_text(node->text, (uint64_t)node->kind + (node->quoted ? 8 : 0));
    /* The depth is bounded by WEIR__YAML_DEPTH. */
    for (const struct weir__node *member = node->first; member; member = member->next) {
        uint64_t inner = weir__native_written(member);
        if (node->kind == WEIR__MAP)
            hash += weir__hash_text(member->name->text, inner); /* independent of the order of fields */
        else
            hash = hash * UINT64_C(0x9e3779b97f4a7c15) + inner;
    }
    return hash ? hash : 1;
}

bool weir__native_known(const struct weir__attributes *all, weir_text name)
{
    static const char *const known_names[] = {"user_id", "api_key", "tier"};
    for (size_t i = 0; i < WEIR__COUNT(known_names); i++)
        if (weir__text_is(name, known_names[i]))
            return true;
    for (int i = 0; i < all->count; i++)
        if (all->list[i].kind == WEIR__ATTR_NAMED && all->list[i].source >= 0 &&
            weir__text_equal(all->list[i].name, name))
            return true;
    return false;
}

/* ---- Networks and lists ---- */

bool weir__native_networks(struct weir__builder *builder, const struct weir__node *node, const char *what,
                           const struct weir__networks **networks)
{
    bool good = true;
    size_t at = 0;
    struct weir__network *list = weir__arena_array(&builder->set->arena, weir__item_count(node) + 1, sizeof *list);
    if (!list)
        return false;
    WEIR__EACH_ITEM (item, node)
        good &= weir__field_network(builder->report, item, what, &list[at++]);
    if (good)
        *networks = weir__networks_make(&builder->set->arena, list, at);
    return good && *networks;
}

static int compare_keys(const void *a, const void *b)
{
    return weir__text_order(*(const weir_text *)a, *(const weir_text *)b);
}

static bool read_key(struct weir__diagnostics *report, const struct weir__node *node, const char *what)
{
    if (node->kind == WEIR__SCALAR && node->text.len > 0 && node->text.len <= WEIR__KEY_MAX) {
        if (strstr(node->text.data, "${"))
            weir__report_warning(report, node->place, "%s lists complete keys such as user:42; none contains \"${\"",
                                 what);
        return true;
    }
    return weir__report_error(report, node->place, "%s: expected a key of 1 to %d bytes, not %s", what, WEIR__KEY_MAX,
                              node->kind != WEIR__SCALAR ? weir__node_is(node)
                              : node->text.len           ? "a longer one"
                                                         : "an empty one");
}

/* Reads keys into two lists: those with '*', and the others, sorted. */
static bool read_keys(struct weir__builder *builder, const struct weir__node *node, const char *what,
                      struct weir__access_list *list)
{
    struct weir__arena *arena = &builder->set->arena;
    size_t count = weir__item_count(node);
    struct weir__pattern *globs = weir__arena_array(arena, count + 1, sizeof *globs);
    weir_text *keys = weir__arena_array(arena, count + 1, sizeof *keys);
    bool good = true;
    if (!globs || !keys)
        return false;

    WEIR__EACH_ITEM (key, node) {
        if (!read_key(builder->report, key, what))
            good = false;
        else if (memchr(key->text.data, '*', key->text.len))
            globs[list->glob_count++] = (struct weir__pattern){.kind = WEIR__PATTERN_GLOB, .text = key->text};
        else
            keys[list->key_count++] = key->text;
    }
    qsort(keys, list->key_count, sizeof *keys, compare_keys);
    list->globs = globs;
    list->keys = keys;
    return good;
}

bool weir__native_list(struct weir__builder *builder, const struct weir__node *node, const char *what,
                       struct weir__access_list *list)
{
    static const char *const names[] = {"networks", "keys"};
    char inner[32];
    const struct weir__node *at[2];
    bool good = weir__native_pick(builder->report, node, what, names, WEIR__COUNT(names), at);
    snprintf(inner, sizeof inner, "%s.networks", what);
    if (at[0])
        good &= weir__native_networks(builder, at[0], inner, &list->networks);
    snprintf(inner, sizeof inner, "%s.keys", what);
    if (at[1])
        good &= read_keys(builder, at[1], inner, list);
    return good;
}

/* ---- identity ---- */

/* True for the first occurrence in a set; `seen` becomes its place. */
static bool is_first(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                     struct weir__place *seen)
{
    char where[256];
    if (!seen->line) {
        *seen = node->name->place;
        return true;
    }
    return weir__report_error(report, node->name->place, "%s is given a second time; the first is at %s", what,
                              weir__place_text(report, *seen, where, sizeof where));
}

/* With all networks trusted, the client's address is the first of the list, which the client sends. */
static void warn_of_trust(struct weir__diagnostics *report, const struct weir__node *node)
{
    bool unused;
    WEIR__EACH_ITEM (one, node) {
        struct weir__network network;
        if (one->kind == WEIR__SCALAR && weir__network_parse(one->text, &network, &unused) &&
            (network.length == 0 || (network.length == 96 && weir__address_is4(&network.address))))
            weir__report_warning(
                report, one->place,
                "every address is a trusted proxy, so that any client can choose its address; name the "
                "networks of your own");
    }
}

static void read_client(struct weir__builder *builder, const struct weir__node *node)
{
    static const char *const names[] = {"trusted_proxies", "ipv4_prefix", "ipv6_prefix", "header"};
    static const char *const headers[] = {"x-forwarded-for", "forwarded"};
    struct weir__identity *identity = &builder->set->attributes.identity;
    const struct weir__node *at[4];
    int64_t prefix;
    int header;

    if (node->kind != WEIR__MAP) {
        weir__report_error(builder->report, node->place,
                           "client_ip is found through the proxies you trust, since clients can send any header: "
                           "expected { trusted_proxies: [10.0.0.0/8] }, not %s",
                           weir__node_is(node));
        return;
    }
    weir__native_pick(builder->report, node, "client_ip", names, WEIR__COUNT(names), at);
    if (at[0])
        weir__native_networks(builder, at[0], names[0], &identity->trusted);
    if (at[0])
        warn_of_trust(builder->report, at[0]);
    if (at[1] && weir__field_int(builder->report, at[1], names[1], 1, 32, &prefix))
        identity->ipv4_prefix = (int)prefix;
    if (at[2] && weir__field_int(builder->report, at[2], names[2], 1, 128, &prefix))
        identity->ipv6_prefix = (int)prefix;
    if (at[3] && weir__field_choice(builder->report, at[3], names[3], headers, WEIR__COUNT(headers), &header))
        identity->forwarded_header = header ? WEIR__FORWARDED_STANDARD : WEIR__FORWARDED_X;
}

static void read_source(struct weir__builder *builder, const struct weir__node *node)
{
    struct weir__attributes *all = &builder->set->attributes;
    weir_text name = node->name->text, source;

    if (weir__text_is(name, "path") || weir__text_is(name, "method") || weir__text_is(name, "host")) {
        weir__report_error(builder->report, node->name->place, "%s is built in and cannot be given another source",
                           name.data);
        return;
    }
    if (!weir__attribute_is_name(name)) {
        weir__report_error(builder->report, node->name->place,
                           "\"%.*s\" is not a valid name of an attribute: lower-case letters, digits and _ only",
                           (int)name.len, name.data);
        return;
    }
    if (!weir__field_text(builder->report, node, name.data, &source))
        return;
    if (memchr(source.data, '-', source.len) && !memchr(source.data, ':', source.len)) {
        char meant[WEIR__SHOWN + 8], shown[WEIR__SHOWN];
        snprintf(meant, sizeof meant, "header:%s", weir__printable(source, shown, sizeof shown));
        weir__report_suggest(builder->report, node->place, meant, "\"%s\" is no source", shown);
        return;
    }
    int from = weir__attribute_parse(all, &builder->set->arena, builder->report, node->place, source);
    if (from < 0)
        return;
    /* A named attribute as a source could be a cycle. */
    if (all->list[from].kind == WEIR__ATTR_NAMED) {
        static const char *const kinds[] = {
            "header:", "cookie:", "query:", "path:", "host", "method", "path", "client_ip"};
        weir__report_unknown(
            builder->report, node->place, source, kinds, WEIR__COUNT(kinds),
            "a source is header:NAME, cookie:NAME, query:NAME, path:N, host, method, path or client_ip, "
            "not \"%.*s\"",
            (int)source.len, source.data);
        return;
    }
    int named = weir__attribute_add(all, &builder->set->arena, WEIR__ATTR_NAMED, name, 0);
    if (named < 0) {
        weir__report_error(builder->report, node->place, "more than %d different attributes", WEIR__ATTRIBUTES_MAX);
        return;
    }
    all->list[named].source = (int16_t)from;
    if (weir__text_is(name, "tier"))
        weir__lint_tier(builder, node->place, named);
}

static void read_identity(struct weir__builder *builder, const struct weir__node *identity)
{
    if (identity->kind != WEIR__MAP) {
        weir__report_error(builder->report, identity->place, "identity is a map of names to sources, not %s",
                           weir__node_is(identity));
        return;
    }
    for (const struct weir__node *member = identity->first; member; member = member->next) {
        if (weir__text_is(member->name->text, "client_ip"))
            read_client(builder, member);
        else
            read_source(builder, member);
    }
}

/* ---- normalize ---- */

void weir__native_normalize(struct weir__diagnostics *report, const struct weir__node *node, uint8_t *form)
{
    static const char *const names[] = {"parameters", "trailing_slash", "blanks", "case"};
    const struct weir__node *at[WEIR__COUNT(names)];
    if (node->kind == WEIR__SCALAR && (weir__text_is(node->text, "off") || weir__text_is(node->text, "false"))) {
        *form = 0;
        return;
    }
    if (node->kind != WEIR__MAP || !node->first) {
        weir__report_error(report, node->place,
                           "normalize is off, or a map of parameters, trailing_slash, blanks and case to true or "
                           "false, not %s",
                           node->kind == WEIR__MAP ? "an empty one" : weir__node_is(node));
        return;
    }
    weir__native_pick(report, node, "normalize", names, WEIR__COUNT(names), at);
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        bool on;
        if (at[i] && weir__field_bool(report, at[i], names[i], &on))
            *form = (uint8_t)(on ? *form | 1U << i : *form & ~(1U << i));
    }
}

/* ---- The document ---- */

void weir__native_form(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *normalize = weir__node_get(root, "normalize");
    if (normalize && is_first(builder->report, normalize, "normalize", &builder->normalize_place))
        weir__native_normalize(builder->report, normalize, &builder->set->form);
    builder->set->attributes.form = builder->set->form;
}

void weir__native_basis(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *identity = weir__node_get(root, "identity"), *response = weir__node_get(root, "response");
    if (identity && is_first(builder->report, identity, "identity", &builder->identity_place))
        read_identity(builder, identity);
    if (response && is_first(builder->report, response, "response", &builder->response_place))
        weir__native_response(builder, response, &builder->set->response);
}

void weir__native_read(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *allow = weir__node_get(root, "allow"), *block = weir__node_get(root, "block");
    const struct weir__node *rules = weir__node_get(root, "rules");

    if (allow && is_first(builder->report, allow, "allow", &builder->allow_place))
        weir__native_list(builder, allow, "allow", &builder->set->allow);
    if (block && is_first(builder->report, block, "block", &builder->block_place))
        weir__native_list(builder, block, "block", &builder->set->block);
    if (rules && rules->kind != WEIR__LIST) {
        weir__report_error(builder->report, rules->place, "rules is a list of rules, not %s", weir__node_is(rules));
        return;
    }
    if (rules && !rules->first)
        builder->none_place = rules->place;
    for (const struct weir__node *rule = rules ? rules->first : NULL; rule; rule = rule->next)
        weir__native_rule(builder, rule);
}
