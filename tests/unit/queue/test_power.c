/*
 * Simulated power failures: this program replaces fdatasync and fsync, which SQLite calls, and copies a file to what a
 * disk certainly has. After a power failure there is that copy, or for any block of 512 bytes what was written since.
 * The clock is simulated.
 */
#include "queues.h"

#include <errno.h>

#define BLOCK   512
#define TICKETS 4000

static const struct weir__queue_bounds unbounded;
static int syncs;       /* of the log */
static bool sync_fails; /* the disk accepts no more writes */

/* ---- The disk ---- */

static char *read_all(const char *path, size_t *len)
{
    struct stat about;
    int file = open(path, O_RDONLY);
    char *data = NULL;
    *len = 0;
    if (file < 0)
        return NULL;
    if (fstat(file, &about) == 0 && (data = malloc((size_t)about.st_size + 1)) != NULL) {
        ssize_t got = pread(file, data, (size_t)about.st_size, 0);
        *len = got > 0 ? (size_t)got : 0;
    }
    close(file);
    return data;
}

static void write_all(const char *path, const char *data, size_t len)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, data, len) == (ssize_t)len);
    close(file);
}

static bool ends(const char *path, const char *with)
{
    size_t len = strlen(path), end = strlen(with);
    return len >= end && strcmp(path + len - end, with) == 0;
}

static void on_disk(int file)
{
    char link[64], path[300], copy[310];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0)
        return;
    path[len] = '\0';
    if (!ends(path, ".db") && !ends(path, ".db-wal"))
        return;
    size_t size;
    char *data = read_all(path, &size);
    snprintf(copy, sizeof copy, "%s.disk", path);
    write_all(copy, data, size);
    free(data);
    syncs += ends(path, "-wal");
}

#define FOR_SQLITE __attribute__((visibility("default")))

FOR_SQLITE int fdatasync(int file)
{
    if (sync_fails)
        return errno = EIO, -1;
    on_disk(file);
    return 0;
}

FOR_SQLITE int fsync(int file)
{
    if (sync_fails)
        return errno = EIO, -1;
    on_disk(file);
    return 0;
}

/* The file after a power failure: with `mixed`, each block is either as synced or as written. */
static void survive(const struct place *from, const struct place *to, const char *name, bool mixed, uint64_t *random)
{
    char path[160];
    size_t synced_len, written_len;
    snprintf(path, sizeof path, "%s/%s.disk", from->folder, name);
    char *synced = read_all(path, &synced_len);
    snprintf(path, sizeof path, "%s/%s", from->folder, name);
    char *written = read_all(path, &written_len);
    size_t len = mixed && written_len > synced_len ? synced_len + test_random(random) % (written_len - synced_len + 1)
                                                   : synced_len;
    char *found = calloc(1, len + 1);
    for (size_t at = 0; at < len && found; at += BLOCK) {
        bool new = mixed &&at < written_len && (at >= synced_len || test_random(random) % 2);
        size_t have = new ? written_len : synced_len, left = len - at < BLOCK ? len - at : BLOCK;
        if (at < have)
            memcpy(found + at, (new ? written : synced) + at, have - at < left ? have - at : left);
    }
    snprintf(path, sizeof path, "%s/%s", to->folder, name);
    write_all(path, found, len);
    free(synced);
    free(written);
    free(found);
}

/* ---- The tests ---- */

struct acknowledged {
    char ticket[WEIR__TICKET_LEN + 1];
    int64_t at_ms;
};

static struct acknowledged all[TICKETS];
static size_t all_count;

static void work(struct weir__queue *queue, uint64_t *random)
{
    static struct seen seen;
    static char body[3000];
    struct weir__deferred items[4];
    struct weir__queue_bounds bounds[4] = {{0}};
    int errors[4];
    if (test_random(random) % 3) {
        size_t count = 1 + test_random(random) % 4;
        for (size_t i = 0; i < count; i++) {
            items[i] = item_of("r", (const char *[]){"a", "b", "c"}[test_random(random) % 3], "");
            items[i].body = (weir_text){body, test_random(random) % sizeof body};
        }
        CHECK_EQ(put_all(queue, items, bounds, errors, count), 0);
        for (size_t i = 0; i < count && all_count < TICKETS; i++, all_count++) {
            memcpy(all[all_count].ticket, items[i].ticket, sizeof items[i].ticket);
            all[all_count].at_ms = clock_now;
        }
    } else if (claim_some(queue, 3, HOUR, &seen) > 0) {
        for (size_t i = 0; i < seen.count; i++)
            CHECK_EQ(end_delivered(queue, seen.items[i].ticket, 200), 0);
    }
    if (clock_now % 1000 < 40)
        CHECK(weir__queue_expire(queue, clock_now) >= 0);
    clock_now += (int64_t)(test_random(random) % 40);
}

