/* The ring counter when other processes act between the steps of a request; and when it is damaged. */
#include "record_hooks.h"

#include "table/window_ring.c"
#undef weir__record_publish
#undef weir__key_record_renew

#include "slabs.h"
#include "table/hash.h"

enum { BUCKETS = 6, LIMIT = 100 };

static struct fixture *f;
static weir_limit limit;
static struct weir__key_location where;

static weir_limit limit_of(int buckets)
{
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                          .limit = LIMIT,
                          .window_ns = buckets * WEIR_SECOND,
                          .buckets = buckets};
    weir_limit made;
    CHECK_EQ(weir_limit_init(&made, &params), 0);
    return made;
}

/* A hundred in six seconds, in six parts. */
static void begin(uint64_t chunk_count)
{
    f = fixture_make(chunk_count);
    limit = limit_of(BUCKETS);
    weir__key_locate(&f->table, &limit, "k", 1, &where);
}

static struct weir__op at(int64_t seconds)
{
    struct weir__op op = f->op;
    op.mono_us += seconds * SECOND_US;
    op.wall_us += seconds * SECOND_US;
    return op;
}

static weir_decision decide(int64_t cost, int64_t seconds, enum weir__mode mode)
{
    struct weir__op op = at(seconds);
    weir_decision d = {0};
    CHECK_EQ(weir__table_take(&op, &limit, &where, cost, mode, &d), 0);
    return d;
}

static weir_decision take(int64_t cost, int64_t seconds)
{
    return decide(cost, seconds, WEIR__TAKE);
}

static struct weir__key_record find(int64_t seconds)
{
    struct weir__op op = at(seconds);
    struct weir__key_location w = weir__record_location(&limit, &where);
    struct weir__key_record key;
    CHECK_EQ(weir__key_record_find(&op, &w, &key), 0);
    return key;
}

static weir__cell *head_at(int64_t seconds)
{
    struct weir__op op = at(seconds);
    return weir__record_head(&op, find(seconds).record);
}

static uint64_t *ring_at(int64_t seconds)
{
    struct weir__op op = at(seconds);
    return weir__record_body(&op, find(seconds).record);
}

static int64_t part_at(int64_t seconds)
{
    return START_US / SECOND_US + seconds;
}

static struct ring_head read_head(int64_t seconds)
{
    return unpack(*head_at(seconds), part_at(seconds));
}

static void put_head(int64_t seconds, struct ring_head head)
{
    weir__cell *to = head_at(seconds);
    *to = pack(weir__head_mark(*to), head);
}

/* ---- Concurrent requests ---- */

static void wrap_around(void)
{
    for (int64_t seconds = 1; seconds <= BUCKETS + 1; seconds++)
        CHECK_EQ(take(10, seconds).verdict, WEIR_ALLOW);
}

/* A full cycle of the ring later the word belongs to another part. */
TEST(reused_word_is_left_alone)
{
    begin(64);
    take(10, 0);
    before_write = wrap_around;
    CHECK_EQ(take(1, 1).verdict, WEIR_ALLOW); /* the clock is behind by then: it counts in the latest part */
    CHECK(!before_write);
    CHECK_EQ(ring_at(7)[part_at(BUCKETS) % BUCKETS] >> 32, (uint32_t)part_at(BUCKETS));
    CHECK_EQ(take(0, 7).remaining, LIMIT - 61);
    CHECK_EQ(take(0, 8).remaining, LIMIT - 51);
    fixture_free(f);
}

/* Sealed, its count is final, and may be written already: a request still in that part counts in the next. */
TEST(nothing_is_counted_in_a_sealed_part)
{
    begin(64);
    take(10, 0);
    put_head(0, (struct ring_head){true, part_at(0), 10, 0, 0});
    CHECK_EQ(take(5, 0).remaining, LIMIT - 15);
    struct ring_head head = read_head(0);
    CHECK_EQ(head.part, part_at(1));
    CHECK_EQ(head.current, 5);
    CHECK_EQ(head.before, 10);
    CHECK(!head.sealed);
    CHECK_EQ(take(0, 6).remaining, LIMIT - 5);
    CHECK_EQ(take(0, 7).remaining, LIMIT);
    fixture_free(f);
}

/* It is sealed first, and only then written: its count is final. */
TEST(part_is_sealed_before_it_is_written)
{
    begin(64);
    take(10, 0);
    struct weir__op op = at(1);
    struct weir__key_location w = weir__record_location(&limit, &where);
    weir_decision d;
    CHECK_EQ(weir__ring_attempt(&op, &limit, &w, 1, WEIR__TAKE, &d), 0);
    CHECK(read_head(1).sealed);
    CHECK_EQ(read_head(1).part, part_at(0));
    CHECK_EQ(ring_at(1)[part_at(0) % BUCKETS], 0);
    fixture_free(f);
}

static void take_slab_later(void)
{
    const struct weir__key_location other_key = {.tag = 1000};
    struct weir__op op = at(3600);
    struct weir__record record;
    CHECK_EQ(weir__record_take(&op, 7, 3600 * SECOND_US, NULL, true, &record), 0);
    CHECK_EQ(record.chunk, 0);
    CHECK(weir__record_publish(&op, &other_key, &record, (weir__cell){0, 77}));
    memset(weir__record_body(&op, record), 0x55, weir__record_body_bytes(record));
}

/* A process is delayed beyond its lease before it has published its head: the record of the new owner stays unchanged.
 */
