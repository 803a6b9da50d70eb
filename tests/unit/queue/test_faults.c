/* When the storage fails: a clear error, nothing that was acknowledged is lost, and it goes on when that is over. */
#define _GNU_SOURCE /* memmem */
#include "queues.h"
#include "queue/withdrawn.h"

#include <sqlite3.h>
#include <sys/resource.h>

static struct seen seen;
static const struct weir__queue_bounds unbounded;

static const char *file_of(const struct place *place)
{
    return place->url + strlen("sqlite:");
}

static int open_error(const char *url)
{
    char why[WEIR__QUEUE_SOURCE_TEXT];
    struct weir__queue *queue = NULL;
    int error = weir__queue_open(&(struct weir__queue_options){.url = url}, &queue, why);
    CHECK(error == 0 || queue == NULL);
    weir__queue_close(queue);
    return error;
}

/* ---- SQLite ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Files may not become larger than this: a disk that is full, at any place of a commit or a checkpoint. */
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
    /* It stays so, and what was acknowledged can be read. */
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
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 90000; bytes < 6000000; bytes = bytes * 17 / 10 + 777)
        fill_disk(bytes);
}

/* Somebody else writes for longer than one waits. */
TEST(locked)
{
    struct place place;
    sqlite3 *other = NULL;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    CHECK_EQ(sqlite3_open(file_of(&place), &other), SQLITE_OK);
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

TEST(not_a_queue)
{
    struct place place;
    sqlite3 *other = NULL;
    char text[8192];
    place_new(&place, false, false);
    memset(text, 'x', sizeof text);
    write_file(file_of(&place), text, sizeof text, 0);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_BROKEN);
    CHECK_EQ(unlink(file_of(&place)), 0);
    /* Somebody else's database is left as it is. */
    CHECK_EQ(sqlite3_open(file_of(&place), &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "CREATE TABLE mine(x)", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_BROKEN);
    CHECK_EQ(sqlite3_exec(other, "DROP TABLE mine", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), 0);
    CHECK_EQ(sqlite3_exec(other, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(open_error(place.url), WEIR__QUEUE_NEWER);
    sqlite3_close(other);
    place_end(&place);
    CHECK_EQ(open_error("sqlite:/nowhere/at/all/queue.db"), WEIR__QUEUE_AWAY);
}

/* As weir before this one made it: what waits there is delivered, in order, after it was opened once. */
TEST(of_an_older_weir)
{
    struct place place;
    char first[WEIR__TICKET_LEN + 1], second[WEIR__TICKET_LEN + 1];
    sqlite3 *old = NULL;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "one"), unbounded, first), 0);
    CHECK_EQ(put_one(queue, item_of("s", "k", "two"), unbounded, second), 0);
    weir__queue_close(queue);
    CHECK_EQ(sqlite3_open(file_of(&place), &old), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(old,
                          "DROP INDEX lane_later; DROP INDEX lane_ready;"
                          "CREATE INDEX lane_later ON lane(due_ms) WHERE place = 1;"
                          "CREATE INDEX lane_ready ON lane(head) WHERE place = 2; PRAGMA user_version = 1",
                          NULL, NULL, NULL),
             SQLITE_OK);
    sqlite3_close(old);
    for (int time = 0; time < 2; time++)
        CHECK_EQ(open_error(place.url), 0);
    queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 2);
    CHECK_EQ(strcmp(seen.items[0].ticket, first), 0);
    CHECK_EQ(strcmp(seen.items[1].ticket, second), 0);
    weir__queue_close(queue);
    CHECK_EQ(sqlite3_open(file_of(&place), &old), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(old, "EXPLAIN SELECT 1 FROM lane INDEXED BY lane_ready WHERE place = 2 AND rule = 1", NULL,
                          NULL, NULL),
             SQLITE_OK);
    sqlite3_close(old);
    place_end(&place);
}

/* Pages of it are overwritten: what can be read is right, what cannot is an error; nothing crashes or ends in a loop.
 */
TEST(damaged)
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
        CHECK_EQ(stat(file_of(&place), &about), 0);
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (char)test_random(&random);
        write_file(file_of(&place), junk, 1 + test_random(&random) % sizeof junk,
                   (off_t)(100 + test_random(&random) % (uint64_t)(about.st_size - 700)));
        queue = NULL;
        char why[WEIR__QUEUE_SOURCE_TEXT];
        if (weir__queue_open(&(struct weir__queue_options){.url = place.url}, &queue, why) == 0) {
            (void)put_one(queue, item_of("r", "k", "x"), unbounded, NULL);
            for (int i = 0; i < 5; i++)
                if (claim_some(queue, 10, HOUR, &seen) > 0)
                    (void)weir__queue_delivered(queue, seen.items[0].ticket, 200);
            (void)state_of(queue, ticket);
            (void)weir__queue_expire(queue, clock_now + 10 * HOUR);
            weir__queue_close(queue);
        }
        place_end(&place);
    }
}

