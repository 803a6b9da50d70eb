/*
 * Publishing documents: POST /v1/rules/{name}/publish sets the stage of one document, POST /v1/revisions of several at
 * once. Either way all stages change in one transaction, which makes one revision.
 */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define STAGED_MAX 10000 /* documents of one request */

/* The stage that a request sets for one document. */
struct staged {
    const char *name;       /* of the request, as is the next: */
    const char *stage;      /* "draft", "shadow" or "enforced" */
    int64_t version;        /* that gets the stage; 0: the current one */
    struct weir__stored is; /* the document with its new stage */
    bool changed;           /* the document had another stage before */
};

/* All documents of a request. */
struct staging {
    struct staged *list;
    size_t count;
    bool many;     /* the request has a list of documents: messages begin with the name of one */
    json_t *names; /* an object with a member for each */
};

static bool refuse(struct weir__call *call, const struct staging *all, const struct staged *one, int status,
                   const char *code, const char *message)
{
    return weir__fail(call, status, code, "%s%s%s", all->many ? one->name : "", all->many ? ": " : "", message);
}

/* ---- Reading the request ---- */

static bool read_stage(struct weir__call *call, const struct staging *all, const json_t *stage, const json_t *version,
                       struct staged *one)
{
    one->stage = json_string_value(stage);
    one->version = json_integer_value(version);
    if (!one->stage || !weir__is_one_of(one->stage, "draft|shadow|enforced"))
        return refuse(call, all, one, 400, "bad_stage", "stage: draft, shadow or enforced");
    if (version && one->version <= 0)
        return refuse(call, all, one, 400, "bad_version", "version: a number from 1 on");
    return true;
}

/*
 * Reads one item of the list: {name, version, stage}. `stage` is the request's, for items that have none.
 */
static bool read_item(struct weir__call *call, struct staging *all, json_t *item, const json_t *stage)
{
    struct staged *one = &all->list[all->count];
    const json_t *name = json_object_get(item, "name"), *own = json_object_get(item, "stage");
    weir_text text = {json_string_value(name), json_string_length(name)};
    const char *member;
    json_t *value;
    if (!text.len || text.len >= WEIR__DOCUMENT_NAME || !weir__text_sound(text))
        return weir__fail(call, 400, "bad_name", "documents: objects with a name, and perhaps a version and a stage");
    one->name = text.data;
    json_object_foreach(item, member, value)
    {
        if (!weir__is_one_of(member, "name|version|stage"))
            return refuse(call, all, one, 400, "bad_member", "a document has a name, a version and a stage here");
    }
    if (json_object_get(all->names, one->name))
        return refuse(call, all, one, 400, "twice", "it is named twice");
    json_object_set_new(all->names, one->name, json_true());
    all->count++;
    return read_stage(call, all, own ? own : stage, json_object_get(item, "version"), one);
}

/* Reads the list of documents. */
static bool read_list(struct weir__call *call, struct staging *all)
{
    const json_t *documents = json_object_get(call->body, "documents"), *stage = json_object_get(call->body, "stage");
    size_t count = json_array_size(documents), i;
    json_t *item;
    if (count == 0 || count > STAGED_MAX)
        return weir__fail(call, 400, "bad_documents", "documents: a list of 1 to 10000 documents");
    all->list = weir__arena_array(&call->arena, count, sizeof *all->list);
    if (!all->list)
        return weir__fail_memory(call);
    json_array_foreach(documents, i, item)
    {
        if (!read_item(call, all, item, stage))
            return false;
    }
    return true;
}

/* ---- Changing stages ---- */

static bool version_exists(struct weir__db *db, const char *name, int64_t version)
{
    weir__db_run(db, "SELECT 1 FROM versions WHERE name = $1 AND version = $2 AND deleted = 0", WEIR__S(name),
                 WEIR__N(version));
    return weir__db_next(db);
}

