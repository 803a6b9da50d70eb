/* The rate_limit of a descriptor. */
#ifndef WEIR_RULES_DESCRIPTOR_LIMIT_H
#define WEIR_RULES_DESCRIPTOR_LIMIT_H

#include "rules/set.h"

/* True for a member of a map that is there without a value: the same as not there, as the dialect has it. */
bool weir__node_is_nothing(const struct weir__node *node);

/*
 * Reads a rate_limit into a rule that has its name and shadow already: quota, limit_name, replaces. False after an
 * error, which was reported.
 */
bool weir__descriptor_limit_read(struct weir__builder *builder, const struct weir__node *map, struct weir__rule *rule);

#endif
