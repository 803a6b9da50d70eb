/*
 * Cuckoo hashing: lookup, insertion and displacement. docs/internals/table.md has the invariants and why they hold; in
 * short:
 *
 * A key has two candidate buckets of four slots. It counts in at most one slot at any time (no duplicates), and a
 * lookup with helping of both buckets finds it. Three things could break that, and each has its rule:
 *
 * - Two processes insert the same key at once. So an entry begins TENTATIVE and counts nothing; it may become NORMAL
 *   only after a lookup of both buckets that began after the insertion saw no other entry of the key. Of several
 *   tentative entries the one in the lowest slot stays, the others are removed.
 * - An entry is displaced to its other bucket during a lookup. A displacement copies, then increments the displacement
 *   generation, then removes the original; a lookup during which the generation changed is repeated.
 * - The displacing process dies. The FROZEN slot and the RESERVED one that it names describe the displacement
 *   completely, so any process that meets it completes it.
 */
#include "table/cuckoo.h"

#include <weir/weir.h>

enum { DISPLACE_DEPTH = 6, DISPLACE_BUDGET = 1024, RESERVED_US = 1000000 };

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
    /* A displacement in progress is never free, however old: another process may be about to copy the entry. */
    if (weir__is_frozen(seen.lo))
        return false;
    return weir__cell_life(seen, op->mono_us, op->wall_us) <= 0;
}

static weir__cell *free_slot(const struct weir__op *op, uint64_t at, weir__cell *seen)
{
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
        weir__cell *slot = &op->table->bucket[at].slot[i];
        *seen = weir__cell_peek(slot);
        if (is_free(op, *seen))
            return slot;
    }
    return NULL;
}

/* ---- Displacement ---- */

/*
 * Counts a displacement for weir__resize_finish, which must repeat a pass that the entry may have escaped. The caller
 * has read the copy: if a pass saw the copy's slot before that, this load, too, sees the geometry of the pass.
 */
static void count_if_leaving(const struct weir__op *op, uint64_t tag, uint64_t at)
{
    uint64_t geometry = weir__load64_ordered(&op->table->header->geometry);
    if (weir__doublings(geometry) != weir__doublings_before(geometry) &&
        weir__has_to_leave(op->table, tag, at, geometry))
        weir__add64(&op->table->header->leaving_displaced, 1);
}

/*
 * Completes the displacement of the entry `frozen`, seen in slot `from` of bucket `at`: into its reservation if that
 * still exists, otherwise back to NORMAL. Afterwards the slot holds something else, which the caller must look up.
 *
 * All helpers agree, because a reservation that is gone never comes back (its ABA tag is used once): if it is gone
 * while the entry is still frozen, no helper has written the copy, and none will.
 */
