/* Looks up the rules of a host and a path. */
#include "rules/paths_index.h"

struct segment {
    weir_text text;
    uint64_t hash;
};

struct search {
    const struct weir__paths *paths;
    weir_text path;
    struct weir__found *found;
    uint32_t known; /* segments, of those that the path has */
    struct segment segments[WEIR__PATH_DEPTH];
};

/* Inserts a rule in order. `max`, the rules that one request may match, is small. */
static void insert(struct weir__found *found, uint32_t rule)
{
    size_t low = 0, high = found->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (found->rules[middle] < rule)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < found->count && found->rules[low] == rule)
        return;
    if (found->count == found->max) {
        found->overflow = true;
        if (low == found->count)
            return;
        found->count--;
    }
    memmove(&found->rules[low + 1], &found->rules[low], (found->count - low) * sizeof *found->rules);
    found->rules[low] = rule;
    found->count++;
}

static inline void add(struct weir__found *found, uint32_t rule)
{
    bool checked = found->accept && !(found->gates && found->gates[rule].open);
    if (checked && !found->accept(found->context, rule))
        return;
    if (found->count < found->max && (found->count == 0 || found->rules[found->count - 1] < rule))
        found->rules[found->count++] = rule;
    else
        insert(found, rule);
}

/* The first of a list, or NULL. */
static inline const struct weir__path_link *first_of(const struct weir__path_link *list)
{
    return list->used ? list : NULL;
}

static inline void add_list(const struct search *search, const struct weir__path_link *list)
{
    for (const struct weir__path_link *link = first_of(list); link; link = link->next)
        add(search->found, link->value);
}

/* The rest of the path after its first `depth` segments. */
static inline const char *rest_at(const struct search *search, uint32_t depth)
{
    if (depth == 0)
        return search->path.data;
    const weir_text *before = &search->segments[depth - 1].text;
    return before->data + before->len;
}

/* The segment number `depth`, which the path has: a '/' is before it. All before it are known. */
static inline const struct segment *segment_at(struct search *search, uint32_t depth)
{
    struct segment *segment = &search->segments[depth];

    if (depth == search->known) {
        const char *start = rest_at(search, depth) + 1;
        size_t left = (size_t)(search->path.data + search->path.len - start);
        const char *slash = left ? memchr(start, '/', left) : NULL;
        segment->text = (weir_text){start, slash ? (size_t)(slash - start) : left};
        segment->hash = weir__label_hash(segment->text);
        search->known = depth + 1;
    }
    return segment;
}

/* The value of a label in the map, or NULL. */
static inline const void *label_value(const struct weir__paths *paths, uint32_t parent, weir_text label)
{
    return weir__label_slot(&paths->map, parent, label, weir__label_hash(label))->value;
}

/* Takes the rules of a node. True if the path has a segment that may lead to a child. */
static inline bool visit(struct search *search, const struct weir__path_node *node, uint32_t depth)
{
    const char *start = rest_at(search, depth);
    weir_text rest = {start, search->path.len - (size_t)(start - search->path.data)};
    bool more = rest.len > 0 && rest.data[0] == '/';

    if (more)
        add_list(search, &node->below);
    else if (rest.len == 0)
        add_list(search, &node->here);
    for (const struct weir__path_tail *tail = node->tails; tail; tail = tail->next)
        if (weir__pattern_match(&tail->pattern, rest, false, NULL))
            add(search->found, tail->rule);
    return more && (node->labels || node->heads.used);
}

/*
 * Visits a node at this depth and those below it that the path matches, each at most once. Recurses only for segments
 * with stars: at most WEIR__PATH_DEPTH levels.
 */
static void walk(struct search *search, const struct weir__path_node *node, uint32_t depth)
{
    while (node && visit(search, node, depth)) {
        const struct segment *segment = segment_at(search, depth++);
        weir_text text = segment->text;
        for (const struct weir__path_link *head = first_of(&node->heads); head; head = head->next) {
            if (head->value > text.len)
                continue;
            weir_text rest = {text.data + head->value, text.len - head->value};
            const struct weir__path_partial *partial =
                label_value(search->paths, WEIR__LABEL_HEADS + node->number, (weir_text){text.data, head->value});
            for (; partial; partial = partial->next)
                if (partial->rest.len == 1 || weir__glob_match(partial->rest, rest, true, false))
                    walk(search, partial->child, depth);
        }
        node = node->labels ? weir__label_slot(&search->paths->map, node->number, text, segment->hash)->value : NULL;
    }
}

/* Visits the tree of a host, if the index has it. */
static void walk_root(struct search *search, const struct weir__path_root *root)
{
    if (!root)
        return;
    add_list(search, &root->always);
    if (search->path.len > 0)
        add_list(search, &root->present);
    walk(search, &root->node, 0);
}

