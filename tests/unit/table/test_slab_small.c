/* Logs and ring counters in a slab that is too small, or damaged. */
#include "slabs.h"
#include "table/hash.h"

static weir_limit limit_of(weir_params params)
{
    weir_limit limit;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static struct weir__key_location key_of(const struct fixture *f, const weir_limit *limit, uint64_t key)
{
    struct weir__key_location where;
    weir__key_locate(&f->table, limit, &key, sizeof key, &where);
    return where;
}

static int take(struct fixture *f, const weir_limit *limit, uint64_t key, int64_t cost, weir_decision *d)
{
    struct weir__key_location where = key_of(f, limit, key);
    return weir__table_take(&f->op, limit, &where, cost, WEIR__TAKE, d);
}

/* Checks that every record that a slot refers to and that is still its key's has all its chunks leased, and shares
 * none. */
static void check_linked(const struct fixture *f, const uint64_t *salts, int salt_count)
{
    uint8_t *claimed = calloc(1, f->table.chunks + 1);
    for (uint64_t at = 0; at < f->table.buckets * WEIR__BUCKET_SLOTS; at++) {
        weir__cell cell = f->table.bucket[at / WEIR__BUCKET_SLOTS].slot[at % WEIR__BUCKET_SLOTS];
        struct weir__slot_fields p = weir__cell_unpack(cell);
        if (!p.tag || p.state != WEIR__NORMAL || weir__cell_life(cell, f->op.mono_us, f->op.wall_us) <= 0)
            continue;
        struct weir__record r = weir__record_unpack(p.used);
        CHECK((uint64_t)r.chunk + weir__class_chunks(r.size_class) <= f->table.chunks);
        uint64_t owner = weir__record_head(&f->op, r)->lo >> (64 - WEIR__OWNER_BITS);
        uint32_t first = f->table.lease[r.chunk];
        bool its_own = false, complete = leased(f, r.chunk) && first >> 31 && !(first >> 30 & 1);
        for (int i = 0; i < salt_count; i++)
            its_own |= weir__owner(&(struct weir__key_location){.tag = p.tag, .salt = salts[i]}) == owner;
        for (uint32_t i = 0; its_own && complete && i < weir__class_chunks(r.size_class); i++) {
            CHECK(leased(f, r.chunk + i));
            CHECK(!claimed[r.chunk + i]++);
        }
    }
    free(claimed);
}

TEST(log_grows_in_a_full_slab)
{
    /* A large log, half used, is evicted for a small one; its remaining chunks are free when that one grows. */
    struct fixture *f = fixture_make(8);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 120, .window_ns = WEIR_DAY};
    weir_limit limit = limit_of(params);
    uint64_t salt = (uint64_t)limit.quantum_us;
    weir_decision d;
    int64_t passed = 0;

    CHECK_EQ(take(f, &limit, 1, 60, &d), 0);
    CHECK_EQ(d.verdict, WEIR_ALLOW);
    check_linked(f, &salt, 1);
    for (int i = 0; i < 70; i++) {
        pass_time(f, SECOND_US);
        /* A growing log is copied, so the last step does not fit beside the log itself. */
        int error = take(f, &limit, 2, 1, &d);
        CHECK(error == 0 || (error == WEIR_EFULL && passed >= 20));
        passed += !error && d.verdict == WEIR_ALLOW;
        check_linked(f, &salt, 1);
    }
    CHECK(passed >= 20 && passed <= 60);
    fixture_free(f);
}

