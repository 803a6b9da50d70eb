/* Requests for tests of the client and of the blocking client. */
#ifndef WEIR_TEST_TEST_REQUEST_H
#define WEIR_TEST_TEST_REQUEST_H

#include "engine/store_request.h"

#include <stdio.h>
#include <string.h>

#define OPS_MAX 512

/* A request with room for its ops and groups. */
struct request_storage {
    struct weir__store_request request;
    struct weir__store_op ops[OPS_MAX];
    struct weir__group groups[OPS_MAX];
};

static inline weir_limit token_bucket(int64_t limit, int64_t window_s)
{
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = limit, .window_ns = window_s * WEIR_SECOND};
    weir_limit made;

    if (weir_limit_init(&made, &params))
        memset(&made, 0, sizeof(made));
    return made;
}

static inline void request_begin(struct request_storage *request_storage)
{
    memset(&request_storage->request, 0, sizeof(request_storage->request));
    request_storage->request.ops = request_storage->ops;
    request_storage->request.groups = request_storage->groups;
}

/* Adds a group. */
static inline void request_add_group(struct request_storage *request_storage, bool after_first)
{
    request_storage->groups[request_storage->request.group_count++] =
        (struct weir__group){.first = request_storage->request.op_count, .after_first = after_first};
}

/* Adds an op to the last group. */
static inline struct weir__store_op *request_add_op(struct request_storage *request_storage, const char *name,
                                                    enum weir__store_op_kind kind, int64_t cost, weir_limit limit)
{
    struct weir__store_op *op = &request_storage->ops[request_storage->request.op_count++];

    memset(op, 0, sizeof(*op));
    op->limit = limit;
    op->kind = kind;
    op->cost = cost;
    op->name_len = (uint16_t)snprintf(op->name, sizeof(op->name), "%s", name);
    request_storage->groups[request_storage->request.group_count - 1].count++;
    return op;
}

/* A request that takes from one counter. */
static inline void request_take(struct request_storage *request_storage, const char *name, int64_t cost,
                                weir_limit limit)
{
    request_begin(request_storage);
    request_add_group(request_storage, false);
    request_add_op(request_storage, name, WEIR__OP_TAKE, cost, limit);
}

#endif
