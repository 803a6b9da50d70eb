/* Takes: blocks, and the algorithms whose state fits one slot. */
#include "table/permits.h"

#define BLOCK_UNIT_US 10000 /* resolution of a block; 32 bits of it are over a year */

/*
 * Computes the entry after a request from the entry that was read (NULL: none). False: it changes nothing, or the table
 * is read-only.
 */
__attribute__((always_inline)) static inline bool change(const struct weir__op *op, const weir_limit *limit,
                                                         uint64_t tag, const weir__cell *seen, int64_t cost,
                                                         enum weir__mode mode, weir__cell *next,
                                                         weir_decision *decision)
{
    bool wall = weir__on_wall(limit);
    int64_t now_us = wall ? op->wall_us : op->mono_us;
    struct weir__state state = {0, 0, 0};
    struct weir__slot_fields fields = {.tag = tag, .wall = wall};
    bool denied = false;

    if (seen) {
        struct weir__slot_fields current = weir__cell_unpack(*seen);
        /*
         * After a change of alignment the anchor belongs to the other clock. An expired entry counts as none, also
         * under another limit.
         */
        if (current.state != WEIR__TENTATIVE && current.wall == wall &&
            weir__cell_life(*seen, op->mono_us, op->wall_us) > 0) {
            state.anchor_us = weir__anchor_expand(current.anchor, now_us);
            state.used = (int64_t)current.used;
            denied = weir__cell_is_denied(*seen) && !limit->has_fast_path; /* as in table/fast_path.h */
        }
        fields.version = weir__version_kept(*seen);
    }
    if (!weir__state_take(limit, &state, now_us, cost, mode, decision) || !op->stats)
        return false;
    fields.expiry = weir__expiry_encode(state.expiry_us);
    fields.used = (uint64_t)state.used;
    fields.anchor = (uint64_t)state.anchor_us & WEIR__TIME_MASK;
    *next = weir__cell_pack(fields);
    if (denied)
        *next = weir__cell_denied(*next);
    return true;
}

/*
 * Ends a decision that changes no count; a denial of a key that has used more than half of its limit marks the entry.
 */
static bool leave(const struct weir__op *op, weir__cell *slot, weir__cell seen, const weir_decision *decision)
{
    return op->stats && weir__marks(decision) ? weir__slot_mark(slot, seen)
                                              : weir__cell_equal(weir__cell_peek(slot), seen);
}

int weir__slot_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell seen, next, *slot = weir__lookup(op->table, where, &seen);

        if (!slot) {
            int error = weir__lookup_helping(op, where, &slot, &seen);
            if (error)
                return error;
        }
        if (!change(op, limit, where->tag, slot ? &seen : NULL, cost, mode, &next, decision)) {
            /* No swap verifies this read, so check that it was one state: a denial must not result from a torn read. */
            if (slot && !leave(op, slot, seen, decision))
                continue;
            return 0;
        }
        if (!slot) {
            if (!weir__cell_unpack(next).used)
                return 0; /* a refund to a key without an entry */
            int error = weir__slot_claim(op, where, weir__cell_tentative(op, where->tag), &slot, &seen);
            if (error)
                return error;
            if (weir__cell_state(seen.lo) != WEIR__TENTATIVE)
                continue;
        }
        if (weir__cell_cas(slot, &seen, next))
            return 0;
        weir__count(&op->stats->retries, 1);
    }
    return WEIR_EBUSY;
}

bool weir__slot_look(const struct weir__op *op, const weir_limit *limit, const weir__cell *slot, uint64_t tag,
                     int64_t cost, struct weir__step *step)
{
    weir_decision decision;
    step->seen = weir__cell_peek(slot);
    if (!weir__is_entry_of(step->seen.lo, tag) ||
        !change(op, limit, tag, &step->seen, cost, WEIR__TAKE, &step->next, &decision))
        return false;
    step->remaining = decision.remaining;
    step->reset_after_ns = decision.reset_after_ns;
    return decision.verdict == WEIR_ALLOW && !decision.flags && decision.limit == limit->hard &&
           decision.remaining >= 0 && decision.reset_after_ns >= 0;
}

int weir__slot_drop(const struct weir__op *op, const struct weir__key_location *where)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell seen, *slot;
        int error = weir__lookup_helping(op, where, &slot, &seen);
        if (error || !slot)
            return error;
        if (weir__cell_cas(slot, &seen, weir__cell_empty(seen)))
            return 0;
    }
    return WEIR_EBUSY;
}

/* ---- Blocks: a separate entry, located by the key's bucket and tag ---- */

static struct weir__key_location block_of(const struct weir__op *op, const struct weir__key_location *where)
{
    struct weir__key_location block;
    uint64_t bucket = weir__bucket_in_region(op->table, where->primary);
    uint64_t hash = (where->tag ^ bucket << 36) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
    weir__locate_primary(op->table, hash * UINT64_C(0xc4ceb9fe1a85ec53), &block);
    weir__locate_alternate(op->table, &block);
    return block;
}