static void finish_displacement(const struct weir__op *op, uint64_t at, weir__cell *from, weir__cell frozen)
{
    uint64_t tag = weir__cell_tag(frozen.lo);
    unsigned state = weir__cell_state(frozen.lo), version = weir__cell_version(frozen.lo);
    weir__cell *to = &op->table->bucket[weir__alternate_of(op->table, tag, at)].slot[state & 3];
    weir__cell landed = weir__cell_with_state(frozen, WEIR__LANDED, version + 1);

    for (int round = 0; round < WEIR__ROUNDS; round++) {
        weir__cell there = weir__cell_read(to);
        /*
         * `there` was read before this check: if the slot is still frozen, the displacement had not ended at that read.
         */
        if (!weir__cell_equal(weir__cell_read(from), frozen))
            return;
        if (weir__cell_equal(there, landed)) {
            /* Copy, increment, remove: a lookup in between sees the generation change. */
            weir__add64(generation(op, tag), 1);
            count_if_leaving(op, tag, at);
            if (weir__cell_cas(from, &frozen, weir__cell_empty(frozen))) {
                weir__count(&op->stats->displaced, 1);
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

/* Displaces the entry `seen` in slot `from` of bucket `at` to `to`, slot `index` of its other bucket, seen free. */
static void displace(const struct weir__op *op, uint64_t at, weir__cell *from, weir__cell seen, weir__cell *to,
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
        finish_displacement(op, at, from, frozen);
    else
        weir__cell_cas(to, &reserved, weir__cell_empty(reserved));
}

/* Prefetches the displacement candidates: the other buckets of the entries of bucket `at`. */
static void prefetch_candidates(const struct weir__op *op, uint64_t at)
{
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
        uint64_t tag = weir__cell_tag(weir__load64(&op->table->bucket[at].slot[i].lo));
        weir__prefetch(&op->table->bucket[weir__alternate_of(op->table, tag, at)]);
    }
}

/* Tries to free a slot of bucket `at` by at most `depth` successive displacements; true if it may have succeeded. */
static bool displace_any(const struct weir__op *op, uint64_t at, int depth, int *budget)
{
    prefetch_candidates(op, at);
    for (int i = 0; i < WEIR__BUCKET_SLOTS && budget[0] > 0; i++) {
        weir__cell *slot = &op->table->bucket[at].slot[i], seen = weir__cell_read(slot), there;
        if (!weir__cell_tag(seen.lo))
            return true;
        if (weir__is_frozen(seen.lo)) {
            finish_displacement(op, at, slot, seen);
            continue;
        }
        if (!weir__is_normal(seen.lo))
            continue;
        uint64_t next = weir__alternate_of(op->table, weir__cell_tag(seen.lo), at);
        if (next == at)
            continue;
        budget[0]--;
        if (depth > 1 && !displace_any(op, next, depth - 1, budget))
            continue;
        weir__cell *target = free_slot(op, next, &there);
        if (target) {
            displace(op, at, slot, seen, target, there, (int)(target - op->table->bucket[next].slot));
            return true;
        }
    }
    return false;
}

/* ---- Lookup ---- */

/* Collects the slots of both buckets with an entry of the tag; at most 2 * WEIR__BUCKET_SLOTS. */
static int collect(const struct weir__op *op, const struct weir__key_location *w, bool leaving, struct match *match)
{
    int count = 0;
    /* In the order of the table, so that all processes agree on the lowest of several. */
    uint64_t first = w->primary < w->alternate ? w->primary : w->alternate;
    uint64_t second = w->primary < w->alternate ? w->alternate : w->primary;

    for (uint64_t at = first;; at = second) {
        for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
            weir__cell *slot = &op->table->bucket[at].slot[i];
            if (weir__cell_tag(weir__load64(&slot->lo)) != w->tag)
                continue;
            weir__cell seen = weir__cell_read(slot);
            if (weir__cell_tag(seen.lo) == w->tag &&
                (weir__cell_state(seen.lo) != WEIR__RESERVED || (leaving && weir__is_leaving(seen.lo))))
                match[count++] = (struct match){slot, seen};
        }
        if (at == second)
            return count;
    }
}

static uint64_t bucket_of(const struct weir__op *op, const weir__cell *slot)
{
    return (uint64_t)((const struct weir__bucket *)(const void *)((uintptr_t)slot & ~(uintptr_t)63) -
                      op->table->bucket);
}

/*
 * Resolves the collected entries; `twice` if the previous collection was identical. Returns true if the result stands
 * (with *chosen the entry, or -1), false if an entry was changed or is in transition and the lookup must be repeated.
 *
 * A collection is not atomic: it may pass a slot before the entry arrives there. What two successive collections agree
 * on was true at some moment between them.
 */
static bool resolve(const struct weir__op *op, struct match *match, int count, bool twice, int *chosen)
{
    int normal = -1, landed = -1, tentative = -1;

    for (int i = 0; i < count; i++) {
        weir__cell seen = match[i].seen;
        if (weir__is_frozen(seen.lo)) {
            finish_displacement(op, bucket_of(op, match[i].slot), match[i].slot, seen);
            return false;
        }
        if (weir__is_landed(seen.lo))
            landed = i;
        else if (weir__is_normal(seen.lo) || weir__is_leaving(seen.lo))
            normal = i;
        else if (tentative < 0)
            tentative = i;
    }
    if (landed >= 0) {
        weir__cell seen = match[landed].seen;
        if (twice && normal < 0) /* the original is gone: the copy is the entry now */
            weir__cell_cas(match[landed].slot, &seen,
                           weir__cell_with_state(seen, WEIR__NORMAL, weir__cell_version(seen.lo)));
        else if (twice) /* unreachable without damage, which must not block a key for ever */
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

/* Read-only: the entry that counts, whatever its state of displacement. */
static int choose_read_only(const struct match *match, int count)
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

/* The location of a key after so many doublings. */
static struct weir__key_location located(const struct weir__op *op, const struct weir__key_location *w,
                                         unsigned doublings)
{
    const struct weir__table *table = op->table;
    struct weir__key_location at = {.tag = w->tag,
                                    .primary = weir__bucket_in_region(table, w->primary) +
                                               weir__region(table, w->tag, doublings) * table->stride,
                                    .salt = w->salt};
    at.alternate = weir__alternate_of(table, at.tag, at.primary);
    return at;
}

static int lookup_in_regions(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot,
                             weir__cell *seen);

enum { CHANGED = 1 }; /* the geometry was changed: retry */

/*
 * weir__lookup_helping in the two buckets of one region, with entries that leave it or without. A result other than a
 * NORMAL entry stands only if the geometry has not changed: otherwise CHANGED, or, without regions so far, the result
 * with them.
 */
static int lookup_at(const struct weir__op *op, const struct weir__key_location *w, uint64_t geometry, bool leaving,
                     weir__cell **slot, weir__cell *seen)
{
    struct match collected[2][2 * WEIR__BUCKET_SLOTS];
    int counts[2] = {-1, -1};

    for (int round = 0; round < WEIR__ROUNDS; round++) {
        /* Orders two successive collections: the second begins after the end of the first. */
        weir__fence();
        uint64_t before = weir__load64(generation(op, w->tag));
        struct match *match = collected[round & 1];
        int chosen = -1, count = collect(op, w, leaving, match);
        counts[round & 1] = count;
        bool twice = same(match, count, collected[~round & 1], counts[~round & 1]);

        if (!op->stats)
            chosen = choose_read_only(match, count);
        else if (!resolve(op, match, count, twice, &chosen))
            continue;
        /* Pairs with weir__add64 in finish_displacement: the loads of collect precede the load of the generation. */
        weir__fence();
        if (weir__load64(generation(op, w->tag)) != before)
            continue;

        if (chosen < 0) {
            *slot = NULL;
        } else {
            *slot = match[chosen].slot;
            *seen = match[chosen].seen;
            if (weir__is_normal(seen->lo))
                return 0;
            /* A tentative entry is usable only after a lookup that began after its insertion. */
            if (op->stats && !twice)
                continue;
        }
        if (weir__load64(&op->table->header->geometry) == geometry)
            return 0;
        return geometry ? CHANGED : lookup_in_regions(op, w, slot, seen);
    }
    return WEIR_EBUSY;
}

/*
 * weir__lookup_helping in a segment that was resized. While the geometry changes, the region that an entry leaves is
 * searched first: an entry that is not there will never be there again, so the one in its new region, or none, is what
 * counts. docs/internals/table.md has the proof.
 */
__attribute__((noinline, cold)) static int
lookup_in_regions(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot, weir__cell *seen)
{
    const struct weir__table *table = op->table;
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        uint64_t geometry = weir__load64(&table->header->geometry);
        unsigned now = weir__doublings(geometry), before = weir__doublings_before(geometry);
        if (now > table->doublings_max || before > table->doublings_max || !weir__geometry_is_valid(geometry))
            return weir__geometry_is_valid(geometry) ? WEIR_ERESIZED : WEIR_EDAMAGED;
        struct weir__key_location here = located(op, w, now), left = located(op, w, before);
        int result = 0;
        *slot = NULL;
        if (here.primary != left.primary)
            result = lookup_at(op, &left, geometry, true, slot, seen);
        if (!result && *slot && op->stats) {
            weir__entry_move(op, bucket_of(op, *slot), *slot, *seen, geometry);
            continue;
        }
        if (!result && !*slot)
            result = lookup_at(op, &here, geometry, false, slot, seen);
        if (result != CHANGED)
            return result;
    }
    return WEIR_EBUSY;
}

int weir__lookup_helping(const struct weir__op *op, const struct weir__key_location *w, weir__cell **slot,
                         weir__cell *seen)
{
    if (__builtin_expect(weir__load64(&op->table->header->geometry) != 0, 0))
        return lookup_in_regions(op, w, slot, seen);
    return lookup_at(op, w, 0, false, slot, seen);
}

/* ---- Insertion ---- */

/* True if entries of denied keys fill at most half of both buckets: then they are evicted last. */
static bool spares_denied(const struct weir__op *op, const struct weir__key_location *w)
{
    int denied = 0;
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++)
        denied += weir__cell_is_denied(weir__cell_peek(&op->table->bucket[w->primary].slot[i])) +
                  weir__cell_is_denied(weir__cell_peek(&op->table->bucket[w->alternate].slot[i]));
    return denied <= WEIR__BUCKET_SLOTS;
}

/*
 * The slot to evict when none is free: of the entry that expires first, those of denied keys last. NULL if all are
 * being displaced.
 */
static weir__cell *choose_victim(const struct weir__op *op, const struct weir__key_location *w, weir__cell *seen)
{
    weir__cell *slot = NULL;
    int64_t shortest = INT64_MAX,
            later = spares_denied(op, w) ? INT64_MAX / 2 : 0; /* far longer than any time to expiry */
    const uint64_t at[2] = {w->primary, w->alternate};

    for (int k = 0; k < 2 * WEIR__BUCKET_SLOTS; k++) {
        weir__cell *candidate = &op->table->bucket[at[k / WEIR__BUCKET_SLOTS]].slot[k % WEIR__BUCKET_SLOTS];
        weir__cell current = weir__cell_read(candidate);
        if (weir__cell_tag(current.lo) && weir__is_frozen(current.lo)) {
            finish_displacement(op, at[k / WEIR__BUCKET_SLOTS], candidate, current);
            continue;
        }
        /* Neither a copy on its way nor the key's own other window. */
        if (weir__cell_tag(current.lo) &&
            (weir__is_landed(current.lo) || weir__is_leaving(current.lo) || weir__cell_tag(current.lo) == (w->tag ^ 1)))
            continue;
        int64_t life = weir__cell_life(current, op->mono_us, op->wall_us);
        if (life > 0 && weir__cell_is_denied(current))
            life += later;
        /*
         * TENTATIVE and RESERVED entries are the last resort: their process is running, or dead, which cannot be known.
         */
        if (weir__cell_tag(current.lo) && !weir__is_normal(current.lo) && life > 0)
            life = INT64_MAX - 1;
        if (life < shortest) {
            shortest = life;
            slot = candidate;
            *seen = current;
        }
    }
    return slot;
}

__attribute__((always_inline)) static inline weir__cell *find_slot(const struct weir__op *op,
                                                                   const struct weir__key_location *w, weir__cell *seen)
{
    weir__cell *slot = free_slot(op, w->primary, seen);
    if (!slot)
        slot = free_slot(op, w->alternate, seen);
    if (slot)
        return slot;

    int budget = DISPLACE_BUDGET;
    for (int depth = 1; depth <= DISPLACE_DEPTH && budget > 0; depth++) {
        if (displace_any(op, w->primary, depth, &budget) && (slot = free_slot(op, w->primary, seen)))
            return slot;
        if (displace_any(op, w->alternate, depth, &budget) && (slot = free_slot(op, w->alternate, seen)))
            return slot;
    }
    return choose_victim(op, w, seen);
}

__attribute__((noinline, cold)) static weir__cell *
find_slot_in_region(const struct weir__op *op, const struct weir__key_location *w, uint64_t geometry, weir__cell *seen)
{
    struct weir__key_location here = located(op, w, weir__doublings(geometry));
    return find_slot(op, &here, seen);
}

/* Inserts `tentative` into one of the key's two buckets in this geometry. False: a concurrent change, retry. */
__attribute__((always_inline)) static inline bool insert(const struct weir__op *op, const struct weir__key_location *w,
                                                         uint64_t geometry, weir__cell tentative)
{
    weir__cell current;
    weir__cell *room = geometry ? find_slot_in_region(op, w, geometry, &current) : find_slot(op, w, &current);
    if (!room)
        return false;
    bool live = weir__cell_life(current, op->mono_us, op->wall_us) > 0 && weir__is_normal(current.lo);
    if (!weir__cell_cas(room, &current, weir__cell_with_aba_tag(tentative, current))) {
        weir__count(&op->stats->retries, 1);
        return false;
    }
    if (live)
        weir__count(&op->stats->evicted_live, 1);
    if (live && weir__cell_is_denied(current))
        weir__count(&op->stats->evicted_denied, 1);
    /* Insert, then look up: without a full fence two claimants could miss each other's entry. */
    weir__fence();
    return true;
}

int weir__slot_claim(const struct weir__op *op, const struct weir__key_location *w, weir__cell tentative,
                     weir__cell **slot, weir__cell *seen)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        uint64_t geometry = weir__load64(&op->table->header->geometry);
        int error = weir__lookup_helping(op, w, slot, seen);
        if (error || *slot)
            return error;
        /* If the geometry has changed since, this entry never counts: the next lookup is in other buckets. */
        if (insert(op, w, geometry, tentative))
            weir__count(&op->stats->created, 1);
    }
    return WEIR_EBUSY;
}

