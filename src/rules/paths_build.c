/* Builds the path index: in memory from malloc, and copied to the arena when its size is known. */
#include "rules/paths_index.h"

#include <stdlib.h>

/* An array that grows. */
struct growing {
    void *items;
    size_t item_bytes, count, room;
};

struct builder {
    struct weir__label_map map; /* of the index */
    struct weir__label_map
        seen; /* partial segments by node, and hosts that are compared one by one: to find duplicates */
    struct growing nodes, links, partials, tails, hosts;
    size_t host_max, suffix_max;
    uint8_t odd, shared;
    size_t bytes_max; /* of any one of these */
    bool failed;
    bool full; /* after `failed`: it was bytes_max */
};

/* The number of the new item; 0 after a failure, which ends the building soon. */
static uint32_t push(struct builder *b, struct growing *array, const void *item)
{
    if (array->count == array->room) {
        size_t room = array->room ? 2 * array->room : 64;
        bool fits = room <= WEIR__LABEL_NODES_MAX && room <= b->bytes_max / array->item_bytes;
        void *items = fits ? realloc(array->items, room * array->item_bytes) : NULL;
        if (!items) {
            b->failed = true;
            b->full = !fits;
            return 0;
        }
        array->items = items;
        array->room = room;
    }
    memcpy((char *)array->items + array->count * array->item_bytes, item, array->item_bytes);
    return (uint32_t)array->count++;
}

static struct weir__path_node *node_at(const struct builder *b, uint32_t node)
{
    return (struct weir__path_node *)b->nodes.items + node;
}

static uint32_t push_node(struct builder *b)
{
    return push(b, &b->nodes, &(struct weir__path_node){0});
}

/* The list that begins with `value` and goes on with `next`. */
static uint32_t push_link(struct builder *b, uint32_t value, uint32_t next)
{
    return push(b, &b->links, &(struct weir__path_link){value, next});
}

static bool map_grow(struct builder *b, struct weir__label_map *map)
{
    struct weir__label_map old = *map;
    size_t room = old.slots ? 2 * (old.mask + 1) : 64;
    bool fits = room <= b->bytes_max / sizeof *map->slots;

    map->slots = fits ? calloc(room, sizeof *map->slots) : NULL;
    if (!map->slots) {
        *map = old;
        b->failed = true;
        b->full = !fits;
        return false;
    }
    map->mask = room - 1;
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        size_t to = old.slots[i].hash & map->mask;
        if (old.slots[i].value == 0)
            continue;
        while (map->slots[to].value)
            to = (to + 1) & map->mask;
        map->slots[to] = old.slots[i];
    }
    free(old.slots);
    return true;
}

/*
 * The value of a label, to be set by the caller if it is 0 and the label therefore new. NULL after a failure. The
 * label's text is kept, not copied.
 */
static uint32_t *label_value(struct builder *b, struct weir__label_map *map, uint32_t parent, weir_text label)
{
    if (2 * (map->count + 1) > map->mask + 1 && !map_grow(b, map))
        return NULL;
    struct weir__label_slot *slot = weir__label_slot(map, parent, label, weir__label_hash(label));
    if (slot->value == 0) {
        *slot = (struct weir__label_slot){weir__label_place(parent, weir__label_hash(label)), label.data,
                                          (uint32_t)label.len, parent, 0};
        map->count++;
    }
    return &slot->value;
}

static uint32_t child_by_label(struct builder *b, uint32_t node, weir_text segment)
{
    uint32_t *value = label_value(b, &b->map, node, segment);

    if (!value)
        return 0;
    if (*value == 0) {
        *value = push_node(b);
        node_at(b, node)->labels++;
    }
    return *value;
}

static uint32_t child_by_star(struct builder *b, uint32_t node)
{
    if (node_at(b, node)->star == 0) {
        uint32_t child = push_node(b);
        node_at(b, node)->star = child;
    }
    return node_at(b, node)->star;
}

/* Adds a length to the list of the node's head lengths. */
static void add_head_length(struct builder *b, uint32_t node, uint32_t length)
{
    const struct weir__path_link *links = b->links.items;

    for (uint32_t i = node_at(b, node)->heads; i; i = links[i].next)
        if (links[i].value == length)
            return;
    node_at(b, node)->heads = push_link(b, length, node_at(b, node)->heads);
}

