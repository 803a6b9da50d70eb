/* Telling the author of a rule file what is wrong with it, and where. */
#ifndef WEIR_RULES_REPORT_H
#define WEIR_RULES_REPORT_H

#include "rules/text.h"

/* One file, read into memory. */
struct weir__source {
    const char *name;
    weir_text text;
};

/* A place in a source; line and column from 1, 0 for the file as a whole. */
struct weir__place {
    uint32_t source, line, column;
};

#define WEIR__ERRORS_MAX 100 /* of one load: then one says that there are more, and the rest is silent */

struct weir__report {
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    const struct weir__source *sources;
    size_t source_count;
    int errors, warnings;
};

/* printf-like. */
__attribute__((format(printf, 3, 4))) void weir__report_error(struct weir__report *report, struct weir__place place,
                                                              const char *format, ...);
__attribute__((format(printf, 3, 4))) void weir__report_warning(struct weir__report *report, struct weir__place place,
                                                                const char *format, ...);
/* An error about `word`, with that one of the `count` words as a suggestion that is likely to have been meant. */
__attribute__((format(printf, 6, 7))) void weir__report_word(struct weir__report *report, struct weir__place place,
                                                             weir_text word, const char *const *words, size_t count,
                                                             const char *format, ...);
/* "file:line" of a place, for messages that name a second one; into a buffer of the caller's. */
const char *weir__place_text(const struct weir__report *report, struct weir__place place, char *buffer, size_t size);

#endif
