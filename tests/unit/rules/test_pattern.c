/* Patterns: the kind that a text compiles to, examples of globs, and random globs against a brute-force model. */
#include "rules/pattern.h"

#include "../../test.h"

#include <time.h>

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static void check_glob(bool expected, const char *pattern, const char *text, bool path, bool nocase, int line)
{
    bool got = weir__glob_match(text_of(pattern), text_of(text), path, nocase);
    if (got != expected && ++test_failures <= TEST_PRINTED)
        printf("  %s:%d: '%s' %s '%s'\n", __FILE__, line, pattern, got ? "matches" : "does not match", text);
}

#define MATCHES(pattern, text)      check_glob(true, pattern, text, false, false, __LINE__)
#define DIFFERS(pattern, text)      check_glob(false, pattern, text, false, false, __LINE__)
#define PATH_MATCHES(pattern, text) check_glob(true, pattern, text, true, false, __LINE__)
#define PATH_DIFFERS(pattern, text) check_glob(false, pattern, text, true, false, __LINE__)

TEST(globs_of_texts)
{
    MATCHES("", "");
    DIFFERS("", "a");
    DIFFERS("a", "");
    MATCHES("*", "");
    MATCHES("*", "a/b");
    MATCHES("a*", "a");
    MATCHES("a*c", "abc");
    DIFFERS("a*c", "abd");
    MATCHES("*.example.com", "a.b.example.com");
    DIFFERS("*.example.com", "example.com");
    MATCHES("a**b", "ab");
    MATCHES("curl/*", "curl/8.0/x");
    DIFFERS("?", "a"); /* only the star is special */
    MATCHES("[a]", "[a]");
}

TEST(globs_of_paths)
{
    PATH_MATCHES("/a/b", "/a/b");
    PATH_DIFFERS("/a/b", "/a/b/");
    PATH_MATCHES("/a/*", "/a/");
    PATH_MATCHES("/a/*", "/a/b/c");
    PATH_DIFFERS("/a/*", "/a");
    PATH_DIFFERS("/a/*", "/ab");
    PATH_MATCHES("/a/*/b", "/a/x/b");
    PATH_MATCHES("/a/*/b", "/a//b");
    PATH_DIFFERS("/a/*/b", "/a/x/y/b");
    PATH_MATCHES("/a/x-*", "/a/x-1");
    PATH_MATCHES("/a/x-*", "/a/x-");
    PATH_DIFFERS("/a/x-*", "/a/x-1/2");
    PATH_MATCHES("/a/*/b/*", "/a/x/b/c/d");
    PATH_MATCHES("/a/*/b/*", "/a/x/b/");
    PATH_DIFFERS("/a/*/b/*", "/a/x/b");
    PATH_MATCHES("/a/**", "/a/b/c");
    PATH_MATCHES("/a**", "/a/b/c");
    PATH_MATCHES("/**/x", "/a/b/x");
    PATH_DIFFERS("/**/x", "/x"); /* both slashes are required */
    PATH_MATCHES("**/x", "/x");
    PATH_MATCHES("/**.php", "/a/b.c/d.php");
    PATH_DIFFERS("/**.php", "/a/b.php/d");
    PATH_MATCHES("/***/x", "/a/b/x");
    PATH_MATCHES("/*", "/");
    PATH_MATCHES("/*", "/a/b");
    PATH_MATCHES("*", "a");
    PATH_DIFFERS("*", "/a");
    /* A single star after a double one: the double one has to advance. */
    PATH_MATCHES("/**/a/*/b", "/x/a/y/c/a/z/b");
    PATH_MATCHES("/**/a/*/b", "/a/a/a/b");
    PATH_DIFFERS("/**/a/*/b", "/x/a/y/z/b");
    PATH_MATCHES("**a*b/c**d", "/a/axb/cx/yd");
}

