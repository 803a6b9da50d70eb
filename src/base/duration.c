/* Durations, times and sizes as text. See duration.h. */
#include "base/duration.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)
#define DAY_NS    (86400 * SECOND_NS)

/* ---- Parsing ---- */

static const struct {
    const char *name;
    int64_t ns;
} units[WEIR__DURATION_UNITS] = {
    [WEIR__YEARS] = {"y", 365 * DAY_NS},
    [WEIR__MONTHS] = {"mo", 30 * DAY_NS},
    [WEIR__WEEKS] = {"w", 7 * DAY_NS},
    [WEIR__DAYS] = {"d", DAY_NS},
    [WEIR__HOURS] = {"h", 3600 * SECOND_NS},
    [WEIR__MINUTES] = {"m", 60 * SECOND_NS},
    [WEIR__SECONDS] = {"s", SECOND_NS},
    [WEIR__MILLISECONDS] = {"ms", SECOND_NS / 1000},
    [WEIR__MICROSECONDS] = {"us", SECOND_NS / 1000000},
};

static weir_text digits_at(weir_text text, size_t i)
{
    weir_text digits = {text.data + i, 0};
    while (i + digits.len < text.len && weir__is_digit(text.data[i + digits.len]))
        digits.len++;
    return digits;
}

/* Adds a number of units to *ns, which stays at most max_ns. */
static enum weir__duration_error add(weir_text integer, weir_text fraction, int64_t unit_ns, int64_t max_ns,
                                     int64_t *ns)
{
    int64_t count = 0, sum;
    for (size_t i = 0; i < integer.len; i++) {
        count = count * 10 + (integer.data[i] - '0');
        if (count > max_ns / unit_ns)
            return WEIR__DURATION_TOO_LONG;
    }
    if (__builtin_add_overflow(*ns, count * unit_ns, &sum))
        return WEIR__DURATION_TOO_LONG;
    for (size_t i = 0; i < fraction.len; i++) {
        int digit = fraction.data[i] - '0';
        if (digit && unit_ns % 10)
            return WEIR__DURATION_TOO_FINE;
        unit_ns /= 10;
        if (__builtin_add_overflow(sum, digit * unit_ns, &sum))
            return WEIR__DURATION_TOO_LONG;
    }
    if (sum > max_ns)
        return WEIR__DURATION_TOO_LONG;
    *ns = sum;
    return WEIR__DURATION_OK;
}

/* The unit whose name is at `i`, up to the next digit; WEIR__DURATION_UNITS: none. */
static int unit_at(weir_text text, size_t *i)
{
    weir_text name = {text.data + *i, 0};
    for (; *i < text.len && !weir__is_digit(text.data[*i]); ++*i)
        name.len++;
    int unit = 0;
    while (unit < WEIR__DURATION_UNITS && !weir__text_is(name, units[unit].name))
        unit++;
    return unit;
}

enum weir__duration_error weir__duration_read(weir_text text, int64_t max_ns, struct weir__duration *duration)
{
    struct weir__duration read = {0, WEIR__YEARS, false};
    int before = -1; /* the unit of the part before */
    size_t i = 0;
    do {
        bool first = i == 0;
        weir_text integer = digits_at(text, i), fraction = {NULL, 0};
        if (integer.len == 0 || (integer.len > 1 && integer.data[0] == '0'))
            return WEIR__DURATION_UNREADABLE; /* many read a leading zero as octal */
        i += integer.len;
        if (i + 1 < text.len && text.data[i] == '.') {
            fraction = digits_at(text, i + 1);
            i += fraction.len ? fraction.len + 1 : 0;
        }
        int unit = first && i == text.len ? WEIR__SECONDS : unit_at(text, &i);
        if (unit == WEIR__DURATION_UNITS || unit <= before)
            return WEIR__DURATION_UNREADABLE;
        before = unit;
        enum weir__duration_error error = add(integer, fraction, units[unit].ns, max_ns, &read.ns);
        if (error)
            return error;
        read.finest = (enum weir__duration_unit)unit;
        read.is_one = first && i == text.len && fraction.len == 0 && weir__text_is(integer, "1");
    } while (i < text.len);
    *duration = read;
    return WEIR__DURATION_OK;
}

bool weir__parse_duration(weir_text text, int64_t max_ns, int64_t *ns)
{
    struct weir__duration duration;
    if (weir__duration_read(text, max_ns, &duration))
        return false;
    *ns = duration.ns;
    return true;
}

