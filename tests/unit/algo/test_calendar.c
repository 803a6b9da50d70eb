/* Calendar windows: known ones, the invariants in any zone, and agreement with the C library. */
#include "../../test.h"

#include <time.h>

#include "algo/algo.h"

#define HOUR INT64_C(3600)
#define DAY  (24 * HOUR)
#define US   INT64_C(1000000)

static const enum weir_calendar units[] = {WEIR_CALENDAR_DAY, WEIR_CALENDAR_WEEK, WEIR_CALENDAR_MONTH,
                                           WEIR_CALENDAR_YEAR};

/* Zones with daylight saving time, half-hour offsets, transitions at midnight, a skipped day, and with none of these.
 */
static const char *const names[] = {"Europe/Berlin",  "America/New_York",  "Australia/Lord_Howe", "Asia/Kolkata",
                                    "Pacific/Apia",   "America/Sao_Paulo", "Asia/Beirut",         "Africa/Cairo",
                                    "America/Havana", "Antarctica/Troll",  "Africa/Casablanca",   "America/Asuncion",
                                    "Asia/Gaza",      "Pacific/Kiritimati"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Seconds since 1970 of a civil time in UTC, by the C library. */
static int64_t utc(int year, int month, int day, int hour, int minute)
{
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute};

    return timegm(&tm);
}

static weir_zone *zone_of(int32_t offset_s, int32_t count, const struct weir__zone_transition *transitions)
{
    weir_zone *zone = malloc(sizeof *zone + (size_t)count * sizeof *transitions);

    if (!zone)
        abort();
    zone->offset_s = offset_s;
    zone->count = count;
    memcpy(zone->transition, transitions, (size_t)count * sizeof *transitions);
    return zone;
}

static void check_window(const weir_zone *zone, enum weir_calendar unit, int64_t now_s, int64_t start_s, int64_t end_s)
{
    int64_t start = 1, end = 1;

    weir__calendar_window(zone, unit, now_s * US + 999999, &start, &end);
    CHECK_EQ(start, start_s * US);
    CHECK_EQ(end, end_s * US);
}

TEST(known_windows_in_utc)
{
    int64_t now = utc(2024, 2, 29, 13, 37);

    check_window(NULL, WEIR_CALENDAR_DAY, now, utc(2024, 2, 29, 0, 0), utc(2024, 3, 1, 0, 0));
    check_window(NULL, WEIR_CALENDAR_WEEK, now, utc(2024, 2, 26, 0, 0), utc(2024, 3, 4, 0, 0));
    check_window(NULL, WEIR_CALENDAR_MONTH, now, utc(2024, 2, 1, 0, 0), utc(2024, 3, 1, 0, 0));
    check_window(NULL, WEIR_CALENDAR_YEAR, now, utc(2024, 1, 1, 0, 0), utc(2025, 1, 1, 0, 0));
    check_window(NULL, WEIR_CALENDAR_WEEK, 0, -3 * DAY, 4 * DAY);
    check_window(NULL, WEIR_CALENDAR_DAY, -1, -DAY, 0);
    check_window(NULL, WEIR_CALENDAR_YEAR, -1, -365 * DAY, 0);
    check_window(NULL, WEIR_CALENDAR_MONTH, utc(2100, 2, 28, 23, 59), utc(2100, 2, 1, 0, 0), utc(2100, 3, 1, 0, 0));
}

TEST(microseconds_at_the_window_boundary)
{
    int64_t start, end;

    weir__calendar_window(NULL, WEIR_CALENDAR_DAY, DAY * US, &start, &end);
    CHECK_EQ(start, DAY * US);
    weir__calendar_window(NULL, WEIR_CALENDAR_DAY, DAY * US - 1, &start, &end);
    CHECK_EQ(end, DAY * US);
    weir__calendar_window(NULL, WEIR_CALENDAR_DAY, -1, &start, &end);
    CHECK_EQ(start, -DAY * US);
    CHECK_EQ(end, 0);
}

/* Steps through 600 years day by day with a naive calendar, and compares every day. */
TEST(every_day_from_1900_to_2500)
{
    static const int lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t day = utc(1900, 1, 1, 0, 0) / DAY, monday = day; /* 1900-01-01 was a Monday */

    for (int year = 1900; year <= 2500; year++) {
        bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        int64_t new_year = day;
        for (int month = 0; month < 12; month++) {
            int64_t first = day, next = day + lengths[month] + (leap && month == 1);
            for (; day < next; day++) {
                monday = day - monday == 7 ? day : monday;
                check_window(NULL, WEIR_CALENDAR_DAY, day * DAY, day * DAY, day * DAY + DAY);
                check_window(NULL, WEIR_CALENDAR_WEEK, day * DAY, monday * DAY, (monday + 7) * DAY);
                check_window(NULL, WEIR_CALENDAR_MONTH, day * DAY + DAY - 1, first * DAY, next * DAY);
                check_window(NULL, WEIR_CALENDAR_YEAR, day * DAY, new_year * DAY, (new_year + 365 + leap) * DAY);
            }
        }
    }
}

