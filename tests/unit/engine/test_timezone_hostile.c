/* Time zones: malformed rules, files and names, hostile bytes, and faults of the system. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "timezones.h"

#define BERLIN "/usr/share/zoneinfo/Europe/Berlin"

static size_t load(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(bytes, 1, room, file) : 0;

    if (file)
        fclose(file);
    CHECK(len > 0 && len < room); /* needs tzdata */
    return len;
}

static void check_refused(const struct file *file)
{
    weir_zone *zone = NULL;

    CHECK_EQ(parse_copy(file->bytes, file->len, &zone), WEIR_EZONE);
    CHECK(!zone);
    weir_zone_close(zone);
}

/* ---- Malformed input ---- */

TEST(malformed_rules_are_refused)
{
    static const char *const rules[] = {"C",
                                        "CET",
                                        "CE-1",
                                        "CET-1CEST",
                                        "CET-1CEST,",
                                        "CET-1CEST,M3.5.0",
                                        "CET-1CEST,M3.5.0,",
                                        "CET-25",
                                        "CET-1:60",
                                        "CET-1:00:60",
                                        "CET--1",
                                        "<CET-1",
                                        "<C!T>-1",
                                        "<+1>-1",
                                        "CET-1CEST,M0.5.0,M10.5.0",
                                        "CET-1CEST,M13.5.0,M10.5.0",
                                        "CET-1CEST,M3.0.0,M10.5.0",
                                        "CET-1CEST,M3.6.0,M10.5.0",
                                        "CET-1CEST,M3.5.7,M10.5.0",
                                        "CET-1CEST,M3.5,M10.5.0",
                                        "CET-1CEST,J0,J100",
                                        "CET-1CEST,J366,J100",
                                        "CET-1CEST,366,100",
                                        "CET-1CEST,M3.5.0/168,M10.5.0",
                                        "CET-1CEST,M3.5.0,M10.5.0/3x",
                                        "CET-1CEST,M3.5.0/,M10.5.0",
                                        "CET-1 ",
                                        "CET-99999999999999999999",
                                        "CET-1CEST,M3.5.0,J99999999999999999999"};

    for (size_t i = 0; i < COUNT(rules); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(parse_rule(rules[i], &zone), WEIR_EZONE);
        CHECK(!zone);
        weir_zone_close(zone);
    }
}

TEST(malformed_files_are_refused)
{
    struct weir__zone_transition transitions[] = {{1, 3600}, {2, 7200}};
    struct weir__zone_transition falling[] = {{2, 3600}, {2, 7200}}, too_eastern[] = {{2, 26 * 3600}},
                                 too_western[] = {{2, -26 * 3600}};
    static const struct {
        size_t at; /* in the first block of a file of version 1 */
        unsigned char byte;
    } edits[] = {{0, 'X'},  {4, '1'}, {4, '5'},  {4, '2'}, {20, 255}, {23, 1},   {27, 1}, {31, 1},
                 {32, 255}, {35, 3},  {36, 255}, {39, 0},  {39, 1},   {40, 255}, {43, 0}, {43, 5}};
    static const char *const footers[] = {"", "\n", "UTC0\n", "\nUTC0", "X\n\n"};
    struct file file;

    for (size_t i = 0; i < COUNT(edits); i++) {
        file = make_file('\0', transitions, 2, "");
        file.bytes[edits[i].at] = edits[i].byte;
        check_refused(&file);
    }
    for (size_t i = 0; i < COUNT(footers); i++) {
        file = make_file('2', transitions, 2, footers[i]);
        check_refused(&file);
    }
    for (size_t at = 23; at <= 27; at += 4) { /* one flag for two types; its byte would be there */
        file = make_file('\0', transitions, 2, "");
        file.bytes[at] = 1;
        put(&file, "", 1);
        check_refused(&file);
    }
    file = make_file('\0', NULL, 0, "");
    file.bytes[39] = 0; /* no types */
    check_refused(&file);
    file = make_file('1', transitions, 2, "\n\n");
    check_refused(&file);
    file = make_file('5', transitions, 2, "\n\n");
    check_refused(&file);
    file = make_file('2', transitions, 2, "\n\n");
    file.bytes[54 + 4] = '3'; /* the version once more, in the second header */
    check_refused(&file);
    file = make_file('2', transitions, 2, "\nUTC00\n");
    file.bytes[file.len - 2] = '\0';
    check_refused(&file);
    file = make_file('\0', falling, 2, "");
    check_refused(&file);
    file = make_file('\0', too_eastern, 1, "");
    check_refused(&file);
    file = make_file('\0', too_western, 1, "");
    check_refused(&file);
}

