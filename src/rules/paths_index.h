/*
 * Memory layout of the path index, for its builder (paths_build.c) and its reader (paths.c).
 *
 * Patterns with common leading segments share nodes. A node stands for a consumed prefix of a path, up to but excluding
 * a '/' or the end. Children of all nodes are in one hash map, keyed by parent and segment.
 */
#ifndef WEIR_RULES_PATHS_INDEX_H
#define WEIR_RULES_PATHS_INDEX_H

#include "rules/label_map.h"
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

/* A list of rules, or of lengths. The first is part of its owner, as most lists have one at most. */
struct weir__path_link {
    uint32_t value;
    bool used; /* false: the list is empty */
    const struct weir__path_link *next;
};

/* One cache line. */
struct weir__path_node {
    uint32_t number;                     /* as a parent in the map */
    uint32_t labels;                     /* how many children the map has */
    struct weir__path_link heads;        /* the different lengths of the heads of segments with stars */
    struct weir__path_link here, below;  /* rules of paths that end here, and that go on with '/' */
    const struct weir__path_tail *tails; /* patterns that are compared with the rest of the path */
};

/* The node of a host, or of any host. */
struct weir__path_root {
    struct weir__path_node node;
    struct weir__path_link always, present; /* rules for any path, and for any that is not empty */
};

/* A segment with stars such as "x-*" or "*", found by its head: the characters before the first star. */
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
    struct weir__path_root *root;
    const struct weir__path_host *next;
};

struct weir__paths {
    struct weir__label_map map;
    struct weir__path_root *any_host;
    const struct weir__path_host *hosts;
    size_t host_max, suffix_max; /* the longest whole host and the longest suffix that the map has */
    uint8_t odd;                 /* all options of the entries' normal forms */
    uint8_t shared;              /* those of them that each entry with a path has */
    bool straight;               /* a path leads one way only: there are neither hosts, nor stars within, nor tails */
};

#endif
