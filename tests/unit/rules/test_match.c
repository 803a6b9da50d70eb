/* Which rules match a request: compared with a naive interpretation of the same rules; quotas, costs and lists. */
#include "compiled.h"

static struct diags diags;
static struct weir__values values;

/* ---- The model: a naive interpretation of the rules ---- */

/* '*' stops at '/' in paths, unless it is doubled or a trailing segment. Texts are short. */
static bool glob(const char *pattern, const char *text, bool path)
{
    if (!*pattern)
        return !*text;
    if (*pattern != '*')
        return *pattern == *text && glob(pattern + 1, text + 1, path);
    bool doubled = pattern[1] == '*';
    const char *rest = pattern + 1 + doubled;
    for (const char *at = text;; at++) {
        if (glob(rest, at, path))
            return true;
        if (!*at || (path && !doubled && *at == '/'))
            return false;
    }
}

static bool path_is(const char *pattern, const char *path)
{
    size_t len = strlen(pattern);
    if (len >= 2 && strcmp(pattern + len - 2, "/*") == 0) {
        char wide[64];
        snprintf(wide, sizeof wide, "%s*", pattern);
        return glob(wide, path, true);
    }
    return glob(pattern, path, true);
}

enum { FIELDS = 7, PATTERNS_MAX = 3 };
enum { PATH, METHOD, HOST, HEADER, QUERY, USER, NETWORK };

struct field {
    bool given, negate, absent;
    int count;
    const char *patterns[PATTERNS_MAX]; /* a regular expression begins with '~' */
};

static const char *const pool[FIELDS][12] = {
    {"/a", "/a/b", "/a/*", "/*/b", "/a/x-*", "/**/z", "/a/*/c", "~^/v[0-9]/", "/b", "/a/**/d", "~z$", "/**"},
    {"GET", "POST", "get", "Purge", "PUT", "~^P", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "*"},
    {"a.example", "*.example", "B.example", "www.a.example", "~^w", "x", "*", "a.*", "c", "d", "*.c", "**"},
    {"on", "*", "o*", "off", "~^o", "x", "y", "*f", "z", "on*", "~f$", "off*f"},
    {"on", "*", "o*", "off", "~^o", "x", "y", "*f", "z", "on*", "~f$", "off*f"},
    {"u1", "*", "u*", "u2", "~2", "x", "y", "*1", "z", "u1*", "~u", "u*2"},
    {"10.0.0.0/8", "10.1.0.0/16", "192.0.2.1", "2001:db8::/32", "::1", "0.0.0.0/0", "::/0", "10.1.2.0/24", "10.1.2.3",
     "172.16.0.0/12", "192.0.2.0/31", "2001:db8:1::/48"},
};

static const char *const texts[FIELDS][12] = {
    {"/a", "/a/b", "/a/x-1", "/v1/a", "/q/b", "/a/b/c", "/x/y/z", "/a/1/2/d", "/", "/b", "/a/", "/v12/z"},
    {"GET", "POST", "post", "PURGE", "PUT", "DELETE", "HEAD", "FOO", "OPTIONS", "PATCH", "g", "CONNECT"},
    {"a.example", "www.a.example", "b.example", "A.Example", "x", "c", "w.c", "b.Example:80", "d", "a.", "y",
     "example"},
    {"on", "off", "of", "o", "x", "y", "z", "f", "", "offf", "onn", "q"},
    {"on", "off", "of", "o", "x", "y", "z", "f", "", "offf", "onn", "q"},
    {"u1", "u2", "u12", "u21", "x", "y", "z", "1", "", "u", "2", "v"},
    {"10.0.0.1", "10.1.2.3", "10.1.2.4", "192.0.2.1", "192.0.2.0", "::1", "2001:db8::1", "2001:db8:1::1", "172.16.3.4",
     "8.8.8.8", "fe80::1", "::ffff:10.1.2.3"},
};

