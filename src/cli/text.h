/* Output: text on a terminal without control characters, tables, colours; JSON. */
#ifndef WEIR_CLI_TEXT_H
#define WEIR_CLI_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A character as it is printed: '?' for one that would move the cursor, and for a byte that is not UTF-8. */
struct weir__shown {
    size_t taken;      /* bytes of the source */
    const char *text;  /* to print */
    size_t len, width; /* its bytes, and its columns on a terminal */
};
struct weir__shown weir__shown_next(const char *text, size_t left);

/* Prints a text by such characters. */
void weir__print_text(FILE *to, const char *text);
/* Prints formatted text like that, and a line break. */
void weir__print_line(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if `to` is a terminal, and NO_COLOR is not set. */
bool weir__has_colour(FILE *to);

/* ---- Tables ---- */

#define WEIR__TABLE_COLUMNS 12

enum {
    WEIR__RIGHT = 1,   /* aligned to the right: numbers */
    WEIR__CUT = 2,     /* may be cut to fit the terminal */
    WEIR__OPTIONAL = 4 /* left out if it is empty in all rows */
};

struct weir__column {
    const char *title;
    unsigned flags;

    /* For weir__print_items: */
    const char *member;
    /* Formats the member into a buffer of WEIR__ITEM_CELL bytes, or returns another text. NULL: the member is text. */
    const char *(*format)(const json_t *item, const char *member, char *buffer);
};
enum { WEIR__ITEM_CELL = 256 };

/* Set the first two, zero the rest. */
struct weir__text_table {
    const struct weir__column *columns;
    size_t column_count; /* at most WEIR__TABLE_COLUMNS */
    const char **cells;
    size_t count;
};

/* Adds the next cell of the current row; NULL is empty. */
void weir__text_table_cell(struct weir__text_table *table, const char *text);
/* Prints titles and rows, or nothing if there are no rows, and frees the table. */
void weir__text_table_print(struct weir__text_table *table, FILE *to);

/* ---- Progress ---- */

/*
 * On a terminal, a line on standard error: what is done, how much of it, and how long it still takes. Call it for each
 * of `all` items, with `done` from 0 on, and at the end with `done` equal to `all`, which clears the line.
 */
void weir__progress(const char *what, size_t done, size_t all);

/* ---- JSON ---- */

#define WEIR__JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(15))

/* A text, in which U+FFFD replaces bytes that are not UTF-8; NULL is null. */
json_t *weir__json_of_text(const char *text);
/* Nanoseconds as seconds; negative: null. */
json_t *weir__json_of_seconds(int64_t ns);
/* Prints a value as one line of JSON, and takes it over. False after an error. */
bool weir__print_json(json_t *value);

#endif
