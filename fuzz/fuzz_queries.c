/*
 * Queries of other hosts, and their replies: any bytes are refused, or a query is within its bounds and the same after
 * formatting it, and a reply has its form, which merging keeps, and no more members than its text allows. The first
 * byte is the kind of the replies; the first zero byte after it separates two of them.
 */
#include "stats/host_queries.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_query(struct weir__query *query)
{
    struct weir__query again;
    check(query->kind < WEIR__QUERY_KINDS && query->bytes >= WEIR__QUERY_REPLY_MIN &&
          query->bytes <= WEIR__QUERY_REPLY_MAX);
    check(query->what.n >= 0 && query->what.n <= 1000 && query->what.seconds >= 0 &&
          strlen(query->to) <= WEIR__HOST_ID);
    char *text = weir__query_format(query, false);
    check(!text || (weir__query_parse(text, strlen(text), &again) && again.kind == query->kind &&
                    again.what.n == query->what.n));
    if (text)
        weir__query_free(&again);
    free(text);
    weir__query_free(query);
}

/* 8 for each member of an object, and 2 for each number in a list. */
static size_t size_of(const json_t *tree)
{
    size_t size = 8 * json_object_size(tree), i;
    const char *name;
    json_t *part;
    json_object_foreach((json_t *)tree, name, part) size += size_of(part);
    json_array_foreach(tree, i, part) size += json_is_number(part) ? 2 : size_of(part);
    return size;
}

/* A reply in its form; `len` bounds its memory. */
static json_t *formed(enum weir__query_kind kind, const json_t *tree, size_t len)
{
    json_t *reply = weir__reply_form(kind, tree, len);
    check(size_of(reply) <= len + 32768 + 2 * 64 * 8);
    return reply;
}

static void check_merging(enum weir__query_kind kind, json_t *const trees[2], const size_t lens[2])
{
    json_t *replies[] = {formed(kind, trees[0], lens[0]), formed(kind, trees[1], lens[1])};
    const struct weir__host_query what = {.n = 3, .key = {"user:42", 7}};
    if (replies[0] && replies[1]) {
        weir__reply_name(kind, replies[0], "a", true);
        weir__reply_name(kind, replies[1], "b", false);
        struct weir__merge merge = {.kind = kind, .query = &what, .hash_keys = lens[0] % 2};
        check(weir__merge_add(&merge, replies[0]) && weir__merge_add(&merge, replies[1]));
        json_t *sum = weir__merge_finish(&merge);
        weir__reply_name(kind, sum, "a", true);
        json_t *again = weir__reply_form(kind, sum, SIZE_MAX);
        weir__reply_name(kind, again, "a", true);
        check(json_equal(again, sum));
        json_decref(again);
        json_decref(sum);
    }
    json_decref(replies[0]);
    json_decref(replies[1]);
}

/* The texts as they are, and as the reply of the second host. */
static void check_gathering(enum weir__query_kind kind, const char *const texts[2], const size_t lens[2])
{
    static const char head[] = "{\"id\":\"0000000000000002\",\"name\":\"b\",\"reply\":";
    static struct weir__host_status hosts[] = {
        {.heartbeat = {.id = "0000000000000001", .name = "a"}},
        {.heartbeat = {.id = "0000000000000002", .name = "b"}, .via = WEIR__HOST_VIA_STORE},
        {.heartbeat = {.id = "0000000000000003", .name = "c"}, .via = WEIR__HOST_VIA_STORE}};
    const struct weir__membership membership = {.hosts = hosts, .count = 3, .agent = true};
    const struct weir__host_query what = {.n = 3, .key = {"user:42", 7}};
    struct weir__gather *gather = weir__gather_begin(&membership, kind, &what);
    char coverage[512], *whole = malloc(sizeof head + lens[1] + 1);
    check(gather && whole);
    weir__gather_take(gather, texts[0], lens[0]);
    memcpy(whole, head, sizeof head - 1);
    memcpy(whole + sizeof head - 1, texts[1], lens[1]);
    whole[sizeof head - 1 + lens[1]] = '}';
    weir__gather_take(gather, whole, sizeof head + lens[1]);
    weir__gather_take(gather, texts[1], lens[1]);
    free(whole);
    json_t *merged = NULL;
    check(weir__gather_finish(gather, strdup("{}"), 0, &merged) == 0);
    const json_t *of = json_object_get(merged, "coverage"), *replied = json_object_get(of, "hosts");
    size_t count = json_array_size(replied) + json_array_size(json_object_get(of, "missing"));
    check(json_array_size(replied) >= 1 && count >= 3 && count <= 5);
    weir__coverage_text(merged, coverage, sizeof coverage);
    json_decref(merged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__query query;
    if (weir__query_parse((const char *)data, size, &query))
        check_query(&query);
    if (!size)
        return 0;
    enum weir__query_kind kind = data[0] % WEIR__QUERY_KINDS;
    const char *text = (const char *)data + 1, *zero = memchr(text, 0, size - 1);
    const char *const texts[] = {text, zero ? zero + 1 : text};
    const size_t lens[] = {zero ? (size_t)(zero - text) : size - 1, zero ? size - 2 - (size_t)(zero - text) : size - 1};
    json_t *trees[] = {json_loadb(texts[0], lens[0], 0, NULL), json_loadb(texts[1], lens[1], 0, NULL)};
    check_merging(kind, trees, lens);
    check_gathering(kind, texts, lens);
    json_decref(trees[0]);
    json_decref(trees[1]);
    return 0;
}
