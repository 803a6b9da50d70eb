/* weir rules apply: what is kept becomes what files say. */
#define _GNU_SOURCE /* strdup */
#include "cli/rules.h"

#include <stdlib.h>
#include <string.h>

struct apply {
    struct weir__command_line *given;
    struct weir__documents documents;
    struct weir__changes changes;
    struct weir__findings findings;
    json_t *items; /* what the service has, and the same by name */
    json_t *by_name;
};

static bool out_of_memory(void)
{
    fprintf(stderr, "weir: out of memory\n");
    return false;
}

/* ---- What differs ---- */

static int64_t number_of(const json_t *item, const char *name)
{
    return json_integer_value(json_object_get(item, name));
}

/* Reads the current text. NULL: told. */
static char *read_text(struct apply *apply, struct weir__document_change *change)
{
    char *path = weir__service_path(change->name, "");
    struct weir__service_request request = {.method = "GET", .path = path, .wants_yaml = true};
    struct weir__service_reply reply = {0};
    char *text = NULL;
    if (!path)
        out_of_memory();
    else if (weir__service_call(apply->given->service, &request, &reply) &&
             weir__service_reply_is_good(apply->given->service, &reply, change->name)) {
        text = reply.body;
        reply.body = NULL;
        /* What is compared is what may be replaced. */
        if (reply.version > 0)
            change->version = reply.version;
    }
    weir__service_reply_free(&reply);
    free(path);
    return text;
}

/* Fills in what is to be done with one document; item: what the service has of it, or NULL. */
static bool decide(struct apply *apply, struct weir__document_change *change, const json_t *item)
{
    bool exists = item && !json_is_true(json_object_get(item, "deleted"));
    char *before = NULL;
    change->enforced = number_of(item, "enforced_version");
    change->shadow = number_of(item, "shadow_version");
    if (exists) {
        change->version = number_of(item, "version");
        before = read_text(apply, change);
        if (!before)
            return false;
    }
    const char *after = change->document ? change->document->text : "";
    if (!change->document)
        change->action = WEIR__DELETE;
    else if (!exists)
        change->action = WEIR__CREATE;
    else
        change->action = strcmp(before, after) == 0 ? WEIR__KEEP : WEIR__UPDATE;
    if (change->action != WEIR__KEEP)
        change->diff = weir__rules_unified(change, &apply->documents, before ? before : "");
    free(before);
    return change->action == WEIR__KEEP || change->diff || out_of_memory();
}

static const struct weir__rule_document *find_document(const struct weir__documents *documents, const char *name)
{
    for (size_t i = 0; name && i < documents->count; i++)
        if (strcmp(documents->list[i].name, name) == 0)
            return &documents->list[i];
    return NULL;
}

/* What is in no file goes: rules first, since they may need the settings. */
static bool decide_prunes(struct apply *apply)
{
    struct weir__changes *changes = &apply->changes;
    for (int pass = 0; pass < 2; pass++) {
        size_t i;
        const json_t *item;
        json_array_foreach(apply->items, i, item)
        {
            const char *name = weir__member(item, "name");
            bool settings = strcmp(name, WEIR__SETTINGS_NAME) == 0;
            if (settings != (pass == 1) || json_is_true(json_object_get(item, "deleted")) ||
                find_document(&apply->documents, name))
                continue;
            changes->list[changes->count] = (struct weir__document_change){.name = name};
            if (!decide(apply, &changes->list[changes->count++], item))
                return false;
        }
    }
    return true;
}

