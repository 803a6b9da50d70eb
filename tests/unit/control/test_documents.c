/* Documents: create, read, list, update, delete, history, diff, roll back. */
#include "service.h"

BOTH(rule_is_created_updated_and_deleted)
{
    struct service s = {0};
    service_open(&s, on_postgres);
    CHECK_EQ(rest(&s, "GET /v1/rules/login", NULL), 404);
    CHECK_EQ(rest(&s, "POST /v1/rules?reason=first+one", rule_text("login", 5)), 201);
    CHECK_WORD(&s, "name", "login");
    CHECK_EQ(number(&s, "version"), 1);
    CHECK(strcmp(weir__rest_header(&s.reply, "ETag"), "\"v1\"") == 0);
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("login", 5)), 409);
    CHECK_EQ(rest(&s, "GET /v1/rules/login", NULL), 200);
    CHECK_WORD(&s, "author", "tester");
    CHECK_WORD(&s, "reason", "first one");
    CHECK_WORD(&s, "stage", "draft");
    CHECK_WORD(&s, "text", rule_text("login", 5));

    CHECK_EQ(rest(&s, "PUT /v1/rules/login", rule_text("login", 6)), 428);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/login", "\"v1\"", rule_text("login", 6)), 200);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/login", "\"v1\"", rule_text("login", 7)), 412);
    CHECK(strcmp(weir__rest_header(&s.reply, "ETag"), "\"v2\"") == 0);
    CHECK_EQ(rest_if_match(&s, "PUT /v1/rules/login", "\"v2\"", rule_text("other", 7)), 422);
    CHECK_EQ(rest(&s, "GET /v1/rules/login/versions", NULL), 200);
    CHECK_EQ(number(&s, "items[0].version"), 2);
    CHECK_EQ(number(&s, "items[1].version"), 1);

    CHECK_EQ(rest(&s, "GET /v1/rules/login/diff?from=1&to=2", NULL), 200);
    CHECK_WORD(
        &s, "unified",
        "--- login@1\n+++ login@2\n@@ -1,5 +1,5 @@\n name: login\n match: { path: /login/* }\n key: ip:${client_ip}\n"
        "-limit: 5\n+limit: 6\n window: 1m\n");
    CHECK_WORD(&s, "changes[0].field", "limit");
    CHECK_WORD(&s, "changes[0].from", "5");
    CHECK_WORD(&s, "changes[0].to", "6");
    CHECK_EQ(json_array_size(at(&s, "changes")), 1);

    CHECK_EQ(rest(&s, "POST /v1/rules/login/rollback", "{\"version\":1,\"reason\":\"was better\"}"), 200);
    CHECK_EQ(number(&s, "version"), 3);
    CHECK_EQ(rest(&s, "GET /v1/rules/login", NULL), 200);
    CHECK_WORD(&s, "text", rule_text("login", 5));
    CHECK_EQ(rest(&s, "GET /v1/rules/login?version=2", NULL), 200);
    CHECK_WORD(&s, "text", rule_text("login", 6));
    CHECK_EQ(rest(&s, "GET /v1/rules/login?version=9", NULL), 404);

    CHECK_EQ(rest(&s, "DELETE /v1/rules/login", NULL), 428);
    CHECK_EQ(rest_if_match(&s, "DELETE /v1/rules/login", "\"v2\"", NULL), 412);
    CHECK_EQ(rest_if_match(&s, "DELETE /v1/rules/login", "\"v3\"", NULL), 204);
    CHECK_EQ(rest(&s, "GET /v1/rules/login", NULL), 404);
    CHECK_EQ(rest(&s, "GET /v1/rules/login?version=3", NULL), 200);
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0);
    /* The history continues with a document of the same name. */
    CHECK_EQ(rest(&s, "POST /v1/rules", rule_text("login", 9)), 201);
    CHECK_EQ(number(&s, "version"), 5);

    CHECK_EQ(rest(&s, "GET /v1/audit", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 5);
    CHECK_WORD(&s, "items[0].action", "create");
    CHECK_WORD(&s, "items[1].action", "delete");
    CHECK_WORD(&s, "items[2].action", "rollback");
    CHECK_WORD(&s, "items[2].details.reason", "was better");
    CHECK_WORD(&s, "items[3].action", "update");
    CHECK_WORD(&s, "items[4].object", "login");
    CHECK_WORD(&s, "items[4].who", "tester");
    CHECK_WORD(&s, "items[4].address", "192.0.2.7");
    service_close(&s);
}