/* *left_us: remaining time of the block, 0 if the key is not blocked. Returns 0 or a negative error. */
static int blocked_for(const struct weir__op *op, const struct weir__key_location *where, int64_t *left_us)
{
    struct weir__key_location block = block_of(op, where);
    *left_us = 0;
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell seen, *slot = weir__lookup(op->table, &block, &seen);
        if (slot)
            seen = weir__cell_read(slot);
        if (slot && !weir__is_entry_of(seen.lo, block.tag))
            continue; /* displaced between the two reads */
        if (!slot) {
            int error = weir__lookup_helping(op, &block, &slot, &seen);
            if (error)
                return error;
        }
        struct weir__slot_fields current = weir__cell_unpack(seen);
        if (!slot || current.state == WEIR__TENTATIVE)
            return 0;
        int64_t end = weir__anchor_expand(current.anchor, op->mono_us) + (int64_t)current.used * BLOCK_UNIT_US;
        *left_us = end > op->mono_us ? end - op->mono_us : 0;
        return 0;
    }
    return WEIR_EBUSY;
}

int weir__table_block(const struct weir__op *op, const struct weir__key_location *where, int64_t for_us)
{
    struct weir__key_location block = block_of(op, where);
    if (!for_us)
        return weir__slot_drop(op, &block);

    struct weir__slot_fields fields = {
        .tag = block.tag,
        .expiry = weir__expiry_encode(for_us + BLOCK_UNIT_US), /* marked below as an entry of a denied key */
        .used = (uint64_t)((for_us + BLOCK_UNIT_US - 1) / BLOCK_UNIT_US),
        .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK};
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell seen, *slot;
        int error = weir__slot_claim(op, &block, weir__cell_tentative(op, block.tag), &slot, &seen);
        if (error)
            return error;
        fields.version = weir__version_kept(seen);
        if (!weir__cell_cas(slot, &seen, weir__cell_denied(weir__cell_pack(fields))))
            continue;

        /* Takes look up blocks only before this time. */
        uint64_t *until = &op->table->header->blocked_until_us, end = (uint64_t)(op->mono_us + for_us + BLOCK_UNIT_US);
        uint64_t known = weir__load64(until);
        for (int i = 0; known < end && i < WEIR__ROUNDS && !weir__cas64(until, &known, end); i++)
            ;
        return 0;
    }
    return WEIR_EBUSY;
}

/* ---- Dispatch by algorithm ---- */

/* A permit that is released only by its expiry. */
static int take_permit(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                       int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    weir_lease unused;
    if (cost <= 0 || mode == WEIR__CHARGE || !op->stats)
        return weir__permit_peek(op, limit, where, mode == WEIR__CHARGE ? 0 : cost, decision);
    return weir__permit_take(op, limit, where, &unused, decision);
}

/* Not inlined, to keep registers free in the caller. */
__attribute__((noinline)) static int take_record(const struct weir__op *op, const weir_limit *limit,
                                                 const struct weir__key_location *where, int64_t cost,
                                                 enum weir__mode mode, weir_decision *decision)
{
    struct weir__key_location record = weir__record_location(limit, where);
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int result = limit->algorithm == WEIR_SLIDING_WINDOW_LOG
                         ? weir__log_attempt(op, limit, &record, cost, mode, decision)
                         : weir__ring_attempt(op, limit, &record, cost, mode, decision);
        if (result)
            return result > 0 ? 0 : result;
    }
    return WEIR_EBUSY;
}

static int take_unblocked(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                          int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    if (weir__is_one_slot(limit))
        return weir__slot_take(op, limit, where, cost, mode, decision);
    if (limit->algorithm == WEIR_CONCURRENCY)
        return take_permit(op, limit, where, cost, mode, decision);
    return weir__is_record(limit) ? take_record(op, limit, where, cost, mode, decision)
                                  : weir__pair_take(op, limit, where, cost, mode, decision);
}

/* The decision for a blocked key: its counter, and the remaining time of the block. */
static int decide_blocked(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                          enum weir__mode mode, int64_t left_us, weir_decision *decision)
{
    int error = take_unblocked(op, limit, where, 0, mode, decision);
    decision->verdict = WEIR_BLOCKED;
    decision->flags = 0;
    decision->delay_ns = 0;
    decision->retry_after_ns = weir__us_to_ns(left_us);
    return error;
}

int weir__table_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                     int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    if (!weir__any_blocked(op->table, op->mono_us) || mode == WEIR__CHARGE || cost < 0)
        return take_unblocked(op, limit, where, cost, mode, decision);

    int64_t left;
    int error = blocked_for(op, where, &left);
    if (error)
        return error;
    return left ? decide_blocked(op, limit, where, mode, left, decision)
                : take_unblocked(op, limit, where, cost, mode, decision);
}

int weir__table_acquire(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                        weir_lease *lease, weir_decision *decision)
{
    int64_t left = 0;
    int error = weir__any_blocked(op->table, op->mono_us) ? blocked_for(op, where, &left) : 0;
    if (error)
        return error;
    return left ? decide_blocked(op, limit, where, WEIR__TAKE, left, decision)
                : weir__permit_take(op, limit, where, lease, decision);
}

void weir__table_deny(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where)
{
    if (weir__is_record(limit)) {
        struct weir__key_location record = weir__record_location(limit, where);
        weir__key_record_deny(op, &record);
    } else if (weir__is_one_slot(limit)) {
        weir__cell seen, *slot = weir__lookup(op->table, where, &seen);
        if (slot)
            (void)weir__slot_mark(slot, seen); /* a concurrent change: the next denial marks it */
    }
}

int weir__table_reset(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where)
{
    struct weir__key_location record = weir__record_location(limit, where);
    if (weir__is_record(limit) || limit->algorithm == WEIR_CONCURRENCY)
        return weir__key_record_drop(op, &record);
    return weir__is_one_slot(limit) ? weir__slot_drop(op, where) : weir__pair_drop(op, where);
}
