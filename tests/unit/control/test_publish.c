/* Publishing: draft, shadow, enforced; revisions; the file for the workers. */
#include "base/clock.h"
#include "service.h"

/* The rules of the published text, as "name limit[ shadow], …" in order. */
static const char *published_rules(struct service *s)
{
    static char summary[4096];
    weir_rules *rules = NULL;
    summary[0] = 0;
    CHECK_EQ(weir_rules_load(s->path, NULL, NULL, &rules), 0);
    for (size_t i = 0; rules && i < weir_rules_count(rules); i++) {
        weir_rule_info info;
        weir_rules_info(rules, i, &info);
        size_t used = strlen(summary);
        snprintf(summary + used, sizeof summary - used, "%s%s %d%s", i ? ", " : "", info.name, (int)info.limit,
                 info.shadow ? " shadow" : "");
    }
    weir_rules_free(rules);
    return summary;
}

#define CHECK_PUBLISHED(s, expected)                                                                                   \
    do {                                                                                                               \
        const char *published_ = published_rules(s);                                                                   \
        if (strcmp(published_, expected) != 0)                                                                         \
            printf("  published: %s\n", published_);                                                                   \
        CHECK(strcmp(published_, expected) == 0);                                                                      \
    } while (0)

BOTH(draft_shadow_enforced)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "GET /v1/rules/published", NULL), 404);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 10)), 201);
    CHECK_EQ(access(s.path, F_OK), -1); /* drafts are not published */
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\",\"reason\":\"go\"}"), 200);
    CHECK_EQ(number(&s, "revision"), 1);
    CHECK(json_is_true(at(&s, "written")));
    CHECK_PUBLISHED(&s, "a 1");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 409);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "\"v1\"", rule_text("a", 2)), 200);
    CHECK_PUBLISHED(&s, "a 1");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"shadow\"}"), 200);
    CHECK_PUBLISHED(&s, "a 1, a 2 shadow");
    CHECK_EQ(rest(&s, "GET /v1/rules/a", NULL), 200);
    CHECK_WORD(&s, "stage", "shadow");
    CHECK_EQ(number(&s, "enforced_version"), 1);
    CHECK_EQ(number(&s, "shadow_version"), 2);
    CHECK_EQ(rest(&s, "POST /v1/rules/b/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\",\"version\":2}"), 200);
    CHECK_PUBLISHED(&s, "a 2, b 10");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\",\"version\":7}"), 404);
    CHECK_EQ(rest(&s, "POST /v1/rules/c/publish", "{\"stage\":\"enforced\"}"), 404);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"live\"}"), 400);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\",\"x\":1}"), 400);

    /* A published document cannot be deleted by accident. */
    CHECK_EQ(rest_if_match(&s, "DELETE /v1/rules/a", "\"v2\"", NULL), 409);
    CHECK_EQ(rest_if_match(&s, "DELETE /v1/rules/a?withdraw=true", "\"v2\"", NULL), 204);
    CHECK_PUBLISHED(&s, "b 10");

    /* Rolls back to an earlier revision, and continues from there. */
    CHECK_EQ(rest(&s, "GET /v1/revisions", NULL), 200);
    CHECK_EQ(number(&s, "items[0].revision"), 5);
    CHECK_EQ(number(&s, "items[4].revision"), 1);
    CHECK_WORD(&s, "items[4].reason", "go");
    CHECK_EQ(rest(&s, "GET /v1/revisions/2", NULL), 200);
    CHECK(strstr(word(&s, "text"), "shadow: true") != NULL);
    CHECK_EQ(rest(&s, "GET /v1/revisions/77", NULL), 404);
    CHECK_EQ(rest(&s, "POST /v1/revisions/77/rollback", NULL), 404);
    CHECK_EQ(rest(&s, "POST /v1/revisions/2/rollback", "{\"reason\":\"was right\"}"), 200);
    CHECK_EQ(number(&s, "revision"), 6);
    CHECK_PUBLISHED(&s, "a 1, a 2 shadow");
    CHECK_EQ(rest(&s, "POST /v1/revisions/4/rollback", NULL), 200);
    CHECK_PUBLISHED(&s, "a 2, b 10");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"draft\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/b/publish", "{\"stage\":\"draft\"}"), 200);
    CHECK_PUBLISHED(&s, ""); /* an empty set is a set, too */
    service_close(&s);
}

