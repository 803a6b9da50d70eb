/* Invalid descriptor files: every error is reported at its position; and warnings about doubtful ones. */
#include "descriptors.h"

struct bad {
    const char *text;
    int line, column;
    const char *part, *suggestion; /* of the first message */
    int count;                     /* number of messages */
};

/* Under "domain: d\ndescriptors:\n", so the text begins in line 3. */
static const struct bad descriptors[] = {
    {"  - { value: x }\n", 3, 5, "a descriptor needs a key", "", 1},
    {"  - { key: '' }\n", 3, 12, "a descriptor needs a key", "", 1},
    {"  - { key: }\n", 3, 12, "a descriptor needs a key", "", 1},
    {"  - { key: [a] }\n", 3, 12, "key must be text, not a list", "", 1},
    {"  - { key: a, value: { b: c } }\n", 3, 22, "value must be text, not a map", "", 1},
    {"  - a\n", 3, 5, "a descriptor must be a map such as { key: … }, not text", "", 1},
    {"  - [a]\n", 3, 5, "a descriptor must be a map such as { key: … }, not a list", "", 1},
    {"  - { key: a, ratelimit: {} }\n", 3, 15, "a descriptor has no field \"ratelimit\"", "rate_limit", 1},
    {"  - { key: a, shadow_mod: true }\n", 3, 15, "no field \"shadow_mod\"", "shadow_mode", 1},
    {"  - { key: a, domain: b }\n", 3, 15, "no field \"domain\"", "", 1},
    {"  - { key: a, unit: day }\n", 3, 15, "no field \"unit\"", "", 1},
    {"  - { key: a, shadow_mode: yes }\n", 3, 28, "shadow_mode must be true or false", "true", 1},
    {"  - { key: a, quota_mode: 2 }\n", 3, 27, "quota_mode must be true or false", "", 1},
    {"  - { key: a, detailed_metric: [] }\n", 3, 32, "detailed_metric must be true or false", "", 1},
    {"  - { key: a, value_to_metric: x }\n", 3, 32, "value_to_metric must be true or false", "", 1},
    {"  - { key: a, share_threshold: x, value: 'b*' }\n", 3, 32, "share_threshold must be true or false", "", 1},
    {"  - { key: a, share_threshold: true }\n", 3, 15, "share_threshold needs a value with '*'", "", 1},
    {"  - { key: 'a*', value: b, share_threshold: true }\n", 3, 12, "'*' is a wildcard in values only", "", 2},
    {"  - { key: a, metadata: [1] }\n", 3, 25, "metadata must be a map", "", 1},
    {"  - { key: a, metadata: x }\n", 3, 25, "metadata must be a map", "", 1},
    {"  - { key: a, descriptors: { key: b } }\n", 3, 28, "descriptors must be a list, but is a map", "", 1},
    {"  - { key: a, descriptors: b }\n", 3, 28, "descriptors must be a list", "", 1},
    {"  - { key: a, descriptors: [{ key: b, descriptors: [{ key: c, unitt: 1 }] }] }\n", 3, 63, "no field \"unitt\"",
     "", 1},
    {"  - { key: a, value: b }\n  - key: c\n  - key: a\n    value: b\n", 5, 5,
     "the same key and value as in the descriptor at f:3", "", 1},
    {"  - key: a\n    rate_limit: { unit: day, requests_per_unit: 1 }\n  - key: a\n    value: ''\n"
     "    rate_limit: { unit: day, requests_per_unit: 1 }\n",
     5, 5, "the same key and value as in the descriptor at f:3", "", 1},
    {"  - { key: a, value: 'b*' }\n  - { key: a, value: 'b*' }\n", 4, 5, "the descriptor at f:3", "", 1},
    /* The descriptors below an invalid one are checked too, and valid ones cause no error. */
    {"  - { key: a, descriptors: [{ key: b, rate_limit: { unlimited: true } }] }\n  - { key: a, descriptors: [{ key: "
     "b, rate_limit: { unlimited: true } }] }\n  - { key: a, descriptors: [{ key: b, rate_limit: { unlimited: true } "
     "}] }\n",
     4, 5, "at f:3", "", 2},
    {"  - value: x\n    descriptors: [{ kay: b }]\n", 3, 5, "a descriptor needs a key", "", 3},
};