static uint32_t child_by_partial(struct builder *b, uint32_t node, weir_text segment)
{
    uint32_t *seen = label_value(b, &b->seen, node, segment);

    if (!seen || *seen)
        return seen ? *seen : 0;
    size_t head_len = (size_t)((const char *)memchr(segment.data, '*', segment.len) - segment.data);
    uint32_t *first = label_value(b, &b->map, WEIR__LABEL_HEADS + node, (weir_text){segment.data, head_len});
    if (!first)
        return 0;
    struct weir__path_partial partial = {
        .rest = {segment.data + head_len, segment.len - head_len}, .child = push_node(b), .next = *first};
    if (*first == 0)
        add_head_length(b, node, (uint32_t)head_len);
    *first = push(b, &b->partials, &partial);
    *seen = partial.child;
    return partial.child;
}

static void add_tail(struct builder *b, uint32_t node, const struct weir__pattern *pattern, weir_text text,
                     uint32_t rule)
{
    struct weir__path_tail tail = {*pattern, rule, node_at(b, node)->tails};

    tail.pattern.text = text;
    node_at(b, node)->tails = push(b, &b->tails, &tail);
}

enum segment_kind { LITERAL, STAR, STARS, PARTIAL, CROSSING };

/* Classifies a segment of a pattern by its stars. */
static enum segment_kind segment_kind(weir_text segment)
{
    size_t stars = 0, pairs = 0;

    for (size_t i = 0; i < segment.len; i++) {
        stars += segment.data[i] == '*';
        pairs += i > 0 && segment.data[i] == '*' && segment.data[i - 1] == '*';
    }
    if (stars == 0)
        return LITERAL;
    if (stars == segment.len)
        return stars == 1 ? STAR : STARS;
    return pairs ? CROSSING : PARTIAL;
}

/* From the root down the pattern's segments, as far as one segment of the pattern is one of the path. */
static void add_segments(struct builder *b, uint32_t node, const struct weir__pattern *pattern, uint32_t rule)
{
    weir_text rest = pattern->text;

    for (int depth = 0; rest.len > 0; depth++) {
        const char *slash = rest.len > 1 ? memchr(rest.data + 1, '/', rest.len - 1) : NULL;
        weir_text segment = {rest.data + 1, (slash ? (size_t)(slash - rest.data) : rest.len) - 1};
        enum segment_kind kind = pattern->kind == WEIR__PATTERN_GLOB ? segment_kind(segment) : LITERAL;
        if (!slash && (kind == STAR || kind == STARS)) {
            node_at(b, node)->below = push_link(b, rule, node_at(b, node)->below);
            return;
        }
        if (depth == WEIR__PATH_DEPTH || kind == STARS || kind == CROSSING) {
            add_tail(b, node, pattern, rest, rule);
            return;
        }
        if (kind == LITERAL)
            node = child_by_label(b, node, segment);
        else
            node = kind == STAR ? child_by_star(b, node) : child_by_partial(b, node, segment);
        rest = (weir_text){segment.data + segment.len, rest.len - 1 - segment.len};
    }
    node_at(b, node)->here = push_link(b, rule, node_at(b, node)->here);
}

static void add_path(struct builder *b, uint32_t root, const struct weir__pattern *path, uint32_t rule)
{
    struct weir__path_node *node = node_at(b, root);

    if (!path || path->kind == WEIR__PATTERN_REGEX)
        node->always = push_link(b, rule, node->always);
    else if (path->kind == WEIR__PATTERN_ANY)
        node->present = push_link(b, rule, node->present);
    else if (path->path && !path->nocase && path->text.len > 0 && path->text.data[0] == '/')
        add_segments(b, root, path, rule);
    else
        add_tail(b, root, path, path->text, rule);
}

/* The root of a host that has to be compared with each request's. */
static uint32_t root_by_comparison(struct builder *b, const struct weir__pattern *host)
{
    weir_text text = host->text.len ? host->text : WEIR__TEXT("");
    uint32_t *seen = label_value(b, &b->seen, WEIR__LABEL_HOSTS + (uint32_t)host->kind, text);

    if (seen && *seen == 0) {
        struct weir__path_host one = {*host, push_node(b)};
        one.pattern.nocase = true;
        push(b, &b->hosts, &one);
        *seen = one.root;
    }
    return seen ? *seen : 0;
}

static uint32_t root_by_label(struct builder *b, uint32_t parent, weir_text label, size_t *longest)
{
    uint32_t *value = label_value(b, &b->map, parent, label);

    if (value && *value == 0)
        *value = push_node(b);
    *longest = label.len > *longest ? label.len : *longest;
    return value ? *value : 0;
}

