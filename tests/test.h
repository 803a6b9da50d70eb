/*
 * The test harness: a test is a function, a failed CHECK marks it and goes on. Each binary prints one line
 * "PASS name" or "FAIL name" a test, which tests/run counts, and exits 1 if one failed.
 *
 *     TEST(bucket_starts_full) { CHECK_EQ(tokens(), 10); }
 *     TEST_MAIN
 */
#ifndef WEIR_TEST_H
#define WEIR_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weir_test {
    const char *name;
    void (*run)(void);
    struct weir_test *next;
};

static struct weir_test *test_first, **test_last = &test_first;
static int test_failures; /* of the running test */

#define TEST(name)                                                                                                     \
    static void test_##name(void);                                                                                     \
    __attribute__((constructor)) static void test_add_##name(void)                                                     \
    {                                                                                                                  \
        static struct weir_test entry = {#name, test_##name, NULL};                                                    \
        *test_last = &entry;                                                                                           \
        test_last = &entry.next;                                                                                       \
    }                                                                                                                  \
    static void test_##name(void)

/* At most this many failures of one test are printed: a broken loop should not bury the first message. */
#define TEST_PRINTED 10

/* Out of line: there are ten thousand checks, and a sanitizer instruments each call of theirs. */
#define TEST_COLD __attribute__((cold, noinline, unused))

TEST_COLD static void test_not_true(const char *file, int line, const char *condition)
{
    if (__atomic_fetch_add(&test_failures, 1, __ATOMIC_RELAXED) < TEST_PRINTED)
        printf("  %s:%d: not true: %s\n", file, line, condition);
}

TEST_COLD static void test_not_equal(const char *file, int line, const char *what, int64_t got, int64_t expected)
{
    if (__atomic_fetch_add(&test_failures, 1, __ATOMIC_RELAXED) < TEST_PRINTED)
        printf("  %s:%d: %s is %" PRId64 ", expected %" PRId64 "\n", file, line, what, got, expected);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            test_not_true(__FILE__, __LINE__, #condition);                                                             \
    } while (0)

#define CHECK_EQ(got, expected)                                                                                        \
    do {                                                                                                               \
        int64_t got_ = (int64_t)(got), expected_ = (int64_t)(expected);                                                \
        if (got_ != expected_)                                                                                         \
            test_not_equal(__FILE__, __LINE__, #got, got_, expected_);                                                 \
    } while (0)

/* Runs all tests, or only those named on the command line. */
#define TEST_MAIN                                                                                                      \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        int failed = 0, ran = 0;                                                                                       \
        for (struct weir_test *t = test_first; t; t = t->next) {                                                       \
            bool wanted = argc < 2;                                                                                    \
            for (int i = 1; i < argc; i++)                                                                             \
                wanted |= strcmp(argv[i], t->name) == 0;                                                               \
            if (!wanted)                                                                                               \
                continue;                                                                                              \
            test_failures = 0;                                                                                         \
            t->run();                                                                                                  \
            printf("%s %s\n", test_failures ? "FAIL" : "PASS", t->name);                                               \
            fflush(stdout);                                                                                            \
            failed += test_failures != 0;                                                                              \
            ran++;                                                                                                     \
        }                                                                                                              \
        return failed != 0 || ran == 0;                                                                                \
    }

/* The amount of random work: `count`, times WEIR_TEST_SCALE if that is set (sanitizers and emulation are slow). */
static inline int64_t test_scaled(int64_t count, int64_t least)
{
    const char *scale = getenv("WEIR_TEST_SCALE");
    int64_t scaled = scale ? (int64_t)((double)count * atof(scale)) : count;
    return scaled < least ? least : scaled;
}

/* A small random number generator (splitmix64) for tests that must be reproducible from their seed. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
