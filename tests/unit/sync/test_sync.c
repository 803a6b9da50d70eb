/* The exchange, with a store that can be made to fail and a clock that stands still. */
#include "base/clock.h"
#include "hosts.h"

#include <weir/store.h>

#include <pthread.h>

#define RULE(more) "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, " more "}]\n"
#define REQUEST    "GET / ip=192.0.2.1"
#define KEY        "192.0.2.1"

static struct fake_store store;
static struct host hosts[HOSTS_MAX];

static void begin(const char *rules, int count)
{
    hosts_time = 0;
    fake_store_make(&store);
    for (int i = 0; i < count; i++)
        host_make(&hosts[i], rules, fake_send, &store, hosts_now);
}

static void end(int count)
{
    for (int i = 0; i < count; i++)
        host_free(&hosts[i]);
    fake_store_free(&store);
}

/* ---- "several_hosts" of the worked examples ---- */

TEST(four_a_second_distributed_over_three_hosts)
{
    begin(RULE("limit: 4, window: 1s"), 3);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_check(&hosts[2], REQUEST, 1), 1);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 2), 2);
    hosts_sync(hosts, 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(host_left(&hosts[i], "a", KEY), 0);
    CHECK_EQ(store.taken, 4);
    end(3);
}

TEST(excess_of_a_burst_is_repaid)
{
    begin(RULE("limit: 4, window: 1s"), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(host_check(&hosts[i], REQUEST, 4), 4);
    hosts_sync(hosts, 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(host_left(&hosts[i], "a", KEY), -8);
    hosts_time = 1.9;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 0);
    hosts_time = 2.3;
    CHECK_EQ(host_check(&hosts[1], REQUEST, 1), 1);
    end(3);
}

/* ---- Nothing is lost, nothing is sent twice ---- */

TEST(unacknowledged_delta_is_resent)
{
    begin(RULE("limit: 100, window: 1h"), 2);
    store.fate = REFUSES;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREDOWN);
    CHECK(is_down(&hosts[0]));
    CHECK_EQ(host_check(&hosts[0], REQUEST, 7), 7);
    CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREDOWN);
    CHECK_EQ(host_unsent(&hosts[0]), 17);
    store.fate = REPLIES;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK(!is_down(&hosts[0]));
    CHECK_EQ(store.taken, 17);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 83);

    /* The server executed it, and its reply was lost. */
    store.fate = LOSES_REPLY;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 5), 5);
    CHECK_EQ(host_round(&hosts[0]), WEIR_ESTORESLOW);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 5), 5);
    CHECK_EQ(host_round(&hosts[0]), WEIR_ESTORESLOW);
    store.fate = REPLIES;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, 27);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 73);
    end(2);
}

TEST(random_failures_and_agent_restarts)
{
    enum { COUNT = 3, KEYS = 40 };
    uint64_t seed = 3;
    begin(RULE("limit: 1000, window: 1d"), COUNT);
    for (int64_t step = 0; step < test_scaled(3000, 600); step++) {
        struct host *host = &hosts[test_random(&seed) % COUNT];
        char line[64];
        snprintf(line, sizeof line, "GET / ip=10.0.0.%d", (int)(test_random(&seed) % KEYS));
        host_check(host, line, (int)(test_random(&seed) % 4));
        store.fate = (enum fate)(test_random(&seed) % 3);
        if (test_random(&seed) % 3 == 0)
            (void)!weir__sync_round(host->sync);
        if (test_random(&seed) % 50 == 0) { /* killed, and a new one starts */
            weir__sync_free(host->sync);
            host_start_sync(host);
        }
    }
    store.fate = REPLIES;
    hosts_sync(hosts, COUNT);
    int64_t admitted = 0;
    for (int i = 0; i < COUNT; i++) {
        admitted += hosts[i].admitted;
        CHECK_EQ(host_unsent(&hosts[i]), 0);
    }
    CHECK_EQ(store.taken, admitted);
    /* A host that uses a key knows what all hosts have used of it. */
    for (int key = 0; key < KEYS; key++)
        for (int i = 0; i < COUNT; i++) {
            char line[64];
            snprintf(line, sizeof line, "GET / ip=10.0.0.%d", key);
            host_check(&hosts[i], line, 1);
        }
    hosts_sync(hosts, COUNT);
    for (int key = 0; key < KEYS; key++) {
        char text[32];
        snprintf(text, sizeof text, "10.0.0.%d", key);
        for (int i = 1; i < COUNT; i++)
            CHECK_EQ(host_left(&hosts[i], "a", text), host_left(&hosts[0], "a", text));
    }
    end(COUNT);
}

