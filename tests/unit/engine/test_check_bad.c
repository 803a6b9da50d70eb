/* Invalid input of clients and callers: long, malformed, empty and contradictory; the result stays within bounds. */
#include "../../engine.h"

#include <time.h>

static const char rules[] =
    "identity:\n"
    "  user_id: header:X-User-Id\n"
    "  client_ip: { trusted_proxies: [10.0.0.0/8, 'fd00::/8'] }\n"
    "block: { keys: ['u:bad*'] }\n"
    "rules:\n"
    "  - { name: user, key: 'u:${user_id}:${cookie:sid}:${query:q}:${host}', on_missing_key: share, limit: 3, window: "
    "1h }\n"
    "  - { name: ip, key: 'ip:${client_ip}', limit: 100000, window: 1h }\n"
    "  - { name: regex, match: { header: { x-user-id: { regex: '^(a+)+$' } } }, limit: 100000, window: 1h }\n"
    "  - { name: glob, match: { header: { x-user-id: '*a*a*a*b' }, path: '/**/x/*' }, limit: 100000, window: 1h }\n"
    "  - { name: cost, key: '${method}', cost: { from: header:X-User-Id, max: 10 }, limit: 100000, window: 1h }\n";

/* The same text for everything but the peer. */
struct hostile {
    weir_text text, peer;
    int lookups;
};

static bool look(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    struct hostile *h = context;
    (void)name;
    h->lookups++;
    *value = kind == WEIR_ATTR_PEER ? h->peer : h->text;
    return true;
}

static int async(weir *w, struct hostile *h, weir_result *result, weir_outcome outcomes[8])
{
    weir_query query = {
        .lookup = look, .lookup_context = h, .now = test_seconds(0), .outcomes = outcomes, .outcomes_max = 8};
    memset(outcomes, 0x5a, 8 * sizeof *outcomes);
    return weir_check(w, &query, result);
}

static void check_outcome(const weir_outcome *outcome)
{
    CHECK(memchr(outcome->rule, 0, sizeof outcome->rule));
    CHECK(outcome->key[WEIR_KEY_SHOWN_MAX] == 0 || memchr(outcome->key, 0, sizeof outcome->key));
    CHECK(outcome->cost >= 1 && outcome->cost <= 10);
}

TEST(hostile_values_in_every_attribute)
{
    enum { LONG = 64 << 10 };
    static const char *const patterns[] = {"a",  "\xff", "%",   "%zz",   "\"", ";",    "=\"\\", ",",  "/../",
                                           "//", "a%00", "&q=", "sid=;", "*",  "9999", "[::1]", "::", "10.0.0.1,"};
    weir *w = test_engine(rules);
    char *text = malloc(LONG);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (size_t i = 0; i <= sizeof patterns / sizeof *patterns; i++) {
        bool zeros = i == sizeof patterns / sizeof *patterns;
        size_t step = zeros ? 1 : strlen(patterns[i]);
        for (size_t at = 0; at < LONG; at++)
            text[at] = zeros ? '\0' : patterns[i][at % step];
        static const size_t lengths[] = {0, 1, 2, 3, 255, 256, 257, 4095, 4096, 4097, LONG};
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            /* A copy of exactly its size, so that a sanitizer detects an overrun. */
            char *exact = malloc(lengths[k] + !lengths[k]);
            memcpy(exact, text, lengths[k]);
            struct hostile h = {{exact, lengths[k]}, {"10.0.0.1", 8}, 0};
            weir_result result;
            weir_outcome outcomes[8];
            CHECK_EQ(async(w, &h, &result, outcomes), 0);
            CHECK(result.matched >= 2 && result.outcomes == result.matched);
            CHECK(h.lookups < 32); /* each once */
            for (size_t o = 0; o < result.outcomes; o++)
                check_outcome(&outcomes[o]);
            free(exact);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - begin.tv_sec < 20); /* about 200 checks, of which none may take long */
    free(text);
    weir_close(w);
}

