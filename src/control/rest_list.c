/* Reading documents: the list, one of them, its versions, and the difference of two. */
#include "base/duration.h"
#include "base/json_writer.h"
#include "control/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 10000

/* ---- The list ---- */

/* A list may have thousands of rows: they are written as they come, without a tree of JSON values. */
struct rest_listing {
    struct weir__json json;
    int64_t left; /* rows until the page is full */
    char last[WEIR__DOCUMENT_NAME];
    bool more;
};

static void put_text(struct weir__json *json, const char *name, weir_text text)
{
    weir__json_bytes(json, name, text.data, text.len);
}

static void put_number(struct weir__json *json, const char *name, const struct weir__db_row *row, int column)
{
    weir__json_raw(json, name, row->null(row, column) ? "null" : weir__row_text(row, column).data);
}

static int add_item(void *context, const struct weir__db_row *row)
{
    struct rest_listing *listing = context;
    struct weir__json *json = &listing->json;
    char at[WEIR__TIME_TEXT];
    if (!listing->left--) {
        listing->more = true;
        return 0;
    }
    snprintf(listing->last, sizeof listing->last, "%s", weir__row_text(row, 0).data);
    weir__time_text(weir__row_number(row, 7), at);
    weir__json_open(json, NULL, '{');
    put_text(json, "name", weir__row_text(row, 0));
    put_text(json, "kind", weir__row_text(row, 1));
    put_number(json, "version", row, 2);
    put_text(json, "stage",
             weir__stage_name(weir__row_number(row, 2), weir__row_number(row, 4), weir__row_number(row, 5)));
    put_number(json, "enforced_version", row, 4);
    put_number(json, "shadow_version", row, 5);
    put_text(json, "author", weir__row_text(row, 6));
    weir__json_text(json, "at", at);
    put_text(json, "summary", weir__row_text(row, 8));
    weir__json_bool(json, "deleted", weir__row_number(row, 3) != 0);
    weir__json_close(json, '}');
    return 0;
}

static int list_all(struct weir__call *call, const struct weir__db_value *by, int64_t limit)
{
    char *text = NULL;
    size_t len = 0;
    struct rest_listing listing = {.json = {.to = open_memstream(&text, &len)}, .left = limit};
    if (!listing.json.to)
        return WEIR__DB_MEMORY;
    weir__json_open(&listing.json, NULL, '{');
    weir__json_open(&listing.json, "items", '[');
    int error = weir__db_run(
        call->db,
        "SELECT name, kind, version, deleted, enforced_version, shadow_version, author, at, summary FROM documents"
        " WHERE name > $1 AND folded LIKE $2 ESCAPE '\\' AND ($3 = '' OR kind = $3)"
        " AND (deleted = 0 OR enforced_version IS NOT NULL OR shadow_version IS NOT NULL)"
        " AND ($4 = '' OR ($4 = 'enforced' AND enforced_version IS NOT NULL)"
        " OR ($4 = 'shadow' AND shadow_version IS NOT NULL)"
        " OR ($4 = 'draft' AND version <> coalesce(enforced_version, 0) AND version <> coalesce(shadow_version, 0)))"
        " ORDER BY name LIMIT $5",
        by, 5, add_item, &listing);
    weir__json_close(&listing.json, ']');
    weir__json_text(&listing.json, "next", listing.more ? listing.last : NULL);
    weir__json_close(&listing.json, '}');
    if (fclose(listing.json.to) != 0)
        error = error ? error : WEIR__DB_MEMORY;
    if (!error)
        weir__reply_text(call, 200, "application/json", text, len);
    free(text);
    return error;
}

/* The pattern of LIKE for texts that contain `q`. */
static void pattern_of(const char *q, char *pattern)
{
    *pattern++ = '%';
    for (; *q; q++) {
        if (*q == '%' || *q == '_' || *q == '\\')
            *pattern++ = '\\';
        *pattern++ = (char)weir__lower(*q);
    }
    *pattern++ = '%';
    *pattern = 0;
}

