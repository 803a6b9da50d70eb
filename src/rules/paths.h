/*
 * The path index: finds the rules that may match a host and path. A hash map of hosts, and under each a tree of path
 * segments; a lookup touches only the nodes along the path, whatever the number of rules.
 */
#ifndef WEIR_RULES_PATHS_H
#define WEIR_RULES_PATHS_H

#include "rules/pattern.h"

struct weir__paths;

/* One entry of a rule: host (NULL: any; exact or glob, lower case) and path (NULL: any). */
struct weir__path_entry {
    const struct weir__pattern *host, *path;
    uint32_t rule;
    uint8_t form; /* the path also applies to this normal form (target.h), under which it is indexed too */
};

/*
 * Regular expressions and `not` have path NULL here, and are verified after the lookup. The index keeps pointers to the
 * patterns' texts. NULL: no memory.
 */
const struct weir__paths *weir__paths_make(struct weir__arena *arena, const struct weir__path_entry *entries,
                                           size_t count);

/*
 * The part of a rule that decides most candidates, packed into a few bytes: reading the rules themselves would cost a
 * cache miss or two per candidate.
 */
struct weir__gate {
    uint16_t methods; /* bits as in weir__match */
    bool more;        /* has conditions or networks too */
    bool open;        /* host and path alone decide: any method, no conditions */
    uint8_t form;     /* its paths also apply to this normal form; 0: to none, or the index has no path of it */
    bool plain;       /* one limit and cost, enforced, no lists: weir__rule_is_plain */
};

/* The result: rules in ascending order, each once; if there are more than `max`, the first of them. */
struct weir__found {
    uint32_t *rules;
    size_t count, max;
    bool overflow; /* there were more */
    /* Verifies a rule whose host and path match; NULL: accept all. */
    bool (*accept)(void *context, uint32_t rule);
    void *context;
    const struct weir__gate
        *gates; /* by rule: `accept` is not called for rules whose gate is open; NULL: called for all */
};

/*
 * Adds the rules that match host (without port, any case) and path (normalised) to `found`, which the caller has
 * initialised.
 */
void weir__paths_find(const struct weir__paths *paths, weir_text host, weir_text path, struct weir__found *found);
void weir__found_add(struct weir__found *found, uint32_t rule);

/*
 * Fast path: the rules of a path and its normal forms, at most `max` (1 to WEIR__PATHS_FEW), in ascending order. 0:
 * none, too many, or a case that takes weir__paths_find.
 */
#define WEIR__PATHS_FEW 8
size_t weir__paths_few(const struct weir__paths *paths, weir_text path, uint32_t *rules, size_t max);

#endif
