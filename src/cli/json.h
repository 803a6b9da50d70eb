/* A small JSON writer: commas and escapes are its business, the order of the calls is the caller's. */
#ifndef WEIR_CLI_JSON_H
#define WEIR_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
