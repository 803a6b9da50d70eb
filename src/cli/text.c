/* Text for people. */
#define _GNU_SOURCE /* wcwidth */
#include "cli/text.h"
#include "base/text.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

/* Characters that move the cursor, end the line or turn the direction of writing: shown, they would lie. */
static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
           (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

int weir__point_width(uint32_t point)
{
    static bool locale_set;
    if (!locale_set) { /* wcwidth knows about characters only in a UTF-8 locale; nothing else here depends on it */
        locale_set = true;
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
    if (is_control(point))
        return 1;
    int width = wcwidth((wchar_t)point);
    return width < 0 ? 1 : width;
}

/* The next character of a C string as it will be printed: its bytes, and its columns. */
static size_t shown(const char *text, size_t left, int *width, bool *clean)
{
    uint32_t point = 0;
    size_t bytes = weir__utf8_decode(text, left, &point);
    *clean = bytes > 0 && !is_control(point);
    *width = *clean ? weir__point_width(point) : 1;
    return bytes ? bytes : 1;
}

size_t weir__text_width(const char *text)
{
    size_t columns = 0;
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        int width;
        bool clean;
        at += shown(text + at, len - at, &width, &clean);
        columns += (size_t)width;
    }
    return columns;
}

void weir__print_text(FILE *to, const char *text, size_t width, bool fill)
{
    size_t len = strlen(text);
    size_t all = weir__text_width(text);
    size_t room = all > width && width > 0 ? width - 1 : width;
    size_t used = 0;
    for (size_t at = 0; at < len;) {
        int columns;
        bool clean;
        size_t bytes = shown(text + at, len - at, &columns, &clean);
        if (used + (size_t)columns > room)
            break;
        if (clean)
            fwrite(text + at, 1, bytes, to);
        else
            fputc('?', to);
        used += (size_t)columns;
        at += bytes;
    }
    if (all > width && width > 0) {
        fputs("…", to);
        used++;
    }
    for (; fill && used < width; used++)
        fputc(' ', to);
}

bool weir__has_colour(FILE *to)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(to)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

size_t weir__columns(FILE *to)
{
    struct winsize size;
    if (!isatty(fileno(to)))
        return SIZE_MAX;
    return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
