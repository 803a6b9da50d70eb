/*
 * Rule files taken apart into the documents that the rules service keeps: each rule, each domain of descriptors, and
 * the settings (identity, normalize, allow, block, response). A document is the text as it was written, comments and
 * all, moved to the left; what is wrong with it finds back to the place in the file.
 */
#ifndef WEIR_CONTROL_SPLIT_H
#define WEIR_CONTROL_SPLIT_H

#include <weir/weir.h>

#define WEIR__SETTINGS_NAME "settings"
#define WEIR__DOMAIN_PREFIX "domain:"

/* A file, with the places where its lines begin. */
struct weir__rule_file {
    char *path; /* as it is shown */
    char *text;
    size_t len;
    size_t *lines; /* one more than there are: the end */
    size_t line_count;
};

/* Lines of a document that stand together in a file. */
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
 * Reads a file, or a folder's *.yaml and *.yml by name. False: what is wrong was told to `diagnose` (may be NULL), and
 * errno is not 0 if something could not be read. Zeroed at first, and to be freed either way.
 */
bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context);
/* The same for a text (from malloc, with a zero byte behind it), which it takes over; `path` is how it is shown. */
bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context);
void weir__documents_free(struct weir__documents *documents);

/* Tells what is wrong at a place of a document (line and column from 1; line 0: all of it), as of its file. */
void weir__documents_diagnose(const struct weir__documents *documents, const struct weir__rule_document *document,
                              const weir_diagnostic *what, weir_diagnose *diagnose, void *context);

/* ---- Between the files ---- */

/* Takes one file apart. */
bool weir__documents_split(struct weir__documents *documents, size_t file, weir_diagnose *diagnose, void *context);
/* A document to be filled; the settings are one for all files. NULL: no memory. */
struct weir__rule_document *weir__documents_add(struct weir__documents *documents, enum weir__kind kind,
                                                const char *name, size_t name_len);
/* Adds lines of a file: from `line` and the byte `column` of it on to the byte `end` of the text, after `head`. */
bool weir__documents_stretch(struct weir__documents *documents, struct weir__rule_document *document, size_t file,
                             size_t line, size_t column, size_t end, const char *head);

#endif
