/*
 * The wide way of a batch (engine/batch_wide.c) does what the narrow one does. Two segments are alike to the last bit,
 * their secret too; one is asked either way, the other only the narrow one. Their answers are compared one by one, and
 * their lines byte by byte. On a processor that cannot, both go the narrow way.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/batch.h"
#include "table/hash.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../test.h"
#include "../../own.h"

enum { BATCH_MAX = 150, KEY_MAX = 24, THREADS = 4 };

static weir_segment *open_at(const char *path)
{
    weir_segment_options options = {.path = path, .size = 1 << 16, .no_slab = true, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment = NULL;
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    return segment;
}

static void copy_file(const char *from, const char *to)
{
    static char content[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK_EQ(read(in, content, sizeof content), sizeof content);
    CHECK_EQ(write(out, content, sizeof content), sizeof content);
    close(in);
    close(out);
}

/* Two segments of 64 KiB, small enough to be full most of the time, with one secret. */
static void open_twins(weir_segment *twin[2])
{
    char path[2][64];
    for (int i = 0; i < 2; i++)
        own_path(path[i], sizeof path[i], i ? "two" : "one");
    twin[0] = open_at(path[0]);
    copy_file(path[0], path[1]);
    twin[1] = open_at(path[1]);
    unlink(path[0]);
    unlink(path[1]);
}

static int64_t below(uint64_t *seed, uint64_t range)
{
    return (int64_t)(test_random(seed) % range);
}

/* Of all sizes: from one unit to the most that can be counted, from 5 us a unit to a year. */
static weir_limit random_limit(uint64_t *seed)
{
    weir_limit limit;
    for (;;) {
        weir_params params = {.limit = 1 + (below(seed, 1000) >> below(seed, 10)),
                              .window_ns = 1000 + below(seed, 400 * WEIR_DAY) / (INT64_C(1) << below(seed, 45)),
                              .id = test_random(seed) % 2};
        params.window_ns = params.window_ns / 1000 * params.limit * 1000; /* a unit at a time */
        if (below(seed, 2))
            params.burst = 1 + (below(seed, WEIR__USED_MAX) >> below(seed, 32));
        params.soft_percent = below(seed, 4) ? 0 : (int)below(seed, 100);
        if (weir_limit_init(&limit, &params) == 0)
            return limit;
    }
}

static int64_t random_cost(uint64_t *seed, const weir_limit *limit)
{
    switch (below(seed, 8)) {
    case 0:
        return 1 + below(seed, (uint64_t)limit->hard);
    case 1:
        return limit->hard - below(seed, 2);
    case 2:
        return (below(seed, WEIR__USED_MAX) >> below(seed, 32)) - below(seed, 3);
    default:
        return 1;
    }
}

/* None, a little, about a unit's time, years, or back. */
static int64_t random_step(uint64_t *seed, const weir_limit *limit)
{
    switch (below(seed, 8)) {
    case 0:
        return below(seed, UINT64_C(1) << (10 + below(seed, 46)));
    case 1:
        return -below(seed, UINT64_C(1) << (10 + below(seed, 40)));
    case 2:
        return 0;
    default:
        return below(seed, (uint64_t)limit->period_us * 4) * 1000 + below(seed, 1000);
    }
}

struct asking {
    weir_limit limit[2];
    uint8_t key[BATCH_MAX][KEY_MAX];
    weir_request request[2][BATCH_MAX];
    size_t count;
    uint64_t verdict[5], soft, errors; /* of all that were asked */
};

/* Mostly all alike; sometimes one is not, or is wrong, at any place. */
static void fill(struct asking *a, uint64_t *seed)
{
    static const size_t lengths[] = {8, 8, 8, 4, 12, 20};
    size_t len = lengths[below(seed, 6)];
    uint64_t keys = UINT64_C(1) << below(seed, 13), strange = below(seed, 3) ? BATCH_MAX : test_random(seed) % 100;
    int64_t cost = random_cost(seed, &a->limit[0]);
    a->count = 1 + test_random(seed) % BATCH_MAX;
    for (size_t i = 0; i < a->count; i++) {
        uint64_t id = test_random(seed) % keys;
        memset(a->key[i], 'k', KEY_MAX);
        memcpy(a->key[i], &id, 4);
        weir_request *r = &a->request[0][i];
        /* The answer is not there before. */
        *r = (weir_request){&a->limit[0], a->key[i], len, cost, 77, {WEIR_DENY, 7, 7, 7, 7, 7, 7}};
        if (i != strange)
            continue;
        switch (below(seed, 6)) {
        case 0:
            r->limit = &a->limit[1];
            break;
        case 1:
            r->cost = random_cost(seed, &a->limit[0]);
            break;
        case 2:
            r->key_len = test_random(seed) % KEY_MAX;
            break;
        case 3:
            r->key = NULL;
            break;
        case 4:
            r->limit = NULL;
            break;
        default:
            r->cost = INT64_MAX;
            break;
        }
    }
    memcpy(a->request[1], a->request[0], sizeof a->request[0]);
}

