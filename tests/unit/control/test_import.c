/* Importing rule files into an empty database: they are published unchanged. */
#include "service.h"

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static const char first[] =
    "# comment\n"
    "identity: { user_id: header:X-User, client_ip: { trusted_proxies: [10.0.0.0/8] } }\n"
    "rules:\n"
    "  - name: a\n"
    "    match: { path: [/a/*, { regex: '^/b\"[0-9]+' }], header: { X-Debug: absent, X-B: \"absent\" } }\n"
    "    limit: { free: 5, default: 10 }\n"
    "    window: 1m\n"
    "    response: { message: \"line\\nbreak\\u2028 x\", headers: [] }\n"
    "  - { name: a, shadow: true, limit: 7, window: 1m }\n"
    "  # why it is there\n"
    "  - { name: a-only, shadow: true, limit: 8, window: 1m, key: '${user_id}: x',\n"
    "      match: { header: { X-Debug: absent, X-B: \"absent\" } }, response: { message: \"line\\nbreak\\u2028 x\" } "
    "}\n";
static const char second[] =
    "block: { keys: [\"user:1\"] }\nrules:\n# of b\n- name: b\n  limits:\n  - { limit: 1, window: 1s }\n"
    "  - { limit: 10, window: 1h }\n";
static const char third[] =
    "domain: d\ndescriptors:\n  - key: k # kept\n    rate_limit: { unit: hour, requests_per_unit: 2 }\n";

static void describe(const char *path, char *described, size_t size)
{
    weir_rules *rules = NULL;
    size_t used = 0;
    CHECK_EQ(weir_rules_load(path, NULL, NULL, &rules), 0);
    for (size_t i = 0; rules && i < weir_rules_count(rules); i++) {
        weir_rule_info info;
        weir_rules_info(rules, i, &info);
        used += (size_t)snprintf(described + used, size - used, "%s %d %d %s %d; ", info.name, (int)info.limit,
                                 info.shadow, info.key, info.by_tier);
    }
    weir_rules_free(rules);
}

/* True if an import has this outcome, with a database. */
static bool imports(struct weir__control *control, const char *path, int rules_error, size_t documents)
{
    struct weir__named_rules named = {.path = path};
    struct weir__documents read;
    size_t count;
    struct weir__import_result result = {.rules_error =
                                             weir__named_rules_read(&named, false, NULL, NULL, &read, &count)};
    if (!result.rules_error)
        result = weir__control_import(control, &named, &read, "import", NULL, NULL, NULL);
    weir__documents_free(&read);
    return result.rules_error == rules_error && !result.no_database && result.documents == documents;
}

BOTH(files_become_documents)
{
    struct service s = {0};
    char rules[128], before[1024], after[1024];
    service_open(&s, on_postgres);
    snprintf(rules, sizeof rules, "%s/rules.d", s.folder);
    CHECK_EQ(mkdir(rules, 0700), 0);
    put_file(rules, "1.yaml", first);
    put_file(rules, "2.yml", second);
    put_file(rules, "3.yaml", third);
    put_file(rules, "4.txt", "nothing");
    CHECK(imports(s.control, rules, 0, 5));
    describe(rules, before, sizeof before);
    describe(s.path, after, sizeof after);
    if (strcmp(before, after) != 0)
        printf("  %s\n  %s\n", before, after);
    CHECK(strcmp(before, after) == 0);
    CHECK_EQ(rest(&s, "GET /v1/rules/a?version=1", NULL), 200);
    CHECK_EQ(number(&s, "enforced_version"), 1);
    CHECK_EQ(number(&s, "shadow_version"), 2);
    CHECK(strstr(word(&s, "text"), "limit: { free: 5, default: 10 }\n") != NULL); /* as written in the file */
    CHECK_EQ(rest(&s, "GET /v1/rules/a-only", NULL), 200);
    CHECK_WORD(&s, "stage",
               "shadow"); /* the document itself does not contain `shadow`, so that it can be enforced later */
    CHECK(strstr(word(&s, "text"), "shadow") == NULL);
    CHECK(strstr(word(&s, "text"), "    X-Debug: absent\n    X-B: \"absent\"\n") != NULL);
    CHECK(strstr(word(&s, "text"), "\"line\\x0abreak\\L x\"") != NULL);
    CHECK_EQ(rest(&s, "GET /v1/rules/b", NULL), 200);
    CHECK_WORD(&s, "text", "# of b\nname: b\nlimits:\n- { limit: 1, window: 1s }\n- { limit: 10, window: 1h }\n");
    CHECK_EQ(rest(&s, "GET /v1/rules/domain:d", NULL), 200);
    CHECK(strstr(word(&s, "text"), "# kept") != NULL);
    CHECK_EQ(rest(&s, "GET /v1/rules/settings", NULL), 200);
    CHECK(strstr(word(&s, "text"), "block: { keys: [\"user:1\"] }\n") != NULL);
    CHECK_EQ(rest(&s, "POST /v1/rules/a-only/publish", "{\"stage\":\"enforced\"}"), 200);
    /* A second import does nothing. */
    CHECK(imports(s.control, rules, 0, 0));
    CHECK_EQ(rest(&s, "POST /v1/revisions/1/rollback", NULL), 200);
    describe(s.path, after, sizeof after);
    CHECK(strcmp(before, after) == 0);
    service_close(&s);
}

TEST(invalid_files_change_nothing)
{
    struct service s = {0};
    char path[128];
    service_open(&s, false);
    put_file(s.folder, "x.yaml", "rules: [{ name: a, limit: x, window: 1m }]\n");
    snprintf(path, sizeof path, "%s/x.yaml", s.folder);
    CHECK(imports(s.control, path, WEIR_ERULES, 0));
    put_file(s.folder, "x.yaml",
             "rules: [{ name: a, limit: 1, window: 1m }, { name: published, limit: 1, window: 1m }]\n");
    CHECK(imports(s.control, path, WEIR_ERULES, 0));
    CHECK(imports(s.control, "/nowhere", WEIR_ERULES, 0));
    put_file(s.folder, "plans.csv", "a,pro\n"); /* hosts would not have it */
    put_file(s.folder, "x.yaml",
             "identity: { tier: { from: api_key, file: plans.csv } }\nrules: [{ name: a, limit: 1, window: 1m }]\n");
    CHECK(imports(s.control, path, WEIR_ERULES, 0));
    CHECK_EQ(rest(&s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&s, "items")), 0);
    CHECK_EQ(access(s.path, F_OK), -1);
    service_close(&s);
}

TEST_MAIN
