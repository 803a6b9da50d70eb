/* Request targets, cookies and arguments. */
#include "rules/target.h"
#include "../../test.h"

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static bool is(weir_text got, const char *expected)
{
    bool same = weir__text_is(got, expected);
    if (!same)
        printf("  \"%.*s\" instead of \"%s\"\n", (int)got.len, got.data, expected);
    return same;
}

static size_t normalise(const char *target, char *buffer, size_t size)
{
    bool was_cut;
    return weir__target_normalise(text_of(target), buffer, size, &was_cut);
}

static bool becomes(const char *target, const char *path, const char *query)
{
    char buffer[4096];
    size_t len = normalise(target, buffer, sizeof buffer);
    bool same = is((weir_text){buffer, len}, path);
    return is(weir__target_query(text_of(target)), query) && same;
}

static bool cut(const char *target, size_t size, const char *path)
{
    char *buffer = malloc(size); /* of exactly that size, so that a sanitizer detects an overrun */
    size_t len = normalise(target, buffer, size);
    bool same = is((weir_text){buffer, len}, path);
    free(buffer);
    return same;
}

TEST(plain_target_is_unchanged)
{
    CHECK(becomes("/", "/", ""));
    CHECK(becomes("/api/items", "/api/items", ""));
    CHECK(becomes("/api/items/", "/api/items/", ""));
    CHECK(becomes("/api/items?a=1&b=2", "/api/items", "a=1&b=2"));
    CHECK(becomes("/api?a=?b#c?d", "/api", "a=?b"));
    CHECK(becomes("/api#frag?a=1", "/api", ""));
    CHECK(becomes("/api?", "/api", ""));
    CHECK(becomes("", "/", ""));
    CHECK(becomes("?a=1", "/", "a=1"));
    CHECK(becomes("#a", "/", ""));
    CHECK(becomes("api", "/api", ""));
    CHECK(becomes("*", "*", ""));
    CHECK(becomes("*?a", "*", "a"));
    CHECK(becomes("*x", "/*x", ""));
    CHECK(becomes("/*", "/*", ""));
}

TEST(absolute_target_yields_its_path)
{
    CHECK(becomes("http://example.com/a/b?c", "/a/b", "c"));
    CHECK(becomes("HTTPS://user@example.com:8443", "/", ""));
    CHECK(becomes("http://example.com?x=/y", "/", "x=/y"));
    CHECK(becomes("http://[::1]:80//a", "/a", ""));
    CHECK(becomes("coap+tcp://h/x", "/x", ""));
    CHECK(becomes("example.com:443", "/example.com:443", ""));
    CHECK(becomes("1http://h/x", "/1http:/h/x", ""));
    CHECK(becomes("://h/x", "/:/h/x", ""));
    CHECK(becomes("/http://h/x", "/http:/h/x", ""));
    CHECK(becomes("http:/h/x", "/http:/h/x", ""));
}

TEST(target_is_decoded_once)
{
    CHECK(becomes("/a%20b", "/a b", ""));
    CHECK(becomes("/%41%7a%7A", "/Azz", ""));
    CHECK(becomes("/a%2Fb", "/a/b", ""));
    CHECK(becomes("/a%2f%2Fb", "/a/b", ""));
    CHECK(becomes("/a%3Fb?c%3F", "/a?b", "c%3F"));
    CHECK(becomes("/a%23b", "/a#b", ""));
    CHECK(becomes("/%2541", "/%41", ""));
    CHECK(becomes("/%252e%252e/x", "/%2e%2e/x", ""));
    CHECK(becomes("/100%", "/100%", ""));
    CHECK(becomes("/%4", "/%4", ""));
    CHECK(becomes("/%zz%4g", "/%zz%4g", ""));
    CHECK(becomes("/a+b", "/a+b", ""));
    CHECK(becomes("%2Fa", "/a", ""));

    char buffer[16];
    size_t len = normalise("/a%00b", buffer, sizeof buffer);
    CHECK_EQ(len, 4);
    CHECK(memcmp(buffer, "/a\0b", 4) == 0);
}

