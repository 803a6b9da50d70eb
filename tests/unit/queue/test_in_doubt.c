/* A put into Redis whose reply is missing is withdrawn, and not delivered. */
#include "queues.h"
#include "queue/queue_internal.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

/* Uses the default timeout for missing replies. */
__attribute__((constructor)) static void use_default_wait(void)
{
    place_wait_ms = 0;
}

/* Executed as soon as the server continues. */
static void put_without_reply(struct weir__queue *queue)
{
    kill(server.pid, SIGSTOP);
    CHECK_EQ(put_one(queue, item_of("r", "k", "b"), unbounded, NULL), WEIR__QUEUE_UNKNOWN);
    kill(server.pid, SIGCONT);
}

static int count_one(void *context, const struct weir__deferred *item)
{
    int *counts = context;
    counts[item->state]++;
    return 0;
}

/* Counts the requests in each state. */
static int count(struct weir__queue *queue, int counts[WEIR__DEFERRED_STATES])
{
    memset(counts, 0, WEIR__DEFERRED_STATES * sizeof *counts);
    return weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 100}, count_one, counts);
}

/* Opens a queue with one request in it. */
static struct weir__queue *place_begin(struct place *place)
{
    place_new(place, true, true);
    struct weir__queue *queue = place_open(place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(queue, item_of("r", "k", "a"), unbounded, NULL), 0);
    return queue;
}

/* Checks that one request was withdrawn and so many wait, and closes the queue. */
static void place_finish(struct place *place, struct weir__queue *queue, int waiting)
{
    int counts[WEIR__DEFERRED_STATES];
    CHECK_EQ(count(queue, counts), 0);
    CHECK_EQ(counts[WEIR__WAITING], waiting);
    CHECK_EQ(counts[WEIR__CANCELLED], 1);
    weir__queue_close(queue);
    place_end(place);
}

/* The reply is missing although the put was executed: it is withdrawn when the server is available again. */
TEST(put_without_a_reply_is_removed)
{
    struct place place;
    if (!server_begin())
        return;
    struct weir__queue *queue = place_begin(&place);
    put_without_reply(queue);
    CHECK_EQ(put_in_time(queue, "c", NULL), 0);
    place_finish(&place, queue, 2);
}

/* Without a further put: the client withdraws it as soon as the server is available again. */
TEST(in_doubt_put_is_removed_without_another_put)
{
    struct place place;
    if (!server_begin())
        return;
    struct weir__queue *queue = place_begin(&place);
    CHECK_EQ(weir__queue_cancel_in_doubt(queue), 0);
    put_without_reply(queue);
    size_t left = 1;
    for (int i = 0; i < 500 && left; i++) {
        usleep(20000);
        left = weir__queue_cancel_in_doubt(queue);
    }
    CHECK_EQ(left, 0);
    place_finish(&place, queue, 1);
}

/* Another handle of the process does not deliver them, though it claims first. */
TEST(in_doubt_put_is_not_delivered_by_others)
{
    struct place place;
    int counts[WEIR__DEFERRED_STATES] = {0};
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *puts = place_open(&place, (struct weir__queue_options){0});
    struct weir__queue *drains = place_open(&place, (struct weir__queue_options){0});
    CHECK_EQ(put_one(puts, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(claim_some(drains, 9, HOUR, &seen), 1);
    CHECK_EQ(end_delivered(drains, seen.items[0].ticket, 200), 0);
    put_without_reply(puts);
    for (int i = 0; i < 500 && !counts[WEIR__CANCELLED]; i++) {
        usleep(20000);
        CHECK(claim_some(drains, 9, HOUR, &seen) <= 0);
        (void)count(drains, counts);
    }
    CHECK_EQ(counts[WEIR__CANCELLED], 1);
    CHECK_EQ(counts[WEIR__DELIVERED], 1);
    CHECK_EQ(weir__queue_cancel_in_doubt(puts), 0);
    weir__queue_close(puts);
    weir__queue_close(drains);
    place_end(&place);
}

/* The list is bounded, and tickets of puts that were executed late are remembered for a while. */
TEST(in_doubt_list_is_bounded)
{
    static struct weir__in_doubt all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char tickets[2][WEIR__TICKET_LEN + 1], ticket[WEIR__TICKET_LEN + 1];
    for (int i = 0; i < WEIR__IN_DOUBT_MAX + 2; i++) {
        snprintf(ticket, sizeof ticket, "%032d", i);
        weir__in_doubt_add(&all, ticket, 1000);
    }
    CHECK_EQ(all.count, WEIR__IN_DOUBT_MAX);
    CHECK_EQ(weir__in_doubt_pending(&all, 0, tickets, 2), 2);
    CHECK_EQ(atoi(tickets[0]), 2);
    CHECK_EQ(weir__in_doubt_pending(&all, WEIR__IN_DOUBT_MAX - 1, tickets, 2), 1);
    weir__in_doubt_resolve(&all, tickets[0], 1000);
    weir__in_doubt_resolve(&all, tickets[0], 1000);
    weir__in_doubt_resolve(&all, "unknown", 1000);
    CHECK_EQ(weir__in_doubt_pending(&all, WEIR__IN_DOUBT_MAX - 2, &ticket, 1), 1);
    CHECK_EQ(weir__in_doubt_pending(&all, WEIR__IN_DOUBT_MAX - 1, &ticket, 1), 0);
    CHECK(weir__in_doubt_has(&all, tickets[0]));
    weir__in_doubt_add(&all, ticket, 1000 + WEIR__IN_DOUBT_LATE_MS);
    CHECK_EQ(all.count, WEIR__IN_DOUBT_MAX);
    CHECK_EQ(weir__in_doubt_pending(&all, WEIR__IN_DOUBT_MAX - 1, &ticket, 1), 1);
    CHECK_EQ(weir__in_doubt_pending(&all, 0, tickets, 1), 1);
    CHECK_EQ(atoi(tickets[0]), 2); /* only the executed one was removed */
}

TEST_MAIN
