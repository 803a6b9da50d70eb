/* Rules from text, compiled as the engine does, and what was told about them. */
#ifndef WEIR_TEST_COMPILED_H
#define WEIR_TEST_COMPILED_H

#include "rules/set.h"

#include "told.h"

static const struct weir__surroundings test_around = {weir_zone_open, weir_zone_close};

/* Up to so many sources named "f0", "f1" … */
enum { SOURCES_MAX = 4 };

/* Compiles texts into a set, or NULL; what was told is in `told`. */
static inline weir_rules *compile_all(struct told *told, const char *const *texts, size_t count)
{
    static const char *const names[SOURCES_MAX] = {"f0", "f1", "f2", "f3"};
    struct weir__source sources[SOURCES_MAX];
    weir_rules *set = NULL;
    told_begin(told, "", 0);
    for (size_t i = 0; i < count && i < SOURCES_MAX; i++)
        sources[i] = (struct weir__source){names[i], {texts[i], strlen(texts[i])}};
    told->report.sources = sources;
    told->report.source_count = count;
    int error = weir__rules_compile(&told->report, &test_around, &set);
    CHECK_EQ(error, set ? 0 : WEIR_ERULES);
    CHECK((told->report.errors == 0) == (set != NULL));
    told->report.sources = NULL;
    told->report.source_count = 0;
    return set;
}

static inline weir_rules *compile(struct told *told, const char *text)
{
    return compile_all(told, &text, 1);
}

/* Whether a message is what a line of `expected` says. */
static inline bool told_line(const struct told_one *one, const char *line, size_t len)
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
 * Whether the messages of a severity are those of `expected`, in order: one a line, "line:column: part of the message",
 * followed by " -> word" if there is a suggestion.
 */
static inline bool told_all(const struct told *told, enum weir_severity severity, const char *expected)
{
    bool good = true;
    for (int i = 0; i < told->count; i++) {
        const struct told_one *one = &told->all[i];
        if (one->severity != severity)
            continue;
        size_t len = strcspn(expected, "\n");
        if (!told_line(one, expected, len)) {
            printf("  told %d:%d: %s -> %s\n  not  %.*s\n", one->line, one->column, one->message, one->suggestion,
                   (int)len, expected);
            good = false;
        }
        expected += len + (expected[len] == '\n');
    }
    if (*expected)
        printf("  not told: %s\n", expected);
    return good && !*expected;
}

/* The rule of a name; NULL if there is none. */
static inline const struct weir__rule *rule_named(const weir_rules *set, const char *name)
{
    for (size_t i = 0; set && i < set->count; i++)
        if (weir__text_is(set->rules[i]->name, name))
            return set->rules[i];
    return NULL;
}

#endif
