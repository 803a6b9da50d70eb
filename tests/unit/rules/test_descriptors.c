/*
 * The descriptor dialect: the cases of its documentation, in other words. Invalid input is in test_descriptors_bad.c.
 */
#include "descriptors.h"

/* ---- which limit applies ---- */

TEST(nested_descriptors_and_bare_keys)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled, "domain: letters\n"
                         "descriptors:\n"
                         "  - key: kind\n"
                         "    value: advert\n"
                         "    descriptors:\n"
                         "      - key: to\n"
                         "        rate_limit: { unit: day, requests_per_unit: 5 }\n"
                         "  - key: to\n"
                         "    rate_limit: { unit: day, requests_per_unit: 100 }\n");
    CHECK_EQ(units_of(compiled.set, "letters", "kind=advert,to=anna"), 5);
    CHECK_EQ(units_of(compiled.set, "letters", "to=anna"), 100);
    CHECK_EQ(units_of(compiled.set, "letters", "to="), 100);
    /* A descriptor without rate_limit limits nothing, nor does another value, order, depth or domain. */
    CHECK_EQ(units_of(compiled.set, "letters", "kind=advert"), -1);
    CHECK_EQ(units_of(compiled.set, "letters", "kind=bill,to=anna"), -1);
    CHECK_EQ(units_of(compiled.set, "letters", "to=anna,kind=advert"), -1);
    CHECK_EQ(units_of(compiled.set, "letters", "kind=advert,to=anna,at=noon"), -1);
    CHECK_EQ(units_of(compiled.set, "letters", ""), -1);
    CHECK_EQ(units_of(compiled.set, "letter", "to=anna"), -1);
    CHECK_EQ(units_of(compiled.set, "", "to=anna"), -1);

    /* Each value of a bare key has its own counter, under the rule's one name. */
    const struct weir__rule *rule = look_up(&lookup, compiled.set, "letters", "kind=advert,to=anna");
    CHECK(text_is(rule->name, "letters.kind_advert.to"));
    CHECK(text_is(rule->domain, "letters"));
    CHECK_EQ(rule->place.line, 6);
    CHECK(text_is(text_of(lookup.key), "letters:kind=advert,to=anna"));
    CHECK(look_up(&lookup, compiled.set, "letters", "kind=advert,to=bert") == rule);
    CHECK(text_is(text_of(lookup.key), "letters:kind=advert,to=bert"));
    CHECK_EQ(lookup.hit.quota->kind, WEIR__LIMITED);
    CHECK_EQ(lookup.hit.quota->limit.algorithm, WEIR_FIXED_WINDOW);
    CHECK_EQ(lookup.hit.quota->limit.align, WEIR_ALIGN_CLOCK);
    CHECK_EQ(lookup.hit.quota->window_ns, WEIR_DAY);
    CHECK(weir__domain_known(compiled.set, text_of("letters")));
    CHECK(!weir__domain_known(compiled.set, text_of("letter")));
    unload(&compiled);
}

TEST(domains_and_native_rules_in_one_set)
{
    struct compiled compiled;
    load_good(&compiled, "rules: [{ name: r, limit: 1, window: 1m }]\n"
                         "domains:\n"
                         "  - domain: one\n"
                         "    descriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 2 } }]\n"
                         "  - domain: two\n");
    CHECK(weir__domain_known(compiled.set, text_of("one")));
    CHECK(weir__domain_known(compiled.set, text_of("two")));
    CHECK_EQ(compiled.set->count, 2);
    unload(&compiled);
}

TEST(exact_value_wins_over_bare_key_and_zero_denies)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled, "domain: edge\n"
                         "descriptors:\n"
                         "  - key: address\n"
                         "    rate_limit: { unit: second, requests_per_unit: 10 }\n"
                         "  - key: address\n"
                         "    value: 192.0.2.5\n"
                         "    rate_limit: { unit: second, requests_per_unit: 0 }\n");
    CHECK_EQ(units_of(compiled.set, "edge", "address=192.0.2.4"), 10);
    CHECK(look_up(&lookup, compiled.set, "edge", "address=192.0.2.5") != NULL);
    CHECK_EQ(lookup.hit.quota->kind, WEIR__BANNED);
    CHECK_EQ(lookup.hit.quota->window_ns, WEIR_SECOND);
    CHECK_EQ(lookup.hit.key_len, 0);
    unload(&compiled);
}

