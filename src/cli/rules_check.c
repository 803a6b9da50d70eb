/* Reads rule files as documents, and checks them: weir rules validate, and weir rules apply before it writes. */
#include "cli/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading files ---- */

/* The service keeps one document of a name. */
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
            "there is another %s in these files; the rules service keeps one document of a name, and the shadow of a "
            "rule is a version of it: apply it alone with --publish shadow",
            name);
        what.message = message;
        weir__documents_diagnose(documents, &documents->list[i], &what, weir__add_finding, findings);
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

/* ---- Problems that the service reports ---- */

enum { INDENT = 4 }; /* of a rule in the text that is compiled to check it */

bool weir__rules_problems(const struct weir__documents *documents, const struct weir__rule_document *document,
                          const json_t *problems, struct weir__findings *findings)
{
    size_t i;
    const json_t *problem;
    json_array_foreach(problems, i, problem)
    {
        weir_diagnostic what = weir__problem_diagnostic(problem);
        if (what.file && strcmp(what.file, document->name) != 0) /* a document that is not in the files */
            weir__add_finding(findings, &what);
        else
            weir__documents_diagnose(documents, document, &what, weir__add_finding, findings);
    }
    return json_array_size(problems) > 0;
}

/* ---- With the settings of the files ---- */

struct located_rule {
    const struct weir__documents *documents;
    const struct weir__rule_document *document;
    size_t before; /* lines before the document's */
    struct weir__findings *findings;
};

static void locate_problem(void *context, const weir_diagnostic *what)
{
    const struct located_rule *located_rule = context;
    weir_diagnostic moved = *what;
    if (what->line > 0 && (size_t)what->line <= located_rule->before)
        return; /* in the settings, which are checked on their own */
    if (what->line > 0) {
        moved.line -= (int)located_rule->before;
        moved.column = what->column > INDENT ? what->column - INDENT : 1;
    }
    weir__documents_diagnose(located_rule->documents, located_rule->document, &moved, weir__add_finding,
                             located_rule->findings);
}

/* The settings and one rule as a rule file. From malloc, or NULL. */
static char *rule_text(const struct weir__rule_document *settings, const struct weir__rule_document *rule, size_t *len)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, len);
    if (!to)
        return NULL;
    fprintf(to, "%srules:\n", settings->text);
    for (const char *line = rule->text; *line;) {
        size_t bytes = strcspn(line, "\n") + 1; /* each ends in one */
        const char *indent = line == rule->text ? "  - " : bytes > 1 ? "    " : "";
        fprintf(to, "%s%.*s", indent, (int)bytes, line);
        line += bytes;
    }
    return fclose(to) == 0 ? text : NULL;
}

/* Checks a rule here: it may need settings that the service does not have yet. */
static bool try_here(const struct weir__documents *documents, const struct weir__rule_document *rule,
                     struct weir__findings *findings)
{
    const struct weir__rule_document *settings = &documents->list[0];
    struct located_rule located_rule = {documents, rule, settings->lines + 1, findings};
    size_t len = 0, before = findings->errors;
    char *text = rule_text(settings, rule, &len);
    weir_rules *rules = NULL;
    int error = text ? weir_rules_parse("rules", text, len, locate_problem, &located_rule, &rules) : WEIR_ENOMEM;
    if (error == 0)
        weir_rules_free(rules);
    else if (error != WEIR_ERULES && findings->errors == before)
        weir__find_failure(findings, rule->name, error);
    free(text);
    return findings->errors == before;
}

/* ---- With the settings of the service ---- */

static bool try_there(const struct weir__given *given, const struct weir__documents *documents,
                      const struct weir__rule_document *document, struct weir__findings *findings)
{
    struct weir__service_call call = {
        .method = "POST", .about = document->name, .body = {document->text, document->len}};
    bool good = weir__send(given, &call, "/v1/validate");
    const json_t *problems = good ? weir__call_problems(&call) : NULL;
    if (good && problems)
        good = !weir__rules_problems(documents, document, problems, findings);
    else if (good && weir__is_good(given, &call))
        weir__rules_problems(documents, document, json_object_get(call.json, "warnings"), findings);
    else
        good = false;
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
    weir__findings_free(&findings);
    return good ? 0 : 1;
}
