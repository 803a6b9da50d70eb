/* The bits of a slot: packing, encoded expiries, anchors that wrap, the two buckets of a key. */
#include "table/slot.h"
#include "table/cuckoo.h"
#include "table/fast_path.h"

#include "../../test.h"

#define YEAR_US (INT64_C(365) * 86400000000)
#define WRAP    (INT64_C(1) << WEIR__TIME_BITS)

/* ---- Expiry in 8 bits ---- */

static void check_expiry(int64_t us)
{
    int64_t back = weir__expiry_decode(weir__expiry_encode(us));
    /* Never shorter, or an entry would be evicted before it has recovered; and not much longer. */
    CHECK(back >= us);
    CHECK(back - us <= us / 4);
}

TEST(expiry_rounds_up_a_little)
{
    uint64_t seed = 1;

    CHECK_EQ(weir__expiry_encode(0), 0);
    CHECK_EQ(weir__expiry_encode(-1), 0);
    CHECK_EQ(weir__expiry_encode(INT64_MIN), 0);
    CHECK_EQ(weir__expiry_decode(0), 0);
    for (int64_t us = 1; us <= 100000; us++)
        check_expiry(us);
    /* Around every code, up to 400 days twice over and twice that. */
    for (unsigned power = 2; power < WEIR__TIME_BITS; power++) {
        for (int64_t mantissa = 4; mantissa < 8; mantissa++) {
            int64_t edge = mantissa << (power - 2);
            CHECK_EQ(weir__expiry_decode(weir__expiry_encode(edge)), edge);
            check_expiry(edge - 1);
            check_expiry(edge + 1);
        }
    }
    for (int64_t i = 0, rounds = test_scaled(1000000, 1000); i < rounds; i++)
        check_expiry((int64_t)(test_random(&seed) >> (17 + test_random(&seed) % 46)));
}

TEST(expiry_is_monotone)
{
    uint64_t seed = 2;
    for (unsigned code = 1; code < WEIR__EXPIRY_DENIED; code++)
        CHECK(weir__expiry_decode(code) >= weir__expiry_decode(code - 1));
    for (int64_t i = 0, rounds = test_scaled(1000000, 1000); i < rounds; i++) {
        int64_t a = (int64_t)(test_random(&seed) >> (1 + test_random(&seed) % 62));
        int64_t b = (int64_t)(test_random(&seed) >> (1 + test_random(&seed) % 62));
        CHECK((a <= b) == (weir__expiry_encode(a) <= weir__expiry_encode(b)) ||
              weir__expiry_encode(a) == weir__expiry_encode(b));
    }
}

TEST(expiry_at_the_extremes)
{
    /* Longer than any anchor can represent: effectively forever, and far from an overflow when added to a time. */
    CHECK_EQ(weir__expiry_encode(INT64_MAX), WEIR__EXPIRY_DENIED - 1);
    CHECK_EQ(weir__expiry_decode(WEIR__EXPIRY_DENIED - 1), WRAP);
    for (uint64_t now = 1; now < (uint64_t)WRAP; now += (uint64_t)WRAP / 1000)
        CHECK(weir__anchor_expand(0, (int64_t)now) + WRAP > (int64_t)now);
}

/* An entry marked as denied has the same expiry. */
TEST(expiry_of_a_denied_key)
{
    unsigned marked = 0;
    for (unsigned code = 0; code < WEIR__EXPIRY_DENIED; code++) {
        weir__cell plain = {UINT64_MAX & ~(UINT64_C(0xff) << 15), 7}, denied;
        plain.lo |= (uint64_t)code << 15;
        denied = weir__cell_denied(plain);
        CHECK(!weir__cell_is_denied(plain));
        CHECK_EQ(denied.hi, plain.hi);
        CHECK_EQ(denied.lo | UINT64_C(0xff) << 15, plain.lo | UINT64_C(0xff) << 15);
        CHECK_EQ(weir__expiry_decode(denied.lo >> 15 & 0xff), weir__expiry_decode(code));
        CHECK(weir__cell_equal(weir__cell_denied(denied), denied));
        marked += weir__cell_is_denied(denied);
    }
    CHECK_EQ(marked, 256 - WEIR__EXPIRY_DENIED);
    CHECK(weir__cell_is_denied(weir__cell_denied((weir__cell){(uint64_t)weir__expiry_encode(60000000) << 15, 0})));
    CHECK(weir__cell_is_denied(
        weir__cell_denied((weir__cell){(uint64_t)weir__expiry_encode(62 * INT64_C(86400000000)) << 15, 0})));
}