TEST(a_limit_applies_at_its_own_depth_only)
{
    struct compiled compiled;
    load_good(&compiled, "domain: deep\n"
                         "descriptors:\n"
                         "  - key: a\n"
                         "    value: '1'\n"
                         "    rate_limit: { unit: second, requests_per_unit: 300 }\n"
                         "    descriptors:\n"
                         "      - key: b\n"
                         "        rate_limit: { unit: second, requests_per_unit: 200 }\n");
    CHECK_EQ(units_of(compiled.set, "deep", "a=1"), 300);
    CHECK_EQ(units_of(compiled.set, "deep", "a=1,b=2"), 200);
    CHECK_EQ(units_of(compiled.set, "deep", "a=1,c=2"), -1);
    CHECK_EQ(units_of(compiled.set, "deep", "a=1,b=2,b=2"), -1);
    CHECK_EQ(units_of(compiled.set, "deep", "b=2"), -1);
    CHECK_EQ(units_of(compiled.set, "deep", "a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1"),
             -1);
    unload(&compiled);
}

TEST(lookup_never_backtracks)
{
    struct compiled compiled;
    load_good(
        &compiled,
        "domain: d\n"
        "descriptors:\n"
        "  - { key: a, value: x }\n"
        "  - { key: a, value: 'y*', descriptors: [{ key: c, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n"
        "  - { key: a, descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 2 } }] }\n");
    CHECK_EQ(units_of(compiled.set, "d", "a=z,b=1"), 2);
    CHECK_EQ(units_of(compiled.set, "d", "a=x,b=1"), -1);
    CHECK_EQ(units_of(compiled.set, "d", "a=y,b=1"), -1);
    CHECK_EQ(units_of(compiled.set, "d", "a=y,c=1"), 1);
    unload(&compiled);
}

TEST(unlimited_needs_no_unit)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled, "domain: house\n"
                         "descriptors:\n"
                         "  - key: cellar\n"
                         "    rate_limit: { unlimited: true, name: free, replaces: [{ name: kitchen }] }\n"
                         "  - key: kitchen\n"
                         "    rate_limit: { unlimited: false, unit: minute, requests_per_unit: 100, name: kitchen }\n");
    CHECK_EQ(units_of(compiled.set, "house", "cellar=1"), -2);
    CHECK_EQ(units_of(compiled.set, "house", "kitchen=1"), 100);
    const struct weir__rule *rule = look_up(&lookup, compiled.set, "house", "cellar=1");
    CHECK_EQ(lookup.hit.key_len, 0);
    CHECK_EQ(rule->replaces_count, 1);
    CHECK(text_is(rule->replaces[0], "kitchen"));
    unload(&compiled);
}

TEST(modes_names_and_metrics_are_kept)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(
        &compiled,
        "domain: modes\n"
        "descriptors:\n"
        "  - key: service\n"
        "    value_to_metric: true\n"
        "    descriptors:\n"
        "      - key: user\n"
        "        value: a\n"
        "        shadow_mode: true\n"
        "        rate_limit: { unit: second, requests_per_unit: 10, name: narrow }\n"
        "      - key: user\n"
        "        value: b\n"
        "        quota_mode: true\n"
        "        rate_limit: { unit: second, requests_per_unit: 20, replaces: [{ name: narrow }, { name: plain }] }\n"
        "  - key: plain\n"
        "    detailed_metric: true\n"
        "    rate_limit: { unit: second, requests_per_unit: 30, name: plain }\n");
    const struct weir__rule *rule = look_up(&lookup, compiled.set, "modes", "service=s,user=a");
    CHECK(rule->shadow && !rule->quota_mode && rule->value_to_metric && !rule->detailed_metric);
    CHECK(text_is(rule->limit_name, "narrow"));
    CHECK_EQ(rule->replaces_count, 0);
    CHECK_EQ((int64_t)rule->id, (int64_t)weir__rule_id(rule->name, true));

    rule = look_up(&lookup, compiled.set, "modes", "service=s,user=b");
    CHECK(!rule->shadow && rule->quota_mode && rule->value_to_metric);
    CHECK_EQ(rule->limit_name.len, 0);
    CHECK_EQ(rule->replaces_count, 2);
    CHECK(text_is(rule->replaces[0], "narrow") && text_is(rule->replaces[1], "plain"));

    rule = look_up(&lookup, compiled.set, "modes", "plain=1");
    CHECK(!rule->shadow && !rule->quota_mode && !rule->value_to_metric && rule->detailed_metric);
    CHECK_EQ(rule->cost.fallback, 1);
    CHECK_EQ(rule->cost.attribute, -1);
    CHECK_EQ(rule->response.status, 429);
    CHECK(rule->match == NULL && rule->tier == -1 && rule->has_default && rule->quota_count == 1);
    unload(&compiled);
}

