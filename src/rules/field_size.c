/* Sizes: "64MiB". */
#include "rules/field.h"

#include <inttypes.h>
#include <stdio.h>

static const struct size_unit {
    const char *name;
    int64_t bytes;
} units[] = {{"KiB", INT64_C(1) << 10}, {"MiB", INT64_C(1) << 20}, {"GiB", INT64_C(1) << 30}, {"B", 1}, {"", 1}};

/* What "64MB", "64m" or "64 MiB" probably means, as weir writes it. */
static bool size_meant(weir_text number, weir_text unit, char *buffer, size_t size)
{
    static const char letters[] = "kmg";
    unit = weir__text_trim(unit);
    if (number.len == 0 || number.len > 12 || unit.len == 0 || unit.len > 3)
        return false;
    const char *letter = strchr(letters, weir__lower(unit.data[0]));
    if (!letter || (unit.len > 1 && weir__lower(unit.data[unit.len - 1]) != 'b'))
        return false;
    snprintf(buffer, size, "%.*s%s", (int)number.len, number.data, units[letter - letters].name);
    return true;
}

bool weir__field_size(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int64_t min,
                      int64_t *bytes)
{
    weir_text text;
    char shown[WEIR__SHOWN], meant[24];
    int64_t count;
    if (!weir__field_text(report, node, what, &text))
        return false;
    weir_text number = text, rest;
    number.len = 0;
    while (number.len < text.len && text.data[number.len] >= '0' && text.data[number.len] <= '9')
        number.len++;
    rest = (weir_text){text.data + number.len, text.len - number.len};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!weir__text_is(rest, units[i].name) || !weir__parse_int(number, &count))
            continue;
        if (__builtin_mul_overflow(count, units[i].bytes, bytes) || *bytes > INT64_C(1) << 50)
            weir__report_error(report, node->place, "%s must be at most 1048576GiB", what);
        else if (*bytes < min)
            weir__report_error(report, node->place, "%s must be at least %" PRId64 "KiB", what, min >> 10);
        else
            return true;
        return false;
    }
    weir__printable(text, shown, sizeof shown);
    bool likely = size_meant(number, rest, meant, sizeof meant);
    weir__report_suggest(report, node->place, likely ? meant : NULL,
                         "%s must be a size such as 512KiB, 64MiB or 1GiB, not \"%s\"", what, shown);
    return false;
}
