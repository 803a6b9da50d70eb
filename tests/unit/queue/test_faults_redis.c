/* Failures of Redis, as test_faults.c has them for SQLite. */
#include "queues.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

TEST(unavailable_and_available_again)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    if (!server_begin())
        return;
    place_new(&place, true, false);
    server_kill();
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), WEIR__QUEUE_UNAVAILABLE);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), WEIR__QUEUE_UNAVAILABLE);
    CHECK(server_begin());
    CHECK_EQ(put_in_time(queue, "a", ticket), 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, ticket) == 0);
    server_do("SCRIPT FLUSH");
    CHECK_EQ(end_delivered(queue, ticket, 200), 0);
    weir__queue_close(queue);
    place_end(&place);
}

/* Redis refuses writes for lack of memory: nothing is acknowledged, and stored requests are delivered. */
TEST(redis_out_of_memory)
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
    CHECK(error == WEIR__QUEUE_READONLY || error == WEIR__QUEUE_UNAVAILABLE);
    server_do("REPLICAOF NO ONE");
    CHECK_EQ(put_in_time(queue, "c", NULL), 0);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, ticket) == 0);
    /* Its keys have another type. */
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

/* Redis could not write its snapshot, and refuses writes until it can. */
TEST(redis_refuses_writes_without_disk)
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

/* An agent dies silently, and another takes over: the requests it had claimed come first, in order. */
TEST(another_agent_takes_over)
{
    struct place place;
    char tickets[4][WEIR__TICKET_LEN + 1];
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){.name = "one", .lease_ms = HOUR});
    for (int i = 0; i < 4; i++)
        CHECK_EQ(put_one(one, item_of("r", i % 2 ? "k" : "l", "x"), unbounded, tickets[i]), 0);
    CHECK_EQ(claim_some(one, 10, HOUR, &seen), 2);
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){.name = "two", .lease_ms = HOUR});
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), WEIR__QUEUE_STANDBY);
    leave_of_lease(0);
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 0);
    pass_claims(&place, HOUR);
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 2);
    CHECK(strcmp(seen.items[0].ticket, tickets[0]) == 0 && strcmp(seen.items[1].ticket, tickets[1]) == 0);
    CHECK_EQ(end_delivered(two, tickets[0], 200), 0);
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, tickets[2]) == 0);
    weir__queue_close(one);
    weir__queue_close(two);
    place_end(&place);
}

TEST_MAIN
