/*
 * weir_take_batch: many decisions at once. A decision waits for memory and for mispredicted branches, so requests go
 * through in groups, and a group in steps, each a short loop without a branch that depends on a key:
 *
 *     hash_group        hashes, and prefetches the primary buckets
 *     search_primary    looks for the tags there, and prefetches the alternate buckets of those not found
 *     search_alternate  looks there
 *     decide            reads, decides and swaps, in the order of the requests
 *
 * hash_group of the next group runs before search_alternate of the present one, so that every prefetch has the time of
 * two steps. The slot found by a search is a hint: deciding reads it again, and whatever the fast path
 * (table/fast_path.h) does not cover goes to weir__table_take, which searches by itself.
 */
#include "engine/segment.h"
#include "table/hash.h"
#include "table/fast_path.h"

enum {
    GROUP = 32,    /* requests in flight at once; more evict each other from the cache */
    STRETCH = 4096 /* requests between two checks whether any key is blocked */
};

struct batch {
    struct weir__op op;
    weir_time now;
    weir_request *request; /* the first that no group has yet, and how many there are */
    size_t left;
    bool fast; /* no key is blocked */
    int failed;
    struct weir__stats_shard sum;
};

struct batch_key {
    struct weir__key_location where;
    weir__cell *slot; /* where its tag was found, or any */
};

struct batch_group {
    weir_request *request;
    size_t count, missed;
    bool fast; /* no request of it is faulty, and all may take the fast path */
    struct batch_key key[GROUP];
    struct batch_key *missed_key[GROUP]; /* of which `missed` are not in their primary bucket */
};

/* One function a step, not inlined: merged into one, they run out of registers. */
#define STEP static __attribute__((noinline))

/* Fills the group with the next requests. */
STEP void hash_group(struct batch *b, struct batch_group *g)
{
    const struct weir__table table = *b->op.table; /* a copy, which stays in registers */
    const weir_time now = b->now;
    struct batch_key *k = g->key;
    bool fast = b->fast;

    g->request = b->request;
    g->count = b->left < GROUP ? b->left : GROUP;
    b->request += g->count;
    b->left -= g->count;
    for (weir_request *r = g->request, *end = b->request; r < end; r++, k++) {
        const weir_limit *limit = r->limit;
        r->error = weir__request_check(limit, r->key, r->key_len, r->cost, now);
        fast &= !r->error && weir__may_take_fast(limit, r->cost);
        if (r->error) {
            *k = (struct batch_key){.slot = table.bucket->slot}; /* any: the next steps need no check */
            continue;
        }
        weir__key_primary(&table, limit, r->key, r->key_len, &k->where);
        weir__prefetch(&table.bucket[k->where.primary]);
        weir__fast_decision_init(limit, &r->decision); /* the part that does not depend on the entry */
    }
    g->fast = fast;
}

/* Returns true if the bucket does not have the tag. */
static inline bool search(struct batch_key *k, struct weir__bucket *bucket)
{
    uint64_t found = weir__bucket_match(bucket->slot, weir__tag_high(k->where.tag));
    k->slot = weir__bucket_first(bucket->slot, found);
    return !found;
}

STEP void search_primary(const struct batch *b, struct batch_group *g)
{
    const struct weir__table *table = b->op.table;
    size_t count = 0;
    for (struct batch_key *k = g->key, *end = k + g->count; k < end; k++) {
        g->missed_key[count] = k;
        count += search(k, &table->bucket[k->where.primary]); /* NOLINT(clang-analyzer-core.*): hash_group filled it */
    }
    g->missed = count;
    for (size_t i = 0; i < count; i++) {
        struct weir__key_location *where = &g->missed_key[i]->where;
        weir__locate_alternate(table, where);
        weir__prefetch(&table->bucket[where->alternate]);
    }
}

STEP void search_alternate(const struct batch *b, struct batch_group *g)
{
    for (size_t i = 0; i < g->missed; i++)
        (void)search(g->missed_key[i], &b->op.table->bucket[g->missed_key[i]->where.alternate]);
}

