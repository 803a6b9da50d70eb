/* The slab: records, leases, what happens when it is full, and logs and counters that live in it. */
#include "table/hash.h"
#include "table/slab.h"

#include "../../test.h"

#define SECOND_US INT64_C(1000000)
#define START_US  (INT64_C(20000) * 86400 * SECOND_US)

/* ---- A segment in plain memory, with so many grains ---- */

struct fixture {
    void *memory;
    struct weir__table table;
    struct weir__op op;
};

static struct fixture *fixture_make(uint64_t grains)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t slab = grains * (WEIR__GRAIN + sizeof(uint32_t)), bytes = ((slab * 2 + (1 << 17)) / 4096 + 1) * 4096;
    struct weir__plan plan = {.bytes = bytes, .slab_bytes = slab, .wall_ns = START_US * 1000};
    for (size_t i = 0; i < sizeof plan.secret; i++)
        plan.secret[i] = (uint8_t)(i * 7 + 1);

    f->memory = aligned_alloc(4096, bytes);
    memset(f->memory, 0, bytes);
    CHECK_EQ(weir__segment_format(f->memory, &plan), 0);
    CHECK_EQ(weir__segment_attach(f->memory, bytes, &f->table), 0);
    CHECK_EQ(f->table.grains, grains);
    f->op = (struct weir__op){&f->table, &f->table.stats[0], START_US, START_US};
    return f;
}

static void fixture_free(struct fixture *f)
{
    free(f->memory);
    free(f);
}

static uint64_t evicted(const struct fixture *f)
{
    return f->table.stats[0].evicted_live;
}

static void pass_time(struct fixture *f, int64_t us)
{
    f->op.mono_us += us;
    f->op.wall_us += us;
}

/* Does the lease of a grain still run? As slab.c has it: 27 bits of about two seconds above a nonce of 3. */
static bool leased(const struct fixture *f, uint64_t grain)
{
    uint32_t word = f->table.lease[grain], mask = UINT32_C(0x07ffffff);
    uint32_t left = ((word >> 3 & mask) - ((uint32_t)((uint64_t)f->op.mono_us >> 21) & mask)) & mask;
    return word && left && left <= mask / 2;
}

/* Takes a record and makes it somebody's, so that it can be taken away like any other. */
static int take_record(struct fixture *f, unsigned size_class, int64_t for_us, struct weir__record *record)
{
    const struct weir__where somebody = {.tag = 1000};
    int error = weir__record_take(&f->op, size_class, for_us, NULL, record);
    if (!error)
        CHECK(weir__record_own(&f->op, &somebody, record, (weir__cell){0, size_class}));
    return error;
}

/* ---- Classes ---- */

TEST(classes_rise_and_waste_little)
{
    for (unsigned c = 1; c < WEIR__CLASSES; c++) {
        CHECK(weir__class_grains(c) > weir__class_grains(c - 1) || c == 8); /* 7 and 8 are the same size */
        /* Four sizes to a doubling: a record is at most a quarter larger than what did not fit the class below. */
        CHECK(c < 8 || weir__class_grains(c) * 4 <= weir__class_grains(c - 1) * 5);
    }
    for (unsigned c = 0; c < WEIR__CLASSES; c++) {
        uint64_t bytes = (uint64_t)weir__class_grains(c) * WEIR__GRAIN;
        CHECK_EQ(weir__class_for(bytes), c == 8 ? 7 : c);
        CHECK_EQ(weir__class_for(bytes + 1), c == 7 ? 9 : c + 1);
    }
    CHECK_EQ(weir__class_for(1), 0);
    CHECK_EQ(weir__class_for(UINT64_MAX), WEIR__CLASSES);
    /* The largest log there may be has a class. */
    CHECK(weir__class_for(sizeof(weir__cell) + sizeof(uint32_t) * WEIR__LOG_MAX) < WEIR__CLASSES);
}

