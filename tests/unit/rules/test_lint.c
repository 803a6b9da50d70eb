/*
 * Lint warnings: rules that load but are probably a mistake, each with its position; and no warning for rules that are
 * fine.
 */
#include "../../../src/rules/lint_set.c" // NOLINT(bugprone-suspicious-include)

#include "base/buffer.h"
#include "compiled.h"

#include <time.h>

/* A rule; the text that follows it is its fifth line. */
#define RULE                                                                                                           \
    "rules:\n"                                                                                                         \
    "  - name: a\n"                                                                                                    \
    "    limit: 1\n"                                                                                                   \
    "    window: 1s\n"

static const struct {
    const char *yaml, *expected;
} doubtful[] = {
    {RULE "    match: { path: api, host: 'a.example:80' }\n",
     "5:31: host a.example:80 never matches: hosts are compared without scheme,\n"
     "5:20: path api: it never matches, since paths begin with /"},
    {RULE "    match: { path: ['^/api', '~ /api'] }\n",
     "5:21: path ^/api: it never matches, since paths begin with /; a regular\n"
     "5:30: path ~ /api: it never matches, since paths begin with /; a regular"},
    {RULE "    match: { method: [GTE, post, PURGE, PSOT] }\n",
     "5:23: method GTE is not a standard one; was GET meant?\n"
     "5:41: method PSOT is not a standard one; was POST meant?"},
    {RULE "    match: { host: [b\xc3\xbc.example, a.example., xn--b-eha.example] }\n",
     "5:21: never matches: requests have such names in their ASCII form\n"
     "5:33: host a.example. never matches: hosts are compared without a dot"},
    {RULE "    match: { header: { a: present, b: 'present' } }\n", "5:27: header:a: present is a literal text;"},
    {RULE "    key: user_id\n", "5:10: the key is this very text for every request; an attribute"},
    {RULE "    key: '{{ client_ip }}'\n", "5:10: the key is this very text for every request;"},
    {RULE "    key: header:X-Plan\n", "5:10: the key is this very text for every request;"},
    {RULE "    key: everybody\n", ""},
    {RULE "    shadow: true\n    priority: high\n", "6:15: priority has no effect in a shadow rule"},
    {RULE "    algorithm: fixed_window\n    priority: critical\n    reserve: 10%\n",
     "7:14: the reserve has no effect: every request of this rule is critical"},
    {RULE "    warn_at: 80%\n", "5:14: 80% of so small a limit is all of it: the warning comes with the last unit"},
    {"rules: [{ name: a, limit: { x: 2, default: 100 }, tier: header:x, window: 1s, warn_at: 80% }]\n", ""},
    {"rules: [{ name: a, limit: 0, warn_at: 80% }]\n", "1:39: warn_at has no effect: the rule counts nothing"},
    {"rules: [{ name: a, limit: unlimited, priority: high, warn_at: 80% }]\n",
     "1:63: warn_at has no effect: the rule counts nothing"},
    {"rules: [{ name: a, limit: unlimited, priority: high }]\n", ""},
    {"rules: [{ name: a, limit: unlimited, report_priority: 5 }]\n", "1:27: unlimited: the rule limits nothing"},
    {"rules: [{ name: a, limit: 5, window: 1s, algorithm: fixed_window, reserve: 10% },\n"
     "        { name: b, limit: 5, window: 1h, priority: critical, shadow: true }]\n",
     "2:52: priority has no effect in a shadow rule\n"
     "1:9: \"a\" keeps a reserve, but no rule has priority: critical: no request may use it"},
    {"rules: [{ name: a, limit: 5, window: 1s, algorithm: fixed_window, reserve: 10% },\n"
     "        { name: b, limit: unlimited, priority: critical }]\n",
     ""},
    /* They differ in priority, so under load they are different rules. */
    {RULE "  - { name: b, limit: 1, window: 1s, priority: low }\n", ""},
    {RULE "  - { name: b, limit: 1, window: 1s, elastic: { up_to: 200% } }\n", ""},
    {RULE "  - { name: b, limit: 2, window: 1s, adaptive: { min: 20% } }\n", ""},
    {RULE "    cost: 0\n", "5:11: a cost of 0 takes nothing: the rule limits nothing"},
    {RULE "    block: { keys: ['${user_id}', 'u:1'] }\n", "5:21: block.keys lists complete keys such as"},
    {"identity: { client_ip: { trusted_proxies: [10.0.0.0/8, 0.0.0.0/0, '::/0'] } }\n" RULE,
     "1:56: every address is a trusted proxy, so that any client can choose its\n"
     "1:67: every address is a trusted proxy, so that any client can choose its"},
    {RULE "    match: { path: '*.php' }\n", "5:20: path *.php: it never matches, since paths begin with / and * stops"},
    {RULE "    match: { path: ['/a?b=1', '/c#d'] }\n",
     "5:21: path /a?b=1: paths are matched without query and fragment; match.query\n"
     "5:31: path /c#d: paths are matched without query and fragment; match.query"},
    {RULE "    match: { path: [/a//b, /a/../b, /a/., '/x/./y'] }\n",
     "5:21: path /a//b: it never matches, since // and dots are resolved in the\n"
     "5:28: path /a/../b: it never matches, since // and dots are resolved in the\n"
     "5:37: path /a/.: it never matches, since // and dots are resolved in the\n"
     "5:43: path /x/./y: it never matches, since // and dots are resolved in the"},
    {RULE "    match: { path: '/a%20b' }\n",
     "5:20: path /a%20b: it never matches, since the request's path is decoded:"},
    {RULE "    match: { host: [https://a.example, 'a.example/x', '[::1]'] }\n",
     "5:21: host https://a.example never matches: hosts are compared without\n"
     "5:40: host a.example/x never matches: hosts are compared without scheme, port"},
    {RULE "    match: { method: { not: '*' } }\n",
     "5:29: method: none of all, so that only requests without one match"},
    {RULE "    key: ${header:X-Forwarded-For}\n",
     "5:10: any client can forge the header x-forwarded-for and with it this key;"},
    {RULE "    key: ip:${header:x-real-ip}:${path}\n",
     "5:10: any client can forge the header x-real-ip and with it this key; use"},
    {"identity: { ip_of: header:Forwarded }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n"
     "    key: ${ip_of}\n",
     "6:10: any client can forge the header forwarded and with it this key; use"},
    {RULE "    key: ${account}\n", "5:10: identity does not name account: only an application that gives it is"},
    {"identity: { account: header:X-Account }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n"
     "    key: ${account}\n",
     ""},
    {RULE "    key: ${header:X-API-Key}:${user_id}\n", ""},
    {"identity: { tier: query:plan }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:19: the client chooses its tier itself, by a query argument"},
    {"identity: { tier: cookie:plan, user_id: header:X }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:19: the client chooses its tier itself, by a cookie"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { a: 1, default: 2 }\n"
     "    window: 1s\n"
     "    tier: cookie:plan\n",
     "5:11: the client chooses its tier itself, by a cookie"},
    {"identity: { client_ip: { trusted_proxies: [10.1.2.3/8] } }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:44: 10.1.2.3/8 has bits after its prefix; it is taken as 10.0.0.0/8"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 10\n"
     "    window: 1m\n"
     "    cost: 11\n",
     "5:11: a cost of 11 never fits: \"a\" holds 10 at most, so such requests are"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 10\n"
     "    window: 1m\n"
     "    burst: 20\n"
     "    cost: 11\n",
     ""},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 10\n"
     "    window: 1m\n"
     "    cost: { /a: 30, default: 1 }\n",
     "5:11: a cost of 30 never fits: \"a\" holds 10 at most, so such requests are"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 10\n"
     "    window: 1m\n"
     "    cost: { from: header:X, max: 100 }\n",
     "5:11: a cost of 100 never fits: \"a\" holds 10 at most, so such requests are"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 10\n"
     "    window: 1m\n"
     "    cost: header:X\n",
     ""},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { a: unlimited, default: 10 }\n"
     "    window: 1m\n"
     "    cost: 11\n",
     ""},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1m\n"
     "    burst: 2000\n",
     "2:5: a burst of 2000 takes more than 1000 windows to refill: once used up,"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 5ms\n",
     "2:5: a window under 10 ms: clocks and schedulers make such a limit a matter"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 20000\n"
     "    window: 1h\n"
     "    algorithm: sliding_window_log\n",
     "2:5: the log keeps a time for each request, up to 78 KiB a key;"},
    {RULE "    on_limit: queue\n    shadow: true\n",
     "5:15: a shadow rule denies nothing: none of its requests comes into a queue"},
    {RULE "    shadow: true\n"
          "    response: { status: 503 }\n",
     "6:5: a shadow rule never answers: its response has no effect"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: unlimited\n",
     "3:12: unlimited: the rule limits nothing"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { a: unlimited, default: unlimited }\n"
     "    window: 1s\n",
     "3:5: every tier is unlimited: the rule limits nothing"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { a: 1 }\n"
     "    window: 1s\n",
     "3:5: no default: requests of other tiers, or of none, are not limited by"},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, key: 'x${path}' }\n"
     "  - { name: b, limit: 5, window: 1s, key: 'x${path}' }\n",
     "3:5: \"b\" is a duplicate of \"a\" (f0:2)"},
    {"rules:\n"
     "  - { name: a, match: { path: /a, method: GET }, limit: 5, window: 1s }\n"
     "  - { name: b, match: { method: GET, path: /a }, limit: 5, window: 1s }\n",
     "3:5: \"b\" is a duplicate of \"a\" (f0:2)"},
    {"rules:\n"
     "  - { name: a, match: { path: /a }, limit: 5, window: 1s }\n"
     "  - { name: b, match: { path: /b }, limit: 5, window: 1s }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, cost: 2 }\n"
     "  - { name: b, limit: 5, window: 1s }\n",
     ""},
    /* Twenty hosts that admit 5 each are more than 50 together. */
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, consistency: local }\n"
     "  - { name: b, limit: 50, window: 1s, consistency: strict }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, consistency: strict, on_store_failure: open }\n"
     "  - { name: b, limit: 5, window: 1s, consistency: local }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, consistency: strict, on_store_failure: open }\n"
     "  - { name: b, limit: 50, window: 1s, consistency: strict, on_store_failure: closed }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, consistency: strict }\n"
     "  - { name: b, limit: 50, window: 1s, consistency: strict }\n",
     "3:5: \"b\" never denies: \"a\" (f0:2) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s }\n"
     "  - { name: b, limit: 5, window: 1s, shadow: true }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 5, window: 1s, allow: { keys: [x] } }\n"
     "  - { name: b, limit: 5, window: 1s }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 100, window: 1m }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 10, window: 1m }\n"
     "  - { name: b, limit: 100, window: 1m }\n",
     "3:5: \"b\" never denies: \"a\" (f0:2) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 1000, window: 1h }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 500, window: 1h }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 600, window: 1h, algorithm: fixed_window }\n"
     "  - { name: b, limit: 10, window: 1m, algorithm: fixed_window }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 599, window: 1h, algorithm: fixed_window }\n"
     "  - { name: b, limit: 10, window: 1m, algorithm: fixed_window }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 600, window: 1h, algorithm: sliding_window_log }\n"
     "  - { name: b, limit: 10, window: 1m, algorithm: sliding_window_log }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 599, window: 1h, algorithm: sliding_window_log }\n"
     "  - { name: b, limit: 10, window: 1m, algorithm: sliding_window_log }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 100, window: 1m, burst: 5 }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 100, window: 1m, algorithm: sliding_window_counter }\n"
     "  - { name: b, limit: 60, window: 1m, algorithm: sliding_window_counter }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 1000000, window: 1mo, algorithm: fixed_window }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     "2:5: \"a\" never denies: \"b\" (f0:3) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: 100000, window: 1mo, algorithm: fixed_window }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: 100, window: 1m, algorithm: sliding_window_log, count_rejected: true }\n"
     "  - { name: b, limit: 10, window: 1m }\n",
     ""},
    {"rules:\n"
     "  - name: a\n"
     "    limits:\n"
     "      - { limit: 10, window: 1m }\n"
     "      - { limit: 1000, window: 1h }\n",
     "5:9: \"a/1h\" never denies: \"a/1m\" (f0:4) is stricter for the same key"},

    /* ---- The other rule also matches all of its requests ---- */
    {"rules:\n"
     "  - { name: all, key: '${client_ip}', limit: 10, window: 1m }\n"
     "  - { name: api, key: '${client_ip}', limit: 100, window: 1m, match: { path: /api/* } }\n",
     "3:5: \"api\" never denies: \"all\" (f0:2) is stricter for the same key and also counts all of its requests; "
     "remove"},
    {"rules:\n"
     "  - { name: all, key: '${client_ip}', limit: 10, window: 1m, match: { path: /api/*, method: [GET, POST] } }\n"
     "  - { name: one, key: '${client_ip}', limit: 99, window: 1m, match: { path: [/api/a, /api/b/*/c], method: GET } "
     "}\n"
     "  - { name: two, key: '${client_ip}', limit: 99, window: 1m, match: { path: [/api/a, /b], method: GET } }\n"
     "  - { name: put, key: '${client_ip}', limit: 99, window: 1m, match: { path: /api/a, method: PUT } }\n"
     "  - { name: any, key: '${client_ip}', limit: 199, window: 1m, match: { path: /api/a } }\n"
     "  - { name: own, key: '${path}', limit: 99, window: 1m, match: { path: /api/a, method: GET } }\n"
     "  - { name: off, key: '${client_ip}', limit: 99, window: 1m, match: { path: /api/a, method: GET, normalize: off "
     "} }\n",
     "8:77: normalize leaves spellings\n"
     "3:5: \"one\" never denies: \"all\" (f0:2) is stricter"},
    /* Whether the earlier or the later rule is the wider one does not count. */
    {"rules:\n"
     "  - { name: one, limit: 99, window: 1m, match: { path: /a, host: x.example.com } }\n"
     "  - { name: all, limit: 10, window: 1m, match: { path: /a, host: '*.example.com' } }\n",
     "2:5: \"one\" never denies: \"all\" (f0:3) is stricter"},
    {"rules:\n"
     "  - { name: all, limit: 10, window: 1m, match: { path: { not: [/healthz, /x/] } } }\n"
     "  - { name: api, limit: 99, window: 1m, match: { path: /api/* } }\n"
     "  - { name: x, limit: 99, window: 1m, match: { path: /x/* } }\n"
     "  - { name: health, limit: 99, window: 1m, match: { path: /healthz } }\n",
     "3:5: \"api\" never denies: \"all\" (f0:2) is stricter"},
    {"rules:\n"
     "  - { name: all, limit: 10, window: 1m, match: { header: { A: x* } } }\n"
     "  - { name: one, limit: 99, window: 1m, match: { header: { A: x*, B: '1' } } }\n"
     "  - { name: two, limit: 99, window: 1m, match: { header: { A: xy } } }\n",
     "3:5: \"one\" never denies: \"all\" (f0:2) is stricter"},
    {"rules:\n"
     "  - { name: all, limit: 10, window: 1m, match: { network: [10.0.0.0/8, 192.0.2.0/24] } }\n"
     "  - { name: one, limit: 99, window: 1m, match: { network: [10.1.0.0/16, 192.0.2.7] } }\n"
     "  - { name: two, limit: 99, window: 1m, match: { network: [10.1.0.0/16, 192.0.3.7] } }\n"
     "  - { name: not, limit: 99, window: 1m, match: { network: { not: 10.1.0.0/16 } } }\n",
     "3:5: \"one\" never denies: \"all\" (f0:2) is stricter"},
    /* Windows that begin with another request. */
    {"rules:\n"
     "  - { name: all, limit: 10, window: 1m, algorithm: fixed_window, align: first_request }\n"
     "  - { name: one, limit: 15, window: 1m, algorithm: fixed_window, align: first_request, match: { path: /a } }\n"
     "  - { name: two, limit: 15, window: 1m, algorithm: fixed_window, align: first_request }\n",
     "4:5: \"two\" never denies: \"all\" (f0:2) is stricter"},
    /* ---- By tiers ---- */
    {"rules:\n"
     "  - { name: a, limit: { free: 10, pro: 100, default: 5 }, window: 1m }\n"
     "  - { name: b, limit: { free: 20, pro: 200, default: 10 }, window: 1m }\n"
     "  - { name: c, limit: { free: 20, pro: 99, default: 10 }, window: 1m }\n"
     "  - { name: d, limit: { free: 20, gold: 10, default: 100 }, window: 1m }\n"
     "  - { name: e, limit: 100, window: 1m }\n",
     "3:5: \"b\" never denies: \"a\" (f0:2) is stricter for the same key\n"
     "5:5: \"d\" never denies: \"c\" (f0:4) is stricter for the same key\n"
     "6:5: \"e\" never denies: \"d\" (f0:5) is stricter for the same key"},
    {"rules:\n"
     "  - { name: a, limit: { free: 10, pro: unlimited, default: 5 }, window: 1m }\n"
     "  - { name: b, limit: { free: 20, pro: 200, default: 10 }, window: 1m }\n"
     "  - { name: c, limit: { pro: unlimited, free: 0, default: 50 }, window: 1h }\n",
     ""},
    {"rules:\n"
     "  - { name: a, limit: { free: 10, default: 5 }, window: 1m, tier: 'header:A' }\n"
     "  - { name: b, limit: { free: 20, default: 10 }, window: 1m, tier: 'header:B' }\n",
     ""},
    /* ---- A rule or a list that decides all of its requests ---- */
    {"rules:\n"
     "  - { name: api, limit: 5, window: 1s, key: '${user_id}', match: { path: /api/v1/items } }\n"
     "  - { name: old, limit: 0, match: { path: /api/v1/* } }\n"
     "  - { name: seen, limit: 5, window: 1s, shadow: true, match: { path: /api/v1/items } }\n"
     "  - { name: new, limit: 5, window: 1s, match: { path: /api/v2/items } }\n",
     "2:5: \"api\" has no effect: \"old\" (f0:3) denies all of its requests; remove the rule, or leave its"},
    {"rules:\n"
     "  - { name: some, limit: 0, key: '${user_id}' }\n"
     "  - { name: part, limit: { free: 0, default: 5 }, window: 1s, tier: 'header:T' }\n"
     "  - { name: but, limit: 0, allow: { networks: [10.0.0.0/8] } }\n"
     "  - { name: maybe, limit: 0, shadow: true }\n"
     "  - { name: api, limit: 5, window: 1s, key: '${path}' }\n",
     ""},
    {"block: { networks: [10.0.0.0/8] }\n"
     "allow: { networks: [192.0.2.0/24] }\n"
     "rules:\n"
     "  - { name: a, limit: 5, window: 1s, match: { network: 10.2.0.0/16 } }\n"
     "  - { name: b, limit: 6, window: 1s, match: { network: 192.0.2.1 } }\n"
     "  - { name: c, limit: 7, window: 1s, match: { network: [10.2.0.0/16, 192.0.2.1] } }\n"
     "  - { name: d, limit: 8, window: 1s, match: { network: { not: 10.2.0.0/16 } } }\n",
     "4:5: \"a\" has no effect: its networks are in block at the top\n"
     "5:5: \"b\" has no effect: its networks are in allow at the top"},
    /* ---- Headers ---- */
    {"rules:\n"
     "  - { name: all, key: '${client_ip}', limit: 50, window: 1s }\n"
     "  - { name: api, key: '${path}', limit: 5, window: 1s, match: { path: /api/* }, response: { headers: draft } }\n",
     "3:5: \"api\" sends the headers draft, but \"all\" (f0:2), for the same requests, x-ratelimit and draft: a client "
     "gets those of the rule with the smaller share left; give both the same response"},
    {"rules:\n"
     "  - { name: api, key: '${path}', limit: 5, window: 1s, match: { path: /api/* }, response: { reset: delta } }\n"
     "  - { name: all, key: '${client_ip}', limit: 50, window: 1s }\n",
     "3:5: \"all\" sends the headers x-ratelimit and draft, but \"api\" (f0:2), for the same requests, x-ratelimit "
     "with"},
    {"response: { report: all }\nrules:\n"
     "  - { name: all, key: '${client_ip}', limit: 50, window: 1s, response: { report: { rule: all } } }\n"
     "  - { name: api, key: '${path}', limit: 5, window: 1s, match: { path: /api/* }, response: { headers: draft, "
     "report: { rule: all, list: all } } }\n",
     ""},
    /* One that sends none, other requests, a denial's header alone, a reset that is not sent, a shadow rule. */
    {"rules:\n"
     "  - { name: all, key: '${client_ip}', limit: 50, window: 1s, response: { headers: [] } }\n"
     "  - { name: api, key: '${path}', limit: 5, window: 1s, match: { path: /api/* }, response: { headers: draft } }\n"
     "  - { name: b, limit: 5, window: 1s, match: { path: /b }, response: { headers: [draft, retry-after] } }\n"
     "  - { name: b2, key: '${path}', limit: 5, window: 1s, match: { path: /b }, response: { headers: draft, reset: "
     "delta } }\n"
     "  - { name: c, limit: 5, window: 1s, match: { path: /c } }\n"
     "  - { name: s, limit: 5, window: 1s, match: { path: /b }, shadow: true }\n"
     "  - { name: ban, limit: 0, match: { path: /b, method: PUT } }\n",
     ""},
};

