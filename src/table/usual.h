/*
 * The usual case, short enough to be inlined where it matters: a token bucket whose entry is in place, and a request
 * that passes. Everything else, and everything that collides, goes the long way (weir__table_take), which decides the
 * same.
 *
 * In three steps, so that a batch can take each step for many requests at once: a locked instruction waits for all
 * stores before it, so the arithmetic of the next request should not stand between two of them.
 */
#ifndef WEIR_TABLE_USUAL_H
#define WEIR_TABLE_USUAL_H

#include "table/table.h"

struct weir__usual {
    weir__cell *slot;
    weir__cell seen, next;
    int64_t after;    /* units held, when it is taken */
    int64_t reset_us; /* until they are back */
};

/* Works out what would be taken; false if this is not the usual case. Writes nothing shared. */
static inline bool weir__usual_plan(const struct weir__op *op, const weir_limit *limit, weir__cell *slot, uint64_t tag,
                                    int64_t cost, struct weir__usual *plan)
{
    weir__cell seen = weir__cell_peek(slot);
    int64_t used = (int64_t)((seen.lo & 0x7fff) << 17 | (seen.hi & 0x1ffff));
    uint64_t elapsed = ((uint64_t)op->mono_us - (seen.hi >> 17)) & WEIR__TIME_MASK;
    uint64_t period = (uint64_t)limit->period_us;

    /* The tag in a normal state of either version, on the monotonic clock and not from the future; and the rest usual.
     */
    if ((seen.lo >> 23 & ~UINT64_C(2)) != tag << 5 || elapsed >= UINT64_C(7) << (WEIR__TIME_BITS - 3) ||
        !limit->usual || cost <= 0)
        return false;
    if (elapsed >= period) {
        /* A division by a multiplication: limit->inverse is 2^64 / period, rounded down, so this is one short at most.
         */
        uint64_t periods = weir__scale(elapsed, limit->inverse);
        elapsed -= periods * period;
        if (elapsed >= period) {
            elapsed -= period;
            periods++;
        }
        used -= (int64_t)periods;
    }
    if (used <= 0) { /* recovered: begins anew */
        used = 0;
        elapsed = 0;
    }
    int64_t after = used + cost, whole;
    if (after > limit->hard || __builtin_mul_overflow(after, limit->period_us, &whole))
        return false;

    plan->slot = slot;
    plan->seen = seen;
    plan->next.lo = (seen.lo & ~UINT64_C(0x7fffff)) | (uint64_t)weir__whole_encode(whole) << 15 | (uint64_t)after >> 17;
    plan->next.hi = ((uint64_t)op->mono_us - elapsed) << 17 | (after & 0x1ffff);
    plan->after = after;
    plan->reset_us = whole - (int64_t)elapsed;
    return true;
}

/* Takes it; false if the entry has changed since. */
static inline bool weir__usual_take(struct weir__usual *plan)
{
    return weir__cell_cas(plan->slot, &plan->seen, plan->next);
}

static inline void weir__usual_decision(const weir_limit *limit, const struct weir__usual *plan,
                                        weir_decision *decision)
{
    *decision = (weir_decision){.verdict = WEIR_ALLOW,
                                .limit = limit->hard,
                                .remaining = limit->hard - plan->after,
                                .reset_after_ns = plan->reset_us * 1000};
}

#endif
