/* The public calls for requests in flight. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/permit_calls.h"

#include "engine/arguments.h"
#include "table/hash.h"
#include "table/permits.h"

/* Inlined: a call with so many arguments is a tenth of the work. */
__attribute__((always_inline)) static inline int acquire(unsigned cpu, weir_segment *segment, const weir_limit *limit,
                                                         const void *key, size_t key_len, weir_time now,
                                                         weir_lease *lease, weir_decision *decision)
{
    struct weir__stats_shard *stats = &segment->table.stats[cpu % WEIR__STATS_SHARDS];
    struct weir__op op = weir__operation(segment, stats, now);
    struct weir__key_location where;
    weir_decision made;
    weir_lease taken;
    int error = weir__request_check(limit, key, key_len, 1, now);
    if (!error && limit->algorithm != WEIR_CONCURRENCY)
        error = WEIR_EINVAL;
    if (!error) {
        weir__key_locate(op.table, limit, key, key_len, &where);
        error = weir__table_acquire(&op, limit, &where, &taken, &made);
    }
    if (weir__lost(segment))
        error = WEIR_ELOST;
    if (error) {
        weir__count(&stats->errors, 1);
        return error;
    }
    weir__count(&stats->verdict[made.verdict], 1);
    if (made.flags & WEIR_OVER_SOFT)
        weir__count(&stats->soft, 1);
    if (weir_passes(&made))
        *lease = taken;
    *decision = made;
    return 0;
}

int weir__acquire_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                     weir_time now, weir_lease *lease, weir_decision *decision)
{
    return acquire(cpu, segment, limit, key, key_len, now, lease, decision);
}

int weir_acquire(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now,
                 weir_lease *lease, weir_decision *decision)
{
    if (!segment || !lease || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    return acquire(weir__cpu(), segment, limit, key, key_len, now, lease, decision);
}

/* What both begin with. */
static int begin(const weir_segment *segment, const weir_lease *lease, weir_time now)
{
    if (!segment || !lease)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    return now.mono_ns < 0 || now.wall_ns < 0 ? WEIR_ETIME : 0;
}

int weir_release(weir_segment *segment, const weir_lease *lease, weir_time now)
{
    int error = begin(segment, lease, now);
    if (error)
        return error;
    /* What is counted here is rare enough for one line of counters; finding ours would cost as much as the release. */
    struct weir__op op = weir__operation(segment, segment->table.stats, now);
    error = weir__permit_release(&op, lease);
    return weir__lost(segment) ? WEIR_ELOST : error;
}

int weir_renew(weir_segment *segment, weir_lease *lease, weir_time now)
{
    int error = begin(segment, lease, now);
    if (error)
        return error;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), now);
    weir_lease renewed = *lease;
    error = weir__permit_renew(&op, &renewed);
    if (weir__lost(segment))
        return WEIR_ELOST;
    if (!error)
        *lease = renewed;
    return error;
}
