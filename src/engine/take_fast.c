/* The takes of the quick way: see fast_path.h. What is not usual is left to the calls of take.c, untouched. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/arguments.h"
#include "table/hash.h"
#include "table/fast_path.h"

#define SWAP_TRIES 8 /* of an entry that others keep changing */
#define BACK_TRIES 8

/* What a look needs; an operation is made of it only where that is asked for. */
struct asking {
    const weir_segment *segment;
    struct weir__stats_shard *stats;
    weir_time now;
    int64_t mono_us;
};

static inline struct asking begin(unsigned cpu, const weir_segment *segment, weir_time now)
{
    return (struct asking){segment, &segment->table.stats[cpu % WEIR__STATS_SHARDS], now, now.mono_ns / 1000};
}

static inline bool may_be_usual(const struct asking *asking)
{
    const struct weir__op op = {.table = &asking->segment->table, .mono_us = asking->mono_us};
    return !weir__any_blocked(&op) && !weir__lost(asking->segment);
}

static inline uint64_t hash_of(const struct asking *asking, const void *key, size_t key_len)
{
    return weir__hash(key, key_len, asking->segment->table.header->secret);
}

/* The slot where the entry is, if it is in its place; a look tells. */
static inline weir__cell *slot_of(const struct asking *asking, const weir_limit *limit, uint64_t hash, uint64_t *tag)
{
    const struct weir__table *table = &asking->segment->table;
    struct weir__key_location where;
    weir__locate_primary(table, hash ^ limit->spread, &where);
    *tag = where.tag;
    return weir__slot_at(&table->bucket[where.primary], where.tag);
}

static __attribute__((noinline)) bool look_other(const weir_segment *segment, struct weir__stats_shard *stats,
                                                 weir_time now, const weir_limit *limit, const weir__cell *slot,
                                                 uint64_t tag, int64_t cost, struct weir__step *step)
{
    const struct weir__op op = weir__operation(segment, stats, now);
    return weir__slot_look(&op, limit, slot, tag, cost, step);
}

static inline bool look(const struct asking *asking, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                        int64_t cost, struct weir__step *step)
{
    return limit->usual ? weir__fast_look(asking->mono_us, limit, slot, weir__tag_bits_of(tag), cost, step)
                        : look_other(asking->segment, asking->stats, asking->now, limit, slot, tag, cost, step);
}

static inline void tell(const weir_limit *limit, const struct weir__step *step, weir_decision *decision)
{
    weir__fast_decision_init(limit, decision);
    decision->remaining = step->remaining;
    decision->reset_after_ns = step->reset_after_ns;
}

/* Of any limit but a usual one. */
static __attribute__((noinline)) bool take_other(const struct asking *asking, const weir_limit *limit, weir__cell *slot,
                                                 uint64_t tag, int64_t cost, weir_decision *decision)
{
    struct weir__step step;
    if (!look(asking, limit, slot, tag, cost, &step) || !weir__cell_cas(slot, &step.seen, step.next))
        return false;
    tell(limit, &step, decision);
    return true;
}

__attribute__((hot)) bool weir__take_fast(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key,
                                          size_t key_len, int64_t cost, weir_time now, weir_decision *decision)
{
    const struct asking asking = begin(cpu, segment, now);
    uint64_t tag;
    weir__cell *slot = slot_of(&asking, limit, hash_of(&asking, key, key_len), &tag);
    if (!may_be_usual(&asking))
        return false;
    if (limit->usual ? !weir__fast_take(asking.mono_us, limit, slot, tag, cost, decision)
                     : !take_other(&asking, limit, slot, tag, cost, decision))
        return false;
    weir__count(&asking.stats->verdict[WEIR_ALLOW], 1);
    return true;
}

/* ---- Several ---- */

static inline bool look_share(const struct asking *asking, struct weir__share *share)
{
    return look(asking, share->limit, share->slot, share->tag, share->cost, &share->step);
}

/* Others may come between the look and the swap; as long as it stays usual, that is no reason to go the long way. */
static inline bool swap(const struct asking *asking, struct weir__share *share)
{
    for (int i = 0; i < SWAP_TRIES; i++) {
        if (weir__cell_cas(share->slot, &share->step.seen, share->step.next))
            return true;
        if (!look_share(asking, share))
            return false;
    }
    return false;
}

static void give_back(weir_segment *segment, const struct weir__share *shares, size_t count, weir_time now)
{
    for (size_t i = 0; i < count; i++) {
        const struct weir__share *share = &shares[i];
        weir_decision unused;
        int error = WEIR_EBUSY;
        for (int left = BACK_TRIES; left > 0 && error == WEIR_EBUSY; left--)
            error = weir_refund(segment, share->limit, share->key, share->key_len, share->cost, now, &unused);
    }
}

__attribute__((hot)) bool weir__take_few(unsigned cpu, weir_segment *segment, struct weir__share *shares, size_t count,
                                         weir_time now, size_t *back)
{
    const struct asking asking = begin(cpu, segment, now);
    uint64_t hash = 0;
    *back = 0;
    if (!may_be_usual(&asking))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct weir__share *share = &shares[i];
        if (i == 0 || share->key != shares[i - 1].key)
            hash = hash_of(&asking, share->key, share->key_len);
        share->slot = slot_of(&asking, share->limit, hash, &share->tag);
        if (!look_share(&asking, share))
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (swap(&asking, &shares[i]))
            continue;
        give_back(segment, shares, i, now);
        *back = i;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        tell(shares[i].limit, &shares[i].step, &shares[i].decision);
    weir__count(&asking.stats->verdict[WEIR_ALLOW], count);
    return true;
}
