/* Publishing: compiles the set of all staged documents and adds a revision of it. stage.c sets the stages. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIES 4 /* to publish a set that was compiled before; the last one compiles within the transaction */

/* ---- A publication ---- */

/* Refuses if nothing may be published now. */
static bool check_not_stale(struct weir__call *call)
{
    /* Read again: the database may have been restored since the last tick. */
    weir__published_follow(call->control);
    return !call->control->stale ||
           weir__fail(call, 409, "database_restored",
                      "the database is older than the published rules, as if it had been restored from an old copy; to "
                      "publish what it has, roll back to a revision (POST /v1/revisions/{revision}/rollback)");
}

static void compile(struct weir__call *call, struct weir__publication *made)
{
    json_array_clear(call->problems);
    int wrong = weir__set_compile(&made->set, made->about, call->problems, &made->rules);
    if (wrong == WEIR_ENOMEM)
        weir__fail_memory(call);
    else if (wrong)
        weir__fail_invalid(call, "the set would have errors; nothing was published");
    memcpy(made->checked, made->digest, sizeof made->checked);
}

bool weir__publication_make(struct weir__call *call, struct weir__publication *made)
{
    struct weir__db *db = call->db;
    int64_t current = call->control->published.revision;
    weir__set_free(&made->set);
    weir__set_of(db, 0, &made->set);
    int64_t newest = weir__db_count(db, "SELECT max(revision) FROM revisions");
    weir__digest("", made->set.text.data, made->set.text.len, made->digest);
    if (db->error)
        return false;
    bool known = made->compiled || strcmp(made->digest, made->checked) == 0;
    made->unchecked = !known && !made->last;
    if (!known && made->last)
        compile(call, made);
    if (call->failed || made->unchecked)
        return false;
    made->revision = (newest > current ? newest : current) + 1;
    weir__db_run(db,
                 "INSERT INTO revisions (revision, author, at, reason, digest, rules) VALUES ($1, $2, $3, $4, $5, $6)",
                 WEIR__N(made->revision), WEIR__S(call->who), WEIR__N(call->now_ms), WEIR__S(made->reason),
                 WEIR__S(made->digest), WEIR__N((int64_t)made->rules));
    /* The documents whose published versions differ from the last revision's. */
    return weir__db_run(db,
                        "INSERT INTO revision_changes (revision, name, enforced_version, shadow_version)"
                        " SELECT CAST($1 AS BIGINT), name, enforced_version, shadow_version FROM documents"
                        " WHERE coalesce(enforced_version, 0) <> coalesce((SELECT c.enforced_version"
                        " FROM revision_changes c WHERE c.name = documents.name ORDER BY c.revision DESC LIMIT 1), 0)"
                        " OR coalesce(shadow_version, 0) <> coalesce((SELECT c.shadow_version"
                        " FROM revision_changes c WHERE c.name = documents.name ORDER BY c.revision DESC LIMIT 1), 0)",
                        WEIR__N(made->revision)) == 0;
}

bool weir__publication_run(struct weir__call *call, weir__publication_step *change, void *context,
                           struct weir__publication *made)
{
    for (int left = TRIES; left > 0 && !call->failed; left--) {
        made->last = left == 1;
        made->unchecked = false;
        if (made->guarded && !check_not_stale(call))
            return false;
        weir__db_begin(call->db);
        change(call, made, context);
        bool keep = !call->failed && !made->unchecked;
        if (weir__db_end(call->db, keep))
            return false;
        if (keep && made->revision)
            weir__published_set(call->control, made->revision, call->now_ms, made->digest, &made->set);
        if (keep)
            return true;
        if (made->unchecked && weir__work_begin(call)) {
            compile(call, made);
            if (!call->failed && !weir__work_end(call))
                return false;
        }
    }
    return false;
}

/* ---- Whole revisions ---- */

/* The revision in the path; 0: not a number. */
static int64_t path_number(const struct weir__call *call)
{
    const char *text = call->param[0];
    return strlen(text) < 19 && strspn(text, "0123456789") == strlen(text) ? strtoll(text, NULL, 10) : 0;
}

