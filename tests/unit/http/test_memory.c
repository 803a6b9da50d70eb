/* Pieces come from the room while there is some, are apart and aligned, and are the C library's else. */
#include "services/http/memory.c"

#include "../../test.h"

#include <string.h>

static bool is_ours(const void *piece)
{
    return (uintptr_t)piece - (uintptr_t)room < ROOM;
}

TEST(pieces_of_any_size_are_apart)
{
    static const size_t sizes[] = {1, 16, 17, 0, 100, 4096, ROOM, 60000, 1, ROOM - 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *piece[COUNT];
    weir__api_memory_use();
    weir__api_memory_begin();
    for (size_t i = 0; i < COUNT; i++) {
        piece[i] = take(sizes[i]);
        CHECK(piece[i] != NULL);
        CHECK_EQ((uintptr_t)piece[i] % ALIGN, 0);
        memset(piece[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t at = 0; at < sizes[i]; at++)
            if (piece[i][at] != i + 1)
                CHECK_EQ(piece[i][at], i + 1);
        give(piece[i]);
    }
    give(NULL);
    weir__api_memory_end();
}

TEST(only_a_call_has_the_room)
{
    void *outside = take(10);
    CHECK(!is_ours(outside));
    weir__api_memory_begin();
    give(outside); /* of another user of jansson */
#ifndef WEIR__SANITIZED
    void *first = take(10);
    CHECK(is_ours(first));
    CHECK(is_ours(take(ROOM - 2 * ALIGN)));
    void *beyond = take(ALIGN);
    CHECK(!is_ours(beyond));
    give(beyond);
    weir__api_memory_end();
    weir__api_memory_begin();
    CHECK(take(10) == first);
#endif
    weir__api_memory_end();
    void *after = take(10);
    CHECK(!is_ours(after));
    give(after);
}

TEST(a_body_longer_than_the_room)
{
    size_t len = 3 * (size_t)ROOM;
    char *text = malloc(len + 8);
    CHECK(text != NULL);
    memcpy(text, "{\"a\":\"", 6);
    memset(text + 6, 'x', len);
    memcpy(text + 6 + len, "\"", 1);
    text[7 + len] = '}';
    weir__api_memory_use();
    weir__api_memory_begin();
    json_t *root = json_loadb(text, len + 8, 0, NULL);
    CHECK_EQ(json_string_length(json_object_get(root, "a")), len);
    json_decref(root);
    weir__api_memory_end();
    free(text);
}

TEST_MAIN
