/* Advice from figures that are made up: each piece of it, and when there is none. */
#include "../../test.h"

#include "stats/advise.h"
#include "control/document.h"

#include <unistd.h>

static struct weir__evidence e;
static struct weir__advice advice[WEIR__ADVICE_MAX];

/* An hour of a token bucket of 100 a minute: so many of each second pass and are denied. */
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

/* So many keys that were denied so much of so much, in 600 s. */
static void denied_keys(size_t count, uint64_t denied, uint64_t admitted)
{
    for (size_t i = 0; i < count; i++, e.key_count++)
        e.key[e.key_count] = (struct weir__denied_key){denied, admitted};
}

static double told(const char *name)
{
    for (size_t i = 0; i < advice[0].number_count; i++)
        if (strcmp(advice[0].numbers[i].name, name) == 0)
            return advice[0].numbers[i].value;
    return -1;
}

TEST(many_keys_that_steadily_want_more)
{
    hour_of(30, 10);
    denied_keys(40, 500, 1000); /* 150 a minute */
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__TOO_STRICT);
    CHECK_EQ(advice[0].change.limit, 170);
    CHECK(!advice[0].change.burst && !advice[0].change.algorithm);
    CHECK_EQ((int)told("denied_percent"), 25);
    CHECK_EQ((int)told("denied_keys"), 40);
    CHECK_EQ((int)told("keys"), 200);
    CHECK_EQ((int)told("demand_90"), 150);
    CHECK(strstr(advice[0].message, "40 of about 200 keys"));

    /* The bucket grows with it, if it is a smaller one. */
    e.hard = 20;
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].change.burst, 34);
}

