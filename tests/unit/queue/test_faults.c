/*
 * Failures of SQLite's files: a clear error, no acknowledged request is lost, and it continues when the failure is
 * over. Redis is in test_faults_redis.c, a removed or moved file in test_removed.c.
 */
#include "queues.h"
#include "queue/sqlite.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

static int open_error(const char *url)
{
    char why[WEIR__QUEUE_SOURCE_TEXT];
    struct weir__queue *queue = NULL;
    int error = weir__queue_open(&(struct weir__queue_options){.url = url}, &queue, why);
    CHECK(error == 0 || queue == NULL);
    weir__queue_close(queue);
    return error;
}

/* Files may not grow beyond this: a full disk, at any point of a commit or a checkpoint. */
static void fill_disk(rlim_t bytes)
{
    static char tickets[4000][WEIR__TICKET_LEN + 1];
    static char body[3000];
    struct place place;
    int count = 0, error = 0;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    limit_files(bytes);
    while (count < 3000 && !error) {
        struct weir__deferred item = item_of("r", count % 2 ? "k" : "l", "");
        item.body = (weir_text){body, sizeof body};
        error = put_one(queue, item, unbounded, tickets[count]);
        count += !error;
    }
    CHECK_EQ(error, WEIR__QUEUE_SPACE);
    CHECK(weir__queue_why(queue)[0] != '\0');
    /* The error persists, and acknowledged requests can be read. */
    CHECK_EQ(put_one(queue, item_of("r", "k", "x"), unbounded, NULL) >= WEIR__QUEUE_SPACE, true);
    for (int i = 0; i < count; i++)
        CHECK_EQ(state_of(queue, tickets[i]), WEIR__WAITING);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(put_one(queue, item_of("r", "k", "x"), unbounded, tickets[count++]), 0);
    weir__queue_close(queue);
    queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < count; i++)
        CHECK_EQ(state_of(queue, tickets[i]), WEIR__WAITING);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), count > 1 ? 2 : 1);
    weir__queue_close(queue);
    place_end(&place);
}

TEST(disk_full)
{
    for (rlim_t bytes = 90000; bytes < 6000000; bytes = bytes * 17 / 10 + 777)
        fill_disk(bytes);
}

/* Another process holds the write lock for longer than the timeout. */
TEST(another_process_has_the_write_lock)
{
    struct place place;
    sqlite3 *other = NULL;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    CHECK_EQ(sqlite3_open(place_file(&place), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_BUSY);
    CHECK_EQ(state_of(queue, ticket), WEIR__WAITING);
    CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    weir__queue_close(queue);
    place_end(&place);
}

static void write_file(const char *path, const char *text, size_t len, off_t at)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    CHECK_EQ(pwrite(file, text, len, at), (int64_t)len);
    close(file);
}

