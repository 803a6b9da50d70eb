/*
 * Queries of other hosts, and their replies: any bytes are refused, or a query is within its bounds and the same after
 * formatting it, and a reply has its form, which merging keeps. The first byte is the kind of the reply.
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
    check(query->kind < WEIR__QUERY_KINDS && query->bytes > 0 && query->bytes <= WEIR__QUERY_REPLY_MAX);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__query query;
    if (weir__query_parse((const char *)data, size, &query))
        check_query(&query);
    enum weir__query_kind kind = size ? data[0] % WEIR__QUERY_KINDS : 0;
    json_t *tree = size ? json_loadb((const char *)data + 1, size - 1, 0, NULL) : NULL;
    json_t *replies[] = {weir__reply_form(kind, tree, size), weir__reply_form(kind, tree, size)};
    const struct weir__host_query what = {.n = 3, .key = {"user:42", 7}};
    if (replies[0] && replies[1]) {
        weir__reply_name(kind, replies[0], "a", true);
        weir__reply_name(kind, replies[1], "b", false);
        weir__replies_merge(kind, &what, size % 2, replies, 2);
        weir__reply_name(kind, replies[0], "a", true);
        json_t *again = weir__reply_form(kind, replies[0], SIZE_MAX);
        weir__reply_name(kind, again, "a", true);
        check(json_equal(again, replies[0]));
        json_decref(again);
    }
    json_decref(replies[0]);
    json_decref(replies[1]);
    json_decref(tree);
    return 0;
}
