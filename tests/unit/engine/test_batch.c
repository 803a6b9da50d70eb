/*
 * All code paths agree. One segment is used in batches, one with single takes; in a third another key is blocked,
 * which disables the fast path (table/fast_path.h), so that everything there takes the slow path. All must decide the
 * same: few keys many times in a batch, several limits, odd costs, time steps of all sizes.
 */
#include <weir/weir.h>

#include "../../test.h"

#include <pthread.h>

enum { KEYS = 5, LIMITS = 4, BATCH_MAX = 70 };

static weir_segment *open_one(void)
{
    weir_segment_options options = {.size = 1 << 20, .slab_bytes = 1 << 18};
    weir_segment *segment = NULL;
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    return segment;
}

static weir_limit random_limit(uint64_t *seed, uint64_t id)
{
    static const int64_t windows[] = {1000, 1000000, WEIR_SECOND, 60 * WEIR_SECOND, 7 * WEIR_SECOND, WEIR_DAY};
    weir_params params = {
        .limit = 1 + (int64_t)(test_random(seed) % 40), .window_ns = windows[test_random(seed) % 6], .id = id};
    weir_limit limit;
    /* Mostly limits that have a fast path; the others so that both occur in one batch. */
    if (test_random(seed) % 4 == 0)
        params.algorithm = (enum weir_algorithm)(test_random(seed) % 5);
    if (params.algorithm == WEIR_TOKEN_BUCKET && test_random(seed) % 2)
        params.burst = 1 + (int64_t)(test_random(seed) % 100);
    if (test_random(seed) % 3 == 0)
        params.soft_percent = (int)(test_random(seed) % 100);
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static int64_t random_cost(uint64_t *seed)
{
    uint64_t random = test_random(seed);
    return random % 8 < 5 ? 1 : random % 8 == 5 ? (int64_t)(random >> 8 & 63) - 8 : (int64_t)(random >> 8 & 3);
}

static void check_same(const weir_decision *a, const weir_decision *b, int64_t round)
{
    int before = test_failures;
    CHECK_EQ(a->verdict, b->verdict);
    CHECK_EQ(a->flags, b->flags);
    CHECK_EQ(a->limit, b->limit);
    CHECK_EQ(a->remaining, b->remaining);
    CHECK_EQ(a->delay_ns, b->delay_ns);
    CHECK_EQ(a->retry_after_ns, b->retry_after_ns);
    CHECK_EQ(a->reset_after_ns, b->reset_after_ns);
    if (test_failures != before)
        printf("  in round %" PRId64 "\n", round);
}

/* A time step: none, a little, about a window, long, or back. */
static int64_t random_step(uint64_t *seed)
{
    uint64_t random = test_random(seed);
    int64_t size = (int64_t)(random >> 8) & ((INT64_C(1) << (10 + random % 36)) - 1);
    return random >> 60 == 0 ? -size : random >> 60 < 4 ? 0 : size;
}

TEST(batch_single_and_slow_path_agree)
{
    uint64_t seed = 1;
    for (int64_t world = 0, worlds = test_scaled(60, 6); world < worlds; world++) {
        weir_segment *batched = open_one(), *single = open_one(), *slow_segment = open_one();
        weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
        weir_limit limits[LIMITS];
        for (int i = 0; i < LIMITS; i++)
            limits[i] = random_limit(&seed, (uint64_t)i / 2); /* two by two share their counters, if alike */
        CHECK_EQ(weir_block(slow_segment, &limits[0], "another key", 11, 399 * WEIR_DAY, now), 0);

        for (int64_t round = 0; round < 2000; round++) {
            weir_request request[BATCH_MAX];
            uint8_t key[BATCH_MAX];
            size_t count = 1 + test_random(&seed) % BATCH_MAX;
            bool runs = test_random(&seed) % 2; /* of requests of one key, which one swap may decide */
            for (size_t i = 0; i < count; i++) {
                bool again = runs && i > 0 && test_random(&seed) % 16;
                key[i] = again ? key[i - 1] : (uint8_t)(test_random(&seed) % KEYS);
                request[i] =
                    (weir_request){.limit = again ? request[i - 1].limit : &limits[test_random(&seed) % LIMITS],
                                   .key = &key[i],
                                   .key_len = 1,
                                   .cost = runs ? 1 + (int64_t)(test_random(&seed) % 8 == 0) : random_cost(&seed)};
            }
            CHECK_EQ(weir_take_batch(batched, request, count, now), 0);
            for (size_t i = 0; i < count; i++) {
                weir_request *r = &request[i];
                weir_decision one, other;
                CHECK_EQ(weir_take(single, r->limit, r->key, 1, r->cost, now, &one), 0);
                CHECK_EQ(weir_take(slow_segment, r->limit, r->key, 1, r->cost, now, &other), 0);
                check_same(&r->decision, &one, round);
                check_same(&one, &other, round);
            }
            int64_t step = random_step(&seed);
            if (now.mono_ns + step > WEIR_DAY * 19990 && now.mono_ns + step < WEIR_DAY * 20390) {
                now.mono_ns += step;
                now.wall_ns += step;
            }
        }
        weir_segment_close(batched);
        weir_segment_close(single);
        weir_segment_close(slow_segment);
    }
}

TEST(expired_entry_does_not_revive_under_another_limit)
{
    weir_params many = {.limit = 1000, .window_ns = WEIR_SECOND}, few = {.limit = 10, .window_ns = WEIR_DAY};
    weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    weir_limit before, after;
    weir_decision d;
    for (int way = 0; way < 2; way++) {
        weir_segment *segment = open_one();
        CHECK_EQ(weir_limit_init(&before, &many), 0);
        CHECK_EQ(weir_limit_init(&after, &few), 0);
        if (way)
            CHECK_EQ(weir_block(segment, &before, "another key", 11, WEIR_DAY, now), 0);
        CHECK_EQ(weir_take(segment, &before, "k", 1, 900, now, &d), 0);
        weir_time later = {now.mono_ns + 3600 * WEIR_SECOND, now.wall_ns + 3600 * WEIR_SECOND};
        CHECK_EQ(weir_take(segment, &after, "k", 1, 1, later, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        CHECK_EQ(d.remaining, 9);
        weir_segment_close(segment);
    }
}

TEST(longest_windows_of_every_algorithm)
{
    weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
    weir_segment *segment = open_one();
    for (int buckets = 2; buckets <= 60; buckets++) {
        weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                              .limit = 3,
                              .window_ns = 400 * WEIR_DAY,
                              .buckets = buckets,
                              .id = (uint64_t)buckets};
        weir_limit limit;
        weir_decision d;
        int64_t passed = 0;
        CHECK_EQ(weir_limit_init(&limit, &params), 0);
        for (int i = 0; i < 5; i++) {
            CHECK_EQ(weir_take(segment, &limit, "k", 1, 1, now, &d), 0);
            passed += weir_passes(&d);
        }
        CHECK_EQ(passed, 3);
    }
    weir_params log = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 3, .window_ns = 400 * WEIR_DAY};
    weir_limit limit;
    weir_decision d;
    CHECK_EQ(weir_limit_init(&limit, &log), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weir_take(segment, &limit, "k", 1, 1, now, &d), 0);
        CHECK_EQ(weir_passes(&d), i < 3);
    }
    weir_segment_close(segment);
}

