/* Text for people: what a terminal makes of it, and numbers as one says them. */
#ifndef WEIR_CLI_TEXT_H
#define WEIR_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Columns that a terminal gives a character: 0 to 2. What cannot be shown is shown as one '?'. */
int weir__point_width(uint32_t point);

/* Columns of a text as weir__print_text prints it: what would move the cursor is one '?' each. */
size_t weir__text_width(const char *text);
/* Prints at most `width` columns, with "…" for what is cut, and fills up with blanks if `fill`. */
void weir__print_text(FILE *to, const char *text, size_t width, bool fill);

/* True if `to` is a terminal on which NO_COLOR does not forbid colours. */
bool weir__has_colour(FILE *to);
/* Columns of the terminal that `to` is; SIZE_MAX if it is none. */
size_t weir__columns(FILE *to);

#endif
