/* Durations, times and sizes as text: "1h30m", "2026-11-15T10:15:49.123Z", "64MiB", "0.25". */
#ifndef WEIR_BASE_DURATION_H
#define WEIR_BASE_DURATION_H

#include "base/text.h"

/* From the largest to the smallest. */
enum weir__duration_unit {
    WEIR__YEARS,  /* of 365 days */
    WEIR__MONTHS, /* of 30 days */
    WEIR__WEEKS,
    WEIR__DAYS,
    WEIR__HOURS,
    WEIR__MINUTES,
    WEIR__SECONDS,
    WEIR__MILLISECONDS,
    WEIR__MICROSECONDS,
    WEIR__DURATION_UNITS
};

enum weir__duration_error {
    WEIR__DURATION_OK,
    WEIR__DURATION_UNREADABLE,
    WEIR__DURATION_TOO_LONG,
    WEIR__DURATION_TOO_FINE
};

struct weir__duration {
    int64_t ns;
    enum weir__duration_unit finest; /* the last unit of the text */
    bool is_one;                     /* the text is exactly one of `finest`, such as "1d" */
};

/*
 * Parses seconds without a unit, or numbers with y, mo, w, d, h, m, s, ms or us from the largest to the smallest
 * ("1h30m"). Numbers may have fractions, down to nanoseconds, and no leading zeros.
 */
enum weir__duration_error weir__duration_read(weir_text text, int64_t max_ns, struct weir__duration *duration);
/* The same, where the reason does not matter: false unless the text is a duration of at most max_ns. */
bool weir__parse_duration(weir_text text, int64_t max_ns, int64_t *ns);

/* Parses bytes, with B, KiB, MiB, GiB or no unit. False if it is unreadable; sizes above 1 PiB are INT64_MAX. */
bool weir__parse_size(weir_text text, int64_t *bytes);

/* ---- Formatting, into a buffer of WEIR__DURATION_TEXT bytes, which is returned ---- */

enum { WEIR__DURATION_TEXT = 40 };

/* Seconds without trailing zeros: "1.25". */
const char *weir__seconds_text(int64_t ns, char *buffer);
/* The same, rounded up to milliseconds. */
const char *weir__wait_text(int64_t ns, char *buffer);
/* In the largest unit that divides it: "500ms", "30s", "1h". */
const char *weir__window_text(int64_t ns, char *buffer);
/* "17.8 MB" */
const char *weir__bytes_text(double bytes, char *buffer);
/* A size of at least so many bytes as weir__parse_size reads it: "19MiB", "12GiB". */
const char *weir__size_text(double bytes, char *buffer);

/* ---- Times: milliseconds since 1970 ---- */

enum { WEIR__TIME_TEXT = 64 };

/* "2026-11-15T10:15:49.123Z" */
void weir__time_text(int64_t ms, char text[WEIR__TIME_TEXT]);
/* Nanoseconds since 1970 of ISO 8601: "2026-01-02", "2026-01-02T03:04:05.5+01:00"; UTC without an offset. */
bool weir__parse_time(const char *text, int64_t *ns);
#define WEIR__TIME_MAX (INT64_C(7258118400) * 1000000000) /* the year 2200: later times do not fit the arithmetic */

#endif
