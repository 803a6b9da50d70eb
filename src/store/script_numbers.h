/*
 * Arrays of whole numbers as the script and the library exchange them: MessagePack, of which nothing but one array and
 * integers is used. And how the script and the library number things.
 */
#ifndef WEIR_STORE_SCRIPT_NUMBERS_H
#define WEIR_STORE_SCRIPT_NUMBERS_H

#include "store/script.h"

#define WEIR__EXACT_MAX (INT64_C(1) << 52) /* beyond it the script's doubles would round */

/* Kinds of limits: the functions of lua/. */
enum {
    WEIR__KIND_BUCKET = 1,
    WEIR__KIND_INTERVAL,
    WEIR__KIND_WINDOW_FIRST,
    WEIR__KIND_WINDOW_CLOCK,
    WEIR__KIND_WINDOW_CALENDAR,
    WEIR__KIND_COUNTER_2,
    WEIR__KIND_COUNTER_N,
    WEIR__KIND_LOG
};

/* A counter's code: the verdict in the lowest three bits, and these. */
enum { WEIR__CODE_SOFT = 8, WEIR__CODE_TAKEN = 16, WEIR__CODE_OVER = 32, WEIR__CODE_AHEAD = 64, WEIR__CODE_END = 128 };

/* Appends one number. */
void weir__number_add(struct weir__buffer *to, int64_t number);

struct weir__numbers {
    const unsigned char *at, *end;
    bool broken; /* what was read is none, and nothing more is read */
};

/* The number of elements of the array that begins here. */
uint32_t weir__numbers_begin(struct weir__numbers *from);
/* The next number, which must lie within the bounds. */
int64_t weir__number_read(struct weir__numbers *from, int64_t least, int64_t most);

#endif
