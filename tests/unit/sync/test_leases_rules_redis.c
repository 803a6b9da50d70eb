/* What rules can have besides a limit, under leases with a real server: soft limits, tiers, shadows, refunds and
 * settlements, and limits that are changed by a reload. Exact over all hosts. */
#include "leased_hosts.h"

/* Requests of one line to all hosts until nothing passes any more; *soft: how many passed only thanks to `soft`. */
static int64_t use_up(const char *line, int count, int64_t *soft)
{
    int64_t admitted = 0;
    for (int round = 0; round < 120; round++)
        for (int i = 0; i < count; i++) {
            for (int n = 0; n < (i ? 2 : 8); n++) {
                struct test_request r;
                weir_result result;
                test_request(&r, line);
                CHECK_EQ(weir_check(hosts[i].engine, &r.query, &result), 0);
                admitted += weir_passes(&result.decision);
                *soft += result.decision.flags & WEIR_OVER_SOFT && weir_passes(&result.decision);
            }
            CHECK_EQ(host_round(&hosts[i]), 0);
        }
    return admitted;
}

/* Only units below the limit are leased, so each one above it is marked. */
TEST(soft_part_is_exact_and_marked)
{
    for (size_t k = 0; k < 4; k++) {
        static const char *const rules[] = {
            LEASED("limit: 300, window: 10h, soft: 10%"),
            LEASED("limit: 300, window: 10h, soft: 10%, refill: interval"),
            LEASED("limit: 300, window: 365d, soft: 10%, algorithm: fixed_window"),
            LEASED("limit: 300, window: 100d, soft: 10%, algorithm: sliding_window_counter")};
        int before = test_failures;
        int64_t soft = 0;
        if (!leased_begin(rules[k], HOSTS))
            return;
        CHECK_EQ(use_up(REQUEST, HOSTS, &soft), 330);
        CHECK(soft >= 30 && soft <= 60); /* also those below it while other hosts hold the rest */
        CHECK(leased_stats(&hosts[0]).units_spent > 100);
        if (test_failures != before)
            printf("  %d soft with %s", (int)soft, rules[k]);
        end(HOSTS);
    }
}

TEST(each_tier_has_its_limit)
{
    int64_t soft = 0;
    if (!leased_begin("identity: { tier: header:X-Plan }\n" LEASED(
                          "limit: { gold: 300, default: 60 }, window: 365d, algorithm: fixed_window"),
                      HOSTS))
        return;
    CHECK_EQ(use_up("GET / ip=192.0.2.7 @x-plan=gold", HOSTS, &soft), 300);
    CHECK_EQ(use_up("GET / ip=192.0.2.8", HOSTS, &soft), 60);
    /* A key that changes its tier keeps its counter: what hosts hold for the one tier is used for the other. */
    int64_t gold = use_leases("GET / ip=192.0.2.9 @x-plan=gold", HOSTS, 4);
    CHECK_EQ(gold, 48);
    int64_t poor = use_leases("GET / ip=192.0.2.9", HOSTS, 20);
    CHECK(poor <= 60 - gold);
    gold += use_up("GET / ip=192.0.2.9 @x-plan=gold", HOSTS, &soft);
    CHECK_EQ(gold + poor, 300);
    end(HOSTS);
}

static uint64_t allowed_by(bool shadow)
{
    uint64_t sum = 0;
    for (int i = 0; i < HOSTS; i++) {
        weir_rule_stats stats;
        CHECK_EQ(weir_rule_stats_read(hosts[i].engine, "a", shadow, &stats), 0);
        sum += stats.allowed;
    }
    return sum;
}

/* A shadow has a counter and leases of its own, and counts what it would admit if it were enforced. */
TEST(shadow_counts_exactly_over_all_hosts)
{
    static const char *const shadows[] = {"100", "500"};
    for (int k = 0; k < 2; k++) {
        char rules[512];
        snprintf(rules, sizeof rules,
                 "rules:\n"
                 "  - { name: a, key: \"${client_ip}\", consistency: leased, limit: 300, window: 365d,"
                 " algorithm: fixed_window }\n"
                 "  - { name: a, key: \"${client_ip}\", consistency: leased, limit: %s, window: 365d,"
                 " algorithm: fixed_window, shadow: true }\n",
                 shadows[k]);
        if (!leased_begin(rules, HOSTS))
            return;
        int64_t soft = 0;
        CHECK_EQ(use_up(REQUEST, HOSTS, &soft), 300);
        CHECK_EQ(allowed_by(false), 300);
        /* While a denial of the enforced rule is remembered, a shadow with no units here is not asked, as under strict.
         */
        CHECK(k ? allowed_by(true) > 400 && allowed_by(true) <= 500 : allowed_by(true) == 100);
        end(HOSTS);
    }
}

/* ---- Refunds, settlements, resets ---- */

static void settle(struct host *host, int64_t amount)
{
    weir_taken taken = {.rule = "a", .key = KEY, .key_len = strlen(KEY)};
    weir_decision decision;
    CHECK_EQ(weir_key_settle(host->engine, &taken, amount, weir_clock(host->engine->segment), &decision), 0);
}

static bool check_with_cost(struct host *host, int64_t cost)
{
    struct test_request r;
    weir_result result;
    test_request(&r, REQUEST);
    r.query.has_cost = true;
    r.query.cost = cost;
    CHECK_EQ(weir_check(host->engine, &r.query, &result), 0);
    return weir_passes(&result.decision);
}