TEST(skipped_midnight_is_the_end_of_the_gap)
{
    /* As in Brazil: 23:59:59 in UTC-3 is followed by 01:00 in UTC-2. */
    int64_t gap = utc(2018, 11, 4, 3, 0);
    weir_zone *zone = zone_of(-3 * 3600, 1, &(struct weir__zone_transition){gap, -2 * 3600});

    check_window(zone, WEIR_CALENDAR_DAY, gap - 1, gap - DAY, gap);
    check_window(zone, WEIR_CALENDAR_DAY, gap, gap, gap + 23 * HOUR);
    check_window(zone, WEIR_CALENDAR_DAY, gap + 23 * HOUR, gap + 23 * HOUR, gap + 47 * HOUR);

    /* A gap from 23:30 to 00:30. */
    zone->transition[0].at_s = gap -= HOUR / 2;
    check_window(zone, WEIR_CALENDAR_DAY, gap - 1, gap - DAY + HOUR / 2, gap);
    check_window(zone, WEIR_CALENDAR_DAY, gap, gap, gap + 23 * HOUR + HOUR / 2);
    free(zone);
}

TEST(midnight_that_happens_twice_is_the_first)
{
    /* As in Cuba: at 01:00 in UTC-4 it is 00:00 again, in UTC-5. */
    int64_t back = utc(2021, 11, 7, 5, 0);
    weir_zone *zone = zone_of(-4 * 3600, 1, &(struct weir__zone_transition){back, -5 * 3600});

    check_window(zone, WEIR_CALENDAR_DAY, back, back - HOUR, back + DAY);
    check_window(zone, WEIR_CALENDAR_DAY, back - 1, back - HOUR, back + DAY);
    check_window(zone, WEIR_CALENDAR_DAY, back - HOUR - 1, back - HOUR - DAY, back - HOUR);

    /* Back from 00:30 to 23:30: half an hour shows the old date again, yet its day is over. */
    zone->transition[0].at_s = back -= HOUR / 2;
    check_window(zone, WEIR_CALENDAR_DAY, back + 60, back - HOUR / 2, back + HOUR / 2 + DAY);

    /* As in Brazil: what would be midnight is 23:00 again, so there is one midnight, an hour later. */
    zone->transition[0].at_s = back = utc(2021, 11, 7, 4, 0);
    check_window(zone, WEIR_CALENDAR_DAY, back, back - DAY, back + HOUR);
    check_window(zone, WEIR_CALENDAR_DAY, back + HOUR, back + HOUR, back + HOUR + DAY);
    free(zone);
}

TEST(skipped_day_has_no_window)
{
    /* Samoa went from 29 to 31 December 2011. */
    int64_t jump = utc(2011, 12, 30, 10, 0);
    weir_zone *zone = zone_of(-10 * 3600, 1, &(struct weir__zone_transition){jump, 14 * 3600});

    check_window(zone, WEIR_CALENDAR_DAY, jump - 1, jump - DAY, jump);
    check_window(zone, WEIR_CALENDAR_DAY, jump, jump, jump + DAY);
    check_window(zone, WEIR_CALENDAR_YEAR, jump, utc(2011, 1, 1, 10, 0), jump + DAY);
    free(zone);
}

/* Offset changes of up to 51 hours, often several a day, against a clock that is read every second of a month. */
TEST(extreme_zones_agree_with_counting_seconds)
{
    uint64_t seed = 1;

    for (int round = 0; round < 24; round++) {
        struct weir__zone_transition transitions[12];
        int64_t at = 0, reached_at[32];
        int32_t offset = (int32_t)(test_random(&seed) % 187199) - 93599, count = 12, next = 0, now_offset = offset;
        for (int32_t i = 0; i < count; i++) {
            at += 1 + (int64_t)(test_random(&seed) % (round % 2 ? 90000 : 9000));
            transitions[i] = (struct weir__zone_transition){at, (int32_t)(test_random(&seed) % 187199) - 93599};
        }
        weir_zone *zone = zone_of(offset, count, transitions);
        /* First pass: when was midnight number m - 8 first reached? */
        for (int64_t t = -12 * DAY, m = 0; m < 32; t++) {
            if (next < count && transitions[next].at_s == t)
                now_offset = transitions[next++].offset_s;
            for (; m < 32 && t + now_offset >= (m - 8) * DAY; m++)
                reached_at[m] = t;
        }
        /* Second pass: sample moments, and the day by the midnights reached. */
        for (int64_t t = -DAY; t < 13 * DAY; t += 1 + (int64_t)(test_random(&seed) % 997)) {
            int m = 0;
            while (reached_at[m + 1] <= t)
                m++;
            check_window(zone, WEIR_CALENDAR_DAY, t, reached_at[m], reached_at[m + 1]);
        }
        free(zone);
    }
}

