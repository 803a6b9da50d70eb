/*
 * Explores interleavings: the code under test runs in coroutines, every access to shared memory is a point at which
 * another coroutine may continue, and a random generator decides which. The same seed gives the same run, so that a
 * failure can be traced step by step. This explores every order of the accesses, but not the reordering by a
 * processor: for fences and acquire/release, see test_fresh_keys under TSan and the comments in src/base/atomic.h.
 *
 * Include this before anything of src/: it replaces src/base/atomic.h.
 */
#ifndef WEIR_EXPLORE_H
#define WEIR_EXPLORE_H

/* glibc's checked longjmp aborts on a jump to another stack. */
#undef _FORTIFY_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <ucontext.h>

#include "../test.h"

#define EXPLORE_MAX   5
#define EXPLORE_STACK (256 * 1024)

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXPLORE_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define EXPLORE_ASAN
#endif

#ifdef EXPLORE_ASAN
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
const char *__asan_default_options(void);

/* ASan's use-after-return check tracks one stack only, and would reuse the variables of waiting coroutines. */
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=0";
}
#endif

static struct explore {
    /* Coroutines. Each is created once; to start over it jumps back to its base, wherever it was. */
    jmp_buf base[EXPLORE_MAX], at[EXPLORE_MAX], outside;
    void (*body)(int me);
    int count, current; /* current: -1 outside of coroutines, where nothing switches */
    bool made, alive[EXPLORE_MAX];

    /* The schedule. */
    uint64_t random;
    int64_t step;
    int switches;                       /* random: the number of 1000 accesses before which to switch; 0: by priority */
    int64_t priority[EXPLORE_MAX];      /* PCT: the highest one alive runs, but for a few steps at which it */
    int64_t lowest, change[8], changes; /* becomes the lowest */
    int64_t kill[2];                    /* steps at which the running coroutine dies; 0: none */
    int kills;

    /* Results. */
    bool trace;
    char why[160]; /* the first failure; empty: none */
    int64_t failed_step;
} explore = {.current = -1};

static char explore_stack[EXPLORE_MAX][EXPLORE_STACK] __attribute__((aligned(64)));

static int explore_random(int range)
{
    return (int)(test_random(&explore.random) % (uint64_t)range);
}

