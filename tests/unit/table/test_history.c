/* The history of the last hour by seconds. */
#include "../../test.h"

#include "table/history.h"

static struct weir__history made(uint32_t rows)
{
    struct weir__history history;
    size_t bytes = weir__row_file_bytes(&weir__history_format, rows);
    void *memory = calloc(1, bytes);
    CHECK_EQ(weir__row_file_format(memory, bytes, &weir__history_format), 0);
    CHECK(weir__history_attach(memory, bytes, &history));
    CHECK_EQ(history.rows, rows);
    return history;
}

/* Writes one second of a rule. */
static void write_second(struct weir__history *history, uint64_t second, uint64_t rule, uint64_t allowed,
                         uint64_t denied)
{
    struct weir__rule_stats_shard sums = {.allowed = allowed, .denied = denied, .shed = 2 * denied};
    weir__history_begin(history, second);
    weir__history_add(history, second, rule, &sums, WEIR__HISTORY_UNSEEN);
    weir__history_end(history, second);
}

TEST(counts_of_each_second_are_read_back)
{
    struct weir__history history = made(2);
    struct weir__history_second seconds[4];
    CHECK_EQ(weir__history_read(&history, 7, seconds, 4), 0);
    write_second(&history, 100, 7, 1000, 5); /* counts from before the first sample do not belong to this second */
    write_second(&history, 101, 7, 1010, 5);
    write_second(&history, 102, 7, 1010, 9);
    CHECK_EQ(weir__history_read(&history, 7, seconds, 4), 3);
    CHECK_EQ(seconds[0].allowed, 0);
    CHECK_EQ(seconds[1].allowed, 10);
    CHECK_EQ(seconds[1].denied, 0);
    CHECK_EQ(seconds[2].allowed, 0);
    CHECK_EQ(seconds[2].denied, 4);
    CHECK_EQ(seconds[1].shed, 0);
    CHECK_EQ(seconds[2].shed, 8);
    CHECK_EQ(weir__history_read(&history, 7, seconds, 1), 1);
    CHECK_EQ(seconds[0].denied, 4);
    CHECK_EQ(weir__history_read(&history, 8, seconds, 4), 0);
    free(history.header);
}

TEST(missed_seconds_are_empty)
{
    struct weir__history history = made(1);
    struct weir__history_second seconds[WEIR__HISTORY_SECONDS];
    uint64_t sum = 0;
    for (uint64_t s = 1; s <= 2 * WEIR__HISTORY_SECONDS; s++)
        write_second(&history, s, 7, sum += 3, 0);
    CHECK_EQ(weir__history_read(&history, 7, seconds, WEIR__HISTORY_SECONDS), WEIR__HISTORY_SECONDS - 1);
    CHECK_EQ(seconds[0].allowed, 3);
    /* The agent did not run for ten seconds: the values of the previous hour do not show up. */
    write_second(&history, 2 * WEIR__HISTORY_SECONDS + 10, 7, sum += 40, 0);
    CHECK_EQ(weir__history_read(&history, 7, seconds, 11), 11);
    CHECK_EQ(seconds[0].allowed, 3);
    for (int i = 1; i < 10; i++)
        CHECK_EQ(seconds[i].allowed, 0);
    CHECK_EQ(seconds[10].allowed, 40);
    /* And for more than an hour. */
    write_second(&history, 9 * WEIR__HISTORY_SECONDS, 7, sum + 5, 0);
    CHECK_EQ(weir__history_read(&history, 7, seconds, WEIR__HISTORY_SECONDS), WEIR__HISTORY_SECONDS - 1);
    uint64_t all = 0;
    for (size_t i = 0; i < WEIR__HISTORY_SECONDS - 1; i++)
        all += seconds[i].allowed;
    CHECK_EQ(all, 5);
    free(history.header);
}

