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
    uint64_t tag_bits; /* see weir__tag_bits_of */
    struct weir__bucket *primary;
    weir__cell *slot; /* where its tag was found, or any */
};

struct batch_group {
    weir_request *request;
    size_t count, missed;
    bool fast; /* no request of it is faulty, and all may take the fast path */
    struct batch_key key[GROUP];
    struct missed {
        struct batch_key *key;
        struct weir__bucket *alternate;
    } missed_key[GROUP]; /* of which `missed` are not in their primary bucket */
};

/* One function a step, not inlined: merged into one, they run out of registers. */
#define STEP static __attribute__((noinline))

/* Fills the group with the next requests. */
STEP void hash_group(struct batch *b, struct batch_group *g)
{
    const struct weir__table *table = b->op.table;
    const uint8_t *secret = table->header->secret;
    struct weir__bucket *bucket = table->bucket;
    const uint64_t buckets = table->buckets;
    /* The last limit and cost that were checked. Not NULL at first: a request may have that. */
    static const weir_limit none;
    const weir_limit *known = &none;
    int64_t known_cost = 0;
    struct batch_key *k = g->key;
    bool fast = b->fast;

    g->request = b->request;
    g->count = b->left < GROUP ? b->left : GROUP;
    b->request += g->count;
    b->left -= g->count;
    for (weir_request *r = g->request, *end = b->request; r < end; r++, k++) {
        const weir_limit *limit = r->limit;
        r->error = 0;
        if (limit != known || r->cost != known_cost || !r->key || r->key_len - 1 >= WEIR__KEY_BYTES_MAX) {
            r->error = weir__request_check(limit, r->key, r->key_len, r->cost, b->now);
            fast &= !r->error && weir__may_take_fast(limit, r->cost);
            if (r->error) {
                *k = (struct batch_key){0, bucket, bucket->slot}; /* any: the next steps need no check */
                continue;
            }
            known = limit;
            known_cost = r->cost;
        }
        uint64_t hash = weir__hash(r->key, r->key_len, secret) ^ limit->salt;
        k->tag_bits = weir__tag_bits_of(hash);
        if (__builtin_expect(weir__with_tag(hash) != hash, 0))
            k->tag_bits = weir__tag_bits_of(weir__with_tag(hash));
        k->primary = &bucket[weir__scale(hash, buckets)];
        weir__prefetch(k->primary);
        weir__fast_decision_init(limit, &r->decision); /* the part that does not depend on the entry */
    }
    g->fast = fast;
}

/* Returns true if the bucket does not have the tag. */
static inline bool search(struct batch_key *k, struct weir__bucket *bucket)
{
    uint64_t found = weir__bucket_match(bucket->slot, weir__tag_high(weir__cell_tag(k->tag_bits)));
    k->slot = weir__bucket_first(bucket->slot, found);
    return !found;
}

STEP void search_primary(const struct batch *b, struct batch_group *g)
{
    const struct weir__table *table = b->op.table;
    size_t count = 0;
    for (struct batch_key *k = g->key, *end = k + g->count; k < end; k++) {
        g->missed_key[count].key = k;
        count += search(k, k->primary); /* NOLINT(clang-analyzer-core.CallAndMessage): hash_group has filled as many */
    }
    g->missed = count;
    for (struct missed *m = g->missed_key, *end = m + count; m < end; m++) {
        const struct batch_key *k = m->key;
        uint64_t primary = (uint64_t)(k->primary - table->bucket);
        m->alternate = &table->bucket[weir__alternate_bucket(weir__cell_tag(k->tag_bits), primary, table->buckets)];
        weir__prefetch(m->alternate);
    }
}

STEP void search_alternate(struct batch_group *g)
{
    for (struct missed *m = g->missed_key, *end = m + g->missed; m < end; m++)
        (void)search(m->key, m->alternate);
}

/* Decides one request on the slow path, unless it is faulty. */
STEP void decide_slow(struct batch *b, weir_request *r, const struct batch_key *k)
{
    struct weir__key_location where = {.tag = weir__cell_tag(k->tag_bits),
                                       .primary = (uint64_t)(k->primary - b->op.table->bucket)};
    weir_decision made;
    if (!r->error)
        r->error = weir__take_slow(&b->op, r->limit, &where, r->cost, &made);
    if (r->error) {
        b->sum.errors++;
        b->failed++;
        return;
    }
    r->decision = made;
    b->sum.verdict[made.verdict]++;
    b->sum.soft += made.flags & WEIR_OVER_SOFT;
}

STEP void decide_fast(struct batch *b, const struct batch_group *g)
{
    const int64_t mono_us = b->op.mono_us;
    const struct batch_key *k = g->key;
    uint64_t slow = 0;
    for (weir_request *r = g->request, *end = r + g->count; r < end; r++, k++) {
        if (__builtin_expect(!weir__fast_swap(mono_us, r->limit, k->slot, k->tag_bits, r->cost, &r->decision), 0)) {
            decide_slow(b, r, k);
            slow++;
        }
    }
    b->sum.verdict[WEIR_ALLOW] += g->count - slow;
}

/* Decides a group in which only some requests may take the fast path. */
STEP void decide_mixed(struct batch *b, const struct batch_group *g)
{
    const struct batch_key *k = g->key;
    for (weir_request *r = g->request, *end = r + g->count; r < end; r++, k++) {
        if (b->fast && !r->error && weir__may_take_fast(r->limit, r->cost) &&
            weir__fast_swap(b->op.mono_us, r->limit, k->slot, k->tag_bits, r->cost, &r->decision))
            b->sum.verdict[WEIR_ALLOW]++;
        else
            decide_slow(b, r, k);
    }
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
        search_alternate(present);
        if (present->fast)
            decide_fast(b, present);
        else
            decide_mixed(b, present);
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
