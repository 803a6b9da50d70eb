/* The guarantees of the queue, case by case, on both storages. */
#include "queues.h"

#include "../../awake.h"

static struct seen seen;
static const struct weir__queue_bounds unbounded;

TEST(names_of_states_and_errors)
{
    CHECK(strcmp(weir__queue_strerror(WEIR__QUEUE_FULL), "the queue is full") == 0);
    CHECK(strcmp(weir__queue_strerror(-999), "unknown error") == 0);
    CHECK(strcmp(weir__deferred_state_name(WEIR__UNDER_WAY), "under_way") == 0);
    CHECK(strcmp(weir__deferred_state_name((enum weir__deferred_state)77), "unknown") == 0);
}

TEST(invalid_store_urls_are_refused)
{
    static const char *const urls[] = {"", "sqlite:", "mysql://x", "redis://", "redis://h:99999999", "/tmp/x"};
    char why[WEIR__QUEUE_SOURCE_TEXT];
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct weir__queue *queue = NULL;
        CHECK_EQ(weir__queue_open(&(struct weir__queue_options){.url = urls[i]}, &queue, why), WEIR__QUEUE_URL);
        CHECK(queue == NULL);
    }
    struct weir__queue *queue = NULL;
    CHECK_EQ(weir__queue_open(&(struct weir__queue_options){.url = NULL}, &queue, NULL), WEIR__QUEUE_URL);
    weir__queue_close(NULL);
}

BOTH(bounds_are_exact)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, on_redis, true);
    struct weir__deferred item = item_of("r", "k", "0123456789");
    int64_t size = weir__deferred_bytes(&item);
    struct weir__queue *queue =
        place_open(&place, (struct weir__queue_options){.bounds = {.max = 5, .max_bytes = 5 * size}});
    struct weir__queue_bounds two = {.max = 2}, bytes = {.max_bytes = 2 * size};
    CHECK_EQ(put_one(queue, item, two, NULL), 0);
    CHECK_EQ(put_one(queue, item, two, ticket), 0);
    CHECK_EQ(put_one(queue, item, two, NULL), WEIR__QUEUE_FULL);
    /* Another rule has its own bound: by bytes, exactly. */
    item.rule = text_of("s");
    CHECK_EQ(put_one(queue, item, bytes, NULL), 0);
    item.body = text_of("01234567890");
    CHECK_EQ(put_one(queue, item, bytes, NULL), WEIR__QUEUE_FULL);
    item.body = text_of("0123456789");
    CHECK_EQ(put_one(queue, item, bytes, NULL), 0);
    /* All rules together: by bytes, then by count. */
    item.rule = text_of("t");
    item.body = text_of("01234567890");
    CHECK_EQ(put_one(queue, item, unbounded, NULL), WEIR__QUEUE_FULL);
    item.body = text_of("");
    CHECK_EQ(put_one(queue, item, unbounded, NULL), 0);
    item.rule = text_of("u");
    CHECK_EQ(put_one(queue, item, unbounded, NULL), WEIR__QUEUE_FULL);
    /* Claimed requests count; finished ones do not. */
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 3);
    item.rule = text_of("r");
    CHECK_EQ(put_one(queue, item, two, NULL), WEIR__QUEUE_FULL);
    CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), 0);
    CHECK_EQ(put_one(queue, item, two, NULL), 0);
    CHECK_EQ(put_one(queue, item, two, NULL), WEIR__QUEUE_FULL);
    CHECK_EQ(weir__queue_change(queue, ticket, WEIR__ENDED_CANCELLED), 0);
    CHECK_EQ(put_one(queue, item, two, NULL), 0);
    weir__queue_close(queue);
    place_end(&place);
}

