/*
 * Floods of new keys, in a slab or in buckets that cannot hold them all: a key that has used up its limit stays
 * denied. docs/internals/table.md has the order in which records and entries are evicted.
 */
#include "slabs.h"
#include "table/hash.h"
#include "table/permits.h"

enum { CHUNKS = 116508, JUNK = 120000 }; /* the slab of a segment of 64 MiB, and somewhat more keys */

static struct fixture *f;
static weir_decision d;

static weir_limit limit_of(weir_params params)
{
    weir_limit limit;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static weir_limit log_of(int64_t units, int64_t seconds, uint64_t id)
{
    return limit_of((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = units, .window_ns = seconds * WEIR_SECOND, .id = id});
}

static struct weir__key_location where_of(const weir_limit *limit, uint64_t key)
{
    struct weir__key_location where;
    weir__key_locate(&f->table, limit, &key, sizeof key, &where);
    return where;
}

static int take(const weir_limit *limit, uint64_t key, int64_t cost)
{
    struct weir__key_location where = where_of(limit, key);
    return weir__table_take(&f->op, limit, &where, cost, WEIR__TAKE, &d);
}

/* Takes unit by unit until the key is denied; returns how many it got. */
static int64_t exhaust(const weir_limit *limit, uint64_t key)
{
    for (int64_t passed = 0; passed <= 1000; passed++) {
        CHECK_EQ(take(limit, key, 1), 0);
        if (d.verdict == WEIR_DENY)
            return passed;
    }
    return -1;
}

static bool is_denied(const weir_limit *limit, uint64_t key)
{
    CHECK_EQ(take(limit, key, 1), 0);
    return d.verdict == WEIR_DENY;
}

/* Keys 1 to `keys`, one or two requests each, in four seconds. */
static void flood(const weir_limit *limit, uint64_t keys)
{
    for (uint64_t key = 1; key <= keys; key++) {
        pass_time(f, 4 * SECOND_US / (int64_t)keys);
        for (uint64_t i = 0; i < 1 + key % 2; i++)
            CHECK_EQ(take(limit, key, 1), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
    }
}

/* ---- The slab ---- */

TEST(exhausted_log_survives_a_flood)
{
    f = fixture_make(CHUNKS);
    weir_limit limit = log_of(5, 60, 0);
    CHECK_EQ(exhaust(&limit, 0), 5);
    flood(&limit, JUNK);
    CHECK(evicted(f) > 0);
    CHECK(is_denied(&limit, 0));
    CHECK_EQ(f->table.stats[0].evicted_denied, 0);
    CHECK_EQ(f->table.stats[0].slab_full, 0);
    fixture_free(f);
}

/* Keys 1 to `keys`, so many requests each, at 30,000 a second; a key without room is counted in a substitute slot. */
static void flood_of_spenders(const weir_limit *limit, uint64_t keys, int requests)
{
    for (uint64_t key = 1; key <= keys; key++) {
        pass_time(f, 33 * requests);
        for (int i = 0; i < requests; i++) {
            int error = take(limit, key, 1);
            CHECK(error == 0 || error == WEIR_EFULL);
        }
    }
}

/* Nor do new keys that use up their own limits reset a key that has used up its limit. */
TEST(exhausted_log_survives_a_flood_of_denied_keys)
{
    f = fixture_make(CHUNKS);
    weir_limit limit = log_of(5, 60, 0);
    CHECK_EQ(exhaust(&limit, 0), 5);
    flood_of_spenders(&limit, 80000, 6);
    CHECK(is_denied(&limit, 0));
    CHECK(f->table.stats[0].slab_full > 0);
    CHECK_EQ(f->table.stats[0].evicted_denied, 0);
    fixture_free(f);
}

/* A key that stops before it is denied is not reset either, whatever the others use. */
TEST(heavily_used_counters_survive_a_flood_of_heavy_users)
{
    static const weir_params kinds[] = {
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 4, .window_ns = 60 * WEIR_SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 4, .window_ns = 60 * WEIR_SECOND, .buckets = 6},
    };
    for (int requests = 1; requests <= 12; requests++) {
        f = fixture_make(1000);
        weir_limit limit = limit_of(kinds[requests % 2]);
        CHECK_EQ(take(&limit, 0, 3), 0);
        flood_of_spenders(&limit, 5000, (requests + 1) / 2);
        CHECK_EQ(exhaust(&limit, 0), 1);
        fixture_free(f);
    }
}

/* The window of another rule does not change the eviction order of a log. */
TEST(exhausted_log_survives_a_flood_of_longer_logs)
{
    f = fixture_make(1000);
    weir_limit limit = log_of(5, 10, 1), longer = log_of(5, 86400, 2);
    CHECK_EQ(exhaust(&limit, 0), 5);
    flood(&longer, 3000);
    CHECK(is_denied(&limit, 0));
    fixture_free(f);
}

/* A key that stops just before it is denied is not reset either. */
TEST(heavily_used_log_survives_a_flood)
{
    f = fixture_make(1000);
    weir_limit limit = log_of(5, 60, 0);
    CHECK_EQ(take(&limit, 0, 4), 0);
    flood(&limit, 3000);
    CHECK_EQ(exhaust(&limit, 0), 1);
    fixture_free(f);
}

TEST(exhausted_counter_survives_a_flood)
{
    f = fixture_make(1000);
    weir_limit limit = limit_of((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 5, .window_ns = 60 * WEIR_SECOND, .buckets = 6});
    CHECK_EQ(exhaust(&limit, 0), 5);
    flood(&limit, 3000);
    CHECK(evicted(f) > 0);
    CHECK(is_denied(&limit, 0));
    fixture_free(f);
}

/* Permits: records without any active permit are evicted first, however long their leases still run. */
TEST(active_permits_survive_a_flood)
{
    static const int64_t limits[] = {1, 2, 5, 20, 50};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        weir_lease lease;
        weir_limit limit =
            limit_of((weir_params){.algorithm = WEIR_CONCURRENCY, .limit = limits[i], .window_ns = 60 * WEIR_SECOND});
        f = fixture_make(1000);
        struct weir__key_location where = where_of(&limit, 0);
        for (int64_t k = 0; k < limits[i]; k++)
            CHECK_EQ(weir__permit_take(&f->op, &limit, &where, &lease, &d), 0);
        for (uint64_t key = 1; key <= 3000; key++) {
            struct weir__key_location junk = where_of(&limit, key);
            pass_time(f, 1000);
            CHECK_EQ(weir__permit_take(&f->op, &limit, &junk, &lease, &d), 0);
            CHECK_EQ(d.verdict, WEIR_ALLOW);
            CHECK_EQ(weir__permit_release(&f->op, &lease), 0);
        }
        CHECK(evicted(f) > 0);
        CHECK(is_denied(&limit, 0));
        fixture_free(f);
    }
}