TEST(file_is_not_a_queue)
{
    struct place place;
    sqlite3 *other = NULL;
    char text[8192];
    place_new(&place, false, false);
    memset(text, 'x', sizeof text);
    write_file(place_file(&place), text, sizeof text, 0);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_BROKEN);
    CHECK_EQ(unlink(place_file(&place)), 0);
    /* A foreign database is not modified. */
    CHECK_EQ(sqlite3_open(place_file(&place), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "CREATE TABLE mine(x)", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_BROKEN);
    CHECK_EQ(sqlite3_exec(other, "DROP TABLE mine", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), 0);
    CHECK_EQ(sqlite3_exec(other, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_NEWER);
    sqlite3_close(other);
    place_end(&place);
    CHECK_EQ(open_error("sqlite:/nowhere/at/all/queue.db"), WEIR__QUEUE_UNAVAILABLE);
}

/* A database of an older weir: its waiting requests are delivered, in order, after it is opened. */
TEST(queue_of_an_older_version_is_upgraded)
{
    static const char *const made[] = {"DROP INDEX lane_later; DROP INDEX lane_ready;"
                                       "CREATE INDEX lane_later ON lane(due_ms) WHERE place = 1;"
                                       "CREATE INDEX lane_ready ON lane(head) WHERE place = 2; PRAGMA user_version = 1",
                                       "PRAGMA user_version = 2"};
    for (int version = 1; version <= 2; version++) {
        struct place place;
        char first[WEIR__TICKET_LEN + 1], second[WEIR__TICKET_LEN + 1];
        sqlite3 *old = NULL;
        place_new(&place, false, false);
        struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
        CHECK_EQ(put_one(queue, item_of("r", "k", "one"), unbounded, first), 0);
        CHECK_EQ(put_one(queue, item_of("s", "k", "two"), unbounded, second), 0);
        weir__queue_close(queue);
        CHECK_EQ(sqlite3_open(place_file(&place), &old), SQLITE_OK);
        CHECK_EQ(sqlite3_exec(old,
                              "DROP TABLE aside; DROP INDEX request_aside; DROP INDEX request_lane;"
                              "CREATE INDEX request_lane ON request(lane, sequence) WHERE state = 0",
                              NULL, NULL, NULL),
                 SQLITE_OK);
        CHECK_EQ(sqlite3_exec(old, made[version - 1], NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(old);
        for (int time = 0; time < 2; time++)
            CHECK_EQ(open_error(place.url), 0);
        queue = place_open(&place, (struct weir__queue_options){0});
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 2);
        CHECK_EQ(strcmp(seen.items[0].ticket, first), 0);
        CHECK_EQ(strcmp(seen.items[1].ticket, second), 0);
        weir__queue_close(queue);
        CHECK_EQ(sqlite3_open(place_file(&place), &old), SQLITE_OK);
        CHECK_EQ(sqlite3_exec(old, "EXPLAIN SELECT 1 FROM lane INDEXED BY lane_ready WHERE place = 2 AND rule = 1",
                              NULL, NULL, NULL),
                 SQLITE_OK);
        sqlite3_close(old);
        place_end(&place);
    }
}

/* Pages of it are overwritten: everything read is right or an error; no crash, no endless loop. */
TEST(damaged_database_is_read_safely)
{
    uint64_t random = 99;
    for (int64_t round = test_scaled(60, 10); round > 0; round--) {
        struct place place;
        char ticket[WEIR__TICKET_LEN + 1], junk[512];
        place_new(&place, false, false);
        struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.sync_second = true});
        for (int i = 0; i < 60; i++)
            CHECK_EQ(put_one(queue, item_of("r", i % 2 ? "k" : "l", "body"), unbounded, ticket), 0);
        weir__queue_close(queue);
        struct stat about;
        CHECK_EQ(stat(place_file(&place), &about), 0);
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (char)test_random(&random);
        write_file(place_file(&place), junk, 1 + test_random(&random) % sizeof junk,
                   (off_t)(100 + test_random(&random) % (uint64_t)(about.st_size - 700)));
        queue = NULL;
        char why[WEIR__QUEUE_SOURCE_TEXT];
        if (weir__queue_open(&(struct weir__queue_options){.url = place.url}, &queue, why) == 0) {
            (void)put_one(queue, item_of("r", "k", "x"), unbounded, NULL);
            for (int i = 0; i < 5; i++)
                if (claim_some(queue, 10, HOUR, &seen) > 0)
                    (void)end_delivered(queue, seen.items[0].ticket, 200);
            (void)state_of(queue, ticket);
            (void)weir__queue_expire(queue, clock_now + 10 * HOUR);
            weir__queue_close(queue);
        }
        place_end(&place);
    }
}

/* Only the owner may read the requests of clients. */
TEST(database_file_is_private)
{
    struct place place;
    struct stat about;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(stat(place_file(&place), &about), 0);
    CHECK_EQ(about.st_mode & 0777, 0600);
    char log[128];
    snprintf(log, sizeof log, "%s-wal", place_file(&place));
    CHECK_EQ(stat(log, &about), 0);
    CHECK_EQ(about.st_mode & 0777, 0600);
    weir__queue_close(queue);
    place_end(&place);
}

