/* Leases of units with a real server: exact counts over three hosts, what is returned, and what faults cost. */
#include "leased_hosts.h"

/* All units can be used, and not one more; most of them without a round trip. */
TEST(three_hosts_admit_the_limit_exactly)
{
    for (size_t k = 0; k < RULES_OF_ALL; k++) {
        int before = test_failures;
        if (!leased_begin(rules_of_all[k], HOSTS))
            return;
        uint64_t waits = 0, spent = 0, expired = 0;
        int64_t admitted = use_leases(REQUEST, HOSTS, 100);
        for (int i = 0; i < 25 * HOSTS; i++) /* an agent looks at an empty slot once in twenty rounds */
            CHECK_EQ(host_round(&hosts[i % HOSTS]), 0);
        for (int i = 0; i < HOSTS; i++) {
            weir_ledger_stats stats = leased_stats(&hosts[i]);
            uint64_t unspent = (uint64_t)leased_units(&hosts[i]).units;
            CHECK_EQ(stats.units_leased, stats.units_spent + stats.units_returned + stats.units_expired + unspent);
            waits += stats.lease_waits;
            spent += stats.units_spent;
            expired += stats.units_expired;
        }
        CHECK_EQ(admitted, 300);
        CHECK(spent > 150);
        CHECK(waits + spent <= 300 && waits + spent + expired >= 300);
        if (test_failures != before)
            printf("  %d waits, %d spent with %s", (int)waits, (int)spent, rules_of_all[k]);
        end(HOSTS);
    }
}

/* Runs rounds until the condition holds, for at most ten seconds. */
#define WAIT_UNTIL(host, condition)                                                                                    \
    for (int tries = 0; !(condition) && tries < 200; tries++) {                                                        \
        usleep(50000);                                                                                                 \
        CHECK_EQ(host_round(host), 0);                                                                                 \
    }                                                                                                                  \
    CHECK(condition)

static void lease_some(const char *rules, int count)
{
    if (!leased_begin(rules, count))
        exit(77);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
        CHECK_EQ(host_round(&hosts[0]), 0);
    }
    CHECK(leased_units(&hosts[0]).units > 0);
}

/* What no request uses is returned: another host can take all the rest. */
TEST(idle_units_are_returned)
{
    for (size_t k = 0; k < RULES_OF_ALL; k += 3) { /* each takes some seconds */
        int before = test_failures;
        lease_some(rules_of_all[k], 2);
        WAIT_UNTIL(&hosts[0], leased_units(&hosts[0]).units == 0);
        CHECK(leased_stats(&hosts[0]).units_returned > 0);
        CHECK_EQ(host_check(&hosts[1], REQUEST, 280), 270);
        if (test_failures != before)
            printf("  with %s", rules_of_all[k]);
        end(2);
    }
}

TEST(agent_that_ends_returns_all)
{
    lease_some(rules_of_all[OF_WINDOW], 2);
    CHECK_EQ(weir__sync_return_leases(hosts[0].sync), 0);
    CHECK_EQ(leased_units(&hosts[0]).units, 0);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 280), 270);
    end(2);
}

/* A host that is gone: its units are lost for the window, and a bucket regains them. */
TEST(units_of_a_killed_host_are_never_admitted_twice)
{
    lease_some(rules_of_all[OF_WINDOW], 2);
    int64_t unspent = leased_units(&hosts[0]).units;
    host_check(&hosts[0], REQUEST, (int)unspent / 2);
    CHECK_EQ(host_check(&hosts[1], REQUEST, 300), 270 - unspent);
    end(2);
}

/* The agent is killed at every point between sending and putting the grant into the slot. */
static enum { DELIVERS, LOSES_REQUEST, LOSES_RESULT } link_fate;

static int send_badly(void *context, struct weir__store_request *request)
{
    if (link_fate == LOSES_REQUEST)
        return request->error = WEIR_ESTOREDOWN;
    int error = weir__blocking_client_request(context, request);
    return link_fate == LOSES_RESULT ? request->error = WEIR_ESTORESLOW : error;
}

TEST(lost_and_repeated_batches_grant_once)
{
    for (size_t k = 0; k < RULES_OF_ALL; k++) {
        int before = test_failures;
        uint64_t random = 7 + k;
        int64_t admitted = 0;
        if (!leased_begin(rules_of_all[k], HOSTS))
            return;
        for (int i = 0; i < HOSTS; i++) {
            weir__sync_free(hosts[i].sync);
            hosts[i].send_request = send_badly;
            host_start_sync(&hosts[i]);
        }
        for (int round = 0; round < 150; round++)
            for (int i = 0; i < HOSTS; i++) {
                admitted += host_check(&hosts[i], REQUEST, (int)(test_random(&random) % 4));
                link_fate = test_random(&random) % 3   ? DELIVERS
                            : test_random(&random) % 2 ? LOSES_REQUEST
                                                       : LOSES_RESULT;
                (void)!weir__sync_round(hosts[i].sync);
                link_fate = DELIVERS;
                if (test_random(&random) % 8 == 0) { /* another agent */
                    weir__sync_free(hosts[i].sync);
                    host_start_sync(&hosts[i]);
                }
            }
        CHECK(admitted <= 300);
        CHECK(admitted >= 200);
        if (test_failures != before)
            printf("  %d with %s", (int)admitted, rules_of_all[k]);
        end(HOSTS);
    }
}

static int64_t ahead_ns; /* of clock_ahead */

static weir_time clock_ahead(const weir_segment *segment)
{
    weir_time now = weir_clock(segment);
    now.mono_ns += ahead_ns;
    now.wall_ns += ahead_ns;
    return now;
}

