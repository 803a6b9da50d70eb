/*
 * Memory layout of the path index, for its builder (paths_build.c) and its reader (paths.c).
 *
 * Patterns with common leading segments share nodes. A node stands for a consumed prefix of a path, up to but excluding
 * a '/' or the end. Children of all nodes are in one hash map, keyed by parent and segment.
 */
#ifndef WEIR_RULES_PATHS_INDEX_H
#define WEIR_RULES_PATHS_INDEX_H

#include "rules/paths.h"
#include "rules/target.h"

enum {
    WEIR__PATH_DEPTH = 32, /* segments that become nodes; the rest of a pattern is compared as a tail */
    WEIR__HOST_LABEL = 255 /* bytes; longer hosts are compared one by one */
};

/* Parents in the map that are not nodes. */
#define WEIR__LABEL_NODES_MAX (UINT32_C(1) << 30)
#define WEIR__LABEL_HEADS     (UINT32_C(1) << 31)         /* + node: heads of its partial segments */
#define WEIR__LABEL_HOSTS     (WEIR__LABEL_NODES_MAX)     /* whole hosts */
#define WEIR__LABEL_SUFFIXES  (WEIR__LABEL_NODES_MAX + 1) /* ".example.com" of "*.example.com" */

struct weir__label_slot {
    uint64_t hash;
    const char *text;
    uint32_t len;
    uint32_t parent;
    void *value; /* a node, or the partial segments of a head; NULL: the slot is free */
};

/* From a parent and a label to a node. Open addressing, at most half full. */
struct weir__label_map {
    struct weir__label_slot *slots;
    size_t mask, count;
};

/* Up to eight bytes as a number. */
static inline uint64_t weir__label_word(const char *text, size_t len)
{
    uint32_t low = 0, high = 0;
    if (len >= 4) {
        memcpy(&low, text, 4);
        memcpy(&high, text + len - 4, 4);
    } else if (len > 0) {
        low = (unsigned char)text[0];
        high = (uint32_t)((unsigned char)text[len / 2] << 8 | (unsigned char)text[len - 1]);
    }
    return (uint64_t)high << 32 | low;
}

/*
 * Unkeyed: only rules are inserted, so requests cannot cause collisions. Most labels have three to ten bytes, for which
 * one or two multiplications suffice.
 */
static inline uint64_t weir__label_hash(weir_text label)
{
    const char *at = label.data;
    size_t left = label.len;
    uint64_t hash = label.len * UINT64_C(0x9e3779b97f4a7c15);

    for (; left > 8; left -= 8, at += 8) {
        hash = (hash ^ weir__label_word(at, 8)) * UINT64_C(0xd6e8feb86659fd93);
        hash ^= hash >> 32;
    }
    hash = (hash ^ weir__label_word(at, left)) * UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

/* The label's hash does not depend on the parent, so a segment of a request is hashed once for all trees. */
static inline uint64_t weir__label_place(uint32_t parent, uint64_t label_hash)
{
    return label_hash + parent * UINT64_C(0x9e3779b97f4a7c15);
}

/* The slot of a label, or the free one where it would go. */
static inline struct weir__label_slot *weir__label_slot(const struct weir__label_map *map, uint32_t parent,
                                                        weir_text label, uint64_t label_hash)
{
    uint64_t hash = weir__label_place(parent, label_hash);

    for (size_t i = hash & map->mask;; i = (i + 1) & map->mask) {
        struct weir__label_slot *slot = &map->slots[i];
        if (!slot->value || (slot->hash == hash && slot->parent == parent && slot->len == label.len &&
                             memcmp(slot->text, label.data, label.len) == 0))
            return slot;
    }
}

/* A list of rules, or of lengths. */
struct weir__path_link {
    uint32_t value;
    const struct weir__path_link *next;
};

struct weir__path_node {
    uint32_t number;                                /* as a parent in the map */
    uint32_t labels;                                /* how many children the map has */
    struct weir__path_node *star;                   /* the child for any one segment */
    const struct weir__path_link *heads;            /* the different lengths of the heads of segments such as "x-*" */
    const struct weir__path_link *here, *below;     /* rules of paths that end here, and that go on with '/' */
    const struct weir__path_link *always, *present; /* of roots: rules for any path, and for any that is not empty */
    const struct weir__path_tail *tails;            /* patterns that are compared with the rest of the path */
};

/* A segment with stars and other characters, found by its head: the characters before the first star. */
struct weir__path_partial {
    weir_text rest; /* from the star on */
    struct weir__path_node *child;
    const struct weir__path_partial *next;
};

struct weir__path_tail {
    struct weir__pattern pattern;
    uint32_t rule;
    const struct weir__path_tail *next;
};

/* A host pattern that is compared with each request. */
struct weir__path_host {
    struct weir__pattern pattern;
    struct weir__path_node *root;
    const struct weir__path_host *next;
};

struct weir__paths {
    struct weir__label_map map;
    struct weir__path_node *any_host; /* the root for any host */
    const struct weir__path_host *hosts;
    size_t host_max, suffix_max; /* the longest whole host and the longest suffix that the map has */
    uint8_t odd;                 /* all options of the entries' normal forms */
    uint8_t shared;              /* those of them that each entry with a path has */
    bool straight;               /* a path leads one way only: there are neither hosts, nor stars within, nor tails */
};

#endif