/* The trees of a host: its own, and those of the wildcards that it is under. */
static void walk_hosts(struct search *search, weir_text host)
{
    const struct weir__paths *paths = search->paths;
    char lower[WEIR__HOST_LABEL];
    size_t longest = paths->host_max > paths->suffix_max ? paths->host_max : paths->suffix_max;
    size_t len = host.len < longest ? host.len : longest;
    const char *tail = host.data + (host.len - len);

    for (size_t i = 0; i < len; i++)
        lower[i] = (char)weir__lower(tail[i]);
    if (host.len <= paths->host_max)
        walk_root(search, label_value(paths, WEIR__LABEL_HOSTS, (weir_text){lower, len}));
    for (size_t i = len > paths->suffix_max ? len - paths->suffix_max : 0; i < len; i++)
        if (lower[i] == '.')
            walk_root(search, label_value(paths, WEIR__LABEL_SUFFIXES, (weir_text){lower + i, len - i}));
}

void weir__found_add(struct weir__found *found, uint32_t rule)
{
    add(found, rule);
}

void weir__paths_find(const struct weir__paths *paths, weir_text host, weir_text path, struct weir__found *found)
{
    struct search search; /* not cleared as a whole: the segments are set when they are reached */

    search.paths = paths;
    search.path = path.len ? path : WEIR__TEXT("");
    search.found = found;
    search.known = 0;
    walk_root(&search, paths->any_host);
    if (paths->host_max + paths->suffix_max > 0 && host.len > 0)
        walk_hosts(&search, host);
    for (const struct weir__path_host *one = paths->hosts; one; one = one->next)
        if (weir__pattern_match(&one->pattern, host, false, NULL))
            walk_root(&search, one->root);
}

/* Adds a list of rules. False: too many. */
static inline bool add_few(struct weir__found *few, const struct weir__path_link *list)
{
    for (const struct weir__path_link *link = first_of(list); link && !few->overflow; link = link->next)
        add(few, link->value);
    return !few->overflow;
}

/* The child of a node for the next segment, or NULL; *at moves past the segment. */
static inline const struct weir__path_node *
next_node(const struct weir__paths *paths, const struct weir__path_node *node, const char **at, const char *end)
{
    const char *start = *at + 1, *slash = memchr(start, '/', (size_t)(end - start));
    *at = slash ? slash : end;
    return label_value(paths, node->number, (weir_text){start, (size_t)(*at - start)});
}

/*
 * weir__paths_few for a path that may differ from its normal form. Most of them only end in '/', and match the same
 * rules without it.
 */
static __attribute__((noinline)) size_t find_few_normal(const struct weir__paths *paths, weir_text path,
                                                        uint32_t *rules, size_t max)
{
    struct weir__paths sent = *paths; /* without normal forms */
    uint32_t others[WEIR__PATHS_FEW];
    weir_text bare = {path.data, path.len - 1};
    sent.odd = 0;
    size_t count = max <= WEIR__PATHS_FEW ? weir__paths_few(&sent, path, rules, max) : 0;
    if (count == 0 || !weir__path_is_spelled(path, paths->odd))
        return count;
    if (!(paths->shared & WEIR__FORM_SLASH) || path.data[bare.len] != '/' || weir__path_is_spelled(bare, paths->odd))
        return 0;
    for (size_t i = 0; i < bare.len; i++)
        if (path.data[i] == '/' && (path.data[i + 1] == '/' || path.data[i + 1] == '.'))
            return 0; /* a normal form is resolved, too */
    if (weir__paths_few(&sent, bare, others, max) != count || memcmp(rules, others, count * sizeof *rules) != 0)
        return 0;
    return count;
}

__attribute__((hot)) size_t weir__paths_few(const struct weir__paths *paths, weir_text path, uint32_t *rules,
                                            size_t max)
{
    const struct weir__path_root *root = paths->any_host;
    const struct weir__path_node *node = &root->node;
    const char *at = path.data, *end = at + path.len;
    struct weir__found few = {.rules = rules, .max = max};
    unsigned odd = paths->odd;

    if (odd && path.len > 1 &&
        __builtin_expect(odd & WEIR__FORM_CASE || path.data[path.len - 1] == '/' || weir__text_is_odd(path), 0))
        return find_few_normal(paths, path, rules, max);
    if (!paths->straight || path.len == 0 || !add_few(&few, &root->always) || !add_few(&few, &root->present))
        return 0;
    /* Down the tree, one segment a step. */
    while (node && at < end && *at == '/') {
        if (!add_few(&few, &node->below))
            return 0;
        node = node->labels ? next_node(paths, node, &at, end) : NULL;
    }
    return node && at == end && !add_few(&few, &node->here) ? 0 : few.count;
}
