/* Stages of documents: changes one, or many at once, as one publication. */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define STAGED_MAX 10000 /* documents at once */

/* A requested change of one document's stage, and its outcome. */
struct staged {
    char name[WEIR__DOCUMENT_NAME];
    char stage[16];
    int64_t version; /* 0: the current one */
    struct weir__stored is;
    bool changed;
};

struct staging {
    struct staged *list;
    size_t count;
    bool many; /* then messages begin with the document's name */
    char reason[WEIR__REASON_MAX + 1];
};

/* Always 0, for handlers. */
static int refuse(struct weir__call *call, const struct staging *all, const struct staged *one, int status,
                  const char *code, const char *message)
{
    char full_message[WEIR__DOCUMENT_NAME + 256];
    snprintf(full_message, sizeof full_message, "%s: %s", one->name, message);
    return weir__fail(call, status, code, all->many ? full_message : message, NULL);
}

/* ---- Reading the request ---- */

static bool read_stage(struct weir__call *call, const struct staging *all, const json_t *given, struct staged *one)
{
    const char *stage = json_string_value(given);
    bool good = stage && (!strcmp(stage, "draft") || !strcmp(stage, "shadow") || !strcmp(stage, "enforced"));
    if (good)
        snprintf(one->stage, sizeof one->stage, "%s", stage);
    else
        refuse(call, all, one, 400, "bad_stage", "stage: draft, shadow or enforced");
    return good;
}

static bool read_version(struct weir__call *call, const struct staging *all, const json_t *given, struct staged *one)
{
    one->version = json_integer_value(given);
    if (!given || one->version > 0)
        return true;
    refuse(call, all, one, 400, "bad_version", "version: a number from 1 on");
    return false;
}

/* One of the list: {name, version, stage}. `seen` has the names before it. */
static bool read_one(struct weir__call *call, struct staging *all, const json_t *item, const json_t *stage,
                     json_t *seen)
{
    struct staged *one = &all->list[all->count];
    const json_t *name = json_object_get(item, "name"), *own = json_object_get(item, "stage");
    const char *text = json_string_value(name), *member;
    json_t *value;
    size_t len = json_string_length(name);
    if (!text || !len || len >= sizeof one->name || !weir__text_sound((weir_text){text, len})) {
        weir__fail(call, 400, "bad_name", "documents: objects with a name, and perhaps a version and a stage", NULL);
        return false;
    }
    memcpy(one->name, text, len + 1);
    json_object_foreach((json_t *)(uintptr_t)item, member, value)
    {
        if (strcmp(member, "name") == 0 || strcmp(member, "version") == 0 || strcmp(member, "stage") == 0)
            continue;
        refuse(call, all, one, 400, "bad_member", "a document has a name, a version and a stage here");
        return false;
    }
    if (json_object_get(seen, text)) {
        refuse(call, all, one, 400, "twice", "it is named twice");
        return false;
    }
    json_object_set_new(seen, text, json_true());
    all->count++;
    return read_stage(call, all, own ? own : stage, one) &&
           read_version(call, all, json_object_get(item, "version"), one);
}

static bool read_list(struct weir__call *call, struct staging *all, const json_t *documents, const json_t *stage)
{
    size_t count = json_array_size(documents), i;
    json_t *item, *seen = json_object();
    bool good = count > 0 && count <= STAGED_MAX;
    if (!good)
        weir__fail(call, 400, "bad_documents", "documents: a list of 1 to 10000 documents", NULL);
    all->list = good ? calloc(count, sizeof *all->list) : NULL;
    if (good && (!all->list || !seen)) {
        weir__fail(call, 503, "no_memory", weir__db_strerror(WEIR__DB_MEMORY), NULL);
        good = false;
    }
    json_array_foreach(documents, i, item)
    {
        if (!good)
            break;
        good = read_one(call, all, item, stage, seen);
    }
    json_decref(seen);
    return good;
}

/* ---- Changing stages ---- */

/* Sets the new stage in memory. *chosen false: replied. */
static int choose(struct weir__call *call, const struct staging *all, struct staged *one, bool *chosen)
{
    struct weir__stored before = one->is, *document = &one->is;
    int64_t version = one->version ? one->version : document->version, exists = 0;
    int error =
        weir__db_number(call->db, "SELECT count(*) FROM versions WHERE name = $1 AND version = $2 AND deleted = 0",
                        WEIR__DB_VALUES(WEIR__S(document->name), WEIR__N(version)), 0, &exists);
    *chosen = false;
    if (error)
        return error;
    if (strcmp(one->stage, "draft") == 0) {
        /* A named version: only that one, so that dropping a shadow keeps the enforced version. */
        bool both = !one->version;
        document->enforced = both || document->enforced == version ? 0 : document->enforced;
        document->shadow = both || document->shadow == version ? 0 : document->shadow;
    } else if (!exists) {
        return refuse(call, all, one, 404, "no_version", "there is no such version, or it is a deletion");
    } else if (strcmp(one->stage, "enforced") == 0) {
        document->enforced = version;
        document->shadow = document->shadow == version ? 0 : document->shadow;
    } else if (document->kind != WEIR__RULE_DOCUMENT) {
        return refuse(call, all, one, 409, "no_shadow", "only rules have a shadow; descriptors have shadow_mode");
    } else {
        document->shadow = version;
        document->enforced = document->enforced == version ? 0 : document->enforced;
    }
    one->changed = before.enforced != document->enforced || before.shadow != document->shadow;
    *chosen = true;
    return 0;
}