static bool decide_all(struct apply *apply)
{
    struct weir__changes *changes = &apply->changes;
    size_t i;
    json_t *item;
    apply->items = weir__given_list(apply->given, "/v1/rules");
    apply->by_name = json_object();
    if (!apply->items || !apply->by_name)
        return false;
    json_array_foreach(apply->items, i, item) json_object_set(apply->by_name, weir__member(item, "name"), item);
    changes->list = calloc(apply->documents.count + json_array_size(apply->items) + 1, sizeof *changes->list);
    if (!changes->list)
        return out_of_memory();
    for (i = 0; i < apply->documents.count; i++) {
        const struct weir__rule_document *document = &apply->documents.list[i];
        changes->list[changes->count] = (struct weir__document_change){.document = document, .name = document->name};
        if (!decide(apply, &changes->list[changes->count++], json_object_get(apply->by_name, document->name)))
            return false;
    }
    return !apply->given->is[WEIR__WITH_PRUNE] || decide_prunes(apply);
}

/* ---- Writing ---- */

/* Sends one request; a refusal is printed and kept for --json. */
static bool write_one(struct apply *apply, struct weir__document_change *change)
{
    struct weir__command_line *given = apply->given;
    static const char *const methods[] = {"", "POST", "PUT", "DELETE"};
    bool creates = change->action == WEIR__CREATE, removes = change->action == WEIR__DELETE;
    char *path = creates ? strdup("/v1/rules") : weir__service_path(change->name, "");
    if (!path)
        return out_of_memory();
    struct weir__service_request request = {.method = methods[change->action],
                                            .path = path,
                                            .body = removes ? NULL : change->document->text,
                                            .len = removes ? 0 : change->document->len,
                                            .yaml = true,
                                            .if_match = creates ? 0 : change->version,
                                            .reason = given->value[WEIR__WITH_REASON]};
    struct weir__service_reply reply;
    bool sent = weir__service_call(given->service, &request, &reply);
    const json_t *problems = sent ? weir__service_reply_problems(&reply) : NULL;
    bool good = sent && reply.status >= 200 && reply.status < 300;
    if (!good && problems && change->document)
        weir__rules_problems(&apply->documents, change->document, problems, &apply->findings);
    else if (sent && !good)
        weir__service_reply_is_good(given->service, &reply, change->name);
    if (!good)
        change->error = strdup(sent ? weir__service_reply_message(&reply) : "there was no answer");
    else if (!removes && reply.version > 0)
        change->version = reply.version;
    change->done = good;
    weir__service_reply_free(&reply);
    free(path);
    return good;
}

static bool write_all(struct apply *apply)
{
    bool good = true;
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct weir__document_change *change = &apply->changes.list[i];
        if (change->action == WEIR__CREATE || change->action == WEIR__UPDATE)
            good &= write_one(apply, change);
    }
    return good;
}

/* Deletes documents after their replacements are published. */
static bool delete_all(struct apply *apply)
{
    bool good = true;
    for (size_t i = 0; i < apply->changes.count; i++)
        if (apply->changes.list[i].action == WEIR__DELETE)
            good &= write_one(apply, &apply->changes.list[i]);
    return good;
}

/* ---- Publishing ---- */

/* True if it is to be put in force, or taken out of it. What is enforced already stays so: a shadow of itself would be
 * no use. */
static bool is_due(const struct weir__document_change *change, bool shadow)
{
    if (change->action == WEIR__DELETE)
        return change->enforced || change->shadow;
    return change->enforced != change->version && !(shadow && change->shadow == change->version);
}

static bool fill_due(struct apply *apply, const char *stage, json_t *due)
{
    bool shadow = strcmp(stage, "shadow") == 0, good = true;
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct weir__document_change *change = &apply->changes.list[i];
        bool removes = change->action == WEIR__DELETE;
        change->due = is_due(change, shadow);
        if (change->due && !removes && shadow && change->document->kind != WEIR__KIND_RULE) {
            fprintf(stderr, "weir %s: %s: only rules have a shadow; publish it as enforced when it is ready\n",
                    apply->given->command, change->name);
            change->due = false;
        }
        if (change->due)
            good &= json_array_append_new(due, weir__rules_wanted(change->name, removes ? "draft" : stage,
                                                                  removes ? 0 : change->version)) == 0;
    }
    return good || out_of_memory();
}