static int unheard(void *context, const struct weir__queue_figures *figures)
{
    (void)context;
    (void)figures;
    return 0;
}

/* The file is taken away or replaced while it is open: nothing is acknowledged into nothing, and nothing read of it. */
TEST(removed)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), 1);
    CHECK_EQ(unlink(file_of(&place)), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_delivered(queue, ticket, 200), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_cancel(queue, ticket), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_expire(queue, clock_now), WEIR__QUEUE_REMOVED);
    CHECK_EQ(state_of(queue, ticket), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 9}, see, &seen),
             WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_figures(queue, unheard, NULL), WEIR__QUEUE_REMOVED);
    write_file(file_of(&place), "", 0, 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    CHECK(strstr(weir__queue_why(queue), "queue.db") != NULL);
    weir__queue_close(queue);
    place_end(&place);
}

/* Nobody can see whether it is still there: that is no reason to begin another. */
TEST(out_of_sight)
{
    struct place place;
    char away[80], ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    snprintf(away, sizeof away, "%s.away", place.folder);
    CHECK_EQ(rename(place.folder, away), 0);
    CHECK_EQ(symlink(place.folder, place.folder), 0); /* it leads to itself */
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_AWAY);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_AWAY);
    CHECK_EQ(unlink(place.folder), 0);
    CHECK_EQ(rename(away, place.folder), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    CHECK_EQ(state_of(queue, ticket), WEIR__WAITING);
    weir__queue_close(queue);
    place_end(&place);
}

/* Which of SQLite's files go; the database itself goes in any case. */
static void remove_files(const struct place *place, bool log, bool index)
{
    char name[200];
    CHECK_EQ(unlink(file_of(place)), 0);
    snprintf(name, sizeof name, "%s-wal", file_of(place));
    CHECK_EQ(log ? unlink(name) : 0, 0);
    snprintf(name, sizeof name, "%s-shm", file_of(place));
    CHECK_EQ(index ? unlink(name) : 0, 0);
}

/*
 * Several handles have it open, as an agent's have. One after the other finds that it is gone, opens another, and puts
 * into that; whoever comes late, and closes the old one, takes nothing away from the new one.
 */
TEST(removed_and_begun_anew)
{
    enum { HANDLES = 3, EACH = 40 };
    static char tickets[HANDLES * EACH][WEIR__TICKET_LEN + 1];
    for (int files = 0; files < 4; files++) {
        struct weir__queue *handles[HANDLES];
        struct place place;
        char lost[WEIR__TICKET_LEN + 1];
        int count = 0;
        place_new(&place, false, false);
        for (int i = 0; i < HANDLES; i++) {
            handles[i] = place_open(&place, (struct weir__queue_options){0});
            CHECK_EQ(put_one(handles[i], item_of("r", "old", "a"), unbounded, lost), 0);
        }
        remove_files(&place, files & 1, files & 2);
        for (int i = 0; i < HANDLES; i++) {
            CHECK_EQ(put_one(handles[i], item_of("r", "new", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
            weir__queue_close(handles[i]);
            handles[i] = place_open(&place, (struct weir__queue_options){0});
            for (int j = 0; j < EACH; j++)
                CHECK_EQ(put_one(handles[i], item_of("r", "new", "b"), unbounded, tickets[count++]), 0);
            for (int j = 0; j < count; j++)
                CHECK_EQ(state_of(handles[i], tickets[j]), WEIR__WAITING);
            CHECK_EQ(state_of(handles[i], lost), WEIR__QUEUE_GONE);
        }
        /* As if all were killed: what is on the disk counts. */
        struct weir__queue *last = place_open(&place, (struct weir__queue_options){0});
        for (int j = 0; j < count; j++)
            CHECK_EQ(state_of(last, tickets[j]), WEIR__WAITING);
        weir__queue_close(last);
        for (int i = 0; i < HANDLES; i++)
            weir__queue_close(handles[i]);
        last = place_open(&place, (struct weir__queue_options){0});
        for (int j = 0; j < count; j++)
            CHECK_EQ(state_of(last, tickets[j]), WEIR__WAITING);
        weir__queue_close(last);
        place_end(&place);
    }
}

/* Moved away, without its log: what was acknowledged is in it, and there again when it is moved back. */
TEST(moved_away_and_back)
{
    static char tickets[50][WEIR__TICKET_LEN + 1];
    struct place place;
    char away[200], later[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    snprintf(away, sizeof away, "%s/away", place.folder);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){0});
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(put_one(i % 2 ? one : two, item_of("r", "k", "a"), unbounded, tickets[i]), 0);
    CHECK_EQ(rename(file_of(&place), away), 0);
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    weir__queue_close(one);
    one = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, later), 0);
    weir__queue_close(one);
    weir__queue_close(two);
    CHECK_EQ(rename(away, file_of(&place)), 0);
    one = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(state_of(one, tickets[i]), WEIR__WAITING);
    CHECK_EQ(state_of(one, later), WEIR__QUEUE_GONE);
    weir__queue_close(one);
    place_end(&place);
}

