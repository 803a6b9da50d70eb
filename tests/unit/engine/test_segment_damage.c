/* The file is not a segment, incomplete, of another version, or full of random bits. */
#include "engine/segment.h"
#include "table/hash.h"

#include "../../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE      (256 << 10)
#define NOW       ((weir_time){WEIR_DAY * 20000, WEIR_DAY * 20000})
#define UNTOUCHED ((weir_segment *)(uintptr_t)0x5a5a)
#define REBUILD   (WEIR_OPEN_CREATE | WEIR_OPEN_REBUILD)

static char directory[256], path[300];

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
    CHECK_EQ(rmdir(directory), 0); /* fails if another file was left there */
}

static int open_with(int flags, weir_segment **segment)
{
    weir_segment_options options = {.path = path, .size = SIZE, .flags = flags};
    return weir_segment_open(&options, segment);
}

/* Checks that attaching, read-only and read-write, fails with this error. */
static void check_refused(int error)
{
    const int flags[] = {0, WEIR_OPEN_CREATE, WEIR_OPEN_READONLY};
    for (int i = 0; i < 3; i++) {
        weir_segment *segment = UNTOUCHED;
        CHECK_EQ(open_with(flags[i], &segment), error);
        CHECK(segment == UNTOUCHED);
        if (segment != UNTOUCHED)
            weir_segment_close(segment);
    }
}

static bool take(weir_segment *segment, int64_t cost)
{
    weir_limit limit;
    weir_decision d = {.verdict = WEIR_DENY};
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 10, .window_ns = WEIR_DAY}), 0);
    CHECK_EQ(weir_take(segment, &limit, "k", 1, cost, NOW, &d), 0);
    return weir_passes(&d);
}

/* A valid segment in which the key has used up its limit. */
static void make_used(void)
{
    weir_segment *segment;
    unlink(path);
    CHECK_EQ(open_with(WEIR_OPEN_CREATE, &segment), 0);
    CHECK(take(segment, 10));
    weir_segment_close(segment);
}

/* Opens with REBUILD; true if it is empty now. */
static bool is_rebuilt(void)
{
    weir_segment *segment = NULL;
    CHECK_EQ(open_with(REBUILD, &segment), 0);
    if (!segment)
        return false;
    bool empty = take(segment, 10);
    weir_segment_close(segment);
    return empty;
}

static void flip_bit(long bit)
{
    unsigned char byte;
    int file = open(path, O_RDWR);
    CHECK_EQ(pread(file, &byte, 1, bit / 8), 1);
    byte ^= (unsigned char)(1 << bit % 8);
    CHECK_EQ(pwrite(file, &byte, 1, bit / 8), 1);
    close(file);
}

/* ---- Not a segment ---- */

static void write_file(const char *text, size_t repeat)
{
    FILE *file = fopen(path, "w");
    CHECK(file);
    for (size_t i = 0; file && i < repeat; i++)
        fputs(text, file);
    if (file)
        fclose(file);
}

TEST(not_a_segment)
{
    weir_segment *segment = UNTOUCHED;
    struct stat before, after;
    directory_make();
    const struct {
        const char *text;
        size_t repeat;
    } files[] = {{"", 0}, {"x", 1}, {"hello, world\n", 1}, {"some text\n", 20000}, {"\x01\x02", SIZE / 2}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(files[i].text, files[i].repeat);
        CHECK_EQ(stat(path, &before), 0);
        check_refused(WEIR_ENOTSEG);
        /* Not even to rebuild: it may be any file of the user. */
        CHECK_EQ(open_with(REBUILD, &segment), WEIR_ENOTSEG);
        CHECK_EQ(stat(path, &after), 0);
        CHECK(before.st_ino == after.st_ino && before.st_size == after.st_size);
        unlink(path);
    }
    CHECK_EQ(mkdir(path, 0700), 0);
    check_refused(WEIR_ENOTSEG);
    CHECK_EQ(open_with(REBUILD, &segment), WEIR_ENOTSEG);
    CHECK_EQ(rmdir(path), 0);
    CHECK_EQ(mkfifo(path, 0600), 0);
    alarm(10); /* a hang would be fatal */
    check_refused(WEIR_ENOTSEG);
    CHECK_EQ(open_with(REBUILD, &segment), WEIR_ENOTSEG);
    alarm(0);
    unlink(path);
    CHECK_EQ(symlink("/dev/null", path), 0);
    check_refused(WEIR_ENOTSEG);
    CHECK_EQ(open_with(REBUILD, &segment), WEIR_ENOTSEG);
    CHECK(segment == UNTOUCHED);
    directory_remove();
}

