/* Time zone files: any bytes are refused or become a zone each of whose windows contains its moment. */
#include "algo/algo.h"
#include "engine/rule_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_windows(const weir_zone *zone, int64_t at_us)
{
    if (at_us < 0)
        return; /* no clock that weir takes is before 1970 */
    for (int unit = WEIR_CALENDAR_DAY; unit <= WEIR_CALENDAR_YEAR; unit++) {
        int64_t start_us, end_us, next_us, unused;
        weir__calendar_window(zone, (enum weir_calendar)unit, at_us, &start_us, &end_us);
        if (start_us > at_us || end_us <= at_us)
            abort();
        /* Windows tile: the next one begins where this one ends. */
        weir__calendar_window(zone, (enum weir_calendar)unit, end_us, &next_us, &unused);
        if (next_us != end_us)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_zone *zone = NULL;
    int error = weir__zone_parse(data, size, &zone);

    if (error) {
        if (error != WEIR_EZONE || zone)
            abort();
        return 0;
    }
    int32_t offset_s = zone->offset_s;
    for (int32_t i = 0; i < zone->count; i++) {
        const struct weir__zone_transition *transition = &zone->transition[i];
        if ((i > 0 && transition->at_s <= transition[-1].at_s) || transition->offset_s == offset_s ||
            transition->offset_s <= -26 * 3600 || transition->offset_s >= 26 * 3600)
            abort();
        offset_s = transition->offset_s;
        /* Some of them: a file may have a hundred thousand. */
        if (i < 64 && transition->at_s < INT64_MAX / 1000000000) {
            check_windows(zone, transition->at_s * 1000000);
            check_windows(zone, transition->at_s * 1000000 - 1);
        }
    }
    check_windows(zone, 0);
    check_windows(zone, INT64_C(1700000000123456));
    check_windows(zone, INT64_MAX / 1000);
    weir_zone_close(zone);
    return 0;
}
