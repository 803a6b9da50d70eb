/*
 * A flood of new keys by several workers in a slab and buckets that are far too small, while records and entries are
 * evicted all the time and workers are killed: keys that have used up their limits stay denied, nothing is torn, no
 * request gets an error, and all chunks are available again.
 */
#include "stress.h"

enum { WORKERS = 3, VICTIMS = 12, SLAB = 64 << 10 };

static const weir_params kinds[] = {
    {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 5, .window_ns = 3600 * WEIR_SECOND, .id = 1},
    {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 5, .window_ns = 3600 * WEIR_SECOND, .buckets = 6, .id = 2},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct board {
    uint64_t next; /* the next new key */
    uint64_t failed, let_through;
    bool end;
};

struct job {
    weir_segment *segment;
    weir_limit limit[KINDS];
    struct board *board;
};

static const weir_time now = {STRESS_NOW, STRESS_NOW};

static bool passes(const struct job *job, int kind, uint64_t key)
{
    weir_decision d = {.verdict = WEIR_DENY};
    if (weir_take(job->segment, &job->limit[kind], &key, sizeof key, 1, now, &d))
        __atomic_fetch_add(&job->board->failed, 1, __ATOMIC_RELAXED);
    return weir_passes(&d);
}

/* Every eighth request is of a denied key; the others are of new keys, which use at most half of their limits. */
static void *work(void *argument)
{
    const struct job *job = argument;
    while (!__atomic_load_n(&job->board->end, __ATOMIC_RELAXED)) {
        uint64_t key = __atomic_fetch_add(&job->board->next, 1, __ATOMIC_RELAXED);
        int kind = (int)(key / 8 % KINDS);
        if (key % 8 == 0 && passes(job, kind, key / 16 % VICTIMS))
            __atomic_fetch_add(&job->board->let_through, 1, __ATOMIC_RELAXED);
        for (uint64_t i = 0; key % 8 && i <= key % 2; i++)
            (void)passes(job, kind, key);
    }
    return NULL;
}

static struct job begin(const char *path)
{
    struct job job = {.segment = stress_open(path, 1 << 20, SLAB), .board = stress_shared(sizeof *job.board)};
    job.board->next = 1000;
    for (int i = 0; i < KINDS; i++) {
        CHECK_EQ(weir_limit_init(&job.limit[i], &kinds[i]), 0);
        for (uint64_t key = 0; key < VICTIMS; key++)
            for (int64_t k = 0; k <= kinds[i].limit; k++)
                CHECK_EQ(passes(&job, i, key), k < kinds[i].limit);
    }
    return job;
}

static void finish(struct job *job, const char *path)
{
    weir_stats stats, later;
    weir_report report;
    CHECK_EQ(job->board->failed, 0);
    CHECK_EQ(job->board->let_through, 0);
    for (int i = 0; i < KINDS; i++)
        for (uint64_t key = 0; key < VICTIMS; key++)
            CHECK(!passes(job, i, key));
    CHECK_EQ(weir_stats_read(job->segment, &stats), 0);
    CHECK(stats.evicted_live > 0);
    CHECK_EQ(stats.evicted_denied, 0);
    CHECK_EQ(stats.errors, 0);
    CHECK_EQ(weir_segment_validate(job->segment, now, &report), 0);

    /* When all leases have expired, every chunk is available for a new log, without an eviction. */
    weir_time then = {STRESS_NOW + 3 * 3600 * WEIR_SECOND, STRESS_NOW + 3 * 3600 * WEIR_SECOND};
    for (uint64_t key = 0; key < stats.chunks; key++) {
        weir_decision d;
        CHECK_EQ(weir_take(job->segment, &job->limit[0], &key, sizeof key, 1, then, &d), 0);
    }
    CHECK_EQ(weir_stats_read(job->segment, &later), 0);
    CHECK_EQ(later.evicted_live, stats.evicted_live);
    weir_segment_close(job->segment);
    munmap(job->board, sizeof *job->board);
    unlink(path);
}

TEST(denied_keys_survive_a_flood_by_threads)
{
    char path[64];
    pthread_t thread[WORKERS];
    private_path(path, sizeof path, "segment");
    struct job job = begin(path);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, work, &job), 0);
    for (int64_t keys = test_scaled(300000, 20000);
         __atomic_load_n(&job.board->next, __ATOMIC_RELAXED) < (uint64_t)keys;)
        usleep(1000);
    __atomic_store_n(&job.board->end, true, __ATOMIC_RELAXED);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(thread[i], NULL);
    finish(&job, path);
}

static pid_t start(struct job *job)
{
    fflush(stdout); /* or the child would print it again */
    pid_t child = fork();
    if (child == 0) {
        work(job);
        _exit(0);
    }
    return child;
}

TEST(denied_keys_survive_a_flood_by_killed_processes)
{
    char path[64];
    pid_t child[WORKERS];
    uint64_t seed = 1;
    private_path(path, sizeof path, "segment");
    struct job job = begin(path);
    for (int i = 0; i < WORKERS; i++)
        child[i] = start(&job);
    for (int64_t died = 0, deaths = test_scaled(200, 20); died < deaths || job.board->next < 20000; died++) {
        int i = (int)(test_random(&seed) % WORKERS);
        usleep((useconds_t)(200 + test_random(&seed) % 2000));
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
        child[i] = start(&job);
    }
    for (int i = 0; i < WORKERS; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    finish(&job, path);
}

TEST_MAIN
