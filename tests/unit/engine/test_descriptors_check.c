/* The descriptor dialect through weir_check_descriptors: the examples of its documentation. */
#include "../../engine.h"

/* Up to 4 descriptors of up to 3 entries, from "a=b,c=d;e=f". */
struct descriptor_check {
    char text[256];
    weir_descriptor_entry entries[4][3];
    weir_descriptor descriptors[4];
    weir_outcome outcomes[4];
    weir_descriptor_query query;
    weir_result result;
};

static weir_text text_of(const char *from)
{
    return (weir_text){from, strlen(from)};
}

static void prepare(struct descriptor_check *a, const char *domain, const char *line)
{
    memset(a, 0, sizeof *a);
    snprintf(a->text, sizeof a->text, "%s", line);
    char *outer = NULL;
    size_t count = 0;
    for (char *one = strtok_r(a->text, ";", &outer); one; one = strtok_r(NULL, ";", &outer), count++) {
        char *inner = NULL;
        size_t entry = 0;
        for (char *pair = strtok_r(one, ",", &inner); pair; pair = strtok_r(NULL, ",", &inner), entry++) {
            char *equal = strchr(pair, '=');
            if (equal)
                *equal = 0;
            a->entries[count][entry] = (weir_descriptor_entry){text_of(pair), text_of(equal ? equal + 1 : "")};
        }
        a->descriptors[count] = (weir_descriptor){.entries = a->entries[count], .entry_count = entry};
    }
    a->query = (weir_descriptor_query){.domain = text_of(domain),
                                       .descriptors = a->descriptors,
                                       .descriptor_count = count,
                                       .outcomes = a->outcomes,
                                       .now = test_seconds(0)};
}

static bool passes(weir *w, struct descriptor_check *a, const char *line)
{
    prepare(a, "d", line);
    CHECK_EQ(weir_check_descriptors(w, &a->query, &a->result), 0);
    return weir_passes(&a->result.decision);
}

static int passing(weir *w, const char *line, int count)
{
    struct descriptor_check a;
    int passed = 0;
    for (int i = 0; i < count; i++)
        passed += passes(w, &a, line);
    return passed;
}

TEST(nested_and_bare_keys)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - key: user\n"
                          "    rate_limit: { unit: minute, requests_per_unit: 3 }\n"
                          "    descriptors:\n"
                          "      - { key: path, value: /buy, rate_limit: { unit: minute, requests_per_unit: 1 } }\n");
    CHECK_EQ(passing(w, "user=a", 9), 3);
    CHECK_EQ(passing(w, "user=b", 9), 3); /* each value has its own counter */
    CHECK_EQ(passing(w, "user=a,path=/buy", 9), 1);
    CHECK_EQ(passing(w, "user=a,path=/see", 9), 9); /* no limit at that depth */
    CHECK_EQ(passing(w, "other=a", 9), 9);
    weir_close(w);
}

TEST(all_or_nothing_over_descriptors)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }\n"
                          "  - { key: b, rate_limit: { unit: hour, requests_per_unit: 2 } }\n");
    struct descriptor_check a;
    CHECK_EQ(passing(w, "a=1;b=1", 5), 2);
    CHECK(passes(w, &a, "a=1"));
    CHECK_EQ(a.outcomes[0].decision.remaining, 7); /* two together, one alone: the denied ones consumed nothing */
    CHECK(!passes(w, &a, "a=1;b=1"));
    CHECK_EQ(a.outcomes[0].decision.verdict, WEIR_ALLOW);
    CHECK_EQ(a.outcomes[0].decision.remaining, 7);
    CHECK_EQ(a.outcomes[1].decision.verdict, WEIR_DENY);
    weir_close(w);
}

TEST(replaces_drops_the_named_rule)
{
    weir *w =
        test_engine("domain: d\n"
                    "descriptors:\n"
                    "  - { key: all, rate_limit: { unit: hour, requests_per_unit: 1, name: base } }\n"
                    "  - { key: vip, rate_limit: { unit: hour, requests_per_unit: 5, replaces: [ { name: base } ] } }\n"
                    "  - { key: free, rate_limit: { unlimited: true, replaces: [ { name: base } ] } }\n");
    struct descriptor_check a;
    CHECK_EQ(passing(w, "all=x;vip=x", 9), 5);
    CHECK(!passes(w, &a, "all=x;vip=x"));
    CHECK_EQ(a.outcomes[0].reason, WEIR_BY_NOTHING);
    CHECK_EQ(passing(w, "all=x", 9), 1); /* untouched until now */
    CHECK_EQ(passing(w, "all=x;free=x", 9), 9);
    weir_close(w);
}