TEST(flushed_store_is_restored_by_the_hosts)
{
    begin(RULE("limit: 10, window: 1h"), 2);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 3), 3);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 4), 4);
    hosts_sync(hosts, 2);
    fake_store_flush(&store);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 1), 1);
    for (int i = 0; i < 4; i++) /* the first host receives it with its next op on the key */
        hosts_sync(hosts, 2);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 2);
    CHECK_EQ(host_left(&hosts[1], "a", KEY), 2);
    end(2);
}

TEST(exchange_of_several_requests)
{
    enum { KEYS = 6000 };
    fake_store_make(&store);
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_text = RULE("limit: 100, window: 1h"),
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .ledger = "",
                        .ledger_bytes = 2 << 20};
    struct host host = {.send_request = fake_send, .send_context = &store, .now = hosts_now};
    CHECK_EQ(weir_open(&how, &host.engine), 0);
    host_start_sync(&host);
    for (int round = 0; round < 3; round++) {
        for (int key = 0; key < KEYS; key++) {
            char line[64];
            snprintf(line, sizeof line, "GET / ip=10.0.%d.%d", key / 250, key % 250);
            host_check(&host, line, 1);
        }
        store.fate = round == 1 ? LOSES_REPLY : REPLIES;
        store.requests = 0;
        CHECK_EQ(weir__sync_round(host.sync), round == 1 ? WEIR_ESTORESLOW : 0);
        if (round != 1)
            CHECK(store.requests >= 2);
    }
    CHECK_EQ(store.taken, 3 * KEYS);
    CHECK_EQ(host_unsent(&host), 0);
    host_free(&host);
    fake_store_free(&store);
}

/* A store that needs a millisecond for each counter, or a connection that is that slow. */
static int send_slowly(void *context, struct weir__store_request *request)
{
    int64_t left_us = request->deadline_us - (int64_t)weir__coarse_ms() * 1000;
    if (request->deadline_us && request->op_count * INT64_C(1000) > left_us)
        return request->error = WEIR_ESTORESLOW;
    return fake_send(context, request);
}

TEST(deltas_beyond_the_time_budget_are_sent_in_the_end)
{
    enum { KEYS = 3000 };
    fake_store_make(&store);
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_text = RULE("limit: 100, window: 1h"),
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .ledger = "",
                        .ledger_bytes = 2 << 20};
    struct host host = {.send_request = send_slowly, .send_context = &store, .now = hosts_now};
    CHECK_EQ(weir_open(&how, &host.engine), 0);
    host_start_sync(&host);
    for (int round = 0; round < 2; round++) {
        for (int key = 0; key < KEYS; key++) {
            char line[64];
            snprintf(line, sizeof line, "GET / ip=10.0.%d.%d", key / 250, key % 250);
            host_check(&host, line, 1);
        }
        int rounds = 0;
        while (host_unsent(&host) && rounds < 40) {
            int error = weir__sync_round(host.sync);
            CHECK(error == 0 || error == WEIR_ESTORESLOW);
            rounds++;
        }
        CHECK_EQ(host_unsent(&host), 0);
        CHECK_EQ(store.taken, (round + 1) * KEYS);
    }
    host_free(&host);
    fake_store_free(&store);
}