TEST(process_delayed_beyond_its_lease_leaves_the_record_alone)
{
    begin(8);
    before_publish = take_slab_later;
    struct weir__op op = at(0);
    struct weir__key_location w = weir__record_location(&limit, &where);
    const struct weir__record all = {.size_class = 7};
    weir_decision d;
    CHECK_EQ(weir__ring_attempt(&op, &limit, &w, 1, WEIR__TAKE, &d), 0); /* retries */
    CHECK(!before_publish);
    CHECK_EQ(weir__record_head(&op, all)->hi, 77);
    const uint8_t *byte = weir__record_body(&op, all);
    for (uint64_t i = 0; i < weir__record_body_bytes(all); i++)
        CHECK_EQ(byte[i], 0x55);
    weir__cell *slot, seen;
    CHECK_EQ(weir__lookup_helping(&op, &where, &slot, &seen), 0);
    CHECK(!slot);
    fixture_free(f);
}

TEST(lost_renewal_is_repeated)
{
    begin(64);
    take(1, 0);
    pass_time(f, 900000); /* in the same part, or it would retry for the next */
    instead_of_renewal = do_nothing;
    take(1, 0);
    CHECK(!instead_of_renewal);
    CHECK(weir__cell_life(find(0).seen, f->op.mono_us, f->op.wall_us) >= (BUCKETS + 1) * SECOND_US);
    fixture_free(f);
}

static void refund_all(void)
{
    take(-LIMIT, 0);
}

/* The state on which the denial was based has changed. */
TEST(denial_is_checked_against_the_current_state)
{
    begin(64);
    take(LIMIT, 0);
    after_decision = refund_all;
    CHECK_EQ(take(1, 0).verdict, WEIR_ALLOW);
    CHECK(!after_decision);
    fixture_free(f);
}

/* ---- Reset ---- */

/* There is only one place for the new record: where the old words still are. */
TEST(reset_counter_keeps_no_old_counts)
{
    begin(2);
    for (int64_t seconds = 0; seconds < 3; seconds++)
        take(20, seconds);
    CHECK_EQ(find(2).record.chunk, 0);
    struct weir__op op = at(3);
    CHECK_EQ(weir__table_reset(&op, &limit, &where), 0);
    CHECK_EQ(take(1, 3).remaining, LIMIT - 1);
    CHECK_EQ(take(0, 4).remaining, LIMIT - 1);
    fixture_free(f);
}

TEST(another_number_of_buckets_is_another_counter)
{
    begin(64);
    for (int64_t seconds = 0; seconds < 3; seconds++)
        take(20, seconds);
    limit = limit_of(BUCKETS - 1);
    CHECK_EQ(limit.part_us, SECOND_US);
    CHECK_EQ(take(1, 3).remaining, LIMIT - 1);
    fixture_free(f);
}

/* A little longer, so that the numbers of parts since time 0 are close enough for one counter. */
TEST(another_bucket_length_is_another_counter)
{
    begin(64);
    take(20, 0);
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER,
                          .limit = LIMIT,
                          .window_ns = BUCKETS * (WEIR_SECOND + 1000),
                          .buckets = BUCKETS};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    CHECK_EQ(take(1, 0).remaining, LIMIT - 1);
    fixture_free(f);
}

TEST(refund_to_a_key_without_a_counter_makes_none)
{
    begin(64);
    CHECK_EQ(take(-5, 0).remaining, LIMIT);
    CHECK(!find(0).slot);
    for (uint64_t i = 0; i < f->table.chunks; i++)
        CHECK_EQ(f->table.lease[i], 0);
    fixture_free(f);
}

/* The maximal debt in several parts: their sum saturates, and does not wrap at 32 bits. */
TEST(debt_over_several_buckets_saturates)
{
    begin(64);
    decide(INT64_C(0xffffffff), 0, WEIR__CHARGE);
    decide(INT64_C(0xffffffff), 1, WEIR__CHARGE);
    decide(2, 2, WEIR__CHARGE);
    decide(1, 3, WEIR__CHARGE);
    CHECK(take(0, 3).remaining <= LIMIT - INT32_MAX);
    CHECK_EQ(take(1, 3).verdict, WEIR_DENY);
    fixture_free(f);
}

/* ---- Damage ---- */

TEST(word_of_a_future_part_does_not_count)
{
    begin(64);
    take(10, 0);
    ring_at(0)[part_at(2) % BUCKETS] = (uint64_t)(uint32_t)part_at(2) << 32 | 60;
    CHECK_EQ(take(1, 3).remaining, LIMIT - 11);
    fixture_free(f);
}

TEST(head_ahead_of_any_clock_is_ignored)
{
    begin(64);
    int64_t furthest = WEIR__WINDOW_MAX / SECOND_US + 2;
    take(10, 0);
    put_head(0, (struct ring_head){false, part_at(furthest), LIMIT, 0, 0});
    CHECK_EQ(take(1, 0).verdict, WEIR_DENY);
    put_head(0, (struct ring_head){false, part_at(furthest + 1), LIMIT, 0, 0});
    CHECK_EQ(take(1, 0).remaining, LIMIT - 1);
    fixture_free(f);
}

/* A reference to a smaller record: its words would be the neighbour's. */
TEST(too_small_record_is_ignored)
{
    begin(64);
    take(10, 0);
    struct weir__key_record key = find(0);
    CHECK_EQ(weir__class_chunks(key.record.size_class), 2);
    struct weir__slot_fields fields = weir__cell_unpack(*key.slot);
    fields.used = weir__record_pack((struct weir__record){.chunk = key.record.chunk, .size_class = 0});
    *key.slot = weir__cell_pack(fields);
    CHECK_EQ(take(1, 0).remaining, LIMIT - 1);
    CHECK_EQ(weir__class_chunks(find(0).record.size_class), 2);
    fixture_free(f);
}

TEST_MAIN
