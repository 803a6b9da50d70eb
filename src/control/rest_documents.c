/* Changing documents: create, update, delete, roll back; and checking one. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Reading and checking ---- */

/*
 * Reads the body as a document. JSON is YAML and is kept as it was written, but for the few escapes that YAML 1.1
 * lacks. False: replied. To be closed either way.
 */
static bool read_body(struct weir__call *call, struct weir__document *document)
{
    weir_text body = call->request->body, type = call->request->content_type;
    json_t *errors = json_array(), *root = NULL;
    json_error_t where;
    *document = (struct weir__document){.own = NULL};
    if (!weir__is_yaml(type)) {
        root = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, &where);
        if (!root) {
            weir_diagnostic what = {WEIR_IS_ERROR, "", where.line, where.column, where.text, NULL, NULL};
            weir__add_problem(errors, NULL, NULL, &what);
            weir__fail(call, 422, "invalid", "the body is not JSON; send YAML as application/yaml", errors);
            return false;
        }
    }
    bool good = weir__document_read(body, document, errors);
    if (!good && root) {
        json_t *unused = json_array();
        char *text = json_dumps(root, JSON_INDENT(2));
        weir__document_close(document);
        good = text && weir__document_read(weir__text_of(text), document, unused);
        free(text);
        json_decref(unused);
    }
    json_decref(root);
    if (good)
        json_decref(errors);
    else
        weir__fail(call, 422, "invalid", "the document has errors", errors);
    return good;
}

/* The text of the current settings, from malloc; NULL: there are none. */
static int find_settings(struct weir__call *call, char **text)
{
    struct weir__stored settings;
    int error = weir__stored_find(call->db, WEIR__SETTINGS_NAME, &settings);
    *text = NULL;
    return error || !settings.version ? error
                                      : weir__stored_text(call->db, WEIR__SETTINGS_NAME, settings.version, text);
}

/* Compiles a document with the settings. *good false: replied, or an error. `problems` gets its warnings. */
static int check(struct weir__call *call, const struct weir__document *document, const char *settings, json_t *problems,
                 bool *good)
{
    struct weir__set set = {0};
    size_t rules = 0;
    json_t *about = json_pack("{s:b}", document->name, 1);
    if (document->kind != WEIR__SETTINGS_DOCUMENT && settings)
        weir__set_add(&set, WEIR__SETTINGS_NAME, WEIR__SETTINGS_DOCUMENT, weir__text_of(settings), false);
    weir__set_add(&set, document->name, document->kind, document->text, false);
    int wrong = weir__set_finish(&set) ? weir__set_compile(&set, about, problems, &rules) : WEIR_ENOMEM;
    *good = !wrong;
    if (wrong && wrong != WEIR_ENOMEM)
        weir__fail(call, 422, "invalid", "the document has errors", json_incref(problems));
    weir__set_free(&set);
    json_decref(about);
    return wrong == WEIR_ENOMEM ? WEIR__DB_MEMORY : 0;
}

/* Reads and compiles the body; releases the database lock. *good false: replied, or an error. To be closed. */
static int read_checked(struct weir__call *call, struct weir__document *document, json_t *problems, bool *good)
{
    char *settings = NULL;
    int error = find_settings(call, &settings);
    *good = false;
    if (!error && weir__work_begin(call) && read_body(call, document))
        error = check(call, document, settings, problems, good);
    free(settings);
    return error;
}

int weir__rest_validate(struct weir__call *call)
{
    struct weir__document document = {.own = NULL};
    bool good = false;
    json_t *problems = json_array();
    int error = read_checked(call, &document, problems, &good);
    if (!error && good)
        weir__reply_json(call, 200,
                         json_pack("{s:b, s:s, s:s, s:s, s:O}", "ok", 1, "name", document.name, "kind",
                                   weir__kind_name(document.kind), "summary", document.summary, "warnings", problems));
    json_decref(problems);
    weir__document_close(&document);
    return error;
}

/* ---- Writing ---- */

static int write_version(struct weir__call *call, const struct weir__document *document, const char *action,
                         int64_t version, const char *reason, bool deleted)
{
    int error = weir__stored_add(call, document, version, reason, deleted);
    return error ? error
                 : weir__audit(call, action, document->name,
                               json_pack("{s:I, s:s}", "version", (json_int_t)version, "reason", reason));
}

/* True if the document exists, and If-Match allows a change of this version; else replied. */
static bool may_change(struct weir__call *call, const struct weir__stored *found)
{
    weir_text given = weir__text_trim(call->request->if_match);
    char etag[32];
    snprintf(etag, sizeof etag, "\"v%" PRId64 "\"", found->version);
    if (!found->version || found->deleted) {
        weir__fail_no_document(call);
    } else if (!given.len) {
        weir__fail(call, 428, "if_match_needed", "say which version you have changed: If-Match: \"v1\"", NULL);
    } else if (weir__text_is(given, etag) || weir__text_is(given, "*")) {
        return true;
    } else {
        weir__reply_etag(call, found->version);
        weir__fail(call, 412, "changed", "it was changed since; look at the current version first", NULL);
    }
    return false;
}

enum change { CREATE, UPDATE, ROLLBACK };

