/*
 * weir_segment_resize: what stays, what is refused, and what a process that dies in the middle leaves. And
 * weir_segment_convert, with a segment that an older version made.
 */
#include "segment_files.h"
#include "segment_layout_2.h"

#include "engine/segment.h"
#include "table/resize.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { KEYS = 4000 };

static weir_resize result;

static int resize(const char *path, uint64_t size)
{
    return weir_segment_resize(path, size, &result);
}

/* Takes 1 of 3 a day for each of the first keys, by the segment's clock; returns how many passed. */
static int take_each(weir_segment *segment, uint64_t keys)
{
    weir_limit limit;
    int passed = 0;
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 3, .window_ns = WEIR_DAY}), 0);
    weir_time now = weir_clock(segment);
    for (uint64_t key = 0; key < keys; key++) {
        weir_decision d = {.verdict = WEIR_DENY};
        CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, 1, now, &d), 0);
        passed += weir_passes(&d);
    }
    return passed;
}

static uint64_t slots_of(const weir_segment *segment)
{
    weir_stats stats = {0};
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    CHECK_EQ(stats.evicted_live, 0);
    return stats.slots;
}

TEST(counters_stay_when_it_grows_and_shrinks)
{
    weir_segment *before, *after, *reader;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &before), 0);
    CHECK_EQ(open_with(at("s"), 0, WEIR_OPEN_READONLY, &reader), 0);
    uint64_t slots = slots_of(before);
    CHECK_EQ(take_each(before, KEYS), KEYS);

    CHECK_EQ(resize(at("s"), 4 * SIZE), 0);
    CHECK(result.size_before == SIZE && result.size == 4 * SIZE && result.live == KEYS);
    CHECK(result.moved > KEYS / 2 && result.moved < KEYS);
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &after), 0);
    CHECK(slots_of(before) == 4 * slots && slots_of(after) == 4 * slots && slots_of(reader) == 4 * slots);
    CHECK_EQ(take_each(before, KEYS), KEYS); /* attached before and after: the same counters */
    CHECK_EQ(take_each(after, 3 * KEYS), 3 * KEYS);
    CHECK_EQ(take_each(before, KEYS), 0);

    CHECK_EQ(resize(at("s"), SIZE), WEIR_EFULL);
    CHECK(result.live == 3 * KEYS && result.size == 2 * SIZE && result.size_before == 4 * SIZE);
    CHECK_EQ(resize(at("s"), 2 * SIZE), 0);
    CHECK_EQ(take_each(before, KEYS), 0);
    CHECK_EQ(slots_of(after), 2 * slots);
    struct stat what;
    CHECK(stat(at("s"), &what) == 0 && what.st_blocks * 512 <= 2 * SIZE + 4096);
    weir_segment_close(after); /* and those that attach now do not fill the hole */
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &after), 0);
    CHECK(stat(at("s"), &what) == 0 && what.st_blocks * 512 <= 2 * SIZE + 4096);
    CHECK_EQ(take_each(after, KEYS), 0);
    CHECK_EQ(resize(at("s"), 16 * SIZE), 0); /* beyond the length that it had: the hole is filled, too */
    CHECK(stat(at("s"), &what) == 0 && what.st_blocks * 512 >= 16 * SIZE);
    CHECK_EQ(take_each(before, KEYS), 0);
    CHECK_EQ(weir_segment_validate(reader, weir_clock(reader), &(weir_report){0}), 0);
    weir_segment_close(before);
    weir_segment_close(after);
    weir_segment_close(reader);
    directory_remove();
}

