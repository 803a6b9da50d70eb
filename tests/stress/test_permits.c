/*
 * Permits under threads, processes and kill -9. A holder of a permit sets its bit in a mask of the key: after it has
 * acquired the permit, and no longer than until it releases it. There are never more bits than the limit; and when the
 * leases have expired every permit is available again, however many processes have died holding one.
 */
#include "stress.h"

#define LEASE_NS (5 * WEIR_SECOND)

enum { KEYS = 16, WORKERS = 3, HANDS = 8, SLOTS = 5 };

struct board {
    uint64_t mask[KEYS];
    uint64_t over, failed, taken, denied;
    int64_t most;     /* holders of a key: the largest limit */
    int64_t clock_ns; /* stands still while workers run */
};

static weir_limit limit_of(int64_t slots)
{
    weir_limit limit;
    weir_params params = {.algorithm = WEIR_CONCURRENCY, .limit = slots, .window_ns = LEASE_NS, .id = 9};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static weir_time now_of(struct board *board)
{
    int64_t ns = STRESS_NOW + __atomic_load_n(&board->clock_ns, __ATOMIC_RELAXED);
    return (weir_time){ns, ns};
}

struct hand {
    weir_lease lease;
    int key;
    bool holds;
};

/* One step of a worker: releases the permit that the hand holds, or acquires one. `bit` is the hand's in all masks. */
static void step(weir_segment *segment, const weir_limit *limit, struct board *board, struct hand *hand, uint64_t bit,
                 uint64_t *seed)
{
    weir_time now = now_of(board);
    weir_decision d;
    if (hand->holds && test_random(seed) % 4 == 0) {
        if (weir_renew(segment, &hand->lease, now))
            __atomic_fetch_add(&board->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    if (hand->holds) {
        __atomic_fetch_and(&board->mask[hand->key], ~bit, __ATOMIC_SEQ_CST);
        if (weir_release(segment, &hand->lease, now) || weir_release(segment, &hand->lease, now) != WEIR_ELEASE)
            __atomic_fetch_add(&board->failed, 1, __ATOMIC_RELAXED);
        hand->holds = false;
        return;
    }
    uint64_t key = test_random(seed) % KEYS;
    if (weir_acquire(segment, limit, &key, sizeof key, now, &hand->lease, &d)) {
        __atomic_fetch_add(&board->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_fetch_add(weir_passes(&d) ? &board->taken : &board->denied, 1, __ATOMIC_RELAXED);
    if (!weir_passes(&d))
        return;
    hand->key = (int)key;
    hand->holds = true;
    uint64_t holders = __atomic_fetch_or(&board->mask[key], bit, __ATOMIC_SEQ_CST) | bit;
    if (__builtin_popcountll(holders) > board->most)
        __atomic_fetch_add(&board->over, 1, __ATOMIC_RELAXED);
}

/* ---- Killed processes ---- */

static pid_t start(const char *path, const weir_limit *limit, struct board *board, int worker, uint64_t seed)
{
    fflush(stdout);
    pid_t child = fork();
    if (child)
        return child;
    weir_segment *segment = stress_open(path, 0, 0);
    struct hand hand[HANDS] = {0};
    for (;;) {
        uint64_t i = test_random(&seed) % HANDS;
        step(segment, limit, board, &hand[i], UINT64_C(1) << ((uint64_t)worker * HANDS + i), &seed);
    }
}

static void end(pid_t child, struct board *board, int worker, uint64_t *seed)
{
    if (test_random(seed) % 2) {
        kill(child, SIGSTOP);
        usleep((useconds_t)(test_random(seed) % 300));
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int key = 0; key < KEYS; key++)
        __atomic_fetch_and(&board->mask[key], ~(UINT64_C(0xff) << worker * HANDS), __ATOMIC_SEQ_CST);
}

/* All processes are dead and the leases have expired: all permits are available, not one more, and released ones are
 * again. */
static void check_all_free(weir_segment *segment, const weir_limit *limit, struct board *board)
{
    for (uint64_t key = 0; key < KEYS; key++) {
        weir_lease lease[SLOTS + 1];
        int64_t got = 0;
        for (int i = 0; i <= SLOTS; i++) {
            weir_decision d;
            CHECK_EQ(weir_acquire(segment, limit, &key, sizeof key, now_of(board), &lease[got], &d), 0);
            got += weir_passes(&d);
        }
        CHECK_EQ(got, SLOTS);
        for (int i = 0; i < SLOTS; i++)
            CHECK_EQ(weir_release(segment, &lease[i], now_of(board)), 0);
    }
}

/* On a busy machine processes are killed before they have acquired anything: waits until more was acquired than
 * processes died. */
static void until_taken(struct board *board, int64_t died)
{
    for (int i = 0; i < 10000 && __atomic_load_n(&board->taken, __ATOMIC_RELAXED) <= (uint64_t)died + WORKERS; i++)
        usleep(1000);
}

TEST(killed_holders_lose_no_permit)
{
    char path[64];
    uint64_t seed = 11;
    pid_t child[WORKERS];
    struct board *board = stress_shared(sizeof *board);
    weir_limit limit = limit_of(SLOTS);
    board->most = SLOTS;
    int64_t deaths = test_scaled(1000, 50), died = 0;
    private_path(path, sizeof path, "segment");
    weir_segment *segment = stress_open(path, 1 << 20, 1 << 18);
    while (died < deaths || (!board->denied && died < 100 * deaths)) {
        for (int i = 0; i < WORKERS; i++)
            child[i] = start(path, &limit, board, i, test_random(&seed));
        for (int i = 0; i < 22; i++, died++) {
            usleep((useconds_t)(200 + test_random(&seed) % 1500));
            until_taken(board, died);
            int at = (int)(test_random(&seed) % WORKERS);
            end(child[at], board, at, &seed);
            child[at] = start(path, &limit, board, at, test_random(&seed));
        }
        for (int i = 0; i < WORKERS; i++, died++)
            end(child[i], board, i, &seed);
        board->clock_ns += LEASE_NS;
        check_all_free(segment, &limit, board);
    }
    CHECK_EQ(board->over, 0);
    CHECK_EQ(board->failed, 0);
    CHECK(board->taken > (uint64_t)died && board->denied > 0);
    stress_check_segment(segment, now_of(board), true);
    weir_segment_close(segment);
    unlink(path);
    munmap(board, sizeof *board);
}

/* ---- Threads ---- */

struct thread {
    weir_segment *segment;
    struct board *board;
    weir_limit limit[2]; /* alternating */
    int worker;
    int64_t steps;
};

static void *run_thread(void *context)
{
    struct thread *thread = context;
    struct hand hand[HANDS] = {0};
    uint64_t seed = (uint64_t)thread->worker + 77;
    for (int64_t n = 0; n < thread->steps; n++) {
        uint64_t i = test_random(&seed) % HANDS;
        step(thread->segment, &thread->limit[n % 2], thread->board, &hand[i],
             UINT64_C(1) << ((uint64_t)thread->worker * HANDS + i), &seed);
    }
    for (uint64_t key = 0; key < KEYS; key++)
        __atomic_fetch_and(&thread->board->mask[key], ~(UINT64_C(0xff) << thread->worker * HANDS), __ATOMIC_SEQ_CST);
    for (int i = 0; i < HANDS; i++)
        if (hand[i].holds)
            CHECK_EQ(weir_release(thread->segment, &hand[i].lease, now_of(thread->board)), 0);
    return NULL;
}

/* Of two limits only the larger can be checked: other threads may acquire under it at any moment. */
static void run_threads(int64_t slots, int64_t others)
{
    struct board *board = stress_shared(sizeof *board);
    struct thread thread[4];
    pthread_t id[4];
    weir_segment *segment = NULL;
    board->most = slots > others ? slots : others;
    weir_segment_options options = {.size = 1 << 20, .slab_bytes = 1 << 18};
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    for (int i = 0; i < 4; i++) {
        thread[i] = (struct thread){segment, board, {limit_of(slots), limit_of(others)}, i, test_scaled(400000, 20000)};
        CHECK_EQ(pthread_create(&id[i], NULL, run_thread, &thread[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(id[i], NULL);
    CHECK_EQ(board->over, 0);
    CHECK_EQ(board->failed, 0);
    CHECK(board->taken > 0 && board->denied > 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        weir_decision d;
        CHECK_EQ(weir_peek(segment, &thread[0].limit[0], &key, sizeof key, 0, now_of(board), &d), 0);
        CHECK_EQ(d.remaining, slots);
    }
    weir_segment_close(segment);
    munmap(board, sizeof *board);
}

TEST(threads_never_exceed_the_limit)
{
    run_threads(1, 1);
    run_threads(2, 2);
}

TEST(threads_under_two_limits_never_exceed_the_larger)
{
    run_threads(2, 2 + 1);
    run_threads(1, 6);
}

TEST_MAIN
