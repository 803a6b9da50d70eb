/* weir's native dialect: what valid rules compile to. */
#include "algo/algo.h"
#include "base/buffer.h"

#include "compiled.h"

#define TEXT_IS(text, expected) CHECK(weir__text_is(text, expected))

static struct diags diags;

/* One rule with these lines; the compiled set is in `set`. */
static const struct weir__rule *one(const char *lines, weir_rules **set)
{
    static char yaml[4096];
    snprintf(yaml, sizeof yaml, "rules:\n  - name: a\n%s", lines);
    *set = compile(&diags, yaml);
    CHECK(*set != NULL);
    if (!*set) {
        CHECK(diags_are(&diags, WEIR_IS_ERROR, ""));
        return NULL;
    }
    return (*set)->rules[0];
}

#define LIMITED "    limit: 7\n    window: 1m\n"

TEST(defaults)
{
    weir_rules *set;
    const struct weir__rule *rule = one(LIMITED, &set);
    if (!rule)
        return;
    TEXT_IS(rule->name, "a");
    TEXT_IS(rule->base, "a");
    CHECK_EQ(rule->domain.len, 0);
    CHECK_EQ(rule->place.line, 2);
    CHECK_EQ(rule->place.column, 5);
    CHECK_EQ(rule->index, 0);
    CHECK(!rule->shadow);
    CHECK(rule->id == weir__rule_id(rule->name, false));
    CHECK_EQ(rule->match->entry_count, 1);
    CHECK(!rule->match->entries[0].host && !rule->match->entries[0].path);
    CHECK_EQ(rule->match->condition_count, 0);
    CHECK_EQ(rule->match->methods, WEIR__METHOD_ANY);
    CHECK(!rule->match->networks);
    CHECK_EQ(rule->key.piece_count, 0);
    CHECK_EQ(rule->tier, -1);
    CHECK_EQ(rule->quota_count, 1);
    CHECK(rule->has_default);
    const struct weir__quota *quota = rule->quotas;
    CHECK_EQ(quota->kind, WEIR__LIMITED);
    CHECK_EQ(quota->units, 7);
    CHECK_EQ(quota->window_ns, 60 * WEIR_SECOND);
    CHECK_EQ(quota->limit.algorithm, WEIR_TOKEN_BUCKET);
    CHECK_EQ(quota->limit.limit, 7);
    CHECK_EQ(quota->limit.hard, 7);
    CHECK_EQ(quota->limit.cap, 7);
    CHECK_EQ(rule->cost.fallback, 1);
    CHECK_EQ(rule->cost.attribute, -1);
    CHECK_EQ(rule->cost.path_count, 0);
    CHECK_EQ(rule->on_missing, WEIR__MISSING_SKIP);
    CHECK_EQ(rule->on_limit, WEIR_ON_LIMIT_REJECT);
    CHECK_EQ(rule->consistency, WEIR__LOCAL);
    CHECK(!rule->consistency_given);
    CHECK_EQ(rule->on_failure, WEIR__FAIL_LOCAL);
    CHECK_EQ(rule->report_priority, 0);
    CHECK_EQ(rule->response.status, 429);
    CHECK_EQ(rule->response.headers, 7);
    CHECK_EQ(rule->response.body, WEIR_BODY_AUTO);
    CHECK_EQ(rule->response.message.len + rule->response.body_text.len, 0);
    CHECK_EQ(diags.count, 0);
    weir_rules_free(set);
}

/* Counters on disk are found by the rule's id: these numbers must never change. */
TEST(an_empty_list_is_a_set_without_rules)
{
    weir_rules *set = compile(&diags, "rules: []\n");
    CHECK(set != NULL);
    CHECK(diags_are(&diags, WEIR_IS_WARNING, "1:8: there are no rules: everything passes"));
    CHECK_EQ(set ? set->count : 1, 0);
    weir_rules_free(set);
}