TEST(wrapped_log_grows_over_itself)
{
    /* Two chunks, two keys: the only place for a log of two chunks includes the one where it is now. Its ring has
     * wrapped by then, so copying it onto itself must not mix up its times. An error would be acceptable; too many
     * passing would not. */
    static const int64_t at_s[] = {0, 1, 2, 9, 10, 11, 11, 12, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19, 19, 20, 20, 21};
    struct fixture *f = fixture_make(2);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 6, .window_ns = 10 * WEIR_SECOND};
    weir_limit limit = limit_of(params);
    int64_t passed_us[sizeof at_s / sizeof *at_s], passed = 0;

    for (size_t i = 0; i < sizeof at_s / sizeof *at_s; i++) {
        weir_decision d;
        int64_t live = 0;
        f->op.mono_us = f->op.wall_us = START_US + at_s[i] * SECOND_US + (int64_t)i;
        if (i == 4)
            CHECK_EQ(take(f, &limit, 2, 4, &d), 0); /* the other key */
        for (int64_t k = 0; k < passed; k++)
            live += passed_us[k] > f->op.mono_us - 10 * SECOND_US;
        int error = take(f, &limit, 1, 1, &d);
        CHECK(error == 0 || error == WEIR_EFULL);
        if (!error && d.verdict == WEIR_ALLOW) {
            CHECK(live < 6);
            passed_us[passed++] = f->op.mono_us;
        }
    }
    CHECK(passed >= 6);
    fixture_free(f);
}

TEST(logs_use_little_memory)
{
    /* At most 8.5 bytes a logged request and 48 a key, at any length, with the slot's share of a table 90 % full. */
    struct fixture *f = fixture_make(4096);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 2000, .window_ns = WEIR_DAY};
    weir_limit limit = limit_of(params);
    struct weir__key_location where = key_of(f, &limit, 1);
    struct weir__key_record key;
    weir_decision d;

    where.salt = (uint64_t)limit.quantum_us;
    for (int64_t n = 1; n <= 2000; n++) {
        pass_time(f, 1000);
        CHECK_EQ(take(f, &limit, 1, 1, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        CHECK_EQ(weir__key_record_find(&f->op, &where, &key), 0);
        CHECK(key.found);
        double bytes = 16 / 0.9 + weir__class_chunks(key.record.size_class) * (WEIR__CHUNK + sizeof(uint32_t));
        CHECK(bytes <= 48 + 8.5 * (double)n);
    }
    fixture_free(f);
}

TEST(tiny_slab_under_load)
{
    weir_limit limits[] = {
        limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 100, .window_ns = 10 * WEIR_SECOND}),
        limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 5, .window_ns = WEIR_SECOND, .id = 1}),
        limit_of((weir_params){
            .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 50, .window_ns = 6 * WEIR_SECOND, .buckets = 6}),
        limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                               .limit = 50,
                               .window_ns = 60 * WEIR_SECOND,
                               .buckets = 60,
                               .id = 2}),
    };
    uint64_t salts[4], seed = 3;
    for (int i = 0; i < 4; i++)
        salts[i] =
            i < 2 ? (uint64_t)limits[i].quantum_us : (uint64_t)limits[i].part_us * WEIR__CLASSES + limits[i].buckets;

    for (uint64_t chunk_count = 0; chunk_count < 40; chunk_count += 3) {
        struct fixture *f = fixture_make(chunk_count);
        uint64_t errors = 0;
        for (int64_t round = 0, rounds = test_scaled(4000, 500); round < rounds; round++) {
            const weir_limit *limit = &limits[test_random(&seed) % 4];
            weir_decision d;
            int error = take(f, limit, test_random(&seed) % 20, (int64_t)(test_random(&seed) % 20) - 2, &d);
            CHECK(error == 0 || error == WEIR_EFULL);
            errors += error != 0;
            pass_time(f, (int64_t)(test_random(&seed) % 20000));
            if (round % 16 == 0)
                check_linked(f, salts, 4);
        }
        CHECK(errors + evicted(f) > 0);
        fixture_free(f);
    }
}