TEST(globs_in_any_case)
{
    check_glob(true, "*.Example.com", "WWW.eXAMPLE.COM", false, true, __LINE__);
    check_glob(false, "*.Example.com", "WWW.eXAMPLE.COM", false, false, __LINE__);
    check_glob(false, "a[", "a{", false, true,
               __LINE__); /* these differ only in the bit that distinguishes upper and lower case */
    check_glob(true, "/A/*/b", "/a/x/B", true, true, __LINE__);
}

/* By the definition: whether the rest of the pattern matches the rest of the text, from the last to the first. */
static bool model(weir_text pattern, weir_text text, bool path, bool nocase)
{
    bool table[16][16] = {{false}};

    for (size_t p = pattern.len + 1; p-- > 0;) {
        for (size_t t = text.len + 1; t-- > 0;) {
            if (p == pattern.len) {
                table[p][t] = t == text.len;
                continue;
            }
            char c = pattern.data[p];
            if (c != '*') {
                table[p][t] = t < text.len && table[p + 1][t + 1] &&
                              (nocase ? weir__lower(c) == weir__lower(text.data[t]) : c == text.data[t]);
                continue;
            }
            bool wide = !path || (p + 1 < pattern.len && pattern.data[p + 1] == '*') ||
                        (p > 0 && pattern.data[p - 1] == '*') ||
                        (p + 1 == pattern.len && p > 0 && pattern.data[p - 1] == '/');
            table[p][t] = table[p + 1][t] || (t < text.len && (wide || text.data[t] != '/') && table[p][t + 1]);
        }
    }
    return table[0][0];
}

static size_t random_text(uint64_t *seed, char *text, size_t max, const char *alphabet)
{
    size_t len = test_random(seed) % (max + 1), letters = strlen(alphabet);

    for (size_t i = 0; i < len; i++)
        text[i] = alphabet[test_random(seed) % letters];
    text[len] = '\0';
    return len;
}

TEST(globs_agree_with_the_model)
{
    static const char *const alphabets[][2] = {{"a*", "a"},      {"a/*", "a/"},    {"ab/**", "ab/"},
                                               {"aAb*", "aAbB"}, {"a/***", "aa/"}, {"ab/*", "aab//"}};
    uint64_t seed = 1;
    int64_t matched = 0, count = test_scaled(4000000, 100000);

    for (int64_t i = 0; i < count; i++) {
        char pattern[16], text[16];
        const char *const *alphabet = alphabets[test_random(&seed) % 6];
        weir_text p = {pattern, random_text(&seed, pattern, 10, alphabet[0])};
        weir_text t = {text, random_text(&seed, text, 14, alphabet[1])};
        bool path = test_random(&seed) % 4, nocase = test_random(&seed) % 2;
        bool expected = model(p, t, path, nocase);
        check_glob(expected, pattern, text, path, nocase, __LINE__);
        matched += expected;
    }
    CHECK(matched > count / 50);
}

/* Patterns that make a backtracking matcher take exponential time. */
TEST(glob_time_is_pattern_length_times_text_length)
{
    static char text[4097], pattern[2048];
    static const struct {
        const char *start, *repeat, *end, *text;
    } hostile[] = {
        {"", "a*", "b", "a"},       {"**", "a*", "b", "a"},     {"", "a**", "b", "a"},
        {"**", "a*a/", "b", "aa/"}, {"**", "/*", "/b", "/"},    {"**", "*/a", "b", "/a"},
        {"", "**a*a", "b", "a"},    {"**", "a*aaa", "b", "a"},  {"**a*", "aaaaaaaa", "b", "a"},
        {"**", "a/", "*b", "a/"},   {"**/*", "a/", "*b", "a/"},
    };

    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        size_t len = 0, unit = strlen(hostile[i].text);
        for (len = 0; len + 1 < sizeof text; len++)
            text[len] = hostile[i].text[len % unit];
        strcpy(pattern, hostile[i].start);
        while (strlen(pattern) < 1000)
            strcat(pattern, hostile[i].repeat);
        strcat(pattern, hostile[i].end);
        clock_t start = clock();
        check_glob(false, pattern, text, true, false, __LINE__);
        check_glob(false, pattern, text, false, true, __LINE__);
        /* 4 million steps each, of a few nanoseconds; a square of the text's length would be 16 billion. */
        CHECK(clock() - start < CLOCKS_PER_SEC);
    }
}

