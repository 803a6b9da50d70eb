/*
 * The YAML reader: any bytes become a tree with line numbers, or errors that can be printed. Every text of the tree is
 * then read as every type.
 */
#include "rules/yaml.h"
#include "base/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY_MAX ((size_t)8 << 20)

static void check_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            abort();
}

static void hear(void *context, const weir_diagnostic *d)
{
    size_t size = *(const size_t *)context;
    if (d->line < 0 || d->column < 0 || (size_t)d->line > size + 1 || (size_t)d->column > size + 1 || !d->message[0])
        abort();
    check_printable(d->message);
    if (d->source)
        check_printable(d->source);
    if (d->suggestion)
        check_printable(d->suggestion);
}

/* Each returns false exactly if it has reported. */
static void check_fields(struct weir__diagnostics *report, const struct weir__node *node)
{
    static const char *const words[] = {"limit", "window", "algorithm", "on_missing_key", "a", "", NULL};
    weir_text text;
    bool truth;
    int64_t number = 0;
    int small = 0;
    struct weir__parsed_window window = {0, false, WEIR_CALENDAR_DAY};

    int before = report->errors;
    before += !weir__field_text(node, "x", &text);
    before += !weir__field_bool(node, "x", &truth);
    before += !weir__field_int(node, "x", -5, 1000, &number);
    before += !weir__field_percent(node, "x", &small);
    before += !weir__field_choice(node, "x", words, &small);
    before += !weir__field_window(node, "x", &window);
    if (before != report->errors || number < -5 || number > 1000 || small < 0 || small > WEIR__PERCENT_MAX)
        abort();
    if (window.ns < 0 || window.ns > WEIR__WINDOW_DAYS_MAX * INT64_C(86400000000000))
        abort();
    if (!weir__field_names(node, "x", words, 6) != (node->kind != WEIR__MAP))
        abort();
}

static void check_tree(struct weir__diagnostics *report, const struct weir__node *root)
{
    const struct weir__node *stack[WEIR__YAML_DEPTH + 1] = {root};
    int depth = 0;
    while (depth >= 0) {
        const struct weir__node *node = stack[depth];
        if (!node) {
            depth--;
            continue;
        }
        if (!node->place.line || !node->place.column || (node->kind == WEIR__SCALAR && node->text.data[node->text.len]))
            abort();
        check_fields(report, node);
        stack[depth] = node->next;
        if (node->first) {
            if (depth == WEIR__YAML_DEPTH)
                abort();
            stack[++depth] = node->first;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__source source = {"f", {(const char *)data, size}};
    struct weir__diagnostics report = {.diagnose = hear, .context = &size, .sources = &source, .source_count = 1};
    struct weir__arena arena = {.bytes_max = MEMORY_MAX};

    const struct weir__node *root = weir__yaml_read(0, &arena, &report);
    if (!root != (report.errors > 0) || arena.bytes > MEMORY_MAX)
        abort();
    if (root)
        check_tree(&report, root);
    weir__arena_free(&arena);
    return 0;
}
