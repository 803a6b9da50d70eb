/* The log when other processes act between the steps of a request; and when its head is damaged. */
#include "record_hooks.h"

#include "logs.h"
#undef weir__record_publish
#undef weir__key_record_renew

static struct fixture f;

static struct weir__key_record find(int64_t seconds)
{
    struct weir__op op = at(&f, seconds);
    struct weir__key_location where = weir__record_location(&f.limit, &f.where);
    struct weir__key_record key;
    CHECK_EQ(weir__key_record_find(&op, &where, &key), 0);
    return key;
}

static weir__cell *head_at(int64_t seconds)
{
    struct weir__op op = at(&f, seconds);
    return weir__record_head(&op, find(seconds).record);
}

static uint32_t *times_at(int64_t seconds)
{
    struct weir__op op = at(&f, seconds);
    return weir__record_body(&op, find(seconds).record);
}

/* ---- Concurrent writes ---- */

static void wrap_around(void)
{
    for (int64_t seconds = 30; seconds < 150; seconds += 31)
        CHECK_EQ(take(&f, 1, seconds).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 124).verdict, WEIR_ALLOW); /* has written the time of 123 */
}

/* Two minutes later the old unit has expired, and its word is used by another. */
TEST(reused_word_is_left_alone)
{
    fixture_make(&f);
    take(&f, 1, 0);
    before_write = wrap_around;
    CHECK_EQ(take(&f, 1, 1).verdict, WEIR_ALLOW);
    CHECK(!before_write);
    CHECK_EQ(weir__record_body_bytes(find(124).record), 4 * sizeof(uint32_t));
    /* Those of 92, 123 and 124, and this one. */
    CHECK_EQ(take(&f, 96, 130).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 130).verdict, WEIR_DENY);
    free(f.memory);
}

static void overwrite_time(void)
{
    times_at(10)[0] -= 100 * SECOND_US;
}

TEST(word_of_a_late_writer_is_overwritten)
{
    fixture_make(&f);
    take(&f, 1, 0);
    before_write = overwrite_time;
    CHECK_EQ(take(&f, 1, 10).verdict, WEIR_ALLOW);
    CHECK(!before_write);
    CHECK_EQ(take(&f, 98, 59).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 59).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 1, 60).verdict, WEIR_ALLOW);
    free(f.memory);
}

static void log_the_expected_time(void)
{
    take(&f, -1, 30);
    CHECK_EQ(take(&f, 1, 31).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 31).verdict, WEIR_ALLOW); /* has written 31 */
}

/*
 * The word of a refunded unit still has 31. A unit of 30 is about to be written there; meanwhile it is refunded, too,
 * and there is another of 31: what the writer of 30 expects. That unit must not expire at 90.
 */
TEST(late_write_of_an_earlier_time_is_undone)
{
    fixture_make(&f);
    take(&f, 98, 29);
    take(&f, 1, 31);
    take(&f, -1, 31); /* has written 31 */
    take(&f, 1, 30);
    before_write = log_the_expected_time;
    CHECK_EQ(take(&f, 1, 30).verdict, WEIR_DENY);
    CHECK(!before_write);
    CHECK_EQ(take(&f, 98, 90).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 90).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 2, 91).verdict, WEIR_ALLOW);
    free(f.memory);
}

static void log_more(void)
{
    CHECK_EQ(take(&f, 1, 20).verdict, WEIR_ALLOW);
}

/* The previous time in the word is older, or there is none: nothing is to be undone. */
TEST(written_time_stays_when_others_continue)
{
    fixture_make(&f);
    take(&f, 1, 10);
    after_write = log_more;
    CHECK_EQ(take(&f, 1, 20).verdict, WEIR_ALLOW);
    CHECK(!after_write);
    CHECK_EQ(take(&f, 98, 69).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 97, 69).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 0, 70).remaining, 1);
    free(f.memory);
}

static void refund_all(void)
{
    take(&f, -100, 0);
}

/* The state on which the denial was based has changed. */
TEST(denial_is_checked_against_the_current_state)
{
    fixture_make(&f);
    take(&f, 100, 0);
    after_decision = refund_all;
    CHECK_EQ(take(&f, 1, 1).verdict, WEIR_ALLOW);
    CHECK(!after_decision);
    free(f.memory);
}

/* ---- Concurrent evictions ---- */

