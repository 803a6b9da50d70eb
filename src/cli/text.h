/* Text for people: what a terminal makes of it, and numbers as one says them. */
#ifndef WEIR_CLI_TEXT_H
#define WEIR_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The first character of a text: its length in bytes, 0 if it is not UTF-8. */
size_t weir__utf8_next(const char *data, size_t len, uint32_t *point);
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

enum { WEIR__DURATION_TEXT = 40 };

/* Seconds without trailing zeros: "1.25". Into a buffer of WEIR__DURATION_TEXT bytes, as are the next ones. */
const char *weir__seconds_text(int64_t ns, char *buffer);
/* The same for people: no finer than a millisecond, rounded up. */
const char *weir__wait_text(int64_t ns, char *buffer);
/* As a rule would write it: "500ms", "30s", "1h". */
const char *weir__window_text(int64_t ns, char *buffer);
/* "17.8 MB" */
const char *weir__bytes_text(double bytes, char *buffer);

#endif