static char set_aside[200];

static void hear_set_aside(const void *context, const char *path)
{
    CHECK(context == &seen);
    snprintf(set_aside, sizeof set_aside, "%s", path);
}

/* Moved away, and no room to write its log back: the log is kept, and both together have all that was acknowledged. */
TEST(moved_away_without_room_for_its_log)
{
    static char tickets[50][WEIR__TICKET_LEN + 1];
    struct place place;
    char away[200], log[200], kept[200];
    place_new(&place, false, false);
    snprintf(away, sizeof away, "%s/away", place.folder);
    snprintf(log, sizeof log, "%s-wal", file_of(&place));
    snprintf(kept, sizeof kept, "%s-wal.lost", file_of(&place));
    signal(SIGXFSZ, SIG_IGN);
    struct weir__queue *queue =
        place_open(&place, (struct weir__queue_options){.set_aside = hear_set_aside, .context = &seen});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, tickets[i]), 0);
    CHECK_EQ(rename(file_of(&place), away), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    limit_files(4096);
    weir__queue_close(queue);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(strcmp(set_aside, kept), 0);
    CHECK(access(log, F_OK) != 0 && access(kept, F_OK) == 0);
    /* What docs/queue.md tells to do. */
    CHECK_EQ(rename(away, file_of(&place)), 0);
    CHECK_EQ(rename(kept, log), 0);
    queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(state_of(queue, tickets[i]), WEIR__WAITING);
    weir__queue_close(queue);
    place_end(&place);
}

/* Only its owner may read what others sent. */
TEST(private)
{
    struct place place;
    struct stat about;
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(stat(file_of(&place), &about), 0);
    CHECK_EQ(about.st_mode & 0777, 0600);
    char log[128];
    snprintf(log, sizeof log, "%s-wal", file_of(&place));
    CHECK_EQ(stat(log, &about), 0);
    CHECK_EQ(about.st_mode & 0777, 0600);
    weir__queue_close(queue);
    place_end(&place);
}

/* Whether a file of the database has these bytes. */
static bool is_in(const struct place *place, const char *end, const char *text)
{
    static char bytes[1 << 20];
    char name[200];
    snprintf(name, sizeof name, "%s%s", file_of(place), end);
    int file = open(name, O_RDONLY);
    ssize_t len = file < 0 ? 0 : read(file, bytes, sizeof bytes);
    if (file >= 0)
        close(file);
    CHECK(len < (ssize_t)sizeof bytes);
    return len > 0 && memmem(bytes, (size_t)len, text, strlen(text)) != NULL;
}

/* What was delivered or cancelled is nowhere on the disk a minute later; what waits is. */
TEST(what_is_over_leaves_nothing)
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
        CHECK_EQ(weir__queue_cancel(queue, tickets[i]), 0);
    CHECK_EQ(claim_some(queue, 4, HOUR, &seen), 4);
    for (size_t i = 0; i < seen.count; i++)
        CHECK_EQ(weir__queue_delivered(queue, seen.items[i].ticket, 200), 0);
    clock_now += 60000;
    CHECK_EQ(weir__queue_expire(queue, clock_now) >= 0, true);
    CHECK(!is_in(&place, "", secret) && !is_in(&place, "-wal", secret));
    CHECK(is_in(&place, "", waits));
    weir__queue_close(queue);
    place_end(&place);
}

/* ---- Redis ---- */

