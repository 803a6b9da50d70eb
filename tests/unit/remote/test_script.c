/* The call of the script and its reply, without a server: bytes out, bytes in, and malformed ones. */
#include "../../test.h"
#include "engine/rule_files.h"
#include "remote/script.h"

#include "algo/algo.h"

#include <hiredis/hiredis.h>

#define OP_LEN 25

static weir_limit limit_of(weir_params params)
{
    weir_limit limit;
    params.id = 1;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static struct weir__store_op make_op(const char *name, enum weir__store_op_kind kind, int64_t cost)
{
    struct weir__store_op op = {.limit = limit_of((weir_params){.limit = 10, .window_ns = WEIR_SECOND}),
                                .kind = kind,
                                .cost = cost,
                                .name_len = (uint16_t)strlen(name)};
    memcpy(op.name, name, op.name_len + 1U);
    return op;
}

/* The command as a server parses it. */
static redisReply *parsed(const struct weir__buffer *buffer)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    CHECK_EQ(redisReaderFeed(reader, buffer->data, buffer->len), REDIS_OK);
    CHECK_EQ(redisReaderGetReply(reader, &reply), REDIS_OK);
    CHECK(reply != NULL);
    void *more = NULL;
    CHECK_EQ(redisReaderGetReply(reader, &more), REDIS_OK);
    CHECK(more == NULL); /* nothing is left over */
    redisReaderFree(reader);
    return reply;
}

/* The numbers of the argument, at most `most`; returns how many there are. */
static size_t numbers_of(const redisReply *argument, int64_t *to, size_t most)
{
    const unsigned char *at = (const unsigned char *)argument->str, *end = at + argument->len;
    size_t count = 0, pieces = 0;
    if (at[0] == 0xdd) {
        pieces = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
        at += 5;
    }
    for (; at < end && count < most; count++) {
        unsigned mark = *at++, bytes = mark >= 0xcc && mark <= 0xd3 ? 1U << ((mark - 0xcc) & 3) : 0;
        uint64_t bits = mark < 0x80 ? mark : mark >= 0xe0 ? (uint64_t)(int64_t)(int8_t)mark : 0;
        for (unsigned i = 0; i < bytes; i++)
            bits = bits << 8 | *at++;
        to[count] = (int64_t)bits;
    }
    CHECK(at == end);
    CHECK(pieces ? count == pieces && pieces > 2000 : count <= 2000);
    return count;
}

static void check_text(const redisReply *reply, const char *want)
{
    CHECK(reply->type == REDIS_REPLY_STRING && reply->len == strlen(want) && strcmp(reply->str, want) == 0);
}

TEST(call_with_one_counter)
{
    struct weir__store_op op = make_op("weir:api:k", WEIR__OP_TAKE, 3);
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = &op, .op_count = 1, .groups = &group, .group_count = 1};
    struct weir__group_ref part = {&request, 0};
    struct weir__buffer buffer = {0};
    weir__script_call(&buffer, &part, 1, NULL);
    redisReply *call = parsed(&buffer);
    CHECK_EQ(call->elements, 5);
    check_text(call->element[0], "EVALSHA");
    check_text(call->element[1], weir__script_sha);
    check_text(call->element[2], "1");
    check_text(call->element[3], "weir:api:k");
    static const int64_t want[] = {1, 1, 10, 10, 100000, 1, -1, 0, 1, 0, 2, 0, 3};
    int64_t got[64];
    CHECK_EQ(numbers_of(call->element[4], got, 64), sizeof want / sizeof want[0]);
    CHECK_EQ(memcmp(got, want, sizeof want), 0);
    freeReplyObject(call);
    weir__buffer_free(&buffer);
    CHECK(!buffer.data && !buffer.len);
}

