/* Queries of all hosts: their text, the form of untrusted replies, and how replies are merged. */
#include "../../engine.h"
#include "../../private_dir.h"
#include "../../redis.h"

#include "config/config.h"
#include "stats/host_queries.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>

static json_t *json_of(const char *text)
{
    char *quoted = strdup(text);
    for (char *c = quoted; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_error_t error;
    json_t *tree = json_loads(quoted, 0, &error);
    if (!tree)
        printf("  %s: %s\n", text, error.text);
    free(quoted);
    return tree;
}

static json_t *form(enum weir__query_kind kind, const char *text)
{
    json_t *tree = json_of(text), *made = weir__reply_form(kind, tree, strlen(text));
    json_decref(tree);
    return made;
}

/* A number or a text, by a path such as "rules.0.name". */
static const json_t *at(const json_t *tree, const char *path)
{
    char part[64];
    while (tree && *path) {
        size_t len = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, path);
        tree = json_is_array(tree) ? json_array_get(tree, (size_t)atoi(part)) : json_object_get(tree, part);
        path += len + (path[len] == '.');
    }
    return tree;
}

static double number_at(const json_t *tree, const char *path)
{
    return json_is_number(at(tree, path)) ? json_number_value(at(tree, path)) : NAN;
}

static bool text_at(const json_t *tree, const char *path, const char *text)
{
    const char *value = json_string_value(at(tree, path));
    return value && strcmp(value, text) == 0;
}

static bool near(double value, double expected)
{
    return fabs(value - expected) < 0.001;
}

/* ---- Queries ---- */

TEST(query_survives_its_text)
{
    struct weir__query query = {
        .kind = WEIR__QUERY_DENIED,
        .from = "0123456789abcdef",
        .to = "",
        .bytes = 70000,
        .what = {.rule = "api", .key = WEIR__TEXT("user:42 \xc3\xa4"), .seconds = 3600, .n = 20}};
    struct weir__query again;
    char *text = weir__query_format(&query, false);
    CHECK(text && weir__query_parse(text, strlen(text), &again));
    CHECK(again.kind == WEIR__QUERY_DENIED && strcmp(again.what.rule, "api") == 0 && again.bytes == 70000);
    CHECK(weir__text_equal(again.what.key, query.what.key) && again.what.seconds == 3600 && again.what.n == 20);
    CHECK(!again.what.about && !again.what.hide && !again.what.digest);
    free(text);
    weir__query_free(&again);
    /* A store that gets no texts of keys gets a hash of what is looked for. */
    text = weir__query_format(&query, true);
    CHECK(text && !strstr(text, "user") && weir__query_parse(text, strlen(text), &again));
    CHECK(again.what.key.len == 0 && again.what.about && strlen(again.what.about) == 32);
    free(text);
    weir__query_free(&again);
    char digest[WEIR__SUBJECT_DIGEST];
    weir__subject_digest("::ffff:192.0.2.7", digest);
    CHECK(strlen(digest) == 65 && digest[32] == ' ');
    weir__subject_digest("~00112233445566778899aabbccddeeff", digest);
    CHECK(strcmp(digest, "00112233445566778899aabbccddeeff") == 0);
}

TEST(query_that_is_not_UTF_8_or_too_long_is_not_sent)
{
    char *longer = calloc(1, 4000);
    memset(longer, 'x', 3999);
    struct weir__query query = {
        .kind = WEIR__QUERY_DENIED, .from = "0", .to = "", .bytes = 1, .what.key = {longer, 3999}};
    CHECK(!weir__query_format(&query, false));
    query.what.key = WEIR__TEXT("\xff");
    CHECK(!weir__query_format(&query, false));
    free(longer);
}

TEST(malformed_queries_are_refused)
{
    static const char *const wrong[] = {"",
                                        "{",
                                        "[]",
                                        "7",
                                        "{}",
                                        "{'v':1,'kind':'denials','from':'','to':''}",
                                        "{'v':2,'kind':'denials','from':'','to':'','bytes':1}",
                                        "{'v':1,'kind':'other','from':'','to':'','bytes':1}",
                                        "{'v':1,'kind':'denials','from':7,'to':'','bytes':1}",
                                        "{'v':1,'kind':'hot_keys','from':'','to':'','bytes':1}",
                                        "{'v':1,'kind':'denials','from':'','to':'00000000000000000','bytes':1}",
                                        "{'v':1,'kind':'denials','from':'','to':'','bytes':-1}"};
    struct weir__query query;
    for (size_t i = 0; i < WEIR__COUNT(wrong); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", wrong[i]);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        CHECK(!weir__query_parse(text, strlen(text), &query));
    }
    static const char odd[] =
        "{\"v\":1,\"kind\":\"hot_keys\",\"from\":\"\",\"to\":\"\",\"bytes\":99999999999,\"rule\":\"r\","
        "\"n\":99999999,\"step\":-5,\"seconds\":1e9,\"near\":7,\"about\":[]}";
    CHECK(weir__query_parse(odd, sizeof odd - 1, &query));
    CHECK(query.bytes == WEIR__QUERY_REPLY_MAX && query.what.n == 1000 && !query.what.step && !query.what.seconds &&
          !query.what.near && !query.what.key.len);
    weir__query_free(&query);
}