TEST(rule_ids_never_change)
{
    CHECK(weir__rule_id(WEIR__TEXT("login"), false) == UINT64_C(0x4633ef546e32c77c));
    CHECK(weir__rule_id(WEIR__TEXT("login"), true) == UINT64_C(0x7d8019130ba70083));
    CHECK(weir__rule_id((weir_text){"", 0}, false) == UINT64_C(0x2d06800538d394c2));
}

TEST(windows_and_algorithms)
{
    static const struct {
        const char *lines;
        int64_t window_ns;
        enum weir_algorithm algorithm;
        enum weir_align align;
        int64_t hard, cap, units;
    } good[] = {
        {"    limit: 3\n    window: 90\n", 90 * WEIR_SECOND, WEIR_TOKEN_BUCKET, 0, 3, 3, 3},
        {"    limit: 3\n    window: 500ms\n", WEIR_SECOND / 2, WEIR_TOKEN_BUCKET, 0, 3, 3, 3},
        {"    limit: 10\n    window: 1h\n    burst: 50\n    soft: 10%\n", 3600 * WEIR_SECOND, WEIR_TOKEN_BUCKET, 0, 50,
         55, 10},
        {"    limit: 10\n    window: 1mo\n", 30 * WEIR_DAY, WEIR_TOKEN_BUCKET, 0, 10, 10, 10},
        {"    limit: 10\n    window: 1y\n    algorithm: sliding_window_log\n", 365 * WEIR_DAY, WEIR_SLIDING_WINDOW_LOG,
         0, 10, 10, 10},
        {"    limit: 10\n    window: 1d\n    algorithm: fixed_window\n", WEIR_DAY, WEIR_FIXED_WINDOW,
         WEIR_ALIGN_CALENDAR, 10, 10, 10},
        {"    limit: 10\n    window: 1w\n    algorithm: fixed_window\n    align: clock\n", 7 * WEIR_DAY,
         WEIR_FIXED_WINDOW, WEIR_ALIGN_CALENDAR, 10, 10, 10},
        {"    limit: 10\n    window: 1mo\n    algorithm: fixed_window\n    timezone: Europe/Berlin\n", 31 * WEIR_DAY,
         WEIR_FIXED_WINDOW, WEIR_ALIGN_CALENDAR, 10, 10, 10},
        {"    limit: 10\n    window: 1y\n    algorithm: fixed_window\n", 366 * WEIR_DAY, WEIR_FIXED_WINDOW,
         WEIR_ALIGN_CALENDAR, 10, 10, 10},
        {"    limit: 10\n    window: 2d\n    algorithm: fixed_window\n", 2 * WEIR_DAY, WEIR_FIXED_WINDOW,
         WEIR_ALIGN_CLOCK, 10, 10, 10},
        {"    limit: 10\n    window: 1d\n    algorithm: fixed_window\n    align: first_request\n", WEIR_DAY,
         WEIR_FIXED_WINDOW, WEIR_ALIGN_FIRST_REQUEST, 10, 10, 10},
        {"    limit: 10\n    window: 1m\n    algorithm: sliding_window_counter\n    buckets: 6\n", 60 * WEIR_SECOND,
         WEIR_SLIDING_WINDOW_COUNTER, 0, 10, 10, 10},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weir_rules *set;
        const struct weir__rule *rule = one(good[i].lines, &set);
        if (!rule)
            continue;
        const struct weir__quota *quota = rule->quotas;
        CHECK_EQ(quota->window_ns, good[i].window_ns);
        CHECK_EQ(quota->limit.algorithm, good[i].algorithm);
        CHECK_EQ(quota->limit.align, good[i].align);
        CHECK_EQ(quota->limit.hard, good[i].hard);
        CHECK_EQ(quota->limit.cap, good[i].cap);
        CHECK_EQ(quota->units, good[i].units);
        weir_rule_info info;
        weir_rules_info(set, 0, &info);
        CHECK_EQ(info.window_ns, good[i].align == WEIR_ALIGN_CALENDAR ? 0 : good[i].window_ns);
        CHECK_EQ(info.limit, good[i].units);
        CHECK_EQ(info.algorithm, good[i].algorithm);
        weir_rules_free(set);
    }
}

