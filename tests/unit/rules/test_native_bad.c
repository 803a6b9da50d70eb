/* weir's native dialect: every error is reported at its position, with a suggestion where there is one. */
#include "compiled.h"

/* A rule; the text that follows it is its fifth line. */
#define RULE                                                                                                           \
    "rules:\n"                                                                                                         \
    "  - name: a\n"                                                                                                    \
    "    limit: 1\n"                                                                                                   \
    "    window: 1s\n"

/* A concurrency rule; the text that follows it is its fifth line. */
#define FLIGHT                                                                                                         \
    "rules:\n"                                                                                                         \
    "  - name: a\n"                                                                                                    \
    "    limit: 1\n"                                                                                                   \
    "    algorithm: concurrency\n"

static const struct {
    const char *yaml, *expected;
} bad[] = {
    {"[]", "1:1: a rule file is a map with rules or with a domain, not a list"},
    {"rules", "1:1: a rule file is a map with rules or with a domain, not text"},
    {"rules: 3\n", "1:8: rules is a list of rules, not a number"},
    {"rules: {}\n", "1:8: rules is a list of rules, not a map"},
    {"{}", "0:0: there are no rules"},
    {"identity: { user_id: header:X }\n", "0:0: there are no rules"},
    {"rule: []\n", "1:1: a rule file has no field \"rule\" -> rules"},
    {"rules:\n"
     "  - { name: a, limit: many }\n"
     "gateway: { listen: 8080 }\n"
     "workers: 2\n",
     "3:1: this is a weir.yaml, which has gateway, and not a rule file"},
    {"ruls:\n"
     "  - name: a\n"
     "identity: {}\n",
     "1:1: a rule file has no field \"ruls\" -> rules"},
    {"domain: d\n"
     "rules: []\n"
     "allow: {}\n",
     "2:1: rules is of the native dialect, but this file has a domain: use\n"
     "3:1: allow is of the native dialect, but this file has a domain: use"},
    {"normalize: on\nrules: []\n", "1:12: normalize is off, or a map of parameters, trailing_slash, blanks and case"},
    {"normalize: {}\nrules: []\n", "1:12: normalize is off, or a map of parameters, trailing_slash, blanks and case to "
                                   "true or false, not an empty one"},
    {"normalize: { Case: true, blanks: maybe }\nrules: []\n", "1:14: normalize has no field \"Case\" -> case\n"
                                                              "1:34: blanks must be true or false, not"},
    {"domain: d\nnormalize: off\n", "2:1: normalize is of the native dialect, but this file has a domain: use"},
    {RULE "    normalize: off\n", "5:5: a rule has no field \"normalize\"; it belongs in match: { normalize: … }"},
    {RULE "    match: { path: /a, normalize: [case] }\n", "5:35: normalize is off, or a map of parameters"},
    {"rules: [3, [a], {}]\n", "1:9: a rule must be a map, not a number\n"
                              "1:12: a rule must be a map, not a list\n"
                              "1:17: a rule has a name\n"
                              "1:17: limit is missing"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n"
     "    dry_run: true\n"
     "    rate: 1\n"
     "    nonsense: 1\n"
     "    methods: [GET]\n"
     "    whitelist: []\n"
     "    response: { code: 503 }\n",
     "5:5: a rule has no field \"dry_run\" -> shadow\n"
     "6:5: a rule has no field \"rate\" -> limit\n"
     "7:5: a rule has no field \"nonsense\"\n"
     "8:5: a rule has no field \"methods\" -> match\n"
     "9:5: a rule has no field \"whitelist\" -> allow\n"
     "10:17: response has no field \"code\" -> status"},
    {"rules:\n"
     "  - name: a\n"
     "    limt: 1\n"
     "    windw: 1s\n",
     "3:5: a rule has no field \"limt\" -> limit\n"
     "4:5: a rule has no field \"windw\" -> window"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n",
     "2:5: window is missing: how long is the limit for?"},
    {"rules:\n"
     "  - name: a\n"
     "    window: 1s\n",
     "2:5: limit is missing"},
    {FLIGHT "    window: 1s\n", "5:5: window is not for concurrency; how long a slot is held at most is its lease"},
    {FLIGHT "    lease: 50ms\n", "5:12: lease is 100ms to 1d"},
    {FLIGHT "    lease: 25h\n", "5:12: lease is 100ms to 1d"},
    {FLIGHT "    cost: 2\n", "5:5: cost is not for concurrency: a request in flight takes one slot"},
    {FLIGHT "    consistency: eventual\n",
     "5:18: concurrency cannot be eventual: what others hold now must be known now; use strict, or local"},
    {FLIGHT "    consistency: leased\n",
     "5:18: concurrency cannot be leased: a permit is released, not recovered; use strict, or local"},
    {RULE "    consistency: leased\n    algorithm: sliding_window_log\n",
     "5:18: sliding_window_log cannot be leased: it keeps the time of each unit, and a leased unit is spent later than "
     "it "
     "was charged; use sliding_window_counter, or strict"},
    {RULE "    algorithm: leaky_bucket\n    on_limit: delay\n    consistency: leased\n",
     "7:18: on_limit: delay cannot be leased: the departure times of all hosts are one queue; use strict"},
    {RULE "    adaptive: { min: 50% }\n    consistency: leased\n", "6:18: cannot be leased: it may be lower when"},
    {RULE "    elastic: { up_to: 200%, while: 70% }\n    consistency: leased\n",
     "6:18: cannot be leased: it may be lower when"},
    {RULE "    algorithm: fixed_window\n    reserve: 20%\n    consistency: leased\n",
     "7:18: cannot be leased: it may be lower when"},
    {FLIGHT "    burst: 2\n",
     "5:5: burst is a parameter of token_bucket and leaky_bucket, but the algorithm is concurrency"},
    {FLIGHT "    on_limit: delay\n",
     "5:15: on_limit: delay needs algorithm: leaky_bucket, which knows when a request may leave"},
    {RULE "    lease: 1s\n",
     "5:5: lease is a parameter of concurrency, but the algorithm is token_bucket, the default"},
    {"rules:\n"
     "  - { name: a, algorithm: concurrency, limit: 70000 }\n",
     "2:47: limit out of range; use 1 to 4294967295 (sliding_window_log and concurrency: 65535, "
     "sliding_window_counter: 2147483647)"},
    {"rules:\n"
     "  - { name: a, limits: [{ limit: 1, algorithm: concurrency }] }\n",
     "2:25: name is missing: what is this limit called?"},
    {"domain: d\n"
     "descriptors:\n"
     "  - { key: a, rate_limit: { unit: day, requests_per_unit: 5, algorithm: concurrency } }\n",
     "3:73: concurrency is not for descriptors: their protocol has no way to give a slot back"},
    {"rules:\n"
     "  - limit: 1\n"
     "    window: 1s\n",
     "2:5: a rule has a name"},
    {"rules:\n"
     "  - { name: [a], limit: 1, window: 1s }\n",
     "2:13: name must be text, not a list"},
    {"rules:\n"
     "  - { name: '', limit: 1, window: 1s }\n",
     "2:13: a name has 1 to 95 bytes, not 0"},
    {"rules:\n"
     "  - { name: \"a\\tb\", limit: 1, window: 1s }\n",
     "2:13: a name has no control characters, quotes or backslashes"},
    {"rules:\n"
     "  - { name: 'a\"b', limit: 1, window: 1s }\n",
     "2:13: a name has no control characters, quotes or backslashes"},
    {"rules:\n"
     "  - { name: 'a\\b', limit: 1, window: 1s }\n",
     "2:13: a name has no control characters, quotes or backslashes"},
    {"rules:\n"
     "  - { name: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn, "
     "limit: 1, window: 1s }\n",
     "2:13: a name has 1 to 95 bytes, not 96"},
    {"rules:\n"
     "  - { name: a, limit: 1, window: 1s }\n"
     "  - { name: a, limit: 2, window: 1s }\n",
     "3:5: the name \"a\" is taken by the rule at f0:2"},
    {"rules:\n"
     "  - { name: a, limit: 1, window: 1s, shadow: true }\n"
     "  - { name: a, limit: 2, window: 1s, shadow: true }\n",
     "3:5: the name \"a\" is taken by the shadow rule at f0:2"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: -1\n"
     "    window: 1s\n",
     "3:12: limit must be a number from 0 to 4294967295, not -1"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1.5\n"
     "    window: 1s\n",
     "3:12: limit is a number of 0 or more, unlimited, or a map of tiers,"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: ulimited\n"
     "    window: 1s\n",
     "3:12: limit is a number of 0 or more, unlimited, or a map of tiers, -> unlimited"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: [1]\n"
     "    window: 1s\n",
     "3:12: limit must be a number from 0 to 4294967295, not a list"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: '5'\n"
     "    window: 1s\n",
     "3:12: limit is text because of its quotes; remove them"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 99999999999\n"
     "    window: 1s\n",
     "3:12: limit must be a number from 0 to 4294967295, not 99999999999"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 4294967295\n"
     "    window: 400d\n",
     "3:12: limit, burst, soft and window together overflow the counter or"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: {}\n"
     "    window: 1s\n",
     "3:12: limit is an empty map: give at least a default"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { free: x, pro: -2 }\n"
     "    window: 1s\n",
     "3:20: limit is a number of 0 or more, unlimited, or a map of tiers,\n"
     "3:28: limit must be a number from 0 to 4294967295, not -2"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { free: 1 }\n",
     "2:5: window is missing: how long is the limit for?"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 0\n",
     "4:13: window must be longer than zero"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1 fortnight\n",
     "4:13: window must be seconds, or a number with ms, s, m, h, d, w, mo"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 401d\n",
     "4:13: window must be at most 400 days, not 401d"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: [1s]\n",
     "4:13: window must be seconds, or a number with ms, s, m, h, d, w, mo"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 100ns\n",
     "4:13: window must be seconds, or a number with ms, s, m, h, d, w, mo"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 70000\n"
     "    window: 1h\n"
     "    algorithm: sliding_window_log\n",
     "3:12: limit out of range; use 1 to 4294967295 (sliding_window_log and concurrency:"},
    {RULE "    limits: [{ limit: 1, window: 1s }]\n", "3:5: limit and limits: a rule has one or the other\n"
                                                      "4:5: window and limits: a rule has one or the other"},
    {"rules:\n"
     "  - name: a\n"
     "    limits: []\n",
     "3:13: limits is a list of { limit, window }, not an empty one"},
    {"rules:\n"
     "  - name: a\n"
     "    limits: 5\n",
     "3:13: limits is a list of { limit, window }, not a number"},
    {"rules:\n"
     "  - name: a\n"
     "    limits: [5]\n",
     "3:14: limits must be a map, not a number"},
    {"rules:\n"
     "  - name: a\n"
     "    limits:\n"
     "      - { limit: 1, window: 1s }\n"
     "      - { limit: 2, window: 1s }\n",
     "5:9: the name \"a/1s\" is taken by the rule at f0:4"},
    {"rules:\n"
     "  - name: a\n"
     "    limits:\n"
     "      - { limit: 1, window: 1s, key: x }\n"
     "      - { limit: 1, window: 2s, cost: 2, shadow: true }\n",
     "4:33: key belongs to the rule, not to one of its limits\n"
     "5:33: cost belongs to the rule, not to one of its limits\n"
     "5:42: shadow belongs to the rule, not to one of its limits"},
    {"rules:\n"
     "  - name: a\n"
     "    limits:\n"
     "      - { limit: 1 }\n"
     "      - { window: 2s }\n"
     "      - { limit: 1, name: x }\n"
     "      - { limit: 1, window: 1s, name: '' }\n",
     "4:9: window is missing: how long is the limit for?\n"
     "5:9: limit is missing\n"
     "6:9: window is missing: how long is the limit for?\n"
     "7:39: the name is empty"},
    {"rules:\n"
     "  - name: a\n"
     "    limits:\n"
     "      - { limit: 1, window: 1s, name: 'x\"' }\n"
     "      - { limit: 1, window: 1s, name: "
     "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn }\n",
     "4:39: a name has no control characters, quotes or backslashes\n"
     "5:39: a name has 1 to 95 bytes, not 96"},
    {"rules:\n"
     "  - name: a\n"
     "    burst: 5\n"
     "    algorithm: fixed_window\n"
     "    limits: [{ limit: 1, window: 1m }]\n",
     "3:5: burst is a parameter of token_bucket and leaky_bucket, but the"},
    {RULE "    algorithm: token_buckte\n",
     "5:16: algorithm must be token_bucket, leaky_bucket, fixed_window, -> token_bucket"},
    {RULE "    algorithm: fixed_window\n"
          "    burst: 3\n",
     "6:5: burst is a parameter of token_bucket and leaky_bucket, but the"},
    {RULE "    algorithm: leaky_bucket\n"
          "    refill: interval\n",
     "6:5: refill is a parameter of token_bucket, but the algorithm is"},
    {RULE "    refill: sometimes\n", "5:13: refill must be continuous or interval, not \"sometimes\""},
    {RULE "    buckets: 3\n", "5:5: buckets is a parameter of sliding_window_counter, but the"},
    {RULE "    round: up\n", "5:5: round is a parameter of sliding_window_counter, but the"},
    {RULE "    count_rejected: true\n", "5:5: count_rejected is a parameter of sliding_window_log, but the"},
    {RULE "    align: clock\n", "5:5: align is a parameter of fixed_window, but the algorithm is"},
    {RULE "    timezone: UTC\n", "5:5: timezone is a parameter of fixed_window, but the algorithm is"},
    {RULE "    algorithm: sliding_window_counter\n"
          "    buckets: 61\n",
     "6:14: buckets must be a number from 2 to 60, not 61"},
    {RULE "    algorithm: sliding_window_counter\n"
          "    buckets: 4\n"
          "    round: up\n",
     "7:5: round is for 2 buckets; with more of them nothing is rounded"},
    {RULE "    algorithm: fixed_window\n"
          "    timezone: Europe/Berlin\n",
     "6:5: timezone needs a window of exactly one day, week, month or year"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1d\n"
     "    algorithm: fixed_window\n"
     "    timezone: Europe/Berln\n",
     "6:15: there is no time zone \"Europe/Berln\" in this system's database"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1d\n"
     "    algorithm: fixed_window\n"
     "    timezone: UTC\n"
     "    align: first_request\n",
     "6:5: timezone contradicts align: first_request, whose windows follow"},
    {RULE "    burst: 0\n", "5:12: burst must be a number from 1 to 4294967295, not 0"},
    {RULE "    burst: many\n", "5:12: burst must be a number from 1 to 4294967295, not \"many\""},
    {RULE "    soft: 2000%\n", "5:11: soft must be a percentage from 0% to 1000%, not \"2000%\""},
    {RULE "    soft: much\n", "5:11: soft must be a percentage from 0% to 1000%, not \"much\""},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 400d\n"
     "    burst: 4000\n",
     "5:12: limit, burst, soft and window together overflow the counter or"},
    {RULE "    on_limit: delay\n", "5:15: on_limit: delay needs algorithm: leaky_bucket, which knows when"},
    {RULE "    max_delay: 1s\n", "5:5: max_delay goes with on_limit: delay"},
    {RULE "    algorithm: leaky_bucket\n"
          "    on_limit: delay\n"
          "    max_delay: soon\n",
     "7:16: max_delay must be seconds, or a number with ms, s, m, h, d, w,"},
    {RULE "    on_limit: rejekt\n", "5:15: on_limit must be reject, delay or queue, not \"rejekt\" -> reject"},
    {RULE "    queue: { max: 1 }\n", "5:5: queue goes with on_limit: queue"},
    {RULE "    on_limit: queue\n    queue: { max: 0, max_bytes: 5MB, max_age: never, age: 1 }\n",
     "6:54: queue has no field \"age\"\n"
     "6:19: max must be a number from 1 to 2147483647, not 0\n"
     "6:33: max_bytes must be a size such as 512KiB, 64MiB or 1GiB, not \"5MB\" -> 5MiB\n"
     "6:47: max_age must be seconds, or a number with ms, s, m, h, d, w,"},
    {RULE "    on_limit: queue\n    queue: many\n", "6:12: queue"},
    {RULE "    on_missing_key: no\n", "5:21: on_missing_key must be skip, deny or share, not \"no\""},
    {RULE "    consistency: stict\n",
     "5:18: consistency must be local, eventual, strict or leased, not \"stict\" -> strict"},
    {RULE "    on_store_failure: opn\n", "5:23: on_store_failure must be local, open or closed, not \"opn\" -> open"},
    {RULE "    on_store_failure: allow\n",
     "5:23: on_store_failure must be local, open or closed, not \"allow\" -> open"},
    {RULE "    on_store_failure: deny\n",
     "5:23: on_store_failure must be local, open or closed, not \"deny\" -> closed"},
    {RULE "    on_limit: deny\n", "5:15: on_limit must be reject, delay or queue, not \"deny\" -> reject"},
    {RULE "    consistency: exact\n",
     "5:18: consistency must be local, eventual, strict or leased, not \"exact\" -> strict"},
    {RULE "    algorithm: gcra\n",
     "5:16: algorithm must be token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter or "
     "concurrency, not \"gcra\" -> token_bucket"},
    {RULE "    shadow: maybe\n", "5:13: shadow must be true or false, not \"maybe\""},
    {RULE "    shadow: 'true'\n", "5:13: shadow is text because of its quotes; remove them"},
    {RULE "    priority: 10\n",
     "5:15: priority is critical, high, normal or low; the number that sets which of several denials is reported is "
     "report_priority: 10"},
    {RULE "    priority: -3\n", "5:15: is reported is report_priority: -3"},
    {RULE "    priority: 1.5\n", "5:15: priority must be critical, high, normal or low, not 1.5"},
    {RULE "    priority:\n", "5:14: priority must be critical, high, normal or low, not"},
    {RULE "    report_priority: 3000000000\n",
     "5:22: report_priority must be a number from -2147483648 to 2147483647, not"},
    {RULE "    report_priority: high\n", "5:22: report_priority must be a number from -2147483648 to 2147483647, not"},
    {RULE "    priority: hihg\n", "5:15: priority must be critical, high, normal or low, not \"hihg\" -> high"},
    {RULE "    priority: [high]\n", "5:15: priority must be critical, high, normal or low, not a list"},
    {RULE "    elastic: 200%\n", "5:14: elastic"},
    {RULE "    elastic: { while: 70% }\n",
     "5:14: up_to is missing: how much may the limit grow, in per cent of the limit?"},
    {RULE "    elastic: { up_to: 100% }\n", "5:23: up_to is 101% to 1000%, not 100%"},
    {RULE "    elastic: { up_to: twice }\n", "5:23: up_to must be a percentage from 0% to 1000%, not \"twice\""},
    {RULE "    elastic: { up_to: 200%, while: 101% }\n", "5:36: while is 1% to 100%, not 101%"},
    {RULE "    elastic: { upto: 200% }\n", "5:16: \"upto\" -> up_to"},
    {RULE "    adaptive: { max: 70% }\n", "5:15: min is missing: the limit under overload, in per cent of the limit"},
    {RULE "    adaptive: { min: 0 }\n", "5:22: min is 1% to 1000%, not 0%"},
    {RULE "    adaptive: { min: 100% }\n", "5:22: min must be less than max, which is 100%"},
    {RULE "    adaptive: { min: 50%, max: 40% }\n", "5:22: min must be less than max, which is 40%"},
    {RULE "    warn_at: 80\n", "5:14: warn_at is a percentage of the limit, such as 80%, not 80"},
    {RULE "    warn_at: 0%\n", "5:14: warn_at is 1% to 99%, not 0%"},
    {RULE "    warn_at: 100%\n", "5:14: warn_at is 1% to 99%, not 100%"},
    {RULE "    warn_at: 101%\n", "5:14: warn_at is 1% to 99%, not 101%"},
    {RULE "    warn_at: -5%\n", "5:14: warn_at must be a percentage from 0% to"},
    {RULE "    warn_at: 80.5%\n", "5:14: warn_at must be a percentage from 0% to"},
    {RULE "    warn_at: soon\n", "5:14: warn_at must be a percentage from 0% to"},
    {RULE "    warn_at: [80%]\n", "5:14: warn_at must be a percentage from 0% to"},
    {RULE "    warn_at:\n", "5:13: warn_at must be a percentage from 0% to"},
    {RULE "    warn_ad: 80%\n", "5:5: a rule has no field \"warn_ad\" -> warn_at"},
    {RULE "    reserve: 20%\n", "5:5: token and leaky buckets cannot have a reserve;"},
    {RULE "    reserve: 20%\n"
          "    algorithm: leaky_bucket\n",
     "5:5: token and leaky buckets cannot have a reserve;"},
    {RULE "    reserve: 100%\n"
          "    algorithm: fixed_window\n",
     "5:14: reserve is 1% to 99%, not 100%"},
    {"rules:\n"
     "  - name: a\n"
     "    reserve: 5%\n"
     "    limits: [{ limit: 1, window: 1s, algorithm: fixed_window }, { limit: 1, window: 1m }]\n",
     "3:5: token and leaky buckets cannot have a reserve;"},
    {"rules:\n"
     "  - name: a\n"
     "    limits: [{ limit: 1, window: 1s, elastic: { up_to: 200% } }]\n",
     "3:38: elastic belongs to the rule, not to one of its limits"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 40000\n"
     "    window: 1m\n"
     "    algorithm: sliding_window_log\n"
     "    elastic: { up_to: 200% }\n",
     "6:5: elastic: a limit of 80000 is too much: limit out of range;"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { big: 4000000000, default: 5 }\n"
     "    window: 1m\n"
     "    algorithm: fixed_window\n"
     "    adaptive: { min: 20%, max: 200% }\n",
     "6:5: adaptive: a limit of 8000000000 is too much: limit out of range;"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: 9\n"
     "    window: 1d\n"
     "    burst: 2500\n"
     "    adaptive: { min: 20% }\n",
     "6:5: adaptive: a limit of 1 is too much: limit, burst, soft and window together"},
    {RULE "    tier: user_id\n", "5:5: tier goes with a limit that is a map of tiers"},
    {"rules:\n"
     "  - name: a\n"
     "    limit: { a: 1, default: 2 }\n"
     "    window: 1s\n"
     "    tier: header\n",
     "5:11: \"header\" needs a colon and a name after it"},
    {RULE "    cost: -1\n", "5:11: cost must be a number from 0 to 4294967295, not -1"},
    {RULE "    cost: [1]\n", "5:11: cost must be a number from 0 to 4294967295, not a list"},
    {RULE "    cost: null\n", "5:11: cost must be text, not null"},
    {RULE "    cost: {}\n", "5:11: cost must be a number from 0 to 4294967295, not a map"},
    {RULE "    cost: heder:X\n", "5:11: unknown attribute \"heder:X\": the prefixes are header, -> header:X"},
    {RULE "    cost: { from: header:X, defalt: 1, max: 0 }\n",
     "5:29: cost has no field \"defalt\" -> default\n"
     "5:45: max must be a number from 1 to 4294967295, not 0"},
    {RULE "    cost: { from: [x], default: x }\n", "5:19: from must be text, not a list\n"
                                                   "5:33: default must be a number from 0 to 4294967295, not \"x\""},
    {RULE "    cost: { /a: x, b: 1 }\n", "5:17: cost must be a number from 0 to 4294967295, not \"x\"\n"
                                         "5:20: cost: expected paths and default, or from, default and max; not"},
    {RULE "    cost: { /a: 1, max: 3 }\n",
     "5:20: cost: expected paths and default, or from, default and max; not -> max"},
    {RULE "    cost: 1.5\n", "5:11: cost must be a number from 0 to 4294967295, not 1.5; write it"},
    {RULE "    response: 429\n", "5:15: response must be a map such as { status: … }, not a number"},
    {RULE "    response: { status: 200 }\n", "5:25: status must be a number from 400 to 599, not 200"},
    {RULE "    response: { status: 600, headers: [x-ratelimt, 3], reset: dleta, body: jsn, message: [] }\n",
     "5:25: status must be a number from 400 to 599, not 600\n"
     "5:40: headers must be x-ratelimit, draft or retry-after, not -> x-ratelimit\n"
     "5:52: headers must be x-ratelimit, draft or retry-after, not 3\n"
     "5:63: reset must be epoch or delta, not \"dleta\" -> delta\n"
     "5:76: body must be auto, json, problem or none, not \"jsn\" -> json\n"
     "5:90: message must be text, not a list"},
    {RULE "    response: { report: al }\n",
     "5:25: report is tightest, all, the name of a rule, or { rule: NAME, list: all }, and there is no enforced rule "
     "-> all"},
    {RULE "    response: { report: limted }\n  - { name: limited, limit: 1, window: 1s }\n",
     "5:25: there is no enforced rule \"limted\" -> limited"},
    {RULE "    response: { report: tried }\n  - { name: tried, limit: 1, window: 1s, shadow: true }\n",
     "5:25: there is no enforced rule \"tried\""},
    {"response: { report: { rule: nowhere } }\n" RULE, "1:21: there is no enforced rule \"nowhere\""},
    {RULE "    response: { report: [a] }\n", "5:25: or { rule: NAME, list: all }, not a list"},
    {RULE "    response: { report: {} }\n", "5:25: or { rule: NAME, list: all }, not a map"},
    {RULE "    response: { report: '' }\n", "5:25: or { rule: NAME, list: all }, not"},
    {RULE "    response: { report: { rule: '' } }\n", "5:33: the name of the rule is empty"},
    {RULE "    response: { report: { list: some, rul: a } }\n", "5:39: report has no field \"rul\" -> rule\n"
                                                                "5:33: list must be one or all, not \"some\""},
    {RULE "    report: all\n", "5:5: a rule has no field \"report\"; it belongs in response: { report: … }"},
    {RULE "    response: { body: { txt: x } }\n", "5:25: body has no field \"txt\" -> text"},
    {RULE "    response: { body: {} }\n", "5:23: body is auto, json, problem, none or { text: … }, not an empty"},
    {"response: 429\n" RULE, "1:11: response must be a map such as { status: … }, not a number"},
    {"response: { status: 200, heders: [] }\n" RULE, "1:26: response has no field \"heders\" -> headers\n"
                                                     "1:21: status must be a number from 400 to 599, not 200"},
    {"respons: {}\n" RULE, "1:1: a rule file has no field \"respons\" -> response"},
    {"response: {}\ndomain: d\n", "1:1: response is of the native dialect, but this file has a domain: use two files"},
    {RULE "    response: { stats: 1 }\n", "5:17: response has no field \"stats\" -> status"},
    {RULE "    response: { blocked: { status: 302 }, missing: { status: 401, messag: x } }\n",
     "5:36: status must be a number from 400 to 599, not 302\n5:67: missing has no field \"messag\" -> message"},
    {RULE "    response: { blocked: 403 }\n", "5:26: blocked must be a map such as { status: … }, not a number"},
    {RULE "    blocked: { status: 403 }\n",
     "5:5: a rule has no field \"blocked\"; it belongs in response: { blocked: … }"},
    {RULE "    key: ''\n", "5:10: the key is empty; without one there is one bucket for all"},
    {RULE "    key: [a]\n", "5:10: key must be text, not a list"},
    {RULE "    key: ${usr_id}\n", "5:12: unknown attribute \"usr_id\" -> user_id"},
    {RULE "    key: ${header:}\n", "5:12: \"header:\" needs a name after the colon"},
    {RULE "    key: ${user_id\n", "5:10: \"${\" without a \"}\" after it"},
    {RULE "    key: ${foo:bar}\n", "5:12: unknown attribute \"foo:bar\": the prefixes are header,"},
    {RULE "    match: /api\n", "5:12: match is a map such as { path: /api/*, method: POST }, not text"},
    {RULE "    match: { pth: /a, metod: GET }\n",
     "5:14: match has no \"pth\", and identity does not name it -> path\n"
     "5:23: match has no \"metod\", and identity does not name it -> method"},
    {RULE "    match: { path: [] }\n", "5:20: path: the list is empty, so that no request would match"},
    {RULE "    match: { path: '' }\n", "5:20: path: expected a pattern, not an empty text"},
    {RULE "    match: { path: { rgex: x } }\n", "5:22: path has no field \"rgex\" -> regex"},
    {RULE "    match: { path: {} }\n", "5:20: path: expected a pattern or { regex: … }, not an empty map"},
    {RULE "    match: { path: { regex: '(' } }\n", "5:30: regular expression: missing closing parenthesis"},
    {RULE "    match: { path: { not: { not: /a } } }\n", "5:29: path has no field \"not\""},
    {RULE "    match: { path: { not: /a, regex: b } }\n",
     "5:31: path: regex belongs inside not: { not: { regex: … } }"},
    {RULE "    match: { path: [[/a]] }\n", "5:21: path: expected a pattern, not a list"},
    {RULE "    match: { method: 'GET POST' }\n",
     "5:22: \"GET POST\" is no method: expected one such as POST, a list, or"},
    {RULE "    match: { method: 'P*' }\n", "5:22: \"P*\" is no method: expected one such as POST, a list, or \"*\""},
    {RULE "    match: { method: { not: [] } }\n", "5:29: method: the list is empty, so that no request would match"},
    {RULE "    match: { header: X-A }\n", "5:22: header: expected a map of names to patterns, not text"},
    {RULE "    match: { header: {} }\n", "5:22: header: expected a map of names to patterns, not an empty one"},
    {RULE "    match: { header: { 'X A': b } }\n", "5:24: \"header:X A\": a header's name cannot have such characters"},
    {RULE "    match: { header: { X-A: [absent, b] } }\n",
     "5:30: header:X-A: absent cannot be in a list; in quotes it is a literal text"},
    {RULE "    match: { query: { a: { b: c } } }\n", "5:28: query:a has no field \"b\""},
    {RULE "    match: { network: 10.0.0.0/33 }\n", "5:23: network: expected a network such as 10.0.0.0/8 or"},
    {RULE "    match: { network: [] }\n", "5:23: network: the list is empty, so that no request would match"},
    {RULE "    match: { network: { not: [10.0.0.1, x] } }\n",
     "5:41: network: expected a network such as 10.0.0.0/8 or"},
    {RULE "    match: { network: { nt: 10.0.0.1 } }\n", "5:25: network has no field \"nt\" -> not"},
    {RULE "    match: { client_ip: 10.0.0.1 }\n", "5:14: match has no client_ip: network matches the client's address"},
    {RULE "    match: { usr_id: 5 }\n", "5:14: match has no \"usr_id\", and identity does not name it -> user_id"},
    {RULE "    allow: [1]\n", "5:12: allow must be a map such as { networks: … }, not a list"},
    {RULE "    allow: { network: [10.0.0.0/8] }\n", "5:14: allow has no field \"network\" -> networks"},
    {RULE "    block: { networks: [10.0.0.0/8, nix], keys: [[a], ''] }\n",
     "5:37: block.networks: expected a network such as 10.0.0.0/8 or\n"
     "5:50: block.keys: expected a key of 1 to 256 bytes, not a list\n"
     "5:55: block.keys: expected a key of 1 to 256 bytes, not an empty one"},
    {"allow: { keys: 3 }\n"
     "block: 4\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "2:8: block must be a map such as { networks: … }, not a number"},
    {"identity: []\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:11: identity is a map of names to sources, not a list"},
    {"identity: { path: header:X, User: header:X, a: b, c: [d], e: hedder:X }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:13: path is built in and cannot be given another source\n"
     "1:29: \"User\" is not a valid name of an attribute: lower-case letters, digits\n"
     "1:48: a source is header:NAME, cookie:NAME, query:NAME, path:N, host,\n"
     "1:54: c must be text, not a list\n"
     "1:62: unknown attribute \"hedder:X\": the prefixes are header, -> header:X"},
    {"identity: { client_ip: header:X-Forwarded-For }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:24: client_ip is found through the proxies you trust, since clients"},
    {"identity: { client_ip: { trusted: [10.0.0.0/8], ipv4_prefix: 33, ipv6_prefix: 0, trusted_proxies: [a] } }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: 1\n"
     "    window: 1s\n",
     "1:26: client_ip has no field \"trusted\"\n"
     "1:100: trusted_proxies: expected a network such as 10.0.0.0/8 or\n"
     "1:62: ipv4_prefix must be a number from 1 to 32, not 33\n"
     "1:79: ipv6_prefix must be a number from 1 to 128, not 0"},
    {RULE "    path: /a\n"
          "    host: b\n"
          "    message: c\n"
          "    kee: d\n",
     "5:5: a rule has no field \"path\"; it belongs in match: { path: … }\n"
     "6:5: a rule has no field \"host\"; it belongs in match: { host: … }\n"
     "7:5: a rule has no field \"message\"; it belongs in response: { message: … }\n"
     "8:5: a rule has no field \"kee\" -> key"},
    {RULE "    match: { ip: 192.0.2.1 }\n", "5:14: match has no ip: network matches the client's address"},
    {RULE "    match: { header: { X-A: 1, x-b: 2, x-a: 3 } }\n", "5:40: header:x-a is here a second time"},
    {RULE "    match: { method: GET|POST }\n", "5:22: \"GET|POST\" is no method: expected one such as POST, a list"},
    {"rules: [ { name: a, limit: 5/m, window: 1m } ]\n", "1:28: not \"5/m\": the time goes in window"},
    {"identity: { user_id: X-User-Id }\n" RULE, "1:22: \"X-User-Id\" is no source -> header:X-User-Id"},
    {"identity: { client_ip: { header: x-forwarded } }\n" RULE,
     "1:34: header must be x-forwarded-for or forwarded, not \"x-forwarded\" -> forwarded"},
    {"identity: { client_ip: 5 }\n"
     "rules:\n"
     "  - name: a\n"
     "    limit: x\n"
     "    window: y\n"
     "    shadow: z\n"
     "  - nam: b\n"
     "  - name: c\n"
     "    limit: 1\n"
     "    window: 1s\n"
     "    color: red\n",
     "1:24: client_ip is found through the proxies you trust, since clients\n"
     "6:13: shadow must be true or false, not \"z\"\n"
     "5:13: such as 30s or 1h, not \"y\" -> 1y\n"
     "4:12: limit is a number of 0 or more, unlimited, or a map of tiers,\n"
     "7:5: a rule has no field \"nam\" -> name\n"
     "11:5: a rule has no field \"color\""},
};