/* One batch with valid and invalid requests: each has its own result. */
BOTH(batch_has_a_result_for_each_request)
{
    struct place place;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    struct weir__deferred items[5] = {item_of("r", "k", "a"), item_of("", "k", "a"), item_of("r", "k", "b"),
                                      item_of("r", "k", "c"), item_of("r", "", "d")};
    struct weir__queue_bounds bounds[5] = {{.max = 2}, {0}, {.max = 2}, {.max = 2}, {.max = 3}};
    int errors[5];
    items[3].target = (weir_text){0};
    CHECK_EQ(put_all(queue, items, bounds, errors, 5), 0);
    static const int expected[5] = {0, WEIR__QUEUE_INVALID, 0, WEIR__QUEUE_INVALID, 0};
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(errors[i], expected[i]);
        CHECK_EQ(strlen(items[i].ticket), expected[i] ? 0 : WEIR__TICKET_LEN);
        CHECK_EQ(items[i].expires_ms, expected[i] ? 0 : INT64_MAX);
    }
    CHECK(items[0].sequence < items[2].sequence && items[2].sequence < items[4].sequence);
    /* All of them invalid: the storage is not accessed. */
    CHECK_EQ(put_all(queue, items + 1, bounds, errors, 1), 0);
    CHECK_EQ(errors[0], WEIR__QUEUE_INVALID);
    CHECK_EQ(put_all(queue, items, bounds, errors, 0), 0);
    weir__queue_close(queue);
    place_end(&place);
}

/* The largest request, and one byte more; many large ones in one batch. */
BOTH(largest_requests)
{
    struct place place;
    size_t size = WEIR__QUEUE_ITEM_MAX;
    char *bytes = malloc(size);
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    CHECK(bytes != NULL);
    memset(bytes, 'x', size);
    struct weir__deferred item = item_of("r", "k", "");
    item.body = (weir_text){bytes, size - (size_t)weir__deferred_bytes(&item) + 1};
    CHECK_EQ(put_one(queue, item, unbounded, NULL), WEIR__QUEUE_TOO_LARGE);
    item.body.len--;
    struct weir__deferred items[6];
    struct weir__queue_bounds bounds[6] = {{0}};
    int errors[6];
    for (int i = 0; i < 6; i++) {
        items[i] = item;
        items[i].key = (weir_text){&"012345"[i], 1};
        items[i].body.len -= 1;
    }
    CHECK_EQ(put_all(queue, items, bounds, errors, 6), 0);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(errors[i], 0);
    /* One claim is bounded by bytes, too, and has at least one request. */
    for (size_t delivered = 0; delivered < 6; delivered += seen.count) {
        CHECK(claim_some(queue, 10, HOUR, &seen) > 0);
        if (seen.count == 0)
            break;
        for (size_t i = 0; i < seen.count; i++) {
            CHECK_EQ(seen.items[i].body.len, items[delivered + i].body.len);
            CHECK_EQ(end_delivered(queue, seen.items[i].ticket, 200), 0);
        }
    }
    free(bytes);
    weir__queue_close(queue);
    place_end(&place);
}

/* Any bytes in any field: they are read back unchanged, and similar keys stay distinct. */
BOTH(any_bytes_are_stored_unchanged)
{
    static const char nasty[] = "'; DROP TABLE request;--\0\r\n$5\r\nEVAL\xff\xfe{x}\x80%s%n";
    weir_text bad = {nasty, sizeof nasty};
    weir_text keys[6] = {{"", 0}, {"\0", 1}, {"\0\0", 2}, bad, {"a", 1}, {"a\0", 2}};
    struct place place;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.name = "'; -- {}\r\n"});
    char tickets[6][WEIR__TICKET_LEN + 1];
    for (int i = 0; i < 6; i++) {
        struct weir__deferred item = {
            .rule = bad, .key = keys[i], .method = bad, .target = bad, .headers = bad, .body = bad};
        CHECK_EQ(put_one(queue, item, unbounded, tickets[i]), 0);
    }
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 6);
    for (int i = 0; i < 6; i++) {
        const struct weir__deferred *got = &seen.items[i];
        CHECK(strcmp(got->ticket, tickets[i]) == 0);
        CHECK(weir__text_equal(got->key, keys[i]));
        CHECK(weir__text_equal(got->rule, bad) && weir__text_equal(got->method, bad) &&
              weir__text_equal(got->target, bad) && weir__text_equal(got->headers, bad) &&
              weir__text_equal(got->body, bad));
    }
    char long_why[1000];
    memset(long_why, 0xc3, sizeof long_why - 1);
    long_why[sizeof long_why - 1] = '\0';
    CHECK_EQ(end_dead(queue, tickets[0], long_why, 599), 0);
    seen.count = 0;
    CHECK_EQ(weir__queue_find(queue, tickets[0], see, &seen), 0);
    CHECK_EQ(seen.items[0].why.len, WEIR__QUEUE_WHY_MAX);
    CHECK_EQ(seen.items[0].last_status, 599);
    CHECK(weir__text_equal(seen.items[0].body, bad));
    static const char *const wrong[] = {"", "x", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcde'",
                                        "0123456789abcdef0123456789abcdef0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(weir__queue_find(queue, wrong[i], see, &seen), WEIR__QUEUE_GONE);
        CHECK_EQ(weir__queue_change(queue, wrong[i], WEIR__ENDED_CANCELLED), WEIR__QUEUE_GONE);
    }
    weir__queue_close(queue);
    place_end(&place);
}

