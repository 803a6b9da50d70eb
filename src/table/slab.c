/* The slab of records (slab.h): taking, releasing and evicting chunks, and ranking records for eviction. */
#include "table/permits.h"

/*
 * A lease word: 0 is a free chunk; otherwise the end of the lease, in units of about two seconds.
 *
 * Only the first chunk of a record decides who owns it: chunks are taken as whole records from the first one on, so a
 * late owner finds the first word changed, whatever the other words hold.
 */
#define LEASE_SHIFT    21
#define LEASE_ABA_BITS 3
#define LEASE_TIME     UINT32_C(0x07ffffff)
#define LEASE_MASK     UINT32_C(0x3fffffff) /* time and ABA tag */
#define LEASE_TAKING   UINT32_C(0x40000000) /* first chunk: the head is still the previous owner's */
#define SCAN_MAX       32768                /* chunks scanned for one record, beyond its own size */
#define LIVE_MAX       64                   /* eviction candidates that are compared */
#define LAPSED_ROUNDS  3                    /* scans for lapsed chunks before a live record is evicted */
#define KEPT_ROUNDS    4                    /* scans when all candidates are protected */
#define TAKE_ROUNDS    64                   /* retries when others take the same chunks */

/* The loss by an eviction, smallest first. */
enum rank {
    RANK_FREE,   /* none: the lease has ended */
    RANK_UNUSED, /* none: no permit is taken */
    RANK_LOW,    /* these three in the order of enum weir__use */
    RANK_HIGH,
    RANK_DENIED,
    RANK_TAKING /* being written, or left so by a dead process: not evictable */
};

unsigned weir__class_for(uint64_t bytes)
{
    for (unsigned c = 0; c < WEIR__CLASSES; c++)
        if ((uint64_t)weir__class_chunks(c) * WEIR__CHUNK >= bytes)
            return c;
    return WEIR__CLASSES;
}

static uint32_t lease_time(int64_t us)
{
    return (uint32_t)((uint64_t)us >> LEASE_SHIFT) & LEASE_TIME;
}

/*
 * A lease of at least for_us that replaces `was`. Its ABA tag continues that of the replaced word, so that two leases
 * of the same two seconds differ.
 */
static uint32_t lease_after(const struct weir__op *op, uint32_t was, int64_t for_us)
{
    uint32_t until = lease_time(op->mono_us + for_us + (INT64_C(1) << LEASE_SHIFT));
    uint32_t word = until << LEASE_ABA_BITS | ((was + 1) & ((1U << LEASE_ABA_BITS) - 1));
    return word ? word : 1U << LEASE_ABA_BITS;
}

/* Remaining time of a lease; 0 if it has ended. Valid within four years either way; the longest lease is 2.5 years. */
static uint32_t lease_left(const struct weir__op *op, uint32_t word)
{
    if (!word)
        return 0;
    uint32_t left = (((word & LEASE_MASK) >> LEASE_ABA_BITS) - lease_time(op->mono_us)) & LEASE_TIME;
    return left > LEASE_TIME / 2 ? 0 : left;
}

/*
 * The rank of a record of permits by its first map of 32 slots, which is a hint (permits.h). The lowest free permit
 * slot is taken first: the map covers all slots of a record with at most 32, and those taken first of a larger one.
 */
static enum rank rank_of_permits(weir__cell head, uint64_t map)
{
    int64_t reach = weir__permit_reach(head), current = __builtin_popcount((uint32_t)map);
    bool all = reach <= WEIR__PERMIT_MAP_SLOTS;
    if (map >> 32 != (uint32_t)head.hi)
        return RANK_LOW; /* not initialised yet */
    if (!current)
        return all ? RANK_UNUSED : RANK_LOW;
    if (!all)
        return current < WEIR__PERMIT_MAP_SLOTS ? RANK_LOW : RANK_HIGH;
    return current >= reach ? RANK_DENIED : current > reach / 2 ? RANK_HIGH : RANK_LOW;
}

/* The rank of the record that begins at `chunk` with lease `word`. May race with changes. */
static enum rank rank_of(const struct weir__op *op, uint64_t chunk, uint32_t word)
{
    if (!lease_left(op, word))
        return RANK_FREE;
    if (word & LEASE_TAKING)
        return RANK_TAKING;
    struct weir__record record = {.chunk = (uint32_t)chunk};
    weir__cell head = weir__cell_peek(weir__record_head(op, record));
    enum weir__use use = weir__head_use(head);
    if (use == WEIR__USE_PERMITS)
        return rank_of_permits(head, weir__load64(weir__record_body(op, record)));
    return (enum rank)(RANK_LOW + (int)use);
}

