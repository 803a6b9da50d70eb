/*
 * The wide way of a batch (engine/batch_wide.c) does what the narrow one does. Two segments are alike to the last bit,
 * their secret too; one is asked either way, the other only the narrow one. Their answers are compared one by one, and
 * their lines byte by byte. On a processor that cannot, both go the narrow way.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/batch.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../test.h"

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
        snprintf(path[i], sizeof path[i], "/dev/shm/weir-wide-%ld-%d", (long)getpid(), i);
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
        CHECK(same(&a->request[0][i], &a->request[1][i]));
        passed += !a->request[0][i].error && weir_passes(&a->request[0][i].decision);
    }
    CHECK(memcmp(twin[0]->table.line, twin[1]->table.line, twin[0]->table.lines * sizeof(struct weir__line)) == 0);
    return passed;
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
        if (test_failures)
            printf("  in world %" PRId64 "\n", world);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
    /* Neither always nor never. */
    CHECK(passed > asked / 10 && passed < asked);
}

/* ---- From several threads ---- */

struct crowd {
    weir_segment *segment;
    weir_limit limit;
    weir_time now;
    int64_t passed; /* of all threads */
};

enum { CROWD_KEYS = 11, CROWD_LIMIT = 5000 };

/* All keys over and over, several times among eight, and each second time one of them alone, until long after nothing
 * is left. */
static void *press(void *argument)
{
    struct crowd *crowd = argument;
    uint64_t id[BATCH_MAX], seed = (uint64_t)(uintptr_t)&id;
    weir_request request[BATCH_MAX];
    for (int round = 0; round < CROWD_LIMIT * CROWD_KEYS * 2 / BATCH_MAX; round++) {
        int64_t passed = 0;
        uint64_t hot = test_random(&seed) % CROWD_KEYS;
        for (int i = 0; i < BATCH_MAX; i++) {
            id[i] = round % 2 ? hot : test_random(&seed) % CROWD_KEYS;
            request[i] = (weir_request){.limit = &crowd->limit, .key = &id[i], .key_len = sizeof id[i], .cost = 1};
        }
        CHECK_EQ(weir_take_batch(crowd->segment, request, BATCH_MAX, crowd->now), 0);
        for (int i = 0; i < BATCH_MAX; i++)
            passed += weir_passes(&request[i].decision);
        __atomic_fetch_add(&crowd->passed, passed, __ATOMIC_RELAXED);
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
        weir__wide_forbidden = way == 1;
        CHECK_EQ(weir_limit_init(&crowd.limit, &params), 0);
        for (int i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, press, &crowd), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        weir__wide_forbidden = false;
        CHECK_EQ(crowd.passed, CROWD_LIMIT * CROWD_KEYS);
        weir_segment_close(twin[0]);
        weir_segment_close(twin[1]);
    }
}

TEST_MAIN