/* The rate_limit of "domain: d\ndescriptors:\n  - key: a\n    rate_limit: ", so it begins in line 4, column 17. */
static const struct bad limits[] = {
    {"{ unit: day }", 4, 17, "needs requests_per_unit", "", 1},
    {"{ requests_per_unit: 1 }", 4, 17, "needs a unit", "", 1},
    {"{ unit: day, requests_per_unit: 9, warn_at: 100% }", 4, 61, "warn_at is 1% to 99%", "", 1},
    {"{ unit: day, requests_per_unit: 9, warn_at: 80 }", 4, 61, "such as 80%", "", 1},
    {"{}", 4, 17, "needs a unit", "", 2},
    {"5", 4, 17, "rate_limit must be a map", "", 1},
    {"{ unit: , requests_per_unit: 1 }", 4, 17, "needs a unit", "", 1},
    {"{ unit: '', requests_per_unit: 1 }", 4, 25, "unit must be second,", "", 1},
    {"{ unit: fortnight, requests_per_unit: 1 }", 4, 25, "unit must be second,", "", 1},
    {"{ unit: minut, requests_per_unit: 1 }", 4, 25, "not \"minut\"", "minute", 1},
    {"{ unit: unknown, requests_per_unit: 1 }", 4, 25, "not \"unknown\"", "", 1},
    {"{ unit: day, requests_per_unit: -1 }", 4, 49, "from 0 to 4294967295", "", 1},
    {"{ unit: day, requests_per_unit: 4294967296 }", 4, 49, "from 0 to 4294967295", "", 1},
    {"{ unit: day, requests_per_unit: 1.5 }", 4, 49, "whole number", "", 1},
    {"{ unit: day, requests_per_unit: many }", 4, 49, "from 0 to", "", 1},
    {"{ unit: day, request_per_unit: 1, requests_per_unit: 1 }", 4, 30, "no field \"request_per_unit\"",
     "requests_per_unit", 1},
    {"{ unit: day, requests_per_unit: 1, unit_multiplier: 0 }", 4, 69, "from 1 to 400", "", 1},
    {"{ unit: day, requests_per_unit: 1, unit_multiplier: 401 }", 4, 69, "from 1 to 400", "", 1},
    {"{ unit: year, requests_per_unit: 1, unit_multiplier: 2 }", 4, 70, "unit_multiplier", "", 1},
    {"{ unlimited: true, unit: day }", 4, 36, "unit contradicts unlimited: true", "", 1},
    {"{ unlimited: true, unit: nonsense }", 4, 36, "unit contradicts unlimited: true", "", 1},
    {"{ unlimited: true, burst: 5, algorithm: token_bucket }", 4, 46, "algorithm contradicts unlimited", "", 2},
    {"{ unlimited: perhaps, unit: day, requests_per_unit: 1 }", 4, 30, "unlimited must be true or false", "", 1},
    {"{ unlimited: true, name: [] }", 4, 42, "name must be text", "", 1},
    {"{ unlimited: true, name: n, replaces: [{ name: n }] }", 4, 64, "cannot replace itself", "", 1},
    {"{ unlimited: true, replaces: [{ name: '' }] }", 4, 47, "needs the name of a rate_limit", "", 1},
    {"{ unlimited: true, replaces: [{}] }", 4, 47, "needs the name of a rate_limit", "", 1},
    {"{ unlimited: true, replaces: [n] }", 4, 47, "an entry of replaces must be a map", "", 1},
    {"{ unlimited: true, replaces: [{ nam: n }] }", 4, 49, "no field \"nam\"", "name", 2},
    {"{ unlimited: true, replaces: { name: n } }", 4, 46, "replaces must be a list", "", 1},
    /* Algorithms. */
    {"{ unit: day, requests_per_unit: 1, algorithm: token_buckets }", 4, 63, "algorithm must be", "token_bucket", 1},
    {"{ unit: day, requests_per_unit: 1, burst: 5 }", 4, 52,
     "burst is a parameter of token_bucket and leaky_bucket, but the algorithm is fixed_window, the default", "", 1},
    {"{ unit: day, requests_per_unit: 1, algorithm: leaky_bucket, refill: interval }", 4, 77,
     "refill is a parameter of token_bucket, but the algorithm is leaky_bucket", "", 1},
    {"{ unit: day, requests_per_unit: 1, algorithm: token_bucket, align: clock, buckets: 2, round: up }", 4, 77,
     "align", "", 3},
    {"{ unit: day, requests_per_unit: 1, count_rejected: true }", 4, 52, "count_rejected is a parameter of", "", 1},
    {"{ unit: day, requests_per_unit: 1, soft: 2000% }", 4, 58, "soft must be a percentage", "", 1},
    {"{ unit: day, requests_per_unit: 1, align: epoch }", 4, 59, "align must be clock or first_request", "", 1},
    {"{ unit: hour, requests_per_unit: 1, timezone: UTC }", 4, 53, "exactly one day, week, month or year", "", 1},
    {"{ unit: day, unit_multiplier: 2, requests_per_unit: 1, timezone: UTC }", 4, 72, "exactly one day", "", 1},
    {"{ unit: day, requests_per_unit: 1, timezone: UTC, align: first_request }", 4, 52, "contradicts align", "", 1},
    {"{ unit: day, requests_per_unit: 1, timezone: Nowhere/Else }", 4, 62, "time zone", "", 1},
    {"{ unit: day, requests_per_unit: 1, algorithm: sliding_window_counter, buckets: 61 }", 4, 96, "from 2 to 60", "",
     1},
    {"{ unit: day, requests_per_unit: 1, algorithm: sliding_window_counter, buckets: 3, round: up }", 4, 99,
     "round is for 2 buckets", "", 1},
    {"{ unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: 0 }", 4, 84, "burst must be", "", 1},
    /* Limits that the algorithms cannot represent. */
    {"{ unit: day, requests_per_unit: 65536, algorithm: sliding_window_log }", 4, 49, "limit out of range", "", 1},
    {"{ unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: 401 }", 4, 84, "overflow", "", 1},
    {"{ unit: day, requests_per_unit: 4294967295, soft: 1% }", 4, 49, "overflow", "", 1},
};

