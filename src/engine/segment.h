/*
 * The handle of a segment, its clocks, and what the public calls on counters share: checks of their arguments, and the
 * context of a table operation.
 */
#ifndef WEIR_ENGINE_SEGMENT_H
#define WEIR_ENGINE_SEGMENT_H

#include "engine/mapped_file.h"
#include "table/table.h"

#include <sched.h>

struct weir_segment {
    struct weir__table table;
    struct weir__mapped mapped; /* its owner may own the sidecar files, too */
    bool own_offset; /* read-only, of an earlier boot: offset_ns counts, since the header's cannot be corrected */
    int64_t offset_ns;
};

static inline bool weir__lost(const weir_segment *segment)
{
    return weir__load32(&segment->mapped.lost) != 0;
}

/* The id of the machine's current boot: the monotonic clock of a segment starts anew with each boot. */
void weir__boot_id(uint64_t boot[2]);
/* CLOCK_BOOTTIME and CLOCK_REALTIME in nanoseconds. */
weir_time weir__clocks(void);
/*
 * weir_clock at half its cost, which is a tenth of a check: the wall clock is that of the kernel's last tick, a few
 * milliseconds ago at most, so a request right after the start of a window may count in the previous one.
 */
weir_time weir__clock_fast(const weir_segment *segment);
/* Adjusts the clock of a segment of an earlier boot to the current one. */
void weir__clock_adopt(weir_segment *segment);

/* The current processor: threads that run at the same time choose different shards by it. */
static inline unsigned weir__cpu(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu;
}

/* ---- Operations on a writable segment, for callers that know their processor ---- */

int weir__take_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                  int64_t cost, weir_time now, weir_decision *decision);
int weir__acquire_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                     weir_time now, weir_lease *lease, weir_decision *decision);
/* Marks a key that was peeked at and is denied: weir__table_deny. */
void weir__deny_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                   weir_time now);

/* ---- Counters by their hash, for the agent, which does not have the text of a long key ---- */

uint64_t weir__counter_hash(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len);
/* Prefetches the counter's primary bucket. */
void weir__counter_expect(const weir_segment *segment, uint64_t hash);
/* Takes `amount` whether it fits or not; negative: refunds; 0: only peeks. Not counted in the statistics. */
int weir__counter_move(weir_segment *segment, const weir_limit *limit, uint64_t hash, int64_t amount, weir_time now,
                       weir_decision *decision);

/* ---- Arguments, and the context of an operation ---- */

enum { WEIR__KEY_BYTES_MAX = 65535 };

/* The statistics shard of the current processor. */
static inline struct weir__stats_shard *weir__stats_shard_here(const weir_segment *segment)
{
    return &segment->table.stats[weir__cpu() % WEIR__STATS_SHARDS];
}

static inline bool weir__time_valid(weir_time now)
{
    return (now.mono_ns | now.wall_ns) >= 0;
}

/* The error of a request that weir__request_check refuses: its tests, one by one. */
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
    return weir__time_valid(now) ? 0 : WEIR_ETIME;
}

static inline int weir__request_check(const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
                                      weir_time now)
{
    bool good = limit && key && limit->made == WEIR__LIMIT_MADE && key_len - 1 < WEIR__KEY_BYTES_MAX &&
                (uint64_t)cost + WEIR__USED_MAX <= 2 * WEIR__USED_MAX && weir__time_valid(now);
    return good ? 0 : weir__request_fault(limit, key, key_len, cost, now);
}

static inline struct weir__op weir__operation(const weir_segment *segment, struct weir__stats_shard *stats,
                                              weir_time now)
{
    return (struct weir__op){&segment->table, stats, now.mono_ns / 1000, now.wall_ns / 1000};
}

/* The slow path of a take, for a key of which only the primary bucket is known. */
static inline int weir__take_slow(const struct weir__op *op, const weir_limit *limit, struct weir__key_location *where,
                                  int64_t cost, weir_decision *made)
{
    weir__locate_alternate(op->table, where);
    return weir__table_take(op, limit, where, cost, WEIR__TAKE, made);
}

#endif
