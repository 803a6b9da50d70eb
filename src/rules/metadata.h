/* A piece of YAML as JSON. */
#ifndef WEIR_RULES_METADATA_H
#define WEIR_RULES_METADATA_H

#include "rules/yaml.h"

/*
 * The text lives in the arena; {NULL, 0} when there is no memory. Plain scalars become what YAML 1.1 takes them for
 * (null, booleans with yes, no, on and off, decimal numbers as JSON writes them); everything else is a string.
 */
weir_text weir__node_json(struct weir__arena *arena, const struct weir__node *node);

#endif