static bool is_one_of(const char *word, const char *const *choices)
{
    for (; *choices; choices++)
        if (strcmp(word, *choices) == 0)
            return true;
    return false;
}

int weir__rest_list(struct weir__call *call)
{
    static const char *const stages[] = {"", "draft", "shadow", "enforced", NULL};
    static const char *const kinds[] = {"", "rule", "domain", "settings", NULL};
    enum { Q_MAX = 256 };
    char q[Q_MAX], pattern[2 * Q_MAX + 4], stage[16], kind[16], after[WEIR__PARAM_MAX];
    int64_t limit;
    if (!weir__query_text(call, "q", q, sizeof q) || !weir__query_text(call, "stage", stage, sizeof stage) ||
        !weir__query_text(call, "kind", kind, sizeof kind) || !weir__query_text(call, "after", after, sizeof after) ||
        !weir__query_number(call, "limit", 1, LIST_MAX, 100, &limit))
        return 0;
    if (!is_one_of(stage, stages) || !is_one_of(kind, kinds))
        return weir__fail(call, 400, "bad_query",
                          "stage is draft, shadow or enforced; kind is rule, domain or settings", NULL);
    pattern_of(q, pattern);
    struct weir__db_value by[] = {WEIR__S(after), WEIR__S(pattern), WEIR__S(kind), WEIR__S(stage), WEIR__N(limit + 1)};
    return list_all(call, by, limit);
}

/* ---- One document ---- */

struct one {
    json_t *json;
    char *text;
};

static int keep_one(void *context, const struct weir__db_row *row)
{
    struct one *one = context;
    json_decref(one->json);
    free(one->text);
    weir_text text = weir__row_text(row, 3);
    one->text = strndup(text.data, text.len);
    one->json = json_pack("{s:I, s:o, s:o, s:o, s:b}", "version", (json_int_t)weir__row_number(row, 0), "author",
                          weir__row_json(row, 1), "at", weir__row_time(row, 2), "reason", weir__row_json(row, 4),
                          "deleted", weir__row_number(row, 5) != 0);
    return one->json && one->text ? 0 : WEIR__DB_MEMORY;
}

static int find_version(struct weir__call *call, int64_t version, struct one *one)
{
    return weir__db_run(
        call->db, "SELECT version, author, at, text, reason, deleted FROM versions WHERE name = $1 AND version = $2",
        WEIR__DB_VALUES(WEIR__S(call->param[0]), WEIR__N(version)), keep_one, one);
}

static void reply_one(struct weir__call *call, const struct weir__stored *found, const struct one *one)
{
    int64_t version = json_integer_value(json_object_get(one->json, "version"));
    weir__reply_etag(call, version);
    if (weir__is_yaml(call->request->accept)) {
        weir__reply_text(call, 200, "application/yaml", one->text, strlen(one->text));
        return;
    }
    json_object_set_new(one->json, "name", json_string(found->name));
    json_object_set_new(one->json, "kind", json_string(weir__kind_name(found->kind)));
    json_object_set_new(one->json, "current_version", json_integer(found->version));
    json_object_set_new(one->json, "stage", weir__stored_stage(version, found->enforced, found->shadow));
    json_object_set_new(one->json, "enforced_version", weir__number_or_null(found->enforced));
    json_object_set_new(one->json, "shadow_version", weir__number_or_null(found->shadow));
    json_object_set_new(one->json, "text", json_string(one->text));
    weir__reply_json(call, 200, json_incref(one->json));
}

int weir__rest_get(struct weir__call *call)
{
    struct weir__stored found;
    struct one one = {0};
    int64_t version;
    char etag[32];
    if (!weir__query_number(call, "version", 1, INT64_MAX, 0, &version))
        return 0;
    int error = weir__stored_find(call->db, call->param[0], &found);
    bool there = found.version && (version || !found.deleted);
    if (!error && there)
        error = find_version(call, version ? version : found.version, &one);
    snprintf(etag, sizeof etag, "\"v%" PRId64 "\"", version ? version : found.version);
    if (!error && !there)
        weir__fail_no_document(call);
    else if (!error && !one.json)
        weir__fail(call, 404, "no_version", "there is no such version", NULL);
    else if (!error && !version && weir__text_is(call->request->if_none_match, etag))
        call->reply->status = 304;
    else if (!error)
        reply_one(call, &found, &one);
    json_decref(one.json);
    free(one.text);
    return error;
}

