/*
 * A batch decides as single takes do, whatever its limits: token buckets, pairs of slots and slab objects in one batch.
 * Two segments with one secret, one used in batches and one by single takes, give the same decisions and stay equal to
 * the last bit: slots, leases and chunks; also in a table that is far too small, and after their memory was damaged.
 */
#include "engine/segment.h"

#include "segments.h"

#include <pthread.h>
#include <stdlib.h>

enum { BATCH_MAX = 150, LIMITS = 6 };

struct pair {
    weir_segment *batched, *single;
    weir_limit limit[LIMITS];
    size_t limits;
    uint64_t keys[BATCH_MAX];
    weir_request request[BATCH_MAX];
    size_t count;
    weir_time now;
    uint64_t passed, denied, errors;
};

static uint64_t below(uint64_t *seed, uint64_t range)
{
    return test_random(seed) % range;
}

static weir_segment *open_one(uint64_t size, uint64_t slab)
{
    weir_segment_options options = {.size = size, .slab_bytes = slab, .no_slab = !slab};
    weir_segment *segment = NULL;
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    return segment;
}

static void open_pair(struct pair *t, uint64_t size, uint64_t slab)
{
    *t = (struct pair){.now = NOW};
    t->batched = open_one(size, slab);
    t->single = open_one(size, slab);
    memcpy(t->single->table.header->secret, t->batched->table.header->secret, WEIR__SECRET_BYTES);
}

static void close_pair(struct pair *t)
{
    weir_segment_close(t->batched);
    weir_segment_close(t->single);
}

/* A sliding counter whose two windows have a slot each. */
static weir_limit pair_of(int64_t limit, int64_t window_ns, uint64_t id)
{
    weir_limit made = limit_of((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = limit, .window_ns = window_ns, .buckets = 2, .id = id});
    return made;
}

/* One of every kind that may occur in a batch; two pairs, of which one becomes exhausted. */
static void mix_limits(struct pair *t)
{
    const weir_params others[] = {
        {.limit = 20, .window_ns = 60 * WEIR_SECOND, .id = 3},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 30, .window_ns = WEIR_SECOND, .id = 4},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 30, .window_ns = WEIR_SECOND, .buckets = 10, .id = 5},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 20, .window_ns = WEIR_SECOND, .id = 6},
    };
    t->limit[0] = pair_of(1000000, WEIR_SECOND, 1);
    t->limit[1] = pair_of(40000, 7 * WEIR_SECOND, 2);
    for (size_t i = 0; i < COUNT(others); i++)
        t->limit[2 + i] = limit_of(others[i]);
    t->limits = LIMITS;
}

/* Random limits and keys; one in 64 is invalid. */
static void fill(struct pair *t, uint64_t *seed, uint64_t keys)
{
    t->count = 1 + below(seed, BATCH_MAX);
    for (size_t i = 0; i < t->count; i++) {
        const weir_limit *limit = &t->limit[below(seed, t->limits)];
        t->keys[i] = below(seed, keys);
        weir_request r = {limit, &t->keys[i], sizeof *t->keys, 1, 77, {WEIR_DENY, 7, 7, 7, 7, 7, 7}};
        if (below(seed, 4) == 0)
            r.cost = (int64_t)below(seed, (uint64_t)limit->hard / 3) - 2;
        switch (below(seed, 256)) {
        case 0:
            r.limit = NULL;
            break;
        case 1:
            r.key = NULL;
            break;
        case 2:
            r.key_len = 0;
            break;
        case 3:
            r.cost = INT64_MAX;
            break;
        default:
            break;
        }
        t->request[i] = r;
    }
}

static bool same(const weir_decision *a, const weir_decision *b)
{
    return a->verdict == b->verdict && a->flags == b->flags && a->limit == b->limit && a->remaining == b->remaining &&
           a->delay_ns == b->delay_ns && a->retry_after_ns == b->retry_after_ns &&
           a->reset_after_ns == b->reset_after_ns;
}

static void check_memory(const struct pair *t)
{
    const struct weir__table *a = &t->batched->table, *b = &t->single->table;
    CHECK(memcmp(a->bucket, b->bucket, a->buckets * sizeof *a->bucket) == 0);
    CHECK(memcmp(a->lease, b->lease, a->chunks * sizeof *a->lease) == 0);
    CHECK(memcmp(a->chunk, b->chunk, a->chunks * WEIR__CHUNK) == 0);
}

static void take_both(struct pair *t)
{
    int failed = weir_take_batch(t->batched, t->request, t->count, t->now);
    for (size_t i = 0; i < t->count; i++) {
        const weir_request *r = &t->request[i];
        weir_decision one = {WEIR_DENY, 7, 7, 7, 7, 7, 7};
        int error = weir_take(t->single, r->limit, r->key, r->key_len, r->cost, t->now, &one);
        CHECK_EQ(r->error, error);
        if (!error)
            CHECK(same(&r->decision, &one));
        failed -= error != 0;
        t->errors += error != 0;
        t->passed += !error && weir_passes(&one);
        t->denied += !error && one.verdict == WEIR_DENY;
    }
    CHECK_EQ(failed, 0);
    check_memory(t);
}