/* ---- Replies ---- */

TEST(reply_gets_the_members_and_types_of_its_form)
{
    CHECK(!weir__reply_form(WEIR__QUERY_STATS, NULL, 0));
    CHECK(!form(WEIR__QUERY_STATS, "[]"));
    json_t *stats = form(WEIR__QUERY_STATS, "{'at':'x','rules':[7,{'name':7,'shadow':'yes','totals':{'denied':1e300},"
                                            "'rates':7,'limit':'none'}],'evil':{},'store':7,'load':{'signals':{'cpu':5,"
                                            "'x':'y'}},'host':{'name':'h'}}");
    CHECK(near(number_at(stats, "at"), 0) && !at(stats, "evil") && json_is_null(at(stats, "store")));
    CHECK(json_array_size(at(stats, "rules")) == 1 && text_at(stats, "rules.0.name", ""));
    CHECK(json_is_false(at(stats, "rules.0.shadow")) && json_is_null(at(stats, "rules.0.limit")));
    CHECK(number_at(stats, "rules.0.totals.denied") <= 9007199254740992.0);
    CHECK(json_is_null(at(stats, "rules.0.rates.1s")) && !at(stats, "rules.0.hot"));
    CHECK(near(number_at(stats, "load.signals.cpu"), 5) && !at(stats, "load.signals.x"));
    CHECK(text_at(stats, "host.name", "h"));
    json_decref(stats);
    json_t *denied = form(WEIR__QUERY_DENIED, "{'denials':[{'key':'k','passes':7,'others':[{}],'host':'other'}]}");
    CHECK(text_at(denied, "denials.0.key", "k") && json_is_null(at(denied, "denials.0.passes")));
    CHECK(!at(denied, "denials.0.host") && near(number_at(denied, "denials.0.others.0.limit"), 0));
    json_decref(denied);
}

/* A text of about `size` bytes: a list of the same elements between two texts. */
static char *repeated(const char *before, const char *element, const char *after, size_t size)
{
    size_t len = strlen(before), part = strlen(element);
    char *text = calloc(1, size + 64);
    memcpy(text, before, len);
    for (; len + part + strlen(after) + 1 < size; len += part + 1) {
        memcpy(text + len, element, part);
        text[len + part] = ',';
    }
    memcpy(text + len - 1, after, strlen(after));
    return text;
}

/* A form adds the members that are missing: 3 bytes, {}, would become 30 members. */
/* Of a host whose version does not know leases they are 0. */
TEST(reply_has_what_the_host_leased)
{
    json_t *stats = form(WEIR__QUERY_STATS, "{'store':{'units_leased':9,'units_spent':5,'units_returned':3,"
                                            "'units_expired':1,'lease_waits':'x'}}");
    CHECK(near(number_at(stats, "store.units_leased"), 9) && near(number_at(stats, "store.units_spent"), 5));
    CHECK(near(number_at(stats, "store.units_returned"), 3) && near(number_at(stats, "store.units_expired"), 1));
    CHECK(near(number_at(stats, "store.lease_waits"), 0));
    json_decref(stats);
    stats = form(WEIR__QUERY_STATS, "{'store':{'units_sent':9}}");
    CHECK(near(number_at(stats, "store.units_leased"), 0));
    json_decref(stats);
}

TEST(reply_gets_no_more_members_than_its_text_can_have)
{
    static const char *const lists[][2] = {
        {"{'denials':[", "{}"},       {"{'denials':[{'others':[", "{}"},    {"{'denials':[", "{'others':[{},{},{}]}"},
        {"{'rules':[", "{'hot':{}}"}, {"{'rules':[{'hot':{'near':[", "{}"}, {"{'keys':[", "{}"}};
    static const char *const after[] = {"]}", "]}]}", "]}", "]}", "]}}]}", "]}"};
    static const enum weir__query_kind kinds[] = {WEIR__QUERY_DENIED, WEIR__QUERY_DENIED, WEIR__QUERY_DENIED,
                                                  WEIR__QUERY_STATS,  WEIR__QUERY_STATS,  WEIR__QUERY_HOT_KEYS};
    for (size_t i = 0; i < WEIR__COUNT(lists); i++) {
        char *text = repeated(lists[i][0], lists[i][1], after[i], (size_t)256 << 10);
        CHECK(!form(kinds[i], text));
        free(text);
    }
    /* The shortest that a host sends. */
    char *text = repeated("{'keys':[", "{'key':'','hidden':true,'cut':true,'used':1}", "]}", (size_t)512 << 10);
    json_t *keys = form(WEIR__QUERY_HOT_KEYS, text);
    CHECK(json_array_size(at(keys, "keys")) > 10000);
    json_decref(keys);
    free(text);
}

