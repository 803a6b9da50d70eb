/* Leased units in a slot: spends, roll-backs, reports, grants, ends, evictions; and exact sums under concurrency. */
#include "table/leased.h"

#include "engine/segment.h"

#include "../../test.h"

#include <pthread.h>

static weir_segment *segment;
static struct weir__key_location where;

static struct weir__op at(int64_t us)
{
    weir_time now = {.mono_ns = us * 1000, .wall_ns = INT64_C(1800000000) * 1000000000};
    return weir__operation(segment, weir__stats_shard_here(segment), now);
}

static void begin(uint64_t hash)
{
    weir_segment_options how = {.size = 1 << 20};
    CHECK_EQ(weir_segment_open(&how, &segment), 0);
    struct weir__op op = at(1);
    weir__leased_locate(&op, hash, &where);
}

static void end(void)
{
    weir_segment_close(segment);
}

static struct weir__leased units(int64_t us)
{
    struct weir__op op = at(us);
    struct weir__leased leased;
    CHECK_EQ(weir__leased_read(&op, &where, &leased), 0);
    return leased;
}

static void put(int64_t us, int64_t count, int64_t pool, int64_t end_us, bool known)
{
    struct weir__op op = at(us);
    struct weir__leased unused, grant = {count, pool, end_us};
    CHECK_EQ(weir__leased_put(&op, &where, &grant, known, &unused), 0);
}

/* The end of the lease that was spent of; 0: there was too little. */
static int64_t spend(int64_t us, int64_t cost)
{
    struct weir__op op = at(us);
    struct weir__leased after;
    bool spent;
    CHECK_EQ(weir__leased_spend(&op, &where, cost, &spent, &after), 0);
    return spent ? after.end_us : 0;
}

static void roll_back(int64_t us, int64_t cost, int64_t end_us)
{
    struct weir__op op = at(us);
    struct weir__leased unused;
    CHECK_EQ(weir__leased_roll_back(&op, &where, cost, end_us, &unused), 0);
}

static int64_t report(int64_t us, int64_t leave)
{
    struct weir__op op = at(us);
    struct weir__leased unused;
    int64_t given;
    CHECK_EQ(weir__leased_report(&op, &where, leave, &given, &unused), 0);
    return given;
}

TEST(without_a_lease_there_is_nothing_to_spend)
{
    begin(0x1234567890abcdef);
    CHECK_EQ(spend(1000, 1), 0);
    CHECK_EQ(units(1000).units, 0);
    CHECK_EQ(report(1000, 0), 0);
    roll_back(1000, 5, 999);
    CHECK_EQ(units(1000).units, 0);
    end();
}

TEST(lease_is_spent_until_it_is_empty_or_ends)
{
    begin(0x1234567890abcdef);
    put(1000, 10, 90, 6000, false);
    int64_t ends = spend(1001, 4);
    CHECK(ends <= 6000 && ends > 6000 - 512);
    CHECK_EQ(units(1001).units, 6);
    CHECK_EQ(units(1001).pool, 90);
    CHECK_EQ(spend(1002, 7), 0);
    CHECK_EQ(units(1002).units, 6);
    CHECK_EQ(spend(ends - 1, 1), ends);
    CHECK_EQ(spend(ends, 1), 0);
    CHECK_EQ(units(ends).units, 0);
    end();
}

TEST(grant_adds_to_what_is_known_and_replaces_the_rest)
{
    begin(0x1234567890abcdef);
    put(1000, 10, 0, 6000, false);
    put(2000, 5, 7, 7000, true);
    CHECK_EQ(units(2000).units, 15);
    CHECK_EQ(units(2000).pool, 7);
    CHECK(units(2000).end_us <= 7000 && units(2000).end_us > 7000 - 512);
    put(3000, 2, 0, 8000, false);
    CHECK_EQ(units(3000).units, 2);
    put(9000, 4, 0, 12000, true); /* the old one has ended */
    CHECK_EQ(units(9000).units, 4);
    put(9001, 4, 0, 9001, true); /* a grant that has ended already */
    CHECK_EQ(units(9001).units, 4);
    put(9001, 4, 0, 9001, false);
    CHECK_EQ(units(9001).units, 0);
    put(9002, INT64_C(1) << 40, 0, 12000, false);
    CHECK_EQ(units(9002).units, WEIR__LEASED_MAX);
    end();
}

