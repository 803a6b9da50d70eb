/* The Nth call of everything that can fail fails: opening segments and zones. */
#include "engine/segment.h"

#include "nth_call.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Calls that fail on demand ---- */

#define SIZE (128 << 10)

enum call { MALLOC, CALLOC, OPEN, MMAP, FALLOCATE, LINKAT, RENAME, GETRANDOM, FSTAT, CALLS };
static const char *const call_names[CALLS] = {"malloc", "calloc", "open",      "mmap", "posix_fallocate",
                                              "linkat", "rename", "getrandom", "fstat"};

static struct {
    int left;     /* errno afterwards */
    bool in_proc; /* the call that failed was an open in /proc, or of a file without a name */
    bool unnamed;
    bool fresh;        /* it was fstat, of a file under construction */
    bool with_room;    /* it was mmap, with addresses for a larger segment; without memory it is mapped without them */
    bool no_unnamed;   /* as on a file system without O_TMPFILE */
    bool short_random; /* getrandom gives one byte at a time */
} special;

static void set_fault(enum call call, int nth, int number)
{
    memset(&special, 0, sizeof special);
    fault_set(call, nth, number);
}

static bool open_fails(const char *path, int flags)
{
    bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    if (fails(OPEN)) {
        special.in_proc = strncmp(path, "/proc/", 6) == 0;
        special.unnamed = unnamed;
        return true;
    }
    if (!fault.armed || !special.no_unnamed || !unnamed)
        return false;
    errno = EOPNOTSUPP;
    return true;
}

/* posix_fallocate returns its error and leaves errno alone. */
static bool fallocate_fails(void)
{
    int kept = errno;
    bool failed = fails(FALLOCATE);
    errno = kept;
    return failed;
}

/* For a file under construction fstat determines its file system: without a result there are no large pages, and that
 * is all. */
static bool fstat_fails(int file)
{
    if (!fails(FSTAT))
        return false;
    int kept = errno;
    special.fresh = lseek(file, 0, SEEK_END) == 0;
    errno = kept;
    return true;
}

static bool mmap_fails(size_t length)
{
    if (!fails(MMAP))
        return false;
    special.with_room = length > SIZE && errno == ENOMEM;
    return true;
}

FAILING_MALLOC(fails(MALLOC))
FAILING_CALLOC(fails(CALLOC))
FAILING_OPEN(open_fails(path, flags))
FAILING(void *, mmap, (void *at, size_t length, int protection, int flags, int file, off_t offset),
        (at, length, protection, flags, file, offset), MAP_FAILED, mmap_fails(length))
FAILING(int, posix_fallocate, (int file, off_t offset, off_t length), (file, offset, length), fault.number,
        fallocate_fails())
FAILING(int, linkat, (int from_dir, const char *from, int to_dir, const char *to, int flags),
        (from_dir, from, to_dir, to, flags), -1, fails(LINKAT))
FAILING(int, rename, (const char *from, const char *to), (from, to), -1, fails(RENAME))
FAILING(ssize_t, getrandom, (void *to, size_t length, unsigned flags),
        (to, fault.armed &&special.short_random ? 1 : length, flags), -1, fails(GETRANDOM))
FAILING_FSTAT(fstat_fails(file))

/* ---- Leaks ---- */

static char directory[256], path[300];

struct traces {
    int files, mappings, entries;
};

static struct traces traces(void)
{
    struct traces t = {entries_in("/proc/self/fd"), 0, entries_in(directory)};
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) /* ours by name; anonymous shared memory is /dev/zero there */
        t.mappings += strstr(line, directory) || strstr(line, "/dev/zero");
    if (maps)
        fclose(maps);
    return t;
}

static void directory_make(void)
{
    const char *base = getenv("TMPDIR");
    if (access("/dev/shm", W_OK) == 0)
        base = "/dev/shm";
    snprintf(directory, sizeof directory, "%s/weir-test-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/seg", directory);
}

static void directory_remove(void)
{
    unlink(path);
    CHECK_EQ(rmdir(directory), 0);
}

/* ---- Opening segments ---- */

#define UNTOUCHED ((void *)(uintptr_t)0x5a5a)

enum there { NOTHING, SOUND, BROKEN };

static const struct scenario {
    const char *name;
    enum there there;
    bool anonymous, no_unnamed;
    int flags;
} scenarios[] = {
    {"anonymous", NOTHING, true, false, 0},
    {"create", NOTHING, false, false, WEIR_OPEN_CREATE},
    {"create exclusively", NOTHING, false, false, WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE},
    {"create under a name", NOTHING, false, true, WEIR_OPEN_CREATE},
    {"attach", SOUND, false, false, 0},
    {"attach or create", SOUND, false, false, WEIR_OPEN_CREATE},
    {"attach read-only", SOUND, false, false, WEIR_OPEN_READONLY},
    {"rebuild", BROKEN, false, false, WEIR_OPEN_CREATE | WEIR_OPEN_REBUILD},
    {"rebuild under a name", BROKEN, false, true, WEIR_OPEN_CREATE | WEIR_OPEN_REBUILD},
};