static bool regex_is(const char *regex, const char *text)
{
    size_t len = strlen(text);
    if (strcmp(regex, "^/v[0-9]/") == 0)
        return strncmp(text, "/v", 2) == 0 && text[2] >= '0' && text[2] <= '9' && text[3] == '/';
    if (regex[0] == '^')
        return text[0] == regex[1] || (regex[1] == 'P' && text[0] == 'p');
    if (regex[strlen(regex) - 1] == '$')
        return len > 0 && text[len - 1] == regex[0];
    return strchr(text, regex[0]) != NULL;
}

static void lower(const char *from, char *to)
{
    while ((*to++ = (char)weir__lower(*from++)))
        ;
}

static bool pattern_is(int field, const char *pattern, const char *text)
{
    char p[64] = "", t[64] = "";
    struct weir__network network;
    struct weir__address address, masked;
    bool bits;
    switch (field) {
    case NETWORK:
        if (!weir__network_parse((weir_text){pattern, strlen(pattern)}, &network, &bits) ||
            !weir__address_parse((weir_text){text, strlen(text)}, &address))
            return false;
        masked = address;
        weir__address_mask(&masked, network.length);
        return memcmp(masked.bytes, network.address.bytes, 16) == 0;
    case PATH:
        return pattern[0] == '~' ? regex_is(pattern + 1, text) : path_is(pattern, text);
    case METHOD:
    case HOST:
        lower(text, t);
        lower(pattern, p);
        if (pattern[0] == '~')
            return regex_is(pattern + 1, t);
        return glob(p, t, false);
    default:
        return pattern[0] == '~' ? regex_is(pattern + 1, text) : glob(pattern, text, false);
    }
}

static bool is_any(int field, const char *pattern)
{
    return strspn(pattern, "*") == strlen(pattern) || (field == PATH && strcmp(pattern, "/**") == 0);
}

/* `text` is NULL if the request lacks the field. */
static bool field_holds(int field, const struct field *f, const char *text)
{
    if (!f->given)
        return true;
    if (f->absent)
        return (text == NULL) != f->negate;
    bool any = false;
    for (int i = 0; i < f->count; i++)
        /* A pattern for anything also matches a missing path, method or host. */
        any |= (field <= HOST && !f->negate && is_any(field, f->patterns[i])) ||
               (text && pattern_is(field, f->patterns[i], text));
    return any != f->negate;
}

/* ---- Random rules ---- */

enum { RULES_MAX = 40 };
static struct field model[RULES_MAX][FIELDS];

static uint64_t seed;

static int upto(int n)
{
    return (int)(test_random(&seed) % (uint64_t)n);
}

static void make_field(int field, struct field *f)
{
    memset(f, 0, sizeof *f);
    f->given = upto(field == PATH ? 4 : 3) == 0 || (field == PATH && upto(4) > 0);
    f->negate = upto(5) == 0;
    f->absent = field >= HEADER && field <= USER && upto(6) == 0;
    f->count = 1 + upto(PATTERNS_MAX);
    for (int i = 0; i < f->count; i++)
        f->patterns[i] = pool[field][upto(12)];
}

static size_t write_field(const struct field *f, const char *name, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "%s: ", name);
    if (f->absent)
        return len + (size_t)snprintf(text + len, size - len, f->negate ? "{ not: absent }" : "absent");
    if (f->negate)
        len += (size_t)snprintf(text + len, size - len, "{ not: ");
    len += (size_t)snprintf(text + len, size - len, f->count > 1 ? "[" : "");
    for (int i = 0; i < f->count; i++) {
        const char *p = f->patterns[i];
        len += (size_t)snprintf(text + len, size - len, p[0] == '~' ? "%s{ regex: '%s' }" : "%s'%s'", i ? ", " : "",
                                p[0] == '~' ? p + 1 : p);
    }
    return len + (size_t)snprintf(text + len, size - len, "%s%s", f->count > 1 ? "]" : "", f->negate ? " }" : "");
}

static char normal_path[64];
static bool normalized; /* the rules of this round also match normal forms of the path */