static int count_stats(void *context, const struct weir__queue_stats *stats)
{
    *(int64_t *)context += stats->waiting + stats->under_way;
    return 0;
}

/* All requests acknowledged up to `until_ms` are there; later ones may be. All waiting ones can be delivered. */
static void check_after_power_failure(const struct place *place, int64_t until_ms)
{
    static struct seen seen;
    struct weir__queue *queue = place_open(place, (struct weir__queue_options){0});
    int64_t waiting = 0, counted = 0;
    for (size_t i = 0; i < all_count; i++) {
        int state = state_of(queue, all[i].ticket);
        CHECK(state >= 0 || (state == WEIR__QUEUE_GONE && all[i].at_ms > until_ms));
        waiting += state == WEIR__WAITING || state == WEIR__UNDER_WAY;
    }
    CHECK_EQ(weir__queue_stats(queue, count_stats, &counted), 0);
    CHECK_EQ(counted, waiting);
    while (claim_some(queue, 100, HOUR, &seen) > 0 && counted >= 0)
        for (size_t i = 0; i < seen.count; i++, counted--)
            CHECK_EQ(end_delivered(queue, seen.items[i].ticket, 200), 0);
    CHECK_EQ(counted, 0);
    weir__queue_close(queue);
}

static void fail_power(const struct place *place, bool mixed, uint64_t *random, int64_t until_ms)
{
    struct place after;
    place_new(&after, false, false);
    survive(place, &after, "queue.db", mixed, random);
    survive(place, &after, "queue.db-wal", mixed, random);
    check_after_power_failure(&after, until_ms);
    place_end(&after);
}

static void run(bool second)
{
    uint64_t random = 31;
    for (int64_t round = test_scaled(3, 1); round > 0 && test_failures == 0; round--) {
        struct place place;
        place_new(&place, false, false);
        struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.sync_second = second});
        all_count = 0;
        /* Enough for the log to be restarted. */
        for (int step = 0; step < 250 && test_failures == 0; step++) {
            work(queue, &random);
            if (test_random(&random) % 30 == 0)
                fail_power(&place, step % 2 == 0, &random, second ? clock_now - 1100 : INT64_MAX);
        }
        weir__queue_close(queue);
        place_end(&place);
    }
}

TEST(power_failure_with_sync_always)
{
    run(false);
}

TEST(power_failure_with_sync_second)
{
    run(true);
}

/* A put that was refused because of a failed sync is not delivered later. */
TEST(put_with_a_failed_sync_is_not_kept)
{
    struct place place;
    for (int second = 0; second < 2; second++) {
        int64_t waiting = 0;
        place_new(&place, false, false);
        struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.sync_second = second == 1});
        CHECK_EQ(put_one(queue, item_of("r", "k", "x"), unbounded, NULL), 0);
        clock_now += 5000;
        sync_fails = true;
        CHECK(put_one(queue, item_of("r", "k", "y"), unbounded, NULL) < 0);
        sync_fails = false;
        CHECK_EQ(weir__queue_stats(queue, count_stats, &waiting), 0);
        CHECK_EQ(waiting, 1);
        CHECK_EQ(put_one(queue, item_of("r", "k", "z"), unbounded, NULL), 0);
        weir__queue_close(queue);
        place_end(&place);
    }
}

/* One sync a batch, however large; none for a claim or a delivery; about one a second with sync: second. */
TEST(number_of_syncs)
{
    static struct seen seen;
    static struct weir__deferred items[100];
    static struct weir__queue_bounds bounds[100];
    static int errors[100];
    struct place place;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 100; i++)
        items[i] = item_of("r", "k", "x");
    CHECK_EQ(put_one(queue, items[0], unbounded, NULL), 0);
    int before = syncs;
    CHECK_EQ(put_all(queue, items, bounds, errors, 100), 0);
    CHECK_EQ(syncs, before + 1);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), 1);
    CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), 0);
    CHECK_EQ(syncs, before + 1);
    CHECK_EQ(weir__queue_change(queue, items[5].ticket, WEIR__ENDED_CANCELLED), 0);
    CHECK_EQ(syncs, before + 2);
    weir__queue_close(queue);
    queue = place_open(&place, (struct weir__queue_options){.sync_second = true});
    before = syncs;
    for (int i = 0; i < 50; i++) {
        clock_now += 100;
        CHECK_EQ(put_one(queue, items[0], unbounded, NULL), 0);
    }
    CHECK(syncs - before >= 5 && syncs - before <= 6);
    weir__queue_close(queue);
    place_end(&place);
}

TEST_MAIN
