/* Builds the path index in the arena. */
#include "rules/paths_index.h"

struct builder {
    struct weir__arena *arena;
    struct weir__paths *paths;
    /* Partial segments by node, and hosts that are compared one by one: to find duplicates. */
    struct weir__label_map seen;
    uint32_t node_count;
    struct weir__path_node *nodes; /* that are not used yet */
    size_t nodes_left;
    /* Returned when there is no memory, so that only the end has to check arena->failed. */
    struct weir__path_root no_root;
    void *no_value;
};

static struct weir__path_node *node_new(struct builder *b)
{
    enum { AT_ONCE = 16 };
    if (!b->nodes_left) {
        b->nodes = weir__arena_lines(b->arena, AT_ONCE * sizeof *b->nodes);
        b->nodes_left = b->nodes ? AT_ONCE : 0;
    }
    if (!b->nodes_left)
        return &b->no_root.node;
    b->nodes_left--;
    b->nodes->number = b->node_count++;
    return b->nodes++;
}

static struct weir__path_root *root_new(struct builder *b)
{
    struct weir__path_root *root = weir__arena_lines(b->arena, sizeof *root);
    if (!root)
        return &b->no_root;
    root->node.number = b->node_count++;
    return root;
}

/* Adds a number to the beginning of a list. */
static void add_link(struct builder *b, struct weir__path_link *list, uint32_t value)
{
    struct weir__path_link *second = list->used ? weir__arena_take(b->arena, sizeof *second) : NULL;
    if (second)
        *second = *list;
    *list = (struct weir__path_link){value, true, second};
}

static void **label_value(struct builder *b, struct weir__label_map *map, uint32_t parent, weir_text label)
{
    void **value = weir__label_insert(map, b->arena, parent, label);
    b->no_value = NULL;
    return value ? value : &b->no_value;
}

static struct weir__path_node *child_by_label(struct builder *b, struct weir__path_node *node, weir_text segment)
{
    void **value = label_value(b, &b->paths->map, node->number, segment);

    if (!*value) {
        *value = node_new(b);
        node->labels++;
    }
    return *value;
}

static struct weir__path_node *child_by_partial(struct builder *b, struct weir__path_node *node, weir_text segment)
{
    void **seen = label_value(b, &b->seen, node->number, segment);

    if (*seen)
        return *seen;
    struct weir__path_partial *partial = weir__arena_take(b->arena, sizeof *partial);
    uint32_t head_len = (uint32_t)((const char *)memchr(segment.data, '*', segment.len) - segment.data);
    void **first =
        label_value(b, &b->paths->map, WEIR__LABEL_HEADS + node->number, (weir_text){segment.data, head_len});
    if (!partial)
        return &b->no_root.node;
    *partial = (struct weir__path_partial){
        .rest = {segment.data + head_len, segment.len - head_len}, .child = node_new(b), .next = *first};
    const struct weir__path_link *length = node->heads.used ? &node->heads : NULL;
    while (length && length->value != head_len)
        length = length->next;
    if (!length)
        add_link(b, &node->heads, head_len);
    *first = partial;
    *seen = partial->child;
    b->paths->straight = false;
    return partial->child;
}

static void add_tail(struct builder *b, struct weir__path_node *node, const struct weir__pattern *pattern,
                     weir_text text, uint32_t rule)
{
    struct weir__path_tail *tail = weir__arena_take(b->arena, sizeof *tail);
    if (!tail)
        return;
    *tail = (struct weir__path_tail){*pattern, rule, node->tails};
    tail->pattern.text = text;
    node->tails = tail;
    b->paths->straight = false;
}

static bool is_all_stars(weir_text segment)
{
    size_t stars = 0;

    while (stars < segment.len && segment.data[stars] == '*')
        stars++;
    return stars > 0 && stars == segment.len;
}