/* A claim ends after its time; a late result is refused, and the new claim stands. */
BOTH(claim_expires)
{
    struct place place;
    char ticket[WEIR__TICKET_LEN + 1];
    place_new(&place, on_redis, true);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){.name = "one", .lease_ms = 20});
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){.name = "two", .lease_ms = HOUR});
    CHECK_EQ(put_one(one, item_of("r", "k", "a"), unbounded, ticket), 0);
    CHECK_EQ(put_one(one, item_of("r", "k", "b"), unbounded, NULL), 0);
    CHECK_EQ(claim_some(one, 10, HOUR, &seen), 1);
    usleep(40000); /* the lease ends; the claim does not */
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 0);
    CHECK_EQ(end_delivered(two, ticket, 200), WEIR__QUEUE_LOST);
    CHECK_EQ(weir__queue_change(two, ticket, WEIR__ENDED_CANCELLED), WEIR__QUEUE_STATE);
    pass_claims(&place, HOUR);
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, ticket) == 0);
    CHECK_EQ(end_delivered(one, ticket, 200), WEIR__QUEUE_LOST);
    CHECK_EQ(end_again(one, ticket, 0, "x", 0, true), WEIR__QUEUE_LOST);
    CHECK_EQ(state_of(two, ticket), WEIR__UNDER_WAY);
    CHECK_EQ(end_delivered(two, ticket, 204), 0);
    CHECK_EQ(end_delivered(two, ticket, 204), WEIR__QUEUE_LOST);
    CHECK_EQ(claim_some(two, 10, HOUR, &seen), 1);
    CHECK(text_is(seen.items[0].body, "b"));
    weir__queue_close(one);
    weir__queue_close(two);
    place_end(&place);
}

/* Requests claimed by an agent that died wait again as soon as an agent of the same name opens the queue, and keep
 * their order. */
BOTH(agent_of_the_same_name_reclaims)
{
    struct place place;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.name = "host"});
    for (int i = 0; i < 3; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", (const char *[]){"a", "b", "c"}[i]), unbounded, NULL), 0);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 0);
    struct weir__queue *next = place_open(&place, (struct weir__queue_options){.name = "host"});
    CHECK_EQ(claim_some(next, 10, HOUR, &seen), 1);
    CHECK(text_is(seen.items[0].body, "a"));
    CHECK_EQ(seen.items[0].attempts, 0);
    CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), WEIR__QUEUE_LOST);
    CHECK_EQ(end_delivered(next, seen.items[0].ticket, 200), 0);
    CHECK_EQ(claim_some(next, 10, HOUR, &seen), 1);
    CHECK(text_is(seen.items[0].body, "b"));
    weir__queue_close(queue);
    weir__queue_close(next);
    place_end(&place);
}

