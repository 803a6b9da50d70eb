/* Maps of attributes: their two formats, bad files, look-ups, and `identity` with them. */
#include "base/sha256.h"
#include "compiled.h"

#include <time.h>

#define HEADER WEIR__TEXT("api_key"), WEIR__TEXT("tier")

static struct diags diags;

static struct weir__map *read_text(const char *name, const char *text, size_t len)
{
    diags_begin(&diags, text, len);
    diags.source.name = name;
    struct weir__map *map = weir__map_read(&diags.report, HEADER);
    CHECK((map != NULL) == (diags.report.errors == 0));
    for (int i = 0; i < diags.count; i++)
        CHECK(!diags.all[i].has_source); /* a line may have a credential */
    return map;
}

static struct weir__map *read_csv(const char *text)
{
    return read_text("plans.csv", text, strlen(text));
}

/* NULL: there is none. */
static bool maps(const struct weir__map *map, const char *key, const char *expected)
{
    weir_text value = weir__map_find(map, weir__text_of(key));
    if (weir__text_is(value, expected ? expected : ""))
        return true;
    printf("  %s is %.*s\n", key, (int)value.len, value.data);
    return false;
}

/* ---- Formats ---- */

TEST(csv_has_keys_and_values)
{
    struct weir__map *map = read_csv("\xef\xbb\xbf# plans\r\n\n"
                                     "API_Key,Tier\r\n"
                                     "a,pro\r\n"
                                     "  b ,\tfree  \n"
                                     "\"c,d\" , \"x \"\"y\"\"\"\n"
                                     "\"#e\",' '\n"
                                     "key,value\n"
                                     "\"\"\"\",q\n"
                                     "f\xc3\xbc,z w");
    CHECK(map && weir__map_count(map) == 7);
    CHECK(maps(map, "a", "pro") && maps(map, "b", "free") && maps(map, "c,d", "x \"y\"") && maps(map, "#e", "' '"));
    CHECK(maps(map, "key", "value") && maps(map, "\"", "q") && maps(map, "f\xc3\xbc", "z w"));
    CHECK(maps(map, "api_key", NULL) && maps(map, "A", NULL) && maps(map, "", NULL) && maps(map, "aa", NULL));
    weir__map_release(map);

    map = read_csv("key,VALUE"); /* a header alone is an empty map */
    CHECK(map && weir__map_count(map) == 0 && maps(map, "key", NULL));
    weir__map_release(map);
    map = read_csv("tier,api_key\n");
    CHECK(map && maps(map, "tier", "api_key"));
    weir__map_release(map);
    map = weir__map_none();
    CHECK(map && maps(map, "a", NULL));
    CHECK(weir__map_hold(map) == map);
    weir__map_release(map);
    weir__map_release(map);
    weir__map_release(NULL);
}

TEST(yaml_has_keys_and_values)
{
    static const char text[] = "a: pro\n\"b c\": 'x: y'\n12: 0x1f # comment\n\"\\L\\L\\L\": \"\\P\\P\\P\"\n";
    struct weir__map *map = read_text("plans.yaml", text, sizeof text - 1);
    CHECK(map && weir__map_count(map) == 4);
    CHECK(maps(map, "a", "pro") && maps(map, "b c", "x: y") && maps(map, "12", "0x1f"));
    CHECK(maps(map, "\xe2\x80\xa8\xe2\x80\xa8\xe2\x80\xa8", "\xe2\x80\xa9\xe2\x80\xa9\xe2\x80\xa9"));
    weir__map_release(map);
    map = read_text("plans.yml", "{}", 2);
    CHECK(map && weir__map_count(map) == 0);
    weir__map_release(map);
}

static void digest_of(const char *key, char *hex)
{
    uint8_t digest[WEIR__SHA256_BYTES];
    weir__sha256(key, strlen(key), digest);
    *weir__write_hex(hex, digest, sizeof digest) = 0;
}

TEST(keys_may_be_digests)
{
    char text[512], longest[400], hex[3][65];
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    digest_of("secret", hex[0]);
    digest_of("other", hex[1]);
    digest_of(longest, hex[2]);
    hex[1][0] = (char)(hex[1][0] >= 'a' ? hex[1][0] - 32 : hex[1][0]);
    snprintf(text, sizeof text, "sha256:%s,pro\nsha256:%s,free\nsha256:%s,long\nplain,basic\n", hex[0], hex[1], hex[2]);
    struct weir__map *map = read_csv(text);
    CHECK(map && weir__map_count(map) == 4);
    CHECK(maps(map, "secret", "pro") && maps(map, "other", "free") && maps(map, longest, "long"));
    CHECK(maps(map, "plain", "basic") && maps(map, "unknown", NULL) && maps(map, "", NULL));
    snprintf(text, sizeof text, "sha256:%s", hex[0]);
    CHECK(maps(map, text, NULL)); /* the digest itself is no key */
    weir__map_release(map);
    snprintf(text, sizeof text, "sha256:%s: pro\n", hex[0]);
    map = read_text("p.yaml", text, strlen(text));
    CHECK(map && maps(map, "secret", "pro"));
    weir__map_release(map);
}