TEST(equal_limits_are_sent_once)
{
    struct weir__store_op ops[40];
    struct weir__group groups[40];
    struct weir__group_ref refs[40];
    struct weir__store_request request = {.ops = ops, .op_count = 40, .groups = groups, .group_count = 40};
    for (uint32_t i = 0; i < 40; i++) {
        ops[i] = make_op("k", i == 39 ? WEIR__OP_EXCHANGE : i == 38 ? WEIR__OP_REFUND : WEIR__OP_TAKE, 1);
        ops[i].limit = limit_of((weir_params){.limit = 10 + i % 2, .window_ns = WEIR_SECOND});
        groups[i] = (struct weir__group){i, 1, i == 1};
        refs[i] = (struct weir__group_ref){&request, i};
    }
    ops[38].at_us = INT64_C(1794735452185947);
    ops[39].level = -70000;
    ops[39].reseed = true;
    ops[39].left_us = 70000000;
    struct weir__buffer buffer = {0};
    weir__script_call(&buffer, refs, 40,
                      &(struct weir__exchange_sender){"sender", UINT64_MAX, INT64_C(1794735452185947)});
    redisReply *call = parsed(&buffer);
    CHECK_EQ(call->elements, 3 + 41 + 4);
    check_text(call->element[2], "41");
    check_text(call->element[43], "sender");
    check_text(call->element[45], "1794735452185947");
    check_text(call->element[46], "18446744073709551615");
    check_text(call->element[47], "18446744073709551614");
    int64_t got[512];
    size_t count = numbers_of(call->element[44], got, 512);
    CHECK_EQ(count, 1 + 2 * 7 + 40 * 5 + 1 + 3);
    CHECK_EQ(got[0], 2);
    CHECK_EQ(got[15 + 5 + 1], 1); /* the second group depends on the first */
    CHECK_EQ(got[15 + 5 + 2], 9);
    CHECK_EQ(got[15 + 38 * 5 + 5], ops[38].at_us);
    CHECK_EQ(got[count - 3], -70000);
    CHECK_EQ(got[count - 2], 70000000);
    CHECK_EQ(got[count - 1], 1);
    freeReplyObject(call);
    weir__buffer_free(&buffer);
}

TEST(more_limits_than_are_deduplicated)
{
    enum { MANY = 600 };
    static struct weir__store_op ops[MANY];
    struct weir__group group = {0, MANY, false};
    struct weir__store_request request = {.ops = ops, .op_count = MANY, .groups = &group, .group_count = 1};
    struct weir__group_ref part = {&request, 0};
    for (int i = 0; i < MANY; i++) {
        ops[i] = make_op("k", WEIR__OP_TAKE, INT64_MAX);
        ops[i].limit = limit_of((weir_params){.limit = 1 + i % 30, .window_ns = WEIR_DAY});
    }
    struct weir__buffer buffer = {0};
    weir__script_call(&buffer, &part, 1, NULL);
    redisReply *call = parsed(&buffer);
    static int64_t got[8192];
    size_t count = numbers_of(call->element[call->elements - 1], got, 8192);
    CHECK(count > 0 && count == 1 + 7 * (size_t)got[0] + 2 + 3 * MANY);
    /* Each op refers to the row of its limit. */
    for (size_t i = 0; i < MANY; i++) {
        int64_t place = got[1 + 7 * got[0] + 2 + 3 * (int64_t)i];
        CHECK_EQ(got[place - 1 + 1], 1 + (int64_t)i % 30);
        CHECK(got[1 + 7 * got[0] + 2 + 3 * (int64_t)i + 2] < INT64_C(1) << 53);
    }
    freeReplyObject(call);
    weir__buffer_free(&buffer);
}

/* ---- Replies ---- */

struct raw_reply {
    char text[8 + 2 * OP_LEN];
    size_t len;
};

static void put(char *to, int64_t number)
{
    for (int i = 0; i < 8; i++)
        to[i] = (char)((uint64_t)number >> (56 - 8 * i));
}

static struct raw_reply reply_of(int64_t now, int code, int64_t remaining, int64_t reset, int64_t wait)
{
    struct raw_reply raw_reply = {.len = 8 + OP_LEN};
    put(raw_reply.text, now);
    raw_reply.text[8] = (char)code;
    put(raw_reply.text + 9, remaining);
    put(raw_reply.text + 17, reset);
    put(raw_reply.text + 25, wait);
    return raw_reply;
}

