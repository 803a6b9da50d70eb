/* Requests for tests of the client and of the blocking client. */
#ifndef WEIR_TEST_TEST_REQUEST_H
#define WEIR_TEST_TEST_REQUEST_H

#include "engine/store_request.h"

#include <stdio.h>
#include <string.h>

#define ASKED_MAX 512

/* A request with room for what it is about. */
struct asked {
    struct weir__store_request request;
    struct weir__store_op ops[ASKED_MAX];
    struct weir__group groups[ASKED_MAX];
};

static inline weir_limit asked_limit(int64_t limit, int64_t window_s)
{
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = limit, .window_ns = window_s * WEIR_SECOND};
    weir_limit made;

    if (weir_limit_init(&made, &params))
        memset(&made, 0, sizeof(made));
    return made;
}

static inline void asked_begin(struct asked *asked)
{
    memset(&asked->request, 0, sizeof(asked->request));
    asked->request.ops = asked->ops;
    asked->request.groups = asked->groups;
}

/* A new group. */
static inline void asked_group(struct asked *asked, bool after_first)
{
    asked->groups[asked->request.group_count++] =
        (struct weir__group){.first = asked->request.op_count, .after_first = after_first};
}

/* One more op in the last group. */
static inline struct weir__store_op *asked_add(struct asked *asked, const char *name, enum weir__store_op_kind kind,
                                               int64_t cost, weir_limit limit)
{
    struct weir__store_op *op = &asked->ops[asked->request.op_count++];

    memset(op, 0, sizeof(*op));
    op->limit = limit;
    op->kind = kind;
    op->cost = cost;
    op->name_len = (uint16_t)snprintf(op->name, sizeof(op->name), "%s", name);
    asked->groups[asked->request.group_count - 1].count++;
    return op;
}

/* One take of one counter. */
static inline void asked_one(struct asked *asked, const char *name, int64_t cost, weir_limit limit)
{
    asked_begin(asked);
    asked_group(asked, false);
    asked_add(asked, name, WEIR__OP_TAKE, cost, limit);
}

#endif