/* ---- Packing ---- */

static struct weir__slot_fields random_fields(uint64_t *seed)
{
    return (struct weir__slot_fields){.tag = test_random(seed) & WEIR__TAG_MASK,
                                      .state = (unsigned)(test_random(seed) & 7),
                                      .version = (unsigned)(test_random(seed) & 7),
                                      .wall = test_random(seed) & 1,
                                      .expiry = (unsigned)(test_random(seed) & 255),
                                      .used = test_random(seed) & UINT32_MAX,
                                      .anchor = test_random(seed) & WEIR__TIME_MASK};
}

TEST(pack_round_trip)
{
    uint64_t seed = 3;
    for (int64_t i = 0, rounds = test_scaled(1000000, 1000); i < rounds; i++) {
        struct weir__slot_fields p = random_fields(&seed);
        weir__cell cell = weir__cell_pack(p);
        struct weir__slot_fields q = weir__cell_unpack(cell);
        CHECK_EQ(q.tag, p.tag);
        CHECK_EQ(q.state, p.state);
        CHECK_EQ(q.version, p.version);
        CHECK_EQ(q.wall, p.wall);
        CHECK_EQ(q.expiry, p.expiry);
        CHECK_EQ(q.used, p.used);
        CHECK_EQ(q.anchor, p.anchor);

        unsigned state = (unsigned)(test_random(&seed) & 7), version = (unsigned)(test_random(&seed) & 15);
        struct weir__slot_fields r = weir__cell_unpack(weir__cell_with_state(cell, state, version));
        CHECK_EQ(r.state, state);
        CHECK_EQ(r.version, version % WEIR__VERSIONS);
        r.state = p.state;
        r.version = p.version;
        CHECK(weir__cell_equal(weir__cell_pack(r), cell));
    }
}

TEST(unpacking_loses_no_bit)
{
    /* From bits to fields and back: every one of the 128 belongs to exactly one field. */
    for (int bit = 0; bit < 128; bit++) {
        weir__cell cell = {bit < 64 ? UINT64_C(1) << bit : 0, bit < 64 ? 0 : UINT64_C(1) << (bit - 64)};
        CHECK(weir__cell_equal(weir__cell_pack(weir__cell_unpack(cell)), cell));
    }
}

TEST(each_state_is_one_kind)
{
    for (unsigned state = 0; state < 8; state++) {
        uint64_t lo = weir__cell_pack((struct weir__slot_fields){.tag = 5, .state = state}).lo;
        int kinds = weir__is_normal(lo) + weir__is_landed(lo) + weir__is_frozen(lo);
        CHECK_EQ(kinds, state == WEIR__TENTATIVE || state == WEIR__RESERVED ? 0 : 1);
    }
}

TEST(empty_cells_have_different_aba_tags)
{
    uint64_t seed = 4;
    weir__cell cell = {0, 0};
    /* A slot that is emptied over and over: never the same ABA tag twice in a row, never a key's tag. */
    for (int64_t i = 0, rounds = test_scaled(200000, 1000); i < rounds; i++) {
        weir__cell next = weir__cell_empty(cell);
        CHECK_EQ(weir__cell_tag(next.lo), 0);
        CHECK(!weir__cell_equal(next, cell));
        weir__cell other = weir__cell_pack(random_fields(&seed));
        CHECK(!weir__cell_equal(weir__cell_empty(other), next));
        cell = i % 2 ? other : next;
    }
}

/* ---- Anchors ---- */