/* ---- Incomplete ---- */

TEST(truncated)
{
    uint64_t seed = 1;
    directory_make();
    make_used();
    /* A file can only be cut ever shorter, so from the end to the start, in steps that become finer. */
    for (long length = SIZE - 1; length >= 0;) {
        CHECK_EQ(truncate(path, length), 0);
        check_refused(length < 12 ? WEIR_ENOTSEG : WEIR_ETRUNCATED);
        length -= length > 70000   ? 1 + (long)(test_random(&seed) % 2000)
                  : length > 65530 ? 1
                  : length > 1000  ? 1 + (long)(test_random(&seed) % 500)
                                   : 1;
    }
    const long kept[] = {12, 13, 100, 4095, 4096, 65535, 65536, SIZE - 1};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        make_used();
        CHECK_EQ(truncate(path, kept[i]), 0);
        CHECK(is_rebuilt());
    }
    directory_remove();
}

TEST(file_longer_than_its_header)
{
    weir_segment *segment;
    directory_make();
    make_used();
    CHECK_EQ(truncate(path, SIZE + 10000), 0);
    CHECK_EQ(open_with(0, &segment), 0);
    CHECK(!take(segment, 1));
    weir_segment_close(segment);
    directory_remove();
}

/* ---- Damaged, or of another version ---- */

TEST(every_bit_of_the_header)
{
    weir_segment *segment = NULL;
    directory_make();
    make_used();
    const long end = (long)(offsetof(struct weir__header, check) + sizeof(uint64_t)) * 8;
    const long layout = (long)offsetof(struct weir__header, layout) * 8;
    CHECK_EQ(offsetof(struct weir__header, magic), 0);

    for (long bit = 0; bit < end; bit++) {
        flip_bit(bit);
        check_refused(bit < 64 ? WEIR_ENOTSEG : bit >= layout && bit < layout + 32 ? WEIR_EVERSION : WEIR_EDAMAGED);
        flip_bit(bit);
    }
    CHECK_EQ(open_with(0, &segment), 0);
    CHECK(segment && !take(segment, 1)); /* nothing was changed by all this */
    weir_segment_close(segment);
    directory_remove();
}

/* Overwrites one word of the header and corrects the checksum, as an attacker would. */
static void forge(size_t offset, uint64_t value)
{
    unsigned char header[sizeof(struct weir__header)];
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    int file = open(path, O_RDWR);
    CHECK_EQ(pread(file, header, sizeof header, 0), sizeof header);
    memcpy(header + offset, &value, sizeof value);
    for (size_t i = 0; i < offsetof(struct weir__header, check); i++)
        sum = (sum ^ header[i]) * UINT64_C(0x100000001b3);
    memcpy(header + offsetof(struct weir__header, check), &sum, sizeof sum);
    CHECK_EQ(pwrite(file, header, sizeof header, 0), sizeof header);
    close(file);
}

TEST(forged_sizes)
{
    directory_make();
    const uint64_t values[] = {0, 1, 63, 65535, SIZE - 100, SIZE * 2, UINT64_C(1) << 40, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t at = offsetof(struct weir__header, bytes); at < offsetof(struct weir__header, made_wall_ns); at += 8) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            make_used();
            forge(at, values[i]);
            bool longer = at == offsetof(struct weir__header, bytes) && values[i] > SIZE;
            check_refused(longer ? WEIR_ETRUNCATED : WEIR_EDAMAGED);
        }
    }
    directory_remove();
}

