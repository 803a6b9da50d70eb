/*
 * Calendar windows.
 *
 * Local time may go back, so the day is derived from the latest local time ever shown, which never falls: a midnight
 * once passed stays passed. A window starts at the first moment at which local time reaches its first midnight. The two
 * functions are inverse to each other, so windows contain their moment and tile, whatever the zone does: start <= now
 * because that midnight was reached, now < end because the next one was not.
 */
#include "algo/algo.h"

#define DAY_S     86400
#define SECOND_US 1000000

/* Bound of a zone's offset, which the loader checks: only transitions within it of a moment matter. */
#define REACH_S (26 * 3600)

/* a / b rounded towards minus infinity, for b > 0. */
static inline int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* ---- Days since 1970 ---- */

/* The first day of a year: 365 days each and a leap day for every leap year before; 477 of them were before 1970. */
static int64_t year_start(int64_t year)
{
    int64_t past = year - 1;

    return 365 * (year - 1970) + floor_div(past, 4) - floor_div(past, 100) + floor_div(past, 400) - 477;
}

static int64_t year_of(int64_t day)
{
    /* 400 years have 146097 days. The quotient is off by one at most, near the transition of a year. */
    int64_t year = 1970 + floor_div(day * 400, 146097);

    if (year_start(year) > day)
        return year - 1;
    return year_start(year + 1) <= day ? year + 1 : year;
}

static void month_around(int64_t day, int64_t *first, int64_t *next)
{
    static const int16_t before[13] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    int64_t year = year_of(day), new_year = year_start(year);
    int leap = year_start(year + 1) - new_year == 366;
    int month = 11;

    while (new_year + before[month] + (leap && month >= 2) > day)
        month--;
    *first = new_year + before[month] + (leap && month >= 2);
    *next = new_year + before[month + 1] + (leap && month + 1 >= 2);
}

/* The first day of the unit that holds `day`, and of the one after. */
static void unit_around(enum weir_calendar unit, int64_t day, int64_t *first, int64_t *next)
{
    switch (unit) {
    case WEIR_CALENDAR_WEEK:
        /* Day 0 was a Thursday, three days after a Monday. */
        *first = floor_div(day + 3, 7) * 7 - 3;
        *next = *first + 7;
        break;
    case WEIR_CALENDAR_MONTH:
        month_around(day, first, next);
        break;
    case WEIR_CALENDAR_YEAR:
        *first = year_start(year_of(day));
        *next = year_start(year_of(day) + 1);
        break;
    case WEIR_CALENDAR_DAY:
    default:
        *first = day;
        *next = day + 1;
    }
}

/* ---- Between UTC and local time ---- */

/* The last transition at or before at_s; -1 is the time before the first one. */
static int32_t transition_before(const weir_zone *zone, int64_t at_s)
{
    int32_t low = 0, high = zone->count;

    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (zone->transition[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static inline int32_t offset_after(const weir_zone *zone, int32_t transition)
{
    return transition < 0 ? zone->offset_s : zone->transition[transition].offset_s;
}

/* The latest local time that was shown at any moment up to now_s; later than the present one after a transition back.
 */
static int64_t latest_local(const weir_zone *zone, int64_t now_s)
{
    int32_t i = transition_before(zone, now_s);
    int64_t latest = now_s + offset_after(zone, i);

    for (; i >= 0 && zone->transition[i].at_s > now_s - 2 * REACH_S; i--) {
        int64_t before_transition = zone->transition[i].at_s - 1 + offset_after(zone, i - 1);
        if (before_transition > latest)
            latest = before_transition;
    }
    return latest;
}

/* The first moment at which local time is local_s or later. */
static int64_t first_reaching(const weir_zone *zone, int64_t local_s)
{
    int32_t i = transition_before(zone, local_s - REACH_S);
    int64_t at_s;

    while (i + 1 < zone->count && zone->transition[i + 1].at_s - 1 + offset_after(zone, i) < local_s)
        i++;
    at_s = local_s - offset_after(zone, i);
    return i >= 0 && at_s < zone->transition[i].at_s ? zone->transition[i].at_s : at_s;
}

void weir__calendar_window(const weir_zone *zone, enum weir_calendar unit, int64_t now_us, int64_t *start_us,
                           int64_t *end_us)
{
    static const weir_zone utc = {.offset_s = 0, .count = 0};
    int64_t first, next;

    if (!zone)
        zone = &utc;
    /* Whole seconds: all midnights and transitions are on one. */
    unit_around(unit, floor_div(latest_local(zone, floor_div(now_us, SECOND_US)), DAY_S), &first, &next);
    *start_us = first_reaching(zone, first * DAY_S) * SECOND_US;
    *end_us = first_reaching(zone, next * DAY_S) * SECOND_US;
}
