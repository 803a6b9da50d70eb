/*
 * A round in slices. Time is counted in sixteenths of an interval, and passes as weir__sync_slices says; what is
 * measured besides is the store's time, which in most tests is next to nothing of a long interval.
 */
#include "hosts.h"

#include <unistd.h>

#define RULES    "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, limit: 1000000, window: 30d}]\n"
#define KEYS     2000
#define INTERVAL 16
#define LONG_MS  10000

static struct fake_store store;
static struct host host;
static int64_t now;
static int64_t used_since[KEYS]; /* what is not told yet; -1: all is */
static int64_t longest;          /* that something waited */
static unsigned asked[KEYS];     /* times */
static useconds_t pause_us;      /* that the store takes for a request */
static uint64_t refused_every;   /* so many requests; 0: none is */

/* ---- A store that remembers who was asked for ---- */

static int key_of(const struct weir__store_op *op)
{
    static const char front[] = "weir:a:10.0.";
    char name[WEIR__STORE_NAME_MAX + 1], *dot;
    snprintf(name, sizeof name, "%.*s", (int)op->name_len, op->name);
    if (strncmp(name, front, sizeof front - 1) != 0)
        return -1;
    long high = strtol(name + sizeof front - 1, &dot, 10), key = high * 250 + strtol(dot + 1, NULL, 10);
    CHECK(*dot == '.' && key >= 0 && key < KEYS);
    return (int)key;
}

static int send_request(void *context, struct weir__store_request *request)
{
    if (pause_us)
        usleep(pause_us);
    if (refused_every && store.requests % refused_every == refused_every - 1)
        store.fate = REFUSES;
    int error = fake_send(context, request);
    store.fate = refused_every ? ANSWERS : store.fate;
    for (uint32_t i = 0; i < request->op_count && !error; i++) {
        int key = request->ops[i].kind == WEIR__OP_EXCHANGE ? key_of(&request->ops[i]) : -1;
        if (key < 0)
            continue;
        asked[key]++;
        int64_t waited = used_since[key] < 0 ? 0 : now - used_since[key];
        longest = waited > longest ? waited : longest;
        used_since[key] = -1;
    }
    return error;
}

static void start(uint64_t interval_ms)
{
    host_start_sync(&host);
    host.sync->with.interval_ms = interval_ms;
}

static void begin(uint64_t interval_ms)
{
    weir_options kind = {.segment = {.size = 4 << 20},
                         .rules_text = RULES,
                         .store = "redis://127.0.0.1:1",
                         .flags = WEIR_NO_CONNECT,
                         .ledger = "",
                         .ledger_bytes = 1 << 20};
    hosts_time = 0;
    now = 0;
    longest = 0;
    pause_us = 0;
    refused_every = 0;
    memset(used_since, -1, sizeof used_since);
    memset(asked, 0, sizeof asked);
    fake_store_make(&store);
    host = (struct host){.send_request = send_request, .send_context = &store, .now = hosts_now};
    CHECK_EQ(weir_open(&kind, &host.engine), 0);
    start(interval_ms);
}

static void end(void)
{
    host_free(&host);
    fake_store_free(&store);
}

static void use(int first, int count)
{
    for (int key = first; key < first + count; key++) {
        char line[64];
        snprintf(line, sizeof line, "GET / ip=10.0.%d.%d", key / 250, key % 250);
        CHECK_EQ(host_ask(&host, line, 1), 1);
        used_since[key] = used_since[key] < 0 ? now : used_since[key];
    }
}

/* Waits for the moment of the next step, and takes it. */
static int step(void)
{
    now += INTERVAL / weir__sync_slices(host.sync);
    return weir__sync_step(host.sync, 1);
}

static void step_until(unsigned slices, int keys)
{
    for (int i = 0; i < 200 && weir__sync_slices(host.sync) != slices; i++) {
        use(0, keys);
        CHECK_EQ(step(), 0);
    }
    CHECK_EQ(weir__sync_slices(host.sync), slices);
}

