/* Advice from synthetic statistics: each kind, and when there is none. */
#include "../../test.h"

#include "stats/advise.h"
#include "control/document.h"

#include <unistd.h>

static struct weir__evidence e;
static struct weir__advice advice[WEIR__ADVICE_MAX];

/* An hour of a token bucket of 100 a minute: this many requests pass and are denied in each second. */
static void hour_of(uint32_t allowed, uint32_t denied)
{
    memset(&e, 0, sizeof e);
    e.algorithm = WEIR_TOKEN_BUCKET;
    e.limit = e.hard = 100;
    e.window_s = 60;
    e.second_count = WEIR__HISTORY_SECONDS - 1;
    e.newest_wall = 1800000000;
    e.stands_for_s = 600;
    e.keys = 200;
    for (size_t i = 0; i < e.second_count; i++)
        e.second[i] = (struct weir__history_second){.allowed = allowed, .denied = denied};
}

/* Keys with this many requests denied and admitted, in 600 s. */
static void denied_keys(size_t count, uint64_t denied, uint64_t admitted)
{
    for (size_t i = 0; i < count; i++, e.key_count++)
        e.key[e.key_count] = (struct weir__denied_key){denied, admitted};
}

static double value_of(const char *name)
{
    for (size_t i = 0; i < advice[0].number_count; i++)
        if (strcmp(advice[0].numbers[i].name, name) == 0)
            return advice[0].numbers[i].value;
    return -1;
}

TEST(many_keys_above_the_limit_get_a_higher_limit)
{
    hour_of(30, 10);
    denied_keys(40, 500, 1000); /* 150 a minute */
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__TOO_STRICT);
    CHECK_EQ(advice[0].change.limit, 170);
    CHECK(!advice[0].change.burst && !advice[0].change.algorithm);
    CHECK_EQ((int)value_of("denied_percent"), 25);
    CHECK_EQ((int)value_of("denied_keys"), 40);
    CHECK_EQ((int)value_of("keys"), 200);
    CHECK_EQ((int)value_of("demand_90"), 150);
    CHECK(strstr(advice[0].message, "40 of about 200 keys"));

    /* The burst is raised too, if it is smaller. */
    e.hard = 20;
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].change.burst, 34);
}