/* ---- Moving to another region ---- */

void weir__entry_move(const struct weir__op *op, uint64_t at, weir__cell *from, weir__cell seen, uint64_t geometry)
{
    struct weir__key_location old = {.tag = weir__cell_tag(seen.lo), .primary = at};
    weir__cell there, *to;
    old.alternate = weir__alternate_of(op->table, old.tag, at);
    if (weir__is_frozen(seen.lo)) {
        finish_displacement(op, at, from, seen);
        return;
    }
    if (weir__is_landed(seen.lo)) {
        (void)lookup_at(op, &old, geometry, true, &to, &there); /* completes the displacement */
        return;
    }
    bool leaving = weir__is_leaving(seen.lo);
    if (!leaving && (!weir__is_normal(seen.lo) || weir__cell_life(seen, op->mono_us, op->wall_us) <= 0)) {
        weir__cell_cas(from, &seen, weir__cell_empty(seen));
        return;
    }
    weir__cell moving = leaving ? seen : weir__cell_leaving(seen);
    /* An entry that was seen while this geometry was current leaves once: afterwards its version differs. */
    if (weir__load64(&op->table->header->geometry) != geometry || (!leaving && !weir__cell_cas(from, &seen, moving)))
        return;

    /* From here on no process changes the entry; a process that needs it completes the move. */
    struct weir__key_location here = located(op, &old, weir__doublings(geometry));
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        if (lookup_at(op, &here, geometry, false, &to, &there))
            return;
        if (to)
            break;
        insert(op, &here, geometry, weir__cell_tentative(op, here.tag));
    }
    if (!to)
        return;
    /* NORMAL: it has arrived. If it has left meanwhile, the claimed slot was used for that, or counts nothing. */
    if (!weir__is_normal(there.lo) &&
        (!weir__cell_equal(weir__cell_read(from), moving) || !weir__cell_cas(to, &there, weir__cell_arrived(moving))))
        return;
    weir__cell_cas(from, &moving, weir__cell_empty(moving));
}
