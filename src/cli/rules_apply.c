/* weir rules apply: makes the documents of the service equal to those of files. */
#include "cli/rules.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum action { KEEP, CREATE, UPDATE, DELETE };

/* The planned change of one document, and its outcome. */
struct document_change {
    const struct weir__rule_document *document; /* NULL: it is in no file */
    const char *name;
    enum action action;
    int64_t version; /* the current one; 0: none */
    int64_t enforced, shadow;
    char *diff;
    bool done;
    bool due;              /* to be published or withdrawn */
    const char *published; /* the stage it was published in */
    char *error;
};

struct changes {
    struct document_change *list;
    size_t count;
    bool dry_run;
    bool begun;       /* the checks passed: it was written, or would have been */
    int64_t revision; /* the last that was made; 0: none */
};

/* ---- Output ---- */

enum { LABEL_MAX = 512, CELL_MAX = 64 };

static char *make_diff(const struct document_change *change, const struct weir__documents *documents,
                       const char *before)
{
    char from[LABEL_MAX] = "/dev/null", to[LABEL_MAX] = "/dev/null";
    if (change->version > 0)
        snprintf(from, sizeof from, "%s@%" PRId64, change->name, change->version);
    if (change->document)
        snprintf(to, sizeof to, "%s", documents->files[change->document->stretches[0].file].path);
    return weir__must(weir__diff(before, change->document ? change->document->text : "", from, to));
}

/* A diff goes to terminals, and its text came from others: nothing in it may move the cursor. */
static void print_diff(const char *diff)
{
    bool colour = weir__has_colour(stdout);
    while (*diff) {
        size_t len = strcspn(diff, "\n");
        char *line = strndup(diff, len);
        const char *paint = !colour ? NULL : *diff == '+' ? "\033[32m" : *diff == '-' ? "\033[31m" : NULL;
        if (paint)
            fputs(paint, stdout);
        for (const char *c = line; c && *c;) { /* tabs are indentation, not a trick */
            char *tab = strchr(c, '\t');
            if (tab)
                *tab = '\0';
            weir__print_text(stdout, c);
            if (!tab)
                break;
            putchar('\t');
            c = tab + 1;
        }
        puts(paint ? "\033[0m" : "");
        free(line);
        diff += len + (diff[len] == '\n');
    }
}

static void show_diffs(const struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        if (changes->list[i].action != KEEP && changes->list[i].diff)
            print_diff(changes->list[i].diff);
}

static const char *done_text(const struct document_change *change, bool dry_run)
{
    static const char *const will[] = {"unchanged", "to be created", "to be changed", "to be deleted"};
    static const char *const was[] = {"unchanged", "created", "changed", "deleted"};
    if (change->error)
        return "failed";
    if (change->action != KEEP && !dry_run && !change->done)
        return "not done";
    return dry_run ? will[change->action] : was[change->action];
}

/* Prints the documents that changed or failed. */
static void print_table(const struct changes *changes)
{
    static const struct weir__column columns[] = {
        {"name", WEIR__CUT}, {"change", 0}, {"version", WEIR__OPTIONAL}, {"published", WEIR__OPTIONAL}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < changes->count; i++) {
        const struct document_change *change = &changes->list[i];
        char version[CELL_MAX] = "";
        if (change->action == KEEP && !change->published && !change->error)
            continue;
        if (change->version > 0 && !(change->action == DELETE && change->done))
            snprintf(version, sizeof version, "v%" PRId64, change->version);
        weir__text_table_cell(&table, change->name);
        weir__text_table_cell(&table, done_text(change, changes->dry_run));
        weir__text_table_cell(&table, version);
        weir__text_table_cell(&table, change->published);
    }
    weir__text_table_print(&table, stdout);
}

static void print_sum(const struct changes *changes, bool published)
{
    size_t counts[DELETE + 1] = {0}, failed = 0;
    for (size_t i = 0; i < changes->count; i++) {
        const struct document_change *change = &changes->list[i];
        bool undone = change->error || (change->action != KEEP && !changes->dry_run && !change->done);
        if (undone)
            failed++;
        else
            counts[change->action]++;
    }
    printf("%s%zu created, %zu changed, %zu deleted, %zu unchanged", changes->dry_run ? "would be: " : "",
           counts[CREATE], counts[UPDATE], counts[DELETE], counts[KEEP]);
    if (failed > 0)
        printf(", %zu not done", failed);
    if (changes->revision > 0)
        printf("; revision %" PRId64 " is published", changes->revision);
    puts(changes->dry_run ? "; nothing was written" : "");
    if (!changes->dry_run && !published && counts[CREATE] + counts[UPDATE] > 0)
        puts("these are drafts: --publish enforced, or weir rules publish, publishes them");
}