/* Mostly within a window, often into the next one or the one after, sometimes back. */
static void step(struct pair *t, uint64_t *seed)
{
    static const int64_t steps[] = {
        0, 1000, WEIR_SECOND / 50, WEIR_SECOND / 7, WEIR_SECOND, 2 * WEIR_SECOND, 5 * WEIR_SECOND, -WEIR_SECOND / 3};
    int64_t by = steps[below(seed, COUNT(steps))];
    t->now.mono_ns += by;
    t->now.wall_ns += by;
}

TEST(several_limits_in_one_batch)
{
    static struct pair t;
    uint64_t seed = 1, passed = 0, denied = 0, errors = 0;
    for (int64_t world = 0, worlds = test_scaled(20, 4); world < worlds; world++) {
        open_pair(&t, 1 << 20, 1 << 18);
        mix_limits(&t);
        uint64_t keys = UINT64_C(1) << below(&seed, 10);
        for (int round = 0; round < 200 && !test_failures; round++) {
            fill(&t, &seed, keys);
            take_both(&t);
            step(&t, &seed);
        }
        passed += t.passed;
        denied += t.denied;
        errors += t.errors;
        close_pair(&t);
    }
    CHECK(passed && denied && errors);
}

static weir_stats stats_of(const weir_segment *segment)
{
    weir_stats stats;
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    return stats;
}

/* Pairs whose entries are displaced and evicted while a batch is processed: an entry seen in its primary bucket is
 * gone by then. */
TEST(pairs_in_a_too_small_table)
{
    static struct pair t;
    uint64_t seed = 2;
    open_pair(&t, WEIR__SIZE_MIN, 0);
    t.limit[0] = pair_of(1000000, WEIR_SECOND, 1);
    t.limit[1] = pair_of(40000, 7 * WEIR_SECOND, 2);
    t.limits = 2;
    for (int64_t round = 0, rounds = test_scaled(2000, 300); round < rounds && !test_failures; round++) {
        fill(&t, &seed, round % 100 < 50 ? 1000 : 10000);
        take_both(&t);
        if (below(&seed, 8) == 0)
            step(&t, &seed);
    }
    weir_stats batched = stats_of(t.batched), single = stats_of(t.single);
    CHECK(batched.evicted_live > 100 && batched.displaced > 100);
    CHECK_EQ(batched.evicted_live, single.evicted_live);
    CHECK_EQ(batched.displaced, single.displaced);
    CHECK_EQ(batched.created, single.created);
    close_pair(&t);
}

/* In a table that is nearly full many slots are in their alternate buckets. */
TEST(pairs_in_a_nearly_full_table)
{
    enum { KEYS = 25000 };
    static uint64_t key[KEYS];
    static weir_request request[KEYS];
    weir_segment *segment = open_one(KEYS * 2 * 16 * 10 / 9 + 65536, 0);
    weir_limit limit = pair_of(40000, 60 * WEIR_SECOND, 1);
    weir_time now = NOW;
    weir_stats stats;
    now.mono_ns -= now.mono_ns % (60 * WEIR_SECOND);
    for (int minute = 0; minute < 3; minute++) {
        for (size_t i = 0; i < KEYS; i++) {
            key[i] = i;
            request[i] = (weir_request){.limit = &limit, .key = &key[i], .key_len = sizeof key[i], .cost = 10000};
        }
        CHECK_EQ(weir_take_batch(segment, request, KEYS, now), 0);
        for (size_t i = 0; i < KEYS; i++)
            CHECK_EQ(request[i].decision.remaining, 30000 - 10000 * minute);
        if (minute == 0)
            now.mono_ns += 60 * WEIR_SECOND;
    }
    for (size_t i = 0; i < KEYS; i++) /* more than is left */
        request[i].cost = 30000;
    CHECK_EQ(weir_take_batch(segment, request, KEYS, now), 0);
    for (size_t i = 0; i < KEYS; i++)
        CHECK_EQ(request[i].decision.verdict, WEIR_DENY);
    stats = stats_of(segment);
    CHECK_EQ(stats.allowed, 3 * KEYS);
    CHECK_EQ(stats.denied, KEYS);
    CHECK_EQ(stats.evicted_live, 0);
    CHECK(stats.displaced > KEYS / 10); /* each to its alternate bucket */
    weir_segment_close(segment);
}

/* ---- Concurrent changes during a batch ---- */

enum { LONG = 1 << 20, SOON = 5000 };

struct blocker {
    weir_segment *segment;
    const weir_limit *limit;
    uint64_t key;
    weir_request *request;
    size_t seen; /* how far the batch was when the block was made, or a bit less */
};