#define RETRIED 1 /* not an error for the caller: the library tries again or does without */

static const struct {
    enum call call;
    int number, error;
} faults[] = {
    {CALLOC, ENOMEM, WEIR_ENOMEM},   {OPEN, EACCES, WEIR_EPERM},       {OPEN, EMFILE, WEIR_ESYS},
    {OPEN, ENOMEM, WEIR_ENOMEM},     {OPEN, EROFS, WEIR_EPERM},        {MMAP, ENOMEM, WEIR_ENOMEM},
    {MMAP, EACCES, WEIR_EPERM},      {MMAP, ENODEV, WEIR_ESYS},        {FALLOCATE, ENOSPC, WEIR_ENOSPC},
    {FALLOCATE, EFBIG, WEIR_ENOSPC}, {FALLOCATE, EDQUOT, WEIR_ENOSPC}, {FALLOCATE, EIO, WEIR_ESYS},
    {FALLOCATE, EINTR, RETRIED},     {LINKAT, EACCES, WEIR_EPERM},     {LINKAT, ENOSPC, WEIR_ENOSPC},
    {LINKAT, EIO, WEIR_ESYS},        {RENAME, EACCES, WEIR_EPERM},     {RENAME, ENOSPC, WEIR_ENOSPC},
    {GETRANDOM, ENOSYS, WEIR_ESYS},  {GETRANDOM, EINTR, RETRIED},      {FSTAT, EIO, WEIR_ESYS},
    {FSTAT, ENOMEM, WEIR_ENOMEM},
};

static void set_up(const struct scenario *s)
{
    weir_segment *segment;
    unlink(path);
    if (s->there == NOTHING)
        return;
    weir_segment_options options = {.path = path, .size = SIZE, .flags = WEIR_OPEN_CREATE};
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    weir_segment_close(segment);
    if (s->there == BROKEN)
        CHECK_EQ(truncate(path, 70000), 0);
}

static int open_segment(const struct scenario *s, weir_segment **segment)
{
    weir_segment_options options = {.path = s->anonymous ? NULL : path, .size = SIZE, .flags = s->flags};
    special.no_unnamed = s->no_unnamed;
    fault.armed = true;
    errno = 0;
    int error = weir_segment_open(&options, segment);
    special.left = errno;
    fault.armed = false;
    return error;
}

/* One open with the fault set; true if it was hit. */
static bool try_once(const struct scenario *s, int expected)
{
    weir_segment *segment = UNTOUCHED;
    int failures = test_failures;
    set_up(s);
    struct stat old = {0}, now = {0};
    stat(path, &old);
    struct traces before = traces();
    int error = open_segment(s, &segment);
    bool passes = !fault.hit || expected == RETRIED || special.in_proc || special.fresh || special.with_room;

    CHECK_EQ(error, passes ? 0 : expected);
    if (error == WEIR_ESYS)
        CHECK_EQ(special.left, fault.number); /* as weir.h promises */
    if (error) {
        CHECK(segment == UNTOUCHED);
        /* An existing file is still there, broken or not. */
        CHECK_EQ(stat(path, &now), s->there == NOTHING ? -1 : 0);
        CHECK_EQ(old.st_ino, now.st_ino);
    } else {
        weir_stats stats;
        CHECK_EQ(weir_stats_read(segment, &stats), 0);
        CHECK_EQ(stats.bytes, SIZE);
        weir_segment_close(segment);
    }
    struct traces after = traces();
    CHECK_EQ(after.files, before.files);
    CHECK_EQ(after.mappings, before.mappings);
    CHECK_EQ(after.entries, before.entries + (error == 0 && s->there == NOTHING && !s->anonymous));
    if (test_failures != failures)
        printf("  in \"%s\", %s number %d failing with %s\n", s->name, call_names[fault.call], fault.nth,
               strerror(fault.number));
    return fault.hit;
}

TEST(segment_open_with_the_nth_call_failing)
{
    int hits[CALLS] = {0};
    directory_make();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            for (int nth = 1; nth < 100; nth++) {
                set_fault(faults[k].call, nth, faults[k].number);
                if (!try_once(&scenarios[i], faults[k].error))
                    break;
                hits[faults[k].call]++;
                CHECK(nth < 99);
            }
        }
    }
    for (int call = CALLOC; call < CALLS; call++)
        CHECK(hits[call] > 0); /* otherwise nothing was tested */
    directory_remove();
}

