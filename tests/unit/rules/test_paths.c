/* The index of paths: examples, and random sets against a linear search. */
#include "rules/paths.h"

#include "../../test.h"

#define ENTRIES_MAX 64

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static void find_anew(const struct weir__paths *paths, weir_text host, weir_text path, struct weir__found *found)
{
    found->count = 0;
    found->overflow = false;
    weir__paths_find(paths, host, path, found);
}

/* The entries and the memory they are in. */
struct world {
    struct weir__arena arena;
    struct weir__path_entry *entries;
    size_t count, room;
    const struct weir__paths *paths;
};

static struct weir__pattern *pattern_of(struct world *world, const char *text, bool path)
{
    if (!text)
        return NULL;
    struct weir__pattern *pattern = weir__arena_take(&world->arena, sizeof *pattern);
    CHECK(weir__pattern_compile(pattern, text_of(text), path, !path, &world->arena));
    return pattern;
}

static void entry_add(struct world *world, const char *host, const char *path, uint32_t rule)
{
    if (world->count == world->room) {
        world->room = world->room ? 2 * world->room : 64;
        world->entries = realloc(world->entries, world->room * sizeof *world->entries);
    }
    world->entries[world->count++] =
        (struct weir__path_entry){pattern_of(world, host, false), pattern_of(world, path, true), rule, 0};
}

static void make(struct world *world)
{
    world->paths = weir__paths_make(&world->arena, world->entries, world->count);
    CHECK(world->paths != NULL);
}

static void world_end(struct world *world)
{
    weir__arena_free(&world->arena);
    free(world->entries);
    *world = (struct world){0};
}

