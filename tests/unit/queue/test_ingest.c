/* A deferred request as nginx passes it on: what is parsed, what is refused, and which headers are kept. */
#include "../../test.h"

#include "queue/ingest_internal.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"content-type", "b-*"};
static const struct weir__queue_config queue = {.headers = names, .header_count = 2};
static const struct weir__queue_config all = {.headers = (const char *const[]){"*"}, .header_count = 1};

static weir_text text_of(const char *text)
{
    return (weir_text){text, text ? strlen(text) : 0};
}

#define KEPT(config, connection, name) weir__ingest_keeps_header((config), text_of(connection), true, text_of(name))

TEST(which_headers_are_kept)
{
    CHECK(KEPT(&queue, NULL, "Content-Type") && KEPT(&queue, "", "CONTENT-TYPE"));
    CHECK(!KEPT(&queue, NULL, "Content-Typ") && !KEPT(&queue, NULL, "Content-Types") && !KEPT(&queue, NULL, ""));
    CHECK(KEPT(&queue, NULL, "B-") && KEPT(&queue, NULL, "b-1") && !KEPT(&queue, NULL, "b"));
    CHECK(KEPT(&queue, NULL, "Host") && KEPT(&queue, NULL, "Idempotency-Key") && KEPT(&queue, NULL, "x-real-ip"));
    CHECK(KEPT(&queue, NULL, "X-Forwarded-For") && !KEPT(&queue, NULL, "X-Forwarded"));
    /* Headers that the client names in Connection are dropped; but it cannot drop those of the gateway. */
    CHECK(!KEPT(&queue, "close, B-1 , c", "b-1") && !KEPT(&queue, "b-1", "b-1") && KEPT(&queue, "b-12,b", "b-1"));
    CHECK(KEPT(&queue, "host, x-forwarded-for", "x-forwarded-for"));
    static const char *const never[] = {"Connection",
                                        "Keep-Alive",
                                        "Proxy-Authorization",
                                        "Proxy-Connection",
                                        "TE",
                                        "Trailer",
                                        "Transfer-Encoding",
                                        "Upgrade",
                                        "Expect",
                                        "X-Weir-Key",
                                        "Content-Length",
                                        "x-weir-attempt",
                                        "HTTP2-Settings"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        CHECK(!KEPT(&all, NULL, never[i]));
    CHECK(KEPT(&all, NULL, "Anything") && KEPT(&all, NULL, "X-Weird"));
}

static struct weir__deferred item;
static struct weir__queue_bounds bounds;
static char *room;

/* By enum weir__ingest_field. */
static const char *good[WEIR__INGEST_COUNT] = {"POST",           "/a?b",  "c3a4", "00ff6b;headers", NULL, "3",
                                               "1000,2000,3000", "x-hop", "7"};

static const char *read_one(const char *const fields[WEIR__INGEST_COUNT], const struct weir__header_line *lines,
                            size_t count)
{
    weir_text texts[WEIR__INGEST_COUNT];
    for (size_t i = 0; i < WEIR__INGEST_COUNT; i++)
        texts[i] = text_of(fields[i]);
    free(room);
    return weir__ingest_read_request(&all, texts, lines, count, &item, &bounds, &room);
}

static bool is(weir_text text, const char *bytes, size_t len)
{
    return text.len == len && memcmp(text.data, bytes, len) == 0;
}

TEST(request_is_parsed)
{
    struct weir__header_line lines[] = {{text_of("Host"), text_of("a")},
                                        {text_of("X-Weir-Key"), text_of("00ff6b")},
                                        {text_of("Empty"), {NULL, 0}},
                                        {text_of("X-Hop"), text_of("1")},
                                        {text_of("Last"), text_of("b: c")}};
    CHECK(read_one(good, lines, 5) == NULL);
    CHECK(is(item.method, "POST", 4) && is(item.target, "/a?b", 4));
    CHECK(is(item.rule, "\xc3\xa4", 2) && is(item.key, "\0\xffk", 3));
    CHECK_EQ(item.cost, 3);
    CHECK(bounds.max == 1000 && bounds.max_bytes == 2000 && bounds.max_age_ms == 3000);
    CHECK(is(item.headers, "Host: a\r\nEmpty: \r\nLast: b: c\r\n", 30));
    CHECK(!item.body.len && !item.due_ms && !item.accepted_ms);
    CHECK(read_one(good, NULL, 0) == NULL && item.headers.len == 0);
}

/* With headers of unknown origin, only those are kept that do not identify the client. */
TEST(headers_of_unknown_origin)
{
    static const char *const kept[] = {"Content-Type", "Accept", "accept-language", "User-Agent", "Host", "X-Real-IP"};
    static const char *const not [] = {"X-User", "Authorization", "Cookie", "Anything", "X-Weir-Others"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        CHECK(weir__ingest_keeps_header(&all, text_of(NULL), false, text_of(kept[i])));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        CHECK(!weir__ingest_keeps_header(&all, text_of(NULL), false, text_of(not [i])));
    CHECK(!weir__ingest_keeps_header(&queue, text_of(NULL), false, text_of("Accept"))); /* not configured */
}

TEST(matches_of_other_rules_are_kept)
{
    struct weir__header_line lines[] = {{text_of("B-1"), text_of("x")},
                                        {text_of("X-Weir-Others"), text_of("61.62..1")}};
    const char *fields[WEIR__INGEST_COUNT];
    char to[WEIR__TIER_MAX + 1];
    memcpy(fields, good, sizeof good);
    fields[WEIR__INGEST_KEY] = "6b";
    CHECK(read_one(fields, lines, 2) == NULL && item.headers.len == 0 && !weir__deferred_others(&item).len);
    fields[WEIR__INGEST_KEY] = "6b;headers;61.62..1;63.64..2";
    CHECK(read_one(fields, lines, 2) == NULL && is(item.key, "k", 1));
    CHECK(is(weir__deferred_others(&item), "61.62..1;63.64..2", 17));
    CHECK(is(item.headers, "X-Weir-Others: 61.62..1;63.64..2\r\nB-1: x\r\n", 42));
    fields[WEIR__INGEST_TIER] = "70";
    fields[WEIR__INGEST_KEY] = "6b;61.62..1";
    CHECK(read_one(fields, lines, 2) == NULL && is(weir__deferred_others(&item), "61.62..1", 8));
    CHECK(is(weir__deferred_tier(&item, to), "p", 1));
    CHECK(is(item.headers, "X-Weir-Tier: 70\r\nX-Weir-Others: 61.62..1\r\n", 42));
    fields[WEIR__INGEST_KEY] = "6b;headers";
    CHECK(read_one(fields, lines, 2) == NULL && !weir__deferred_others(&item).len);
    fields[WEIR__INGEST_KEY] = "6b;header";
    CHECK(read_one(fields, lines, 2) != NULL);
    fields[WEIR__INGEST_KEY] = "6b;61 62";
    CHECK(read_one(fields, lines, 2) != NULL);
    fields[WEIR__INGEST_KEY] = ";61.62..1";
    CHECK(read_one(fields, lines, 2) != NULL);
}

TEST(tiers_are_kept)
{
    struct weir__header_line line = {text_of("Host"), text_of("a")};
    const char *fields[WEIR__INGEST_COUNT];
    char to[WEIR__TIER_MAX + 1], hex[2 * WEIR__TIER_MAX + 3];
    memcpy(fields, good, sizeof good);
    CHECK(read_one(fields, &line, 1) == NULL && !weir__deferred_tier(&item, to).len);
    fields[WEIR__INGEST_TIER] = "70726f00";
    CHECK(read_one(fields, &line, 1) == NULL && is(weir__deferred_tier(&item, to), "pro\0", 4));
    CHECK(is(item.headers, "X-Weir-Tier: 70726f00\r\nHost: a\r\n", 32));
    fields[WEIR__INGEST_TIER] = "7";
    CHECK(read_one(fields, &line, 1) != NULL);
    for (int more = 0; more < 2; more++) {
        memset(hex, '6', sizeof hex);
        hex[2 * (WEIR__TIER_MAX + more)] = 0;
        fields[WEIR__INGEST_TIER] = hex;
        CHECK_EQ(read_one(fields, &line, 1) == NULL, !more);
        CHECK(more || weir__deferred_tier(&item, to).len == WEIR__TIER_MAX);
    }
    static const char *const damaged[] = {"", "X-Weir-Tier", "X-Weir-Tier: ", "X-Weir-Tier: 70", "X-Weir-Tier: 7\r\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        item.headers = text_of(damaged[i]);
        CHECK(!weir__deferred_tier(&item, to).len);
    }
}

static const struct {
    enum weir__ingest_field at;
    const char *value;
} wrong[] = {
    {WEIR__INGEST_METHOD, NULL},
    {WEIR__INGEST_METHOD, "get"},
    {WEIR__INGEST_METHOD, "A B"},
    {WEIR__INGEST_METHOD, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG"},
    {WEIR__INGEST_TARGET, ""},
    {WEIR__INGEST_TARGET, "a"},
    {WEIR__INGEST_TARGET, "/a b"},
    {WEIR__INGEST_TARGET, "/a\x7f"},
    {WEIR__INGEST_RULE, NULL},
    {WEIR__INGEST_RULE, "6"},
    {WEIR__INGEST_RULE, "6g"},
    {WEIR__INGEST_KEY, NULL},
    {WEIR__INGEST_KEY, "0x"},
    {WEIR__INGEST_COST, NULL},
    {WEIR__INGEST_COST, "-1"},
    {WEIR__INGEST_COST, "1.5"},
    {WEIR__INGEST_COST, "99999999999999999999"},
    {WEIR__INGEST_BOUNDS, NULL},
    {WEIR__INGEST_BOUNDS, "1,2"},
    {WEIR__INGEST_BOUNDS, "1,2,"},
    {WEIR__INGEST_BOUNDS, "1,2,3,4"},
    {WEIR__INGEST_BOUNDS, ",,"},
    {WEIR__INGEST_BOUNDS, "1,-2,3"},
};

TEST(invalid_requests_are_refused)
{
    char hex[2 * 257 + 1];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *fields[WEIR__INGEST_COUNT];
        memcpy(fields, good, sizeof good);
        fields[wrong[i].at] = wrong[i].value;
        bool refused = read_one(fields, NULL, 0) && !room;
        CHECK(refused);
        if (!refused)
            printf("  %s: %s\n", weir__ingest_field_names[wrong[i].at], wrong[i].value ? wrong[i].value : "");
    }
    /* The maximal length, and one byte more. */
    for (int more = 0; more < 2; more++) {
        const char *fields[WEIR__INGEST_COUNT];
        memcpy(fields, good, sizeof good);
        memset(hex, '6', sizeof hex);
        hex[2 * (256 + more)] = 0;
        fields[WEIR__INGEST_KEY] = hex;
        CHECK_EQ(read_one(fields, NULL, 0) == NULL, !more);
        hex[2 * (WEIR_NAME_MAX + more)] = 0;
        fields[WEIR__INGEST_KEY] = "6b";
        fields[WEIR__INGEST_RULE] = hex;
        CHECK_EQ(read_one(fields, NULL, 0) == NULL, !more);
    }
    free(room);
    room = NULL;
}

TEST_MAIN
