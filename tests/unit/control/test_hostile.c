/* Hostile requests: SQL and script in every field, path tricks, huge and deep bodies, bytes that are not text. */
#include "service.h"

static const char *const nasty[] = {
    "'; DROP TABLE documents; --",
    "\" OR 1=1 --",
    "x'); DELETE FROM audit; --",
    "$1",
    "%s%n",
    "<script>alert(1)</script>",
    "a\\'b",
    "../../etc/passwd",
    "..",
    "%2e%2e",
    "{name}",
    "a;b",
};

static void encode(const char *text, char *to)
{
    for (; *text; text++)
        to += sprintf(to, "%%%02X", (unsigned)(unsigned char)*text);
}

static int64_t count_of(struct service *s, const char *table)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    s->control->db->error = 0;
    int64_t count = weir__db_count(s->control->db, sql);
    CHECK_EQ(s->control->db->error, 0);
    return count;
}

BOTH(no_field_is_executed_as_sql)
{
    struct service s = {0};
    char encoded[256], what[512], body[512];
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("good", 1)), 201);
    for (size_t i = 0; i < sizeof nasty / sizeof *nasty; i++) {
        encode(nasty[i], encoded);
        static const char *const places[] = {"GET /v1/rules/%s",
                                             "GET /v1/rules?q=%s",
                                             "GET /v1/rules?after=%s",
                                             "GET /v1/rules?stage=%s",
                                             "GET /v1/rules?limit=%s",
                                             "GET /v1/rules/%s/versions",
                                             "GET /v1/rules/%s/diff",
                                             "GET /v1/revisions/%s",
                                             "GET /v1/audit?after=%s",
                                             "DELETE /v1/tokens/%s",
                                             "GET /v1/rules/good/diff?from=%s"};
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(what, sizeof what, places[k], encoded);
#pragma GCC diagnostic pop
            int status = rest(&s, what, NULL);
            CHECK(status == 200 || status == 400 || status == 404);
        }
        snprintf(what, sizeof what, "POST /v1/rules?reason=%s", encoded);
        json_t *rule = json_pack("{s:s, s:i, s:s, s:s}", "name", nasty[i], "limit", 1, "window", "1m", "key", nasty[i]);
        char *text = json_dumps(rule, 0);
        s.user = nasty[i];
        int status = rest(&s, what, text);
        s.user = "tester";
        free(text);
        json_decref(rule);
        CHECK(status == 201 || status == 422);
        if (status == 201) { /* then it is stored and shown unchanged */
            snprintf(what, sizeof what, "GET /v1/rules/%s", encoded);
            CHECK_EQ(rest(&s, what, NULL), 200);
            CHECK_WORD(&s, "name", nasty[i]);
            CHECK_WORD(&s, "reason", nasty[i]);
            CHECK_WORD(&s, "author", nasty[i]);
            snprintf(what, sizeof what, "POST /v1/rules/%s/publish", encoded);
            CHECK_EQ(rest(&s, what, "{\"stage\":\"shadow\"}"), 200);
            CHECK_EQ(rest(&s, "GET /v1/rules/published", NULL), 200);
        }
        json_t *token = json_pack("{s:s, s:s}", "name", nasty[i], "role", "viewer");
        text = json_dumps(token, 0);
        CHECK_EQ(rest(&s, "POST /v1/tokens", text), 201);
        free(text);
        json_decref(token);
        snprintf(body, sizeof body, "Bearer weir_%s_x", nasty[i]);
        struct weir__rest_request r = request_of(&s, "GET /v1/rules", NULL, what);
        r.local_user = NULL;
        r.authorization = text_of(body);
        r.address = nasty[i];
        int refused = service_run(&s, &r);
        CHECK(refused == 401 || refused == 429); /* all invalid addresses count as one */
        r.authorization = text_of("");
        snprintf(body, sizeof body, "weir_session=%s", nasty[i]);
        r.cookie = text_of(body);
        refused = service_run(&s, &r);
        CHECK(refused == 401 || refused == 429);
    }
    CHECK_EQ(rest(&s, "GET /v1/rules/good", NULL), 200);
    CHECK(count_of(&s, "audit") > (int64_t)(sizeof nasty / sizeof *nasty));
    CHECK_EQ(count_of(&s, "tokens"), sizeof nasty / sizeof *nasty);
    service_close(&s);
}

