/* Memory that is allocated piece by piece and freed at once. */
#include "base/arena.h"
#include "../../test.h"

TEST(arena_gives_zeroed_aligned_memory)
{
    struct weir__arena arena = {0};
    uint64_t seed = 3;
    char *kept[300];
    size_t sizes[300];
    for (int i = 0; i < 300; i++) {
        sizes[i] = i % 50 == 49 ? (size_t)2 << 20 : test_random(&seed) % 5000;
        kept[i] = weir__arena_take(&arena, sizes[i]);
        CHECK(kept[i] && (uintptr_t)kept[i] % 16 == 0);
        if (!kept[i])
            return;
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(kept[i][j] == 0);
        memset(kept[i], i & 0x7f, sizes[i]);
    }
    for (int i = 0; i < 300; i++) /* no block overlaps another */
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(kept[i][j] == (i & 0x7f));
    CHECK(!arena.failed);
    CHECK(arena.bytes < (size_t)20 << 20);
    weir__arena_free(&arena);
    CHECK_EQ(arena.bytes, 0);
}

TEST(arena_begins_in_borrowed_memory)
{
    struct weir__arena arena = {.bytes_max = 10000};
    char first[100];
    memset(first, '#', sizeof first);
    weir__arena_borrow(&arena, first + 1, sizeof first - 1);
    char *inside = weir__arena_take(&arena, 10);
    CHECK(inside > first && inside + 10 <= first + sizeof first && (uintptr_t)inside % 16 == 0 && inside[9] == 0);
    CHECK_EQ(arena.bytes, 0);
    const char *outside = weir__arena_take(&arena, 100);
    CHECK(outside && (outside < first || outside >= first + sizeof first) && arena.bytes >= 100);
    weir__arena_free(&arena);
    for (size_t size = 0; size < 48; size++) { /* too small, or just large enough, for a block */
        arena = (struct weir__arena){.bytes_max = 10000};
        weir__arena_borrow(&arena, first + 3, size);
        CHECK(weir__arena_take(&arena, 16));
        weir__arena_free(&arena);
    }
}

TEST(arena_is_bounded_and_stays_failed)
{
    struct weir__arena arena = {.bytes_max = 100000};
    size_t taken = 0;
    while (weir__arena_take(&arena, 1000))
        taken += 1000;
    CHECK(taken > 90000 && arena.bytes <= 100000); /* the bound is nearly used up, not only respected */
    CHECK(arena.failed);
    CHECK(!weir__arena_take(&arena, 1));
    CHECK(!weir__arena_copy(&arena, WEIR__TEXT("x")).data);
    weir__arena_free(&arena);

    struct weir__arena other = {0};
    CHECK(!weir__arena_array(&other, SIZE_MAX / 2, 3) && other.failed);
    other.failed = false;
    CHECK(!weir__arena_take(&other, SIZE_MAX) && other.failed);
    other.failed = false;
    weir_text copy = weir__arena_copy(&other, WEIR__TEXT("abc"));
    CHECK(strcmp(copy.data, "abc") == 0 && copy.len == 3);
    copy = weir__arena_copy(&other, (weir_text){NULL, 0});
    CHECK(copy.data && copy.len == 0 && copy.data[0] == 0);
    weir__arena_free(&other);
}

TEST_MAIN