/* Many results at once, more than fit into one transaction; each has its own error. */
BOTH(many_results_at_once)
{
    enum { MANY = 150 };
    static struct weir__queue_ending endings[MANY + 3];
    char keys[MANY][8];
    struct place place;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        CHECK_EQ(put_one(queue, item_of("r", keys[i], "x"), unbounded, NULL), 0);
    }
    static const enum weir__queue_end_kind kinds[] = {WEIR__ENDED_DELIVERED, WEIR__ENDED_RETRY, WEIR__ENDED_DEAD};
    static char tickets[MANY][WEIR__TICKET_LEN + 1];
    for (int i = 0; i < MANY;) { /* one claim has at most WEIR__QUEUE_CLAIM_MAX requests */
        CHECK_EQ(claim_some(queue, MANY, HOUR, &seen), i ? MANY - WEIR__QUEUE_CLAIM_MAX : WEIR__QUEUE_CLAIM_MAX);
        for (size_t j = 0; j < seen.count && i < MANY; j++, i++) {
            memcpy(tickets[i], seen.items[j].ticket, sizeof tickets[i]);
            endings[i] = (struct weir__queue_ending){
                .ticket = tickets[i], .kind = kinds[i % 3], .due_ms = clock_now + HOUR, .why = "so", .status = 500};
        }
        if (seen.count == 0)
            break;
    }
    endings[MANY] = endings[0]; /* a duplicate */
    endings[MANY + 1] = (struct weir__queue_ending){.ticket = "no ticket"};
    endings[MANY + 2] = (struct weir__queue_ending){.ticket = "00000000000000000000000000000000"};
    CHECK_EQ(weir__queue_end(queue, endings, MANY + 3), 0);
    static const enum weir__deferred_state states[] = {WEIR__DELIVERED, WEIR__WAITING, WEIR__DEAD};
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(endings[i].error, 0);
        CHECK_EQ(state_of(queue, endings[i].ticket), states[i % 3]);
    }
    CHECK_EQ(endings[MANY].error, WEIR__QUEUE_LOST);
    CHECK_EQ(endings[MANY + 1].error, WEIR__QUEUE_GONE);
    CHECK_EQ(endings[MANY + 2].error, WEIR__QUEUE_GONE);
    CHECK_EQ(claim_some(queue, MANY, HOUR, &seen), 0);
    CHECK_EQ(weir__queue_end(queue, endings, 0), 0);
    weir__queue_close(queue);
    place_end(&place);
}

/* Only one agent dispatches; the others take over when it closes or is silent for too long. */
TEST(one_agent_dispatches_redis)
{
    struct place place;
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *one = place_open(&place, (struct weir__queue_options){.name = "one", .lease_ms = HOUR});
    struct weir__queue *two = place_open(&place, (struct weir__queue_options){.name = "two", .lease_ms = HOUR});
    CHECK_EQ(put_one(two, item_of("r", "k", "a"), unbounded, NULL), 0);
    CHECK_EQ(put_one(two, item_of("r", "l", "b"), unbounded, NULL), 0);
    CHECK_EQ(claim_some(one, 1, HOUR, &seen), 1);
    CHECK_EQ(claim_some(two, 1, HOUR, &seen), WEIR__QUEUE_STANDBY);
    for (int i = 0; i < 4; i++) { /* longer in total than the lease */
        leave_of_lease(HOUR / 3);
        CHECK_EQ(claim_some(one, 1, HOUR, &seen), i == 0);
        CHECK_EQ(claim_some(two, 1, HOUR, &seen), WEIR__QUEUE_STANDBY);
        redisReply *left = server_reply("PTTL {weir:queue}:lease"); /* the lease is renewed */
        CHECK(left && left->integer > HOUR / 2 && left->integer <= HOUR);
        freeReplyObject(left);
    }
    leave_of_lease(0);
    CHECK_EQ(claim_some(two, 1, HOUR, &seen), 0);
    CHECK_EQ(claim_some(one, 1, HOUR, &seen), WEIR__QUEUE_STANDBY);
    weir__queue_close(two);
    CHECK_EQ(claim_some(one, 1, HOUR, &seen), 0);
    weir__queue_close(one);
    place_end(&place);
}

/* Puts many requests of one rule, each with a key of its own or all with the same. */
static void put_many(struct weir__queue *queue, int64_t many, bool own_keys)
{
    enum { BATCH = 500 };
    static struct weir__deferred items[BATCH];
    static struct weir__queue_bounds bounds[BATCH];
    static char keys[BATCH][24];
    static int errors[BATCH];
    for (int64_t done = 0; done < many; done += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            snprintf(keys[i], sizeof keys[i], "k%lld", own_keys ? (long long)done + i : 0);
            items[i] = item_of("r", keys[i], "some body of a request");
        }
        CHECK_EQ(put_all(queue, items, bounds, errors, BATCH), 0);
    }
}

/* 100,000 requests of one key: the cost of a claim depends on the heads only. */
BOTH(many_of_one_key)
{
    struct place place;
    int64_t many = test_scaled(100000, 5000), claims = 200;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.sync_second = true});
    put_many(queue, many, false);
    uint64_t last = 0;
    double begin = awake_seconds();
    for (int i = 0; i < claims; i++) {
        CHECK_EQ(claim_some(queue, 100, HOUR, &seen), 1);
        CHECK(seen.items[0].sequence > last);
        last = seen.items[0].sequence;
        CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), 0);
    }
    double took = awake_seconds() - begin;
    printf("  %d waiting: %.2f ms a claim and delivery\n", (int)many, took * 1000 / (double)claims);
    /* A scan of all of them would take longer, on an idle machine. */
    CHECK(took / (double)claims < 0.020 * (getenv("WEIR_TEST_SCALE") ? 10 : 1));
    weir__queue_close(queue);
    place_end(&place);
}

