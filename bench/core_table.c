/* The measured data: a filled segment, its bare memory, and keys in the order of their requests. */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROBE_BYTES   (UINT64_C(1) << 20)
#define ZIPF_EXPONENT 0.99

/* ---- Memory ---- */

/* Memory that is available without swapping; 0: unknown. */
static uint64_t memory_available(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return 0;
    while (!kib && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtoull(line + 13, NULL, 10);
    fclose(file);
    return kib * 1024;
}

/* Whether a segment of `bytes` and `more` besides would fit, with a tenth to spare: running out of memory could kill
 * another process. */
static bool fits(uint64_t bytes, uint64_t more, uint64_t keys, const char *directory)
{
    struct statvfs disk;
    uint64_t room = UINT64_MAX, memory = memory_available(), need = bytes + more;
    if (directory && statvfs(directory, &disk) == 0)
        room = (uint64_t)disk.f_bavail * disk.f_frsize;
    bool short_of_room = room / 11 * 10 < bytes;
    if (!short_of_room && (!memory || memory / 11 * 10 >= need))
        return true;
    weir__bench_note("skipped %llu keys: they need %.0f MB (table and bound), %.0f MB are free",
                     (unsigned long long)keys, (double)(short_of_room ? bytes : need) / 1e6,
                     (double)(short_of_room ? room : memory) / 1e6);
    return false;
}

/*
 * For the bound: the segment's own memory, mapped once more from its file, for which pages a table gets makes more of a
 * difference than what is done with them. Only for an anonymous segment it is other memory of the same kind.
 */
static struct weir__bench_line *bare_lines(uint64_t lines, int file)
{
    size_t bytes = lines * sizeof(struct weir__bench_line);
    int flags = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as weir_segment_open does */
    if (file < 0)
        memset(memory, 1, bytes);
    return memory;
}

/* ---- The table ---- */

/* Bytes of a segment that are not slots: not in the public API, so they are read from a small one. */
static bool overhead_bytes(uint64_t *overhead)
{
    weir_segment_options how = {.size = PROBE_BYTES, .no_slab = true, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment;
    weir_stats stats;
    int error = weir_segment_open(&how, &segment);
    if (error) {
        weir__bench_note("no segment: %s", weir_strerror(error));
        return false;
    }
    error = weir_stats_read(segment, &stats);
    weir_segment_close(segment);
    *overhead = stats.bytes - stats.slots * sizeof(struct weir__bench_cell);
    return !error;
}

/* With its file open as well; -1 if it is anonymous. */
static bool open_segment(struct weir__bench_table *table, uint64_t bytes, uint64_t slab, const char *directory,
                         int *file)
{
    char path[4096];
    weir_segment_options how = {
        .size = bytes, .slab_bytes = slab, .no_slab = !slab, .flags = WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE};
    if (directory) {
        snprintf(path, sizeof path, "%s/weir-bench.%ld", directory, (long)getpid());
        how.path = path;
    }
    int error = weir_segment_open(&how, &table->segment);
    if (error) {
        weir__bench_note("no segment in %s: %s", directory ? directory : "memory", weir_strerror(error));
        return false;
    }
    *file = -1;
    if (!directory)
        return true;
    *file = open(path, O_RDWR | O_CLOEXEC);
    unlink(path); /* at once: the mapping stays, and nothing is left behind if we are killed */
    if (*file < 0)
        weir__bench_note("%s: %s", path, strerror(errno));
    return *file >= 0;
}

struct filling {
    const struct weir__bench_table *table;
    weir_time now;
    int threads;
    bool failed[WEIR__BENCH_THREADS_MAX];
};

/* One request of each key, the thread's share of them. */
static void fill(void *context, int thread)
{
    struct filling *filling = context;
    const struct weir__bench_table *table = filling->table;
    uint64_t id[WEIR__BENCH_BATCH], share = table->keys / (uint64_t)filling->threads + 1;
    uint64_t at = share * (uint64_t)thread, end = at + share < table->keys ? at + share : table->keys;
    weir_request request[WEIR__BENCH_BATCH];

    while (at < end && !filling->failed[thread]) {
        size_t count = end - at < WEIR__BENCH_BATCH ? (size_t)(end - at) : WEIR__BENCH_BATCH;
        for (size_t i = 0; i < count; i++) {
            id[i] = at + i;
            request[i] =
                (weir_request){.limit = &table->limit, .key = &id[i], .key_len = WEIR__BENCH_KEY_BYTES, .cost = 1};
        }
        filling->failed[thread] = weir_take_batch(table->segment, request, count, filling->now) != 0;
        at += count;
    }
}

static bool fill_at(const struct weir__bench_table *table, weir_time now)
{
    struct filling filling = {.table = table, .now = now, .threads = weir__bench_processors()};
    if (filling.threads > WEIR__BENCH_THREADS_MAX)
        filling.threads = WEIR__BENCH_THREADS_MAX;
    weir__bench_on_threads(filling.threads, fill, &filling);
    for (int i = 0; i < filling.threads; i++)
        if (filling.failed[i])
            return false;
    return true;
}

static int count_live(void *context, const weir_entry *entry)
{
    *(uint64_t *)context += entry->live && entry->kind == WEIR_ENTRY_COUNTER;
    return 0;
}

/* Fills it at one moment, so that every key is live when they are counted. */
static bool fill_table(struct weir__bench_table *table)
{
    weir_time now = weir_clock(table->segment), before = now;
    weir_stats stats;
    uint64_t live = 0;

    before.mono_ns -= table->kind->params.window_ns;
    before.wall_ns -= table->kind->params.window_ns;
    /* Of a sliding window counter both windows count. */
    bool filled = (table->kind->slots < 2 || fill_at(table, before)) && fill_at(table, now);
    if (!filled || weir_segment_each(table->segment, now, count_live, &live) ||
        weir_stats_read(table->segment, &stats)) {
        weir__bench_note("%s: could not fill the table", table->kind->algorithm);
        return false;
    }
    table->live = live / (uint64_t)table->kind->slots;
    table->evicted_live = stats.evicted_live;
    table->bytes_a_key = (double)stats.bytes / (double)table->live;
    return true;
}

int weir__bench_table_make(const struct weir__bench_kind *kind, uint64_t keys, const char *directory,
                           struct weir__bench_table *table)
{
    uint64_t overhead, slots = keys * (uint64_t)kind->slots * 10 / 9, slab = keys * kind->slab;
    weir_stats stats;

    *table = (struct weir__bench_table){.kind = kind, .keys = keys};
    if (!overhead_bytes(&overhead))
        return -1;
    uint64_t bytes = (overhead + slots * sizeof(struct weir__bench_cell) + slab + 4095) & ~UINT64_C(4095);
    if (bytes < 2 * slab)
        bytes = 2 * slab; /* a slab is at most half of its segment */
    /* Besides, what the bounds need: where the keys are (core_route.c), and memory like an anonymous segment's. */
    if (!fits(bytes, (kind->routed ? bytes : 0) + (directory ? 0 : bytes), keys, directory))
        return 0;
    int error = weir_limit_init(&table->limit, &kind->params);
    if (error) {
        weir__bench_note("%s: %s", kind->algorithm, weir_strerror(error));
        return -1;
    }
    int file;
    if (!open_segment(table, bytes, slab, directory, &file)) {
        weir__bench_table_drop(table);
        return -1;
    }
    if (weir_stats_read(table->segment, &stats) == 0) {
        table->lines = stats.slots / 4;
        table->bare = bare_lines(table->lines, file);
    }
    if (file >= 0)
        close(file);
    if (!table->bare)
        weir__bench_note("no memory for the bound");
    if (!table->bare || !fill_table(table)) {
        weir__bench_table_drop(table);
        return -1;
    }
    return 1;
}

void weir__bench_table_drop(struct weir__bench_table *table)
{
    weir_segment_close(table->segment);
    if (table->bare)
        munmap(table->bare, table->lines * sizeof *table->bare);
    table->segment = NULL;
    table->bare = NULL;
}

/* ---- Keys in order ---- */

static uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The integral of x to the -s, and its inverse. */
static double area(double x)
{
    return (pow(x, 1 - ZIPF_EXPONENT) - 1) / (1 - ZIPF_EXPONENT);
}

static double area_inverse(double a)
{
    return pow(1 + a * (1 - ZIPF_EXPONENT), 1 / (1 - ZIPF_EXPONENT));
}

/* A rank from 1 to n, exactly Zipf: rejection-inversion (Hoermann and Derflinger, 1996), about one try a draw. */
static uint64_t zipf_next(uint64_t *state, uint64_t n, double area_low, double area_high)
{
    for (;;) {
        double u = area_low + (double)(random_next(state) >> 11) * 0x1p-53 * (area_high - area_low);
        double x = area_inverse(u);
        double rank = floor(x + 0.5);
        rank = fmin(fmax(rank, 1), (double)n);
        if (u >= area(rank + 0.5) - pow(rank, -ZIPF_EXPONENT))
            return (uint64_t)rank;
    }
}

bool weir__bench_keys_draw(enum weir__bench_draw draw, uint64_t keys, struct weir__bench_keys *out)
{
    static const char *const name[] = {"uniform", "zipf 0.99", "one key"};
    uint64_t state = 1;
    double low = area(1.5) - 1, high = area((double)keys + 0.5);

    out->distribution = name[draw];
    out->route = NULL;
    out->even = draw == WEIR__BENCH_UNIFORM;
    /* Long enough that lines do not stay in the cache from one pass to the next when the table would not. */
    out->count = draw == WEIR__BENCH_ONE ? (size_t)1 << 12 : keys > 1000000 ? (size_t)1 << 24 : (size_t)1 << 22;
    out->id = malloc(out->count * sizeof *out->id);
    if (!out->id) {
        weir__bench_note("out of memory");
        return false;
    }
    for (size_t i = 0; i < out->count; i++) {
        __extension__ typedef unsigned __int128 u128;
        out->id[i] = draw == WEIR__BENCH_ZIPF      ? zipf_next(&state, keys, low, high) - 1
                     : draw == WEIR__BENCH_UNIFORM ? (uint64_t)((u128)random_next(&state) * keys >> 64)
                                                   : 0;
    }
    return true;
}

void weir__bench_keys_drop(struct weir__bench_keys *keys)
{
    free(keys->id);
    free(keys->route);
    keys->id = NULL;
    keys->route = NULL;
}
