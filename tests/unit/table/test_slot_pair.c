/* The counter in two slots when other processes act between the steps of a request. */
#include "hooks.h"
#include "table/table.h"

/* Run before the second next lookup of a slot, before the next swap, after the next decision. */
static void (*before_second_look)(void), (*before_swap)(void), (*after_decision)(void);
static int looks;

static int lookup_with_hook(const struct weir__op *op, const struct weir__key_location *where, weir__cell **slot,
                            weir__cell *seen)
{
    if (++looks == 2)
        run_hook(&before_second_look);
    return weir__lookup_helping(op, where, slot, seen);
}

static bool swap_with_hook(weir__cell *cell, weir__cell *expected, weir__cell desired)
{
    run_hook(&before_swap);
    return weir__cell_cas(cell, expected, desired);
}

static bool decide_with_hook(const weir_limit *limit, struct weir__sliding *state, int64_t now_us, int64_t cost,
                             enum weir__mode mode, weir_decision *decision)
{
    bool changes = weir__counter2_take(limit, state, now_us, cost, mode, decision);
    run_hook(&after_decision);
    return changes;
}

#define weir__lookup_helping lookup_with_hook
#define weir__cell_cas       swap_with_hook
#define weir__counter2_take  decide_with_hook
#include "table/slot_pair.c"

#include "slabs.h"
#include "table/hash.h"

#define LIMIT INT64_C(100000)

static struct fixture *f;
static weir_limit limit;
static struct weir__key_location where;

/* A hundred thousand a minute. A window begins at second 0. */
static void begin(void)
{
    weir_params params = {
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = LIMIT, .window_ns = 60 * WEIR_SECOND, .buckets = 2};
    f = fixture_make(0);
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    CHECK(!weir__is_packed(&limit) && START_US % (60 * SECOND_US) == 0);
    weir__key_locate(&f->table, &limit, "k", 1, &where);
    looks = 0;
}

static struct weir__op at(int64_t seconds)
{
    struct weir__op op = f->op;
    op.mono_us += seconds * SECOND_US;
    op.wall_us += seconds * SECOND_US;
    return op;
}

static weir_decision take(int64_t cost, int64_t seconds)
{
    struct weir__op op = at(seconds);
    weir_decision d = {0};
    CHECK_EQ(weir__pair_take(&op, &limit, &where, cost, WEIR__TAKE, &d), 0);
    return d;
}

/* The slots in which the window of this second is counted. */
static struct weir__key_location window_of(int64_t seconds)
{
    struct weir__op op = at(seconds);
    return of_parity(&op, &where, (uint64_t)(op.mono_us / limit.part_us) & 1);
}

static weir__cell *slot_at(int64_t seconds)
{
    struct weir__op op = at(seconds);
    struct weir__key_location here = window_of(seconds);
    weir__cell *slot, seen;
    CHECK_EQ(weir__lookup_helping(&op, &here, &slot, &seen), 0);
    return slot;
}

/* ---- A decision that writes nothing ---- */

static void refund_all(void)
{
    take(-LIMIT, 60);
}

static void reset(void)
{
    struct weir__op op = at(60);
    CHECK_EQ(weir__pair_drop(&op, &where), 0);
}

/* The state on which the denial was based has changed. */
TEST(denial_is_checked_against_the_current_state)
{
    begin();
    take(LIMIT, 60);
    after_decision = refund_all;
    CHECK_EQ(take(1, 60).verdict, WEIR_ALLOW);
    CHECK(!after_decision);
    fixture_free(f);

    begin();
    take(LIMIT, 59);
    after_decision = reset;
    CHECK_EQ(take(1, 60).verdict, WEIR_ALLOW);
    CHECK(!after_decision);
    fixture_free(f);
}

/* ---- Windows ---- */

static void use_next_window(void)
{
    CHECK_EQ(take(LIMIT, 60).verdict, WEIR_ALLOW);
}

/* The slot of this window still has one of long ago; while this window is entered, others are in the next one already.
 */
TEST(window_over_before_it_is_entered)
{
    begin();
    weir__cell *first = f->table.bucket[where.primary].slot;
    *first = weir__cell_tentative(&f->op, 12345); /* so that the next window is not entered in place of this one */
    take(1, -70);
    *first = (weir__cell){0, 0};
    CHECK(slot_at(0) && slot_at(0) != first);
    before_swap = use_next_window;
    CHECK_EQ(take(1, 59).verdict, WEIR_DENY);
    CHECK(!before_swap);
    CHECK_EQ(take(0, 60).remaining, 0);
    fixture_free(f);
}

static void use_last_window(void)
{
    struct weir__op op = at(60);
    struct weir__key_location here = window_of(60);
    weir__cell *slot, seen;
    CHECK_EQ(take(LIMIT, 59).verdict, WEIR_ALLOW);
    /* And another process is about to enter this one. */
    struct bucket bucket = {0};
    CHECK_EQ(enter_window(&op, &here, &bucket, op.mono_us), 0);
    CHECK_EQ(weir__lookup_helping(&op, &here, &slot, &seen), 0);
    CHECK(slot && weir__cell_state(seen.lo) == WEIR__TENTATIVE);
}

/* The previous window must be read after the current one's entry was seen, or a concurrent request could be missed. */
TEST(previous_window_is_read_last)
{
    begin();
    before_second_look = use_last_window;
    CHECK_EQ(take(1, 60).verdict, WEIR_DENY);
    CHECK(!before_second_look);
    fixture_free(f);
}

TEST(refund_to_a_window_not_entered_makes_no_entry)
{
    begin();
    CHECK_EQ(take(-5, 0).remaining, LIMIT);
    CHECK(!slot_at(0) && !slot_at(60));
    take(5, 0);
    take(-5, 60); /* units taken in the previous window stay taken */
    CHECK(!slot_at(60));
    CHECK_EQ(take(0, 60).remaining, LIMIT - 5);
    fixture_free(f);
}

/* The process that sealed it may have died, or be about to enter the next: a request still in this window counts in
 * the next. */
TEST(nothing_is_counted_in_a_sealed_window)
{
    begin();
    take(5, 0);
    weir__cell *slot = slot_at(0);
    struct weir__slot_fields fields = weir__cell_unpack(*slot);
    fields.used |= PAIR_SEALED;
    *slot = weir__cell_pack(fields);
    CHECK_EQ(take(7, 59).remaining, LIMIT - 12);
    CHECK_EQ(weir__cell_unpack(*slot).used, 5 | PAIR_SEALED);
    CHECK(slot_at(60) != NULL);
    CHECK_EQ(take(0, 120).remaining, LIMIT - 7);
    fixture_free(f);
}

/* Otherwise one that is displaced to and fro would look as before. */
TEST(an_entry_keeps_its_version)
{
    begin();
    take(5, 0);
    weir__cell *slot = slot_at(0);
    *slot = weir__cell_with_state(*slot, WEIR__NORMAL, 5);
    take(5, 0);
    CHECK_EQ(weir__cell_version(slot->lo), 5);
    CHECK_EQ(weir__cell_unpack(*slot).used, 10);
    take(5, 60); /* seals it */
    CHECK_EQ(weir__cell_version(slot->lo), 5);
    CHECK_EQ(weir__cell_unpack(*slot).used, 10 | PAIR_SEALED);
    fixture_free(f);
}

TEST_MAIN