TEST(roll_back_is_dropped_after_a_report_or_a_grant)
{
    begin(0x1234567890abcdef);
    put(1000, 10, 0, 6000, false);
    int64_t first = spend(1001, 3);
    roll_back(1002, 3, first);
    CHECK_EQ(units(1002).units, 10);
    first = spend(1003, 3);
    CHECK_EQ(report(1004, 5), 2);
    CHECK_EQ(units(1004).units, 5);
    roll_back(1005, 3, first); /* the report has not counted them */
    CHECK_EQ(units(1005).units, 5);
    int64_t second = spend(1006, 2);
    CHECK(second != first);
    put(1007, 1, 0, 6000, true);
    roll_back(1008, 2, second);
    CHECK_EQ(units(1008).units, 4);
    int64_t third = spend(1009, 1);
    put(1010, 0, 0, third, true); /* even if the end is the same */
    roll_back(1011, 1, third);
    CHECK_EQ(units(1011).units, 3);
    end();
}

/* The grants of one window have the same end, and so might the lease after a report and a grant. */
TEST(roll_back_is_dropped_although_the_end_is_that_of_the_same_window)
{
    for (int64_t window_end = 500000; window_end < 500600; window_end++) {
        begin(0x1234567890abcdef);
        put(1000, 10, 0, window_end, false);
        int64_t in_hand = spend(1001, 5);
        CHECK_EQ(report(1002, 10), 0);
        CHECK_EQ(units(1002).units, 5);
        put(1003, 3, 0, window_end, true);
        roll_back(1004, 5, in_hand);
        CHECK_EQ(units(1004).units, 8); /* as on record */
        for (int i = 0; i < 100; i++) {
            CHECK_EQ(report(1005, 10), 0);
            CHECK(units(1005).end_us <= window_end);
            put(1006, 0, 0, window_end, true);
            CHECK(units(1006).end_us <= window_end && units(1006).end_us > window_end - 512);
            roll_back(1007, 5, in_hand);
        }
        CHECK_EQ(units(1007).units, 8);
        end();
    }
}

TEST(what_the_pool_has_is_rounded_down)
{
    begin(0x1234567890abcdef);
    for (int64_t pool = 0; pool < WEIR__USED_MAX; pool = pool < 300 ? pool + 1 : pool + pool / 7) {
        put(1000, 1, pool, 6000, false);
        int64_t shown = units(1000).pool;
        CHECK(shown <= pool && shown >= pool - pool / 128);
    }
    put(1000, 1, -5, 6000, false);
    CHECK_EQ(units(1000).pool, 0);
    put(1000, 1, INT64_MAX, 6000, false);
    CHECK(units(1000).pool <= WEIR__USED_MAX && units(1000).pool > WEIR__USED_MAX / 2);
    end();
}

/* Threads spend and roll back while an agent reports, returns and grants: no unit is spent twice. */
enum { THREADS = 3, GRANTS = 20000 };
static struct {
    int64_t spent, granted, given;
    bool over;
} sums;

static void *spender(void *unused)
{
    uint64_t random = (uint64_t)(uintptr_t)&unused;
    (void)unused;
    while (!__atomic_load_n(&sums.over, __ATOMIC_ACQUIRE)) {
        int64_t cost = 1 + (int64_t)(test_random(&random) % 3), from = spend(1000, cost);
        if (from && test_random(&random) % 4 == 0)
            roll_back(1000, cost, from);
        else if (from)
            __atomic_fetch_add(&sums.spent, cost, __ATOMIC_RELAXED);
    }
    return NULL;
}

TEST(concurrent_spends_never_exceed_the_grants)
{
    pthread_t threads[THREADS];
    uint64_t random = 5;
    begin(0xfedcba9876543210);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, spender, NULL), 0);
    for (int i = 0; i < GRANTS || (!__atomic_load_n(&sums.spent, __ATOMIC_RELAXED) && i < 1000 * GRANTS); i++) {
        int64_t count = (int64_t)(test_random(&random) % 20);
        if (test_random(&random) % 3 == 0)
            sums.given += report(1000, (int64_t)(test_random(&random) % 30));
        put(1000, count, 0, 6000000 + i, true);
        sums.granted += count;
    }
    __atomic_store_n(&sums.over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(sums.spent + sums.given + units(1000).units <= sums.granted);
    CHECK(sums.spent > 0);
    end();
}

/* After a reboot segment time may be earlier, so that the end of an old lease is in the future again. */
TEST(leases_end_with_the_boot)
{
    const uint64_t hash = 77;
    begin(hash);
    put(1000, 10, 0, 5000000, true);
    CHECK_EQ(units(2000).units, 10);
    uint64_t *boot = &segment->table.header->boot[0];
    weir__store64(boot, weir__load64(boot) + 1);
    struct weir__op op = at(1500);
    weir__leased_locate(&op, hash, &where);
    CHECK_EQ(units(1500).units, 0);
    CHECK_EQ(spend(1500, 1), 0);
    end();
}

TEST_MAIN
