/* The rate limit service without nginx: frames, messages and JSON as bytes, decided by an engine. */
#include "../../engine.h"
#include "services/rls/rls_internal.h"

#include <health.pb-c.h>

#define SHOULD "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define RULES                                                                                                          \
    "domain: d\n"                                                                                                      \
    "descriptors:\n"                                                                                                   \
    "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 10, name: ten }, metadata: { x: { y: 1 } } }\n"        \
    "  - { key: z, rate_limit: { unlimited: true } }\n"                                                                \
    "  - { key: t, rate_limit: { unit: day, requests_per_unit: 3, algorithm: token_bucket } }\n"

/* A call, its memory and its reply. */
struct called {
    struct weir__rls service;
    struct weir__arena arena;
    struct weir__rls_reply reply;
    char first[1024]; /* small, so that more has to be allocated */
};

static void begin_arena(struct called *c)
{
    c->arena = (struct weir__arena){.bytes_max = WEIR__RLS_MEMORY_MAX};
    weir__arena_borrow(&c->arena, c->first, sizeof c->first);
}

static void begin(struct called *c, weir *engine)
{
    memset(c, 0, sizeof *c);
    c->service.engine = engine;
    begin_arena(c);
}

static void call(struct called *c, const char *method, const void *bytes, size_t len)
{
    weir__arena_free(&c->arena);
    begin_arena(c);
    weir__rls_call(&c->service, &c->arena, (weir_text){method, strlen(method)}, bytes, len, &c->reply);
}

#define CALL(c, bytes) call((c), SHOULD, (bytes), sizeof(bytes) - 1)

static void call_json(struct called *c, const char *text)
{
    weir__arena_free(&c->arena);
    begin_arena(c);
    weir__rls_json(&c->service, &c->arena, (const uint8_t *)text, strlen(text), &c->reply);
}

static bool message_has(const struct called *c, const char *part)
{
    return strstr(c->reply.message, part) != NULL;
}

/* The response unpacked by protobuf-c, in memory from malloc. */
static Rls__RateLimitResponse *unpack_response(const struct called *c)
{
    if (!c->reply.body || c->reply.len < 5)
        return NULL;
    CHECK_EQ(c->reply.body[3] << 8 | c->reply.body[4], c->reply.len - 5);
    return rls__rate_limit_response__unpack(NULL, c->reply.len - 5, c->reply.body + 5);
}

TEST(call_is_decided)
{
    struct called c;
    weir *w = test_engine(RULES);
    begin(&c, w);
    CALL(&c, "\0\0\0\0\x0d\x0a\x01"
             "d\x12\x08\x0a\x06\x0a\x01"
             "a\x12\x01"
             "1");
    CHECK_EQ(c.reply.code, WEIR__GRPC_OK);
    Rls__RateLimitResponse *response = unpack_response(&c);
    CHECK(response && response->n_statuses == 1);
    if (response) {
        CHECK_EQ(response->overall_code, RLS__RATE_LIMIT_RESPONSE__CODE__OK);
        CHECK_EQ(response->statuses[0]->limit_remaining, 9);
        CHECK_EQ(response->statuses[0]->current_limit->unit, RLS__UNIT__HOUR);
        CHECK_EQ(response->statuses[0]->current_limit->name.len, 3);
        CHECK(response->statuses[0]->duration_until_reset->seconds > 0);
        rls__rate_limit_response__free_unpacked(response, NULL);
    }
    weir__arena_free(&c.arena);
    weir_close(w);
}

TEST(frames_are_validated)
{
    struct called c;
    weir *w = test_engine(RULES);
    begin(&c, w);
    CALL(&c, "");
    CHECK_EQ(c.reply.code, WEIR__GRPC_INVALID_ARGUMENT);
    CALL(&c, "\0\0\0\0");
    CHECK_EQ(c.reply.code, WEIR__GRPC_INVALID_ARGUMENT);
    CALL(&c, "\0\0\0\0\1");
    CHECK(c.reply.code == WEIR__GRPC_INVALID_ARGUMENT && message_has(&c, "ends after 0 of its 1"));
    CALL(&c, "\0\0\0\0\0x");
    CHECK(c.reply.code == WEIR__GRPC_INVALID_ARGUMENT && message_has(&c, "1 bytes follow"));
    CALL(&c, "\1\0\0\0\0");
    CHECK(c.reply.code == WEIR__GRPC_UNIMPLEMENTED && c.reply.compressed);
    CALL(&c, "\2\0\0\0\0");
    CHECK(c.reply.code == WEIR__GRPC_INVALID_ARGUMENT && !c.reply.compressed);
    CALL(&c, "\0\xff\xff\xff\xff");
    CHECK_EQ(c.reply.code, WEIR__GRPC_RESOURCE_EXHAUSTED);
    CALL(&c, "\0\0\x10\0\1");
    CHECK_EQ(c.reply.code, WEIR__GRPC_RESOURCE_EXHAUSTED);
    CALL(&c, "\0\0\x10\0\0");
    CHECK_EQ(c.reply.code, WEIR__GRPC_INVALID_ARGUMENT);
    CALL(&c, "\0\0\0\0\0");
    CHECK(c.reply.code == WEIR__GRPC_UNKNOWN && message_has(&c, "domain") && !c.reply.body);
    call(&c, "/envoy.service.ratelimit.v3.RateLimitService/Other", "\0\0\0\0\0", 5);
    CHECK_EQ(c.reply.code, WEIR__GRPC_UNIMPLEMENTED);
    call(&c, "", "", 0);
    CHECK_EQ(c.reply.code, WEIR__GRPC_UNIMPLEMENTED);
    weir__arena_free(&c.arena);
    weir_close(w);
}

