/* The ring of recent denials: entries, repetitions, full rings, torn and damaged rows, concurrent and killed writers.
 */
#include "../../test.h"

#include "base/atomic.h"
#include "table/denial_ring.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOW UINT64_C(1700000000000)

enum { BYTES = 64 << 10 };

static struct weir__denial_ring made(void)
{
    struct weir__denial_ring ring;
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(weir__row_file_format(memory, BYTES, &weir__denial_format), 0);
    CHECK(weir__denial_attach(memory, BYTES, &ring));
    CHECK_EQ(ring.rows, (BYTES - sizeof(struct weir__denial_header)) / sizeof(struct weir__denial_row));
    return ring;
}

static void unmap(struct weir__denial_ring *ring)
{
    munmap(ring->header, BYTES);
}

/* An entry whose fields all follow from its identity. */
static struct weir__denial entry_of(uint64_t identity, uint64_t ms)
{
    char key[64];
    struct weir__denial entry = {.identity = identity, .first_ms = ms, .limit = (int64_t)identity, .cost = 1};
    int len = snprintf(key, sizeof key, "key-%" PRIu64, identity);
    weir__denial_put(&entry, WEIR__DENIAL_RULE, "rule", 4, 95);
    weir__denial_put(&entry, WEIR__DENIAL_KEY, key, (size_t)len, 128);
    weir__denial_put(&entry, WEIR__DENIAL_PATH, "/a/long/path/of/many/parts/so/that/it/has/several/length", 55, 128);
    return entry;
}

/* Identities in different buckets of the index. */
static uint64_t identity_of(uint64_t number)
{
    return (number + 1) << 33 | (number + 1);
}

/* Records a denial as the engine does. */
static void deny(const struct weir__denial_ring *ring, uint64_t identity, uint64_t ms)
{
    struct weir__denied_request request = {identity + 1, ms};
    if (weir__denial_repeat(ring, identity, ms, &request))
        return;
    struct weir__denial entry = entry_of(identity, ms);
    entry.recent[0] = request;
    weir__denial_add(ring, &entry);
}

static bool is_sound(const struct weir__denial *entry)
{
    struct weir__denial wanted = entry_of(entry->identity, entry->first_ms);
    return entry->limit == wanted.limit && memcmp(entry->len, wanted.len, sizeof wanted.len) == 0 &&
           memcmp(entry->text, wanted.text, sizeof wanted.text) == 0;
}

/* The newest entry of an identity. False: none. */
static bool find(const struct weir__denial_ring *ring, uint64_t identity, struct weir__denial *found)
{
    bool any = false;
    struct weir__denial entry;
    for (uint32_t i = 0; i < ring->rows; i++)
        if (weir__denial_read(ring, i, &entry) && entry.identity == identity &&
            (!any || entry.ticket > found->ticket)) {
            *found = entry;
            any = true;
        }
    return any;
}

static size_t count_entries(const struct weir__denial_ring *ring)
{
    struct weir__denial entry;
    size_t count = 0;
    for (uint32_t i = 0; i < ring->rows; i++) {
        bool read = weir__denial_read(ring, i, &entry);
        CHECK(!read || is_sound(&entry));
        count += read;
    }
    return count;
}

static bool text_is(const struct weir__denial *entry, enum weir__denial_text which, const char *wanted)
{
    weir_text text = weir__denial_text(entry, which);
    return text.len == strlen(wanted) && memcmp(text.data, wanted, text.len) == 0;
}

TEST(entries_are_read_back)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry = entry_of(77, NOW), read;
    struct weir__denial_other other = {.capacity = 10, .remaining = 3, .verdict = WEIR_DENY, .shadow = 1};
    CHECK_EQ(count_entries(&ring), 0);
    weir__denial_put_other(&entry, &other, "first", 5);
    weir__denial_put_other(&entry, &other, "", 0);
    weir__denial_add(&ring, &entry);
    CHECK(find(&ring, 77, &read));
    CHECK_EQ(read.ticket, 1);
    CHECK_EQ(read.count, 1);
    CHECK_EQ(read.last_ms, NOW);
    CHECK(text_is(&read, WEIR__DENIAL_RULE, "rule") && text_is(&read, WEIR__DENIAL_KEY, "key-77"));
    CHECK(text_is(&read, WEIR__DENIAL_TIER, ""));
    size_t at = 0;
    weir_text name;
    CHECK(weir__denial_next_other(&read, &at, &other, &name) && name.len == 5 && memcmp(name.data, "first", 5) == 0);
    CHECK(other.remaining == 3 && other.capacity == 10 && other.shadow && other.verdict == WEIR_DENY);
    CHECK(weir__denial_next_other(&read, &at, &other, &name) && name.len == 0);
    CHECK(!weir__denial_next_other(&read, &at, &other, &name));
    unmap(&ring);
}