/* Takes the complete slab, after all leases have expired or by eviction, and fills it with times in the future. */
static void take_slab(int64_t seconds)
{
    const struct weir__key_location other_key = {.tag = 1000};
    struct weir__op op = at(&f, seconds);
    struct weir__record record;
    for (uint64_t taken = 0; taken < f.table.chunks; taken += weir__class_chunks(20)) {
        CHECK_EQ(weir__record_take(&op, 20, 3600 * SECOND_US, NULL, true, &record), 0);
        CHECK(weir__record_publish(&op, &other_key, &record, (weir__cell){0, 77}));
        uint32_t *word = weir__record_body(&op, record);
        for (uint64_t i = 0; i < weir__record_body_bytes(record) / sizeof *word; i++)
            word[i] = (uint32_t)((START_US + 10000 * SECOND_US) / f.limit.quantum_us);
    }
}

/* A slab in which one record has room beside others. */
static void small_fixture(uint64_t chunk_count)
{
    fixture_make(&f);
    f.table.chunks = chunk_count;
}

static void take_slab_later(void)
{
    take_slab(7200);
}

/* A process is delayed beyond its lease before it has published its head: the record of the new owner stays unchanged.
 */
TEST(process_delayed_beyond_its_lease_leaves_the_record_alone)
{
    small_fixture(64);
    before_publish = take_slab_later;
    struct weir__op op = at(&f, 0), later = at(&f, 7200);
    struct weir__key_location where = weir__record_location(&f.limit, &f.where), other_key = {.tag = 1000};
    weir_decision d;
    CHECK_EQ(weir__log_attempt(&op, &f.limit, &where, 4, WEIR__TAKE, &d), 0); /* retries */
    CHECK(!before_publish);

    const struct weir__record all = {.size_class = 20};
    const uint32_t *word = weir__record_body(&later, all);
    weir__cell head = weir__cell_read(weir__record_head(&later, all));
    CHECK_EQ(head.lo >> (64 - WEIR__OWNER_BITS), weir__owner(&other_key));
    CHECK_EQ(head.hi, 77);
    for (uint64_t i = 0; i < weir__record_body_bytes(all) / sizeof *word; i++)
        CHECK_EQ(word[i], (uint32_t)((START_US + 10000 * SECOND_US) / f.limit.quantum_us));
    weir__cell *slot, seen;
    CHECK_EQ(weir__lookup_helping(&later, &f.where, &slot, &seen), 0);
    CHECK(!slot);
    free(f.memory);
}

static void take_slab_now(void)
{
    struct weir__op op = at(&f, 1);
    struct weir__key_record key = find(1);
    weir__record_release(&op, key.record); /* as if it had been evicted from a live key */
    f.table.chunks = key.record.chunk + 8;
    f.table.header->slab_cursor = key.record.chunk;
    struct weir__record record;
    CHECK_EQ(weir__record_take(&op, key.record.size_class, 3600 * SECOND_US, NULL, true, &record), 0);
    CHECK_EQ(record.chunk, key.record.chunk);
    f.table.chunks = 64;
    uint32_t *word = weir__record_body(&op, record);
    for (uint64_t i = 0; i < weir__record_body_bytes(record) / sizeof *word; i++)
        word[i] = (uint32_t)((START_US + 10000 * SECOND_US) / f.limit.quantum_us);
}

/* The log is moved, and loses the record that it is copied from: a copy of another key's words is not published. */
TEST(copy_of_an_evicted_record_is_discarded)
{
    small_fixture(64);
    take(&f, 4, 0);
    take(&f, 1, 0);
    before_publish = take_slab_now;
    CHECK_EQ(take(&f, 50, 1).verdict, WEIR_ALLOW);
    CHECK(!before_publish);
    /* Only the fifty are left. */
    CHECK_EQ(take(&f, 0, 1).remaining, 50);
    CHECK_EQ(take(&f, 0, 61).remaining, 100);
    free(f.memory);
}

TEST(lost_renewal_is_repeated)
{
    fixture_make(&f);
    take(&f, 1, 0);
    instead_of_renewal = do_nothing;
    take(&f, 1, 40);
    CHECK(!instead_of_renewal);
    CHECK(weir__cell_life(find(40).seen, at(&f, 40).mono_us, 0) >= 60 * SECOND_US);
    CHECK_EQ(take(&f, 0, 99).remaining, 99);
    free(f.memory);
}