/* ---- Concurrent requests ---- */

struct client {
    struct host host; /* a copy: its counters are its own */
    int64_t rounds;
    uint64_t *ended;
};

static void *client_thread(void *context)
{
    struct client *client = context;
    for (int64_t i = 0; i < client->rounds; i++)
        host_check(&client->host, i % 3 ? REQUEST : "GET / ip=192.0.2.2", 1);
    __atomic_fetch_add(client->ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

TEST(requests_during_an_exchange)
{
    enum { CLIENTS = 3 };
    begin(RULE("limit: 4000000000, window: 1d"), 1);
    pthread_t thread[CLIENTS];
    struct client client[CLIENTS];
    uint64_t ended = 0;
    for (int i = 0; i < CLIENTS; i++) {
        client[i] = (struct client){hosts[0], test_scaled(100000, 5000), &ended};
        pthread_create(&thread[i], NULL, client_thread, &client[i]);
    }
    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < CLIENTS)
        CHECK_EQ(host_round(&hosts[0]), 0);
    int64_t admitted = 0;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(thread[i], NULL);
        admitted += client[i].host.admitted;
    }
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, admitted);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    CHECK_EQ(admitted, CLIENTS * client[0].rounds);
    end(1);
}

/* A clock that lets a request pass when the agent reads it: after the agent has read the deltas, before it reads the
 * counters. */
static int passes_between;

static weir_time now_with_requests(const weir_segment *segment)
{
    int count = passes_between;
    passes_between = 0;
    if (count)
        host_check(&hosts[0], REQUEST, count);
    return hosts_now(segment);
}

/*
 * The store creates a counter with the host's remaining units: a unit that passed a moment ago must not be subtracted
 * again. `repeated`: the store has not received the first batch, and it is repeated while more requests pass.
 */
static void check_counted_once(const char *rule, bool repeated)
{
    begin(rule, 2);
    weir__sync_free(hosts[0].sync);
    hosts[0].now = now_with_requests;
    host_start_sync(&hosts[0]);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 5), 5);
    if (repeated) {
        store.fate = REFUSES;
        CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREDOWN);
        store.fate = REPLIES;
    }
    passes_between = 3;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(hosts[0].admitted, 8);
    CHECK_EQ(store.taken, 8);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 1), 1);
    hosts_sync(hosts, 2);
    CHECK_EQ(host_left(&hosts[1], "a", KEY), 1000 - 9);
    end(2);
}

TEST(units_taken_during_an_exchange_count_once)
{
    static const char *const rules[] = {RULE("limit: 1000, window: 30d"),
                                        RULE("limit: 1000, window: 30d, algorithm: sliding_window_log"),
                                        RULE("limit: 1000, window: 30d, algorithm: sliding_window_counter"),
                                        RULE("limit: 1000, window: 30d, algorithm: fixed_window")};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        if (k < 3) /* of a fixed window that is recorded first, the amount is the previous one: see delta_of */
            check_counted_once(rules[k], false);
        check_counted_once(rules[k], true);
    }
}

/* ---- Which keys are exchanged, and how often ---- */

