/*
 * The file of a queue in SQLite is removed, moved or replaced while it is open: nothing is acknowledged without being
 * stored, and what was acknowledged before is in the file.
 */
#include "queues.h"
#include "base/log.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

static int ignore_stats(void *context, const struct weir__queue_stats *stats)
{
    (void)context;
    (void)stats;
    return 0;
}

/* The file is removed or replaced while it is open: no request is acknowledged, and none is read from it. */
TEST(file_is_removed)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), 1);
    CHECK_EQ(unlink(place_file(&place)), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_REMOVED);
    CHECK_EQ(end_delivered(queue, ticket, 200), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_change(queue, ticket, WEIR__ENDED_CANCELLED), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_expire(queue, clock_now), WEIR__QUEUE_REMOVED);
    CHECK_EQ(state_of(queue, ticket), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 9}, see, &seen),
             WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_stats(queue, ignore_stats, NULL), WEIR__QUEUE_REMOVED);
    int another = open(place_file(&place), O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(another >= 0 && close(another) == 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    CHECK(strstr(weir__queue_why(queue), "queue.db") != NULL);
    weir__queue_close(queue);
    place_end(&place);
}

/* The directory is inaccessible, so that the file may still be there: no new one is created. */
TEST(inaccessible_directory)
{
    struct place place;
    char moved[80], ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, ticket), 0);
    snprintf(moved, sizeof moved, "%s.away", place.folder);
    CHECK_EQ(rename(place.folder, moved), 0);
    CHECK_EQ(symlink(place.folder, place.folder), 0); /* a symbolic link to itself */
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNAVAILABLE);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_UNAVAILABLE);
    CHECK_EQ(unlink(place.folder), 0);
    CHECK_EQ(rename(moved, place.folder), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    CHECK_EQ(state_of(queue, ticket), WEIR__WAITING);
    weir__queue_close(queue);
    place_end(&place);
}

/* Which of SQLite's files are removed; the database itself always is. */
static void remove_files(const struct place *place, bool log, bool index)
{
    char name[200];
    CHECK_EQ(unlink(place_file(place)), 0);
    snprintf(name, sizeof name, "%s-wal", place_file(place));
    CHECK_EQ(log ? unlink(name) : 0, 0);
    snprintf(name, sizeof name, "%s-shm", place_file(place));
    CHECK_EQ(index ? unlink(name) : 0, 0);
}

/*
 * Several handles have it open, as those of an agent. One after the other finds that it is gone, opens a new file, and
 * puts into that; a handle that closes the old one late does not remove the new one.
 */
TEST(removed_file_is_recreated)
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
        /* As if all processes were killed: only what is on the disk counts. */
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

/* Moved without its log: the acknowledged requests are in it, and available again when it is moved back. */
TEST(file_is_moved_and_moved_back)
{
    static char tickets[50][WEIR__TICKET_LEN + 1];
    struct place place;
    char moved[200], later[WEIR__TICKET_LEN + 1];
    place_new(&place, false, false);
    snprintf(moved, sizeof moved, "%s/away", place.folder);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){0});
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(put_one(i % 2 ? one : two, item_of("r", "k", "a"), unbounded, tickets[i]), 0);
    CHECK_EQ(rename(place_file(&place), moved), 0);
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    weir__queue_close(one);
    one = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, later), 0);
    weir__queue_close(one);
    weir__queue_close(two);
    CHECK_EQ(rename(moved, place_file(&place)), 0);
    one = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(state_of(one, tickets[i]), WEIR__WAITING);
    CHECK_EQ(state_of(one, later), WEIR__QUEUE_GONE);
    weir__queue_close(one);
    place_end(&place);
}

/* Moved, and the disk is too full for a checkpoint: the log is kept, and both together have all acknowledged requests.
 */
TEST(file_is_moved_without_room_for_a_checkpoint)
{
    static char tickets[50][WEIR__TICKET_LEN + 1];
    struct place place;
    char moved[200], log[200], kept[200], logged[1024] = "";
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    const struct weir__logger logger = {.file = ends[1]};
    place_new(&place, false, false);
    snprintf(moved, sizeof moved, "%s/away", place.folder);
    snprintf(log, sizeof log, "%s-wal", place_file(&place));
    snprintf(kept, sizeof kept, "%s-wal.lost", place_file(&place));
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.log = &logger});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, tickets[i]), 0);
    CHECK_EQ(rename(place_file(&place), moved), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    limit_files(4096);
    weir__queue_close(queue);
    limit_files(RLIM_INFINITY);
    CHECK(read(ends[0], logged, sizeof logged - 1) > 0 && strstr(logged, kept) != NULL);
    close(ends[0]);
    close(ends[1]);
    CHECK(access(log, F_OK) != 0 && access(kept, F_OK) == 0);
    /* The procedure of docs/internals/queue.md. */
    CHECK_EQ(rename(moved, place_file(&place)), 0);
    CHECK_EQ(rename(kept, log), 0);
    queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(state_of(queue, tickets[i]), WEIR__WAITING);
    weir__queue_close(queue);
    place_end(&place);
}

TEST_MAIN
