/* Diagnostics: errors and warnings about rule files, with their place and a suggestion. */
#ifndef WEIR_RULES_REPORT_H
#define WEIR_RULES_REPORT_H

#include "base/text.h"

/* One file, read into memory. */
struct weir__source {
    const char *name;
    weir_text text;
};

/* A place in a source; line and column from 1, 0 for the file as a whole. */
struct weir__place {
    uint32_t source, line, column;
};

#define WEIR__ERRORS_MAX                                                                                               \
    100 /* errors of one load; one more says that there are more, then they are suppressed. The same for warnings */
#define WEIR__MESSAGE_MAX 512 /* bytes of a message with its zero byte; a longer one is cut */

struct weir__diagnostics {
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    const struct weir__source *sources;
    size_t source_count;
    int errors, warnings;
    struct {
        uint32_t source, line;
        size_t offset;
    } found; /* the line found last, from which the next search starts; line 0: none */
};

/* printf-like. Unprintable characters of the message are escaped. Those that report errors return false. */
__attribute__((format(printf, 3, 4))) bool weir__report_error(struct weir__diagnostics *report,
                                                              struct weir__place place, const char *format, ...);
__attribute__((format(printf, 3, 4))) void weir__report_warning(struct weir__diagnostics *report,
                                                                struct weir__place place, const char *format, ...);
/* Reports an error about `word`, suggesting the most similar of `choices`. */
__attribute__((format(printf, 6, 7))) bool weir__report_unknown(struct weir__diagnostics *report,
                                                                struct weir__place place, weir_text word,
                                                                const char *const *choices, size_t count,
                                                                const char *format, ...);
/* Reports an error with the caller's suggestion; NULL: none. */
__attribute__((format(printf, 4, 5))) bool weir__report_suggest(struct weir__diagnostics *report,
                                                                struct weir__place place, const char *suggestion,
                                                                const char *format, ...);
/* Formats "file:line" of a second place for a message, into the caller's buffer. */
const char *weir__place_text(const struct weir__diagnostics *report, struct weir__place place, char *buffer,
                             size_t size);
/* The line and column (in characters) of a byte of a source. */
struct weir__place weir__place_at(const struct weir__diagnostics *report, uint32_t source, size_t offset);

/* The source from the beginning of the place's line on; false if there is no such line. */
bool weir__place_find(struct weir__diagnostics *report, struct weir__place place, weir_text *rest);

#endif
