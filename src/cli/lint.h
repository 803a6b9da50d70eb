/* `weir lint`: lint.c reads and judges, lint_print.c shows what is there. */
#ifndef WEIR_CLI_LINT_H
#define WEIR_CLI_LINT_H

#include "cli/json.h"

#include <weir/weir.h>

/* A table of the rules of `path`, at most `most` of them, and a line that sums them up. */
void weir__lint_table(FILE *to, const char *path, const weir_rules *rules, size_t most, size_t warnings);
/* Each rule as a member of an open list. */
void weir__lint_json(struct weir__json *json, const weir_rules *rules);

#endif