TEST(sizes_that_are_not_possible)
{
    weir_segment *segment;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    static const struct {
        uint64_t wanted, nearest;
    } sizes[] = {{0, SIZE},
                 {1, SIZE},
                 {SIZE - 1, SIZE},
                 {SIZE + 1, SIZE},
                 {3 * SIZE, 4 * SIZE},
                 {3 * SIZE - 1, 2 * SIZE},
                 {17 * SIZE, 16 * SIZE},
                 {UINT64_MAX, 16 * SIZE}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_EQ(resize(at("s"), sizes[i].wanted), WEIR_ESIZE);
        CHECK_EQ(result.size, sizes[i].nearest);
        CHECK_EQ(result.first, SIZE);
    }
    CHECK_EQ(resize(at("s"), SIZE), 0); /* it has that size */
    CHECK(result.size == SIZE && result.size_before == SIZE && result.moved == 0);
    CHECK(weir__load64(&segment->table.header->geometry) == 0); /* programs of older versions may still attach */
    CHECK_EQ(weir_segment_resize(NULL, SIZE, &result), WEIR_EINVAL);
    CHECK_EQ(weir_segment_resize(at("s"), SIZE, NULL), WEIR_EINVAL);
    weir_segment_close(segment);
    directory_remove();
}

TEST(files_that_are_refused)
{
    weir_segment *segment;
    directory_make();
    CHECK_EQ(resize(at("absent"), SIZE), WEIR_ENOENT);
    CHECK_EQ(resize(directory, SIZE), WEIR_ENOTSEG);
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(symlink(at("s"), at("link")), 0);
    CHECK_EQ(resize(at("link"), 2 * SIZE), WEIR_ENOTSEG);

    int lock = open(at("s"), O_RDWR | O_CLOEXEC); /* another process is resizing it */
    CHECK_EQ(flock(lock, LOCK_EX), 0);
    CHECK_EQ(resize(at("s"), 2 * SIZE), WEIR_ERESIZING);
    close(lock);

    if (geteuid() == 0 && chmod(directory, 01777) == 0 && chown(at("s"), 65534, 65534) == 0) {
        CHECK_EQ(resize(at("s"), 2 * SIZE), WEIR_EOWNER); /* as another user could put it there */
        CHECK_EQ(chown(at("s"), 0, 0), 0);
    }
    struct stat what;
    CHECK(stat(at("s"), &what) == 0 && what.st_size == SIZE);
    weir_segment_close(segment);
    directory_remove();
}

/* Bits in the header; the mark in `layout` keeps programs away that do not know of regions. */
TEST(damage_is_reported)
{
    weir_segment *segment, *again = UNTOUCHED;
    weir_limit limit;
    weir_decision d;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    struct weir__header *header = segment->table.header;
    CHECK_EQ(header->layout, WEIR__LAYOUT);
    CHECK_EQ(resize(at("s"), 2 * SIZE), 0);
    CHECK_EQ(header->layout, WEIR__LAYOUT_RESIZED);
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 3, .window_ns = WEIR_DAY}), 0);
    for (int bit = 0; bit < 64; bit++) {
        header->geometry ^= UINT64_C(1) << bit;
        CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &again), WEIR_EDAMAGED);
        CHECK_EQ(weir_take(segment, &limit, "k", 1, 1, weir_clock(segment), &d), WEIR_EDAMAGED);
        header->geometry ^= UINT64_C(1) << bit;
    }
    CHECK_EQ(truncate(at("s"), SIZE), 0);
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &again), WEIR_ETRUNCATED);
    weir_segment_close(segment);
    directory_remove();
}