/*
 * 100,000 keys of one rule, all of them due: the cost of a claim depends on what it claims, and a rule that comes last
 * is served at once. The same if they wait for their next attempt.
 */
BOTH(many_keys)
{
    struct place place;
    int64_t many = test_scaled(100000, 5000), claims = 100;
    double took[2] = {0};
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.sync_second = true});
    put_many(queue, many, true);
    CHECK_EQ(claim_some(queue, 1, HOUR, &seen), 1); /* stays under way */
    for (int i = 0; i < claims; i++) {
        CHECK_EQ(put_one(queue, item_of("s", "k", "x"), unbounded, NULL), 0);
        double begin = awake_seconds();
        CHECK_EQ(claim_some(queue, 2, HOUR, &seen), 2);
        took[0] += awake_seconds() - begin;
        CHECK(text_is(seen.items[0].rule, "r") && text_is(seen.items[1].rule, "s"));
        CHECK_EQ(end_again(queue, seen.items[0].ticket, clock_now + 1000, "no", 0, false), 0);
        CHECK_EQ(end_delivered(queue, seen.items[1].ticket, 200), 0);
        begin = awake_seconds();
        CHECK_EQ(weir__queue_claim(
                     queue,
                     &(struct weir__claim_request){.now_ms = clock_now, .claim_ms = HOUR, .free = 1, .fair = true}, see,
                     &seen),
                 0);
        took[1] += awake_seconds() - begin;
    }
    printf("  %d keys: %.2f ms a claim of two, %.2f ms one that finds nothing it may have\n", (int)many,
           took[0] * 1000 / (double)claims, took[1] * 1000 / (double)claims);
    for (int i = 0; i < 2; i++)
        CHECK(took[i] / (double)claims < 0.020 * (getenv("WEIR_TEST_SCALE") ? 10 : 1));
    weir__queue_close(queue);
    place_end(&place);
}

/* How often a command was called since CONFIG RESETSTAT. */
static int64_t calls_of(const char *command)
{
    char name[64];
    redisReply *reply = server_reply("INFO commandstats");
    snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
    const char *at = strstr(reply->str, name);
    int64_t calls = at ? strtoll(at + strlen(name), NULL, 10) : 0;
    freeReplyObject(reply);
    return calls;
}

/* Claims all requests, and ends them. */
static void end_all(struct weir__queue *queue, enum weir__queue_end_kind kind)
{
    static struct weir__queue_ending endings[WEIR__QUEUE_CLAIM_MAX];
    while (claim_some(queue, WEIR__QUEUE_CLAIM_MAX, HOUR, &seen) > 0 && test_failures == 0) {
        for (size_t i = 0; i < seen.count; i++)
            endings[i] = (struct weir__queue_ending){.ticket = seen.items[i].ticket, .kind = kind, .status = 200};
        CHECK_EQ(weir__queue_end(queue, endings, seen.count), 0);
    }
}

static int note_oldest(void *context, const struct weir__queue_stats *stats)
{
    if (text_is(stats->rule, "r"))
        *(int64_t *)context = stats->oldest_ms;
    return 0;
}

/* The requests that match come after many others: the scan is split so that the server is not blocked, and finds them.
 */
TEST(list_scans_in_small_steps_redis)
{
    struct place place;
    int64_t oldest = 0;
    if (!server_begin())
        return;
    place_new(&place, true, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    put_many(queue, 3000, true);
    end_all(queue, WEIR__ENDED_DELIVERED);
    put_many(queue, 3000, true);
    end_all(queue, WEIR__ENDED_DEAD);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(put_one(queue, item_of("s", "k", "x"), unbounded, NULL), 0);
    end_all(queue, WEIR__ENDED_DELIVERED);
    clock_now += 7;
    CHECK_EQ(put_one(queue, item_of("r", "k", "x"), unbounded, NULL), 0);
    server_do("CONFIG RESETSTAT");
    for (int state = -1; state < WEIR__DEFERRED_STATES; state++) {
        struct weir__queue_filter filter = {.state = state, .rule = text_of("s"), .limit = 10};
        seen.count = 0;
        CHECK_EQ(weir__queue_list(queue, &filter, see, &seen), 0);
        CHECK_EQ(seen.count, state < 0 || state == WEIR__DELIVERED ? 5 : 0);
    }
    seen.count = 0;
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = WEIR__WAITING, .limit = 10}, see, &seen), 0);
    CHECK_EQ(seen.count, 1);
    CHECK_EQ(weir__queue_stats(queue, note_oldest, &oldest), 0);
    CHECK_EQ(oldest, clock_now);
    int64_t looks = calls_of("hmget"), scripts = calls_of("evalsha");
    printf("  %d looks in %d scripts\n", (int)looks, (int)scripts);
    CHECK(looks > 10000 && looks / scripts < 1000);
    weir__queue_close(queue);
    place_end(&place);
}