/* A reservation takes an estimate, out of a slot if it has enough, and settles the difference on whatever host. */
TEST(refunds_and_settlements_change_what_is_left)
{
    for (size_t k = 0; k < RULES_OF_ALL; k++) {
        int before = test_failures;
        int64_t soft = 0;
        if (!leased_begin(rules_of_all[k], HOSTS))
            return;
        int64_t admitted = use_leases(REQUEST, HOSTS, 3);
        CHECK_EQ(admitted, 36);
        CHECK(check_with_cost(&hosts[0], 5)); /* of the slot */
        CHECK(check_with_cost(&hosts[1], 40));
        settle(&hosts[0], -2);
        settle(&hosts[2], -15); /* by another host than that of the take */
        settle(&hosts[1], 7);
        CHECK(check_with_cost(&hosts[1], -3));
        admitted += 45 - 17 + 7 - 3;
        admitted += use_up(REQUEST, HOSTS, &soft);
        CHECK_EQ(admitted, 300);
        CHECK(!check_with_cost(&hosts[0], 1));
        settle(&hosts[0], -4);
        CHECK_EQ(host_left(&hosts[1], "a", KEY), 4);
        if (test_failures != before)
            printf("  %d with %s", (int)admitted, rules_of_all[k]);
        end(HOSTS);
    }
}

/* ---- Reloads ---- */

static void reload(const char *rules)
{
    write_rules(rules);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(weir_reload(hosts[i].engine), 1);
}

/* As leased_begin, with rules in a file; units are leased, and *admitted requests have passed. */
static bool begin_to_reload(const char *rules, int64_t *admitted, int64_t *unspent)
{
    write_rules(rules);
    if (!leased_begin(rules, HOSTS))
        return false;
    *admitted = use_leases(REQUEST, HOSTS, 5);
    CHECK_EQ(*admitted, 60);
    *unspent = 0;
    for (int i = 0; i < HOSTS; i++)
        *unspent += leased_units(&hosts[i]).units;
    CHECK(*unspent > 0);
    return true;
}

static void end_of_reload(void)
{
    end(HOSTS);
    *rules_file = 0;
}

#define FIXED(more) LEASED("window: 365d, algorithm: fixed_window, " more)
#define TOKEN(more) LEASED("window: 20h, " more)

/* The counter stays: of a larger limit all can be used, of a smaller one no more than it, or what hosts hold. */
TEST(changed_limit_holds_for_what_is_leased)
{
    static const char *const before[] = {FIXED("limit: 300"), TOKEN("limit: 300")};
    static const char *const more[] = {FIXED("limit: 400"), TOKEN("limit: 400")};
    static const char *const less[] = {FIXED("limit: 70"), TOKEN("limit: 70")};
    for (int k = 0; k < 2; k++) {
        int64_t admitted, unspent, soft = 0;
        if (!begin_to_reload(before[k], &admitted, &unspent))
            return;
        reload(more[k]);
        CHECK_EQ(admitted + use_up(REQUEST, HOSTS, &soft), 400);
        end_of_reload();
        CHECK(begin_to_reload(before[k], &admitted, &unspent));
        reload(less[k]);
        for (int i = 0; i < 12 * HOSTS; i++) /* each looks at a key once in ten rounds at the latest */
            CHECK_EQ(host_round(&hosts[i % HOSTS]), 0);
        CHECK_EQ(admitted + use_up(REQUEST, HOSTS, &soft), 70);
        end_of_reload();
        CHECK(begin_to_reload(before[k], &admitted, &unspent));
        reload(less[k]);
        admitted += use_up(REQUEST, HOSTS, &soft);
        CHECK(admitted >= 70 && admitted <= 60 + unspent); /* here requests came before the agents */
        end_of_reload();
    }
}

/* Another algorithm is another counter. It has as used what hosts may still spend under the old rule. */
TEST(changed_algorithm_never_admits_what_is_leased_twice)
{
    int64_t admitted, unspent, soft = 0;
    if (!begin_to_reload(TOKEN("limit: 300"), &admitted, &unspent))
        return;
    reload(FIXED("limit: 300"));
    int64_t passed = use_up(REQUEST, HOSTS, &soft);
    CHECK(passed <= 300 - unspent &&
          passed >= 300 - unspent - admitted); /* what was spent since the last report is on record */
    end_of_reload();
    CHECK(begin_to_reload(FIXED("limit: 300"), &admitted, &unspent));
    reload(LEASED("limit: 300, window: 2h, algorithm: fixed_window"));
    passed = use_up(REQUEST, HOSTS, &soft);
    CHECK(passed >= 300 - unspent - admitted && passed <= 300);
    end_of_reload();
}

/* A rule that becomes leased, or is no longer: one counter, and not one unit more than its limit. */
TEST(changed_consistency_keeps_the_counter)
{
#define STRICT                                                                                                         \
    "rules: [{name: a, key: \"${client_ip}\", consistency: strict, limit: 300, window: 365d, "                         \
    "algorithm: fixed_window}]\n"
    int64_t soft = 0, admitted, unspent;
    if (!begin_to_reload(FIXED("limit: 300"), &admitted, &unspent))
        return;
    reload(STRICT);
    CHECK_EQ(admitted + use_up(REQUEST, HOSTS, &soft), 300 - unspent); /* lost, as those of a host that is cut off */
    end_of_reload();
    write_rules(STRICT);
    CHECK(leased_begin(STRICT, HOSTS));
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_check(&hosts[i], REQUEST, 20), 20);
    reload(FIXED("limit: 300"));
    CHECK_EQ(60 + use_up(REQUEST, HOSTS, &soft), 300);
    CHECK(leased_stats(&hosts[0]).units_spent > 50);
    end_of_reload();
}

TEST_MAIN
