/* Segments as files: creating, attaching, sharing, lack of permission, clocks across boots. */
#include "engine/segment.h"

#include "segment_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

/* ---- Creating and attaching ---- */

TEST(create_and_attach)
{
    weir_segment *a = NULL, *b = NULL;
    struct stat what;
    weir_stats stats;

    directory_make();
    check_refused((weir_segment_options){.path = at("seg"), .size = SIZE}, WEIR_ENOENT);
    CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &a), 0);
    CHECK_EQ(stat(at("seg"), &what), 0);
    CHECK_EQ(what.st_size, SIZE);
    CHECK_EQ(what.st_mode & 07777, 0600);
    CHECK(what.st_blocks * 512 >= SIZE); /* reserved, not sparse */

    /* The size of the existing file counts, whatever size is requested. */
    CHECK_EQ(open_with(at("seg"), 4 * SIZE, WEIR_OPEN_CREATE, &b), 0);
    CHECK_EQ(weir_stats_read(b, &stats), 0);
    CHECK_EQ(stats.bytes, SIZE);
    CHECK(stats.slots > 0 && stats.chunks > 0);
    weir_segment_close(b);
    CHECK_EQ(open_with(at("seg"), 0, 0, &b), 0);
    CHECK(take(a, "k", 10));
    CHECK(!take(b, "k", 1));
    weir_segment_close(b);
    weir_segment_close(a);
    weir_segment_close(NULL);

    check_refused(
        (weir_segment_options){.path = at("seg"), .size = SIZE, .flags = WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE},
        WEIR_EEXIST);
    CHECK_EQ(open_with(at("new"), SIZE, WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE, &a), 0);
    weir_segment_close(a);
    weir_segment_options shared = {.path = at("mode"), .size = SIZE, .flags = WEIR_OPEN_CREATE, .mode = 0640};
    CHECK_EQ(weir_segment_open(&shared, &a), 0);
    CHECK_EQ(stat(at("mode"), &what), 0);
    CHECK_EQ(what.st_mode & 07777, 0640);
    weir_segment_close(a);
    CHECK_EQ(entries(false), 3); /* no other files */
    directory_remove();
}

