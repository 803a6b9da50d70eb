/* What is told about a source: places, lines, words that were meant, and nothing that writes to a terminal. */
#include "told.h"

#include "base/suggest.h"

static struct told told;

static void begin(const char *text)
{
    told_begin(&told, text, strlen(text));
}

/* ---- Texts of somebody's ---- */

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
        {"\xe2\x80\xae", 3, "\\xe2\\x80\\xae"},          /* turns the text around */
        {"\xef\xbb\xbf", 3, "\\xef\\xbb\\xbf"},          /* takes no room */
        {"\xc3", 1, "\\xc3"},                            /* cut off */
        {"\xc0\x80", 2, "\\xc0\\x80"},                   /* overlong */
        {"\xe0\x80\x80", 3, "\\xe0\\x80\\x80"},          /* the same */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"}, /* beyond the last */
        {"\xff\xfe", 2, "\\xff\\xfe"},                   /* never in UTF-8 */
        {"\xe2\x82z", 3, "\\xe2\\x82z"},                 /* interrupted */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[64];
        CHECK(strcmp(weir__printable((weir_text){cases[i].text, cases[i].len}, buffer, sizeof buffer),
                     cases[i].expected) == 0);
    }
}

TEST(printable_cuts)
{
    char buffer[8];
    CHECK(strcmp(weir__printable(WEIR__TEXT("1234567"), buffer, sizeof buffer), "1234567") == 0);
    CHECK(strcmp(weir__printable(WEIR__TEXT("12345678"), buffer, sizeof buffer), "1234...") == 0);
    CHECK(strcmp(weir__printable(WEIR__TEXT("\x01\x02\x03"), buffer, sizeof buffer), "\\x01...") == 0);
    /* never inside a character */
    CHECK(strcmp(weir__printable(WEIR__TEXT("12\xe2\x82\xac\xe2\x82\xac"), buffer, sizeof buffer), "12...") == 0);
}

TEST(printable_of_anything)
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
        /* What is printable stays as it is. */
        weir__printable((weir_text){buffer, used}, again, sizeof again);
        CHECK(strcmp(buffer, again) == 0);
    }
}

/* ---- Places and lines ---- */

TEST(line_is_shown)
{
    begin("first\nsecond \xc3\xbc\r\nthird\rfourth\n\nlast");
    static const char *const lines[] = {"first", "second \xc3\xbc", "third", "fourth", "", "last"};
    for (uint32_t line = 6; line >= 1; line--) /* backwards: the line found last is no shortcut */
        weir__report_error(&told.report, (struct weir__place){0, line, 1}, "x");
    for (uint32_t line = 1; line <= 6; line++)
        weir__report_warning(&told.report, (struct weir__place){0, line, 1}, "x");
    for (int i = 0; i < 6; i++) {
        CHECK(strcmp(told.all[i].source, lines[5 - i]) == 0);
        CHECK(strcmp(told.all[6 + i].source, lines[i]) == 0);
        CHECK(strcmp(told.all[i].file, "f") == 0);
    }
    CHECK_EQ(told.report.errors, 6);
    CHECK_EQ(told.report.warnings, 6);
    CHECK_EQ(told.all[0].severity, WEIR_IS_ERROR);
    CHECK_EQ(told.all[6].severity, WEIR_IS_WARNING);
}

TEST(line_that_is_not_there)
{
    begin("one\ntwo");
    weir__report_error(&told.report, (struct weir__place){0, 0, 0}, "x");
    weir__report_error(&told.report, (struct weir__place){0, 3, 1}, "x");
    weir__report_error(&told.report, (struct weir__place){9, 1, 1}, "x"); /* no such source */
    weir__report_error(&told.report, (struct weir__place){0, 2, 1}, "x");
    CHECK(!told.all[0].has_source && !told.all[1].has_source && !told.all[2].has_source);
    CHECK_EQ(told.all[0].line, 0);
    CHECK(strcmp(told.all[3].source, "two") == 0);
    told_begin(&told, NULL, 0);
    weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "x");
    CHECK_EQ(told.count, 1);
}

TEST(line_has_a_character_for_each_column)
{
    /* tab, escape, invalid byte, CSI, a good one: five columns */
    begin("\t\x1b\xff\xc2\x9b\xc3\xbc!");
    weir__report_error(&told.report, (struct weir__place){0, 1, 6}, "x");
    CHECK(strcmp(told.all[0].source, " ???\xc3\xbc!") == 0);
}

