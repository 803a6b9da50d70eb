/*
 * One host with a store that has its clock decides like a host without: random requests under random rules, each to
 * both. In one of them local and strict rules are mixed, in the other all are local.
 */
#include "strict_requests.h"

enum { RULES = 5 };

static const char *const kinds[] = {
    "",
    "burst: 3, ",
    "refill: interval, ",
    "soft: 50%, ",
    "algorithm: leaky_bucket, ",
    "algorithm: fixed_window, ",
    "algorithm: fixed_window, align: first_request, ",
    "algorithm: fixed_window, timezone: UTC, window: 1d, ",
    "algorithm: sliding_window_counter, ",
    "algorithm: sliding_window_counter, buckets: 5, ",
    "algorithm: sliding_window_log, ",
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* Rules for /a, /b, or both. */
static void random_rules(uint64_t *random, char *text, size_t size)
{
    static const char *const paths[] = {"/a", "/b", "[/a, /b]"};
    size_t len = (size_t)snprintf(text, size, "rules:\n");
    for (int i = 0; i < RULES; i++) {
        const char *kind = kinds[test_random(random) % KINDS];
        len += (size_t)snprintf(
            text + len, size - len,
            "  - { name: r%d, match: { path: %s }, key: \"${user_id}\", limit: %d, %s%s%s%s }\n", i,
            paths[test_random(random) % 3], 2 + (int)(test_random(random) % 6), kind,
            strstr(kind, "window:") ? "shadow: " : "window: 10s, shadow: ", test_random(random) % 4 ? "false" : "true",
            test_random(random) % 3 ? "" : ", consistency: local");
    }
}

/* Compares the state of each rule by peeks. */
static bool same_state(weir *strict, weir *local, const char *line, double s)
{
    struct moment look = {.look = true};
    struct result a = run(strict, line, s, look), b = run(local, line, s, look);
    bool same = a.checked.outcomes == b.checked.outcomes;
    for (size_t i = 0; i < a.checked.outcomes && same; i++)
        same = a.outcomes[i].decision.remaining == b.outcomes[i].decision.remaining &&
               a.outcomes[i].decision.reset_after_ns == b.outcomes[i].decision.reset_after_ns;
    CHECK(a.back == 0);
    return same;
}

static bool compare(weir *strict, weir *local, uint64_t *random)
{
    double s = 0;
    for (int i = 0; i < 60; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET /%c user_id=%d", "ab"[test_random(random) % 2],
                 (int)(test_random(random) % 2));
        s += (double)(test_random(random) % 3) * (double)(test_random(random) % 2000) / 1000;
        store.s = s;
        struct moment moment = {.cost = test_random(random) % 2 ? 0 : 1 + (int64_t)(test_random(random) % 4)};
        struct result a = run(strict, line, s, moment), b = run(local, line, s, moment);
        if (a.passes != b.passes || (b.passes && a.checked.decision.remaining != b.checked.decision.remaining) ||
            !same_state(strict, local, line, s)) {
            printf("  request %d, %s at %.3f: cost %d, %d and not %d, %" PRId64 " left and not %" PRId64 "\n", i, line,
                   s, (int)moment.cost, a.passes, b.passes, a.checked.decision.remaining, b.checked.decision.remaining);
            return false;
        }
    }
    return true;
}

TEST(one_host_with_a_store_agrees_with_one_without)
{
    uint64_t seed = 20261115;
    for (int64_t round = 0; round < test_scaled(300, 20); round++) {
        char text[2048];
        random_rules(&seed, text, sizeof text);
        test_store_open(&store);
        weir *strict = test_strict_engine(text, WEIR_STRICT), *local = test_engine(text);
        bool same = compare(strict, local, &seed);
        CHECK(same);
        if (!same)
            printf("%s", text);
        weir_close(strict);
        weir_close(local);
        weir_segment_close(store.segment);
        if (!same)
            break;
    }
}

TEST_MAIN