static bool same(const weir_request *a, const weir_request *b)
{
    const weir_decision *x = &a->decision, *y = &b->decision;
    return a->error == b->error && x->verdict == y->verdict && x->flags == y->flags && x->limit == y->limit &&
           x->remaining == y->remaining && x->delay_ns == y->delay_ns && x->retry_after_ns == y->retry_after_ns &&
           x->reset_after_ns == y->reset_after_ns;
}

/* Asks both, and returns how many requests passed. */
static int64_t ask_both(weir_segment *twin[2], struct asking *a, weir_time now)
{
    int failed[2];
    int64_t passed = 0;
    for (int i = 0; i < 2; i++) {
        weir__wide_forbidden = i == 1;
        failed[i] = weir_take_batch(twin[i], a->request[i], a->count, now);
    }
    weir__wide_forbidden = false;
    CHECK_EQ(failed[0], failed[1]);
    for (size_t i = 0; i < a->count; i++) {
        const weir_request *r = &a->request[0][i];
        CHECK(same(r, &a->request[1][i]));
        passed += !r->error && weir_passes(&r->decision);
        if (r->error) {
            a->errors++;
        } else {
            a->verdict[r->decision.verdict]++;
            a->soft += r->decision.flags & WEIR_OVER_SOFT;
        }
    }
    CHECK(memcmp(twin[0]->table.bucket, twin[1]->table.bucket, twin[0]->table.buckets * sizeof(struct weir__bucket)) ==
          0);
    return passed;
}

/* What both have counted is what they have answered. */
static void check_counts(weir_segment *twin[2], const struct asking *a)
{
    for (int i = 0; i < 2; i++) {
        weir_stats stats;
        CHECK_EQ(weir_stats_read(twin[i], &stats), 0);
        CHECK_EQ(stats.allowed, a->verdict[WEIR_ALLOW]);
        CHECK_EQ(stats.denied, a->verdict[WEIR_DENY]);
        CHECK_EQ(stats.never_fits, a->verdict[WEIR_NEVER_FITS]);
        CHECK_EQ(stats.soft, a->soft);
        CHECK_EQ(stats.errors, a->errors);
    }
}