static void full_tmpfs(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("weir-test", directory, "tmpfs", 0, "size=1m"))
        return; /* not permitted here */
    weir_segment *segment;
    struct stat what;
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    CHECK_EQ(resize(at("s"), 8 * SIZE), WEIR_ENOSPC);
    CHECK(stat(at("s"), &what) == 0 && what.st_size == SIZE && what.st_blocks * 512 == SIZE);
    CHECK(weir__load64(&segment->table.header->geometry) == 0);
    CHECK_EQ(resize(at("s"), 2 * SIZE), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    /* A process that died had reserved all blocks: none are free, and none are needed. */
    int file = open(at("s"), O_RDWR | O_CLOEXEC);
    CHECK_EQ(posix_fallocate(file, 0, 4 * SIZE), 0);
    close(file);
    CHECK_EQ(resize(at("s"), 4 * SIZE), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    weir_segment_close(segment);
}

static void limited_files(void)
{
    weir_segment *segment;
    struct rlimit small = {SIZE, SIZE};
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_EQ(resize(at("s"), 2 * SIZE), WEIR_ENOSPC);
    weir_segment_close(segment);
}

TEST(no_space_changes_nothing)
{
    directory_make();
    in_child(full_tmpfs);
    in_child(limited_files);
    directory_remove();
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
/* A process whose address space is too small for the larger segment goes on until it is resized, and then reports it.
 */
static void few_addresses(void)
{
    weir_segment *segment, *other;
    weir_limit limit;
    weir_decision d;
    struct rlimit all, few = {64 << 20, RLIM_INFINITY};
    int refused = 0;
    CHECK_EQ(getrlimit(RLIMIT_AS, &all), 0);
    CHECK_EQ(open_with(at("s"), 16 << 20, WEIR_OPEN_CREATE, &segment), 0);
    weir_segment_close(segment);
    CHECK_EQ(setrlimit(RLIMIT_AS, &few), 0);
    CHECK_EQ(open_with(at("s"), 0, 0, &segment), 0);
    few.rlim_cur = all.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_AS, &few), 0);
    if (segment->table.doublings_max) { /* an emulator has no such limit */
        weir_segment_close(segment);
        return;
    }
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    CHECK_EQ(resize(at("s"), 32 << 20), 0);
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 3, .window_ns = WEIR_DAY}), 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        int error = weir_take(segment, &limit, &key, sizeof key, 1, weir_clock(segment), &d);
        CHECK(error == 0 || error == WEIR_ERESIZED);
        refused += error != 0;
    }
    CHECK(refused > KEYS / 3);                       /* those that have moved; the others are where they were */
    for (uint64_t key = KEYS; key < 2 * KEYS; key++) /* new ones; and what needs to know that there is no entry */
        CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, 1, weir_clock(segment), &d), WEIR_ERESIZED);
    for (uint64_t key = 0; key < 10; key++) {
        CHECK_EQ(weir_reset(segment, &limit, &key, sizeof key, weir_clock(segment)), WEIR_ERESIZED);
        CHECK_EQ(weir_block(segment, &limit, &key, sizeof key, 0, weir_clock(segment)), WEIR_ERESIZED);
    }
    CHECK_EQ(open_with(at("s"), 0, 0, &other), 0);
    CHECK_EQ(weir_block(other, &limit, "k", 1, 3600 * WEIR_SECOND, weir_clock(other)), 0);
    for (uint64_t key = 0; key < KEYS; key++) /* each may be blocked */
        CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, 1, weir_clock(segment), &d), WEIR_ERESIZED);
    weir_segment_close(other);
    weir_segment_close(segment);
}

