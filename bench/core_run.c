/* Measuring: threads on processors of their own, alternating rounds, medians. */
#include "core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * How often the clock is read, as in a turn of an event loop. Time that is only counted runs apart between threads, and
 * one finds keys that another has changed in what is its future.
 */
enum { DECISIONS_A_CLOCK = 1024 };

enum { GROUP = 32 }; /* lines prefetched together by the bound */

/* One round of one contender. */
struct round {
    const struct weir__bench_contender *who;
    int round_ms;
    atomic_int ready;
    atomic_bool go, stop;
    struct worker {
        uint64_t decisions;
        uint64_t unexpected;
        double seconds;
    } __attribute__((aligned(128))) worker[WEIR__BENCH_THREADS_MAX];
};

/* ---- Threads ---- */

int weir__bench_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

struct crew {
    void (*work)(void *context, int thread);
    void *context;
    int thread;
};

static void pin(int thread)
{
    cpu_set_t set, one;
    if (sched_getaffinity(0, sizeof set, &set) || !CPU_COUNT(&set))
        return;
    int left = thread % CPU_COUNT(&set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set) || left--)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one); /* unpinned it is noisier, not wrong */
        return;
    }
}

static void *enlist(void *argument)
{
    struct crew *me = argument;
    pin(me->thread);
    me->work(me->context, me->thread);
    return NULL;
}

void weir__bench_on_threads(int threads, void (*work)(void *context, int thread), void *context)
{
    pthread_t id[WEIR__BENCH_THREADS_MAX];
    struct crew crew[WEIR__BENCH_THREADS_MAX];

    for (int i = 0; i < threads; i++) {
        crew[i] = (struct crew){work, context, i};
        if (pthread_create(&id[i], NULL, enlist, &crew[i])) {
            /* Those that run wait for the missing one; there is nothing to go back to. */
            weir__bench_note("could not start a thread");
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(id[i], NULL);
}

/* ---- What a thread does ---- */

/* The thread's own time on a processor: what other programs take from it is not measured, only what they do to the
 * caches. */
static double seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static bool swap(struct weir__bench_cell *cell, struct weir__bench_cell expected, struct weir__bench_cell desired)
{
#if defined(__x86_64__)
    bool swapped;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(swapped), "+m"(*cell), "+a"(expected.lo), "+d"(expected.hi)
                     : "b"(desired.lo), "c"(desired.hi)
                     : "memory");
    return swapped;
#elif defined(__aarch64__)
    uint64_t lo, hi;
    uint32_t failed;
    do {
        __asm__ volatile("ldaxp %0, %1, %2" : "=&r"(lo), "=&r"(hi) : "Q"(*cell) : "memory");
        if (lo != expected.lo || hi != expected.hi) {
            __asm__ volatile("clrex" ::: "memory");
            return false;
        }
        __asm__ volatile("stlxp %w0, %2, %3, %1"
                         : "=&r"(failed), "=Q"(*cell)
                         : "r"(desired.lo), "r"(desired.hi)
                         : "memory");
    } while (failed);
    return true;
#else
#error "weir needs a 16-byte compare-and-swap: x86-64 or arm64"
#endif
}

static struct weir__bench_cell *cell_of(const struct weir__bench_table *table, uint64_t id)
{
    __extension__ typedef unsigned __int128 u128;
    uint64_t hash = weir__bench_mix(id);
    return &table->bare[(uint64_t)((u128)hash * table->lines >> 64)].slot[hash & 3];
}

/* For writing, as the library prefetches its lines. */
static inline void ask_for(const void *address)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1, 3);
#endif
}

/* One swap that worked, of what is there for the same: the memory is the segment's. */
static inline void change(struct weir__bench_cell *cell)
{
    struct weir__bench_cell seen;
    do {
        seen.lo = __atomic_load_n(&cell->lo, __ATOMIC_RELAXED);
        seen.hi = __atomic_load_n(&cell->hi, __ATOMIC_RELAXED);
    } while (!swap(cell, seen, seen));
}

/* The bound of one line a key: prefetches a group of lines, then swaps one cell of each until it succeeds. */
static void touch(const struct weir__bench_table *table, const uint64_t *id)
{
    struct weir__bench_cell *cell[GROUP];
    for (int i = 0; i < GROUP; i++) {
        cell[i] = cell_of(table, id[i]);
        ask_for(cell[i]);
    }
    for (int i = 0; i < GROUP; i++)
        change(cell[i]);
}

/*
 * The bound: the same on the very lines of the decisions; of a key that is not at home, that line and the one where it
 * is. Prefetched together: twice for one line costs less than checking whether there are two.
 */
static void touch_route(const struct weir__bench_table *table, const struct weir__bench_step *step)
{
    for (int i = 0; i < GROUP; i++) {
        ask_for(&table->bare[step[i].primary]);
        ask_for(&table->bare[step[i].cell / 4]);
    }
    for (int i = 0; i < GROUP; i++)
        change(&table->bare[step[i].cell / 4].slot[step[i].cell % 4]);
}

static uint64_t take_singly(const struct weir__bench_table *table, const uint64_t *id, weir_time now, bool clock)
{
    uint64_t passed = 0;
    for (int i = 0; i < WEIR__BENCH_BATCH; i++) {
        weir_decision decision;
        if (clock)
            now = weir_clock(table->segment);
        if (weir_take(table->segment, &table->limit, &id[i], WEIR__BENCH_KEY_BYTES, 1, now, &decision) == 0)
            passed += weir_passes(&decision);
    }
    return passed;
}