/* ---- wildcards ---- */

TEST(wildcards_match_in_file_order)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled,
              "domain: wild\n"
              "descriptors:\n"
              "  - { key: k, value: 'val*', rate_limit: { unit: minute, requests_per_unit: 1 } }\n"
              "  - { key: k, value: 'v*', rate_limit: { unit: minute, requests_per_unit: 2 } }\n"
              "  - { key: k, value: 'valley', rate_limit: { unit: minute, requests_per_unit: 3 } }\n"
              "  - { key: k, rate_limit: { unit: minute, requests_per_unit: 4 } }\n"
              "  - { key: path, value: '/api/*/do', rate_limit: { unit: minute, requests_per_unit: 5 } }\n"
              "  - { key: path, value: '/api/*/part/*/do', rate_limit: { unit: minute, requests_per_unit: 6 } }\n"
              "  - { key: path, value: '*.png', rate_limit: { unit: minute, requests_per_unit: 7 } }\n"
              "  - { key: both, value: '*a*a*', rate_limit: { unit: minute, requests_per_unit: 8 } }\n"
              "  - { key: any, value: '*', rate_limit: { unit: minute, requests_per_unit: 9 } }\n");
    static const struct {
        const char *entry;
        int64_t units;
    } cases[] = {
        {"k=val", 1},
        {"k=value", 1},
        {"k=v", 2},
        {"k=valley", 3},
        {"k=w", 4},
        {"k=", 4},
        {"k=v*", 2}, /* the text of a pattern itself is an exact value, too */
        {"k=aval", 4},
        {"path=/api/7/do", 5},
        {"path=/api/7/8/do", 5}, /* '*' does not stop at '/' */
        {"path=/api//do", 5},
        {"path=/api/do", -1},
        {"path=/api/7/don", -1},
        {"path=/api/1/part/2/do", 5},
        {"path=x.png", 7},
        {"path=.png", 7},
        {"path=png", -1},
        {"both=aa", 8},
        {"both=banana", 8},
        {"both=bare", -1},
        {"any=", 9},
        {"any=thing", 9},
        {"an=y", -1},
        {"any_=thing", -1},
        {"k_v=alue", -1}, /* the boundary between key and value is part of the match */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t units = units_of(compiled.set, "wild", cases[i].entry);
        if (units != cases[i].units)
            printf("  %s\n", cases[i].entry);
        CHECK_EQ(units, cases[i].units);
    }
    /* Without share_threshold each value has its own counter. */
    look_up(&lookup, compiled.set, "wild", "k=value");
    CHECK(text_is(text_of(lookup.key), "wild:k=value"));
    unload(&compiled);
}