/* Decides one request on the slow path, unless it is faulty. */
STEP void decide_slow(struct batch *b, weir_request *r, struct batch_key *k)
{
    weir_decision made;
    if (!r->error)
        r->error = weir__take_slow(&b->op, r->limit, &k->where, r->cost, &made);
    if (r->error) {
        b->sum.errors++;
        b->failed++;
        return;
    }
    r->decision = made;
    b->sum.verdict[made.verdict]++;
    b->sum.soft += made.flags & WEIR_OVER_SOFT;
}

/*
 * Decides the request at `r`, and those after it, up to `end`, that have the same entry and limit, in order and by one
 * swap: threads that take from one key wait for each other's swaps. Returns how many were decided; 0: the slow path
 * must decide the first.
 */
static inline size_t take_run(int64_t mono_us, weir_request *r, const weir_request *end, const struct batch_key *k)
{
    const uint64_t wanted = weir__tag_bits_of(k->where.tag);
    struct weir__step step, next;
    size_t count = 1;
    if (!weir__fast_look(mono_us, r->limit, k->slot, wanted, r->cost, &step))
        return 0;
    weir__cell seen = step.seen;
    for (; r + count < end && k[count].slot == k->slot && k[count].where.tag == k->where.tag &&
           r[count].limit == r->limit && weir__fast_step(mono_us, r->limit, step.next, wanted, r[count].cost, &next);
         count++) {
        weir__fast_decision_fill(&step, &r[count - 1].decision);
        step = next;
    }
    if (!weir__cell_cas(k->slot, &seen, step.next))
        return 0;
    weir__fast_decision_fill(&step, &r[count - 1].decision);
    return count;
}

STEP void decide(struct batch *b, struct batch_group *g)
{
    const int64_t mono_us = b->op.mono_us;
    const bool all_fast = g->fast, may_be_fast = b->fast;
    struct batch_key *k = g->key;
    uint64_t slow = 0;
    for (weir_request *r = g->request, *end = r + g->count; r < end;) {
        bool fast = all_fast || (may_be_fast && !r->error && weir__may_take_fast(r->limit, r->cost));
        size_t taken = fast ? take_run(mono_us, r, all_fast ? end : r + 1, k) : 0;
        if (!taken) {
            decide_slow(b, r, k);
            slow++;
            taken = 1;
        }
        r += taken;
        k += taken;
    }
    b->sum.verdict[WEIR_ALLOW] += g->count - slow;
}

/* Adds the batch's sums to the shared counters. */
static void add_counts(const struct batch *b)
{
    struct weir__stats_shard *to = b->op.stats;
    for (int i = 0; i < 5; i++)
        if (b->sum.verdict[i])
            weir__count(&to->verdict[i], b->sum.verdict[i]);
    if (b->sum.soft)
        weir__count(&to->soft, b->sum.soft);
    if (b->sum.errors)
        weir__count(&to->errors, b->sum.errors);
}

/* Decides all requests that are left, group by group. */
static void take_groups(struct batch *b)
{
    struct batch_group group[2], *present = &group[0], *next = &group[1];
    hash_group(b, present);
    while (present->count) {
        search_primary(b, present);
        hash_group(b, next);
        search_alternate(b, present);
        decide(b, present);
        struct batch_group *done = present;
        present = next;
        next = done;
    }
}

int weir_take_batch(weir_segment *segment, weir_request *requests, size_t count, weir_time now)
{
    if (!segment || (!requests && count) || count > INT32_MAX)
        return WEIR_EINVAL;
    if (segment->mapped.read_only)
        return WEIR_EREADONLY;
    struct batch b = {
        .op = weir__operation(segment, weir__stats_shard_here(segment), now), .now = now, .request = requests};
    while (count) {
        b.left = count < STRETCH ? count : STRETCH;
        count -= b.left;
        b.fast = !weir__any_blocked(b.op.table, b.op.mono_us);
        take_groups(&b);
    }
    if (weir__lost(segment))
        return WEIR_ELOST;
    add_counts(&b);
    return b.failed;
}
