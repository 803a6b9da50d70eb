/*
 * Splits rule files into the documents of the rules service: each rule, each domain of descriptors, and the settings
 * (identity, normalize, allow, block, response). A document is the original text with its comments, unindented;
 * diagnostics map back to the file.
 */
#ifndef WEIR_CONTROL_SPLIT_H
#define WEIR_CONTROL_SPLIT_H

#include <weir/weir.h>

#define WEIR__SETTINGS_NAME "settings"
#define WEIR__DOMAIN_PREFIX "domain:"

/* A file and the offsets of its lines. */
struct weir__rule_file {
    char *path; /* as it is shown */
    char *text;
    size_t len;
    size_t *lines; /* one more than there are: the end */
    size_t line_count;
};

/* A run of lines of a document, contiguous in a file. */
struct weir__stretch {
    size_t file;
    size_t document_line, file_line, count; /* from 0 */
    size_t column;                          /* of the first character, in bytes from 0 */
    size_t head;                            /* bytes before it that are not the file's */
};

enum weir__kind { WEIR__KIND_SETTINGS, WEIR__KIND_RULE, WEIR__KIND_DOMAIN };

struct weir__rule_document {
    enum weir__kind kind;
    char *name; /* as the service calls it */
    char *text;
    size_t len, lines;
    struct weir__stretch *stretches;
    size_t stretch_count;
};

struct weir__documents {
    struct weir__rule_file *files;
    size_t file_count;
    struct weir__rule_document *list; /* as in the files */
    size_t count, room;
};

/*
 * Reads a file, or a folder's *.yaml and *.yml in order of name. False: errors went to `diagnose` (may be NULL); errno
 * is not 0 if something was unreadable. Zero `documents` first, and free it in any case.
 */
bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context);
/* The same for a text from malloc, terminated, which it takes over; `path` is its name in messages. */
bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context);
void weir__documents_free(struct weir__documents *documents);

/* Reports a diagnostic about a document (line and column from 1; line 0: all of it) at its place in the file. */
void weir__documents_diagnose(const struct weir__documents *documents, const struct weir__rule_document *document,
                              const weir_diagnostic *what, weir_diagnose *diagnose, void *context);

/* ---- Internal ---- */

/* Takes one file apart. */
bool weir__documents_split(struct weir__documents *documents, size_t file, weir_diagnose *diagnose, void *context);
/* A document to be filled; the settings are one for all files. NULL: no memory. */
struct weir__rule_document *weir__documents_add(struct weir__documents *documents, enum weir__kind kind,
                                                const char *name, size_t name_len);
/* Adds lines of a file: from `line` and the byte `column` of it on to the byte `end` of the text, after `head`. */
bool weir__documents_stretch(struct weir__documents *documents, struct weir__rule_document *document, size_t file,
                             size_t line, size_t column, size_t end, const char *head);

#endif
