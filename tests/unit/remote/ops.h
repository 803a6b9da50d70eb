/* Short constructors of limits and ops, for tests with a server. */
#ifndef WEIR_TEST_OPS_H
#define WEIR_TEST_OPS_H

#include "server.h"

#define SECOND INT64_C(1000000)

static inline weir_limit made(weir_params params)
{
    weir_limit limit;
    params.id = 1;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static inline struct weir__store_op make_op(weir_limit limit, const char *name, enum weir__store_op_kind kind,
                                            int64_t cost)
{
    struct weir__store_op op = {.limit = limit, .kind = kind, .cost = cost};
    op_set_name(&op, name);
    return op;
}

static inline weir_limit slow(int64_t limit)
{
    return made((weir_params){.limit = limit, .window_ns = 3600 * WEIR_SECOND});
}

static inline weir_limit logged(int64_t limit, bool count_rejected)
{
    return made((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG,
                              .limit = limit,
                              .window_ns = 3600 * WEIR_SECOND,
                              .count_rejected = count_rejected});
}

/* The remaining units of a counter. */
static inline int64_t left(weir_limit limit, const char *name)
{
    struct weir__store_op op = make_op(limit, name, WEIR__OP_PEEK, 0);
    CHECK_EQ(server_one(&op), 0);
    CHECK_EQ(op.error, 0);
    return op.decision.remaining;
}

static inline int64_t number_of(const char *command)
{
    redisReply *reply = server_reply(command);
    int64_t number = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1000;
    freeReplyObject(reply);
    return number;
}

static inline bool begin(void)
{
    if (!server_start())
        return false;
    server_do("FLUSHALL");
    return true;
}

#endif
