/* Reads rule files as documents, and checks them: weir rules validate, and weir rules apply before it writes. */
#include "cli/rules.h"

#include <errno.h>
#include <string.h>

/* ---- Reading files ---- */

/* The service keeps one document per name. */
static bool report_duplicates(const struct weir__documents *documents, struct weir__findings *findings)
{
    json_t *names = json_object();
    bool good = true;
    for (size_t i = 0; i < documents->count; i++) {
        const char *name = documents->list[i].name;
        if (!json_object_get(names, name)) {
            json_object_set_new(names, name, json_true());
            continue;
        }
        weir_diagnostic what = {.severity = WEIR_IS_ERROR, .line = 1, .column = 1};
        char message[256];
        snprintf(
            message, sizeof message,
            "there is another %s in these files; the rules service keeps one document per name, and the shadow of a "
            "rule is a version of it: apply it alone with --publish shadow",
            name);
        what.message = message;
        weir__document_diagnose(&documents->list[i], &what, weir__add_finding, findings);
        good = false;
    }
    json_decref(names);
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

/* Standard input or a pipe. */
static bool read_stream(struct weir__documents *documents, const char *path, struct weir__findings *findings)
{
    const char *shown = strcmp(path, "-") == 0 ? "<stdin>" : path;
    size_t len;
    errno = 0;
    char *text = weir__read_all(path, WEIR__INPUT_MAX, &len);
    if (text)
        return weir__documents_take(documents, shown, text, len, weir__add_finding, findings);
    weir_diagnostic what = {
        .severity = WEIR_IS_ERROR, .file = shown, .message = errno ? strerror(errno) : "cannot be read"};
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

/* ---- Checking ---- */

const struct weir__rule_document *weir__rules_find(const struct weir__documents *documents, const char *name)
{
    for (size_t i = 0; i < documents->count; i++)
        if (strcmp(documents->list[i].name, name) == 0)
            return &documents->list[i];
    return NULL;
}

void weir__rules_problems(const struct weir__documents *documents, const struct weir__rule_document *document,
                          const json_t *problems, struct weir__findings *findings)
{
    size_t i;
    const json_t *problem;
    json_array_foreach(problems, i, problem)
    {
        weir_diagnostic what = weir__problem_diagnostic(problem);
        const struct weir__rule_document *about = what.file ? weir__rules_find(documents, what.file) : document;
        if (about)
            weir__document_diagnose(about, &what, weir__add_finding, findings);
        else
            weir__add_finding(findings, &what);
    }
}

/* Checks a rule with the settings of the files: the service may not have them yet. */
static bool try_here(const struct weir__documents *documents, const struct weir__rule_document *rule,
                     struct weir__findings *findings)
{
    json_t *problems = json_array();
    size_t before = findings->errors;
    int error = weir__document_compile(documents->list[0].text.data, rule->name, rule->kind,
                                       (weir_text){rule->text.data, rule->text.len}, true, problems);
    weir__rules_problems(documents, rule, problems, findings);
    if (error && findings->errors == before)
        weir__find_failure(findings, rule->name, error);
    json_decref(problems);
    return error == 0;
}

/* Checks a document with the settings of the service. */
static bool try_there(const struct weir__given *given, const struct weir__documents *documents,
                      const struct weir__rule_document *document, struct weir__findings *findings)
{
    struct weir__service_call call = {
        .method = "POST", .about = document->name, .body = {document->text.data, document->text.len}};
    bool sent = weir__send(given, &call, "/v1/validate");
    const json_t *problems = weir__call_problems(&call);
    bool good = sent && !problems && weir__is_good(given, &call);
    weir__rules_problems(documents, document, good ? json_object_get(call.json, "warnings") : problems, findings);
    weir__call_free(&call);
    return good;
}

bool weir__rules_check(const struct weir__given *given, const struct weir__documents *documents,
                       struct weir__findings *findings)
{
    bool settings = documents->count > 0 && documents->list[0].kind == WEIR__KIND_SETTINGS, good = true;
    for (size_t i = 0; i < documents->count; i++) {
        const struct weir__rule_document *document = &documents->list[i];
        good &= settings && document->kind == WEIR__KIND_RULE ? try_here(documents, document, findings)
                                                              : try_there(given, documents, document, findings);
        if (i == 0 && settings && !good)
            break; /* rules cannot be checked with wrong settings */
    }
    return good;
}

int weir__cmd_rules_validate(struct weir__given *given)
{
    struct weir__findings findings = {.to = given->json ? NULL : stderr};
    struct weir__documents documents;
    bool good = weir__rule_files_read(&documents, given->arguments[0], &findings) &&
                weir__rules_check(given, &documents, &findings);
    if (given->json) {
        good &= weir__print_json(json_pack(
            "{s:b, s:o, s:o, s:I}", "ok", good, "errors", weir__findings_json(&findings, WEIR_IS_ERROR), "warnings",
            weir__findings_json(&findings, WEIR_IS_WARNING), "documents", (json_int_t)documents.count));
    } else if (good) {
        weir__print_line(stdout, "%s: %zu document%s, good", given->arguments[0], documents.count,
                         documents.count == 1 ? "" : "s");
    } else {
        weir__print_line(stderr, "%s: %zu error%s", given->arguments[0], findings.errors,
                         findings.errors == 1 ? "" : "s");
    }
    weir__documents_free(&documents);
    return good ? 0 : 1;
}