static int stage_one(struct weir__call *call, const struct staging *all, struct staged *one, bool *good)
{
    int error = weir__stored_find(call->db, one->name, &one->is);
    *good = false;
    if (error)
        return error;
    if (!one->is.version)
        return refuse(call, all, one, 404, "no_document", "there is no document of this name");
    error = choose(call, all, one, good);
    return error || !*good || !one->changed ? error : weir__stored_set_stage(call->db, &one->is);
}

static int audit_one(struct weir__call *call, const struct staging *all, const struct staged *one, int64_t revision)
{
    return weir__audit(call, "publish", one->name,
                       json_pack("{s:s, s:I, s:I, s:I, s:s}", "stage", one->stage, "enforced_version",
                                 (json_int_t)one->is.enforced, "shadow_version", (json_int_t)one->is.shadow, "revision",
                                 (json_int_t)revision, "reason", all->reason));
}

/* Within a transaction: changes all stages and makes the publication. */
static int stage_all(struct weir__call *call, struct weir__publication *made, void *context)
{
    struct staging *all = context;
    bool good = true, changed = false;
    int error = 0;
    for (size_t i = 0; i < all->count && good && !error; i++) {
        error = stage_one(call, all, &all->list[i], &good);
        changed |= all->list[i].changed;
    }
    made->refused = !error && (!good || !changed);
    if (!error && good && !changed)
        weir__fail(call, 409, "unchanged", "nothing would change: this is so already", NULL);
    if (!error && !made->refused)
        error = weir__publication_make(call, all->reason, made);
    if (weir__publication_stopped(made, error))
        return error;
    for (size_t i = 0; i < all->count && !error; i++) {
        if (!all->list[i].changed)
            continue;
        error = weir__publication_change(call, made, all->list[i].name);
        if (!error)
            error = audit_one(call, all, &all->list[i], made->revision);
    }
    return error;
}

/* ---- Replies ---- */

static json_t *describe(const struct staged *one)
{
    return json_pack("{s:s, s:s, s:o, s:o}", "name", one->name, "stage", one->stage, "enforced_version",
                     weir__number_or_null(one->is.enforced), "shadow_version", weir__number_or_null(one->is.shadow));
}

static void reply_published(struct weir__call *call, const struct staging *all, const struct weir__publication *made)
{
    json_t *body = all->many ? json_pack("{s:[]}", "documents") : describe(&all->list[0]);
    for (size_t i = 0; i < all->count && all->many; i++) {
        json_t *one = describe(&all->list[i]);
        json_object_set_new(one, "changed", json_boolean(all->list[i].changed));
        json_array_append_new(json_object_get(body, "documents"), one);
    }
    json_object_set_new(body, "revision", json_integer(made->revision));
    json_object_set_new(body, "written", json_boolean(!call->control->path || call->control->written));
    json_object_set(body, "warnings", made->warnings);
    weir__reply_json(call, all->many ? 201 : 200, body);
}

static int publish(struct weir__call *call, struct staging *all)
{
    struct weir__publication made = {.guarded = true, .about = json_object()};
    for (size_t i = 0; i < all->count; i++) /* only warnings of these documents */
        json_object_set_new(made.about, all->list[i].name, json_true());
    int error = weir__publication_run(call, stage_all, all, &made);
    if (!error && !made.refused)
        reply_published(call, all, &made);
    weir__publication_free(&made);
    return error;
}

int weir__rest_publish(struct weir__call *call)
{
    struct staged one = {.version = 0};
    struct staging all = {.list = &one, .count = 1};
    json_t *body = weir__call_json(call, "stage|version|reason");
    if (!body)
        return 0;
    bool named = strlen(call->param[0]) < sizeof one.name; /* no name is longer */
    bool good = read_stage(call, &all, json_object_get(body, "stage"), &one) &&
                read_version(call, &all, json_object_get(body, "version"), &one) &&
                weir__body_reason(call, body, all.reason);
    json_decref(body);
    if (good && !named)
        return weir__fail_no_document(call);
    if (!good)
        return 0;
    snprintf(one.name, sizeof one.name, "%s", call->param[0]);
    return publish(call, &all);
}

int weir__rest_publish_many(struct weir__call *call)
{
    struct staging all = {.many = true};
    json_t *body = weir__call_json(call, "documents|stage|reason");
    if (!body)
        return 0;
    bool good = weir__body_reason(call, body, all.reason) &&
                read_list(call, &all, json_object_get(body, "documents"), json_object_get(body, "stage"));
    json_decref(body);
    int error = good ? publish(call, &all) : 0;
    free(all.list);
    return error;
}