TEST(reference_round_trip)
{
    uint64_t seed = 1;
    for (int i = 0; i < 10000; i++) {
        struct weir__record r = {.grain = (uint32_t)(test_random(&seed) % WEIR__GRAINS_MAX),
                                 .size_class = (unsigned)(test_random(&seed) % WEIR__CLASSES)};
        struct weir__record back = weir__record_unpack(weir__record_pack(r));
        CHECK(weir__record_pack(r) <= UINT32_MAX);
        CHECK_EQ(back.grain, r.grain);
        CHECK_EQ(back.size_class, r.size_class);
    }
}

/* ---- Records ---- */

TEST(never_overlap)
{
    enum { GRAINS = 500, HELD = 150 };
    struct fixture *f = fixture_make(GRAINS);
    struct held {
        struct weir__record record;
        int64_t until_us; /* 0: not held */
    } *held = calloc(HELD, sizeof *held);
    uint64_t seed = 2, taken = 0, lost_all = 0;

    for (int64_t round = 0, rounds = test_scaled(200000, 5000); round < rounds; round++) {
        struct held *h = &held[test_random(&seed) % HELD];
        if (h->until_us > f->op.mono_us) {
            weir__record_release(&f->op, h->record);
            h->until_us = 0;
            continue;
        }
        pass_time(f, (int64_t)(test_random(&seed) % 64 ? 1 : test_random(&seed) % (8 * SECOND_US)));

        unsigned size_class = (unsigned)(test_random(&seed) % 12);
        int64_t for_us = (int64_t)(test_random(&seed) % (60 * SECOND_US));
        uint64_t before = evicted(f), lost = 0;
        struct weir__record got = {.grain = 0};
        int error = take_record(f, size_class, for_us, &got);
        if (error) {
            CHECK_EQ(error, WEIR_EFULL);
            CHECK_EQ(evicted(f), before);
            continue;
        }
        uint64_t end = (uint64_t)got.grain + weir__class_grains(size_class);
        taken++;
        CHECK_EQ(got.size_class, size_class);
        CHECK(end <= GRAINS);
        for (uint64_t g = got.grain; g < end && g < GRAINS; g++)
            CHECK(leased(f, g));
        for (int i = 0; i < HELD; i++) {
            struct held *other = &held[i];
            uint64_t other_end = (uint64_t)other->record.grain + weir__class_grains(other->record.size_class);
            if (other->until_us <= f->op.mono_us || other->record.grain >= end || other_end <= got.grain)
                continue;
            /* Those it was taken from lost their first grain, too; any other overlap is a theft they cannot notice. */
            CHECK(other->record.grain >= got.grain);
            other->until_us = 0;
            lost++;
        }
        /* The model forgets a record when its time is up, the slab up to a second later. */
        CHECK(evicted(f) - before >= lost);
        lost_all += lost;
        *h = (struct held){got, f->op.mono_us + for_us};
    }
    /* The numbers are chosen so that both ways are gone often. */
    CHECK(lost_all > 0 && lost_all < taken / 2);
    free(held);
    fixture_free(f);
}

/* Takes records of one grain until none is to be had without an eviction; returns how many there were. */
static uint64_t fill_by_ones(struct fixture *f, int64_t for_us)
{
    uint64_t count = 0, before = evicted(f);
    struct weir__record r;
    while (take_record(f, 0, for_us, &r) == 0 && evicted(f) == before)
        count++;
    return count;
}

TEST(release_makes_room)
{
    enum { GRAINS = 64 };
    struct fixture *f = fixture_make(GRAINS);
    struct weir__record r[GRAINS];

    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < GRAINS; i++)
            CHECK_EQ(take_record(f, 0, 3600 * SECOND_US, &r[i]), 0);
        CHECK_EQ(evicted(f), 0);
        for (int i = 0; i < GRAINS; i++)
            weir__record_release(&f->op, r[i]);
    }
    /* All of them as one: nothing was left in between. */
    CHECK_EQ(weir__class_grains(19), GRAINS - 8);
    CHECK_EQ(weir__class_grains(20), GRAINS);
    CHECK_EQ(take_record(f, 20, SECOND_US, &r[0]), 0);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

