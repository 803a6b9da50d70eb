/* Counters of rules: see rule_stats.h. Open addressing by the rule's id, which is a hash. */
#include "table/rule_stats.h"

#include <stddef.h>

#define PROBES 64 /* probes before the area counts as full */

static struct weir__rule_stats *probe(const struct weir__table *table, uint64_t id, bool claim)
{
    for (uint64_t i = 0; id && i < PROBES && i < table->rule_stats_count; i++) {
        struct weir__rule_stats *entry = &table->rule_stats[(id + i) % table->rule_stats_count];
        uint64_t *word = &entry->shard[0].word, known = weir__load64(word);
        if (known == id)
            return entry;
        if (known)
            continue;
        if (!claim)
            return NULL;
        /* The winner of the swap owns it; a concurrent claim for the same rule shares it. */
        if (weir__cas64(word, &known, id) || known == id)
            return entry;
    }
    return NULL;
}

struct weir__rule_stats *weir__rule_stats_find(const struct weir__table *table, uint64_t id)
{
    return probe(table, id, true);
}

const struct weir__rule_stats *weir__rule_stats_lookup(const struct weir__table *table, uint64_t id)
{
    return probe(table, id, false);
}

void weir__times_add(const struct weir__table *table, unsigned stripe, int64_t ns)
{
    int bucket = 0;
    while (bucket < WEIR__TIMES - 1 && ns >= INT64_C(64) << bucket)
        bucket++;
    weir__count(&table->times[stripe % WEIR__TIME_SHARDS].count[bucket], 1);
}
