/* Calendar windows: the day, week, month or year that contains a time, in a time zone. */
#ifndef WEIR_ALGO_CALENDAR_H
#define WEIR_ALGO_CALENDAR_H

#include <weir/weir.h>

/* From `at_s` on (seconds since 1970, UTC), local time is UTC plus offset_s. */
struct weir__zone_transition {
    int64_t at_s;
    int32_t offset_s;
};

/* A time zone: all transitions, far enough into the future. Immutable. */
struct weir_zone {
    int32_t offset_s; /* before the first transition */
    int32_t count;
    struct weir__zone_transition transition[]; /* by at_s, rising */
};

/*
 * The window that contains now_us: *start_us <= now_us < *end_us, both in microseconds since 1970, UTC. A NULL zone is
 * UTC. A local midnight that a transition skips is the first moment after the gap; one that occurs twice is the first.
 */
void weir__calendar_window(const weir_zone *zone, enum weir_calendar unit, int64_t now_us, int64_t *start_us,
                           int64_t *end_us);

#endif
