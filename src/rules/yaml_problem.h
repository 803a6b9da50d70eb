/* What libyaml says in its own words, in ours. */
#ifndef WEIR_RULES_YAML_PROBLEM_H
#define WEIR_RULES_YAML_PROBLEM_H

#include "rules/report.h"

#include <yaml.h>

/* Reports why the parser has stopped in this source, of which it was given everything from byte `skipped` on. */
void weir__yaml_problem(const yaml_parser_t *parser, uint32_t source, size_t skipped, struct weir__diagnostics *report);

static inline struct weir__place weir__yaml_place(uint32_t source, yaml_mark_t mark)
{
    return (struct weir__place){source, (uint32_t)mark.line + 1, (uint32_t)mark.column + 1};
}

#endif
