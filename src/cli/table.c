/* A table for people. */
#define _GNU_SOURCE /* strdup */
#include "cli/table.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 2, LEAST = 12 };

void weir__text_table_cell(struct weir__text_table *table, const char *text)
{
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        char **cells = realloc(table->cells, room * sizeof(char *));
        if (!cells) {
            table->failed = true;
            return;
        }
        table->cells = cells;
        table->room = room;
    }
    char *copy = strdup(text ? text : "");
    table->failed |= !copy;
    if (copy)
        table->cells[table->count++] = copy;
}

/* The width of each column; 0: it is left out. */
static void measure(const struct weir__text_table *table, size_t room, size_t *widths)
{
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = table->columns[c].optional ? 0 : weir__text_width(table->columns[c].title);
        for (size_t i = c; i < table->count; i += table->column_count) {
            size_t width = weir__text_width(table->cells[i]);
            if (width > widths[c])
                widths[c] = width;
        }
        if (table->columns[c].optional && widths[c] > 0 && widths[c] < weir__text_width(table->columns[c].title))
            widths[c] = weir__text_width(table->columns[c].title);
    }
    /* What is too wide for the terminal is taken from the widest of those that may be cut. */
    for (;;) {
        size_t all = 0, widest = SIZE_MAX;
        for (size_t c = 0; c < table->column_count; c++) {
            all += widths[c] ? widths[c] + GAP : 0;
            if (table->columns[c].may_cut && (widest == SIZE_MAX || widths[c] > widths[widest]))
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
    size_t owed = 0; /* blanks that are due before the next text; none at the end of the line */
    for (size_t c = 0; c < table->column_count; c++) {
        if (widths[c] == 0)
            continue;
        const char *text = row == SIZE_MAX ? table->columns[c].title : table->cells[row * table->column_count + c];
        size_t width = weir__text_width(text);
        if (width > widths[c])
            width = widths[c];
        if (table->columns[c].right)
            owed += widths[c] - width;
        if (width > 0)
            fprintf(to, "%*s", (int)owed, "");
        owed = width == 0 ? owed + widths[c] + GAP : (table->columns[c].right ? 0 : widths[c] - width) + GAP;
        weir__print_text(to, text, widths[c], false);
    }
    fputc('\n', to);
}

bool weir__text_table_print(const struct weir__text_table *table, FILE *to)
{
    size_t widths[WEIR__TABLE_COLUMNS];
    size_t rows = table->count / table->column_count;
    measure(table, weir__columns(to), widths);
    for (size_t i = 0; i <= rows && rows > 0; i++)
        print_row(table, to, widths, i - 1); /* first the titles */
    if (table->failed)
        fprintf(stderr, "weir: out of memory\n");
    return !table->failed;
}

void weir__text_table_free(struct weir__text_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
}
