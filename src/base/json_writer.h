/* Writing JSON: strings and numbers into memory or a buffer. */
#ifndef WEIR_BASE_JSON_WRITER_H
#define WEIR_BASE_JSON_WRITER_H

#include "base/buffer.h"
#include "base/text.h"

/* ---- Into memory ---- */

#define WEIR__JSON_STRING_MAX(len) (6 * (len) + 2)
#define WEIR__JSON_SECONDS_MAX     24
/*
 * A string with its quotes, cut between two characters if it needs more than `room` bytes, which are at least 2. Bytes
 * that are not UTF-8 become U+FFFD. Returns its end.
 */
char *weir__json_put_string(char *to, size_t room, weir_text text);
/* Nanoseconds as seconds with at most three decimals, rounded up; negative: null. Returns its end. */
char *weir__json_put_seconds(char *to, int64_t ns);

/* ---- At the end of a buffer ---- */

void weir__json_add_string(struct weir__buffer *to, weir_text text);
/*
 * JSON as text, in which these stand for values: %t a weir_text as a string; %s a const char * as a string, null if it
 * is NULL or empty; %d an int64_t; %b a bool; %n an int64_t of nanoseconds as weir__json_put_seconds writes them.
 */
void weir__json_add(struct weir__buffer *to, const char *format, ...);

#endif