TEST(nothing_leaks)
{
    struct fixture *f = fixture_make(3000);
    uint64_t seed = 4;
    weir_limit limit =
        limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 2000, .window_ns = 10 * WEIR_SECOND});

    for (int64_t round = 0, rounds = test_scaled(5000, 500); round < rounds; round++) {
        weir_decision d;
        int error = take(f, &limit, test_random(&seed) % 200, (int64_t)(test_random(&seed) % 100) + 1, &d);
        CHECK(error == 0 || error == WEIR_EFULL);
        if (round % 100 == 99) { /* an operator resets a key, whose record then expires */
            struct weir__key_location where = key_of(f, &limit, (uint64_t)round % 200);
            CHECK_EQ(weir__table_reset(&f->op, &limit, &where), 0);
        }
    }
    pass_time(f, 40 * SECOND_US);
    CHECK_EQ(fill_by_ones(f, SECOND_US), 3000);
    fixture_free(f);
}

TEST(resets_release_records)
{
    /* One key that is reset over and over must not evict the others. */
    struct fixture *f = fixture_make(100);
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 9, .window_ns = WEIR_DAY});
    struct weir__key_location where = key_of(f, &limit, 0);
    weir_decision d;
    CHECK_EQ(take(f, &limit, 1, 9, &d), 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(take(f, &limit, 0, 1, &d), 0);
        CHECK_EQ(weir__table_reset(&f->op, &limit, &where), 0);
        pass_time(f, 1);
    }
    CHECK_EQ(evicted(f), 0);
    CHECK_EQ(take(f, &limit, 1, 1, &d), 0);
    CHECK_EQ(d.verdict, WEIR_DENY);
    fixture_free(f);
}

/* ---- Damage ---- */

TEST(damaged_counter_head_stays_in_its_record)
{
    /* A head whose part lies before time 0 must not lead to a word before the record: that is another key's. */
    enum { CHUNKS_EACH = 16 };
    weir_limit limit = limit_of((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 1000, .window_ns = 60 * WEIR_SECOND, .buckets = 60});
    for (int64_t back = 1; back < 200; back++) {
        struct fixture *f = fixture_make(100);
        uint8_t *neighbour = f->table.chunk, copy[CHUNKS_EACH * WEIR__CHUNK];
        weir__cell *head = (weir__cell *)(void *)(neighbour + sizeof copy);
        uint64_t part_mask = (UINT64_C(1) << 35) - 1;
        weir_decision d;
        f->op.mono_us = f->op.wall_us = 100 * SECOND_US;
        CHECK_EQ(take(f, &limit, 1, 1, &d), 0);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        memcpy(copy, neighbour, sizeof copy);

        CHECK_EQ(head->lo & part_mask, 100); /* the layout is as assumed */
        head->lo = (head->lo & ~part_mask) | ((uint64_t)-back & part_mask);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        CHECK(d.remaining <= 998);
        CHECK(memcmp(copy, neighbour, sizeof copy) == 0);
        fixture_free(f);
    }
}

TEST(reference_outside_the_slab)
{
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 9, .window_ns = WEIR_DAY});
    struct fixture *f = fixture_make(16);
    uint64_t seed = 5, key = 7;
    struct weir__key_location where = key_of(f, &limit, key);

    for (int64_t i = 0, rounds = test_scaled(20000, 100); i < rounds; i++) {
        weir_decision d;
        weir__cell seen, *slot = NULL;
        CHECK_EQ(take(f, &limit, key, 1, &d), 0);
        CHECK_EQ(weir__lookup_helping(&f->op, &where, &slot, &seen), 0);
        if (!slot)
            continue;
        struct weir__slot_fields p = weir__cell_unpack(*slot);
        p.used = test_random(&seed) & UINT32_MAX;
        *slot = weir__cell_pack(p);
        if (i % 4 == 0) /* one that leads inside, to a head of random bits */
            *weir__record_head(&f->op, (struct weir__record){.chunk = (uint32_t)(p.used % 16)}) =
                (weir__cell){test_random(&seed), test_random(&seed)};
    }
    fixture_free(f);
}

TEST_MAIN