TEST(hot_key_costs_one_op_per_round_and_idle_keys_none)
{
    begin(RULE("limit: 1000, window: 1h"), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    store.ops = 0;
    for (int i = 0; i < 10; i++) {
        host_check(&hosts[0], REQUEST, 20);
        CHECK_EQ(host_round(&hosts[0]), 0);
    }
    CHECK_EQ(store.ops, 10);
    store.ops = 0;
    for (int i = 0; i < 20; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK(store.ops >= 2 && store.ops <= 5);
    store.ops = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.ops, 0);
    end(1);
}

TEST(usage_of_other_hosts_is_followed)
{
    begin(RULE("limit: 1000, window: 1h"), 2);
    host_check(&hosts[0], REQUEST, 1);
    for (int i = 0; i < 30; i++) {
        host_check(&hosts[1], REQUEST, 1);
        CHECK_EQ(host_round(&hosts[1]), 0);
        CHECK_EQ(host_round(&hosts[0]), 0);
        CHECK_EQ(host_left(&hosts[0], "a", KEY), 1000 - 2 - i);
    }
    end(2);
}

/* A key of which only this host uses very little costs one op, which sends the delta. */
TEST(rarely_used_key_is_exchanged_once)
{
    static const struct {
        const char *rule;
        int used;
        uint64_t ops;
    } cases[] = {
        {RULE("limit: 100000, window: 1d"), 97, 1}, /* a slice in 1024 */
        {RULE("limit: 100000, window: 1d"), 98, 5},
        {RULE("limit: 100000, window: 1d, algorithm: leaky_bucket"), 1, 1},
        {RULE("limit: 1000, window: 1d"), 1, 5},
        {RULE("limit: 100000, window: 1d, algorithm: fixed_window, align: first_request"), 1, 5},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin(cases[k].rule, 1);
        CHECK_EQ(host_round(&hosts[0]), 0);
        store.ops = 0;
        CHECK_EQ(host_check(&hosts[0], REQUEST, cases[k].used), cases[k].used);
        for (int i = 0; i < 40; i++)
            CHECK_EQ(host_round(&hosts[0]), 0);
        CHECK_EQ(store.ops, cases[k].ops);
        end(1);
    }
}

/* The usage of others in the meantime is received with the next request. If it is much, the host follows the key from
 * then on. */
TEST(rarely_used_key_receives_the_usage_of_others)
{
    begin(RULE("limit: 100000, window: 30d"), 2);
    host_check(&hosts[0], REQUEST, 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    host_check(&hosts[1], REQUEST, 500);
    CHECK_EQ(host_round(&hosts[1]), 0);
    host_check(&hosts[0], REQUEST, 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 100000 - 502);
    store.ops = 0;
    for (int i = 0; i < 30; i++) {
        host_check(&hosts[1], REQUEST, 1);
        CHECK_EQ(host_round(&hosts[1]), 0);
        CHECK_EQ(host_round(&hosts[0]), 0);
        CHECK_EQ(host_left(&hosts[0], "a", KEY), 100000 - 503 - i);
    }
    CHECK_EQ(store.ops, 60); /* both, each time */
    end(2);
}

/* Two hosts that use a key rarely, at different times: each receives the other's usage when it sends its own. */
TEST(rare_usage_of_others_is_received_with_ones_own)
{
    begin(RULE("limit: 100000, window: 30d"), 2);
    for (int i = 1; i <= 20; i++)
        for (int h = 0; h < 2; h++) {
            host_check(&hosts[h], REQUEST, 1);
            for (int round = 0; round < 5; round++)
                CHECK_EQ(host_round(&hosts[h]), 0);
            CHECK_EQ(host_left(&hosts[h], "a", KEY), 100000 - 2 * (i - 1) - h - 1);
        }
    CHECK_EQ(store.ops, 40);
    end(2);
}

/*
 * A host that paused admits, before it receives the usage of others, no more than its own units of one interval: here
 * the hosts burst in turn, each when it knows least, and the excess over the limit is one burst of each other host.
 */
TEST(host_after_a_pause_exceeds_the_limit_for_one_interval_only)
{
    enum { LIMIT = 10000, BURST = 1000 };
    begin(RULE("limit: 10000, window: 30d"), 3);
    for (int i = 0; i < 3; i++) { /* a little each, alone */
        host_check(&hosts[i], REQUEST, 2);
        CHECK_EQ(host_round(&hosts[i]), 0);
        for (int round = 0; round < 20; round++)
            CHECK_EQ(host_round(&hosts[i]), 0);
    }
    int64_t passed = 6;
    for (int burst = 0; burst < 60; burst++) {
        struct host *host = &hosts[burst % 3];
        passed += host_check(host, REQUEST, BURST); /* within an interval */
        CHECK_EQ(weir__sync_round(host->sync), 0);
    }
    CHECK(passed >= LIMIT && passed <= LIMIT + 2 * BURST);
    for (int i = 0; i < 3; i++)
        CHECK(host_left(&hosts[i], "a", KEY) <= 0);
    CHECK_EQ(store.taken, passed);
    end(3);
}

TEST(idle_entries_are_freed)
{
    begin(RULE("limit: 1000, window: 1h"), 1);
    host_check(&hosts[0], REQUEST, 1);
    const struct weir__ledger *ledger = &hosts[0].engine->deltas.ledger;
    uint64_t used = 0;
    for (int i = 0; i < 700; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    for (uint64_t i = 0; i < ledger->entries; i++)
        used += ledger->cell[i].lo != 0;
    CHECK_EQ(used, 0);
    host_check(&hosts[0], REQUEST, 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, 2);
    end(1);
}

/* ---- Late exchanges ---- */

/* A store with a latency of 0.2 s: the host continues at 80 a second, and the refill in that time is not charged. */
static int send_with_latency(void *context, struct weir__store_request *request)
{
    hosts_time += 0.2;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 16), 16);
    int error = fake_send(context, request);
    for (uint32_t i = 0; i < request->op_count; i++)
        request->ops[i].ago_us = 200000;
    hosts_time += 0.2;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 16), 16);
    return error;
}