/* ---- Bad files ---- */

static bool refused(const char *text, const char *expected)
{
    struct weir__map *map = read_csv(text);
    weir__map_release(map);
    return !map && diags_are(&diags, WEIR_IS_ERROR, expected);
}

TEST(bad_csv_is_refused_with_its_line)
{
    char text[1024], hex[65];
    CHECK(refused("", "0:0: the file is empty: without entries it needs the line key,value"));
    CHECK(refused("# nothing\n\n", "0:0: the file is empty"));
    CHECK(refused("a,b\nnothing\n", "2:1: expected a key and a value with a comma between them"));
    CHECK(refused("a;b", "1:1: expected a key and a value"));
    CHECK(refused("a,b,c\n\"a\"b,c\nd,\"e\"f\n", "1:1: expected a key\n2:1: expected a key\n3:1: expected a key"));
    CHECK(refused("a,b\n\"c,d\ne,f\"\n", "2:1: this quote is not closed in its line"));
    CHECK(refused("a,\"b\"\"\n\",b", "1:1: this quote is not closed\n2:1: this quote is not closed"));
    CHECK(refused(",b\na,\n\"\",c\n", "1:1: the key is empty\n2:1: the value is empty\n3:1: the key is empty"));
    CHECK(refused("a,b\nc,d\n\na,b\n", "4:1: this key is here a second time: it is already on line 1"));
    CHECK(refused("a\tb,c\nd,\xff\n",
                  "1:1: the key has a control character\n2:1: the value has a control character, or "
                  "bytes that are not UTF-8"));
    CHECK(refused("sha256:,a\nsha256:12,b\n",
                  "1:1: expected 64 hexadecimal digits behind sha256:\n2:1: expected 64 hexadecimal digits"));
    struct weir__map *map = read_text("p.csv", "a\0b,c\n", 6);
    CHECK(!map && diags_are(&diags, WEIR_IS_ERROR, "1:1: the key has a control character"));

    memset(text, 'x', sizeof text);
    memcpy(text + WEIR__MAP_TEXT_MAX, ",v\n", 4);
    map = read_csv(text);
    CHECK(map && weir__map_count(map) == 1);
    weir__map_release(map);
    memset(text, 'x', sizeof text);
    memcpy(text + WEIR__MAP_TEXT_MAX + 1, ",v\nk,\"", 6);
    strcpy(text + sizeof text - 2, "\"");
    CHECK(refused(text, "1:1: the key has more than 255 bytes: write sha256: and the SHA-256 of such a key\n"
                        "2:1: the value has more than 255 bytes"));

    digest_of("k-1", hex);
    snprintf(text, sizeof text, "k-1,a\nsha256:%s,a\n", hex);
    CHECK(refused(text, "1:1: this key is here a second time: its SHA-256 is on line 2"));
    snprintf(text, sizeof text, "sha256:%s,a\nsha256:%s,b\n", hex, hex);
    CHECK(refused(text, "2:1: this key is here a second time: it is already on line 1"));
    hex[63] = 'g';
    snprintf(text, sizeof text, "sha256:%s,a\n", hex);
    CHECK(refused(text, "1:1: expected 64 hexadecimal digits"));
    CHECK(!strstr(diags.all[0].message, hex));
}

TEST(bad_yaml_is_refused_with_its_line)
{
    static const struct {
        const char *text, *expected;
    } bad[] = {
        {"", "0:0: the file is empty"},
        {"- a\n", "1:1: expected a map of keys to values, not a list"},
        {"a: pro\nb: [x]\nc:\nd: {e: f}\n",
         "2:4: expected a text, not a list\n3:3: expected a text, not nothing\n4:4: expected a text, not a map"},
        {"k-secret: a\nk-secret: b\n", "2:1: \"...\" is here a second time: it is already on line 1"},
        {"a: b\n  c: d\n", "2:4: a ':' is not allowed here"},
        {"a: \"\"\n", "1:1: the value is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct weir__map *map = read_text("p.yml", bad[i].text, strlen(bad[i].text));
        CHECK(!map && diags_are(&diags, WEIR_IS_ERROR, bad[i].expected));
        for (int k = 0; k < diags.count; k++)
            CHECK(!strstr(diags.all[k].message, "secret"));
    }
}

/* ---- A million ---- */

static char *many(size_t count, bool digests, size_t *len)
{
    char *text = malloc(count * 80 + 1), key[64], hex[65];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "key-%012zu-%011zu", i * 7919, i);
        if (digests)
            digest_of(key, hex);
        used +=
            (size_t)sprintf(text + used, digests ? "sha256:%s,pro%zu\n" : "%s,pro%zu\n", digests ? hex : key, i % 10);
    }
    *len = used;
    return text;
}