TEST(another_version)
{
    weir_segment *segment;
    directory_make();
    for (uint32_t other = 0; other < 5; other++) {
        uint64_t word;
        if (other == WEIR__LAYOUT)
            continue;
        make_used();
        word = (uint64_t)sizeof(struct weir__header) << 32 | other;
        forge(offsetof(struct weir__header, layout), word); /* valid in itself */
        check_refused(WEIR_EVERSION);
        CHECK_EQ(open_with(WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE | WEIR_OPEN_REBUILD, &segment), WEIR_EEXIST);
        check_refused(WEIR_EVERSION);
        CHECK(is_rebuilt());
    }
    directory_remove();
}

TEST(rebuild_replaces_the_broken_only)
{
    weir_segment *old, *segment;
    struct stat before, after;
    directory_make();
    make_used();
    CHECK(!is_rebuilt());

    make_used();
    CHECK_EQ(open_with(0, &old), 0);
    CHECK_EQ(stat(path, &before), 0);
    flip_bit(8 * (long)offsetof(struct weir__header, secret));
    check_refused(WEIR_EDAMAGED);
    CHECK(is_rebuilt());
    CHECK_EQ(stat(path, &after), 0);
    CHECK(before.st_ino != after.st_ino);
    /* Processes that have the old one mapped continue with it. */
    weir_stats stats;
    CHECK_EQ(weir_stats_read(old, &stats), 0);
    CHECK_EQ(stats.allowed, 1);
    weir_segment_close(old);
    CHECK_EQ(open_with(REBUILD, &segment), 0);
    CHECK(!take(segment, 1));
    weir_segment_close(segment);
    directory_remove();
}

/* ---- Random bits in every slot ---- */

enum { KINDS = 12, KEYS = 64 };

static void make_limits(weir_limit limit[KINDS])
{
    const weir_params kinds[KINDS] = {
        {.limit = 10, .window_ns = WEIR_SECOND},
        {.limit = 7, .window_ns = 3 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = WEIR_SECOND, .delay = true},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .window_ns = WEIR_SECOND},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .align = WEIR_ALIGN_CALENDAR, .calendar = WEIR_CALENDAR_MONTH},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 9, .window_ns = WEIR_SECOND, .align = WEIR_ALIGN_FIRST_REQUEST},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 300, .window_ns = WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40000, .window_ns = WEIR_SECOND}, /* in two slots */
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40000, .window_ns = 400 * WEIR_DAY},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 400 * WEIR_DAY, .buckets = 60},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 30, .window_ns = 400 * WEIR_DAY, .count_rejected = true},
    };
    for (int i = 0; i < KINDS; i++) {
        weir_params p = kinds[i];
        p.id = (uint64_t)i;
        CHECK_EQ(weir_limit_init(&limit[i], &p), 0);
    }
}

/* Random bits everywhere; and in the slots of the test's keys, with their tags, since random tags are never theirs. */
static bool lost_geometry; /* where entries are is not known: takes are refused */

static void scatter(struct weir__table *table, const weir_limit *limits, uint64_t *seed, bool all)
{
    uint64_t *word = (uint64_t *)(void *)((char *)table->header + offsetof(struct weir__header, blocked_until_us));
    const uint64_t *end = (const uint64_t *)(const void *)((const char *)table->header + table->bytes);
    for (; all && word < end; word++)
        *word = test_random(seed);
    lost_geometry = all && test_random(seed) % 2;
    if (!lost_geometry)
        table->header->geometry = 0;
    if (!all) /* random leases block the slab for years; without them its records are used, too */
        memset(table->lease, 0, table->chunks * sizeof table->lease[0]);
    for (int i = 0; i < KINDS * KEYS; i++) {
        uint32_t key = (uint32_t)(i / KINDS);
        struct weir__key_location w;
        weir__key_locate(table, &limits[i % KINDS], &key, sizeof key, &w);
        uint64_t bits = test_random(seed);
        weir__cell *slot = &table->bucket[bits & 1 ? w.primary : w.alternate].slot[bits >> 1 & 3];
        slot->lo = (w.tag ^ (bits >> 3 & 1)) << 30 | test_random(seed) >> 34;
        slot->hi = test_random(seed);
        /* Near the current time as well, not only anywhere in four years. */
        if (bits >> 4 & 1)
            slot->hi = ((uint64_t)(NOW.mono_ns / 1000) - bits % 3000000) << 17 | (slot->hi & 0x1ffff);
    }
    for (uint64_t i = 0; i < table->chunks * WEIR__CHUNK && !all; i += 1 + test_random(seed) % 500)
        table->chunk[i] ^= (uint8_t)(1U << (test_random(seed) & 7)); /* records with the right owner, damaged */
}