__attribute__((format(printf, 1, 2))) static void explore_fail(const char *format, ...)
{
    if (explore.why[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(explore.why, sizeof explore.why, format, arguments);
    va_end(arguments);
    explore.failed_step = explore.step;
    if (explore.trace)
        printf("*** %s\n", explore.why);
}

/* Adds a line to the trace, besides the accesses. */
__attribute__((format(printf, 1, 2))) static void explore_log(const char *format, ...)
{
    if (!explore.trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    printf("      [%d] ", explore.current);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

/* ---- Coroutines: ucontext creates the stacks; longjmp, which needs no system call, switches between them ---- */

static int explore_pick(void)
{
    int able[EXPLORE_MAX], count = 0;
    for (int i = 0; i < explore.count; i++)
        if (explore.alive[i])
            able[count++] = i;
    if (!count)
        return -1;
    if (explore.switches)
        return able[explore_random(count)];
    int best = able[0];
    for (int i = 1; i < count; i++)
        if (explore.priority[able[i]] > explore.priority[best])
            best = able[i];
    return best;
}

static _Noreturn void explore_jump(int to)
{
    explore.current = to;
    _longjmp(to < 0 ? explore.outside : explore.at[to], 1);
}

static void explore_switch(int to)
{
    if (to != explore.current && !_setjmp(explore.at[explore.current]))
        explore_jump(to);
}

/* Ends the running coroutine for good. */
static _Noreturn void explore_end(void)
{
    explore.alive[explore.current] = false;
    explore_jump(explore_pick());
}

static void explore_entry(void)
{
    int me = explore.current;
    if (!_setjmp(explore.base[me]))
        explore_jump(-1);
    explore.body(me);
    explore_end();
}

/* Runs coroutine i as far as its base. */
static void explore_make(int i)
{
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = explore_stack[i];
    context.uc_stack.ss_size = EXPLORE_STACK;
    context.uc_link = NULL;
    makecontext(&context, explore_entry, 0);
    explore.current = i;
    if (!_setjmp(explore.outside))
        setcontext(&context);
}

/* Draws a schedule. Steps are drawn from short ranges as often as from long ones, as runs have very different lengths.
 */
static void explore_draw_schedule(void)
{
    static const int often[] = {1000, 300, 100, 30}, range[] = {60, 200, 600};
    explore.switches = explore_random(2) ? often[explore_random(4)] : 0;
    explore.changes = 1 + explore_random(7);
    int within = range[explore_random(3)];
    for (int i = 0; i < explore.changes; i++)
        explore.change[i] = 1 + explore_random(within);
    explore.lowest = 0;
    int deaths = explore_random(3) ? 0 : 1 + explore_random(2);
    for (int i = 0; i < 2; i++)
        explore.kill[i] = i < deaths ? 1 + explore_random(range[explore_random(3)]) : 0;
    for (int i = 0; i < EXPLORE_MAX; i++)
        explore.priority[i] = 1 + explore_random(1000);
}

/* Runs `count` coroutines until all have ended or died. */
static void explore_run(int count, void (*body)(int me))
{
    for (int i = 0; i < EXPLORE_MAX && !explore.made; i++)
        explore_make(i);
    explore.made = true;
#ifdef EXPLORE_ASAN
    __asan_unpoison_memory_region(explore_stack, sizeof explore_stack); /* frames of coroutines that died */
#endif
    explore_draw_schedule();
    explore.count = count;
    explore.body = body;
    explore.step = 0;
    explore.kills = 0;
    for (int i = 0; i < count; i++) {
        memcpy(&explore.at[i], &explore.base[i], sizeof explore.at[i]);
        explore.alive[i] = true;
    }
    if (!_setjmp(explore.outside))
        explore_jump(explore_pick());
}

/* Called before every access to shared memory. */
static inline void explore_point(void)
{
    if (explore.current < 0)
        return;
    explore.step++;
    if (explore.step == explore.kill[0] || explore.step == explore.kill[1]) {
        explore_log("DIES");
        explore.kills++;
        explore_end();
    }
    if (explore.switches) {
        if (explore_random(1000) < explore.switches)
            explore_switch(explore_pick());
        return;
    }
    for (int i = 0; i < explore.changes; i++)
        if (explore.step == explore.change[i])
            explore.priority[explore.current] = --explore.lowest;
    explore_switch(explore_pick());
}

/* ---- The atomics, in place of src/base/atomic.h, which must offer the same functions ---- */

#define WEIR_BASE_ATOMIC_H

typedef struct weir__cell {
    uint64_t lo, hi;
} __attribute__((aligned(16))) weir__cell;

/* Defined by world.h: prints an access, and checks the invariants after a change. */
static void explore_show(const char *what, const void *at, int bytes, weir__cell was, weir__cell put, bool done);
static void explore_changed(const weir__cell *cell, weir__cell was);

static inline void explore_show_word(const char *what, const void *at, int bytes, uint64_t was, uint64_t put, bool done)
{
    if (explore.trace)
        explore_show(what, at, bytes, (weir__cell){was, 0}, (weir__cell){put, 0}, done);
}

static inline bool weir__cell_equal(weir__cell a, weir__cell b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Two accesses: the halves read may be of two states. */
static inline weir__cell weir__cell_peek(const weir__cell *cell)
{
    weir__cell seen;
    explore_point();
    seen.lo = cell->lo;
    explore_point();
    seen.hi = cell->hi;
    if (explore.trace)
        explore_show("peek", cell, 16, seen, seen, true);
    return seen;
}

static inline weir__cell weir__cell_read(const weir__cell *cell)
{
    weir__cell seen = weir__cell_peek(cell);
    for (int round = 0; round < 16; round++) {
        weir__cell again = weir__cell_peek(cell);
        if (weir__cell_equal(seen, again))
            break;
        seen = again;
    }
    return seen;
}

static inline uint64_t weir__bucket_match(const weir__cell *line, uint32_t high)
{
    uint64_t found = 0;
    for (int i = 0; i < 4; i++) {
        explore_point();
        found |= (uint64_t)(line[i].lo >> 32 == high) << i;
    }
    return found;
}

static inline weir__cell *weir__bucket_first(weir__cell *line, uint64_t found)
{
    return &line[__builtin_ctzll(found | 8)];
}

static inline bool weir__cell_cas(weir__cell *cell, weir__cell *expected, weir__cell desired)
{
    explore_point();
    weir__cell was = *cell;
    bool done = weir__cell_equal(was, *expected);
    if (explore.trace)
        explore_show("swap", cell, 16, was, desired, done);
    *expected = was;
    if (done) {
        *cell = desired;
        explore_changed(cell, was);
    }
    return done;
}

static inline void weir__fence(void)
{
}

static inline uint64_t weir__load64(const uint64_t *word)
{
    explore_point();
    explore_show_word("load", word, 8, *word, *word, true);
    return *word;
}

static inline uint64_t weir__load64_ordered(const uint64_t *word)
{
    return weir__load64(word);
}

static inline uint32_t weir__load32(const uint32_t *word)
{
    explore_point();
    explore_show_word("load", word, 4, *word, *word, true);
    return *word;
}

static inline void weir__store32(uint32_t *word, uint32_t value)
{
    explore_point();
    explore_show_word("store", word, 4, *word, value, true);
    *word = value;
}

static inline void weir__store64(uint64_t *word, uint64_t value)
{
    explore_point();
    explore_show_word("store", word, 8, *word, value, true);
    *word = value;
}

static inline bool weir__cas64(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    explore_point();
    uint64_t was = *word;
    bool done = was == *expected;
    explore_show_word("swap", word, 8, was, desired, done);
    *expected = was;
    if (done)
        *word = desired;
    return done;
}

static inline bool weir__cas32(uint32_t *word, uint32_t *expected, uint32_t desired)
{
    explore_point();
    uint32_t was = *word;
    bool done = was == *expected;
    explore_show_word("swap", word, 4, was, desired, done);
    *expected = was;
    if (done)
        *word = desired;
    return done;
}

static inline void weir__add64(uint64_t *word, uint64_t amount)
{
    explore_point();
    explore_show_word("add", word, 8, *word, *word + amount, true);
    *word += amount;
}

/* Statistics decide nothing, so this is no switching point; evictions are counted when they happen. */
static inline void weir__count(uint64_t *word, uint64_t amount)
{
    *word += amount;
}

static inline void weir__prefetch(const void *address)
{
    (void)address;
}

static inline void weir__prefetch_read(const void *address)
{
    (void)address;
}

#endif
