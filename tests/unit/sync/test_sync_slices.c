/*
 * A round in slices. Time is counted in sixteenths of an interval, and passes by weir__sync_slices; the store's
 * latency adds to it, which in most tests is a tiny part of a long interval.
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
static int64_t used_since[KEYS]; /* time of the oldest delta that is not sent yet; -1: all are sent */
static int64_t longest;          /* longest wait of a delta */
static unsigned exchanged[KEYS]; /* number of ops by key */
static useconds_t pause_us;      /* latency of the store per request */
static uint64_t refused_every;   /* every so many requests are refused; 0: none */

/* ---- A store that counts the ops by key ---- */

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
    store.fate = refused_every ? REPLIES : store.fate;
    for (uint32_t i = 0; i < request->op_count && !error; i++) {
        int key = request->ops[i].kind == WEIR__OP_EXCHANGE ? key_of(&request->ops[i]) : -1;
        if (key < 0)
            continue;
        exchanged[key]++;
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
    memset(exchanged, 0, sizeof exchanged);
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
        CHECK_EQ(host_check(&host, line, 1), 1);
        used_since[key] = used_since[key] < 0 ? now : used_since[key];
    }
}

/* Waits until the next step is due, and runs it. */
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

/* ---- Slices, and every key once ---- */

TEST(busy_host_exchanges_each_key_once_an_interval_in_small_slices)
{
    begin(LONG_MS);
    step_until(16, KEYS);
    for (int round = 0; round < 3; round++) {
        memset(exchanged, 0, sizeof exchanged);
        for (int i = 0; i < 16; i++) {
            use(0, KEYS);
            uint64_t before = store.ops;
            CHECK_EQ(step(), 0);
            CHECK(store.ops - before < KEYS / 16 * 2);
        }
        for (int key = 0; key < KEYS; key++)
            CHECK_EQ(exchanged[key], 1);
    }
    CHECK(longest <= INTERVAL);
    end();
}

TEST(number_of_slices_follows_the_work)
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

/* An idle host has one step an interval, without any op. */
TEST(idle_host_sleeps)
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
TEST(no_key_waits_longer_than_an_interval)
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
            /* Missed slices are made up for in the next step. */
            unsigned slices = weir__sync_slices(host.sync), left = slices - host.sync->slice;
            unsigned count = test_random(&seed) % 5 ? 1 : 1 + (unsigned)(test_random(&seed) % left);
            now += INTERVAL / slices * count;
            CHECK_EQ(weir__sync_step(host.sync, count), 0);
            /* A step of several slices is late for the first of them by the others. */
            CHECK(longest <= INTERVAL + INTERVAL / slices * (count - 1));
            longest = 0;
            seen |= weir__sync_slices(host.sync);
        }
    }
    CHECK_EQ(seen, 31); /* 1, 2, 4, 8 and 16 */
    CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(store.taken, host.admitted);
    CHECK_EQ(host_unsent(&host), 0);
    end();
}

TEST(step_takes_at_most_the_remaining_slices)
{
    begin(LONG_MS);
    step_until(4, 400);
    CHECK_EQ(weir__sync_step(host.sync, 3), 0);
    use(0, 400);
    CHECK_EQ(weir__sync_step(host.sync, 1000), 0);
    CHECK_EQ(host.sync->slice, 0);
    use(0, 400);
    CHECK_EQ(weir__sync_step(host.sync, 1000), 0);
    CHECK_EQ(host_unsent(&host), 0);
    end();
}

/* ---- Failures ---- */

TEST(failed_slice_ends_the_round_and_is_resent)
{
    static const enum fate fates[] = {REFUSES, LOSES_REPLY};
    for (size_t k = 0; k < sizeof fates / sizeof *fates; k++) {
        begin(LONG_MS);
        step_until(16, KEYS);
        for (int i = 0; i < 5; i++)
            CHECK_EQ(step(), 0);
        store.fate = fates[k];
        for (int failed = 1; failed <= 3; failed++) {
            use(0, KEYS);
            CHECK(step() != 0);
            CHECK_EQ(weir__sync_slices(host.sync), 1); /* and the retry is not sooner than before */
            CHECK(is_down(&host) == (failed == 3));
        }
        store.fate = REPLIES;
        CHECK_EQ(step(), 0);
        CHECK(!is_down(&host));
        CHECK_EQ(weir__sync_round(host.sync), 0);
        CHECK_EQ(store.taken, host.admitted);
        CHECK_EQ(host_unsent(&host), 0);
        step_until(16, KEYS);
        end();
    }
}

/* Each round re-sends the batch that failed before, and fails with the next: all keys get their turn. */
TEST(host_that_fails_in_every_round_reaches_every_key)
{
    begin(LONG_MS);
    refused_every = 2;
    for (int i = 0; i < 200; i++) {
        use(0, KEYS);
        host.sync->batch_max = 64;
        (void)!step();
    }
    for (int key = 0; key < KEYS; key++)
        CHECK(exchanged[key] > 0);
    refused_every = 0;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(host_unsent(&host), 0);
    CHECK_EQ(store.taken, host.admitted);
    end();
}

/* Only the deltas it sends first have accumulated in that time. */
TEST(stopped_agent_sends_everything_in_one_step)
{
    begin(1000);
    step_until(16, KEYS);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(step(), 0);
    CHECK(host.sync->slice > 0);
    use(0, KEYS);
    host.sync->round_ms -= 20000; /* all usage is older than that */
    host.sync->ledger->header->acked_ms -= 20000;
    CHECK_EQ(step(), 0);
    CHECK(host.sync->late_us >= 20000000);
    CHECK_EQ(host_unsent(&host), 0);
    use(0, KEYS);
    CHECK_EQ(step(), 0);
    CHECK_EQ(host.sync->late_us, 0);
    end();
}

TEST(agents_killed_between_and_during_slices)
{
    uint64_t seed = 9;
    begin(LONG_MS);
    unsigned seen = 0;
    for (int64_t i = 0; i < test_scaled(800, 200); i++) {
        int keys = (int)(test_random(&seed) % KEYS);
        use((int)(test_random(&seed) % (uint64_t)(KEYS - keys + 1)), keys);
        uint64_t chance = test_random(&seed) % 40;
        store.fate = chance == 0 ? REFUSES : chance == 1 ? LOSES_REPLY : REPLIES;
        (void)!step(); /* a failed batch is kept in the ledger: so is one during which the agent was killed */
        seen |= host.sync->slice ? weir__sync_slices(host.sync) : 0;
        if (test_random(&seed) % 30 == 0) {
            weir__sync_free(host.sync);
            start(LONG_MS);
        }
    }
    CHECK(seen & 16);
    store.fate = REPLIES;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weir__sync_round(host.sync), 0);
    CHECK_EQ(host_unsent(&host), 0);
    CHECK_EQ(store.taken, host.admitted);
    end();
}

/* ---- Slow stores ---- */

TEST(distant_store_gets_no_more_requests)
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

TEST(host_that_falls_behind_returns_to_one_slice)
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
