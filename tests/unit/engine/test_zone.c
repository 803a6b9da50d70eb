/* Time zones: agreement with the C library, the forms of a rule, hostile bytes, and faults of the system. */
#include "../../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "algo/calendar.h"
#include "engine/zone.h"

#define DAY          INT64_C(86400)
#define BERLIN       "/usr/share/zoneinfo/Europe/Berlin"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Helpers ---- */

static int32_t offset_at(const weir_zone *zone, int64_t at_s)
{
    int32_t offset = zone->offset_s;

    for (int32_t i = 0; i < zone->count && zone->turn[i].at_s <= at_s; i++)
        offset = zone->turn[i].offset_s;
    return offset;
}

static long libc_offset_at(int64_t at_s)
{
    time_t at = (time_t)at_s;
    struct tm tm;

    localtime_r(&at, &tm);
    return tm.tm_gmtoff;
}

static void libc_zone(const char *name)
{
    if (name)
        setenv("TZ", name, 1);
    else
        unsetenv("TZ");
    tzset();
}

/* What zone.h promises of every zone, hostile bytes or not. */
static void check_sound(const weir_zone *zone)
{
    int32_t offset = zone->offset_s;

    CHECK(offset > -26 * 3600 && offset < 26 * 3600);
    CHECK(zone->count >= 0);
    for (int32_t i = 0; i < zone->count; i++) {
        CHECK(i == 0 || zone->turn[i].at_s > zone->turn[i - 1].at_s);
        CHECK(zone->turn[i].offset_s != offset);
        offset = zone->turn[i].offset_s;
        CHECK(offset > -26 * 3600 && offset < 26 * 3600);
    }
}

/* Random moments from 1971 to 2150, and the seconds around each turn in between. */
static void check_against_libc(const char *libc_name, const weir_zone *zone, uint64_t seed)
{
    int64_t from = 365 * DAY, to = 180 * 36525 * DAY / 100;

    check_sound(zone);
    libc_zone(libc_name);
    for (int i = 0; i < 4000; i++) {
        int64_t at = from + (int64_t)(test_random(&seed) % (uint64_t)(to - from));
        CHECK_EQ(offset_at(zone, at), libc_offset_at(at));
    }
    for (int32_t i = 0; i < zone->count; i++) {
        int64_t at = zone->turn[i].at_s;
        if (at > from && at < to) {
            CHECK_EQ(offset_at(zone, at), libc_offset_at(at));
            CHECK_EQ(offset_at(zone, at - 1), libc_offset_at(at - 1));
        }
    }
    libc_zone(NULL);
}

/* A TZif file in the making. */
struct file {
    size_t len;
    unsigned char bytes[2048];
};

static void put(struct file *file, const void *bytes, size_t len)
{
    memcpy(file->bytes + file->len, bytes, len);
    file->len += len;
}

static void put_number(struct file *file, int64_t number, int width)
{
    for (int i = width - 1; i >= 0; i--)
        file->bytes[file->len++] = (unsigned char)((uint64_t)number >> (8 * i));
}

/* A block with `count` turns; turn i is to type i, which has the turn's offset. At least one type, UTC. */
static void put_block(struct file *file, char version, int width, const struct weir__turn *turns, int count)
{
    char reserved[15] = {0};

    put(file, "TZif", 4);
    put(file, &version, 1);
    put(file, reserved, 15);
    put_number(file, 0, 4);
    put_number(file, 0, 4);
    put_number(file, 0, 4);
    put_number(file, count, 4);
    put_number(file, count ? count : 1, 4);
    put_number(file, 4, 4);
    for (int i = 0; i < count; i++)
        put_number(file, turns[i].at_s, width);
    for (int i = 0; i < count; i++)
        put_number(file, i, 1);
    for (int i = 0; i < (count ? count : 1); i++) {
        put_number(file, count ? turns[i].offset_s : 0, 4);
        put_number(file, 0, 2);
    }
    put(file, "XXX", 4);
}

static struct file make_file(char version, const struct weir__turn *turns, int count, const char *footer)
{
    struct file file = {0};

    if (version == '\0') {
        put_block(&file, version, 4, turns, count);
    } else {
        put_block(&file, version, 4, NULL, 0);
        put_block(&file, version, 8, turns, count);
        put(&file, footer, strlen(footer));
    }
    return file;
}

static int parse_rule(const char *rule, weir_zone **zone)
{
    char footer[256];
    struct file file;

    snprintf(footer, sizeof footer, "\n%s\n", rule);
    file = make_file('3', NULL, 0, footer);
    return weir__zone_parse(file.bytes, file.len, zone);
}