static void check_kind(const char *text, bool path, enum weir__pattern_kind kind, int line)
{
    struct weir__arena arena = {0};
    struct weir__pattern pattern = {0};

    CHECK(weir__pattern_compile(&pattern, text_of(text), path, false, &arena));
    if (pattern.kind != kind && ++test_failures <= TEST_PRINTED)
        printf("  %s:%d: '%s' is %d, expected %d\n", __FILE__, line, text, (int)pattern.kind, (int)kind);
    CHECK(weir__text_equal(pattern.text, text_of(text)));
    CHECK_EQ(pattern.path, path);
    weir__arena_free(&arena);
}

TEST(kinds)
{
    check_kind("", false, WEIR__PATTERN_EXACT, __LINE__);
    check_kind("", true, WEIR__PATTERN_EXACT, __LINE__);
    check_kind("*", false, WEIR__PATTERN_ANY, __LINE__);
    check_kind("**", false, WEIR__PATTERN_ANY, __LINE__);
    check_kind("/*", false, WEIR__PATTERN_GLOB, __LINE__);
    check_kind("*", true, WEIR__PATTERN_ANY, __LINE__);
    check_kind("/*", true, WEIR__PATTERN_ANY, __LINE__);
    check_kind("/**", true, WEIR__PATTERN_ANY, __LINE__);
    check_kind("/", true, WEIR__PATTERN_EXACT, __LINE__);
    check_kind("/a", true, WEIR__PATTERN_EXACT, __LINE__);
    check_kind("/a/*", true, WEIR__PATTERN_GLOB, __LINE__);
    check_kind("//*", true, WEIR__PATTERN_GLOB, __LINE__);
    check_kind("*/", true, WEIR__PATTERN_GLOB, __LINE__);
}

TEST(case_insensitive_patterns_are_stored_in_lower_case)
{
    struct weir__arena arena = {0};
    struct weir__pattern pattern;

    CHECK(weir__pattern_compile(&pattern, text_of("*.Example.COM"), false, true, &arena));
    CHECK(weir__text_is(pattern.text, "*.example.com"));
    CHECK(pattern.nocase);
    CHECK(weir__pattern_match(&pattern, text_of("a.EXAMPLE.com"), false, NULL));
    CHECK(weir__pattern_compile(&pattern, text_of("GET"), false, true, &arena));
    CHECK(weir__pattern_match(&pattern, text_of("Get"), false, NULL));
    CHECK(!weir__pattern_match(&pattern, text_of("Gets"), false, NULL));
    weir__arena_free(&arena);
}

TEST(each_kind_matches)
{
    struct weir__pattern any = {.kind = WEIR__PATTERN_ANY};
    struct weir__pattern exact = {.kind = WEIR__PATTERN_EXACT, .text = text_of("a*")};
    struct weir__pattern glob = {.kind = WEIR__PATTERN_GLOB, .text = text_of("a*")};

    CHECK(weir__pattern_match(&any, text_of("x"), false, NULL));
    CHECK(!weir__pattern_match(&any, (weir_text){NULL, 0}, false, NULL));
    CHECK(weir__pattern_match(&exact, text_of("a*"), false, NULL));
    CHECK(!weir__pattern_match(&exact, text_of("ab"), false, NULL));
    CHECK(!weir__pattern_match(&exact, text_of("A*"), false, NULL));
    CHECK(weir__pattern_match(&glob, text_of("ab"), false, NULL));
    CHECK(!weir__pattern_match(&glob, (weir_text){NULL, 0}, false, NULL));
}

TEST(allocation_failure_is_an_error)
{
    struct weir__arena arena = {.bytes_max = 1};
    struct weir__pattern pattern;

    CHECK(!weir__pattern_compile(&pattern, text_of("/a"), true, false, &arena));
    CHECK(arena.failed);
    weir__arena_free(&arena);
}

TEST_MAIN
