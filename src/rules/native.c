/* The native dialect: the document, identity, allow, block, normalize, and the default response. */
#include "rules/native.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

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

/* ---- Networks and lists ---- */

bool weir__native_networks(void *builder, const struct weir__node *node, const char *what, void *to)
{
    struct weir__arena *arena = &((struct weir__builder *)builder)->set->arena;
    const struct weir__networks **networks = to;
    bool good = true;
    size_t at = 0;
    struct weir__network *list = weir__arena_array(arena, weir__item_count(node) + 1, sizeof *list);
    if (!list)
        return false;
    WEIR__EACH_ITEM (item, node)
        good &= weir__field_network(item, what, &list[at++]);
    if (good)
        *networks = weir__networks_make(arena, list, at);
    return good && *networks;
}

static bool read_key(const struct weir__node *node, const char *what)
{
    if (node->kind == WEIR__SCALAR && node->text.len > 0 && node->text.len <= WEIR__KEY_MAX) {
        if (strstr(node->text.data, "${"))
            weir__node_warning(node, "%s lists complete keys such as user:42; none contains \"${\"", what);
        return true;
    }
    return weir__node_error(node, "%s: expected a key of 1 to %d bytes, not %s", what, WEIR__KEY_MAX,
                            node->kind != WEIR__SCALAR ? weir__node_is(node)
                            : node->text.len           ? "a longer one"
                                                       : "an empty one");
}

/* Reads keys into two lists: those with '*', and the others, sorted. */
static bool read_keys(void *builder, const struct weir__node *node, const char *what, void *to)
{
    struct weir__arena *arena = &((struct weir__builder *)builder)->set->arena;
    struct weir__access_list *list = to;
    size_t count = weir__item_count(node);
    struct weir__pattern *globs = weir__arena_array(arena, count + 1, sizeof *globs);
    weir_text *keys = weir__arena_array(arena, count + 1, sizeof *keys);
    bool good = true;
    if (!globs || !keys)
        return false;

    WEIR__EACH_ITEM (key, node) {
        if (!read_key(key, what))
            good = false;
        else if (memchr(key->text.data, '*', key->text.len))
            globs[list->glob_count++] = (struct weir__pattern){.kind = WEIR__PATTERN_GLOB, .text = key->text};
        else
            keys[list->key_count++] = key->text;
    }
    qsort(keys, list->key_count, sizeof *keys, weir__text_compare);
    list->globs = globs;
    list->keys = keys;
    return good;
}

bool weir__native_list(void *builder, const struct weir__node *node, const char *what, void *to)
{
    /* The readers get the whole list, of which the networks come first. */
    static const struct weir__field fields[2][2] = {
        {{"networks", WEIR__FIELD_READ, .what = "allow.networks", .read = weir__native_networks},
         {"keys", WEIR__FIELD_READ, .what = "allow.keys", .read = read_keys}},
        {{"networks", WEIR__FIELD_READ, .what = "block.networks", .read = weir__native_networks},
         {"keys", WEIR__FIELD_READ, .what = "block.keys", .read = read_keys}},
    };
    _Static_assert(offsetof(struct weir__access_list, networks) == 0, "the networks come first");
    return weir__fields_read(node, what, WEIR__LIST_OF(fields[strcmp(what, "block") == 0]), to, builder);
}

/* ---- identity ---- */

static bool read_trusted(void *builder, const struct weir__node *node, const char *what, void *to)
{
    bool good = weir__native_networks(builder, node, what, to), unused;
    WEIR__EACH_ITEM (one, node) {
        struct weir__network network;
        /* With all networks trusted, the client's address is the first of the list, which the client sends. */
        if (one->kind == WEIR__SCALAR && weir__network_parse(one->text, &network, &unused) &&
            (network.length == 0 || (network.length == 96 && weir__address_is4(&network.address))))
            weir__node_warning(one, "every address is a trusted proxy, so that any client can choose its address; name "
                                    "the networks of your own");
    }
    return good;
}

