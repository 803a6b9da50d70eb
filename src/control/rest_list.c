/* Reading documents: the list, one of them, its versions, and the difference of two. */
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 10000
#define Q_MAX    255

/* ---- The list ---- */

bool weir__rest_list(struct weir__call *call)
{
    char folded[Q_MAX + 1];
    snprintf(folded, sizeof folded, "%s", weir__query_text(call, "q", Q_MAX));
    weir__fold(folded);
    const char *stage = weir__query_text(call, "stage", 15), *kind = weir__query_text(call, "kind", 15);
    const char *after = weir__query_text(call, "after", WEIR__PARAM_MAX - 1);
    int64_t limit = weir__query_number(call, "limit", 1, LIST_MAX, 100);
    if ((*stage && !weir__is_one_of(stage, "draft|shadow|enforced")) ||
        (*kind && !weir__is_one_of(kind, "rule|domain|settings")))
        weir__fail(call, 400, "bad_query", "stage is draft, shadow or enforced; kind is rule, domain or settings");
    if (call->failed)
        return false;
    weir__db_run(
        call->db,
        "SELECT name, kind, version, CASE version WHEN enforced_version THEN 'enforced' WHEN shadow_version THEN"
        " 'shadow' ELSE 'draft' END, enforced_version, shadow_version, author, at, summary, deleted FROM documents"
        " WHERE name > $1 AND ($2 = '' OR replace(folded, $2, '') <> folded) AND ($3 = '' OR kind = $3)"
        " AND (deleted = 0 OR enforced_version IS NOT NULL OR shadow_version IS NOT NULL)"
        " AND ($4 = '' OR ($4 = 'enforced' AND enforced_version IS NOT NULL)"
        " OR ($4 = 'shadow' AND shadow_version IS NOT NULL)"
        " OR ($4 = 'draft' AND version <> coalesce(enforced_version, 0) AND version <> coalesce(shadow_version, 0)))"
        " ORDER BY name LIMIT $5",
        WEIR__S(after), WEIR__S(folded), WEIR__S(kind), WEIR__S(stage), WEIR__N(limit + 1));
    json_t *items = weir__rows_json(call->db, "s:name s:kind i:version s:stage i:enforced_version i:shadow_version"
                                              " s:author t:at s:summary b:deleted");
    json_t *last = json_array_get(items, (size_t)limit - 1); /* NULL: the page is not full */
    bool more = json_array_remove(items, (size_t)limit) == 0;
    json_t *next = more ? json_incref(json_object_get(last, "name")) : json_null(), *item;
    size_t i;
    json_array_foreach(items, i, item)
    {
        weir__add_place(call->control, json_string_value(json_object_get(item, "name")), item);
    }
    const struct weir__files_view *files = call->control->shows;
    json_t *about = files
                        ? json_pack("{s:s, s:O}", "path", files->named->path ? files->named->path : files->named->file,
                                    "errors", files->errors)
                        : NULL;
    return weir__reply_json(call, 200, json_pack("{s:o, s:o, s:o*}", "items", items, "next", next, "files", about));
}

/* ---- One document ---- */

/* Goes to the row of a version: version, author, at, reason, deleted, text. False: there is none. */
static bool find_version(struct weir__call *call, int64_t version)
{
    weir__db_run(call->db,
                 "SELECT version, author, at, reason, deleted, text FROM versions WHERE name = $1 AND version = $2",
                 WEIR__S(call->param[0]), WEIR__N(version));
    return weir__db_next(call->db);
}

static bool fail_no_version(struct weir__call *call)
{
    return weir__fail(call, 404, "no_version", "there is no such version");
}

