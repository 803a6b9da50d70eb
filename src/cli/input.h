/* The rules that a command was given: a file, a directory, a stream, or the weir.yaml that has or names them. */
#ifndef WEIR_CLI_INPUT_H
#define WEIR_CLI_INPUT_H

#include "cli/diagnose.h"

struct weir__input {
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
bool weir__input_open(struct weir__input *input, const char *path);
void weir__input_close(struct weir__input *input);
/* A weir_diagnose for those who read the rules, with `input` as its context: text has the name of where it is from. */
void weir__input_find(void *context, const weir_diagnostic *diagnostic);

/* The weir.yaml of this folder, for commands that were given nothing; NULL: there is none. */
const char *weir__input_default(void);

/*
 * `path`, or, if that is a weir.yaml, the path of its segment in `room`. NULL: what is wrong with it is among the
 * findings.
 */
const char *weir__input_segment(const char *path, struct weir__findings *findings, char room[4096]);

#endif
