/*
 * The sliding window counter with two buckets whose counts do not fit into one slot: one slot for the even windows,
 * one for the odd ones, with the same primary bucket and with tags that differ in the last bit. Their alternate buckets
 * differ, otherwise a table could not be filled to nine tenths with such pairs. Each has the start of its window and
 * its count.
 *
 * Exactness across the two. A request in window k adds to k's slot and weighs the count of k - 1's slot, so that count
 * must not grow any more. Therefore k - 1 is PAIR_SEALED before anything is counted in k, and a window is always
 * entered through a TENTATIVE entry: the process that makes it reads the sibling again afterwards. A process whose
 * clock is still in k - 1 finds its slot sealed, or k's entry in place, and counts in k.
 */
#include "table/table.h"
#include "algo/algo.h"

#define TENTATIVE_US 1000000
/* In the count of a slot: its window has ended, and the count is final. */
#define PAIR_SEALED (UINT64_C(1) << 31)

/* The cell of a window's slot, which replaces `seen`. */
static weir__cell pair_cell(const weir_limit *limit, uint64_t tag, weir__cell seen, int64_t start_us, uint64_t used)
{
    return weir__cell_pack((struct weir__slot_fields){.tag = tag,
                                                      .version = weir__version_kept(seen),
                                                      .expiry = weir__expiry_encode(2 * limit->part_us),
                                                      .used = used,
                                                      .anchor = (uint64_t)start_us & WEIR__TIME_MASK});
}

struct bucket {
    weir__cell *slot;
    weir__cell seen;
    int64_t start_us;
    int64_t count;
    bool tentative, sealed;
};

/* The location of the even (0) or the odd (1) windows. */
static struct weir__key_location of_parity(const struct weir__op *op, const struct weir__key_location *where,
                                           uint64_t parity)
{
    struct weir__key_location w = *where;
    w.tag = (w.tag & ~UINT64_C(1)) | parity;
    w.alternate = weir__alternate_of(op->table, w.tag, w.primary);
    return w;
}

static int read_bucket(const struct weir__op *op, const struct weir__key_location *where, struct bucket *bucket)
{
    /* A NORMAL entry is the only one (no duplicates); otherwise the lookup with helping decides. */
    weir__cell *slot = weir__lookup(op->table, where, &bucket->seen);
    /* Its window decides more than a swap of this cell verifies, so the read must not be torn. */
    if (slot)
        bucket->seen = weir__cell_read(slot);
    if (!slot || !weir__is_entry_of(bucket->seen.lo, where->tag)) {
        int error = weir__lookup_helping(op, where, &slot, &bucket->seen);
        if (error)
            return error;
    }
    bucket->slot = slot;
    if (!slot)
        return 0;
    struct weir__slot_fields known = weir__cell_unpack(bucket->seen);
    bucket->start_us = weir__anchor_expand(known.anchor, op->mono_us);
    bucket->tentative = known.state == WEIR__TENTATIVE; /* its count is an ABA tag */
    bucket->count = bucket->tentative ? 0 : (int64_t)(known.used & ~PAIR_SEALED);
    bucket->sealed = !bucket->tentative && known.used & PAIR_SEALED;
    return 0;
}

/*
 * The window to count in: the current one, or a later one if the buckets show that it was reached. A start that is no
 * multiple of the window is ignored: the anchor of a very old entry has wrapped, or the entry is damaged.
 */
static int64_t reached(const weir_limit *limit, const struct bucket *a, const struct bucket *b, int64_t start_us)
{
    const struct bucket *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        int64_t other = both[i]->start_us + (both[i]->sealed ? limit->part_us : 0);
        if (both[i]->slot && other > start_us && both[i]->start_us % limit->part_us == 0)
            start_us = other;
    }
    return start_us;
}

