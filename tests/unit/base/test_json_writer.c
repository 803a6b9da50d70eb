/* JSON strings and numbers. */
#include "base/json_writer.h"
#include "../../test.h"

TEST(any_bytes_become_valid_json)
{
    char room[16];
    struct weir__buffer out;
    weir__buffer_borrow(&out, room, sizeof room);
    weir__json_add_string(&out, (weir_text){"a\"\\\n\x7f\xff\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\x80\xc3", 19});
    weir__buffer_add(&out, "", 1);
    CHECK(
        strcmp(out.data,
               "\"a\\\"\\\\\\u000a\\u007f\\ufffd\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\\ufffd\\ufffd\\ufffd\\ufffd\"") ==
        0);
    weir__buffer_free(&out);
    static const struct {
        int64_t ns;
        const char *text;
    } seconds[] = {{-1, "null"},
                   {0, "0"},
                   {1, "0.001"},
                   {WEIR_SECOND, "1"},
                   {1500 * 1000000, "1.5"},
                   {WEIR_SECOND - 1, "1"},
                   {12010 * INT64_C(1000000), "12.01"}};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        weir__buffer_borrow(&out, room, sizeof room);
        weir__json_add(&out, "%n", seconds[i].ns);
        weir__buffer_add(&out, "", 1);
        CHECK(strcmp(out.data, seconds[i].text) == 0);
        weir__buffer_free(&out);
    }
}

TEST(format_stands_for_values)
{
    char room[8];
    struct weir__buffer out;
    weir__buffer_borrow(&out, room, sizeof room);
    weir__json_add(&out, "%s,%s,%s,[%t,%d", "", NULL, "a\"", WEIR__TEXT(""), INT64_MIN);
    weir__json_add(&out, ",%b,%b,%n,%n]", true, false, INT64_C(1250000000), INT64_C(-1));
    weir__buffer_add(&out, "", 1);
    CHECK(strcmp(out.data, "null,null,\"a\\\"\",[\"\",-9223372036854775808,true,false,1.25,null]") == 0);
    weir__buffer_free(&out);
}

TEST(string_is_cut_between_characters)
{
    static const struct {
        size_t room;
        const char *expected;
    } cases[] = {{2, "\"\""},
                 {3, "\"a\""},
                 {4, "\"a\""},
                 {5, "\"a\xc3\xa4\""},
                 {6, "\"a\xc3\xa4\""},
                 {10, "\"a\xc3\xa4\""},
                 {11, "\"a\xc3\xa4\\u0001\""},
                 {12, "\"a\xc3\xa4\\u0001z\""},
                 {20, "\"a\xc3\xa4\\u0001z\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32] = "";
        char *end = weir__json_put_string(text, cases[i].room, WEIR__TEXT("a\xc3\xa4\1z"));
        CHECK((size_t)(end - text) <= cases[i].room);
        CHECK(strcmp(text, cases[i].expected) == 0);
    }
}

TEST_MAIN
