/* A table for people: columns as wide as what is in them, cut where the terminal ends. */
#ifndef WEIR_CLI_TABLE_H
#define WEIR_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define WEIR__TABLE_COLUMNS 12

struct weir__column {
    const char *title;
    bool right;    /* numbers end where others begin */
    bool may_cut;  /* may be made narrower than what is in it */
    bool optional; /* left out if nothing is in it */
};

/* Set the first two, zero the rest. */
struct weir__text_table {
    const struct weir__column *columns;
    size_t column_count; /* at most WEIR__TABLE_COLUMNS */
    char **cells;
    size_t count, room;
    bool failed; /* no memory; printing says so */
};

/* Adds the next cell of the current row; NULL is empty. */
void weir__text_table_cell(struct weir__text_table *table, const char *text);
/* Title and rows, none if there is no row. False: there was no memory. */
bool weir__text_table_print(const struct weir__text_table *table, FILE *to);
void weir__text_table_free(struct weir__text_table *table);

#endif
