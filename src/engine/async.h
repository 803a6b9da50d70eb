/* What checks want from the store, gathered; and which of it they have used. See <weir/store.h>. */
#ifndef WEIR_ENGINE_ASYNC_H
#define WEIR_ENGINE_ASYNC_H

#include <weir/store.h>

#include "remote/request.h"

#define WEIR__ASYNC_OPS_MAX 65536 /* counters of one request */

enum weir__op_outcome { WEIR__OP_UNREAD, WEIR__OP_READ, WEIR__OP_KEPT };

struct weir_ask {
    weir *engine;
    struct weir__store_request request;
    struct weir__store_request back; /* what is given back, in the same memory: by then the request is over */
    uint8_t *outcome;                /* by ask, enum weir__op_outcome */
    uint32_t room;                   /* for asks and for groups */
    uint32_t next;    /* where to look for the next one: checks come in the order of their preparations */
    uint64_t dice;    /* 0: not thrown. What is shed when it is prepared is shed when it is decided; */
    uint32_t shed[4]; /* by these shares; see overload.h */
    uint32_t refused; /* counters that were not asked for, since the request was denied without */
};

/* Room for so many more counters. */
int weir__async_reserve(weir_ask *ask, size_t more);
/* The next free counter, cleared, in the newest group or in a new one. There must be room. */
struct weir__store_op *weir__async_add(weir_ask *ask, bool new_group, bool after_first);
/* The answer for a counter that was asked for just so, which is used then; NULL: there is none (any more). */
struct weir__store_op *weir__async_find(weir_ask *ask, const struct weir__store_op *like);
/* Why there is no answer to it or to its group; 0: there is one. */
int weir__async_error(const weir_ask *ask, const struct weir__store_op *of);
/* What it took stays taken. */
void weir__async_keep(weir_ask *ask, const struct weir__store_op *of);

#endif
