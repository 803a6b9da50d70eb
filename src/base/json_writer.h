/* Writing JSON: strings and numbers into memory or a buffer, and whole documents to a stream. */
#ifndef WEIR_BASE_JSON_WRITER_H
#define WEIR_BASE_JSON_WRITER_H

#include "base/buffer.h"
#include "base/text.h"

#include <stdio.h>

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

/* ---- To a stream ---- */

/* A document: the writer adds commas and escapes. */
struct weir__json {
    FILE *to;
    uint64_t filled; /* bit n: the container at depth n has a member */
    int depth;       /* at most 63 */
};

/* `name` is the member's in an object, NULL in a list. */
void weir__json_open(struct weir__json *json, const char *name, char bracket);
void weir__json_close(struct weir__json *json, char bracket);
/* NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void weir__json_text(struct weir__json *json, const char *name, const char *text);
void weir__json_bytes(struct weir__json *json, const char *name, const char *data, size_t len);
void weir__json_int(struct weir__json *json, const char *name, int64_t value);
void weir__json_bool(struct weir__json *json, const char *name, bool value);
/* JSON that is written already. */
void weir__json_raw(struct weir__json *json, const char *name, const char *text);
/* Nanoseconds as seconds, exactly; negative: null. */
void weir__json_seconds(struct weir__json *json, const char *name, int64_t ns);

#endif
