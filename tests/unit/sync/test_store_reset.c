/* When the exchange doubts what the store says, and when not. test_store_reset_redis.c has what comes of it in a
 * server. */
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
            CHECK_EQ(host_ask(&hosts[i], REQUEST, 1), 1);
            CHECK_EQ(host_round(&hosts[i]), 0);
        }
}

TEST(nothing_is_in_doubt_while_nothing_happens)
{
    begin();
    use(50);
    weir__sync_free(hosts[0].sync); /* another agent goes on where it was */
    host_start_sync(&hosts[0]);
    use(50);
    CHECK_EQ(store.doubts, 0);
    CHECK_EQ(store.taken, 200);
    end();
}

TEST(what_failed_in_a_cluster_is_in_doubt_once)
{
    hosts_of_cluster = true;
    begin();
    hosts_of_cluster = false;
    use(10);
    store.fate = LOSES_ANSWER;
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 1), 1);
    CHECK(host_round(&hosts[0]) != 0);
    store.fate = ANSWERS;
    store.doubts = 0;
    use(20);
    CHECK_EQ(store.doubts, 1);
    CHECK_EQ(store.taken, 20 + 1 + 40);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 1000 - 60); /* the other's last, it has not heard of */
    end();
}

TEST(a_counter_with_an_error_of_its_own_is_not_in_doubt)
{
    begin();
    use(10);
    store.error = WEIR_ESTOREWRONGTYPE;
    use(3);
    store.error = 0;
    use(10);
    CHECK_EQ(store.doubts, 0);
    store.error = WEIR_ESTOREDOWN; /* its server in a cluster is away */
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

/* One server knows which batches it has, also one that takes another's place. */
TEST(what_failed_elsewhere_is_not)
{
    begin();
    use(10);
    store.fate = LOSES_ANSWER;
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 1), 1);
    CHECK(host_round(&hosts[0]) != 0);
    store.fate = ANSWERS;
    use(20);
    CHECK_EQ(store.doubts, 0);
    CHECK_EQ(store.taken, 20 + 1 + 40);
    end();
}

/* Also a key that nobody uses at that moment is brought back, and then there is no reseed any more. */
TEST(who_was_forgotten_brings_back_all_it_knows)
{
    begin();
    CHECK_EQ(host_ask(&hosts[0], "GET / ip=192.0.2.7", 30), 30);
    use(40);
    fake_store_flush(&store);
    use(3);
    CHECK(store.doubts >= 2);
    CHECK_EQ(host_ask(&hosts[1], "GET / ip=192.0.2.7", 1), 1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(host_round(&hosts[1]), 0);
    CHECK_EQ(host_left(&hosts[1], "a", "192.0.2.7"), 1000 - 31);
    store.doubts = 0;
    use(20);
    CHECK_EQ(store.doubts, 0);
    end();
}

/* Two hosts with one name, from a copied disk: what each tells is not told again and again. */
TEST(two_of_one_name_do_not_tell_for_ever)
{
    begin();
    use(10);
    for (int round = 0; round < 30; round++) {
        hosts[0].engine->deltas->ledger.header->batch += 5; /* the store last heard of another number */
        use(1);
    }
    /* The first time is believed: ten were told before. */
    CHECK(store.taken >= 80 && store.taken <= 80 + 10);
    end();
}

/* Who looks why it is away wants the reason, not that it is. */
TEST(the_reason_stays)
{
    begin();
    weir_ledger_stats stats;
    store.fate = REFUSES;
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREDOWN);
    store.fate = IS_AWAY;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(host_round(&hosts[0]), WEIR_ESTOREBREAKER);
    CHECK_EQ(weir_ledger_stats_read(hosts[0].engine, &stats), 0);
    CHECK_EQ(stats.last_error, WEIR_ESTOREDOWN);
    CHECK_EQ(stats.store, WEIR_STORE_DOWN);
    end();
}

TEST_MAIN