TEST(names_outside_the_database_are_refused)
{
    char longer[257];
    const char *names[] = {NULL,     "",        "/Europe/Berlin",  "../zoneinfo/Europe/Berlin",
                           "..",     ".",       "Europe/../UTC",   "Europe/Berlin/x",
                           "Europe", "Europe/", "Europe/Atlantis", "zone.tab",
                           longer};

    /* Would be found if it were not too long. */
    memset(longer, '/', sizeof longer);
    memcpy(longer, "Europe", 6);
    memcpy(longer + sizeof longer - 7, "Berlin", 7);
    for (size_t i = 0; i < COUNT(names); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(weir_zone_open(names[i], &zone), WEIR_EZONE);
        CHECK(!zone);
    }
    CHECK_EQ(weir_zone_open("UTC", NULL), WEIR_EINVAL);
    weir_zone_close(NULL);

    weir_zone *zone = NULL;
    memmove(longer + 6, longer + 7, sizeof longer - 7); /* 255 bytes are fine */
    CHECK_EQ(weir_zone_open(longer, &zone), 0);
    weir_zone_close(zone);
}

/* ---- Hostile bytes ---- */

TEST(every_truncation_is_refused)
{
    unsigned char bytes[8192];
    size_t len = load(BERLIN, bytes, sizeof bytes);
    weir_zone *zone = NULL;

    for (size_t cut = 0; cut < len; cut++)
        CHECK_EQ(parse_copy(bytes, cut, &zone), WEIR_EZONE);
    CHECK(!zone);
    CHECK_EQ(parse_copy(bytes, len, &zone), 0);
    weir_zone_close(zone);
}

/* Flips up to eight bits, many of them in the header or the footer, where most can break. */
static void flip_bits(unsigned char *bytes, size_t len, uint64_t *seed)
{
    for (uint64_t flips = 1 + test_random(seed) % 8; flips > 0; flips--) {
        uint64_t where = test_random(seed) % (flips % 2 ? len : 44);
        if (test_random(seed) % 3 == 0)
            where = len - 1 - where % 44;
        bytes[where] ^= (unsigned char)(1 << test_random(seed) % 8);
    }
}

/* Returns whether the bytes were accepted. */
static bool check_hostile(const unsigned char *bytes, size_t len, uint64_t *seed)
{
    weir_zone *zone = NULL;
    int error = parse_copy(bytes, len, &zone);
    int64_t now = (int64_t)(test_random(seed) % (INT64_MAX / 4)), start, end;

    CHECK(error == (zone ? 0 : WEIR_EZONE));
    if (!zone)
        return false;
    check_sound(zone);
    if (zone->count && now % 4)
        now = zone->transition[now % zone->count].at_s % (INT64_C(1) << 40) * 1000000;
    weir__calendar_window(zone, (enum weir_calendar)(test_random(seed) % 4), now, &start, &end);
    CHECK(start <= now && now < end);
    weir_zone_close(zone);
    return true;
}

TEST(mutations_are_refused_or_valid)
{
    static const char *const paths[] = {BERLIN, "/usr/share/zoneinfo/Africa/Casablanca"};
    uint64_t seed = 5;

    for (size_t p = 0; p < COUNT(paths); p++) {
        unsigned char original[8192], bytes[8192];
        size_t len = load(paths[p], original, sizeof original);
        int taken = 0;
        for (int i = 0; len && i < 10000; i++) {
            memcpy(bytes, original, len);
            flip_bits(bytes, len, &seed);
            taken += check_hostile(bytes, len, &seed);
        }
        /* Both must have happened, or the mutations were too wild or too tame to test anything. */
        CHECK(taken > 500 && taken < 9500);
    }
}

/* ---- Faults: a second copy of timezone.c with a malloc that fails on demand, and a read that does (by the linker)
 * ---- */

static int malloc_fails_at, read_fails_with; /* 0: never; the read fails every other time */
static bool read_fails_next, read_ends;

static void *faulty_malloc(size_t size)
{
    return malloc_fails_at && --malloc_fails_at == 0 ? NULL : malloc(size);
}

ssize_t __real_read(int fd, void *bytes, size_t len);
ssize_t __wrap_read(int fd, void *bytes, size_t len);