TEST(quota_mode_denies_only_when_all_are_over)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - { key: a, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }\n"
                          "  - { key: b, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 4 } }\n"
                          "  - { key: c, rate_limit: { unit: hour, requests_per_unit: 5 } }\n");
    struct descriptor_check a;
    CHECK_EQ(passing(w, "a=1;b=1", 9), 4);
    CHECK(!passes(w, &a, "a=1;b=1"));
    CHECK_EQ(passing(w, "a=2;c=2", 9), 2);
    weir_close(w);
}

TEST(ban_unlimited_shadow)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - { key: bad, value: yes, rate_limit: { unit: second, requests_per_unit: 0 } }\n"
                          "  - { key: good, rate_limit: { unlimited: true } }\n"
                          "  - { key: new, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }\n");
    struct descriptor_check a;
    CHECK_EQ(passing(w, "bad=yes", 3), 0);
    CHECK_EQ(passing(w, "good=x", 30), 30);
    CHECK(passes(w, &a, "good=x"));
    CHECK_EQ(a.outcomes[0].reason, WEIR_BY_UNLIMITED);
    CHECK_EQ(passing(w, "new=x", 5), 5);
    CHECK(passes(w, &a, "new=x"));
    CHECK(a.result.shadow_denied);
    CHECK(a.outcomes[0].shadow && a.outcomes[0].decision.verdict == WEIR_DENY);
    weir_close(w);
}

TEST(wildcards_and_shared_thresholds)
{
    weir *w = test_engine(
        "domain: d\n"
        "descriptors:\n"
        "  - { key: file, value: 'a/*', rate_limit: { unit: hour, requests_per_unit: 2 } }\n"
        "  - { key: file, value: 'b/*', share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 2 } }\n");
    CHECK_EQ(passing(w, "file=a/1", 5), 2);
    CHECK_EQ(passing(w, "file=a/2", 5), 2);
    CHECK_EQ(passing(w, "file=b/1", 5), 2);
    CHECK_EQ(passing(w, "file=b/2", 5), 0);
    CHECK_EQ(passing(w, "file=c/2", 5), 5);
    weir_close(w);
}

TEST(hits_and_limits_of_the_request)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }\n");
    struct descriptor_check a;
    prepare(&a, "d", "a=1");
    a.query.hits = 4;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.outcomes[0].decision.remaining, 6);
    a.descriptors[0].has_hits = true; /* 0: only peeks */
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.outcomes[0].decision.remaining, 6);
    a.descriptors[0].hits = -3;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.outcomes[0].decision.remaining, 9);
    a.descriptors[0] = (weir_descriptor){
        .entries = a.entries[0], .entry_count = 1, .override_limit = 5, .override_window_ns = 60 * WEIR_SECOND};
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.outcomes[0].decision.remaining, 1);
    CHECK_EQ(a.outcomes[0].decision.limit, 5);
    a.descriptors[0].override_limit = -1;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), WEIR_ELIMIT);
    prepare(&a, "unknown", "a=1");
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.result.matched, 0);
    prepare(&a, "", "a=1");
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), WEIR_EINVAL);
    weir_close(w);
}

/* Some of a request's descriptors take, others only peek or refund: each by its own hits. */
TEST(descriptors_of_different_hits)
{
    weir *w = test_engine("domain: d\n"
                          "descriptors:\n"
                          "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }\n"
                          "  - { key: b, rate_limit: { unit: hour, requests_per_unit: 3 } }\n");
    struct descriptor_check a;
    CHECK(passes(w, &a, "a=1;a=2;a=3;b=1"));
    prepare(&a, "d", "a=1;a=2;a=3");
    a.descriptors[0].has_hits = a.descriptors[1].has_hits = true;
    a.descriptors[1].hits = -1;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK_EQ(a.outcomes[0].decision.remaining, 9);  /* peeked */
    CHECK_EQ(a.outcomes[1].decision.remaining, 10); /* refunded */
    CHECK_EQ(a.outcomes[2].decision.remaining, 8);  /* took */
    CHECK(passes(w, &a, "a=1;a=2;a=3"));
    CHECK_EQ(a.outcomes[0].decision.remaining, 8);
    CHECK_EQ(a.outcomes[1].decision.remaining, 9);
    CHECK_EQ(a.outcomes[2].decision.remaining, 7);
    /* A denial changes none of them. */
    prepare(&a, "d", "a=1;a=2;b=1");
    a.descriptors[0].has_hits = a.descriptors[2].has_hits = true;
    a.descriptors[0].hits = -1;
    a.descriptors[2].hits = 3;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK(!weir_passes(&a.result.decision));
    CHECK_EQ(a.outcomes[0].decision.remaining, 8);
    CHECK_EQ(a.outcomes[1].decision.remaining, 9);
    CHECK_EQ(a.outcomes[2].decision.verdict, WEIR_DENY);
    weir_close(w);
}

