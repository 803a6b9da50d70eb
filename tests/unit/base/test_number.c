/* Numbers as text. */
#include "base/number.h"
#include "../../test.h"

TEST(int_from_text)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"7", 7},
                {"-7", -7},
                {"-0", 0},
                {"4294967295", 4294967295},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      "01",
                                      "-01",
                                      "00",
                                      "0x10",
                                      "1_000",
                                      "1e3",
                                      "1.0",
                                      " 1",
                                      "1 ",
                                      "1a",
                                      "--1",
                                      "1-",
                                      "0o7",
                                      "a",
                                      ".5",
                                      "1,000",
                                      "inf",
                                      "٣",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = 99;
        CHECK(weir__parse_int((weir_text){good[i].text, strlen(good[i].text)}, &value));
        CHECK_EQ(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value = 99;
        CHECK(!weir__parse_int((weir_text){bad[i], strlen(bad[i])}, &value));
        CHECK_EQ(value, 99);
    }
}

TEST(int_from_any_number)
{
    uint64_t seed = 5;
    for (int64_t run = test_scaled(100000, 1000); run > 0; run--) {
        char text[32];
        int64_t number = (int64_t)(test_random(&seed) >> (test_random(&seed) % 64)), value = 0;
        number = run % 2 ? number : -number;
        snprintf(text, sizeof text, "%" PRId64, number);
        CHECK(weir__parse_int((weir_text){text, strlen(text)}, &value));
        CHECK_EQ(value, number);
    }
}

TEST(int_is_written)
{
    static const int64_t numbers[] = {0, 1, 9, 10, 99, 100, 4294967295, 4294967296, -1, -10, INT64_MAX, INT64_MIN};
    uint64_t seed = 7;
    for (int64_t run = test_scaled(100000, 1000); run > 0; run--) {
        char text[WEIR__INT_TEXT_MAX + 1], expected[WEIR__INT_TEXT_MAX + 1];
        int64_t number = (int64_t)(test_random(&seed) >> (test_random(&seed) % 64)) * (run % 2 ? 1 : -1);
        if (run <= (int64_t)(sizeof numbers / sizeof *numbers))
            number = numbers[run - 1];
        *weir__write_int(text, number) = 0;
        snprintf(expected, sizeof expected, "%" PRId64, number);
        CHECK(strcmp(text, expected) == 0);
    }
}

TEST_MAIN
