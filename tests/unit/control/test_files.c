/* Rules in files: the service shows them with their places, follows changes, and changes none. */
#include "service.h"

struct files {
    struct service s;
    char rules[128];
    struct weir__named_rules named;
};

static void put_file(const struct files *f, const char *name, const char *text)
{
    char path[256], fresh[300];
    snprintf(path, sizeof path, "%s/%s", f->rules, name);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    fputs(text, file);
    fclose(file);
    CHECK_EQ(rename(fresh, path), 0); /* another file: no two states look the same */
}

static void open_again(struct files *f)
{
    struct weir__control_options options = {.url = f->s.url, .files = &f->named, .host = f->s.host};
    CHECK_EQ(weir__control_open(&options, &f->s.control), 0);
}

static void files_open(struct files *f)
{
    *f = (struct files){0};
    service_open(&f->s, false);
    service_shut(&f->s);
    snprintf(f->rules, sizeof f->rules, "%s/rules.d", f->s.folder);
    CHECK_EQ(mkdir(f->rules, 0700), 0);
    f->named = (struct weir__named_rules){.path = f->rules, .file = "weir.yaml"};
    put_file(f, "1.yaml",
             "identity: { user_id: header:X-User }\nrules:\n  # why\n  - { name: a, limit: 5, window: 1m }\n"
             "  - { name: a, shadow: true, limit: 7, window: 1m }\n");
    put_file(f, "2.yml", "rules:\n- name: b\n  limit: 1\n  window: 1s\n");
    open_again(f);
}

static const char *path_of(const struct files *f, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", f->rules, name);
    return path;
}

/* The ETag of the published set. */
static void published_tag(struct files *f, char tag[64])
{
    CHECK_EQ(rest(&f->s, "GET /v1/rules/published", NULL), 200);
    const char *found = weir__rest_header(&f->s.reply, "ETag");
    snprintf(tag, 64, "%s", found ? found : "");
}

TEST(documents_have_places)
{
    struct files f;
    files_open(&f);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 3);
    CHECK_WORD(&f.s, "items[0].name", "a");
    CHECK_WORD(&f.s, "items[0].file", path_of(&f, "1.yaml"));
    CHECK_EQ(number(&f.s, "items[0].line"), 5); /* the current version is the shadow */
    CHECK_EQ(number(&f.s, "items[0].enforced_version"), 1);
    CHECK_EQ(number(&f.s, "items[0].shadow_version"), 2);
    CHECK_WORD(&f.s, "items[1].file", path_of(&f, "2.yml"));
    CHECK_EQ(number(&f.s, "items[1].line"), 2);
    CHECK_WORD(&f.s, "items[2].name", "settings");
    CHECK_EQ(number(&f.s, "items[2].line"), 1);
    CHECK_WORD(&f.s, "files.path", f.rules);
    CHECK_EQ(json_array_size(at(&f.s, "files.errors")), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules/a?version=1", NULL), 200);
    CHECK_WORD(&f.s, "text", "# why\n{ name: a, limit: 5, window: 1m }\n");
    CHECK(strstr(word(&f.s, "reason"), "1.yaml:4") != NULL); /* behind the comment */
    CHECK_EQ(rest(&f.s, "GET /v1/rules/a/versions", NULL), 200);
    CHECK_EQ(rest(&f.s, "GET /v1/rules/a/diff?from=1&to=2", NULL), 200);
    CHECK_EQ(rest(&f.s, "GET /v1/revisions/1", NULL), 200);
    CHECK(strstr(word(&f.s, "text"), "shadow: true") != NULL);
    CHECK_EQ(rest(&f.s, "POST /v1/validate", "{\"name\":\"c\",\"limit\":1,\"window\":\"1s\"}"), 200);
    CHECK_EQ(rest(&f.s, "GET /healthz", NULL), 200);
    CHECK_WORD(&f.s, "rules", "files");
    CHECK_EQ(number(&f.s, "revision"), 1);
    CHECK_EQ(rest(&f.s, "GET /v1/session", NULL), 200);
    CHECK_WORD(&f.s, "rules", "files");
    service_close(&f.s);
}

/* Every write that is about rules; tokens and the audit log are those of the database, as ever. */
TEST(nothing_about_rules_is_changed)
{
    static const char *const writes[] = {"POST /v1/rules",
                                         "PUT /v1/rules/a",
                                         "DELETE /v1/rules/a?withdraw=true",
                                         "POST /v1/rules/a/rollback",
                                         "POST /v1/rules/a/publish",
                                         "POST /v1/revisions",
                                         "POST /v1/revisions/1/rollback"};
    struct files f;
    size_t about_rules = 0;
    files_open(&f);
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        CHECK_EQ(rest_if_match(&f.s, writes[i], "*", "{\"name\":\"c\",\"limit\":1,\"window\":\"1s\",\"version\":1}"),
                 409);
        CHECK_WORD(&f.s, "error.code", "rules_are_files");
        CHECK(strstr(word(&f.s, "error.message"), f.rules) && strstr(word(&f.s, "error.message"), "weir rules import"));
    }
    for (size_t i = 0; i < weir__route_count; i++)
        about_rules += weir__route_is_of_rules(&weir__routes[i]) && weir__routes[i].role >= WEIR__EDITOR;
    CHECK_EQ(about_rules, sizeof writes / sizeof *writes); /* a new route belongs into the list above */
    CHECK_EQ(rest(&f.s, "POST /v1/tokens", "{\"name\":\"v\",\"role\":\"viewer\"}"), 201);
    snprintf(f.s.token, sizeof f.s.token, "%s", word(&f.s, "token"));
    f.s.user = NULL;
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(rest(&f.s, "POST /v1/rules", "{}"), 403); /* a viewer is refused as ever */
    f.s.user = "tester";
    CHECK_EQ(rest(&f.s, "GET /v1/audit", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 1);
    /* Nothing was imported: the same database without files has no documents. */
    service_shut(&f.s);
    service_open_again(&f.s);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules/published", NULL), 404);
    service_close(&f.s);
}