/* Parameters reach the limit. */
TEST(parameters)
{
    weir_rules *set;
    const struct weir__rule *rule = one(LIMITED "    refill: interval\n", &set);
    CHECK(rule && rule->quotas->limit.refill == WEIR_REFILL_INTERVAL);
    weir_rules_free(set);
    rule = one(LIMITED "    algorithm: sliding_window_log\n    count_rejected: true\n", &set);
    CHECK(rule && rule->quotas->limit.count_rejected && rule->count_rejected);
    weir_rules_free(set);
    rule = one(LIMITED "    algorithm: sliding_window_counter\n    round: up\n", &set);
    CHECK(rule && rule->quotas->limit.round_up && !rule->count_rejected);
    weir_rules_free(set);
    rule = one(LIMITED "    algorithm: leaky_bucket\n    burst: 20\n    on_limit: delay\n    max_delay: 2s\n", &set);
    CHECK(rule && rule->quotas->limit.delay && rule->quotas->limit.max_delay_us == 2000000 &&
          rule->on_limit == WEIR_ON_LIMIT_DELAY && rule->quotas->limit.hard == 20);
    weir_rules_free(set);
}

TEST(overload)
{
    weir_rules *set;
    const struct weir__rule *rule = one(LIMITED, &set);
    CHECK(rule && !weir__overload_is_scaled(&rule->overload) && !rule->overload.has_class && !rule->overload.reserve &&
          !rule->quotas->ceiling && !set->load_aware);
    weir_rules_free(set);
    rule = one(LIMITED "    elastic: { up_to: 250% }\n    adaptive: { min: 10%, max: 40% }\n    priority: low\n", &set);
    if (!rule)
        return;
    CHECK(set->load_aware);
    CHECK(rule->overload.has_class && rule->overload.class == WEIR_LOW);
    CHECK_EQ(rule->report_priority, 0);
    CHECK_EQ(rule->overload.up_to, 250);
    CHECK_EQ(rule->overload.below, 70);
    CHECK_EQ(rule->overload.min, 10);
    CHECK_EQ(rule->overload.max, 40);
    CHECK_EQ(rule->quotas->limit.limit, 7);
    CHECK_EQ(rule->quotas->ceiling->limit, 7);
    CHECK_EQ(rule->quotas->limit.most, 7);
    weir_rules_free(set);
    /* For every limit of a list, and every tier; other quotas stay as they are. */
    set = compile(&diags, "rules:\n  - name: a\n    reserve: 20%\n    elastic: { up_to: 300%, while: 50% }\n"
                          "    algorithm: fixed_window\n    limits:\n"
                          "      - { limit: { pro: 20, free: unlimited, default: 0 }, window: 1m }\n"
                          "      - { limit: 100, window: 1h, soft: 50% }\n");
    CHECK(set && set->count == 2);
    if (!set)
        return;
    CHECK_EQ(set->rules[0]->quotas[0].ceiling != NULL, false);
    for (size_t i = 0; i < set->rules[0]->quota_count; i++) {
        const struct weir__quota *quota = &set->rules[0]->quotas[i];
        CHECK_EQ(quota->ceiling ? quota->ceiling->cap : 0, quota->kind == WEIR__LIMITED ? 60 : 0);
    }
    CHECK_EQ(set->rules[1]->quotas->ceiling->cap, 450);
    CHECK_EQ(set->rules[1]->overload.reserve, 20);
    weir_rules_free(set);
}

