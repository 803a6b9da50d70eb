/*
 * Allocations come from the arena while it has room, are disjoint and aligned, and otherwise come from the C library.
 */
#include "services/http/read.c"

#include "../../test.h"

#include <string.h>

static bool is_ours(const void *piece)
{
    return (uintptr_t)piece - (uintptr_t)arena < ARENA_BYTES;
}

TEST(allocations_of_any_size_are_disjoint)
{
    static const size_t sizes[] = {1, 16, 17, 0, 100, 4096, ARENA_BYTES, 60000, 1, ARENA_BYTES - 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *piece[COUNT];
    weir__api_memory_use();
    weir__api_memory_begin();
    for (size_t i = 0; i < COUNT; i++) {
        piece[i] = arena_take(sizes[i]);
        CHECK(piece[i] != NULL);
        CHECK_EQ((uintptr_t)piece[i] % ALIGNMENT, 0);
        memset(piece[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t at = 0; at < sizes[i]; at++)
            if (piece[i][at] != i + 1)
                CHECK_EQ(piece[i][at], i + 1);
        arena_free(piece[i]);
    }
    arena_free(NULL);
    weir__api_memory_end();
}

TEST(arena_is_used_only_during_a_call)
{
    void *outside = arena_take(10);
    CHECK(!is_ours(outside));
    weir__api_memory_begin();
    arena_free(outside); /* allocated by another user of jansson */
#ifndef WEIR__SANITIZED
    void *first = arena_take(10);
    CHECK(is_ours(first));
    CHECK(is_ours(arena_take(ARENA_BYTES - 2 * ALIGNMENT)));
    void *beyond = arena_take(ALIGNMENT);
    CHECK(!is_ours(beyond));
    arena_free(beyond);
    weir__api_memory_end();
    weir__api_memory_begin();
    CHECK(arena_take(10) == first);
#endif
    weir__api_memory_end();
    void *after = arena_take(10);
    CHECK(!is_ours(after));
    arena_free(after);
}

TEST(body_larger_than_the_arena)
{
    size_t len = 3 * (size_t)ARENA_BYTES;
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
