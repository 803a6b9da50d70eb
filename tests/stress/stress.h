/* Shared by the stress tests: the limits, and workers as threads or as processes. */
#ifndef WEIR_STRESS_H
#define WEIR_STRESS_H

#include <weir/weir.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../private_dir.h"
#include "../test.h"

/* A moment that is at no boundary of any window used here. */
#define STRESS_NOW (WEIR_DAY * 20000 + 123456789)

struct stress_limit {
    const char *name;
    weir_params params;
    int64_t cost; /* of each request; the limit is PASSES of them */
};

#define PASSES 7

/* Windows of an hour: nothing is refilled while a test runs on a frozen clock. */
static const struct stress_limit stress_limits[] = {
    {"token bucket", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .id = 1}, 1},
    {"interval refill",
     {.algorithm = WEIR_TOKEN_BUCKET,
      .limit = 7,
      .window_ns = 3600 * WEIR_SECOND,
      .refill = WEIR_REFILL_INTERVAL,
      .id = 2},
     1},
    {"leaky bucket", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .id = 3}, 1},
    {"fixed window", {.algorithm = WEIR_FIXED_WINDOW, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .id = 4}, 1},
    {"counter, 2 buckets in a slot",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .id = 5},
     1},
    {"counter, 2 buckets in a slot each",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 70000, .window_ns = 3600 * WEIR_SECOND, .id = 8},
     10000},
    {"counter, 6 buckets",
     {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .buckets = 6, .id = 6},
     1},
    {"log", {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 7, .window_ns = 3600 * WEIR_SECOND, .id = 7}, 1},
};

enum { STRESS_LIMITS = sizeof stress_limits / sizeof *stress_limits };

/* Zeroed memory that forked workers share. */
static inline void *stress_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

/* A segment with a name, so that workers can attach to it by path. */
static inline weir_segment *stress_open(const char *path, uint64_t size, uint64_t slab_bytes)
{
    weir_segment_options options = {
        .path = path, .size = size, .slab_bytes = slab_bytes, .no_slab = slab_bytes == 0, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment = NULL;
    int error = weir_segment_open(&options, &segment);
    if (error) {
        printf("  cannot open %s: %s\n", path, weir_strerror(error));
        exit(2);
    }
    return segment;
}

/* Checks that the segment is consistent, and (with `lossless`) that no live entry was evicted. */
static inline void stress_check_segment(weir_segment *segment, weir_time now, bool lossless)
{
    weir_report report;
    weir_stats stats;
    CHECK_EQ(weir_segment_validate(segment, now, &report), 0);
    CHECK_EQ(report.duplicates, 0);
    CHECK_EQ(report.bad_state, 0);
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    CHECK_EQ(stats.errors, 0);
    if (lossless)
        CHECK_EQ(stats.evicted_live, 0);
}

#endif
