/* The rules that a command was given: a file, a directory, a stream, or the weir.yaml that has or names them. */
#ifndef WEIR_CLI_GIVEN_H
#define WEIR_CLI_GIVEN_H

#include "cli/diagnose.h"

struct weir__given {
    const char *name; /* as people know it */
    const char *path; /* of the rules; or NULL, and they are: */
    const char *text;
    size_t len;
    struct weir__findings *findings;
    bool errors_only;              /* leaves warnings to weir lint */
    char *read;                    /* of a stream */
    struct weir__file_rules *file; /* of a weir.yaml */
};

/* Zero it but for `findings` and `errors_only`. False: what is wrong is among the findings. Close it in any case. */
bool weir__given_open(struct weir__given *given, const char *path);
void weir__given_close(struct weir__given *given);
/* A weir_diagnose for those who read the rules, with `given` as its context: text has the name of where it is from. */
void weir__given_find(void *context, const weir_diagnostic *diagnostic);

/* The weir.yaml of this folder, for commands that were given nothing; NULL: there is none. */
const char *weir__given_default(void);

/*
 * `path`, or, if that is a weir.yaml, the path of its segment in `room`. NULL: what is wrong with it is among the
 * findings.
 */
const char *weir__given_segment(const char *path, struct weir__findings *findings, char room[4096]);

#endif