TEST(refill_in_transit_is_not_charged)
{
    hosts_time = 0;
    fake_store_make(&store);
    host_make(&hosts[0], RULE("limit: 100, window: 1s, burst: 50"), send_with_latency, &store, hosts_now);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(host_round(&hosts[0]), 0);
        hosts_time += 0.05;
        CHECK_EQ(host_check(&hosts[0], REQUEST, 4), 4);
        CHECK(host_left(&hosts[0], "a", KEY) >= 0);
    }
    end(1);
}

static int64_t late_us;

/* The first batch, which was recorded before, takes 20 s. */
static int send_after_a_wait(void *context, struct weir__store_request *request)
{
    struct weir__ledger_header *header = hosts[0].engine->deltas.ledger.header;
    if (store.requests++ == 0)
        weir__store64(&header->acked_ms, weir__load64(&header->acked_ms) - 20000);
    late_us = request->ops[0].left_us;
    return fake_send(context, request);
}

TEST(lateness_is_computed_after_the_wait)
{
    begin(RULE("limit: 1000, window: 1h"), 1);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    store.fate = REFUSES;
    CHECK(host_round(&hosts[0]) != 0);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    store.fate = REPLIES;
    store.requests = 0;
    hosts[0].sync->with.send_request = send_after_a_wait;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    CHECK(late_us >= 20000000);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(late_us, 0);
    end(1);
}

/* In a cluster one server may be unavailable while the others reply: the lateness is tracked by counter. */
TEST(counter_of_an_unavailable_server_is_late)
{
    begin(RULE("limit: 1000, window: 1h"), 1);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    store.error = WEIR_ESTOREDOWN;
    CHECK_EQ(host_round(&hosts[0]), 0);
    for (uint64_t i = 0; i < hosts[0].sync->ledger->entries; i++)
        if (hosts[0].sync->tracked[i].failed_ms)
            hosts[0].sync->tracked[i].failed_ms -= 20001;
    store.error = 0;
    hosts[0].sync->with.send_request = send_after_a_wait;
    store.requests = 1;
    for (int i = 0; i < 20 && host_unsent(&hosts[0]); i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK(late_us >= 20000000);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(late_us, 0);
    end(1);
}

/* A window that begins with a request is over when its batch arrives: the next one is independent of it. */
TEST(request_started_window_is_over_on_arrival)
{
    begin(RULE("limit: 10, window: 1m, algorithm: fixed_window, align: first_request"), 1);
    store.fate = REFUSES;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 9), 9);
    CHECK(host_round(&hosts[0]) != 0);
    hosts_time = 70;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 2), 2);
    store.fate = REPLIES;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 8);
    CHECK_EQ(store.taken, 2);
    end(1);
}

