/* Random rule sets: mostly typical ones, so that the fast path is taken, and some of everything else. */
#ifndef WEIR_TESTS_FAST_PATH_RULES_H
#define WEIR_TESTS_FAST_PATH_RULES_H

#include "../../test.h"

#include <stdarg.h>

struct rules_text {
    uint64_t *seed;
    bool odd;  /* this set has features that the fast path does not support */
    bool many; /* in this set several rules match most requests */
    size_t len;
    char text[16384];
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t draw(const struct rules_text *to, uint64_t sides)
{
    return test_random(to->seed) % sides;
}

/* True once in so many calls. */
static inline bool one_in(const struct rules_text *to, uint64_t times)
{
    return draw(to, times) == 0;
}

__attribute__((format(printf, 2, 3))) static inline void put_text(struct rules_text *to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int len = vsnprintf(to->text + to->len, sizeof to->text - to->len, format, values);
    va_end(values);
    if (len < 0 || (size_t)len >= sizeof to->text - to->len) {
        printf("  the rules are longer than their room\n");
        exit(1);
    }
    to->len += (size_t)len;
}

#define PUT_ONE(to, ...)                                                                                               \
    do {                                                                                                               \
        static const char *const choices[] = {__VA_ARGS__};                                                            \
        put_text(to, "%s", choices[draw(to, COUNT_OF(choices))]);                                                      \
    } while (0)

/* Of any length up to the longest, with characters that are escaped in headers. */
static inline void put_name(struct rules_text *to, int number)
{
    static const char letters[] = "abcXYZ019 ;=,%?-/";
    size_t len = one_in(to, 3) ? 93 : draw(to, 24);
    put_text(to, "%02d", number);
    if (one_in(to, 8)) {
        put_text(to, "\xc3\xbc");
        len = len > 2 ? len - 2 : 0;
    }
    for (size_t i = 0; i < len; i++)
        put_text(to, "%c", letters[draw(to, sizeof letters - 1)]);
}

/* The first rules of a set mostly have a path each that many requests use. */
static inline void put_match(struct rules_text *to, int number)
{
    static const char *const common_paths[] = {"'/a/*'", "'/api/*'", "/x", "'/y/*'"};
    if (one_in(to, to->many ? 4 : 24))
        return;
    put_text(to, ", match: { path: ");
    if (to->many && one_in(to, 2)) {
        PUT_ONE(to, "'/*' }", "['/a/*', '/api/*', /x] }", "['/y/*', '/*'] }");
        return;
    }
    if (to->odd && one_in(to, 4))
        PUT_ONE(to, "'/a/*/c'", "'/api/x*'", "'*.php'", "[/a, '/a/b/*', /api]", "'/*/b'");
    else if (number < 4 && !one_in(to, 8))
        put_text(to, "%s", common_paths[number]);
    else
        PUT_ONE(to, "'/a/*'", "/a", "/a/", "'/a/b/*'", "/a/b", "'/api/*'", "'/api/items/*'", "/api/items", "/x",
                "'/y/*'", "/", "'/*'", "'/longer-labels-than-one-step/*'", "'/a//*'", "'/%41/*'");
    if (to->odd && one_in(to, 6))
        PUT_ONE(to, ", method: GET", ", method: [POST, PUT]", ", host: h.example", ", host: '*.example'");
    if (to->odd && one_in(to, 8))
        PUT_ONE(to, ", header: { x-a: b }", ", network: 10.0.0.0/30", ", header: { x-a: { not: b } }");
    put_text(to, " }");
}

static inline void put_key(struct rules_text *to)
{
    if (one_in(to, 16))
        return;
    put_text(to, ", key: '");
    if (one_in(to, to->odd ? 3 : 5)) {
        PUT_ONE(to, "${client_ip}x", "${client_ip}:${path}", "q:${query:q}", "${header:x-a}", "%${client_ip}",
                "${user_id}", "${query:q}${client_ip}", "fixed");
    } else {
        size_t len = one_in(to, 6) ? 150 + draw(to, 60) : draw(to, 20);
        for (size_t i = 0; i < len; i++)
            put_text(to, "%c", "ip:k%"[draw(to, 5)]);
        put_text(to, "${client_ip}");
    }
    put_text(to, "'");
}

static inline void put_limit(struct rules_text *to)
{
    if (to->odd && one_in(to, 4)) {
        PUT_ONE(to, ", limit: 0", ", limit: unlimited", ", limit: { a: 3, default: 9 }, window: 1s",
                ", limit: 6, algorithm: concurrency", ", limit: { a: 3 }, window: 1m",
                ", limits: [{ limit: 4, window: 1s }, { limit: 9, window: 1m }]");
        return;
    }
    if (one_in(to, 12)) { /* numbers with the most digits */
        PUT_ONE(to, ", limit: 4294967295, window: 1d", ", limit: 3600000000, window: 1d");
        return;
    }
    PUT_ONE(to, ", limit: 1", ", limit: 5", ", limit: 9", ", limit: 20", ", limit: 50", ", limit: 100", ", limit: 1000",
            ", limit: 30000", ", limit: 1000000");
    PUT_ONE(to, ", window: 1s", ", window: 90s", ", window: 500ms", ", window: 1h", ", window: 1d", ", window: 7s");
    if (one_in(to, to->odd ? 3 : 5))
        PUT_ONE(
            to, ", algorithm: fixed_window", ", algorithm: sliding_window_counter", ", algorithm: sliding_window_log",
            ", algorithm: leaky_bucket", ", algorithm: leaky_bucket, on_limit: delay", ", refill: interval",
            ", algorithm: sliding_window_log, count_rejected: true", ", algorithm: fixed_window, align: first_request");
    else if (one_in(to, 4))
        PUT_ONE(to, ", burst: 3", ", burst: 40");
    if (one_in(to, 6))
        PUT_ONE(to, ", soft: 10%", ", soft: 100%");
}

static inline void put_policy(struct rules_text *to)
{
    if (one_in(to, 5))
        PUT_ONE(to, ", cost: 2", ", cost: 3", ", cost: 100");
    else if (to->odd && one_in(to, 5))
        PUT_ONE(to, ", cost: header:x-a", ", cost: { '/a/b': 2, default: 1 }",
                ", cost: { from: header:x-a, default: 2 }");
    if (one_in(to, 3))
        PUT_ONE(to, ", response: { reset: delta }", ", response: { headers: [] }", ", response: { headers: [draft] }",
                ", response: { headers: [x-ratelimit] }", ", response: { headers: [retry-after] }",
                ", response: { status: 503, message: no, body: { text: later } }", ", response: { report: all }");
    if (one_in(to, 4))
        PUT_ONE(to, ", consistency: eventual", ", consistency: eventual, on_store_failure: closed",
                ", consistency: eventual, on_store_failure: open", ", consistency: local");
    else if (to->odd && one_in(to, 12))
        PUT_ONE(to, ", consistency: strict", ", consistency: strict, on_store_failure: closed");
    if (to->odd && one_in(to, 6))
        PUT_ONE(to, ", priority: low", ", priority: critical", ", elastic: { up_to: 200%, while: 70% }",
                ", adaptive: { min: 20%, max: 100% }", ", report_priority: 3");
    if (to->odd && one_in(to, 6))
        PUT_ONE(to, ", shadow: true", ", allow: { networks: [10.0.0.1/32] }", ", block: { networks: [10.0.0.2/32] }",
                ", allow: { keys: ['10.0.0.3'] }", ", on_missing_key: deny", ", on_missing_key: share",
                ", on_limit: queue");
}

static inline void make_rules(struct rules_text *to)
{
    int count = 1 + (int)draw(to, one_in(to, 4) ? 10 : 4);
    to->len = 0;
    to->odd = one_in(to, 3);
    to->many = one_in(to, 2);
    if (to->odd && one_in(to, 5))
        PUT_ONE(to, "identity: { client_ip: { trusted_proxies: [10.0.0.0/30] } }\n",
                "identity: { client_ip: { ipv4_prefix: 31 } }\n", "identity: { user_id: client_ip }\n");
    if (to->odd && one_in(to, 10))
        PUT_ONE(to, "block: { networks: [10.0.0.3/32] }\n", "allow: { keys: ['10.0.0.2', 'k*'] }\n",
                "allow: { networks: ['2001:db8::/32'] }\n");
    bool reported = !to->odd && one_in(to, 4); /* the first rule, wherever it matches */
    if (reported)
        put_text(to, "response: { report: first }\n");
    put_text(to, "rules:\n");
    for (int i = 0; i < count; i++) {
        put_text(to, "  - { name: '");
        if (reported && i == 0)
            put_text(to, "first");
        else
            put_name(to, i);
        put_text(to, "'");
        put_match(to, i);
        put_key(to);
        put_limit(to);
        put_policy(to);
        put_text(to, " }\n");
    }
}

#endif
