/*
 * Hooks between the steps of a request. Include this before a source of src/table that uses records: it then calls
 * these functions, which run the hooks, in place of the slab's.
 */
#ifndef WEIR_TEST_RECORD_HOOKS_H
#define WEIR_TEST_RECORD_HOOKS_H

#include "hooks.h"
#include "table/slab.h"

/* Run before the next such step, after it, or in its place. */
static void (*before_write)(void), (*after_write)(void), (*before_publish)(void), (*instead_of_renewal)(void),
    (*after_decision)(void);

static void do_nothing(void)
{
}

static bool publish_with_hook(const struct weir__op *op, const struct weir__key_location *where,
                              struct weir__record *record, weir__cell head)
{
    run_hook(&before_publish);
    return weir__record_publish(op, where, record, head);
}

/* Fails as if another process had changed the slot. */
static bool renew_or_lose(const struct weir__op *op, struct weir__key_record *key, int64_t for_us)
{
    bool lost = instead_of_renewal;
    run_hook(&instead_of_renewal);
    return !lost && weir__key_record_renew(op, key, for_us);
}

/* Writes a word of a log, or of a counter. */
static inline bool cas32_with_hooks(uint32_t *word, uint32_t *expected, uint32_t desired)
{
    run_hook(&before_write);
    bool written = weir__cas32(word, expected, desired);
    run_hook(&after_write);
    return written;
}

static inline bool cas64_with_hooks(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    run_hook(&before_write);
    bool written = weir__cas64(word, expected, desired);
    run_hook(&after_write);
    return written;
}

static inline struct weir__log_change log_take_with_hook(const weir_limit *limit, const struct weir__log *log,
                                                         int64_t now_us, int64_t cost, enum weir__mode mode,
                                                         weir_decision *decision)
{
    struct weir__log_change change = weir__log_take(limit, log, now_us, cost, mode, decision);
    run_hook(&after_decision);
    return change;
}

static inline bool counter_take_with_hook(const weir_limit *limit, struct weir__sliding *state, const uint32_t *counts,
                                          int64_t now_us, int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    bool changes = weir__counterN_take(limit, state, counts, now_us, cost, mode, decision);
    run_hook(&after_decision);
    return changes;
}

#define weir__log_take         log_take_with_hook
#define weir__counterN_take    counter_take_with_hook
#define weir__cas32            cas32_with_hooks
#define weir__cas64            cas64_with_hooks
#define weir__record_publish   publish_with_hook
#define weir__key_record_renew renew_or_lose

#endif