TEST(lease_lapses)
{
    struct fixture *f = fixture_make(8);
    struct weir__record dead, next;

    /* Its owner dies right after this: nobody links it, nobody releases it. */
    CHECK_EQ(weir__record_take(&f->op, 7, 10 * SECOND_US, NULL, &dead), 0);
    pass_time(f, 10 * SECOND_US);
    for (uint64_t g = 0; g < 8; g++)
        CHECK(leased(f, g));
    pass_time(f, 3 * SECOND_US);
    CHECK_EQ(weir__record_take(&f->op, 7, 10 * SECOND_US, NULL, &next), 0);
    CHECK_EQ(evicted(f), 0);
    CHECK_EQ(next.grain, dead.grain);
    fixture_free(f);
}

TEST(full_takes_the_nearest_to_lapse)
{
    struct fixture *f = fixture_make(12);
    struct weir__record r[3], got = {.grain = 99};

    for (int i = 0; i < 3; i++)
        CHECK_EQ(take_record(f, 3, (i == 1 ? 100 : 1000) * SECOND_US, &r[i]), 0);
    CHECK_EQ(evicted(f), 0);

    /* More than there is: an error, and nobody loses anything for it. */
    CHECK_EQ(weir__record_take(&f->op, 11, SECOND_US, NULL, &got), WEIR_EFULL);
    CHECK_EQ(weir__record_take(&f->op, 63, SECOND_US, NULL, &got), WEIR_EFULL);
    CHECK_EQ(weir__record_take(&f->op, WEIR__CLASSES, SECOND_US, NULL, &got), WEIR_EFULL);
    CHECK_EQ(got.grain, 99);
    CHECK_EQ(evicted(f), 0);

    CHECK_EQ(take_record(f, 3, 2000 * SECOND_US, &got), 0);
    CHECK_EQ(got.grain, r[1].grain);
    CHECK_EQ(evicted(f), 1);
    fixture_free(f);
}

