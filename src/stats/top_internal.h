/* What the files that draw weir top share. */
#ifndef WEIR_STATS_TOP_INTERNAL_H
#define WEIR_STATS_TOP_INTERNAL_H

#include "stats/top.h"

/* A screen while it is drawn. */
struct weir__canvas {
    const struct weir__top_screen *screen;
    int line; /* that comes next */
};

/* As many characters of UTF-8 as fit; whoever made the line has seen to it that they are printable. */
void weir__top_cut(FILE *to, const char *line, int width);
/* One line, cut at the width; `style` is an SGR sequence or "". What does not fit on the screen is left out. */
void weir__top_line(struct weir__canvas *canvas, const char *style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "12345", "1.23M": six columns at the most. */
const char *weir__top_number(double value, char buffer[16]);

/* The list of hosts; `space` lines for them, 0: as many as there are. */
void weir__top_hosts(struct weir__top *top, struct weir__canvas *canvas, size_t space);
/* What is to be said of all of them, in one line; nothing if this one is alone. */
void weir__top_membership(const struct weir__top *top, struct weir__canvas *canvas);

#endif
