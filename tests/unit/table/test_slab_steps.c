/* The slab's records when other processes act between two steps, or evict a record that its owner still uses. */
#include "hooks.h"
#include "table/table.h"

/* Run before the next load or swap of a lease, or the next swap of a cell. */
static void (*before_load)(void), (*before_swap)(void), (*before_cell_swap)(void);

static uint32_t load_with_hook(const uint32_t *word)
{
    run_hook(&before_load);
    return weir__load32(word);
}

static bool swap_with_hook(uint32_t *word, uint32_t *expected, uint32_t desired)
{
    run_hook(&before_swap);
    return weir__cas32(word, expected, desired);
}

static bool cell_swap_with_hook(weir__cell *cell, weir__cell *expected, weir__cell desired)
{
    run_hook(&before_cell_swap);
    return weir__cell_cas(cell, expected, desired);
}

#define weir__load32   load_with_hook
#define weir__cas32    swap_with_hook
#define weir__cell_cas cell_swap_with_hook
#include "table/slab.c"

#include "slabs.h"

static struct fixture *f;
static const struct weir__key_location mine = {.tag = 1000, .primary = 1, .alternate = 2}, theirs = {.tag = 2000};

static struct weir__record own(const struct weir__key_location *where, unsigned size_class, int64_t for_us)
{
    struct weir__record record = {0};
    CHECK_EQ(weir__record_take(&f->op, size_class, for_us, NULL, true, &record), 0);
    CHECK(weir__record_publish(&f->op, where, &record, (weir__cell){0, 7}));
    return record;
}

/* A record, and a slot that refers to it for longer than any lease of these tests. */
static struct weir__key_record link_mine(unsigned size_class, int64_t for_us)
{
    struct weir__key_record key = {0};
    struct weir__record record = own(&mine, size_class, for_us);
    CHECK_EQ(weir__key_record_link(&f->op, &mine, &key, record, 3600 * SECOND_US), 1);
    CHECK_EQ(weir__key_record_find(&f->op, &mine, &key), 0);
    CHECK(key.found);
    return key;
}

static bool is_found(void)
{
    struct weir__key_record key;
    CHECK_EQ(weir__key_record_find(&f->op, &mine, &key), 0);
    CHECK(key.slot != NULL);
    return key.found;
}

/* ---- Ownership of a record ---- */

/* One chunk, taken by two processes in the same moment for the same time: their leases differ. */
TEST(lease_that_was_taken_over_differs)
{
    f = fixture_make(1);
    struct weir__record first = own(&mine, 0, 10 * SECOND_US), second = own(&theirs, 0, 10 * SECOND_US);
    CHECK_EQ(evicted(f), 1);
    CHECK(first.lease != second.lease);
    CHECK(!weir__record_is_current(&f->op, first) && weir__record_is_current(&f->op, second));
    weir__record_release(&f->op, first);
    CHECK(weir__record_is_current(&f->op, second));
    fixture_free(f);
}

/* The sequence number of a head increases, also if a key gets the same record again: an older compare-and-swap fails.
 */
TEST(record_taken_again_has_another_head)
{
    f = fixture_make(1);
    struct weir__record first = own(&mine, 0, 10 * SECOND_US);
    weir__cell before = *weir__record_head(&f->op, first);
    weir__record_release(&f->op, first);
    struct weir__record second = own(&mine, 0, 10 * SECOND_US);
    CHECK_EQ(second.chunk, first.chunk);
    CHECK(!weir__cell_equal(before, *weir__record_head(&f->op, second)));
    fixture_free(f);
}

/* If time and tag are all 0, a lease would look like a free chunk. */
TEST(no_lease_looks_like_a_free_chunk)
{
    f = fixture_make(2);
    int64_t unit = INT64_C(1) << LEASE_SHIFT, zero = unit << 27; /* when the time in a lease is 0 again */
    f->op.mono_us = f->op.wall_us = zero - 5 * unit;
    f->table.lease[0] = WEIR__LEASE_FIRST | 7; /* expired, or about to begin: either way it is free */
    f->table.lease[0] |= (lease_time(f->op.mono_us) - 1) << LEASE_ABA_BITS;
    struct weir__record record;
    CHECK_EQ(weir__record_take(&f->op, 1, 4 * unit, NULL, true, &record), 0);
    CHECK_EQ(record.chunk, 0);
    CHECK(f->table.lease[1] != 0);
    fixture_free(f);
}

/* ---- Taking ---- */