static void read_client(struct weir__builder *builder, const struct weir__node *node)
{
    static const char *const headers[] = {"x-forwarded-for", "forwarded", NULL};
    static const struct weir__field fields[] = {
        {"trusted_proxies", WEIR__FIELD_READ, .offset = offsetof(struct weir__identity, trusted), .read = read_trusted},
        {"ipv4_prefix", WEIR__FIELD_INT, WEIR__IN(struct weir__identity, ipv4_prefix), .min = 1, .max = 32},
        {"ipv6_prefix", WEIR__FIELD_INT, WEIR__IN(struct weir__identity, ipv6_prefix), .min = 1, .max = 128},
        {"header", WEIR__FIELD_CHOICE, WEIR__IN(struct weir__identity, forwarded_header), .min = WEIR__FORWARDED_X,
         .choices = headers},
    };
    if (node->kind == WEIR__MAP)
        weir__fields_read(node, "client_ip", WEIR__LIST_OF(fields), &builder->set->attributes.identity, builder);
    else
        weir__node_error(node,
                         "client_ip is found through the proxies you trust, since clients can send any header: "
                         "expected { trusted_proxies: [10.0.0.0/8] }, not %s",
                         weir__node_is(node));
}

static bool check_name(const struct weir__node *node)
{
    weir_text name = node->name->text;

    if (weir__text_is(name, "path") || weir__text_is(name, "method") || weir__text_is(name, "host"))
        return weir__node_error(node->name, "%s is built in and cannot be given another source", name.data);
    if (!weir__attribute_is_name(name))
        return weir__node_error(
            node->name, "\"%s\" is not a valid name of an attribute: lower-case letters, digits and _ only", name.data);
    return true;
}

/* The attribute that a member of `identity` names; -1 after an error. */
static int add_named(struct weir__builder *builder, const struct weir__node *node)
{
    int named =
        weir__attribute_add(&builder->set->attributes, &builder->set->arena, WEIR__ATTR_NAMED, node->name->text, 0);
    if (named < 0)
        weir__node_error(node, "more than %d different attributes", WEIR__ATTRIBUTES_MAX);
    return named;
}

static bool read_source(struct weir__builder *builder, const struct weir__node *node)
{
    struct weir__attributes *all = &builder->set->attributes;
    weir_text name = node->name->text, source;
    if (!check_name(node) || !weir__field_text(node, name.data, &source))
        return false;
    if (memchr(source.data, '-', source.len) && !memchr(source.data, ':', source.len)) {
        char meant[WEIR__SHOWN + 8], shown[WEIR__SHOWN];
        snprintf(meant, sizeof meant, "header:%s", weir__printable(source, shown, sizeof shown));
        return weir__node_suggest(node, meant, "\"%s\" is no source", shown);
    }
    int from = weir__attribute_parse(all, &builder->set->arena, node->report, node->place, source);
    if (from < 0)
        return false;
    /* Another name for a named attribute would have no use. */
    if (all->list[from].kind == WEIR__ATTR_NAMED) {
        static const char *const kinds[] = {
            "header:", "cookie:", "query:", "path:", "host", "method", "path", "client_ip"};
        return weir__node_unknown(
            node, source, kinds, WEIR__COUNT(kinds),
            "a source is header:NAME, cookie:NAME, query:NAME, path:N, host, method, path or client_ip, not \"%s\"",
            source.data);
    }
    int named = add_named(builder, node);
    if (named < 0)
        return false;
    all->list[named].source = (int16_t)from;
    if (weir__text_is(name, "tier"))
        weir__lint_tier(all, node, named);
    return true;
}

/* ---- Maps of attributes ---- */

/* A member of `identity` such as { from: api_key, file: plans.csv, default: free }. */
struct map_nodes {
    const struct weir__node *from, *file;
    weir_text fallback;
};

/* The attribute of a member of `identity` that is a map; -1: it is none, or its name was refused. */
static int find_map(const struct weir__builder *builder, const struct weir__node *node)
{
    const struct weir__attributes *all = &builder->set->attributes;
    for (int i = 0; i < all->count && node->kind == WEIR__MAP; i++)
        if (all->list[i].kind == WEIR__ATTR_NAMED && weir__text_equal(all->list[i].name, node->name->text))
            return i;
    return -1;
}

