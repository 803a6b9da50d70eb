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

/* What is known of the host that will run the rules, for warnings. */
struct weir__rules_host {
    int64_t segment_bytes;
    bool has_store;
    int consistency;                            /* of the store, for rules without their own: enum weir__consistency */
    enum weir__callers {                        /* that pass attributes which `identity` does not name */
                         WEIR__CALLERS_UNKNOWN, /* an application or nginx may */
                         WEIR__CALLERS_SERVICE, /* those of the HTTP or Redis service may, requests at the gateway do
                                                   not */
                         WEIR__CALLERS_NONE     /* there is only a gateway */
    } callers;
    bool counts_denied; /* Envoy's service: denied calls count under fixed windows */
};
#define WEIR__SEGMENT_DEFAULT (INT64_C(64) << 20) /* bytes */

struct weir__diagnostics {
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    const struct weir__source *sources;
    size_t source_count;
    int errors, warnings;
    bool secret;                         /* diagnostics do not show the texts of the sources */
    const struct weir__rules_host *host; /* NULL: nothing is known, and warnings that depend on it are left out */
    struct {
        uint32_t source, line;
        size_t offset;
    } found; /* the line found last, from which the next search starts; line 0: none */
};

/*
 * Reports an error or a warning, printf-like, with a suggestion or NULL. Unprintable characters of the message are
 * escaped. Returns false.
 */
__attribute__((format(printf, 5, 6))) bool weir__report(struct weir__diagnostics *report, enum weir_severity severity,
                                                        struct weir__place place, const char *suggestion,
                                                        const char *format, ...);
/* The most similar of `choices`, or NULL. */
const char *weir__report_nearest(const struct weir__diagnostics *report, weir_text word, const char *const *choices,
                                 size_t count);
/*
 * The word meant by one that other products, or people, use for it: the first of the table's pairs whose second part,
 * a list such as "sec,second", has it in any case; or NULL.
 */
const char *weir__report_meant(weir_text word, const char *const (*table)[2], size_t count);
#define weir__report_error(report, place, ...)   weir__report(report, WEIR_IS_ERROR, place, NULL, __VA_ARGS__)
#define weir__report_warning(report, place, ...) weir__report(report, WEIR_IS_WARNING, place, NULL, __VA_ARGS__)
#define weir__report_suggest(report, place, suggestion, ...)                                                           \
    weir__report(report, WEIR_IS_ERROR, place, suggestion, __VA_ARGS__)
/* An error about `word`, which is none of `choices`. */
#define weir__report_unknown(report, place, word, choices, count, ...)                                                 \
    weir__report(report, WEIR_IS_ERROR, place, weir__report_nearest(report, word, choices, count), __VA_ARGS__)
/* Formats "file:line" of a second place for a message, into the caller's buffer. */
const char *weir__place_text(const struct weir__diagnostics *report, struct weir__place place, char *buffer,
                             size_t size);
/* The line and column (in characters) of a byte of a source. */
struct weir__place weir__place_at(const struct weir__diagnostics *report, uint32_t source, size_t offset);

/* Length of the line break at `at`, or 0. The same line breaks as in libyaml, so that line numbers agree. */
size_t weir__line_break(const char *at, size_t left);

/* The mark has no column. */
static inline bool weir__has_byte_order_mark(weir_text text)
{
    return text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0;
}

/* The source from the beginning of the place's line on; false if there is no such line. */
bool weir__place_find(struct weir__diagnostics *report, struct weir__place place, weir_text *rest);
/* The source from the place's character on. */
bool weir__place_byte(struct weir__diagnostics *report, struct weir__place place, weir_text *rest);

#endif
