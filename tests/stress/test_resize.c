/*
 * A segment is resized up and down, again and again, while processes that attached before decide on its keys. Half of
 * the resizing processes are killed in the middle. No unit is lost and none is granted twice: each key grants exactly
 * its limit.
 */
#include "stress.h"

#include "engine/segment.h"
#include "table/resize.h"

#include <sched.h>

enum { WORKERS = 3, KEYS = 6000 };

struct board {
    uint64_t stop, failed, takes;
    uint32_t admitted[KEYS];
};

static void work(weir_segment *segment, const weir_limit *limit, int64_t cost, weir_time now, struct board *board,
                 uint64_t seed)
{
    while (!__atomic_load_n(&board->stop, __ATOMIC_RELAXED)) {
        uint64_t key = test_random(&seed) % KEYS;
        weir_decision d;
        int error = weir_take(segment, limit, &key, sizeof key, cost, now, &d);
        __atomic_fetch_add(error ? &board->failed : &board->takes, 1, __ATOMIC_RELAXED);
        if (!error && weir_passes(&d))
            __atomic_fetch_add(&board->admitted[key], 1, __ATOMIC_RELAXED);
    }
}

static uint64_t resizes, killed, interrupted;

/* Resizes in a process of its own, which is perhaps killed while it moves entries. */
static void resize(const weir_segment *segment, const char *path, uint64_t size, uint64_t *seed)
{
    int status = 0;
    fflush(stdout);
    bool kills = test_random(seed) % 2, ended = false;
    const uint64_t *geometry = &segment->table.header->geometry;
    uint64_t before = weir__load64(geometry);
    pid_t child = fork();
    if (child == 0) {
        weir_resize result;
        int error = weir_segment_resize(path, size, &result);
        if (error)
            printf("  resize to %d KiB: %s\n", (int)(size >> 10), weir_strerror(error));
        fflush(stdout);
        _exit(error != 0);
    }
    /* The geometry changes when a move begins, or when that of a process that was killed is completed. */
    while (kills && !ended && weir__load64(geometry) == before) {
        ended = waitpid(child, &status, WNOHANG) == child;
        sched_yield();
    }
    if (kills && !ended) {
        usleep((useconds_t)(test_random(seed) % 4 * 100));
        kill(child, SIGKILL);
    }
    if (!ended)
        waitpid(child, &status, 0);
    interrupted += WIFSIGNALED(status) && weir__is_resizing(&segment->table);
    resizes += WIFEXITED(status);
    killed += WIFSIGNALED(status);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

/* `slots` for each 9 keys, at the smallest size. */
static void resize_under_load(const struct stress_limit *what, uint64_t slots, int64_t rounds, uint64_t *seed)
{
    char path[64];
    weir_limit limit;
    weir_params params = what->params;
    weir_resize result;
    struct board *board = stress_shared(sizeof *board);
    params.window_ns = WEIR_DAY; /* none ends meanwhile */
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    private_path(path, sizeof path, "segment");
    bool slab = params.algorithm == WEIR_SLIDING_WINDOW_LOG || params.buckets > 2;
    uint64_t slab_bytes = slab ? KEYS * 36 * 5 : 0, size = KEYS * 16 * slots / 9 + 2 * slab_bytes + 32768;
    weir_segment *segment = stress_open(path, size, slab_bytes);
    weir_time now = weir_clock(segment);

    pid_t child[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        uint64_t own = test_random(seed);
        fflush(stdout);
        child[i] = fork();
        if (child[i] == 0) { /* one inherits the mapping, as nginx's workers do */
            work(i ? stress_open(path, 0, 0) : segment, &limit, what->cost, now, board, own);
            _exit(0);
        }
    }
    for (int64_t i = 0; i < rounds; i++)
        resize(segment, path, size << test_random(seed) % 5, seed);
    CHECK_EQ(weir_segment_resize(path, size, &result), 0);
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < WORKERS; i++)
        waitpid(child[i], NULL, 0);

    CHECK_EQ(board->failed, 0);
    CHECK(board->takes > 1000);
    stress_check_segment(segment, now, true);
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t more = 0;
        weir_decision d;
        for (int i = 0; i <= PASSES; i++) {
            CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, what->cost, now, &d), 0);
            more += weir_passes(&d);
        }
        CHECK_EQ(board->admitted[key] + more, PASSES);
    }
    weir_segment_close(segment);
    unlink(path);
    munmap(board, sizeof *board);
}

TEST(counters_are_exact_while_the_size_changes)
{
    uint64_t seed = 1;
    for (int i = 0; i <= STRESS_LIMITS; i++) { /* the first one again, with 72 % of the slots in use */
        int before = test_failures;
        const struct stress_limit *what = &stress_limits[i % STRESS_LIMITS];
        resize_under_load(what, i < STRESS_LIMITS ? 20 : 12, test_scaled(60, 10), &seed);
        if (test_failures != before)
            printf("  with %s\n", what->name);
    }
    printf("  %d resizes, %d killed, %d of them in a move\n", (int)resizes, (int)killed, (int)interrupted);
    CHECK(resizes > 10 && interrupted > 0);
}

TEST_MAIN