/* All that is mapped from now on is locked in memory, but for less than the addresses of a segment. */
static void little_locked_memory(void)
{
    weir_segment *segment;
    struct rlimit little = {8 * SIZE, 8 * SIZE};
    CHECK_EQ(open_with(at("locked"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    weir_segment_close(segment);
    if (geteuid() == 0) /* which may lock any amount */
        CHECK(chmod(directory, 0755) == 0 && chown(at("locked"), 65534, 65534) == 0 && seteuid(65534) == 0);
    if (setrlimit(RLIMIT_MEMLOCK, &little) || mlockall(MCL_FUTURE))
        return; /* not permitted here */
    CHECK_EQ(open_with(at("locked"), SIZE, 0, &segment), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    weir_segment_close(segment);
}

#endif

TEST(process_without_addresses_for_it)
{
#ifndef SANITIZED /* which need more addresses */
    directory_make();
    in_child(few_addresses);
    in_child(little_locked_memory);
    directory_remove();
#endif
}

/* ---- Files that change meanwhile ---- */

static int grown; /* how often */

/* A resize extends the file, and changes what is read here, after its length was read. */
static int check_while_it_grows(void *memory, uint64_t bytes, const void *plan)
{
    (void)memory;
    if (grown < *(const int *)plan)
        CHECK_EQ(truncate(at("s"), SIZE << ++grown), 0);
    return bytes < (uint64_t)SIZE << grown ? WEIR_ETRUNCATED : 0;
}

TEST(attaching_while_it_grows)
{
    struct weir__mapped mapped = {0};
    weir_segment *segment;
    directory_make();
    for (int times = 0; times < 4; times++) {
        struct weir__file_spec spec = {.path = at("s"), .check = check_while_it_grows, .plan = &times};
        CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
        weir_segment_close(segment);
        grown = 0;
        int error = weir__mapped_open_segment(&spec, &mapped);
        CHECK_EQ(error, times < 3 ? 0 : WEIR_ETRUNCATED); /* not for ever */
        CHECK_EQ(mapped.bytes, error ? 0 : SIZE << times);
        weir__mapped_close(&mapped);
        unlink(at("s"));
    }
    directory_remove();
}

/* Resizes until the file is truncated. */
static void resize_until_lost(void)
{
    int error = 0;
    for (int i = 0; !error; i++)
        error = resize(at("s"), i % 2 ? 4 << 20 : 8 << 20);
    CHECK(error == WEIR_ELOST || error == WEIR_ETRUNCATED || error == WEIR_ENOSPC); /* the last while it is opened */
}

TEST(file_that_is_truncated_meanwhile)
{
    weir_segment *segment;
    directory_make();
    for (int round = 0; round < 8; round++) {
        CHECK_EQ(open_with(at("s"), 4 << 20, WEIR_OPEN_CREATE, &segment), 0);
        weir_segment_close(segment);
        fflush(stdout);
        pid_t other = fork();
        if (other == 0) {
            usleep((useconds_t)(20000 + round * 1000));
            _exit(truncate(at("s"), 65536) != 0); /* with the header */
        }
        in_child(resize_until_lost);
        CHECK(waitpid(other, NULL, 0) == other);
        unlink(at("s"));
    }
    directory_remove();
}

/* The resizing process died: entries are in the old places, in the new ones, or on their way. */
/* ---- Truncation at a known moment ---- */

enum { LARGE = 64 << 20, HEADER = 65536 };

enum { NEVER, LOCKED, EXTENDED, OWNED };
static int cut_when;
static off_t cut_to;
static int64_t faults_at_cut;

static int64_t page_faults(void)
{
    struct rusage used;
    CHECK_EQ(getrusage(RUSAGE_SELF, &used), 0);
    return used.ru_minflt + used.ru_majflt;
}

static void cut(int when)
{
    if (cut_when != when)
        return;
    CHECK_EQ(truncate(at("s"), cut_to), 0);
    faults_at_cut = page_faults();
}

/* The calls of the library end up here: they do what they should, and truncate the segment's file. */
int flock(int file, int operation)
{
    cut(LOCKED);
    return (int)syscall(SYS_flock, file, operation);
}

int posix_fallocate(int file, off_t from, off_t len)
{
    int error = syscall(SYS_fallocate, file, 0, from, len) ? errno : 0;
    cut(EXTENDED);
    return error;
}

int fchown(int file, uid_t owner, gid_t group)
{
    cut(OWNED);
    return (int)syscall(SYS_fchown, file, owner, group);
}

/* A lost segment is empty memory: each page that is read in vain is a fault. */
static void resize_with_a_cut(void)
{
    CHECK_EQ(resize(at("s"), 2 * LARGE), WEIR_ELOST);
    CHECK(faults_at_cut && page_faults() - faults_at_cut < LARGE / 4096 / 4);
}

TEST(resize_ends_when_the_segment_is_lost)
{
    weir_segment *segment;
    struct stat what;
    directory_make();
    cut_to = HEADER;
    for (int when = LOCKED; when <= EXTENDED; when++) { /* while entries are counted, and while they are moved */
        CHECK_EQ(open_with(at("s"), LARGE, WEIR_OPEN_CREATE, &segment), 0);
        weir_segment_close(segment);
        cut_when = when;
        in_child(resize_with_a_cut);
        cut_when = NEVER;
        CHECK(stat(at("s"), &what) == 0 && what.st_size == HEADER); /* it is not extended again */
        unlink(at("s"));
    }
    directory_remove();
}

TEST(interrupted_resize_is_completed)
{
    weir_segment *segment, *reader;
    weir_limit limit;
    uint64_t moved;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    CHECK_EQ(truncate(at("s"), 2 * SIZE), 0);
    CHECK_EQ(weir__resize_begin(&segment->table, 1), 0);
    CHECK_EQ(weir__resize_begin(&segment->table, 2), WEIR_EBUSY);
    struct weir__op op = weir__operation(segment, segment->table.stats, weir_clock(segment));
    for (uint64_t at = 0; at < segment->table.buckets; at += 3) /* a third of them leave, and do not arrive */
        for (int i = 0; i < WEIR__BUCKET_SLOTS; i++) {
            weir__cell *slot = &segment->table.bucket[at].slot[i];
            if (weir__cell_tag(slot->lo) >> 1 & 1)
                *slot = weir__cell_leaving(*slot);
        }
    CHECK_EQ(open_with(at("s"), 0, WEIR_OPEN_READONLY, &reader), 0);
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 3, .window_ns = WEIR_DAY}), 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        weir_decision d = {0};
        CHECK_EQ(weir_peek(reader, &limit, &key, sizeof key, 1, weir_clock(reader), &d), 0);
        CHECK_EQ(d.remaining, 1); /* after the one that is peeked at */
    }
    CHECK_EQ(take_each(segment, KEYS / 2), KEYS / 2);
    CHECK_EQ(resize(at("s"), 2 * SIZE), 0); /* the size that it has begun to get */
    CHECK(result.size == 2 * SIZE && result.size_before == 2 * SIZE && result.moved > KEYS / 8);
    CHECK(!weir__is_resizing(&segment->table));
    CHECK_EQ(weir__resize_finish(&op, &moved), 0);
    CHECK_EQ(moved, 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    CHECK_EQ(take_each(segment, KEYS), KEYS / 2);
    CHECK_EQ(take_each(segment, KEYS), 0);
    weir_segment_close(segment);
    weir_segment_close(reader);
    directory_remove();
}

/* The memory is freed by the call that completes it. */
TEST(interrupted_shrink_frees_its_memory)
{
    weir_segment *segment;
    struct stat what;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(resize(at("s"), 4 * SIZE), 0);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    CHECK_EQ(weir__resize_begin(&segment->table, 0), 0);
    CHECK_EQ(resize(at("s"), SIZE), 0);
    CHECK(result.size == SIZE && result.size_before == SIZE && result.moved > KEYS / 2);
    CHECK(stat(at("s"), &what) == 0 && what.st_size == 4 * SIZE && what.st_blocks * 512 <= SIZE + 4096);
    CHECK_EQ(take_each(segment, KEYS), KEYS);
    weir_segment_close(segment);
    directory_remove();
}

TEST(permits_and_blocks_stay)
{
    weir_segment *segment;
    weir_limit flight, limit;
    weir_lease lease[64];
    weir_decision d;
    directory_make();
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(weir_limit_init(&flight, &(weir_params){WEIR_CONCURRENCY, .limit = 1, .window_ns = WEIR_SECOND * 60}), 0);
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 3, .window_ns = WEIR_DAY, .id = 1}), 0);
    weir_time now = weir_clock(segment);
    for (int key = 0; key < 64; key++) {
        CHECK_EQ(weir_acquire(segment, &flight, &key, sizeof key, now, &lease[key], &d), 0);
        CHECK(weir_passes(&d));
        CHECK_EQ(weir_block(segment, &limit, &key, sizeof key, 3600 * WEIR_SECOND, now), 0);
    }
    for (int round = 0; round < 2; round++) { /* taken before the resize, and released at every size */
        CHECK_EQ(resize(at("s"), round ? 2 * SIZE : 8 * SIZE), 0);
        for (int key = 0; key < 64; key++) {
            CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, 1, now, &d), 0);
            CHECK_EQ(d.verdict, WEIR_BLOCKED);
            weir_lease unused;
            CHECK_EQ(weir_acquire(segment, &flight, &key, sizeof key, now, &unused, &d), 0);
            CHECK_EQ(d.verdict, WEIR_DENY);
            CHECK_EQ(weir_renew(segment, &lease[key], now), 0);
            CHECK_EQ(weir_release(segment, &lease[key], now), 0);
            CHECK_EQ(weir_acquire(segment, &flight, &key, sizeof key, now, &lease[key], &d), 0);
            CHECK(weir_passes(&d));
        }
    }
    weir_segment_close(segment);
    directory_remove();
}