static void check_warnings(const char *yaml, const struct weir__rules_host *host, const char *expected)
{
    static struct diags diags;
    weir_rules *set = compile_for(&diags, &yaml, 1, host);
    bool good = diags_are(&diags, WEIR_IS_WARNING, expected);
    if (!good || !set)
        printf("  in:\n%s", yaml);
    CHECK(good);
    CHECK(set != NULL);
    weir_rules_free(set);
}

TEST(doubtful_rules_are_warned_about)
{
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++)
        check_warnings(doubtful[i].yaml, NULL, doubtful[i].expected);
}

#define MIB (INT64_C(1) << 20)

/* Warnings about rules that take the host into account. */
static const struct {
    struct weir__rules_host host;
    const char *yaml, *expected;
} on_host[] = {
    /* ---- Attributes that nothing sets ---- */
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_NONE},
     RULE "    key: ${user_id}\n"
          "  - { name: b, limit: { free: 1, default: 2 }, window: 1s }\n"
          "  - { name: c, limit: { free: 1, default: 3 }, window: 1s, key: 'x:${user_id}' }\n",
     "5:12: identity has no source of user_id: no request is limited by \"a\" (and 1 more rule); name one, such as "
     "user_id: header:\n"
     "6:5: identity has no source of tier: every request has the default limit of \"b\" (and 1 more rule); name one"},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_SERVICE},
     RULE "    key: ${user_id}\n    on_missing_key: deny\n",
     "5:12: identity has no source of user_id: unless a caller of the service passes it, every request is denied by"},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_NONE},
     RULE "    match: { api_key: [x, y], tier: absent }\n    cost: price\n    key: ${user_id}\n"
          "    on_missing_key: share\n",
     "5:14: identity has no source of api_key: nothing matches \"a\"\n"
     "5:31: identity has no source of tier: its condition always holds in \"a\"\n"
     "7:12: identity has no source of user_id: all requests share one counter of \"a\"\n"
     "6:11: identity has no source of price: every request has the default cost of \"a\""},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_NONE},
     "identity: { user_id: header:X-User, tier: header:X-Plan }\n" RULE "    key: ${user_id}:${header:X}:${path}\n"
     "  - { name: b, limit: { free: 1, default: 2 }, window: 1s, match: { tier: a } }\n",
     ""},
    /* A rule file may be an application's or nginx's, which pass attributes themselves. */
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN}, RULE "    key: ${user_id}\n", ""},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "identity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }\n" RULE "    key: ${user_id}\n",
     ""},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     RULE "    key: ${account}\n",
     "5:12: identity has no source of account: unless the application, or weir_attribute in nginx, passes it, no "},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "identity: { api_key: header:X-API-Key }\n"
     "rules:\n"
     "  - { name: a, key: '${api_key}', limit: { free: 1 }, window: 1s }\n",
     "3:35: no default: requests of other tiers, or of none\n"
     "3:5: identity has no source of tier: unless the application, or weir_attribute in nginx, passes it, no request "
     "is"},
    /* ---- Memory ---- */
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: a, key: '${path}', limit: 1000, window: 1h, algorithm: sliding_window_log }\n",
     "2:5: a segment of 64MiB holds 819 keys of \"a\" at their limit, of 4.6 kB each in its slab; more keys are "
     "counted "
     "approximately; use sliding_window_counter, which needs 20 to 40 bytes a key, or segment.size: 79MiB"},
    {{.segment_bytes = 128 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: a, key: '${path}', limit: 1000, window: 1h, algorithm: sliding_window_log }\n"
     "  - { name: b, limit: 65535, window: 1h, algorithm: sliding_window_log }\n"
     "  - { name: c, key: '${path}', limit: 65535, window: 1h, algorithm: sliding_window_log, consistency: strict }\n",
     ""},
    {{.segment_bytes = 4 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: b, limit: 65535, window: 1h, algorithm: sliding_window_log, on_store_failure: closed }\n",
     "2:5: a segment of 4096KiB holds 0 keys of \"b\" at their limit, of 369 kB each in its slab; more keys are "
     "denied; "
     "use sliding_window_counter, which needs 20 to 40 bytes a key, or segment.size: 6400KiB"},
    {{.segment_bytes = 64 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: c, key: '${path}', limit: { x: 1000, default: 0 }, algorithm: concurrency }\n",
     "2:5: a segment of 64MiB holds 327 keys of \"c\" at their limit, of 11.5 kB each in its slab; more keys are not "
     "limited; use a lower limit, or segment.size: "},
    {{.segment_bytes = 1 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: d, key: '${path}', limit: 1000, window: 1h, algorithm: sliding_window_counter, buckets: 60 }\n",
     "2:5: a segment of 1024KiB holds 102 keys of \"d\" at their limit, of 576 B each in its slab; more keys are "
     "counted "
     "approximately; use buckets: 2, or segment.size: 10000KiB"},
    {{.segment_bytes = 1 * MIB, .callers = WEIR__CALLERS_UNKNOWN},
     "rules:\n"
     "  - { name: d, key: '${path}', limit: 1000, window: 1h, algorithm: sliding_window_counter, buckets: 60,\n"
     "      consistency: leased }\n",
     ""},
    /* ---- Leases ---- */
    {{.segment_bytes = 64 * MIB, .has_store = true, .consistency = WEIR__LEASED, .counts_denied = true},
     "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }\n"
     "  - { key: b, rate_limit: { unit: minute, requests_per_unit: 5 } }\n",
     "3:5: fixed windows of Envoy's service, as \""},
    {{.segment_bytes = 64 * MIB, .has_store = true, .consistency = WEIR__LEASED},
     "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }\n",
     ""},
    {{.segment_bytes = 64 * MIB, .has_store = true, .consistency = WEIR__PER_ALGORITHM, .counts_denied = true},
     "domain: shop\ndescriptors:\n  - { key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }\n",
     ""},
};