/* Merges two replies; the sum is the first one. */
static json_t *merged(enum weir__query_kind kind, struct weir__host_query query, const char *one, const char *other)
{
    json_t *replies[] = {form(kind, one), form(kind, other)};
    struct weir__merge merge = {.kind = kind, .query = &query};
    weir__reply_name(kind, replies[0], "here", true);
    weir__reply_name(kind, replies[1], "there", false);
    for (size_t i = 0; i < 2; i++) {
        CHECK(weir__merge_add(&merge, replies[i]));
        json_decref(replies[i]);
    }
    return weir__merge_finish(&merge);
}

TEST(statistics_are_added_by_rule)
{
    json_t *sum = merged(
        WEIR__QUERY_STATS, (struct weir__host_query){.n = 2},
        "{'host':{'name':'here'},'segment':{'bytes':5},'rates':{'1s':{'allowed':1.5,'denied':2}},'hot_seconds':10,"
        "'rules':[{'name':'api','limit':9,'totals':{'allowed':10,'denied':3},'rates':{'1s':{'denied':2},'10s':{"
        "'denied':1}},'hot':{'denied':[{'key':'a','count':30,'error':3},{'key':'b','count':20,'error':1}],"
        "'near':[{'key':'a','used':0.9}],'near_keys':1,'uses':{'keys':4,'tenths':[1,2]}}},"
        "{'name':'api','shadow':true,'totals':{'denied':7}}]}",
        "{'host':{'name':'there'},'segment':{'bytes':7},'rates':{'1s':{'allowed':2.5},'10s':{'shed':1}},"
        "'hot_seconds':30,'hot':true,'rules':[{'name':'other','totals':{'denied':1}},{'name':'api','limit':8,'totals':{"
        "'allowed':1,'denied':4},'rates':{'1s':{'denied':3}},'hot':{'denied':[{'key':'c','count':25,'error':1},{"
        "'key':'a','count':5,'error':4}],'near':[{'key':'a','used':1.5}],'near_keys':2,'uses':{'keys':3,"
        "'tenths':[5,0]}}},{'name':'api','shadow':true,'totals':{'denied':2}}]}");
    CHECK(text_at(sum, "host.name", "here") && near(number_at(sum, "segment.bytes"), 5)); /* gauges stay this host's */
    CHECK(near(number_at(sum, "rates.1s.allowed"), 4) && near(number_at(sum, "rates.10s.shed"), 1));
    CHECK(json_array_size(at(sum, "rules")) == 3 && text_at(sum, "rules.2.name", "other"));
    CHECK(json_integer_value(at(sum, "rules.0.totals.allowed")) == 11 && near(number_at(sum, "rules.0.limit"), 9));
    CHECK(near(number_at(sum, "rules.0.rates.1s.denied"), 5) && near(number_at(sum, "rules.0.rates.10s.denied"), 1));
    CHECK(json_integer_value(at(sum, "rules.1.totals.denied")) == 9 && json_is_true(at(sum, "rules.1.shadow")));
    /* The two heaviest keys of both hosts. */
    CHECK(json_array_size(at(sum, "rules.0.hot.denied")) == 2 && text_at(sum, "rules.0.hot.denied.0.key", "a"));
    CHECK(near(number_at(sum, "rules.0.hot.denied.0.count"), 35) &&
          near(number_at(sum, "rules.0.hot.denied.0.error"), 5));
    CHECK(text_at(sum, "rules.0.hot.denied.1.key", "c") && near(number_at(sum, "rules.0.hot.near.0.used"), 1.5));
    CHECK(near(number_at(sum, "rules.0.hot.near_keys"), 3) && near(number_at(sum, "rules.0.hot.uses.keys"), 7));
    CHECK(near(number_at(sum, "rules.0.hot.uses.tenths.0"), 6) && near(number_at(sum, "hot_seconds"), 30));
    json_decref(sum);
}

/* A host sends neither. Adding keys to a rule searches all that it has: 2,000 times for one invented reply. */
TEST(repeated_rules_and_unwanted_keys_are_left_out)
{
    static const char here[] = "{'rules':[{'name':'api','totals':{'denied':3},'hot':{'denied':[{'key':'a'}]}}]}";
    static const char there[] = "{'rules':[{'name':'api','totals':{'denied':4},'hot':{'denied':[{'key':'b'}]}},"
                                "{'name':'api','totals':{'denied':4},'hot':{'denied':[{'key':'c'}]}},"
                                "{'name':'new','totals':{'denied':5}},{'name':'new','totals':{'denied':5}},"
                                "{'name':'api','shadow':true,'totals':{'denied':6}}]}";
    json_t *sum = merged(WEIR__QUERY_STATS, (struct weir__host_query){.n = 9}, here, there);
    CHECK(json_array_size(at(sum, "rules")) == 3 && near(number_at(sum, "rules.0.totals.denied"), 7));
    CHECK(json_array_size(at(sum, "rules.0.hot.denied")) == 2 && near(number_at(sum, "rules.1.totals.denied"), 5));
    CHECK(json_is_true(at(sum, "rules.2.shadow")) && near(number_at(sum, "rules.2.totals.denied"), 6));
    json_decref(sum);
    sum = merged(WEIR__QUERY_STATS, (struct weir__host_query){0}, here, there);
    CHECK(json_array_size(at(sum, "rules.0.hot.denied")) == 1 && near(number_at(sum, "rules.0.totals.denied"), 7));
    json_decref(sum);
}

