/* A set in use and its counters, which go on from one set to the next. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/weir.h"

#include <sched.h>
#include <stdlib.h>

struct weir__rule_counts *weir__rule_count(const struct weir__loaded *loaded, const struct weir__rule *rule)
{
    int cpu = sched_getcpu();
    return &loaded->counters[rule->index]->stripe[(cpu < 0 ? 0 : (unsigned)cpu) % WEIR__COUNTER_STRIPES];
}

static int by_id(const void *a, const void *b)
{
    uint64_t left = (*(struct weir__rule_counters *const *)a)->id,
             right = (*(struct weir__rule_counters *const *)b)->id;
    return left < right ? -1 : left > right;
}

/* The counters of a set in the order of their ids, so that a reload of thousands of rules stays quick. */
static struct weir__rule_counters **sorted(const struct weir__loaded *loaded)
{
    size_t count = loaded->rules->count;
    struct weir__rule_counters **list = calloc(count + 1, sizeof(struct weir__rule_counters *));
    if (!list)
        return NULL;
    for (size_t i = 0; i < count; i++)
        list[i] = loaded->counters[i];
    qsort(list, count, sizeof(struct weir__rule_counters *), by_id);
    return list;
}

static struct weir__rule_counters *find(struct weir__rule_counters **list, size_t count, uint64_t id)
{
    struct weir__rule_counters wanted = {.id = id}, *key = &wanted, **at;
    at = count ? bsearch(&key, list, count, sizeof(struct weir__rule_counters *), by_id) : NULL;
    return at ? *at : NULL;
}

static struct weir__rule_counters *make(uint64_t id)
{
    struct weir__rule_counters *fresh = aligned_alloc(64, sizeof *fresh);
    if (fresh)
        *fresh = (struct weir__rule_counters){.id = id};
    return fresh;
}

struct weir__loaded *weir__loaded_make(weir_rules *rules, const struct weir__loaded *before)
{
    struct weir__loaded *loaded = calloc(1, sizeof *loaded);
    struct weir__rule_counters **known = before ? sorted(before) : NULL;
    bool good = loaded && (known || !before);
    if (loaded) {
        loaded->rules = rules;
        loaded->counters = calloc(rules->count + 1, sizeof(struct weir__rule_counters *));
        good = good && loaded->counters;
    }
    for (size_t i = 0; good && i < rules->count; i++) {
        uint64_t id = rules->rules[i]->id;
        struct weir__rule_counters *counters = before ? find(known, before->rules->count, id) : NULL;
        counters = counters ? counters : make(id);
        good = counters;
        if (good)
            counters->sets++;
        loaded->counters[i] = counters;
    }
    free(known);
    if (good)
        return loaded;
    if (loaded) {
        loaded->rules = NULL; /* stays the caller's */
        weir__loaded_free(loaded);
    }
    return NULL;
}

void weir__loaded_free(struct weir__loaded *loaded)
{
    if (!loaded)
        return;
    for (size_t i = 0; loaded->counters && loaded->counters[i]; i++)
        if (--loaded->counters[i]->sets == 0)
            free(loaded->counters[i]);
    free(loaded->counters);
    weir_rules_free(loaded->rules);
    free(loaded);
}

int weir_rule_stats_read(weir *engine, const char *rule, bool shadow, weir_rule_stats *stats)
{
    if (!engine || !rule || !stats)
        return WEIR_EINVAL;
    int at, error = WEIR_ENORULE;
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    for (size_t i = 0; i < loaded->rules->count; i++) {
        const struct weir__rule *r = loaded->rules->rules[i];
        if (r->shadow != shadow || !weir__text_is(r->name, rule))
            continue;
        weir_rule_stats sum = {0};
        for (int s = 0; s < WEIR__COUNTER_STRIPES; s++) {
            const struct weir__rule_counts *from = &loaded->counters[i]->stripe[s];
            sum.allowed += weir__load64(&from->allowed);
            sum.delayed += weir__load64(&from->delayed);
            sum.denied += weir__load64(&from->denied);
            sum.listed += weir__load64(&from->listed);
            sum.missing_key += weir__load64(&from->missing_key);
            sum.failures += weir__load64(&from->failures);
            sum.gave_back += weir__load64(&from->gave_back);
        }
        *stats = sum;
        error = 0;
        break;
    }
    weir__unpin(&engine->pins, at);
    return error;
}