/* The attribute that a map starts from; -1 after an error. */
static int map_from(struct weir__builder *builder, const struct weir__node *identity, const struct weir__node *node,
                    const char *name)
{
    struct weir__attributes *all = &builder->set->attributes;
    const char *names[WEIR__ATTRIBUTES_MAX];
    size_t count = 0;
    weir_text from;
    if (!weir__field_text(node, "from", &from))
        return -1;
    bool known = memchr(from.data, ':', from.len) || weir__attribute_is_known(all, from);
    for (const struct weir__node *member = identity->first; member && !known; member = member->next) {
        known = weir__text_equal(member->name->text, from);
        if (count < WEIR__ATTRIBUTES_MAX && !weir__text_is(member->name->text, name))
            names[count++] = member->name->text.data;
    }
    if (known)
        return weir__attribute_parse(all, &builder->set->arena, node->report, node->place, from);
    weir__node_unknown(node, from, names, count,
                       "from is an attribute of identity, user_id, api_key, tier, or a source such as header:NAME, and "
                       "\"%s\" is none of them",
                       from.data);
    return -1;
}

/* Opens the file of a map to `name`. NULL after an error. */
static struct weir__map *map_open(struct weir__builder *builder, const struct map_nodes *nodes, weir_text name)
{
    const struct weir__surroundings *around = builder->around;
    const struct weir__node *node = nodes->file;
    int before = builder->report->errors;
    struct weir__map *map = NULL;
    weir_text path;
    if (!weir__field_text(node, "file", &path))
        return NULL;
    const char *dot = strrchr(path.data, '.');
    if (!weir__map_is_yaml(path.data) && !(dot && strcmp(dot, ".csv") == 0))
        weir__node_error(node, "file must end in .csv, .yaml or .yml, which is its format, and \"%s\" does not",
                         path.data);
    else if (!around || !around->open_map)
        weir__node_error(node,
                         "rules of a rules service cannot name files, which are not in its database: write them as "
                         "rule files, or let a proxy set the attribute");
    else if (!(map = around->open_map(around->files, node, nodes->from->text, name)) &&
             builder->report->errors == before)
        builder->set->arena.failed = true;
    return map;
}

/* Reads a map whose attribute and those of other maps are added already. */
static void read_map(struct weir__builder *builder, const struct weir__node *identity, const struct weir__node *node)
{
    static const struct weir__field fields[] = {
        {"from", WEIR__FIELD_NODE, .offset = offsetof(struct map_nodes, from)},
        {"file", WEIR__FIELD_NODE, .offset = offsetof(struct map_nodes, file)},
        {"default", WEIR__FIELD_TEXT, WEIR__IN(struct map_nodes, fallback), .max = WEIR__MAP_TEXT_MAX},
    };
    struct map_nodes nodes = {.fallback = {"", 0}};
    const char *name = node->name->text.data;
    if (!weir__fields_read(node, name, WEIR__LIST_OF(fields), &nodes, builder))
        return;
    if (!nodes.from || !nodes.file) {
        weir__node_error(node, "%s needs %s: expected { from: ATTRIBUTE, file: PATH, default: VALUE }", name,
                         nodes.from ? "a file" : "from");
        return;
    }
    struct weir__mapping *mapping = weir__arena_take(&builder->set->arena, sizeof *mapping);
    int from = map_from(builder, identity, nodes.from, name);
    if (from < 0 || !mapping)
        return;
    struct weir__attribute *to = &builder->set->attributes.list[find_map(builder, node)];
    to->source = (int16_t)from;
    *mapping = (struct weir__mapping){map_open(builder, &nodes, to->name), nodes.fallback};
    to->mapping = mapping->map ? mapping : NULL;
}

/* Reports a map that depends on itself. */
static void check_cycle(const struct weir__builder *builder, const struct weir__node *node)
{
    const struct weir__attributes *all = &builder->set->attributes;
    int first = find_map(builder, node), at = all->list[first].source;
    for (int steps = 0; at >= 0 && at != first && steps < all->count; steps++)
        at = all->list[at].source;
    if (at == first)
        weir__node_error(node->name, "%s depends on itself: follow from: to an attribute without a file",
                         node->name->text.data);
}