TEST(share_threshold_counts_by_the_pattern)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled, "domain: share\n"
                         "descriptors:\n"
                         "  - key: files\n"
                         "    value: files/*\n"
                         "    share_threshold: true\n"
                         "    rate_limit: { unit: hour, requests_per_unit: 10 }\n"
                         "  - key: files\n"
                         "    value: files/own\n"
                         "    rate_limit: { unit: hour, requests_per_unit: 20 }\n"
                         "  - key: top\n"
                         "    value: t*\n"
                         "    share_threshold: true\n"
                         "    descriptors:\n"
                         "      - key: top\n"
                         "        value: n*\n"
                         "        descriptors:\n"
                         "          - key: user\n"
                         "            rate_limit: { unit: hour, requests_per_unit: 30 }\n");
    look_up(&lookup, compiled.set, "share", "files=files/a.pdf");
    CHECK(text_is(text_of(lookup.key), "share:files=files/*"));
    look_up(&lookup, compiled.set, "share", "files=files/b.csv");
    CHECK(text_is(text_of(lookup.key), "share:files=files/*"));
    look_up(&lookup, compiled.set, "share", "files=files/*");
    CHECK(text_is(text_of(lookup.key), "share:files=files/*"));
    look_up(&lookup, compiled.set, "share", "files=files/own");
    CHECK_EQ(lookup.hit.quota->units, 20);
    CHECK(text_is(text_of(lookup.key), "share:files=files/own"));
    /* Only that entry: the entries below it are counted by their own values. */
    look_up(&lookup, compiled.set, "share", "top=t1,top=n1,user=7");
    CHECK_EQ(lookup.hit.quota->units, 30);
    CHECK(text_is(text_of(lookup.key), "share:top=t*,top=n1,user=7"));
    unload(&compiled);
}

/* ---- limits ---- */

TEST(units_in_any_case_and_their_multiples)
{
    static const struct {
        const char *text;
        int64_t window_ns;
    } cases[] = {
        {"unit: second", WEIR_SECOND},
        {"unit: SECOND", WEIR_SECOND},
        {"unit: Minute", 60 * WEIR_SECOND},
        {"unit: hour", 3600 * WEIR_SECOND},
        {"unit: day", WEIR_DAY},
        {"unit: week", 7 * WEIR_DAY},
        {"unit: month", 30 * WEIR_DAY},
        {"unit: year", 365 * WEIR_DAY},
        {"unit: minute, unit_multiplier: 15", 900 * WEIR_SECOND},
        {"unit: day, unit_multiplier: 400", 400 * WEIR_DAY},
        {"unit: week, unit_multiplier: 1", 7 * WEIR_DAY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct compiled compiled;
        struct lookup lookup;
        char text[256];
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors: [{ key: k, rate_limit: { requests_per_unit: 4294967295, %s } }]",
                 cases[i].text);
        load_good(&compiled, text);
        bool found = compiled.set && look_up(&lookup, compiled.set, "d", "k=1");
        CHECK(found);
        if (found) {
            CHECK_EQ(lookup.hit.quota->units, UINT32_MAX);
            CHECK_EQ(lookup.hit.quota->window_ns, cases[i].window_ns);
            CHECK_EQ(lookup.hit.quota->limit.window_us, cases[i].window_ns / 1000);
            CHECK_EQ(lookup.hit.quota->limit.align, WEIR_ALIGN_CLOCK);
        }
        unload(&compiled);
    }
}

TEST(algorithm_can_be_chosen)
{
    struct compiled compiled;
    struct lookup lookup;
    load_good(&compiled,
              "domain: d\n"
              "descriptors:\n"
              "  - { key: t, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: token_bucket, burst: 7, "
              "refill: interval } }\n"
              "  - { key: l, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: leaky_bucket, burst: 9 } }\n"
              "  - { key: f, rate_limit: { unit: day, requests_per_unit: 100, align: first_request, soft: 10% } }\n"
              "  - { key: g, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_window_log, "
              "count_rejected: true } }\n"
              "  - { key: c, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_window_counter, "
              "round: up } }\n"
              "  - { key: n, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_window_counter, "
              "buckets: 12 } }\n");
    look_up(&lookup, compiled.set, "d", "t=1");
    CHECK_EQ(lookup.hit.quota->limit.algorithm, WEIR_TOKEN_BUCKET);
    CHECK_EQ(lookup.hit.quota->limit.hard, 7);
    CHECK_EQ(lookup.hit.quota->limit.refill, WEIR_REFILL_INTERVAL);
    look_up(&lookup, compiled.set, "d", "l=1");
    CHECK_EQ(lookup.hit.quota->limit.algorithm, WEIR_LEAKY_BUCKET);
    CHECK_EQ(lookup.hit.quota->limit.hard, 9);
    look_up(&lookup, compiled.set, "d", "f=1");
    CHECK_EQ(lookup.hit.quota->limit.align, WEIR_ALIGN_FIRST_REQUEST);
    CHECK_EQ(lookup.hit.quota->limit.cap, 110);
    look_up(&lookup, compiled.set, "d", "g=1");
    CHECK_EQ(lookup.hit.quota->limit.algorithm, WEIR_SLIDING_WINDOW_LOG);
    CHECK(lookup.hit.rule->count_rejected);
    look_up(&lookup, compiled.set, "d", "c=1");
    CHECK(lookup.hit.quota->limit.round_up);
    look_up(&lookup, compiled.set, "d", "n=1");
    CHECK_EQ(lookup.hit.quota->limit.buckets, 12);
    unload(&compiled);
}