/* After a failed statement the rest of a transaction does nothing, and is rolled back. */
BOTH(statements_after_a_failed_one_do_nothing)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("good", 1)), 201);
    struct weir__db *db = s.control->db;
    CHECK_EQ(weir__db_begin(db), 0);
    CHECK_EQ(weir__db_run_with(db, "UPDATE documents SET author = 'first'", NULL, 0), 0);
    CHECK_EQ(db->changed, 1);
    int error = weir__db_run_with(db, "UPDATE no_such_table SET author = 'second'", NULL, 0);
    CHECK(error != 0);
    CHECK_EQ(weir__db_run(db, "SELECT name FROM documents WHERE version = $1", WEIR__N(1)), error);
    CHECK(!weir__db_next(db));
    CHECK_EQ(weir__db_count(db, "SELECT count(*) FROM documents"), 0);
    CHECK_EQ(weir__db_end(db, true), error);
    CHECK(*db->why != 0);
    db->error = 0;
    /* A transaction that is not kept is no error, but leaves nothing behind. */
    CHECK_EQ(weir__db_begin(db), 0);
    CHECK_EQ(weir__db_run_with(db, "UPDATE documents SET author = 'third'", NULL, 0), 0);
    CHECK_EQ(weir__db_end(db, false), 0);
    CHECK_EQ(weir__db_run(db, "SELECT author, shadow_version, version FROM documents WHERE name = $1", WEIR__S("good")),
             0);
    CHECK(weir__db_next(db));
    CHECK(weir__text_is(weir__db_text(db, 0), "tester"));
    CHECK(weir__db_is_null(db, 1) && !weir__db_is_null(db, 2));
    CHECK(weir__text_is(weir__db_text(db, 1), "") && weir__db_number(db, 1) == 0);
    CHECK_EQ(weir__db_number(db, 2), 1);
    CHECK(!weir__db_next(db));
    CHECK(!weir__db_next(db));
    service_close(&s);
}

BOTH(audit_log_is_append_only)
{
    static const char *const wrongs[] = {"UPDATE audit SET who = 'x'",        "DELETE FROM audit",
                                         "UPDATE versions SET text = 'x'",    "DELETE FROM versions",
                                         "UPDATE revisions SET reason = 'x'", "DELETE FROM revision_changes"};
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("good", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/good/publish", "{\"stage\":\"enforced\"}"), 200);
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        CHECK(weir__db_run_with(s.control->db, wrongs[i], NULL, 0) != 0);
        s.control->db->error = 0;
    }
    if (on_postgres)
        CHECK(weir__db_run_with(s.control->db, "TRUNCATE audit", NULL, 0) != 0);
    CHECK_EQ(count_of(&s, "audit"), 2);
    CHECK_EQ(count_of(&s, "versions"), 1);
    service_close(&s);
}

TEST(malformed_paths_and_queries_are_refused)
{
    static const struct {
        const char *what;
        int status;
    } cases[] = {{"GET /", 404},
                 {"GET ", 404},
                 {"GET /v1/rules/", 404},
                 {"GET //v1/rules", 404},
                 {"GET /v1/../v1/rules", 404},
                 {"GET /v1/rules/a/b", 404},
                 {"GET /v1/rules/%", 404},
                 {"GET /v1/rules/%zz", 404},
                 {"GET /v1/rules/a%00b", 404},
                 {"GET /v1/rules/a%0Ab", 404},
                 {"GET /v1/rules/%ff", 404},
                 {"GET /v1/rules/%c0%af", 404},
                 {"GET /v1/rules/%2e%2e%2f%2e%2e", 404},
                 {"GET /v1/rules?q=%", 400},
                 {"GET /v1/rules?q=%ff", 400},
                 {"GET /v1/rules?q=%00", 400},
                 {"GET /v1/rules?&&=&q", 200},
                 {"PATCH /v1/rules", 405},
                 {"DELETE /v1/rules", 405},
                 {"PUT /v1/rules/published", 405},
                 {"get /v1/rules", 405},
                 {"GET /v1/keys/a", 404},
                 {"GET /v1/keys//b", 404},
                 {"GET /v1/keys/a/", 404},
                 {"POST /healthz", 405}};
    struct service s = {0};
    service_open(&s, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = rest(&s, cases[i].what, NULL);
        if (status != cases[i].status)
            printf("  %s: %d\n", cases[i].what, status);
        CHECK_EQ(status, cases[i].status);
        CHECK(s.json != NULL);
    }
    CHECK_EQ(rest(&s, "PATCH /v1/rules/a", NULL), 405);
    CHECK(strcmp(weir__rest_header(&s.reply, "Allow"), "GET, PUT, DELETE") == 0);
    service_close(&s);
}

TEST(bodies_without_authentication_are_short)
{
    struct service s = {0};
    char body[4200];
    service_open(&s, false);
    s.user = NULL;
    for (int over = 0; over < 2; over++) {
        memset(body, ' ', sizeof body);
        memcpy(body, "{\"token\":\"x\"}", 13);
        body[4096 + over] = 0;
        CHECK_EQ(rest(&s, "POST /v1/session", body), over ? 413 : 401);
    }
    CHECK_WORD(&s, "error.code", "too_large");
    service_close(&s);
}

