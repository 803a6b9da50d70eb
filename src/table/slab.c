#include "table/slab.h"

#define LEASE_SHIFT 20                       /* lease words count in about seconds */
#define LEASE_MASK UINT32_C(0x7fffffff)
#define LEASE_FIRST UINT32_C(0x80000000)     /* a record begins here */
#define SCAN_MAX 32768                       /* grains looked at for one record, beyond its own size */

unsigned weir__class_for(uint64_t bytes)
{
    for (unsigned c = 0; c < WEIR__CLASSES; c++)
        if ((uint64_t)weir__class_grains(c) * WEIR__GRAIN >= bytes)
            return c;
    return WEIR__CLASSES;
}

static uint32_t lease_now(const struct weir__op *op)
{
    return (uint32_t)((uint64_t)op->mono_us >> LEASE_SHIFT) & LEASE_MASK;
}

/* A lease that does not end before for_us from now. Never 0: that is a free grain. */
static uint32_t lease_until(const struct weir__op *op, int64_t for_us)
{
    uint32_t until = (uint32_t)(((uint64_t)op->mono_us + (uint64_t)for_us) >> LEASE_SHIFT) + 1;
    until &= LEASE_MASK;
    return until ? until : 1;
}

/* Seconds, roughly, that a lease still runs; 0 if it has lapsed. Good for 17 years either way. */
static uint32_t lease_left(const struct weir__op *op, uint32_t word)
{
    if (!word)
        return 0;
    uint32_t left = ((word & LEASE_MASK) - lease_now(op)) & LEASE_MASK;
    return left > LEASE_MASK / 2 ? 0 : left;
}

/* Takes grains [at, at + count), all seen lapsed. On failure gives back what it took and returns false. */
static bool take_run(const struct weir__op *op, uint64_t at, uint32_t count, uint32_t until)
{
    uint32_t *lease = op->table->lease;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t seen = weir__load32(&lease[at + i]);
        if (!lease_left(op, seen) && weir__cas32(&lease[at + i], &seen, i ? until : until | LEASE_FIRST))
            continue;
        while (i-- > 0)
            weir__store32(&lease[at + i], 0);
        return false;
    }
    return true;
}

/* Looks for lapsed grains in a row from the cursor on. */
static bool take_lapsed(const struct weir__op *op, uint32_t count, uint32_t until, uint64_t *at)
{
    uint64_t grains = op->table->grains, run = 0;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % grains;
    uint64_t looks = grains < SCAN_MAX + count ? grains + count : SCAN_MAX + count;

    for (; looks > 0; looks--) {
        run = lease_left(op, weir__load32(&op->table->lease[next])) ? 0 : run + 1;
        if (run == count && take_run(op, next + 1 - count, count, until)) {
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

/* Length of the record that begins at `at`: up to the next first grain or lapsed one. */
static uint32_t record_length(const struct weir__op *op, uint64_t at, uint32_t enough)
{
    uint32_t length = 1;
    while (length < enough && at + length < op->table->grains) {
        uint32_t word = weir__load32(&op->table->lease[at + length]);
        if ((word & LEASE_FIRST) || !lease_left(op, word))
            break;
        length++;
    }
    return length;
}

/* Takes a record from the live key that would give it up soonest. */
static bool take_live(const struct weir__op *op, uint32_t count, uint32_t until, uint64_t *at)
{
    uint64_t grains = op->table->grains, best = 0;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % grains;
    uint32_t shortest = UINT32_MAX, best_word = 0;

    for (uint64_t looks = grains < SCAN_MAX ? grains : SCAN_MAX; looks > 0; looks--, next = (next + 1) % grains) {
        uint32_t word = weir__load32(&op->table->lease[next]);
        if (!(word & LEASE_FIRST) || lease_left(op, word) >= shortest || record_length(op, next, count) < count)
            continue;
        shortest = lease_left(op, word);
        best = next;
        best_word = word;
    }
    /* The first word decides who has it; its owner renews that one first, too. */
    if (shortest == UINT32_MAX || !weir__cas32(&op->table->lease[best], &best_word, until | LEASE_FIRST))
        return false;
    for (uint32_t i = 1; i < count; i++)
        weir__store32(&op->table->lease[best + i], until);
    weir__count(&op->stats->evicted_live, 1);
    weir__store64(&op->table->header->slab_cursor, best + count);
    *at = best;
    return true;
}

int weir__record_take(const struct weir__op *op, unsigned size_class, int64_t for_us, struct weir__record *record)
{
    uint32_t count = size_class < WEIR__CLASSES ? weir__class_grains(size_class) : 0;
    uint32_t until = lease_until(op, for_us);
    uint64_t at;

    if (!count || count > op->table->grains)
        return WEIR_EFULL;
    if (!take_lapsed(op, count, until, &at) && !take_live(op, count, until, &at))
        return WEIR_EFULL;
    *record = (struct weir__record){(uint32_t)at, size_class};
    return 0;
}

void weir__record_release(const struct weir__op *op, struct weir__record record)
{
    uint32_t *lease = &op->table->lease[record.grain];
    uint32_t first = weir__load32(lease);
    if (!lease_left(op, first) || !weir__cas32(lease, &first, 0))
        return; /* lapsed, and perhaps somebody else's by now */
    for (uint32_t i = 1; i < weir__class_grains(record.size_class); i++)
        weir__store32(&lease[i], 0);
}

bool weir__record_own(const struct weir__op *op, struct weir__record record, weir__cell head)
{
    weir__cell *at = weir__record_head(op, record), seen = weir__cell_peek(at);
    for (int round = 0; round < WEIR__ROUNDS; round++)
        if (weir__cell_cas(at, &seen, head))
            return true;
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
    if (held.state == WEIR__TENTATIVE || weir__cell_life(key->seen, op->mono_us, op->wall_us) <= 0 ||
        (uint64_t)key->record.grain + weir__class_grains(key->record.size_class) > op->table->grains)
        return 0;
    key->head = weir__cell_read(weir__record_head(op, key->record));
    key->found = key->head.lo >> (64 - WEIR__OWNER_BITS) == weir__owner(where);
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
    uint32_t *lease = &op->table->lease[key->record.grain], first = weir__load32(lease);
    if (!lease_left(op, first) || !weir__cas32(lease, &first, until | LEASE_FIRST))
        return false;
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
