/* Joins documents to one text that weir_rules_parse reads, and maps its diagnostics back to their lines. */
#ifndef WEIR_CONTROL_SET_H
#define WEIR_CONTROL_SET_H

#include "control/document.h"

/* The contiguous lines of one document in the set. */
struct weir__set_piece {
    char name[WEIR__DOCUMENT_NAME];
    uint32_t first_line, lines; /* in the set */
    uint32_t columns;           /* columns by which its lines are indented */
    struct {
        uint32_t line, column, len;
    } added;       /* text inserted into one of its lines; line 0: none */
    size_t offset; /* of its first line */
    bool shadow;
};

struct weir__set {
    char *text;
    size_t len, room;
    uint32_t line; /* next line */
    struct weir__set_piece *pieces;
    size_t count, piece_room;
    bool has_rules, has_domains; /* their heading has been written */
    bool complete;               /* has what a valid set needs */
    bool failed;                 /* no memory, or a document that cannot be read */
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