TEST(histories_are_added_by_second)
{
    static const char here[] = "{'known':true,'until':100,'step':1,'denied':[1,2,3],'allowed':[0,0,0]}";
    json_t *sum = merged(WEIR__QUERY_HISTORY, (struct weir__host_query){0}, here,
                         "{'known':true,'until':102,'step':1,'denied':[10,20,30],'allowed':[1,1,1]}");
    CHECK(near(number_at(sum, "denied.0"), 1) && near(number_at(sum, "denied.1"), 2)); /* second 98, 99 */
    CHECK(near(number_at(sum, "denied.2"), 13) && near(number_at(sum, "until"), 100)); /* second 100 */
    json_decref(sum);
    sum = merged(WEIR__QUERY_HISTORY, (struct weir__host_query){0}, here,
                 "{'known':true,'until':99,'step':1,'denied':[10,20,30]}");
    CHECK(near(number_at(sum, "denied.0"), 21) && near(number_at(sum, "denied.1"), 32) &&
          near(number_at(sum, "denied.2"), 3));
    json_decref(sum);
    sum = merged(WEIR__QUERY_HISTORY, (struct weir__host_query){0}, here, "{'known':false,'denied':[9,9,9]}");
    CHECK(near(number_at(sum, "denied.0"), 1));
    json_decref(sum);
    sum = merged(WEIR__QUERY_HISTORY, (struct weir__host_query){0}, "{'known':false,'denied':[0,0,0]}", here);
    CHECK(near(number_at(sum, "denied.2"), 3) && near(number_at(sum, "until"), 100) && json_is_true(at(sum, "known")));
    json_decref(sum);
    sum = merged(WEIR__QUERY_HISTORY, (struct weir__host_query){0}, here,
                 "{'known':true,'until':1e300,'step':-1e300,'denied':[9,9,9]}");
    CHECK(near(number_at(sum, "denied.0"), 1));
    json_decref(sum);
}

TEST(hot_keys_are_added_by_key)
{
    json_t *sum = merged(WEIR__QUERY_HOT_KEYS, (struct weir__host_query){.n = 2},
                         "{'rule':'r','known':false,'total':10,'seconds':5,'keys':[{'key':'a','count':6,'error':0}]}",
                         "{'rule':'r','known':true,'total':20,'seconds':9,'keys':[{'key':'b','count':8,'error':0},"
                         "{'key':'a','count':5,'error':0},{'key':'~0','hidden':true,'count':2,'error':0}]}");
    CHECK(json_array_size(at(sum, "keys")) == 2 && text_at(sum, "keys.0.key", "a") &&
          near(number_at(sum, "keys.0.count"), 11) && text_at(sum, "keys.1.key", "b"));
    CHECK(near(number_at(sum, "total"), 30) && near(number_at(sum, "seconds"), 9) && json_is_true(at(sum, "known")));
    json_decref(sum);
}

TEST(each_denied_key_is_listed_with_its_host)
{
    json_t *sum = merged(
        WEIR__QUERY_DENIED, (struct weir__host_query){.n = 2},
        "{'oldest':'2026-02','entries':3,'denied_keys':2,'more':1,'denials':[{'key':'a','last':'2026-03-03'},"
        "{'key':'b','last':'2026-03-01'}]}",
        "{'oldest':'2026-01','entries':4,'denied_keys':4,'denials':[{'key':'c','last':'2026-03-02','host':'here'}],"
        "'warnings':[{'key':'d','last':'2026-03-04'}]}");
    CHECK(text_at(sum, "denials.0.key", "a") && text_at(sum, "denials.0.host", "here"));
    CHECK(text_at(sum, "denials.1.key", "c") && text_at(sum, "denials.1.host", "there") &&
          json_is_false(at(sum, "denials.1.here")));
    CHECK(json_array_size(at(sum, "denials")) == 2 && json_array_size(at(sum, "warnings")) == 0);
    CHECK(near(number_at(sum, "more"), 3) && near(number_at(sum, "entries"), 7) && text_at(sum, "oldest", "2026-01"));
    json_decref(sum);
}

