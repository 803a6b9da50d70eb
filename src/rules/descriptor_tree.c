/* descriptor_tree.h: how the tables grow. */
#include "rules/descriptor_tree.h"

#define SLOTS_MIN 64

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
    struct weir__descriptor_node *node = weir__descriptor_get(set->domains, parent, hash, key, value);
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

/* Where a hash is, or would be. There is a free slot: the table is never full. */
static size_t hash_slot(const uint64_t *slots, size_t slot_count, uint64_t hash)
{
    size_t at = hash & (slot_count - 1);
    while (slots[at] && slots[at] != hash)
        at = (at + 1) & (slot_count - 1);
    return at;
}

bool weir__hashes_have(const struct weir__hashes *hashes, uint64_t hash)
{
    hash += hash == 0;
    return hashes->slot_count && hashes->slots[hash_slot(hashes->slots, hashes->slot_count, hash)] == hash;
}

bool weir__hashes_add(struct weir__hashes *hashes, struct weir__arena *arena, uint64_t hash)
{
    hash += hash == 0;
    if (weir__hashes_have(hashes, hash))
        return false;
    if (2 * (hashes->count + 1) > hashes->slot_count) {
        size_t wider = hashes->slot_count ? 2 * hashes->slot_count : SLOTS_MIN;
        uint64_t *slots = weir__arena_array(arena, wider, sizeof *slots);
        if (!slots)
            return false;
        for (size_t i = 0; i < hashes->slot_count; i++)
            if (hashes->slots[i])
                slots[hash_slot(slots, wider, hashes->slots[i])] = hashes->slots[i];
        hashes->slots = slots;
        hashes->slot_count = wider;
    }
    hashes->slots[hash_slot(hashes->slots, hashes->slot_count, hash)] = hash;
    hashes->count++;
    return true;
}
