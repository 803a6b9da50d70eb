/* Key templates: which are accepted, the keys they produce, and that no two sets of values share a key. */
#include "rules/key.h"
#include "diagnostics_collector.h"

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static struct diags diags;
static struct weir__attributes all;

static void start(void)
{
    diags_begin(&diags, "", 0);
    memset(&all, 0, sizeof all);
    all.identity = (struct weir__identity){.ipv4_prefix = 32, .ipv6_prefix = 64};
}

static bool compile(struct weir__template *tmpl, const char *text)
{
    diags.count = 0;
    return weir__template_compile(tmpl, &all, &diags.arena, &diags.report, (struct weir__place){0, 5, 10},
                                  text_of(text));
}

/* The attributes a, b and c of a request; NULL: missing. */
struct abc {
    weir_text value[3];
};

static bool lookup_abc(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const struct abc *abc = context;

    if (kind != WEIR_ATTR_NAMED || name.len != 1 || !abc->value[name.data[0] - 'a'].data)
        return false;
    *value = abc->value[name.data[0] - 'a'];
    return true;
}

static int fill(const struct weir__template *tmpl, struct abc *abc, bool share, char key[WEIR__KEY_MAX])
{
    struct weir__values values;
    weir_query query = {.lookup = lookup_abc, .lookup_context = abc};

    weir__values_begin(&values, &all, &query);
    return weir__template_fill(tmpl, &values, share, key);
}

static bool becomes(const char *template, const char *a, const char *b, bool share, const char *expected)
{
    struct weir__template tmpl;
    struct abc abc = {{{a, a ? strlen(a) : 0}, {b, b ? strlen(b) : 0}}};
    char key[WEIR__KEY_MAX];

    if (!compile(&tmpl, template)) {
        printf("  does not compile: %s\n", template);
        return false;
    }
    CHECK(weir__text_is(tmpl.source, template) && tmpl.source.data[tmpl.source.len] == '\0');
    int len = fill(&tmpl, &abc, share, key);
    if (len < 0)
        return !expected;
    if (expected && weir__text_is((weir_text){key, (size_t)len}, expected))
        return true;
    printf("  \"%.*s\" instead of \"%s\"\n", len, key, expected ? expected : "nothing");
    return false;
}

TEST(template_is_filled_in)
{
    start();
    CHECK(becomes("", NULL, NULL, false, ""));
    CHECK(becomes("all", NULL, NULL, false, "all"));
    CHECK(becomes("${a}", "42", NULL, false, "42"));
    CHECK(becomes("user:${a}", "42", NULL, false, "user:42"));
    CHECK(becomes("e:${a}:${b}", "/x/y", "7", false, "e:/x/y:7"));
    CHECK(becomes("${a}!", "7", NULL, false, "7!"));
    CHECK(becomes("$$${a}$$", "7", NULL, false, "$7$"));
    CHECK(becomes("$$${a}$$", "7$", NULL, false, "$7%24$"));
    CHECK(becomes("{${a}}", "7", NULL, false, "{7}"));
    CHECK(becomes("{}:${a}", "7", NULL, false, "{}:7"));
    CHECK(becomes("\xc3\xa4${a}", "\xc3\xb6", NULL, false, "\xc3\xa4\xc3\xb6"));
    CHECK(becomes("${a}:${b}", "x:y", "p:q", false, "x%3Ay:p:q")); /* a value at the end needs no terminator */
    CHECK(becomes("${a}:${b}", "x%y", "p%q", false, "x%25y:p%q"));
    CHECK(becomes("${a}:${b}", "x", "%q", false, "x:%25q"));
    CHECK(becomes("50%${a}", "x", NULL, false, "50%x"));
    CHECK(becomes("${a}%${b}", "x", "y", false, "x%%y"));
    CHECK(becomes("${a}%%${b}", "x", "y", false, "x%%%y"));
    CHECK(becomes("${a}${b}", "x", "y", false, "x%%y"));
    diags_end(&diags);
}

TEST(missing_values)
{
    start();
    CHECK(becomes("${a}:${b}", "x", NULL, false, NULL));
    CHECK(becomes("${a}:${b}", NULL, "y", false, NULL));
    CHECK(becomes("${a}:${b}", "x", "", false, NULL)); /* an empty value counts as missing */
    CHECK(becomes("${a}:${b}", "x", NULL, true, "x:%missing"));
    CHECK(becomes("${a}:${b}", NULL, "%missing", true, "%missing:%25missing"));
    CHECK(becomes("${a}:${b}", "%missing", NULL, true, "%25missing:%missing"));
    diags_end(&diags);
}

