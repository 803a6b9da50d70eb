/* Rule files, once, into an empty database. */
#include "control/call.h"
#include "control/in_force.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define REASON    "imported"
#define FILES_MAX 4096

struct import {
    struct weir__call *call;
    FILE *settings; /* identity, allow and block of all files */
    size_t documents;
};

/* ---- One document ---- */

static int set_stage(struct weir__call *call, const char *name, int64_t version, bool shadow)
{
    struct weir__db_value values[] = {WEIR__N(version), WEIR__S(name)};
    return weir__db_run(call->db,
                        shadow ? "UPDATE documents SET shadow_version = $1 WHERE name = $2"
                               : "UPDATE documents SET enforced_version = $1 WHERE name = $2",
                        values, 2, NULL, NULL);
}

static int add_text(struct import *import, const char *text, bool shadow)
{
    struct weir__document document;
    struct weir__stored found;
    json_t *problems = json_array();
    int error = WEIR__DB_MEMORY;
    if (text && weir__document_read((weir_text){text, strlen(text)}, &document, problems)) {
        error = weir__stored_find(import->call->db, document.name, &found);
        if (!error)
            error = weir__stored_add(import->call, &document, found.version + 1, REASON, false);
        if (!error)
            error = set_stage(import->call, document.name, found.version + 1, shadow);
        import->documents += !error && !found.version;
    } else if (text) {
        /* The rules themselves are good: only names that the service needs for itself are left. */
        const char *why = json_string_value(json_object_get(json_array_get(problems, 0), "message"));
        weir__control_log(import->call->control, "a rule cannot be imported: %s", why ? why : "");
        error = WEIR__IMPORT_WRONG + WEIR_ERULES;
    }
    if (text)
        weir__document_close(&document);
    json_decref(problems);
    return error;
}

static int add_node(struct import *import, const struct weir__node *node, bool shadow)
{
    char *text = weir__emit(node, shadow ? "shadow" : NULL);
    int error = add_text(import, text, shadow);
    free(text);
    return error;
}

/* ---- One file ---- */

static bool is_shadow(const struct weir__node *rule)
{
    const struct weir__node *shadow = weir__node_get(rule, "shadow");
    return shadow && shadow->kind == WEIR__SCALAR && weir__text_is(shadow->text, "true");
}

static void keep_settings(struct import *import, const struct weir__node *root)
{
    static const char *const names[] = {"identity", "allow", "block"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct weir__node *node = weir__node_get(root, names[i]);
        if (!node)
            continue;
        struct weir__node only = *node, map = {.kind = WEIR__MAP, .first = &only, .count = 1};
        only.next = NULL;
        char *text = weir__emit(&map, NULL);
        fputs(text ? text : "", import->settings);
        free(text);
    }
}

/* Enforced rules before shadow ones, which may stand beside them. */
static int add_root(struct import *import, const struct weir__node *root, weir_text text)
{
    const struct weir__node *rules = weir__node_get(root, "rules"), *domains = weir__node_get(root, "domains");
    int error = 0;
    if (weir__node_get(root, "domain"))
        return add_text(import, text.data, false);
    keep_settings(import, root);
    for (int shadow = 0; shadow < 2; shadow++)
        for (const struct weir__node *rule = rules ? rules->first : NULL; rule && !error; rule = rule->next)
            if (is_shadow(rule) == (shadow == 1))
                error = add_node(import, rule, shadow == 1);
    for (const struct weir__node *domain = domains ? domains->first : NULL; domain && !error; domain = domain->next)
        error = add_node(import, domain, false);
    return error;
}

static int add_file(struct import *import, const char *path)
{
    struct weir__source source = {path, {NULL, 0}};
    char *text = weir__file_read(path, &source.text.len);
    source.text.data = text;
    struct weir__report report = {NULL, NULL, &source, 1, 0, 0, {0, 0, 0}};
    struct weir__arena arena = {.bytes_max = (size_t)512 << 20};
    const struct weir__node *root = text ? weir__yaml_read(0, &arena, &report) : NULL;
    int error = root ? add_root(import, root, source.text) : WEIR__IMPORT_WRONG + WEIR_ERULESPATH;
    weir__arena_free(&arena);
    free(text);
    return error;
}

/* ---- All files ---- */

static int is_rule_file(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_path(struct import *import, const char *path)
{
    struct stat about;
    struct dirent **entries = NULL;
    char file[4096];
    int error = 0;
    if (stat(path, &about) != 0)
        return WEIR__IMPORT_WRONG + WEIR_ERULESPATH;
    if (!S_ISDIR(about.st_mode))
        return add_file(import, path);
    int count = scandir(path, &entries, is_rule_file, by_name);
    for (int i = 0; i < count; i++) {
        int len = snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (!error)
            error =
                len < (int)sizeof file && i < FILES_MAX ? add_file(import, file) : WEIR__IMPORT_WRONG + WEIR_ERULESPATH;
        free(entries[i]);
    }
    free(entries);
    return count < 0 ? WEIR__IMPORT_WRONG + WEIR_ERULESPATH : error;
}

static int add_all(struct import *import, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    import->settings = open_memstream(&text, &len);
    if (!import->settings)
        return WEIR__DB_MEMORY;
    int error = add_path(import, path);
    if (fclose(import->settings) != 0)
        error = WEIR__DB_MEMORY;
    if (!error && len)
        error = add_text(import, text, false);
    free(text);
    return error;
}

/* The lock is held, and a transaction has begun. */
static int import_all(struct weir__call *call, const char *path, struct weir__publication *made, size_t *documents)
{
    struct import import = {.call = call};
    int64_t before = 0;
    int error = weir__db_number(call->db, "SELECT count(*) FROM documents", NULL, 0, 0, &before);
    if (error || before)
        return error;
    error = add_all(&import, path);
    if (!error)
        error = weir__publication_make(call, NULL, REASON, made);
    if (!error && made->refused)
        error = WEIR__IMPORT_WRONG + WEIR_ERULES;
    if (!error)
        error = weir__publication_changes(call, made);
    if (!error)
        error = weir__audit(call, "import", path, json_pack("{s:I}", "documents", (json_int_t)import.documents));
    *documents = error ? 0 : import.documents;
    return error;
}

int weir__control_import(struct weir__control *control, const char *path, const char *who, weir_diagnose *diagnose,
                         void *context, size_t *documents)
{
    struct weir__rest_request request = {.address = ""};
    struct weir__rest_reply reply = {0};
    struct weir__call call = {
        .control = control, .request = &request, .reply = &reply, .now_ms = weir__control_now_ms()};
    struct weir__publication made = {.refused = false};
    weir_rules *rules = NULL;
    *documents = 0;
    int error = weir_rules_load(path, diagnose, context, &rules);
    weir_rules_free(rules);
    if (error)
        return WEIR__IMPORT_WRONG + error;
    snprintf(call.who, sizeof call.who, "%s", who);
    pthread_mutex_lock(&control->lock);
    error = weir__control_ready(control) ? 0 : control->error;
    call.db = control->db;
    if (!error)
        error = weir__db_begin(call.db);
    if (!error) {
        error = import_all(&call, path, &made, documents);
        error = weir__db_end(call.db, error);
        if (!error && *documents)
            weir__publication_apply(&call, &made);
    }
    pthread_mutex_unlock(&control->lock);
    weir__publication_free(&made);
    weir__rest_free(&reply);
    return error;
}
