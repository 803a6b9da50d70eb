/*
 * Regular expressions: any bytes are refused with a message, or compile to an expression whose matching terminates
 * within its bounds, with the same result each time. The first line is the expression, the rest is the text.
 */
#include "rules/pattern.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_diagnostic(void *context, const weir_diagnostic *diagnostic)
{
    int *last = context;
    if (!diagnostic->message || !*diagnostic->message || diagnostic->column < 1 || diagnostic->column > *last)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__regex_scratch *scratch; /* for all inputs, as in the engine */
    const char *start = (const char *)data, *end = size ? memchr(start, '\n', size) : NULL;
    weir_text pattern = {start, end ? (size_t)(end - start) : size};
    weir_text text = end ? (weir_text){end + 1, size - pattern.len - 1} : (weir_text){NULL, 0};
    struct weir__arena arena = {0};
    int last_column = (int)pattern.len + 1;
    struct weir__source source = {"fuzz", pattern};
    struct weir__diagnostics report = {
        .diagnose = check_diagnostic, .context = &last_column, .sources = &source, .source_count = 1};

    if (!scratch && !(scratch = weir__regex_scratch_make()))
        abort();
    const struct weir__regex *regex =
        weir__regex_compile(pattern, size % 2, &arena, &report, (struct weir__place){0, 1, 1});
    if (report.errors != (regex ? 0 : 1))
        abort();
    if (regex) {
        struct weir__matching first = {.regex_scratch = scratch}, second = {.regex_scratch = scratch};
        bool found = weir__regex_match(regex, text, false, &first);
        if (weir__regex_match(regex, text, false, &second) != found || first.limited != second.limited ||
            first.limited > 1 || (first.limited && !found))
            abort();
        weir__regex_free(regex);
    }
    weir__arena_free(&arena);
    return 0;
}
