/* Numbers, durations and times of the command line. */
#define _GNU_SOURCE /* timegm */
#include "base/text.h"
#include "base/number.h"
#include "cli/options.h"

#include <string.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)
#define LAST_TIME INT64_C(7258118400) /* the year 2200: what is later does not fit the engine's arithmetic */

bool weir__read_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    int64_t number;
    if (!weir__parse_int(weir__text_of(text + (*text == '+')), &number) || number < min || number > max)
        return false;
    *value = number;
    return true;
}

/* Digits with a fraction, in billionths; *end is behind them. More than nine places are cut. */
static bool read_decimal(const char *text, int64_t max, const char **end, int64_t *billionths)
{
    int64_t integer = 0, part = 0, unit = SECOND_NS / 10;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        integer = integer * 10 + (*at - '0');
        if (integer > max)
            return false;
    }
    if (at == text)
        return false;
    if (*at == '.') {
        const char *first = ++at;
        for (; *at >= '0' && *at <= '9'; at++, unit /= 10)
            part += (*at - '0') * unit;
        if (at == first)
            return false;
    }
    *end = at;
    *billionths = integer * SECOND_NS + part;
    return true;
}

/* Exactly `count` digits. */
static bool read_digits(const char **at, int count, int *value)
{
    int number = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        number = number * 10 + (**at - '0');
    }
    *value = number;
    return true;
}

/* "Z", "+01:00", "-0530" or nothing, which is UTC; the end must follow. */
static bool read_zone(const char *at, int *offset_s)
{
    int hours, minutes;
    *offset_s = 0;
    if (*at == '\0' || ((*at == 'Z' || *at == 'z') && at[1] == '\0'))
        return true;
    if (*at != '+' && *at != '-')
        return false;
    int sign = *at++ == '-' ? -1 : 1;
    if (!read_digits(&at, 2, &hours))
        return false;
    at += *at == ':';
    if (!read_digits(&at, 2, &minutes) || *at != '\0' || hours > 23 || minutes > 59)
        return false;
    *offset_s = sign * (hours * 3600 + minutes * 60);
    return true;
}

/* The clock part: "T03:04", "T03:04:05", "T03:04:05.25"; *at is behind it. */
static bool read_clock(const char **at, struct tm *tm, int64_t *part_ns)
{
    (*at)++;
    if (!read_digits(at, 2, &tm->tm_hour) || *(*at)++ != ':' || !read_digits(at, 2, &tm->tm_min))
        return false;
    if (**at != ':')
        return true;
    const char *end;
    int64_t seconds;
    if (!read_decimal(++*at, 59, &end, &seconds) || end < *at + 2 || ((*at)[2] != '.' && end != *at + 2))
        return false;
    *at = end;
    tm->tm_sec = (int)(seconds / SECOND_NS);
    *part_ns = seconds % SECOND_NS;
    return true;
}

static bool read_iso(const char *at, int64_t *ns)
{
    struct tm tm = {0};
    int64_t part_ns = 0;
    int offset_s, year, month;
    if (!read_digits(&at, 4, &year) || *at++ != '-' || !read_digits(&at, 2, &month) || *at++ != '-' ||
        !read_digits(&at, 2, &tm.tm_mday))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    if ((*at == 'T' || *at == 't' || *at == ' ') && !read_clock(&at, &tm, &part_ns))
        return false;
    if (!read_zone(at, &offset_s))
        return false;
    struct tm normal = tm; /* timegm moves the 30th of February on; here it is a mistake */
    int64_t seconds = (int64_t)timegm(&normal) - offset_s;
    if (normal.tm_mday != tm.tm_mday || normal.tm_mon != tm.tm_mon || normal.tm_hour != tm.tm_hour ||
        normal.tm_min != tm.tm_min)
        return false;
    if (seconds < 0 || seconds >= LAST_TIME)
        return false;
    *ns = seconds * SECOND_NS + part_ns;
    return true;
}

bool weir__read_time(const char *text, int64_t *ns)
{
    const char *end;
    int64_t time_ns;
    if (read_decimal(text, LAST_TIME - 1, &end, &time_ns) && *end == '\0') {
        *ns = time_ns;
        return true;
    }
    return read_iso(text, ns);
}