TEST(contradictory_options)
{
    weir_segment *segment = UNTOUCHED;
    directory_make();
    CHECK_EQ(weir_segment_open(NULL, &segment), WEIR_EINVAL);
    CHECK_EQ(weir_segment_open(&(weir_segment_options){.size = SIZE}, NULL), WEIR_EINVAL);
    CHECK(segment == UNTOUCHED);
    check_refused((weir_segment_options){.path = "", .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_EINVAL);
    check_refused((weir_segment_options){.path = at("x"), .size = SIZE, .flags = 32}, WEIR_EINVAL);
    check_refused((weir_segment_options){.path = at("x"), .size = SIZE, .flags = -1}, WEIR_EINVAL);
    check_refused((weir_segment_options){.path = at("x"), .size = SIZE, .flags = WEIR_OPEN_CREATE | WEIR_OPEN_READONLY},
                  WEIR_EINVAL);
    check_refused((weir_segment_options){.path = at("x"), .size = SIZE, .flags = WEIR_OPEN_REBUILD}, WEIR_EINVAL);
    check_refused((weir_segment_options){.path = at("x"), .size = SIZE, .flags = WEIR_OPEN_EXCLUSIVE}, WEIR_EINVAL);
    check_refused((weir_segment_options){.size = SIZE, .flags = WEIR_OPEN_READONLY}, WEIR_EINVAL);
    directory_remove();
}

TEST(sizes)
{
    weir_segment *segment;
    const uint64_t bad[] = {0, 1, 4096, 65535, (uint64_t)INT64_MAX + 1, UINT64_MAX - 4096, UINT64_MAX};
    directory_make();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_refused((weir_segment_options){.size = bad[i]}, WEIR_ESIZE);
        check_refused((weir_segment_options){.path = at("x"), .size = bad[i], .flags = WEIR_OPEN_CREATE}, WEIR_ESIZE);
    }
    const char *paths[] = {NULL, at("x")};
    for (int i = 0; i < 2; i++) {
        weir_segment_options o = {.path = paths[i], .size = SIZE, .flags = WEIR_OPEN_CREATE};
        o.slab_bytes = SIZE / 2 + 1;
        check_refused(o, WEIR_ESIZE);
        o.slab_bytes = UINT64_MAX;
        check_refused(o, WEIR_ESIZE);
        o.slab_bytes = 4096;
        o.no_slab = true;
        check_refused(o, WEIR_EINVAL);
    }
    /* More than any machine has: which of the two errors depends on which check fails first. */
    struct statvfs fs;
    if (statvfs(directory, &fs) == 0 && fs.f_blocks && (uint64_t)fs.f_blocks * fs.f_frsize < UINT64_C(1) << 45) {
        int got = open_with(at("x"), INT64_MAX, WEIR_OPEN_CREATE, &segment);
        CHECK(got == WEIR_ENOSPC || got == WEIR_ESIZE);
        got = open_with(at("x"), UINT64_C(1) << 45, WEIR_OPEN_CREATE, &segment);
        CHECK_EQ(got, WEIR_ENOSPC);
        CHECK_EQ(entries(false), 0);
    }
    /* Odd sizes, the smallest, and slabs from none to half. */
    for (uint64_t size = 65536; size < 65536 + 200; size += 7) {
        for (int slab = 0; slab < 3; slab++) {
            weir_segment_options o = {.size = size, .slab_bytes = slab == 1 ? size / 2 : 0, .no_slab = slab == 2};
            weir_stats stats;
            CHECK_EQ(weir_segment_open(&o, &segment), 0);
            CHECK(take(segment, "k", 10) && !take(segment, "k", 1));
            CHECK_EQ(weir_stats_read(segment, &stats), 0);
            CHECK_EQ(stats.chunks == 0, slab == 2);
            CHECK_EQ(stats.bytes, size);
            CHECK(stats.slots * 16 + stats.chunks * 36 <= size);
            weir_segment_close(segment);
        }
    }
    directory_remove();
}

/* ---- No permission, no place ---- */

static void check_without_permission(void)
{
    if (geteuid() == 0)
        CHECK_EQ(setuid(65534), 0);
    check_refused((weir_segment_options){.path = at("seg")}, WEIR_EPERM);
    check_refused((weir_segment_options){.path = at("seg"), .flags = WEIR_OPEN_READONLY}, WEIR_EPERM);
    check_refused(
        (weir_segment_options){.path = at("seg"), .size = SIZE, .flags = WEIR_OPEN_CREATE | WEIR_OPEN_REBUILD},
        WEIR_EPERM);
    check_refused((weir_segment_options){.path = at("new"), .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_EPERM);
}

TEST(no_permission)
{
    weir_segment *segment;
    directory_make();
    CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    weir_segment_close(segment);
    CHECK_EQ(chmod(at("seg"), 0), 0);
    CHECK_EQ(chmod(directory, 0555), 0);
    in_child(check_without_permission);
    CHECK_EQ(chmod(directory, 0700), 0);
    directory_remove();
}

/* In a directory that is writable for all, the file of the first creator is used. */
TEST(files_of_other_users)
{
    enum { STRANGER = 65534 };
    const struct {
        mode_t mode; /* of the directory */
        uid_t folder, file;
        int expected;
    } cases[] = {{01777, 0, STRANGER, WEIR_EOWNER}, {01777, 0, 0, 0},       {01777, STRANGER, STRANGER, 0},
                 {0777, 0, STRANGER, WEIR_EOWNER},  {0755, 0, STRANGER, 0}, {01755, 0, STRANGER, 0}};
    if (geteuid() != 0)
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_segment *segment = UNTOUCHED;
        directory_make();
        CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE | WEIR_OPEN_TRUSTED, &segment), 0);
        weir_segment_close(segment);
        CHECK_EQ(chown(at("seg"), cases[i].file, (gid_t)-1), 0);
        CHECK_EQ(chown(directory, cases[i].folder, (gid_t)-1), 0);
        CHECK_EQ(chmod(directory, cases[i].mode), 0);
        for (int flags = 0; flags <= WEIR_OPEN_READONLY; flags += WEIR_OPEN_READONLY) {
            segment = NULL;
            CHECK_EQ(open_with(at("seg"), SIZE, flags | WEIR_OPEN_TRUSTED, &segment), cases[i].expected);
            weir_segment_close(segment);
        }
        segment = NULL;
        CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &segment), 0); /* not checked */
        weir_segment_close(segment);
        directory_remove();
    }
}

