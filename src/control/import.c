/* Rule files, once, into an empty database. */
#include "base/clock.h"
#include "control/call.h"
#include "control/split.h"

#include <stdio.h>
#include <stdlib.h>

#define REASON "imported"

struct import {
    struct weir__call *call;
    size_t documents;
};

static int set_stage(struct weir__call *call, const char *name, int64_t version, bool shadow)
{
    struct weir__db_value values[] = {WEIR__N(version), WEIR__S(name)};
    return weir__db_run(call->db,
                        shadow ? "UPDATE documents SET shadow_version = $1 WHERE name = $2"
                               : "UPDATE documents SET enforced_version = $1 WHERE name = $2",
                        values, 2, NULL, NULL);
}

static int add(struct import *import, const struct weir__document *document, bool shadow)
{
    struct weir__stored found;
    int error = weir__stored_find(import->call->db, document->name, &found);
    if (!error)
        error = weir__stored_add(import->call, document, found.version + 1, REASON, false);
    if (!error)
        error = set_stage(import->call, document->name, found.version + 1, shadow);
    import->documents += !error && !found.version;
    return error;
}

static bool is_shadow(const struct weir__document *document)
{
    const struct weir__node *shadow =
        document->kind == WEIR__RULE_DOCUMENT ? weir__node_get(document->root, "shadow") : NULL;
    return shadow && shadow->kind == WEIR__SCALAR && weir__text_is(shadow->text, "true");
}

/* What a shadow says of itself is its stage here. So its text is not the author's. */
static int add_shadow(struct import *import, const struct weir__document *document)
{
    struct weir__document without;
    json_t *unused = json_array();
    char *text = weir__emit(document->root, "shadow");
    int error = WEIR__DB_MEMORY;
    if (text && weir__document_read((weir_text){text, strlen(text)}, &without, unused))
        error = add(import, &without, true);
    if (text)
        weir__document_close(&without);
    free(text);
    json_decref(unused);
    return error;
}

/* One document, if it is of the wanted stage. */
static int add_one(struct import *import, const struct weir__rule_document *one, bool shadow)
{
    struct weir__document document;
    json_t *problems = json_array();
    int error = 0;
    if (!weir__document_read((weir_text){one->text, one->len}, &document, problems)) {
        /* The rules themselves are good: only names that the service needs for itself are left. */
        const char *why = json_string_value(json_object_get(json_array_get(problems, 0), "message"));
        weir__control_log(import->call->control, "%s cannot be imported: %s", one->name, why ? why : "");
        error = WEIR__IMPORT_WRONG + WEIR_ERULES;
    } else if (is_shadow(&document) == shadow) {
        error = shadow ? add_shadow(import, &document) : add(import, &document, false);
    }
    weir__document_close(&document);
    json_decref(problems);
    return error;
}

/* Enforced rules before shadow ones, which may stand beside them. */
static int add_all(struct import *import, const struct weir__documents *documents)
{
    int error = 0;
    for (int shadow = 0; shadow < 2; shadow++)
        for (size_t i = 0; i < documents->count && !error; i++)
            error = add_one(import, &documents->list[i], shadow == 1);
    return error;
}

/* The lock is held, and a transaction has begun. */
static int import_all(struct weir__call *call, const char *path, const struct weir__documents *from,
                      struct weir__publication *made, size_t *documents)
{
    struct import import = {.call = call};
    int64_t before = 0;
    int error = weir__db_number(call->db, "SELECT count(*) FROM documents", NULL, 0, 0, &before);
    if (error || before)
        return error;
    error = add_all(&import, from);
    if (!error)
        error = weir__publication_make(call, REASON, made);
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
    struct weir__call call = {.control = control, .request = &request, .reply = &reply, .now_ms = weir__wall_ms()};
    struct weir__publication made = {.last = true};
    struct weir__documents from = {0};
    weir_rules *rules = NULL;
    *documents = 0;
    int error = weir_rules_load(path, diagnose, context, &rules);
    weir_rules_free(rules);
    if (!error && !weir__documents_read(&from, path, diagnose, context))
        error = WEIR_ERULES;
    if (error) {
        weir__documents_free(&from);
        return WEIR__IMPORT_WRONG + error;
    }
    snprintf(call.who, sizeof call.who, "%s", who);
    weir__fair_lock_acquire(&control->database_lock);
    error = weir__control_ready(control) ? 0 : control->error;
    call.db = control->db;
    if (!error)
        error = weir__db_begin(call.db);
    if (!error) {
        error = import_all(&call, path, &from, &made, documents);
        error = weir__db_end(call.db, error);
        if (!error && *documents)
            weir__publication_apply(&call, &made);
    }
    weir__fair_lock_release(&control->database_lock);
    weir__publication_free(&made);
    weir__documents_free(&from);
    weir__rest_free(&reply);
    return error;
}