/* ---- Windows, errors, removed rules ---- */

TEST(windows_other_than_the_stores)
{
    begin(RULE("limit: 10, window: 1m, algorithm: fixed_window"), 1);
    host_check(&hosts[0], REQUEST, 4);
    store.other_window = 1; /* has not begun in the store: waits */
    for (int i = 0; i < 3; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 4);
    store.other_window = 0;
    for (int i = 0; i < 9; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, 4);
    host_check(&hosts[0], REQUEST, 2);
    store.other_window = -1; /* is over in the store: nothing left to limit */
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    CHECK_EQ(store.taken, 4);
    CHECK_EQ(hosts[0].engine->deltas.ledger.header->dropped, 2);
    end(1);
}

TEST(delta_of_an_earlier_window_is_not_sent)
{
    begin(RULE("limit: 10, window: 1m, algorithm: fixed_window"), 1);
    store.fate = REFUSES;
    host_check(&hosts[0], REQUEST, 4);
    hosts_time = 61;
    host_check(&hosts[0], REQUEST, 3);
    store.fate = REPLIES;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, 3);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    end(1);
}

/* Recorded in a window, sent in a later one, which must not be charged. */
TEST(late_batch_counts_in_its_own_window)
{
    begin(RULE("limit: 10, window: 1m, algorithm: fixed_window"), 2);
    hosts_time = 30;
    store.fate = REFUSES;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 9), 9);
    CHECK(host_round(&hosts[0]) != 0);
    hosts_time = 70;
    store.fate = REPLIES;
    hosts_sync(hosts, 2);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 10);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 10), 10);
    hosts_sync(hosts, 2);
    CHECK_EQ(host_left(&hosts[1], "a", KEY), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    end(2);
}

TEST(error_of_one_counter_keeps_its_delta)
{
    begin(RULE("limit: 10, window: 1h"), 1);
    host_check(&hosts[0], REQUEST, 4);
    store.error = WEIR_ESTOREWRONGTYPE;
    for (int i = 0; i < 30; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 4);
    store.error = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(store.taken, 4);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    end(1);
}