/* Frees the remaining chunks of a record whose first chunk was taken. */
static void free_rest(const struct weir__op *op, uint64_t at)
{
    for (; at < op->table->chunks; at++) {
        uint32_t word = weir__load32(&op->table->lease[at]);
        if (!word || word & WEIR__LEASE_FIRST || !weir__cas32(&op->table->lease[at], &word, 0))
            return;
    }
}

/* Adds `one` to the statistics of evictions: 1, or UINT64_MAX to subtract 1. */
static void count_eviction(const struct weir__op *op, bool denied, uint64_t one)
{
    weir__count(&op->stats->evicted_live, one);
    if (denied)
        weir__count(&op->stats->evicted_denied, one);
}

/*
 * Takes chunks [at, at + count), which begin at the start of a record; only lapsed ones unless `live`. Returns the
 * lease of the first, or releases what it took and returns 0.
 */
static uint32_t take_run(const struct weir__op *op, uint64_t at, uint32_t count, int64_t for_us, bool live)
{
    uint32_t *lease = op->table->lease, first = 0, i = 0;
    for (; i < count; i++) {
        uint32_t seen = weir__load32(&lease[at + i]), left = lease_left(op, seen);
        bool complete = !left || seen & WEIR__LEASE_FIRST || i > 0; /* records are taken from their first chunk on */
        if (!complete || (left && (!live || seen & LEASE_TAKING)))
            break;
        if (i == 0)
            first = lease_after(op, seen, for_us) | WEIR__LEASE_FIRST | LEASE_TAKING;
        /* Counted before the swap: a crash in between must not hide an eviction. */
        bool loses = left && seen & WEIR__LEASE_FIRST, denied = loses && rank_of(op, at + i, seen) == RANK_DENIED;
        if (loses)
            count_eviction(op, denied, 1);
        if (!weir__cas32(&lease[at + i], &seen, i ? first & LEASE_MASK : first)) {
            if (loses)
                count_eviction(op, denied, UINT64_MAX); /* it did not happen */
            break;
        }
    }
    if (i == count) {
        free_rest(op, at + count);
        return first;
    }
    while (i-- > 0) {
        uint32_t mine = i ? first & LEASE_MASK : first;
        weir__cas32(&lease[at + i], &mine, 0);
    }
    return 0;
}

/*
 * header->slab_searched: tick 27 | size class 6 | chunks 31. In that tick of the lease clock, that many chunks were
 * scanned for a lapsed record of that class without success. Once it covers the whole slab, scans for this class or
 * larger ones stop until the next tick or the next release: in a flood of new keys each key would scan all of it. A
 * hint: a record that is released during a scan may be missed until then.
 */
#define SEARCHED_BITS 31
#define SEARCHED_MASK ((UINT64_C(1) << SEARCHED_BITS) - 1)
#define SEARCHED_TICK (SEARCHED_BITS + 6)
_Static_assert(WEIR__CLASSES == 1 << 6, "a size class has 6 bits");

static bool none_lapsed(const struct weir__op *op, unsigned size_class)
{
    uint64_t word = weir__load64(&op->table->header->slab_searched);
    return word >> SEARCHED_TICK == lease_time(op->mono_us) && size_class >= (word >> SEARCHED_BITS) % WEIR__CLASSES &&
           (word & SEARCHED_MASK) >= op->table->chunks;
}

static void record_none_lapsed(const struct weir__op *op, unsigned size_class, uint64_t looked)
{
    uint64_t *word = &op->table->header->slab_searched, seen = weir__load64(word), tick = lease_time(op->mono_us);
    uint64_t known = (seen >> SEARCHED_BITS) % WEIR__CLASSES;
    bool now = seen >> SEARCHED_TICK == tick;
    if (now && known < size_class)
        return; /* a smaller class was scanned for */
    looked += now && known == size_class ? seen & SEARCHED_MASK : 0;
    looked = looked < SEARCHED_MASK ? looked : SEARCHED_MASK;
    weir__cas64(word, &seen, tick << SEARCHED_TICK | (uint64_t)size_class << SEARCHED_BITS | looked);
}