/* Long keys that differ only at their end are different keys, and those that do not are the same. */
TEST(long_values_have_separate_counters)
{
    enum { LONG = 64 << 10 };
    weir *w = test_engine("identity: { user_id: header:X-User-Id }\n"
                          "rules: [ { name: user, key: 'u:${user_id}', limit: 3, window: 1h } ]\n");
    char *text = malloc(LONG);
    memset(text, 'x', LONG);
    for (int i = 0; i < 3; i++) {
        text[LONG - 1] = (char)i; /* also a zero byte */
        struct hostile h = {{text, LONG}, {"", 0}, 0};
        weir_result result;
        weir_outcome outcomes[8];
        for (int n = 0; n < 5; n++) {
            CHECK_EQ(async(w, &h, &result, outcomes), 0);
            CHECK_EQ(weir_passes(&result.decision), n < 3);
            CHECK(result.decided_by.key_cut);
        }
    }
    free(text);
    weir_close(w);
}

TEST(ten_thousand_forwarded_hops)
{
    enum { HOPS = 10000 };
    weir *w = test_engine(rules);
    char *list = malloc(HOPS * 16);
    size_t len = 0;
    for (int i = 0; i < HOPS; i++)
        len += (size_t)sprintf(list + len, "%s10.%d.%d.7", i ? ", " : "198.51.100.9, ", i / 250 % 250, i % 250);
    weir_attribute about[] = {{WEIR_ATTR_PEER, "", "10.0.0.1"},
                              {WEIR_ATTR_HEADER, "x-forwarded-for", list},
                              {WEIR_ATTR_HEADER, "x-user-id", "1"},
                              {WEIR_ATTR_PATH, "", "/"}};
    weir_outcome outcomes[8];
    weir_query query = {
        .attributes = about, .attribute_count = 4, .now = test_seconds(0), .outcomes = outcomes, .outcomes_max = 8};
    weir_result result;
    CHECK_EQ(weir_check(w, &query, &result), 0);
    CHECK(strcmp(outcomes[1].rule, "ip") == 0);
    CHECK(strncmp(outcomes[1].key, "ip:10.39.", 9) == 0); /* a trusted hop near the right end: the walk ends there */
    about[1] = (weir_attribute){WEIR_ATTR_HEADER, "x-forwarded-for", "1.2.3.4, rubbish, 10.0.0.9"};
    CHECK_EQ(weir_check(w, &query, &result), 0);
    CHECK(strcmp(outcomes[1].key, "ip:10.0.0.9") == 0); /* what a client puts left of that is ignored */
    free(list);
    weir_close(w);
}

/* ---- Callers ---- */

