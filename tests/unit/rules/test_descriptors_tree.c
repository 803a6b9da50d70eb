/* The tree of descriptors: names and keys that never collide, and look-ups against a plain model. */
#include "descriptors.h"

#include <ctype.h>

/* ---- names ---- */

/* "domain: DOMAIN\ndescriptors: [{ key: …" as YAML in flow style; texts in double quotes. */
static const char *const name_cases[][2] = {
    {"[{ key: kind, value: a, descriptors: [{ key: to, LIMIT }] }]", "d.kind_a.to"},
    {"[{ key: a_b, LIMIT }]", "d.a_b"},
    {"[{ key: a, value: b.c, LIMIT }]", "d.a_b.c"},
    {"[{ key: path, value: '/x/*', LIMIT }]", "d.path_/x/*"},
    {"[{ key: \"a\\n\\x7f\", value: \"\\t\", LIMIT }]", "d.a%0A%7F_%09"},
};

/* Replaces LIMIT by a rate_limit. */
static void fill_in(char *to, size_t size, const char *text)
{
    static const char limit[] = "rate_limit: { unit: hour, requests_per_unit: 3 }";
    size_t used = (size_t)snprintf(to, size, "domain: d\ndescriptors: ");
    while (*text && used + sizeof limit < size) {
        if (strncmp(text, "LIMIT", 5) == 0) {
            memcpy(to + used, limit, sizeof limit - 1);
            used += sizeof limit - 1;
            text += 5;
        } else {
            to[used++] = *text++;
        }
    }
    to[used] = 0;
}

TEST(names_are_the_path_from_the_root)
{
    for (size_t i = 0; i < sizeof name_cases / sizeof *name_cases; i++) {
        struct compiled compiled;
        char text[1024];
        fill_in(text, sizeof text, name_cases[i][0]);
        load_good(&compiled, text);
        CHECK_EQ(compiled.set ? compiled.set->count : 0, 1);
        if (compiled.set && compiled.set->count == 1)
            CHECK(text_is(compiled.set->rules[0]->name, name_cases[i][1]));
        unload(&compiled);
    }
}

TEST(similar_names_stay_distinct)
{
    struct compiled compiled;
    char text[2048];
    fill_in(text, sizeof text,
            "[{ key: a, LIMIT, descriptors: [{ key: b, LIMIT }] }, { key: a.b, LIMIT }, { key: c_d, LIMIT },"
            " { key: c, value: d, LIMIT }, { key: \"e\\n\", LIMIT }, { key: e%0A, LIMIT }]");
    load_good(&compiled, text);
    CHECK_EQ(compiled.set->count, 7);
    for (size_t i = 0; i < compiled.set->count; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(!weir__text_equal(compiled.set->rules[i]->name, compiled.set->rules[k]->name));
    CHECK(text_is(compiled.set->rules[1]->name, "d.a.b"));
    weir_text second = compiled.set->rules[2]->name;
    CHECK(second.len == strlen("d.a.b#") + 16 && memcmp(second.data, "d.a.b#", 6) == 0);

    /* Compiling again yields the same names: counters are found by them. */
    struct compiled again;
    load_good(&again, text);
    for (size_t i = 0; i < compiled.set->count; i++)
        CHECK_EQ((int64_t)compiled.set->rules[i]->id, (int64_t)again.set->rules[i]->id);
    unload(&again);
    unload(&compiled);
}

TEST(long_names_end_in_a_hash)
{
    for (size_t len = 80; len < 110; len++) {
        struct compiled compiled;
        char value[128], text[1024];
        /* Characters of two bytes: none is cut in half. */
        for (size_t i = 0; i < len; i++)
            value[i] = i % 2 ? '\xa4' : '\xc3';
        value[len & ~(size_t)1] = 0;
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors:\n"
                 "- { key: k, value: %sA, rate_limit: { unit: day, requests_per_unit: 1 } }\n"
                 "- { key: k, value: %sB, rate_limit: { unit: day, requests_per_unit: 2 } }\n",
                 value, value);
        load_good(&compiled, text);
        CHECK_EQ(compiled.set->count, 2);
        for (size_t i = 0; i < compiled.set->count; i++) {
            weir_text name = compiled.set->rules[i]->name;
            size_t full_len = strlen("d.k_") + strlen(value) + 1;
            CHECK(name.len <= WEIR_NAME_MAX);
            CHECK_EQ(name.len == full_len, full_len <= WEIR_NAME_MAX);
            if (full_len > WEIR_NAME_MAX) {
                CHECK(name.data[name.len - 17] == '#' && (unsigned char)name.data[name.len - 18] == 0xa4);
                for (size_t k = name.len - 16; k < name.len; k++)
                    CHECK(isxdigit((unsigned char)name.data[k]));
            }
        }
        unload(&compiled);
    }
}

