/* YAML as a tree with positions; and everything that is refused, with its position and in bounded time. */
#include "diagnostics_collector.h"

#include <time.h>

static struct diags diags;

static const struct weir__node *read_bytes(const char *text, size_t len)
{
    diags_end(&diags);
    diags_begin(&diags, text, len);
    return weir__yaml_read(0, &diags.arena, &diags.report);
}

static const struct weir__node *read_text(const char *text)
{
    return read_bytes(text, strlen(text));
}

static bool is_at(const struct weir__node *node, uint32_t line, uint32_t column)
{
    return node && node->place.source == 0 && node->place.line == line && node->place.column == column;
}

/* ---- Valid files ---- */

TEST(tree_has_positions)
{
    const struct weir__node *root = read_text("# comment\n"
                                              "rules:\n"
                                              "  - name: a b\n"
                                              "    limit: 5\n"
                                              "  - [x, 'y', \"z\\u00e9\"]\n"
                                              "  -\n"
                                              "empty:\n"
                                              "gr\xc3\xbc\xc3\x9f: { k: v }\n");
    CHECK(root && root->kind == WEIR__MAP && root->count == 3 && is_at(root, 2, 1));
    const struct weir__node *rules = weir__node_get(root, "rules");
    CHECK(rules && rules->kind == WEIR__LIST && rules->count == 3 && is_at(rules, 3, 3) && is_at(rules->name, 2, 1));
    const struct weir__node *rule = rules->first;
    CHECK(rule->kind == WEIR__MAP && rule->count == 2 && !rule->name);
    const struct weir__node *name = weir__node_get(rule, "name"), *limit = weir__node_get(rule, "limit");
    CHECK(weir__text_is(name->text, "a b") && !name->quoted && is_at(name, 3, 11) && name->next == limit);
    CHECK(weir__text_is(limit->text, "5") && is_at(limit, 4, 12) && !limit->next && limit->text.data[1] == 0);
    const struct weir__node *list = rule->next;
    CHECK(list->count == 3 && weir__text_is(list->first->text, "x") && !list->first->quoted);
    CHECK(list->first->next->quoted && weir__text_is(list->first->next->next->text, "z\xc3\xa9"));
    CHECK(list->next->kind == WEIR__SCALAR && list->next->text.len == 0 && !list->next->quoted && !list->next->next);
    CHECK(weir__text_is(weir__node_get(root, "empty")->text, ""));
    CHECK(is_at(weir__node_get(weir__node_get(root, "gr\xc3\xbc\xc3\x9f"), "k"), 8, 12)); /* columns are characters */
    CHECK(!weir__node_get(root, "none") && !weir__node_get(list, "x") && !weir__node_get(NULL, "x"));
    CHECK_EQ(diags.count, 0);
}

TEST(forms_of_text)
{
    const struct weir__node *root = read_text("a: |\n  one\n  two\nb: >\n  one\n  two\nc: one\n  two\n? d\n: e\n");
    CHECK(weir__text_is(weir__node_get(root, "a")->text, "one\ntwo\n") && weir__node_get(root, "a")->quoted);
    CHECK(weir__text_is(weir__node_get(root, "b")->text, "one two\n"));
    CHECK(weir__text_is(weir__node_get(root, "c")->text, "one two"));
    CHECK(weir__text_is(weir__node_get(root, "d")->text, "e"));
    root = read_text("--- 'x'\n...\n");
    CHECK(root && root->kind == WEIR__SCALAR && weir__text_is(root->text, "x"));
    CHECK(read_text("%YAML 1.1\n---\na: 1\n"));
    CHECK(read_text("'<<': 1\n")); /* quoted, it is an ordinary text */
    CHECK(read_text("a: '&x'\nb: '*x'\nc: '!x'\n"));
    CHECK(read_text("a: 1\r\nb: 2\r\n") && diags.count == 0);
}

