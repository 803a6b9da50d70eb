/*
 * Leases as texts that anybody may send: whatever is read leads nowhere outside, names only counters of this store, and
 * can be asked, given back and written again.
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

static weir *engine_once(weir_ask **op)
{
    static weir *engine;
    static weir_ask *own;
    if (!engine) {
        weir_options how = {.segment = {.size = 1 << 20},
                            .rules_text = "rules:\n  - { name: a, algorithm: concurrency, limit: 1 }\n",
                            .store = "redis://127.0.0.1:1",
                            .flags = WEIR_NO_LINK};
        check(weir_open(&how, &engine) == 0 && weir_ask_new(engine, &own) == 0);
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

static void check_question(const struct weir__store_request *request)
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
    static char text[WEIR_HELD_TEXT_MAX + 64], again[WEIR_HELD_TEXT_MAX + 1];
    weir_ask *op;
    weir *engine = engine_once(&op);
    weir_held held, copy;
    if (size > BYTES_MAX)
        return 0;
    size_t len = encode(data, size, text);
    if (weir_held_from_text(engine, (weir_text){text, len}, &held) != 0)
        return 0;
    check(held.count > 0 && held.count <= WEIR_HELD_MAX && held.names_len <= WEIR_HELD_NAMES_MAX && held.lease_ns > 0);
    check(weir_held_renew_prepare(engine, &held, false, op) == 1);
    check_question(weir_ask_question(op));
    check(weir_held_renew_asked(engine, &held, true, op) == WEIR_ESTOREAWAY &&
          held.count > 0); /* it was not asked so */
    weir_ask_clear(op);
    size_t written = weir_held_to_text(engine, &held, again);
    check(written > 0 && weir_held_from_text(engine, (weir_text){again, written}, &copy) == 0);
    check(copy.count == held.count);
    check(weir_held_leave(engine, &held, op) == 0 && held.count == 0);
    struct weir__store_request *back = weir_ask_back(op);
    check(back && back->op_count == copy.count);
    check_question(back);
    weir_ask_clear(op);
    return 0;
}