TEST(bad_rules_are_reported_with_their_positions)
{
    static struct diags diags;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weir_rules *set = compile(&diags, bad[i].yaml);
        bool good = diags_are(&diags, WEIR_IS_ERROR, bad[i].expected);
        if (!good || set)
            printf("  in:\n%s", bad[i].yaml);
        CHECK(good);
        CHECK(!set);
        weir_rules_free(set);
    }
}

TEST(duplicates_across_files_show_both_positions)
{
    static struct diags diags;
    const char *texts[] = {"identity: { user_id: header:X }\nallow: { keys: [a] }\nresponse: {}\n"
                           "rules: [{ name: a, limit: 1, window: 1s }]\n",
                           "allow: { keys: [b] }\nidentity: {}\n"
                           "block: {}\nrules: [{ name: a, limit: 2, window: 1s }]\n",
                           "block: {}\nrules: [{ name: a, limit: 1, window: 1s, shadow: true }]\nresponse: {}\n"};
    weir_rules *set = compile_all(&diags, texts, 3);
    CHECK(!set);
    CHECK(diags_are(&diags, WEIR_IS_ERROR,
                    "2:1: identity is given a second time; the first is at f0:1\n"
                    "3:1: response is given a second time; the first is at f0:3\n"
                    "1:1: allow is given a second time; the first is at f0:2\n"
                    "4:9: the name \"a\" is taken by the rule at f0:4\n"
                    "1:1: block is given a second time; the first is at f1:3"));
    CHECK(diags.count > 0 && strcmp(diags.all[0].file, "f1") == 0);
    weir_rules_free(set);
}

