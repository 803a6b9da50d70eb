/* What weir serve says. Each line is one write, so that lines of several processes do not mix. */
#define _GNU_SOURCE /* O_CLOEXEC, gmtime_r */
#include "agent/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void write_all(int file, const char *text, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t wrote = write(file, text + done, len - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return; /* nobody is there to be told */
        done += (size_t)wrote;
    }
}

/* A string of JSON with its quotes. Bytes of UTF-8 stay as they are. Returns the length; at most 6 a byte. */
static size_t quote(const char *text, char *to)
{
    size_t used = 0;
    to[used++] = '"';
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            to[used++] = '\\';
        if ((unsigned char)*c < 0x20)
            used += (size_t)snprintf(to + used, 7, "\\u%04x", (unsigned char)*c);
        else
            to[used++] = *c;
    }
    to[used++] = '"';
    return used;
}

void weir__say(const struct weir__journal *journal, enum weir__level level, const char *format, ...)
{
    static const char *const names[] = {"info", "warning", "error"};
    char message[WEIR__LINE_MAX], line[6 * WEIR__LINE_MAX + 128], at[32];
    time_t now = time(NULL);
    struct tm utc;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    gmtime_r(&now, &utc);
    size_t used;
    if (journal->json) {
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &utc);
        used = (size_t)snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", at, names[level]);
        used += quote(message, line + used);
        line[used++] = '}';
    } else {
        for (char *c = message; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
        strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &utc);
        if (journal->plain)
            at[0] = 0;
        used = (size_t)snprintf(line, sizeof line, "%s%sweir: %s%s%s", at, *at ? " " : "",
                                level == WEIR__INFO ? "" : names[level], level == WEIR__INFO ? "" : ": ", message);
    }
    line[used++] = '\n';
    write_all(journal->file, line, used);
}

void weir__pass_on(const struct weir__journal *journal, weir_text line)
{
    write_all(journal->file, line.data, line.len);
    write_all(journal->file, "\n", 1);
}

void weir__say_diagnostic(void *context, const weir_diagnostic *told)
{
    char place[32] = "";
    if (told->line > 0)
        snprintf(place, sizeof place, ":%d:%d", told->line, told->column);
    weir__say(context, told->severity == WEIR_IS_ERROR ? WEIR__ERROR : WEIR__WARNING, "%s%s: %s%s%s%s",
              told->file ? told->file : "", place, told->message, told->suggestion ? "; did you mean '" : "",
              told->suggestion ? told->suggestion : "", told->suggestion ? "'?" : "");
}

bool weir__journal_open(struct weir__journal *journal, const char *path, bool json)
{
    int file = STDERR_FILENO;
    if (path) {
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (file < 0)
            return false;
    }
    weir__journal_close(journal);
    *journal = (struct weir__journal){file, json, false};
    return true;
}

void weir__journal_close(struct weir__journal *journal)
{
    if (journal->file > STDERR_FILENO)
        close(journal->file);
    journal->file = STDERR_FILENO;
}