/* The scaling function, at its corners and between them. */
TEST(overload_scales_limits)
{
    struct weir__overload_policy p = {.up_to = 200, .below = 70},
                                 both = {.min = 20, .max = 100, .up_to = 200, .below = 70};
    const int64_t one_is = INT64_C(1000000000);
    CHECK_EQ(weir__overload_scale(&p, 0, 1000), 2 * one_is);
    CHECK_EQ(weir__overload_scale(&p, 600, 0), 2 * one_is); /* not adaptive: throttling does not apply to it */
    CHECK_EQ(weir__overload_scale(&p, 650, 1000), one_is * 3 / 2);
    CHECK_EQ(weir__overload_scale(&p, 700, 1000), one_is);
    CHECK_EQ(weir__overload_scale(&p, UINT32_MAX, 1000), one_is);
    CHECK_EQ(weir__overload_scale(&both, 0, 1000), 2 * one_is);
    CHECK_EQ(weir__overload_scale(&both, 0, 500), one_is * 60 / 100);
    CHECK_EQ(weir__overload_scale(&both, 0, 0), one_is / 5);
    CHECK_EQ(weir__overload_scale(&both, 0, UINT32_MAX), 2 * one_is); /* a damaged page */
    p = (struct weir__overload_policy){.min = 1, .max = 1000, .up_to = 1000, .below = 100};
    CHECK_EQ(weir__overload_scale(&p, 0, 1000), 100 * one_is);
    p = (struct weir__overload_policy){0};
    CHECK_EQ(weir__overload_scale(&p, 0, 0), one_is);
}

TEST(policy_and_response)
{
    weir_rules *set;
    const struct weir__rule *rule = one(
        LIMITED "    on_missing_key: share\n    on_limit: queue\n    consistency: strict\n"
                "    queue: { max: 1000, max_bytes: 64MiB, max_age: 1h }\n"
                "    on_store_failure: closed\n    report_priority: -5\n    key: u:${user_id}\n"
                "    response: { status: 503, headers: [draft], reset: delta, body: { text: Sorry }, message: No }\n"
                "    allow: { networks: 192.0.2.0/24, keys: ['u:1', 'u:7*'] }\n    block: { keys: 'u:666' }\n",
        &set);
    if (!rule)
        return;
    CHECK_EQ(rule->on_missing, WEIR__MISSING_SHARE);
    CHECK_EQ(rule->on_limit, WEIR_ON_LIMIT_QUEUE);
    CHECK_EQ(rule->queue.max, 1000);
    CHECK_EQ(rule->queue.max_bytes, 64 << 20);
    CHECK_EQ(rule->queue.max_age_ms, 3600000);
    CHECK_EQ(rule->consistency, WEIR__STRICT);
    CHECK(rule->consistency_given);
    CHECK_EQ(rule->on_failure, WEIR__FAIL_CLOSED);
    CHECK_EQ(rule->report_priority, -5);
    TEXT_IS(rule->key.source, "u:${user_id}");
    CHECK_EQ(rule->response.status, 503);
    CHECK_EQ(rule->response.headers, WEIR_HEADERS_DRAFT | WEIR_HEADERS_RESET_DELTA);
    CHECK_EQ(rule->response.body, WEIR_BODY_TEXT);
    TEXT_IS(rule->response.body_text, "Sorry");
    TEXT_IS(rule->response.message, "No");
    struct weir__address inside, outside;
    CHECK(weir__address_parse(WEIR__TEXT("192.0.2.9"), &inside) && weir__address_parse(WEIR__TEXT("::1"), &outside));
    CHECK(weir__networks_contain(rule->allow.networks, &inside));
    CHECK(!weir__networks_contain(rule->allow.networks, &outside));
    CHECK(!rule->block.networks);
    CHECK(weir__list_has_key(&rule->allow, WEIR__TEXT("u:1"), true));
    CHECK(weir__list_has_key(&rule->allow, WEIR__TEXT("u:70"), true));
    CHECK(!weir__list_has_key(&rule->allow, WEIR__TEXT("u:10"), true));
    CHECK(weir__list_has_key(&rule->block, WEIR__TEXT("u:666"), true));
    CHECK(!weir__list_has_key(&rule->block, WEIR__TEXT("u:1"), true));
    weir_rules_free(set);
}

TEST(response_without_headers)
{
    weir_rules *set;
    const struct weir__rule *rule = one(LIMITED "    response: { headers: [], body: none }\n", &set);
    CHECK(rule && rule->response.headers == 0 && rule->response.body == WEIR_BODY_NONE && rule->response.status == 429);
    weir_rules_free(set);
}

