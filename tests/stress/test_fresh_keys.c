/*
 * New keys, used by all workers at once: exactly the limit is admitted on every one. With threads and with processes;
 * in a table nearly full, so that entries are displaced; and in one full of recovered entries, so that every new key
 * takes over another's slot while that one may still be in use.
 */
#include "stress.h"

enum { WORKERS = 4, CHUNK = 64 };

struct job {
    weir_segment *segment; /* NULL: attach by path */
    const char *path;
    weir_limit limit;
    int64_t cost;
    weir_time now;
    int64_t keys;
    uint64_t salt;      /* makes the keys of one round different from those of another */
    uint32_t *admitted; /* by key, shared by all workers */
    int64_t *arrived;   /* by chunk: how many workers have started it */
    int64_t *failed;    /* takes that returned an error */
    int64_t *other;     /* of those, one other than WEIR_EFULL */
    int batch;          /* take with weir_take_batch, so many copies of each key at once */
};

/* All workers start a chunk together: the first requests of its keys come at the same moment. */
static void meet(int64_t *arrived, int64_t chunk)
{
    __atomic_fetch_add(&arrived[chunk], 1, __ATOMIC_SEQ_CST);
    for (int64_t spin = 0; __atomic_load_n(&arrived[chunk], __ATOMIC_SEQ_CST) < WORKERS && spin < 20000; spin++)
        if (spin % 64 == 63)
            usleep(0);
}