bool weir__parse_size(weir_text text, int64_t *bytes)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } sizes[] = {{"KiB", INT64_C(1) << 10}, {"MiB", INT64_C(1) << 20}, {"GiB", INT64_C(1) << 30}, {"B", 1}, {"", 1}};
    weir_text number = digits_at(text, 0), unit = {text.data + number.len, text.len - number.len};
    int64_t count;
    if (!weir__parse_int(number, &count))
        return false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!weir__text_is(unit, sizes[i].name))
            continue;
        if (__builtin_mul_overflow(count, sizes[i].bytes, bytes) || *bytes > INT64_C(1) << 50)
            *bytes = INT64_MAX;
        return true;
    }
    return false;
}

/* ---- Formatting ---- */

const char *weir__seconds_text(int64_t ns, char *buffer)
{
    uint64_t size = ns < 0 ? (uint64_t)0 - (uint64_t)ns : (uint64_t)ns;
    int len = snprintf(buffer, WEIR__DURATION_TEXT, "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "", size / SECOND_NS,
                       size % SECOND_NS);
    while (buffer[len - 1] == '0')
        len--;
    if (buffer[len - 1] == '.')
        len--;
    buffer[len] = '\0';
    return buffer;
}

const char *weir__wait_text(int64_t ns, char *buffer)
{
    const int64_t millisecond = 1000000;
    int64_t rest = ns % millisecond;
    return weir__seconds_text(rest > 0 ? ns - rest + millisecond : ns, buffer);
}

const char *weir__window_text(int64_t ns, char *buffer)
{
    int last = ns < SECOND_NS ? WEIR__MILLISECONDS : WEIR__SECONDS;
    for (int unit = WEIR__DAYS; unit <= last; unit++) {
        if (ns < units[unit].ns || ns % units[unit].ns != 0)
            continue;
        snprintf(buffer, WEIR__DURATION_TEXT, "%" PRId64 "%s", ns / units[unit].ns, units[unit].name);
        return buffer;
    }
    weir__seconds_text(ns, buffer);
    strncat(buffer, "s", WEIR__DURATION_TEXT - strlen(buffer) - 1);
    return buffer;
}

const char *weir__bytes_text(double bytes, char *buffer)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof names / sizeof *names; unit++)
        bytes /= 1000;
    snprintf(buffer, WEIR__DURATION_TEXT, bytes < 100 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, names[unit]);
    return buffer;
}

const char *weir__size_text(double bytes, char *buffer)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    for (; bytes >= 10240 && unit + 1 < sizeof names / sizeof *names; unit++)
        bytes /= 1024;
    double down = (double)(int64_t)bytes;
    snprintf(buffer, WEIR__DURATION_TEXT, "%.0f%s", down < bytes ? down + 1 : down, names[unit]);
    return buffer;
}

/* ---- Times ---- */

void weir__time_text(int64_t ms, char text[WEIR__TIME_TEXT])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    *text = 0;
    if (!gmtime_r(&seconds, &utc))
        return;
    size_t used = strftime(text, WEIR__TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + used, WEIR__TIME_TEXT - used, ".%03dZ", (int)(ms % 1000));
}

bool weir__parse_time(const char *text, int64_t *ns)
{
    struct tm tm = {0};
    int64_t fraction_ns = 0;
    const char *at = strptime(text, "%Y-%m-%d", &tm);
    if (at && *at && strchr("Tt ", *at)) {
        at = strptime(at + 1, "%H:%M", &tm);
        at = at && *at == ':' ? strptime(at + 1, "%S", &tm) : at;
        if (at && *at == '.')
            for (int64_t digit_ns = SECOND_NS / 10; weir__is_digit(*++at); digit_ns /= 10)
                fraction_ns += (*at - '0') * digit_ns;
    }
    if (at && *at && !weir__text_equal_nocase(weir__text_of(at), WEIR__TEXT("Z")))
        at = strptime(at, "%z", &tm);
    else if (at)
        at = "";
    struct tm normal = tm; /* timegm moves the 30th of February on; here it is a mistake */
    int64_t seconds = at && !*at ? (int64_t)timegm(&normal) - tm.tm_gmtoff : -1;
    if (seconds < 0 || seconds >= WEIR__TIME_MAX / SECOND_NS || tm.tm_gmtoff / 86400 || normal.tm_mon != tm.tm_mon ||
        normal.tm_mday != tm.tm_mday || normal.tm_sec != tm.tm_sec)
        return false;
    *ns = seconds * SECOND_NS + fraction_ns;
    return true;
}
