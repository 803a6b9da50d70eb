/* UTF-8, and untrusted text in messages. */
#include "base/text.h"
#include "../../test.h"

TEST(utf8_is_decoded)
{
    static const struct {
        const char *text;
        uint32_t point; /* 0: not UTF-8 */
    } cases[] = {{"a", 'a'},
                 {"\xc3\xa4", 0xe4},
                 {"\xe2\x82\xac", 0x20ac},
                 {"\xf0\x9f\x98\x80", 0x1f600},
                 {"\xf4\x8f\xbf\xbf", 0x10ffff},
                 {"\xf4\x90\x80\x80", 0}, /* above the last code point */
                 {"\xc0\xaf", 0},         /* overlong */
                 {"\xe0\x9f\xbf", 0},
                 {"\xed\xa0\x80", 0}, /* a surrogate */
                 {"\x80", 0},
                 {"\xff", 0},
                 {"\xc3", 0},
                 {"\xe2\x82", 0}};
    uint32_t point;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_text text = weir__text_of(cases[i].text);
        CHECK_EQ(weir__utf8_decode(text.data, text.len, &point), cases[i].point ? text.len : 0);
        CHECK(!cases[i].point || point == cases[i].point);
        CHECK_EQ(weir__utf8_valid(text), cases[i].point != 0);
    }
    CHECK_EQ(weir__utf8_decode("", 0, &point), 0);
    CHECK(weir__utf8_valid((weir_text){NULL, 0}));
    CHECK(weir__utf8_valid(WEIR__TEXT("a\xc3\xa4z")) && !weir__utf8_valid(WEIR__TEXT("a\xc3z")));
}

TEST(printable_escapes)
{
    static const struct {
        const char *text;
        size_t len;
        const char *expected;
    } cases[] = {
        {"plain", 5, "plain"},
        {"", 0, ""},
        {"a\tb\nc", 5, "a\\tb\\nc"},
        {"\x1b[31m", 5, "\\x1b[31m"},
        {"a\0b", 3, "a\\x00b"},
        {"\x7f", 1, "\\x7f"},
        {"gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80", 7, "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc2\x9b", 2, "\\xc2\\x9b"},                   /* CSI as one character */
        {"\xe2\x80\xae", 3, "\\xe2\\x80\\xae"},          /* reverses the direction of the text */
        {"\xef\xbb\xbf", 3, "\\xef\\xbb\\xbf"},          /* has no width */
        {"\xc3", 1, "\\xc3"},                            /* truncated */
        {"\xc0\x80", 2, "\\xc0\\x80"},                   /* overlong */
        {"\xe0\x80\x80", 3, "\\xe0\\x80\\x80"},          /* overlong */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"}, /* above the last code point */
        {"\xff\xfe", 2, "\\xff\\xfe"},                   /* never in UTF-8 */
        {"\xe2\x82z", 3, "\\xe2\\x82z"},                 /* interrupted sequence */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[64];
        CHECK(strcmp(weir__printable((weir_text){cases[i].text, cases[i].len}, buffer, sizeof buffer),
                     cases[i].expected) == 0);
    }
}

TEST(printable_is_cut_between_characters)
{
    char buffer[8];
    CHECK(strcmp(weir__printable(WEIR__TEXT("1234567"), buffer, sizeof buffer), "1234567") == 0);
    CHECK(strcmp(weir__printable(WEIR__TEXT("12345678"), buffer, sizeof buffer), "1234...") == 0);
    CHECK(strcmp(weir__printable(WEIR__TEXT("\x01\x02\x03"), buffer, sizeof buffer), "\\x01...") == 0);
    /* never inside a character */
    CHECK(strcmp(weir__printable(WEIR__TEXT("12\xe2\x82\xac\xe2\x82\xac"), buffer, sizeof buffer), "12...") == 0);
}

TEST(printable_of_random_bytes)
{
    uint64_t seed = 7;
    for (int64_t run = test_scaled(200000, 1000); run > 0; run--) {
        char text[24], buffer[32], again[40];
        size_t len = test_random(&seed) % sizeof text, size = 8 + test_random(&seed) % (sizeof buffer - 7);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)(test_random(&seed) & (i % 3 ? 0xff : 0xbf));
        memset(buffer, 'x', sizeof buffer);
        weir__printable((weir_text){text, len}, buffer, size);
        size_t used = strnlen(buffer, size);
        CHECK(used < size);
        for (size_t i = 0; i < used; i++)
            CHECK((unsigned char)buffer[i] >= 0x20 && buffer[i] != 0x7f);
        /* Printable text stays unchanged. */
        weir__printable((weir_text){buffer, used}, again, sizeof again);
        CHECK(strcmp(buffer, again) == 0);
    }
}

TEST(base64url_there_and_back)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {{"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
                 {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xfe", "-__-"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16];
        uint8_t bytes[16];
        size_t len = strlen(cases[i].bytes), written = weir__write_base64url(text, cases[i].bytes, len);
        CHECK(written == strlen(cases[i].text) && strcmp(text, cases[i].text) == 0);
        CHECK_EQ(weir__read_base64url((weir_text){text, written}, bytes, len), len);
        CHECK(memcmp(bytes, cases[i].bytes, len) == 0);
        CHECK_EQ(weir__read_base64url((weir_text){text, written}, bytes, len - (len > 0)), 0);
    }
    static const char *const wrong[] = {"Z", "Zm9vY", "Zg==", "Zm 8", "+//+", "Zm9v\n", "Zm\xff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t bytes[16];
        CHECK_EQ(weir__read_base64url((weir_text){wrong[i], strlen(wrong[i])}, bytes, sizeof bytes), 0);
    }
}

TEST(labels_are_escaped)
{
    char to[8];
    weir__escape_label(WEIR__TEXT("a\\\"\n"), to, sizeof to);
    CHECK(strcmp(to, "a\\\\\\\"\\n") == 0);
    weir__escape_label(WEIR__TEXT("a\0b"), to, sizeof to);
    CHECK(strcmp(to, "ab") == 0);
    weir__escape_label(WEIR__TEXT("\"\"\"\""), to, sizeof to); /* no half of an escape */
    CHECK(strcmp(to, "\\\"\\\"\\\"") == 0);
}

TEST_MAIN
