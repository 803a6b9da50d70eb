/* weir rules apply: makes the documents of the service equal to those of files. */
#include "cli/rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DIFFERS = 3 }; /* exit code of --exit-code */
enum action { KEEP, CREATE, UPDATE, DELETE };

/* The planned change of one document, and its outcome. */
struct document_change {
    const struct weir__rule_document *document; /* NULL: it is in no file */
    const char *name;
    enum action action;
    int64_t version; /* the current one; 0: none */
    int64_t enforced, shadow;
    const char *diff;
    bool done;
    bool due;              /* to be published or withdrawn */
    const char *published; /* the stage it was published in */
    const char *error;
};

struct apply {
    const struct weir__given *given;
    bool dry_run;
    const char *publish; /* the stage of --publish, or NULL */
    struct weir__documents documents;
    struct weir__findings findings;
    json_t *items; /* the documents of the service */
    struct document_change *changes;
    size_t count;
    bool differs;     /* the service is not as the files are */
    bool begun;       /* the checks passed: it was written, or would have been */
    int64_t revision; /* the last that was made; 0: none */
};

/* ---- Output ---- */

/* True for a change that failed, or that was not reached. */
static bool is_undone(const struct apply *apply, const struct document_change *change)
{
    return change->error || (change->action != KEEP && !apply->dry_run && !change->done);
}

/* Prints the documents that changed or failed, and the sum. */
static void print_text(const struct apply *apply)
{
    static const struct weir__column columns[] = {{.title = "name", WEIR__CUT},
                                                  {.title = "change"},
                                                  {.title = "version", WEIR__OPTIONAL},
                                                  {.title = "published", WEIR__OPTIONAL}};
    static const char *const will[] = {"unchanged", "to be created", "to be changed", "to be deleted"};
    static const char *const was[] = {"unchanged", "created", "changed", "deleted"};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    size_t counts[DELETE + 1] = {0}, undone = 0;
    for (size_t i = 0; i < apply->count; i++) {
        const struct document_change *change = &apply->changes[i];
        bool gone = change->action == DELETE && change->done;
        undone += is_undone(apply, change);
        counts[change->action] += !is_undone(apply, change);
        if (change->action == KEEP && !change->published && !change->error)
            continue;
        weir__text_table_cell(&table, change->name);
        weir__text_table_cell(&table, change->error              ? "failed"
                                      : is_undone(apply, change) ? "not done"
                                                                 : (apply->dry_run ? will : was)[change->action]);
        weir__text_table_cell(&table, change->version > 0 && !gone ? weir__format("v%" PRId64, change->version) : "");
        weir__text_table_cell(&table, change->published);
    }
    weir__text_table_print(&table, stdout);
    printf("%s%zu created, %zu changed, %zu deleted, %zu unchanged", apply->dry_run ? "would be: " : "", counts[CREATE],
           counts[UPDATE], counts[DELETE], counts[KEEP]);
    if (undone > 0)
        printf(", %zu not done", undone);
    if (apply->revision > 0)
        printf("; revision %" PRId64 " is published", apply->revision);
    puts(apply->dry_run ? "; nothing was written" : "");
    if (!apply->dry_run && !apply->publish && counts[CREATE] + counts[UPDATE] > 0)
        puts("these are drafts: --publish enforced, or weir rules publish, publishes them");
}

/* False after an error. */
static bool print_json(struct apply *apply, bool good)
{
    static const char *const actions[] = {"none", "create", "update", "delete"};
    json_t *list = json_array();
    for (const struct document_change *change = apply->changes; change < apply->changes + apply->count; change++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o?, s:s?, s:s?, s:s?}", "name", change->name, "action",
                                              actions[change->action], "done", change->done, "version",
                                              change->version > 0 ? json_integer(change->version) : NULL, "published",
                                              change->published, "diff", change->diff, "error", change->error));
    return weir__print_json(json_pack("{s:b, s:b, s:o, s:o, s:o, s:o?}", "ok", good, "dry_run", apply->dry_run,
                                      "changes", list, "errors", weir__findings_json(&apply->findings, WEIR_IS_ERROR),
                                      "warnings", weir__findings_json(&apply->findings, WEIR_IS_WARNING), "revision",
                                      apply->revision > 0 ? json_integer(apply->revision) : NULL));
}

/* ---- Differences ---- */