BOTH(one_version_is_unpublished)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "\"v1\"", rule_text("a", 2)), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\",\"version\":1}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"shadow\",\"version\":2}"), 200);
    CHECK_PUBLISHED(&s, "a 1, a 2 shadow");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"draft\",\"version\":3}"), 409); /* is not published */
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"draft\",\"version\":2}"), 200);
    CHECK_PUBLISHED(&s, "a 1");
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"shadow\",\"version\":2}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"draft\",\"version\":1}"), 200);
    CHECK_PUBLISHED(&s, "a 2 shadow");
    service_close(&s);
}

BOTH(hosts_poll_the_published_set)
{
    struct service s = {0};
    char buffer[512], etag[64];
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "GET /v1/rules/published", NULL), 200);
    CHECK(strcmp(weir__rest_header(&s.reply, "Content-Type"), "application/yaml") == 0);
    CHECK(strcmp(weir__rest_header(&s.reply, "X-Weir-Revision"), "1") == 0);
    CHECK(strstr(file_text(s.path), s.reply.body) != NULL);
    snprintf(etag, sizeof etag, "%s", weir__rest_header(&s.reply, "ETag"));
    struct weir__rest_request r = request_of(&s, "GET /v1/rules/published", NULL, buffer);
    r.if_none_match = text_of(etag);
    CHECK_EQ(service_run(&s, &r), 304);
    CHECK_EQ(s.reply.len, 0);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(service_run(&s, &r), 304);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(service_run(&s, &r), 200);
    service_close(&s);
}

TEST(published_text_has_every_kind_of_document)
{
    struct service s = {0};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "POST /v1/rules", "# who\nidentity:\n  team: header:X-Team\nallow: { networks: [192.0.2.0/24] }"),
             201);
    CHECK_EQ(rest(&s, "POST /v1/rules",
                  "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: hour, requests_per_unit: 2 }\n"),
             201);
    CHECK_EQ(
        rest(&s, "POST /v1/rules",
             "  # indented\n  name: a\n  limit: 1\n  window: 1m\n  key: ${team}\n  response:\n    message: |\n     "
             " two\n\n"
             "      lines\n"),
        201);
    CHECK_EQ(rest(&s, "POST /v1/rules", "# flow\n{ name: b, limit: 2,\nwindow: 1m, shadow: false }"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_PUBLISHED(&s, "");
    CHECK_EQ(rest(&s, "POST /v1/rules/domain%3Ad/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/domain:d/publish", "{\"stage\":\"shadow\"}"), 409);
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"shadow\"}"), 409);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"shadow\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/b/publish", "{\"stage\":\"shadow\"}"), 200);
    CHECK_PUBLISHED(&s, "a 1 shadow, b 2 shadow, d.k 2");
    CHECK(strstr(file_text(s.path), "      lines\n      shadow: true\n") != NULL);
    CHECK(strstr(file_text(s.path), "window: 1m, shadow: true }") != NULL);
    service_close(&s);
}