/* How many requests of the previous batch passed: its results are read while the next keys are set, as a caller would.
 */
static uint64_t take_batch(const struct weir__bench_table *table, const uint64_t *id, weir_time now,
                           weir_request *request)
{
    uint64_t passed = 0;
    for (int i = 0; i < WEIR__BENCH_BATCH; i++) {
        passed += weir_passes(&request[i].decision);
        request[i].key = &id[i];
    }
    if (weir_take_batch(table->segment, request, WEIR__BENCH_BATCH, now))
        return UINT64_MAX / 2; /* neither all nor none */
    return passed;
}

/* 256 decisions; how many passed. */
static uint64_t work_on(const struct weir__bench_contender *who, size_t at, weir_time now, weir_request *request)
{
    const uint64_t *id = who->keys->id + at;
    switch (who->mode) {
    case WEIR__BENCH_BOUND:
        for (int i = 0; i < WEIR__BENCH_BATCH; i += GROUP)
            touch(who->table, id + i);
        return who->table->kind->denied ? 0 : WEIR__BENCH_BATCH;
    case WEIR__BENCH_ROUTE:
        for (int i = 0; i < WEIR__BENCH_BATCH; i += GROUP)
            touch_route(who->table, who->keys->route + at + i);
        return WEIR__BENCH_BATCH;
    case WEIR__BENCH_SINGLE:
    case WEIR__BENCH_CLOCK:
        return take_singly(who->table, id, now, who->mode == WEIR__BENCH_CLOCK);
    case WEIR__BENCH_IN_BATCHES:
        break;
    }
    return take_batch(who->table, id, now, request);
}

static void work(void *context, int thread)
{
    struct round *round = context;
    const struct weir__bench_contender *who = round->who;
    struct worker *me = &round->worker[thread];
    weir_request request[WEIR__BENCH_BATCH];
    uint64_t expected = who->table->kind->denied ? 0 : WEIR__BENCH_BATCH, decisions = 0, unexpected = 0;
    bool decides = who->mode != WEIR__BENCH_BOUND && who->mode != WEIR__BENCH_ROUTE;
    bool some = who->table->kind->tight && !who->keys->even; /* may be denied */
    size_t mask = who->keys->count - 1;
    /* Each thread goes through the keys from a place of its own. */
    size_t at = who->keys->count / (size_t)who->threads * (size_t)thread & ~(size_t)(WEIR__BENCH_BATCH - 1);

    for (int i = 0; i < WEIR__BENCH_BATCH; i++)
        request[i] = (weir_request){.limit = &who->table->limit,
                                    .key_len = WEIR__BENCH_KEY_BYTES,
                                    .cost = 1,
                                    .decision.verdict = expected ? WEIR_ALLOW : WEIR_DENY};
    atomic_fetch_add(&round->ready, 1);
    while (!atomic_load(&round->go))
        sched_yield();

    weir_time now = {0};
    double began = seconds();
    while (!atomic_load_explicit(&round->stop, memory_order_relaxed)) {
        if (decides && decisions % DECISIONS_A_CLOCK == 0)
            now = weir_clock(who->table->segment);
        uint64_t passed = work_on(who, at, now, request);
        unexpected += some ? passed > expected : passed != expected;
        decisions += WEIR__BENCH_BATCH;
        at = (at + WEIR__BENCH_BATCH) & mask;
    }
    me->seconds = seconds() - began;
    me->decisions = decisions;
    me->unexpected = unexpected;
}

/* ---- Rounds ---- */

static void *time_keeper(void *argument)
{
    struct round *round = argument;
    struct timespec length = {round->round_ms / 1000, round->round_ms % 1000 * 1000000L};

    while (atomic_load(&round->ready) < round->who->threads)
        sched_yield();
    atomic_store(&round->go, true);
    nanosleep(&length, NULL);
    atomic_store(&round->stop, true);
    return NULL;
}

/* Decisions a second, or a negative number if some were not as expected. */
static double run(const struct weir__bench_contender *who, int round_ms)
{
    static struct round round; /* large, and only ever one at a time */
    pthread_t keeper;
    double rate = 0;

    memset(&round, 0, sizeof round);
    round.who = who;
    round.round_ms = round_ms;
    if (pthread_create(&keeper, NULL, time_keeper, &round))
        return -1;
    weir__bench_on_threads(who->threads, work, &round);
    pthread_join(keeper, NULL);
    for (int i = 0; i < who->threads; i++) {
        if (round.worker[i].unexpected)
            return -1;
        rate += (double)round.worker[i].decisions / round.worker[i].seconds;
    }
    return rate;
}

bool weir__bench_contest(struct weir__bench_contender *contender, int count, int rounds, int round_ms)
{
    for (int r = -1; r < rounds; r++) {
        for (int i = 0; i < count; i++) {
            struct weir__bench_contender *who = &contender[i];
            double rate = run(who, round_ms);
            if (rate < 0) {
                weir__bench_note("%s, %s, %llu keys: a decision was not the expected one", who->name,
                                 who->table->kind->algorithm, (unsigned long long)who->table->keys);
                return false;
            }
            if (r >= 0)
                who->rate[r] = rate;
        }
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weir__bench_median(const double *value, int count)
{
    double sorted[WEIR__BENCH_ROUNDS_MAX];
    memcpy(sorted, value, sizeof *value * (size_t)count);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double weir__bench_ratio(const struct weir__bench_contender *a, const struct weir__bench_contender *b, int rounds)
{
    double ratio[WEIR__BENCH_ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        ratio[i] = a->rate[i] / b->rate[i];
    return weir__bench_median(ratio, rounds);
}