/* Windows are aligned to the epoch, as the dialect defines it, unless a time zone requests calendar windows. */
TEST(time_zone_makes_calendar_windows)
{
    static const struct {
        const char *unit;
        enum weir_calendar calendar;
        int64_t days;
    } cases[] = {{"day", WEIR_CALENDAR_DAY, 1},
                 {"week", WEIR_CALENDAR_WEEK, 7},
                 {"month", WEIR_CALENDAR_MONTH, 31},
                 {"YEAR", WEIR_CALENDAR_YEAR, 366}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct compiled compiled;
        struct lookup lookup;
        char text[256];
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: %s, requests_per_unit: 5, timezone: UTC } }]",
                 cases[i].unit);
        load_good(&compiled, text);
        bool found = compiled.set && look_up(&lookup, compiled.set, "d", "k=1");
        CHECK(found);
        if (found) {
            CHECK_EQ(lookup.hit.quota->limit.align, WEIR_ALIGN_CALENDAR);
            CHECK_EQ(lookup.hit.quota->limit.calendar, cases[i].calendar);
            CHECK_EQ(lookup.hit.quota->window_ns, cases[i].days * WEIR_DAY);
        }
        unload(&compiled);
    }
}

/* ---- metadata ---- */

TEST(metadata_becomes_json)
{
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"{ name: service_1 }", "{\"name\":\"service_1\"}"},
        {"{ a: { b: { c: [1, [2, {}], []] } }, d: x }", "{\"a\":{\"b\":{\"c\":[1,[2,{}],[]]}},\"d\":\"x\"}"},
        {"{ i: 5, n: -5, f: 1.50, e: 1e3, E: -0.5E-7, z: 0 }",
         "{\"i\":5,\"n\":-5,\"f\":1.50,\"e\":1e3,\"E\":-0.5E-7,\"z\":0}"},
        {"{ a: 007, b: +5, c: .5, d: 5., e: 1e, f: 0x10, g: 1_000, h: '-', i: 1-2 }",
         "{\"a\":\"007\",\"b\":\"+5\",\"c\":\".5\",\"d\":\"5.\",\"e\":\"1e\",\"f\":\"0x10\",\"g\":\"1_000\",\"h\":\"-"
         "\",\"i\":\"1-2\"}"},
        {"{ a: true, b: No, c: on, d: 'true', e: ~, f: null, g: , h: '', i: trUe }",
         "{\"a\":true,\"b\":false,\"c\":true,\"d\":\"true\",\"e\":null,\"f\":null,\"g\":null,\"h\":\"\",\"i\":"
         "\"trUe\"}"},
        {"{ \"q\\\"\\\\\\n\\x01\": \"\\u00e4\\t\" }", "{\"q\\\"\\\\\\u000a\\u0001\":\"\xc3\xa4\\u0009\"}"},
        {"{}", ""},
        {"", ""},
        {"~", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct compiled compiled;
        struct lookup lookup;
        char text[512];
        snprintf(
            text, sizeof text,
            "domain: d\ndescriptors:\n- key: k\n  metadata: %s\n  rate_limit: { unit: day, requests_per_unit: 1 }\n",
            cases[i].yaml);
        load_good(&compiled, text);
        if (compiled.set)
            CHECK(text_is(look_up(&lookup, compiled.set, "d", "k=1")->metadata, cases[i].json));
        unload(&compiled);
    }
}

TEST_MAIN
