/* Readers of the native rule dialect, one per section of docs/rules.md. Each reports the errors it finds. */
#ifndef WEIR_RULES_NATIVE_H
#define WEIR_RULES_NATIVE_H

#include "rules/set.h"

#define WEIR__COUNT(array) (sizeof(array) / sizeof *(array))

/*
 * Sets nodes[i] to the member names[i] of the map, or NULL. False: not a map, or unknown members, which are reported.
 */
bool weir__native_pick(struct weir__diagnostics *report, const struct weir__node *map, const char *what,
                       const char *const *names, size_t count, const struct weir__node **nodes);
/* Hash of a node that does not depend on the order of fields. 0 only for NULL. */
uint64_t weir__native_written(const struct weir__node *node);

/* One CIDR or a list of them. False after an error. */
bool weir__native_networks(struct weir__builder *builder, const struct weir__node *node, const char *what,
                           const struct weir__networks **networks);
/* { networks, keys } of allow or block. False after an error. */
bool weir__native_list(struct weir__builder *builder, const struct weir__node *node, const char *what,
                       struct weir__access_list *list);

/* Reads a rule; each of its `limits` is added to the set as a rule. */
void weir__native_rule(struct weir__builder *builder, const struct weir__node *node);
/* Reads `match`; NULL matches everything. Returns NULL after an error. */
const struct weir__match *weir__native_match(struct weir__builder *builder, const struct weir__node *node);
/* One pattern of a path, as in match. False after an error. */
bool weir__native_path(struct weir__builder *builder, weir_text text, struct weir__place place,
                       struct weir__pattern *pattern);
/*
 * The pattern for a path's normal form. One with ';' (which no normal form has) and a regular expression stay as they
 * are. False: no memory.
 */
bool weir__native_normal(struct weir__builder *builder, const struct weir__pattern *pattern,
                         struct weir__pattern *normal);
/* Reads `normalize` of a match or of the set into *form, which holds the defaults. */
void weir__native_normalize(struct weir__diagnostics *report, const struct weir__node *node, uint8_t *form);
/* `cost`. */
void weir__native_cost(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost);
/* Reads `response` of a rule or of the set into *response, which holds the defaults. */
void weir__native_response(struct weir__builder *builder, const struct weir__node *node,
                           struct weir__response *response);
/* Reads `queue`: the bounds of deferred requests. */
void weir__native_queue(struct weir__diagnostics *report, const struct weir__node *node, struct weir__deferral *queue);

/* `elastic`, `adaptive`, `reserve` and `priority`, each NULL if it is not there. */
struct weir__overload_nodes {
    const struct weir__node *elastic, *adaptive, *reserve, *priority;
};
void weir__native_overload(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                           struct weir__rule *rule);
/* Prepares the quota of an elastic or adaptive rule for scaling. False after an error. */
bool weir__native_scaled_limit(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                               const struct weir__rule *rule, const weir_params *params, struct weir__quota *quota);
/* Checks that the algorithm can have a reserve. False after an error. */
bool weir__native_reserve(struct weir__diagnostics *report, const struct weir__overload_nodes *nodes,
                          enum weir_algorithm algorithm);

/* ---- Warnings about one field ---- */

void weir__lint_path(struct weir__diagnostics *report, struct weir__place place, weir_text path);
/* Warns about spellings of an exact path that the normal form does not cover. */
void weir__lint_spellings(struct weir__diagnostics *report, struct weir__place place,
                          const struct weir__pattern *pattern, unsigned form);
void weir__lint_method(struct weir__diagnostics *report, struct weir__place place, weir_text method);
void weir__lint_host(struct weir__diagnostics *report, struct weir__place place, weir_text host);
/* Warns about attributes in a key that clients can forge, or that are not defined. */
void weir__lint_key(struct weir__builder *builder, struct weir__place place, const struct weir__template *key);
/* Warns about listed keys that the key template can never produce. */
void weir__lint_listed(struct weir__builder *builder, struct weir__place place, const struct weir__template *key,
                       const struct weir__access_list *list);
/* Warns about a tier that the client can choose. */
void weir__lint_tier(struct weir__builder *builder, struct weir__place place, int attribute);
/* Warns about odd numbers of a limit. */
void weir__lint_limit(struct weir__diagnostics *report, struct weir__place place, const weir_limit *limit);
/* Warns about a cost that exceeds every limit of the rule. */
void weir__lint_cost(struct weir__diagnostics *report, struct weir__place place, const struct weir__rule *rule,
                     bool max_given);

/* True for built-in attributes, those of `identity`, and well-known names. */
bool weir__native_known(const struct weir__attributes *all, weir_text name);

#endif