/* The clock is set back by an hour: requests that wait for their next attempt wait for minutes at most, and in order.
 */
BOTH(clock_is_set_back)
{
    struct place place;
    char tickets[3][WEIR__TICKET_LEN + 1];
    int64_t was = clock_now;
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < 3; i++)
        CHECK_EQ(put_one(queue, item_of("r", i < 2 ? "k" : "l", "x"), unbounded, tickets[i]), 0);
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 2);
    CHECK_EQ(end_again(queue, tickets[0], clock_now + 300000, "no", 503, true), 0);
    /* Beyond the maximal wait: cut to the maximum. */
    CHECK_EQ(end_again(queue, tickets[2], clock_now + 20 * HOUR, "no", 503, true), 0);
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 0);
    clock_now = was + 299999;
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 0);
    clock_now = was - 30000; /* a little, as NTP does */
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, tickets[2]) == 0);
    clock_now = was - HOUR;
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 1);
    CHECK(strcmp(seen.items[0].ticket, tickets[0]) == 0);
    CHECK_EQ(end_delivered(queue, tickets[0], 200), 0);
    CHECK_EQ(claim_some(queue, 9, 9 * HOUR, &seen), 1); /* still due */
    CHECK(strcmp(seen.items[0].ticket, tickets[1]) == 0);
    clock_now = was;
    weir__queue_close(queue);
    place_end(&place);
}

/* ---- Aside ---- */

#define ASIDE 500

/* Requests that wait aside delay no other, are tried once for their whole group, and return in order. */
BOTH(requests_aside_delay_no_other)
{
    struct place place;
    char tickets[2][WEIR__TICKET_LEN + 1], first[WEIR__TICKET_LEN + 1] = "";
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){0});
    for (int i = 0; i < ASIDE; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", "bad"), unbounded, i ? NULL : first), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(put_one(queue, item_of("r", "k", "good"), unbounded, tickets[i]), 0);
    int64_t due = clock_now + 30000;
    for (int i = 0; i < ASIDE; i++) {
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
        CHECK(text_is(seen.items[0].body, "bad"));
        CHECK_EQ(end_aside(queue, seen.items[0].ticket, due, 7), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
        CHECK(strcmp(seen.items[0].ticket, tickets[i]) == 0);
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 0); /* still one at a time */
        CHECK_EQ(end_delivered(queue, tickets[i], 200), 0);
    }
    clock_now = due - 1;
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 0);
    /* One stands for its group: if it is denied again, the others are not tried. */
    for (int i = 0; i < 3; i++) {
        clock_now = due;
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
        CHECK(strcmp(seen.items[0].ticket, first) == 0);
        due += 30000;
        CHECK_EQ(end_aside(queue, first, due, 7), 0);
        for (clock_now += 100; clock_now < due; clock_now += 9967)
            CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 0);
    }
    /* The rule allows again: all of them, in order, before a later one; also after the first was cancelled. */
    CHECK_EQ(weir__queue_change(queue, first, WEIR__ENDED_CANCELLED), 0);
    CHECK_EQ(put_one(queue, item_of("r", "k", "late"), unbounded, tickets[0]), 0);
    clock_now = due;
    uint64_t last = 0;
    for (int i = 0; i < ASIDE; i++) {
        CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 1);
        CHECK(seen.items[0].sequence > last);
        CHECK(text_is(seen.items[0].body, i == ASIDE - 1 ? "late" : "bad"));
        last = seen.items[0].sequence;
        CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), 0);
    }
    CHECK_EQ(claim_some(queue, 10, HOUR, &seen), 0);
    weir__queue_close(queue);
    place_end(&place);
}

TEST_MAIN