/* ---- keys ---- */

static const char *const pieces[] = {"", "a", "b", ",", "=", ":", "%", "a,b", "a=b", "%2C", "a:", ",=", "=,"};
enum { PIECES = sizeof pieces / sizeof *pieces };

/* Every pair of domain, key and value, and every two entries: no two have the same key. */
TEST(different_descriptors_have_different_keys)
{
    enum { COUNT = PIECES * PIECES * PIECES };
    static char keys[COUNT][64];
    size_t count = 0;
    for (int a = 0; a < PIECES; a++)
        for (int b = 0; b < PIECES; b++)
            for (int c = 0; c < PIECES; c++) {
                weir_descriptor_entry entries[2] = {{text_of(pieces[a]), text_of(pieces[b])},
                                                    {text_of("k"), text_of(pieces[c])}};
                weir_descriptor one = {.entries = entries, .entry_count = c ? 2 : 1};
                char key[WEIR__KEY_MAX];
                int len = weir__descriptor_key(text_of(c % 2 ? "d" : "d:a=b"), &one, key);
                CHECK(len > 0 && len < 64);
                memcpy(keys[count], key, (size_t)len);
                keys[count++][len] = 0;
            }
    qsort(keys, count, sizeof keys[0], (int (*)(const void *, const void *))strcmp);
    for (size_t i = 1; i < count; i++)
        CHECK(strcmp(keys[i - 1], keys[i]) != 0);
}

TEST(key_text_is_that_of_the_descriptor)
{
    char key[WEIR__KEY_MAX];
    weir_descriptor_entry entries[] = {{text_of("a_=b,"), text_of("1=2,3%")}, {text_of(""), text_of("")}};
    weir_descriptor descriptor = {.entries = entries, .entry_count = 2};
    int len = weir__descriptor_key(text_of("d:e"), &descriptor, key);
    CHECK(text_is((weir_text){key, (size_t)len}, "d%3Ae:a_%3Db,=1=2%2C3%25,="));
}

TEST(long_keys_are_cut_and_stay_distinct)
{
    static char value[4 * WEIR__KEY_MAX];
    memset(value, 'v', sizeof value);
    for (size_t len = WEIR__KEY_MAX - 40; len < sizeof value; len += len < WEIR__KEY_MAX + 40 ? 1 : 97) {
        char keys[2][WEIR__KEY_MAX];
        int lens[2];
        for (int i = 0; i < 2; i++) {
            value[len - 1] = (char)('a' + i);
            weir_descriptor_entry entry = {text_of("k"), {value, len}};
            weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
            lens[i] = weir__descriptor_key(text_of("d"), &descriptor, keys[i]);
            value[len - 1] = 'v';
        }
        size_t full_len = strlen("d:k=") + len;
        CHECK_EQ(lens[0], full_len < WEIR__KEY_MAX ? (int64_t)full_len : WEIR__KEY_MAX);
        CHECK_EQ(lens[1], lens[0]);
        CHECK(memcmp(keys[0], keys[1], (size_t)lens[0]) != 0);
        CHECK(memcmp(keys[0], "d:k=vvvv", 8) == 0);
    }
}

