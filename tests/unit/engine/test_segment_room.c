/* Segments as files: lack of space, sparse files, large pages. */
#include "segment_files.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* A file of this size with the first bytes of another, and holes for the rest. */
static void copy_with_holes(const char *from, const char *to, off_t size, size_t bytes)
{
    char start[4096];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(in >= 0 && out >= 0);
    CHECK_EQ(ftruncate(out, size), 0);
    CHECK_EQ(read(in, start, bytes), (ssize_t)bytes);
    CHECK_EQ(write(out, start, bytes), (ssize_t)bytes);
    close(in);
    close(out);
}

/* Whether the kernel supports filling holes: not before 5.14, nor under an emulator that ignores madvise. */
static bool holes_are_filled(void)
{
    bool reported = false;
#ifdef MADV_POPULATE_WRITE
    unsigned char there = 0;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    (void)madvise(memory, 4096, MADV_POPULATE_WRITE);
    reported = mincore(memory, 4096, &there) == 0 && there & 1;
    munmap(memory, 4096);
#endif
    return reported;
}

/* With one free page: a sparse file needs space, and is refused before a process accesses a hole. */
static void full_tmpfs_and_holes(void)
{
    weir_segment *segment;
    if (!holes_are_filled()) {
        printf("SKIP no_space: holes cannot be detected here\n");
        return;
    }
    const int how[] = {0, WEIR_OPEN_READONLY, WEIR_OPEN_CREATE, WEIR_OPEN_CREATE | WEIR_OPEN_REBUILD};
    copy_with_holes(at("fits"), at("copy"), 512 << 10, 4096);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++)
        check_refused((weir_segment_options){.path = at("copy"), .size = SIZE, .flags = how[i]}, WEIR_ENOSPC);
    copy_with_holes(at("fits"), at("nothing"), 512 << 10, 0);
    check_refused((weir_segment_options){.path = at("nothing")}, WEIR_ENOSPC);
    CHECK_EQ(unlink(at("fits")), 0); /* there is room again */
    check_refused((weir_segment_options){.path = at("nothing")}, WEIR_ENOTSEG);
    CHECK_EQ(open_with(at("copy"), 0, 0, &segment), 0);
    for (int i = 0; i < 20000; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        take(segment, key, 1);
    }
    weir_segment_close(segment);
}

static void full_tmpfs(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("weir-test", directory, "tmpfs", 0, "size=1m"))
        return; /* not permitted here; the limit on file sizes below replaces it */
    weir_segment *segment;
    check_refused((weir_segment_options){.path = at("big"), .size = 4 << 20, .flags = WEIR_OPEN_CREATE}, WEIR_ENOSPC);
    CHECK_EQ(open_with(at("fits"), 512 << 10, WEIR_OPEN_CREATE, &segment), 0);
    check_refused((weir_segment_options){.path = at("more"), .size = 1 << 20, .flags = WEIR_OPEN_CREATE}, WEIR_ENOSPC);
    CHECK(take(segment, "k", 10)); /* its own space was reserved */
    weir_segment_close(segment);
    int rest = open(at("rest"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(posix_fallocate(rest, 0, 508 << 10), 0); /* all but a page */
    close(rest);
    full_tmpfs_and_holes();
}

/* KiB of this process's shared memory in large pages. */
static long in_large_pages(void)
{
    static const char name[] = "ShmemPmdMapped:";
    char line[256];
    long sum = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, sizeof name - 1) == 0)
            sum += strtol(line + sizeof name - 1, NULL, 10);
    fclose(file);
    return sum;
}

/* Whether a mapped file gets large pages: not on every kernel, nor under an emulator that ignores madvise. */
static bool there_are_large_pages(void)
{
    const size_t bytes = 16 << 20;
    int file = open(at("plain"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(ftruncate(file, (off_t)bytes), 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    bool there = in_large_pages() >= 2048;
    munmap(memory, bytes);
    return there;
}

static void large_pages(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("weir-test", directory, "tmpfs", 0, "huge=advise"))
        return; /* not permitted here, or a kernel without them */
    if (!there_are_large_pages()) {
        printf("SKIP tmpfs_with_huge_advise_gives_large_pages: there are none\n");
        return;
    }
    weir_segment *segment;
    CHECK_EQ(open_with(at("large"), 16 << 20, WEIR_OPEN_CREATE, &segment), 0);
    CHECK(take(segment, "k", 10));
    CHECK(in_large_pages() >= 2048);
    weir_segment_close(segment);
}

TEST(tmpfs_with_huge_advise_gives_large_pages)
{
    directory_make();
    in_child(large_pages);
    directory_remove();
}

static void limited_files(void)
{
    struct rlimit small = {128 << 10, 128 << 10}; /* beyond it the kernel sends SIGXFSZ, which must not happen */
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    check_refused((weir_segment_options){.path = at("big"), .size = SIZE, .flags = WEIR_OPEN_CREATE}, WEIR_ENOSPC);
}

TEST(lack_of_space_is_an_error)
{
    directory_make();
    in_child(full_tmpfs);
    in_child(limited_files);
    CHECK_EQ(entries(false), 0);
    directory_remove();
}

TEST_MAIN
