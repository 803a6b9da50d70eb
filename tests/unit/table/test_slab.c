/* The slab: records, leases, and eviction when it is full. */
#include "slabs.h"

/* ---- Classes ---- */

TEST(size_classes_increase_and_waste_little)
{
    for (unsigned c = 1; c < WEIR__CLASSES; c++) {
        CHECK(weir__class_chunks(c) > weir__class_chunks(c - 1) || c == 8); /* 7 and 8 are the same size */
        /* Four sizes to a doubling: a record is at most a quarter larger than what did not fit the class below. */
        CHECK(c < 8 || weir__class_chunks(c) * 4 <= weir__class_chunks(c - 1) * 5);
    }
    for (unsigned c = 0; c < WEIR__CLASSES; c++) {
        uint64_t bytes = (uint64_t)weir__class_chunks(c) * WEIR__CHUNK;
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
        struct weir__record r = {.chunk = (uint32_t)(test_random(&seed) % WEIR__CHUNKS_MAX),
                                 .size_class = (unsigned)(test_random(&seed) % WEIR__CLASSES)};
        struct weir__record back = weir__record_unpack(weir__record_pack(r));
        CHECK(weir__record_pack(r) <= UINT32_MAX);
        CHECK_EQ(back.chunk, r.chunk);
        CHECK_EQ(back.size_class, r.size_class);
    }
}

/* ---- Records ---- */

TEST(records_never_overlap)
{
    enum { CHUNKS = 500, MODEL_RECORDS = 150 };
    struct fixture *f = fixture_make(CHUNKS);
    struct model_record {
        struct weir__record record;
        int64_t until_us; /* 0: not in use */
    } *model_record = calloc(MODEL_RECORDS, sizeof *model_record);
    uint64_t seed = 2, taken = 0, lost_all = 0;

    for (int64_t round = 0, rounds = test_scaled(200000, 5000); round < rounds; round++) {
        struct model_record *h = &model_record[test_random(&seed) % MODEL_RECORDS];
        if (h->until_us > f->op.mono_us) {
            weir__record_release(&f->op, h->record);
            h->until_us = 0;
            continue;
        }
        pass_time(f, (int64_t)(test_random(&seed) % 64 ? 1 : test_random(&seed) % (8 * SECOND_US)));

        unsigned size_class = (unsigned)(test_random(&seed) % 12);
        int64_t for_us = (int64_t)(test_random(&seed) % (60 * SECOND_US));
        uint64_t before = evicted(f), lost = 0;
        struct weir__record got = {.chunk = 0};
        int error = take_record(f, size_class, for_us, &got);
        if (error) {
            CHECK_EQ(error, WEIR_EFULL);
            CHECK_EQ(evicted(f), before);
            continue;
        }
        uint64_t end = (uint64_t)got.chunk + weir__class_chunks(size_class);
        taken++;
        CHECK_EQ(got.size_class, size_class);
        CHECK(end <= CHUNKS);
        for (uint64_t g = got.chunk; g < end && g < CHUNKS; g++)
            CHECK(leased(f, g));
        for (int i = 0; i < MODEL_RECORDS; i++) {
            struct model_record *other = &model_record[i];
            uint64_t other_end = (uint64_t)other->record.chunk + weir__class_chunks(other->record.size_class);
            if (other->until_us <= f->op.mono_us || other->record.chunk >= end || other_end <= got.chunk)
                continue;
            /* Records that were evicted for it lost their first chunk, too; any other overlap would be undetected. */
            CHECK(other->record.chunk >= got.chunk);
            other->until_us = 0;
            lost++;
        }
        /* The model drops a record when its lease expires, the slab up to a second later. */
        CHECK(evicted(f) - before >= lost);
        lost_all += lost;
        *h = (struct model_record){got, f->op.mono_us + for_us};
    }
    /* The numbers are chosen so that both cases are frequent. */
    CHECK(lost_all > 0 && lost_all < taken / 2);
    free(model_record);
    fixture_free(f);
}