static bool refused(const char *template, int column, const char *part)
{
    struct weir__template tmpl;
    if (compile(&tmpl, template)) {
        printf("  compiles: %s\n", template);
        return false;
    }
    return diags.count == 1 && diags_is(&diags, 0, 5, column, part);
}

TEST(refused_with_their_column)
{
    start();
    CHECK(refused("cost: $5", 16, "$$"));
    CHECK(refused("$", 10, "$$"));
    CHECK(refused("$$$", 12, "$$"));
    CHECK(refused("$a{b}", 10, "$$"));
    CHECK(refused("ip:${client_ip", 13, "without a \"}\""));
    CHECK(refused("${", 10, "without"));
    CHECK(refused("x${}", 11, "names no attribute"));
    CHECK(refused("${a${b}}", 13, "nested"));
    CHECK(refused("ip:${clientip}", 15, "unknown attribute \"clientip\""));
    CHECK(strcmp(diags.all[0].suggestion, "client_ip") == 0);
    CHECK(refused("\xc3\xa4:${headers:X}", 14, "headers:X")); /* columns are of characters */
    CHECK(strcmp(diags.all[0].suggestion, "header:X") == 0);
    CHECK(refused("a\tb", 11, "control"));
    CHECK(refused("${a\nb}", 12, "small letters"));
    struct weir__template tmpl;
    /* All errors, not only the first. */
    CHECK(!compile(&tmpl, "$:${}:${user-id}:${path:99}"));
    CHECK_EQ(diags.count, 4);
    CHECK(diags_is(&diags, 0, 5, 10, "lone"));
    CHECK(diags_is(&diags, 1, 5, 12, "names no"));
    CHECK(diags_is(&diags, 2, 5, 18, "user-id"));
    CHECK(diags_is(&diags, 3, 5, 29, "1 to 32"));
    CHECK(!weir__template_compile(&tmpl, &all, &diags.arena, &diags.report, (struct weir__place){0, 5, 10},
                                  (weir_text){"a\0b", 3}));
    diags_end(&diags);
}

TEST(placeholders_without_separator_are_warned_about)
{
    start();
    struct weir__template tmpl;
    CHECK(compile(&tmpl, "${a}:${b}${c}"));
    CHECK_EQ(diags.count, 1);
    CHECK(diags.all[0].severity == WEIR_IS_WARNING && diags_is(&diags, 0, 5, 19, "\"%%\" will separate"));
    diags_end(&diags);
}