TEST(hash_of_the_key_that_was_looked_for_becomes_its_text)
{
    char digest[WEIR__SUBJECT_DIGEST], text[256];
    const struct weir__host_query query = {.key = WEIR__TEXT("user:42")};
    weir__subject_digest("user:42", digest);
    snprintf(text, sizeof text, "{'denials':[{'key':'~%s','hidden':true},{'key':'~%032d','hidden':true}]}", digest, 0);
    json_t *reply = form(WEIR__QUERY_DENIED, text);
    struct weir__merge merge = {.kind = WEIR__QUERY_DENIED, .query = &query, .hash_keys = true};
    CHECK(weir__merge_add(&merge, reply));
    json_decref(reply);
    reply = weir__merge_finish(&merge);
    CHECK(text_at(reply, "denials.0.key", "user:42") && json_is_false(at(reply, "denials.0.hidden")));
    CHECK(json_is_true(at(reply, "denials.1.hidden")));
    json_decref(reply);
}

/* ---- Replying ---- */

/* The reply of a host that has denied `denied` keys, to a query of denials. */
static json_t *reply_of(const char *store, int denied, const char *query)
{
    char segment[128], ring[160], line[128];
    private_path(segment, sizeof segment, "segment");
    snprintf(ring, sizeof ring, "%s.denials", segment);
    weir_options how = {.segment = {.path = segment, .size = 8 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = "rules: [{ name: none, key: \"${path}\", limit: 0, window: 1h }]\n",
                        .diagnose = test_print_diagnostic,
                        .denial_ring = ring,
                        .denial_bytes = 8 << 20};
    const struct weir__config config = {.store.url = store};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    for (int i = 0; i < denied; i++) {
        snprintf(line, sizeof line, "GET /secret/%d @x-request-id=secret-%d", i, i);
        test_check(engine, line, 0);
    }
    struct weir__snapshot snapshot;
    weir__snapshot_open(&snapshot, engine, segment);
    weir__snapshot_refresh(&snapshot);
    struct weir__host_queries *queries = weir__host_queries_new(&config);
    char *text = weir__host_queries_text(queries, &snapshot, weir__text_of(query));
    json_t *reply = text ? json_loads(text, 0, NULL) : NULL;
    CHECK(text && strlen(text) <= WEIR__QUERY_REPLY_MIN);
    free(text);
    weir__host_queries_free(queries);
    weir__snapshot_close(&snapshot);
    weir_close(engine);
    CHECK(unlink(segment) == 0 && unlink(ring) == 0);
    return reply;
}

#define SMALLEST "{\"v\":1,\"kind\":\"denials\",\"from\":\"\",\"to\":\"\",\"bytes\":1}"

TEST(query_of_few_bytes_does_not_read_the_full_ring)
{
    json_t *reply = reply_of("redis://127.0.0.1:1", 2000, SMALLEST);
    size_t count = json_array_size(at(reply, "reply.denials"));
    CHECK(!at(reply, "error") && count > 10 && count <= 250);
    CHECK(number_at(reply, "reply.more") > 1000);
    json_decref(reply);
}

TEST(store_of_hashes_gets_no_texts)
{
    json_t *open = reply_of("redis://127.0.0.1:1", 1, SMALLEST);
    json_t *hashed = reply_of("redis://127.0.0.1:1?hash_keys=yes", 1, SMALLEST);
    CHECK(text_at(open, "reply.denials.0.path", "/secret/0") && text_at(open, "reply.denials.0.key", "/secret/0") &&
          text_at(open, "reply.denials.0.request_id", "secret-0"));
    CHECK(json_is_null(at(hashed, "reply.denials.0.path")) && json_is_null(at(hashed, "reply.denials.0.request_id")));
    CHECK(*json_string_value(at(hashed, "reply.denials.0.key")) == '~');
    char *text = json_dumps(hashed, 0);
    CHECK(!strstr(text, "secret"));
    free(text);
    json_decref(open);
    json_decref(hashed);
}

/* ---- Gathering without a store ---- */

TEST(host_filter_and_coverage)
{
    struct weir__host_status hosts[] = {
        {.heartbeat = {.id = "0000000000000001", .name = "a"}},
        {.heartbeat = {.id = "0000000000000002", .name = "b\033"}, .via = WEIR__HOST_VIA_STORE},
        {.heartbeat = {.id = "0000000000000003", .name = "c"}, .via = WEIR__HOST_VIA_STORE, .silent = true},
        {.heartbeat = {.id = "0000000000000004", .name = "d"}, .via = WEIR__HOST_VIA_RULES}};
    const struct weir__membership membership = {.hosts = hosts, .count = 4, .agent = true};
    const struct {
        const char *host;
        bool this_host;
        int error;
        const char *coverage;
    } cases[] = {
        {NULL, false, 0, "1 host: a; not included: b\\x1b (no reply), c (silent), d (shares no store with this host)"},
        {NULL, true, 0, "1 host: a"},
        {"a", false, 0, "1 host: a"},
        {"0000000000000001", false, 0, "1 host: a"},
        {"c", false, WEIR__HOST_NO_REPLY, NULL},
        {"e", false, WEIR__HOST_UNKNOWN, NULL}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        const struct weir__host_query query = {.host = cases[i].host, .this_host = cases[i].this_host};
        char text[256];
        json_t *sum = NULL;
        struct weir__gather *gather = weir__gather_begin(&membership, WEIR__QUERY_HISTORY, &query);
        weir__gather_send(gather, NULL);
        CHECK(weir__gather_step(gather));
        CHECK_EQ(weir__gather_finish(gather, strdup("{\"known\":true}"), 0, &sum), cases[i].error);
        if (cases[i].coverage) {
            weir__coverage_text(sum, text, sizeof text);
            CHECK(strcmp(text, cases[i].coverage) == 0);
        }
        json_decref(sum);
    }
    /* This host's own error is that of the result, if no other host replied. */
    json_t *sum;
    struct weir__gather *gather =
        weir__gather_begin(&membership, WEIR__QUERY_DENIED, &(struct weir__host_query){.this_host = true});
    CHECK_EQ(weir__gather_finish(gather, NULL, WEIR_ENOENT, &sum), WEIR_ENOENT);
}

static void take(struct weir__gather *gather, const char *text)
{
    json_t *tree = json_of(text);
    char *sent = json_dumps(tree, JSON_COMPACT);
    weir__gather_take(gather, sent, strlen(sent));
    free(sent);
    json_decref(tree);
}

TEST(replies_are_taken_once_and_up_to_their_bounds)
{
    struct weir__host_status hosts[] = {
        {.heartbeat = {.id = "0000000000000001", .name = "a"}},
        {.heartbeat = {.id = "0000000000000002", .name = "b"}, .via = WEIR__HOST_VIA_STORE},
        {.heartbeat = {.id = "0000000000000003", .name = "c"}, .via = WEIR__HOST_VIA_STORE},
        {.heartbeat = {.id = "0000000000000004", .name = "d"}, .via = WEIR__HOST_VIA_STORE}};
    const struct weir__membership membership = {.hosts = hosts, .count = 4, .agent = true};
    const struct weir__host_query query = {.n = 10};
    struct weir__gather *gather = weir__gather_begin(&membership, WEIR__QUERY_DENIED, &query);
    char coverage[256];
    /* An error without a text is one, and the first reply counts. */
    take(gather, "{'id':'0000000000000002','name':'b','error':''}");
    take(gather, "{'id':'0000000000000002','name':'b','error':''}");
    take(gather, "{'id':'0000000000000002','name':'b','reply':{}}");
    take(gather, "{'id':'0000000000000004','name':'d','reply':{}}");
    /* One that is longer than a reply may be is as none; nor is there room for more than 16 MiB in all. */
    char *text = repeated("{\"id\":\"0000000000000003\",\"name\":\"c\",\"reply\":{},\"x\":[", "0", "]}",
                          WEIR__QUERY_REPLY_MAX + 64);
    CHECK(strlen(text) > WEIR__QUERY_REPLY_MAX);
    weir__gather_take(gather, text, strlen(text));
    for (size_t i = 0; i < WEIR__QUERY_REPLIES / WEIR__QUERY_REPLY_MAX; i++)
        weir__gather_take(gather, text, WEIR__QUERY_REPLY_MAX - 64); /* malformed */
    free(text);
    for (int i = 0; i < 100; i++)
        take(gather, "['0123456789012345678901234567890123456789']");
    take(gather, "{'id':'0000000000000003','name':'c','reply':{}}");
    json_t *sum;
    CHECK_EQ(weir__gather_finish(gather, strdup("{}"), 0, &sum), 0);
    CHECK(strcmp(weir__coverage_text(sum, coverage, sizeof coverage),
                 "2 hosts: a, d; not included: b (its reply is malformed), c (no reply)") == 0);
    json_decref(sum);
}

/* ---- Memory of a query ---- */

static size_t allocated, peak; /* bytes of all JSON trees: now, and the most since weigh() began */

static void *count_malloc(size_t size)
{
    void *memory = malloc(size);
    allocated += malloc_usable_size(memory);
    peak = allocated > peak ? allocated : peak;
    return memory;
}

static void count_free(void *memory)
{
    allocated -= malloc_usable_size(memory);
    free(memory);
}

enum { MANY = 1024 };

/* Gathers the replies of hosts 1 to `count` - 1, which format() writes; host 0 is this one. *bytes: peak of memory. */
static json_t *weigh(enum weir__query_kind kind, int64_t n, size_t count, size_t known,
                     char *(*format)(size_t host, bool own), size_t *bytes)
{
    static struct weir__host_status hosts[MANY];
    for (size_t i = 0; i < known; i++) {
        hosts[i] = (struct weir__host_status){.via = WEIR__HOST_VIA_STORE};
        snprintf(hosts[i].heartbeat.id, sizeof hosts[i].heartbeat.id, "%016zx", i);
        snprintf(hosts[i].heartbeat.name, sizeof hosts[i].heartbeat.name, "host-%zu", i);
    }
    const struct weir__membership membership = {.hosts = hosts, .count = known, .agent = true};
    const struct weir__host_query query = {.n = n, .seconds = 3600, .step = 1};
    json_t *sum = NULL;
    json_malloc_t before_malloc;
    json_free_t before_free;
    json_get_alloc_funcs(&before_malloc, &before_free);
    json_set_alloc_funcs(count_malloc, count_free);
    allocated = peak = 0;
    struct weir__gather *gather = weir__gather_begin(&membership, kind, &query);
    for (size_t i = 1; i < count; i++) {
        char *reply = format(i, false), *text = NULL;
        int len = asprintf(&text, "{\"id\":\"%016zx\",\"name\":\"host-%zu\",\"reply\":%s}", i, i, reply);
        weir__gather_take(gather, text, (size_t)len);
        free(text);
        free(reply);
    }
    CHECK_EQ(weir__gather_finish(gather, format(0, true), 0, &sum), 0);
    *bytes = peak;
    json_set_alloc_funcs(before_malloc, before_free);
    return sum;
}

static size_t hosts_of(const json_t *sum)
{
    return json_array_size(at(sum, "coverage.hosts"));
}

/* ---- Invented replies ---- */

static char *long_numbers(size_t host, bool own)
{
    (void)host;
    return own ? strdup("{}") : repeated("{\"known\":true,\"allowed\":[", "0", "]}", WEIR__QUERY_REPLY_MAX - 200);
}

static char *empty_objects(size_t host, bool own)
{
    (void)host;
    return own ? strdup("{}") : repeated("{\"x\":[", "{}", "]}", WEIR__QUERY_REPLY_MAX - 200);
}

/* Short ones, whose form has many members. */
static char *short_entries(size_t host, bool own)
{
    (void)host;
    return own ? strdup("{}") : repeated("{\"denials\":[", "{\"reason\":\"    \"}", "]}", 2000);
}

/* Rules that no other host has. */
static char *other_rules(size_t host, bool own)
{
    char text[4096] = "{\"rules\":[";
    size_t len = strlen(text);
    for (int i = 0; i < 80 && !own; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s{\"name\":\"%zu.%d\"}", i ? "," : "", host, i);
    snprintf(text + len, sizeof text - len, "]}");
    return strdup(text);
}

TEST(invented_replies_take_little_memory)
{
    static const struct {
        enum weir__query_kind kind;
        size_t count;
        char *(*format)(size_t, bool);
    } cases[] = {{WEIR__QUERY_HISTORY, 32, long_numbers},
                 {WEIR__QUERY_STATS, 32, empty_objects},
                 {WEIR__QUERY_DENIED, MANY, short_entries},
                 {WEIR__QUERY_STATS, MANY, other_rules}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        size_t bytes = 0;
        json_t *sum = weigh(cases[i].kind, 20, cases[i].count, 3, cases[i].format, &bytes);
        CHECK(bytes < (size_t)80 << 20);
        json_decref(sum);
    }
}

TEST(replies_beyond_the_memory_of_a_query_are_missing)
{
    size_t bytes, hosts;
    json_t *sum = weigh(WEIR__QUERY_STATS, 20, MANY, MANY, other_rules, &bytes);
    hosts = hosts_of(sum);
    CHECK(hosts > 50 && hosts < MANY && hosts + json_array_size(at(sum, "coverage.missing")) == MANY);
    CHECK(json_array_size(at(sum, "rules")) == 80 * (hosts - 1)); /* each reply is merged completely or not at all */
    CHECK(text_at(sum, "coverage.missing.0.why", "the replies of all hosts are too large"));
    json_decref(sum);
}

/* ---- Large fleets ---- */

enum { RULES = 100 };
static int hot; /* keys of each list, different ones on each host */

static size_t add_keys(char *to, const char *list, size_t host, int rule)
{
    size_t len = (size_t)sprintf(to, "\"%s\":[", list);
    for (int i = 0; i < hot; i++)
        len +=
            (size_t)sprintf(to + len, "%s{\"key\":\"user:%zu.%d.%d\",\"hidden\":false,\"cut\":false,%s}", i ? "," : "",
                            host, rule, i, *list == 'n' ? "\"used\":0.987" : "\"count\":12345,\"error\":123");
    return len + (size_t)sprintf(to + len, "],");
}

static char *common_rules(size_t host, bool own)
{
    static const char rates[] = "{\"allowed\":12.34,\"delayed\":0.0,\"denied\":1.2,\"shed\":0.0}";
    char *text = malloc(1 << 20);
    size_t len = (size_t)sprintf(text, "{\"rules\":[");
    (void)own;
    for (int i = 0; i < RULES; i++) {
        len += (size_t)sprintf(text + len,
                               "%s{\"name\":\"rule-%d\",\"shadow\":false,\"algorithm\":\"token_bucket\",\"limit\":100,"
                               "\"totals\":{\"allowed\":1,\"delayed\":0,\"denied\":1234,\"listed\":0,\"missing_key\":0,"
                               "\"failures\":0,\"rolled_back\":0,\"shed\":0,\"warnings\":0},\"rates\":{\"1s\":%s,"
                               "\"10s\":%s,\"60s\":%s},\"hot\":{",
                               i ? "," : "", i, rates, rates, rates);
        len += add_keys(text + len, "admitted", host, i);
        len += add_keys(text + len, "denied", host, i);
        len += add_keys(text + len, "near", host, i);
        len +=
            (size_t)sprintf(text + len, "\"near_keys\":5,\"uses\":{\"keys\":5,\"tenths\":[1,2,3,4,5,6,7,8,9,10,11]}}}");
    }
    sprintf(text + len, "]}");
    return text;
}

static char *full_hour(size_t host, bool own)
{
    static const char *const series[] = {"allowed", "delayed", "denied", "shed", "shadow_denied"};
    char *text = malloc(1 << 20);
    size_t len = (size_t)sprintf(text, "{\"known\":true,\"until\":1000000,\"step\":1");
    (void)host;
    (void)own;
    for (size_t i = 0; i < WEIR__COUNT(series); i++) {
        len += (size_t)sprintf(text + len, ",\"%s\":[", series[i]);
        for (int k = 0; k < 3599; k++)
            len += (size_t)sprintf(text + len, "%s1.0", k ? "," : "");
        text[len++] = ']';
    }
    sprintf(text + len, "}");
    return text;
}

TEST(large_fleets_are_merged_completely)
{
    static const struct {
        enum weir__query_kind kind;
        size_t hosts;
        int hot;
    } cases[] = {{WEIR__QUERY_STATS, 200, 1}, {WEIR__QUERY_STATS, 31, 20}, {WEIR__QUERY_HISTORY, 200, 0}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        size_t bytes = 0, hosts = (size_t)test_scaled((int64_t)cases[i].hosts, 31);
        bool stats = cases[i].kind == WEIR__QUERY_STATS;
        hot = cases[i].hot;
        json_t *sum = weigh(cases[i].kind, 20, hosts, hosts, stats ? common_rules : full_hour, &bytes);
        CHECK(hosts_of(sum) == hosts && bytes < (size_t)64 << 20);
        CHECK(near(number_at(sum, stats ? "rules.99.totals.allowed" : "allowed.3598"), (double)hosts));
        CHECK(!stats || json_array_size(at(sum, "rules.99.hot.near")) == 20);
        json_decref(sum);
    }
}

/* ---- Gathering with a store ---- */

static struct weir__gather *sent(struct weir__host_queries *queries)
{
    struct weir__host_status hosts[] = {
        {.heartbeat = {.id = "0000000000000001", .name = "a"}},
        {.heartbeat = {.id = "0000000000000002", .name = "b"}, .via = WEIR__HOST_VIA_STORE}};
    const struct weir__membership membership = {.hosts = hosts, .count = 2, .agent = true};
    struct weir__gather *gather =
        weir__gather_begin(&membership, WEIR__QUERY_DENIED, &(struct weir__host_query){.n = 1});
    weir__gather_send(gather, queries);
    return gather;
}

static void *send_another(void *queries)
{
    return sent(queries);
}

static void end(void *gather)
{
    json_t *sum;
    CHECK_EQ(weir__gather_finish(gather, strdup("{}"), 0, &sum), 0);
    CHECK(json_is_null(at(sum, "coverage.why")));
    json_decref(sum);
}

static int64_t open_queries(void)
{
    redisReply *reply = redisCommand(server.context, "HLEN weir::{keys}:queries");
    int64_t count = reply ? reply->integer : -1;
    freeReplyObject(reply);
    return count;
}

TEST(process_has_at_most_four_open_queries)
{
    char url[200];
    struct weir__gather *gathers[4];
    pthread_t thread;
    void *fifth = NULL;
    if (!server_begin())
        return;
    snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s&deadline=30s&retry_max=50ms", server.socket);
    const struct weir__config config = {.store.url = url};
    struct weir__host_queries *queries = weir__host_queries_new(&config);
    for (size_t i = 0; i < 4; i++)
        gathers[i] = sent(queries);
    CHECK_EQ(pthread_create(&thread, NULL, send_another, queries), 0);
    usleep(100000);
    CHECK_EQ(open_queries(), 4);
    end(gathers[0]);
    CHECK_EQ(pthread_join(thread, &fifth), 0);
    CHECK_EQ(open_queries(), 4);
    for (size_t i = 1; i < 4; i++)
        end(gathers[i]);
    end(fifth);
    CHECK_EQ(open_queries(), 0);
    weir__host_queries_free(queries);
}

TEST_MAIN