static void hit(struct job *job, weir_segment *segment, int64_t number)
{
    struct {
        uint64_t salt, number;
    } key = {job->salt, (uint64_t)number};
    weir_request request[16];
    int tries = PASSES + 1;

    for (int i = 0; i < tries; i++)
        request[i] = (weir_request){.limit = &job->limit, .key = &key, .key_len = sizeof key, .cost = job->cost};
    if (job->batch) {
        int failed = weir_take_batch(segment, request, (size_t)tries, job->now);
        __atomic_fetch_add(job->failed, failed, __ATOMIC_RELAXED);
    } else {
        for (int i = 0; i < tries; i++) {
            int error = weir_take(segment, &job->limit, &key, sizeof key, job->cost, job->now, &request[i].decision);
            __atomic_fetch_add(job->failed, error != 0, __ATOMIC_RELAXED);
            __atomic_fetch_add(job->other, error != 0 && error != WEIR_EFULL, __ATOMIC_RELAXED);
            if (error)
                request[i].decision.verdict = WEIR_DENY; /* nothing was taken */
        }
    }
    for (int i = 0; i < tries; i++)
        __atomic_fetch_add(&job->admitted[number], weir_passes(&request[i].decision), __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
    struct job *job = argument;
    weir_segment *segment = job->segment ? job->segment : stress_open(job->path, 0, 0);
    for (int64_t at = 0; at < job->keys; at += CHUNK) {
        meet(job->arrived, at / CHUNK);
        for (int64_t k = at; k < at + CHUNK && k < job->keys; k++)
            hit(job, segment, k);
    }
    if (!job->segment)
        weir_segment_close(segment);
    return NULL;
}

static void run_threads(struct job *job)
{
    pthread_t thread[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, work, job), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(thread[i], NULL);
}

static void run_processes(struct job *job)
{
    pid_t child[WORKERS];
    fflush(stdout); /* or each child would print it again */
    for (int i = 0; i < WORKERS; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            work(job);
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int status = -1;
        waitpid(child[i], &status, 0);
        CHECK_EQ(status, 0);
    }
}

/* Runs `run` over fresh keys and checks that each got exactly its limit. */
static void fresh(struct job *job, void (*run)(struct job *), const char *name)
{
    size_t chunks = (size_t)(job->keys / CHUNK + 1);
    int before = test_failures;
    job->admitted = stress_shared((size_t)job->keys * sizeof *job->admitted);
    job->arrived = stress_shared(chunks * sizeof *job->arrived);
    job->failed = stress_shared(sizeof *job->failed);
    job->other = stress_shared(sizeof *job->other);
    run(job);
    CHECK_EQ(*job->failed, 0);
    for (int64_t k = 0; k < job->keys; k++)
        CHECK_EQ(job->admitted[k], PASSES);
    if (test_failures != before)
        printf("  with %s\n", name);
    munmap(job->admitted, (size_t)job->keys * sizeof *job->admitted);
    munmap(job->arrived, chunks * sizeof *job->arrived);
    munmap(job->failed, sizeof *job->failed);
    munmap(job->other, sizeof *job->other);
}

static int64_t keys_each(void)
{
    return test_scaled(220000 / STRESS_LIMITS + 1, 200);
}

/* Sized so that the keys of one limit fill 90 % of the slots; logs and wide counters get the slab they need. */
static uint64_t size_for(int64_t keys, const struct stress_limit *limit, uint64_t *slab)
{
    uint64_t lines = (uint64_t)keys * 64 / 4 * 10 / 9 + 65536;
    bool log = limit->params.algorithm == WEIR_SLIDING_WINDOW_LOG;
    *slab = log || limit->params.buckets > 2 ? (uint64_t)keys * 36 * (log ? 4 : 3) + 65536 : 0;
    return lines + *slab * 2 + 8192;
}

static void nearly_full(void (*run)(struct job *), bool by_path, int batch)
{
    for (int i = 0; i < STRESS_LIMITS; i++) {
        char path[64];
        uint64_t slab, size = size_for(keys_each(), &stress_limits[i], &slab);
        struct job job = {.now = {STRESS_NOW, STRESS_NOW}, .keys = keys_each(), .batch = batch};
        private_path(path, sizeof path, "segment");
        weir_segment *segment = stress_open(path, size, slab);
        if (by_path)
            job.path = path;
        else
            job.segment = segment;
        job.cost = stress_limits[i].cost;
        CHECK_EQ(weir_limit_init(&job.limit, &stress_limits[i].params), 0);
        fresh(&job, run, stress_limits[i].name);
        stress_check_segment(segment, job.now, true);
        weir_segment_close(segment);
        unlink(path);
    }
}

TEST(threads_on_fresh_keys)
{
    nearly_full(run_threads, false, 0);
}

TEST(threads_on_fresh_keys_in_batches)
{
    nearly_full(run_threads, false, 1);
}

TEST(processes_on_fresh_keys)
{
    nearly_full(run_processes, true, 0);
}

/*
 * Every slot has an entry that has recovered or is about to: new keys take the slots over while workers use the old
 * keys again. Time advances from round to round, and the entries of the last round have recovered.
 */
static void reuse_slots(void (*run)(struct job *), bool by_path)
{
    enum { ROUNDS = 8 };
    for (int i = 0; i < STRESS_LIMITS; i++) {
        int64_t keys = test_scaled(220000 / STRESS_LIMITS / ROUNDS, 200);
        uint64_t slab, size = size_for(keys, &stress_limits[i], &slab);
        char path[64];
        private_path(path, sizeof path, "segment");
        weir_segment *segment = stress_open(path, size, slab);
        struct job job = {.segment = by_path ? NULL : segment, .path = path, .keys = keys};
        job.cost = stress_limits[i].cost;
        CHECK_EQ(weir_limit_init(&job.limit, &stress_limits[i].params), 0);
        for (int round = 0; round < ROUNDS; round++) {
            /* Three windows later: beyond a sliding counter's two, and beyond a lease's slack. */
            job.now.mono_ns = job.now.wall_ns = STRESS_NOW + round * 3 * 3600 * WEIR_SECOND;
            job.salt = (uint64_t)round / 2; /* every second round the old keys again */
            fresh(&job, run, stress_limits[i].name);
        }
        stress_check_segment(segment, job.now, true);
        weir_segment_close(segment);
        unlink(path);
    }
}

TEST(exact_while_threads_reuse_slots)
{
    reuse_slots(run_threads, false);
}

TEST(exact_while_processes_reuse_slots)
{
    reuse_slots(run_processes, true);
}

/*
 * A table far too small: live entries are evicted all the time, so nothing is certain about the keys that lose theirs.
 * But it must stay consistent, every eviction must be counted, and a key that all workers keep using stays counted.
 */
TEST(consistent_while_live_entries_are_evicted)
{
    for (int i = 0; i < STRESS_LIMITS; i++) {
        char path[64];
        private_path(path, sizeof path, "segment");
        weir_segment *segment = stress_open(path, 65536 + 65536, 16384);
        struct job job = {.segment = segment, .now = {STRESS_NOW, STRESS_NOW}, .keys = test_scaled(20000, 9000)};
        job.cost = stress_limits[i].cost;
        CHECK_EQ(weir_limit_init(&job.limit, &stress_limits[i].params), 0);
        size_t chunks = (size_t)(job.keys / CHUNK + 1);
        job.admitted = stress_shared((size_t)job.keys * sizeof *job.admitted);
        job.arrived = stress_shared(chunks * sizeof *job.arrived);
        job.failed = stress_shared(sizeof *job.failed);
        job.other = stress_shared(sizeof *job.other);
        run_threads(&job);
        uint64_t below = 0, above = 0;
        for (int64_t k = 0; k < job.keys; k++) {
            below += job.admitted[k] < PASSES;
            above += job.admitted[k] > PASSES;
        }
        weir_stats stats;
        CHECK_EQ(weir_stats_read(segment, &stats), 0);
        const weir_params *params = &stress_limits[i].params;
        if (params->algorithm == WEIR_SLIDING_WINDOW_LOG || params->buckets > 2) {
            /* Every key is exhausted, and no exhausted one loses its record: the others get WEIR_EFULL, which is
             * counted. */
            CHECK(below > 0 && *job.failed > 0);
            CHECK_EQ(*job.other, 0);
            CHECK_EQ(stats.slab_full, *job.failed);
        } else {
            CHECK_EQ(below, 0);
            CHECK_EQ(*job.failed, 0);
            CHECK(stats.evicted_live > 0);
        }
        CHECK(above <= stats.evicted_live); /* a key that got more had lost its entry, and that was counted */
        weir_report report;
        CHECK_EQ(weir_segment_validate(segment, job.now, &report), 0);
        weir_segment_close(segment);
        unlink(path);
    }
}

TEST_MAIN