/* Permits have no substitute: they find room even if denied keys use the complete slab. */
TEST(denied_keys_do_not_lock_out_permits)
{
    f = fixture_make(1000);
    weir_lease lease;
    weir_limit limit = log_of(2, 3600, 0),
               flight = limit_of((weir_params){.algorithm = WEIR_CONCURRENCY, .limit = 1, .window_ns = WEIR_SECOND});
    for (uint64_t key = 1; key <= 1000; key++)
        CHECK_EQ(exhaust(&limit, key), 2);
    for (uint64_t key = 1; key <= 100; key++) {
        struct weir__key_location where = where_of(&flight, key);
        CHECK_EQ(weir__permit_take(&f->op, &flight, &where, &lease, &d), 0);
        CHECK_EQ(weir__permit_take(&f->op, &flight, &where, &lease, &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
    }
    CHECK_EQ(f->table.stats[0].slab_full, 0);
    CHECK_EQ(f->table.stats[0].evicted_denied, 100);
    fixture_free(f);
}

/* Denied keys keep the slab until their windows are over, and no longer. */
TEST(denied_keys_lock_the_slab_for_their_windows_only)
{
    f = fixture_make(1000);
    weir_limit limit = log_of(2, 3600, 0);
    for (uint64_t key = 1; key <= 1000; key++)
        CHECK_EQ(exhaust(&limit, key), 2);
    for (uint64_t key = 1001; key <= 2000; key++)
        CHECK_EQ(take(&limit, key, 1), WEIR_EFULL);
    for (uint64_t key = 1; key <= 1000; key++)
        CHECK(is_denied(&limit, key));
    pass_time(f, 7 * 900 * SECOND_US + 5 * SECOND_US); /* leases are at most 1.75 windows */
    for (uint64_t key = 1001; key <= 2000; key++)
        CHECK_EQ(exhaust(&limit, key), 2);
    CHECK_EQ(f->table.stats[0].slab_full, 1000);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

/* A log that would need the room of a denied key gets none, and that is counted. */
TEST(denied_keys_are_not_evicted_for_a_new_log)
{
    f = fixture_make(1000);
    weir_limit limit = log_of(3, 3600, 1), large = log_of(1000, 3600, 2);
    for (uint64_t key = 0; key < 1000; key++)
        CHECK_EQ(key % 4 ? take(&limit, key, 1) : exhaust(&limit, key) - 3, 0);
    CHECK_EQ(take(&large, 0, 100), WEIR_EFULL);
    CHECK_EQ(f->table.stats[0].slab_full, 1);
    CHECK_EQ(evicted(f), 0);
    for (uint64_t key = 0; key < 1000; key += 4)
        CHECK(is_denied(&limit, key));
    /* A small one evicts a key that has used little. */
    CHECK_EQ(take(&large, 1, 1), 0);
    CHECK_EQ(evicted(f), 1);
    CHECK_EQ(f->table.stats[0].evicted_denied, 0);
    fixture_free(f);
}

/* A log that was denied an hour ago can be evicted. */
TEST(denied_logs_can_be_evicted_after_recovery)
{
    f = fixture_make(100);
    weir_limit limit = log_of(1, 60, 0);
    for (uint64_t key = 0; key < 100; key++)
        CHECK_EQ(exhaust(&limit, key), 1);
    pass_time(f, 120 * SECOND_US);
    for (uint64_t key = 100; key < 200; key++)
        CHECK_EQ(exhaust(&limit, key), 1);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

/* The result of a search without success is forgotten when a record is released, and with time. */
TEST(room_is_found_after_a_failed_search)
{
    f = fixture_make(1000);
    struct weir__record r[1000], got;
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(take_record(f, 0, (i == 500 ? 1 : 3600) * SECOND_US, &r[i]), 0);
    CHECK_EQ(take_record(f, 0, 3600 * SECOND_US, &got), 0);
    CHECK_EQ(evicted(f), 1);
    weir__record_release(&f->op, r[700]);
    CHECK_EQ(take_record(f, 0, 3600 * SECOND_US, &got), 0);
    CHECK_EQ(got.chunk, r[700].chunk);
    CHECK_EQ(evicted(f), 1);
    CHECK_EQ(take_record(f, 1, 3600 * SECOND_US, &got), 0); /* without success for two chunks, and then for one */
    CHECK_EQ(evicted(f), 3);
    fixture_free(f);
}

/* ---- Buckets ---- */

/* New keys from `first` on, one request each, until the buckets are full of live entries and some more were evicted. */
static void flood_buckets(const weir_limit *limit, uint64_t first)
{
    uint64_t slots = f->table.buckets * WEIR__BUCKET_SLOTS;
    for (uint64_t key = first; evicted(f) < slots && key < first + 4 * slots; key++) {
        CHECK_EQ(take(limit, key, 1), 0);
        pass_time(f, 1);
    }
    CHECK(evicted(f) >= slots);
}

TEST(exhausted_token_bucket_survives_a_flood)
{
    f = fixture_make(0);
    weir_limit limit =
        limit_of((weir_params){.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .window_ns = 3600 * WEIR_SECOND});
    for (uint64_t key = 0; key < 100; key++)
        CHECK_EQ(exhaust(&limit, key), 5);
    flood_buckets(&limit, 1000);
    int64_t lost = 0;
    for (uint64_t key = 0; key < 100; key++)
        lost += !is_denied(&limit, key);
    CHECK_EQ(lost, 0);
    fixture_free(f);
}

TEST(exhausted_entries_survive_a_flood)
{
    static const weir_params kinds[] = {
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 1},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 1},
        {.algorithm = WEIR_FIXED_WINDOW,
         .limit = 5,
         .window_ns = 60 * WEIR_SECOND,
         .align = WEIR_ALIGN_FIRST_REQUEST,
         .id = 1},
        {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 1},
        {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 5, .window_ns = 60 * WEIR_SECOND, .id = 1},
    };
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        weir_params junk = kinds[i / 2];
        junk.id = 2;
        if (i % 2)
            junk.window_ns *= 60;
        if (junk.algorithm == WEIR_SLIDING_WINDOW_LOG)
            junk.algorithm = WEIR_FIXED_WINDOW;
        f = fixture_make(1000);
        weir_limit limit = limit_of(kinds[i / 2]), other = limit_of(junk);
        for (uint64_t key = 0; key < 100; key++)
            CHECK_EQ(exhaust(&limit, key), 5);
        flood_buckets(&other, 1000);
        int64_t lost = 0;
        for (uint64_t key = 0; key < 100; key++)
            lost += !is_denied(&limit, key);
        CHECK_EQ(lost, 0);
        fixture_free(f);
    }
}

TEST_MAIN
