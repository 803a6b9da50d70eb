/* A growable buffer. */
#include "base/buffer.h"
#include "../../test.h"

TEST(buffer_grows)
{
    struct weir__buffer buffer = {0};
    for (int i = 0; i < 10000; i++)
        weir__buffer_add(&buffer, "abc", 3);
    CHECK_EQ(buffer.len, 30000);
    CHECK(!buffer.failed && memcmp(buffer.data + 29997, "abc", 3) == 0);
    weir__buffer_free(&buffer);
    CHECK(!buffer.data && !buffer.len);
}

TEST(full_borrowed_memory_is_replaced_by_allocated)
{
    char memory[8];
    struct weir__buffer buffer;
    weir__buffer_borrow(&buffer, memory, sizeof memory);
    weir__buffer_add_literal(&buffer, "12345678");
    CHECK(buffer.data == memory);
    weir__buffer_printf(&buffer, "%d", 9);
    CHECK(buffer.data != memory && strcmp(buffer.data, "123456789") == 0 && buffer.len == 9);
    weir__buffer_free(&buffer);
}

TEST(failed_buffer_takes_nothing_more)
{
    char memory[8];
    struct weir__buffer buffer;
    weir__buffer_borrow(&buffer, memory, sizeof memory);
    weir__buffer_add_literal(&buffer, "1");
    CHECK(!weir__buffer_room(&buffer,
                             SIZE_MAX - 16)); /* an impossible size; realloc is not called, at which ASan would abort */
    weir__buffer_add_literal(&buffer, "2");
    CHECK(buffer.failed && buffer.len == 1);
    weir__buffer_free(&buffer);
}

TEST_MAIN