/* ---- random trees against a plain model ---- */

enum { NODES_MAX = 400, DEPTH_MAX = 4, TEXT_MAX = 64 * 1024 };

static const char *const keys_of_model[] = {"a", "b", "ab"};
static const char *const values_of_model[] = {"", "", "x", "y", "xy", "yx", "x*", "*y", "x*y", "*", "y*x*", "**x"};
static const char *const looked_up_values[] = {"", "x", "y", "xy", "yx", "xxy", "yxx", "z", "x*", "*", "zx"};

#define PICK(list, seed) list[test_random(seed) % (sizeof(list) / sizeof *(list))]

struct model_node {
    const char *key, *value;
    int parent, limit; /* limit 0: none */
};

struct model {
    struct model_node nodes[NODES_MAX];
    int count;
    char text[TEXT_MAX];
    size_t used;
};

static bool model_has(const struct model *m, int parent, const char *key, const char *value)
{
    for (int i = 1; i < m->count; i++)
        if (m->nodes[i].parent == parent && strcmp(m->nodes[i].key, key) == 0 && strcmp(m->nodes[i].value, value) == 0)
            return true;
    return false;
}

/* Writes the children of a node, and theirs, while it generates them. */
static void model_grow(struct model *m, int parent, int depth, uint64_t *seed)
{
    int children = (int)(test_random(seed) % (depth == 1 ? 12 : 5));
    m->used += (size_t)sprintf(m->text + m->used, "[");
    for (int i = 0; i < children && m->count < NODES_MAX && m->used < TEXT_MAX - 1024; i++) {
        const char *key = PICK(keys_of_model, seed), *value = PICK(values_of_model, seed);
        if (model_has(m, parent, key, value))
            continue;
        int self = m->count++;
        m->nodes[self] = (struct model_node){key, value, parent, test_random(seed) % 3 ? self : 0};
        m->used += (size_t)sprintf(m->text + m->used, "{ key: %s, value: '%s', ", key, value);
        if (m->nodes[self].limit)
            m->used += (size_t)sprintf(m->text + m->used, "rate_limit: { unit: day, requests_per_unit: %d }, ", self);
        if (depth < DEPTH_MAX && test_random(seed) % 2) {
            m->used += (size_t)sprintf(m->text + m->used, "descriptors: ");
            model_grow(m, self, depth + 1, seed);
            m->used += (size_t)sprintf(m->text + m->used, ",");
        }
        m->used += (size_t)sprintf(m->text + m->used, "}, ");
    }
    m->used += (size_t)sprintf(m->text + m->used, "]");
}

static bool plain_glob(const char *pattern, const char *text)
{
    if (!*pattern)
        return !*text;
    if (*pattern == '*')
        return plain_glob(pattern + 1, text) || (*text && plain_glob(pattern, text + 1));
    return *pattern == *text && plain_glob(pattern + 1, text + 1);
}

/* How a node matches: 0 exactly, 1 as a wildcard, 2 as the bare key, 3 not at all. */
static int model_way(const struct model_node *node, const char *key, const char *value)
{
    if (strcmp(node->key, key) != 0)
        return 3;
    if (!*node->value)
        return 2;
    return strcmp(node->value, value) == 0 ? 0 : strchr(node->value, '*') && plain_glob(node->value, value) ? 1 : 3;
}

static int model_step(const struct model *m, int parent, const char *key, const char *value)
{
    int best = 0, best_way = 3;
    for (int i = 1; i < m->count; i++) {
        int way = m->nodes[i].parent == parent ? model_way(&m->nodes[i], key, value) : 3;
        if (way < best_way) {
            best = i;
            best_way = way;
        }
    }
    return best;
}

