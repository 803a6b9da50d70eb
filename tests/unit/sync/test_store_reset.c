/*
 * When the exchange re-seeds the store's counters, and when not. test_store_reset_redis.c shows the effect in a
 * server.
 */
#include "hosts.h"

#include <weir/store.h>

#define RULE(more) "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, " more "}]\n"
#define REQUEST    "GET / ip=192.0.2.1"
#define KEY        "192.0.2.1"

static struct fake_store store;
static struct host hosts[2];

static void begin(void)
{
    hosts_time = 0;
    fake_store_make(&store);
    for (int i = 0; i < 2; i++)
        host_make(&hosts[i], RULE("limit: 1000, window: 1d"), fake_send, &store, hosts_now);
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        host_free(&hosts[i]);
    fake_store_free(&store);
}

static void use(int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(host_check(&hosts[i], REQUEST, 1), 1);
            CHECK_EQ(host_round(&hosts[i]), 0);
        }
}

TEST(nothing_is_reseeded_without_a_failure)
{
    begin();
    use(50);
    weir__sync_free(hosts[0].sync); /* another agent continues where this one stopped */
    host_start_sync(&hosts[0]);
    use(50);
    CHECK_EQ(store.doubts, 0);
    CHECK_EQ(store.taken, 200);
    end();
}

TEST(failed_exchange_in_a_cluster_is_reseeded_once)
{
    hosts_of_cluster = true;
    begin();
    hosts_of_cluster = false;
    use(10);
    store.fate = LOSES_REPLY;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK(host_round(&hosts[0]) != 0);
    store.fate = REPLIES;
    store.doubts = 0;
    use(20);
    CHECK_EQ(store.doubts, 1);
    CHECK_EQ(store.taken, 20 + 1 + 40);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 1000 - 60); /* it has not received the other's last delta */
    end();
}

TEST(counter_with_its_own_error_is_not_reseeded)
{
    begin();
    use(10);
    store.error = WEIR_ESTOREWRONGTYPE;
    use(3);
    store.error = 0;
    use(10);
    CHECK_EQ(store.doubts, 0);
    store.error = WEIR_ESTOREDOWN; /* its server in a cluster is unavailable */
    use(3);
    store.error = 0;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(host_round(&hosts[i]), 0);
    use(10);
    CHECK(store.doubts >= 2);
    store.doubts = 0;
    use(10);
    CHECK_EQ(store.doubts, 0);
    end();
}

/* A single server knows which batches it has, also one that replaces another. */
TEST(failed_exchange_without_a_cluster_is_not_reseeded)
{
    begin();
    use(10);
    store.fate = LOSES_REPLY;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK(host_round(&hosts[0]) != 0);
    store.fate = REPLIES;
    use(20);
    CHECK_EQ(store.doubts, 0);
    CHECK_EQ(store.taken, 20 + 1 + 40);
    end();
}

/* A key without current traffic is restored too, and then there is no reseed any more. */
TEST(host_unknown_to_the_store_restores_all_counters)
{
    begin();
    CHECK_EQ(host_check(&hosts[0], "GET / ip=192.0.2.7", 30), 30);
    use(40);
    fake_store_flush(&store);
    use(3);
    CHECK(store.doubts >= 2);
    CHECK_EQ(host_check(&hosts[1], "GET / ip=192.0.2.7", 1), 1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(host_round(&hosts[1]), 0);
    CHECK_EQ(host_left(&hosts[1], "a", "192.0.2.7"), 1000 - 31);
    store.doubts = 0;
    use(20);
    CHECK_EQ(store.doubts, 0);
    end();
}

/* Two hosts with one name, from a copied disk: their deltas are not re-sent again and again. */
TEST(two_hosts_of_one_name_do_not_resend_forever)
{
    begin();
    use(10);
    for (int round = 0; round < 30; round++) {
        hosts[0].engine->deltas.ledger.header->batch += 5; /* the store has another last batch number */
        use(1);
    }
    /* The first time it is believed: ten units had been sent before. */
    CHECK(store.taken >= 80 && store.taken <= 80 + 10);
    end();
}

/* The error that is shown is the original one, not that the store is unavailable. */
TEST(original_error_is_kept)
{
    begin();
    weir_ledger_stats stats;
    store.fate = REFUSES;
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREDOWN);
    store.fate = UNAVAILABLE;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREBREAKER);
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK_EQ(stats.last_error, WEIR_ESTOREDOWN);
    CHECK_EQ(stats.store, WEIR_STORE_DOWN);
    end();
}

TEST_MAIN
