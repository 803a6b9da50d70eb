/*
 * The file of a queue in SQLite is removed, moved or replaced while it is open: nothing is acknowledged into nothing,
 * and what was acknowledged before is where the file is.
 */
#include "queues.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

static int unheard(void *context, const struct weir__queue_stats *stats)
{
    (void)context;
    (void)stats;
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
    CHECK_EQ(unlink(place_file(&place)), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_REMOVED);
    CHECK_EQ(end_delivered(queue, ticket, 200), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_cancel(queue, ticket), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_expire(queue, clock_now), WEIR__QUEUE_REMOVED);
    CHECK_EQ(state_of(queue, ticket), WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 9}, see, &seen),
             WEIR__QUEUE_REMOVED);
    CHECK_EQ(weir__queue_stats(queue, unheard, NULL), WEIR__QUEUE_REMOVED);
    int another = open(place_file(&place), O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(another >= 0 && close(another) == 0);
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
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNAVAILABLE);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_UNAVAILABLE);
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
    CHECK_EQ(unlink(place_file(place)), 0);
    snprintf(name, sizeof name, "%s-wal", place_file(place));
    CHECK_EQ(log ? unlink(name) : 0, 0);
    snprintf(name, sizeof name, "%s-shm", place_file(place));
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
    CHECK_EQ(rename(place_file(&place), away), 0);
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    weir__queue_close(one);
    one = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, later), 0);
    weir__queue_close(one);
    weir__queue_close(two);
    CHECK_EQ(rename(away, place_file(&place)), 0);
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
    snprintf(log, sizeof log, "%s-wal", place_file(&place));
    snprintf(kept, sizeof kept, "%s-wal.lost", place_file(&place));
    struct weir__queue *queue =
        place_open(&place, (struct weir__queue_options){.set_aside = hear_set_aside, .context = &seen});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, tickets[i]), 0);
    CHECK_EQ(rename(place_file(&place), away), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_REMOVED);
    limit_files(4096);
    weir__queue_close(queue);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(strcmp(set_aside, kept), 0);
    CHECK(access(log, F_OK) != 0 && access(kept, F_OK) == 0);
    /* What docs/queue.md tells to do. */
    CHECK_EQ(rename(away, place_file(&place)), 0);
    CHECK_EQ(rename(kept, log), 0);
    queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(state_of(queue, tickets[i]), WEIR__WAITING);
    weir__queue_close(queue);
    place_end(&place);
}

TEST_MAIN
