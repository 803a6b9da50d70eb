/*
 * Which way a batch goes: what is usual is decided eight at a time, wherever its entries are, and nothing of that is
 * left to be decided by itself. Beside that, entries that the wide way could mistake.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/batch.h"
#include "table/hash.h"

#include "../../test.h"

enum { KEYS = 1200, EIGHT = 8 };

/* ---- Counted by the linker ---- */

static int64_t singly;

void __real_weir__batch_decide(struct weir__batch *b, weir_request *r, weir__cell *slot, uint64_t wanted,
                               struct weir__bucket *home);
void __wrap_weir__batch_decide(struct weir__batch *b, weir_request *r, weir__cell *slot, uint64_t wanted,
                               struct weir__bucket *home);

void __wrap_weir__batch_decide(struct weir__batch *b, weir_request *r, weir__cell *slot, uint64_t wanted,
                               struct weir__bucket *home)
{
    singly++;
    __real_weir__batch_decide(b, r, slot, wanted, home);
}

/* ---- Asking ---- */

static const weir_time now = {WEIR_DAY * 20000, WEIR_DAY * 20000};
static weir_segment *segment;
static weir_limit limit;
static uint64_t keys[KEYS];
static weir_request requests[KEYS];

/* A hundred units, one a second. */
static void begin(void)
{
    weir_segment_options options = {.size = 1 << 16, .no_slab = true};
    weir_params params = {.limit = 100, .window_ns = 100 * WEIR_SECOND};
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i;
}

/* The first so many keys; each has so much left after it. */
static void ask(size_t count, weir_time at, int64_t left)
{
    singly = 0;
    for (size_t i = 0; i < count; i++)
        requests[i] = (weir_request){.limit = &limit, .key = &keys[i], .key_len = sizeof keys[i], .cost = 1};
    CHECK_EQ(weir_take_batch(segment, requests, count, at), 0);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(requests[i].decision.verdict, WEIR_ALLOW);
        CHECK_EQ(requests[i].decision.remaining, left);
    }
}

static weir__cell *slot_of(uint64_t key, struct weir__key_location *where)
{
    const struct weir__op op = {.table = &segment->table, .mono_us = now.mono_ns / 1000, .wall_us = now.wall_ns / 1000};
    weir__cell *slot = NULL, seen;
    weir__key_locate(&segment->table, &limit, &key, sizeof key, where);
    CHECK_EQ(weir__lookup_helping(&op, where, &slot, &seen), 0);
    CHECK(slot != NULL);
    return slot;
}

TEST(what_is_usual_goes_the_wide_way)
{
    int64_t places[2][WEIR__BUCKET_SLOTS] = {{0}};
    begin();
    ask(KEYS, now, 99);
    for (uint64_t i = 0; i < KEYS; i++) {
        struct weir__key_location where;
        const weir__cell *slot = slot_of(i, &where);
        int64_t place = slot - segment->table.bucket[0].slot;
        places[place / WEIR__BUCKET_SLOTS != (int64_t)where.primary][place % WEIR__BUCKET_SLOTS]++;
    }
    for (int i = 0; i < WEIR__BUCKET_SLOTS; i++)
        CHECK(places[0][i] && places[1][i]); /* at home and away, in every slot */
    ask(KEYS, now, 98);
    CHECK_EQ(singly, 0);
    weir_segment_close(segment);
}

/* As long as it says, and not a microsecond longer, whatever it holds: it may be of a limit that gives back faster. */
TEST(an_entry_that_ends_at_this_very_moment)
{
    for (int64_t late = -1; late <= 1; late++) {
        begin();
        ask(EIGHT, now, 99);
        for (uint64_t i = 0; i < EIGHT; i++) {
            struct weir__key_location where;
            weir__cell *slot = slot_of(i, &where);
            struct weir__slot_fields parts = weir__cell_unpack(*slot);
            parts.expiry = weir__expiry_encode(4096);
            parts.used = 50;
            *slot = weir__cell_pack(parts);
        }
        int64_t at = now.mono_ns + (weir__expiry_decode(weir__expiry_encode(4096)) + late) * 1000;
        ask(EIGHT, (weir_time){at, at}, late < 0 ? 49 : 99);
        weir_segment_close(segment);
    }
}

/* Changes the first eight keys so that each has a line to itself. */
static void take_homes_apart(void)
{
    uint64_t homes[EIGHT], next = 0;
    for (size_t i = 0; i < EIGHT; i++) {
        struct weir__key_location where;
        bool alone;
        do {
            keys[i] = next++;
            weir__key_locate(&segment->table, &limit, &keys[i], sizeof keys[i], &where);
            alone = true;
            for (size_t k = 0; k < i; k++)
                alone &= homes[k] != where.primary;
        } while (!alone);
        homes[i] = where.primary;
    }
}

/* Another entry of the line has, where it keeps its time or its count, what the tag looks like. */
TEST(a_time_that_looks_like_a_tag_is_none)
{
    begin();
    take_homes_apart();
    ask(EIGHT, now, 99);
    for (uint64_t i = 0; i < EIGHT; i++) {
        struct weir__key_location where;
        weir__cell entry = *slot_of(keys[i], &where), *line = segment->table.bucket[where.primary].slot;
        uint64_t tag = entry.lo >> 32;
        for (int before = 0; before < 3; before++)
            line[before] = (weir__cell){UINT64_C(5) << 32 | tag, tag << 32 | tag};
        line[3] = entry;
    }
    ask(EIGHT, now, 98);
    CHECK_EQ(singly, 0);
    weir_segment_close(segment);
}

TEST_MAIN