/* The window contains its moment, is the same from both of its ends, and is adjacent to its neighbours. */
static void check_invariants(const weir_zone *zone, enum weir_calendar unit, int64_t now_us)
{
    int64_t start, end, other_start, other_end;

    weir__calendar_window(zone, unit, now_us, &start, &end);
    CHECK(start <= now_us);
    CHECK(now_us < end);
    weir__calendar_window(zone, unit, end - 1, &other_start, &other_end);
    CHECK(other_start == start && other_end == end);
    weir__calendar_window(zone, unit, start, &other_start, &other_end);
    CHECK(other_start == start && other_end == end);
    weir__calendar_window(zone, unit, end, &other_start, &other_end);
    CHECK_EQ(other_start, end);
    weir__calendar_window(zone, unit, start - 1, &other_start, &other_end);
    CHECK_EQ(other_end, start);
}

static weir_zone *open_zone(const char *name)
{
    weir_zone *zone = NULL;

    CHECK_EQ(weir_zone_open(name, &zone), 0); /* needs tzdata */
    return zone;
}

TEST(windows_contain_their_moment_and_tile)
{
    uint64_t seed = 2;

    for (size_t n = 0; n < COUNT(names); n++) {
        weir_zone *zone = open_zone(names[n]);
        for (int i = 0; zone && i < 3000; i++)
            check_invariants(zone, units[i % 4],
                             (int64_t)(test_random(&seed) % (uint64_t)(250 * 365 * DAY * US)) - DAY * US);
        for (int32_t i = 0; zone && i < zone->count; i++) {
            for (int64_t shift = -3 * DAY; shift <= 3 * DAY; shift += HOUR / 2)
                check_invariants(zone, units[(shift / HOUR) & 3], (zone->transition[i].at_s + shift) * US);
        }
        weir_zone_close(zone);
    }
}

TEST(windows_tile_at_the_limits_of_int64)
{
    uint64_t seed = 3;
    weir_zone *zone = zone_of(-93599, 1, &(struct weir__zone_transition){0, 93599});

    for (int i = 0; i < 4000; i++) {
        int64_t near = (int64_t)(test_random(&seed) % (uint64_t)(900 * DAY * US));
        check_invariants(i & 4 ? zone : NULL, units[i % 4], INT64_MAX / 4 - near);
        check_invariants(i & 4 ? zone : NULL, units[i % 4], -near);
        check_invariants(i & 4 ? zone : NULL, units[i % 4], (int64_t)(test_random(&seed) % (INT64_MAX / 4)));
    }
    free(zone);
}

/* The unit that the C library's local date of a moment falls into, as a number that increases. */
static int64_t unit_of(enum weir_calendar unit, int64_t at_s)
{
    struct tm tm, date = {0};
    time_t at = (time_t)at_s;
    int64_t day;

    localtime_r(&at, &tm);
    date.tm_year = tm.tm_year;
    date.tm_mon = tm.tm_mon;
    date.tm_mday = tm.tm_mday;
    day = timegm(&date) / DAY;
    switch (unit) {
    case WEIR_CALENDAR_WEEK:
        return (day - (tm.tm_wday + 6) % 7) / 7;
    case WEIR_CALENDAR_MONTH:
        return tm.tm_year * 12 + tm.tm_mon;
    case WEIR_CALENDAR_YEAR:
        return tm.tm_year;
    case WEIR_CALENDAR_DAY:
    default:
        return day;
    }
}

TEST(window_boundaries_agree_with_the_c_library)
{
    uint64_t seed = 4;

    for (size_t n = 0; n < COUNT(names); n++) {
        weir_zone *zone = open_zone(names[n]);
        setenv("TZ", names[n], 1);
        tzset();
        for (int i = 0; zone && i < 4000; i++) {
            enum weir_calendar unit = units[i % 4];
            int64_t now = 2 * 365 * DAY + (int64_t)(test_random(&seed) % (uint64_t)(170 * 365 * DAY)), start, end;
            if (zone->count && i % 2) /* half of them close to a transition, where errors are likely */
                now = zone->transition[test_random(&seed) % (uint64_t)zone->count].at_s + now % (4 * DAY) - 2 * DAY;
            if (now < 2 * 365 * DAY)
                continue;
            weir__calendar_window(zone, unit, now * US, &start, &end);
            start /= US;
            end /= US;
            CHECK(unit_of(unit, start) > unit_of(unit, start - 1));
            CHECK(unit_of(unit, end) > unit_of(unit, end - 1));
            CHECK(unit_of(unit, end) > unit_of(unit, start));
            /* Only in the hours after a repeated midnight may the date be the old one again. */
            CHECK(unit_of(unit, now) == unit_of(unit, start) ||
                  (unit_of(unit, now) < unit_of(unit, start) && now - start < 3 * HOUR));
        }
        weir_zone_close(zone);
    }
    unsetenv("TZ");
    tzset();
}

TEST_MAIN
