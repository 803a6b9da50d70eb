/*
 * The Nth allocation fails, in weir or in libyaml, which is linked in here so that the linker can wrap the allocation
 * functions for both.
 */
#include "diagnostics_collector.h"
#include "rules/map.h"

#include "../../failing.h"

static struct {
    int nth;    /* number of the allocation that fails; 0: none */
    bool after; /* and all after it */
    int calls;  /* so far */
    bool hit;
} fault;

static bool fails(void)
{
    bool failed = ++fault.calls == fault.nth || (fault.after && fault.nth && fault.calls > fault.nth);
    fault.hit |= failed;
    return failed;
}

FAILING_MALLOC(fails())
FAILING_REALLOC(fails())
FAILING_STRDUP(fails())
FAILING(void *, tsearch, (const void *key, void **root, int (*compare)(const void *, const void *)),
        (key, root, compare), NULL, fails())

static struct diags diags;

/* Fails each allocation while this text is read. Returns the number of allocations. */
static int fail_each(const char *text, size_t len, bool good, bool after)
{
    int nth = 0;
    do {
        diags_begin(&diags, text, len);
        fault.calls = 0;
        fault.hit = false;
        fault.after = after;
        fault.nth = ++nth;
        const struct weir__node *root = weir__yaml_read(0, &diags.arena, &diags.report);
        fault.nth = 0;
        /* Either all is well or an error was reported; and an allocation failure is always reported as such. */
        CHECK(!root == (diags.report.errors > 0));
        CHECK(!diags.arena.failed || (!root && strstr(diags.all[diags.count - 1].message, "not enough memory")));
        CHECK(diags.arena.failed || !root == !good);
        CHECK(fault.hit || !diags.arena.failed);
        CHECK(!after || !fault.hit || diags.arena.failed);
        diags_end(&diags);
    } while (fault.hit && nth < 100000);
    return nth;
}

static void fail_both_ways(const char *text, size_t len, bool good)
{
    CHECK(fail_each(text, len, good, true) > 5);
    CHECK(fail_each(text, len, good, false) > 5);
}

TEST(each_allocation_fails_for_a_valid_file)
{
    static const char text[] =
        "%YAML 1.1\n---\n# comment\nrules:\n  - name: \"a\\n\\u00fc\"\n    match: {path: /a/*, method: [GET, "
        "'POST']}\n    text: |\n      one\n      two\n    other: >-\n      one\n\n      two\n  - a b\n    c\n";
    fail_both_ways(text, sizeof text - 1, true);
}

TEST(each_allocation_fails_for_an_invalid_file)
{
    static const char *const texts[] = {
        "a: &x [1]\nb: *x\nc: !<t> 2\nd: !!str e\na: 2\n",
        "a: [1, {b: 'c'\n",
        "a:\n\tb: 1\n",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "a: 1\n---\nb: 2\n",
        "%FOO bar\n---\na\n",
        "a: \xff\n",
        "a: \"\\z\"\n",
        "? [b]\n: c\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fail_both_ways(texts[i], strlen(texts[i]), false);
}

/* Long enough for every buffer to grow. */
TEST(each_allocation_fails_for_a_long_file)
{
    enum { COUNT = 100 };
    char *text = malloc(COUNT * 256);
    size_t used = 0;
    for (int i = 0; i < COUNT; i++)
        used += (size_t)sprintf(text + used, "key%d: [a, {b: c}, 'd e f g h i j k l m n o p q r s t', \"u\"]\n", i);
    CHECK(fail_each(text, used, true, true) > 500);
    free(text);
}

/* A lack of memory is no error of the file: the caller tries again. */
TEST(each_allocation_fails_for_a_map)
{
    static const char text[] = "k-acme: pro\nk-other: free\n";
    int nth = 0;
    struct weir__map *map;
    do {
        diags_begin(&diags, text, sizeof text - 1);
        diags.source.name = "plans.yaml";
        fault.calls = 0;
        fault.hit = fault.after = false;
        fault.nth = ++nth;
        map = weir__map_read(&diags.report, WEIR__TEXT("api_key"), WEIR__TEXT("tier"));
        fault.nth = 0;
        CHECK_EQ(diags.report.errors, 0);
        CHECK(map || fault.hit);
        weir__map_release(map);
        diags_end(&diags);
    } while (fault.hit && nth < 1000);
    CHECK(map && nth > 5);
}

TEST_MAIN
