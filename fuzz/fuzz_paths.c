/*
 * The path matcher: the index finds exactly the entries that match alone, and those are what the definition of a glob
 * demands.
 *
 * The input is lines: first the request's host and path, then an entry's each; "-" is any host.
 */
#include "rules/paths.h"
#include "rules/target.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES_MAX = 64, GLOB_MAX = 64 };

/* By the definition, from the last byte to the first: row[t] is whether the pattern's rest matches the text from t. */
static bool glob_model(weir_text pattern, weir_text text, bool path, bool nocase)
{
    bool row[GLOB_MAX + 1] = {false};

    row[text.len] = true;
    for (size_t p = pattern.len; p-- > 0;) {
        char c = pattern.data[p];
        bool wide = !path || (p + 1 < pattern.len && pattern.data[p + 1] == '*') ||
                    (p > 0 && pattern.data[p - 1] == '*') ||
                    (p + 1 == pattern.len && p > 0 && pattern.data[p - 1] == '/');
        for (size_t t = c == '*' ? text.len : 0; c == '*' && t-- > 0;)
            row[t] |= row[t + 1] && (wide || text.data[t] != '/');
        for (size_t t = 0; c != '*' && t <= text.len; t++)
            row[t] = t < text.len && row[t + 1] &&
                     (nocase ? weir__lower(c) == weir__lower(text.data[t]) : c == text.data[t]);
    }
    return row[0];
}

static bool matches(const struct weir__pattern *pattern, weir_text text)
{
    if (!pattern)
        return true;
    bool matched = weir__pattern_match(pattern, text, false, NULL);
    if (pattern->kind == WEIR__PATTERN_GLOB && text.len <= GLOB_MAX &&
        matched != glob_model(pattern->text, text, pattern->path, pattern->nocase))
        abort();
    return matched;
}

/* Takes the next line: "host path". */
static void next_line(weir_text *rest, weir_text *host, weir_text *path)
{
    const char *end = rest->len ? memchr(rest->data, '\n', rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    const char *space = len ? memchr(rest->data, ' ', len) : NULL;

    *host = (weir_text){rest->data, space ? (size_t)(space - rest->data) : 0};
    *path = space ? (weir_text){space + 1, len - host->len - 1} : (weir_text){rest->data, len};
    *rest = end ? (weir_text){end + 1, rest->len - len - 1} : (weir_text){NULL, 0};
}

static const struct weir__pattern *compile(struct weir__arena *arena, weir_text text, bool path)
{
    struct weir__pattern *pattern = weir__arena_take(arena, sizeof *pattern);
    if (!pattern || !weir__pattern_compile(pattern, text, path, !path, arena))
        abort();
    return pattern;
}

/* A normal form is final. What matches a path may match it when only its beginning is known. */
static void check_normal(weir_text path, const struct weir__path_entry *entries, uint32_t count)
{
    char once[256], twice[256];
    bool cut, again;
    for (unsigned form = 0; form < WEIR__FORMS; form++) {
        size_t len = weir__path_normalise(path, form, once, sizeof once, &cut);
        if (len > sizeof once || len > path.len ||
            (!cut && (weir__path_normalise((weir_text){once, len}, form, twice, sizeof twice, &again) != len || again ||
                      memcmp(once, twice, len) != 0)))
            abort();
    }
    for (uint32_t i = 0; i < count && path.len > 1; i++) {
        weir_text begin = {path.data, path.len / 2};
        if (weir__pattern_match(entries[i].path, path, false, NULL) &&
            !weir__pattern_match(entries[i].path, begin, true, NULL))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_text rest = {(const char *)data, size}, host, path;
    struct weir__arena arena = {0};
    struct weir__path_entry entries[ENTRIES_MAX];
    uint32_t rules[ENTRIES_MAX + 1], count = 0, expected = 0;
    struct weir__found found = {.rules = rules, .max = size % (ENTRIES_MAX + 1)};

    next_line(&rest, &host, &path);
    while (rest.len > 0 && count < ENTRIES_MAX) {
        weir_text entry_host, entry_path;
        next_line(&rest, &entry_host, &entry_path);
        bool any_host = weir__text_is(entry_host, "-");
        entries[count] = (struct weir__path_entry){any_host ? NULL : compile(&arena, entry_host, false),
                                                   compile(&arena, entry_path, true), count, 0};
        count++;
    }
    const struct weir__paths *paths = weir__paths_make(&arena, entries, count);
    if (!paths)
        abort();
    weir__paths_find(paths, host, path, &found);
    for (uint32_t i = 0; i < count; i++) {
        if (!matches(entries[i].host, host) || !matches(entries[i].path, path))
            continue;
        if (expected < found.max && (expected >= found.count || rules[expected] != i))
            abort();
        expected++;
    }
    if (found.overflow != (expected > found.max) || found.count != (found.overflow ? found.max : expected))
        abort();
    check_normal(path, entries, count);
    weir__arena_free(&arena);
    return 0;
}