/* In another file, whose name sorts after the rules: it is read before any of them. */
TEST(a_response_for_all_rules)
{
    const char *texts[] = {"rules:\n"
                           "  - { name: all, limit: 1, window: 1s }\n"
                           "  - { name: some, limit: 1, window: 1s,\n"
                           "      response: { headers: [draft], body: json, status: 400 } }\n"
                           "  - { name: reset, limit: 1, window: 1s, response: { reset: epoch, message: '' } }\n"
                           "  - { name: own, limit: 1, window: 1s, response: { body: { text: Mine } } }\n",
                           "response: { status: 503, headers: [], reset: delta, body: { text: Sorry }, message: No }\n",
                           "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 5 } }]\n"};
    weir_rules *set = compile_all(&diags, texts, 3);
    CHECK(set && set->count == 5);
    if (!set || set->count != 5)
        return;
    const struct weir__response *all = &set->rules[0]->response, *some = &set->rules[1]->response;
    const struct weir__response *reset = &set->rules[2]->response, *own = &set->rules[3]->response;
    CHECK_EQ(all->status, 503);
    CHECK_EQ(all->headers, WEIR_HEADERS_RESET_DELTA);
    CHECK_EQ(all->body, WEIR_BODY_TEXT);
    TEXT_IS(all->body_text, "Sorry");
    TEXT_IS(all->message, "No");
    CHECK_EQ(some->status, 400);
    CHECK_EQ(some->headers, WEIR_HEADERS_DRAFT | WEIR_HEADERS_RESET_DELTA);
    CHECK_EQ(some->body, WEIR_BODY_JSON);
    CHECK_EQ(some->body_text.len, 0);
    TEXT_IS(some->message, "No");
    CHECK_EQ(reset->status, 503);
    CHECK_EQ(reset->headers, 0);
    CHECK_EQ(reset->message.len, 0);
    TEXT_IS(reset->body_text, "Sorry");
    CHECK_EQ(own->headers, WEIR_HEADERS_RESET_DELTA);
    TEXT_IS(own->body_text, "Mine");
    CHECK_EQ(set->rules[4]->response.status, 429); /* not applied to descriptors */
    CHECK_EQ(set->rules[4]->response.headers, 7);
    weir_rules_free(set);
}

TEST(deny_all_and_unlimited)
{
    weir_rules *set;
    const struct weir__rule *rule = one("    limit: 0\n", &set);
    CHECK(rule && rule->quotas->kind == WEIR__BANNED);
    weir_rules_free(set);
    rule = one("    limit: unlimited\n    window: 1h\n", &set);
    CHECK(rule && rule->quotas->kind == WEIR__UNLIMITED);
    weir_rule_info info;
    weir_rules_info(set, 0, &info);
    CHECK_EQ(info.limit, -1);
    weir_rules_free(set);
}

TEST(tiers)
{
    weir_rules *set;
    const struct weir__rule *rule =
        one("    limit: { pro: 1000, enterprise: unlimited, free: 10, banned: 0, default: 5 }\n    window: 1h\n", &set);
    if (!rule)
        return;
    CHECK_EQ(rule->quota_count, 5);
    CHECK(rule->has_default && rule->tier >= 0);
    CHECK_EQ(rule->quotas[0].tier.len, 0);
    static const struct {
        const char *tier;
        enum weir__limit_kind kind;
        int64_t units;
    } expected[] = {{"pro", WEIR__LIMITED, 1000}, {"enterprise", WEIR__UNLIMITED, 0}, {"free", WEIR__LIMITED, 10},
                    {"banned", WEIR__BANNED, 0},  {"default", WEIR__LIMITED, 5},      {"", WEIR__LIMITED, 5},
                    {"prox", WEIR__LIMITED, 5}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        weir_attribute about = {WEIR_ATTR_NAMED, "tier", expected[i].tier};
        weir_query query = {.attributes = &about, .attribute_count = 1};
        static struct weir__values values;
        weir__values_begin(&values, &set->attributes, &query);
        const struct weir__quota *quota = weir__rule_quota(rule, &values);
        CHECK(quota && quota->kind == expected[i].kind && quota->units == expected[i].units);
        if (quota && quota->kind == WEIR__LIMITED)
            CHECK_EQ(quota->limit.limit, expected[i].units);
        /* An upgrade of the tier keeps the consumed units. */
        CHECK(!quota || quota->kind != WEIR__LIMITED || quota->limit.salt == rule->quotas[0].limit.salt);
    }
    weir_rule_info info;
    weir_rules_info(set, 0, &info);
    CHECK(info.by_tier && info.limit == 5);
    weir_rules_free(set);

    rule = one("    limit: { pro: 1000 }\n    window: 1h\n    tier: header:X-Plan\n", &set);
    weir_query nothing = {.attribute_count = 0};
    static struct weir__values values;
    weir__values_begin(&values, &set->attributes, &nothing);
    CHECK(rule && !rule->has_default && weir__rule_quota(rule, &values) == NULL);
    weir_rules_free(set);
}