/* Parses a copy of exactly `len` bytes, so that a read beyond them is seen by the sanitizer. */
static int parse_copy(const unsigned char *bytes, size_t len, weir_zone **zone)
{
    unsigned char *copy = malloc(len ? len : 1);
    int error;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    error = weir__zone_parse(copy, len, zone);
    free(copy);
    return error;
}

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

/* ---- Against the C library ---- */

TEST(zones_agree_with_the_c_library)
{
    static const char *const names[] = {"Europe/Berlin",
                                        "America/New_York",
                                        "Australia/Lord_Howe",
                                        "Asia/Kolkata",
                                        "Pacific/Apia",
                                        "America/Sao_Paulo",
                                        "Asia/Beirut",
                                        "Africa/Casablanca",
                                        "America/Havana",
                                        "Antarctica/Troll",
                                        "UTC",
                                        "Asia/Kathmandu",
                                        "Europe/Dublin",
                                        "America/Nuuk",
                                        "Asia/Gaza",
                                        "Africa/Cairo",
                                        "America/St_Johns",
                                        "Pacific/Chatham"};

    for (size_t i = 0; i < COUNT(names); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(weir_zone_open(names[i], &zone), 0); /* needs tzdata */
        if (zone)
            check_against_libc(names[i], zone, i);
        weir_zone_close(zone);
    }
}

TEST(rules_agree_with_the_c_library)
{
    static const char *const rules[] = {"CET-1CEST,M3.5.0,M10.5.0/3",
                                        "EST5EDT,M3.2.0,M11.1.0",
                                        "AEST-10AEDT,M10.1.0,M4.1.0/3",
                                        "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
                                        "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1",
                                        "IST-1GMT0,M10.5.0,M3.5.0/1",
                                        "EET-2EEST,M3.4.4/50,M10.4.4/50",
                                        "XYZ3ABC,J60,J300/4:30:15",
                                        "XYZ3ABC,59,299/4:30",
                                        "<+0545>-5:45",
                                        "UTC0",
                                        "AAA-14:59:59BBB-15:30,M2.5.1/24,M9.4.6/0",
                                        "ABC+8DEF7:00,J59/-30,J61/100",
                                        "<+00>0<+02>-2,M3.5.0/1,M10.5.0/3"};

    for (size_t i = 0; i < COUNT(rules); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(parse_rule(rules[i], &zone), 0);
        if (zone)
            check_against_libc(rules[i], zone, i);
        weir_zone_close(zone);
    }
}

/* ---- The rule in the footer ---- */

TEST(rule_is_written_out_to_2200)
{
    weir_zone *zone = NULL;
    int64_t last = 0;

    CHECK_EQ(parse_rule("CET-1CEST,M3.5.0,M10.5.0/3", &zone), 0);
    if (zone && zone->count)
        last = zone->turn[zone->count - 1].at_s;
    CHECK_EQ(last, INT64_C(7283869200)); /* 2200-10-26 01:00 UTC */
    weir_zone_close(zone);
}

/* Summer time that ends when, or after, it starts again; and the same of winter time. */
TEST(one_time_all_year_round_is_one_offset)
{
    static const struct {
        const char *rule;
        int32_t offset_s;
    } cases[] = {
        {"EST5EDT,0/0,J365/25", -4 * 3600}, {"EST5EDT,0/0,J365/100", -4 * 3600}, {"EST5EDT,J365/25,0/2", -5 * 3600}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_zone *zone = NULL;
        CHECK_EQ(parse_rule(cases[i].rule, &zone), 0);
        CHECK(zone && zone->count <= 1);
        for (int64_t at = 0; zone && at < 200 * 365 * DAY; at += DAY / 2)
            CHECK_EQ(offset_at(zone, at), cases[i].offset_s);
        weir_zone_close(zone);
    }
}

TEST(rule_begins_after_the_last_turn)
{
    /* New York as if it had kept UTC-3 up to 1 July 2040. */
    struct weir__turn turns[] = {{0, -3 * 3600}, {INT64_C(2224713600), -4 * 3600}};
    struct file file = make_file('2', turns, 2, "\nEST5EDT,M3.2.0,M11.1.0\n");
    weir_zone *zone = NULL;

    CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
    if (zone) {
        CHECK_EQ(zone->count, 1 + 1 + 2 * (2200 - 2040));
        CHECK_EQ(offset_at(zone, turns[1].at_s - 1), -3 * 3600);
        CHECK_EQ(offset_at(zone, turns[1].at_s), -4 * 3600);
        CHECK_EQ(offset_at(zone, turns[1].at_s + 180 * DAY), -5 * 3600);
    }
    weir_zone_close(zone);
}

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