/* Stores a checked document as a new version, and replies. Ends the computation. */
static int save(struct weir__call *call, enum change change, const struct weir__document *document, const char *reason,
                json_t *warnings)
{
    static const char *const actions[] = {"create", "update", "rollback"};
    struct weir__stored found;
    if (!weir__work_end(call))
        return 0;
    int error = weir__db_begin(call->db);
    if (error)
        return error;
    error = weir__stored_find(call->db, document->name, &found);
    bool good = !error;
    if (good && change == CREATE && found.version && !found.deleted) {
        weir__fail(call, 409, "exists", "there is a document of this name; change that one (PUT)", NULL);
        good = false;
    } else if (good && change == UPDATE) {
        good = may_change(call, &found);
    }
    if (!error && !good) {
        call->db->calls->rollback(call->db);
        return 0;
    }
    if (!error)
        error = write_version(call, document, actions[change], found.version + 1, reason, false);
    error = weir__db_end(call->db, error);
    if (error)
        return error;
    weir__reply_etag(call, found.version + 1);
    weir__reply_json(call, change == CREATE ? 201 : 200,
                     json_pack("{s:s, s:s, s:I, s:s, s:O}", "name", document->name, "kind",
                               weir__kind_name(document->kind), "version", (json_int_t)found.version + 1, "stage",
                               "draft", "warnings", warnings));
    return 0;
}

static int save_body(struct weir__call *call, enum change change)
{
    struct weir__document document = {.own = NULL};
    char reason[WEIR__REASON_MAX + 1];
    bool good = false;
    json_t *problems = json_array();
    int error = weir__call_reason(call, reason) ? read_checked(call, &document, problems, &good) : 0;
    if (!error && good && change == UPDATE && strcmp(document.name, call->param[0]) != 0)
        weir__fail(call, 422, "other_name", "the name in the document is another; to rename, create and delete", NULL);
    else if (!error && good)
        error = save(call, change, &document, reason, problems);
    json_decref(problems);
    weir__document_close(&document);
    return error;
}

int weir__rest_create(struct weir__call *call)
{
    return save_body(call, CREATE);
}

int weir__rest_update(struct weir__call *call)
{
    return save_body(call, UPDATE);
}

/* ---- Deleting ---- */

struct deletion {
    bool withdraw; /* unpublish it first */
    char reason[WEIR__REASON_MAX + 1];
};

static int withdraw(struct weir__call *call, const struct weir__stored *found, const char *reason,
                    struct weir__publication *made)
{
    int error =
        weir__db_exec(call->db, "UPDATE documents SET enforced_version = NULL, shadow_version = NULL WHERE name = $1",
                      WEIR__S(found->name));
    if (!error)
        error = weir__publication_make(call, reason, made);
    return weir__publication_stopped(made, error) ? error : weir__publication_change(call, made, found->name);
}

static int delete_one(struct weir__call *call, struct weir__publication *made, void *context)
{
    const struct deletion *deletion = context;
    struct weir__document document = {.text = {"", 0}};
    struct weir__stored found;
    int error = weir__stored_find(call->db, call->param[0], &found);
    made->refused = !error && !may_change(call, &found);
    bool published = !error && !made->refused && (found.enforced || found.shadow);
    if (published && !deletion->withdraw) {
        made->refused = true;
        weir__fail(call, 409, "in_force", "it is published; publish it as draft first, or delete with ?withdraw=true",
                   NULL);
    } else if (published) {
        error = withdraw(call, &found, deletion->reason, made);
    }
    if (weir__publication_stopped(made, error))
        return error;
    memcpy(document.name, found.name, sizeof document.name);
    document.kind = found.kind;
    return write_version(call, &document, "delete", found.version + 1, deletion->reason, true);
}

int weir__rest_delete(struct weir__call *call)
{
    struct deletion deletion;
    char word[8];
    if (!weir__query_text(call, "withdraw", word, sizeof word) || !weir__call_reason(call, deletion.reason))
        return 0;
    deletion.withdraw = strcmp(word, "true") == 0;
    struct weir__publication made = {.guarded = deletion.withdraw};
    int error = weir__publication_run(call, delete_one, &deletion, &made);
    if (!error && !made.refused)
        call->reply->status = 204;
    weir__publication_free(&made);
    return error;
}

/* ---- Rolling back ---- */

/* Reads and compiles an old version with the current settings; releases the database lock. */
static int read_version(struct weir__call *call, int64_t version, struct weir__document *document, json_t *problems,
                        bool *good)
{
    char *text = NULL, *settings = NULL;
    json_t *errors = json_array();
    *good = false;
    int error = weir__stored_text(call->db, call->param[0], version, &text);
    if (!error && !text)
        weir__fail(call, 404, "no_version", "there is no such version, or it is a deletion", NULL);
    else if (!error)
        error = find_settings(call, &settings);
    if (!error && text && weir__work_begin(call)) {
        *good = weir__document_read(weir__text_of(text), document, errors);
        if (*good)
            error = check(call, document, settings, problems, good);
        else
            weir__fail(call, 422, "invalid", "the document has errors", json_incref(errors));
    }
    json_decref(errors);
    free(text);
    free(settings);
    return error;
}

/* Adds a new version with the text of an old one. */
int weir__rest_rollback(struct weir__call *call)
{
    struct weir__document document = {.own = NULL};
    char reason[WEIR__REASON_MAX + 1];
    json_t *problems, *body = weir__call_json(call, "version|reason");
    if (!body)
        return 0;
    int64_t version = json_integer_value(json_object_get(body, "version"));
    bool good = version > 0;
    if (!good)
        weir__fail(call, 400, "bad_version", "version: a number from 1 on", NULL);
    good = good && weir__body_reason(call, body, reason);
    json_decref(body);
    if (!good)
        return 0;
    problems = json_array();
    int error = read_version(call, version, &document, problems, &good);
    if (!error && good)
        error = save(call, ROLLBACK, &document, reason, problems);
    json_decref(problems);
    weir__document_close(&document);
    return error;
}
