/* How the script and the library number things, and how numbers are written for it: as MessagePack. */
#ifndef WEIR_REMOTE_MSGPACK_H
#define WEIR_REMOTE_MSGPACK_H

#include "remote/script.h"

#define WEIR__EXACT_MAX (INT64_C(1) << 52) /* beyond it the script's doubles would round */

/* Kinds of limits: the functions of lua/. */
enum {
    WEIR__KIND_BUCKET = 1,
    WEIR__KIND_INTERVAL,
    WEIR__KIND_WINDOW,
    WEIR__KIND_COUNTER_2,
    WEIR__KIND_COUNTER_N,
    WEIR__KIND_LOG,
    WEIR__KIND_FLIGHT
};

/* A counter's code: the verdict in the lowest three bits, and these. */
enum { WEIR__CODE_SOFT = 8, WEIR__CODE_TAKEN = 16, WEIR__CODE_OVER = 32, WEIR__CODE_AHEAD = 64, WEIR__CODE_END = 128 };

/* Appends one number. */
void weir__number_add(struct weir__buffer *to, int64_t number);

#endif