/* Whether a file of the database contains these bytes. */
static bool is_in(const struct place *place, const char *end, const char *text)
{
    static char bytes[1 << 20];
    char name[200];
    snprintf(name, sizeof name, "%s%s", place_file(place), end);
    int file = open(name, O_RDONLY);
    ssize_t len = file < 0 ? 0 : read(file, bytes, sizeof bytes);
    if (file >= 0)
        close(file);
    CHECK(len < (ssize_t)sizeof bytes);
    return len > 0 && memmem(bytes, (size_t)len, text, strlen(text)) != NULL;
}

/* A delivered or cancelled request is nowhere on the disk a minute later; a waiting one is. */
TEST(finished_requests_are_erased_from_disk)
{
    static const char secret[] = "Authorization: Bearer s3cret", waits[] = "Authorization: Bearer w4its";
    static char body[20000], tickets[8][WEIR__TICKET_LEN + 1];
    struct place place;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    for (size_t at = 0; at + sizeof secret < sizeof body; at += sizeof secret)
        memcpy(body + at, secret, sizeof secret);
    for (size_t i = 0; i < 8; i++) {
        struct weir__deferred item = item_of("r", (const char *[]){"a", "b", "c", "d", "e", "f", "g", "h"}[i], "");
        item.headers = text_of(secret);
        item.body = (weir_text){body, i % 2 ? sizeof body : 500};
        CHECK_EQ(put_one(queue, item, unbounded, tickets[i]), 0);
    }
    struct weir__deferred item = item_of("r", "z", "");
    item.headers = text_of(waits);
    CHECK_EQ(put_one(queue, item, unbounded, NULL), 0);
    CHECK_EQ(weir__queue_expire(queue, clock_now) >= 0, true);
    CHECK(is_in(&place, "", secret) && is_in(&place, "", waits));
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(weir__queue_change(queue, tickets[i], WEIR__ENDED_CANCELLED), 0);
    CHECK_EQ(claim_some(queue, 4, HOUR, &seen), 4);
    for (size_t i = 0; i < seen.count; i++)
        CHECK_EQ(end_delivered(queue, seen.items[i].ticket, 200), 0);
    clock_now += 60000;
    CHECK_EQ(weir__queue_expire(queue, clock_now) >= 0, true);
    CHECK(!is_in(&place, "", secret) && !is_in(&place, "-wal", secret));
    CHECK(is_in(&place, "", waits));
    weir__queue_close(queue);
    place_end(&place);
}

/* The table of prepared statements has a bound: a statement beyond it fails, and the others still work. */
TEST(too_many_prepared_statements_are_refused)
{
    static char texts[200][24];
    struct place place;
    int64_t number = 0;
    size_t prepared = 0;
    place_new(&place, false, false);
    struct weir__sq *q = weir__sq_of(place_open(&place, (struct weir__queue_options){0}));
    for (size_t i = 0; i < 200; i++) {
        snprintf(texts[i], sizeof texts[i], "SELECT %zu", i);
        bool good = weir__sq_numbers(q, texts[i], NULL, 0, &number, 1);
        CHECK(good ? number == (int64_t)i && !q->error : q->error == WEIR__QUEUE_MEMORY);
        prepared += good;
    }
    CHECK(prepared > 0 && prepared < sizeof q->prepared / sizeof *q->prepared);
    q->error = 0;
    CHECK(weir__sq_numbers(q, texts[prepared - 1], NULL, 0, &number, 1) && number == (int64_t)prepared - 1);
    CHECK_EQ(put_one(&q->queue, item_of("r", "k", "x"), unbounded, NULL), WEIR__QUEUE_MEMORY);
    weir__queue_close(&q->queue);
    place_end(&place);
}

TEST_MAIN
