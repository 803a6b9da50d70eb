#include "table/slab.h"

/*
 * A lease word: 0 is a free grain; otherwise until when it is leased, in about seconds.
 *
 * Only the first grain of a record decides who has it. Whoever takes grains takes whole records from their first one
 * on, so an owner that comes back late finds the first word changed; that the words behind it still look like its
 * own does not matter.
 */
#define LEASE_SHIFT 20
#define LEASE_NONCE_BITS 3
#define LEASE_TIME UINT32_C(0x07ffffff)
#define LEASE_MASK UINT32_C(0x3fffffff)   /* the time and the nonce */
#define LEASE_TAKING UINT32_C(0x40000000) /* first grain: its head is still the last owner's */
#define LEASE_FIRST UINT32_C(0x80000000)  /* a record begins here */
#define SCAN_MAX 32768                    /* grains looked at for one record, beyond its own size */
#define LIVE_MAX 64                       /* places weighed against each other when a live record must go */
#define TAKE_ROUNDS 64                    /* attempts, when others take the same grains */

unsigned weir__class_for(uint64_t bytes)
{
    for (unsigned c = 0; c < WEIR__CLASSES; c++)
        if ((uint64_t)weir__class_grains(c) * WEIR__GRAIN >= bytes)
            return c;
    return WEIR__CLASSES;
}

static uint32_t lease_time(int64_t us)
{
    return (uint32_t)((uint64_t)us >> LEASE_SHIFT) & LEASE_TIME;
}

/*
 * A lease that does not end before for_us from now. Its low bits differ from one taker to the next, so that a word
 * that was taken over within a second is not mistaken for what it was.
 */
static uint32_t lease_until(const struct weir__op *op, int64_t for_us)
{
    uint32_t until = lease_time(op->mono_us + for_us + (INT64_C(1) << LEASE_SHIFT));
    uint32_t word = until << LEASE_NONCE_BITS | ((uint32_t)op->mono_us & ((1U << LEASE_NONCE_BITS) - 1));
    return word ? word : 1;
}

/* Seconds, roughly, that a lease still runs; 0 if it has lapsed. Good for two years either way. */
static uint32_t lease_left(const struct weir__op *op, uint32_t word)
{
    if (!word)
        return 0;
    uint32_t left = (((word & LEASE_MASK) >> LEASE_NONCE_BITS) - lease_time(op->mono_us)) & LEASE_TIME;
    return left > LEASE_TIME / 2 ? 0 : left;
}

/*
 * Takes grains [at, at + count), which begin where a record does; only lapsed ones, unless `live`. On failure gives
 * back what it took and returns false. A record that is cut in two leaves words without a first one: they lapse, and
 * are taken together with what is before them.
 */
static bool take_run(const struct weir__op *op, uint64_t at, uint32_t count, uint32_t until, bool live)
{
    uint32_t *lease = op->table->lease;
    uint64_t evicted = 0;
    uint32_t i = 0;
    for (; i < count; i++) {
        uint32_t seen = weir__load32(&lease[at + i]), left = lease_left(op, seen);
        if (left && (!live || seen & LEASE_TAKING))
            break;
        if (!weir__cas32(&lease[at + i], &seen, i ? until & LEASE_MASK : until))
            break;
        evicted += left && seen & LEASE_FIRST;
    }
    if (evicted)
        weir__count(&op->stats->evicted_live, evicted);
    if (i == count)
        return true;
    while (i-- > 0)
        weir__store32(&lease[at + i], 0);
    return false;
}

/* Looks for lapsed grains in a row from the cursor on. */
static bool take_lapsed(const struct weir__op *op, uint32_t count, uint32_t until, uint64_t *at)
{
    uint64_t grains = op->table->grains, run = 0;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % grains;
    uint64_t looks = grains < SCAN_MAX + count ? grains + count : SCAN_MAX + count;

    for (; looks > 0; looks--) {
        uint32_t word = weir__load32(&op->table->lease[next]);
        bool begins = !word || word & LEASE_FIRST;
        run = lease_left(op, word) || (!run && !begins) ? 0 : run + 1;
        if (run == count && take_run(op, next + 1 - count, count, until, false)) {
            weir__store64(&op->table->header->slab_cursor, next + 1);
            *at = next + 1 - count;
            return true;
        }
        if (run == count)
            run = 0;
        if (++next == grains) {
            next = 0;
            run = 0;
        }
    }
    return false;
}

/* The longest lease among the records in [at, at + count): how much would be lost by taking them. */
static uint32_t longest_lease(const struct weir__op *op, uint64_t at, uint32_t count)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t left = lease_left(op, weir__load32(&op->table->lease[at + i]));
        longest = left > longest ? left : longest;
    }
    return longest;
}

/* Takes grains from the live keys that would give them up soonest, of those looked at. */
static bool take_live(const struct weir__op *op, uint32_t count, uint32_t until, uint64_t *at)
{
    uint64_t grains = op->table->grains, best = grains;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % grains;
    uint32_t shortest = UINT32_MAX;
    int candidates = LIVE_MAX;

    for (uint64_t looks = grains < SCAN_MAX ? grains : SCAN_MAX; looks > 0 && candidates > 0; looks--) {
        uint32_t word = weir__load32(&op->table->lease[next]);
        if ((!word || word & LEASE_FIRST) && next + count <= grains) {
            uint32_t longest = longest_lease(op, next, count);
            candidates--;
            if (longest < shortest) {
                shortest = longest;
                best = next;
            }
        }
        next = (next + 1) % grains;
    }
    if (best == grains)
        return false;
    /* On either outcome: whoever comes next should look elsewhere, not fight for the same place. */
    weir__store64(&op->table->header->slab_cursor, best + count);
    *at = best;
    return take_run(op, best, count, until, true);
}

