/*
 * The exchange with a real server: the worked examples on three hosts, every algorithm, and what must hold when the
 * server is flushed, stopped or killed.
 */
#include "redis_hosts.h"

#include "../../awake.h"

/* ---- "several_hosts" of the worked examples ---- */

/* By the real clock: an attempt that took too long, on a busy machine, is repeated. */
enum { TRIES = 20 };

static void sync_and_read(int64_t left[HOSTS])
{
    hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        left[i] = host_left(&hosts[i], "a", KEY);
}

TEST(four_a_second_distributed_over_three_hosts)
{
    bool in_time = false;
    for (int try = 0; try < TRIES && !in_time; try++) {
        if (!begin(RULE("limit: 4, window: 1s"), HOSTS))
            return;
        double start = seconds();
        int64_t left[HOSTS];
        CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
        CHECK_EQ(host_check(&hosts[2], REQUEST, 1), 1);
        CHECK_EQ(host_check(&hosts[1], REQUEST, 2), 2);
        sync_and_read(left);
        in_time = seconds() < start + 0.24; /* then one unit is refilled */
        for (int i = 0; i < HOSTS && in_time; i++)
            CHECK_EQ(left[i], 0);
        end(HOSTS);
    }
    CHECK(in_time);
}

TEST(excess_of_a_burst_is_repaid)
{
    bool in_time = false;
    for (int try = 0; try < TRIES && !in_time; try++) {
        if (!begin(RULE("limit: 4, window: 1s"), HOSTS))
            return;
        double start = seconds();
        int64_t left[HOSTS];
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_check(&hosts[i], REQUEST, 4), 4);
        sync_and_read(left);
        bool soon = seconds() < start + 0.24;
        sleep_until(start + 1.9);
        int early = host_check(&hosts[0], REQUEST, 1);
        in_time = soon && seconds() < start + 2.24;
        for (int i = 0; i < HOSTS && in_time; i++)
            CHECK_EQ(left[i], -8);
        if (in_time)
            CHECK_EQ(early, 0);
        sleep_until(start + 2.3);
        if (in_time)
            CHECK_EQ(host_check(&hosts[1], REQUEST, 1), 1);
        end(HOSTS);
    }
    CHECK(in_time);
}

/* ---- Every algorithm ---- */

static const char *const rules_of_all[] = {
    RULE("limit: 30, window: 1h"),
    RULE("limit: 30, window: 1h, refill: interval"),
    RULE("limit: 30, window: 1h, algorithm: leaky_bucket"),
    RULE("limit: 30, window: 365d, algorithm: fixed_window"),
    RULE("limit: 30, window: 1y, algorithm: fixed_window, timezone: UTC"),
    RULE("limit: 30, window: 1h, algorithm: fixed_window, align: first_request"),
    RULE("limit: 30, window: 100d, algorithm: sliding_window_counter"),
    RULE("limit: 30, window: 100d, algorithm: sliding_window_counter, buckets: 6"),
    RULE("limit: 30, window: 1h, algorithm: sliding_window_log"),
};

/* A reset deletes the counter in the store: no host restores it. */
TEST(reset_is_not_undone_by_hosts)
{
    for (size_t k = 0; k < sizeof rules_of_all / sizeof *rules_of_all; k++) {
        int before = test_failures;
        if (!begin(rules_of_all[k], HOSTS))
            return;
        CHECK_EQ(host_check(&hosts[0], REQUEST, 20), 20);
        CHECK_EQ(host_check(&hosts[1], REQUEST, 1), 1);
        hosts_sync(hosts, HOSTS);
        CHECK_EQ(host_left(&hosts[1], "a", KEY), 9);
        CHECK_EQ(weir_key_reset(hosts[0].engine, "a", KEY, strlen(KEY), (weir_time){0}), 0);
        hosts_sync(hosts, HOSTS);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(host_left(&hosts[i], "a", KEY), 30);
            CHECK_EQ(host_check(&hosts[i], REQUEST, 1), 1);
        }
        hosts_sync(hosts, HOSTS);
        CHECK_EQ(host_left(&hosts[0], "a", KEY), 28);
        CHECK_EQ(host_left(&hosts[1], "a", KEY), 28);
        if (test_failures != before)
            printf("  with %s", rules_of_all[k]);
        end(HOSTS);
    }
}

TEST(hosts_agree_under_every_algorithm)
{
    for (size_t k = 0; k < sizeof rules_of_all / sizeof *rules_of_all; k++) {
        int before = test_failures;
        if (!begin(rules_of_all[k], HOSTS))
            return;
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_check(&hosts[i], REQUEST, i + 1), i + 1);
        hosts_sync(hosts, HOSTS);
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_left(&hosts[i], "a", KEY), 24);
        /* Beyond the limit, by all hosts at once: in debt. */
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_check(&hosts[i], REQUEST, 40), 24);
        hosts_sync(hosts, HOSTS);
        for (int i = 0; i < HOSTS; i++)
            CHECK(host_left(&hosts[i], "a", KEY) <= 0 && host_check(&hosts[i], REQUEST, 5) == 0);
        if (test_failures != before)
            printf("  with %s", rules_of_all[k]);
        end(HOSTS);
    }
}

/* ---- Faults ---- */

TEST(flushed_and_lost_server_is_restored)
{
    static const char rules[] = RULE("limit: 1000, window: 1d");
    if (!begin(rules, HOSTS))
        return;
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_check(&hosts[i], REQUEST, 10), 10);
    hosts_sync(hosts, HOSTS);
    server_do("FLUSHALL");
    server_do("SCRIPT FLUSH");
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_check(&hosts[i], REQUEST, 10), 10);
    hosts_sync(hosts, HOSTS);
    CHECK_EQ(left_in_store(rules), 1000 - 60);

    /* The server is gone, and requests continue; it is available again, and has all usage again. */
    server_kill();
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_check(&hosts[i], REQUEST, 10), 10);
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < HOSTS; i++)
            CHECK(weir__sync_round(hosts[i].sync) != 0);
    for (int i = 0; i < HOSTS; i++)
        CHECK(is_down(&hosts[i]));
    CHECK(server_begin());
    double back = awake_seconds();
    for (int i = 0; i < HOSTS; i++)
        while (weir__sync_round(hosts[i].sync) != 0 && awake_seconds() < back + 5)
            usleep(50000);
    CHECK(awake_seconds() - back < 2);
    for (int i = 0; i < HOSTS; i++)
        CHECK(!is_down(&hosts[i]));
    hosts_sync(hosts, HOSTS);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 1000 - 90); /* only the store has the units that left_in_store took */
    end(HOSTS);
}

TEST(stopped_server_receives_deltas_later_and_once)
{
    static const char rules[] = RULE("limit: 1000, window: 1d");
    if (!begin(rules, 1))
        return;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
    CHECK_EQ(weir__sync_round(hosts[0].sync), 0);
    kill(server.pid, SIGSTOP);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
    hosts[0].sync->timeout_us = 500000;
    CHECK(weir__sync_round(hosts[0].sync) != 0); /* it is in transit, and will be executed */
    hosts[0].sync->timeout_us = PATIENCE_US;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
    kill(server.pid, SIGCONT);
    double back = awake_seconds();
    while (weir__sync_round(hosts[0].sync) != 0 && awake_seconds() < back + 5)
        usleep(50000);
    CHECK(awake_seconds() - back < 2);
    CHECK_EQ(weir__sync_round(hosts[0].sync), 0);
    CHECK_EQ(left_in_store(rules), 1000 - 30);
    end(1);
}

TEST_MAIN
