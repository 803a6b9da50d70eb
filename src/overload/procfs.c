/* Parsers of the load figures in /proc: see overload.h. */
#include "overload/overload.h"

#include <errno.h>
#include <stdlib.h>

/* The rest of the first line that begins with `start`; NULL: there is none. */
static const char *line_after(const char *line, const char *start)
{
    size_t len = strlen(start);
    while (strncmp(line, start, len) != 0) {
        line = strchrnul(line, '\n');
        if (!*line++)
            return NULL;
    }
    return line + len;
}

/* Decimal digits, after blanks; false if there are none or the value overflows. */
static bool number(const char **at, uint64_t *value)
{
    char *end;
    *at += strspn(*at, " ");
    if (!weir__is_digit(**at))
        return false;
    errno = 0;
    *value = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

bool weir__procfs_stalled(const char *text, uint64_t *total_us)
{
    const char *some = line_after(text, "some "), *total = some ? strstr(some, "total=") : NULL;
    if (!total || total > strchrnul(some, '\n'))
        return false;
    total += strlen("total=");
    return number(&total, total_us);
}

bool weir__procfs_busy(const char *text, uint64_t *busy, uint64_t *all)
{
    enum { USER, NICE, SYSTEM, IDLE, IO_WAIT, IRQ, SOFT_IRQ, STEAL, KINDS }; /* guests are in user already */
    const char *at = line_after(text, "cpu ");
    uint64_t idle = 0, sum = 0, ticks;
    int kind = 0;
    for (; at && kind < KINDS && number(&at, &ticks); kind++) {
        if (__builtin_add_overflow(sum, ticks, &sum))
            return false;
        idle += kind == IDLE || kind == IO_WAIT ? ticks : 0;
    }
    *all = sum;
    *busy = sum - idle;
    return kind > IDLE;
}

bool weir__procfs_running(const char *text, uint64_t *running)
{
    uint64_t total;
    for (int averages = 0; averages < 3; averages++) {
        text += strcspn(text, " \n");
        if (*text++ != ' ')
            return false;
    }
    return number(&text, running) && *text++ == '/' && number(&text, &total);
}