/* ---- Conversion ---- */

enum { OLD_BYTES = 65536 };

static void write_old(const char *path, unsigned mode)
{
    static unsigned char bytes[OLD_BYTES];
    for (size_t i = 0; i < sizeof segment_layout_2 / sizeof *segment_layout_2; i++)
        memcpy(bytes + segment_layout_2[i].offset, &segment_layout_2[i].word, sizeof segment_layout_2[i].word);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    CHECK_EQ(write(file, bytes, sizeof bytes), OLD_BYTES);
    CHECK_EQ(fchmod(file, mode), 0);
    close(file);
}

/* What the older version counted goes on: what is left of each limit, its permit and its block. */
static void check_old_counters(weir_segment *segment)
{
    static const weir_params limits[] = {
        {WEIR_TOKEN_BUCKET, .limit = 10, .window_ns = WEIR_DAY},
        {WEIR_LEAKY_BUCKET, .limit = 10, .window_ns = WEIR_DAY},
        {WEIR_FIXED_WINDOW, .limit = 10, .window_ns = WEIR_DAY},
        {WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY},
        {WEIR_SLIDING_WINDOW_COUNTER, .limit = 70000, .window_ns = WEIR_DAY},
        {WEIR_SLIDING_WINDOW_COUNTER, .limit = 10, .window_ns = WEIR_DAY, .buckets = 6},
        {WEIR_SLIDING_WINDOW_LOG, .limit = 10, .window_ns = WEIR_DAY},
        {WEIR_CONCURRENCY, .limit = 2, .window_ns = 3600 * WEIR_SECOND},
    };
    weir_time now = {WEIR_DAY * 20000 + 6 * WEIR_SECOND, WEIR_DAY * 20000 + 6 * WEIR_SECOND};
    weir_limit limit;
    weir_decision d;
    for (uint64_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        weir_params p = limits[i];
        int64_t unit = p.limit / 10, left = p.algorithm == WEIR_CONCURRENCY ? 1 : 7;
        p.id = i + 1;
        unit = unit ? unit : 1;
        CHECK_EQ(weir_limit_init(&limit, &p), 0);
        for (int64_t k = 1; k <= left + 1; k++) {
            d = (weir_decision){0};
            CHECK_EQ(weir_take(segment, &limit, "user:42", 7, unit, now, &d), 0);
            CHECK_EQ(weir_passes(&d), k <= left);
        }
    }
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 10, .window_ns = WEIR_DAY, .id = 1}), 0);
    CHECK_EQ(weir_take(segment, &limit, "user:43", 7, 1, now, &d), 0);
    CHECK_EQ(d.verdict, WEIR_BLOCKED);
    CHECK_EQ(weir_segment_validate(segment, now, &(weir_report){0}), 0);
}