static int visit(void *context, const weir_entry *entry)
{
    CHECK(entry->slot >= 0 && entry->slot < WEIR__BUCKET_SLOTS && entry->tag != 0);
    ++*(uint64_t *)context;
    return 0;
}

static void check_result(int error, const weir_decision *d)
{
    CHECK(error == 0 || error == WEIR_EFULL || (error == WEIR_EDAMAGED && lost_geometry));
    CHECK(error || (d->verdict >= WEIR_ALLOW && d->verdict <= WEIR_BLOCKED && d->delay_ns >= 0 &&
                    d->retry_after_ns >= -1 && d->reset_after_ns >= 0));
}

static void use(weir_segment *segment, const weir_limit *limits, uint64_t *seed, int64_t rounds, weir_time now)
{
    for (int64_t i = 0; i < rounds; i++) {
        uint64_t bits = test_random(seed);
        uint32_t key = (uint32_t)(bits % KEYS);
        const weir_limit *limit = &limits[(bits >> 8) % KINDS];
        int64_t cost = (int64_t)(bits >> 16 & 15) - 1;
        weir_decision d = {.verdict = WEIR_ALLOW};
        now.mono_ns += (int64_t)(bits >> 32 & 0xfffff);
        now.wall_ns = now.mono_ns;
        switch (bits >> 24 & 15) {
        case 0:
            check_result(weir_reset(segment, limit, &key, sizeof key, now), &d);
            break;
        case 1:
            check_result(weir_block(segment, limit, &key, sizeof key, cost < 0 ? 0 : cost * 1000000, now), &d);
            break;
        case 2:
            check_result(weir_charge(segment, limit, &key, sizeof key, cost < 0 ? 4294967295 : cost, now, &d), &d);
            break;
        case 3:
        case 4:
        case 5:
            check_result(weir_peek(segment, limit, &key, sizeof key, cost, now, &d), &d);
            break;
        default:
            check_result(weir_take(segment, limit, &key, sizeof key, cost, now, &d), &d);
        }
    }
}

TEST(random_bits_in_every_slot)
{
    weir_segment *segment;
    weir_limit limits[KINDS];
    struct weir__table table;
    uint64_t seed = 2, seen = 0, entries = 0;
    weir_report report;

    directory_make();
    make_limits(limits);
    CHECK_EQ(open_with(WEIR_OPEN_CREATE, &segment), 0);
    int file = open(path, O_RDWR);
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(weir__segment_attach(memory, SIZE, &table), 0);
    for (int64_t round = 0, rounds = test_scaled(100, 4); round < rounds; round++) {
        scatter(&table, limits, &seed, round % 4 == 0);
        int error = weir_segment_validate(segment, NOW, &report);
        CHECK(error == 0 || error == WEIR_EDAMAGED);
        seen += error == WEIR_EDAMAGED;
        use(segment, limits, &seed, round % 4 ? 14000 : 2000, NOW);
        CHECK_EQ(weir_segment_each(segment, NOW, visit, &entries), 0);
    }
    CHECK(seen > 0 && entries > 0);
    munmap(memory, SIZE);
    close(file);
    weir_segment_close(segment);
    directory_remove();
}

TEST_MAIN
