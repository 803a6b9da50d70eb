/* The tree of descriptors: insertion, lookup, and the key of the counter. See descriptors.h. */
#include "rules/descriptors.h"
#include "base/hash.h"
#include "rules/key.h"

uint64_t weir__descriptor_hash(const struct weir__descriptor_node *parent, weir_text key, weir_text value)
{
    uint64_t hash = weir__hash_text(key, parent ? parent->hash : 0);
    return value.len ? weir__hash_text(value, hash) : hash;
}

/* The node of a label, undeclared if it is new. NULL: no memory. */
static struct weir__descriptor_node *get_or_insert(weir_rules *set, uint32_t above, weir_text label)
{
    void **value = weir__label_insert(&set->domains->map, &set->arena, above, label);
    struct weir__descriptor_node *node = value ? *value : NULL;
    if (node || !value || !(node = weir__arena_take(&set->arena, sizeof *node)))
        return node;
    node->number = ++set->domains->count;
    return *value = node;
}

struct weir__descriptor_node *weir__descriptor_add(weir_rules *set, const struct weir__descriptor_node *parent,
                                                   weir_text key, weir_text value, bool *twice)
{
    if (!set->domains && !(set->domains = weir__arena_take(&set->arena, sizeof *set->domains)))
        return NULL;
    struct weir__descriptor_node *bare = get_or_insert(set, parent ? parent->number : 0, key), *node = bare;
    if (bare && value.len)
        node = get_or_insert(set, WEIR__DESCRIPTOR_VALUES + bare->number, value);
    if (!node)
        return NULL;
    *twice = node->declared;
    if (*twice)
        return node;
    if (value.len && memchr(value.data, '*', value.len)) {
        if (bare->last_wildcard)
            bare->last_wildcard->next_wildcard = node;
        else
            bare->wildcards = node;
        bare->last_wildcard = node;
    }
    node->parent = parent;
    node->key = key;
    node->value = value;
    node->hash = weir__descriptor_hash(parent, key, value);
    node->declared = true;
    return node;
}

static const struct weir__descriptor_node *find(const struct weir__domain *domains, uint32_t above, weir_text label)
{
    return weir__label_slot(&domains->map, above, label, weir__label_hash(label))->value;
}

static const struct weir__descriptor_node *domain_get(const weir_rules *set, weir_text domain)
{
    return set->domains ? find(set->domains, 0, domain) : NULL;
}

bool weir__domain_known(const weir_rules *set, weir_text domain)
{
    return domain_get(set, domain) != NULL;
}

/* The child that an entry leads to: the value itself, the first wildcard that matches, or the bare key. */
static const struct weir__descriptor_node *
step(const struct weir__domain *domains, const struct weir__descriptor_node *at, const weir_descriptor_entry *entry)
{
    const struct weir__descriptor_node *bare = find(domains, at->number, entry->key), *node = NULL;
    if (!bare)
        return NULL;
    if (entry->value.len && (node = find(domains, WEIR__DESCRIPTOR_VALUES + bare->number, entry->value)))
        return node;
    for (node = bare->wildcards; node; node = node->next_wildcard)
        if (weir__glob_match(node->value, entry->value, false, false))
            return node;
    return bare->declared ? bare : NULL;
}

/* ---- the counter's key: "domain:key=value,key=value" ---- */

/* `path` has the node of each entry; NULL: all values are part of the key. */
static int write_key(weir_text domain, const weir_descriptor *descriptor,
                     const struct weir__descriptor_node *const *path, char text[WEIR__KEY_MAX])
{
    struct weir__key key;
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

int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char key[WEIR__KEY_MAX])
{
    return write_key(domain, descriptor, NULL, key);
}

const struct weir__rule *weir__descriptor_find(const weir_rules *set, weir_text domain,
                                               const weir_descriptor *descriptor, char key[WEIR__KEY_MAX], int *key_len)
{
    const struct weir__descriptor_node *path[WEIR__DESCRIPTOR_DEPTH];
    const struct weir__descriptor_node *at = domain_get(set, domain);

    *key_len = 0;
    if (descriptor->entry_count > WEIR__DESCRIPTOR_DEPTH)
        return NULL;
    for (size_t i = 0; at && i < descriptor->entry_count; i++)
        path[i] = at = step(set->domains, at, &descriptor->entries[i]);
    if (!at || !at->rule)
        return NULL;
    if (at->rule->quotas->kind == WEIR__LIMITED)
        *key_len = write_key(domain, descriptor, path, key);
    return at->rule;
}