TEST(older_layout_is_converted)
{
    weir_segment *segment;
    struct stat what;
    unsigned layout;
    directory_make();
    write_old(at("s"), 0640);
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), WEIR_EVERSION); /* never unasked: it may be in use */
    CHECK_EQ(weir_segment_convert(at("s"), &layout), 1);
    CHECK_EQ(layout, 2);
    CHECK(stat(at("s"), &what) == 0 && (what.st_mode & 0777) == 0640 && what.st_size == OLD_BYTES);
    CHECK_EQ(entries(false), 1);
    CHECK_EQ(open_with(at("s"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    check_old_counters(segment);
    weir_segment_close(segment);
    CHECK_EQ(weir_segment_convert(at("s"), &layout), 0);
    CHECK_EQ(layout, WEIR__LAYOUT);
    CHECK_EQ(resize(at("s"), 2 * OLD_BYTES), 0);
    CHECK_EQ(weir_segment_convert(at("s"), &layout), 0); /* one that was resized has the present layout */
    directory_remove();
}

/* The new file has group and mode before it has its name: another file may have that name a moment later. */
TEST(conversion_keeps_group_and_mode)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    struct stat what;
    unsigned layout;
    directory_make();
    write_old(at("s"), 0660); /* more than the umask lets through */
    gid_t group = geteuid() == 0 ? 65534 : getegid();
    CHECK_EQ(chown(at("s"), (uid_t)-1, group), 0);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    CHECK(watch >= 0 && inotify_add_watch(watch, directory, IN_ATTRIB) >= 0);
    CHECK_EQ(weir_segment_convert(at("s"), &layout), 1);
    CHECK(stat(at("s"), &what) == 0 && (what.st_mode & 07777) == 0660 && what.st_gid == group);
    ssize_t size = read(watch, events, sizeof events);
    for (ssize_t i = 0; i < size;) {
        const struct inotify_event *event = (const void *)(events + i);
        CHECK(!event->len || strcmp(event->name, "s") != 0);
        i += (ssize_t)(sizeof *event + event->len);
    }
    close(watch);
    directory_remove();
}

static void convert_with_a_cut(void)
{
    unsigned layout;
    signal(SIGBUS, SIG_DFL); /* a sanitizer's handler would end the process in its own way */
    cut_when = OWNED;
    CHECK_EQ(weir_segment_convert(at("s"), &layout), WEIR_ELOST);
    CHECK_EQ(layout, 2);
}

/* The old file stays as it is; half of the counters are no segment. */
TEST(conversion_ends_when_the_old_segment_is_lost)
{
    struct stat what;
    directory_make();
    write_old(at("s"), 0600);
    cut_to = OLD_BYTES / 2;
    in_child(convert_with_a_cut);
    CHECK(stat(at("s"), &what) == 0 && what.st_size == OLD_BYTES / 2);
    CHECK_EQ(entries(false), 1);
    directory_remove();
}

TEST(layouts_that_are_not_converted)
{
    struct weir__header header;
    unsigned layout;
    directory_make();
    CHECK_EQ(weir_segment_convert(at("absent"), &layout), WEIR_ENOENT);
    CHECK_EQ(weir_segment_convert(NULL, &layout), WEIR_EINVAL);
    for (uint32_t other = 0; other < 7; other++) {
        write_old(at("s"), 0600);
        int file = open(at("s"), O_RDWR | O_CLOEXEC);
        CHECK_EQ(pread(file, &header, sizeof header, 0), (ssize_t)sizeof header);
        header.layout = other;
        header.check = weir__header_sum(&header, offsetof(struct weir__header, check));
        CHECK_EQ(pwrite(file, &header, sizeof header, 0), (ssize_t)sizeof header);
        int expected = other == 2 || other == 3 ? 1 : other == WEIR__LAYOUT ? 0 : WEIR_EVERSION;
        CHECK_EQ(weir_segment_convert(at("s"), &layout), expected);
        CHECK_EQ(layout, other);
        close(file);
    }
    write_old(at("s"), 0600);
    int file = open(at("s"), O_RDWR | O_CLOEXEC);
    CHECK_EQ(pwrite(file, "x", 1, 100), 1); /* damaged: it stays as it is */
    CHECK_EQ(weir_segment_convert(at("s"), &layout), WEIR_EDAMAGED);
    CHECK_EQ(ftruncate(file, OLD_BYTES / 2), 0);
    CHECK(weir_segment_convert(at("s"), &layout) < 0);
    CHECK_EQ(ftruncate(file, 100), 0);
    CHECK_EQ(weir_segment_convert(at("s"), &layout), WEIR_ENOTSEG);
    close(file);
    CHECK_EQ(entries(false), 1);
    directory_remove();
}

TEST_MAIN
