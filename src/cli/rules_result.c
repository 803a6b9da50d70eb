/* weir rules apply: what will change, and what has been changed. */
#include "cli/rules.h"
#include "cli/table.h"
#include "cli/text.h"
#include "control/control.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LABEL_MAX = 512, CELL_MAX = 64 };

char *weir__rules_unified(const struct weir__document_change *change, const struct weir__documents *documents,
                          const char *before)
{
    char from[LABEL_MAX] = "/dev/null", to[LABEL_MAX] = "/dev/null";
    if (change->version > 0)
        snprintf(from, sizeof from, "%s@%" PRId64, change->name, change->version);
    if (change->document)
        snprintf(to, sizeof to, "%s", documents->files[change->document->stretches[0].file].path);
    return weir__diff(before, change->document ? change->document->text : "", from, to);
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
            weir__print_text(stdout, c, SIZE_MAX, false);
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

void weir__rules_show(const struct weir__changes *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        if (changes->list[i].action != WEIR__KEEP && changes->list[i].diff)
            print_diff(changes->list[i].diff);
}

static const char *done_text(const struct weir__document_change *change, bool dry_run)
{
    static const char *const will[] = {"as before", "to be created", "to be changed", "to be deleted"};
    static const char *const was[] = {"as before", "created", "changed", "deleted"};
    if (change->error)
        return "failed";
    if (change->action != WEIR__KEEP && !dry_run && !change->done)
        return "not done";
    return dry_run ? will[change->action] : was[change->action];
}

/* Only what is not as it was before. */
static bool print_table(const struct weir__changes *changes)
{
    static const struct weir__column columns[] = {{"name", false, true, false},
                                                  {"change", false, false, false},
                                                  {"version", false, false, true},
                                                  {"published", false, false, true}};
    struct weir__text_table table = {.columns = columns, .column_count = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < changes->count; i++) {
        const struct weir__document_change *change = &changes->list[i];
        char version[CELL_MAX] = "";
        if (change->action == WEIR__KEEP && !change->published && !change->error)
            continue;
        if (change->version > 0 && !(change->action == WEIR__DELETE && change->done))
            snprintf(version, sizeof version, "v%" PRId64, change->version);
        weir__text_table_cell(&table, change->name);
        weir__text_table_cell(&table, done_text(change, changes->dry_run));
        weir__text_table_cell(&table, version);
        weir__text_table_cell(&table, change->published);
    }
    bool good = weir__text_table_print(&table, stdout);
    weir__text_table_free(&table);
    return good;
}

static void print_sum(const struct weir__changes *changes, bool published)
{
    size_t counts[WEIR__DELETE + 1] = {0}, failed = 0;
    for (size_t i = 0; i < changes->count; i++) {
        const struct weir__document_change *change = &changes->list[i];
        bool undone = change->error || (change->action != WEIR__KEEP && !changes->dry_run && !change->done);
        if (undone)
            failed++;
        else
            counts[change->action]++;
    }
    printf("%s%zu created, %zu changed, %zu deleted, %zu as before", changes->dry_run ? "would be: " : "",
           counts[WEIR__CREATE], counts[WEIR__UPDATE], counts[WEIR__DELETE], counts[WEIR__KEEP]);
    if (failed > 0)
        printf(", %zu not done", failed);
    if (changes->revision > 0)
        printf("; revision %" PRId64 " is published", changes->revision);
    puts(changes->dry_run ? "; nothing was written" : "");
    if (!changes->dry_run && !published && counts[WEIR__CREATE] + counts[WEIR__UPDATE] > 0)
        puts("these are drafts: --publish enforced, or weir rules publish, publishes them");
}

static json_t *change_json(const struct weir__document_change *change)
{
    static const char *const actions[] = {"none", "create", "update", "delete"};
    return json_pack("{s:s, s:s, s:b, s:o, s:s?, s:s?, s:s?}", "name", change->name, "action", actions[change->action],
                     "done", change->done, "version", change->version > 0 ? json_integer(change->version) : json_null(),
                     "published", change->published, "diff", change->diff, "error", change->error);
}

int weir__rules_report(const struct weir__command_line *given, const struct weir__changes *changes,
                       const struct weir__findings *findings, bool good)
{
    if (!given->json && !changes->begun) {
        weir__print_text(stderr, given->arguments[0], SIZE_MAX, false);
        if (findings->errors > 0)
            fprintf(stderr, ": %zu error%s; nothing was written\n", findings->errors, findings->errors == 1 ? "" : "s");
        else
            fprintf(stderr, ": nothing was written\n");
        return 1;
    }
    if (!given->json) {
        good &= print_table(changes);
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
    good &= weir__print_json(all) == 0;
    json_decref(all);
    return good ? 0 : 1;
}