/* Demand is a rate: after 100 s without an agent, four seconds of it are leased. */
TEST(demand_is_by_the_second_after_a_gap)
{
    if (!leased_begin(LEASED("limit: 1000000, window: 365d, algorithm: fixed_window"), 1))
        return;
    weir__sync_free(hosts[0].sync);
    hosts[0].now = clock_ahead;
    host_start_sync(&hosts[0]);
    for (int second = 0; second < 110; second++, ahead_ns += WEIR_SECOND) {
        CHECK_EQ(host_check(&hosts[0], REQUEST, 10), 10);
        if (second < 10)
            CHECK_EQ(host_round(&hosts[0]), 0);
    }
    for (int i = 0; i < 25; i++)
        CHECK_EQ(host_round(&hosts[0]), 0);
    int64_t units = leased_stats(&hosts[0]).units_leased > 0 ? leased_units(&hosts[0]).units : -1;
    CHECK(units >= 0 && units <= 100);
    if (units > 100)
        printf("  %d units\n", (int)units);
    ahead_ns = 0;
    end(1);
}

/* The store forgets everything: hosts drop what they hold at their next exchange. */
TEST(flushed_store_ends_leases)
{
    lease_some(rules_of_all[OF_WINDOW], 1);
    int64_t unspent = leased_units(&hosts[0]).units;
    CHECK(unspent > 0);
    server_do("FLUSHALL");
    usleep(2200000);
    CHECK_EQ(host_check(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_round(&hosts[0]), 0);
    int64_t admitted = 0;
    for (int i = 0; i < 40; i++) {
        admitted += host_check(&hosts[0], REQUEST, 10);
        CHECK_EQ(host_round(&hosts[0]), 0);
    }
    CHECK_EQ(admitted, 300);
    end(1);
}

/* A lease is spent while the store is unavailable; then on_store_failure decides. */
TEST(unavailable_store_leaves_the_lease)
{
    lease_some(LEASED("limit: 300, window: 365d, algorithm: fixed_window, on_store_failure: closed"), 1);
    int unspent = (int)leased_units(&hosts[0]).units;
    server_kill();
    CHECK_EQ(host_check(&hosts[0], REQUEST, unspent + 3), unspent);
    end(1);
}

/* Headers: never more than all hosts have left. */
TEST(remaining_is_what_all_hosts_have_left)
{
    if (!leased_begin(rules_of_all[OF_WINDOW], 2))
        return;
    int64_t admitted = 0, known[2] = {0}; /* by host: admitted until its last exchange, and since then by itself */
    for (int round = 0; round < 40; round++)
        for (int i = 0; i < 2; i++) {
            struct test_request r;
            weir_result result;
            test_request(&r, REQUEST);
            for (int n = 0; n < 4; n++) {
                CHECK_EQ(weir_check(hosts[i].engine, &r.query, &result), 0);
                admitted += weir_passes(&result.decision);
                known[i] += weir_passes(&result.decision);
                CHECK_EQ(result.decision.limit, 300);
                if (weir_passes(&result.decision))
                    CHECK(result.decision.remaining <= 300 - known[i]);
                CHECK(result.decision.remaining >= 0);
            }
            uint64_t batch = hosts[i].engine->deltas.ledger.header->batch;
            CHECK_EQ(host_round(&hosts[i]), 0);
            if (hosts[i].engine->deltas.ledger.header->batch != batch)
                known[i] = admitted;
        }
    CHECK_EQ(admitted, 300);
    end(2);
}

/* A host that was cloned with its ledger: both have the same sender and number their batches alike. */
TEST(hosts_with_copies_of_one_ledger_get_grants_of_their_own)
{
    if (!leased_begin(rules_of_all[OF_WINDOW], 2))
        return;
    int64_t admitted = 0;
    memcpy(hosts[1].engine->deltas.ledger.header->sender, hosts[0].engine->deltas.ledger.header->sender,
           sizeof hosts[0].engine->deltas.ledger.header->sender);
    CHECK_EQ(hosts[0].sync->machine, hosts[1].sync->machine);
    hosts[1].sync->machine ^= 1;
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 2; i++)
            admitted += host_check(&hosts[i], REQUEST, 4);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(host_round(&hosts[i]), 0);
    }
    CHECK_EQ(admitted, 300);
    end(2);
}

/* A reset does not let hosts spend old units beyond the limit. */
TEST(reset_counts_what_is_leased)
{
    lease_some(rules_of_all[OF_WINDOW], 2);
    int64_t unspent = leased_units(&hosts[0]).units;
    CHECK(unspent > 0);
    CHECK_EQ(weir_key_reset(hosts[1].engine, "a", KEY, strlen(KEY), (weir_time){0}), 0);
    int admitted = host_check(&hosts[0], REQUEST, (int)unspent) + host_check(&hosts[1], REQUEST, 400);
    CHECK(admitted <= 300 && admitted >= 260); /* what was spent since the last exchange is still on record */
    end(2);
}

/* A weir that does not know leases refuses the value: this is what its script sees. */
TEST(value_is_not_one_of_older_versions)
{
    lease_some(rules_of_all[0], 1);
    redisReply *reply = server_reply("GET weir:a:" KEY);
    /* They know '^[1-5]%d+$' of 19 bytes, and the letters b, w, s, n and l: see lua/state.lua. */
    CHECK(reply->type == REDIS_REPLY_STRING && reply->str[0] == 'L');
    CHECK(reply->len > 1 && (uint8_t)reply->str[1] >= 0x90 && (uint8_t)reply->str[1] < 0xde); /* a MessagePack array */
    freeReplyObject(reply);
    end(1);
}

TEST_MAIN
