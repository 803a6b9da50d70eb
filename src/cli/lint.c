/* weir lint: checks rules, and lists them. */
#include "base/duration.h"
#include "base/json_writer.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>

static const char usage[] =
    "usage: weir lint [--json] [--strict] [--all] [FILE|DIR...]\n"
    "Checks rules and lists them. Each argument is a set of its own: a file, a directory\n"
    "whose *.yaml and *.yml files belong together, '-' for standard input, or a weir.yaml (the default)\n"
    "for the rules that it contains or names; weir serve --check checks the rest of it.\n"
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

static const struct weir__column columns[COLUMNS] = {{"rule", WEIR__CUT},     {"domain", WEIR__CUT | WEIR__OPTIONAL},
                                                     {"key", WEIR__CUT},      {"limit", 0},
                                                     {"window", 0},           {"algorithm", 0},
                                                     {"1M keys", WEIR__RIGHT}};

static const char *const algorithms[ALGORITHMS] = {"token_bucket",       "leaky_bucket",           "fixed_window",
                                                   "sliding_window_log", "sliding_window_counter", "concurrency"};

/* The text of a cell, formatted into `buffer` of CELL_MAX bytes if need be. */
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
        return *rule->key || rule->domain ? rule->key : "(one for all)"; /* the key of a descriptor is the descriptor */
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
        return !rule->bytes_per_key ? "" : algorithms[rule->algorithm];
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
        if (rule.bytes_per_key > 0)
            by_algorithm[rule.algorithm]++;
    }
    weir__text_table_print(&table, to);
    if (count > most)
        fprintf(to, "and %zu more (--all shows them)\n", count - most);
    fprintf(to, "%s", count ? "\n" : "");
    weir__print_text(to, path);
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
            fprintf(to, "%s%zu %s", shown++ ? ", " : "", by_algorithm[i], algorithms[i]);
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
        weir__json_text(json, "algorithm", algorithms[rule.algorithm]);
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

/* Loads one argument; NULL after findings. `shown` becomes the name of the file for messages. */
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

/* Checks one argument and prints it as text; false if it has errors. */
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
        weir__print_line(stderr, "%s: %zu error%s", shown, errors, errors == 1 ? "" : "s");
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
    good &= !(lint->strict && findings->warnings > 0);
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
        weir_rules **sets = weir__must(calloc(count, sizeof(weir_rules *)));
        good = lint_json(all, paths, count, sets);
        free(sets);
    }
    for (size_t i = 0; i < count && !all->json; i++) {
        if (i > 0)
            putchar('\n');
        good &= lint(all, paths[i]);
    }
    return weir__flush(good ? 0 : 1);
}

int weir__cmd_lint(int argc, char **argv)
{
    struct lint all = {.most = SHOWN};
    bool show_all = false;
    const struct weir__option options[] = {
        {"json", .flag = &all.json}, {"strict", .flag = &all.strict}, {"all", 'a', .flag = &show_all}};
    const char **paths = weir__must(calloc((size_t)argc, sizeof *paths));
    struct weir__args args = {"lint", usage, options, 3, paths, (size_t)argc, 0, NULL};
    int code = weir__args_read(&args, argc, argv);
    if (code < 0) {
        if (args.argument_count == 0)
            paths[args.argument_count++] = weir__input_default();
        all.most = show_all ? SIZE_MAX : SHOWN;
        code = 2;
        if (paths[0])
            code = lint_all(&all, paths, args.argument_count);
        else
            fprintf(stderr, "weir lint: which file or directory? there is no weir.yaml in this one\n%s", usage);
    }
    weir__findings_free(&all.findings);
    free(paths);
    return code;
}
