/*
 * Finding and claiming slots. docs/table.md has the invariants and why they hold; in short:
 *
 * A key has two lines of four slots. It counts in at most one slot at any time (no twins), and a thorough look at
 * both lines finds it. Three things could break that, and each has its rule:
 *
 * - Two processes make the first entry of a key at once. So an entry begins TENTATIVE, counting nothing; whoever
 *   wants to use it looks at both lines again *after* it was put there, and may make it NORMAL only if no other entry
 *   of the key was seen. Of several tentative ones the one in the lowest place stays, the others are removed.
 * - An entry is moved to its other line behind the back of someone who is looking. A move copies first, then adds to
 *   the generation of moves, then removes; a look in which the generation changed is repeated.
 * - The mover dies. All it had planned is in the FROZEN slot and the RESERVED one it leads to, so whoever comes across
 *   it finishes the move.
 */
#include "table/cuckoo.h"

#include <weir/weir.h>

enum { MOVE_DEPTH = 6, MOVE_BUDGET = 1024, RESERVED_US = 1000000 };

struct match {
    weir__cell *slot;
    weir__cell seen;
};

static uint64_t *generation(const struct weir__op *op, uint64_t tag)
{
    return &op->table->moves[(tag >> 1) % WEIR__MOVES];
}

static bool is_free(const struct weir__op *op, weir__cell seen)
{
    if (!weir__cell_tag(seen.lo))
        return true;
    /* What is being moved away is not free, however old: somebody may be about to copy it. */
    if (weir__is_frozen(seen.lo))
        return false;
    return weir__cell_life(seen, op->mono_us, op->wall_us) <= 0;
}

static weir__cell *free_slot(const struct weir__op *op, uint64_t line, weir__cell *seen)
{
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
        weir__cell *slot = &op->table->bucket[line].slot[i];
        *seen = weir__cell_peek(slot);
        if (is_free(op, *seen))
            return slot;
    }
    return NULL;
}

/* ---- Moving ---- */

/*
 * Finishes the move of the entry that `frozen` was seen in slot `from` of `line`: into its reservation if that still
 * stands, back to NORMAL if it does not. Afterwards the slot holds something else; what, the caller must look up.
 *
 * All helpers agree, because a reservation that is gone never comes back (its nonce is of one use): who finds it gone
 * while the entry is still frozen knows that nobody has landed the copy, and nobody will.
 */
static void finish_move(const struct weir__op *op, uint64_t line, weir__cell *from, weir__cell frozen)
{
    uint64_t tag = weir__cell_tag(frozen.lo);
    unsigned state = weir__cell_state(frozen.lo), version = weir__cell_version(frozen.lo);
    weir__cell *to = &op->table->bucket[weir__alternate_bucket(tag, line, op->table->buckets)].slot[state & 3];
    weir__cell landed = weir__cell_with_state(frozen, WEIR__LANDED, version + 1);

    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell there = weir__cell_read(to);
        /* Read before this check: if the slot is still frozen, the move had not ended when we looked there. */
        if (!weir__cell_equal(weir__cell_read(from), frozen))
            return;
        if (weir__cell_equal(there, landed)) {
            /* Copy, count, remove: whoever looked in between sees the generation change. */
            weir__add64(generation(op, tag), 1);
            if (weir__cell_cas(from, &frozen, weir__cell_empty(frozen))) {
                weir__count(&op->stats->moved, 1);
                weir__cell_cas(to, &landed, weir__cell_with_state(landed, WEIR__NORMAL, version + 1));
            }
            return;
        }
        if (weir__cell_tag(there.lo) != tag || weir__cell_state(there.lo) != WEIR__RESERVED) {
            weir__cell_cas(from, &frozen, weir__cell_with_state(frozen, WEIR__NORMAL, version + 1));
            return;
        }
        weir__cell_cas(to, &there, landed);
    }
}

/* Moves the entry `seen` in slot `from` of `line` to `to`, slot `index` of its other line, which was seen free. */
static void move(const struct weir__op *op, uint64_t line, weir__cell *from, weir__cell seen, weir__cell *to,
                 weir__cell there, int index)
{
    weir__cell frozen = weir__cell_with_state(seen, WEIR__FROZEN | (unsigned)index, weir__cell_version(seen.lo));
    weir__cell reserved =
        weir__cell_pack((struct weir__slot_fields){.tag = weir__cell_tag(seen.lo),
                                                   .state = WEIR__RESERVED,
                                                   .expiry = weir__expiry_encode(RESERVED_US),
                                                   .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK});
    reserved = weir__cell_with_aba_tag(reserved, there);
    if (!weir__cell_cas(to, &there, reserved))
        return;
    if (weir__cell_cas(from, &seen, frozen))
        finish_move(op, line, from, frozen);
    else
        weir__cell_cas(to, &reserved, weir__cell_empty(reserved));
}

/* Asks for the lines that the entries of `line` could be moved to: most of them are full, too, and will be looked at.
 */
static void ask_for_others(const struct weir__op *op, uint64_t line)
{
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
        uint64_t tag = weir__cell_tag(weir__load64(&op->table->bucket[line].slot[i].lo));
        weir__prefetch(&op->table->bucket[weir__alternate_bucket(tag, line, op->table->buckets)]);
    }
}