TEST(a_set_with_errors_is_not_published)
{
    struct service s = {0};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "POST /v1/rules", "identity:\n  team: header:X-Team\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: a\n\nmatch:\n  team: red\nlimit: 1\nwindow: 1m\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    /* An error in another document, with its own line numbers. */
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"draft\"}"), 422);
    CHECK_WORD(&s, "error.errors[0].document", "a");
    CHECK_WORD(&s, "error.errors[0].field", "match.team");
    CHECK_EQ(number(&s, "error.errors[0].line"), 4);
    CHECK_EQ(number(&s, "error.errors[0].column"), 3);
    CHECK_PUBLISHED(&s, "a 1");
    CHECK_EQ(rest(&s, "GET /v1/rules/settings", NULL), 200);
    CHECK_WORD(&s, "stage", "enforced"); /* the failed publication left no trace */
    /* Names that collide only in the complete set. */
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: m\nlimits:\n  - { limit: 1, window: 1m, name: x }\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: m/x\nlimit: 1\nwindow: 1m\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/m/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/m%2Fx/publish", "{\"stage\":\"enforced\"}"), 422);
    CHECK(strstr(word(&s, "error.errors[0].message"), "taken by the rule at m:") != NULL);
    CHECK_WORD(&s, "error.errors[0].document", "m/x");
    service_close(&s);
}

BOTH(workers_file_is_repaired_at_start)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    static char before[1 << 16];
    snprintf(before, sizeof before, "%s", file_text(s.path));
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/a", "*", rule_text("a", 2)), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    /* As after a crash between commit and rename; with the file missing; and with a truncated file. */
    for (int way = 0; way < 3; way++) {
        service_shut(&s);
        FILE *file = fopen(s.path, "w");
        if (way == 0)
            fputs(before, file);
        if (way == 2)
            fprintf(file, "%.*s", (int)strlen(before) / 2, before);
        fclose(file);
        if (way == 1)
            unlink(s.path);
        service_open_again(&s);
        CHECK_PUBLISHED(&s, "a 2");
        CHECK_EQ(rest(&s, "GET /healthz", NULL), 200);
        CHECK_EQ(number(&s, "revision"), 2);
    }
    service_close(&s);
}

/* The agent of another host on the same database. */
BOTH(other_agents_see_the_publication)
{
    struct service a = {0}, b = {0};
    service_open(&a, on_postgres);
    b = a;
    snprintf(b.path, sizeof b.path, "%s/other.yaml", b.folder);
    service_open_again(&b);
    memset(&b.reply, 0, sizeof b.reply);
    b.json = NULL;
    CHECK_EQ(rest(&a, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&a, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(weir__control_tick(b.control), 0);
    CHECK_PUBLISHED(&b, "a 1");
    CHECK_EQ(rest(&b, "POST /v1/rules/a/publish", "{\"stage\":\"draft\"}"), 200);
    CHECK_EQ(weir__control_tick(a.control), 0);
    CHECK_PUBLISHED(&a, "");
    service_shut(&b);
    service_close(&a);
}

/* Several documents at once: one revision, all or nothing. */
BOTH(several_documents_are_one_revision)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("c", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/revisions",
                  "{\"stage\":\"enforced\",\"reason\":\"all\",\"documents\":"
                  "[{\"name\":\"a\"},{\"name\":\"b\",\"version\":1},"
                  "{\"name\":\"c\",\"stage\":\"shadow\"}]}"),
             201);
    CHECK_EQ(number(&s, "revision"), 1);
    CHECK(json_is_true(at(&s, "written")));
    CHECK_EQ(json_array_size(at(&s, "documents")), 3);
    CHECK_EQ(number(&s, "documents[1].enforced_version"), 1);
    CHECK_EQ(number(&s, "documents[2].shadow_version"), 1);
    CHECK(json_is_true(at(&s, "documents[2].changed")));
    CHECK(strstr(file_text(s.path), "name: a\n") && strstr(file_text(s.path), "name: b\n"));
    CHECK_EQ(rest(&s, "GET /v1/revisions", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 1);
    CHECK_WORD(&s, "items[0].reason", "all");
    CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
    CHECK_WORD(&s, "items[0].action", "publish");
    CHECK_WORD(&s, "items[2].object", "a");
    /* An unchanged document may be included; if none changes anything, nothing is published. */
    CHECK_EQ(
        rest(&s, "POST /v1/revisions", "{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"},{\"name\":\"c\"}]}"),
        201);
    CHECK(json_is_false(at(&s, "documents[0].changed")));
    CHECK(json_is_true(at(&s, "documents[1].changed")));
    CHECK_EQ(number(&s, "documents[1].shadow_version"), 0);
    CHECK_EQ(rest(&s, "POST /v1/revisions", "{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"}]}"), 409);
    CHECK_WORD(&s, "error.code", "unchanged");
    /* Rolls back to an earlier revision completely. */
    CHECK_EQ(rest(&s, "POST /v1/revisions",
                  "{\"stage\":\"draft\",\"documents\":[{\"name\":\"a\"},"
                  "{\"name\":\"b\"},{\"name\":\"c\"}]}"),
             201);
    CHECK(strstr(file_text(s.path), "name: a\n") == NULL);
    CHECK_EQ(rest(&s, "POST /v1/revisions/1/rollback", "{}"), 200);
    CHECK(strstr(file_text(s.path), "name: a\n") && strstr(file_text(s.path), "shadow: true"));
    service_close(&s);
}