TEST(lists_of_limits)
{
    weir_rules *set;
    const struct weir__rule *rule =
        one("    key: k\n    algorithm: fixed_window\n    limits:\n"
            "      - { limit: 500, window: 1h }\n"
            "      - { limit: 10, window: 60, name: minute, algorithm: token_bucket, burst: 5 }\n"
            "      - { limit: { pro: 2000, default: 1000 }, window: 1d, soft: 5% }\n",
            &set);
    if (!rule)
        return;
    CHECK_EQ(set->count, 3);
    CHECK_EQ(set->own_count, 3);
    TEXT_IS(set->rules[0]->name, "a/1h");
    TEXT_IS(set->rules[1]->name, "a/minute");
    TEXT_IS(set->rules[2]->name, "a/1d");
    for (size_t i = 0; i < set->count; i++) {
        TEXT_IS(set->rules[i]->base, "a");
        TEXT_IS(set->rules[i]->key.source, "k");
        CHECK(set->rules[i]->match == set->rules[0]->match);
        CHECK_EQ(set->rules[i]->index, i);
        CHECK_EQ(set->rules[i]->place.line, 6 + i);
    }
    CHECK_EQ(set->rules[0]->quotas->limit.algorithm, WEIR_FIXED_WINDOW);
    CHECK_EQ(set->rules[1]->quotas->limit.algorithm, WEIR_TOKEN_BUCKET);
    CHECK_EQ(set->rules[1]->quotas->limit.hard, 5);
    CHECK_EQ(set->rules[1]->tier, -1);
    CHECK_EQ(set->rules[2]->quotas->limit.cap, 1050);
    CHECK(set->rules[2]->tier >= 0);
    CHECK(set->rules[0]->id != set->rules[1]->id);
    weir_rules_free(set);
}

TEST(shadow_and_enforced_rule_of_one_name)
{
    weir_rules *set = compile(&diags, "rules:\n  - { name: a, limit: 5, window: 1s }\n"
                                      "  - { name: a, limit: 3, window: 1s, shadow: true }\n");
    CHECK(set && set->count == 2 && set->rules[1]->shadow && set->rules[0]->id != set->rules[1]->id);
    weir_rules_free(set);
}

/* `identity` applies to the rules of all files, whatever their order. */
TEST(identity_of_a_later_file)
{
    const char *texts[] = {
        "rules:\n  - { name: a, match: { account: 'x*' }, key: '${account}', limit: 5, window: 1s }\n",
        "identity:\n  account: cookie:acc\n  client_ip: { trusted_proxies: [10.0.0.0/8, '::1'], ipv4_prefix: 24, "
        "ipv6_prefix: 48, header: forwarded }\n"};
    weir_rules *set = compile_all(&diags, texts, 2);
    CHECK(set != NULL);
    if (!set)
        return;
    CHECK_EQ(diags.count, 0);
    CHECK_EQ(set->attributes.identity.ipv4_prefix, 24);
    CHECK_EQ(set->attributes.identity.ipv6_prefix, 48);
    CHECK_EQ(set->attributes.identity.forwarded_header, WEIR__FORWARDED_STANDARD);
    CHECK(set->attributes.identity.trusted != NULL);
    int account = set->rules[0]->match->conditions[0].attribute;
    TEXT_IS(set->attributes.list[account].name, "account");
    CHECK_EQ(set->attributes.list[set->attributes.list[account].source].kind, WEIR__ATTR_COOKIE);
    CHECK(strcmp(set->source_names[0], "f0") == 0 && strcmp(set->source_names[1], "f1") == 0);
    weir_rules_free(set);
}