static void check_bad(const char *before, const struct bad *bad)
{
    struct compiled compiled;
    char text[1024];
    snprintf(text, sizeof text, "%s%s", before, bad->text);
    load(&compiled, text);
    bool good = compiled.set == NULL && diags_is(&compiled.diags, 0, bad->line, bad->column, bad->part);
    CHECK(good);
    CHECK_EQ(compiled.diags.count, bad->count);
    CHECK(compiled.diags.count == 0 || strcmp(compiled.diags.all[0].suggestion, bad->suggestion) == 0);
    if (!good || test_failures)
        printf("  in %s\n", bad->text);
    unload(&compiled);
}

TEST(errors_in_descriptors_are_reported)
{
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors && !test_failures; i++)
        check_bad("domain: d\ndescriptors:\n", &descriptors[i]);
}

TEST(errors_in_rate_limits_are_reported)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits && !test_failures; i++)
        check_bad("domain: d\ndescriptors:\n  - key: a\n    rate_limit: ", &limits[i]);
}

TEST(errors_in_files_are_reported)
{
    static const struct bad files[] = {
        {"domain: ''\ndescriptors: []\n", 1, 9, "needs a domain", "", 1},
        {"domain:\ndescriptors: []\n", 1, 8, "needs a domain", "", 1},
        {"domain: [a]\n", 1, 9, "domain must be text", "", 1},
        {"domain: a\ndescriptor: []\n", 2, 1, "a file of descriptors has no field \"descriptor\"", "descriptors", 1},
        {"domain: a\ndescriptors: a\n", 2, 14, "descriptors must be a list", "", 1},
        {"domain: a\ndomain: b\n", 2, 1, "domain", "", 1},
        {"domains: a\n", 1, 10, "domains is a list", "", 1},
        {"domains: [a]\n", 1, 11, "a rule file is a map", "", 1},
        {"domains: [{ descriptors: [] }]\n", 1, 11, "needs a domain", "", 1},
        {"domains: [{ domain: a }, { domain: a }]\n", 1, 36, "is taken by the file of f:1", "", 1},
        {"domains: [{ domain: a, rules: [] }]\n", 1, 24, "rules is of the native dialect", "", 1},
        {"domain: a\ndomains: []\n", 2, 1, "domains is of the native dialect", "", 1},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files && !test_failures; i++)
        check_bad("", &files[i]);
}

