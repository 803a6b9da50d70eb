/* The public calls that decide: arguments checked, statistics kept, the table asked. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/arguments.h"
#include "table/hash.h"
#include "table/fast_path.h"

static int decide(const weir_segment *segment, const struct weir__op *op, const weir_limit *limit, const void *key,
                  size_t key_len, int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    struct weir__key_location where;
    weir_decision made;
    weir__key_locate(op->table, limit, key, key_len, &where);
    int error = weir__table_take(op, limit, &where, cost, mode, &made);
    if (weir__lost(segment))
        error = WEIR_ELOST;
    if (!error)
        *decision = made;
    return error;
}

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
        if (weir__any_blocked(&op) || !weir__may_take_fast(limit, cost) ||
            !weir__fast_take(op.mono_us, limit, slot, where.tag, cost, &made))
            error = weir__long_way(&op, limit, &where, cost, &made);
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
    *decision = made;
    return 0;
}

int weir_take(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    return take(weir__stats_shard_here(segment), segment, limit, key, key_len, cost, now, decision);
}

int weir__take_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                  int64_t cost, weir_time now, weir_decision *decision)
{
    return take(&segment->table.stats[cpu % WEIR__STATS_SHARDS], segment, limit, key, key_len, cost, now, decision);
}

void weir__deny_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                   weir_time now)
{
    struct weir__op op = weir__operation(segment, &segment->table.stats[cpu % WEIR__STATS_SHARDS], now);
    struct weir__key_location where;
    weir__key_locate(op.table, limit, key, key_len, &where);
    weir__table_deny(&op, limit, &where);
}

int weir_peek(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    struct weir__op op = weir__operation(segment, NULL, now);
    int error = weir__request_check(limit, key, key_len, cost, now);
    return error ? error : decide(segment, &op, limit, key, key_len, cost, WEIR__TAKE, decision);
}

/* Refund and charge: not decisions about a request, so not counted as such. */
static int adjust(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                  bool back, weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), now);
    int error = weir__request_check(limit, key, key_len, amount, now);
    if (!error && amount < 0)
        error = WEIR_ECOST;
    return error ? error
                 : decide(segment, &op, limit, key, key_len, back ? -amount : amount, back ? WEIR__TAKE : WEIR__CHARGE,
                          decision);
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

/* What reset and block begin with: arguments checked, the key found its place. */
static int begin(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now,
                 struct weir__op *op, struct weir__key_location *where)
{
    if (!segment)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    int error = weir__request_check(limit, key, key_len, 0, now);
    if (error)
        return error;
    *op = weir__operation(segment, weir__stats_shard_here(segment), now);
    weir__key_locate(op->table, limit, key, key_len, where);
    return 0;
}

/* What a change came to. */
static int changed(const weir_segment *segment, int error)
{
    return weir__lost(segment) ? WEIR_ELOST : error;
}

int weir_reset(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now)
{
    struct weir__op op;
    struct weir__key_location where;
    int error = begin(segment, limit, key, key_len, now, &op, &where);
    return error ? error : changed(segment, weir__table_reset(&op, limit, &where));
}

int weir_block(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t for_ns,
               weir_time now)
{
    struct weir__op op;
    struct weir__key_location where;
    if (for_ns < 0)
        return WEIR_EINVAL;
    int error = begin(segment, limit, key, key_len, now, &op, &where);
    if (error)
        return error;
    if (for_ns / 1000 > WEIR__WINDOW_MAX)
        return WEIR_EWINDOW;
    return changed(segment, weir__table_block(&op, &where, for_ns / 1000 + (for_ns % 1000 != 0)));
}

/* ---- Seeing inside ---- */

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