/* Tries to free a slot of `line` by moving entries on, up to `depth` in a row; true if it may have worked. */
static bool make_room(const struct weir__op *op, uint64_t line, int depth, int *budget)
{
    ask_for_others(op, line);
    for (int i = 0; i < WEIR__BUCKET_SLOTS && budget[0] > 0; i++) {
        weir__cell *slot = &op->table->bucket[line].slot[i], seen = weir__cell_read(slot), there;
        if (!weir__cell_tag(seen.lo))
            return true;
        if (weir__is_frozen(seen.lo)) {
            finish_move(op, line, slot, seen);
            continue;
        }
        if (!weir__is_normal(seen.lo))
            continue;
        uint64_t next = weir__alternate_bucket(weir__cell_tag(seen.lo), line, op->table->buckets);
        if (next == line)
            continue;
        budget[0]--;
        if (depth > 1 && !make_room(op, next, depth - 1, budget))
            continue;
        weir__cell *target = free_slot(op, next, &there);
        if (target) {
            move(op, line, slot, seen, target, there, (int)(target - op->table->bucket[next].slot));
            return true;
        }
    }
    return false;
}

/* ---- Looking ---- */

/* All slots of the key's lines that hold an entry of its tag; never more than 2 * WEIR__BUCKET_SLOTS. */
static int gather(const struct weir__op *op, const struct weir__key_location *w, struct match *match)
{
    int count = 0;
    /* By place, not by home, so that all agree on which of several comes first. */
    uint64_t first = w->primary < w->alternate ? w->primary : w->alternate;
    uint64_t second = w->primary < w->alternate ? w->alternate : w->primary;

    for (uint64_t line = first;; line = second) {
        for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
            weir__cell *slot = &op->table->bucket[line].slot[i];
            if (weir__cell_tag(weir__load64(&slot->lo)) != w->tag)
                continue;
            weir__cell seen = weir__cell_read(slot);
            if (weir__cell_tag(seen.lo) == w->tag && weir__cell_state(seen.lo) != WEIR__RESERVED)
                match[count++] = (struct match){slot, seen};
        }
        if (line == second)
            return count;
    }
}

static uint64_t line_of(const struct weir__op *op, const weir__cell *slot)
{
    return (uint64_t)((const struct weir__bucket *)(const void *)((uintptr_t)slot & ~(uintptr_t)63) -
                      op->table->bucket);
}

/*
 * Settles what was gathered; `twice` if the gathering before it saw exactly the same. Returns true if it is settled
 * (with *chosen the entry, or -1), false if something was changed or on its way and the look must be repeated.
 *
 * One gathering is not a moment: it may have passed a slot before the entry came there. Seen twice, what is missing
 * was missing in between, and what is there was there.
 */
static bool settle(const struct weir__op *op, struct match *match, int count, bool twice, int *chosen)
{
    int normal = -1, landed = -1, tentative = -1;

    for (int i = 0; i < count; i++) {
        weir__cell seen = match[i].seen;
        if (weir__is_frozen(seen.lo)) {
            finish_move(op, line_of(op, match[i].slot), match[i].slot, seen);
            return false;
        }
        if (weir__is_landed(seen.lo))
            landed = i;
        else if (weir__is_normal(seen.lo))
            normal = i;
        else if (tentative < 0)
            tentative = i;
    }
    if (landed >= 0) {
        weir__cell seen = match[landed].seen;
        if (twice && normal < 0) /* the frozen one is gone: the copy is the entry now */
            weir__cell_cas(match[landed].slot, &seen,
                           weir__cell_with_state(seen, WEIR__NORMAL, weir__cell_version(seen.lo)));
        else if (twice) /* never while all follow the rules; damage must not wedge a key */
            weir__cell_cas(match[landed].slot, &seen, weir__cell_empty(seen));
        return false;
    }

    *chosen = normal >= 0 ? normal : tentative;
    bool quiet = true;
    for (int i = 0; i < count; i++) {
        if (i == *chosen || weir__is_normal(match[i].seen.lo))
            continue;
        weir__cell_cas(match[i].slot, &match[i].seen, weir__cell_empty(match[i].seen));
        quiet = false;
    }
    return quiet;
}

/* Read-only: the entry that counts, wherever it is on its way. */
static int look_only(const struct match *match, int count)
{
    int chosen = -1;
    for (int i = 0; i < count; i++)
        if (weir__cell_state(match[i].seen.lo) != WEIR__TENTATIVE && (chosen < 0 || weir__is_landed(match[i].seen.lo)))
            chosen = i;
    return chosen;
}

static bool same(const struct match *a, int a_count, const struct match *b, int b_count)
{
    if (a_count != b_count)
        return false;
    for (int i = 0; i < a_count; i++)
        if (a[i].slot != b[i].slot || !weir__cell_equal(a[i].seen, b[i].seen))
            return false;
    return true;
}