static struct weir__store_op replied;

static int read_as(struct raw_reply raw_reply, enum weir__store_op_kind kind, int type)
{
    struct weir__group group = {0, 1, false};
    struct weir__store_request request = {.ops = &replied, .op_count = 1, .groups = &group, .group_count = 1};
    struct weir__group_ref part = {&request, 0};
    /* In a separate allocation, so that a sanitizer detects reads beyond its end. */
    char *copy = malloc(raw_reply.len ? raw_reply.len : 1);
    memcpy(copy, raw_reply.text, raw_reply.len);
    redisReply reply = {.type = type, .str = copy, .len = raw_reply.len};
    replied = make_op("k", kind, 1);
    int error = weir__script_read(&reply, &part, 1);
    free(copy);
    return error;
}

static int read_take(struct raw_reply raw_reply)
{
    return read_as(raw_reply, WEIR__OP_TAKE, REDIS_REPLY_STRING);
}

TEST(replies_are_parsed)
{
    CHECK_EQ(read_take(reply_of(1794735452185947, 16, 9, 100000, 7)), 0);
    CHECK_EQ(replied.decision.verdict, WEIR_ALLOW);
    CHECK_EQ(replied.decision.limit, 10);
    CHECK_EQ(replied.decision.remaining, 9);
    CHECK_EQ(replied.decision.reset_after_ns, 100000000);
    CHECK_EQ(replied.decision.retry_after_ns, 0);
    CHECK_EQ(replied.decision.delay_ns, 0);
    CHECK_EQ(replied.at_us, 1794735452185947);
    CHECK(replied.taken && !replied.error);
    CHECK_EQ(read_take(reply_of(5, 2, -3, 1, 7)), 0);
    CHECK_EQ(replied.decision.retry_after_ns, 7000);
    CHECK(!replied.taken);
    CHECK_EQ(read_take(reply_of(5, 16 + 8 + 1, -3, 1, 7)), 0);
    CHECK_EQ(replied.decision.verdict, WEIR_DELAY);
    CHECK_EQ(replied.decision.flags, WEIR_OVER_SOFT);
    CHECK_EQ(replied.decision.delay_ns, 7000);
    CHECK_EQ(read_take(reply_of(5, 3, 10, 0, 0)), 0);
    CHECK_EQ(replied.decision.retry_after_ns, -1);
    CHECK_EQ(read_take(reply_of(5, WEIR_ESTOREWRONGTYPE, 0, 0, 0)), 0);
    CHECK_EQ(replied.error, WEIR_ESTOREWRONGTYPE);
    CHECK_EQ(read_as(reply_of(5, 0, 10, 0, 0), WEIR__OP_REFUND, REDIS_REPLY_STRING), 0);
    CHECK_EQ(replied.at_us, 0); /* the time of the take stays */
}