TEST(changes_are_followed)
{
    struct files f;
    char before[64], after[64];
    files_open(&f);
    published_tag(&f, before);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir__control_tick(f.s.control), 0);
    published_tag(&f, after);
    CHECK(strcmp(before, after) == 0); /* nothing changed */
    put_file(&f, "2.yml",
             "# moved\nrules:\n- name: b\n  limit: 2\n  window: 1s\n- { name: c, limit: 3, window: 1s }\n");
    CHECK_EQ(weir__control_tick(f.s.control), 0);
    published_tag(&f, after);
    CHECK(strcmp(before, after) != 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 4);
    CHECK_EQ(number(&f.s, "items[0].enforced_version"), 1); /* not changed */
    CHECK_EQ(number(&f.s, "items[1].version"), 2);
    CHECK_EQ(number(&f.s, "items[1].line"), 3);
    CHECK_WORD(&f.s, "items[2].name", "c");
    CHECK_EQ(number(&f.s, "items[2].line"), 6);
    unlink(path_of(&f, "2.yml"));
    CHECK_EQ(weir__control_tick(f.s.control), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules/b", NULL), 404);
    CHECK_EQ(rest(&f.s, "GET /healthz", NULL), 200);
    CHECK_EQ(number(&f.s, "revision"), 3);
    char from[256];
    snprintf(from, sizeof from, "%s", path_of(&f, "1.yaml"));
    CHECK_EQ(rename(from, path_of(&f, "3.yml")), 0); /* the same texts under another name */
    CHECK_EQ(weir__control_tick(f.s.control), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_WORD(&f.s, "items[0].file", path_of(&f, "3.yml"));
    service_close(&f.s);
}

TEST(files_with_errors_change_nothing)
{
    static const struct {
        const char *text, *message;
        int line;
    } bad[] = {{"rules:\n- { name: b, limt: 1, window: 1s }\n", "limt", 2},
               {"rules: [", "", 2},
               {"rules:\n- { name: b, limit: 1, window: 1s }\n- { name: settings, limit: 1, window: 1s }\n",
                "the rules service's own", 3},
               {"rules:\n\n- { name: a, limit: 1, window: 1s }\n", "a", 3}};
    struct files f;
    char before[64], after[64];
    files_open(&f);
    published_tag(&f, before);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(&f, "2.yml", bad[i].text);
        CHECK_EQ(weir__control_tick(f.s.control), 0);
        CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
        CHECK_EQ(json_array_size(at(&f.s, "items")), 3);
        CHECK(json_array_size(at(&f.s, "files.errors")) > 0);
        CHECK_WORD(&f.s, "files.errors[0].file", path_of(&f, "2.yml"));
        CHECK_EQ(number(&f.s, "files.errors[0].line"), bad[i].line);
        CHECK(strstr(word(&f.s, "files.errors[0].message"), bad[i].message) != NULL);
        published_tag(&f, after);
        CHECK(strcmp(before, after) == 0);
    }
    put_file(&f, "2.yml", "rules:\n- name: b\n  limit: 1\n  window: 1s\n"); /* as it was */
    CHECK_EQ(weir__control_tick(f.s.control), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "files.errors")), 0);
    published_tag(&f, after);
    CHECK(strcmp(before, after) == 0);
    service_close(&f.s);
}

TEST(files_that_cannot_be_read)
{
    struct files f;
    files_open(&f);
    service_shut(&f.s);
    f.named.path = "/nowhere/rules.d";
    open_again(&f);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 0);
    CHECK(strstr(word(&f.s, "files.errors[0].message"), "cannot be read") != NULL);
    CHECK_EQ(rest(&f.s, "GET /v1/rules/published", NULL), 503);
    CHECK_WORD(&f.s, "error.code", "rules_not_read");
    service_close(&f.s);
}

/* The rules of weir.yaml itself, and settings that name files, which are refused in a database. */
TEST(rules_inside_of_weir_yaml)
{
    static const char text[] = "\n\nidentity: { tier: { from: api_key, file: /nowhere/plans.csv } }\n\nrules:\n"
                               "  - { name: a, limit: { pro: 2, default: 1 }, window: 1m }\n";
    struct files f;
    files_open(&f);
    service_shut(&f.s);
    f.named = (struct weir__named_rules){.text = {text, sizeof text - 1}, .file = "/etc/weir/weir.yaml"};
    open_again(&f);
    CHECK_EQ(weir__control_tick(f.s.control), 0);
    CHECK_EQ(rest(&f.s, "GET /v1/rules", NULL), 200);
    CHECK_EQ(json_array_size(at(&f.s, "items")), 2);
    CHECK_WORD(&f.s, "items[0].file", "/etc/weir/weir.yaml");
    CHECK_EQ(number(&f.s, "items[0].line"), 6);
    CHECK_EQ(number(&f.s, "items[1].line"), 3);
    CHECK_EQ(rest(&f.s, "POST /v1/validate", "{\"name\":\"c\",\"limit\":1,\"window\":\"1s\"}"), 200);
    CHECK_EQ(rest(&f.s, "GET /healthz", NULL), 200);
    CHECK_EQ(number(&f.s, "revision"), 1);
    service_close(&f.s);
}

TEST_MAIN