BOTH(several_documents_are_all_or_nothing)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules",
                  "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: day, requests_per_unit: 5"
                  " } } ]\n"),
             201);
    /* A rule that needs an identity which the resulting set lacks. */
    CHECK_EQ(rest(&s, "POST /v1/rules", "identity: { who: header:X-Who }\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: w\nmatch:\n  who: me\nlimit: 1\nwindow: 1m\n"), 201);
    static const struct {
        const char *body, *code;
        int status;
    } wrong[] = {
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"},{\"name\":\"none\"}]}", "no_document", 404},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"},{\"name\":\"w\",\"version\":7}]}", "no_version", 404},
        {"{\"stage\":\"shadow\",\"documents\":[{\"name\":\"a\"},{\"name\":\"domain:d\"}]}", "no_shadow", 409},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"},{\"name\":\"w\"}]}", "invalid", 422},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"},{\"name\":\"a\"}]}", "twice", 400},
        {"{\"documents\":[{\"name\":\"a\"}]}", "bad_stage", 400},
        {"{\"stage\":\"later\",\"documents\":[{\"name\":\"a\"}]}", "bad_stage", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\",\"version\":-1}]}", "bad_version", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\",\"version\":\"1\"}]}", "bad_version", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\",\"limit\":1}]}", "bad_member", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\\nb\"}]}", "bad_name", 400},
        {"{\"stage\":\"enforced\",\"documents\":[\"a\"]}", "bad_name", 400},
        {"{\"stage\":\"enforced\",\"documents\":[]}", "bad_documents", 400},
        {"{\"stage\":\"enforced\",\"documents\":{\"name\":\"a\"}}", "bad_documents", 400},
        {"{\"stage\":\"enforced\"}", "bad_documents", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"}],\"reason\":7}", "bad_reason", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"}],\"name\":\"a\"}", "bad_member", 400},
        {"{\"stage\":\"enforced\",\"documents\":[{\"name\":\"a\"}", "bad_json", 400},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_EQ(rest(&s, "POST /v1/revisions", wrong[i].body), wrong[i].status);
        CHECK_WORD(&s, "error.code", wrong[i].code);
    }
    CHECK_EQ(rest(&s, "GET /v1/revisions", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0); /* none of this was published */
    CHECK_EQ(rest(&s, "GET /v1/rules/a", NULL), 200);
    CHECK_EQ(number(&s, "enforced_version"), 0);
    CHECK(*file_text(s.path) == 0);
    CHECK_EQ(rest(&s, "POST /v1/revisions",
                  "{\"stage\":\"enforced\",\"documents\":[{\"name\":\"w\"},"
                  "{\"name\":\"settings\"}]}"),
             201); /* in any order */
    service_close(&s);
}