/* The rules found, as "1 4 5". */
static const char *find(const struct world *world, const char *host, const char *path)
{
    static char text[1024];
    uint32_t rules[256];
    struct weir__found found = {.rules = rules, .max = 256};
    int len = 0;

    find_anew(world->paths, text_of(host), text_of(path), &found);
    text[0] = '\0';
    for (size_t i = 0; i < found.count && len < 1000; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%u", i ? " " : "", rules[i]);
    return found.overflow ? "overflow" : text;
}

#define FIND(world, host, path, expected)                                                                              \
    do {                                                                                                               \
        const char *got = find(world, host, path);                                                                     \
        if (strcmp(got, expected) != 0 && ++test_failures <= TEST_PRINTED)                                             \
            printf("  %s:%d: %s%s finds '%s', expected '%s'\n", __FILE__, __LINE__, host, path, got, expected);        \
    } while (0)

TEST(each_kind_of_path)
{
    struct world world = {0};
    static const char *const paths[] = {"/a/b",     "/a/*",   "/a/*/b", "/a/x-*", "/*/export", "/a/*/b/*",
                                        "/**/deep", "/a/**z", NULL,     "/*",     "/"};

    for (uint32_t i = 0; i < sizeof paths / sizeof *paths; i++)
        entry_add(&world, NULL, paths[i], i);
    make(&world);
    FIND(&world, "h", "/a/b", "0 1 8 9");
    FIND(&world, "h", "/a", "8 9");
    FIND(&world, "h", "/a/", "1 8 9");
    FIND(&world, "h", "/a/c/b", "1 2 8 9");
    FIND(&world, "h", "/a/x-1", "1 3 8 9");
    FIND(&world, "h", "/a/x-1/y", "1 8 9");
    FIND(&world, "h", "/q/export", "4 8 9");
    FIND(&world, "h", "/a/c/b/d/e", "1 5 8 9");
    FIND(&world, "h", "/x/y/deep", "6 8 9");
    FIND(&world, "h", "/deep", "8 9");
    FIND(&world, "h", "/a/x/yz", "1 7 8 9");
    FIND(&world, "h", "/", "8 9 10");
    FIND(&world, "h", "", "8");
    FIND(&world, "h", "a/b", "8 9"); /* not a normalised path, but any bytes may come */
    world_end(&world);
}

TEST(hosts)
{
    struct world world = {0};
    static char longer[400], name[300];

    entry_add(&world, "api.example.com", "/a", 0);
    entry_add(&world, "*.example.com", "/a", 1);
    entry_add(&world, "*.com", "/*", 2);
    entry_add(&world, "api.*.com", "/a", 3);
    entry_add(&world, "*", "/a", 4);
    entry_add(&world, NULL, "/a", 5);
    memset(name, 'x', sizeof name - 1);
    entry_add(&world, name, "/a", 6);
    make(&world);
    FIND(&world, "api.example.com", "/a", "0 1 2 3 4 5");
    FIND(&world, "API.Example.COM", "/a", "0 1 2 3 4 5");
    FIND(&world, "www.api.example.com", "/a", "1 2 4 5");
    FIND(&world, "example.com", "/a", "2 4 5");
    FIND(&world, ".example.com", "/a", "1 2 4 5");
    FIND(&world, "example.org", "/a", "4 5");
    FIND(&world, "com", "/a", "4 5");
    FIND(&world, "", "/a", "5");
    FIND(&world, name, "/a", "4 5 6");
    /* Longer than any name that the map stores: only its suffix counts. */
    snprintf(longer, sizeof longer, "%s.Example.com", name);
    FIND(&world, longer, "/a", "1 2 4 5");
    world_end(&world);
}

TEST(a_rule_is_found_once_and_in_order)
{
    struct world world = {0};

    entry_add(&world, NULL, "/a/*", 7);
    entry_add(&world, NULL, "/a/b", 7);
    entry_add(&world, "h", "/a/b", 7);
    entry_add(&world, NULL, "/*/b", 3);
    entry_add(&world, "*", "/a/**", 3);
    entry_add(&world, NULL, "/a/b*", 9);
    entry_add(&world, NULL, "/a/b", 1);
    entry_add(&world, NULL, "/a/b", 0);
    make(&world);
    FIND(&world, "h", "/a/b", "0 1 3 7 9");
    world_end(&world);
}

TEST(more_matches_than_room)
{
    struct world world = {0};
    uint32_t rules[5] = {0, 0, 0, 0, 77};
    struct weir__found found = {.rules = rules, .max = 4};

    /* The later rules are found first, the first ones last. */
    for (uint32_t i = 0; i < 3; i++) {
        entry_add(&world, "h", "/a", i);
        entry_add(&world, NULL, "/a", 10 + i);
    }
    make(&world);
    find_anew(world.paths, text_of("h"), text_of("/a"), &found);
    CHECK_EQ(found.count, 4);
    CHECK(found.overflow);
    CHECK(rules[0] == 0 && rules[1] == 1 && rules[2] == 2 && rules[3] == 10 && rules[4] == 77);
    find_anew(world.paths, text_of("x"), text_of("/a"), &found);
    CHECK_EQ(found.count, 3);
    CHECK(!found.overflow);
    /* Exactly full is not too many, though each is found twice. */
    found.max = 3;
    for (uint32_t i = 0; i < 3; i++)
        entry_add(&world, "y", "/a", 10 + i);
    make(&world);
    find_anew(world.paths, text_of("y"), text_of("/a"), &found);
    CHECK_EQ(found.count, 3);
    CHECK(!found.overflow);
    found.max = 0;
    find_anew(world.paths, text_of("y"), text_of("/a"), &found);
    CHECK_EQ(found.count, 0);
    CHECK(found.overflow);
    world_end(&world);
}

TEST(empty_index)
{
    struct world world = {0};

    make(&world);
    FIND(&world, "h", "/a/b", "");
    FIND(&world, "", "", "");
    world_end(&world);
}

/* Patterns and paths with more segments than the tree has levels, and with very many. */
TEST(very_deep)
{
    struct world world = {0};
    static char path[8192];
    static const int depths[] = {30, 31, 32, 33, 34, 100, 2000};
    uint32_t rule = 0;

    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        for (int kind = 0; kind < 4; kind++) {
            static const char *const pieces[] = {"/a", "/*", "/a*", "/a"}, *const ends[] = {"", "/a", "", "/*"};
            path[0] = '\0';
            for (int k = 0; k < depths[i]; k++)
                strcat(path, pieces[kind]);
            strcat(path, ends[kind]);
            entry_add(&world, NULL, path, rule++);
        }
    }
    make(&world);
    for (int depth = 0; depth < 2047; depth += depth < 40 ? 1 : 7) {
        uint32_t rules[256];
        struct weir__found found = {.rules = rules, .max = 256};
        size_t expected = 0;
        for (int k = 0; k < depth; k++)
            memcpy(path + 2 * k, "/a", 2);
        weir_text text = {path, (size_t)depth * 2};
        find_anew(world.paths, text_of("h"), text, &found);
        for (size_t i = 0; i < world.count; i++) {
            if (!weir__pattern_match(world.entries[i].path, text, false, NULL))
                continue;
            CHECK(expected < found.count && rules[expected] == world.entries[i].rule);
            expected++;
        }
        CHECK_EQ(found.count, expected);
    }
    world_end(&world);
}