TEST(health)
{
    struct called c;
    weir *w = test_engine(RULES);
    begin(&c, w);
    for (int leaving = 0; leaving < 2; leaving++) {
        c.service.leaving = leaving;
        call(&c, "/grpc.health.v1.Health/Check", "\0\0\0\0\0", 5);
        CHECK_EQ(c.reply.code, WEIR__GRPC_OK);
        Health__HealthCheckResponse *response =
            health__health_check_response__unpack(NULL, c.reply.len - 5, c.reply.body + 5);
        CHECK(response && (int)response->status == (leaving ? 2 : 1));
        health__health_check_response__free_unpacked(response, NULL);
    }
    call(&c, "/grpc.health.v1.Health/Check", "\0\0\0\0\3\x0a\1x", 8);
    CHECK_EQ(c.reply.code, WEIR__GRPC_NOT_FOUND);
    weir__arena_free(&c.arena);
    weir_close(w);
}

/* Strings in protobuf are UTF-8; each line has one that is not. */
TEST(strings_that_are_not_utf8_are_refused)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc3",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80",
                                      "\xe2\x98",
                                      "\xff",
                                      "a\xc3("};
    static const char *const good[] = {"a", "\xc3\xa9", "\xe2\x98\x95", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "\x7f"};
    struct called c;
    weir *w = test_engine(RULES);
    begin(&c, w);
    for (size_t i = 0; i < sizeof bad / sizeof *bad + sizeof good / sizeof *good; i++) {
        bool is_good = i >= sizeof bad / sizeof *bad;
        const char *text = is_good ? good[i - sizeof bad / sizeof *bad] : bad[i];
        uint8_t len = (uint8_t)strlen(text), bytes[64] = {0, 0, 0, 0, 0, 0x0a, 1, 'd', 0x12, 0, 0x0a, 0, 0x12};
        bytes[4] = (uint8_t)(9 + len); /* of the message, the descriptor, its entry, the entry's value */
        bytes[9] = (uint8_t)(4 + len);
        bytes[11] = (uint8_t)(2 + len);
        bytes[13] = len;
        memcpy(bytes + 14, text, len);
        call(&c, SHOULD, bytes, (size_t)14 + len);
        CHECK_EQ(c.reply.code, is_good ? WEIR__GRPC_OK : WEIR__GRPC_INVALID_ARGUMENT);
    }
    weir__arena_free(&c.arena);
    weir_close(w);
}

TEST(units)
{
    for (int unit = 1; unit <= 7; unit++) {
        CHECK(weir__rls_unit_ns((Rls__Unit)unit) > 0);
        CHECK_EQ(weir__rls_unit(weir__rls_unit_ns((Rls__Unit)unit)), unit);
    }
    CHECK_EQ(weir__rls_unit_ns(RLS__UNIT__UNKNOWN), 0);
    CHECK_EQ(weir__rls_unit_ns((Rls__Unit)8), 0);
    CHECK_EQ(weir__rls_unit(2 * 3600 * WEIR_SECOND), RLS__UNIT__UNKNOWN);
    CHECK_EQ(weir__rls_unit(31 * WEIR_DAY), RLS__UNIT__MONTH);
    CHECK_EQ(weir__rls_unit(366 * WEIR_DAY), RLS__UNIT__YEAR);
}

