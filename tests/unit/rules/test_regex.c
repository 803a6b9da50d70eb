/* Regular expressions: what they match, which are refused and where, and that time and memory are bounded. */
#include "rules/pattern.h"

#include "../../test.h"

/* ---- Counting allocations, also those inside PCRE2 ---- */

static int64_t allocations;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
/* Declared here: gcc has the function, but not the header. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *block, size_t bytes),
                                              void (*on_free)(const volatile void *block));

static void count_malloc(const volatile void *block, size_t bytes)
{
    (void)block, (void)bytes;
    allocations++;
}

static void count_free(const volatile void *block)
{
    (void)block;
}

__attribute__((constructor)) static void count_allocations(void)
{
    __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
}
#else
/* The C library's functions under their other names; the ones defined here are what every library of the process
 * calls. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t bytes)
{
    allocations++;
    return __libc_realloc(block, bytes);
}
#endif

/* ---- Compiling ---- */

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static struct weir__arena arena;
static char message[512];
static int message_column;

static void keep_message(void *context, const weir_diagnostic *diagnostic)
{
    (void)context;
    snprintf(message, sizeof message, "%s", diagnostic->message);
    message_column = (int)diagnostic->column;
}

static const struct weir__regex *compile(const char *text, bool nocase)
{
    static const char line[] = "path: { regex: '' }";
    struct weir__source source = {"rules.yaml", {line, sizeof line - 1}};
    struct weir__diagnostics report = {.diagnose = keep_message, .sources = &source, .source_count = 1};

    message[0] = '\0';
    message_column = 0;
    const struct weir__regex *regex =
        weir__regex_compile(text_of(text), nocase, &arena, &report, (struct weir__place){0, 1, 5});
    CHECK_EQ(report.errors, regex == NULL);
    return regex;
}

static struct weir__matching matching;

static bool matches(const char *pattern, bool nocase, weir_text text)
{
    const struct weir__regex *regex = compile(pattern, nocase);
    struct weir__pattern compiled = {.kind = WEIR__PATTERN_REGEX, .regex = regex};

    if (!regex) {
        printf("  %s: %s\n", pattern, message);
        test_failures++;
        return false;
    }
    matching = (struct weir__matching){.regex_scratch = weir__regex_scratch_make()};
    bool found = weir__pattern_match(&compiled, text, false, &matching);
    weir__regex_scratch_free(matching.regex_scratch);
    weir__regex_free(regex);
    weir__arena_free(&arena);
    return found;
}

TEST(expressions)
{
    CHECK(matches("^/v[0-9]+/", false, text_of("/v12/items")));
    CHECK(!matches("^/v[0-9]+/", false, text_of("/va/items")));
    CHECK(matches("items", false, text_of("/v12/items/7"))); /* not anchored */
    CHECK(!matches("Items", false, text_of("/v12/items/7")));
    CHECK(matches("Items", true, text_of("/v12/iTEMS/7")));
    CHECK(matches("^(a|b)(c|d)\\1$", false, text_of("ada"))); /* more groups than the match data keeps */
    CHECK(matches("", false, text_of("")));
    CHECK(matches("^$", false, (weir_text){NULL, 0}));
    CHECK(!matches("x", false, (weir_text){NULL, 0}));
    CHECK_EQ(matching.limited, 0);
}

TEST(texts_are_bytes_and_one_line)
{
    CHECK(!matches("^/a$", false, text_of("/a\n")));
    CHECK(matches("^/a.*z$", false, text_of("/a\nz")));
    CHECK(matches("^.\xff.$", false, text_of("\xc3\xff\x80")));
    CHECK(matches("^a\\x00b$", false, (weir_text){"a\0b", 3}));
}

/* A truncated text counts as matching, unless its beginning rules a match out or shows one. */
TEST(truncated_text_counts_as_matching)
{
    static const struct {
        const char *regex;
        bool matches, known;
    } cases[] = {{"b", true, false},  {"c", true, false},      {"^a*b$", true, false}, {"a$", true, false},
                 {"^b", false, true}, {"^a{5}b", false, true}, {"^aaa", true, true},   {"aab|aaa", true, true}};
    static char text[WEIR__REGEX_SUBJECT_MAX + 1];

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQ(matches(cases[i].regex, false, (weir_text){text, sizeof text}), cases[i].matches);
        CHECK_EQ(matching.limited == 0, cases[i].known);
    }
    CHECK(!matches("b", false, (weir_text){text, sizeof text - 1}));
    CHECK_EQ(matching.limited, 0);
}