TEST(anchor_expands)
{
    static const struct {
        int64_t now, anchor;
    } cases[] = {
        {0, 0},
        {5, 5},
        {5, 3},
        {3, 5}, /* ahead of us: another process has read its clock later */
        {WRAP, WRAP - 1},
        {WRAP - 1, WRAP},
        {WRAP, WRAP},
        {WRAP + 10, WRAP - 10},
        {WRAP - 10, WRAP + 10},
        {3 * WRAP + 7, 3 * WRAP - 3 * YEAR_US},
        {3 * WRAP + 7, 3 * WRAP + YEAR_US / 2},
        {3 * WRAP - 7, 3 * WRAP + YEAR_US / 2},
        {12 * WRAP + 7, 12 * WRAP - 3 * YEAR_US},
        {7, 7 - 3 * YEAR_US}, /* before time 0: never written, but must be handled */
        {7, 7 + YEAR_US / 2},
        {INT64_MAX / 1000, INT64_MAX / 1000 - 3 * YEAR_US},
        {INT64_MAX / 1000, INT64_MAX / 1000 + YEAR_US / 2},
        /* The boundaries themselves: seven eighths of the range back, an eighth ahead. */
        {5 * WRAP, 5 * WRAP - 7 * (WRAP / 8) + 1},
        {5 * WRAP, 5 * WRAP + WRAP / 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ(weir__anchor_expand((uint64_t)cases[i].anchor & WEIR__TIME_MASK, cases[i].now), cases[i].anchor);
}

TEST(anchor_expands_at_random)
{
    uint64_t seed = 5;
    for (int64_t i = 0, rounds = test_scaled(1000000, 1000); i < rounds; i++) {
        int64_t now = (int64_t)(test_random(&seed) % (INT64_MAX / 1000));
        int64_t anchor = now - 7 * (WRAP / 8) + 1 + (int64_t)(test_random(&seed) % (uint64_t)WRAP);
        CHECK_EQ(weir__anchor_expand((uint64_t)anchor & WEIR__TIME_MASK, now), anchor);
    }
}

TEST(remaining_life_follows_its_clock)
{
    struct weir__slot_fields p = {.tag = 9, .expiry = weir__expiry_encode(1000), .anchor = 5000};
    int64_t expiry_us = weir__expiry_decode(p.expiry);

    CHECK_EQ(weir__cell_life(weir__cell_pack(p), 5000 + expiry_us, 99), 0);
    CHECK_EQ(weir__cell_life(weir__cell_pack(p), 5000, 99), expiry_us);
    p.wall = true;
    CHECK_EQ(weir__cell_life(weir__cell_pack(p), 99, 5001), expiry_us - 1);
    p.tag = 0;
    CHECK(weir__cell_life(weir__cell_pack(p), 99, 5001) < 0);
}

/* ---- The buckets of a key ---- */

TEST(alternate_bucket_is_its_own_inverse)
{
    uint64_t seed = 6;
    for (int64_t i = 0, rounds = test_scaled(1000000, 1000); i < rounds; i++) {
        uint64_t lines = 1 + (test_random(&seed) >> (18 + test_random(&seed) % 46));
        uint64_t line = test_random(&seed) % lines, tag = test_random(&seed) & WEIR__TAG_MASK;
        uint64_t other = weir__alternate_bucket(tag, line, lines);
        CHECK(other < lines);
        CHECK_EQ(weir__alternate_bucket(tag, other, lines), line);
    }
}

TEST(alternate_bucket_in_small_tables)
{
    for (uint64_t lines = 1; lines < 70; lines++)
        for (uint64_t line = 0; line < lines; line++)
            for (uint64_t tag = 2; tag < WEIR__TAG_MASK; tag = tag * 5 + 1) {
                uint64_t other = weir__alternate_bucket(tag, line, lines);
                CHECK(other < lines);
                CHECK_EQ(weir__alternate_bucket(tag, other, lines), line);
            }
}

TEST(buckets_are_inside_the_table)
{
    uint64_t seed = 7, same = 0, rounds = (uint64_t)test_scaled(1000000, 10000);
    struct weir__header header = {0};
    for (uint64_t i = 0; i < rounds; i++) {
        struct weir__table table = {.header = &header, .buckets = 64 + test_random(&seed) % 1000};
        /* Small hashes too, for the reserved tags. */
        struct weir__key_location w;
        weir__locate_primary(&table, test_random(&seed) & ~(i % 2 ? WEIR__TAG_MASK - 3 : 0), &w);
        weir__locate_alternate(&table, &w);
        CHECK(w.primary < table.buckets && w.alternate < table.buckets);
        CHECK(w.tag >= 2 && w.tag <= WEIR__TAG_MASK);
        CHECK_EQ(weir__alternate_bucket(w.tag, w.alternate, table.buckets), w.primary);
        same += w.primary == w.alternate;
    }
    /* An equal primary and alternate bucket is acceptable if it is rare. */
    CHECK(same < rounds / 50);
}

TEST(table_of_expiries_agrees_with_the_decoder)
{
    for (uint64_t code = 0; code < 256; code++)
        CHECK_EQ(weir__expiry_table[code], weir__expiry_decode(code));
    for (int64_t us = 5; us < 100000; us++)
        CHECK_EQ(weir__expiry_encode_long(us), weir__expiry_encode(us));
}

TEST_MAIN
