/* weir lint: what is in a set of rules, for people or as JSON. */
#include "cli/lint.h"
#include "cli/names.h"
#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

enum { NAME, DOMAIN, KEY, LIMIT, WINDOW, ALGORITHM, MEMORY, COLUMNS };
enum { CELL_MAX = 160, GAP = 2, LEAST = 12, ALGORITHMS = 5 };

#define MILLION 1e6

struct table {
    size_t width[COLUMNS]; /* 0: the column is left out */
    size_t rows;
};

static const char *const titles[COLUMNS] = {"rule", "domain", "key", "limit", "window", "algorithm", "1M keys"};

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

static void measure(struct table *table, const weir_rules *rules, size_t columns)
{
    bool domains = false;
    for (int c = 0; c < COLUMNS; c++)
        table->width[c] = weir__text_width(titles[c]);
    for (size_t i = 0; i < table->rows; i++) {
        weir_rule_info rule;
        char buffer[CELL_MAX];
        weir_rules_info(rules, i, &rule);
        domains |= rule.domain != NULL;
        for (int c = 0; c < COLUMNS; c++) {
            size_t width = weir__text_width(cell(&rule, c, buffer));
            if (width > table->width[c])
                table->width[c] = width;
        }
    }
    if (!domains)
        table->width[DOMAIN] = 0;

    /* What is too wide for the terminal is taken from the widest of those that may be cut. */
    static const int may_cut[] = {NAME, DOMAIN, KEY};
    for (;;) {
        size_t all = 0;
        int widest = NAME;
        for (int c = 0; c < COLUMNS; c++)
            all += table->width[c] ? table->width[c] + GAP : 0;
        for (size_t i = 0; i < sizeof may_cut / sizeof *may_cut; i++)
            if (table->width[may_cut[i]] > table->width[widest])
                widest = may_cut[i];
        if (all - GAP <= columns || table->width[widest] <= LEAST)
            return;
        table->width[widest]--;
    }
}

static void print_row(FILE *to, const struct table *table, const weir_rule_info *rule)
{
    char buffer[CELL_MAX];
    size_t owed = 0; /* blanks that are due before the next text; none at the end of the line */
    for (int c = 0; c < COLUMNS; c++) {
        if (table->width[c] == 0)
            continue;
        const char *text = rule ? cell(rule, c, buffer) : titles[c];
        size_t width = weir__text_width(text), room = table->width[c];
        if (width > room)
            width = room;
        if (c == MEMORY)
            owed += room - width; /* numbers end where others begin */
        if (width > 0)
            fprintf(to, "%*s", (int)owed, "");
        owed = width > 0 ? room - width + GAP : owed + room + GAP;
        weir__print_text(to, text, room, false);
    }
    fputc('\n', to);
}

void weir__lint_table(FILE *to, const char *path, const weir_rules *rules, size_t most, size_t warnings)
{
    size_t count = weir_rules_count(rules);
    size_t by_algorithm[ALGORITHMS] = {0}, shadow = 0;
    double bytes = 0;
    char text[WEIR__DURATION_TEXT];
    struct table table = {.rows = count < most ? count : most};
    weir_rule_info rule;
    measure(&table, rules, weir__columns(to));
    if (count > 0)
        print_row(to, &table, NULL);
    for (size_t i = 0; i < count; i++) {
        weir_rules_info(rules, i, &rule);
        if (i < table.rows)
            print_row(to, &table, &rule);
        bytes += (double)rule.bytes_per_key;
        shadow += rule.shadow;
        if (rule.bytes_per_key > 0 && (unsigned)rule.algorithm < ALGORITHMS)
            by_algorithm[rule.algorithm]++;
    }
    if (count > table.rows)
        fprintf(to, "and %zu more (--all shows them)\n", count - table.rows);
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
        weir__print_json_text(json, "name", rule.name);
        weir__print_json_text(json, "dialect", rule.domain ? "descriptors" : "weir");
        weir__print_json_text(json, "domain", rule.domain);
        weir__print_json_text(json, "key", rule.key);
        weir__print_json_text(json, "file", rule.file);
        weir__json_int(json, "line", rule.line);
        weir__print_json_text(json, "algorithm", weir__algorithm_name(rule.algorithm));
        if (rule.limit < 0)
            weir__print_json_text(json, "limit", "unlimited");
        else
            weir__json_int(json, "limit", rule.limit);
        weir__json_seconds(json, "window_s", rule.window_ns > 0 ? rule.window_ns : -1);
        weir__json_bool(json, "by_tier", rule.by_tier);
        weir__json_bool(json, "shadow", rule.shadow);
        weir__json_int(json, "bytes_per_key", rule.bytes_per_key);
        weir__json_close(json, '}');
    }
}
