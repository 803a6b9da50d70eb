/* weir lint: what is in a set of rules, for people or as JSON. */
#include "cli/lint.h"
#include "cli/names.h"
#include "cli/table.h"
#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

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

void weir__lint_table(FILE *to, const char *path, const weir_rules *rules, size_t most, size_t warnings)
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

void weir__lint_json(struct weir__json *json, const weir_rules *rules)
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
