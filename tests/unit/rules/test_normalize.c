/* Normal forms of paths: which they are, how rules use them, and that they never make a rule match less. */
#include "compiled.h"

static struct diags diags;
static struct weir__values values;

static weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

/* ---- Normal forms ---- */

enum { P = WEIR__FORM_PARAMETERS, S = WEIR__FORM_SLASH, B = WEIR__FORM_BLANKS, C = WEIR__FORM_CASE, D = P | S | B };

TEST(normal_forms)
{
    static const struct {
        const char *path;
        unsigned form;
        const char *normal;
    } cases[] = {
        {"/auth/login", D | C, "/auth/login"},
        {"/auth/login;x=1", P, "/auth/login"},
        {"/auth;a/login;x=1;y", P, "/auth/login"},
        {"/auth/login/", S, "/auth/login"},
        {"/auth/login;x/", D, "/auth/login"},
        {"/auth/login/;x", D, "/auth/login"},
        {"/auth/login ", B, "/auth/login"},
        {"/ auth\t/\r\nlogin \x01", B, "/auth/login"},
        {"/auth/log in", D, "/auth/log in"},
        {"/auth/login ;x", D, "/auth/login"},
        {"/Auth/LOGIN", C, "/auth/login"},
        {"/Auth/LOGIN", D, "/Auth/LOGIN"},
        {"/\xc3\x84", C, "/\xc3\x84"}, /* ASCII only */
        {"/auth/login;x=1", S | B | C, "/auth/login;x=1"},
        {"/auth/login/", P | B | C, "/auth/login/"},
        {"/auth/login ", P | S | C, "/auth/login "},
        {"/x/..;/auth/login", D, "/auth/login"},
        {"/x/.;a=b/y", D, "/x/y"},
        {"/;x/auth", D, "/auth"},
        {"/..;/..;/a", D, "/a"},
        {"/a/ .. /b", D, "/b"},
        {"/", D | C, "/"},
        {"/;x", D, "/"},
        {"/ /", D, "/"},
        {"*", D, "*"},
        {"", D, ""},
        {"a;b/", D, "a;b/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[64], over[64];
        bool cut = true;
        size_t len = weir__path_normalise(text_of(cases[i].path), cases[i].form, got, sizeof got, &cut);
        CHECK(!cut && len == strlen(cases[i].normal) && memcmp(got, cases[i].normal, len) == 0);
        if (len != strlen(cases[i].normal) || memcmp(got, cases[i].normal, len) != 0)
            printf("    %s: %.*s\n", cases[i].path, (int)len, got);
        snprintf(over, sizeof over, "%s", cases[i].path);
        CHECK_EQ(weir__path_normalise(text_of(over), cases[i].form, over, sizeof over, &cut), len);
        CHECK(memcmp(over, got, len) == 0);
    }
}

/* A server may strip parameters before it decodes; then "%2F" ends none. */
TEST(parameters_of_targets)
{
    static const struct {
        const char *target, *normal;
    } cases[] = {
        {"/auth/login;x=%2Fy", "/auth/login"},    {"/auth/login;x%2f..%2f..?q=;/x", "/auth/login"},
        {"/auth;%2F/login%3Bx", "/auth/login"},   {"http://h;x/auth/login;y#;/z", "/auth/login"},
        {"/auth/login%20;%2F/", "/auth/login"},   {"/x%2F..;%2F/auth/login", "/auth/login"},
        {"/auth/./login;..%2F..", "/auth/login"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[64];
        bool cut = true;
        size_t len = weir__target_form(text_of(cases[i].target), D, got, sizeof got, &cut);
        CHECK(!cut && len == strlen(cases[i].normal) && memcmp(got, cases[i].normal, len) == 0);
    }
}

static void random_path(uint64_t *seed, char *path, size_t size)
{
    static const char *const pieces[] = {"/", "/", "a", "B", ";", ";x", " ", "\t", ".", "..", "login", "/auth", "x=1"};
    size_t used = (size_t)snprintf(path, size, "/");
    for (uint64_t i = test_random(seed) % 12; i > 0; i--)
        used += (size_t)snprintf(path + used, size - used, "%s",
                                 pieces[test_random(seed) % (sizeof pieces / sizeof *pieces)]);
}

/* A path without anything to normalise is its own normal form, once it is resolved; and normalising is idempotent. */
TEST(a_plain_path_is_its_own_normal_form)
{
    uint64_t seed = 5;
    for (int64_t round = 0; round < test_scaled(200000, 5000); round++) {
        char path[128], once[128], twice[128], little[128];
        bool cut, again;
        unsigned form = (unsigned)(test_random(&seed) % WEIR__FORMS);
        random_path(&seed, path, sizeof path);
        size_t resolved = weir__path_normalise(text_of(path), 0, once, sizeof once, &cut);
        memcpy(path, once, resolved);
        path[resolved] = 0;
        size_t len = weir__path_normalise(text_of(path), form, once, sizeof once, &cut);
        CHECK(!cut);
        if (!weir__path_is_spelled(text_of(path), form))
            CHECK(len == resolved && memcmp(once, path, len) == 0);
        if (form && weir__path_is_spelled(text_of(path), form))
            CHECK(weir__path_may_be_spelled(text_of(path), form));
        CHECK_EQ(weir__path_normalise((weir_text){once, len}, form, twice, sizeof twice, &again), len);
        CHECK(memcmp(once, twice, len) == 0);
        size_t size = 1 + test_random(&seed) % 20;
        size_t kept = weir__path_normalise(text_of(path), form, little, size, &cut);
        CHECK(kept <= size && kept <= len && memcmp(little, once, kept) == 0);
        CHECK(cut || kept == len);
        CHECK(!cut || len > size || kept < len || kept == size); /* a '/' that would have been stripped did not fit */
    }
}

/* ---- Rules ---- */

/* How many rules a request matches. `target` may be NULL. */
static size_t matches(const weir_rules *set, const char *path, const char *target)
{
    static struct weir__matching matching;
    uint32_t rules[16];
    struct weir__found found = {.rules = rules, .max = 16};
    weir_attribute about[] = {{WEIR_ATTR_PATH, "", path}, {WEIR_ATTR_TARGET, "", target}};
    weir_query query = {.attributes = about, .attribute_count = 2};
    if (!matching.regex_scratch)
        matching.regex_scratch = weir__regex_scratch_make();
    weir__values_begin(&values, &set->attributes, &query);
    weir__rules_match(set, &values, &matching, &found);
    return found.count;
}

static weir_rules *rule_with(const char *match)
{
    char text[1024];
    snprintf(text, sizeof text, "rules:\n  - { name: a, match: %s, limit: 1, window: 1s }\n", match);
    weir_rules *set = compile(&diags, text);
    CHECK(set != NULL);
    return set;
}

TEST(rules_match_normal_forms)
{
    static const struct {
        const char *match, *path;
        bool matches;
    } cases[] = {
        {"{ path: /auth/login }", "/auth/login", true},
        {"{ path: /auth/login }", "/auth/login;x=1", true},
        {"{ path: /auth/login }", "/auth;v=2/login", true},
        {"{ path: /auth/login }", "/auth/login/", true},
        {"{ path: /auth/login }", "/auth/login ", true},
        {"{ path: /auth/login }", "/auth/login;x=1/ ", true},
        {"{ path: /auth/login }", "/x/..;/auth/login", true},
        {"{ path: /auth/login }", "/Auth/login", false},
        {"{ path: /auth/login }", "/auth/login2;x", false},
        {"{ path: /auth/login, normalize: { case: true } }", "/Auth/LogIn;x", true},
        {"{ path: /Auth/Login, normalize: { case: true } }", "/auth/login", true},
        {"{ path: /Auth/Login, normalize: { case: true } }", "/Auth/Login", true},
        {"{ path: '/Auth/*', normalize: { case: true } }", "/auth/x", true},
        {"{ path: { regex: '^/Auth/' }, normalize: { case: true } }", "/auth/x", true},
        {"{ path: /auth/login, normalize: off }", "/auth/login/", false},
        {"{ path: /auth/login, normalize: false }", "/auth/login;x", false},
        {"{ path: /auth/login, normalize: { trailing_slash: false } }", "/auth/login/", false},
        {"{ path: /auth/login, normalize: { trailing_slash: false } }", "/auth/login;x", true},
        {"{ path: /auth/login, normalize: { parameters: false } }", "/auth/login;x", false},
        {"{ path: /auth/login, normalize: { blanks: false } }", "/auth/login ", false},
        {"{ path: /auth/login/ }", "/auth/login/", true},
        {"{ path: /auth/login/ }", "/auth/login", true},
        {"{ path: /auth/login/ }", "/auth/login;x", true},
        {"{ path: /maps;v=2 }", "/maps;v=2", true},
        {"{ path: /maps;v=2 }", "/maps", false},
        {"{ path: '/api/*' }", "/api;x/items", true},
        {"{ path: '/api/*' }", "/api/", true},
        {"{ path: '/api/*' }", "/api", false},
        {"{ path: '/api/*' }", "/x/..;/api/items", true},
        {"{ path: '/a/*/b' }", "/a/x/b/", true},
        {"{ path: '/a/x-*' }", "/a/x-1/", true},
        {"{ path: '/a/*/' }", "/a/x/", true},
        {"{ path: '/a/*/' }", "/a/x", false},
        {"{ path: '**.json' }", "/a.json;x", true},
        {"{ path: { regex: '^/auth/login$' } }", "/auth/login/", true},
        {"{ path: { regex: '^/auth/login$' }, normalize: off }", "/auth/login/", false},
        /* A `not` excludes the path both as sent and in its normal form. */
        {"{ path: { not: /healthz } }", "/healthz", false},
        {"{ path: { not: /healthz } }", "/healthz/", true},
        {"{ path: { not: /healthz/ } }", "/healthz/", false},
        {"{ path: { not: '/public/*' } }", "/public/a;x", false},
        {"{ path: { not: '/public/*' } }", "/public/..;/admin", true},
        {"{ path: { not: '/public/*' }, normalize: off }", "/public/..;/admin", false},
        {"{ path: { not: { regex: '^/Public/' } }, normalize: { case: true } }", "/public/a", true},
        {"{ path: [/a, /b], host: '*' }", "/b;x", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_rules *set = rule_with(cases[i].match);
        bool got = set && matches(set, cases[i].path, NULL) == 1;
        CHECK_EQ(got, cases[i].matches);
        if (got != cases[i].matches)
            printf("    %s against %s\n", cases[i].match, cases[i].path);
        weir_rules_free(set);
    }
}

TEST(target_matches_raw_and_normalised)
{
    weir_rules *set = rule_with("{ path: [/auth/login, /auth/login/y] }");
    CHECK_EQ(matches(set, "/auth/login;x=/z", "/auth/login;x=%2Fz"), 1);
    CHECK_EQ(matches(set, NULL, "/auth/login;x=%2Fz?q"), 1);
    CHECK_EQ(matches(set, NULL, "/auth;x%2Flogin"), 1);
    CHECK_EQ(matches(set, NULL, "/auth/login;x=/z"), 0);
    weir_rules_free(set);
    set = compile(&diags, "rules: [{ name: a, match: { path: /a, normalize: { case: true } }, limit: 1, window: 1s }, "
                          "{ name: b, match: { path: /A, normalize: off }, limit: 1, window: 1s }, "
                          "{ name: c, match: { path: '/*' }, limit: 1, window: 1s }]");
    CHECK(set != NULL);
    CHECK_EQ(matches(set, "/a", NULL), 2);
    CHECK_EQ(matches(set, "/A", NULL), 3);
    CHECK_EQ(matches(set, "/A;x", NULL), 2);
    weir_rules_free(set);
}

/* A rule that matches a path as sent also matches it under each normal form. */
TEST(normal_forms_never_match_less)
{
    static const char *const patterns[] = {"/a",
                                           "/auth/login",
                                           "/auth/*",
                                           "'/a/*/login'",
                                           "/B",
                                           "'**login'",
                                           "{ regex: 'n$' }",
                                           "{ not: /a }",
                                           "{ not: '/auth/*' }",
                                           "'/a/'",
                                           "'/*/'",
                                           "/a;x",
                                           "{ not: { regex: 'B' } }",
                                           "[/a, '/auth/**/x']"};
    enum { COUNT = sizeof patterns / sizeof *patterns };
    weir_rules *sets[WEIR__FORMS];
    uint64_t seed = 11;
    int64_t more = 0;
    for (unsigned form = 0; form < WEIR__FORMS; form++) {
        char text[4096];
        size_t len = (size_t)snprintf(
            text, sizeof text, "normalize: { parameters: %s, trailing_slash: %s, blanks: %s, case: %s }\nrules:\n",
            form & P ? "true" : "false", form & S ? "true" : "false", form & B ? "true" : "false",
            form & C ? "true" : "false");
        for (size_t i = 0; i < COUNT; i++)
            len += (size_t)snprintf(text + len, sizeof text - len,
                                    "  - { name: r%zu, match: { path: %s }, limit: 1, window: 1s }\n", i, patterns[i]);
        sets[form] = compile(&diags, text);
        CHECK(sets[form] != NULL);
    }
    for (int64_t round = 0; round < test_scaled(20000, 1000); round++) {
        char path[128];
        uint32_t sent[COUNT], now[COUNT];
        static struct weir__matching matching;
        unsigned form = 1 + (unsigned)(test_random(&seed) % (WEIR__FORMS - 1));
        if (!matching.regex_scratch)
            matching.regex_scratch = weir__regex_scratch_make();
        random_path(&seed, path, sizeof path);
        weir_query query = {.path = text_of(path)};
        struct weir__found before = {.rules = sent, .max = COUNT}, after = {.rules = now, .max = COUNT};
        weir__values_begin(&values, &sets[0]->attributes, &query);
        weir__rules_match(sets[0], &values, &matching, &before);
        weir__values_begin(&values, &sets[form]->attributes, &query);
        weir__rules_match(sets[form], &values, &matching, &after);
        size_t at = 0;
        for (size_t i = 0; i < after.count && at < before.count; i++)
            at += now[i] == sent[at];
        CHECK_EQ(at, before.count);
        more += after.count > before.count;
    }
    CHECK(more > 0);
    for (unsigned form = 0; form < WEIR__FORMS; form++)
        weir_rules_free(sets[form]);
}

static int64_t cost_of(const weir_rules *set, const char *path)
{
    struct weir__matching matching = {.regex_scratch = NULL};
    weir_query query = {.path = text_of(path)};
    weir__values_begin(&values, &set->attributes, &query);
    return weir__rule_cost(set->rules[0], &values, &matching);
}

TEST(costs_by_path_match_normal_forms)
{
    weir_rules *set = compile(&diags, "rules: [{ name: a, cost: { '/static/*': 1, /api/export: 20, '/Api/Big/': 9, "
                                      "default: 2 }, limit: 100, window: 1s }]");
    CHECK(set != NULL);
    CHECK_EQ(cost_of(set, "/api/export"), 20);
    CHECK_EQ(cost_of(set, "/api/export;x=1"), 20);
    CHECK_EQ(cost_of(set, "/api/export/ "), 20);
    CHECK_EQ(cost_of(set, "/static/x"), 1);
    CHECK_EQ(cost_of(set, "/static/x;y"), 1);
    CHECK_EQ(cost_of(set, "/static/..;/api/export"), 20); /* the higher of the two */
    CHECK_EQ(cost_of(set, "/Api/Big"), 9);
    CHECK_EQ(cost_of(set, "/other;"), 2);
    weir_rules_free(set);
    set = compile(&diags, "normalize: off\nrules: [{ name: a, cost: { /api/export: 20 }, limit: 100, window: 1s }]");
    CHECK(set != NULL);
    CHECK_EQ(cost_of(set, "/api/export;x=1"), 1);
    weir_rules_free(set);
}

/* The key of a set's first rule. */
static bool key_is(const weir_rules *set, const char *path, const char *target, const char *expected)
{
    char key[WEIR__KEY_MAX];
    weir_attribute about[] = {{WEIR_ATTR_PATH, "", path}, {WEIR_ATTR_TARGET, "", target}};
    weir_query query = {.attributes = about, .attribute_count = 2};
    weir__values_begin(&values, &set->attributes, &query);
    int len = weir__template_fill(&set->rules[0]->key, &values, false, key);
    bool is = len == (int)strlen(expected) && memcmp(key, expected, strlen(expected)) == 0;
    if (!is)
        printf("    %s: %.*s\n", path ? path : target, len < 0 ? 0 : len, key);
    return is;
}

TEST(keys_have_the_normal_form)
{
    weir_rules *set = compile(&diags, "identity: { part: 'path:2' }\n"
                                      "rules: [{ name: a, key: '${path} ${path:1} ${part}', limit: 1, window: 1s }]");
    CHECK(set != NULL);
    CHECK(key_is(set, "/a/b", NULL, "/a/b a b"));
    CHECK(key_is(set, "/a;x/b/", NULL, "/a/b a b"));
    CHECK(key_is(set, "/q/..;/a/b ;z", NULL, "/a/b a b"));
    CHECK(key_is(set, "/A/b", NULL, "/A/b A b"));
    CHECK(key_is(set, NULL, "/a/b;x=%2F1", "/a/b a b"));
    CHECK(key_is(set, NULL, "/a/b;x=%2F2?q", "/a/b a b"));
    weir_rules_free(set);
    set = compile(&diags, "identity: { part: 'path:2' }\nnormalize: { case: true }\n"
                          "rules: [{ name: a, match: { part: Bob }, key: '${path}', limit: 1, window: 1s }, "
                          "{ name: b, match: { normalize: off }, key: '${path}', limit: 1, window: 1s }]");
    CHECK(set != NULL);
    CHECK(key_is(set, "/A;x/BOB", NULL, "/a/bob"));
    CHECK_EQ(matches(set, "/A;x/BOB;y", NULL), 2);
    set->rules[0] = set->rules[1];
    CHECK(key_is(set, "/A;x/BOB", NULL, "/A;x/BOB"));
    weir_rules_free(set);
}

TEST(pattern_missed_by_other_spellings_is_warned_about)
{
    weir_rules *set = rule_with("{ path: [/auth/login/, '/api/*'], normalize: off }");
    CHECK(diags_are(&diags, WEIR_IS_WARNING,
                    "2:32: normalize leaves spellings that many servers take for the same path, and that this does not "
                    "match: /auth/login;x=1, /auth/login, /auth/login%20"));
    weir_rules_free(set);
    set = rule_with("{ path: /auth/login, normalize: { parameters: false } }");
    CHECK(diags_are(&diags, WEIR_IS_WARNING,
                    "2:31: normalize leaves spellings that many servers take for the same path, and that this does not "
                    "match: /auth/login;x=1"));
    weir_rules_free(set);
    set = rule_with("{ path: /auth/login, normalize: { trailing_slash: false } }");
    CHECK(diags_are(&diags, WEIR_IS_WARNING,
                    "2:31: normalize leaves spellings that many servers take for the same path, and that this does not "
                    "match: /auth/login/"));
    weir_rules_free(set);
    set = rule_with("{ path: { not: /healthz }, normalize: off }");
    CHECK(diags_are(&diags, WEIR_IS_WARNING, ""));
    weir_rules_free(set);
    set = compile(&diags, "rules: [{ name: a, key: 'p:${path}', limit: 1, window: 1s,\n"
                          "  block: { keys: ['p:/a', 'p:/a/', 'p:/b;x'] } }]");
    CHECK(set != NULL);
    CHECK(diags_are(&diags, WEIR_IS_WARNING,
                    "2:10: no key is p:/a/: a path in a key is in its normal form, see normalize\n"
                    "2:10: no key is p:/b;x: a path in a key is in its normal form, see normalize"));
    weir_rules_free(set);
}

/* ---- A truncated path counts as matching ---- */

static char long_path[3 * WEIR__PATH_MAX];

/* "/a/xxx…" and then `end`, which is far beyond the part that is matched. */
static const char *cut_path(const char *begin, char fill, const char *end)
{
    size_t room = sizeof long_path - 1 - strlen(end);
    memset(long_path, fill, room);
    memcpy(long_path, begin, strlen(begin));
    memcpy(long_path + room, end, strlen(end) + 1);
    return long_path;
}

TEST(truncated_path_counts_as_matching)
{
    static const struct {
        const char *match;
        bool matches;
    } cases[] = {
        {"{ path: '**/login' }", true},
        {"{ path: '/a/*/login' }", true},
        {"{ path: '/a/x*n' }", true},
        {"{ path: '/a/y*n' }", false},
        {"{ path: '/b/*/login' }", false},
        {"{ path: '/a/**/login', host: h }", false},
        {"{ path: '/a/*' }", true},
        {"{ path: /a }", false},
        {"{ path: { regex: 'login$' } }", true},
        {"{ path: { regex: '^/a/.*login$' } }", true},
        {"{ path: { regex: '^/b/.*login$' } }", false},
        {"{ path: { not: '**/login' } }", true},
        {"{ path: { not: { regex: 'login$' } } }", true},
        {"{ path: '/a/x/*', normalize: off }", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_rules *set = rule_with(cases[i].match);
        CHECK_EQ(set && matches(set, cut_path("/a/", 'x', "/login"), NULL) == 1, cases[i].matches);
        CHECK_EQ(set && matches(set, NULL, cut_path("/a/", 'x', "/login")) == 1, cases[i].matches);
        if (test_failures)
            printf("    %s\n", cases[i].match);
        weir_rules_free(set);
    }
}

/* Parameters are stripped however long they are. */
TEST(long_parameters_hide_nothing)
{
    weir_rules *set = rule_with("{ path: [/auth/login, '/x/*/end'] }");
    CHECK_EQ(matches(set, cut_path("/auth/login;", 'x', ""), NULL), 1);
    CHECK_EQ(matches(set, cut_path("/auth;", 'x', "/login"), NULL), 1);
    CHECK_EQ(matches(set, NULL, cut_path("/auth;", 'x', "/login")), 1);
    CHECK_EQ(matches(set, cut_path("/auth;", 'x', "/logout"), NULL), 0);
    weir_rules_free(set);
    set = compile(&diags, "rules: [{ name: a, cost: { '**/export': 20, '/*': 1 }, limit: 100, window: 1s }]");
    CHECK(set != NULL);
    CHECK_EQ(cost_of(set, cut_path("/a/", 'x', "/export")), 20);
    CHECK_EQ(cost_of(set, cut_path("/a;", 'x', "/export")), 20);
    weir_rules_free(set);
}

static size_t matches_argument(const weir_rules *set, const char *query_text)
{
    struct weir__matching matching = {.regex_scratch = NULL};
    uint32_t rules[8];
    struct weir__found found = {.rules = rules, .max = 8};
    weir_attribute about[] = {{WEIR_ATTR_QUERY, "", query_text}};
    weir_query query = {.attributes = about, .attribute_count = 1};
    weir__values_begin(&values, &set->attributes, &query);
    weir__rules_match(set, &values, &matching, &found);
    return found.count;
}

TEST(truncated_argument_counts_as_matching)
{
    weir_rules *set = rule_with("{ query: { q: '*x' } }");
    CHECK_EQ(matches_argument(set, cut_path("q=", 'a', "x")), 1);
    CHECK_EQ(matches_argument(set, cut_path("q=%20", 'a', "x")), 1);
    CHECK_EQ(matches_argument(set, "q=ax"), 1);
    CHECK_EQ(matches_argument(set, "q=a"), 0);
    weir_rules_free(set);
    set = rule_with("{ query: { q: { not: '*x' } } }");
    CHECK_EQ(matches_argument(set, cut_path("q=", 'a', "x")), 1);
    CHECK_EQ(matches_argument(set, "q=ax"), 0);
    weir_rules_free(set);
    set = rule_with("{ query: { q: 'b*x' } }");
    CHECK_EQ(matches_argument(set, cut_path("q=", 'a', "x")), 0);
    weir_rules_free(set);
    set = rule_with("{ query: { q: absent } }");
    CHECK_EQ(matches_argument(set, cut_path("q=", 'a', "x")), 0);
    weir_rules_free(set);
}

/* A path segment after the cut may be anything, also missing. */
TEST(segment_after_the_cut_counts_as_matching)
{
    weir_rules *set = compile(&diags, "identity: { part: 'path:3' }\n"
                                      "rules: [{ name: a, match: { part: admin }, limit: 1, window: 1s }, "
                                      "{ name: b, match: { part: { not: admin } }, limit: 1, window: 1s }, "
                                      "{ name: c, match: { part: absent }, limit: 1, window: 1s }]");
    CHECK(set != NULL);
    CHECK_EQ(matches(set, "/a/b/admin", NULL), 1);
    CHECK_EQ(matches(set, "/a/b", NULL), 2);
    CHECK_EQ(matches(set, cut_path("/a/", 'b', "/admin"), NULL), 3);
    weir_rules_free(set);
}

/* A truncated key counts as listed on a block list, and as not listed on an allow list. */
TEST(truncated_keys_on_lists)
{
    weir_rules *set = compile(&diags, "rules: [{ name: a, key: 'u:${query:q}', limit: 1, window: 1s, "
                                      "block: { keys: ['*z'] }, allow: { keys: ['*0', '*1', '*2', '*3', '*4', '*5', "
                                      "'*6', '*7', '*8', '*9', '*a', '*b', '*c', '*d', '*e', '*f'] } }, "
                                      "{ name: b, limit: 1, window: 1s, block: { keys: ['v:*z'] }, "
                                      "allow: { keys: ['u:*'] } }]");
    CHECK(set != NULL);
    char key[WEIR__KEY_MAX];
    weir_attribute about[] = {{WEIR_ATTR_QUERY, "", cut_path("q=", 'y', "")}};
    weir_query query = {.attributes = about, .attribute_count = 1};
    weir__values_begin(&values, &set->attributes, &query);
    int len = weir__template_fill(&set->rules[0]->key, &values, false, key);
    CHECK_EQ(len, WEIR__KEY_MAX);
    weir_text cut = {key, (size_t)len};
    CHECK(!weir__list_has_key(&set->rules[0]->allow, cut, true));
    CHECK(weir__list_has_key(&set->rules[0]->block, cut, false));
    CHECK(weir__list_has_key(&set->rules[1]->allow, cut, true));
    CHECK(!weir__list_has_key(&set->rules[1]->block, cut, false));
    CHECK(weir__list_has_key(&set->rules[0]->allow, WEIR__TEXT("u:0"), true));
    CHECK(!weir__list_has_key(&set->rules[0]->block, WEIR__TEXT("u:0"), false));
    weir_rules_free(set);
}

TEST_MAIN