/* Scans for a run of lapsed chunks from the cursor on. */
static uint32_t take_lapsed(const struct weir__op *op, unsigned size_class, int64_t for_us, uint64_t *at)
{
    uint32_t count = weir__class_chunks(size_class);
    uint64_t chunks = op->table->chunks, run = 0;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % chunks;
    uint64_t most = chunks < SCAN_MAX ? chunks : SCAN_MAX;

    for (uint64_t looks = most + count; looks > 0; looks--) {
        uint32_t word = weir__load32(&op->table->lease[next]);
        bool begins = !word || word & WEIR__LEASE_FIRST;
        run = lease_left(op, word) || (!run && !begins) ? 0 : run + 1;
        if (run == count) {
            uint32_t first = take_run(op, next + 1 - count, count, for_us, false);
            *at = next + 1 - count;
            run = 0;
            if (first) {
                weir__store64(&op->table->header->slab_cursor, next + 1);
                return first;
            }
        }
        if (++next == chunks) {
            next = 0;
            run = 0;
        }
    }
    weir__store64(&op->table->header->slab_cursor, next); /* start elsewhere next time */
    record_none_lapsed(op, size_class, most);
    return 0;
}

/* The loss by taking [at, at + count): the highest rank among the records there, then the longest lease. */
struct loss {
    enum rank rank;
    uint32_t longest;
};

static struct loss loss_of(const struct weir__op *op, uint64_t at, uint32_t count)
{
    struct loss loss = {RANK_FREE, 0};
    for (uint32_t i = 0; i < count && loss.rank < RANK_TAKING; i++) {
        uint32_t word = weir__load32(&op->table->lease[at + i]), left = lease_left(op, word);
        enum rank rank = word & WEIR__LEASE_FIRST ? rank_of(op, at + i, word) : RANK_FREE;
        loss.rank = rank > loss.rank ? rank : loss.rank;
        loss.longest = left > loss.longest ? left : loss.longest;
    }
    return loss;
}

static bool is_less(struct loss a, struct loss b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.longest < b.longest;
}

static bool overlaps(const struct weir__record *record, uint64_t at, uint32_t count)
{
    return record && at < (uint64_t)record->chunk + weir__class_chunks(record->size_class) &&
           record->chunk < at + count;
}

/*
 * Evicts live records, with the smallest loss among the candidates. With `stand_in` only those of keys that have used
 * at most half of their limit. Otherwise records of denied keys are protected, unless they own more than half of the
 * scanned chunks. *kept: nothing was taken because all candidates are protected.
 */
static uint32_t take_live(const struct weir__op *op, uint32_t count, int64_t for_us, const struct weir__record *keep,
                          bool stand_in, uint64_t *at, bool *kept)
{
    uint64_t chunks = op->table->chunks, best = chunks, looks = chunks < SCAN_MAX ? chunks : SCAN_MAX;
    uint64_t next = weir__load64(&op->table->header->slab_cursor) % chunks, looked = 0, denied = 0;
    struct loss least = {RANK_TAKING, 0};
    bool is_denied = false;

    for (int candidates = LIVE_MAX; looked < looks && candidates > 0; looked++) {
        uint32_t word = weir__load32(&op->table->lease[next]);
        if (!word || word & WEIR__LEASE_FIRST) {
            is_denied = rank_of(op, next, word) == RANK_DENIED;
            candidates--;
            struct loss loss = next + count <= chunks && !overlaps(keep, next, count) ? loss_of(op, next, count)
                                                                                      : (struct loss){RANK_TAKING, 0};
            if (is_less(loss, least)) {
                least = loss;
                best = next;
            }
        }
        denied += is_denied;
        next = (next + 1) % chunks;
    }
    *kept = best < chunks && (stand_in ? least.rank > RANK_LOW : least.rank == RANK_DENIED && denied <= looked / 2);
    if (*kept)
        weir__store64(&op->table->header->slab_cursor, next);
    if (best == chunks || *kept)
        return 0;
    /* On either outcome the next process starts elsewhere, instead of contending for the same chunks. */
    weir__store64(&op->table->header->slab_cursor, best + count);
    *at = best;
    return take_run(op, best, count, for_us, true);
}

