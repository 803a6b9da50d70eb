/* The move of entries to their regions while other processes take new keys, which displace entries. */
#include "../engine/segment_files.h"

#include "engine/segment.h"
#include "table/resize.h"

enum { PART = 1 << 20, LOADS_A_KEY = 100 };

static weir_segment *segment;
static weir_limit limit;
static uint64_t keys, loads;
static bool concurrent; /* new keys are taken during the move */

static void take_new_key(void)
{
    weir_decision d = {0};
    CHECK_EQ(weir_take(segment, &limit, &keys, sizeof keys, 1, weir_clock(segment), &d), 0);
    CHECK(weir_passes(&d));
    keys++;
}

static uint64_t load_after_others(const uint64_t *word)
{
    if (concurrent && ++loads % LOADS_A_KEY == 0)
        take_new_key();
    return weir__load64(word);
}

#define weir__load64 load_after_others
#include "table/resize.c"
#undef weir__load64

static void fill_to(uint64_t count)
{
    while (keys < count)
        take_new_key();
}

static uint64_t displaced(void)
{
    weir_stats stats = {0};
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    CHECK_EQ(stats.evicted_live, 0);
    return stats.displaced;
}

/* Each pass sees displacements of entries that stay or have arrived. They do not prolong the move. */
TEST(new_keys_do_not_prolong_a_resize)
{
    weir_resize result;
    weir_stats stats = {0};
    directory_make();
    CHECK_EQ(open_with(at("s"), PART, WEIR_OPEN_CREATE, &segment), 0);
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 1, .window_ns = WEIR_DAY}), 0);
    CHECK_EQ(weir_stats_read(segment, &stats), 0);
    uint64_t small = stats.slots;

    CHECK_EQ(weir_segment_resize(at("s"), 2 * PART, &result), 0);
    fill_to(small * 7 / 10);
    concurrent = true;
    uint64_t before = displaced();
    CHECK_EQ(weir_segment_resize(at("s"), PART, &result), 0);
    CHECK(result.size == PART && !weir__is_resizing(&segment->table));
    CHECK(displaced() > before + 10);
    CHECK(loads < 5 * 2 * small); /* 2 or 3 passes over the slots of both regions */

    loads = 0;
    before = displaced();
    CHECK_EQ(weir_segment_resize(at("s"), 4 * PART, &result), 0);
    CHECK(result.size == 4 * PART && !weir__is_resizing(&segment->table));
    CHECK(displaced() > before);
    CHECK(loads < 5 * small);
    concurrent = false;

    for (uint64_t key = 0; key < keys; key++) { /* all are where they belong */
        weir_decision d = {0};
        CHECK_EQ(weir_take(segment, &limit, &key, sizeof key, 1, weir_clock(segment), &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
    }
    weir_report report = {0};
    CHECK_EQ(weir_segment_validate(segment, weir_clock(segment), &report), 0);
    CHECK_EQ(report.live, keys);
    weir_segment_close(segment);
    directory_remove();
}

TEST_MAIN