static void compare_with_model(const struct model *m, const weir_rules *set, uint64_t *seed, int64_t *found)
{
    char entries[256] = "";
    int at = 0, count = (int)(test_random(seed) % (DEPTH_MAX + 1));
    bool lost = count == 0;
    for (int i = 0; i < count; i++) {
        const char *key = PICK(keys_of_model, seed), *value = PICK(looked_up_values, seed);
        sprintf(entries + strlen(entries), "%s%s=%s", i ? "," : "", key, value);
        if (!lost)
            at = model_step(m, at, key, value);
        lost |= at == 0;
    }
    int64_t expected = lost || !m->nodes[at].limit ? -1 : m->nodes[at].limit, units = units_of(set, "d", entries);
    if (units != expected)
        printf("  %s in %s\n", entries, m->text);
    CHECK_EQ(units, expected);
    *found += expected > 0;
}

TEST(random_trees_agree_with_the_model)
{
    static struct model m;
    int64_t trees = test_scaled(2000, 50), found = 0;
    uint64_t seed = 7;
    for (int64_t tree = 0; tree < trees && test_failures == 0; tree++) {
        struct compiled compiled;
        m = (struct model){.count = 1};
        m.used = (size_t)sprintf(m.text, "domain: d\ndescriptors: ");
        model_grow(&m, 0, 1, &seed);
        load_good(&compiled, m.text);
        for (int i = 0; i < 200 && compiled.set && test_failures == 0; i++)
            compare_with_model(&m, compiled.set, &seed, &found);
        unload(&compiled);
    }
    CHECK(found > 10 * trees); /* the lookups did find rules */
}

/* ---- sizes ---- */

TEST(thousands_of_siblings)
{
    enum { SIBLINGS = 20000 };
    struct compiled compiled;
    char *text = malloc(SIBLINGS * 96 + 64), entries[64];
    size_t used = (size_t)sprintf(text, "domain: d\ndescriptors:\n");
    for (int i = 0; i < SIBLINGS; i++)
        used += (size_t)sprintf(
            text + used, "- { key: user, value: u%d, rate_limit: { unit: day, requests_per_unit: %d } }\n", i, i + 1);
    load_good(&compiled, text);
    CHECK_EQ(compiled.set->count, SIBLINGS);
    for (int i = 0; i < SIBLINGS; i++) {
        sprintf(entries, "user=u%d", i);
        CHECK_EQ(units_of(compiled.set, "d", entries), i + 1);
    }
    CHECK_EQ(units_of(compiled.set, "d", "user=u20000"), -1);
    unload(&compiled);
    free(text);
}

/* Wherever memory runs out, no invalid memory is accessed, and the arena reports the failure. */
TEST(memory_may_run_out_at_any_allocation)
{
    static char text[64 * 1024];
    size_t used = (size_t)sprintf(text, "domain: d\ndescriptors:\n");
    for (int i = 0; i < 300; i++)
        used += (size_t)sprintf(
            text + used,
            "- { key: k%d, value: 'v*', metadata: { a: [b] }, rate_limit: { unit: day, requests_per_unit: 1,"
            " name: n%d, replaces: [{ name: x }] } }\n",
            i % 7 ? i : 0, i);
    bool enough = false;
    for (size_t most = 0; !enough && most < (size_t)64 << 20; most += 4096) {
        struct diags diags;
        weir_rules set = {.arena = {.bytes_max = most}};
        diags_begin(&diags, text, used);
        struct weir__builder builder = {.set = &set, .report = &diags.report};
        const struct weir__node *root = weir__yaml_read(0, &diags.arena, &diags.report);
        CHECK(root != NULL);
        weir__descriptors_read(&builder, root);
        enough = !set.arena.failed;
        CHECK(!enough || diags.report.errors == 42); /* duplicate keys */
        weir__tree_free(builder.names);
        weir__tree_free(builder.descriptor_names);
        weir__arena_free(&set.arena);
        diags_end(&diags);
    }
    CHECK(enough);
}

TEST_MAIN
