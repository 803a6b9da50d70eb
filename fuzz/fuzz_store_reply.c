/*
 * Replies of a store: any bytes pass through hiredis's reader, as in the client, in pieces or at once, and yield a
 * valid reply or an error with a name.
 */
#include "remote/script.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ASKS 4

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void make_asks(struct weir__store_op *ops, int count)
{
    static const weir_params params[ASKS] = {
        {.limit = 10, .window_ns = WEIR_SECOND, .id = 1},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WEIR_SECOND, .delay = true, .id = 2},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 4294967295, .window_ns = WEIR_DAY, .id = 3},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 65535, .window_ns = WEIR_DAY, .id = 4}};
    static const enum weir__store_op_kind kind[ASKS] = {WEIR__OP_TAKE, WEIR__OP_REFUND, WEIR__OP_EXCHANGE,
                                                        WEIR__OP_PEEK};
    for (int i = 0; i < count; i++) {
        ops[i] = (struct weir__store_op){.kind = kind[i], .cost = 1};
        check(weir_limit_init(&ops[i].limit, &params[i]) == 0);
    }
}

static void check_ask(const struct weir__store_op *op)
{
    const weir_decision *d = &op->decision;
    if (op->error) {
        check(op->error == WEIR_ESTOREWRONGTYPE || op->error == WEIR_ESTORECLOCK);
        return;
    }
    check(d->verdict <= WEIR_NEVER_FITS && d->limit == op->limit.hard && d->remaining <= d->limit);
    check(d->retry_after_ns >= -1 && d->delay_ns >= 0 && d->reset_after_ns >= 0 && op->at_us >= 0);
    check(!op->taken || weir_passes(d));
    check(!op->other_window || op->kind == WEIR__OP_EXCHANGE);
}

/* The same reply, to a lease of units. */
static void check_lease(const redisReply *reply)
{
    static struct weir__store_op op;
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = &op, .op_count = 1, .groups = &group, .group_count = 1};
    struct weir__group_ref ref = {&request, 0};
    make_asks(&op, 1);
    op.kind = WEIR__OP_LEASE;
    if (weir__script_read(reply, &ref, 1) != 0 || op.error)
        return;
    check(op.units.granted >= 0 && op.units.life_us >= 0 && op.units.life_us <= WEIR__UNITS_LIFE_US);
    check_ask(&op);
}

static void check_reply(const redisReply *reply)
{
    static struct weir__store_op ops[ASKS];
    struct weir__group groups[] = {{0, 1, false}, {1, 3, false}};
    struct weir__store_request request = {.ops = ops, .op_count = ASKS, .groups = groups, .group_count = 2};
    struct weir__group_ref refs[] = {{&request, 0}, {&request, 1}};
    if (reply->type == REDIS_REPLY_ERROR) {
        int error = weir__store_error(reply->str, reply->len);
        check((error <= WEIR_ESTOREURL && error >= WEIR_ESTORELIMIT) || error == WEIR_ESTOREDISK ||
              error == WEIR_ESTORECLIENTS);
    }
    check_lease(reply);
    for (size_t count = 1; count <= 2; count++) {
        make_asks(ops, ASKS);
        int error = weir__script_read(reply, refs, count);
        check(error == 0 || error == WEIR_ESTOREGARBAGE);
        for (int i = 0; !error && i < (count == 1 ? 1 : ASKS); i++)
            check_ask(&ops[i]);
    }
}

static void feed(const uint8_t *data, size_t size, size_t step)
{
    redisReader *reader = redisReaderCreate();
    check(reader != NULL);
    for (size_t at = 0; at < size; at += step) {
        void *reply = NULL;
        check(redisReaderFeed(reader, (const char *)data + at, size - at < step ? size - at : step) == REDIS_OK);
        while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
            check_reply(reply);
            freeReplyObject(reply);
            reply = NULL;
        }
        if (reader->err)
            break;
    }
    redisReaderFree(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    feed(data, size, size);
    feed(data, size, 1 + size / 3);
    return 0;
}
