/* The rules that a command was given, and the errors and warnings about them: as text with a caret, or as JSON. */
#ifndef WEIR_CLI_DIAGNOSE_H
#define WEIR_CLI_DIAGNOSE_H

#include <jansson.h>
#include <stdio.h>

#include <weir/weir.h>

/* Zero it, set the first three, and pass it to the library with weir__add_finding. */
struct weir__findings {
    FILE *to;         /* show each here as it comes; NULL: keep them for JSON */
    bool strict;      /* warnings are errors */
    bool errors_only; /* leaves warnings to weir lint */
    size_t errors, warnings;
    json_t *kept[2]; /* by severity; NULL: none */
};

/* A weir_diagnose; the context is a struct weir__findings. */
void weir__add_finding(void *context, const weir_diagnostic *diagnostic);
/* The kept diagnostics of one severity, as a list that the caller takes over. To be called for both if `to` is NULL. */
json_t *weir__findings_json(struct weir__findings *findings, enum weir_severity severity);

/* Adds an error code of the library as a finding, unless there are errors already. */
void weir__find_failure(struct weir__findings *findings, const char *path, int error);

/* True for "-" and for pipes, which the library does not read. */
bool weir__is_stream(const char *path);
/* Reads a file, or standard input for "-", and adds a zero byte. NULL: errno is set (EFBIG: too long). */
char *weir__read_all(const char *path, size_t max, size_t *len);
#define WEIR__INPUT_MAX (16 << 20) /* the library's bound of one file */

/* ---- The rules that a command was given ---- */

struct weir__input {
    const char *name; /* for messages */
    const char *path; /* of the rules; or NULL, and they are: */
    const char *text;
    size_t len;
    struct weir__findings *findings;
    char *read;              /* of a stream */
    struct weir__file *file; /* of a weir.yaml */
};

/* Zero it except `findings`. False after findings were added. Close it in any case. */
bool weir__input_open(struct weir__input *input, const char *path);
void weir__input_close(struct weir__input *input);
/* A weir_diagnose with `input` as its context: replaces the file of diagnostics about text by its name. */
void weir__input_find(void *context, const weir_diagnostic *diagnostic);

/* "weir.yaml" if the current directory has one, the default of commands; else NULL. */
const char *weir__input_default(void);

/* `path`, or, if that is a weir.yaml, the path of its segment. NULL after errors were printed. */
const char *weir__input_segment(const char *path);

#endif