TEST(away_and_back)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    if (!server_begin())
        return;
    place_new(&place, true, false);
    server_kill();
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), WEIR__QUEUE_AWAY);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_AWAY);
    CHECK(server_begin());
    int error = WEIR__QUEUE_AWAY;
    for (int i = 0; i < 100 && error; i++) {
        usleep(20000);
        error = put_one(queue, item_of("r", "k", "a"), unbounded, ticket);
    }
    CHECK_EQ(error, 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, ticket) == 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(weir__queue_delivered(queue, ticket, 200), 0);
    weir__queue_close(queue);
    place_end(&place);
}

/* It takes no more: nothing is acknowledged, and what is there is delivered. */
TEST(no_room_in_redis)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    server_do("CONFIG SET maxmemory 1000");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_SPACE);
    server_do("CONFIG SET maxmemory 0");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    server_do("REPLICAOF 127.0.0.1 1");
    int error = put_one(queue, item_of("r", "k", "c"), unbounded, NULL);
    CHECK(error == WEIR__QUEUE_READONLY || error == WEIR__QUEUE_AWAY);
    server_do("REPLICAOF NO ONE");
    for (int i = 0; i < 100 && error; i++) {
        usleep(20000);
        error = put_one(queue, item_of("r", "k", "c"), unbounded, NULL);
    }
    CHECK_EQ(error, 0);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, ticket) == 0);
    /* Its names are taken by something else. */
    server_do("FLUSHALL");
    server_do("SET {weir:queue} x");
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), WEIR__QUEUE_BROKEN);
    weir__queue_close(queue);
    place_end(&place);
}

static void wait_for_save(const char *status)
{
    bool over = false;
    for (int i = 0; i < 500 && !over; i++) {
        redisReply *reply = server_reply("INFO persistence");
        over = strstr(reply->str, "rdb_bgsave_in_progress:0") && strstr(reply->str, status);
        freeReplyObject(reply);
        usleep(20000);
    }
    CHECK(over);
}

/* It could not write its snapshot, and takes no writes until it can. */
TEST(disk_of_redis)
{
    struct place place;
    char blocker[128];
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    snprintf(blocker, sizeof blocker, "%s/dump.rdb", server.folder);
    CHECK_EQ(mkdir(blocker, 0700), 0);
    redisReply *reply = redisCommand(server.context, "CONFIG SET save %s", "3600 1000000");
    CHECK(reply && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    server_do("BGSAVE");
    wait_for_save("rdb_last_bgsave_status:err");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_READONLY);
    CHECK(strstr(weir__queue_why(queue), "MISCONF") != NULL);
    CHECK_EQ(rmdir(blocker), 0);
    server_do("BGSAVE");
    wait_for_save("rdb_last_bgsave_status:ok");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    reply = redisCommand(server.context, "CONFIG SET save %s", "");
    freeReplyObject(reply);
    weir__queue_close(queue);
    place_end(&place);
}

static int count_one(void *context, const struct weir__deferred *item)
{
    int *counts = context;
    counts[item->state]++;
    return 0;
}

/* No answer comes although the put is carried out: it is taken back when the server is there again. */
TEST(no_answer)
{
    struct place place;
    int counts[WEIR__DEFERRED_STATES] = {0};
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    kill(server.pid, SIGSTOP);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNKNOWN);
    kill(server.pid, SIGCONT);
    int error = WEIR__QUEUE_AWAY;
    for (int i = 0; i < 100 && error; i++) {
        usleep(20000);
        error = put_one(queue, item_of("r", "k", "c"), unbounded, NULL);
    }
    CHECK_EQ(error, 0);
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 100}, count_one, counts), 0);
    CHECK_EQ(counts[WEIR__WAITING], 2);
    CHECK_EQ(counts[WEIR__CANCELLED], 1);
    weir__queue_close(queue);
    place_end(&place);
}

/* The same when nobody puts anything any more: who has put it withdraws it as soon as the server is there again. */
TEST(withdrawn_without_another_put)
{
    struct place place;
    int counts[WEIR__DEFERRED_STATES] = {0};
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(weir__queue_withdraw(queue), 0);
    kill(server.pid, SIGSTOP);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNKNOWN);
    kill(server.pid, SIGCONT);
    size_t left = 1;
    for (int i = 0; i < 500 && left; i++) {
        usleep(20000);
        left = weir__queue_withdraw(queue);
    }
    CHECK_EQ(left, 0);
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 100}, count_one, counts), 0);
    CHECK_EQ(counts[WEIR__WAITING], 1);
    CHECK_EQ(counts[WEIR__CANCELLED], 1);
    weir__queue_close(queue);
    place_end(&place);
}