TEST(few_keys_above_the_limit_get_no_advice)
{
    hour_of(30, 10);
    denied_keys(3, 100000, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
    denied_keys(30, 20, 1000); /* some others are denied a little, too */
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(30, 10);
    e.keys = 100000; /* 40 of so many are few */
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

TEST(too_little_data_gives_no_advice)
{
    hour_of(30, 10);
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 1);
    e.second_count = 599;
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.second_count = 3599;
    e.stands_for_s = 0; /* the rate of the keys is unknown */
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.stands_for_s = 600;
    e.window_s = 0; /* a calendar window */
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.window_s = 60;
    e.shadow = true;
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.shadow = false;
    e.limit = 0; /* denies everything */
    CHECK_EQ(weir__advise(&e, advice), 0);
    memset(&e, 0, sizeof e);
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(1000, 1); /* one in a thousand */
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(0, 0);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

TEST(short_bursts_get_a_larger_burst)
{
    hour_of(30, 10);
    e.hard = 20;
    denied_keys(40, 200, 400); /* 60 a minute of 100 */
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__BURSTS);
    CHECK_EQ(advice[0].change.burst, 38); /* 20 x 600 / 400 x 1.25 */
    CHECK(!advice[0].change.limit && !advice[0].change.algorithm);
    CHECK_EQ((int)value_of("burst_percent"), 100);

    e.algorithm = WEIR_SLIDING_WINDOW_LOG;
    e.hard = 100;
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK(strcmp(advice[0].change.algorithm, "token_bucket") == 0);
    CHECK_EQ(advice[0].change.burst, 190);

    /* Half steady and half bursts: neither advice fits. */
    hour_of(30, 10);
    denied_keys(20, 200, 400);
    denied_keys(20, 200, 1800);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

/* At the start of each minute all keys send at once, and are denied for the rest of it. */
static void edges(void)
{
    hour_of(0, 0);
    e.algorithm = WEIR_FIXED_WINDOW;
    e.by_clock = true;
    for (size_t i = 0; i < e.second_count; i++) {
        uint64_t at = (e.newest_wall - (e.second_count - 1 - i)) % 60;
        e.second[i].allowed = at < 6 ? 500 : 10;
        e.second[i].denied = at < 10 ? 0 : 40;
    }
}

TEST(bursts_at_window_boundaries_get_a_sliding_window)
{
    edges();
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__EDGE_BURSTS);
    CHECK(strcmp(advice[0].change.algorithm, "sliding_window_counter") == 0);
    CHECK(value_of("first_tenth_percent") > 80 && value_of("denied_late_percent") > 50);

    e.by_clock = false; /* windows begin with each key's first request: they have no common boundary */
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.window_s = 5; /* the resolution of a second is too coarse */
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.newest_wall += 30; /* the same traffic in the middle of the windows is not at a boundary */
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    for (size_t i = 0; i < e.second_count; i++)
        e.second[i].denied = 0;
    CHECK_EQ(weir__advise(&e, advice), 0);
}

static void week(uint32_t most)
{
    hour_of(10, 0);
    e.hour_count = 170;
    for (size_t i = 0; i < e.hour_count; i++)
        e.hour[i] = (struct weir__history_hour){
            .hour = 1000 + i, .allowed = 36000, .looked = 3600, .most = (uint32_t)(i % 5) * 10};
    e.hour[100].most = most;
}

TEST(week_well_below_the_limit_gets_a_lower_limit)
{
    week(123);
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__TOO_LOOSE);
    CHECK_EQ(advice[0].change.limit, 25);
    CHECK(advice[0].change.limit_factor > 0.249 && advice[0].change.limit_factor < 0.251);
    CHECK_EQ((int)value_of("most_percent"), 12);

    week(500);
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    e.hour[120].denied = 1;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    e.hour[90].most = WEIR__HISTORY_UNSEEN;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    e.hour_count = 167;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    for (size_t i = 0; i < e.hour_count; i++) /* hours of several weeks, with gaps of days without data */
        e.hour[i].hour = 1000 + 3 * i;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(0);
    for (size_t i = 0; i < e.hour_count; i++)
        e.hour[i].allowed = e.hour[i].most = 0;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    e.limit = e.hard = 2; /* a lower limit would be too low to be useful */
    e.hour[100].most = 499;
    CHECK_EQ(weir__advise(&e, advice), 0);
}

/* ---- The changed rule ---- */

static const char RULES[] = "identity: { user_id: header:X-User }\n"
                            "rules:\n"
                            "  - { name: flow, match: { path: [/a, \"/b{x}\"] }, key: \"user:${user_id}\", limit: 5, "
                            "window: 1m, burst: 7 }\n"
                            "  - name: window\n"
                            "    limit: 10\n"
                            "    window: 1h\n"
                            "    algorithm: fixed_window\n"
                            "    align: first_request\n"
                            "    response: { message: \"two\\nlines\" }\n"
                            "  - name: tiers\n"
                            "    limit: { free: 100, pro: 1000, staff: unlimited, default: 10 }\n"
                            "    tier: plan\n"
                            "    window: 1h\n"
                            "  - name: several\n"
                            "    limits: [{ limit: 1, window: 1s }, { limit: 20, window: 1m }]\n";

static char *changed(const char *name, struct weir__rule_change change)
{
    struct weir__rule_source source = {.text = {RULES, sizeof RULES - 1}};
    weir_rule_info info = {.name = name};
    char *document, *text = weir__advice_rule(&source, &info, &change, &document);
    CHECK((document == NULL) == (text == NULL));
    weir__rule_source_free(&source);
    free(document);
    return text;
}