/* ---- The file's form ---- */

TEST(all_versions_are_read)
{
    struct weir__turn turns[] = {{-100, 60}, {1000, 3600}, {2000, 3600}, {3000, -3600}};
    static const char versions[] = {'\0', '2', '3', '4'};

    for (size_t i = 0; i < COUNT(versions); i++) {
        struct file file = make_file(versions[i], turns, 4, "\n\n");
        weir_zone *zone = NULL;
        CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
        if (!zone)
            continue;
        CHECK_EQ(zone->count, 2); /* the others change nothing */
        CHECK_EQ(offset_at(zone, 999), 60);
        CHECK_EQ(offset_at(zone, 1000), 3600);
        CHECK_EQ(offset_at(zone, 2999), 3600);
        CHECK_EQ(offset_at(zone, 3000), -3600);
        weir_zone_close(zone);
    }
}

TEST(turns_at_the_ends_of_time_are_cut_off)
{
    struct weir__turn turns[] = {{INT64_MIN, 1}, {-(INT64_C(1) << 59), 2}, {0, 3}, {INT64_MAX, 4}};
    struct file file = make_file('2', turns, 4, "\nEST5EDT,M3.2.0,M11.1.0\n");
    weir_zone *zone = NULL;

    CHECK_EQ(parse_copy(file.bytes, file.len, &zone), 0);
    if (zone) {
        CHECK_EQ(zone->offset_s, 2);
        CHECK_EQ(zone->count, 1);
        CHECK_EQ(offset_at(zone, 0), 3);
    }
    weir_zone_close(zone);
}

TEST(malformed_files_are_refused)
{
    struct weir__turn turns[] = {{1, 3600}, {2, 7200}};
    struct weir__turn falling[] = {{2, 3600}, {2, 7200}}, far_east[] = {{2, 26 * 3600}}, far_west[] = {{2, -26 * 3600}};
    static const struct {
        size_t at; /* in the first block of a file of version 1 */
        unsigned char byte;
    } edits[] = {{0, 'X'},  {4, '1'}, {4, '5'},  {4, '2'}, {20, 255}, {23, 1},   {27, 1}, {31, 1},
                 {32, 255}, {35, 3},  {36, 255}, {39, 0},  {39, 1},   {40, 255}, {43, 0}, {43, 5}};
    static const char *const footers[] = {"", "\n", "UTC0\n", "\nUTC0", "X\n\n"};
    struct file file;

    for (size_t i = 0; i < COUNT(edits); i++) {
        file = make_file('\0', turns, 2, "");
        file.bytes[edits[i].at] = edits[i].byte;
        check_refused(&file);
    }
    for (size_t i = 0; i < COUNT(footers); i++) {
        file = make_file('2', turns, 2, footers[i]);
        check_refused(&file);
    }
    for (size_t at = 23; at <= 27; at += 4) { /* one flag for two types; its byte would be there */
        file = make_file('\0', turns, 2, "");
        file.bytes[at] = 1;
        put(&file, "", 1);
        check_refused(&file);
    }
    file = make_file('\0', NULL, 0, "");
    file.bytes[39] = 0; /* no types */
    check_refused(&file);
    file = make_file('1', turns, 2, "\n\n");
    check_refused(&file);
    file = make_file('5', turns, 2, "\n\n");
    check_refused(&file);
    file = make_file('2', turns, 2, "\n\n");
    file.bytes[54 + 4] = '3'; /* the version once more, in the second header */
    check_refused(&file);
    file = make_file('2', turns, 2, "\nUTC00\n");
    file.bytes[file.len - 2] = '\0';
    check_refused(&file);
    file = make_file('\0', falling, 2, "");
    check_refused(&file);
    file = make_file('\0', far_east, 1, "");
    check_refused(&file);
    file = make_file('\0', far_west, 1, "");
    check_refused(&file);
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

/* Flips up to eight bits, many of them in the header or the footer, where there is most to break. */
static void flip_bits(unsigned char *bytes, size_t len, uint64_t *seed)
{
    for (uint64_t flips = 1 + test_random(seed) % 8; flips > 0; flips--) {
        uint64_t where = test_random(seed) % (flips % 2 ? len : 44);
        if (test_random(seed) % 3 == 0)
            where = len - 1 - where % 44;
        bytes[where] ^= (unsigned char)(1 << test_random(seed) % 8);
    }
}

/* Returns whether the bytes were taken. */
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
        now = zone->turn[now % zone->count].at_s % (INT64_C(1) << 40) * 1000000;
    weir__calendar_window(zone, (enum weir_calendar)(test_random(seed) % 4), now, &start, &end);
    CHECK(start <= now && now < end);
    weir_zone_close(zone);
    return true;
}