static void read_identity(struct weir__builder *builder, const struct weir__node *identity)
{
    if (identity->kind != WEIR__MAP) {
        weir__node_error(identity, "identity is a map of names to sources, not %s", weir__node_is(identity));
        return;
    }
    for (const struct weir__node *member = identity->first; member; member = member->next) {
        if (weir__text_is(member->name->text, "client_ip"))
            read_client(builder, member);
        else if (member->kind != WEIR__MAP)
            read_source(builder, member);
        else if (check_name(member))
            (void)add_named(builder, member);
    }
    for (const struct weir__node *member = identity->first; member; member = member->next)
        if (find_map(builder, member) >= 0)
            read_map(builder, identity, member);
    for (const struct weir__node *member = identity->first; member; member = member->next)
        if (find_map(builder, member) >= 0)
            check_cycle(builder, member);
}

/* ---- normalize ---- */

void weir__native_normalize(const struct weir__node *node, uint8_t *form)
{
    static const char *const names[] = {"parameters", "trailing_slash", "blanks", "case"};
    if (node->kind == WEIR__SCALAR && (weir__text_is(node->text, "off") || weir__text_is(node->text, "false"))) {
        *form = 0;
        return;
    }
    if (node->kind != WEIR__MAP || !node->first) {
        weir__node_error(node,
                         "normalize is off, or a map of parameters, trailing_slash, blanks and case to true or false, "
                         "not %s",
                         node->kind == WEIR__MAP ? "an empty one" : weir__node_is(node));
        return;
    }
    weir__field_names(node, "normalize", WEIR__LIST_OF(names));
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        const struct weir__node *member = weir__node_get(node, names[i]);
        bool on;
        if (member && weir__field_bool(member, names[i], &on))
            *form = (uint8_t)(on ? *form | 1U << i : *form & ~(1U << i));
    }
}

/* ---- The document ---- */

/* The node of a section that a set has once. NULL: the document does not have it, or it is given a second time. */
static const struct weir__node *section(struct weir__builder *builder, const struct weir__node *root,
                                        enum weir__section number)
{
    static const char *const names[] = {[WEIR__NORMALIZE] = "normalize",
                                        [WEIR__IDENTITY] = "identity",
                                        [WEIR__RESPONSE] = "response",
                                        [WEIR__ALLOW] = "allow",
                                        [WEIR__BLOCK] = "block"};
    const struct weir__node *node = weir__node_get(root, names[number]);
    struct weir__place *seen = &builder->sections[number];
    char where[256];
    if (node && seen->line) {
        weir__node_error(node->name, "%s is given a second time; the first is at %s", names[number],
                         weir__place_text(node->report, *seen, where, sizeof where));
        return NULL;
    }
    if (node)
        *seen = node->name->place;
    return node;
}

void weir__native_form(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *normalize = section(builder, root, WEIR__NORMALIZE);
    if (normalize)
        weir__native_normalize(normalize, &builder->set->form);
    builder->set->attributes.form = builder->set->form;
}

void weir__native_basis(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *identity = section(builder, root, WEIR__IDENTITY);
    if (identity)
        read_identity(builder, identity);
    const struct weir__node *response = section(builder, root, WEIR__RESPONSE);
    if (response)
        weir__native_response(builder, response, "response", &builder->set->response);
}

void weir__native_read(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *allow = section(builder, root, WEIR__ALLOW), *rules = weir__node_get(root, "rules");
    if (allow)
        weir__native_list(builder, allow, "allow", &builder->set->allow);
    const struct weir__node *block = section(builder, root, WEIR__BLOCK);
    if (block)
        weir__native_list(builder, block, "block", &builder->set->block);
    if (rules && rules->kind != WEIR__LIST) {
        weir__node_error(rules, "rules is a list of rules, not %s", weir__node_is(rules));
        return;
    }
    if (rules && !rules->first)
        builder->none_place = rules->place;
    for (const struct weir__node *rule = rules ? rules->first : NULL; rule; rule = rule->next)
        weir__native_rule(builder, rule);
}
