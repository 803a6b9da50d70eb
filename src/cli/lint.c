/* weir lint: are these rules good, and what is in them? */
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/lint.h"
#include "cli/options.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: weir lint [--json] [--strict] [--all] [FILE|DIR...]\n"
    "Checks rules and shows what is in them. Each argument is a set of its own: a file, a directory\n"
    "whose *.yaml and *.yml files belong together, '-' for standard input, or a weir.yaml (the default)\n"
    "for the rules that it has or names; weir serve --check looks at all else that it says.\n"
    "\n"
    "  --json      one object: ok, errors, warnings, rules\n"
    "  --strict    warnings are errors\n"
    "  --all       show all rules, not only the first 50\n"
    "\n"
    "Exits with 0 if the rules are good, 1 if they have errors, 2 for a wrong command line.\n";

enum { SHOWN = 50 };

struct lint {
    bool json, strict;
    size_t most;
    struct weir__findings findings;
};

/* Loads one argument; NULL after findings. `shown` becomes where the rules are, as people know it. */
static weir_rules *load(struct weir__findings *findings, const char *path, char shown[4096])
{
    weir_rules *rules = NULL;
    struct weir__input input = {.findings = findings};
    if (weir__input_open(&input, path)) {
        errno = 0;
        int error = input.path ? weir_rules_load(input.path, weir__input_find, &input, &rules)
                               : weir_rules_parse(input.name, input.text, input.len, weir__input_find, &input, &rules);
        if (error)
            weir__find_failure(findings, input.path ? input.path : input.name, error);
    }
    snprintf(shown, 4096, "%s", input.path ? input.path : input.name);
    weir__input_close(&input);
    return rules;
}

/* One argument for people; false if it has errors. */
static bool lint(struct lint *lint, const char *path)
{
    struct weir__findings *findings = &lint->findings;
    findings->errors = findings->warnings = 0;
    char shown[4096];
    weir_rules *rules = load(findings, path, shown);
    bool good = rules && !(lint->strict && findings->warnings > 0);
    if (good) {
        weir__lint_table(stdout, shown, rules, lint->most, findings->warnings);
    } else {
        size_t errors = findings->errors + (lint->strict ? findings->warnings : 0);
        weir__print_text(stderr, shown, SIZE_MAX, false);
        fprintf(stderr, ": %zu error%s\n", errors, errors == 1 ? "" : "s");
    }
    weir_rules_free(rules);
    return good;
}

/* All arguments as one object; `sets` has room for them. */
static bool lint_json(struct lint *lint, const char *const *paths, size_t count, weir_rules **sets)
{
    struct weir__findings *findings = &lint->findings;
    struct weir__json json = {.to = stdout};
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        findings->errors = 0;
        char shown[4096];
        sets[i] = load(findings, paths[i], shown);
        good &= sets[i] != NULL;
    }
    good &= !(lint->strict && findings->warnings > 0) && !findings->out_of_memory;
    weir__json_open(&json, NULL, '{');
    weir__json_bool(&json, "ok", good);
    weir__json_open(&json, "errors", '[');
    weir__findings_json(findings, &json, WEIR_IS_ERROR);
    weir__json_close(&json, ']');
    weir__json_open(&json, "warnings", '[');
    weir__findings_json(findings, &json, WEIR_IS_WARNING);
    weir__json_close(&json, ']');
    weir__json_open(&json, "rules", '[');
    for (size_t i = 0; i < count; i++) {
        if (sets[i])
            weir__lint_json(&json, sets[i]);
        weir_rules_free(sets[i]);
    }
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    putchar('\n');
    return good;
}

static int lint_all(struct lint *all, const char *const *paths, size_t count)
{
    bool good = true;
    all->findings.to = all->json ? NULL : stderr;
    all->findings.strict = all->strict;
    if (all->json) {
        weir_rules **sets = calloc(count, sizeof(weir_rules *));
        good = sets && lint_json(all, paths, count, sets);
        free(sets);
    }
    for (size_t i = 0; i < count && !all->json; i++) {
        if (i > 0)
            putchar('\n');
        good &= lint(all, paths[i]);
    }
    if (fflush(stdout)) {
        perror("weir: standard output");
        return 1;
    }
    return good ? 0 : 1;
}

int weir__cmd_lint(int argc, char **argv)
{
    enum { JSON, STRICT, ALL, HELP };
    static const struct weir__option options[] = {
        {"json", 0, false}, {"strict", 0, false}, {"all", 'a', false}, {"help", 'h', false}};
    struct weir__args args = {"lint", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    struct lint all = {.most = SHOWN};
    size_t count = 0;
    const char **paths = calloc((size_t)argc, sizeof *paths);
    int option, code = 2;
    while (paths && (option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            goto done;
        if (option == HELP) {
            fputs(usage, stdout);
            code = 0;
            goto done;
        }
        all.json |= option == JSON;
        all.strict |= option == STRICT;
        if (option == ALL)
            all.most = SIZE_MAX;
        if (option == WEIR__ARG_WORD)
            paths[count++] = argv[args.at - 1];
    }
    if (count == 0 && paths)
        paths[count++] = weir__input_default();
    if (!paths || !paths[0]) {
        fprintf(stderr, "weir lint: which file or directory? there is no weir.yaml in this one\n%s", usage);
        goto done;
    }
    code = lint_all(&all, paths, count);
done:
    weir__findings_free(&all.findings);
    free(paths);
    return code;
}