TEST(both_ways_agree)
{
    static struct asking asking;
    uint64_t seed = 1;
    int64_t passed = 0, asked = 0;
    if (!weir__wide_can())
        printf("  (this processor has the narrow way only)\n");
    for (int64_t world = 0, worlds = test_scaled(400, 40); world < worlds; world++) {
        weir_segment *twin[2];
        weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
        open_twins(twin);
        memset(&asking, 0, sizeof asking);
        asking.limit[0] = random_limit(&seed);
        asking.limit[1] = random_limit(&seed);
        for (int round = 0; round < 150 && !test_failures; round++) {
            fill(&asking, &seed);
            passed += ask_both(twin, &asking, now);
            asked += (int64_t)asking.count;
            int64_t at = now.mono_ns + random_step(&seed, &asking.limit[0]);
            if (at > 0 && at < WEIR_DAY * 40000)
                now = (weir_time){at, at};
        }
        check_counts(twin, &asking);
        if (test_failures)
            printf("  in world %" PRId64 "\n", world);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
    /* Neither always nor never. */
    CHECK(passed > asked / 10 && passed < asked);
}

/* ---- What a random world hardly ever has ---- */

enum { SOME = 64 };

/* As many different keys, all alike. */
static void fill_some(struct asking *a)
{
    weir_params params = {.limit = 100, .window_ns = 100 * WEIR_SECOND};
    CHECK_EQ(weir_limit_init(&a->limit[0], &params), 0);
    a->count = SOME;
    for (uint64_t i = 0; i < SOME; i++) {
        memcpy(a->key[i], &i, sizeof i);
        a->request[0][i] = a->request[1][i] =
            (weir_request){.limit = &a->limit[0], .key = a->key[i], .key_len = sizeof i, .cost = 1};
    }
}

/* In any state but the normal one, or on the other clock: left by somebody who died, or moves things just now. */
TEST(entries_that_do_not_count_are_left_to_the_long_way)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    for (uint64_t state = 1; state < 9; state++) {
        weir_segment *twin[2];
        int changed = 0;
        open_twins(twin);
        fill_some(&asking);
        CHECK_EQ(ask_both(twin, &asking, now), SOME);
        for (uint64_t i = 0; i < twin[0]->table.buckets * WEIR__BUCKET_SLOTS; i++)
            for (int t = 0; t < 2; t++) {
                weir__cell *slot = &twin[t]->table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
                if (!weir__cell_tag(slot->lo))
                    continue;
                slot->lo |= state < 8 ? state << 27 : UINT64_C(1) << 23;
                changed++;
            }
        CHECK_EQ(changed, 2 * SOME);
        CHECK_EQ(ask_both(twin, &asking, now), SOME);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

/* Every code of how long an entry lasts, also those that nobody writes. */
TEST(however_long_an_entry_says_it_lasts)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000}, later = {now.mono_ns + WEIR_SECOND, now.wall_ns};
    for (uint64_t code = 0; code < 256; code++) {
        weir_segment *twin[2];
        open_twins(twin);
        fill_some(&asking);
        CHECK_EQ(ask_both(twin, &asking, now), SOME);
        for (uint64_t i = 0; i < twin[0]->table.buckets * WEIR__BUCKET_SLOTS; i++)
            for (int t = 0; t < 2; t++) {
                weir__cell *slot = &twin[t]->table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
                if (weir__cell_tag(slot->lo)) {
                    slot->lo = (slot->lo & ~(UINT64_C(0xff) << 15)) | code << 15;
                    slot->hi |= 50; /* units, so that they have not come back */
                }
            }
        CHECK_EQ(ask_both(twin, &asking, later), SOME);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

TEST(a_blocked_key_among_others)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    weir_segment *twin[2];
    open_twins(twin);
    fill_some(&asking);
    CHECK_EQ(ask_both(twin, &asking, now), SOME);
    for (int t = 0; t < 2; t++)
        CHECK_EQ(weir_block(twin[t], &asking.limit[0], asking.key[11], sizeof(uint64_t), WEIR_SECOND, now), 0);
    CHECK_EQ(ask_both(twin, &asking, now), SOME - 1);
    CHECK_EQ(asking.request[0][11].decision.verdict, WEIR_BLOCKED);
    weir_segment_close(twin[0]);
    weir_segment_close(twin[1]);
}

/* The next key from *id on that is at home in `line`, or has it for its other one. */
static void next_key(const weir_segment *segment, const weir_limit *limit, uint64_t line, bool at_home, uint64_t *id)
{
    struct weir__key_location where;
    do {
        ++*id;
        weir__key_locate(&segment->table, limit, id, sizeof *id, &where);
    } while ((at_home ? where.primary : where.alternate) != line || where.primary == where.alternate);
}

/* Eight that were seen in one slot, though not all of them are of the key that is there. */
TEST(a_key_without_an_entry_before_seven_of_a_hot_one)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    for (size_t at = 0; at < 8; at++) {
        weir_segment *twin[2];
        uint64_t line = 7, id = 0;
        open_twins(twin);
        fill_some(&asking);
        for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) { /* the last of them is in the last slot */
            next_key(twin[0], &asking.limit[0], line, true, &id);
            asking.count = 1;
            memcpy(asking.key[0], &id, sizeof id);
            CHECK_EQ(ask_both(twin, &asking, now), 1);
        }
        CHECK_EQ(weir__cell_tag(twin[0]->table.bucket[line].slot[3].lo) != 0, 1);
        asking.count = 8;
        for (size_t i = 0; i < 8; i++)
            memcpy(asking.key[i], &id, sizeof id);
        next_key(twin[0], &asking.limit[0], line, false, &id);
        memcpy(asking.key[at], &id, sizeof id);
        CHECK_EQ(ask_both(twin, &asking, now), 8);
        for (size_t i = 0; i < 8; i++)
            CHECK_EQ(asking.request[0][i].decision.remaining, i == at ? 99 : 98 - (int64_t)i + (i > at));
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

/* The tags that stand for an empty slot: one key in 2^33 would have one. */
TEST(no_key_has_the_tag_of_an_empty_slot)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    for (uint64_t tag = 0; tag < 2; tag++) {
        weir_segment *twin[2];
        open_twins(twin);
        fill_some(&asking);
        uint64_t hash = weir__hash(asking.key[11], sizeof hash, twin[0]->table.header->secret);
        asking.limit[0].spread = hash ^ (UINT64_C(0x123456) << 40 | tag);
        CHECK_EQ(ask_both(twin, &asking, now), SOME);
        CHECK_EQ(ask_both(twin, &asking, now), SOME);
        CHECK_EQ(asking.request[0][11].decision.remaining, 98);
        weir_decision d;
        CHECK_EQ(weir_take(twin[1], &asking.limit[0], asking.key[11], sizeof hash, 1, now, &d), 0);
        CHECK_EQ(d.remaining, 97);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

/* With memory behind those lines alone that are used. */
static void ask_huge(uint64_t lines)
{
    static struct asking asking;
    const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    const uint64_t bytes = lines * sizeof(struct weir__bucket);
    weir_segment *twin[2], huge;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        printf("SKIP a table of 256 GiB: this process may not have as many addresses\n");
        return;
    }
    open_twins(twin);
    fill_some(&asking);
    huge = *twin[0];
    huge.table.bucket = memory;
    huge.table.buckets = lines;
    for (int round = 1; round <= 3; round++) {
        CHECK_EQ(weir_take_batch(&huge, asking.request[0], SOME, now), 0);
        for (int i = 0; i < SOME; i++) {
            weir_decision d;
            CHECK_EQ(asking.request[0][i].decision.remaining, 100 - round);
            CHECK_EQ(weir_peek(&huge, &asking.limit[0], asking.key[i], sizeof(uint64_t), 0, now, &d), 0);
            CHECK_EQ(d.remaining, 100 - round);
        }
    }
    munmap(memory, bytes);
    weir_segment_close(twin[0]);
    weir_segment_close(twin[1]);
}

/* More lines than 32 bits can number, and as many as they just can. */
TEST(a_table_of_2_32_lines)
{
    ask_huge((UINT64_C(1) << 32) + 12345);
    ask_huge(UINT32_MAX);
}

/* ---- From several threads ---- */

struct crowd {
    weir_segment *segment;
    weir_limit limit;
    weir_time now;
    int64_t passed;  /* of all threads */
    uint32_t *taken; /* how often each unit of each key was given out */
};

enum { CROWD_KEYS = 11, CROWD_LIMIT = 5000 };

/* Nothing comes back, so what is left after each request that passed tells which unit it was given. */
static int64_t count_passed(struct crowd *crowd, const weir_request *request)
{
    int64_t passed = 0;
    for (int i = 0; i < BATCH_MAX; i++) {
        const weir_decision *d = &request[i].decision;
        uint64_t id;
        memcpy(&id, request[i].key, sizeof id);
        if (!weir_passes(d))
            continue;
        passed++;
        CHECK(d->remaining >= 0 && d->remaining < CROWD_LIMIT);
        __atomic_fetch_add(&crowd->taken[(int64_t)id * CROWD_LIMIT + d->remaining], 1, __ATOMIC_RELAXED);
    }
    return passed;
}

/* All keys over and over, several times among eight, and each second time one of them alone, until long after nothing
 * is left. */
static void *press(void *argument)
{
    struct crowd *crowd = argument;
    uint64_t id[BATCH_MAX], seed = (uint64_t)(uintptr_t)&id;
    weir_request request[BATCH_MAX];
    for (int round = 0; round < CROWD_LIMIT * CROWD_KEYS * 2 / BATCH_MAX; round++) {
        uint64_t hot = test_random(&seed) % CROWD_KEYS;
        for (int i = 0; i < BATCH_MAX; i++) {
            id[i] = round % 2 ? hot : test_random(&seed) % CROWD_KEYS;
            request[i] = (weir_request){.limit = &crowd->limit, .key = &id[i], .key_len = sizeof id[i], .cost = 1};
        }
        CHECK_EQ(weir_take_batch(crowd->segment, request, BATCH_MAX, crowd->now), 0);
        __atomic_fetch_add(&crowd->passed, count_passed(crowd, request), __ATOMIC_RELAXED);
    }
    return NULL;
}

TEST(no_more_than_the_limit_passes_however_many_ask)
{
    weir_params params = {.limit = CROWD_LIMIT, .window_ns = CROWD_LIMIT * 3600 * WEIR_SECOND};
    for (int way = 0; way < 2; way++) {
        struct crowd crowd = {.now = {WEIR_DAY * 20000, WEIR_DAY * 20000}};
        weir_segment *twin[2];
        pthread_t thread[THREADS];
        open_twins(twin);
        crowd.segment = twin[0];
        crowd.taken = calloc((size_t)CROWD_KEYS * CROWD_LIMIT, sizeof *crowd.taken);
        weir__wide_forbidden = way == 1;
        CHECK_EQ(weir_limit_init(&crowd.limit, &params), 0);
        for (int i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, press, &crowd), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        weir__wide_forbidden = false;
        CHECK_EQ(crowd.passed, CROWD_LIMIT * CROWD_KEYS);
        int64_t once = 0;
        for (int i = 0; i < CROWD_KEYS * CROWD_LIMIT; i++)
            once += crowd.taken[i] == 1;
        CHECK_EQ(once, CROWD_LIMIT * CROWD_KEYS);
        free(crowd.taken);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

TEST_MAIN