/* From the root down the pattern's segments, as far as one segment of the pattern is one of the path. */
static void add_segments(struct builder *b, struct weir__path_node *node, const struct weir__pattern *pattern,
                         uint32_t rule)
{
    weir_text rest = pattern->text;

    for (int depth = 0; rest.len > 0; depth++) {
        const char *slash = rest.len > 1 ? memchr(rest.data + 1, '/', rest.len - 1) : NULL;
        weir_text segment = {rest.data + 1, (slash ? (size_t)(slash - rest.data) : rest.len) - 1};
        bool glob = pattern->kind == WEIR__PATTERN_GLOB && memchr(segment.data, '*', segment.len);
        if (glob && !slash && is_all_stars(segment)) {
            add_link(b, &node->below, rule);
            return;
        }
        if (depth == WEIR__PATH_DEPTH || (glob && memmem(segment.data, segment.len, "**", 2))) {
            add_tail(b, node, pattern, rest, rule);
            return;
        }
        node = glob ? child_by_partial(b, node, segment) : child_by_label(b, node, segment);
        rest = (weir_text){segment.data + segment.len, rest.len - 1 - segment.len};
    }
    add_link(b, &node->here, rule);
}

static void add_path(struct builder *b, struct weir__path_root *root, const struct weir__pattern *path, uint32_t rule)
{
    if (!path || path->kind == WEIR__PATTERN_REGEX)
        add_link(b, &root->always, rule);
    else if (path->kind == WEIR__PATTERN_ANY)
        add_link(b, &root->present, rule);
    else if (path->path && !path->nocase && path->text.len > 0 && path->text.data[0] == '/')
        add_segments(b, &root->node, path, rule);
    else
        add_tail(b, &root->node, path, path->text, rule);
}

/* The root of a host that has to be compared with each request's. */
static struct weir__path_root *root_by_comparison(struct builder *b, const struct weir__pattern *host)
{
    weir_text text = host->text.len ? host->text : WEIR__TEXT("");
    void **seen = label_value(b, &b->seen, WEIR__LABEL_HOSTS + (uint32_t)host->kind, text);
    if (*seen)
        return *seen;
    struct weir__path_host *one = weir__arena_take(b->arena, sizeof *one);
    if (!one)
        return &b->no_root;
    *one = (struct weir__path_host){*host, root_new(b), b->paths->hosts};
    one->pattern.nocase = true;
    b->paths->hosts = one;
    b->paths->straight = false;
    return *seen = one->root;
}

static struct weir__path_root *root_by_label(struct builder *b, uint32_t parent, weir_text label, size_t *longest)
{
    void **value = label_value(b, &b->paths->map, parent, label);

    if (!*value)
        *value = root_new(b);
    *longest = label.len > *longest ? label.len : *longest;
    b->paths->straight = false;
    return *value;
}

static struct weir__path_root *root_of(struct builder *b, const struct weir__pattern *host)
{
    if (!host || host->kind == WEIR__PATTERN_REGEX)
        return b->paths->any_host;
    weir_text text = host->text;
    if (text.len == 0 || text.len > WEIR__HOST_LABEL)
        return root_by_comparison(b, host);
    if (host->kind == WEIR__PATTERN_EXACT)
        return root_by_label(b, WEIR__LABEL_HOSTS, text, &b->paths->host_max);
    if (host->kind == WEIR__PATTERN_GLOB && !host->path && text.len > 1 && text.data[0] == '*' && text.data[1] == '.' &&
        !memchr(text.data + 1, '*', text.len - 1))
        return root_by_label(b, WEIR__LABEL_SUFFIXES, (weir_text){text.data + 1, text.len - 1}, &b->paths->suffix_max);
    return root_by_comparison(b, host);
}

const struct weir__paths *weir__paths_make(struct weir__arena *arena, const struct weir__path_entry *entries,
                                           size_t count)
{
    struct weir__paths *paths = weir__arena_take(arena, sizeof *paths);
    struct builder b = {.arena = arena, .paths = paths};

    if (!paths)
        return NULL;
    *paths = (struct weir__paths){.any_host = root_new(&b), .shared = WEIR__FORMS - 1, .straight = true};
    weir__label_map_grow(&paths->map, arena); /* a lookup needs a free slot */
    /* Backwards, because lists grow at their beginning: then they are in order. */
    for (size_t i = count; i-- > 0 && !arena->failed;) {
        add_path(&b, root_of(&b, entries[i].host), entries[i].path, entries[i].rule);
        if (entries[i].path) {
            paths->odd |= entries[i].form;
            paths->shared &= entries[i].form;
        }
    }
    return arena->failed ? NULL : paths;
}
