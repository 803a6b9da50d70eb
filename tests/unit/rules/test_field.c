/* Typed fields: which values are accepted, and the diagnostics for the others. */
#include "diagnostics_collector.h"

#include "rules/yaml.h"

static struct diags diags;

#define S  INT64_C(1000000000)
#define MS (S / 1000)
#define D  (86400 * S)

/* The value of "x" in the map that `yaml` is. */
static const struct weir__node *field(const char *yaml)
{
    diags_end(&diags);
    diags_begin(&diags, yaml, strlen(yaml));
    const struct weir__node *root = weir__yaml_read(0, &diags.arena, &diags.report);
    const struct weir__node *node = root ? weir__node_get(root, "x") : NULL;
    if (!node) {
        printf("  no field in: %s\n", yaml);
        exit(1);
    }
    return node;
}

/* Whether exactly one error was reported, with this message and suggestion ("": none). */
static bool only_diag_is(const char *message, const char *suggestion)
{
    if (diags.count == 1 && strcmp(diags.all[0].message, message) == 0 &&
        strcmp(diags.all[0].suggestion, suggestion) == 0)
        return true;
    for (int i = 0; i < diags.count; i++)
        printf("  reported: %s [%s]\n", diags.all[i].message, diags.all[i].suggestion);
    printf("  not:  %s [%s]\n", message, suggestion);
    return false;
}

/* ---- Numbers ---- */

TEST(int_field)
{
    static const struct {
        const char *yaml, *message;
    } bad[] = {
        {"x: [1]", "limit must be a number from 0 to 4294967295, not a list"},
        {"x: {a: 1}", "limit must be a number from 0 to 4294967295, not a map"},
        {"x:", "limit must be a number from 0 to 4294967295, not nothing"},
        {"x: null", "limit must be a number from 0 to 4294967295, not null"},
        {"x: ~", "limit must be a number from 0 to 4294967295, not null"},
        {"x: many", "limit must be a number from 0 to 4294967295, not \"many\""},
        {"x: true", "limit must be a number from 0 to 4294967295, not true"},
        {"x: \"5\"", "limit is text because of its quotes; remove them"},
        {"x: '-5'", "limit is text because of its quotes; remove them"},
        {"x: \"\"", "limit must be a number from 0 to 4294967295, not \"\""},
        {"x: 'five'", "limit must be a number from 0 to 4294967295, not \"five\""},
        {"x: -1", "limit must be a number from 0 to 4294967295, not -1"},
        {"x: 4294967296", "limit must be a number from 0 to 4294967295, not 4294967296"},
        {"x: 99999999999999999999", "limit must be a number from 0 to 4294967295, not 99999999999999999999"},
        {"x: 0x10", "limit must be a number from 0 to 4294967295, not \"0x10\"; write it in decimal, without zeros or "
                    "0x before it"},
        {"x: 010", "limit must be a number from 0 to 4294967295, not 010; write it in decimal, without zeros or 0x "
                   "before it"},
        {"x: 0o10", "limit must be a number from 0 to 4294967295, not \"0o10\"; write it in decimal, without zeros or "
                    "0x before it"},
        {"x: 1_000", "limit must be a number from 0 to 4294967295, not \"1_000\"; write its digits without anything "
                     "between them"},
        {"x: 1,000", "limit must be a number from 0 to 4294967295, not \"1,000\"; write its digits without anything "
                     "between them"},
        {"x: 1e3", "limit must be a number from 0 to 4294967295, not \"1e3\"; write it as a whole number"},
        {"x: 1.5", "limit must be a number from 0 to 4294967295, not 1.5; write it as a whole number"},
        {"x: +5", "limit must be a number from 0 to 4294967295, not \"+5\"; leave the '+' out"},
        {"x: 5/s", "limit must be a number from 0 to 4294967295, not \"5/s\""},
        {"x: \"\\e[1m\"", "limit must be a number from 0 to 4294967295, not \"\\x1b[1m\""},
    };
    int64_t value = 42;
    CHECK(weir__field_int(field("x: 17"), "limit", 0, UINT32_MAX, &value));
    CHECK_EQ(value, 17);
    CHECK(weir__field_int(field("x: 0"), "limit", 0, UINT32_MAX, &value));
    CHECK_EQ(value, 0);
    CHECK(weir__field_int(field("x: -3"), "limit", -3, 3, &value));
    CHECK_EQ(value, -3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!weir__field_int(field(bad[i].yaml), "limit", 0, UINT32_MAX, &value));
        CHECK(only_diag_is(bad[i].message, ""));
        CHECK_EQ(value, -3);
    }
}

