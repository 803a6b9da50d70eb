/* The dispatcher on a private queue: which requests are in flight while clocks jump and rules change. */
#include "../../engine.h"
#include "../../failing.h"
#include "../../private_dir.h"
#include "put_all.h"
#include "queue/ingest_internal.h"
#include "queue/dispatcher_internal.h"

#include <unistd.h>

#define COUNT 3

static const char rules[] = "rules:\n  - { name: api, match: { path: /* }, key: ip, limit: 100, window: 1s }\n";

static char folder[64], url[128];
static struct weir__config config;
static const struct weir__logger test_log = {.file = 2};
static struct weir__dispatcher dispatcher;
static char tickets[COUNT][WEIR__TICKET_LEN + 1];

static weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

static size_t most_memory = SIZE_MAX; /* of one allocation */
FAILING_MALLOC(size > most_memory)

/* Puts requests of one rule and key. */
static void begin(const char *rule)
{
    struct weir__deferred items[COUNT];
    struct weir__queue_bounds bounds[COUNT] = {0};
    int errors[COUNT];
    snprintf(folder, sizeof folder, "%s/weir-dispatcher-XXXXXX", private_root());
    CHECK(mkdtemp(folder) != NULL);
    snprintf(url, sizeof url, "sqlite:%s/queue.db", folder);
    config = (struct weir__config){.state_path = folder, .queue = {.wanted = true, .database = url, .retries = 8}};
    dispatcher = (struct weir__dispatcher){.config = &config,
                                           .log = &test_log,
                                           .engine = test_engine(rules),
                                           .to = {.url = "http://127.0.0.1:9", .timeout_ms = 60000},
                                           .lock_fd = -1,
                                           .multi = curl_multi_init()};
    struct weir__queue_options options = {.url = url, .name = "test"};
    CHECK_EQ(weir__queue_open(&options, &dispatcher.queue, NULL), 0);
    for (size_t i = 0; i < COUNT; i++)
        items[i] = (struct weir__deferred){.rule = text_of(rule),
                                           .key = text_of("192.0.2.1"),
                                           .cost = 1,
                                           .method = text_of("POST"),
                                           .target = text_of("/x")};
    CHECK_EQ(put_all(dispatcher.queue, items, bounds, errors, COUNT), 0);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(tickets[i], items[i].ticket, sizeof tickets[i]);
}

static void end(void)
{
    char command[128];
    weir__dispatcher_close(&dispatcher);
    weir_close(dispatcher.engine);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(system(command), 0);
}

static int in_flight(void)
{
    int count = 0;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++)
        count += dispatcher.delivery[i].state != WEIR__DELIVERY_FREE;
    return count;
}

static int note(void *context, const struct weir__deferred *item)
{
    struct weir__deferred *seen = context;
    seen->state = item->state;
    seen->due_ms = item->due_ms;
    seen->attempts = item->attempts;
    return 0;
}

static struct weir__deferred state_of(const char *ticket)
{
    struct weir__deferred seen = {0};
    CHECK_EQ(weir__queue_find(dispatcher.queue, ticket, note, &seen), 0);
    return seen;
}

/* The claim has ended by the clock and is this dispatcher's own again: the request must not be delivered twice at the
 * same time. */
TEST(clock_jump_causes_no_double_delivery)
{
    begin("api");
    int64_t now = weir__dispatcher_clock_ms();
    weir__dispatcher_claim(&dispatcher, now);
    CHECK_EQ(in_flight(), 1);
    for (int hour = 1; hour < 4; hour++) {
        weir__dispatcher_claim(&dispatcher, now + hour * INT64_C(3600000));
        CHECK_EQ(in_flight(), 1);
        CHECK_EQ(state_of(tickets[0]).state, WEIR__UNDER_WAY);
        CHECK_EQ(state_of(tickets[1]).state, WEIR__WAITING);
    }
    /* The result of the delivery counts as always, and then the delivery is over. */
    weir__dispatcher_requeue_all(&dispatcher);
    CHECK_EQ(in_flight(), 0);
    CHECK_EQ(state_of(tickets[0]).state, WEIR__WAITING);
    CHECK_EQ(state_of(tickets[0]).attempts, 0);
    end();
}

/* A claimed request that cannot be copied waits again, and does not count against its rule's share. */
TEST(claim_without_memory_is_given_back)
{
    begin("api");
    most_memory = 0;
    weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
    most_memory = SIZE_MAX;
    CHECK_EQ(in_flight(), 0);
    CHECK_EQ(state_of(tickets[0]).state, WEIR__WAITING);
    CHECK_EQ(state_of(tickets[0]).attempts, 0);
    CHECK(state_of(tickets[0]).due_ms > weir__dispatcher_clock_ms());
    end();
}

TEST(clock_set_back_delays_nothing)
{
    begin("api");
    weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
    CHECK_EQ(dispatcher.delivery[0].state, WEIR__DELIVERY_DELAYED);
    dispatcher.delivery[0].begins_ms += 3600000;
    (void)weir__dispatcher_poll_timers(&dispatcher, weir__dispatcher_clock_ms());
    CHECK_EQ(dispatcher.delivery[0].state, WEIR__DELIVERY_SENT);
    weir__dispatcher_requeue_all(&dispatcher);
    end();
}

