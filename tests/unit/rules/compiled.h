/* Rules compiled from text as the engine does it, and the diagnostics about them. */
#ifndef WEIR_TEST_COMPILED_H
#define WEIR_TEST_COMPILED_H

#include "rules/set.h"

#include "diagnostics_collector.h"

static const struct weir__surroundings test_around = {.open_zone = weir_zone_open, .close_zone = weir_zone_close};

/* Sources are named "f0", "f1" … */
enum { SOURCES_MAX = 4 };

/* Compiles texts into a set for a host (NULL: unknown); NULL on errors. The diagnostics are in `diags`. */
static inline weir_rules *compile_for(struct diags *diags, const char *const *texts, size_t count,
                                      const struct weir__rules_host *host)
{
    static const char *const names[SOURCES_MAX] = {"f0", "f1", "f2", "f3"};
    struct weir__source sources[SOURCES_MAX];
    weir_rules *set = NULL;
    diags_begin(diags, "", 0);
    for (size_t i = 0; i < count && i < SOURCES_MAX; i++)
        sources[i] = (struct weir__source){names[i], {texts[i], strlen(texts[i])}};
    diags->report.sources = sources;
    diags->report.source_count = count;
    diags->report.host = host;
    int error = weir__rules_compile(&diags->report, &test_around, &set);
    CHECK_EQ(error, set ? 0 : WEIR_ERULES);
    CHECK((diags->report.errors == 0) == (set != NULL));
    diags->report.sources = NULL;
    diags->report.source_count = 0;
    return set;
}

static inline weir_rules *compile_all(struct diags *diags, const char *const *texts, size_t count)
{
    return compile_for(diags, texts, count, NULL);
}

static inline weir_rules *compile(struct diags *diags, const char *text)
{
    return compile_all(diags, &text, 1);
}

/* Whether a diagnostic is the one that a line of `expected` describes. */
static inline bool diag_is(const struct diag *one, const char *line, size_t len)
{
    char copy[1024], place[32];
    snprintf(copy, sizeof copy, "%.*s", (int)len, line);
    int at = snprintf(place, sizeof place, "%d:%d: ", one->line, one->column);
    char *arrow = strstr(copy, " -> ");
    if (arrow)
        *arrow = 0;
    return strncmp(copy, place, (size_t)at) == 0 && strstr(one->message, copy + at) &&
           strcmp(arrow ? arrow + 4 : "", one->suggestion) == 0;
}

/*
 * Whether the diagnostics of a severity are those of `expected`, in order: one a line, "line:column: part of the
 * message", followed by " -> word" if there is a suggestion.
 */
static inline bool diags_are(const struct diags *diags, enum weir_severity severity, const char *expected)
{
    bool good = true;
    for (int i = 0; i < diags->count; i++) {
        const struct diag *one = &diags->all[i];
        if (one->severity != severity)
            continue;
        size_t len = strcspn(expected, "\n");
        if (!diag_is(one, expected, len)) {
            printf("  reported %d:%d: %s -> %s\n  expected %.*s\n", one->line, one->column, one->message,
                   one->suggestion, (int)len, expected);
            good = false;
        }
        expected += len + (expected[len] == '\n');
    }
    if (*expected)
        printf("  not reported: %s\n", expected);
    return good && !*expected;
}

/* The rule with this name; NULL if there is none. */
static inline const struct weir__rule *rule_named(const weir_rules *set, const char *name)
{
    for (size_t i = 0; set && i < set->count; i++)
        if (weir__text_is(set->rules[i]->name, name))
            return set->rules[i];
    return NULL;
}

#endif