static uint32_t root_of(struct builder *b, const struct weir__pattern *host)
{
    if (!host || host->kind == WEIR__PATTERN_REGEX)
        return 0;
    weir_text text = host->text;
    if (text.len == 0 || text.len > WEIR__HOST_LABEL)
        return root_by_comparison(b, host);
    if (host->kind == WEIR__PATTERN_EXACT)
        return root_by_label(b, WEIR__LABEL_HOSTS, text, &b->host_max);
    if (host->kind == WEIR__PATTERN_GLOB && !host->path && text.len > 1 && text.data[0] == '*' && text.data[1] == '.' &&
        !memchr(text.data + 1, '*', text.len - 1))
        return root_by_label(b, WEIR__LABEL_SUFFIXES, (weir_text){text.data + 1, text.len - 1}, &b->suffix_max);
    return root_by_comparison(b, host);
}

/* Copies an array to the arena. */
static const void *keep(struct weir__arena *arena, const void *items, size_t count, size_t item_bytes)
{
    void *kept = weir__arena_array(arena, count, item_bytes);

    if (kept && count > 0)
        memcpy(kept, items, count * item_bytes);
    return kept;
}

static const void *keep_array(struct weir__arena *arena, const struct growing *array)
{
    return keep(arena, array->items, array->count, array->item_bytes);
}

static bool is_straight(const struct builder *b)
{
    const struct weir__path_node *nodes = b->nodes.items;
    bool straight = b->hosts.count == 0 && b->host_max + b->suffix_max == 0 && b->partials.count == 1 &&
                    b->tails.count == 1; /* the elements 0, "none" */

    for (size_t i = 0; i < b->nodes.count && straight; i++)
        straight = nodes[i].star == 0;
    return straight;
}

static const struct weir__paths *keep_all(struct weir__arena *arena, const struct builder *b)
{
    struct weir__paths *paths = weir__arena_take(arena, sizeof *paths);

    if (!paths)
        return NULL;
    *paths = (struct weir__paths){
        .map = b->map,
        .nodes = keep_array(arena, &b->nodes),
        .links = keep_array(arena, &b->links),
        .partials = keep_array(arena, &b->partials),
        .tails = keep_array(arena, &b->tails),
        .hosts = keep_array(arena, &b->hosts),
        .host_count = b->hosts.count,
        .host_max = b->host_max,
        .suffix_max = b->suffix_max,
        .odd = b->odd,
        .shared = b->shared,
        .straight = is_straight(b),
    };
    paths->map.slots = (void *)keep(arena, b->map.slots, b->map.mask + 1, sizeof *b->map.slots);
    return arena->failed ? NULL : paths;
}

static size_t bytes_left(const struct weir__arena *arena)
{
    if (arena->bytes_max == 0)
        return SIZE_MAX;
    return arena->bytes_max > arena->bytes ? arena->bytes_max - arena->bytes : 0;
}

const struct weir__paths *weir__paths_make(struct weir__arena *arena, const struct weir__path_entry *entries,
                                           size_t count)
{
    struct builder b = {
        .nodes = {.item_bytes = sizeof(struct weir__path_node)},
        .links = {.item_bytes = sizeof(struct weir__path_link)},
        .partials = {.item_bytes = sizeof(struct weir__path_partial)},
        .tails = {.item_bytes = sizeof(struct weir__path_tail)},
        .hosts = {.item_bytes = sizeof(struct weir__path_host)},
        .bytes_max = bytes_left(arena),
        .shared = WEIR__FORMS - 1,
    };
    const struct weir__paths *paths = NULL;

    /* The root for any host, and the elements 0, "none". */
    push_node(&b);
    push_link(&b, 0, 0);
    push(&b, &b.partials, &(struct weir__path_partial){0});
    push(&b, &b.tails, &(struct weir__path_tail){0});
    map_grow(&b, &b.map);
    map_grow(&b, &b.seen);
    /* Backwards, because lists grow at their beginning: then they are in order. */
    for (size_t i = count; i-- > 0 && !b.failed;) {
        uint32_t root = root_of(&b, entries[i].host);
        if (!b.failed)
            add_path(&b, root, entries[i].path, entries[i].rule);
        if (entries[i].path) {
            b.odd |= entries[i].form;
            b.shared &= entries[i].form;
        }
    }
    if (!b.failed)
        paths = keep_all(arena, &b);
    if (!paths)
        arena->failed = true;
    arena->full |= b.full;
    free(b.map.slots);
    free(b.seen.slots);
    free(b.nodes.items);
    free(b.links.items);
    free(b.partials.items);
    free(b.tails.items);
    free(b.hosts.items);
    return paths;
}