TEST(errors_of_all_files_are_reported)
{
    static struct diags diags;
    const char *texts[] = {"rules: [{ name: a, limit: x, window: 1s }]\n", "\trules: []\n", "rules: 5\n"};
    weir_rules *set = compile_all(&diags, texts, 3);
    CHECK(!set);
    CHECK_EQ(diags.report.errors, 3);
    weir_rules_free(set);
}

/* The number of errors reported is bounded, and so is the memory for them. */
TEST(number_of_reported_errors_is_bounded)
{
    static struct diags diags;
    static char text[200000];
    size_t len = (size_t)snprintf(text, sizeof text, "rules:\n");
    for (int i = 0; i < 2000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "  - { name: r%d, limit: x, window: y, burst: z }\n", i);
    weir_rules *set = compile(&diags, text);
    CHECK(!set);
    CHECK(diags.report.errors > WEIR__ERRORS_MAX);
    CHECK_EQ(diags.count, WEIR__ERRORS_MAX + 1);
    weir_rules_free(set);
}

/* A text that is too long for a response, and one that just fits. */
TEST(response_text_is_bounded)
{
    static struct diags diags;
    static char text[WEIR__RESPONSE_TEXT_MAX + 200];
    for (int more = 0; more < 2; more++) {
        int len = snprintf(text, sizeof text, RULE "    response: { message: ");
        memset(text + len, 'm', (size_t)WEIR__RESPONSE_TEXT_MAX + (size_t)more);
        snprintf(text + len + WEIR__RESPONSE_TEXT_MAX + more, 4, " }\n");
        weir_rules *set = compile(&diags, text);
        CHECK_EQ(set != NULL, !more);
        CHECK(diags_are(&diags, WEIR_IS_ERROR, more ? "5:26: message is longer than 8192 bytes" : ""));
        weir_rules_free(set);
    }
}

/* More rules than a set may have: reported once. */
TEST(too_many_rules_are_reported_once)
{
    static struct diags diags;
    size_t size = (size_t)48 * (WEIR__RULES_MAX + 3), len = 0;
    char *text = malloc(size);
    CHECK(text != NULL);
    if (!text)
        return;
    len += (size_t)snprintf(text, size, "rules:\n");
    for (int i = 0; i < WEIR__RULES_MAX + 2; i++)
        len += (size_t)snprintf(text + len, size - len, "- {name: r%d, limit: 0}\n", i);
    weir_rules *set = compile(&diags, text);
    CHECK(!set);
    CHECK(diags_are(&diags, WEIR_IS_ERROR, "65538:3: more than 65536 rules in one set"));
    weir_rules_free(set);
    free(text);
}

TEST_MAIN