static double now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

/* Prints what a look-up takes, with keys in a random order; no bound. */
static void measure(const struct weir__map *map, size_t count, double read_ms, const char *what)
{
    enum { KEYS = 1 << 16 };
    static char keys[KEYS][64];
    uint64_t state = 1;
    size_t right = 0;
    for (size_t i = 0; i < KEYS; i++) {
        size_t which = test_random(&state) % count;
        snprintf(keys[i], sizeof keys[i], "key-%012zu-%011zu", which * 7919, which);
    }
    double start = now_ns();
    for (size_t i = 0; i < KEYS; i++)
        right += weir__map_find(map, (weir_text){keys[i], 28}).len == 4;
    double ns = (now_ns() - start) / (double)KEYS;
    CHECK_EQ(right, KEYS);
    printf("  %zu %s: %.0f ns a look-up, %.1f MB, read in %.0f ms\n", count, what, ns,
           (double)weir__map_bytes(map) / 1e6, read_ms);
}

TEST(a_million_entries_and_no_more)
{
    size_t len, most = WEIR__MAP_ENTRIES_MAX, few = (size_t)test_scaled(100000, 1000);
    char *text = many(most + 1, false, &len);
    struct weir__map *map = read_text("p.csv", text, len);
    CHECK(!map && diags_are(&diags, WEIR_IS_ERROR, "1000001:1: there are more than 1000000 entries"));
    while (text[--len - 1] != '\n')
        ;
    double start = now_ns();
    map = read_text("p.csv", text, len);
    double took = (now_ns() - start) / 1e6;
    CHECK(map && weir__map_count(map) == most);
    if (map)
        measure(map, most, took, "keys");
    weir__map_release(map);
    free(text);
    for (int digests = 0; digests < 2; digests++) {
        text = many(few, digests, &len);
        start = now_ns();
        map = read_text("p.csv", text, len);
        took = (now_ns() - start) / 1e6;
        CHECK(map && weir__map_count(map) == few);
        if (map)
            measure(map, few, took, digests ? "digests" : "keys");
        weir__map_release(map);
        free(text);
    }
}

/* ---- identity ---- */

static int opened;

/* Files that exist: plans.csv and users.yaml. */
static struct weir__map *open_map(void *context, const struct weir__node *node, weir_text from, weir_text to)
{
    const char *text = weir__text_is(node->text, "plans.csv")    ? "a,pro\nb,free\n7,gold\n"
                       : weir__text_is(node->text, "users.yaml") ? "a: '7'\nc: '8'\n"
                                                                 : NULL;
    struct weir__source source = {node->text.data, weir__text_of(text ? text : "")};
    struct weir__diagnostics own = {.sources = &source, .source_count = 1};
    CHECK(context == &opened);
    opened++;
    if (text)
        return weir__map_read(&own, from, to);
    weir__node_error(node, "%s cannot be read", node->text.data);
    return NULL;
}

static weir_rules *compile_maps(const char *text)
{
    static const struct weir__surroundings around = {.open_map = open_map, .files = &opened};
    weir_rules *set = NULL;
    diags_begin(&diags, text, strlen(text));
    opened = 0;
    CHECK_EQ(weir__rules_compile(&diags.report, &around, &set), set ? 0 : WEIR_ERULES);
    return set;
}

#define ONE_RULE "rules: [ { name: a, key: 'k:${api_key}', limit: { pro: 9, default: 5 }, window: 1h } ]\n"

/* NULL: it is missing. */
static bool has(weir_rules *set, const weir_attribute *about, size_t count, const char *name, const char *expected)
{
    static struct weir__values values;
    weir_query query = {.attributes = about, .attribute_count = count};
    weir_text value;
    int index = weir__attribute_add(&set->attributes, &set->arena, WEIR__ATTR_NAMED, weir__text_of(name), 0);
    weir__values_begin(&values, &set->attributes, &query);
    bool found = weir__value(&values, index, &value);
    return found == (expected != NULL) && (!found || weir__text_is(value, expected)) &&
           !weir__value_is_cut(&values, index);
}