ssize_t __wrap_read(int fd, void *bytes, size_t len)
{
    read_fails_next = !read_fails_next;
    if (read_fails_with && read_fails_next) {
        errno = read_fails_with;
        return -1;
    }
    return read_ends ? 0 : __real_read(fd, bytes, len < 100 ? len : 100); /* in small bits, as a system may */
}

int faulty_zone_open(const char *name, weir_zone **zone);
void faulty_zone_close(weir_zone *zone);
int faulty_zone_parse(const unsigned char *bytes, size_t len, weir_zone **zone);
#define weir_zone_open   faulty_zone_open
#define weir_zone_close  faulty_zone_close
#define weir__zone_parse faulty_zone_parse
#define malloc           faulty_malloc
#include "../../../src/engine/timezone.c"
#undef malloc
#undef weir__zone_parse
#undef weir_zone_close
#undef weir_zone_open

TEST(interrupted_and_short_reads_are_continued)
{
    weir_zone *zone = NULL;

    read_fails_with = EINTR;
    CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), 0);
    read_fails_with = 0;
    CHECK(zone && offset_at(zone, INT64_C(1720000000)) == 7200);
    faulty_zone_close(zone);
}

TEST(failures_leave_the_output_alone)
{
    weir_zone mark, *zone = &mark;

    read_fails_with = EIO;
    CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), WEIR_EZONE);
    read_fails_with = 0;
    read_ends = true; /* the file was truncated after its length had been read */
    CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), WEIR_EZONE);
    read_ends = false;
    malloc_fails_at = 1;
    CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), WEIR_ENOMEM);
    CHECK_EQ(malloc_fails_at, 0);
    malloc_fails_at = 1;
    CHECK_EQ(faulty_zone_open("UTC", &zone), WEIR_ENOMEM);
    malloc_fails_at = 0;
    CHECK_EQ(faulty_zone_open("Atlantis", &zone), WEIR_EZONE);
    CHECK(zone == &mark);
}

TEST(only_regular_files_up_to_a_mebibyte)
{
    struct weir__zone_transition transition = {7, 42};
    struct file made = make_file('2', &transition, 1, "\n\n");
    char dir[] = "/tmp/weir_zone_XXXXXX", path[64], long_dir[PATH_MAX];
    weir_zone *zone = NULL;
    int fd;

    CHECK(mkdtemp(dir));
    setenv("TZDIR", dir, 1);
    snprintf(path, sizeof path, "%s/file", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(write(fd, made.bytes, made.len), made.len);
    CHECK(ftruncate(fd, 1 << 20) == 0);
    CHECK_EQ(weir_zone_open("file", &zone), 0);
    CHECK(zone && offset_at(zone, 7) == 42);
    weir_zone_close(zone);
    zone = NULL;

    /* A path that is too long must not be cut to that of the file: 4095 bytes and the NUL end with its name. */
    memset(long_dir, '/', sizeof long_dir);
    memcpy(long_dir + sizeof long_dir - strlen("/file") - sizeof dir, dir, sizeof dir);
    setenv("TZDIR", long_dir, 1);
    CHECK_EQ(weir_zone_open("file1", &zone), WEIR_EZONE);
    setenv("TZDIR", dir, 1);

    CHECK(ftruncate(fd, (1 << 20) + 1) == 0);
    malloc_fails_at = 1; /* must not even try */
    CHECK_EQ(faulty_zone_open("file", &zone), WEIR_EZONE);
    malloc_fails_at = 0;
    CHECK(ftruncate(fd, 0) == 0);
    CHECK_EQ(weir_zone_open("file", &zone), WEIR_EZONE);
    close(fd);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_EQ(weir_zone_open("file", &zone), WEIR_EZONE); /* and does not hang */
    CHECK(!zone);
    unsetenv("TZDIR");
    CHECK(unlink(path) == 0 && rmdir(dir) == 0);
}

TEST(too_many_bytes_are_refused)
{
    struct weir__zone_transition transition = {7, 42};
    struct file made = make_file('2', &transition, 1, "\n\n");
    unsigned char *bytes = calloc(1, (1 << 20) + 1);
    weir_zone *zone = NULL;

    CHECK(bytes);
    if (bytes) {
        memcpy(bytes, made.bytes, made.len);
        CHECK_EQ(weir__zone_parse(bytes, (1 << 20) + 1, &zone), WEIR_EZONE);
        CHECK_EQ(weir__zone_parse(bytes, 1 << 20, &zone), 0);
    }
    weir_zone_close(zone);
    free(bytes);
}

TEST_MAIN