TEST(percent_field)
{
    static const struct {
        const char *yaml;
        int value;
    } good[] = {{"x: 10%", 10}, {"x: 10", 10}, {"x: 0", 0}, {"x: '10%'", 10}, {"x: \"10\"", 10}, {"x: 1000%", 1000}};
    static const char *const bad[] = {"x: 1001%", "x: -1%", "x: '%'", "x: 10 %", "x: 1.5%", "x: ten",
                                      "x:",       "x: [1]", "x: {}",  "x: 010",  "x: 10%%"};
    int value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(weir__field_percent(field(good[i].yaml), "soft", &value));
        CHECK_EQ(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        value = 77;
        CHECK(!weir__field_percent(field(bad[i]), "soft", &value));
        CHECK(diags_is(&diags, 0, 1, i == 6 ? 3 : 4, "soft must be a percentage from 0% to 1000%, not "));
        CHECK_EQ(value, 77);
    }
}

/* ---- Booleans, choices, names, texts ---- */

TEST(bool_field)
{
    static const struct {
        const char *yaml, *message, *suggestion;
    } bad[] = {
        {"x: yes", "shadow must be true or false, not \"yes\"", "true"},
        {"x: on", "shadow must be true or false, not \"on\"", "true"},
        {"x: True", "shadow must be true or false, not \"True\"", "true"},
        {"x: TRUE", "shadow must be true or false, not \"TRUE\"", "true"},
        {"x: no", "shadow must be true or false, not \"no\"", "false"},
        {"x: Off", "shadow must be true or false, not \"Off\"", "false"},
        {"x: 1", "shadow must be true or false, not 1", "true"},
        {"x: 0", "shadow must be true or false, not 0", "false"},
        {"x: 'true'", "shadow is text because of its quotes; remove them", ""},
        {"x: \"false\"", "shadow is text because of its quotes; remove them", ""},
        {"x: maybe", "shadow must be true or false, not \"maybe\"", ""},
        {"x: 2", "shadow must be true or false, not 2", ""},
        {"x:", "shadow must be true or false, not nothing", ""},
        {"x: [true]", "shadow must be true or false, not a list", ""},
    };
    bool value = false;
    CHECK(weir__field_bool(field("x: true"), "shadow", &value) && value);
    CHECK(weir__field_bool(field("x: false"), "shadow", &value) && !value);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!weir__field_bool(field(bad[i].yaml), "shadow", &value) && !value);
        CHECK(only_diag_is(bad[i].message, bad[i].suggestion));
    }
}

TEST(choice_field)
{
    static const char *const choices[] = {"skip", "deny", "share", NULL}, *const one[] = {"skip", NULL};
    int value = 9;
    CHECK(weir__field_choice(field("x: deny"), "on_missing_key", choices, &value));
    CHECK_EQ(value, 1);
    CHECK(weir__field_choice(field("x: 'share'"), "on_missing_key", choices, &value));
    CHECK_EQ(value, 2);
    CHECK(!weir__field_choice(field("x: dney"), "on_missing_key", choices, &value));
    CHECK(only_diag_is("on_missing_key must be skip, deny or share, not \"dney\"", "deny"));
    CHECK(!weir__field_choice(field("x: Skip"), "on_missing_key", choices, &value));
    CHECK(only_diag_is("on_missing_key must be skip, deny or share, not \"Skip\"", "skip"));
    CHECK(!weir__field_choice(field("x: [skip]"), "on_missing_key", choices, &value));
    CHECK(only_diag_is("on_missing_key must be skip, deny or share, not a list", ""));
    CHECK(!weir__field_choice(field("x:"), "on_missing_key", choices, &value));
    CHECK(only_diag_is("on_missing_key must be skip, deny or share, not nothing", ""));
    CHECK(!weir__field_choice(field("x: a"), "align", one, &value));
    CHECK(only_diag_is("align must be skip, not \"a\"", ""));
    CHECK_EQ(value, 2);
}