TEST(attributes_are_looked_up)
{
    weir_rules *set = compile_maps("identity:\n"
                                   "  tier: { from: account, file: plans.csv, default: none }\n"
                                   "  account: { from: api_key, file: users.yaml }\n"
                                   "  api_key: header:X-API-Key\n"
                                   "  plan: { from: 'query:k', file: plans.csv }\n" ONE_RULE);
    CHECK(set && diags.count == 0);
    CHECK_EQ(opened, 3);
    if (!set)
        return;
    weir_attribute key = {WEIR_ATTR_HEADER, "x-api-key", " a "};
    CHECK(has(set, &key, 1, "account", "7") && has(set, &key, 1, "tier", "gold"));
    key.value = "c";
    CHECK(has(set, &key, 1, "account", "8") && has(set, &key, 1, "tier", "none"));
    key.value = "x";
    CHECK(has(set, &key, 1, "account", NULL) && has(set, &key, 1, "tier", "none"));
    CHECK(has(set, NULL, 0, "account", NULL) && has(set, NULL, 0, "tier", "none"));
    weir_attribute given[] = {{WEIR_ATTR_HEADER, "x-api-key", "a"}, {WEIR_ATTR_NAMED, "tier", "mine"}};
    CHECK(has(set, given, 2, "tier", "mine"));
    given[1] = (weir_attribute){WEIR_ATTR_NAMED, "account", "b"}; /* the application's, then the file's */
    CHECK(has(set, given, 2, "tier", "free"));

    char argument[2000] = "k=b";
    weir_attribute query = {WEIR_ATTR_QUERY, "", argument};
    CHECK(has(set, &query, 1, "plan", "free"));
    memset(argument + 2, 'b', sizeof argument - 3);
    CHECK(has(set, &query, 1, "plan", NULL)); /* too long to be known */
    CHECK(weir__rules_bytes(set) > set->arena.bytes);
    weir_rules_free(set);
}

TEST(several_values_are_all_looked_up)
{
    weir_rules *set =
        compile_maps("identity: { tier: { from: 'query:k', file: plans.csv, default: none } }\n" ONE_RULE);
    if (!set)
        return;
    static struct weir__values values;
    struct weir__several several;
    weir_attribute about = {WEIR_ATTR_QUERY, "", "k=b&k=a&k=%61&k=x"};
    weir_query query = {.attributes = &about, .attribute_count = 1};
    weir_text value;
    bool cut;
    int tier = weir__attribute_add(&set->attributes, &set->arena, WEIR__ATTR_NAMED, WEIR__TEXT("tier"), 0);
    weir__values_begin(&values, &set->attributes, &query);
    CHECK(weir__value(&values, tier, &value) && weir__value_is_several(&values, tier));
    weir__value_several(&values, tier, &several);
    CHECK_EQ(several.count, 3);
    CHECK(weir__text_is(weir__several_value(&several, 0, &cut), "free"));
    CHECK(weir__text_is(weir__several_value(&several, 1, &cut), "pro"));
    CHECK(weir__text_is(weir__several_value(&several, 2, &cut), "none"));
    CHECK_EQ(weir__rule_quota(set->rules[0], &values)->limit.limit, 5);
    weir_rules_free(set);
}

/* The quota of a request whose argument has several values, by a rule with these limits. */
static const struct weir__quota *quota_from(const char *source, const char *limits, const char *arguments)
{
    static struct weir__values values;
    static char text[512];
    static weir_rules *set;
    weir_attribute about = {WEIR_ATTR_QUERY, "", arguments};
    weir_query query = {.attributes = &about, .attribute_count = 1};
    weir_rules_free(set);
    snprintf(text, sizeof text,
             "identity: { tier: %s }\n"
             "rules:\n  - { name: r, key: k, limit: %s, window: 1m }\n",
             source, limits);
    set = compile_maps(text);
    if (!set)
        return NULL;
    weir__values_begin(&values, &set->attributes, &query);
    return weir__rule_quota(set->rules[0], &values);
}

static const struct weir__quota *quota_of(const char *limits, const char *arguments)
{
    return quota_from("{ from: 'query:k', file: plans.csv, default: none }", limits, arguments);
}