/* ---- Versions ---- */

static int add_version(void *context, const struct weir__db_row *row)
{
    json_t *item = json_pack("{s:I, s:o, s:o, s:o, s:b}", "version", (json_int_t)weir__row_number(row, 0), "author",
                             weir__row_json(row, 1), "at", weir__row_time(row, 2), "reason", weir__row_json(row, 3),
                             "deleted", weir__row_number(row, 4) != 0);
    return json_array_append_new(context, item) ? WEIR__DB_MEMORY : 0;
}

static void add_stage(const struct weir__call *call, json_t *item, void *context)
{
    const struct weir__stored *found = context;
    int64_t version = json_integer_value(json_object_get(item, "version"));
    (void)call;
    json_object_set_new(item, "stage", weir__stored_stage(version, found->enforced, found->shadow));
}

int weir__rest_versions(struct weir__call *call)
{
    struct weir__stored found;
    int error = weir__stored_find(call->db, call->param[0], &found);
    if (error)
        return error;
    if (!found.version)
        return weir__fail_no_document(call);
    return weir__reply_page(call,
                            "SELECT version, author, at, reason, deleted FROM versions WHERE name = $3 AND version < $1"
                            " ORDER BY version DESC LIMIT $2",
                            found.name, add_version, "version", add_stage, &found);
}

/* ---- Two versions ---- */

static void reply_diff(struct weir__call *call, int64_t from, int64_t to, const char *old_text, const char *new_text)
{
    const char *texts[2] = {old_text, new_text};
    const int64_t versions[2] = {from, to};
    char labels[2][WEIR__DOCUMENT_NAME + 32];
    struct weir__document documents[2];
    bool both = true;
    json_t *unused = json_array(), *changes = json_array();
    for (int i = 0; i < 2; i++) {
        snprintf(labels[i], sizeof labels[i], "%.*s@%" PRId64, WEIR__DOCUMENT_NAME, call->param[0], versions[i]);
        both &= weir__document_read(weir__text_of(texts[i]), &documents[i], unused);
    }
    char *unified = weir__diff(old_text, new_text, labels[0], labels[1]);
    if (both)
        weir__document_changes(documents[0].root, documents[1].root, changes);
    weir__reply_json(call, 200,
                     json_pack("{s:s, s:I, s:I, s:s, s:O}", "name", call->param[0], "from", (json_int_t)from, "to",
                               (json_int_t)to, "unified", unified ? unified : "", "changes", changes));
    weir__document_close(&documents[0]);
    weir__document_close(&documents[1]);
    json_decref(unused);
    json_decref(changes);
    free(unified);
}

int weir__rest_diff(struct weir__call *call)
{
    struct weir__stored found;
    struct one old = {0}, new = {0};
    int64_t from, to;
    if (!weir__query_number(call, "from", 1, INT64_MAX, 0, &from) ||
        !weir__query_number(call, "to", 1, INT64_MAX, 0, &to))
        return 0;
    int error = weir__stored_find(call->db, call->param[0], &found);
    if (error)
        return error;
    if (!found.version)
        return weir__fail_no_document(call);
    /* Default: from the enforced version to the current one. */
    to = to ? to : found.version;
    from = from ? from : found.enforced;
    error = find_version(call, to, &new);
    if (!error && from)
        error = find_version(call, from, &old);
    if (!error && (!new.json || (from && !old.json)))
        weir__fail(call, 404, "no_version", "there is no such version", NULL);
    else if (!error && weir__work_begin(call))
        reply_diff(call, from, to, old.text ? old.text : "", new.text);
    json_decref(old.json);
    json_decref(new.json);
    free(old.text);
    free(new.text);
    return error;
}
