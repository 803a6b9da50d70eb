/* One counter of the segment by its hash. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/counter_by_hash.h"
#include "engine/arguments.h"
#include "table/hash.h"

uint64_t weir__counter_hash(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len)
{
    return weir__hash(key, key_len, segment->table.header->secret) ^ limit->salt;
}

void weir__counter_expect(const weir_segment *segment, uint64_t hash)
{
    struct weir__key_location where;
    weir__locate_primary(&segment->table, hash, &where);
    weir__prefetch_read(&segment->table.bucket[where.primary]); /* most are only looked at */
}

int weir__counter_move(weir_segment *segment, const weir_limit *limit, uint64_t hash, int64_t amount, weir_time now,
                       weir_decision *decision)
{
    struct weir__op op = weir__operation(segment, amount ? weir__stats_shard_here(segment) : NULL, now);
    struct weir__key_location where;
    if (amount && segment->read_only)
        return WEIR_EREADONLY;
    weir__locate_primary(&segment->table, hash, &where);
    weir__locate_alternate(&segment->table, &where);
    return weir__table_take(&op, limit, &where, amount, amount > 0 ? WEIR__CHARGE : WEIR__TAKE, decision);
}
