/* Shared by the tests of descriptors: compiling a text, and looking up "key=value,key=value". */
#ifndef WEIR_TEST_DESCRIPTORS_H
#define WEIR_TEST_DESCRIPTORS_H

#include "rules/descriptors.h"

#include "diagnostics_collector.h"

enum { ENTRIES_MAX = 20 };

struct compiled {
    struct diags diags;
    weir_rules *set; /* NULL after errors */
};

static inline void load_len(struct compiled *compiled, const char *text, size_t len)
{
    const struct weir__surroundings around = {.open_zone = weir_zone_open, .close_zone = weir_zone_close};
    diags_begin(&compiled->diags, text, len);
    compiled->set = NULL;
    int error = weir__rules_compile(&compiled->diags.report, &around, &compiled->set);
    CHECK_EQ(error, compiled->set ? 0 : WEIR_ERULES);
    CHECK_EQ(compiled->diags.report.errors > 0, error != 0);
}

static inline void load(struct compiled *compiled, const char *text)
{
    load_len(compiled, text, strlen(text));
}

/* Compiles a text that must be valid, and prints the diagnostics if it is not. */
static inline void load_good(struct compiled *compiled, const char *text)
{
    load(compiled, text);
    CHECK(compiled->set != NULL);
    for (int i = 0; i < compiled->diags.count; i++)
        printf("  reported %d:%d: %s\n", compiled->diags.all[i].line, compiled->diags.all[i].column,
               compiled->diags.all[i].message);
}

static inline void unload(struct compiled *compiled)
{
    weir_rules_free(compiled->set);
    diags_end(&compiled->diags);
}

struct lookup {
    weir_descriptor_entry entries[ENTRIES_MAX];
    weir_descriptor descriptor;
    struct {
        const struct weir__rule *rule;
        const struct weir__quota *quota;
        int key_len;
    } hit;
    char key[WEIR__KEY_MAX + 1]; /* null-terminated */
};

static inline weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

/* Parses "a=1,b=2" into entries; "" is no entry. */
static inline void entries_of(struct lookup *lookup, const char *text)
{
    size_t count = 0;
    while (*text && count < ENTRIES_MAX) {
        size_t key = strcspn(text, "=,"), value = text[key] == '=' ? strcspn(text + key + 1, ",") : 0;
        lookup->entries[count].key = (weir_text){text, key};
        lookup->entries[count++].value = (weir_text){text + key + (text[key] == '='), value};
        text += key + (text[key] == '=') + value;
        text += *text == ',';
    }
    lookup->descriptor = (weir_descriptor){.entries = lookup->entries, .entry_count = count};
}

static inline const struct weir__rule *look_up(struct lookup *lookup, const weir_rules *set, const char *domain,
                                               const char *text)
{
    entries_of(lookup, text);
    lookup->hit.rule =
        weir__descriptor_find(set, text_of(domain), &lookup->descriptor, lookup->key, &lookup->hit.key_len);
    lookup->hit.quota = lookup->hit.rule ? lookup->hit.rule->quotas : NULL;
    lookup->key[lookup->hit.key_len] = 0;
    return lookup->hit.rule;
}

/* requests_per_unit of the limit that applies; -1: none applies, -2: unlimited. */
static inline int64_t units_of(const weir_rules *set, const char *domain, const char *text)
{
    struct lookup lookup;
    if (!look_up(&lookup, set, domain, text))
        return -1;
    return lookup.hit.quota->kind == WEIR__UNLIMITED ? -2 : lookup.hit.quota->units;
}

static inline bool text_is(weir_text text, const char *expected)
{
    if (weir__text_equal(text, text_of(expected)))
        return true;
    printf("  is \"%.*s\", not \"%s\"\n", (int)text.len, text.data ? text.data : "", expected);
    return false;
}

#endif