TEST(json)
{
    struct called c;
    weir *w = test_engine(RULES);
    begin(&c, w);
    c.service.headers = c.service.metadata = true;
    call_json(&c, "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"t\"}],\"hitsAddend\":\"2\"},"
                  "{\"entries\":[{\"key\":\"a\",\"value\":\"\\u0000\"}]},{\"entries\":[{\"key\":\"z\"}]}]}");
    CHECK_EQ(c.reply.code, WEIR__GRPC_OK);
    char text[2048];
    snprintf(text, sizeof text, "%.*s", (int)c.reply.len, c.reply.body ? (const char *)c.reply.body : "");
    CHECK(strstr(text, "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\",\"currentLimit\":{\"requestsPerUnit\":3,"
                       "\"unit\":\"DAY\"},\"limitRemaining\":1,\"durationUntilReset\":\"57600s\"},") == text);
    CHECK(strstr(text, "\"limitRemaining\":9"));
    CHECK(strstr(text, "{\"code\":\"OK\",\"limitRemaining\":4294967295}"));
    CHECK(strstr(text, "{\"key\":\"RateLimit-Limit\",\"value\":\"3\"}"));
    CHECK(strstr(text, "\"metadata\":{\"x\":{\"y\":1}}"));
    call_json(&c, "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"t\"}],\"hitsAddend\":2}]}");
    CHECK(c.reply.code == WEIR__GRPC_OK && c.reply.over_limit);
    call_json(&c, "{\"domain\":\"d\",\"descriptors\":[{\"entriez\":[]}]}");
    CHECK(c.reply.code == WEIR__GRPC_INVALID_ARGUMENT && message_has(&c, "descriptors[0].entriez is not a field"));
    CHECK(c.reply.len > 20 && memcmp(c.reply.body, "{\"code\":3,", 10) == 0);
    weir__arena_free(&c.arena);
    weir_close(w);
}

/* A message of so many small fields that unpacking it would take a hundred times its size. */
TEST(messages_that_unpack_to_huge_size_are_refused)
{
    struct called c;
    weir *w = test_engine(RULES);
    size_t len = WEIR__RLS_FRAME_MAX;
    uint8_t *bytes = malloc(len);
    begin(&c, w);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 5; i < len; i++)
            bytes[i] = (i & 1) == 0 ? 0 : kind == 0 ? 0x12 : kind == 1 ? 0x78 : 0x7a;
        bytes[5] = 0x78; /* one byte would remain: the first of a two-byte varint */
        memcpy(bytes, "\0\0\x10\0\0", 5);
        call(&c, SHOULD, bytes, len);
        CHECK(c.reply.code == WEIR__GRPC_RESOURCE_EXHAUSTED || c.reply.code == WEIR__GRPC_INVALID_ARGUMENT);
        CHECK(kind || c.arena.failed);
    }
    weir__arena_free(&c.arena);
    free(bytes);
    weir_close(w);
}

/* JSON that takes more memory than a call may: its error has a body like any other. */
TEST(json_that_unpacks_to_huge_size_is_refused)
{
    static const char begin_list[] = "{\"domain\":\"d\",\"descriptors\":[{}";
    struct called c;
    weir *w = test_engine(RULES);
    char *text = malloc(WEIR__RLS_JSON_MAX + 1);
    size_t len = sizeof begin_list - 1;
    begin(&c, w);
    memcpy(text, begin_list, len);
    for (; len + 5 < WEIR__RLS_JSON_MAX; len += 3)
        memcpy(text + len, ",{}", 3);
    memcpy(text + len, "]}", 3);
    call_json(&c, text);
    CHECK(c.reply.code == WEIR__GRPC_RESOURCE_EXHAUSTED && message_has(&c, "more memory"));
    CHECK(c.reply.len > 20 && memcmp(c.reply.body, "{\"code\":8,", 10) == 0);
    weir__arena_free(&c.arena);
    free(text);
    weir_close(w);
}

/* Random combinations of valid parts and random bytes are harmless, and the error message fits. */
TEST(random_messages)
{
    static const char good[] = "\x0a\x01"
                               "d\x12\x14\x0a\x06\x0a\x01"
                               "a\x12\x01"
                               "1\x12\x04\x08\x05\x10\x02\x1a\x02\x08\x03\x20\x01\x18\x02";
    struct called c;
    weir *w = test_engine(RULES);
    uint64_t seed = 11;
    int answered = 0;
    begin(&c, w);
    c.service.headers = c.service.metadata = true;
    for (int64_t i = 0; i < test_scaled(200000, 2000); i++) {
        uint8_t bytes[5 + sizeof good] = {0};
        size_t len = sizeof good - 1;
        memcpy(bytes + 5, good, len);
        for (uint64_t n = test_random(&seed) % 3; n; n--)
            bytes[5 + test_random(&seed) % len] = (uint8_t)test_random(&seed);
        if (test_random(&seed) % 4 == 0)
            len = test_random(&seed) % (len + 1);
        bytes[4] = (uint8_t)len;
        call(&c, SHOULD, bytes, 5 + len);
        CHECK((c.reply.code == WEIR__GRPC_OK) == (c.reply.body != NULL));
        CHECK((c.reply.code == WEIR__GRPC_OK) == (c.reply.message[0] == 0));
        answered += c.reply.code == WEIR__GRPC_OK;
    }
    CHECK(answered > 0);
    weir__arena_free(&c.arena);
    weir_close(w);
}

TEST_MAIN