TEST(choice_field_with_many_choices)
{
    static const char *choices[201];
    int value;
    for (size_t i = 0; i < 200; i++)
        choices[i] = "some-word";
    CHECK(!weir__field_choice(field("x: y"), "field", choices, &value));
    CHECK_EQ(diags.count, 1);
}

TEST(unknown_names)
{
    static const char *const names[] = {"name", "limit", "window"};
    const struct weir__node *map = field("x: {name: a, limt: 5, window: 1, 'zz\\': 2, \"\\e\": 3}");
    CHECK(weir__field_names(map, "a rule", names, 3));
    CHECK_EQ(diags.count, 3);
    CHECK(diags_is(&diags, 0, 1, 14, "a rule has no field \"limt\""));
    CHECK(strcmp(diags.all[0].suggestion, "limit") == 0);
    CHECK(diags_is(&diags, 1, 1, 34, "a rule has no field \"zz\\\""));
    CHECK(strcmp(diags.all[1].suggestion, "") == 0);
    CHECK(diags_is(&diags, 2, 1, 44, "a rule has no field \"\\x1b\""));
    CHECK(weir__field_names(field("x: {}"), "a rule", names, 3) && diags.count == 0);
    CHECK(!weir__field_names(field("x: [name]"), "a rule", names, 3));
    CHECK(only_diag_is("a rule must be a map such as { name: … }, not a list", ""));
    CHECK(!weir__field_names(field("x: name"), "a rule", names, 3));
    CHECK(only_diag_is("a rule must be a map such as { name: … }, not text", ""));
    CHECK(!weir__field_names(field("x:"), "a rule", names, 3));
    CHECK(only_diag_is("a rule must be a map such as { name: … }, not nothing", ""));
}

TEST(text_field)
{
    weir_text value = {NULL, 0};
    CHECK(weir__field_text(field("x: abc def"), "name", &value) && weir__text_is(value, "abc def"));
    CHECK(weir__field_text(field("x: 12"), "name", &value) && weir__text_is(value, "12"));
    CHECK(weir__field_text(field("x: ''"), "name", &value) && value.len == 0 && value.data);
    CHECK(weir__field_text(field("x: 'null'"), "name", &value) && weir__text_is(value, "null"));
    CHECK(!weir__field_text(field("x: null"), "name", &value));
    CHECK(only_diag_is("name must be text, not null", ""));
    CHECK(!weir__field_text(field("x:"), "name", &value));
    CHECK(only_diag_is("name must be text, not nothing", ""));
    CHECK(!weir__field_text(field("x: [a]"), "name", &value));
    CHECK(only_diag_is("name must be text, not a list", ""));
}

/* ---- Windows ---- */