TEST(counter_of_an_unknown_rule_is_dropped)
{
    begin(RULE("limit: 10, window: 1h"), 1);
    struct weir__ledger_text text = {.rule = 12345, .key_len = 1, .key = "x"};
    const struct weir__ledger *ledger = &hosts[0].engine->deltas.ledger;
    CHECK(weir__ledger_add_entry(ledger, 99, &text, 5));
    for (int i = 0; i < 500; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 5); /* not at once: the rule may return */
    for (int i = 0; i < 1500; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(host_unsent(&hosts[0]), 0);
    CHECK_EQ(ledger->header->dropped, 5);
    CHECK_EQ(store.taken, 0);
    end(1);
}

TEST(invalid_ledger_entries)
{
    begin(RULE("limit: 10, window: 1h"), 1);
    const struct weir__ledger *ledger = &hosts[0].engine->deltas.ledger;
    ledger->header->in_flight = UINT64_C(1) << 40;
    CHECK_EQ(host_round(&hosts[0]), 0);
    for (uint64_t i = 0; i < 100; i++)
        ledger->note[i] = (struct weir__ledger_in_flight){i, 5, -1, UINT64_MAX - i};
    ledger->header->in_flight = 100;
    CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(ledger->header->in_flight, 0);
    CHECK_EQ(store.taken, 0);
    end(1);
}

TEST(statistics)
{
    begin(RULE("limit: 10, window: 1h"), 2);
    weir_ledger_stats stats;
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK(!stats.agent && stats.store == WEIR_STORE_UNKNOWN && stats.lag_ns == 0 && stats.requests == 0);
    host_check(&hosts[0], REQUEST, 4);
    host_check(&hosts[1], REQUEST, 3);
    store.fate = REFUSES;
    for (int i = 0; i < 3; i++)
        CHECK(host_round(&hosts[0]) != 0);
    weir__store64(&hosts[0].engine->deltas.ledger.header->acked_ms, weir__coarse_ms() - 500);
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK(stats.agent && stats.store == WEIR_STORE_DOWN && stats.last_error == WEIR_ESTOREDOWN);
    CHECK(stats.requests == 3 && stats.failures == 3 && stats.units_sent == 0);
    CHECK(stats.lag_ns >= 400 * 1000000 && stats.lag_ns < 5 * WEIR_SECOND);
    store.fate = REPLIES;
    hosts_sync(hosts, 2);
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK(stats.agent && stats.store == WEIR_STORE_UP && stats.lag_ns == 0);
    CHECK(stats.units_sent == 4 && stats.units_received == 3 && stats.entries > 1000 && stats.full == 0);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK_EQ(stats.used, 1);
    weir *none = test_engine("rules: [{name: a, limit: 1, window: 1s}]\n");
    CHECK_EQ(weir_ledger_stats_read(none, &stats), WEIR_ENOENT);
    CHECK_EQ(weir_ledger_stats_read(NULL, &stats), WEIR_EINVAL);
    weir_close(none);
    end(2);
}

/* ---- How far the limit is exceeded ---- */

struct measured {
    int64_t passed; /* in total */
    int64_t over;   /* maximal excess over burst + rate * time */
};

/* Runs `count` hosts, each with as many requests as pass, for `seconds`, with an exchange every interval. */
static struct measured run(int count, int64_t limit, double interval, double seconds)
{
    char rules[256];
    struct measured m = {0, 0};
    snprintf(rules, sizeof rules, RULE("limit: %d, window: 1s"), (int)limit);
    begin(rules, count);
    double step = interval / 5, next = interval;
    for (hosts_time = 0; hosts_time < seconds; hosts_time += step) {
        for (int i = 0; i < count; i++)
            m.passed += host_check(&hosts[i], REQUEST, (int)((double)limit * (hosts_time > 0 ? 2 * step : 1)) + 2);
        int64_t over = m.passed - limit - (int64_t)(hosts_time * (double)limit);
        m.over = over > m.over ? over : m.over;
        if (hosts_time + step / 2 >= next) {
            for (int i = 0; i < count; i++)
                CHECK_EQ(host_round(&hosts[i]), 0);
            next += interval;
        }
    }
    end(count);
    return m;
}

TEST(limit_holds_in_the_long_run)
{
    static const int counts[] = {1, 3, 5, 10};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        /* Long enough for the maximal excess at any one moment, 450, to be less than a per cent. */
        struct measured m = run(counts[i], 1000, 0.05, 60);
        double expected = 1000 + 60 * 1000.0, got = (double)m.passed / expected;
        CHECK(got > 0.99 && got < 1.01);
        if (!(got > 0.99 && got < 1.01))
            printf("  %d hosts: %.4f of the limit\n", counts[i], got);
    }
}

/*
 * The bound: the excess over the limit is what the other hosts admit between two exchanges. In the beginning all
 * buckets are full; so it is the burst and the refill of one interval, once for each other host.
 */
TEST(excess_over_the_limit_is_bounded)
{
    static const int counts[] = {3, 5, 10};
    static const double intervals[] = {0.02, 0.05, 0.2};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t k = 0; k < sizeof intervals / sizeof *intervals; k++) {
            struct measured m = run(counts[i], 200, intervals[k], 3);
            int64_t bound = (counts[i] - 1) * (200 + (int64_t)(200 * intervals[k]) + 2);
            CHECK(m.over <= bound);
            printf("  %2d hosts, %3.0f ms: %4d over, bound %d\n", counts[i], intervals[k] * 1000, (int)m.over,
                   (int)bound);
        }
}

TEST_MAIN
