/* A private Redis with the script loaded, and functions that run it. */
#ifndef WEIR_TEST_STORE_SERVER_H
#define WEIR_TEST_STORE_SERVER_H

#include "../../redis.h"
#include "remote/script.h"

/* False, after printing SKIP: this machine has no server. */
static bool server_start(void)
{
    if (server.context)
        return true;
    if (!server_begin())
        return false;
    redisReply *reply = redisCommand(server.context, "SCRIPT LOAD %s", weir__script);
    CHECK(reply && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, weir__script_sha) == 0);
    if (reply && reply->type == REDIS_REPLY_ERROR)
        printf("  %s\n", reply->str);
    freeReplyObject(reply);
    return true;
}

/* When an exchange was sent, by the server's clock; 0: unknown. */
static int64_t server_sent_us;

/* Runs the script once; returns 0 or the error. */
static inline int server_run_groups(const struct weir__group_ref *refs, size_t count, const char *sender,
                                    uint64_t batch)
{
    static struct weir__buffer buffer;
    void *reply = NULL;
    buffer.len = 0;
    struct weir__exchange_sender sending = {.key = sender, .batch = batch, .clock_us = server_sent_us};
    weir__script_call(&buffer, refs, count,
                      refs[0].request->ops[0].kind == WEIR__OP_EXCHANGE || sender ? &sending : NULL);
    if (buffer.failed || redisAppendFormattedCommand(server.context, buffer.data, buffer.len) != REDIS_OK ||
        redisGetReply(server.context, &reply) != REDIS_OK)
        return WEIR_ESTOREDOWN;
    redisReply *redis_reply = reply;
    int error = redis_reply->type == REDIS_REPLY_ERROR ? weir__store_error(redis_reply->str, redis_reply->len)
                                                       : weir__script_read(redis_reply, refs, count);
    if (redis_reply->type == REDIS_REPLY_ERROR)
        printf("  %s\n", redis_reply->str);
    freeReplyObject(redis_reply);
    return error;
}

/* Runs a request with all its groups in one call. */
static inline int server_run(struct weir__store_request *request)
{
    struct weir__group_ref refs[WEIR__BATCH_GROUPS];
    for (uint32_t i = 0; i < request->group_count; i++)
        refs[i] = (struct weir__group_ref){request, i};
    return server_run_groups(refs, request->group_count, request->sender, request->batch);
}

static inline void op_set_name(struct weir__store_op *op, const char *name)
{
    op->name_len = (uint16_t)strlen(name);
    memcpy(op->name, name, op->name_len + 1U);
}

/* Runs an op on one counter. */
static inline int server_one(struct weir__store_op *op)
{
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = op, .op_count = 1, .groups = &group, .group_count = 1};
    return server_run(&request);
}

#endif