/* ---- Threads that take from one key ---- */

enum { THREADS = 3, HOT_BATCH = 64, HOT_LIMIT = 30000 };

struct hot {
    weir_segment *segment;
    const weir_limit *limit;
    weir_time now;
    int64_t allowed, least;
};

static void *take_hot(void *argument)
{
    struct hot *hot = argument;
    hot->least = HOT_LIMIT;
    for (int round = 0; round < 2 * HOT_LIMIT / THREADS / HOT_BATCH; round++) {
        weir_request request[HOT_BATCH];
        for (int i = 0; i < HOT_BATCH; i++)
            request[i] = (weir_request){.limit = hot->limit, .key = "hot", .key_len = 3, .cost = 1};
        CHECK_EQ(weir_take_batch(hot->segment, request, HOT_BATCH, hot->now), 0);
        for (int i = 0; i < HOT_BATCH; i++)
            if (weir_passes(&request[i].decision)) {
                hot->allowed++;
                CHECK(request[i].decision.remaining < hot->least); /* each takes one more than the one before it */
                hot->least = request[i].decision.remaining;
            }
    }
    return NULL;
}

TEST(threads_that_share_a_key_admit_its_limit)
{
    weir_params params = {.limit = HOT_LIMIT, .window_ns = WEIR_DAY};
    weir_limit limit;
    weir_segment *segment = open_one();
    pthread_t thread[THREADS];
    struct hot hot[THREADS];
    int64_t allowed = 0, least = HOT_LIMIT;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    for (int i = 0; i < THREADS; i++) {
        hot[i] = (struct hot){.segment = segment, .limit = &limit, .now = {WEIR_DAY * 20000, WEIR_DAY * 20000}};
        CHECK_EQ(pthread_create(&thread[i], NULL, take_hot, &hot[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        allowed += hot[i].allowed;
        if (hot[i].least < least)
            least = hot[i].least;
    }
    CHECK_EQ(allowed, HOT_LIMIT);
    CHECK_EQ(least, 0);
    weir_segment_close(segment);
}

TEST_MAIN