TEST(node_kinds)
{
    static const char *const cases[][2] = {
        {"[]", "a list"},    {"{}", "a map"},           {"'x'", "text"},   {"x", "text"},      {"''", "text"},
        {"~", "null"},       {"null", "null"},          {"5", "a number"}, {"-5", "a number"}, {"0.5", "a number"},
        {"1.2.3.4", "text"}, {"true", "true or false"}, {"'5'", "text"},   {"-", "nothing"},   {"1e3", "text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        snprintf(text, sizeof text, "- %s\n", cases[i][0]);
        const struct weir__node *root = read_text(text);
        const struct weir__node *node = root->first;
        CHECK(strcmp(weir__node_is(node->kind == WEIR__LIST && node->first ? node->first : node), cases[i][1]) == 0);
    }
}

TEST(byte_order_mark)
{
    const struct weir__node *root = read_text("\xef\xbb\xbf"
                                              "a: 1\nb: 2\n");
    CHECK(root && root->count == 2 && is_at(root->first, 1, 4));
    CHECK(!read_text("\xef\xbb\xbf"
                     "a: \xff\n"));
    CHECK(diags_is(&diags, 0, 1, 4, "not valid UTF-8"));
    CHECK(strcmp(diags.all[0].source, "a: ?") == 0);
}

/* ---- Refused files ---- */

TEST(errors_have_their_position)
{
    static const struct {
        const char *text;
        int line, column;
        const char *message;
    } cases[] = {
        {"", 0, 0, "the file is empty"},
        {"# only this\n\n", 0, 0, "the file is empty"},
        {"---\n", 0, 0, "the file is empty"},
        {"\xef\xbb\xbf", 0, 0, "the file is empty"},
        {"a: 1\n---\nb: 2\n", 2, 1, "a second document begins here"},
        {"a: 1\n...\n---\nb: 2\n", 3, 1, "a second document begins here"},
        {"a: &x 1\n", 1, 4, "anchors (&name) are not supported"},
        {"a: &x [1]\n", 1, 4, "anchors (&name) are not supported"},
        {"a: &x {b: 1}\n", 1, 4, "anchors (&name) are not supported"},
        {"a:\n  - *x\n", 2, 5, "aliases (*name) are not supported"},
        {"a: *\n", 1, 4, "text that begins with '*' must be in quotes"},
        {"a: *.example.com\n", 1, 4, "text that begins with '*' must be in quotes"},
        {"a: &\n", 1, 4, "text that begins with '&' must be in quotes"},
        {"a: !x 1\n", 1, 4, "tags (!name) are not supported"},
        {"a: !!int 1\n", 1, 4, "tags (!name) are not supported"},
        {"a: ! 1\n", 1, 4, "tags (!name) are not supported"},
        {"a: !!map {b: 1}\n", 1, 4, "tags (!name) are not supported"},
        {"a: !!seq [1]\n", 1, 4, "tags (!name) are not supported"},
        {"a: !<x 1\n", 1, 4, "text that begins with '!' must be in quotes"},
        {"a: !u!x 1\n", 1, 4, "text that begins with '!' must be in quotes"},
        {"%TAG !u! x\n---\na: 1\n", 1, 1, "tags are not supported"},
        {"a: 1\n...\n%TAG !u! x\n---\na: 1\n", 3, 1, "tags are not supported"},
        {"%FOO\n---\na: 1\n", 1, 1, "a line that begins with '%' is a directive"},
        {"%YAML 3.0\n---\na: 1\n", 1, 1, "a version of YAML that is not known"},
        {"a: 1\n<<: {b: 2}\n", 2, 1, "merges (<<) are not supported"},
        {"a: 1\n[b]: 2\n", 2, 1, "a key must be a text, not a list"},
        {"a: 1\n? {b: c}\n: 2\n", 2, 3, "a key must be a text, not a map"},
        {"{? : 1}\n", 1, 4, "there is no key before the ':'"},
        {"a: 1\nb: 2\na: 3\n", 3, 1, "\"a\" is here a second time: it is already on line 1"},
        {"{a: 1, 'a': 2}\n", 1, 8, "\"a\" is here a second time: it is already on line 1"},
        {"a:\n\tb: 1\n", 2, 1, "YAML does not allow tabs for indentation"},
        {"a: 1\n\tb: 1\n", 2, 1, "YAML does not allow tabs for indentation"},
        {"a:\n  b: 1\n  \tc: 1\n", 3, 3, "YAML does not allow tabs for indentation"},
        {"a:\n  b: 'x'\n\tc: 1\n", 3, 1, "YAML does not allow tabs for indentation"},
        {"a: |\n\tb\n", 2, 1, "YAML does not allow tabs for indentation"},
        {"a:\n  - b\n\t- c\n", 3, 1, "YAML does not allow tabs for indentation"},
        {"a: \"b\nc: d\n", 1, 4, "this quote is never closed"},
        {"a: 'b\n---\n", 1, 4, "this quote is never closed"},
        {"a: [1, 2\n", 1, 4, "this is never closed"},
        {"a: {b: 2\n", 1, 4, "this is never closed"},
        {"a: [1, 2\nb: 1\n", 2, 2, "expected ',' or ']': the list that begins on line 1 is open"},
        {"a: {b: 1\nc: 2}\n", 2, 2, "expected ',' or '}': the map that begins on line 1 is open"},
        {"a: { k: ${ip}, b: 1 }\n", 1, 10, "text that contains '{' or '[' must be in quotes"},
        {"a: { \xc3\xa9: /a/{id} }\n", 1, 12, "text that contains '{' or '[' must be in quotes"},
        {"a: { b: \"c\" {d: e} }\n", 1, 13, "expected ',' or '}': the map that begins on line 1 is open"},
        {"a: [/x[0-9]]\n", 1, 7, "text that contains '{' or '[' must be in quotes"},
        {"a: [1, , 2]\n", 1, 8, "a value or a closing bracket is missing here"},
        {"a: [\n", 2, 1, "a value or a closing bracket is missing here"},
        {"a: b: c\n", 1, 5, "a ':' is not allowed here"},
        {"a: 1\n b: 2\n", 2, 3, "a ':' is not allowed here"},
        {"a: - b\n", 1, 4, "a list item ('- ') is not allowed here"},
        {"a:\n  b: 1\n c: 2\n", 3, 2, "expected the next key of the map that begins on line 1"},
        {"- a\nb: 1\n", 2, 1, "expected the next '- ' of the list that begins on line 1"},
        {"a: 1\nfoo\n", 2, 1, "this looks like a key"},
        {"{a: 1}}\n", 1, 7, "this does not belong to what is before it"},
        {"a: @b\n", 1, 4, "text that begins with '@' must be in quotes"},
        {"a: `b`\n", 1, 4, "text that begins with '`' must be in quotes"},
        {"a: \"\\d\"\n", 1, 5, "this is no escape that YAML knows"},
        {"a: \"\\xzz\"\n", 1, 7, "hexadecimal digits"},
        {"a: \"\\ud800\"\n", 1, 7, "this escape is no Unicode character"},
        {"a: \"\\0\"\n", 1, 4, "a zero byte (\\0) is not allowed in a text"},
        {"a: |x\n", 1, 5, "the text begins on the next line"},
        {"a: 1\nb: \x01\n", 2, 4,
         "control character U+0001 is not allowed; in double quotes it can be written \"\\x01\""},
        {"a: \x7f\n", 1, 4, "control character U+007F"},
        {"a: \xef\xbf\xbf\n", 1, 4,
         "control character U+FFFF is not allowed; in double quotes it can be written \"\\uffff\""},
        {"a: 1\n\xc3\xbc: \xff\n", 2, 4, "not valid UTF-8"},
        {"a: \xc3", 1, 4, "not valid UTF-8"},
        {"a: \xed\xa0\x80\n", 1, 4, "not valid UTF-8"},
        {"\xff\xfe", 1, 1, "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool refused = !read_text(cases[i].text);
        bool right = refused && diags_is(&diags, 0, cases[i].line, cases[i].column, cases[i].message);
        if (!right || diags.count != 1)
            printf("  for: %s\n", cases[i].text);
        CHECK(right);
        CHECK_EQ(diags.count, 1);
        CHECK_EQ(diags.report.errors, 1);
    }
}

TEST(zero_byte_is_refused)
{
    CHECK(!read_bytes("a: 1\nb\0: 2\n", 11));
    CHECK(diags_is(&diags, 0, 2, 2, "there is a zero byte"));
    CHECK(!read_bytes("\0", 1));
    CHECK(diags_is(&diags, 0, 1, 1, "there is a zero byte"));
}

TEST(recoverable_errors_are_all_reported)
{
    CHECK(!read_text("a: &x 1\nb: *x\nc: !t 1\n<<: {d: 1}\na: 2\nl: [*x, *y]\nm: {b: 1, b: 2}\n"));
    CHECK_EQ(diags.count, 8);
    CHECK(diags_is(&diags, 0, 1, 4, "anchors"));
    CHECK(diags_is(&diags, 5, 6, 9, "aliases"));
    CHECK(diags_is(&diags, 6, 7, 11, "\"b\" is here a second time"));
    CHECK(diags_is(&diags, 7, 5, 1, "\"a\" is here a second time"));
}

TEST(error_in_one_source_does_not_fail_the_next)
{
    struct weir__source two[2] = {{"bad", WEIR__TEXT("a: [")}, {"good", WEIR__TEXT("a: 1")}};
    diags_end(&diags);
    diags_begin(&diags, NULL, 0);
    diags.report.sources = two;
    diags.report.source_count = 2;
    CHECK(!weir__yaml_read(0, &diags.arena, &diags.report));
    const struct weir__node *root = weir__yaml_read(1, &diags.arena, &diags.report);
    CHECK(root && root->place.source == 1);
    CHECK(strcmp(diags.all[0].file, "bad") == 0 && diags.count == 1);
}

/* ---- Bounds ---- */

TEST(nesting_is_bounded)
{
    char text[2 * (WEIR__YAML_DEPTH + 1) + 1] = "";
    for (int depth = WEIR__YAML_DEPTH; depth <= WEIR__YAML_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        CHECK(!read_bytes(text, 2 * (size_t)depth) == (depth > WEIR__YAML_DEPTH));
    }
    CHECK(diags_is(&diags, 0, 1, WEIR__YAML_DEPTH + 1, "nested deeper than 32 levels"));
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

enum { TEN_MB = 10 << 20 };

/* Ten megabytes of a repeated piece. */
static char *fill(const char *piece)
{
    char *text = malloc(TEN_MB);
    for (size_t i = 0, len = strlen(piece); i < TEN_MB; i++)
        text[i] = piece[i % len];
    return text;
}

TEST(ten_megabytes_are_read_in_bounded_time)
{
    static const struct {
        const char *piece;
        int line, column;
        const char *message;
    } cases[] = {
        {"[", 1, 33, "nested deeper"},
        {"[\n", 33, 1, "nested deeper"},
        {"{a: ", 1, 129, "nested deeper"},
        {"- ", 1, 65, "nested deeper"},
        {"? ", 1, 3, "a key must be a text"},
        {"*a, ", 1, 1, "aliases"},
        {"%TAG !a! b\n", 1, 1, "tags are not supported"},
        {"%", 1, 1, "directive"},
        {"#", 0, 0, "the file is empty"},
        {" ", 0, 0, "the file is empty"},
        {"\n", 0, 0, "the file is empty"},
        {"\"", 1, 3, "does not belong"},
        {"---\n", 2, 1, "a second document"},
        {"[],", 1, 3, "does not belong"},
        {"\xff", 1, 1, "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = fill(cases[i].piece);
        double start = seconds();
        CHECK(!read_bytes(text, TEN_MB));
        CHECK(diags_is(&diags, 0, cases[i].line, cases[i].column, cases[i].message));
        CHECK(seconds() - start < 5); /* some hundredths, but sanitizers and emulation are slow */
        CHECK(diags.arena.bytes < 1 << 20);
        free(text);
    }
}

TEST(ten_megabytes_of_nested_maps)
{
    char *text = malloc(TEN_MB);
    size_t used = 0;
    for (size_t indent = 0; used + indent + 3 <= TEN_MB; indent++) {
        memset(text + used, ' ', indent);
        used += indent;
        text[used++] = 'a';
        text[used++] = ':';
        text[used++] = '\n';
    }
    CHECK(!read_bytes(text, used));
    CHECK(diags_is(&diags, 0, 33, 33, "nested deeper than 32 levels"));
    free(text);
}

TEST(file_size_is_bounded)
{
    size_t size = ((size_t)16 << 20) + 1;
    char *text = malloc(size);
    memset(text, '#', size);
    CHECK(!read_bytes(text, size));
    CHECK(diags_is(&diags, 0, 0, 0, "the file is larger than 16 MiB"));
    CHECK(!read_bytes(text, size - 1));
    CHECK(diags_is(&diags, 0, 0, 0, "the file is empty"));
    free(text);
}

TEST(memory_is_bounded)
{
    char *text = fill(",a");
    text[0] = '[';
    diags_end(&diags);
    diags_begin(&diags, text, TEN_MB);
    diags.arena.bytes_max = 1 << 20;
    CHECK(!weir__yaml_read(0, &diags.arena, &diags.report));
    CHECK(diags.arena.failed && diags.arena.bytes <= 1 << 20);
    CHECK_EQ(diags.count, 1);
    CHECK(diags_is(&diags, 0, 0, 0, "there is not enough memory to read the file"));
    free(text);
}

/* ---- Duplicate keys ---- */

TEST(a_hundred_thousand_keys)
{
    enum { COUNT = 100000 };
    char *text = malloc(COUNT * 16 + 16);
    size_t used = 0;
    for (int i = 0; i < COUNT; i++)
        used += (size_t)sprintf(text + used, "key%d: 1\n", i);
    double start = seconds();
    const struct weir__node *root = read_bytes(text, used);
    CHECK(root && root->count == COUNT);
    used += (size_t)sprintf(text + used, "key4711: 2\n");
    CHECK(!read_bytes(text, used));
    CHECK(diags_is(&diags, 0, COUNT + 1, 1, "\"key4711\" is here a second time: it is already on line 4712"));
    CHECK_EQ(diags.count, 1);
    used = 0;
    for (int i = 0; i < COUNT; i++)
        used += (size_t)sprintf(text + used, "k: 1\n");
    CHECK(!read_bytes(text, used));
    CHECK_EQ(diags.report.errors, COUNT - 1);
    CHECK_EQ(diags.count, WEIR__ERRORS_MAX + 1);
    CHECK(seconds() - start < 10); /* comparing each with each would take minutes */
    free(text);
}

/* Random maps against a pairwise comparison; duplicates are reported in the order of the file. */
TEST(duplicates_in_random_maps)
{
    uint64_t seed = 17;
    for (int64_t run = test_scaled(3000, 100); run > 0; run--) {
        char text[600];
        int keys[40], count = (int)(test_random(&seed) % 40), kinds = (int)(test_random(&seed) % 60) + 1, expected = 0;
        size_t used = (size_t)sprintf(text, "first: 1\n");
        for (int i = 0; i < count; i++) {
            keys[i] = (int)(test_random(&seed) % (uint64_t)kinds);
            used += (size_t)sprintf(text + used, "k%d: 1\n", keys[i]);
        }
        const struct weir__node *root = read_bytes(text, used);
        for (int i = 0; i < count; i++) {
            int before = 0;
            while (keys[before] != keys[i])
                before++;
            if (before == i)
                continue;
            char message[32];
            snprintf(message, sizeof message, "already on line %d", before + 2);
            CHECK(diags_is(&diags, expected++, i + 2, 1, message));
        }
        CHECK_EQ(diags.count, expected);
        CHECK(!root == (expected > 0));
    }
}

/* ---- Random input ---- */

/* Every node is reachable and has a position in the file, and the counts are right. Recursion is bounded. */
static void check_tree(const struct weir__node *node, int depth)
{
    size_t count = 0;
    CHECK(depth <= WEIR__YAML_DEPTH && node->place.line > 0 && node->place.column > 0);
    CHECK(node->kind != WEIR__SCALAR || (node->text.data[node->text.len] == 0 && !node->first));
    for (const struct weir__node *member = node->first; member; member = member->next, count++) {
        CHECK(!member->name == (node->kind == WEIR__LIST));
        check_tree(member, depth + 1);
    }
    CHECK_EQ(node->count, count);
}

TEST(random_text_never_crashes)
{
    static const char *const pieces[] = {"a",  "b: ", "- ",    "\n", "\n  ", "[",        "]",    "{",    "}",   ", ",
                                         ": ", "'",   "\"",    "&x", "*x",   "!t ",      "<<: ", "#",    "|\n", ">",
                                         "\t", "?",   "---\n", "%",  "\\",   "\xc3\xbc", "\xff", "\x01", "5",   "~"};
    uint64_t seed = 29;
    int good = 0, bad = 0;
    for (int64_t run = test_scaled(30000, 1000); run > 0; run--) {
        char text[128];
        size_t used = 0;
        for (uint64_t count = test_random(&seed) % 24; count > 0; count--) {
            /* mostly pieces that make sense together */
            size_t kinds = test_random(&seed) % 4 ? 11 : sizeof pieces / sizeof *pieces;
            const char *piece = pieces[test_random(&seed) % kinds];
            used += (size_t)sprintf(text + used, "%s", piece);
        }
        const struct weir__node *root = read_bytes(text, used);
        CHECK(!root == (diags.report.errors > 0));
        for (int i = 0; i < diags.count; i++)
            CHECK(diags.all[i].message[0] && diags.all[i].line >= 0 && diags.all[i].line < 128);
        if (root)
            check_tree(root, 0);
        good += root != NULL;
        bad += root == NULL;
    }
    CHECK(good > bad / 50 && bad > good / 50);
}

TEST_MAIN
