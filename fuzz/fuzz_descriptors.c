/*
 * Descriptor files: any bytes are refused with an error or become a tree in which lookups find its own rules. The bytes
 * after the first zero byte are the lookup: a domain, then keys and values, each ended by a zero byte.
 */
#include "rules/descriptors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES_MAX = 20 };

static void hear(void *context, const weir_diagnostic *diagnostic)
{
    if (!diagnostic->file || !diagnostic->message || !*diagnostic->message || diagnostic->line < 0 ||
        diagnostic->column < 0)
        abort();
    ++*(int *)context;
}

static int zone_open(const char *name, weir_zone **zone)
{
    (void)name;
    (void)zone;
    return WEIR_EZONE;
}

/* The text before the next zero byte. */
static weir_text next_text(const char **at, const char *end)
{
    size_t left = (size_t)(end - *at);
    const char *stop = left ? memchr(*at, 0, left) : NULL;
    weir_text text = {*at, stop ? (size_t)(stop - *at) : left};
    *at = stop ? stop + 1 : end;
    return text;
}

static void check_rule(const weir_rules *set, const struct weir__rule *rule)
{
    bool good = rule->name.len > 0 && rule->name.len <= WEIR_NAME_MAX && rule->quota_count == 1 &&
                set->rules[rule->index] == rule && weir__domain_known(set, rule->domain);
    for (size_t i = 0; i < rule->name.len; i++)
        good &= (unsigned char)rule->name.data[i] >= 0x20 && rule->name.data[i] != 0x7f;
    weir_text json = rule->metadata;
    good &= json.len == 0 || (json.data[0] == '{' && json.data[json.len - 1] == '}');
    for (size_t i = 0; i < json.len; i++)
        good &= (unsigned char)json.data[i] >= 0x20;
    if (rule->quotas->kind == WEIR__LIMITED)
        good &= rule->quotas->units > 0 && rule->quotas->window_ns >= WEIR_SECOND;
    if (!good)
        abort();
}

static void ask(const weir_rules *set, const char *at, const char *end)
{
    weir_descriptor_entry entries[ENTRIES_MAX];
    weir_descriptor descriptor = {.entries = entries};
    char key[WEIR__KEY_MAX];
    weir_text domain = next_text(&at, end);

    while (at < end && descriptor.entry_count < ENTRIES_MAX) {
        weir_descriptor_entry *entry = &entries[descriptor.entry_count++];
        entry->key = next_text(&at, end);
        entry->value = next_text(&at, end);
        int key_len;
        const struct weir__rule *rule = weir__descriptor_find(set, domain, &descriptor, key, &key_len);
        if (key_len < 0 || key_len > WEIR__KEY_MAX)
            abort();
        if (rule && (set->rules[rule->index] != rule || !weir__text_equal(rule->domain, domain)))
            abort();
        if (rule && (rule->quotas->kind == WEIR__LIMITED) != (key_len > 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct weir__surroundings around = {.open_zone = zone_open, .close_zone = weir_zone_close};
    const char *at = (const char *)data, *end = at + size;
    struct weir__source source = {"f", next_text(&at, end)};
    int told = 0;
    struct weir__diagnostics report = {.diagnose = hear, .context = &told, .sources = &source, .source_count = 1};
    weir_rules *set = NULL;

    int error = weir__rules_compile(&report, &around, &set);
    if ((error == 0) != (set != NULL) || (error != 0) != (report.errors > 0) || (error && !told))
        abort();
    if (!set)
        return 0;
    for (size_t i = 0; i < set->count; i++)
        if (set->rules[i]->domain.len) /* not of the other dialect */
            check_rule(set, set->rules[i]);
    ask(set, at, end);
    weir_rules_free(set);
    return 0;
}
