/* What the tests of descriptors share: loading a text, and asking for "key=value,key=value". */
#ifndef WEIR_TEST_DESCRIPTORS_H
#define WEIR_TEST_DESCRIPTORS_H

#include "rules/descriptors.h"

#include "told.h"

enum { ENTRIES_MAX = 20 };

struct loaded {
    struct told told;
    weir_rules *set; /* NULL after errors */
};

static inline void load_len(struct loaded *loaded, const char *text, size_t len)
{
    const struct weir__surroundings around = {.open_zone = weir_zone_open, .close_zone = weir_zone_close};
    told_begin(&loaded->told, text, len);
    loaded->set = NULL;
    int error = weir__rules_compile(&loaded->told.report, &around, &loaded->set);
    CHECK_EQ(error, loaded->set ? 0 : WEIR_ERULES);
    CHECK_EQ(loaded->told.report.errors > 0, error != 0);
}

static inline void load(struct loaded *loaded, const char *text)
{
    load_len(loaded, text, strlen(text));
}

/* Loads what must be good, and says why if it is not. */
static inline void load_good(struct loaded *loaded, const char *text)
{
    load(loaded, text);
    CHECK(loaded->set != NULL);
    for (int i = 0; i < loaded->told.count; i++)
        printf("  told %d:%d: %s\n", loaded->told.all[i].line, loaded->told.all[i].column, loaded->told.all[i].message);
}

static inline void unload(struct loaded *loaded)
{
    weir_rules_free(loaded->set);
    told_end(&loaded->told);
}

struct asked {
    weir_descriptor_entry entries[ENTRIES_MAX];
    weir_descriptor descriptor;
    struct weir__descriptor_match hit;
    char key[WEIR__KEY_MAX + 1]; /* with a zero byte */
};

static inline weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

/* "a=1,b=2" into entries; "" is none. */
static inline void entries_of(struct asked *asked, const char *text)
{
    size_t count = 0;
    while (*text && count < ENTRIES_MAX) {
        size_t key = strcspn(text, "=,"), value = text[key] == '=' ? strcspn(text + key + 1, ",") : 0;
        asked->entries[count].key = (weir_text){text, key};
        asked->entries[count++].value = (weir_text){text + key + (text[key] == '='), value};
        text += key + (text[key] == '=') + value;
        text += *text == ',';
    }
    asked->descriptor = (weir_descriptor){.entries = asked->entries, .entry_count = count};
}

static inline const struct weir__rule *ask(struct asked *asked, const weir_rules *set, const char *domain,
                                           const char *text)
{
    entries_of(asked, text);
    weir__descriptor_find(set, text_of(domain), &asked->descriptor, asked->key, WEIR__KEY_MAX, &asked->hit);
    asked->key[asked->hit.key_len] = 0;
    CHECK_EQ(asked->hit.rule != NULL, asked->hit.quota != NULL);
    return asked->hit.rule;
}

/* requests_per_unit of what applies; -1: nothing does, -2: unlimited. */
static inline int64_t units_of(const weir_rules *set, const char *domain, const char *text)
{
    struct asked asked;
    if (!ask(&asked, set, domain, text))
        return -1;
    return asked.hit.quota->kind == WEIR__UNLIMITED ? -2 : asked.hit.quota->units;
}

static inline bool text_is(weir_text text, const char *expected)
{
    if (weir__text_equal(text, text_of(expected)))
        return true;
    printf("  is \"%.*s\", not \"%s\"\n", (int)text.len, text.data ? text.data : "", expected);
    return false;
}

#endif