/* Sets the stage of one document, within the transaction. */
static bool stage_one(struct weir__call *call, const struct staging *all, struct staged *one)
{
    struct weir__stored before = weir__stored_find(call->db, one->name), *document = &one->is;
    int64_t version = one->version ? one->version : before.version;
    *document = before;
    if (!before.version)
        return refuse(call, all, one, 404, "no_document", "there is no document of this name");
    if (strcmp(one->stage, "draft") == 0) {
        /* A request that names a version withdraws only that one: dropping a shadow keeps the enforced version. */
        bool both = !one->version;
        document->enforced = both || document->enforced == version ? 0 : document->enforced;
        document->shadow = both || document->shadow == version ? 0 : document->shadow;
    } else if (!version_exists(call->db, one->name, version)) {
        return refuse(call, all, one, 404, "no_version", "there is no such version, or it is a deletion");
    } else if (strcmp(one->stage, "enforced") == 0) {
        document->enforced = version;
        document->shadow = document->shadow == version ? 0 : document->shadow;
    } else if (document->kind != WEIR__KIND_RULE) {
        return refuse(call, all, one, 409, "no_shadow", "only rules have a shadow; descriptors have shadow_mode");
    } else {
        document->shadow = version;
        document->enforced = document->enforced == version ? 0 : document->enforced;
    }
    one->changed = before.enforced != document->enforced || before.shadow != document->shadow;
    if (one->changed)
        weir__stored_set_stage(call->db, document);
    return true;
}

/* Within the transaction: sets all stages and adds the revision, with an entry in the audit log for each document. */
static void stage_all(struct weir__call *call, struct weir__publication *made, void *context)
{
    struct staging *all = context;
    bool changed = false;
    for (size_t i = 0; i < all->count; i++) {
        if (!stage_one(call, all, &all->list[i]))
            return;
        changed |= all->list[i].changed;
    }
    if (!changed)
        weir__fail(call, 409, "unchanged", "nothing would change: this is so already");
    if (!changed || !weir__publication_make(call, made))
        return;
    for (size_t i = 0; i < all->count; i++) {
        const struct staged *one = &all->list[i];
        if (!one->changed)
            continue;
        weir__audit(call, "publish", one->name,
                    json_pack("{s:s, s:I, s:I, s:I, s:s}", "stage", one->stage, "enforced_version",
                              (json_int_t)one->is.enforced, "shadow_version", (json_int_t)one->is.shadow, "revision",
                              (json_int_t)made->revision, "reason", made->reason));
    }
}

/* ---- Replies ---- */

static json_t *describe(const struct staged *one)
{
    return json_pack("{s:s, s:s, s:o, s:o}", "name", one->name, "stage", one->stage, "enforced_version",
                     weir__number_or_null(one->is.enforced), "shadow_version", weir__number_or_null(one->is.shadow));
}

/* Publishes, and replies with the warnings about the documents. */
static bool publish(struct weir__call *call, struct staging *all)
{
    struct weir__publication made = {.guarded = true, .about = all->names, .reason = weir__call_reason(call)};
    bool good = weir__publication_run(call, stage_all, all, &made);
    weir__set_free(&made.set);
    if (!good)
        return false;
    json_t *body = all->many ? json_pack("{s:[]}", "documents") : describe(&all->list[0]);
    for (size_t i = 0; i < all->count && all->many; i++) {
        json_t *one = describe(&all->list[i]);
        json_object_set_new(one, "changed", json_boolean(all->list[i].changed));
        json_array_append_new(json_object_get(body, "documents"), one);
    }
    json_object_set_new(body, "revision", json_integer(made.revision));
    json_object_set_new(body, "written", json_boolean(!call->control->path || call->control->written));
    json_object_set(body, "warnings", call->problems);
    return weir__reply_json(call, all->many ? 201 : 200, body);
}

bool weir__rest_publish(struct weir__call *call)
{
    struct staged one = {.name = call->param[0]};
    struct staging all = {.list = &one, .count = 1, .names = json_pack("{s:b}", one.name, 1)};
    bool good =
        weir__call_json(call, "stage|version|reason") &&
        read_stage(call, &all, json_object_get(call->body, "stage"), json_object_get(call->body, "version"), &one) &&
        publish(call, &all);
    json_decref(all.names);
    return good;
}

bool weir__rest_publish_many(struct weir__call *call)
{
    struct staging all = {.many = true, .names = json_object()};
    bool good = weir__call_json(call, "documents|stage|reason") && read_list(call, &all) && publish(call, &all);
    json_decref(all.names);
    return good;
}