TEST(line_is_cut)
{
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    begin(text);
    weir__report_error(&told.report, (struct weir__place){0, 1, 200}, "x");
    weir__report_error(&told.report, (struct weir__place){0, 1, 201}, "x");
    CHECK_EQ(strlen(told.all[0].source), 200);
    CHECK(!told.all[1].has_source); /* a caret would point at nothing */
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "x");
    CHECK_EQ(strlen(told.all[2].source), 198); /* whole characters */
}

TEST(place_of_a_byte)
{
    static const struct {
        const char *text;
        size_t offset;
        uint32_t line, column;
    } cases[] = {
        {"abc", 0, 1, 1},
        {"abc", 2, 1, 3},
        {"abc", 99, 1, 4},
        {"a\nb", 2, 2, 1},
        {"a\r\nb", 3, 2, 1},
        {"a\rb", 2, 2, 1},
        {"\n\n\n", 3, 4, 1},
        {"\xc3\xbcx", 2, 1, 2},
        {"\xc3\xbcx", 1, 1, 1}, /* inside a character */
        {"\xff\xffx", 2, 1, 3},
        {"\xef\xbb\xbf"
         "ab",
         4, 1, 2}, /* a byte order mark has no column */
        {"a\xc2\x85z", 3, 2, 1},
        {"a\xe2\x80\xa8z\xe2\x80\xa9y", 8, 3, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(cases[i].text);
        struct weir__place place = weir__place_at(&told.report, 0, cases[i].offset);
        CHECK_EQ(place.line, cases[i].line);
        CHECK_EQ(place.column, cases[i].column);
    }
    CHECK_EQ(weir__place_at(&told.report, 5, 0).line, 0);
}

TEST(place_as_text)
{
    char buffer[16];
    begin("x");
    CHECK(strcmp(weir__place_text(&told.report, (struct weir__place){0, 7, 3}, buffer, sizeof buffer), "f:7") == 0);
    CHECK(strcmp(weir__place_text(&told.report, (struct weir__place){0, 0, 0}, buffer, sizeof buffer), "f") == 0);
    CHECK(strcmp(weir__place_text(&told.report, (struct weir__place){4, 1, 0}, buffer, sizeof buffer), "rules:1") == 0);
}

/* ---- Messages ---- */

TEST(message_is_printable_whatever_is_in_it)
{
    begin("x");
    weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "bad %s", "\x1b]0;owned\x07");
    CHECK(strcmp(told.all[0].message, "bad \\x1b]0;owned\\x07") == 0);
}

TEST(message_is_cut)
{
    char longer[2000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    begin("x");
    weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "%s", longer);
    size_t len = strlen(told.all[0].message);
    CHECK(len < WEIR__MESSAGE_MAX && len > WEIR__MESSAGE_MAX - 16);
    CHECK(strcmp(told.all[0].message + len - 4, "a...") == 0);
    for (size_t i = 1; i + 2 < sizeof longer; i += 2)
        memcpy(longer + i, "\xc3\xbc", 2);
    weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "%s", longer);
    len = strlen(told.all[1].message);
    CHECK(strcmp(told.all[1].message + len - 5, "\xc3\xbc...") == 0);
}

TEST(too_many_are_told_once)
{
    begin("x");
    for (int i = 0; i < 3 * WEIR__ERRORS_MAX; i++)
        weir__report_error(&told.report, (struct weir__place){0, 1, 1}, "number %d", i);
    CHECK_EQ(told.count, WEIR__ERRORS_MAX + 1);
    CHECK(told_is(&told, WEIR__ERRORS_MAX - 1, 1, 1, "number 99"));
    CHECK(told_is(&told, WEIR__ERRORS_MAX, 0, 0, "too many errors; the rest is not shown"));
    CHECK_EQ(told.report.errors, 3 * WEIR__ERRORS_MAX);
    weir__report_warning(&told.report, (struct weir__place){0, 1, 1}, "still told");
    CHECK_EQ(told.count, WEIR__ERRORS_MAX + 2);
    for (int i = 0; i < 2 * WEIR__ERRORS_MAX; i++)
        weir__report_warning(&told.report, (struct weir__place){0, 1, 1}, "x");
    CHECK_EQ(told.count, 2 * WEIR__ERRORS_MAX + 2);
    CHECK(told_is(&told, told.count - 1, 0, 0, "too many warnings"));
}

TEST(nobody_listens)
{
    static const char *const words[] = {"limit"};
    struct weir__diagnostics report = {.diagnose = NULL};
    weir__report_error(&report, (struct weir__place){0, 1, 1}, "x");
    weir__report_unknown(&report, (struct weir__place){0, 1, 1}, WEIR__TEXT("limt"), words, 1, "x");
    weir__report_warning(&report, (struct weir__place){0, 1, 1}, "x");
    CHECK_EQ(report.errors, 2);
    CHECK_EQ(report.warnings, 1);
}

