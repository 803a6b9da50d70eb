/*
 * A document: the text of one rule, of one domain of descriptors, or of the settings that all rules share. Its name is
 * the rule's; "domain:" and the domain's; or "settings". The set: all published documents, joined to one text that
 * weir_rules_parse reads; its diagnostics are mapped back to the documents' lines.
 */
#ifndef WEIR_CONTROL_DOCUMENT_H
#define WEIR_CONTROL_DOCUMENT_H

#include "base/buffer.h"
#include "control/control.h"
#include "rules/yaml.h"

#define WEIR__DOCUMENT_MAX     ((size_t)1 << 20) /* bytes of one */
#define WEIR__DOCUMENT_NAME    128               /* bytes of a name with its zero byte: a rule's has at most 95 */
#define WEIR__DOCUMENT_SUMMARY 160

const char *weir__kind_name(enum weir__document_kind kind);

struct weir__document {
    enum weir__document_kind kind;
    char name[WEIR__DOCUMENT_NAME];
    char summary[WEIR__DOCUMENT_SUMMARY]; /* "5 per 1m by ip:${client_ip}" */
    weir_text text;                       /* line breaks are \n, at the end, too */
    const struct weir__node *root;
};

/*
 * Reads a document into the arena. False: errors were added to `errors`, as objects {severity, field, line, column,
 * message, suggestion}.
 */
bool weir__document_read(struct weir__arena *arena, weir_text text, struct weir__document *document, json_t *errors);

/* True for Unicode line breaks: they end a line for YAML, but not in editors, so that places would be wrong. */
bool weir__has_hidden_break(weir_text text);
#define WEIR__HIDDEN_BREAK "the text has line breaks (U+0085, U+2028, U+2029) that are not seen; write them as escapes"

/* Removes the first line from a text. Returns it without its line break: \n, \r or \r\n, as YAML counts lines. */
weir_text weir__cut_line(weir_text *text);

/* The byte of a line where a column, counted in characters from 1, begins. */
size_t weir__column_offset(const char *line, size_t len, uint32_t column);

/* "match.path[1]": the innermost member that begins at or before a place; "" for the document itself. */
void weir__document_field(const struct weir__node *root, uint32_t line, uint32_t column, char *field, size_t size);

/* Adds one diagnostic. `document` (may be NULL) is the name of the document it is about, `field` (may be NULL) in it.
 */
void weir__add_problem(json_t *problems, const char *document, const char *field, const weir_diagnostic *what);

/* Adds {field, from, to} for each value that differs between two trees. */
void weir__document_changes(const struct weir__node *from, const struct weir__node *to, json_t *changes);

/* ---- The set ---- */

/* The contiguous lines of one document in the set. */
struct weir__set_piece {
    struct weir__set_piece *before; /* the piece before this one */
    char name[WEIR__DOCUMENT_NAME];
    uint32_t first_line, lines; /* in the set */
    uint32_t columns;           /* columns by which its lines are indented; 0: settings */
    struct {
        uint32_t line, column, len;
    } added; /* text inserted into one of its lines; line 0: none */
};

/* Zero it to begin. */
struct weir__set {
    struct weir__buffer text;
    uint32_t lines;
    struct weir__set_piece *last;
    struct weir__arena arena;    /* of the pieces */
    bool has_rules, has_domains; /* their heading has been written */
    bool failed;                 /* no memory, or a document that cannot be read */
    bool may_name_files;         /* the settings of rules in files; those of a database cannot */
};

/* Documents must come in this order: settings, rules, domains. */
void weir__set_add(struct weir__set *set, const char *name, enum weir__document_kind kind, weir_text text, bool shadow);
/* Ends it. False: no memory. */
bool weir__set_finish(struct weir__set *set);
void weir__set_free(struct weir__set *set);

/*
 * Compiles a finished set. `problems` gets errors, and the warnings about the documents whose names are members of
 * `about` (NULL: none). 0, or an error of the library's (WEIR_ERULES: see problems). *rules: how many there are.
 */
int weir__set_compile(const struct weir__set *set, const json_t *about, json_t *problems, size_t *rules);

#endif