int weir__lookup_helping(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot,
                         weir__cell *seen)
{
    struct match gathered[2][2 * WEIR__BUCKET_SLOTS];
    int counts[2] = {-1, -1};

    for (int round = 0; round < WEIR__ROUNDS; round++) {
        /* Between one gathering and the next: the second begins after all of the first. */
        weir__fence();
        uint64_t before = weir__load64(generation(op, w->tag));
        struct match *match = gathered[round & 1];
        int chosen = -1, count = gather(op, w, match);
        counts[round & 1] = count;
        bool twice = same(match, count, gathered[~round & 1], counts[~round & 1]);

        if (!op->stats)
            chosen = look_only(match, count);
        else if (!settle(op, match, count, twice, &chosen))
            continue;
        /* Partner of weir__add64 in finish_move; the loads of gather must come before this one. */
        weir__fence();
        if (weir__load64(generation(op, w->tag)) != before)
            continue;

        if (chosen < 0) {
            *slot = NULL;
            return 0;
        }
        *slot = match[chosen].slot;
        *seen = match[chosen].seen;
        /* A tentative entry is usable only if a whole look began after it was put there. */
        if (!op->stats || weir__is_normal(seen->lo) || twice)
            return 0;
    }
    return WEIR_EBUSY;
}

/* ---- Claiming ---- */

/* True if entries of keys that were denied have at most half of the slots of both lines: then they are kept. */
static bool keeps_denied(const struct weir__op *op, const struct weir__key_location *w)
{
    int denied = 0;
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++)
        denied += weir__cell_is_denied(weir__cell_peek(&op->table->bucket[w->primary].slot[i])) +
                  weir__cell_is_denied(weir__cell_peek(&op->table->bucket[w->alternate].slot[i]));
    return denied <= WEIR__BUCKET_SLOTS;
}

/*
 * The slot to take when none is free: of the entry that recovers first, those of denied keys last. NULL if all are on
 * the move.
 */
static weir__cell *victim(const struct weir__op *op, const struct weir__key_location *w, weir__cell *seen)
{
    weir__cell *slot = NULL;
    int64_t shortest = INT64_MAX, later = keeps_denied(op, w) ? INT64_MAX / 2 : 0; /* lives are much shorter */
    const uint64_t line[2] = {w->primary, w->alternate};

    for (int k = 0; k < 2 * WEIR__BUCKET_SLOTS; k++) {
        weir__cell *candidate = &op->table->bucket[line[k / WEIR__BUCKET_SLOTS]].slot[k % WEIR__BUCKET_SLOTS];
        weir__cell held = weir__cell_read(candidate);
        if (weir__cell_tag(held.lo) && weir__is_frozen(held.lo)) {
            finish_move(op, line[k / WEIR__BUCKET_SLOTS], candidate, held);
            continue;
        }
        /* Not what is landing, and not the key's own other window. */
        if (weir__cell_tag(held.lo) && (weir__is_landed(held.lo) || weir__cell_tag(held.lo) == (w->tag ^ 1)))
            continue;
        int64_t life = weir__cell_life(held, op->mono_us, op->wall_us);
        if (life > 0 && weir__cell_is_denied(held))
            life += later;
        /* What counts nothing yet is the last resort: its maker is at work, or dead, which nobody can tell. */
        if (weir__cell_tag(held.lo) && !weir__is_normal(held.lo) && life > 0)
            life = INT64_MAX - 1;
        if (life < shortest) {
            shortest = life;
            slot = candidate;
            *seen = held;
        }
    }
    return slot;
}

static weir__cell *find_room(const struct weir__op *op, const struct weir__key_location *w, weir__cell *seen)
{
    weir__cell *slot = free_slot(op, w->primary, seen);
    if (!slot)
        slot = free_slot(op, w->alternate, seen);
    if (slot)
        return slot;

    int budget = MOVE_BUDGET;
    for (int depth = 1; depth <= MOVE_DEPTH && budget > 0; depth++) {
        if (make_room(op, w->primary, depth, &budget) && (slot = free_slot(op, w->primary, seen)))
            return slot;
        if (make_room(op, w->alternate, depth, &budget) && (slot = free_slot(op, w->alternate, seen)))
            return slot;
    }
    return victim(op, w, seen);
}

int weir__slot_claim(const struct weir__op *op, const struct weir__key_location *w, weir__cell tentative,
                     weir__cell **slot, weir__cell *seen)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int error = weir__lookup_helping(op, w, slot, seen);
        if (error || *slot)
            return error;

        weir__cell held;
        weir__cell *room = find_room(op, w, &held);
        if (!room)
            continue;
        bool live = weir__cell_life(held, op->mono_us, op->wall_us) > 0 && weir__is_normal(held.lo);
        if (!weir__cell_cas(room, &held, weir__cell_with_aba_tag(tentative, held))) {
            weir__count(&op->stats->retries, 1);
            continue;
        }
        weir__count(&op->stats->created, 1);
        if (live)
            weir__count(&op->stats->evicted_live, 1);
        if (live && weir__cell_is_denied(held))
            weir__count(&op->stats->evicted_denied, 1);
        /* Put, then look: without a full fence two claimants might each miss the other's entry. */
        weir__fence();
    }
    return WEIR_EBUSY;
}