TEST(doubtful_descriptors_are_warned_about)
{
    static const struct bad doubtful[] = {
        {"  - { key: a, shadow_mode: true }\n", 3, 15, "shadow_mode has no effect", "", 1},
        {"  - { key: a, quota_mode: true }\n", 3, 15, "quota_mode has no effect", "", 1},
        {"  - { key: a, detailed_metric: true }\n", 3, 15, "detailed_metric has no effect", "", 1},
        {"  - { key: a, metadata: { b: c } }\n", 3, 15, "metadata has no effect", "", 1},
        {"  - { key: a, rate_limit: }\n", 3, 15, "rate_limit is empty", "", 1},
        {"  - { key: 'a*' }\n", 3, 12, "'*' is a wildcard in values only", "", 1},
        {"  - { key: a, rate_limit: { unlimited: true, requests_per_unit: 1 } }\n", 3, 46, "has no effect", "", 1},
        {"  - { key: a, rate_limit: { unlimited: true, replaces: [{ name: absent }] } }\n", 3, 5,
         "replaces \"absent\", but no rate_limit", "", 1},
    };
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
        struct compiled compiled;
        char text[512];
        snprintf(text, sizeof text, "domain: d\ndescriptors:\n%s", doubtful[i].text);
        load(&compiled, text);
        CHECK(compiled.set != NULL);
        CHECK_EQ(compiled.diags.report.warnings, 1);
        CHECK(diags_is(&compiled.diags, 0, doubtful[i].line, doubtful[i].column, doubtful[i].part));
        unload(&compiled);
    }
}

TEST(absent_and_null_fields_are_valid)
{
    static const char *const fine[] = {
        "domain: d\n",
        "domain: d\ndescriptors:\n",
        "domain: d\ndescriptors: []\n",
        "domain: 5\ndescriptors: [{ key: 5, value: 5 }, { key: 5, value: true }, { key: 5, value: ~ }]\n",
        "domain: d\ndescriptors: [{ key: a, value: , descriptors: , metadata: , shadow_mode: , share_threshold: ~ }]\n",
        "domain: d\ndescriptors: [{ key: a, quota_mode: false, rate_limit: { unlimited: true, name: , replaces: }}]\n",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unlimited: true, replaces: [] } }]\n",
        /* Key and value are kept apart, though their names would look the same. */
        "domain: d\ndescriptors: [{ key: a_b }, { key: a, value: b }]\n",
    };
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        struct compiled compiled;
        load_good(&compiled, fine[i]);
        CHECK_EQ(compiled.diags.count, 0);
        unload(&compiled);
    }
}

TEST(domain_in_two_files_is_an_error)
{
    static const char first[] = "# one\ndomain: d\ndescriptors: [{ key: a }]\n";
    static const char second[] = "domain: d\ndescriptors: [{ key: b }]\n",
                      other[] = "domain: e\ndescriptors: [{ key: a }]\n";
    struct weir__source sources[] = {
        {"1.yaml", {first, strlen(first)}}, {"2.yaml", {other, strlen(other)}}, {"3.yaml", {second, strlen(second)}}};
    const struct weir__surroundings around = {.open_zone = weir_zone_open, .close_zone = weir_zone_close};
    struct diags diags;
    weir_rules *set = NULL;

    diags_begin(&diags, "", 0);
    diags.report.sources = sources;
    diags.report.source_count = 3;
    CHECK_EQ(weir__rules_compile(&diags.report, &around, &set), WEIR_ERULES);
    CHECK_EQ(diags.count, 1);
    CHECK(diags_is(&diags, 0, 1, 9, "the domain \"d\" is taken by the file of 1.yaml:2"));
    CHECK(strcmp(diags.all[0].file, "3.yaml") == 0);
    diags_end(&diags);

    diags_begin(&diags, "", 0);
    diags.report.sources = sources;
    diags.report.source_count = 2;
    CHECK_EQ(weir__rules_compile(&diags.report, &around, &set), 0);
    CHECK(weir__domain_known(set, text_of("d")) && weir__domain_known(set, text_of("e")));
    weir_rules_free(set);
    diags_end(&diags);
}

/* Deeper than the YAML reader allows: an error, whether the reader or the compiler finds it. */
TEST(nesting_is_bounded)
{
    for (int levels = 1; levels < 40; levels++) {
        struct compiled compiled;
        char text[4096] = "domain: d\ndescriptors: [";
        for (int i = 0; i < levels; i++)
            strcat(text, i ? ", descriptors: [{ key: a" : "{ key: a");
        strcat(text, ", rate_limit: { unit: day, requests_per_unit: 7 }");
        for (int i = 0; i < levels; i++)
            strcat(text, "}]");
        load(&compiled, text);
        CHECK_EQ(compiled.set != NULL, levels <= 15);
        if (compiled.set) {
            char entries[256] = "a=1";
            for (int i = 1; i < levels; i++)
                strcat(entries, ",a=1");
            CHECK_EQ(units_of(compiled.set, "d", entries), 7);
        }
        unload(&compiled);
    }
}

TEST_MAIN
