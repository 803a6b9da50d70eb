/*
 * Asynchronous checks: the store ops of one or more checks, gathered into a request, and which replies were used. See
 * <weir/store.h>.
 */
#ifndef WEIR_ENGINE_ASYNC_H
#define WEIR_ENGINE_ASYNC_H

#include <weir/store.h>

#include "engine/store_request.h"

#define WEIR__ASYNC_OPS_MAX 65536 /* of one request */

enum weir__op_outcome { WEIR__OP_UNREAD, WEIR__OP_READ, WEIR__OP_KEPT };

struct weir_async {
    weir *engine;
    struct weir__store_request request;
    struct weir__store_request back; /* refunds, in the memory of the request, which is complete by then */
    uint8_t *outcome;                /* by op, enum weir__op_outcome */
    uint32_t room;                   /* capacity, of ops and of groups */
    uint32_t next;    /* where the search for the next reply starts: checks come in the order of their preparation */
    uint64_t dice;    /* 0: not drawn. The draw of the preparation also decides what is shed in the check; */
    uint32_t shed[4]; /* by these shares; see overload.h */
    uint32_t skipped_in_prepare; /* ops that were not added, since the request is denied without them */
};

/* Ensures capacity for so many more ops. */
int weir__async_reserve(weir_async *async, size_t more);
/* The next op, zeroed, in the current group or in a new one. Capacity must have been reserved. */
struct weir__store_op *weir__async_add(weir_async *async, bool new_group, bool after_first);
/* The unread reply to an op of the same kind, cost and name, which is marked as read; NULL: none. */
struct weir__store_op *weir__async_find(weir_async *async, const struct weir__store_op *like);
/* The error of the op or of its group; 0: it has a reply. */
int weir__async_error(const weir_async *async, const struct weir__store_op *of);
/* What the op took is not refunded. */
void weir__async_keep(weir_async *async, const struct weir__store_op *of);

#endif