TEST(ten_thousand_children_of_one_node)
{
    struct world world = {0};
    char text[64];

    for (uint32_t i = 0; i < 10000; i++) {
        static const char *const kinds[] = {"/api/n%u", "/api/n%u/*", "/api/*/n%u", "/api/n%u-*", "/api/*-n%u.x"};
        snprintf(text, sizeof text, kinds[i % 5], i);
        entry_add(&world, i % 3 ? NULL : "h", text, i);
    }
    make(&world);
    for (uint32_t i = 0; i < 10000; i++) {
        static const char *const kinds[] = {"/api/n%u", "/api/n%u/x", "/api/x/n%u", "/api/n%u-x", "/api/y-n%u.x"};
        char expected[16];
        snprintf(text, sizeof text, kinds[i % 5], i);
        snprintf(expected, sizeof expected, "%u", i);
        FIND(&world, "h", text, expected);
        snprintf(text, sizeof text, kinds[i % 5], i + 10000);
        FIND(&world, "h", text, "");
    }
    world_end(&world);
}

/* ---- Against a linear search ---- */

static const char *pick(uint64_t *seed, const char *const *from, size_t count)
{
    return from[test_random(seed) % count];
}

static void random_path(uint64_t *seed, char *text, bool pattern)
{
    static const char *const pieces[] = {"a", "b", "ab", "ba", "", "aab", "a-b", "A"};
    static const char *const globs[] = {"*", "a*", "*b", "a*b", "*a*", "**", "a**", "**b", "*-*", "ab*"};
    size_t segments = test_random(seed) % 6;

    text[0] = '\0';
    for (size_t i = 0; i < segments; i++) {
        if (i > 0 || test_random(seed) % 16)
            strcat(text, "/");
        strcat(text, pattern && test_random(seed) % 3 == 0 ? pick(seed, globs, sizeof globs / sizeof *globs)
                                                           : pick(seed, pieces, sizeof pieces / sizeof *pieces));
    }
}

static void check_against_all(const struct world *world, const char *host, const char *path, size_t max)
{
    uint32_t rules[ENTRIES_MAX], expected[ENTRIES_MAX];
    struct weir__found found = {.rules = rules, .max = max};
    size_t count = 0;
    bool matched[ENTRIES_MAX] = {false};

    find_anew(world->paths, text_of(host), text_of(path), &found);
    for (size_t i = 0; i < world->count; i++) {
        const struct weir__path_entry *entry = &world->entries[i];
        matched[entry->rule] |= (!entry->host || weir__pattern_match(entry->host, text_of(host), false, NULL)) &&
                                (!entry->path || weir__pattern_match(entry->path, text_of(path), false, NULL));
    }
    for (uint32_t i = 0; i < ENTRIES_MAX; i++)
        if (matched[i])
            expected[count++] = i;
    CHECK_EQ(found.overflow, count > max);
    count = count < max ? count : max;
    bool same = found.count == count && memcmp(rules, expected, count * sizeof *rules) == 0;
    if (!same && ++test_failures <= TEST_PRINTED)
        printf("  %s%s: %zu found, expected %zu\n", host, path, found.count, count);
}

TEST(random_sets_agree_with_a_linear_search)
{
    static const char *const hosts[] = {"a.x", "b.a.x", "*.x", "*.a.x", "*", "*x", "a.*", "*.*.x", "*."};
    static const char *const names[] = {"a.x", "A.X", "b.a.x", "x", ".x", "", "c.b.a.x", "x.y", "a.", "."};
    uint64_t seed = 7;
    int64_t sets = test_scaled(20000, 500);

    for (int64_t set = 0; set < sets; set++) {
        struct world world = {0};
        char path[64];
        size_t count = test_random(&seed) % ENTRIES_MAX;
        for (size_t i = 0; i < count; i++) {
            random_path(&seed, path, true);
            entry_add(&world, test_random(&seed) % 2 ? NULL : pick(&seed, hosts, sizeof hosts / sizeof *hosts),
                      test_random(&seed) % 16 ? path : NULL, (uint32_t)(test_random(&seed) % ENTRIES_MAX));
        }
        make(&world);
        for (int i = 0; i < 50; i++) {
            random_path(&seed, path, false);
            check_against_all(&world, pick(&seed, names, sizeof names / sizeof *names), path,
                              test_random(&seed) % 4 ? ENTRIES_MAX : test_random(&seed) % 4);
        }
        world_end(&world);
    }
}