static json_t *change_json(const struct document_change *change)
{
    static const char *const actions[] = {"none", "create", "update", "delete"};
    return json_pack("{s:s, s:s, s:b, s:o, s:s?, s:s?, s:s?}", "name", change->name, "action", actions[change->action],
                     "done", change->done, "version", change->version > 0 ? json_integer(change->version) : json_null(),
                     "published", change->published, "diff", change->diff, "error", change->error);
}

static int report_outcome(const struct weir__command_line *given, const struct changes *changes,
                          const struct weir__findings *findings, bool good)
{
    if (!given->json && !changes->begun) {
        if (findings->errors > 0)
            weir__print_line(stderr, "%s: %zu error%s; nothing was written", given->arguments[0], findings->errors,
                             findings->errors == 1 ? "" : "s");
        else
            weir__print_line(stderr, "%s: nothing was written", given->arguments[0]);
        return 1;
    }
    if (!given->json) {
        print_table(changes);
        print_sum(changes, given->is[WEIR__WITH_PUBLISH]);
        return good ? 0 : 1;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < changes->count; i++)
        json_array_append_new(list, change_json(&changes->list[i]));
    json_t *all = json_pack("{s:b, s:b, s:o, s:o, s:o, s:o}", "ok", good, "dry_run", changes->dry_run, "changes", list,
                            "errors", weir__rules_findings(findings, WEIR_IS_ERROR), "warnings",
                            weir__rules_findings(findings, WEIR_IS_WARNING), "revision",
                            changes->revision > 0 ? json_integer(changes->revision) : json_null());
    good &= weir__print_json(all);
    return good ? 0 : 1;
}

struct apply {
    struct weir__command_line *given;
    struct weir__documents documents;
    struct changes changes;
    struct weir__findings findings;
    json_t *items; /* the documents of the service, as a list and by name */
    json_t *by_name;
};

/* ---- Differences ---- */

static int64_t number_of(const json_t *item, const char *name)
{
    return json_integer_value(json_object_get(item, name));
}

/* Reads the current text. NULL after an error was printed. */
static char *read_text(struct apply *apply, struct document_change *change)
{
    char *path = weir__service_path("/v1/rules/", change->name, "");
    struct weir__service_request request = {.method = "GET", .path = path, .wants_yaml = true};
    struct weir__service_reply reply = {0};
    char *text = NULL;
    if (weir__service_call(apply->given->service, &request, &reply) &&
        weir__service_reply_is_good(apply->given->service, &reply, change->name)) {
        text = reply.body;
        reply.body = NULL;
        /* The version that is compared is the version that may be replaced. */
        if (reply.version > 0)
            change->version = reply.version;
    }
    weir__service_reply_free(&reply);
    free(path);
    return text;
}

/* Plans the change of one document; `item` is the service's entry, or NULL. */
static bool decide(struct apply *apply, struct document_change *change, const json_t *item)
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
        change->action = DELETE;
    else if (!exists)
        change->action = CREATE;
    else
        change->action = strcmp(before, after) == 0 ? KEEP : UPDATE;
    if (change->action != KEEP)
        change->diff = make_diff(change, &apply->documents, before ? before : "");
    free(before);
    return true;
}

static const struct weir__rule_document *find_document(const struct weir__documents *documents, const char *name)
{
    for (size_t i = 0; name && i < documents->count; i++)
        if (strcmp(documents->list[i].name, name) == 0)
            return &documents->list[i];
    return NULL;
}

/* Plans the deletion of documents that are in no file: rules first, as they may need the settings. */
static bool decide_prunes(struct apply *apply)
{
    struct changes *changes = &apply->changes;
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
            changes->list[changes->count] = (struct document_change){.name = name};
            if (!decide(apply, &changes->list[changes->count++], item))
                return false;
        }
    }
    return true;
}

static bool decide_all(struct apply *apply)
{
    struct changes *changes = &apply->changes;
    size_t i;
    json_t *item;
    apply->items = weir__given_list(apply->given, "/v1/rules");
    apply->by_name = json_object();
    if (!apply->items || !apply->by_name)
        return false;
    json_array_foreach(apply->items, i, item) json_object_set(apply->by_name, weir__member(item, "name"), item);
    changes->list =
        weir__must(calloc(apply->documents.count + json_array_size(apply->items) + 1, sizeof *changes->list));
    for (i = 0; i < apply->documents.count; i++) {
        const struct weir__rule_document *document = &apply->documents.list[i];
        changes->list[changes->count] = (struct document_change){.document = document, .name = document->name};
        if (!decide(apply, &changes->list[changes->count++], json_object_get(apply->by_name, document->name)))
            return false;
    }
    return !apply->given->is[WEIR__WITH_PRUNE] || decide_prunes(apply);
}