TEST(path_that_cannot_be_created)
{
    char longest[5000];
    directory_make();
    check_refused((weir_segment_options){.path = at("no/such"), .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_ENOENT);
    check_refused((weir_segment_options){.path = at("no/such"), .size = SIZE}, WEIR_ENOENT);
    CHECK_EQ(close(open(at("file"), O_CREAT | O_WRONLY, 0600)), 0);
    check_refused((weir_segment_options){.path = at("file/x"), .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_ENOENT);
    /* A dangling link exists: nothing is created through it. */
    CHECK_EQ(symlink(at("target"), at("link")), 0);
    check_refused((weir_segment_options){.path = at("link"), .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_EEXIST);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    check_refused((weir_segment_options){.path = longest, .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_ESYS);
    directory_remove();
}

TEST(path_without_directory)
{
    weir_segment *segment;
    char before[4096];
    directory_make();
    CHECK(getcwd(before, sizeof before));
    CHECK_EQ(chdir(directory), 0);
    CHECK_EQ(open_with("here", SIZE, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(access(at("here"), R_OK), 0);
    weir_segment_close(segment);
    CHECK_EQ(chdir(before), 0);
    directory_remove();
}

/* ---- Sharing ---- */

static weir_segment *shared;

static void take_four(void)
{
    CHECK(take(shared, "k", 4));
}

TEST(state_outlives_handles_and_processes)
{
    directory_make();
    CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &shared), 0);
    CHECK(take(shared, "k", 3));
    weir_segment_close(shared);
    CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &shared), 0);
    in_child(take_four);
    CHECK(!take(shared, "k", 4));
    CHECK(take(shared, "k", 3));
    weir_segment_close(shared);
    /* Anonymous as well, for forked processes. */
    CHECK_EQ(open_with(NULL, SIZE, 0, &shared), 0);
    in_child(take_four);
    in_child(take_four);
    CHECK(!take(shared, "k", 4));
    weir_segment_close(shared);
    directory_remove();
}

/* Opens at the same moment as seven others, takes one of ten twice. Exit code: how many passed. */
static int racer(const char *path, int flags, int start)
{
    weir_segment *segment;
    char byte;
    if (read(start, &byte, 1) != 0 || open_with(path, SIZE, flags, &segment))
        return 100;
    return take(segment, "k", 1) + take(segment, "k", 1);
}

TEST(eight_processes_open_concurrently)
{
    /* New, and in place of a broken one: there must be one segment in the end, and all must use it. */
    directory_make();
    for (int64_t round = 0, rounds = test_scaled(60, 10); round < rounds; round++) {
        bool broken = round % 2;
        int start[2], passed = 0;
        weir_segment *segment;
        unlink(at("seg"));
        if (broken) {
            CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
            weir_segment_close(segment);
            CHECK_EQ(truncate(at("seg"), 70000), 0);
        }
        CHECK_EQ(pipe(start), 0);
        for (int i = 0; i < 8; i++) {
            if (fork() == 0) {
                close(start[1]);
                _exit(racer(at("seg"), WEIR_OPEN_CREATE | (broken ? WEIR_OPEN_REBUILD : 0), start[0]));
            }
        }
        close(start[0]);
        close(start[1]); /* go */
        for (int i = 0; i < 8; i++) {
            int status = 0;
            CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= 2);
            passed += WEXITSTATUS(status);
        }
        CHECK_EQ(passed, 10);
        CHECK_EQ(entries(false), 1);
    }
    directory_remove();
}

/* ---- Clocks ---- */

static void patch_boot(const char *path, uint64_t boot, int64_t offset_ns)
{
    int file = open(path, O_RDWR);
    struct weir__header *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(h != MAP_FAILED);
    h->boot[0] ^= boot;
    h->clock_offset_ns = offset_ns;
    munmap(h, 4096);
    close(file);
}

TEST(clock_continues_after_a_reboot)
{
    weir_segment *segment;
    directory_make();
    CHECK_EQ(open_with(at("seg"), SIZE, WEIR_OPEN_CREATE, &segment), 0);
    weir_time first = weir_clock(segment), second = weir_clock(segment);
    CHECK(second.mono_ns >= first.mono_ns);
    CHECK(llabs(first.mono_ns - first.wall_ns) < WEIR_SECOND);
    weir_segment_close(segment);

    /* The same boot: the offset stays, even if the wall clock was stepped by a year meanwhile. */
    int64_t offset = first.wall_ns - weir__clocks().mono_ns;
    patch_boot(at("seg"), 0, offset - 365 * WEIR_DAY);
    CHECK_EQ(open_with(at("seg"), 0, 0, &segment), 0);
    weir_time now = weir_clock(segment);
    CHECK(llabs(now.mono_ns + 365 * WEIR_DAY - now.wall_ns) < 10 * WEIR_SECOND);
    weir_segment_close(segment);

    /* Another boot, whose clock had run for 40 days: mono_ns continues close to the wall clock. */
    patch_boot(at("seg"), 1, offset - 40 * WEIR_DAY);
    CHECK_EQ(open_with(at("seg"), 0, 0, &segment), 0);
    now = weir_clock(segment);
    CHECK(llabs(now.mono_ns - now.wall_ns) < WEIR_SECOND);
    CHECK(now.mono_ns >= first.mono_ns - WEIR_SECOND);
    weir_segment_close(segment);
    /* And the next process finds it so. */
    CHECK_EQ(open_with(at("seg"), 0, WEIR_OPEN_READONLY, &segment), 0);
    now = weir_clock(segment);
    CHECK(llabs(now.mono_ns - now.wall_ns) < 10 * WEIR_SECOND);
    weir_segment_close(segment);
    directory_remove();
}

TEST(wall_clock_steps_do_not_matter)
{
    static const weir_params kinds[] = {
        {.limit = 100, .window_ns = WEIR_DAY},
        {.limit = 100, .window_ns = WEIR_DAY, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = WEIR_DAY},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = WEIR_DAY, .delay = true},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .window_ns = WEIR_DAY, .align = WEIR_ALIGN_FIRST_REQUEST},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 100, .window_ns = WEIR_DAY},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = WEIR_DAY},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = WEIR_DAY, .buckets = 24},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        weir_segment *segment;
        weir_limit limit;
        weir_decision d;
        CHECK_EQ(open_with(NULL, SIZE, 0, &segment), 0);
        CHECK_EQ(weir_limit_init(&limit, &kinds[i]), 0);
        CHECK_EQ(weir_take(segment, &limit, "k", 1, 40, NOW, &d), 0);
        for (int step = -2; step <= 2; step++) {
            weir_time now = {NOW.mono_ns + 1000, NOW.wall_ns + step * 3600 * WEIR_SECOND};
            CHECK_EQ(weir_peek(segment, &limit, "k", 1, 1, now, &d), 0);
            CHECK_EQ(d.remaining, 59);
            CHECK_EQ(weir_take(segment, &limit, "k", 1, 61, now, &d), 0);
            CHECK_EQ(d.verdict, WEIR_DENY);
            CHECK_EQ(weir_take(segment, &limit, "k", 1, 60, now, &d), 0);
            CHECK(weir_passes(&d));
            CHECK_EQ(weir_refund(segment, &limit, "k", 1, 60, now, &d), 0);
        }
        weir_segment_close(segment);
    }
}

TEST_MAIN