TEST(file_systems_without_unnamed_files)
{
    directory_make();
    const int numbers[] = {EOPNOTSUPP, EISDIR, EINVAL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool seen = false;
        for (int nth = 1; nth < 10; nth++) {
            const struct scenario *s = &scenarios[1];
            weir_segment *segment = UNTOUCHED;
            set_fault(OPEN, nth, numbers[i]);
            set_up(s);
            struct traces before = traces();
            int error = open_segment(s, &segment);
            if (!special.unnamed) {
                if (error == 0)
                    weir_segment_close(segment);
                continue;
            }
            seen = true;
            CHECK_EQ(error, 0);
            if (error == 0)
                weir_segment_close(segment);
            CHECK_EQ(traces().entries, before.entries + 1); /* the segment, and no temporary file */
            CHECK_EQ(traces().files, before.files);
        }
        CHECK(seen);
    }
    directory_remove();
}

TEST(another_process_creates_the_segment_first)
{
    /* The link fails because another process has just created the segment; it is gone again on the next look, so the
     * open is repeated. */
    weir_segment *segment = UNTOUCHED;
    directory_make();
    for (int exclusive = 0; exclusive < 2; exclusive++) {
        set_fault(LINKAT, 1, EEXIST);
        unlink(path);
        int error = open_segment(&scenarios[exclusive ? 2 : 1], &segment);
        CHECK(fault.hit);
        CHECK_EQ(error, exclusive ? WEIR_EEXIST : 0);
        if (!error)
            weir_segment_close(segment);
        CHECK_EQ(entries_in(directory), exclusive ? 2 : 3);
    }
    directory_remove();
}

TEST(random_bytes_one_at_a_time)
{
    weir_segment *segment = UNTOUCHED;
    set_fault(CALLS, 0, 0);
    special.short_random = true;
    CHECK_EQ(open_segment(&scenarios[0], &segment), 0);
    const uint8_t *secret = segment->table.header->secret, *end = secret + WEIR__SECRET_BYTES;
    int zeros = 0;
    while (secret < end)
        zeros += *secret++ == 0;
    CHECK(zeros < 20); /* the secret is complete */
    weir_segment_close(segment);
}

/* ---- Zones ---- */

/* A private zone, so that no database need be installed: an hour east, always. */
static void write_zone(void)
{
    unsigned char bytes[44 + 6 + 4] = "TZif";
    bytes[20 + 4 * 4 + 3] = 1; /* one type */
    bytes[20 + 5 * 4 + 3] = 4; /* four bytes of names */
    bytes[44 + 2] = 3600 >> 8;
    bytes[44 + 3] = 3600 & 255;
    memcpy(bytes + 50, "ONE", 4);
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(bytes, sizeof bytes, 1, file) == 1);
    if (file)
        fclose(file);
}

TEST(zone_open_with_the_nth_call_failing)
{
    static const struct {
        enum call call;
        int number, error;
    } zone_faults[] = {{MALLOC, ENOMEM, WEIR_ENOMEM},
                       {OPEN, EACCES, WEIR_EZONE},
                       {OPEN, EMFILE, WEIR_EZONE},
                       {OPEN, EINTR, RETRIED},
                       {FSTAT, EIO, WEIR_EZONE}};
    int hits = 0;
    directory_make();
    write_zone();
    setenv("TZDIR", directory, 1);
    for (size_t k = 0; k < sizeof zone_faults / sizeof *zone_faults; k++) {
        for (int nth = 1; nth < 20; nth++) {
            weir_zone *zone = UNTOUCHED;
            struct traces before = traces();
            set_fault(zone_faults[k].call, nth, zone_faults[k].number);
            fault.armed = true;
            int error = weir_zone_open("seg", &zone);
            fault.armed = false;
            CHECK_EQ(error, fault.hit && zone_faults[k].error != RETRIED ? zone_faults[k].error : 0);
            CHECK((zone == UNTOUCHED) == (error != 0));
            if (!error)
                weir_zone_close(zone);
            CHECK_EQ(traces().files, before.files);
            if (!fault.hit)
                break;
            hits++;
        }
    }
    CHECK(hits >= 6);

    weir_zone *zone = UNTOUCHED;
    set_fault(MALLOC, 1, 0);
    fault.armed = true;
    CHECK_EQ(weir_zone_open("UTC", &zone), WEIR_ENOMEM);
    fault.armed = false;
    CHECK(zone == UNTOUCHED);
    unsetenv("TZDIR");
    directory_remove();
}

TEST_MAIN
