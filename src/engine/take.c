/* The public calls on counters: they check arguments, keep statistics and call the table. */
#include "engine/segment.h"
#include "table/fast_path.h"
#include "table/hash.h"
#include "table/permits.h"

static int check_writable(const weir_segment *segment)
{
    return !segment ? WEIR_EINVAL : segment->mapped.read_only ? WEIR_EREADONLY : 0;
}

/* The error of an operation that may have worked on a lost segment. */
static inline int error_of(const weir_segment *segment, int error)
{
    return weir__lost(segment) ? WEIR_ELOST : error;
}

/* Counts a decision, and returns it unless there was an error. */
static inline int count_decision(const weir_segment *segment, struct weir__stats_shard *stats, int error,
                                 const weir_decision *made, weir_decision *decision)
{
    error = error_of(segment, error);
    if (error) {
        weir__count(&stats->errors, 1);
        return error;
    }
    weir__count(&stats->verdict[made->verdict], 1);
    if (made->flags & WEIR_OVER_SOFT)
        weir__count(&stats->soft, 1);
    *decision = *made;
    return 0;
}

/* ---- Takes ---- */

__attribute__((always_inline)) static inline int take(struct weir__stats_shard *stats, weir_segment *segment,
                                                      const weir_limit *limit, const void *key, size_t key_len,
                                                      int64_t cost, weir_time now, weir_decision *decision)
{
    struct weir__op op = weir__operation(segment, stats, now);
    struct weir__key_location where;
    weir_decision made;
    int error = weir__request_check(limit, key, key_len, cost, now);
    if (!error) {
        weir__key_primary(op.table, limit, key, key_len, &where);
        weir__cell *slot = weir__slot_at(&op.table->bucket[where.primary], where.tag);
        if (weir__any_blocked(op.table, op.mono_us) || !weir__may_take_fast(limit, cost) ||
            !weir__fast_take(op.mono_us, limit, slot, where.tag, cost, &made))
            error = weir__take_slow(&op, limit, &where, cost, &made);
    }
    return count_decision(segment, stats, error, &made, decision);
}

int weir_take(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    int error = decision ? check_writable(segment) : WEIR_EINVAL;
    return error ? error : take(weir__stats_shard_here(segment), segment, limit, key, key_len, cost, now, decision);
}

int weir__take_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                  int64_t cost, weir_time now, weir_decision *decision)
{
    return take(&segment->table.stats[cpu % WEIR__STATS_SHARDS], segment, limit, key, key_len, cost, now, decision);
}

/* Decides without counting the decision in the statistics. `stats` NULL: only peeks. */
static int decide(const weir_segment *segment, struct weir__stats_shard *stats, const weir_limit *limit,
                  const void *key, size_t key_len, int64_t cost, enum weir__mode mode, weir_time now,
                  weir_decision *decision)
{
    struct weir__op op = weir__operation(segment, stats, now);
    struct weir__key_location where;
    weir_decision made;
    int error = weir__request_check(limit, key, key_len, cost, now);
    if (error)
        return error;
    weir__key_locate(op.table, limit, key, key_len, &where);
    error = error_of(segment, weir__table_take(&op, limit, &where, cost, mode, &made));
    if (!error)
        *decision = made;
    return error;
}

int weir_peek(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    return decide(segment, NULL, limit, key, key_len, cost, WEIR__TAKE, now, decision);
}

/* Refund and charge: corrections of earlier decisions, so not counted as decisions. */
static int adjust(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                  bool refund, weir_time now, weir_decision *decision)
{
    int error = decision ? check_writable(segment) : WEIR_EINVAL;
    if (!error)
        error = weir__request_check(limit, key, key_len, amount, now);
    if (error || amount < 0)
        return error ? error : WEIR_ECOST;
    return decide(segment, weir__stats_shard_here(segment), limit, key, key_len, refund ? -amount : amount,
                  refund ? WEIR__TAKE : WEIR__CHARGE, now, decision);
}

int weir_refund(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                weir_time now, weir_decision *decision)
{
    return adjust(segment, limit, key, key_len, amount, true, now, decision);
}

int weir_charge(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                weir_time now, weir_decision *decision)
{
    return adjust(segment, limit, key, key_len, amount, false, now, decision);
}

/* ---- Reset and block ---- */

/* Checks the arguments and locates the key. */
static int begin_change(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now,
                        struct weir__op *op, struct weir__key_location *where)
{
    int error = check_writable(segment);
    if (!error)
        error = weir__request_check(limit, key, key_len, 0, now);
    if (error)
        return error;
    *op = weir__operation(segment, weir__stats_shard_here(segment), now);
    weir__key_locate(op->table, limit, key, key_len, where);
    return 0;
}

int weir_reset(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now)
{
    struct weir__op op;
    struct weir__key_location where;
    int error = begin_change(segment, limit, key, key_len, now, &op, &where);
    return error ? error : error_of(segment, weir__table_reset(&op, limit, &where));
}

