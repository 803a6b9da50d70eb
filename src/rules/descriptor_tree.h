/*
 * The trees of all domains in one hash table. A node is found by its parent, key and value; domains are nodes without
 * a parent. Each look-up is one probe, whatever the number of siblings. The hash needs no secret: requests only look,
 * and how long that takes has been decided by the file.
 */
#ifndef WEIR_RULES_DESCRIPTOR_TREE_H
#define WEIR_RULES_DESCRIPTOR_TREE_H

#include "rules/descriptors.h"
#include "base/hash.h"

/* Levels of descriptors: each is a list and a map in the file. */
#define WEIR__DESCRIPTOR_DEPTH (WEIR__YAML_DEPTH / 2)

struct weir__descriptor_node {
    const struct weir__descriptor_node *parent; /* NULL: a domain */
    weir_text key, value;                       /* no value: the bare key */
    uint64_t hash;                              /* of all of the way from the domain down to here */
    struct weir__place place;
    bool declared;        /* false: only holds the wildcards of its key */
    bool share;           /* share_threshold: its pattern takes the value's place in the counter's key */
    bool value_to_metric; /* here or further up */
    const struct weir__rule *rule;
    struct weir__descriptor_node *wildcards, *last_wildcard; /* of a bare key: those with '*' in the value, in order */
    struct weir__descriptor_node *next_wildcard;
};

/* A set of hashes: for names of which only one may exist. */
struct weir__hashes {
    uint64_t *slots; /* 0: free; a power of two of them, at most half of them in use */
    size_t slot_count, count;
};

/* All domains of a set. */
struct weir__domain {
    struct weir__descriptor_node **slots; /* the same */
    size_t slot_count, count;
    struct weir__hashes names; /* of rules; while they are read */
};

static inline uint64_t weir__descriptor_key_hash(const struct weir__descriptor_node *parent, weir_text key)
{
    return weir__hash_text(key, parent ? parent->hash : 0);
}

static inline uint64_t weir__descriptor_value_hash(uint64_t key_hash, weir_text value)
{
    return value.len ? weir__hash_text(value, key_hash) : key_hash;
}

/* The node with this hash, or NULL. */
static inline struct weir__descriptor_node *weir__descriptor_get(const struct weir__domain *domains,
                                                                 const struct weir__descriptor_node *parent,
                                                                 uint64_t hash, weir_text key, weir_text value)
{
    struct weir__descriptor_node *node;
    for (size_t i = hash & (domains->slot_count - 1); (node = domains->slots[i]);
         i = (i + 1) & (domains->slot_count - 1))
        if (node->hash == hash && node->parent == parent && weir__text_equal(node->key, key) &&
            weir__text_equal(node->value, value))
            return node;
    return NULL;
}

/* The node of a domain; NULL if the set does not have it. */
const struct weir__descriptor_node *weir__domain_get(const weir_rules *set, weir_text domain);

/*
 * A new node under `parent` (NULL: a domain), with copies of the texts. If there is one already that was declared,
 * that one and *twice = true. NULL: no memory.
 */
struct weir__descriptor_node *weir__descriptor_add(weir_rules *set, const struct weir__descriptor_node *parent,
                                                   weir_text key, weir_text value, bool *twice);

bool weir__hashes_have(const struct weir__hashes *hashes, uint64_t hash);
/* False: it was there already, or there is no memory. */
bool weir__hashes_add(struct weir__hashes *hashes, struct weir__arena *arena, uint64_t hash);

#endif
