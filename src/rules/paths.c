/* Looks up the rules of a host and a path. */
#include "rules/paths_index.h"

struct segment {
    weir_text text;
    uint64_t hash;
};

/* A node some of whose children are still to be tried. */
struct fork {
    uint32_t depth, node;
    uint32_t skip;                            /* the length of the current head */
    const struct weir__path_node *star;       /* the child, until it has been tried */
    const struct weir__path_link *head;       /* the next length of a head */
    const struct weir__path_partial *partial; /* the next segment with the current head */
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

static inline void add_list(const struct search *search, const struct weir__path_link *link)
{
    for (; link; link = link->next)
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

/* The next child of a fork that the path leads to, or NULL. */
static const struct weir__path_node *next_child(struct search *search, struct fork *fork)
{
    weir_text text = search->segments[fork->depth].text;
    const struct weir__path_node *star = fork->star;

    fork->star = NULL;
    if (star)
        return star;
    for (;;) {
        for (const struct weir__path_partial *partial; (partial = fork->partial);) {
            weir_text rest = {text.data + fork->skip, text.len - fork->skip};
            fork->partial = partial->next;
            if (partial->rest.len == 1 || weir__glob_match(partial->rest, rest, true, false))
                return partial->child;
        }
        if (!fork->head)
            return NULL;
        fork->skip = fork->head->value;
        fork->head = fork->head->next;
        if (fork->skip <= text.len) {
            weir_text label = {text.data, fork->skip};
            fork->partial =
                weir__label_slot(&search->paths->map, WEIR__LABEL_HEADS + fork->node, label, weir__label_hash(label))
                    ->value;
        }
    }
}

/* Takes the rules of a node. True if the path has a segment that may lead to a child. */
static inline bool visit(struct search *search, const struct weir__path_node *node, uint32_t depth)
{
    const char *start = rest_at(search, depth);
    weir_text rest = {start, search->path.len - (size_t)(start - search->path.data)};
    bool more = rest.len > 0 && rest.data[0] == '/';

    if (more)
        add_list(search, node->below);
    else if (rest.len == 0)
        add_list(search, node->here);
    for (const struct weir__path_tail *tail = node->tails; tail; tail = tail->next)
        if (weir__pattern_match(&tail->pattern, rest, NULL))
            add(search->found, tail->rule);
    return more && (node->labels || node->star || node->heads);
}

/* Visits the nodes of one tree that the path matches, each at most once. */
static void walk(struct search *search, const struct weir__path_node *node)
{
    struct fork forks[WEIR__PATH_DEPTH]; /* one a depth at most: those before are on the way here */
    size_t fork_count = 0;
    uint32_t depth = 0;

    add_list(search, node->always);
    if (search->path.len > 0)
        add_list(search, node->present);
    for (;;) {
        const struct weir__path_node *child = NULL;
        if (visit(search, node, depth)) {
            const struct segment *segment = segment_at(search, depth);
            if (node->star || node->heads)
                forks[fork_count++] =
                    (struct fork){.depth = depth, .node = node->number, .star = node->star, .head = node->heads};
            if (node->labels)
                child = weir__label_slot(&search->paths->map, node->number, segment->text, segment->hash)->value;
        }
        while (!child && fork_count > 0) {
            depth = forks[fork_count - 1].depth;
            child = next_child(search, &forks[fork_count - 1]);
            if (!child)
                fork_count--;
        }
        if (!child)
            return;
        node = child;
        depth++;
    }
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
    if (host.len <= paths->host_max) {
        weir_text label = {lower, len};
        const struct weir__path_node *root =
            weir__label_slot(&paths->map, WEIR__LABEL_HOSTS, label, weir__label_hash(label))->value;
        if (root)
            walk(search, root);
    }
    for (size_t i = len > paths->suffix_max ? len - paths->suffix_max : 0; i < len; i++) {
        weir_text label = {lower + i, len - i};
        if (lower[i] != '.')
            continue;
        const struct weir__path_node *root =
            weir__label_slot(&paths->map, WEIR__LABEL_SUFFIXES, label, weir__label_hash(label))->value;
        if (root)
            walk(search, root);
    }
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
    walk(&search, paths->any_host);
    if (paths->host_max + paths->suffix_max > 0 && host.len > 0)
        walk_hosts(&search, host);
    for (const struct weir__path_host *one = paths->hosts; one; one = one->next)
        if (weir__pattern_match(&one->pattern, host, NULL))
            walk(&search, one->root);
}

/* The rules found by weir__paths_few. */
struct path_matches {
    uint32_t *rules;
    size_t count, max;
};

/* Inserts a rule in order. False: there is no room for it. */
static bool insert_few(struct path_matches *few, uint32_t rule)
{
    size_t at = few->count;
    while (at > 0 && few->rules[at - 1] > rule)
        at--;
    if (at > 0 && few->rules[at - 1] == rule)
        return true; /* by another of its paths */
    if (few->count == few->max)
        return false;
    for (size_t i = few->count++; i > at; i--)
        few->rules[i] = few->rules[i - 1];
    few->rules[at] = rule;
    return true;
}

/* Adds a list of rules. False: too many. */
static inline bool add_few(struct path_matches *few, const struct weir__path_link *link)
{
    for (; link; link = link->next) {
        if (few->count == 0)
            few->rules[few->count++] = link->value;
        else if (!insert_few(few, link->value))
            return false;
    }
    return true;
}

/* The child of a node for the next segment, or NULL; *at moves past the segment. */
static inline const struct weir__path_node *
next_node(const struct weir__paths *paths, const struct weir__path_node *node, const char **at, const char *end)
{
    const char *start = *at + 1, *slash = memchr(start, '/', (size_t)(end - start));
    *at = slash ? slash : end;
    weir_text label = {start, (size_t)(*at - start)};
    return weir__label_slot(&paths->map, node->number, label, weir__label_hash(label))->value;
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
    const struct weir__path_node *node = paths->any_host;
    const char *at = path.data, *end = at + path.len;
    struct path_matches few = {rules, 0, max};
    unsigned odd = paths->odd;

    if (odd && path.len > 1 &&
        __builtin_expect(odd & WEIR__FORM_CASE || path.data[path.len - 1] == '/' || weir__text_is_odd(path), 0))
        return find_few_normal(paths, path, rules, max);
    if (!paths->straight || path.len == 0 || !add_few(&few, node->always) || !add_few(&few, node->present))
        return 0;
    /* Down the tree, one segment a step. */
    while (node && at < end && *at == '/') {
        if (!add_few(&few, node->below))
            return 0;
        node = node->labels ? next_node(paths, node, &at, end) : NULL;
    }
    return node && at == end && !add_few(&few, node->here) ? 0 : few.count;
}
