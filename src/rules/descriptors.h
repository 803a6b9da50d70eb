/*
 * The descriptor dialect of envoyproxy/ratelimit: a tree of (key, value) per domain.
 *
 * Each entry is looked up as the exact key and value, then wildcard values in file order, then the bare key. The first
 * match is taken, without backtracking. A limit applies only to a descriptor of exactly its depth.
 */
#ifndef WEIR_RULES_DESCRIPTORS_H
#define WEIR_RULES_DESCRIPTORS_H

#include "rules/label_map.h"
#include "rules/set.h"

/* Reads one document that has `domain` into the set under construction. Errors are reported. */
void weir__descriptors_read(struct weir__builder *builder, const struct weir__node *root);

/*
 * Finds the rule of one descriptor, or NULL, and builds its counter's key from the domain and the entries,
 * unambiguously (under share_threshold a wildcard's pattern replaces the value); a key that is too long is shortened as
 * in key.h. *key_len is 0 if the rule has no counter: banned, unlimited.
 */
const struct weir__rule *weir__descriptor_find(const weir_rules *set, weir_text domain,
                                               const weir_descriptor *descriptor, char key[WEIR__KEY_MAX],
                                               int *key_len);

/* For descriptors that bring their own limit, which count only in a known domain. */
bool weir__domain_known(const weir_rules *set, weir_text domain);
/* The key of a descriptor without a rule. Returns its length. */
int weir__descriptor_key(weir_text domain, const weir_descriptor *descriptor, char key[WEIR__KEY_MAX]);

/* ---- The tree ---- */

/* Levels of descriptors; each level is a list and a map in YAML. */
#define WEIR__DESCRIPTOR_DEPTH (WEIR__YAML_DEPTH / 2)

struct weir__descriptor_node {
    const struct weir__descriptor_node *parent; /* NULL: a domain */
    weir_text key, value;                       /* no value: the bare key */
    uint32_t number;                            /* as a parent in the map: of descriptors; + WEIR__DESCRIPTOR_VALUES: */
    uint64_t hash;                              /* of the path from the domain to this node; for its name */
    struct weir__place place;
    bool declared;        /* false: a bare key that is there only for its values */
    bool share;           /* share_threshold: the pattern replaces the value in the counter's key */
    bool value_to_metric; /* here or further up */
    const struct weir__rule *rule;
    struct weir__descriptor_node *wildcards,
        *last_wildcard; /* of a bare key: nodes with '*' in the value, in file order */
    struct weir__descriptor_node *next_wildcard;
};

#define WEIR__DESCRIPTOR_VALUES (UINT32_C(1) << 31) /* + a bare key's number: the parent of its values */

/* All domains of a set. */
struct weir__domain {
    struct weir__label_map map; /* of nodes: keys by the node above them, values by the bare key */
    uint32_t count;
};

/*
 * Adds a node under `parent` (NULL: a domain); keeps the texts. If it was declared already, returns that one and sets
 * *twice. NULL: no memory.
 */
struct weir__descriptor_node *weir__descriptor_add(weir_rules *set, const struct weir__descriptor_node *parent,
                                                   weir_text key, weir_text value, bool *twice);
/* The hash of a node, which is part of the names of rules: it must never change. */
uint64_t weir__descriptor_hash(const struct weir__descriptor_node *parent, weir_text key, weir_text value);

#endif