/* ---- Writing ---- */

/* Sends one request; a refusal is printed and kept for --json. */
static bool write_one(struct apply *apply, struct document_change *change)
{
    struct weir__command_line *given = apply->given;
    static const char *const methods[] = {"", "POST", "PUT", "DELETE"};
    bool creates = change->action == CREATE, removes = change->action == DELETE;
    char *path = creates ? weir__must(strdup("/v1/rules")) : weir__service_path("/v1/rules/", change->name, "");
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
        change->error = strdup(sent ? weir__service_reply_message(&reply) : "no reply");
    else if (!removes && reply.version > 0)
        change->version = reply.version;
    change->done = good;
    weir__service_reply_free(&reply);
    free(path);
    return good;
}

/* Deletes documents, or creates and updates them. */
static bool write_all(struct apply *apply, bool deletes)
{
    bool good = true;
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct document_change *change = &apply->changes.list[i];
        if (change->action != KEEP && (change->action == DELETE) == deletes)
            good &= write_one(apply, change);
    }
    return good;
}

/* ---- Publishing ---- */

/* True if the document is to be published or withdrawn. An enforced version does not become its own shadow. */
static bool is_due(const struct document_change *change, bool shadow)
{
    if (change->action == DELETE)
        return change->enforced || change->shadow;
    return change->enforced != change->version && !(shadow && change->shadow == change->version);
}

/* Lists the documents that are to be published or withdrawn. */
static void fill_due(struct apply *apply, const char *stage, json_t **due)
{
    bool shadow = strcmp(stage, "shadow") == 0;
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct document_change *change = &apply->changes.list[i];
        bool removes = change->action == DELETE;
        change->due = is_due(change, shadow);
        if (change->due && !removes && shadow && change->document->kind != WEIR__KIND_RULE) {
            fprintf(stderr, "weir %s: %s: only rules have a shadow; publish it as enforced when it is ready\n",
                    apply->given->command, change->name);
            change->due = false;
        }
        if (change->due)
            weir__rules_want(due, change->name, removes ? "draft" : stage, removes ? 0 : change->version);
    }
}

/* Reports why the set was refused, each problem at its place in the files. */
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

/* Publishes new and changed documents and withdraws deleted ones, in one publication. */
static bool publish_all(struct apply *apply, const char *stage)
{
    json_t *due = json_array();
    fill_due(apply, stage, &due);
    if (due && json_array_size(due) == 0) {
        json_decref(due);
        return true;
    }
    struct weir__service_reply reply;
    int put = weir__rules_put(apply->given, due, &reply);
    if (put > 0)
        apply->changes.revision = number_of(reply.json, "revision");
    else if (put < 0 && reply.status)
        report_refusal(apply, &reply);
    for (size_t i = 0; i < apply->changes.count; i++) {
        struct document_change *change = &apply->changes.list[i];
        if (change->due && put < 0)
            change->error = strdup("not published");
        else if (change->due && change->action != DELETE)
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
        const struct document_change *change = &apply->changes.list[i];
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
    struct weir__command_line *given = apply->given;
    if (!decide_all(apply))
        return false;
    if (!given->json)
        show_diffs(&apply->changes);
    fflush(stdout); /* before messages on standard error */
    bool checked = weir__rules_check(given, &apply->documents, &apply->findings);
    if (!may_delete(apply) || !checked)
        return false;
    apply->changes.begun = true;
    if (apply->changes.dry_run)
        return true;
    bool good = write_all(apply, false);
    if (good && given->is[WEIR__WITH_PUBLISH])
        good = publish_all(apply, given->value[WEIR__WITH_PUBLISH]);
    return good && write_all(apply, true); /* after their replacements are published */
}

int weir__rules_apply(struct weir__command_line *given)
{
    struct apply apply = {
        .given = given, .changes.dry_run = given->is[WEIR__WITH_DRY_RUN], .findings.to = given->json ? NULL : stderr};
    if (given->is[WEIR__WITH_PUBLISH] && !weir__rules_stage(given, WEIR__WITH_PUBLISH, false))
        return 2;
    bool good = weir__rule_files_read(&apply.documents, given->arguments[0], &apply.findings) && run(&apply);
    int code = report_outcome(given, &apply.changes, &apply.findings, good);
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