TEST(decoding_never_overruns_its_buffer)
{
    static const struct {
        const char *text;
        size_t size;
        int len; /* or the error */
        const char *decoded;
    } cases[] = {{"", 1, 0, ""},
                 {"a", 1, WEIR__DECODE_LONG, ""},
                 {"abc", 4, 3, "abc"},
                 {"abcd", 4, WEIR__DECODE_LONG, ""},
                 {"%41", 2, 1, "A"},
                 {"x%41", 8, 2, "xA"},
                 {"%41%42%43", 4, 3, "ABC"},
                 {"%41%42%43", 3, WEIR__DECODE_LONG, ""},
                 {"a+b", 8, 3, "a b"},
                 {"ab%", 8, WEIR__DECODE_BROKEN, ""},
                 {"ab%4", 8, WEIR__DECODE_BROKEN, ""},
                 {"ab%4g", 8, WEIR__DECODE_BROKEN, ""},
                 {"ab%g4", 8, WEIR__DECODE_BROKEN, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char to[16];
        memset(to, 'x', sizeof to);
        CHECK_EQ(weir__percent_decode(text_of(cases[i].text), true, to, cases[i].size), cases[i].len);
        CHECK(strcmp(to, cases[i].decoded) == 0);
    }
}

/* Each parameter of each request: one byte more than allowed, and far more. */
TEST(too_long_parameters_are_refused)
{
    static const struct {
        const char *what;
        size_t max; /* largest valid size */
        int status; /* for a value of that size */
    } cases[] = {{"GET /v1/rules?q=", 255, 200},
                 {"GET /v1/rules?after=", 1023, 200},
                 {"GET /v1/rules?stage=", 15, 400},
                 {"GET /v1/rules?kind=", 15, 400},
                 {"GET /v1/rules?limit=", 18, 400},
                 {"DELETE /v1/rules/a?withdraw=", 7, 404},
                 {"DELETE /v1/rules/a?reason=", 1000, 404},
                 {"GET /v1/stats/hot?rule=a&by=", 15, 400},
                 {"GET /v1/stats/hot?rule=a&near=", 7, 501},
                 {"GET /v1/stats/hot?rule=", 1023, 501},
                 {"GET /v1/stats/history?rule=", 1023, 501},
                 {"GET /v1/advice?rule=", 1023, 501},
                 {"GET /v1/denials?about=", 1023, 501},
                 {"GET /v1/queue?state=", 31, 400},
                 {"GET /v1/queue?rule=", 1023, 501}};
    struct service s = {0};
    char *what = malloc(6000);
    service_open(&s, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int escaped = 0; escaped < 2; escaped++) {
            size_t lens[] = {cases[i].max, cases[i].max + 1, cases[i].max + 200, escaped ? 1500 : 5000};
            for (size_t k = 0; k < sizeof lens / sizeof *lens; k++) {
                char *to = what + sprintf(what, "%s", cases[i].what);
                for (size_t n = 0; n < lens[k]; n++)
                    to += sprintf(to, escaped ? "%%61" : "a");
                int status = rest(&s, what, NULL);
                if (status != (k ? 400 : cases[i].status))
                    printf("  %s with %zu bytes: %d\n", cases[i].what, lens[k], status);
                CHECK_EQ(status, k ? 400 : cases[i].status);
                CHECK(s.json != NULL);
            }
        }
    }
    free(what);
    service_close(&s);
}

TEST(excessive_bodies_are_refused)
{
    struct service s = {0};
    size_t size = (size_t)2 << 20;
    char *body = malloc(size + 64), buffer[512];
    service_open(&s, false);
    memset(body, 'a', size);
    body[size] = 0;
    CHECK_EQ(rest(&s, "POST /v1/rules", body), 413);
    body[(1 << 20) - 1] = 0;
    CHECK_EQ(rest(&s, "POST /v1/rules", body), 422);
    /* Deep JSON, deep YAML, many keys, many lines. */
    static const char *const openings[] = {"[", "{\"a\":", "- ", "a: {", "[[", "\"", "&a [*a,", "|\n", "? ", "!!x "};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t used = 0, len = strlen(openings[i]);
        while (used + len < 200000) {
            memcpy(body + used, openings[i], len);
            used += len;
        }
        body[used] = 0;
        struct weir__rest_request r = request_of(&s, "POST /v1/rules", body, buffer);
        for (int json = 0; json < 2; json++) {
            r.content_type = text_of(json ? "application/json" : "application/yaml; charset=utf-8");
            CHECK_EQ(service_run(&s, &r), 422);
            CHECK(json_is_array(at(&s, "error.errors")));
        }
        CHECK_EQ(rest(&s, "POST /v1/tokens", body), 400);
    }
    size_t used = (size_t)sprintf(body, "name: a\nlimit: 1\nwindow: 1m\nmatch:\n  header:\n");
    for (int i = 0; used < 900000; i++)
        used += (size_t)sprintf(body + used, "    x-%d: \"*\"\n", i);
    CHECK_EQ(rest(&s, "POST /v1/validate", body), 422);
    /* Not UTF-8, zero bytes. */
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: \xff\nlimit: 1\nwindow: 1m\n"), 422);
    struct weir__rest_request r = request_of(&s, "POST /v1/rules", "x", buffer);
    r.body = (weir_text){"name: a\0b\nlimit: 1\nwindow: 1m\n", 31};
    CHECK_EQ(service_run(&s, &r), 422);
    r = request_of(&s, "POST /v1/rules", rule_text("a", 1), buffer);
    r.reason = text_of("bad \xff");
    CHECK_EQ(service_run(&s, &r), 400);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0);
    free(body);
    service_close(&s);
}

TEST_MAIN