TEST(errors_have_their_position)
{
    static char long_one[1002], nested[200];
    static const char *const wrong[][2] = {
        {"a(b", "parenthesis"}, {"a[b", "character class"},   {"*a", "quantifier"},
        {"ab)", "parenthesis"}, {"a{5000000}", "too big"},    {"\\C", "\\C"},
        {"(*UTF)a", "UTF"},     {"(?P<n>a)(?P<n>b)", "name"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(compile(wrong[i][0], false) == NULL);
        bool right =
            strstr(message, wrong[i][1]) && message_column >= 5 && message_column <= 5 + (int)strlen(wrong[i][0]);
        if (!right && ++test_failures <= TEST_PRINTED)
            printf("  %s: column %d: %s\n", wrong[i][0], message_column, message);
    }
    CHECK(compile("abcdefg(h", false) == NULL);
    CHECK_EQ(message_column, 5 + 9);
    memset(long_one, 'a', sizeof long_one - 1);
    CHECK(compile(long_one, false) == NULL);
    CHECK(strstr(message, "longer") != NULL);
    memset(nested, '(', 60);
    memset(nested + 60, ')', 60);
    CHECK(compile(nested, false) == NULL);
    CHECK(compile("((((a{1000}){1000}){1000}){1000})", false) == NULL); /* short, but large once compiled */
    weir__arena_free(&arena);
}

TEST(allocation_failure_is_an_error)
{
    struct weir__arena none = {.bytes_max = 1};
    struct weir__diagnostics report = {0};

    CHECK(weir__regex_compile(text_of("a"), false, &none, &report, (struct weir__place){0}) == NULL);
    CHECK_EQ(report.errors, 1);
    weir__arena_free(&none);
    weir__regex_free(NULL);
    weir__regex_scratch_free(NULL);
}

/* ---- Bounds ---- */

TEST(reaching_a_bound_counts_as_matching)
{
    static const char *const tiring[] = {"(a+)+$", "^(a+)+$", "^(a|a)*$",     "^(?:a?){50}a{50}$", "a*a*a*a*c?$b",
                                         "\\w+x",  "^(.)*cc", "(?:a|(?R))+c", "^(?:(a)|b)*$"};
    static const char end[] = {
        '!', 'x', 'c', 'b'}; /* the last characters of the expressions, without which PCRE2 would not start matching */
    static char text[WEIR__REGEX_SUBJECT_MAX];

    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - sizeof end, end, sizeof end);
    for (size_t i = 0; i < sizeof tiring / sizeof *tiring; i++) {
        CHECK(matches(tiring[i], false, (weir_text){text, sizeof text}));
        CHECK_EQ(matching.limited, 1);
        if (matching.limited != 1)
            printf("  %s\n", tiring[i]);
    }
    /* The same expressions do not reach the bound on a short text. */
    CHECK(!matches("^(a|a)*$", false, text_of("aaaa!")));
    CHECK_EQ(matching.limited, 0);
    /* Nor do expressions with one star, however long the text. */
    CHECK(!matches("^a.*bc", false, (weir_text){text, sizeof text}));
    CHECK(!matches("x.*b!", false, (weir_text){text, sizeof text}));
    CHECK_EQ(matching.limited, 0);
}

TEST(match_without_scratch_memory_counts_as_matching)
{
    const struct weir__regex *regex = compile("b", false);
    struct weir__matching none = {0};

    CHECK(weir__regex_match(regex, text_of("a"), false, &none));
    CHECK_EQ(none.limited, 1);
    weir__regex_free(regex);
    weir__arena_free(&arena);
}

TEST(no_match_allocates)
{
    static const char *const patterns[] = {"^/v[0-9]+/", "^(?:(a)|b)*$",    "(a+)+$",
                                           "^(a|aa)+b",  "((((a)|b)c)|d)+", "(?=(a+))\\1+x"};
    enum { COUNT = sizeof patterns / sizeof *patterns };
    const struct weir__regex *regexes[COUNT];
    static char text[WEIR__REGEX_SUBJECT_MAX];
    struct weir__matching one = {.regex_scratch = weir__regex_scratch_make()};

    CHECK(one.regex_scratch != NULL);
    for (size_t i = 0; i < COUNT; i++)
        regexes[i] = compile(patterns[i], false);
    memset(text, 'a', sizeof text);
    int64_t before = allocations, found = 0;
    for (size_t round = 0; round < 200; round++)
        for (size_t i = 0; i < COUNT; i++)
            found += weir__regex_match(regexes[i], (weir_text){text, round * 20}, false, &one);
    CHECK_EQ(allocations - before, 0);
    CHECK(found > 0 && found < 200 * COUNT);
    CHECK(one.limited > 0); /* so the scratch memory was exhausted at times, and reused */
    CHECK(!weir__regex_match(regexes[0], text_of("/vx"), false, &one));
    for (size_t i = 0; i < COUNT; i++)
        weir__regex_free(regexes[i]);
    weir__arena_free(&arena);
    weir__regex_scratch_free(one.regex_scratch);

    before = allocations;
    weir__regex_scratch_free(weir__regex_scratch_make());
    CHECK(allocations > before); /* the allocation counter works */
}

TEST_MAIN
