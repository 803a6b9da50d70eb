/* Leases with a real server that forgets scripts or writes, has foreign values, or replies garbage; and hosts whose
 * wall clocks are stepped. */
#include "leased_hosts.h"

/* The script is loaded again, and nothing is counted twice. */
TEST(script_flush_costs_nothing)
{
    for (size_t k = 0; k < RULES_OF_ALL; k += 2) {
        int before = test_failures;
        int64_t admitted = 0;
        if (!leased_begin(rules_of_all[k], HOSTS))
            return;
        for (int round = 0; round < 100; round++) {
            server_do("SCRIPT FLUSH");
            admitted += use_leases(REQUEST, HOSTS, 1);
        }
        CHECK_EQ(admitted, 300);
        if (test_failures != before)
            printf("  with %s", rules_of_all[k]);
        end(HOSTS);
    }
}

/* What the counter has as used, as the store reports it to a host. */
static int64_t charged(void)
{
    return 300 - host_left(&hosts[0], "a", KEY);
}

/*
 * A failover to a replica that lacks what the old master acknowledged since it was cut off: takes and grants that are
 * lost may be admitted again, and not one unit more.
 */
TEST(failover_admits_again_what_it_has_lost)
{
    for (size_t k = 0; k < RULES_OF_ALL; k++) {
        int before = test_failures;
        if (!leased_begin(rules_of_all[k], HOSTS))
            return;
        int64_t admitted = use_leases(REQUEST, HOSTS, 4), kept = charged();
        replica_is_cut_off();
        admitted += use_leases(REQUEST, HOSTS, 5);
        int64_t lost = charged() - kept;
        replica_takes_over();
        usleep(2100000); /* each host reports its lease once in two seconds, and learns that it is on no record */
        admitted += use_leases(REQUEST, HOSTS, 80);
        CHECK(lost > 0);
        CHECK(admitted <= 300 + lost);
        CHECK(admitted >= 200); /* what hosts dropped recovers by and by, or with the window's end */
        if (test_failures != before)
            printf("  %d admitted, %d lost with %s", (int)admitted, (int)lost, rules_of_all[k]);
        end(HOSTS);
    }
}

/* ---- Hosts whose wall clocks are stepped ---- */

static int64_t wall_step_ns;

static weir_time stepped_clock(const weir_segment *segment)
{
    weir_time now = weir_clock(segment);
    now.wall_ns += wall_step_ns;
    return now;
}

TEST(stepped_wall_clock_of_a_host_changes_nothing)
{
    static const int64_t steps[] = {-400 * WEIR_DAY, -WEIR_SECOND, WEIR_SECOND, 400 * WEIR_DAY};
    for (size_t k = 0; k < RULES_OF_ALL; k++)
        for (size_t i = k % 2; i < 4; i += 2) {
            int before = test_failures;
            wall_step_ns = 0;
            if (!leased_begin(rules_of_all[k], HOSTS))
                return;
            weir__sync_free(hosts[0].sync);
            hosts[0].now = stepped_clock;
            host_start_sync(&hosts[0]);
            int64_t admitted = use_leases(REQUEST, HOSTS, 6);
            CHECK(leased_stats(&hosts[0]).units_leased > 0);
            wall_step_ns = steps[i];
            admitted += use_leases(REQUEST, HOSTS, 100);
            /* Of a calendar the host has other windows than the server: its own requests are refused, with an error. */
            CHECK(admitted <= 300);
            CHECK(admitted == 300 || strstr(rules_of_all[k], "timezone"));
            if (test_failures != before)
                printf("  %d admitted with %s", (int)admitted, rules_of_all[k]);
            end(HOSTS);
        }
}

/* ---- Bad replies and values ---- */

static bool replies_garbage;

static int send_to_garbler(void *context, struct weir__store_request *request)
{
    int error = weir__blocking_client_request(context, request);
    return replies_garbage ? request->error = WEIR_ESTOREGARBAGE : error;
}

/* The agent repeats the batch until a reply can be read, and gets the grant of the first time. */
TEST(garbage_for_a_lease_grants_nothing_until_it_is_repeated)
{
    if (!leased_begin(rules_of_all[OF_WINDOW], 2))
        return;
    weir__sync_free(hosts[0].sync);
    hosts[0].send_request = send_to_garbler;
    host_start_sync(&hosts[0]);
    int64_t admitted = use_leases(REQUEST, 2, 3);
    CHECK(leased_units(&hosts[0]).units > 0);
    replies_garbage = true;
    for (int round = 0; round < 10; round++) {
        admitted += host_check(&hosts[0], REQUEST, 10);
        int error = host_round(&hosts[0]);
        CHECK(error == WEIR_ESTOREGARBAGE || !error); /* a round without an exchange */
    }
    weir_ledger_stats stats = leased_stats(&hosts[0]);
    CHECK_EQ(stats.last_error, WEIR_ESTOREGARBAGE);
    CHECK(stats.failures >= 3);
    replies_garbage = false;
    admitted += use_leases(REQUEST, 2, 100);
    CHECK_EQ(admitted, 300);
    end(2);
}

/* Another program has the counter's name: nothing is leased or overwritten, and on_store_failure decides. */
TEST(foreign_value_is_neither_leased_nor_overwritten)
{
    if (!leased_begin(LEASED("limit: 300, window: 365d, algorithm: fixed_window, on_store_failure: closed"), 2))
        return;
    server_do("SET weir:a:" KEY " Lovelace");
    CHECK_EQ(use_leases(REQUEST, 2, 3), 0);
    CHECK_EQ(leased_units(&hosts[0]).units, 0);
    redisReply *reply = server_reply("GET weir:a:" KEY);
    CHECK(reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "Lovelace") == 0);
    freeReplyObject(reply);
    server_do("DEL weir:a:" KEY);
    CHECK_EQ(use_leases(REQUEST, 2, 100), 300);
    end(2);
}

TEST_MAIN
