/* Diagnostics about a source: positions, source lines, suggestions, and no control characters for the terminal. */
#include "diagnostics_collector.h"

static struct diags diags;

static void begin(const char *text)
{
    diags_begin(&diags, text, strlen(text));
}

/* ---- Positions and lines ---- */

TEST(line_is_shown)
{
    begin("first\nsecond \xc3\xbc\r\nthird\rfourth\n\nlast");
    static const char *const lines[] = {"first", "second \xc3\xbc", "third", "fourth", "", "last"};
    for (uint32_t line = 6; line >= 1; line--) /* backwards: the cached last line does not help */
        weir__report_error(&diags.report, ((struct weir__place){0, line, 1}), "x");
    for (uint32_t line = 1; line <= 6; line++)
        weir__report_warning(&diags.report, ((struct weir__place){0, line, 1}), "x");
    for (int i = 0; i < 6; i++) {
        CHECK(strcmp(diags.all[i].source, lines[5 - i]) == 0);
        CHECK(strcmp(diags.all[6 + i].source, lines[i]) == 0);
        CHECK(strcmp(diags.all[i].file, "f") == 0);
    }
    CHECK_EQ(diags.report.errors, 6);
    CHECK_EQ(diags.report.warnings, 6);
    CHECK_EQ(diags.all[0].severity, WEIR_IS_ERROR);
    CHECK_EQ(diags.all[6].severity, WEIR_IS_WARNING);
}

TEST(missing_line_is_not_shown)
{
    begin("one\ntwo");
    weir__report_error(&diags.report, ((struct weir__place){0, 0, 0}), "x");
    weir__report_error(&diags.report, ((struct weir__place){0, 3, 1}), "x");
    weir__report_error(&diags.report, ((struct weir__place){9, 1, 1}), "x"); /* no such source */
    weir__report_error(&diags.report, ((struct weir__place){0, 2, 1}), "x");
    CHECK(!diags.all[0].has_source && !diags.all[1].has_source && !diags.all[2].has_source);
    CHECK_EQ(diags.all[0].line, 0);
    CHECK(strcmp(diags.all[3].source, "two") == 0);
    diags_begin(&diags, NULL, 0);
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "x");
    CHECK_EQ(diags.count, 1);
}

TEST(line_has_a_character_for_each_column)
{
    /* tab, escape, invalid byte, CSI, a good one: five columns */
    begin("\t\x1b\xff\xc2\x9b\xc3\xbc!");
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 6}), "x");
    CHECK(strcmp(diags.all[0].source, " ???\xc3\xbc!") == 0);
}

TEST(line_is_cut)
{
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    begin(text);
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 200}), "x");
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 201}), "x");
    CHECK_EQ(strlen(diags.all[0].source), 200);
    CHECK(!diags.all[1].has_source); /* a caret would point past the end */
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "x");
    CHECK_EQ(strlen(diags.all[2].source), 198); /* cut between characters */
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
        struct weir__place place = weir__place_at(&diags.report, 0, cases[i].offset);
        CHECK_EQ(place.line, cases[i].line);
        CHECK_EQ(place.column, cases[i].column);
    }
    CHECK_EQ(weir__place_at(&diags.report, 5, 0).line, 0);
}

TEST(place_as_text)
{
    char buffer[16];
    begin("x");
    CHECK(strcmp(weir__place_text(&diags.report, (struct weir__place){0, 7, 3}, buffer, sizeof buffer), "f:7") == 0);
    CHECK(strcmp(weir__place_text(&diags.report, (struct weir__place){0, 0, 0}, buffer, sizeof buffer), "f") == 0);
    CHECK(strcmp(weir__place_text(&diags.report, (struct weir__place){4, 1, 0}, buffer, sizeof buffer), "rules:1") ==
          0);
}

/* ---- Messages ---- */

TEST(message_is_printable_whatever_is_in_it)
{
    begin("x");
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "bad %s", "\x1b]0;owned\x07");
    CHECK(strcmp(diags.all[0].message, "bad \\x1b]0;owned\\x07") == 0);
}

TEST(message_is_cut)
{
    char longer[2000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    begin("x");
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "%s", longer);
    size_t len = strlen(diags.all[0].message);
    CHECK(len < WEIR__MESSAGE_MAX && len > WEIR__MESSAGE_MAX - 16);
    CHECK(strcmp(diags.all[0].message + len - 4, "a...") == 0);
    for (size_t i = 1; i + 2 < sizeof longer; i += 2)
        memcpy(longer + i, "\xc3\xbc", 2);
    weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "%s", longer);
    len = strlen(diags.all[1].message);
    CHECK(strcmp(diags.all[1].message + len - 5, "\xc3\xbc...") == 0);
}

TEST(too_many_errors_are_reported_once)
{
    begin("x");
    for (int i = 0; i < 3 * WEIR__ERRORS_MAX; i++)
        weir__report_error(&diags.report, ((struct weir__place){0, 1, 1}), "number %d", i);
    CHECK_EQ(diags.count, WEIR__ERRORS_MAX + 1);
    CHECK(diags_is(&diags, WEIR__ERRORS_MAX - 1, 1, 1, "number 99"));
    CHECK(diags_is(&diags, WEIR__ERRORS_MAX, 0, 0, "too many errors; the rest is not shown"));
    CHECK_EQ(diags.report.errors, 3 * WEIR__ERRORS_MAX);
    weir__report_warning(&diags.report, ((struct weir__place){0, 1, 1}), "still reported");
    CHECK_EQ(diags.count, WEIR__ERRORS_MAX + 2);
    for (int i = 0; i < 2 * WEIR__ERRORS_MAX; i++)
        weir__report_warning(&diags.report, ((struct weir__place){0, 1, 1}), "x");
    CHECK_EQ(diags.count, 2 * WEIR__ERRORS_MAX + 2);
    CHECK(diags_is(&diags, diags.count - 1, 0, 0, "too many warnings"));
}

TEST(reporting_without_a_callback_is_safe)
{
    static const char *const candidates[] = {"limit"};
    struct weir__diagnostics report = {.diagnose = NULL};
    weir__report_error(&report, ((struct weir__place){0, 1, 1}), "x");
    weir__report_unknown(&report, ((struct weir__place){0, 1, 1}), WEIR__TEXT("limt"), candidates, 1, "x");
    weir__report_warning(&report, ((struct weir__place){0, 1, 1}), "x");
    CHECK_EQ(report.errors, 2);
    CHECK_EQ(report.warnings, 1);
}

/* ---- Suggestions ---- */

TEST(nearest_name_is_suggested)
{
    static const char *const candidates[] = {"limit", "window"};
    begin("x");
    weir__report_unknown(&diags.report, ((struct weir__place){0, 1, 1}), WEIR__TEXT("limmit"), candidates, 2,
                         "what is %s", "this");
    weir__report_unknown(&diags.report, ((struct weir__place){0, 1, 1}), WEIR__TEXT("zzz"), candidates, 2, "x");
    weir__report_suggest(&diags.report, ((struct weir__place){0, 1, 1}), "this", "x");
    CHECK(strcmp(diags.all[0].suggestion, "limit") == 0 && strcmp(diags.all[0].message, "what is this") == 0);
    CHECK(strcmp(diags.all[1].suggestion, "") == 0);
    CHECK(strcmp(diags.all[2].suggestion, "this") == 0);
}

TEST_MAIN