int weir__record_take(const struct weir__op *op, unsigned size_class, int64_t for_us, const struct weir__record *keep,
                      bool stand_in, struct weir__record *record)
{
    uint32_t count = size_class < WEIR__CLASSES ? weir__class_chunks(size_class) : 0;
    int rounds = count && count <= op->table->chunks ? TAKE_ROUNDS : 0, kept_rounds = KEPT_ROUNDS;
    uint64_t at;

    for (int round = 0; round < rounds && kept_rounds > 0; round++) {
        bool kept = false, none = none_lapsed(op, size_class);
        uint32_t first = none ? 0 : take_lapsed(op, size_class, for_us, &at);
        if (!first && (none || round >= LAPSED_ROUNDS))
            first = take_live(op, count, for_us, keep, stand_in, &at, &kept);
        if (first) {
            *record = (struct weir__record){(uint32_t)at, size_class, first};
            return 0;
        }
        kept_rounds -= kept;
    }
    weir__count(&op->stats->slab_full, 1);
    return WEIR_EFULL;
}

/* Replaces the lease words of a record by `next`; 0 frees it. False: another process owns the first word. */
static bool replace_lease(const struct weir__op *op, struct weir__record *record, uint32_t next)
{
    uint32_t *lease = &op->table->lease[record->chunk], was = record->lease;
    /* The first word decides the ownership: it is extended first and freed last. */
    if (next && !weir__cas32(lease, &record->lease, next | WEIR__LEASE_FIRST))
        return false;
    for (uint32_t i = weir__class_chunks(record->size_class) - 1; i > 0; i--) {
        uint32_t tail = was & LEASE_MASK;
        weir__cas32(&lease[i], &tail, next);
    }
    if (!next)
        return weir__cas32(lease, &record->lease, 0);
    record->lease = next | WEIR__LEASE_FIRST;
    return true;
}

void weir__record_release(const struct weir__op *op, struct weir__record record)
{
    /* A lapsed record may belong to another process. */
    if (!lease_left(op, record.lease) || weir__load32(&op->table->lease[record.chunk]) != record.lease)
        return;
    replace_lease(op, &record, 0);
    weir__store64(&op->table->header->slab_searched, 0);
}

bool weir__record_publish(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__record *record, weir__cell head)
{
    weir__cell *at = weir__record_head(op, *record), seen = weir__cell_read(at), put = head;
    uint32_t *lease = &op->table->lease[record->chunk];
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        /* Checked after `seen` was read: if the lease is ours, `seen` is not the head of a later owner. */
        if (weir__load32(lease) != record->lease)
            return false;
        uint64_t sequence = ((seen.lo >> WEIR__HEAD_SHIFT) + 1) & ((1U << WEIR__OWNER_SEQUENCE_BITS) - 1);
        put.lo = head.lo | (weir__owner(where) << WEIR__OWNER_SEQUENCE_BITS | sequence) << WEIR__HEAD_SHIFT;
        if (!weir__cell_cas(at, &seen, put))
            continue;
        uint32_t taking = record->lease;
        record->lease &= ~LEASE_TAKING;
        return weir__cas32(lease, &taking, record->lease);
    }
    return false;
}

int weir__key_record_find(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__key_record *key)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        *key = (struct weir__key_record){0};
        key->slot = weir__lookup(op->table, where, &key->seen);
        int error = key->slot ? 0 : weir__lookup_helping(op, where, &key->slot, &key->seen);
        if (error || !key->slot)
            return error;
        key->record = weir__record_unpack(weir__cell_unpack(key->seen).used);
        /* Shared memory is not trusted: a reference out of range counts as none. */
        if (weir__cell_state(key->seen.lo) != WEIR__TENTATIVE &&
            (uint64_t)key->record.chunk + weir__class_chunks(key->record.size_class) <= op->table->chunks) {
            /* The lease is read before the head: if a later swap of the lease succeeds, the owner was the same. */
            uint32_t lease = weir__load32(&op->table->lease[key->record.chunk]);
            key->record.lease = lease;
            key->head = weir__cell_read(weir__record_head(op, key->record));
            key->found = lease_left(op, lease) && (lease & (WEIR__LEASE_FIRST | LEASE_TAKING)) == WEIR__LEASE_FIRST &&
                         key->head.lo >> (64 - WEIR__OWNER_BITS) == weir__owner(where);
        }
        /* The head belongs to the slot only if the slot still refers to the record; a torn `seen` is detected, too. */
        if (weir__cell_equal(weir__cell_read(key->slot), key->seen))
            return 0;
    }
    return WEIR_EBUSY;
}

