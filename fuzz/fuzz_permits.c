/*
 * Leases as texts from any client: parsing one accesses no memory outside of it, yields only counters of this store,
 * and the result can be sent, refunded and formatted again.
 */
#include <weir/store.h>

#include "engine/permits.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX 3474
#define PREFIX    "weir:"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static weir *engine_once(weir_async **op)
{
    static weir *engine;
    static weir_async *own;
    if (!engine) {
        weir_options how = {.segment = {.size = 1 << 20},
                            .rules_text = "rules:\n  - { name: a, algorithm: concurrency, limit: 1 }\n",
                            .store = "redis://127.0.0.1:1",
                            .flags = WEIR_NO_CONNECT};
        check(weir_open(&how, &engine) == 0 && weir_async_new(engine, &own) == 0);
    }
    *op = own;
    return engine;
}

static size_t encode(const uint8_t *data, size_t size, char *to)
{
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = 0;
    for (size_t bit = 0; bit < 8 * size; bit += 6) {
        unsigned pair = (unsigned)data[bit / 8] << 8 | (bit / 8 + 1 < size ? data[bit / 8 + 1] : 0U);
        to[len++] = signs[pair >> (10 - bit % 8) & 63];
    }
    return len;
}

static void check_request(const struct weir__store_request *request)
{
    for (uint32_t i = 0; i < request->op_count; i++) {
        const struct weir__store_op *op = &request->ops[i];
        check(op->name_len > sizeof PREFIX - 1 && op->name_len <= WEIR__STORE_NAME_MAX &&
              memcmp(op->name, PREFIX, sizeof PREFIX - 1) == 0);
        check(op->lease[0] >> 52 == 0 && op->lease[1] >> 52 == 0 && op->limit.window_us > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[WEIR_PERMITS_TEXT_MAX + 64], again[WEIR_PERMITS_TEXT_MAX + 1];
    weir_async *op;
    weir *engine = engine_once(&op);
    weir_permits permits, copy;
    if (size > BYTES_MAX)
        return 0;
    size_t len = encode(data, size, text);
    if (weir_permits_from_text(engine, (weir_text){text, len}, &permits) != 0)
        return 0;
    check(permits.count > 0 && permits.count <= WEIR_PERMITS_MAX && permits.names_len <= WEIR_PERMITS_NAMES_MAX &&
          permits.lease_ns > 0);
    check(weir_permits_renew_begin(engine, &permits, false, op) == 1);
    check_request(weir_async_request(op));
    check(weir_permits_renew_finish(engine, &permits, true, op) == WEIR_ESTOREBREAKER &&
          permits.count > 0); /* no request was sent */
    weir_async_clear(op);
    size_t written = weir_permits_to_text(engine, &permits, again);
    check(written > 0 && weir_permits_from_text(engine, (weir_text){again, written}, &copy) == 0);
    check(copy.count == permits.count);
    check(weir_permits_release_detached(engine, &permits, op) == 0 && permits.count == 0);
    struct weir__store_request *back = weir_async_rollback(op);
    check(back && back->op_count == copy.count);
    check_request(back);
    weir_async_clear(op);
    return 0;
}
