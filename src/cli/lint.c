/* weir lint: checks rules, and lists them. */
#include "base/duration.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>

/* ---- Output ---- */

enum { COLUMNS = 7, ALGORITHMS = WEIR_CONCURRENCY + 1 };

#define MILLION 1e6

static const struct weir__column columns[COLUMNS] = {{.title = "rule", WEIR__CUT},
                                                     {.title = "domain", WEIR__CUT | WEIR__OPTIONAL},
                                                     {.title = "key", WEIR__CUT},
                                                     {.title = "limit"},
                                                     {.title = "window"},
                                                     {.title = "algorithm"},
                                                     {.title = "1M keys", WEIR__RIGHT}};

static const char *const algorithms[ALGORITHMS] = {"token_bucket",       "leaky_bucket",           "fixed_window",
                                                   "sliding_window_log", "sliding_window_counter", "concurrency"};

static void add_row(struct weir__text_table *table, const weir_rule_info *rule)
{
    char window[WEIR__DURATION_TEXT], bytes[WEIR__DURATION_TEXT];
    bool counted = rule->bytes_per_key > 0;
    const char *limit = rule->limit == 0  ? "banned"
                        : rule->limit < 0 ? "unlimited"
                                          : weir__text("%" PRId64, rule->limit);
    const char *cells[COLUMNS] = {weir__text("%s%s", rule->name, rule->shadow ? " (shadow)" : ""), rule->domain,
                                  /* the key of a descriptor is the descriptor */
                                  *rule->key || rule->domain ? rule->key : "(one for all)",
                                  weir__text("%s%s", limit, rule->by_tier ? "/tier" : ""),
                                  !counted          ? ""
                                  : rule->window_ns ? weir__window_text(rule->window_ns, window)
                                                    : "calendar",
                                  counted ? algorithms[rule->algorithm] : "",
                                  counted ? weir__bytes_text((double)rule->bytes_per_key * MILLION, bytes) : ""};
    for (int i = 0; i < COLUMNS; i++)
        weir__text_table_cell(table, cells[i]);
}

static void print_table(const char *path, const weir_rules *rules, size_t most, size_t warnings)
{
    size_t count = weir_rules_count(rules);
    size_t by_algorithm[ALGORITHMS] = {0}, shadow = 0;
    double bytes = 0;
    char text[WEIR__DURATION_TEXT];
    struct weir__text_table table = {.columns = columns, .column_count = COLUMNS};
    weir_rule_info rule;
    for (size_t i = 0; i < count; i++) {
        weir_rules_info(rules, i, &rule);
        if (i < most)
            add_row(&table, &rule);
        bytes += (double)rule.bytes_per_key;
        shadow += rule.shadow;
        if (rule.bytes_per_key > 0)
            by_algorithm[rule.algorithm]++;
    }
    weir__text_table_print(&table, stdout);
    if (count > most)
        printf("and %zu more (--all shows them)\n", count - most);
    printf("%s", count ? "\n" : "");
    weir__print_text(stdout, path);
    printf(": %zu rule%s", count, count == 1 ? "" : "s");
    if (shadow > 0)
        printf(", %zu of them in shadow", shadow);
    if (warnings > 0)
        printf("; %zu warning%s\n", warnings, warnings == 1 ? "" : "s");
    else
        printf("; no warnings\n");
    int shown = 0;
    for (int i = 0; i < ALGORITHMS; i++)
        if (by_algorithm[i] > 0)
            printf("%s%zu %s", shown++ ? ", " : "", by_algorithm[i], algorithms[i]);
    if (shown)
        printf("\na million keys of each need %s\n", weir__bytes_text(bytes * MILLION, text));
}

static json_t *rule_json(const weir_rule_info *rule)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:i, s:s, s:o, s:o, s:b, s:b, s:I}", "name",
                     weir__json_of_text(rule->name), "dialect", rule->domain ? "descriptors" : "weir", "domain",
                     weir__json_of_text(rule->domain), "key", weir__json_of_text(rule->key), "file",
                     weir__json_of_text(rule->file), "line", rule->line, "algorithm", algorithms[rule->algorithm],
                     "limit", rule->limit < 0 ? json_string("unlimited") : json_integer(rule->limit), "window_s",
                     weir__json_of_seconds(rule->window_ns > 0 ? rule->window_ns : -1), "by_tier", rule->by_tier,
                     "shadow", rule->shadow, "bytes_per_key", (json_int_t)rule->bytes_per_key);
}

/* ---- The command ---- */

enum { SHOWN = 50 };

/* Loads one argument; NULL after findings. *shown becomes the name of the file for messages. */
static weir_rules *load(struct weir__findings *findings, const char *path, const char **shown)
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
    *shown = weir__text("%s", input.path ? input.path : input.name);
    weir__input_close(&input);
    return rules;
}

/* Checks one argument and prints it as text; false if it has errors. */
static bool lint(struct weir__findings *findings, const char *path, size_t most)
{
    findings->errors = findings->warnings = 0;
    const char *shown;
    weir_rules *rules = load(findings, path, &shown);
    size_t errors = findings->errors + (findings->strict ? findings->warnings : 0);
    bool good = rules && !(findings->strict && findings->warnings > 0);
    if (good)
        print_table(shown, rules, most, findings->warnings);
    else
        weir__print_line(stderr, "%s: %zu error%s", shown, errors, errors == 1 ? "" : "s");
    weir_rules_free(rules);
    return good;
}

/* All arguments as one object. */
static bool lint_json(struct weir__findings *findings, const char *const *paths, size_t count)
{
    json_t *list = json_array();
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        const char *shown;
        weir_rule_info rule;
        findings->errors = 0;
        weir_rules *rules = load(findings, paths[i], &shown);
        good &= rules != NULL;
        for (size_t k = 0; rules && k < weir_rules_count(rules); k++) {
            weir_rules_info(rules, k, &rule);
            json_array_append_new(list, rule_json(&rule));
        }
        weir_rules_free(rules);
    }
    good &= !(findings->strict && findings->warnings > 0);
    return weir__print_json(json_pack("{s:b, s:o, s:o, s:o}", "ok", good, "errors",
                                      weir__findings_json(findings, WEIR_IS_ERROR), "warnings",
                                      weir__findings_json(findings, WEIR_IS_WARNING), "rules", list)) &&
           good;
}

int weir__cmd_lint(struct weir__given *given)
{
    struct weir__findings findings = {.to = given->json ? NULL : stderr, .strict = weir__option(given, "strict")};
    if (given->argument_count == 0)
        given->arguments[given->argument_count++] = weir__input_default();
    if (!given->arguments[0]) {
        fputs("weir lint: which file or directory? there is no weir.yaml in this one\n", stderr);
        weir__help(stderr, "lint");
        return 2;
    }
    bool good = !given->json || lint_json(&findings, given->arguments, given->argument_count);
    for (size_t i = 0; i < given->argument_count && !given->json; i++) {
        if (i > 0)
            putchar('\n');
        good &= lint(&findings, given->arguments[i], weir__option(given, "all") ? SIZE_MAX : SHOWN);
    }
    weir__findings_free(&findings);
    return good ? 0 : 1;
}
