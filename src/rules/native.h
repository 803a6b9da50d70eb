/* Readers of the native rule dialect, one per section of docs/reference/rules.md. Each reports the errors it finds. */
#ifndef WEIR_RULES_NATIVE_H
#define WEIR_RULES_NATIVE_H

#include "rules/set.h"

/* Hash of a node that does not depend on the order of fields. 0 only for NULL. */
uint64_t weir__native_written(const struct weir__node *node);

/* One CIDR or a list of them, to a const struct weir__networks *. False after an error. */
bool weir__native_networks(void *builder, const struct weir__node *node, const char *what, void *to);
/* { networks, keys } of allow or block (`what`), to a struct weir__access_list. False after an error. */
bool weir__native_list(void *builder, const struct weir__node *node, const char *what, void *to);

/* Reads a rule; each of its `limits` is added to the set as a rule. */
void weir__native_rule(struct weir__builder *builder, const struct weir__node *node);
/* Reads `match`; NULL matches everything. Returns NULL after an error. */
const struct weir__match *weir__native_match(struct weir__builder *builder, const struct weir__node *node);
/* One pattern of a path, as in match. False after an error. */
bool weir__native_path(struct weir__builder *builder, const struct weir__node *node, struct weir__pattern *pattern);
/*
 * The pattern for a path's normal form. One with ';' (which no normal form has) and a regular expression stay as they
 * are. False: no memory.
 */
bool weir__native_normal(struct weir__builder *builder, const struct weir__pattern *pattern,
                         struct weir__pattern *normal);
/* Reads `normalize` of a match or of the set into *form, which holds the defaults. */
void weir__native_normalize(const struct weir__node *node, uint8_t *form);
/* Fields, as weir__field.read: `cost` to a struct weir__cost, `queue` to a struct weir__deferral. */
bool weir__native_cost(void *builder, const struct weir__node *node, const char *what, void *to);
bool weir__native_queue(void *builder, const struct weir__node *node, const char *what, void *to);
/* `response` of a rule or of the set to a struct weir__response, which holds the defaults. */
bool weir__native_response(void *builder, const struct weir__node *node, const char *what, void *to);
/* Reads `warn_at` of a rule or a rate_limit into a uint8_t. */
bool weir__native_warn_at(void *builder, const struct weir__node *node, const char *what, void *to);
/* Makes the marks of warned keys for the quotas of a rule with warn_at; `node` is that field. False: no memory. */
bool weir__native_warned(struct weir__builder *builder, const struct weir__node *node, const struct weir__rule *rule,
                         struct weir__quota *quotas, size_t count);
/* Reads `elastic`, `adaptive`, `reserve` and `priority` of a rule's map. */
void weir__native_overload(const struct weir__node *map, struct weir__rule *rule);
/* Prepares the quota of an elastic or adaptive rule for scaling. False after an error. */
bool weir__native_scaled_limit(struct weir__builder *builder, const struct weir__node *map,
                               const struct weir__rule *rule, const weir_params *params, struct weir__quota *quota);

/* ---- Warnings about one field ---- */

void weir__lint_path(const struct weir__node *path);
/* Warns about spellings of an exact path that the normal form does not cover. */
void weir__lint_spellings(const struct weir__node *node, const struct weir__pattern *pattern, unsigned form);
void weir__lint_method(const struct weir__node *method);
void weir__lint_host(const struct weir__node *host);
/* Warns about attributes in a key that clients can forge, or that are not defined. */
void weir__lint_key(const struct weir__attributes *all, const struct weir__node *node,
                    const struct weir__template *key);
/* Warns about listed keys that the key template can never produce. */
void weir__lint_listed(const struct weir__attributes *all, const struct weir__node *node,
                       const struct weir__template *key, const struct weir__access_list *list);
/* Warns about a tier that the client can choose. */
void weir__lint_tier(const struct weir__attributes *all, const struct weir__node *node, int attribute);
/* Warns about odd numbers of a limit. */
void weir__lint_limit(const struct weir__node *node, const weir_limit *limit);
/* Warns about a cost that exceeds every limit of the rule. */
void weir__lint_cost(const struct weir__node *cost, const struct weir__rule *rule);

#endif