TEST(mutations_are_refused_or_sound)
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
        /* Both must have happened, or the mutations were too wild or too tame to say anything. */
        CHECK(taken > 500 && taken < 9500);
    }
}

/* ---- The database ---- */

TEST(names_outside_the_database_are_refused)
{
    char longer[257];
    const char *names[] = {NULL,     "",        "/Europe/Berlin",  "../zoneinfo/Europe/Berlin",
                           "..",     ".",       "Europe/../UTC",   "Europe/Berlin/x",
                           "Europe", "Europe/", "Europe/Atlantis", "zone.tab",
                           longer};

    /* Would be found, were it not too long. */
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

TEST(utc_needs_no_database)
{
    weir_zone *zone = NULL;

    setenv("TZDIR", "/nonexistent", 1);
    CHECK_EQ(weir_zone_open("UTC", &zone), 0);
    CHECK(zone && zone->count == 0 && zone->offset_s == 0);
    weir_zone_close(zone);
    zone = NULL;
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), WEIR_EZONE);
    setenv("TZDIR", "", 1); /* as good as none */
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), 0);
    weir_zone_close(zone);
    unsetenv("TZDIR");
}

TEST(files_are_closed_again)
{
    int before = dup(0), after;
    weir_zone *zone = NULL;

    close(before);
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), 0);
    weir_zone_close(zone);
    CHECK_EQ(weir_zone_open("Europe", &zone), WEIR_EZONE);
    CHECK_EQ(weir_zone_open("zone.tab", &zone), WEIR_EZONE);
    after = dup(0);
    close(after);
    CHECK_EQ(after, before);
}

/* ---- Faults: a second copy of zone.c, with a malloc and a read that fail on demand ---- */

static int malloc_fails_at, read_fails_with; /* 0: never; the read fails every other time */
static bool read_fails_next, read_ends;

static void *faulty_malloc(size_t size)
{
    return malloc_fails_at && --malloc_fails_at == 0 ? NULL : malloc(size);
}

static ssize_t faulty_read(int fd, void *bytes, size_t len)
{
    read_fails_next = !read_fails_next;
    if (read_fails_with && read_fails_next) {
        errno = read_fails_with;
        return -1;
    }
    return read_ends ? 0 : read(fd, bytes, len < 100 ? len : 100); /* in small bits, as a system may */
}

int faulty_zone_open(const char *name, weir_zone **zone);
void faulty_zone_close(weir_zone *zone);
int faulty_zone_parse(const unsigned char *bytes, size_t len, weir_zone **zone);
#define weir_zone_open   faulty_zone_open
#define weir_zone_close  faulty_zone_close
#define weir__zone_parse faulty_zone_parse
#define malloc           faulty_malloc
#define read             faulty_read
#include "../../../src/engine/zone.c"
#undef read
#undef malloc
#undef weir__zone_parse
#undef weir_zone_close
#undef weir_zone_open

TEST(interrupted_and_short_reads_go_on)
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
    read_ends = true; /* the file was cut after its length had been asked for */
    CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), WEIR_EZONE);
    read_ends = false;
    for (int nth = 1; nth <= 2; nth++) {
        malloc_fails_at = nth;
        CHECK_EQ(faulty_zone_open("Europe/Berlin", &zone), WEIR_ENOMEM);
        CHECK_EQ(malloc_fails_at, 0);
    }
    malloc_fails_at = 1;
    CHECK_EQ(faulty_zone_open("UTC", &zone), WEIR_ENOMEM);
    malloc_fails_at = 0;
    CHECK_EQ(faulty_zone_open("Atlantis", &zone), WEIR_EZONE);
    CHECK(zone == &mark);
}

TEST(only_regular_files_up_to_a_mebibyte)
{
    struct weir__turn turn = {7, 42};
    struct file made = make_file('2', &turn, 1, "\n\n");
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
    struct weir__turn turn = {7, 42};
    struct file made = make_file('2', &turn, 1, "\n\n");
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