static bool charged(weir *w, struct descriptor_check *a, const char *line, int64_t hits)
{
    prepare(a, "d", line);
    a->query.charge_denied = true;
    for (size_t i = 0; i < a->query.descriptor_count; i++) {
        a->descriptors[i].has_hits = true;
        a->descriptors[i].hits = hits;
    }
    CHECK_EQ(weir_check_descriptors(w, &a->query, &a->result), 0);
    return weir_passes(&a->result.decision);
}

TEST(denied_requests_can_be_counted)
{
    weir *w =
        test_engine("domain: d\n"
                    "descriptors:\n"
                    "  - { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }\n"
                    "  - { key: b, rate_limit: { unit: hour, requests_per_unit: 100 } }\n"
                    "  - { key: s, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 5 } }\n"
                    "  - { key: q, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 5 } }\n"
                    "  - { key: r, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 100 } }\n"
                    "  - { key: t, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: token_bucket } }\n");
    struct descriptor_check a;
    CHECK(charged(w, &a, "a=1;b=1", 7));
    CHECK(charged(w, &a, "a=1", 0));
    CHECK(!charged(w, &a, "a=1;b=1", 7));
    CHECK_EQ(a.outcomes[0].decision.verdict, WEIR_DENY);
    CHECK_EQ(a.outcomes[1].decision.remaining, 86); /* counted, too */
    CHECK(!charged(w, &a, "a=1", 0));               /* a peek now reports that it is over */
    CHECK(charged(w, &a, "q=1;r=1", 4));
    CHECK(charged(w, &a, "q=1;r=1", 4)); /* one of two quotas is over, so it passes; that one counts, too */
    CHECK(charged(w, &a, "q=1;r=1", 0));
    CHECK_EQ(a.outcomes[0].decision.verdict, WEIR_DENY);
    CHECK_EQ(a.outcomes[1].decision.remaining, 92);
    CHECK(charged(w, &a, "s=1", 4));
    CHECK(charged(w, &a, "s=1", 4)); /* a shadow, likewise */
    CHECK(charged(w, &a, "s=1", 0));
    CHECK_EQ(a.outcomes[0].decision.verdict, WEIR_DENY);
    CHECK(!charged(w, &a, "a=1;s=2", 3));
    CHECK(charged(w, &a, "s=2", 0));
    CHECK_EQ(a.outcomes[0].decision.remaining, 2);
    CHECK(charged(w, &a, "t=1", 7));
    CHECK(!charged(w, &a, "t=1", 7));
    CHECK(!charged(w, &a, "t=1", 0)); /* a report leaves a debt in a bucket */
    CHECK_EQ(a.outcomes[0].decision.remaining, -4);
    CHECK(charged(w, &a, "t=2", 10));
    prepare(&a, "d", "t=2");
    a.query.charge_denied = true;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK(!weir_passes(&a.result.decision));
    CHECK(charged(w, &a, "t=2", 0)); /* a call without hits leaves none */
    weir_close(w);
}

static void collect_match(void *context, size_t descriptor, const weir_descriptor_match *match)
{
    char *to = context;
    size_t len = strlen(to);
    snprintf(to + len, 512 - len, "%zu:%.*s:%.*s:%d:%d:%d:%d;", descriptor, (int)match->limit_name.len,
             match->limit_name.data, (int)match->metadata.len, match->metadata.data, (int)match->limit,
             (int)(match->window_ns / WEIR_SECOND), match->by_clock, match->quota_mode);
}

TEST(matches_are_reported)
{
    weir *w = test_engine(
        "domain: d\n"
        "descriptors:\n"
        "  - { key: a, metadata: { x: 1 }, rate_limit: { unit: hour, requests_per_unit: 10, name: one } }\n"
        "  - { key: b, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }\n"
        "  - { key: c, rate_limit: { unlimited: true, replaces: [ { name: two } ] } }\n"
        "  - { key: e, rate_limit: { unit: day, requests_per_unit: 2, name: two, algorithm: token_bucket } }\n");
    struct descriptor_check a;
    char matches[512] = "";
    prepare(&a, "d", "a=1;b=1;none=1;e=1");
    a.query.matched = collect_match;
    a.query.matched_context = matches;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK(strcmp(matches, "0:one:{\"x\":1}:10:3600:1:0;1:::0:60:1:1;3:two::2:86400:0:0;") == 0);
    prepare(&a, "d", "c=1;e=1");
    matches[0] = 0;
    a.query.matched = collect_match;
    a.query.matched_context = matches;
    CHECK_EQ(weir_check_descriptors(w, &a.query, &a.result), 0);
    CHECK(strcmp(matches, "0:::-1:0:0:0;") == 0); /* the other was replaced */
    weir_close(w);
}

TEST_MAIN
