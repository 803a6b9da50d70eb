/* Documents: create, read, list, update, delete, history. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- What was sent ---- */

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
        root = json_loadb(body.data ? body.data : "", body.len, JSON_REJECT_DUPLICATES, &where);
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
        good = text && weir__document_read((weir_text){text, strlen(text)}, document, unused);
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

/* The text of the settings as they are now, from malloc; NULL: there are none. */
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
        weir__set_add(&set, WEIR__SETTINGS_NAME, WEIR__SETTINGS_DOCUMENT, (weir_text){settings, strlen(settings)},
                      false);
    weir__set_add(&set, document->name, document->kind, document->text, false);
    int wrong = weir__set_finish(&set) ? weir__set_compile(&set, about, problems, &rules) : WEIR_ENOMEM;
    *good = !wrong;
    if (wrong && wrong != WEIR_ENOMEM)
        weir__fail(call, 422, "invalid", "the document has errors", json_incref(problems));
    weir__set_free(&set);
    json_decref(about);
    return wrong == WEIR_ENOMEM ? WEIR__DB_MEMORY : 0;
}

/* Reads and compiles the body, without the turn from then on. *good false: replied, or an error. To be closed. */
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

/* ---- Writing ---- */

static int write_version(struct weir__call *call, const struct weir__document *document, const char *action,
                         int64_t version, const char *reason, bool deleted)
{
    int error = weir__stored_add(call, document, version, reason, deleted);
    return error ? error
                 : weir__audit(call, action, document->name,
                               json_pack("{s:I, s:s}", "version", (json_int_t)version, "reason", reason));
}

static void reply_written(struct weir__call *call, int status, const struct weir__document *document, int64_t version,
                          json_t *warnings)
{
    weir__reply_etag(call, version);
    weir__reply_json(call, status,
                     json_pack("{s:s, s:s, s:I, s:s, s:O}", "name", document->name, "kind",
                               weir__kind_name(document->kind), "version", (json_int_t)version, "stage", "draft",
                               "warnings", warnings));
}