TEST(malformed_replies_are_garbage)
{
    struct raw_reply good = reply_of(5, 16, 9, 1, 1);
    CHECK_EQ(read_take(good), 0);
    for (size_t len = 0; len < sizeof good.text; len++) {
        struct raw_reply cut = good;
        cut.len = len;
        CHECK_EQ(read_take(cut), len == good.len ? 0 : WEIR_ESTOREGARBAGE);
    }
    static const int types[] = {REDIS_REPLY_STATUS, REDIS_REPLY_ERROR, REDIS_REPLY_ARRAY, REDIS_REPLY_NIL,
                                REDIS_REPLY_INTEGER};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        CHECK_EQ(read_as(good, WEIR__OP_TAKE, types[i]), WEIR_ESTOREGARBAGE);
    for (int code = -128; code < 128; code++) {
        bool fine = code == WEIR_ESTOREWRONGTYPE || code == WEIR_ESTORECLOCK ||
                    (code >= 0 && code < 32 && (code & 7) < 4 && (code < 16 || (code & 7) < 2));
        CHECK_EQ(read_take(reply_of(5, code, 9, 1, 1)), fine ? 0 : WEIR_ESTOREGARBAGE);
    }
    static const int64_t wild[] = {INT64_MIN, INT64_MIN + 1, -1, INT64_MAX, INT64_MAX / 1000 + 1, INT64_C(1) << 53};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        CHECK_EQ(read_take(reply_of(wild[i], 16, 9, 1, 1)), WEIR_ESTOREGARBAGE);
        CHECK_EQ(read_take(reply_of(5, 16, wild[i], 1, 1)), wild[i] == -1 ? 0 : WEIR_ESTOREGARBAGE);
        CHECK_EQ(read_take(reply_of(5, 16, 9, wild[i], 1)), WEIR_ESTOREGARBAGE);
        CHECK_EQ(read_take(reply_of(5, 16, 9, 1, wild[i])), WEIR_ESTOREGARBAGE);
    }
    CHECK_EQ(read_take(reply_of(5, 16, 11, 1, 1)), WEIR_ESTOREGARBAGE); /* more than the limit */
    /* `other_window` is valid only for exchanges of windows. */
    CHECK_EQ(read_as(reply_of(5, 32, 9, 1, 1), WEIR__OP_EXCHANGE, REDIS_REPLY_STRING), WEIR_ESTOREGARBAGE);
    CHECK_EQ(weir__script_read(NULL, NULL, 0), WEIR_ESTOREGARBAGE);
}

/* As reply_of, to a lease: `granted` is twice the units, plus 1 if the units held are known. */
static struct raw_reply lease_reply_of(int64_t granted, int64_t life_us)
{
    struct raw_reply raw_reply = reply_of(5, 0, 9, 1, 0);
    put(raw_reply.text + 8 + OP_LEN, granted);
    put(raw_reply.text + 8 + OP_LEN + 8, life_us);
    raw_reply.len += 16;
    return raw_reply;
}

static int read_lease(struct raw_reply raw_reply)
{
    return read_as(raw_reply, WEIR__OP_LEASE, REDIS_REPLY_STRING);
}

TEST(malformed_replies_to_a_lease_are_garbage)
{
    struct raw_reply good = lease_reply_of(2 * 7 + 1, 5000000);
    for (size_t len = 0; len <= good.len + 1; len++) {
        struct raw_reply cut = good;
        cut.len = len;
        CHECK_EQ(read_lease(cut), len == good.len ? 0 : WEIR_ESTOREGARBAGE);
    }
    CHECK_EQ(read_lease(good), 0);
    CHECK_EQ(replied.units.granted, 7);
    CHECK(replied.units.known);
    CHECK_EQ(replied.units.life_us, 5000000);
    CHECK_EQ(read_lease(lease_reply_of(0, 0)), 0);
    CHECK(!replied.units.known && !replied.units.granted);
    CHECK_EQ(read_lease(reply_of(5, 0, 9, 1, 0)), WEIR_ESTOREGARBAGE); /* that of another op */
    static const int64_t wild[] = {INT64_MIN, -1, INT64_MAX, INT64_C(1) << 53};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        CHECK_EQ(read_lease(lease_reply_of(wild[i], 1)), WEIR_ESTOREGARBAGE);
        CHECK_EQ(read_lease(lease_reply_of(2, wild[i])), WEIR_ESTOREGARBAGE);
    }
    CHECK_EQ(read_lease(lease_reply_of(2, 5000001)), WEIR_ESTOREGARBAGE); /* longer than any lease */
}