TEST(dead_taker_in_a_full_slab)
{
    /* Killed between taking and owning: until its lease lapses, others are taken instead, however long theirs run. */
    struct fixture *f = fixture_make(12);
    struct weir__record dead, r[2], got;
    CHECK_EQ(weir__record_take(&f->op, 3, 100 * SECOND_US, NULL, &dead), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(take_record(f, 3, 1000 * SECOND_US, &r[i]), 0);
    CHECK_EQ(take_record(f, 3, 1000 * SECOND_US, &got), 0);
    CHECK_EQ(evicted(f), 1);
    fixture_free(f);
}

TEST(no_slab_is_full)
{
    struct fixture *f = fixture_make(0);
    struct weir__record r;
    CHECK_EQ(weir__record_take(&f->op, 0, SECOND_US, NULL, &r), WEIR_EFULL);
    fixture_free(f);
}

/* Free grains behind a long stretch of small live records are found after a few evictions, not after all of them. */
TEST(room_far_from_the_cursor)
{
    enum { GRAINS = 100000, SMALL = 50000 };
    struct fixture *f = fixture_make(GRAINS);
    struct weir__record r;
    bool found = false;

    for (int i = 0; i < SMALL; i++)
        CHECK_EQ(take_record(f, 0, 86400 * SECOND_US, &r), 0);
    f->table.header->slab_cursor = 0; /* where it is once the slab has been gone through */
    for (int i = 0; i < 8 && !found; i++) {
        uint64_t before = evicted(f);
        int error = take_record(f, 7, SECOND_US, &r);
        CHECK(error == 0 || error == WEIR_EFULL);
        found = !error && evicted(f) == before;
    }
    CHECK(found);
    fixture_free(f);
}

/* ---- Logs and wide counters in a slab that is too small ---- */

static weir_limit limit_of(weir_params params)
{
    weir_limit limit;
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static struct weir__where key_of(const struct fixture *f, const weir_limit *limit, uint64_t key)
{
    struct weir__where where;
    weir__key_locate(&f->table, limit, &key, sizeof key, &where);
    return where;
}

static int take(struct fixture *f, const weir_limit *limit, uint64_t key, int64_t cost, weir_decision *d)
{
    struct weir__where where = key_of(f, limit, key);
    return weir__table_take(&f->op, limit, &where, cost, WEIR__TAKE, d);
}

/* Every record that a slot leads to and that is still its key's has all its grains leased, and shares none. */
static void check_linked(const struct fixture *f, const uint64_t *salts, int salt_count)
{
    uint8_t *claimed = calloc(1, f->table.grains + 1);
    for (uint64_t at = 0; at < f->table.lines * WEIR__SLOTS; at++) {
        weir__cell cell = f->table.line[at / WEIR__SLOTS].slot[at % WEIR__SLOTS];
        struct weir__parts p = weir__cell_unpack(cell);
        if (!p.tag || p.state != WEIR__NORMAL || weir__cell_life(cell, f->op.mono_us, f->op.wall_us) <= 0)
            continue;
        struct weir__record r = weir__record_unpack(p.used);
        CHECK((uint64_t)r.grain + weir__class_grains(r.size_class) <= f->table.grains);
        uint64_t owner = weir__record_head(&f->op, r)->lo >> (64 - WEIR__OWNER_BITS);
        uint32_t first = f->table.lease[r.grain];
        bool its_own = false, whole = leased(f, r.grain) && first >> 31 && !(first >> 30 & 1);
        for (int i = 0; i < salt_count; i++)
            its_own |= weir__owner(&(struct weir__where){.tag = p.tag, .salt = salts[i]}) == owner;
        for (uint32_t i = 0; its_own && whole && i < weir__class_grains(r.size_class); i++) {
            CHECK(leased(f, r.grain + i));
            CHECK(!claimed[r.grain + i]++);
        }
    }
    free(claimed);
}

TEST(log_that_grows_in_a_full_slab)
{
    /* A large log loses its record to a small one; what is left behind it is in nobody's way when that one grows. */
    struct fixture *f = fixture_make(8);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 60, .window_ns = WEIR_DAY};
    weir_limit limit = limit_of(params);
    uint64_t salt = (uint64_t)limit.quantum_us;
    weir_decision d;
    int64_t passed = 0;

    CHECK_EQ(take(f, &limit, 1, 60, &d), 0);
    CHECK_EQ(d.verdict, WEIR_ALLOW);
    check_linked(f, &salt, 1);
    for (int i = 0; i < 70; i++) {
        pass_time(f, SECOND_US);
        /* A log is copied to where it grows, so the last step does not fit beside the log itself. */
        int error = take(f, &limit, 2, 1, &d);
        CHECK(error == 0 || (error == WEIR_EFULL && passed >= 20));
        passed += !error && d.verdict == WEIR_ALLOW;
        check_linked(f, &salt, 1);
    }
    CHECK(passed >= 20 && passed <= 60);
    fixture_free(f);
}

TEST(log_that_wraps_and_grows_over_itself)
{
    /* Two grains, two keys: the only place for a log of two grains is where it is now, in one. Its ring has wrapped
     * by then, so copying it onto itself must not mix up its times. An error would do; too many passing would not. */
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

TEST(logs_are_small)
{
    /* At most 8.5 bytes a logged request and 48 a key, at any length, with the slot's share of a table 90 % full. */
    struct fixture *f = fixture_make(4096);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 2000, .window_ns = WEIR_DAY};
    weir_limit limit = limit_of(params);
    struct weir__where where = key_of(f, &limit, 1);
    struct weir__key_record key;
    weir_decision d;

    where.salt = (uint64_t)limit.quantum_us;
    for (int64_t n = 1; n <= 2000; n++) {
        pass_time(f, 1000);
        CHECK_EQ(take(f, &limit, 1, 1, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        CHECK_EQ(weir__key_record_find(&f->op, &where, &key), 0);
        CHECK(key.found);
        double bytes = 16 / 0.9 + weir__class_grains(key.record.size_class) * (WEIR__GRAIN + sizeof(uint32_t));
        CHECK(bytes <= 48 + 8.5 * (double)n);
    }
    fixture_free(f);
}

TEST(tiny_slab_under_pressure)
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

    for (uint64_t grains = 0; grains < 40; grains += 3) {
        struct fixture *f = fixture_make(grains);
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
        if (round % 100 == 99) { /* an operator resets a key, which leaves its record to lapse */
            struct weir__where where = key_of(f, &limit, (uint64_t)round % 200);
            CHECK_EQ(weir__table_reset(&f->op, &limit, &where), 0);
        }
    }
    pass_time(f, 40 * SECOND_US);
    CHECK_EQ(fill_by_ones(f, SECOND_US), 3000);
    fixture_free(f);
}

TEST(resets_give_records_back)
{
    /* One key that is reset over and over must not drive the others out. */
    struct fixture *f = fixture_make(100);
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 9, .window_ns = WEIR_DAY});
    struct weir__where where = key_of(f, &limit, 0);
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

TEST(hostile_counter_head_stays_inside)
{
    /* A head whose part lies before time 0 must not lead to a word before the record: that is another key's. */
    enum { GRAINS_EACH = 16 };
    weir_limit limit = limit_of((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 1000, .window_ns = 60 * WEIR_SECOND, .buckets = 60});
    for (int64_t back = 1; back < 200; back++) {
        struct fixture *f = fixture_make(100);
        uint8_t *neighbour = f->table.grain, copy[GRAINS_EACH * WEIR__GRAIN];
        weir__cell *head = (weir__cell *)(void *)(neighbour + sizeof copy);
        uint64_t part_mask = (UINT64_C(1) << 35) - 1;
        weir_decision d;
        f->op.mono_us = f->op.wall_us = 100 * SECOND_US;
        CHECK_EQ(take(f, &limit, 1, 1, &d), 0);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        memcpy(copy, neighbour, sizeof copy);

        CHECK_EQ(head->lo & part_mask, 100); /* it is where we think it is */
        head->lo = (head->lo & ~part_mask) | ((uint64_t)-back & part_mask);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        CHECK_EQ(take(f, &limit, 2, 1, &d), 0);
        CHECK(d.remaining <= 998);
        CHECK(memcmp(copy, neighbour, sizeof copy) == 0);
        fixture_free(f);
    }
}

TEST(reference_that_leads_outside)
{
    weir_limit limit = limit_of((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 9, .window_ns = WEIR_DAY});
    struct fixture *f = fixture_make(16);
    uint64_t seed = 5, key = 7;
    struct weir__where where = key_of(f, &limit, key);

    for (int64_t i = 0, rounds = test_scaled(20000, 100); i < rounds; i++) {
        weir_decision d;
        weir__cell seen, *slot = NULL;
        CHECK_EQ(take(f, &limit, key, 1, &d), 0);
        CHECK_EQ(weir__look(&f->op, &where, &slot, &seen), 0);
        if (!slot)
            continue;
        struct weir__parts p = weir__cell_unpack(*slot);
        p.used = test_random(&seed) & UINT32_MAX;
        *slot = weir__cell_pack(p);
        if (i % 4 == 0) /* one that leads inside, to a head of anything */
            *weir__record_head(&f->op, (struct weir__record){.grain = (uint32_t)(p.used % 16)}) =
                (weir__cell){test_random(&seed), test_random(&seed)};
    }
    fixture_free(f);
}

TEST_MAIN