/* Goes to the row of the revision in the path. */
static bool find_revision(struct weir__call *call)
{
    weir__db_run(call->db, "SELECT revision, author, at, reason, digest, rules FROM revisions WHERE revision = $1",
                 WEIR__N(path_number(call)));
    return weir__db_next(call->db) || weir__fail(call, 404, "no_revision", "there is no such revision");
}

static void roll_back(struct weir__call *call, struct weir__publication *made, void *context)
{
    char object[32];
    (void)context;
    if (!find_revision(call))
        return;
    /* Restores the stage that every document had in the revision. */
    weir__db_run(call->db,
                 "UPDATE documents SET enforced_version = (SELECT c.enforced_version FROM revision_changes c"
                 " WHERE c.name = documents.name AND c.revision <= $1 ORDER BY c.revision DESC LIMIT 1),"
                 " shadow_version = (SELECT c.shadow_version FROM revision_changes c"
                 " WHERE c.name = documents.name AND c.revision <= $1 ORDER BY c.revision DESC LIMIT 1)",
                 WEIR__N(path_number(call)));
    if (!weir__publication_make(call, made))
        return;
    snprintf(object, sizeof object, "%" PRId64, path_number(call));
    weir__audit(call, "revision_rollback", object,
                json_pack("{s:I, s:s}", "revision", (json_int_t)made->revision, "reason", made->reason));
}

bool weir__rest_revision_rollback(struct weir__call *call)
{
    if (!weir__call_json(call, "reason"))
        return false;
    struct weir__publication made = {.reason = weir__call_reason(call)};
    bool good = weir__publication_run(call, roll_back, NULL, &made);
    weir__set_free(&made.set);
    return good && weir__reply_json(call, 200,
                                    json_pack("{s:I, s:b}", "revision", (json_int_t)made.revision, "written",
                                              !call->control->path || call->control->written));
}

#define REVISION_COLUMNS "i:revision s:author t:at s:reason s:digest i:rules"

bool weir__rest_revisions(struct weir__call *call)
{
    return weir__reply_page(call,
                            "SELECT revision, author, at, reason, digest, rules FROM revisions WHERE revision < $1"
                            " ORDER BY revision DESC LIMIT $2",
                            NULL, REVISION_COLUMNS, NULL);
}

bool weir__rest_revision(struct weir__call *call)
{
    struct weir__set set = {0};
    if (!find_revision(call))
        return false;
    json_t *body = weir__row_object(call->db, REVISION_COLUMNS);
    weir__set_of(call->db, path_number(call), &set);
    weir_text text = {set.text.data, set.text.len};
    json_object_set_new(body, "text", weir__text_json(text));
    if (weir__is_yaml(call->request->accept))
        weir__reply_text(call, 200, "application/yaml", text);
    else
        weir__reply_json(call, 200, json_incref(body));
    weir__set_free(&set);
    json_decref(body);
    return true;
}

/* Replies from memory, also while the database is unavailable. */
bool weir__rest_published(struct weir__call *call)
{
    struct weir__control *control = call->control;
    const struct weir__published_rules *published = &control->published;
    weir_text known = call->request->if_none_match, heartbeat = call->request->heartbeat;
    char etag[64];
    if (heartbeat.len && control->host->record_heartbeat)
        control->host->record_heartbeat(control->host->context, heartbeat);
    pthread_mutex_lock(&control->published_lock);
    snprintf(etag, sizeof etag, "\"r%" PRId64 "-%.16s\"", published->revision, published->digest);
    if (published->revision) {
        weir__reply_header(call, "ETag", "%s", etag);
        weir__reply_header(call, "X-Weir-Revision", "%" PRId64, published->revision);
    }
    if (!published->revision && control->shows)
        weir__fail(call, 503, "rules_not_read", "the rule files could not be read yet; the log has the reason");
    else if (!published->revision)
        weir__fail(call, 404, "nothing_published", "nothing has been published yet");
    else if (known.len && (weir__text_is(known, "*") || memmem(known.data, known.len, etag, strlen(etag))))
        weir__reply_status(call, 304);
    else
        weir__reply_text(call, 200, "application/yaml", (weir_text){published->text, published->len});
    pthread_mutex_unlock(&control->published_lock);
    return true;
}
