/* Text on a terminal. See text.h. */
#include "cli/text.h"
#include "base/clock.h"
#include "base/buffer.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "cli/cli.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

/* Characters that move the cursor, end the line or change the direction of text. */
static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
           (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/* Columns of a character on a terminal: 0 to 2. */
static size_t point_width(uint32_t point)
{
    static bool locale_set;
    if (!locale_set) { /* wcwidth needs a UTF-8 locale; nothing else here depends on it */
        locale_set = true;
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
    int width = wcwidth((wchar_t)point);
    return width < 0 ? 1 : (size_t)width;
}

struct weir__shown weir__shown_next(const char *text, size_t left)
{
    uint32_t point = 0;
    size_t bytes = weir__utf8_decode(text, left, &point);
    if (bytes > 0 && !is_control(point))
        return (struct weir__shown){bytes, text, bytes, point_width(point)};
    return (struct weir__shown){bytes ? bytes : 1, "?", 1, 1};
}

static size_t text_width(const char *text)
{
    size_t columns = 0, len = strlen(text);
    for (size_t at = 0; at < len;) {
        struct weir__shown next = weir__shown_next(text + at, len - at);
        at += next.taken;
        columns += next.width;
    }
    return columns;
}

/* Prints at most `width` columns, with "…" at the end of a text that is cut. */
static void print_cut(FILE *to, const char *text, size_t width)
{
    size_t len = strlen(text), used = 0;
    bool cut = width > 0 && text_width(text) > width;
    for (size_t at = 0; at < len;) {
        struct weir__shown next = weir__shown_next(text + at, len - at);
        if (used + next.width > (cut ? width - 1 : width))
            break;
        fwrite(next.text, 1, next.len, to);
        used += next.width;
        at += next.taken;
    }
    fputs(cut ? "…" : "", to);
}

void weir__print_text(FILE *to, const char *text)
{
    print_cut(to, text, SIZE_MAX);
}

void weir__print_line(FILE *to, const char *format, ...)
{
    struct weir__buffer line = {0};
    va_list arguments;
    va_start(arguments, format);
    weir__buffer_vprintf(&line, format, arguments);
    va_end(arguments);
    weir__print_text(to, weir__buffer_text(&line));
    fputc('\n', to);
    weir__buffer_free(&line);
}

bool weir__has_colour(FILE *to)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(to)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* ---- Tables ---- */

enum { GAP = 2, LEAST = 12 };

/* Columns of the terminal that `to` is; SIZE_MAX if it is not a terminal. */
static size_t terminal_width(FILE *to)
{
    struct winsize size;
    if (!isatty(fileno(to)))
        return SIZE_MAX;
    return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void weir__text_table_cell(struct weir__text_table *table, const char *text)
{
    table->cells = weir__grow(table->cells, table->count, sizeof *table->cells);
    table->cells[table->count++] = weir__format("%s", text ? text : "");
}

/* The width of each column; 0: it is left out. */
static void measure(const struct weir__text_table *table, size_t room, size_t *widths)
{
    for (size_t c = 0; c < table->column_count; c++) {
        size_t title = text_width(table->columns[c].title);
        widths[c] = table->columns[c].flags & WEIR__OPTIONAL ? 0 : title;
        for (size_t i = c; i < table->count; i += table->column_count) {
            size_t width = text_width(table->cells[i]);
            if (width > widths[c])
                widths[c] = width;
        }
        if (widths[c] > 0 && widths[c] < title)
            widths[c] = title;
    }
    /* A table that is too wide for the terminal: narrows the widest of the columns that may be cut. */
    for (;;) {
        size_t all = 0, widest = SIZE_MAX;
        for (size_t c = 0; c < table->column_count; c++) {
            all += widths[c] ? widths[c] + GAP : 0;
            if ((table->columns[c].flags & WEIR__CUT) && (widest == SIZE_MAX || widths[c] > widths[widest]))
                widest = c;
        }
        if (all <= GAP || all - GAP <= room || widest == SIZE_MAX || widths[widest] <= LEAST)
            return;
        widths[widest]--;
    }
}

/* Row number `row`; SIZE_MAX: the titles. */
static void print_row(const struct weir__text_table *table, FILE *to, const size_t *widths, size_t row)
{
    size_t owed = 0; /* blanks before the next text; the end of a line has none */
    for (size_t c = 0; c < table->column_count; c++) {
        if (widths[c] == 0)
            continue;
        const char *text = row == SIZE_MAX ? table->columns[c].title : table->cells[row * table->column_count + c];
        size_t width = text_width(text);
        if (width > widths[c])
            width = widths[c];
        if (table->columns[c].flags & WEIR__RIGHT)
            owed += widths[c] - width;
        if (width > 0)
            fprintf(to, "%*s", (int)owed, "");
        owed =
            width == 0 ? owed + widths[c] + GAP : (table->columns[c].flags & WEIR__RIGHT ? 0 : widths[c] - width) + GAP;
        print_cut(to, text, widths[c]);
    }
    fputc('\n', to);
}

void weir__text_table_print(struct weir__text_table *table, FILE *to)
{
    size_t widths[WEIR__TABLE_COLUMNS];
    size_t rows = table->count / table->column_count;
    measure(table, terminal_width(to), widths);
    for (size_t i = 0; i <= rows && rows > 0; i++)
        print_row(table, to, widths, i - 1); /* first the titles */
    free(table->cells);
}

/* ---- Progress ---- */

void weir__progress(const char *what, size_t done, size_t all)
{
    enum { FIRST_MS = 1000, EVERY_MS = 200 };
    static int64_t began_ms, shown_ms;
    int64_t now_ms = weir__monotonic_ms();
    if (done == 0) {
        began_ms = now_ms;
        shown_ms = now_ms + FIRST_MS - EVERY_MS; /* short work shows none */
    }
    if (done < all && done > 0 && now_ms - shown_ms >= EVERY_MS && isatty(STDERR_FILENO)) {
        shown_ms = now_ms;
        fprintf(stderr, "\033[K%s: %zu of %zu, about %lld s left\r", what, done, all,
                (long long)((now_ms - began_ms) * (int64_t)(all - done) / (int64_t)done / 1000));
    } else if (done == all && shown_ms > began_ms + FIRST_MS - EVERY_MS) {
        fputs("\033[K", stderr);
    }
}

/* ---- JSON ---- */

json_t *weir__json_of_text(const char *text)
{
    struct weir__buffer string = {0};
    if (!text)
        return json_null();
    weir__json_add_string(&string, weir__text_of(text));
    json_t *json = json_loadb(weir__must(string.data), string.len, JSON_DECODE_ANY, NULL);
    weir__buffer_free(&string);
    return json;
}

json_t *weir__json_of_seconds(int64_t ns)
{
    char text[WEIR__DURATION_TEXT];
    if (ns < 0)
        return json_null();
    return ns % WEIR_SECOND ? json_real(strtod(weir__seconds_text(ns, text), NULL)) : json_integer(ns / WEIR_SECOND);
}

bool weir__print_json(json_t *value)
{
    bool good = json_dumpf(weir__must(value), stdout, WEIR__JSON_FORM) == 0;
    json_decref(value);
    putchar('\n');
    return good;
}
