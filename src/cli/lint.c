/* weir lint: are these rules good, and what is in them? */
#include "base/duration.h"
#include "base/json_writer.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "cli/options.h"
#include "cli/text.h"
#include "cli/names.h"
#include "cli/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>

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

/* ---- Output ---- */

enum { NAME, DOMAIN, KEY, LIMIT, WINDOW, ALGORITHM, MEMORY, COLUMNS };
enum { CELL_MAX = 160, ALGORITHMS = WEIR_CONCURRENCY + 1 };

#define MILLION 1e6

static const struct weir__column columns[COLUMNS] = {
    {"rule", false, true, false},   {"domain", false, true, true},   {"key", false, true, false},
    {"limit", false, false, false}, {"window", false, false, false}, {"algorithm", false, false, false},
    {"1M keys", true, false, false}};

/* The text of a cell; `buffer` has CELL_MAX bytes and is used where the text is not there yet. */
static const char *cell(const weir_rule_info *rule, int column, char *buffer)
{
    char text[WEIR__DURATION_TEXT];
    switch (column) {
    case NAME:
        snprintf(buffer, CELL_MAX, "%s%s", rule->name, rule->shadow ? " (shadow)" : "");
        return buffer;
    case DOMAIN:
        return rule->domain ? rule->domain : "";
    case KEY:
        return *rule->key || rule->domain ? rule->key : "(one for all)"; /* a descriptor is its own key */
    case LIMIT:
        if (rule->limit == 0)
            snprintf(text, sizeof text, "banned");
        else if (rule->limit < 0)
            snprintf(text, sizeof text, "unlimited");
        else
            snprintf(text, sizeof text, "%" PRId64, rule->limit);
        snprintf(buffer, CELL_MAX, "%s%s", text, rule->by_tier ? "/tier" : "");
        return buffer;
    case WINDOW:
        if (!rule->bytes_per_key)
            return "";
        return rule->window_ns ? weir__window_text(rule->window_ns, buffer) : "calendar";
    case ALGORITHM:
        return !rule->bytes_per_key ? "" : weir__algorithm_name(rule->algorithm);
    default:
        return rule->bytes_per_key > 0 ? weir__bytes_text((double)rule->bytes_per_key * MILLION, buffer) : "";
    }
}

static void print_table(FILE *to, const char *path, const weir_rules *rules, size_t most, size_t warnings)
{
    size_t count = weir_rules_count(rules);
    size_t by_algorithm[ALGORITHMS] = {0}, shadow = 0;
    double bytes = 0;
    char text[WEIR__DURATION_TEXT];
    char buffer[CELL_MAX];
    struct weir__text_table table = {.columns = columns, .column_count = COLUMNS};
    weir_rule_info rule;
    for (size_t i = 0; i < count; i++) {
        weir_rules_info(rules, i, &rule);
        for (int c = 0; c < COLUMNS && i < most; c++)
            weir__text_table_cell(&table, cell(&rule, c, buffer));
        bytes += (double)rule.bytes_per_key;
        shadow += rule.shadow;
        if (rule.bytes_per_key > 0 && (unsigned)rule.algorithm < ALGORITHMS)
            by_algorithm[rule.algorithm]++;
    }
    weir__text_table_print(&table, to);
    weir__text_table_free(&table);
    if (count > most)
        fprintf(to, "and %zu more (--all shows them)\n", count - most);
    fprintf(to, "%s", count ? "\n" : "");
    weir__print_text(to, path, SIZE_MAX, false);
    fprintf(to, ": %zu rule%s", count, count == 1 ? "" : "s");
    if (shadow > 0)
        fprintf(to, ", %zu of them in shadow", shadow);
    if (warnings > 0)
        fprintf(to, "; %zu warning%s\n", warnings, warnings == 1 ? "" : "s");
    else
        fprintf(to, "; no warnings\n");
    int shown = 0;
    for (int i = 0; i < ALGORITHMS; i++)
        if (by_algorithm[i] > 0)
            fprintf(to, "%s%zu %s", shown++ ? ", " : "", by_algorithm[i], weir__algorithm_name((enum weir_algorithm)i));
    if (shown)
        fprintf(to, "\na million keys of each need %s\n", weir__bytes_text(bytes * MILLION, text));
}

static void print_json(struct weir__json *json, const weir_rules *rules)
{
    for (size_t i = 0; i < weir_rules_count(rules); i++) {
        weir_rule_info rule;
        weir_rules_info(rules, i, &rule);
        weir__json_open(json, NULL, '{');
        weir__json_text(json, "name", rule.name);
        weir__json_text(json, "dialect", rule.domain ? "descriptors" : "weir");
        weir__json_text(json, "domain", rule.domain);
        weir__json_text(json, "key", rule.key);
        weir__json_text(json, "file", rule.file);
        weir__json_int(json, "line", rule.line);
        weir__json_text(json, "algorithm", weir__algorithm_name(rule.algorithm));
        if (rule.limit < 0)
            weir__json_text(json, "limit", "unlimited");
        else
            weir__json_int(json, "limit", rule.limit);
        weir__json_seconds(json, "window_s", rule.window_ns > 0 ? rule.window_ns : -1);
        weir__json_bool(json, "by_tier", rule.by_tier);
        weir__json_bool(json, "shadow", rule.shadow);
        weir__json_int(json, "bytes_per_key", rule.bytes_per_key);
        weir__json_close(json, '}');
    }
}

/* ---- The command ---- */

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
        print_table(stdout, shown, rules, lint->most, findings->warnings);
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
            print_json(&json, sets[i]);
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
