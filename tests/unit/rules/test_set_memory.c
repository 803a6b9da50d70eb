/* A set whose memory runs out at every possible allocation: an error, no leak, no partial set. */
#include "rules/set.h"

#undef WEIR__SET_BYTES_MAX
static size_t bytes_max;
#define WEIR__SET_BYTES_MAX bytes_max

#include "../../../src/rules/set.c" // NOLINT(bugprone-suspicious-include)

#include "diagnostics_collector.h"

static const struct weir__surroundings around = {.open_zone = weir_zone_open, .close_zone = weir_zone_close};

static const char *const texts[] = {
    "identity: { user_id: header:X-User-Id, tier: header:X-Plan, client_ip: { trusted_proxies: [10.0.0.0/8] } }\n"
    "allow: { networks: [192.0.2.0/24], keys: [a, 'b*'] }\n"
    "rules:\n"
    "  - name: a\n"
    "    match: { path: [/a, '/b/*', '/c/*/d'], host: [a.example, '*.b'], method: [GET, PURGE], query: { q: '*' } }\n"
    "    key: u:${user_id}:${cookie:c}\n"
    "    cost: { /x: 2, default: 1 }\n"
    "    limits:\n"
    "      - { limit: { pro: 5, default: 1 }, window: 1s }\n"
    "      - { limit: 50, window: 1mo, algorithm: fixed_window, timezone: Europe/Berlin }\n"
    "  - { name: b, match: { path: { regex: '^/v[0-9]/' }, network: [10.0.0.0/8] }, limit: 1, window: 1s }\n",
    "domain: d\n"
    "descriptors:\n"
    "  - { key: k, value: v, rate_limit: { unit: day, requests_per_unit: 5 }, metadata: { a: b } }\n",
};

static int compile_within(size_t bytes, struct diags *diags, weir_rules **set)
{
    struct weir__source sources[] = {{"f0", {texts[0], strlen(texts[0])}}, {"f1", {texts[1], strlen(texts[1])}}};
    diags_begin(diags, "", 0);
    diags->report.sources = sources;
    diags->report.source_count = 2;
    bytes_max = bytes;
    int error = weir__rules_compile(&diags->report, &around, set);
    diags->report.sources = NULL;
    diags->report.source_count = 0;
    return error;
}

TEST(running_out_of_memory_is_an_error)
{
    static struct diags diags;
    weir_rules *set = NULL;
    size_t bytes = 64, failed = 0; /* 0 means unbounded */
    /* Near its bound the arena allocates exactly the size requested: each step gets one allocation further, or none. */
    for (; bytes < 1 << 20 && !set; bytes += 64) {
        int error = compile_within(bytes, &diags, &set);
        failed += error != 0;
        /* Reaching the bound is an error of the rules; WEIR_ENOMEM is only right where malloc fails. */
        CHECK(error == 0 || error == WEIR_ERULES || (error == WEIR_ENOMEM && bytes < 4096));
        CHECK_EQ(error == 0, set != NULL);
        CHECK(error == 0 || diags.count > 0);
        CHECK(error == 0 || strstr(diags.all[diags.count - 1].message, error == WEIR_ENOMEM ? "out of memory" : "MiB"));
    }
    CHECK(set != NULL);
    CHECK(failed > 10);
    CHECK_EQ(set ? set->count : 0, 4);
    weir_rules_free(set);
}

TEST(no_sources_are_an_error)
{
    static struct diags diags;
    weir_rules *set = NULL;
    diags_begin(&diags, "", 0);
    diags.report.source_count = 0;
    bytes_max = 1 << 20;
    CHECK_EQ(weir__rules_compile(&diags.report, NULL, &set), WEIR_ERULES);
    CHECK(!set);
    CHECK(diags_is(&diags, 0, 0, 0, "there are no rules"));
    weir_rules_free(NULL);
}

TEST_MAIN