/* Plans the change of one document; `item` is the service's entry, or NULL. False after an error was printed. */
static bool plan(struct apply *apply, const struct weir__rule_document *document, const char *name, const json_t *item)
{
    struct document_change *change = &apply->changes[apply->count++];
    bool exists = item && !json_is_true(json_object_get(item, "deleted"));
    struct weir__service_call call = {.about = name, .wants_yaml = true};
    *change = (struct document_change){.document = document,
                                       .name = name,
                                       .version = exists ? weir__member_int(item, "version") : 0,
                                       .enforced = weir__member_int(item, "enforced_version"),
                                       .shadow = weir__member_int(item, "shadow_version")};
    if (exists && (!weir__call(apply->given, &call, weir__path("/v1/rules/%", name)) || !call.text)) {
        weir__call_free(&call);
        return false;
    }
    if (call.version > 0) /* the version that is compared is the version that may be replaced */
        change->version = call.version;
    const char *before = exists ? call.text : "", *after = document ? document->text.data : "", *none = "/dev/null";
    change->action = !document ? DELETE : !exists ? CREATE : strcmp(before, after) == 0 ? KEEP : UPDATE;
    if (change->action != KEEP)
        change->diff = weir__keep(
            weir__diff(before, after, change->version > 0 ? weir__format("%s@%" PRId64, name, change->version) : none,
                       document ? document->origins[0].path : none));
    weir__call_free(&call);
    return true;
}

/* Plans all changes. Documents that are in no file are deleted: rules first, as they may need the settings. */
static bool plan_all(struct apply *apply)
{
    json_t *item, *by_name = json_object();
    size_t i;
    bool good = (apply->items = weir__list_all(apply->given, "/v1/rules"));
    json_array_foreach(apply->items, i, item) json_object_set(by_name, weir__member(item, "name"), item);
    apply->changes =
        weir__keep(calloc(apply->documents.count + json_array_size(apply->items) + 1, sizeof *apply->changes));
    for (i = 0; i < apply->documents.count && good; i++) {
        const struct weir__rule_document *document = &apply->documents.list[i];
        weir__progress("comparing", i, apply->documents.count);
        good = plan(apply, document, document->name, json_object_get(by_name, document->name));
    }
    weir__progress("comparing", i, i);
    json_decref(by_name);
    for (int settings = 0; settings < 2 && weir__option(apply->given, "prune"); settings++)
        json_array_foreach(apply->items, i, item)
        {
            const char *name = weir__member(item, "name");
            if (good && (strcmp(name, WEIR__SETTINGS_NAME) == 0) == settings &&
                !json_is_true(json_object_get(item, "deleted")) && !weir__rules_find(&apply->documents, name))
                good = plan(apply, NULL, name, item);
        }
    return good;
}

/* ---- Writing ---- */

/* Sends one request; a refusal is printed and kept for --json. */
static bool write_one(struct apply *apply, struct document_change *change)
{
    static const char *const methods[] = {"", "POST", "PUT", "DELETE"};
    bool creates = change->action == CREATE, removes = change->action == DELETE;
    struct weir__service_call call = {.method = methods[change->action],
                                      .about = change->name,
                                      .if_match = creates ? 0 : change->version,
                                      .reason = weir__option(apply->given, "reason")};
    if (!removes)
        call.body = (weir_text){change->document->text.data, change->document->text.len};
    bool sent = weir__send(apply->given, &call, creates ? "/v1/rules" : weir__path("/v1/rules/%", change->name));
    const json_t *problems = sent ? weir__call_problems(&call) : NULL;
    change->done = sent && call.status >= 200 && call.status < 300;
    if (!change->done && problems && change->document)
        weir__rules_problems(&apply->documents, change->document, problems, &apply->findings);
    else if (sent && !change->done)
        weir__is_good(apply->given, &call);
    if (!change->done)
        change->error = weir__format("%s", sent ? weir__call_message(&call) : "no reply");
    else if (!removes && call.version > 0)
        change->version = call.version;
    weir__call_free(&call);
    return change->done;
}

/* Deletes documents, or creates and updates them. */
static bool write_all(struct apply *apply, bool deletes)
{
    bool good = true;
    for (size_t i = 0; i < apply->count; i++) {
        struct document_change *change = &apply->changes[i];
        weir__progress(deletes ? "deleting" : "writing", i, apply->count);
        if (change->action != KEEP && (change->action == DELETE) == deletes)
            good &= write_one(apply, change);
    }
    weir__progress("", apply->count, apply->count);
    return good;
}

/* ---- Publishing ---- */