TEST(hosts_are_taken_into_account)
{
    for (size_t i = 0; i < sizeof on_host / sizeof *on_host; i++)
        check_warnings(on_host[i].yaml, &on_host[i].host, on_host[i].expected);
}

/* ---- Hostile sets ---- */

/* Adds `count` paths, "/<name>0, /<name>1, …", or from the last to the first. */
static void add_paths(struct weir__buffer *yaml, const char *name, size_t count, bool backwards)
{
    for (size_t i = 0; i < count; i++)
        weir__buffer_printf(yaml, "%s/%s%zu", i ? ", " : "", name, backwards ? count - 1 - i : i);
}

/* A ban outside of many paths, and rules with many others: each path is compared with each. */
static void add_many_paths(struct weir__buffer *yaml)
{
    weir__buffer_printf(yaml, "rules:\n  - { name: ban, limit: 0, match: { path: { not: [");
    add_paths(yaml, "banned", 100000, false);
    weir__buffer_printf(yaml, "] } } }\n");
    for (int i = 0; i < 10; i++) {
        weir__buffer_printf(yaml, "  - { name: r%d, limit: 5, window: 1s, key: k%d, match: { path: [", i, i);
        add_paths(yaml, "a", 4096, false);
        weir__buffer_printf(yaml, "] } }\n");
    }
}

