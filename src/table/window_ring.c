/*
 * The sliding window counter with more than two buckets: a record with one word a part of the window.
 *
 *     head  mark 26 | use 2 | sealed 1 | part 35    current 32 | before 32
 *     body  n words: part (low 32 bits) 32 | count 32
 *
 * The head has the number of the current part, its count, and the sum of the n - 1 parts before it, so a request within
 * a part is one compare-and-swap. When a new part begins, the old count must be in the body before the head advances:
 * the head is SEALED (its count is final), the word is written (concurrent writers write the same), then the head
 * advances. After a crash in between, the next request continues from the sealed head.
 */
#include "table/slab.h"

#define PART_MASK ((UINT64_C(1) << 35) - 1)
#define SEALED    (UINT64_C(1) << 35)

struct ring_head {
    bool sealed;
    int64_t part; /* number since time 0 */
    uint32_t current, before;
    uint64_t use; /* its position in a head */
};

static struct ring_head unpack(weir__cell cell, int64_t part_now)
{
    uint64_t age = ((uint64_t)part_now - cell.lo) & PART_MASK;
    int64_t part = age <= PART_MASK / 2 ? part_now - (int64_t)age : part_now + (int64_t)(PART_MASK + 1 - age);
    return (struct ring_head){cell.lo & SEALED, part, (uint32_t)(cell.hi >> 32), (uint32_t)cell.hi,
                              cell.lo & WEIR__USE_MASK};
}

/* `mark`: the bits of the head that belong to the slab. */
static weir__cell pack(uint64_t mark, struct ring_head h)
{
    return (weir__cell){mark | h.use | (h.sealed ? SEALED : 0) | ((uint64_t)h.part & PART_MASK),
                        (uint64_t)h.current << 32 | h.before};
}

/* The counts of the n - 1 parts before `part`, newest first, and their sum. The head's part may be one of them. */
static int64_t gather(const uint64_t *word, const weir_limit *limit, const struct ring_head *head, int64_t part,
                      uint32_t *counts)
{
    int64_t n = limit->buckets, sum = 0;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t p = part - 1 - i;
        uint64_t known = p < 0 ? 0 : weir__load64(&word[p % n]);
        counts[i] = p == head->part ? head->current : p >= 0 && known >> 32 == (uint32_t)p ? (uint32_t)known : 0;
        if (p > head->part)
            counts[i] = 0;
        sum += counts[i];
    }
    return sum > INT32_MAX ? INT32_MAX : sum;
}

/* Writes the sealed count into its word. False: the head has advanced, retry. */
static bool flush(const weir__cell *at, weir__cell seen, uint64_t *word, const struct ring_head *head, int64_t n)
{
    uint64_t want = (uint64_t)(uint32_t)head->part << 32 | head->current, *to = &word[head->part % n];
    uint64_t known = weir__load64(to);
    /* The word contains its part number, which only grows: no ABA. */
    for (int round = 0; known != want; round++) {
        if (round == WEIR__ROUNDS || !weir__cell_equal(weir__cell_read(at), seen))
            return false;
        if (weir__cas64(to, &known, want))
            break;
    }
    return true;
}

static int make(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                struct weir__key_record *key, int64_t for_us, int64_t part)
{
    struct weir__record record;
    unsigned size_class = weir__class_for(sizeof(weir__cell) + sizeof(uint64_t) * limit->buckets);
    int error = weir__record_take(op, size_class, for_us + for_us / 4 + for_us / 2, NULL, true, &record);
    if (error)
        return error;
    if (!weir__record_publish(op, where, &record, pack(0, (struct ring_head){.part = part})))
        return 0; /* the lease ended meanwhile: retry */
    uint64_t *word = weir__record_body(op, record);
    for (int i = 0; i < limit->buckets; i++)
        weir__store64(&word[i], 0);
    error = weir__key_record_link(op, where, key, record, for_us);
    return error < 0 ? error : 0;
}

int weir__ring_attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                       int64_t cost, enum weir__mode mode, weir_decision *decision)
{
    uint32_t counts[WEIR__BUCKETS_MAX] = {0};
    int64_t part = op->mono_us / limit->part_us, lease = limit->part_us * (limit->buckets + 1);
    struct weir__sliding state = {0};
    struct weir__key_record key;
    struct ring_head head = {0};
    int error = weir__key_record_find(op, where, &key);
    if (error)
        return error;

    bool found = key.found && weir__record_body_bytes(key.record) >= sizeof(uint64_t) * limit->buckets;
    if (found) {
        head = unpack(key.head, part);
        /* Further ahead than a clock step explains: damaged. */
        found = head.part >= 0 && head.part - part <= WEIR__WINDOW_MAX / limit->part_us + 2;
    }
    uint64_t *word = found ? weir__record_body(op, key.record) : NULL;
    if (found) {
        int64_t reached = head.part + head.sealed; /* sealed: another process has entered the next part */
        if (reached > part)
            part = reached;
        state.current = head.part == part ? head.current : 0;
        state.before = head.part == part ? head.before : gather(word, limit, &head, part, counts);
    }
    state.start_us = part * limit->part_us;
    /* The single counts only determine the waiting time: an allowed request does not read them. */
    if (found && head.part == part && (state.current + state.before + cost > limit->cap || state.current + cost <= 0))
        gather(word, limit, &head, part, counts);

    if (!weir__counterN_take(limit, &state, counts, op->mono_us, cost, mode, decision) || !op->stats) {
        return !found || weir__key_record_leave(op, &key, decision->verdict == WEIR_DENY);
    }
    if (!found)
        return cost < 0 ? 1 : make(op, limit, where, &key, lease, part);
    if (!weir__key_record_renew(op, &key, lease))
        return 0;

    weir__cell *at = weir__record_head(op, key.record);
    if (head.part != part && !head.sealed) {
        head.sealed = true;
        weir__cell_cas(at, &key.head, pack(weir__head_mark(key.head), head));
        return 0;
    }
    if (head.part != part && !flush(at, key.head, word, &head, limit->buckets))
        return 0;
    bool denied = weir__head_use(key.head) == WEIR__USE_DENIED;
    struct ring_head next = {false, part, (uint32_t)state.current, (uint32_t)state.before,
                             weir__use_bits(state.current + state.before, limit->cap, denied)};
    if (weir__cell_cas(at, &key.head, pack(weir__head_mark(key.head), next)))
        return 1;
    weir__count(&op->stats->retries, 1);
    return 0;
}