/* ---- Spread, and every key once ---- */

TEST(a_busy_host_asks_for_each_key_once_an_interval_and_for_few_at_once)
{
    begin(LONG_MS);
    step_until(16, KEYS);
    for (int round = 0; round < 3; round++) {
        memset(asked, 0, sizeof asked);
        for (int i = 0; i < 16; i++) {
            use(0, KEYS);
            uint64_t before = store.ops;
            CHECK_EQ(step(), 0);
            CHECK(store.ops - before < KEYS / 16 * 2);
        }
        for (int key = 0; key < KEYS; key++)
            CHECK_EQ(asked[key], 1);
    }
    CHECK(longest <= INTERVAL);
    end();
}

TEST(there_are_as_many_parts_as_there_is_to_do)
{
    static const struct {
        int keys;
        unsigned slices;
    } cases[] = {{0, 1}, {1, 1}, {120, 1}, {200, 2}, {400, 4}, {900, 8}, {1900, 16}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin(LONG_MS);
        for (int i = 0; i < 80; i++) {
            use(0, cases[k].keys);
            CHECK_EQ(step(), 0);
        }
        CHECK_EQ(weir__sync_slices(host.sync), cases[k].slices);
        end();
    }
}

/* An idle host has one step an interval, and it ops for nothing. */
TEST(who_has_nothing_to_do_sleeps)
{
    begin(LONG_MS);
    step_until(16, KEYS);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(step(), 0);
    CHECK_EQ(weir__sync_slices(host.sync), 1);
    store.ops = 0;
    for (int i = 0; i < 20; i++)
        CHECK_EQ(step(), 0);
    CHECK_EQ(store.ops, 0);
    end();
}

/* Whatever the load does, and also if steps come too late. */
TEST(no_key_waits_for_longer_than_an_interval)
{
    uint64_t seed = 5;
    begin(LONG_MS);
    unsigned seen = 0;
    for (int64_t i = 0; i < test_scaled(150, 40); i++) {
        int keys = test_random(&seed) % 3 ? (int)(test_random(&seed) % KEYS) : (int)(test_random(&seed) % 100);
        int first = (int)(test_random(&seed) % (uint64_t)(KEYS - keys + 1));
        uint64_t steps = test_random(&seed) % 60;
        for (uint64_t k = 0; k < steps; k++) {
            use(first, keys);
            /* Those that were missed are made up for in the step after them. */
            unsigned slices = weir__sync_slices(host.sync), left = slices - host.sync->slice;
            unsigned count = test_random(&seed) % 5 ? 1 : 1 + (unsigned)(test_random(&seed) % left);
            now += INTERVAL / slices * count;
            CHECK_EQ(weir__sync_step(host.sync, count), 0);
            /* One that takes several slices comes late for the first of them by these. */
            CHECK(longest <= INTERVAL + INTERVAL / slices * (count - 1));
            longest = 0;
            seen |= weir__sync_slices(host.sync);
        }
    }
    CHECK_EQ(seen, 31); /* 1, 2, 4, 8 and 16 */
    CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(store.taken, host.admitted);
    CHECK_EQ(host_untold(&host), 0);
    end();
}

TEST(more_parts_than_are_left_are_those_that_are_left)
{
    begin(LONG_MS);
    step_until(4, 400);
    CHECK_EQ(weir__sync_step(host.sync, 3), 0);
    use(0, 400);
    CHECK_EQ(weir__sync_step(host.sync, 1000), 0);
    CHECK_EQ(host.sync->slice, 0);
    use(0, 400);
    CHECK_EQ(weir__sync_step(host.sync, 1000), 0);
    CHECK_EQ(host_untold(&host), 0);
    end();
}

/* ---- When it goes wrong ---- */