/* The queue was removed, and no new one can be opened for a while: results are kept until one is open. */
TEST(results_are_kept_until_a_queue_is_open)
{
    begin("api");
    weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
    CHECK_EQ(in_flight(), 1);
    weir__queue_close(dispatcher.queue);
    dispatcher.queue = NULL;
    weir__dispatcher_requeue_all(&dispatcher);
    CHECK_EQ(dispatcher.delivery[0].state, WEIR__DELIVERY_ENDED);
    snprintf(url, sizeof url, "sqlite:%s/other.db", folder);
    CHECK_EQ(weir__queue_open(&(struct weir__queue_options){.url = url, .name = "test"}, &dispatcher.queue, NULL), 0);
    weir__dispatcher_commit(&dispatcher);
    CHECK_EQ(in_flight(), 0);
    end();
}

/* On a single host the rule is unknown; in a fleet, whose hosts change their rules one after the other, other hosts
 * may know it. */
TEST(request_of_an_unknown_rule)
{
    begin("gone");
    weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
    CHECK_EQ(state_of(tickets[0]).state, WEIR__DEAD);
    config.queue.database = NULL;
    int64_t now = weir__dispatcher_clock_ms();
    weir__dispatcher_claim(&dispatcher, now);
    CHECK_EQ(in_flight(), 0);
    CHECK_EQ(state_of(tickets[1]).state, WEIR__WAITING);
    CHECK(state_of(tickets[1]).due_ms > now + 1000);
    CHECK_EQ(state_of(tickets[1]).attempts, 0);
    end();
}

/* ---- Another rule denies ---- */

#define BAD  12
#define GOOD 2
#define DAY  "X-Weir-Others: 646179." /* day */

static const char shared[] = "rules:\n"
                             "  - { name: shared, match: { path: /* }, limit: 1000, window: 1s }\n"
                             "  - { name: day, match: { path: /* }, key: user_id, limit: 1, window: 1d,"
                             " algorithm: fixed_window, align: first_request }\n";

static struct weir__deferred of_user(const char *headers)
{
    return (struct weir__deferred){.rule = text_of("shared"),
                                   .key = text_of("*"),
                                   .cost = 1,
                                   .method = text_of("POST"),
                                   .target = text_of("/x"),
                                   .headers = text_of(headers)};
}

/* Delivers the claimed requests. */
static void deliver(void)
{
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        if (dispatcher.delivery[i].state == WEIR__DELIVERY_FREE)
            continue;
        dispatcher.delivery[i].state = WEIR__DELIVERY_ENDED;
        dispatcher.delivery[i].end = (struct weir__queue_ending){
            .ticket = dispatcher.delivery[i].item.ticket, .kind = WEIR__ENDED_DELIVERED, .status = 200};
    }
    weir__dispatcher_commit(&dispatcher);
}

/* A client without quota does not delay the others of a shared rule; its own requests wait in order, without repeated
 * attempts. */
TEST(client_without_quota_delays_no_other)
{
    struct weir__deferred items[BAD + GOOD];
    struct weir__queue_bounds bounds[BAD + GOOD] = {0};
    int errors[BAD + GOOD];
    int64_t now = weir__dispatcher_clock_ms();
    begin("gone");
    weir_close(dispatcher.engine);
    dispatcher.engine = test_engine(shared);
    config.queue.database = url;
    for (size_t i = 0; i < BAD; i++) /* in two tiers */
        items[i] = of_user(i % 3 ? DAY "626164..1\r\n" : DAY "626164.70.1\r\n");
    items[BAD] = of_user(DAY "676f6f64..1\r\n");
    items[BAD + 1] = of_user(DAY "6f74686572..1\r\n");
    CHECK_EQ(put_all(dispatcher.queue, items, bounds, errors, BAD + GOOD), 0);
    for (int i = 0; i < BAD + GOOD + COUNT + 2; i++) {
        weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
        deliver();
    }
    CHECK_EQ(state_of(items[0].ticket).state, WEIR__DELIVERED);
    for (size_t i = 1; i < BAD; i++) {
        CHECK_EQ(state_of(items[i].ticket).state, WEIR__WAITING);
        CHECK(state_of(items[i].ticket).due_ms >= now + 20000);
        CHECK_EQ(state_of(items[i].ticket).due_ms, state_of(items[1].ticket).due_ms);
    }
    CHECK_EQ(state_of(items[BAD].ticket).state, WEIR__DELIVERED);
    CHECK_EQ(state_of(items[BAD + 1].ticket).state, WEIR__DELIVERED);
    /* No check is made for them until then. */
    uint64_t requeued = dispatcher.counts.requeued;
    for (int i = 0; i < 5; i++)
        weir__dispatcher_claim(&dispatcher, weir__dispatcher_clock_ms());
    CHECK_EQ(dispatcher.counts.requeued, requeued);
    CHECK_EQ(in_flight(), 0);
    end();
}

/* Internal addresses are not disclosed to clients. */
TEST(ticket_discloses_no_addresses)
{
    char json[WEIR__TICKET_JSON_MAX];
    struct weir__deferred item = {.ticket = "0123456789abcdef0123456789abcdef",
                                  .rule = text_of("api"),
                                  .accepted_ms = 1,
                                  .attempts = 1,
                                  .why = text_of("no answer: Failed to connect to 10.1.2.3 port 9000")};
    CHECK_EQ(weir__ticket_json(json, &item), 0);
    CHECK(strstr(json, "\"why\":\"no answer\"") && !strstr(json, "10.1.2.3"));
    item.why = text_of("its limit is reached");
    CHECK_EQ(weir__ticket_json(json, &item), 0);
    CHECK(strstr(json, "\"why\":\"its limit is reached\"") != NULL);
}

TEST_MAIN