static void write_rules(int count, char *text, size_t size)
{
    static const char *const names[FIELDS] = {"path", "method", "host", "X-A", "q", "user_id", "network"};
    size_t len = (size_t)snprintf(text, size, "%srules:\n", normalized ? "" : "normalize: off\n");
    for (int r = 0; r < count; r++) {
        len += (size_t)snprintf(text + len, size - len, "  - name: r%d\n    limit: 5\n    window: %ds\n    match:\n", r,
                                r + 1);
        bool some = false;
        for (int f = 0; f < FIELDS; f++) {
            if (!model[r][f].given)
                continue;
            some = true;
            const char *in = f == HEADER ? "header:\n        " : f == QUERY ? "query:\n        " : "";
            len += (size_t)snprintf(text + len, size - len, "      %s", in);
            len += write_field(&model[r][f], names[f], text + len, size - len);
            len += (size_t)snprintf(text + len, size - len, "\n");
        }
        if (!some)
            len += (size_t)snprintf(text + len, size - len, "      {}\n");
    }
}

/* Spells the path differently. `normal` is the normal form of all spellings. */
static const char *respell(const char *path, char *spelled, char *normal, size_t size)
{
    static const char *const ends[] = {"", "", "", ";x=1", "/", " ", "/;y", "\t;z", ";x/"};
    size_t len = strlen(path);
    bool root = strcmp(path, "/") == 0;
    snprintf(normal, size, "%.*s", (int)(len > 1 && path[len - 1] == '/' ? len - 1 : len), path);
    snprintf(spelled, size, "%s%s", normal, root ? "" : ends[upto(sizeof ends / sizeof *ends)]);
    return upto(3) ? path : spelled;
}

/* A request: one text or NULL for each field. */
static void make_request(const char **has, weir_attribute *about, size_t *count, char *query)
{
    static char spelled[64];

    static const enum weir_attribute_kind kinds[FIELDS] = {WEIR_ATTR_PATH,   WEIR_ATTR_METHOD, WEIR_ATTR_HOST,
                                                           WEIR_ATTR_HEADER, WEIR_ATTR_QUERY,  WEIR_ATTR_NAMED,
                                                           WEIR_ATTR_PEER};
    *count = 0;
    for (int f = 0; f < FIELDS; f++) {
        has[f] = upto(6) ? texts[f][upto(12)] : NULL;
        if (f == PATH && has[f])
            has[f] = respell(has[f], spelled, normal_path, sizeof spelled);
        const char *value = has[f];
        if (!value)
            continue;
        if (f == QUERY) {
            snprintf(query, 64, "a=1&q=%s", value);
            value = query;
        }
        about[(*count)++] = (weir_attribute){kinds[f], f == HEADER ? "x-a" : f == USER ? "user_id" : "", value};
        if (!*has[f])
            has[f] = NULL; /* an empty value counts as missing */
    }
    if (has[HOST] && strcmp(has[HOST], "b.Example:80") == 0)
        has[HOST] = "b.example"; /* hosts are compared without port */
    else if (has[HOST] && strcmp(has[HOST], "a.") == 0)
        has[HOST] = "a"; /* nor with a trailing dot */
}

static void check_requests(const weir_rules *set, int rules, size_t max, struct weir__matching *matching)
{
    for (int n = 0; n < 60; n++) {
        const char *has[FIELDS];
        weir_attribute about[FIELDS];
        char query_text[64];
        uint32_t found_rules[RULES_MAX];
        weir_query query = {.attributes = about};
        struct weir__found found = {.rules = found_rules, .max = max};
        make_request(has, about, &query.attribute_count, query_text);
        weir__values_begin(&values, &set->attributes, &query);
        weir__rules_match(set, &values, matching, &found);

        size_t expected = 0, at = 0;
        bool same = true;
        for (int r = 0; r < rules; r++) {
            bool all = true;
            for (int f = 0; f < FIELDS; f++)
                all &= field_holds(f, &model[r][f], has[f]) ||
                       (f == PATH && normalized && has[f] && field_holds(f, &model[r][f], normal_path));
            if (!all || expected++ >= max)
                continue;
            same &= at < found.count && found.rules[at] == (uint32_t)r;
            at++;
        }
        same &= found.count == at && found.overflow == (expected > max);
        CHECK(same);
        if (!same && test_failures < 3)
            for (int f = 0; f < FIELDS; f++)
                printf("    %s\n", has[f] ? has[f] : "-");
    }
}