/*
 * A slot that refers to `record` and expires after at least for_us. It differs from every earlier content of the slot,
 * although a log may return to a former record: its anchor grows with each change, at least by a microsecond. (A slot
 * that was dropped and claimed again in the same microsecond has a version from its ABA tag.)
 */
static weir__cell link_cell(const struct weir__op *op, uint64_t tag, weir__cell seen, struct weir__record record,
                            int64_t for_us)
{
    struct weir__slot_fields current = weir__cell_unpack(seen);
    int64_t anchor = op->mono_us;
    bool normal = weir__is_normal(seen.lo) && current.tag == tag;
    if (normal && weir__anchor_expand(current.anchor, op->mono_us) >= anchor)
        anchor = weir__anchor_expand(current.anchor, op->mono_us) + 1;
    return weir__cell_pack(
        (struct weir__slot_fields){.tag = tag,
                                   .version = normal ? current.version : current.used % WEIR__VERSIONS,
                                   .expiry = weir__expiry_encode(op->mono_us + for_us - anchor),
                                   .used = weir__record_pack(record),
                                   .anchor = (uint64_t)anchor & WEIR__TIME_MASK});
}

bool weir__key_record_renew(const struct weir__op *op, struct weir__key_record *key, int64_t for_us)
{
    if (weir__cell_life(key->seen, op->mono_us, op->wall_us) >= for_us)
        return true;

    /*
     * A quarter longer than needed, so that a busy key renews four times a window and not with every request. First the
     * record's lease: it must not end before the slot expires.
     */
    weir__cell next = link_cell(op, weir__cell_tag(key->seen.lo), key->seen, key->record, for_us + for_us / 4);
    uint32_t until = lease_after(op, key->record.lease, weir__cell_life(next, op->mono_us, op->wall_us));
    if (!replace_lease(op, &key->record, until))
        return false;
    if (!weir__cell_cas(key->slot, &key->seen, next))
        return false;
    key->seen = next;
    return true;
}

int weir__key_record_link(const struct weir__op *op, const struct weir__key_location *where,
                          struct weir__key_record *key, struct weir__record record, int64_t for_us)
{
    bool vacant = !key->slot;
    int error = vacant ? weir__slot_claim(op, where, weir__cell_tentative(op, where->tag), &key->slot, &key->seen) : 0;
    bool linked = !error && (!vacant || weir__cell_state(key->seen.lo) == WEIR__TENTATIVE) &&
                  weir__cell_cas(key->slot, &key->seen, link_cell(op, where->tag, key->seen, record, for_us));
    if (!linked)
        weir__record_release(op, record);
    else if (key->found)
        weir__record_release(op, key->record);
    return error ? error : linked;
}

bool weir__key_record_leave(const struct weir__op *op, const struct weir__key_record *key, bool denied)
{
    weir__cell *at = weir__record_head(op, key->record), seen = key->head, marked = seen;
    enum weir__use use = weir__head_use(seen);
    denied &= op->stats && (use == WEIR__USE_HIGH || use == WEIR__USE_DENIED);
    if (denied && !weir__cell_is_denied(key->seen))
        (void)weir__slot_mark(key->slot, key->seen);
    if (!denied || use == WEIR__USE_DENIED)
        return weir__cell_equal(weir__cell_read(at), seen);
    marked.lo = (seen.lo & ~WEIR__USE_MASK) | (uint64_t)WEIR__USE_DENIED << WEIR__USE_SHIFT;
    return weir__cell_cas(at, &seen, marked);
}

void weir__key_record_deny(const struct weir__op *op, const struct weir__key_location *where)
{
    struct weir__key_record key;
    if (weir__key_record_find(op, where, &key) == 0 && key.found)
        (void)weir__key_record_leave(op, &key, true); /* a concurrent change: the next denial marks it */
}

int weir__key_record_drop(const struct weir__op *op, const struct weir__key_location *where)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        struct weir__key_record key;
        int error = weir__key_record_find(op, where, &key);
        if (error || !key.slot)
            return error;
        if (!weir__cell_cas(key.slot, &key.seen, weir__cell_empty(key.seen)))
            continue;
        if (key.found)
            weir__record_release(op, key.record);
        return 0;
    }
    return WEIR_EBUSY;
}