/* Makes a tentative entry for the window. 0: retry. */
static int enter_window(const struct weir__op *op, const struct weir__key_location *where, struct bucket *bucket,
                        int64_t start_us)
{
    /* Has the start of its window; expires in a second, as any tentative entry, if its process dies. */
    weir__cell tentative = weir__cell_pack(
        (struct weir__slot_fields){.tag = where->tag,
                                   .state = WEIR__TENTATIVE,
                                   .expiry = weir__expiry_encode(weir__elapsed(op->mono_us, start_us) + TENTATIVE_US),
                                   .anchor = (uint64_t)start_us & WEIR__TIME_MASK});
    if (bucket->slot) {
        /* The slot of an earlier window, which no longer counts. */
        weir__cell_cas(bucket->slot, &bucket->seen, weir__cell_with_aba_tag(tentative, bucket->seen));
        weir__fence();
        return 0;
    }
    return weir__slot_claim(op, where, tentative, &bucket->slot, &bucket->seen);
}

static bool changed(const struct bucket *bucket)
{
    return bucket->slot && !weir__cell_equal(weir__cell_read(bucket->slot), bucket->seen);
}

/*
 * One attempt at the window with this number. Returns 1 when decided, 0 to retry (with *next, if a later window was
 * reached and nothing changed meanwhile), or a negative error.
 */
static int attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                   int64_t window, int64_t *next, int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    const int64_t start_us = window * limit->part_us;
    const uint64_t parity = (uint64_t)window & 1;
    struct weir__key_location here = of_parity(op, where, parity), there = of_parity(op, where, parity ^ 1);

    /* In this order: the sibling is read after our tentative entry was seen. */
    struct bucket now = {0}, old = {0};
    int error = read_bucket(op, &here, &now);
    if (!error)
        error = read_bucket(op, &there, &old);
    if (error)
        return error;

    int64_t at = reached(limit, &now, &old, start_us);
    if (at != start_us) {
        if (!changed(&now) && !changed(&old))
            *next = at / limit->part_us;
        return 0;
    }
    if (old.slot && old.tentative) {
        /* Of an earlier window: too late. */
        if (op->stats)
            weir__cell_cas(old.slot, &old.seen, weir__cell_empty(old.seen));
        old.slot = NULL;
        if (op->stats)
            return 0;
    }
    bool entered = now.slot && now.start_us == at;
    bool counts = old.slot && old.start_us == at - limit->part_us;
    struct weir__sliding state = {at, entered ? now.count : 0, counts ? old.count : 0};

    if (!weir__counter2_take(limit, &state, op->mono_us, cost, mode, decision) || !op->stats) {
        if (changed(&now) || changed(&old))
            return 0;
        if (op->stats && entered && weir__marks(decision))
            (void)weir__slot_mark(now.slot, now.seen);
        if (op->stats && counts && weir__marks(decision))
            (void)weir__slot_mark(old.slot, old.seen);
        return 1;
    }
    if (!entered && cost < 0)
        return 1; /* nothing of this window to refund; units of an earlier one stay taken */
    if (counts && !old.sealed) {
        weir__cell sealed = pair_cell(limit, there.tag, old.seen, old.start_us, (uint64_t)old.count | PAIR_SEALED);
        /* The sealed count is the one that was weighed. */
        if (!weir__cell_cas(old.slot, &old.seen, sealed))
            return 0;
    }
    if (!entered)
        return enter_window(op, &here, &now, at);
    weir__cell taken = pair_cell(limit, here.tag, now.seen, at, (uint64_t)state.current);
    if (weir__cell_cas(now.slot, &now.seen, taken))
        return 1;
    weir__count(&op->stats->retries, 1);
    return 0;
}

int weir__pair_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                    int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    const int64_t present = op->mono_us / limit->part_us;
    int64_t window = present;

    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int64_t next = present; /* after one attempt at a later window, the current one again */
        int result = attempt(op, limit, where, window, &next, cost, mode, decision);
        if (result)
            return result > 0 ? 0 : result;
        window = next;
    }
    return WEIR_EBUSY;
}

int weir__pair_drop(const struct weir__op *op, const struct weir__key_location *where)
{
    struct weir__key_location even = of_parity(op, where, 0), odd = of_parity(op, where, 1);
    int error = weir__slot_drop(op, &even);
    return error ? error : weir__slot_drop(op, &odd);
}