/* ---- Words ---- */

/* The textbook's table, whole. */
static size_t naive_distance(weir_text a, weir_text b)
{
    size_t table[32][32];
    for (size_t i = 0; i <= a.len; i++) {
        for (size_t j = 0; j <= b.len; j++) {
            if (i == 0 || j == 0) {
                table[i][j] = i + j;
                continue;
            }
            size_t best = table[i - 1][j] + 1;
            if (table[i][j - 1] + 1 < best)
                best = table[i][j - 1] + 1;
            if (table[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]) < best)
                best = table[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1] &&
                table[i - 2][j - 2] + 1 < best)
                best = table[i - 2][j - 2] + 1;
            table[i][j] = best;
        }
    }
    return table[a.len][b.len];
}

TEST(distance_is_the_textbooks)
{
    uint64_t seed = 11;
    for (int64_t run = test_scaled(200000, 1000); run > 0; run--) {
        char text[2][12], upper[12];
        weir_text words[2];
        for (int w = 0; w < 2; w++) {
            words[w] = (weir_text){text[w], test_random(&seed) % sizeof *text};
            for (size_t i = 0; i < words[w].len; i++)
                text[w][i] = (char)('a' + test_random(&seed) % 3);
        }
        size_t expected = naive_distance(words[0], words[1]), max = test_random(&seed) % 12;
        for (size_t i = 0; i < words[0].len; i++)
            upper[i] = (char)(text[0][i] - (i % 2 ? 'a' - 'A' : 0));
        CHECK_EQ(weir__edit_distance(words[0], words[1], 99), expected);
        CHECK_EQ(weir__edit_distance((weir_text){upper, words[0].len}, words[1], max),
                 expected > max ? max + 1 : expected);
    }
}

TEST(nearest_word)
{
    static const char *const words[] = {"limit", "limits", "window", "algorithm", "on_missing_key", "s", "key"};
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"limt", "limit"},
        {"imit", "limit"},
        {"limtis", "limits"},
        {"Limit", "limit"},
        {"widnow", "window"},
        {"windwo", "window"},
        {"algoritm", "algorithm"},
        {"algoritmh", "algorithm"},
        {"onmissingkey", "on_missing_key"},
        {"kye", "key"},
        {"kex", "key"},
        {"kxx", NULL},
        {"x", NULL}, /* not everything with one letter is meant to be another */
        {"", NULL},
        {"entirely", NULL},
        {"wnidwo", "window"},
        {"wxxxow", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_text word = {cases[i].word, strlen(cases[i].word)};
        const char *nearest = weir__suggest(word, words, sizeof words / sizeof *words);
        CHECK(nearest ? cases[i].expected && strcmp(nearest, cases[i].expected) == 0 : !cases[i].expected);
    }
    char longest[WEIR__SUGGEST_MAX + 2];
    memset(longest, 'a', sizeof longest);
    CHECK(!weir__suggest((weir_text){longest, sizeof longest}, words, 7));
    CHECK(!weir__suggest(WEIR__TEXT("limit"), words, 0));
}

TEST(word_is_suggested)
{
    static const char *const words[] = {"limit", "window"};
    begin("x");
    weir__report_unknown(&told.report, (struct weir__place){0, 1, 1}, WEIR__TEXT("limmit"), words, 2, "what is %s",
                         "this");
    weir__report_unknown(&told.report, (struct weir__place){0, 1, 1}, WEIR__TEXT("zzz"), words, 2, "x");
    weir__report_suggest(&told.report, (struct weir__place){0, 1, 1}, "this", "x");
    CHECK(strcmp(told.all[0].suggestion, "limit") == 0 && strcmp(told.all[0].message, "what is this") == 0);
    CHECK(strcmp(told.all[1].suggestion, "") == 0);
    CHECK(strcmp(told.all[2].suggestion, "this") == 0);
}

/* ---- Memory ---- */

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
    for (int i = 0; i < 300; i++) /* none lies in another */
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(kept[i][j] == (i & 0x7f));
    CHECK(!arena.failed);
    CHECK(arena.bytes < (size_t)20 << 20);
    weir__arena_free(&arena);
    CHECK_EQ(arena.bytes, 0);
}

TEST(arena_is_bounded_and_stays_failed)
{
    struct weir__arena arena = {.bytes_max = 100000};
    size_t taken = 0;
    while (weir__arena_take(&arena, 1000))
        taken += 1000;
    CHECK(taken > 90000 && arena.bytes <= 100000); /* the bound is used, not only kept */
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