TEST(texts_are_cut_and_others_left_out)
{
    char text[WEIR__DENIAL_TEXT + 10];
    struct weir__denial entry = {.identity = 1, .first_ms = NOW};
    struct weir__denial_other other = {.capacity = 1};
    memset(text, 0xff, sizeof text);
    CHECK_EQ(weir__denial_put(&entry, WEIR__DENIAL_KEY, text, sizeof text, 20), 20);
    CHECK_EQ(weir__denial_put(&entry, WEIR__DENIAL_PATH, text, sizeof text, sizeof text), WEIR__DENIAL_TEXT - 20);
    weir__denial_put_other(&entry, &other, text, 5);
    CHECK_EQ(entry.len[WEIR__DENIAL_OTHERS], 0);
    struct weir__denial_ring ring = made();
    weir__denial_add(&ring, &entry);
    CHECK(find(&ring, 1, &entry) && weir__denial_text(&entry, WEIR__DENIAL_PATH).len == WEIR__DENIAL_TEXT - 20);
    unmap(&ring);
}

TEST(repetitions_are_one_entry)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry;
    for (uint64_t i = 0; i < 20; i++)
        deny(&ring, 5, NOW + i * 1000);
    CHECK_EQ(count_entries(&ring), 1);
    CHECK(find(&ring, 5, &entry));
    CHECK_EQ(entry.count, 20);
    CHECK_EQ(entry.first_ms, NOW);
    CHECK_EQ(entry.last_ms, NOW + 19000);
    for (uint64_t i = 12; i < 20; i++)
        CHECK_EQ(entry.recent[i % WEIR__DENIAL_RECENT].id, NOW + i * 1000);
    deny(&ring, 5, NOW + 19000 - 500); /* another processor's clock */
    CHECK_EQ(count_entries(&ring), 1);
    deny(&ring, 5, NOW + 19000 + 2 * WEIR__DENIAL_GAP_MS);
    CHECK_EQ(count_entries(&ring), 2);
    CHECK(find(&ring, 5, &entry) && entry.count == 1);
    unmap(&ring);
}

TEST(an_entry_covers_a_bounded_time)
{
    struct weir__denial_ring ring = made();
    uint64_t step = WEIR__DENIAL_GAP_MS / 2;
    for (uint64_t i = 0; i < 2 * WEIR__DENIAL_SPAN_MS; i += step)
        deny(&ring, 5, NOW + i);
    CHECK_EQ(count_entries(&ring), 2);
    deny(&ring, 5, NOW - 86400000); /* the clock was set back */
    CHECK_EQ(count_entries(&ring), 3);
    unmap(&ring);
}

TEST(a_full_ring_forgets_the_oldest)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry;
    uint64_t rows = ring.rows - ring.rows / 4, all = rows + 10; /* the others are for warnings */
    for (uint64_t i = 1; i <= all; i++)
        deny(&ring, i << 32 | i, NOW + i);
    CHECK_EQ(count_entries(&ring), rows);
    for (uint64_t i = 1; i <= all; i++)
        CHECK_EQ(find(&ring, i << 32 | i, &entry), i > 10);
    unmap(&ring);
}

TEST(a_flood_does_not_replace_other_entries)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry;
    for (uint64_t i = 1; i <= 30; i++)
        deny(&ring, i << 40 | i, NOW);
    for (uint64_t i = 0; i < 100000; i++)
        deny(&ring, UINT64_C(99) << 40 | 99, NOW + i % 1000);
    /* More than a bucket of the index holds: the others are not recorded while these are denied. */
    for (uint64_t i = 0; i < 100000; i++)
        deny(&ring, (200 + i % (WEIR__DENIAL_WAYS + 2)) << 40, NOW + i % 1000);
    CHECK_EQ(count_entries(&ring), 31 + WEIR__DENIAL_WAYS);
    CHECK(find(&ring, UINT64_C(99) << 40 | 99, &entry) && entry.count == 100000);
    CHECK(!find(&ring, (UINT64_C(200) + WEIR__DENIAL_WAYS) << 40, &entry));
    deny(&ring, (UINT64_C(200) + WEIR__DENIAL_WAYS) << 40, NOW + 3000);
    CHECK(find(&ring, (UINT64_C(200) + WEIR__DENIAL_WAYS) << 40, &entry));
    unmap(&ring);
}

