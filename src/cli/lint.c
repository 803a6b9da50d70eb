/* weir lint: checks rules, and lists them. */
#include "base/buffer.h"
#include "base/duration.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/text.h"
#include "rules/set.h"
#include "serve/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>

/* ---- Output ---- */

enum { COLUMNS = 7, ALGORITHMS = WEIR_CONCURRENCY + 1 };
enum { SHOWN = 50, NAMES = 500 }; /* without --all: rules in the table, bytes of names in a line */

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

/* The size of a segment for a million times this, as in weir.yaml; `none` if no segment holds that. */
static const char *million_text(struct weir__footprint each, const char *none, char *buffer)
{
    struct weir__footprint all = {each.slots * MILLION, each.slab * MILLION};
    return weir__footprint_is_possible(all) ? weir__size_text(weir__footprint_segment(all), buffer) : none;
}

/* The unit of a calendar window. All tiers of a rule have the same. */
static const char *calendar_text(const struct weir__rule *rule)
{
    static const char *const units[] = {[WEIR_CALENDAR_DAY] = "day",
                                        [WEIR_CALENDAR_WEEK] = "week",
                                        [WEIR_CALENDAR_MONTH] = "month",
                                        [WEIR_CALENDAR_YEAR] = "year"};
    size_t i = 0;
    while (i + 1 < rule->quota_count && rule->quotas[i].kind != WEIR__LIMITED)
        i++;
    return units[rule->quotas[i].limit.calendar];
}

static void add_row(struct weir__text_table *table, const weir_rules *rules, const weir_rule_info *rule, size_t index,
                    struct weir__footprint each)
{
    char window[WEIR__DURATION_TEXT], size[WEIR__DURATION_TEXT];
    bool counted = rule->bytes_per_key > 0;
    const char *limit = rule->limit == 0  ? "banned"
                        : rule->limit < 0 ? "unlimited"
                                          : weir__format("%" PRId64, rule->limit);
    const char *cells[COLUMNS] = {weir__format("%s%s", rule->name, rule->shadow ? " (shadow)" : ""), rule->domain,
                                  /* the key of a descriptor is the descriptor */
                                  *rule->key || rule->domain ? rule->key : "(one for all)",
                                  weir__format("%s%s", limit, rule->by_tier ? "/tier" : ""),
                                  !counted          ? ""
                                  : rule->window_ns ? weir__window_text(rule->window_ns, window)
                                                    : calendar_text(rules->rules[index]),
                                  counted ? algorithms[rule->algorithm] : "",
                                  each.slots > 0 ? million_text(each, "too many", size) : ""};
    for (int i = 0; i < COLUMNS; i++)
        weir__text_table_cell(table, cells[i]);
}

static void print_table(const char *path, const weir_rules *rules, int64_t segment_bytes, size_t most, size_t warnings)
{
    size_t count = weir_rules_count(rules);
    size_t by_algorithm[ALGORITHMS] = {0}, shadow = 0;
    struct weir__footprint sum = {0, 0};
    char size[WEIR__DURATION_TEXT], text[WEIR__DURATION_TEXT];
    struct weir__text_table table = {.columns = columns, .column_count = COLUMNS};
    weir_rule_info rule;
    for (size_t i = 0; i < count; i++) {
        weir_rules_info(rules, i, &rule);
        struct weir__footprint each = {0, 0}; /* a counter for all needs next to nothing */
        if (*rule.key || rule.domain)
            each = weir__rule_footprint(rules->rules[i]);
        if (i < most)
            add_row(&table, rules, &rule, i, each);
        sum = (struct weir__footprint){sum.slots + each.slots, sum.slab + each.slab};
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
        putchar('\n');
    if (sum.slots > 0)
        printf("segment for a million keys of each: %s; one of %s holds %.0f of each\n",
               million_text(sum, "none is large enough, as a slab has at most 2304MiB", text),
               weir__size_text((double)segment_bytes, size), weir__footprint_keys(sum, (double)segment_bytes));
}

/* ---- Several hosts ---- */

/* What is known of the store that the rules are for. */
struct store {
    bool unknown, none; /* rules alone; a weir.yaml without one */
    enum weir__consistency consistency;
    int64_t sync_interval_us;
};

static struct store store_of(const struct weir__file *file)
{
    return file ? (struct store){false, !file->store, (enum weir__consistency)file->consistency, file->sync_interval_us}
                : (struct store){true, false, WEIR__PER_ALGORITHM, 50000}; /* the defaults */
}

/* Over which hosts the rules count. */
static void print_hosts(const weir_rules *rules, const struct store *store, bool all)
{
    struct weir__buffer lines = {0};
    if (!weir_rules_count(rules))
        return;
    if (store->none) {
        puts(WEIR__NO_STORE_TEXT);
        return;
    }
    weir__rules_hosts(rules, store->consistency, store->sync_interval_us, all ? SIZE_MAX : NAMES, &lines);
    printf("%s%s", store->unknown && lines.len ? "with a store:\n" : "", lines.failed || !lines.len ? "" : lines.data);
    weir__buffer_free(&lines);
}

static json_t *rule_json(const weir_rule_info *rule, const char *consistency)
{
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:i, s:s, s:o, s:o, s:b, s:b, s:I, s:s}", "name", weir__json_of_text(rule->name),
        "dialect", rule->domain ? "descriptors" : "weir", "domain", weir__json_of_text(rule->domain), "key",
        weir__json_of_text(rule->key), "file", weir__json_of_text(rule->file), "line", rule->line, "algorithm",
        algorithms[rule->algorithm], "limit", rule->limit < 0 ? json_string("unlimited") : json_integer(rule->limit),
        "window_s", weir__json_of_seconds(rule->window_ns > 0 ? rule->window_ns : -1), "by_tier", rule->by_tier,
        "shadow", rule->shadow, "bytes_per_key", (json_int_t)rule->bytes_per_key, "consistency", consistency);
}