TEST(bounds)
{
    start();
    struct weir__template tmpl;
    char text[WEIR__TEMPLATE_MAX + 2] = "";

    for (int i = 0; i < WEIR__TEMPLATE_PIECES; i++)
        strcat(text, ":${a}");
    CHECK(compile(&tmpl, text));
    CHECK_EQ(tmpl.piece_count, WEIR__TEMPLATE_PIECES);
    strcat(text, "x");
    CHECK(refused(text, 10 + 5 * WEIR__TEMPLATE_PIECES, "16 parts"));
    strcat(text, "${a}${b}${c}");
    CHECK(refused(text, 11 + 5 * WEIR__TEMPLATE_PIECES, "16 parts"));
    /* As many placeholders as allowed, each with an implicit separator. */
    text[0] = '\0';
    for (int i = 0; i < 30; i++)
        strcat(text, "${a}");
    CHECK(!compile(&tmpl, text));
    memset(text, '%', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK(refused(text, 10, "1024 bytes"));
    text[sizeof text - 2] = '\0';
    CHECK(compile(&tmpl, text));

    diags.arena.bytes_max = diags.arena.bytes;
    for (int i = 0; i < 100; i++)
        (void)compile(&tmpl, text);
    CHECK(diags.arena.failed && !compile(&tmpl, text));
    diags_end(&diags);
}

/* ---- Long keys ---- */

TEST(long_keys_end_in_a_hash)
{
    start();
    struct weir__template tmpl;
    char key[WEIR__KEY_MAX], other[WEIR__KEY_MAX], value[3000];
    memset(value, 'v', sizeof value);
    CHECK(compile(&tmpl, "u:${a}:${b}"));

    struct abc abc = {{{value, WEIR__KEY_MAX - 5}, {"x", 1}}};
    CHECK_EQ(fill(&tmpl, &abc, false, key), WEIR__KEY_MAX - 1);
    CHECK_EQ(key[WEIR__KEY_MAX - 2], 'x');
    /* A key of exactly the maximal length is hashed too: so no shorter key can equal it. */
    abc.value[0].len++;
    CHECK_EQ(fill(&tmpl, &abc, false, key), WEIR__KEY_MAX);
    CHECK_EQ(key[WEIR__KEY_MAX - 33], '#');
    CHECK(memcmp(key, "u:vvvv", 6) == 0);
    struct abc same = abc;
    CHECK_EQ(fill(&tmpl, &same, false, other), WEIR__KEY_MAX);
    CHECK(memcmp(key, other, sizeof key) == 0);
    /* The same in every process and every version: counters on other hosts have this name. */
    abc.value[0].len = 1000;
    CHECK_EQ(fill(&tmpl, &abc, false, key), WEIR__KEY_MAX);
    CHECK(memcmp(key + WEIR__KEY_MAX - 33, "#e5beabbd595cfb58c327c58b84502001", 33) == 0);

    /* Values that differ only after the part that is kept. */
    uint64_t seed = 5;
    for (int i = 0; i < 200; i++) {
        size_t at = WEIR__KEY_MAX + test_random(&seed) % 2000;
        abc.value[0].len = sizeof value;
        CHECK_EQ(fill(&tmpl, &abc, false, key), WEIR__KEY_MAX);
        value[at] = i % 2 ? ':' : 'w';
        CHECK_EQ(fill(&tmpl, &abc, false, other), WEIR__KEY_MAX);
        value[at] = 'v';
        CHECK(memcmp(key, other, sizeof key) != 0);
        CHECK(memcmp(key, other, sizeof key - 33) == 0);
    }
    diags_end(&diags);
}

/* ---- No two sets of values share a key ---- */

struct made {
    int len;
    char key[64];
    char values[3][8];
};

static int compare_made(const void *a, const void *b)
{
    const struct made *one = a, *other = b;

    return one->len != other->len ? one->len - other->len : memcmp(one->key, other->key, (size_t)one->len);
}

TEST(different_values_different_keys)
{
    static const char *const templates[] = {"${a}:${b}",      "${a}${b}",         "${a}%${b}",    "${a}/${b}:${c}",
                                            "${a}%%${b}/",    "${a}2${b}5",       "${a}m${b}",    "x${a}%25${b}",
                                            "${a}A${b}3${c}", "${a}%missing${b}", "${a}${b}${c}", "${a}i${b}s:"};
    /* Everything that an escape, a separator or the marker of a missing value consists of. */
    static const char *const letters[] = {"%", ":", "/", "2", "5", "3", "A", "m", "%25", "%missing", "%3A", "i", "s"};
    enum { ROUNDS = 3000 };
    static struct made made[ROUNDS];
    uint64_t seed = 11;

    start();
    for (size_t t = 0; t < sizeof templates / sizeof templates[0]; t++) {
        struct weir__template tmpl;
        CHECK(compile(&tmpl, templates[t]));
        int64_t rounds = test_scaled(ROUNDS, 500);
        rounds = rounds > ROUNDS ? ROUNDS : rounds;
        bool third = strstr(templates[t], "${c}");
        for (int64_t i = 0; i < rounds; i++) {
            struct abc abc = {{{NULL, 0}}};
            memset(&made[i], 0, sizeof made[i]);
            for (int v = 0; v < (third ? 3 : 2); v++) {
                char *value = made[i].values[v];
                size_t pieces = test_random(&seed) % 4;
                for (size_t p = 0; p < pieces; p++) {
                    const char *piece = letters[test_random(&seed) % (p ? 8 : sizeof letters / sizeof letters[0])];
                    if (strlen(value) + strlen(piece) < sizeof made[i].values[v])
                        strcat(value, piece);
                }
                abc.value[v] = (weir_text){value, strlen(value)};
            }
            char key[WEIR__KEY_MAX];
            made[i].len = fill(&tmpl, &abc, true, key);
            CHECK(made[i].len > 0 && made[i].len <= (int)sizeof made[i].key);
            memcpy(made[i].key, key, (size_t)made[i].len);
        }
        qsort(made, (size_t)rounds, sizeof made[0], compare_made);
        for (int64_t i = 1; i < rounds; i++)
            if (compare_made(&made[i - 1], &made[i]) == 0 &&
                memcmp(made[i - 1].values, made[i].values, sizeof made[i].values) != 0) {
                printf("  %s: \"%s\" \"%s\" \"%s\" and \"%s\" \"%s\" \"%s\" are both %.*s\n", templates[t],
                       made[i - 1].values[0], made[i - 1].values[1], made[i - 1].values[2], made[i].values[0],
                       made[i].values[1], made[i].values[2], made[i].len, made[i].key);
                CHECK(false);
            }
    }
    diags_end(&diags);
}

TEST_MAIN