/* A long block list, and many rules for a network behind all of it. */
static void add_many_networks(struct weir__buffer *yaml)
{
    weir__buffer_printf(yaml, "block: { networks: [192.0.2.1");
    for (unsigned i = 0; i < 500000; i++)
        weir__buffer_printf(yaml, ", 10.%u.%u.%u", i >> 15, i >> 7 & 255, 2 * i & 255);
    weir__buffer_printf(yaml, "] }\nrules:\n");
    for (int i = 0; i < 20000; i++)
        weir__buffer_printf(yaml, "  - { name: r%d, limit: 5, window: 1s, key: k%d, match: { network: 192.0.2.3 } }\n",
                            i, i);
}

/* Rules with different headers for the same paths except for the last. */
static void add_many_headers(struct weir__buffer *yaml)
{
    static const char *const styles[] = {"headers: draft", "headers: x-ratelimit", "headers: x-ratelimit, reset: delta",
                                         "headers: [x-ratelimit, draft]"};
    weir__buffer_printf(yaml, "rules:\n");
    for (size_t i = 0; i < 4000; i++) {
        weir__buffer_printf(yaml,
                            "  - { name: r%zu, limit: 5, window: 1s, key: k%zu, response: { %s }, match: { path: [", i,
                            i, styles[i % WEIR__COUNT(styles)]);
        add_paths(yaml, "a", 63, i % 2);
        weir__buffer_printf(yaml, ", /own%zu] } }\n", i);
    }
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Rules are compared in bounded time, which a hostile publisher, or a large set, would otherwise use up. */
TEST(hostile_sets_are_compared_in_bounded_time)
{
    static void (*const hostile[])(struct weir__buffer * yaml) = {add_many_paths, add_many_networks, add_many_headers};
    for (size_t i = 0; i < WEIR__COUNT(hostile); i++) {
        static struct diags diags;
        struct weir__buffer yaml = {0};
        weir_rules *set = NULL;
        hostile[i](&yaml);
        CHECK(!yaml.failed);
        diags_begin(&diags, yaml.data, yaml.len);
        diags.report.diagnose = NULL;
        double begin = cpu_seconds();
        CHECK_EQ(weir__rules_compile(&diags.report, &test_around, &set), 0);
        double compiling = cpu_seconds() - begin;
        CHECK_EQ(diags.report.warnings, 0); /* there is no receiver */
        diags.report.diagnose = diags_collect;
        begin = cpu_seconds();
        if (set)
            weir__rules_lint(set, &diags.report);
        double took = cpu_seconds() - begin;
        printf("  %.2f s, and %.2f s to compile\n", took, compiling);
        CHECK(took < 8 * compiling); /* a third natively; a hundred times without bounds */
        diags_end(&diags);
        weir_rules_free(set);
        weir__buffer_free(&yaml);
    }
}

/* The example in the documentation causes no warning. */
TEST(good_rules_cause_no_warning)
{
    static struct diags diags;
    weir_rules *set = compile(&diags, "identity:\n"
                                      "  user_id:   header:X-User-Id\n"
                                      "  tier:      header:X-Plan\n"
                                      "  client_ip: { trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64 }\n"
                                      "allow: { networks: [192.0.2.0/24] }\n"
                                      "rules:\n"
                                      "  - name: login\n"
                                      "    match: { path: /auth/login, method: POST }\n"
                                      "    key: ip:${client_ip}\n"
                                      "    limit: 5\n"
                                      "    window: 1m\n"
                                      "    algorithm: sliding_window_log\n"
                                      "  - name: user-api\n"
                                      "    match: { path: /api/* }\n"
                                      "    key: user:${user_id}\n"
                                      "    limit: { free: 100, basic: 1000, pro: 10000, default: 100 }\n"
                                      "    window: 1h\n"
                                      "    burst: 50\n"
                                      "    soft: 10%\n"
                                      "    cost: { \"/api/export\": 20, default: 1 }\n");
    CHECK(set != NULL);
    CHECK(diags_are(&diags, WEIR_IS_WARNING, ""));
    weir_rules_free(set);
}

/* Comparing ten thousand equal rules takes no noticeable time, and the number of warnings is bounded. */
TEST(many_equal_rules_cause_bounded_warnings)
{
    static struct diags diags;
    enum { RULES = 10000 };
    size_t size = (size_t)64 * RULES, len = 0;
    char *text = malloc(size);
    CHECK(text != NULL);
    if (!text)
        return;
    len += (size_t)snprintf(text, size, "rules:\n");
    for (int i = 0; i < RULES; i++)
        len += (size_t)snprintf(text + len, size - len, "- {name: r%d, limit: 5, window: 1s}\n", i);
    weir_rules *set = compile(&diags, text);
    CHECK(set != NULL);
    CHECK_EQ(diags.count, WEIR__ERRORS_MAX + 1);
    weir_rules_free(set);
    free(text);
}

/* ---- "never denies anything": the warning against the algorithms themselves ---- */

static uint64_t seed;

static int64_t upto(int64_t n)
{
    return (int64_t)(test_random(&seed) % (uint64_t)n);
}

/* A limit whose state is one word, so that it can be simulated here. */
static weir_limit random_limit(void)
{
    static const int64_t windows_s[] = {1, 2, 3, 7, 10, 60};
    static const enum weir_algorithm algorithms[] = {WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET, WEIR_FIXED_WINDOW,
                                                     WEIR_SLIDING_WINDOW_COUNTER};
    weir_params p = {.algorithm = algorithms[upto(4)], .limit = 1 + upto(upto(2) ? 10 : 200)};
    weir_limit limit;
    p.window_ns = windows_s[upto(6)] * WEIR_SECOND;
    if (p.algorithm <= WEIR_LEAKY_BUCKET && upto(2))
        p.burst = 1 + upto(100);
    if (p.algorithm == WEIR_TOKEN_BUCKET && upto(4) == 0)
        p.refill = WEIR_REFILL_INTERVAL;
    if (p.algorithm == WEIR_FIXED_WINDOW && upto(3) == 0)
        p.align = WEIR_ALIGN_FIRST_REQUEST;
    if (upto(4) == 0)
        p.soft_percent = (int)upto(100);
    CHECK_EQ(weir_limit_init(&limit, &p), 0);
    return limit;
}

/* Takes greedily from both, all or nothing, and unless `same` at times from the narrow one alone; true if the wide one
 * ever denied what the narrow one allowed, or used its soft share. */
static bool bites(const weir_limit *wide, const weir_limit *narrow, bool same)
{
    struct weir__state wide_state = {.used = 0}, narrow_state = {.used = 0};
    int64_t now_us = INT64_C(1700000000000000) + upto(60000000);
    for (int step = 0; step < 60; step++) {
        now_us += upto(3) ? upto(2 * narrow->window_us) : upto(1000);
        for (int n = 0; n < 400; n++) {
            struct weir__state wide_next = wide_state, narrow_next = narrow_state;
            weir_decision by_wide, by_narrow;
            weir__state_take(narrow, &narrow_next, now_us, 1, WEIR__TAKE, &by_narrow);
            if (!weir_passes(&by_narrow))
                break;
            if (!same && upto(3) == 0) {
                narrow_state = narrow_next;
                continue;
            }
            weir__state_take(wide, &wide_next, now_us, 1, WEIR__TAKE, &by_wide);
            if (!weir_passes(&by_wide) || (by_wide.flags & WEIR_OVER_SOFT))
                return true;
            wide_state = wide_next;
            narrow_state = narrow_next;
        }
    }
    return false;
}

TEST(rule_warned_as_redundant_never_denies)
{
    int64_t rounds = test_scaled(20000, 500), warned = 0, bit = 0;
    for (int64_t round = 0; round < rounds; round++) {
        seed = (uint64_t)round;
        weir_limit wide = random_limit(), narrow = random_limit();
        bool same = upto(2), never = never_bites(&wide, &narrow, same);
        if (!never && upto(20))
            continue;
        bool does = bites(&wide, &narrow, same);
        CHECK(!never || !does);
        warned += never;
        bit += does;
    }
    /* Both outcomes occur, so that the check above means something. */
    CHECK(warned > rounds / 50);
    CHECK(bit > 0);
}

TEST_MAIN