/* ---- The command ---- */

/* Loads one argument; NULL after findings. *shown becomes the name of the file for messages. */
static weir_rules *load(struct weir__findings *findings, const char *path, const char **shown, struct store *store,
                        int64_t *segment_bytes)
{
    weir_rules *rules = NULL;
    struct weir__input input = {.findings = findings};
    if (weir__input_open(&input, path)) {
        errno = 0;
        struct weir__source text = {input.name, {input.text, input.len}};
        int error = weir__file_load(input.file, input.path, &text, weir__input_find, &input, &rules);
        if (error)
            weir__find_failure(findings, input.path ? input.path : input.name, error);
    }
    *segment_bytes = input.file ? input.file->segment_bytes : WEIR__SEGMENT_DEFAULT;
    *shown = weir__format("%s", input.path ? input.path : input.name);
    *store = store_of(input.file);
    weir__input_close(&input);
    return rules;
}

/* Checks one argument, and prints its rules, or adds them to a list of JSON. False if it has errors. */
static bool lint(struct weir__findings *findings, const char *path, size_t most, json_t *list)
{
    static const char *const consistencies[] = {"local", "eventual", "strict", "leased"};
    findings->errors = findings->warnings = 0;
    const char *shown;
    int64_t segment_bytes;
    weir_rule_info rule;
    struct store store;
    weir_rules *rules = load(findings, path, &shown, &store, &segment_bytes);
    size_t errors = findings->errors + (findings->strict ? findings->warnings : 0);
    bool good = rules && !(findings->strict && findings->warnings > 0);
    for (size_t i = 0; list && rules && i < weir_rules_count(rules); i++) {
        weir_rules_info(rules, i, &rule);
        enum weir__consistency consistency = weir__rule_consistency(rules->rules[i], store.consistency);
        json_array_append_new(list, rule_json(&rule, consistencies[store.none ? WEIR__LOCAL : consistency]));
    }
    if (!list && good) {
        print_table(shown, rules, segment_bytes, most, findings->warnings);
        print_hosts(rules, &store, most > SHOWN);
    } else if (!list) {
        weir__print_line(stderr, "%s: %zu error%s", shown, errors, errors == 1 ? "" : "s");
    }
    weir_rules_free(rules);
    return good;
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
    json_t *list = given->json ? json_array() : NULL;
    bool good = true;
    for (size_t i = 0; i < given->argument_count; i++) {
        if (i > 0 && !list)
            putchar('\n');
        good &= lint(&findings, given->arguments[i], weir__option(given, "all") ? SIZE_MAX : SHOWN, list);
    }
    if (list)
        good &= weir__print_json(json_pack("{s:b, s:o, s:o, s:o}", "ok", good, "errors",
                                           weir__findings_json(&findings, WEIR_IS_ERROR), "warnings",
                                           weir__findings_json(&findings, WEIR_IS_WARNING), "rules", list));
    return good ? 0 : 1;
}
