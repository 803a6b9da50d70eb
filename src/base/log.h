/* What weir serve says: lines for people, or one JSON object a line. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

enum weir__level { WEIR__INFO, WEIR__WARNING, WEIR__ERROR };

struct weir__journal {
    int file; /* a descriptor; 2 is standard error */
    bool json;
    bool plain; /* text without the time: somebody waits for it at a terminal */
};

/* One line: printf-like, at most WEIR__LINE_MAX bytes of it. What is not printable is shown as \\xHH. */
#define WEIR__LINE_MAX 2048
__attribute__((format(printf, 3, 4))) void weir__say(const struct weir__journal *journal, enum weir__level level,
                                                     const char *format, ...);
/* What is written as it is, e.g. a line of nginx's access log with its end, or a piece of a long one. */
void weir__pass_on(const struct weir__journal *journal, weir_text text);
/* A weir_diagnose whose context is a struct weir__journal. */
void weir__say_diagnostic(void *context, const weir_diagnostic *told);

/* Opens `path` for appending (NULL: standard error). False: errno says why, and the journal is as it was. */
bool weir__journal_open(struct weir__journal *journal, const char *path, bool json);
void weir__journal_close(struct weir__journal *journal);

#endif