BOTH(lists_are_paged_and_filtered)
{
    struct service s = {0};
    char name[32];
    service_open(&s, on_postgres);
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "%s%02d", i % 2 ? "Even_" : "odd%", i);
        CHECK_EQ(rest(&s, "POST /v1/rules", rule_text(name, i + 1)), 201);
    }
    CHECK_EQ(rest(&s, "POST /v1/rules", "identity: { user_id: header:X-User }\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/rules",
                  "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: hour, requests_per_unit: 2 } }\n"),
             201);
    CHECK_WORD(&s, "name", "domain:d");
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=10", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 10);
    CHECK_WORD(&s, "next", "Even_19");
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=10&after=Even_19", NULL), 200);
    CHECK_WORD(&s, "items[0].name", "Even_21");
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=27", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 27);
    CHECK(json_is_null(at(&s, "next")));
    CHECK_EQ(rest(&s, "GET /v1/rules?q=even_", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 12);
    CHECK_EQ(rest(&s, "GET /v1/rules?q=D%25", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 13);
    CHECK_EQ(rest(&s, "GET /v1/rules?q=%25%25", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0);
    CHECK_EQ(rest(&s, "GET /v1/rules?kind=domain", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 1);
    CHECK_EQ(rest(&s, "GET /v1/rules?stage=enforced", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0);
    CHECK_EQ(rest(&s, "POST /v1/rules/Even_01/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "GET /v1/rules?stage=enforced", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 1);
    CHECK_EQ(rest(&s, "GET /v1/rules?stage=draft", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 26);
    CHECK_EQ(rest(&s, "GET /v1/rules?stage=somewhere", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=0", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=x", NULL), 400);
    CHECK_EQ(rest(&s, "GET /v1/rules?limit=99999999999999999999999", NULL), 400);
    service_close(&s);
}

TEST(errors_are_those_of_lint_with_positions)
{
    static const struct {
        const char *text, *field, *message;
        int line, column;
    } cases[] = {
        {"name: a\nlimit: x\nwindow: 1m\n", "limit", "limit", 2, 8},
        {"name: a\nlimit: 1\nwindow: 1m\nmatch:\n  path: [/a, { regex: '(' }]\n", "match.path[1].regex", "parenthesis",
         5, 24},
        {"# a comment\n\n{ name: a, limit: 1,\n  window: never }\n", "window", "window", 4, 11},
        {"name: a\nlimit: 1\nwindow: 1m\nalgoritm: token_bucket\n", "algoritm", "no field", 4, 1},
        {"limit: 1\nwindow: 1m\n", "name", "name", 1, 1},
        {"name: settings\nlimit: 1\nwindow: 1m\n", "name", "service's own", 1, 7},
        {"name: a\n  limit: 1\n", NULL, NULL, 2, 0},
        {"rules:\n  - { name: a, limit: 1, window: 1m }\n", "rules", "one rule", 1, 1},
        {"name: a\nlimit: 1\nwindow: 1m\n--- \nname: b\n", NULL, "one document", 4, 1},
        {"%YAML 1.1\n---\nname: a\nlimit: 1\nwindow: 1m\n", NULL, "one document", 1, 1},
        {"name: a\nlimit: 1\nwindow: 1m\nresponse: { message: \"x\xe2\x80\xa8y\" }\n", NULL, "not seen", 0, 0},
        {"name: a\nlimit: 1\n---\nwindow: 1m\n", NULL, "one document", 3, 1},
        {"name: a\nlimit: 1\n...\nwindow: 1m\n", NULL, "one document", 4, 1},
        {"just text\n", NULL, "map", 1, 1},
        {"", NULL, NULL, -1, -1},
    };
    struct service s = {0};
    service_open(&s, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int before = test_failures;
        CHECK_EQ(rest(&s, "POST /v1/validate", cases[i].text), 422);
        CHECK_WORD(&s, "error.code", "invalid");
        if (cases[i].field)
            CHECK_WORD(&s, "error.errors[0].field", cases[i].field);
        if (cases[i].message)
            CHECK(strstr(word(&s, "error.errors[0].message"), cases[i].message) != NULL);
        if (cases[i].line >= 0)
            CHECK_EQ(number(&s, "error.errors[0].line"), cases[i].line);
        if (cases[i].column > 0)
            CHECK_EQ(number(&s, "error.errors[0].column"), cases[i].column);
        if (before != test_failures)
            printf("  case %zu: %s\n", i, s.reply.body);
    }
    CHECK_EQ(rest(&s, "POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\nalgorithm: token_buckt\n"), 422);
    CHECK_WORD(&s, "error.errors[0].suggestion", "token_bucket");
    CHECK_EQ(rest(&s, "POST /v1/validate", "---\nname: a\r\nlimit: 1\r\nwindow: 1m\n...\n"), 200);
    CHECK_EQ(rest(&s, "POST /v1/validate", "\xef\xbb\xbfname: a\nlimit: 1\nwindow: 1m"), 200);
    CHECK_WORD(&s, "summary", "1 per 1m");
    CHECK_EQ(rest(&s, "POST /v1/validate", "# c\n---\nname: a\nlimit: 1\nwindow: 1m\nkey: \"x\n%y\"\n...\n# end\n"),
             200);
    CHECK_WORD(&s, "summary", "1 per 1m by x %y");
    CHECK_EQ(rest(&s, "POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\nmatch: { path: [/a, nonsense] }\n"), 200);
    CHECK_WORD(&s, "warnings[0].field", "match.path[1]");
    /* A reference to a missing document is no error in a draft; names declared in the settings are known. */
    CHECK_EQ(rest(&s, "POST /v1/rules", "identity:\n  team: header:X-Team\n"), 201);
    CHECK_EQ(rest(&s, "POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\nmatch: { team: red }\n"), 200);
    CHECK_EQ(rest(&s, "POST /v1/validate", "name: a\nlimit: 1\nwindow: 1m\nmatch: { crew: red }\n"), 422);
    service_close(&s);
}

TEST(json_is_stored_as_sent)
{
    struct service s = {0};
    service_open(&s, false);
    const char *body = "{\"name\":\"a\",\"limit\":5,\"window\":\"1m\",\n\t\"match\":{\"path\":\"/a\"}}";
    CHECK_EQ(rest(&s, "POST /v1/rules", body), 201);
    CHECK_EQ(rest(&s, "GET /v1/rules/a", NULL), 200);
    CHECK(strncmp(word(&s, "text"), body, strlen(body)) == 0);
    /* Escapes that YAML does not have. */
    CHECK_EQ(rest(&s, "POST /v1/rules", "{\"name\":\"b\\ud83d\\ude00\",\"limit\":5,\"window\":\"1m\"}"), 201);
    CHECK_WORD(&s, "name", "b\xf0\x9f\x98\x80");
    CHECK_EQ(rest(&s, "GET /v1/rules/b%F0%9F%98%80", NULL), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/b%F0%9F%98%80/publish", "{\"stage\":\"shadow\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules/a/publish", "{\"stage\":\"shadow\"}"), 200);
    CHECK(strstr(file_text(s.path), "    {shadow: true, \"name\":\"a\"") != NULL);
    CHECK_EQ(rest(&s, "POST /v1/rules", "{\"name\":\"c\",\"name\":\"c\"}"), 422);
    CHECK_EQ(rest(&s, "POST /v1/rules", "{\"name\":\"c\",\"limit\":\"x\",\"window\":1}"), 422);
    CHECK_WORD(&s, "error.errors[0].field", "limit");
    /* Settings in flow style are reformatted, as they precede the rules in one file. */
    CHECK_EQ(
        rest(&s, "POST /v1/rules", "{\"identity\":{\"user_id\":\"header:X-User\"},\"block\":{\"keys\":[\"u: 1\"]}}"),
        201);
    CHECK_EQ(rest(&s, "GET /v1/rules/settings", NULL), 200);
    CHECK_WORD(&s, "text",
               "\"identity\":\n  \"user_id\": \"header:X-User\"\n\"block\":\n  \"keys\":\n    - \"u: 1\"\n");
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"enforced\"}"), 200);
    service_close(&s);
}

TEST(response_for_all_rules_is_a_setting)
{
    struct service s = {0};
    service_open(&s, false);
    CHECK_EQ(rest(&s, "POST /v1/rules", "response: { staus: 503 }\n"), 422);
    CHECK_EQ(rest(&s, "POST /v1/rules", "identity: { tier: { from: api_key, file: /etc/plans.csv } }\n"), 422);
    CHECK(strstr(s.reply.body, "rules of a rules service cannot name files"));
    CHECK_EQ(rest(&s, "POST /v1/rules", "{\"response\":{\"status\":503}}"), 201);
    CHECK_WORD(&s, "name", "settings");
    CHECK_WORD(&s, "kind", "settings");
    CHECK_EQ(rest(&s, "POST /v1/rules/settings/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK_EQ(rest(&s, "POST /v1/rules", "name: r\nlimit: 1\nwindow: 1m\nresponse: { status: 400 }\n"), 201);
    CHECK_WORD(&s, "kind", "rule");
    CHECK_EQ(rest(&s, "POST /v1/rules/r/publish", "{\"stage\":\"enforced\"}"), 200);
    CHECK(strstr(file_text(s.path), "\"response\":\n  \"status\": 503\n") != NULL);
    service_close(&s);
}

TEST(concurrent_edit_is_refused)
{
    struct service a = {0}, b = {0};
    service_open(&a, false);
    b = a;
    b.json = NULL;
    memset(&b.reply, 0, sizeof b.reply);
    service_open_again(&b); /* like another process for the database */
    b.user = "other";
    CHECK_EQ(rest(&a, "POST /v1/rules", rule_text("r", 1)), 201);
    CHECK_EQ(rest_if_match(&b, "PUT /v1/rules/r", "\"v1\"", rule_text("r", 2)), 200);
    CHECK_EQ(rest_if_match(&a, "PUT /v1/rules/r", "\"v1\"", rule_text("r", 3)), 412);
    CHECK_EQ(rest(&a, "GET /v1/rules/r", NULL), 200);
    CHECK_WORD(&a, "author", "other");
    service_shut(&b);
    service_close(&a);
}

TEST(diff_turns_the_old_text_into_the_new)
{
    /* Applying the hunks to the old text yields the new one: checked by counting kept and added lines. */
    for (int round = 0; round < 300; round++) {
        char from[2048] = "", to[2048] = "";
        unsigned seed = (unsigned)round;
        for (int i = 0; i < 40; i++) {
            char line[16];
            snprintf(line, sizeof line, "%d\n", (int)(rand_r(&seed) % 12));
            if (rand_r(&seed) % 5)
                strcat(from, line);
            if (rand_r(&seed) % 5)
                strcat(to, line);
        }
        char *diff = weir__diff(from, to, "a", "b"), rebuilt[4096] = "";
        CHECK(diff != NULL);
        const char *old = from, *next;
        size_t line = 1;
        for (const char *c = diff; c && *c; c = next) {
            next = strchr(c, '\n') + 1;
            size_t at_line, count;
            if (sscanf(c, "@@ -%zu,%zu", &at_line, &count) == 2) {
                for (; line < at_line + (count == 0); line++) {
                    strncat(rebuilt, old, strcspn(old, "\n") + 1);
                    old = strchr(old, '\n') + 1;
                }
            } else if (strncmp(c, "---", 3) != 0 && strncmp(c, "+++", 3) != 0) {
                if (*c != '+') {
                    CHECK(strncmp(c + 1, old, (size_t)(next - c - 1)) == 0);
                    old = strchr(old, '\n') + 1;
                    line++;
                }
                if (*c != '-')
                    strncat(rebuilt, c + 1, (size_t)(next - c - 1));
            }
        }
        strcat(rebuilt, old);
        CHECK(strcmp(rebuilt, to) == 0);
        free(diff);
    }
}

TEST_MAIN
