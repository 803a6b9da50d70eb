/*
 * kill -9 at random moments, hundreds of times. Workers take from keys at a frontier that advances, in a table full
 * enough for displacements, and record what they were granted. Whatever instruction a worker dies at: the others
 * continue, nothing is torn, nothing deadlocks, no key grants more than its limit, and at most one request per death
 * is granted without having been recorded.
 */
#include "stress.h"

enum { WORKERS = 3, FRONT = 48 };

struct board {
    uint64_t frontier; /* keys [frontier, frontier + FRONT) are being taken from */
    uint64_t failed;
    uint32_t admitted[];
};

static void work(const char *path, const weir_limit *limit, int64_t cost, struct board *board, uint64_t keys,
                 uint64_t seed)
{
    weir_segment *segment = stress_open(path, 0, 0);
    weir_time now = {STRESS_NOW, STRESS_NOW};

    for (;;) {
        uint64_t front = __atomic_load_n(&board->frontier, __ATOMIC_RELAXED);
        uint64_t key = front + test_random(&seed) % FRONT;
        weir_decision d;
        if (key >= keys)
            continue; /* the parent kills this process */
        int error = weir_take(segment, limit, &key, sizeof key, cost, now, &d);
        if (error)
            __atomic_fetch_add(&board->failed, 1, __ATOMIC_RELAXED);
        else if (weir_passes(&d))
            __atomic_fetch_add(&board->admitted[key], 1, __ATOMIC_RELAXED);
        /* Roughly every limit * FRONT requests the frontier advances by one key for each that was exhausted. */
        if (!error && !weir_passes(&d) && test_random(&seed) % 4 == 0)
            __atomic_compare_exchange_n(&board->frontier, &front, front + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

static pid_t start(const char *path, const weir_limit *limit, int64_t cost, struct board *board, uint64_t keys,
                   uint64_t seed)
{
    fflush(stdout); /* or the child would print it again */
    pid_t child = fork();
    if (child == 0) {
        work(path, limit, cost, board, keys, seed);
        _exit(0);
    }
    return child;
}

static void check_keys(weir_segment *segment, const weir_limit *limit, int64_t cost, struct board *board, uint64_t keys,
                       int64_t deaths)
{
    weir_time now = {STRESS_NOW, STRESS_NOW};
    int64_t unwritten = 0, passes = limit->limit / cost;
    for (uint64_t key = 0; key < keys; key++) {
        CHECK(board->admitted[key] <= passes);
        int64_t more = 0;
        weir_decision d;
        for (int i = 0; i <= passes; i++) {
            CHECK_EQ(weir_take(segment, limit, &key, sizeof key, cost, now, &d), 0);
            more += weir_passes(&d);
        }
        CHECK(board->admitted[key] + more <= passes);
        unwritten += passes - board->admitted[key] - more;
    }
    CHECK(unwritten <= deaths);
}

/* Half of the kills at a random time, half after stopping the victim: that reaches other instructions. */
static void end(pid_t child, uint64_t *seed)
{
    if (test_random(seed) % 2) {
        kill(child, SIGSTOP);
        usleep((useconds_t)(test_random(seed) % 300));
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void kill_workers(const struct stress_limit *what, int64_t deaths, uint64_t *seed)
{
    char path[64];
    weir_limit limit;
    weir_params params = what->params;
    pid_t child[WORKERS];
    uint64_t keys = 1 << 17;
    size_t bytes = sizeof(struct board) + keys * sizeof(uint32_t);
    struct board *board = stress_shared(bytes);

    params.limit = 20 * what->cost;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    private_path(path, sizeof path, "segment");
    bool slab = params.algorithm == WEIR_SLIDING_WINDOW_LOG || params.buckets > 2;
    uint64_t slab_bytes = slab ? keys * 36 * 5 : 0;
    weir_segment *segment = stress_open(path, keys * 16 * 10 / 9 + 2 * slab_bytes + 32768, slab_bytes);

    for (int i = 0; i < WORKERS; i++)
        child[i] = start(path, &limit, what->cost, board, keys, test_random(seed));
    int64_t died = 0;
    /* On a busy machine workers are killed before they have done anything: more kills, until they have. */
    while ((died < deaths || (board->frontier + FRONT <= 300 && died < 100 * deaths)) &&
           board->frontier + FRONT < keys) {
        usleep((useconds_t)(200 + test_random(seed) % 2000));
        int i = (int)(test_random(seed) % WORKERS);
        end(child[i], seed);
        died++;
        child[i] = start(path, &limit, what->cost, board, keys, test_random(seed));
    }
    for (int i = 0; i < WORKERS; i++, died++)
        end(child[i], seed);

    uint64_t reached = board->frontier + FRONT;
    CHECK_EQ(board->failed, 0);
    CHECK(reached > 200);
    check_keys(segment, &limit, what->cost, board, reached < keys ? reached : keys, died);
    stress_check_segment(segment, (weir_time){STRESS_NOW, STRESS_NOW}, true);
    weir_segment_close(segment);
    unlink(path);
    munmap(board, bytes);
}

TEST(processes_killed_at_random_instructions)
{
    uint64_t seed = 1;
    for (int i = 0; i < STRESS_LIMITS; i++) {
        int before = test_failures;
        kill_workers(&stress_limits[i], test_scaled(80, 10), &seed);
        if (test_failures != before)
            printf("  with %s\n", stress_limits[i].name);
    }
}

TEST_MAIN