TEST(live_record_is_evicted_from_its_first_chunk_on)
{
    f = fixture_make(4);
    own(&theirs, 3, 100 * SECOND_US);
    for (uint64_t at = 1; at < 4; at++)
        CHECK_EQ(take_run(&f->op, at, 1, SECOND_US, true), 0);
    CHECK_EQ(evicted(f), 0);
    for (uint64_t at = 0; at < 4; at++)
        CHECK(leased(f, at));
    fixture_free(f);
}

TEST(expired_record_is_taken_from_its_first_chunk_on)
{
    f = fixture_make(4);
    own(&theirs, 3, SECOND_US);
    pass_time(f, 10 * SECOND_US);
    f->table.header->slab_cursor = 1;
    struct weir__record record;
    CHECK_EQ(weir__record_take(&f->op, 2, SECOND_US, NULL, true, &record), 0);
    CHECK_EQ(record.chunk, 0);
    CHECK_EQ(f->table.lease[3], 0); /* it has no owner any more */
    fixture_free(f);
}

/* The process taking it may be about to write a head there, or dead: its lease decides. */
TEST(record_being_taken_is_not_evicted)
{
    f = fixture_make(4);
    struct weir__record record, other;
    CHECK_EQ(weir__record_take(&f->op, 3, 10 * SECOND_US, NULL, true, &record), 0);
    CHECK_EQ(take_run(&f->op, 0, 4, SECOND_US, true), 0);
    CHECK_EQ(take_run(&f->op, 0, 1, SECOND_US, true), 0);
    CHECK_EQ(weir__record_take(&f->op, 3, SECOND_US, NULL, true, &other), WEIR_EFULL);
    CHECK(weir__record_publish(&f->op, &mine, &record, (weir__cell){0, 7}));
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

static void renew_first(void)
{
    f->table.lease[0] += 1U << LEASE_ABA_BITS;
}

/* The owner renews just before its record is evicted: it keeps it, and no loss is counted. */
TEST(failed_eviction_is_not_counted)
{
    f = fixture_make(4);
    own(&theirs, 3, 100 * SECOND_US);
    before_swap = renew_first;
    CHECK_EQ(take_run(&f->op, 0, 4, SECOND_US, true), 0);
    CHECK(!before_swap);
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

/* Two records of four chunks each: the other one is evicted, wherever it is, and never the one to keep. */
TEST(record_to_keep_is_not_evicted)
{
    for (int keep = 0; keep < 2; keep++) {
        f = fixture_make(8);
        struct weir__record r[2] = {own(&mine, 3, 100 * SECOND_US), own(&theirs, 3, 100 * SECOND_US)}, got;
        CHECK_EQ(weir__record_take(&f->op, 3, 100 * SECOND_US, &r[keep], true, &got), 0);
        CHECK_EQ(got.chunk, r[!keep].chunk);
        CHECK(weir__record_is_current(&f->op, r[keep]));
        CHECK_EQ(evicted(f), 1);
        /* The next search begins elsewhere. */
        CHECK_EQ(f->table.header->slab_cursor, got.chunk + 4);
        CHECK_EQ(weir__record_take(&f->op, 4, 100 * SECOND_US, &r[keep], true, &got), WEIR_EFULL);
        fixture_free(f);
    }
}

static void evict_now(void)
{
    f->table.lease[0] = lease_after(&f->op, f->table.lease[0], 50 * SECOND_US) | WEIR__LEASE_FIRST | LEASE_TAKING;
}

/* Another process has taken the record before it is published; its head follows. */
TEST(record_lost_while_it_is_published)
{
    f = fixture_make(1);
    struct weir__record record;
    CHECK_EQ(weir__record_take(&f->op, 0, SECOND_US, NULL, true, &record), 0);
    before_swap = evict_now;
    CHECK(!weir__record_publish(&f->op, &mine, &record, (weir__cell){0, 7}));
    CHECK(!before_swap);
    CHECK(f->table.lease[0] & LEASE_TAKING);
    fixture_free(f);
}

/* Three chunks in use, four free, one in use: they are found from the middle of them, too. */
TEST(free_chunks_on_both_sides_of_the_cursor)
{
    f = fixture_make(8);
    struct weir__record kept = own(&theirs, 2, 100 * SECOND_US), room = own(&theirs, 3, 100 * SECOND_US), got;
    own(&theirs, 0, 100 * SECOND_US);
    weir__record_release(&f->op, room);
    f->table.header->slab_cursor = 5;
    CHECK_EQ(weir__record_take(&f->op, 3, SECOND_US, NULL, true, &got), 0);
    CHECK_EQ(got.chunk, 3);
    CHECK_EQ(evicted(f), 0);
    CHECK(weir__record_is_current(&f->op, kept));
    fixture_free(f);
}

/* Several records must be evicted for one: what counts is the one that would last longest. */
TEST(longest_lease_of_several_decides)
{
    static const int64_t seconds[] = {1000, 10, 100, 200};
    f = fixture_make(8);
    for (int i = 0; i < 4; i++)
        own(&theirs, 1, seconds[i] * SECOND_US);
    struct weir__record got;
    CHECK_EQ(weir__record_take(&f->op, 3, SECOND_US, NULL, true, &got), 0);
    CHECK_EQ(got.chunk, 2);
    fixture_free(f);
}

/* Taken after its lease had expired, and published by another process: that process's head stays. */
TEST(record_lost_before_it_is_published)
{
    f = fixture_make(1);
    struct weir__record record;
    CHECK_EQ(weir__record_take(&f->op, 0, SECOND_US, NULL, true, &record), 0);
    pass_time(f, 10 * SECOND_US);
    struct weir__record next = own(&theirs, 0, 100 * SECOND_US);
    weir__cell head = *weir__record_head(&f->op, next);
    CHECK(!weir__record_publish(&f->op, &mine, &record, (weir__cell){0, 9}));
    CHECK(weir__cell_equal(head, *weir__record_head(&f->op, next)));
    CHECK(weir__record_is_current(&f->op, next));
    fixture_free(f);
}

/* ---- Lookup ---- */

/* The head is still the key's, and about to be another's. */
TEST(record_being_taken_is_not_found)
{
    f = fixture_make(2);
    link_mine(1, 10 * SECOND_US);
    CHECK(is_found());
    struct weir__record taken;
    CHECK_EQ(weir__record_take(&f->op, 1, 10 * SECOND_US, NULL, true, &taken), 0);
    CHECK_EQ(evicted(f), 1);
    CHECK(!is_found());
    fixture_free(f);
}

static void take_over(void)
{
    own(&theirs, 1, 10 * SECOND_US);
}

/* The lease is read before the head: another process's lease never comes with the key's old head. */
TEST(record_taken_during_a_read_is_not_found)
{
    f = fixture_make(2);
    link_mine(1, 10 * SECOND_US);
    before_load = take_over;
    CHECK(!is_found());
    CHECK(!before_load);
    fixture_free(f);
}

static struct weir__key_record linked; /* changed by other processes */
static struct weir__record moved_to;

static void move_mine(void)
{
    moved_to = own(&mine, 0, 10 * SECOND_US);
    CHECK_EQ(weir__key_record_link(&f->op, &mine, &linked, moved_to, 3600 * SECOND_US), 1);
}

/* The contents read are the key's only if its slot refers to the record afterwards, too. */
TEST(record_moved_during_a_read)
{
    f = fixture_make(4);
    linked = link_mine(1, 10 * SECOND_US);
    before_load = move_mine;
    struct weir__key_record key;
    CHECK_EQ(weir__key_record_find(&f->op, &mine, &key), 0);
    CHECK(!before_load);
    CHECK(key.found);
    CHECK_EQ(key.record.chunk, moved_to.chunk);
    CHECK(weir__cell_equal(key.seen, *key.slot));
    fixture_free(f);
}

TEST(record_with_an_expired_lease_is_not_found)
{
    f = fixture_make(2);
    link_mine(1, SECOND_US);
    pass_time(f, 10 * SECOND_US);
    CHECK(!is_found());
    fixture_free(f);
}

static void refer(weir__cell *slot, unsigned state, struct weir__record record)
{
    struct weir__slot_fields fields = weir__cell_unpack(*slot);
    fields.state = state;
    fields.used = weir__record_pack(record);
    *slot = weir__cell_pack(fields);
}

/* In a tentative entry the bits of the reference are an ABA tag. */
TEST(tentative_entry_has_no_record)
{
    f = fixture_make(2);
    struct weir__key_record key = link_mine(1, 10 * SECOND_US);
    refer(key.slot, WEIR__TENTATIVE, key.record);
    CHECK(!is_found());
    fixture_free(f);
}

TEST(reference_one_chunk_beyond_the_slab_is_refused)
{
    f = fixture_make(4);
    own(&theirs, 1, 10 * SECOND_US);
    struct weir__key_record key = link_mine(1, 10 * SECOND_US);
    CHECK_EQ(key.record.chunk, 2);
    for (unsigned size_class = 0; size_class < 4; size_class++) {
        refer(key.slot, WEIR__NORMAL, (struct weir__record){.chunk = 2, .size_class = size_class});
        CHECK_EQ(is_found(), size_class < 2);
    }
    fixture_free(f);
}

/* ---- Renewal and release ---- */

TEST(evicted_record_is_not_renewed)
{
    f = fixture_make(2);
    struct weir__key_record key = link_mine(1, 10 * SECOND_US);
    struct weir__record next = own(&theirs, 1, 10 * SECOND_US);
    weir__cell slot = *key.slot;
    CHECK(!weir__key_record_renew(&f->op, &key, 7200 * SECOND_US));
    CHECK(weir__record_is_current(&f->op, next));
    CHECK_EQ(f->table.lease[1], next.lease & LEASE_MASK);
    CHECK(weir__cell_equal(slot, *key.slot));
    fixture_free(f);
}

/* As by a concurrent renewal. */
static void change_slot(void)
{
    linked.slot->hi += 1 << 17;
}

TEST(renewal_fails_if_the_slot_has_changed)
{
    f = fixture_make(2);
    struct weir__key_record key = linked = link_mine(1, 10 * SECOND_US);
    before_cell_swap = change_slot;
    CHECK(!weir__key_record_renew(&f->op, &key, 7200 * SECOND_US));
    CHECK(!before_cell_swap);
    fixture_free(f);
}

TEST(slot_that_changes_while_it_is_dropped)
{
    f = fixture_make(2);
    linked = link_mine(1, 10 * SECOND_US);
    before_cell_swap = change_slot;
    CHECK_EQ(weir__key_record_drop(&f->op, &mine), 0);
    CHECK(!before_cell_swap);
    CHECK_EQ(weir__cell_tag(linked.slot->lo), 0);
    CHECK_EQ(f->table.lease[0], 0);
    CHECK_EQ(f->table.lease[1], 0);
    fixture_free(f);
}

/* A log may return to a record that it had, all within a microsecond. */
TEST(slot_linked_again_differs)
{
    f = fixture_make(2);
    struct weir__key_record key = link_mine(1, 10 * SECOND_US);
    weir__cell again = link_cell(&f->op, mine.tag, key.seen, key.record, 3600 * SECOND_US);
    CHECK(!weir__cell_equal(again, key.seen));
    CHECK(!weir__cell_equal(link_cell(&f->op, mine.tag, again, key.record, 3600 * SECOND_US), again));

    /* Dropped and created anew at the same moment, its version is derived from the tag of the empty slot. */
    for (unsigned aba_tag = 0; aba_tag < 2 * WEIR__VERSIONS; aba_tag++) {
        weir__cell tentative = weir__cell_tentative(&f->op, mine.tag);
        tentative.hi |= aba_tag;
        weir__cell made = link_cell(&f->op, mine.tag, tentative, key.record, 3600 * SECOND_US);
        CHECK_EQ(weir__cell_version(made.lo), aba_tag % WEIR__VERSIONS);
        CHECK(weir__is_normal(made.lo));
    }
    fixture_free(f);
}

/* Its anchor was set by a clock that was ahead; it lasts as long as it should by this one. */
TEST(clock_that_was_ahead_does_not_extend_a_slot)
{
    f = fixture_make(2);
    struct weir__key_record key = link_mine(1, 10 * SECOND_US);
    pass_time(f, -1000 * SECOND_US);
    weir__cell next = link_cell(&f->op, mine.tag, key.seen, key.record, 4096 * SECOND_US);
    int64_t life = weir__cell_life(next, f->op.mono_us, f->op.wall_us);
    CHECK(life >= 4096 * SECOND_US && life < 5000 * SECOND_US);
    fixture_free(f);
}

/* The owner is just renewing the record, its first chunk before the others. */
TEST(release_by_an_old_lease_frees_nothing)
{
    f = fixture_make(4);
    struct weir__record record = own(&theirs, 3, 10 * SECOND_US);
    f->table.lease[0] = lease_after(&f->op, record.lease, 100 * SECOND_US) | WEIR__LEASE_FIRST;
    weir__record_release(&f->op, record);
    for (uint64_t i = 0; i < 4; i++)
        CHECK(leased(f, i));
    fixture_free(f);
}

TEST_MAIN
