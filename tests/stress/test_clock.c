/*
 * Windows roll on while all workers use a few keys. The clock is a shared word that one thread advances; workers read
 * it at different moments and sometimes use an old reading, as a slow thread or a cached clock does. The reset_after
 * of each granted request shows the window it was counted in, so the limit can be checked afterwards, exactly, without
 * knowing the order of events.
 */
#include "stress.h"

enum { WORKERS = 3, KEYS = 3, LOG_MAX = 1 << 21 };

struct grant {
    uint32_t key;
    int64_t at_us; /* when it counts: start of its window or part, or its logged time */
    int64_t now_us;
};

struct job {
    weir_segment *segment;
    weir_limit limit;
    int64_t cost;
    int64_t clock_us;
    bool over;
    int64_t grants;
    int64_t failed;
    struct grant *grant;
    uint64_t seed;
};

/* The time at which a granted request was counted, from its decision. */
static int64_t counted_at(const weir_limit *limit, int64_t now_us, const weir_decision *d)
{
    int64_t reset = now_us + d->reset_after_ns / 1000;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return reset - limit->window_us;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 2)
        return reset - limit->buckets * limit->part_us;
    /* Two buckets: the usage of a window weighs nothing at some moment within the next one. */
    if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER)
        return ((reset - 1) / limit->part_us - 1) * limit->part_us;
    return now_us;
}

/* Singly or in a batch, which is another code path. */
static int take(const struct job *job, const uint32_t *key, weir_time now, bool batch, weir_decision *decision)
{
    weir_request request = {.limit = &job->limit, .key = key, .key_len = sizeof *key, .cost = job->cost};
    if (!batch)
        return weir_take(job->segment, &job->limit, key, sizeof *key, job->cost, now, decision);
    int failed = weir_take_batch(job->segment, &request, 1, now);
    *decision = request.decision;
    return failed;
}

static void *work(void *argument)
{
    struct job *job = argument;
    uint64_t seed = __atomic_add_fetch(&job->seed, 77, __ATOMIC_RELAXED);
    int64_t now_us = 0;
    while (!__atomic_load_n(&job->over, __ATOMIC_ACQUIRE)) {
        uint64_t random = test_random(&seed);
        if (random % 8 || !now_us)
            now_us = __atomic_load_n(&job->clock_us, __ATOMIC_RELAXED);
        weir_time now = {now_us * 1000, now_us * 1000};
        uint32_t key = random >> 8 & 0xffff;
        weir_decision d;
        key %= KEYS;
        if (take(job, &key, now, random >> 32 & 1, &d)) {
            __atomic_fetch_add(&job->failed, 1, __ATOMIC_RELAXED);
        } else if (weir_passes(&d)) {
            int64_t n = __atomic_fetch_add(&job->grants, 1, __ATOMIC_RELAXED);
            if (n < LOG_MAX)
                job->grant[n] = (struct grant){key, counted_at(&job->limit, now_us, &d), now_us};
        }
    }
    return NULL;
}

