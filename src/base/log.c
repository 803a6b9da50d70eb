/* The log. A line of up to 4 KiB is one write, so that lines of several processes do not mix. See log.h. */
#include "base/log.h"
#include "base/text.h"
#include "base/json_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* ---- Writing ---- */

enum { PATIENCE_MS = 500, AT_ONCE = 4096 /* PIPE_BUF: a pipe that is writable takes this much without blocking */ };

/*
 * False: writing would block. A stopped terminal, or a pipe to a program that hangs, must not block the supervisor,
 * which also drains nginx's pipe. Waits up to 500 ms the first time, then not at all until the reader catches up.
 */
static bool is_read(int file)
{
    static bool stuck;
    struct pollfd wait = {.fd = file, .events = POLLOUT};
    int ready;
    do
        ready = poll(&wait, 1, stuck ? 0 : PATIENCE_MS);
    while (ready < 0 && errno == EINTR);
    stuck = ready == 0;
    return !stuck;
}

static void write_all(int file, const char *text, size_t len)
{
    for (size_t done = 0; done < len && is_read(file);) {
        ssize_t wrote = write(file, text + done, len - done < AT_ONCE ? len - done : AT_ONCE);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return; /* no reader: the line is lost */
        done += (size_t)wrote;
    }
}

/* ---- Lines ---- */

enum { LINE_BYTES = 6 * WEIR__LOG_MESSAGE_MAX + 128 };

/* Formats the line of a message; returns its length. */
static size_t compose(const struct weir__logger *log, enum weir__log_level level, const char *message,
                      char line[LINE_BYTES])
{
    static const char *const names[] = {"info", "warning", "error"};
    char at[32];
    time_t now = time(NULL);
    struct tm utc;
    size_t used;
    gmtime_r(&now, &utc);
    if (log->json) {
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &utc);
        used = (size_t)snprintf(line, LINE_BYTES, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", at, names[level]);
        used = (size_t)(weir__json_put_string(line + used, LINE_BYTES - used - 2, weir__text_of(message)) - line);
        line[used++] = '}';
    } else {
        strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &utc);
        if (log->plain)
            at[0] = 0;
        used =
            (size_t)snprintf(line, LINE_BYTES, "%s%sweir: %s%s%s", at, *at ? " " : "",
                             level == WEIR__LOG_INFO ? "" : names[level], level == WEIR__LOG_INFO ? "" : ": ", message);
    }
    line[used++] = '\n';
    return used;
}

/* Writes a line, or counts it as dropped. */
static void put(const struct weir__logger *log, const char *line, size_t len)
{
    static unsigned long left_out;
    if (!is_read(log->file)) {
        left_out++;
        return;
    }
    if (left_out) {
        char message[64], report[LINE_BYTES];
        snprintf(message, sizeof message, "%lu log lines dropped: the reader is too slow", left_out);
        left_out = 0;
        write_all(log->file, report, compose(log, WEIR__LOG_WARNING, message, report));
    }
    write_all(log->file, line, len);
}

void weir__logf(const struct weir__logger *log, enum weir__log_level level, const char *format, ...)
{
    char raw[WEIR__LOG_MESSAGE_MAX], message[WEIR__LOG_MESSAGE_MAX], line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    /* nginx's messages contain bytes from clients. */
    weir__printable((weir_text){raw, strlen(raw)}, message, sizeof message);
    put(log, line, compose(log, level, message, line));
}

void weir__log_raw(const struct weir__logger *log, weir_text text)
{
    put(log, text.data, text.len);
}

void weir__log_diagnostic(void *context, const weir_diagnostic *diagnostic)
{
    char place[32] = "";
    if (diagnostic->line > 0)
        snprintf(place, sizeof place, ":%d:%d", diagnostic->line, diagnostic->column);
    weir__logf(context, diagnostic->severity == WEIR_IS_ERROR ? WEIR__LOG_ERROR : WEIR__LOG_WARNING, "%s%s: %s%s%s%s",
               diagnostic->file ? diagnostic->file : "", place, diagnostic->message,
               diagnostic->suggestion ? "; did you mean '" : "", diagnostic->suggestion ? diagnostic->suggestion : "",
               diagnostic->suggestion ? "'?" : "");
}

bool weir__logger_open(struct weir__logger *log, const char *path, bool json)
{
    int file = STDERR_FILENO;
    if (path) {
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (file < 0)
            return false;
    }
    weir__logger_close(log);
    *log = (struct weir__logger){file, json, false};
    return true;
}

void weir__logger_close(struct weir__logger *log)
{
    if (log->file > STDERR_FILENO)
        close(log->file);
    log->file = STDERR_FILENO;
}
