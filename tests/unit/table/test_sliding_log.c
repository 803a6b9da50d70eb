/* The log between two steps of a request: another request, whose clock is behind, finds it in that state. */
#include "logs.h"

/* One attempt of a request that outgrows the record: it moves the log, and has logged nothing yet. */
static void move(const struct fixture *f, int64_t cost, int64_t seconds)
{
    struct weir__op op = at(f, seconds);
    struct weir__key_location where = weir__record_location(&f->limit, &f->where);
    weir_decision d;
    CHECK_EQ(weir__log_attempt(&op, &f->limit, &where, cost, WEIR__TAKE, &d), 0);
}

TEST(log_moved_empty_does_not_go_back_in_time)
{
    struct fixture f;
    fixture_make(&f);
    take(&f, 4, 30);
    move(&f, 50, 100);
    /* By this clock the four of 30 have not expired; they are gone, so this must count as if it were 100. */
    CHECK_EQ(take(&f, 10, 50).reset_after_ns, 110 * WEIR_SECOND);
    CHECK_EQ(take(&f, 100, 155).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 100, 160).verdict, WEIR_ALLOW);
    free(f.memory);
}

TEST(log_moved_with_entries_does_not_go_back_in_time)
{
    struct fixture f;
    fixture_make(&f);
    take(&f, 3, 30);
    take(&f, 1, 80);
    move(&f, 50, 100);
    CHECK_EQ(take(&f, 10, 50).reset_after_ns, 110 * WEIR_SECOND);
    /* Not by a refund either: the log has aged. */
    take(&f, -10, 100);
    CHECK_EQ(take(&f, 10, 50).reset_after_ns, 110 * WEIR_SECOND);
    free(f.memory);
}

TEST(log_without_losses_forgets_refunded_units)
{
    struct fixture f;
    fixture_make(&f);
    take(&f, 4, 100);
    take(&f, -4, 100);
    CHECK_EQ(take(&f, 4, 50).reset_after_ns, 60 * WEIR_SECOND);
    move(&f, 50, 50);
    CHECK_EQ(take(&f, -4, 50).reset_after_ns, 0);
    CHECK_EQ(take(&f, 4, 40).reset_after_ns, 60 * WEIR_SECOND);
    free(f.memory);
}

/*
 * A writer is about to write a pending time, has read the word, and is delayed. Meanwhile the unit is written,
 * refunded, and a unit logged by a clock behind is written there: just what the first writer expects. So it writes a
 * time that is later than the newest. The unit must not expire early because of that.
 */
TEST(late_write_of_a_time_expires_no_unit_early)
{
    struct fixture f;
    fixture_make(&f);
    take(&f, 98, 29);
    take(&f, 1, 30);
    take(&f, -1, 30); /* has written 30 */
    take(&f, 1, 31);

    struct weir__op late = at(&f, 31);
    struct weir__key_location where = weir__record_location(&f.limit, &f.where);
    struct weir__key_record key;
    CHECK_EQ(weir__key_record_find(&late, &where, &key), 0);
    struct view seen = look(&late, &f.limit, &key);
    uint32_t *to = (uint32_t *)weir__record_body(&late, key.record) + place(&seen, 98);
    uint32_t expected = weir__load32(to), want = (uint32_t)(seen.head.newest_us / f.limit.quantum_us);
    CHECK(expected != want && weir__cell_equal(weir__cell_read(weir__record_head(&late, key.record)), key.head));

    take(&f, -1, 31);
    take(&f, 1, 30);
    CHECK_EQ(take(&f, 1, 30).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 30).verdict, WEIR_DENY);
    CHECK(weir__cas32(to, &expected, want)); /* continues */
    CHECK_EQ(take(&f, 1, 30).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 1, 88).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 98, 89).verdict, WEIR_ALLOW);
    CHECK_EQ(take(&f, 1, 89).verdict, WEIR_DENY);
    CHECK_EQ(take(&f, 2, 91).verdict, WEIR_ALLOW);
    free(f.memory);
}

TEST_MAIN