TEST(file_with_only_lists_is_valid)
{
    weir_rules *set = compile(&diags, "block: { networks: [192.0.2.0/24] }\n");
    CHECK(set && set->count == 0 && set->block.networks);
    weir_rules_free(set);
}

TEST(both_dialects_in_one_set)
{
    const char *texts[] = {"rules:\n  - { name: a, limit: 5, window: 1s }\n",
                           "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, requests_per_unit: 5 }\n",
                           "rules:\n  - { name: b, limit: 5, window: 2s }\n"};
    weir_rules *set = compile_all(&diags, texts, 3);
    CHECK(set && set->count == 3 && set->own_count == 2 && set->domains);
    CHECK_EQ(weir_rules_count(set), 3);
    for (size_t i = 0; set && i < set->count; i++) {
        weir_rule_info info;
        weir_rules_info(set, i, &info);
        CHECK_EQ(info.domain != NULL, i == 1);
        CHECK(info.name && info.key && info.file[0] == 'f' && info.file[1] == (char)('0' + i));
    }
    weir_rules_free(set);
}

TEST(bytes_per_key)
{
    static const struct {
        const char *lines;
        int64_t bytes;
    } cases[] = {
        /* Slots at 90 % of the 119/128 of a segment that they have. */
        {LIMITED, 20},
        {LIMITED "    algorithm: leaky_bucket\n", 20},
        {LIMITED "    algorithm: fixed_window\n", 20},
        {LIMITED "    algorithm: sliding_window_counter\n", 20},
        {"    limit: 40000\n    window: 1m\n    algorithm: sliding_window_counter\n", 39},
        /* Chunks at 90 % of a sixteenth. */
        {"    limit: 4\n    window: 1m\n    algorithm: sliding_window_log\n", 36 * 16 * 10 / 9},     /* one chunk */
        {"    limit: 5\n    window: 1m\n    algorithm: sliding_window_log\n", 2 * 36 * 16 * 10 / 9}, /* two chunks */
        {"    limit: { pro: 5, default: 1 }\n    window: 1m\n    algorithm: sliding_window_log\n",
         2 * 36 * 16 * 10 / 9},
        {"    limit: { pro: 5, default: 0 }\n    window: 1m\n    algorithm: sliding_window_log\n",
         2 * 36 * 16 * 10 / 9},
        {"    limit: { pro: 0, default: unlimited }\n", 0},
        {"    limit: 0\n", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_rules *set;
        weir_rule_info info = {.name = NULL};
        if (one(cases[i].lines, &set))
            weir_rules_info(set, 0, &info);
        CHECK_EQ(info.bytes_per_key, cases[i].bytes);
        if (strstr(cases[i].lines, "_log"))
            CHECK_EQ(info.algorithm, WEIR_SLIDING_WINDOW_LOG);
        weir_rules_free(set);
    }
}

/* ---- Over which hosts rules count ---- */

TEST(consistency_by_algorithm_unless_it_is_set)
{
    static const struct {
        const char *lines;
        enum weir__consistency by_algorithm, with_eventual, with_local, with_leased;
    } cases[] = {
        {LIMITED, WEIR__EVENTUAL, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__LEASED},
        {LIMITED "    algorithm: leaky_bucket\n", WEIR__EVENTUAL, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__LEASED},
        {LIMITED "    algorithm: fixed_window\n", WEIR__STRICT, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__LEASED},
        {LIMITED "    algorithm: sliding_window_counter\n", WEIR__STRICT, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__LEASED},
        {LIMITED "    algorithm: sliding_window_log\n", WEIR__STRICT, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__STRICT},
        {"    limit: 7\n    algorithm: concurrency\n", WEIR__STRICT, WEIR__STRICT, WEIR__LOCAL, WEIR__STRICT},
        {"    limit: { pro: 5, default: 0 }\n    window: 1m\n    algorithm: fixed_window\n", WEIR__STRICT,
         WEIR__EVENTUAL, WEIR__LOCAL, WEIR__LEASED},
        {"    limit: { pro: 0, default: unlimited }\n", WEIR__LOCAL, WEIR__LOCAL, WEIR__LOCAL, WEIR__LOCAL},
        {"    limit: 0\n    consistency: strict\n", WEIR__LOCAL, WEIR__LOCAL, WEIR__LOCAL, WEIR__LOCAL},
        {LIMITED "    algorithm: fixed_window\n    consistency: local\n", WEIR__LOCAL, WEIR__LOCAL, WEIR__LOCAL,
         WEIR__LOCAL},
        {LIMITED "    algorithm: fixed_window\n    consistency: eventual\n", WEIR__EVENTUAL, WEIR__EVENTUAL,
         WEIR__EVENTUAL, WEIR__EVENTUAL},
        {LIMITED "    consistency: strict\n", WEIR__STRICT, WEIR__STRICT, WEIR__STRICT, WEIR__STRICT},
        {LIMITED "    consistency: leased\n", WEIR__LEASED, WEIR__LEASED, WEIR__LEASED, WEIR__LEASED},
        {LIMITED "    algorithm: leaky_bucket\n    on_limit: delay\n", WEIR__EVENTUAL, WEIR__EVENTUAL, WEIR__LOCAL,
         WEIR__STRICT},
        {LIMITED "    adaptive: { min: 50% }\n", WEIR__EVENTUAL, WEIR__EVENTUAL, WEIR__LOCAL, WEIR__STRICT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_rules *set;
        const struct weir__rule *rule = one(cases[i].lines, &set);
        if (!rule)
            continue;
        CHECK_EQ(weir__rule_consistency(rule, WEIR__PER_ALGORITHM), cases[i].by_algorithm);
        CHECK_EQ(weir__rule_consistency(rule, WEIR__EVENTUAL), cases[i].with_eventual);
        CHECK_EQ(weir__rule_consistency(rule, WEIR__LOCAL), cases[i].with_local);
        CHECK_EQ(weir__rule_consistency(rule, WEIR__LEASED), cases[i].with_leased);
        weir_rules_free(set);
    }
}

TEST(hosts_of_rules_as_text)
{
    static const char *const texts[] = {"rules:\n"
                                        "  - { name: bucket, limit: 7, window: 1m }\n"
                                        "  - { name: log, limit: 7, window: 1m, algorithm: sliding_window_log }\n"
                                        "  - { name: here, limit: 7, window: 1m, consistency: local }\n"
                                        "  - { name: log, limit: 7, window: 1m, consistency: strict, shadow: true }\n"
                                        "  - { name: gone, match: { path: /old }, limit: 0 }\n",
                                        "domain: d\n"
                                        "descriptors:\n"
                                        "  - { key: \"a\\eb\", rate_limit: { unit: day, requests_per_unit: 5 } }\n"};
    weir_rules *set = compile_all(&diags, texts, 2);
    struct weir__buffer lines = {0};
    CHECK(set != NULL);
    if (!set)
        return;
    weir__rules_hosts(set, WEIR__PER_ALGORITHM, 50000, SIZE_MAX, &lines);
    CHECK(strcmp(lines.data, "counts over all hosts, exact: log, log (shadow), d.a%1Bb\n"
                             "counts over all hosts, exchanged every 50 ms: bucket\n"
                             "counts on each host: here\n") == 0);
    lines.len = 0;
    weir__rules_hosts(set, WEIR__LOCAL, 50000, 4, &lines);
    CHECK(strcmp(lines.data, "counts over all hosts, exact: log (shadow)\n"
                             "counts on each host: bucket and 3 more\n") == 0);
    weir__buffer_free(&lines);
    weir_rules_free(set);
}

TEST_MAIN
