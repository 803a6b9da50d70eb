/*
 * What a store sends: any bytes go through hiredis's reader, as they do in the client, in pieces or at once; whatever
 * comes out is an answer that makes sense, or an error with a name.
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

static void make_asks(struct weir__ask *asks)
{
    static const weir_params params[ASKS] = {
        {.limit = 10, .window_ns = WEIR_SECOND, .id = 1},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WEIR_SECOND, .delay = true, .id = 2},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 4294967295, .window_ns = WEIR_DAY, .id = 3},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 65535, .window_ns = WEIR_DAY, .id = 4}};
    static const enum weir__ask_how how[ASKS] = {WEIR__ASK_TAKE, WEIR__ASK_REFUND, WEIR__ASK_EXCHANGE, WEIR__ASK_PEEK};
    for (int i = 0; i < ASKS; i++) {
        asks[i] = (struct weir__ask){.how = how[i], .cost = 1};
        check(weir_limit_init(&asks[i].limit, &params[i]) == 0);
    }
}

static void check_ask(const struct weir__ask *ask)
{
    const weir_decision *d = &ask->decision;
    if (ask->error) {
        check(ask->error == WEIR_ESTOREWRONGTYPE || ask->error == WEIR_ESTORECLOCK);
        return;
    }
    check(d->verdict <= WEIR_NEVER_FITS && d->limit == ask->limit.hard && d->remaining <= d->limit);
    check(d->retry_after_ns >= -1 && d->delay_ns >= 0 && d->reset_after_ns >= 0 && ask->at_us >= 0);
    check(!ask->taken || weir_passes(d));
    check(!ask->other_window || ask->how == WEIR__ASK_EXCHANGE);
}

static void check_reply(const redisReply *reply)
{
    static struct weir__ask asks[ASKS];
    struct weir__group groups[] = {{0, 1, false}, {1, 3, false}};
    struct weir__question question = {.asks = asks, .ask_count = ASKS, .groups = groups, .group_count = 2};
    struct weir__batch_part parts[] = {{&question, 0}, {&question, 1}};
    if (reply->type == REDIS_REPLY_ERROR) {
        int error = weir__store_error(reply->str, reply->len);
        check((error <= WEIR_ESTOREURL && error >= WEIR_ESTORELIMIT) || error == WEIR_ESTOREDISK ||
              error == WEIR_ESTORECLIENTS);
    }
    for (size_t count = 1; count <= 2; count++) {
        make_asks(asks);
        int error = weir__script_read(reply, parts, count);
        check(error == 0 || error == WEIR_ESTOREGARBAGE);
        for (int i = 0; !error && i < (count == 1 ? 1 : ASKS); i++)
            check_ask(&asks[i]);
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