int weir__rest_create(struct weir__call *call)
{
    struct weir__document document = {.own = NULL};
    struct weir__stored found;
    char reason[WEIR__REASON_MAX + 1];
    bool good = false;
    json_t *problems = json_array();
    int error = 0;
    if (!weir__call_reason(call, reason))
        goto done;
    error = read_checked(call, &document, problems, &good);
    if (error || !good || !weir__work_end(call))
        goto done;
    error = weir__db_begin(call->db);
    if (error)
        goto done;
    error = weir__stored_find(call->db, document.name, &found);
    bool exists = !error && found.version && !found.deleted;
    if (!error && !exists)
        error = write_version(call, &document, "create", found.version + 1, reason, false);
    if (exists) {
        call->db->calls->rollback(call->db);
        weir__fail(call, 409, "exists", "there is a document of this name; change that one (PUT)", NULL);
    } else if (!(error = weir__db_end(call->db, error))) {
        reply_written(call, 201, &document, found.version + 1, problems);
    }
done:
    json_decref(problems);
    weir__document_close(&document);
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

/* True if If-Match allows a change of this version; else replied. */
static bool matches(struct weir__call *call, int64_t version)
{
    weir_text given = weir__text_trim(call->request->if_match);
    char etag[32];
    snprintf(etag, sizeof etag, "\"v%" PRId64 "\"", version);
    if (!given.len) {
        weir__fail(call, 428, "if_match_needed", "say which version you have changed: If-Match: \"v1\"", NULL);
        return false;
    }
    if (weir__text_is(given, etag) || weir__text_is(given, "*"))
        return true;
    weir__reply_etag(call, version);
    weir__fail(call, 412, "changed", "it was changed since; look at the current version first", NULL);
    return false;
}

/* Within a transaction. True: it is there, and the version is the expected one; else replied, or an error. */
static bool find_to_change(struct weir__call *call, struct weir__stored *found, int *error)
{
    *error = weir__stored_find(call->db, call->param[0], found);
    if (*error)
        return false;
    if (!found->version || found->deleted) {
        weir__fail(call, 404, "no_document", "there is no document of this name", NULL);
        return false;
    }
    return matches(call, found->version);
}

int weir__rest_update(struct weir__call *call)
{
    struct weir__document document = {.own = NULL};
    struct weir__stored found;
    char reason[WEIR__REASON_MAX + 1];
    bool good = false;
    json_t *problems = json_array();
    int error = 0;
    if (!weir__call_reason(call, reason))
        goto done;
    error = read_checked(call, &document, problems, &good);
    if (!error && good && strcmp(document.name, call->param[0]) != 0) {
        weir__fail(call, 422, "other_name", "the name in the document is another; to rename, create and delete", NULL);
        good = false;
    }
    if (error || !good || !weir__work_end(call))
        goto done;
    error = weir__db_begin(call->db);
    if (error)
        goto done;
    good = find_to_change(call, &found, &error);
    if (good)
        error = write_version(call, &document, "update", found.version + 1, reason, false);
    if (!good)
        call->db->calls->rollback(call->db);
    else if (!(error = weir__db_end(call->db, error)))
        reply_written(call, 200, &document, found.version + 1, problems);
done:
    json_decref(problems);
    weir__document_close(&document);
    return error;
}

struct deletion {
    bool withdraw; /* take it out of force first */
    char reason[WEIR__REASON_MAX + 1];
};

static int withdraw(struct weir__call *call, const struct weir__stored *found, const char *reason,
                    struct weir__publication *made)
{
    struct weir__db_value by[] = {WEIR__S(found->name)};
    int error =
        weir__db_run(call->db, "UPDATE documents SET enforced_version = NULL, shadow_version = NULL WHERE name = $1",
                     by, 1, NULL, NULL);
    if (!error)
        error = weir__publication_make(call, reason, made);
    return weir__publication_stopped(made, error) ? error : weir__publication_change(call, made, found->name);
}

static int delete_one(struct weir__call *call, struct weir__publication *made, void *context)
{
    const struct deletion *deletion = context;
    struct weir__document document = {.text = {"", 0}};
    struct weir__stored found;
    int error = 0;
    made->refused = !find_to_change(call, &found, &error);
    bool published = !made->refused && (found.enforced || found.shadow);
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

/* The text of an old version, compiled with the settings of now, without the turn from then on. */
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
        *good = weir__document_read((weir_text){text, strlen(text)}, document, errors);
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

/* A new version with an old one's text. */
static int roll_back(struct weir__call *call, int64_t version, const char *reason)
{
    struct weir__stored found;
    struct weir__document document = {.own = NULL};
    json_t *problems = json_array();
    bool good = false;
    int error = read_version(call, version, &document, problems, &good);
    if (!error && good && weir__work_end(call) && !(error = weir__db_begin(call->db))) {
        error = weir__stored_find(call->db, call->param[0], &found);
        if (!error)
            error = write_version(call, &document, "rollback", found.version + 1, reason, false);
        error = weir__db_end(call->db, error);
        if (!error)
            reply_written(call, 200, &document, found.version + 1, problems);
    }
    json_decref(problems);
    weir__document_close(&document);
    return error;
}

int weir__rest_rollback(struct weir__call *call)
{
    char reason[WEIR__REASON_MAX + 1] = "";
    json_t *body = weir__call_json(call, "version|reason");
    if (!body)
        return 0;
    int64_t version = json_integer_value(json_object_get(body, "version"));
    const char *why = json_string_value(json_object_get(body, "reason"));
    bool good = !why || (strlen(why) <= WEIR__REASON_MAX && weir__text_sound((weir_text){why, strlen(why)}));
    if (version <= 0)
        weir__fail(call, 400, "bad_version", "version: a number from 1 on", NULL);
    else if (!good)
        weir__fail(call, 400, "bad_reason", "reason: a text of up to 1000 bytes", NULL);
    else if (why)
        snprintf(reason, sizeof reason, "%s", why);
    else
        good = weir__call_reason(call, reason);
    json_decref(body);
    return version > 0 && good ? roll_back(call, version, reason) : 0;
}