/* Whoever shares the list of those does not deliver them, though it asks first. */
TEST(withdrawn_instead_of_delivered)
{
    static struct weir__withdrawn shared = WEIR__WITHDRAWN_INIT;
    struct place place;
    int counts[WEIR__DEFERRED_STATES] = {0};
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *puts = place_open(&place, (struct weir__queue_options){.withdrawn = &shared});
    struct weir__queue *drains = place_open(&place, (struct weir__queue_options){.withdrawn = &shared});
    CHECK_EQ(put_one(puts, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(claim_some(drains, 9, HOUR, &seen), 1);
    CHECK_EQ(weir__queue_delivered(drains, seen.items[0].ticket, 200), 0);
    kill(server.pid, SIGSTOP);
    CHECK_EQ(put_one(puts, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNKNOWN);
    kill(server.pid, SIGCONT);
    for (int i = 0; i < 500 && !counts[WEIR__CANCELLED]; i++) {
        usleep(20000);
        CHECK(claim_some(drains, 9, HOUR, &seen) <= 0);
        memset(counts, 0, sizeof counts);
        (void)weir__queue_list(drains, &(struct weir__queue_filter){.state = -1, .limit = 9}, count_one, counts);
    }
    CHECK_EQ(counts[WEIR__CANCELLED], 1);
    CHECK_EQ(counts[WEIR__DELIVERED], 1);
    CHECK_EQ(weir__queue_withdraw(puts), 0);
    weir__queue_close(puts);
    weir__queue_close(drains);
    place_end(&place);
}

/* The list is bounded, and what was carried out late is known for a while. */
TEST(withdrawn_tickets)
{
    static struct weir__withdrawn all = WEIR__WITHDRAWN_INIT;
    char tickets[2][WEIR__TICKET_LEN + 1], ticket[WEIR__TICKET_LEN + 1];
    for (int i = 0; i < WEIR__WITHDRAWN_MAX + 2; i++) {
        snprintf(ticket, sizeof ticket, "%032d", i);
        weir__withdrawn_add(&all, ticket, 1000);
    }
    CHECK_EQ(all.count, WEIR__WITHDRAWN_MAX);
    CHECK_EQ(all.open, WEIR__WITHDRAWN_MAX);
    CHECK_EQ(weir__withdrawn_open(&all, 0, tickets, 2), 2);
    CHECK_EQ(atoi(tickets[0]), 2);
    CHECK_EQ(weir__withdrawn_open(&all, WEIR__WITHDRAWN_MAX - 1, tickets, 2), 1);
    weir__withdrawn_done(&all, tickets[0], 1000);
    weir__withdrawn_done(&all, tickets[0], 1000);
    weir__withdrawn_done(&all, "unknown", 1000);
    CHECK_EQ(all.open, WEIR__WITHDRAWN_MAX - 1);
    CHECK(weir__withdrawn_has(&all, tickets[0]));
    weir__withdrawn_add(&all, ticket, 1000 + WEIR__WITHDRAWN_MS);
    CHECK_EQ(all.count, WEIR__WITHDRAWN_MAX);
    CHECK_EQ(all.open, WEIR__WITHDRAWN_MAX);
    CHECK_EQ(weir__withdrawn_open(&all, 0, tickets, 1), 1);
    CHECK_EQ(atoi(tickets[0]), 2); /* the one that was done went, and no other */
}

/* An agent dies without a word, and another takes over: what it had under way comes first, in order. */
TEST(another_takes_over)
{
    struct place place;
    char tickets[4][WEIR__TICKET_LEN + 1];
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){.name = "one", .lease_ms = 1000});
    for (int i = 0; i < 4; i++)
        CHECK_EQ(put_one(one, item_of("r", i % 2 ? "k" : "l", "x"), unbounded, tickets[i]), 0);
    CHECK_EQ(claim_some(one, 10, 2500, &seen), 2);
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){.name = "two", .lease_ms = 5000});
    CHECK_EQ(claim_some(two, 10, 2500, &seen), WEIR__QUEUE_STANDBY);
    usleep(1050000);
    CHECK_EQ(claim_some(two, 10, 2500, &seen), 0);
    usleep(1500000);
    CHECK_EQ(claim_some(two, 10, 2500, &seen), 2);
    CHECK(strcmp(seen.items[0].ticket, tickets[0]) == 0 && strcmp(seen.items[1].ticket, tickets[1]) == 0);
    CHECK_EQ(weir__queue_delivered(two, tickets[0], 200), 0);
    CHECK_EQ(claim_some(two, 10, 3000, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, tickets[2]) == 0);
    weir__queue_close(one);
    weir__queue_close(two);
    place_end(&place);
}

TEST_MAIN