int weir_block(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t for_ns,
               weir_time now)
{
    struct weir__op op;
    struct weir__key_location where;
    if (for_ns < 0)
        return WEIR_EINVAL;
    int error = begin_change(segment, limit, key, key_len, now, &op, &where);
    if (error)
        return error;
    if (for_ns / 1000 > WEIR__WINDOW_MAX)
        return WEIR_EWINDOW;
    return error_of(segment, weir__table_block(&op, &where, for_ns / 1000 + (for_ns % 1000 != 0)));
}

void weir__deny_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                   weir_time now)
{
    struct weir__op op = weir__operation(segment, &segment->table.stats[cpu % WEIR__STATS_SHARDS], now);
    struct weir__key_location where;
    weir__key_locate(op.table, limit, key, key_len, &where);
    weir__table_deny(&op, limit, &where);
}

/* ---- Permits ---- */

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
    error = count_decision(segment, stats, error, &made, decision);
    if (!error && weir_passes(&made))
        *lease = taken;
    return error;
}

int weir__acquire_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                     weir_time now, weir_lease *lease, weir_decision *decision)
{
    return acquire(cpu, segment, limit, key, key_len, now, lease, decision);
}

int weir_acquire(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now,
                 weir_lease *lease, weir_decision *decision)
{
    int error = lease && decision ? check_writable(segment) : WEIR_EINVAL;
    return error ? error : acquire(weir__cpu(), segment, limit, key, key_len, now, lease, decision);
}

static int check_lease(const weir_segment *segment, const weir_lease *lease, weir_time now)
{
    int error = lease ? check_writable(segment) : WEIR_EINVAL;
    return error || weir__time_valid(now) ? error : WEIR_ETIME;
}

int weir_release(weir_segment *segment, const weir_lease *lease, weir_time now)
{
    int error = check_lease(segment, lease, now);
    if (error)
        return error;
    /* Little is counted here, so one shard does: finding that of the processor would cost as much as the release. */
    struct weir__op op = weir__operation(segment, segment->table.stats, now);
    return error_of(segment, weir__permit_release(&op, lease));
}

int weir_renew(weir_segment *segment, weir_lease *lease, weir_time now)
{
    int error = check_lease(segment, lease, now);
    if (error)
        return error;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), now);
    weir_lease renewed = *lease;
    error = error_of(segment, weir__permit_renew(&op, &renewed));
    if (!error)
        *lease = renewed;
    return error;
}

/* ---- Counters by their hash ---- */

uint64_t weir__counter_hash(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len)
{
    return weir__hash(key, key_len, segment->table.header->secret) ^ limit->salt;
}

void weir__counter_expect(const weir_segment *segment, uint64_t hash)
{
    struct weir__key_location where;
    weir__locate_primary(&segment->table, hash, &where);
    weir__prefetch_read(&segment->table.bucket[where.primary]); /* most are only peeked at */
}

int weir__counter_move(weir_segment *segment, const weir_limit *limit, uint64_t hash, int64_t amount, weir_time now,
                       weir_decision *decision)
{
    struct weir__op op = weir__operation(segment, amount ? weir__stats_shard_here(segment) : NULL, now);
    struct weir__key_location where;
    if (amount && segment->mapped.read_only)
        return WEIR_EREADONLY;
    weir__locate_primary(&segment->table, hash, &where);
    weir__locate_alternate(&segment->table, &where);
    return weir__table_take(&op, limit, &where, amount, amount > 0 ? WEIR__CHARGE : WEIR__TAKE, decision);
}

/* ---- Inspection ---- */

int weir_stats_read(const weir_segment *segment, weir_stats *stats)
{
    if (!segment || !stats)
        return WEIR_EINVAL;
    weir__segment_stats(&segment->table, stats);
    return 0;
}

int weir_segment_each(const weir_segment *segment, weir_time now, int (*visit)(void *context, const weir_entry *entry),
                      void *context)
{
    if (!segment || !visit)
        return WEIR_EINVAL;
    struct weir__op op = weir__operation(segment, NULL, now);
    return weir__segment_each(&op, visit, context);
}

int weir_segment_sample(const weir_segment *segment, weir_time now, uint64_t slots, uint64_t *looked, uint64_t *live)
{
    if (!segment || !slots || !looked || !live)
        return WEIR_EINVAL;
    struct weir__op op = weir__operation(segment, NULL, now);
    *looked = weir__segment_sample(&op, (slots - 1) / WEIR__BUCKET_SLOTS + 1, live);
    return 0;
}

int weir_segment_validate(const weir_segment *segment, weir_time now, weir_report *report)
{
    if (!segment || !report)
        return WEIR_EINVAL;
    struct weir__op op = weir__operation(segment, NULL, now);
    return weir__segment_validate(&op, report);
}
