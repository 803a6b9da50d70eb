/* What is wrong with rules, as the author of them wants to see it: the place, the line and a caret, or as JSON. */
#ifndef WEIR_CLI_DIAGNOSE_H
#define WEIR_CLI_DIAGNOSE_H

#include "base/json_writer.h"

#include <weir/weir.h>

/* The collected diagnostics, for --json. */
struct weir__finding {
    enum weir_severity severity;
    int line, column;
    char *file, *message, *suggestion;
};

/* Zero it, set the first two, and hand it to the library with weir__add_finding. */
struct weir__findings {
    FILE *to;    /* show each here as it comes; NULL: keep them for JSON */
    bool strict; /* warnings are errors */
    size_t errors, warnings;
    struct weir__finding *list;
    size_t count, room;
    bool out_of_memory;
};

/* A weir_diagnose; the context is a struct weir__findings. */
void weir__add_finding(void *context, const weir_diagnostic *diagnostic);
/* The same for those who leave warnings to weir lint. */
void weir__find_errors(void *context, const weir_diagnostic *diagnostic);
/* The kept ones of one severity, as members of an open list. */
void weir__findings_json(const struct weir__findings *findings, struct weir__json *json, enum weir_severity severity);
void weir__findings_free(struct weir__findings *findings);

/* Makes an error that the library returned a finding, too, unless the findings say already what is wrong. */
void weir__find_failure(struct weir__findings *findings, const char *path, int error);

/* True for "-" and for pipes, which the library leaves to its caller to read. */
bool weir__is_stream(const char *path);
/* All of a file, or of standard input for "-", with a zero byte behind it. NULL: errno says why (EFBIG: too long). */
char *weir__read_all(const char *path, size_t max, size_t *len);
#define WEIR__INPUT_MAX (16 << 20) /* what the library takes of one file */

#endif
