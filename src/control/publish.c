/* Publishing: compiles the set of all staged documents and adds a revision of it. stage.c sets the stages. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIES 4 /* to publish a set that was compiled before; the last one compiles within the transaction */

/* ---- A publication ---- */

/* True if nothing may be published now: replied, or an error. */
static bool is_stale(struct weir__call *call, int *error)
{
    /* Read again: the database may have been restored since the last tick. */
    *error = weir__published_follow(call->control);
    if (*error)
        return true;
    if (!call->control->stale)
        return false;
    weir__fail(
        call, 409, "database_restored",
        "the database is older than the published rules, as if it had been restored from an old copy; to publish what "
        "it has, roll back to a revision (POST /v1/revisions/{revision}/rollback)",
        NULL);
    return true;
}

static int compile(struct weir__call *call, struct weir__publication *made)
{
    json_decref(made->warnings);
    made->warnings = json_array();
    int wrong = weir__set_compile(&made->set, made->about, made->warnings, &made->rules);
    if (wrong == WEIR_ENOMEM)
        return WEIR__DB_MEMORY;
    if (wrong) {
        made->refused = true;
        weir__fail(call, 422, "invalid", "the set would have errors; nothing was published", made->warnings);
        made->warnings = NULL;
    }
    memcpy(made->checked, made->digest, sizeof made->checked);
    return 0;
}

int weir__publication_make(struct weir__call *call, const char *reason, struct weir__publication *made)
{
    int64_t newest = 0, current = call->control->published.revision;
    weir__set_free(&made->set);
    int error = weir__set_of(call->db, 0, &made->set);
    if (!error)
        error = weir__db_number(call->db, "SELECT max(revision) FROM revisions", NULL, 0, 0, &newest);
    if (error)
        return error;
    weir__digest("", made->set.text, made->set.len, made->digest);
    if (!*made->digest)
        return WEIR__DB_MEMORY;
    bool known = strcmp(made->digest, made->checked) == 0;
    made->unchecked = !known && !made->last;
    if (!known && made->last)
        error = compile(call, made);
    if (weir__publication_stopped(made, error))
        return error;
    made->revision = (newest > current ? newest : current) + 1;
    return weir__db_exec(call->db,
                         "INSERT INTO revisions (revision, author, at, reason, digest, rules)"
                         " VALUES ($1, $2, $3, $4, $5, $6)",
                         WEIR__N(made->revision), WEIR__S(call->who), WEIR__N(call->now_ms), WEIR__S(reason),
                         WEIR__S(made->digest), WEIR__N((int64_t)made->rules));
}

/* One transaction; see call.h. */
static int try_once(struct weir__call *call, weir__publication_step *change, void *context,
                    struct weir__publication *made)
{
    int error = 0;
    made->unchecked = false;
    if (made->guarded && is_stale(call, &error)) {
        made->refused = true;
        return error;
    }
    error = weir__db_begin(call->db);
    if (error)
        return error;
    error = change(call, made, context);
    if (!error && weir__publication_stopped(made, 0)) {
        call->db->calls->rollback(call->db);
        return 0;
    }
    error = weir__db_end(call->db, error);
    if (!error && made->revision)
        weir__publication_apply(call, made);
    return error;
}

int weir__publication_run(struct weir__call *call, weir__publication_step *change, void *context,
                          struct weir__publication *made)
{
    for (int left = TRIES; left > 0; left--) {
        made->last = left == 1;
        int error = try_once(call, change, context, made);
        if (error || !made->unchecked)
            return error;
        bool mine = weir__work_begin(call);
        error = mine ? compile(call, made) : 0;
        made->refused = made->refused || !mine || error || !weir__work_end(call);
        if (made->refused)
            return error;
    }
    return 0;
}

int weir__publication_change(struct weir__call *call, const struct weir__publication *made, const char *name)
{
    return weir__db_exec(call->db,
                         "INSERT INTO revision_changes (revision, name, enforced_version, shadow_version)"
                         " SELECT CAST($1 AS BIGINT), name, enforced_version, shadow_version FROM documents"
                         " WHERE name = $2",
                         WEIR__N(made->revision), WEIR__S(name));
}

void weir__publication_apply(struct weir__call *call, struct weir__publication *made)
{
    struct weir__published_rules now = {
        .revision = made->revision, .at_ms = call->now_ms, .text = made->set.text, .len = made->set.len};
    memcpy(now.digest, made->digest, sizeof now.digest);
    memcpy(now.known_as, made->digest, sizeof now.known_as);
    made->set.text = NULL;
    weir__published_set(call->control, &now);
}

void weir__publication_free(struct weir__publication *made)
{
    weir__set_free(&made->set);
    json_decref(made->warnings);
    json_decref(made->about);
    made->warnings = made->about = NULL;
}

/* ---- Whole revisions ---- */

/* Restores the stage that every document had in a revision. */
static int restore_stages(struct weir__call *call, int64_t revision)
{
    static const char at_revision[] =
        "(SELECT c.%s FROM revision_changes c WHERE c.name = documents.name AND c.revision ="
        " (SELECT max(x.revision) FROM revision_changes x WHERE x.name = documents.name AND x.revision <= $1))";
    char enforced[512], shadow[512], sql[1200];
    snprintf(enforced, sizeof enforced, at_revision, "enforced_version");
    snprintf(shadow, sizeof shadow, at_revision, "shadow_version");
    snprintf(sql, sizeof sql, "UPDATE documents SET enforced_version = %s, shadow_version = %s", enforced, shadow);
    return weir__db_exec(call->db, sql, WEIR__N(revision));
}

