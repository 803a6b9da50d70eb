/*
 * A store that goes back in time: a new master that lacks what the old one acknowledged, or a store that lost
 * everything.
 */
#include "redis_hosts.h"

/* Exchanges of hosts [first, last], with some usage between them. */
static void use(int first, int last, int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (int i = first; i <= last; i++) {
            CHECK_EQ(host_check(&hosts[i], REQUEST, 2 + i), 2 + i);
            CHECK_EQ(weir__sync_round(hosts[i].sync), 0);
        }
}

static void check_all_is_known(const char *rules, int64_t limit)
{
    int64_t admitted = 0;
    for (int i = 0; i < HOSTS; i++)
        admitted += hosts[i].admitted;
    for (int i = 0; i < 4; i++)
        hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_unsent(&hosts[i]), 0);
    CHECK_EQ(left_in_store(rules), limit - admitted);
}

static const char *const kept_for_a_day[] = {
    RULE("limit: 1000, window: 30d"),
    RULE("limit: 1000, window: 365d, algorithm: fixed_window"),
    RULE("limit: 1000, window: 1d, algorithm: sliding_window_log"),
    RULE("limit: 1000, window: 400d, algorithm: sliding_window_counter"),
};

/* What the old master acknowledged after its replica was cut off is re-sent to the new one: all of it, once. */
TEST(deltas_lost_by_a_failover_are_resent)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 10);
        replica_is_cut_off();
        use(0, HOSTS - 1, 7);
        replica_takes_over();
        use(0, HOSTS - 1, 3);
        check_all_is_known(kept_for_a_day[k], 1000); /* takes one */
        use(0, HOSTS - 1, 10);
        replica_is_cut_off(); /* and once more, including what was re-sent before */
        use(0, HOSTS - 1, 4);
        replica_takes_over();
        check_all_is_known(kept_for_a_day[k], 1000 - 1);
        end(HOSTS);
    }
}

#define OTHER "GET / ip=192.0.2.2" /* exchanged before, so that the server knows its senders */

/* The same for a key that was first used after the replica was cut off: no host restores what others re-send. */
TEST(key_unknown_to_the_new_master)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        for (int round = 0; round < 10; round++)
            for (int i = 0; i < HOSTS; i++) {
                CHECK_EQ(host_check(&hosts[i], OTHER, 1), 1);
                CHECK_EQ(weir__sync_round(hosts[i].sync), 0);
                hosts[i].admitted--;
            }
        replica_is_cut_off();
        use(0, HOSTS - 1, 4);
        replica_takes_over();
        use(0, HOSTS - 1, 3);
        check_all_is_known(kept_for_a_day[k], 1000);
        end(HOSTS);
    }
}

/* On a machine that is too busy for its sentinels, several failovers follow each other. */
TEST(several_failovers_in_a_row)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 24);
        for (int again = 0; again < 3; again++) {
            replica_is_cut_off();
            use(0, HOSTS - 1, 2);
            replica_takes_over();
            use(again % HOSTS, again % HOSTS, 1);
        }
        check_all_is_known(kept_for_a_day[k], 1000);
        end(HOSTS);
    }
}

/* The normal case: exchanges fail between the end of the old and the start of the new master. */
TEST(master_that_died_during_an_exchange)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 10);
        replica_is_cut_off();
        use(0, HOSTS - 1, 7);
        redis_unavailable = true;
        for (int round = 0; round < 4; round++)
            for (int i = 0; i < HOSTS; i++) {
                CHECK_EQ(host_check(&hosts[i], REQUEST, 2), 2);
                CHECK_EQ(weir__sync_round(hosts[i].sync), WEIR_ESTOREDOWN);
            }
        redis_unavailable = false;
        replica_takes_over();
        use(0, HOSTS - 1, 3);
        check_all_is_known(kept_for_a_day[k], 1000);
        end(HOSTS);
    }
}

/* Two masters for a time: one host has found the new one already, the others continue with the old one. */
TEST(hosts_switch_masters_one_after_the_other)
{
    static const char rules[] = RULE("limit: 1000, window: 365d, algorithm: fixed_window");
    if (!begin(rules, HOSTS))
        return;
    use(0, HOSTS - 1, 10);
    replica_is_cut_off();
    use(1, HOSTS - 1, 5);
    server_do("SWAPDB 0 1"); /* the new master */
    use(0, 0, 10);
    server_do("SWAPDB 0 1");
    use(1, HOSTS - 1, 5);
    replica_takes_over();
    check_all_is_known(rules, 1000);
    end(HOSTS);
}

/*
 * A store that was emptied is restored from the hosts. No more is lost than what hosts sent between the last exchange
 * of the first host that reconnects and the loss; here the first was the last, so nothing is lost.
 */
TEST(emptied_store_is_restored_from_the_hosts)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 10);
        int64_t last_round = 2 + 3 + 4;
        server_do("FLUSHALL");
        use(0, HOSTS - 1, 3); /* the first has not received what the others sent in the last round */
        int64_t admitted = hosts[0].admitted + hosts[1].admitted + hosts[2].admitted;
        for (int i = 0; i < 4; i++)
            hosts_sync(hosts, HOSTS);
        int64_t lost = left_in_store(kept_for_a_day[k]) - (1000 - admitted);
        CHECK(lost >= 0 && lost <= last_round);
        end(HOSTS);

        CHECK(begin(kept_for_a_day[k], HOSTS));
        use(0, HOSTS - 1, 10);
        hosts_sync(hosts, HOSTS);
        server_do("FLUSHALL");
        check_all_is_known(kept_for_a_day[k], 1000);
        end(HOSTS);
    }
}

TEST_MAIN