/* A writer that is killed after each number of length: the row is skipped, and gets a new entry in its turn. */
TEST(half_written_entries_are_skipped)
{
    enum { ROW_LENGTH = sizeof(struct weir__denial_row) / 8 };
    for (size_t length = 1; length < ROW_LENGTH; length++) {
        struct weir__denial_ring ring = made(), other = made();
        struct weir__denial entry;
        deny(&ring, 1000, NOW);
        deny(&other, 2000, NOW + 5);
        struct weir__denial_row *to = &ring.row[1], *from = &other.row[1];
        to->word[0] = 0;
        for (size_t i = 1; i < 1 + length && i < ROW_LENGTH; i++)
            to->word[i] = from->word[i];
        CHECK(!find(&ring, 1000, &entry) && !find(&ring, 2000, &entry));
        deny(&ring, 1000, NOW + 10);
        CHECK(find(&ring, 1000, &entry) && entry.count == 1);
        /* Two writers in one row: the identity of one, the rest of both. */
        to->word[0] = 2000;
        struct weir__denial read;
        CHECK(!weir__denial_read(&ring, 1, &read) || length >= ROW_LENGTH - 1 || is_sound(&read));
        unmap(&ring);
        unmap(&other);
    }
}

TEST(damaged_files_are_refused_or_skipped)
{
    struct weir__denial_ring ring = made(), again;
    struct weir__denial entry;
    uint64_t random = 1;
    for (int round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 5; i++)
            deny(&ring, (i + 1) << 33, NOW);
        for (size_t i = sizeof(struct weir__row_header) / 8; i < BYTES / 8; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            if (random >> 60 == 0)
                ((uint64_t *)(void *)ring.header)[i] = random;
        }
        for (uint32_t i = 0; i < ring.rows; i++)
            if (weir__denial_read(&ring, i, &entry)) {
                struct weir__denial_other other;
                weir_text name;
                for (size_t at = 0; weir__denial_next_other(&entry, &at, &other, &name);)
                    CHECK(name.data + name.len <= entry.text + sizeof entry.text);
            }
    }
    ring.header->file.rows = 1u << 30;
    CHECK(!weir__denial_attach(ring.header, BYTES, &again));
    ring.header->file.rows = ring.rows;
    CHECK(weir__denial_attach(ring.header, BYTES, &again));
    CHECK(!weir__denial_attach(ring.header, BYTES / 2, &again));
    CHECK_EQ(weir__row_file_format(ring.header, sizeof(struct weir__denial_header), &weir__denial_format), WEIR_ESIZE);
    unmap(&ring);
}

TEST(lengths_beyond_the_text_are_refused)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry = entry_of(3, NOW);
    entry.len[WEIR__DENIAL_OTHERS] = UINT16_MAX;
    weir__denial_add(&ring, &entry);
    CHECK_EQ(find(&ring, 3, &entry), false);
    entry = entry_of(4, NOW);
    struct weir__denial_other other = {.name_len = 200};
    weir_text name;
    size_t at = 0;
    memcpy(entry.text + WEIR__DENIAL_TEXT - 20, &other, WEIR__DENIAL_OTHER_BYTES);
    memset(entry.len, 0, sizeof entry.len);
    entry.len[WEIR__DENIAL_PATH] = WEIR__DENIAL_TEXT - 20;
    entry.len[WEIR__DENIAL_OTHERS] = 20;
    weir__denial_add(&ring, &entry);
    CHECK(find(&ring, 4, &entry));
    CHECK(!weir__denial_next_other(&entry, &at, &other, &name));
    unmap(&ring);
}

/* ---- Concurrency ---- */

enum { THREADS = 4, PER_THREAD = 40000, IDENTITIES = 300 };

static void *write_many(void *context)
{
    static uint64_t seed;
    uint64_t random = weir__fetch_add64(&seed, 1) + 1;
    for (uint64_t i = 0; i < PER_THREAD; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t which = random >> 33;
        deny(context, identity_of(which % 4 ? which % 8 : which % IDENTITIES), NOW + i / 100);
    }
    return NULL;
}

