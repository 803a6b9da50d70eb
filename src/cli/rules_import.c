/* weir rules import: moves rules from files into an empty database, and publishes them. */
#include "cli/rules.h"

#include <string.h>

/* Prints what was done, and the next step. */
static bool print(const struct weir__given *given, const struct weir__named_rules *named, size_t documents)
{
    if (given->json)
        return weir__print_json(json_pack("{s:b, s:I}", "ok", 1, "documents", (json_int_t)documents));
    weir__print_line(stdout, "imported and published %zu document%s of %s", documents, documents == 1 ? "" : "s",
                     named->path ? named->path : named->file);
    weir__print_line(stdout, "the database decides with this in weir.yaml: admin: { rules: database }; remove rules "
                             "there, as it is not read any more");
    return true;
}

int weir__cmd_rules_import(struct weir__given *given)
{
    const struct weir__named_rules *of_file = weir__service_named(given->service);
    const char *path = weir__argument(given, NULL);
    struct weir__findings findings = {.to = given->json ? NULL : stderr, .errors_only = true};
    struct weir__documents documents = {0};
    size_t rules;
    if (!of_file) {
        fprintf(stderr, "weir %s: it writes to the database itself: use --file with its weir.yaml, or --db\n",
                given->command);
        return 2;
    }
    struct weir__named_rules named = path ? (struct weir__named_rules){.path = path} : *of_file;
    if (!named.path && !named.text.len) {
        fprintf(stderr, "weir %s: which file or directory? weir.yaml names none under rules\n", given->command);
        return 2;
    }
    int error = weir__named_rules_read(&named, false, weir__add_finding, &findings, &documents, &rules);
    struct weir__import_result result = {.rules_error = error};
    if (!error)
        result = weir__service_import(given, &named, &documents, &findings);
    weir__documents_free(&documents);
    if (result.documents)
        return print(given, &named, result.documents) ? 0 : 1;
    const char *why = result.rules_error   ? "the rules have errors; nothing was imported"
                      : result.no_database ? "the database is not available; nothing was imported"
                                           : "the database has documents already; weir rules apply changes them";
    if (given->json)
        (void)!weir__print_json(json_pack("{s:b, s:s, s:o}", "ok", 0, "error", why, "errors",
                                          weir__findings_json(&findings, WEIR_IS_ERROR)));
    else
        weir__print_line(stderr, "weir %s: %s", given->command, why);
    return 1;
}