TEST(window_field)
{
#define ALLOWED "window must be seconds, or a number with ms, s, m, h, d, w, mo or y, such as 30s or 1h, not "
    static const struct {
        const char *yaml, *message, *suggestion;
    } bad[] = {
        {"x: 1min", ALLOWED "\"1min\"", "1m"},
        {"x: 5 minutes", ALLOWED "\"5 minutes\"", "5m"},
        {"x: 1 hour", ALLOWED "\"1 hour\"", "1h"},
        {"x: 1H", ALLOWED "\"1H\"", "1h"},
        {"x: 10 Secs", ALLOWED "\"10 Secs\"", "10s"},
        {"x: day", ALLOWED "\"day\"", "1d"},
        {"x: 1 h", ALLOWED "\"1 h\"", "1h"},
        {"x: 1.5 hours", ALLOWED "\"1.5 hours\"", "1.5h"},
        {"x: 1month", ALLOWED "\"1month\"", "1mo"},
        {"x: 100 millis", ALLOWED "\"100 millis\"", "100ms"},
        {"x: 1M", "window is \"1M\"; write 1mo for months or 1m for minutes", ""},
        {"x: 3 M", "window is \"3 M\"; write 3mo for months or 3m for minutes", ""},
        {"x: 1fortnight", ALLOWED "\"1fortnight\"", ""},
        {"x: often", ALLOWED "\"often\"", ""},
        {"x: 99999 hours", ALLOWED "\"99999 hours\"", ""},
        {"x: 30m1h", ALLOWED "\"30m1h\"", ""},
        {"x: 1e3", ALLOWED "\"1e3\"", ""},
        {"x: [1h]", ALLOWED "a list", ""},
        {"x: {h: 1}", ALLOWED "a map", ""},
        {"x:", ALLOWED "nothing", ""},
        {"x: ''", ALLOWED "nothing", ""},
        {"x: 0", "window must be longer than zero", ""},
        {"x: 0s", "window must be longer than zero", ""},
        {"x: -1h", "window must be longer than zero, not -1h", ""},
        {"x: -1", "window must be longer than zero, not -1", ""},
        {"x: 2y", "window must be at most 400 days, not 2y", ""},
        {"x: 0.0000000001", "window is finer than a nanosecond", ""},
    };
    struct weir__parsed_window window;
    CHECK(weir__field_window(field("x: 90"), "window", &window) && window.ns == 90 * S);
    CHECK(weir__field_window(field("x: '1h'"), "window", &window) && window.ns == 3600 * S);
    CHECK(weir__field_window(field("x: \"90\""), "window", &window) && window.ns == 90 * S);
    CHECK(weir__field_window(field("x: 1mo"), "window", &window) && window.calendar);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        window.ns = 77;
        CHECK(!weir__field_window(field(bad[i].yaml), "window", &window));
        CHECK(only_diag_is(bad[i].message, bad[i].suggestion));
        CHECK_EQ(window.ns, 77);
    }
}

/* ---- Tables ---- */

enum color { RED, GREEN, BLUE };

struct table {
    const struct weir__node *node;
    weir_text text;
    const char *string;
    bool flag, chosen;
    int64_t wide, bytes, age_ms;
    int narrow;
    uint16_t percent;
    uint8_t small;
    enum color color;
    struct weir__place place;
    int read;
};

static bool read_twice(void *context, const struct weir__node *node, const char *what, void *to)
{
    int64_t number;
    if (!weir__field_int(node, what, 1, 9, &number))
        return false;
    *(int *)to = (int)number * *(const int *)context;
    return true;
}

#define IN(member) WEIR__IN(struct table, member)

static const char *const colors[] = {"red", "green", "blue", NULL}, *const replies[] = {"no", "yes", NULL};
static const struct weir__field inner[] = {
    {"small", WEIR__FIELD_INT, IN(small), .max = 255},
    {"wide", WEIR__FIELD_INT, IN(wide), .min = -5, .max = INT64_MAX},
};
static const struct weir__field table[] = {
    {"node", WEIR__FIELD_NODE, IN(node)},
    {"text", WEIR__FIELD_TEXT, IN(text), .max = 5, .or_null = true},
    {"string", WEIR__FIELD_STRING, IN(string), .place = offsetof(struct table, place)},
    {"flag", WEIR__FIELD_BOOL, IN(flag)},
    {"chosen", WEIR__FIELD_CHOICE, IN(chosen), .choices = replies},
    {"narrow", WEIR__FIELD_INT, IN(narrow), .min = -9, .max = 9, .what = "the narrow one"},
    {"percent", WEIR__FIELD_PERCENT, IN(percent), .min = 1, .max = 300},
    {"color", WEIR__FIELD_CHOICE, IN(color), .min = GREEN, .choices = colors},
    {"bytes", WEIR__FIELD_SIZE, IN(bytes), .min = 1024},
    {"age", WEIR__FIELD_AGE, IN(age_ms)},
    {"inner", WEIR__FIELD_MAP, WEIR__MAP_OF(inner)},
    {"read", WEIR__FIELD_READ, IN(read), .read = read_twice},
    {.name = "skipped"},
};