/* Blocks the key once the batch has begun. Undecided requests have the value 77. */
static void *block_meanwhile(void *argument)
{
    struct blocker *b = argument;
    while (__atomic_load_n(&b->request[LONG / 16].error, __ATOMIC_ACQUIRE) == 77)
        ;
    CHECK_EQ(weir_block(b->segment, b->limit, &b->key, sizeof b->key, 3600 * WEIR_SECOND, NOW), 0);
    for (b->seen = LONG / 16; b->seen < LONG; b->seen++)
        if (__atomic_load_n(&b->request[b->seen].error, __ATOMIC_ACQUIRE) == 77)
            break;
    return NULL;
}

/* Returns whether the test was effective: on a busy machine the batch may be over before the block is made. */
static bool block_in_a_batch(const weir_limit *limit, weir_request *request)
{
    struct blocker b = {open_one(1 << 20, 0), limit, 42, request, 0};
    const weir_time a_minute_ago = {NOW.mono_ns - 60 * WEIR_SECOND, NOW.wall_ns - 60 * WEIR_SECOND};
    pthread_t thread;
    weir_decision d;
    /* In the previous window and in this one: all that follow may take the fast path. */
    CHECK_EQ(weir_take(b.segment, limit, &b.key, sizeof b.key, 1, a_minute_ago, &d), 0);
    CHECK_EQ(weir_take(b.segment, limit, &b.key, sizeof b.key, 1, NOW, &d), 0);
    for (size_t i = 0; i < LONG; i++)
        request[i] = (weir_request){.limit = limit, .key = &b.key, .key_len = sizeof b.key, .cost = 1, .error = 77};
    CHECK_EQ(pthread_create(&thread, NULL, block_meanwhile, &b), 0);
    CHECK_EQ(weir_take_batch(b.segment, request, LONG, NOW), 0);
    pthread_join(thread, NULL);
    weir_segment_close(b.segment);
    CHECK_EQ(request[0].decision.verdict, WEIR_ALLOW);
    for (size_t i = b.seen + SOON; i < LONG; i++)
        CHECK_EQ(request[i].decision.verdict, WEIR_BLOCKED);
    return b.seen + SOON < LONG;
}

TEST(block_made_during_a_batch_takes_effect_soon)
{
    const weir_limit limits[] = {
        limit_of((weir_params){.limit = 100, .window_ns = WEIR_SECOND, .burst = 1 << 24, .id = 1}),
        pair_of(1 << 30, 60 * WEIR_SECOND, 2)};
    weir_request *request = malloc(sizeof *request * LONG);
    for (size_t k = 0; k < COUNT(limits); k++) {
        bool seen = false;
        for (int tries = 0; tries < 50 && !seen; tries++)
            seen = block_in_a_batch(&limits[k], request);
        CHECK(seen);
    }
    free(request);
}

/* Flips the same bits of the same words in both. */
static void damage(const struct pair *t, uint64_t *seed)
{
    const struct weir__table *table[2] = {&t->batched->table, &t->single->table};
    for (int i = 0; i < 8; i++) {
        uint64_t line = below(seed, table[0]->buckets), slot = below(seed, WEIR__BUCKET_SLOTS), bit = below(seed, 64);
        uint64_t chunk_index = below(seed, table[0]->chunks), byte = below(seed, WEIR__CHUNK);
        for (int k = 0; k < 2; k++) {
            weir__cell *cell = &table[k]->bucket[line].slot[slot];
            cell->lo ^= UINT64_C(1) << bit;
            cell->hi ^= UINT64_C(1) << (63 - bit);
            table[k]->lease[chunk_index] ^= UINT32_C(1) << bit % 32;
            table[k]->chunk[chunk_index * WEIR__CHUNK + byte] ^= (uint8_t)(1U << bit % 8);
        }
    }
}

TEST(damaged_slots_and_records)
{
    static struct pair t;
    uint64_t seed = 3;
    for (int64_t world = 0, worlds = test_scaled(20, 4); world < worlds; world++) {
        open_pair(&t, WEIR__SIZE_MIN, 1 << 14);
        mix_limits(&t);
        for (int round = 0; round < 200 && !test_failures; round++) {
            fill(&t, &seed, 300);
            take_both(&t);
            damage(&t, &seed);
            step(&t, &seed);
        }
        close_pair(&t);
    }
}

/* Every slot refers to the last possible record, far beyond the slab; and every one is a pair of another time. */
TEST(slots_that_refer_outside_the_slab)
{
    static struct pair t;
    uint64_t seed = 4;
    open_pair(&t, WEIR__SIZE_MIN, 1 << 14);
    mix_limits(&t);
    for (int round = 0; round < 50 && !test_failures; round++) {
        fill(&t, &seed, 50);
        take_both(&t);
        for (uint64_t i = 0; i < t.batched->table.buckets * WEIR__BUCKET_SLOTS; i++) {
            weir__cell *a = &t.batched->table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
            weir__cell *b = &t.single->table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
            if (!weir__cell_tag(a->lo))
                continue;
            a->lo |= 0x7fff;
            a->hi = round % 2 ? a->hi | 0x1ffff : test_random(&seed);
            *b = *a;
        }
    }
    close_pair(&t);
}

TEST_MAIN
