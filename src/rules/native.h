/* The readers of weir's own dialect, each of one part of docs/rules.md. They report what they do not like. */
#ifndef WEIR_RULES_NATIVE_H
#define WEIR_RULES_NATIVE_H

#include "rules/set.h"

#define WEIR__COUNT(array) (sizeof(array) / sizeof *(array))

/*
 * The members of a map by field: nodes[i] is the one called names[i], or NULL. False if it is no map, or if it has
 * members of other names, which are reported; nodes[] is set either way.
 */
bool weir__native_pick(struct weir__diagnostics *report, const struct weir__node *map, const char *what,
                       const char *const *names, size_t count, const struct weir__node **nodes);
/* A hash of what was written: the same for the same fields in another order. 0 for NULL, never for anything else. */
uint64_t weir__native_written(const struct weir__node *node);

/* One CIDR or a list of them. False after an error. */
bool weir__native_networks(struct weir__builder *builder, const struct weir__node *node, const char *what,
                           const struct weir__networks **networks);
/* { networks, keys } of allow or block. False after an error. */
bool weir__native_list(struct weir__builder *builder, const struct weir__node *node, const char *what,
                       struct weir__access_list *list);

/* A rule and all that its `limits` make of it, added to the set. */
void weir__native_rule(struct weir__builder *builder, const struct weir__node *node);
/* `match`, or what matches everything if node is NULL. NULL after an error. */
const struct weir__match *weir__native_match(struct weir__builder *builder, const struct weir__node *node);
/* One pattern of a path, as in match. False after an error. */
bool weir__native_path(struct weir__builder *builder, weir_text text, struct weir__place place,
                       struct weir__pattern *pattern);
/*
 * The pattern that a path's normal form is compared with. One that has a ';' is left as it is, so that no normal form
 * matches it; so is a regular expression. False: no memory.
 */
bool weir__native_normal(struct weir__builder *builder, const struct weir__pattern *pattern,
                         struct weir__pattern *normal);
/* `normalize` of a match or of the set; *form has what it does not say. */
void weir__native_normalize(struct weir__diagnostics *report, const struct weir__node *node, uint8_t *form);
/* `cost`. */
void weir__native_cost(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost);
/* `response` of a rule or of the set; *response has the defaults of what it does not say. */
void weir__native_response(struct weir__builder *builder, const struct weir__node *node,
                           struct weir__response *response);
/* `queue`: how much of it may wait. */
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

/* ---- Warnings where something is read ---- */

void weir__lint_path(struct weir__diagnostics *report, struct weir__place place, weir_text path);
/* Spellings that an exact path does not limit, as the normal form leaves them. */
void weir__lint_spellings(struct weir__diagnostics *report, struct weir__place place,
                          const struct weir__pattern *pattern, unsigned form);
void weir__lint_method(struct weir__diagnostics *report, struct weir__place place, weir_text method);
void weir__lint_host(struct weir__diagnostics *report, struct weir__place place, weir_text host);
/* Attributes in a key that anybody can forge, or that nobody has named. */
void weir__lint_key(struct weir__builder *builder, struct weir__place place, const struct weir__template *key);
/* Listed keys that a key which ends in a path never is. */
void weir__lint_listed(struct weir__builder *builder, struct weir__place place, const struct weir__template *key,
                       const struct weir__access_list *list);
/* A tier that the client chooses. */
void weir__lint_tier(struct weir__builder *builder, struct weir__place place, int attribute);
/* The numbers of one limit. */
void weir__lint_limit(struct weir__diagnostics *report, struct weir__place place, const weir_limit *limit);
/* A cost that no limit of the rule can ever take. */
void weir__lint_cost(struct weir__diagnostics *report, struct weir__place place, const struct weir__rule *rule,
                     bool max_given);

/* True if the attribute is one that the rules know: built in, of `identity`, or one of the usual names. */
bool weir__native_known(const struct weir__attributes *all, weir_text name);

#endif