TEST(dot_segments_are_resolved)
{
    CHECK(becomes("//", "/", ""));
    CHECK(becomes("///a//b//", "/a/b/", ""));
    CHECK(becomes("/.", "/", ""));
    CHECK(becomes("/./a/./b/.", "/a/b/", ""));
    CHECK(becomes("/a/..", "/", ""));
    CHECK(becomes("/a/b/..", "/a/", ""));
    CHECK(becomes("/a/b/../", "/a/", ""));
    CHECK(becomes("/a/b/../c", "/a/c", ""));
    CHECK(becomes("/a/../../../b", "/b", ""));
    CHECK(becomes("..", "/", ""));
    CHECK(becomes("../a", "/a", ""));
    CHECK(becomes("/a//../b", "/b", ""));
    CHECK(becomes("/a/.b/..c/.../x.", "/a/.b/..c/.../x.", ""));
    CHECK(becomes("/api/%2e%2e/admin", "/admin", ""));
    CHECK(becomes("/api/.%2E/admin", "/admin", ""));
    CHECK(becomes("/api%2f..%2fadmin", "/admin", ""));
    CHECK(becomes("/a/.?x/../y", "/a/", "x/../y"));

    char buffer[16]; /* ".." followed by a zero byte is another name */
    size_t len = normalise("/a/..%00/b", buffer, sizeof buffer);
    CHECK(len == 8 && memcmp(buffer, "/a/..\0/b", 8) == 0);
}

TEST(long_target_is_cut)
{
    CHECK(cut("/abcdef", 4, "/abc"));
    CHECK(cut("/abc", 4, "/abc"));
    CHECK(cut("/ab/cd", 4, "/ab/"));
    CHECK(cut("/abc/d", 4, "/abc"));
    CHECK(cut("/x", 1, "/"));
    CHECK(cut("*", 1, "*"));
    CHECK(cut("/a/..bc", 5, "/a/"));
    CHECK(cut("/a/.bc", 4, "/a/"));
    CHECK(cut("/a/...", 5, "/a/"));
    /* Dots are resolved before the cut, so that a long detour cannot hide the real path. */
    CHECK(cut("/abcdefgh/../x", 4, "/x"));
    CHECK(cut("/abc/def/ghi/../../../x", 4, "/x"));
    CHECK(cut("/ab/cd/ef/../../x", 4, "/ab/"));
    CHECK(cut("/ab/cd/../x/../../y", 4, "/y"));
    CHECK(cut("/abc/./././x/./../../y", 4, "/y"));
    CHECK(cut("/abcdef//../x", 4, "/x"));
    CHECK(cut("/a/../b/../c/../d", 4, "/d"));
}

/* A model: the same by a list of segments. */
static size_t model(weir_text target, char *path)
{
    static char decoded[256];
    static size_t starts[256];
    size_t n = 0, len = 1, depth = 0;

    for (size_t i = 0; i < target.len && target.data[i] != '?' && target.data[i] != '#'; i++) {
        char digits[3] = {0};
        if (target.data[i] == '%' && target.len - i > 2)
            memcpy(digits, target.data + i + 1, 2);
        if (strlen(digits) == 2 && strspn(digits, "0123456789abcdefABCDEF") == 2) {
            decoded[n++] = (char)strtoul(digits, NULL, 16);
            i += 2;
        } else {
            decoded[n++] = target.data[i];
        }
    }
    path[0] = '/';
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && decoded[end] != '/')
            end++;
        weir_text segment = {decoded + i, end - i};
        if (weir__text_is(segment, "..")) {
            if (depth > 0)
                len = starts[--depth];
        } else if (segment.len > 0 && !weir__text_is(segment, ".")) {
            starts[depth++] = len;
            memcpy(path + len, segment.data, segment.len);
            len += segment.len;
            if (end < n)
                path[len++] = '/';
        }
        i = end + 1;
    }
    return len;
}

TEST(target_agrees_with_a_model)
{
    static const char *const pieces[] = {"/",   "/", "/",  ".", "..", "a",   "b",  "%2e",
                                         "%2F", "%", "%4", "?", "#",  "%00", "x y"};
    uint64_t seed = 3;

    for (int64_t round = 0; round < test_scaled(200000, 2000); round++) {
        char target[256] = "/", got[256], expected[256];
        size_t count = test_random(&seed) % 16;
        for (size_t i = 0; i < count; i++)
            strcat(target, pieces[test_random(&seed) % (sizeof pieces / sizeof pieces[0])]);
        size_t expected_len = model(text_of(target), expected);
        size_t len = normalise(target, got, sizeof got);
        CHECK_EQ(len, expected_len);
        CHECK(len == expected_len && memcmp(got, expected, len) == 0);
        /* With less room the result is a prefix of it, except for dots that the cut left over. */
        size_t size = 1 + test_random(&seed) % 12, kept = normalise(target, got, size);
        CHECK(kept <= size && kept <= len && kept + 2 >= (len < size ? len : size));
        CHECK(memcmp(got, expected, kept) == 0);
    }
}

/* ---- Cookies and arguments ---- */

