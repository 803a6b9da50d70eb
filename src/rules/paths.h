/*
 * From host and path to the rules that may match: a map of hosts, and under each a tree of path segments. A look-up
 * touches the nodes along the path and nothing else, whatever the number of rules.
 */
#ifndef WEIR_RULES_PATHS_H
#define WEIR_RULES_PATHS_H

#include "rules/pattern.h"

struct weir__paths;

/* One way into a rule: under this host (NULL: any; else exact or glob, in lower case) and this path (NULL: any). */
struct weir__path_entry {
    const struct weir__pattern *host, *path;
    uint32_t rule;
    uint8_t form; /* the path holds for this normal form as well (target.h); the index of it is asked for that, too */
};

/*
 * Entries with a regular expression or `not` have path NULL here (and are verified later). The index keeps pointers to
 * the patterns' texts, not to the patterns. NULL: no memory.
 */
const struct weir__paths *weir__paths_make(struct weir__arena *arena, const struct weir__path_entry *entries,
                                           size_t count);

/*
 * What most candidates are decided by, a few bytes a rule side by side: looking at the rules themselves would cost a
 * miss or two for each that does not match.
 */
struct weir__gate {
    uint16_t methods; /* as in weir__match */
    bool more;        /* has conditions or networks besides */
    bool open;        /* host and path decide alone: any method, and nothing more */
    uint8_t form;     /* its paths hold for this normal form as well; 0: for none, or the index has no path of it */
    bool plain;       /* always the same limit and cost, enforced, and no list to look at: see weir__rule_is_plain */
};

/* Where the rules that were found go: in ascending order, each once, at most `max` (then the first of them). */
struct weir__found {
    uint32_t *rules;
    size_t count, max;
    bool overflow; /* there were more */
    /* Has the last word on a rule whose host and path match; NULL: all are wanted. Only what it accepts counts. */
    bool (*accept)(void *context, uint32_t rule);
    void *context;
    const struct weir__gate *gates; /* by rule: it need not be asked about those that are open; NULL: about all */
};

/*
 * `host` without port, any case; `path` normalised. Host and path of each rule that is found do match. The caller sets
 * found->rules, found->max and found->accept.
 */
void weir__paths_find(const struct weir__paths *paths, weir_text host, weir_text path, struct weir__found *found);
/* Adds to what was found. */
void weir__paths_find_more(const struct weir__paths *paths, weir_text host, weir_text path, struct weir__found *found);
void weir__found_add(struct weir__found *found, uint32_t rule);

/*
 * The rules of a path and of its normal forms where they are few, at most `max` (1 to WEIR__PATHS_FEW): how many, in
 * ascending order. 0: there are none or more, or the index or the path is not as simple as most are:
 * weir__paths_find knows.
 */
#define WEIR__PATHS_FEW 8
size_t weir__paths_few(const struct weir__paths *paths, weir_text path, uint32_t *rules, size_t max);

#endif