TEST(random_rules_agree_with_the_model)
{
    static char text[65536];
    struct weir__matching matching = {.regex_scratch = weir__regex_scratch_make()};
    int64_t rounds = test_scaled(600, 30);
    for (int64_t round = 0; round < rounds; round++) {
        seed = (uint64_t)round;
        int rules = 1 + upto(RULES_MAX);
        normalized = upto(2);
        for (int r = 0; r < rules; r++)
            for (int f = 0; f < FIELDS; f++)
                make_field(f, &model[r][f]);
        write_rules(rules, text, sizeof text);
        weir_rules *set = compile(&diags, text);
        CHECK(set != NULL);
        if (!set) {
            CHECK(diags_are(&diags, WEIR_IS_ERROR, ""));
            break;
        }
        /* With room for all matches, and with room for fewer than the index finds. */
        check_requests(set, rules, RULES_MAX, &matching);
        check_requests(set, rules, 2, &matching);
        if (test_failures) {
            printf("round %d\n%s", (int)round, text);
            weir_rules_free(set);
            break;
        }
        weir_rules_free(set);
    }
    CHECK_EQ(matching.limited, 0);
    weir__regex_scratch_free(matching.regex_scratch);
}

/* ---- Cases that random rules rarely cover ---- */

static size_t match_count(const weir_rules *set, const weir_attribute *about, size_t count, struct weir__matching *how)
{
    uint32_t rules[8];
    struct weir__found found = {.rules = rules, .max = 8};
    weir_query query = {.attributes = about, .attribute_count = count};
    weir__values_begin(&values, &set->attributes, &query);
    weir__rules_match(set, &values, how, &found);
    return found.count;
}

/* A regular expression that hits its step limit counts as matching, also inside a `not`. */
TEST(expression_that_hits_its_bound_matches)
{
    weir_rules *set =
        compile(&diags, "rules:\n"
                        "  - { name: a, match: { path: { regex: x } }, limit: 1, window: 1s }\n"
                        "  - { name: b, match: { path: { not: { regex: x } } }, limit: 1, window: 1s }\n");
    struct weir__matching no_scratch = {.regex_scratch = NULL};
    weir_attribute about = {WEIR_ATTR_PATH, "", "/y"};
    CHECK(set != NULL);
    if (!set)
        return;
    CHECK_EQ(match_count(set, &about, 1, &no_scratch), 2);
    CHECK_EQ(no_scratch.limited, 2);
    weir_rules_free(set);
}

/* More hosts times paths than the index has room for. */
TEST(many_hosts_and_paths)
{
    static char text[65536];
    size_t len = (size_t)snprintf(text, sizeof text,
                                  "rules:\n  - name: a\n    limit: 1\n    window: 1s\n    match:\n"
                                  "      path: [");
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s/p%d", i ? ", " : "", i);
    len += (size_t)snprintf(text + len, sizeof text - len, "]\n      host: [");
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%sh%d.example", i ? ", " : "", i);
    snprintf(text + len, sizeof text - len, "]\n");
    weir_rules *set = compile(&diags, text);
    CHECK(set != NULL);
    if (!set)
        return;
    CHECK(set->rules[0]->match->entry_count <= 1024);
    struct weir__matching matching = {.regex_scratch = NULL};
    for (int i = 0; i < 102; i++) {
        char path[16], host[16];
        snprintf(path, sizeof path, "/p%d", i);
        snprintf(host, sizeof host, "H%d.example", 101 - i);
        weir_attribute about[] = {{WEIR_ATTR_PATH, "", path}, {WEIR_ATTR_HOST, "", host}};
        CHECK_EQ(match_count(set, about, 2, &matching), i >= 2 && i < 100);
    }
    weir_rules_free(set);
}