static int by_key_and_time(const void *a, const void *b)
{
    const struct grant *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

/* Checks that any span (t - length, t] of counted times has at most the cap. */
static void check_rolling(const struct job *job, int64_t length_us)
{
    int64_t first = 0;
    for (int64_t i = 0; i < job->grants; i++) {
        while (job->grant[first].key != job->grant[i].key || job->grant[first].at_us <= job->grant[i].at_us - length_us)
            first++;
        CHECK((i - first + 1) * job->cost <= job->limit.cap);
    }
}

/* Two buckets: in each window, the last one granted still had to fit beside the weighted usage of the previous window.
 */
static void check_pairs(const struct job *job)
{
    int64_t before = 0, before_at = 0, w = job->limit.part_us;
    for (int64_t i = 0; i < job->grants;) {
        int64_t start = job->grant[i].at_us, latest = start, end = i;
        uint32_t key = job->grant[i].key;
        while (end < job->grants && job->grant[end].at_us == start && job->grant[end].key == key) {
            latest = job->grant[end].now_us > latest ? job->grant[end].now_us : latest;
            end++;
        }
        bool adjacent = i > 0 && job->grant[i - 1].key == key && before_at == start - w;
        int64_t weighs = adjacent ? before * job->cost * (w - (latest - start)) / w : 0;
        CHECK_EQ(start % w, 0);
        CHECK(latest - start < w);
        CHECK((end - i) * job->cost + weighs <= job->limit.cap);
        before = end - i;
        before_at = start;
        i = end;
    }
}

/* A bucket grants its burst and its refill, not one more; with unlimited demand also not much less. */
static void check_bucket(const struct job *job, int64_t from_us, int64_t to_us)
{
    int64_t count[KEYS] = {0};
    int64_t most = job->limit.cap + (to_us - from_us) * job->limit.limit / job->limit.window_us;
    for (int64_t i = 0; i < job->grants; i++)
        count[job->grant[i].key]++;
    for (int k = 0; k < KEYS; k++)
        CHECK(count[k] <= most);
}

static void roll(const weir_params *params, int64_t cost, const char *name)
{
    weir_segment_options options = {.size = 1 << 20, .slab_bytes = 1 << 18};
    int64_t from_us = STRESS_NOW / 1000 / 3600000000 * 3600000000, steps = test_scaled(40000, 2000);
    struct job job = {
        .cost = cost, .clock_us = from_us, .grant = malloc(sizeof(struct grant) * LOG_MAX), .seed = params->id};
    pthread_t thread[WORKERS];
    int before = test_failures;

    CHECK_EQ(weir_segment_open(&options, &job.segment), 0);
    CHECK_EQ(weir_limit_init(&job.limit, params), 0);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, work, &job), 0);
    /* On a busy machine the workers start late: more steps, until they have started. */
    for (int64_t i = 0; i < steps || (__atomic_load_n(&job.grants, __ATOMIC_RELAXED) <= 200 && i < 100 * steps); i++) {
        __atomic_fetch_add(&job.clock_us, 1 + (int64_t)(i % 7), __ATOMIC_RELAXED);
        if (i % 4 == 0)
            usleep(1);
    }
    __atomic_store_n(&job.over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(thread[i], NULL);

    CHECK_EQ(job.failed, 0);
    CHECK(job.grants > 100 && job.grants < LOG_MAX);
    qsort(job.grant, (size_t)job.grants, sizeof *job.grant, by_key_and_time);
    if (job.limit.algorithm == WEIR_SLIDING_WINDOW_LOG)
        check_rolling(&job, job.limit.window_us);
    else if (job.limit.algorithm == WEIR_TOKEN_BUCKET)
        check_bucket(&job, from_us, job.clock_us);
    else if (job.limit.buckets == 2)
        check_pairs(&job);
    else
        check_rolling(&job, job.limit.buckets * job.limit.part_us);
    if (test_failures != before)
        printf("  with %s, %" PRId64 " grants\n", name, job.grants);
    stress_check_segment(job.segment, (weir_time){job.clock_us * 1000, job.clock_us * 1000}, true);
    weir_segment_close(job.segment);
    free(job.grant);
}

/* Windows of some tens of microseconds of simulated time: thousands of boundaries in a run. */
TEST(token_bucket_while_the_clock_advances)
{
    roll(&(weir_params){.limit = 13, .window_ns = 90000, .burst = 5, .id = 1}, 1, "13 in 90 us");
    roll(&(weir_params){.limit = 3, .window_ns = 30000, .refill = WEIR_REFILL_INTERVAL, .id = 2}, 1, "interval");
}

TEST(sliding_window_of_two_buckets_while_the_clock_advances)
{
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 40000, .id = 3}, 1,
         "10 in 40 us");
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 3, .window_ns = 9000, .id = 4}, 1,
         "3 in 9 us");
    /* The same with counts too large for one slot. */
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100000, .window_ns = 40000, .id = 9}, 10000,
         "10 times 10000 in 40 us");
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 90000, .window_ns = 9000, .id = 10}, 30000,
         "3 times 30000 in 9 us");
}

TEST(sliding_window_of_many_buckets_while_the_clock_advances)
{
    roll(
        &(weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = 60000, .buckets = 6, .id = 5},
        1, "6 buckets");
    roll(
        &(weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40, .window_ns = 600000, .buckets = 60, .id = 6},
        1, "60 buckets");
}

TEST(sliding_window_log_while_the_clock_advances)
{
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 3, .window_ns = 20000, .id = 7}, 1,
         "log, 3 in 20 us");
    roll(&(weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 50, .window_ns = 300000, .id = 8}, 1,
         "log, 50 in 300 us");
}

TEST_MAIN