/* A first value without a tier is no way around the limit of another one. */
TEST(strictest_tier_decides_if_the_first_value_has_none)
{
    static const char file[] = "{ from: 'query:k', file: plans.csv }", direct[] = "'query:k'",
                      limits[] = "{ free: 10, pro: 100 }", loose[] = "{ free: 10, pro: 100, default: 5000 }";
    static char cut[2400];
    const struct weir__quota *quota;
    CHECK((quota = quota_from(file, limits, "k=x&k=b")) && quota->units == 10);
    CHECK((quota = quota_from(file, loose, "k=x&k=b")) && quota->units == 10);
    CHECK((quota = quota_from(file, limits, "k=b&k=x")) && quota->units == 10);
    CHECK(quota_from(file, limits, "k=x&k=y") == NULL);
    CHECK((quota = quota_from(direct, limits, "k=&k=free")) && quota->units == 10);
    snprintf(cut, sizeof cut, "k=%02000d&k=free", 0);
    CHECK((quota = quota_from(direct, limits, cut)) && quota->units == 10);
    CHECK((quota = quota_from(direct, loose, cut)) && quota->units == 10);
}

TEST(strictest_tier_of_several_values_decides)
{
    static const char no_default[] = "{ free: 10, pro: 100, none: 60 }",
                      banned[] = "{ pro: 100, none: 0, default: 50 }";
    const struct weir__quota *quota = quota_of(no_default, "k=a&k=b");
    CHECK(quota && quota->units == 10);
    CHECK((quota = quota_of(no_default, "k=x&k=a")) && quota->units == 60);
    CHECK((quota = quota_of(no_default, "k=a")) && quota->units == 100);
    CHECK((quota = quota_of(banned, "k=a&k=x")) && quota->kind == WEIR__BANNED);
    CHECK((quota = quota_of(banned, "k=a&k=b")) && quota->units == 50);
    CHECK((quota = quota_of("{ free: 10, pro: 100 }", "k=x&k=a")) && quota->units == 100); /* x has no tier */
    CHECK((quota = quota_of(no_default, "k=a&k=1&k=2&k=3&k=4&k=5&k=6&k=7&k=8&k=9")) &&
          quota->units == 10); /* too many */
    CHECK(quota_of("{ free: 10 }", "k=x&k=y") == NULL);
}

TEST(bad_maps_are_refused)
{
    static const struct {
        const char *identity, *expected;
    } bad[] = {
        {"tier: { from: api_key, file: plans.csv, default: x, fil: y }", "1:65: tier has no field \"fil\" -> file"},
        {"tier: { file: plans.csv }", "1:19: tier needs from: expected { from: ATTRIBUTE, file: PATH"},
        {"tier: { from: api_key }", "1:19: tier needs a file: expected"},
        {"tier: { from: api_key, file: nowhere.csv }", "1:42: nowhere.csv cannot be read"},
        {"tier: { from: api_key, file: plans.txt }", "1:42: file must end in .csv, .yaml or .yml"},
        {"tier: { from: api_key, file: [plans.csv] }", "1:42: file must be text, not a list"},
        {"tier: { from: acount, file: plans.csv }, account: host", "1:27: and \"acount\" is none of them -> account"},
        {"tier: { from: tenant, file: plans.csv }", "1:27: from is an attribute of identity"},
        {"tier: { from: 'headr:X', file: plans.csv }", "1:27: unknown attribute \"headr:X\" -> header:X"},
        {"tier: { from: api_key, file: plans.csv }, api_key: { from: tier, file: plans.csv }",
         "1:13: tier depends on itself\n1:55: api_key depends on itself"},
        {"tier: { from: tier, file: plans.csv }", "1:13: tier depends on itself: follow from:"},
        {"a: { from: b, file: plans.csv }, b: { from: c, file: plans.csv }, c: { from: b, file: plans.csv }",
         "1:46: b depends on itself\n1:79: c depends on itself"},
        {"path: { from: tier, file: plans.csv }", "1:13: path is built in"},
        {"Tier: { from: host, file: plans.csv }", "1:13: \"Tier\" is not a valid name"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "identity: { %s }\n%s", bad[i].identity, ONE_RULE);
        weir_rules *set = compile_maps(text);
        CHECK(!set && diags_are(&diags, WEIR_IS_ERROR, bad[i].expected));
        weir_rules_free(set);
    }
    CHECK(!compile(&diags, "identity: { tier: { from: api_key, file: plans.csv } }\n" ONE_RULE));
    CHECK(diags_are(&diags, WEIR_IS_ERROR, "1:42: rules of a rules service cannot name files"));
    CHECK(!compile_maps("identity: [ { file: x } ]\n" ONE_RULE));
}

TEST_MAIN
