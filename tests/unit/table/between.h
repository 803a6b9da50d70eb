/*
 * Others, who come between the steps of a request. Include this before a source of src/table that keeps records: it
 * then calls these in place of the slab's.
 */
#ifndef WEIR_TEST_BETWEEN_H
#define WEIR_TEST_BETWEEN_H

#include "others.h"
#include "table/slab.h"

/* Before the next step of their kind, after it, or in its place. */
static void (*before_write)(void), (*after_write)(void), (*before_own)(void), (*instead_of_renewal)(void),
    (*after_decision)(void);

static void nobody(void)
{
}

static bool own_after_others(const struct weir__op *op, const struct weir__key_location *where,
                             struct weir__record *record, weir__cell head)
{
    let_others(&before_own);
    return weir__record_publish(op, where, record, head);
}

/* Lost to somebody else's change of the slot. */
static bool renew_or_lose(const struct weir__op *op, struct weir__key_record *key, int64_t for_us)
{
    bool lost = instead_of_renewal;
    let_others(&instead_of_renewal);
    return !lost && weir__key_record_renew(op, key, for_us);
}

/* A word of a log, and of a counter. */
static inline bool write32_after_others(uint32_t *word, uint32_t *expected, uint32_t desired)
{
    let_others(&before_write);
    bool written = weir__cas32(word, expected, desired);
    let_others(&after_write);
    return written;
}

static inline bool write64_after_others(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    let_others(&before_write);
    bool written = weir__cas64(word, expected, desired);
    let_others(&after_write);
    return written;
}

static inline struct weir__log_change log_before_others(const weir_limit *limit, const struct weir__log *log,
                                                        int64_t now_us, int64_t cost, enum weir__mode mode,
                                                        weir_decision *decision)
{
    struct weir__log_change change = weir__log_take(limit, log, now_us, cost, mode, decision);
    let_others(&after_decision);
    return change;
}

static inline bool count_before_others(const weir_limit *limit, struct weir__sliding *state, const uint32_t *parts,
                                       int64_t now_us, int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    bool changes = weir__counterN_take(limit, state, parts, now_us, cost, mode, decision);
    let_others(&after_decision);
    return changes;
}

#define weir__log_take         log_before_others
#define weir__counterN_take    count_before_others
#define weir__cas32            write32_after_others
#define weir__cas64            write64_after_others
#define weir__record_publish   own_after_others
#define weir__key_record_renew renew_or_lose

#endif
