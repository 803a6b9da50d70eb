/*
 * Requests that nginx passes to the queue's ingest: any input is refused, or the result lies in its own memory, fits
 * the queue's bounds, and has none of the headers that must not be stored. Lines of the input are the headers.
 */
#include "queue/ingest_internal.h"
#include "rules/key.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES 64

static void check(bool holds)
{
    if (!holds)
        abort();
}

static weir_text line_of(weir_text *rest)
{
    const char *end = memchr(rest->data, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len, skip = len + (end != NULL);
    weir_text line = {rest->data, len};
    *rest = (weir_text){rest->data + skip, rest->len - skip};
    return line;
}

static void check_item(const struct weir__deferred *item)
{
    static const weir_text never[] = {WEIR__TEXT("connection"), WEIR__TEXT("transfer-encoding"),
                                      WEIR__TEXT("x-weir-key")};
    char tier[WEIR__TIER_MAX + 1];
    weir_text rest = item->headers, name;
    check(item->rule.len > 0 && item->rule.len <= WEIR_NAME_MAX && item->key.len > 0 && item->key.len <= WEIR__KEY_MAX);
    check(item->rule.data[item->rule.len] == 0 && item->cost >= 0 && item->target.data[0] == '/' && item->method.len);
    check(weir__deferred_tier(item, tier).len <= WEIR__TIER_MAX);
    while (rest.len) {
        weir_text line = line_of(&rest);
        const char *colon = memchr(line.data, ':', line.len);
        check(colon && line.data[line.len - 1] == '\r');
        name = (weir_text){line.data, (size_t)(colon - line.data)};
        for (size_t i = 0; i < sizeof never / sizeof *never; i++)
            check(!weir__text_equal_nocase(name, never[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"content-type", "x-*"};
    const struct weir__queue_config queue = {.headers = names, .header_count = 2};
    struct weir__header_line lines[LINES];
    weir_text fields[WEIR__INGEST_COUNT], rest = {(const char *)data, size};
    struct weir__deferred item;
    struct weir__queue_bounds bounds = {0};
    size_t count = 0;
    char *room;
    for (size_t i = 0; i < WEIR__INGEST_COUNT; i++)
        fields[i] = rest.len ? line_of(&rest) : (weir_text){NULL, 0};
    while (rest.len && count < LINES) {
        weir_text line = line_of(&rest);
        const char *colon = memchr(line.data, ':', line.len);
        if (!colon || memchr(line.data, '\r', line.len))
            continue; /* not what a server takes for a header */
        size_t len = (size_t)(colon - line.data);
        lines[count++] = (struct weir__header_line){{line.data, len}, {colon + 1, line.len - len - 1}};
    }
    if (!weir__ingest_read_request(&queue, fields, lines, count, &item, &bounds, &room))
        check_item(&item);
    else
        check(!room);
    free(room);
    return 0;
}