TEST(row_of_a_removed_rule_is_reused)
{
    struct weir__history history = made(2);
    struct weir__history_second seconds[8];
    struct weir__rule_stats_shard sums = {.allowed = 1};
    weir__history_begin(&history, 10);
    weir__history_add(&history, 10, 1, &sums, WEIR__HISTORY_UNSEEN);
    weir__history_add(&history, 10, 2, &sums, WEIR__HISTORY_UNSEEN);
    weir__history_add(&history, 10, 3, &sums, WEIR__HISTORY_UNSEEN); /* there is no room, and no rule was removed */
    weir__history_end(&history, 10);
    CHECK_EQ(weir__history_read(&history, 3, seconds, 8), 0);
    for (uint64_t s = 11; s < 14; s++) {
        sums.allowed++;
        weir__history_begin(&history, s);
        weir__history_add(&history, s, 2, &sums, WEIR__HISTORY_UNSEEN);
        weir__history_add(&history, s, 3, &sums, WEIR__HISTORY_UNSEEN);
        weir__history_end(&history, s);
    }
    CHECK_EQ(weir__history_read(&history, 1, seconds, 8), 0);
    CHECK_EQ(weir__history_read(&history, 2, seconds, 8), 4);
    CHECK_EQ(seconds[3].allowed, 1);
    CHECK(weir__history_read(&history, 3, seconds, 8) > 0);
    free(history.header);
}

TEST(new_segment_does_not_look_like_a_flood)
{
    struct weir__history history = made(1);
    struct weir__history_second seconds[2];
    write_second(&history, 1, 7, 1000000, 0);
    write_second(&history, 2, 7, 12, 0);
    CHECK_EQ(weir__history_read(&history, 7, seconds, 2), 2);
    CHECK_EQ(seconds[1].allowed, 12);
    free(history.header);
}

TEST(hours_have_sums_and_peak_usage)
{
    struct weir__history history = made(1);
    struct weir__history_hour hours[WEIR__HISTORY_HOURS];
    struct weir__rule_stats_shard sums = {0};
    CHECK_EQ(weir__history_hours(&history, 7, hours), 0);
    /* Once a minute, for nine days: eight of them are kept. On the second day nothing was recorded. */
    for (uint64_t s = 3600; s < 9 * 86400 + 3600; s += 60) {
        if (s / 86400 == 3)
            continue;
        sums.allowed += 10;
        sums.denied += s / 3600 == 100;
        weir__history_begin(&history, s);
        weir__history_add(&history, s, 7, &sums, s / 3600 == 120 && s % 3600 == 600 ? 555 : 100);
        weir__history_end(&history, s);
    }
    size_t count = weir__history_hours(&history, 7, hours);
    CHECK_EQ(count, WEIR__HISTORY_HOURS - 24);
    CHECK_EQ(hours[count - 1].hour, 9 * 24);
    CHECK_EQ(hours[count - 1].allowed, 600);
    CHECK_EQ(hours[count - 1].looked, 60);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(hours[i].denied, hours[i].hour == 100 ? 60 : 0);
        CHECK_EQ(hours[i].most, hours[i].hour == 120 ? 555 : 100);
        CHECK(i == 0 || hours[i].hour > hours[i - 1].hour);
    }
    CHECK_EQ(weir__history_hours(&history, 8, hours), 0);
    free(history.header);
}

TEST(invalid_history_is_refused)
{
    struct weir__history history;
    size_t bytes = weir__row_file_bytes(&weir__history_format, 1);
    struct weir__history_header *memory = calloc(1, bytes);
    CHECK(!weir__history_attach(memory, bytes, &history));
    CHECK_EQ(weir__row_file_format(memory, bytes - 1, &weir__history_format), WEIR_ESIZE);
    CHECK_EQ(weir__row_file_format(memory, bytes, &weir__history_format), 0);
    CHECK(weir__history_attach(memory, bytes, &history));
    memory->file.rows = 2;
    CHECK(!weir__history_attach(memory, bytes, &history));
    memory->file.rows = 0;
    CHECK(!weir__history_attach(memory, bytes, &history));
    memory->file.rows = 1;
    memory->file.layout = 9;
    CHECK(!weir__history_attach(memory, bytes, &history));
    free(memory);
}

TEST_MAIN
