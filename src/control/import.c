/* Rule files to documents of a service: imported into an empty database, or shown as they are (files.c). */
#include "control/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- Reading ---- */

int weir__named_rules_read(const struct weir__named_rules *named, bool may_name_files, weir_diagnose *diagnose,
                           void *context, struct weir__documents *documents, size_t *rules)
{
    weir_rules *compiled = NULL;
    struct weir__diagnostic_sink sink = {.diagnose = diagnose, .context = context};
    struct weir__map_files files = {.text = !named->path, .skip = true};
    char *text = named->path ? NULL : strndup(named->text.data, named->text.len);
    *documents = (struct weir__documents){0};
    *rules = 0;
    if (!named->path && !text)
        return WEIR_ENOMEM;
    if (!(named->path ? weir__documents_read(documents, named->path, diagnose, context)
                      : weir__documents_take(documents, named->file, text, strlen(text), diagnose, context)))
        return WEIR_ERULES;
    int error = weir__load_sources(documents->files.list, documents->files.count, &sink, may_name_files ? &files : NULL,
                                   &compiled);
    if (!error)
        *rules = weir_rules_count(compiled);
    weir_rules_free(compiled);
    weir__map_files_free(&files);
    return error;
}

/* ---- Adding ---- */

/* The version of a text: that of the view before, if it had the text; else the next. */
static int64_t choose_version(const struct weir__import *import, const struct weir__document *document, int64_t last)
{
    struct weir__control *before = import->before;
    if (!before)
        return last + 1;
    weir__fair_lock_acquire(&before->database_lock);
    weir__db_run(before->db,
                 "SELECT coalesce(max(CASE WHEN text = $2 THEN version END), max(version) + 1) FROM versions"
                 " WHERE name = $1",
                 WEIR__S(document->name), WEIR__T(document->text));
    int64_t version = weir__db_next(before->db) ? weir__db_number(before->db, 0) : 0;
    weir__fair_lock_release(&before->database_lock);
    return version > last ? version : last + 1;
}

/* Adds a document and sets its stage. True: it is new, and not another stage of one that was added before. */
static bool add(struct weir__call *call, const struct weir__import *import, const struct weir__document *document,
                bool shadow, const char *reason)
{
    struct weir__stored found = weir__stored_find(call->db, document->name);
    bool is_new = !found.version;
    int64_t version = choose_version(import, document, found.version);
    weir__stored_add(call, document, version, reason, false);
    *(shadow ? &found.shadow : &found.enforced) = version;
    weir__stored_set_stage(call->db, &found);
    return is_new;
}

static bool is_shadow(const struct weir__document *document)
{
    const struct weir__node *shadow =
        document->kind == WEIR__KIND_RULE ? weir__node_get(document->root, "shadow") : NULL;
    return shadow && shadow->kind == WEIR__SCALAR && weir__text_is(shadow->text, "true");
}

/* The line of the file where a document begins, behind its comments. */
static const struct weir__origin_line *first_line(const struct weir__rule_document *document)
{
    size_t at = 0;
    while (at + 1 < document->lines && document->origins[at].text[strspn(document->origins[at].text, " \t")] == '#')
        at++;
    return &document->origins[at];
}

/* Of a view: records where the document is, and gives it the file's time. `reason` becomes FILE:LINE. */
static void place(struct weir__call *call, const struct weir__import *import, const struct weir__rule_document *one,
                  char *reason, size_t size)
{
    const struct weir__origin_line *first = first_line(one);
    struct stat at;
    int64_t line = (int64_t)first->line + 1;
    snprintf(reason, size, "%s:%lld", first->path, (long long)line);
    json_object_set_new(import->places, one->name, json_pack("{s:s, s:I}", "file", first->path, "line", line));
    if (stat(first->path, &at) == 0)
        call->now_ms = (int64_t)at.st_mtim.tv_sec * 1000 + at.st_mtim.tv_nsec / 1000000;
}

/*
 * Adds a document if it is of the wanted stage. A shadow rule is imported into the shadow stage, without its member
 * `shadow`.
 */
static bool add_one(struct weir__call *call, const struct weir__import *import, const struct weir__rule_document *one,
                    bool shadow)
{
    struct weir__arena arena = {0};
    struct weir__document document;
    char reason[WEIR__REASON_MAX] = "imported";
    bool is_new = false;
    if (!weir__document_read(&arena, (weir_text){one->text.data, one->text.len}, &document, call->problems)) {
        /* The rules compile: the only error left is a name that the service reserves. */
        const char *why = json_string_value(json_object_get(json_array_get(call->problems, 0), "message"));
        weir_diagnostic what = {.severity = WEIR_IS_ERROR, .line = 1, .column = 1, .message = why ? why : ""};
        weir__document_diagnose(one, &what, import->diagnose, import->context);
        weir__fail_invalid(call, "a document cannot be imported");
    } else if (is_shadow(&document) == shadow) {
        char *text = shadow ? weir__yaml_write(document.root, "shadow") : NULL;
        if (shadow && (!text || !weir__document_read(&arena, weir__text_of(text), &document, call->problems)))
            weir__fail_memory(call);
        if (import->places)
            place(call, import, one, reason, sizeof reason);
        is_new = add(call, import, &document, shadow, reason);
        free(text);
    }
    weir__arena_free(&arena);
    return is_new;
}

/* Within the transaction: adds all documents and publishes them, if the database is empty. */
static void import_all(struct weir__call *call, struct weir__publication *made, void *context)
{
    struct weir__import *import = context;
    int64_t now_ms = call->now_ms;
    import->count = 0; /* of an earlier attempt */
    if (weir__db_count(call->db, "SELECT count(*) FROM documents"))
        return;
    for (int shadow = 0; shadow < 2; shadow++) /* enforced rules first: a shadow rule may have the name of one */
        for (size_t i = 0; i < import->from.count && !call->failed; i++)
            import->count += add_one(call, import, &import->from.list[i], shadow == 1);
    call->now_ms = now_ms;
    if (!call->failed && weir__publication_make(call, made))
        weir__audit(call, "import", import->name, json_pack("{s:I}", "documents", (json_int_t)import->count));
}

struct weir__import_result weir__import_run(struct weir__control *control, struct weir__import *import, const char *who)
{
    struct weir__rest_request request = {.address = ""};
    struct weir__rest_reply reply;
    struct weir__publication made = {.reason = import->reason, .compiled = import->places, .rules = import->rules};
    struct weir__call call = weir__call_open(control, &request, &reply);
    snprintf(call.who, sizeof call.who, "%s", who);
    bool good = weir__call_take_database(&call) && weir__publication_run(&call, import_all, import, &made);
    weir__call_close(&call);
    bool wrong = reply.status == 422;
    weir__set_free(&made.set);
    weir__rest_free(&reply);
    return (struct weir__import_result){
        .rules_error = wrong ? WEIR_ERULES : 0, .no_database = !good && !wrong, .documents = good ? import->count : 0};
}

/* ---- Importing into an empty database ---- */

struct weir__import_result weir__control_import(struct weir__control *control, const struct weir__named_rules *named,
                                                const struct weir__documents *documents, const char *who,
                                                const char *reason, weir_diagnose *diagnose, void *context)
{
    struct weir__import import = {.name = named->path ? named->path : named->file,
                                  .from = *documents,
                                  .reason = reason && *reason ? reason : "imported",
                                  .diagnose = diagnose,
                                  .context = context};
    return weir__import_run(control, &import, who);
}