static void is_changed(const char *name, struct weir__rule_change change, const char *expected)
{
    char *text = changed(name, change);
    CHECK(text != NULL);
    if (!text || strcmp(text, expected) != 0)
        printf("got:\n%s\nexpected:\n%s\n", text ? text : "(none)", expected);
    CHECK(text && strcmp(text, expected) == 0);
    free(text);
}

TEST(changed_rules)
{
    is_changed("flow", (struct weir__rule_change){.limit = 9, .burst = 12},
               "rules:\n  - name: flow\n    match:\n      path:\n        - /a\n        - \"/b{x}\"\n    key: "
               "\"user:${user_id}\"\n    limit: 9\n"
               "    window: 1m\n    burst: 12\n    shadow: true\n");
    is_changed(
        "window", (struct weir__rule_change){.algorithm = "sliding_window_counter"},
        "rules:\n  - name: window\n    limit: 10\n    window: 1h\n    response:\n      message: \"two\\x0alines\"\n"
        "    algorithm: sliding_window_counter\n    shadow: true\n");
    is_changed("tiers", (struct weir__rule_change){.limit = 25, .limit_factor = 0.255},
               "rules:\n  - name: tiers\n    limit:\n      free: 26\n      pro: 255\n      staff: unlimited\n      "
               "default: 3\n"
               "    tier: plan\n    window: 1h\n    shadow: true\n");
    /* In the rules service the rule is a document, without a stage of its own. */
    struct weir__rule_source source = {.text = {RULES, sizeof RULES - 1}};
    char *document, *text = weir__advice_rule(&source, &(weir_rule_info){.name = "flow"},
                                              &(struct weir__rule_change){.limit = 9, .burst = 12}, &document);
    CHECK(document && strcmp(document, "name: flow\nmatch:\n  path:\n    - /a\n    - \"/b{x}\"\n"
                                       "key: \"user:${user_id}\"\nlimit: 9\nwindow: 1m\nburst: 12\n") == 0);
    struct weir__document read;
    struct weir__arena arena = {0};
    json_t *errors = json_array();
    CHECK(document && weir__document_read(&arena, (weir_text){document, strlen(document)}, &read, errors));
    CHECK(strcmp(read.name, "flow") == 0 && read.kind == WEIR__KIND_RULE);
    weir__arena_free(&arena);
    json_decref(errors);
    free(document);
    free(text);
    weir__rule_source_free(&source);
    CHECK(!changed("several/1s", (struct weir__rule_change){.limit = 2}));
    CHECK(!changed("gone", (struct weir__rule_change){.limit = 2}));
    /* A change that makes an invalid rule is not recommended. */
    CHECK(!changed("flow", (struct weir__rule_change){.algorithm = "no_such_thing"}));
    struct weir__rule_source broken = {.text = {"rules: [", 8}};
    weir_rule_info info = {.name = "flow"};
    CHECK(!weir__advice_rule(&broken, &info, &(struct weir__rule_change){.limit = 2}, &document));
    weir__rule_source_free(&broken);
    broken.path = "/nowhere/at/all";
    CHECK(!weir__advice_rule(&broken, &info, &(struct weir__rule_change){.limit = 2}, &document));
}

/* Whatever the number of recommendations: the files are read and parsed once. */
TEST(rules_are_read_once)
{
    char path[] = "/tmp/weir-advise-XXXXXX.yaml";
    int file = mkstemps(path, 5);
    CHECK(file >= 0 && write(file, RULES, sizeof RULES - 1) == (ssize_t)sizeof RULES - 1);
    close(file);
    struct weir__rule_source source = {.path = path};
    weir_rule_info info = {.name = "flow"};
    for (int i = 0; i < 3; i++) {
        char *document, *text = weir__advice_rule(&source, &info, &(struct weir__rule_change){.limit = 2}, &document);
        CHECK(text != NULL);
        free(document);
        free(text);
        unlink(path);
    }
    weir__rule_source_free(&source);
    char *document;
    CHECK(!weir__advice_rule(&source, &info, &(struct weir__rule_change){.limit = 2}, &document));
}

TEST_MAIN