TEST(errors_are_mapped)
{
    static const struct {
        const char *text;
        int error;
    } known[] = {
        {"LOADING Redis is loading the dataset in memory", WEIR_ESTORELOADING},
        {"READONLY You can't write against a read only replica.", WEIR_ESTOREREADONLY},
        {"OOM command not allowed when used memory > 'maxmemory'.", WEIR_ESTOREOOM},
        {"CROSSSLOT Keys in request don't hash to the same slot", WEIR_ESTORECROSSSLOT},
        {"MOVED 3999 127.0.0.1:6381", WEIR_ESTORECROSSSLOT},
        {"WRONGTYPE Operation against a key holding the wrong kind of value", WEIR_ESTOREWRONGTYPE},
        {"NOAUTH Authentication required.", WEIR_ESTOREAUTH},
        {"WRONGPASS invalid username-password pair or user is disabled.", WEIR_ESTOREAUTH},
        {"NOPERM this user has no permissions", WEIR_ESTOREAUTH},
        {"BUSY Redis is busy running a script.", WEIR_ESTORESLOW},
        {"CLUSTERDOWN The cluster is down", WEIR_ESTOREDOWN},
        {"MISCONF Redis is configured to save RDB snapshots", WEIR_ESTOREDISK},
        {"ERR max number of clients reached", WEIR_ESTORECLIENTS},
        {"ERR max number of clients + cluster connections reached", WEIR_ESTORECLIENTS},
        {"ERR max number of clientele", WEIR_ESTOREERROR},
        {"ERR Error running script (call to f_0123): @user_script: 1: -MISCONF Redis is configured to",
         WEIR_ESTOREDISK},
        {"ERR Error running script (call to f_0123): @user_script:1: WRONGTYPE Operation against a key",
         WEIR_ESTOREWRONGTYPE},
        {"ERR Error running script (call to f_0123): @user_script: 1: -OOM command not allowed", WEIR_ESTOREOOM},
        {"ERR Error running script (call to f_0123): @user_script: 1: -READONLY You can't write", WEIR_ESTOREREADONLY},
        {"ERR Error running script (call to f_0123): a NOOM", WEIR_ESTOREERROR},
        {"ERR Error running script", WEIR_ESTOREERROR},
        {"ERR something about OOM there", WEIR_ESTOREERROR},
        {"OOM", WEIR_ESTOREOOM},
        {"OOMPH", WEIR_ESTOREERROR},
        {"ERR unknown command", WEIR_ESTOREERROR},
        {"", WEIR_ESTOREERROR},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK_EQ(weir__store_error(known[i].text, strlen(known[i].text)), known[i].error);
}

/* The bounds within which the script's division, in steps, is exact. */
static bool is_exact(const weir_limit *limit)
{
    return limit->made == WEIR__LIMIT_MADE && limit->window_us <= WEIR__WINDOW_MAX &&
           limit->period_us <= WEIR__WINDOW_MAX && limit->cap <= WEIR__USED_MAX && limit->limit <= WEIR__USED_MAX;
}

TEST(every_limit_that_can_be_made_fits)
{
    CHECK(is_exact(&(weir_limit){0}) == false);
    uint64_t seed = 6;
    for (int i = 0; i < 20000; i++) {
        weir_limit limit;
        weir_params params = {.limit = (int64_t)(test_random(&seed) >> (test_random(&seed) % 64)),
                              .window_ns = (int64_t)(test_random(&seed) >> (test_random(&seed) % 64)) / 1000 * 1000,
                              .algorithm = (enum weir_algorithm)(test_random(&seed) % 5)};
        if (weir_limit_init(&limit, &params) == 0)
            CHECK(is_exact(&limit));
    }
}

TEST(buffers_grow)
{
    struct weir__buffer buffer = {0};
    char piece[1000];
    for (int i = 0; i < 100; i++) {
        memset(piece, 'a' + i % 26, sizeof piece);
        weir__buffer_add(&buffer, piece, (size_t)i * 10);
    }
    CHECK_EQ(buffer.len, 49500);
    CHECK(!buffer.failed && buffer.data[49499] == 'a' + 99 % 26 && buffer.data[0] == 'b');
    weir__buffer_add(&buffer, piece, SIZE_MAX / 2);
    CHECK(buffer.failed && buffer.len == 49500);
    weir__buffer_add(&buffer, piece, 1);
    CHECK_EQ(buffer.len, 49500);
    weir__buffer_free(&buffer);
}

TEST_MAIN