static bool table_reads(const char *yaml, struct table *to)
{
    int twice = 2;
    *to = (struct table){.wide = 7, .text = {"-", 1}};
    return weir__fields_read(field(yaml), "a thing", WEIR__LIST_OF(table), to, &twice);
}

TEST(tables_read_fields_of_all_types)
{
    struct table t;
    CHECK(table_reads("x: {read: 4, node: [1], text: abc, string: def, flag: true, chosen: yes, narrow: -9,\n"
                      "    percent: 300%, color: red, bytes: 2KiB, age: 2.5s, inner: {small: 255}, skipped: [] }",
                      &t));
    CHECK_EQ(diags.count, 0);
    CHECK(t.node && t.node->kind == WEIR__LIST);
    CHECK(weir__text_is(t.text, "abc") && strcmp(t.string, "def") == 0);
    CHECK(t.place.line == 1 && t.place.column == 44);
    CHECK(t.flag && t.chosen && t.color == GREEN); /* `min` and the index */
    CHECK(t.narrow == -9 && t.percent == 300 && t.small == 255 && t.wide == 7);
    CHECK(t.bytes == 2048 && t.age_ms == 2500 && t.read == 8);
    CHECK(table_reads("x: {text: null}", &t) && weir__text_is(t.text, "-"));
    CHECK(table_reads("x: {}", &t) && diags.count == 0);
}

TEST(tables_report_what_is_wrong)
{
    static const char *const bad[][2] = {
        {"x: {texd: a}", "a thing has no field \"texd\""},
        {"x: {inner: {text: a}}", "inner has no field \"text\""},
        {"x: {inner: 1}", "inner must be a map such as { small: … }, not a number"},
        {"x: {text: abcdef}", "text is longer than 5 bytes"},
        {"x: {string: null}", "string must be text, not null"},
        {"x: {narrow: 10}", "the narrow one must be a number from -9 to 9, not 10"},
        {"x: {percent: 301}", "percent is 1% to 300%, not 301%"},
        {"x: {percent: 0}", "percent is 1% to 300%, not 0%"},
        {"x: {bytes: 1}", "bytes must be at least 1KiB"},
        {"x: {read: 10}", "read must be a number from 1 to 9, not 10"},
        {"x: []", "a thing must be a map such as { node: … }, not a list"},
    };
    struct table t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!table_reads(bad[i][0], &t));
        CHECK_EQ(diags.count, 1);
        CHECK(strcmp(diags.all[0].message, bad[i][1]) == 0);
        if (strcmp(diags.all[0].message, bad[i][1]) != 0)
            printf("  %s: %s\n", bad[i][0], diags.all[0].message);
    }
    CHECK(!table_reads("x: {narrow: a, flag: 1, nope: 2, text: abc}", &t));
    CHECK_EQ(diags.count, 3);
    CHECK(weir__text_is(t.text, "abc")); /* the others are read all the same */
}

TEST(tables_take_the_first_field_alone)
{
    struct table t = {.wide = 7};
    CHECK(weir__fields_or_first(field("x: 12"), "a thing", WEIR__LIST_OF(inner), &t, NULL) && t.small == 12);
    CHECK(weir__fields_or_first(field("x: {wide: 3}"), "a thing", WEIR__LIST_OF(inner), &t, NULL) && t.wide == 3);
    CHECK(!weir__fields_or_first(field("x: 256"), "a thing", WEIR__LIST_OF(inner), &t, NULL));
    CHECK(only_diag_is("small must be a number from 0 to 255, not 256", ""));
}

TEST_MAIN