int weir__record_take(const struct weir__op *op, unsigned size_class, int64_t for_us, struct weir__record *record)
{
    uint32_t count = size_class < WEIR__CLASSES ? weir__class_grains(size_class) : 0;
    uint32_t until = lease_until(op, for_us) | LEASE_FIRST | LEASE_TAKING;
    uint64_t at;

    if (!count || count > op->table->grains)
        return WEIR_EFULL;
    for (int round = 0; round < TAKE_ROUNDS; round++) {
        if (take_lapsed(op, count, until, &at) || take_live(op, count, until, &at)) {
            *record = (struct weir__record){(uint32_t)at, size_class, until};
            return 0;
        }
    }
    return WEIR_EFULL;
}

void weir__record_release(const struct weir__op *op, struct weir__record record)
{
    uint32_t *lease = &op->table->lease[record.grain];
    if (!lease_left(op, record.lease) || !weir__cas32(lease, &record.lease, 0))
        return; /* lapsed, or somebody else's by now */
    for (uint32_t i = 1; i < weir__class_grains(record.size_class); i++)
        weir__store32(&lease[i], 0);
}

bool weir__record_own(const struct weir__op *op, struct weir__record *record, weir__cell head)
{
    weir__cell *at = weir__record_head(op, *record), seen = weir__cell_peek(at);
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        if (!weir__cell_cas(at, &seen, head))
            continue;
        uint32_t taking = record->lease;
        record->lease &= ~LEASE_TAKING;
        return weir__cas32(&op->table->lease[record->grain], &taking, record->lease);
    }
    return false;
}

int weir__key_record_find(const struct weir__op *op, const struct weir__where *where, struct weir__key_record *key)
{
    *key = (struct weir__key_record){0};
    key->slot = weir__find(op->table, where, &key->seen);
    if (key->slot)
        key->seen = weir__cell_read(key->slot); /* both halves, as the record is trusted with it */
    if (!key->slot || weir__cell_tag(key->seen.lo) != where->tag) {
        int error = weir__look(op, where, &key->slot, &key->seen);
        if (error || !key->slot)
            return error;
    }
    struct weir__parts held = weir__cell_unpack(key->seen);
    key->record = weir__record_unpack(held.used);
    /* Shared content is never trusted: a reference that leads outside counts as none. */
    if (held.state == WEIR__TENTATIVE ||
        (uint64_t)key->record.grain + weir__class_grains(key->record.size_class) > op->table->grains)
        return 0;
    /* The lease before the head: if the lease is as it was when we change it, so was the owner. */
    key->record.lease = weir__load32(&op->table->lease[key->record.grain]);
    key->head = weir__cell_read(weir__record_head(op, key->record));
    key->found = lease_left(op, key->record.lease) && (key->record.lease & LEASE_FIRST) &&
                 !(key->record.lease & LEASE_TAKING) && key->head.lo >> (64 - WEIR__OWNER_BITS) == weir__owner(where);
    return 0;
}

/* A slot that leads to `record` and is good for at least for_us. */
static weir__cell link_cell(const struct weir__op *op, uint64_t tag, weir__cell seen, struct weir__record record,
                            int64_t for_us)
{
    return weir__cell_pack((struct weir__parts){.tag = tag,
                                                .state = weir__is_normal(seen.lo) ? weir__cell_state(seen.lo) : 0,
                                                .whole = weir__whole_encode(for_us),
                                                .used = weir__record_pack(record),
                                                .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK});
}

bool weir__key_record_renew(const struct weir__op *op, struct weir__key_record *key, int64_t for_us)
{
    if (weir__cell_life(key->seen, op->mono_us, op->wall_us) >= for_us)
        return true;

    /* A quarter longer than needed, so that a busy key renews four times a window and not with every request. The
     * record's lease first: it must never end before the slot's. */
    weir__cell next = link_cell(op, weir__cell_tag(key->seen.lo), key->seen, key->record, for_us + for_us / 4);
    uint32_t until = lease_until(op, weir__whole_decode(weir__cell_unpack(next).whole));
    uint32_t *lease = &op->table->lease[key->record.grain], first = key->record.lease;
    if (!weir__cas32(lease, &first, until | LEASE_FIRST))
        return false;
    key->record.lease = until | LEASE_FIRST;
    for (uint32_t i = 1; i < weir__class_grains(key->record.size_class); i++)
        weir__store32(&lease[i], until);
    if (!weir__cell_cas(key->slot, &key->seen, next))
        return false;
    key->seen = next;
    return true;
}

bool weir__key_record_link(const struct weir__op *op, const struct weir__where *where, struct weir__key_record *key,
                           struct weir__record record, int64_t for_us, int *error)
{
    *error = 0;
    if (!key->slot) {
        weir__cell tentative = weir__cell_pack((struct weir__parts){.tag = where->tag,
                                                                    .state = WEIR__TENTATIVE,
                                                                    .whole = weir__whole_encode(1000000),
                                                                    .anchor = (uint64_t)op->mono_us & WEIR__TIME_MASK});
        *error = weir__claim(op, where, tentative, &key->slot, &key->seen);
        if (*error || weir__cell_state(key->seen.lo) != WEIR__TENTATIVE) {
            weir__record_release(op, record);
            return false;
        }
    }
    if (weir__cell_cas(key->slot, &key->seen, link_cell(op, where->tag, key->seen, record, for_us)))
        return true;
    weir__record_release(op, record);
    return false;
}