TEST(a_part_that_fails_ends_the_round_and_all_is_told_again)
{
    static const enum fate fates[] = {REFUSES, LOSES_ANSWER};
    for (size_t k = 0; k < sizeof fates / sizeof *fates; k++) {
        begin(LONG_MS);
        step_until(16, KEYS);
        for (int i = 0; i < 5; i++)
            CHECK_EQ(step(), 0);
        store.fate = fates[k];
        for (int failed = 1; failed <= 3; failed++) {
            use(0, KEYS);
            CHECK(step() != 0);
            CHECK_EQ(weir__sync_slices(host.sync), 1); /* and no sooner tried again than before */
            CHECK(is_down(&host) == (failed == 3));
        }
        store.fate = ANSWERS;
        CHECK_EQ(step(), 0);
        CHECK(!is_down(&host));
        CHECK_EQ(weir__sync_round(host.sync), 0);
        CHECK_EQ(store.taken, host.admitted);
        CHECK_EQ(host_untold(&host), 0);
        step_until(16, KEYS);
        end();
    }
}

/* Each round tells the batch that failed before, and fails with the next: all keys take turns. */
TEST(who_fails_in_every_round_comes_to_every_key)
{
    begin(LONG_MS);
    refused_every = 2;
    for (int i = 0; i < 200; i++) {
        use(0, KEYS);
        host.sync->batch_max = 64;
        (void)!step();
    }
    for (int key = 0; key < KEYS; key++)
        CHECK(asked[key] > 0);
    refused_every = 0;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(host_untold(&host), 0);
    CHECK_EQ(store.taken, host.admitted);
    end();
}

/* Only what it tells first has come together in that time. */
TEST(who_was_stopped_tells_everything_at_once)
{
    begin(1000);
    step_until(16, KEYS);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(step(), 0);
    CHECK(host.sync->slice > 0);
    use(0, KEYS);
    host.sync->round_ms -= 20000; /* all that was is longer ago */
    host.sync->ledger->header->acked_ms -= 20000;
    CHECK_EQ(step(), 0);
    CHECK(host.sync->late_us >= 20000000);
    CHECK_EQ(host_untold(&host), 0);
    use(0, KEYS);
    CHECK_EQ(step(), 0);
    CHECK_EQ(host.sync->late_us, 0);
    end();
}

TEST(agents_that_are_killed_between_parts_and_in_them)
{
    uint64_t seed = 9;
    begin(LONG_MS);
    unsigned seen = 0;
    for (int64_t i = 0; i < test_scaled(800, 200); i++) {
        int keys = (int)(test_random(&seed) % KEYS);
        use((int)(test_random(&seed) % (uint64_t)(KEYS - keys + 1)), keys);
        uint64_t chance = test_random(&seed) % 40;
        store.fate = chance == 0 ? REFUSES : chance == 1 ? LOSES_ANSWER : ANSWERS;
        (void)!step(); /* a batch that failed is in_flight: so is one in which the agent was killed */
        seen |= host.sync->slice ? weir__sync_slices(host.sync) : 0;
        if (test_random(&seed) % 30 == 0) {
            weir__sync_free(host.sync);
            start(LONG_MS);
        }
    }
    CHECK(seen & 16);
    store.fate = ANSWERS;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(host_untold(&host), 0);
    CHECK_EQ(store.taken, host.admitted);
    end();
}

/* ---- Stores that take their time ---- */

TEST(a_store_that_is_far_away_is_not_asked_more_often)
{
    begin(50);
    pause_us = 30000;
    for (int i = 0; i < 5; i++) {
        use(0, KEYS);
        CHECK_EQ(step(), 0);
        CHECK_EQ(weir__sync_slices(host.sync), 1);
    }
    end();
}

TEST(who_falls_behind_has_one_part_again)
{
    begin(LONG_MS);
    step_until(8, KEYS);
    host.sync->with.interval_ms = 4;
    pause_us = 3000;
    for (int i = 0; i < 8; i++) {
        use(0, KEYS);
        CHECK_EQ(step(), 0);
    }
    CHECK_EQ(weir__sync_slices(host.sync), 1);
    end();
}

TEST_MAIN
