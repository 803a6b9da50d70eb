/* What weir serve says: lines for people, or one JSON object a line. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

enum weir__log_level { WEIR__LOG_INFO, WEIR__LOG_WARNING, WEIR__LOG_ERROR };

struct weir__logger {
    int file; /* a descriptor; 2 is standard error */
    bool json;
    bool plain; /* text without the time: somebody waits for it at a terminal */
};

/* One line: printf-like, at most WEIR__LOG_MESSAGE_MAX bytes of it. What is not printable is shown as \\xHH. */
#define WEIR__LOG_MESSAGE_MAX 2048
__attribute__((format(printf, 3, 4))) void weir__logf(const struct weir__logger *log, enum weir__log_level level,
                                                      const char *format, ...);
/* What is written as it is, e.g. a line of nginx's access log with its end, or a piece of a long one. */
void weir__log_raw(const struct weir__logger *log, weir_text text);
/* A weir_diagnose whose context is a struct weir__logger. */
void weir__log_diagnostic(void *context, const weir_diagnostic *told);

/* Opens `path` for appending (NULL: standard error). False: errno says why, and the log is as it was. */
bool weir__logger_open(struct weir__logger *log, const char *path, bool json);
void weir__logger_close(struct weir__logger *log);

#endif