TEST(few_keys_are_those_whom_the_rule_is_for)
{
    hour_of(30, 10);
    denied_keys(3, 100000, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
    denied_keys(30, 20, 1000); /* some others a little, too */
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(30, 10);
    e.keys = 100000; /* 40 of so many are few */
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

TEST(too_little_is_known)
{
    hour_of(30, 10);
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 1);
    e.second_count = 599;
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.second_count = 3599;
    e.stands_for_s = 0; /* nobody knows how fast keys ask */
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.stands_for_s = 600;
    e.window_s = 0; /* a calendar's */
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.window_s = 60;
    e.shadow = true;
    CHECK_EQ(weir__advise(&e, advice), 0);
    e.shadow = false;
    e.limit = 0; /* a ban */
    CHECK_EQ(weir__advise(&e, advice), 0);
    memset(&e, 0, sizeof e);
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(1000, 1); /* one in a thousand */
    denied_keys(40, 500, 1000);
    CHECK_EQ(weir__advise(&e, advice), 0);
    hour_of(0, 0);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

TEST(short_bursts_that_a_larger_bucket_would_carry)
{
    hour_of(30, 10);
    e.hard = 20;
    denied_keys(40, 200, 400); /* 60 a minute of 100 */
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__BURSTS);
    CHECK_EQ(advice[0].change.burst, 38); /* 20 x 600 / 400 x 1.25 */
    CHECK(!advice[0].change.limit && !advice[0].change.algorithm);
    CHECK_EQ((int)told("burst_percent"), 100);

    e.algorithm = WEIR_SLIDING_WINDOW_LOG;
    e.hard = 100;
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK(strcmp(advice[0].change.algorithm, "token_bucket") == 0);
    CHECK_EQ(advice[0].change.burst, 190);

    /* Half of it this, half of it that: neither is good advice. */
    hour_of(30, 10);
    denied_keys(20, 200, 400);
    denied_keys(20, 200, 1800);
    CHECK_EQ(weir__advise(&e, advice), 0);
}

/* Each minute everybody comes at once, and is denied for the rest of it. */
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

TEST(bursts_at_the_edge_of_fixed_windows)
{
    edges();
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__EDGE_BURSTS);
    CHECK(strcmp(advice[0].change.algorithm, "sliding_window_counter") == 0);
    CHECK(told("first_tenth_percent") > 80 && told("denied_late_percent") > 50);

    e.by_clock = false; /* windows begin with each key's first request: they have no common edge */
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.window_s = 5; /* seconds are too coarse to tell */
    CHECK_EQ(weir__advise(&e, advice), 0);
    edges();
    e.newest_wall += 30; /* the same traffic in the middle of the windows is no edge */
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

TEST(a_week_without_anybody_near)
{
    week(123);
    CHECK_EQ(weir__advise(&e, advice), 1);
    CHECK_EQ(advice[0].kind, WEIR__TOO_LOOSE);
    CHECK_EQ(advice[0].change.limit, 25);
    CHECK(advice[0].change.limit_factor > 0.249 && advice[0].change.limit_factor < 0.251);
    CHECK_EQ((int)told("most_percent"), 12);

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
    for (size_t i = 0; i < e.hour_count; i++) /* hours of several weeks, with days between that nobody saw */
        e.hour[i].hour = 1000 + 3 * i;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(0);
    for (size_t i = 0; i < e.hour_count; i++)
        e.hour[i].allowed = e.hour[i].most = 0;
    CHECK_EQ(weir__advise(&e, advice), 0);
    week(123);
    e.limit = e.hard = 2; /* less is not a limit any more */
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
    char *text = weir__advice_rule(&source, &info, &change, WEIR__ADVICE_FILE);
    weir__rule_source_free(&source);
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
    /* For the rules service it is a document, which has no stage of its own. */
    struct weir__rule_source source = {.text = {RULES, sizeof RULES - 1}};
    char *document = weir__advice_rule(&source, &(weir_rule_info){.name = "flow"},
                                       &(struct weir__rule_change){.limit = 9, .burst = 12}, WEIR__ADVICE_DOCUMENT);
    CHECK(document && strcmp(document, "name: flow\nmatch:\n  path:\n    - /a\n    - \"/b{x}\"\n"
                                       "key: \"user:${user_id}\"\nlimit: 9\nwindow: 1m\nburst: 12\n") == 0);
    struct weir__document read;
    json_t *errors = json_array();
    CHECK(document && weir__document_read((weir_text){document, strlen(document)}, &read, errors));
    CHECK(strcmp(read.name, "flow") == 0 && read.kind == WEIR__RULE_DOCUMENT);
    weir__document_close(&read);
    json_decref(errors);
    free(document);
    weir__rule_source_free(&source);
    CHECK(!changed("several/1s", (struct weir__rule_change){.limit = 2}));
    CHECK(!changed("gone", (struct weir__rule_change){.limit = 2}));
    /* What would be no rule is not recommended. */
    CHECK(!changed("flow", (struct weir__rule_change){.algorithm = "no_such_thing"}));
    struct weir__rule_source broken = {.text = {"rules: [", 8}};
    weir_rule_info info = {.name = "flow"};
    CHECK(!weir__advice_rule(&broken, &info, &(struct weir__rule_change){.limit = 2}, WEIR__ADVICE_FILE));
    weir__rule_source_free(&broken);
    broken.path = "/nowhere/at/all";
    CHECK(!weir__advice_rule(&broken, &info, &(struct weir__rule_change){.limit = 2}, WEIR__ADVICE_FILE));
}

/* However much advice there is: the files are not read and parsed again for each. */
TEST(rules_are_read_once)
{
    char path[] = "/tmp/weir-advise-XXXXXX.yaml";
    int file = mkstemps(path, 5);
    CHECK(file >= 0 && write(file, RULES, sizeof RULES - 1) == (ssize_t)sizeof RULES - 1);
    close(file);
    struct weir__rule_source source = {.path = path};
    weir_rule_info info = {.name = "flow"};
    for (int i = 0; i < 3; i++) {
        char *text = weir__advice_rule(&source, &info, &(struct weir__rule_change){.limit = 2}, WEIR__ADVICE_FILE);
        CHECK(text != NULL);
        free(text);
        unlink(path);
    }
    weir__rule_source_free(&source);
    CHECK(!weir__advice_rule(&source, &info, &(struct weir__rule_change){.limit = 2}, WEIR__ADVICE_FILE));
}

TEST_MAIN