TEST(concurrent_writers_leave_sound_entries)
{
    struct weir__denial_ring ring = made();
    pthread_t threads[THREADS];
    struct weir__denial entry;
    uint64_t total = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, write_many, &ring), 0);
    for (int i = 0; i < 200; i++)
        (void)count_entries(&ring);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(count_entries(&ring) >= ring.rows - ring.rows / 4 - THREADS);
    for (uint32_t i = 0; i < ring.rows; i++)
        total += weir__denial_read(&ring, i, &entry) ? entry.count : 0;
    CHECK(total > 0 && total <= (uint64_t)THREADS * PER_THREAD + THREADS);
    unmap(&ring);
}

TEST(killed_writers_leave_sound_entries)
{
    struct weir__denial_ring ring = made();
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0)
            for (uint64_t i = 0;; i++)
                deny(&ring, identity_of(i % 1000), NOW + i);
        usleep(500 + 100 * (unsigned)round);
        CHECK_EQ(kill(child, SIGKILL), 0);
        CHECK_EQ(waitpid(child, NULL, 0), child);
        (void)count_entries(&ring);
    }
    struct weir__denial entry;
    deny(&ring, UINT64_C(7777) << 33, NOW * 2);
    CHECK(find(&ring, UINT64_C(7777) << 33, &entry));
    unmap(&ring);
}

static void warn(const struct weir__denial_ring *ring, uint64_t identity, uint64_t ms)
{
    struct weir__denial entry = entry_of(identity, ms);
    entry.flags = WEIR__DENIAL_WARNING;
    weir__denial_add(ring, &entry);
}

TEST(warnings_do_not_replace_other_entries)
{
    struct weir__denial_ring ring = made();
    struct weir__denial entry;
    deny(&ring, identity_of(1), NOW);
    for (uint64_t i = 0; i < 10 * (uint64_t)ring.rows; i++)
        warn(&ring, identity_of(1000 + i), NOW + i);
    CHECK(find(&ring, identity_of(1), &entry));
    warn(&ring, identity_of(2), NOW);
    for (uint64_t i = 0; i < 10 * (uint64_t)ring.rows; i++)
        deny(&ring, identity_of(1000000 + i), NOW + i * 1000);
    CHECK(find(&ring, identity_of(2), &entry) && entry.flags == WEIR__DENIAL_WARNING);
    CHECK(!find(&ring, identity_of(1), &entry));
    unmap(&ring);
}

TEST(a_reader_of_warnings_gets_each_once_and_knows_what_it_missed)
{
    struct weir__denial_ring ring = made();
    struct weir__warning_cursor cursor = {0};
    struct weir__denial entry;
    uint32_t rows = ring.rows / 4;
    warn(&ring, identity_of(1), NOW); /* before the reader began */
    weir__warning_resume(&ring, &ring.header->to_log, &cursor);
    CHECK(!weir__warning_next(&ring, &cursor, &entry));
    for (uint64_t i = 0; i < 5; i++)
        warn(&ring, identity_of(10 + i), NOW);
    for (uint64_t i = 0; i < 5; i++)
        CHECK(weir__warning_next(&ring, &cursor, &entry) && entry.identity == identity_of(10 + i));
    CHECK(!weir__warning_next(&ring, &cursor, &entry) && !cursor.missed);
    for (uint64_t i = 0; i < 3 * (uint64_t)rows; i++)
        warn(&ring, identity_of(100 + i), NOW);
    for (uint64_t i = 2 * (uint64_t)rows; i < 3 * (uint64_t)rows; i++)
        CHECK(weir__warning_next(&ring, &cursor, &entry) && entry.identity == identity_of(100 + i));
    CHECK(!weir__warning_next(&ring, &cursor, &entry) && cursor.missed == 2 * rows);
    /* A writer that was killed: the reader waits for a while, then skips its row. */
    weir__fetch_add64(&ring.header->warnings, 1);
    warn(&ring, identity_of(50000), NOW);
    int calls = 1;
    while (!weir__warning_next(&ring, &cursor, &entry) && calls < 100)
        calls++;
    CHECK(calls > 1 && calls < 10 && entry.identity == identity_of(50000) && cursor.missed == 2 * rows + 1);
    /* A hostile or damaged header. */
    weir__store64(&ring.header->warnings, 0);
    CHECK(!weir__warning_next(&ring, &cursor, &entry));
    weir__store64(&ring.header->warnings, UINT64_MAX);
    for (int i = 0; i < 100; i++)
        (void)weir__warning_next(&ring, &cursor, &entry);
    unmap(&ring);
}

TEST_MAIN