/* Lists the documents that are to be published or withdrawn. An enforced version does not become its own shadow. */
static json_t *list_due(struct apply *apply)
{
    bool shadow = strcmp(apply->publish, "shadow") == 0;
    json_t *due = json_array();
    for (size_t i = 0; i < apply->count; i++) {
        struct document_change *change = &apply->changes[i];
        bool removes = change->action == DELETE;
        change->due = removes ? change->enforced || change->shadow
                              : change->enforced != change->version && !(shadow && change->shadow == change->version);
        if (change->due && !removes && shadow && change->document->kind != WEIR__KIND_RULE) {
            fprintf(stderr, "weir %s: %s: only rules have a shadow; publish it as enforced when it is ready\n",
                    apply->given->command, change->name);
            change->due = false;
        }
        if (change->due)
            weir__rules_want(&due, change->name, removes ? "draft" : apply->publish, removes ? 0 : change->version);
    }
    return due;
}

/* With --dry-run: which documents would be published. */
static void plan_publication(struct apply *apply)
{
    if (!apply->publish)
        return;
    json_decref(list_due(apply));
    for (size_t i = 0; i < apply->count; i++) {
        struct document_change *change = &apply->changes[i];
        change->published = change->due && change->action != DELETE ? apply->publish : NULL;
        apply->differs |= change->due;
    }
}

/* Publishes new and changed documents and withdraws deleted ones, in one publication. */
static bool publish_all(struct apply *apply)
{
    json_t *due = list_due(apply);
    if (due && json_array_size(due) == 0) {
        json_decref(due);
        return true;
    }
    struct weir__service_call call;
    int put = weir__rules_put(apply->given, due, &call);
    const json_t *problems = weir__call_problems(&call);
    if (put > 0)
        apply->revision = weir__member_int(call.json, "revision");
    else if (put < 0 && problems) /* each at its place in the files */
        weir__rules_problems(&apply->documents, &apply->documents.list[0], problems, &apply->findings);
    else if (put < 0 && call.status)
        weir__is_good(apply->given, &call);
    for (size_t i = 0; i < apply->count; i++) {
        struct document_change *change = &apply->changes[i];
        if (change->due && put < 0)
            change->error = "not published";
        else if (change->due && change->action != DELETE)
            change->published = apply->publish;
        else if (change->due)
            change->enforced = change->shadow = 0;
    }
    weir__call_free(&call);
    return put >= 0;
}

/* ---- All of it ---- */

/* Refuses to withdraw published documents implicitly. */
static bool may_delete(struct apply *apply)
{
    bool good = true;
    for (size_t i = 0; i < apply->count && !apply->publish; i++) {
        const struct document_change *change = &apply->changes[i];
        if (change->action != DELETE || (!change->enforced && !change->shadow))
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
    if (!plan_all(apply))
        return false;
    for (size_t i = 0; i < apply->count && !apply->given->json; i++)
        weir__print_diff(apply->changes[i].diff ? apply->changes[i].diff : "");
    fflush(stdout); /* before messages on standard error */
    bool checked = weir__rules_check(apply->given, &apply->documents, &apply->findings);
    if (!may_delete(apply) || !checked)
        return false;
    apply->begun = true;
    for (size_t i = 0; i < apply->count; i++)
        apply->differs |= apply->changes[i].action != KEEP;
    if (apply->dry_run) {
        plan_publication(apply);
        return true;
    }
    return write_all(apply, false) && (!apply->publish || publish_all(apply)) &&
           write_all(apply, true); /* after their replacements are published */
}

int weir__cmd_rules_apply(struct weir__given *given)
{
    struct apply apply = {.given = given,
                          .dry_run = weir__option(given, "dry-run"),
                          .publish = weir__option(given, "publish"),
                          .findings.to = given->json ? NULL : stderr};
    if (apply.publish && !weir__rules_stage(given, "publish", false))
        return 2;
    bool good = weir__rule_files_read(&apply.documents, given->arguments[0], &apply.findings) && run(&apply);
    size_t errors = apply.findings.errors;
    if (given->json)
        good &= print_json(&apply, good);
    else if (apply.begun)
        print_text(&apply);
    else if (errors > 0)
        weir__print_line(stderr, "%s: %zu error%s; nothing was written", given->arguments[0], errors,
                         errors == 1 ? "" : "s");
    else
        weir__print_line(stderr, "%s: nothing was written", given->arguments[0]);
    json_decref(apply.items);
    weir__documents_free(&apply.documents);
    if (!good || !apply.differs || !weir__option(given, "exit-code"))
        return good ? 0 : 1;
    fflush(stdout);
    fprintf(stderr, "weir %s: the service %s the files\n", given->command,
            apply.dry_run ? "differs from" : "differed from");
    return DIFFERS;
}
