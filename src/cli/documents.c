/* Reads rule files for the commands and splits them into documents. See rules.h. */
#include "cli/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const struct weir__rule_document *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : (*x > *y) - (*x < *y);
}

/* The service keeps one document of a name. */
static bool report_duplicates(const struct weir__documents *documents, struct weir__findings *findings)
{
    const struct weir__rule_document **sorted = calloc(documents->count + 1, sizeof(struct weir__rule_document *));
    bool good = sorted != NULL;
    for (size_t i = 0; sorted && i < documents->count; i++)
        sorted[i] = &documents->list[i];
    if (sorted)
        qsort(sorted, documents->count, sizeof(struct weir__rule_document *), by_name);
    for (size_t i = 1; sorted && i < documents->count; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
            continue;
        weir_diagnostic what = {.severity = WEIR_IS_ERROR, .line = 1, .column = 1};
        char message[256];
        snprintf(
            message, sizeof message,
            "there is another %s in these files; the rules service keeps one document of a name, and the shadow of "
            "a rule is a version of it: apply it alone with --publish shadow",
            sorted[i]->name);
        what.message = message;
        weir__documents_diagnose(documents, sorted[i], &what, weir__add_finding, findings);
        good = false;
    }
    free(sorted);
    return good;
}

static void settings_first(struct weir__documents *documents)
{
    for (size_t i = 1; i < documents->count; i++) {
        struct weir__rule_document document = documents->list[i];
        if (document.kind != WEIR__KIND_SETTINGS)
            continue;
        memmove(documents->list + 1, documents->list, i * sizeof document);
        documents->list[0] = document;
    }
}

/* What is no file of its own: standard input, a pipe. */
static bool read_stream(struct weir__documents *documents, const char *path, struct weir__findings *findings)
{
    const char *shown = strcmp(path, "-") == 0 ? "<stdin>" : path;
    size_t len;
    errno = 0;
    char *text = weir__read_all(path, WEIR__INPUT_MAX, &len);
    if (text)
        return weir__documents_take(documents, shown, text, len, weir__add_finding, findings);
    weir_diagnostic what = {
        .severity = WEIR_IS_ERROR, .file = shown, .message = errno ? strerror(errno) : "it cannot be read"};
    weir__add_finding(findings, &what);
    return false;
}

bool weir__rule_files_read(struct weir__documents *documents, const char *path, struct weir__findings *findings)
{
    *documents = (struct weir__documents){0};
    if (!(weir__is_stream(path) ? read_stream(documents, path, findings)
                                : weir__documents_read(documents, path, weir__add_finding, findings)))
        return false;
    settings_first(documents);
    return report_duplicates(documents, findings);
}