/* The database is replaced by a copy from before the last publications. */
TEST(restored_from_an_old_copy)
{
    struct service s = {0};
    char command[512];
    service_open(&s, false);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("a", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"enforced\"}"), 200);
    service_shut(&s);
    snprintf(command, sizeof command, "cp %s/rules.db %s/copy", s.folder, s.folder);
    CHECK_EQ(system(command), 0);
    service_open_again(&s);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("b", 2)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/b/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_PUBLISHED(&s, "a 1, b 2");
    /* While the service runs: it notices that the file was replaced. */
    snprintf(command, sizeof command, "cd %s && rm -f rules.db-wal rules.db-shm && mv copy rules.db", s.folder);
    CHECK_EQ(system(command), 0);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("c", 3)), 503);
    s.control->tried_ms = 0;
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"draft\"}"),
             409); /* also before any other request has noticed it */
    CHECK_WORD(&s, "error.code", "database_restored");
    CHECK_EQ(weir__control_tick(s.control), 0);
    CHECK_PUBLISHED(&s, "a 1, b 2"); /* the published set stays */
    CHECK_EQ(rest(&s, "GET /healthz", NULL), 200);
    CHECK(json_is_true(at(&s, "database_restored")));
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("c", 3)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/c/publish", "{\"stage\":\"enforced\"}"), 409);
    CHECK_WORD(&s, "error.code", "database_restored");
    CHECK_PUBLISHED(&s, "a 1, b 2");
    /* Also after a restart, and until an operator decides. */
    service_shut(&s);
    service_open_again(&s);
    CHECK_PUBLISHED(&s, "a 1, b 2");
    CHECK_EQ(rest(&s, "POST /v1/revisions/1/rollback", NULL), 200);
    CHECK_EQ(number(&s, "revision"), 3); /* revision numbers are not reused */
    CHECK_PUBLISHED(&s, "a 1");
    CHECK_EQ(rest(&s, "POST /v1/rules/c/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_PUBLISHED(&s, "a 1, c 3");
    service_close(&s);
}

TEST(ten_thousand_rules)
{
    struct service s = {0};
    enum { RULES = 10000 };
    char name[32];
    service_open(&s, false);
    CHECK_EQ(weir__db_begin(s.control->db), 0);
    for (int i = 0; i < RULES; i++) {
        snprintf(name, sizeof name, "rule-%05d", i);
        weir__db_run(s.control->db,
                     "INSERT INTO documents (name, kind, version, deleted, enforced_version, author, at, summary,"
                     " folded) VALUES ($1, 'rule', 1, 0, 1, $2, 1, $2, $1)",
                     WEIR__S(name), WEIR__S("some"));
        weir__db_run(s.control->db,
                     "INSERT INTO versions (name, version, text, author, at, reason)"
                     " VALUES ($1, 1, $2, 'some', 1, '')",
                     WEIR__S(name), WEIR__S(rule_text(name, i + 1)));
    }
    CHECK_EQ(weir__db_end(s.control->db, true), 0);
    int64_t start = weir__wall_ms();
    char buffer[512];
    struct weir__rest_reply reply;
    struct weir__rest_request r = request_of(&s, "GET /v1/rules?limit=10000", NULL, buffer);
    weir__rest_run(s.control, &r, &reply); /* without the test's own parsing of the reply */
    int64_t listed = weir__wall_ms() - start;
    weir__rest_free(&reply);
    CHECK_EQ(service_run(&s, &r), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), RULES);
    start = weir__wall_ms();
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=100&q=-0999", NULL), 200);
    int64_t filtered = weir__wall_ms() - start;
    CHECK_EQ(json_array_size(at(&s, "items")), 10);
    start = weir__wall_ms();
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("rule-x", 1)), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules/rule-x/publish", "{\"stage\":\"enforced\"}"), 200);
    printf("  %d rules: listed in %d ms, filtered in %d ms, one more published in %d ms\n", RULES, (int)listed,
           (int)filtered, (int)(weir__wall_ms() - start));
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_load(s.path, NULL, NULL, &rules), 0);
    CHECK_EQ(rules ? weir_rules_count(rules) : 0, RULES + 1);
    weir_rules_free(rules);
    service_close(&s);
}

TEST_MAIN
