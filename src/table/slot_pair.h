/*
 * Pairs of slots (slot_pair.c) at a glance, for batches: where the two of a key are, and the usual case of a decision
 * on them. Everything else, and everything that collides, goes the long way (weir__pair_take), which decides the same.
 */
#ifndef WEIR_TABLE_SLOT_PAIR_H
#define WEIR_TABLE_SLOT_PAIR_H

#include "table/table.h"

/* In a slot's count: its window is over, and the count final. */
#define WEIR__SEALED (UINT64_C(1) << 31)

/* The window of now, which is the same for all requests of a limit in a batch. */
struct weir__window {
    int64_t start_us;
    unsigned parity; /* of its number: which slot of a pair counts it */
};

static inline struct weir__window weir__window_of(const weir_limit *limit, int64_t mono_us)
{
    const int64_t number = mono_us / limit->part_us;
    return (struct weir__window){number * limit->part_us, (unsigned)number & 1};
}

/* What the slot of a window holds, which held `seen`. */
static inline weir__cell weir__pair_cell(const weir_limit *limit, uint64_t tag, weir__cell seen, int64_t start_us,
                                         uint64_t used)
{
    return weir__cell_pack((struct weir__slot_fields){.tag = tag,
                                                      .version = weir__version_kept(seen),
                                                      .expiry = weir__expiry_encode(2 * limit->part_us),
                                                      .used = used,
                                                      .anchor = (uint64_t)start_us & WEIR__TIME_MASK});
}

/*
 * The slots of `line` in which the even and the odd windows of the key are counted. Returns whether they are there, a
 * bit each; one that is not is a place like any other. Their tags differ in the last bit, which weir__bucket_match does
 * not compare: it finds both.
 */
static inline unsigned weir__pair_at(struct weir__bucket *line, uint64_t tag, weir__cell *slot[2])
{
    const uint64_t found = weir__bucket_match(line->slot, weir__tag_high(tag));
    weir__cell *first = weir__bucket_first(line->slot, found), *last = weir__bucket_last(line->slot, found);
    const uint64_t one = weir__load64(&first->lo), other = weir__load64(&last->lo);
    const unsigned one_is = weir__cell_tag(one) & 1, other_is = weir__cell_tag(other) & 1;
    const uint64_t even = tag & ~UINT64_C(1);
    slot[0] = slot[1] = first;
    slot[one_is] = first;
    slot[other_is] = last;
    return (unsigned)weir__is_entry_of(one, even | one_is) << one_is |
           (unsigned)weir__is_entry_of(other, even | other_is) << other_is;
}

/*
 * Decides, if both slots are where they were seen, the window was entered and the one before it is sealed or weighs no
 * more: then all that is left of slot_pair.c's ways is one swap, or for a denial another look at both. False: nothing
 * was taken, and *decision means nothing.
 */
static inline bool weir__pair_swap(int64_t mono_us, const weir_limit *limit, struct weir__window window,
                                   weir__cell *const slot[2], uint64_t tag, int64_t cost, weir_decision *decision)
{
    weir__cell *here = slot[window.parity], *there = slot[window.parity ^ 1];
    const uint64_t its = (tag & ~UINT64_C(1)) | window.parity;
    weir__cell now = weir__cell_read(here), old = weir__cell_read(there); /* in this order, as in slot_pair.c */
    const struct weir__slot_fields present = weir__cell_unpack(now), before = weir__cell_unpack(old);
    const int64_t reached_us = weir__anchor_expand(before.anchor, mono_us) + limit->part_us;

    if (!weir__is_entry_of(now.lo, its) || !weir__is_entry_of(old.lo, its ^ 1) || present.used & WEIR__SEALED ||
        weir__anchor_expand(present.anchor, mono_us) != window.start_us || reached_us > window.start_us ||
        (reached_us == window.start_us && !(before.used & WEIR__SEALED)))
        return false;
    struct weir__sliding state = {window.start_us, (int64_t)present.used,
                                  reached_us == window.start_us ? (int64_t)(before.used & ~WEIR__SEALED) : 0};
    if (!weir__counter2_take(limit, &state, mono_us, cost, WEIR__TAKE, decision))
        return weir__cell_equal(weir__cell_read(here), now) && weir__cell_equal(weir__cell_read(there), old);
    return weir__cell_cas(here, &now, weir__pair_cell(limit, its, now, window.start_us, (uint64_t)state.current));
}

#endif
