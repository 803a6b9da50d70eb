/* The tree of descriptors: insertion, lookup, and the key of the counter. See descriptors.h. */
#include "rules/descriptors.h"
#include "rules/key.h"

#define SLOTS_MIN 64

/* The node with this hash, or NULL. */
static struct weir__descriptor_node *find_node(const struct weir__domain *domains,
                                               const struct weir__descriptor_node *parent, uint64_t hash, weir_text key,
                                               weir_text value)
{
    struct weir__descriptor_node *node;
    for (size_t i = hash & (domains->slot_count - 1); (node = domains->slots[i]);
         i = (i + 1) & (domains->slot_count - 1))
        if (node->hash == hash && node->parent == parent && weir__text_equal(node->key, key) &&
            weir__text_equal(node->value, value))
            return node;
    return NULL;
}

static bool grow(weir_rules *set)
{
    struct weir__domain *domains = set->domains;
    size_t wider = domains->slot_count ? 2 * domains->slot_count : SLOTS_MIN;
    struct weir__descriptor_node **slots =
        weir__arena_array(&set->arena, wider, sizeof(struct weir__descriptor_node *));
    if (!slots)
        return false;
    for (size_t i = 0; i < domains->slot_count; i++) {
        if (!domains->slots[i])
            continue;
        size_t to = domains->slots[i]->hash & (wider - 1);
        while (slots[to])
            to = (to + 1) & (wider - 1);
        slots[to] = domains->slots[i];
    }
    domains->slots = slots;
    domains->slot_count = wider;
    return true;
}

/* An undeclared node, in the table. */
static struct weir__descriptor_node *insert(weir_rules *set, const struct weir__descriptor_node *parent, uint64_t hash,
                                            weir_text key, weir_text value)
{
    struct weir__domain *domains = set->domains;
    if (2 * (domains->count + 1) > domains->slot_count && !grow(set))
        return NULL;
    struct weir__descriptor_node *node = weir__arena_take(&set->arena, sizeof *node);
    if (!node)
        return NULL;
    node->parent = parent;
    node->hash = hash;
    node->key = weir__arena_copy(&set->arena, key);
    node->value = value.len ? weir__arena_copy(&set->arena, value) : (weir_text){NULL, 0};
    if (!node->key.data || (value.len && !node->value.data))
        return NULL;
    size_t to = hash & (domains->slot_count - 1);
    while (domains->slots[to])
        to = (to + 1) & (domains->slot_count - 1);
    domains->slots[to] = node;
    domains->count++;
    return node;
}

static struct weir__descriptor_node *get_or_insert(weir_rules *set, const struct weir__descriptor_node *parent,
                                                   uint64_t hash, weir_text key, weir_text value)
{
    struct weir__descriptor_node *node = find_node(set->domains, parent, hash, key, value);
    return node ? node : insert(set, parent, hash, key, value);
}

struct weir__descriptor_node *weir__descriptor_add(weir_rules *set, const struct weir__descriptor_node *parent,
                                                   weir_text key, weir_text value, bool *twice)
{
    *twice = false;
    if (!set->domains && !(set->domains = weir__arena_take(&set->arena, sizeof *set->domains)))
        return NULL;
    if (set->domains->slot_count == 0 && !grow(set))
        return NULL;

    uint64_t key_hash = weir__descriptor_key_hash(parent, key);
    uint64_t hash = weir__descriptor_value_hash(key_hash, value);
    struct weir__descriptor_node *node = get_or_insert(set, parent, hash, key, value);
    if (!node)
        return NULL;
    if (node->declared) {
        *twice = true;
        return node;
    }
    if (value.len && memchr(value.data, '*', value.len)) {
        struct weir__descriptor_node *bare = get_or_insert(set, parent, key_hash, key, (weir_text){NULL, 0});
        if (!bare)
            return NULL;
        if (bare->last_wildcard)
            bare->last_wildcard->next_wildcard = node;
        else
            bare->wildcards = node;
        bare->last_wildcard = node;
    }
    node->declared = true;
    return node;
}

static const struct weir__descriptor_node *domain_get(const weir_rules *set, weir_text domain)
{
    if (!set->domains)
        return NULL;
    uint64_t hash = weir__descriptor_key_hash(NULL, domain);
    return find_node(set->domains, NULL, hash, domain, (weir_text){NULL, 0});
}

bool weir__domain_known(const weir_rules *set, weir_text domain)
{
    return domain_get(set, domain) != NULL;
}

/* The child that an entry leads to: the value itself, the first wildcard that matches, or the bare key. */
static const struct weir__descriptor_node *
step(const struct weir__domain *domains, const struct weir__descriptor_node *at, const weir_descriptor_entry *entry)
{
    const struct weir__descriptor_node *node;
    uint64_t key_hash = weir__descriptor_key_hash(at, entry->key);
    if (entry->value.len) {
        uint64_t hash = weir__descriptor_value_hash(key_hash, entry->value);
        if ((node = find_node(domains, at, hash, entry->key, entry->value)))
            return node;
    }
    const struct weir__descriptor_node *bare = find_node(domains, at, key_hash, entry->key, (weir_text){NULL, 0});
    if (!bare)
        return NULL;
    for (node = bare->wildcards; node; node = node->next_wildcard)
        if (weir__glob_match(node->value, entry->value, false, false))
            return node;
    return bare->declared ? bare : NULL;
}

/* ---- the counter's key: "domain:key=value,key=value" ---- */

/* `path` has the node of each entry; NULL: all values are part of the key. */
static int write_key(weir_text domain, const weir_descriptor *descriptor,
                     const struct weir__descriptor_node *const *path, char *text, size_t size)
{
    struct weir__key key;
    if (size < WEIR__KEY_MAX)
        return 0;
    weir__key_begin(&key, text);
    weir__key_add_escaped(&key, domain, ':');
    for (size_t i = 0; i < descriptor->entry_count; i++) {
        const weir_descriptor_entry *entry = &descriptor->entries[i];
        weir__key_add(&key, i ? WEIR__TEXT(",") : WEIR__TEXT(":"));
        weir__key_add_escaped(&key, entry->key, '=');
        weir__key_add(&key, WEIR__TEXT("="));
        weir__key_add_escaped(&key, path && path[i]->share ? path[i]->value : entry->value, ',');
    }
    return weir__key_end(&key);
}

int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char *key, size_t size)
{
    return write_key(domain, descriptor, NULL, key, size);
}

void weir__descriptor_find(const weir_rules *set, weir_text domain, const weir_descriptor *descriptor, char *key,
                           size_t size, struct weir__descriptor_match *hit)
{
    const struct weir__descriptor_node *path[WEIR__DESCRIPTOR_DEPTH];
    const struct weir__descriptor_node *at = domain_get(set, domain);

    *hit = (struct weir__descriptor_match){0};
    if (descriptor->entry_count > WEIR__DESCRIPTOR_DEPTH)
        return;
    for (size_t i = 0; at && i < descriptor->entry_count; i++)
        path[i] = at = step(set->domains, at, &descriptor->entries[i]);
    if (!at || !at->rule)
        return;
    hit->rule = at->rule;
    hit->quota = at->rule->quotas;
    if (hit->quota->kind == WEIR__LIMITED)
        hit->key_len = write_key(domain, descriptor, path, key, size);
}
