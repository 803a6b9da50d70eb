/* The log of weir serve and weir agent: text lines, or one JSON object per line. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

enum weir__log_level { WEIR__LOG_INFO, WEIR__LOG_WARNING, WEIR__LOG_ERROR };

struct weir__logger {
    int file; /* a descriptor; 2 is standard error */
    bool json;
    bool plain; /* text without the time, as for a user at a terminal */
};

/* Logs one message, cut at WEIR__LOG_MESSAGE_MAX bytes. Bytes that are not printable become \\xHH. */
#define WEIR__LOG_MESSAGE_MAX 2048
__attribute__((format(printf, 3, 4))) void weir__logf(const struct weir__logger *log, enum weir__log_level level,
                                                      const char *format, ...);
/* Writes text unchanged, such as a line of nginx's access log with its newline. */
void weir__log_raw(const struct weir__logger *log, weir_text text);
/* A weir_diagnose whose context is a struct weir__logger. */
void weir__log_diagnostic(void *context, const weir_diagnostic *diagnostic);

/* Opens `path` for appending (NULL: standard error). False: errno has the reason, and the log is unchanged. */
bool weir__logger_open(struct weir__logger *log, const char *path, bool json);
void weir__logger_close(struct weir__logger *log);

#endif
