/* Displacements and claims, one step after the other: cases that the interleavings of tests/stress reach rarely. */
#include "slabs.h"

#include "table/cuckoo.c"

static struct fixture *f;

static weir__cell entry(uint64_t tag, unsigned state, int64_t for_us)
{
    return weir__cell_pack((struct weir__slot_fields){.tag = tag,
                                                      .state = state,
                                                      .expiry = weir__expiry_encode(for_us),
                                                      .used = 5,
                                                      .anchor = (uint64_t)f->op.mono_us & WEIR__TIME_MASK});
}

static struct weir__key_location key_at(uint64_t tag, uint64_t home)
{
    return (struct weir__key_location){
        .tag = tag, .primary = home, .alternate = weir__alternate_bucket(tag, home, f->table.buckets)};
}

static void fill(uint64_t line, uint64_t first_tag)
{
    for (uint64_t i = 0; i < WEIR__BUCKET_SLOTS; i++)
        f->table.bucket[line].slot[i] = entry(first_tag + 16 * i, WEIR__NORMAL, 3600 * SECOND_US);
}

/*
 * An entry that has recovered while it was displaced by a process that died: its slot is not free before the
 * displacement is finished. A helper may have read it, and be about to write the copy.
 */
TEST(entry_being_displaced_is_not_free_even_if_expired)
{
    f = fixture_make(0);
    struct weir__key_location key = key_at(0x100, 3), old = key_at(0x208, 3);
    CHECK(key.alternate != key.primary && old.alternate != old.primary && old.alternate != key.alternate);
    fill(key.primary, 0x1000);
    fill(key.alternate, 0x2000);
    weir__cell *from = &f->table.bucket[old.primary].slot[0], *to = &f->table.bucket[old.alternate].slot[2];
    *to = weir__cell_with_aba_tag(entry(old.tag, WEIR__RESERVED, 10 * SECOND_US), *to);
    *from = entry(old.tag, WEIR__FROZEN | 2, SECOND_US);
    weir__cell frozen = *from, *slot, seen;
    pass_time(f, 2 * SECOND_US);
    CHECK(!is_free(&f->op, frozen));

    CHECK_EQ(weir__slot_claim(&f->op, &key, weir__cell_tentative(&f->op, key.tag), &slot, &seen), 0);
    CHECK_EQ(weir__cell_state(seen.lo), WEIR__TENTATIVE);
    CHECK(f->table.stats[0].displaced >= 1);
    CHECK(weir__cell_tag(to->lo) != old.tag || weir__is_normal(to->lo));
    CHECK_EQ(evicted(f), 0);
    fixture_free(f);
}

/* Claimed, released and claimed again in the same slot and moment: a compare-and-swap expecting the first claim fails
 * on the second. */
TEST(each_claim_differs_from_the_one_before)
{
    f = fixture_make(0);
    struct weir__key_location key = key_at(0x100, 3);
    weir__cell *slot[2], seen[2];
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weir__slot_claim(&f->op, &key, weir__cell_tentative(&f->op, key.tag), &slot[i], &seen[i]), 0);
        weir__cell seen_before = seen[i];
        CHECK(weir__cell_cas(slot[i], &seen_before, weir__cell_empty(seen_before)));
    }
    CHECK(slot[0] == slot[1]);
    CHECK(!weir__cell_equal(seen[0], seen[1]));
    fixture_free(f);
}

/* Of several concurrent claims one stays, and all processes agree which, whatever their primary bucket. */
TEST(of_several_claims_the_one_in_the_lowest_slot_stays)
{
    for (uint64_t home = 3; home < 40; home++) {
        f = fixture_make(0);
        struct weir__key_location key = key_at(0x100, home), turned = key;
        turned.primary = key.alternate;
        turned.alternate = key.primary;
        uint64_t low = key.primary < key.alternate ? key.primary : key.alternate,
                 high = key.primary + key.alternate - low;
        weir__cell tentative = weir__cell_tentative(&f->op, key.tag), *slot, seen;
        f->table.bucket[low].slot[3] = f->table.bucket[high].slot[0] = f->table.bucket[high].slot[1] = tentative;
        CHECK_EQ(weir__lookup_helping(&f->op, home % 2 ? &key : &turned, &slot, &seen), 0);
        CHECK(low == high || slot == &f->table.bucket[low].slot[3]);
        int left = 0;
        for (uint64_t i = 0; i < f->table.buckets * WEIR__BUCKET_SLOTS; i++)
            left += weir__cell_tag(f->table.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS].lo) == key.tag;
        CHECK_EQ(left, 1);
        fixture_free(f);
    }
}

TEST_MAIN