TEST(release_makes_room)
{
    enum { CHUNKS = 64 };
    struct fixture *f = fixture_make(CHUNKS);
    struct weir__record r[CHUNKS];

    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < CHUNKS; i++)
            CHECK_EQ(take_record(f, 0, 3600 * SECOND_US, &r[i]), 0);
        CHECK_EQ(evicted(f), 0);
        for (int i = 0; i < CHUNKS; i++)
            weir__record_release(&f->op, r[i]);
    }
    /* As one record: no gap was left in between. */
    CHECK_EQ(weir__class_chunks(19), CHUNKS - 8);
    CHECK_EQ(weir__class_chunks(20), CHUNKS);
    CHECK_EQ(take_record(f, 20, SECOND_US, &r[0]), 0);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

TEST(lease_expires)
{
    struct fixture *f = fixture_make(8);
    struct weir__record dead, next;

    /* Its owner dies right after this: it is neither published nor released. */
    CHECK_EQ(weir__record_take(&f->op, 7, 10 * SECOND_US, NULL, true, &dead), 0);
    pass_time(f, 10 * SECOND_US);
    for (uint64_t g = 0; g < 8; g++)
        CHECK(leased(f, g));
    pass_time(f, 3 * SECOND_US);
    CHECK_EQ(weir__record_take(&f->op, 7, 10 * SECOND_US, NULL, true, &next), 0);
    CHECK_EQ(evicted(f), 0);
    CHECK_EQ(next.chunk, dead.chunk);
    fixture_free(f);
}

TEST(full_slab_evicts_the_lease_that_expires_first)
{
    struct fixture *f = fixture_make(12);
    struct weir__record r[3], got = {.chunk = 99};

    for (int i = 0; i < 3; i++)
        CHECK_EQ(take_record(f, 3, (i == 1 ? 100 : 1000) * SECOND_US, &r[i]), 0);
    CHECK_EQ(evicted(f), 0);

    /* More than there is: an error, and no record is evicted for it. */
    CHECK_EQ(weir__record_take(&f->op, 11, SECOND_US, NULL, true, &got), WEIR_EFULL);
    CHECK_EQ(weir__record_take(&f->op, 63, SECOND_US, NULL, true, &got), WEIR_EFULL);
    CHECK_EQ(weir__record_take(&f->op, WEIR__CLASSES, SECOND_US, NULL, true, &got), WEIR_EFULL);
    CHECK_EQ(got.chunk, 99);
    CHECK_EQ(evicted(f), 0);

    CHECK_EQ(take_record(f, 3, 2000 * SECOND_US, &got), 0);
    CHECK_EQ(got.chunk, r[1].chunk);
    CHECK_EQ(evicted(f), 1);
    fixture_free(f);
}

TEST(record_of_a_dead_process_in_a_full_slab)
{
    /* Killed between taking and publishing: until its lease expires, others are evicted instead, however long their
     * leases run. */
    struct fixture *f = fixture_make(12);
    struct weir__record dead, r[2], got;
    CHECK_EQ(weir__record_take(&f->op, 3, 100 * SECOND_US, NULL, true, &dead), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(take_record(f, 3, 1000 * SECOND_US, &r[i]), 0);
    CHECK_EQ(take_record(f, 3, 1000 * SECOND_US, &got), 0);
    CHECK_EQ(evicted(f), 1);
    fixture_free(f);
}

TEST(segment_without_a_slab_is_full)
{
    struct fixture *f = fixture_make(0);
    struct weir__record r;
    CHECK_EQ(weir__record_take(&f->op, 0, SECOND_US, NULL, true, &r), WEIR_EFULL);
    fixture_free(f);
}

/* Free chunks after a long stretch of small live records are found before any record is evicted. */
TEST(free_chunks_are_found_anywhere)
{
    enum { CHUNKS = 100000, SMALL = 50000 };
    struct fixture *f = fixture_make(CHUNKS);
    struct weir__record r;

    for (int i = 0; i < SMALL; i++)
        CHECK_EQ(take_record(f, 0, 86400 * SECOND_US, &r), 0);
    f->table.header->slab_cursor = 0; /* where it is after a complete scan of the slab */
    CHECK_EQ(take_record(f, 7, SECOND_US, &r), 0);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

TEST_MAIN
