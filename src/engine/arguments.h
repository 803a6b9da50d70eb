/* Checks of arguments, and the context of a table operation, for all public calls. */
#ifndef WEIR_ENGINE_ARGUMENTS_H
#define WEIR_ENGINE_ARGUMENTS_H

#include "engine/cpu.h" /* define _GNU_SOURCE */
#include "engine/segment.h"

enum { WEIR__KEY_BYTES_MAX = 65535 };

/* The line of counters for this processor, so that threads that run at the same time rarely write the same one. */
static inline struct weir__stats_shard *weir__stats_shard_here(const weir_segment *segment)
{
    return &segment->table.stats[weir__cpu() % WEIR__STATS_SHARDS];
}

/* What is wrong with a request; the same tests as below, one by one. */
static inline int weir__request_fault(const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
                                      weir_time now)
{
    if (!limit || limit->made != WEIR__LIMIT_MADE || (!key && key_len))
        return WEIR_EINVAL;
    if (!key_len)
        return WEIR_EKEYEMPTY;
    if (key_len > WEIR__KEY_BYTES_MAX)
        return WEIR_EKEYLONG;
    if (cost < -WEIR__USED_MAX || cost > WEIR__USED_MAX)
        return WEIR_ECOST;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    return 0;
}

static inline int weir__request_check(const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
                                      weir_time now)
{
    bool good = limit && key && limit->made == WEIR__LIMIT_MADE && key_len - 1 < WEIR__KEY_BYTES_MAX &&
                (uint64_t)cost + WEIR__USED_MAX <= 2 * WEIR__USED_MAX && (now.mono_ns | now.wall_ns) >= 0;
    return good ? 0 : weir__request_fault(limit, key, key_len, cost, now);
}

static inline struct weir__op weir__operation(const weir_segment *segment, struct weir__stats_shard *stats,
                                              weir_time now)
{
    return (struct weir__op){&segment->table, stats, now.mono_ns / 1000, now.wall_ns / 1000};
}

/* The fast path applies only while no key is blocked; see table/fast_path.h. */
static inline bool weir__any_blocked(const struct weir__op *op)
{
    return op->mono_us < (int64_t)weir__load64(&op->table->header->blocked_until_us);
}

/* For a key whose home alone is known. */
static inline int weir__long_way(const struct weir__op *op, const weir_limit *limit, struct weir__key_location *where,
                                 int64_t cost, weir_decision *made)
{
    weir__locate_alternate(op->table, where);
    return weir__table_take(op, limit, where, cost, WEIR__TAKE, made);
}

#endif