int weir__publication_changes(struct weir__call *call, const struct weir__publication *made)
{
    return weir__db_exec(
        call->db,
        "INSERT INTO revision_changes (revision, name, enforced_version, shadow_version)"
        " SELECT CAST($1 AS BIGINT), d.name, d.enforced_version, d.shadow_version FROM documents d"
        " LEFT JOIN (SELECT c.name, c.enforced_version, c.shadow_version FROM revision_changes c WHERE c.revision ="
        "  (SELECT max(x.revision) FROM revision_changes x WHERE x.name = c.name)) o ON o.name = d.name"
        " WHERE coalesce(o.enforced_version, 0) <> coalesce(d.enforced_version, 0)"
        " OR coalesce(o.shadow_version, 0) <> coalesce(d.shadow_version, 0)",
        WEIR__N(made->revision));
}

/* The revision in the path; 0: not a number. */
static int64_t path_number(const struct weir__call *call)
{
    const char *text = call->param[0];
    return strlen(text) < 19 && strspn(text, "0123456789") == strlen(text) ? strtoll(text, NULL, 10) : 0;
}

static int roll_back(struct weir__call *call, struct weir__publication *made, void *context)
{
    const char *reason = context;
    int64_t exists = 0, revision = path_number(call);
    int error = weir__db_number(call->db, "SELECT count(*) FROM revisions WHERE revision = $1",
                                WEIR__DB_VALUES(WEIR__N(revision)), 0, &exists);
    if (!error && !exists) {
        made->refused = true;
        return weir__fail(call, 404, "no_revision", "there is no such revision", NULL);
    }
    if (!error)
        error = restore_stages(call, revision);
    if (!error)
        error = weir__publication_make(call, reason, made);
    if (weir__publication_stopped(made, error))
        return error;
    error = weir__publication_changes(call, made);
    char object[32];
    snprintf(object, sizeof object, "%" PRId64, revision);
    return error ? error
                 : weir__audit(call, "revision_rollback", object,
                               json_pack("{s:I, s:s}", "revision", (json_int_t)made->revision, "reason", reason));
}

int weir__rest_revision_rollback(struct weir__call *call)
{
    struct weir__publication made = {.refused = false};
    char reason[WEIR__REASON_MAX + 1];
    json_t *body = weir__call_json(call, "reason");
    bool good = body && weir__body_reason(call, body, reason);
    json_decref(body);
    if (!good)
        return 0;
    int error = weir__publication_run(call, roll_back, reason, &made);
    if (!error && !made.refused)
        weir__reply_json(call, 200,
                         json_pack("{s:I, s:b}", "revision", (json_int_t)made.revision, "written",
                                   !call->control->path || call->control->written));
    weir__publication_free(&made);
    return error;
}

static int add_revision(void *context, const struct weir__db_row *row)
{
    return json_array_append_new(context,
                                 json_pack("{s:I, s:o, s:o, s:o, s:o, s:I}", "revision",
                                           (json_int_t)weir__row_number(row, 0), "author", weir__row_json(row, 1), "at",
                                           weir__row_time(row, 2), "reason", weir__row_json(row, 3), "digest",
                                           weir__row_json(row, 4), "rules", (json_int_t)weir__row_number(row, 5)))
               ? WEIR__DB_MEMORY
               : 0;
}

int weir__rest_revisions(struct weir__call *call)
{
    return weir__reply_page(call,
                            "SELECT revision, author, at, reason, digest, rules FROM revisions WHERE revision < $1"
                            " ORDER BY revision DESC LIMIT $2",
                            NULL, add_revision, "revision", NULL, NULL);
}

int weir__rest_revision(struct weir__call *call)
{
    struct weir__set set = {0};
    json_t *items = json_array();
    int64_t revision = path_number(call);
    int error =
        weir__db_run(call->db, "SELECT revision, author, at, reason, digest, rules FROM revisions WHERE revision = $1",
                     WEIR__DB_VALUES(WEIR__N(revision)), add_revision, items);
    json_t *found = json_array_get(items, 0);
    if (!error && !found)
        weir__fail(call, 404, "no_revision", "there is no such revision", NULL);
    if (!error && found)
        error = weir__set_of(call->db, revision, &set);
    if (!error && found && weir__is_yaml(call->request->accept)) {
        weir__reply_text(call, 200, "application/yaml", set.text, set.len);
    } else if (!error && found) {
        json_object_set_new(found, "text", weir__text_json((weir_text){set.text, set.len}));
        weir__reply_json(call, 200, json_incref(found));
    }
    weir__set_free(&set);
    json_decref(items);
    return error;
}

/* Replies from memory, also while the database is unavailable. */
int weir__rest_published(struct weir__call *call)
{
    struct weir__control *control = call->control;
    char etag[64];
    weir__rest_record_heartbeat(call);
    pthread_mutex_lock(&control->published_lock);
    const struct weir__published_rules *published = &control->published;
    if (!published->revision) {
        pthread_mutex_unlock(&control->published_lock);
        return weir__fail(call, 404, "nothing_published", "nothing has been published yet", NULL);
    }
    snprintf(etag, sizeof etag, "\"r%" PRId64 "-%.16s\"", published->revision, published->digest);
    weir__reply_header(call, "ETag", "%s", etag);
    weir__reply_header(call, "X-Weir-Revision", "%" PRId64, published->revision);
    weir_text known = call->request->if_none_match;
    if (known.len && (weir__text_is(known, "*") || memmem(known.data, known.len, etag, strlen(etag))))
        call->reply->status = 304;
    else
        weir__reply_text(call, 200, "application/yaml", published->text, published->len);
    pthread_mutex_unlock(&control->published_lock);
    return 0;
}
