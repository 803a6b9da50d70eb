/* Text for people. */
#define _GNU_SOURCE /* wcwidth */
#include "cli/text.h"

#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define SECOND_NS INT64_C(1000000000)

size_t weir__utf8_next(const char *data, size_t len, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = len ? (unsigned char)*data : 0xff;
    if (first < 0x80) {
        *point = first;
        return 1;
    }
    size_t bytes = first >= 0xf0 && first < 0xf5   ? 4
                   : first >= 0xe0 && first < 0xf0 ? 3
                   : first >= 0xc2 && first < 0xe0 ? 2
                                                   : 0;
    if (bytes == 0 || bytes > len)
        return 0;
    uint32_t value = first & (0x7fU >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        unsigned char next = (unsigned char)data[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *point = value;
    return bytes;
}

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
    size_t bytes = weir__utf8_next(text, left, &point);
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

const char *weir__seconds_text(int64_t ns, char *buffer)
{
    uint64_t size = ns < 0 ? (uint64_t)0 - (uint64_t)ns : (uint64_t)ns;
    int len = snprintf(buffer, WEIR__DURATION_TEXT, "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "", size / SECOND_NS,
                       size % SECOND_NS);
    while (buffer[len - 1] == '0')
        len--;
    if (buffer[len - 1] == '.')
        len--;
    buffer[len] = '\0';
    return buffer;
}

const char *weir__wait_text(int64_t ns, char *buffer)
{
    const int64_t millisecond = 1000000;
    int64_t rest = ns % millisecond;
    return weir__seconds_text(rest > 0 ? ns - rest + millisecond : ns, buffer);
}

const char *weir__window_text(int64_t ns, char *buffer)
{
    static const struct text_unit {
        const char *name;
        int64_t seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}};
    if (ns < SECOND_NS && ns % 1000000 == 0) {
        snprintf(buffer, WEIR__DURATION_TEXT, "%" PRId64 "ms", ns / 1000000);
        return buffer;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        int64_t unit = units[i].seconds * SECOND_NS;
        if (ns < unit || ns % unit != 0)
            continue;
        snprintf(buffer, WEIR__DURATION_TEXT, "%" PRId64 "%s", ns / unit, units[i].name);
        return buffer;
    }
    weir__seconds_text(ns, buffer);
    strncat(buffer, "s", WEIR__DURATION_TEXT - strlen(buffer) - 1);
    return buffer;
}

const char *weir__bytes_text(double bytes, char *buffer)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1000;
    snprintf(buffer, WEIR__DURATION_TEXT, bytes < 100 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return buffer;
}