/* The fast path returns what the slow path returns, or nothing; and for most sets it does return something. */
TEST(fast_path_lookup_agrees_with_the_slow_path)
{
    enum { FEW_MAX = 4 };
    static const char *const ends[] = {"", "/", "/*"};
    uint64_t seed = 9;
    int64_t sets = test_scaled(20000, 500), decided = 0, decidable = 0;

    for (int64_t set = 0; set < sets; set++) {
        struct world world = {0};
        char path[64];
        size_t count = test_random(&seed) % 6;
        bool globs = test_random(&seed) % 4 == 0, hosts = test_random(&seed) % 4 == 0;
        for (size_t i = 0; i < count; i++) {
            random_path(&seed, path, globs);
            strcat(path, ends[test_random(&seed) % 3]);
            entry_add(&world, hosts && test_random(&seed) % 2 ? "h" : NULL, test_random(&seed) % 16 ? path : NULL,
                      (uint32_t)(test_random(&seed) % ENTRIES_MAX));
        }
        make(&world);
        for (int i = 0; i < 50; i++) {
            uint32_t rules[ENTRIES_MAX], few[FEW_MAX];
            struct weir__found found = {.rules = rules, .max = ENTRIES_MAX};
            random_path(&seed, path, false);
            find_anew(world.paths, text_of(""), text_of(path), &found);
            size_t max = 1 + test_random(&seed) % FEW_MAX;
            size_t few_count = weir__paths_few(world.paths, text_of(path), few, max);
            CHECK(few_count <= max && (!few_count || few_count == found.count));
            CHECK(memcmp(few, rules, few_count * sizeof *few) == 0);
            decided += few_count > 0;
            decidable += found.count > 0 && found.count <= max && !globs && !hosts;
        }
        world_end(&world);
    }
    CHECK(decided > decidable / 2); /* the other sets have an index that the fast path does not support */
}

/* Labels of every length up to a few words of the hash, and similar ones. */
TEST(labels_of_all_lengths)
{
    struct world world = {0};
    char path[64];

    for (uint32_t len = 1; len < 40; len++) {
        snprintf(path, sizeof path, "/%.*s", (int)len, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst");
        entry_add(&world, NULL, path, len);
    }
    make(&world);
    for (uint32_t len = 1; len < 40; len++) {
        uint32_t rule = 0;
        snprintf(path, sizeof path, "/%.*s", (int)len, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst");
        CHECK_EQ(weir__paths_few(world.paths, text_of(path), &rule, 1), 1);
        CHECK_EQ(rule, len);
        for (uint32_t i = 1; i <= len; i++) {
            path[i] ^= 1;
            CHECK_EQ(weir__paths_few(world.paths, text_of(path), &rule, 1), 0);
            path[i] ^= 1;
        }
    }
    world_end(&world);
}

/* Unusual patterns: not for paths, case-insensitive, exact with a star in it. */
TEST(unusual_patterns_match_as_without_the_index)
{
    struct world world = {0};
    struct weir__pattern unusual[] = {
        {.kind = WEIR__PATTERN_GLOB, .text = text_of("/a*c")},
        {.kind = WEIR__PATTERN_GLOB, .path = true, .nocase = true, .text = text_of("/a/*")},
        {.kind = WEIR__PATTERN_EXACT, .path = true, .text = text_of("/a/*")},
        {.kind = WEIR__PATTERN_EXACT, .path = true, .nocase = true, .text = text_of("/a/b")},
        {.kind = WEIR__PATTERN_GLOB, .path = true, .text = text_of("*")},
        {.kind = WEIR__PATTERN_EXACT, .path = true, .text = text_of("")},
    };

    for (uint32_t i = 0; i < sizeof unusual / sizeof *unusual; i++) {
        entry_add(&world, NULL, NULL, i);
        world.entries[i].path = &unusual[i];
    }
    make(&world);
    FIND(&world, "", "/a/b/c", "0 1");
    FIND(&world, "", "/A/B", "1 3");
    FIND(&world, "", "/a/*", "1 2");
    FIND(&world, "", "a", "4");
    FIND(&world, "", "", "4 5");
    world_end(&world);
}

TEST(allocation_failure_is_an_error)
{
    struct world world = {0};
    int made = 0, refused = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        char text[64];
        snprintf(text, sizeof text, i % 2 ? "/a%u/x*y%u/b" : "/a%u/b%u/**c", i, i);
        entry_add(&world, NULL, text, i);
    }
    for (size_t bytes = 1; bytes < 1 << 20; bytes += bytes / 8 + 100) {
        struct weir__arena arena = {.bytes_max = bytes};
        const struct weir__paths *paths = weir__paths_make(&arena, world.entries, world.count);
        CHECK_EQ(arena.failed, paths == NULL);
        CHECK(arena.bytes <= bytes);
        made += paths != NULL;
        refused += paths == NULL;
        weir__arena_free(&arena);
    }
    CHECK(made > 0 && refused > 0);
    world_end(&world);
}

TEST_MAIN