TEST(costs)
{
    weir_rules *set =
        compile(&diags, "rules:\n"
                        "  - { name: a, limit: 999, window: 1s, cost: 3 }\n"
                        "  - { name: b, limit: 999, window: 1s, cost: header:X-Cost }\n"
                        "  - { name: c, limit: 999, window: 1s, cost: { from: header:X-Cost, default: 7, max: 100 } }\n"
                        "  - { name: d, limit: 999, window: 1s, cost: { /x/y: 2, /x/*: 5, '/**/q': 6, default: 4 } }\n"
                        "  - { name: e, limit: 999, window: 1s, cost: 0 }\n");
    static const struct {
        const char *path, *header;
        int64_t cost[5];
    } cases[] = {
        {"/", NULL, {3, 1, 7, 4, 0}},
        {"/x/y", "5", {3, 5, 5, 2, 0}},
        {"/x/z", "0", {3, 1, 1, 5, 0}},
        {"/x/q", "-5", {3, 1, 7, 5, 0}},
        {"/w/q", "1000", {3, 1000, 100, 6, 0}},
        {"/", "12x", {3, 1, 7, 4, 0}},
        {"/", " 5\t", {3, 5, 5, 4, 0}},
        {"/", "5 5", {3, 1, 7, 4, 0}},
        {"/", "99999999999", {3, 4294967295, 100, 4, 0}},
        {"/", "99999999999999999999", {3, 4294967295, 100, 4, 0}},
        {"/", "007", {3, 7, 7, 4, 0}},
        {"/", "00", {3, 1, 1, 4, 0}},
        {"/", "0x5", {3, 1, 7, 4, 0}},
        {NULL, "", {3, 1, 7, 4, 0}},
    };
    CHECK(set != NULL);
    for (size_t i = 0; set && i < sizeof cases / sizeof *cases; i++) {
        weir_attribute about[] = {{WEIR_ATTR_PATH, "", cases[i].path}, {WEIR_ATTR_HEADER, "X-Cost", cases[i].header}};
        weir_query query = {.attributes = about, .attribute_count = 2};
        struct weir__matching matching = {.regex_scratch = NULL};
        weir__values_begin(&values, &set->attributes, &query);
        for (size_t r = 0; r < 5; r++)
            CHECK_EQ(weir__rule_cost(set->rules[r], &values, &matching), cases[i].cost[r]);
    }
    weir_rules_free(set);
}

/* Keys of a list, against a linear search. */
TEST(lists_of_keys)
{
    static char text[65536];
    size_t len = (size_t)snprintf(text, sizeof text, "block:\n  keys:\n");
    enum { KEYS = 500 };
    for (int i = 0; i < KEYS; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "    - k%d\n", i * i);
    snprintf(text + len, sizeof text - len, "    - 'glob:*:x'\n");
    weir_rules *set = compile(&diags, text);
    CHECK(set != NULL);
    for (int n = 0; set && n < KEYS * KEYS; n += 7) {
        char key[16];
        int root = 0, key_len = snprintf(key, sizeof key, "k%d", n);
        while ((root + 1) * (root + 1) <= n)
            root++;
        CHECK_EQ(weir__list_has_key(&set->block, (weir_text){key, (size_t)key_len}, true), root * root == n);
    }
    CHECK(set && weir__list_has_key(&set->block, WEIR__TEXT("glob:a/b:x"), true));
    CHECK(set && !weir__list_has_key(&set->block, WEIR__TEXT("glob:a/b:"), true));
    CHECK(set && !weir__list_has_key(&set->block, (weir_text){"", 0}, true));
    CHECK(set && !weir__list_has_key(&set->allow, WEIR__TEXT("k1"), true));
    weir_rules_free(set);
}

TEST_MAIN
