/* Changing documents: create, update, delete, roll back; and checking one. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Reading and checking ---- */

/*
 * Reads the body as a document. JSON is YAML and is kept as it was written, but for the few escapes that YAML 1.1
 * lacks.
 */
static bool read_body(struct weir__call *call, struct weir__document *document)
{
    weir_text body = call->request->body;
    json_error_t where;
    bool json = !weir__is_yaml(call->request->content_type);
    if (json && !(call->body = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &where))) {
        weir_diagnostic what = {WEIR_IS_ERROR, "", where.line, where.column, where.text, NULL, NULL};
        weir__add_problem(call->problems, NULL, NULL, &what);
        return weir__fail_invalid(call, "the body is not JSON; send YAML as application/yaml");
    }
    bool good = weir__document_read(&call->arena, body, document, call->problems);
    if (!good && json) {
        json_t *unused = json_array();
        char *text = json_dumps(call->body, JSON_INDENT(2));
        good = text && weir__document_read(&call->arena, weir__text_of(text), document, unused);
        free(text);
        json_decref(unused);
    }
    return good || weir__fail_invalid(call, "the document has errors");
}

/* The text of the current settings; NULL: there are none. */
static const char *find_settings(struct weir__call *call)
{
    struct weir__stored settings = weir__stored_find(call->db, WEIR__SETTINGS_NAME);
    return settings.version ? weir__stored_text(call, WEIR__SETTINGS_NAME, settings.version) : NULL;
}

/*
 * Reads a document, from the body unless there is a text, and compiles it with the settings; call->problems gets its
 * warnings. Releases the database lock.
 */
static bool read_checked(struct weir__call *call, const char *text, struct weir__document *document)
{
    const char *settings = find_settings(call);
    *document = (struct weir__document){.kind = WEIR__KIND_RULE};
    if (!weir__work_begin(call))
        return false;
    if (!text && !read_body(call, document))
        return false;
    if (text && !weir__document_read(&call->arena, weir__text_of(text), document, call->problems))
        return weir__fail_invalid(call, "the document has errors");
    json_array_clear(call->problems);
    int wrong = weir__document_compile(settings, document->name, document->kind, document->text,
                                       call->control->shows != NULL, call->problems);
    if (wrong == WEIR_ENOMEM)
        return weir__fail_memory(call);
    return !wrong || weir__fail_invalid(call, "the document has errors");
}

bool weir__rest_validate(struct weir__call *call)
{
    struct weir__document document;
    return read_checked(call, NULL, &document) &&
           weir__reply_json(call, 200,
                            json_pack("{s:b, s:s, s:s, s:s, s:O}", "ok", 1, "name", document.name, "kind",
                                      weir__kind_name(document.kind), "summary", document.summary, "warnings",
                                      call->problems));
}

/* ---- Writing ---- */

static void write_version(struct weir__call *call, const struct weir__document *document, const char *action,
                          int64_t version, const char *reason, bool deleted)
{
    weir__stored_add(call, document, version, reason, deleted);
    weir__audit(call, action, document->name,
                json_pack("{s:I, s:s}", "version", (json_int_t)version, "reason", reason));
}

/* True if the document exists, and If-Match allows a change of this version. */
static bool may_change(struct weir__call *call, const struct weir__stored *found)
{
    weir_text given = weir__text_trim(call->request->if_match);
    char etag[32];
    snprintf(etag, sizeof etag, "\"v%" PRId64 "\"", found->version);
    if (!found->version || found->deleted)
        return weir__fail_no_document(call);
    if (!given.len)
        return weir__fail(call, 428, "if_match_needed", "say which version you have changed: If-Match: \"v1\"");
    if (weir__text_is(given, etag) || weir__text_is(given, "*"))
        return true;
    weir__reply_etag(call, found->version);
    return weir__fail(call, 412, "changed", "it was changed since; look at the current version first");
}

enum change { CREATE, UPDATE, ROLLBACK };

/* Stores a checked document as a new version, and replies. Ends the computation. */
static bool save(struct weir__call *call, enum change change, const struct weir__document *document, const char *reason)
{
    static const char *const actions[] = {"create", "update", "rollback"};
    if (!weir__work_end(call))
        return false;
    weir__db_begin(call->db);
    struct weir__stored found = weir__stored_find(call->db, document->name);
    bool good = change != UPDATE || may_change(call, &found);
    if (change == CREATE && found.version && !found.deleted)
        good = weir__fail(call, 409, "exists", "there is a document of this name; change that one (PUT)");
    if (good)
        write_version(call, document, actions[change], found.version + 1, reason, false);
    weir__db_end(call->db, good);
    if (!good)
        return false;
    weir__reply_etag(call, found.version + 1);
    return weir__reply_json(call, change == CREATE ? 201 : 200,
                            json_pack("{s:s, s:s, s:I, s:s, s:O}", "name", document->name, "kind",
                                      weir__kind_name(document->kind), "version", (json_int_t)found.version + 1,
                                      "stage", "draft", "warnings", call->problems));
}

bool weir__rest_create(struct weir__call *call)
{
    struct weir__document document;
    const char *reason = weir__call_reason(call);
    return read_checked(call, NULL, &document) && save(call, CREATE, &document, reason);
}

bool weir__rest_update(struct weir__call *call)
{
    struct weir__document document;
    const char *reason = weir__call_reason(call);
    if (!read_checked(call, NULL, &document))
        return false;
    if (strcmp(document.name, call->param[0]) != 0)
        return weir__fail(call, 422, "other_name", "the name in the document is another; to rename, create and delete");
    return save(call, UPDATE, &document, reason);
}

/* Adds a new version with the text of an old one. */
bool weir__rest_rollback(struct weir__call *call)
{
    struct weir__document document;
    if (!weir__call_json(call, "version|reason"))
        return false;
    int64_t version = json_integer_value(json_object_get(call->body, "version"));
    if (version <= 0)
        return weir__fail(call, 400, "bad_version", "version: a number from 1 on");
    const char *reason = weir__call_reason(call), *text = weir__stored_text(call, call->param[0], version);
    if (!text)
        return weir__fail(call, 404, "no_version", "there is no such version, or it is a deletion");
    return read_checked(call, text, &document) && save(call, ROLLBACK, &document, reason);
}

/* ---- Deleting ---- */

static void delete_one(struct weir__call *call, struct weir__publication *made, void *context)
{
    const bool *withdraw = context; /* unpublish it first */
    struct weir__document document = {.text = {"", 0}};
    struct weir__stored found = weir__stored_find(call->db, call->param[0]);
    if (!may_change(call, &found))
        return;
    bool published = found.enforced || found.shadow;
    if (published && !*withdraw) {
        weir__fail(call, 409, "in_force", "it is published; publish it as draft first, or delete with ?withdraw=true");
        return;
    }
    if (published) {
        found.enforced = found.shadow = 0;
        weir__stored_set_stage(call->db, &found);
        if (!weir__publication_make(call, made))
            return;
    }
    memcpy(document.name, found.name, sizeof document.name);
    document.kind = found.kind;
    write_version(call, &document, "delete", found.version + 1, made->reason, true);
}

bool weir__rest_delete(struct weir__call *call)
{
    bool withdraw = strcmp(weir__query_text(call, "withdraw", 7), "true") == 0;
    struct weir__publication made = {.guarded = withdraw, .reason = weir__call_reason(call)};
    bool good = weir__publication_run(call, delete_one, &withdraw, &made);
    weir__set_free(&made.set);
    return good && weir__reply_status(call, 204);
}