bool weir__rest_get(struct weir__call *call)
{
    char etag[32];
    int64_t wanted = weir__query_number(call, "version", 1, INT64_MAX, 0);
    if (call->failed)
        return false;
    struct weir__stored found = weir__stored_find(call->db, call->param[0]);
    int64_t version = wanted ? wanted : found.version;
    if (!found.version || (!wanted && found.deleted))
        return weir__fail_no_document(call);
    if (!find_version(call, version))
        return fail_no_version(call);
    snprintf(etag, sizeof etag, "\"v%" PRId64 "\"", version);
    if (!wanted && weir__text_is(call->request->if_none_match, etag))
        return weir__reply_status(call, 304);
    weir__reply_etag(call, version);
    if (weir__is_yaml(call->request->accept))
        return weir__reply_text(call, 200, "application/yaml", weir__db_text(call->db, 5));
    const char *stage = version == found.enforced ? "enforced" : version == found.shadow ? "shadow" : "draft";
    json_t *body = weir__row_object(call->db, "i:version s:author t:at s:reason b:deleted");
    json_t *about = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:o}", "name", found.name, "kind",
                              weir__kind_name(found.kind), "current_version", (json_int_t)found.version, "stage", stage,
                              "enforced_version", weir__number_or_null(found.enforced), "shadow_version",
                              weir__number_or_null(found.shadow), "text", weir__text_json(weir__db_text(call->db, 5)));
    json_object_update(body, about);
    json_decref(about);
    weir__add_place(call->control, found.name, body);
    return weir__reply_json(call, 200, body);
}

/* ---- Versions ---- */

bool weir__rest_versions(struct weir__call *call)
{
    struct weir__stored found = weir__stored_find(call->db, call->param[0]);
    if (!found.version)
        return weir__fail_no_document(call);
    return weir__reply_page(call,
                            "SELECT v.version, v.author, v.at, v.reason, v.deleted, CASE v.version WHEN"
                            " enforced_version THEN 'enforced' WHEN shadow_version THEN 'shadow' ELSE 'draft' END"
                            " FROM versions v JOIN documents d ON d.name = v.name WHERE v.name = $3 AND v.version < $1"
                            " ORDER BY v.version DESC LIMIT $2",
                            found.name, "i:version s:author t:at s:reason b:deleted s:stage", NULL);
}

/* ---- Two versions ---- */

static bool reply_diff(struct weir__call *call, const int64_t versions[2], const char *const texts[2])
{
    char labels[2][WEIR__DOCUMENT_NAME + 32];
    struct weir__document documents[2];
    bool both = true;
    json_t *changes = json_array();
    for (int i = 0; i < 2; i++) {
        snprintf(labels[i], sizeof labels[i], "%.*s@%" PRId64, WEIR__DOCUMENT_NAME, call->param[0], versions[i]);
        both &= weir__document_read(&call->arena, weir__text_of(texts[i]), &documents[i], call->problems);
    }
    if (both)
        weir__document_changes(documents[0].root, documents[1].root, changes);
    char *unified = weir__diff(texts[0], texts[1], labels[0], labels[1]);
    json_t *body = json_pack("{s:s, s:I, s:I, s:s, s:o}", "name", call->param[0], "from", (json_int_t)versions[0], "to",
                             (json_int_t)versions[1], "unified", unified ? unified : "", "changes", changes);
    free(unified);
    return weir__reply_json(call, 200, body);
}

bool weir__rest_diff(struct weir__call *call)
{
    int64_t versions[2] = {weir__query_number(call, "from", 1, INT64_MAX, 0),
                           weir__query_number(call, "to", 1, INT64_MAX, 0)};
    const char *texts[2] = {"", ""};
    if (call->failed)
        return false;
    struct weir__stored found = weir__stored_find(call->db, call->param[0]);
    if (!found.version)
        return weir__fail_no_document(call);
    /* Default: from the enforced version to the current one. Without an enforced version, everything is new. */
    versions[0] = versions[0] ? versions[0] : found.enforced;
    versions[1] = versions[1] ? versions[1] : found.version;
    for (int i = 0; i < 2; i++) {
        if (i == 0 && !versions[0])
            continue;
        if (!find_version(call, versions[i]))
            return fail_no_version(call);
        texts[i] = weir__call_copy(call, weir__db_text(call->db, 5));
    }
    return weir__work_begin(call) && reply_diff(call, versions, texts);
}