static bool cookie(const char *header, const char *name, const char *expected)
{
    weir_text value;
    size_t found = weir__cookie_find(text_of(header), text_of(name), &value, 1);
    return expected ? found == 1 && is(value, expected) : !found;
}

TEST(cookies)
{
    CHECK(cookie("sid=42", "sid", "42"));
    CHECK(cookie("a=1; sid=42; b=2", "sid", "42"));
    CHECK(cookie("a=1;sid=42;b=2", "b", "2"));
    CHECK(cookie("  sid = 42 \t; b=2", "sid", "42"));
    CHECK(cookie("sid=\"a b\"", "sid", "a b"));
    CHECK(cookie("sid=\"", "sid", "\""));
    CHECK(cookie("sid=\"\"", "sid", ""));
    CHECK(cookie("sid=a=b", "sid", "a=b"));
    CHECK(cookie("sid=1; a=2; sid=1; sid=\"1\"; sid= 1 ", "sid", "1")); /* several of the same value */
    CHECK(cookie("SID=1; sid=2", "sid", "2"));
    CHECK(cookie("xsid=1; sid2=2; si=3", "sid", NULL));
    CHECK(cookie("sid", "sid", NULL));
    CHECK(cookie("sid; sid=3", "sid", "3"));
    CHECK(cookie(";;=;", "sid", NULL));
    CHECK(cookie("", "sid", NULL));
}

/* NULL: not present. */
static bool argument(const char *query, const char *name, const char *expected)
{
    char buffer[256];
    weir_text raw;
    size_t found = weir__argument_find(text_of(query), text_of(name), &raw, 1);
    if (found != 1)
        return !found && !expected;
    size_t len = weir__argument_decode(raw, buffer, sizeof buffer, &(bool){false});
    CHECK(weir__argument_is_plain(raw) == (len == raw.len && memcmp(buffer, raw.data, len) == 0) ||
          memchr(raw.data, '%', raw.len));
    return expected && is((weir_text){buffer, len}, expected);
}

TEST(arguments)
{
    CHECK(argument("q=a", "q", "a"));
    CHECK(argument("p=1&q=a&r=2", "q", "a"));
    CHECK(argument("q=a+b%20c%2B", "q", "a b c+"));
    CHECK(argument("q=%", "q", "%"));
    CHECK(argument("q=%4&r", "q", "%4"));
    CHECK(argument("q=a%zzb", "q", "a%zzb"));
    CHECK(argument("q=a=b", "q", "a=b"));
    CHECK(argument("q", "q", ""));
    CHECK(argument("q=", "q", ""));
    CHECK(argument("q=a+b&r&q=a%20b&%71=%61+b", "q", "a b")); /* several of the same value */
    CHECK(argument("q&q=", "q", ""));
    CHECK(argument("%71=a", "q", "a"));
    CHECK(argument("user%5Bid%5D=7", "user[id]", "7"));
    CHECK(argument("first+name=7", "first name", "7"));
    CHECK(argument("qq=1&Q=2&=3&", "q", NULL));
    CHECK(argument("", "q", NULL));
    CHECK(argument("&&&", "q", NULL));
    CHECK(argument("%7", "q", NULL));
    CHECK(argument("q%=1", "q%", "1"));
}

/* The distinct values in their order, each followed by '|'; "+" for more than three. */
static bool all_are(bool cookies, const char *text, const char *expected)
{
    weir_text found[3];
    char got[64] = "";
    size_t count = cookies ? weir__cookie_find(text_of(text), text_of("q"), found, 3)
                           : weir__argument_find(text_of(text), text_of("q"), found, 3);
    for (size_t i = 0; i < count && i < 3; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s|", (int)found[i].len, found[i].data);
    return strcmp(strcat(got, count > 3 ? "+" : ""), expected) == 0 && count <= 4;
}

TEST(several_values)
{
    CHECK(all_are(true, "q=1; q=2", "1|2|"));
    CHECK(all_are(true, "q=; a=1; q=2; q=; q=\"2\"", "|2|"));
    CHECK(all_are(true, "q=1; q=2; q=3; q=1; q=3", "1|2|3|"));
    CHECK(all_are(true, "q=1; q=2; q=3; q=4; q=5", "1|2|3|+"));
    CHECK(all_are(true, "Q=1; p=2", ""));
    CHECK(all_are(false, "q=1&q=2", "1|2|"));
    CHECK(all_are(false, "q&a=1&%71=2&q=&q=%32", "|2|"));
    CHECK(all_are(false, "q=%41&q=B&q=A&q=%42&q=A%", "%41|B|A%|"));
    CHECK(all_are(false, "q=1&q=2&q=3&q=4&q=5", "1|2|3|+"));
}

TEST_MAIN