/* ---- Moves ---- */

TEST(full_log_whose_mover_died)
{
    fixture_make(&f);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 12, .window_ns = 60 * WEIR_SECOND};
    CHECK_EQ(weir_limit_init(&f.limit, &params), 0);
    weir__key_locate(&f.table, &f.limit, "k", 1, &f.where);
    take(&f, 12, 0);
    CHECK_EQ(weir__record_body_bytes(find(0).record), 12 * sizeof(uint32_t));
    head_at(0)->lo |= FROZEN;
    take(&f, -1, 0); /* moves it: there is exactly as much room as needed */
    CHECK_EQ(take(&f, 2, 1).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 1, 1).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 1).verdict, WEIR_DENY);
    free(f.memory);
}

/* The limit was lowered since: if it has more units than allowed, the newest stay. */
TEST(log_moved_under_a_lower_limit)
{
    fixture_make(&f);
    take(&f, 50, 0);
    take(&f, 50, 30);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 12, .window_ns = 60 * WEIR_SECOND};
    CHECK_EQ(weir_limit_init(&f.limit, &params), 0);
    head_at(30)->lo |= FROZEN;
    take(&f, -1, 30); /* moves it */
    CHECK_EQ(take(&f, 0, 61).remaining, 1);
    CHECK_EQ(take(&f, 2, 61).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 0, 90).remaining, 12);
    free(f.memory);
}

/* ---- Damage ---- */

/* The remaining units after fifty, with this head. */
static int64_t left_with(struct log_head head)
{
    fixture_make(&f);
    take(&f, 50, 0);
    CHECK_EQ(weir__record_body_bytes(find(0).record), 52 * sizeof(uint32_t));
    weir__cell *at_head = head_at(0);
    head.newest_us = START_US;
    *at_head = pack(weir__head_mark(*at_head), head);
    int64_t remaining = take(&f, 0, 1).remaining;
    CHECK_EQ(take(&f, 1, 1).verdict, remaining ? WEIR_ALLOW : WEIR_DENY);
    CHECK_EQ(take(&f, 0, 1).remaining, remaining - 1);
    free(f.memory);
    return remaining;
}

TEST(invalid_head_counts_as_empty)
{
    CHECK_EQ(left_with((struct log_head){.span = 50, .pending = 50, .tail = 50}), 50);
    CHECK_EQ(left_with((struct log_head){.span = 52, .pending = 52, .tail = 51}), 48);
    CHECK_EQ(left_with((struct log_head){.span = 53, .pending = 53, .tail = 50}), 100);
    CHECK_EQ(left_with((struct log_head){.span = FIELD_MASK, .pending = 1, .tail = 50}), 100);
    CHECK_EQ(left_with((struct log_head){.span = 50, .pending = 51, .tail = 50}), 100);
    CHECK_EQ(left_with((struct log_head){.span = 50, .pending = FIELD_MASK, .tail = 50}), 100);
    CHECK_EQ(left_with((struct log_head){.span = 50, .pending = 50, .tail = 52}), 100);
    CHECK_EQ(left_with((struct log_head){.span = 50, .pending = 50, .tail = FIELD_MASK}), 100);
}

TEST(damaged_log_does_not_go_back_in_time)
{
    fixture_make(&f);
    take(&f, 4, 100);
    *head_at(100) = pack(weir__head_mark(*head_at(100)),
                         (struct log_head){.span = 1, .pending = 2, .newest_us = START_US + 100 * SECOND_US});
    CHECK_EQ(take(&f, 10, 50).reset_after_ns, 110 * WEIR_SECOND);
    free(f.memory);
}

/* A copy of it may be in progress. */
TEST(frozen_damaged_log_stays_frozen)
{
    fixture_make(&f);
    take(&f, 4, 0);
    weir__cell *head = head_at(0);
    *head =
        pack(weir__head_mark(*head), (struct log_head){.frozen = true, .span = 1, .pending = 2, .newest_us = START_US});
    take(&f, 1, 1);
    CHECK(head->lo & FROZEN);
    CHECK(head_at(1) != head);
    CHECK_EQ(take(&f, 0, 1).remaining, 99);
    free(f.memory);
}

TEST_MAIN