TEST(invalid_arguments_are_refused)
{
    weir *w = test_engine(rules);
    weir_result result, before;
    memset(&result, 0x5a, sizeof result);
    before = result;
    uint8_t peer[16] = {0};
    const weir_query bad[] = {
        {.attribute_count = 1},
        {.outcomes_max = 1},
        {.peer = peer, .peer_len = 0},
        {.peer = peer, .peer_len = 5},
        {.peer = peer, .peer_len = 17},
        {.has_cost = true, .cost = INT64_MAX},
        {.has_cost = true, .cost = INT64_MIN},
        {.now = {-1, 0}},
        {.now = {0, -1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(weir_check(w, &bad[i], &result) < 0);
    CHECK_EQ(weir_check(NULL, &bad[0], &result), WEIR_EINVAL);
    CHECK_EQ(weir_check(w, NULL, &result), WEIR_EINVAL);
    CHECK_EQ(weir_check(w, &(weir_query){0}, NULL), WEIR_EINVAL);
    CHECK(memcmp(&result, &before, sizeof result) == 0);
    CHECK_EQ(weir_check(w, &(weir_query){.peer_len = 99, .text_size = 99}, &result), 0); /* of length without data */
    weir_close(w);
}

TEST(invalid_descriptors_are_refused)
{
    weir *w = test_engine("domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, requests_per_unit: 5 } } ]\n");
    weir_result result, before;
    memset(&result, 0x5a, sizeof result);
    before = result;
    weir_outcome outcome;
    weir_descriptor_entry entry = {{"k", 1}, {NULL, 0}};
    weir_descriptor one = {.entries = &entry, .entry_count = 1};
    weir_descriptor_query query = {
        .domain = {"d", 1}, .descriptors = &one, .descriptor_count = 1, .now = test_seconds(0), .outcomes = &outcome};
    one.entries = NULL;
    CHECK_EQ(weir_check_descriptors(w, &query, &result), WEIR_EINVAL);
    one.entries = &entry;
    query.domain.data = NULL;
    CHECK_EQ(weir_check_descriptors(w, &query, &result), WEIR_EINVAL);
    query.domain.data = "d";
    one.override_window_ns = -1;
    CHECK_EQ(weir_check_descriptors(w, &query, &result), WEIR_EWINDOW);
    one.override_window_ns = 0;
    one.has_hits = true;
    one.hits = INT64_MIN;
    CHECK_EQ(weir_check_descriptors(w, &query, &result), WEIR_ECOST);
    CHECK(memcmp(&result, &before, sizeof result) == 0);
    one.hits = 1;
    CHECK_EQ(weir_check_descriptors(w, &query, &result), 0);
    CHECK_EQ(outcome.reason, WEIR_BY_LIMIT);
    entry.key = (weir_text){NULL, 0};
    CHECK_EQ(weir_check_descriptors(w, &query, &result), 0);
    CHECK_EQ(outcome.reason, WEIR_BY_NOTHING);
    weir_close(w);
}

TEST(too_many_rules_leave_the_result_unchanged)
{
    enum { RULES = 257 };
    char *text = malloc(RULES * 64);
    size_t len = (size_t)sprintf(text, "rules:\n");
    for (int i = 0; i < RULES; i++)
        len += (size_t)sprintf(text + len, "  - { name: r%d, limit: 5, window: 1h }\n", i);
    weir *w = test_engine(text);
    weir_result result, before;
    memset(&result, 0x5a, sizeof result);
    before = result;
    CHECK_EQ(weir_check(w, &(weir_query){.now = test_seconds(0)}, &result), WEIR_ETOOMANY);
    CHECK(memcmp(&result, &before, sizeof result) == 0);
    free(text);
    weir_close(w);
}

TEST(allow_listed_client_has_no_denial_status)
{
    weir *w = test_engine("allow: { networks: [192.0.2.0/24] }\nblock: { networks: [198.51.100.0/24] }\n"
                          "rules: [ { name: a, limit: 1, window: 1h } ]\n");
    weir_result result = test_check(w, "GET / ip=192.0.2.1", 0);
    CHECK(weir_passes(&result.decision));
    CHECK_EQ(result.status, 0);
    result = test_check(w, "GET / ip=198.51.100.1", 0);
    CHECK(!weir_passes(&result.decision));
    CHECK_EQ(result.status, 403);
    weir_close(w);
}

TEST(response_texts_fit_or_are_omitted)
{
    weir *w = test_engine("rules: [ { name: a, limit: 0, window: 1h, response: { message: twelve bytes, body: { text: "
                          "eight by } } } ]\n");
    for (size_t size = 0; size < 24; size++) {
        char *room = malloc(size + 1);
        room[size] = 'x';
        weir_result result;
        weir_query query = {.now = test_seconds(0), .text = room, .text_size = size};
        CHECK_EQ(weir_check(w, &query, &result), 0);
        CHECK(result.message.len == (size >= 12 ? 12 : 0));
        CHECK(result.body_text.len == (size >= 20 || (size >= 8 && size < 12) ? 8 : 0));
        CHECK_EQ(room[size], 'x');
        free(room);
    }
    weir_close(w);
}

TEST_MAIN
