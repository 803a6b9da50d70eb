/* Lines of weir top. See top_internal.h. */
#include "stats/top_internal.h"

#include <stdarg.h>

void weir__top_cut(FILE *to, const char *line, int width)
{
    int columns = 0;
    for (const char *c = line; *c; c++) {
        columns += ((unsigned char)*c & 0xc0) != 0x80;
        if (columns > width)
            break;
        fputc(*c, to);
    }
}

void weir__top_line(struct weir__canvas *canvas, const char *style, const char *format, ...)
{
    char text[1024];
    va_list args;
    const struct weir__top_screen *screen = canvas->screen;
    if (screen->height && canvas->line >= screen->height)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool styled = *style && !screen->plain;
    if (canvas->line++ && !screen->plain)
        fputs("\r\n", screen->to);
    if (styled)
        fprintf(screen->to, "\033[%sm", style);
    weir__top_cut(screen->to, text, screen->width);
    if (styled)
        fputs("\033[0m", screen->to);
    fputs(screen->plain ? "\n" : "\033[K", screen->to);
}

const char *weir__top_number(double value, char buffer[16])
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (value >= 99999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    if (unit)
        snprintf(buffer, 16, "%.*f%c", value < 999.5 ? 1 : 0, value, units[unit]);
    else
        snprintf(buffer, 16, "%.*f", value > 0 && value < 99.95 ? 1 : 0, value);
    return buffer;
}