/* Why the set was refused: each problem at its place in the files. */
static void report_refusal(struct apply *apply, const struct weir__service_reply *reply)
{
    const json_t *problems = weir__service_reply_problems(reply);
    size_t i;
    json_t *problem;
    if (!problems)
        weir__service_reply_is_good(apply->given->service, reply, NULL);
    json_array_foreach(problems, i, problem)
    {
        const char *about = json_string_value(json_object_get(problem, "document"));
        const struct weir__rule_document *document = find_document(&apply->documents, about);
        json_t *one = json_pack("[O]", problem);
        weir__rules_problems(&apply->documents, document ? document : &apply->documents.list[0], one, &apply->findings);
        json_decref(one);
    }
}

/* All of it at once: what is new, what has changed, and what goes. */
static bool publish_all(struct apply *apply, const char *stage)
{
    json_t *due = json_array();
    if (!fill_due(apply, stage, due) || json_array_size(due) == 0) {
        bool nothing = json_array_size(due) == 0;
        json_decref(due);
        return nothing;
    }
    struct weir__service_reply reply;
    int put = weir__rules_put(apply->given, due, &reply);
    if (put > 0)
        apply->changes.revision = number_of(reply.json, "revision");
    else if (put < 0 && reply.status)
        report_refusal(apply, &reply);
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct weir__document_change *change = &apply->changes.list[i];
        if (change->due && put < 0)
            change->error = strdup("it was not published");
        else if (change->due && change->action != WEIR__DELETE)
            change->published = stage;
        else if (change->due)
            change->enforced = change->shadow = 0;
    }
    weir__service_reply_free(&reply);
    return put >= 0;
}

/* ---- All of it ---- */

/* Refuses to withdraw published documents implicitly. */
static bool may_delete(struct apply *apply)
{
    bool good = true;
    for (size_t i = 0; i < apply->changes.count && !apply->given->is[WEIR__WITH_PUBLISH]; i++) {
        const struct weir__document_change *change = &apply->changes.list[i];
        if (change->action != WEIR__DELETE || (!change->enforced && !change->shadow))
            continue;
        weir_diagnostic what = {.severity = WEIR_IS_ERROR,
                                .file = change->name,
                                .message = "it is published and in no file: --prune deletes it only with --publish"};
        weir__add_finding(&apply->findings, &what);
        good = false;
    }
    return good;
}

static bool run(struct apply *apply)
{
    struct weir__command_line *given = apply->given;
    if (!decide_all(apply))
        return false;
    if (!given->json)
        weir__rules_show(&apply->changes);
    fflush(stdout); /* before what is said on the other stream */
    bool checked = weir__rules_check(given, &apply->documents, &apply->findings);
    if (!may_delete(apply) || !checked)
        return false;
    apply->changes.begun = true;
    if (apply->changes.dry_run)
        return true;
    bool good = write_all(apply);
    if (good && given->is[WEIR__WITH_PUBLISH])
        good = publish_all(apply, given->value[WEIR__WITH_PUBLISH]);
    return good && delete_all(apply);
}

int weir__rules_apply(struct weir__command_line *given)
{
    struct apply apply = {
        .given = given, .changes.dry_run = given->is[WEIR__WITH_DRY_RUN], .findings.to = given->json ? NULL : stderr};
    if (given->is[WEIR__WITH_PUBLISH] && !weir__rules_stage(given, WEIR__WITH_PUBLISH, false))
        return 2;
    bool good = weir__rule_files_read(&apply.documents, given->arguments[0], &apply.findings) && run(&apply);
    int code = weir__rules_report(given, &apply.changes, &apply.findings, good);
    for (size_t i = 0; i < apply.changes.count; i++) {
        free(apply.changes.list[i].diff);
        free(apply.changes.list[i].error);
    }
    free(apply.changes.list);
    json_decref(apply.items);
    json_decref(apply.by_name);
    weir__documents_free(&apply.documents);
    weir__findings_free(&apply.findings);
    return code;
}
